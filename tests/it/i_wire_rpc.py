# SPDX-License-Identifier: MIT
"""Connect framing, codes and processes (cases 86 to 89, 93, 97 to 111)."""
import base64
import json
import os
import socket
import struct
import threading
import time

import pytest

from fakecloud.codec import Messages
from harness import until
from wire import RpcFailed, error_of, event_of
from wire_common import fake, real, server  # noqa: F401

STAT = "filesystem.Filesystem/Stat"
START = "process.Process/Start"
MISSING = {"pid": 4190000}


@pytest.fixture
def box(server):
    return server.create()


@pytest.fixture(scope="module")
def messages():
    return Messages()


def code_of(call, *args, **kw):
    with pytest.raises(RpcFailed) as e:
        call(*args, **kw)
    return e.value.code


def started(stream):
    kind, pid = event_of(stream.next())
    assert kind == "start" and pid > 0
    return pid


def test_case_086_both_codecs(server, box, messages):
    r = server.raw_unary(box, STAT, b'{"path":"/home/user"}', "application/json")
    assert r.status == 200 and r.header("content-type").startswith("application/json"), r
    assert r.json()["entry"]["type"] == "FILE_TYPE_DIRECTORY"
    r = server.raw_unary(box, STAT, b'{"path":"/home/user"}', "application/json; charset=utf-8")
    assert r.status == 200
    request = messages["filesystem.StatRequest"](path="/home/user").SerializeToString()
    r = server.raw_unary(box, STAT, request, "application/proto")
    assert r.status == 200 and r.header("content-type") == "application/proto", r
    entry = messages["filesystem.StatResponse"].FromString(r.body).entry
    assert entry.type == 2 and entry.path == "/home/user" and entry.modified_time.seconds > 0


def test_case_086_binary_stream(server, box, messages):
    """The vectors of the contract's appendix B, byte by byte."""
    request = bytes.fromhex("0a1c0a092f62696e2f6261736812022d6c12022d6312076563686f2068692000")
    head = server.identity(box) + [("Content-Type", "application/connect+proto"), ("Connect-Protocol-Version", "1")]
    r = server.request("POST", "/" + START, head, struct.pack(">BI", 0, len(request)) + request)
    assert r.status == 200 and r.header("content-type") == "application/connect+proto", r
    data, got = r.body, []
    while data:
        flags, n = struct.unpack(">BI", data[:5])
        got.append((flags, data[5:5 + n]))
        data = data[5 + n:]
    start = messages["process.StartResponse"].FromString(got[0][1])
    assert start.event.start.pid > 0
    assert got[1] == (0, bytes.fromhex("0a0712050a0368690a"))
    assert got[2] == (0, bytes.fromhex("0a131a1110011a0d65786974207374617475732030"))
    assert got[3] == (2, b"{}") and len(got) == 4


def test_case_087_method_and_type(server, box):
    r = server.envd(box, "GET", "/" + STAT)
    assert r.status == 405 and "POST" in r.header("allow"), r
    r = server.raw_unary(box, STAT, b"{}", "text/plain")
    assert r.status == 415 and "application/json" in r.header("accept-post"), r
    r = server.raw_unary(box, START, b"{}", "application/json")
    assert r.status == 415 and "application/connect+json" in r.header("accept-post"), r


@pytest.mark.parametrize("header", [("Connect-Protocol-Version", "2"), ("Connect-Timeout-Ms", "abc"),
                                    ("Connect-Timeout-Ms", "12345678901"), ("Connect-Timeout-Ms", "-5")])
def test_case_088_protocol_headers(server, box, header):
    head = [("Content-Type", "application/json"), header]
    r = server.envd(box, "POST", "/" + STAT, head, b'{"path":"/"}')
    assert r.status == 400 and r.json()["code"] == "invalid_argument", r


def test_case_088_version_may_be_absent(server, box):
    r = server.envd(box, "POST", "/" + STAT, [("Content-Type", "application/json")], b'{"path":"/"}')
    assert r.status == 200, r


