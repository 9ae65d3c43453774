# SPDX-License-Identifier: MIT
"""The state folder on its bad days: lost, broken, put back from earlier, removed under a running daemon, copied.

The ledger of the scripted cloud says what was made and ended; agentboxd says what it knows, and what it has lost.
"""
import os
import re
import shutil
import subprocess

import grpc
import pytest

import harness
from api import Api, ApiError
from harness import until

LEAVE, PAUSE, KILL = 1, 2, 3


class Home:
    """One state folder, one daemon after the other."""

    def __init__(self, cloud, conf=None):
        self.cloud = cloud
        self.conf = conf or {"daemon": {"unclaimed_grace": "1s", "restart_grace": "1s", "reconcile_period": "1s"}}
        self.folder = harness.temp_dir("abd-")
        self.state = os.path.join(self.folder, "state")
        self.d = None
        self.said = ""

    def start(self):
        self.d = harness.Daemon(self.cloud, folder=self.folder, conf=self.conf)
        return Api(self.d.socket)

    def stop(self, crash=False):
        if self.d and self.d.running():
            self.d.kill9() if crash else self.d.stop()

    def path(self, name):
        return os.path.join(self.state, name)

    def log(self, event):
        return re.findall(r"^.*\b%s\b.*$" % event, self.d.log(), re.M)

    def close(self):
        if self.d:
            if self.d.running():
                self.d.stop()
            self.d.check_sanitizer()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def home(cloud):
    homes = []

    def make(**kw):
        homes.append(Home(cloud, **kw))
        return homes[-1]

    yield make
    for h in homes:
        h.close()


def create(a, **kw):
    return a.call("SandboxService.Create", **kw)


def grace(policy):
    return policy.release_grace.seconds


def listed(a):
    return {b.name: b for b in a.call("SandboxService.List", cached=False).sandboxes}


def store_notes(a):
    return [d.message for d in a.call("DaemonService.Status").degraded if d.what in ("store", "host_id")]




@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
def test_the_database_is_deleted_under_ten_sandboxes(cloud, home, crash):
    """With the second copy all is there, also what was set later; without it, what the cloud's tags say, and one report."""
    h = home(conf={"daemon": {"restart_grace": "1s", "reconcile_period": "1s"}})  # nobody claims what is adopted
    with h.start() as a:
        boxes = {}
        for i in range(10):
            name = "box%d" % i
            boxes[name] = create(a, name=name, request_id="r%d" % i,
                                 policy={"on_release": KILL, "release_grace": 100 + i}).id
        for i in range(0, 10, 2):
            a.call("SandboxService.SetPolicy", sandbox="box%d" % i, policy={"release_grace": 500 + i})
        with open(h.path("host-id"), encoding="ascii") as f:
            before = re.search(r"mark=(\d+)", f.read()).group(1)
        if crash:   # the copy that was begun after the last answer is in place when the mark has risen twice
            def mark():
                with open(h.path("host-id"), encoding="ascii") as f:
                    return int(re.search(r"mark=(\d+)", f.read()).group(1))
            until(lambda: mark() > int(before), 30, "the second copy", h.d)
            a.call("SandboxService.SetPolicy", sandbox="box0", policy={"release_grace": 500})
            now = mark()
            until(lambda: mark() > now, 30, "the next copy", h.d)
    h.stop(crash)
    for f in os.listdir(h.state):
        if f.startswith("agentboxd.db"):
            os.unlink(h.path(f))
    with h.start() as a:
        got = listed(a)
        assert {n: b.id for n, b in got.items()} == boxes
        assert [grace(got["box%d" % i].policy) for i in range(10)] == [
            (500 if i % 2 == 0 else 100) + i for i in range(10)]
        assert len(h.log("store_rebuilt")) == 1 and "from=backup" in h.log("store_rebuilt")[0]
        assert any("second copy" in n for n in store_notes(a))
        assert create(a, name="box3", request_id="r3", policy={"on_release": KILL, "release_grace": 103}).id == boxes["box3"]
    h.stop()
    for f in os.listdir(h.state):
        if f.startswith("agentboxd.db") or f == "backup.db":
            os.unlink(h.path(f))
    seen = len(h.log("store_rebuilt"))
    with h.start() as a:
        got = listed(a)
        assert {n: b.id for n, b in got.items()} == boxes
        assert [grace(got["box%d" % i].policy) for i in range(10)] == [100 + i for i in range(10)]
        told = h.log("store_rebuilt")[seen:]
        assert len(told) == 1 and "from=cloud_tags" in told[0] and "policies set later" in told[0]
        assert all(name in told[0] for name in boxes)
        assert create(a, request_id="r4", name="box4", policy={"on_release": KILL, "release_grace": 104}).id == boxes["box4"]
    assert len(cloud.ledger.sandboxes) == 10 and not cloud.ledger.count("delete")


