# SPDX-License-Identifier: MIT
"""What a reload takes up besides log, graces, policies and rights (y_manager.py): limits, how the cloud is reached, accounts."""
import concurrent.futures
import contextlib
import os
import socket

import pytest

import harness
from api import Api, ApiError
from fakecloud import FakeCloud
from fakecloud.certs import Authority
from fakeproxy import FakeProxy
from harness import until
from i_proxy import NAMED
from u_pool import connections, pool
from y_manager import folder, rewrite  # noqa: F401

UID = "uid %d" % os.getuid()


def took(api):
    """Reloads; what was taken up, all of it."""
    r = api.call("DaemonService.Reload")
    assert not r.problems and not r.need_restart, r
    return {"%s %s" % (v.section, v.key) for v in r.taken}


@contextlib.contextmanager
def running(cloud, conf, **options):
    d = harness.Daemon(cloud, conf, **options)
    try:
        with Api(d.socket) as api:
            yield d, api
    finally:
        d.close()


def test_memory(cloud):
    """Of all clients, of each uid, of one; of the cloud's answers."""
    conf = {"daemon": {"max_memory": "64M", "max_memory_per_uid": "16M"}, "pool": {"memory": "32M"}, "uid 4000000": {"max_memory": "9M"}}
    with running(cloud, conf) as (d, api):
        def maxima():
            m = api.call("DaemonService.Status").memory
            return [n >> 20 for n in (m.max_client_bytes, m.max_uid_bytes, m.max_cloud_bytes)]

        assert maxima() == [64, 16, 32]
        rewrite(d, ("max_memory = 64M", "max_memory = 96M"), ("max_memory_per_uid = 16M", "max_memory_per_uid = 24M"),
                ("memory = 32M", "memory = 48M"))
        assert took(api) == {"daemon max_memory", "daemon max_memory_per_uid", "pool memory"} and maxima() == [96, 24, 48]
        rewrite(d, ("[uid 4000000]\nmax_memory = 9M\n", "[%s]\nmax_memory = 11M\n" % UID))
        assert took(api) == {"uid 4000000 max_memory", UID + " max_memory"} and maxima() == [96, 11, 48]
        rewrite(d, ("[%s]\nmax_memory = 11M\n" % UID, "[uid *]\nmax_memory = 12M\n"))
        assert maxima() == [96, 11, 48]
        took(api)
        assert maxima() == [96, 12, 48]
        assert api.call("SandboxService.Create").id


def test_streams_of_a_uid(cloud):
    """Those that are open go on above a lower number."""
    with running(cloud, {UID: {"max_streams": "3"}}) as (d, api):
        def watch():
            s = api.stream("SandboxService.Watch", initial=True)
            next(s)
            return s

        def refused():
            with pytest.raises(ApiError) as e:
                watch()
            return e.value.reason, e.value.metadata["max"]

        api.call("DaemonService.Status")        # asked by reflection, which is a stream too
        open_ones = [watch() for _ in range(3)]
        assert refused() == ("TOO_MANY_STREAMS", "3")
        rewrite(d, ("max_streams = 3", "max_streams = 1"))
        assert took(api) == {UID + " max_streams"}
        open_ones.pop().cancel()
        until(lambda: api.call("DaemonService.Status").counts.streams == 2, 10, "the end of one stream")
        assert refused() == ("TOO_MANY_STREAMS", "1")
        made = api.call("SandboxService.Create").id
        assert all(any(made in str(next(s)) for _ in range(4)) for s in open_ones)
        rewrite(d, ("[%s]\nmax_streams = 1\n" % UID, ""))
        took(api)
        assert len([watch() for _ in range(10)]) == 10


def test_output(local):
    """A lower maximum drops what ended commands wrote, a command begins with the one of its time."""
    with running(local, {"spool": {"per_command": "256k", "per_uid": "1M", "total": "2M"}}) as (d, api):
        box = api.call("SandboxService.Create").id

        def run():
            c = api.call("CommandService.Start", sandbox=box, detach=True, argv={"args": ["head", "-c", "200000", "/dev/zero"]}).command_id
            assert api.call("CommandService.Wait", command={"command_id": c}).stdout_bytes == 200000
            return c

        def kept(c):
            return sum(len(e.output.data) for e in api.stream("CommandService.Attach", command={"command_id": c})
                       if e.WhichOneof("event") == "output")

        commands = [run() for _ in range(3)]
        assert [kept(c) for c in commands] == [200000] * 3
        rewrite(d, ("per_command = 256k", "per_command = 128k"), ("per_uid = 1M", "per_uid = 384k"))
        assert took(api) == {"spool per_command", "spool per_uid"}
        assert [kept(c) for c in commands] == [0, 0, 200000]
        assert 0 < kept(run()) <= 128 << 10
        api.call("SandboxService.Kill", sandbox=box)


