# SPDX-License-Identifier: MIT
"""Starts and stops our programs for tests, and proves that they left nothing behind.

$BUILD_DIR names the build (default: build/). Nothing here sleeps for luck: it waits for what must happen, and a
program that ends meanwhile, or takes too long, fails the test with the end of its log.
"""
import atexit
import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.path.join(ROOT, os.environ.get("BUILD_DIR", "build")))
AGENTBOXD = os.path.join(BUILD, "daemon", "agentboxd")
AGENTBOX_LOCAL = os.path.join(BUILD, "daemon", "local", "agentbox-local")
AGENTBOXCTL = os.path.join(BUILD, "client", "agentboxctl")


def _has_asan(path):
    try:
        with open(path, "rb") as f:
            return b"__asan_init" in f.read()
    except OSError:
        return False


ASAN = _has_asan(AGENTBOXD)     # then bounds of memory and time do not hold: tests that have one are marked `plain`
KEY = "e2b_" + "0123456789abcdef" * 2 + "01234567"
OTHER_KEY = "e2b_" + "f" * 40  # of another team
SANITIZED = re.compile(r"(ERROR: (Address|Leak|Thread)Sanitizer|runtime error:|SUMMARY: \w+Sanitizer).*")


def until(condition, timeout=10.0, what="the condition", program=None):
    """Waits for something outside of this process that sends no event. Returns what the condition returned."""
    end = time.monotonic() + timeout
    while True:
        got = condition()
        if got:
            return got
        if program is not None and program.proc.poll() is not None:
            raise AssertionError("%s ended with %s while waiting for %s:\n%s" % (
                program.name, program.proc.returncode, what, program.tail()))
        if time.monotonic() > end:
            raise AssertionError("%s did not come in %.1f s%s" % (
                what, timeout, ":\n" + program.tail() if program else ""))
        select.select([], [], [], 0.005)


def temp_dir(prefix="ab-"):
    """Short, since a socket's path has room for 107 bytes; readable by other uids of a test. Whoever made it may
    remove it; at the end of this process it is gone in any case."""
    d = tempfile.mkdtemp(prefix=prefix, dir="/tmp")
    os.chmod(d, 0o755)
    atexit.register(shutil.rmtree, d, ignore_errors=True)
    return d


