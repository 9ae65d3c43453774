# SPDX-License-Identifier: MIT
"""Commands outlive their clients, their connections and the daemon.

Against the scripted cloud what a command says is a script whose gates the test opens, so that it is known what was said
while nobody was attached; agentbox-local runs real programs.
"""
import contextlib
import os
import shutil
import signal
import subprocess
import threading

import pytest

import harness
from api import Api, ApiError
from conftest import built
from fakecloud import Shape
from harness import until

EXITED, SIGNALED, LOST, UNKNOWN = 1, 2, 4, 5
FP = os.path.join(harness.BUILD, "daemon", "agentboxd-fp")


class Daemons:
    """One state folder, one daemon after the other."""

    def __init__(self, cloud, conf=None):
        self.cloud, self.conf = cloud, conf
        self.folder = harness.temp_dir("abd-")
        self.all = []

    def start(self, point=None, wait=True, conf=None):
        saved = harness.AGENTBOXD
        harness.AGENTBOXD = FP if point else saved
        try:
            env = {"AGENTBOXD_FAILPOINT": point + "=kill"} if point else {}
            self.d = harness.Daemon(self.cloud, folder=self.folder, conf=conf or self.conf, env=env, wait=wait)
        finally:
            harness.AGENTBOXD = saved
        self.all.append(self.d)
        return self.d

    def kill(self):
        self.d.proc.kill()
        self.d.proc.wait()

    def dies(self, call):
        with pytest.raises(ApiError):
            call()
        assert self.d.proc.wait(10) == -signal.SIGKILL

    def api(self):
        return Api(self.d.socket)

    def spools(self):
        return sorted(os.listdir(os.path.join(self.folder, "state", "spool")))

    def close(self):
        for d in self.all:
            d.close()
        shutil.rmtree(self.folder)


@pytest.fixture
def daemons(cloud):
    d = Daemons(cloud)
    yield d
    d.close()


@pytest.fixture
def on_local(local):
    d = Daemons(local)
    yield d
    d.close()


class Output:
    """What an Attach says: bytes per stream at their offsets, gaps, the result."""

    def __init__(self, events):
        self.data, self.gaps, self.result = {1: b"", 2: b"", 3: b""}, [], None
        at = {1: 0, 2: 0, 3: 0}
        for e in events:
            which = e.WhichOneof("event")
            assert self.result is None, "nothing comes after the exit"
            if which == "output":
                assert e.output.offset == at[e.output.stream]
                self.data[e.output.stream] += e.output.data
                at[e.output.stream] += len(e.output.data)
            elif which == "gap":
                assert e.gap.offset == at[e.gap.stream]
                at[e.gap.stream] += e.gap.size
                self.gaps.append((e.gap.stream, e.gap.size_known, e.gap.reason))
            elif which == "exited":
                self.result = e.exited

    def gaps_of(self, stream):
        return [g[1:] for g in self.gaps if g[0] == stream]


def attach(api, command_id, **fields):
    return Output(api.stream("CommandService.Attach", command={"command_id": command_id}, **fields))


def tagged(cloud):
    """The commands, without the daemon's own (a Run whose caller goes is killed)."""
    return [p for p in cloud.starts if p.tag.startswith("agentbox-c")]


def wait_end(api, command_id, stream, end, program=None):
    """Until the spool holds so many bytes of a stream."""
    def look():
        s = Output(api.stream("CommandService.Attach", command={"command_id": command_id}, follow=False))
        return len(s.data[stream]) >= end
    until(look, what="%d bytes of output" % end, program=program)


def wait_attached(api, command_id, gaps=1):
    """Until the daemon has taken the command up: what comes from now on is seen."""
    until(lambda: len(attach(api, command_id, follow=False).gaps) >= gaps, what="the stream of " + command_id)


def lines(n, first=0):
    return b"".join(b"line %d\n" % i for i in range(first, n))


# -- cuts and planned ends

