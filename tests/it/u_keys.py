# SPDX-License-Identifier: MIT
"""The API key: replaced under load without a failed call, and in no place where it does not belong (FAULTS K, A-11)."""
import base64
import contextlib
import os
import secrets
import shutil
import subprocess
import threading
import time

import pytest

import harness
from api import Api, ApiError


def new_key():
    return "e2b_" + secrets.token_hex(20)


def replace(d, key, name="key"):
    """As a careful administrator: a new file in the place of the old one."""
    path = os.path.join(d.home, name)
    with open(path + ".new", "w", encoding="ascii") as f:
        f.write(key + "\n")
    os.chmod(path + ".new", 0o600)
    os.rename(path + ".new", path)


def seen_keys(cloud):
    return {s.header("x-api-key") for s in cloud.ledger.requests if s.header("x-api-key")}


def test_read_again_on_change(cloud, daemon, api):
    """The next call uses what the file holds now, also while the old key is still good; a connection has one key."""
    api.call("SandboxService.Create")
    key = new_key()
    cloud.keys[key] = cloud.team
    replace(daemon, key)
    api.call("SandboxService.Create")
    assert cloud.ledger.of("create")[-1].header("x-api-key") == key
    for conn in {s.conn for s in cloud.ledger.of("create")}:
        assert len({s.header("x-api-key") for s in cloud.ledger.of("create", conn=conn)}) == 1


def test_rewritten_in_place_and_unreadable(cloud, daemon, api):
    """A file that is empty or open to others for a while changes nothing: the old key stays, one line is logged."""
    path = os.path.join(daemon.home, "key")
    with open(path, "w", encoding="ascii"):
        pass
    api.call("SandboxService.Create")
    replace(daemon, new_key())
    os.chmod(path, 0o644)
    api.call("SandboxService.Create")
    assert seen_keys(cloud) == {cloud.key}
    assert "key_unreadable" in daemon.log() and cloud.key not in daemon.log()
    replace(daemon, cloud.key)
    api.call("SandboxService.Create")


def test_401_reads_again_once(cloud, daemon, api):
    """A-11: refused while the file holds the same key: KEY_REJECTED; a call after the file was replaced works."""
    key = new_key()
    del cloud.keys[cloud.key]
    cloud.keys[key] = cloud.team
    before = cloud.ledger.count("create")
    with pytest.raises(ApiError) as e:
        api.call("SandboxService.Create")
    assert e.value.reason == "KEY_REJECTED" and cloud.ledger.count("create") == before + 1
    replace(daemon, key)
    assert api.call("SandboxService.Create").id


def test_rotation_under_load(cloud, daemon):
    """The key is replaced five times while eight callers work, each time the old one is refused at once: no call fails,
    nothing is made twice."""
    failed, made, stop = [], [], threading.Event()

    def work():
        with Api(daemon.socket) as a:
            while not stop.is_set():
                try:
                    box = a.call("SandboxService.Create", timeout=30).id
                    made.append(box)
                    a.call("SandboxService.Kill", sandbox=box, timeout=30)
                except ApiError as e:
                    failed.append(str(e))
    workers = [threading.Thread(target=work) for _ in range(8)]
    for w in workers:
        w.start()
    for _ in range(5):
        n = len(made)
        harness.until(lambda: len(made) >= n + 15 or failed, 30, "calls with this key")
        key = new_key()
        replace(daemon, key)
        cloud.keys = {key: cloud.team}
    n = len(made)
    harness.until(lambda: len(made) >= n + 15 or failed, 30, "calls with the last key")
    stop.set()
    for w in workers:
        w.join(30)
    assert not failed, failed[:3]
    assert len(made) == len(set(made)) == len(cloud.ledger.sandboxes)
    assert len(seen_keys(cloud)) == 6


def forms(key):
    raw = key.encode()
    yield raw
    yield raw.hex().encode()
    for shift in range(3):      # wherever it begins in what was coded
        yield base64.b64encode(b"x" * shift + raw)[4:-4]


def where(key, places):
    return [name for name, data in places if any(f in data for f in forms(key))]


def places_of(d):
    for top in (d.home, d.state_dir):
        for folder, _, files in os.walk(top):
            for name in files:
                path = os.path.join(folder, name)
                if path != os.path.join(d.home, "key") and os.path.isfile(path):
                    with open(path, "rb") as f:
                        yield path, f.read()
    for name in ("environ", "cmdline"):
        with open("/proc/%d/%s" % (d.pid, name), "rb") as f:
            yield name, f.read()


def test_canary(cloud, daemon, api):
    """The key is in no log, database, WAL or other file, not in the environment or the arguments, and in nothing that the
    status, the configuration and the lists show."""
    old = cloud.key
    for _ in range(5):
        box = api.call("SandboxService.Create", metadata={"a": "b"}).id
        api.run(box, "echo hi")
    key = new_key()
    cloud.keys = {key: cloud.team}
    replace(daemon, key)
    for _ in range(5):
        api.call("SandboxService.Create")
    told = [(" ".join(words), daemon.ctl(*words).stdout.encode())
            for words in (("status",), ("status", "--json"), ("ls",), ("ls", "--json"))]
    told += [(method, str(api.call(method)).encode())
             for method in ("DaemonService.Status", "DaemonService.Config", "SandboxService.List")]
    assert all(data for _, data in told)
    assert where(old, told) == [] and where(key, told) == []
    assert where(old, places_of(daemon)) == [] and where(key, places_of(daemon)) == []


