# SPDX-License-Identifier: MIT
"""A name server of the test's own on 127.0.0.1:53, for a network namespace of the test's own (netns.py).

    with DnsStub() as dns:
        dns.names["api.fake.test"] = ["127.0.0.1"]          # A and AAAA, told apart by their look; "-> NAME" is a CNAME
        dns.names["x.fake.test"] = "NXDOMAIN"               # or "SERVFAIL", "REFUSED"; "SILENT": no answer at all

`asked` has every question, as (name, "A" or "AAAA"). Answers say TTL 0, so nobody may keep them.
"""
import ipaddress
import os
import socket
import struct
import subprocess
import tempfile
import threading

KINDS = {1: "A", 28: "AAAA"}
CODES = {"NXDOMAIN": 3, "SERVFAIL": 2, "REFUSED": 5}
UDP_MAX = 512


def _name(text):
    return b"".join(bytes([len(p)]) + p.encode() for p in text.split(".")) + b"\0"


class DnsStub:
    def __init__(self):
        self.names = {}
        self.asked = []

    def _answer(self, query, cap):
        qid, = struct.unpack_from(">H", query)
        at, labels = 12, []
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode("ascii", "replace"))
            at += query[at] + 1
        kind, = struct.unpack_from(">H", query, at + 1)
        question, name = query[12:at + 5], ".".join(labels).lower()
        self.asked.append((name, KINDS.get(kind, str(kind))))
        says = self.names.get(name, "NXDOMAIN")
        if says == "SILENT":
            return None
        code, records = CODES.get(says, 0) if isinstance(says, str) else 0, []
        for one in says if isinstance(says, list) else []:
            if one.startswith("-> "):
                records.append(_name(name) + struct.pack(">HHIH", 5, 1, 0, len(_name(one[3:]))) + _name(one[3:]))
                continue
            a = ipaddress.ip_address(one)
            if (kind, a.version) in ((1, 4), (28, 6)):
                records.append(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(a.packed)) + a.packed)
        body = b"".join(records)
        flags = 0x8180 | code
        if cap and 12 + len(question) + len(body) > cap:
            flags, records, body = flags | 0x0200, [], b""          # truncated: ask again over TCP
        return struct.pack(">HHHHHH", qid, flags, 1, len(records), 0, 0) + question + body

    def _udp(self):
        while True:
            try:
                query, peer = self.udp.recvfrom(4096)
            except OSError:
                return
            reply = self._answer(query, UDP_MAX)
            if reply:
                self.udp.sendto(reply, peer)

    def _tcp(self):
        while True:
            try:
                conn, _ = self.tcp.accept()
            except OSError:
                return
            with conn:
                conn.settimeout(5)
                try:
                    while n := int.from_bytes(conn.recv(2, socket.MSG_WAITALL), "big"):
                        reply = self._answer(conn.recv(n, socket.MSG_WAITALL), 0)
                        if reply:
                            conn.sendall(len(reply).to_bytes(2, "big") + reply)
                except OSError:
                    pass

    def __enter__(self):
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 53))
        self.tcp = socket.create_server(("127.0.0.1", 53))
        for f in (self._udp, self._tcp):
            threading.Thread(target=f, daemon=True).start()
        fd, path = tempfile.mkstemp(dir="/tmp")
        os.write(fd, b"nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        os.close(fd)
        os.chmod(path, 0o644)
        subprocess.run(["mount", "--bind", path, "/etc/resolv.conf"], check=True)   # seen in this mount namespace only
        os.unlink(path)
        return self

    def __exit__(self, *exc):
        subprocess.run(["umount", "/etc/resolv.conf"], check=True)
        self.udp.close()
        self.tcp.close()
