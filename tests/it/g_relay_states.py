# SPDX-License-Identifier: MIT
"""What the gateway makes of a sandbox's states and of ends on either side (docs/internals/gateway.md, "What is passed on")."""
import json
import os
import socket
import struct
import subprocess
import time

import pytest

from g_relay import Through, gateway_daemon, make_real  # noqa: F401
from harness import until
from i_wire_ports import app, get, host
from wire import CUT, event_of

GONE = {"sandboxId", "message", "code"}


def state(c, box):
    r = c.get(box)
    return r.json()["state"] if r.status == 200 else "gone"


def absent(r, box):
    """The edge's word for a sandbox that does not run."""
    assert r.status == 502 and set(r.json()) == GONE and r.json()["sandboxId"] == box["sandboxID"] and r.json()["code"] == 502, r


def known(c, box):
    """What the daemon's rows say, without asking the cloud."""
    rows = c.daemon.ctl("--json", "ls", "--cached", "--state", "running,gone").stdout.splitlines()
    return next((s["state"] for s in map(json.loads, rows) if s["id"] == box["sandboxID"]), None)


def health(c, box):
    return c.envd(box, "GET", "/health")


# --- states

def test_unknown(real):
    box = {"sandboxID": "i000000000000000000aa", "envdAccessToken": "0" * 64}
    absent(health(real, box), box)
    absent(real.envd(box, "POST", "/process.Process/List", body=b"{}"), box)
    r = real.request("GET", "/", real.identity(box) + [("User-Agent", "Mozilla/5.0")])
    assert r.status == 502 and r.header("content-type") == "text/html; charset=utf-8", r


def test_paused_stays_paused(real):
    box = real.create()
    real.daemon.ctl("pause", box["sandboxID"])
    absent(real.envd(box, "POST", "/process.Process/List", body=b"{}"), box)
    absent(health(real, box), box)
    absent(get(real, box), box)
    assert state(real, box) == "paused"


def test_paused_and_resumed_by_its_policy(real):
    box = app(real)
    real.daemon.ctl("policy", box["sandboxID"], "resume_on_use=yes")
    for ask in (lambda: real.run(box, "echo hi")[1] == b"hi\n", lambda: get(real, box).status == 200):
        real.daemon.ctl("pause", box["sandboxID"])
        absent(health(real, box), box)              # neither wakes it …
        assert state(real, box) == "paused"
        assert ask()
        assert health(real, box).status == 204
        assert state(real, box) == "running"


def test_a_stranger_wakes_nothing(real):
    box = real.create()
    real.daemon.ctl("policy", box["sandboxID"], "resume_on_use=yes")
    real.daemon.ctl("pause", box["sandboxID"])
    for head in ([], [("X-Access-Token", "0" * 64)]):
        r = real.envd(dict(box, envdAccessToken=None), "GET", "/envs", head)
        assert r.status == 401 and r.json()["code"] == 401, r
    assert state(real, box) == "paused"


def test_paused_and_resumed_by_the_cloud(real):
    box = real.create(autoPause=True, autoResume={"enabled": True})
    real.daemon.ctl("pause", box["sandboxID"])
    absent(health(real, box), box)
    assert state(real, box) == "paused"
    assert real.run(box, "echo hi")[1] == b"hi\n"
    until(lambda: known(real, box) == "running", 5, "the row to say so", real.daemon)
    assert state(real, box) == "running"


def test_killed_behind_our_back_is_learnt_from_the_edge(real):
    box = real.create()
    assert known(real, box) == "running"
    assert real.kill(box).status == 204             # in the cloud, not by the daemon
    absent(health(real, box), box)
    until(lambda: known(real, box) == "gone", 5, "the row to say so", real.daemon)
    absent(health(real, box), box)


