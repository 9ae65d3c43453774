# SPDX-License-Identifier: MIT
"""The sandbox and snapshot calls through agentboxd: against the scripted cloud, whose ledger says what was sent and what
became of it, and against agentbox-local, which really does it. `case_NNN`: the contract's list."""
import json
import shutil
import threading
import time

import pytest

import harness
from api import Api, ApiError, plain
from conftest import built
from fakecloud import FakeCloud

RUNNING, PAUSING, PAUSED, GONE = 2, 3, 4, 8
FROM_CLOUD, FROM_CACHE, CACHE_CLOUD_UNREACHABLE = 1, 2, 3


def error(call, *args, **kw):
    with pytest.raises(ApiError) as e:
        call(*args, **kw)
    return e.value


def create(api, **kw):
    return api.call("SandboxService.Create", **kw)


def get(api, box, **kw):
    return api.call("SandboxService.Get", sandbox=box, max_staleness=0, **kw)


def pause(api, box, **kw):
    return api.call("SandboxService.Pause", sandbox=box, **kw).paused


def connect(api, box, **kw):
    return api.call("SandboxService.ConnectSandbox", sandbox=box, **kw)


def fork(api, box, **kw):
    return api.call("SandboxService.Fork", sandbox=box, **kw).results


def kill(api, box):
    return api.call("SandboxService.Kill", sandbox=box).found


def snapshot(api, box, **kw):
    return api.call("SnapshotService.Create", sandbox=box, **kw)


def snapshots(api, **kw):
    return api.call("SnapshotService.List", **kw)


def delete(api, ref):
    return api.call("SnapshotService.Delete", snapshot=ref).found


def body(cloud, route, n=0):
    return json.loads(cloud.ledger.of(route)[n].body)


def start(call, *args, **kw):
    """Runs a call on a thread: (thread, list that gets its answer or its error)."""
    got = []

    def go():
        try:
            got.append(call(*args, **kw))
        except ApiError as e:
            got.append(e)
    t = threading.Thread(target=go)
    t.start()
    return t, got


@pytest.fixture(params=["fakecloud", "agentbox-local"])
def both(request):
    """An Api on a daemon in front of each."""
    return request.getfixturevalue("api" if request.param == "fakecloud" else "local_api")


# -- what is sent

def test_case_031_create_by_default(cloud, api):
    create(api)
    sent = body(cloud, "create")
    assert (sent["templateID"], sent["timeout"], sent["secure"], sent["allow_internet_access"]) == ("base", 300, True, True)
    assert not {"autoPause", "autoPauseMemory", "autoResume", "network", "iam"} & set(sent)


@pytest.mark.parametrize("lifecycle,want", [
    ({}, {}),
    ({"on_timeout": "KILL"}, {"autoPause": False}),
    ({"on_timeout": "PAUSE"}, {"autoPause": True}),
    ({"on_timeout": "PAUSE", "keep_memory": False}, {"autoPause": True, "autoPauseMemory": False}),
    ({"on_timeout": "PAUSE", "keep_memory": True, "auto_resume": True},
     {"autoPause": True, "autoPauseMemory": True, "autoResume": {"enabled": True}}),
    ({"on_timeout": "KILL", "auto_resume": False}, {"autoPause": False, "autoResume": {"enabled": False}}),
])
def test_case_061_lifecycle(cloud, api, lifecycle, want):
    b = create(api, lifecycle=lifecycle)
    sent = body(cloud, "create")
    assert {k: sent[k] for k in ("autoPause", "autoPauseMemory", "autoResume") if k in sent} == want
    got = get(api, b.id).lifecycle
    assert got.on_timeout == (2 if lifecycle.get("on_timeout") == "PAUSE" else 1)
    assert got.auto_resume == bool(lifecycle.get("auto_resume"))


