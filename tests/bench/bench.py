# SPDX-License-Identifier: MIT
"""The benchmarks: each measures ours and its peer in turn, in the same run, and prints the ratio with its spread.

CPU of a server is read from the scheduler (ns), summed over its threads; figures are the median of the rounds.
"""
import contextlib
import json
import os
import re
import shutil
import socket
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))

import gateway  # noqa: E402
import growth  # noqa: E402
import harness  # noqa: E402
import leases  # noqa: E402
import reconcile  # noqa: E402
from api import Api  # noqa: E402
from chaosproxy import ChaosProxy  # noqa: E402
from wire import Client, event_of  # noqa: E402

OUT = os.path.join(harness.BUILD, "bench")
ROUNDS = 3
QUICK = ("get", "small", "bulk", "proxy", "exit")      # in less than two minutes, each row with its spread
QUICK_PART = 8
part = 1                # of the calls and bytes of a row; QUICK_PART with --quick
table = []


def cpu_ns(pid):
    total = 0
    for t in os.listdir("/proc/%d/task" % pid):
        try:
            with open("/proc/%d/task/%s/schedstat" % (pid, t), encoding="ascii") as f:
                total += int(f.read().split()[0])
        except OSError:
            pass
    return total


def row(what, ours, peer, name, goal="", unit=""):
    """ours and peer are lists of the rounds' figures; what is one figure by its nature has no spread."""
    a, b = statistics.median(ours), statistics.median(peer)
    ratio = a / b if b else float("inf")
    spread = max((max(x) - min(x)) / statistics.median(x) if statistics.median(x) else 0 for x in (ours, peer))
    spread = "one figure" if len(ours) == len(peer) == 1 else "%.0f %%" % (spread * 100)
    table.append((what, "%.4g %s" % (a, unit), "%s: %.4g %s" % (name, b, unit), "%.2f" % ratio, goal,
                  spread))
    print("%-46s %14s  %-34s ratio %.2f  (goal %s, spread %s)" % (
        what, "%.4g %s" % (a, unit), "%s: %.4g %s" % (name, b, unit), ratio, goal or "-", spread), flush=True)


class Server:
    """A peer's program on a Unix socket."""

    def __init__(self, *argv):
        self.socket = os.path.join(OUT, "%s.sock" % os.path.basename(argv[0]))
        if os.path.exists(self.socket):
            os.unlink(self.socket)
        self.proc = subprocess.Popen([argv[0], self.socket] + list(argv[1:]), stdout=subprocess.PIPE)
        assert self.proc.stdout.readline() == b"ready\n"
        self.pid = self.proc.pid

    def close(self):
        self.proc.kill()
        self.proc.wait()
        self.proc.stdout.close()


