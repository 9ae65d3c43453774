# SPDX-License-Identifier: MIT
"""The daemon's pool, REST client and agent client against a cloud that misbehaves (FAULTS N, H, A; FIELD A)."""
import pytest

import harness
from api import Api, ApiError
from chaosproxy import ChaosProxy
from fakecloud import FakeCloud
from fakecloud.certs import Authority
from probe import Probe


@pytest.fixture
def probe(cloud):
    p = Probe(cloud)
    yield p
    p.close()


def fnv(data):
    h = 1469598103934665603
    for b in data:
        h = ((h ^ b) * 1099511628211) & 0xffffffffffffffff
    return "%016x" % h


def test_lifecycle(cloud, probe):
    """Create, get, list, timeout, refresh, connect, kill; what goes over the wire is what the contract says."""
    sid, token = probe.create(300, job="42")
    seen = cloud.ledger.wait_requests("create")
    assert seen.header("x-api-key") == cloud.key and seen.header("accept-encoding") == "identity"
    assert '"secure":true' in seen.text() and '"timeout":300' in seen.text()
    got = probe.ask("get", sid)
    assert got["outcome"] == "DONE" and got["id"] == sid and got["state"] == 1 and got["end_at"] > 0
    assert got["date"] > 0
    assert probe.ask("list")["ids"] == sid
    assert probe.ask("timeout", sid, 600)["outcome"] == "DONE"
    assert probe.ask("refresh", sid, 3601)["outcome"] == "DONE"
    r = probe.ask("connect", sid, 300)
    assert r["outcome"] == "DONE" and r["resumed"] == 0 and r["token"] == token
    r = probe.ask("kill", sid)
    assert r["outcome"] == "DONE" and r["not_found"] == 0
    r = probe.ask("kill", sid)
    assert r["outcome"] == "DONE" and r["not_found"] == 1
    r = probe.ask("get", sid)
    assert r["outcome"] == "REFUSED" and r["reason"] == "SANDBOX_NOT_FOUND" and r["upstream_status"] == "404"
    assert cloud.ledger.connections == 1


@pytest.mark.parametrize("h2", [True, False])
def test_streams_announce_no_length(cloud, h2):
    """B-1: a request that is answered by a stream never says how long it is (HTTP/1.1: chunked), one with one answer does."""
    d = harness.Daemon(cloud, conf={} if h2 else {"account default": {"api_url": cloud.plain_url, "sandbox_url": cloud.plain_url}})
    with Api(d.socket) as api:
        box = api.call("SandboxService.Create").id
        c = api.call("CommandService.Start", sandbox=box, shell="sleep 60")
        cloud.cut_all()
        cloud.ledger.wait_requests("process.Connect")
        with api.stream("FileService.Watch", sandbox=box, path="/home/user") as changes:
            assert next(changes).WhichOneof("event") == "ready"
        api.call("FileService.Stat", sandbox=box, path="/home/user")
        api.call("CommandService.Kill", command={"command_id": c.command_id})
    for route in ("process.Start", "process.Connect", "filesystem.WatchDir"):
        for r in cloud.ledger.of(route):
            assert r.proto == ("h2" if h2 else "http/1.1") and r.body_len > 5, r
            assert (r.header("content-length"), r.header("transfer-encoding")) == (None, None if h2 else "chunked"), r
    for r in cloud.ledger.of("create") + cloud.ledger.of("filesystem.Stat"):
        assert (r.header("content-length"), r.header("transfer-encoding")) == (str(r.body_len), None), r
    d.close()


@pytest.mark.parametrize("h2", [True, False])
def test_answers_are_read_to_their_end(cloud, h2):
    """B-7: what has said all that we want is read to the end of its stream, not reset, and on HTTP/1.1 its connection lives on."""
    d = harness.Daemon(cloud, conf={} if h2 else {"account default": {"api_url": cloud.plain_url, "sandbox_url": cloud.plain_url}})
    with Api(d.socket) as api:
        box = api.call("SandboxService.Create").id
        api.send("FileService.Write", [{"header": {"sandbox": box, "path": "/home/user/f"}}, {"data": b"y" * 200000}])
        for i in range(10):
            assert [e for e in api.stream("CommandService.Run", sandbox=box, shell="echo %d" % i)][-1].exited.exit_code == 0
            assert b"".join(e.data for e in api.stream("FileService.Read", sandbox=box, path="/home/user/f")) == b"y" * 200000
            read = list(api.stream("FileService.Read", sandbox=box, path="/home/user/f", offset=7, length=90000))
            assert read[-1].end.bytes == 90000
            with pytest.raises(ApiError):
                list(api.stream("FileService.Watch", sandbox=box, path="/nowhere"))
        cloud.fault("process.Start", shape=dict(late_end=.3))
        assert list(api.stream("CommandService.Run", sandbox=box, shell="echo late"))[-1].exited.exit_code == 0
        requests = cloud.ledger.of("process.Start") + cloud.ledger.of("envd.files") + cloud.ledger.of("filesystem.WatchDir")
        cloud.ledger.wait(lambda: all(r.end for r in requests))
        assert len(requests) == 42 and {r.end for r in requests} == {"complete"}, requests
        assert cloud.ledger.resets_received == []
        assert cloud.ledger.connections <= 3, cloud.ledger.connections
    d.close()


