# SPDX-License-Identifier: MIT
"""agentboxd dies at every crash point that it has, again and again, under a random load; then the cloud's ledger is held
against the store and against what the callers were told.

agentboxd-fp is the daemon with the crash points of daemon/common/obs/failpoint.h compiled in, and with a settlement that gives
up after a fraction of a second. Every choice comes from a seed: $CRASH_SEED; $CRASH_CYCLES (300) is how many times it
dies. A point that a life does not reach is a failure: nothing was tested there.
"""
import collections
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest

import harness
from api import Api, ApiError
from conftest import built
from harness import until

FP = os.path.join(harness.BUILD, "daemon", "agentboxd-fp")
SEED = int(os.environ.get("CRASH_SEED", "1"))
CYCLES = int(os.environ.get("CRASH_CYCLES", "300"))
WORKERS = 3
EVERY = 50              # so many deaths, then everything is compared
RUNNING, PAUSED = 2, 4
EXITED, UNKNOWN = 1, 5
ENDED = ("SANDBOX_PAUSED", "SANDBOX_KILLED", "SANDBOX_EXPIRED")     # what a repeat finds where its sandbox is used no more
CONF = {"daemon": {"unclaimed_grace": "3600s", "reconcile_period": "1s", "log_level": "warn"}}
# What a load must do to pass a point, by its name or the beginning of it.
LOADS = {
    "create.": ["create"], "resolve.": ["lost_create", "unsent_create"], "lease.committed": ["acquire"],
    "lease.before_end": ["release"], "transition.": ["pause", "connect"], "copy.resolve_listed": ["lost_fork", "lost_snapshot"],
    "copy.": ["fork", "snapshot"], "kill.": ["kill", "release_kill"], "extend.": ["short"],
    "pause.": ["release_pause"], "policy.": ["release_pause", "release_kill"], "command.": ["start"],
    "random": [],
}
SLOW = ("extend.sent", "resolve.closed")      # one takes a while: the first one counts
ALL = ["create", "create", "repeat", "repeat", "acquire", "release", "pause", "connect", "set_policy", "fork", "snapshot",
       "kill", "release_kill", "release_pause", "start", "start", "get", "lost_create", "unsent_create"]


def points():
    """Every FAILPOINT of the sources but those of warm ones, which c_warm.py has."""
    found = set()
    for folder, _, names in os.walk(os.path.join(harness.ROOT, "daemon")):
        for name in names:
            if name.endswith(".c"):
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    found.update(re.findall(r'FAILPOINT\("([^"]+)"\)', f.read()))
    return sorted(p for p in found if not p.startswith("warm."))


def load_for(point):
    fits = [p for p in LOADS if point.startswith(p)]
    assert fits, "no load reaches the crash point %s: add one to LOADS" % point
    return LOADS[max(fits, key=len)]


class Box:
    """What its owner may expect of a sandbox. Every sandbox has one owner, who does one thing at a time."""

    def __init__(self, box_id, action, cap=False):
        self.id, self.action, self.short = box_id, action, cap
        self.leases = []        # ids that were told
        self.unsure = False     # a lease may be there that was not told
        self.state = RUNNING    # None: an answer was lost
        self.max_age = {None}
        self.fate = "alive"     # "killed", "released" (its policy ends or pauses it), "either"
        self.copied = set()     # "fork", "snapshot": asked for once
        self.since = None       # held by a lease since so many requests of the cloud's ledger

    def lasts(self):
        """Nothing but a call of its owner's ends or pauses it."""
        return self.since is not None or self.action == "LEAVE"

    def is_free(self):
        return self.since is None and not self.unsure and not self.copied and self.action == "LEAVE"


