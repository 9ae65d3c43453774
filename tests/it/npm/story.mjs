// SPDX-License-Identifier: MIT
//
// The e2b SDK behind pipes: each line of input is a JSON array of a call's name and its arguments, answered by a line
// {"ok": …} or {"error": …}. tests/it/s_story.py tells its story through it.
import readline from 'node:readline'
import { Sandbox } from 'e2b'

const boxes = new Map()

function keep(s) {
  boxes.set(s.sandboxId, s)
  return s.sandboxId
}

const calls = {
  async create(template) { return keep(await Sandbox.create(template ?? 'base', { timeoutMs: 300_000 })) },
  async write(id, path, text) { await boxes.get(id).files.write(path, text) },
  async read(id, path) { return await boxes.get(id).files.read(path) },
  async start(id, shell) {
    const h = await boxes.get(id).commands.run(shell, { background: true, timeoutMs: 0 })
    await h.disconnect()
  },
  async pause(id) { return await boxes.get(id).pause() },
  async resume(id) { await boxes.get(id).connect() },
  async state(id) { return (await boxes.get(id).getInfo()).state },
  async fork(id, count) { return (await boxes.get(id).fork({ count })).map(keep) },
  async snapshot(id) { return (await boxes.get(id).createSnapshot()).snapshotId },
  async kill(id) { return await boxes.get(id).kill() },
  async forget(snapshot) { return await Sandbox.deleteSnapshot(snapshot) },
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const [name, ...args] = JSON.parse(line)
  let answer
  try {
    answer = { ok: (await calls[name](...args)) ?? null }
  } catch (e) {
    answer = { error: String(e.stack ?? e) }
  }
  console.log(JSON.stringify(answer))
}
process.exit(0)