@pytest.mark.plain
def test_core(cloud, daemon, api):
    """A core taken by gcore holds neither the key in force nor the one before."""
    if not shutil.which("gcore") or harness.ASAN:
        pytest.skip("needs gcore, and a build without ASan's shadow")
    old, key = cloud.key, new_key()
    for _ in range(5):
        api.call("SandboxService.Create")
    cloud.keys = {key: cloud.team}
    replace(daemon, key)
    for _ in range(5):
        api.call("SandboxService.Create")
    path = os.path.join(daemon.home, "core")
    r = subprocess.run(["gcore", "-o", path, str(daemon.pid)], capture_output=True, text=True, timeout=60)
    if r.returncode:
        pytest.skip("gcore may not: " + r.stderr[-200:])
    with open("%s.%d" % (path, daemon.pid), "rb") as f:
        assert where(old, [("core", data := f.read())]) == [] and where(key, [("core", data)]) == []


# --- api_key_command ---

class Vault:
    """A command that prints the key, and counts how often it was asked."""

    def __init__(self, tmp_path, key):
        self.file, self.calls = tmp_path / "vault-key", tmp_path / "vault-calls"
        self.set(key)
        self.command = "echo x >>%s; \\\n cat %s" % (self.calls, self.file)

    def set(self, key):
        self.file.write_text(key + "\n", encoding="ascii")

    @property
    def n(self):
        return len(self.calls.read_text(encoding="ascii").splitlines()) if self.calls.exists() else 0


def by_command(cloud, command):
    conf = {"account default": {"api_key_file": [], "api_key_command": command}}
    return contextlib.closing(harness.Daemon(cloud, conf=conf))


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as f:
        return f.read().split()


def test_command(cloud, tmp_path):
    """Asked at the start, and again on 401: the calls that were refused meanwhile wait for it, and none fails."""
    vault = Vault(tmp_path, cloud.key)
    with by_command(cloud, vault.command) as d, Api(d.socket) as api:
        api.call("SandboxService.Create")
        assert vault.n == 1
        old, key = cloud.key, new_key()
        vault.set(key)
        cloud.keys[key] = cloud.team
        del cloud.keys[old]
        calls = [threading.Thread(target=api.call, args=("SandboxService.Create",)) for _ in range(8)]
        for t in calls:
            t.start()
        for t in calls:
            t.join()
        assert sum(s.team is cloud.team for s in cloud.by_id.values()) == 9 and vault.n == 2
        assert old not in d.log() and key not in d.log()


def test_command_has_no_other_key(cloud, tmp_path):
    """It prints what the cloud refuses: KEY_REJECTED, and it is not run for every call."""
    vault = Vault(tmp_path, cloud.key)
    del cloud.keys[cloud.key]
    with by_command(cloud, vault.command) as d, Api(d.socket) as api:
        for _ in range(5):
            with pytest.raises(ApiError) as e:
                api.call("SandboxService.Create")
            assert e.value.reason == "KEY_REJECTED"
        assert vault.n <= 2


@pytest.mark.parametrize("command,why", [
    ("exit 3", "it ended with 3"), ("kill -9 $$", "signal 9"), ("true", "one key on one line"), ("head -c 5000 /dev/zero | tr '\\0' a", "4,096"),
    ("sleep 100 & echo 'two words'", "one key on one line")])
def test_command_fails(cloud, command, why):
    """The daemon starts all the same and says what is wrong; nothing of the command stays."""
    with by_command(cloud, command) as d, Api(d.socket) as api:
        with pytest.raises(ApiError) as e:
            api.call("SandboxService.Create")
        assert e.value.reason == "KEY_MISSING"
        line, = [x for x in d.log().splitlines() if " key_command " in x][:1]
        assert why in line, line
        assert not children(d.proc.pid)


def test_command_comes_later(cloud, tmp_path):
    """Nothing at the start, a key at the first call: that call has it."""
    vault = Vault(tmp_path, cloud.key)
    flag = tmp_path / "open"
    script = tmp_path / "script"
    script.write_text("[ -e %s ] || exit 1; %s\n" % (flag, vault.command), encoding="ascii")
    with by_command(cloud, "sh %s" % script) as d, Api(d.socket) as api:
        flag.touch()
        harness.until(lambda: try_create(api), what="a key", program=d)


def try_create(api):
    try:
        return api.call("SandboxService.Create")
    except ApiError as e:
        assert e.reason == "KEY_MISSING"
        return None


def test_only_one_way(cloud):
    d = harness.Daemon(cloud, conf={"account default": {"api_key_command": "true"}}, wait=False)
    assert d.proc.wait(20) == 78
    assert "api_key_command: there is api_key_file already" in d.log()
    d.close()


# -- whose key it is

