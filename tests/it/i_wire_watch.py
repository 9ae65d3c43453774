# SPDX-License-Identifier: MIT
"""Watching directories (cases 129 and 130), /files/compose, a full disk (case 119)."""
import json
import os
import signal
import subprocess
import threading
import time

import pytest

import harness
from wire import CUT, Client, RpcFailed
from wire_common import own, real  # noqa: F401

FS = "filesystem.Filesystem/"
WAIT_S = 20


@pytest.fixture
def box(real):
    return real.create()


def sh(real, box, script, **kw):
    events, out, err, end, _ = real.run(box, script, **kw)
    assert end and end["status"] == "exit status 0", (script, out, err, end)
    return out


class Watch:
    """A WatchDir stream whose `start` was read."""

    def __init__(self, real, box, path, headers=(), **options):
        self.stream = real.stream(box, FS + "WatchDir", dict(path=path, **options), headers)
        first = self.stream.next()
        assert first == {"start": {}}, first

    def next(self):
        while True:
            m = self.stream.next()
            if m is None:
                raise AssertionError("ended: %r" % self.stream.end)
            if "filesystem" in m:
                e = m["filesystem"]
                return e["name"], e["type"].replace("EVENT_TYPE_", "").lower(), e.get("entry")

    def until(self, name, kind):
        """All events up to this one, entries left out."""
        seen = []
        while True:
            seen.append(self.next()[:2])
            if seen[-1] == (name, kind):
                return seen

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stream.close()


def test_case_129_create_and_write(real, box):
    with Watch(real, box, "/home/user") as w:
        sh(real, box, "touch a; echo x >> a; mkdir d; echo y > d/deep; rm a")
        seen = w.until("a", "remove")
    assert ("a", "create") in seen and ("a", "write") in seen and ("d", "create") in seen
    assert seen.index(("a", "create")) < seen.index(("a", "write"))
    assert not [n for n, _ in seen if "/" in n], seen


def test_case_129_rename(real, box):
    sh(real, box, "echo 1 > old")
    with Watch(real, box, "/home/user") as w:
        sh(real, box, "mv old new")
        assert [w.next()[:2], w.next()[:2]] == [("old", "rename"), ("new", "create")]
        sh(real, box, "chmod 600 new")
        assert w.next()[:2] == ("new", "chmod")


def test_case_129_recursive(real, box):
    sh(real, box, "mkdir -p sub/one")
    with Watch(real, box, "/home/user", recursive=True) as w:
        sh(real, box, "echo x > sub/x; echo y > sub/one/y")
        seen = w.until("sub/one/y", "write")
        assert ("sub/x", "create") in seen and ("sub/one/y", "create") in seen
        sh(real, box, "mkdir -p new/a/b/c; echo z > new/a/b/c/z")
        seen = w.until("new/a/b/c/z", "create")
        assert {("new", "create"), ("new/a", "create"), ("new/a/b", "create"), ("new/a/b/c", "create")} <= set(seen)
        sh(real, box, "mv new moved; touch moved/a/late")
        seen = w.until("moved/a/late", "create")
        assert ("new", "rename") in seen and ("moved", "create") in seen
        after = seen[seen.index(("new", "rename")):]        # before it there may be repeats of what was there
        assert not [n for n, kind in after if n.startswith("new/") and kind == "create"], seen


@pytest.mark.parametrize("recursive", [False, True])
def test_events_of_an_upload(real, box, recursive):
    """E-5: a new file is told as create, chmod, write, and an old one as chmod, write. The kernel makes one of two
    writes that nobody has read yet."""
    with Watch(real, box, "/home/user", recursive=recursive) as w:
        real.write(box, "new", b"x")
        assert [w.next()[:2] for _ in range(3)] == [("new", "create"), ("new", "chmod"), ("new", "write")]
        real.write(box, "empty", b"")
        real.write(box, "new", b"y")
        sh(real, box, "mkdir end")
        seen = w.until("end", "create")[:-1]
        assert [e for n, e in enumerate(seen) if n == 0 or e != seen[n - 1]] == [
            ("empty", "create"), ("empty", "chmod"), ("new", "chmod"), ("new", "write")]


