// SPDX-License-Identifier: MIT
//
// What every version of the e2b npm SDK can do, as a judge of a server: node common.mjs FOLDER NAME…, where FOLDER has node_modules/e2b.
// Prints a line of JSON for each check, [name, null], [name, what was wrong], or [name, "LACKS …"] where this version has no such call.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'

const [folder, ...names] = process.argv.slice(2)
const { Sandbox, ...e2b } = createRequire(`${folder}/x.js`)('e2b')
const ABSENT = 'i00000000000000000000'
const made = []

class Lacks extends Error {}

async function create(opts = {}) {
  const s = await Sandbox.create({ timeoutMs: 120_000, ...opts })
  made.push(s)
  return s
}

function need(target, ...calls) {
  const name = calls.find((c) => typeof target[c] === 'function')
  if (!name) throw new Lacks(calls.join(' or '))
  return target[name].bind(target)
}

async function fails(promise, pattern = /./) {
  await assert.rejects(promise, (e) => {
    assert.match(e.constructor.name, pattern)
    return true
  })
}

async function rows(p) {
  if (Array.isArray(await p)) return await p
  const out = []
  while (p.hasNext) out.push(...(await p.nextItems()))
  return out
}

const checks = {
  async create_and_kill() {
    const s = await create()
    assert.equal(await s.isRunning(), true)
    await s.kill()
    assert.equal(await s.isRunning(), false)
  },
  async info() {
    const s = await create({ metadata: { job: '42' } })
    const info = await need(s, 'getInfo')()
    assert.equal(info.sandboxId, s.sandboxId)
    assert.deepEqual(info.metadata, { job: '42' })
  },
  async timeout() {
    const s = await create()
    await s.setTimeout(600_000)
    assert.ok(Math.abs((await need(s, 'getInfo')()).endAt - Date.now() - 600_000) < 20_000)
  },
  async list() {
    const mark = `c${process.pid}`
    const one = await create({ metadata: { mark, n: '1 &=+é' } })
    const two = await create({ metadata: { mark } })
    assert.deepEqual((await rows(Sandbox.list({ query: { metadata: { mark } } }))).map((r) => r.sandboxId), [two.sandboxId, one.sandboxId])
  },
  async connect() {
    const s = await create()
    await s.files.write('/home/user/here', 'x')
    const again = await Sandbox.connect(s.sandboxId)
    assert.equal(await again.files.read('here'), 'x')
    await fails(Sandbox.connect(ABSENT))
  },
  async run() {
    const s = await create({ envs: { A: '1' } })
    const r = await s.commands.run('echo "$A $B $PWD"; echo err >&2', { envs: { B: '2' }, cwd: '/tmp' })
    assert.deepEqual([r.exitCode, r.stdout, r.stderr], [0, '1 2 /tmp\n', 'err\n'])
    await fails(s.commands.run('exit 7'), /CommandExit/)
    await fails(s.commands.run('sleep 30', { timeoutMs: 500 }), /Timeout/)
    assert.equal((await s.commands.run('id -un', { user: 'root' })).stdout, 'root\n')
    assert.equal((await s.commands.run('seq 50000')).stdout.length, 288894)
  },
  async background() {
    const s = await create()
    const h = await s.commands.run('read x; echo "got $x"; sleep 100', { background: true, stdin: true })
    assert.ok((await s.commands.list()).some((p) => p.pid === h.pid))
    await s.commands.sendStdin(h.pid, 'it\n')
    const again = await s.commands.connect(h.pid)
    assert.equal(await again.kill(), true)
    assert.equal(await s.commands.kill(4190000), false)
    await h.wait().catch(() => {})
  },
  async close_stdin() {
    const s = await create()
    const close = need(s.commands, 'closeStdin')
    const h = await s.commands.run('cat; echo end', { background: true, stdin: true })
    await s.commands.sendStdin(h.pid, 'x')
    await close(h.pid)
    assert.equal((await h.wait()).stdout, 'xend\n')
  },
  async pty() {
    const s = await create()
    let seen = ''
    const h = await s.pty.create({ cols: 80, rows: 24, onData: (d) => { seen += Buffer.from(d).toString() } })
    await s.pty.resize(h.pid, { cols: 120, rows: 40 })
    await s.pty.sendInput(h.pid, Buffer.from("echo $(stty size | tr ' ' x); exit\n"))
    await h.wait()
    assert.match(seen, /40x120/)
  },
  async files() {
    const s = await create()
    const f = s.files
    assert.equal((await f.write('/home/user/a/b.txt', 'text é')).path, '/home/user/a/b.txt')
    assert.equal(await f.read('a/b.txt'), 'text é')
    const bytes = new Uint8Array(300_000).map((_, i) => (i * 31) & 255)
    await f.write('bin', bytes.buffer)
    assert.deepEqual(Buffer.from(await f.read('bin', { format: 'bytes' })), Buffer.from(bytes))
    assert.equal(await f.makeDir('/home/user/d'), true)
    assert.equal(await f.makeDir('/home/user/d'), false)
    assert.equal((await f.rename('/home/user/bin', '/home/user/d/g')).name, 'g')
    assert.deepEqual([await f.exists('d/g'), await f.exists('bin')], [true, false])
    assert.deepEqual((await f.list('/home/user/d')).map((e) => e.name), ['g'])
    await f.remove('/home/user/d')
    await fails(f.read('/no/such'), /NotFound/)
    await fails(f.list('/no/such'), /NotFound/)
    await fails(f.read('/home/user'), /InvalidArgument/)
  },
  async write_files() {
    const s = await create()
    assert.equal((await s.files.write(Array.from({ length: 5 }, (_, i) => ({ path: `/tmp/many/${i}`, data: `n${i}` })))).length, 5)
    assert.equal(await s.files.read('/tmp/many/3'), 'n3')
  },
  async file_info() {
    const info = await need((await create()).files, 'getInfo')('/etc/passwd')
    assert.deepEqual([info.name, info.owner], ['passwd', 'root'])
  },
  async watch() {
    const s = await create()
    await s.files.makeDir('/tmp/w')
    let seen
    const found = new Promise((done) => { seen = (e) => { if (e.name === 'a.txt' && e.type === 'write') done() } })
    const w = await s.files.watchDir('/tmp/w', (e) => seen(e))
    await s.files.write('/tmp/w/a.txt', 'a')
    await found
    await w.stop()
  },
  async links() {
    const s = await create()
    await s.files.write('/home/user/l', 'by link')
    assert.match(await s.downloadUrl('/home/user/l'), /\/files\?.*signature/)
  },
  async pause() {
    const s = await create()
    await s.files.write('kept', 'data')
    await need(s, 'pause', 'betaPause')()
    const again = await Sandbox.connect(s.sandboxId)
    assert.equal(await again.files.read('kept'), 'data')
  },
  async metrics() {
    assert.ok(Array.isArray(await need(await create(), 'getMetrics')()))
  },
  async snapshots() {
    const s = await create()
    const one = await need(s, 'createSnapshot')()
    assert.ok((await rows(s.listSnapshots())).some((r) => r.snapshotId === one.snapshotId))
    assert.equal(await Sandbox.deleteSnapshot(one.snapshotId), true)
  },
  async fork() {
    const [one] = await need(await create(), 'fork')()
    made.push(one)
    assert.equal(await one.isRunning(), true)
  },
  async network() {
    const s = await create()
    await need(s, 'updateNetwork')({ denyOut: ['9.9.9.9'] })
    assert.deepEqual((await s.getInfo()).network.denyOut, ['9.9.9.9'])
  },
}

process.on('unhandledRejection', () => {})     // a stream that ends with its sandbox is nobody's fault here
for (const name of names) {
  let wrong = null
  let timer
  try {
    const limit = new Promise((_, fail) => { timer = setTimeout(() => fail(new Error('it takes too long')), 30_000) })
    await Promise.race([checks[name](), limit])
  } catch (e) {
    wrong = e instanceof Lacks ? `LACKS ${e.message}` : String(e.stack ?? e)
  }
  clearTimeout(timer)
  console.log(JSON.stringify([name, wrong]))
  await Promise.all(made.splice(0).map((s) => s.kill().catch(() => {})))
}
process.exit(0)
