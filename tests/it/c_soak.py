# SPDX-License-Identifier: MIT
"""Sandbox after sandbox: what has ended costs no memory and no descriptors. `sh tests/shows.sh` alone has the time for it;
tests/unit/sandbox/test_forget.c has the bounds."""
import json
import os
import socket
import subprocess
import sys
import threading
import types

import pytest

import harness
from a_memory import row
from api import Api
from conftest import built
from harness import until

FULL = bool(os.environ.get("SHOWS_FULL"))
LIVES = int(os.environ.get("SOAK_LIVES", "20000"))
FIRST = 2000        # lives after which nothing grows any more
CLIENTS = 4
MIB = 1 << 20


@pytest.fixture
def far():
    """The scripted cloud in a process of its own, with a control connection."""
    proc = subprocess.Popen([sys.executable, "-m", "fakecloud"], cwd=os.path.join(harness.ROOT, "tests", "lib"), stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    told = json.loads(proc.stdout.readline())
    with socket.create_connection(("127.0.0.1", told["control"])) as control, control.makefile("rw", encoding="utf-8") as lines:
        def order(do, *args):
            lines.write(json.dumps({"do": do, "args": args}) + "\n")
            lines.flush()
            answer = json.loads(lines.readline())
            assert "ok" in answer, answer
        yield types.SimpleNamespace(order=order, **told)
    proc.stdin.close()
    assert proc.wait(60) == 0
    proc.stdout.close()


def rss(pid):
    with open("/proc/%d/statm" % pid, encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def live(api, name):
    """One life; each call has a request id, as a careful caller's."""
    box = api.call("SandboxService.Create", name=name, request_id=name).id
    for i in range(3):
        events = list(api.stream("CommandService.Run", sandbox=box, shell="echo hi", request_id="%s-%d" % (name, i)))
        assert events[-1].WhichOneof("event") == "exited", events
    for i in range(2):
        api.send("FileService.Write", [{"header": {"sandbox": box, "path": "/tmp/%d" % i}}, {"data": b"x" * 1000}])
    snapshot = api.call("SnapshotService.Create", sandbox=box, request_id=name).id
    assert api.call("SnapshotService.Delete", snapshot=snapshot).found
    assert api.call("SandboxService.Kill", sandbox=box).found


class Clients:
    """So many lives, by several clients at once; `done` says how many are over."""

    def __init__(self, path, n, log):
        self.log = log      # what to say with a failure
        self.path, self.left, self.done, self.failed = path, iter(range(n)), 0, []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run) for _ in range(CLIENTS)]
        for t in self.threads:
            t.start()

    def next(self):
        with self.lock:
            return None if self.failed else next(self.left, None)

    def run(self):
        try:
            with Api(self.path) as api:
                i = self.next()
                while i is not None:
                    live(api, "life-%d" % i)
                    with self.lock:
                        self.done += 1
                    i = self.next()
        except Exception as e:  # told by the test
            self.failed.append(e)

    def wait(self, n):
        until(lambda: self.done >= n or self.failed, 7200, "lives")
        assert not self.failed, "%r\n%s" % (self.failed[0], self.log())


@pytest.mark.plain
@pytest.mark.timeout(7200)
@pytest.mark.skipif(not FULL, reason="takes many minutes: sh tests/shows.sh runs it")
def test_lives_cost_nothing_when_they_are_over(far):
    """C-12: memory holds what lives. What ended is in rows: asked for, it is there."""
    built(harness.AGENTBOXD)
    # No process of its own: whoever starts one waits for it to get a turn. On a busy machine that made the cloud silent for 15 s,
    # and then a start whose answer did not come has an outcome that nobody knows.
    far.order("script", "echo hi", [["stdout", "hi\n"], ["exit", 0]])
    far.order("script", "is_dead()", [["exit", 0]])     # daemon/command/exit_watch.c
    d = harness.Daemon(far)
    try:
        c = Clients(d.socket, LIVES, d.tail)
        seen = []
        for n in range(250, LIVES + 1, 250):
            c.wait(n)
            far.order("forget")     # what the daemon does not ask for any more
            seen.append((rss(d.pid), descriptors(d.pid)))
            print("%d lives: RSS %.2f MiB, %d descriptors" % (n, seen[-1][0] / MIB, seen[-1][1]), flush=True)
        for t in c.threads:
            t.join()
        first, later = seen[:FIRST // 250], seen[FIRST // 250:]
        grown = [max(x) - max(y) for x, y in zip(zip(*later), zip(*first))]
        assert row("RSS at its highest, of lives %d to %d above that of those before" % (FIRST, LIVES), grown[0] / MIB, 2, "MiB")
        assert row("descriptors, the same", grown[1], 8, "")
    finally:
        d.close()
