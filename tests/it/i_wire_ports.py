# SPDX-License-Identifier: MIT
"""Ports of a sandbox through the edge, and network settings (cases 14 to 18, 36, 80 to 85)."""
import hashlib
import os
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse

import pytest

from harness import until
from wire import CUT, event_of
from wire_common import fake, own, real, server  # noqa: F401

TOKEN = "e2b-traffic-access-token"
APP = r'''
import hashlib, http.server, socketserver, sys, time
class App(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, body, status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def upgrade(self):
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: shout\r\nConnection: Upgrade\r\nX-A: b\r\n\r\nhello")
        while True:
            d = self.rfile.read1(65536)
            if not d:
                break
            self.wfile.write(d.upper())
            self.wfile.flush()
        self.wfile.write(b"bye")
        self.close_connection = True
    def stream(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i in range(3):
            self.wfile.write(b"2\r\n%d\n\r\n" % i)
            self.wfile.flush()
            if self.headers.get("X-Wait"):
                time.sleep(float(self.headers["X-Wait"]))
        self.wfile.write(b"0\r\nX-Trailer: t\r\n\r\n")
    def do_GET(self):
        if self.headers.get("Upgrade") == "shout":
            self.upgrade()
        elif self.path == "/stream":
            self.stream()
        elif self.path == "/big":
            self.send_response(200)
            self.end_headers()
            for i in range(64):
                self.wfile.write(bytes([i]) * (1 << 20))
            self.close_connection = True
        elif self.path == "/cut":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"some")
            self.close_connection = True
        elif self.path == "/nothing":
            self.close_connection = True
        else:
            self.answer("".join("%s: %s\n" % (k.lower(), v) for k, v in self.headers.items()).encode())
    do_HEAD = do_DELETE = do_GET
    def do_POST(self):
        n, data = self.headers.get("Content-Length"), b""
        if n:
            data = self.rfile.read(int(n))
        while not n:
            k = int(self.rfile.readline(), 16)
            data += self.rfile.read(k)
            self.rfile.readline()
            if not k:
                break
        self.answer(hashlib.sha256(data).hexdigest().encode(), 201)
    def log_message(self, *a):
        pass
class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    address_family = 10 if ":" in sys.argv[1] else 2
s = Server((sys.argv[1], int(sys.argv[2])), App)
print("up", flush=True)
s.serve_forever()
'''


def refused(r, status):
    assert r.status == status and r.json()["code"] == status and r.json()["message"], r


def app(c, address="127.0.0.1", port=8080, **body):
    box = c.create(**body)
    c.write(box, "/home/user/app.py", APP.encode())
    with c.start(box, "exec /usr/bin/python3 app.py %s %d" % (address, port)) as s:
        events = (event_of(m) for m in s)
        assert next(e for e in events if e[0] in ("stdout", "stderr", "end"))[1].startswith(b"up")
    return box


@pytest.fixture(name="box")
def make_box(real):
    return app(real)


def host(box, port=8080):
    return "%d-%s.localhost" % (port, box["sandboxID"])


def get(c, box, target="/", headers=(), port=8080, method="GET", body=b""):
    return c.request(method, target, list(headers), body, host=host(box, port))


def test_case_006_the_head_the_program_sees(real, box):
    r = get(real, box, "/", [("Connection", "x-mine"), ("X-Mine", "1"), ("X-Kept", "2"), ("X-Forwarded-For", "9.9.9.9"),
                             ("X-Forwarded-Proto", "gopher"), ("Forwarded", "for=x"), ("Keep-Alive", "5")])
    seen = dict(line.split(": ", 1) for line in r.body.decode().splitlines())
    assert seen == {"host": host(box), "x-kept": "2"}, seen
    r = real.request("GET", "/", real.identity(box, port=8080) + [("X-Kept", "3")])
    assert "host: 127.0.0.1:%d\n" % real.port in r.body.decode() and "x-kept: 3" in r.body.decode()


