# SPDX-License-Identifier: MIT
"""What a call costs beside many: instructions of each with 100 to 50,000 sandboxes, with commands that have ended, and with clients.

The sandboxes are those of a cloud that answers at once (nginx) and has no list, so that nothing else goes on; one of them is
agentbox-local's, for the calls that reach an agent. Each row is the same call in the same database, grown between the rows.
"""
import itertools
import os
import shutil
import socket
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))

import harness  # noqa: E402
from api import Api  # noqa: E402
from instructions import Counted, history, run_true  # noqa: E402

SIZES = (100, 1000, 10000, 50000)
CLIENTS = (10, 1000)         # a uid may have 1,024 connections
ENDED = 1000            # daemon/command/impl.h: more are not kept for a uid
STARTS = 3
CALLS, ROUNDS = 40, 2    # the least of the rounds: what the daemon does by itself comes on top in some
GOAL = 1.2

# As bench.INSTANT, but its list fails, and one sandbox is another cloud's.
CLOUD = """keepalive_requests 1000000000; default_type application/json;
    location = /sandboxes { return 201 '%s'; }
    location = /sandboxes/%s { proxy_pass %s; proxy_ssl_verify off; }
    location /sandboxes/ { return 200 '%s'; }
    location / { return 503; }"""
CONF = {"daemon": {"reconcile_period": "1h", "log_level": "error"}, "uid %d" % os.getuid(): {"max_streams": "4000"}}


class Mixed:
    """The cloud of the rows, and agentbox-local's agents."""

    def __init__(self, b, local, box):
        self.nginx = b.Nginx(b.authority(), CLOUD % (b.BOX % "$sid", box, local.url, b.BOX % "$asked"), b.INSTANT_MAP)
        self.url, self.key, self.close = self.nginx.url, local.key, self.nginx.close
        self.ca = os.path.join(b.OUT, "growth-ca")
        with open(self.ca, "wb") as out:
            for name in (self.nginx.ca, local.ca):
                with open(name, "rb") as f:
                    out.write(f.read())


def conf_of(local):
    return dict(CONF, **{"account default": {"sandbox_url": local.url}})


def grow(b, cloud, conf, home, n):
    """Until there are so many, by a daemon at full speed."""
    d = harness.Daemon(cloud, conf=conf, folder=home)
    try:
        with Api(d.socket) as api:
            request = b.grpc_frame(api.build(api.message("CreateSandboxRequest"), {"template": "base"}))
            have = api.call("DaemonService.Status").counts.sandboxes_running
            while have < n:
                b.h2load(d.socket, "/agentbox.v1.SandboxService/Create", request, n - have, min(64, n - have), 1, b.GRPC, d.pid)
                have = api.call("DaemonService.Status").counts.sandboxes_running
    finally:
        d.stop()


def ids_of(api, n):
    return [s.id for s in api.call("SandboxService.List", cached=True, page_size=n).sandboxes]


def calls_of(api, box):
    """The calls whose cost must not grow, by name."""
    page = api.call("SandboxService.List", cached=True, page_size=40)
    ids = iter([i for i in ids_of(api, 100) if i != box])
    number = itertools.count()
    return {
        "Create": lambda: api.call("SandboxService.Create", template="base", request_id="r%d-%d" % (os.getpid(), next(number)),
                                   process_lease=True),
        "Acquire": lambda: api.call("LeaseService.Acquire", sandbox=next(ids), process=True),
        "List, first page": lambda: api.call("SandboxService.List", cached=True, page_size=40),
        "List, second page": lambda: api.call("SandboxService.List", cached=True, page_size=40,
                                              page_token=page.next_page_token),
        "Get": lambda: api.call("SandboxService.Get", sandbox=box, max_staleness=3600),
        "Stat": lambda: api.call("FileService.Stat", sandbox=box, path="/tmp"),
        "Run true": run_true(api, box),
        "Status": lambda: api.call("DaemonService.Status"),
    }


def measure(counted, box, names=None):
    got = {}
    with Api(counted.d.socket) as api:
        for name, call in calls_of(api, box).items():
            if names and name not in names:
                continue
            call()      # what only the first one does
            counted.per_call(call, 8, 0)
            got[name] = min(counted.per_call(call, CALLS, 0) for _ in range(ROUNDS))
    return got


