# SPDX-License-Identifier: MIT
"""JUDGED C-4: what the cloud says and a row cannot hold, and rows that cannot be read: no lease is lost, no sandbox ended.

The ledger of the scripted cloud says what was ended; each start is a clean restart of the same state folder.
"""
import os
import shutil
import sqlite3

import pytest

import harness
from api import Api, ApiError
from fakecloud import rest
from harness import until

KILL = 3
CONF = {"daemon": {"unclaimed_grace": "1s", "restart_grace": "1s", "reconcile_period": "1s"}}
YEAR_ONE = "0001-01-01T00:00:00Z"


@pytest.fixture
def home(cloud):
    h = Home(cloud)
    yield h
    h.close()


class Home:
    def __init__(self, cloud):
        self.cloud = cloud
        self.folder = harness.temp_dir("abd-")
        self.d = None

    def start(self):
        self.d = harness.Daemon(self.cloud, folder=self.folder, conf=CONF)
        return Api(self.d.socket)

    def stop(self):
        if self.d and self.d.running():
            self.d.stop()

    def sql(self, text):
        db = sqlite3.connect(os.path.join(self.folder, "state", "agentboxd.db"))
        with db:
            db.executescript(text)
        db.close()

    def ask(self, text):
        db = sqlite3.connect(os.path.join(self.folder, "state", "agentboxd.db"))
        got = db.execute(text).fetchall()
        db.close()
        return got

    def some_lists(self):
        seen = self.cloud.ledger.count("list")
        until(lambda: self.cloud.ledger.count("list") >= seen + 3, 30, "three more looks at the cloud", self.d)

    def close(self):
        self.stop()
        if self.d:
            self.d.check_sanitizer()
        shutil.rmtree(self.folder, ignore_errors=True)


def make(a):
    """A leased sandbox that is ended a second after its last lease."""
    b = a.call("SandboxService.Create", name="box", request_id="r", policy={"on_release": KILL, "release_grace": 1})
    return b.id, a.call("LeaseService.Acquire", sandbox="box", ttl=600).id


def leases(a):
    return [x.id for x in a.call("LeaseService.List", sandbox="box").leases]


def notes(a):
    return [d.message for d in a.call("DaemonService.Status").degraded if d.what == "store"]


ODD = {
    "started_in_year_1": {"startedAt": YEAR_ONE},
    "ends_in_year_1": {"endAt": YEAR_ONE},
    "both_in_year_1": {"startedAt": YEAR_ONE, "endAt": YEAR_ONE},
    "started_in_1969": {"startedAt": "1969-12-31T23:59:59.999Z"},
    "alias": {"alias": "a" * 1500},
    "alias_of_two_bytes_each": {"alias": "\u00e9" * 513},
    "template": {"templateID": "t" * 3000},
    "version": {"envdVersion": "v" * 2000},
    "domain": {"domain": "d" * 1100},
    "metadata": {"metadata": {"k%d" % i: "v" * 8000 for i in range(200)}},
    "network": {"network": {"allowOut": ["h" * 9000 + str(i) for i in range(200)]}},
}


def say(monkeypatch, odd):
    """The scripted cloud says this of every sandbox, where it says such a thing at all."""
    for name in ("created", "listed_as", "detail"):
        was = getattr(rest.Sandbox, name)

        def odd_one(self, was=was, name=name):
            d = was(self)
            for k, v in odd.items():
                if k == "metadata" and k in d:
                    d[k] = {**d[k], **v}
                elif k in d or k == "network" and name == "detail":
                    d[k] = v
            return d
        monkeypatch.setattr(rest.Sandbox, name, odd_one)


@pytest.mark.parametrize("odd", ODD)
def test_what_a_row_cannot_hold(cloud, home, monkeypatch, odd):
    """It is unknown, before a restart as after it, and said once."""
    say(monkeypatch, ODD[odd])
    with home.start() as a:
        b, lease = make(a)
        a.call("SandboxService.List", cached=False)
        before = a.call("SandboxService.Get", sandbox="box", max_staleness=0)
        assert not notes(a)
    log = home.d.log()
    assert log.count("sandbox_unkept") == (0 if "year" in odd or "1969" in odd else 1)
    assert "store_row_refused" not in log and "store_row_cut" not in log
    home.stop()
    with home.start() as a:
        assert leases(a) == [lease]
        home.some_lists()
        assert leases(a) == [lease] and not notes(a)
        after = a.call("SandboxService.Get", sandbox="box", max_staleness=0)
        assert after.id == b and not after.adopted
        for field in ("alias", "template_id", "envd_version", "domain"):
            assert getattr(after, field) == getattr(before, field)
            assert len(getattr(after, field)) < 1025
    assert not cloud.ledger.count("delete")


