# SPDX-License-Identifier: MIT
"""No signal ends agentboxd or agentbox-local without a word (JUDGED C-7); the log leaves a shared stderr as it is (JUDGED D-3)."""
import contextlib
import fcntl
import os
import re
import select
import signal
import socket
import subprocess
import threading
import time

import pytest

import harness
from api import Api, ApiError
from harness import until

HARMLESS = [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO,
            signal.SIGPIPE, signal.SIGPWR, 16, signal.SIGXCPU, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH,
            signal.SIGRTMIN, signal.SIGRTMIN + 7, signal.SIGRTMAX]     # 16: SIGSTKFLT


def dump_lines(d):
    return [x for x in d.log().splitlines() if re.search(r" dump_\w+ ", x)]


def test_signals_that_end_nothing(cloud, daemon, api):
    """C-7: each is answered with a line, or ignored; calls go on meanwhile."""
    made, stop = [], threading.Event()

    def work():
        while not stop.is_set():
            made.append(api.call("SandboxService.Create", timeout=30).id)
    t = threading.Thread(target=work)
    t.start()
    try:
        until(lambda: made, 20, "a sandbox", daemon)
        for sig in HARMLESS:
            n = len(made)
            os.kill(daemon.pid, sig)
            until(lambda: len(made) > n + 1 or not t.is_alive(), 20, "a call after signal %d" % sig, daemon)
            assert daemon.running() and t.is_alive(), sig
    finally:
        stop.set()
        t.join(30)
    log = daemon.log()
    assert " reloaded taken=0 need_restart=0\n" in log
    for name in ("USR2", "ALRM", "VTALRM", "PROF", "POLL", "PWR", "STKFLT", "XCPU", "RTMIN+0", "RTMIN+7", "RTMIN+30"):
        assert " signal_ignored signal=%s\n" % name in log, name


def test_usr1_dumps(cloud, daemon, api):
    """C-7: SIGUSR1 writes what there is to know, and nothing secret."""
    boxes = [api.call("SandboxService.Create", timeout=30).id for _ in range(3)]
    assert not dump_lines(daemon)
    os.kill(daemon.pid, signal.SIGUSR1)
    daemon.wait_log(r" dump_end ")
    said = "\n".join(dump_lines(daemon))
    for want in (r"dump_daemon version=\S+ pid=%d " % daemon.pid, r"dump_clients connections=1 ", r"dump_sandboxes running=3 ",
                 r"dump_commands running=0 ", r"dump_store error=none ", r"dump_account account=default .*key=present",
                 r"dump_origin origin=https://\S+ connections=1 ", r"dump_pool calls=[1-9]"):
        assert re.search(want, said), (want, said)
    assert cloud.key not in said and not [b for b in boxes if b in said]


def test_usr1_names_children(cloud, tmp_path):
    """… and the programs that it started."""
    conf = {"account default": {"api_key_file": [], "api_key_command": "exec sleep 1000"}}
    with contextlib.closing(harness.Daemon(cloud, conf=conf)) as d:
        os.kill(d.pid, signal.SIGUSR1)
        d.wait_log(r" dump_child child=api_key_command state=running pid=[1-9]\d* ")


@pytest.mark.parametrize("sig,word", [(signal.SIGTERM, "draining signal=TERM"), (signal.SIGINT, "draining signal=INT"),
                                      (signal.SIGQUIT, "ending signal=QUIT")])
def test_signals_that_end_it(cloud, daemon, sig, word):
    """C-7: with a word, and with 0."""
    daemon.stop(sig=sig)
    assert word in daemon.log() and " stopped code=0" in daemon.log()


def test_quit_does_not_wait_for_calls(cloud, daemon, api):
    """C-7: SIGQUIT ends at once what SIGTERM would wait for."""
    box = api.call("SandboxService.Create").id
    gate = cloud.fault("pause", hold=True).hold
    t = threading.Thread(target=lambda: pytest.raises(ApiError, api.call, "SandboxService.Pause", sandbox=box, timeout=60))
    t.start()
    gate.wait()
    begin = time.monotonic()
    daemon.stop(sig=signal.SIGQUIT)
    assert time.monotonic() - begin < 5
    t.join(30)
    gate.release()


