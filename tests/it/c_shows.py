# SPDX-License-Identifier: MIT
"""What lifecycle promises, on agentbox-local, by its journal: whose owner dies is gone after its grace and no sooner, what
is held stays, one request id makes one sandbox through any number of crashes. In the suite with short times;
`sh tests/shows.sh` runs it with the full ones, and only then is judged how soon something happened.
"""
import collections
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

import harness
from api import Api
from c_lease import Owner
from c_storm import WORKER
from chaosproxy import ChaosProxy
from conftest import built
from harness import temp_dir, until
from wire import Client

FULL = bool(os.environ.get("SHOWS_FULL"))
RUNNING, PAUSED = 2, 4
PROCESSES, KILLS = 8, 20
MOST = 15               # request ids of one process
GRACE = 2


class Cloud(harness.LocalCloud):
    """agentbox-local with its journal."""

    def journal(self, box=None):
        with open(os.path.join(self.state_dir, "journal.ndjson"), encoding="utf-8") as f:
            rows = [json.loads(line) for line in f.read().split("\n")[:-1]]     # the last one may be half written
        return [r for r in rows if box in (None, r.get("sandbox"))]

    def ops(self, box=None):
        return [r["op"] for r in self.journal(box)]

    def wait_gone(self, box, timeout, program):
        """The journal's moment of its end, as time.time()."""
        row = until(lambda: [r for r in self.journal(box) if r["op"] == "gone"], timeout, "the end of " + box, program)[0]
        return datetime.datetime.fromisoformat(row["time"].replace("Z", "+00:00")).timestamp()

    def get(self, box):
        r = Client(self.plain_url, self.key).api("GET", "/sandboxes/" + box)
        return r.json() if r.status == 200 else None


@pytest.fixture
def own():
    built(harness.AGENTBOX_LOCAL)
    c = Cloud()
    traces = harness.Traces(c.home).look(c.pid)
    yield c
    c.close()
    traces.gone()


@pytest.fixture
def owned(own):
    built(harness.AGENTBOXD)
    d = harness.Daemon(own)
    yield d
    d.close()


def policy(action):
    return {"on_release": action, "release_grace": GRACE}


@pytest.mark.parametrize("words", [(), ("fork",)])
def test_its_owner_dies(own, owned, words):
    """Also when a forked child keeps the socket open."""
    with Owner(owned, policy("KILL"), *words) as owner:
        died = time.time()
        owner.die()
        after = own.wait_gone(owner.box, 20, owned) - died
    assert after >= GRACE - 0.01
    print("%s: gone %.2f s after the death of its owner" % (" ".join(words) or "alone", after))
    assert after < 4 or not FULL
    assert own.ops(owner.box) == ["POST sandboxes", "gone", "DELETE sandboxes"]


@pytest.mark.timeout(180)
def test_its_owner_stands_still(own, owned):
    with Owner(owned, policy("KILL")) as owner:
        os.kill(owner.proc.pid, signal.SIGSTOP)
        time.sleep(60 if FULL else 3)       # the time is the subject: nothing may happen in it but extensions
        assert set(own.ops(owner.box)) <= {"POST sandboxes", "POST refreshes"}
        with Api(owned.socket) as api:
            assert api.call("SandboxService.Get", sandbox=owner.box, max_staleness=0).leases == 1
        os.kill(owner.proc.pid, signal.SIGCONT)
        died = time.time()
        owner.die()
        assert own.wait_gone(owner.box, 20, owned) >= died + GRACE - 0.01


@pytest.mark.parametrize("action", ["LEAVE", "PAUSE"])
def test_other_policies(own, owned, action):
    with Owner(owned, policy("KILL")) as other, Owner(owned, policy(action)) as owner:
        owner.die()
        with Api(owned.socket) as api:
            until(lambda: len(api.call("LeaseService.List").leases) == 1, what="the end of the lease", program=owned)
            other.die()
            own.wait_gone(other.box, 20, owned)     # whose grace ends later
            want = PAUSED if action == "PAUSE" else RUNNING
            until(lambda: api.call("SandboxService.Get", sandbox=owner.box, max_staleness=0).state == want, 20,
                  "what the policy says", owned)
            assert own.ops(owner.box) == ["POST sandboxes"] + (["POST pause"] if action == "PAUSE" else [])


