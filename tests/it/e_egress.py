# SPDX-License-Identifier: MIT
"""What leaves a sandbox of agentbox-local: only what its rules say, and never to the machine itself. In a network of the
test's own, in which everything that must not be reached is really there."""
import base64
import json
import os
import shutil
import socket
import subprocess

import pytest

import harness
import world as w
from conftest import built
from harness import until
from wire import Client
from wire_common import own  # noqa: F401

ALL = "0.0.0.0/0"
LIMITS = "x-agentbox-local-limits"
# What a sandbox is asked to do: a list of steps in, a list of outcomes out.
INSIDE = r"""
import errno, json, socket, ssl, struct, sys
def hello(name):
    i, o = ssl.MemoryBIO(), ssl.MemoryBIO()
    c = ssl.create_default_context().wrap_bio(i, o, server_hostname=name)
    try: c.do_handshake()
    except ssl.SSLWantReadError: return o.read()
def tcp(addr, port, say="x\n", sni=None, host=None, parts=1):
    data = hello(sni) if sni else b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode() if host else say.encode()
    s = socket.socket(); s.settimeout(20)
    s.connect((addr, port))
    n = max(len(data) // parts, 1)
    for i in range(0, len(data), n):
        s.sendall(data[i:i + n])
    got = b""
    while not got.endswith(b"\n") and len(got) < 100:
        more = s.recv(1)
        if not more: return "end"
        got += more
    s.close()
    return got.decode().strip()
def until_reset(addr, port, say):
    s = socket.create_connection((addr, port), 20)
    try:
        s.sendall(say.encode())
        while s.recv(65536): pass
    except ConnectionError: return True
    return False
def udp(addr, port, say):
    s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(0.3)
    s.connect((addr, port)); s.send(say.encode())
    return s.recv(100).decode("latin-1")
def name(n):
    return sorted({a[4][0] for a in socket.getaddrinfo(n, 80, socket.AF_INET, socket.SOCK_STREAM)})
def dns_tcp(addr, n):
    q = b"\1\2\1\0\0\1\0\0\0\0\0\0" + b"".join(bytes([len(x)]) + x.encode() for x in n.split(".")) + b"\0\0\1\0\1"
    s = socket.create_connection((addr, 53), 20); s.sendall(struct.pack(">H", len(q)) + q)
    return socket.inet_ntoa(s.recv(1000)[-4:])
for step in json.loads(sys.argv[1]):
    try: r = globals()[step[0]](*step[1], **step[2])
    except OSError as e: r = errno.errorcode.get(e.errno) or type(e).__name__
    print(json.dumps(r), flush=True)
"""


class Site(Client):
    """agentbox-local in a World."""

    def __init__(self, net, cloud):
        Client.__init__(self, cloud.plain_url, cloud.key)
        self.world, self.cloud = net, cloud

    def create(self, **body):
        return Client.create(self, timeout=300, **body)

    def inside(self, box, *steps, user="user"):
        steps = [[s[0], s[1:-1] if isinstance(s[-1], dict) else s[1:], s[-1] if isinstance(s[-1], dict) else {}]
                 for s in steps]
        _, out, err, end, _ = self.run(box, argv=["/usr/bin/python3", "-c", INSIDE, json.dumps(steps)], user=user)
        rows = [json.loads(line) for line in out.decode().splitlines()]
        assert len(rows) == len(steps), (rows, err, end)
        return rows

    def talks(self, box, address, port=80, **how):
        """Who answers a connection there, or the error."""
        return self.inside(box, ("tcp", address, port, how))[0]

    def start_tcp(self, box, address, port=7):
        """A connection that stays: a command that says what it hears, and then how it ended."""
        script = ("import socket\ns = socket.create_connection((%r, %d))\ns.sendall(b'hi')\n"
                  "try:\n while True:\n  d = s.recv(100)\n  print(d.decode() or 'end', flush=True)\n  if not d: break\n"
                  "except OSError as e: print(type(e).__name__, flush=True)\n" % (address, port))
        return self.start(box, argv=["/usr/bin/python3", "-c", script])

    def put(self, box, **body):
        return self.api("PUT", "/sandboxes/%s/network" % box["sandboxID"], body)


def said_by(stream, word):
    text = ""
    for m in stream:
        data = (m.get("event") or {}).get("data") or {}
        text += base64.b64decode(data.get("stdout") or "").decode()
        if word in text:
            return True
    raise AssertionError("%r is not in %r" % (word, text))


