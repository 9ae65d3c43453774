# SPDX-License-Identifier: MIT
"""agentboxctl exec -it, attach, logs, wait, signal, in a pseudo terminal."""
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

import harness

WAIT_S = 20


class Term:
    """agentboxctl on a terminal of its own."""

    def __init__(self, d, *args, size=(24, 80)):
        self.master, self.slave = pty.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(self.slave)
        self.proc = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, *args], stdin=self.slave, stdout=self.slave,
                                     stderr=self.slave, start_new_session=True)
        self.out = b""

    def resize(self, rows, cols):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text):
        os.write(self.master, text if isinstance(text, bytes) else text.encode())

    def until(self, text, again=None):
        """Reads until this was seen; `again` is typed anew every second, for what takes a moment."""
        end = time.monotonic() + WAIT_S
        while text.encode() not in self.out:
            assert time.monotonic() < end, self.out
            if select.select([self.master], [], [], 1)[0]:
                self.out += os.read(self.master, 65536)
            elif again:
                self.type(again)
        self.out = self.out.partition(text.encode())[2]

    def end(self):
        code = self.proc.wait(WAIT_S)
        assert termios.tcgetattr(self.slave) == self.before, "the terminal was left as it was not"
        os.close(self.master)
        os.close(self.slave)
        return code


def shell(d, box, *options):
    t = Term(d, "exec", *options, "-it", "-e", "PS1=", box, "--", "bash", "--norc", "--noprofile")
    t.type("stty -echo; echo rea''dy\n")
    t.until("ready")
    return t


@pytest.mark.parametrize("text", ["", "in a line", "of lines\n", "ctrl-p and ctrl-q: \x10\x11 are two letters\n"])
def test_input_that_is_no_terminal(d, box, text):
    """exec -it in a script: what comes is typed, and its end is Ctrl-D; it does not wait for more."""
    p = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "exec", "-it", box, "--", "sh", "-c",
                          "stty -echo -ixon; stty size; echo ready; cat >/tmp/typed; test -t 0 && exit 5"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert [p.stdout.readline() for _ in range(2)] == [b"24 80\r\n", b"ready\r\n"]
    p.stdin.write(text.encode())
    p.stdin.close()
    assert (p.stdout.read(), p.wait(WAIT_S)) == (b"", 5)
    assert d.ctl("cat", box + ":/tmp/typed").stdout == text


def test_a_shell_and_its_size(d, box):
    t = shell(d, box)
    t.type("stty size\n")
    t.until("24 80")
    t.resize(41, 123)
    t.proc.send_signal(signal.SIGWINCH)
    t.until("41 123", again="stty size\n")
    t.type("exit 7\n")
    assert t.end() == 7


def test_detach_attach_elsewhere(d, box):
    t = shell(d, box)
    t.type("echo remem''bered; x=42\n")
    t.until("remembered")
    t.type("\x10")
    t.type("\x11")
    t.until("agentboxctl attach ")
    assert t.end() == 0
    command = t.out.split()[0].decode()
    u = Term(d, "attach", command, size=(30, 90))
    u.until("remembered")
    u.type("echo $x.; stty size\n")
    u.until("42.")
    u.until("30 90", again="stty size\n")
    u.type("exit 3\n")
    assert u.end() == 3
    assert "remembered" in d.ctl("logs", command).stdout
    assert d.ctl("wait", command, check=False).returncode == 3


def test_other_detach_keys_and_half_of_them(d, box):
    t = Term(d, "exec", "-it", "--detach-keys", "ctrl-a,d", box, "--", "cat")
    t.type("\x01x\n")
    t.until("x\r\n")
    t.type("\x01d")
    t.until("attach")
    assert t.end() == 0
    assert d.ctl("exec", "-it", "--detach-keys", "meta-x", box, "--", "cat", check=False).returncode == 2


def test_ctrl_c_goes_through(d, box):
    t = shell(d, box)
    t.type("trap 'echo inter''rupted; exit 7' INT; echo slee''ping; sleep 100\n")
    t.until("sleeping")
    t.type("\x03")
    t.until("interrupted", again="\x03")
    assert t.end() == 7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_to_us_restore_the_terminal(d, box, number):
    t = shell(d, box)
    t.proc.send_signal(number)
    assert t.end() == 128 + number


def test_the_sandbox_is_killed_meanwhile(d):
    box = d.ctl("create").stdout.strip()
    t = shell(d, box)
    d.ctl("kill", box)
    assert t.end() == 126


def test_detached_commands(d, box):
    command = d.ctl("exec", "-d", box, "--", "sh", "-c", "echo one; echo two >&2; sleep 1; echo three; exit 5").stdout.strip()
    assert d.ctl("wait", command, check=False).returncode == 5
    r = d.ctl("logs", command)
    assert (r.stdout, r.stderr) == ("one\nthree\n", "two\n")
    assert d.ctl("logs", "--from", "4", command).stdout == "three\n"
    r = d.ctl("attach", "--from", "4", command, check=False)
    assert (r.returncode, r.stdout) == (5, "three\n")
    assert command not in d.ctl("ps", box).stdout and command in d.ctl("ps", "--ended", box).stdout


def lines(n, first=1):
    return "".join("%d\n" % i for i in range(first, first + n))