def h2load(where, path, data, calls, clients, streams, headers, pid, h1=False):
    """(calls a second, server's CPU in µs a call, p50 in µs) of one run; where is a socket's path or a URL."""
    calls = max(calls // part, clients * streams)
    body, log = os.path.join(OUT, "request"), os.path.join(OUT, "log")
    with open(body, "wb") as f:
        f.write(data)
    if os.path.exists(log):
        os.unlink(log)
    argv = ["h2load", "-n", str(calls), "-c", str(clients), "-m", str(streams), "-d", body, "--log-file=" + log]
    argv += ["--h1"] if h1 else []
    for k, v in headers:
        argv += ["-H", "%s: %s" % (k, v)]
    argv += ["-B", "unix:" + where, "http://localhost" + path] if where.startswith("/") else [where + path]
    before = cpu_ns(pid)
    r = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    used = cpu_ns(pid) - before
    ok = re.search(r"(\d+) succeeded", r.stdout)
    assert r.returncode == 0 and ok and int(ok.group(1)) == calls, r.stdout + r.stderr
    rate = float(re.search(r"([\d.]+) req/s", r.stdout).group(1))
    with open(log, encoding="ascii") as f:
        times = sorted(int(line.split("\t")[2]) for line in f)
    return rate, used / 1000 / calls, times[len(times) // 2]


GRPC = [("content-type", "application/grpc"), ("te", "trailers")]


def grpc_frame(message):
    data = message.SerializeToString()
    return struct.pack(">BI", 0, len(data)) + data


class Rig:
    """agentbox-local and an agentboxd on it, with one sandbox."""

    def __enter__(self):
        self.local = harness.LocalCloud()
        self.d = harness.Daemon(self.local)
        self.api = Api(self.d.socket)
        self.box = self.api.call("SandboxService.Create", sandbox_timeout=3000).id
        self.client = Client(self.local.plain_url, self.local.key)
        self.identity = self.client.get({"sandboxID": self.box}).json()
        return self

    def __exit__(self, *exc):
        self.api.call("SandboxService.Kill", sandbox=self.box)
        self.api.close()
        self.d.close()
        self.local.close()


def bench_get(rig):
    """Cached Get over the socket against a gRPC server of the same shape, and the floor."""
    request = grpc_frame(rig.api.build(rig.api.message("GetSandboxRequest"),
                                       {"sandbox": rig.box, "max_staleness": 3600}))
    size = len(rig.api.call("SandboxService.Get", sandbox=rig.box).SerializeToString())
    peer, floor = Server(os.path.join(OUT, "peer")), Server(os.path.join(OUT, "floor"), str(min(size, 240)))
    path = "/agentbox.v1.SandboxService/Get"
    try:
        for label, calls, clients, streams, goal_rate, goal_cpu in (
                ("1 client", 8000, 1, 1, "", ""), ("8 clients", 40000, 8, 1, ">= 1.5", "<= 0.45"),
                ("64 clients", 40000, 64, 1, ">= 1.5", ""), ("1 client x 100 streams", 60000, 1, 100, ">= 2.5", "<= 0.20")):
            got = {"ours": [], "peer": [], "floor": []}
            for _ in range(ROUNDS):
                for name, where, pid in (("ours", rig.d.socket, rig.d.pid), ("peer", peer.socket, peer.pid),
                                         ("floor", floor.socket, floor.pid)):
                    got[name].append(h2load(where, path, request, calls, clients, streams, GRPC, pid))
            col = lambda n, i: [x[i] for x in got[n]]
            row("Get, %s: calls/s" % label, col("ours", 0), col("peer", 0), "gRPC C++", goal_rate)
            row("Get, %s: server CPU" % label, col("ours", 1), col("peer", 1), "gRPC C++", goal_cpu, "us")
            row("Get, %s: server CPU" % label, col("ours", 1), col("floor", 1), "floor",
                "<= 1.5" if label != "64 clients" else "", "us")
            if clients == 1 and streams == 1:
                row("Get, 1 client: p50", col("ours", 2), col("peer", 2), "gRPC C++", "<= 0.9", "us")
                row("the floor, 1 client: p50", col("floor", 2), col("peer", 2), "gRPC C++", "", "us")
    finally:
        peer.close()
        floor.close()


def bench_small(rig):
    """A Stat through the daemon against the same call made directly to agentbox-local over TLS."""
    request = grpc_frame(rig.api.build(rig.api.message("StatRequest"), {"sandbox": rig.box, "path": "/home/user"}))
    direct = [("content-type", "application/json"), ("connect-protocol-version", "1")] + rig.client.identity(rig.identity)
    for label, calls, clients, streams in (("1 client", 3000, 1, 1), ("1 client x 100", 12000, 1, 100)):
        ours, theirs = [], []
        for _ in range(ROUNDS):
            ours.append(h2load(rig.d.socket, "/agentbox.v1.FileService/Stat", request, calls, clients, streams, GRPC,
                               rig.d.pid))
            theirs.append(h2load(rig.local.url, "/filesystem.Filesystem/Stat", b'{"path":"/home/user"}', calls,
                                 clients, streams, direct, rig.local.pid))
        row("Stat, %s: calls/s" % label, [x[0] for x in ours], [x[0] for x in theirs], "direct")
        row("Stat, %s: p50" % label, [x[2] for x in ours], [x[2] for x in theirs], "direct", "", "us")
        row("Stat, %s: daemon CPU" % label, [x[1] for x in ours], [x[1] for x in theirs], "agentbox-local's, direct", "",
            "us")


class Nghttpx:
    """nghttpx with one worker: cleartext on a Unix socket in front, agentbox-local's HTTP/2 over TLS behind."""

    def __init__(self, local):
        self.socket = os.path.join(OUT, "nghttpx.sock")
        if os.path.exists(self.socket):
            os.unlink(self.socket)
        self.program = harness.Program("nghttpx", [
            "nghttpx", "--conf=/dev/null", "--frontend=unix:%s;no-tls" % self.socket, "--workers=1",
            "--backend=127.0.0.1,%s;;proto=h2;tls" % local.url.rpartition(":")[2], "--insecure", "--no-ocsp", "--single-process",
            "--frontend-http2-window-size=16M", "--backend-http2-window-size=16M", "--frontend-http2-connection-window-size=16M",
            "--backend-http2-connection-window-size=16M"])
        harness.until(lambda: os.path.exists(self.socket), 10, "nghttpx", self.program)
        self.pid = self.program.pid

    def close(self):
        self.program.stop(code=None)


def bench_bulk(rig):
    """512 MB down and up through the daemon and through nghttpx, and by curl straight to agentbox-local, over TLS behind all."""
    size = (512 << 20) // part
    src = os.path.join(OUT, "bulk")
    with open(src, "wb") as f:
        block = os.urandom(1 << 20)
        for _ in range(size >> 20):
            f.write(block)
    head, path = [], "/files?path=/home/user/bulk"
    for k, v in rig.client.identity(rig.identity):
        head += ["-H", "%s: %s" % (k, v)]
    proxy = Nghttpx(rig.local)
    curl = ["curl", "-sSf"] + head
    direct = curl + ["--http2", "--cacert", rig.local.ca, rig.local.url + path]
    through = curl + ["--http2-prior-knowledge", "--unix-socket", proxy.socket, "http://localhost" + path]
    send = ["-H", "Content-Type: application/octet-stream", "-X", "POST", "-T", src]
    ctl = [harness.AGENTBOXCTL, "-s", rig.d.socket]
    ways = {"up": (ctl + ["cp", src, rig.box + ":/home/user/bulk"], direct + send, through + send),
            "down": (ctl + ["cat", rig.box + ":/home/user/bulk"], direct, through)}
    try:
        for way in ("up", "down"):
            rates, cpus = ([], [], []), ([], [], [])
            hwm = rig.d.hwm_kb()
            for _ in range(ROUNDS):
                for i, (argv, pid) in enumerate(zip(ways[way], (rig.d.pid, rig.local.pid, proxy.pid))):
                    before, begin = cpu_ns(pid), time.monotonic()
                    subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, timeout=300)
                    rates[i].append(size / 1e6 / (time.monotonic() - begin))
                    cpus[i].append((cpu_ns(pid) - before) / 1e9 / size * (1 << 30))
            what = "bulk %s, %d MB" % (way, size >> 20)
            row(what, rates[0], rates[1], "curl direct", ">= 0.9", "MB/s")
            row(what, rates[0], rates[2], "nghttpx", "", "MB/s")
            row("bulk %s: CPU per GiB" % way, cpus[0], cpus[2], "nghttpx", "<= 0.6", "s")
            row("bulk %s: daemon CPU per GiB" % way, cpus[0], [0.8 if way == "up" else 0.6], "the goal", "<= 1", "s")
            row("bulk %s: memory growth of the daemon" % way, [(rig.d.hwm_kb() - hwm) / 1024], [4.0], "the goal", "<= 1", "MiB")
    finally:
        os.unlink(src)
        proxy.close()


def bench_first(rig):
    """A fresh process's first call, the cloud 20 ms away: agentboxctl through a warm daemon, curl, the npm SDK."""
    with ChaosProxy("127.0.0.1", int(rig.local.url.rpartition(":")[2])) as proxy:
        proxy.latency = 0.010  # each way
        url = "https://127.0.0.1:%d" % proxy.port
        far = harness.Daemon(type("Far", (), {"url": url, "ca": rig.local.ca, "key": rig.local.key}))
        try:
            def wall(argv, env=None):
                begin = time.monotonic()
                subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, timeout=60,
                               env=dict(os.environ, **(env or {})))
                return (time.monotonic() - begin) * 1000
            box = far.ctl("create").stdout.strip()
            exec_true = [harness.AGENTBOXCTL, "-s", far.socket, "exec", box, "--", "true"]
            get = [harness.AGENTBOXCTL, "-s", far.socket, "get", box]
            wall(exec_true)
            curl = ["curl", "-sSf", "--cacert", rig.local.ca, "-H", "X-API-Key: " + rig.local.key, url + "/sandboxes/" + box]
            rounds = {"exec": [], "get": [], "curl": [], "sdk": []}
            sdk = None
            if shutil.which("node") and os.path.isdir(os.path.join(harness.ROOT, "tests/it/npm/node_modules/e2b")):
                script = os.path.join(harness.ROOT, "tests/it/npm/first.mjs")
                sdk = ["node", script, box]
            env = {"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_API_KEY": rig.local.key,
                   "NODE_EXTRA_CA_CERTS": rig.local.ca}
            for _ in range(5):
                rounds["exec"].append(wall(exec_true))
                rounds["get"].append(wall(get))
                rounds["curl"].append(wall(curl))
                if sdk:
                    rounds["sdk"].append(wall(sdk, env))
            row("fresh process, 20 ms away: exec ID -- true", rounds["exec"], [20.0], "one round trip", "<= 1.5", "ms")
            row("fresh process, 20 ms away: exec ID -- true", rounds["exec"], rounds["curl"], "curl, one call", "<= 0.5", "ms")
            start = [h2load(rig.local.url, "/process.Process/Start", WRAPPED, 100, 1, 1, direct_start(rig), rig.local.pid)[2] / 1000
                     for _ in range(5)]
            row("fresh process, 20 ms away: exec ID -- true", rounds["exec"], [20 + a + b for a, b in zip(rounds["get"], start)],
                "a round trip, get, the programs", "", "ms")
            row("fresh process: get ID, cached", rounds["get"], rounds["curl"], "curl, one call", "<= 0.5", "ms")
            if sdk:
                row("fresh process: get ID, cached", rounds["get"], rounds["sdk"], "npm SDK, getInfo", "<= 0.1", "ms")
            else:
                print("fresh process against the npm SDK: skipped, the SDK is not installed")
        finally:
            far.close()