def test_renamed_folder_is_told_once(real, box):
    """E-5: a folder that gets another name inside a watch is told, not what is in it; nothing in it is missed."""
    sh(real, box, "mkdir -p d/sub out; touch d/one d/sub/two")
    with Watch(real, box, "/home/user", recursive=True) as w:
        sh(real, box, "mv d e; touch e/sub/late; mv e out/e; touch out/e/sub/later; mv out/e /tmp/e; touch /tmp/e/unseen")
        sh(real, box, "sleep 0.3; touch /tmp/e/sub/unseen; mv /tmp/e back; touch end")
        seen = w.until("end", "create")
    seen = [e for e in seen if e[1] in ("create", "rename")]
    n = seen.index(("out/e", "rename"))
    assert seen[:n] == [("d", "rename"), ("e", "create"), ("e/sub/late", "create"), ("e", "rename"), ("out/e", "create"),
                        ("out/e/sub/later", "create")], seen
    assert not [name for name, _ in seen[n:] if name.startswith("out/e/sub")], seen
    assert {("back", "create"), ("back/sub", "create"), ("back/sub/two", "create"), ("back/one", "create")} <= set(seen)


def test_case_129_nothing_is_missed_in_new_folders(real, box):
    with Watch(real, box, "/home/user", recursive=True) as w:
        sh(real, box, "for i in $(seq 100); do mkdir -p t/$i/x; echo $i > t/$i/x/f; done; touch end")
        seen = set(w.until("end", "create"))
    assert not [i for i in range(1, 101) if ("t/%d/x/f" % i, "create") not in seen]


def test_case_129_entries(real, box):
    with Watch(real, box, "/home/user", recursive=True, includeEntry=True) as w:
        sh(real, box, "mkdir s; echo > s/is-watched")
        while True:
            name, kind, entry = w.next()
            if (name, kind) == ("s", "create"):
                assert entry["path"] == "/home/user/s" and entry["type"] == "FILE_TYPE_DIRECTORY"
            if (name, kind) == ("s/is-watched", "create"):
                sh(real, box, "echo 12345 > s/f; rm s/f")
            if (name, kind) == ("s/f", "remove"):
                assert entry is None
                break


def test_case_129_errors(real, box):
    real.write(box, "file", b"")
    for path, code in (("/home/user/missing", "not_found"), ("/home/user/file", "invalid_argument")):
        with real.stream(box, FS + "WatchDir", {"path": path}) as s:
            assert s.next() is None and s.end["error"]["code"] == code, s.end
        with pytest.raises(RpcFailed) as e:
            real.unary(box, FS + "CreateWatcher", {"path": path})
        assert e.value.code == code


def test_the_directory_itself(real, box):
    sh(real, box, "mkdir gone")
    with Watch(real, box, "gone") as w:
        sh(real, box, "rmdir gone")
        assert (".", "remove") in w.until(".", "remove")


def test_uploads_are_seen_and_links_are_not_followed(real, box):
    sh(real, box, "mkdir w outside; ln -s ../outside w/link")
    with Watch(real, box, "w", recursive=True) as w:
        real.write(box, "outside/no", b"1")
        real.write(box, "w/yes", b"1")
        seen = w.until("yes", "write")
    assert [n for n, _ in seen if n != "yes"] == [], seen


def test_names_that_are_no_text(real, box):
    with Watch(real, box, "/home/user") as w:
        sh(real, box, "touch $'bad\\xff' && touch $'a b\\nc'")
        assert w.next()[:2] == ("bad\\xff", "create")
        w.until("a b\nc", "create")


