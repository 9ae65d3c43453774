# SPDX-License-Identifier: MIT
"""The pool as a whole, through agentboxd: what `agentboxctl pool` shows, the account's limits shared by all callers, many
streams under a peer's limit, few connections for many processes."""
import json
import os
import re
import shutil
import subprocess
import threading

import pytest

import harness
from api import Api, ApiError
from fakecloud import FakeCloud
from fakecloud.certs import Authority
from harness import until


def pool(d):
    return json.loads(d.ctl("pool", "--json").stdout)


def connections(d):
    return [c for o in pool(d)["origins"] for c in o["conns"]]


# -- seen

def test_pool_is_shown(cloud, daemon, api):
    """Origins, connections, streams, round trip, age, GOAWAYs, hold-downs; one line in the log for each change."""
    box = api.call("SandboxService.Create").id
    gate = cloud.gate()
    cloud.script("waiting", [("stdout", b"x"), ("gate", gate)])
    with api.stream("CommandService.Run", sandbox=box, shell="waiting") as s:
        while next(s).WhichOneof("event") != "output":
            pass
        shown = pool(daemon)
        assert [o["origin"] for o in shown["origins"]] == [cloud.url] * 2
        assert all(o["account"] == "default" and o["protocol"] == "h2" and o["connections"] == o["dials"] == 1
                   for o in shown["origins"]), shown
        assert sorted(o["streams"] for o in shown["origins"]) == [0, 1]
        for c in connections(daemon):
            assert c["state"] == "ready" and c["max_streams"] == 100 and c["rtt_us"] > 0, c
            assert c["peer"] == "127.0.0.1:%d" % cloud.port and c["silent_ms"] <= c["age_ms"], c
        assert shown["limits"][0]["account"] == "default" and shown["limits"][0]["max_in_flight"] > 0
        cloud.goaway(0, last="max")
        until(lambda: sum(o["goaways"] for o in pool(daemon)["origins"]) == 2, 10, "the GOAWAYs", daemon)
        states = [c["state"] for c in connections(daemon)]      # a listing of the daemon's own may have dialled
        assert "leaving" in states and set(states) <= {"leaving", "ready"}, states
        text = daemon.ctl("pool").stdout
        assert "leaving" in text and "GOAWAYS" in text and cloud.url in text
        gate.release()
        assert [e for e in s][-1].exited.exit_code == 0
    until(lambda: all(c["state"] == "ready" for c in connections(daemon)), 10, "the end of what was left", daemon)
    events = [line.split()[2] for line in daemon.log().splitlines() if " upstream_" in line]
    assert events.count("upstream_goaway") == events.count("upstream_closed") == 2, events
    assert 2 <= events.count("upstream_connected") <= 3 and len(events) == 4 + events.count("upstream_connected"), events


def test_hold_down_is_shown(cloud, daemon, api):
    """While the cloud cannot be reached: since when, why, and until when nothing is tried."""
    api.call("SandboxService.Create")
    cloud.refuse()
    with pytest.raises(ApiError):
        api.call("SandboxService.Create", timeout=10)
    o = until(lambda: next((o for o in pool(daemon)["origins"] if o["held_down_until"]), None), 20, "a hold-down", daemon)
    assert "refused" in o["last_error"] and o["last_error_at"] and o["failures"] >= 3, o
    assert o["last_error"] in daemon.ctl("pool").stdout
    cloud.refuse(False)
    assert api.call("SandboxService.Create", timeout=30).id
    daemon.wait_log("upstream_reached .*after_failures=")


def test_metrics(cloud):
    """OpenMetrics on a socket of its own, for its owner: every sample has its type, nothing names a sandbox."""
    if not shutil.which("curl"):
        pytest.skip("needs curl")
    d = harness.Daemon(cloud, conf={"daemon": {"metrics_socket": harness.temp_dir() + "/m"}})
    with Api(d.socket) as api:
        box = api.call("SandboxService.Create").id
        api.call("FileService.Stat", sandbox=box, path="/tmp")
    with open(d.conf_path, encoding="utf-8") as f:
        path = next(line.split()[2] for line in f if line.startswith("metrics_socket"))
    assert os.stat(path).st_mode & 0o777 == 0o600

    def curl(*args):
        return subprocess.run(["curl", "-sS", "--unix-socket", path, "-i", *args], capture_output=True, text=True,
                              timeout=20).stdout
    head, _, body = curl("http://x/metrics").partition("\n\n")
    assert head.startswith("HTTP/1.1 200") and "application/openmetrics-text; version=1.0.0" in head.lower(), head
    lines = body.split("\n")
    assert lines[-2:] == ["# EOF", ""] and box not in body
    types, values = {}, {}
    for line in lines[:-2]:
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in types
            types[name] = kind
        elif not line.startswith("# HELP "):
            name, _, value = line.rpartition(" ")
            base = re.sub(r"(_total|_info|_bucket|_count|_sum)?({.*)?$", "", name)
            assert base in types or re.sub(r"{.*", "", name) in types, line
            values[name] = float(value)
    assert values['agentbox_sandboxes{state="running"}'] == 1 and values['agentbox_pool_connections{account="default"}'] == 2
    assert values["agentbox_pool_calls_total"] >= 2 and values['agentbox_cloud_reachable{account="default"}'] == 1
    assert curl("http://x/").startswith("HTTP/1.1 404") and curl("-X", "POST", "http://x/metrics").startswith("HTTP/1.1 405")
    d.close()
    assert not os.path.exists(path)


