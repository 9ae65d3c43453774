# SPDX-License-Identifier: MIT
"""Programs that agentboxd starts: agentbox-local and api_key_command. Nothing that they do, or do not, blocks the loop, is
waited for at the start, or makes every call fail for ever (JUDGED C-7, C-8)."""
import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import threading
import time

import pytest

import harness
from api import Api, ApiError
from harness import until

PROMPT_S = 2.0      # for an answer that waits for nothing; the machine of a test may be busy


@contextlib.contextmanager
def own_home():
    """A folder of a --local daemon, which must be gone with all that it held."""
    home = harness.temp_dir("abd-")
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def local_daemon(home, **kw):
    """agentboxd --local in this folder; ended with its agentbox-local, whatever became of that one."""
    d = harness.Daemon(None, folder=home, **kw)
    traces = harness.Traces(home).look(d.pid)
    try:
        yield d
        traces.look(d.pid)
        if d.running():
            d.ctl("local", "stop", check=False)
            d.stop()
        traces.gone()
    finally:
        if d.running():
            d.kill9()
        with contextlib.suppress(OSError, KeyError, ValueError):
            os.kill(endpoint(d)["pid"], signal.SIGKILL)


def endpoint(d):
    with open(os.path.join(d.state_dir, "local", "endpoint"), encoding="utf-8") as f:
        return json.load(f)


def port_of(address):
    return int(address.rpartition(":")[2])


def status(api):
    """The status, which never waits for anything."""
    begin = time.monotonic()
    s = api.call("DaemonService.Status", timeout=20)
    took = time.monotonic() - begin
    assert took < PROMPT_S, "Status took %.1f s" % took
    return s


def watch_the_loop(d, api, seconds):
    """For this time it answers promptly and does next to nothing else."""
    begin, before = time.monotonic(), harness.cpu_s(d.pid)
    while time.monotonic() < begin + seconds:
        status(api)
        time.sleep(0.1)
    used = harness.cpu_s(d.pid) - before
    assert used < 0.15 * (4 if harness.ASAN else 1) * seconds, "%.2f s of CPU in %.1f s" % (used, seconds)


@contextlib.contextmanager
def taken(port):
    """Holds this port of 127.0.0.1 as soon as it is free."""
    s = socket.socket()
    try:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        end = time.monotonic() + 5
        while True:
            try:
                s.bind(("127.0.0.1", port))
                break
            except OSError:
                assert time.monotonic() < end, "port %d is still in use" % port
        s.listen()
        yield
    finally:
        s.close()


def lines(d, event):
    return [x for x in d.log().splitlines() if " %s " % event in x]


# --- C-8: agentbox-local ---

def kill_and_wait(d, pid):
    """Of what is sent to one that is dying nobody can say whether it was done."""
    os.kill(pid, signal.SIGKILL)
    d.wait_log("local_ended pid=%d " % pid)


def test_its_port_is_taken_while_it_is_down():
    """C-8: another program has its port when it is started again: it comes up at another one, the account follows, calls that
    came meanwhile wait and are answered. Its next death is like the first."""
    with own_home() as home, local_daemon(home) as d, Api(d.socket) as api:
        assert api.call("SandboxService.Create", timeout=30).id
        old = endpoint(d)
        kill_and_wait(d, old["pid"])
        with taken(port_of(old["tls_address"])):
            assert api.call("SandboxService.Create", timeout=30).id
            new = endpoint(d)
            assert new["pid"] != old["pid"] and new["tls_address"] != old["tls_address"]
            s = status(api)
            assert s.local.address == new["tls_address"] and s.local.pid == new["pid"] and not s.degraded
            assert s.clouds[0].api_url == "https://localhost:%d" % port_of(new["tls_address"])
            assert len(lines(d, "local_ports")) == 1
            assert "instead_of=" + old["tls_address"] in d.log()
            kill_and_wait(d, new["pid"])
            box = api.call("SandboxService.Create", timeout=30).id
            assert endpoint(d)["tls_address"] == new["tls_address"]
            assert d.ctl("exec", box, "--", "echo", "hi").stdout == "hi\n"
            watch_the_loop(d, api, 3)


def test_it_cannot_come_back():
    """C-8: while it does not start, calls are refused and told why, at once; Status and the log say it once; the pauses between
    starts grow, the loop is neither blocked nor busy; when the cause is gone it is back by itself."""
    with own_home() as home, local_daemon(home) as d, Api(d.socket) as api:
        seed = os.path.join(d.state_dir, "local", "seed")
        os.rename(seed, seed + ".kept")
        os.mkdir(seed)
        os.kill(endpoint(d)["pid"], signal.SIGKILL)
        until(lambda: any(x.what == "local" for x in status(api).degraded), 20, "the trouble in Status", d)
        until(lambda: lines(d, "local_ended")[-1].find("starting") > 0, 20, "a start that failed", d)
        begin = time.monotonic()
        with pytest.raises(ApiError) as e:
            api.call("SandboxService.Create", timeout=60)
        assert e.value.reason == "UNREACHABLE" and "it ended with 1" in e.value.text, e.value
        assert time.monotonic() - begin < 20
        watch_the_loop(d, api, 4)
        s = status(api)
        assert len([x for x in s.degraded if x.what in ("local", "cloud")]) == 1 and s.local.pid == 0
        assert [x for x in s.degraded if x.what == "local"][0].message.startswith("agentbox-local")
        starts = len([x for x in lines(d, "local_ended") if "state=starting" in x])
        assert 2 <= starts <= 8, starts
        assert len([x for x in lines(d, "local_down") if "before it was ready" in x]) == 1
        os.rmdir(seed)
        os.rename(seed + ".kept", seed)
        until(lambda: not status(api).degraded, 40, "its return", d)
        assert api.call("SandboxService.Create", timeout=30).id


