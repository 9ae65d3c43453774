# SPDX-License-Identifier: MIT
"""What the gateway sends on, byte by byte, to an edge that writes it down and answers as the test says; and the same through two of
Go's reverse proxies (B-1)."""
import concurrent.futures
import socket
import subprocess
import threading
import time

import pytest

import harness
from g_relay import Through
from harness import until
from i_goproxy import BUILD_S, FULL, chain, revproxy  # noqa: F401
from wire import CUT, Client, event_of

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Edge:
    """HTTP/1.1 in clear. `answer(edge, connection, head)` says what happens once a head is there; None: OK."""

    def __init__(self):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.heads, self.bodies, self.open, self.answer = [], [], 0, None
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                c, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self.one, args=(c,), daemon=True).start()

    def one(self, c):
        self.open += 1
        try:
            while True:
                got = b""
                while b"\r\n\r\n" not in got:
                    more = c.recv(65536)
                    if not more:
                        return
                    got += more
                head, rest = got.split(b"\r\n\r\n", 1)
                self.heads.append(head.decode().split("\r\n"))
                if self.answer:
                    if not self.answer(self, c, rest):
                        return
                    continue
                want = int(self.field("content-length") or 0)
                while len(rest) < want or (self.field("transfer-encoding") and not rest.endswith(b"0\r\n\r\n")):
                    rest += c.recv(65536)
                self.bodies.append(rest)
                c.sendall(OK)
        except OSError:
            pass
        finally:
            self.open -= 1
            c.close()

    def field(self, name):
        """Of the last head; None if absent, an error if it is there twice."""
        values = [v for k, _, v in (line.partition(": ") for line in self.heads[-1][1:]) if k.lower() == name]
        assert len(values) < 2, self.heads[-1]
        return values[0] if values else None

    def names(self):
        return sorted(line.partition(":")[0].lower() for line in self.heads[-1][1:])


def gateway(local, behind, sandbox_url, **account):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    d = harness.Daemon(behind, {"gateway": {"listen": "127.0.0.1:%d" % port},
                               "account default": dict({"sandbox_url": sandbox_url}, **account)})
    d.wait_log(r"\bgateway listen=")
    return Through(local, d, port)


@pytest.fixture
def through(local):
    """(a client of the gateway, the edge behind it)."""
    e = Edge()
    c = gateway(local, local, "http://127.0.0.1:%d" % e.port, cloud="agentbox")
    yield c, e
    c.close()
    c.daemon.close()
    e.server.close()


def test_fields_of_a_call(through):
    c, e = through
    box = c.create_ours()
    r = c.envd(box, "POST", "/process.Process/List?q=1",
               [("Content-Type", "application/json"), ("User-Agent", "t"), ("Agentboxd-Token", "ab_x"), ("Connection", "x-mine"),
                ("X-Mine", "1"), ("Agentbox-Traffic-Access-Token", "tt")], b"{}")
    assert r.status == 200 and r.body == b"ok" and e.bodies[-1] == b"{}"
    assert e.heads[-1][0] == "POST /process.Process/List?q=1 HTTP/1.1"
    # The account is AgentBox's; the client said E2b-….
    assert e.field("agentbox-sandbox-id") == box["sandboxID"] and e.field("agentbox-sandbox-port") == "49983"
    assert e.field("x-access-token") == box["envdAccessToken"] and e.field("agentbox-traffic-access-token") == "tt"
    assert e.field("host") == "127.0.0.1:%d" % e.port and e.field("agentboxd-hop") == "1"
    assert e.names() == sorted(["host", "agentbox-sandbox-id", "agentbox-sandbox-port", "agentbox-traffic-access-token", "agentboxd-hop",
                                "x-access-token", "content-type", "content-length", "user-agent"])


def test_streams_announce_no_length(through):
    """B-1, deterministically: the client announces one, the gateway does not."""
    c, e = through
    box = c.create_ours()
    for kind in ("application/connect+json", "application/connect+proto", "application/grpc", "application/grpc-web+proto"):
        c.envd(box, "POST", "/process.Process/Start", [("Content-Type", kind)], b"12345")
        assert e.field("content-length") is None and e.field("transfer-encoding") == "chunked", kind
        assert e.bodies[-1] == b"5\r\n12345\r\n0\r\n\r\n"
    c.envd(box, "POST", "/files?path=x", [("Content-Type", "application/octet-stream")], b"12345")
    assert e.field("content-length") == "5" and e.field("transfer-encoding") is None


def test_ports_at_a_fixed_address(through):
    """The client's Host goes on; a label that names the port needs no routing headers, headers are spelled anew."""
    c, e = through
    box = c.create_ours()
    named = "8080-%s.localhost:%d" % (box["sandboxID"], c.port)
    c.request("GET", "/x?y=%2F", [("Authorization", "Basic eA=="), ("X-API-Key", "k")], host=named)
    assert e.heads[-1][0] == "GET /x?y=%2F HTTP/1.1" and e.field("host") == named
    assert e.names() == ["authorization", "host", "x-api-key"]
    c.request("GET", "/", [("E2b-Sandbox-Id", box["sandboxID"]), ("E2b-Sandbox-Port", "8080")])
    assert e.field("host") == "127.0.0.1:%d" % c.port
    assert e.names() == ["agentbox-sandbox-id", "agentbox-sandbox-port", "host"]