def bench_memory(rig):
    """Memory per idle client connection, and of the idle daemon."""
    base = rig.d.rss_kb()
    idle = []
    for _ in range(1000):
        s = socket.socket(socket.AF_UNIX)
        s.connect(rig.d.socket)
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        idle.append(s)
    fds = 1000
    harness.until(lambda: rig.d.fds() >= fds, 20, "the connections")
    rig.api.call("DaemonService.Status")
    grown = rig.d.rss_kb() - base
    for s in idle:
        s.close()
    row("memory per idle client connection", [grown / 1000], [16.0], "the goal", "<= 1", "KiB")
    fresh = harness.Daemon(rig.local)
    try:
        time.sleep(2)           # what the start needs for a moment is given back
        row("resident memory of an idle daemon, 2 s after its start", [fresh.rss_kb() / 1024], [8.0], "the goal", "<= 1", "MiB")
        print("%-46s %14s" % ("of it anonymous", "%.4g MiB" % (fresh.status_kb("RssAnon") / 1024)))
    finally:
        fresh.close()


class Nginx:
    """nginx over TLS and HTTP/2 on a port of its own; `inside` is what its server block says."""

    def __init__(self, authority, inside, conf=""):
        cert, key = authority.issue()
        self.folder = harness.temp_dir("nginx-")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        with open(os.path.join(self.folder, "conf"), "w", encoding="ascii") as f:
            f.write("""daemon off; worker_processes 1; pid %(d)s/pid; error_log %(d)s/err; events { worker_connections 1024; }
                http { access_log off; client_body_temp_path %(d)s/b; proxy_temp_path %(d)s/p; fastcgi_temp_path %(d)s/f;
                uwsgi_temp_path %(d)s/u; scgi_temp_path %(d)s/s; %(conf)s
                server { listen 127.0.0.1:%(port)d ssl http2; ssl_certificate %(cert)s; ssl_certificate_key %(key)s;
                client_max_body_size 0; http2_max_concurrent_streams 128; %(inside)s } }""" % {
                    "d": self.folder, "conf": conf, "port": self.port, "cert": cert, "key": key, "inside": inside})
        self.program = harness.Program("nginx", ["nginx", "-p", self.folder, "-c", os.path.join(self.folder, "conf"),
                                                 "-e", os.path.join(self.folder, "err")])

        def answers():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", self.port)) == 0
        harness.until(answers, 10, "nginx", self.program)
        self.url, self.ca, self.key = "https://127.0.0.1:%d" % self.port, authority.cert, harness.KEY

    def close(self):
        self.program.stop(code=None)
        shutil.rmtree(self.folder, ignore_errors=True)


