// SPDX-License-Identifier: MIT
//
// Makes the e2b npm SDK send every kind of request that it has, to tests/judges/recorder.py: node drive.mjs FOLDER, where
// FOLDER has node_modules/e2b.
import { createRequire } from 'node:module'
import http from 'node:http'

const require = createRequire(`${process.argv[2]}/x.js`)
const url = process.env.RECORDER_URL
Object.assign(process.env, {
  E2B_API_KEY: 'e2b_00112233445566778899aabbccddeeff00112233', E2B_API_URL: url, E2B_SANDBOX_URL: url,
})
const { Sandbox, Secret, Template } = require('e2b')
const pid = 1234
const when = Date.UTC(2026, 7, 21, 10, 0, 0)

async function step(name) {
  await new Promise((done, fail) => http.get(`${url}/_step/${name}`, (r) => r.resume().on('end', done)).on('error', fail))
}

async function go(name, fn) {
  await step(name)
  try {
    return await fn()
  } catch (e) {
    console.error(`npm ${name}: ${e.constructor.name}: ${e.message}`)
    return undefined
  }
}

async function pages(p) {
  while (p.hasNext) await p.nextItems()
}

const full = {
  timeoutMs: 600_000, metadata: { job: '42', 'k&=': 'é+1' }, envs: { A: '1', EMPTY: '' }, allowInternetAccess: false,
  iam: { tokens: { aws: Secret?.iamToken({ audience: 'sts', tokenType: 'JWT-SVID' }) } },
  lifecycle: { onTimeout: 'pause', autoResume: true },
  network: {
    allowPublicTraffic: false, maskRequestHost: 'localhost:${PORT}',
    allowOut: ({ rules }) => ['10.0.0.0/8', ...rules.keys()], denyOut: ({ allTraffic }) => [allTraffic],
    egressProxy: { address: 'proxy.example.com:1080', username: 'u', password: 'secret' },
    rules: { 'api.example.com': [{ transform: ({ iam }) => ({ headers: { Authorization: `Bearer ${iam.tokens.aws}` } }) }] },
  },
}
const s = await go('create', () => Sandbox.create())
await go('create-named', () => Sandbox.create('my-template', { timeoutMs: 60_500, metadata: { a: 'b' }, envs: { A: '1' } }))
await go('create-full', () => Sandbox.create('my-template', full))
await go('create-mcp', () => Sandbox.create({ mcp: { exa: { apiKey: 'k' } } }))
await go('create-volume', () => Sandbox.create({ volumeMounts: { '/mnt/data': 'data' } }))
await go('create-insecure', () => Sandbox.create({ secure: false }))
await go('create-kill', () => Sandbox.create({ lifecycle: { onTimeout: 'kill' } }))
await go('create-pause-files', () => Sandbox.create({ lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } }))
await go('connect', () => Sandbox.connect(s.sandboxId))
await go('connect-timeout', () => s.connect({ timeoutMs: 1_000_000 }))
await go('connect-reboot', () => s.connect({ onResume: 'reboot' }))
await go('info', () => s.getInfo())
await go('list', () => pages(Sandbox.list()))
await go('list-metadata', () => pages(Sandbox.list({ query: { metadata: { user: 'abc d', 'k&=': 'é+1' } }, limit: 2 })))
await go('list-state', () => pages(Sandbox.list({ query: { state: ['running', 'paused'] } })))
await go('list-all-filters', () => pages(Sandbox.list({ limit: 2, order: 'asc', query: {
  metadata: { a: 'b' }, state: ['running'], template: 'base', startedAfter: new Date(when) } })))
await go('timeout', () => s.setTimeout(30_000))
await go('metrics', () => s.getMetrics())
await go('metrics-span', () => s.getMetrics({ start: new Date(when), end: new Date(when + 3600_000) }))
await go('network', () => s.updateNetwork({ denyOut: ['9.9.9.9'], allowOut: ['1.1.1.1'], rules: {
  'x.org': [{ transform: ({ iam }) => ({ headers: { A: iam.tokens.any } }) }] } }))
await go('network-clear', () => s.updateNetwork({}))
await go('network-internet', () => s.updateNetwork({ allowInternetAccess: false }))
await go('fork', () => s.fork())
await go('fork-two', () => s.fork({ count: 2, timeoutMs: 60_000 }))
await go('snapshot', () => s.createSnapshot())
await go('snapshot-named', () => s.createSnapshot({ name: 'My-Snap:v1' }))
await go('snapshots', () => pages(Sandbox.listSnapshots()))
await go('snapshots-own', () => pages(s.listSnapshots({ limit: 1, name: 'my-snap:v1' })))
await go('snapshot-delete', () => Sandbox.deleteSnapshot('team-slug/my-snap:v1'))
await go('pause', () => s.pause())
await go('pause-files', () => s.pause({ keepMemory: false }))
await go('template-exists', () => Template.exists('team-slug/my-template'))
await go('template-tags', () => Template.getTags('my-template'))
await go('template-tag', () => Template.assignTags('my-template:v1', ['v2', 'stable']))
await go('template-untag', () => Template.removeTags('my-template', ['v2']))
await go('health', () => s.isRunning())

