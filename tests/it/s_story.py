# SPDX-License-Identifier: MIT
"""One story told by every kind of client: a file, a counter that stands still over a pause, three forks, a snapshot that
outlives its sandbox. By agentboxctl and by grpcio through agentboxd --local, by the e2b SDKs against the agentbox-local
that it started. What stands still is looked at from outside of the sandbox: the counter's file through /proc, its CPU
time in the host's /proc and in its control groups.

    BUILD_DIR=build /usr/bin/python3 -m pytest tests/it/s_story.py
"""
import glob
import json
import os
import re
import subprocess
import time

import pytest

import harness
import i_npm_local
import i_pypi_local
from api import Api
from harness import until

COUNTER = r"""
import os, time
n = 0
while True:
    n += 1
    with open("/home/user/n.new", "w") as f:
        f.write(str(n))
    os.rename("/home/user/n.new", "/home/user/n")
    time.sleep(0.005)
"""
STILL_S = 5


# -- who tells it

class Ctl:
    """agentboxctl; what has an exit code of its own for "there is none" answers with that."""

    def __init__(self, d):
        self.d = d

    def close(self):
        pass

    def create(self, template=None):
        return self.d.ctl("create", "--timeout", "5m", *(["-t", template] if template else [])).stdout.strip()

    def write(self, box, path, text):
        self.d.ctl("cp", "-", "%s:%s" % (box, path), input=text)

    def read(self, box, path):
        return self.d.ctl("cat", "%s:%s" % (box, path)).stdout

    def start(self, box, shell):
        self.d.ctl("exec", "-d", box, "--", "/bin/bash", "-c", shell)

    def pause(self, box):
        return json.loads(self.d.ctl("--json", "pause", box).stdout)["paused"]

    def resume(self, box):
        self.d.ctl("resume", box)

    def state(self, box):
        return json.loads(self.d.ctl("--json", "get", box).stdout)["state"]

    def fork(self, box, count):
        return self.d.ctl("fork", box, "--count", str(count)).stdout.split()

    def snapshot(self, box):
        return self.d.ctl("snapshot", "create", box).stdout.strip()

    def kill(self, box):
        return {0: True, 3: False}[self.d.ctl("kill", box, check=False).returncode]

    def forget(self, snapshot):
        return {0: True, 3: False}[self.d.ctl("snapshot", "rm", snapshot, check=False).returncode]


class Grpc:
    def __init__(self, d):
        self.api = Api(d.socket)

    def close(self):
        self.api.close()

    def create(self, template=None):
        return self.api.call("SandboxService.Create", template=template, sandbox_timeout=300).id

    def write(self, box, path, text):
        self.api.write_file(box, path, text.encode())

    def read(self, box, path):
        return self.api.read_file(box, path).decode()

    def start(self, box, shell):
        self.api.call("CommandService.Start", sandbox=box, shell=shell, detach=True)

    def pause(self, box):
        return self.api.call("SandboxService.Pause", sandbox=box).paused

    def resume(self, box):
        self.api.call("SandboxService.ConnectSandbox", sandbox=box)

    def state(self, box):
        return {2: "running", 4: "paused"}[self.api.call("SandboxService.Get", sandbox=box).state]

    def fork(self, box, count):
        return [r.sandbox.id for r in self.api.call("SandboxService.Fork", sandbox=box, count=count).results]

    def snapshot(self, box):
        return self.api.call("SnapshotService.Create", sandbox=box).id

    def kill(self, box):
        return self.api.call("SandboxService.Kill", sandbox=box).found

    def forget(self, snapshot):
        return self.api.call("SnapshotService.Delete", snapshot=snapshot).found


class Sdk:
    """An SDK of others in a process of its own; every method is a line there and a line back."""

    def __init__(self, d, argv, folder, **env):
        endpoint = os.path.join(d.state_dir, "local", "endpoint")
        until(lambda: os.path.exists(endpoint), 20, "the local cloud", program=d)
        with open(endpoint, encoding="utf-8") as f:
            place = json.load(f)
        with open(place["api_key_file"], encoding="ascii") as f:
            key = f.read().split()[0]
        url = "https://" + place["tls_address"]
        environ = {k: v for k, v in os.environ.items() if not k.startswith("E2B_")}
        environ.update({"E2B_API_KEY": key, "E2B_API_URL": url, "E2B_SANDBOX_URL": url, "SSL_CERT_FILE": place["ca_file"],
                        "NODE_EXTRA_CA_CERTS": place["ca_file"]}, **env)
        self.proc = subprocess.Popen(argv, cwd=folder, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self):
        self.proc.stdin.close()
        self.proc.wait(20)
        self.proc.stdout.close()

    def __getattr__(self, name):
        def call(*args):
            self.proc.stdin.write(json.dumps([name, *args]) + "\n")
            self.proc.stdin.flush()
            line = self.proc.stdout.readline()
            assert line, "the SDK's process ended"
            answer = json.loads(line)
            assert "ok" in answer, answer["error"]
            return answer["ok"]
        return call