def test_the_end_of_the_sandbox_cuts_what_is_open(real):
    box = app(real)
    with real.start(box, "sleep 1000") as s:
        assert event_of(s.next())[0] == "start"
        waiting = socket.create_connection((real.address, real.port))
        waiting.sendall(("GET /stream HTTP/1.1\r\nHost: %s\r\nX-Wait: 100\r\n\r\n" % host(box)).encode())
        assert b"200 OK" in waiting.recv(100)
        began = time.monotonic()
        real.daemon.ctl("kill", box["sandboxID"])
        with pytest.raises(CUT):
            while s.next() is not None:
                pass
        rest = b"".join(iter(lambda: waiting.recv(65536), b""))
        assert not rest.endswith(b"0\r\n\r\n") and time.monotonic() - began < 5
    absent(health(real, box), box)


def test_health_is_no_use_and_a_stream_is(real):
    box = real.create_ours()
    real.daemon.ctl("policy", box["sandboxID"], "idle_timeout=2s", "on_idle=pause")
    with real.start(box, "sleep 1000") as s:
        s.next()
        time.sleep(3.5)
        assert state(real, box) == "running"
    end = time.monotonic() + 15
    while health(real, box).status == 204:          # asked all the time
        assert time.monotonic() < end
        time.sleep(0.1)
    assert state(real, box) == "paused"


def test_a_stale_token_is_asked_for_again(real):
    """The rows have another token than the sandbox: the caller's is right, and is let in once the cloud was asked."""
    box = real.create()
    wrong = dict(box, envdAccessToken="0" * 64)
    for _ in range(20):
        assert real.envd(wrong, "GET", "/envs").status == 401
    assert real.envd(box, "GET", "/envs").status == 200


# --- credentials and fields

def test_what_a_program_sees(real):
    """X-API-Key and Authorization are its own; ours and the edge's are not shown to it."""
    box = app(real)
    seen = get(real, box, headers=[("X-API-Key", "its own"), ("Authorization", "Basic eA=="), ("Cookie", "a=1"), ("Cookie", "b=2"),
                                   ("Agentboxd-Token", "ab_no"), ("agentboxd-anything", "1"),
                                   ("X-Access-Token", box["envdAccessToken"]), ("Accept-Encoding", "br")]).body.decode()
    assert dict(line.split(": ", 1) for line in seen.splitlines()) == {
        "host": host(box), "x-api-key": "its own", "authorization": "Basic eA==", "cookie": "a=1; b=2", "accept-encoding": "br"}


def test_pages_and_other_users_have_no_public_port(real):
    box = app(real)
    for head in ([("Origin", "http://evil.example")], [("Sec-Fetch-Site", "cross-site")]):
        r = get(real, box, headers=head)
        assert r.status == 403 and r.json()["sandboxId"] == box["sandboxID"], r
    if os.geteuid():
        pytest.skip("another user needs root")
    for target, headers in (("/", ["Host: " + host(box)]),
                            ("/", ["E2b-Sandbox-Id: " + box["sandboxID"], "E2b-Sandbox-Port: 8080"]),
                            ("/health", ["E2b-Sandbox-Id: " + box["sandboxID"], "E2b-Sandbox-Port: 49983"])):
        argv = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "curl", "-s", "-o", "/dev/null", "-w",
                "%{http_code}", "http://127.0.0.1:%d%s" % (real.port, target)]
        for h in headers:
            argv += ["-H", h]
        assert subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout == "502", target      # as if there were none


def test_private_ports(real):
    """The tokens of either kind, and none else."""
    box = app(real, network={"allowPublicTraffic": False})
    assert get(real, box).status == 403 and "traffic" in get(real, box).json()["message"].lower()
    assert get(real, box, headers=[("e2b-traffic-access-token", box["envdAccessToken"])]).status == 403
    for name in ("e2b-traffic-access-token", "Agentbox-Traffic-Access-Token"):
        assert get(real, box, headers=[(name, box["trafficAccessToken"])]).status == 200
    assert get(real, box, headers=[("X-Access-Token", box["envdAccessToken"])]).status == 200
    assert real.envd(dict(box, envdAccessToken=None), "GET", "/envs",
                     [("e2b-traffic-access-token", box["trafficAccessToken"])]).status == 401


