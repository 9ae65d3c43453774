# SPDX-License-Identifier: MIT
"""The daemon's pool over a network that loses, delays and breaks (FAULTS N): a relay in user space, and, as root, a
network namespace of the test's own where nft drops what it is told to."""
import json
import subprocess
import time

import pytest

import harness
import netns
from api import Api, ApiError
from chaosproxy import ChaosProxy
from probe import Probe

@pytest.fixture
def proxy(cloud):
    with ChaosProxy("127.0.0.1", cloud.port) as p:
        yield p


def through(cloud, proxy, **options):
    return Probe(cloud, url="https://127.0.0.1:%d" % proxy.port, **options)


def counting(n):
    """A command that says a number every 50 ms."""
    return "i=0; while [ $i -lt %d ]; do echo $i; i=$((i+1)); sleep 0.05; done" % n


@pytest.mark.parametrize("way", ["up", "down"])
def test_one_way_block(cloud, proxy, way):
    """N-02: one direction goes silent under a stream and a GET: PING finds out, the GET is repeated on a successor,
    the stream is lost, not a success; the next calls do not meet the dead connection."""
    p = through(cloud, proxy, ping_after=500, ping_answer=500)
    sid, token = p.create()
    tag = p.say("start", sid, token, "sleep 60")
    p.wait(tag, "start")
    proxy.forget_all(way)
    get = p.say("get", sid)
    assert p.wait(get)["outcome"] == "DONE"
    r = p.wait(tag)
    assert (r["cls"], r["reason"]) == ("LOST", "UNREACHABLE"), r
    assert sum(s["pings_lost"] for s in p.stats()) >= 1
    p.close()


def test_silence_on_all_connections(cloud, proxy):
    """N-02: what swallowed one connection swallowed those beside it: after the first lost PING the others are not
    trusted, calls go on new ones at once."""
    p = through(cloud, proxy, ping_after=2000, ping_answer=1000)
    sid, token = p.create()
    assert p.ask("stat", sid, token, "/home/user")["cls"] == "OK"
    assert proxy.connections == 2               # the account's and the sandboxes'
    proxy.forget_all()
    get = p.say("stat", sid, token, "/home/user")
    assert p.wait(get)["cls"] == "OK"
    began = time.monotonic()
    assert p.ask("create", 300)["outcome"] == "DONE"
    assert time.monotonic() - began < 0.9       # it did not wait for a PING of its own
    harness.until(lambda: sum(s["pings_lost"] for s in p.stats()) == 2, 5, "the end of the other")
    p.close()


@pytest.mark.parametrize("way", ["up", "down"])
def test_half_close(cloud, proxy, way):
    """Half a connection ends in the middle of calls: what may be repeated is, nothing hangs."""
    for n in (1, 300, 3000, 4500):
        proxy.cut_after(how="half", **{way: n})
        p = through(cloud, proxy, ping_after=500, ping_answer=500)
        r = p.ask("create", 300)
        assert r["outcome"] in ("DONE", "UNKNOWN"), (n, r)
        proxy.cuts.clear()
        for r in p.all([p.say("list") for _ in range(5)]):
            assert r["outcome"] == "DONE", (n, r)
        p.close()


def test_latency_and_jitter(cloud, proxy):
    """N-05: half a second of latency and stalls are no death: no connection is lost, nothing is asked twice."""
    proxy.latency, proxy.jitter = 0.2, 0.3
    p = through(cloud, proxy, ping_after=400, ping_answer=3000)
    sid, token = p.create()
    assert p.ask("stat", sid, token, "/home/user")["cls"] == "OK"
    s = p.stats()
    assert sum(x["pings_lost"] + x["replays"] + x["dial_failures"] for x in s) == 0, s
    assert cloud.ledger.count("create") == 1
    p.close()


def test_stalls(cloud, proxy):
    """N-05: the line stands still for less than the patience and goes on: the same connection, nothing lost."""
    p = through(cloud, proxy, ping_after=300, ping_answer=3000)
    sid, token = p.create()
    tag = p.say("start", sid, token, counting(40))
    p.wait(tag, "start")
    dials = sum(s["dials"] for s in p.stats())
    for _ in range(3):
        proxy.stall()
        before = proxy.total["up"]
        harness.until(lambda: proxy.total["up"] >= before and p.sync(), 2, "the stall to be noticed")
        time.sleep(0.5)         # the stall itself
        proxy.stall(False)
    r = p.wait(tag)
    assert (r["code"], r["head"]) == ("OK", "".join("%d\n" % i for i in range(40))[:len(r["head"])]), r
    assert sum(s["dials"] for s in p.stats()) == dials
    p.close()


