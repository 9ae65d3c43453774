# SPDX-License-Identifier: MIT
"""JUDGED G-1: what one uid does and has changes no answer to another.

Uid B makes random calls at two daemons, each with a cloud of its own. At the one of them uid A has objects, uses them, and asks for B's;
at the other there is nobody else. B asks for its own objects, for A's and for nobody's, in both the same, and must be answered the same,
but for two things: ALREADY_EXISTS for a snapshot's name, and the account's shared limits. One call in four is a request to the gateway, with a
token of its uid. `sh tests/shows.sh` makes 100,000 calls of them.
"""
import collections
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

import pytest

import harness
import v_two_uids as two
from a_memory import row
from api import Api
from conftest import built

FULL = bool(os.environ.get("SHOWS_FULL"))
CALLS = int(os.environ.get("TWO_UIDS_CALLS", "100000" if FULL else "400"))
SEED = int(os.environ.get("TWO_UIDS_SEED", "1"))
KEPT = {"sandbox": 5, "snapshot": 4, "command": 4, "lease": 4, "token": 4}       # objects that a uid has at a time
LONG = {"seconds": 6 * 3600}    # nothing ends by itself: that is a matter of moments, which differ
NAMES = ("one", "two", "three")
KINDS = {"sandbox": "sandbox", "template": "snapshot", "snapshot": "snapshot", "command_id": "command", "lease_id": "lease", "pid": "pid",
         "page_token": "page"}      # what goes into a field; of the fields of two.FIELDS the others are drawn by hand
REST = [(m, {}) for m in two.WITHOUT if m != "DaemonService.Status"]     # methods whose requests name nothing of a uid's
REST += [("WarmService.Set", {"name": "py", "size": 1}), ("WarmService.Retry", {"name": "py"}), ("DaemonService.Config", {"section": "pool"})]
STREAMS = ("SandboxService.Watch", "LeaseService.Hold")     # of B's own they begin when they like, and end when the daemon sees it
WORD = re.compile(r"[A-Za-z0-9_+/=:.%?&-]{12,}")
DRAWN = re.compile(r"[a-z0-9]{20,21}")      # an id: one in 700 has no digit
ENDS = {"SandboxService.Kill": "sandbox", "SnapshotService.Delete": "snapshot", "CommandService.Kill": "command",
        "LeaseService.Release": "lease", "TokenService.Revoke": "token"}
MADE = {"SandboxService.Create": "sandbox", "SnapshotService.Create": "snapshot", "CommandService.Start": "command",
        "CommandService.Run": "command", "LeaseService.Acquire": "lease", "TokenService.Create": "token"}
LEFT_OUT = ("pid", "freshness", "as_of", "upstream_request_id",     # numbers of the machine; where an answer came from
            "age", "agentboxd-source", "date", "content-length",
            "spawn_count", "last_spawned_at")   # of a template: all users' together
PLACES = ("next_page_token", "x-next-token")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
HOURS = 6 * 3600

# Requests to the gateway; REF is the object that they are about.
ROUTES = [("sandbox",) + x for x in (
    ("GET", "/sandboxes/REF"), ("DELETE", "/sandboxes/REF"), ("POST", "/sandboxes/REF/timeout", {"timeout": HOURS}),
    ("POST", "/sandboxes/REF/refreshes", {"duration": 3600}), ("POST", "/sandboxes/REF/connect", {"timeout": HOURS}),
    ("POST", "/v2/sandboxes/REF/connect", {"timeout": HOURS}), ("POST", "/sandboxes/REF/resume", {"timeout": HOURS}),
    ("POST", "/sandboxes/REF/pause", {}), ("PUT", "/sandboxes/REF/network", {"allowOut": ["192.0.2.1"]}),
    ("POST", "/sandboxes/REF/fork", {"count": 1, "timeout": HOURS}), ("POST", "/sandboxes/REF/snapshots", {"name": "NAME"}),
    ("GET", "/sandboxes/REF/metrics"), ("GET", "/sandboxes/metrics?sandbox_ids=REF"), ("GET", "/v2/sandboxes/REF/logs"),
    ("GET", "/snapshots?sandboxID=REF"), ("GET", "/files?path=/tmp/x&signature=v1_REF"))]
ROUTES += [("snapshot",) + x for x in (
    ("POST", "/sandboxes", {"templateID": "REF", "timeout": HOURS}), ("POST", "/v2/sandboxes", {"templateID": "REF", "timeout": HOURS}),
    ("DELETE", "/templates/REF"), ("GET", "/templates/REF"), ("GET", "/snapshots?name=REF&limit=2"))]
