# SPDX-License-Identifier: MIT
"""FileService.Watch and SignUrl through agentboxd."""
import subprocess
import threading
import time

import pytest

import harness
from api import Api, ApiError
from fakecloud import Shape
from harness import until

KINDS = {1: "create", 2: "write", 3: "remove", 4: "rename", 5: "chmod"}
READ, WRITE = 1, 2


def failure(call, *args, **kw):
    with pytest.raises(ApiError) as e:
        out = call(*args, **kw)
        if hasattr(out, "__next__"):
            for _ in out:
                pass
    return e.value


class Watch:
    """An open Watch; its first event, `ready`, was read."""

    def __init__(self, api, box, path, **fields):
        self.stream = api.stream("FileService.Watch", sandbox=box, path=path, **fields)
        assert next(self.stream).WhichOneof("event") == "ready"

    def next(self):
        while True:
            e = next(self.stream)
            kind = e.WhichOneof("event")
            if kind == "change":
                return e.change.name, KINDS[e.change.type]
            if kind == "overflowed":
                return None, "overflowed"
            assert kind == "heartbeat", e

    def until(self, name, kind):
        seen = []
        while not seen or seen[-1] != (name, kind):
            seen.append(self.next())
        return seen

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stream.cancel()


@pytest.fixture
def box(local_api):
    b = local_api.call("SandboxService.Create", template="base", sandbox_timeout=120)
    yield b.id
    local_api.call("SandboxService.Kill", sandbox=b.id)


# -- on agentbox-local

def test_changes(local_api, box):
    with Watch(local_api, box, "/home/user", recursive=True) as w:
        local_api.write_file(box, "a", b"1")
        seen = w.until("a", "write")
        assert seen[0] == ("a", "create")
        local_api.run(box, "mkdir -p d/e; echo x > d/e/f; mv a b; rm b")
        seen = w.until("b", "remove")
        assert ("d", "create") in seen and ("d/e/f", "create") in seen
        assert seen.index(("a", "rename")) < seen.index(("b", "create"))


def test_entries(local_api, box):
    with local_api.stream("FileService.Watch", sandbox=box, path="/tmp", include_entry=True) as s:
        assert next(s).WhichOneof("event") == "ready"
        local_api.write_file(box, "/tmp/x", b"12345")
        e = next(s).change
        assert (e.name, KINDS[e.type], e.entry.path) == ("x", "create", "/tmp/x")
        local_api.call("FileService.Remove", sandbox=box, path="/tmp/x")
        while KINDS[e.type] != "remove":
            e = next(s).change
        assert not e.HasField("entry")


def test_refusals(local_api, box):
    local_api.write_file(box, "file", b"")
    watch = lambda **kw: local_api.stream("FileService.Watch", **kw)
    e = failure(watch, sandbox=box, path="missing")
    assert (e.code, e.reason) == ("NOT_FOUND", "FILE_NOT_FOUND"), e
    e = failure(watch, sandbox=box, path="file")
    assert (e.code, e.reason) == ("FAILED_PRECONDITION", "NOT_A_DIRECTORY"), e
    assert failure(watch, sandbox="i" + "0" * 20, path="/tmp").reason == "SANDBOX_NOT_FOUND"
    assert "path" in failure(watch, sandbox=box).fields


def test_ends_with_the_sandbox(local_api):
    box = local_api.call("SandboxService.Create", template="base", sandbox_timeout=120).id
    with Watch(local_api, box, "/tmp") as w:
        local_api.call("SandboxService.Kill", sandbox=box)
        e = failure(lambda: w.stream)
        assert e.code == "NOT_FOUND" and e.reason in ("SANDBOX_KILLED", "SANDBOX_GONE"), e


def test_a_reader_that_does_not_read(local_api, box):
    """It is told that it missed something, and then sees what happens next; meanwhile nobody else waits."""
    with Watch(local_api, box, "/home/user") as w:
        local_api.run(box, "seq -f '%%.0f-%s' 60000 | xargs touch" % ("n" * 180), timeout=90)
        while w.next()[1] != "overflowed":
            pass
        local_api.run(box, "touch after")
        w.until("after", "create")


def test_heartbeat(local_api, box):
    with local_api.stream("FileService.Watch", sandbox=box, path="/tmp", timeout=60) as s:
        assert next(s).WhichOneof("event") == "ready"
        began = time.monotonic()
        assert next(s).WhichOneof("event") == "heartbeat"
        assert 20 < time.monotonic() - began < 45


# -- bad days

def test_a_cut_is_an_overflow_and_the_watch_goes_on(cloud, api):
    box = api.call("SandboxService.Create", template="base").id
    with Watch(api, box, "/home/user") as w:
        api.write_file(box, "a", b"1")
        w.until("a", "write")
        cloud.cut_all()
        assert w.next() == (None, "overflowed")
        api.write_file(box, "b", b"1")
        assert w.next() == ("b", "create")


def test_cut_again_and_again(cloud, api):
    box = api.call("SandboxService.Create", template="base").id
    cloud.fault("filesystem.WatchDir", nth=2, times=3, cut=True)
    with Watch(api, box, "/home/user") as w:
        cloud.cut_all()
        assert w.next() == (None, "overflowed")
        assert len(cloud.ledger.of("filesystem.WatchDir")) >= 5


