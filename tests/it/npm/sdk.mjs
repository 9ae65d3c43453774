// SPDX-License-Identifier: MIT
//
// The e2b SDK, unmodified, as the judge of a server: node sdk.mjs NAME runs one check and exits 0 when it holds.
// Where the server is comes from the SDK's own E2B_* variables.
import assert from 'node:assert/strict'
import {
  AuthenticationError, CommandExitError, FileNotFoundError, FileType, InvalidArgumentError, NotFoundError, RateLimitError,
  Sandbox, SandboxNotFoundError, Secret, TimeoutError,
} from 'e2b'

const made = []

async function create(opts = {}, template = 'base') {
  const sandbox = await Sandbox.create(template, { timeoutMs: 60_000, ...opts })
  made.push(sandbox)
  return sandbox
}

async function all(paginator) {
  const rows = []
  while (paginator.hasNext) rows.push(...(await paginator.nextItems()))
  return rows
}

function fails(promise, kind) {
  return assert.rejects(promise, (e) => {
    assert.ok(e instanceof kind, `${e.constructor.name}: ${e.message}`)
    return true
  })
}

const checks = {
  async create_and_kill() {
    const s = await create()
    assert.match(s.sandboxId, /^i[a-z0-9]{20}$/)
    assert.equal(await s.isRunning(), true)
    assert.equal(await s.kill(), true)
    assert.equal(await s.isRunning(), false)
    assert.equal(await s.kill(), false)
  },

  async info_and_timeout() {
    const s = await create({ metadata: { job: '42', 'k&=': 'é+1' }, timeoutMs: 30_000 })
    let info = await s.getInfo()
    assert.equal(info.state, 'running')
    assert.deepEqual(info.metadata, { job: '42', 'k&=': 'é+1' })
    assert.ok(Math.abs(info.endAt - info.startedAt - 30_000) < 1500)
    await s.setTimeout(200_000)
    info = await Sandbox.getInfo(s.sandboxId)
    assert.ok(Math.abs(info.endAt - Date.now() - 200_000) < 5000)
  },

  async connect() {
    const s = await create()
    await s.files.write('/home/user/here', 'x')
    const again = await Sandbox.connect(s.sandboxId)
    assert.equal(again.sandboxId, s.sandboxId)
    assert.equal(await again.files.read('here'), 'x')
  },

  async list() {
    const mark = `m${process.pid}`
    const ids = []
    for (let i = 0; i < 3; i++) ids.unshift((await create({ metadata: { mark, n: `${i} &=+é` } })).sandboxId)
    const query = { metadata: { mark } }
    assert.deepEqual((await all(Sandbox.list({ query }))).map((r) => r.sandboxId), ids)
    assert.deepEqual((await all(Sandbox.list({ query, limit: 1 }))).map((r) => r.sandboxId), ids)
    assert.deepEqual((await all(Sandbox.list({ query, limit: 2, order: 'asc' }))).map((r) => r.sandboxId), ids.toReversed())
    assert.deepEqual((await all(Sandbox.list({ query: { metadata: { mark, n: '1 &=+é' } } }))).map((r) => r.sandboxId), [ids[1]])
    assert.deepEqual(await all(Sandbox.list({ query: { metadata: { mark }, state: ['paused'] } })), [])
    assert.deepEqual(await all(Sandbox.list({ query: { metadata: { mark: 'nobody' } } })), [])
  },

  async watch() {
    const s = await create()
    await s.files.makeDir('/home/user/w/sub')
    const seen = []
    let arrived = () => {}
    const until = async (name, type) => {
      while (!seen.some((e) => e.name === name && e.type === type)) await new Promise((done) => (arrived = done))
    }
    const handle = await s.files.watchDir('/home/user/w', (e) => {
      seen.push(e)
      arrived()
    }, { recursive: true })
    await s.files.write('/home/user/w/a.txt', 'a')
    await s.files.write('/home/user/w/sub/b.txt', 'b')
    await until('a.txt', 'write')
    await until('sub/b.txt', 'write')
    await s.files.rename('/home/user/w/a.txt', '/home/user/w/c.txt')
    await until('a.txt', 'rename')
    await until('c.txt', 'create')
    await s.files.remove('/home/user/w/c.txt')
    await until('c.txt', 'remove')
    await handle.stop()
    await fails(s.files.watchDir('/home/user/missing', () => {}), NotFoundError)
  },

  async run() {
    const s = await create({ envs: { A: 'from create' } })
    const r = await s.commands.run('echo out; echo err >&2; echo "$A $B"; basename "$PWD"', { envs: { B: 'from run' }, cwd: '/tmp' })
    assert.equal(r.exitCode, 0)
    assert.equal(r.stdout, 'out\nfrom create from run\ntmp\n')
    assert.equal(r.stderr, 'err\n')
  },

  async run_fails() {
    const s = await create()
    await assert.rejects(s.commands.run('echo out; echo err >&2; exit 7'), (e) => {
      assert.ok(e instanceof CommandExitError)
      assert.equal(e.exitCode, 7)
      assert.equal(e.stdout, 'out\n')
      assert.equal(e.stderr, 'err\n')
      return true
    })
  },

  async run_streams() {
    const s = await create()
    const seen = []
    await s.commands.run('for i in 1 2 3; do echo $i; sleep 0.1; done', { onStdout: (d) => { seen.push(d) } })
    assert.equal(seen.join(''), '1\n2\n3\n')
    assert.ok(seen.length >= 2, `came in ${seen.length} pieces`)
  },

  async run_unicode() {
    const s = await create()
    const text = 'Žluťoučký kůň 🐎 '.repeat(5000)
    await s.files.write('text', text)
    assert.equal((await s.commands.run('cat text')).stdout, text)
  },

  async run_much_output() {
    const s = await create()
    const r = await s.commands.run('seq 200000')
    assert.equal(r.stdout.length, 1288895)
    assert.ok(r.stdout.endsWith('\n200000\n'))
  },

  async run_timeout() {
    const s = await create()
    await fails(s.commands.run('sleep 30', { timeoutMs: 500 }), TimeoutError)
  },

  async background() {
    const s = await create()
    const h = await s.commands.run('echo started; sleep 100', { background: true })
    assert.ok(h.pid > 0)
    assert.ok((await s.commands.list()).some((p) => p.pid === h.pid && p.args.at(-1).includes('sleep 100')))
    assert.equal(await h.kill(), true)
    await assert.rejects(h.wait())
    assert.equal(await s.commands.kill(h.pid), false)
  },

  async background_wait() {
    const s = await create()
    const h = await s.commands.run('sleep 0.2; echo done', { background: true })
    const r = await h.wait()
    assert.equal(r.stdout, 'done\n')
  },

  async stdin() {
    const s = await create()
    const h = await s.commands.run('cat', { background: true, stdin: true })
    await s.commands.sendStdin(h.pid, 'hello ')
    await s.commands.sendStdin(h.pid, 'wörld\n')
    await s.commands.closeStdin(h.pid)
    const r = await h.wait()
    assert.equal(r.stdout, 'hello wörld\n')
  },

  async attach() {
    const s = await create()
    const h = await s.commands.run('read x; echo "got $x"', { background: true, stdin: true })
    await h.disconnect()
    const again = await s.commands.connect(h.pid)
    await s.commands.sendStdin(h.pid, 'it\n')
    const r = await again.wait()
    assert.equal(r.stdout, 'got it\n')
  },

  async parallel_commands() {
    const s = await create()
    const got = await Promise.all(Array.from({ length: 60 }, (_, i) => s.commands.run(`echo ${i}`)))
    got.forEach((r, i) => assert.equal(r.stdout, `${i}\n`))
  },

  async files_text_and_binary() {
    const s = await create()
    const info = await s.files.write('/home/user/a/b.txt', 'text é')
    assert.equal(info.path, '/home/user/a/b.txt')
    assert.equal(await s.files.read('a/b.txt'), 'text é')
    const bytes = new Uint8Array(300_000).map((_, i) => (i * 31) & 255)
    await s.files.write('bin', bytes.buffer)
    const back = await s.files.read('bin', { format: 'bytes' })
    assert.deepEqual(Buffer.from(back), Buffer.from(bytes))
    await s.files.write('blob', new Blob([bytes]))
    assert.equal((await (await s.files.read('blob', { format: 'blob' })).arrayBuffer()).byteLength, 300_000)
    await s.files.write('empty', '')
    assert.equal(await s.files.read('empty'), '')
  },

  async files_streams() {
    const s = await create()
    const piece = new Uint8Array(65536).fill(7)
    let left = 40
    const stream = new ReadableStream({
      pull(c) { if (left-- > 0) c.enqueue(piece); else c.close() },
    })
    await s.files.write('streamed', stream)
    assert.equal((await s.files.getInfo('streamed')).size, 40 * 65536)
    let n = 0
    for await (const chunk of await s.files.read('streamed', { format: 'stream' })) n += chunk.byteLength
    assert.equal(n, 40 * 65536)
  },

  async files_unicode_names() {
    const s = await create()
    for (const name of ['ünï cödé 🎉.txt', "quote'd.txt", 'percent%20+plus.txt', 'a&b=c?d#e.txt', 'кириллица']) {
      await s.files.write(`/home/user/${name}`, name)
      assert.equal(await s.files.read(`/home/user/${name}`), name)
      assert.equal((await s.files.getInfo(`/home/user/${name}`)).name, name)
    }
    assert.equal((await s.files.list('/home/user')).filter((e) => e.type === FileType.FILE).length >= 5, true)
  },

  async files_many() {
    const s = await create()
    const entries = Array.from({ length: 20 }, (_, i) => ({ path: `/tmp/many/${i}`, data: `n${i}` }))
    assert.equal((await s.files.write(entries)).length, 20)
    assert.equal((await s.files.list('/tmp/many')).length, 20)
    assert.equal(await s.files.read('/tmp/many/13'), 'n13')
  },

  async files_tree() {
    const s = await create()
    assert.equal(await s.files.makeDir('/home/user/d/e'), true)
    assert.equal(await s.files.makeDir('/home/user/d/e'), false)
    await s.files.write('/home/user/d/f', '12345')
    const rows = await s.files.list('/home/user/d', { depth: 2 })
    assert.deepEqual(rows.map((e) => [e.name, e.type]), [['e', 'dir'], ['f', 'file']])
    const info = await s.files.getInfo('/home/user/d/f')
    assert.equal(info.size, 5)
    assert.equal(info.owner, 'user')
    assert.ok(info.modifiedTime instanceof Date)
    const moved = await s.files.rename('/home/user/d/f', '/home/user/d/g')
    assert.equal(moved.name, 'g')
    assert.equal(await s.files.exists('/home/user/d/f'), false)
    assert.equal(await s.files.exists('/home/user/d/g'), true)
    await s.files.remove('/home/user/d')
    assert.equal(await s.files.exists('/home/user/d'), false)
  },

  async file_errors() {
    const s = await create()
    await fails(s.files.read('/no/such'), FileNotFoundError)
    await fails(s.files.list('/no/such'), FileNotFoundError)
    await fails(s.files.getInfo('/no/such'), FileNotFoundError)
    await fails(s.files.read('/home/user'), InvalidArgumentError)
    await fails(s.files.write('/home/user', 'x'), InvalidArgumentError)
    await fails(s.files.rename('/no/such', '/tmp/x'), FileNotFoundError)
    await fails(s.commands.run('true', { cwd: '/no/such' }), InvalidArgumentError)
    await fails(s.commands.run('true', { user: 'nobody-here' }), AuthenticationError)
    await fails(s.commands.connect(4_190_000), NotFoundError)
  },

  async sandbox_errors() {
    await assert.rejects(Sandbox.create('no-such-template'), /404/)
    await fails(Sandbox.connect('i00000000000000000000'), SandboxNotFoundError)
    await fails(Sandbox.getInfo('i00000000000000000000'), SandboxNotFoundError)
    assert.equal(await Sandbox.kill('i00000000000000000000'), false)
    await fails(Sandbox.create({ apiKey: `e2b_${'0'.repeat(40)}` }), AuthenticationError)
    const s = await create()
    await s.kill()
    await fails(s.getInfo(), SandboxNotFoundError)
    await fails(s.setTimeout(1000), SandboxNotFoundError)
    await assert.rejects(s.commands.run('true'))
    await assert.rejects(s.files.read('x'))
  },

  async killed_while_running() {
    const s = await create()
    const h = await s.commands.run('sleep 100', { background: true })
    await s.kill()
    await assert.rejects(h.wait())
  },

  async signed_urls() {
    const s = await create()
    await s.files.write('/home/user/signed', 'by url')
    const r = await fetch(await s.downloadUrl('/home/user/signed'), { headers: {
      'E2b-Sandbox-Id': s.sandboxId, 'E2b-Sandbox-Port': '49983' } })
    assert.equal(r.status, 200)
    assert.equal(await r.text(), 'by url')
  },

  async metrics() {
    const s = await create()
    assert.ok(Array.isArray(await s.getMetrics()))
  },

  async pause_and_resume() {
    const s = await create({ metadata: { a: 'b' } })
    await s.files.write('kept', 'data')
    assert.equal(await s.pause(), true)
    assert.equal(await s.pause(), false)
    assert.equal(await s.isRunning(), false)
    const info = await s.getInfo()
    assert.equal(info.state, 'paused')
    assert.deepEqual(info.metadata, { a: 'b' })
    await fails(s.setTimeout(1000), SandboxNotFoundError)
    assert.deepEqual((await all(Sandbox.list({ query: { state: ['paused'], metadata: { a: 'b' } } }))).map((r) => r.sandboxId), [s.sandboxId])
    const again = await Sandbox.connect(s.sandboxId, { timeoutMs: 60_000 })
    assert.equal(again.sandboxId, s.sandboxId)
    assert.equal(await again.files.read('kept'), 'data')
    assert.equal(await s.files.read('kept'), 'data')
    assert.equal((await s.getInfo()).state, 'running')
    await fails(Sandbox.pause('i00000000000000000000'), SandboxNotFoundError)
  },

  async local_pause_keeps_processes() {
    const s = await create()
    const h = await s.commands.run('n=0; while :; do n=$((n+1)); echo $n; sleep 0.02; done', { background: true })
    await s.pause()
    await assert.rejects(h.wait())
    await s.connect()
    assert.ok((await s.commands.list()).some((p) => p.pid === h.pid))
    let seen = 0
    const again = await s.commands.connect(h.pid, { onStdout: (d) => { seen += d.length } })
    while (!seen) await new Promise((r) => setTimeout(r, 20))
    assert.equal(await again.kill(), true)
  },

  async local_pause_files_only() {
    const s = await create({ envs: { A: '1' } })
    const h = await s.commands.run('sleep 1000', { background: true })
    await s.files.write('kept', 'data')
    assert.equal(await s.pause({ keepMemory: false }), true)
    await s.connect()
    assert.ok(!(await s.commands.list()).some((p) => p.pid === h.pid))
    assert.equal(await s.files.read('kept'), 'data')
  },

  async lifecycle() {
    await fails(Sandbox.create({ lifecycle: { onTimeout: 'kill', autoResume: true } }), InvalidArgumentError)
    const kill = await create({ lifecycle: { onTimeout: 'kill' } })
    assert.deepEqual((await kill.getInfo()).lifecycle, { onTimeout: 'kill', autoResume: false })
    const pause = await create({ lifecycle: { onTimeout: 'pause', autoResume: true } })
    assert.deepEqual((await pause.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: true })
    await create({ lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } })
  },

  async local_wakes_by_traffic() {
    const s = await create({ timeoutMs: 1000, lifecycle: { onTimeout: 'pause', autoResume: true } })
    const h = await s.commands.run('sleep 1000', { background: true })
    await h.disconnect() // a handle whose stream is cut asks for the agent's health, which is traffic
    while ((await s.getInfo()).state !== 'paused') await new Promise((r) => setTimeout(r, 100))
    assert.equal((await s.commands.run('echo awake')).stdout, 'awake\n')
    assert.ok((await s.commands.list()).some((p) => p.pid === h.pid))
    assert.equal((await s.getInfo()).state, 'running')
  },

  async local_fork() {
    const s = await create({ metadata: { mark: `f${process.pid}` } })
    await s.files.write('kept', 'data')
    const before = await s.getInfo()
    const forks = await s.fork({ count: 3, timeoutMs: 60_000 })
    assert.equal(forks.length, 3)
    for (const f of forks) {
      assert.ok(f instanceof Sandbox, String(f))
      made.push(f)
      assert.notEqual(f.sandboxId, s.sandboxId)
      assert.equal(await f.files.read('kept'), 'data')
      assert.deepEqual((await f.getInfo()).metadata, before.metadata)
    }
    assert.deepEqual((await s.getInfo()).endAt, before.endAt)
    assert.equal((await all(Sandbox.list({ query: { metadata: { mark: `f${process.pid}` } } }))).length, 4)
    await fails(Sandbox.fork('i00000000000000000000'), SandboxNotFoundError)
  },

  async local_snapshots() {
    const s = await create()
    await s.files.write('kept', 'data')
    const name = `snap-${process.pid}`
    const one = await s.createSnapshot({ name: `${name}:v1` })
    assert.ok(one.snapshotId.endsWith(`/${name}:v1`))
    const two = await s.createSnapshot()
    const rows = await all(s.listSnapshots())
    assert.deepEqual(rows.map((r) => r.snapshotId), [two.snapshotId, one.snapshotId])
    assert.deepEqual((await all(s.listSnapshots({ limit: 1 }))).length, 2)
    assert.equal(await s.kill(), true)
    const t = await create({}, one.snapshotId)
    assert.equal(await t.files.read('kept'), 'data')
    await assert.rejects(Sandbox.deleteSnapshot(one.snapshotId))
    await t.kill()
    assert.equal(await Sandbox.deleteSnapshot(one.snapshotId), true)
    assert.equal(await Sandbox.deleteSnapshot(one.snapshotId), false)
    assert.equal(await Sandbox.deleteSnapshot(two.snapshotId), true)
    await assert.rejects(Sandbox.create(one.snapshotId), /404/)
  },

  async network() {
    const s = await create({ allowInternetAccess: false, network: { allowPublicTraffic: false, denyOut: ['10.0.0.0/8'] } })
    assert.ok(s.trafficAccessToken)
    let info = await s.getInfo()
    assert.equal(info.allowInternetAccess, false)
    assert.equal(info.network.allowPublicTraffic, false)
    assert.deepEqual(info.network.denyOut, ['10.0.0.0/8'])
    await s.updateNetwork({ denyOut: ({ allTraffic }) => [allTraffic] })
    info = await s.getInfo()
    assert.deepEqual(info.network.denyOut, ['0.0.0.0/0'])
    assert.equal(info.network.allowPublicTraffic, false)
    await s.updateNetwork({})
    assert.ok(!(await s.getInfo()).network?.denyOut?.length)
    await assert.rejects(Sandbox.create({ network: { allowOut: ['example.com'] } }), /400/)
    await assert.rejects(Sandbox.create({ network: { denyOut: ['example.com'] } }), /400/)
  },

  // what it sends is held against the ledger (i_npm_local.py)
  async fake_payloads() {
    await create({
      iam: { tokens: { aws: Secret.iamToken({ audience: 'sts', tokenType: 'JWT-SVID' }) } },
      allowInternetAccess: false,
      lifecycle: { onTimeout: { action: 'pause', keepMemory: false } },
      network: {
        allowOut: ({ rules }) => ['10.0.0.0/8', ...rules.keys()], denyOut: ({ allTraffic }) => [allTraffic],
        allowPublicTraffic: false, maskRequestHost: 'localhost:${PORT}',
        egressProxy: { address: 'proxy.example.com:1080', username: 'u', password: 'secret' },
        rules: { 'example.com': [{ transform: ({ iam }) => ({ headers: { Authorization: `Bearer ${iam.tokens.aws}` } }) }] },
      },
    })
    const s = await create({ lifecycle: { onTimeout: 'pause', autoResume: true } })
    await s.updateNetwork({
      denyOut: ['9.9.9.9'],
      rules: { 'x.org': [{ transform: ({ iam }) => ({ headers: { A: iam.tokens.any } }) }] },
    })
    await fails(create({ network: { rules: { 'x.org': [{ transform: ({ iam }) => ({ headers: { A: iam.tokens.no } }) }] } } }),
      InvalidArgumentError)
    await s.pause({ keepMemory: false })
    await s.connect()
    await s.fork({ count: 2 })
    await s.createSnapshot()
  },

  // a team with room for three (i_npm_local.py)
  async fake_limits() {
    const s = await create()
    await create()
    const forks = await s.fork({ count: 2 })
    forks.filter((f) => f instanceof Sandbox).forEach((f) => made.push(f))
    assert.deepEqual(forks.map((f) => f.constructor.name).sort(), ['RateLimitError', 'Sandbox'])
    await fails(Sandbox.create(), RateLimitError)
    await assert.rejects(s.fork({ count: 3 }), /400/)
    await assert.rejects(s.fork({ count: 101 }), /400/)
    await assert.rejects(s.fork({ count: 0 }), /400/)
    assert.equal(await made[1].kill(), true)
    await create()
  },

  async local_ports() {
    const s = await create({ network: { allowPublicTraffic: false, maskRequestHost: 'localhost:${PORT}' } })
    await s.files.write('srv.py', `import http.server
class A(http.server.BaseHTTPRequestHandler):
  def do_GET(self):
    self.send_response(200); self.end_headers(); self.wfile.write(('app ' + self.headers['Host']).encode())
s = http.server.HTTPServer(('127.0.0.1', 8000), A); print('up', flush=True); s.serve_forever()
`)
    await new Promise((up, down) => {
      s.commands.run('python3 srv.py', { background: true, onStdout: up, timeoutMs: 0 }).catch(down)
    })
    const url = process.env.E2B_SANDBOX_URL
    const headers = { 'E2b-Sandbox-Id': s.sandboxId, 'E2b-Sandbox-Port': '8000' }
    assert.equal((await fetch(url, { headers })).status, 403)
    const r = await fetch(url, { headers: { ...headers, 'e2b-traffic-access-token': s.trafficAccessToken } })
    assert.equal(await r.text(), 'app localhost:8000')
  },

  async local_metrics() {
    const s = await create()
    const rows = await s.getMetrics()
    assert.ok(rows.length >= 1)
    assert.ok(rows[0].memTotal > 0 && rows[0].timestamp instanceof Date)
  },
}

const name = process.argv[2]
if (name === '--list') {
  console.log(Object.keys(checks).join('\n'))
} else {
  let failed
  try {
    await checks[name]()
  } catch (e) {
    failed = e
  }
  for (const s of made) await s.kill().catch(() => {})
  if (failed) {
    console.error(failed)
    process.exit(1)
  }
  process.exit(0)
}
