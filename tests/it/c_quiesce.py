# SPDX-License-Identifier: MIT
"""agentboxctl quiesce: no new sandboxes before a maintenance, and all that is there goes on."""
import http.client
import json
import os
import socket
import subprocess

import pytest

import harness
from api import Api, ApiError
from harness import until

WHY = "kernel update <b>\x1b[31m"


@pytest.fixture
def world(cloud):
    """A daemon with a gateway and an entry of warm sandboxes."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    d = harness.Daemon(cloud, conf={"gateway": {"listen": "127.0.0.1:%d" % port},
                                    "daemon": {"reconcile_period": "1s"},
                                    "warm py": {"template": "base", "size": 2, "uids": "0", "per_hour": 200}})
    d.port = port
    with Api(d.socket) as api:
        until(lambda: ready(api) == 2, 20, "two ready ones", d)
        yield d, api
    d.close()


def ready(api):
    return api.call("WarmService.List").entries[0].ready


def refused(call, *args, **kw):
    with pytest.raises(ApiError) as e:
        call(*args, **kw)
    assert (e.value.code, e.value.reason) == ("UNAVAILABLE", "QUIESCED") and e.value.retry_s == 30, e.value
    return e.value.text


def post(d, path, body):
    c = http.client.HTTPConnection("127.0.0.1", d.port, timeout=20)
    c.request("POST", path, json.dumps(body), {"X-API-Key": d.token, "Content-Type": "application/json"})
    r = c.getresponse()
    text = r.read().decode()
    c.close()
    return r, text


def degraded(d):
    r = d.ctl("--json", "status", check=False)
    return r.returncode, [x for x in json.loads(r.stdout)["degraded"] if x["what"] == "quiesce"]


def test_nothing_new_is_made_and_all_else_goes_on(cloud, world):
    d, api = world
    d.token = d.ctl("token", "create").stdout.strip()
    box = api.call("SandboxService.Create", request_id="before", warm="NEVER").id
    paused = api.call("SandboxService.Create", request_id="paused", warm="NEVER").id
    api.call("SandboxService.Pause", sandbox=paused)
    assert degraded(d) == (0, [])
    said = d.ctl("quiesce", "--reason", WHY).stdout
    assert said.startswith("no new sandboxes are made since 20")
    posts = cloud.ledger.count("create")
    for mode in ("NEVER", "PREFER", "REQUIRE"):
        assert "root said: kernel update" in refused(api.call, "SandboxService.Create", warm=mode)
    refused(api.call, "SandboxService.Create", request_id="new")
    refused(api.call, "SandboxService.Fork", sandbox=box, count=1)
    r, text = post(d, "/sandboxes", {"templateID": "base"})
    assert r.status == 503 and int(r.getheader("Retry-After")) > 0 and "no new sandboxes" in text
    r = d.ctl("create", check=False)
    assert r.returncode == 1 and "QUIESCED" in r.stderr and "\x1b" not in r.stderr
    # What is there goes on: a repeat, a command, a lease, a pause and its end, a snapshot.
    assert api.call("SandboxService.Create", request_id="before", warm="NEVER").id == box
    assert d.ctl("exec", box, "--", "echo", "on").stdout == "on\n"
    api.call("LeaseService.Acquire", sandbox=box, ttl=60)
    assert api.call("SandboxService.ConnectSandbox", sandbox=paused).id == paused
    api.call("SnapshotService.Create", sandbox=box, request_id="s")
    assert cloud.ledger.count("create") == posts
    # Status says so, and who and why.
    code, rows = degraded(d)
    assert code == 1 and len(rows) == 1 and rows[0]["reason"] == "QUIESCED" \
        and "root said: kernel update" in rows[0]["message"]
    assert "\x1b" not in d.ctl("status", check=False).stdout
    # No warm one is made, though there should be more of them, until it is over.
    d.ctl("warm", "set", "py", "3")
    lists = cloud.ledger.count("list")
    until(lambda: cloud.ledger.count("list") >= lists + 2, 20, "two looks at the cloud", d)
    assert cloud.ledger.count("create") == posts and ready(api) == 2
    assert d.ctl("quiesce", "--off").stdout == "sandboxes are made\n"
    until(lambda: ready(api) == 3, 20, "three ready ones", d)
    api.call("SandboxService.Create", request_id="new")
    assert degraded(d) == (0, [])
    d.wait_log(r'\bquiesced by="root" why=')
    d.wait_log(r"\bquiesce_over ")


def test_a_restart_ends_it(cloud):
    folder = harness.temp_dir("abd-")
    d = harness.Daemon(cloud, folder=folder)
    d.ctl("quiesce")
    assert degraded(d)[0] == 1 and d.ctl("create", check=False).returncode == 1
    d.close()
    d = harness.Daemon(cloud, folder=folder)
    try:
        assert degraded(d) == (0, [])
        d.ctl("create")
    finally:
        d.close()


def test_words_that_do_not_fit(cloud, world):
    d, api = world
    with pytest.raises(ApiError) as e:
        api.call("DaemonService.Quiesce", reason="x" * 201)
    assert e.value.code == "INVALID_ARGUMENT" and "reason" in e.value.fields
    assert d.ctl("quiesce", "--off", "--reason", "x", check=False).returncode == 2
    assert degraded(d) == (0, [])
    assert not api.call("DaemonService.Quiesce", off=True).quiesced, "it is no error where it was not"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be another user")
def test_a_user_is_refused(cloud):
    d = harness.Daemon(cloud, args=("--system",))
    try:
        os.chmod(d.home, 0o755)
        r = subprocess.run(harness.as_user(64042, [harness.AGENTBOXCTL, "-s", d.socket, "quiesce"]), capture_output=True, text=True,
                           stdin=subprocess.DEVNULL, timeout=60)
        assert r.returncode == 1 and "UID_DENIED" in r.stderr
        assert degraded(d) == (0, [])
    finally:
        d.close()