class Wildcard(Authority):
    def issue(self, **kw):
        return Authority.issue(self, **dict(kw, san="DNS:*.box.localhost"))


def test_ids_are_for_admins(tmp_path):
    """Whoever knows the id of a sandbox may use it: the hosts of others' sandboxes are not shown to ordinary users."""
    if os.geteuid():
        pytest.skip("needs root")
    with FakeCloud(authority=Wildcard(str(tmp_path / "ca"))) as cloud:
        domain = "box.localhost:%d" % cloud.port
        d = harness.Daemon(cloud, conf={"account default": {"api_url": "https://api." + domain, "domain": domain,
                                                            "sandbox_url": None}})
        with Api(d.socket) as api:
            box = api.call("SandboxService.Create").id
            api.call("FileService.Stat", sandbox=box, path="/tmp")
        everything = d.ctl("pool", "--json").stdout + d.ctl("pool").stdout + d.ctl("status", "--json").stdout
        assert box in everything
        user = [harness.AGENTBOXCTL, "-s", d.socket]
        for words in (["pool", "--json"], ["pool"], ["status", "--json"]):
            out = subprocess.run(harness.as_user(1234, user + words), capture_output=True, text=True, timeout=60)
            assert out.returncode == 0 and box not in out.stdout and "https://*.box.localhost" in out.stdout, out
        d.close()


# -- the account's limits

def test_one_budget_for_all(cloud, daemon, api):
    """E7: the cloud tells its budget: 20 callers create two each, none meets 429, all are served."""
    budget = cloud.limit("create", burst=10, per_second=10)
    api.call("SandboxService.Create")           # what is learnt is kept
    done, failed = [], []

    def work():
        with Api(daemon.socket) as a:
            for _ in range(2):
                try:
                    done.append(a.call("SandboxService.Create", timeout=60).id)
                except ApiError as e:
                    failed.append(str(e))
    workers = [threading.Thread(target=work) for _ in range(20)]
    for w in workers:
        w.start()
    shown = until(lambda: next((r for r in pool(daemon)["limits"][0]["routes"] if r["next_at"]), None) or
                  len(done) == 40, 30, "somebody who waits", daemon)
    for w in workers:
        w.join(60)
    assert not failed and len(done) == len(set(done)) == 40, failed[:3]
    assert budget.refused == 0
    assert shown is True or (shown["route"], shown["burst"]) == ("create", 10) and 0 < shown["per_second"] <= 10, shown


def test_budget_beyond_the_deadline(cloud, daemon, api):
    """E7: who has no time to wait for the account's turn is told so, and nothing was asked."""
    budget = cloud.limit("create", burst=1, per_second=0.02)
    api.call("SandboxService.Create")
    with pytest.raises(ApiError) as e:
        api.call("SandboxService.Create", timeout=1)
    assert (e.value.code, e.value.reason) == ("RESOURCE_EXHAUSTED", "RATE_LIMITED"), e.value
    assert api.call("SandboxService.Get", sandbox=api.call("SandboxService.List").sandboxes[0].id).id
    assert budget.refused == 0 and cloud.ledger.count("create") == 1


def test_uids_take_turns(cloud):
    """E7: one uid asks for much, another for little: turns go round, so that who asks for little need not wait for all of it."""
    if os.geteuid():
        pytest.skip("needs root")
    d = harness.Daemon(cloud)
    ctl = [harness.AGENTBOXCTL, "-s", d.socket]
    with Api(d.socket) as api:
        api.call("SandboxService.Create")
        cloud.limit("create", burst=5, per_second=5)
        api.call("SandboxService.Create")
        calls = [api.future("SandboxService.Create", timeout=100) for _ in range(25)]
        until(lambda: pool(d)["limits"][0]["queued"] >= 15, 30, "the greedy one's calls", d)
        before = cloud.ledger.count("create")
        out = subprocess.run(harness.as_user(1234, ctl + ["create"]), capture_output=True, text=True, timeout=60)
        assert out.returncode == 0, out.stderr
        mine = [i for i, s in enumerate(cloud.ledger.of("create")) if '"1234"' in s.text()]
        assert len(mine) == 1 and mine[0] - before <= 6, (mine, before)
        for c in calls:
            assert c.result(100)
    d.close()


