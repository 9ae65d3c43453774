# SPDX-License-Identifier: MIT
"""What commands and files must stand, in one place: cuts, 1 GiB through little memory, tmux, readers that do not wait for
each other. In the suite with small figures; `sh tests/shows.sh` runs it with the full ones, and only then are times judged.
"""
import hashlib
import os
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest

import harness
from api import Api
from chaosproxy import ChaosProxy
from harness import temp_dir, until

FULL = bool(os.environ.get("SHOWS_FULL"))
MB = 1 << 20
CTL_KB = 32 << 10       # how much either program may grow

# In the sandbox: `rate` lines a second, each a write of its own.
TICKER = """
import sys, time
n, rate = int(sys.argv[1]), float(sys.argv[2])
begin = time.monotonic()
for i in range(n):
    rest = begin + i / rate - time.monotonic()
    if rest > 0:
        time.sleep(rest)
    print("line %d" % i, flush=True)
"""


def timeout(full, small=120):
    return pytest.mark.timeout(full if FULL else small)


@pytest.fixture
def folder():
    f = temp_dir()
    yield f
    shutil.rmtree(f)


class Behind:
    """A cloud as the daemon sees it through a relay."""

    def __init__(self, local, proxy):
        self.url, self.ca, self.key = "https://127.0.0.1:%d" % proxy.port, local.ca, local.key


class Seen:
    """A client's view of a command's standard output: pieces with the gaps between them, the result."""

    def __init__(self, events):
        self.parts, self.gaps, self.result, at = [b""], 0, None, 0
        for e in events:
            which = e.WhichOneof("event")
            assert self.result is None, "nothing comes after the exit"
            if which == "output" and e.output.stream == 1:
                assert e.output.offset == at
                self.parts[-1] += e.output.data
                at += len(e.output.data)
            elif which == "gap" and e.gap.stream == 1:
                assert e.gap.reason == "reattached" and not e.gap.size_known
                self.gaps += 1
                self.parts.append(b"")
            elif which == "exited":
                self.result = e.exited

    def check(self, n, gaps):
        """Every line whole, once and in order; what is missing is missing at a gap. The numbers of the lines that are there."""
        there = []
        for i, part in enumerate(self.parts):
            lines = part.decode().split("\n")
            assert lines.pop() == "", "a torn line: %r" % part[-40:]
            numbers = [int(re.fullmatch(r"line (\d+)", x).group(1)) for x in lines]
            if numbers:
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "a hole without a gap"
                assert not there or numbers[0] > there[-1], "a line came twice"
                assert i or numbers[0] == 0, "a hole without a gap"
                there += numbers
        assert self.gaps == gaps and there[-1] == n - 1 and (gaps or len(there) == n), (self.gaps, len(there))
        r = self.result
        assert r.exit_code == 0 and r.HasField("exit_code") and r.output_complete == (not gaps), r
        return there


def wait_line(command_id, n, d):
    """Until the daemon has this line of the command."""
    with Api(d.socket) as api:
        ref = {"command_id": command_id}
        for e in api.stream("CommandService.Attach", command=ref):
            if e.WhichOneof("event") == "exited":
                return
            seen = re.findall(rb"^line (\d+)\n", e.output.data, re.M)
            if seen and int(seen[-1]) >= n:
                return


def watch_and_die(d, command_id, line):
    """agentboxctl attach, killed as soon as it has printed this line."""
    p = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "attach", command_id], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE)
    for said in p.stdout:
        if said == b"line %d\n" % line:
            break
    p.kill()
    assert p.wait() == -signal.SIGKILL
    p.stdout.close()


