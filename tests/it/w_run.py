# SPDX-License-Identifier: MIT
"""agentboxctl run: its sandboxes do not outlive the program, however it dies (GATEWAY §4.3).

RUNS=100 repeats each death that often, as tests/shows.sh does; by itself a few are tried."""
import json
import os
import signal
import subprocess
import time
import urllib.request

import pytest

import harness
from harness import until
from w_door import Run, ask, is_401, is_gone, port_of, runs, runtime     # noqa: F401 (fixtures)

RUNS = int(os.environ.get("RUNS", "3"))
GRACE_S = 1.0
CONF = {"policy": {"release_grace": "1s"}, "daemon": {"restart_grace": "2s"}}


@pytest.fixture
def place(cloud, runtime):
    p = Place(cloud, runtime)
    yield p
    p.close()


class Place:
    """A daemon whose gateway is on, which may be killed and started again."""

    def __init__(self, cloud, runtime):
        self.cloud, self.runtime = cloud, runtime
        self.folder = harness.temp_dir()
        self.d = self.started()
        self.port = port_of(self.d)

    def started(self):
        return harness.Daemon(self.cloud, conf=CONF, folder=self.folder,
                              env={"XDG_RUNTIME_DIR": self.runtime, "HOME": self.runtime})

    def crash(self):
        self.d.kill9()

    def start(self):
        self.d = self.started()
        assert port_of(self.d) == self.port

    def close(self):
        self.d.close()

    def deleted(self, box):
        return [s for s in self.cloud.ledger.requests if s.method == "DELETE" and s.target == "/sandboxes/" + box]

    def run(self, *args):
        """A run whose program made a sandbox, by what any SDK sends."""
        r = Run(self.d, args=args)
        r.box = self.create(r)
        return r

    def create(self, r, **headers):
        q = urllib.request.Request(r.url + "/sandboxes", data=b'{"templateID": "base", "timeout": 300}', method="POST",
                                   headers={"X-API-Key": r.token, "Content-Type": "application/json", **headers})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(q, timeout=20) as answer:
            return json.load(answer)["sandboxID"]

    def wait_deleted(self, r, since, slack=1.0):
        """DELETE within a second after grace, and none before it."""
        until(lambda: self.deleted(r.box), GRACE_S + slack + 10, "the DELETE of " + r.box, self.d)
        took = time.monotonic() - since
        assert GRACE_S * 0.9 <= took <= GRACE_S + slack + (3 if harness.ASAN else 0), took


@pytest.mark.timeout(60 + 10 * RUNS)
def test_the_program_killed(place):
    for _ in range(RUNS):
        r = place.run()
        os.kill(r.child, signal.SIGKILL)
        since = time.monotonic()
        assert r.end()[0] == 137
        place.wait_deleted(r, since)
        assert is_401(ask(place.port, X_API_KEY=r.token))
    assert not json_lines(place.d.ctl("--json", "ls").stdout)


@pytest.mark.timeout(60 + 10 * RUNS)
def test_agentboxctl_killed(place):
    for _ in range(RUNS):
        r = place.run()
        r.proc.kill()
        since = time.monotonic()
        until(lambda: is_gone(r.child), 5, "the program's end")
        r.end()
        place.wait_deleted(r, since)


@pytest.mark.timeout(60 + 20 * RUNS)
def test_the_daemon_killed_in_between(place):
    """The run goes on over it; then it ends, before the daemon is there again or after it."""
    for n in range(RUNS):
        r = place.run()
        place.crash()
        if n % 2:
            os.kill(r.child, signal.SIGKILL)
            r.end()
        place.start()
        since = time.monotonic()
        if n % 2 == 0:
            assert not is_401(ask(place.port, X_API_KEY=r.token))
            os.kill(r.child, signal.SIGKILL)
            since = time.monotonic()
            r.end()
            place.wait_deleted(r, since)
        else:
            assert is_401(ask(place.port, X_API_KEY=r.token))
            place.wait_deleted(r, since, slack=4)


def json_lines(text):
    return [json.loads(x) for x in text.splitlines()]


def test_what_is_left_or_paused(place):
    left, paused = place.run("--on-release", "leave"), place.run("--on-release", "pause")
    for r in (left, paused):
        os.kill(r.child, signal.SIGKILL)
        r.end()
    until(lambda: [s for s in place.cloud.ledger.requests if s.target == "/sandboxes/%s/pause" % paused.box], 10, "the pause", place.d)
    assert not place.deleted(left.box) and not place.deleted(paused.box)
    assert left.box in {b["id"] for b in json_lines(place.d.ctl("--json", "ls").stdout)}


def policy_of(place, box):
    return json.loads(place.d.ctl("--json", "get", box).stdout)["policy"]


def test_a_policy_of_all_that_it_makes(place):
    """GATEWAY §1: the policy options of a run; kept with its token, also over a crash; what a create says goes before."""
    r = place.run("--policy", "idle_timeout=10m,on_idle=kill,on_release=pause", "--policy", "max_age=2h,idle_timeout=20m,on_idle=kill,on_release=pause")
    want = {"idle_timeout_ms": 1200000, "on_idle": "kill", "max_age_ms": 7200000, "on_release": "pause", "keep_alive": False}
    p = policy_of(place, r.box)
    assert {k: p[k] for k in want} == want
    place.crash()
    place.start()
    p = policy_of(place, place.create(r))
    assert {k: p[k] for k in want} == want
    p = policy_of(place, place.create(r, **{"Agentboxd-Policy": "on_idle=pause, on_release=leave"}))
    assert {k: p[k] for k in want} == {**want, "on_idle": "pause", "on_release": "leave"}
    token, = json_lines(place.d.ctl("--json", "token", "ls").stdout)
    assert token["policy"] == "idle_timeout=1200000ms,on_idle=kill,max_age=7200000ms"
    r.proc.terminate()
    r.end()
    until(lambda: [s for s in place.cloud.ledger.requests if s.target == "/sandboxes/%s/pause" % r.box], 10, "the pause", place.d)


def test_bad_policies(place):
    for args, code, what in ((("--policy", "x=1"), 2, "x=1"), (("--policy", "on_release=pause", "--on-release", "kill"), 2, "--on-release"),
                             (("--policy", "on_gone=recreate"), 125, "policy.on_gone"), (("--policy", "max_age=1000d"), 125, "policy.max_age")):
        r = place.d.ctl("run", *args, "--", "true", check=False)
        assert r.returncode == code and what in r.stderr, r
    assert not place.d.ctl("--json", "token", "ls").stdout
    t = json.loads(place.d.ctl("--json", "token", "create", "--policy", "on_release=pause,keep_alive=yes").stdout)
    assert t["policy"] == "keep_alive=yes,on_release=pause" and not t["run_pid"]


def test_a_lease_keeps_it_while_the_run_lives(place):
    r = place.run()
    leases = json_lines(place.d.ctl("--json", "lease", "ls").stdout)
    assert [(x["sandbox"], x["pid"]) for x in leases] == [(r.box, r.proc.pid)]
    r.proc.terminate()
    r.end()


def test_children_of_the_program_do_not_keep_it(place):
    r = place.run()
    with subprocess.Popen(["sleep", "30"]) as other:
        os.kill(r.child, signal.SIGKILL)
        since = time.monotonic()
        r.end()
        place.wait_deleted(r, since)
        other.kill()