def test_the_folder_is_gone_meanwhile(cloud, api):
    box = api.call("SandboxService.Create", template="base").id
    api.call("FileService.MakeDir", sandbox=box, path="/home/user/d")
    cloud.fault("filesystem.WatchDir", shape=Shape(cut_after=1, how="reset"))
    s = api.stream("FileService.Watch", sandbox=box, path="/home/user/d")
    assert next(s).WhichOneof("event") in ("ready", "overflowed")
    api.call("FileService.Remove", sandbox=box, path="/home/user/d")
    cloud.cut_all()
    assert failure(lambda: s).reason == "FILE_NOT_FOUND"


def test_a_watch_that_never_begins_ends_with_the_calls_deadline(cloud, api):
    box = api.call("SandboxService.Create", template="base").id
    cloud.fault("filesystem.WatchDir", times=1000, cut=True)
    began = time.monotonic()
    e = failure(api.stream, "FileService.Watch", sandbox=box, path="/tmp", timeout=3)
    assert e.code in ("DEADLINE_EXCEEDED", "UNAVAILABLE") and time.monotonic() - began < 10, e


def test_agents_too_old(cloud, api):
    box = api.call("SandboxService.Create", template="old-watch").id
    e = failure(api.stream, "FileService.Watch", sandbox=box, path="/tmp", recursive=True)
    assert (e.code, e.reason) == ("FAILED_PRECONDITION", "UNSUPPORTED"), e


# -- links

@pytest.fixture(scope="module")
def own_local():
    d = harness.Daemon(None)
    yield d
    with Api(d.socket) as a:
        a.call("DaemonService.StopLocal")
    d.close()


def curl(*args, data=None):
    r = subprocess.run(["curl", "-sS", "--max-time", "20", "-w", "\n%{http_code}", *args], capture_output=True, input=data,
                       timeout=30)
    body, _, status = r.stdout.rpartition(b"\n")
    assert r.returncode == 0, r.stderr
    return int(status), body


def test_links_work_with_plain_curl(own_local):
    with Api(own_local.socket) as api:
        box = api.call("SandboxService.Create", template="base", sandbox_timeout=60).id
        name = "/home/user/a b+c%25&d.txt"
        api.write_file(box, name, b"content")
        sign = lambda op, **kw: api.call("FileService.SignUrl", sandbox=box, operation=op, **kw)
        link = sign(READ, path=name)
        assert not link.HasField("expires_at")
        assert curl(link.url) == (200, b"content"), link
        assert curl(link.url.replace("%2525", "%2526"))[0] == 401
        soon = sign(READ, path=name, expires_in=60)
        assert abs(soon.expires_at.seconds - time.time() - 60) < 3
        assert curl(soon.url) == (200, b"content")
        assert curl(soon.url.replace("expiration=", "expiration=1"))[0] == 401
        up = sign(WRITE, path="up.bin", user="root", expires_in=60)
        assert curl(up.url, "-H", "Content-Type: application/octet-stream", "--data-binary", "@-", data=b"\0\1")[0] == 200
        assert api.read_file(box, "/root/up.bin") == b"\0\1"
        assert curl(up.url)[0] == 401
        up = sign(WRITE, path="/home/user/for ever.bin")
        assert not up.HasField("expires_at")
        assert curl(up.url, "-F", "file=@-;filename=x", data=b"\2\3")[0] == 200
        assert api.read_file(box, "/home/user/for ever.bin") == b"\2\3"
        api.call("SandboxService.Kill", sandbox=box)
        assert curl(link.url)[0] == 502


def test_sign_refusals(local_api, box):
    sign = lambda **kw: local_api.call("FileService.SignUrl", **kw)
    for field, kw in (("operation", dict(sandbox=box, path="x")), ("path", dict(sandbox=box, operation=READ)),
                      ("expires_in", dict(sandbox=box, path="x", operation=READ, expires_in=0))):
        e = failure(sign, **kw)
        assert e.code == "INVALID_ARGUMENT" and field in e.fields, e
    assert failure(sign, sandbox="i" + "0" * 20, path="x", operation=READ).reason == "SANDBOX_NOT_FOUND"
    open_box = local_api.call("SandboxService.Create", template="base", secure=False, sandbox_timeout=60).id
    assert "signature" not in sign(sandbox=open_box, path="x", operation=READ).url
    e = failure(sign, sandbox=open_box, path="x", operation=READ, expires_in=60)
    assert (e.code, e.reason) == ("FAILED_PRECONDITION", "UNSUPPORTED"), e
    local_api.call("SandboxService.Kill", sandbox=open_box)


def test_sign_uses_the_fixed_address(local, daemon_on_local, local_api, box):
    """An account with sandbox_url: the link is for that address, which has to find the sandbox by itself."""
    local_api.write_file(box, "x", b"1")
    link = local_api.call("FileService.SignUrl", sandbox=box, path="x", operation=READ)
    assert link.url.startswith(local.url + "/files?path=x&signature=v1_"), link
    head = ["-H", "E2b-Sandbox-Id: " + box, "-H", "E2b-Sandbox-Port: 49983"]
    assert curl(link.url, "--cacert", local.ca, *head) == (200, b"1")
