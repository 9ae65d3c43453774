# SPDX-License-Identifier: MIT
"""The gateway's control plane (GATEWAY §2): what agentbox-local's routes are judged by, judged again through gateway → agentboxd →
agentbox-local, with a token of the gateway in the place of the cloud's key."""
import http.client
import json
import multiprocessing
import os
import shutil
import signal
import socket

import pytest

import harness
import i_abox_local
import i_wire_list
import i_wire_pause
import i_wire_ports
import i_wire_sandbox
import i_wire_snap
from conftest import built
from i_wire_list import three  # noqa: F401
from wire import Client


class Through(Client):
    """Everything goes through the gateway; `direct` is agentbox-local itself."""

    def __init__(self, local, daemon, port, token):
        Client.__init__(self, "http://127.0.0.1:%d" % port, token)
        self.name, self.cloud, self.daemon, self.fake = "gateway", local, daemon, False
        self.direct = Client(local.plain_url, local.key)

    def needs(self, capability):
        reason = self.cloud.lacks(capability)
        if reason:
            pytest.skip(reason)

    def close(self):
        self.direct.close()
        Client.close(self)


@pytest.fixture(scope="module")
def gateway_daemon(local_session):
    """A user's own: it has the whole account, as who has the key."""
    built(harness.AGENTBOXD)
    runtime = harness.temp_dir("abx-")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    d = harness.Daemon(local_session, {"gateway": {"listen": "127.0.0.1:%d" % port}, "uid %d" % os.getuid(): {"relay": "all"}},
                       env={"XDG_RUNTIME_DIR": runtime, "HOME": runtime})
    yield d, port, "e2b_" + d.ctl("token", "create").stdout.strip()[3:]
    d.close()
    shutil.rmtree(runtime, ignore_errors=True)


@pytest.fixture(name="real")
def make_real(local, gateway_daemon):
    c = Through(local, *gateway_daemon)
    yield c
    c.close()


@pytest.fixture(name="server")
def make_server(real):
    return real


# What the gateway answers otherwise, and why. docs/internals/gateway.md says the same.
OTHERWISE = {
    "test_health_needs_no_key",                     # a token is needed for everything
    "test_case_027_not_secure",                     # who has no access token gets one made here
    "test_newer_connect_of_a_paused_one",           # memory=false is refused: the core resumes with what was kept
    "test_case_058_auto_resume",                    # GET /health wakes nothing
    "test_case_058_auto_resume_after_a_call",
    # They end with a header of agentbox-local's own, which is not passed on.
    "test_case_045_pause_looks_paused", "test_case_047_without_memory", "test_case_070_fork", "test_case_074_snapshot",
}


def judged_again(*modules):
    """The tests of these modules that need no cloud of their own."""
    for m in modules:
        for name, test in vars(m).items():
            if name.startswith("test_") and name not in OTHERWISE:
                names = test.__code__.co_varnames[:test.__code__.co_argcount]
                if ("real" in names or "server" in names) and not {"own", "fake"} & set(names):
                    yield "%s_%s" % (name, m.__name__[7:]), test


globals().update(judged_again(i_wire_sandbox, i_wire_list, i_wire_pause, i_wire_snap))
test_logs = i_wire_ports.test_case_133_logs       # the others of its file are of the data plane


# --- AgentBox's own SDK, as it is

@pytest.mark.parametrize("check", i_abox_local.CHECKS)
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_sdk_through_the_gateway(mode, check, gateway_daemon):
    """Every method of the SDK's reference, with nothing but its three variables set; those of templates pass by relay = all."""
    if i_abox_local.MISSING:
        pytest.skip(i_abox_local.MISSING)
    _, port, token = gateway_daemon
    wrong = i_abox_local.by_url(mode, "http://localhost:%d" % port, "ab_" + token[4:])[check]
    assert not wrong, wrong


# --- many processes, few connections

def twenty_calls(port, token, ret):
    """Of a program's own connection each, as SDKs are that end."""
    wrong = 0
    for i in range(20):
        c = http.client.HTTPConnection("localhost", port, timeout=60)
        c.request("GET", "/v2/sandboxes?limit=%d" % (i + 1), headers={"X-API-Key": token})
        wrong += c.getresponse().status != 200
        c.close()
    ret.put(wrong)


def test_a_hundred_processes(cloud):
    """GATEWAY §4.2: 100 processes, 20 calls each, at most 3 connections to the cloud."""
    runtime = harness.temp_dir("abx-")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    d = harness.Daemon(cloud, {"gateway": {"listen": "127.0.0.1:%d" % port}}, env={"XDG_RUNTIME_DIR": runtime, "HOME": runtime})
    try:
        token = d.ctl("token", "create").stdout.strip()
        said = multiprocessing.Queue()
        workers = [multiprocessing.Process(target=twenty_calls, args=(port, token, said)) for _ in range(100)]
        for w in workers:
            w.start()
        assert sum(said.get(timeout=90) for _ in workers) == 0
        for w in workers:
            w.join()
        print("100 processes x 20 calls: %d connections to the cloud" % cloud.ledger.connections)
        assert cloud.ledger.connections <= 3
    finally:
        d.close()
        shutil.rmtree(runtime, ignore_errors=True)


