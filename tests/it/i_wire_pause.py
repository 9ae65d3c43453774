# SPDX-License-Identifier: MIT
"""Pausing and resuming, by hand, at the end of a sandbox's time and by traffic (cases 13, 45 to 60 and Appendix A)."""
import subprocess
import threading
import time

import pytest

from harness import until
from i_wire_sandbox import moment
from wire import CUT, RpcFailed, event_of
from wire_common import own, real, server  # noqa: F401

ABSENT = "/sandboxes/i00000000000000000000"
COUNT = "n=0; while :; do n=$((n+1)); echo $n >/tmp/n; echo $n; sleep 0.02; done"
LIMITS = "x-agentbox-local-limits"


def path(box, tail=""):
    return "/sandboxes/%s%s" % (box["sandboxID"], tail)


def pause(server, box, body=None):
    return server.api("POST", path(box, "/pause"), body)


def connect(server, box, timeout=60):
    return server.api("POST", path(box, "/connect"), {"timeout": timeout})


def state(server, box):
    return server.get(box).json()["state"]


def counter(real, box):
    """Starts what counts; its pid once it does."""
    with real.start(box, COUNT) as s:
        pid = s.next()["event"]["start"]["pid"]
        assert event_of(s.next())[0] == "stdout"
    return pid


def together(*calls):
    got = [None] * len(calls)

    def run(i):
        got[i] = calls[i]()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    return got


def test_case_045_046_pause(server):
    box = server.create()
    r = server.api("POST", path(box, "/pause"))  # neither a body nor a type
    assert r.status == 204 and r.body == b"", r
    r = pause(server, box, {})
    assert r.status == 409 and r.json()["code"] == 409, r
    assert state(server, box) == "paused"
    assert server.api("POST", ABSENT + "/pause").status == 404


def test_case_045_pause_looks_paused(real):
    box = real.create(metadata={"a": "b"})
    before = time.time()
    r = pause(real, box)
    assert r.header(LIMITS) == "lost-at-restart"
    d = real.get(box).json()
    assert d["state"] == "paused" and d["metadata"] == {"a": "b"} and d["domain"] is None and "volumeMounts" not in d
    assert d["envdAccessToken"] == box["envdAccessToken"] and d["clientID"]
    assert abs(moment(d["endAt"]) - before) < 5
    rows = real.api("GET", "/v2/sandboxes?state=paused")
    assert box["sandboxID"] in [s["sandboxID"] for s in rows.json()] and rows.header("x-total-running") is None
    rows = real.api("GET", "/v2/sandboxes?state=running").json()
    assert box["sandboxID"] not in [s["sandboxID"] for s in rows]
    assert box["sandboxID"] not in [s["sandboxID"] for s in real.api("GET", "/sandboxes").json()]


def test_appendix_a_paused(server):
    box = server.create()
    assert pause(server, box).status == 204
    for method, tail, body, status in (("POST", "/timeout", {"timeout": 5}, 404), ("POST", "/refreshes", {}, 404),
                                       ("PUT", "/network", {}, 404)):
        r = server.api(method, path(box, tail), body)
        assert r.status == status and r.json()["code"] == status, (tail, r)
    assert state(server, box) == "paused"
    assert server.kill(box).status == 204
    assert connect(server, box).status == 404


def test_appendix_a_paused_fork_and_snapshot(real):
    box = real.create()
    pause(real, box)
    assert real.api("POST", path(box, "/fork"), {}).status == 409
    assert real.api("POST", path(box, "/snapshots"), {}).status == 404


def test_case_047_without_memory(real):
    box = real.create(envVars={"A": "1"})
    pid = counter(real, box)
    real.write(box, "/home/user/kept", b"data")
    assert pause(real, box, {"memory": False}).status == 204
    assert state(real, box) == "paused"
    r = connect(real, box)
    assert r.status == 201 and "no-memory" in r.header(LIMITS), r
    assert pid not in [p["pid"] for p in real.processes(box)]
    assert real.read(box, "/home/user/kept").body == b"data"
    assert real.run(box, "pgrep -fc 'n=0; whil[e]'; echo $A")[1] == b"0\n\n"


def test_case_048_with_memory(real):
    """The processes stand still, and go on where they were."""
    box = real.create()
    pid = counter(real, box)
    assert pause(real, box).status == 204
    r = connect(real, box)
    assert r.status == 201 and "no-memory" not in (r.header(LIMITS) or ""), r
    assert pid in [p["pid"] for p in real.processes(box)]
    at = int(real.read(box, "/tmp/n").body or 0)
    with real.stream(box, "process.Process/Connect", {"process": {"pid": pid}}) as s:
        assert event_of(s.next()) == ("start", pid)
        assert int(event_of(s.next())[1].split()[-1]) >= at


