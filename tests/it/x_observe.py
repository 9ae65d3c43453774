# SPDX-License-Identifier: MIT
"""What operators see: the lines of the log, and metrics, judged by Prometheus' own programs."""
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

import harness
from api import Api, ApiError
from harness import until

MONITORING = os.path.join(harness.ROOT, "docs/monitoring")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def running(cloud, **daemon):
    """A daemon whose metrics are at a port; *it.port*."""
    port = free_port()
    d = harness.Daemon(cloud, conf={"daemon": {"metrics_listen": "127.0.0.1:%d" % port, **daemon}})
    d.port = port
    try:
        d.wait_log(r"\bready version=")
        yield d
    finally:
        d.close()


def scrape(d, host=None):
    request = urllib.request.Request("http://127.0.0.1:%d/metrics" % d.port, headers={"Host": host} if host else {})
    with urllib.request.urlopen(request, timeout=20) as r:
        return r.headers["content-type"], r.read().decode()


def parsed(text):
    """By prometheus_client's strict parser: {sample name and labels: value}."""
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in parser.text_string_to_metric_families(text) for s in f.samples}


def value(samples, name, **labels):
    return samples.get((name, tuple(sorted(labels.items()))), 0)


def fields(line):
    """The keys and values of a line of the log."""
    return {k: q if q is not None and v.startswith('"') else v
            for k, v, q in ((m[1], m[2], m[3]) for m in re.finditer(r'(\w+)=("((?:[^"\\]|\\.)*)"|\S*)', line))}


# -- the log

def logged(d, kind):
    return [fields(x) for x in d.log().splitlines() if re.match(r"\S+ +\w+ +%s " % kind, x)]


def test_a_failed_call_is_one_line(cloud, daemon, api):
    """Who, which request, why and how long."""
    with pytest.raises(ApiError):
        api.call("SandboxService.Create", request_id="job 17", template="base", sandbox_timeout=10 ** 9)
    with pytest.raises(ApiError):
        api.call("SandboxService.Get", sandbox="nosuch")
    a, b = until(lambda: len(found := logged(daemon, "call_failed")) == 2 and found, 10, "two lines", daemon)
    assert a["req"] == "job 17" and a["method"] == "/agentbox.v1.SandboxService/Create" and a["reason"] == "FIELD_INVALID"
    assert b["sandbox"] == "nosuch" and b["reason"] == "SANDBOX_NOT_FOUND" and b["code"] == "NOT_FOUND"
    for x in (a, b):
        assert x["uid"] == str(os.getuid()) and x["pid"] == str(os.getpid()) and 0 <= int(x["duration_us"]) < 60e6 and x["error"]


def test_an_outage_is_two_lines(cloud, daemon, api):
    """Its third failure in a row, and its end with the count; in between nothing."""
    api.call("SandboxService.Create")
    cloud.refuse()
    for _ in range(6):
        with pytest.raises(ApiError):
            api.call("SandboxService.Create", timeout=3)
    cloud.refuse(False)
    until(lambda: created(api), 30, "the cloud", daemon)
    daemon.wait_log("cloud_over ")
    begun, over = logged(daemon, "cloud_outage"), logged(daemon, "cloud_over")
    assert len(begun) == 1 and begun[0]["reason"] in ("UNREACHABLE", "DEADLINE_REQUEST") and begun[0]["error"]
    assert len(over) == 1 and int(over[0]["failed"]) >= 3


def created(api):
    with contextlib.suppress(ApiError):
        return api.call("SandboxService.Create", timeout=5).id


# -- metrics

