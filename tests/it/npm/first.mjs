// SPDX-License-Identifier: MIT
//
// One getInfo by a fresh process, for tests/bench.
import { Sandbox } from 'e2b'

const info = await Sandbox.getInfo(process.argv[2])
process.exit(info.sandboxId === process.argv[2] ? 0 : 1)
