# SPDX-License-Identifier: MIT
"""Sandboxes that are ready before anybody asks: entries [warm NAME] against the scripted cloud, whose ledger says what was made and
what became of it.
"""
import glob
import json
import os
import re
import shutil

import grpc
import pytest

import harness
from api import Api, ApiError, plain
from conftest import built
from harness import until

ENTRY = {"template": "base", "size": 2, "uids": "0", "per_hour": 200}


class Warm:
    """A daemon with one entry `py`, and its admin."""

    def __init__(self, cloud, conf=None, more=None, folder=None, **entry):
        built(harness.AGENTBOXD)
        sections = {"warm py": {**ENTRY, **entry}, **(conf or {})}
        self.cloud = cloud
        self.d = harness.Daemon(cloud, conf=sections, folder=folder, **(more or {}))
        self.api = Api(self.d.socket)

    def entry(self, name="py"):
        return next(e for e in self.api.call("WarmService.List").entries if e.name == name)

    def ready(self, n=2, timeout=20):
        return until(lambda: self.entry().ready == n and self.entry(), timeout, "%d ready ones" % n, self.d)

    def create(self, warm="PREFER", **kw):
        return self.api.call("SandboxService.Create", warm=warm, **kw)

    def get(self, box, **kw):
        return self.api.call("SandboxService.Get", sandbox=box, **kw)

    def restart(self, how="stop"):
        """A stop, or kill -9, and the same state again."""
        if how == "stop":
            self.d.close()
        else:
            self.d.proc.kill()
            self.d.proc.wait()
        self.api.close()
        self.start_again()

    def start_again(self):
        argv, folder = self.d.argv, self.d.home
        self.d = Again(argv, folder)
        self.api = Api(self.d.socket)

    def close(self):
        self.api.close()
        self.d.close()


class Again(harness.Program):
    """The same daemon once more, over the same folder."""

    def __init__(self, argv, home):
        super().__init__("agentboxd", argv, folder=home)
        self.home = home
        self.socket = os.path.join(home, "s")
        self.state_dir = os.path.join(home, "state")
        self.conf_path = os.path.join(home, "agentboxd.conf")
        harness.Daemon.wait_connects(self)


@pytest.fixture
def warm(cloud):
    """Makes one with these keys of its entry; all of them are closed."""
    made, folder = [], harness.temp_dir("warm-")

    def make(conf=None, more=None, **entry):
        made.append(Warm(cloud, conf, more, folder, **entry))
        return made[-1]
    yield make
    for w in made:
        w.close()
    shutil.rmtree(folder, ignore_errors=True)


def posts(cloud):
    return [r for r in cloud.ledger.requests if r.method == "POST" and r.target.split("?")[0] == "/sandboxes"]


def alive(cloud):
    return [s for s in cloud.ledger.sandboxes if s.fate is None]


def refused(reason, fn, *args, **kw):
    with pytest.raises(ApiError) as e:
        fn(*args, **kw)
    assert e.value.reason == reason, e.value
    return e.value


# -- the claim

def test_a_claim(cloud, warm):
    w = warm()
    w.ready(2)
    before = len(posts(cloud))
    box = w.create(name="mine", metadata={"who": "me"}, sandbox_timeout=700, request_id="r1")
    assert box.warm and box.end_pending and plain(box.metadata) == {"who": "me"} and box.owner_uid == 0
    assert w.create(name="mine", metadata={"who": "me"}, sandbox_timeout=700, request_id="r1").id == box.id
    s = next(s for s in cloud.ledger.sandboxes if s.id == box.id)
    assert s.metadata["agentbox.warm"] == "py" and "who" not in s.metadata
    until(lambda: s.end_at - cloud.now() > 690, 10, "the end that was asked for", w.d)
    until(lambda: not w.get("mine").end_pending, 10, "the end to be read back", w.d)
    assert plain(w.get("mine", max_staleness=0).metadata) == {"who": "me"}
    assert [b.id for b in w.api.call("SandboxService.List", metadata={"who": "me"}).sandboxes] == [box.id]
    until(lambda: len(posts(cloud)) > before, 10, "another one, behind the claim", w.d)
    w.ready(2)
    assert len(alive(cloud)) == 3
    w.api.call("SandboxService.Kill", sandbox="mine")
    assert s.fate
    w.ready(2)
    assert len(alive(cloud)) == 2           # what was claimed never comes back