def test_keepalives(real, box):
    with real.stream(box, FS + "WatchDir", {"path": "/tmp"}, [("Keepalive-Ping-Interval", "1")]) as s:
        assert s.next() == {"start": {}}
        assert s.next() == {"keepalive": {}}
        assert s.next() == {"keepalive": {}}


def test_overflow_ends_a_stream_that_is_not_read(real, box):
    """Far more changes than the kernel and the connection keep: the reader is told, nobody else waits."""
    with Watch(real, box, "/home/user", recursive=False) as w:
        sh(real, box, "seq -f '%%.0f-%s' 50000 | xargs touch" % ("n" * 180), timeout=90)
        with pytest.raises(AssertionError) as e:
            while True:
                w.next()
    assert "'internal'" in str(e.value) and "overflow" in str(e.value)


def test_case_130_watcher(real, box):
    made = real.unary(box, FS + "CreateWatcher", {"path": "/home/user", "recursive": True})["watcherId"]
    assert made.startswith("w") and len(made) == 21
    events, end = [], time.monotonic() + WAIT_S
    # A folder is watched from when its making was seen: what is written into it before that is told as made, at most.
    for command, told in (("mkdir q", ("q", "EVENT_TYPE_CREATE")), ("echo 1 > q/f", ("q/f", "EVENT_TYPE_WRITE"))):
        sh(real, box, command)
        while told not in events:
            assert time.monotonic() < end, events
            events += [(e["name"], e["type"]) for e in
                       real.unary(box, FS + "GetWatcherEvents", {"watcherId": made}).get("events", [])]
    assert real.unary(box, FS + "GetWatcherEvents", {"watcherId": made}).get("events", []) == []
    assert real.unary(box, FS + "RemoveWatcher", {"watcherId": made}) == {}
    for rpc in ("GetWatcherEvents", "RemoveWatcher"):
        with pytest.raises(RpcFailed) as e:
            real.unary(box, FS + rpc, {"watcherId": made})
        assert e.value.code == "not_found"


def watching(pid):
    """The watching processes below this one."""
    found = []
    for n in filter(str.isdigit, os.listdir("/proc")):
        try:
            up = int(n)
            while up > 1 and up != pid:
                with open("/proc/%d/stat" % up, encoding="utf-8", errors="replace") as f:
                    up = int(f.read().rpartition(")")[2].split()[1])
            if up == pid and int(n) != pid and any("inotify" in os.readlink("/proc/%s/fd/%s" % (n, fd)) for fd in os.listdir("/proc/%s/fd" % n)):
                found.append(int(n))
        except OSError:
            continue
    return found


def test_what_was_done_before_it_is_asked_is_told(own):
    """A watcher's process may come late: whoever asks waits for it, and not for one event more."""
    c, cloud = own()
    box = c.create()
    made = [c.unary(box, FS + "CreateWatcher", {"path": "/home/user"})["watcherId"] for _ in range(2)]
    stopped = watching(cloud.pid)
    assert len(stopped) == 2
    answers = []

    def ask(client, watcher):
        answers.append(client.unary(box, FS + "GetWatcherEvents", {"watcherId": watcher}).get("events", []))
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        sh(c, box, "echo 1 > f; mv f g")
        threads = [threading.Thread(target=ask, args=(Client(cloud.plain_url, c.key), made[0])) for _ in range(2)]
        for t in threads:
            t.start()
        time.sleep(0.5)
        assert not answers
        gone = subprocess.Popen(["curl", "-s", "-m", "0.2", "--noproxy", "*", "-H", "Content-Type: application/json", "-d",
                                 json.dumps({"watcherId": made[0]}), *[w for k, v in c.identity(box) for w in ("-H", "%s: %s" % (k, v))],
                                 cloud.plain_url + "/" + FS + "GetWatcherEvents"], stdout=subprocess.DEVNULL)
        assert gone.wait() == 28                        # one that leaves takes nobody's answer
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    for t in threads:
        t.join(20)
    told = sorted(answers, key=len)
    assert told[0] == [] and {(e["name"], e["type"]) for e in told[1]} >= {
        ("f", "EVENT_TYPE_CREATE"), ("f", "EVENT_TYPE_RENAME"), ("g", "EVENT_TYPE_CREATE")}, answers
    ask(c, made[1])
    assert len(answers[-1]) == len(told[1])
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    t = threading.Thread(target=lambda: pytest.raises(RpcFailed, ask, Client(cloud.plain_url, c.key), made[0]))
    t.start()
    time.sleep(0.3)
    c.unary(box, FS + "RemoveWatcher", {"watcherId": made[0]})     # whoever waits is told
    t.join(20)
    assert not t.is_alive()
    c.close()


