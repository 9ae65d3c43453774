# SPDX-License-Identifier: MIT
"""agentboxctl port-forward: a port of a sandbox at localhost (SERVERS §5, GATEWAY §3), judged by curl, by a WebSocket client and server of
node's and Python's making, and by Chromium."""
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

import harness
from conftest import built
from b_json import jsonschema, validator
from harness import until
from i_wire_ports import APP
from w_door import new_token, port_of, root_only, runs, runtime     # noqa: F401 (fixtures)

BROWSER = shutil.which("chromium")
# A page, a stream of events, and a WebSocket that says what it hears, with the Host and the Origin in front.
SITE = r'''
import base64, hashlib, http.server, socketserver, sys, time
PAGE = b"""<!doctype html><title>t</title><script>
const out = {}, tried = (name, p) => p.then(v => out[name] = String(v), e => out[name] = "failed: " + e);
Promise.all([
  tried("fetch", fetch("/host", {method: "POST", body: "x".repeat(300000)}).then(r => r.text())),
  tried("events", new Promise((yes, no) => { const e = new EventSource("/events"), got = []; e.onerror = no;
    e.onmessage = m => { got.push(m.data); if (got.length == 3) { e.close(); yes(got.join()); } }; })),
  tried("socket", new Promise((yes, no) => { const w = new WebSocket("ws://" + location.host + "/ws"), got = []; w.onerror = no;
    w.onopen = () => w.send("heard"); w.onmessage = m => { got.push(m.data); if (got.length == 2) yes(got.join()); }; })),
]).then(() => fetch("/report", {method: "POST", body: JSON.stringify(out)}));
</script>"""
report = b""
class Site(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, body, kind="text/html"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for i in range(3):
            self.wfile.write(b"data: %d\n\n" % i)
            self.wfile.flush()
            time.sleep(0.05)
        self.close_connection = True
    def frame(self, text):
        self.wfile.write(bytes([0x81, len(text)]) + text)
        self.wfile.flush()
    def ws(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.frame(("%s %s" % (self.headers["Host"], self.headers["Origin"])).encode())
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8:
                break
            mask = self.rfile.read(4)
            self.frame(bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(head[1] & 127))))
        self.close_connection = True
    def do_GET(self):
        {"/events": self.events, "/ws": self.ws, "/report": lambda: self.answer(report)}.get(self.path, lambda: self.answer(PAGE))()
    def do_POST(self):
        global report
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/report":
            report = body
        self.answer(self.headers["Host"].encode(), "text/plain")
    def log_message(self, *a):
        pass
class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    request_queue_size = 512
s = Server(("127.0.0.1", int(sys.argv[1])), Site)
print("up", flush=True)
s.serve_forever()
'''


@pytest.fixture(name="d")
def make_daemon(local, runtime):
    built(harness.AGENTBOXD)
    d = harness.Daemon(local, env={"XDG_RUNTIME_DIR": runtime, "HOME": runtime}, conf={"daemon": {"restart_grace": "5s"}})
    port_of(d)
    yield d
    d.close()


def serve(d, box, code, *args):
    """A program of the sandbox that listens when this returns."""
    d.ctl("exec", "-i", box, "--", "sh", "-c", "cat > /tmp/serve.py", input=code)
    started = d.ctl("exec", "--detach", box, "--", "/usr/bin/python3", "/tmp/serve.py", *args).stdout.strip()
    until(lambda: "up" in d.ctl("logs", started).stdout, 20, "the program inside", d)


@pytest.fixture
def box(d):
    b = d.ctl("create").stdout.strip()
    serve(d, b, APP, "127.0.0.1", "8080")
    return b


