# SPDX-License-Identifier: MIT
"""Hostile peers of the gateway, in both directions and on both versions (GATEWAY §4.6): smuggling, slow and endless heads, floods. What
HTTP/1.1 clients send is in w_door.py."""
import http.client
import re
import socket
import ssl
import time

import pytest

import h2fiend as h2
import harness
from fakecloud.certs import Authority
from g_relay import Through
from g_relay_wire import Edge

MARK = "smuggled"


class Place:
    """A gateway in clear and with TLS, and an edge behind it that speaks HTTP/1.1 and writes down what comes."""

    def __init__(self, local):
        self.edge = Edge()
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        authority = Authority(harness.temp_dir(), "gateway test CA")
        cert, key = authority.issue()
        self.d = harness.Daemon(local, {"gateway": {"listen": "localhost:%d" % self.port, "tls_cert": cert, "tls_key": key},
                                        "account default": {"sandbox_url": "http://127.0.0.1:%d" % self.edge.port, "cloud": "agentbox"}})
        self.d.wait_log(r"\bgateway listen=")
        self.token = self.d.ctl("token", "create").stdout.strip()
        self.box = self.d.ctl("create").stdout.strip()
        self.ctx = {}
        for version in ("h2", "http/1.1"):
            ctx = self.ctx[version] = ssl.create_default_context(cafile=authority.cert)
            ctx.set_alpn_protocols([version])
        self.to_port = [("agentbox-sandbox-id", self.box), ("agentbox-sandbox-port", "3000"), ("agentboxd-token", self.token)]

    def client(self, **kw):
        return h2.Client(("localhost", self.port), self.ctx["h2"], **kw)

    def get(self, path="/", body=None):
        """Status and body of a request for the port by HTTP/1.1; None: the connection ended."""
        c = http.client.HTTPSConnection("localhost", self.port, timeout=20, context=self.ctx["http/1.1"])
        try:
            c.request("POST" if body else "GET", path, body, dict(self.to_port))
            r = c.getresponse()
            return r.status, r.read()
        except (http.client.HTTPException, ConnectionError):
            return None
        finally:
            c.close()

    def close(self):
        self.d.close()
        self.edge.server.close()


@pytest.fixture(scope="module")
def place(local_session):
    p = Place(local_session)
    yield p
    p.close()


@pytest.fixture(autouse=True)
def still_there(place):
    place.edge.answer = None
    del place.edge.heads[:], place.edge.bodies[:]
    yield
    place.edge.answer = None
    assert place.get("/after") == (200, b"ok"), "the door is shut for others"


# --- HTTP/2 in front, HTTP/1.1 behind

