# SPDX-License-Identifier: MIT
"""agentboxctl backup and restore: a copy of the state while it is in use, and what it is good for."""
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import threading

import pytest

import harness
from api import Api
from c_store import KILL, create, listed, store_notes
from c_store import home  # noqa: F401  a fixture
from harness import until


def restore(h, file, *args, check=True, input=None):
    r = harness.ctl("/nonexistent", "restore", "--state-dir", h.state, *args, file, check=check, input=input, text=input is None)
    return r


def backup(h, name="saved"):
    h.d.ctl("backup", h.path("../" + name))
    return h.path("../" + name)


def look_again(cloud, h, n=4):
    """The daemon compares with the cloud n times."""
    lists = cloud.ledger.count("list")
    until(lambda: cloud.ledger.count("list") >= lists + n, 30, "more looks at the cloud", h.d)


def test_a_backup_is_put_back(cloud, home):
    """What was made since is found by its tags, what ended since is forgotten, and nothing is ended for what the backup says."""
    h = home()
    kill = {"on_release": KILL, "release_grace": 1}
    with h.start() as a:
        host = a.call("DaemonService.Status").host_id
        kept = create(a, name="kept", request_id="kept", policy=kill).id
        a.call("LeaseService.Acquire", sandbox="kept", ttl=600)
        gone = create(a, name="gone", request_id="gone").id
        saved = backup(h)
        assert stat.S_IMODE(os.stat(saved).st_mode) == 0o600
        young = create(a, name="young", request_id="young", policy=kill).id
        a.call("LeaseService.Acquire", sandbox="young", ttl=600)
        a.call("SandboxService.Kill", sandbox=gone)
    h.stop()
    done = json.loads(harness.ctl("/nonexistent", "--json", "restore", "--state-dir", h.state, saved).stdout)
    assert done["host_id"] == host and done["state_dir"] == os.path.realpath(h.state)
    with sqlite3.connect(done["moved_to"]) as db:
        assert db.execute("SELECT count(*) FROM sandbox WHERE name = 'young'").fetchone() == (1,)
    with h.start() as a:
        got = listed(a)
        assert {n: b.id for n, b in got.items()} == {"kept": kept, "young": young}
        assert a.call("DaemonService.Status").host_id == host and len(store_notes(a)) == 1
        look_again(cloud, h)
        new = create(a, name="new").id
        assert new not in (kept, gone, young)
    assert cloud.ledger.count("delete") == 1, "what was killed before is the only one that ended"


def test_what_is_of_no_daemon_is_left_alone(cloud, home):
    """A sandbox that another made in the account outlives a restore."""
    h, other = home(), home()
    with h.start() as a:
        create(a, name="mine")
        saved = backup(h)
    h.stop()
    with other.start() as o:
        theirs = create(o, name="theirs").id
        restore(h, saved)
        with h.start() as a:
            look_again(cloud, h)
            assert "theirs" not in listed(a)
        assert listed(o)["theirs"].id == theirs
    assert not cloud.ledger.count("delete")


def test_a_backup_of_a_state_that_changes(cloud, home):
    """Each is one moment: all rows of a create or none, while others go on; the copy's file is gone when it was sent."""
    h = home(conf={"daemon": {"reconcile_period": "1h"}})
    with h.start() as a:
        stop, made = threading.Event(), []

        def work():
            with Api(h.d.socket) as mine:
                while not stop.is_set():
                    made.append(create(mine, request_id="r%d" % len(made)).id)
        t = threading.Thread(target=work)
        t.start()
        try:
            while len(made) < 12:
                least = len(made)
                saved = backup(h)
                with sqlite3.connect("file:%s?mode=ro" % saved, uri=True) as db:
                    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                    n, = db.execute("SELECT count(*) FROM sandbox").fetchone()
                    requests, = db.execute("SELECT count(*) FROM request JOIN sandbox ON request.object = sandbox.id").fetchone()
                assert least <= n <= len(made) + 1 and requests == n
                assert "export.db" not in os.listdir(h.state)
        finally:
            stop.set()
            t.join()


def test_a_backup_is_audited(cloud, home):
    h = home(conf={"daemon": {"log_level": "info"}})
    h.start().close()
    h.d.ctl("backup", "--", h.path("x"))
    h.d.wait_log(r'\baudit .*call="/agentbox.v1.DaemonService/Backup" result=OK')


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be another user")
def test_a_user_is_refused(cloud):
    d = harness.Daemon(cloud, args=("--system",))
    try:
        os.chmod(d.home, 0o755)
        r = subprocess.run(harness.as_user(64042, [harness.AGENTBOXCTL, "-s", d.socket, "backup", "-"]), capture_output=True,
                           stdin=subprocess.DEVNULL, timeout=60)
        assert r.returncode == 1 and b"UID_DENIED" in r.stderr and not r.stdout
    finally:
        d.close()


def test_what_is_there_is_replaced_as_a_whole_or_stays(cloud, home):
    h = home()
    with h.start():
        target = h.path("../b")
        with open(target, "w", encoding="ascii") as f:
            f.write("before")
        os.chmod(target, 0o644)
        harness.ctl("/nonexistent", "--wait", "100ms", "backup", target, check=False)
        with open(target, encoding="ascii") as f:
            assert f.read() == "before"
        backup(h, "b")
        assert stat.S_IMODE(os.stat(target).st_mode) == 0o600
        with open(target, "rb") as f:
            assert f.read(15) == b"SQLite format 3"
        piped = h.d.ctl("backup", "-", text=False).stdout
        assert piped[:15] == b"SQLite format 3"
        assert h.d.ctl("backup", h.state, check=False).returncode == 1
        assert h.d.ctl("backup", "/nonexistent/b", check=False).returncode == 1
        assert not [f for f in os.listdir(h.folder) if f.startswith(".")]
    h.stop()
    r = restore(h, "-", input=piped)
    assert b"restored to" in r.stdout