def authority():
    from fakecloud.certs import Authority
    return Authority(os.path.join(OUT, "ca"))


# A cloud that does nothing and answers at once: every POST makes a sandbox, every GET finds one, the list is empty.
INSTANT_MAP = 'map $request_id $sid { "~^(?<x>.{20})" "i$x"; } map $uri $asked { "~^/sandboxes/(?<y>i.{20})" $y; default none; }'
BOX = ('{"templateID":"base","sandboxID":"%s","clientID":"6532622b","envdVersion":"0.4.0","envdAccessToken":"t","alias":"base",'
       '"startedAt":"2030-01-01T00:00:00Z","endAt":"2030-01-01T01:00:00Z","state":"running","cpuCount":2,"memoryMB":512,'
       '"diskSizeMB":512}')
INSTANT = """keepalive_requests 1000000000; default_type application/json;
    location = /sandboxes { return 201 '%s'; }
    location /sandboxes/ { return 200 '%s'; }
    location / { return 200 '[]'; }""" % (BOX % "$sid", BOX % "$asked")


def sync_ms(folder):
    """The p50 of what each commit has to do at the least, on the disk of this folder."""
    times = []
    with open(os.path.join(folder, "synced"), "wb", buffering=0) as f:
        for _ in range(100):
            begin = time.monotonic()
            f.write(bytes(4096))
            os.fdatasync(f.fileno())
            times.append((time.monotonic() - begin) * 1000)
    return statistics.median(times)


def read_rows_ms(home):
    """SQLite alone: every column of every sandbox is decoded, and nothing made of it."""
    with contextlib.closing(sqlite3.connect("file:%s/state/agentboxd.db?mode=ro" % home, uri=True)) as db:
        columns = [c[1] for c in db.execute("pragma table_info(sandbox)")]
        begin = time.monotonic()
        db.execute("select sum(%s) from sandbox" % " + ".join("coalesce(length(%s), 0)" % c for c in columns)).fetchone()
        return (time.monotonic() - begin) * 1000