@contextlib.contextmanager
def small_disk(path, size="48m"):
    """A file system of this size, there as long as this lasts; needs root."""
    os.mkdir(path, 0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0700,size=" + size, "none", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)


@contextlib.contextmanager
def memory_group(limit):
    """A control group that may use so many bytes, as its folder; None where this machine lets us have none."""
    v1, v2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
    has_v1 = os.path.exists(os.path.join(v1, "memory.limit_in_bytes"))
    path = os.path.join(v1 if has_v1 else v2, "agentboxd-test-%d" % os.getpid())
    try:
        os.mkdir(path)
    except OSError:
        yield None
        return
    try:
        with open(os.path.join(path, "memory.limit_in_bytes" if has_v1 else "memory.max"), "w", encoding="ascii") as f:
            f.write(str(limit))
    except OSError:     # no such controller here
        os.rmdir(path)
        yield None
        return
    try:
        yield path
    finally:
        os.rmdir(path)


def in_group(path):
    """The beginning of an argv that runs the rest in this control group."""
    return ["sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', path]


def cpu_s(pid):
    """Seconds of a processor that it has used, which a busy machine does not change."""
    with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def before_others(pid, rank=1):
    """Runs before whatever else this machine does, and before those of a lower rank, so that a test of latency is not one of the
    machine. Needs root."""
    with contextlib.suppress(OSError):      # where it may not, it takes its turn
        for tid in os.listdir("/proc/%d/task" % pid):
            os.sched_setscheduler(int(tid), os.SCHED_RR, os.sched_param(rank))


def as_user(uid, argv, gid=None):
    """The argv that runs argv as this uid; needs root."""
    gid = uid if gid is None else gid
    return ["setpriv", "--reuid", str(uid), "--regid", str(gid), "--clear-groups", "--"] + list(argv)


class Program:
    """A running program: its log, its end, its descriptors."""

    def __init__(self, name, argv, env=None, pass_fds=(), folder=None, log=None):
        self.name = name
        self.argv = argv
        self.folder = folder or temp_dir()
        self._own_folder = folder is None
        self.log_path = log or os.path.join(self.folder, name + ".log")
        self.asan = os.path.join(self.folder, "sanitizer." + name)
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("E2B_", "AGENTBOX", "LISTEN_"))}
        environ.update({"ASAN_OPTIONS": "log_path=%s:abort_on_error=0:exitcode=99:detect_leaks=1" % self.asan,
                        "UBSAN_OPTIONS": "log_path=%s:print_stacktrace=1:halt_on_error=1:exitcode=99" % self.asan})
        environ.update(env or {})
        with open(self.log_path, "ab") as log_file:
            self.proc = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log_file, stderr=log_file,
                                         env=environ, pass_fds=pass_fds, start_new_session=True)
        self.pid = self.proc.pid

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def tail(self, n=40):
        return "\n".join(self.log().splitlines()[-n:])

    def wait_log(self, pattern, timeout=10.0):
        return until(lambda: re.search(pattern, self.log()), timeout, "the log line %r" % pattern, self)

    def running(self):
        return self.proc.poll() is None

    def kill9(self):
        """As a crash: nothing is checked but that it is gone."""
        self.proc.kill()
        self.proc.wait()

    def stop(self, timeout=15.0, code=0, sig=signal.SIGTERM):
        """Asks it to end and wants this exit status and no complaint of a sanitizer."""
        if self.proc.poll() is None:
            self.proc.send_signal(sig)
        try:
            got = self.proc.wait(timeout)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
            raise AssertionError("%s did not end in %.0f s after signal %d:\n%s" % (
                self.name, timeout, sig, self.tail()))
        self.check_sanitizer()
        assert code is None or got == code, "%s ended with %s, not %s:\n%s" % (self.name, got, code, self.tail())

    def check_sanitizer(self):
        said = ""
        for f in os.listdir(self.folder):
            if f.startswith(os.path.basename(self.asan) + "."):
                with open(os.path.join(self.folder, f), encoding="utf-8", errors="replace") as r:
                    said += r.read()
        m = SANITIZED.search(self.log())
        assert not said and not m, "%s: a sanitizer complains:\n%s%s" % (
            self.name, said[:4000], self.log()[m.start():m.start() + 4000] if m else "")

    def close(self):
        """End of a test: ends it if it still runs, removes its folder."""
        if self.proc.poll() is None:
            self.stop()
        else:
            self.check_sanitizer()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    # -- what it uses

    def fds(self):
        return len(os.listdir("/proc/%d/fd" % self.pid))

    def status_kb(self, field):
        with open("/proc/%d/status" % self.pid, encoding="ascii", errors="replace") as f:
            return int(re.search(r"^%s:\s+(\d+)" % field, f.read(), re.M).group(1))

    def rss_kb(self):
        return self.status_kb("VmRSS")

    def hwm_kb(self):
        return self.status_kb("VmHWM")

    def threads(self):
        return self.status_kb("Threads")


