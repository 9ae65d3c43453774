# SPDX-License-Identifier: MIT
"""The tests' own tools do what they say: faults strike where they are told to, the ledger is right, the relay relays."""
import http.client
import json
import socket
import ssl
import subprocess
import sys
import threading

import h2.config
import h2.connection
import h2.events
import pytest

import harness
from chaosproxy import ChaosProxy
from fakecloud import FakeCloud, Shape
from wire import Broken, Client, event_of


@pytest.fixture
def client(cloud):
    return Client(cloud.plain_url, cloud.key)


class H2Client:
    """Enough of an HTTP/2 client to see frames."""

    def __init__(self, cloud):
        context = ssl.create_default_context(cafile=cloud.ca)
        context.set_alpn_protocols(["h2"])
        self.sock = context.wrap_socket(socket.create_connection(("127.0.0.1", cloud.port), 10),
                                        server_hostname="localhost")
        self.cloud = cloud
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.flush()

    def flush(self):
        self.sock.sendall(self.h2.data_to_send())

    def ask(self, method, path, body=b""):
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, [(":method", method), (":scheme", "https"), (":authority", "localhost"),
                                      (":path", path), ("x-api-key", self.cloud.key),
                                      ("content-type", "application/json")], end_stream=not body)
        if body:
            self.h2.send_data(stream, body, end_stream=True)
        self.flush()
        return stream

    def until(self, kind):
        """The first event of this kind, or None when the connection ends."""
        while True:
            data = self.sock.recv(65536)
            if not data:
                return None
            for e in self.h2.receive_data(data):
                if isinstance(e, kind):
                    return e
            self.flush()


CREATE = json.dumps({"templateID": "base", "timeout": 60}).encode()


@pytest.mark.parametrize("when,made", [("before", 0), ("after", 1), ("mid", 1)])
def test_cut(cloud, client, when, made):
    cloud.fault("create", when=when, cut=True)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        client.api("POST", "/sandboxes", {"templateID": "base", "timeout": 60})
    assert len(cloud.ledger.sandboxes) == made
    assert client.api("POST", "/sandboxes", {"templateID": "base", "timeout": 60}).status == 201


def test_nth_and_times(cloud, client):
    cloud.fault("get", nth=2, times=2, status=503, headers=[("Retry-After", "1")])
    box = client.create()
    assert [client.get(box).status for _ in range(5)] == [200, 503, 503, 200, 200]


@pytest.mark.parametrize("when,made", [("before", 0), ("after", 1)])
def test_reset(cloud, when, made):
    cloud.fault("create", when=when, reset=7)
    c = H2Client(cloud)
    c.ask("POST", "/sandboxes", CREATE)
    e = c.until(h2.events.StreamReset)
    assert e.error_code == 7 and len(cloud.ledger.sandboxes) == made
    c.ask("POST", "/sandboxes", CREATE)
    assert c.until(h2.events.StreamEnded) and len(cloud.ledger.sandboxes) == made + 1


def test_goaway_unprocessed(cloud):
    cloud.fault("create", goaway=0, last="before", cut=True)
    c = H2Client(cloud)
    c.ask("POST", "/sandboxes", CREATE)
    e = c.until(h2.events.ConnectionTerminated)
    assert e.last_stream_id == 0 and not cloud.ledger.sandboxes


def test_goaway_of_all(cloud):
    c = H2Client(cloud)
    c.ask("GET", "/v2/sandboxes")
    assert c.until(h2.events.StreamEnded)
    cloud.goaway(0, "seen")
    assert c.until(h2.events.ConnectionTerminated).error_code == 0


def test_hold_and_release(cloud, client):
    f = cloud.fault("create", hold_answer=True)
    got = []
    t = threading.Thread(target=lambda: got.append(client.api("POST", "/sandboxes", {"templateID": "base"}).status))
    t.start()
    f.hold_answer.wait()
    assert len(cloud.ledger.sandboxes) == 1 and not got
    f.hold_answer.release()
    t.join(10)
    assert got == [201]


def test_silence(cloud, client):
    box = client.create()
    cloud.fault("get", silent=True)
    with pytest.raises(socket.timeout):
        client.request("GET", "/sandboxes/" + box["sandboxID"], [("X-API-Key", client.key)], timeout=0.3)
    cloud.silence()
    with pytest.raises(socket.timeout):
        client.request("GET", "/health", timeout=0.3)
    cloud.silence(False)
    assert client.get(box).status == 200


def test_refuse(cloud, client):
    cloud.refuse()
    with pytest.raises(ConnectionRefusedError):
        client.request("GET", "/health")
    cloud.refuse(False)
    assert client.request("GET", "/health").status == 200


@pytest.mark.parametrize("how", ["cut", "end"])
def test_stream_cut(cloud, client, how):
    box = client.create()
    cloud.fault("process.Start", shape=Shape(cut_after=2, how=how))
    with client.start(box, "echo one; sleep 20") as s:
        assert event_of(s.next())[0] == "start" and event_of(s.next()) == ("stdout", b"one\n")
        with pytest.raises((Broken, ConnectionError)):
            s.next()