# -- many streams, few connections

def test_streams_under_a_limit(cloud, daemon, api):
    """400 sleeping commands and 50 stats a second against a peer's limit of 100 streams; then the limit is lowered to 50:
    all start, no connection is ever over its limit, no call fails."""
    box = api.call("SandboxService.Create").id
    gate = cloud.gate()
    cloud.script("waiting", [("stdout", b"x"), ("gate", gate)])
    stop, failed, stats = threading.Event(), [], []

    def ask():
        with Api(daemon.socket) as a:
            while not stop.wait(0.02):
                try:
                    stats.append(a.call("FileService.Stat", sandbox=box, path="/tmp"))
                except ApiError as e:
                    failed.append(str(e))
    asking = threading.Thread(target=ask)
    asking.start()
    n = 100 if harness.ASAN else 400
    try:
        streams = [api.stream("CommandService.Run", sandbox=box, shell="waiting %d" % i, timeout=100) for i in range(n)]
        for s in streams:
            while next(s).WhichOneof("event") != "output":
                pass
        assert cloud.ledger.open_streams >= n and cloud.ledger.peak_streams_one_conn <= 100
        long = cloud.ledger.connections
        assert long <= n // 80 + 3, long
        seen = len(stats)
        until(lambda: len(stats) > seen + 5 or failed, 20, "stats beside them")
        cloud.set_stream_limit(50)
        seen = len(stats)
        until(lambda: len(stats) > seen + 20 or failed, 20, "stats under the lower limit")
        more = [api.stream("CommandService.Run", sandbox=box, shell="waiting more", timeout=100) for _ in range(150)]
        for s in more:
            while next(s).WhichOneof("event") != "output":
                pass
        for c in connections(daemon):
            assert c["max_streams"] <= 50 or c["streams"] > 50, c
    finally:
        stop.set()
        asking.join()
        gate.release()
    for s in streams + more:
        *_, last = s
        assert last.exited.exit_code == 0
    assert not failed, failed[:3]


def test_few_connections_for_many(cloud, daemon, api):
    """P9: 100 clients with 20 calls each: the cloud sees at most three connections."""
    box = api.call("SandboxService.Create").id
    failed = []

    def work():
        with Api(daemon.socket) as a:
            for i in range(4 if harness.ASAN else 20):
                try:
                    if i % 2:
                        a.call("FileService.Stat", sandbox=box, path="/tmp")
                    else:
                        a.call("SandboxService.Get", sandbox=box, max_staleness=0)
                except ApiError as e:
                    failed.append(str(e))
    workers = [threading.Thread(target=work) for _ in range(100)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(90)
    assert not failed, failed[:3]
    assert cloud.ledger.connections <= 3


def test_fresh_process(cloud, daemon):
    """A21: the first call of a fresh process is one request on a connection that is there: no look before, no dial."""
    box = daemon.ctl("create").stdout.strip()
    daemon.ctl("exec", box, "--", "true")
    before, conns = len(cloud.ledger.requests), cloud.ledger.connections
    for _ in range(5):
        daemon.ctl("exec", box, "--", "true")
    routes = [s.route for s in cloud.ledger.requests[before:] if s.route != "list"]
    assert routes == ["process.Start"] * 5, routes
    assert cloud.ledger.connections == conns <= 2


def test_streams_are_cut_again_and_again(cloud, daemon, api):
    """A10, A11: something on the way resets every stream that was silent: the command goes on and its end is told once."""
    box = api.call("SandboxService.Create").id
    gate = cloud.gate()
    cloud.script("patient", [("gate", gate), ("stdout", b"done\n")])
    cloud.fault("process.Start", shape=dict(cut_after=1, how="reset"))
    cloud.fault("process.Connect", shape=dict(cut_after=1, how="reset"), times=3)
    with api.stream("CommandService.Run", sandbox=box, shell="patient", timeout=60) as s:
        cloud.ledger.wait_requests("process.Connect", 4)
        until(lambda: cloud.ledger.of("process.Connect")[-1].status == 200, 10, "the last stream")
        gate.release()
        said = list(s)
    out = b"".join(e.output.data for e in said if e.WhichOneof("event") == "output")
    assert out == b"done\n" and said[-1].exited.exit_code == 0, said


def test_token_is_asked_for_again(cloud, daemon, api):
    """A-37: the agent refuses the token that we knew: the sandbox is asked for again, once, and the call goes on."""
    box = api.call("SandboxService.Create").id
    api.call("FileService.Stat", sandbox=box, path="/tmp")
    cloud.sandbox(box).token = "another-token"
    assert api.call("FileService.Stat", sandbox=box, path="/tmp").path
    assert cloud.ledger.of("filesystem.Stat")[-1].header("x-access-token") == "another-token"
