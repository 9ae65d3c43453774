# SPDX-License-Identifier: MIT
"""agentboxctl in terminals of 80 and of 200 columns: no line of a list, of a state or of a help is wider; what is no terminal gets all."""
import json
import os
import re
import subprocess

import pytest

import harness
from api import Api
from f_terminal import Term
from harness import until
from x_top import Screen

HELPS = [c for c in re.findall(r"^  ([a-z-]+) ", subprocess.run([harness.AGENTBOXCTL, "help"], capture_output=True, text=True,
                                                              check=False).stdout, re.M)] if os.path.exists(harness.AGENTBOXCTL) else []


def lines(d, cols, *args):
    """What a terminal of so many columns shows."""
    t = Term(d, *args, size=(50, cols))
    os.close(t.slave)
    out = b""
    while True:
        try:
            more = os.read(t.master, 65536)
        except OSError:         # EIO: the last one with the terminal open has ended
            break
        if not more:
            break
        out += more
    assert t.proc.wait(20) == 0, out
    os.close(t.master)
    return out.decode().replace("\r\n", "\n").splitlines()


@pytest.fixture(scope="module")
def busy(local_session):
    """A daemon with something in each list, in words that are long."""
    conf = {"warm ready": {"template": "base", "size": "1", "uids": str(os.getuid())}, "uid %d" % os.getuid(): {"relay": "all"}}
    d = harness.Daemon(local_session, conf, env=dict(os.environ, LC_ALL="C.UTF-8"))
    with Api(d.socket) as api:
        box = d.ctl("create", "--name", "a-name-that-is-not-short", "-m", "owner=the team with the longest name", "-m", "ümlaut=" + "äöü" * 5,
                    "--policy", "on_release=kill,release_grace=2s,idle_timeout=10m,on_idle=pause").stdout.strip()
        api.call("CommandService.Start", sandbox=box, argv={"args": ["sleep", "300"] + ["a word"] * 30})
        lease = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "hold", "--label", "nightly " * 8, box, "--", "sleep", "300"])
        d.ctl("token", "create", "--label", "of the build " * 4)
        until(lambda: "nightly" in d.ctl("lease", "ls").stdout, 10, "the lease")
        yield d, box
        lease.terminate()
        lease.wait()
        d.ctl("kill", box)
    d.close()


LISTS = [("ls",), ("ps", "BOX"), ("lease", "ls"), ("token", "ls"), ("warm", "ls"), ("pool",), ("metrics", "BOX"), ("template", "ls")]


@pytest.mark.parametrize("words", LISTS, ids=" ".join)
def test_lists(busy, words):
    """At 80 columns those of little use are left out, and what is cut is the last; an id never is. A pipe gets every column whole."""
    d, box = busy
    words = [box if w == "BOX" else w for w in words]
    whole = d.ctl(*words).stdout.splitlines()
    narrow, wide = lines(d, 80, *words), lines(d, 200, *words)
    assert max(map(len, narrow)) <= 80, narrow
    assert max(map(len, wide)) <= 200, wide
    heads = re.split(r"  +", whole[0])
    assert [h for h in re.split(r"  +", narrow[0]) if h not in heads] == [] and narrow[0].split()[0] == heads[0]
    assert len(narrow) == len(wide) == len(whole)
    if words[0] == "ls":
        assert box in narrow[1] and "METADATA" in whole[0] and "STARTED" not in narrow[0] and "äöüäöü" in whole[1]
        assert re.split(r"  +", wide[0])[:10] == heads[:10]


@pytest.mark.parametrize("cols", [80, 200])
def test_status_and_top(busy, cols):
    d, box = busy
    shown = lines(d, cols, "status")
    assert max(map(len, shown)) <= cols, [t for t in shown if len(t) > cols]
    number = re.compile(r"[\d.:]+")     # which change from one call to the next
    assert number.sub("0", " ".join(" ".join(shown).split())) == number.sub("0", " ".join(d.ctl("status").stdout.split()))
    s = Screen(d, size=(30, cols))
    picture = s.picture(lambda x: any("a-name" in line for line in x))
    assert max(map(len, picture)) <= cols and any(box in line for line in picture), picture
    s.type("q")
    assert s.proc.wait(20) == 0


@pytest.mark.parametrize("cols", [80, 200])
def test_help(busy, cols):
    """Words are not broken at the edge, and further lines of an option's text begin below its first word."""
    d, _ = busy
    assert len(HELPS) > 40
    for words in [["help"]] + [["help", c] for c in HELPS]:
        shown = lines(d, cols, *words)
        assert max(map(len, shown)) <= cols, (words, [t for t in shown if len(t) > cols])
        assert " ".join(" ".join(shown).split()) == " ".join(d.ctl(*words).stdout.split())


def test_json_has_no_edge(busy):
    d, box = busy
    assert json.loads(lines(d, 80, "ls", "--json", "--filter", "name=a-name-that-is-not-short")[0])["id"] == box
