# SPDX-License-Identifier: MIT
"""The gateway's listener with TLS, by judges of others: curl with HTTP/1.1 and HTTP/2, h2load with a thousand requests at once, and
undici's WebSocket."""
import os
import shutil
import socket
import subprocess

import pytest

import harness
import i_npm_local
from fakecloud.certs import Authority
from g_relay import Through
from harness import temp_dir
from wire import event_of

ECHO = r'''
import base64, hashlib, socketserver, struct
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.rfile.readline()
        fields = dict(l.split(": ", 1) for l in head.decode().split("\r\n")[1:] if ": " in l)
        fields = {k.lower(): v for k, v in fields.items()}
        key = base64.b64encode(hashlib.sha1(fields["sec-websocket-key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                         b"Sec-WebSocket-Accept: " + key + b"\r\n\r\n")
        while True:
            two = self.rfile.read(2)
            if len(two) < 2 or two[0] & 15 == 8:
                return
            n = two[1] & 127
            if n == 126:
                n = struct.unpack(">H", self.rfile.read(2))[0]
            elif n == 127:
                n = struct.unpack(">Q", self.rfile.read(8))[0]
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i & 3] for i, b in enumerate(self.rfile.read(n))).upper()
            size = bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n)
            self.wfile.write(bytes([0x80 | two[0] & 15]) + size + data)
class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = daemon_threads = True
s = Server(("127.0.0.1", 8082), Echo)
print("up", flush=True)
s.serve_forever()
'''


@pytest.fixture(scope="module")
def tls(local_session):
    """(a client of the gateway in clear, the URL of the one with TLS, its CA)."""
    ports = []
    for _ in range(2):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            ports.append(s.getsockname()[1])
    authority = Authority(temp_dir(), "gateway test CA")
    cert, key = authority.issue()
    d = harness.Daemon(local_session, {"gateway": {"listen": "localhost:%d" % ports[0], "tls_cert": cert, "tls_key": key}})
    d.wait_log(r"\bgateway listen=")
    c = Through(local_session, d, ports[0])
    yield c, "https://localhost:%d" % ports[0], authority.cert
    c.close()
    d.close()


def curl(url, ca, *words):
    r = subprocess.run(["curl", "-sS", "--cacert", ca, "-w", "\n%{http_version} %{http_code}", *words, url], capture_output=True,
                       text=True, timeout=60)
    assert r.returncode == 0, r.stderr
    body, _, last = r.stdout.rpartition("\n")
    return body, last


HINTS = r'''
import socketserver
class Hints(socketserver.StreamRequestHandler):
    def handle(self):
        while self.rfile.readline() != b"\r\n":
            pass
        self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 103 Early Hints\r\nX-Two: 2\r\n\r\n"
                         b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
s = socketserver.TCPServer(("127.0.0.1", 8083), Hints)
print("up", flush=True)
s.serve_forever()
'''