def test_an_end_that_does_not_come(cloud, probe):
    """B-7: the end of a stream is awaited for 2 s behind its last message, and for 64 KiB; then it is reset."""
    sid, token = probe.create()
    cloud.fault("process.Start", shape=dict(no_end=True, how="silent", cut_after=2))
    tag = probe.say("start", sid, token, "exit 3")
    assert probe.wait(tag, "end")["exit"] == 3
    probe.set("free", tag)
    probe.sync()
    assert cloud.ledger.resets_received == []
    cloud.ledger.wait(lambda: cloud.ledger.resets_received, 4)
    probe.close()


def test_bad_ids_never_leave(cloud, probe):
    for bad in ("../x", "A", "a-b"):
        r = probe.ask("get", bad)
        assert r["outcome"] == "REFUSED" and r["code"] == "INVALID_ARGUMENT", r
    assert not cloud.ledger.requests


def test_list_pages(cloud, probe):
    made = [cloud.make_sandbox().id for _ in range(250)]
    r = probe.ask("list")
    assert r["outcome"] == "DONE" and r["n"] == 250 and sorted(r["ids"].split()) == sorted(made)
    assert cloud.ledger.count("list") == 3
    r = probe.ask("page", 100, "-")
    assert r["n"] == 100 and r["next"]


@pytest.mark.parametrize("broken", [dict(status=500), dict(body=b'[{"templateID":"x"}]', status=200),
                                    dict(body=b"<html>", status=200)])
def test_list_incomplete_is_failure(cloud, probe, broken):
    for _ in range(150):
        cloud.make_sandbox()
    cloud.fault("list", nth=2, times=None, **broken)
    r = probe.ask("list")
    assert r["outcome"] != "DONE" and "ids" not in r, r


def test_keys(cloud, probe):
    """H-21: a connection never carries two keys."""
    probe.set("key", cloud.other_key)
    assert probe.ask("list")["outcome"] == "DONE"
    probe.set("key", "e2b_" + "00" * 20)
    r = probe.ask("list")
    assert (r["outcome"], r["reason"]) == ("REFUSED", "KEY_REJECTED")
    probe.set("next-key", cloud.key)          # the file holds another one now
    assert probe.ask("list")["outcome"] == "DONE"
    # H-21: no connection ever carried two keys
    for conn in {s.conn for s in cloud.ledger.requests}:
        assert len({s.header("x-api-key") for s in cloud.ledger.requests if s.conn == conn}) == 1


