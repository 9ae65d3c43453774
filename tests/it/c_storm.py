# SPDX-License-Identifier: MIT
"""agentboxd is killed again and again while many processes create by request id and hold leases.

At the end: what the cloud has is what the store has, each request id made one sandbox, and nothing was ended whose
holder lived.
"""
import os
import shutil
import subprocess
import sys

import harness
from api import Api
from conftest import built
from harness import until

LIB = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib")
PROCESSES, KILLS = 8, 20

# Makes sandboxes until a file appears or it has so many, each by a request id that it repeats until it is answered, and
# holds a lease on each by its process. One whose POST was in doubt when the daemon died is settled for 180 s: it is put
# aside and asked for again now and then. Prints "request_id sandbox" for every one, then waits to be ended.
WORKER = """
import os, sys, time
sys.path.insert(0, %r)
from api import Api
socket, me, stop, most = sys.argv[1:]
n, aside = 0, []

def create(request, timeout):
    with Api(socket) as api:
        return api.call("SandboxService.Create", request_id=request, process_lease=True, sandbox_timeout=600,
                        policy={"on_release": "KILL", "release_grace": 0}, timeout=timeout).id

while not os.path.exists(stop) and n < int(most):
    request = aside.pop(0) if n %% 3 == 2 and aside else "%%s-%%d" %% (me, n)
    box = None
    while not box and not os.path.exists(stop):
        try:
            box = create(request, 1)
            print(request, box, flush=True)
        except Exception as e:      # the daemon is dying, away, or does not know yet what became of it
            if getattr(e, "reason", "") == "OUTCOME_UNKNOWN" or getattr(e, "code", "") == "DEADLINE_EXCEEDED":
                aside.append(request)
                break
            time.sleep(0.05)
    n += 1
    time.sleep(0.05)
print("done", flush=True)
sys.stdin.read()
""" % LIB


def settling(d):
    """Everybody may be waiting for a settlement; then the next kill comes without a new sandbox."""
    with Api(d.socket) as api:
        return api.call("DaemonService.Status").store.open_intents >= PROCESSES


def test_kills_and_creates(cloud):
    built(harness.AGENTBOXD)
    folder = harness.temp_dir("abd-")
    stop = os.path.join(folder, "stop")
    conf = {"daemon": {"unclaimed_grace": "600s"}}
    d = harness.Daemon(cloud, folder=folder, conf=conf)
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, d.socket, "w%d" % i, stop, "40"], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True) for i in range(PROCESSES)]
    try:
        for _ in range(KILLS):
            made = len(cloud.ledger.sandboxes)
            until(lambda: len(cloud.ledger.sandboxes) > made or settling(d), 20, what="one more sandbox", program=d)
            d.kill9()
            d = harness.Daemon(cloud, folder=folder, conf=conf)
        open(stop, "w").close()
        told = {}
        for w in workers:
            for line in iter(w.stdout.readline, "done\n"):
                assert line, "a worker has ended"
                request, box = line.split()
                assert told.setdefault(request, box) == box
        assert len(set(told.values())) == len(told), "two request ids, one sandbox"
        assert cloud.ledger.count("delete") == 0 and cloud.ledger.count("timeout") == 0
        with Api(d.socket) as api:
            def listed():
                return {s.id for s in api.call("SandboxService.List", page_size=1000).sandboxes}
            alive = {s.id for s in cloud.ledger.alive()}
            until(lambda: listed() == alive, 20, what="the store equal to the cloud", program=d)
            assert set(told.values()) <= alive
            assert len(cloud.ledger.sandboxes) == len(alive)
            # One accepted POST for each request id: its tag is a hash of it.
            tags = [s.metadata["agentbox.req"] for s in cloud.ledger.sandboxes]
            assert len(tags) == len(set(tags))
            leased = {x.sandbox for x in api.call("LeaseService.List", page_size=1000).leases}
            assert leased >= set(told.values())
            for w in workers:
                w.kill()
                w.wait()
            until(lambda: not (set(told.values()) & {s.id for s in cloud.ledger.alive()}), 60,
                  what="the end of all that were held", program=d)
    finally:
        for w in workers:
            if w.poll() is None:
                w.kill()
            w.wait()
            w.stdin.close()
            w.stdout.close()
        d.close()
        shutil.rmtree(folder)