def test_case_048_memory_stands_still(real):
    """A counter in memory misses the time of the pause, and its deadline does too."""
    box = real.create()
    with real.start(box, "t=0; while sleep 0.05; do t=$((t+1)); echo $t >/tmp/t; done",
                    headers=[("Connect-Timeout-Ms", "1500")]) as s:
        pid = s.next()["event"]["start"]["pid"]
        until(lambda: real.read(box, "/tmp/t").status == 200, 5, "the counter")
        pause(real, box)
    frozen = time.monotonic()
    until(lambda: time.monotonic() - frozen > 1.6, 3, "the deadline to pass")
    assert connect(real, box).status == 201
    assert pid in [p["pid"] for p in real.processes(box)]
    assert int(real.read(box, "/tmp/t").body or 0) < 30
    until(lambda: pid not in [p["pid"] for p in real.processes(box)], 5, "the deadline after all")


def test_watchers_over_a_pause(real):
    box = real.create()
    fs = "filesystem.Filesystem/"
    w = real.unary(box, fs + "CreateWatcher", {"path": "/home/user"})["watcherId"]
    assert pause(real, box).status == 204 and connect(real, box).status == 201
    real.write(box, "/home/user/new", b"x")
    seen = []
    until(lambda: seen.extend(real.unary(box, fs + "GetWatcherEvents", {"watcherId": w}).get("events", [])) or seen,
          5, "an event")
    assert seen[0]["name"] == "new"
    assert pause(real, box, {"memory": False}).status == 204 and connect(real, box).status == 201
    with pytest.raises(RpcFailed) as e:
        real.unary(box, fs + "GetWatcherEvents", {"watcherId": w})
    assert e.value.code == "not_found"


def test_streams_are_cut_by_a_pause(real):
    box = real.create()
    s = real.start(box, "sleep 100")
    s.next()
    assert pause(real, box).status == 204
    with pytest.raises(CUT):
        while s.next() is not None:
            pass
    assert s.end is None


def test_case_050_connect_paused(server):
    box = server.create()
    started = server.get(box).json()["startedAt"]
    pause(server, box)
    r = connect(server, box, 100)
    assert r.status == 201 and r.json()["sandboxID"] == box["sandboxID"], r
    assert r.json()["envdAccessToken"] == box["envdAccessToken"]
    d = server.get(box).json()
    assert d["state"] == "running" and d["startedAt"] != started
    assert connect(server, box).status == 200
    assert server.run(box, "echo hi")[1] == b"hi\n"


def test_newer_connect_of_a_paused_one(real):
    """POST /v2/…/connect: no body needed; memory=false starts it anew."""
    box = real.create()
    pid = counter(real, box)
    pause(real, box)
    r = real.api("POST", "/v2" + path(box, "/connect"))
    assert r.status == 201, r
    assert pid in [p["pid"] for p in real.processes(box)]
    pause(real, box)
    r = real.api("POST", "/v2" + path(box, "/connect"), {"memory": False})
    assert r.status == 201 and "no-memory" in r.header(LIMITS), r
    assert real.processes(box) == []
    assert real.read(box, "/tmp/n").status == 200


def test_case_052_two_at_once(real):
    for memory in (True, False):
        box = real.create()
        got = together(*[lambda: pause(real, box, {"memory": memory}).status] * 2)
        assert sorted(got) in ([204, 204], [204, 409]), got
        assert connect(real, box).status == 201
        assert together(*[lambda: real.kill(box).status] * 2) in ([204, 204], [204, 404], [404, 204])


def test_case_053_everything_at_once(real):
    """Whatever meets, each gets an answer of the table and the sandbox is where the last one left it."""
    box = real.create()
    for i in range(10):
        memory = i % 2 == 0
        one, two, three = together(lambda: pause(real, box, {"memory": memory}), lambda: connect(real, box),
                                   lambda: pause(real, box, {"memory": not memory}))
        assert one.status in (204, 409) and three.status in (204, 409), (one, three)
        assert two.status in (200, 201), two
        if state(real, box) == "paused":
            assert connect(real, box).status == 201
        assert real.run(box, "echo $((6*7))")[1] == b"42\n"
    killed, paused = together(lambda: real.kill(box), lambda: pause(real, box))
    assert killed.status == 204 and paused.status in (204, 404), (killed, paused)
    assert real.get(box).status == 404


def test_case_057_auto_pause(real):
    box = real.create(timeout=1, autoPause=True)
    pid = counter(real, box)
    until(lambda: state(real, box) == "paused", 5, "the auto-pause")
    d = real.get(box).json()
    assert d["lifecycle"] == {"autoResume": False, "onTimeout": "pause"}
    assert abs(moment(d["endAt"]) - time.time()) < 10
    r = real.envd(box, "GET", "/health")
    assert r.status == 502 and "port" not in r.json(), r
    assert connect(real, box).status == 201
    assert pid in [p["pid"] for p in real.processes(box)]


