# SPDX-License-Identifier: MIT
"""JUDGED C-1: whatever learns that a sandbox is gone ends all that waits on it, with the sandbox's reason.

The scripted cloud's sandboxes end mute here: their machine is gone, and the streams to it stay open without a byte.
"""
import queue
import threading
import time

import pytest

from api import ApiError
from c_durable import LOST, Output, daemons  # noqa: F401
from harness import until

WITHIN_S = 10


class Later:
    """A call in a thread; what came of it."""

    def __init__(self, fn):
        self.fn, self.said = fn, queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        try:
            self.said.put((self.fn(), None))
        except ApiError as e:
            self.said.put((None, e))

    def result(self):
        try:
            return self.said.get(timeout=WITHIN_S)
        except queue.Empty:
            pytest.fail("it still waits after %d s" % WITHIN_S)


@pytest.fixture
def api(cloud, daemons):
    daemons.start()
    with daemons.api() as a:
        yield a


@pytest.fixture
def box(cloud, api):
    cloud.ends_mute = True
    return api.call("SandboxService.Create").id


def kill(cloud, api, box):
    assert api.call("SandboxService.Kill", sandbox=box).found
    return "SANDBOX_KILLED"


def lose(cloud, api, box):
    """The cloud loses it, and somebody's question finds out."""
    cloud.kill_sandbox(box)
    assert api.call("SandboxService.Get", sandbox=box, max_staleness=0).state == 8
    return "SANDBOX_GONE"


ENDS = pytest.mark.parametrize("end", [kill, lose])


def start(cloud, api, box, **fields):
    cloud.script("quiet", [("stdout", b"before"), ("gate", cloud.gate())])
    c = api.call("CommandService.Start", sandbox=box, shell="quiet", stdin=True, **fields)
    until(lambda: api.call("CommandService.List", sandbox=box).commands[0].stdout.end == 6, what="its output")
    return c.command_id


@ENDS
def test_a_command(cloud, api, box, end):
    cloud.script("quiet", [("stdout", b"before"), ("gate", cloud.gate())])
    run = api.stream("CommandService.Run", sandbox=box, shell="quiet")
    first = next(run)
    out = Later(lambda: Output(run))
    wait = Later(lambda: api.call("CommandService.Wait", command={"command_id": first.started.command_id}))
    reason = end(cloud, api, box)
    (said, error), (result, wait_error) = out.result(), wait.result()
    assert not error and not wait_error
    assert said.result.outcome == result.outcome == LOST and said.data[1] == b"before"
    assert result.DESCRIPTOR.fields_by_name["reason"].enum_type.values_by_number[result.reason].name == reason
    assert not result.HasField("exit_code") and not result.output_complete


@ENDS
def test_a_kill_of_a_command(cloud, api, box, end):
    """One that is under way, and one that comes after: the command has ended, which is what was asked for."""
    c = start(cloud, api, box, kill_grace=1)
    cloud.sandbox(box).envd.freeze(True)
    killed = Later(lambda: api.call("CommandService.Kill", command={"command_id": c}))
    time.sleep(0.2)     # for the kill to be on its way; whichever comes first, the answer is the same
    end(cloud, api, box)
    answer, error = killed.result()
    assert not error and answer is not None
    again, error = Later(lambda: api.call("CommandService.Kill", command={"command_id": c})).result()
    assert not error and again is not None


def upload(api, box, until_gone):
    def parts():
        yield {"header": {"sandbox": box, "path": "/tmp/up"}}
        for _ in range(8):
            yield {"data": b"x" * 65536}
        until_gone.wait(WITHIN_S + 5)
    return lambda: api.send("FileService.Write", parts())


@ENDS
def test_an_upload(cloud, api, box, end):
    """C-1b: it ends with the sandbox's reason, whoever learnt of its end."""
    over = threading.Event()
    cloud.withhold_credit = True
    up = Later(upload(api, box, over))
    until(lambda: cloud.ledger.count("envd.files"), what="the upload to begin")
    reason = end(cloud, api, box)
    _, error = up.result()
    over.set()
    assert error and (error.code, error.reason) == ("NOT_FOUND", reason)


@ENDS
def test_a_watch_of_files(cloud, api, box, end):
    watch = api.stream("FileService.Watch", sandbox=box, path="/")
    assert next(watch).WhichOneof("event") == "ready"
    more = Later(lambda: list(watch))
    reason = end(cloud, api, box)
    _, error = more.result()
    assert error and (error.code, error.reason) == ("NOT_FOUND", reason)


def test_another_sandboxs_command_goes_on(cloud, api, box):
    other = api.call("SandboxService.Create").id
    gate = cloud.gate()
    cloud.script("other", [("stdout", b"one"), ("gate", gate), ("exit", 5)])
    c = api.call("CommandService.Start", sandbox=other, shell="other")
    start(cloud, api, box)
    kill(cloud, api, box)
    gate.release()
    assert api.call("CommandService.Wait", command={"command_id": c.command_id}).exit_code == 5


def test_it_is_told_after_a_restart(cloud, daemons, api, box):
    """The daemon dies right after the end was committed: the command is lost, and not asked for again for ever."""
    c = start(cloud, api, box)
    kill(cloud, api, box)
    daemons.kill()
    daemons.start()
    with daemons.api() as after:
        result, error = Later(lambda: after.call("CommandService.Wait", command={"command_id": c})).result()
        assert not error and result.outcome == LOST
