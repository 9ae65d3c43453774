# SPDX-License-Identifier: MIT
"""AgentBox's own SDK, unmodified, as the judge of a server: sdk.py async|sync NAME… runs checks, one for each method of its
reference, and prints a line of JSON for each, [name, null] or [name, what was wrong]. Where the server is comes from the SDK's own
AGENTBOX_* variables and from nothing else.

Each check is written once, against the asynchronous half; the synchronous half comes in a wrapper whose calls are done when they
return and may be awaited all the same.
"""
import asyncio
import http.client
import inspect
import io
import json
import os
import ssl
import sys
import time
import traceback
import urllib.parse

import agentbox
from agentbox import (AuthenticationException, CommandExitException, FileNotFoundException, InvalidArgumentException,
                      PtySize, SandboxException, SandboxNotFoundException, SandboxQuery, SandboxState,
                      TimeoutException)

ABSENT = "i00000000000000000000"
WRAPPED = ("Sandbox", "Commands", "Filesystem", "CommandHandle", "WatchHandle", "SandboxPaginator", "SnapshotPaginator", "Pty")


class Done:
    """What has happened already, for those who await it."""

    def __init__(self, value):
        self.value = value

    def __await__(self):
        return self.value
        yield   # makes this a generator


def lifted(v):
    """Objects of the SDK with calls of their own are wrapped too; records, texts and numbers are what they are."""
    if isinstance(v, list):
        return [lifted(x) for x in v]
    return Sync(v) if type(v).__name__ in WRAPPED else v


class Sync:
    def __init__(self, target):
        self.target = target

    def __getattr__(self, name):
        v = getattr(self.target, name)
        return (lambda *a, **kw: Done(lifted(v(*a, **kw)))) if callable(v) else lifted(v)


async def got(v):
    return await v if inspect.isawaitable(v) else v


class Raises:
    """The body must raise one of these; `value` is what it raised."""

    def __init__(self, *kinds):
        self.kinds, self.value = kinds, None

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        assert kind is not None, "nothing was raised, not %s" % (self.kinds,)
        self.value = value
        return issubclass(kind, self.kinds)


def plain_request(link, method="GET", body=None):
    """(status, body) of what is behind a link, for a client that knows nothing but the link. Its name need not resolve where the
    server is this machine: the address then is that of the API."""
    u = urllib.parse.urlsplit(link)
    address = urllib.parse.urlsplit(os.environ["AGENTBOX_SANDBOX_URL"]).hostname if "AGENTBOX_SANDBOX_URL" in os.environ else u.hostname
    if u.scheme == "https":
        c = http.client.HTTPSConnection(address, u.port, timeout=20, context=ssl.create_default_context(
            cafile=os.environ.get("SSL_CERT_FILE")))
    else:
        c = http.client.HTTPConnection(address, u.port, timeout=20)
    head = {"Host": u.netloc}
    if body is not None:
        head["Content-Type"] = "application/octet-stream"
    c.request(method, u.path + "?" + u.query, body, head)
    r = c.getresponse()
    try:
        return r.status, r.read()
    finally:
        c.close()


