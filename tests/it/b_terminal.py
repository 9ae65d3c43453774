# SPDX-License-Identifier: MIT
"""Terminals through the daemon: on agentbox-local, and counted by the scripted cloud."""
import time

import pytest

from api import ApiError

SIZE = {"cols": 80, "rows": 24}


def fails(call, *args, **kw):
    with pytest.raises(ApiError) as e:
        out = call(*args, **kw)
        if hasattr(out, "__next__"):
            list(out)
    return e.value.code, e.value.reason


class Terminal:
    """A terminal in a sandbox: its id, what it printed, input at the right offset."""

    def __init__(self, api, box, **fields):
        self.api = api
        self.command = api.call("CommandService.Start", sandbox=box, pty=SIZE, **fields)
        self.ref = {"command_id": self.command.command_id}
        self.sent = 0

    def type(self, text):
        *_, ack = self.api.both("CommandService.SendInput", iter([
            {"command": self.ref, "offset": self.sent, "data": text.encode()}]))
        self.sent += len(text)
        assert ack.accepted == self.sent

    def until(self, text, **fields):
        """Everything from the asked offset to where `text` was seen."""
        out = b""
        with self.api.stream("CommandService.Attach", command=self.ref, timeout=20, **fields) as s:
            for e in s:
                if e.WhichOneof("event") == "output":
                    assert e.output.stream == 3
                    out += e.output.data
                    if text.encode() in out:
                        return out
                assert e.WhichOneof("event") != "exited", out
        raise AssertionError(out)


@pytest.fixture
def box(local_api):
    b = local_api.call("SandboxService.Create", template="base", sandbox_timeout=120)
    yield b.id
    local_api.call("SandboxService.Kill", sandbox=b.id)


def test_a_shell(local_api, box):
    t = Terminal(local_api, box, envs={"PS1": "", "LANG": "de_DE"})
    assert t.command.pty and t.command.group and t.command.pid
    t.type("echo a$((1+1)) $TERM $LANG; stty size; tty\n")
    out = t.until("/dev/pts/")
    assert b"a2 xterm-256color de_DE\r\n" in out and b"24 80\r\n" in out
    t.type("exit 3\n")
    r = local_api.call("CommandService.Wait", command=t.ref)
    assert r.exit_code == 3 and r.output_complete and r.stdout_bytes > 0
    c, = [c for c in local_api.call("CommandService.List", sandbox=box, ended=True).commands
          if c.command_id == t.ref["command_id"]]
    assert c.terminal.end == r.stdout_bytes and not c.HasField("stdout")


def test_programs_and_lines(local_api, box):
    r, out, _ = local_api.run(box, "stty size; echo $0", pty=SIZE)
    assert r.exit_code == 0 and b"24 80\r\n" in out
    r, out, _ = local_api.run(box, argv=["/usr/bin/tty"], pty={"cols": 1, "rows": 65535})
    assert r.exit_code == 0 and out.startswith(b"/dev/pts/")


def test_resize_and_attach(local_api, box):
    t = Terminal(local_api, box, argv={"args": [
        "/bin/sh", "-c", "trap 'stty size' WINCH; echo up; while :; do sleep 0.05; done"]})
    t.until("up")
    local_api.call("CommandService.Resize", command=t.ref, size={"cols": 120, "rows": 40})
    out = t.until("40 120")
    assert b"up" in out
    # elsewhere, from an offset, with a size of one's own
    end = local_api.call("CommandService.List", sandbox=box).commands[0].terminal.end
    with local_api.stream("CommandService.Attach", command=t.ref, resize={"cols": 100, "rows": 30},
                          pty_offset=end) as s:
        assert next(s).started.pty
        seen = b""
        while b"30 100" not in seen:
            e = next(s)
            assert e.output.offset == end + len(seen)
            seen += e.output.data
        assert b"up" not in seen
    local_api.call("CommandService.Kill", command=t.ref)
    # of an ended one: what is kept, whatever size was asked for
    *_, last = local_api.stream("CommandService.Attach", command=t.ref, resize={"cols": 9, "rows": 9})
    assert last.exited.killed
    assert fails(local_api.call, "CommandService.Resize", command=t.ref, size=SIZE) == (
        "NOT_FOUND", "PROCESS_NOT_FOUND")