def make(uid=None, args=()):
    reason = w.lacks()
    if reason:
        pytest.skip(reason)
    built(harness.AGENTBOX_LOCAL)
    folder = harness.temp_dir("eg-")
    net = w.World()
    try:
        conf = os.path.join(folder, "resolv.conf")
        with open(conf, "w", encoding="ascii") as f:
            f.write("nameserver %s\noptions timeout:2 attempts:2\n" % w.DNS)
        os.chmod(folder, 0o755)
        os.chmod(conf, 0o644)
        wrap = ["unshare", "-m", "sh", "-c", 'mount --bind %s /etc/resolv.conf && exec "$@"' % conf, "sh"]
        net.serve_names()
        for a in (w.NEAR, w.FAR, w.THIRD, w.INNER, w.METADATA):
            net.serve(a, 80)
            net.serve(a, 443)
        net.serve(w.NEAR, 7)
        net.serve(w.NEAR, 22, banner=True)
        net.listen_udp(9)
        net.names.update({"near.test": [w.NEAR], "far.test": [w.FAR], "a.deep.test": [w.THIRD], "deep.test": [w.THIRD],
                          "self.test": [w.HOST], "meta.test": [w.METADATA], "loop.test": ["127.0.0.1"],
                          "inner.test": [w.INNER], "mixed.test": [w.METADATA, w.FAR]})
        cloud = harness.LocalCloud(tls=False, args=list(args) + ["--log-level", "debug"], uid=uid, wrap=wrap)
        net.leave()
        yield Site(net, cloud)
        cloud.close()
    finally:
        net.close()
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def module_site():
    yield from make()


@pytest.fixture(scope="module")
def user_site():
    yield from make(uid=61234)


def use(s):
    """For one test."""
    reason = s.cloud.lacks("internet")
    if reason:
        pytest.skip(reason)
    s.world.enter()
    yield s
    s.world.leave()
    assert s.cloud.running(), s.cloud.tail()


@pytest.fixture
def site(module_site):
    yield from use(module_site)


@pytest.fixture(params=["root", "user"])
def each(request):
    yield from use(request.getfixturevalue("module_site" if request.param == "root" else "user_site"))


def me(address, port=80):
    return "I am %s:%d" % (address, port)


def no(outcome):
    """No connection, or one that is reset at once: never an answer."""
    return outcome in ("ECONNRESET", "ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "EPIPE", "ECONNABORTED", "EACCES",
                       "EINVAL")


def test_open(each):
    """Nothing is listed: the world is there, by address and by name, whoever speaks first."""
    box = each.create()
    got = each.inside(box, ("tcp", w.NEAR, 80), ("tcp", w.FAR, 443, {"sni": "far.test"}), ("tcp", w.NEAR, 22, {"say": ""}),
                      ("name", "near.test"), ("tcp", "near.test", 80), ("name", "nobody.test"),
                      ("dns_tcp", "8.8.8.8", "far.test"), ("tcp", w.NEAR, 81))
    assert got[:5] == [me(w.NEAR), me(w.FAR, 443), me(w.NEAR, 22), [w.NEAR], me(w.NEAR)]
    assert got[5] in ("gaierror", "EAI_NONAME") and got[6] == w.FAR and no(got[7]), got
    each.kill(box)


def test_much(site):
    """More than any buffer, both ways at once, and each end of the stream by itself."""
    box = site.create()
    script = ("import socket, threading, hashlib\ns = socket.create_connection((%r, 7))\nn = 20 << 20\n"
              "def send():\n for i in range(n >> 16): s.sendall(bytes([i %% 251]) * 65536)\n s.shutdown(socket.SHUT_WR)\n"
              "t = threading.Thread(target=send); t.start()\nh, k = hashlib.sha256(), 0\n"
              "while True:\n d = s.recv(65536)\n if not d: break\n h.update(d); k += len(d)\n"
              "t.join()\nw = hashlib.sha256(b'I am %s:7\\n')\n"
              "for i in range(n >> 16): w.update(bytes([i %% 251]) * 65536)\n"
              "print(k - n, h.digest() == w.digest())\n" % (w.NEAR, w.NEAR))
    _, out, err, _, _ = site.run(box, argv=["/usr/bin/python3", "-c", script])
    assert out.split() == [b"%d" % len("I am %s:7\n" % w.NEAR), b"True"], (out, err)
    site.kill(box)


# allow, deny, allow_internet_access → of NEAR, FAR, NEAR as near.test, FAR as far.test: who may be talked to
RULES = [
    (None, None, True, "1111"),
    (None, None, False, "0000"),
    (None, [ALL], True, "0000"),
    (None, [w.FAR], True, "1010"),
    (None, ["12.0.0.0/8"], None, "1010"),
    ([w.NEAR], None, False, "1010"),
    ([w.NEAR + "/24"], [ALL], True, "1010"),
    ([w.NEAR], [w.NEAR], True, "1111"),
    (["near.test"], [ALL], True, "0010"),
    (["NEAR.Test"], [ALL], True, "0010"),
    (["*"], [ALL], True, "0011"),
    (["*.test"], [ALL], True, "0011"),
    (["*.near.test"], [ALL], True, "0000"),
    (["near.test", w.FAR], [ALL], True, "0111"),
    ([ALL], [ALL], True, "1111"),
    ([ALL], None, False, "1111"),
]