@pytest.mark.parametrize("fields,name", [
    ({"lifecycle": {"on_timeout": "KILL", "auto_resume": True}}, "lifecycle.auto_resume"),
    ({"lifecycle": {"auto_resume": True}}, "lifecycle.auto_resume"),
    ({"lifecycle": {"on_timeout": "PAUSE", "keep_memory": False, "auto_resume": True}}, "lifecycle.auto_resume"),
    ({"lifecycle": {"on_timeout": "KILL", "keep_memory": False}}, "lifecycle.keep_memory"),
    ({"network": {"allow_out": ["example.com"]}}, "network.allow_out"),
    ({"network": {"deny_out": ["example.com"]}}, "network.deny_out"),
    ({"network": {"allow_public_traffic": False}, "secure": False}, "network.allow_public_traffic"),
    ({"network": {"egress_proxy": {"address": "127.0.0.1:1080"}}}, "network.egress_proxy.address"),
    ({"network": {"egress_proxy": {"address": "p.org:1080", "password": "x"}}}, "network.egress_proxy.username"),
    ({"network": {"rules": {"x.org": {"rules": [{}, {}]}}}}, "network.rules"),
    ({"network": {"rules": {"x.org": {"rules": [{"transform_headers": {"A": "${e2b.identity.tokens.no}"}}]}}}},
     "network.rules"),
    ({"iam_tokens": {"t": {"audience": ""}}}, "iam_tokens"),
    ({"iam_tokens": {"t": {"audience": "a", "token_type": "JWT"}}}, "iam_tokens"),
    ({"iam_tokens": {"a}b": {"audience": "a"}}}, "iam_tokens"),
], ids=lambda v: v if isinstance(v, str) else None)
def test_case_062_081_084_085_local_errors(cloud, api, fields, name):
    e = error(create, api, **fields)
    assert (e.code, e.reason, e.metadata["field"]) == ("INVALID_ARGUMENT", "FIELD_INVALID", name), e
    assert not cloud.ledger.of("create")


def test_case_079_083_network_and_tokens(cloud, api):
    rule = {"transform_headers": {"Authorization": "Bearer ${e2b.identity.tokens.aws}"}}
    b = create(api, iam_tokens={"aws": {"audience": "sts"}}, allow_internet_access=False, network={
        "allow_out": ["10.0.0.0/8", "example.com"], "deny_out": ["0.0.0.0/0"], "allow_public_traffic": False,
        "mask_request_host": "localhost:${PORT}", "rules": {"example.com": {"rules": [rule]}},
        "egress_proxy": {"address": "proxy.example.com:1080", "username": "u", "password": "secret"}})
    sent = body(cloud, "create")
    assert sent["iam"] == {"tokens": {"aws": {"audience": "sts", "tokenType": "JWT-SVID"}}}
    assert sent["allow_internet_access"] is False
    assert sent["network"] == {
        "allowOut": ["10.0.0.0/8", "example.com"], "denyOut": ["0.0.0.0/0"], "allowPublicTraffic": False,
        "maskRequestHost": "localhost:${PORT}",
        "rules": {"example.com": [{"transform": {"headers": rule["transform_headers"]}}]},
        "egressProxy": {"address": "proxy.example.com:1080", "username": "u", "password": "secret"}}
    n = get(api, b.id).network
    assert list(n.allow_out) == ["10.0.0.0/8", "example.com"] and n.allow_public_traffic is False
    assert n.egress_proxy.username == "u" and not n.egress_proxy.password
    assert plain(n.rules["example.com"].rules[0].transform_headers) == rule["transform_headers"]
    host = api.call("SandboxService.GetHost", sandbox=b.id, port=8000)
    assert host.traffic_access_token == cloud.sandbox(b.id).traffic_token


def test_case_082_update_network_replaces(cloud, api):
    b = create(api, network={"deny_out": ["8.8.8.8"], "allow_public_traffic": False}).id
    rules = {"x.org": {"rules": [{"transform_headers": {"A": "${e2b.identity.tokens.any}"}}]}}
    api.call("SandboxService.UpdateNetwork", sandbox=b, network={"deny_out": ["9.9.9.9"], "rules": rules})
    n = api.call("SandboxService.Get", sandbox=b).network
    assert list(n.deny_out) == ["9.9.9.9"] and "x.org" in n.rules and n.allow_public_traffic is False
    api.call("SandboxService.UpdateNetwork", sandbox=b, network={}, allow_internet_access=False)
    got = api.call("SandboxService.Get", sandbox=b)
    assert not got.network.deny_out and not got.network.rules and got.allow_internet_access is False
    assert body(cloud, "network", 1) == {"allow_internet_access": False}
    e = error(api.call, "SandboxService.UpdateNetwork", sandbox=b, network={"allow_public_traffic": True})
    assert e.metadata["field"] == "network.allow_public_traffic"
    pause(api, b)
    e = error(api.call, "SandboxService.UpdateNetwork", sandbox=b, network={})
    assert (e.code, e.reason) == ("FAILED_PRECONDITION", "SANDBOX_PAUSED")


# -- pause, resume, connect, timeouts