ROUTES += [("",) + x for x in (
    ("GET", "/v2/sandboxes?limit=2"), ("GET", "/v2/sandboxes"), ("GET", "/sandboxes"), ("GET", "/snapshots?limit=1"),
    ("POST", "/sandboxes", {"templateID": "base", "timeout": HOURS}))]
RELAYED = (     # to the sandbox itself: port, and what is asked there
    (49983, "GET", "/health"), (49983, "GET", "/files?path=/tmp/x"), (49983, "POST", "/filesystem.Filesystem/Stat", {"path": "/tmp"}),
    (8000, "GET", "/"), (8000, "GET", "/", None, {"Connection": "Upgrade", "Upgrade": "agentboxd-forward"}))


def serve_cloud():
    """A scripted cloud as a process: it keeps no more requests than a test needs."""
    from fakecloud import FakeCloud
    with FakeCloud(concurrency=100000) as cloud:
        print(json.dumps({"url": cloud.url, "ca": cloud.ca, "key": cloud.key}), flush=True)
        for _ in sys.stdin:
            del cloud.ledger.requests[:]
            print(json.dumps(len(cloud.by_id)), flush=True)


class Cloud:
    """A scripted cloud in a PID namespace: the kill of a command reads the environment of every process that it sees."""

    def __init__(self):
        lib = os.path.join(harness.ROOT, "tests", "lib")
        argv = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-B", os.path.abspath(__file__), "--cloud"]
        self.proc = subprocess.Popen(argv, stdin=subprocess.PIPE, text=True, stdout=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=lib))
        self.__dict__.update(json.loads(self.proc.stdout.readline()))

    def forget(self):
        self.proc.stdin.write("\n")
        self.proc.stdin.flush()
        return json.loads(self.proc.stdout.readline())

    def close(self):
        self.proc.stdin.close()
        assert self.proc.wait(60) == 0
        self.proc.stdout.close()


class World:
    """A cloud, a daemon, and a caller of each uid that calls here. `seen` gives what differs from world to world a common name."""

    def __init__(self, uids):
        self.cloud = Cloud()
        self.folder = tempfile.mkdtemp(prefix="abd-", dir="/dev/shm")   # in memory: each create waits for the disk twice
        os.chmod(self.folder, 0o755)
        self.port = two.free_port()
        conf = {"daemon": {"log_level": "warn"}, "gateway": {"listen": "127.0.0.1:%d" % self.port}}
        self.daemon = harness.Daemon(self.cloud, conf=conf, folder=self.folder)
        os.chmod(self.daemon.socket, 0o666)
        self.callers = {uid: two.Caller(self.daemon.socket, uid) for uid in uids}
        made = {uid: c.get("TokenService.Create", label="all") for uid, c in self.callers.items()}
        self.tokens = {uid: two.text(m["secret"]) for uid, m in made.items()}
        self.narrow = dict(self.tokens)     # the last token of a uid that is for some sandboxes
        self.seen = {}
        self.name(self.daemon.conf_path)
        self.name(two.text(made[two.B]["token"]["id"]))     # of twelve letters, which may have no digit

    def close(self):
        for c in self.callers.values():
            c.close()
        self.daemon.close()
        self.cloud.close()
        shutil.rmtree(self.folder)

    def name(self, word):
        return self.seen.setdefault(word, "#%d" % len(self.seen))

    def plain(self, answer, literal):
        """An answer in words that both worlds have: ids and tokens are numbered as they come."""
        def name(m):
            word = m.group()
            is_drawn = word in self.seen or ((DRAWN.fullmatch(word) or any(c.isdigit() for c in word)) and word not in literal)
            return self.name(word) if is_drawn else word
        return WORD.sub(name, json.dumps(strip(answer), sort_keys=True))


def strip(x):
    if isinstance(x, dict):
        return {k: "a place" if is_place(k, v) else strip(v) for k, v in x.items() if k not in LEFT_OUT}
    if isinstance(x, list):
        return [strip(v) for v in x]
    return MOMENT.sub("moment", x) if isinstance(x, str) else x


def is_place(key, value):
    """A page token is drawn from an id or from the clock. A small number would count something."""
    return key in PLACES and not (value.strip("'").isdigit() and int(value.strip("'")) < 10 ** 9)


def own_part(method, answer):
    """Of the daemon's Status what is the caller's; the rest is of all users, by its contract."""
    if method != "DaemonService.Status" or "ok" not in answer:
        return answer
    counts = {k: v for k, v in answer["ok"]["counts"].items() if k.startswith("sandboxes") or k == "leases"}
    return {"ok": [counts, answer["ok"]["access"], answer["ok"].get("degraded")]}


