# SPDX-License-Identifier: MIT
"""An HTTP/2 peer that says exactly what it is told to, frame by frame, in either role, over TLS or in clear.

    with Server(authority) as s:                      # a hostile cloud
        s.script = lambda c, r: c.send(bomb(r.sid))   # called for each request, in a thread of its connection
    c = Client(socket_path)                           # a hostile client
    c.send(frame(PING, 0, 0, bytes(8)) * 10000)

Nothing is checked and nothing is answered by itself but SETTINGS and PING (`answers`), so that what a library would
refuse to send can be sent. Requests are decoded with a decoder of their own (`hpack`), which shows when an encoder loses
its step.
"""
import json
import socket
import ssl
import struct
import threading

import hpack

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
ALTSVC, ORIGIN = 10, 12
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
TABLE_SIZE, ENABLE_PUSH, MAX_STREAMS, INITIAL_WINDOW, MAX_FRAME, MAX_HEADER_LIST = range(1, 7)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SPLIT = 16384


def frame(kind, flags=0, sid=0, payload=b"", length=None):
    """One frame; `length` may lie."""
    n = len(payload) if length is None else length
    return n.to_bytes(3, "big") + bytes([kind, flags]) + sid.to_bytes(4, "big") + payload


def settings(*pairs, ack=False):
    return frame(SETTINGS, ACK if ack else 0, 0, b"".join(k.to_bytes(2, "big") + v.to_bytes(4, "big") for k, v in pairs))


def window(sid, n):
    return frame(WINDOW_UPDATE, 0, sid, n.to_bytes(4, "big"))


def rst(sid, code):
    return frame(RST, 0, sid, code.to_bytes(4, "big"))


def goaway(last, code=0, text=b""):
    return frame(GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big") + text)


def _int(n, bits, first=0):
    """HPACK's integer."""
    top = (1 << bits) - 1
    if n < top:
        return bytes([first | n])
    out, n = [first | top], n - top
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + [n])


def literal(name, value, index=False):
    """A field as a literal, into the table or not; nothing is coded by Huffman, nothing is looked up."""
    name, value = (x.encode() if isinstance(x, str) else x for x in (name, value))
    return bytes([0x40 if index else 0]) + _int(len(name), 7) + name + _int(len(value), 7) + value


def indexed(n):
    return _int(n, 7, 0x80)


def block(*fields):
    return b"".join(literal(k, v) for k, v in fields)


def headers(sid, payload, end=False, done=True):
    """HEADERS, and CONTINUATION as often as needed."""
    parts = [payload[i:i + SPLIT] for i in range(0, len(payload), SPLIT)] or [b""]
    out = b""
    for i, p in enumerate(parts):
        flags = (END_HEADERS if done and i == len(parts) - 1 else 0) | (END_STREAM if end and i == 0 else 0)
        out += frame(CONTINUATION if i else HEADERS, flags, sid, p)
    return out


def answer(sid, status=200, body=b"", fields=()):
    """A proper one."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    head = [(":status", str(status)), ("content-type", "application/json"), ("content-length", str(len(body)))]
    return headers(sid, block(*(head + list(fields))), end=not body) + (
        frame(DATA, END_STREAM, sid, body) if body else b"")


def request(sid, path="/", authority="localhost", fields=(), end=True, method="POST"):
    return headers(sid, block((":method", method), (":scheme", "http"), (":authority", authority), (":path", path),
                              *fields), end=end)


class Request:
    def __init__(self, sid, fields, ended):
        self.sid, self.fields, self.ended, self.body = sid, fields, ended, b""

    def get(self, name):
        return dict(self.fields).get(name)


class Peer:
    """One connection, either role. `inbox` is what came, as (kind, flags, sid, payload)."""

    def __init__(self, sock):
        self.sock = sock
        self.inbox = []
        self.n_sent = 0
        self.decoder = hpack.Decoder()
        self.decoder.max_header_list_size = 1 << 20
        self.answers = True
        self._buffer = b""
        self._lock = threading.Lock()

    def send(self, data):
        """False once the peer is gone."""
        try:
            with self._lock:
                self.sock.sendall(data)
            self.n_sent += len(data)
            return True
        except OSError:
            return False

    def take(self, n):
        while len(self._buffer) < n:
            try:
                more = self.sock.recv(65536)
            except (ConnectionError, ssl.SSLError):
                return None
            if not more:
                return None
            self._buffer += more
        out, self._buffer = self._buffer[:n], self._buffer[n:]
        return out

    def read(self):
        """The next frame, or None at the end."""
        head = self.take(9)
        if head is None:
            return None
        payload = self.take(int.from_bytes(head[:3], "big"))
        if payload is None:
            return None
        f = head[3], head[4], int.from_bytes(head[5:], "big") & 0x7fffffff, payload
        if self.answers and f[0] == SETTINGS and not f[1] & ACK:
            self.send(settings(ack=True))
        if self.answers and f[0] == PING and not f[1] & ACK:
            self.send(frame(PING, ACK, 0, payload))
        self.inbox.append(f)
        return f

    def until(self, want):
        """Reads until want(frame); None if the peer ended first."""
        while True:
            f = self.read()
            if f is None or want(f):
                return f

    def goaway_code(self):
        """Reads to the end; the code of the peer's last GOAWAY, -1 without one."""
        self.until(lambda f: False)
        codes = [int.from_bytes(f[3][4:8], "big") for f in self.inbox if f[0] == GOAWAY]
        return codes[-1] if codes else -1

    def close(self):
        try:
            self.sock.close()
        except OSError:
            pass