def test_prefer_makes_one_where_none_is_ready(cloud, warm):
    w = warm(size=1, active="1h")           # kept full after the first Create that fits
    assert not posts(cloud)
    box = w.create()
    assert not box.warm
    w.ready(1)
    assert w.create().warm
    assert w.entry().misses == 1 and w.entry().hits == 1


def test_require_waits_and_never_does_not_ask(cloud, warm):
    w = warm(size=0)
    assert not w.create(warm="NEVER").warm and not w.api.call("SandboxService.Create").warm
    assert refused("SANDBOX_NOT_READY", w.api.call, "SandboxService.Create", warm="REQUIRE", timeout=1).code == "FAILED_PRECONDITION"
    waiting = w.api.future("SandboxService.Create", warm="REQUIRE", timeout=20)
    until(lambda: w.entry().waiting == 1, 10, "a call that waits", w.d)
    w.api.call("WarmService.Set", name="py", size=1)
    assert waiting.result().warm


@pytest.mark.parametrize("what, differs", [
    ({"template": "other"}, "template"), ({"secure": False}, "secure"), ({"allow_internet_access": False}, "allow_internet_access"),
    ({"lifecycle": {"on_timeout": "PAUSE"}}, "lifecycle"), ({"network": {"deny_out": ["1.1.1.1"]}}, "network"),
    ({"envs": {"A": "2"}}, "envs"), ({}, "envs")])
def test_what_is_fixed_at_creation_must_be_the_same(cloud, warm, what, differs):
    w = warm(size=1, envs="A=1")
    w.ready(1)
    fits = {"envs": {"A": "1"}}
    e = refused("FIELD_INVALID", w.create, warm="REQUIRE", **({**fits, **what} if what else {}))
    assert differs in e.text, e.text
    if "template" not in what:
        assert not w.create(**({**fits, **what} if what else {})).warm
    assert w.create(**fits).warm


ALL = {"headers": r"a.example:X-A=1\, 2, b.example:X-B=${agentbox.identity.tokens.one}, a.example:X-C=3",
       "iam_tokens": "one=aud-1, two=aud-2", "allow_out": "a.example, 10.0.0.0/8", "deny_out": "0.0.0.0/0",
       "egress_proxy": "me@proxy.example:1080", "mask_request_host": "h.example", "envs": r"A=1\,2"}
SAID = {"network": {"allow_out": ["10.0.0.0/8", "a.example"], "deny_out": ["0.0.0.0/0"], "mask_request_host": "h.example",
                    "rules": {"b.example": {"rules": [{"transform_headers": {"X-B": "${agentbox.identity.tokens.one}"}}]},
                              "a.example": {"rules": [{"transform_headers": {"X-C": "3", "X-A": "1, 2"}}]}},
                    "egress_proxy": {"address": "proxy.example:1080", "username": "me", "password": "secret"}},
        "iam_tokens": {"two": {"audience": "aud-2"}, "one": {"audience": "aud-1"}}, "envs": {"A": "1,2"}}


