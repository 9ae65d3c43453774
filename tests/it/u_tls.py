# SPDX-License-Identifier: MIT
"""Servers whose TLS is old, weak, wrong, huge or tempting (FAULTS N-13 to N-21, A19), as callers of agentboxd see them. The
servers are openssl's and the scripted ones."""
import os
import shutil
import socket
import ssl
import subprocess
import threading

import pytest

import h2fiend
import harness
from api import Api, ApiError
from fakecloud import FakeCloud
from fakecloud.certs import Authority, _openssl

KEY = "e2b_" + "0123456789abcdef" * 2 + "01234567"


class Place:
    """What a harness.Daemon needs to know of a cloud."""

    def __init__(self, port, ca, host="127.0.0.1"):
        self.url, self.ca, self.key = "https://%s:%d" % (host, port), ca, KEY


@pytest.fixture
def authority(tmp_path):
    return Authority(str(tmp_path / "ca"), "the CA of this test")


def refused(place, reason="TLS_UNTRUSTED", timeout=6):
    """A create against it fails with this reason; the error."""
    d = harness.Daemon(place)
    try:
        with Api(d.socket) as api, pytest.raises(ApiError) as e:
            api.call("SandboxService.Create", timeout=timeout)
    finally:
        d.close()
    assert (e.value.code, e.value.reason) == ("UNAVAILABLE", reason), e.value
    return e.value


class Fiend(h2fiend.Server):
    """Answers 404 to everything, with this certificate."""

    def __init__(self, authority, chain):
        super().__init__(authority)
        authority.issue = lambda: chain


def works(authority, chain, host="127.0.0.1"):
    """Get against a server with this certificate is answered."""
    with Fiend(authority, chain) as s:
        d = harness.Daemon(Place(s.port, authority.cert, host))
        try:
            with Api(d.socket) as api, pytest.raises(ApiError) as e:
                api.call("SandboxService.Get", sandbox="i" + "0" * 20, timeout=10)
        finally:
            d.close()
    return e.value


# -- names in certificates

def der(tag, data):
    n = len(data)
    size = bytes([n]) if n < 128 else bytes([0x81, n]) if n < 256 else bytes([0x82, n >> 8, n & 255])
    return bytes([tag]) + size + data


NAMES = {
    "NUL in the name": ("DER:" + der(0x30, der(0x82, b"localhost\0.evil.test")).hex(":"), "localhost"),
    "wildcard for everything": ("DNS:*", "localhost"),
    "wildcard for a top level": ("DNS:*.localhost", "localhost"),
    "wildcard over two labels": ("DNS:*.localhost", "a.b.localhost"),
    "the name in the common name only": ("DNS:other.test", "localhost"),
    "the common name and no names at all": (None, "localhost"),
    "the common name beside an address": ("IP:127.0.0.9", "localhost"),
    "the common name beside a mail address": ("email:a@localhost", "localhost"),
    "an address as a name": ("DNS:127.0.0.1", "127.0.0.1"),
    "another address": ("IP:127.0.0.2", "127.0.0.1"),
    "a name with a dot too many": ("DNS:localhost..", "localhost"),
}


@pytest.mark.parametrize("what", sorted(NAMES))
def test_names_that_do_not_fit(authority, what):
    """N-13, G-8: a certificate that does not name the host is refused, whatever tricks its names play; the text names both."""
    san, host = NAMES[what]
    chain = authority.issue(san=san)
    with Fiend(authority, chain) as s:
        e = refused(Place(s.port, authority.cert, host))
        assert not s.seen and host in e.text, e
        assert e.metadata["issuer"].endswith("the CA of this test"), e.metadata


def test_many_names(authority):
    """N-13: five hundred names, ours is the last."""
    san = ",".join("DNS:host-%d.fake.test" % i for i in range(500)) + ",DNS:localhost"
    assert works(authority, authority.issue(san=san), "localhost").reason == "SANDBOX_NOT_FOUND"


# -- certificates out of their time, and too much of them

def test_out_of_its_time(authority):
    """N-15: a certificate that is over, as with a clock that is wrong: refused, and the text has both dates."""
    cert, key = authority.issue(days="-1")
    with Fiend(authority, (cert, key)) as s:
        e = refused(Place(s.port, authority.cert))
        out = subprocess.run(["openssl", "x509", "-in", cert, "-noout", "-dates", "-dateopt", "iso_8601"],
                             capture_output=True, text=True)
        for line in out.stdout.split() if out.returncode == 0 else ():
            if line.startswith("not"):
                assert line.partition("=")[2][:10] in e.text, (line, e.text)
        assert "expired" in e.text and "valid 20" in e.text and e.metadata["not_after"], e