def bench_creates(rig):
    """Creates by 64 clients on a cloud that answers at once, each with its intent on disk; then a restart with all of them."""
    n = 10000
    cloud = Nginx(authority(), INSTANT, INSTANT_MAP)
    conf = {"daemon": {"reconcile_period": "1h"}, "uid 0": {"max_streams": "4000"}}
    d = harness.Daemon(cloud, conf=conf)
    try:
        request = grpc_frame(rig.api.build(rig.api.message("CreateSandboxRequest"), {"template": "base"}))
        direct, rates, p50, p50_direct, syncs, work = [], [], [], [], [], []
        for _ in range(ROUNDS):
            r, used, p = h2load(d.socket, "/agentbox.v1.SandboxService/Create", request, n // ROUNDS + 1, 64, 1, GRPC, d.pid)
            rates.append(r)
            work.append(used)
            syncs.append(sync_ms(d.home))
            p50.append(h2load(d.socket, "/agentbox.v1.SandboxService/Create", request, 100, 1, 1, GRPC, d.pid)[2] / 1000)
            r, _, p = h2load(cloud.url, "/sandboxes", b"{}", 3000, 64, 1, [("content-type", "application/json")], cloud.program.pid)
            direct.append(r)
            p50_direct.append(h2load(cloud.url, "/sandboxes", b"{}", 100, 1, 1, [], cloud.program.pid)[2] / 1000)
        row("create, 64 clients, an instant cloud: calls/s", rates, [5000.0], "the goal", ">= 1")
        row("create, 64 clients: calls/s", rates, direct, "nginx directly")
        row("create, 64 clients: CPU of each", work, [1e6 / 12000], "what 12,000/s leave it", "<= 1", "us")
        row("create, 1 client: p50", p50, p50_direct, "nginx directly", "", "ms")
        row("create, 1 client: p50", p50, syncs, "4 KiB written and synced beside it", "<= 3", "ms")
        with Api(d.socket) as api:
            known = api.call("DaemonService.Status").counts.sandboxes_running
        d.stop()
        ready, read = [], []
        for _ in range(ROUNDS):
            read.append(read_rows_ms(d.home))
            begin = time.monotonic()
            d = harness.Daemon(cloud, conf=conf, folder=d.home)
            with Api(d.socket, like=rig.api) as api:
                assert api.call("DaemonService.Status").counts.sandboxes_running == known
            ready.append((time.monotonic() - begin) * 1000)
            if _ < ROUNDS - 1:
                d.stop()
        row("restart with %d sandboxes: to the first answer" % known, ready, [1000.0], "the goal", "<= 1", "ms")
        row("restart with %d sandboxes: to the first answer" % known, ready, read, "SQLite reading each column", "", "ms")
        time.sleep(5)           # what the start brings
        before = cpu_ns(d.pid)
        time.sleep(5)           # the idleness that is measured
        row("idle with %d sandboxes: share of a core" % known, [(cpu_ns(d.pid) - before) / 5e9 * 100], [1.0], "the goal", "<= 1", "%")
    finally:
        if d.running():
            d.stop()
        shutil.rmtree(d.home, ignore_errors=True)
        cloud.close()


def bench_proxy(rig):
    """The Stat of `small` through nghttpx, which forwards it, and what each of the two adds."""
    proxy = Nghttpx(rig.local)
    sock = proxy.socket
    request = grpc_frame(rig.api.build(rig.api.message("StatRequest"), {"sandbox": rig.box, "path": "/home/user"}))
    fields = [("content-type", "application/json"), ("connect-protocol-version", "1")] + rig.client.identity(rig.identity)
    path, body = "/filesystem.Filesystem/Stat", b'{"path":"/home/user"}'
    try:
        got = {"ours": [], "proxy": [], "direct": []}
        wide = {"ours": [], "proxy": []}
        for _ in range(ROUNDS):
            got["ours"].append(h2load(rig.d.socket, "/agentbox.v1.FileService/Stat", request, 3000, 1, 1, GRPC, rig.d.pid))
            got["proxy"].append(h2load(sock, path, body, 3000, 1, 1, fields, proxy.pid))
            got["direct"].append(h2load(rig.local.url, path, body, 3000, 1, 1, fields, rig.local.pid))
            wide["ours"].append(h2load(rig.d.socket, "/agentbox.v1.FileService/Stat", request, 12000, 1, 100, GRPC, rig.d.pid))
            wide["proxy"].append(h2load(sock, path, body, 12000, 1, 100, fields, proxy.pid))
        added = {k: [max(a[2] - b[2], 1) for a, b in zip(got[k], got["direct"])] for k in ("ours", "proxy")}
        row("Stat, 1 client: added p50", added["ours"], added["proxy"], "nghttpx", "<= 0.6", "us")
        row("Stat, 1 client x 100: CPU", [x[1] for x in wide["ours"]], [x[1] for x in wide["proxy"]], "nghttpx", "<= 1.5", "us")
    finally:
        proxy.close()


def dials(d):
    return sum(o.dials for o in Api(d.socket).call("DaemonService.Status").pool)


def bench_many(rig):
    """100 processes with 20 calls each; 10,000 calls 32 wide over a server that recycles connections."""
    fresh = harness.Daemon(rig.local)
    try:
        script = "i=0; while [ $i -lt 20 ]; do %s -s %s stat %s:/tmp >/dev/null || exit 1; i=$((i+1)); done" % (
            harness.AGENTBOXCTL, fresh.socket, rig.box)
        begin = time.monotonic()
        running = [subprocess.Popen(["sh", "-c", script]) for _ in range(100)]
        assert not any(p.wait(300) for p in running)
        print("100 processes x 20 calls: %.1f s" % (time.monotonic() - begin))
        row("100 processes x 20 calls: connections", [float(dials(fresh))], [3.0], "the goal", "<= 1")
    finally:
        fresh.close()
    bench_recycled(rig)


def bench_recycled(rig):
    import concurrent.futures
    front = Nginx(authority(), "keepalive_requests 1000; proxy_buffering off; proxy_request_buffering off; location / { proxy_pass "
                  "http://127.0.0.1:%d; proxy_http_version 1.1; proxy_set_header Host $http_host; "
                  "proxy_set_header Connection \"\"; }" % rig.local.port)
    front.key = rig.local.key
    d = harness.Daemon(front)
    try:
        with Api(d.socket) as api, concurrent.futures.ThreadPoolExecutor(32) as threads:
            api.call("FileService.Stat", sandbox=rig.box, path="/tmp")

            def one(_):
                try:
                    api.call("FileService.Stat", sandbox=rig.box, path="/tmp")
                    return 0
                except Exception:       # counted
                    return 1
            errors = sum(threads.map(one, range(10000)))
            goaways = sum(o.goaways for o in api.call("DaemonService.Status").pool)
        open_now, peak = 0, 0
        for line in d.log().splitlines():
            open_now += ("upstream_connected" in line) - ("upstream_closed" in line)
            peak = max(peak, open_now)
        row("10,000 calls over %d recycled connections: errors" % goaways, [float(errors)], [1.0], "the goal: less than", "< 1")
        row("the same: connections at once, two origins", [float(peak)], [4.0], "the goal", "<= 1")
    finally:
        d.close()
        front.close()


TICKS = """
import sys, time
for i in range(int(sys.argv[1])):
    time.sleep(0.02)
    sys.stdout.buffer.write(b"%d\\n" % time.time_ns())
    sys.stdout.flush()
"""


def lateness(out, now, into):
    """How late each time stamp in these bytes is, in ms."""
    into += [(now - int(t)) / 1e6 for t in out.split()]


def p99(values):
    return sorted(values)[len(values) * 99 // 100]


def run_directly(rig, n):
    """Seconds in which so many of the same programs begin and end when the agent itself is asked, a hundred at once."""
    begin = time.monotonic()
    h2load(rig.local.url, "/process.Process/Start", WRAPPED, n * part, 1, 100, direct_start(rig), rig.local.pid)
    return time.monotonic() - begin


def bench_streams(rig):
    """1,000 commands at once, one stream each; twenty of them tick, the others are silent. The added latency of a chunk
    is against the agent's own streams."""
    n, ticking, ticks = 1000, 20, 150
    d = harness.Daemon(rig.local, conf={"uid %d" % os.getuid(): {"max_streams": 2000}})
    api, box = Api(d.socket), None
    try:
        box = api.call("SandboxService.Create", sandbox_timeout=3000).id
        api.run(box, "true")
        anon, hwm, begin = d.status_kb("RssAnon"), d.hwm_kb(), time.monotonic()
        streams = [api.stream("CommandService.Run", sandbox=box, argv={"args": ["sleep", "1000"]}, timeout=600)
                   for _ in range(n - ticking)]
        for s in streams:
            assert next(s).WhichOneof("event") == "started"
        took = time.monotonic() - begin
        per_stream = (d.status_kb("RssAnon") - anon) / len(streams)
        ours, theirs = [], []

        def read_ours():
            for e in api.stream("CommandService.Run", sandbox=box, argv={"args": ["python3", "-c", TICKS, str(ticks)]}):
                lateness(e.output.data, time.time_ns(), ours)

        def read_direct():
            with rig.client.start(rig.identity, argv=["/usr/bin/python3", "-c", TICKS, str(ticks)]) as s:
                for m in s:
                    kind, data = event_of(m)
                    if kind == "stdout":
                        lateness(data, time.time_ns(), theirs)
        for read in (read_direct, read_ours):
            threads = [threading.Thread(target=read) for _ in range(ticking)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        assert len(ours) == len(theirs) == ticking * ticks
        row("1,000 command streams: all are started after", [took], [2.0], "the goal", "<= 1", "s")
        row("1,000 command streams: all are started after", [took], [run_directly(rig, n - ticking)], "the same programs, directly", "", "s")
        row("1,000 command streams: connections", [float(dials(d))], [13.0], "the goal", "<= 1")
        row("1,000 command streams: memory of each", [per_stream], [4.0], "the goal", "<= 1", "KiB")
        row("1,000 command streams: a chunk's latency, p50", [statistics.median(ours)], [statistics.median(theirs)],
            "direct", "", "ms")
        row("1,000 command streams: a chunk's added latency, p99", [p99(ours) - p99(theirs)], [2.0], "the goal", "<= 1",
            "ms")
        row("1,000 command streams: memory growth of the daemon", [(d.hwm_kb() - hwm) / 1024], [16.0], "a bound", "<= 1",
            "MiB")
        for s in streams:
            s.cancel()
    finally:
        if box:
            api.call("SandboxService.Kill", sandbox=box)
        api.close()
        d.close()


def first_bytes(rig):
    """From the start of an echo to its first byte: through the daemon, and directly."""
    begin, times = time.monotonic(), []
    for e in rig.api.stream("CommandService.Run", sandbox=rig.box, argv={"args": ["echo", "x"]}):
        if e.WhichOneof("event") == "output":
            times.append((time.monotonic() - begin) * 1000)
    begin = time.monotonic()
    with rig.client.start(rig.identity, argv=["/bin/echo", "x"]) as s:
        for m in s:
            if event_of(m)[0] == "stdout":
                times.append((time.monotonic() - begin) * 1000)
    assert len(times) == 2, times
    return times


# The programs that a Run has beside its own: a shell that looks for setsid, and setsid.
WRAPPED = b'{"process":{"cmd":"/bin/sh","args":["-c","[ -x /usr/bin/setsid ] && exec /usr/bin/setsid -- /bin/true"]},"stdin":false}'
WRAPPED = struct.pack(">BI", 0, len(WRAPPED)) + WRAPPED


def direct_start(rig):
    return [("content-type", "application/connect+json"), ("connect-protocol-version", "1")] + rig.client.identity(rig.identity)


def bench_exit(rig):
    """`true`: a whole Run against the agent's Start, both by h2load; and when its first event comes, both by Python."""
    run = grpc_frame(rig.api.build(rig.api.message("StartCommandRequest"), {
        "sandbox": rig.box, "argv": {"args": ["true"]}}))
    start = b'{"process":{"cmd":"/bin/true"},"stdin":false}'
    direct = direct_start(rig)
    ours, theirs, wrapped = [], [], []
    hwm = rig.d.hwm_kb()
    for _ in range(ROUNDS):
        ours.append(h2load(rig.d.socket, "/agentbox.v1.CommandService/Run", run, 300, 1, 1, GRPC, rig.d.pid))
        theirs.append(h2load(rig.local.url, "/process.Process/Start", struct.pack(">BI", 0, len(start)) + start, 300, 1, 1,
                             direct, rig.local.pid))
        wrapped.append(h2load(rig.local.url, "/process.Process/Start", WRAPPED, 300, 1, 1, direct, rig.local.pid))
    row("Run true, 1 client: start to exit, p50", [x[2] / 1000 for x in ours], [x[2] / 1000 for x in wrapped],
        "direct Start of the same programs", "", "ms")
    row("Run true, 1 client: start to exit, p50", [x[2] / 1000 for x in ours], [x[2] / 1000 for x in theirs],
        "direct Start", "", "ms")
    row("Run true: daemon CPU", [x[1] for x in ours], [x[1] for x in theirs], "agentbox-local's, direct", "", "us")
    first, first_direct = [], []
    for _ in range(ROUNDS):
        got = [first_bytes(rig) for _ in range(36 // part)]
        first.append(statistics.median(x[0] for x in got))
        first_direct.append(statistics.median(x[1] for x in got))
    row("Run echo, Python clients: start to first byte", first, first_direct, "direct Start", "", "ms")
    row("Run true: memory growth of the daemon", [(rig.d.hwm_kb() - hwm) / 1024], [4.0], "a bound", "<= 1", "MiB")


def written_cpu(size):
    """Seconds of CPU in which so many bytes are written into a file, as a spool is: 64 KiB at a time, nothing synced."""
    piece, begin = bytes(64 << 10), time.thread_time()
    with tempfile.TemporaryFile(dir=OUT, buffering=0) as f:
        for _ in range(size // len(piece)):
            f.write(piece)
        return time.thread_time() - begin


def relayed_cpu(rig, proxy, size):
    """Seconds of CPU in which nghttpx passes so much output on, from the same agent to one reader."""
    start = json.dumps({"process": {"cmd": "/bin/sh", "args": ["-c", "head -c %d /dev/zero" % size]}, "stdin": False}).encode()
    head = [arg for k, v in direct_start(rig) for arg in ("-H", "%s: %s" % (k, v))]
    before = cpu_ns(proxy.pid)
    got = subprocess.run(["curl", "-sSf", "--http2-prior-knowledge", "--unix-socket", proxy.socket, "--data-binary", "@-"] + head +
                         ["http://localhost/process.Process/Start"], input=struct.pack(">BI", 0, len(start)) + start,
                         stdout=subprocess.PIPE, check=True, timeout=300).stdout
    assert len(got) > size and b'"exited":true' in got[-500:].replace(b" ", b""), got[-500:]
    return (cpu_ns(proxy.pid) - before) / 1e9


def output_floor(rig, size):
    """CPU of a GiB of output to one reader: what nghttpx takes to pass it on, and what it takes to write it into a file."""
    proxy = Nghttpx(rig.local)
    try:
        return [(relayed_cpu(rig, proxy, size) + written_cpu(size)) / size * (1 << 30) for _ in range(ROUNDS)]
    finally:
        proxy.close()


def bench_fanout(rig):
    """One command's output to 16 readers, against one reader: bytes delivered a second, CPU of the daemon for a GiB."""
    size = 60 << 20
    rates, cpus = {1: [], 16: []}, {1: [], 16: []}
    hwm = rig.d.hwm_kb()
    for _ in range(ROUNDS):
        for n in rates:
            c = rig.api.call("CommandService.Start", sandbox=rig.box, argv={"args": [
                "/bin/sh", "-c", "until [ -e go ]; do sleep 0.02; done; rm go; head -c %d /dev/zero" % size]})
            readers = [subprocess.Popen([harness.AGENTBOXCTL, "-s", rig.d.socket, "attach", c.command_id],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                       for _ in range(n)]
            before, begin = cpu_ns(rig.d.pid), time.monotonic()
            rig.api.run(rig.box, "touch go")
            for p in readers:
                assert p.communicate()[1] == b"" and p.returncode == 0, "it came whole"
            rates[n].append(size * n / 1e6 / (time.monotonic() - begin))
            cpus[n].append((cpu_ns(rig.d.pid) - before) / 1e9 / (size * n) * (1 << 30))
    row("fan-out of 60 MiB to 16 readers: delivered", rates[16], rates[1], "to one", "", "MB/s")
    row("fan-out to 16 readers: daemon CPU per GiB delivered", cpus[16], cpus[1], "to one", "<= 1", "s")
    row("output to one reader: daemon CPU per GiB", cpus[1], output_floor(rig, size), "nghttpx, and a file written", "", "s")
    row("output to one reader: daemon CPU per GiB", cpus[1], [1.2], "the goal", "<= 1", "s")
    row("fan-out: memory growth of the daemon", [(rig.d.hwm_kb() - hwm) / 1024], [16.0], "a bound", "<= 1", "MiB")


def bench_leases(rig):
    """10,000 leased sandboxes, on a scripted cloud of its own."""
    leases.with_many(sys.modules[__name__])


def bench_owners(rig):
    """Owners that are killed, one after the other and 1,000 at once."""
    leases.owners(sys.modules[__name__])


def bench_gateway(rig):
    """The gateway beside nghttpx."""
    gateway.run(sys.modules[__name__], rig)


def bench_growth(rig):
    """Calls beside many sandboxes, ended commands, clients."""
    growth.run(sys.modules[__name__])


def bench_reconcile(rig):
    """The comparison of a whole list, and for how long it holds the loop."""
    reconcile.run(sys.modules[__name__])


BENCHES = {"get": bench_get, "small": bench_small, "bulk": bench_bulk, "first": bench_first, "memory": bench_memory,
           "creates": bench_creates, "proxy": bench_proxy, "many": bench_many, "streams": bench_streams, "exit": bench_exit,
           "fanout": bench_fanout,
           "leases": bench_leases, "owners": bench_owners, "gateway": bench_gateway,
           "growth": bench_growth, "reconcile": bench_reconcile}


def main():
    global part
    names = sys.argv[1:]
    if "--quick" in names:
        part = QUICK_PART
        names = [n for n in names if n != "--quick"] or QUICK
    names = names or list(BENCHES)
    with Rig() as rig:
        for n in names:
            BENCHES[n](rig)
    print("\n| what | ours | against | ratio | goal | spread |\n|---|---|---|---|---|---|")
    for r in table:
        print("| %s |" % " | ".join(r))


if __name__ == "__main__":
    main()
