# SPDX-License-Identifier: MIT
"""What agentboxd tells a service manager and takes from it, with a manager of the test's own: its socket, its descriptors."""
import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import time

import pytest

import harness
from api import Api, ApiError

# Puts passed descriptors where a manager does, and says whose they are: a program for bash, which is up sooner than one for Python.
PASS = r"""
IFS=, read -ra fds <<<"$0"
for i in "${!fds[@]}"; do eval "exec $((200 + i))<&${fds[i]} ${fds[i]}<&-"; done
for i in "${!fds[@]}"; do eval "exec $((3 + i))<&$((200 + i)) $((200 + i))<&-"; done
export LISTEN_PID=$$ WATCHDOG_PID=$$
exec "$@"
"""


class Manager:
    """The notify socket, and what came."""

    def __init__(self, folder, **passed):
        self.folder, self.passed, self.seen = folder, passed, []
        self.path = os.path.join(folder, "notify")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(self.path)
        os.chmod(self.path, 0o666)

    def start(self, cloud, names=None, env=None, **kw):
        names = list(self.passed) if names is None else names
        fds = [s.fileno() for s in self.passed.values()]
        env = dict({"NOTIFY_SOCKET": self.path, "LISTEN_FDS": str(len(fds)), "LISTEN_FDNAMES": ":".join(names)}, **(env or {}))
        return harness.Daemon(cloud, env=env, pass_fds=fds, wait=False,
                              wrap=["/bin/bash", "-c", PASS, ",".join(map(str, fds))], **kw)

    def next(self, timeout=20):
        self.sock.settimeout(timeout)
        text = self.sock.recv(4096).decode()
        self.seen.append(text)
        return text

    def wait(self, pattern, timeout=20):
        end = time.monotonic() + timeout
        while True:
            m = re.fullmatch(pattern, self.next(max(end - time.monotonic(), 0.01)))
            if m:
                return m

    def close(self):
        self.sock.close()
        for s in self.passed.values():
            s.close()


@pytest.fixture
def folder():
    return harness.temp_dir("abm-")


def listening(path):
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    os.chmod(path, 0o640)
    s.listen(64)
    return s


def test_ready_status_stopping(cloud, folder):
    """READY=1 when calls are served, STATUS= in words, STOPPING=1 at the stop; then nothing of an error."""
    m = Manager(folder)
    with contextlib.closing(m), contextlib.closing(m.start(cloud)) as d:
        m.wait("READY=1")
        with Api(d.socket) as api:
            api.call("SandboxService.Create")
            m.wait(r"STATUS=1 sandboxes, \d+ leases, 0 commands, 1 clients")
        d.stop()
        m.wait("STOPPING=1")
        assert not [x for x in m.seen if "ERRNO" in x]


@pytest.mark.parametrize("bad,code,said", [({"daemon": {"history": "24h"}, "pool": {"max_connections": "0"}}, 78, None),
                                           ({}, 75, r"STATUS=not started.*another daemon.*\nERRNO=16")])
def test_a_start_that_fails_says_why(cloud, daemon, folder, bad, code, said):
    """A wrong configuration ends before there is anything to tell; another daemon on the socket is told with ERRNO=."""
    m = Manager(folder)
    with contextlib.closing(m):
        d = m.start(cloud, conf=bad, args=["--socket", daemon.socket])
        d.stop(code=code, sig=0)
        if said:
            m.wait(said)
        assert "READY=1" not in m.seen
        d.close()


def test_the_watchdog_is_fed_by_the_loop(cloud, folder):
    """WATCHDOG=1 comes twice in the time that the manager waits, and no more once the process does not run."""
    m = Manager(folder)
    with contextlib.closing(m), contextlib.closing(m.start(cloud, env={"WATCHDOG_USEC": "200000"})) as d:
        m.wait("READY=1")
        for _ in range(3):
            m.wait("WATCHDOG=1", timeout=5)
        os.kill(d.pid, signal.SIGSTOP)
        try:
            with pytest.raises((socket.timeout, BlockingIOError)):
                while True:
                    m.next(timeout=0.5)
        finally:
            os.kill(d.pid, signal.SIGCONT)
        m.wait("WATCHDOG=1", timeout=5)