# --- word for word

def in_common(answer):
    """Without the daemon's own tags. The end of a paused one is the moment of its pause, which the daemon does not ask for: it is
    some ms later."""
    for row in answer if isinstance(answer, list) else [answer]:
        for key in [k for k in row.get("metadata", {}) if k.startswith("agentbox.")]:
            del row["metadata"][key]
        if row.get("state") == "paused":
            row["endAt"] = "paused"
    return json.dumps(answer)


def test_answers_are_the_clouds_own(real):
    """What the gateway answers about a sandbox is what agentbox-local answers, in its members, their order and its words."""
    box = real.create(metadata={"a": "b c", "é": "1"}, envVars={"X": "y"})
    at = "/sandboxes/" + box["sandboxID"]
    same = [at, "/v2/sandboxes?metadata=a%3Db%252520c", "/sandboxes?metadata=a%3Db%252520c", at + "-6532622b",
            "/v2/sandboxes?limit=0", "/v2/sandboxes?order=up", "/v2/sandboxes?nextToken=x", "/v2/sandboxes?metadata=", "/sandboxes/i0",
            "/sandboxes/Not", "/nothing", "/snapshots?limit=x", "/snapshots?name=no-such-snapshot", "/sandboxes/metrics", "/sandboxes/i0/metrics"]
    for paused in (False, True):
        if paused:
            assert real.api("POST", at + "/pause", {}).status == 204
        for path in same:
            here, there = real.api("GET", path), real.direct.api("GET", path)
            assert (here.status, in_common(here.json())) == (there.status, in_common(there.json())), path
            for name in ("content-type", "x-total-running"):
                assert here.header(name) == there.header(name), (path, name)
    for method, path, body in (("POST", at + "/timeout", {"timeout": 5}), ("POST", at + "/timeout", {}), ("POST", at + "/refreshes", {}),
                               ("POST", "/sandboxes", {"timeout": 5}), ("POST", "/sandboxes", {"templateID": "base", "timeout": 0}),
                               ("DELETE", "/sandboxes/i0", None), ("POST", "/sandboxes/i0/connect", {"timeout": 5})):
        here, there = real.api(method, path, body), real.direct.api(method, path, body)
        assert here.status == there.status and here.json().keys() == there.json().keys(), (path, here, there)


# --- once, over a crash

FP = os.path.join(harness.BUILD, "daemon", "agentboxd-fp")


@pytest.mark.parametrize("point", ["create.intent_committed", "create.after_send", "create.answered", "create.before_reply"])
def test_a_retry_over_a_crash_makes_no_second(cloud, monkeypatch, point):
    """GATEWAY §4.3: an SDK's retry with an Idempotency-Key over a kill -9 in mid-create gets the one sandbox, and makes no second."""
    built(FP)
    folder, runtime = harness.temp_dir("abd-"), harness.temp_dir("abx-")
    env = {"XDG_RUNTIME_DIR": runtime, "HOME": runtime}
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]

    def can_connect():
        try:
            socket.create_connection(("localhost", port)).close()
            return True
        except OSError:
            return False

    def start(**failpoint):
        d = harness.Daemon(cloud, {"gateway": {"listen": "127.0.0.1:%d" % port}}, folder=folder, env=dict(env, **failpoint))
        harness.until(can_connect, 20, "the gateway", d)
        return d

    def create(token):
        c = http.client.HTTPConnection("localhost", port, timeout=60)
        try:
            c.request("POST", "/sandboxes", json.dumps({"templateID": "base", "secure": True}),
                      {"X-API-Key": token, "Content-Type": "application/json", "Idempotency-Key": "once"})
            r = c.getresponse()
            return r.status, json.loads(r.read())
        finally:
            c.close()

    try:
        monkeypatch.setattr(harness, "AGENTBOXD", FP)
        d = start(AGENTBOXD_FAILPOINT=point + "=kill")
        token = d.ctl("token", "create").stdout.strip()
        with pytest.raises(OSError):
            create(token)
        assert d.proc.wait(10) == -signal.SIGKILL
        d.close()
        d = start()
        status, box = create(token)
        made = [b.id for b in cloud.ledger.sandboxes]
        assert made or point != "create.intent_committed", box          # STATE/sent: its request never left
        if made:
            assert status == 201 and made == [box["sandboxID"]], (box, made)
        else:                           # nobody can know that the cloud got nothing: it is not asked again
            assert status == 504 and point == "create.after_send", box
        assert create(token)[0] == status and len(cloud.ledger.sandboxes) == len(made)
    finally:
        d.close()
        shutil.rmtree(folder)
        shutil.rmtree(runtime, ignore_errors=True)
