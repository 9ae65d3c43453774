# SPDX-License-Identifier: MIT
"""Bad days of the cloud as callers of agentboxd see them, played by the scripted one; its ledger, not the daemon, says what really happened."""
import json
import os
import subprocess
import threading
import time

import pytest

import harness
from api import Api, ApiError, plain
from fakecloud import FakeCloud, Shape
from harness import until


FROM_CLOUD, CACHE_CLOUD_UNREACHABLE = 1, 3


def error(call, *args, **kw):
    with pytest.raises(ApiError) as e:
        call(*args, **kw)
    return e.value


def create(api, **kw):
    return api.call("SandboxService.Create", **kw)


def tags(sbx):
    return {k: v for k, v in sbx.metadata.items() if k.startswith("agentbox.")}


# -- what is sent

def test_what_create_sends(cloud, api):
    b = create(api, template="base", secure=False, metadata={"a": "b"}, envs={"E": "1"}, sandbox_timeout=1.2)
    seen = cloud.ledger.of("create")[0]
    body = json.loads(seen.body)
    assert body["secure"] is False and body["templateID"] == "base" and body["timeout"] == 2
    assert body["envVars"] == {"E": "1"} and body["metadata"]["a"] == "b"
    sbx = cloud.sandbox(b.id)
    assert {"agentbox.host", "agentbox.uid", "agentbox.req", "agentbox.seq"} <= set(tags(sbx)), sbx.metadata
    assert plain(b.metadata) == {"a": "b"}, "our own keys are not shown"
    create(api, template="base")
    body = json.loads(cloud.ledger.of("create")[1].body)
    assert body["secure"] is True and body["timeout"] == 300


def test_case_030_key_and_token_do_not_cross(cloud, api):
    b = create(api).id
    api.run(b, "true")
    api.write_file(b, "x", b"1")
    api.call("SandboxService.Kill", sandbox=b)
    token = cloud.sandbox(b).token
    for r in cloud.ledger.requests:
        rest = r.route in ("create", "get", "list", "delete", "timeout", "refreshes", "connect")
        assert (r.header("x-api-key") == cloud.key) == rest, r
        assert r.header("x-access-token") == (None if rest else token), r
        assert r.header("accept-encoding") in (None, "identity"), r
        for word in ("mozilla", "chrome", "safari", "firefox", "edge", "opera", "msie"):
            assert word not in (r.header("user-agent") or "").lower()


def test_few_connections(cloud, api):
    boxes = [create(api).id for _ in range(5)]
    for b in boxes:
        api.run(b, "true")
    assert cloud.ledger.connections <= 4 and all(r.proto == "h2" for r in cloud.ledger.requests)


# -- at most once

def test_answer_of_create_is_lost(cloud, api):
    """A-01: it is found by its tag, and made once."""
    cloud.fault("create", when="after", cut=True)
    b = create(api, request_id="lost", timeout=60)
    assert [s.id for s in cloud.ledger.sandboxes] == [b.id]


def test_answer_of_create_is_reset(cloud, api):
    """H-07: maybe processed: not sent again, settled."""
    cloud.fault("create", when="after", reset=8)
    b = create(api, request_id="reset", timeout=60)
    assert [s.id for s in cloud.ledger.sandboxes] == [b.id]


def test_refused_stream_is_sent_again(cloud, api):
    """H-06: proven unprocessed: sent again."""
    cloud.fault("create", reset=7)
    create(api)
    assert cloud.ledger.count("create") == 2 and len(cloud.ledger.sandboxes) == 1


def test_goaway_before_create(cloud, api):
    cloud.fault("create", goaway=0, last="before", silent=True)
    create(api)
    assert len(cloud.ledger.sandboxes) == 1


def test_case_021_goaway_when_idle(cloud, api):
    b = create(api).id
    cloud.goaway(0, "max")
    assert api.call("SandboxService.Get", sandbox=b, max_staleness=0).id == b
    cloud.cut_all()
    assert api.call("SandboxService.Get", sandbox=b, max_staleness=0).id == b


