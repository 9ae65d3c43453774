# SPDX-License-Identifier: MIT
"""on_gone=recreate: the sandbox behind a name vanishes from the cloud and is made again, once, or not at all.

The scripted cloud's ledger says how often it was made; `kill -9` comes at every crash point of the way.
"""
import json
import os
import shutil
import signal
import threading

import pytest

import harness
from api import Api, ApiError, plain
from conftest import built
from harness import until

FP = os.path.join(harness.BUILD, "daemon", "agentboxd-fp")
RUNNING, GONE = 2, 8
AGAIN = {"on_gone": "RECREATE"}


def create(a, **kw):
    kw.setdefault("policy", AGAIN)
    return a.call("SandboxService.Create", name="box", **kw)


def ask(a, box="box"):
    return a.call("SandboxService.Get", sandbox=box, max_staleness=0)


def events(api, stream, last, key=None, timeout=20):
    """(type, evidence) up to the first event of type `last`, with this key in its evidence."""
    got = []
    timer = threading.Timer(timeout, stream.cancel)
    timer.start()
    try:
        for e in stream:
            name = e.DESCRIPTOR.fields_by_name["type"].enum_type.values_by_number[e.type].name
            got.append((name, plain(e.evidence)))
            if name == last and (key is None or key in got[-1][1]):
                return got
    finally:
        timer.cancel()
    raise AssertionError("the stream ended after %s" % got)


def test_it_is_made_again(cloud, daemon, api):
    first = create(api, envs={"SECRET": "hunter2"}, metadata={"k": "v"}, sandbox_timeout=77, secure=False)
    watch = api.stream("SandboxService.Watch", initial=True)
    events(api, watch, "RESYNC_DONE")
    cloud.kill_sandbox(first.id)
    assert ask(api, first.id).state == GONE
    got = events(api, watch, "CREATED")
    gone = [e for t, e in got if t == "GONE"]
    assert [e["recreate"] for e in gone] == ["begun"] and got[-1][1]["by"] == "on_gone"
    assert got[-1][1]["replaces"] == first.id
    watch.cancel()
    second = ask(api)
    assert second.id != first.id and second.generation == 2 and plain(second.metadata) == {"k": "v"}
    sent = [json.loads(r.body) for r in cloud.ledger.of("create")]
    for body in sent:
        body["metadata"] = {k: v for k, v in body["metadata"].items() if not k.startswith("agentbox.")}
    assert len(sent) == 2 and sent[0] == sent[1]
    with pytest.raises(ApiError) as e:
        api.run(first.id, "true")
    assert e.value.reason == "SANDBOX_REPLACED" and e.value.metadata["replaced_by"] == second.id
    assert api.run("box", "echo it works")[1] == b"it works\n"
    assert json.loads(daemon.ctl("policy", "box", "--json").stdout)["policy"]["on_gone"] == "recreate"


def test_it_is_not(cloud, api):
    """Its owner ended it, or its time was over; what is asked for too late, or of the wrong one, is refused."""
    first = create(api)
    api.call("SandboxService.Kill", sandbox="box")
    second = create(api, sandbox_timeout=300)
    cloud.advance(400)
    until(lambda: not cloud.ledger.alive(), what="the end of its time")
    assert ask(api, second.id).state == GONE
    third = create(api)
    cloud.kill_sandbox(third.id)
    api.call("SandboxService.Kill", sandbox=third.id)   # the cloud has it no more: it was wanted gone all the same
    assert ask(api, third.id).state == GONE
    assert [s.id for s in cloud.ledger.sandboxes] == [first.id, second.id, third.id]
    for kw in ({"policy": AGAIN}, {"name": "other", "policy": {"on_gone": 7}}):
        with pytest.raises(ApiError) as e:
            api.call("SandboxService.Create", **kw)
        assert e.value.reason == "FIELD_INVALID", kw
    plain_one = api.call("SandboxService.Create", name="plain").id
    with pytest.raises(ApiError) as e:
        api.call("SandboxService.SetPolicy", sandbox="plain", policy=AGAIN)
    assert e.value.reason == "UNSUPPORTED"
    cloud.kill_sandbox(plain_one)
    assert ask(api, plain_one).state == GONE
    assert len(cloud.ledger.sandboxes) == 4 and not cloud.ledger.alive()


