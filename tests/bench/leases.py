# SPDX-License-Identifier: MIT
"""Lifecycle with many: 10,000 leased sandboxes in the store, owners that are killed, one and by the thousand.

The cloud is the scripted one, in Python and on the same two cores: it takes longer to make a page of a list than the
daemon to read it, so what is measured beside a reconcile contains the cloud's share of the machine.
"""
import os
import statistics
import subprocess
import threading
import time

import harness
from api import Api
from fakecloud import FakeCloud
from wire import Client

BOXES, OWNERS, ONE_BY_ONE = 10000, 1000, 100
BURST, PER_SECOND = 20, 20      # daemon/sandbox/rules/evaluate.h: how many may be ended in the background


def fill(cloud, host, uid):
    """What a host with so many sandboxes left in the cloud: tagged, so they are adopted."""
    from fakecloud.rest import Sandbox

    async def make():
        for n in range(BOXES):
            tags = {"agentbox.host": host, "agentbox.uid": str(uid), "agentbox.req": "%032x" % n, "agentbox.seq": str(n + 1),
                    "agentbox.policy": "ka=1;or=kill;rg=2000;it=0;oi=pause;ma=0;om=kill;oc=warn;og=fail;ru=0"}
            sbx = Sandbox(cloud, cloud.team, cloud.templates[0], {"metadata": tags, "secure": True}, 0)
            sbx.timeout = 3600 * 12
            sbx.set_end(sbx.started_at + sbx.timeout, "made")
            cloud.by_id[sbx.id] = sbx
            cloud.ledger.sandboxes.append(sbx)
    cloud._call(make())


def lists(cloud):
    return cloud.ledger.count("list")


def lease_all(api, cloud):
    """A lease of this process on each."""
    calls = []
    for sbx in cloud.ledger.sandboxes:
        calls.append(api.future("LeaseService.Acquire", timeout=120, sandbox=sbx.id, process=True))
        if len(calls) == 200:
            for c in calls:
                c.result()
            calls = []
    for c in calls:
        c.result()


def p99_and_largest(log):
    with open(log, encoding="ascii") as f:
        times = sorted(int(line.split("\t")[2]) for line in f)
    return times[len(times) * 99 // 100], times[-1]


def with_many(b):
    """10,000 leased sandboxes."""
    home = harness.temp_dir("abd-")
    quiet = {"daemon": {"log_level": "warn"}}
    with FakeCloud(concurrency=2 * BOXES) as cloud:
        d = harness.Daemon(cloud, folder=home, conf=quiet)
        with Api(d.socket) as api:
            host = api.call("DaemonService.Status").host_id
            empty_kb = d.rss_kb()
        d.close()
        fill(cloud, host, os.getuid())
        d = harness.Daemon(cloud, folder=home, conf=quiet)
        with Api(d.socket) as api:
            harness.until(lambda: api.call("DaemonService.Status").counts.sandboxes_running == BOXES, 120,
                          "the adoption of all", d)
            lease_all(api, cloud)
            like = api
        d.kill9()

        ready, d = [], None
        for _ in range(3):
            if d:
                d.kill9()
            begin = time.monotonic()
            d = harness.Daemon(cloud, folder=home, conf=quiet)
            with Api(d.socket, like=like) as api:
                s = api.call("DaemonService.Status")
            ready.append((time.monotonic() - begin) * 1000)
            assert (s.counts.sandboxes_running, s.counts.leases) == (BOXES, BOXES), s.counts
        b.row("10,000 leased: restart to the first answer", ready, [1000.0], "the goal", "<= 1", "ms")

        with Api(d.socket, like=like) as api:
            harness.until(lambda: api.call("DaemonService.Status").clouds[0].HasField("reconciled_at"), 60, "a reconcile", d)
            b.row("10,000 leased: memory over an empty daemon", [(d.rss_kb() - empty_kb) / 1024], [40.0], "the goal", "<= 1",
                  "MiB")
        for name, period, seconds in (("nothing to do", "600s", 20), ("a reconcile a minute", "60s", 62)):
            d.kill9()
            d = harness.Daemon(cloud, folder=home, conf={"daemon": dict(quiet["daemon"], reconcile_period=period)})
            with Api(d.socket, like=like) as api:
                harness.until(lambda: api.call("DaemonService.Status").clouds[0].HasField("reconciled_at"), 60, "a reconcile", d)
            time.sleep(5)       # what the start left to do
            pages, before, begin = lists(cloud), b.cpu_ns(d.pid), time.monotonic()
            time.sleep(seconds)
            used, took = b.cpu_ns(d.pid) - before, time.monotonic() - begin
            print("%d pages, %.0f ms of CPU in %.0f s" % (lists(cloud) - pages, used / 1e6, took))
            b.row("10,000 leased: CPU, %s" % name, [used / 1e7 / took], [1.0], "the goal", "<= 1", "%")
        d.kill9()
        beside(b, cloud, home, like)


class Reader:
    """Somebody else who reads the whole list again and again: the cloud has as much to do, the daemon nothing."""

    def __init__(self, cloud):
        self.client, self.ended = Client(cloud.plain_url, cloud.key), threading.Event()
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        token = ""
        while not self.ended.is_set():
            r = self.client.api("GET", "/v2/sandboxes?limit=100" + token)
            token = "&nextToken=" + r.header("x-next-token") if r.header("x-next-token") else ""

    def end(self):
        self.ended.set()
        self.thread.join()


def beside(b, cloud, home, like):
    """A cached Get's p99 while the list is compared all the time, and while it is only read, by somebody else."""
    log = os.path.join(b.OUT, "log")
    request = b.grpc_frame(like.build(like.message("GetSandboxRequest"),
                                      {"sandbox": cloud.ledger.sandboxes[0].id, "max_staleness": 3600}))
    times = {}
    for name, period in (("quiet", "600s"), ("read", "600s"), ("compared", "1s")):
        d = harness.Daemon(cloud, folder=home, conf={"daemon": {"log_level": "warn", "reconcile_period": period}})
        with Api(d.socket, like=like) as api:
            harness.until(lambda: api.call("DaemonService.Status").clouds[0].HasField("reconciled_at"), 60, "a reconcile", d)
        reader = Reader(cloud) if name == "read" else None
        times[name] = []
        for _ in range(b.ROUNDS):
            pages = lists(cloud)
            harness.until(lambda: name != "compared" or lists(cloud) > pages, 30, "the next list", d)
            pages = lists(cloud)
            b.h2load(d.socket, "/agentbox.v1.SandboxService/Get", request, 20000, 1, 1, b.GRPC, d.pid)
            most, largest = p99_and_largest(log)
            times[name].append(most)
            print("%s: p99 of a cached Get %d us, largest %d us, %d pages meanwhile" % (name, most, largest, lists(cloud) - pages))
        if reader:
            reader.end()
        d.kill9()
    b.row("cached Get, p99, 100 pages compared", times["compared"], times["read"], "read by another", "<= 2", "us")
    b.row("cached Get, p99, 100 pages compared", times["compared"], times["quiet"], "in quiet", "", "us")


class Owner:
    """agentboxctl hold: a command that holds a sandbox, which is to be killed with it."""

    def __init__(self, d, api):
        self.box = api.call("SandboxService.Create", sandbox_timeout=3600, policy={"on_release": "KILL", "release_grace": 0}).id
        self.proc = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "hold", self.box, "--", "sleep", "3600"],
                                     stdin=subprocess.DEVNULL)