def intermediates(authority, n):
    """(cert chain, key) of a leaf under so many authorities in a row."""
    folder, pems = authority.folder, []
    ca, ca_key = authority.cert, authority.key
    for i in range(n + 1):
        key, csr, cert, ext = (os.path.join(folder, "chain%d.%s" % (i, s)) for s in ("key", "csr", "pem", "ext"))
        with open(ext, "w", encoding="ascii") as f:
            f.write("basicConstraints=critical,CA:TRUE\n" if i < n else "subjectAltName=IP:127.0.0.1\n")
        _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=link %d" % i,
                 "-keyout", key, "-out", csr)
        _openssl("x509", "-req", "-in", csr, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "3", "-extfile", ext,
                 "-out", cert)
        with open(cert, encoding="ascii") as f:
            pems.insert(0, f.read())
        ca, ca_key = cert, key
    path = os.path.join(folder, "chain.pem")
    with open(path, "w", encoding="ascii") as f:
        f.write("".join(pems))
    return path, ca_key


def test_long_chain(authority):
    """N-17: five authorities in a row are believed, ten are not looked at."""
    assert works(authority, intermediates(authority, 5)).reason == "SANDBOX_NOT_FOUND"
    with Fiend(authority, intermediates(authority, 10)) as s:
        assert "chain too long" in refused(Place(s.port, authority.cert)).text


def test_huge_certificate(authority):
    """N-17: a certificate of 300 KB is not read."""
    san = ",".join("DNS:host-%d.fake.test" % i for i in range(14000)) + ",IP:127.0.0.1"
    with Fiend(authority, authority.issue(san=san)) as s:
        e = refused(Place(s.port, authority.cert), "UNREACHABLE")
        assert "certificate" in e.text or "message size" in e.text, e


# -- versions, ciphers, ALPN, early data

class SServer(harness.Program):
    """openssl s_server; its input stays open and says nothing."""

    def __init__(self, authority, *args):
        cert, key = authority.issue()
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        fifo = os.path.join(authority.folder, "input")
        os.mkfifo(fifo)
        super().__init__("s_server", ["sh", "-c", 'exec "$@" 0<>' + fifo, "sh", "openssl", "s_server", "-accept",
                                      "127.0.0.1:%d" % self.port, "-cert", cert, "-key", key] + list(args))
        self.wait_log("ACCEPT")


@pytest.mark.parametrize("args", [["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"],
                                  ["-tls1_2", "-cipher", "AES128-SHA@SECLEVEL=0"],
                                  ["-tls1_2", "-cipher", "AECDH-AES128-SHA@SECLEVEL=0"]])
def test_old_and_weak(authority, args):
    """N-18: TLS 1.1, ciphers without forward secrecy or without a certificate: no connection."""
    s = SServer(authority, *args)
    assert "TLS with" in refused(Place(s.port, authority.cert), "UNREACHABLE").text
    s.stop(code=None)


@pytest.mark.parametrize("alpn", [(), ("http/1.1",)])
def test_no_http2(alpn):
    """N-19: without ALPN, or with HTTP/1.1 only, it is HTTP/1.1, one exchange a connection at a time."""
    with FakeCloud(alpn=alpn) as cloud:
        d = harness.Daemon(cloud)
        with Api(d.socket) as api:
            box = api.call("SandboxService.Create").id
            assert api.run(box, "echo $((6*7))")[1] == b"42\n"
            for _ in range(10):
                api.call("FileService.Stat", sandbox=box, path="/tmp")
        assert {s.proto for s in cloud.ledger.requests} == {"http/1.1"}
        assert cloud.ledger.connections <= 4
        d.close()


class Tap:
    """A relay that keeps the first bytes that each client sent."""

    def __init__(self, port):
        self.heads, self.to = [], port
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                a, _ = self.sock.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(a,), daemon=True).start()

    def _relay(self, a):
        b = socket.create_connection(("127.0.0.1", self.to))
        first = a.recv(65536)
        self.heads.append(first)
        b.sendall(first)
        back = threading.Thread(target=self._copy, args=(b, a), daemon=True)
        back.start()
        self._copy(a, b)
        back.join()
        a.close()
        b.close()

    @staticmethod
    def _copy(x, y):
        try:
            while data := x.recv(65536):
                y.sendall(data)
            y.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def extensions(hello):
    """The numbers of a ClientHello's extensions."""
    at = 5 + 4 + 2 + 32
    at += 1 + hello[at]
    at += 2 + int.from_bytes(hello[at:at + 2], "big")
    at += 1 + hello[at]
    end = at + 2 + int.from_bytes(hello[at:at + 2], "big")
    at += 2
    found = []
    while at < end:
        found.append(int.from_bytes(hello[at:at + 2], "big"))
        at += 4 + int.from_bytes(hello[at + 2:at + 4], "big")
    return found