def reach(site, box):
    got = site.inside(box, ("tcp", w.NEAR, 80), ("tcp", w.FAR, 80), ("tcp", w.NEAR, 80, {"host": "near.test"}),
                      ("tcp", w.FAR, 443, {"sni": "far.test"}))
    want = [me(w.NEAR), me(w.FAR), me(w.NEAR), me(w.FAR, 443)]
    assert all(g == a or no(g) for g, a in zip(got, want)), got
    return "".join("1" if g == a else "0" for g, a in zip(got, want))


def network(allow, deny):
    return {k: v for k, v in (("allowOut", allow), ("denyOut", deny)) if v is not None}


def test_rules(site):
    """The same by PUT on one sandbox, and for some at the creation."""
    box = site.create()
    for allow, deny, internet, want in RULES:
        body = network(allow, deny)
        if internet is not None:
            body["allow_internet_access"] = internet
        r = site.put(box, **body)
        assert r.status == 204 and r.header(LIMITS) is None, (body, r)
        assert reach(site, box) == want, body
    site.kill(box)


@pytest.mark.parametrize("row", [1, 5, 8])
def test_rules_of_creation(each, row):
    allow, deny, internet, want = RULES[row]
    box = each.create(network=network(allow, deny), allow_internet_access=internet)
    assert reach(each, box) == want
    each.kill(box)


def test_put_reopens(site):
    """The block of allow_internet_access=false is not put back by a replacement that does not name it."""
    box = site.create(allow_internet_access=False)
    assert reach(site, box) == "0000" and site.talks(box, w.NEAR) == "ECONNREFUSED"
    assert site.put(box).status == 204
    assert reach(site, box) == "1111" and site.get(box).json()["allowInternetAccess"] is False
    assert site.put(box, allow_internet_access=False).status == 204 and reach(site, box) == "0000"
    site.kill(box)


def test_names(site):
    """A name that is allowed is no pass to another address, and what says no name has none."""
    box = site.create(network={"allowOut": ["far.test", "*.deep.test", "mixed.test"], "denyOut": [ALL]})
    got = site.inside(
        box, ("tcp", w.NEAR, 443, {"sni": "far.test"}), ("tcp", w.NEAR, 80, {"host": "far.test:80"}),
        ("tcp", w.NEAR, 443, {"sni": "FAR.TEST", "parts": 50}), ("tcp", w.NEAR, 80, {"host": "a.deep.test"}),
        ("tcp", w.NEAR, 80, {"host": "mixed.test"}))
    assert got == [me(w.FAR, 443), me(w.FAR), me(w.FAR, 443), me(w.THIRD), me(w.FAR)], got
    got = site.inside(
        box, ("tcp", w.NEAR, 80, {"host": "near.test"}), ("tcp", w.NEAR, 80, {"host": "deep.test"}),
        ("tcp", w.FAR, 80, {"say": "hello\r\n"}), ("tcp", w.NEAR, 80, {"host": w.NEAR}),
        ("tcp", w.FAR, 80, {"say": "GET / HTTP/1.1\r\nHost: far.test\r\nHost: near.test\r\n\r\n"}),
        ("tcp", w.FAR, 80, {"say": "GET / HTTP/1.1\r\n\r\n"}), ("tcp", w.FAR, 80, {"host": "nobody.test"}))
    assert all(no(g) for g in got), got
    site.kill(box)


def test_lookups(each):
    """The one name server inside answers if names are allowed, or its address is."""
    box = each.create(allow_internet_access=False)
    before = len(each.world.asked)
    got = each.inside(box, ("name", "near.test"), ("dns_tcp", "8.8.8.8", "near.test"))
    assert got[0] == "gaierror" and no(got[1]) and len(each.world.asked) == before, got
    for body in ({"allowOut": ["far.test"], "denyOut": [ALL]}, {"allowOut": ["8.8.8.8"], "denyOut": [ALL]}):
        assert each.put(box, **body).status == 204
        assert each.inside(box, ("name", "near.test"), ("dns_tcp", "8.8.8.8", "near.test")) == [[w.NEAR], w.NEAR]
    each.kill(box)