@pytest.mark.parametrize("what", ["first_page", "all", "emptied"])
def test_a_broken_database_is_moved_aside(cloud, home, what):
    h = home()
    with h.start() as a:
        b = create(a, name="box", policy={"release_grace": 77}).id
    h.stop()
    if what == "all":   # with a journal, as a crash leaves it
        with h.start() as a:
            listed(a)
        h.stop(crash=True)
    for name in os.listdir(h.state):
        if name == "agentboxd.db" or name.startswith("agentboxd.db-") and what == "all":
            with open(h.path(name), "r+b") as f:
                if what == "emptied":
                    f.truncate(0)
                else:
                    f.write(os.urandom(4096 if what == "first_page" else os.fstat(f.fileno()).st_size))
    with h.start() as a:
        got = listed(a)["box"]
        assert got.id == b and grace(got.policy) == 77
        if what != "emptied":
            aside = [f for f in os.listdir(h.state) if ".corrupt-" in f]
            assert aside and h.log("store_aside")
            assert what != "all" or any(f.endswith("-wal") for f in aside), aside
        assert len(h.log("store_rebuilt")) == 1
    assert not cloud.ledger.count("delete")


def test_the_database_is_removed_under_the_running_daemon(cloud, home):
    h = home()
    with h.start() as a:
        create(a, name="one")
        for f in os.listdir(h.state):
            if f.startswith("agentboxd.db"):
                os.unlink(h.path(f))
        create(a, name="two", request_id="two")
        assert h.log("store_unlinked") and os.path.exists(h.path("agentboxd.db"))
        assert any("removed" in n for n in store_notes(a))
    h.stop(crash=True)
    os.unlink(h.path("backup.db"))
    with h.start() as a:
        assert set(listed(a)) == {"one", "two"}
        assert not store_notes(a), "nothing was lost"
    assert len(cloud.ledger.sandboxes) == 2


@pytest.mark.parametrize("with_copy", [True, False], ids=["with_copy", "without"])
def test_an_earlier_database_is_put_back(cloud, home, with_copy):
    """What it holds for released is in use, what it does not know is there: nothing is ended, nothing made twice."""
    h = home()
    kill = {"on_release": KILL, "release_grace": 1}
    with h.start() as a:
        old = create(a, name="old", request_id="old", policy=kill).id
        lease = a.call("LeaseService.Acquire", sandbox="old", ttl=600).id
        h.stop()
    shutil.copy(h.path("agentboxd.db"), h.path("yesterday"))
    with h.start() as a:
        young = create(a, name="young", request_id="young", policy=kill).id
        a.call("LeaseService.Acquire", sandbox="old", ttl=600)
        a.call("LeaseService.Release", lease_id=lease)
        a.call("LeaseService.Acquire", sandbox="young", ttl=600)
    h.stop()
    os.replace(h.path("yesterday"), h.path("agentboxd.db"))
    if not with_copy:
        os.unlink(h.path("backup.db"))
    with h.start() as a:
        assert create(a, name="young", request_id="young", policy=kill).id == young
        got = listed(a)
        assert {n: b.id for n, b in got.items()} == {"old": old, "young": young}
        assert [b.adopted for b in got.values()] == [not with_copy] * 2
        assert len(store_notes(a)) == 1
        # The lease that the old database remembers ends, and nothing follows from that.
        for x in a.call("LeaseService.List", sandbox="old").leases:
            a.call("LeaseService.Release", lease_id=x.id) if not with_copy else None
        lists = cloud.ledger.count("list")
        until(lambda: cloud.ledger.count("list") >= lists + 4, 30, "four more looks at the cloud", h.d)
    assert len(cloud.ledger.sandboxes) == 2 and not cloud.ledger.count("delete")


