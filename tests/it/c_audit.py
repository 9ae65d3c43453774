# SPDX-License-Identifier: MIT
"""Commands and files, claim by claim: timeouts with what was printed, survivors, kills that have to fall back, limits of the
spool, history, the local terminal whatever happens to the daemon, odd names, ranges."""
import os
import signal
import sqlite3
import time

import pytest

import harness
from api import Api, ApiError
from c_durable import Output, attach, daemons, on_local, tagged, wait_end  # noqa: F401
from f_terminal import shell
from harness import until

EXITED, SIGNALED = 1, 2


@pytest.fixture
def box(local_api):
    b = local_api.call("SandboxService.Create", template="base").id
    yield b
    local_api.call("SandboxService.Kill", sandbox=b)


def run(api, box, script, **fields):
    return Output(api.stream("CommandService.Run", sandbox=box, argv={"args": ["/bin/sh", "-c", script]}, **fields))


# -- timeouts and kills

def test_a_timeout_asks_then_kills_and_keeps_what_was_said(local_api, box):
    out = run(local_api, box, "trap 'echo asked' TERM; echo a; echo e >&2; while :; do sleep 0.05; done", command_timeout=1,
              kill_grace=0.5)
    r = out.result
    assert out.data[1] == b"a\nasked\n" and out.data[2].startswith(b"e\n") and not out.gaps
    assert (r.outcome, r.signal) == (SIGNALED, "KILL") and r.timed_out and not r.survivors and r.output_complete
    _, alive, _ = local_api.run(box, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert b"asked" not in alive


def test_one_that_heeds_the_asking(local_api, box):
    r = run(local_api, box, "trap 'echo bye; exit 3' TERM; while :; do sleep 0.05; done", command_timeout=1, kill_grace=20)
    assert r.data[1] == b"bye\n" and r.result.timed_out and (r.result.outcome, r.result.exit_code) == (EXITED, 3)


def test_survivors_are_named(cloud, api):
    """What the script that kills could not end is in the answer, and in the result."""
    gate = cloud.gate()
    cloud.script("members", [("stdout", b"77\n4242\n")])
    cloud.script("work", [("gate", gate), ("exit", 0)])
    box = api.call("SandboxService.Create").id
    c = api.call("CommandService.Start", sandbox=box, shell="work")
    killed = api.call("CommandService.Kill", command={"command_id": c.command_id})
    assert killed.found and list(killed.survivors) == [77, 4242]
    gate.release()
    r = api.call("CommandService.Wait", command={"command_id": c.command_id})
    assert r.killed and list(r.survivors) == [77, 4242]


def test_a_kill_without_a_shell_falls_back(cloud, api):
    """The agent says that the script cannot be run: its own signal ends it, and what it had still to say may be lost."""
    cloud.script("work", [("stdout", b"x"), ("gate", cloud.gate())])
    box = api.call("SandboxService.Create").id
    c = api.call("CommandService.Start", sandbox=box, shell="work")
    wait_end(api, c.command_id, 1, 1)
    cloud.fault("process.Start", status=400, body={"code": "invalid_argument", "message": "cannot start /bin/sh: no such file"})
    assert api.call("CommandService.Kill", command={"command_id": c.command_id}).found
    out = attach(api, c.command_id)
    assert out.data[1] == b"x" and out.result.killed and not out.result.output_complete
    assert cloud.ledger.count("process.SendSignal") == 1


def test_a_kill_that_is_cut_is_sent_again(cloud, api):
    """B-2: what may be repeated is: nothing falls back to the signal that loses output."""
    cloud.script("members", [("stdout", b"")])
    cloud.script("work", [("stdout", b"x"), ("gate", cloud.gate())])
    box = api.call("SandboxService.Create").id
    c = api.call("CommandService.Start", sandbox=box, shell="work")
    wait_end(api, c.command_id, 1, 1)
    cloud.fault("process.Start", when="after", cut=True, times=3)
    killed = api.call("CommandService.Kill", command={"command_id": c.command_id})
    assert killed.found and not killed.survivors
    assert len([p for p in cloud.starts if "members" in " ".join(p.config.args)]) >= 2
    assert cloud.ledger.count("process.SendSignal") == 0


# -- the spool

def test_limits_of_the_spool(local):
    """Of a command, of a uid, in all: the oldest goes, and every reader's bytes and gaps add up."""
    d = harness.Daemon(local, conf={"spool": {"per_command": "256k", "per_uid": "512k", "total": "600k"}})
    try:
        with Api(d.socket) as api:
            box = api.call("SandboxService.Create").id
            ids = [api.call("CommandService.Start", sandbox=box, detach=True,
                            argv={"args": ["head", "-c", "1000000", "/dev/zero"]}).command_id for _ in range(4)]
            for i in ids:
                assert api.call("CommandService.Wait", command={"command_id": i}).stdout_bytes == 1000000
            folder = os.path.join(d.state_dir, "spool")
            used = sum(os.stat(os.path.join(folder, f)).st_blocks * 512 for f in os.listdir(folder))
            assert used < 1 << 20, used
            for i in ids:
                out = attach(api, i)
                assert len(out.data[1]) + sum(g for g in out_sizes(api, i)) == 1000000
                assert len(out.data[1]) <= 256 << 10 and out.result.exit_code == 0
            api.call("SandboxService.Kill", sandbox=box)
    finally:
        d.close()


def out_sizes(api, command_id):
    return [e.gap.size for e in api.stream("CommandService.Attach", command={"command_id": command_id})
            if e.WhichOneof("event") == "gap"]


def test_history_has_an_end(on_local):
    """A day after its end a command is no more, with its output; until then it is there."""
    on_local.start()
    with on_local.api() as api:
        box = api.call("SandboxService.Create", template="base").id
        old, young = [api.call("CommandService.Start", sandbox=box, argv={"args": ["sh", "-c", script]}).command_id
                      for script in ("until [ -e go ]; do sleep 0.02; done; echo x", "echo x")]
        api.call("CommandService.Wait", command={"command_id": young})
        api.run(box, "touch go")
        api.call("CommandService.Wait", command={"command_id": old})
        expires = {c.command_id: c.expires_at.seconds for c in api.call("CommandService.List", sandbox=box, ended=True).commands}
        assert abs(expires[old] - time.time() - 86400) < 60
        api.call("SandboxService.Kill", sandbox=box)
    on_local.d.stop()
    with sqlite3.connect(os.path.join(on_local.folder, "state", "agentboxd.db")) as db:
        table, = [t for t, in db.execute("select name from sqlite_master where type = 'table'") if t in ("command", "commands")]
        assert db.execute("update %s set exited_at_ms = exited_at_ms - 86400000 where id = ?" % table, (old,)).rowcount == 1
    db.close()
    on_local.start()
    with on_local.api() as api:
        with pytest.raises(ApiError) as e:
            until(lambda: api.call("CommandService.Wait", command={"command_id": old}) and None, 70, "the end of its history")
        assert e.value.code == "NOT_FOUND"
        assert attach(api, young).data[1] == b"x\n"
    assert on_local.spools() == [young]


# -- the local terminal

@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_more_signals_restore_the_terminal(d, number):
    box = d.ctl("create").stdout.strip()
    t = shell(d, box)
    t.proc.send_signal(number)
    assert t.end() == 128 + number
    d.ctl("kill", box)


def test_the_daemon_dies_and_comes_back(on_local):
    """The terminal goes on where it was."""
    on_local.start()
    box = on_local.d.ctl("create").stdout.strip()
    t = shell(on_local.d, box)
    on_local.kill()
    on_local.start()
    t.type("echo still''-here\n")
    t.until("still-here", again="echo still''-here\n")
    t.type("exit 4\n")
    assert t.end() == 4
    on_local.d.ctl("kill", box)


def test_the_daemon_dies_for_good(on_local):
    on_local.start()
    box = on_local.d.ctl("create").stdout.strip()
    t = shell(on_local.d, box, "--wait", "2s")
    on_local.kill()
    assert t.end() == 126
    on_local.start()
    on_local.d.ctl("kill", box)


# -- files

NAMES = ["n" * 255, "\u00e4" * 127, "a b+c%25&d#e?f", "%2e%2e", "\U0001f600 .txt", "..hidden", "new\nline", "quote\"'\\", "-rf"]


def test_every_legal_name(local_api, box):
    api = local_api
    r = api.send("FileService.Write", iter([part for i, n in enumerate(NAMES) for part in (
        {"header": {"sandbox": box, "path": "/home/user/made/%s" % n}}, {"data": b"\0\xff%d" % i})]))
    assert [x.WhichOneof("result") for x in r.results] == ["file"] * len(NAMES)
    assert {e.name for e in api.stream("FileService.List", sandbox=box, path="made")} == set(NAMES)
    for i, n in enumerate(NAMES):
        assert api.read_file(box, "made/" + n) == b"\0\xff%d" % i
        assert api.call("FileService.Stat", sandbox=box, path="made/" + n).name == n
    api.call("FileService.Move", sandbox=box, source="made/" + NAMES[0], destination="made/moved " + NAMES[2])
    assert api.read_file(box, "made/moved " + NAMES[2]) == b"\0\xff0"
    for n in NAMES[1:]:
        api.call("FileService.Remove", sandbox=box, path="made/" + n)
    assert [e.name for e in api.stream("FileService.List", sandbox=box, path="made")] == ["moved " + NAMES[2]]
    with pytest.raises(ApiError) as e:
        api.write_file(box, "x" * 256, b"x")
    assert e.value.code == "INVALID_ARGUMENT"


def test_ranges(local_api, box):
    data = bytes(range(256)) * 1000
    local_api.write_file(box, "f", data)
    for offset, length in ((0, None), (1, 1), (0, 0), (255999, None), (255999, 100), (256000, None), (100000, 65537)):
        fields = {"offset": offset} if length is None else {"offset": offset, "length": length}
        want = data[offset:] if length is None else data[offset:offset + length]
        assert local_api.read_file(box, "f", **fields) == want, (offset, length)
    assert local_api.read_file(box, "f", offset=1 << 40) == b""