def one_by_one(b, d, api, cloud, some):
    times = []
    for o in some:
        died = time.monotonic()
        o.proc.kill()

        def deleted():
            return [r for r in cloud.ledger.requests[-20:] if r.route == "delete" and o.box in r.path]
        cloud.ledger.wait(deleted, 20, "the DELETE")
        times.append((deleted()[0].at - died) * 1000)
    times.sort()
    b.row("kill -9 of an owner to the DELETE, p99 of %d" % len(some), [times[-2]], [1000.0], "the goal", "<= 1", "ms")
    print("median %.1f ms, largest %.1f ms" % (statistics.median(times), times[-1]))


def at_once(b, d, api, cloud, some):
    before, begin = cloud.ledger.count("delete"), time.monotonic()
    for o in some:
        o.proc.kill()
    cloud.ledger.wait(lambda: len([r for r in cloud.ledger.requests if r.route == "delete"]) == before + len(some), 180,
                      "all DELETEs")
    at = sorted(r.at for r in cloud.ledger.of("delete"))[before:]
    most = max(sum(1 for y in at if x <= y < x + 1) for x in at)
    b.row("1,000 owners at once: DELETEs in any one second", [most], [float(BURST + PER_SECOND)], "the budget", "<= 1")
    b.row("1,000 owners at once: until the last DELETE", [at[-1] - begin], [(len(some) - BURST) / PER_SECOND],
          "the budget's own time", "", "s")


def owners(b):
    """kill -9 of an owner to the DELETE on the wire: one after the other, then 1,000 at once."""
    with FakeCloud(concurrency=2 * OWNERS) as cloud:
        d = harness.Daemon(cloud, conf={"daemon": {"log_level": "warn"}, "uid %d" % os.getuid(): {"max_streams": "4000"}})
        with Api(d.socket) as api:
            for n, measure in ((ONE_BY_ONE, one_by_one), (OWNERS, at_once)):
                some = []
                try:
                    for _ in range(n):
                        some.append(Owner(d, api))
                    harness.until(lambda: api.call("DaemonService.Status").counts.leases == n, 120, "all leases", d)
                    measure(b, d, api, cloud, some)
                finally:
                    for o in some:
                        o.proc.kill()
                        o.proc.wait()
        d.close()