def test_bodies_both_ways(real, box):
    data = os.urandom(3_000_000)
    digest = hashlib.sha256(data).hexdigest().encode()
    r = get(real, box, method="POST", body=data)
    assert r.status == 201 and r.body == digest
    r = get(real, box, method="POST", body=iter([data[:7], data[7:2_000_000], data[2_000_000:]]))
    assert r.status == 201 and r.body == digest
    r = get(real, box, "/big")
    assert len(r.body) == 64 << 20 and r.body[-1] == 63
    r = get(real, box, method="HEAD")
    assert r.status == 200 and r.body == b"" and int(r.header("content-length")) > 0


def test_streams_are_not_held_back(real, box):
    conn, response = real.open("GET", "/stream", [("X-Wait", "0.4")], host=host(box))
    begin = time.monotonic()
    assert response.read(2) == b"0\n"
    assert time.monotonic() - begin < 0.35
    assert response.read() == b"1\n2\n"
    conn.close()


def test_a_slow_reader_holds_the_program_up(real, box):
    """Nothing grows in between: what is not read is not read from the program either."""
    conn, response = real.open("GET", "/big", host=host(box))
    rss = lambda: int(open("/proc/%d/statm" % real.cloud.proc.pid).read().split()[1]) * 4096
    before = rss()
    time.sleep(0.5)
    assert rss() - before < 16 << 20
    assert sum(len(d) for d in iter(lambda: response.read(1 << 20), b"")) == 64 << 20
    conn.close()


def test_programs_that_fail(real, box):
    r = get(real, box, "/nothing")
    assert r.status == 502 and r.header("content-type").startswith("text/plain"), r
    with pytest.raises(CUT):
        get(real, box, "/cut")


def test_http2_to_a_port(real, box):
    out = subprocess.run(["curl", "-sS", "--http2-prior-knowledge", "-H", "Host: " + host(box), "-b", "a=1", "-H", "Cookie: b=2",
                          "http://127.0.0.1:%d/" % real.port], capture_output=True, text=True, timeout=30, check=True).stdout
    assert "host: " + host(box) in out, out


def test_the_other_loopback(real):
    box = app(real, "::1")
    assert get(real, box).status == 200


def test_case_014_a_port_that_opens_late(real):
    """Five attempts take about a second: a program that starts meanwhile is reached."""
    box = real.create()
    real.write(box, "/home/user/app.py", APP.encode())
    got = []
    asker = threading.Thread(target=lambda: got.append(get(real, box)))
    with real.start(box, "exec /usr/bin/python3 app.py 127.0.0.1 8080") as s:
        asker.start()
        s.next()
        asker.join(30)
    assert got[0].status in (200, 502), got
    r = get(real, box, port=1)
    assert r.status == 502 and r.json()["port"] == 1, r
    r = get(real, box, port=1, headers=[("User-Agent", "Mozilla/5.0")])
    assert r.status == 502 and r.header("content-type").startswith("text/html"), r
    for port in ("0", "65536", "99999999"):
        r = real.request("GET", "/", real.identity(box, port=port))
        assert r.status == 502 and r.json()["port"] == int(port), r


def test_case_017_traffic_token(real):
    box = app(real, network={"allowPublicTraffic": False})
    token = box["trafficAccessToken"]
    assert token and token != box["envdAccessToken"]
    for head in ([], [(TOKEN, "wrong")], [(TOKEN, token[:-1])], [("X-Access-Token", box["envdAccessToken"])]):
        r = get(real, box, headers=head)
        refused(r, 403)
        assert r.json()["sandboxId"] == box["sandboxID"]
    assert TOKEN in get(real, box).json()["message"].lower()
    assert get(real, box, headers=[(TOKEN, token)]).status == 200
    assert real.envd(box, "GET", "/health").status == 204
    assert real.envd(box, "GET", "/envs").status == 200
    assert get(real, box, headers=[("User-Agent", "Firefox")]).header("content-type").startswith("text/html")


def test_case_018_masked_host(real):
    box = app(real, network={"maskRequestHost": "localhost:${PORT}"})
    seen = get(real, box, headers=[("X-Forwarded-Host", "evil")]).body.decode()
    assert "host: localhost:8080\n" in seen and "x-forwarded-host: %s\n" % host(box) in seen and "evil" not in seen
    assert real.request("GET", "/health", host=host(box, 49983)).status == 204