@pytest.mark.parametrize("order", [["api", "metrics"], ["metrics", "api"], ["metrics", "stranger", "api"]])
def test_sockets_are_told_apart_by_name(cloud, folder, order):
    """In any order; they are served as they are, and stay the manager's: file, mode and owner are left alone."""
    paths = {n: os.path.join(folder, n) for n in order}
    m = Manager(folder, **{n: listening(paths[n]) for n in order})
    with contextlib.closing(m), contextlib.closing(m.start(cloud)) as d:
        before = {n: os.stat(p)[:6] for n, p in paths.items()}
        m.wait("READY=1")
        with Api(paths["api"]) as api:
            assert api.call("SandboxService.Create").id
        assert b"# EOF" in get_metrics(paths["metrics"])
        assert not os.path.exists(d.socket)
        assert ('passed_descriptor_unknown name="stranger" action=closed' in d.log()) == ("stranger" in order)
        assert 'socket="%s" ' % paths["api"] in d.log()
        d.stop()
        assert {n: os.stat(p)[:6] for n, p in paths.items()} == before
        assert os.listdir(folder).count("api.lock") == 0
        c = socket.socket(socket.AF_UNIX)
        c.connect(paths["api"])         # waits in the manager's backlog for the successor
        c.close()


def get_metrics(path):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    s.connect(path)
    s.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    said = b""
    while True:
        more = s.recv(65536)
        if not more:
            return said
        said += more


def test_a_removed_file_of_a_passed_socket_is_not_bound_again(cloud, folder):
    path = os.path.join(folder, "api")
    m = Manager(folder, api=listening(path))
    with contextlib.closing(m), contextlib.closing(m.start(cloud)) as d:
        m.wait("READY=1")
        with Api(path) as api:
            api.call("DaemonService.Status")
            m.wait(r"STATUS=.*1 clients")
            os.unlink(path)
        m.wait(r"STATUS=.*0 clients")   # of the pass in which it looks at the file of a socket of its own
        assert not os.path.exists(path) and d.running() and "socket_removed" not in d.log()


@pytest.mark.parametrize("names,code,said", [
    (["api", "api"], 78, "several sockets named api"), (["api"], 78, "LISTEN_FDNAMES=api"),
    (["api:more", "x"], 78, "LISTEN_FDNAMES=api:more:x")])
def test_descriptors_that_do_not_fit(cloud, folder, names, code, said):
    m = Manager(folder, a=listening(os.path.join(folder, "a")), b=listening(os.path.join(folder, "b")))
    with contextlib.closing(m):
        d = m.start(cloud, names=names)
        d.stop(code=code, sig=0)
        assert said in d.log()
        m.wait(r"STATUS=not started.*\nERRNO=22")
        d.close()


def tcp(address):
    s = socket.socket(socket.AF_INET)
    s.bind((address, 0))
    s.listen(64)
    return s


def test_passed_sockets_of_the_gateway(cloud, folder):
    """Of TCP and of Unix, by one name: they are served, programs are told of them, and [gateway] listen is not."""
    first, path = tcp("127.0.0.1"), os.path.join(folder, "gateway")
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(path)
    unix.listen(64)
    m = Manager(folder, a=first, b=unix)
    conf = {"gateway": {"listen": "localhost:1"}}
    with contextlib.closing(m), contextlib.closing(m.start(cloud, names=["gateway", "gateway"], conf=conf)) as d:
        m.wait("READY=1")
        url = "http://localhost:%d" % first.getsockname()[1]
        with Api(d.socket) as api:
            said = api.call("DaemonService.Status").gateway
            assert (said.url, said.socket) == (url, path)
        assert "listen and socket are not used" in d.log()
        for args in ((url,), ("--unix-socket", path, "http://x")):
            r = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--noproxy", "*", *args[:-1], args[-1] + "/v2/sandboxes"],
                               capture_output=True, text=True, timeout=20, check=False)
            assert r.stdout == "401", (args, r)
        d.stop()
    assert os.path.exists(path)


def test_a_passed_socket_that_others_reach(cloud, folder):
    """What [gateway] listen must not be without allow_remote and TLS, a passed one must not be either."""
    for conf, said in (({}, "set [gateway] allow_remote = yes"), ({"gateway": {"allow_remote": "yes"}}, "set [gateway] tls_cert and tls_key")):
        m = Manager(folder, gateway=tcp("0.0.0.0"))
        with contextlib.closing(m), contextlib.closing(m.start(cloud, conf=conf)) as d:
            assert d.proc.wait(20) == 78 and said in d.log()
        os.unlink(m.path)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a network namespace")