@pytest.mark.parametrize("strike, outcome, reason", [
    (dict(when="before", cut=True), "UNKNOWN", "UNREACHABLE"),
    (dict(when="after", cut=True), "UNKNOWN", "UNREACHABLE"),
    (dict(when="mid", cut=True), "UNKNOWN", "UNREACHABLE"),
    (dict(when="after", reset=8), "UNKNOWN", "UNREACHABLE"),
    (dict(when="after", reset=2), "UNKNOWN", "UNREACHABLE"),
    (dict(status=500, body=b'{"code":500,"message":"x"}'), "UNKNOWN", "BAD_CLOUD_REPLY"),
    (dict(status=502, body=b"<html>", content_type="text/html"), "UNKNOWN", "UNREACHABLE"),
    (dict(status=504, body=b'{"code":504,"message":"x","error_code":"sandbox_placement_timeout"}'), "UNKNOWN",
     "UNREACHABLE"),
    (dict(status=400, body=b'{"code":400,"message":"no"}'), "REFUSED", "CLOUD_REFUSED"),
    (dict(status=403, body=b'{"code":403,"message":"no"}'), "REFUSED", "CLOUD_FORBIDDEN"),
    (dict(status=404, body=b'{"code":404,"message":"no"}'), "REFUSED", "TEMPLATE_NOT_FOUND"),
    (dict(status=429, body=b'{"code":429,"message":"20 sandboxes"}'), "REFUSED", "CONCURRENCY_LIMIT"),
    (dict(status=307, headers=[("location", "https://127.0.0.1:1/")]), "UNKNOWN", "BAD_CLOUD_REPLY"),
    (dict(status=201, body=b"{}"), "UNKNOWN", "BAD_CLOUD_REPLY"),
    (dict(status=201, body=b'{"sandboxID":"i1","templateID":"b","x":' + b"[" * 100 + b"]" * 100 + b"}"), "UNKNOWN",
     "BAD_CLOUD_REPLY"),
])
def test_create_outcomes(cloud, probe, strike, outcome, reason):
    """A-06, A-07: One POST, whatever happens to it, unless it is proven unprocessed."""
    cloud.fault("create", **strike)
    r = probe.ask("create", 300)
    assert (r["outcome"], r["reason"]) == (outcome, reason), r
    assert cloud.ledger.count("create") == 1


@pytest.mark.parametrize("strike", [
    dict(reset=7),                              # REFUSED_STREAM (H-06)
    dict(goaway=0, last="before"),              # above GOAWAY's last id (H-01)
    dict(goaway=11, last="before"),
    dict(status=503, body=b'{"code":503,"message":"x","error_code":"sandbox_capacity_unavailable"}'),
    dict(status=429, body=b'{"code":429,"message":"slow"}', headers=[("retry-after", "1")]),
])
def test_create_unprocessed_goes_again(cloud, probe, strike):
    """A-05, H-01, H-06: whoever says, or proves, that nothing was done is asked again."""
    cloud.fault("create", **strike)
    r = probe.ask("create", 300)
    assert r["outcome"] == "DONE", r
    assert len(cloud.ledger.sandboxes) == 1
    assert cloud.ledger.count("create") == 2


def test_create_caller_gone(cloud, probe):
    """C-03: the answer of a create in flight is still read; one that was not sent is withdrawn."""
    f = cloud.fault("create", hold=True)
    tag = probe.say("create", 300)
    f.hold.wait()
    probe.set("abandon", tag)
    probe.sync()
    f.hold.release()
    r = probe.wait(tag)
    assert r["outcome"] == "DONE" and r["id"] == cloud.ledger.sandboxes[0].id


def test_create_withdrawn(cloud):
    cloud.refuse()
    p = Probe(cloud)
    tag = p.say("create", 300)
    p.set("abandon", tag)
    r = p.wait(tag)
    assert (r["outcome"], r["code"]) == ("UNSENT", "CANCELLED"), r
    p.close()


def test_get_is_repeated(cloud, probe):
    """A-39: what may be repeated is, also after 503 and 429."""
    sid, _ = probe.create()
    for strike in (dict(cut=True), dict(reset=2), dict(when="mid", cut=True), dict(status=503, body=b"x"),
                   dict(status=429, body=b"{}", headers=[("retry-after", "1")])):
        cloud.fault("get", **strike)
        r = probe.ask("get", sid)
        assert r["outcome"] == "DONE", (strike, r)


def test_rate_limit_beyond_deadline(cloud, probe):
    probe.set("deadline", 3000)
    cloud.fault("get", status=429, body=b'{"code":429,"message":"slow"}', headers=[("retry-after", "60")])
    r = probe.ask("get", "i1")
    assert (r["outcome"], r["reason"]) == ("REFUSED", "RATE_LIMITED") and r["retry_after"] == 60000
    r = probe.ask("get", "i1")                 # not even asked
    assert (r["outcome"], r["reason"]) == ("UNSENT", "RATE_LIMITED") and r["retry_after"] > 50000
    assert cloud.ledger.count("get") == 1
    assert probe.ask("list")["outcome"] == "DONE"   # another route goes on


def test_unreachable_then_back(cloud, probe):
    """A22: fails fast while down, works with the next call after."""
    probe.create()
    cloud.refuse()
    r = probe.ask("list")
    assert (r["outcome"], r["reason"]) == ("UNSENT", "UNREACHABLE"), r
    cloud.refuse(False)
    probe.set("deadline", 20000)
    harness.until(lambda: probe.ask("list")["outcome"] == "DONE", 15, "the cloud again")
    assert probe.ask("list")["outcome"] == "DONE"


