# SPDX-License-Identifier: MIT
"""What an answer promises is on the disk before it: how often a call waits for it, and in which order, seen by strace."""
import re

import pytest

import harness
from api import Api
from c_output import Trace

CONTROL = 30            # bytes: an answer to a PING, and a window; an answer to a call has more
PAGE, FRAME_HEAD = 4096, 24
# Commits that are waited for: what must be there, and what it may cost.
LEASE = (1, 2)
CALLS = {"Create": (2, 3), "Acquire": LEASE, "Renew": LEASE, "SetTimeout": LEASE, "Release": LEASE, "Kill": LEASE}


class Order(Trace):
    """Syncs of the database, and what leaves: to the cloud, to the client."""

    traced = "fsync,fdatasync,pwrite64,write,writev,sendto,sendmsg"

    def all_calls(self):
        """[name, what the descriptor is, result] of all threads, each where it began; what another thread's call interrupts in the
        text goes on in a line of its own."""
        out, begun = [], {}
        with open(self.path, encoding="utf-8", errors="replace") as f:
            for line in f:
                m = re.match(r"(\d+) +(?:(\w+)\(\d+<(.*?)>[,) ]|<\.\.\. \w+ resumed>).*?(?:= (-?\d+)| ?<(?:unfinished|detached) \.\.\.>)$", line)
                if m and m.group(2):
                    begun[m.group(1)] = event = [m.group(2), m.group(3), m.group(4)]
                    out.append(event)
                elif m:
                    begun[m.group(1)][2] = m.group(4)
        return out

    def events(self):
        return [x for x in (self.kind(*e) for e in self.all_calls()) if x]

    def bytes_to(self, name):
        return sum(int(result or 0) for call, what, result in self.all_calls() if call == "pwrite64" and what.endswith(name))

    @staticmethod
    def kind(name, what, result):
        if name in ("fsync", "fdatasync"):
            return "sync" if what.endswith(("/agentboxd.db-wal", "/agentboxd.db-journal")) else None
        if what.startswith("TCP"):
            return "cloud"
        return "client" if what.startswith("UNIX") and (result is None or int(result) > CONTROL) else None     # the last one's end may not be seen


def events_of(daemon, call):
    with Order(daemon) as t:
        result = call()
    return t.events(), result


@pytest.fixture
def quiet(cloud):
    """Nothing is written that no call asks for."""
    d = harness.Daemon(cloud, conf={"daemon": {"reconcile_period": "1h"}})
    yield d
    d.close()


def test_what_is_promised_is_synced(quiet):
    """Each answer comes after a sync, a sandbox is asked for after its intent was synced, and no call syncs
    more often than it must."""
    with Api(quiet.socket) as api:
        api.call("SandboxService.Create")       # connections, and what reflection says of the services
        api.call("LeaseService.List")
        got = {}
        got["Create"], box = events_of(quiet, lambda: api.call("SandboxService.Create", sandbox_timeout=600))
        got["Acquire"], lease = events_of(quiet, lambda: api.call("LeaseService.Acquire", sandbox=box.id, ttl=60))
        got["Renew"], _ = events_of(quiet, lambda: api.call("LeaseService.Renew", lease_id=lease.id, ttl=90))
        got["SetTimeout"], _ = events_of(quiet, lambda: api.call("SandboxService.SetTimeout", sandbox=box.id, sandbox_timeout=900))
        got["Release"], _ = events_of(quiet, lambda: api.call("LeaseService.Release", lease_id=lease.id))
        got["Kill"], _ = events_of(quiet, lambda: api.call("SandboxService.Kill", sandbox=box.id))
    for name, (least, most) in CALLS.items():
        e = got[name]
        assert least <= e.count("sync") <= most, (name, e)
        assert "client" in e and "sync" in e[:e.index("client")], (name, e)
    for name in ("Create", "Kill"):     # its intent, the row that says that it is ended
        e = got[name]
        assert e.index("sync") < e.index("cloud"), (name, e)
    last = max(i for i, x in enumerate(got["Create"]) if x == "cloud")
    assert "sync" in got["Create"][last:], got["Create"]


def test_a_renewal_writes_one_page(quiet):
    """A row that is put again stays in its place, so that neither its key nor another page is written with it."""
    with Api(quiet.socket) as api:
        box = api.call("SandboxService.Create", sandbox_timeout=600)
        for _ in range(40):     # as many as do not fit into one page
            lease = api.call("LeaseService.Acquire", sandbox=box.id, ttl=60)
        with Order(quiet) as t:
            api.call("LeaseService.Renew", lease_id=lease.id, ttl=90)
    assert t.bytes_to("/agentboxd.db-wal") == PAGE + FRAME_HEAD


def test_a_start_waits_for_the_disk_three_times(cloud, tmp_path):
    """Before it listens: for the log's head, for the folder that has the log's name, and for host-id. What else it writes waits for nobody."""
    first = harness.Daemon(cloud)
    with Api(first.socket) as api:
        api.call("SandboxService.Create")
    first.stop()
    trace = str(tmp_path / "trace")
    d = harness.Daemon(cloud, folder=first.folder, env={"ASAN_OPTIONS": "detect_leaks=0:exitcode=99"}, wrap=[
        "strace", "-D", "-qq", "-f", "-yy", "-s", "0", "-e", "trace=fsync,fdatasync,listen", "-o", trace])
    with Api(d.socket) as api:
        assert len(api.call("SandboxService.List").sandboxes) == 1
    with open(trace, encoding="utf-8", errors="replace") as f:
        before = f.read().split("listen(")[0]
    synced = [name.rpartition("/")[2] for name in re.findall(r"sync\(\d+<(.*?)>", before)]
    assert sorted(synced) == ["agentboxd.db-wal", "host-id.new", "state"], before
    d.stop()
    d.close()