class Client(Peer):
    def __init__(self, target, ctx=None, timeout=20, pairs=(), hello=True):
        """`target`: a path, or (host, port)."""
        if isinstance(target, str):
            sock = socket.socket(socket.AF_UNIX)    # connect(2) waits for a place in the queue, if it blocks
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(timeout), 0))
            sock.connect(target)
            sock.settimeout(timeout)
        else:
            sock = socket.create_connection(target, timeout)
        if ctx:
            sock = ctx.wrap_socket(sock, server_hostname="localhost")
        super().__init__(sock)
        if hello:
            self.send(PREFACE + settings(*pairs))

    def grpc(self, sid, path, message=b"", fields=(), end=True):
        body = b"\0" + len(message).to_bytes(4, "big") + message
        return request(sid, path, fields=[("content-type", "application/grpc"), ("te", "trailers"), *fields],
                       end=False) + frame(DATA, END_STREAM if end else 0, sid, body)


class Conn(Peer):
    """A connection of the server: reads requests and runs the script for each."""

    def __init__(self, server, sock):
        super().__init__(sock)
        self.server = server
        self.requests = {}
        self.number = 0

    def serve(self):
        if self.take(len(PREFACE)) != PREFACE:
            return
        self.answers = self.server.answers
        self.send(self.server.greeting)
        pieces = b""
        while True:
            f = self.read()
            if f is None:
                return
            kind, flags, sid, payload = f
            if kind in (HEADERS, CONTINUATION):
                if kind == HEADERS and flags & 0x20:
                    payload = payload[5:]
                pieces += payload
                if kind == HEADERS:
                    ends = bool(flags & END_STREAM)
                if flags & END_HEADERS:
                    r = Request(sid, [(k, v) for k, v in self.decoder.decode(pieces)], ends)
                    pieces = b""
                    self.requests[sid] = r
                    self.server.note(self, r)
            elif kind == DATA and sid in self.requests:
                r = self.requests[sid]
                r.body += payload
                r.ended |= bool(flags & END_STREAM)
                self.server.note(self, r)


class Server:
    """`script(conn, request)` runs when a request's head came, and again with each piece of its body. After the
    `hostile`-th request (None: never) `good` is played instead, so that what comes after can be looked at."""

    def __init__(self, authority=None):
        self.authority = authority
        self.script = self.good = lambda c, r: r.ended and c.send(answer(r.sid, 404, {"code": 404, "message": "no"}))
        self.hostile = None
        self.greeting = settings((MAX_STREAMS, 100), (INITIAL_WINDOW, 1 << 20)) + window(0, 1 << 20)
        self.answers = True      # SETTINGS and PING are acknowledged
        self.seen = []
        self.conns = []
        self.errors = []
        self.key, self.other_key = "e2b_" + "0123456789abcdef" * 2 + "01234567", "e2b_" + "f" * 40

    def start(self):
        self.sock = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.sock.getsockname()[1]
        self.ca = self.ctx = None
        if self.authority:
            self.ca = self.authority.cert
            self.ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.ctx.load_cert_chain(*self.authority.issue())
            self.ctx.set_alpn_protocols(["h2"])
        self.url = "%s://127.0.0.1:%d" % ("https" if self.ctx else "http", self.port)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def _accept(self):
        while True:
            try:
                sock, _ = self.sock.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        try:
            if self.ctx:
                sock = self.ctx.wrap_socket(sock, server_side=True)
            c = Conn(self, sock)
            self.conns.append(c)
            c.number = len(self.conns)
            c.serve()
        except (OSError, hpack.HPACKError) as e:
            if not isinstance(e, OSError):
                self.errors.append(e)
        finally:
            sock.close()

    def note(self, conn, r):
        if r.body == b"" and not any(x is r for _, x in self.seen[-200:]):
            self.seen.append((conn, r))
            r.number = len(self.seen)
        play = self.script if self.hostile is None or r.number <= self.hostile else self.good
        play(conn, r)

    def stop(self):
        self.sock.close()
        for c in self.conns:
            try:
                c.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc):
        self.stop()
        assert not self.errors, self.errors[0]