def test_every_cut_is_a_gap_and_nothing_is_doubled(cloud, daemons):
    """A11: The ticker: the client dies at line 10, the daemon at 20, the connection at 30, 40, 50. Nothing is printed while
    nobody is attached, so that every line is there."""
    d = daemons.start()
    first, *gates = [cloud.gate() for _ in range(5)]
    steps = []
    for i in range(60):
        if i in (10, 20, 30, 40, 50):
            steps.append(("gate", ([first] + gates)[i // 10 - 1]))
        steps.append(("stdout", b"line %d\n" % i))
    cloud.script("ticker", steps)
    with daemons.api() as api:
        box = api.call("SandboxService.Create").id
        c = api.call("CommandService.Start", sandbox=box, shell="ticker", detach=True)
        client = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "attach", c.command_id], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE)
        assert b"".join(client.stdout.readline() for _ in range(10)) == lines(10)
        client.kill()
        assert client.wait() == -signal.SIGKILL
        client.stdout.close()
        first.release()
        wait_end(api, c.command_id, 1, len(lines(20)), d)
    daemons.kill()
    d = daemons.start()
    with daemons.api() as api:
        cloud.ledger.wait_requests("process.Connect")
        gates[0].release()
        for n, gate in enumerate(gates[1:]):
            wait_end(api, c.command_id, 1, len(lines(30 + 10 * n)), d)
            cloud.cut_all()
            cloud.ledger.wait_requests("process.Connect", n + 2)
            gate.release()
        out = attach(api, c.command_id)
        assert out.data[1] == lines(60)
        assert out.gaps_of(1) == [(False, "reattached")] * 4
        assert out.gaps_of(2) == [(False, "reattached")], "at the one place where it is"
        assert out.result.exit_code == 0 and not out.result.output_complete
    assert len(tagged(cloud)) == 1


def test_goaway_loses_nothing(cloud, daemons):
    d = daemons.start()
    gates = [cloud.gate() for _ in range(5)]
    cloud.script("ticker", [("stdout", lines(10))] + [step for i, gate in enumerate(gates) for step in (
        ("gate", gate), ("stdout", lines(10 * i + 20, 10 * i + 10)))])
    with daemons.api() as api:
        box = api.call("SandboxService.Create").id
        c = api.call("CommandService.Start", sandbox=box, shell="ticker")
        for n, gate in enumerate(gates):
            wait_end(api, c.command_id, 1, len(lines(10 * n + 10)), d)
            cloud.goaway()
            api.call("SandboxService.IsRunning", sandbox=box)   # goes to a new connection
            gate.release()
        out = attach(api, c.command_id)
    assert out.data[1] == lines(60) and not out.gaps
    assert out.result.exit_code == 0 and out.result.output_complete
    assert cloud.ledger.count("process.Connect") == 0


@pytest.mark.parametrize("how", ["cut", "reset", "end"])
def test_cuts_in_a_row_are_no_end(cloud, daemons, how):
    """A14, B-2: six in a row without a byte; the stream that holds goes on where the program is. How long cuts alone are
    put up with is a unit test, in virtual time."""
    daemons.start()
    gate = cloud.gate()
    cloud.fault("process.Start", shape=Shape(cut_after=1, how=how))
    cloud.fault("process.Connect", shape=Shape(cut_after=1, how=how), times=5)
    cloud.script("quiet", [("gate", gate), ("stdout", b"x"), ("exit", 6)])
    with daemons.api() as api:
        box = api.call("SandboxService.Create").id
        c = api.call("CommandService.Start", sandbox=box, shell="quiet")
        cloud.ledger.wait_requests("process.Connect", 6)
        until(lambda: cloud.ledger.of("process.Connect")[-1].status == 200, what="the last stream")
        gate.release()
        out = attach(api, c.command_id)
    assert out.data[1] == b"x" and set(out.gaps_of(1)) == {(False, "reattached")}
    assert out.result.exit_code == 6 and not out.result.output_complete


def test_an_end_that_nobody_saw(cloud, daemons):
    """Within 30 s the agent still tells it; afterwards it is unknown, never 0."""
    daemons.start()
    for late, outcome in ((1, EXITED), (40, UNKNOWN)):
        gate = cloud.gate()
        cloud.script("quick%d" % late, [("stdout", b"x"), ("gate", gate), ("exit", 7)])
        with daemons.api() as api:
            box = api.call("SandboxService.Create").id
            c = api.call("CommandService.Start", sandbox=box, shell="quick%d" % late)
            wait_end(api, c.command_id, 1, 1)
            daemons.kill()
            gate.release()
            until(lambda: tagged(cloud)[-1].end, what="the end of the program")
            cloud.advance(late)
            daemons.start()
        with daemons.api() as api:
            r = api.call("CommandService.Wait", command={"command_id": c.command_id})
        assert r.outcome == outcome and not r.output_complete
        assert not r.HasField("exit_code") if outcome == UNKNOWN else r.exit_code == 7


def test_the_sandbox_goes(cloud, daemons):
    daemons.start()
    cloud.script("quiet", [("stdout", b"before"), ("gate", cloud.gate())])
    with daemons.api() as api:
        box = api.call("SandboxService.Create").id
        old = api.call("CommandService.Start", sandbox=box, shell="quiet")
        gone = api.call("CommandService.Start", sandbox=box, shell="quiet")
        wait_end(api, old.command_id, 1, 6)
        wait_end(api, gone.command_id, 1, 6)
        cloud.kill_sandbox(box)
        out = attach(api, gone.command_id)
        assert out.result.outcome == LOST and out.data[1] == b"before"
        ended = api.call("CommandService.List", sandbox=box, ended=True).commands
        assert {c.command_id for c in ended} == {old.command_id, gone.command_id}
    daemons.kill()
    daemons.start()
    with daemons.api() as api:     # for as long as history is kept
        out = attach(api, old.command_id)
        assert out.result.outcome == LOST and out.data[1] == b"before"


def test_a_repeat_while_the_sandbox_is_paused(cloud, daemons):
    """Whether it was started is not known until somebody resumes it: a repeat is told so, and does not hang."""
    d = daemons.start("command.started")
    cloud.script("quiet", [("gate", cloud.gate())])
    with daemons.api() as api:
        box = api.call("SandboxService.Create").id
        daemons.dies(lambda: api.call("CommandService.Start", sandbox=box, shell="quiet", request_id="r"))
    cloud._call(cloud.pause_sandbox(cloud.sandbox(box), True))
    d = daemons.start()
    with daemons.api() as api:
        for _ in range(2):
            with pytest.raises(ApiError) as e:
                api.call("CommandService.Start", sandbox=box, shell="quiet", request_id="r")
            assert (e.value.code, e.value.reason) == ("FAILED_PRECONDITION", "SANDBOX_PAUSED")
        api.call("SandboxService.ConnectSandbox", sandbox=box)
        c = api.call("CommandService.Start", sandbox=box, shell="quiet", request_id="r")
        assert c.running and c.pid == cloud.starts[0].pid
    assert cloud.ledger.count("process.Start") == 1, d.tail()


@pytest.mark.parametrize("memory", [True, False])
def test_a_pause_from_outside(cloud, daemons, memory):
    """Nothing of ours wakes it; the clock of the timeout stands still; what was kept is attached to again."""
    d = daemons.start()
    gate = cloud.gate()
    cloud.script("work", [("stdout", b"one "), ("gate", gate), ("stdout", b"two"), ("exit", 3)])
    with daemons.api() as api:
        box = api.call("SandboxService.Create").id
        c = api.call("CommandService.Start", sandbox=box, shell="work", command_timeout=3600)
        wait_end(api, c.command_id, 1, 4, d)
        cloud._call(cloud.pause_sandbox(cloud.sandbox(box), memory))
        cloud.cut_all()
        until(lambda: "SANDBOX_PAUSED" in d.tail() or cloud.ledger.count("get") > 1, what="the question")
        assert not attach(api, c.command_id, follow=False).result
        api.call("SandboxService.ConnectSandbox", sandbox=box)
        if memory:
            wait_attached(api, c.command_id, 2)
            gate.release()
        out = attach(api, c.command_id)
        if memory:
            assert out.data[1] == b"one two" and out.result.exit_code == 3 and not out.result.output_complete
        else:
            assert out.data[1] == b"one " and out.result.outcome == LOST, out.result


def test_a_pause_that_traffic_would_end(cloud, daemons):
    """The cloud paused it at its end, and whatever comes to it wakes it: the lost stream is not asked for again there."""
    d = daemons.start()
    cloud.script("work", [("stdout", b"one"), ("gate", cloud.gate())])
    with daemons.api() as api:
        box = api.call("SandboxService.Create", lifecycle={"on_timeout": "PAUSE", "auto_resume": True},
                       policy={"keep_alive": False}).id
        c = api.call("CommandService.Start", sandbox=box, shell="work", detach=True)
        wait_end(api, c.command_id, 1, 3, d)
        agent = cloud.ledger.count("process.Connect") + cloud.ledger.count("process.List")
        asked = cloud.ledger.count("get")
        cloud._call(cloud.pause_sandbox(cloud.sandbox(box), True))
        cloud.cut_all()
        until(lambda: cloud.ledger.count("get") > asked + 1, 20, "the control plane to be asked, twice")
        assert cloud.sandbox(box).state == "paused"
        assert cloud.ledger.count("process.Connect") + cloud.ledger.count("process.List") == agent
        api.call("SandboxService.ConnectSandbox", sandbox=box)
        wait_attached(api, c.command_id, 2)
        api.call("SandboxService.Kill", sandbox=box)


def test_a_pause_of_ours(on_local):
    """The stream is let go before and taken up after; the program stood still and noticed nothing."""
    on_local.start()
    with on_local.api() as api:
        box = api.call("SandboxService.Create", template="base").id
        c = api.call("CommandService.Start", sandbox=box, command_timeout=600, shell="n=0; while [ ! -e go ]; do "
                     "sleep 0.02; done; echo resumed; exit 6")
        api.call("SandboxService.Pause", sandbox=box)
        with pytest.raises(ApiError) as e:
            api.run(box, "true")
        assert e.value.reason == "SANDBOX_PAUSED"
        assert not attach(api, c.command_id, follow=False).result
        api.call("SandboxService.ConnectSandbox", sandbox=box)
        wait_attached(api, c.command_id, 2)
        api.run(box, "touch go")
        out = attach(api, c.command_id)
        assert out.data[1] == b"resumed\n" and out.result.exit_code == 6 and not out.result.output_complete
        api.call("SandboxService.Kill", sandbox=box)


# -- restarts

def test_what_ended_is_kept(on_local):
    on_local.start()
    with on_local.api() as api:
        box = api.call("SandboxService.Create", template="base").id
        c = api.call("CommandService.Start", sandbox=box, argv={"args": ["/bin/sh", "-c", "echo a; echo b >&2; exit 9"]},
                     cwd="/tmp", envs={"SECRET": "hunter2hunter2"})
        before = attach(api, c.command_id)
    on_local.kill()
    assert on_local.spools() == [c.command_id]
    open(os.path.join(on_local.folder, "state", "spool", "cstray"), "w", encoding="ascii").close()
    on_local.start()
    with on_local.api() as api:
        after = attach(api, c.command_id)
        assert (after.data, after.gaps, str(after.result)) == (before.data, before.gaps, str(before.result))
        assert after.result.exit_code == 9 and after.result.output_complete
        seen, = [x for x in api.call("CommandService.List", sandbox=box, ended=True).commands]
        assert (list(seen.args), seen.cwd) == (["/bin/sh", "-c", "echo a; echo b >&2; exit 9"], "/tmp")
        api.call("SandboxService.Kill", sandbox=box)
    assert on_local.spools() == [c.command_id], "one without a row is removed"
    with open(os.path.join(on_local.folder, "state", "agentboxd.db"), "rb") as f:
        assert b"hunter2hunter2" not in f.read()


def test_a_flood_is_neither_doubled_nor_torn(on_local):
    """Numbered lines at full speed, the daemon killed again and again: every hole lies under a Gap."""
    on_local.start()
    with on_local.api() as api:
        box = api.call("SandboxService.Create", template="base").id
        c = api.call("CommandService.Start", sandbox=box, detach=True,
                     shell="i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i; done")
    for n in range(3):
        with on_local.api() as api:
            have = [x for x in api.call("CommandService.List", sandbox=box).commands
                    if x.command_id == c.command_id][0].stdout.end
            wait_end(api, c.command_id, 1, have + 20000, on_local.d)
        on_local.kill()
        on_local.start()
    with on_local.api() as api:
        wait_end(api, c.command_id, 1, 100000, on_local.d)
        api.run(box, "touch stop")
        events = list(api.stream("CommandService.Attach", command={"command_id": c.command_id}))
        api.call("SandboxService.Kill", sandbox=box)
    assert len(Output(events).gaps_of(1)) == 3
    parts, part = [], b""
    for e in events:
        if e.WhichOneof("event") == "output" and e.output.stream == 1:
            part += e.output.data
        elif e.WhichOneof("event") == "gap" and e.gap.stream == 1:
            parts, part = parts + [part], b""
    last = 0
    for i, p in enumerate(parts + [part]):
        numbers = p.split(b"\n")
        # at a gap the first and the last line may be cut
        whole = [int(x) for x in numbers[1 if i else 0:-1]]
        assert whole and whole == list(range(whole[0], whole[0] + len(whole))) and whole[0] > last
        last = whole[-1]


def test_nobody_comes_back(on_local):
    conf = {"daemon": {"restart_grace": "1s", "kill_grace": "0s"}}
    on_local.start(conf=conf)
    with on_local.api() as api:
        box = api.call("SandboxService.Create", template="base").id
        runs = [api.stream("CommandService.Run", sandbox=box, shell="echo $$; sleep 5432", detach=i == 2)
                for i in range(3)]
        ids = [next(r).started.command_id for r in runs]
        for i in ids:
            wait_end(api, i, 1, 2)
        on_local.kill()
    on_local.start(conf=conf)
    with on_local.api() as api:
        attached = api.stream("CommandService.Attach", command={"command_id": ids[0]})
        next(attached)
        r = attach(api, ids[0], follow=False)
        assert r.result is None
        until(lambda: [c for c in api.call("CommandService.List", sandbox=box, ended=True).commands
                       if c.command_id == ids[1] and c.result.killed], what="the end of the one nobody wanted")
        running = {c.command_id for c in api.call("CommandService.List", sandbox=box).commands if c.running}
        assert ids[0] in running and ids[2] in running and ids[1] not in running
        for i in (ids[0], ids[2]):
            assert not api.call("CommandService.Kill", command={"command_id": i}).survivors
        _, out, _ = api.run(box, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        assert b"sleep 5432" not in out
        api.call("SandboxService.Kill", sandbox=box)


def test_timeouts_go_on_over_a_restart(on_local):
    on_local.start()
    with on_local.api() as api:
        box = api.call("SandboxService.Create", template="base").id
        c = api.call("CommandService.Start", sandbox=box, shell="trap '' TERM; echo a; sleep 1000", command_timeout=2,
                     kill_grace=0.2)
        wait_end(api, c.command_id, 1, 2)
    on_local.kill()
    on_local.start()
    with on_local.api() as api:
        out = attach(api, c.command_id)
        assert out.data[1] == b"a\n" and out.result.timed_out and not out.result.survivors
        api.call("SandboxService.Kill", sandbox=box)


def test_a_terminal_over_a_restart(on_local):
    on_local.start()
    with on_local.api() as api:
        box = api.call("SandboxService.Create", template="base").id
        c = api.call("CommandService.Start", sandbox=box, argv={"args": ["/bin/sh", "-i"]}, envs={"PS1": ""},
                     pty={"cols": 80, "rows": 24})
        ref = {"command_id": c.command_id}
        list(api.both("CommandService.SendInput", iter([{"command": ref, "data": b"x=5; echo go''ing\n"}])))
        wait_end(api, c.command_id, 3, 26)
    on_local.kill()
    on_local.start()
    with on_local.api() as api:
        api.call("CommandService.Resize", command=ref, size={"cols": 99, "rows": 44})
        *_, ack = api.both("CommandService.SendInput", iter([
            {"command": ref, "offset": 18, "data": b"stty size; echo x$x; exit\n"}]))
        out = attach(api, c.command_id)
        assert b"44 99\r\n" in out.data[3] and b"x5\r\n" in out.data[3] and b"going\r\n" in out.data[3]
        assert out.gaps == [(3, False, "reattached")] and out.result.exit_code == 0
        api.call("SandboxService.Kill", sandbox=box)


def test_a_signal_waits_for_the_sandbox_after_a_restart(on_local):
    """Signal, as Kill and Resize, is no error because the daemon has just begun."""
    on_local.start()
    with on_local.api() as api:
        box = api.call("SandboxService.Create", template="base").id
        c = api.call("CommandService.Start", sandbox=box, shell="exec sleep 60")
    on_local.kill()
    on_local.start()
    with on_local.api() as api:
        assert api.call("CommandService.Signal", command={"command_id": c.command_id}, signal=15).found
        assert api.call("CommandService.Wait", command={"command_id": c.command_id}, timeout=20).signal == "TERM"
        assert not api.call("CommandService.Signal", command={"command_id": c.command_id}, signal=15).found
        api.call("SandboxService.Kill", sandbox=box)


# -- input over restarts

def test_input_in_doubt_after_a_crash(cloud, daemons):
    daemons.start()
    gate = cloud.gate()
    with daemons.api() as api:
        box = api.call("SandboxService.Create").id
        c = api.call("CommandService.Start", sandbox=box, argv={"args": ["/bin/cat"]}, stdin=True)
        ref = {"command_id": c.command_id}
        *_, ack = api.both("CommandService.SendInput", iter([{"command": ref, "data": b"hello "}]))
        assert ack.accepted == 6
        wait_end(api, c.command_id, 1, 6)
        cloud.fault("process.SendInput", when="after", hold_answer=gate)
        done = threading.Event()

        def send():
            with contextlib.suppress(ApiError):
                list(api.both("CommandService.SendInput", iter([{"command": ref, "offset": 6, "data": b"world"}])))
            done.set()
        threading.Thread(target=send).start()
        gate.wait()
        daemons.kill()
        assert done.wait(10)
    gate.release()
    daemons.start()
    with daemons.api() as api:
        wait_attached(api, c.command_id, 2)
        with pytest.raises(ApiError) as e:
            list(api.both("CommandService.SendInput", iter([{"command": ref, "offset": 6, "data": b"world"}])))
        assert e.value.reason == "OUTCOME_UNKNOWN"
        assert (e.value.metadata["input_from"], e.value.metadata["input_to"]) == ("6", "11")
        *_, ack = api.both("CommandService.SendInput", iter([{"command": ref, "offset": 11, "data": b"!", "close": True}]))
        assert ack.accepted == 12 and ack.closed
        out = attach(api, c.command_id)
        assert out.data[1] in (b"hello world!", b"hello !") and out.result.exit_code == 0


# -- request ids

@pytest.mark.parametrize("method", ["Start", "Run"])
def test_request_ids(cloud, daemons, method):
    daemons.start()

    def go(api, **fields):
        fields.setdefault("argv", {"args": ["/bin/sh", "-c", "echo x >>n; cat n; exit 4"]})
        if method == "Start":
            return api.call("CommandService.Start", sandbox=api.box, request_id="r1", cwd=api.cwd, **fields).command_id
        out = list(api.stream("CommandService.Run", sandbox=api.box, request_id="r1", cwd=api.cwd, **fields))
        assert Output(out).data[1] == b"x\n" and Output(out).result.exit_code == 4
        return out[0].started.command_id

    def fresh():
        api = daemons.api()
        api.box, api.cwd = box, "/tmp"
        return api
    with daemons.api() as api:
        box = api.call("SandboxService.Create").id
    with fresh() as api:
        first = go(api)
        assert {go(api) for _ in range(5)} == {first}
        with pytest.raises(ApiError) as e:
            go(api, argv={"args": ["/bin/true"]})
        assert (e.value.code, e.value.reason) == ("ALREADY_EXISTS", "REQUEST_ID_REUSED")
        results = []
        threads = [threading.Thread(target=lambda: results.append(
            api.call("CommandService.Start", sandbox=box, request_id="many", shell="true").command_id)) for _ in range(20)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len(results) == 20 and len(set(results)) == 1
    daemons.kill()
    daemons.start()
    with fresh() as api:
        assert go(api) == first
    assert len(tagged(cloud)) == 2
    for bad in ("x" * 129, "a\nb"):
        with fresh() as api, pytest.raises(ApiError) as e:
            api.call("CommandService.Start", sandbox=box, request_id=bad, shell="true")
        assert e.value.reason == "FIELD_INVALID"


def test_one_asks_for_all(cloud, daemons):
    """A burst of starts in a sandbox asks once whether it has setsid. The first caller leaves: another one's start asks.
    They are programs that stay: the end of one answers its start as well."""
    daemons.start()
    with daemons.api() as api:
        box = api.call("SandboxService.Create").id
        asked = cloud.gate()
        cloud.fault("filesystem.Stat", hold=asked)
        first = api.stream("CommandService.Run", sandbox=box, shell="sleep 60")
        until(lambda: cloud.ledger.of("filesystem.Stat"), what="the first one's question")
        results = []
        threads = [threading.Thread(target=lambda: results.append(
            api.call("CommandService.Start", sandbox=box, shell="sleep 60").command_id)) for _ in range(20)]
        for t in threads:
            t.start()
        until(lambda: len(tagged(cloud)) == 21, what="all starts")
        assert len(cloud.ledger.of("filesystem.Stat")) == 1 and not results
        first.cancel()
        asked.release()
        for t in threads:
            t.join()
        assert len(set(results)) == 20 and len(cloud.ledger.of("filesystem.Stat")) <= 2
        api.call("CommandService.Start", sandbox=box, shell="true")
        assert len(cloud.ledger.of("filesystem.Stat")) <= 2


def test_refusals_are_repeated_failures_are_not(cloud, daemons):
    daemons.start()
    with daemons.api() as api:
        box = api.call("SandboxService.Create").id
        for _ in range(3):
            with pytest.raises(ApiError) as e:
                api.call("CommandService.Start", sandbox=box, request_id="r", shell="true", cwd="/no/such")
        assert cloud.ledger.count("process.Start") == 1, e.value
        with pytest.raises(ApiError):
            api.call("CommandService.Start", sandbox="nosuch", request_id="q", shell="true")
        api.call("SandboxService.Create", name="nosuch")
        assert api.call("CommandService.Start", sandbox="nosuch", request_id="q", shell="true").pid


@pytest.mark.parametrize("strike", [dict(when="after", cut=True), dict(when="mid", cut=True),
                                    dict(when="after", status=503), dict(when="before", status=503),
                                    dict(when="before", cut=True)], ids=str)
def test_at_most_once(cloud, daemons, strike):
    """F2: a program that stays is found by its tag; one that is not there is unknown; no line is ever doubled."""
    daemons.start()
    cloud.fault("process.Start", **strike)
    happens = strike["when"] != "before"
    with daemons.api() as api:
        box = api.call("SandboxService.Create").id
        file = os.path.join(daemons.folder, "n")
        argv = {"args": ["/bin/sh", "-c", "echo x >>%s; exec cat" % file]}
        call = dict(sandbox=box, request_id="r", argv=argv, stdin=True)
        try:
            c = api.call("CommandService.Start", **call)
            assert c.pid and len(tagged(cloud)) == 1 and happens
            again = api.call("CommandService.Start", **call)
            assert again.command_id == c.command_id
            api.call("CommandService.CloseInput", command={"command_id": c.command_id})
            out = attach(api, c.command_id)
            assert out.result.exit_code == 0 and not out.result.output_complete
        except ApiError as e:
            assert e.reason == "OUTCOME_UNKNOWN" and not happens, e
            with pytest.raises(ApiError) as e:
                api.call("CommandService.Start", **call)
            assert (e.value.code, e.value.reason) == ("UNAVAILABLE", "OUTCOME_UNKNOWN"), e.value
    assert (len(tagged(cloud)) if happens else cloud.ledger.count("process.Start")) == 1
    if happens:
        with open(file, encoding="ascii") as f:
            assert f.read() == "x\n"


@pytest.mark.parametrize("point,started", [
    ("command.before_intent", {0}), ("command.intent_committed", {0}), ("command.sent", {0, 1}),
    ("command.started", {1})])
@pytest.mark.parametrize("method", ["Start", "Run"])
def test_killed_between_the_steps(cloud, daemons, method, point, started):
    built(FP)
    cloud.script("stay", [("stdout", b"x"), ("gate", cloud.gate())])
    daemons.start(point)
    with daemons.api() as api:
        box = api.call("SandboxService.Create").id

        def go(api, timeout=20):
            if method == "Start":
                return api.call("CommandService.Start", sandbox=box, request_id="r", shell="stay",
                                timeout=timeout).command_id
            return next(api.stream("CommandService.Run", sandbox=box, request_id="r", shell="stay",
                                   timeout=timeout)).started.command_id
        daemons.dies(lambda: go(api))
    cloud.ledger.wait(lambda: not cloud.ledger.open_streams, what="the end of the dead daemon's requests")
    n = len(tagged(cloud))
    assert n in started
    daemons.start()
    with daemons.api() as api:
        if n:
            first = go(api)
            assert go(api) == first
            c, = api.call("CommandService.List", sandbox=box, ended=True).commands
            assert c.command_id == first and c.pid == tagged(cloud)[0].pid
        elif point == "command.before_intent":
            go(api)
        else:   # it may have been sent
            with pytest.raises(ApiError) as e:
                go(api)
            assert (e.value.code, e.value.reason) == ("UNAVAILABLE", "OUTCOME_UNKNOWN")
    assert len(tagged(cloud)) <= 1


def test_a_daemon_that_dies_at_the_end(cloud, daemons):
    """The end was seen and not written down: the agent tells it again."""
    built(FP)
    gate = cloud.gate()
    cloud.script("short", [("stdout", b"x"), ("gate", gate), ("exit", 5)])
    d = daemons.start("command.end_seen")
    with daemons.api() as api:
        box = api.call("SandboxService.Create").id
        c = api.call("CommandService.Start", sandbox=box, shell="short")
        gate.release()
        assert d.proc.wait(10) == -signal.SIGKILL
    daemons.start()
    with daemons.api() as api:
        assert api.call("CommandService.Wait", command={"command_id": c.command_id}).exit_code == 5


def test_out_of_reach_is_not_the_end(cloud, daemons):
    """A-31, A22: No budget is spent while nothing can be reached."""
    d = daemons.start()
    gate = cloud.gate()
    cloud.script("long", [("stdout", b"a"), ("gate", gate), ("stdout", b"b")])
    with daemons.api() as api:
        box = api.call("SandboxService.Create").id
        c = api.call("CommandService.Start", sandbox=box, shell="long")
        wait_end(api, c.command_id, 1, 1, d)
        cloud.refuse(True)
        cloud.cut_all()
        until(lambda: d.tail().count("command_stream_lost") >= 2, what="a try in vain", program=d)
        assert not attach(api, c.command_id, follow=False).result
        cloud.refuse(False)
        wait_attached(api, c.command_id, 2)
        gate.release()
        out = attach(api, c.command_id)
        assert out.data[1] == b"ab" and out.result.exit_code == 0


# -- readers and limits

def test_readers_do_not_wait_for_each_other(on_local):
    """One never reads: the others get what they can take; bytes and gaps add up for each."""
    on_local.start(conf={"spool": {"per_command": "1M"}})
    size = 12 << 20
    with on_local.api() as api:
        box = api.call("SandboxService.Create", template="base").id
        c = api.call("CommandService.Start", sandbox=box, argv={"args": [
            "/bin/sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; yes | head -c %d" % size]})
        ref = {"command_id": c.command_id}
        stalled = api.stream("CommandService.Attach", command=ref)
        next(stalled)
        readers = [api.stream("CommandService.Attach", command=ref) for _ in range(2)]
        for r in readers:
            next(r)
        totals = {}

        def read(i, events):
            events = list(events)
            totals[i] = sum(len(e.output.data) + e.gap.size for e in events), events[-1].exited
        threads = [threading.Thread(target=read, args=a) for a in enumerate(readers)]
        for t in threads:
            t.start()
        api.run(box, "touch go")
        for t in threads:
            t.join()
        assert api.call("CommandService.Wait", command=ref).exit_code == 0
        read(2, stalled)
        assert {t[0] for t in totals.values()} == {size}
        assert {t[1].stdout_bytes for t in totals.values()} == {size}
        spool = os.path.join(on_local.folder, "state", "spool", c.command_id)
        assert os.stat(spool).st_blocks * 512 < 3 << 20
        api.call("SandboxService.Kill", sandbox=box)


def test_a_blocked_run_loses_nothing(on_local):
    on_local.start()
    # With its probes on, gRPC opens the window of a stream that nobody reads further and further, to all of the output.
    with Api(on_local.d.socket, options=[("grpc.http2.bdp_probe", 0)]) as api:
        box = api.call("SandboxService.Create", template="base").id
        s = api.stream("CommandService.Run", sandbox=box, shell="seq 300000", spool_limit=100000)
        first = next(s)
        other = Output(api.stream("CommandService.Attach", command={"command_id": first.started.command_id},
                                  follow=False))
        assert not other.result
        out = Output(s)
        assert out.data[1] == b"".join(b"%d\n" % i for i in range(1, 300001)) and not out.gaps
        assert out.result.output_complete
        api.call("SandboxService.Kill", sandbox=box)
