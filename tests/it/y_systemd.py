# SPDX-License-Identifier: MIT
"""The installed units under systemd as PID 1, in a container of the test's own (tests/lib/nspawn.py)."""
import contextlib
import http.client
import json
import os
import re
import socket
import subprocess

import pytest

import harness
import nspawn
from fakecloud import FakeCloud
from harness import until

pytestmark = [pytest.mark.plain, pytest.mark.skipif(nspawn.lacks() is not None, reason="systemd in a container: %s" % nspawn.lacks())]

SOCKET = "/run/agentboxd/agentboxd.sock"
NO_PIDFS = "/usr/local/lib/no_pidfs.so"
NO_PIDFS_CONF = "/etc/systemd/system/agentboxd.service.d/no-pidfs.conf"
CONF = """[account main]
api_url = %s
sandbox_url = %s
ca_file = /etc/agentboxd/ca.pem
api_key_file = /etc/agentboxd/api-key
proxy = none
"""


@pytest.fixture(scope="module")
def cloud():
    with FakeCloud() as c:
        yield c


@pytest.fixture(scope="module")
def box(cloud):
    """A container in which agentboxd runs, with its two users: `inside` is of the group, `outside` is not."""
    with open(cloud.ca, encoding="ascii") as f:
        ca = f.read()
    c = nspawn.Container({"/etc/agentboxd/agentboxd.conf": CONF % (cloud.url, cloud.url), "/etc/agentboxd/ca.pem": ca})
    try:
        c.run("systemd-sysusers")
        c.run("systemd-tmpfiles", "--create", "agentboxd.conf")
        c.run("useradd", "-G", "agentbox", "inside")
        c.run("useradd", "outside")
        c.run("systemctl", "daemon-reload")
        c.run("ldconfig")       # ExecReload= runs agentboxctl without the paths of this test
        yield c
    finally:
        c.close()


@pytest.fixture
def running(box, cloud):
    """… with its key, and active."""
    box.write("/etc/agentboxd/api-key", cloud.key + "\n", 0o600, "agentboxd")
    box.run("systemctl", "enable", "--now", "agentboxd.socket", "agentboxd")
    return box


def ids(cloud):
    return [s.id for s in cloud.ledger.sandboxes]


def ctl(box, *args, user="inside", check=True):
    return box.run("agentboxctl", "-s", SOCKET, *args, user=user, check=check)


def units(box):
    return [os.path.join("/usr/local/lib/systemd/system", u) for u in box.run("ls", "/usr/local/lib/systemd/system").stdout.split()]


def test_verify_is_silent(box):
    """Every unit, with every key of it known; a user's units too."""
    r = box.run("systemd-analyze", "verify", "--recursive-errors=no", *units(box))
    assert r.stdout + r.stderr == ""
    user = box.run("ls", "/usr/local/lib/systemd/user").stdout.split()
    r = box.run("env", "HOME=/root", "XDG_RUNTIME_DIR=/run", "systemd-analyze", "--user", "verify", "--recursive-errors=no",
                *["/usr/local/lib/systemd/user/" + u for u in user])
    assert r.stdout + r.stderr == "" and len(user) == 3


def test_exposure(box):
    """At most 1.5, without what would hide the processes that hold leases."""
    r = box.run("systemd-analyze", "security", "--offline=true", "--threshold=15", "agentboxd.service", check=False)
    assert r.returncode == 0, r.stdout[-400:]
    with open(os.path.join(harness.ROOT, "systemd/agentboxd.service.in"), encoding="utf-8") as f:
        said = [line.split("=")[0] for line in f if not line.startswith("#")]
    assert not {"ProtectProc", "ProcSubset", "PrivateUsers", "RuntimeDirectory", "LoadCredential", "MemoryHigh"} & set(said)


def test_without_a_key_first(box, cloud):
    """As after an installation: the service is active, says what is missing, and takes the key up without a restart."""
    box.run("systemctl", "enable", "--now", "agentboxd.socket", "agentboxd")
    assert box.show("agentboxd", "ActiveState") == "active"
    until(lambda: "no API key yet" in box.show("agentboxd", "StatusText"), 10, "the status")
    r = ctl(box, "create", check=False)
    assert r.returncode != 0 and "api_key_file" in r.stderr
    box.write("/etc/agentboxd/api-key", cloud.key + "\n", 0o600, "agentboxd")
    assert ctl(box, "create").stdout.strip() in ids(cloud)


