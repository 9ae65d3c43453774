# SPDX-License-Identifier: MIT
"""kill -9 of the daemon between any two steps of Create and of Kill: after a restart one sandbox, known, or none.

agentboxd-fp is the daemon with the crash points of daemon/common/obs/failpoint.h compiled in; the scripted cloud's ledger is
the truth. tests/unit/sandbox/test_crash.c does the same without a network, and crashes again during the recovery.
"""
import os
import shutil
import signal

import pytest

import harness
from api import Api, ApiError
from conftest import built
from harness import until

FP = os.path.join(harness.BUILD, "daemon", "agentboxd-fp")
RUNNING, GONE = 2, 8


@pytest.fixture
def crashing(cloud, monkeypatch):
    """start(point) gives a daemon that dies there; start() the one that comes after it."""
    built(FP)
    folder = harness.temp_dir("abd-")
    running = []

    def start(point=None, wait=True):
        monkeypatch.setattr(harness, "AGENTBOXD", FP if point else harness.AGENTBOXD)
        env = {"AGENTBOXD_FAILPOINT": point + "=kill"} if point else {}
        d = harness.Daemon(cloud, folder=folder, env=env, wait=wait)
        running.append(d)
        monkeypatch.undo()
        return d

    yield start
    for d in running:
        d.close()
    shutil.rmtree(folder)


def dies(d, call):
    with pytest.raises(ApiError) as e:
        call()
    assert e.value.code == "UNAVAILABLE"
    assert d.proc.wait(10) == -signal.SIGKILL


def create(api, timeout=20, request_id="r"):
    return api.call("SandboxService.Create", timeout=timeout, request_id=request_id, name="box", metadata={"k": "v"})


def listed(api, **fields):
    return api.call("SandboxService.List", **fields).sandboxes


@pytest.mark.parametrize("point,made", [
    ("create.before_intent", {0}), ("create.intent_committed", {0}), ("create.before_send", {0}),
    ("create.after_send", {0, 1}), ("create.answered", {1}), ("create.before_active", {1}),
    ("create.active_committed", {1}), ("create.before_reply", {1}),
])
def test_create(cloud, crashing, point, made):
    d = crashing(point)
    with Api(d.socket) as api:
        dies(d, lambda: create(api))
    cloud.ledger.wait(lambda: not cloud.ledger.open_streams, what="the end of the dead daemon's requests")
    boxes = list(cloud.ledger.sandboxes)
    assert len(boxes) in made

    d = crashing()
    with Api(d.socket) as api:
        # It serves at once; what was open is settled beside it.
        until(lambda: len(listed(api)) == len(boxes), what="the sandbox in the list", program=d)
        if boxes:
            again = create(api)
            assert again.id == boxes[0].id and again.name == "box" and dict(again.metadata) == {"k": "v"}
            assert again.state == RUNNING and again.generation == 1
            assert api.call("SandboxService.Get", sandbox="box").id == again.id
        elif point != "create.after_send":
            create(api)     # nothing has left, which the daemon knows: it is a new one
        else:
            try:            # its first byte has left or not
                create(api, timeout=2)
            except ApiError as e:       # it may have: not again before that is settled
                assert (e.code, e.reason) == ("UNAVAILABLE", "OUTCOME_UNKNOWN")
        assert len(listed(api)) == len(cloud.ledger.alive())
    assert len(cloud.ledger.sandboxes) <= 1
    assert cloud.ledger.count("delete") == 0
    assert cloud.ledger.count("create") == len(cloud.ledger.sandboxes)


@pytest.mark.parametrize("point", ["resolve.list_sent", "resolve.found", "create.before_active",
                                   "create.active_committed"])
def test_settlement(cloud, crashing, point):
    """The answer is lost, and the daemon dies again while it looks for what became of the request."""
    d = crashing("create.answered")
    with Api(d.socket) as api:
        dies(d, lambda: create(api))
    box, = cloud.ledger.sandboxes
    d = crashing(point, wait=False)
    assert d.proc.wait(20) == -signal.SIGKILL
    d = crashing()
    with Api(d.socket) as api:
        assert create(api).id == box.id
        assert [b.id for b in listed(api)] == [box.id]
    assert len(cloud.ledger.sandboxes) == 1 and cloud.ledger.count("delete") == 0


@pytest.mark.parametrize("point", ["kill.intent_committed", "kill.sent", "kill.answered", "kill.done"])
def test_kill(cloud, crashing, point):
    d = crashing(point)
    with Api(d.socket) as api:
        box = create(api).id
        dies(d, lambda: api.call("SandboxService.Kill", sandbox="box"))
    d = crashing()
    with Api(d.socket) as api:
        until(lambda: not cloud.ledger.alive(), what="the kill that was decided", program=d)
        gone = until(lambda: [b for b in [api.call("SandboxService.Get", sandbox=box)] if b.state == GONE],
                     what="the record of its end", program=d)[0]
        assert gone.id == box
        assert create(api).id == box and create(api).state == GONE   # the request id never makes another one
        fresh = create(api, request_id="another")
        assert fresh.id != box and fresh.generation == 2
