# SPDX-License-Identifier: MIT
"""A command is over when its own process is, whoever still holds its output; the result says so (`pipes_held`)."""
import contextlib
import os
import signal
import sqlite3

import pytest

import harness
from api import Api
from c_durable import Output, attach, daemons, on_local, wait_end  # noqa: F401
from harness import until

EXITED, SIGNALED = 1, 2
LOOK = "is_dead"        # in the words of the script that looks


@pytest.fixture
def box(local_api):
    b = local_api.call("SandboxService.Create", template="base").id
    yield b
    local_api.call("SandboxService.Kill", sandbox=b)


def run(api, box, script, **fields):
    events = list(api.stream("CommandService.Run", sandbox=box, argv={"args": ["/bin/sh", "-c", script]}, **fields))
    return Output(events), events[0].started


@pytest.mark.parametrize("script,said,outcome,code,name", [
    ("sleep 1000 & echo hi", b"hi\n", EXITED, 0, ""),
    ("sleep 1000 & exit 7", b"", EXITED, 7, ""),
    ("exec 2>/dev/null; setsid sleep 1000 & echo hi; kill -TERM $$", b"hi\n", SIGNALED, None, "TERM"),
    ("sleep 1000 & sleep 1; echo late; exit 200", b"late\n", EXITED, 200, "")])