def test_interim_heads_pass_as_they_come(through):
    """GATEWAY §3: 1xx; also after the body was asked for, and none of them is the answer."""
    c, e = through
    box = c.create_ours()
    asked = threading.Event()

    def hints(edge, conn, rest):
        conn.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n"
                     b"HTTP/1.1 103 Early Hints\r\nlink: </b.css>; rel=preload\r\nX-A: b\r\n\r\n")
        asked.wait(10)
        conn.sendall(b"HTTP/1.1 102 Processing\r\n\r\n" + OK)
        return True
    e.answer = hints
    s = slow(c, box, "/files?path=x")
    got = b""
    while got.count(b"\r\n\r\n") < 2:      # before there is an answer
        got += s.recv(65536)
    asked.set()
    while not got.endswith(b"ok"):
        got += s.recv(65536)
    s.close()
    heads = [h.split(b"\r\n") for h in got.split(b"\r\n\r\n")]
    assert heads[0] == [b"HTTP/1.1 103 Early Hints", b"Link: </a.css>; rel=preload"]
    assert heads[1][0] == b"HTTP/1.1 103 Early Hints" and {h.lower() for h in heads[1][1:]} == {b"link: </b.css>; rel=preload", b"x-a: b"}
    assert heads[2] == [b"HTTP/1.1 102 Processing"] and heads[3][0] == b"HTTP/1.1 200 OK"


def upload(c, box, data, *words):
    """By curl, which waits up to 20 s for the word to go on: status, bytes sent, seconds, and what it heard."""
    head = [w for k, v in c.identity(box) for w in ("-H", "%s: %s" % (k, v))]
    argv = ["curl", "-sv", "--noproxy", "*", "--expect100-timeout", "20", "-H", "Expect: 100-continue", *head, "--data-binary", "@-",
            "-w", "\n%{http_code} %{size_upload} %{time_total}", *words, "http://127.0.0.1:%d/files?path=x" % c.port]
    r = subprocess.run(argv, input=data, capture_output=True, timeout=60, check=True)
    status, sent, took = r.stdout.rsplit(b"\n", 1)[1].split()
    return int(status), int(sent), float(took), [x[2:].strip() for x in r.stderr.decode().splitlines() if x.startswith("< HTTP")]


def test_expect_is_for_the_program_inside(through):
    """A big upload waits for its word; one that it refuses never leaves the client; one that says nothing gets it a second later."""
    c, e = through
    box = c.create_ours()
    data = bytes(range(256)) * 32768

    def takes(edge, conn, rest):
        assert not rest and edge.field("expect") == "100-continue" and edge.field("content-length") == str(len(data))
        conn.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        while len(rest) < len(data):
            rest += conn.recv(1 << 20)
        edge.bodies.append(rest)
        conn.sendall(OK)
        return True

    def refuses(edge, conn, rest):
        conn.sendall(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
        return False

    def says_nothing(edge, conn, rest):
        while len(rest) < len(data):
            rest += conn.recv(1 << 20)
        edge.bodies.append(rest)
        conn.sendall(OK)
        return True
    e.answer = takes
    status, sent, took, heads = upload(c, box, data)
    assert (status, sent) == (200, len(data)) and e.bodies[-1] == data and heads == ["HTTP/1.1 100 Continue", "HTTP/1.1 200 OK"]
    e.answer = refuses
    status, sent, took, heads = upload(c, box, data)
    assert (status, sent) == (413, 0) and heads == ["HTTP/1.1 413 Content Too Large"], (status, sent, heads)
    e.answer = says_nothing
    status, sent, took, heads = upload(c, box, data)
    assert (status, sent) == (200, len(data)) and e.bodies[-1] == data and 0.9 <= took < 15
    assert heads == ["HTTP/1.1 100 Continue", "HTTP/1.1 200 OK"]


def test_the_edge_is_not_there(through):
    """503, not 502: nothing is known of the sandbox. Only what never reached the wire is sent again."""
    c, e = through
    box = c.create_ours()

    def cut(edge, conn, rest):
        return False
    e.answer = cut
    n = len(e.heads)
    r = c.envd(box, "POST", "/process.Process/List", [("Content-Type", "application/json")], b"{}")
    assert r.status == 503 and len(e.heads) == n + 1, (r, e.heads[n:])
    e.server.close()
    until(lambda: not e.open, 5, "the edge's connections")
    for _ in range(2):
        r = c.envd(box, "GET", "/health")
        assert r.status == 503, r


def test_a_reset_in_mid_answer_is_passed_on(through):
    c, e = through
    box = c.create_ours()

    def some(edge, conn, rest):
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
        time.sleep(0.2)
        return False
    e.answer = some
    with pytest.raises(CUT):
        c.envd(box, "GET", "/files?path=x")


def test_what_came_before_a_reset_is_passed_on_to_a_slow_reader(through):
    """All of it: the end of the one side does not throw away what the other has not taken yet."""
    c, e = through
    box = c.create_ours()
    size = 4 << 20

    def some(edge, conn, rest):
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n" + bytes(size))
        return False
    e.answer = some
    s = slow(c, box, "/files?path=x")
    until(lambda: e.heads, 5, "the request")
    time.sleep(0.5)
    got = b"".join(iter(lambda: s.recv(65536), b""))
    s.close()
    assert len(got.split(b"\r\n\r\n", 1)[1]) == size


def test_an_error_of_the_edge_is_told_to_the_core_once(through):
    """The edge says that there is no such sandbox, the cloud that it runs: the answer passes, the core asked."""
    c, e = through
    box = c.create_ours()
    body = b'{"sandboxId":"%s","message":"x","code":502}' % box["sandboxID"].encode()

    def gone(edge, conn, rest):
        conn.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        return True
    e.answer = gone
    for _ in range(3):
        r = c.envd(box, "GET", "/health")
        assert r.status == 502 and r.body == body
    assert c.daemon.ctl("--json", "get", box["sandboxID"]).returncode == 0


def slow(c, box, target, method="GET"):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    s.connect((c.address, c.port))
    s.sendall(("%s %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (
        method, target, "".join("%s: %s\r\n" % h for h in c.identity(box)))).encode())
    return s