def test_wrong_ca(cloud):
    with FakeCloud() as other:
        p = Probe(other, url=cloud.url)
        r = p.ask("list")
        assert (r["outcome"], r["reason"]) == ("UNSENT", "TLS_UNTRUSTED"), r
        p.close()


def test_goaway_in_flight(cloud, probe):
    """A1: of many calls in flight those above the last id are replayed, the others end as they end."""
    sid, _ = probe.create()
    gates = [cloud.fault("get", nth=1, hold=True) for _ in range(5)]
    tags = [probe.say("get", sid) for _ in range(5)]
    for g in gates:
        g.hold.wait()
    cloud.goaway(0, last="seen")
    later = probe.ask("get", sid)
    assert later["outcome"] == "DONE"
    for g in gates:
        g.hold.release()
    for r in probe.all(tags):
        assert r["outcome"] == "DONE", r
    s = probe.stats()[0]
    assert s["goaways"] == 1 and s["dials"] == 2, s


def test_calm_does_not_stop_work(cloud, probe):
    sid, _ = probe.create()
    cloud.goaway(11, last="seen")
    for r in probe.all([probe.say("get", sid) for _ in range(20)]):
        assert r["outcome"] == "DONE", r
    assert probe.stats()[0]["enhance_calm_count"] == 1


def test_many_streams(cloud):
    """120 parallel starts with the peer's limit of 100 streams: a second connection, no failure."""
    p = Probe(cloud)
    sid, token = p.create()
    tags = [p.say("start", sid, token, "read x; echo got $x") for _ in range(120)]
    pids = [p.wait(t, "start", timeout=60)["pid"] for t in tags]
    s = max(p.stats(), key=lambda s: s["streams"])
    assert s["streams"] == 120 and s["conns"] >= 2, s
    assert cloud.ledger.peak_streams_one_conn <= 100
    p.all([p.say("input", sid, token, pid, "y") for pid in pids])
    p.all([p.say("stdin-close", sid, token, pid) for pid in pids])
    for r in p.all(tags, timeout=60):
        assert r["code"] == "OK", r
    p.close()


def test_recycled_connections(cloud):
    """A2: an edge that recycles its connections is routine."""
    with FakeCloud() as c:
        p = Probe(c)
        sid, _ = p.create()
        for _ in range(10):
            tags = [p.say("get", sid) for _ in range(16)]
            c.goaway(0, last="max")
            for r in p.all(tags):
                assert r["outcome"] == "DONE", r
        p.close()


def test_black_hole(cloud):
    """N-02: nothing comes any more; PING finds out, a GET is repeated elsewhere."""
    p = Probe(cloud, ping_after=300, ping_answer=300)
    sid, _ = p.create()
    cloud.silence()
    tag = p.say("get", sid)
    p.sync()
    cloud.silence(False)
    r = p.wait(tag)
    assert r["outcome"] == "DONE", r
    assert p.stats()[0]["pings_lost"] == 1
    p.close()


def test_idle_close_is_noticed(cloud, probe):
    """A6: a connection the peer closed while idle is not used again."""
    sid, _ = probe.create()
    cloud.close_idle()
    cloud.ledger.wait(lambda: cloud.ledger.open_connections == 0)
    r = probe.ask("create", 300)
    assert r["outcome"] == "DONE", r


def test_command(cloud, probe):
    sid, token = probe.create()
    tag = probe.say("start", sid, token, "echo out; echo err >&2; exit 7")
    assert probe.wait(tag, "start")["pid"] > 0
    end = probe.wait(tag, "end")
    assert (end["exit"], end["exited"]) == (7, 1)
    r = probe.wait(tag)
    assert (r["code"], r["head"], r["stdout"], r["stderr"]) == ("OK", "out\n", 4, 4)
    seen = cloud.ledger.of("process.Start")[0]
    assert seen.header("x-access-token") == token and seen.header("agentbox-sandbox-id") == sid
    assert seen.header("x-api-key") is None and seen.header("connect-timeout-ms") is None
    assert seen.header("keepalive-ping-interval") == "50"