def test_a_machine_where_it_cannot_start(tmp_path):
    """C-8: the first start leads to nothing: the daemon says why and ends with 69."""
    with own_home() as home:
        os.makedirs(os.path.join(home, "state", "local", "seed"))
        os.chmod(os.path.join(home, "state"), 0o700)
        d = harness.Daemon(None, folder=home, wait=False)
        assert d.proc.wait(30) == 69
        assert "agentboxd: agentbox-local: it ended with 1 before it was ready" in d.log()


@contextlib.contextmanager
def starting():
    """(a --local daemon, a pipe): its agentbox-local starts, and does not come to an end with it until somebody writes a key into
    the pipe."""
    with own_home() as home:
        folder = os.path.join(home, "state", "local")
        os.makedirs(folder, mode=0o700)
        os.chmod(os.path.join(home, "state"), 0o700)
        pipe = os.path.join(folder, "api-key")
        os.mkfifo(pipe, 0o600)
        d = harness.Daemon(None, folder=home, wait=False)
        traces = harness.Traces(home)
        try:
            d.wait_connects()
            traces.look(*until(lambda: local_pids(d), 20, "agentbox-local", d))
            yield d, pipe
            if d.running():
                d.stop()
            traces.gone()
        finally:
            if d.running():
                d.kill9()
            for pid, _ in traces.processes:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)


def local_pids(d):
    """Of an agentbox-local that runs as this daemon's child."""
    traces = harness.Traces(d.home).look(d.pid)
    return [pid for (pid, _), words in traces.processes.items() if "--exit-when-idle" in words]


def test_a_command_goes_on_over_a_restart():
    """A daemon that attaches to a running agentbox-local takes up the commands of before, unasked. What is said while nobody
    listens is lost, as in the cloud: so it speaks only then."""
    with own_home() as home, local_daemon(home) as one:
        with Api(one.socket) as api:
            box = api.call("SandboxService.Create", timeout=30).id
            command = api.call("CommandService.Start", sandbox=box,
                               shell="until [ -e /tmp/go ]; do sleep 0.1; done; seq 6").command_id
        one.kill9()
        with local_daemon(home, args=("--log-level", "debug")) as two:
            two.wait_log("command_state command=%s .* to=running" % command)
            two.ctl("exec", box, "--", "touch", "/tmp/go")
            assert two.ctl("attach", command).stdout == "1\n2\n3\n4\n5\n6\n"


def is_locked(path):
    """By fcntl, as agentbox-local does."""
    if not os.path.exists(path):
        return False
    with open(path, "r+", encoding="ascii") as f:      # asked, not tried: it must not find it taken by us
        got = fcntl.fcntl(f, fcntl.F_GETLK, struct.pack("hhqqi0q", fcntl.F_WRLCK, 0, 0, 0, 0))
    return struct.unpack("hhqqi0q", got)[0] != fcntl.F_UNLCK


def test_the_daemon_answers_while_it_starts():
    """C-8: Status does not wait for agentbox-local; a call does, until its deadline."""
    with starting() as (d, _), Api(d.socket) as api:
        watch_the_loop(d, api, 1)
        begin = time.monotonic()
        with pytest.raises(ApiError) as e:
            api.call("SandboxService.Create", timeout=3)
        assert time.monotonic() - begin > 2.5
        assert e.value.reason in ("UNREACHABLE", "DEADLINE_REQUEST") or e.value.code == "DEADLINE_EXCEEDED", e.value
        s = status(api)
        assert s.local.pid == 0 and s.local.address == "" and s.clouds[0].api_url == ""


def test_sigterm_while_agentbox_local_starts():
    """C-7: it ends at once, and what it was starting ends with it."""
    with starting() as (d, _):
        begin = time.monotonic()
        d.stop()
        assert time.monotonic() - begin < 5


def test_stop_while_it_starts():
    """`local stop` ends one that never came up, and it stays down; calls are told so."""
    with starting() as (d, _), Api(d.socket) as api:
        assert api.call("DaemonService.StopLocal", timeout=30).was_running
        with pytest.raises(ApiError) as e:
            api.call("SandboxService.Create", timeout=30)
        assert e.value.reason == "UNREACHABLE" and "was stopped" in e.value.text, e.value
        assert [x.what for x in status(api).degraded] == ["local"]
        assert not api.call("DaemonService.StopLocal", timeout=30).was_running


