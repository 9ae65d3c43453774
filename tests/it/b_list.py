# SPDX-License-Identifier: MIT
"""agentboxctl on agentboxd --local: lists in the form, the order and the choice that is asked for; the end of all; one in full; its shell."""
import datetime
import json
import time

import pytest

from f_terminal import Term
from harness import ctl, until


@pytest.fixture(scope="module")
def three(d):
    """Sandboxes by their names: lb and la have a mark, the third has neither mark nor name."""
    made = {"lb": d.ctl("create", "--timeout", "10m", "--name", "lb", "-m", "mark=x y").stdout.strip(),
            "la": d.ctl("create", "--timeout", "20m", "--name", "la", "-m", "mark=z", "-m", "more=1").stdout.strip(),
            "": d.ctl("create", "--timeout", "15m").stdout.strip()}
    yield made
    for b in made.values():
        d.ctl("kill", b, check=False)


def age_ms(d, sandbox):
    start = json.loads(d.ctl("get", "--json", sandbox).stdout)["started_at"]
    return (time.time() - datetime.datetime.fromisoformat(start.replace("Z", "+00:00")).timestamp()) * 1000


def ids(d, *words):
    return d.ctl("ls", "-q", *words).stdout.split()


def test_ls_quiet(d, three):
    """SERVERS 5: the ids alone, in the order of the list."""
    out = d.ctl("ls", "-q").stdout
    assert out == "".join(three[n] + "\n" for n in ("", "la", "lb"))
    assert out.split() == [json.loads(line)["id"] for line in d.ctl("ls", "--json").stdout.splitlines()]


def test_ls_format(d, three):
    """SERVERS 5: every field of --json has its value under the same name, and text has no quotes."""
    assert d.ctl("ls", "--format", "{id} {name}", "--sort", "name").stdout == "".join(
        "%s %s\n" % (three[n], n) for n in ("", "la", "lb"))
    row = json.loads(d.ctl("ls", "--json", "--filter", "name=lb").stdout)
    for name, value in row.items():
        text = d.ctl("ls", "--filter", "name=lb", "--format", "{%s}" % name).stdout[:-1]
        if name != "as_of":         # it is another one's in every answer
            assert text == (value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))), name
    out = d.ctl("ls", "--filter", "name=lb", "--format", r"{{{name}}}\t[{metadata.mark}]{metadata.nope}{warning}\n-}").stdout
    assert out == "{lb}\t[x y]\n-}\n"


@pytest.mark.parametrize("words,text", [
    (["--format", "{nmae}"], "'nmae' is no field; there are id, name, template_id, "),
    (["--format", "{id} {}"], "'' is no field"),
    (["--format", "{id"], "'{id' has no '}'"),
    (["--sort", "nmae"], "'nmae' is no field; there are id, name, "),
    (["--sort", "metadata"], "'metadata' has several values"),
    (["--filter", "nmae=x"], "--filter has no 'nmae'; there are state, name, template and metadata.KEY"),
    (["--filter", "metadata.=x"], "--filter has no 'metadata.'"),
    (["--filter", "state=walking"], "'walking' is no state"),
    (["--filter", "name"], "takes KEY=VALUE"),
    (["-q", "--json"], "exclude each other"), (["-q", "--format", "{id}"], "exclude each other")])
def test_ls_refuses(words, text):
    """SERVERS 5: told before any daemon is asked."""
    r = ctl("/tmp/no/such/socket", "--wait", "0s", "ls", *words, check=False)
    assert r.returncode == 2 and text in r.stderr and not r.stdout, r


def test_ls_tells_every_field_that_there_is(d, three):
    said = d.ctl("ls", "--format", "{nope}", check=False).stderr
    for line in d.ctl("ls", "--json").stdout.splitlines():
        assert all(name + ", " in said for name in json.loads(line)), said
    assert "metadata.KEY; see" in said


def test_ls_sort(d, three):
    """SERVERS 5: text, times, numbers and marks, up and down; what is not there comes first."""
    up = [three[n] for n in ("lb", "", "la")]
    assert ids(d, "--sort", "end_at") == up and ids(d, "--sort", "-end_at") == up[::-1]
    assert ids(d, "--sort", "name") == [three[n] for n in ("", "la", "lb")]
    assert ids(d, "--sort", "metadata.mark") == [three[n] for n in ("", "lb", "la")]
    d.ctl("lease", "acquire", "--ttl", "1m", three["lb"])
    assert ids(d, "--sort", "-leases") == [three[n] for n in ("lb", "", "la")], "equals stay newest first"
    assert [json.loads(line)["id"] for line in d.ctl("ls", "--json", "--sort", "end_at").stdout.splitlines()] == up


def test_ls_filter(d, three):
    """SERVERS 5: several of one key are alternatives, several keys must all hold; also what is gone can be had."""
    assert ids(d, "--filter", "name=la") == [three["la"]]
    assert ids(d, "--filter", "name=la", "--filter", "name=lb") == [three["la"], three["lb"]]
    assert ids(d, "--filter", "name=") == [three[""]]
    assert ids(d, "--filter", "metadata.mark=x y") == [three["lb"]]
    assert ids(d, "--filter", "metadata.mark=x y", "--filter", "name=la") == []
    assert len(ids(d, "--filter", "template=base")) == 3 and ids(d, "--filter", "template=bas") == []
    assert ids(d, "--filter", "state=paused") == []
    d.ctl("pause", "la")
    assert ids(d, "--filter", "state=paused") == [three["la"]]
    assert ids(d, "--filter", "state=paused", "--state", "running") == []
    b = d.ctl("create").stdout.strip()
    d.ctl("kill", b)
    assert ids(d, "--filter", "state=gone") == [b] and b not in ids(d)