def test_who_may(running):
    """The group may use the socket, others may not; both files are the socket unit's."""
    sandbox = ctl(running, "create").stdout.strip()
    assert sandbox in ctl(running, "ls").stdout
    r = ctl(running, "ls", user="outside", check=False)
    assert r.returncode != 0 and "ermission" in r.stderr
    assert running.run("stat", "-c", "%U:%G %a", SOCKET).stdout.strip() == "root:agentbox 660"
    assert running.run("stat", "-c", "%U %a", "/var/lib/agentboxd").stdout.strip() == "agentboxd 700"


def test_it_has_no_rights(running):
    """What the unit promises holds for the process."""
    status = running.run("cat", "/proc/%d/status" % running.main_pid()).stdout
    for field in ("CapEff", "CapBnd", "CapAmb"):
        assert re.search(r"^%s:\s+0+$" % field, status, re.M), status
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.M) and re.search(r"^Seccomp:\s+2$", status, re.M)


def test_the_socket_outlives_the_service(running):
    """A stop leaves the socket's file, and a caller starts the service again."""
    before = running.run("stat", "-c", "%i", SOCKET).stdout
    running.run("systemctl", "stop", "agentboxd")
    assert running.show("agentboxd", "ActiveState") == "inactive"
    assert running.run("stat", "-c", "%i", SOCKET).stdout == before
    assert ctl(running, "ls").returncode == 0
    assert running.show("agentboxd", "ActiveState") == "active"
    assert running.run("stat", "-c", "%i", SOCKET).stdout == before


LINES = "for i in $(seq 100); do echo line-$i; sleep 0.05; done; exit 7"


