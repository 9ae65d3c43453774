# SPDX-License-Identifier: MIT
"""The ground truth: every request the cloud saw, every sandbox it ever made, and how many connections it took."""
import threading
import time

BODY_KEPT = 1 << 20  # bytes of a request's body that are kept; its length always is


class Seen:
    """One request, from its head to its last byte."""

    def __init__(self, n, conn, stream, proto, method, target, headers):
        self.n = n
        self.conn = conn          # number of the connection, from 1
        self.stream = stream      # HTTP/2 stream, 0 on HTTP/1.1
        self.proto = proto        # "h2" or "http/1.1"
        self.method = method
        self.target = target      # path and query as sent
        self.path = target.split("?", 1)[0]
        self.headers = headers    # [(lower-case name, value)]
        self.route = ""           # "create", "process.Start", …
        self.sandbox = ""
        self.body = b""
        self.body_len = 0
        self.at = time.monotonic()
        self.status = None        # what we answered, None if nothing
        self.acted = False        # the request took effect
        self.fault = None         # name of the fault that was played
        self.end = None           # "complete", "reset", "cut", "silent", "client reset", "client gone"

    def header(self, name, default=None):
        for k, v in self.headers:
            if k == name.lower():
                return v
        return default

    def text(self):
        return self.body.decode("utf-8", "replace")

    def as_dict(self):
        d = {k: v for k, v in self.__dict__.items() if k != "body"}
        d["body"] = self.text()
        return d

    def __repr__(self):
        return "<#%d conn %d %s %s -> %s (%s)>" % (self.n, self.conn, self.method, self.target, self.status, self.end)


class Ledger:
    """Written on the loop's thread, read from any; `wait` blocks until something is true, never by sleeping."""

    def __init__(self):
        self.changed = threading.Condition()
        self.requests = []
        self.sandboxes = []       # Sandbox objects, in the order of their creation, gone ones too
        self.connections = 0      # ever accepted
        self.open_connections = 0
        self.handshakes_failed = 0
        self.open_streams = 0
        self.peak_streams = 0             # over all connections
        self.peak_streams_one_conn = 0
        self.pings_received = 0
        self.resets_received = []         # (conn, stream, code)
        self.resumed_tls = 0

    def note(self):
        with self.changed:
            self.changed.notify_all()

    def wait(self, condition, timeout=10.0, what="the expected event"):
        with self.changed:
            if not self.changed.wait_for(condition, timeout):
                raise TimeoutError("%s did not come in %.1f s; seen: %s" % (what, timeout, self.requests[-8:]))

    def of(self, route=None, **match):
        """Requests of a route (or a prefix ending in '.'), narrowed by attributes."""
        def fits(r):
            if route and not (r.route == route or (route.endswith(".") and r.route.startswith(route))):
                return False
            return all(getattr(r, k) == v for k, v in match.items())
        return [r for r in list(self.requests) if fits(r)]

    def count(self, route=None, **match):
        return len(self.of(route, **match))

    def wait_requests(self, route, n=1, timeout=10.0, **match):
        self.wait(lambda: self.count(route, **match) >= n, timeout, "%d x %s" % (n, route))
        return self.of(route, **match)[n - 1]

    def alive(self):
        return [s for s in list(self.sandboxes) if s.fate is None]