def ticker(local, n, rate, events):
    """The whole story on agentbox-local: what is done to it at which line; what a new client sees from offset 0."""
    with ChaosProxy("127.0.0.1", int(local.url.rpartition(":")[2])) as proxy:
        home = temp_dir("abd-")
        daemons = [harness.Daemon(Behind(local, proxy), folder=home)]
        box = daemons[-1].ctl("create", "--timeout", "10m").stdout.strip()
        command_id = daemons[-1].ctl("exec", "-d", box, "--", "python3", "-c", TICKER, str(n), str(rate)).stdout.strip()
        for line, what in events:
            if what == "client":
                watch_and_die(daemons[-1], command_id, line)
                continue
            wait_line(command_id, line, daemons[-1])
            if what == "daemon":
                daemons[-1].kill9()
                daemons.append(harness.Daemon(Behind(local, proxy), folder=home))
            else:
                proxy.cut_all()
            gaps = sum(w != "client" for _, w in events[:events.index((line, what)) + 1])
            with Api(daemons[-1].socket) as api:        # or two cuts could be one gap
                until(lambda: Seen(api.stream("CommandService.Attach", command={"command_id": command_id},
                                              follow=False)).gaps >= gaps, 20, "the stream after " + what, daemons[-1])
        with Api(daemons[-1].socket) as api:
            seen = Seen(api.stream("CommandService.Attach", command={"command_id": command_id}))
        r = daemons[-1].ctl("attach", command_id)
        assert r.stdout.encode() == b"".join(seen.parts) and r.returncode == 0
        daemons[-1].ctl("kill", box)
        for d in daemons:
            d.close()
        shutil.rmtree(home)
        return seen


@timeout(120)
def test_ticker(local):
    """60 lines; the client dies at 10, the daemon at 20, the connection at 30, 40, 50: each of the four is one gap."""
    seen = ticker(local, 60, 5 if FULL else 12, [
        (10, "client"), (20, "daemon"), (30, "cut"), (40, "cut"), (50, "cut")])
    there = seen.check(60, 4)
    print("ticker: %d of 60 lines, 4 gaps" % len(there))
    assert there[:20] == list(range(20))