@pytest.mark.parametrize("shape", [dict(split=1), dict(split=7), dict(pack=True)])
def test_command_cut_anywhere(cloud, probe, shape):
    sid, token = probe.create()
    cloud.fault("process.Start", shape=shape)
    tag = probe.say("start", sid, token, "head -c 3000 /dev/zero | tr '\\0' x; exit 3")
    r = probe.wait(tag)
    assert (r["code"], r["stdout"]) == ("OK", 3000), r
    assert probe.wait(tag, "end")["exit"] == 3


@pytest.mark.parametrize("shape, cls, reason", [
    (dict(no_end=True), "LOST", "UNREACHABLE"),
    (dict(cut_after=1), "LOST", "UNREACHABLE"),
    (dict(cut_after=1, how="reset"), "LOST", "UNREACHABLE"),
    (dict(cut_after=1, how="end"), "LOST", "UNREACHABLE"),
    (dict(content_type="application/json"), "LOST", "BAD_CLOUD_REPLY"),
    (dict(raw=b"\x00\x7f\xff\xff\xff"), "LOST", "BAD_CLOUD_REPLY"),
    (dict(raw=b"\x04\x00\x00\x00\x00"), "LOST", "BAD_CLOUD_REPLY"),
    (dict(raw=b"\x00\x00\x00\x00\x01\xff"), "LOST", "BAD_CLOUD_REPLY"),
    (dict(gzip_end=True), "LOST", "BAD_CLOUD_REPLY"),
])
def test_stream_broken(cloud, probe, shape, cls, reason):
    """A-34: without its end record a stream is lost, never a success."""
    sid, token = probe.create()
    cloud.fault("process.Start", shape=shape)
    r = probe.wait(probe.say("start", sid, token, "echo hi"))
    assert (r["cls"], r["reason"]) == (cls, reason), r


def test_agent_failures(cloud, probe):
    """A-33, A-37: what the agent and the edge refuse, told apart: 502 of the edge is no proof of death, a wrong token is asked for again."""
    sid, token = probe.create()
    r = probe.ask("stat", sid, token, "/nope")
    assert (r["cls"], r["reason"]) == ("ANSWERED", "FILE_NOT_FOUND"), r
    r = probe.ask("signal", sid, token, 4190000, 9)
    assert (r["cls"], r["reason"]) == ("ANSWERED", "PROCESS_NOT_FOUND"), r
    r = probe.ask("ps", sid, "wrong")
    assert r["cls"] == "TOKEN", r
    r = probe.ask("ps", "i" + "0" * 20, token)
    assert r["cls"] == "NOT_RUNNING" and r["reason"] == "UNREACHABLE", r
    assert probe.ask("health", sid, token)["running"] == 1
    r = probe.ask("health", "i" + "0" * 20, token)
    assert (r["cls"], r["running"]) == ("OK", 0), r
    probe.set("user", "nobody-here")
    r = probe.ask("stat", sid, token, "/")
    assert (r["code"], r["reason"], r.get("field")) == ("INVALID_ARGUMENT", "FIELD_INVALID", "user"), r


def test_input_is_never_repeated(cloud, probe):
    """A-35."""
    sid, token = probe.create()
    tag = probe.say("start", sid, token, "cat")
    pid = probe.wait(tag, "start")["pid"]
    cloud.fault("process.SendInput", when="after", reset=2)
    r = probe.ask("input", sid, token, pid, "once")
    assert r["cls"] == "LOST", r
    assert cloud.ledger.count("process.SendInput") == 1
    probe.ask("stdin-close", sid, token, pid)
    assert probe.wait(tag)["head"] == "once"


@pytest.mark.plain
def test_slow_reader_is_not_fed(cloud, probe):
    """H-23: Output nobody takes stays at the cloud; others go on; then all of it arrives."""
    sid, token = probe.create()
    tag = probe.say("start", sid, token, "head -c 8000000 /dev/zero")
    probe.set("hold", tag)
    for _ in range(5):
        assert probe.ask("stat", sid, token, "/home/user")["cls"] == "OK"
    with open("/proc/%d/status" % probe.proc.pid, encoding="ascii") as f:
        rss = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    probe.set("resume", tag)
    r = probe.wait(tag)
    assert r["stdout"] == 8000000, r
    assert harness.ASAN or rss < 64 * 1024, rss


