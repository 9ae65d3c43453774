# SPDX-License-Identifier: MIT
"""The gateway over a restart by the manager's store of descriptors (P-09), and what of a store is not believed (P-10), with a manager of
the test's own. With systemd itself: y_systemd.py."""
import array
import collections
import contextlib
import errno
import http.client
import os
import re
import socket
import subprocess
import threading
import time

import pytest

import harness
from harness import until
from w_door import new_token, root_only, runs, runtime      # noqa: F401 (fixtures)
from y_manager import PASS

PORT, IDLE = "gateway-port", "gateway-idle"


class Store:
    """A manager that keeps descriptors as systemd does: by name, each socket once, and the names are removed as a whole."""

    def __init__(self, keeps=True):
        self.folder, self.keeps = harness.temp_dir("abk-"), keeps
        self.path = os.path.join(self.folder, "notify")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(self.path)
        self.kept, self.seen, self.news = [], [], threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while True:
            text, control, _, _ = self.sock.recvmsg(4096, socket.CMSG_SPACE(253 * 4), socket.MSG_CMSG_CLOEXEC)
            fds = array.array("i")
            for _, _, data in control:
                fds.frombytes(data)
            if text == b"END":
                return
            with self.news:
                self.take(dict(line.split("=", 1) for line in text.decode().split("\n")), list(fds))
                self.seen.append(text.decode())
                self.news.notify_all()

    def take(self, said, fds):
        name = said.get("FDNAME")
        if "FDSTOREREMOVE" in said:
            for f in [f for n, f in self.kept if n == name]:
                os.close(f)
            self.kept = [(n, f) for n, f in self.kept if n != name]
        for f in fds:
            if self.keeps and "FDSTORE" in said and not any(os.path.sameopenfile(f, k) and same(f, k) for _, k in self.kept):
                self.kept.append((name, f))
            else:
                os.close(f)

    def of(self, name):
        with self.news:
            return [f for n, f in self.kept if n == name]

    def wait(self, condition, what, timeout=20):
        with self.news:
            assert self.news.wait_for(condition, timeout), (what, self.seen)

    def wait_kept(self, n, name=IDLE):
        """What a daemon that has ended sent may not have been read yet."""
        self.wait(lambda: len(self.of(name)) == n, "%d of %s" % (n, name))

    def said(self, text):
        with self.news:
            return self.seen.count(text)

    def put(self, name, what):
        """Into the store, as if it were from before; `what` may be closed after it."""
        with self.news:
            self.kept.append((name, os.dup(what if isinstance(what, int) else what.fileno())))

    def start(self, cloud, wait=True, **kw):
        with self.news:
            kept, n = list(self.kept), self.seen.count("READY=1")
        fds = [f for _, f in kept]
        env = {"NOTIFY_SOCKET": self.path, "LISTEN_FDS": str(len(fds)), "LISTEN_FDNAMES": ":".join(name for name, _ in kept),
               "HOME": self.folder, "XDG_RUNTIME_DIR": self.folder}
        d = harness.Daemon(cloud, env=env, pass_fds=fds, wait=False,
                           wrap=["/bin/bash", "-c", PASS, ",".join(map(str, fds))], **kw)
        try:
            if wait:
                self.wait(lambda: self.seen.count("READY=1") > n or not d.running(), "READY=1")
                assert d.running(), d.log()
        except BaseException:
            d.proc.kill()
            d.proc.wait()
            raise
        return d

    def close(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.connect(self.path)
            s.send(b"END")
        self.reader.join()
        self.sock.close()
        for _, f in self.kept:
            os.close(f)


def same(a, b):
    return os.fstat(a).st_ino == os.fstat(b).st_ino


@pytest.fixture
def store(runs):
    with contextlib.closing(Store()) as s:
        yield s


@pytest.fixture
def home(runs):
    return harness.temp_dir("abk-")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Kept(http.client.HTTPConnection):
    """A client that keeps its connection: another one would be a fault."""

    def __init__(self, port, path=None):
        super().__init__("localhost", port, timeout=30)
        self.sock = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
        self.sock.settimeout(30)
        self.sock.connect(path or ("127.0.0.1", port))
        self.auto_open = 0

    def ask(self, token, path="/v2/sandboxes"):
        self.request("GET", path, headers={"X-API-Key": token})
        return self.status()

    def status(self):
        r = self.getresponse()
        r.read()
        return r.status, r.getheader("Connection")


def gateway(port, **more):
    return {"gateway": dict({"listen": "localhost:%d" % port}, **more)}


def is_taken(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError as e:
            return e.errno == errno.EADDRINUSE
    return False


def test_idle_connections_go_on(cloud, store, home):
    """P-09: over a stop, connections that are idle go on at the next daemon, by TCP and by Unix; what is sent while no daemon is there waits,
    and so does who connects then. Only the store has the port meanwhile. After the start it has no connection any more, so that one that
    ends here ends for its client."""
    port, unix = free_port(), os.path.join(home, "g")
    conf = gateway(port, socket=unix)
    d = store.start(cloud, conf=conf, folder=home)
    token = new_token(d)
    clients = [Kept(port), Kept(port), Kept(port, unix), Kept(port)]
    assert [c.ask(token)[0] for c in clients[:3]] == [200] * 3      # the last one has said nothing yet
    d.stop()
    assert "gateway_handed_over connections=4" in d.log()
    store.wait_kept(4)
    assert is_taken(port)
    clients[0].request("GET", "/v2/sandboxes", headers={"X-API-Key": token})
    late = Kept(port)
    late.request("GET", "/v2/sandboxes", headers={"X-API-Key": token})
    d = store.start(cloud, conf=conf, folder=home)
    with contextlib.closing(d):
        assert clients[0].status() == (200, None) and late.status() == (200, None)
        assert [c.ask(token) for c in clients] == [(200, None)] * 4
        assert 'gateway_taken_over connections=4 closed=0 why=""' in d.log()
        assert not store.of(IDLE) and len(store.of(PORT)) == store_ports()
        clients[1].request("GET", "/v2/sandboxes", headers={"X-API-Key": token, "Connection": "close"})
        assert clients[1].status()[0] == 200


def store_ports():
    """localhost is of two families where the machine has both."""
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
        return 2
    except OSError:
        return 1


def test_it_goes_on_for_many_and_again(cloud, store, home):
    """More than one message of descriptors, over three restarts; the store's listeners are stored once."""
    port = free_port()
    d = store.start(cloud, conf=gateway(port), folder=home)
    token = new_token(d)
    clients = [Kept(port) for _ in range(300)]
    for _ in range(3):
        assert all(c.ask(token)[0] == 200 for c in clients)
        d.stop()
        store.wait_kept(300)
        d = store.start(cloud, conf=gateway(port), folder=home)
        assert "gateway_taken_over connections=300 closed=0" in d.log()
    with contextlib.closing(d):
        assert all(c.ask(token)[0] == 200 for c in clients)
        assert store.said("FDSTORE=1\nFDNAME=" + PORT) == 1 and store.said("FDSTORE=1\nFDNAME=" + IDLE) == 9
        assert not store.said("FDSTOREREMOVE=1\nFDNAME=" + PORT)
        for c in clients:
            c.close()


def test_the_port_after_a_crash(cloud, store, home):
    """P-09: after kill -9 the kept port of a user daemon is nobody else's, and callers wait for the next daemon."""
    d = store.start(cloud, folder=home)
    token = new_token(d)
    with open(os.path.join(d.state_dir, "gateway-port"), encoding="ascii") as f:
        port = int(f.read())
    d.kill9()
    assert is_taken(port)
    late = Kept(port)
    late.request("GET", "/v2/sandboxes", headers={"X-API-Key": token})
    with contextlib.closing(store.start(cloud, folder=home)):
        assert late.status()[0] == 200


def test_what_is_not_idle_does_not_go(cloud, store, home):
    """A head that has begun, a forwarded connection, a call whose answer is under way: they end as without a store, the call with an answer."""
    port = free_port()
    d = store.start(cloud, conf=gateway(port), folder=home)
    token = new_token(d)
    c = Kept(port)
    c.request("POST", "/sandboxes", b'{"templateID":"base"}', {"X-API-Key": token, "Content-Type": "application/json"})
    r = c.getresponse()
    assert r.status == 201
    box = re.search(rb'"sandboxID":"(\w+)"', r.read()).group(1).decode()
    half, busy, forwarded = Kept(port), Kept(port), Kept(port)
    half.sock.sendall(b"GET /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\n")
    forwarded.sock.sendall(("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: agentboxd-forward\r\n"
                            "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 8080\r\nAgentboxd-Token: %s\r\n\r\n" % (box, token)).encode())
    assert b" 101 " in forwarded.sock.recv(4096)
    gate = cloud.fault("create", hold=True).hold
    busy.request("POST", "/sandboxes", b'{"templateID":"base"}', {"X-API-Key": token, "Content-Type": "application/json"})
    gate.wait()
    d.stop()
    gate.release()
    assert busy.status() == (503, "close")
    assert "gateway_handed_over connections=1" in d.log()
    store.wait_kept(1)
    for gone in (half, forwarded):
        with contextlib.suppress(ConnectionResetError):
            while gone.sock.recv(4096):
                pass
    with contextlib.closing(store.start(cloud, conf=gateway(port), folder=home)):
        assert c.ask(token)[0] == 200


@pytest.mark.parametrize("keeps", [True, False])
def test_without_room_in_the_store(cloud, home, keeps):
    """A manager that keeps nothing (FileDescriptorStoreMax=0) closes what it gets: clients see the end that they see without a manager, and the
    next daemon binds the port."""
    port = free_port()
    with contextlib.closing(Store(keeps=False)) as s:
        for i in range(2):
            d = s.start(cloud, conf=gateway(port), folder=home) if keeps else harness.Daemon(cloud, conf=gateway(port), folder=home)
            until(lambda: d.log().count(" ready ") == i + 1, 20, "the start", d)
            c = Kept(port)
            assert c.ask("none")[0] == 401
            d.stop()
            assert c.sock.recv(1) == b"" and not is_taken(port)


HOLDER = """
import http.client, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=30)
for line in sys.stdin:
    c.request("GET", "/v2/sandboxes", headers={"X-API-Key": line.strip()})
    c.auto_open = 0
    r = c.getresponse()
    r.read()
    print(r.status, flush=True)
"""


@root_only
def test_whose_it_is_is_asked_again(cloud, store, home):
    """The successor asks the kernel for the other end's uid: another user's token is refused there, too."""
    port = free_port()
    d = store.start(cloud, conf=gateway(port), folder=home)
    token = new_token(d)
    p = subprocess.Popen(harness.as_user(12345, ["/usr/bin/python3", "-c", HOLDER, str(port)]), stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)

    def ask(what):
        p.stdin.write(what + "\n")
        p.stdin.flush()
        return p.stdout.readline().strip()

    try:
        assert ask("none") == "401" and ask(token) == "401"
        d.stop()
        store.wait_kept(1)
        d = store.start(cloud, conf=gateway(port), folder=home)
        assert "connections=1 closed=0" in d.log()
        assert ask(token) == "401" and "gateway_refused why=uid" in d.log()
    finally:
        p.stdin.close()
        p.wait(20)
        d.close()


def connected(port, host="127.0.0.1"):
    s = socket.socket()
    s.settimeout(30)
    s.connect((host, port))
    return s


def pair_to(port_of_listener):
    """Both ends of a connection to somebody else's listener."""
    c = connected(port_of_listener.getsockname()[1])
    return c, port_of_listener.accept()[0]


def listener(port=0):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", port))
    s.listen(8)
    return s


def test_a_store_with_anything_in_it(cloud, store, home):
    """P-10: descriptors of every wrong kind by the names of good ones, duplicates, stale ones, strangers: each is closed and removed, the good
    ones go on, and a line says how many."""
    port = free_port()
    d = store.start(cloud, conf=gateway(port), folder=home)
    token = new_token(d)
    good, gone = Kept(port), Kept(port)
    assert good.ask(token)[0] == gone.ask(token)[0] == 200
    d.stop()
    store.wait_kept(2)
    good_fd = [f for f in store.of(IDLE) if peer_port(f) == good.sock.getsockname()[1]][0]
    gone.close()
    other, udp = listener(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", port))
    theirs, ours = pair_to(other)
    one, two = socket.socketpair()
    r, w = os.pipe()
    bad = [other, udp, ours, one, r, socket.socket()]
    for what in bad:
        store.put(IDLE, what)
    store.put(IDLE, good_fd)                    # the same once more
    for what in (other, udp, ours, r):
        store.put(PORT, what)
    store.put(PORT, store.of(PORT)[0])
    store.put("a-stranger", one)
    store.put("a-stranger", r)
    d = store.start(cloud, conf=gateway(port), folder=home)
    with contextlib.closing(d):
        assert good.ask(token) == (200, None)
        log = d.log()
        assert "gateway_taken_over connections=1 closed=%d why=" % (len(bad) + 2) in log
        assert "kept_port_stale name=gateway-port descriptors=5 action=closed" in log
        assert 'passed_descriptor_unknown name="a-stranger" action=closed descriptors=2' in log
        assert collections.Counter(n for n, _ in store.kept) == {PORT: store_ports()}
        fresh = Kept(port)
        assert fresh.ask(token)[0] == 200
        for left in bad[:3] + [one, two, theirs, udp]:
            getattr(left, "close")()
        os.close(r)
        os.close(w)
        d.stop()
    store.wait_kept(2)      # and the one that was made meanwhile
    assert is_taken(port)


def peer_port(fd):
    with socket.socket(fileno=os.dup(fd)) as s:
        return s.getpeername()[1]


def test_a_listener_that_is_not_configured_any_more(cloud, store, home):
    """P-10: another port is configured: the old one is let go, and the connections to it end; TLS there now: the same."""
    first, second = free_port(), free_port()
    d = store.start(cloud, conf=gateway(first), folder=home)
    token = new_token(d)
    c = Kept(first)
    assert c.ask(token)[0] == 200
    d.stop()
    store.wait_kept(1)
    d = store.start(cloud, conf=gateway(second), folder=home)
    with contextlib.closing(d):
        assert 'connections=0 closed=1 why="nothing listens at its address without TLS"' in d.log()
        assert "kept_port_stale" in d.log() and c.sock.recv(1) == b""
        until(lambda: not is_taken(first), 10, "the port that was let go")
        assert is_taken(second) and Kept(second).ask(token)[0] == 200
        d.stop()
    d = store.start(cloud, conf=gateway(first, listen="none"), folder=home)
    with contextlib.closing(d):
        assert not store.kept and not is_taken(second)


def test_too_many(cloud, store, home):
    """P-10: no more connections than the gateway may have are taken, and none of a listener's place in the store is lost."""
    port = free_port()
    d = store.start(cloud, conf=gateway(port), folder=home)
    token = new_token(d)
    clients = [Kept(port) for _ in range(20)]
    assert all(c.ask(token)[0] == 200 for c in clients)
    d.stop()
    store.wait_kept(20)
    for _ in range(40):
        with contextlib.closing(listener()) as s:
            store.put(PORT, s)
    d = store.start(cloud, conf=gateway(port, max_connections="16"), folder=home)
    with contextlib.closing(d):
        assert 'gateway_taken_over connections=16 closed=4 why="there are too many connections"' in d.log()
        assert "kept_port_stale name=gateway-port descriptors=40" in d.log()
        assert len(store.of(PORT)) == store_ports()
        left = 0
        for c in clients:
            with contextlib.suppress(OSError, http.client.HTTPException):
                left += c.ask(token)[0] == 200
        assert left == 16


def test_a_manager_that_does_not_read(cloud, home):
    """A stop does not wait for a manager: after a moment the connections end as without one."""
    folder = harness.temp_dir("abk-")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(folder + "/notify")
    port = free_port()
    d = harness.Daemon(cloud, conf=gateway(port), folder=home, env={"NOTIFY_SOCKET": folder + "/notify"})
    with contextlib.closing(d), contextlib.closing(sock):
        d.wait_log(" ready ")
        clients = [Kept(port) for _ in range(3)]
        assert all(c.ask("none")[0] == 401 for c in clients)
        flood = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        flood.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                flood.sendto(b"X=1", folder + "/notify")
        flood.close()
        begun = time.monotonic()
        d.stop()
        assert time.monotonic() - begun < 5 and "gateway_handed_over" not in d.log()
        assert all(c.sock.recv(1) == b"" for c in clients)