def test_same_request_id_at_once(cloud, api):
    got = []
    threads = [threading.Thread(target=lambda: got.append(create(api, request_id="same").id)) for _ in range(10)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(got) == 10 and len(set(got)) == 1 and len(cloud.ledger.sandboxes) == 1


def test_same_name_at_once(cloud, api):
    got = []
    threads = [threading.Thread(target=lambda: got.append(create(api, name="one").id)) for _ in range(10)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(got)) == 1 and len(cloud.ledger.sandboxes) == 1


@pytest.mark.parametrize("moment", ["before", "after"])
def test_kill_9_while_the_cloud_works(cloud, tmp_path, moment):
    """The daemon dies with a create in flight; after its restart there is one sandbox and it is known, or none."""
    home = harness.temp_dir("abd-")
    first = harness.Daemon(cloud, folder=home)
    f = cloud.fault("create", **({"hold": True} if moment == "before" else {"hold_answer": True}))
    gate = f.hold or f.hold_answer
    with Api(first.socket) as a:
        a.service("SandboxService")
        future = a.future("SandboxService.Create", request_id="crash")
        gate.wait()
        first.kill9()
        gate.release()
        with pytest.raises(Exception):
            future.result()
    second = harness.Daemon(cloud, folder=home)
    try:
        with Api(second.socket) as a:
            if moment == "after":
                b = create(a, request_id="crash", timeout=60)
                assert [s.id for s in cloud.ledger.alive()] == [b.id]
                assert a.run(b.id, "echo alive")[1] == b"alive\n"
                assert len(cloud.ledger.sandboxes) == 1
            else:
                # The cloud may act all the same, or drop a request whose sender is gone. In the second case nobody
                # can know it yet, and no second one is made.
                try:
                    b = create(a, request_id="crash", timeout=5)
                    assert [s.id for s in cloud.ledger.alive()] == [b.id]
                except ApiError as e:
                    assert e.reason == "OUTCOME_UNKNOWN" or e.code == "DEADLINE_EXCEEDED", e
                    assert not cloud.ledger.sandboxes
    finally:
        second.close()
        import shutil
        shutil.rmtree(home, ignore_errors=True)


def test_state_survives_a_restart(cloud):
    home = harness.temp_dir("abd-")
    d = harness.Daemon(cloud, folder=home)
    with Api(d.socket) as a:
        b = create(a, name="kept", metadata={"k": "v"})
        host = a.call("DaemonService.Status").host_id
    d.stop()
    d = harness.Daemon(cloud, folder=home)
    try:
        with Api(d.socket) as a:
            got = a.call("SandboxService.Get", sandbox="kept")
            assert got.id == b.id and plain(got.metadata) == {"k": "v"}
            assert a.call("DaemonService.Status").host_id == host
            assert a.run("kept", "echo x")[1] == b"x\n"
    finally:
        d.close()
        import shutil
        shutil.rmtree(home, ignore_errors=True)


# -- refusals

@pytest.mark.parametrize("fault,code,reason", [
    ({"status": 401}, "FAILED_PRECONDITION", "KEY_REJECTED"),
    ({"status": 403}, "PERMISSION_DENIED", "CLOUD_FORBIDDEN"),
    ({"status": 429}, "RESOURCE_EXHAUSTED", "CONCURRENCY_LIMIT"),
    ({"status": 400}, "FAILED_PRECONDITION", "CLOUD_REFUSED"),
    ({"status": 404}, "NOT_FOUND", "TEMPLATE_NOT_FOUND"),
])
def test_create_is_refused(cloud, api, fault, code, reason):
    """A-09, A-13: each refusal has its reason, and nothing is sent twice."""
    cloud.fault("create", times=None, **fault)
    e = error(create, api, timeout=20)
    assert (e.code, e.reason) == (code, reason), e
    assert not cloud.ledger.sandboxes


def test_rate_limit_is_waited_for(cloud, api):
    cloud.fault("create", status=429, headers=[("Retry-After", "1")])
    begin = time.monotonic()
    create(api, timeout=30)
    assert time.monotonic() - begin > 0.9 and cloud.ledger.count("create") == 2


def test_rate_limit_beyond_the_deadline(cloud, api):
    cloud.fault("create", status=429, headers=[("Retry-After", "60")], times=None)
    e = error(create, api, timeout=5)
    assert (e.code, e.reason) == ("RESOURCE_EXHAUSTED", "RATE_LIMITED") and e.retry_s and e.retry_s > 10, e


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"sandboxID":7}', b"<html>no</html>",
                                  b"[" * 100_000, b'{"sandboxID":"' + b"x" * 5_000_000 + b'"}', b"\xff\xfe"],
                         ids=lambda b: repr(b[:12]))
