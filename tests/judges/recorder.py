# SPDX-License-Identifier: MIT
"""Records what an SDK sends: a server that answers every call from tests/golden (so that the SDK goes on) and keeps each request.

    recorder.py FOLDER LIKE SOURCE VERSION FLAVOUR DRIVER [ARGUMENT…]
        FOLDER      below tests/golden, like sdk/npm
        LIKE        another such folder: what is there byte by byte is not kept again; with a "~" before it, what is there but
                    for the values of header lines; "-" for none
        SOURCE, VERSION     for the index
        FLAVOUR     e2b or agentbox: whose answers it gives
        DRIVER      the program that drives the SDK; it finds us in RECORDER_URL, and names what comes next with
                    GET /_step/NAME, answered with 204
"""
import os
import re
import socket
import socketserver
import subprocess
import sys
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
import fixed  # noqa: E402
import golden  # noqa: E402
from agentcases import split_envelopes  # noqa: E402

API = [
    ("POST", r"/sandboxes", "create.201.full"), ("POST", r"/v2/sandboxes", "create.201.full"),
    ("GET", r"/v2/sandboxes|/sandboxes", "list.200.full"), ("GET", r"/sandboxes/metrics", "metrics_all.200.min"),
    ("GET", r"/sandboxes/[^/]+", "get.200.full"), ("DELETE", r"/sandboxes/[^/]+", "delete.204"),
    ("POST", r"/sandboxes/[^/]+/pause", "pause.204"), ("POST", r"/sandboxes/[^/]+/resume", "resume.201.full"),
    ("POST", r"(/v2)?/sandboxes/[^/]+/connect", "connect.200.full"),
    ("POST", r"/sandboxes/[^/]+/timeout", "timeout.204"), ("POST", r"/sandboxes/[^/]+/refreshes", "refreshes.204"),
    ("PUT", r"/sandboxes/[^/]+/network", "network.204"), ("POST", r"/sandboxes/[^/]+/fork", "fork.201.full"),
    ("POST", r"/sandboxes/[^/]+/snapshots", "snapshot.201.min"), ("GET", r"/snapshots", "snapshots.200.full"),
    ("DELETE", r"/templates/tags", "tags_delete.204"), ("DELETE", r"/templates/.+", "template_delete.204"),
    ("GET", r"/sandboxes/[^/]+/metrics", "metrics.200.min"), ("GET", r"/v2/sandboxes/[^/]+/logs", "logs.200.full"),
    ("GET", r"/sandboxes/[^/]+/logs", "logs_v1.200.full"), ("GET", r"/templates/aliases/.+", "template_alias.200.min"),
    ("GET", r"/templates/[^/]+/tags", "template_tags.200.min"), ("POST", r"/templates/tags", "tags_assign.201.min"),
    ("GET", r"/v2/templates", "templates.200.min"),
]
AGENT = {
    "process.Process/Start": "run.json", "process.Process/Connect": "connect-ended.json",
    "process.Process/List": "process-list.json", "process.Process/Update": "update.json",
    "process.Process/SendInput": "input.json", "process.Process/SendSignal": "signal-kill.json",
    "process.Process/CloseStdin": "close-stdin.json", "process.Process/StreamInput": "stream-input.json",
    "filesystem.Filesystem/Stat": "stat-file.json", "filesystem.Filesystem/MakeDir": "mkdir.json",
    "filesystem.Filesystem/Move": "move.json", "filesystem.Filesystem/ListDir": "list.json",
    "filesystem.Filesystem/Remove": "remove.json", "filesystem.Filesystem/WatchDir": "watch-create.json",
    "filesystem.Filesystem/CreateWatcher": "watcher-create.json",
    "filesystem.Filesystem/GetWatcherEvents": "watcher-events.json",
    "filesystem.Filesystem/RemoveWatcher": "watcher-remove.json",
    "health": "health", "metrics": "metrics", "envs": "envs",
}
ROUTE_OF = [(r"^(/v2|/v3)?/sandboxes/(?!metrics$)[^/]+", r"\1/sandboxes/{sandboxID}"),
            (r"^/templates/aliases/.+", "/templates/aliases/{alias}"),
            (r"^/templates/(?!tags$|aliases/).+?(/tags)?$", r"/templates/{templateID}\1")]
# Header lines that say nothing about the contract, and differ between the HTTP libraries.
COMMON = {"host", "connection", "accept", "accept-encoding", "accept-language", "user-agent", "content-length", "transfer-encoding",
          "sec-fetch-mode", "browser", "lang", "lang_version", "package_version", "publisher", "sdk_runtime", "system", "release",
          "version", "machine", "processor", "connect-accept-encoding", "connect-content-encoding"}
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def spec_answer(name, flavour):
    """Of the flavour where there is one, of the form wished where it differs from the other."""
    for form in (name, name.replace(".full", ".min"), name.replace(".min", ".full")):
        for prefix in ("agentbox-", "") if flavour == "agentbox" else ("",):
            file = "spec/%s%s.res" % (prefix, form)
            if os.path.exists(os.path.join(golden.ROOT, file)):
                return golden.read(file)
    raise KeyError(name)


def answer_to(m, flavour):
    """By the path alone: old versions send routing headers to the control plane too, or none to the agent."""
    path, _, query = m.target.partition("?")
    for method, pattern, name in API:
        if method == m.method and re.fullmatch(pattern, path):
            if "nextToken=" in query:
                name = name.replace(".full", ".min")
            return spec_answer(name, flavour)
    name = AGENT.get(path.strip("/"))
    if path == "/files" and m.method == "GET":
        name = "get-gzip" if "gzip" in (m.header("accept-encoding") or "") else "get-text"
    elif path == "/files":
        name = "post-multipart" if "multipart" in m.header("content-type") else "post-octets"
        if any(k.lower().startswith("x-metadata-") for k, _ in m.headers):
            name = "post-metadata"
    return golden.read("agent/%s.res" % name if name else "spec/error.404.min.res")