def test_watches_end_with_the_sandbox(real):
    box = real.create()
    with Watch(real, box, "/tmp") as w:
        real.unary(box, FS + "CreateWatcher", {"path": "/tmp"})
        assert real.kill(box).status == 204
        with pytest.raises(CUT):
            w.next()


def test_too_many_watches(real):
    box = real.create()
    ids = []
    with pytest.raises(RpcFailed) as e:
        for _ in range(200):
            ids.append(real.unary(box, FS + "CreateWatcher", {"path": "/tmp"})["watcherId"])
    assert e.value.code in ("resource_exhausted", "internal") and len(ids) > 10
    for i in ids:
        real.unary(box, FS + "RemoveWatcher", {"watcherId": i})
    real.unary(box, FS + "CreateWatcher", {"path": "/tmp"})


def compose(real, box, **body):
    return real.envd(box, "POST", "/files/compose", [("Content-Type", "application/json")], json.dumps(body).encode())


def test_compose(real, box):
    for i in range(3):
        real.write(box, "part%d" % i, b"%d" % i * 100000)
    r = compose(real, box, source_paths=["part0", "/home/user/part1", "~/part2"], destination="out/whole")
    assert r.status == 200 and r.json() == {"path": "/home/user/out/whole", "name": "whole", "type": "file"}, r
    assert real.read(box, "out/whole").body == b"".join(b"%d" % i * 100000 for i in range(3))
    assert real.stat(box, "out/whole")["owner"] == "user"
    assert real.read(box, "part1").status == 404
    assert sh(real, box, "ls -A out").split() == [b"whole"]


def test_compose_refusals(real, box):
    real.write(box, "a", b"a")
    for status, body in ((400, {}), (400, {"source_paths": [], "destination": "x"}), (400, {"source_paths": ["a"]}),
                         (400, {"source_paths": ["a"], "destination": "a"}),
                         (400, {"source_paths": ["/home/user"], "destination": "x"}),
                         (404, {"source_paths": ["a", "missing"], "destination": "x"}),
                         (401, {"source_paths": ["a"], "destination": "x", "username": "nobody-here"})):
        r = compose(real, box, **body)
        assert r.status == status and r.json()["code"] == status, (body, r)
    assert real.read(box, "a").body == b"a" and real.read(box, "x").status == 404
    assert real.envd(box, "POST", "/files/compose", [], b"no json").status == 400
    assert real.envd(box, "POST", "/files/compose", [], b"{}", token=False).status == 401


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount a small disk")
def test_case_119_disk_full(own, tmp_path):
    """An upload that does not fit is 507, and the sandbox goes on."""
    with harness.small_disk(str(tmp_path / "local")):
        c, cloud = own(folder=str(tmp_path))
        box = c.create()
        r = c.envd(box, "POST", "/files?path=big", [("Content-Type", "application/octet-stream")],
                   iter([b"x" * (1 << 20)] * 64))
        assert r.status == 507 and r.json()["code"] == 507, r
        assert c.run(box, "rm big; echo on")[1] == b"on\n"
        assert c.write(box, "small", b"1").status == 200
        assert c.kill(box).status == 204
        cloud.close()