def test_bad_answers(cloud, daemon, api, body):
    """What is known is still told, and that the cloud did not say it; what only the cloud knows is refused."""
    b = create(api).id
    cloud.fault("get", status=200, body=body, times=None)
    got = api.call("SandboxService.Get", sandbox=b, max_staleness=0, timeout=20)
    assert got.id == b and got.freshness.source == CACHE_CLOUD_UNREACHABLE
    e = error(api.call, "SandboxService.Get", sandbox="i" + "1" * 20, timeout=20)
    assert (e.code, e.reason) == ("UNAVAILABLE", "BAD_CLOUD_REPLY"), e
    cloud.clear_faults()
    got = api.call("SandboxService.Get", sandbox=b, max_staleness=0)
    assert got.id == b and got.freshness.source == FROM_CLOUD


def test_redirects_are_not_followed(cloud, api):
    """N-30: the key goes to no other host."""
    with FakeCloud(authority=cloud.authority) as other:
        b = create(api).id
        cloud.fault("get", status=302, headers=[("Location", other.url + "/sandboxes/" + b)], times=None)
        got = api.call("SandboxService.Get", sandbox=b, max_staleness=0, timeout=10)
        assert got.freshness.source == CACHE_CLOUD_UNREACHABLE
        assert not other.ledger.requests


# -- the cloud is away

def test_check_config_knows_the_words_of_policies(tmp_path):
    """What a start would refuse, --check-config finds too, and says in which line."""
    conf = tmp_path / "x.conf"
    conf.write_text("[policy]\non_idle = sometimes\n[policy template:t]\non_release = warn\nmax_age = 1h\n")
    r = subprocess.run([harness.AGENTBOXD, "-c", str(conf), "--check-config"], capture_output=True, text=True, timeout=30)
    assert r.returncode == 78
    assert "x.conf:2: [policy] on_idle: " in r.stderr and "x.conf:4: [policy template:t] on_release: " in r.stderr
    assert "max_age" not in r.stderr


def test_unreachable_at_start(cloud):
    cloud.refuse()
    d = harness.Daemon(cloud)
    try:
        with Api(d.socket) as a:
            assert a.call("DaemonService.Status", timeout=5).pid == d.pid
            assert list(a.call("SandboxService.List", cached=True, timeout=5).sandboxes) == []
            begin = time.monotonic()
            e = error(create, a, timeout=3)
            assert e.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED") and time.monotonic() - begin < 4, e
            assert e.code == "DEADLINE_EXCEEDED" or e.reason == "UNREACHABLE", e
            cloud.refuse(False)
            b = create(a, timeout=60)
            assert a.run(b.id, "echo back")[1] == b"back\n"
    finally:
        d.close()


def test_unreachable_later(cloud, api):
    b = create(api).id
    cloud.refuse()
    got = api.call("SandboxService.Get", sandbox=b, timeout=10)
    assert got.id == b
    begin = time.monotonic()
    got = api.call("SandboxService.Get", sandbox=b, max_staleness=0, timeout=3)
    assert got.freshness.source == CACHE_CLOUD_UNREACHABLE and time.monotonic() - begin < 4
    e = error(api.call, "SandboxService.Get", sandbox="i" + "1" * 20, timeout=3)
    assert (e.code, e.reason) in (("UNAVAILABLE", "UNREACHABLE"), ("DEADLINE_EXCEEDED", "DEADLINE_REQUEST")), e
    cloud.refuse(False)
    until(lambda: api.call("SandboxService.Get", sandbox=b, max_staleness=0, timeout=60).freshness.source ==
          FROM_CLOUD, 30, "the cloud to be found again")


def test_black_hole(cloud, api):
    b = create(api).id
    cloud.silence()
    begin = time.monotonic()
    got = api.call("SandboxService.Get", sandbox=b, max_staleness=0, timeout=2)
    assert got.freshness.source == CACHE_CLOUD_UNREACHABLE and time.monotonic() - begin < 4
    assert api.call("DaemonService.Status", timeout=2).pid
    cloud.silence(False)
    until(lambda: api.call("SandboxService.Get", sandbox=b, max_staleness=0, timeout=60).freshness.source ==
          FROM_CLOUD, 40, "the cloud to be found again")