@pytest.mark.timeout(240)
def test_a_short_timeout_is_extended(own, owned):
    """A sandbox with 15 s lives as long as it is held, and no longer; its end is never lowered."""
    ends, looked = [], [0]

    def look():
        """Ten times a second; false when it is gone."""
        if time.monotonic() < looked[0] + 0.1:
            return True
        looked[0] = time.monotonic()
        box_now = own.get(box)
        if box_now:
            ends.append(box_now["endAt"])
        return box_now

    with Api(owned.socket) as api:
        box = api.call("SandboxService.Create", sandbox_timeout=15).id
        lease = api.call("LeaseService.Acquire", sandbox=box, process=True).id
        began = time.monotonic()
        until(lambda: not look() or time.monotonic() > began + (60 if FULL else 16), 80, "the time", owned)
        assert own.get(box), "it is gone"
        api.call("LeaseService.Release", lease_id=lease)
        released = time.monotonic()
        until(lambda: not look(), 60, "its end", owned)
        print("gone %.1f s after its release" % (time.monotonic() - released))
        assert time.monotonic() - released < 30 or not FULL
        own.wait_gone(box, 20, owned)       # all of it
    assert len(ends) > 10 and ends == sorted(ends)
    rows = own.journal(box)
    assert {r["op"] for r in rows} == {"POST sandboxes", "POST refreshes", "gone"}
    assert all(r["asked"]["duration"] == 15 for r in rows if r["op"] == "POST refreshes")
    assert rows[-1]["why"] == "expired"


class Behind:
    """A cloud as the daemon sees it through a relay."""

    def __init__(self, local, proxy):
        self.url, self.ca, self.key = "https://127.0.0.1:%d" % proxy.port, local.ca, local.key


class Crowd:
    """Processes that create by request id and hold what they got, and what they say of it."""

    def __init__(self, socket, folder):
        self.stop = os.path.join(folder, "stop")
        self.outputs = [os.path.join(folder, "w%d" % i) for i in range(PROCESSES)]
        self.all = []
        for i, path in enumerate(self.outputs):
            with open(path, "wb") as out:
                self.all.append(subprocess.Popen([sys.executable, "-c", WORKER, socket, "w%d" % i, self.stop, str(MOST)],
                                                 stdin=subprocess.PIPE, stdout=out))

    def lines(self):
        out = []
        for path in self.outputs:
            with open(path, encoding="ascii") as f:
                out += f.read().split("\n")[:-1]
        return out

    def done(self):
        assert all(w.poll() is None for w in self.all), "a worker has ended"
        return self.lines().count("done") == PROCESSES

    def told(self):
        told = {}
        for line in self.lines():
            if line != "done":
                request, box = line.split()
                assert told.setdefault(request, box) == box
        return told

    def end(self):
        for w in self.all:
            w.kill()
            w.wait()
            w.stdin.close()


def compare(own, d, told):
    """The list of the cloud, that of the store, and the journal of what was accepted."""
    tries = collections.defaultdict(list)
    for r in own.journal():
        if r["op"] == "POST sandboxes":
            tries[r["asked"]["metadata"]["agentbox.req"]].append(r)
    for tag, rows in tries.items():
        accepted = [r["sandbox"] for r in rows if r["status"] == 201]
        assert len(accepted) <= 1, "one request id, accepted more than once: %s" % accepted
        assert all(r["status"] != 201 for r in rows[:-1]), "%s went out again after it was accepted" % tag
    made = {r["sandbox"] for rows in tries.values() for r in rows if r["status"] == 201}
    assert len(set(told.values())) == len(told), "two request ids, one sandbox"
    assert set(told.values()) <= made
    ops = own.ops()
    assert "DELETE sandboxes" not in ops and "gone" not in ops and "POST pause" not in ops and "POST timeout" not in ops
    with Api(d.socket) as api:
        def listed():
            return {s.id for s in api.call("SandboxService.List", page_size=1000).sandboxes}
        until(lambda: listed() == made, 30, "the store equal to the cloud", d)
        leased = {x.sandbox for x in api.call("LeaseService.List", page_size=1000).leases}
        assert leased >= set(told.values())


@pytest.mark.timeout(400)
def test_one_request_id_one_sandbox(own):
    """The daemon is killed 20 times while 8 processes create and hold; as often its answers are lost on the way."""
    folder = temp_dir("abd-")
    conf = {"daemon": {"unclaimed_grace": "600s"}}
    with ChaosProxy("127.0.0.1", int(own.url.rpartition(":")[2])) as proxy:
        proxy.latency = 0.03
        d = harness.Daemon(Behind(own, proxy), folder=folder, conf=conf)
        crowd = Crowd(d.socket, folder)

        def posts():
            return own.ops().count("POST sandboxes")

        try:
            for n in range(2 * KILLS):
                before = posts()
                until(lambda: posts() > before or crowd.done(), 30, "one more sandbox", d)
                if n % 2:
                    d.kill9()
                    d = harness.Daemon(Behind(own, proxy), folder=folder, conf=conf)
                else:
                    proxy.cut_all()
            open(crowd.stop, "w").close()
            until(crowd.done, 30, "the end of all that create", d)
            told = crowd.told()
            print("%d POSTs, %d sandboxes told" % (posts(), len(told)))
            compare(own, d, told)
            crowd.end()
            until(lambda: set(own.ops()) >= {"gone"} and not [b for b in told.values() if own.get(b)], 60,
                  "the end of all that were held", d)
        finally:
            crowd.end()
            d.close()
            shutil.rmtree(folder)