def test_the_strict_parser_reads_it(cloud):
    """Every family after calls of many kinds, and what they count."""
    with running(cloud, metrics_per_uid="yes") as d, Api(d.socket) as api:
        box = api.call("SandboxService.Create", process_lease=True).id
        api.run(box, "true")
        for _ in range(3):
            with pytest.raises(ApiError):
                api.call("SandboxService.Get", sandbox="nosuch")
        api.call("SandboxService.Kill", sandbox=box)
        kind, text = scrape(d)
        m = parsed(text)
        uid = str(os.getuid())
        assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8" and box not in text
        get = "agentbox.v1.SandboxService/Get"
        assert value(m, "agentbox_client_calls_ended_total", method=get, result="SANDBOX_NOT_FOUND") == 3
        assert value(m, "agentbox_client_call_seconds_count", method=get) == 3
        assert value(m, "agentbox_client_call_seconds_bucket", method=get, le="+Inf") == 3
        assert value(m, "agentbox_client_call_seconds_bucket", method=get, le="60.0") == 3
        assert value(m, "agentbox_sandbox_makes_total", what="create", result="OK") == 1
        assert value(m, "agentbox_sandboxes_gone_total", reason="SANDBOX_KILLED") == 1
        assert value(m, "agentbox_sandbox_events_total", type="created") == 1
        assert value(m, "agentbox_leases_taken_total") == 1 and value(m, "agentbox_leases_ended_total", why="its sandbox is gone") == 1
        assert value(m, "agentbox_store_commits_total", result="OK") > 0
        assert value(m, "agentbox_store_commit_seconds_count", durable="yes") > 0 and value(m, "agentbox_loop_pass_seconds_count") > 0
        assert value(m, "agentbox_cloud_calls_total", account="default", result="OK") >= 2
        assert value(m, "agentbox_cloud_call_seconds_count", account="default") >= 2
        assert value(m, "agentbox_pool_received_bytes_total") > 1000 and value(m, "agentbox_pool_sent_bytes_total") > 1000
        assert value(m, "agentbox_pool_queue_seconds_count") >= 2
        assert value(m, "agentbox_uid_connections", uid=uid) == 1 and value(m, "agentbox_uid_sandboxes", uid=uid) == 0


def exemplars(text, method):
    """Of the calls of a method, by the strict parser: [(le, exemplar)]."""
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    return [(float(s.labels["le"]), s.exemplar) for f in parser.text_string_to_metric_families(text) for s in f.samples
            if s.name == "agentbox_client_call_seconds_bucket" and s.labels["method"] == method and s.exemplar]


@pytest.mark.parametrize("per_uid", ["no", "yes"])
def test_a_slow_call_is_found_by_its_exemplar(cloud, per_uid):
    """A step has the trace, or where the operator says so the request, of the last call that fell into it, and the log has its line."""
    create, trace = "agentbox.v1.SandboxService/Create", "4bf92f3577b34da6a3ce929d0e0e4736"
    with running(cloud, metrics_per_uid=per_uid) as d, Api(d.socket) as api:
        begun = time.time()
        with pytest.raises(ApiError):
            api.call("SandboxService.Create", request_id='job "17"\\', sandbox_timeout=10 ** 9)
        (le, x), = exemplars(scrape(d)[1], create) or [(0, None)]
        if per_uid == "no":
            assert x is None
        else:
            assert x.labels == {"request_id": 'job "17"\\'} and 0 < x.value <= le and begun - 1 < x.timestamp.sec < time.time() + 1
        with pytest.raises(ApiError):
            api.call("SandboxService.Create", request_id="r" * 65, sandbox_timeout=10 ** 9)
        assert "rrrr" not in scrape(d)[1]
        cloud.fault("create", delay=0.6)
        api.call("SandboxService.Create", request_id="slow", header=[("traceparent", "00-%s-00f067aa0ba902b7-01" % trace)])
        found = [(le, x) for le, x in exemplars(scrape(d)[1], create) if "trace_id" in x.labels]
        assert len(found) == 1 and found[0][1].labels == {"trace_id": trace} and 0.5 < found[0][1].value <= found[0][0]
        d.wait_log('audit .*trace="?' + trace)


def test_uids_only_where_the_operator_says_so(cloud):
    with running(cloud) as d, Api(d.socket) as api:
        api.call("SandboxService.Create")
        assert "uid=" not in scrape(d)[1]


