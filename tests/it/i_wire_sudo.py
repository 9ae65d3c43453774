# SPDX-License-Identifier: MIT
"""sudo without a password inside a sandbox (E-4)."""
import os

import pytest

from wire import event_of
from wire_common import own  # noqa: F401

RIGHTS = "grep -E '^(Cap|NoNewPrivs|Seccomp:|Uid|Gid|Groups)' /proc/self/status; cat /proc/self/oom_score_adj"


@pytest.fixture(params=["root", "no-idmap", "user"])
def box(request, own):
    """(client, a sandbox) of an agentbox-local that root runs, on an older kernel, and of a user's own."""
    if os.getuid() != 0 and request.param != "user":
        pytest.skip("only root can run it as root")
    c, _ = own(*(["--no-idmap"] if request.param == "no-idmap" else []), uid=61234 if request.param == "user" and os.getuid() == 0 else None)
    yield c, c.create(envVars={"ASKED": "1"})


def out(box, shell, **kw):
    c, b = box
    _, stdout, stderr, end, _ = c.run(b, shell, **kw)
    return stdout.decode(), stderr.decode(), end.get("exitCode", 0)


def test_as_root(box):
    """E-4: `sudo` runs a command as root, without a password, with its descriptors, in its folder, and ends as it ends."""
    assert out(box, "id -u; sudo id -u") == ("1000\n0\n", "", 0)
    assert out(box, "cd /tmp && echo in | sudo sh -c 'cat; pwd; echo err >&2; exit 7'") == ("in\n/tmp\n", "err\n", 7)
    assert out(box, "echo x | sudo tee /etc/made >/dev/null; sudo cat /root/.none; cat /etc/made")[0] == "x\n"
    assert out(box, "sudo kill -9 $$")[2] == -1
    assert out(box, "sudo sh -c 'kill -TERM $$'; echo $?", user="root")[0] == "143\n"
    assert out(box, "sudo id -u", user="root")[0] == "0\n"


def test_as_others(box):
    """E-4: -u, -i, -s and what no policy needs."""
    assert out(box, "sudo -u user id -un; sudo --user=user -n -- id -un; sudo -Hnu root id -un")[0] == "user\nuser\nroot\n"
    assert out(box, "cd /tmp; sudo -i pwd; sudo -i -u user pwd; sudo -s pwd; sudo -i echo 'a  b' '$c;d'")[0] == "/root\n/home/user\n/tmp\na  b ;d\n"
    assert out(box, "sudo -v && sudo -k && sudo -K && sudo -n true; echo $?")[0] == "0\n"
    assert out(box, "sudo -u nobody-here id") == ("", "sudo: unknown user nobody-here\n", 1)
    assert out(box, "sudo no-such-program") == ("", "sudo: no-such-program: command not found\n", 1)
    assert out(box, "sudo")[2] == 1 and "usage: sudo" in out(box, "sudo --no-such-option x")[1]


def test_variables(box):
    """E-4: variables are those of the new user, but for what is asked to be kept."""
    text = out(box, "X=1 sudo B=2 env")[0].splitlines()
    assert {"HOME=/root", "USER=root", "LOGNAME=root", "SUDO_USER=user", "SUDO_UID=1000", "B=2"} <= set(text), text
    assert not [v for v in text if v.startswith(("X=", "ASKED=", "E2B_"))], text
    text = out(box, "sudo -E env")[0].splitlines()
    assert {"ASKED=1", "HOME=/home/user", "USER=root"} <= set(text), text
    assert out(box, "X=1 Y=2 sudo --preserve-env=X sh -c 'echo $X$Y'")[0] == "1\n"


def test_no_more_than_root(box):
    """E-4: a command of sudo has the rights of a command of the user root, and not one more."""
    direct, asked = out(box, RIGHTS, user="root")[0], out(box, "sudo sh -c \"%s\"" % RIGHTS)[0]
    assert direct and asked == direct, (direct, asked)


def test_signals_pass(box):
    """E-4: an interrupt of the terminal reaches the command."""
    c, b = box
    with c.start(b, argv=["/bin/bash", "-c", "sudo sh -c 'trap \"echo caught; exit 3\" INT; echo ready; while :; do sleep 0.1; done'"], pty=(80, 24)) as s:
        pid, text = None, b""
        for m in s:
            e = event_of(m)
            if e[0] == "start":
                pid = e[1]
            if e[0] == "pty":
                text += e[1]
            if e[0] == "end":
                assert b"caught" in text and e[1]["exitCode"] == 3, (text, e)
                return
            if text.count(b"ready") == 1 and pid:
                c.unary(b, "process.Process/SendInput", {"process": {"pid": pid}, "input": {"pty": "Aw=="}})
                pid = None
    raise AssertionError(text)


HOSTILE = r"""
import array, os, socket
def ask(data, fds=()):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect("\0agentbox-sudo")
    s.settimeout(5)
    try:
        s.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
        s.recv(4096)
    except OSError:
        pass
    s.close()
for n in (0, 1, 4, 75, 76, 80, 4096):
    ask(b"\xff" * n)
memfd = os.memfd_create("x")
os.write(memfd, b"\xff" * 5000)
for fds in ([], [memfd], [memfd, 0, 1, 2], [0, 0, 0, 0]):
    ask((b"root" + bytes(60) + bytes(12)).ljust(80, b"\0"), fds)
    ask((b"root" + bytes(60) + bytes(12)), fds)
held = []
for i in range(50):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect("\0agentbox-sudo")
    held.append(s)
print("done")
"""


def test_hostile_askers(box):
    """E-4: what asks in no form that sudo has gets nothing and harms nobody."""
    c, b = box
    assert c.write(b, "/tmp/h.py", HOSTILE.encode()).status == 200
    assert out(box, "python3 /tmp/h.py") == ("done\n", "", 0)
    assert out(box, "sudo id -u")[0] == "0\n"