def test_grace_of_a_kill(local):
    """A command keeps the one that it was started with."""
    with running(local, {"daemon": {"kill_grace": "1h"}}) as (d, api):
        box = api.call("SandboxService.Create").id

        def start():
            c = api.call("CommandService.Start", sandbox=box, argv={"args": ["sh", "-c", "trap '' TERM; echo; while :; do sleep 1; done"]})
            until(lambda: api.call("CommandService.List", sandbox=box).commands[-1].stdout.end, 10, "the program's first line")
            return c.command_id

        stays = start()
        rewrite(d, ("kill_grace = 1h", "kill_grace = 0s"))
        assert took(api) == {"daemon kill_grace"}
        goes = start()
        with concurrent.futures.ThreadPoolExecutor(1) as other:
            waits = other.submit(api.call, "CommandService.Kill", command={"command_id": stays})
            api.call("CommandService.Kill", command={"command_id": goes})
            assert api.call("CommandService.Wait", command={"command_id": goes}).signal == "KILL"
            assert [c.command_id for c in api.call("CommandService.List", sandbox=box).commands] == [stays] and not waits.done()
            api.call("SandboxService.Kill", sandbox=box)


def test_connections_to_the_cloud(cloud):
    """Those who wait for one go on when more may be made; above a lower number none is closed."""
    with running(cloud, {"pool": {"max_connections": "1"}}) as (d, api):
        box = api.call("SandboxService.Create").id
        gate = cloud.gate()
        cloud.script("waiting", [("stdout", b"x"), ("gate", gate)])
        streams = [api.stream("CommandService.Run", sandbox=box, shell="waiting") for _ in range(120)]
        until(lambda: sum(o["queued"] for o in pool(d)["origins"]), 10, "those that wait")
        before = len(connections(d))
        rewrite(d, ("max_connections = 1", "max_connections = 4"))
        assert took(api) == {"pool max_connections"}
        for s in streams:
            while next(s).WhichOneof("event") != "output":
                pass
        more = len(connections(d))
        assert more > before
        rewrite(d, ("max_connections = 4", "max_connections = 1\nidle = 1s"))
        assert took(api) == {"pool max_connections", "pool idle"} and len(connections(d)) == more
        gate.release()
        assert all(list(s)[-1].exited.exit_code == 0 for s in streams)
        until(lambda: len(connections(d)) <= before, 10, "the end of the idle ones")