def test_case_089_waits_for_the_end_of_the_request(server, box):
    body = json.dumps({"process": {"cmd": "/bin/sh", "args": ["-c", "echo hi"]}, "stdin": False}).encode()
    body = struct.pack(">BI", 0, len(body)) + body
    head = "".join("%s: %s\r\n" % kv for kv in server.identity(box) + [
        ("Content-Type", "application/connect+json"), ("Transfer-Encoding", "chunked")])
    s = socket.create_connection((server.address, server.port), 20)
    with s:
        s.sendall(("POST /%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (START, head)).encode())
        s.sendall(b"%x\r\n%s\r\n" % (len(body), body))
        s.settimeout(0.4)
        with pytest.raises(socket.timeout):
            while True:
                got = s.recv(4096)
                assert b"event" not in got and got, got
        s.settimeout(20)
        s.sendall(b"0\r\n\r\n")
        data = b""
        while b"exit status 0" not in data:
            more = s.recv(4096)
            assert more, data
            data += more


@pytest.mark.parametrize("body,code", [
    (b"", "unimplemented"),
    (b"\0\0\0\0", "invalid_argument"),
    (b"\0\0\0\0\5{}", "invalid_argument"),
    (b"\0\0\0\0\2{}\0\0\0\0\2{}", "unimplemented"),
    (b"\0\0\0\0\1{", "invalid_argument"),
])
def test_bad_envelopes(server, box, body, code):
    head = server.identity(box) + [("Content-Type", "application/connect+json")]
    r = server.request("POST", "/" + START, head, body)
    assert r.status == 200, r
    assert r.body[0] & 2 and json.loads(r.body[5:])["error"]["code"] == code, r


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"path":7}', b"\xff"])
def test_bad_json(server, box, body):
    r = server.raw_unary(box, STAT, body, "application/json")
    assert r.status == 400 and r.json()["code"] == "invalid_argument", r


def test_case_093_not_found_both_ways(server, box):
    r = server.raw_unary(box, STAT, b'{"path":"/no/such"}', "application/json")
    assert r.status == 404 and r.json()["code"] == "not_found", r
    s = server.stream(box, "process.Process/Connect", {"process": MISSING})
    assert s.status == 200 and error_of(s) == "not_found"


def test_unknown_rpc(server, box):
    r = server.raw_unary(box, "process.Process/Nope", b"{}", "application/json")
    assert r.status == 404, r


def test_case_097_echo(server, box):
    events, out, err, end, eos = server.run(box, "echo hi")
    assert [e[0] for e in events] == ["start", "stdout", "end"]
    assert out == b"hi\n" and err == b""
    assert end == {"exited": True, "status": "exit status 0"} and eos == {}


def test_case_098_exit_code(server, box):
    _, _, _, end, eos = server.run(box, "exit 3")
    assert end == {"exitCode": 3, "exited": True, "status": "exit status 3", "error": "exit status 3"} and eos == {}
    assert server.run(box, "exit 255")[3]["exitCode"] == 255


def test_case_099_signal(server, box):
    end = server.run(box, argv=["/bin/sh", "-c", "kill -9 $$"])[3]
    assert end == {"exitCode": -1, "status": "signal: killed", "error": "signal: killed"}
    assert server.run(box, argv=["/bin/sh", "-c", "kill -15 $$"])[3]["status"] == "signal: terminated"


def test_missing_program(server, box):
    assert server.run(box, argv=["/no/such/program"])[3]["exitCode"] == 127


def send(server, box, selector, **data):
    kind, value = next(iter(data.items()))
    return server.unary(box, "process.Process/SendInput", {
        "process": selector, "input": {kind: base64.b64encode(value).decode()}})


def test_case_100_stdin(server, box):
    assert server.run(box, argv=["/bin/cat"], stdin=False)[3]["status"] == "exit status 0"
    for stdin in (True, None):  # absent means open
        with server.start(box, argv=["/bin/cat"], stdin=stdin) as s:
            me = {"pid": started(s)}
            send(server, box, me, stdin=b"ab\n")
            assert event_of(s.next()) == ("stdout", b"ab\n")
            server.unary(box, "process.Process/CloseStdin", {"process": me})
            assert event_of(s.next())[1]["status"] == "exit status 0"


def test_case_101_input_refused(server, box):
    with server.start(box, "sleep 50", stdin=False) as s:
        me = {"pid": started(s)}
        assert code_of(send, server, box, me, stdin=b"x") == "internal"
        assert code_of(send, server, box, me, pty=b"x") == "internal"
        assert code_of(server.unary, box, "process.Process/SendInput", {"process": me}) == "unimplemented"
    assert code_of(send, server, box, MISSING, stdin=b"x") == "not_found"
    assert code_of(server.unary, box, "process.Process/SendInput", {"input": {"stdin": "eA=="}}) in (
        "unimplemented", "not_found")


def test_case_102_close_stdin_twice(server, box):
    with server.start(box, argv=["/bin/sh", "-c", "cat; sleep 50"], stdin=True) as s:
        me = {"process": {"pid": started(s)}}
        server.unary(box, "process.Process/CloseStdin", me)
        server.unary(box, "process.Process/CloseStdin", me)
        assert code_of(send, server, box, me["process"], stdin=b"x") == "internal"
    assert code_of(server.unary, box, "process.Process/CloseStdin", {"process": MISSING}) == "not_found"


def test_case_103_deadline(server, box):
    begin = time.monotonic()
    with server.start(box, "sleep 60", headers=[("Connect-Timeout-Ms", "500")]) as s:
        pid = started(s)
        for _ in s:
            pass
    assert s.end["error"]["code"] == "deadline_exceeded" and 0.4 < time.monotonic() - begin < 5
    until(lambda: pid not in [p["pid"] for p in server.processes(box)], 5, "the end of the process")


def test_case_104_survives_a_disconnect(server, box):
    s = server.start(box, argv=["/bin/sh", "-c", "read x; echo $x; exit 4"], stdin=True)
    me = {"pid": started(s)}
    s.close()
    assert me["pid"] in [p["pid"] for p in server.processes(box)]
    with server.stream(box, "process.Process/Connect", {"process": me}) as c:
        assert started(c) == me["pid"]
        send(server, box, me, stdin=b"x\n")
        events = [event_of(m) for m in c]
    assert events[0] == ("stdout", b"x\n") and events[-1][1]["exitCode"] == 4 and c.end == {}
    with server.stream(box, "process.Process/Connect", {"process": me}) as c:  # within 30 s of its end
        events = [event_of(m) for m in c]
    assert [e[0] for e in events] == ["start", "end"] and events[1][1]["exitCode"] == 4


def test_case_104_forgotten_after_30_s(fake):
    box = fake.create(timeout=600)
    with fake.start(box, "true") as s:
        me = {"pid": started(s)}
        for _ in s:
            pass
    fake.cloud.advance(40)
    assert error_of(fake.stream(box, "process.Process/Connect", {"process": me})) == "not_found"


def test_a_child_holds_the_output(real):
    """The end comes when the last one closes it; till then the program is a zombie, and in the agent's list."""
    box = real.create()
    with real.start(box, argv=["/bin/sh", "-c", "exec 3<&0; (read x <&3; echo $x) & echo hi; exit 4"], stdin=True) as s:
        me = {"pid": started(s)}
        assert event_of(next(iter(s))) == ("stdout", b"hi\n")
        stat = "while ! grep -q ') Z' /proc/%d/stat; do sleep 0.01; done; cut -d' ' -f52 /proc/%d/stat" % ((me["pid"],) * 2)
        assert real.run(box, stat, user="root")[1] == b"1024\n"
        assert me["pid"] in [p["pid"] for p in real.processes(box)]
        send(real, box, me, stdin=b"last\n")
        events = [event_of(m) for m in s]
    assert events[0] == ("stdout", b"last\n") and events[-1][1]["exitCode"] == 4
    until(lambda: real.run(box, "ls -d /proc/%d" % me["pid"])[1] == b"", what="the end of the zombie")


def test_case_105_much_output_slow_reader(server, box):
    size = 10 << 20
    with server.start(box, argv=["/bin/sh", "-c",
                                 "head -c %d /dev/zero | tr '\\0' x; echo end >&2" % size], timeout=60) as s:
        started(s)
        got, pieces = 0, 0
        for m in s:
            kind, data = event_of(m)
            if kind == "stdout":
                assert 0 < len(data) <= 32768 and not data.strip(b"x")
                got += len(data)
                pieces += 1
                if pieces == 20:
                    threading.Event().wait(0.3)  # the reader is slow, the program waits for it
    assert got == size and s.end == {}


def test_case_105_order_of_a_stream(server, box):
    out = server.run(box, "for i in $(seq 5000); do echo $i; done")[1]
    assert out == b"".join(b"%d\n" % i for i in range(1, 5001))


def test_case_107_keepalive(server, box):
    with server.start(box, "sleep 2.6", headers=[("Keepalive-Ping-Interval", "1")]) as s:
        started(s)
        kinds = [event_of(m)[0] for m in s]
    assert kinds == ["keepalive", "keepalive", "end"]
    with server.start(box, "for i in 1 2 3 4 5 6; do echo x; sleep 0.3; done",
                      headers=[("Keepalive-Ping-Interval", "1")]) as s:
        assert "keepalive" not in [event_of(m)[0] for m in s]


def test_case_108_folders(server, box):
    assert error_of(server.start(box, "pwd", cwd="/nope")) == "invalid_argument"
    assert error_of(server.start(box, "pwd", cwd="~other")) == "invalid_argument"


def test_case_108_users_and_folders(real):
    box = real.create()
    assert real.run(box, "pwd; id -un")[1] == b"/home/user\nuser\n"
    assert real.run(box, "pwd", cwd="~")[1] == b"/home/user\n"
    assert real.run(box, "pwd", cwd="/tmp")[1] == b"/tmp\n"
    assert real.run(box, "id -u", user="root")[1] == b"0\n"
    assert real.run(box, "pwd", user="root")[1] == b"/root\n"
    assert real.run(box, "id -u", user="user")[1] == b"1000\n"
    real.write(box, "sub/x", b"")
    assert real.run(box, "pwd", cwd="sub")[1] == b"/home/user/sub\n"


def test_environment_is_clean(real):
    box = real.create()
    out = real.run(box, argv=["/usr/bin/env", "-0"])[1].split(b"\0")
    names = {e.partition(b"=")[0].decode() for e in out if e}
    assert {"PATH", "HOME", "USER", "LOGNAME", "E2B_SANDBOX", "E2B_SANDBOX_ID"} <= names
    assert not [n for n in names if n not in os.environ.get("_", "") and n.startswith(("LD_", "ASAN", "UBSAN", "AGENTBOX"))]


def test_case_109_signals(server, box):
    def signal(selector, name):
        return server.unary(box, "process.Process/SendSignal", {"process": selector, "signal": name})
    with server.start(box, argv=["/bin/sh", "-c", "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done"]) as s:
        me = {"pid": started(s)}
        assert event_of(s.next()) == ("stdout", b"up\n")
        assert code_of(signal, me, "SIGNAL_UNSPECIFIED") == "unimplemented"
        assert code_of(signal, me, 2) in ("unimplemented", "invalid_argument")
        signal(me, "SIGNAL_SIGTERM")
        assert [event_of(m) for m in s][-1][1]["exitCode"] == 5
    with server.start(box, argv=["/bin/sleep", "100"]) as s:
        me = {"pid": started(s)}
        signal(me, 9)
        assert [event_of(m) for m in s][-1][1]["status"] == "signal: killed"
    assert code_of(signal, MISSING, "SIGNAL_SIGKILL") == "not_found"


def test_case_110_list(server, box):
    with server.start(box, "sleep 50", tag="t1", envs={"K": "v"}) as s:
        pid = started(s)
        mine = next(p for p in server.processes(box) if p["pid"] == pid)
        assert mine["config"]["cmd"] == "/bin/bash" and mine["config"]["args"] == ["-l", "-c", "sleep 50"]
        assert mine["config"]["envs"] == {"K": "v"} and mine["tag"] == "t1"
        with server.stream(box, "process.Process/Connect", {"process": {"tag": "t1"}}) as c:
            assert started(c) == pid
        server.unary(box, "process.Process/SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
        for _ in s:
            pass
    until(lambda: pid not in [p["pid"] for p in server.processes(box)], 5, "its leaving the list")


def test_case_111_terminal(server):
    server.needs("terminals")
    box = server.create()
    with server.start(box, argv=["/bin/sh", "-c", "stty size; read x; stty size; echo $x"], pty=(80, 24)) as s:
        me = {"pid": started(s)}
        seen = b""
        while b"24 80" not in seen:
            kind, data = event_of(s.next())
            assert kind == "pty"
            seen += data
        server.unary(box, "process.Process/Update", {"process": me, "pty": {"size": {"cols": 120, "rows": 40}}})
        assert code_of(send, server, box, me, stdin=b"x") == "internal"
        assert code_of(server.unary, box, "process.Process/CloseStdin", {"process": me}) == "unknown"
        send(server, box, me, pty=b"word\n")
        for m in s:
            kind, data = event_of(m)
            if kind == "pty":
                seen += data
    assert b"40 120" in seen and b"word" in seen


def test_a_hundred_commands(server, box):
    def one(i):
        got[i] = server.run(box, "echo %d" % i, timeout=60)[1]
    got = [None] * 100
    for base in range(0, 100, 20):
        threads = [threading.Thread(target=one, args=(i,)) for i in range(base, base + 20)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert got == [b"%d\n" % i for i in range(100)]


def test_background_child_does_not_hold_the_end(server, box):
    """Children that keep the pipes open: the end still comes once the command itself is gone and they close."""
    events = server.run(box, "sleep 0.3 & echo done")[0]
    assert events[-1][0] == "end" and ("stdout", b"done\n") in events