class Owner:
    """One caller: its sandboxes, what it was told, what it was not."""

    def __init__(self, storm, n):
        self.storm, self.n = storm, n
        self.boxes, self.told, self.doubts, self.started = [], {}, {}, {}
        self.numbers = 0
        self.patience = 4

    # -- one life of the daemon

    def live(self, api, rng, wanted, over):
        while not over():
            op = rng.choice(wanted) if wanted and rng.random() < 0.6 else rng.choice(ALL)
            try:
                getattr(self, op)(api, rng)
            except ApiError as e:
                if e.code == "UNAVAILABLE" and not e.reason:
                    return      # nothing that the daemon said: its connection has ended
                if e.code not in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
                    raise

    def number(self):
        self.numbers += 1
        return "%d-%d" % (self.n, self.numbers)

    def pick(self, rng, fits):
        """One that is there and is as wanted. Those that are short are let be: in a slow life one may expire."""
        some = [b for b in self.boxes if b.fate == "alive" and not b.short and fits(b)]
        return rng.choice(some) if some else None

    def call(self, api, method, **fields):
        return api.call(method, timeout=self.patience, **fields)

    # -- by request id

    def ask(self, api, request, method, fields, then):
        """A call that may be repeated for ever; what it answers once it answers always."""
        self.doubts[request] = (method, fields, then)
        got = self.call(api, method, request_id=request, **fields)
        del self.doubts[request]
        key = got.command_id if method == "CommandService.Start" else str(got) if "Fork" in method else got.id
        if "Fork" in method:
            key = " ".join(sorted(r.sandbox.id for r in got.results))
        known = self.told.setdefault(request, key)
        assert known == key, "%s %s was %s and is %s" % (method, request, known, key)
        then(got)

    def repeat(self, api, rng):
        if self.doubts:
            self.repeat_one(api, rng.choice(sorted(self.doubts)))

    def repeat_one(self, api, request):
        """Its object, or that nobody knows, or that its sandbox is not there any more; never a second one."""
        try:
            self.ask(api, request, *self.doubts[request])
        except ApiError as e:
            if e.reason in ENDED and self.doubts[request][0] != "SandboxService.Create":
                del self.doubts[request]
            else:
                raise

    def create(self, api, rng, **more):
        if len(self.storm.cloud.by_id) > 150:
            return self.thin_out(api, rng)
        action = rng.choice(["LEAVE", "PAUSE", "KILL"])
        lease = rng.random() < 0.5
        fields = dict({"process_lease": lease, "sandbox_timeout": 3600, "metadata": {"k": self.number()},
                       "policy": {"on_release": action, "release_grace": 0}}, **more)
        self.ask(api, self.number(), "SandboxService.Create", fields, lambda got: self.made(got, fields))

    def thin_out(self, api, rng):
        """Too many of them make lists long. Nobody owns a fork's children."""
        children = [s.id for s in list(self.storm.cloud.by_id.values()) if s.forked_from]
        if children:
            self.call(api, "SandboxService.Kill", sandbox=rng.choice(children))
        elif self.doubts:
            self.repeat(api, rng)
        else:
            self.kill(api, rng)

    def made(self, got, fields):
        if any(b.id == got.id for b in self.boxes):
            return
        b = Box(got.id, fields["policy"]["on_release"], fields["sandbox_timeout"] == 15)
        # A repeat of one that was made already answers what it is now; its process's lease is there all the same.
        b.unsure = fields["process_lease"]
        if fields["process_lease"]:
            b.since = self.storm.requests()
        self.boxes.append(b)

    def lost_create(self, api, rng):
        self.storm.cloud.fault("create", when="after", cut=True)
        self.create(api, rng)

    def unsent_create(self, api, rng):
        self.storm.cloud.fault("create", when="before", cut=True)
        self.create(api, rng)

    def short(self, api, rng):
        """Held, and with an end that comes soon: it must be extended."""
        if not any(b.short and not self.storm.cloud.sandbox(b.id).fate for b in self.boxes):
            self.create(api, rng, sandbox_timeout=15, process_lease=True)
        else:
            self.get(api, rng)

    def copy(self, api, rng, what):
        b = self.pick(rng, lambda b: b.state == RUNNING and what not in b.copied and b.lasts())
        if not b:
            return self.create(api, rng, process_lease=True)
        b.copied.add(what)
        if what == "fork":
            return self.ask(api, self.number(), "SandboxService.Fork", {"sandbox": b.id, "sandbox_timeout": 3600},
                            lambda got: None)
        self.ask(api, self.number(), "SnapshotService.Create", {"sandbox": b.id}, lambda got: None)

    def fork(self, api, rng):
        self.copy(api, rng, "fork")

    def snapshot(self, api, rng):
        self.copy(api, rng, "snapshot")

    def lost_fork(self, api, rng):
        self.storm.cloud.fault("fork", when="after", cut=True)
        self.fork(api, rng)

    def lost_snapshot(self, api, rng):
        self.storm.cloud.fault("snapshot", when="after", cut=True)
        self.snapshot(api, rng)

    def start(self, api, rng):
        b = self.pick(rng, lambda b: b.state == RUNNING and b.lasts())
        if not b:
            return self.create(api, rng, process_lease=True)
        request = self.number()
        self.started[request] = b
        self.ask(api, request, "CommandService.Start",
                 {"sandbox": b.id, "argv": {"args": ["quick", "n" + request]}, "detach": True}, lambda got: None)

    # -- without one: whoever is not answered does not know

    def acquire(self, api, rng):
        b = self.pick(rng, lambda b: True)
        if b:
            b.unsure = True
            b.leases.append(self.call(api, "LeaseService.Acquire", sandbox=b.id, process=True).id)
            if b.since is None:
                b.since = self.storm.requests()

    def release(self, api, rng, action=None):
        b = self.pick(rng, lambda b: b.since is not None and action in (None, b.action))
        if not b:
            return self.create(api, rng, process_lease=True,
                               policy={"on_release": action or "LEAVE", "release_grace": 0})
        b.since = None
        if b.action != "LEAVE":
            b.fate = "either"
        if b.unsure:
            b.leases = [x.id for x in self.call(api, "LeaseService.List", sandbox=b.id).leases]
        for lease in b.leases:
            self.call(api, "LeaseService.Release", lease_id=lease)
        b.leases, b.unsure = [], False
        if b.action != "LEAVE":
            b.fate = "released"

    def release_kill(self, api, rng):
        self.release(api, rng, "KILL")

    def release_pause(self, api, rng):
        self.release(api, rng, "PAUSE")

    def kill(self, api, rng):
        b = self.pick(rng, lambda b: True)
        if not b:
            return self.create(api, rng)
        b.fate = "either"
        self.call(api, "SandboxService.Kill", sandbox=b.id)
        b.fate = "killed"

    def pause(self, api, rng):
        b = self.pick(rng, lambda b: b.state == RUNNING and b.is_free())
        if not b:
            return self.create(api, rng, process_lease=False)
        b.state = None
        self.call(api, "SandboxService.Pause", sandbox=b.id)
        b.state = PAUSED

    def connect(self, api, rng):
        b = self.pick(rng, lambda b: b.state != RUNNING and b.is_free())
        if not b:
            return self.pause(api, rng)
        b.state = None
        self.call(api, "SandboxService.ConnectSandbox", sandbox=b.id, sandbox_timeout=3600)
        b.state = RUNNING

    def set_policy(self, api, rng):
        b = self.pick(rng, lambda b: True)
        if b:
            age = rng.randrange(100000, 2000000)
            b.max_age = b.max_age | {age}
            self.call(api, "SandboxService.SetPolicy", sandbox=b.id, policy={"max_age": age})
            b.max_age = {age}

    def get(self, api, rng):
        b = self.pick(rng, lambda b: True)
        if b:
            self.call(api, "SandboxService.Get", sandbox=b.id, max_staleness=0)