def test_a_child_that_holds_the_output(local_api, box, script, said, outcome, code, name):
    out, started = run(local_api, box, script)
    r = out.result
    assert out.data[1] == said and (r.outcome, r.signal) == (outcome, name)
    assert r.pipes_held and r.output_complete
    assert r.exit_code == code if code is not None else not r.HasField("exit_code")
    # it is over, although the agent still has it
    assert not [c for c in local_api.call("CommandService.List", sandbox=box).commands if c.pid == started.pid]
    _, alive, _ = local_api.run(box, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert b"sleep 1000" in alive, "nothing is killed for it"


def test_nothing_is_held(local_api, box):
    out, _ = run(local_api, box, "sleep 1000 >/dev/null 2>&1 & sleep 2; echo hi")
    assert out.data[1] == b"hi\n" and not out.result.pipes_held and out.result.output_complete


def test_all_that_it_said_is_there(local_api, box):
    """Much output, a reader that is slow and holds the program up: the end comes behind the last byte."""
    stream = local_api.stream("CommandService.Run", sandbox=box, spool_limit=100000, argv={
        "args": ["/bin/sh", "-c", "seq 200000; sleep 1000 & exit 4"]})
    first = next(stream)
    until(lambda: local_api.call("CommandService.List", sandbox=box).commands[0].stdout.end >= 60000, what="a full spool")
    assert first.started.pid
    out = Output(stream)
    assert out.data[1] == b"".join(b"%d\n" % i for i in range(1, 200001)) and not out.gaps
    assert out.result.pipes_held and out.result.output_complete and out.result.exit_code == 4


def test_a_child_that_goes_on_talking(local_api, box):
    out, _ = run(local_api, box, "(trap '' PIPE; while :; do echo x; sleep 0.02; done) & echo hi; exit 3")
    assert out.result.exit_code == 3 and out.result.pipes_held and not out.result.output_complete
    assert b"hi\n" in out.data[1]


def test_a_terminal(local_api, box):
    out, _ = run(local_api, box, "trap '' HUP; sleep 1000 & echo hi; exit 5", pty={"cols": 80, "rows": 24})
    assert out.data[3] == b"hi\r\n" and out.result.exit_code == 5 and out.result.pipes_held


def test_it_is_kept(on_local):
    """Over a restart of the daemon, and where the daemon that comes back is the one to see it."""
    on_local.start()
    with on_local.api() as api:
        box = api.call("SandboxService.Create", template="base").id
        held, started = run(api, box, "sleep 1000 & exit 7")
        later = api.call("CommandService.Start", sandbox=box, argv={"args": [
            "/bin/sh", "-c", "echo up; while [ ! -e go ]; do sleep 0.02; done; sleep 1000 & exit 8"]})
        wait_end(api, later.command_id, 1, 3)
    on_local.kill()
    on_local.start()
    with on_local.api() as api:
        again = attach(api, started.command_id)
        assert str(again.result) == str(held.result) and again.result.pipes_held
        api.run(box, "touch go")
        r = api.call("CommandService.Wait", command={"command_id": later.command_id})
        assert r.exit_code == 8 and r.pipes_held and not r.output_complete
        assert not api.call("CommandService.List", sandbox=box).commands
        api.call("SandboxService.Kill", sandbox=box)


def test_more_than_are_kept(on_local):
    """A daemon that died with more ended commands than it keeps starts, and forgets the oldest."""
    on_local.start()
    with on_local.api() as api:
        box = api.call("SandboxService.Create", template="base").id
        run(api, box, "true")
    path = os.path.join(on_local.folder, "state", "agentboxd.db")
    on_local.d.stop()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        row = dict(db.execute("SELECT * FROM command").fetchone())
        for i in range(1200):
            row["id"] = row["id"][:-4] + "%04d" % i
            db.execute("INSERT INTO command (%s) VALUES (%s)" % (", ".join(row), ", ".join("?" * len(row))), list(row.values()))
        db.commit()
    on_local.start()
    with on_local.api() as api:
        def kept():
            n, token = 0, ""
            while True:
                page = api.call("CommandService.List", sandbox=box, ended=True, page_size=100, page_token=token)
                n, token = n + len(page.commands), page.next_page_token
                if not token:
                    return n
        until(lambda: kept() == 1000, 20, "the oldest to be forgotten", on_local.d)
        api.call("SandboxService.Kill", sandbox=box)


def test_a_timeout_ends_the_children_too(local_api, box):
    """Its process takes TERM and goes, a child holds out: the kill is finished, then it ends."""
    out, _ = run(local_api, box, "(trap '' TERM; sleep 1000) & echo hi; wait", command_timeout=1, kill_grace=1.5)
    assert out.data[1] == b"hi\n" and out.result.timed_out and not out.result.survivors
    _, alive, _ = local_api.run(box, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert b"sleep 1000" not in alive


def test_what_a_look_says_is_not_believed_blindly(cloud, api):
    """A look that fails, and one that talks nonsense, change nothing; then the same answer twice is believed."""
    cloud.script("work", [("stdout", b"x"), ("gate", cloud.gate())])
    box = api.call("SandboxService.Create").id
    c = api.call("CommandService.Start", sandbox=box, shell="work")
    cloud.fault("process.Start", status=503)
    cloud.script(LOOK, [("stdout", b"\nx\n%d\n%d -1\n%d x\n99999 0\n%d 70000\n" % ((c.pid,) * 4))])
    cloud.ledger.wait_requests("process.Start", 3)
    assert not attach(api, c.command_id, follow=False).result
    cloud.script(LOOK, [("stdout", b"%d 1792\n" % c.pid)])
    out = attach(api, c.command_id)
    assert out.data[1] == b"x" and out.result.exit_code == 7 and out.result.pipes_held and out.result.output_complete
    assert len([p for p in cloud.starts if LOOK in " ".join(p.config.args)]) >= 3


def test_agentboxctl_says_it(daemon_on_local, box):
    r = daemon_on_local.ctl("exec", box, "--", "sh", "-c", "sleep 1000 & echo hi; exit 7", check=False)
    assert (r.returncode, r.stdout) == (7, "hi\n") and r.stderr.count("\n") == 1 and "hold its output" in r.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_as_an_ordinary_user():
    d = harness.Daemon(uid=1000)
    try:
        with Api(d.socket) as api:
            box = api.call("SandboxService.Create").id
            out, _ = run(api, box, "sleep 1000 & echo hi; exit 7")
            assert out.data[1] == b"hi\n" and out.result.exit_code == 7 and out.result.pipes_held
    finally:
        d.close()