def replace_key(pipe):
    """agentbox-local goes on with what comes from the pipe, and the daemon reads the file that is there then."""
    with open(pipe, "w", encoding="ascii") as f:
        f.write(harness.KEY + "\n")
        with open(pipe + ".new", "w", encoding="ascii") as g:
            g.write(harness.KEY + "\n")
        os.chmod(pipe + ".new", 0o600)
        os.rename(pipe + ".new", pipe)


def test_killed_while_it_starts_and_started_again():
    """A daemon that is killed leaves the agentbox-local that it was starting; the next one waits for it, and starts no other."""
    with starting() as (one, pipe):
        until(lambda: is_locked(os.path.join(one.state_dir, "local", "lock")), 20, "its lock", one)
        one.kill9()
        two = harness.Daemon(None, folder=one.home, wait=False)
        try:
            until(lambda: two.log().count(" ready version=") == 2, 20, "the second daemon", two)
            with Api(two.socket) as api:
                assert status(api).local.pid == 0
                replace_key(pipe)
                until(lambda: status(api).local.pid, 20, "agentbox-local", two)
                assert api.call("SandboxService.Create", timeout=30).id
            assert len(lines(two, "local_attached")) == 1 and not lines(two, "local_started")
        finally:
            two.ctl("local", "stop", check=False)
            two.stop()


# --- C-7: api_key_command ---

def by_command(cloud, command, **kw):
    conf = {"account default": {"api_key_file": [], "api_key_command": command}}
    return contextlib.closing(harness.Daemon(cloud, conf=conf, **kw))


def in_file(tmp_path, script):
    """A command that runs it: a line of the configuration is short."""
    (tmp_path / "script").write_text(script, encoding="ascii")
    return "exec sh %s" % (tmp_path / "script")


def read_pid(path):
    until(lambda: path.exists() and path.read_text(encoding="ascii").endswith("\n"), 20, "the command's pid")
    return int(path.read_text(encoding="ascii"))


def is_alive(pid):
    return harness._stat_of(pid) is not None


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_key_command_runs_at_the_start(cloud, tmp_path, sig):
    """C-7: the daemon ends at once, and the command with it."""
    pid_file = tmp_path / "pid"
    with by_command(cloud, "echo $$ >%s; exec sleep 1000" % pid_file, wait=False) as d:
        pid = read_pid(pid_file)
        begin = time.monotonic()
        d.stop(sig=sig)
        assert time.monotonic() - begin < 5
        until(lambda: not is_alive(pid), 10, "the end of the command")


def test_the_start_does_not_wait_for_the_key(cloud, tmp_path):
    """C-7: while the command runs Status answers, and a call waits for what it prints."""
    go, pid_file = tmp_path / "go", tmp_path / "pid"
    script = "echo $$ >%s; while ! [ -e %s ]; do sleep 0.05; done; echo %s" % (pid_file, go, cloud.key)
    with by_command(cloud, in_file(tmp_path, script)) as d, Api(d.socket) as api:
        read_pid(pid_file)
        watch_the_loop(d, api, 1)
        assert status(api).clouds[0].key == 2       # missing
        made = []
        t = threading.Thread(target=lambda: made.append(api.call("SandboxService.Create", timeout=30).id))
        t.start()
        watch_the_loop(d, api, 0.5)
        assert not made
        go.touch()
        t.join(30)
        assert len(made) == 1
        assert status(api).clouds[0].key == 1


def test_a_key_command_that_does_not_end(cloud, tmp_path):
    """C-7: calls that wait for it are refused when its time is over, not before and not much later; what ignores SIGTERM is
    killed."""
    pid_file = tmp_path / "pid"
    script = in_file(tmp_path, "trap '' TERM; echo $$ >%s; while :; do sleep 0.1; done" % pid_file)
    with by_command(cloud, script) as d, Api(d.socket) as api:
        pid = read_pid(pid_file)
        begin = time.monotonic()
        with pytest.raises(ApiError) as e:
            api.call("SandboxService.Create", timeout=60)
        took = time.monotonic() - begin
        assert e.value.reason == "KEY_MISSING" and 5 < took < 20, (e.value, took)
        assert "it did not end within 10 s" in d.log()
        assert not is_alive(pid)


def test_its_environment(cloud, tmp_path):
    """What a service manager tells the daemon is not told to its children."""
    out = tmp_path / "env"
    env = {"NOTIFY_SOCKET": "/no/such", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1", "LISTEN_FDNAMES": "x",
           "LISTEN_FDS": "0", "MINE": "kept"}
    with by_command(cloud, in_file(tmp_path, "env >%s.new; mv %s.new %s; echo %s" % (out, out, out, cloud.key)), env=env):
        until(out.exists, 20, "the environment")
        names = {x.partition("=")[0] for x in out.read_text(encoding="utf-8").splitlines()}
        assert "MINE" in names
        assert not [n for n in names if n.startswith(("NOTIFY_", "WATCHDOG_", "LISTEN_"))]