def test_case_045_050_pause_and_resume(both):
    """A-18: pause and resume; pausing a paused one is no error."""
    b = create(both)
    both.write_file(b.id, "kept.txt", b"here")
    both.call("CommandService.Start", sandbox=b.id, shell="sleep 100")
    assert pause(both, b.id) is True
    assert get(both, b.id).state == PAUSED
    assert pause(both, b.id) is False
    e = error(both.run, b.id, "true")
    assert (e.code, e.reason) == ("FAILED_PRECONDITION", "SANDBOX_PAUSED")
    got = connect(both, b.id, sandbox_timeout=120)
    assert got.id == b.id and got.state == RUNNING and got.end_at.seconds > time.time() + 60
    assert both.read_file(b.id, "kept.txt") == b"here"
    assert kill(both, b.id) and not kill(both, b.id)


def test_case_046_pause_of_none(both):
    e = error(pause, both, "nosuchsandbox")
    assert (e.code, e.reason) == ("NOT_FOUND", "SANDBOX_NOT_FOUND")


def test_case_047_pause_without_memory(both):
    b = create(both).id
    both.write_file(b, "kept.txt", b"here")
    both.call("CommandService.Start", sandbox=b, shell="sleep 100", detach=True)
    assert pause(both, b, keep_memory=False) is True
    connect(both, b)
    assert both.read_file(b, "kept.txt") == b"here"
    harness.until(lambda: not [c for c in both.call("CommandService.List", sandbox=b).commands if c.running], 15,
                  "the end of the command")
    kill(both, b)


def test_case_041_kill_of_a_paused_one(both):
    b = create(both).id
    pause(both, b)
    assert kill(both, b) is True
    assert error(connect, both, b).reason == "SANDBOX_KILLED"


def test_case_049_connect_never_shortens(both):
    b = create(both, sandbox_timeout=60).id
    far = connect(both, b, sandbox_timeout=600).end_at.seconds
    assert far > time.time() + 500
    assert connect(both, b, sandbox_timeout=10).end_at.seconds == far
    kill(both, b)


def test_case_052_pauses_are_shared(cloud, api):
    b = create(api).id
    gate = cloud.gates["pause"] = cloud.gate()
    calls = [start(pause, api, b) for _ in range(5)]
    gate.wait()
    got = api.call("SandboxService.Get", sandbox=b)
    assert got.state == PAUSING
    gate.release()
    for t, answer in calls:
        t.join()
        assert answer == [True]
    assert cloud.ledger.count("pause") == 1


def test_case_053_connect_waits_for_the_pause(cloud, api):
    b = create(api).id
    gate = cloud.gates["pause"] = cloud.gate()
    t, paused = start(pause, api, b)
    gate.wait()
    t2, connected = start(connect, api, b, sandbox_timeout=100)
    t3, again = start(connect, api, b, sandbox_timeout=200)
    gate.release()
    for x in (t, t2, t3):
        x.join()
    assert paused == [True] and connected[0].state == again[0].state == RUNNING
    assert cloud.sandbox(b).state == "running" and again[0].end_at.seconds > time.time() + 150


def says_changing(call):
    """What the cloud answers all the time is what the call says at its deadline; but where the deadline comes while an attempt is on its
    way, and nobody knows what becomes of that, it says so, or the client does by itself, which knows no reason. Five deadlines do not
    all come then."""
    for _ in range(5):
        e = error(call)
        if (e.code, e.reason) == ("ABORTED", "STATE_CHANGING"):
            return
        assert e.code == "DEADLINE_EXCEEDED" and (e.reason == "DEADLINE_REQUEST" or e.text == "Deadline Exceeded"), e
    raise AssertionError(e)


def test_connect_waits_for_a_pause_from_outside(cloud, api):
    """A 409 of the cloud passes: the call waits for it within its deadline."""
    b = create(api).id
    cloud.fault("connect", status=409, times=2)
    assert connect(api, b).state == RUNNING
    cloud.fault("connect", status=409, times=None)
    says_changing(lambda: connect(api, b, timeout=1.5))


def test_kill_while_pausing(cloud, api):
    b = create(api).id
    gate = cloud.gates["pause"] = cloud.gate()
    t, paused = start(pause, api, b)
    gate.wait()
    k, killed = start(kill, api, b)
    harness.until(lambda: cloud.ledger.count("delete") == 1, 10, "the delete")
    gate.release()
    t.join()
    k.join()
    assert killed == [True] and cloud.sandbox(b).fate == "killed"
    assert get(api, b).state == GONE


def test_case_051_connect_of_none(both):
    assert error(connect, both, "nosuchsandbox").reason == "SANDBOX_NOT_FOUND"


