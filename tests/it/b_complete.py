# SPDX-License-Identifier: MIT
"""agentboxctl completion: what bash, zsh and fish offer, held against what the help of each command says; a shell that this
machine does not have is skipped by name."""
import json
import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

import harness
from conftest import built
from harness import ctl, temp_dir

NOWHERE = "/tmp/no/such/socket"


def said_by_help(*words):
    """The options that a help lists."""
    text = ctl(NOWHERE, *words).stdout.partition("options:")[2]
    return {o for line in text.splitlines() for o in re.findall(r"(?:^|[ ,])(--?[a-zA-Z][a-z-]*)", line[:2 + 26])}


def commands():
    return re.findall(r"^  ([a-z-]+) ", ctl(NOWHERE, "--help").stdout, re.M)


@pytest.fixture
def folder():
    built(harness.AGENTBOXCTL)
    f = temp_dir()
    yield f
    shutil.rmtree(f)


@pytest.fixture
def env(d):
    path = os.path.dirname(harness.AGENTBOXCTL) + ":" + os.environ["PATH"]
    return dict(os.environ, AGENTBOXD_SOCKET=d.socket, PATH=path, TERM="dumb")


def script(shell, folder):
    if not shutil.which(shell):
        pytest.skip("needs %s, which this machine does not have" % shell)
    name = os.path.join(folder, "_agentboxctl")
    with open(name, "w", encoding="utf-8") as f:
        f.write(ctl(NOWHERE, "completion", shell).stdout)
    return name


def run(args, env):
    r = subprocess.run(args, env=env, capture_output=True, text=True, timeout=50, stdin=subprocess.DEVNULL)
    assert r.returncode == 0 and r.stderr == "", r
    return r.stdout


class Bash:
    """Many lines in one bash; `=` and `:` part words there, as readline parts them."""

    def __init__(self, folder, env):
        self.file, self.env = script("bash", folder), env

    def offers(self, *lines):
        text = "source '%s'; compopt() { echo \"$2\"; }\n" % self.file
        for line in lines:
            words = re.findall(r"[=:]|[^ =:]+", line) + ([""] if line.endswith(" ") else [])
            text += "COMP_WORDS=(%s) COMP_CWORD=%d; _agentboxctl; printf '%%s\\n' \"${COMPREPLY[@]}\" ---\n" % (
                " ".join("'%s'" % w for w in words), len(words) - 1)
        out = run(["bash", "--norc", "-c", text], self.env)
        return [set(part.split()) for part in out.split("---\n")[:-1]]


def test_completion_needs_no_daemon():
    built(harness.AGENTBOXCTL)
    r = ctl(NOWHERE, "completion", "tcsh", check=False)
    assert r.returncode == 2 and "'tcsh' is no shell that this knows; there are bash | zsh | fish" in r.stderr, r
    assert ctl(NOWHERE, "completion", check=False).returncode == 2
    assert all(ctl(NOWHERE, "completion", s).stdout for s in ("bash", "zsh", "fish"))


def test_completion_is_installed():
    """SERVERS 5: where each shell looks for it, as the command prints it."""
    build = os.path.dirname(os.path.dirname(harness.AGENTBOXCTL))
    with open(os.path.join(build, "meson-info", "intro-installed.json"), encoding="utf-8") as f:
        places = json.load(f)
    for shell, place in (("bash", "/bash-completion/completions/agentboxctl"), ("zsh", "/zsh/site-functions/_agentboxctl"),
                         ("fish", "/fish/vendor_completions.d/agentboxctl.fish")):
        source = [at for at, to in places.items() if to.endswith("/share" + place)]
        assert len(source) == 1, place
        with open(source[0], encoding="utf-8") as f:
            assert f.read() == ctl(NOWHERE, "completion", shell).stdout, place


def test_bash_offers_every_option(d, folder, env):
    """SERVERS 5: those of the help, no more and no less, of every command and before it."""
    names = commands()
    first, before, *each = Bash(folder, env).offers("agentboxctl ", "agentboxctl --wait 3s -", *("agentboxctl %s -" % n for n in names))
    assert first == set(names) | {"help"} and "completion" in names
    assert before == {"-s", "--socket", "--context", "--json", "--wait", "-h", "--help", "-V", "--version"}
    for name, offered in zip(names, each):
        assert offered == said_by_help(name, "--help"), name