def test_two_daemons_from_copies_of_one_state(cloud, home):
    """The copy is another host: it sees nothing of the original's, and only an explicit word lets it take one."""
    first, second = home(), home()
    kill = {"on_release": KILL, "release_grace": 1}
    with first.start() as a:
        host = a.call("DaemonService.Status").host_id
        b = create(a, name="box", request_id="r", policy=kill).id
        a.call("LeaseService.Acquire", sandbox="box", ttl=600)
        spare = create(a, name="spare", policy=kill).id
    first.stop()
    subprocess.run(["cp", "-a", first.state, second.state], check=True)
    with first.start() as a, second.start() as c:
        assert a.call("DaemonService.Status").host_id == host
        other = c.call("DaemonService.Status").host_id
        assert other != host and second.log("host_cloned")
        assert any(host in n for n in store_notes(c))
        assert set(listed(a)) == {"box", "spare"} and not listed(c)
        with pytest.raises(ApiError):
            c.call("SandboxService.Get", sandbox="box")
        # Its request ids are its own: this is another host's wish.
        mine = create(c, name="box", request_id="r", policy=kill).id
        assert mine != b
        assert cloud.sandbox(mine).metadata["agentbox.host"] == other
        # Both look at the cloud a few times: each leaves the other's alone.
        lists = cloud.ledger.count("list")
        until(lambda: cloud.ledger.count("list") >= lists + 6, 30, "more looks at the cloud", second.d)
        assert set(listed(a)) == {"box", "spare"} and set(listed(c)) == {"box"}
        got = c.call("SandboxService.ConnectSandbox", sandbox=spare, adopt=True)
        assert got.id == spare and got.adopted
    assert not cloud.ledger.count("delete")
    for h in (first, second):
        h.stop()
    with second.start() as c:
        assert c.call("DaemonService.Status").host_id == other, "it stays who it has become"


def test_a_state_folder_that_may_wander(cloud, home):
    h = home(conf={"daemon": {"clone_check": "no"}})
    with h.start() as a:
        host = a.call("DaemonService.Status").host_id
        create(a, name="box")
    h.stop()
    os.rename(h.state, h.state + ".was")
    subprocess.run(["cp", "-a", h.state + ".was", h.state], check=True)
    with h.start() as a:
        assert a.call("DaemonService.Status").host_id == host and set(listed(a)) == {"box"}


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to mount a file system that gets full")
def test_c_9_disk_full_between_the_answer_and_the_row(cloud):
    """C-9: the caller hears that the sandbox is there, and gets it with the same request id once there is room."""
    home = harness.temp_dir("abd-")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "none", home], check=True)
    d = None
    try:
        d = harness.Daemon(cloud, folder=home)
        fill = os.path.join(home, "fill")
        f = cloud.fault("create", hold_answer=True)
        with Api(d.socket) as api:
            future = api.future("SandboxService.Create", request_id="full", timeout=6)
            f.hold_answer.wait()
            fd = os.open(fill, os.O_WRONLY | os.O_CREAT, 0o600)
            with pytest.raises(OSError):
                while True:
                    os.write(fd, b"x" * 4096)
            os.close(fd)
            f.hold_answer.release()
            with pytest.raises(grpc.RpcError) as e:
                future.result()
            error = ApiError(e.value)
            made, = cloud.ledger.alive()
            assert (error.reason, error.metadata.get("made")) == ("OUTCOME_UNKNOWN", made.id), error
            assert "has done" in error.text and error.metadata["store"] in ("STORE_FULL", "NO_SPACE"), error
            os.unlink(fill)
            assert api.call("SandboxService.Create", request_id="full", timeout=30).id == made.id
            assert len(cloud.ledger.sandboxes) == 1
    finally:
        if d:
            d.close()
        subprocess.run(["umount", "-l", home], check=False)
        os.rmdir(home)
