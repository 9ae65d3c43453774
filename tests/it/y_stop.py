# SPDX-License-Identifier: MIT
"""A stop of agentboxd: whom it lets go, what it tells them, whom it waits for (JUDGED D-7)."""
import contextlib
import threading
import time

import pytest

import harness
from api import Api, ApiError
from harness import until
from y_manager import Manager, listening


def stop(d):
    """How long it takes, in seconds."""
    begin = time.monotonic()
    d.stop()
    return time.monotonic() - begin


class Call(threading.Thread):
    """One call of a thread of its own, and how it ended: its answer or its error."""

    def __init__(self, call):
        super().__init__()
        self.call, self.answer, self.error = call, None, None
        self.start()

    def run(self):
        try:
            self.answer = self.call()
        except ApiError as e:
            self.error = e

    def failed(self):
        self.join(20)
        assert self.error is not None, self.answer
        return self.error


def rest(stream):
    def drain():
        for _ in stream:
            pass
    return drain


def test_open_streams_do_not_hold_it_up(cloud, daemon):
    """D-7: a stop took 20 s while a file Watch was open. Watches, holds, waits and attached commands end at once with DRAINING and a word
    when to come again."""
    cloud.script("quiet", [("stdout", b"x"), ("gate", cloud.gate())])
    with Api(daemon.socket) as api:
        box = api.call("SandboxService.Create", request_id="a").id
        command = api.call("CommandService.Start", sandbox=box, shell="quiet", request_id="b").command_id
        streams = {"files": api.stream("FileService.Watch", sandbox=box, path="/tmp"),
                   "sandboxes": api.stream("SandboxService.Watch", initial=True),
                   "lease": api.stream("LeaseService.Hold", sandbox=box),
                   "attached": api.stream("CommandService.Attach", command={"command_id": command}),
                   "run": api.stream("CommandService.Run", sandbox=box, shell="quiet")}
        for s in streams.values():
            next(s)
        calls = {n: Call(rest(s)) for n, s in streams.items()}
        calls["wait"] = Call(lambda: api.call("CommandService.Wait", command={"command_id": command}, timeout=60))
        until(lambda: api.call("DaemonService.Status").counts.streams >= 6, 10, "all of them")
        assert stop(daemon) < 2
        for name, call in calls.items():
            e = call.failed()
            assert (e.code, e.reason) == ("UNAVAILABLE", "DRAINING"), (name, e)
            assert [v for k, v in e.trailers if k == "grpc-retry-pushback-ms"], (name, e.trailers)


def test_a_unary_call_has_a_moment(cloud, daemon):
    """An answer that comes at once is still given; one that does not is DRAINING where a repeat does no harm, and OUTCOME_UNKNOWN where it
    would."""
    with Api(daemon.socket) as api:
        box, other = [api.call("SandboxService.Create", request_id=r).id for r in "ab"]
        gates = [cloud.fault(route, hold=True).hold for route in ("pause", "filesystem.Remove")]
        pause = Call(lambda: api.call("SandboxService.Pause", sandbox=box, timeout=60))
        remove = Call(lambda: api.call("FileService.Remove", sandbox=other, path="/tmp/x", timeout=60))
        for g in gates:
            g.wait()
        assert stop(daemon) < 2
        e = pause.failed()
        assert (e.code, e.reason) == ("UNAVAILABLE", "DRAINING"), e
        e = remove.failed()
        assert (e.code, e.reason) == ("UNKNOWN", "OUTCOME_UNKNOWN"), e
        for g in gates:
            g.release()


def test_calls_without_a_request_id_are_waited_for(cloud):
    """Nothing could find out what became of them; the manager is told for whom it waits, and given time."""
    m = Manager(harness.temp_dir("abm-"))
    with contextlib.closing(m), contextlib.closing(m.start(cloud)) as d:
        m.wait("READY=1")
        with Api(d.socket) as api:
            gate = cloud.fault("create", hold=True).hold
            create = Call(lambda: api.call("SandboxService.Create", timeout=60))
            gate.wait()
            d.proc.terminate()
            m.wait("STATUS=stopping: waits for 0 uploads, 1 downloads and calls without a request id")
            m.wait(r"EXTEND_TIMEOUT_USEC=[34]\d{7}")
            with pytest.raises(Exception):
                d.proc.wait(0.5)
            gate.release()
            create.join(20)
            assert create.answer.id
        d.stop()


def test_who_comes_meanwhile_waits_for_the_successor(cloud):
    """On a passed socket callers of the restart queue up: none is refused, and none fails."""
    folder = harness.temp_dir("abm-")
    m = Manager(folder, api=listening(folder + "/api"))
    with contextlib.closing(m):
        d = m.start(cloud)
        m.wait("READY=1")
        with Api(folder + "/api") as api:
            gate = cloud.fault("create", hold=True).hold
            held = Call(lambda: api.call("SandboxService.Create", timeout=60))
            gate.wait()
            d.proc.terminate()
            m.wait("STATUS=stopping:.*")
            with Api(folder + "/api", like=api) as other:
                late = Call(lambda: other.call("SandboxService.Create", timeout=60, request_id="late"))
                gate.release()
                held.join(20)
                d.stop()
                successor = m.start(cloud, folder=d.home)
                late.join(30)
                assert held.answer.id and late.answer and late.answer.id
        successor.stop()
        successor.close()
        d.close()
