# SPDX-License-Identifier: MIT
"""The Debian packages, made by packaging/build-deb.sh and installed under systemd as PID 1 (tests/lib/nspawn.py).

With SHOWS_FULL=1 (tests/shows.sh) also what needs a second compilation: two builds are equal, and a tarball of `meson dist` builds
without git.
"""
import glob
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter

import pytest

import harness
import nspawn
from api import Api
from fakecloud import FakeCloud
from harness import until
from y_restart import Load, grpc_client
from y_systemd import CONF, SOCKET, ctl, ids, leases_outlive_restarts, without_pidfs

FULL = os.environ.get("SHOWS_FULL") == "1"
MISSING = [t for t in ("dpkg-buildpackage", "dh", "lintian", "meson") if not shutil.which(t)]
CLIENTS = 32 if FULL else 12
PACKAGES = ("agentboxd", "agentbox-local", "agentboxctl", "libagentbox0", "libagentbox-dev")
LOWER = "0.1.9-1"

pytestmark = [pytest.mark.plain, pytest.mark.timeout(1800),     # the first one waits for the build
              pytest.mark.skipif(harness.ASAN, reason="packages have no sanitizer: tested with the other build"),
              pytest.mark.skipif(bool(MISSING), reason="not installed: " + ", ".join(MISSING)),
              pytest.mark.skipif(nspawn.lacks() is not None, reason="systemd in a container: %s" % nspawn.lacks())]


def build(folder):
    shutil.rmtree(folder, ignore_errors=True)
    env = dict(os.environ, PATH="/usr/lib/ccache:" + os.environ["PATH"])
    r = subprocess.run(["sh", os.path.join(harness.ROOT, "packaging/build-deb.sh"), folder], env=env, capture_output=True, text=True)
    assert r.returncode == 0, (r.stdout + r.stderr)[-3000:]
    assert "warning:" not in r.stderr + r.stdout, [x for x in (r.stderr + r.stdout).splitlines() if "warning:" in x][:5]
    return folder


def deb(folder, name):
    found = glob.glob(os.path.join(folder, name + "_*.deb"))
    assert len(found) == 1, found
    return found[0]


@pytest.fixture(scope="module")
def built():
    """The packages, in a place that is the same for each run, so that ccache knows the files."""
    return build(os.path.join(harness.BUILD, "deb"))


@pytest.fixture(scope="module")
def cloud():
    with FakeCloud() as c:
        yield c


@pytest.fixture(scope="module")
def box(built, cloud):
    """A container in which nothing of ours is installed, and the packages are in the folder `debs`."""
    with open(cloud.ca, encoding="ascii") as f:
        ca = f.read()
    c = nspawn.Container({"/root/ca.pem": ca}, install=False)
    try:
        c.debs = os.path.join(c.shared, "debs")
        os.mkdir(c.debs)
        for p in PACKAGES:
            shutil.copy(deb(built, p), c.debs)
        os.mkdir(os.path.join(c.debs, "lower"))
        for p in PACKAGES:
            lower(deb(built, p), os.path.join(c.debs, "lower", p + ".deb"))
        c.version = re.search(r"_([^_]+)_", os.path.basename(deb(built, "agentboxd"))).group(1)
        yield c
    finally:
        c.close()


def lower(path, to):
    """The same package with a lower version."""
    folder = harness.temp_dir("abdeb-")
    subprocess.run(["dpkg-deb", "-R", path, folder + "/x"], check=True)
    control = folder + "/x/DEBIAN/control"
    with open(control, encoding="utf-8") as f:
        text = f.read()
    version = re.search(r"^Version: (.*)$", text, re.M).group(1)
    with open(control, "w", encoding="utf-8") as f:
        f.write(text.replace(version, LOWER).replace(version.rpartition("-")[0], LOWER.rpartition("-")[0]))
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", folder + "/x", to], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(folder)


def install(box, *folder):
    return box.run("sh", "-c", 'DEBIAN_FRONTEND=noninteractive exec dpkg -i "$@"', "sh",
                   *glob.glob(os.path.join(box.debs, *folder, "*.deb")), timeout=120)


