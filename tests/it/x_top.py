# SPDX-License-Identifier: MIT
"""agentboxctl top, as text and in terminals of 80 and of 200 columns."""
import os
import re
import select
import signal
import time

import pytest

import harness
from f_terminal import Term
from harness import until

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
WAIT_S = 20


@pytest.fixture
def three(daemon, api):
    """Three sandboxes, by name: one leased, one older, one that ends soon."""
    ids = {}
    for name, timeout in (("old", 600), ("soon", 90), ("busy", 600)):
        ids[name] = api.call("SandboxService.Create", name=name, sandbox_timeout=timeout).id
    api.call("LeaseService.Acquire", sandbox=ids["busy"], ttl=60)
    return ids


class Screen(Term):
    """The last whole picture, as its lines."""

    def __init__(self, d, *args, size=(24, 80)):
        super().__init__(d, "top", *args, size=size)

    def picture(self, want=lambda lines: True):
        """The first one for which this holds."""
        end, got = time.monotonic() + WAIT_S, []
        while time.monotonic() < end:
            self.more()
            for whole in re.findall(r"\x1b\[H((?:(?!\x1b\[H).)*?)\x1b\[J", self.out.decode(), re.S):
                got = [ESCAPE.sub("", x) for x in whole.split("\r\n")]
                if want(got):
                    self.out = b""
                    return got
        raise AssertionError("no such picture; the last was:\n" + "\n".join(got))

    def more(self):
        if select.select([self.master], [], [], 1)[0]:
            self.out += os.read(self.master, 65536)


def rows(lines):
    """The names of the sandboxes, from above."""
    at = next(i for i, x in enumerate(lines) if x.startswith("SANDBOX"))
    return [x.split()[1] for x in lines[at + 1:] if re.match(r"\S+ +\S+ +(running|paused|killing|gone) ", x)]


def test_once_is_text(daemon, api, three):
    """No escapes; by use is the default, and each other order is asked for."""
    out = daemon.ctl("top", "--once").stdout
    assert "\x1b" not in out and "\r" not in out and "sandboxes: 3 running, 0 paused, 0 changing; 1 leases" in out
    assert "3 sandboxes, by use" in out and rows(out.splitlines())[0] == "busy"
    for key, first in (("age", "old"), ("end", "soon"), ("name", "busy")):
        assert rows(daemon.ctl("top", "--once", "--sort", key).stdout.splitlines())[0] == first, key
    assert max(map(len, out.splitlines())) <= 80


def test_what_is_refused(daemon):
    r = daemon.ctl("top", "--once", "--sort", "colour", check=False)
    assert r.returncode == 2 and "use, age, end, name or state" in r.stderr
    r = daemon.ctl("top", check=False)
    assert r.returncode == 2 and "needs a terminal" in r.stderr


@pytest.mark.parametrize("cols", [80, 200])
def test_a_terminal(daemon, three, cols):
    """The picture fits it, a wide one has more columns, and q gives the terminal back."""
    s = Screen(daemon, size=(24, cols))
    lines = s.picture(lambda x: len(rows(x)) == 3)
    assert max(map(len, lines)) <= cols and len(lines) <= 24
    assert ("TEMPLATE" in "\n".join(lines)) == (cols == 200)
    s.type("q")
    s.until("\x1b[?1049l")
    assert s.end() == 0


def test_keys(daemon, api, three, cloud):
    """s sorts; k asks, and does nothing without y; p pauses; the mark stays on its sandbox when rows move."""
    s = Screen(daemon)
    s.picture(lambda x: rows(x)[:1] == ["busy"])
    s.type("s")
    s.picture(lambda x: "by age" in "\n".join(x) and rows(x) == ["old", "soon", "busy"])
    s.type("s")
    s.picture(lambda x: rows(x)[0] == "soon")
    s.type("\x1b[A\x1b[A\x1b[A")        # the mark has stayed on busy: now it is on the first
    s.type("k")
    s.picture(lambda x: any(x == "Kill %s? y or n" % three["soon"] for x in x))
    s.type("n")
    s.picture(lambda x: "nothing was done" in x)
    assert cloud.sandbox(three["soon"]).fate is None
    s.type("k")
    s.picture(lambda x: any(x.startswith("Kill ") for x in x))
    s.type("y")
    s.picture(lambda x: any("%s was killed" % three["soon"] in x for x in x) and "soon" not in rows(x))
    assert cloud.sandbox(three["soon"]).fate
    s.type("p")
    s.picture(lambda x: any(x.startswith("Pause ") for x in x))
    s.type("y")
    s.picture(lambda x: any("was paused" in x for x in x) and any(" paused " in x for x in x))
    s.type("\x03")
    assert s.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_give_the_terminal_back(daemon, three, number):
    s = Screen(daemon)
    s.picture()
    s.proc.send_signal(number)
    s.until("\x1b[?1049l")
    assert s.end() in (128 + number, -number)


def test_it_follows_the_terminals_size(daemon, three):
    s = Screen(daemon)
    s.picture(lambda x: len(rows(x)) == 3)
    s.resize(10, 200)
    s.proc.send_signal(signal.SIGWINCH)
    s.picture(lambda x: "TEMPLATE" in "\n".join(x) and len(x) <= 10 and len(rows(x)) == 1)
    s.type("q")
    assert s.end() == 0


def test_a_daemon_that_goes_and_comes(cloud):
    """It says so, shows what it knew, and goes on with the next daemon."""
    d = harness.Daemon(cloud)
    home = d.home
    s = Screen(d)
    s.picture(lambda x: any(x.startswith("0 sandboxes, by use") for x in x))
    d.kill9()
    s.picture(lambda x: any("no news: " in x for x in x))
    e = harness.Daemon(cloud, folder=home)
    try:
        s.picture(lambda x: any(x.startswith("0 sandboxes, by use") and "no news" not in x for x in x))
        s.type("q")
        assert s.end() == 0
    finally:
        e.close()
        d.close()


def test_many_and_scrolling(daemon, api):
    """More sandboxes than rows: the marked one is always to be seen."""
    for i in range(30):
        api.call("SandboxService.Create", name="n%02d" % i)
    s = Screen(daemon, "--sort", "name")
    s.picture(lambda x: rows(x)[0] == "n00" and len(rows(x)) == 15)
    s.type("\x1b[B" * 20)
    s.picture(lambda x: "n20" in rows(x) and "n00" not in rows(x))
    s.type("q")
    assert s.end() == 0
    assert until(lambda: len(rows(daemon.ctl("top", "--once", "--sort", "name").stdout.splitlines())) == 30, 5, "all")