def test_case_055_cap_of_the_plan():
    with FakeCloud(max_length_hours=1) as cloud:
        d = harness.Daemon(cloud)
        try:
            with Api(d.socket) as api:
                b = create(api, sandbox_timeout=600)
                assert not b.warning
                got = api.call("SandboxService.SetTimeout", sandbox=b.id, sandbox_timeout=7200)
                assert "capped" in got.warning and time.strftime("%Y-%m-%dT%H:%M", time.gmtime(got.end_at.seconds)) \
                    in got.warning
                assert got.end_at.seconds <= b.started_at.seconds + 3601
                got = api.call("SandboxService.SetTimeout", sandbox=b.id, sandbox_timeout=60)
                assert not got.warning
                e = error(create, api, sandbox_timeout=7200)
                assert (e.code, e.reason, e.metadata["upstream_status"]) == ("FAILED_PRECONDITION", "CLOUD_REFUSED", "400")
        finally:
            d.close()


# -- lists

def test_case_066_metadata_of_any_byte(both):
    key = "".join(chr(c) for c in range(0x20, 0x7f))
    value = key[::-1] + "é €\U0001f40e\t\n"
    b = create(both, metadata={key: value, "k&=": "é+1", "user": "abc d"}).id
    other = create(both, metadata={"user": "abc+d", "k&=": "é 1"}).id
    for want in ({key: value}, {"user": "abc d", "k&=": "é+1"}):
        for cached in (False, True):
            got = both.call("SandboxService.List", metadata=want, cached=cached)
            assert [s.id for s in got.sandboxes] == [b]
    assert plain(get(both, b).metadata)[key] == value
    kill(both, b)
    kill(both, other)


# -- what the cloud may answer

def test_case_003_domain_of_a_sandbox(cloud):
    d = harness.Daemon(cloud, conf={"account default": {"domain": "configured.test"}})
    try:
        with Api(d.socket) as api:
            for said, domain in (("x.test", "x.test"), (None, "configured.test")):
                cloud.domain = said
                b = create(api).id
                h = api.call("SandboxService.GetHost", sandbox=b, port=3000)
                assert (h.host, h.url) == ("3000-%s.%s" % (b, domain), "https://3000-%s.%s" % (b, domain))
    finally:
        d.close()


def test_case_019_is_running(cloud, api):
    b = create(api).id

    def running():
        return api.call("SandboxService.IsRunning", sandbox=b, timeout=5).running
    assert running() is True
    pause(api, b)
    assert running() is False
    connect(api, b)
    cloud.fault("envd.health", status=500, times=None)
    assert error(running).code not in ("OK", "NOT_FOUND")
    kill(api, b)
    assert running() is False


def test_case_042_agent_too_old(cloud, api):
    e = error(create, api, template="old", request_id="old")
    assert (e.code, e.reason) == ("FAILED_PRECONDITION", "TEMPLATE_TOO_OLD"), e
    cloud.ledger.wait(lambda: not cloud.ledger.alive(), what="the end of the old one")
    assert len(cloud.ledger.sandboxes) == 1


def sandbox_json(**more):
    return json.dumps(dict({"templateID": "t", "sandboxID": "iaaaaaaaaaaaaaaaaaaaa", "clientID": "c",
                            "envdVersion": "0.6.13"}, **more)).encode()


def test_case_043_answers_with_less_and_more(cloud, api):
    cloud.fault("create", status=201, body=sandbox_json())
    cloud.fault("get", status=404, times=None)
    assert create(api).id == "iaaaaaaaaaaaaaaaaaaaa"
    cloud.fault("create", status=201, body=sandbox_json(sandboxID="ibbbbbbbbbbbbbbbbbbbb", alias=None, later={"a": [1]},
                                                        domain=None, trafficAccessToken=None))
    assert create(api).id == "ibbbbbbbbbbbbbbbbbbbb"


def test_case_044_html_of_a_gateway(cloud, api):
    cloud.fault("create", status=500, body=b"<html>oops</html>", content_type="text/html", times=None)
    e = error(create, api, timeout=5)
    assert e.reason == "OUTCOME_UNKNOWN" and "500" in str(e), e