def files(box):
    """Every file and folder that a package could leave, without the records of dpkg and of systemd's log."""
    said = box.run("find", "/etc", "/var", "/usr", "/run", "/lib/systemd", "-xdev", "-not", "-path", "/var/lib/dpkg/*", "-not", "-path", "/var/log/*",
                   "-not", "-path", "/var/cache/*", "-not", "-path", "/run/systemd/*", "-not", "-path", "/run/user/*", timeout=120)
    return set(said.stdout.splitlines())


def test_lintian_is_silent(built):
    """On the sources and on every package."""
    overrides = glob.glob(os.path.join(harness.ROOT, "packaging/debian/**/*lintian-overrides"), recursive=True)
    changes = glob.glob(os.path.join(built, "*.changes"))
    assert len(changes) == 1
    for f in overrides:     # each with its reason
        with open(f, encoding="utf-8") as g:
            lines = g.read().splitlines()
        assert all(above.startswith("# ") for above, line in zip([""] + lines, lines) if not line.startswith("#")), f
    r = subprocess.run(["lintian", "--fail-on", "error,warning", *changes], capture_output=True, text=True)
    assert r.returncode == 0 and r.stdout == "", r.stdout + r.stderr


def test_installation(box, cloud):
    """As an administrator does it: nothing runs before it is enabled, then a member of the group makes a sandbox and runs a command in it,
    over TLS, and another is told why not."""
    box.before = files(box)
    install(box, "lower")
    assert box.run("dpkg-query", "-W", "-f", "${Version}", "agentboxd").stdout == LOWER
    for unit in ("agentboxd.service", "agentboxd.socket", "agentboxd-gateway.socket", "agentboxd-metrics.socket", "agentbox-local.service"):
        assert (box.show(unit, "ActiveState"), box.show(unit, "UnitFileState")) == ("inactive", "disabled"), unit
    assert "/etc/agentboxd/agentboxd.conf" in box.run("dpkg-query", "-W", "-f", "${Conffiles}", "agentboxd").stdout
    box.run("useradd", "-G", "agentbox", "inside")
    box.run("useradd", "outside")
    box.run("cp", "/root/ca.pem", "/etc/agentboxd/ca.pem")
    box.write("/etc/agentboxd/agentboxd.conf", CONF % (cloud.url, cloud.url))
    box.write("/etc/agentboxd/api-key", cloud.key + "\n", 0o600, "agentboxd")
    box.run("systemctl", "enable", "--now", "agentboxd.socket", "agentboxd")
    box.sandbox = ctl(box, "create").stdout.strip()
    assert box.sandbox in ids(cloud)
    assert ctl(box, "exec", box.sandbox, "--", "echo", "hello").stdout == "hello\n"
    r = ctl(box, "ls", user="outside", check=False)
    assert r.returncode != 0 and "ermission" in r.stderr and "agentbox" in r.stderr


def test_units(box):
    """systemd has no word against them, and says little of what they expose."""
    there = sorted(u for u in box.run("ls", "/lib/systemd/system").stdout.split() if u.startswith("agentbox"))
    r = box.run("systemd-analyze", "verify", "--recursive-errors=no", *there)
    assert r.stdout + r.stderr == "" and len(there) >= 4
    assert box.run("systemd-analyze", "security", "--threshold=15", "agentboxd.service", check=False).returncode == 0
    assert box.run("stat", "-c", "%U:%G %a", SOCKET).stdout.strip() == "root:agentbox 660"