def test_files(cloud, probe):
    sid, token = probe.create()
    w = probe.ask("write", sid, token, "/home/user/a/b.bin", 3000000, "known")
    assert (w["cls"], w["path"]) == ("OK", "/home/user/a/b.bin"), w
    assert cloud.ledger.of("envd.files", method="POST")[0].header("content-length") == "3000000"
    r = probe.ask("read", sid, token, "/home/user/a/b.bin", 0, "-")
    assert (r["cls"], r["bytes"], r["hash"]) == ("OK", 3000000, w["hash"]), r
    r = probe.ask("read", sid, token, "/home/user/a/b.bin", 2999990, "-")
    assert (r["bytes"], r["size"], r["file_size"]) == (10, 10, 3000000), r
    r = probe.ask("read", sid, token, "/home/user/a/b.bin", 100, 50)
    assert (r["bytes"], r["size"]) == (50, 50), r
    r = probe.ask("read", sid, token, "/home/user/a/b.bin", 3000000, "-")
    assert (r["code"], r["bytes"]) == ("OK", 0), r
    r = probe.ask("read", sid, token, "/home/user/a/b.bin", 3000001, "-")
    assert r["code"] == "OUT_OF_RANGE", r
    r = probe.ask("write", sid, token, "x", 0, "unknown")
    assert (r["cls"], r["path"]) == ("OK", "/home/user/x"), r
    r = probe.ask("read", sid, token, "/nope", 0, "-")
    assert r["reason"] == "FILE_NOT_FOUND", r
    r = probe.ask("read", sid, token, "/home/user", 0, "-")
    assert r["reason"] == "IS_A_DIRECTORY", r
    r = probe.ask("mkdir", sid, token, "/home/user/d")
    assert r["cls"] == "OK" and r["path"] == "/home/user/d"
    assert probe.ask("mkdir", sid, token, "/home/user/d")["code"] == "ALREADY_EXISTS"
    assert probe.ask("ls", sid, token, "/home/user", 1)["entries"] == 3
    assert probe.ask("mv", sid, token, "/home/user/x", "/home/user/y")["path"] == "/home/user/y"
    assert probe.ask("rm", sid, token, "/home/user/y")["cls"] == "OK"
    r = probe.ask("ls", sid, token, "/home/user/a/b.bin", 1)
    assert r["reason"] == "NOT_A_DIRECTORY", r


def test_read_truncated(cloud, probe):
    """N-22: fewer bytes than announced is DATA_LOSS, never a short success."""
    sid, token = probe.create()
    probe.ask("write", sid, token, "/home/user/f", 500000, "known")
    for strike in (dict(when="mid", cut=True), dict(when="mid", reset=2)):
        cloud.fault("envd.files", **strike)
        r = probe.ask("read", sid, token, "/home/user/f", 0, "-")
        assert (r["code"], r["reason"]) == ("DATA_LOSS", "TRUNCATED"), r


def test_write_failures(cloud, probe):
    sid, token = probe.create()
    cloud.fault("envd.files", status=507, body=b'{"code":507,"message":"disk full"}')
    r = probe.ask("write", sid, token, "/home/user/f", 5000000, "known")
    assert (r["code"], r["reason"]) == ("RESOURCE_EXHAUSTED", "NO_SPACE"), r
    cloud.fault("envd.files", cut=True)
    r = probe.ask("write", sid, token, "/home/user/f", 100000, "unknown")
    assert r["cls"] == "LOST", r
    r = probe.ask("write", sid, token, "/home/user", 5, "known")
    assert r["reason"] == "IS_A_DIRECTORY", r


def test_plain_http1(cloud):
    """http:// is HTTP/1.1: one exchange a connection, several connections."""
    p = Probe(cloud, url=cloud.plain_url)
    sid, token = p.create()
    tags = [p.say("start", sid, token, "read x; echo got $x") for _ in range(12)]
    pids = [p.wait(t, "start")["pid"] for t in tags]
    for r in p.all([p.say("get", sid) for _ in range(30)]):
        assert r["outcome"] == "DONE", r
    p.all([p.say("input", sid, token, pid, "z") for pid in pids])
    p.all([p.say("stdin-close", sid, token, pid) for pid in pids])
    for r in p.all(tags):
        assert r["code"] == "OK", r
    w = p.ask("write", sid, token, "/home/user/f", 2000000, "unknown")
    assert w["cls"] == "OK", w
    r = p.ask("read", sid, token, "/home/user/f", 0, "-")
    assert r["hash"] == w["hash"], r
    assert {s.proto for s in cloud.ledger.requests} == {"http/1.1"}
    cloud.fault("create", when="after", cut=True)
    assert p.ask("create", 300)["outcome"] == "UNKNOWN"
    p.close()


