# SPDX-License-Identifier: MIT
"""Uids that systemd gives to services in turn (61184 to 65519): the owner is the uid and its user's name.

Another name at the same uid sees nothing of the former, whose things are released by their policy. The daemon's /etc/passwd is the test's.
"""
import contextlib
import os
import re
import subprocess

import pytest

import harness
from v_access import PASSWD, Caller, Host, gateway
from v_two_uids import ask_all, objects, others, rows_of, text, told

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root to become other users")

UID = 61500
KILL = {"on_release": 3, "release_grace": {"seconds": 0}}
LEAVE = {"on_release": 1, "release_grace": {"seconds": 0}}


@pytest.fixture
def host(cloud):
    h = Host(cloud)
    yield h
    h.close()


@contextlib.contextmanager
def service(host, name):
    """That uid is this service's from now on; a name "" is none."""
    host.write("passwd", PASSWD.replace("guest:x:61500", name + ":x:61500") if name else PASSWD.replace("guest:x:61500", "guest:x:61498"))
    with contextlib.closing(Caller(host.socket, UID)) as c:
        yield c


def test_another_name_is_told_of_nothing(cloud):
    """Every method about every kind of object of the former one, as G-1 asks it of two uids; over a restart in between."""
    conf = others(cloud)
    conf["account second"]["ca_file"] = None    # the cloud's folder is root's alone
    with contextlib.closing(Host(cloud, conf=conf)) as host:
        compare_names(cloud, host)


def compare_names(cloud, host):
    with service(host, "first") as a:
        things = objects(cloud, a)
        token = a.get("TokenService.Create", label="mine")["secret"][1:-1]
        assert gateway(host, UID, token)[0] == 200
    host.restart()
    with service(host, "second") as b:
        for method, field in (("SandboxService.List", "sandboxes"), ("SnapshotService.List", "snapshots"), ("LeaseService.List", "leases"),
                              ("TokenService.List", "tokens")):
            assert b.get(method).get(field, []) == [], method
        assert gateway(host, UID, token)[0] == 401, "its tokens are revoked"
        status = b.get("DaemonService.Status")
        assert status["access"]["uid"] == str(UID) and status["access"]["user"] == "'second'"
        assert "sandboxes" not in status["access"] and "sandboxes_running" not in status["counts"]
        own = b.get("SandboxService.Create")
        assert own["owner_uid"] == str(UID)
        rows = ask_all(rows_of(host.socket, things, text(own["id"])), b)
        assert not told(rows, things), "\n".join(told(rows, things))
    assert cloud.sandbox(things["sandbox"][0]), "what nobody's policy ends is there"
    with service(host, "first") as a:
        assert text(a.get("SandboxService.Get", sandbox="mine")["id"]) == things["sandbox"][0]
        assert len(a.get("SnapshotService.List")["snapshots"]) == 2
    with service(host, "") as nobody:
        assert nobody.get("SandboxService.List").get("sandboxes", []) == []


def test_what_the_former_held_is_released(cloud, host):
    """Leases end, and each sandbox goes by its policy: on_release=kill is killed, with a lease or without one, on_release=leave stays."""
    with service(host, "first") as a:
        leased = text(a.get("SandboxService.Create", policy=KILL)["id"])
        a.get("LeaseService.Acquire", sandbox=leased, ttl={"seconds": 3600})
        alone = text(a.get("SandboxService.Create", policy=KILL)["id"])
        stays = text(a.get("SandboxService.Create", policy=LEAVE)["id"])
        a.get("LeaseService.Acquire", sandbox=stays, ttl={"seconds": 3600})
    with contextlib.closing(Caller(host.socket, 61001)) as alice:
        others = text(alice.get("SandboxService.Create", policy=KILL)["id"])
    with service(host, "first") as a:
        assert a.get("SandboxService.Get", sandbox=leased)["leases"] == "1", "the same name again releases nothing"
    with service(host, "second") as b:
        b.get("SandboxService.List")
        harness.until(lambda: cloud.sandbox(leased).fate and cloud.sandbox(alone).fate, 10, "both are killed", host.daemon)
    assert cloud.sandbox(stays).fate is None and cloud.sandbox(others).fate is None
    assert 'owner_over uid=%d user="first" now="second"' % UID in host.daemon.log()
    with service(host, "first") as a:
        assert a.get("SandboxService.Get", sandbox=stays).get("leases") is None


FORWARD = """import socket, sys
s = socket.create_connection(("localhost", int(sys.argv[1])), 20)
s.sendall(("GET / HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: Upgrade\\r\\nUpgrade: agentboxd-forward\\r\\nAgentBox-Sandbox-Id: %s\\r\\n"
           "AgentBox-Sandbox-Port: 80\\r\\nAgentboxd-Token: %s\\r\\n\\r\\n" % tuple(sys.argv[2:])).encode())
print(s.makefile("rb").readline().split()[1].decode())
"""


def forward(host, uid, box, token):
    """What that user is answered who asks for a port to be forwarded."""
    port = re.search(r'gateway listen="http://localhost:(\d+)"', host.daemon.log()).group(1)
    argv = harness.as_user(uid, ["/usr/bin/python3", "-c", FORWARD, port, box, token])
    return int(subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout)


def test_doors_of_the_gateway(host):
    """A port that is forwarded and the status page are for that owner, whose number is not its uid; and not for the next of that uid."""
    with service(host, "first") as a:
        box = text(a.get("SandboxService.Create")["id"])
        token = a.get("TokenService.Create", run=True, sandboxes=[box])["secret"][1:-1]
        assert forward(host, UID, box, token) == 101
        links = [a.get("TokenService.OpenPage")["url"][1:-1] for _ in range(2)]
        assert gateway(host, UID, "-", "/" + links[0].split("/", 3)[3])[0] == 303
        assert gateway(host, 61001, "-", "/" + links[1].split("/", 3)[3])[0] == 401
    with service(host, "second") as b:
        b.get("SandboxService.List")
        assert forward(host, UID, box, token) == 401


def test_a_renamed_user_keeps_what_is_its(cloud, host):
    """Only uids that are given in turn are told apart by names."""
    with contextlib.closing(Caller(host.socket, 61002)) as bob:
        box = text(bob.get("SandboxService.Create", name="mine")["id"])
    host.write("passwd", PASSWD.replace("bob:", "robert:"))
    host.reload({})
    with contextlib.closing(Caller(host.socket, 61002)) as robert:
        assert text(robert.get("SandboxService.Get", sandbox="mine")["id"]) == box


def test_limits_are_the_uids_and_counts_are_the_owners(cloud):
    """[uid N] holds for each name that has it; what the former has left does not count for the next."""
    with contextlib.closing(Host(cloud, conf={"uid 61500": {"max_sandboxes": "1"}})) as host:
        for name in ("first", "second"):
            with service(host, name) as c:
                c.get("SandboxService.Create", policy=LEAVE)
                assert c("SandboxService.Create")["error"][1:3] == ["QUOTA_UID", "uid 61500 is limited to 1 sandboxes"]
                assert c.get("DaemonService.Status")["access"]["max_sandboxes"] == "1"


def test_a_uid_of_the_made_numbers_is_refused(host):
    argv = harness.as_user(0x80000000 + 316 * 2 ** 18 + 5, [harness.AGENTBOXCTL, "-s", host.socket, "ls"])
    r = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert r.returncode == 1 and "is one that no user may have" in r.stderr, r