@pytest.mark.parametrize("value", [128, 4096])
def test_a_small_somaxconn(cloud, folder, value):
    """It cuts the queue in which callers of a restart wait: said at the start."""
    wrap = ["unshare", "-n", "sh", "-c", 'echo %d > /proc/sys/net/core/somaxconn; exec "$@"' % value, "sh"]
    d = harness.Daemon(cloud, folder=folder, wrap=wrap, wait=False)
    with contextlib.closing(d):
        d.wait_connects()
        d.wait_log("serving|ready|somaxconn" if value < 4096 else "serving|ready")
        assert ("sysctl net.core.somaxconn=4096" in d.log()) == (value < 4096)
        d.stop()


def test_a_passed_socket_of_another_kind(cloud, folder):
    m = Manager(folder, api=socket.socket(socket.AF_INET))
    with contextlib.closing(m):
        d = m.start(cloud)
        d.stop(code=78, sig=0)
        assert "the socket named api that was passed is no listening Unix stream socket" in d.log()
        d.close()


def test_folders_of_the_manager(cloud, folder):
    """STATE_DIRECTORY= and CONFIGURATION_DIRECTORY= name the places where the command line does not."""
    os.mkdir(os.path.join(folder, "state"), 0o700)
    m = Manager(folder)
    with contextlib.closing(m):
        d = harness.Daemon(cloud)
        d.stop()
        os.rename(d.conf_path, os.path.join(folder, "agentboxd.conf"))
        env = {k: v for k, v in os.environ.items() if not k.startswith(("E2B_", "AGENTBOX"))}
        env.update({"NOTIFY_SOCKET": m.path, "STATE_DIRECTORY": folder + "/state:/other", "CONFIGURATION_DIRECTORY": folder})
        d2 = harness.Program("agentboxd", [harness.AGENTBOXD, "--system", "--socket", folder + "/s"], env=env)
        m.wait("READY=1")
        with Api(folder + "/s") as api:
            assert api.call("SandboxService.Create").id and cloud.ledger.count("create") == 1
        assert os.path.exists(folder + "/state/agentboxd.db")
        d2.stop()
        d2.close()
        d.close()


def test_without_a_key_it_starts(cloud, folder):
    """KEY_MISSING says what to do; the key is taken up when its file is there, without a restart."""
    key = os.path.join(folder, "key")
    m = Manager(folder)
    with contextlib.closing(m), contextlib.closing(m.start(cloud, conf={"account default": {"api_key_file": key}})) as d:
        m.wait("READY=1")
        m.wait("STATUS=.*; account default: no API key yet")
        assert ' key_missing account=default file="%s" ' % key in d.log()
        with Api(d.socket) as api:
            with pytest.raises(ApiError) as e:
                api.call("SandboxService.Create")
            assert e.value.reason == "KEY_MISSING" and "write it into the file that api_key_file names" in e.value.text
            assert stat.S_IMODE(os.stat(folder).st_mode) == 0o755
            with open(key + ".new", "w", encoding="ascii") as f:
                os.fchmod(f.fileno(), 0o600)
                f.write(cloud.key + "\n")
            os.rename(key + ".new", key)
            assert api.call("SandboxService.Create").id


def test_a_credential_may_have_any_mode(cloud, folder):
    """The folder is closed to others by the manager; the same file outside of it is refused."""
    os.mkdir(folder + "/credentials", 0o700)
    for path in (folder + "/credentials/key", folder + "/key"):
        with open(path, "w", encoding="ascii") as f:
            f.write(cloud.key + "\n")
        os.chmod(path, 0o444)
    env = {"CREDENTIALS_DIRECTORY": folder + "/credentials"}
    for conf, works in (({"api_key_file": None, "api_key_credential": "key"}, True),
                        ({"api_key_file": folder + "/credentials/key"}, True), ({"api_key_file": folder + "/key"}, False)):
        d = harness.Daemon(cloud, conf={"account default": conf}, env=env, wait=works)
        if works:
            with Api(d.socket) as api:
                assert api.call("SandboxService.Create").id
        else:
            d.stop(code=78, sig=0)
            assert "others can read it; chmod 600" in d.log()
        d.close()


# -- a reload

def reload(m, d):
    """SIGHUP, and what the log says of it then."""
    n = len(d.log())
    os.kill(d.pid, signal.SIGHUP)
    m.wait(r"RELOADING=1\nMONOTONIC_USEC=\d+")
    m.wait("READY=1")
    return d.log()[n:]


def ctl_reload(d, *args, uid=None):
    argv = [harness.AGENTBOXCTL, "-s", d.socket, *args, "reload"]
    return subprocess.run(argv if uid is None else harness.as_user(uid, argv), capture_output=True, text=True, timeout=30, check=False)