def test_mtu_black_hole(cloud, proxy):
    """N-29: PING passes, what is large does not: the deadline of the call ends it, and a call on a connection of its
    own works once the path does."""
    p = through(cloud, proxy, ping_after=400, ping_answer=400)
    sid, token = p.create()
    proxy.mtu, proxy.mtu_ways = 1200, {"up"}
    p.set("deadline", 4000)
    w = p.ask("write", sid, token, "/home/user/f", 300000, "known")
    assert w["cls"] in ("LOST", "UNSENT"), w
    proxy.mtu = 0
    p.set("deadline", 15000)
    assert p.ask("write", sid, token, "/home/user/f", 300000, "known")["cls"] == "OK"
    p.close()


def test_flipped_bit(cloud, proxy):
    """A bit that changes on the way is TLS's to find: the call fails or is repeated, a file is never wrong."""
    p = through(cloud, proxy)
    sid, token = p.create()
    w = p.ask("write", sid, token, "/home/user/f", 400000, "known")
    assert w["cls"] == "OK"
    q = through(cloud, proxy)
    q.ask("list")
    proxy.flip = 60000
    r = q.ask("read", sid, token, "/home/user/f", 0, "-")
    assert r["cls"] != "OK" and r["reason"] in ("TRUNCATED", "UNREACHABLE"), r
    proxy.flip = 0
    assert q.ask("read", sid, token, "/home/user/f", 0, "-")["hash"] == w["hash"]
    p.close()
    q.close()


@pytest.mark.parametrize("what", ["goaway", "reset"])
def test_requests_over_connections_that_are_recycled(cloud, what):
    """A1, A2, A3: requests 32 wide while the server ends connections every so many streams: no error, and never more than
    two connections to it at once beside one that is on its way out."""
    n, every = (3000, 300) if what == "goaway" else (600, 150)
    p = Probe(cloud)
    sid, _ = p.create()
    left, open_tags, struck = n, [], 0
    while left or open_tags:
        while left and len(open_tags) < 32:
            open_tags.append(p.say("get", sid))
            left -= 1
            if left and left % every == 0:
                if what == "goaway":
                    cloud.goaway(0, last="max")
                else:
                    cloud.cut_all()
                struck += 1
        assert p.wait(open_tags.pop(0))["outcome"] == "DONE"
        assert cloud.ledger.open_connections <= 2 + (what == "goaway"), cloud.ledger.open_connections
    assert struck == n // every - 1
    p.close()


def test_forgotten_while_idle(cloud, proxy):
    """H-19, A6: a middle box forgot the idle connection: before anything that must not run twice is written, it is tried with
    a PING; not a byte of the create goes there, and the create is made once."""
    p = through(cloud, proxy, fresh=200, ping_answer=500)
    p.create()
    time.sleep(0.4)             # the idleness
    proxy.forget_all()
    swallowed = proxy.swallowed
    assert p.ask("create", 300)["outcome"] == "DONE"
    assert proxy.swallowed - swallowed < 200, proxy.swallowed       # a PING, a close
    assert cloud.ledger.count("create") == 2
    p.close()


def test_handshakes_fail(cloud, proxy):
    """A5: connections break in the handshake: always safe to try again, with a wait between."""
    p = through(cloud, proxy)
    for i in range(12):
        proxy.cut_after(**{("up", "down")[i % 2]: 200})
        assert p.ask("create", 300)["outcome"] == "DONE"
        cloud.close_idle()
        cloud.ledger.wait(lambda: cloud.ledger.open_connections == 0)
        # … and its end was seen here: a create that goes out on it may have arrived
        harness.until(lambda: not sum(x["conns"] for x in p.stats()), 10, "the end of the connection")
    s = p.stats()
    assert sum(x["dial_failures"] for x in s) >= 10 and cloud.ledger.count("create") == 12, s
    p.close()


