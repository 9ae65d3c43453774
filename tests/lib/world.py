# SPDX-License-Identifier: MIT
"""A network of a test's own, as root: between enter() and leave() this thread and the programs it starts are in one network
namespace, and an "internet" of servers is in another, at the far end of a line. Nothing of the machine's network is touched.

    here   11.0.0.1                 the machine that agentbox-local runs on; everything else is routed to
    there  11.0.0.2 … and whatever  the world: every address of ADDRESSES, among them some that nobody may reach
"""
import ctypes
import os
import shutil
import socket
import struct
import subprocess
import threading

HOST = "11.0.0.1"
NEAR, FAR, THIRD, DNS = "11.0.0.2", "12.0.0.2", "13.0.0.2", "14.0.0.53"
INNER, METADATA = "10.9.9.9", "169.254.169.254"
ADDRESSES = (FAR, THIRD, DNS, INNER, METADATA, "8.8.8.8")
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000


def lacks():
    """Why there can be no World here; None if there can."""
    if os.geteuid():
        return "network namespaces with a line between them need root"
    if not shutil.which("ip"):
        return "needs ip (iproute2)"
    return None


def _setns(fd):
    if LIBC.setns(fd, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class World:
    def __init__(self):
        self.sockets, self.threads = [], []
        self.names = {}                  # of the name server: name → list of addresses
        self.asked = []
        self.proxied = []                # targets that a proxy was asked for
        self.heard = []                  # datagrams that arrived, (port, data)
        self.seen = {}                   # (address, port) → list of what connections said first
        self.home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        if LIBC.unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "unshare")
        self.here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self.holder = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo; exec sleep 3600"], stdout=subprocess.PIPE)
        self.holder.stdout.readline()
        self.there = os.open("/proc/%d/ns/net" % self.holder.pid, os.O_RDONLY)
        pid = str(self.holder.pid)
        self._ip("link set lo up")
        self._ip("link add a0 type veth peer name b0 netns " + pid)
        self._ip("addr add %s/24 dev a0" % HOST)
        self._ip("link set a0 up")
        for c in ["link set lo up", "addr add %s/24 dev b0" % NEAR, "link set b0 up"] + \
                ["addr add %s/32 dev b0" % a for a in ADDRESSES]:
            self._ip(c, "nsenter", "-t", pid, "-n")
        self._ip("route add default via " + NEAR)

    def enter(self):
        _setns(self.here)

    def leave(self):
        _setns(self.home)

    @staticmethod
    def _ip(command, *prefix):
        subprocess.run(list(prefix) + ["ip"] + command.split(), check=True)

    def close(self):
        for s in self.sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()
        for t in self.threads:
            t.join(10)
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()
        _setns(self.home)
        for fd in (self.home, self.here, self.there):
            os.close(fd)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    # -- servers, in the world or (there=False) on the machine itself

    def _socket(self, kind, address, port, there):
        if there:
            _setns(self.there)
        try:
            s = socket.socket(socket.AF_INET, kind)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind((address, port))
        finally:
            _setns(self.here)
        self.sockets.append(s)
        return s

    def _thread(self, fn, *args):
        t = threading.Thread(target=fn, args=args, daemon=True)
        t.start()
        self.threads.append(t)

    def serve(self, address, port, banner=False, there=True):
        """Says "I am ADDRESS:PORT\\n", at once or after the first bytes, then echoes until the end."""
        s = self._socket(socket.SOCK_STREAM, address, port, there)
        s.listen(512)
        self._thread(self._accept, s, b"I am %s:%d\n" % (address.encode(), port), banner)
        return self.seen.setdefault((address, port), [])

    def _accept(self, listener, hello, banner):
        address = listener.getsockname()
        while True:
            try:
                c, _ = listener.accept()
            except OSError:
                return
            self.sockets.append(c)
            self._thread(self._talk, c, address, hello, banner)

    def _talk(self, c, address, hello, banner):
        entry = {"said": b"", "end": None}
        self.seen[address].append(entry)
        try:
            if banner:
                c.sendall(hello)
            while True:
                data = c.recv(65536)
                if not data:
                    break
                first = not entry["said"]
                # Before anything is said: who has an answer may look here.
                if len(entry["said"]) < 65536:
                    entry["said"] += data
                if first and not banner:
                    c.sendall(hello)
                c.sendall(data)
            entry["end"] = "end"
        except ConnectionError:
            entry["end"] = "reset"
        except OSError:
            entry["end"] = "closed"
        c.close()

    def serve_socks(self, address, port, user=None, password=None):
        """A SOCKS5 proxy that goes nowhere: it says "via TARGET:PORT", a line, and echoes."""
        s = self._socket(socket.SOCK_STREAM, address, port, True)
        s.listen(64)
        self._thread(self._socks_accept, s, user, password)

    def _socks_accept(self, listener, user, password):
        while True:
            try:
                c, _ = listener.accept()
            except OSError:
                return
            self.sockets.append(c)
            self._thread(self._socks, c, user, password)

    def _socks(self, c, user, password):
        def take(n):
            data = c.recv(n, socket.MSG_WAITALL)
            if len(data) < n:
                raise ConnectionError("short")
            return data
        try:
            methods = take(take(2)[1])
            wanted = b"\2" if user else b"\0"
            c.sendall(b"\5" + (wanted if wanted in methods else b"\xff"))
            if user:
                take(1)
                got = (take(take(1)[0]).decode(), take(take(1)[0]).decode())
                good = got == (user, password)
                c.sendall(b"\1" + (b"\0" if good else b"\1"))
                if not good:
                    raise ConnectionError("who?")
            kind = take(4)[3]
            to = socket.inet_ntoa(take(4)) if kind == 1 else take(take(1)[0]).decode()
            to = "%s:%d" % (to, struct.unpack(">H", take(2))[0])
            self.proxied.append(to)
            # byte by byte, and the banner of what is behind it right away
            reply = b"\5\0\0\3\1x\0\0via " + to.encode() + b"\n"
            for i in range(len(reply)):
                c.sendall(reply[i:i + 1])
            while True:
                data = c.recv(65536)
                if not data:
                    break
                c.sendall(data)
        except OSError:
            pass
        c.close()

    def listen_udp(self, port, there=True, address="0.0.0.0"):
        s = self._socket(socket.SOCK_DGRAM, address, port, there)
        self._thread(self._hear, s, port)

    def _hear(self, s, port):
        while True:
            try:
                data, _ = s.recvfrom(65536)
            except OSError:
                return
            if not data:
                return
            self.heard.append((port, data))

    def serve_names(self, address=DNS):
        """A name server that knows self.names, over UDP and TCP."""
        u = self._socket(socket.SOCK_DGRAM, address, 53, True)
        t = self._socket(socket.SOCK_STREAM, address, 53, True)
        t.listen(16)
        self._thread(self._names_udp, u)
        self._thread(self._names_tcp, t)

    def _names_udp(self, s):
        while True:
            try:
                data, peer = s.recvfrom(4096)
            except OSError:
                return
            if not data:
                return
            s.sendto(self._answer(data), peer)

    def _names_tcp(self, s):
        while True:
            try:
                c, _ = s.accept()
            except OSError:
                return
            with c:
                head = c.recv(2, socket.MSG_WAITALL)
                if len(head) == 2:
                    a = self._answer(c.recv(struct.unpack(">H", head)[0], socket.MSG_WAITALL))
                    c.sendall(struct.pack(">H", len(a)) + a)

    def _answer(self, q):
        labels, at = [], 12
        while q[at]:
            labels.append(q[at + 1:at + 1 + q[at]].decode())
            at += 1 + q[at]
        kind, end = struct.unpack(">H", q[at + 1:at + 3])[0], at + 5
        name = ".".join(labels).lower()
        self.asked.append(name)
        known = self.names.get(name)
        rows = [socket.inet_aton(a) for a in known or ()] if kind == 1 else []
        head = q[:2] + struct.pack(">HHHHH", 0x8180 if known is not None else 0x8183, 1, len(rows), 0, 0)
        return head + q[12:end] + b"".join(b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + r for r in rows)
