# SPDX-License-Identifier: MIT
"""systemd as PID 1 in a container over this machine's own root: what the build installs, in a place of its own.

The container has a root file system of its own (an overlay: nothing that it writes stays), its own processes, cgroups and journal, and this
machine's network, so that a scripted cloud of the test is at hand. Tests drive it from outside, by nsenter.
"""
import contextlib
import functools
import os
import shutil
import subprocess

import harness
from harness import until

CGROUPS = ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")

# A target of our own: none of the services that the machine has enabled.
TARGET = """[Unit]
Requires=basic.target dbus.service
After=basic.target dbus.service
AllowIsolate=yes
"""

BOOT = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=0755 none "$D/over"
mkdir "$D/over/u" "$D/over/w" "$D/over/m"
cp -a "$D/upper/." "$D/over/u/"
mount -t overlay overlay -o lowerdir=/,upperdir="$D/over/u",workdir="$D/over/w" "$D/over/m"
for c in $CGROUP; do echo $$ > "$c/cgroup.procs"; done
# Of the machine's own services none is to be started.
for d in multi-user sysinit sockets timers basic graphical network-online; do rm -rf "$D/over/m/etc/systemd/system/$d.target.wants"; done
: > "$D/over/m/etc/machine-id"
rm -f "$D/over/m/usr/sbin/policy-rc.d"     # packages start their services in there, whatever they may do on this machine
export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
exec systemd-nspawn -q -D "$D/over/m" -b --register=no --keep-unit --console=read-only --resolv-conf=off --timezone=off \
    --bind="$D/shared:$D/shared" --bind-ro="$ROOT:$ROOT" systemd.unit=agentbox-test.target </dev/null