def test_few_pings(cloud):
    """A9: no PING for a cancelled call, none while nothing is open, one at a time; after a complaint half as often."""
    p = Probe(cloud, ping_after=200, ping_answer=5000)
    sid, token = p.create()
    gate = cloud.gate()
    for _ in range(10):
        cloud.fault(lambda r: "sandboxes/" in r.path, times=None, hold=gate)
        tags = [p.say("get", sid) for _ in range(30)]
        for t in tags:
            p.set("cancel", t)
        p.sync()
    cloud.clear_faults()
    pings = cloud.ledger.pings_received
    assert pings <= 10
    time.sleep(1)               # nothing is open
    assert cloud.ledger.pings_received == pings
    tag = p.say("start", sid, token, "read x; echo $x")
    pid = p.wait(tag, "start")["pid"]
    cloud.ledger.wait(lambda: cloud.ledger.pings_received >= pings + 2)
    cloud.goaway(11, last="max")
    p.ask("stat", sid, token, "/home/user")
    harness.until(lambda: sum(s["enhance_calm_count"] for s in p.stats()) >= 1, 5, "the complaint")
    pings, began = cloud.ledger.pings_received, time.monotonic()
    cloud.ledger.wait(lambda: cloud.ledger.pings_received >= pings + 4)
    assert time.monotonic() - began > 3 * 0.4 - 0.1
    p.ask("input", sid, token, pid, "y")
    p.ask("stdin-close", sid, token, pid)
    assert p.wait(tag)["code"] == "OK"
    gate.release()
    p.close()


def test_a_silent_command_and_a_stuck_call(cloud):
    """B5: a command says nothing for many times as long as a call may take: nothing ends it; a call that is stuck beside it
    ends at its own limit."""
    p = Probe(cloud, ping_after=100, ping_answer=5000)
    sid, token = p.create()
    tag = p.say("start", sid, token, "read x; echo $x")
    pid = p.wait(tag, "start")["pid"]
    p.set("deadline", 300)
    cloud.fault("get", hold=True, times=None)
    for _ in range(6):
        r = p.ask("get", sid)
        assert r["reason"] == "DEADLINE_REQUEST", r
    p.set("deadline", 15000)
    p.ask("input", sid, token, pid, "still-here")
    p.ask("stdin-close", sid, token, pid)
    assert p.wait(tag)["head"] == "still-here\n"
    cloud.clear_faults()
    p.close()


def test_slow_upload(cloud, proxy):
    """B6: an upload over a narrow line takes many times as long as silence is borne: it is no silence."""
    p = through(cloud, proxy, ping_after=700, ping_answer=3000)
    sid, token = p.create()
    proxy.rate = 700000
    w = p.ask("write", sid, token, "/home/user/f", 8000000, "known", timeout=60)
    assert w["cls"] == "OK", w
    assert sum(s["pings_lost"] for s in p.stats()) == 0
    p.close()


# -- a network of our own

def drop_established(cloud_port):
    """Drops what flows on the connections to this port that are there now, both ways, without a word."""
    out = subprocess.run(["ss", "-Htn", "state", "established", "dport", "= :%d" % cloud_port], capture_output=True,
                         text=True, check=True).stdout
    ports = sorted({line.split()[2].rpartition(":")[2] for line in out.splitlines()})
    assert ports, out
    netns.nft("table ip t { chain o { type filter hook output priority 0; policy accept; "
        "tcp sport { %s } tcp dport %d drop; tcp sport %d tcp dport { %s } drop; } ; }" % (
            ", ".join(ports), cloud_port, cloud_port, ", ".join(ports)))
    return ports


def silent_drop():
    """A command streams through agentboxd; its connection is dropped silently; output goes on elsewhere."""
    from fakecloud import FakeCloud
    with FakeCloud() as cloud:
        d = harness.Daemon(cloud)
        with Api(d.socket) as api:
            box = api.call("SandboxService.Create").id
            seen, gaps, at, dropped, silence = [], [], [], None, 0.0
            last = time.monotonic()
            for e in api.stream("CommandService.Run", sandbox=box, timeout=60,
                                shell="for i in $(seq 1 350); do echo $i; sleep 0.1; done"):
                now = time.monotonic()
                kind = e.WhichOneof("event")
                if kind == "gap":
                    gaps.append(e.gap.stream)
                elif kind == "output":
                    silence = max(silence, now - last) if dropped else 0.0
                    last = now
                    at.append(now)
                    seen += [int(x) for x in e.output.data.split()]
                    if not dropped and len(seen) >= 20:
                        dropped = drop_established(cloud.port)
                    if dropped and silence > 5 and len(at) > 40:
                        break
            print(json.dumps({"ordered": seen == sorted(set(seen)), "n": len(seen), "gaps": gaps, "silence": silence,
                              "log": [line for line in d.log().splitlines() if "ping_lost" in line]}))
        d.stop()