LINE = "x\r\n\r\nGET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % MARK
SMUGGLED = {
    "a coding": ([("transfer-encoding", "chunked")], b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"),
    "a length that is too short": ([("content-length", "2")], b"okGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"),
    "a length that is too long": ([("content-length", "200")], b"ok"),
    "two lengths": ([("content-length", "2"), ("content-length", "40")], b"okGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"),
    "a signed length": ([("content-length", "+2")], b"ok"),
    "lines in a value": ([("x-a", LINE)], b""),
    "a line feed in a value": ([("x-a", "b\nTransfer-Encoding: chunked\n\nGET /%s HTTP/1.1" % MARK)], b""),
    "NUL in a value": ([("x-a", "a\0GET /" + MARK)], b""),
    "lines in a name": ([("x-a: b\r\ny-smuggled", "c")], b""),
    "a colon in a name": ([("transfer-encoding:", "chunked")], b"0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"),
    "a blank in a name": ([("transfer-encoding ", "chunked")], b"0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"),
    "an upper case name": ([("Transfer-Encoding", "chunked")], b"0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"),
    "hop by hop": ([("connection", "keep-alive, x-smuggled"), ("x-smuggled", "1")], b""),
    "an upgrade": ([("upgrade", "h2c"), ("http2-settings", "AAMAAABkAARAAAAAAAIAAAAA")], b""),
    "another host": ([("host", "smuggled.example")], b""),
}
PSEUDO = {
    "lines in the path": {":path": "/ HTTP/1.1\r\nX: y\r\n\r\nGET /smuggled"},
    "a blank in the path": {":path": "/a /smuggled HTTP/1.1"},
    "no slash": {":path": "smuggled"},
    "lines in the method": {":method": "GET /smuggled HTTP/1.1\r\nX: y\r\n\r\nGET"},
    "a blank in the method": {":method": "GET /smuggled"},
    "lines in the authority": {":authority": "localhost\r\nX-Smuggled: y"},
    "a user in the authority": {":authority": "smuggled@localhost"},
    "lines in the scheme": {":scheme": "https\r\nX-Smuggled: y"},
    "another pseudo field": {":smuggled": "x"},
}


def rejected(place, c, sid, seen):
    """An error answer or a reset; at the edge at most one request, with nothing in it that was not this request's own."""
    end = c.until(lambda f: f[0] == h2.GOAWAY or (f[2] == sid and f[0] in (h2.HEADERS, h2.RST)))
    status = dict(c.decoder.decode(end[3])).get(":status") if end and end[0] == h2.HEADERS else None
    c.close()
    heads = place.edge.heads[seen:]
    assert len(heads) <= 1, heads
    assert not any(MARK in line.lower() for head in heads for line in head), heads
    return status


@pytest.mark.parametrize("what", sorted(SMUGGLED))
def test_smuggling_through_the_versions(place, what):
    fields, body = SMUGGLED[what]
    c, seen = place.client(), len(place.edge.heads)
    pseudo = [(":method", "POST"), (":scheme", "https"), (":authority", "localhost:%d" % place.port), (":path", "/x")]
    c.send(h2.headers(1, h2.block(*(pseudo + place.to_port + fields)), end=not body))
    if body:
        c.send(h2.frame(h2.DATA, h2.END_STREAM, 1, body))
    status = rejected(place, c, 1, seen)
    if what not in ("hop by hop", "an upgrade", "another host"):
        assert status is None or status[0] in "45", status


@pytest.mark.parametrize("what", sorted(PSEUDO))
def test_smuggling_by_the_first_line(place, what):
    c, seen = place.client(), len(place.edge.heads)
    pseudo = dict({":method": "GET", ":scheme": "https", ":authority": "localhost:%d" % place.port, ":path": "/x"}, **PSEUDO[what])
    c.send(h2.headers(1, h2.block(*(list(pseudo.items()) + place.to_port)), end=True))
    status = rejected(place, c, 1, seen)
    assert status is None or status[0] in "45", status


def test_a_pseudo_field_twice(place):
    c, seen = place.client(), len(place.edge.heads)
    c.send(h2.headers(1, h2.block((":method", "GET"), (":path", "/x"), (":path", "/smuggled"), (":scheme", "https"),
                                  (":authority", "localhost"), *place.to_port), end=True))
    status = rejected(place, c, 1, seen)
    assert status is None or status[0] in "45"


# --- floods and slow heads on HTTP/2

def quick(place):
    """Another client is answered meanwhile."""
    since = time.monotonic()
    assert place.get("/meanwhile") == (200, b"ok")
    return time.monotonic() - since


FLOODS = {
    "resets": lambda p, c, i: c.send(h2.headers(2 * i + 1, p.block, end=True) + h2.rst(2 * i + 1, 8)),
    "pings": lambda p, c, i: c.send(h2.frame(h2.PING, 0, 0, b"12345678") * 50),
    "settings": lambda p, c, i: c.send(h2.settings((3, 100)) * 50),
    "empty bodies": lambda p, c, i: c.send((h2.headers(1, p.block_post) if i == 0 else b"") + h2.frame(h2.DATA, 0, 1, b"") * 50),
    "windows": lambda p, c, i: c.send(h2.window(0, 1) * 50),
    "heads without an end": lambda p, c, i: c.send(h2.headers(1, h2.block(("x-%d" % i, "y" * 4000)), done=False) if i == 0 else
                                                   h2.frame(h2.CONTINUATION, 0, 1, h2.block(("x-%d" % i, "y" * 4000)))),
}


@pytest.mark.parametrize("what", sorted(FLOODS))
@pytest.mark.timeout(120)
def test_floods_of_frames(place, what):
    pseudo = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost:%d" % place.port), (":path", "/x")] + place.to_port
    place.block = h2.block(*pseudo)
    place.block_post = h2.block((":method", "POST"), *pseudo[1:])
    c = place.client()
    c.sock.settimeout(3)                # it reads nothing
    until, i, slowest = time.monotonic() + 2, 0, 0
    while time.monotonic() < until and FLOODS[what](place, c, i):
        i += 1
        if i % 500 == 100:
            slowest = max(slowest, quick(place))
    slowest = max(slowest, quick(place))
    c.close()
    print("%s: %d rounds, another client's slowest answer %.0f ms" % (what, i, slowest * 1000))
    assert slowest < 5, slowest
    assert place.d.proc.poll() is None


@pytest.mark.timeout(60)
def test_slow_heads_of_http2(place):
    """A frame of a head now and then holds no connection for ever, and no byte of it a stream of others."""
    c = place.client()
    c.send(h2.headers(1, h2.block((":method", "GET")), done=False))
    since = time.monotonic()
    while c.send(h2.frame(h2.CONTINUATION, 0, 1, h2.literal("x", "y"))):
        assert time.monotonic() - since < 40, "still open"
        time.sleep(0.5)                 # the rate is the attack
    c.close()


# --- an edge, or a sandbox behind it, that means harm

SPLIT = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled"
ANSWERS = {
    "length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SPLIT,
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 60\r\n\r\nok" + SPLIT,
    "signed length": b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
    "a second answer": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + SPLIT,
    "an answer to nothing behind a 204": b"HTTP/1.1 204 No Content\r\nContent-Length: 50\r\n\r\n" + SPLIT,
    "a line feed in a value": b"HTTP/1.1 200 OK\r\nX-A: b\nContent-Length: 0\r\nContent-Length: 2\r\n\r\nok",
    "NUL in a value": b"HTTP/1.1 200 OK\r\nX-A: a\0b\r\nContent-Length: 2\r\n\r\nok",
    "a folded line": b"HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 2\r\n\r\nok",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nok",
    "no version": b"200 OK\r\nContent-Length: 2\r\n\r\nok",
    "bad size of a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nok\r\n0\r\n\r\n",
    "a head that is too long": b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"y" * 1000) for i in range(2000)) + b"\r\n",
    "an upgrade that nobody asked for": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n" + SPLIT,
    "interim answers without an end": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 2000,
}


