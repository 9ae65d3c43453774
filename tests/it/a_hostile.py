# SPDX-License-Identifier: MIT
"""A client that breaks or abuses HTTP/2 towards the gRPC server (FAULTS G): its own connection pays, others go on."""
import threading
import time

import pytest

import h2fiend as f2
import harness
from a_rpc import Probe
from api import Api

ASAN = harness.ASAN
UNARY = "/agentbox.v1.SandboxService/IsRunning"
ATTACH = "/agentbox.v1.CommandService/Attach"
TWENTY_MIB = b"\x0a\0\x10\x80\x80\x80\x0a"


@pytest.fixture
def probe():
    p = Probe()
    yield p
    p.stop()
    p.check_sanitizer()


def still_serves(probe):
    with Api(probe.socket) as a:
        began = time.monotonic()
        assert a.call("SandboxService.IsRunning", sandbox="x").running
        assert time.monotonic() - began < 3


VIOLATIONS = {
    "G-03 window of 0": f2.window(0, 0),
    "G-03 even stream": f2.request(2),
    "G-03 data on an idle stream": f2.frame(f2.DATA, 0, 9, b"x"),
    "G-31 push promise": f2.frame(f2.PUSH_PROMISE, f2.END_HEADERS, 1, b"\0\0\0\2"),
    "ping of 7 bytes": f2.frame(f2.PING, 0, 0, bytes(7)),
    "settings of 5 bytes": f2.frame(f2.SETTINGS, 0, 0, bytes(5)),
    "G-13 settings of 10,000 entries": f2.frame(f2.SETTINGS, 0, 0, b"\0\3\0\0\0\7" * 2700),
    "frame above the size": f2.frame(f2.DATA, 0, 1, bytes(16385)),
    "hpack: index out of the table": f2.headers(1, f2.indexed(5000), end=True),
    "hpack: table too large": f2.headers(1, b"\x3f\xe1\xff\x7f", end=True),
    "another frame inside a block": f2.frame(f2.HEADERS, 0, 1, f2.indexed(3)) + f2.frame(f2.PING, 0, 0, bytes(8)),
    "continuation of nothing": f2.frame(f2.CONTINUATION, f2.END_HEADERS, 1),
    "priority on itself": f2.frame(f2.PRIORITY, 0, 0, bytes(5)),
}


@pytest.mark.parametrize("name", sorted(VIOLATIONS))
def test_violations(probe, name):
    """G-03, G-13, G-31: the connection ends with GOAWAY, and it alone."""
    c = f2.Client(probe.socket)
    c.send(VIOLATIONS[name])
    assert c.goaway_code() > 0
    c.close()
    still_serves(probe)


def test_what_a_client_owes(probe):
    """G-05: HEADERS without END_HEADERS, then silence; or CONTINUATION now and then: closed after 5 s. G-13: a client that
    never acknowledges SETTINGS is served for 10 s, no longer."""
    deaf = f2.Client(probe.socket)
    deaf.answers = False
    deaf.send(deaf.grpc(1, UNARY, b"\x0a\x01x"))
    c, slow = f2.Client(probe.socket), f2.Client(probe.socket)
    for each in (c, slow):      # whose acknowledgement must not come within the block
        assert each.until(lambda f: f[0] == f2.SETTINGS and not f[1] & f2.ACK)
    c.send(f2.frame(f2.HEADERS, f2.END_STREAM, 1, f2.indexed(3)))
    slow.send(f2.frame(f2.HEADERS, f2.END_STREAM, 1, f2.indexed(3)))
    began = time.monotonic()
    ended = []
    t = threading.Thread(target=lambda: ended.append(c.goaway_code()))
    t.start()
    for _ in range(3):
        time.sleep(1)           # the pace of this peer is what is tested
        slow.send(f2.frame(f2.CONTINUATION, 0, 1, f2.indexed(6)))
    assert slow.goaway_code() == 1
    t.join(10)
    assert ended == [1] and 4.5 < time.monotonic() - began < 8
    assert deaf.goaway_code() == 4
    assert any(f[0] == f2.HEADERS for f in deaf.inbox) and 9 < time.monotonic() - began < 13
    still_serves(probe)


@pytest.mark.plain
@pytest.mark.parametrize("drip", [False, True])
def test_answers_nobody_reads(probe, drip):
    """G-09, G-10: windows of 0, or of a byte now and then: what waits to be sent is bounded for a connection and for
    all of a uid, other clients are served."""
    hwm = probe.hwm_kb()
    clients = [f2.Client(probe.socket, pairs=[(f2.INITIAL_WINDOW, 0)]) for _ in range(10)]
    for c in clients:
        c.answers = True
        for k in range(60):     # each would send 20 MiB
            c.send(c.grpc(2 * k + 1, ATTACH, TWENTY_MIB))
        if drip:
            for k in range(60):
                c.send(f2.window(2 * k + 1, 1))
    for c in clients:
        c.send(f2.frame(f2.PING, 0, 0, bytes(8)))
        assert c.until(lambda f: f[0] == f2.PING and f[1] & f2.ACK), "it went"
    still_serves(probe)
    assert ASAN or probe.hwm_kb() - hwm < 40 << 10, probe.hwm_kb() - hwm
    for c in clients:
        c.close()
    still_serves(probe)