def rows(api):
    return sorted((s.id, s.name, s.state, s.leases) for s in api.call("SandboxService.List", cached=True).sandboxes)


def three_leased(api):
    """One that is made again when it is gone, one that is killed when it is released, one that is paused."""
    again = api.call("SandboxService.Create", name="again", policy={"on_gone": "RECREATE"}).id
    killed = api.call("SandboxService.Create", policy={"on_release": "KILL", "release_grace": 1}).id
    paused = api.call("SandboxService.Create").id
    for box in (again, killed):
        api.call("LeaseService.Acquire", sandbox=box, ttl=600)
    api.call("SandboxService.Pause", sandbox=paused)
    return again, killed, paused


def refusal(api, method, **fields):
    with pytest.raises(ApiError) as e:
        api.call(method, **fields)
    return e.value


def test_a_strange_key_is_quarantine(cloud):
    """C-2: another team's key for five seconds (tests/shows.sh: sixty), over reconciles and a restart: nothing is forgotten, made or
    ended, calls say what is wrong, and with the right key back all is as before."""
    folder = harness.temp_dir("abd-")
    path = os.path.join(folder, "team")
    conf = {"daemon": {"reconcile_period": "1s"}, "account default": {"api_key_file": path}}
    with open(path, "w", encoding="ascii") as f:
        f.write(cloud.key)
    os.chmod(path, 0o600)
    d = harness.Daemon(cloud, folder=folder, conf=conf)
    try:
        with Api(d.socket) as api:
            boxes = three_leased(api)
            before, alive = rows(api), sorted(b.id for b in cloud.ledger.alive())
            done = {k: cloud.ledger.count(k) for k in ("create", "delete", "pause", "connect", "timeout")}
            replace(d, cloud.other_key, "team")
            for method, fields in (("SandboxService.Create", {}), ("SandboxService.Kill", {"sandbox": boxes[1]}),
                                   ("SandboxService.SetTimeout", {"sandbox": boxes[0], "sandbox_timeout": 900}),
                                   ("SandboxService.ConnectSandbox", {"sandbox": boxes[2]})):
                e = refusal(api, method, **fields)
                assert (e.code, e.reason) == ("FAILED_PRECONDITION", "KEY_REJECTED"), (method, e)
                assert "another team" in str(e) and "Put the right key back" in str(e)
            seen = api.call("SandboxService.Get", sandbox=boxes[0], max_staleness=0)
            assert seen.state == 2 and seen.freshness.source == 3     # what is known, and that the cloud was not asked
            status = api.call("DaemonService.Status")
            assert [x.account for x in status.degraded if x.what == "key"] == [status.clouds[0].account]
            harness.until(lambda: sum(s.header("x-api-key") == cloud.other_key for s in cloud.ledger.requests) >= 4, 20,
                          "lists of the strange key")
            if os.environ.get("SHOWS_FULL") == "1":
                time.sleep(60)          # what is shown is that nothing happens
            assert rows(api) == before
        d.close()
        d = harness.Daemon(cloud, folder=folder, conf=conf)
        with Api(d.socket) as api:
            assert refusal(api, "SandboxService.Create").reason == "KEY_REJECTED"
            assert sorted(b.id for b in cloud.ledger.alive()) == alive
            strange = [s.route for s in cloud.ledger.requests if s.header("x-api-key") == cloud.other_key]
            assert strange and set(strange) == {"list"}
            replace(d, cloud.key, "team")
            harness.until(lambda: not [x for x in api.call("DaemonService.Status").degraded if x.what == "key"], 10, "trust")
            assert rows(api) == before
            changes = sum(cloud.ledger.count(k) - n for k, n in done.items())
            print("another team's key: %d lists with it, changes %d, limit 0: %s" % (
                len(strange), changes, "DOES NOT HOLD" if changes else "holds"))
            assert changes == 0
            assert api.call("SandboxService.Get", sandbox="again", max_staleness=0).id == boxes[0]
            assert api.call("SandboxService.Kill", sandbox=boxes[1]).found
    finally:
        d.close()
        shutil.rmtree(folder)


def test_a_rotated_key_is_recognised(cloud):
    """C-2: a new key of the same team shows the sandboxes of the rows: it takes the old one's place, also for the next start."""
    folder = harness.temp_dir("abd-")
    d = harness.Daemon(cloud, folder=folder)
    try:
        key = new_key()
        with Api(d.socket) as api:
            box = api.call("SandboxService.Create").id
            cloud.keys[key] = cloud.team
            replace(d, key)
            assert api.call("SandboxService.Get", sandbox=box, max_staleness=0).id == box
            assert cloud.ledger.of("get")[-1].header("x-api-key") == key and "key_taken" in d.log()
            assert api.call("SandboxService.Kill", sandbox=box).found
            replace(d, cloud.other_key)     # no row is left that it could prove: simply taken
            assert api.call("SandboxService.Create").id
        for f in os.listdir(d.state_dir):
            if os.path.isfile(os.path.join(d.state_dir, f)):
                with open(os.path.join(d.state_dir, f), "rb") as r:
                    assert cloud.other_key.encode() not in r.read()
    finally:
        d.close()
        shutil.rmtree(folder)