@pytest.mark.parametrize("version", ["h2", "http/1.1"])
@pytest.mark.parametrize("what", sorted(ANSWERS))
def test_answers_that_mean_harm(place, what, version):
    """The client is told an error, or the one answer, and no byte of another; whoever asks next gets his own."""
    def hostile(edge, c, rest):
        try:
            c.sendall(ANSWERS[what])
        except OSError:
            pass
        return True             # open: what is left of it would be the next one's answer
    place.edge.answer = hostile
    if version == "h2":
        c = place.client()
        c.send(h2.headers(1, h2.block((":method", "GET"), (":scheme", "https"), (":authority", "localhost:%d" % place.port), (":path", "/x"),
                                      *place.to_port), end=True))
        c.until(lambda f: f[0] == h2.GOAWAY or (f[2] == 1 and (f[0] == h2.RST or f[1] & h2.END_STREAM)))
        data = b"".join(f[3] for f in c.inbox if f[0] == h2.DATA)
        c.close()
    else:
        data = (place.get("/x") or (0, b""))[1]
    assert b"smuggled" not in data
    place.edge.answer = None
    for _ in range(3):
        assert place.get("/next") == (200, b"ok")


def test_a_field_of_ours_from_behind(place):
    """Fields of the gateway's own cannot be set by a sandbox, nor read by it."""
    place.edge.answer = lambda edge, c, rest: bool(c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")) or True
    assert place.get("/x")[0] == 200
    head = "\n".join(place.edge.heads[-1])
    assert place.token not in head and not re.search(r"^agentboxd-token", head, re.M | re.I)