class Tunnel:
    def __init__(self, c, box, upgrade="shout", more=b""):
        self.s = socket.create_connection((c.address, c.port), 30)
        self.s.sendall(("GET /ws HTTP/1.1\r\nHost: %s\r\nConnection: keep-alive, Upgrade\r\nUpgrade: %s\r\n\r\n"
                        % (host(box), upgrade)).encode() + more)
        self.got = b""

    def until(self, text):
        while text not in self.got:
            d = self.s.recv(65536)
            assert d, self.got[-200:]
            self.got += d

    def rest(self):
        return b"".join(iter(lambda: self.s.recv(65536), b""))


def test_upgrade(real, box):
    t = Tunnel(real, box)
    t.until(b"hello")
    head = t.got.split(b"\r\n\r\n")[0].lower()
    assert head.startswith(b"http/1.1 101 ") and b"upgrade: shout" in head and b"connection: upgrade" in head
    assert b"x-a: b" in head
    for text in (b"abc", b"GET / HTTP/1.1\r\n\r\n", b"\x00\xff" * 50000):
        t.s.sendall(text)
        t.until(text.upper())
    t.s.shutdown(socket.SHUT_WR)
    assert t.rest() == b"bye"
    t.s.close()


def test_upgrade_with_early_bytes_and_much_data(real, box):
    t = Tunnel(real, box, more=b"early")
    t.until(b"EARLY")
    data = b"abcdefgh" * 500_000
    sender = threading.Thread(target=lambda: (t.s.sendall(data), t.s.shutdown(socket.SHUT_WR)))
    sender.start()
    rest = t.rest()
    sender.join(30)
    assert (t.got + rest).endswith(data[-1000:].upper() + b"bye")
    assert len(t.got.split(b"\r\n\r\n", 1)[1] + rest) == len(data) + len(b"helloEARLYbye")


def test_upgrade_over_tls(real, box):
    context = ssl.create_default_context(cafile=real.cloud.ca)
    context.set_alpn_protocols(["http/1.1"])
    address = urllib.parse.urlsplit(real.cloud.url)
    s = context.wrap_socket(socket.create_connection((address.hostname, address.port), 30), server_hostname="localhost")
    s.sendall(("GET /ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n" % host(box)).encode())
    got = b""
    while not got.endswith(b"hello"):
        got += s.recv(4096)
    s.sendall(b"abc")
    assert s.recv(3) == b"ABC"
    s.close()
    assert get(real, box).status == 200


def test_upgrade_that_the_program_does_not_want(real, box):
    t = Tunnel(real, box, upgrade="other")
    t.until(b"host: ")
    assert t.got.startswith(b"HTTP/1.1 200 ")
    t.s.sendall(("GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host(box)).encode())
    assert b"HTTP/1.1 200 " in t.rest()     # an answer like any other: the connection goes on


def test_upgrade_ends_with_the_sandbox(real, box):
    t = Tunnel(real, box)
    t.until(b"hello")
    assert real.kill(box).status == 204
    assert t.rest() == b""


def test_ports_over_a_pause(real):
    box = app(real, autoPause=True, autoResume={"enabled": True}, network={"allowPublicTraffic": False})
    t = Tunnel(real, box)
    t.until(b"403")
    assert real.api("POST", "/sandboxes/%s/pause" % box["sandboxID"]).status == 204
    refused(get(real, box), 403)
    assert real.get(box).json()["state"] == "paused"
    assert get(real, box, headers=[(TOKEN, box["trafficAccessToken"])]).status == 200    # wakes it; the program is there
    assert real.get(box).json()["state"] == "running"


def test_case_080_allow_needs_deny_all(server):
    body = {"templateID": "base", "timeout": 30, "network": {"allowOut": ["example.com"]}}
    refused(server.api("POST", "/sandboxes", body), 400)


def test_case_080_allow_with_deny_all(server):
    if not server.fake:
        server.needs("internet")
    network = {"allowOut": ["example.com", "1.1.1.1"], "denyOut": ["0.0.0.0/0"]}
    box = server.create(network=network)
    assert {k: server.get(box).json()["network"].get(k) for k in network} == network


def test_case_080_what_cannot_be_done_is_refused_by_name(real):
    """Never pretended. Lists and proxies, where sandboxes have no way out: e_egress.py."""
    for name, value in (("x", "${e2b.secrets.x}"), ("x", "${e2b.identity.tokens.x}"), ("Content-Length", "1")):
        network = {"rules": {"a.test": [{"transform": {"headers": {name: value}}}]}}
        r = real.api("POST", "/sandboxes", {"templateID": "base", "timeout": 30, "network": network})
        refused(r, 400)
        assert "rules" in r.json()["message"] and "agentbox-local" in r.json()["message"], r


def test_case_081_deny(server):
    for bad in (["example.com"], ["0.0.0.0"]):
        refused(server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 30, "network": {"denyOut": bad}}), 400)
    box = server.create(network={"denyOut": ["10.0.0.0/8", "8.8.8.8"]})
    assert server.get(box).json()["network"]["denyOut"] == ["10.0.0.0/8", "8.8.8.8"]
    server.create(network={"denyOut": ["0.0.0.0/0"]}, allow_internet_access=False)