def table(title, columns, rows):
    """rows: {name: [figures]}, of which the first one is what the others are compared with."""
    print("\n| %s | %s | ratio | goal |\n|---|%s---|---|" % (title, " | ".join(columns), "---|" * len(columns)))
    for name, v in rows.items():
        print("| %s | %s | %.2f | <= %.1f |" % (name, " | ".join("{:,}".format(x) for x in v), v[-1] / v[0], GOAL), flush=True)


def starts_of(b, cloud, conf, home):
    """(CPU of all threads, wall time) in ms from a start to its first answer: the least of some."""
    figures, like = [], None
    for _ in range(STARTS):
        began = time.monotonic()
        d = harness.Daemon(cloud, conf=conf, folder=home)
        try:
            with Api(d.socket, like=like) as api:
                api.call("DaemonService.Status")
                figures.append((b.cpu_ns(d.pid) / 1e6, (time.monotonic() - began) * 1000))
                like = api
        finally:
            d.stop()
    return min(f[0] for f in figures), min(f[1] for f in figures)


def with_sandboxes(b, cloud, conf, home, box, sizes):
    rows, starts = {}, []
    for n in sizes:
        grow(b, cloud, conf, home, n)
        starts.append((n,) + starts_of(b, cloud, conf, home))
        print("%6d sandboxes: a start %21.0f ms of CPU, %.0f ms to the first answer" % starts[-1], flush=True)
        counted = Counted(cloud, conf=conf, folder=home)
        try:
            for name, figure in measure(counted, box).items():
                rows.setdefault(name, []).append(figure)
                print("%6d sandboxes: %-18s %9d instructions" % (n, name, figure), flush=True)
        finally:
            counted.close()
    table("a call, with so many sandboxes", ["{:,}".format(n) for n in sizes], rows)
    print("\n| a start with so many sandboxes | CPU | to the first answer | goal |\n|---|---|---|---|")
    for n, cpu_ms, wall_ms in starts:
        print("| {:,} | {:.0f} ms | {:.0f} ms | <= {:.0f} ms |".format(n, cpu_ms, wall_ms, 8 + n * 0.005))


def with_ended(cloud, conf, home, box, ended):
    counted, names = Counted(cloud, conf=conf, folder=home), ("Run true", "Get", "Stat")
    try:
        none = measure(counted, box, names)
        with Api(counted.d.socket) as api:
            history(api, box, ended)
        many = measure(counted, box, names)
    finally:
        counted.close()
    table("a call, with so many ended commands of the uid", ["0", "{:,}".format(ended)], {n: [none[n], many[n]] for n in names})


def with_clients(cloud, conf, home, box, clients):
    counted, idle, rows = Counted(cloud, conf=conf, folder=home), [], {"Get": [], "Stat": []}
    try:
        for n in clients:
            while len(idle) < n:
                s = socket.socket(socket.AF_UNIX)
                s.connect(counted.d.socket)
                s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
                idle.append(s)
            harness.until(lambda: counted.d.fds() >= n, 120, "the connections", counted.d)
            for name, figure in measure(counted, box, rows).items():
                rows[name].append(figure)
    finally:
        for s in idle:
            s.close()
        counted.close()
    table("a call, beside so many idle clients", ["{:,}".format(n) for n in clients], rows)


def run(b, sizes=SIZES, ended=ENDED, clients=CLIENTS):
    local, home = harness.LocalCloud(), harness.temp_dir("abd-")
    try:
        d = harness.Daemon(local, folder=home)
        try:
            with Api(d.socket) as api:
                box = api.call("SandboxService.Create", sandbox_timeout=3600, policy={"keep_alive": False}).id
        finally:
            d.stop()
        conf = conf_of(local)
        cloud = Mixed(b, local, box)
        try:
            with_sandboxes(b, cloud, conf, home, box, sizes)
            with_ended(cloud, conf, home, box, ended)
            with_clients(cloud, conf, home, box, clients)
        finally:
            cloud.close()
    finally:
        local.close()
        shutil.rmtree(home, ignore_errors=True)