class Forward:
    """agentboxctl port-forward, that listens."""

    def __init__(self, d, *words, n=1):
        self.d = d
        self.p = subprocess.Popen([harness.AGENTBOXCTL, "--socket", d.socket, "--json", "port-forward", *words], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        self.ports = [json.loads(self.p.stdout.readline() or "null") for _ in range(n)]
        assert all(self.ports), self.p.communicate(timeout=20)
        if jsonschema:
            for port in self.ports:
                validator("command.port-forward").validate(port)
        self.port = self.ports[0]["local"]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.p.poll() is None:
            self.p.kill()
        self.p.communicate(timeout=20)

    def end(self, timeout=20):
        out, err = self.p.communicate(timeout=timeout)
        return self.p.returncode, err


def fetch(port, path="/", method="GET", body=None, at="localhost", **headers):
    c = http.client.HTTPConnection(at, port, timeout=30)
    try:
        c.request(method, path, body, headers)
        r = c.getresponse()
        return r.status, r.read()
    finally:
        c.close()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_a_port_of_both_loopbacks(d, box):
    """What the program sees is what its client wrote: the Host, its own headers, and nothing of the gateway's."""
    with Forward(d, box, ":8080") as f:
        assert f.ports == [{"sandbox": box, "local": f.port, "remote": 8080, "url": "http://localhost:%d" % f.port}]
        for at, host in (("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("localhost", "localhost")):
            status, body = fetch(f.port, at=at, X_Own="1", Authorization="Basic eA==", Cookie="a=b")
            lines = dict(line.split(": ", 1) for line in body.decode().splitlines())
            assert status == 200 and lines["host"] == "%s:%d" % (host, f.port)
            assert lines["authorization"] == "Basic eA==" and lines["cookie"] == "a=b" and lines["x_own"] == "1"
            assert not [k for k in lines if k.startswith(("agentboxd-", "x-access", "x-forwarded")) or "traffic" in k], lines
        c = http.client.HTTPConnection("localhost", f.port, timeout=20)     # one connection, many requests
        for i in range(20):
            c.request("POST", "/", b"%d" % i)
            assert c.getresponse().read().decode() == hashlib.sha256(b"%d" % i).hexdigest()
        c.close()
        f.p.send_signal(signal.SIGINT)
        code, err = f.end()
        assert code == -signal.SIGINT and not err
    with pytest.raises(OSError):
        fetch(f.port)


def test_several_ports_and_words(d, box):
    serve(d, box, SITE, "9090")
    local = free_port()
    r = subprocess.Popen([harness.AGENTBOXCTL, "--socket", d.socket, "port-forward", box, "%d:8080" % local, ":9090"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        one, two = r.stdout.readline(), r.stdout.readline()
        assert one == "http://localhost:%d -> 8080\n" % local
        other = re.fullmatch(r"http://localhost:(\d+) -> 9090\n", two)
        assert fetch(local)[1].startswith(b"host: ") and b"EventSource" in fetch(int(other.group(1)))[1]
    finally:
        r.kill()
        r.communicate()


def test_bodies_and_streams(d, box):
    with Forward(d, box, ":8080") as f:
        data = os.urandom(8 << 20)
        out = subprocess.run(["curl", "-sS", "--data-binary", "@-", "http://localhost:%d/" % f.port], input=data, capture_output=True,
                             timeout=60, check=True).stdout.decode()
        assert out == hashlib.sha256(data).hexdigest()
        status, body = fetch(f.port, "/big")
        assert status == 200 and len(body) == 64 << 20 and all(body[i << 20] == i for i in range(64))
        c = http.client.HTTPConnection("localhost", f.port, timeout=20)     # comes as it is written, not at the end
        c.request("GET", "/stream", headers={"X-Wait": "0.3"})
        r = c.getresponse()
        assert r.read(2) == b"0\n"
        at = time.monotonic()
        assert r.read() == b"1\n2\n" and time.monotonic() - at > 0.2      # written 0.6 s after the first
        c.close()
        with pytest.raises(http.client.HTTPException):
            fetch(f.port, "/cut")


def test_upgrades(d, box):
    with Forward(d, box, ":8080") as f, socket.create_connection(("localhost", f.port), 20) as s:
        s.sendall(b"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\nearly")
        got = b""
        while not got.endswith(b"helloEARLY"):
            got += s.recv(4096)
        assert got.startswith(b"HTTP/1.1 101 ")
        s.shutdown(socket.SHUT_WR)
        rest = b""
        while piece := s.recv(4096):
            rest += piece
        assert rest == b"bye"


def test_many_at_once(d):
    """More than it serves at once: the others wait."""
    answers = []
    box = d.ctl("create").stdout.strip()
    serve(d, box, SITE, "3000")
    with Forward(d, box, ":3000") as f:
        def one(i):
            answers.append(fetch(f.port, "/", "POST", b"x" * i, Host="localhost:%d" % i)[1] == b"localhost:%d" % i)
        threads = [threading.Thread(target=one, args=(i,)) for i in range(300)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert answers.count(True) == 300


def test_a_private_port(d):
    """The traffic token is added for the owner."""
    box = d.ctl("create", "--private").stdout.strip()
    serve(d, box, APP, "127.0.0.1", "8080")
    assert fetch(port_of(d), **{"AgentBox-Sandbox-Id": box, "AgentBox-Sandbox-Port": "8080"})[0] == 403
    with Forward(d, box, ":8080") as f:
        assert fetch(f.port)[0] == 200


def test_it_ends_with_the_sandbox(d, box):
    with Forward(d, box, ":8080") as f, socket.create_connection(("localhost", f.port), 20) as s:
        assert fetch(f.port)[0] == 200
        s.sendall(b"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n")
        assert s.recv(4096)
        d.ctl("kill", box)
        code, err = f.end()
        assert code == 1 and "sandbox %s has ended" % box in err
        while s.recv(4096):
            pass


def test_it_goes_on_over_a_restart(d, box, local, runtime):
    with Forward(d, box, ":8080") as f:
        assert fetch(f.port)[0] == 200
        d.kill9()
        got = []
        t = threading.Thread(target=lambda: got.append(fetch(f.port)))      # waits for the gateway
        t.start()
        again = harness.Daemon(local, folder=d.home, env={"XDG_RUNTIME_DIR": runtime, "HOME": runtime},
                               conf={"daemon": {"restart_grace": "5s"}})
        try:
            t.join(30)
            assert got and got[0][0] == 200
            again.ctl("kill", box)
            assert f.end()[0] == 1
        finally:
            again.close()


def test_what_cannot_be_is_said(d, box, cloud):
    def said(*words):
        r = d.ctl("port-forward", *words, check=False)
        assert not r.stdout
        return r.returncode, r.stderr
    for bad in ("x", "1:", "0", ":0", "0:80", "80:65536", "1:2:3", "-1:80", "80 ", "000080:1", ""):
        assert said("--", box, bad)[0] == 2, bad
    code, err = said("nosuchbox0000000000", "80")
    assert code == 3 and "nosuchbox" in err
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        code, err = said(box, "%d:8080" % s.getsockname()[1])
        assert code == 1 and "localhost:%d: Address already in use" % s.getsockname()[1] in err
    with socket.socket(socket.AF_INET6) as s:      # nobody else is localhost there, for any family
        s.bind(("::1", 0))
        s.listen()
        assert said(box, "%d:8080" % s.getsockname()[1])[0] == 1
    without = harness.Daemon(cloud, {"gateway": {"listen": "none"}})
    try:
        r = without.ctl("port-forward", without.ctl("create").stdout.strip(), "80", check=False)
        assert r.returncode == 1 and "[gateway] listen" in r.stderr
    finally:
        without.close()


def test_a_port_that_nobody_listens_at(d, box):
    """The edge's own words, and the agent's port is nobody's to forward."""
    with Forward(d, box, ":81", ":49983", n=2) as f:
        status, body = fetch(f.port)
        assert status == 502 and json.loads(body)["port"] == 81
        with pytest.raises((OSError, http.client.HTTPException)):
            fetch(f.ports[1]["local"])
        f.p.send_signal(signal.SIGTERM)
        code, err = f.end()
        assert code == -signal.SIGTERM and "The agent's port is not forwarded" in err


# --- the upgrade itself, by hand

def upgrade(d, box, token, *more, port=8080, host="localhost", upgrade="agentboxd-forward"):
    s = socket.create_connection(("localhost", port_of(d)), 20)
    lines = ["GET / HTTP/1.1", "Host: " + host, "Connection: Upgrade", "Upgrade: " + upgrade, "AgentBox-Sandbox-Id: " + box,
             "AgentBox-Sandbox-Port: %d" % port, *(["Agentboxd-Token: " + token] if token else []), *more]
    s.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    return s, int(s.recv(65536).split()[1])


def test_who_may_forward(d, box):
    """GATEWAY §4.4: not without a token, nor with one for others, nor from a page."""
    other = d.ctl("create").stdout.strip()
    token, scoped = new_token(d), new_token(d, "--sandbox", other)
    tried = [
        (101, upgrade(d, box, token)), (401, upgrade(d, box, None)), (401, upgrade(d, box, token[:-1] + "x")),
        (403, upgrade(d, box, scoped)), (101, upgrade(d, other, scoped)), (403, upgrade(d, box, token, port=49983)),
        (403, upgrade(d, box, token, "Origin: http://page.example")), (403, upgrade(d, box, token, "Sec-Fetch-Site: cross-site")),
        (421, upgrade(d, box, token, host="page.example")), (400, upgrade(d, box, token, "Content-Length: 1")),
        (400, upgrade(d, "", token)), (508, upgrade(d, box, token, "Agentboxd-Hop: 1")),
    ]
    assert [got[1] for _, got in tried] == [want for want, _ in tried]
    s = tried[0][1][0]
    # Its own head cannot lead a request elsewhere, nor to the control plane; a rebound name is refused as at the gateway itself.
    s.sendall(("GET /sandboxes HTTP/1.1\r\nHost: 3000-%s.localhost\r\nX-API-Key: %s\r\nAgentBox-Sandbox-Id: %s\r\nAgentBox-Sandbox-Port: 1\r\n"
               "Agentboxd-Token: %s\r\n\r\n" % (other, token, other, token)).encode())
    answer = http.client.HTTPResponse(s)
    answer.begin()
    head = answer.read().decode()
    assert answer.status == 200 and "x-api-key: " + token in head and other not in head.replace(other + ".localhost", "")
    s.sendall(b"GET / HTTP/1.1\r\nHost: rebound.example\r\n\r\n")
    assert s.recv(65536).startswith(b"HTTP/1.1 421")
    for _, (sock, _) in tried:
        sock.close()


def test_a_token_that_is_over(d, box):
    t = json.loads(d.ctl("--json", "token", "create").stdout)
    s, status = upgrade(d, box, t["secret"])
    assert status == 101
    d.ctl("token", "rm", t["id"])
    s.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert s.recv(65536).startswith(b"HTTP/1.1 401")
    s.close()


@root_only
def test_of_another_user(d, box):
    token = new_token(d)
    r = subprocess.run(harness.as_user(61003, ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Connection: Upgrade", "-H",
                                               "Upgrade: agentboxd-forward", "-H", "AgentBox-Sandbox-Id: " + box, "-H", "AgentBox-Sandbox-Port: 8080",
                                               "-H", "Agentboxd-Token: " + token, "http://localhost:%d/" % port_of(d)]),
                       capture_output=True, text=True, timeout=30, check=True)
    assert r.stdout == "401"


# --- judges

@pytest.mark.skipif(not BROWSER, reason="no Chromium here (the package chromium)")
def test_a_site_in_a_browser(d):
    """A page with a fetch, a stream of events and a WebSocket, all of its own origin."""
    box = d.ctl("create").stdout.strip()
    serve(d, box, SITE, "3000")
    home = harness.temp_dir("abb-")
    with Forward(d, box, ":3000") as f:
        argv = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server",
                "--user-data-dir=" + home, "http://localhost:%d/" % f.port]
        browser = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ, HOME=home),
                                   start_new_session=True)
        try:
            until(lambda: fetch(f.port, "/report")[1], 60, "the page's report", d)
            host = "localhost:%d" % f.port
            assert json.loads(fetch(f.port, "/report")[1]) == {
                "fetch": host, "events": "0,1,2", "socket": "%s http://%s,heard" % (host, host)}
        finally:
            os.killpg(browser.pid, signal.SIGKILL)
            browser.wait()
            shutil.rmtree(home, ignore_errors=True)


@pytest.mark.skipif(not shutil.which("node"), reason="no node here")
def test_a_websocket_of_node(d):
    """A client that nobody here wrote; older ones of node's have none."""
    box = d.ctl("create").stdout.strip()
    serve(d, box, SITE, "3000")
    script = ("if (typeof WebSocket == 'undefined') process.exit(77); const w = new WebSocket(process.argv[1]); const got = [];"
              "w.onopen = () => w.send('x'.repeat(100)); w.onmessage = m => { got.push(m.data); if (got.length == 2) { console.log(got[1]); w.close(); } };"
              "w.onclose = () => process.exit(0); w.onerror = e => process.exit(1)")
    with Forward(d, box, ":3000") as f:
        r = subprocess.run(["node", "--experimental-websocket", "-e", script, "ws://localhost:%d/ws" % f.port], capture_output=True, text=True,
                           timeout=60)
    if r.returncode in (9, 77):
        pytest.skip("node %s has no WebSocket" % subprocess.run(["node", "-v"], capture_output=True, text=True).stdout.strip())
    assert r.returncode == 0 and r.stdout == "x" * 100 + "\n", r