def test_case_058_auto_resume(real):
    box = real.create(timeout=1, autoPause=True, autoResume={"enabled": True})
    until(lambda: state(real, box) == "paused", 5, "the auto-pause")
    r = real.envd(box, "GET", "/health", token=False)
    assert r.status == 403 and r.json()["sandboxId"] == box["sandboxID"] and r.json()["code"] == 403, r
    assert state(real, box) == "paused"
    assert real.envd(box, "GET", "/health").status == 204
    d = real.get(box).json()
    assert d["state"] == "running" and d["lifecycle"] == {"autoResume": True, "onTimeout": "pause"}
    assert moment(d["endAt"]) - moment(d["startedAt"]) >= 299.9


def test_case_058_auto_resume_after_a_call(real):
    """Many requests at once wake it once."""
    box = real.create(autoPause=True, autoResume={"enabled": True})
    for _ in range(5):
        assert pause(real, box).status == 204
        got = together(*[lambda: real.envd(box, "GET", "/health").status] * 5)
        assert got == [204] * 5
    assert real.run(box, "echo yes")[1] == b"yes\n"


def test_case_059_files_only_is_not_woken(real):
    box = real.create(timeout=1, autoPause=True, autoPauseMemory=False)
    real.write(box, "/home/user/kept", b"data")
    until(lambda: state(real, box) == "paused", 5, "the auto-pause")
    assert real.envd(box, "GET", "/health").status == 502
    assert connect(real, box).status == 201
    assert real.read(box, "/home/user/kept").body == b"data"
    other = real.create(autoPause=True, autoResume={"enabled": True})
    pause(real, other, {"memory": False})
    assert real.envd(other, "GET", "/health").status == 502


def test_case_060_resume(server):
    box = server.create()
    r = server.api("POST", path(box, "/resume"), {})
    assert r.status == 409, r
    pause(server, box)
    assert server.api("POST", path(box, "/resume"), {"timeout": 0}).status == 400
    r = server.api("POST", path(box, "/resume"), {"timeout": 30})
    assert r.status == 201 and r.json()["sandboxID"] == box["sandboxID"], r
    assert server.api("POST", ABSENT + "/resume", {}).status == 404


def test_case_041_kill_paused(server):
    box = server.create()
    pause(server, box)
    assert server.kill(box).status == 204
    assert server.kill(box).status == 404
    assert connect(server, box).status == 404


def test_paused_ones_do_not_count(own):
    c, _ = own("--max-sandboxes", "1")
    box = c.create(autoPause=True, autoResume={"enabled": True})
    pause(c, box)
    other = c.create()
    r = connect(c, box)
    assert r.status == 429 and r.header("retry-after") is None, r
    r = c.envd(box, "GET", "/health")
    assert r.status == 429 and r.json()["code"] == 429, r
    assert c.kill(other).status == 204
    assert connect(c, box).status == 201


def test_what_survives_a_restart(own, tmp_path):
    """Files-only pauses do, with everything that describes them; pauses with memory do not."""
    c, cloud = own(folder=str(tmp_path))
    kept = c.create(metadata={"k": "v"}, autoPause=True, network={"allowPublicTraffic": False})
    lost = c.create()
    c.write(kept, "/home/user/f", b"data")
    assert pause(c, kept, {"memory": False}).status == 204
    assert pause(c, lost).status == 204
    before = c.get(kept).json()
    cloud.close()
    c, _ = own(folder=str(tmp_path))
    assert c.get(kept).json() == before
    assert c.get(lost).status == 404
    r = connect(c, kept)
    assert r.status == 201 and r.json()["envdAccessToken"] == kept["envdAccessToken"], r
    assert r.json()["trafficAccessToken"] == kept["trafficAccessToken"]
    assert c.read(kept, "/home/user/f").body == b"data"
    assert c.kill(kept).status == 204


def test_files_only_ones_need_no_process(own, tmp_path):
    """agentbox-local may end for idleness: they are there at its next start."""
    c, cloud = own("--exit-when-idle", "1", folder=str(tmp_path))
    box = c.create()
    assert pause(c, box, {"memory": False}).status == 204
    assert cloud.proc.wait(20) == 0
    c, cloud = own("--exit-when-idle", "1", folder=str(tmp_path))
    assert connect(c, box).status == 201
    assert pause(c, box).status == 204      # in memory: it stays for this one
    with pytest.raises(subprocess.TimeoutExpired):
        cloud.proc.wait(2)


def test_pause_without_control_groups(own):
    """Everything inside is stopped by signals instead."""
    c, _ = own("--no-cgroup")
    box = c.create()
    pid = counter(c, box)
    for _ in range(3):
        assert pause(c, box).status == 204
        assert connect(c, box).status == 201
        assert pid in [p["pid"] for p in c.processes(box)]
    at = int(c.read(box, "/tmp/n").body or 0)
    until(lambda: int(c.read(box, "/tmp/n").body or 0) > at, 5, "the counter to go on")