def test_silent_drop(cloud):
    """N-02, A7: nft drops an established connection while a command streams: it is given up within 15 s of its last
    frame, output goes on within 2 s more, nothing is doubled, what was swallowed is one gap."""
    r = netns.run(__file__, "silent_drop")
    assert r["ordered"] and r["log"], r
    assert len(r["gaps"]) == len(set(r["gaps"])) and 1 in r["gaps"], r      # one of each stream
    assert 10 < r["silence"] < 17.5, r


def no_network():
    """N-01: no route at start; then the interface comes up."""
    from fakecloud import FakeCloud
    subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with FakeCloud() as cloud:
        netns.nft("table ip t { chain o { type filter hook output priority 0; tcp dport %d reject with icmp type "
            "net-unreachable; } ; }" % cloud.port)
        d = harness.Daemon(cloud)
        with Api(d.socket) as api:
            began = time.monotonic()
            try:
                api.call("SandboxService.Create", timeout=10)
                first = "OK"
            except ApiError as e:
                first = e.reason
            took = time.monotonic() - began
            cached = len(list(api.call("SandboxService.List").sandboxes))
            netns.nft("delete table ip t")
            began = time.monotonic()
            box = api.call("SandboxService.Create", timeout=30).id
            print(json.dumps({"first": first, "took": took, "cached": cached, "box": box,
                              "back": time.monotonic() - began}))
        d.stop()


def test_no_network_at_start(cloud):
    """N-01: it starts, answers what it can, says UNREACHABLE, and recovers by itself."""
    r = netns.run(__file__, "no_network")
    assert r["first"] == "UNREACHABLE" and r["took"] < 9 and r["box"] and r["back"] < 12, r


def v6_blackhole():
    """localhost is ::1, whose packets vanish, and 127.0.0.1."""
    from fakecloud import FakeCloud
    with FakeCloud() as cloud:
        netns.nft("table ip6 t { chain o { type filter hook output priority 0; tcp dport %d drop; } ; }" % cloud.port)
        p = Probe(cloud, url="https://localhost:%d" % cloud.port)
        began = time.monotonic()
        first = p.ask("list")
        took = time.monotonic() - began
        cloud.close_idle()
        cloud.ledger.wait(lambda: cloud.ledger.open_connections == 0)
        began = time.monotonic()
        again = p.ask("list")
        print(json.dumps({"first": first["outcome"], "took": took, "again": again["outcome"],
                          "took_again": time.monotonic() - began}))
        p.close()


def test_v6_blackhole(cloud):
    """N-06, N-07: the second family is tried after 250 ms, and the one that worked is remembered."""
    r = netns.run(__file__, "v6_blackhole")
    assert r["first"] == r["again"] == "DONE", r
    assert r["took"] < 1.5 and r["took_again"] < 0.25, r


def few_ports():
    """N-27: a dozen ephemeral ports, all but a few in use."""
    from fakecloud import FakeCloud
    import socket
    with open("/proc/sys/net/ipv4/ip_local_port_range", "w", encoding="ascii") as f:
        f.write("40000 40011")
    with FakeCloud() as cloud:
        held = []
        while True:
            s = socket.socket()
            s.settimeout(2)
            if s.connect_ex(("127.0.0.1", cloud.port)):
                break
            held.append(s)
        p = Probe(cloud)
        p.set("deadline", 3000)
        first = p.ask("list")
        for s in held:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            s.close()
        p.set("deadline", 15000)
        print(json.dumps({"first": first, "then": p.ask("list")["outcome"]}))
        p.close()


def test_ports_exhausted(cloud):
    """N-27: EADDRNOTAVAIL is a failure with a reason; with ports again, calls work."""
    r = netns.run(__file__, "few_ports")
    assert r["first"]["outcome"] == "UNSENT" and r["first"]["reason"] == "UNREACHABLE" and r["then"] == "DONE", r


if __name__ == "__main__":
    netns.main(globals())
