# SPDX-License-Identifier: MIT
"""The way of output: what it costs in calls of the system, that nothing on it waits, and that a reader's bytes survive
the daemon's death at any write. What the daemon calls is seen by strace."""
import os
import re
import signal
import subprocess

import pytest

import harness
from api import Api, ApiError
from c_durable import Daemons, Output, attach, wait_end  # noqa: F401
from fakecloud.codec import envelope
from harness import until

CALLS = "pwritev,pwrite64,pread64,preadv,epoll_wait,epoll_pwait,epoll_pwait2,read,readv,recvfrom,recvmsg,write,writev,sendto,sendmsg"


class Trace:
    """The calls of a daemon's loop while this lasts: (name, what the descriptor is, the rest)."""

    traced = CALLS

    def __init__(self, program):
        self.program = program
        self.path = os.path.join(program.folder, "trace")

    def __enter__(self):
        self.proc = subprocess.Popen(["strace", "-qq", "-f", "-yy", "-s", "0", "-e", "trace=" + self.traced, "-o", self.path,
                                      "-p", str(self.program.pid)])
        until(lambda: all(self.tracer(t) for t in os.listdir("/proc/%d/task" % self.program.pid)), what="strace")
        return self

    def tracer(self, task):
        with open("/proc/%d/task/%s/status" % (self.program.pid, task), encoding="ascii", errors="replace") as f:
            return int(re.search(r"TracerPid:\s+(\d+)", f.read()).group(1))

    def __exit__(self, *exc):
        self.proc.send_signal(signal.SIGINT)
        self.proc.wait(10)
        with open(self.path, encoding="utf-8", errors="replace") as f:
            lines = [re.match(r"(\d+) +(\w+)\((\d+<(.*?)>[,)])?(.*)", line) for line in f]
        self.calls = [(m.group(2), m.group(4) or "", m.group(5)) for m in lines
                      if m and int(m.group(1)) == self.program.pid]

    def spool(self, name):
        return [c for c in self.calls if c[0].startswith(name) and "/spool/" in c[1]]

    def passes(self):
        """The calls between two waits."""
        out = [[]]
        for c in self.calls:
            if c[0].startswith("epoll"):
                out.append([])
            else:
                out[-1].append(c)
        return out


def data_events(cloud, lines):
    """Them as the agent would write them, each in an envelope of its own."""
    out = b""
    for line in lines:
        m = cloud.messages["process.StartResponse"]()
        m.event.data.stdout = line
        out += envelope(m.SerializeToString())
    return out


def read_bytes(stream, n):
    got = b""
    while len(got) < n:
        e = next(stream)
        if e.WhichOneof("event") == "output":
            got += e.output.data
    return got


def follow(api, command_id):
    s = api.stream("CommandService.Attach", command={"command_id": command_id})
    assert next(s).WhichOneof("event") == "started"
    return s


def test_a_burst_costs_a_write_or_two(cloud, daemon, api):
    """HOUSE 2.9: 200 events in one TLS write; today's cost was 399 pwritev and 200 pread."""
    gate = cloud.gate()
    lines = [b"line %d\n" % i for i in range(200)]
    cloud.script("burst", [("gate", gate), ("raw", data_events(cloud, lines)), ("gate", cloud.gate())])
    box = api.call("SandboxService.Create").id
    c = api.call("CommandService.Start", sandbox=box, shell="burst")
    with follow(api, c.command_id) as reader:
        with Trace(daemon) as t:
            gate.release()
            assert read_bytes(reader, len(b"".join(lines))) == b"".join(lines)
    assert 1 <= len(t.spool("pwrite")) <= 20, t.spool("pwrite")
    assert not t.spool("pread")


def test_nothing_holds_a_piece_back(cloud, daemon, api):
    """HOUSE 2.9: events 10 ms apart cost two writes each, a reader at the end no read. In the pass of the loop that reads a
    piece from the cloud it is written, and sent to its reader: no timer is between them."""
    gate = cloud.gate()
    lines = [b"line %d\n" % i for i in range(40)]
    cloud.script("tick", [("gate", gate)] + [s for line in lines for s in (("stdout", line), ("sleep", 0.01))] +
                 [("gate", cloud.gate())])
    box = api.call("SandboxService.Create").id
    c = api.call("CommandService.Start", sandbox=box, shell="tick")
    with follow(api, c.command_id) as reader:
        with Trace(daemon) as t:
            gate.release()
            assert read_bytes(reader, len(b"".join(lines))) == b"".join(lines)
    assert len(t.spool("pwrite")) <= 2 * len(lines)
    assert not t.spool("pread")
    wrote = [p for p in t.passes() if any("/spool/" in c[1] for c in p)]
    assert wrote
    for p in wrote:
        at = [i for i, c in enumerate(p) if "/spool/" in c[1]]
        assert any(c[0].startswith("re") and "TCP" in c[1] for c in p[:at[0]]), p
        assert any(c[0][:5] in ("write", "sendt", "sendm") and "UNIX" in c[1] for c in p[at[-1]:]), p