def test_several_and_kill(local_api, box):
    a, b = (Terminal(local_api, box) for _ in range(2))
    a.type("cd /tmp; sleep 8881 & sleep 8882 & pwd; echo re''ady\n")
    b.type("cd /; pwd; echo re''ady\n")
    assert b"/tmp\r\n" in a.until("ready") and b"/\r\n" in b.until("ready")
    begin = time.monotonic()
    killed = local_api.call("CommandService.Kill", command=a.ref)
    assert killed.found and not killed.survivors
    assert time.monotonic() - begin < 4, "an interactive shell takes no TERM: it is told to hang up"
    _, out, _ = local_api.run(box, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert b"sleep 888" not in out
    b.type("echo al''ive\n")
    b.until("alive")
    local_api.call("CommandService.Kill", command=b.ref)


def test_end_of_input_is_a_byte(local_api, box):
    t = Terminal(local_api, box, argv={"args": ["/bin/cat"]})
    with pytest.raises(ApiError) as e:
        local_api.call("CommandService.CloseInput", command=t.ref)
    assert (e.value.code, e.value.reason) == ("FAILED_PRECONDITION", "UNSUPPORTED") and "0x04" in e.value.text
    t.type("\x04")
    assert local_api.call("CommandService.Wait", command=t.ref).exit_code == 0


def test_refusals(local_api, box):
    for size in ({}, {"cols": 80}, {"rows": 24}, {"cols": 65536, "rows": 1}):
        assert fails(local_api.call, "CommandService.Start", sandbox=box, pty=size) == (
            "INVALID_ARGUMENT", "FIELD_INVALID")
    c = local_api.call("CommandService.Start", sandbox=box, shell="sleep 60")
    ref = {"command_id": c.command_id}
    assert not c.pty
    for call, fields in ((local_api.call, {"size": SIZE}), (local_api.stream, {"resize": SIZE})):
        method = "CommandService.Resize" if "size" in fields else "CommandService.Attach"
        assert fails(call, method, command=ref, **fields) == ("FAILED_PRECONDITION", "UNSUPPORTED")
    assert fails(local_api.call, "CommandService.Resize", command=ref) == ("INVALID_ARGUMENT", "FIELD_INVALID")
    local_api.call("CommandService.Kill", command=ref)


def test_a_storm_of_sizes(cloud, api):
    box = api.call("SandboxService.Create").id
    t = Terminal(api, box, argv={"args": ["/bin/cat"]})
    begin = time.monotonic()
    waits = [api.future("CommandService.Resize", command=t.ref, size={"cols": 10 + i, "rows": 10}) for i in range(100)]
    for w in waits:
        w.result(20)
    sent = cloud.ledger.count("process.Update")
    assert 1 <= sent <= 2 + (time.monotonic() - begin) * 10
    # one that hangs holds the others back, and the last one still wins
    gate = cloud.gate()
    cloud.fault("process.Update", hold=gate)
    waits = [api.future("CommandService.Resize", command=t.ref, size={"cols": 200, "rows": 50})]
    gate.wait()
    waits += [api.future("CommandService.Resize", command=t.ref, size={"cols": 200 + i, "rows": 50})
              for i in range(1, 20)]
    api.call("CommandService.List", sandbox=box)
    assert cloud.ledger.count("process.Update") == sent + 1
    gate.release()
    for w in waits:
        w.result(20)
    assert cloud.ledger.count("process.Update") <= sent + 3
    r, out, _ = api.run(box, "stty size </proc/%d/fd/0" % t.command.pid)
    assert out == b"50 219\n"
    api.call("CommandService.Kill", command=t.ref)


@pytest.mark.parametrize("version,fields,ok", [
    ("0.5.1", {"stdin": True}, False), ("0.5.2", {"stdin": True}, True), ("0.2.9", {}, False), ("0.3.0", {}, True),
    ("0.2.9", {"pty": SIZE}, True)])
def test_agents_too_old_for_input(cloud, api, version, fields, ok):
    from fakecloud import Template
    cloud.templates.append(Template("aged0templateaged0te", "aged", envd_version=version))
    box = api.call("SandboxService.Create", template="aged").id
    argv = {"args": ["/bin/true"]}
    if ok:
        api.call("CommandService.Start", sandbox=box, argv=argv, **fields)
    else:
        assert fails(api.call, "CommandService.Start", sandbox=box, argv=argv, **fields) == (
            "FAILED_PRECONDITION", "TEMPLATE_TOO_OLD")
    assert cloud.ledger.count("process.Start") == (1 if ok else 0)