def test_replaced_at_once(site):
    """Connections that the new rules do not allow end; others go on."""
    box = site.create()
    stays, ends = site.start_tcp(box, w.NEAR), site.start_tcp(box, w.NEAR, 80)
    said_by(stays, me(w.NEAR, 7))
    said_by(ends, me(w.NEAR))
    far = site.start_tcp(box, w.FAR, 80)
    said_by(far, me(w.FAR))
    assert site.put(box, denyOut=[w.FAR]).status == 204
    assert said_by(far, "ConnectionResetError")
    assert site.put(box, allow_internet_access=False).status == 204
    assert said_by(stays, "ConnectionResetError") and said_by(ends, "ConnectionResetError")
    until(lambda: all(c["end"] == "reset" for c in site.world.seen[(w.FAR, 80)][-1:]), 10, "the far end's reset")
    site.kill(box)


# -- ways to where nobody may go

def test_never(each):
    """The machine, by each of its addresses; metadata services; inner networks; by address and by name, and with
    everything allowed. All of them are there, and would answer."""
    net = each.world
    port = int(each.cloud.plain_url.rpartition(":")[2])
    if (w.HOST, 8080) not in net.seen:
        net.serve(w.HOST, 8080, there=False)
    for a in (w.HOST, w.METADATA, w.INNER):     # they answer the machine itself
        with socket.create_connection((a, 8080 if a == w.HOST else 80), 10) as s:
            s.sendall(b"x")
            assert s.recv(100).startswith(b"I am")
    box = each.create(network={"allowOut": [ALL, "*"], "denyOut": [ALL]})
    steps = [("tcp", a, p) for a, p in (
        (w.HOST, 8080), (w.HOST, port), (w.METADATA, 80), (w.INNER, 80), ("11.0.0.255", 80), ("224.0.0.1", 80),
        ("255.255.255.255", 80), ("0.0.0.0", port), ("127.0.0.1", port), ("127.0.0.2", port), ("240.0.0.1", 80))]
    got = each.inside(box, *steps)
    assert all(no(g) for g in got), list(zip(steps, got))
    got = each.inside(box, *[("tcp", a, p) for a, p in (("127.0.0.1", 1009), ("192.0.2.2", 1009), ("192.0.2.2", 80))])
    assert all(no(g) for g in got), got
    assert each.put(box, allowOut=["*"], denyOut=[ALL]).status == 204
    names = [("tcp", w.FAR, 8080, {"host": "self.test"}), ("tcp", w.FAR, 80, {"host": "meta.test"}),
             ("tcp", w.FAR, port, {"host": "loop.test"}), ("tcp", w.FAR, 80, {"host": "inner.test"}),
             ("tcp", w.FAR, port, {"host": "localhost"}), ("tcp", w.FAR, port, {"sni": "localhost"})]
    got = each.inside(box, *names)
    assert all(no(g) for g in got), list(zip(names, got))
    each.kill(box)


def test_other_protocols(each):
    """No datagram, ICMP or raw packet leaves, and the sandbox is told so."""
    box = each.create()
    net = each.world
    del net.heard[:]
    got = each.inside(box, ("udp", w.NEAR, 9, "one"), ("udp", w.FAR, 9, "two"), ("udp", w.NEAR, 53, "three"))
    assert all(no(g) or g == "EPERM" for g in got), got
    script = r"""
import socket, struct
def try_(what, fn):
    try: print(what, fn())
    except OSError as e: print(what, e.strerror)
def packet():
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    udp = struct.pack(">HHHH", 99, 9, 11, 0) + b"raw"
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, socket.inet_aton("192.0.2.2"),
                     socket.inet_aton("%s"))
    return s.sendto(ip + udp, ("%s", 0))
def device():
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
    return s.sendto(struct.pack(">HHHH", 99, 9, 11, 0) + b"dev", ("%s", 0))
try_("raw", packet)
try_("device", device)
try_("link", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3))
try_("v6", lambda: socket.create_connection(("2001:4860:4860::8888", 53), 5))
""" % ((w.NEAR,) * 3)
    _, out, err, _, _ = each.run(box, argv=["/usr/bin/python3", "-c", script], user="root")
    assert b"link Address family not supported" in out and b"v6 Network is unreachable" in out, (out, err)
    # a datagram of our own shows that it would have been heard, and that nothing was before it
    with socket.socket(type=socket.SOCK_DGRAM) as s:
        s.sendto(b"mark", (w.NEAR, 9))
    until(lambda: (9, b"mark") in net.heard, 10, "the mark")
    assert net.heard == [(9, b"mark")]
    each.kill(box)


