# SPDX-License-Identifier: MIT
"""Two of Go's reverse proxies between agentboxd and a sandbox's agent, as in the cloud (`judges/revproxy`, built with the Go of this
machine; skipped by name where there is none). In the suite with small figures, `sh tests/shows.sh` runs the full ones."""
import concurrent.futures
import fcntl
import os
import re
import shutil
import subprocess

import pytest

import harness
from fakecloud.certs import Authority
from harness import temp_dir

FULL = bool(os.environ.get("SHOWS_FULL"))
SOURCE = os.path.join(harness.ROOT, "tests", "it", "judges", "revproxy", "main.go")


BUILD_S = 600      # Go compiles its own library first
pytestmark = pytest.mark.timeout(BUILD_S + 120)


@pytest.fixture(scope="session")
def revproxy():
    """The program, in the build's folder: it is built by the first worker that wants it, and the others wait."""
    go = shutil.which("go")
    if not go:
        pytest.skip("needs go, which this machine does not have")
    folder = os.path.join(harness.BUILD, "revproxy")
    out = os.path.join(folder, "revproxy")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(out) or os.path.getmtime(out) < os.path.getmtime(SOURCE):
            built = subprocess.run([go, "build", "-o", out, SOURCE], capture_output=True, text=True, timeout=BUILD_S, cwd=folder,
                                   env=dict(os.environ, GOTOOLCHAIN="local", GOPROXY="off", GOFLAGS="", GOWORK="off",
                                            GOCACHE=os.path.join(folder, "cache")))
            assert built.returncode == 0, built.stderr
    return out


class Behind:
    """A cloud whose sandboxes are reached through the two proxies; its control plane is reached as it is."""

    def __init__(self, cloud, proxy, authority):
        self.url, self.ca, self.key = cloud.plain_url, authority and authority.cert, cloud.key
        argv = [proxy, cloud.plain_url] + list(authority.issue() if authority else ())
        self.log = os.path.join(temp_dir(), "log")
        with open(self.log, "wb") as log:
            self.proc = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self.sandbox_url = ("https://" if authority else "http://") + self.proc.stdout.readline().strip()

    def close(self):
        self.proc.stdin.close()
        self.proc.wait(10)


@pytest.fixture(params=["http1", "h2"])
def chain(request, local, revproxy):
    """The daemon's way to the outer proxy: HTTP/1.1 in clear, or HTTP/2 over TLS."""
    b = Behind(local, revproxy, Authority(temp_dir()) if request.param == "h2" else None)
    yield b
    b.close()


@pytest.fixture
def d(chain):
    d = harness.Daemon(chain, conf={"account default": {"sandbox_url": chain.sandbox_url}})
    yield d
    d.close()


def runs(d, box, n, shell, want, code):
    """So many runs, eight at a time; what did not come out as it should."""
    def one(i):
        r = d.ctl("exec", box, "--", "sh", "-c", shell, check=False)
        return None if (r.returncode, r.stdout, r.stderr) == (code, want, "") else (i, r.returncode, r.stdout[-200:], r.stderr)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return [r for r in pool.map(one, range(n)) if r]


@pytest.mark.timeout(1800 if FULL else BUILD_S + 120)
def test_runs_through_two_go_proxies(d, chain):
    """B-1: a stream that announced its length would be cut now and then when its answer begins. No output is lost or doubted, no
    stream is attached to a second time, nobody is warned."""
    box = d.ctl("create").stdout.strip()
    assert runs(d, box, 2000 if FULL else 160, "echo hi; exit 2", "hi\n", 2) == []
    numbers = "".join("%d\n" % i for i in range(1, 40001))
    assert runs(d, box, 600 if FULL else 24, "seq 1 40000", numbers, 0) == []
    d.ctl("kill", box)
    assert "was reset" not in d.log()       # B-7
    odd = [line for line in d.log().splitlines()
           if re.search(r"command_\w*lost| (warn|error)  ?", line) and "suppressed=" not in line and " access_open " not in line]
    assert not odd, odd[:5]
    with open(chain.log, encoding="utf-8", errors="replace") as f:
        assert f.read() == ""
