# SPDX-License-Identifier: MIT
"""Reconcile beside many sandboxes: the CPU of comparing a whole list, and for how long it holds the loop.

The cloud is nginx with the pages of a list as files, so that it takes little of the machine. A pass of the loop is measured as
CPU of the main thread (passes.c), which other work on the machine does not lengthen.
"""
import json
import mmap
import os
import shutil
import struct
import subprocess
import time

import harness
from api import Api
from instructions import Counted

SIZES = (100, 5000, 50000)
COUNTED = (100, 5000)       # a list of more takes callgrind longer than the daemon waits for one
PAGE, ROUNDS = 100, 3
GAP_S = 1.1                 # daemon/sandbox/sync.c: a list answers callers for LIST_GAP_MS
SCRAPED = "metrics.sock"
PASS_GOAL_MS, ADOPTION_GOAL_US = 2.0, 40.0


class Passes:
    """What passes.c says of the passes since begin()."""

    def __init__(self, b):
        self.library, self.path = os.path.join(b.OUT, "passes.so"), os.path.join(b.OUT, "passes")
        source = os.path.join(b.HERE, "passes.c")
        subprocess.run(["gcc", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", self.library, source],
                       check=True)
        with open(self.path, "wb") as f:
            f.write(bytes(4096))
        with open(self.path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 4096)
        self.env = {"LD_PRELOAD": self.library, "PASSES_FILE": self.path}

    def begin(self):
        self.map[:32] = bytes(32)

    def longest_ms(self):
        return self.figures()[2] / 1e6

    def figures(self):
        """(passes, their ns together, ns of the longest one, how many took more than 2 ms)"""
        return struct.unpack("<4Q", self.map[:32])


class Lists:
    """A cloud that has nothing but lists."""

    def __init__(self, b):
        self.folder = harness.temp_dir("lists-")
        # The number of the next page, from what the folder has: at most as many pages as a list may have.
        pages = " ".join('"%s" %d;' % (n or "", n + 1) for n in range(999))
        inside = """keepalive_requests 1000000000; default_type application/json;
            location = /v2/sandboxes { root %s/now; try_files /$arg_nextToken.json =404; add_header x-next-token $further; }
            location / { return 503; }""" % self.folder
        conf = """map $arg_nextToken $next_page { default ""; %s }
            map $next_page $further { default ""; include %s/further; }""" % (pages, self.folder)
        self.write_further(0)
        self.nginx = b.Nginx(b.authority(), inside, conf)
        self.url, self.ca, self.key = self.nginx.url, self.nginx.ca, self.nginx.key

    def write_further(self, pages):
        with open(os.path.join(self.folder, "further"), "w", encoding="ascii") as f:
            f.write("".join("%d %d;\n" % (n, n) for n in range(1, pages)))

    def show(self, host, n, end_at):
        """From now on the list has n sandboxes of this host."""
        new = os.path.join(self.folder, "%d-%s" % (n, end_at.replace(":", "")))
        pages = max(1, (n + PAGE - 1) // PAGE)
        os.makedirs(new)
        for page in range(pages):
            with open(os.path.join(new, "%s.json" % (page or "")), "w", encoding="ascii") as f:
                json.dump([self.sandbox(host, i, end_at) for i in range(page * PAGE, min((page + 1) * PAGE, n))], f)
        link = os.path.join(self.folder, "link")
        os.symlink(new, link)
        os.rename(link, os.path.join(self.folder, "now"))
        self.write_further(pages)
        os.kill(self.nginx.program.pid, 1)
        time.sleep(1)           # nginx says nothing when its new worker serves

    @staticmethod
    def sandbox(host, i, end_at):
        return {"sandboxID": "i%019d" % i, "templateID": "base", "alias": "base", "clientID": "6532622b", "envdVersion": "0.4.0",
                "startedAt": "2026-01-01T00:%02d:%02d.%03dZ" % (i // 60000 % 60, i // 1000 % 60, i % 1000), "endAt": end_at,
                "state": "running", "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 512, "metadata": {
                    "agentbox.host": host, "agentbox.uid": str(os.getuid()), "agentbox.req": "%032x" % i,
                    "agentbox.policy": "ka=1;or=kill;rg=2000;it=0;oi=pause;ma=0;om=kill;oc=warn;og=fail;ru=0"}}

    def close(self):
        self.nginx.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def conf_of(home):
    return {"daemon": {"reconcile_period": "1h", "log_level": "warn", "metrics_socket": os.path.join(home, SCRAPED)},
            "pool": {"memory": "512M"}}     # what a list of 50,000 is charged with is more than the default


def one_list(api):
    """A list for a caller, whose answer comes when it was compared."""
    time.sleep(GAP_S)
    return api.call("SandboxService.List", timeout=120, page_size=1)


def reconciles(b, passes, d, api, rounds):
    """([CPU in ms], [longest pass in ms]) of so many."""
    cpus, longest = [], []
    for _ in range(rounds):
        time.sleep(GAP_S)
        passes.begin()
        before = b.cpu_ns(d.pid)
        api.call("SandboxService.List", timeout=120, page_size=1)
        time.sleep(0.5)         # what follows the answer
        cpus.append((b.cpu_ns(d.pid) - before) / 1e6)
        longest.append(passes.longest_ms())
    return cpus, longest


def other_passes(passes, api, home):
    """The longest pass of a scrape, and of pages of a list."""
    longest = {}
    scrape = ["curl", "-sSf", "-o", "/dev/null", "--unix-socket", os.path.join(home, SCRAPED), "http://x/metrics"]
    for name, call in (("a Status", lambda: api.call("DaemonService.Status")),
                       ("a scrape", lambda: subprocess.run(scrape, check=True)),
                       ("a page of 1,000", lambda: api.call("SandboxService.List", cached=True, page_size=1000))):
        passes.begin()
        for _ in range(5):
            call()
        longest[name] = passes.longest_ms()
    return longest


def with_many(b, passes, cloud, home, n):
    said = "%s listed" % format(n, ",")
    d = harness.Daemon(cloud, conf=conf_of(home), folder=home, env=passes.env)
    try:
        with Api(d.socket) as api:
            host, have = api.call("DaemonService.Status").host_id, api.call("DaemonService.Status").counts.sandboxes_running
            cloud.show(host, n, "2099-01-01T00:00:00Z")
            cpus, longest = reconciles(b, passes, d, api, 1)
            harness.until(lambda: api.call("DaemonService.Status").counts.sandboxes_running == n, 60, "the adoption of all", d)
            b.row("%s: adoption, CPU of each" % said, [cpus[0] * 1000 / (n - have)], [ADOPTION_GOAL_US], "the goal", "<= 1", "us")
            b.row("%s: adoption, longest pass" % said, longest, [PASS_GOAL_MS], "the goal", "<= 1", "ms")
            cpus, longest = reconciles(b, passes, d, api, ROUNDS)
            print("%s: nothing new, CPU of each %.1f us" % (said, min(cpus) * 1000 / n), flush=True)
            b.row("%s: nothing new, longest pass" % said, longest, [PASS_GOAL_MS], "the goal", "<= 1", "ms")
            cloud.show(host, n, "2099-02-02T00:00:00Z")
            cpus, longest = reconciles(b, passes, d, api, 1)
            print("%s: all with another end, CPU of each %.1f us" % (said, cpus[0] * 1000 / n), flush=True)
            b.row("%s: all with another end, longest pass" % said, longest, [PASS_GOAL_MS], "the goal", "<= 1", "ms")
            for name, ms in other_passes(passes, api, home).items():
                b.row("%s: %s, longest pass" % (said, name), [ms], [PASS_GOAL_MS], "the goal", "<= 1", "ms")
    finally:
        d.stop()


def counted(cloud, home, n):
    c = Counted(cloud, conf=conf_of(home), folder=home)
    try:
        with Api(c.d.socket) as api:
            one_list(api)
            figure = min(c.per_call(lambda: one_list(api), 1, 0) for _ in range(2))
            print("%7d listed: a reconcile is %d instructions, %d for each" % (n, figure, figure // n), flush=True)
    finally:
        c.close()


def run(b):
    home, passes, cloud = harness.temp_dir("abd-"), Passes(b), Lists(b)
    try:
        cloud.show("", 0, "")
        for n in SIZES:
            with_many(b, passes, cloud, home, n)
            if n in COUNTED:
                counted(cloud, home, n)
    finally:
        cloud.close()
        shutil.rmtree(home, ignore_errors=True)