@pytest.mark.parametrize("text,seconds,nanos", [
    ("2026-08-21T10:00:00Z", 1787306400, 0), ("2026-08-21T10:00:00.123456Z", 1787306400, 123000000),
    ("2026-08-21T10:00:00.123456789Z", 1787306400, 123000000), ("2026-08-21T12:00:00+02:00", 1787306400, 0),
])
def test_case_136_moments(cloud, api, text, seconds, nanos):
    b = create(api).id
    detail = sandbox_json(sandboxID=b, startedAt=text, endAt="2999-01-01T00:00:00+00:00", cpuCount=1, memoryMB=128,
                          diskSizeMB=0, state="running")
    cloud.fault("get", status=200, body=detail)
    got = get(api, b)
    assert (got.started_at.seconds, got.started_at.nanos) == (seconds, nanos)


# -- forks

def test_case_070_fork(both):
    b = create(both, metadata={"a": "b"}, sandbox_timeout=600)
    both.write_file(b.id, "f.txt", b"of the parent")
    end = get(both, b.id).end_at.seconds
    results = fork(both, b.id, count=3, sandbox_timeout=120)
    boxes = [r.sandbox for r in results]
    assert len(boxes) == 3 and len({s.id for s in boxes} | {b.id}) == 4
    for s in boxes:
        assert s.state == RUNNING and plain(s.metadata) == {"a": "b"} and not s.name
        assert abs(s.end_at.seconds - time.time() - 120) < 30
        assert both.read_file(s.id, "f.txt") == b"of the parent"
    got = get(both, b.id)
    assert got.state == RUNNING and got.end_at.seconds == end
    listed = {s.id for s in both.call("SandboxService.List").sandboxes}
    assert {s.id for s in boxes} | {b.id} <= listed
    for s in boxes:
        assert kill(both, s.id)
    kill(both, b.id)


def test_case_071_fork_is_refused(both):
    b = create(both).id
    assert error(fork, both, b, count=101).metadata["field"] == "count"
    assert error(fork, both, "nosuchsandbox").reason == "SANDBOX_NOT_FOUND"
    pause(both, b)
    e = error(fork, both, b)
    assert (e.code, e.reason) == ("FAILED_PRECONDITION", "SANDBOX_PAUSED")
    kill(both, b)


def test_fork_takes_a_policy(both):
    b = create(both).id
    child = fork(both, b, policy={"on_release": "KILL", "max_age": 3600})[0].sandbox
    assert child.policy.on_release == 3 and child.policy.max_age.seconds == 3600
    assert get(both, b).policy.on_release == 1
    kill(both, child.id)
    kill(both, b)


def test_case_072_one_child_of_two():
    with FakeCloud(concurrency=3) as cloud:
        d = harness.Daemon(cloud)
        try:
            with Api(d.socket) as api:
                b = create(api).id
                create(api)
                results = fork(api, b, count=2, request_id="two")
                kinds = [r.WhichOneof("result") for r in results]
                assert sorted(kinds) == ["error", "sandbox"]
                bad = next(r.error for r in results if r.WhichOneof("result") == "error")
                assert bad.code == 8 and "3 concurrent" in bad.message
                again = fork(api, b, count=2, request_id="two")
                assert [r.WhichOneof("result") for r in again] == kinds
                assert [r.sandbox.id for r in again] == [r.sandbox.id for r in results]
                assert cloud.ledger.count("fork") == 1
        finally:
            d.close()


@pytest.mark.parametrize("strike", [{"cut": True}, {"reset": 8}, {"status": 500}, {"status": 502}])
def test_answer_of_fork_is_lost(cloud, api, strike):
    b = create(api).id
    cloud.fault("fork", when="after", **strike)
    results = fork(api, b, count=2, request_id="lost", timeout=60)
    made = {s.id for s in cloud.ledger.sandboxes if s.forked_from == b}
    assert {r.sandbox.id for r in results} == made and len(made) == 2
    assert cloud.ledger.count("fork") == 1


def test_refused_fork_is_sent_again(cloud, api):
    b = create(api).id
    cloud.fault("fork", reset=7)
    assert len(fork(api, b)) == 1 and cloud.ledger.count("fork") == 2


def test_busy_node_is_asked_again(cloud, api):
    b = create(api).id
    cloud.fault("fork", status=503)
    assert len(fork(api, b)) == 1
    assert len([s for s in cloud.ledger.sandboxes if s.forked_from]) == 1


def test_one_fork_at_a_time(cloud, api):
    b = create(api).id
    gate = cloud.gates["snapshot"] = cloud.gate()
    calls = [start(fork, api, b, count=1) for _ in range(3)]
    gate.wait()
    assert cloud.ledger.count("fork") == 1
    gate.release()
    ids = set()
    for t, got in calls:
        t.join()
        ids.add(got[0][0].sandbox.id)
    assert len(ids) == 3 and cloud.ledger.count("fork") == 3
    assert not [r for r in cloud.ledger.of("fork") if r.status == 409]


