# SPDX-License-Identifier: MIT
"""Speaks the cloud's HTTP interface plainly, header by header, for tests of a server of it."""
import base64
import http.client
import json
import struct
import urllib.parse

import schema

ENVD = 49983


class Reply:
    def __init__(self, response, body):
        self.status = response.status
        self.headers = [(k.lower(), v) for k, v in response.getheaders()]
        self.body = body

    def header(self, name):
        return next((v for k, v in self.headers if k == name.lower()), None)

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return "<%d %r>" % (self.status, self.body[:300])


class Broken(Exception):
    """The stream ended without its end-of-stream envelope."""


CUT = (Broken, http.client.HTTPException, ConnectionError)      # how a connection that is cut looks to its reader


class Envelopes:
    """Reads envelopes from an open response."""

    def __init__(self, conn, response):
        self.conn, self.response = conn, response
        self.status = response.status
        self.end = None

    def next(self):
        """The next message, or None at the end of the stream; `end` then is its JSON."""
        head = self._read(5)
        flags, n = struct.unpack(">BI", head)
        data = self._read(n)
        if flags & 2:
            self.end = json.loads(data)
            assert self.response.read() == b"", "bytes after the end of the stream"
            return None
        assert flags == 0, "flags %d" % flags
        return json.loads(data)

    def _read(self, n):
        out = b""
        while len(out) < n:
            try:
                data = self.response.read(n - len(out))
            except http.client.IncompleteRead as e:
                raise Broken("in the middle: %r" % e.partial) from None
            if not data:
                raise Broken("after %r" % out)
            out += data
        return out

    def __iter__(self):
        while True:
            m = self.next()
            if m is None:
                return
            yield m

    def close(self):
        self.conn.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def event_of(message):
    """("start", pid) | ("stdout", bytes) | ("stderr", …) | ("pty", …) | ("keepalive",) | ("end", dict)."""
    e = message["event"]
    kind = next(iter(e))
    if kind == "start":
        return "start", e["start"]["pid"]
    if kind == "data":
        which = next(iter(e["data"]))
        return which, base64.b64decode(e["data"][which])
    return kind, e[kind]


class RpcFailed(Exception):
    def __init__(self, code, message, status):
        Exception.__init__(self, "%s: %s (HTTP %s)" % (code, message, status))
        self.code, self.message, self.status = code, message, status