# -- what is asked

class Play:
    """The calls of one uid, drawn from a seed; what it has is kept as a reference for each world it calls in."""

    def __init__(self, uid, worlds, rng, asked):
        self.uid, self.worlds, self.rng, self.asked = uid, worlds, rng, asked
        self.names = [x for x in asked if x[0] == "SnapshotService.Create"]
        self.own = collections.defaultdict(list)
        self.past = collections.defaultdict(list)   # the last that are over
        self.home = {}      # of a command, a lease: its sandbox
        self.ended = []     # commands that are seen to be over: one can wait for them
        self.request = 0

    def call(self, method, each):
        """Both worlds at once: each is the fields in each."""
        for w, fields in zip(self.worlds, each):
            w.callers[self.uid].ask(method, fields)
        return [w.callers[self.uid].answer() for w in self.worlds]

    def reference(self, kind, others):
        """Of this uid in each world, of another uid, or of nobody; and whose."""
        r = self.rng.random()
        if r < 0.05 and kind in ("sandbox", "snapshot"):
            return (self.rng.choice(("mine", "other") if kind == "sandbox" else NAMES),) * 2, "own"
        if r < 0.45 and self.own[kind]:
            return self.rng.choice(self.own[kind]), "own"
        if r < 0.55 and self.past[kind]:
            return self.rng.choice(self.past[kind]), "own"
        if r < 0.95 and others.get(kind):
            return (self.rng.choice(others[kind]),) * 2, "other"
        return ({"command": "c", "lease": "l"}.get(kind, "i") + "z" * 20,) * 2, "nobody"

    def draw(self, others):
        """(method, fields in each world, kind, references, whose)"""
        r = self.rng.random()
        if r > 0.75 and len(self.own["sandbox"]) > 1:
            return self.draw_request(others)
        r /= 0.75
        if len(self.own["sandbox"]) < 2 or r < 0.02:
            return "SandboxService.Create", self.named({"name": self.rng.choice(("", "mine", "other")), "sandbox_timeout": LONG}), "", (), "own"
        if r < 0.10:
            service = self.rng.choice(("SandboxService", "SnapshotService", "LeaseService", "CommandService", "TemplateService", "TokenService",
                                       "WarmService", "DaemonService"))
            fields = {"page_size": self.rng.choice((0, 1, 2, 50))}
            if service == "DaemonService":
                return "DaemonService.Status", [{}] * 2, "", (), "own"
            if service in ("TokenService", "WarmService"):
                fields = {}
            if service == "CommandService":
                refs, whose = self.reference("sandbox", others)
                return service + ".List", [dict(fields, sandbox=x) for x in refs], "", (), whose
            return service + ".List", [fields] * 2, "", (), "own"
        if r < 0.13:
            return "SandboxService.Create", self.named({"template": self.rng.choice(NAMES), "sandbox_timeout": LONG}), "", (), "own"
        if r < 0.16:
            method, kind, field = self.rng.choice((("TokenService.Create", "sandbox", "sandboxes"), ("TokenService.Revoke", "token", "id")))
            refs, whose = self.reference(kind, others)
            return method, [{field: [x] if kind == "sandbox" else x} for x in refs], kind, refs, whose
        if r < 0.18:
            method, fields = self.rng.choice(REST)
            return method, [fields] * 2, "", (), "own"
        method, d, path = self.rng.choice(self.asked if r > 0.21 else self.names)
        kind = KINDS[path[-1]]
        if kind == "pid":       # of nobody's process, in any sandbox: numbers of processes are the machine's
            refs, whose = self.reference("sandbox", others)
            each = [two.fill(d, path, 4000000, ref) for ref in refs]
        else:
            refs, whose = self.reference("page of " + method if kind == "page" else kind, others)
            each = [two.fill(d, path, ref, own) for ref, own in zip(refs, self.rng.choice(self.own["sandbox"]))]
        extra = {}
        if method == "SnapshotService.Create":
            extra["name"] = self.rng.choice(NAMES + ("",))
        if "sandbox_timeout" in each[0]:
            extra["sandbox_timeout"] = LONG
        if "ttl" in each[0]:
            extra["ttl"] = LONG
        if "shell" in each[0]:
            extra.update(shell="sleep 99999", detach=True)      # it ends when it is told to, not with its caller
        for fields in each:
            fields.update(extra)
        return method, each, kind, refs, whose

    def draw_request(self, others):
        """The same of a request to the gateway."""
        headers, at = {}, self.rng.random() < 0.25 and self.rng.choice(RELAYED)
        kind, verb, target, *rest = ("sandbox",) + at[1:] if at else self.rng.choice(ROUTES)
        refs, whose = self.reference(kind, others) if kind else (("", ""), "own")
        body = json.dumps(rest[0] if rest else None).replace("NAME", self.rng.choice(NAMES))
        if at:
            headers = dict({"AgentBox-Sandbox-Id": "REF", "AgentBox-Sandbox-Port": str(at[0])}, **(rest[1] if rest[1:] else {}))
        elif target == "/sandboxes" and verb == "POST" and self.rng.random() < 0.5:
            name = self.rng.choice(("mine", "other"))
            headers = self.rng.choice(({"Agentboxd-Name": name}, {"Idempotency-Key": "request-%d" % self.request}))
        narrow = self.rng.random() < 0.2
        each = []
        for w, ref in zip(self.worlds, refs):
            token = (w.narrow if narrow else w.tokens)[self.uid]
            sent = {k: v.replace("REF", ref) for k, v in headers.items()}
            sent.update({"Agentboxd-Token": token} if at else {"X-API-Key": token}, **{"Content-Type": "application/json"})
            each.append({"port": w.port, "method": verb, "target": target.replace("REF", urllib.parse.quote(ref, safe="")), "headers": sent,
                         "body": json.loads(body.replace("REF", ref))})
        return "Gateway %s %s" % (verb, target), each, kind, refs, whose

    def named(self, fields):
        """With a request id, which is now and then that of the last one."""
        if self.rng.random() < 0.5:
            self.request += self.rng.random() < 0.8
            fields["request_id"] = "request-%d" % self.request
        return [fields] * 2

    def step(self, others):
        """One random call; (method, fields, answers)."""
        found = self.too_many()
        while not found:
            method, each, kind, refs, whose = self.draw(others)
            if whose == "own" and (method in STREAMS or (method == "CommandService.Wait" and refs not in self.ended)):
                continue
            if whose == "own" and method.lower().endswith("pause") and self.own["command"]:
                continue        # a kill of what is paused ends by its deadline, one world before the other
            found = method, each, kind, refs
        method, each, kind, refs = found
        answers = self.call(method, each)
        self.learn(method, kind, tuple(refs), answers)
        if self.too_many() == found:    # it was refused, or was over before
            self.forget(kind, tuple(refs))
        return method, each[0], answers

    # -- what came of it

    def learn(self, method, kind, refs, answers):
        """Objects that came and went, if they did so in every world."""
        if any("ok" not in a for a in answers):
            return
        oks = [a["ok"] for a in answers]
        made = MADE.get(method)
        if method.endswith(".List") and all("next_page_token" in ok for ok in oks):
            places = self.own["page of " + method]
            places.append(tuple(two.text(ok["next_page_token"]) for ok in oks))
            del places[:-4]
        if method.startswith("Gateway "):
            self.learn_request(method, kind, refs, [x["body"] for x in oks])
        elif made == "token":
            self.add("token", [ok["token"]["id"] for ok in oks], ())
            for w, ok in zip(self.worlds, oks):
                w.narrow[self.uid] = two.text(ok["secret"])
        elif made and "nothing" not in oks:
            ids = [ok.get("started", ok).get("command_id" if made == "command" else "id") for ok in oks]
            self.add(made, ids, refs)
        elif method == "SandboxService.Fork":
            for each in zip(*(ok["results"] for ok in oks)):
                self.add("sandbox", [r.get("sandbox", {}).get("id") for r in each], ())
        elif method in ENDS:
            self.forget(ENDS[method], refs)
        if method in ("CommandService.Kill", "CommandService.Signal") and kind == "command" and refs in self.home:
            self.call("CommandService.Wait", [{"command": {"sandbox": h, "command_id": x}} for x, h in zip(refs, self.home[refs])])
            self.forget("command", refs)
            self.ended = self.ended[-50:] + [refs]

    def learn_request(self, method, kind, refs, bodies):
        _, verb, target = method.split(" ")
        if verb == "DELETE":
            self.forget(kind, refs)
        elif verb == "POST" and target in ("/sandboxes", "/v2/sandboxes"):
            self.add("sandbox", [repr(x["sandboxID"]) for x in bodies], ())
        elif target.endswith("/fork"):
            self.add("sandbox", [repr(x[0]["sandbox"]["sandboxID"]) for x in bodies], ())
        elif target.endswith("/snapshots") and verb == "POST":
            self.add("snapshot", [repr(x["snapshotID"]) for x in bodies], ())

    def add(self, kind, ids, home):
        if None in ids:
            return
        refs = tuple(two.text(x) for x in ids)
        if self.uid == two.B:
            for w, ref in zip(self.worlds, refs):
                w.name(ref)
        if refs not in self.own[kind]:
            self.own[kind].append(refs)
            self.home[refs] = home

    def forget(self, kind, refs):
        """It is over, and what is inside of it."""
        if refs in self.own[kind]:
            self.own[kind].remove(refs)
            self.past[kind] = self.past[kind][-3:] + [refs]
            for inner in ("command", "lease"):
                for x in [x for x in self.own[inner] if self.home[x] == refs]:
                    self.forget(inner, x)
            if kind != "command":
                self.home.pop(refs)

    def too_many(self):
        """What ends the oldest of a kind of which there are too many: (method, fields, kind, references)."""
        for method, kind in ENDS.items():
            if len(self.own[kind]) > KEPT[kind]:
                refs = self.own[kind][0]
                field = {"snapshot": "snapshot", "lease": "lease_id", "sandbox": "sandbox", "token": "id"}.get(kind)
                each = [{field: x} if field else {"command": {"sandbox": h, "command_id": x}}
                        for x, h in zip(refs, self.home[refs] or refs)]
                return method, each, kind, refs
        return None