@pytest.mark.parametrize("what", ["fork", "snapshot"])
def test_kill_9_with_a_copy_in_flight(cloud, what):
    home = harness.temp_dir("abd-")
    first = harness.Daemon(cloud, folder=home)
    f = cloud.fault(what, hold_answer=True)
    method = "SandboxService.Fork" if what == "fork" else "SnapshotService.Create"
    with Api(first.socket) as a:
        b = create(a).id
        a.service(method.rpartition(".")[0])
        future = a.future(method, sandbox=b, request_id="crash")
        f.hold_answer.wait()
        first.kill9()
        f.hold_answer.release()
        with pytest.raises(Exception):
            future.result()
    second = harness.Daemon(cloud, folder=home)
    try:
        with Api(second.socket) as a:
            got = a.call(method, sandbox=b, request_id="crash", timeout=60)
            if what == "fork":
                made = [s.id for s in cloud.ledger.sandboxes if s.forked_from == b]
                assert [r.sandbox.id for r in got.results] == made and len(made) == 1
            else:
                assert [got.id] == ["%s:default" % t.id for t in cloud.templates if t.source]
            assert cloud.ledger.count(what) == 1
    finally:
        second.close()
        shutil.rmtree(home, ignore_errors=True)


# -- snapshots

def test_case_074_076_snapshot(both):
    b = create(both).id
    both.write_file(b, "f.txt", b"before")
    s = snapshot(both, b)
    assert s.id.endswith(":default") and not s.names and s.source_sandbox == b and s.created_at.seconds
    assert get(both, b).state == RUNNING
    both.write_file(b, "f.txt", b"after")
    assert [x.id for x in snapshots(both, sandbox=b).snapshots] == [s.id]
    kill(both, b)
    new = create(both, template=s.id).id
    assert both.read_file(new, "f.txt") == b"before"
    assert s.id in [x.id for x in snapshots(both).snapshots]
    e = error(delete, both, s.id)                # in use
    assert (e.code, e.reason, e.metadata["upstream_status"]) == ("FAILED_PRECONDITION", "CLOUD_REFUSED", "400")
    kill(both, new)
    assert delete(both, s.id) is True and delete(both, s.id) is False
    assert s.id not in [x.id for x in snapshots(both).snapshots]


def test_case_075_names(both):
    b = create(both).id
    s = snapshot(both, b, name="My-Snap:v1")
    assert s.id == "team-a/my-snap:v1" and list(s.names) in (["team-a/my-snap"], ["team-a/my-snap:v1"])
    assert snapshot(both, b, name="my-snap:v2").id == "team-a/my-snap:v2"
    assert [x.id for x in snapshots(both, name="my-snap").snapshots] == ["team-a/my-snap:v2"]
    assert not snapshots(both, name="my-snap:v9").snapshots
    e = error(snapshot, both, b, name="other/my-snap")
    assert (e.code, e.reason) == ("FAILED_PRECONDITION", "CLOUD_REFUSED")
    pause(both, b)
    assert error(snapshot, both, b).reason == "SANDBOX_PAUSED"
    assert delete(both, "my-snap") is True
    kill(both, b)


def test_case_077_delete_is_coded_once(cloud, api):
    assert delete(api, "team-a/my-snap:v1") is False
    assert cloud.ledger.of("template_delete")[0].target == "/templates/team-a%2Fmy-snap%3Av1"


def test_case_078_pages(both):
    b = create(both).id
    ids = [snapshot(both, b).id for _ in range(5)]
    got, token = [], ""
    while True:
        page = snapshots(both, sandbox=b, page_size=2, page_token=token)
        got += [s.id for s in page.snapshots]
        token = page.next_page_token
        if not token:
            break
    assert got == ids[::-1]
    assert error(snapshots, both, sandbox=b, page_token="nonsense").metadata["field"] == "page_token"
    for s in ids:
        assert delete(both, s)
    kill(both, b)


def test_all_pages_of_the_cloud_are_read(cloud, api):
    b = create(api).id
    for _ in range(101):
        snapshot(api, b)
    assert len(snapshots(api, page_size=1000).snapshots) == 101
    assert cloud.ledger.of("snapshots")[-1].target.count("nextToken") == 1