def test_h2c_prior_knowledge(cloud):
    p = Probe(cloud, url=cloud.plain_url, h2c=1)
    p.create()
    assert {s.proto for s in cloud.ledger.requests} == {"h2"}
    p.close()


class Wildcard(Authority):
    """Certificates for every host of one sandbox domain."""

    def issue(self, **kw):
        return Authority.issue(self, **dict(kw, san="DNS:*.box.localhost"))


@pytest.fixture
def edge(tmp_path):
    with FakeCloud(authority=Wildcard(str(tmp_path / "ca"))) as c:
        yield c
        assert not c.errors, c.errors[0]


def test_sandboxes_share_connections(edge):
    """Every sandbox has a host of its own; certificate and address are one, so the connection is too."""
    p = Probe(edge, url="https://api.box.localhost:%d" % edge.port, domain="box.localhost:%d" % edge.port)
    boxes = [p.create() for _ in range(10)]
    for sid, token in boxes:
        assert p.ask("stat", sid, token, "/home/user")["cls"] == "OK"
    for sid, token in boxes:
        r = p.wait(p.say("start", sid, token, "echo $((6*7))"))
        assert (r["code"], r["head"]) == ("OK", "42\n"), r
    # the API key's connection is apart from those of the sandboxes
    assert edge.ledger.connections == 2
    for conn in (1, 2):
        assert len({s.header("x-api-key") for s in edge.ledger.of(conn=conn)}) == 1
    p.close()


def test_misdirected(edge):
    """421 on a shared connection: again on one of its own, unseen by the caller."""
    p = Probe(edge, url="https://api.box.localhost:%d" % edge.port, domain="box.localhost:%d" % edge.port)
    (a, ta), (b, tb) = p.create(), p.create()
    assert p.ask("stat", a, ta, "/home/user")["cls"] == "OK"
    edge.fault("filesystem.Stat", status=421, body=b"", times=1)
    assert p.ask("stat", b, tb, "/home/user")["cls"] == "OK"
    assert p.ask("stat", b, tb, "/home/user")["cls"] == "OK"
    first, again, later = [s.conn for s in edge.ledger.of("filesystem.Stat")[1:]]
    assert first != again and again == later
    p.close()


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("h2", [True, False])
def test_cut_at_any_byte(cloud, way, h2):
    """N-03: wherever the connection breaks, a create happens at most once, and what is said to be unsent is."""
    with ChaosProxy("127.0.0.1", cloud.port if h2 else cloud.plain_port) as proxy:
        scheme = "https" if h2 else "http"
        seen = set()
        for n in range(1, 4200 if h2 else 700, 139 if h2 else 23):
            proxy.cut_after(**{way: n})
            p = Probe(cloud, url="%s://127.0.0.1:%d" % (scheme, proxy.port))
            before = cloud.ledger.count("create", acted=True)
            r = p.ask("create", 300, "n=%d" % n)
            acted = cloud.ledger.count("create", acted=True) - before
            seen.add(r["outcome"])
            assert acted <= 1, (n, r)
            assert r["outcome"] in ("DONE", "UNKNOWN"), (n, r)   # a fresh dial follows what was not sent
            assert r["outcome"] != "DONE" or acted == 1, (n, r)
            proxy.cuts.clear()
            assert p.ask("list")["outcome"] == "DONE"
            p.close()
        assert seen == {"DONE", "UNKNOWN"}, seen


def test_connections_grow_old(cloud):
    """A connection's successor is there before it goes; nobody notices."""
    p = Probe(cloud, age=150)
    sid, token = p.create()
    long = p.say("start", sid, token, "cat")
    pid = p.wait(long, "start")["pid"]
    dials = set()
    while len(dials) < 4:
        for r in p.all([p.say("get", sid) for _ in range(8)]):
            assert r["outcome"] == "DONE", r
        dials.add(sum(s["dials"] for s in p.stats()))
    assert p.ask("input", sid, token, pid, "still-here")["cls"] == "OK"
    assert p.ask("stdin-close", sid, token, pid)["cls"] == "OK"
    assert p.wait(long)["head"] == "still-here"
    p.close()


def test_idle_connections_go(cloud):
    """H-19: surplus connections end after [pool] idle, the last one later."""
    p = Probe(cloud, idle=100, warm=200)
    p.create()
    cloud.ledger.wait(lambda: cloud.ledger.open_connections == 0)
    assert p.create()
    p.close()