class LocalCloud(Program):
    """agentbox-local on ports of its own choice, in clear and over TLS."""

    def __init__(self, folder=None, key=KEY, tls=True, uid=None, args=(), name="agentbox-local", wrap=(), tls_port=0):
        self.home = folder or temp_dir("abl-")
        self._own_home = folder is None
        self._capabilities = None
        self.state_dir = os.path.join(self.home, "local")
        os.makedirs(self.state_dir, exist_ok=True)
        self.key, self.other_key = key, OTHER_KEY
        key_file = os.path.join(self.home, "key")
        if not os.path.exists(key_file):
            with open(key_file, "w", encoding="ascii") as f:
                f.write("%s team-a\n%s team-b\n" % (key, OTHER_KEY))
            os.chmod(key_file, 0o600)
        argv = [AGENTBOX_LOCAL, "--listen", "127.0.0.1:0", "--state-dir", self.state_dir, "--api-key-file", key_file]
        self.ca = None
        if tls:
            from fakecloud.certs import Authority
            authority = Authority(os.path.join(self.home, "ca"), "agentbox-local test CA")
            cert, tls_key = authority.issue()
            self.ca = authority.cert
            argv += ["--tls-listen", "127.0.0.1:%d" % tls_port, "--cert", cert, "--key", tls_key]
        ready_r, ready_w = os.pipe()
        argv += ["--ready-fd", str(ready_w)] + list(args)
        if uid is not None:
            for d, _, files in os.walk(self.home):
                os.chown(d, uid, uid)
                for f in files:
                    os.chown(os.path.join(d, f), uid, uid)
            argv = as_user(uid, argv)
        argv = list(wrap) + argv
        try:
            super().__init__(name, argv, pass_fds=(ready_w,), folder=self.home)
        finally:
            os.close(ready_w)
        try:
            told = json.loads(self._read_ready(ready_r))
        except BaseException:
            self.proc.kill()
            self.proc.wait()
            raise
        self.port = int(told["address"].rpartition(":")[2])
        self.plain_url = "http://" + told["address"]
        self.url = "https://" + told["tls_address"] if tls else self.plain_url

    def lacks(self, capability):
        """Why agentbox-local cannot do this (yet, or on this machine); None if it can."""
        if self._capabilities is None:
            out = subprocess.run([AGENTBOX_LOCAL, "--capabilities"], capture_output=True, text=True, timeout=30).stdout
            self._capabilities = {c["name"]: c for c in json.loads(out)["capabilities"]}
        c = self._capabilities.get(capability)
        return None if c and c["available"] else "agentbox-local: %s: %s" % (
            capability, c["text"] if c else "unknown capability")

    def _read_ready(self, fd, timeout=20.0):
        """To the line's end, or to the end of file, which means that it ended."""
        data = b""
        end = time.monotonic() + timeout
        while not data.endswith(b"\n"):
            if not select.select([fd], [], [], max(end - time.monotonic(), 0))[0]:
                raise AssertionError("agentbox-local is not ready after %.0f s:\n%s" % (timeout, self.tail()))
            more = os.read(fd, 4096)
            if not more:
                break
            data += more
        os.close(fd)
        assert data, "agentbox-local ended before it was ready:\n%s" % self.tail()
        return data.decode()

    def close(self):
        super().close()
        if self._own_home:
            shutil.rmtree(self.home, ignore_errors=True)


class Daemon(Program):
    """agentboxd with a configuration, a state folder and a socket of its own.

    `cloud` is anything with url, ca and key (FakeCloud, LocalCloud); None starts it with --local.
    `conf` is {section: {key: value or [values]}}, laid over what the cloud needs.
    """

    def __init__(self, cloud=None, conf=None, folder=None, uid=None, args=(), env=None, wait=True, name="agentboxd", wrap=(),
                 pass_fds=()):
        self.home = folder or temp_dir("abd-")
        self._own_home = folder is None
        self.state_dir = os.path.join(self.home, "state")
        self.socket = os.path.join(self.home, "s")
        self.conf_path = os.path.join(self.home, "agentboxd.conf")
        sections = {}
        if cloud is not None:
            key_file = os.path.join(self.home, "key")
            with open(key_file, "w", encoding="ascii") as f:
                f.write(cloud.key + "\n")
            os.chmod(key_file, 0o600)
            sections["account default"] = {"api_url": cloud.url, "sandbox_url": cloud.url, "api_key_file": key_file,
                                           "proxy": "none"}
            if cloud.ca:
                sections["account default"]["ca_file"] = cloud.ca
        for section, keys in (conf or {}).items():
            sections.setdefault(section, {}).update(keys)
        with open(self.conf_path, "w", encoding="utf-8") as f:
            for section, keys in sections.items():
                f.write("[%s]\n" % section)
                for k, v in keys.items():
                    if v is None:       # not set
                        continue
                    for one in v if isinstance(v, (list, tuple)) else [v]:
                        f.write("%s = %s\n" % (k, one))
        argv = [AGENTBOXD, "--config", self.conf_path, "--state-dir", self.state_dir, "--socket", self.socket]
        if cloud is None:
            argv.append("--local")
        argv += list(args)
        if uid is not None:
            for f in os.listdir(self.home):
                os.chown(os.path.join(self.home, f), uid, uid)
            os.chown(self.home, uid, uid)
            argv = as_user(uid, argv)
        argv = list(wrap) + argv
        super().__init__(name, argv, env=env, folder=self.home, pass_fds=pass_fds)
        if wait:
            self.wait_ready()

    def wait_connects(self, timeout=20.0):
        """Its socket takes connections: it has a name before that."""
        def answers():
            s = socket.socket(socket.AF_UNIX)
            try:
                s.connect(self.socket)
                return True
            except OSError:
                return False
            finally:
                s.close()
        until(answers, timeout, "the socket of agentboxd", self)

    def wait_ready(self, timeout=20.0):
        """… and with --local agentbox-local is there."""
        self.wait_connects(timeout)
        if "--local" in self.argv:
            self.wait_log(r"\blocal_(started|attached) ", timeout)

    def ctl(self, *args, input=None, timeout=60, check=True, text=True, env=None):
        """agentboxctl on this daemon."""
        return ctl(self.socket, *args, input=input, timeout=timeout, check=check, text=text, env=env)

    def close(self):
        if self._own_home and os.path.isdir(os.path.join(self.state_dir, "local")) and self.running():
            self.ctl("local", "stop", check=False)
        super().close()
        if self._own_home:
            shutil.rmtree(self.home, ignore_errors=True)