class Client:
    """One cloud at a plain address. Every request is on a connection of its own unless said otherwise."""

    def __init__(self, plain_url, key):
        u = urllib.parse.urlsplit(plain_url)
        self.address, self.port, self.key = u.hostname, u.port, key
        self.made = []

    # -- bytes

    def open(self, method, target, headers=(), body=b"", host=None, timeout=30, conn=None):
        conn = conn or http.client.HTTPConnection(self.address, self.port, timeout=timeout)
        conn.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        conn.putheader("Host", host or "%s:%d" % (self.address, self.port))
        chunked = not isinstance(body, bytes)
        for k, v in headers:
            conn.putheader(k, v)
        if chunked:
            conn.putheader("Transfer-Encoding", "chunked")
        elif body or method in ("POST", "PUT"):
            conn.putheader("Content-Length", str(len(body)))
        conn.endheaders()
        for part in body if chunked else [body]:
            if part:
                conn.send(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
        if chunked:
            conn.send(b"0\r\n\r\n")
        return conn, conn.getresponse()

    def request(self, method, target, headers=(), body=b"", host=None, timeout=30):
        conn, response = self.open(method, target, headers, body, host, timeout)
        try:
            return Reply(response, response.read())
        finally:
            conn.close()

    # -- control plane

    def api(self, method, path, body=None, key=None, headers=()):
        head = list(headers)
        if key is not False:
            head.append(("X-API-Key", key or self.key))
        data = b""
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            head.append(("Content-Type", "application/json"))
        reply = self.request(method, path, head, data)
        problems = schema.check_answer(method, path, reply.status, reply.headers, reply.body)
        assert not problems, (method, path, reply, problems)
        return reply

    def create(self, **body):
        body = dict({"templateID": "base", "timeout": 60, "secure": True}, **body)
        r = self.api("POST", "/sandboxes", body)
        assert r.status == 201, r
        box = r.json()
        self.made.append(box["sandboxID"])
        return box

    def get(self, box):
        return self.api("GET", "/sandboxes/" + box["sandboxID"])

    def kill(self, box):
        return self.api("DELETE", "/sandboxes/" + box["sandboxID"])

    def close(self):
        for sandbox_id in self.made:
            self.api("DELETE", "/sandboxes/" + sandbox_id)
        self.made = []

    # -- data plane

    def identity(self, box, port=ENVD, token=True, user=None):
        head = [("E2b-Sandbox-Id", box["sandboxID"]), ("E2b-Sandbox-Port", str(port))]
        if token and box.get("envdAccessToken"):
            head.append(("X-Access-Token", box["envdAccessToken"]))
        if user is not None:
            head.append(("Authorization", "Basic " + base64.b64encode((user + ":").encode()).decode()))
        return head

    def envd(self, box, method, target, headers=(), body=b"", **identity):
        return self.request(method, target, self.identity(box, **identity) + list(headers), body)

    def unary(self, box, rpc, request, headers=(), **identity):
        """The reply of a unary rpc, or RpcFailed."""
        r = self.raw_unary(box, rpc, json.dumps(request).encode(), "application/json", headers, **identity)
        if r.status != 200:
            e = r.json()
            raise RpcFailed(e["code"], e.get("message", ""), r.status)
        return r.json()

    def raw_unary(self, box, rpc, data, content_type, headers=(), **identity):
        head = [("Content-Type", content_type), ("Connect-Protocol-Version", "1")] + list(headers)
        return self.envd(box, "POST", "/" + rpc, head, data, **identity)

    def stream(self, box, rpc, request, headers=(), timeout=30, **identity):
        data = json.dumps(request).encode()
        head = self.identity(box, **identity) + [("Content-Type", "application/connect+json"),
                                                 ("Connect-Protocol-Version", "1")] + list(headers)
        conn, response = self.open("POST", "/" + rpc, head, struct.pack(">BI", 0, len(data)) + data, timeout=timeout)
        return Envelopes(conn, response)

    def start(self, box, shell=None, argv=None, stdin=False, pty=None, envs=None, cwd=None, tag=None, headers=(),
              timeout=30, user=None):
        """An open Start stream; its first event is still to be read."""
        argv = argv or ["/bin/bash", "-l", "-c", shell]
        request = {"process": {"cmd": argv[0], "args": argv[1:]}}
        if envs:
            request["process"]["envs"] = envs
        if cwd is not None:
            request["process"]["cwd"] = cwd
        if tag:
            request["tag"] = tag
        if pty:
            request["pty"] = {"size": {"cols": pty[0], "rows": pty[1]}}
        elif stdin is not None:
            request["stdin"] = stdin
        return self.stream(box, "process.Process/Start", request, headers, timeout, user=user)

    def run(self, box, shell=None, **kw):
        """(events, stdout, stderr, end, end-of-stream) of a command run to its end."""
        with self.start(box, shell, **kw) as s:
            assert s.status == 200, s.response.read()
            events = [event_of(m) for m in s]
        out = b"".join(e[1] for e in events if e[0] in ("stdout", "pty"))
        err = b"".join(e[1] for e in events if e[0] == "stderr")
        end = next((e[1] for e in events if e[0] == "end"), None)
        return events, out, err, end, s.end

    def processes(self, box):
        return self.unary(box, "process.Process/List", {}).get("processes", [])

    def write(self, box, path, data, headers=(), **identity):
        target = "/files?path=" + urllib.parse.quote(path, safe="")
        return self.envd(box, "POST", target, [("Content-Type", "application/octet-stream")] + list(headers), data,
                         **identity)

    def read(self, box, path, headers=(), **identity):
        return self.envd(box, "GET", "/files?path=" + urllib.parse.quote(path, safe=""), headers, **identity)

    def stat(self, box, path, **kw):
        return self.unary(box, "filesystem.Filesystem/Stat", {"path": path}, **kw).get("entry", {})


def error_of(stream):
    """Reads a stream to its end: the code of its error, or None."""
    with stream as s:
        for _ in s:
            pass
    return (s.end.get("error") or {}).get("code")


def multipart(files, boundary="b0undary"):
    """(content type, body) of [(filename, data)]."""
    out = b""
    for name, data in files:
        out += ('--%s\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n'
                "Content-Type: application/octet-stream\r\n\r\n" % (boundary, name)).encode() + data + b"\r\n"
    return "multipart/form-data; boundary=" + boundary, out + ("--%s--\r\n" % boundary).encode()


def signature(path, op, user, token, exp=None):
    import hashlib
    raw = ":".join([path, op, user, token] + ([str(exp)] if exp is not None else []))
    return "v1_" + base64.b64encode(hashlib.sha256(raw.encode()).digest()).decode().rstrip("=")