def command(box, *args):
    return subprocess.Popen(box.argv("agentboxctl", "-s", SOCKET, *args, user="inside"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("sig", ["KILL", "STOP"])
def test_it_comes_back(running, cloud, sig):
    """After kill -9, and when it hangs (the watchdog, of 2 s here): what it knew is there, a stream goes on to its end with no line twice
    and a word where some are lost, and a create of that moment makes one sandbox."""
    running.write("/run/systemd/system/agentboxd.service.d/fast.conf", "[Service]\nWatchdogSec=2\nRestartSec=100ms\n")
    running.run("systemctl", "daemon-reload")
    running.run("systemctl", "restart", "agentboxd")
    sandbox, pid = ctl(running, "create").stdout.strip(), running.main_pid()
    stream = command(running, "exec", sandbox, "--", "sh", "-c", LINES)
    begin = stream.stdout.readline()
    running.run("kill", "-" + sig, str(pid))
    made = command(running, "create", "--name", "at-" + sig.lower(), "--request-id", "at-" + sig)
    until(lambda: running.show("agentboxd", "MainPID") not in ("0", str(pid)) and
          running.show("agentboxd", "ActiveState") == "active", 30, "the restart")
    assert sandbox in ctl(running, "ls").stdout
    assert sig != "STOP" or "Watchdog timeout" in running.journal()
    out, err = stream.stdout.read(), stream.stderr.read()    # communicate() passes over what readline() has read ahead
    stream.wait(60)
    lines = [int(x) for x in re.findall(r"^line-(\d+)$", begin + out, re.M)]
    assert stream.returncode == 7 and lines[0] == 1 and lines[-1] == 100 and lines == sorted(set(lines)), (lines, err)
    assert err.count("warning: some output is lost") == (len(lines) < 100), (lines, err)
    out, err = made.communicate(timeout=60)
    assert made.returncode == 0 and ids(cloud).count(out.strip()) == 1, err
    assert len([s for s in cloud.ledger.sandboxes if s.metadata.get("agentbox.name") == "at-" + sig.lower()]) == 1


def test_a_wrong_configuration_is_not_tried_again(running):
    """Exit 78: it stays down, and says why."""
    running.run("sh", "-c", "cp /etc/agentboxd/agentboxd.conf /root/; echo nonsense = 1 >> /etc/agentboxd/agentboxd.conf")
    try:
        assert running.run("systemctl", "restart", "agentboxd", check=False).returncode != 0
        assert running.show("agentboxd", "ExecMainStatus") == "78"
        assert running.show("agentboxd", "ActiveState") == "failed"
        assert "nonsense" in running.journal()
    finally:
        running.run("cp", "/root/agentboxd.conf", "/etc/agentboxd/agentboxd.conf")
        running.run("systemctl", "reset-failed", "agentboxd")
        running.run("systemctl", "start", "agentboxd")


def test_the_metrics_socket(running):
    """Enabled and then pulled in by a restart of the service; told apart by its name."""
    running.run("systemctl", "enable", "agentboxd-metrics.socket")
    running.run("systemctl", "restart", "agentboxd")
    assert running.show("agentboxd-metrics.socket", "ActiveState") == "active"
    said = running.run("curl", "-sf", "--unix-socket", "/run/agentboxd/metrics.sock", "http://x/metrics").stdout
    assert said.endswith("# EOF\n") and "agentbox_build_info" in said
    assert ctl(running, "ls").returncode == 0


def test_the_gateway_socket(running):
    """Enabled and pulled in by a restart; its port is held while the service is down, and the answer comes when it is back."""
    with socket.socket() as s:      # this machine's network is the container's: another port than the unit's
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    running.write("/etc/systemd/system/agentboxd-gateway.socket.d/port.conf", "[Socket]\nListenStream=\nListenStream=127.0.0.1:%d\n" % port)
    running.run("systemctl", "daemon-reload")
    running.run("systemctl", "enable", "agentboxd-gateway.socket")
    running.run("systemctl", "restart", "agentboxd")
    get = ("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--noproxy", "*", "http://localhost:%d/v2/sandboxes" % port)
    assert running.run(*get).stdout == "401"
    running.run("systemctl", "stop", "agentboxd")
    with socket.socket() as s, pytest.raises(OSError, match="in use"):
        s.bind(("127.0.0.1", port))
    assert running.run(*get).stdout == "401" and running.show("agentboxd", "ActiveState") == "active"
    running.run("systemctl", "disable", "agentboxd-gateway.socket")
    running.run("systemctl", "stop", "agentboxd-gateway.socket")


def test_the_gateway_over_restarts(running):
    """P-09: with no socket unit for it, the manager's store has the gateway's port while the service is away, and a client's idle connection
    goes on over `systemctl restart`; a stop lets go of both."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    running.run("install", "-d", "-m", "755", "/etc/agentboxd/conf.d")
    running.write("/etc/agentboxd/conf.d/gateway.conf", "[gateway]\nlisten = localhost:%d\n" % port)
    running.run("systemctl", "restart", "agentboxd")
    token = ctl(running, "token", "create", user="root").stdout.strip()
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask():
        c.request("GET", "/v2/sandboxes", headers={"X-API-Key": token})
        r = c.getresponse()
        r.read()
        assert r.status == 200 and r.getheader("Connection") is None
        c.auto_open = 0         # from now on another connection would be a fault
        return c.sock.getsockname()

    first, pid = ask(), running.main_pid()
    for _ in range(3):
        running.run("systemctl", "restart", "agentboxd")
        assert ask() == first
        assert pid != running.main_pid()
        pid = running.main_pid()
    assert "gateway_taken_over" in running.run("journalctl", "-o", "verbose", "-u", "agentboxd").stdout
    until(lambda: running.show("agentboxd", "NFileDescriptorStore") in ("1", "2"), 20, "the listeners alone in the store")
    running.run("kill", "-KILL", str(pid))
    with socket.socket() as s, pytest.raises(OSError, match="in use"):
        s.bind(("127.0.0.1", port))
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:        # it waits for the service, which comes back by itself
        s.sendall(b"GET /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert s.recv(4096).startswith(b"HTTP/1.1 401")
    c.close()
    c.auto_open = 1
    ask()
    running.run("systemctl", "stop", "agentboxd.socket", "agentboxd")
    assert c.sock.recv(1) == b"" and running.show("agentboxd", "NFileDescriptorStore") == "0"
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", port))
    running.run("rm", "/etc/agentboxd/conf.d/gateway.conf")


OWNER = """
import sys
sys.path.insert(0, %r)
from api import Api
box = Api(sys.argv[1]).call("SandboxService.Create", process_lease=True, sandbox_timeout=600,
                            policy={"on_release": "KILL", "release_grace": 1})
print(box.id, flush=True)
sys.stdin.read()
""" % os.path.join(harness.ROOT, "tests/lib")


@contextlib.contextmanager
def without_pidfs(box):
    """The service as on a kernel that has no pidfs."""
    box.run("cp", os.path.join(harness.BUILD, "tests/it/no_pidfs.so"), NO_PIDFS)
    box.run("mkdir", "-p", os.path.dirname(NO_PIDFS_CONF))
    box.write(NO_PIDFS_CONF, "[Service]\nEnvironment=LD_PRELOAD=%s\n" % NO_PIDFS)
    if harness.ASAN:    # whose library would be the first
        box.run("sh", "-c", "echo Environment=ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 >>" + NO_PIDFS_CONF)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "restart", "agentboxd")
    yield
    loaded = box.run("grep", "-c", NO_PIDFS, "/proc/%d/maps" % box.main_pid(), check=False).stdout
    box.run("rm", NO_PIDFS_CONF, NO_PIDFS)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "restart", "agentboxd")
    assert int(loaded) > 0


def leases_outlive_restarts(box, cloud):
    """The service, which is of another user, sees the processes that hold leases: those that live keep their sandboxes over
    `systemctl restart`; one that ended while it was down does not."""
    owners = [subprocess.Popen(box.argv("/usr/bin/python3", "-B", "-c", OWNER, SOCKET, user="inside"), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        stays, goes = [p.stdout.readline().strip() for p in owners]
        pid = box.main_pid()
        box.run("systemctl", "restart", "agentboxd")
        assert box.main_pid() != pid
        held = [json.loads(line)["sandbox"] for line in ctl(box, "lease", "ls", "--json").stdout.splitlines()]
        assert stays in held and goes in held
        box.run("systemctl", "stop", "agentboxd.socket", "agentboxd")
        owners[1].communicate()
        box.run("systemctl", "start", "agentboxd.socket", "agentboxd")
        until(lambda: not alive(cloud, goes), 15, "the end of the sandbox whose owner is gone")
        assert alive(cloud, stays)
        owners[0].communicate()
        until(lambda: not alive(cloud, stays), 15, "the end of the other")
    finally:
        for p in owners:
            p.kill()
            p.wait()


@pytest.mark.parametrize("kernel", ["this kernel", "without pidfs"])
def test_leases_of_processes_outlive_a_restart(running, cloud, kernel):
    with contextlib.nullcontext() if kernel == "this kernel" else without_pidfs(running):
        leases_outlive_restarts(running, cloud)


def service(box, name, *argv):
    """A command line as a service with a user of its own, which is there while it runs."""
    return box.run("systemd-run", "--quiet", "--pipe", "--wait", "--collect", "-p", "DynamicUser=yes", "-p", "User=" + name, "-p",
                   "StateDirectory=" + name, "-p", "SupplementaryGroups=agentbox", "sh", "-c", 'id -u; exec agentboxctl -s "$0" "$@"',
                   SOCKET, *argv, check=False)


def test_a_uid_that_systemd_gives_again(running, cloud):
    """Of two services with DynamicUser= that systemd gave the same uid, one after the other, the second has nothing of the first one's."""
    uid, mine = service(running, "first", "create", "--name", "mine", "--timeout", "10m").stdout.split()
    assert 61184 <= int(uid) <= 65519 and alive(cloud, mine)
    # That of its state folder's owner is what systemd gives a service if it is free.
    running.run("install", "-d", "-m", "700", "-o", uid, "-g", uid, "/var/lib/private/second")
    said = service(running, "second", "ls", "-q")
    assert (said.returncode, said.stdout) == (0, uid + "\n"), said
    for what in (mine, "mine"):
        said = service(running, "second", "kill", what)
        assert said.stdout.split("\n")[0] == uid and "there is no sandbox" in said.stderr, said
    said = service(running, "second", "create", "--name", "mine", "--timeout", "10m")
    other = said.stdout.split()[1]
    assert other != mine and alive(cloud, mine) and alive(cloud, other)
    assert service(running, "first", "ls", "-q").stdout.split() == [uid, mine], "the first is back"


def alive(cloud, sandbox):
    return cloud.sandbox(sandbox).fate is None


def test_a_credential(running, cloud):
    """The example of a drop-in, as it is installed."""
    running.write("/etc/agentboxd/api-key", cloud.key + "\n", 0o600, "root")
    running.run("sh", "-c", "mkdir -p /etc/systemd/system/agentboxd.service.d && cp "
                "/usr/local/share/doc/agentboxd/examples/systemd/credential.conf /etc/systemd/system/agentboxd.service.d/")
    running.run("sed", "-i.before", "s/^api_key_file.*/api_key_credential = api-key/", "/etc/agentboxd/agentboxd.conf")
    running.run("systemctl", "daemon-reload")
    try:
        running.run("systemctl", "restart", "agentboxd")
        assert ctl(running, "create").stdout.strip() in ids(cloud)
    finally:
        running.run("mv", "/etc/agentboxd/agentboxd.conf.before", "/etc/agentboxd/agentboxd.conf")
        running.run("rm", "-r", "/etc/systemd/system/agentboxd.service.d")
        running.run("systemctl", "daemon-reload")
        running.write("/etc/agentboxd/api-key", cloud.key + "\n", 0o600, "agentboxd")
        running.run("systemctl", "restart", "agentboxd")


def test_systemctl_reload(running):
    """It is over when systemctl returns, and fails with every problem in the journal; the service goes on."""
    pid = running.main_pid()
    running.run("cp", "/etc/agentboxd/agentboxd.conf", "/root/")
    try:
        assert running.run("systemctl", "reload", "agentboxd").returncode == 0
        running.run("sh", "-c", "echo nonsense = 1 >> /etc/agentboxd/agentboxd.conf")
        assert running.run("systemctl", "reload", "agentboxd", check=False).returncode != 0
        until(lambda: "there is no key nonsense" in running.journal(), 10, "the problem in the journal")
        assert running.show("agentboxd", "ActiveState") == "active" and running.main_pid() == pid
    finally:
        running.run("cp", "/root/agentboxd.conf", "/etc/agentboxd/agentboxd.conf")
    assert running.run("systemctl", "reload", "agentboxd").returncode == 0


def test_agentbox_local_beside_it(running):
    """Machines without an account: agentbox-local.service, and agentboxd on it by the example; a restart of agentboxd ends no sandbox."""
    # The container's own root is an overlay, which cannot hold another's upper layer.
    running.run("mount", "-m", "-t", "tmpfs", "-o", "mode=0700", "none", "/var/lib/agentbox-local")
    lacks = running.run("agentbox-local", "--capabilities", "--state-dir", "/var/lib/agentbox-local", check=False)
    if lacks.returncode:
        pytest.skip("agentbox-local: " + lacks.stderr.strip())
    running.run("sh", "-c", "mkdir -p /etc/systemd/system/agentboxd.service.d && cp "
                "/usr/local/share/doc/agentboxd/examples/systemd/local.conf /etc/systemd/system/agentboxd.service.d/")
    # The container shares the machine's network, where the unit's port may be another's.
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    start = running.run("systemctl", "cat", "agentbox-local").stdout.split("\nExecStart=")[1].split("\n")[0]
    assert ":49990 " in start
    running.run("mkdir", "-p", "/etc/systemd/system/agentbox-local.service.d")
    running.write("/etc/systemd/system/agentbox-local.service.d/port.conf",
                  "[Service]\nExecStart=\nExecStart=%s\n" % start.replace("49990", port))
    example = running.run("sed", "-n", r"s/^#   //p", "/etc/systemd/system/agentboxd.service.d/local.conf").stdout
    assert ":49990" in example
    example = example.replace("49990", port)
    running.run("cp", "/etc/agentboxd/agentboxd.conf", "/root/")
    running.write("/etc/agentboxd/agentboxd.conf", example)
    running.run("systemctl", "daemon-reload")
    try:
        started = running.run("systemctl", "start", "agentbox-local", check=False)
        assert started.returncode == 0, running.journal("agentbox-local")
        running.run("systemctl", "restart", "agentboxd")
        sandbox = ctl(running, "create").stdout.strip()
        assert ctl(running, "exec", sandbox, "--", "echo", "hello").stdout == "hello\n"
        running.run("systemctl", "restart", "agentboxd")
        assert ctl(running, "exec", sandbox, "--", "echo", "again").stdout == "again\n"
    finally:
        running.run("systemctl", "stop", "agentboxd.socket", "agentboxd", "agentbox-local")
        running.run("cp", "/root/agentboxd.conf", "/etc/agentboxd/agentboxd.conf")
        running.run("rm", "-r", "/etc/systemd/system/agentboxd.service.d", "/etc/systemd/system/agentbox-local.service.d")
        running.run("systemctl", "daemon-reload")


def entries(box, *args):
    """What the journal has of the service, as its fields."""
    out = box.run("journalctl", "-q", "-o", "json", "-u", "agentboxd.service", *args).stdout
    return [json.loads(line) for line in out.splitlines()]


def test_the_journal_has_fields(running):
    """A line is an entry with its fields, by which it is found, and with an id that the catalog explains."""
    running.run("systemctl", "restart", "agentboxd")
    r = ctl(running, "get", "nosuchsandbox", check=False)
    assert r.returncode != 0
    found = until(lambda: entries(running, "AGENTBOX_EVENT=call_failed", "AGENTBOX_REASON=SANDBOX_NOT_FOUND"), 10, "the entry")[-1]
    inside = running.run("id", "-u", "inside").stdout.strip()
    assert found["AGENTBOX_UID"] == inside and found["PRIORITY"] == "6" and found["SYSLOG_IDENTIFIER"] == "agentboxd"
    assert found["_TRANSPORT"] == "journal" and found["_PID"] == str(running.main_pid())
    assert found["AGENTBOX_METHOD"] == "/agentbox.v1.SandboxService/Get" and found["MESSAGE"].startswith("call_failed ")
    running.run("journalctl", "--update-catalog")
    said = running.run("journalctl", "-q", "-x", "MESSAGE_ID=" + found["MESSAGE_ID"]).stdout
    assert "A call of a local program failed" in said and "agentboxd-errors(7)" in said


def test_a_failed_call_is_found_by_its_request_id(running):
    """Its caller chose it: the journal has it as a field, and the metrics at the step that the call fell into."""
    running.run("install", "-d", "-m", "755", "/etc/agentboxd/conf.d")
    running.write("/etc/agentboxd/conf.d/metrics.conf", "[daemon]\nmetrics_per_uid = yes\n")
    running.run("systemctl", "enable", "agentboxd-metrics.socket")
    running.run("systemctl", "restart", "agentboxd")
    try:
        r = ctl(running, "create", "--request-id", "job-17", "--timeout", "9000h", check=False)
        assert r.returncode != 0, r
        found, = until(lambda: entries(running, "AGENTBOX_EVENT=call_failed", "AGENTBOX_REQ=job-17"), 10, "the entry")
        assert found["AGENTBOX_METHOD"] == "/agentbox.v1.SandboxService/Create" and found["AGENTBOX_REASON"] in r.stderr
        said = running.run("curl", "-sf", "--unix-socket", "/run/agentboxd/metrics.sock", "http://x/metrics").stdout
        buckets = [line for line in said.splitlines() if '# {request_id="job-17"}' in line]
        assert len(buckets) == 1 and 'agentbox.v1.SandboxService/Create"' in buckets[0], buckets
    finally:
        running.run("rm", "/etc/agentboxd/conf.d/metrics.conf")
        running.run("systemctl", "disable", "--now", "agentboxd-metrics.socket")
        running.run("systemctl", "restart", "agentboxd")


def test_the_catalog_has_every_kind(box):
    """Each kind that the programs log has an entry, and each entry a text."""
    box.run("journalctl", "--update-catalog")
    listed = box.run("journalctl", "--list-catalog").stdout
    with open(os.path.join(harness.ROOT, "daemon/common/obs/kinds.def"), encoding="utf-8") as f:
        ids = re.findall(r'^KIND\(\w+, "([0-9a-f]{32})"', f.read(), re.M)
    assert len(ids) > 100 and not [i for i in ids if "%s agentboxd: " % i not in listed], listed[:300]