def ctl(sock, *args, input=None, timeout=60, check=True, text=True, env=None):
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("E2B_", "AGENTBOX"))}
    environ.update({"ASAN_OPTIONS": "exitcode=99", "UBSAN_OPTIONS": "halt_on_error=1:exitcode=99"})
    environ.update(env or {})
    kw = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
    r = subprocess.run([AGENTBOXCTL, "-s", sock] + list(args), capture_output=True, text=text, timeout=timeout,
                       env=environ, **kw)
    err = r.stderr if text else r.stderr.decode("utf-8", "replace")
    assert not SANITIZED.search(err), err
    assert not check or r.returncode == 0, "agentboxctl %s ended with %d: %s" % (" ".join(map(os.fsdecode, args)), r.returncode, err)
    return r


def _stat_of(pid):
    """(parent, start time) of a process that lives, else None; its name may hold anything."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as f:
            fields = f.read().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[1]), fields[19]) if fields[0] not in "ZX" else None


def _words_of(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            return f.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return "?"


class Traces:
    """What programs of ours leave: their processes, their cgroups, mounts and files under their folders. Other
    tests on this machine are not looked at.

    `look` while they run, as often as something new may be there; `gone` when nothing may be left.
    """

    def __init__(self, *folders):
        self.folders = folders
        self.processes = {}       # (pid, start time): words
        self.cgroups = set()      # names, like agentbox-local-0123abcd

    def look(self, *pids):
        parents = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            st = _stat_of(int(pid))
            if st:
                parents.setdefault(st[0], []).append(int(pid))
        todo = list(pids)
        while todo:
            pid = todo.pop()
            todo += parents.get(pid, [])
            st = _stat_of(pid)
            if st:
                self.processes[pid, st[1]] = _words_of(pid)
            try:
                with open("/proc/%d/cgroup" % pid, encoding="ascii", errors="replace") as f:
                    self.cgroups.update(re.findall(r"/(agentbox-local-\w+)", f.read()))
            except OSError:
                pass
        return self

    def look_at_local(self, state_dir):
        """At the agentbox-local that a daemon started; its place is in the endpoint file."""
        with open(os.path.join(state_dir, "local", "endpoint"), encoding="utf-8") as f:
            return self.look(json.load(f)["pid"])

    def left(self, words=None):
        """Lines about what is still there; empty when nothing is. `words` narrows it to matching processes."""
        out = []
        for (pid, start), said in self.processes.items():
            st = _stat_of(pid)
            if st and st[1] == start and (words is None or words in said):
                out.append("process %d %s" % (pid, said))
        if words is not None:
            return out
        for d, subdirs, _ in os.walk("/sys/fs/cgroup"):
            if any("/" + c in d for c in self.cgroups):
                out.append("cgroup " + d)
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            for line in f:
                if any(folder in line for folder in self.folders):
                    out.append("mount " + line.split()[4])
        return out

    def gone(self, timeout=15.0, words=None):
        try:
            until(lambda: not self.left(words), timeout)
        except AssertionError:
            raise AssertionError("left behind: %s" % "; ".join(self.left(words)))
