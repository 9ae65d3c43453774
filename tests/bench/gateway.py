# SPDX-License-Identifier: MIT
"""The gateway's data plane beside nghttpx, which forwards the same requests to the same agentbox-local: HTTP/1.1 in clear in front, HTTP/2
over TLS behind, one worker each."""
import os
import socket
import statistics
import subprocess
import time

import harness
from wire import Client

BULK = 256 << 20
STREAMS = 1000


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Both:
    """Two doors to one sandbox: {"ours": (program, URL), "proxy": …, "direct": …}."""

    def __init__(self, rig):
        self.rig, ours, theirs = rig, free_port(), free_port()
        self.d = harness.Daemon(rig.local, {"gateway": {"listen": "127.0.0.1:%d" % ours}})
        self.proxy = harness.Program("nghttpx", [
            "nghttpx", "--conf=/dev/null", "--frontend=127.0.0.1,%d;no-tls" % theirs, "--workers=1",
            "--backend=127.0.0.1,%s;;proto=h2;tls" % rig.local.url.rpartition(":")[2], "--insecure", "--no-ocsp", "--no-host-rewrite",
            "--single-process"])
        self.doors = {"ours": (self.d, "http://127.0.0.1:%d" % ours), "proxy": (self.proxy, "http://127.0.0.1:%d" % theirs),
                      "direct": (rig.local, rig.local.plain_url)}
        for program, url in self.doors.values():
            harness.until(lambda: self.answers(url), 10, url, program)
        self.identity = rig.client.get({"sandboxID": self.d.ctl("create", "--timeout", "50m").stdout.strip()}).json()
        self.head = rig.client.identity(self.identity)

    @staticmethod
    def answers(url):
        try:
            socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))).close()
            return True
        except OSError:
            return False

    def close(self):
        self.d.close()
        self.proxy.stop(code=None)


def small(bench, both):
    fields = [("content-type", "application/json"), ("connect-protocol-version", "1")] + both.head
    one, wide = {k: [] for k in both.doors}, {k: [] for k in both.doors}
    for _ in range(bench.ROUNDS):
        for name, (program, url) in both.doors.items():
            ask = ("/filesystem.Filesystem/Stat", b'{"path":"/home/user"}')
            one[name].append(bench.h2load(url, *ask, 3000, 1, 1, fields, program.pid, h1=True))
            wide[name].append(bench.h2load(url, *ask, 8000, 32, 1, fields, program.pid, h1=True))
    added = {k: [max(a[2] - b[2], 1) for a, b in zip(one[k], one["direct"])] for k in ("ours", "proxy")}
    bench.row("gateway, Stat, 1 client: added p50", added["ours"], added["proxy"], "nghttpx", "<= 0.7", "us")
    for label, of in (("1 client", one), ("32 clients", wide)):
        bench.row("gateway, Stat, %s: CPU" % label, [x[1] for x in of["ours"]], [x[1] for x in of["proxy"]], "nghttpx", "<= 1", "us")
    bench.row("gateway, Stat, 32 clients: calls/s", [x[0] for x in wide["ours"]], [x[0] for x in wide["proxy"]], "nghttpx")


def bulk(bench, both):
    src = os.path.join(bench.OUT, "bulk")
    with open(src, "wb") as f:
        for _ in range(BULK >> 20):
            f.write(os.urandom(1 << 20))
    curl = ["curl", "-sSf"]
    for k, v in both.head:
        curl += ["-H", "%s: %s" % (k, v)]
    target = "/files?path=/home/user/bulk"
    try:
        for way, words in (("up", ["-H", "Content-Type: application/octet-stream", "-H", "Expect:", "-X", "POST", "-T", src]), ("down", [])):
            rate, cpu = {"ours": [], "proxy": []}, {"ours": [], "proxy": []}
            hwm = both.d.hwm_kb()
            for _ in range(bench.ROUNDS):
                for name in rate:
                    program, url = both.doors[name]
                    before, begin = bench.cpu_ns(program.pid), time.monotonic()
                    subprocess.run(curl + words + [url + target], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True,
                                   timeout=300)
                    rate[name].append(BULK / 1e6 / (time.monotonic() - begin))
                    cpu[name].append((bench.cpu_ns(program.pid) - before) / 1e9 / BULK * (1 << 30))
            bench.row("gateway, bulk %s, 256 MiB" % way, rate["ours"], rate["proxy"], "nghttpx", ">= 1", "MB/s")
            bench.row("gateway, bulk %s: CPU per GiB" % way, cpu["ours"], cpu["proxy"], "nghttpx", "<= 1", "s")
            bench.row("gateway, bulk %s: memory growth" % way, [(both.d.hwm_kb() - hwm) / 1024], [8.0], "a bound", "<= 1", "MiB")
    finally:
        os.unlink(src)


def anonymous_kb(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("RssAnon:"))


def streams(bench, both):
    """Commands that say nothing, each with its stream: what one costs in memory, and that all end."""
    grown, took = {}, {}
    for who in ("ours", "proxy"):
        program, url = both.doors[who]
        client, opened = Client(url, both.rig.local.key), []
        before, begin = anonymous_kb(program.pid), time.monotonic()
        try:
            for _ in range(STREAMS):
                opened.append(client.start(both.identity, argv=["/bin/sleep", "1000"], timeout=60))
                opened[-1].next()
            took[who] = time.monotonic() - begin
            grown[who] = (anonymous_kb(program.pid) - before) / STREAMS
        finally:
            for s in opened:
                s.close()
            both.d.ctl("exec", both.identity["sandboxID"], "--", "/bin/sh", "-c", "pkill sleep; true")
    bench.row("gateway, %d streams: memory for each" % STREAMS, [grown["ours"]], [grown["proxy"]], "nghttpx", "", "KiB")
    bench.row("gateway, %d streams: opened one by one" % STREAMS, [STREAMS / took["ours"]], [STREAMS / took["proxy"]], "nghttpx", "", "/s")


def run(bench, rig):
    both = Both(rig)
    try:
        for part in (small, bulk, streams):
            part(bench, both)
    finally:
        both.close()