def test_a_token_that_is_too_long(cloud, home, monkeypatch):
    """Half a token is none: the answer is refused as a whole, in words; what was made is found by its tag."""
    say(monkeypatch, {"envdAccessToken": "t" * 5000})
    with home.start() as a:
        b, _ = make(a)
        with pytest.raises(ApiError) as e:
            a.call("CommandService.Start", sandbox="box", shell="true")
        assert e.value.reason == "BAD_CLOUD_REPLY" and "envdAccessToken" in str(e.value)
        assert cloud.sandbox(b).fate is None and len(cloud.ledger.sandboxes) == 1


# What is done to the rows; what Status then names; how many of them.
ROWS = {
    "as_0.1.0_wrote_them": ("UPDATE sandbox SET started_at_ms = -62135596800000, alias = printf('%.*c', 1500, 'a')", []),
    "columns_of_little_worth": ("UPDATE sandbox SET state = 77, metadata = x'41', network = 'no', generation = -1,"
                                " gone_evidence = CAST(x'ff' AS TEXT); UPDATE lease SET label = printf('%.*c', 5000, 'a')", []),
    "policy": ("UPDATE sandbox SET policy = 'on_release=explode', released_at_ms = 1000; DELETE FROM lease", []),
    "owner": ("UPDATE sandbox SET uid = -5", ["sandbox default/{box} (uid)"]),
    "lease_kind": ("UPDATE lease SET kind = 9", ["lease {lease} (kind)"]),
    "lease_end": ("UPDATE lease SET expires_at_ms = -1", ["lease {lease} (expires_at_ms)"]),
    "lease_of_what": ("UPDATE lease SET sandbox = ''", ["lease {lease} (sandbox)"]),
    "owner_and_lease": ("UPDATE sandbox SET uid = -5; UPDATE lease SET identity = 700",
                        ["sandbox default/{box} (uid)", "lease {lease} (identity)"]),
    "name": ("UPDATE name SET id = CAST(x'ff' AS TEXT)", []),
}


@pytest.mark.parametrize("what", ROWS)
def test_rows_that_cannot_be_read(cloud, home, what):
    """The sandbox is there under its name and is not ended but by its user; Status names what was refused at each start."""
    sql, named = ROWS[what]
    with home.start() as a:
        b, lease = make(a)
    home.stop()
    home.sql(sql)
    for start in range(2):
        with home.start() as a:
            until(lambda: [x for x in a.call("SandboxService.List").sandboxes if x.name == "box"], 10, "the sandbox", home.d)
            home.some_lists()
            assert [x.id for x in a.call("SandboxService.List").sandboxes if x.name == "box"] == [b]
            said = " ".join(notes(a))
            for n in named:
                want = n.format(box=b, lease=lease)
                assert (want in said) == (not start or not want.startswith("sandbox")), said
            assert not cloud.ledger.count("delete") and not cloud.ledger.count("pause")
            assert cloud.sandbox(b).fate is None
        home.stop()
    with home.start() as a:
        assert a.call("SandboxService.Create", name="box", request_id="r",
                      policy={"on_release": KILL, "release_grace": 1}).id == b
        a.call("SandboxService.Kill", sandbox="box")
    home.stop()
    assert cloud.sandbox(b).fate is not None and len(cloud.ledger.sandboxes) == 1
    with home.start() as a:
        left = [n for n in named if "(sandbox)" in n]
        assert bool(notes(a)) == bool(left), "rows of a sandbox go with it, but for those of an unknown one"


@pytest.mark.parametrize("column", ["state = 9", "account = ''", "boot = CAST(x'ff' AS TEXT)"])
def test_a_command_that_cannot_be_read(cloud, home, column):
    """Its output stays, and its sandbox is in use."""
    with home.start() as a:
        b, lease = make(a)
        c = a.call("CommandService.Start", sandbox="box", shell="echo kept; sleep 1000", detach=True).command_id
        spool = os.path.join(home.folder, "state", "spool", c)
        until(lambda: os.path.exists(spool), 10, "its spool", home.d)
        a.call("LeaseService.Release", lease_id=lease)
        home.stop()
    home.sql("UPDATE command SET " + column)
    with home.start() as a:
        home.some_lists()
        assert any("command " + c in n for n in notes(a))
        assert os.path.exists(spool)
        assert column.startswith("account") or not cloud.ledger.count("delete")
    home.stop()
    assert home.ask("SELECT count(*) FROM command") == [(1,)]


@pytest.mark.parametrize("column", ["state = 9", "params_hash = x'00'", "used_at_ms = -1", "object = ''", "req_tag = ''"])
def test_a_request_id_that_cannot_be_read_makes_nothing_twice(cloud, home, column):
    with home.start() as a:
        b, _ = make(a)
    home.stop()
    home.sql("UPDATE request SET " + column)
    with home.start() as a:
        home.some_lists()
        try:
            again = a.call("SandboxService.Create", name="box", request_id="r",
                           policy={"on_release": KILL, "release_grace": 1}).id
            assert again == b
        except ApiError as e:
            assert e.reason in ("OUTCOME_UNKNOWN", "REQUEST_ID_REUSED")
    assert len(cloud.ledger.sandboxes) == 1
