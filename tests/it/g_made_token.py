# SPDX-License-Identifier: MIT
"""A sandbox without an access token gets one of the gateway, which checks it and takes it off (GATEWAY §2)."""
import http.client
import json
import os
import socket
import stat
import threading
import time
import urllib.parse

import pytest

import harness
from conftest import built
from wire import Client, signature


class UnixHttp(http.client.HTTPConnection):
    """Over the gateway's socket nobody is known by his uid."""

    def __init__(self, path):
        http.client.HTTPConnection.__init__(self, "localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(self.path)


class Gate:
    def __init__(self, local):
        self.folder = harness.temp_dir("abd-")
        self.path = os.path.join(self.folder, "gw")
        self.conf = {"gateway": {"listen": "none", "socket": self.path}}
        self.local = local
        self.start()
        self.token = self.d.ctl("token", "create").stdout.strip()

    def start(self):
        self.d = harness.Daemon(self.local, self.conf, folder=self.folder, name="gate-agentboxd")
        harness.until(self.connects, 20, "the gateway's socket", self.d)

    def connects(self):
        try:
            UnixHttp(self.path).connect()
            return True
        except OSError:
            return False

    def ask(self, method, path, body=None, **headers):
        c = UnixHttp(self.path)
        try:
            c.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
            r = c.getresponse()
            return r.status, r.read()
        finally:
            c.close()

    def api(self, method, path, body=None):
        status, text = self.ask(method, path, json.dumps(body) if body is not None else None, X_API_Key=self.token,
                                Content_Type="application/json")
        return status, json.loads(text) if text else None

    def agent(self, box, method, path, body=None, token=None, **headers):
        if token is not None:
            headers["X_Access_Token"] = token
        return self.ask(method, path, body, E2b_Sandbox_Id=box["sandboxID"], E2b_Sandbox_Port="49983", **headers)

    def close(self):
        self.d.close()


@pytest.fixture(scope="module")
def gate(local_session):
    built(harness.AGENTBOXD)
    g = Gate(local_session)
    yield g
    g.close()


@pytest.fixture
def box(gate):
    status, made = gate.api("POST", "/sandboxes", {"templateID": "base", "timeout": 120, "secure": False})
    assert status == 201, made
    yield made
    gate.api("DELETE", "/sandboxes/" + made["sandboxID"])


LIST = {"Content_Type": "application/json", "Connect_Protocol_Version": "1"}


def test_it_is_told_and_needed(gate, box, local_session):
    token = box["envdAccessToken"]
    assert len(token) == 64
    for same in (gate.api("GET", "/sandboxes/" + box["sandboxID"])[1],
                 gate.api("POST", "/sandboxes/%s/connect" % box["sandboxID"], {"timeout": 120})[1]):
        assert same["envdAccessToken"] == token
    assert "envdAccessToken" not in json.dumps(gate.api("GET", "/v2/sandboxes")[1])
    assert gate.agent(box, "POST", "/process.Process/List", "{}", token, **LIST)[0] == 200
    for wrong in (None, "", token[:-1] + ("0" if token[-1] != "0" else "1"), "0" * 64):
        # not 401: whose sandbox it is would be told to a stranger (G-1)
        assert gate.agent(box, "POST", "/process.Process/List", "{}", wrong, **LIST)[0] == 502, wrong


def test_one_that_has_its_own_keeps_it(gate, local_session):
    status, made = gate.api("POST", "/sandboxes", {"templateID": "base", "timeout": 120, "secure": True})
    assert status == 201
    try:
        c = Client(local_session.plain_url, local_session.key)
        assert c.get(made).json()["envdAccessToken"] == made["envdAccessToken"]
        c.close()
    finally:
        gate.api("DELETE", "/sandboxes/" + made["sandboxID"])


def test_it_never_goes_upstream(cloud):
    g = Gate(cloud)
    try:
        status, made = g.api("POST", "/sandboxes", {"templateID": "base", "timeout": 120, "secure": False})
        assert status == 201 and made["envdAccessToken"]
        g.agent(made, "POST", "/process.Process/List", "{}", made["envdAccessToken"], **LIST)
        calls = [s for s in cloud.ledger.requests if s.target == "/process.Process/List"]
        assert calls and not [s for s in cloud.ledger.requests if made["envdAccessToken"] in str(s.headers) + s.target]
    finally:
        g.close()


def test_links_are_signed_with_it(gate, box):
    token, path = box["envdAccessToken"], "/home/user/made.txt"
    boundary = "x" * 20
    body = ("--%s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"made.txt\"\r\n\r\nhello\r\n--%s--\r\n" % (boundary, boundary))
    status, text = gate.agent(box, "POST", "/files?" + urllib.parse.urlencode({"path": path, "username": "user"}), body, token,
                              Content_Type="multipart/form-data; boundary=" + boundary)
    assert status == 200, text
    good = signature(path, "read", "user", token)
    query = {"path": path, "username": "user", "signature": good}
    assert gate.ask("GET", "/files?" + urllib.parse.urlencode(query)) == (200, b"hello")
    assert gate.agent(box, "GET", "/files?" + urllib.parse.urlencode(query)) == (200, b"hello")
    for other in (dict(query, path="/etc/passwd"), dict(query, signature=good[:-2] + "xx")):
        assert gate.ask("GET", "/files?" + urllib.parse.urlencode(other))[0] == 401


def test_links_that_fit_nothing_are_bounded(gate, box):
    """One who guesses is told to wait, and a link that was found before is found meanwhile."""
    query = {"path": "/home/user", "username": "user", "signature": signature("/home/user", "read", "user", box["envdAccessToken"])}
    good = "/files?" + urllib.parse.urlencode(query)
    assert gate.ask("GET", good)[0] not in (401, 429)
    c = UnixHttp(gate.path)
    c.connect()
    n = 1000
    one = b"GET /files?path=/x&signature=v1_%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
    sender = threading.Thread(target=c.sock.sendall, args=(b"".join(one % i for i in range(n)),))
    sender.start()
    answers = []
    with c.sock.makefile("rb") as f:
        for _ in range(n):
            answers.append(int(f.readline().split()[1]))
            head = dict(h.decode().lower().rstrip().split(": ", 1) for h in iter(f.readline, b"\r\n"))
            f.read(int(head["content-length"]))
    sender.join()
    c.close()
    seen = set(answers)
    assert seen == {401, 429}, seen
    assert gate.ask("GET", good)[0] not in (401, 429)
    time.sleep(1.1)                     # the bound is one of a second
    assert gate.ask("GET", "/files?path=/x&signature=v1_x")[0] == 401


def test_it_is_the_same_after_a_restart(gate, box):
    secret = os.path.join(gate.d.state_dir, "gateway-secret")
    assert os.path.getsize(secret) == 32 and stat.S_IMODE(os.stat(secret).st_mode) == 0o600
    gate.d.kill9()
    gate.start()
    assert gate.agent(box, "POST", "/process.Process/List", "{}", box["envdAccessToken"], **LIST)[0] == 200
    assert box["envdAccessToken"] not in gate.d.log()