class Checks:
    box = None          # one for all checks that leave it as it is

    def __init__(self, is_sync):
        self.sync = is_sync
        self.sandbox = Sync(agentbox.Sandbox) if is_sync else agentbox.AsyncSandbox
        self.template = Sync(agentbox.Template) if is_sync else agentbox.AsyncTemplate
        self.mark = "%d-%d" % (os.getpid(), is_sync)
        self.made = []

    async def create(self, template=None, **opts):
        s = await self.sandbox.create(template, **dict({"timeout": 120}, **opts))
        self.made.append(s)
        return s

    async def shared(self):
        if Checks.box is None:
            Checks.box = await self.sandbox.create(timeout=600, metadata={"shared": self.mark})
        return Checks.box

    async def all(self, paginator):
        p, rows = await got(paginator), []
        while p.has_next:
            rows += await p.next_items()
        return rows

    async def ids(self, **kw):
        return [s.sandbox_id for s in await self.all(self.sandbox.list(**kw))]

    async def pty(self, s, **kw):
        """A terminal and what it says: (handle, read), where read(text) waits until that was said."""
        seen = []
        if self.sync:
            h = await s.pty.create(PtySize(cols=80, rows=24), **kw)
        else:
            h = await s.pty.create(PtySize(cols=80, rows=24), on_data=seen.append, **kw)

        async def until(text):
            end = time.monotonic() + 15
            if self.sync:
                for _, _, data in h.target:
                    seen.append(data or b"")
                    if text in b"".join(seen):
                        return
                raise AssertionError("the terminal ended after %r" % b"".join(seen))
            while text not in b"".join(seen):
                assert time.monotonic() < end, "the terminal said %r" % b"".join(seen)
                await asyncio.sleep(0.02)
        return h, until

    # -- sandboxes

    async def sandbox_create(self):
        s = await self.create()
        assert s.sandbox_id and s.sandbox_domain

    async def sandbox_create_full(self):
        s = await self.create("base", timeout=300, metadata={"k&=": "\u00e9+1"}, envs={"A": "1"}, secure=True,
                              allow_internet_access=False, network={"allow_public_traffic": False, "deny_out": ["10.0.0.0/8"]},
                              lifecycle={"on_timeout": "pause", "auto_resume": True})
        info = await s.get_info()
        assert s.traffic_access_token and info.metadata == {"k&=": "\u00e9+1"} and info.allow_internet_access is False
        assert info.lifecycle["on_timeout"] == "pause" and info.lifecycle["auto_resume"] is True

    async def sandbox_create_insecure(self):
        s = await self.create(secure=False)
        assert await s.is_running()

    async def sandbox_create_refused(self):
        with Raises(SandboxException):
            await self.sandbox.create("no-such-template")
        with Raises(AuthenticationException):
            await self.sandbox.create(api_key="ab_" + "0" * 40)

    async def sandbox_context_manager(self):
        if self.sync:
            with agentbox.Sandbox.create(timeout=60) as s:
                assert s.is_running()
            assert not s.is_running()
        else:
            async with await agentbox.AsyncSandbox.create(timeout=60) as s:
                assert await s.is_running()
            assert not await s.is_running()

    async def sandbox_properties(self):
        s = await self.shared()
        assert s.envd_api_url.startswith("http") and s.envd_direct_url.startswith("http")
        assert "-%s." % s.sandbox_id in s.envd_direct_url

    async def sandbox_connect(self):
        s = await self.shared()
        again = await self.sandbox.connect(s.sandbox_id)
        assert again.sandbox_id == s.sandbox_id and (await again.get_info()).state == SandboxState.RUNNING
        with Raises(SandboxNotFoundException):
            await self.sandbox.connect(ABSENT)

    async def sandbox_connect_instance(self):
        s = await self.create(timeout=60)
        end = (await s.get_info()).end_at
        await s.connect(timeout=1000)
        assert (await s.get_info()).end_at > end

    async def sandbox_connect_paused(self):
        s = await self.create()
        assert await s.pause() is True
        again = await self.sandbox.connect(s.sandbox_id, timeout=60)
        assert (await again.get_info()).state == SandboxState.RUNNING

    async def sandbox_kill(self):
        s = await self.create()
        assert await s.kill() is True and await s.kill() is False

    async def sandbox_kill_by_id(self):
        s = await self.create()
        assert await self.sandbox.kill(s.sandbox_id) is True and await self.sandbox.kill(ABSENT) is False

    async def sandbox_list(self):
        mark = {"mark": "list" + self.mark, "n": "1 &=+\u00e9"}
        one, two = await self.create(metadata=mark), await self.create(metadata=mark)
        both = [two.sandbox_id, one.sandbox_id]
        assert await self.ids(query=SandboxQuery(metadata=mark)) == both
        assert await self.ids(query=SandboxQuery(metadata=mark), limit=1) == both
        assert await self.ids(query=SandboxQuery(metadata=mark, state=[SandboxState.PAUSED])) == []
        assert set(both) <= set(await self.ids())

    async def sandbox_get_info(self):
        s = await self.create(metadata={"a": "b"})
        info = await s.get_info()
        assert info.sandbox_id == s.sandbox_id and info.state == SandboxState.RUNNING and info.metadata == {"a": "b"}
        assert info.cpu_count >= 1 and info.memory_mb >= 128 and info.envd_version

    async def sandbox_get_info_by_id(self):
        assert (await self.sandbox.get_info((await self.shared()).sandbox_id)).template_id
        with Raises(SandboxNotFoundException):
            await self.sandbox.get_info(ABSENT)

    async def sandbox_get_metrics(self):
        assert isinstance(await (await self.shared()).get_metrics(), list)

    async def sandbox_get_metrics_by_id(self):
        assert isinstance(await self.sandbox.get_metrics((await self.shared()).sandbox_id), list)

    async def sandbox_is_running(self):
        s = await self.create()
        assert await s.is_running() is True

    async def sandbox_is_running_killed(self):
        s = await self.create()
        await s.kill()
        assert await s.is_running() is False

    async def sandbox_pause(self):
        s = await self.create()
        assert await s.pause() is True and await s.pause() is False
        assert (await s.get_info()).state == SandboxState.PAUSED

    async def sandbox_pause_by_id(self):
        s = await self.create()
        assert await self.sandbox.pause(s.sandbox_id, keep_memory=False) is True
        with Raises(SandboxNotFoundException):
            await self.sandbox.pause(ABSENT)

    async def sandbox_set_timeout(self):
        s = await self.create()
        await s.set_timeout(600)
        assert abs((await s.get_info()).end_at.timestamp() - time.time() - 600) < 20

    async def sandbox_set_timeout_by_id(self):
        s = await self.create()
        await self.sandbox.set_timeout(s.sandbox_id, 600)
        assert abs((await s.get_info()).end_at.timestamp() - time.time() - 600) < 20
        with Raises(SandboxNotFoundException):
            await self.sandbox.set_timeout(ABSENT, 10)

    async def sandbox_update_network(self):
        s = await self.create()
        await s.update_network({"deny_out": lambda ctx: [ctx.all_traffic]})
        assert (await s.get_info()).network["deny_out"] == ["0.0.0.0/0"]
        await s.update_network({})
        assert not ((await s.get_info()).network or {}).get("deny_out")

    async def sandbox_update_network_by_id(self):
        s = await self.create()
        await self.sandbox.update_network(s.sandbox_id, {"deny_out": ["9.9.9.9"]})
        assert (await s.get_info()).network["deny_out"] == ["9.9.9.9"]

    async def sandbox_fork(self):
        s = await self.create(metadata={"fork": self.mark})
        forks = await s.fork(count=2, timeout=60)
        self.made += [f for f in forks if not isinstance(f, Exception)]
        assert len(forks) == 2 and len({f.sandbox_id for f in forks} | {s.sandbox_id}) == 3

    async def sandbox_fork_by_id(self):
        s = await self.create()
        one, = await self.sandbox.fork(s.sandbox_id, timeout=60)
        self.made.append(one)
        with Raises(SandboxNotFoundException):
            await self.sandbox.fork(ABSENT)

    async def sandbox_create_snapshot(self):
        s = await self.create()
        one = await s.create_snapshot(name="abox-%s:v1" % self.mark)
        try:
            assert one.snapshot_id.endswith("/abox-%s:v1" % self.mark)
            copy = await self.create(one.snapshot_id)
            assert copy.sandbox_id != s.sandbox_id
            await copy.kill()
        finally:
            assert await self.sandbox.delete_snapshot(one.snapshot_id) is True

    async def sandbox_create_snapshot_by_id(self):
        s = await self.create()
        one = await self.sandbox.create_snapshot(s.sandbox_id)
        assert await self.sandbox.delete_snapshot(one.snapshot_id) is True

    async def sandbox_list_snapshots(self):
        s = await self.create()
        one, two = await s.create_snapshot(), await s.create_snapshot()
        try:
            assert [r.snapshot_id for r in await self.all(s.list_snapshots(limit=1))] == [two.snapshot_id, one.snapshot_id]
            assert {one.snapshot_id, two.snapshot_id} <= {r.snapshot_id for r in await self.all(self.sandbox.list_snapshots())}
        finally:
            for r in (one, two):
                await self.sandbox.delete_snapshot(r.snapshot_id)

    async def sandbox_delete_snapshot(self):
        s = await self.create()
        one = await s.create_snapshot()
        assert await self.sandbox.delete_snapshot(one.snapshot_id) is True
        assert await self.sandbox.delete_snapshot(one.snapshot_id) is False

    async def sandbox_get_host(self):
        s = await self.shared()
        host = s.target.get_host(8000) if self.sync else s.get_host(8000)
        assert host.startswith("8000-%s." % s.sandbox_id)
        h = await s.commands.run("python3 -m http.server 8000", background=True, cwd="/tmp")
        scheme, end = "https://" if s.envd_api_url.startswith("https") else "http://", time.monotonic() + 15
        while (status := plain_request(scheme + host + "/?")[0]) == 502 and time.monotonic() < end:
            await asyncio.sleep(0.1)
        assert status == 200, status
        await h.kill()

    async def sandbox_download_url(self):
        s = await self.shared()
        await s.files.write("/home/user/link me.txt", "by link")
        link = (s.target if self.sync else s).download_url("/home/user/link me.txt", use_signature_expiration=600)
        assert plain_request(link) == (200, b"by link")
        link = (s.target if self.sync else s).download_url("/home/user/link me.txt", user="root")
        assert plain_request(link)[0] == 200
        assert plain_request(link.replace("signature=v1_", "signature=v1_x"))[0] == 401

    async def sandbox_upload_url(self):
        s = await self.shared()
        link = (s.target if self.sync else s).upload_url("/home/user/uploaded.txt")
        assert plain_request(link, "POST", b"sent")[0] == 200
        assert await s.files.read("/home/user/uploaded.txt") == "sent"

    # -- files

    async def files_write(self):
        s = await self.shared()
        info = await s.files.write("/home/user/w/a.txt", "text \u00e9")
        assert info.path == "/home/user/w/a.txt" and info.name == "a.txt"
        await s.files.write("/home/user/w/a.bin", bytes(range(256)))
        await s.files.write("/home/user/w/stream", io.BytesIO(b"x" * 100000))
        await s.files.write("/home/user/w/octets", b"o", use_octet_stream=True)
        await s.files.write("/home/user/w/zip", "packed", gzip=True)
        assert (await s.files.get_info("/home/user/w/stream")).size == 100000
        assert await s.files.read("/home/user/w/zip") == "packed"

    async def files_write_metadata(self):
        s = await self.shared()
        await s.files.write("/home/user/meta", "x", metadata={"owner": "bob"})
        assert (await s.files.get_info("/home/user/meta")).metadata == {"owner": "bob"}

    async def files_write_files(self):
        s = await self.shared()
        made = await s.files.write_files([{"path": "/tmp/many/%d" % i, "data": "n%d" % i} for i in range(5)])
        assert [m.path for m in made] == ["/tmp/many/%d" % i for i in range(5)]
        assert await s.files.read("/tmp/many/3") == "n3"

    async def files_read(self):
        s = await self.shared()
        await s.files.write("/home/user/r a+b%.txt", "text \u00e9")
        assert await s.files.read("/home/user/r a+b%.txt") == "text \u00e9"
        assert bytes(await s.files.read("r a+b%.txt", format="bytes", gzip=True)) == "text \u00e9".encode()
        with Raises(FileNotFoundException):
            await s.files.read("/no/such")
        with Raises(InvalidArgumentException):
            await s.files.read("/home/user")

    async def files_read_stream(self):
        s = await self.shared()
        await s.files.write("/home/user/big", b"x" * 300000)
        stream, n = await s.files.read("/home/user/big", format="stream"), 0
        if self.sync:
            n = sum(len(c) for c in stream)
        else:
            async for c in stream:
                n += len(c)
        assert n == 300000

    async def files_list(self):
        s = await self.shared()
        await s.commands.run("mkdir -p /tmp/l/d && touch /tmp/l/f /tmp/l/d/in")
        assert [(e.name, e.type.value) for e in await s.files.list("/tmp/l")] == [("d", "dir"), ("f", "file")]
        assert [e.path for e in await s.files.list("/tmp/l", depth=2)] == ["/tmp/l/d", "/tmp/l/d/in", "/tmp/l/f"]
        with Raises(FileNotFoundException):
            await s.files.list("/no/such")

    async def files_exists(self):
        s = await self.shared()
        assert await s.files.exists("/etc/passwd") is True and await s.files.exists("/no/such") is False

    async def files_get_info(self):
        s = await self.shared()
        info = await s.files.get_info("/etc/passwd")
        assert info.name == "passwd" and info.owner == "root" and info.size > 0
        with Raises(FileNotFoundException):
            await s.files.get_info("/no/such")

    async def files_make_dir(self):
        s = await self.shared()
        assert await s.files.make_dir("/tmp/m/d") is True and await s.files.make_dir("/tmp/m/d") is False

    async def files_rename(self):
        s = await self.shared()
        await s.files.write("/tmp/old", "x")
        assert (await s.files.rename("/tmp/old", "/tmp/new")).path == "/tmp/new"
        with Raises(FileNotFoundException):
            await s.files.rename("/tmp/old", "/tmp/x")

    async def files_remove(self):
        s = await self.shared()
        await s.files.write("/tmp/gone/f", "x")
        await s.files.remove("/tmp/gone")
        assert not await s.files.exists("/tmp/gone")

    async def files_watch_dir(self):
        s = await self.shared()
        await s.files.make_dir("/tmp/watched")
        seen = []
        if self.sync:
            w = await s.files.watch_dir("/tmp/watched", recursive=True)
        else:
            w = await s.files.watch_dir("/tmp/watched", on_event=seen.append, recursive=True)
        await s.files.write("/tmp/watched/a.txt", "a")
        end = time.monotonic() + 15
        while not any(e.name == "a.txt" and e.type.value == "write" for e in seen):
            assert time.monotonic() < end, seen
            seen += await w.get_new_events() if self.sync else []
            await asyncio.sleep(0.02)
        await w.stop()
        with Raises(FileNotFoundException):
            await s.files.watch_dir("/no/such", *([] if self.sync else [seen.append]))

    # -- commands

    async def commands_run(self):
        s = await self.shared()
        seen = []
        r = await s.commands.run('echo "$A $(id -un) $PWD"; echo err >&2', envs={"A": "1"}, user="root", cwd="/tmp",
                                 on_stdout=seen.append)
        assert (r.exit_code, r.stdout, r.stderr) == (0, "1 root /tmp\n", "err\n") and "".join(seen) == r.stdout

    async def commands_run_fails(self):
        s = await self.shared()
        with Raises(CommandExitException) as e:
            await s.commands.run("echo out; exit 7")
        assert (e.value.exit_code, e.value.stdout) == (7, "out\n")
        with Raises(TimeoutException):
            await s.commands.run("sleep 30", timeout=0.5)
        with Raises(InvalidArgumentException):
            await s.commands.run("true", cwd="/no/such")

    async def commands_list(self):
        s = await self.shared()
        h = await s.commands.run("sleep 100", background=True)
        assert any(p.pid == h.pid and "sleep 100" in p.args[-1] for p in await s.commands.list())
        await h.kill()

    async def commands_kill(self):
        s = await self.shared()
        h = await s.commands.run("sleep 100", background=True)
        assert await s.commands.kill(h.pid) is True
        with Raises(Exception):
            await h.wait()
        assert await s.commands.kill(h.pid) is False

    async def commands_connect(self):
        s = await self.shared()
        h = await s.commands.run('read x; echo "got $x"', background=True, stdin=True)
        await h.disconnect()
        again = await s.commands.connect(h.pid)
        await s.commands.send_stdin(h.pid, "it\n")
        assert (await again.wait()).stdout == "got it\n"
        with Raises(SandboxException):
            await s.commands.connect(4190000)

    async def commands_send_stdin(self):
        s = await self.shared()
        h = await s.commands.run('read x; echo "got $x"', background=True, stdin=True)
        await s.commands.send_stdin(h.pid, "w\u00f6rld\n")
        assert (await h.wait()).stdout == "got w\u00f6rld\n"

    async def commands_close_stdin(self):
        s = await self.shared()
        h = await s.commands.run("cat; echo end", background=True, stdin=True)
        await s.commands.send_stdin(h.pid, b"x")
        await s.commands.close_stdin(h.pid)
        assert (await h.wait()).stdout == "xend\n"

    async def handle_wait(self):
        s = await self.shared()
        h = await s.commands.run("sleep 0.2; echo done", background=True)
        r = await h.wait()
        assert (r.exit_code, r.stdout) == (0, "done\n")

    async def handle_kill(self):
        h = await (await self.shared()).commands.run("sleep 100", background=True)
        assert h.pid > 0 and await h.kill() is True
        with Raises(CommandExitException):
            await h.wait()

    async def handle_disconnect(self):
        s = await self.shared()
        h = await s.commands.run("sleep 100", background=True)
        await h.disconnect()
        assert any(p.pid == h.pid for p in await s.commands.list())
        await s.commands.kill(h.pid)

    async def handle_stdin(self):
        h = await (await self.shared()).commands.run("cat", background=True, stdin=True)
        await h.send_stdin("by handle")
        await h.close_stdin()
        assert (await h.wait()).stdout == "by handle"

    # -- terminals

    async def pty_create(self):
        s = await self.shared()
        h, until = await self.pty(s, cwd="/tmp", envs={"A": "1"})
        await s.pty.send_stdin(h.pid, b"echo $A-$PWD-$(stty size | tr ' ' x)\n")
        await until(b"1-/tmp-24x80")
        await s.pty.kill(h.pid)

    async def pty_resize(self):
        s = await self.shared()
        h, until = await self.pty(s)
        await s.pty.resize(h.pid, PtySize(cols=120, rows=40))
        await s.pty.send_stdin(h.pid, b"echo $(stty size | tr ' ' x)\n")
        await until(b"40x120")
        await s.pty.kill(h.pid)

    async def pty_kill(self):
        s = await self.shared()
        h, _ = await self.pty(s)
        assert await s.pty.kill(h.pid) is True and await s.pty.kill(4190000) is False

    async def pty_connect(self):
        s = await self.shared()
        h, _ = await self.pty(s)
        await h.disconnect()
        seen = []
        again = await s.pty.connect(h.pid, *([] if self.sync else [seen.append]))
        await s.pty.send_stdin(h.pid, b"exit\n")
        assert (await again.wait()).exit_code == 0

    async def pty_send_stdin(self):
        s = await self.shared()
        h, until = await self.pty(s)
        await s.pty.send_stdin(h.pid, b"echo $((40+2))\n")
        await until(b"42")
        await s.pty.kill(h.pid)

    # -- templates and the client

    async def template_exists(self):
        assert await self.template.exists("base") is True and await self.template.exists("no-such-template") is False

    async def template_get_tags(self):
        assert any(t.tag == "default" for t in await self.template.get_tags("base"))

    async def template_tags_of_a_snapshot(self):
        s = await self.create()
        one = await s.create_snapshot(name="tagged-%s" % self.mark)
        name = one.snapshot_id.rpartition(":")[0]
        try:
            await self.template.assign_tags(one.snapshot_id, tags=["stable"])
            assert {t.tag for t in await self.template.get_tags(name)} == {"default", "stable"}
            await self.template.remove_tags(name, tags=["stable"])
            assert {t.tag for t in await self.template.get_tags(name)} == {"default"}
            copy = await self.create(one.snapshot_id)
            await copy.kill()
        finally:
            await self.sandbox.delete_snapshot(one.snapshot_id)

    async def template_build(self):
        """It is not built here, which is said in words that no caller takes for something else."""
        t = agentbox.Template().from_image("debian:12")
        with Raises(Exception) as e:
            await self.template.build(t, "never")
        assert "not support" in str(e.value), e.value

    async def client(self):
        c = agentbox.AgentBox(api_key=os.environ["AGENTBOX_API_KEY"])
        s = await got((c.Sandbox if self.sync else c.AsyncSandbox).create(timeout=60))
        s = Sync(s) if self.sync else s
        self.made.append(s)
        assert (await s.get_info()).sandbox_id == s.sandbox_id


async def one(mode, name):
    checks = Checks(mode == "sync")
    try:
        await asyncio.wait_for(getattr(checks, name)(), 30)
    finally:
        for s in checks.made:
            try:
                await s.kill()
            except SandboxNotFoundException:
                pass


async def main(mode, *names):
    for name in names:
        try:
            await one(mode, name)
            wrong = None
        except BaseException:
            wrong = traceback.format_exc()
        print(json.dumps([name, wrong]), flush=True)
    if Checks.box is not None:
        await Checks.box.kill()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
    os._exit(0)     # the SDK's transport has threads of its own, and aborts now and then when the interpreter is taken down