def test_a_link_finds_its_sandbox(real):
    """A signed link without a host label, as the E2B SDK makes it of a fixed sandbox URL."""
    from wire import signature
    boxes = [real.create() for _ in range(3)]
    for n, box in enumerate(boxes):
        real.write(box, "/home/user/f", b"%d" % n)
    for n, box in enumerate(boxes):
        signed = signature("/home/user/f", "read", "", box["envdAccessToken"])
        target = "/files?path=/home/user/f&signature=" + signed.replace("+", "%2B").replace("/", "%2F")
        r = real.request("GET", target)
        assert r.status == 200 and r.body == b"%d" % n, r
        assert real.request("GET", target.replace("user/f", "user/g")).status == 401
    assert real.request("POST", target, body=b"x").status == 401
    for until, words in ((1, "signature is already expired"), (2, "the access token or the signature is wrong")):
        signed = signature("/home/user/f", "read", "", boxes[0]["envdAccessToken"], 1)      # that of 2 is another one
        r = real.request("GET", "/files?path=/home/user/f&signature_expiration=%d&signature=%s" % (
            until, signed.replace("+", "%2B").replace("/", "%2F")))
        assert r.status == 401 and r.json()["message"] == words, r


# --- ends

def upstream_streams(c):
    pool = json.loads(c.daemon.ctl("--json", "pool").stdout)
    return sum(o.get("streams", 0) for o in pool["origins"])


def test_a_client_that_vanishes(real):
    """Its request upstream is reset at once; the process inside goes on, as at the edge."""
    box = app(real)
    before = upstream_streams(real)
    s = real.start(box, "exec sleep 1000")
    pid = event_of(s.next())[1]
    assert upstream_streams(real) == before + 1
    s.close()
    until(lambda: upstream_streams(real) == before, 5, "the stream to be reset", real.daemon)
    assert any(p["pid"] == pid for p in real.processes(box))
    half = socket.create_connection((real.address, real.port))
    half.sendall(("POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000000\r\n\r\n" % host(box)).encode() + bytes(100000))
    until(lambda: upstream_streams(real) == before + 1, 5, "the upload to begin", real.daemon)
    half.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    half.close()
    until(lambda: upstream_streams(real) == before, 5, "the upload to be reset", real.daemon)


def test_early_answers_and_continue(real):
    """Expect: 100-continue is agreed to; an answer before the request is complete is passed on."""
    box = app(real)
    s = socket.create_connection((real.address, real.port), 10)
    s.sendall(("POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n" % host(box)).encode())
    assert s.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    s.sendall(b"abc")
    assert b" 201 " in s.recv(20)
    r = real.request("POST", "/files?path=x", real.identity(dict(box, envdAccessToken=None)), body=iter([bytes(1 << 16)] * 8))
    assert r.status == 401, r


def test_trailers_behind_an_empty_body(real, tmp_path):
    """They pass both joints: agentbox-local's and the gateway's."""
    box = real.create()
    real.write(box, "/home/user/t.py", b"""import socket
s = socket.create_server(("127.0.0.1", 8081)); print("up", flush=True)
while True:
    c, _ = s.accept(); c.recv(4096)
    c.sendall(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\nTrailer: X-T\\r\\n\\r\\n0\\r\\nX-T: 1\\r\\n\\r\\n"); c.close()
""")
    with real.start(box, "exec /usr/bin/python3 t.py") as out:
        next(e for e in map(event_of, out) if e[0] == "stdout")
    s = socket.create_connection((real.address, real.port), 10)
    s.sendall(("GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host(box, 8081)).encode())
    got = b"".join(iter(lambda: s.recv(65536), b""))
    assert got.endswith(b"0\r\nX-T: 1\r\n\r\n"), got