def test_policies_and_limits_are_counted(cloud):
    """A rule that acts, and an answer of 429."""
    with running(cloud) as d, Api(d.socket) as api:
        box = api.call("SandboxService.Create", policy={"on_release": "KILL", "release_grace": 0.1}, sandbox_timeout=600).id
        lease = api.call("LeaseService.Acquire", sandbox=box, ttl=60)
        api.call("LeaseService.Release", lease_id=lease.id)
        until(lambda: cloud.sandbox(box).fate, 20, "the policy", d)
        cloud.fault("create", status=429, body='{"code": 429, "message": "slowly"}', headers=[("Retry-After", "1")])
        assert api.call("SandboxService.Create", timeout=20).id
        m = parsed(scrape(d)[1])
        assert value(m, "agentbox_policy_actions_total", rule="on_release", action="kill") == 1
        assert value(m, "agentbox_leases_ended_total", why="it was released") == 1
        assert value(m, "agentbox_cloud_limited_total", account="default") == 1
        assert value(m, "agentbox_cloud_repeats_total", account="default") >= 1


def test_the_port_is_this_machines(cloud):
    """A page in a browser that calls another name its own gets nothing; an address that others reach is an error."""
    with running(cloud) as d:
        assert scrape(d, "localhost:1")[1].endswith("# EOF\n")
        with pytest.raises(urllib.error.HTTPError) as e:
            scrape(d, "evil.example")
        assert e.value.code == 421
    for bad in ("0.0.0.0:9470", "localhost:9470", "127.0.0.1", "127.0.0.1:0", "nonsense"):
        with pytest.raises(AssertionError, match="is no loopback address with a port"):
            harness.Daemon(cloud, conf={"daemon": {"metrics_listen": bad}}).close()


def test_a_real_prometheus(cloud):
    """It scrapes, and finds what it scraped."""
    if not shutil.which("prometheus"):
        pytest.skip("prometheus is not installed")
    folder, port = harness.temp_dir(), free_port()
    with running(cloud) as d, Api(d.socket) as api:
        api.call("SandboxService.Create")
        with open(os.path.join(MONITORING, "prometheus.yml"), encoding="utf-8") as f:
            conf = f.read().replace("127.0.0.1:9470", "127.0.0.1:%d" % d.port).replace("15s", "1s")
        with open(folder + "/prometheus.yml", "w", encoding="utf-8") as f:
            f.write(conf)
        shutil.copy(os.path.join(MONITORING, "agentboxd.rules.yml"), folder)
        p = harness.Program("prometheus", ["prometheus", "--config.file=" + folder + "/prometheus.yml", "--storage.tsdb.path=" + folder + "/data",
                                           "--web.listen-address=127.0.0.1:%d" % port], folder=folder)
        try:
            query = "http://127.0.0.1:%d/api/v1/query?query=" % port

            def asked(what):
                with contextlib.suppress(OSError), urllib.request.urlopen(query + what, timeout=5) as r:
                    return json.load(r)["data"]["result"]
            got = until(lambda: asked("agentbox_sandbox_makes_total"), 60, "the first scrape", p)
            assert got[0]["value"][1] == "1" and got[0]["metric"]["result"] == "OK"
            assert asked("up")[0]["value"][1] == "1" and asked("agentbox_loop_pass_seconds_bucket")
        finally:
            p.proc.terminate()
            p.proc.wait(20)
            p.close()