# -- both worlds, side by side

def is_name_taken(method, error):
    if method.startswith("Gateway "):
        return method.endswith("/snapshots") and error["status"] == 409
    return method == "SnapshotService.Create" and error[:2] == ["ALREADY_EXISTS", "NAME_EXISTS"]


class Game:
    def __init__(self, seed):
        rng = random.Random(seed)
        self.both = World((two.A, two.B)), World((two.B,))
        with Api(self.both[0].daemon.socket) as api:
            asked = [r for r in two.requests(api) if r[2][-1] in KINDS]
            self.methods = {m for m, _ in two.methods(api)}
        self.a = Play(two.A, self.both[:1], rng, asked)
        self.b = Play(two.B, self.both, rng, asked)
        self.rng, self.calls, self.allowed, self.literal, self.took, self.ok = rng, 0, 0, set(), {}, 0

    def close(self):
        for w in self.both:
            w.close()

    @staticmethod
    def objects(play):
        return {kind: [x[0] for x in play.own[kind] + play.past[kind]] for kind in list(play.own)}

    def is_allowed(self, method, answers):
        """The name of a snapshot is another uid's: here it is not to be had. What was made of it there is given back. A paused sandbox has no
        snapshot made under either name, and the name is looked at first."""
        here, there = answers
        if "error" not in here or not is_name_taken(method, here["error"]):
            return False
        if "error" in there:
            return " is paused; " in json.dumps(there)
        made = there["ok"]["body"]["snapshotID"] if method.startswith("Gateway ") else two.text(there["ok"]["id"])
        assert self.both[1].callers[two.B].get("SnapshotService.Delete", snapshot=made) == {"found": "True"}
        return True

    def step(self):
        """A call of B, and now and then one of A before it. What was answered otherwise, or None."""
        if self.rng.random() < 0.4:
            self.a.step(self.objects(self.b))
            self.literal.update(x for v in self.objects(self.a).values() for x in v)
            self.calls += 1
        begin = time.monotonic()
        method, fields, answers = self.b.step(self.objects(self.a))
        took = self.took.setdefault(method, [0, 0.0])
        took[0] += 1
        took[1] += time.monotonic() - begin
        self.calls += 1
        self.ok += "ok" in answers[0]
        if self.is_allowed(method, answers):
            self.allowed += 1
            return None
        said = [w.plain(own_part(method, x), self.literal) for w, x in zip(self.both, answers)]
        return None if said[0] == said[1] else (self.calls, method, fields, said)


@pytest.mark.timeout(4 * 3600 if FULL else 600)
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: clients of two uids")
def test_another_uid_changes_no_answer():
    """G-1: as many random calls, every answer compared."""
    built(harness.AGENTBOXD)
    game = Game(SEED)
    try:
        differ = []
        while game.calls < CALLS and len(differ) < 5:
            differ += filter(None, [game.step()])
            if game.calls % 500 < 2:
                for w in game.both:
                    w.cloud.forget()
        called = game.methods & set(game.took)
        print("%d calls of %d of %d methods, %d of B's answered with a message, %d names of A's refused" %
              (game.calls, len(called), len(game.methods), game.ok, game.allowed), flush=True)
        assert called == game.methods or game.calls < 10000, "never called: %s" % sorted(game.methods - called)
        assert game.ok > game.calls / 10 and (game.allowed or not FULL), "it asked for next to nothing"
        assert row("answers that differ in %d calls" % game.calls, len(differ), 0, ""), "\n".join(map(repr, differ))
    finally:
        game.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--cloud"]:
        serve_cloud()