def test_case_081_denied_is_out_of_reach(real):
    box = real.create(allow_internet_access=False, network={"denyOut": ["0.0.0.0/0"]})
    out = real.run(box, "ls /sys/class/net 2>/dev/null; grep -c : /proc/net/dev; "
                        "(exec 3<>/dev/tcp/1.1.1.1/80) 2>&1 | head -n 1 | grep -c -E 'unreachable|refused'")[1]
    assert out == b"1\n1\n", out


def test_case_082_put_network(server):
    box = server.create(network={"allowPublicTraffic": False, "denyOut": ["10.0.0.0/8"]})
    path = "/sandboxes/%s/network" % box["sandboxID"]
    r = server.api("PUT", path, {})
    assert r.status == 204 and r.body == b"", r
    n = server.get(box).json()["network"]
    assert n["allowPublicTraffic"] is False and not n.get("denyOut") and not n.get("allowOut")
    assert server.api("PUT", path, {"denyOut": ["8.8.8.8"]}).status == 204
    assert server.get(box).json()["network"]["denyOut"] == ["8.8.8.8"]
    refused(server.api("PUT", path, {"denyOut": ["example.com"]}), 400)
    refused(server.api("PUT", "/sandboxes/i00000000000000000000/network", {}), 404)
    server.api("POST", "/sandboxes/%s/pause" % box["sandboxID"])
    refused(server.api("PUT", path, {}), 404)


def test_case_084_placeholders_and_limits(real):
    def status(rules):
        r = real.api("POST", "/sandboxes", {"templateID": "base", "timeout": 30, "network": {"rules": rules}})
        return r.status, "agentbox-local" in r.json().get("message", "")

    def rule(n=1, value="x"):
        return [{"transform": {"headers": {"h%d" % i: value for i in range(n)}}}]
    assert status({"a.test": rule(value="${e2b.identity.tokens.}")}) == (400, False)
    assert status({"d%d.test" % i: rule() for i in range(11)}) == (400, False)
    assert status({"a.test": rule(21)}) == (400, False)
    assert status({"a.test": rule(value="${e2b.secrets.x}")}) == (400, True)     # well-formed, and not here
    assert status({"a.test": rule(value="${e2b.other.x}")}) in ((201, False), (400, True))      # e_egress.py


def test_case_085_proxy(real):
    for proxy in ({"address": "127.0.0.1:1080"}, {"address": "8.8.8.8:1080", "password": "x"}, {"address": "8.8.8.8"}):
        refused(real.api("POST", "/sandboxes", {"templateID": "base", "timeout": 30, "network": {"egressProxy": proxy}}), 400)


