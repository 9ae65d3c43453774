// SPDX-License-Identifier: MIT
//
// Clients of the e2b SDK, each with a stream and one call a second, until standard input ends; then a line of JSON: how many calls
// went well, how many failed in which words, how many streams ended. tests/it/y_restart.py restarts the daemon once all have their stream ("begun").
//
//   node restart.mjs SANDBOX CLIENTS MILLISECONDS
import { setTimeout as pause } from 'node:timers/promises'
import { Sandbox } from 'e2b'

const [id, clients, gap] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])]
const tally = { ok: 0, failed: {}, streams: 0, streams_ended: {} }
let over = false

function count(into, e) {
  const words = String(e?.message ?? e).slice(0, 100)
  into[words] = (into[words] ?? 0) + 1
}

async function stream(box) {
  const handle = await box.commands.run('cat', { background: true, timeoutMs: 0 })
  tally.streams++
  handle.wait().then(() => over || count(tally.streams_ended, 'ended'), (e) => over || count(tally.streams_ended, e))
}

async function begin() {
  const box = await Sandbox.connect(id)
  await stream(box)
  return box
}

async function client(i, box) {
  for (let n = i; !over; n++) {
    try {
      await [() => box.getInfo(), () => box.commands.run('true'), () => box.isRunning(), () => box.files.list('/tmp')][n % 4]()
      tally.ok++
    } catch (e) {
      count(tally.failed, e)
    }
    await pause(gap)
  }
}

const boxes = await Promise.all(Array.from({ length: clients }, begin))
const all = boxes.map((box, i) => client(i, box))
console.log('begun')
process.stdin.on('end', async () => {
  over = true
  await Promise.all(all)
  console.log(JSON.stringify(tally))
  process.exit(0)
})
process.stdin.resume()