def test_agentbox_local_too():
    """C-7, its sibling: no signal ends agentbox-local without a word; SIGHUP, of a closed terminal, stops it in order."""
    local = harness.LocalCloud()
    try:
        for sig in HARMLESS[1:]:
            os.kill(local.pid, sig)
        time.sleep(0.2)
        assert local.running(), local.tail()
        assert " signal_ignored signal=USR2\n" in local.log()
        local.stop(sig=signal.SIGHUP)
        assert " stopping why=SIGHUP\n" in local.log()
    finally:
        local.close()


# --- D-3 ---

def flags_of(fd):
    return fcntl.fcntl(fd, fcntl.F_GETFL)


def fill(fd):
    """To the last byte, by a description of our own."""
    own = os.open("/proc/self/fd/%d" % fd, os.O_WRONLY | os.O_NONBLOCK)
    for n in (4096, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(own, b"x" * n)
    os.close(own)


def drain(fd):
    """What is in it now, and what comes within a moment."""
    said = b""
    while select.select([fd], [], [], 1)[0]:
        said += os.read(fd, 1 << 20)
    return said


@contextlib.contextmanager
def with_stderr(cloud, fd):
    """A daemon with this standard error, started by itself (the harness gives it a file)."""
    d = harness.Daemon(cloud)
    d.stop()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("E2B_", "AGENTBOX", "LISTEN_"))}
    p = subprocess.Popen(d.argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=fd, env=env)
    try:
        d.proc, d.pid = p, p.pid
        d.wait_ready()
        yield d
    finally:
        p.terminate()
        p.wait(20)
        d.close()


def ends(kind):
    if kind == "pipe":
        r, w = os.pipe()
        return r, w
    a, b = socket.socketpair()
    return a.detach(), b.detach()


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_the_flags_of_a_shared_stderr(cloud, kind):
    """D-3: whoever shares the pipe finds it as it was; the daemon does not wait for its reader all the same."""
    r, w = ends(kind)
    try:
        before = flags_of(w)
        assert not before & os.O_NONBLOCK
        with with_stderr(cloud, w) as d, Api(d.socket) as api:
            assert b" ready " in drain(r)
            assert flags_of(w) == before
            if kind == "pipe":
                fill(w)
                for _ in range(20):
                    os.kill(d.pid, signal.SIGUSR1)
                    api.call("DaemonService.Status", timeout=10)
                assert b"dump_" not in drain(r)
                os.kill(d.pid, signal.SIGUSR1)
                api.call("DaemonService.Status", timeout=10)
                assert re.search(rb" log_lost lines=[1-9]", drain(r))
            assert flags_of(w) == before
    finally:
        os.close(r)
        os.close(w)


def test_a_neighbour_on_the_same_pipe(cloud):
    """D-3: `(agentboxd & seq 1 30000) 2>&1 | slow`: seq writes all of it."""
    r, w = os.pipe()
    try:
        with with_stderr(cloud, w) as d:
            for _ in range(3):
                os.kill(d.pid, signal.SIGUSR1)
            seq = subprocess.Popen(["seq", "1", "30000"], stdout=w)
            said = b""
            while seq.poll() is None:
                if select.select([r], [], [], 0.01)[0]:
                    said += os.read(r, 4096)
            said += drain(r)
            assert seq.returncode == 0
            numbers = re.findall(rb"^\d+$", said, re.M)
            assert len(numbers) > 29000 and b"30000" in numbers     # a line of the log may stand in a number's middle
    finally:
        os.close(r)
        os.close(w)


def test_standard_descriptors_that_are_closed(cloud):
    """D-3, its sibling: without a stderr the log goes nowhere, not into the file that would lie in its place."""
    d = harness.Daemon(cloud)
    d.stop()
    d.proc = subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *d.argv])
    d.pid = d.proc.pid
    try:
        d.wait_ready()
        assert [os.readlink("/proc/%d/fd/%d" % (d.pid, fd)) for fd in range(3)] == ["/dev/null"] * 3
        os.kill(d.pid, signal.SIGUSR1)
        with Api(d.socket) as api:
            assert api.call("SandboxService.Create").id
    finally:
        d.close()