def test_answer_of_snapshot_is_lost(cloud, api):
    b = create(api).id
    cloud.fault("snapshot", when="after", cut=True)
    s = snapshot(api, b, request_id="lost", timeout=60)
    assert s.id == "%s:default" % cloud.templates[-1].id and cloud.ledger.count("snapshot") == 1
    assert snapshot(api, b, request_id="lost").id == s.id
    assert error(snapshot, api, b, request_id="lost", name="x").reason == "REQUEST_ID_REUSED"


def test_two_new_snapshots_are_a_doubt(cloud, api):
    """Somebody else's snapshot appears at the same time: none of them is claimed, and nothing is deleted."""
    b = create(api).id
    f = cloud.fault("snapshot", when="after", cut=True, hold_answer=True)
    t, got = start(snapshot, api, b, request_id="doubt", timeout=60)
    f.hold_answer.wait()
    from wire import Client
    c = Client(cloud.plain_url, cloud.key)
    assert c.api("POST", "/sandboxes/%s/snapshots" % b, {}).status == 201
    f.hold_answer.release()
    t.join()
    assert (got[0].code, got[0].reason) == ("UNAVAILABLE", "OUTCOME_UNKNOWN")
    assert not cloud.ledger.of("template_delete")


def test_snapshots_without_the_cloud(cloud, api, daemon):
    b = create(api).id
    s = snapshot(api, b).id
    cloud.fault("snapshots", silent=True, times=None)
    got = snapshots(api, timeout=2).snapshots
    assert [x.id for x in got] == [s] and got[0].freshness.source == CACHE_CLOUD_UNREACHABLE
    n = cloud.ledger.count("snapshots")
    got = snapshots(api, cached=True).snapshots
    assert [x.id for x in got] == [s] and got[0].freshness.source == FROM_CACHE
    assert cloud.ledger.count("snapshots") == n


# -- metrics

def metric(t):
    return {"timestamp": "2026-08-21T10:00:00Z", "timestampUnix": t, "cpuCount": 2, "cpuUsedPct": 12.5, "memUsed": 5 << 30,
            "memTotal": 8 << 30, "memCache": 1, "diskUsed": 2, "diskTotal": 3}


def metrics(api, box, **kw):
    return api.call("SandboxService.GetMetrics", sandbox=box, **kw)


def test_case_132_metrics(cloud, api):
    b = create(api).id
    assert not metrics(api, b).metrics
    cloud.metrics[b] = [metric(200), metric(100), metric(300)]
    got = metrics(api, b, start={"seconds": 100}, end={"seconds": 250, "nanos": 1})
    assert [m.at.seconds for m in got.metrics] == [100, 200] and got.freshness.source == FROM_CLOUD
    assert got.metrics[0].mem_used == 5 << 30 and got.metrics[0].cpu_used_pct == 12.5
    assert cloud.ledger.of("metrics")[-1].target.endswith("?start=100&end=251")
    again = metrics(api, b, start={"seconds": 100}, end={"seconds": 250, "nanos": 1})
    assert again.freshness.source == FROM_CACHE and again.freshness.as_of == got.freshness.as_of
    e = error(metrics, api, b, start={"seconds": 2}, end={"seconds": 1})
    assert (e.code, e.metadata["field"]) == ("INVALID_ARGUMENT", "start")
    assert error(metrics, api, "nosuchsandbox").reason == "SANDBOX_NOT_FOUND"


def test_metrics_of_a_real_one(local_api):
    b = create(local_api).id
    local_api.run(b, "head -c 10000000 /dev/zero | md5sum")
    harness.until(lambda: metrics(local_api, b, end={"seconds": int(time.time()) + 1}).metrics, 20, "a point")
    m = metrics(local_api, b, end={"seconds": int(time.time()) + 2}).metrics[-1]
    assert m.cpu_count >= 1 and m.mem_total > 0 and m.disk_total > 0
    kill(local_api, b)


# -- every refusal of the cloud, as callers see it