class Storm:
    def __init__(self, cloud):
        self.cloud = cloud
        self.folder = harness.temp_dir("abd-")
        self.rng = random.Random(SEED)
        self.owners = [Owner(self, n) for n in range(WORKERS)]
        self.reflected = None
        self.deaths = collections.Counter()
        self.d = None

    def start(self, point, wait=True):
        env = {"AGENTBOXD_FAILPOINT": point} if point else {}
        saved, harness.AGENTBOXD = harness.AGENTBOXD, FP
        try:
            self.d = harness.Daemon(self.cloud, folder=self.folder, conf=CONF, env=env, wait=wait)
        finally:
            harness.AGENTBOXD = saved

    def api(self):
        a = Api(self.d.socket, like=self.reflected)
        self.reflected = self.reflected or a
        for service in ("SandboxService", "SnapshotService", "LeaseService", "CommandService", "DaemonService"):
            a.service(service)
        return a

    # -- lives

    def live(self, n, point):
        """One life, to its end by the crash point. What is extended may have been made in it, with an end far away: then it is killed
        as anywhere, the end comes near, and another one begins."""
        rng = random.Random(SEED * 1000003 + n)
        spec = "" if point == "random" else "%s=kill@%d" % (point, rng.choice([1, 1, 1, 2, 2, 3, 5]) if point not in SLOW else 1)
        if point == "extend.sent":
            self.hasten()
            if not self.live_for(15, point, spec, rng):
                self.d.kill9()
                self.hasten()
                self.live_until_killed(point, spec, rng)
        else:
            self.live_until_killed(point, spec, rng)
        self.deaths[point] += 1
        self.cloud.clear_faults()

    def live_until_killed(self, point, spec, rng):
        if not self.live_for(60, point, spec, rng):
            raise AssertionError("the crash point %s was not reached\n%s\n%s" % (spec, self.short_ones(), self.d.tail(60)))

    def live_for(self, seconds, point, spec, rng):
        """Did it end by the crash point within that time?"""
        self.start(spec, wait=False)
        try:
            self.d.wait_ready(30)
        except AssertionError:
            assert self.d.proc.poll() == -signal.SIGKILL, self.d.tail()     # at the point, before it served
        failed, end = [], time.monotonic() + seconds
        calls = rng.randrange(1, 30)
        done = []

        def over():
            done.append(1)
            if point == "random" and len(done) > calls:
                self.d.proc.kill()
            return failed or self.d.proc.poll() is not None or time.monotonic() > end

        def work(owner, seed, api):
            try:
                owner.live(api, random.Random(seed), load_for(point), over)
            except BaseException as e:
                failed.append(e)

        if self.d.proc.poll() is None:
            with self.api() as api:
                threads = [threading.Thread(target=work, args=(o, rng.random(), api)) for o in self.owners]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
        if failed:
            raise failed[0]
        try:
            assert self.d.proc.wait(5) == -signal.SIGKILL, self.d.tail()
        except subprocess.TimeoutExpired:
            return False
        return True

    def short_ones(self):
        """For whoever has to find out why nothing was extended."""
        return ["%s ends in %.1f s, fate %s, leases %s%s" % (s.id, s.end_at - self.cloud.now(), s.fate, b.leases, ", unsure" if b.unsure else "")
                for o in self.owners for b in o.boxes if b.short for s in [self.cloud.sandbox(b.id)]]

    def hasten(self):
        """The ends of those that are short come near while the daemon is away."""
        ends = [s.end_at for o in self.owners for b in o.boxes if b.short for s in [self.cloud.sandbox(b.id)]
                if not s.fate]
        if ends and min(ends) - self.cloud.now() > 4:
            self.cloud.advance(min(ends) - self.cloud.now() - 4)

    def requests(self):
        return len(self.cloud.ledger.requests)

    # -- the comparison

    def compare(self):
        """Without faults everything comes to rest; then the ledger, the store and the callers agree."""
        self.start(None)
        ledger = self.cloud.ledger
        with self.api() as api:
            until(lambda: api.call("DaemonService.Status").store.open_intents == 0, 30, "the end of all settlements", self.d)
            until(lambda: self.listed(api) == self.truth(), 30, "the store equal to the cloud", self.d)
            for o in self.owners:
                for b in o.boxes:
                    self.compare_box(api, b)
                self.repeat_all(api, o)
                self.compare_commands(api, o)
            self.compare_ledger(ledger)
            self.sweep(api)
        self.d.kill9()

    def listed(self, api):
        got, token = {}, ""
        while True:
            r = api.call("SandboxService.List", page_size=1000, page_token=token)
            got.update({s.id: s.state for s in r.sandboxes})
            token = r.next_page_token
            if not token:
                return got

    def truth(self):
        return {s.id: PAUSED if s.state == "paused" else RUNNING for s in self.cloud.ledger.alive()}

    def compare_box(self, api, b):
        s = self.cloud.sandbox(b.id)
        if b.fate == "killed":
            assert s.fate == "killed", (b.id, s.fate)
        elif b.fate == "released":
            until(lambda: s.fate == "killed" if b.action == "KILL" else s.state == "paused", 20,
                  "what the policy of %s says" % b.id, self.d)
        elif b.fate == "alive":
            if b.since is not None:      # its holder, this process, lives
                sent = [r for r in self.cloud.ledger.requests[b.since:]
                        if r.route in ("delete", "pause") and r.path.split("/")[2] == b.id]
                assert not sent, "%s is held: %s" % (b.id, sent)
            if not b.short:
                assert s.fate is None, "%s: %s" % (b.id, s.fate)
                got = api.call("SandboxService.Get", sandbox=b.id)
                assert b.state in (None, got.state)
                b.state = got.state
                age = got.policy.max_age.seconds if got.policy.HasField("max_age") else None
                assert age in b.max_age, (b.id, age, b.max_age)

    def repeat_all(self, api, o):
        """What is still in doubt is asked for once more, then never again."""
        o.patience = 30
        for request in sorted(o.doubts):
            try:
                o.repeat_one(api, request)
            except ApiError as e:
                assert e.reason == "OUTCOME_UNKNOWN", (request, o.doubts[request], e, self.d.tail(100))
                del o.doubts[request]
        o.patience = 4

    def compare_commands(self, api, o):
        runs = collections.Counter(p.config.args[-1] for p in self.cloud.starts if p.config.args)
        for request, b in o.started.items():
            n = runs["n" + request]
            assert n <= 1, "the command %s was started %d times" % (request, n)
            if request not in o.told:
                continue
            assert n == 1
            if b.fate == "alive" and b.state == RUNNING:
                r = api.call("CommandService.Wait", command={"command_id": o.told[request]})
                assert (r.outcome, r.exit_code) == (EXITED, 3) or r.outcome == UNKNOWN, r
        o.started.clear()

    def compare_ledger(self, ledger):
        tags = collections.Counter(s.metadata["agentbox.req"] for s in ledger.sandboxes if not s.forked_from)
        assert max(tags.values()) == 1, "one request id, more than one sandbox: %s" % tags.most_common(3)
        for what in ("fork", "snapshot"):
            posts = collections.Counter(r.path for r in ledger.of(what) if r.acted)
            assert not posts or max(posts.values()) == 1, "%s twice: %s" % (what, posts.most_common(3))
        assert ledger.count("timeout") == 0
        for s in ledger.sandboxes:
            before = 0
            for _, end, why in s.ends:
                assert end >= before or why == "resume", "the end of %s was lowered by %s" % (s.id, why)
                before = end
        told = [t for o in self.owners for t in o.told.values()]
        assert len(set(told)) == len(told), "two request ids, one object"

    def sweep(self, api):
        """The next lives begin with few: all but what is held goes."""
        keep = {b.id for o in self.owners for b in o.boxes if b.fate == "alive" and b.since is not None}
        for s in self.cloud.ledger.alive():
            if s.id not in keep:
                api.call("SandboxService.Kill", sandbox=s.id)
        for o in self.owners:
            o.boxes = [b for b in o.boxes if b.id in keep and self.cloud.sandbox(b.id).fate is None]


@pytest.mark.timeout(120 + 4 * CYCLES)
def test_every_point_again_and_again(cloud):
    built(FP)
    storm = Storm(cloud)
    cloud.script("quick", [("stdout", b"x"), ("exit", 3)])
    all_points = points() + ["random"]
    order = [p for _ in range(-(-CYCLES // len(all_points))) for p in storm.rng.sample(all_points, len(all_points))][:CYCLES]
    n = 0
    try:
        for n, point in enumerate(order, 1):
            storm.live(n, point)
            if n % EVERY == 0 or n == len(order):
                storm.compare()
    except BaseException:
        print("seed %d, life %d, %s" % (SEED, n, point))
        raise
    finally:
        if storm.d:
            if storm.d.running():
                storm.d.kill9()
            storm.d.close()
        shutil.rmtree(storm.folder)
    assert sum(storm.deaths.values()) == CYCLES
    if CYCLES >= len(all_points):
        assert set(storm.deaths) == set(all_points)