"""


TRY = """
set -e
mount --make-rprivate /
mount -t tmpfs none "$D"
mkdir "$D/u" "$D/w" "$D/m"
mount -t overlay overlay -o lowerdir=/,upperdir="$D/u",workdir="$D/w" "$D/m"
"""


@functools.lru_cache(maxsize=None)
def lacks():
    """Why there can be no such container here; None if there can."""
    if os.geteuid() != 0:
        return "needs root"
    for program in ("systemd-nspawn", "systemd-analyze", "nsenter", "unshare"):
        if not shutil.which(program):
            return "%s is not installed" % program
    if not os.path.exists("/lib/systemd/systemd"):
        return "systemd is not installed"
    for c in cgroup_roots():
        if not os.access(c, os.W_OK):
            return "%s cannot be written" % c
    r = subprocess.run(["unshare", "-m", "sh", "-c", TRY], env=dict(os.environ, D=harness.temp_dir("abns-")), capture_output=True,
                       text=True, check=False)
    return r.stderr.strip() or "no overlay over the root" if r.returncode else None


def cgroup_roots():
    return [c for c in CGROUPS if os.path.exists(os.path.join(c, "cgroup.procs"))]


class Container:
    """A booted one. `shared` is a folder that has the same path inside, and so has this clone, also where it is below /tmp, which is
    another there. Without `install` nothing of the build is in it."""

    def __init__(self, files=None, install=True):
        self.dir = harness.temp_dir("abns-")
        self.shared = os.path.join(self.dir, "shared")
        for d in ("over", "upper", "shared"):
            os.mkdir(os.path.join(self.dir, d))
            os.chmod(os.path.join(self.dir, d), 0o755)
        upper = os.path.join(self.dir, "upper")
        if install:
            subprocess.run(["meson", "install", "-C", harness.BUILD, "--no-rebuild", "--quiet", "--destdir", upper], check=True,
                           stdout=subprocess.DEVNULL)
        self.library = "/usr/local/lib/x86_64-linux-gnu" if install else ""
        self.put(upper, "/etc/systemd/system/agentbox-test.target", TARGET)
        if harness.ASAN:    # its search for leaks traces the process, which the units' filter of system calls rightly refuses
            self.put(upper, "/etc/systemd/system.conf.d/asan.conf", "[Manager]\nDefaultEnvironment=ASAN_OPTIONS=detect_leaks=0\n")
        for path, text in (files or {}).items():
            self.put(upper, path, text)
        self.cgroups = [os.path.join(c, "agentbox-test-%d" % os.getpid()) for c in cgroup_roots()]
        for c in self.cgroups:
            os.mkdir(c)
        self.console = open(os.path.join(self.dir, "console"), "w+b")      # pylint: disable=consider-using-with
        self.proc = subprocess.Popen(["unshare", "-m", "bash", "-c", BOOT], stdout=self.console, stderr=self.console,
                                     env=dict(os.environ, D=self.dir, CGROUP=" ".join(self.cgroups), ROOT=harness.ROOT))
        self.name = "systemd-nspawn"
        try:
            self.leader = until(self._leader, 30, "the container's init", self)
            until(lambda: self.run("systemctl", "is-active", "dbus.service", check=False).stdout.strip() == "active", 30,
                  "the container's start", self)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def put(upper, path, text):
        path = upper + path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def _leader(self):
        """systemd in it, as the machine counts processes: nspawn's child that is 1 in a namespace."""
        for pid in children(self.proc.pid):
            with contextlib.suppress(OSError), open("/proc/%d/status" % pid, encoding="ascii", errors="replace") as f:
                numbers = [x for x in f.read().splitlines() if x.startswith("NSpid:")][0].split()[1:]
                if len(numbers) > 1 and numbers[-1] == "1" and os.readlink("/proc/%d/exe" % pid).endswith("/systemd"):
                    return pid
        return None

    def tail(self):
        self.console.seek(0)
        return self.console.read().decode("utf-8", "replace")[-4000:]

    def argv(self, *argv, user=None):
        enter = ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-p", "-C", "-r", "-w"]
        return enter + (["runuser", "-u", user, "--"] if user else []) + list(argv)

    def run(self, *argv, user=None, check=True, timeout=60, input=None):
        env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8",
               "SYSTEMD_PAGER": "cat"}
        if self.library:
            env["LD_LIBRARY_PATH"] = self.library
        r = subprocess.run(self.argv(*argv, user=user), capture_output=True, text=True, timeout=timeout, env=env, input=input)
        assert not check or r.returncode == 0, "%s ended with %d:\n%s%s\n%s" % (
            " ".join(argv), r.returncode, r.stdout, r.stderr, self.journal() if check else "")
        return r

    def journal(self, unit="agentboxd.service"):
        return self.run("journalctl", "-q", "-o", "cat", "--no-pager", "-u", unit, check=False).stdout

    def show(self, unit, prop):
        return self.run("systemctl", "show", "-P", prop, unit).stdout.strip()

    def main_pid(self, unit="agentboxd.service"):
        """As the container counts; never 0, which would name a whole group."""
        pid = int(self.show(unit, "MainPID"))
        assert pid > 0, self.journal(unit)
        return pid

    def write(self, path, text, mode=0o644, owner="root"):
        self.run("sh", "-c", 'umask 077; mkdir -p "$(dirname "$1")"; cat > "$1"; chown "$3" "$1"; chmod "$2" "$1"', "sh", path,
                 "%o" % mode, owner, input=text)

    def close(self):
        if getattr(self, "leader", None) and self.proc.poll() is None:
            self.run("systemctl", "--no-block", "exit", "0", check=False)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.proc.wait(20)
        if self.proc.poll() is None:
            for pid in children(self.proc.pid) + [self.proc.pid]:
                with contextlib.suppress(OSError):
                    os.kill(pid, 9)
            self.proc.wait()
        self.console.close()
        for c in self.cgroups:
            for d, _, _ in os.walk(c, topdown=False):
                until(lambda d=d: remove(d), 10, "the end of " + d)
        shutil.rmtree(self.dir, ignore_errors=True)


def remove(folder):
    try:
        os.rmdir(folder)
    except OSError:
        return not os.path.exists(folder)
    return True


def children(pid):
    """All that descend from it, the nearest first."""
    parents, found, todo = {}, [], [pid]
    for p in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open("/proc/%s/stat" % p, encoding="utf-8", errors="replace") as f:
            parents.setdefault(int(f.read().rpartition(")")[2].split()[1]), []).append(int(p))
    while todo:
        more = parents.get(todo.pop(0), [])
        found += more
        todo += more
    return found