def test_rules_cannot_be_changed(each):
    """Neither rules nor routes nor addresses of its own network, as the sandbox's root."""
    box = each.create(allow_internet_access=False)
    script = r"""
import os, socket, struct
def ask(proto, *messages):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, proto)
    s.bind((0, 0)); s.settimeout(5)
    b = b"".join(struct.pack("=IHHII", 16 + len(body), kind, flags | 1, 7, 0) + body for kind, flags, body in messages)
    s.send(b)
    d = s.recv(65536)
    return struct.unpack_from("=i", d, 16)[0] if struct.unpack_from("=H", d, 4)[0] == 2 else "answered"
def nla(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)
sub = struct.pack("=BB", 0, 0) + struct.pack(">H", 10)
gen = lambda f: struct.pack("=BB", f, 0) + b"\0\0"
batch = lambda *m: ((16, 0, sub),) + m + ((17, 0, sub),)
print("table", ask(12, *batch((10 << 8 | 2, 4, gen(2) + nla(1, b"agentbox\0")))))
print("flush", ask(12, *batch((10 << 8 | 8, 4, gen(2) + nla(1, b"agentbox\0") + nla(2, b"rest\0")))))
print("conntrack", ask(12, (1 << 8 | 2, 4, gen(2))))
print("route", ask(0, (25, 4, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 3, 253, 1, 0) + nla(4, struct.pack("=I", 1)))))
print("newroute", ask(0, (24, 0x404, struct.pack("=BBBBBBBBI", 2, 8, 0, 0, 254, 3, 253, 2, 0) + nla(1, bytes([11, 0, 0, 0])) + nla(4, struct.pack("=I", 1)))))
print("address", ask(0, (20, 0x404, struct.pack("=BBBBI", 2, 32, 0, 0, 1) + nla(2, bytes([11, 0, 0, 9])))))
print("link", ask(0, (16, 0x404, struct.pack("=BBHiII", 0, 0, 0, 0, 0, 0) + nla(3, b"x0\0") + nla(18, nla(1, b"veth\0")))))
for p in ("/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/conf/all/route_localnet"):
    try:
        with open(p, "w") as f: f.write("1")
        print("sysctl written")
    except OSError as e: print("sysctl", -e.errno)
s = socket.socket()
for level, opt, value in ((1, 36, 5), (0, 19, 1)):    # SO_MARK, IP_TRANSPARENT
    try: s.setsockopt(level, opt, value); print("opt", 0)
    except OSError as e: print("opt", -e.errno)
"""
    _, out, err, _, _ = each.run(box, argv=["/usr/bin/python3", "-c", script], user="root")
    rows = [line.split() for line in out.decode().splitlines()]
    assert len(rows) == 11, (out, err)
    bad = [r for r in rows if r[0] != "opt" and (len(r) != 2 or r[1] not in ("-1", "-13", "-30", "-2"))]
    assert not bad, (bad, out)
    assert reach(each, box) == "0000"
    each.kill(box)


def test_nobody_else(site):
    """A sandbox does not reach another one's listener, nor hold the engine up."""
    a, b = site.create(), site.create(allow_internet_access=False)
    assert reach(site, a) == "1111" and reach(site, b) == "0000"
    site.kill(a)
    site.kill(b)


# -- through a proxy

USER = {"username": "me", "password": "s3cret"}


def via(where):
    return "via " + where


def proxy(site):
    """A SOCKS5 proxy in the world that wants a name and password, and one that wants none."""
    if "proxy.test" not in site.world.names:
        site.world.serve_socks(w.THIRD, 1080, "me", "s3cret")
        site.world.serve_socks(w.THIRD, 1081)
        site.world.serve_socks(w.INNER, 1081)
        site.world.names.update({"proxy.test": [w.THIRD], "inner-proxy.test": [w.INNER]})


def test_proxy(each):
    proxy(each)
    box = each.create(network={"egressProxy": dict(USER, address=w.THIRD + ":1080"), "denyOut": [w.FAR]})
    assert each.get(box).json()["network"]["egressProxy"] == {"address": w.THIRD + ":1080", "username": "me"}
    assert "s3cret" not in each.get(box).body.decode()
    got = each.inside(box, ("tcp", w.NEAR, 80), ("tcp", w.NEAR, 443, {"sni": "far.test"}), ("name", "near.test"),
                      ("tcp", w.FAR, 80), ("tcp", w.INNER, 80), ("tcp", w.METADATA, 80), ("tcp", w.HOST, 80))
    assert got[:3] == [via(w.NEAR + ":80"), via(w.NEAR + ":443"), [w.NEAR]], got
    assert all(no(g) for g in got[3:]), got
    each.kill(box)


