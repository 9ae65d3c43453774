# SPDX-License-Identifier: MIT
"""Exchanges with a sandbox's agent, one for each thing that an answer of it may look like. The same cases record the real
agent (tests/judges/record_agent.py) and judge agentbox-local (tests/it/i_golden.py).

    agent = Agent(("127.0.0.1", 49983), token)
    for case in CASES: request, answer = case.run(agent)       # golden.Messages, with fixed ids, times and tokens
"""
import base64
import gzip
import hashlib
import json
import re
import struct
import urllib.parse

import fixed
from fakecloud.codec import Messages
from golden import Message
from rawhttp import Open

HOME = "/home/user"
DIR = HOME + "/g"                  # empty when a case begins
NO_PID = 4190000
FS, PROC = "filesystem.Filesystem/", "process.Process/"
STREAMING = {PROC + "Start": "StartResponse", PROC + "Connect": "ConnectResponse", FS + "WatchDir": "WatchDirResponse"}
LATER = fixed.UNIX + 10 * 365 * 86400
METRICS = {"ts": str(fixed.UNIX), "cpu_count": "2", "cpu_used_pct": "12.5", "mem_total": "536870912", "mem_used": "104857600",
           "mem_cache": "52428800", "disk_used": "1073741824", "disk_total": "10737418240", "mem_total_mib": "512",
           "mem_used_mib": "100"}
ENOUGH = object()                   # what `during` returns when nothing that comes later matters
CASES = []


class Case:
    def __init__(self, name, fn, codec):
        self.name, self.fn, self.codec = name, fn, codec

    def run(self, agent):
        """(request, answer), normalized."""
        agent.codec = self.codec
        agent.reset()
        try:
            request, answer = self.fn(agent)
        finally:
            agent.end()
        return normalized_request(request, agent), normalized_answer(request, answer)


def case(name):
    def add(fn):
        CASES.append(Case(name, fn, None))
    return add


def rpc_case(name):
    """Once in each codec."""
    def add(fn):
        CASES.extend(Case("%s.%s" % (name, codec), fn, codec) for codec in ("json", "proto"))
    return add


def envelope(data, flags=0):
    return struct.pack(">BI", flags, len(data)) + data


def split_envelopes(body):
    """[(flags, payload)]; the last one may be cut."""
    out = []
    while len(body) >= 5:
        flags, n = struct.unpack(">BI", body[:5])
        if len(body) < 5 + n:
            break
        out.append((flags, body[5:5 + n]))
        body = body[5 + n:]
    return out