def npm(d):
    if i_npm_local.MISSING:
        pytest.skip(i_npm_local.MISSING)
    return Sdk(d, ["node", "story.mjs"], i_npm_local.NPM)


def pypi(d):
    if i_pypi_local.MISSING:
        pytest.skip(i_pypi_local.MISSING)
    return Sdk(d, ["/usr/bin/python3", "story.py"], i_pypi_local.PYPI, PYTHONPATH=os.path.join(i_pypi_local.PYPI, "site"),
               PYTHONDONTWRITEBYTECODE="1")


TELLERS = {"agentboxctl": Ctl, "grpcio": Grpc, "npm": npm, "pypi": pypi}


@pytest.fixture(params=sorted(TELLERS))
def teller(request, d):
    t = TELLERS[request.param](d)
    yield t
    t.close()


# -- what is seen from outside

def host_pid(mark):
    """The counter on this host: the process whose last word is its mark."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                words = f.read().split(b"\0")[:-1]
        except OSError:
            continue
        if len(words) > 2 and words[0].endswith(b"python3") and words[-1] == mark.encode():
            return int(pid)
    return None


def group_times(pid):
    """The CPU time of the process's control groups, in whatever unit each hierarchy keeps it."""
    out = {}
    with open("/proc/%d/cgroup" % pid, encoding="ascii") as f:
        for line in f:
            _, controllers, path = line.strip().split(":", 2)
            if "agentbox-local" not in path:
                continue
            for name in ("cpu.stat", "cpuacct.usage"):
                for root in ["/sys/fs/cgroup", *glob.glob("/sys/fs/cgroup/*")]:
                    file = os.path.join(root + path, name)
                    if not os.path.exists(file):
                        continue
                    with open(file, encoding="ascii") as g:
                        said = g.read()
                    m = re.search(r"^usage_usec (\d+)", said, re.M) or re.fullmatch(r"(\d+)\n", said)
                    if m:
                        out[file] = int(m.group(1))
    return out


def has_groups():
    out = subprocess.run([harness.AGENTBOX_LOCAL, "--capabilities"], capture_output=True, text=True, timeout=30).stdout
    return next(c for c in json.loads(out)["capabilities"] if c["name"] == "usage")["available"]


class Seen:
    """One look at the counter: its number, its own CPU time, that of all that is with it."""

    def __init__(self, pid):
        with open("/proc/%d/stat" % pid, encoding="utf-8") as f:
            fields = f.read().rpartition(")")[2].split()
        self.started, self.ticks = fields[19], int(fields[11]) + int(fields[12])
        with open("/proc/%d/root/home/user/n" % pid, encoding="ascii") as f:
            self.value = int(f.read())
        self.groups = group_times(pid)

    def __repr__(self):
        return "<n=%d, %d ticks, %s>" % (self.value, self.ticks, self.groups)


def has_moved(pid, before):
    now = Seen(pid)
    return now.value > before.value and now.ticks > before.ticks and all(now.groups[g] > t for g, t in before.groups.items())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees into a sandbox from outside")
def test_story(teller):
    mark = "counter-%s" % os.urandom(6).hex()
    box = teller.create()
    teller.write(box, "/home/user/note.txt", "kept: é\n")
    teller.write(box, "/home/user/counter.py", COUNTER)
    teller.start(box, "exec /usr/bin/python3 /home/user/counter.py " + mark)
    pid = until(lambda: host_pid(mark), 20, "the counter")
    until(lambda: os.path.exists("/proc/%d/root/home/user/n" % pid), 20, "its first number")
    first = Seen(pid)
    assert first.groups or not has_groups()
    until(lambda: has_moved(pid, first), 20, "the counter to count")

    assert teller.pause(box) is True and teller.state(box) == "paused"
    before, begun = Seen(pid), time.monotonic()
    until(lambda: time.monotonic() - begun > STILL_S, STILL_S + 5, "the time of the pause")
    after = Seen(pid)
    assert repr(after) == repr(before) and after.started == before.started
    assert teller.pause(box) is False

    teller.resume(box)
    assert teller.state(box) == "running"
    until(lambda: has_moved(pid, after), 20, "the counter to go on")
    assert Seen(pid).started == before.started          # the same process

    kids = teller.fork(box, 3)
    assert len({box, *kids}) == 4
    for kid in kids:
        assert teller.read(kid, "/home/user/note.txt") == "kept: é\n"
        teller.write(kid, "/home/user/note.txt", "its own")
        assert teller.kill(kid) is True
    assert teller.read(box, "/home/user/note.txt") == "kept: é\n"

    snapshot = teller.snapshot(box)
    assert teller.kill(box) is True and teller.kill(box) is False
    until(lambda: not os.path.exists("/proc/%d" % pid), 10, "the counter's end")
    new = teller.create(snapshot)
    assert new not in (box, *kids)
    assert teller.read(new, "/home/user/note.txt") == "kept: é\n"
    assert int(teller.read(new, "/home/user/n")) >= after.value
    assert teller.kill(new) is True
    assert teller.forget(snapshot) is True and teller.forget(snapshot) is False