@pytest.mark.parametrize("word, version", [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2")])
def test_interim_heads_of_a_program(tls, word, version):
    """GATEWAY §3: 1xx, through agentbox-local's edge and HTTP/2 to it, in both versions to the client."""
    c, url, ca = tls
    box = c.create_ours()
    c.direct.write(box, "/home/user/hints.py", HINTS.encode())
    with c.direct.start(box, "exec /usr/bin/python3 hints.py") as s:
        assert next(e for e in (event_of(m) for m in s) if e[0] in ("stdout", "stderr", "end"))[1].startswith(b"up")
    head = [w for k, v in c.identity(box, port=8083) for w in ("-H", "%s: %s" % (k, v))]
    r = subprocess.run(["curl", "-sv", "--cacert", ca, word, *head, url + "/"], capture_output=True, text=True, timeout=60, check=True)
    heard = [x[2:].strip().lower() for x in r.stderr.splitlines() if x.startswith("< ") and x.strip() != "<"]
    starts = [x for x in heard if x.startswith("http/")]
    assert [x.split()[:2] for x in starts] == [[version.lower(), "103"], [version.lower(), "103"], [version.lower(), "200"]]
    assert r.stdout == "ok" and heard.index("link: </a.css>; rel=preload") == 1 and heard.index("x-two: 2") == 3


def test_curl_speaks_both_versions(tls, tmp_path):
    c, url, ca = tls
    box = c.create_ours()
    head = [w for k, v in c.identity(box) for w in ("-H", "%s: %s" % (k, v))]
    data = os.urandom(3_000_000)
    (tmp_path / "data").write_bytes(data)
    for word, version in (("--http1.1", "1.1"), ("--http2", "2")):
        target = url + "/files?path=/home/user/data" + version
        body, last = curl(target, ca, word, *head, "-X", "POST", "-H", "Content-Type: application/octet-stream", "-T",
                          str(tmp_path / "data"))
        assert last == version + " 200", (body, last)
        assert curl(target, ca, word, *head, "-o", str(tmp_path / "back"))[1] == version + " 200"
        assert (tmp_path / "back").read_bytes() == data
        assert curl(target, ca, word, *head, "-r", "0-3", "-o", str(tmp_path / "back"))[1] == version + " 206"
        assert (tmp_path / "back").read_bytes() == data[:4]
        assert curl(target, ca, word, *head, "-I")[1].startswith(version + " "), "HEAD"
        assert curl(url + "/health", ca, word, *head)[1] == version + " 204"


@pytest.mark.plain
def test_a_thousand_at_once(tls, tmp_path):
    c, url, ca = tls
    if not shutil.which("h2load"):
        pytest.skip("needs h2load (nghttp2-client)")
    box = c.create_ours()
    (tmp_path / "body").write_bytes(b'{"path":"/home/user"}')
    argv = ["h2load", "-n", "3000", "-c", "10", "-m", "100", "-d", str(tmp_path / "body"), "-H", "content-type: application/json",
            "-H", "connect-protocol-version: 1"]
    for k, v in c.identity(box):
        argv += ["-H", "%s: %s" % (k, v)]
    r = subprocess.run(argv + [url + "/filesystem.Filesystem/Stat"], capture_output=True, text=True, timeout=100)
    assert "3000 succeeded, 0 failed, 0 errored" in r.stdout, r.stdout + r.stderr
    hwm = c.daemon.hwm_kb()
    assert harness.ASAN or hwm < 200 * 1024, hwm


WEBSOCKET = r"""
import { Agent, WebSocket } from "undici";
import { readFileSync } from "node:fs";
const [url, ca, id] = process.argv.slice(2);
const dispatcher = new Agent({ connect: { ca: readFileSync(ca) } });
const ws = new WebSocket(url, { dispatcher, headers: { "E2b-Sandbox-Id": id, "E2b-Sandbox-Port": "8082" } });
let n = 0;
ws.onopen = () => { for (let i = 0; i < 100; i++) ws.send("hello " + i + "x".repeat(1000)); };
ws.onmessage = (e) => {
  if (e.data !== ("HELLO " + n + "X".repeat(1000))) throw new Error("got " + e.data);
  if (++n === 100) { console.log("all"); ws.close(); process.exit(0); }
};
ws.onerror = (e) => { console.log("error", e.error ?? e); process.exit(1); };
"""


def test_websockets(tls):
    """The client is undici's, which Node and browsers' tests use; the program in the sandbox speaks the protocol itself."""
    c, url, ca = tls
    if i_npm_local.MISSING:
        pytest.skip(i_npm_local.MISSING)
    box = c.create_ours()
    c.direct.write(box, "/home/user/ws.py", ECHO.encode())
    with c.direct.start(box, "exec /usr/bin/python3 ws.py") as s:
        next(e for e in map(event_of, s) if e[0] == "stdout")
    script = os.path.join(i_npm_local.NPM, ".websocket-%d.mjs" % os.getpid())
    with open(script, "w", encoding="ascii") as f:
        f.write(WEBSOCKET)
    try:
        r = subprocess.run(["node", script, url.replace("https:", "wss:") + "/", ca, box["sandboxID"]], capture_output=True, text=True,
                           timeout=60, stdin=subprocess.DEVNULL)
    finally:
        os.unlink(script)
    assert r.returncode == 0 and r.stdout == "all\n", r.stdout + r.stderr