def test_proxy_by_name(site):
    """Its own name is looked up here; names of connections that are allowed by them are the proxy's to look up."""
    proxy(site)
    box = site.create(network={"egressProxy": {"address": "proxy.test:1081"}, "allowOut": ["far.test", "*.only.proxy"],
                               "denyOut": [ALL]})
    got = site.inside(box, ("tcp", w.NEAR, 443, {"sni": "far.test"}), ("tcp", w.NEAR, 80, {"host": "a.only.proxy"}),
                      ("tcp", w.NEAR, 80, {"host": "near.test"}), ("tcp", w.NEAR, 80))
    assert got[:2] == [via("far.test:443"), via("a.only.proxy:80")] and no(got[2]) and no(got[3]), got
    for bad in ({"address": "inner-proxy.test:1081"}, {"address": "nobody.test:1081"}, {"address": w.THIRD + ":1082"},
                {"address": w.THIRD + ":1080"}, {"address": w.THIRD + ":1080", "username": "me", "password": "no"},
                {"address": w.NEAR + ":22"}):
        assert site.put(box, egressProxy=bad).status == 204
        assert no(site.talks(box, w.NEAR)), bad
    assert site.put(box, egressProxy=None).status == 204 and site.talks(box, w.NEAR) == me(w.NEAR)
    site.kill(box)


def test_proxy_replaced(site):
    """What goes through another proxy than it should ends; a sandbox from its files has the proxy still."""
    proxy(site)
    box = site.create(network={"egressProxy": dict(USER, address=w.THIRD + ":1080")})
    s = site.start_tcp(box, w.NEAR)
    said_by(s, via(w.NEAR + ":7"))
    assert site.put(box, egressProxy=dict(USER, address=w.THIRD + ":1080"), denyOut=[w.FAR]).status == 204
    assert site.put(box, egressProxy={"address": w.THIRD + ":1081"}).status == 204
    said_by(s, "ConnectionResetError")
    assert site.put(box, egressProxy=dict(USER, address=w.THIRD + ":1080")).status == 204
    assert site.api("POST", "/sandboxes/%s/pause" % box["sandboxID"], {"memory": False}).status == 204
    assert site.api("POST", "/sandboxes/%s/connect" % box["sandboxID"], {"timeout": 60}).status == 201
    assert site.talks(box, w.NEAR) == via(w.NEAR + ":80")
    site.kill(box)


# -- headers that rules set

def headers(**by_domain):
    return {d.replace("_", "."): [{"transform": {"headers": h}}] for d, h in by_domain.items()}


def heard(site, address, port=80):
    return site.world.seen[(address, port)][-1]["said"].decode().lower()


REQUEST = "GET /%d HTTP/1.1\r\nHost: %s\r\nX-Old: old\r\n\r\n"


def test_headers(each):
    """Set in plain requests, which go to the host's own address; where nothing can be set nothing goes."""
    rules = headers(far_test={"Authorization": "Bearer secret", "x-old": "new"}, a_deep_test={"x-deep": "1"})
    r = each.api("POST", "/sandboxes", {"templateID": "base", "timeout": 300, "network": {"rules": rules}})
    assert r.status == 201 and "no-tls-rules" in r.header(LIMITS), r
    box = r.json()
    assert each.get(box).json()["network"]["rules"] == rules
    got = each.inside(box, ("tcp", w.NEAR, 80, {"say": REQUEST % (1, "Far.test:80") + REQUEST % (2, "far.test")}))
    said = heard(each, w.FAR)
    assert got == [me(w.FAR)] and said.count("authorization: bearer secret\r\n") == 2, (got, said)
    assert said.count("x-old: new") == 2 and "x-old: old" not in said and "get /2 " in said
    got = each.inside(box, ("tcp", w.NEAR, 80, {"say": REQUEST % (3, "a.deep.test")}))
    assert got == [me(w.THIRD)] and "x-deep: 1" in heard(each, w.THIRD)
    got = each.inside(box, ("tcp", w.NEAR, 80, {"say": REQUEST % (4, "near.test")}))
    assert got == [me(w.NEAR)] and "x-old: old" in heard(each, w.NEAR) and "secret" not in heard(each, w.NEAR)
    got = each.inside(
        box, ("tcp", w.NEAR, 22, {"say": ""}), ("tcp", w.NEAR, 443, {"sni": "near.test"}), ("tcp", w.NEAR, 80),
        ("tcp", w.FAR, 443, {"sni": "far.test"}), ("tcp", w.NEAR, 443, {"sni": "far.test"}),
        ("tcp", w.NEAR, 80, {"say": REQUEST % (5, "near.test") + REQUEST % (6, "far.test")}))
    assert got[:3] == [me(w.NEAR, 22), me(w.NEAR, 443), me(w.NEAR)], got
    assert no(got[3]) and no(got[4]), got
    assert "secret" not in heard(each, w.NEAR)
    assert each.put(box).status == 204
    got = each.inside(box, ("tcp", w.FAR, 80, {"host": "far.test"}), ("tcp", w.FAR, 443, {"sni": "far.test"}))
    assert got == [me(w.FAR), me(w.FAR, 443)] and "secret" not in heard(each, w.FAR)
    each.kill(box)