def test_a_refusal_is_told(cloud, api):
    first = create(api)
    watch = api.stream("SandboxService.Watch", initial=True)
    events(api, watch, "RESYNC_DONE")
    cloud.fault("create", status=403)
    cloud.kill_sandbox(first.id)
    ask(api, first.id)
    got = events(api, watch, "UPDATED", "recreate")
    assert got[-1][1] == {"recreate": "failed", "recreate_reason": "CLOUD_FORBIDDEN"}
    watch.cancel()
    assert not cloud.ledger.alive()
    assert create(api).generation == 2, "the name is free"


@pytest.mark.parametrize("point,made", [
    ("create.before_intent", {1, 2}), ("create.intent_committed", {1}), ("create.before_send", {1}),
    ("create.after_send", {1, 2}), ("create.answered", {2}), ("create.before_active", {2}),
    ("create.active_committed", {2}), ("create.before_reply", {2}),
])
def test_killed_on_the_way(cloud, monkeypatch, point, made):
    built(FP)
    folder = harness.temp_dir("abd-")
    try:
        first = harness.Daemon(cloud, folder=folder)
        with Api(first.socket) as a:
            box = create(a).id
        first.stop()
        cloud.kill_sandbox(box)
        with monkeypatch.context() as m:    # it finds that out by itself, at its start
            m.setattr(harness, "AGENTBOXD", FP)
            crashing = harness.Daemon(cloud, folder=folder, env={"AGENTBOXD_FAILPOINT": point + "=kill"}, wait=False)
        assert crashing.proc.wait(20) == -signal.SIGKILL
        cloud.ledger.wait(lambda: not cloud.ledger.open_streams, what="the end of the dead daemon's requests")
        now = len(cloud.ledger.sandboxes)
        assert now in made
        last = harness.Daemon(cloud, folder=folder)
        with Api(last.socket) as a:
            if now == 2:
                until(lambda: [b.id for b in a.call("SandboxService.List", cached=False, states=[RUNNING]).sandboxes]
                      == [cloud.ledger.sandboxes[1].id], what="the new one in the list", program=last)
                got = ask(a)
                assert got.id == cloud.ledger.sandboxes[1].id and got.generation == 2
                assert got.policy.on_gone == 2
            elif point == "create.before_intent":
                until(lambda: len(cloud.ledger.alive()) == 1, what="the new one", program=last)
            assert len(cloud.ledger.sandboxes) <= 2 and cloud.ledger.count("create") <= 2
        last.close()
        crashing.check_sanitizer()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_not_out_of_a_second_copy(cloud):
    """Its owner's kill is in the minute that was lost with the database: the copy knows it as running."""
    folder = harness.temp_dir("abd-")
    d = harness.Daemon(cloud, folder=folder)
    state = os.path.join(folder, "state")
    try:
        with Api(d.socket) as a:
            box = create(a).id
        d.stop()
        shutil.copy(os.path.join(state, "backup.db"), os.path.join(folder, "copy"))
        shutil.copy(os.path.join(state, "host-id"), os.path.join(folder, "host-id"))
        d = harness.Daemon(cloud, folder=folder)
        with Api(d.socket) as a:
            a.call("SandboxService.Kill", sandbox=box)
        d.kill9()
        for f in os.listdir(state):
            if f.startswith("agentboxd.db"):
                os.unlink(os.path.join(state, f))
        shutil.copy(os.path.join(folder, "copy"), os.path.join(state, "backup.db"))
        shutil.copy(os.path.join(folder, "host-id"), os.path.join(state, "host-id"))
        d = harness.Daemon(cloud, folder=folder)
        with Api(d.socket) as a:
            until(lambda: ask(a, box).state == GONE, what="its end", program=d)
            a.call("SandboxService.List", cached=False)
        assert len(cloud.ledger.sandboxes) == 1
        d.stop()
    finally:
        d.close()
        shutil.rmtree(folder, ignore_errors=True)