def test_storm(edge):
    """A3: many sandboxes, many calls at once, connections that come and go: no error, few connections."""
    p = Probe(edge, url="https://api.box.localhost:%d" % edge.port, domain="box.localhost:%d" % edge.port)
    boxes = [(s.id, s.token) for s in (edge.make_sandbox() for _ in range(60))]
    for _ in range(3):
        tags = [p.say("stat", sid, token, "/home/user") for sid, token in boxes for _ in range(3)]
        edge.goaway(0, last="max")
        for r in p.all(tags, timeout=60):
            assert r["cls"] == "OK", r
    assert edge.ledger.connections <= 16, edge.ledger.connections
    p.close()


def test_cancel_and_end_in_the_middle(cloud):
    """Everything open is let go of at once, nothing leaks."""
    p = Probe(cloud)
    sid, token = p.create()
    gate = cloud.fault("get", times=None, hold=True).hold
    tags = [p.say("get", sid) for _ in range(5)]
    gate.wait()
    streams = [p.say("start", sid, token, "sleep 60") for _ in range(3)]
    for t in streams:
        p.wait(t, "start")
    for t in tags:
        p.set("cancel", t)
    for t in streams:
        p.set("free", t)
    p.sync()
    gate.release()
    p.close()


@pytest.mark.parametrize("plain", [False, True])
def test_on_agentbox_local(local, plain):
    """The same clients against real processes and files, over HTTP/2 with TLS and over HTTP/1.1."""
    p = Probe(local, url=local.plain_url if plain else local.url)
    sid, token = p.create(300, job="7")
    assert sid in p.ask("list")["ids"].split()
    assert p.ask("health", sid, token)["running"] == 1
    tag = p.say("start", sid, token, "echo out; echo err >&2; exit 7")
    assert p.wait(tag, "end")["exit"] == 7
    r = p.wait(tag)
    assert (r["code"], r["head"], r["stderr"]) == ("OK", "out\n", 4), r
    tag = p.say("start", sid, token, "cat")
    pid = p.wait(tag, "start")["pid"]
    assert p.ask("ps", sid, token)["pid"] == pid
    assert p.ask("input", sid, token, pid, "hello")["cls"] == "OK"
    assert p.ask("stdin-close", sid, token, pid)["cls"] == "OK"
    assert p.wait(tag)["head"] == "hello"
    tag = p.say("start", sid, token, "sleep 60")
    pid = p.wait(tag, "start")["pid"]
    assert p.ask("signal", sid, token, pid, 9)["cls"] == "OK"
    assert p.wait(tag, "end")["exit"] == -1
    w = p.ask("write", sid, token, "/home/user/a/b.bin", 5000000, "known")
    assert w["cls"] == "OK", w
    r = p.ask("read", sid, token, "/home/user/a/b.bin", 0, "-")
    assert (r["bytes"], r["hash"]) == (5000000, w["hash"]), r
    assert p.ask("read", sid, token, "/home/user/a/b.bin", 4999990, "-")["bytes"] == 10
    assert p.ask("read", sid, token, "/home/user/a/b.bin", 5000000, "-")["code"] == "OK"
    assert p.ask("read", sid, token, "/home/user/a/b.bin", 5000001, "-")["code"] == "OUT_OF_RANGE"
    assert p.ask("read", sid, token, "/home/user", 0, "-")["reason"] == "IS_A_DIRECTORY"
    assert p.ask("ls", sid, token, "/home/user/a/b.bin", 1)["reason"] == "NOT_A_DIRECTORY"
    assert p.ask("stat", sid, token, "/nope")["reason"] == "FILE_NOT_FOUND"
    assert p.ask("mkdir", sid, token, "/home/user/a")["code"] == "ALREADY_EXISTS"
    assert p.ask("ps", sid, "wrong")["cls"] == "TOKEN"
    p.set("user", "nobody-here")
    r = p.ask("stat", sid, token, "/")
    assert (r["reason"], r.get("field")) == ("FIELD_INVALID", "user"), r
    r = p.ask("read", sid, token, "/etc/passwd", 0, "-")
    assert (r["reason"], r.get("field")) == ("FIELD_INVALID", "user"), r
    p.set("user", "-")
    assert p.ask("kill", sid)["not_found"] == 0
    assert p.ask("kill", sid)["not_found"] == 1
    assert p.ask("ps", sid, token)["cls"] == "NOT_RUNNING"
    p.close()
