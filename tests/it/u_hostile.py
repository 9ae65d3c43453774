# SPDX-License-Identifier: MIT
"""A cloud that breaks or abuses HTTP/2 (FAULTS H): the call fails with its reason, memory and CPU stay bounded, the next
call succeeds. The cloud is h2fiend: raw frames over TLS."""
import os
import resource
import socket
import threading
import time

import pytest

import h2fiend as f2
import harness
from api import Api, ApiError
from fakecloud.certs import Authority
from probe import Probe

SANDBOX = "i" + "0" * 20
ASAN = harness.ASAN


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(str(tmp_path_factory.mktemp("ca")))


@pytest.fixture
def fiend(authority):
    with f2.Server(authority) as s:
        yield s


@pytest.fixture
def daemon(fiend):
    d = harness.Daemon(fiend)
    yield d
    d.close()


@pytest.fixture
def api(daemon):
    with Api(daemon.socket) as a:
        yield a


def head(sid, *more, status="200", end=False):
    return f2.headers(sid, f2.block((":status", status), ("content-type", "application/json"), *more), end=end)


def flood(make, n=30000, piece=500):
    """So many frames, in pieces, until the other side has had enough."""
    def play(c, r):
        one = make(r.sid)
        for _ in range(n // piece):
            if not c.send(one * piece):
                return
    return play


def count_bomb(sid):
    return f2.headers(sid, f2.indexed(8) + f2.indexed(16) * 16000)            # accept-encoding: gzip, deflate


def size_bomb(sid):
    return f2.headers(sid, f2.indexed(8) + f2.literal("x", "y" * 4000, index=True) + f2.indexed(62) * 4000)


def interims(c, r):
    for _ in range(200):
        if not c.send(f2.headers(r.sid, f2.block((":status", "103"), ("link", "x"))) * 500):
            return


def trailers_bomb(sid):
    return head(sid) + f2.frame(f2.DATA, 0, sid, b"{}") + f2.headers(sid, f2.indexed(16) * 16000, end=True)


def continuations(c, r):
    c.send(f2.frame(f2.HEADERS, 0, r.sid, f2.indexed(8)))
    for _ in range(2000):
        if not c.send(f2.frame(f2.CONTINUATION, 0, r.sid, f2.literal("x", "y" * 1000))):
            return


def endless_body(c, r):
    c.send(head(r.sid))
    while c.send(f2.frame(f2.DATA, 0, r.sid, b" " * 16384)):
        pass


def big_json(c, r):
    c.send(head(r.sid) + f2.frame(f2.DATA, 0, r.sid, b'{"sandboxID":"' + b"x" * 16000))
    for _ in range(6000):
        if not c.send(f2.frame(f2.DATA, 0, r.sid, b"x" * 16384)):
            return


HOSTILE = {
    "H-15 fields by count": lambda c, r: c.send(count_bomb(r.sid)),
    "H-15 fields by size": lambda c, r: c.send(size_bomb(r.sid)),
    "H-15 interim answers": interims,
    "H-15 trailers": lambda c, r: c.send(trailers_bomb(r.sid)),
    "continuations": continuations,
    "ping flood": flood(lambda sid: f2.frame(f2.PING, 0, 0, bytes(8))),
    "settings flood": flood(lambda sid: f2.settings()),
    "settings of 1000 entries": lambda c, r: c.send(f2.settings(*[(f2.INITIAL_WINDOW, 65535)] * 1000)),
    "window flood": flood(lambda sid: f2.window(sid, 1)),
    "priority flood": flood(lambda sid: f2.frame(f2.PRIORITY, 0, sid, bytes(5))),
    "H-17 unknown frames flood": flood(lambda sid: f2.frame(99, 0, 0, b"?")),
    "empty data flood": lambda c, r: c.send(head(r.sid)) and flood(lambda sid: f2.frame(f2.DATA, 0, sid))(c, r),
    "H-17 push promise": lambda c, r: c.send(f2.frame(f2.PUSH_PROMISE, f2.END_HEADERS, r.sid, b"\0\0\0\2" + f2.block(
        (":method", "GET"), (":scheme", "https"), (":authority", "x"), (":path", "/")))),
    "H-22 body shorter than promised": lambda c, r: c.send(
        head(r.sid, ("content-length", "10")) + f2.frame(f2.DATA, f2.END_STREAM, r.sid, b"{}")),
    "H-22 body longer than promised": lambda c, r: c.send(
        head(r.sid, ("content-length", "1")) + f2.frame(f2.DATA, f2.END_STREAM, r.sid, b"{}")),
    "H-22 two lengths": lambda c, r: c.send(
        head(r.sid, ("content-length", "2"), ("content-length", "3")) + f2.frame(f2.DATA, f2.END_STREAM, r.sid, b"{}")),
    "H-22 204 with a body": lambda c, r: c.send(
        head(r.sid, status="204") + f2.frame(f2.DATA, f2.END_STREAM, r.sid, b"{}")),
    "no status": lambda c, r: c.send(f2.headers(r.sid, f2.block(("content-type", "application/json")), end=True)),
    "status of letters": lambda c, r: c.send(head(r.sid, status="abc", end=True)),
    "upper case field": lambda c, r: c.send(head(r.sid, ("X-Up", "1"), end=True)),
    "connection field": lambda c, r: c.send(head(r.sid, ("connection", "close"), end=True)),
    "answer in gzip": lambda c, r: c.send(f2.answer(r.sid, 200, b"\x1f\x8b\x08\0\0\0\0\0", [("content-encoding", "gzip")])),
    "endless body": endless_body,
    "huge json": big_json,
    "data before the head": lambda c, r: c.send(f2.frame(f2.DATA, f2.END_STREAM, r.sid, b"{}")),
    "data on stream 0": lambda c, r: c.send(f2.frame(f2.DATA, 0, 0, b"x")),
    "head on a stream nobody opened": lambda c, r: c.send(head(r.sid + 2)),
    "head on an even stream": lambda c, r: c.send(head(2)),
    "settings on a stream": lambda c, r: c.send(f2.frame(f2.SETTINGS, 0, r.sid)),
    "settings of 5 bytes": lambda c, r: c.send(f2.frame(f2.SETTINGS, 0, 0, bytes(5))),
    "ack with a payload": lambda c, r: c.send(f2.frame(f2.SETTINGS, f2.ACK, 0, bytes(6))),
    "ping of 7 bytes": lambda c, r: c.send(f2.frame(f2.PING, 0, 0, bytes(7))),
    "reset of 3 bytes": lambda c, r: c.send(f2.frame(f2.RST, 0, r.sid, bytes(3))),
    "window of 0": lambda c, r: c.send(f2.window(r.sid, 0)),
    "window beyond 2^31": lambda c, r: c.send(f2.window(0, 0x7fffffff) * 2),
    "window setting beyond 2^31": lambda c, r: c.send(f2.settings((f2.INITIAL_WINDOW, 0x80000000))),
    "frame above the size": lambda c, r: c.send(f2.frame(f2.DATA, 0, r.sid, b"x" * 16385)),
    "frame of 16 MiB announced": lambda c, r: c.send(f2.frame(f2.DATA, 0, r.sid, b"x" * 100, length=0xffffff)),
    "padding longer than the frame": lambda c, r: c.send(f2.frame(f2.DATA, f2.PADDED, r.sid, b"\xffx")),
    "hpack: index out of the table": lambda c, r: c.send(f2.headers(r.sid, f2.indexed(5000))),
    "hpack: truncated": lambda c, r: c.send(f2.headers(r.sid, b"\x00\x7f\xff\xff\xff\xff\xff")),
    "hpack: table too large": lambda c, r: c.send(f2.headers(r.sid, b"\x3f\xe1\xff\x7f" + f2.indexed(8))),
    "continuation of nothing": lambda c, r: c.send(f2.frame(f2.CONTINUATION, f2.END_HEADERS, r.sid, b"")),
    "another frame inside a block": lambda c, r: c.send(
        f2.frame(f2.HEADERS, 0, r.sid, f2.indexed(8)) + f2.frame(f2.PING, 0, 0, bytes(8))),
    "not http at all": lambda c, r: c.send(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 20),
    "goaway of 4 bytes": lambda c, r: c.send(f2.frame(f2.GOAWAY, 0, 0, bytes(4))),
    "priority on itself": lambda c, r: c.send(f2.frame(f2.PRIORITY, 0, r.sid, r.sid.to_bytes(4, "big") + b"\0") +
                                              rst_all(r)),
}


def rst_all(r):
    return f2.rst(r.sid, 1)


@pytest.mark.plain
def test_hostile_answers(fiend, daemon, api):
    """H-15, H-17, H-22 and every frame that is wrong: UNREACHABLE or BAD_CLOUD_REPLY, never a crash, a hang or success;
    memory and CPU are bounded; the next call is served. G-31's ALTSVC and ORIGIN from a server: see below."""
    def reads(answer):
        fiend.script, fiend.hostile = answer, None
        with pytest.raises(ApiError) as e:
            api.call("SandboxService.Get", sandbox=SANDBOX, timeout=20)
        return e.value

    assert reads(fiend.good).reason == "SANDBOX_NOT_FOUND"
    hwm = daemon.hwm_kb()
    wrong = {}
    for name, script in HOSTILE.items():
        began = harness.cpu_s(daemon.pid)
        e = reads(script)
        used = harness.cpu_s(daemon.pid) - began
        if e.reason not in ("UNREACHABLE", "BAD_CLOUD_REPLY") or e.code != "UNAVAILABLE":
            wrong[name] = str(e)
        if used > (6.0 if ASAN else 1.0):
            wrong[name + ": CPU"] = used
        e = reads(fiend.good)
        if e.reason != "SANDBOX_NOT_FOUND":
            wrong[name + ": afterwards"] = str(e)
    assert not wrong, wrong
    assert ASAN or daemon.hwm_kb() - hwm < 24 << 10, daemon.hwm_kb() - hwm
    assert daemon.running()


def test_block_without_an_end(fiend, daemon, api):
    """A head that begins and never ends is given up after 5 s, not when the call's deadline comes."""
    asked = []

    def begin_only(c, r):
        if SANDBOX in r.get(":path"):
            asked.append(c.number)
        if not asked:
            fiend.good(c, r)
        elif len(asked) == 1 and SANDBOX in r.get(":path"):
            c.send(f2.frame(f2.HEADERS, 0, r.sid, f2.indexed(8)))
        elif c.number != asked[0]:
            fiend.good(c, r)
    fiend.script = begin_only
    with pytest.raises(ApiError) as e:
        api.call("SandboxService.Get", sandbox=SANDBOX, timeout=12)
    assert e.value.reason == "SANDBOX_NOT_FOUND"        # asked again on another connection
    assert len(asked) == 2 and asked[0] != asked[1]


def test_settings_never_acknowledged(fiend):
    """G-13's other half: a server that does not acknowledge SETTINGS loses its connection after 10 s."""
    fiend.answers = False
    p = Probe(fiend)
    assert p.ask("get", SANDBOX)["reason"] == "SANDBOX_NOT_FOUND"
    inbox = fiend.conns[0].inbox
    goaway = harness.until(lambda: [f for f in inbox if f[0] == f2.GOAWAY], 15, "the end of the connection")
    assert goaway[0][3][4:8] == b"\0\0\0\4"
    p.close()


def test_ignored_frames(fiend, daemon, api):
    """H-17, G-31: ALTSVC, ORIGIN and unknown frames within the budget are ignored."""
    odd = (f2.frame(f2.ALTSVC, 0, 0, b"\0\0h2=\":1\"") + f2.frame(f2.ORIGIN, 0, 0, b"\0\1x") + f2.frame(77, 3, 0, b"?")) * 20
    fiend.script = lambda c, r: c.send(odd + f2.answer(r.sid, 404, {"code": 404, "message": "no"}) + odd)
    for _ in range(3):
        with pytest.raises(ApiError) as e:
            api.call("SandboxService.Get", sandbox=SANDBOX)
        assert e.value.reason == "SANDBOX_NOT_FOUND"
    assert len(fiend.conns) == 1


@pytest.mark.plain
def test_reset_and_goaway_storm(fiend):
    """H-11: RST_STREAM and GOAWAY together, again and again: each call ends once, memory is flat."""
    storm = lambda c, r: c.send(f2.rst(r.sid, 2) + f2.goaway(r.sid, 0))
    fiend.script = lambda c, r: fiend.good(c, r) if r.sid == 1 else storm(c, r)
    p = Probe(fiend)
    rss = []
    for i in range(30 if ASAN else 60):
        r = p.ask("get", SANDBOX)       # every second one goes again, on a new connection
        assert (r["outcome"], r["reason"]) == ("REFUSED", "SANDBOX_NOT_FOUND"), r
        with open("/proc/%d/statm" % p.proc.pid, encoding="ascii") as f:
            rss.append(int(f.read().split()[1]) * resource.getpagesize())
    assert ASAN or rss[-1] - rss[20] < 2 << 20, rss
    assert len(fiend.conns) >= len(rss) - 1
    fiend.script = storm
    for _ in range(3):
        r = p.ask("get", SANDBOX)
        assert (r["outcome"], r["reason"]) == ("UNKNOWN", "UNREACHABLE"), r
    fiend.script = fiend.good
    assert p.ask("get", SANDBOX)["reason"] == "SANDBOX_NOT_FOUND"
    p.close()


def test_goaway_at_birth(fiend):
    """B-4: GOAWAY before any request, on every connection: dials are bounded, the call fails in time."""
    greeting, fiend.greeting = fiend.greeting, f2.settings() + f2.goaway(0, 0)
    p = Probe(fiend)
    p.set("deadline", 3000)
    r = p.ask("get", SANDBOX)
    assert r["outcome"] in ("UNSENT", "UNKNOWN"), r
    assert len(fiend.conns) < 12, len(fiend.conns)
    fiend.greeting = greeting
    p.set("deadline", 15000)
    assert p.ask("get", SANDBOX)["reason"] == "SANDBOX_NOT_FOUND"
    p.close()


# -- what may be sent again, how often, and on how many connections

def posts(fiend):
    return [(c.number, r.sid) for c, r in fiend.seen if r.get(":path") == "/sandboxes"]


def flipping(fiend, stop):
    """All connections are told a limit of 100 and of 0 streams in turn, 20 times a second."""
    n = 0
    while not stop.wait(0.05):
        n += 1
        for c in list(fiend.conns):
            c.send(f2.settings((f2.MAX_STREAMS, 0 if n % 2 else 100)))


@pytest.mark.parametrize("what", ["none", "flipping"])
def test_no_streams(fiend, daemon, api, what):
    """B-4: the peer allows no stream, or one moment some and the next none, and refuses what comes: calls wait for their turn until
    their deadline, on two connections at most of each kind; as soon as it allows them, they go."""
    good = lambda c, r: r.ended and c.send(f2.answer(r.sid, 400, {"code": 400, "message": "no such template"}))
    harness.until(lambda: fiend.seen, 5, "the daemon's first look")
    none, stop = f2.settings((f2.MAX_STREAMS, 0), (f2.INITIAL_WINDOW, 1 << 20)) + f2.window(0, 1 << 20), threading.Event()
    fiend.greeting, fiend.script = none, lambda c, r: r.ended and c.send(f2.rst(r.sid, 7))
    for c in fiend.conns:
        c.send(f2.settings((f2.MAX_STREAMS, 0)))
    if what == "flipping":
        threading.Thread(target=flipping, args=(fiend, stop), daemon=True).start()
    try:
        began = time.monotonic()
        calls = [api.future("SandboxService.Create", timeout=4) for _ in range(5)] + [
            api.future("SandboxService.Get", sandbox=SANDBOX, timeout=4) for _ in range(20)]
        for c in calls:
            assert c.exception(10).code().name in ("DEADLINE_EXCEEDED", "UNAVAILABLE", "UNKNOWN"), c.exception()
        assert time.monotonic() - began > 3.5
        assert len(fiend.conns) <= 4, len(fiend.conns)
        refused = len(posts(fiend))
        assert refused <= 5 * (10 if what == "flipping" else 1), refused
        late = api.future("SandboxService.Create", timeout=15)
        harness.until(lambda: what == "none" or len(posts(fiend)) > refused, 5, "another try")
        assert not late.done()
    finally:
        stop.set()
    fiend.script = good
    for c in fiend.conns:
        c.send(f2.settings((f2.MAX_STREAMS, 100)))
    assert "no such template" in late.exception(10).details()
    assert len(fiend.conns) <= 4, len(fiend.conns)


def test_refused_streams(fiend, daemon, api):
    """B-4: REFUSED_STREAM means not now: a create waits and goes again, until the peer takes it."""
    fiend.script = lambda c, r: r.ended and c.send(
        f2.rst(r.sid, 7) if len(posts(fiend)) < 6 else f2.answer(r.sid, 400, {"code": 400, "message": "no such template"}))
    with pytest.raises(ApiError) as e:
        api.call("SandboxService.Create", timeout=15)
    assert "no such template" in str(e.value)
    assert len(posts(fiend)) == 6 and len({n for n, _ in posts(fiend)}) == 1, posts(fiend)


@pytest.mark.parametrize("what", ["goaway", "421"])
def test_posts_are_counted(fiend, daemon, api, what):
    """B-4: a create that every server refuses, by GOAWAY(last=0) or by 421, is written three times, each time on another
    connection, as docs/internals/lifecycle.md says."""
    fiend.script = lambda c, r: r.ended and c.send(
        f2.goaway(0, 0) if what == "goaway" else f2.answer(r.sid, 421, {"code": 421, "message": "not here"}))
    with pytest.raises(ApiError) as e:
        api.call("SandboxService.Create", timeout=15)
    assert e.value.reason == "UNREACHABLE" and e.value.code == "UNAVAILABLE", e.value
    assert len(posts(fiend)) == 3 and len({n for n, _ in posts(fiend)}) == 3, posts(fiend)


def test_misdirected_on_its_own_connection(fiend):
    """B-4: 421 on a connection of the host's own: again on another one (RFC 9110 §15.5.20), and nothing goes on the first any more."""
    fiend.script = lambda c, r: r.ended and (fiend.good(c, r) if c.number > 1 else c.send(f2.answer(r.sid, 421, b"")))
    p = Probe(fiend)
    for _ in range(3):
        assert p.ask("get", SANDBOX)["reason"] == "SANDBOX_NOT_FOUND"
    assert [c.number for c, _ in fiend.seen] == [1, 2, 2, 2]
    p.close()


def test_connections_that_die(fiend):
    """B-2: every connection dies under what is sent: a GET is repeated until its deadline, with waits between, and is answered once
    one lives; a create, whose answer may have been lost, is not."""
    fiend.script = lambda c, r: c.sock.shutdown(socket.SHUT_RDWR)
    p = Probe(fiend)
    p.set("deadline", 3000)
    began = time.monotonic()
    r = p.ask("get", SANDBOX)
    assert (r["outcome"], r["reason"]) == ("UNKNOWN", "UNREACHABLE") and "lost" in r["text"], r
    assert time.monotonic() - began > 2.4 and 2 < len(fiend.seen) < 25, len(fiend.seen)     # fewer where an attempt takes long
    p.set("deadline", 20000)
    seen = len(fiend.seen)
    get = p.say("get", SANDBOX)
    harness.until(lambda: len(fiend.seen) > seen + 2, 15, "three attempts")
    fiend.script = fiend.good
    assert p.wait(get)["reason"] == "SANDBOX_NOT_FOUND"
    fiend.script = lambda c, r: c.sock.shutdown(socket.SHUT_RDWR)
    assert p.ask("create", 300)["outcome"] == "UNKNOWN"
    assert len(posts(fiend)) == 1
    p.close()


@pytest.mark.parametrize("tokens", [["a"], ["a", "b"], ["a", "b", "c", "d", "e"], ["a", "b", "c", "b"]])
def test_page_tokens_in_a_circle(fiend, tokens):
    """B-9: a list whose pages come round again is given up at the first page that was there before."""
    def page(c, r):
        if r.ended:
            n = len(fiend.seen) - 1
            c.send(f2.answer(r.sid, 200, [], [("x-next-token", tokens[n % len(tokens) if n >= len(tokens) else n])]))
    fiend.script = page
    p = Probe(fiend)
    r = p.ask("list")
    assert r["outcome"] == "UNKNOWN" and r["reason"] == "BAD_CLOUD_REPLY" and "for ever" in r["text"], r
    assert len(fiend.seen) == (4 if tokens[-1] == "b" and len(tokens) == 4 else len(tokens) + 1), len(fiend.seen)
    p.close()


def test_page_tokens_without_end(fiend):
    """B-9: so is one with new tokens for ever, after as many pages as any account has, or a MiB of tokens."""
    fiend.script = lambda c, r: r.ended and c.send(f2.answer(r.sid, 200, [], [("x-next-token", "%d." % r.number + "x" * 4000)]))
    p = Probe(fiend)
    r = p.ask("list")
    assert r["outcome"] == "UNKNOWN" and "does not end" in r["text"], r
    assert 250 < len(fiend.seen) < 270, len(fiend.seen)
    p.close()


def test_answers_that_break_off(fiend):
    """B-2: the connection dies behind the head of an answer, or in its middle: a GET and a unary call of the agent are repeated, a
    create is not."""
    half = f2.block((":status", "200"), ("content-type", "application/proto"))

    def break_off(c, r):
        if not r.ended:
            return
        if len([1 for _, q in fiend.seen if q.get(":path") == r.get(":path")]) > 3:
            return fiend.good(c, r)
        c.send(f2.frame(f2.HEADERS, f2.END_HEADERS, r.sid, half) + (b"" if c.number % 2 else f2.frame(f2.DATA, 0, r.sid, b'{"sand')))
        c.sock.shutdown(socket.SHUT_RDWR)
    fiend.script = break_off
    p = Probe(fiend)
    assert p.ask("get", SANDBOX)["reason"] == "SANDBOX_NOT_FOUND"
    assert len(fiend.seen) == 4
    r = p.ask("stat", SANDBOX, "-", "/x")
    assert r["cls"] == "ANSWERED", r
    assert len(fiend.seen) == 8
    assert p.ask("create", 300)["outcome"] == "UNKNOWN"
    assert len(posts(fiend)) == 1
    p.set("deadline", 1500)
    fiend.script = lambda c, r: c.send(f2.frame(f2.HEADERS, f2.END_HEADERS, r.sid, half)) and c.sock.shutdown(socket.SHUT_RDWR)
    r = p.ask("get", SANDBOX)
    assert (r["outcome"], r["reason"]) == ("UNKNOWN", "UNREACHABLE") and "lost" in r["text"], r
    p.close()


def test_retry_after_is_capped(fiend, daemon, api):
    """B-4: nobody waits for more than 300 s, whatever the cloud asks for."""
    for value in ("1000000000", "9" * 40):
        fiend.script = lambda c, r: r.ended and c.send(
            f2.answer(r.sid, 429, {"code": 429, "message": "slow down"}, [("retry-after", value)]))
        with pytest.raises(ApiError) as e:
            api.call("SandboxService.Get", sandbox=SANDBOX, timeout=5)
        assert e.value.reason == "RATE_LIMITED" and 290 < e.value.retry_s <= 300, (value, e.value.retry_s)


def test_goaway_in_two_steps(fiend):
    """H-02: 2^31-1 first, the last id later: nothing new goes on that connection, what is open there is answered there."""
    held, late = [], []

    def two_steps(c, r):
        if not r.ended:
            return
        if c.number > 1:
            late.append(r)
            c.send(f2.answer(r.sid, 404, {"code": 404, "message": "no"}))
            return
        held.append((c, r))
        if len(held) == 3:
            c.send(f2.goaway(0x7fffffff, 0))
    fiend.script = two_steps
    p = Probe(fiend)
    first = [p.say("get", SANDBOX) for _ in range(3)]
    harness.until(lambda: sum(s["goaways"] for s in p.stats()) == 1, 10, "the GOAWAY")
    for r in p.all([p.say("get", SANDBOX) for _ in range(5)]):
        assert r["reason"] == "SANDBOX_NOT_FOUND", r
    assert len(late) == 5
    c = held[0][0]
    c.send(f2.goaway(held[-1][1].sid, 0) + b"".join(
        f2.answer(r.sid, 404, {"code": 404, "message": "no"}) for _, r in held))
    for r in p.all(first):
        assert r["reason"] == "SANDBOX_NOT_FOUND", r
    assert len(fiend.seen) == 8 and len(fiend.conns) == 2
    p.close()


def test_asked_just_after_goaway(fiend):
    """H-03: a request that crosses GOAWAY on its way is above the last id: it goes again elsewhere, a create too, once."""
    seen = []

    def crossed(c, r):
        if not r.ended:
            return
        seen.append((c.number, r.get(":path")))
        if c.number == 1 and len(seen) == 1:
            c.send(f2.answer(r.sid, 404, {"code": 404, "message": "no"}))
        elif c.number == 1:
            c.send(f2.goaway(1, 0))     # the first alone was looked at
        else:
            c.send(f2.answer(r.sid, 400, {"code": 400, "message": "no such template"}))
    fiend.script = crossed
    p = Probe(fiend)
    assert p.ask("get", SANDBOX)["reason"] == "SANDBOX_NOT_FOUND"
    r = p.ask("create", 300)
    assert r["outcome"] == "REFUSED", r
    assert [n for n, path in seen if path == "/sandboxes"] == [1, 2], seen
    p.close()


def test_death_under_a_hundred(fiend):
    """H-10: a connection dies under a hundred streams: each ends once, a GET by going again elsewhere."""
    seen = []

    def die(c, r):
        if not r.ended:
            return
        seen.append((c.number, r.sid))
        if c.number == 1:
            if len(seen) == 100:
                c.sock.close()
        else:
            c.send(f2.answer(r.sid, 404, {"code": 404, "message": "no"}))
    fiend.script = die
    fiend.greeting = f2.settings((f2.MAX_STREAMS, 128), (f2.INITIAL_WINDOW, 1 << 20)) + f2.window(0, 1 << 20)
    p = Probe(fiend, max_conns=1)
    p.set("deadline", 30000)
    for r in p.all([p.say("stat", SANDBOX, "-", "/x") for _ in range(100)], timeout=60):
        assert r["reason"] in ("FILE_NOT_FOUND", "SANDBOX_NOT_FOUND", "UNREACHABLE", "BAD_CLOUD_REPLY"), r
    assert len([1 for n, _ in seen if n == 1]) == 100 and len({s for s in seen}) == len(seen)
    p.close()


def test_calm_again_and_again(fiend):
    """H-05: ENHANCE_YOUR_CALM on every call: held back and doubled, never an endless loop, RetryInfo is given."""
    fiend.script = lambda c, r: c.send(f2.goaway(0, 11))
    p = Probe(fiend)
    p.set("deadline", 4000)
    r = p.ask("get", SANDBOX)
    assert r["outcome"] == "UNSENT", r
    assert len(fiend.seen) <= 4
    p.close()


def test_early_answer(fiend):
    """H-09: a complete answer and RST_STREAM(NO_ERROR) stop an upload; the answer counts."""
    def early(c, r):
        if not r.body:
            c.send(f2.answer(r.sid, 507, {"code": 507, "message": "disk full"}) + f2.rst(r.sid, 0))
    fiend.script = early
    p = Probe(fiend)
    w = p.ask("write", SANDBOX, "-", "/home/user/f", 50000000, "known")
    assert w["reason"] == "NO_SPACE", w
    p.close()


def test_windows_go_negative(fiend):
    """H-13: the window shrinks below what is under way; the upload stalls, goes on, and is whole."""
    done = []

    def shrink(c, r):
        n = len(r.body)
        if n == 0:
            c.send(f2.settings((f2.INITIAL_WINDOW, 300000)))
        elif 0 < n <= 16384 and not done:
            done.append("shrunk")
            c.send(f2.settings((f2.INITIAL_WINDOW, 0)) + f2.settings((f2.INITIAL_WINDOW, 7)))
            c.send(f2.window(0, 16 << 20))
        elif n > 60000 and "grown" not in done:
            done.append("grown")
            c.send(f2.window(r.sid, 400000))
            c.send(f2.settings((f2.INITIAL_WINDOW, 1 << 20)) + f2.window(r.sid, 8 << 20))
        if r.ended:
            c.send(f2.answer(r.sid, 200, [{"name": "f", "type": "file", "path": "/home/user/f"}]))
    fiend.script = shrink
    p = Probe(fiend)
    w = p.ask("write", SANDBOX, "-", "/home/user/f", 2000000, "known")
    assert w["cls"] == "OK" and "grown" in done, (w, done)
    assert 2000000 <= len(fiend.seen[0][1].body)
    p.close()


def test_table_size_flips(fiend):
    """H-14: HEADER_TABLE_SIZE goes from 0 to 64 KiB and back; the decoder's twin never loses its step."""
    sizes = [0, 65536, 4096, 0, 100, 65536]

    def flip(c, r):
        # The decoder may be told at once: until our encoder has seen it, it only uses less than it might.
        size = sizes[r.number % len(sizes)]
        c.decoder.max_allowed_table_size = 65536
        c.send(f2.settings((f2.TABLE_SIZE, size)) + f2.answer(r.sid, 404, {"code": 404, "message": "no"}))
    fiend.script = flip
    p = Probe(fiend)
    for i in range(60):
        assert p.ask("get", SANDBOX)["reason"] == "SANDBOX_NOT_FOUND", i
    assert {r.get("x-api-key") for _, r in fiend.seen} == {fiend.key}
    assert len(fiend.seen) == 60 and len(fiend.conns) == 1
    p.close()


def test_idle_ping_is_answered(fiend):
    """H-18: what comes on an idle connection is answered, and the connection is used again."""
    p = Probe(fiend)
    assert p.ask("get", SANDBOX)["reason"] == "SANDBOX_NOT_FOUND"
    c = fiend.conns[0]
    for i in range(20):
        c.send(f2.frame(f2.PING, 0, 0, i.to_bytes(8, "big")))
    harness.until(lambda: sum(1 for f in c.inbox if f[0] == f2.PING and f[1] & f2.ACK) == 20, 5, "the answers")
    assert p.ask("get", SANDBOX)["reason"] == "SANDBOX_NOT_FOUND"
    assert len(fiend.conns) == 1
    p.close()


def test_stream_limit_lowered(fiend):
    """The peer's limit is lowered from 100 to 5 in mid-life: never more than that at once, no failure."""
    now, peak, lock, held = set(), [0], threading.Lock(), []

    def count(c, r):
        with lock:
            now.add((c.number, r.sid))
            mine = sum(1 for n, _ in now if n == c.number)
            peak.append(mine)
            if len(peak) == 2:
                c.send(f2.settings((f2.MAX_STREAMS, 5)))
                c.send(f2.answer(r.sid, 404, {"code": 404, "message": "no"}))
                now.discard((c.number, r.sid))
                return
            held.append((c, r))
            if len(held) >= 5:
                for c, r in held:
                    now.discard((c.number, r.sid))
                    c.send(f2.answer(r.sid, 404, {"code": 404, "message": "no"}))
                held.clear()
    fiend.script = count
    p = Probe(fiend, max_conns=1)
    assert p.ask("get", SANDBOX)["reason"] == "SANDBOX_NOT_FOUND"
    p.sync()
    for r in p.all([p.say("get", SANDBOX) for _ in range(50)]):
        assert r["reason"] == "SANDBOX_NOT_FOUND", r
    assert max(peak) <= 5, max(peak)
    p.close()


# -- what an answer may cost

def many(what, n):
    """n MB of a JSON list of the smallest elements."""
    def play(c, r):
        body = b"[" + b",".join([what] * ((n << 20) // (len(what) + 1))) + b"]"
        c.send(head(r.sid))
        for i in range(0, len(body), 16384):
            if not c.send(f2.frame(f2.DATA, 0, r.sid, body[i:i + 16384])):
                return
        c.send(f2.frame(f2.DATA, f2.END_STREAM, r.sid))
    return play


COSTLY = {
    "list of {}": many(b"{}", 2),
    "list of 0": many(b"0", 2),
    "list of \"\"": many(b'""', 2),
    "list of {\"a\":{}}": many(b'{"a":{}}', 2),
    "one object of many keys": lambda c, r: c.send(f2.answer(
        r.sid, 200, b"{" + b",".join(b'"%x":0' % i for i in range(2000)) + b"}")),
    "deep": lambda c, r: c.send(f2.answer(r.sid, 200, b"[" * 15000)),
}


def cpu_ns(pid):
    total = 0
    for t in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/schedstat" % (pid, t), encoding="ascii") as f:
            total += int(f.read().split()[0])
    return total


@pytest.mark.plain
def test_cost_per_byte(fiend, daemon, api):
    """Memory and CPU of the daemon stay within ten times what a byte of an honest answer costs, whatever is sent: over
    HTTP/2 and in JSON. What a connection costs by itself is allowed for: 50 ms and 1 MiB."""
    def play(script, n=1):
        fiend.script = fiend.good       # one that answers nothing for long is not asked as often
        with pytest.raises(ApiError):
            api.call("SandboxService.Get", sandbox=SANDBOX, timeout=20)
        fiend.script = script
        sent = sum(c.n_sent for c in fiend.conns)
        with open("/proc/%d/clear_refs" % daemon.pid, "w", encoding="ascii") as f:
            f.write("5")
        before, rss = cpu_ns(daemon.pid), daemon.rss_kb()
        for _ in range(n):
            with pytest.raises(ApiError):
                api.call("SandboxService.Get", sandbox=SANDBOX, timeout=20)
        return cpu_ns(daemon.pid) - before, (daemon.hwm_kb() - rss) << 10, sum(c.n_sent for c in fiend.conns) - sent

    honest = many(b'{"templateID":"base","sandboxID":"%s","clientID":"x","state":"running"}' % SANDBOX.encode(), 2)
    play(honest)
    cpu, _, n = play(honest, 3)
    per_byte = cpu / n
    wrong = {}
    for name, script in {**HOSTILE, **COSTLY}.items():
        cpu, memory, n = play(script)
        print("%-34s %9d bytes  cpu %6.1f ms  %5.1f x  memory %7d KiB" % (name, n, cpu / 1e6, cpu / per_byte / max(n, 1), memory >> 10))
        if cpu > 50e6 + 10 * per_byte * n:
            wrong[name] = "%.0f ms for %d bytes, an honest byte costs %.1f ns" % (cpu / 1e6, n, per_byte)
        if memory > (1 << 20) + 10 * n:
            wrong[name] = "%d KiB for %d bytes" % (memory >> 10, n)
    assert ASAN or not wrong, wrong