@pytest.fixture
def some(three, d):
    """Two more, alone: what other tests made has ended."""
    for b in three.values():
        d.ctl("kill", b, check=False)
    made = [d.ctl("create", "--timeout", "5m").stdout.strip() for _ in range(2)]
    yield made
    for b in made:
        d.ctl("kill", b, check=False)


def test_kill_all_with_yes(d, some):
    """SERVERS 5: and with none there it is as wanted too."""
    r = d.ctl("kill", "--all", "--yes")
    assert (r.stdout, r.stderr) == ("", "") and ids(d) == []
    assert d.ctl("kill", "--all", "-y").returncode == 0
    some += [d.ctl("create").stdout.strip()]
    assert json.loads(d.ctl("kill", "-ay", "--json").stdout) == {"sandbox": some[-1], "found": True}


def test_kill_all_needs_yes_without_a_terminal(d, some):
    """SERVERS 5: a script that forgot it ends nothing, and is told so with 2."""
    r = d.ctl("kill", "--all", check=False)
    assert r.returncode == 2 and "--all needs --yes" in r.stderr and sorted(ids(d)) == sorted(some), r
    r = d.ctl("kill", "--all", input="y\n", check=False)
    assert r.returncode == 2 and sorted(ids(d)) == sorted(some), "what is piped in is no answer"


@pytest.mark.parametrize("words,text", [
    (["--yes", "x"], "--yes goes with --all only"), (["--older-than", "1h", "x"], "--older-than goes with --all only"),
    (["--all", "--yes", "x"], "'x' and --all exclude each other"), ([], "needs ID… | --all"),
    (["--all", "--yes", "--older-than", "90"], "takes a duration")])
def test_kill_all_refuses(d, some, words, text):
    r = d.ctl("kill", *words, check=False)
    assert r.returncode == 2 and text in r.stderr and sorted(ids(d)) == sorted(some), r


def test_kill_all_older_than(d, some):
    """SERVERS 5: the age counts from the start."""
    d.ctl("kill", "--all", "--yes", "--older-than", "1h")
    assert sorted(ids(d)) == sorted(some)
    until(lambda: min(age_ms(d, b) for b in some) > 20, 20, "both have an age")
    d.ctl("kill", "--all", "--yes", "--older-than", "20ms")
    assert ids(d) == []


@pytest.mark.parametrize("typed,code,ended", [("y\n", 0, True), ("Yes\n", 0, True), ("n\n", 1, False), ("\n", 1, False), ("\4", 1, False)])
def test_kill_all_asks_on_a_terminal(d, some, typed, code, ended):
    """SERVERS 5: how many are said, and nothing but y ends them."""
    t = Term(d, "kill", "--all")
    t.until("End 2 sandboxes? [y/N] ")
    assert sorted(ids(d)) == sorted(some)
    t.type(typed)
    if not ended:
        t.until("nothing was ended")
    assert t.end() == code
    assert sorted(ids(d)) == ([] if ended else sorted(some))


def test_kill_all_does_not_ask_where_there_is_nothing(d, some):
    t = Term(d, "kill", "--all", "--older-than", "1h")
    assert t.end() == 0 and sorted(ids(d)) == sorted(some)


def test_inspect(d, some):
    """SERVERS 5: what get --json prints, for several; one that is not there keeps none of the others back."""
    r = d.ctl("inspect", some[0], "nope", some[1], check=False)
    assert r.returncode == 3 and "SANDBOX_NOT_FOUND" in r.stderr, r
    seen = [json.loads(line) for line in r.stdout.splitlines()]
    assert [x["id"] for x in seen] == some
    for one in seen:
        got = json.loads(d.ctl("get", "--json", one["id"]).stdout)
        assert {**got, "as_of": one["as_of"], "source": one["source"]} == one


def test_shell(d, some):
    """SERVERS 5: an interactive login shell, and its end is ours."""
    t = Term(d, "shell", "-e", "PS1=", "-e", "MARK=here", "-w", "/tmp", "-u", "root", some[0])
    t.type("stty -echo; echo rea''dy\n")
    t.until("ready", again="stty -echo; echo rea''dy\n")
    t.type("echo \"[$MARK $PWD $(id -un)]\"\n")
    t.until("[here /tmp root]")
    t.type("shopt -q login_shell && case $- in *i*) echo bo''th ;; esac\n")
    t.until("both")
    t.type("exit 7\n")
    assert t.end() == 7


def test_shell_needs_a_terminal(d, some):
    r = d.ctl("shell", some[0], input="echo ran\n", check=False)
    assert r.returncode == 2 and "exec -i %s bash" % some[0] in r.stderr and not r.stdout, r
    assert Term(d, "shell", "nope").end() == 125
