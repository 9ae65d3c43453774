# SPDX-License-Identifier: MIT
"""HTTP/1.1 byte by byte, for those who want an answer's head as it was sent.

    answer = exchange((host, port), "GET", "/health", [("Host", "x")], b"")     # a golden.Message
    with Open(address, "POST", target, headers, body) as o:                     # an answer that comes bit by bit
        o.head(); o.more(); …
"""
import socket

from golden import Message


class Open:
    """One request on a connection of its own, and what has come of its answer so far, without its chunks."""

    def __init__(self, address, method, target, headers, body=b"", timeout=30):
        self.sock = socket.create_connection(address, timeout=timeout)
        self.buf = b""
        self.body = b""
        self.done = False
        self.status = None
        self.headers = []
        head = "%s %s HTTP/1.1\r\n%s\r\n" % (method, target, "".join("%s: %s\r\n" % h for h in headers))
        self.sock.sendall(head.encode("latin-1") + body)
        self.bodiless = method == "HEAD"

    def _read(self):
        data = self.sock.recv(65536)
        if not data:
            raise ConnectionError("the connection ended after %r" % (self.body[-200:] or self.buf))
        self.buf += data

    def _line(self):
        while b"\r\n" not in self.buf:
            self._read()
        line, _, self.buf = self.buf.partition(b"\r\n")
        return line.decode("latin-1")

    def head(self):
        """Status and header lines; an interim answer is skipped."""
        while self.status is None or 100 <= self.status < 200:
            self.headers = []
            self.status = int(self._line().split(" ", 2)[1])
            while True:
                line = self._line()
                if not line:
                    break
                name, _, value = line.partition(":")
                self.headers.append((name, value.strip()))
        length = self.header("content-length")
        self.chunked = (self.header("transfer-encoding") or "").lower() == "chunked"
        self.left = int(length) if length is not None else None
        if self.bodiless or self.status in (204, 304) or self.left == 0:
            self.done = True
        return self.status

    def header(self, name):
        return next((v for k, v in self.headers if k.lower() == name), None)

    def more(self):
        """Waits for more of the body; False at its end."""
        if self.done:
            return False
        if self.chunked:
            n = int(self._line().split(";")[0], 16)
            while len(self.buf) < n + 2:
                self._read()
            self.body, self.buf = self.body + self.buf[:n], self.buf[n + 2:]
            self.done = n == 0
            return not self.done
        if not self.buf:
            try:
                self._read()
            except ConnectionError:
                if self.left is not None:
                    raise
                self.done = True
                return False
        self.body, self.buf = self.body + self.buf, b""
        self.done = self.left is not None and len(self.body) >= self.left
        return True

    def message(self):
        """The whole answer, when all of it has come."""
        while self.more():
            pass
        return Message(self.headers, self.body, status=self.status)

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def exchange(address, method, target, headers, body=b"", timeout=30):
    with Open(address, method, target, headers, body, timeout) as o:
        o.head()
        return o.message()
