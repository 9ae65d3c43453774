# SPDX-License-Identifier: MIT
"""agentboxctl config: what the daemon runs with, each value with its origin; and the daemons of --context."""
import json
import os
import subprocess

import pytest

import harness
from b_json import check
from conftest import built


@pytest.fixture
def host(cloud):
    d = harness.Daemon(cloud, conf={"account default": {"proxy": "http://user:hidden@127.0.0.1:9", "no_proxy": "*"},
                                    "daemon": {"restart_grace": "7s"}, "spool": {"per_command": "8M"}})
    yield d
    d.close()


def line_of(d, key):
    with open(d.conf_path, encoding="utf-8") as f:
        return next("%s:%d" % (d.conf_path, n) for n, line in enumerate(f, 1) if line.startswith(key + " ="))


def test_each_value_has_its_origin(host):
    rows = {tuple(line.split()[:2]): line for line in host.ctl("config", "show", "daemon").stdout.splitlines()}
    assert rows["SECTION", "KEY"].split() == ["SECTION", "KEY", "VALUE", "FROM"]
    assert rows["daemon", "restart_grace"].split()[2:] == ["7s", line_of(host, "restart_grace")]
    assert rows["daemon", "socket"].split(None, 3)[2:] == [host.socket, "command line"]
    assert rows["daemon", "history"].split()[2:] == ["24h", "default"]
    assert {k[0] for k in rows} == {"SECTION", "daemon"}
    account = host.ctl("config", "show", "account default").stdout
    assert [x.split()[-2:] for x in account.splitlines() if " check_key_format " in x] == [["yes", "default"]]
    assert " spool " not in account and "spool" in host.ctl("config", "show").stdout


def test_secrets_are_not_shown(host):
    text, doc = host.ctl("config", "show").stdout, check("command.config", host.ctl("--json", "config", "show").stdout)[0]
    assert "hidden" not in text and "hidden" not in json.dumps(doc)
    assert "(not shown)" in next(x for x in text.splitlines() if " proxy " in x)
    row, = [v for v in doc["values"] if v["key"] == "proxy"]
    assert row["secret"] and row["values"] == [] and row["origin"] == "file"


def test_a_file_that_changed_is_said(host):
    assert host.ctl("config", "show").stderr == ""
    with open(host.conf_path, "a", encoding="utf-8") as f:
        f.write("\n[policy]\non_release = kill\n")
    assert host.conf_path + " is another than what the daemon runs with" in host.ctl("config", "show").stderr
    r = host.ctl("config", "show", "no-such", check=False)
    assert r.returncode == 1 and 'there is no section "no-such"' in r.stderr


@pytest.mark.parametrize("program, option", [("AGENTBOXD", o) for o in ("--version", "--help", "--print-config")] +
                         [("AGENTBOX_LOCAL", o) for o in ("--version", "--help")] + [("AGENTBOXCTL", o) for o in ("--version", "--help")])
def test_what_is_printed_is_printed_or_it_failed(program, option):
    argv = [getattr(harness, program), option]
    built(argv[0])
    with open("/dev/full", "w", encoding="ascii") as full:
        r = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True)
    assert r.returncode > 0 and "cannot write the output: No space left on device" in r.stderr
    assert subprocess.run(argv, capture_output=True, check=True).stdout


@pytest.mark.parametrize("program, options", [("AGENTBOXD", ("--socket", "--state-dir", "--config", "--log-level", "--restore")),
                                              ("AGENTBOX_LOCAL", ("--listen", "--tls-listen", "--state-dir", "--cert", "--key"))])
def test_options_without_their_value(program, options, tmp_path):
    """An empty one, as of a variable that is not set, is neither the default nor the folder that the caller is in."""
    built(getattr(harness, program))
    for option in options:
        r = subprocess.run([getattr(harness, program), option, ""], cwd=tmp_path, env={"HOME": str(tmp_path)}, capture_output=True, text=True)
        assert r.returncode in (2, 64) and r.stderr.endswith("%s needs a value\n" % option), (option, r)
    assert not os.listdir(tmp_path)


class Contexts:
    def __init__(self, folder, text, mode=0o644):
        self.home = str(folder)
        self.path = os.path.join(self.home, "agentboxctl", "contexts")
        os.makedirs(os.path.dirname(self.path))
        with open(self.path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(self.path, mode)

    def ctl(self, *args, **env):
        environ = {k: v for k, v in os.environ.items() if not k.startswith("AGENTBOX")}
        environ.update(env, XDG_CONFIG_HOME=self.home)
        return subprocess.run([harness.AGENTBOXCTL] + list(args), capture_output=True, text=True, timeout=30, env=environ, check=False)


def test_a_context_is_another_daemon(host, cloud, tmp_path):
    """--context, then the environment's socket, then the environment's context; what is named twice is an error."""
    other = harness.Daemon(cloud)
    try:
        c = Contexts(tmp_path, "# two\n\n one = %s\nother=%s \n" % (host.socket, other.socket))
        asked = lambda *a, **e: json.loads(c.ctl(*a, "--json", "status", **e).stdout)["socket"]     # noqa: E731
        assert asked("--context", "one") == host.socket and asked("--context=other") == other.socket
        assert asked(AGENTBOXCTL_CONTEXT="other") == other.socket
        assert asked(AGENTBOXCTL_CONTEXT="other", AGENTBOXD_SOCKET=host.socket) == host.socket
        assert asked("--context", "other", AGENTBOXD_SOCKET=host.socket) == other.socket
        assert asked("-s", host.socket, AGENTBOXCTL_CONTEXT="other") == host.socket
        r = c.ctl("-s", host.socket, "--context", "other", "ls")
        assert r.returncode == 2 and "name two daemons" in r.stderr
        r = c.ctl("--context", "none", "ls")
        assert r.returncode == 2 and "there is no context 'none' in " + c.path in r.stderr
        shown = [x.split() for x in c.ctl("--context", "one", "config", "contexts").stdout.splitlines()]
        assert shown == [["NAME", "SOCKET"], ["*", "one", host.socket], ["other", other.socket]]
        assert [x["current"] for x in check("command.config", c.ctl("--json", "config", "contexts").stdout, 2)] == [False, False]
    finally:
        other.close()


@pytest.mark.parametrize("text,mode,said", [
    ("one = /a\nno path\n", 0o644, ":2: is not NAME = /PATH/OF/SOCKET"), ("one = rel\n", 0o644, ":1: is not NAME"),
    ("one = /a\none = /b\n", 0o644, ":2: has a name that stands above it"), ("one = /a\n", 0o664, "can be written by others"),
    ("#" * 70000, 0o644, "is too long")])
def test_a_file_of_contexts_that_is_wrong(tmp_path, text, mode, said):
    c = Contexts(tmp_path, text, mode)
    for args in (("--context", "one", "ls"), ("config", "contexts")):
        r = c.ctl(*args)
        assert r.returncode == 1 and c.path in r.stderr and said in r.stderr, r


def test_without_a_file_there_are_none(tmp_path):
    c = Contexts(tmp_path, "")
    os.remove(c.path)
    assert c.ctl("config", "contexts").stdout.split() == ["NAME", "SOCKET"]
    assert c.ctl("config", "shown").returncode == 2