NGINX = """
daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/err; events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;
  uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  server {{
    listen 127.0.0.1:{port} ssl http2; ssl_certificate {cert}; ssl_certificate_key {key}; ssl_protocols TLSv1.3;
    ssl_early_data on; ssl_session_tickets on; keepalive_requests 1;
    location / {{ default_type application/json; return 404 '{{"code":404,"message":"no"}}'; }}
  }}
}}
"""


def test_no_early_data(authority, tmp_path):
    """N-21: the server (nginx) offers early data and sessions: sessions are resumed, nothing is sent early."""
    if not shutil.which("nginx"):
        pytest.skip("needs nginx")
    cert, key = authority.issue()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    (tmp_path / "conf").write_text(NGINX.format(dir=tmp_path, port=port, cert=cert, key=key))
    nginx = harness.Program("nginx", ["nginx", "-p", str(tmp_path), "-c", str(tmp_path / "conf"), "-e", str(tmp_path / "err")])

    def answers():
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0
    harness.until(answers, 10, "nginx", nginx)
    tap = Tap(port)
    d = harness.Daemon(Place(tap.port, authority.cert))
    with Api(d.socket) as api:
        for _ in range(5):
            with pytest.raises(ApiError) as e:
                api.call("SandboxService.Get", sandbox="i" + "0" * 20, timeout=10)
            assert e.value.reason == "SANDBOX_NOT_FOUND", e.value
    hellos = [extensions(h) for h in tap.heads]
    assert any(41 in h for h in hellos), hellos             # pre_shared_key: a session
    assert not any(42 in h for h in hellos), hellos         # early_data
    d.close()
    nginx.stop(code=None)
    tap.sock.close()


@pytest.mark.parametrize("route,again", [("get", True), ("create", True)])
def test_too_early(cloud, daemon, api, route, again):
    """N-21: 425 says that nothing was done: it is asked again."""
    box = api.call("SandboxService.Create").id
    before = cloud.ledger.count(route)
    cloud.fault(route, status=425)
    if route == "get":
        assert api.call("SandboxService.Get", sandbox=box, max_staleness=0).freshness.source == 1     # the cloud
    else:
        assert api.call("SandboxService.Create").id != box
    assert cloud.ledger.count(route) == before + 2


# -- certificates that change

def test_certificate_and_ca_are_replaced(cloud, tmp_path):
    """N-14, A19: the server's certificate changes, then its authority, then ca_file: what is new is believed from the next
    connection on; a file that is no certificate changes nothing and is logged."""
    ca = tmp_path / "bundle.pem"
    shutil.copy(cloud.ca, ca)
    d = harness.Daemon(cloud, conf={"account default": {"ca_file": str(ca)}})

    def fresh():
        cloud.goaway(0, last="max")
        cloud.ledger.wait(lambda: cloud.ledger.open_connections == 0)

    def no_tickets():
        cloud.tls.num_tickets = 0           # a session that is resumed shows no certificate
    cloud._soon(no_tickets)
    with Api(d.socket) as api:
        assert api.call("SandboxService.Create").id
        cloud.use_certificate(*cloud.authority.issue(name="second"))
        fresh()
        assert api.call("SandboxService.Create").id
        other = Authority(str(tmp_path / "other"), "another CA")
        cloud.use_certificate(*other.issue())
        fresh()
        with pytest.raises(ApiError) as e:
            api.call("SandboxService.Create", timeout=8)
        assert e.value.reason == "TLS_UNTRUSTED" and "another CA" in e.value.text and str(ca) in e.value.text, e.value
        ca.write_text("no certificate at all\n")
        with pytest.raises(ApiError) as e:
            api.call("SandboxService.Create", timeout=8)
        assert e.value.reason == "TLS_UNTRUSTED"
        d.wait_log("ca_unreadable")
        shutil.copy(other.cert, tmp_path / "new.pem")
        os.rename(tmp_path / "new.pem", ca)
        box = api.call("SandboxService.Create", timeout=20).id
        assert api.run(box, "echo $((6*7))")[1] == b"42\n"
        d.wait_log("ca_reread")
    assert d.log().count("ca_unreadable") == 1
    d.close()