await go('run', () => s.commands.run('echo hi'))
await go('run-full', () => s.commands.run('echo $A', { envs: { A: '1' }, user: 'root', cwd: '/tmp', timeoutMs: 5000, stdin: true }))
await go('run-no-timeout', () => s.commands.run('true', { timeoutMs: 0 }))
const h = await go('run-background', () => s.commands.run('sleep 100', { background: true }))
await go('process-list', () => s.commands.list())
await go('stdin', () => s.commands.sendStdin(pid, 'wörld\n'))
await go('stdin-close', () => s.commands.closeStdin(pid))
await go('process-kill', () => s.commands.kill(pid))
await go('process-connect', () => s.commands.connect(pid))
await go('process-connect-timeout', () => s.commands.connect(pid, { timeoutMs: 5000 }))
const onData = () => {}
await go('pty', () => s.pty.create({ cols: 80, rows: 24, onData }))
await go('pty-full', () => s.pty.create({ cols: 80, rows: 24, onData, user: 'root', cwd: '/tmp', envs: { TERM: 'vt100' }, timeoutMs: 0 }))
await go('pty-stdin', () => s.pty.sendInput(pid, new TextEncoder().encode('ls\n')))
await go('pty-resize', () => s.pty.resize(pid, { cols: 120, rows: 40 }))
await go('pty-connect', () => s.pty.connect(pid, { onData }))
await go('pty-kill', () => s.pty.kill(pid))

const f = s.files
await go('exists', () => f.exists('/home/user/g/a.txt'))
await go('stat', () => f.getInfo('a.txt'))
await go('stat-user', () => f.getInfo('a.txt', { user: 'root' }))
await go('ls', () => f.list('/home/user/g'))
await go('ls-deep', () => f.list('/home/user/g', { depth: 3, user: 'root' }))
await go('mkdir', () => f.makeDir('/home/user/g/ü d'))
await go('rename', () => f.rename('/home/user/g/a', '/home/user/g/b'))
await go('remove', () => f.remove('/home/user/g/a'))
await go('read', () => f.read('/home/user/g/a b+c%.txt'))
await go('read-user-gzip', () => f.read('a.txt', { format: 'bytes', user: 'root', gzip: true }))
await go('read-blob', () => f.read('a.txt', { format: 'blob' }))
await go('read-stream', async () => { for await (const c of await f.read('a.txt', { format: 'stream' })) c })
await go('write', () => f.write('/home/user/g/a.txt', 'text é'))
await go('write-bytes-user', () => f.write('a.bin', new Uint8Array([0, 1, 2]).buffer, { user: 'root' }))
await go('write-blob', () => f.write('/home/user/g/b.bin', new Blob(['blob'])))
await go('write-stream', () => f.write('/home/user/g/s.bin', new Blob(['streamed']).stream()))
await go('write-octets', () => f.write('/home/user/g/o.bin', 'octets', { useOctetStream: true }))
await go('write-gzip', () => f.write('/home/user/g/z.txt', 'zipped', { gzip: true }))
await go('write-metadata', () => f.write('/home/user/g/m.txt', 'x', { metadata: { Owner: 'bob', k2: 'v 2' } }))
await go('write-two', () => f.write([{ path: '/home/user/g/1', data: 'one' }, { path: '/home/user/g/2', data: 'two' }]))
const w = await go('watch', () => f.watchDir('/home/user/g', () => {}))
await w?.stop()
const v = await go('watch-full', () => f.watchDir('/home/user/g', () => {}, {
  user: 'root', recursive: true, includeEntry: true, allowNetworkMounts: true, timeoutMs: 0 }))
await v?.stop()

const now = Date.now
Date.now = () => when
const links = {
  'link-read': await s.downloadUrl('/home/user/a b.txt'), 'link-read-user': await s.downloadUrl('a.txt', { user: 'root' }),
  'link-read-expires': await s.downloadUrl('a.txt', { useSignatureExpiration: 600 }),
  'link-write': await s.uploadUrl('/home/user/w.txt'),
}
Date.now = now
for (const [name, link] of Object.entries(links)) {
  const write = name === 'link-write'
  await go(name, async () => (await fetch(link, write ? { method: 'POST', body: 'x', headers: {
    'Content-Type': 'application/octet-stream' } } : {})).text())
}
await go('kill', () => s.kill())
await h?.disconnect()
process.exit(0)