@pytest.mark.plain
def test_slow_readers_hold_their_program_up_and_nobody_else(through):
    """A hundred that read nothing: what waits for each is bounded, and others are served meanwhile."""
    c, e = through
    box = c.create_ours()
    sent = []

    def flood(edge, conn, rest):
        if "/flood" not in edge.heads[-1][0]:
            conn.sendall(OK)
            return True
        sent.append(0)
        k = len(sent) - 1
        conn.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while sent[k] < 64 << 20:
            sent[k] += conn.send(bytes(65536))
        return False
    e.answer = flood
    before = c.daemon.rss_kb()
    readers = [slow(c, box, "/flood") for _ in range(100)]
    until(lambda: len(sent) == 100, 20, "the floods", c.daemon)
    was = [0]

    def stands():
        was.append(sum(sent))
        time.sleep(0.3)
        return was[-1] == was[-2]
    until(stands, 30, "them to stand still", c.daemon)
    grown = c.daemon.rss_kb() - before
    assert harness.ASAN or grown < 100 * 1024, grown    # a MiB for each
    begin = time.monotonic()
    assert c.envd(box, "GET", "/envs").body == b"ok" and time.monotonic() - begin < 1
    for s in readers:
        s.close()
    until(lambda: e.open <= 2, 10, "the floods to be reset", c.daemon)


@pytest.mark.plain
def test_a_gibibyte_each_way(through):
    """As it comes, with bounded memory."""
    c, e = through
    box = c.create_ours()
    size, got = (1 << 30 if FULL else 256 << 20), []

    def both(edge, conn, rest):
        if edge.heads[-1][0].startswith("POST"):
            n = len(rest)
            while n < size:
                more = conn.recv(1 << 20)
                assert more
                n += len(more)
            got.append(n)
            conn.sendall(OK)
            return True
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        block, n = bytes(1 << 20), 0
        while n < size:
            conn.sendall(block)
            n += len(block)
        return True
    e.answer = both
    hwm = c.daemon.hwm_kb()
    s = socket.create_connection((c.address, c.port))
    head = "".join("%s: %s\r\n" % h for h in c.identity(box))
    s.sendall(("POST /files?path=x HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n"
               % (head, size)).encode())
    block = bytes(1 << 20)
    for _ in range(size >> 20):
        s.sendall(block)
    assert s.recv(15) == b"HTTP/1.1 200 OK" and got == [size]
    s.close()
    s = slow(c, box, "/files?path=x")
    n, answer = 0, s.recv(65536)
    n = len(answer.split(b"\r\n\r\n", 1)[1])
    while n < size:
        n += len(s.recv(1 << 20))
    s.close()
    assert n == size and (harness.ASAN or c.daemon.hwm_kb() - hwm < 8 * 1024), c.daemon.hwm_kb() - hwm


@pytest.mark.timeout((600 if FULL else 120) + BUILD_S)
def test_streams_through_two_go_proxies(local, chain):  # noqa: F811
    """B-1: Go's proxies cut 1 to 3 % of the streams that announce a length. None is cut, no output is lost or doubled."""
    c = gateway(local, chain, chain.sandbox_url)
    try:
        box_id = c.daemon.ctl("create").stdout.strip()
        box = Client(local.plain_url, local.key).get({"sandboxID": box_id}).json()

        def one(_):
            with c.start(box, "echo hi; exit 2") as s:
                events = [event_of(m) for m in s]
            out = b"".join(e[1] for e in events if e[0] == "stdout")
            return None if out == b"hi\n" and events[-1][0] == "end" and s.end == {} else (events, s.end)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            bad = [r for r in pool.map(one, range(2000 if FULL else 160)) if r]
        assert not bad, bad[:3]
        c.daemon.ctl("kill", box_id)
    finally:
        c.daemon.close()
