# SPDX-License-Identifier: MIT
"""`systemctl restart agentboxd` under the load of y_restart.py: the packages, installed under systemd as PID 1 (tests/lib/nspawn.py).

It takes minutes: with SHOWS_FULL=1 only (tests/shows.sh).
"""
import json
import os
import shutil
import socket
import time

import pytest

import harness
import nspawn
from y_package import MISSING, PACKAGES, build, deb, install
from y_restart import FULL, RESTARTS, ROOM, Sdk, median, none_twice, sdk_token, under_load
from y_systemd import CONF, SOCKET, ctl

pytestmark = [pytest.mark.plain, pytest.mark.timeout(1800),     # the build, too
              pytest.mark.skipif(not FULL, reason="20 restarts under 500 clients; sh tests/shows.sh"),
              pytest.mark.skipif(bool(MISSING), reason="not installed: " + ", ".join(MISSING)),
              pytest.mark.skipif(nspawn.lacks() is not None, reason="systemd in a container: %s" % nspawn.lacks())]


@pytest.fixture
def box(cloud):
    """A container in which the packages are installed and the service runs, with its gateway at box.port."""
    folder = build(os.path.join(harness.BUILD, "deb"))
    with open(cloud.ca, encoding="ascii") as f:
        ca = f.read()
    c = nspawn.Container({"/root/ca.pem": ca}, install=False)
    try:
        c.debs = os.path.join(c.shared, "debs")
        os.mkdir(c.debs)
        for p in PACKAGES:
            shutil.copy(deb(folder, p), c.debs)
        install(c)
        with socket.create_server(("127.0.0.1", 0)) as free:    # the container has the machine's network
            c.port = free.getsockname()[1]
        c.run("cp", "/root/ca.pem", "/etc/agentboxd/ca.pem")
        c.write("/etc/agentboxd/agentboxd.conf", CONF % (cloud.url, cloud.url) + "[gateway]\nlisten = localhost:%d\n" % c.port +
                "".join("[%s]\n%s\n" % (section, "".join("%s = %s\n" % x for x in keys.items())) for section, keys in ROOM.items()))
        c.write("/etc/agentboxd/api-key", cloud.key + "\n", 0o600, "agentboxd")
        c.run("systemctl", "enable", "--now", "agentboxd.socket", "agentboxd")
        yield c
    finally:
        c.close()


def phases(box):
    """Of each restart: how many ms the service settled while it served, drained, and was away, by its own lines in the journal. It never
    waits for the journal, so a busy one lacks some."""
    out = box.run("journalctl", "-q", "-o", "json", "--output-fields=AGENTBOX_EVENT", "-u", "agentboxd.service").stdout
    lines = [json.loads(line) for line in out.splitlines()]
    at, found = {}, []
    for line in lines:
        event = line.get("AGENTBOX_EVENT")
        if event == "draining":
            at = {}
        if event in ("draining", "settled", "stopped", "ready"):
            at[event] = int(line["__REALTIME_TIMESTAMP"]) / 1000
        if event == "ready" and len(at) == 4:
            found.append((at["settled"] - at["draining"], at["stopped"] - at["settled"], at["ready"] - at["stopped"]))
    return found


def test_systemctl_restart_under_load(box, cloud):
    """No call fails; how long the service was away is measured by its callers."""
    path = "/proc/%d/root%s" % (box.leader, SOCKET)
    token = sdk_token(ctl(box, "token", "create", user="root").stdout)
    pids = [box.main_pid()]

    def again():
        begin = time.monotonic()
        box.run("systemctl", "restart", "agentboxd")
        took = int((time.monotonic() - begin) * 1000)
        pids.append(box.main_pid())
        return took

    under_load(path, lambda sandbox: Sdk(box.port, token, sandbox), again)
    found = phases(box)
    for what, of in zip(("settled, and served", "drained", "was away"), zip(*found)):
        print("  ms in which it %-20s median %4d, longest %4d, of %d that the journal has" % (what, median(of), max(of), len(of)))
    assert len(set(pids)) == len(pids) == RESTARTS + 1
    assert box.show("agentboxd", "NRestarts") == "0" and box.show("agentboxd", "ActiveState") == "active"
    none_twice(cloud)