def test_bash_offers_words_and_values(d, box, folder, env):
    d.ctl("create", "--name", "named")
    boxes = set(d.ctl("ls", "--format", "{id} {name}").stdout.split())
    assert {box, "named"} <= boxes
    for line, offered in (
            ("get ", boxes), ("kill --all ", boxes), ("snapshot ", {"create", "ls", "rm"}), ("snapshot create ", boxes), ("template ", {"ls"}),
            ("snapshot rm ", {"default"}), ("lease a", {"acquire"}), ("completion ", {"bash", "zsh", "fish"}),
            ("completion z", {"zsh"}), ("create --on-timeout ", {"kill", "pause"}), ("create --on-timeout=p", {"pause"}),
            ("run --on-release ", {"kill", "pause", "leave"}), ("create --template ", {"default"}), ("signal x ", {"TERM", "KILL"}),
            ("cp ", {"default"}), ("cat n", {"named:", "nospace"}), ("cat named:", set()), ("exec -u root ", boxes),
            ("exec --user=root ", boxes), ("exec -u root -", said_by_help("exec", "--help")), ("exec named ", {"default"}),
            ("exec named -", {"default"}), ("exec named -- ls -", {"default"}), ("run prog -", {"default"}), ("nonsense ", {"default"}),
            ("-s %s get n" % d.socket, {"named"}), ("-s %s get n" % NOWHERE, set()), ("help env", {"env"})):
        assert Bash(folder, env).offers("agentboxctl " + line) == [offered], line


def test_fish_offers_options_and_words(d, box, folder, env):
    """SERVERS 5: the same in fish."""
    name = script("fish", folder)

    def offers(*lines):
        text = "source %s\n" % name + "".join("complete -C '%s'; echo ---\n" % line for line in lines)
        out = run(["fish", "--no-config", "-c", text], dict(env, HOME=folder, XDG_CONFIG_HOME=folder, XDG_DATA_HOME=folder))
        return [{line.split("\t")[0] for line in part.splitlines()} for part in out.split("---\n")[:-1]]
    names = commands()
    first, *each = offers("agentboxctl ", *("agentboxctl %s --" % n for n in names))
    assert first == set(names) | {"help"}
    for command, offered in zip(names, each):
        assert offered == {o for o in said_by_help(command, "--help") if o.startswith("--")}, command
    d.ctl("create", "--name", "named", check=False)
    assert offers("agentboxctl get n", "agentboxctl --wait 3s snapshot ", "agentboxctl snapshot create na", "agentboxctl cat nam",
                  "agentboxctl signal x T", "agentboxctl create --on-timeout ") == [
        {"named"}, {"create", "ls", "rm"}, {"named"}, {"named:"}, {"TERM"}, {"kill", "pause"}]


def test_zsh_completes(d, box, folder, env):
    """SERVERS 5: on a terminal, as it is installed: by its name in fpath."""
    script("zsh", folder)
    d.ctl("create", "--name", "named", check=False)
    master, slave = pty.openpty()
    p = subprocess.Popen(["zsh", "-f", "-i"], stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=dict(env, HOME=folder))
    seen = b""

    def typed(text, until):
        nonlocal seen
        os.write(master, text.encode())
        end = time.monotonic() + 20
        while until.encode() not in seen:
            assert time.monotonic() < end, seen
            if select.select([master], [], [], 1)[0]:
                seen += os.read(master, 65536)
        seen = b""
    try:
        typed("unsetopt zle_bracketed_paste; PS1=; fpath=(%s $fpath); autoload -U compinit; compinit -u -D; echo rea''dy\n" % folder, "ready")
        for line, whole in (("sta", "echo agentboxctl stat"), ("snapshot cre", "echo agentboxctl snapshot create"),
                            ("get nam", "agentboxctl get named"), ("cat nam", "agentboxctl cat named:"),
                            ("kill --older", "agentboxctl kill --older-than"), ("create --on-timeout pa", "agentboxctl create --on-timeout pause"),
                            ("signal x TE", "agentboxctl signal x TERM")):
            whole = whole.replace("echo ", "")
            typed("agentboxctl %s\t\x01echo 'd'one: \n" % line, "done: " + whole)
    finally:
        p.kill()
        p.wait()
        os.close(master)
        os.close(slave)
