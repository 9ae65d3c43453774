# SPDX-License-Identifier: MIT
"""The e2b Python SDK, unmodified, as the judge of a server: sdk.py async|sync NAME… runs checks and prints a line of
JSON for each, [name, null] or [name, what was wrong]. Where the server is comes from the SDK's own E2B_* variables.

Each check is written once, against the asynchronous half. The synchronous half comes in a wrapper whose calls are done
when they return and may be awaited all the same.
"""
import asyncio
import inspect
import json
import os
import re
import sys
import time
import traceback

import e2b
from e2b import (AuthenticationException, CommandExitException, FileNotFoundException, InvalidArgumentException,
                 NotFoundException, SandboxNotFoundException, SandboxQuery, SandboxState, TimeoutException)

ABSENT = "i00000000000000000000"


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
    words = ("Sandbox", "Commands", "Filesystem", "CommandHandle", "WatchHandle", "SandboxPaginator", "SnapshotPaginator")
    return Sync(v) if type(v).__name__ in words else v


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


class Checks:
    def __init__(self, sync):
        self.sync = sync
        self.sandbox = Sync(e2b.Sandbox) if sync else e2b.AsyncSandbox
        self.made = []

    async def create(self, template=None, **opts):
        s = await self.sandbox.create(template, **dict({"timeout": 60}, **opts))
        self.made.append(s)
        return s

    async def all(self, paginator):
        p, rows = await got(paginator), []
        while p.has_next:
            rows += await p.next_items()
        return rows

    async def ids(self, **kw):
        return [s.sandbox_id for s in await self.all(self.sandbox.list(**kw))]

    async def create_and_kill(self):
        s = await self.create()
        assert re.fullmatch(r"i[a-z0-9]{20}", s.sandbox_id)
        assert await s.is_running() is True
        assert await s.kill() is True
        assert await s.is_running() is False
        assert await s.kill() is False
        assert await self.sandbox.kill(ABSENT) is False

    async def context_manager(self):
        if self.sync:
            with e2b.Sandbox.create(timeout=60) as s:
                assert s.is_running()
            assert not s.is_running()
        else:
            async with await e2b.AsyncSandbox.create(timeout=60) as s:
                assert await s.is_running()
            assert not await s.is_running()

    async def info_and_timeout(self):
        s = await self.create(metadata={"job": "42", "k&=": "é+1"}, timeout=30)
        info = await s.get_info()
        assert info.state == SandboxState.RUNNING and info.metadata == {"job": "42", "k&=": "é+1"}
        assert abs((info.end_at - info.started_at).total_seconds() - 30) < 1.5
        await s.set_timeout(200)
        info = await self.sandbox.get_info(s.sandbox_id)
        assert abs(info.end_at.timestamp() - time.time() - 200) < 20
        await s.set_timeout(20)
        assert (await s.get_info()).end_at < info.end_at

    async def connect(self):
        s = await self.create(timeout=600)
        await s.files.write("/home/user/here", "x")
        end = (await s.get_info()).end_at
        again = await self.sandbox.connect(s.sandbox_id, timeout=10)
        assert again.sandbox_id == s.sandbox_id and await again.files.read("here") == "x"
        assert (await s.get_info()).end_at == end               # never shortened
        await s.connect(timeout=1000)
        assert (await s.get_info()).end_at > end
        with Raises(SandboxNotFoundException):
            await self.sandbox.connect(ABSENT)

    async def list(self):
        mark = "p%d-%d" % (os.getpid(), self.sync)
        boxes = [await self.create(metadata={"mark": mark, "n": "%d &=+é" % i}) for i in range(3)]
        ids = [s.sandbox_id for s in reversed(boxes)]
        query = SandboxQuery(metadata={"mark": mark})
        assert await self.ids(query=query) == ids
        assert await self.ids(query=query, limit=1) == ids
        assert await self.ids(query=query, limit=2, order="asc") == ids[::-1]
        assert await self.ids(query=SandboxQuery(metadata={"mark": mark, "n": "1 &=+é"})) == [ids[1]]
        assert await self.ids(query=SandboxQuery(metadata={"mark": mark}, state=[SandboxState.PAUSED])) == []
        assert await self.ids(query=SandboxQuery(metadata={"mark": mark}, template="base")) == ids
        started = (await boxes[1].get_info()).started_at
        assert await self.ids(query=SandboxQuery(metadata={"mark": mark}, started_after=started)) == ids[:2]
        assert await self.ids(query=SandboxQuery(metadata={"mark": "nobody"})) == []

    async def run(self):
        s = await self.create(envs={"A": "from create"})
        r = await s.commands.run('echo out; echo err >&2; echo "$A $B"; basename "$PWD"', envs={"B": "from run"}, cwd="/tmp")
        assert (r.exit_code, r.stdout, r.stderr) == (0, "out\nfrom create from run\ntmp\n", "err\n")
        with Raises(CommandExitException) as e:
            await s.commands.run("echo out; echo err >&2; exit 7")
        assert (e.value.exit_code, e.value.stdout, e.value.stderr) == (7, "out\n", "err\n")
        seen = []
        await s.commands.run("for i in 1 2 3; do echo $i; sleep 0.1; done", on_stdout=seen.append)
        assert "".join(seen) == "1\n2\n3\n"
        text = "Žluťoučký kůň 🐎 " * 5000
        await s.files.write("text", text)
        assert (await s.commands.run("cat text")).stdout == text
        with Raises(TimeoutException):
            await s.commands.run("sleep 30", timeout=0.5)
        with Raises(InvalidArgumentException):
            await s.commands.run("true", cwd="/no/such")
        with Raises(AuthenticationException):
            await s.commands.run("true", user="nobody-here")

    async def background(self):
        s = await self.create()
        h = await s.commands.run("read x; echo \"got $x\"; sleep 100", background=True, stdin=True)
        assert any(p.pid == h.pid and "sleep 100" in p.args[-1] for p in await s.commands.list())
        await s.commands.send_stdin(h.pid, "it\n")
        again = await s.commands.connect(h.pid)
        assert await again.kill() is True
        with Raises(Exception):
            await again.wait()
        assert await s.commands.kill(h.pid) is False
        with Raises(NotFoundException):
            await s.commands.connect(4190000)

    async def files(self):
        s = await self.create()
        info = await s.files.write("/home/user/a/b.txt", "text é")
        assert info.path == "/home/user/a/b.txt" and await s.files.read("a/b.txt") == "text é"
        data = bytes(i * 31 & 255 for i in range(300000))
        await s.files.write("bin", data)
        assert bytes(await s.files.read("bin", format="bytes")) == data
        await s.files.write_files([{"path": "/tmp/many/%d" % i, "data": "n%d" % i} for i in range(20)])
        assert len(await s.files.list("/tmp/many")) == 20 and await s.files.read("/tmp/many/13") == "n13"
        for name in ("ünï cödé 🎉.txt", "quote'd.txt", "percent%20+plus.txt", "a&b=c?d#e.txt", "кириллица"):
            await s.files.write("/home/user/" + name, name)
            assert await s.files.read("/home/user/" + name) == name
            assert (await s.files.get_info("/home/user/" + name)).name == name
        assert await s.files.make_dir("/home/user/d/e") is True
        assert await s.files.make_dir("/home/user/d/e") is False
        assert (await s.files.rename("/home/user/bin", "/home/user/d/g")).name == "g"
        assert not await s.files.exists("bin") and await s.files.exists("d/g")
        assert [e.name for e in await s.files.list("/home/user/d", depth=2)] == ["e", "g"]
        await s.files.remove("/home/user/d")
        assert not await s.files.exists("/home/user/d")
        for call in (s.files.read, s.files.list, s.files.get_info):
            with Raises(FileNotFoundException):
                await call("/no/such")
        with Raises(InvalidArgumentException):
            await s.files.read("/home/user")

    async def pause_and_resume(self):
        mark = {"mark": "pause%d-%d" % (os.getpid(), self.sync)}
        s = await self.create(metadata=mark)
        await s.files.write("kept", "data")
        assert await s.pause() is True
        assert await s.pause() is False
        assert await s.is_running() is False
        info = await s.get_info()
        assert info.state == SandboxState.PAUSED and info.metadata == mark
        with Raises(SandboxNotFoundException):
            await s.set_timeout(1000)
        assert await self.ids(query=SandboxQuery(metadata=mark, state=[SandboxState.PAUSED])) == [s.sandbox_id]
        assert await self.ids(query=SandboxQuery(metadata=mark, state=[SandboxState.RUNNING])) == []
        again = await self.sandbox.connect(s.sandbox_id, timeout=60)
        assert await again.files.read("kept") == "data" and await s.files.read("kept") == "data"
        assert (await s.get_info()).state == SandboxState.RUNNING
        with Raises(SandboxNotFoundException):
            await self.sandbox.pause(ABSENT)

    async def local_pause_files_only(self):
        s = await self.create()
        h = await s.commands.run("sleep 1000", background=True)
        await s.files.write("kept", "data")
        assert await s.pause(mode="filesystem") is True
        await s.connect()
        assert not any(p.pid == h.pid for p in await s.commands.list())
        assert await s.files.read("kept") == "data"

    async def local_pause_keeps_processes(self):
        s = await self.create()
        h = await s.commands.run("sleep 1000", background=True)
        assert await s.pause() is True
        await s.connect()
        assert any(p.pid == h.pid for p in await s.commands.list())

    async def local_fork(self):
        mark = {"mark": "fork%d-%d" % (os.getpid(), self.sync)}
        s = await self.create(metadata=mark)
        await s.files.write("kept", "data")
        before = await s.get_info()
        forks = await s.fork(count=3, timeout=60)
        assert len(forks) == 3
        for f in forks:
            assert not isinstance(f, Exception), f
            self.made.append(f)
            assert f.sandbox_id != s.sandbox_id and await f.files.read("kept") == "data"
            assert (await f.get_info()).metadata == mark
        assert (await s.get_info()).end_at == before.end_at
        assert len(await self.ids(query=SandboxQuery(metadata=mark))) == 4
        with Raises(InvalidArgumentException):
            await s.fork(count=0)
        with Raises(SandboxNotFoundException):
            await self.sandbox.fork(ABSENT)

    async def local_snapshots(self):
        s = await self.create()
        await s.files.write("kept", "data")
        name = "psnap-%d-%d" % (os.getpid(), self.sync)
        one = await s.create_snapshot(name="%s:v1" % name)
        assert one.snapshot_id.endswith("/%s:v1" % name)
        two = await s.create_snapshot()
        rows = await self.all(s.list_snapshots())
        assert [r.snapshot_id for r in rows] == [two.snapshot_id, one.snapshot_id]
        assert len(await self.all(s.list_snapshots(limit=1))) == 2
        assert [r.snapshot_id for r in await self.all(self.sandbox.list_snapshots(name=name))] == [one.snapshot_id]
        assert await s.kill() is True
        t = await self.create(one.snapshot_id)
        assert await t.files.read("kept") == "data"
        with Raises(Exception):
            await self.sandbox.delete_snapshot(one.snapshot_id)     # in use
        await t.kill()
        assert await self.sandbox.delete_snapshot(one.snapshot_id) is True
        assert await self.sandbox.delete_snapshot(one.snapshot_id) is False
        assert await self.sandbox.delete_snapshot(two.snapshot_id) is True
        with Raises(e2b.SandboxException) as e:
            await self.sandbox.create(one.snapshot_id)
        assert str(e.value).startswith("404")

    async def lifecycle(self):
        with Raises(InvalidArgumentException):
            await self.sandbox.create(lifecycle={"on_timeout": "kill", "auto_resume": True})
        with Raises(InvalidArgumentException):
            await self.sandbox.create(lifecycle={"on_timeout": {"action": "pause", "mode": "filesystem"},
                                                 "auto_resume": True})
        for given, want in (({"on_timeout": "kill"}, ("kill", False)),
                            ({"on_timeout": "pause", "auto_resume": True}, ("pause", True)),
                            ({"on_timeout": {"action": "pause", "mode": "filesystem"}}, ("pause", False))):
            s = await self.create(lifecycle=given)
            now = (await s.get_info()).lifecycle
            assert (now["on_timeout"], now["auto_resume"]) == want, (given, now)

    async def network(self):
        s = await self.create(allow_internet_access=False, network={"allow_public_traffic": False, "deny_out": ["10.0.0.0/8"]})
        assert s.traffic_access_token
        info = await s.get_info()
        assert info.allow_internet_access is False and info.network["deny_out"] == ["10.0.0.0/8"]
        await s.update_network({"deny_out": lambda ctx: [ctx.all_traffic]})
        info = await s.get_info()
        assert info.network["deny_out"] == ["0.0.0.0/0"] and info.network["allow_public_traffic"] is False
        await s.update_network({})
        assert not ((await s.get_info()).network or {}).get("deny_out")
        for bad in ({"allow_out": ["example.com"]}, {"deny_out": ["example.com"]}):
            with Raises(e2b.SandboxException) as e:
                await self.sandbox.create(network=bad)
            assert str(e.value).startswith("400"), e.value

    async def errors(self):
        with Raises(e2b.SandboxException) as e:
            await self.sandbox.create("no-such-template")
        assert str(e.value).startswith("404")
        with Raises(AuthenticationException):
            await self.sandbox.create(api_key="e2b_" + "0" * 40)
        s = await self.create()
        await s.kill()
        for call in (s.get_info, s.pause, s.create_snapshot, s.fork):
            with Raises(SandboxNotFoundException):
                await call()
        with Raises(SandboxNotFoundException):
            await s.set_timeout(10)
        with Raises(SandboxNotFoundException):
            await s.update_network({})
        with Raises(TimeoutException):
            await s.commands.run("true")
        with Raises(TimeoutException):
            await s.files.read("x")

    async def metrics(self):
        s = await self.create()
        assert isinstance(await s.get_metrics(), list)


async def one(mode, name):
    checks = Checks(mode == "sync")
    try:
        await getattr(checks, name)()
    finally:
        for s in checks.made:
            await s.kill()


async def main(mode, *names):
    for name in names:
        try:
            await one(mode, name)
            wrong = None
        except BaseException:
            wrong = traceback.format_exc()
        print(json.dumps([name, wrong]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
    os._exit(0)     # the SDK's transport has threads of its own, and aborts now and then when the interpreter is taken down
