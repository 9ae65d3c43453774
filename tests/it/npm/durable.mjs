// SPDX-License-Identifier: MIT
//
// A client of the e2b SDK with one command: what it says is a line of JSON each, and each line of standard input is sent to it.
// tests/it/g_durable.py has it start the command, kills it, and has another one connect.
//
//   node durable.mjs start SANDBOX SHELL | connect SANDBOX PID
import { createInterface } from 'node:readline'
import { Sandbox } from 'e2b'

const [what, id, arg] = process.argv.slice(2)
const say = (x) => console.log(JSON.stringify(x))
const box = await Sandbox.connect(id)
const options = { background: true, stdin: true, timeoutMs: 0, onStdout: (out) => say({ out }) }
const handle = what === 'start' ? await box.commands.run(arg, options) : await box.commands.connect(Number(arg), options)
say({ pid: handle.pid })
createInterface({ input: process.stdin }).on('line', (line) => box.commands.sendStdin(handle.pid, line + '\n'))
try {
  say({ end: (await handle.wait()).exitCode })
} catch (e) {
  say(e.exitCode === undefined ? { error: `${e.name}: ${e.message}` } : { end: e.exitCode })
}
process.exit(0)