def files(h):
    """The state but for the lock, whose pid is for people."""
    found = {}
    for f in sorted(os.listdir(h.state)):
        path = h.path(f)
        if f != "lock" and os.path.isfile(path):
            with open(path, "rb") as one:
                found[f] = one.read()
    return found


def junk(kind, saved, to):
    shutil.copy(saved, to)
    if kind == "empty":
        open(to, "wb").close()
    elif kind == "no database":
        with open(to, "wb") as f:
            f.write(b"hello" * 1000)
    elif kind == "cut":
        os.truncate(to, os.path.getsize(saved) // 2)
    elif kind == "of another program":
        with sqlite3.connect(to) as db:
            db.execute("PRAGMA application_id = 7")
    elif kind == "newer":
        with sqlite3.connect(to) as db:
            db.execute("PRAGMA user_version = 9999")
    elif kind == "without a table":
        with sqlite3.connect(to) as db:
            db.execute("DROP TABLE sandbox")
    elif kind == "of nobody":
        with sqlite3.connect(to) as db:
            db.execute("DELETE FROM meta WHERE key = 'host_id'")
    elif kind == "with a broken index":
        with sqlite3.connect(to) as db:
            db.execute("PRAGMA writable_schema = ON")
            db.execute("DELETE FROM request")
            db.execute("INSERT INTO sqlite_schema SELECT type, 'broken', tbl_name, rootpage, sql FROM sqlite_schema "
                       "WHERE type = 'index' AND sql IS NOT NULL LIMIT 1")
    return to


JUNK = {"empty": "no backup of agentboxd", "no database": "no database", "cut": "damaged", "of another program": "another program",
        "newer": "schema 9999", "without a table": "cannot be used", "of nobody": "which daemon", "with a broken index": "damaged"}


def test_what_is_no_backup_changes_nothing(cloud, home):
    h = home()
    with h.start() as a:
        for i in range(40):
            create(a, name="box%d" % i, request_id="r%d" % i, metadata={"x": "y" * 500})
        saved = backup(h)
    h.stop()
    before = files(h)
    for kind, words in JUNK.items():
        r = restore(h, junk(kind, saved, h.path("../junk")), check=False)
        assert r.returncode == 1 and words in r.stderr, (kind, r.stderr)
        assert files(h) == before, kind
    r = restore(h, "/nonexistent/x", check=False)
    assert r.returncode == 1 and "No such file" in r.stderr
    assert files(h) == before
    with h.start() as a:
        assert len(listed(a)) == 40 and not store_notes(a)


def test_not_under_a_running_daemon(cloud, home):
    h = home()
    with h.start() as a:
        saved = backup(h)
        create(a, name="later")
        r = restore(h, saved, check=False)
        assert r.returncode == 1 and "in use by process %d" % h.d.proc.pid in r.stderr
        assert "later" in listed(a)


def test_another_host(cloud, home):
    """A folder of its own is refused without a word; an empty one becomes the host of the backup."""
    h, other = home(), home()
    with h.start() as a, other.start() as o:
        host, was = a.call("DaemonService.Status").host_id, o.call("DaemonService.Status").host_id
        box = create(a, name="box").id
        saved = backup(h)
        young = create(a, name="young").id
        left = create(o, name="left").id
    h.stop()
    other.stop()
    r = restore(other, saved, check=False)
    assert r.returncode == 1 and host in r.stderr and was in r.stderr and "--other-host" in r.stderr
    restore(other, saved, "--other-host")
    assert [f for f in os.listdir(other.state) if f.startswith("host-id.replaced-")]
    with other.start() as o:
        assert o.call("DaemonService.Status").host_id == host
        assert {n: b.id for n, b in listed(o).items()} == {"box": box, "young": young}
        look_again(cloud, other)
        create(o, name="new")
    other.stop()
    assert not cloud.ledger.count("delete") and cloud.sandbox(left)
    shutil.rmtree(other.state)
    restore(other, saved)
    with other.start() as o:
        assert o.call("DaemonService.Status").host_id == host
        assert {"box", "young", "new"} == set(listed(o)) and len(store_notes(o)) == 1
        look_again(cloud, other)
    assert not cloud.ledger.count("delete")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be another user")
def test_root_restores_as_the_owner(cloud, home):
    h = home()
    with h.start():
        saved = backup(h)
    h.stop()
    os.chmod(h.folder, 0o755)
    for f in [h.state] + [h.path(f) for f in os.listdir(h.state)]:
        os.lchown(f, 64043, 64043)
    restore(h, saved)
    assert {os.lstat(h.path(f)).st_uid for f in os.listdir(h.state)} == {64043}


def test_a_backup_of_0_1_0_is_migrated(cloud, home):
    """Of an older schema: its rows are there."""
    h = home()
    h.start().close()
    h.stop()
    old = h.path("../old.db")
    with open(os.path.join(harness.ROOT, "tests/golden/state-0.1.0/agentboxd.sql"), encoding="utf-8") as f:
        text = f.read()
    with sqlite3.connect(old) as db:
        db.executescript(text)
        version, = db.execute("PRAGMA user_version").fetchone()
    done = json.loads(harness.ctl("/nonexistent", "--json", "restore", "--other-host", "--state-dir", h.state, old).stdout)
    assert done["schema"] == version < 13
    h.start().close()