def test_headers_give_no_way(site):
    """A host that has rules is not thereby allowed: not by its name, and not at an address that is denied."""
    rules = headers(far_test={"x-set": "1"}, meta_test={"x-set": "1"}, self_test={"x-set": "1"})
    box = site.create(network={"rules": rules, "denyOut": [w.FAR]})
    got = site.inside(box, ("tcp", w.NEAR, 80, {"host": "far.test"}), ("tcp", w.FAR, 80, {"host": "far.test"}),
                      ("tcp", w.NEAR, 80, {"host": "meta.test"}), ("tcp", w.NEAR, 80, {"host": "self.test"}))
    assert all(no(g) for g in got), got
    assert site.put(box, rules=rules, denyOut=[ALL], allowOut=["near.test"]).status == 204
    got = site.inside(box, ("tcp", w.NEAR, 80, {"host": "far.test"}), ("tcp", w.NEAR, 80, {"host": "near.test"}))
    assert no(got[0]) and got[1] == me(w.NEAR), got
    assert site.put(box, rules=rules, denyOut=[ALL], allowOut=["far.test"]).status == 204
    assert site.talks(box, w.NEAR, host="far.test") == me(w.FAR) and "x-set: 1" in heard(site, w.FAR)
    site.kill(box)


def test_headers_of_large_requests(site):
    """Bodies with a length and in chunks, larger than any buffer, arrive whole."""
    box = site.create(network={"rules": headers(near_test={"x-set": "1"})})
    script = ("import socket, threading\nN = 3 << 20\n"
              "head = b'POST /a HTTP/1.1\\r\\nHost: near.test\\r\\nContent-Length: %%d\\r\\n\\r\\n' %% N\n"
              "head2 = b'POST /b HTTP/1.1\\r\\nHost: near.test\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n'\n"
              "s = socket.create_connection((%r, 7))\n"
              "def send():\n s.sendall(head + b'a' * N + head2)\n"
              " for i in range(48): s.sendall(b'10000\\r\\n' + b'b' * 65536 + b'\\r\\n')\n"
              " s.sendall(b'0\\r\\n\\r\\n'); s.shutdown(socket.SHUT_WR)\n"
              "t = threading.Thread(target=send); t.start()\nout = []\n"
              "while True:\n d = s.recv(65536)\n if not d: break\n out.append(d)\n"
              "t.join()\nall = b''.join(out)\n"
              "i = all.index(b'POST /b')\n"
              "print(all[:i].count(b'a' * 64) * 64 == N, all[i:].count(b'b') > N - 9, all.count(b'X-Set: 1'), all[-5:])\n"
              % w.NEAR)
    _, out, err, _, _ = site.run(box, argv=["/usr/bin/python3", "-c", script])
    assert out.split() == [b"True", b"True", b"2", b"b'0\\r\\n\\r\\n'"], (out, err)
    site.kill(box)


def test_headers_of_no_end(site):
    """A line longer than what is read ahead is an end, not a wait."""
    box = site.create(network={"rules": headers(near_test={"x-set": "1"})})
    # the head that names the host comes first
    say = "GET / HTTP/1.1\r\nHost: near.test\r\n\r\nGET / HTTP/1.1\r\nX: " + "x" * 50000
    got = site.inside(box, ("tcp", w.NEAR, 80, {"say": say}), ("until_reset", w.NEAR, 80, say))
    assert got[1] is True, got
    site.kill(box)


def test_headers_through_a_proxy(site):
    proxy(site)
    box = site.create(network={"rules": headers(far_test={"x-set": "1"}), "egressProxy": {"address": w.THIRD + ":1081"}})
    got = site.inside(box, ("tcp", w.NEAR, 80, {"host": "far.test"}), ("tcp", w.NEAR, 80, {"host": "near.test"}))
    assert got == [via("far.test:80"), via(w.NEAR + ":80")], got
    site.kill(box)


# -- lives

def test_ends_with_the_sandbox(site):
    box = site.create()
    s = site.start_tcp(box, w.NEAR)
    said_by(s, me(w.NEAR, 7))
    entry = site.world.seen[(w.NEAR, 7)][-1]
    assert entry["end"] is None
    site.kill(box)
    until(lambda: entry["end"] == "reset", 10, "the reset")


@pytest.mark.parametrize("memory", [True, False])
def test_pause(site, memory):
    """A pause ends its connections; after it new ones go by the rules of before."""
    box = site.create(network={"denyOut": [w.FAR]})
    s = site.start_tcp(box, w.NEAR)
    said_by(s, me(w.NEAR, 7))
    entry = site.world.seen[(w.NEAR, 7)][-1]
    assert site.api("POST", "/sandboxes/%s/pause" % box["sandboxID"], {"memory": memory}).status == 204
    until(lambda: entry["end"] == "reset", 10, "the reset")
    r = site.api("POST", "/sandboxes/%s/connect" % box["sandboxID"], {"timeout": 60})
    assert r.status in (200, 201), r
    assert reach(site, box) == "1010"
    site.kill(box)