def line_of(d, text):
    with open(d.conf_path, encoding="utf-8") as f:
        return [i for i, t in enumerate(f, 1) if t.startswith(text)][0]


def rewrite(d, *pairs):
    with open(d.conf_path, encoding="utf-8") as f:
        text = f.read()
    for a, b in pairs:
        assert a in text
        text = text.replace(a, b)
    with open(d.conf_path, "w", encoding="utf-8") as f:
        f.write(text)


def test_a_reload(cloud, folder):
    """What is reloadable is taken up, with no connection closed; what is not is named with its line; the command line still wins."""
    m = Manager(folder)
    conf = {"daemon": {"log_level": "info", "drain_timeout": "20s", "history": "24h"}, "uid 5": {"max_streams": "7"}}
    with contextlib.closing(m), contextlib.closing(m.start(cloud, conf=conf, args=["--log-level", "warn"])) as d:
        m.wait("READY=1")
        with Api(d.socket) as api:
            watch = api.stream("SandboxService.Watch", initial=True)
            next(watch)
            rewrite(d, ("drain_timeout = 20s", "drain_timeout = 3s"), ("log_level = info", "log_level = debug"),
                    ("history = 24h", "history = 48h"), ("[uid 5]\nmax_streams = 7\n", "[uid 6]\nmax_streams = 8\n"))
            said = reload(m, d)
            assert not re.search(r" (info|debug) ", said)       # --log-level warn
            line = [i for i, t in enumerate(open(d.conf_path, encoding="utf-8"), 1) if t.startswith("history")][0]
            assert 'reload_needs_restart key="%s:%d: [daemon] history"' % (d.conf_path, line) in said
            assert {(v.section, *v.value) for v in api.call("DaemonService.Config").values if v.key == "max_streams"} >= {("uid 6", "8")}
            api.call("SandboxService.Create")
            assert next(watch)
            values = {v.key: list(v.value) for v in api.call("DaemonService.Config").values if v.section == "daemon"}
            assert [values[k] for k in ("drain_timeout", "history", "log_level")] == [["3s"], ["24h"], ["warn"]]


# Section and key, what it is, what it becomes.
TWELVE = [("daemon log_level", "info", "debug"), ("daemon drain_timeout", "20s", "3s"), ("daemon unclaimed_grace", "100s", "90s"),
          ("daemon restart_grace", "20s", "10s"), ("daemon metrics_per_uid", "no", "yes"), ("policy on_release", "leave", "kill"),
          ("policy release_grace", "30s", "20s"), ("policy idle_timeout", "50m", "40m"), ("policy on_cap", "warn", "pause"),
          ("uid 4242 max_sandboxes", "5", "7"), ("access deny", "4343", "4242"), ("policy resume_on_use", "no", "yes")]