@timeout(120)
def test_ticker_at_1000_lines_a_second(local):
    n = 12000 if FULL else 4000
    at = [n * i // 6 for i in range(1, 6)]
    seen = ticker(local, n, 1000, list(zip(at, ("client", "daemon", "cut", "cut", "cut"))))
    print("ticker: %d of %d lines, 4 gaps" % (len(seen.check(n, 4)), n))


# -- much data through little memory

class Grown:
    """What the daemon and one agentboxctl needed at most beyond what they had before."""

    def __init__(self, d):
        self.d, self.before, self.ctl_kb = d, d.hwm_kb(), 0
        self.idle_kb = self.peak(["status"])

    def peak(self, args, **kw):
        """Runs agentboxctl; its own peak in KiB."""
        p = subprocess.Popen([harness.AGENTBOXCTL, "-s", self.d.socket, *args], **dict(
            {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}, **kw))
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        assert p.returncode == 0, args
        return usage.ru_maxrss

    def run(self, args, **kw):
        self.ctl_kb = max(self.ctl_kb, self.peak(args, **kw))

    def check(self, what):
        ours, theirs = self.d.hwm_kb() - self.before, self.ctl_kb - self.idle_kb
        print("%s: agentboxd grew by %.1f MiB, agentboxctl by %.1f MiB" % (what, ours / 1024, theirs / 1024))
        if not harness.ASAN:
            assert ours < CTL_KB and theirs < CTL_KB


def feed(fd, size, digest, rate=None):
    """Random bytes into a descriptor; `rate` bytes a second."""
    block, begin, done = os.urandom(MB), time.monotonic(), 0
    with os.fdopen(fd, "wb", buffering=0) as f:
        while done < size:
            piece = block[done % 4096:][:min(size - done, 65536 if rate else MB)]
            n = f.write(piece)
            digest.update(piece[:n])
            done += n
            if rate:
                time.sleep(max(0, begin + done / rate - time.monotonic()))


def fed(grown, args, size, out, rate=None):
    """agentboxctl with so many random bytes on its standard input; their digest."""
    digest = hashlib.sha256()
    r, w = os.pipe()
    t = threading.Thread(target=feed, args=(w, size, digest, rate))
    t.start()
    try:
        grown.run(args, stdin=r, stdout=out)
    finally:
        os.close(r)
        t.join()
    return digest.hexdigest()


SIZE = 1024 * MB if FULL else 24 * MB


@timeout(600)
def test_a_gib_into_a_program(d, box, folder):
    """head -c 1G /dev/urandom | agentboxctl exec -i ID -- sha256sum"""
    grown = Grown(d)
    with open(folder + "/out", "wb") as out:
        digest = fed(grown, ["exec", "-i", box, "--", "sha256sum"], SIZE, out)
    with open(folder + "/out", encoding="ascii") as f:
        assert f.read().split()[0] == digest
    grown.check("%d MiB into a program" % (SIZE // MB))


@timeout(600)
def test_a_gib_by_cp(d, box, folder):
    """Up from a pipe, down into a file."""
    grown = Grown(d)
    digest = fed(grown, ["cp", "-", box + ":/tmp/big"], SIZE, subprocess.DEVNULL)
    assert d.ctl("exec", box, "--", "sha256sum", "/tmp/big", timeout=120).stdout.split()[0] == digest
    grown.run(["cp", box + ":/tmp/big", folder + "/back"])
    local = subprocess.run(["sha256sum", folder + "/back"], capture_output=True, text=True, check=True)
    assert local.stdout.split()[0] == digest
    grown.check("%d MiB up and down by cp" % (SIZE // MB))


SLOW = 1 * MB
SLOW_SIZE = (48 if FULL else 1) * MB
# In the sandbox: reads a MB a second.
SIP = """
import hashlib, os, time
h, begin, n = hashlib.sha256(), time.monotonic(), 0
while True:
    b = os.read(0, 65536)
    if not b:
        break
    h.update(b)
    n += len(b)
    time.sleep(max(0, begin + n / %d - time.monotonic()))
print(h.hexdigest())
""" % SLOW


def drain(fd, into):
    """Reads a MB a second."""
    begin, n = time.monotonic(), 0
    while True:
        b = os.read(fd, 65536)
        if not b:
            os.close(fd)
            return
        into.update(b)
        n += len(b)
        time.sleep(max(0, begin + n / SLOW - time.monotonic()))


@timeout(600)
def test_one_side_held_to_a_mb_a_second(d, box, folder):
    """The giver, the program, the taker of a file, the taker of output: each of them slow, one after the other."""
    grown = Grown(d)
    with open(folder + "/out", "wb+") as out:
        digest = fed(grown, ["exec", "-i", box, "--", "sha256sum"], SLOW_SIZE, out, rate=SLOW)
        out.seek(0)
        assert out.read().decode().split()[0] == digest
    with open(folder + "/out", "wb+") as out:
        digest = fed(grown, ["exec", "-i", box, "--", "python3", "-c", SIP], SLOW_SIZE, out)
        out.seek(0)
        assert out.read().decode().strip() == digest
    digest = fed(grown, ["cp", "-", box + ":/tmp/slow"], SLOW_SIZE, subprocess.DEVNULL, rate=SLOW)
    for words in (["cp", box + ":/tmp/slow", "-"], ["exec", box, "--", "cat", "/tmp/slow"]):
        got = hashlib.sha256()
        r, w = os.pipe()
        t = threading.Thread(target=drain, args=(r, got))
        t.start()
        try:
            grown.run(words, stdout=w)
        finally:
            os.close(w)
            t.join()
        assert got.hexdigest() == digest
    grown.check("%d MiB at 1 MB/s" % (SLOW_SIZE // MB))


# -- a terminal in tmux

class Tmux:
    """A tmux server of the test's own with one window."""

    def __init__(self, folder, name, d, words, size=(80, 24)):
        self.argv = ["tmux", "-f", "/dev/null", "-S", os.path.join(folder, name)]
        env = {k: v for k, v in os.environ.items() if k not in ("TMUX", "TMUX_PANE")}
        env.update(TERM="xterm-256color", LC_ALL="C.UTF-8")
        self.env = env
        command = " ".join("'%s'" % w for w in [harness.AGENTBOXCTL, "-s", d.socket, *words])
        self("new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), command + "; echo ended:$?; exec cat")

    def __call__(self, *args):
        return subprocess.run(self.argv + list(args), env=self.env, capture_output=True, text=True, timeout=20,
                              check=True).stdout

    def screen(self):
        return self("capture-pane", "-p")

    def type(self, *keys):
        self("send-keys", *keys)

    def until(self, pattern, again=()):
        def look():
            m = re.search(pattern, self.screen(), re.M)
            if not m and again:
                self.type(*again)
                time.sleep(0.2)
            return m
        return until(look, 20, "%r on the screen" % pattern)

    def resize(self, cols, rows):
        self("resize-window", "-x", str(cols), "-y", str(rows))

    def close(self):
        subprocess.run(self.argv + ["kill-server"], env=self.env, capture_output=True, timeout=20, check=False)


def test_tmux(d, box, folder):
    """stty size follows the window; detach, attach elsewhere: the screen is there."""
    one = Tmux(folder, "one", d, ["exec", "-it", "-e", "PS1=$ ", box, "--", "bash", "--norc", "--noprofile"])
    two = None
    try:
        one.until(r"^\$")
        one.type("stty size", "Enter")
        one.until(r"^24 80$")
        one.resize(101, 33)
        one.until(r"^33 101$", again=("stty size", "Enter"))
        one.type("clear; echo here''-it-is; y=17", "Enter")
        one.until(r"^here-it-is")
        one.type("C-p")
        one.type("C-q")
        command_id = one.until(r"agentboxctl attach (\S+)").group(1)
        one.until(r"^ended:0$")
        two = Tmux(folder, "two", d, ["attach", command_id], size=(90, 30))
        two.until(r"^here-it-is")
        two.until(r"^30 90$", again=("stty size", "Enter"))
        two.type("echo y=$y.", "Enter")
        two.until(r"^y=17\.$")
        two.type("exit 5", "Enter")
        two.until(r"^ended:5$")
    finally:
        one.close()
        if two:
            two.close()


# -- three readers

class Reader:
    """agentboxctl attach that counts; or one that is there and never reads."""

    def __init__(self, d, command_id, reads=True):
        self.proc = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "attach", command_id], stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.n = self.seconds = None
        self.said = b""
        self.threads = [threading.Thread(target=self.listen)]
        if reads:
            self.threads.append(threading.Thread(target=self.count, args=(time.monotonic(),)))
        for t in self.threads:
            t.start()

    def listen(self):
        self.said = self.proc.stderr.read()

    def count(self, begin):
        n = 0
        fd = self.proc.stdout.fileno()
        while True:
            b = os.read(fd, MB)
            if not b:
                break
            n += len(b)
        self.n, self.seconds = n, time.monotonic() - begin

    def end(self):
        if len(self.threads) == 1:
            self.count(time.monotonic())
        for t in self.threads:
            t.join()
        assert self.proc.wait() == 0
        self.proc.stdout.close()
        self.proc.stderr.close()
        lost = sum(int(x) for x in re.findall(rb"(\d+) bytes of output are lost", self.said))
        return self.n + lost


@timeout(600)
def test_three_readers(local):
    """yes | head -c 100M: one of three never reads; bytes and gaps add up for each of them."""
    size = (100 if FULL else 8) * MB
    spool = 8 * MB if FULL else 1 * MB
    d = harness.Daemon(local, conf={"spool": {"per_command": "%dM" % (spool // MB)}})
    try:
        box = d.ctl("create", "--timeout", "10m").stdout.strip()
        before = d.hwm_kb()

        def go(stalled):
            """Seconds that each of the two needed."""
            with Api(d.socket) as api:
                c = api.call("CommandService.Start", sandbox=box, argv={"args": [
                    "/bin/sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; rm go; yes | head -c %d" % size]})
            rest = [Reader(d, c.command_id, False)] if stalled else []
            both = [Reader(d, c.command_id) for _ in range(2)]
            d.ctl("exec", box, "--", "touch", "go")
            for r in both:
                assert r.end() == size
            assert d.ctl("wait", c.command_id, check=False).returncode == 0
            for r in rest:
                assert r.end() == size and r.said, "the one that did not read has lost something, and is told so"
            return max(r.seconds for r in both)

        alone, beside = [], []
        for _ in range(3 if FULL else 1):
            alone.append(go(False))
            beside.append(go(True))
        grown = (d.hwm_kb() - before) / 1024
        ratio = min(beside) / min(alone)
        print("three readers, %d MiB: %.2f s alone, %.2f s beside one that never reads: %.2f times; agentboxd grew by %.1f MiB"
              % (size // MB, min(alone), min(beside), ratio, grown))
        if not harness.ASAN:
            assert grown < 32
        assert not FULL or ratio <= 1.3
        d.ctl("kill", box)
    finally:
        d.close()