def test_connections_of_the_gateway(cloud):
    """One above is closed at the door; those that are there stay. One user may have half of them."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with running(cloud, {"gateway": {"listen": "127.0.0.1:%d" % port, "max_connections": "16"}}) as (d, api), \
            contextlib.ExitStack() as stack:
        d.wait_log(r"\bgateway listen=")

        def ask(s):
            s.sendall(b"GET /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return s.recv(12)

        def connect():
            s = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            with contextlib.suppress(ConnectionError):
                return s, ask(s)
            return s, b""

        inside = [connect() for _ in range(8)]
        assert {said for _, said in inside} == {b"HTTP/1.1 401"} and connect()[1] == b""
        rewrite(d, ("max_connections = 16", "max_connections = 20\nmax_streams = 7"))
        assert took(api) == {"gateway max_connections", "gateway max_streams"}
        assert [connect()[1] for _ in range(3)] == [b"HTTP/1.1 401"] * 2 + [b""]
        rewrite(d, ("max_connections = 20", "max_connections = 16"))
        took(api)
        assert connect()[1] == b"" and b"HTTP" in (inside[0][0].recv(4096) + ask(inside[0][0]))


# -- how the cloud is reached

def test_the_proxy(cloud):
    """New connections go through the one of the file, whose password is nowhere to be read; then through none."""
    with FakeProxy(cloud.port, user="u:one-secret") as one, FakeProxy(cloud.port, user="u:two-secret") as two, \
            running(cloud, {"account default": {"api_url": NAMED, "sandbox_url": NAMED.replace("api.", "sandbox."), "proxy": one.url}}) \
            as (d, api):
        assert api.call("SandboxService.Create").id and len(one.seen) == 1
        rewrite(d, ("proxy = " + one.url, "proxy = " + two.url))
        assert took(api) == {"account default proxy"}
        assert api.call("SandboxService.Create").id and (len(one.seen), len(two.seen)) == (1, 1)
        shown = api.call("DaemonService.Status").clouds[0]
        assert shown.proxy.endswith(str(two.port)) and "secret" not in shown.proxy + d.log() + d.ctl("config", "show").stdout
        rewrite(d, ("proxy = " + two.url, "proxy = none"))
        took(api)
        with pytest.raises(ApiError):       # there is no such name without one
            api.call("SandboxService.Create", timeout=3)
        assert (len(one.seen), len(two.seen)) == (1, 1)
        rewrite(d, ("proxy = none", "proxy = socks5://nowhere"))
        assert "[account default] proxy: is neither none" in api.call("DaemonService.Reload").problems[0]


def test_the_ca(cloud, tmp_path):
    """New connections believe what the file names now. One that is no CA is a problem, and nothing changes."""
    other = Authority(str(tmp_path), "another CA").cert
    (tmp_path / "none").write_text("no certificate\n")
    with running(cloud, {}) as (d, api):
        box = api.call("SandboxService.Create").id
        gate = cloud.gate()
        cloud.script("waiting", [("stdout", b"x"), ("gate", gate)])
        run = api.stream("CommandService.Run", sandbox=box, shell="waiting")
        while next(run).WhichOneof("event") != "output":
            pass
        rewrite(d, ("ca_file = " + cloud.ca, "ca_file = %s/none" % tmp_path))
        assert "none" in api.call("DaemonService.Reload").problems[0]
        api.call("SandboxService.Create")
        rewrite(d, ("ca_file = %s/none" % tmp_path, "ca_file = " + other))
        assert took(api) == {"account default ca_file"}
        with pytest.raises(ApiError) as e:
            api.call("SandboxService.Create", timeout=3)
        assert e.value.reason in ("TLS_UNTRUSTED", "DEADLINE_REQUEST"), e.value
        rewrite(d, ("ca_file = " + other, "ca_file = " + cloud.ca))
        took(api)
        assert api.call("SandboxService.Create").id
        gate.release()
        assert list(run)[-1].exited.exit_code == 0      # its connection lived on


# -- accounts

@pytest.fixture(name="second")
def make_second():
    with FakeCloud() as cloud:
        yield cloud


def section(cloud, d, name="other", **more):
    """The text of an account of this cloud."""
    key = os.path.join(d.home, name + "-key")
    with open(key, "w", encoding="ascii") as f:
        os.fchmod(f.fileno(), 0o600)
        f.write(cloud.key + "\n")
    keys = dict({"api_url": cloud.url, "sandbox_url": cloud.url, "ca_file": cloud.ca, "api_key_file": key, "proxy": "none"}, **more)
    return "[account %s]\n" % name + "".join("%s = %s\n" % kv for kv in keys.items())


def append(d, text):
    with open(d.conf_path, "a", encoding="utf-8") as f:
        f.write(text)


def left(api):
    r = api.call("DaemonService.Reload")
    assert not r.problems, r
    return {"%s %s" % (v.section, v.key) for v in r.need_restart}


def test_an_account_comes_and_goes(cloud, second):
    """A uid goes over to it and makes its sandboxes there. When it is taken out of the file, what it has is kept and ended as before, and
    nothing is made; back in the file, it makes again."""
    with running(cloud, {}) as (d, api):
        before = api.call("SandboxService.Create").id
        text = section(second, d)
        append(d, text + "[%s]\naccount = other\n" % UID)
        assert took(api) == {"account other " + k for k in ("api_url", "sandbox_url", "ca_file", "api_key_file", "proxy")} | {UID + " account"}
        box = api.call("SandboxService.Create", sandbox_timeout=60)
        assert box.account == "other" and alive(second, box.id) and not box.id in cloud.by_id
        assert {(c.account, c.key) for c in api.call("DaemonService.Status").clouds} == {("default", 1), ("other", 1)}
        assert "".join(e.output.data.decode() for e in api.stream("CommandService.Run", sandbox=box.id, shell="echo there")
                       if e.WhichOneof("event") == "output") == "there\n"
        assert d.ctl("inspect", before).stdout and api.call("SandboxService.Kill", sandbox=before).found and not alive(cloud, before)

        rewrite(d, (text, ""), ("[%s]\naccount = other\n" % UID, ""))
        assert left(api) == {"account other " + k for k in ("api_url", "sandbox_url", "ca_file", "api_key_file", "proxy")}
        assert "account_retired account=other" in d.log()
        assert api.call("SandboxService.Create").account == "default"
        for call, args in (("SandboxService.Create", {"account": "other"}), ("SandboxService.Fork", {"sandbox": box.id, "count": 1})):
            with pytest.raises(ApiError) as e:
                api.call(call, **args)
            assert e.value.reason == "ACCOUNT_NOT_FOUND" and "taken out of the configuration" in e.value.text
        api.call("SandboxService.SetTimeout", sandbox=box.id, sandbox_timeout=300)
        assert second.sandbox(box.id).end_at - second.now() > 200

        other = text.replace("sandbox_url = " + second.url, "sandbox_url = " + cloud.url)
        append(d, other)
        assert left(api) == {"account other sandbox_url"} and "account_back" not in d.log()
        rewrite(d, (other, ""))
        append(d, text)
        assert left(api) == set() and "account_back account=other" in d.log()
        assert api.call("SandboxService.Create", account="other").account == "other"
        rewrite(d, (text, ""))
        left(api)
        assert api.call("SandboxService.Kill", sandbox=box.id).found and not alive(second, box.id)


def alive(cloud, sandbox):
    return cloud.sandbox(sandbox).fate is None


def test_a_limit_of_an_account(cloud):
    with running(cloud, {"account default": {"max_sandboxes": "1"}}) as (d, api):
        api.call("SandboxService.Create")
        with pytest.raises(ApiError) as e:
            api.call("SandboxService.Create")
        assert e.value.reason == "QUOTA_UID"
        rewrite(d, ("max_sandboxes = 1", "max_sandboxes = 2"))
        assert took(api) == {"account default max_sandboxes"} and api.call("SandboxService.Create").id


def test_an_account_with_a_problem_does_not_begin(cloud, second):
    """Nor does another one beside it, and nothing else changes."""
    with running(cloud, {"daemon": {"drain_timeout": "20s"}}) as (d, api):
        good, bad = section(second, d), section(second, d, "bad")
        os.chmod(os.path.join(d.home, "bad-key"), 0o644)
        append(d, good + bad)
        rewrite(d, ("drain_timeout = 20s", "drain_timeout = 3s"))
        said = api.call("DaemonService.Reload").problems
        assert any("bad-key" in t and "others can read it" in t for t in said), said
        rewrite(d, ("ca_file = %s\napi_key_file = %s/bad-key" % (second.ca, d.home), "ca_file = /dev/null\napi_key_file = %s/other-key" % d.home))
        said = api.call("DaemonService.Reload").problems
        assert len(said) == 1 and "[account bad]" in said[0] and "/dev/null" in said[0], said
        assert [c.account for c in api.call("DaemonService.Status").clouds] == ["default"] and "account_begun" not in d.log()
        rewrite(d, (bad.replace(second.ca, "/dev/null").replace("bad-key", "other-key"), ""))
        assert "account other api_url" in took(api)
        assert api.call("SandboxService.Create", account="other").account == "other"


def test_accounts_that_wait_for_a_restart(cloud, second, folder):  # noqa: F811
    """The first one of the file is that of all who are told none: another one is a restart. So is one of which the state has rows that this
    run did not read."""
    with running(cloud, {}, folder=folder) as (d, api):
        text = section(second, d)
        with open(d.conf_path, encoding="utf-8") as f:
            own = f.read()
        rewrite(d, (own, text + own))
        r = api.call("DaemonService.Reload")
        assert {v.key for v in r.need_restart} == {"api_url", "sandbox_url", "ca_file", "api_key_file", "proxy", "(the first one)"} and not r.taken
        rewrite(d, (text + own, own + text))
        took(api)
        box = api.call("SandboxService.Create", account="other").id
    with running(cloud, {}, folder=folder) as (d, api):
        d.wait_log("rows_of_other_accounts")
        append(d, section(second, d) + "[%s]\naccount = other\n" % UID)
        assert left(api) >= {"account other api_url", UID + " account"}
        assert api.call("SandboxService.Create").account == "default"
    with running(cloud, {"account other": dict(t.split(" = ", 1) for t in section(second, d).splitlines()[1:])}, folder=folder) as (d, api):
        assert api.call("SandboxService.Get", sandbox=box).account == "other" and api.call("SandboxService.Kill", sandbox=box).found
        assert not alive(second, box)