def test_alert_rules():
    """promtool evaluates them against a good and a bad day."""
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    r = subprocess.run(["promtool", "test", "rules", "agentboxd.rules.test.yml"], cwd=MONITORING, capture_output=True, text=True)
    assert r.returncode == 0 and "SUCCESS" in r.stdout, r.stdout + r.stderr
    r = subprocess.run(["promtool", "check", "config", "prometheus.yml"], cwd=MONITORING, capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr


def test_rules_name_metrics_that_there_are(cloud):
    """A rule about a metric that the daemon does not have would never say anything."""
    with running(cloud) as d, Api(d.socket) as api:
        api.call("SandboxService.Create")
        families = set(re.findall(r"^# TYPE (\S+) ", scrape(d)[1], re.M))
    with open(os.path.join(MONITORING, "agentboxd.rules.yml"), encoding="utf-8") as f:
        named = {re.sub(r"_(total|bucket)$", "", n) for n in re.findall(r"\bagentbox_\w+", f.read())}
    assert named and named <= families, named - families


# -- traces

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def sent(cloud, since):
    """The traceparent of each request since then, by method and path without ids."""
    return {(r.method, re.sub(r"/i[a-z0-9]{19,}", "/ID", r.target.split("?")[0])): dict(r.headers).get("traceparent")
            for r in cloud.ledger.requests[since:]}


def test_a_trace_goes_on_to_the_cloud_and_into_the_log(cloud, daemon, api):
    """SERVERS 4: of gRPC metadata and of the gateway's requests, to the control plane and the agent; what is none is dropped."""
    good = "00-%s-%s-01" % (TRACE, PARENT)
    header = [("traceparent", good)]
    since = len(cloud.ledger.requests)
    box = api.call("SandboxService.Create", header=header).id
    assert sent(cloud, since)["POST", "/sandboxes"] == good
    since = len(cloud.ledger.requests)
    api.call("FileService.MakeDir", header=header, sandbox=box, path="/tmp/d")
    api.call("SandboxService.GetMetrics", header=header, sandbox=box)
    api.call("SandboxService.Pause", header=header, sandbox=box)
    api.call("SandboxService.Kill", header=header, sandbox=box)
    told = sent(cloud, since)
    for call in (("POST", "/filesystem.Filesystem/MakeDir"), ("GET", "/sandboxes/ID/metrics"), ("POST", "/sandboxes/ID/pause"),
                 ("DELETE", "/sandboxes/ID")):
        assert told[call] == good, (call, told)
    with pytest.raises(ApiError):
        api.call("SandboxService.Get", header=header, sandbox="nosuch")
    line, = until(lambda: logged(daemon, "call_failed"), 10, "a line", daemon)
    assert line["trace"] == TRACE
    assert {x["trace"] for x in logged(daemon, "audit")} == {TRACE}
    for bad in ([("traceparent", good.upper())], header * 2, [("traceparent", "00-%s-%s-01" % ("0" * 32, PARENT))]):
        since = len(cloud.ledger.requests)
        api.call("SandboxService.Create", header=bad)
        assert sent(cloud, since)["POST", "/sandboxes"] is None, bad
    assert logged(daemon, "audit")[-1]["trace"] == "-"


@contextlib.contextmanager
def with_gateway(cloud):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    d = harness.Daemon(cloud, {"gateway": {"listen": "127.0.0.1:%d" % port}})
    try:
        with Api(d.socket) as api:
            yield d, "http://127.0.0.1:%d" % port, api.call("TokenService.Create").secret
    finally:
        d.close()


def test_a_trace_of_a_request_to_the_gateway(cloud):
    with with_gateway(cloud) as (daemon, url, token):
        ask_gateway(cloud, daemon, url, token)


def ask_gateway(cloud, daemon, url, token):
    good = "00-%s-%s-00" % (TRACE, PARENT)
    for shown, want in ((good, good), ("cc-%s-%s-fe-more" % (TRACE, PARENT), "00-%s-%s-02" % (TRACE, PARENT)), (good + "x", None)):
        since = len(cloud.ledger.requests)
        ask = urllib.request.Request(url + "/sandboxes", json.dumps({"templateID": "base"}).encode(), method="POST",
                                     headers={"X-API-Key": token, "Content-Type": "application/json", "traceparent": shown})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(ask, timeout=30) as r:
            assert r.status == 201
        assert sent(cloud, since)["POST", "/sandboxes"] == want
        assert logged(daemon, "audit")[-1]["trace"] == (TRACE if want else "-")