def talk(cloud, gate):
    """Eight pieces, on two streams, each when the last one was seen."""
    steps = []
    for i in range(8):
        steps += [("gate", gate[i]), ("stderr" if i % 3 == 2 else "stdout", b"piece %d;" % i)]
    cloud.script("talk", steps + [("gate", cloud.gate())])


def read_until_it_dies(api, command_id, gates):
    """What a reader saw, by stream."""
    seen = {1: b"", 2: b""}
    try:
        with follow(api, command_id) as reader:
            for gate in gates:
                gate.release()
                e = next(reader)
                seen[e.output.stream] += e.output.data
    except ApiError:
        pass
    return seen


def test_killed_at_every_write(cloud):
    """HOUSE 2.9: the daemon dies when it is about to write to a spool for the n-th time, for every n: what a reader saw is
    there for the next daemon."""
    daemons = Daemons(cloud)
    env = {"ASAN_OPTIONS": "detect_leaks=0:exitcode=99"}    # a leak checker does not work while strace looks on
    try:
        for n in range(1, 40):
            gates = [cloud.gate() for _ in range(8)]
            talk(cloud, gates)
            d = harness.Daemon(cloud, folder=daemons.folder, env=env, wrap=[
                "strace", "-D", "-qq", "-f", "-o", "/dev/null", "-e", "trace=pwritev",
                "-e", "inject=pwritev:signal=KILL:when=%d" % n])
            daemons.all.append(d)
            with Api(d.socket) as api:
                box = api.call("SandboxService.Create").id
                c = api.call("CommandService.Start", sandbox=box, shell="talk")
                seen = read_until_it_dies(api, c.command_id, gates)
            whole = len(seen[1]) + len(seen[2]) == 8 * 8
            if whole:
                d.stop()
            assert whole or d.proc.wait(10) == -signal.SIGKILL
            daemons.start()
            with daemons.api() as api:
                out = attach(api, c.command_id, follow=False)
                assert out.data[1].startswith(seen[1]) and out.data[2].startswith(seen[2]), (n, seen, out.data)
                api.call("SandboxService.Kill", sandbox=box)
            daemons.d.stop()
            if whole:
                break
        assert whole and n > 8, n
    finally:
        daemons.close()


def test_ended_commands_keep_no_descriptors(cloud):
    """C-10: after 300 commands with output and 256 descriptors, whoever comes is let in, and their output is there."""
    cloud.script("say", [("stdout", b"said"), ("exit", 0)])
    d = harness.Daemon(cloud, wrap=["prlimit", "--nofile=256:256"])
    try:
        with Api(d.socket) as api:
            box = api.call("SandboxService.Create").id
            before = d.fds()
            ids = [api.call("CommandService.Start", sandbox=box, shell="say", request_id="r%d" % i).command_id
                   for i in range(300)]
            for i in ids:
                api.call("CommandService.Wait", command={"command_id": i})
            assert d.fds() <= before + 8, d.fds()
            for i in ids:
                assert attach(api, i).data[1] == b"said"
            assert d.fds() <= before + 8, d.fds()
        apis = [Api(d.socket) for _ in range(30)]
        for a in apis:
            assert a.call("CommandService.Wait", command={"command_id": ids[0]}).exit_code == 0
        for a in apis:
            a.close()
    finally:
        d.close()


def test_why_a_start_failed(cloud, api):
    """B-8: the agent says why at the end of a text that repeats the whole command line; our own part of that line is long,
    and means nothing to anybody."""
    box = api.call("SandboxService.Create").id
    cloud.script("pwd", [("exit", 0)])
    api.call("CommandService.Start", sandbox=box, shell="pwd")
    config = cloud.starts[0].config
    line = " ".join([config.cmd] + list(config.args))
    assert len(line) > 500
    for what, said in (("pwd", "/bin/bash -l -c pwd'"), ("pwd;" + "x" * 400, "x" * 20 + "'")):
        message = "error starting process '%s': fork/exec /bin/sh: permission denied" % line.replace("pwd", what)
        cloud.fault("process.Start", status=403, body={"code": "permission_denied", "message": message})
        with pytest.raises(ApiError) as e:
            api.call("CommandService.Start", sandbox=box, shell=what, cwd="/root", user="user")
        assert e.value.text.endswith(said + ": fork/exec /bin/sh: permission denied"), e.value.text
        assert e.value.text.startswith("error starting process '") and "__ab" not in e.value.text, e.value.text