@contextlib.contextmanager
def follower(d, uid):
    """Another user who has a sandbox and follows what happens to it; None without root."""
    if os.geteuid():
        yield None
        return
    os.chmod(d.socket, 0o666)
    made = harness.as_user(uid, [harness.AGENTBOXCTL, "-s", d.socket])
    subprocess.run(made + ["create"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, timeout=30)
    with subprocess.Popen(made + ["events", "--initial"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as p:
        try:
            assert p.stdout.readline()
            yield p
        finally:
            p.kill()


def test_twelve_changes_at_once(cloud, folder):
    """All are taken up, or, where one line of them is wrong, none, and the line is named; what streams and may go on streams on, and what
    may not any more ends."""
    conf = {}
    for name, was, _ in TWELVE:
        section, key = name.rsplit(" ", 1)
        conf.setdefault(section, {})[key] = was
    lines = [tuple("%s = %s\n" % (name.split()[-1], value) for value in change) for name, *change in TWELVE]
    m = Manager(folder)
    with contextlib.closing(m), contextlib.closing(m.start(cloud, conf=conf)) as d:
        m.wait("READY=1")
        with Api(d.socket) as api, follower(d, 4242) as other_user:
            def values():
                got = {"%s %s" % (v.section, v.key): list(v.value) for v in api.call("DaemonService.Config").values}
                return [got[name] for name, _, _ in TWELVE]

            box = api.call("SandboxService.Create").id
            watch = api.stream("SandboxService.Watch", initial=True)
            next(watch)
            run = api.stream("CommandService.Run", sandbox=box, argv={"args": ["/bin/cat"]}, stdin=True)
            begun = next(run)
            before = values()
            rewrite(d, *lines[:-1], (lines[-1][0], "resume_on_use = perhaps\n"))
            said = reload(m, d)
            assert "%s:%d: " % (d.conf_path, line_of(d, "resume_on_use")) in said and "reload_failed" in said
            assert values() == before and (other_user is None or other_user.poll() is None)
            rewrite(d, ("resume_on_use = perhaps\n", lines[-1][1]))
            assert "reloaded taken=12 need_restart=0" in reload(m, d)
            assert all(a != b for a, b in zip(values(), before)) and values()[0] == ["debug"] and values()[1] == ["3s"]
            other = api.call("SandboxService.Create").id
            assert any(other in str(e) for e in (next(watch) for _ in range(4)))
            if other_user:
                assert "UID_DENIED" in other_user.communicate(timeout=20)[1] and other_user.returncode
            api.call("CommandService.Signal", command={"command_id": begun.started.command_id}, signal=15)
            assert list(run)[-1].exited.signal == "TERM"


def test_a_reload_that_changes_the_log(cloud, folder):
    m = Manager(folder)
    with contextlib.closing(m), contextlib.closing(m.start(cloud, conf={"daemon": {"log_level": "info"}})) as d:
        m.wait("READY=1")
        rewrite(d, ("log_level = info", "log_level = debug"))
        assert "reloaded taken=1 need_restart=0" in reload(m, d)
        with Api(d.socket) as api:
            api.call("DaemonService.Status")
        assert " debug " in d.log()
        rewrite(d, ("log_level = debug\n", ""))                 # the default again
        reload(m, d)
        n = len(d.log())
        with Api(d.socket) as api:
            api.call("DaemonService.Status")
        assert " debug " not in d.log()[n:]


@pytest.mark.parametrize("bad,said", [("drain_timeout = soon", "drain_timeout"), ("nonsense = 1", "no key nonsense")])
def test_one_wrong_line_changes_nothing(cloud, folder, bad, said):
    m = Manager(folder)
    conf = {"daemon": {"log_level": "info", "drain_timeout": "20s"}}
    with contextlib.closing(m), contextlib.closing(m.start(cloud, conf=conf)) as d:
        m.wait("READY=1")
        rewrite(d, ("log_level = info", "log_level = debug"), ("drain_timeout = 20s", bad))
        log = reload(m, d)
        assert re.search(r"reload_problem text=.*agentboxd.conf:\d+: .*%s" % said, log), log
        assert "reload_failed" in log and "reload_taken" not in log
        os.rename(d.conf_path, d.conf_path + ".away")
        assert "No such file" in reload(m, d)
        os.rename(d.conf_path + ".away", d.conf_path)
        rewrite(d, (bad, "drain_timeout = 20s"))
        assert "reloaded taken=1 need_restart=0" in reload(m, d)
        for _ in range(20):
            os.kill(d.pid, signal.SIGHUP)
        d.stop()


def test_a_reload_that_answers(cloud, folder):
    """The call waits for the end: the manager has READY=1, and what was taken is in force. `file_changed` is set while a key waits for a
    restart, and no longer."""
    m = Manager(folder)
    conf = {"daemon": {"log_level": "info", "drain_timeout": "20s", "history": "24h"}}
    with contextlib.closing(m), contextlib.closing(m.start(cloud, conf=conf)) as d, Api(d.socket) as api:
        m.wait("READY=1")
        r = api.call("DaemonService.Reload")
        assert (r.file, list(r.problems), list(r.taken), list(r.need_restart)) == (d.conf_path, [], [], [])
        m.wait(r"RELOADING=1\nMONOTONIC_USEC=\d+")
        m.wait("READY=1")
        rewrite(d, ("drain_timeout = 20s", "drain_timeout = 3s"), ("history = 24h", "history = 48h"), ("log_level = info\n", ""))
        assert api.call("DaemonService.Config").file_changed
        r = api.call("DaemonService.Reload")
        assert [(v.section, v.key, v.line) for v in r.taken] == [("daemon", "drain_timeout", line_of(d, "drain_timeout"))]
        assert [(v.section, v.key, v.line) for v in r.need_restart] == [("daemon", "history", line_of(d, "history"))]
        c = api.call("DaemonService.Config", section="daemon")
        assert c.file_changed and {v.key: list(v.value) for v in c.values}["drain_timeout"] == ["3s"]
        assert ctl_reload(d).stdout == "needs a restart: [daemon] history (%s:%d)\n" % (d.conf_path, line_of(d, "history"))
        rewrite(d, ("history = 48h", "history = 24h"), ("drain_timeout = 3s\n", ""))
        p = ctl_reload(d)
        assert (p.returncode, p.stdout) == (0, "taken up: [daemon] drain_timeout (no longer in %s)\n" % d.conf_path)
        assert not api.call("DaemonService.Config").file_changed
        assert ctl_reload(d).stdout == "nothing is different in %s\n" % d.conf_path


def test_a_reload_that_answers_with_every_problem(cloud, folder):
    """Each with its line, and exit 1; nothing changed. A file that is away is one, too."""
    m = Manager(folder)
    conf = {"daemon": {"log_level": "info", "drain_timeout": "20s"}}
    with contextlib.closing(m), contextlib.closing(m.start(cloud, conf=conf)) as d, Api(d.socket) as api:
        m.wait("READY=1")
        rewrite(d, ("log_level = info", "log_level = loud\nnonsense = 1"), ("drain_timeout = 20s", "drain_timeout = 7s"))
        said = ["%s:%d: [daemon] log_level: \"loud\" is not one of error, warn, info, debug" % (d.conf_path, line_of(d, "log_level")),
                "%s:%d: there is no key nonsense in [daemon]" % (d.conf_path, line_of(d, "nonsense"))]
        r = api.call("DaemonService.Reload")
        assert (list(r.problems), list(r.taken), list(r.need_restart)) == (said, [], [])
        p = ctl_reload(d)
        assert p.returncode == 1 and not p.stdout
        assert [t for t in said if t not in p.stderr] == [] and "nothing was changed" in p.stderr
        p = ctl_reload(d, "--json")
        assert p.returncode == 1 and json.loads(p.stdout)["problems"] == said
        values = {v.key: list(v.value) for v in api.call("DaemonService.Config", section="daemon").values}
        assert values["drain_timeout"] == ["20s"]
        os.rename(d.conf_path, d.conf_path + ".away")
        assert list(api.call("DaemonService.Reload").problems) == [d.conf_path + ": No such file or directory"]


def test_a_reload_of_conf_d(cloud, folder):
    """Files beside the configuration: a reload takes them up, names file and line of what is wrong in one, and forgets one that is gone."""
    m = Manager(folder)
    conf = {"daemon": {"drain_timeout": "20s"}}
    with contextlib.closing(m), contextlib.closing(m.start(cloud, conf=conf)) as d, Api(d.socket) as api:
        m.wait("READY=1")
        extra = os.path.join(os.path.dirname(d.conf_path), "conf.d", "10-times.conf")

        def drain():
            return [(list(v.value), v.file, v.line) for v in api.call("DaemonService.Config").values if v.key == "drain_timeout"]

        assert drain() == [(["20s"], d.conf_path, line_of(d, "drain_timeout"))]
        os.mkdir(os.path.dirname(extra))
        with open(extra, "w", encoding="ascii") as f:
            f.write("[daemon]\ndrain_timeout = 3s\n")
        assert api.call("DaemonService.Config").file_changed
        assert ctl_reload(d).stdout == "taken up: [daemon] drain_timeout (%s:2)\n" % extra
        assert drain() == [(["3s"], extra, 2)] and not api.call("DaemonService.Config").file_changed
        with open(extra, "a", encoding="ascii") as f:
            f.write("nonsense = 1\n")
        assert list(api.call("DaemonService.Reload").problems) == ["%s:3: there is no key nonsense in [daemon]" % extra]
        os.chmod(extra, 0o666)
        assert "others may change it" in api.call("DaemonService.Reload").problems[-1]
        os.unlink(extra)
        assert ctl_reload(d).stdout == "taken up: [daemon] drain_timeout (%s:%d)\n" % (d.conf_path, line_of(d, "drain_timeout"))
        assert drain()[0][0] == ["20s"]


def test_reloads_at_once(cloud, folder):
    """Many calls and signals together: each call has an answer that knows what was written before it."""
    m = Manager(folder)
    with contextlib.closing(m), contextlib.closing(m.start(cloud, conf={"daemon": {"drain_timeout": "20s"}})) as d, \
            Api(d.socket) as api, concurrent.futures.ThreadPoolExecutor(16) as pool:
        m.wait("READY=1")
        rewrite(d, ("drain_timeout = 20s", "drain_timeout = 9s"))
        def one(_):
            r = api.call("DaemonService.Reload")
            values = api.call("DaemonService.Config", section="daemon").values
            return list(r.problems), list(r.need_restart), [list(v.value) for v in values if v.key == "drain_timeout"]

        calls = [pool.submit(one, i) for i in range(64)]
        for _ in range(20):
            os.kill(d.pid, signal.SIGHUP)
        assert all(c.result(timeout=30) == ([], [], [["9s"]]) for c in calls)
        rewrite(d, ("drain_timeout = 9s", "drain_timeout = soon"))
        assert all(r.problems for r in pool.map(lambda _: api.call("DaemonService.Reload"), range(64)))


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_only_admins_reload(cloud, folder):
    m = Manager(folder)
    with contextlib.closing(m), contextlib.closing(m.start(cloud, args=["--system"])) as d:
        m.wait("READY=1")
        p = ctl_reload(d, uid=12345)
        assert p.returncode == 1 and "only an administrator may reload the configuration" in p.stderr
        assert "reloaded" not in d.log()
        assert ctl_reload(d).returncode == 0


def test_graces_are_taken_up(cloud, folder):
    """A sandbox whose creator went away is released by the grace of the reload."""
    m = Manager(folder)
    conf = {"daemon": {"unclaimed_grace": "1h", "restart_grace": "1s"}, "policy": {"on_release": "kill", "release_grace": "0s"}}
    with contextlib.closing(m), contextlib.closing(m.start(cloud, conf=conf)) as d, Api(d.socket) as api:
        m.wait("READY=1")
        gate = cloud.fault("create", hold=True).hold
        p = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "create"], stdout=subprocess.DEVNULL)
        gate.wait()
        p.kill()
        p.wait()
        gate.release()
        harness.until(lambda: api.call("SandboxService.List").sandboxes, 10, "the sandbox")
        rewrite(d, ("unclaimed_grace = 1h", "unclaimed_grace = 1s"), ("restart_grace = 1s", "restart_grace = 2s"))
        assert [v.key for v in api.call("DaemonService.Reload").taken] == ["unclaimed_grace", "restart_grace"]
        cloud.ledger.wait(lambda: cloud.ledger.count("delete"), 15, "the DELETE")


def test_policies_are_taken_up(cloud, folder):
    """For sandboxes that are made from then on: the general one, a template's and a uid's, which come and go. One that was made before
    keeps its own."""
    m = Manager(folder)
    uid = "policy uid:%d" % os.getuid()
    conf = {"policy": {"max_age": "1h"}, "policy template:away": {"on_gone": "recreate"}}
    with contextlib.closing(m), contextlib.closing(m.start(cloud, conf=conf)) as d, Api(d.socket) as api:
        m.wait("READY=1")

        def ages(*ids):
            return [api.call("SandboxService.Get", sandbox=i).policy.max_age.seconds for i in ids]

        def taken():
            r = api.call("DaemonService.Reload")
            assert not r.problems and not r.need_restart
            return [(v.section, v.key) for v in r.taken]

        def sections():
            return {v.section for v in api.call("DaemonService.Config").values if v.section.startswith("policy")}

        before = api.call("SandboxService.Create").id
        rewrite(d, ("max_age = 1h", "max_age = 2h"),
                ("[policy template:away]\non_gone = recreate\n", "[%s]\non_max_age = pause\n[policy template:old-watch]\nmax_age = 3h\n" % uid))
        assert set(taken()) == {("policy", "max_age"), ("policy template:away", "on_gone"), (uid, "on_max_age"),
                                ("policy template:old-watch", "max_age")}
        assert sections() == {"policy", uid, "policy template:old-watch"}
        after, based = api.call("SandboxService.Create").id, api.call("SandboxService.Create", template="old-watch").id
        assert ages(before, after, based) == [3600, 7200, 10800]
        assert [api.call("SandboxService.Get", sandbox=i).policy.on_max_age for i in (before, after)] == [3, 2]     # KILL, PAUSE
        rewrite(d, ("max_age = 2h\n", ""), ("[%s]\non_max_age = pause\n" % uid, ""))
        assert set(taken()) == {("policy", "max_age"), (uid, "on_max_age")}
        assert ages(api.call("SandboxService.Create").id) == [0] and sections() == {"policy", "policy template:old-watch"}


def test_limits_of_uids_are_taken_up(cloud, folder):
    """What a uid has counts for a limit that came later; a raised one lets it go on, a removed one is none. In another
    account it counts as well."""
    m = Manager(folder)
    uid = "uid %d" % os.getuid()
    conf = {"account other": {"api_url": cloud.url, "sandbox_url": cloud.url, "ca_file": cloud.ca, "proxy": "none",
                              "api_key_command": "echo " + cloud.key},
            "uid 4000000": {"max_sandboxes": "9"}}
    with contextlib.closing(m), contextlib.closing(m.start(cloud, conf=conf)) as d, Api(d.socket) as api:
        m.wait("READY=1")
        assert [api.call("SandboxService.Create").account for _ in range(2)] == ["default"] * 2

        def refused():
            with pytest.raises(ApiError) as e:
                api.call("SandboxService.Create")
            assert e.value.reason == "QUOTA_UID"
            return e.value.text

        def step(a, b):
            rewrite(d, (a, b))
            r = api.call("DaemonService.Reload")
            assert not r.problems
            return {(v.section, v.key) for v in r.taken}, {(v.section, v.key) for v in r.need_restart}

        assert step("[uid 4000000]\nmax_sandboxes = 9\n", "[%s]\nmax_sandboxes = 2\naccount = other\n" % uid) == \
            ({("uid 4000000", "max_sandboxes"), (uid, "max_sandboxes"), (uid, "account")}, set())
        assert "limited to 2 sandboxes" in refused()
        step("max_sandboxes = 2\n", "max_sandboxes = 3\ncreates_per_minute = 1\n")
        assert api.call("SandboxService.Create").account == "other"
        assert "limited to 3 sandboxes" in refused()
        step("max_sandboxes = 3\n", "max_sandboxes = 30\n")
        assert "may create 1 sandboxes a minute" in refused()
        step("max_sandboxes = 30\ncreates_per_minute = 1\naccount = other\n", "")
        assert api.call("SandboxService.Create").account == "default"


def test_a_file_that_others_can_write_is_not_taken(cloud, folder):
    """A daemon of many users asks as much of the file as at the start, and of what it names."""
    m = Manager(folder)
    with contextlib.closing(m), contextlib.closing(m.start(cloud, conf={"daemon": {"drain_timeout": "20s"}}, args=["--system"])) as d, \
            Api(d.socket) as api:
        m.wait("READY=1")
        rewrite(d, ("drain_timeout = 20s", "drain_timeout = 3s"))
        os.chmod(d.conf_path, 0o666)
        problems = list(api.call("DaemonService.Reload").problems)
        assert len(problems) == 1 and problems[0].startswith(d.conf_path + ": not read by a daemon that serves many users: ")
        os.chmod(d.conf_path, 0o644)
        ca = os.path.join(folder, "ca.pem")
        shutil.copy(cloud.ca, ca)
        os.chmod(ca, 0o666)
        rewrite(d, ("ca_file = " + cloud.ca, "ca_file = " + ca))
        problems = list(api.call("DaemonService.Reload").problems)
        assert len(problems) == 1 and problems[0].startswith("%s:%d: [account default] ca_file: " % (d.conf_path, line_of(d, "ca_file")))
        os.chmod(ca, 0o644)
        assert [v.key for v in api.call("DaemonService.Reload").taken] == ["drain_timeout", "ca_file"]


def test_another_key_file_is_taken_up(cloud, folder):
    """The next call sends the key of the file that the configuration names now; one that is not there yet leaves the key before it. No file
    any more needs a restart, and so says the answer; one that others can read is refused."""
    m = Manager(folder)
    key, path = "e2b_" + "0f" * 20, os.path.join(folder, "key2")
    cloud.keys[key] = cloud.team
    with contextlib.closing(m), contextlib.closing(m.start(cloud)) as d, Api(d.socket) as api:
        m.wait("READY=1")
        old = os.path.join(d.home, "key")

        def used():
            api.call("SandboxService.Create")
            return cloud.ledger.of("create")[-1].header("x-api-key")

        assert used() == cloud.key
        rewrite(d, ("api_key_file = " + old, "api_key_file = " + path))
        assert [v.key for v in api.call("DaemonService.Reload").taken] == ["api_key_file"]
        assert used() == cloud.key
        with open(path, "w", encoding="ascii") as f:
            os.fchmod(f.fileno(), 0o600)
            f.write(key + "\n")
        assert used() == key
        rewrite(d, ("api_key_file = %s\n" % path, ""))
        r = api.call("DaemonService.Reload")
        assert ([v.key for v in r.taken], [v.key for v in r.need_restart]) == ([], ["api_key_file"])
        assert used() == key
        rewrite(d, ("[account default]\n", "[account default]\napi_key_file = %s\n" % old))
        os.chmod(old, 0o644)
        assert "others can read it" in api.call("DaemonService.Reload").problems[0]
        os.chmod(old, 0o600)
        assert [v.key for v in api.call("DaemonService.Reload").taken] == ["api_key_file"]
        assert used() == cloud.key