class Recorder(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, folder, source, version, flavour):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.source, self.version, self.flavour = folder, source, version, flavour
        self.lock = threading.Lock()
        self.step, self.count = "first", 0
        self.kept = {}              # key_of() -> name
        self.key_of = golden.Message.encode
        self.rows = []

    @property
    def port(self):
        return self.server_address[1]

    def keep(self, m):
        m = normalized(m, self.port)
        data = self.key_of(m)
        with self.lock:
            self.count += 1
            name = self.step if self.count == 1 else "%s-%d" % (self.step, self.count)
            if data in self.kept:
                return
            self.kept[data] = name
            file = "%s/%s.req" % (self.folder, name)
            golden.write(file, m)
            self.rows.append({"file": file, "source": self.source, "version": self.version, "direction": "request",
                              "route": "%s %s" % (m.method, route_of(m.target))})


def route_of(target):
    path = target.split("?")[0]
    for pattern, form in ROUTE_OF:
        path = re.sub(pattern, form, path)
    return path


def normalized(m, port):
    """Fixed values for what is this machine's or this minute's; the boundary keeps its length."""
    head = []
    body = m.body
    boundary = re.search(r'boundary="?([^";]+)', m.header("content-type") or "")
    fixed_boundary = None
    if boundary:
        fixed_boundary = ("-" * 8 + "b0undary" + "0" * 64)[:len(boundary.group(1))]
        body = body.replace(boundary.group(1).encode(), fixed_boundary.encode())
    body = re.sub(UUID.encode(), fixed.UUID.encode(), body)
    if body.startswith(b"\x1f\x8b"):        # a gzip file has the time at which it was made
        body = body[:4] + bytes(4) + body[8:]
    for k, v in m.headers:
        if k.lower() == "host":
            v = fixed.HOST if v == "127.0.0.1:%d" % port else v.replace(":%d" % port, ":3000")
        elif boundary and k.lower() == "content-type":
            v = v.replace(boundary.group(1), fixed_boundary)
        elif k.lower() in ("lang_version", "release", "system_version"):
            v = "1.2.3"
        head.append((k, re.sub(UUID, fixed.UUID, v)))
    return golden.Message(head, body, method=m.method, target=m.target)


def loosely(m):
    """What matters of an old version's request when the newest one's is known: what it asks for, and by which header lines."""
    names = sorted(k.lower() for k, _ in m.headers if k.lower() not in COMMON)
    return repr((m.method, m.target, names, m.body.replace(b" ", b"")))


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while self.one():
                pass
        except (ConnectionError, ValueError):
            pass

    def one(self):
        first = self.rfile.readline().decode("latin-1").split()
        if len(first) != 3:
            return False
        headers = []
        while True:
            line = self.rfile.readline().decode("latin-1").rstrip("\r\n")
            if not line:
                break
            name, _, value = line.partition(":")
            headers.append((name, value.strip()))
        m = golden.Message(headers, b"", method=first[0], target=first[1])
        if (m.header("expect") or "").lower() == "100-continue":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        m.body = self.body(m)
        if m.target.startswith("/_step/"):
            self.server.step, self.server.count = m.target[len("/_step/"):], 0
            self.wfile.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            return True
        self.server.keep(m)
        self.answer(m, answer_to(m, self.server.flavour))
        return (m.header("connection") or "").lower() != "close"

    def body(self, m):
        if (m.header("transfer-encoding") or "").lower() == "chunked":
            out = b""
            while True:
                n = int(self.rfile.readline().split(b";")[0], 16)
                out += self.rfile.read(n)
                self.rfile.readline()
                if n == 0:
                    return out
        return self.rfile.read(int(m.header("content-length") or 0))

    def answer(self, request, a):
        """Streams come a message at a time in chunks."""
        skip = ("transfer-encoding", "connection")
        head = "".join("%s: %s\r\n" % h for h in a.headers if h[0].lower() not in skip)
        is_stream = "connect+" in (a.header("content-type") or "")
        if is_stream:
            head += "Transfer-Encoding: chunked\r\n"
        elif a.header("content-length") is None and a.status != 204:
            head += "Content-Length: %d\r\n" % len(a.body)
        self.wfile.write(("HTTP/1.1 %d x\r\n%s\r\n" % (a.status, head)).encode("latin-1"))
        if not is_stream:
            self.wfile.write(a.body)
            return
        at = 0
        for flags, payload in split_envelopes(a.body):
            piece = a.body[at:at + 5 + len(payload)]
            at += len(piece)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")


def main(folder, like, source, version, flavour, *argv):
    with Recorder(folder, source, version, flavour) as server:
        if like.startswith("~"):
            server.key_of = loosely
        if like != "-":
            like = like.lstrip("~")
            for name in os.listdir(os.path.join(golden.ROOT, like)):
                server.kept[server.key_of(golden.read("%s/%s" % (like, name)))] = name
        threading.Thread(target=server.serve_forever, daemon=True).start()
        path = os.path.join(golden.ROOT, folder)
        for old in os.listdir(path) if os.path.isdir(path) else []:
            os.remove(os.path.join(path, old))
        env = {k: v for k, v in os.environ.items() if not k.startswith(("E2B_", "AGENTBOX_"))}
        env.update(RECORDER_URL="http://127.0.0.1:%d" % server.port, PYTHONDONTWRITEBYTECODE="1")
        r = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, check=False)
        server.shutdown()
        golden.write_index(folder, server.rows)
        print("%s: %d requests" % (folder, len(server.rows)))
        return r.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