def test_forks_inherit(site):
    box = site.create(network={"denyOut": [w.FAR]}, allow_internet_access=True)
    r = site.api("POST", "/sandboxes/%s/fork" % box["sandboxID"], {"count": 1})
    assert r.status == 201, r
    child = r.json()[0]["sandbox"]
    assert reach(site, child) == "1010"
    site.kill(box)
    site.kill(child)


def test_many(site):
    """Beyond its number of connections a sandbox's are reset; with fewer there is room again."""
    box = site.create()
    script = ("import socket\nheld, lost, n = [], 0, 0\n"
              "def one():\n try:\n  s = socket.create_connection((%r, 22), 20)\n  return s if s.recv(10) else None\n"
              " except ConnectionError: return None\n"
              "for i in range(300):\n s = one()\n if s: held.append(s)\n else: lost += 1\n"
              "print(len(held), lost)\n"
              "for s in held[:100]: s.close()\n"
              "while n < 50: n += one() is not None\n"
              "print(n)\n" % w.NEAR)
    _, out, err, _, _ = site.run(box, argv=["/usr/bin/python3", "-c", script])
    assert out.split() == [b"256", b"44", b"50"], (out, err)
    site.kill(box)
    other = site.create()
    assert reach(site, other) == "1111"
    site.kill(other)


def test_inner_by_option():
    """--egress-to opens an inner network, and never the machine itself or a metadata service."""
    g = make(args=("--egress-to", "10.0.0.0/8", "--egress-to", "169.254.0.0/16", "--egress-to", w.HOST))
    for s in use(next(g)):
        box = s.create()
        got = s.inside(box, ("tcp", w.INNER, 80), ("tcp", w.METADATA, 80), ("tcp", w.HOST, 80), ("tcp", w.NEAR, 80))
        assert got[0] == me(w.INNER) and no(got[1]) and no(got[2]) and got[3] == me(w.NEAR), got
    for _ in g:
        pass


# A program that runs another one on a kernel without nf_tables, as far as that can see.
NO_NFTABLES = r"""
import ctypes, os, struct, sys
deny = 0x50000 | 93                                         # EPROTONOSUPPORT
ops = [(0x20, 0, 0, 0), (0x15, 0, 5, {"x86_64": 41, "aarch64": 198}[os.uname().machine]),
       (0x20, 0, 0, 16), (0x15, 0, 3, 16), (0x20, 0, 0, 32), (0x15, 0, 1, 12),      # AF_NETLINK, NETLINK_NETFILTER
       (0x06, 0, 0, deny), (0x06, 0, 0, 0x7fff0000)]
filter = b"".join(struct.pack("=HBBI", *o) for o in ops)
class Prog(ctypes.Structure): _fields_ = [("n", ctypes.c_ushort), ("ops", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(Prog(len(ops), filter)), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_kernel_without_nf_tables(own):
    """Found out at the start, said, and sandboxes are made without a way out."""
    wrap = ["/usr/bin/python3", "-c", NO_NFTABLES]
    out = subprocess.run(wrap + [harness.AGENTBOX_LOCAL, "--capabilities"], capture_output=True, text=True, timeout=60)
    caps = {c["name"]: c for c in json.loads(out.stdout)["capabilities"]}
    assert not caps["internet"]["available"] and "nf_tables" in caps["internet"]["text"], caps["internet"]
    assert not caps["header-rules"]["available"] and caps["sandboxes"]["available"]
    c, _ = own(wrap=wrap)
    without_a_way_out(c)


def test_where_there_is_none(own):
    """Without a way out nothing is pretended: lists that would need one are refused by name, the rest says so."""
    without_a_way_out(own("--no-egress")[0])


def without_a_way_out(c):
    r = c.api("POST", "/sandboxes", {"templateID": "base", "network": {"allowOut": ["1.1.1.1"]}})
    assert r.status == 400 and "network.allowOut" in r.json()["message"], r
    r = c.api("POST", "/sandboxes", {"templateID": "base", "network": {"egressProxy": {"address": "proxy.test:1080"}}})
    assert r.status == 403 and "egressProxy" in r.json()["message"], r
    r = c.api("POST", "/sandboxes", {"templateID": "base", "network": {"denyOut": ["1.1.1.1"]}})
    assert r.status == 201 and "no-internet" in r.header(LIMITS), r
    box = r.json()
    _, out, _, _, _ = c.run(box, argv=["/usr/bin/python3", "-c", "import socket\ntry: socket.create_connection"
                                       "(('11.0.0.2', 80), 5)\nexcept OSError as e: print(e)"])
    assert b"unreachable" in out
    c.kill(box)