def test_what_others_build_with(box):
    """pkg-config, the header, the library and the .proto files are where they are looked for."""
    source = "/usr/share/doc/libagentbox-dev/examples/waiting.c"
    box.run("sh", "-c", "cc -Wall -Werror -o /root/waiting %s $(pkg-config --cflags --libs libagentbox)" % source)
    assert "libagentbox.so.0 => /lib/" in box.run("ldd", "/root/waiting").stdout
    box.run("sh", "-c", "mkdir /root/made && protoc -I /usr/share/agentboxd/proto --python_out=/root/made "
            "/usr/share/agentboxd/proto/agentbox/v1/*.proto")
    pages = ("agentboxd.8", "agentboxd.conf.5", "agentboxd-errors.7", "agentboxctl.1", "agentbox-local.1", "libagentbox.3")
    for page in pages:
        name, _, section = page.rpartition(".")
        assert box.run("test", "-s", "/usr/share/man/man%s/%s.%s.gz" % (section, name, section)).returncode == 0
    box.run("rm", "-r", "/root/made", "/root/waiting")


def test_upgrade_under_load(box):
    """From the lower version, while clients call: the service is another process, the socket the same, and no call failed."""
    tally, stop = Counter(), threading.Event()
    pid, inode = box.main_pid(), box.run("stat", "-c", "%i", SOCKET).stdout
    path = "/proc/%d/root%s" % (box.leader, SOCKET)

    def command(i):
        def call(n):
            words = (["get", box.sandbox], ["exec", box.sandbox, "--", "true"], ["timeout", box.sandbox, "10m"])[(n + i) % 3]
            r = ctl(box, *words, check=False)
            assert r.returncode == 0, (words, r.returncode, r.stderr)
        return call

    with Api(path) as api:
        # Of this machine's root, who is no admin in there.
        own = api.call("SandboxService.Create", request_id="own", sandbox_timeout={"seconds": 3600}).id
        clients = [Load("grpc", grpc_client(path, api, own, i), tally, stop, 0.1) for i in range(CLIENTS // 2)]
        clients += [Load("agentboxctl", command(i), tally, stop, 0.1) for i in range(CLIENTS - CLIENTS // 2)]
        enough(tally, CLIENTS)
        begin = time.monotonic()
        install(box)
        took = time.monotonic() - begin
        enough(tally, CLIENTS)
        stop.set()
        for c in clients:
            c.join(60)
    print("\nupgrade of %.1f s under %d clients: %s" % (took, CLIENTS, ", ".join("%s %d" % x for x in sorted(tally.items()))))
    assert not [k for k in tally if k.startswith("FAILED")], tally
    assert box.run("dpkg-query", "-W", "-f", "${Version}", "agentboxd").stdout == box.version != LOWER
    assert box.main_pid() != pid and box.run("stat", "-c", "%i", SOCKET).stdout == inode
    assert box.show("agentboxd", "NRestarts") == "0"


def test_leases_of_processes_outlive_a_restart(box, cloud):
    leases_outlive_restarts(box, cloud)
    with without_pidfs(box):
        leases_outlive_restarts(box, cloud)


def enough(tally, more):
    """Everybody has called since."""
    n = sum(v for k, v in tally.items() if k.startswith("ok "))
    until(lambda: sum(v for k, v in tally.items() if k.startswith("ok ")) >= n + more, 60, "calls of everybody")


def test_autopkgtests(box):
    """What Debian runs on the packages: the service on this machine's own sandboxes, the page's Python program, the library."""
    # The container's own root is an overlay, which cannot hold another's upper layer.
    box.run("mount", "-m", "-t", "tmpfs", "-o", "mode=0700", "none", "/var/lib/agentbox-local")
    lacks = box.run("agentbox-local", "--capabilities", "--state-dir", "/var/lib/agentbox-local", check=False)
    if lacks.returncode:
        pytest.skip("agentbox-local: " + lacks.stderr.strip())
    with socket.create_server(("127.0.0.1", 0)) as free:    # the container has the machine's network
        port = free.getsockname()[1]
    tests = os.path.join(harness.ROOT, "packaging/debian/tests")
    box.run("systemctl", "disable", "--now", "agentboxd.socket", "agentboxd")
    box.write("/etc/agentboxd/agentboxd.conf", "")
    names = re.findall("^Tests: (.*)$", box.run("cat", tests + "/control").stdout, re.M)
    try:
        for name in names:
            box.run("env", "LOCAL_PORT=%d" % port, "sh", os.path.join(tests, name), timeout=120)
    finally:
        box.run("systemctl", "stop", "agentboxd.socket", "agentboxd", "agentbox-local")
        box.run("umount", "/var/lib/agentbox-local")
        box.run("rm", "-rf", "/etc/systemd/system/agentboxd.service.d", "/etc/systemd/system/agentbox-local.service.d")
        box.run("systemctl", "daemon-reload")
    assert len(names) == 3


def test_a_changed_conffile_stays(box):
    """What the administrator wrote is not replaced by an upgrade."""
    assert box.run("cat", "/etc/agentboxd/agentboxd.conf").stdout == ""


def test_remove_and_purge(box):
    """A removal ends the service and its sockets and leaves state and configuration; a purge leaves the user and the group."""
    box.run("dpkg", "-r", "agentboxd", timeout=120)
    assert box.show("agentboxd.service", "ActiveState") == "inactive" and box.show("agentboxd.socket", "ActiveState") == "inactive"
    assert box.run("test", "-e", SOCKET, check=False).returncode != 0
    assert box.run("test", "-s", "/var/lib/agentboxd/agentboxd.db").returncode == 0
    box.run("dpkg", "-P", *PACKAGES, timeout=120)
    box.run("userdel", "inside")
    box.run("userdel", "outside")
    left = {f for f in files(box) - box.before if not re.fullmatch(r"/etc/(passwd|shadow|group|gshadow|subuid|subgid)-?", f)}
    assert not left, sorted(left)
    assert box.run("id", "-un", "agentboxd").stdout == "agentboxd\n" and box.run("getent", "group", "agentbox").returncode == 0


@pytest.mark.skipif(not FULL, reason="compiles everything once more; sh tests/shows.sh")

def test_two_builds_are_equal(built):
    """In another folder, at another time, byte by byte, without what a cache of the compiler knows."""
    folder = harness.temp_dir("abdeb-")
    try:
        os.environ["CCACHE_DISABLE"] = "1"
        build(folder)
        names = sorted(n for n in os.listdir(built) if n.endswith((".deb", ".xz", ".dsc")))
        differ = [n for n in names if subprocess.run(["cmp", "-s", os.path.join(built, n), os.path.join(folder, n)]).returncode]
        print("\n%d files of two builds, %d differ: %s" % (len(names), len(differ), differ))
        assert len(names) >= 9 and not differ
    finally:
        os.environ.pop("CCACHE_DISABLE", None)
        shutil.rmtree(folder)


@pytest.mark.skipif(not FULL, reason="compiles everything once more; sh tests/shows.sh")

def test_a_tarball_builds_without_git():
    """`meson dist`, unpacked where there is no git and no program of that name."""
    folder = harness.temp_dir("abdist-")
    try:
        subprocess.run(["meson", "setup", folder + "/b", harness.ROOT], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["meson", "dist", "-C", folder + "/b", "--no-tests", "--formats", "xztar", "--allow-dirty"], check=True,
                       stdout=subprocess.DEVNULL)
        tarball, = glob.glob(folder + "/b/meson-dist/*.tar.xz")
        subprocess.run(["tar", "-C", folder, "-xf", tarball], check=True)
        source = os.path.join(folder, os.path.basename(tarball)[:-len(".tar.xz")])
        os.mkdir(folder + "/bin")
        os.symlink("/bin/false", folder + "/bin/git")
        env = dict(os.environ, PATH=folder + "/bin:" + os.environ["PATH"])
        subprocess.run(["meson", "setup", "b", "-Dtests=false"], cwd=source, env=env, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["ninja", "-C", "b", "--quiet"], cwd=source, env=env, check=True)
        said = subprocess.run([source + "/b/daemon/agentboxd", "--version"], capture_output=True, text=True, check=True).stdout
        assert said.split()[1] in os.path.basename(tarball)
    finally:
        shutil.rmtree(folder)