def test_all_that_a_create_fixes(cloud, warm):
    """An entry may have all of it, the cloud gets it, and a Create that says the same in another order gets one."""
    folder = harness.temp_dir("sec-")
    with open(os.open(folder + "/password", os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
        f.write("secret\n")
    w = warm(size=1, egress_proxy_password_file=folder + "/password", **ALL)
    w.ready(1)
    body = json.loads(posts(cloud)[0].body)
    assert body["network"]["egressProxy"] == {"address": "proxy.example:1080", "username": "me", "password": "secret"}
    assert body["network"]["rules"]["a.example"] == [{"transform": {"headers": {"X-A": "1, 2", "X-C": "3"}}}]
    assert {t["audience"] for t in body["iam"]["tokens"].values()} == {"aud-1", "aud-2"} and body["envVars"] == {"A": "1,2"}
    for what, differs in (({"iam_tokens": {"one": {"audience": "aud-1"}}}, "iam_tokens"),
                          ({"network": {**SAID["network"], "rules": {}}}, "network"),
                          ({"iam_tokens": {**SAID["iam_tokens"], "two": {"audience": "aud-3"}}}, "iam_tokens")):
        assert differs in refused("FIELD_INVALID", w.create, warm="REQUIRE", **{**SAID, **what}).text
    assert w.create(warm="REQUIRE", **SAID).warm
    shutil.rmtree(folder)
    problem, = w.api.call("DaemonService.Reload").problems
    assert "egress_proxy_password_file" in problem and w.entry().configured_size == 1       # not without it from now on


def test_a_reload_ends_nobody_who_waits(cloud, warm):
    w = warm(size=0)
    waiting = w.api.future("SandboxService.Create", warm="REQUIRE", timeout=30)
    until(lambda: w.entry().waiting == 1, 10, "a call that waits", w.d)
    for _ in range(3):
        w.api.call("DaemonService.Reload")
        assert w.entry().waiting == 1 and not waiting.done()
    w.api.call("WarmService.Set", name="py", size=1)
    assert waiting.result().warm


def test_uids(cloud, warm):
    w = warm(uids="61001", size=1)
    w.ready(1)
    e = refused("FIELD_INVALID", w.create, warm="REQUIRE")
    assert "uid 0" in e.text
    assert not w.create().warm
    assert w.entry().ready == 1


@pytest.mark.parametrize("uids, may", [("root", True), ("@root", True), ("@%d" % os.getgid(), True), ("daemon, @daemon", False)])
def test_names_and_groups(cloud, warm, uids, may):
    """Users and groups by name, as the system's tables have them."""
    if os.getuid():
        pytest.skip("the test's own user is root")
    w = warm(uids=uids, size=1)
    w.ready(1)
    assert w.create().warm == may


def test_default_of_a_uid(cloud, warm):
    w = warm(conf={"policy uid:0": {"warm": "prefer"}})
    w.ready(2)
    assert w.api.call("SandboxService.Create").warm
    assert not w.create(warm="NEVER").warm


# -- prepare

def test_prepare_runs_once_as_root_with_its_secrets(cloud, warm):
    """G-5: what it prints is shown, without them."""
    secret = os.path.join(harness.temp_dir("sec-"), "token")
    with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
        f.write("hunter2\n")
    w = warm(size=1, prepare="echo got $TOKEN of ${#TOKEN}; echo $USER > /tmp/prepared", secret_envs="TOKEN=" + secret)
    w.ready(1)
    assert "got ******* of 7" in w.entry().output
    box = w.create()
    assert box.warm
    with open(glob.glob(os.path.join(w.d.state_dir, "agentboxd.db"))[0], "rb") as f:
        assert b"TOKEN=hunter2" not in f.read()
    shutil.rmtree(os.path.dirname(secret))


def test_a_secret_that_has_vanished(cloud, warm):
    """It was there at the start: those that are ready stay, none is made without it, and the word says which file is missing."""
    folder = harness.temp_dir("sec-")
    secret = os.path.join(folder, "token")
    with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
        f.write("hunter2\n")
    w = warm(size=1, burst=1, prepare="test $TOKEN = hunter2", secret_envs="TOKEN=" + secret)
    w.ready(1)
    kept = alive(cloud)[0].id
    os.unlink(secret)
    assert w.create(warm="REQUIRE").id == kept
    until(lambda: w.entry().failed, 30, "the entry to stop", w.d)
    e = w.entry()
    assert secret in e.why and "TOKEN" in e.why and "warm retry" in e.why and "hunter2" not in e.why + e.output
    assert secret in refused("SANDBOX_NOT_READY", w.create, warm="REQUIRE").text
    assert not w.create().warm              # PREFER: as without an entry
    until(lambda: len(alive(cloud)) == 2, 10, "those that were not prepared to be ended", w.d)
    with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
        f.write("hunter2\n")
    w.api.call("WarmService.Retry", name="py")
    w.ready(1)
    assert w.create(warm="REQUIRE").warm
    shutil.rmtree(folder)


def test_three_failures_stop_it_until_somebody_says_so(cloud, warm):
    w = warm(size=1, burst=1, prepare="echo cannot; exit 3")
    watch = w.api.stream("SandboxService.Watch", all_owners=True)
    until(lambda: w.entry().failed, 30, "the entry to stop", w.d)
    e = w.entry()
    assert e.failures == 3 and "exit status 3" in e.why and "cannot" in e.output
    assert len(posts(cloud)) == 3
    until(lambda: not alive(cloud), 10, "what failed to be ended", w.d)
    status = w.api.call("DaemonService.Status")
    assert [x.message for x in status.degraded if x.what == "warm"]
    assert "WARM_FAILED" in names(watch, "WARM_FAILED")
    assert "failed" in refused("SANDBOX_NOT_READY", w.create, warm="REQUIRE").text
    w.restart()                             # a restart does not begin again
    assert w.entry().failed
    w.api.call("WarmService.Retry", name="py")
    until(lambda: w.entry().failed, 30, "the entry to stop again", w.d)
    assert len(posts(cloud)) == 6


def names(stream, last):
    got = []
    for e in stream:
        got.append(e.DESCRIPTOR.fields_by_name["type"].enum_type.values_by_number[e.type].name)
        if got[-1] == last:
            stream.cancel()
            return got
    raise AssertionError(got)


def test_a_template_that_is_not_there_stops_it_too(cloud, warm):
    w = warm(size=1, template="nowhere")
    until(lambda: w.entry().failed, 30, "the entry to stop", w.d)
    assert len(posts(cloud)) == 3 and not alive(cloud)


# -- cost

def test_per_hour_bounds_what_is_made(cloud, warm):
    w = warm(size=2, per_hour=3)
    w.ready(2)
    assert w.create().warm
    w.ready(2)
    assert w.create().warm and w.create().warm
    assert not w.create().warm              # and behind a restart, too
    w.restart()
    assert not w.create().warm
    assert w.entry().made_in_hour == 3 and w.entry().ready == 0


def test_max_age_replaces(cloud, warm):
    w = warm(size=1, max_age="10s")
    w.ready(1)
    first = alive(cloud)[0]
    until(lambda: first.fate, 20, "the old one to be ended", w.d)
    w.ready(1)
    assert len(alive(cloud)) == 1


def test_what_does_not_answer_is_replaced(cloud, warm):
    w = warm(size=1)
    w.ready(1)
    first = alive(cloud)[0]
    cloud.fault("envd.health", status=500, times=None)
    until(lambda: first.fate, 25, "the silent one to be ended", w.d)
    cloud.clear_faults()


def test_a_real_create_goes_before_them(cloud, warm):
    cloud.team.concurrency = 2
    w = warm(size=2)
    w.ready(2)
    box = w.create(warm="NEVER")
    assert not box.warm
    assert sum(1 for s in cloud.ledger.sandboxes if s.fate) == 1


# -- over restarts

def test_a_stop_keeps_them_and_the_next_start_takes_them(cloud, warm):
    w = warm()
    w.ready(2)
    ids = {s.id for s in alive(cloud)}
    w.restart()
    w.ready(2)
    assert {s.id for s in alive(cloud)} == ids
    box = w.create(sandbox_timeout=600)
    assert box.id in ids
    w.restart("kill")                       # what was claimed is its owner's, with the end that it asked for
    assert w.get(box.id).warm
    s = next(s for s in cloud.ledger.sandboxes if s.id == box.id)
    until(lambda: s.end_at - cloud.now() > 580, 10, "the end that was asked for", w.d)


def test_a_changed_entry_replaces_them(cloud, warm):
    w = warm()
    w.ready(2)
    ids = {s.id for s in alive(cloud)}
    with open(w.d.conf_path, encoding="ascii") as f:
        text = f.read()
    with open(w.d.conf_path, "w", encoding="ascii") as f:
        f.write(text + "envs = A=1\n" if text.rstrip().endswith("200") else text.replace("[warm py]\n", "[warm py]\nenvs = A=1\n"))
    w.api.call("DaemonService.Reload")
    until(lambda: not ids & {s.id for s in alive(cloud)}, 20, "the old ones to be ended", w.d)
    w.ready(2)
    assert w.create(envs={"A": "1"}).warm
    assert 'value="(not shown)"' in w.d.log()       # G-5: it may be a secret


# -- a lost store

def lose_store(w):
    w.d.proc.kill()
    w.d.proc.wait()
    w.api.close()
    for f in glob.glob(os.path.join(w.d.state_dir, "agentboxd.db*")) + glob.glob(os.path.join(w.d.state_dir, "backup.db*")):
        os.unlink(f)


@pytest.mark.parametrize("with_claims", [True, False])
def test_after_a_lost_store(cloud, warm, with_claims):
    """STATE/claims says whose it is; what it does not name is nobody's any more."""
    w = warm()
    w.ready(2)
    box = w.create(name="mine", request_id="r1", sandbox_timeout=600)
    w.ready(2)
    before = {s.id for s in alive(cloud)}
    lose_store(w)
    if not with_claims:
        os.unlink(os.path.join(w.d.state_dir, "claims"))
    w.start_again()
    until(lambda: w.api.call("WarmService.List").quarantined == (2 if with_claims else 3), 20, "the quarantine", w.d)
    if with_claims:
        assert w.get("mine").id == box.id and w.get("mine").owner_uid == 0
        assert w.create(name="mine", request_id="r1", sandbox_timeout=600).id == box.id
    w.ready(2)
    got = w.create()
    assert got.warm and got.id not in before        # nobody gets one of those
    seen = {b.id for b in w.api.call("SandboxService.List", all_owners=True).sandboxes}
    assert before <= seen
    cloud.advance(125)                              # neither kept alive nor ended by us
    until(lambda: all(s.fate for s in cloud.ledger.sandboxes if s.id in before - {box.id}), 20, "their own end", w.d)
    assert not [s for s in cloud.ledger.sandboxes if s.id in before - {box.id} and "DELETE" in str(s.fate)]


# -- kill -9

def points():
    found = set()
    for path in glob.glob(os.path.join(harness.ROOT, "daemon", "sandbox", "*.c")) + [os.path.join(harness.ROOT, "daemon", "store", "writer.c")]:
        with open(path, encoding="utf-8") as f:
            found.update(re.findall(r'FAILPOINT\("(warm\.[^"]+)"\)', f.read()))
    assert len(found) >= 8 and "warm.claim_unrecorded" in found, found
    return sorted(found)


def ask(w, request, **kw):
    """The id, or None: the daemon died meanwhile."""
    try:
        return w.create(request_id=request, sandbox_timeout=600, **kw).id
    except ApiError as e:
        assert e.code == "UNAVAILABLE" and not e.reason, e
        return None


def on_record(w, box):
    with open(os.path.join(w.d.state_dir, "claims"), encoding="ascii") as f:
        return [line for line in f if line.split("\t")[2] == box]


@pytest.mark.parametrize("point", points())
def test_killed_at_every_point(cloud, warm, point, monkeypatch):
    """Whoever was told of one has it, a repeat gets the same, nobody else does, and nothing is left in the end."""
    monkeypatch.setattr(harness, "AGENTBOXD", os.path.join(harness.BUILD, "daemon", "agentboxd-fp"))
    w = warm(size=2, prepare="true", more={"env": {"AGENTBOXD_FAILPOINT": point + "=kill"}, "wait": False})
    until(lambda: os.path.exists(w.d.socket) or w.d.proc.poll() is not None, 20, "the start", w.d)
    told = {}
    for _ in range(400):
        if w.d.proc.poll() is not None:
            break
        try:
            told["r1"] = ask(w, "r1", warm="REQUIRE")
        except ApiError as e:
            assert e.reason == "SANDBOX_NOT_READY", e
        except (grpc.RpcError, KeyError):           # it died before it told what calls there are
            assert w.d.proc.wait(20) == -9
    assert w.d.proc.wait(20) == -9
    w.api.close()
    w.start_again()
    first = ask(w, "r1", warm="REQUIRE")
    assert first and told.get("r1") in (None, first)
    assert on_record(w, first)              # before it is told, also where the daemon died between the row and the line
    others = [ask(w, r, warm="REQUIRE") for r in ("r2", "r3")]
    assert len({first, *others}) == 3
    s = {s.id: s for s in cloud.ledger.sandboxes}
    until(lambda: all(s[b].end_at - cloud.now() > 500 for b in (first, *others)), 20, "the ends that were asked for", w.d)
    w.api.call("WarmService.Set", name="py", size=0)
    for b in (first, *others):
        w.api.call("SandboxService.Kill", sandbox=b)
    until(lambda: not alive(cloud), 30, "all of them to be ended", w.d)


# -- the configuration

@pytest.mark.parametrize("entry, says", [
    ({"template": None}, "template is missing"), ({"uids": None}, "uids is missing"), ({"uids": "nobody-of-that-name"}, "is no user"),
    ({"uids": "@nobody-of-that-name"}, "is no group"), ({"size": 65}, "from 0 to 64"), ({"timeout": "10m"}, "from 15s to 120s"),
    ({"envs": "A"}, "is not NAME=VALUE"), ({"secret_envs": "A=/nowhere"}, "is for prepare"), ({"account": "x"}, "is no [account NAME]"),
    ({"allow_out": "!!"}, "network"), ({"headers": "a.example=1"}, "is not HOST:NAME=VALUE"),
    ({"headers": "a.example:X=${agentbox.identity.tokens.no}"}, "network.rules"), ({"iam_tokens": "one"}, "is not NAME=VALUE"),
    ({"iam_tokens": "one=a, one=b"}, "is named twice"), ({"egress_proxy": "10.0.0.1:80"}, "network.egress_proxy"),
    ({"egress_proxy": "proxy.example:1", "egress_proxy_password_file": "/nowhere"}, "is for a user"),
    ({"egress_proxy": "me@proxy.example:1", "egress_proxy_password_file": "/nowhere"}, "/nowhere")])
def test_a_wrong_entry_is_named_with_its_place(cloud, entry, says):
    d = harness.Daemon(cloud, conf={"warm py": {**ENTRY, **entry}}, wait=False)
    try:
        assert d.proc.wait(20) == 78
        assert says in d.log() and ".conf:" in d.log(), d.log()
    finally:
        shutil.rmtree(d.home)


# --- the command

def test_the_command(cloud, warm):
    w = warm(prepare="echo made; exit 0")
    w.ready()
    ctl = lambda *args, **kw: harness.ctl(w.d.socket, *args, **kw)
    head, row = ctl("warm", "ls").stdout.splitlines()
    assert head.split()[:4] == ["NAME", "TEMPLATE", "READY", "COMING"] and row.split()[:3] == ["py", "base", "2/2"]
    assert json.loads(ctl("--json", "warm", "ls").stdout)["output"] == "made\n"
    made = json.loads(ctl("--json", "get", ctl("create", "--warm", "require").stdout.strip()).stdout)
    assert made["warm"] is True
    w.ready()
    assert json.loads(ctl("--json", "warm", "set", "py", "0").stdout)["size"] == 0
    until(lambda: w.entry().ready == 0, 10, "their end", w.d)
    assert json.loads(ctl("--json", "get", ctl("create", "--warm", "prefer").stdout.strip()).stdout)["warm"] is False
    assert json.loads(ctl("--json", "warm", "set", "py", "default").stdout)["size"] == 2
    assert ctl("warm", "retry", "py").stdout == ""
    for wrong, why in ((("create", "--warm", "always"), "--warm is never, prefer or require, not 'always'"),
                       (("warm", "set", "py", "65"), "SIZE is 0 to 64, or default, not '65'"),
                       (("warm", "nothing"), "it is ls, set NAME SIZE or retry NAME")):
        r = ctl(*wrong, check=False)
        assert r.returncode == 2 and why in r.stderr
    r = ctl("warm", "retry", "other", check=False)
    assert r.returncode and "other" in r.stderr


def test_the_command_says_what_failed(cloud, warm):
    w = warm(size=1, prepare="echo no disk; exit 3")
    until(lambda: w.entry().failed, 30, "its stop", w.d)
    r = harness.ctl(w.d.socket, "warm", "ls")
    assert "failed" in r.stdout and "warm: py: prepare: it ended with exit status 3" in r.stderr