def test_stream_split_and_without_end(cloud, client):
    box = client.create()
    cloud.fault("process.Start", shape=Shape(split=1))
    assert client.run(box, "echo hi")[1] == b"hi\n"
    cloud.fault("process.Start", shape=Shape(pack=True))
    assert client.run(box, "echo hi")[1] == b"hi\n"
    cloud.fault("process.Start", shape=Shape(no_end=True))
    with client.start(box, "echo hi") as s:
        with pytest.raises(Broken):
            for _ in s:
                pass


def test_scripted_process(cloud, client):
    gate = cloud.gate()
    cloud.script("magic", [("stdout", b"\xff\xfe"), ("gate", gate), ("stderr", b"x" * 100000), ("signal", 11)])
    box = client.create()
    with client.start(box, "magic word") as s:
        assert event_of(s.next())[0] == "start" and event_of(s.next()) == ("stdout", b"\xff\xfe")
        gate.wait()
        gate.release()
        assert event_of(s.next()) == ("stderr", b"x" * 100000)
        assert event_of(s.next())[1]["status"] == "signal: segmentation fault"


def test_ledger(cloud, client):
    box = client.create(metadata={"a": "b"})
    sbx = cloud.sandbox(box["sandboxID"])
    seen = cloud.ledger.wait_requests("create")
    assert seen.n == sbx.request and seen.header("x-api-key") == cloud.key and json.loads(seen.body)["metadata"]
    cloud.ledger.wait(lambda: seen.end == "complete")
    assert seen.status == 201 and seen.acted
    cloud.advance(61)
    assert sbx.fate == "expired" and cloud.ledger.alive() == []
    client.kill(box)
    assert cloud.ledger.count("delete") == 1 and cloud.ledger.count("delete", status=404) == 1


def test_as_a_process():
    p = subprocess.Popen([sys.executable, "-m", "fakecloud"], cwd=harness.ROOT + "/tests/lib", stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
    try:
        told = json.loads(p.stdout.readline())
        client = Client(told["plain_url"], told["key"])
        client.create()
        with socket.create_connection(("127.0.0.1", told["control"]), 10) as s:
            f = s.makefile("rw")

            def order(do, *args, **kw):
                f.write(json.dumps({"do": do, "args": args, "kw": kw}) + "\n")
                f.flush()
                return json.loads(f.readline())
            assert len(order("sandboxes")["ok"]) == 1
            assert order("fault", "list", status=500)["ok"]
            assert client.api("GET", "/v2/sandboxes").status == 500
            assert order("requests", "list")["ok"][0]["fault"] == "list fault"
            assert "error" in order("nonsense")
            assert order("stop")["ok"]
        assert p.wait(10) == 0
    finally:
        p.stdin.close()
        p.stdout.close()
        if p.poll() is None:
            p.kill()
            p.wait()


def test_proxy(cloud):
    with ChaosProxy("127.0.0.1", cloud.plain_port) as proxy:
        client = Client("http://127.0.0.1:%d" % proxy.port, cloud.key)
        box = client.create()
        client.write(box, "f", b"x" * 200_000)
        assert client.read(box, "f").body == b"x" * 200_000
        proxy.cut_after(down=100_000)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            client.read(box, "f")
        assert proxy.cut_happened.wait(5)
        proxy.stall()
        with pytest.raises(socket.timeout):
            client.request("GET", "/health", timeout=0.3)
        proxy.stall(False)
        assert client.request("GET", "/health").status == 200


def test_wrong_authority(cloud, tmp_path):
    from fakecloud.certs import Authority
    cloud.use_certificate(*Authority(str(tmp_path), "another CA").issue())
    with pytest.raises(ssl.SSLCertVerificationError):
        H2Client(cloud)


def test_two_clouds_with_one_authority(cloud):
    with FakeCloud(authority=cloud.authority) as other:
        assert H2Client(other).ask("GET", "/health") and other.ca == cloud.ca


def test_stream_limit(cloud):
    cloud.h2_settings[3] = 2  # SETTINGS_MAX_CONCURRENT_STREAMS
    f = cloud.fault("list", times=None, hold=True)
    c = H2Client(cloud)
    c.until(h2.events.RemoteSettingsChanged)
    c.ask("GET", "/v2/sandboxes")
    c.ask("GET", "/v2/sandboxes")
    cloud.ledger.wait_requests("list", 2)
    assert cloud.ledger.peak_streams == 2
    with pytest.raises(h2.exceptions.TooManyStreamsError):
        c.ask("GET", "/v2/sandboxes")
    f.hold.release()


def test_commands_lead_no_group(cloud, client):
    """setsid then keeps the pid, as in a real sandbox; killing the group harms nobody else."""
    box = client.create()
    pid, out = None, b""
    with client.start(box, argv=["setsid", "sh", "-c", "echo $$; ps -o sid= -p $$; sleep 0.1; exit 3"]) as s:
        for e in map(event_of, s):
            pid = e[1] if e[0] == "start" else pid
            out += e[1] if e[0] == "stdout" else b""
    assert out.split() == [b"%d" % pid] * 2 and e[1]["exitCode"] == 3
    other = client.start(box, "sleep 20")
    other.next()
    assert client.run(box, argv=["sh", "-c", "kill -9 0"])[3]["status"] == "signal: killed"
    assert client.run(box, "echo fine")[1] == b"fine\n"
    other.close()