class Agent:
    messages = None

    def __init__(self, address, token, headers=()):
        self.address, self.token = address, token
        self.base = list(headers) or [("Host", "%s:%d" % address)]
        self.codec = "json"
        self.is_patient = False         # streams that end by their deadline are read to that end
        self.open_streams = []
        self.pids = []
        if Agent.messages is None:
            Agent.messages = Messages()

    # -- between cases

    def reset(self):
        self.call(FS + "Remove", {"path": DIR})
        self.call(FS + "MakeDir", {"path": DIR})

    def end(self):
        for pid in self.pids:
            self.call(PROC + "SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
        for s in self.open_streams:
            try:
                s.message()         # to its end, so that no process of one case is there in the next
            except ConnectionError:
                pass
            s.close()
        self.pids, self.open_streams = [], []

    # -- what a case does before its exchange; not recorded

    def call(self, rpc, fields):
        body = json.dumps(fields).encode()
        with self.open("POST", "/" + rpc, [("Content-Type", "application/json"), ("Content-Length", len(body))], body) as o:
            o.head()
            return json.loads(o.message().body)

    def put(self, name, data=b"hello\n", headers=()):
        target = "/files?path=" + urllib.parse.quote(self.path(name), safe="")
        head = [("Content-Type", "application/octet-stream"), ("Content-Length", len(data))] + list(headers)
        with self.open("POST", target, head, data) as o:
            assert o.head() == 200, o.message().body

    def shell(self, text):
        """Runs it to its end."""
        with self.start({"process": {"cmd": "/bin/bash", "args": ["-c", text], "cwd": DIR}, "stdin": False}) as o:
            o.message()

    def start(self, fields):
        data = json.dumps(fields).encode()
        head = [("Content-Type", "application/connect+json"), ("Content-Length", len(data) + 5)]
        o = self.open("POST", "/" + PROC + "Start", head, envelope(data))
        assert o.head() == 200
        return o

    def background(self, shell, **fields):
        """The pid of a process that goes on."""
        o = self.start(dict({"process": {"cmd": "/bin/bash", "args": ["-c", shell], "cwd": DIR}}, **fields))
        self.open_streams.append(o)
        pid = self.event(o)["event"]["start"]["pid"]
        self.pids.append(pid)
        return pid

    def event(self, o, n=1):
        """The n-th message of a stream in JSON."""
        while len(split_envelopes(o.body)) < n:
            assert o.more(), o.body
        return json.loads(split_envelopes(o.body)[n - 1][1])

    @staticmethod
    def path(name):
        return name if name.startswith(("/", "~")) else DIR + "/" + name

    def open(self, method, target, headers, body=b"", token=True):
        head = self.base + ([("X-Access-Token", self.token)] if token else []) + [(k, str(v)) for k, v in headers]
        return Open(self.address, method, target, head, body)

    # -- the exchange of a case

    def http(self, method, target, headers=(), body=b"", token=True, length=True):
        head = list(headers)
        if length and (body or method in ("POST", "PUT")):
            head.append(("Content-Length", len(body)))
        with self.open(method, target, head, body, token) as o:
            o.head()
            return self.sent(method, target, head, body, token), o.message()

    def sent(self, method, target, headers, body, token):
        head = [("Host", fixed.HOST)] + ([("X-Access-Token", self.token)] if token else [])
        return Message(head + [(k, str(v)) for k, v in headers], body, method=method, target=target)

    def encode(self, rpc, fields):
        """A request in the codec of the case; fields are as in JSON."""
        if self.codec == "json":
            return json.dumps(fields, separators=(",", ":")).encode()
        name = rpc.split(".")[0] + "." + rpc.split("/")[1] + "Request"
        return self.messages.decode(name, json.dumps(fields), True).SerializeToString()

    def rpc(self, rpc, fields, headers=(), during=None, token=True, timeout_ms=None, body=None, user=None, content_type=None,
            version="1"):
        """A unary call, or a streaming one whose events `during` is told of while they come: during(number so far)."""
        stream = rpc in STREAMING or rpc == PROC + "StreamInput"
        kind = content_type or ("application/connect+" if stream else "application/") + self.codec
        data = body if body is not None else self.encode(rpc, fields)
        if stream and body is None:
            data = envelope(data)
        head = [("Content-Type", kind), ("Connect-Protocol-Version", version)]
        if timeout_ms is not None:
            head.append(("Connect-Timeout-Ms", str(timeout_ms)))
        if user is not None:
            head.append(("Authorization", "Basic " + base64.b64encode((user + ":").encode()).decode()))
        head += list(headers)
        head.append(("Content-Length", len(data)))
        with self.open("POST", "/" + rpc, head, data, token) as o:
            o.head()
            self.current, seen = o, 0
            is_enough = False
            while not is_enough and o.more():
                now = len(split_envelopes(o.body)) if stream else 0
                while during and seen < now:
                    seen += 1
                    is_enough = during(seen) is ENOUGH and not self.is_patient
            answer = Message(o.headers, o.body, status=o.status) if is_enough else o.message()
            return self.sent("POST", "/" + rpc, head, data, token), answer

    def run(self, shell, headers=(), during=None, timeout_ms=None, user=None, token=True, **fields):
        process = {"cmd": "/bin/bash", "args": ["-l", "-c", shell]}
        for k in ("cwd", "envs"):
            if k in fields:
                process[k] = fields.pop(k)
        request = dict({"process": process, "stdin": False}, **fields)
        return self.rpc(PROC + "Start", {k: v for k, v in request.items() if v is not None}, headers, during,
                        timeout_ms=timeout_ms, user=user, token=token)

    def signature(self, path, op, user="", exp=None):
        raw = ":".join([path, op, user, self.token] + ([str(exp)] if exp is not None else []))
        return "v1_" + base64.b64encode(hashlib.sha256(raw.encode()).digest()).decode().rstrip("=")


# -- fixed values in place of those of the day

def message_class(target, is_answer):
    package, _, rpc = target.strip("/").partition(".")
    return "%s.%s%s" % (package, rpc.split("/")[1], "Response" if is_answer else "Request")


def fix_proto(message):
    """In place, all levels."""
    for field, value in message.ListFields():
        if field.label == field.LABEL_REPEATED:
            if field.message_type and not field.message_type.GetOptions().map_entry:
                for m in value:
                    fix_proto(m)
        elif field.name == "modified_time":
            value.seconds, value.nanos = fixed.UNIX, 123456789
        elif field.message_type:
            fix_proto(value)
        elif field.name == "pid" and value != NO_PID:
            message.pid = fixed.PID
        elif field.name == "watcher_id" and value != "nope":
            message.watcher_id = fixed.WATCHER
        elif field.name == "size" and getattr(message, "type", None) == 2:
            message.size = 4096


def fix_json(data):
    data = re.sub(rb'("pid"\s*:\s*)(?!%d)\d+' % NO_PID, rb"\g<1>%d" % fixed.PID, data)
    data = re.sub(rb'("modifiedTime"\s*:\s*)"[^"]*"', b'\\g<1>"%s"' % fixed.STARTED.encode(), data)
    data = re.sub(rb'("watcherId"\s*:\s*)"(?!nope")[^"]*"', b'\\g<1>"%s"' % fixed.WATCHER.encode(), data)
    return re.sub(rb'("FILE_TYPE_DIRECTORY"[^{}]*?"size"\s*:\s*)"\d+"', rb'\g<1>"4096"', data)


def fix_payload(data, target, is_proto, is_answer):
    if not is_proto:
        return fix_json(data)
    message = Agent.messages[message_class(target, is_answer)].FromString(data)
    assert message.SerializeToString() == data, "not written the way it came: %r" % data
    fix_proto(message)
    return message.SerializeToString()


def fix_body(body, target, content_type, is_answer):
    if target.startswith("/metrics"):
        return re.sub(rb'("(\w+)"\s*:\s*)[\d.]+', lambda m: m.group(1) + METRICS[m.group(2).decode()].encode(), body)
    if "." not in target or "?" in target:
        return body
    is_proto = content_type.endswith("proto")
    if "connect+" not in content_type:
        return fix_payload(body, target, is_proto, is_answer)
    return b"".join(envelope(p if flags else fix_payload(p, target, is_proto, is_answer), flags)
                    for flags, p in split_envelopes(body))


def with_body(headers, old, new):
    """The head again, with the length of the new body if it had one."""
    if old == new:
        return headers
    return [(k, str(len(new)) if k.lower() == "content-length" else v) for k, v in headers]


def normalized_request(request, agent):
    body = request.body
    kind = request.header("content-type") or ""
    if request.target.startswith("/" + PROC[:-1]) or request.target.startswith("/" + FS[:-1]):
        if kind.endswith(("json", "proto")) and (request.header("content-encoding") or "") != "gzip":
            try:
                body = fix_body(body, request.target, kind, False)
            except Exception:       # a body that is wrong on purpose
                body = request.body
    head = [(k, fixed.TOKEN if v == agent.token else v) for k, v in request.headers]
    target = request.target.replace(agent.token, fixed.TOKEN)
    return Message(with_body(head, request.body, body), body, method=request.method, target=target)


def normalized_answer(request, answer):
    body = answer.body
    kind = answer.header("content-type") or ""
    is_plain = not answer.header("content-encoding") and not answer.header("connect-content-encoding")
    if is_plain and answer.status == 200 and (request.method == "POST" or request.target.startswith("/metrics")):
        body = fix_body(body, request.target, kind, True)
    head = [(k, fixed.HTTP_DATE if k.lower() in ("date", "last-modified") else v) for k, v in answer.headers]
    allow = iter(sorted(v for k, v in head if k == "Allow"))        # the agent has them in any order
    head = [(k, next(allow) if k == "Allow" else v) for k, v in head]
    return Message(with_body(head, answer.body, body), body, status=answer.status)


# -- HTTP

GZIP = ("Accept-Encoding", "gzip")
PLAIN = ("Accept-Encoding", "identity")
OCTETS = ("Content-Type", "application/octet-stream")


def multipart(parts, boundary="b0undary"):
    """(header, body) of [(part name, filename, data)]."""
    out = b""
    for name, filename, data in parts:
        out += ('--%s\r\nContent-Disposition: form-data; name="%s"; filename="%s"\r\n'
                "Content-Type: application/octet-stream\r\n\r\n" % (boundary, name, filename)).encode() + data + b"\r\n"
    return ("Content-Type", "multipart/form-data; boundary=" + boundary), out + ("--%s--\r\n" % boundary).encode()


def files(path=None, **query):
    if path is not None:
        query = dict({"path": Agent.path(path)}, **query)
    return "/files" + ("?" + urllib.parse.urlencode(query, quote_via=urllib.parse.quote, safe="") if query else "")


def simple(name, method, target, headers=(), body=b"", put=None, token=True):
    def fn(a):
        for p in put or ():
            a.put(*p)
        return a.http(method, target, headers, body, token)
    CASES.append(Case(name, fn, None))


simple("health", "GET", "/health", token=False)
simple("metrics", "GET", "/metrics", [PLAIN])
simple("metrics-no-token", "GET", "/metrics", token=False)
simple("envs", "GET", "/envs", [PLAIN])
simple("unknown-path", "GET", "/nothing")
simple("unknown-rpc", "POST", "/process.Process/Nothing", [("Content-Type", "application/json")], b"{}")
simple("health-post", "POST", "/health")
simple("files-put", "PUT", "/files?path=x")

TEXT = [("a.txt", b"hello world\n")]
simple("get-text", "GET", files("a.txt"), [PLAIN], put=TEXT)
simple("get-gzip", "GET", files("a.txt"), [GZIP], put=TEXT)
simple("get-no-encoding", "GET", files("a.txt"), put=TEXT)
simple("get-star", "GET", files("a.txt"), [("Accept-Encoding", "*")], put=TEXT)
simple("get-not-acceptable", "GET", files("a.txt"), [("Accept-Encoding", "identity;q=0, br")], put=TEXT)
simple("get-empty", "GET", files("empty"), [PLAIN], put=[("empty", b"")])
simple("get-binary", "GET", files("data"), [PLAIN], put=[("data", bytes(range(256)))])
simple("get-html", "GET", files("a.html"), [PLAIN], put=[("a.html", b"<p>x</p>")])
simple("get-odd-name", "GET", files("\u00fc \"a\"%.txt"), [PLAIN], put=[("\u00fc \"a\"%.txt", b"x")])
simple("get-range", "GET", files("a.txt"), [PLAIN, ("Range", "bytes=0-3")], put=TEXT)
simple("get-range-suffix", "GET", files("a.txt"), [PLAIN, ("Range", "bytes=-3")], put=TEXT)
simple("get-range-outside", "GET", files("a.txt"), [PLAIN, ("Range", "bytes=100-")], put=TEXT)
simple("get-range-gzip", "GET", files("a.txt"), [GZIP, ("Range", "bytes=0-3")], put=TEXT)
simple("get-not-modified", "GET", files("a.txt"), [PLAIN, ("If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT")], put=TEXT)
simple("get-missing", "GET", files("missing"), [PLAIN])
simple("get-directory", "GET", files("."), [PLAIN])
simple("get-no-path", "GET", "/files", [PLAIN])
simple("get-below-file", "GET", files("a.txt/below"), [PLAIN], put=TEXT)
simple("get-long-name", "GET", files("n" * 300), [PLAIN])
simple("get-tilde-name", "GET", files("~nobody-here/x"), [PLAIN])
simple("get-unknown-user", "GET", files("a.txt", username="nobody-here"), [PLAIN], put=TEXT)
simple("get-user-relative", "GET", "/files?path=g%2Fa.txt&username=user", [PLAIN], put=TEXT)
simple("get-no-token", "GET", files("a.txt"), [PLAIN], put=TEXT, token=False)
simple("get-wrong-token", "GET", files("a.txt"), [PLAIN, ("X-Access-Token", "f" * 64)], put=TEXT, token=False)
simple("get-device", "GET", files("/dev/null"), [PLAIN])


# Files whose length nobody knows before they are read: one that cannot be sought in, one whose length is told as zero.
simple("get-unseekable-identity", "GET", files("/proc/self/comm"), [PLAIN])
simple("get-unseekable-gzip", "GET", files("/proc/self/comm"), [GZIP])
simple("get-zero-length-identity", "GET", files("/proc/sys/kernel/ostype"), [PLAIN])
simple("get-zero-length-gzip", "GET", files("/proc/sys/kernel/ostype"), [GZIP])


def signed(name, op="read", query=None, put=TEXT, headers=(PLAIN,), path=None, **change):
    def fn(a):
        for p in put or ():
            a.put(*p)
        q = dict(query or {})
        full = Agent.path(path or "a.txt")
        given = q.pop("exp", None)
        sig = a.signature(change.get("of", full), op, q.get("username", ""), given)
        q = dict({"path": full}, **q, signature=change.get("signature", sig))
        if given is not None:
            q["signature_expiration"] = change.get("exp", given)
        return a.http("GET" if op == "read" else "POST", "/files?" + urllib.parse.urlencode(
            {k: v for k, v in q.items() if v is not None}, quote_via=urllib.parse.quote, safe=""),
            list(headers), b"" if op == "read" else b"signed\n", token=False)
    CASES.append(Case(name, fn, None))


signed("signed-read")
signed("signed-read-user", query={"username": "user"})
signed("signed-read-expires", query={"exp": LATER})
signed("signed-read-expired", query={"exp": 1000000000})
signed("signed-read-other-expiry", query={"exp": LATER}, exp=LATER + 1)
signed("signed-read-wrong", signature="v1_" + "A" * 43)
signed("signed-read-no-signature", signature=None)
signed("signed-read-other-path", of="/etc/passwd")
signed("signed-write", op="write", put=(), headers=(OCTETS,), path="w.txt")
signed("signed-write-for-read", op="read", put=(), headers=(PLAIN,), path="w.txt", of="/x")


def post(name, target, headers=(), body=b"", put=(), token=True):
    simple(name, "POST", target, headers, body, put=put, token=token)


for _name, _parts, _target in [
        ("post-multipart", [("file", DIR + "/m.txt", b"one\n")], files()),
        ("post-multipart-two", [("file", DIR + "/m1", b"1"), ("file", DIR + "/sub/m2", b"2")], files()),
        ("post-multipart-path", [("file", "ignored", b"x")], files("by-query.txt")),
        ("post-multipart-relative", [("file", "g/rel.txt", b"x")], files()),
        ("post-multipart-twice", [("file", DIR + "/t", b"1"), ("file", DIR + "/t", b"2")], files()),
        ("post-multipart-other-part", [("other", DIR + "/o", b"1")], files()),
        ("post-multipart-empty", [], files())]:
    _head, _body = multipart(_parts)
    post(_name, _target, [_head], _body)
post("post-multipart-no-boundary", files(), [("Content-Type", "multipart/form-data")], b"--x--\r\n")
post("post-multipart-cut", files(), [("Content-Type", "multipart/form-data; boundary=b")],
     b'--b\r\nContent-Disposition: form-data; name="file"; filename="/home/user/g/cut"\r\n\r\nhalf')
post("post-octets", files("o.bin"), [OCTETS], b"\0\1\2")
post("post-octets-empty", files("o.bin"), [OCTETS])
post("post-octets-over", files("a.txt"), [OCTETS], b"new\n", put=TEXT)
post("post-octets-deep", files("x/y/z.bin"), [OCTETS], b"z")
post("post-octets-no-path", files(), [OCTETS], b"x")
post("post-octets-user", files("u.bin", username="root"), [OCTETS], b"x")
post("post-octets-unknown-user", files("u.bin", username="nobody-here"), [OCTETS], b"x")
post("post-octets-no-token", files("o.bin"), [OCTETS], b"x", token=False)
post("post-metadata", files("o.bin"), [OCTETS, ("X-Metadata-Owner", "bob"), ("X-Metadata-K2", "v 2")], b"x")
post("post-metadata-too-long", files("o.bin"), [OCTETS, ("X-Metadata-Owner", "v" * 5000)], b"x")
post("post-gzip", files("z.txt"), [OCTETS, ("Content-Encoding", "gzip")], gzip.compress(b"unpacked\n", mtime=0))
post("post-gzip-not", files("a.txt"), [OCTETS, ("Content-Encoding", "gzip")], b"this is not gzip", put=TEXT)


@case("post-gzip-not-then-get")
def _(a):
    """What was there is still there."""
    a.put(*TEXT[0])
    a.http("POST", files("a.txt"), [OCTETS, ("Content-Encoding", "gzip")], b"this is not gzip")
    return a.http("GET", files("a.txt"), [PLAIN])


post("post-brotli", files("z.txt"), [OCTETS, ("Content-Encoding", "br")], b"x")
post("post-text-type", files("t.txt"), [("Content-Type", "text/plain")], b"x")
post("post-no-type", files("t.txt"), [], b"x")
post("post-directory", files("."), [OCTETS], b"x")
post("post-below-file", files("a.txt/below"), [OCTETS], b"x", put=TEXT)
post("post-long-name", files("n" * 300), [OCTETS], b"x")
post("post-proc", files("/proc/nope"), [OCTETS], b"x")
JSON = ("Content-Type", "application/json")
PIECES = [("p1", b"one "), ("p2", b"two\n")]


def compose(name, body, put=PIECES):
    post(name, "/files/compose", [JSON], body if isinstance(body, bytes) else json.dumps(body).encode(), put=put)


compose("compose", {"source_paths": [DIR + "/p1", DIR + "/p2"], "destination": DIR + "/whole"})
compose("compose-missing", {"source_paths": [DIR + "/p1", DIR + "/nope"], "destination": DIR + "/whole"})
compose("compose-none", {"source_paths": [], "destination": DIR + "/whole"})
compose("compose-no-destination", {"source_paths": [DIR + "/p1"]})
compose("compose-itself", {"source_paths": [DIR + "/p1"], "destination": DIR + "/p1"})
compose("compose-bad-json", b"{")


# -- the Connect protocol

@case("rpc-get")
def _(a):
    return a.http("GET", "/" + FS + "Stat")


@case("rpc-text-plain")
def _(a):
    return a.http("POST", "/" + FS + "Stat", [("Content-Type", "text/plain")], b"{}")


@case("rpc-stream-text-plain")
def _(a):
    return a.http("POST", "/" + PROC + "Start", [("Content-Type", "text/plain")], b"{}")


def stat_with(name, headers=(), body=None, **kw):
    def fn(a):
        a.codec = "json"
        a.put("a.txt")
        return a.rpc(FS + "Remove", {"path": DIR + "/nothing"}, headers=headers, body=body, **kw)
    CASES.append(Case(name, fn, "json"))


stat_with("rpc-version-2", version="2")
stat_with("rpc-timeout-words", timeout_ms="abc")
stat_with("rpc-timeout-long", timeout_ms="12345678901")
stat_with("rpc-empty-body", body=b"")
stat_with("rpc-bad-json", body=b'{"path":')
stat_with("rpc-wrong-kind", body=b'{"path":7}')
stat_with("rpc-unknown-field", body=b'{"path":"/home/user/g/nothing","more":1}')
stat_with("rpc-charset", content_type="application/json; charset=utf-8")
stat_with("rpc-gzip", headers=[GZIP])
stat_with("rpc-gzip-request", headers=[("Content-Encoding", "gzip")],
          body=gzip.compress(b'{"path":"/home/user/g/nothing"}', mtime=0))
stat_with("rpc-brotli-request", headers=[("Content-Encoding", "br")], body=b"{}")
stat_with("rpc-unknown-user", user="nobody-here")


@rpc_case("rpc-no-token")
def _(a):
    return a.rpc(FS + "Stat", {"path": HOME}, token=False)


@rpc_case("stream-no-token")
def _(a):
    return a.run("true", token=False)


@rpc_case("stream-unknown-user")
def _(a):
    return a.run("true", user="nobody-here")


@case("stream-two-messages")
def _(a):
    a.codec = "json"
    one = envelope(b'{"path":"/home/user/g"}')
    return a.rpc(FS + "WatchDir", None, body=one + one)


@case("stream-no-message")
def _(a):
    a.codec = "json"
    return a.rpc(FS + "WatchDir", None, body=b"")


@case("stream-cut-message")
def _(a):
    a.codec = "json"
    return a.rpc(FS + "WatchDir", None, body=envelope(b'{"path":"/home/user/g"}')[:-3])


@case("stream-gzip")
def _(a):
    a.codec = "json"
    return a.rpc(FS + "WatchDir", {"path": DIR}, headers=[("Connect-Accept-Encoding", "gzip")], timeout_ms=1000)


# -- Filesystem

def fs_case(name, rpc, fields, shell=None, put=(), headers=(), **kw):
    def fn(a):
        for p in put:
            a.put(*p)
        if shell:
            a.shell(shell)
        return a.rpc(FS + rpc, fields, headers, **kw)
    CASES.extend(Case("%s.%s" % (name, codec), fn, codec) for codec in ("json", "proto"))


META = [("a.txt", b"hello world\n", [("X-Metadata-Owner", "bob")])]
fs_case("stat-file", "Stat", {"path": DIR + "/a.txt"}, put=TEXT)
fs_case("stat-metadata", "Stat", {"path": DIR + "/a.txt"}, put=META)
fs_case("stat-empty-file", "Stat", {"path": DIR + "/e"}, put=[("e", b"")])
fs_case("stat-relative", "Stat", {"path": "g/a.txt"}, put=TEXT)
fs_case("stat-directory", "Stat", {"path": DIR})
fs_case("stat-trailing-slash", "Stat", {"path": DIR + "/"})
fs_case("stat-symlink", "Stat", {"path": DIR + "/l"}, "echo 12345 >f; chmod 600 f; ln -s f l")
fs_case("stat-symlink-directory", "Stat", {"path": DIR + "/l"}, "mkdir d; ln -s d l")
fs_case("stat-dangling", "Stat", {"path": DIR + "/l"}, "ln -s nowhere l")
fs_case("stat-fifo", "Stat", {"path": DIR + "/p"}, "mkfifo -m 600 p")
fs_case("stat-setuid", "Stat", {"path": DIR + "/s"}, "touch s; chmod 4755 s")
fs_case("stat-missing", "Stat", {"path": DIR + "/missing"})
fs_case("stat-below-file", "Stat", {"path": DIR + "/a.txt/x"}, put=TEXT)
fs_case("stat-tilde", "Stat", {"path": "~"}, put=())
fs_case("stat-tilde-name", "Stat", {"path": "~user"})
fs_case("stat-root-user", "Stat", {"path": "~"}, user="root")
fs_case("mkdir", "MakeDir", {"path": DIR + "/d/e"})
fs_case("mkdir-trailing-slash", "MakeDir", {"path": DIR + "/d/"})
fs_case("mkdir-there", "MakeDir", {"path": DIR})
fs_case("mkdir-over-file", "MakeDir", {"path": DIR + "/a.txt"}, put=TEXT)
fs_case("mkdir-below-file", "MakeDir", {"path": DIR + "/a.txt/x"}, put=TEXT)
fs_case("mkdir-proc", "MakeDir", {"path": "/proc/x"})
fs_case("mkdir-long-name", "MakeDir", {"path": DIR + "/" + "n" * 300})
fs_case("move", "Move", {"source": DIR + "/a.txt", "destination": DIR + "/b.txt"}, put=TEXT)
fs_case("move-new-parents", "Move", {"source": DIR + "/a.txt", "destination": DIR + "/x/y/b.txt"}, put=TEXT)
fs_case("move-over", "Move", {"source": DIR + "/a.txt", "destination": DIR + "/b.txt"}, put=TEXT + [("b.txt", b"old")])
fs_case("move-directory", "Move", {"source": DIR + "/d", "destination": DIR + "/e/"}, "mkdir -p d/sub")
fs_case("move-missing", "Move", {"source": DIR + "/missing", "destination": DIR + "/b"})
fs_case("move-directory-over-file", "Move", {"source": DIR + "/d", "destination": DIR + "/a.txt"}, "mkdir d", put=TEXT)
fs_case("list", "ListDir", {"path": DIR, "depth": 1}, "mkdir d; echo 1 >f; ln -s f l; ln -s nowhere n; touch d/in")
fs_case("list-depth-2", "ListDir", {"path": DIR, "depth": 2}, "mkdir -p a/b/c z; touch a/f a/b/g")
fs_case("list-depth-0", "ListDir", {"path": DIR}, "mkdir -p a/b; touch c")
fs_case("list-empty", "ListDir", {"path": DIR, "depth": 1})
fs_case("list-double-slash", "ListDir", {"path": HOME + "//g/", "depth": 1}, put=TEXT)
fs_case("list-by-symlink", "ListDir", {"path": DIR + "/l", "depth": 1}, "mkdir d; touch d/f; ln -s d l")
fs_case("list-loop", "ListDir", {"path": DIR + "/l", "depth": 1}, "ln -s l l")
fs_case("list-file", "ListDir", {"path": DIR + "/a.txt", "depth": 1}, put=TEXT)
fs_case("list-missing", "ListDir", {"path": DIR + "/missing", "depth": 1})
fs_case("remove", "Remove", {"path": DIR + "/d"}, "mkdir -p d/e; touch d/e/f")
fs_case("remove-missing", "Remove", {"path": DIR + "/missing"})
fs_case("remove-proc", "Remove", {"path": "/proc/version"})
fs_case("watch-missing", "WatchDir", {"path": DIR + "/missing"})
fs_case("watch-file", "WatchDir", {"path": DIR + "/a.txt"}, put=TEXT)
fs_case("watch-nothing", "WatchDir", {"path": DIR}, timeout_ms=1000)
fs_case("watch-keepalive", "WatchDir", {"path": DIR}, headers=[("Keepalive-Ping-Interval", "1")], timeout_ms=1500)


LAST = "z-last"


def watch_case(name, *shells, before=None, **fields):
    """Events of what each of `shells` does: the first once the watch has begun, each other after the first event of the one before
    it. Then a last folder is made, so that the end of the events is known."""
    def fn(a):
        steps = list(shells)

        def during(n):
            if steps:
                a.shell(steps.pop(0) + ("" if steps else "; mkdir " + LAST))
                return None
            return ENOUGH if LAST.encode() in split_envelopes(answer_of(a))[n - 1][1] else None
        if before:
            a.shell(before)
        return a.rpc(FS + "WatchDir", dict({"path": DIR}, **fields), timeout_ms=1500 if a.is_patient else 20000, during=during)
    CASES.extend(Case("%s.%s" % (name, codec), fn, codec) for codec in ("json", "proto"))


def answer_of(a):
    """The body so far of the stream that a case has open."""
    return a.current.body


watch_case("watch-create", "echo 1 >new")
watch_case("watch-append", "echo 2 >>old", before="echo 1 >old")
watch_case("watch-rename", "mv old new", before="touch old")
watch_case("watch-remove", "rm old", before="touch old")
watch_case("watch-chmod", "chmod 600 old", before="touch old; chmod 644 old")
watch_case("watch-mkdir", "mkdir d")
watch_case("watch-recursive", "echo 1 >d/in", before="mkdir d", recursive=True)
watch_case("watch-recursive-new-directory", "mkdir d", "echo 1 >d/in", recursive=True)
watch_case("watch-rename-directory", "mv d e", before="mkdir d; touch d/f", recursive=True)
watch_case("watch-entry", "mkdir d", includeEntry=True)


def watcher(a, **fields):
    return a.call(FS + "CreateWatcher", dict({"path": DIR}, **fields))["watcherId"]


@rpc_case("watcher-create")
def _(a):
    return a.rpc(FS + "CreateWatcher", {"path": DIR})


@rpc_case("watcher-create-missing")
def _(a):
    return a.rpc(FS + "CreateWatcher", {"path": DIR + "/missing"})


@rpc_case("watcher-events")
def _(a):
    w = watcher(a)
    a.shell("mkdir d; sleep 0.3")
    return a.rpc(FS + "GetWatcherEvents", {"watcherId": w})


@rpc_case("watcher-no-events")
def _(a):
    return a.rpc(FS + "GetWatcherEvents", {"watcherId": watcher(a)})


@rpc_case("watcher-remove")
def _(a):
    return a.rpc(FS + "RemoveWatcher", {"watcherId": watcher(a)})


fs_case("watcher-events-unknown", "GetWatcherEvents", {"watcherId": "nope"})
fs_case("watcher-remove-unknown", "RemoveWatcher", {"watcherId": "nope"})


# -- Process

def run_case(name, shell, **kw):
    def fn(a):
        return a.run(shell, **dict(kw))
    CASES.extend(Case("%s.%s" % (name, codec), fn, codec) for codec in ("json", "proto"))


run_case("run", "echo hi")
run_case("run-fails", "echo out; sleep 0.3; echo err >&2; sleep 0.3; exit 3")
run_case("run-killed", "kill -9 $$")
run_case("run-terminated", "kill -TERM $$")
run_case("run-not-found", "/no/such/program")
run_case("run-bytes", r"printf '\303\050\000\377'")
run_case("run-envs", "echo $A $HOME $USER", envs={"A": "1"})
run_case("run-cwd", "pwd", cwd="/tmp")
run_case("run-cwd-tilde", "pwd", cwd="~")
run_case("run-cwd-missing", "pwd", cwd="/no/such")
run_case("run-cwd-file", "pwd", cwd="/etc/passwd")
run_case("run-root", "id -un; pwd", user="root")
run_case("run-deadline", "sleep 60", timeout_ms=1500)
run_case("run-keepalive", "sleep 1.5", headers=[("Keepalive-Ping-Interval", "1")])
run_case("run-no-stdin", "cat")
run_case("run-stdin-absent", "true", stdin=None)
run_case("run-pty", "stty size", pty={"size": {"cols": 80, "rows": 24}}, stdin=None)


@rpc_case("run-no-such-cmd")
def _(a):
    return a.rpc(PROC + "Start", {"process": {"cmd": "/no/such/program"}, "stdin": False})


@rpc_case("run-no-process")
def _(a):
    return a.rpc(PROC + "Start", {})


@rpc_case("process-list-none")
def _(a):
    return a.rpc(PROC + "List", {})


@rpc_case("process-list")
def _(a):
    a.background("sleep 100", tag="mine")
    return a.rpc(PROC + "List", {})


@rpc_case("process-list-envs")
def _(a):
    o = a.start({"process": {"cmd": "sleep", "args": ["100"], "envs": {"A": "1"}, "cwd": "/tmp"}})
    a.open_streams.append(o)
    a.pids.append(a.event(o)["event"]["start"]["pid"])
    return a.rpc(PROC + "List", {})


@rpc_case("connect")
def _(a):
    pid = a.background("read x; echo got $x; exit 4")
    given = []

    def during(n):
        if n == 1:
            given.append(a.call(PROC + "SendInput", {"process": {"pid": pid}, "input": {"stdin": "aXQK"}}))
    return a.rpc(PROC + "Connect", {"process": {"pid": pid}}, during=during)


@rpc_case("connect-tag")
def _(a):
    pid = a.background("read x; exit 0", tag="by-tag")

    def during(n):
        if n == 1:
            a.call(PROC + "SendInput", {"process": {"pid": pid}, "input": {"stdin": "aXQK"}})
    return a.rpc(PROC + "Connect", {"process": {"tag": "by-tag"}}, during=during)


@rpc_case("connect-ended")
def _(a):
    """Its end is remembered for a while."""
    pid = a.background("echo early; exit 5")
    a.open_streams[-1].message()
    return a.rpc(PROC + "Connect", {"process": {"pid": pid}})


@rpc_case("connect-unknown")
def _(a):
    return a.rpc(PROC + "Connect", {"process": {"pid": NO_PID}})


@rpc_case("connect-no-selector")
def _(a):
    return a.rpc(PROC + "Connect", {})


@rpc_case("connect-deadline")
def _(a):
    pid = a.background("sleep 100")
    return a.rpc(PROC + "Connect", {"process": {"pid": pid}}, timeout_ms=1000)


def on_process(name, rpc, fields, shell="sleep 100", pty=False, twice=False, **start):
    """A unary call about a running process."""
    def fn(a):
        if pty:
            start["pty"] = {"size": {"cols": 80, "rows": 24}}
        pid = a.background(shell, **start)
        request = dict({"process": {"pid": pid}}, **fields)
        if twice:
            a.call(PROC + rpc, request)
        return a.rpc(PROC + rpc, request)
    CASES.extend(Case("%s.%s" % (name, codec), fn, codec) for codec in ("json", "proto"))


IN, PTY_IN = {"input": {"stdin": "aGkK"}}, {"input": {"pty": "aGkK"}}
SIZE = {"pty": {"size": {"cols": 120, "rows": 40}}}
on_process("signal-kill", "SendSignal", {"signal": "SIGNAL_SIGKILL"})
on_process("signal-term", "SendSignal", {"signal": "SIGNAL_SIGTERM"})
on_process("signal-zero", "SendSignal", {})
on_process("input", "SendInput", IN, "cat")
on_process("input-pty", "SendInput", PTY_IN, "cat", pty=True)
on_process("input-stdin-to-pty", "SendInput", IN, "cat", pty=True)
on_process("input-pty-to-pipe", "SendInput", PTY_IN, "cat")
on_process("input-no-stdin", "SendInput", IN, stdin=False)
on_process("input-nothing", "SendInput", {}, "cat")
on_process("close-stdin", "CloseStdin", {}, "cat >/dev/null; sleep 100")
on_process("close-stdin-twice", "CloseStdin", {}, "cat >/dev/null; sleep 100", twice=True)
on_process("close-stdin-pty", "CloseStdin", {}, pty=True)
on_process("close-stdin-none", "CloseStdin", {}, stdin=False)
on_process("update", "Update", SIZE, pty=True)
on_process("update-no-pty", "Update", SIZE)
on_process("update-nothing", "Update", {})


def unknown_process(name, rpc, fields):
    def fn(a):
        return a.rpc(PROC + rpc, dict({"process": {"pid": NO_PID}}, **fields))
    CASES.extend(Case("%s.%s" % (name, codec), fn, codec) for codec in ("json", "proto"))


unknown_process("signal-unknown", "SendSignal", {"signal": "SIGNAL_SIGKILL"})
unknown_process("input-unknown", "SendInput", IN)
unknown_process("close-stdin-unknown", "CloseStdin", {})
unknown_process("update-unknown", "Update", SIZE)


@rpc_case("signal-no-selector")
def _(a):
    return a.rpc(PROC + "SendSignal", {"signal": "SIGNAL_SIGKILL"})


@rpc_case("signal-unknown-tag")
def _(a):
    return a.rpc(PROC + "SendSignal", {"process": {"tag": "nope"}, "signal": "SIGNAL_SIGKILL"})


@rpc_case("stream-input")
def _(a):
    pid = a.background("cat >got; sleep 100")
    parts = [{"start": {"process": {"pid": pid}}}, {"data": {"input": {"stdin": "b25l"}}}, {"keepalive": {}},
             {"data": {"input": {"stdin": "dHdv"}}}]
    return a.rpc(PROC + "StreamInput", None, body=b"".join(envelope(a.encode(PROC + "StreamInput", p)) for p in parts))


@rpc_case("stream-input-unknown")
def _(a):
    part = {"start": {"process": {"pid": NO_PID}}}
    return a.rpc(PROC + "StreamInput", None, body=envelope(a.encode(PROC + "StreamInput", part)))