def test_case_132_metrics(real):
    box = real.create()
    path = "/sandboxes/%s/metrics" % box["sandboxID"]
    rows = real.api("GET", path).json()
    assert len(rows) >= 1
    assert set(rows[0]) == {"timestamp", "timestampUnix", "cpuCount", "cpuUsedPct", "memUsed", "memTotal", "memCache",
                            "diskUsed", "diskTotal"}
    assert rows == sorted(rows, key=lambda m: m["timestampUnix"])
    assert rows[0]["memTotal"] > 0 and rows[0]["diskTotal"] > 0
    with real.start(box, "while :; do :; done") as s:
        s.next()
        until(lambda: real.api("GET", path).json()[-1]["cpuUsedPct"] > 10, 12, "the busy loop to show")
    refused(real.api("GET", path + "?start=20&end=10"), 400)
    refused(real.api("GET", path + "?start=-1"), 400)
    assert real.api("GET", path + "?start=0&end=10").json() == []
    assert real.api("GET", "/sandboxes/i00000000000000000000/metrics").json() == []
    got = real.api("GET", "/sandboxes/metrics?sandbox_ids=%s,i00000000000000000000" % box["sandboxID"]).json()
    assert list(got["sandboxes"]) == [box["sandboxID"]]
    refused(real.api("GET", "/sandboxes/metrics?sandbox_ids=" + ",".join("i%020d" % i for i in range(101))), 400)
    refused(real.api("GET", "/sandboxes/metrics"), 400)


def test_case_133_logs(real):
    box = real.create()
    assert real.run(box, "exit 3")[3]["exitCode"] == 3
    path = "/v2/sandboxes/%s/logs" % box["sandboxID"]
    rows = real.api("GET", path).json()["logs"]
    assert [r["message"] for r in rows] == ["process exited", "process started", "envd started"]
    assert rows[0]["level"] == "warn" and rows[0]["fields"]["status"] == "exit status 3"
    assert all(isinstance(v, str) for r in rows for v in r["fields"].values())
    assert [r["timestamp"] for r in rows] == sorted((r["timestamp"] for r in rows), reverse=True)
    assert real.api("GET", path + "?direction=forward&limit=1").json()["logs"] == rows[-1:]
    assert [r["level"] for r in real.api("GET", path + "?level=warn").json()["logs"]] == ["warn"]
    assert len(real.api("GET", path + "?search=process").json()["logs"]) == 2
    for bad in ("limit=1001", "direction=up", "level=loud", "cursor=x", "search=" + "s" * 257):
        refused(real.api("GET", path + "?" + bad), 400)
    old = real.api("GET", "/sandboxes/%s/logs" % box["sandboxID"]).json()
    assert len(old["logs"]) == len(old["logEntries"]) == 3 and old["logs"][0]["line"]
    refused(real.api("GET", "/v2/sandboxes/i00000000000000000000/logs"), 404)


BARE = """import socket
s = socket.create_server(("127.0.0.1", 8010))
print("up", flush=True)
while True:
    c, _ = s.accept()
    head = b""
    while not head.endswith(b"\\r\\n\\r\\n"):
        head += c.recv(65536)
    c.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\nX-From-Program: a-b\\r\\nETag: w\\r\\n\\r\\n" % len(head) + head)
    c.close()
"""


def test_e_6_names_of_headers(real):
    """E-6: on HTTP/1.1 names arrive in the case that Go's proxies, and with them the cloud, write, both ways."""
    box = real.create()
    with real.start(box, argv=["/usr/bin/python3", "-u", "-c", BARE]) as s:
        events = (event_of(m) for m in s)
        assert next(e for e in events if e[0] == "stdout")
        with socket.create_connection((real.address, real.port), 10) as c:
            c.sendall(("GET /x-y HTTP/1.1\r\nhost: 8010-%s.localhost\r\nX-MiXed-case: v-V\r\naccept: */*\r\nConnection: close\r\n\r\n"
                       % box["sandboxID"]).encode())
            got = b""
            while more := c.recv(65536):
                got += more
        head, _, seen = got.decode().partition("\r\n\r\n")
        for line in ("Host: 8010-%s.localhost" % box["sandboxID"], "X-Mixed-Case: v-V", "Accept: */*"):
            assert line in seen.split("\r\n"), seen
        for line in ("X-From-Program: a-b", "Etag: w", "Content-Length: %d" % len(seen)):
            assert line in head.split("\r\n"), head