CALLS = {
    "create": lambda api, b: create(api),
    "connect": lambda api, b: connect(api, b),
    "get": lambda api, b: get(api, b),
    "timeout": lambda api, b: api.call("SandboxService.SetTimeout", sandbox=b, sandbox_timeout=60, timeout=4),
    "pause": lambda api, b: pause(api, b, timeout=4),
    "network": lambda api, b: api.call("SandboxService.UpdateNetwork", sandbox=b, network={}, timeout=4),
    "metrics": lambda api, b: metrics(api, b),
    "fork": lambda api, b: fork(api, b, timeout=8),
    "snapshot": lambda api, b: snapshot(api, b, timeout=8),
    "template_delete": lambda api, b: delete(api, "x"),
}
ROWS = [
    (401, {}, "FAILED_PRECONDITION", "KEY_REJECTED"),
    (403, {}, "PERMISSION_DENIED", "CLOUD_FORBIDDEN"),
    (429, {}, "RESOURCE_EXHAUSTED", "CONCURRENCY_LIMIT"),
    (429, {"headers": [("Retry-After", "600")]}, "RESOURCE_EXHAUSTED", "RATE_LIMITED"),
    (400, {}, "FAILED_PRECONDITION", "CLOUD_REFUSED"),
    (418, {}, "FAILED_PRECONDITION", "CLOUD_REFUSED"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda r: "%d%s" % (r[0], "-retry-after" if r[1] else ""))
@pytest.mark.parametrize("route", sorted(CALLS))
def test_refusals(cloud, api, route, row):
    status, more, code, reason = row
    b = create(api).id
    cloud.fault(route, status=status, times=None, **more)
    if route == "get":
        got = CALLS[route](api, b)       # what was last known, and that it is that
        assert got.freshness.source == CACHE_CLOUD_UNREACHABLE
        return
    e = error(CALLS[route], api, b)
    assert (e.code, e.reason) == (code, reason), e
    assert e.metadata["upstream_status"] == str(status) and e.metadata["route"]
    if more:
        assert e.retry_s and e.retry_s > 60


@pytest.mark.parametrize("route", ["timeout", "network", "metrics", "snapshot", "fork", "connect", "pause", "get"])
def test_case_6_1_404_is_the_sandbox(cloud, api, route):
    b = create(api).id
    cloud.kill_sandbox(b)
    if route == "metrics":
        assert not metrics(api, b).metrics      # an empty series or a 404: the cloud may say either
        cloud.fault("metrics", status=404, times=None)
        e = error(metrics, api, b, start={"seconds": 1})
        assert (e.code, e.reason) == ("NOT_FOUND", "SANDBOX_GONE"), e
        return
    if route == "get":
        assert get(api, b).state == GONE
        return
    e = error(CALLS[route], api, b)
    assert (e.code, e.reason) == ("NOT_FOUND", "SANDBOX_GONE"), e
    assert e.metadata["sandbox_id"] == b and "404" in e.metadata["said_by"] and e.metadata["gone_at"]


def test_case_6_1_404_that_is_an_answer(cloud, api):
    b = create(api).id
    cloud.kill_sandbox(b)
    assert delete(api, "nosuch") is False
    assert error(create, api, template="nosuch").reason == "TEMPLATE_NOT_FOUND"


@pytest.mark.parametrize("route", ["timeout", "network", "connect", "pause", "fork", "snapshot"])
def test_409_passes_or_is_said(cloud, api, route):
    b = create(api).id
    cloud.fault(route, status=409, times=1)
    CALLS[route](api, b)
    assert cloud.ledger.count(route) == 2
    cloud.fault(route, status=409, times=None)
    call = {"connect": lambda: connect(api, b, timeout=2)}.get(route, lambda: CALLS[route](api, b))
    if route == "pause":
        connect(api, b)
    if route not in ("fork", "snapshot"):
        says_changing(call)
        return
    e = error(call)     # of what would make something, an attempt that is on its way at the deadline leaves the outcome open
    assert (e.code, e.reason) in (("ABORTED", "STATE_CHANGING"), ("UNKNOWN", "OUTCOME_UNKNOWN")), e


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("status", [500, 502, 503, 504])
@pytest.mark.parametrize("route", ["create", "fork", "snapshot"])
def test_5xx_never_makes_two(cloud, api, route, status, moment):
    """Whatever the moment: one was made and is told, or none and that is told; never two."""
    b = create(api).id
    made_before = len(cloud.ledger.sandboxes) + len(cloud.templates)
    cloud.fault(route, status=status, when=moment)
    try:
        {"create": lambda: create(api, request_id="r", timeout=6),
         "fork": lambda: fork(api, b, request_id="r", timeout=6),
         "snapshot": lambda: snapshot(api, b, request_id="r", timeout=6)}[route]()
    except ApiError as e:
        assert e.reason in ("OUTCOME_UNKNOWN", "UNREACHABLE", "DEADLINE_REQUEST"), e
        if moment == "after" and not (status == 503 and route != "create"):
            raise
    made = len(cloud.ledger.sandboxes) + len(cloud.templates) - made_before
    # a 503 of the API itself says that nothing was made, so it is believed
    assert made <= (2 if status == 503 and moment == "after" and route != "create" else 1)