def test_the_last_lines_of_logs(d, box):
    """As many lines of both outputs as asked for, in the order in which they came; no part of one before."""
    said = "seq 5; echo six >&2; sleep 0.3; seq 7 9; printf ten"
    command = d.ctl("exec", "-d", box, "--", "sh", "-c", said).stdout.strip()
    d.ctl("wait", command)
    for n, out, err in ((0, "", ""), (1, "ten", ""), (2, "9\nten", ""), (4, lines(3, 7) + "ten", ""),
                        (5, lines(3, 7) + "ten", "six\n"), (7, lines(2, 4) + lines(3, 7) + "ten", "six\n"),
                        (100, lines(5) + lines(3, 7) + "ten", "six\n")):
        r = d.ctl("logs", "--tail", str(n), command)
        assert (r.stdout, r.stderr) == (out, err), n
    assert d.ctl("logs", "-n", "1000000", "-f", command).stdout == lines(5) + lines(3, 7) + "ten"
    for wrong in ("-1", "x", "1000001", "99999999999999999999"):
        r = d.ctl("logs", "--tail=" + wrong, command, check=False)
        assert r.returncode == 2 and "--tail takes a number of lines up to 1000000" in r.stderr
    r = d.ctl("logs", "--tail", "1", "--from", "3", command, check=False)
    assert r.returncode == 2 and "--from stands alone" in r.stderr


def test_logs_since(d, box):
    command = d.ctl("exec", "-d", box, "--", "sh", "-c", "echo old; echo older >&2; sleep 2.5; date -u +%FT%TZ; exit 3").stdout.strip()
    d.ctl("wait", command, check=False)
    r = d.ctl("logs", "--since", "1h", command)
    at = r.stdout.split()[1]
    assert r.stdout == "old\n%s\n" % at and r.stderr == "older\n"
    r = d.ctl("logs", "-f", "--since", at, command)
    assert (r.returncode, r.stdout, r.stderr) == (0, at + "\n", "")
    assert d.ctl("logs", "--since", at[:-1] + "+00:00", "--tail", "5", command).stdout == at + "\n"
    assert d.ctl("logs", "--since", at[:-1] + "-01:00", command).stdout == ""
    for wrong in ("yesterday", "2026-01-31", at + "x", at[:-1]):
        r = d.ctl("logs", "--since", wrong, command, check=False)
        assert r.returncode == 2 and "--since takes a duration such as 10m" in r.stderr


def digits(path):
    with open(path, encoding="utf-8") as f:
        return [line for line in f.read().splitlines() if line.isdigit()]


def test_logs_goes_on_over_a_restart(local, tmp_path):
    """What the first reading left out stays left out, also of the output that said nothing before the connection broke."""
    says = "seq 4; seq 4 >&2; until [ -e more ]; do [ -e mark ] && rm mark && echo mark; sleep 0.05; done; echo 55"
    ways = ["logs", "-f", "--tail", "2"], ["logs", "-f", "-n0"], ["attach", "--from", "end"], ["logs", "-f", "--since", "1ms"]
    first = d = harness.Daemon(local)
    readers = []
    try:
        box = d.ctl("create").stdout.strip()
        command = d.ctl("exec", "-d", "-w", "/tmp", box, "--", "sh", "-c", says).stdout.strip()
        harness.until(lambda: d.ctl("logs", command).stderr == lines(4), 10, "its first lines")
        time.sleep(1.1)     # a record grows for a second, and --since shows it as a whole
        out = [str(tmp_path / ("out%d" % i)) for i in range(len(ways))]
        err = [str(tmp_path / ("err%d" % i)) for i in range(len(ways))]
        for how, o, e in zip(ways, out, err):
            with open(o, "wb") as o, open(e, "wb") as e:
                readers.append(subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "--wait", "20s", *how, command],
                                                stdin=subprocess.DEVNULL, stdout=o, stderr=e))

        def all_read():
            d.ctl("exec", box, "touch", "/tmp/mark")
            return all("mark" in open(o, encoding="utf-8").read() for o in out)
        harness.until(all_read, 20, "a mark for each reader")
        first.kill9()
        d = harness.Daemon(local, folder=first.home)
        d.ctl("exec", box, "touch", "/tmp/more")
        assert [r.wait(30) for r in readers] == [0, 0, 0, 0]
        assert [digits(o) for o in out] == [["55"]] * 4
        assert [digits(e) for e in err] == [["3", "4"], [], [], []]
    finally:
        for r in readers:
            r.kill()
            r.wait()
        d.ctl("kill", "--all", "--yes", check=False)
        d.close()
        first.close()


def test_signal(d, box):
    command = d.ctl("exec", "-d", box, "--", "sleep", "100").stdout.strip()
    assert command in d.ctl("ps", box).stdout
    d.ctl("signal", command, "TERM")
    assert d.ctl("wait", command, check=False).returncode == 128 + signal.SIGTERM
    assert d.ctl("signal", command, "KILL", check=False).returncode == 3
    assert d.ctl("signal", command, "HUP", check=False).returncode == 2
    assert d.ctl("wait", "nonsense", check=False).returncode == 3


def test_interrupting_attach_leaves_the_command_alone(d, box):
    command = d.ctl("exec", "-d", box, "--", "sh", "-c", "echo begun; sleep 100").stdout.strip()
    p = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "attach", command], stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "begun\n"
    p.send_signal(signal.SIGINT)
    assert p.wait(WAIT_S) == 128 + signal.SIGINT
    p.stdout.close()
    assert command in d.ctl("ps", box).stdout