def test_wrong_authority(cloud, tmp_path):
    from fakecloud.certs import Authority
    cloud.ca = Authority(str(tmp_path / "ca"), "another CA").cert
    d = harness.Daemon(cloud)
    try:
        with Api(d.socket) as a:
            e = error(create, a, timeout=10)
            assert (e.code, e.reason) == ("UNAVAILABLE", "TLS_UNTRUSTED"), e
            assert "fakecloud test CA" in e.text + str(e.metadata), e
    finally:
        d.close()


# -- streams

def test_stream_without_end_is_not_success(cloud, api):
    b = create(api).id
    cloud.script("magic", [("stdout", b"some")])
    cloud.fault("process.Start", shape=Shape(cut_after=2, how="end"))
    result, out, _ = api.run(b, "magic", timeout=60)
    assert out == b"some" and not (result.outcome == 1 and result.output_complete), result


def test_split_and_packed_frames(cloud, api):
    b = create(api).id
    cloud.fault("process.Start", shape=Shape(split=1))
    assert api.run(b, "echo split")[1] == b"split\n"
    cloud.fault("process.Start", shape=Shape(pack=True))
    assert api.run(b, "echo packed; exit 2")[0].exit_code == 2


def test_wrong_content_type(cloud, api):
    b = create(api).id
    cloud.fault("process.Start", shape=Shape(content_type="text/html"), times=None)
    # The start cannot be understood, so it is looked for by its tag; found, it is followed from there on.
    try:
        result = api.run(b, "true", timeout=20)[0]
        assert (result.exit_code, result.output_complete) == (0, False)
    except ApiError as e:
        assert e.reason in ("BAD_CLOUD_REPLY", "OUTCOME_UNKNOWN"), e


def test_truncated_download(cloud, api):
    b = create(api).id
    api.write_file(b, "big", b"x" * 500_000)
    cloud.fault("envd.files", shape=Shape(cut_after=2), times=None)
    with pytest.raises(ApiError) as e:
        api.read_file(b, "big", )
    assert (e.value.code, e.value.reason) in (("DATA_LOSS", "TRUNCATED"), ("UNAVAILABLE", "UNREACHABLE")), e.value


def test_case_022_more_streams_than_one_connection_takes(cloud, api):
    b = create(api).id
    gate = cloud.gate()
    cloud.script("waiting", [("stdout", b"x"), ("gate", gate)])
    streams = [api.stream("CommandService.Run", sandbox=b, shell="waiting %d" % i, timeout=60) for i in range(120)]
    for s in streams:
        while next(s).WhichOneof("event") != "output":
            pass
    assert cloud.ledger.peak_streams >= 120 and cloud.ledger.peak_streams_one_conn <= 100
    gate.release()
    for s in streams:
        *_, last = s
        assert last.exited.exit_code == 0


def test_sandbox_ends_early(cloud, api):
    """A-27: a command in it ends with the reason, later calls too."""
    b = create(api).id
    s = api.stream("CommandService.Run", sandbox=b, shell="sleep 100", timeout=60)
    assert next(s).WhichOneof("event") == "started"
    cloud.kill_sandbox(b)
    events = list(s)
    assert events[-1].WhichOneof("event") == "exited" and events[-1].exited.outcome in (4, 5), events[-1]


def test_other_hosts_sandboxes_are_left_alone(cloud, api):
    foreign = cloud.make_sandbox(metadata={"agentbox.host": "another", "agentbox.uid": "0"})
    create(api)
    assert foreign.id not in [s.id for s in api.call("SandboxService.List").sandboxes]
    assert api.call("SandboxService.Get", sandbox=foreign.id).id == foreign.id, "an id is a capability"
    assert foreign.fate is None


def test_a_disk_that_is_nearly_full(cloud, tmp_path):
    """Status says so before a commit fails, since when, and no longer when there is room again."""
    if os.geteuid():
        pytest.skip("needs root")
    home = harness.temp_dir("abd-")
    with harness.small_disk(home + "/disk", "32m"):
        d = harness.Daemon(cloud, folder=home + "/disk")
        with Api(d.socket) as api:
            create(api)
            assert not api.call("DaemonService.Status").degraded
            with open(home + "/disk/ballast", "wb") as f:
                f.write(bytes(api.call("DaemonService.Status").store.free_bytes - (4 << 20)))
            for _ in range(2):
                full = api.call("DaemonService.Status").degraded[0]
                assert full.what == "store" and "left" in full.message and full.since.seconds, full
            os.unlink(home + "/disk/ballast")
            assert not api.call("DaemonService.Status").degraded
        d.stop()
