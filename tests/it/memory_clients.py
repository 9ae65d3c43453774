# SPDX-License-Identifier: MIT
"""Clients of other uids for a_memory.py, each a process of its own: python3 memory_clients.py WHAT SOCKET UID …

    heads SOCKET UID CONNS STREAMS    so many requests' heads of 11.6 kB on each of so many connections, never ended, and nothing
                                      is read; says how many were sent, and stays until its standard input ends
    bodies SOCKET UID CONNS STREAMS   the same with the first 15,000 bytes of messages of 1 MiB
    random SOCKET UID SEED CONNS      so many connections, one after the other and some beside each other, that say and do what the
                                      seed draws; says what they were
    gateway PORT UID CONNS            so many connections to the gateway, each with 60 kB of a head without an end; says how many were
                                      taken, and stays until its standard input ends
    pairs SOCKET UID SECONDS          connects and hangs up, again and again
    latency SOCKET UID SECONDS        calls one after the other; prints of each when it began and its milliseconds, and those of a
                                      control beside it: a byte there and back to a process that does nothing else
"""
import gzip
import json
import os
import random
import signal
import socket
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))

import h2fiend as f2  # noqa: E402

WATCH, LIST = "/agentbox.v1.SandboxService/Watch", "/agentbox.v1.SandboxService/List"
START, WRITE = "/agentbox.v1.CommandService/Start", "/agentbox.v1.FileService/Write"


def become(uid):
    os.setgid(uid)
    os.setgroups([])
    os.setuid(uid)


def gone_when_told(children):
    """They end with this process, however that ends."""
    print(json.dumps({"sent": [int(os.read(r, 16)) for _, r in children]}), flush=True)
    sys.stdin.read()
    for pid, _ in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def flood(path, conns, make):
    """A process for each connection, so that they send as fast as they can."""
    children = []
    life, ours = os.pipe()
    for _ in range(conns):
        r, w = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(ours)
            n = 0
            try:
                c = f2.Client(path)
                for piece in make():
                    if not c.send(piece):
                        break
                    n += 1
            except OSError:     # not let in any more
                pass
            os.write(w, b"%d" % n)
            os.read(life, 1)
            os._exit(0)
        os.close(w)
        children.append((pid, r))
    gone_when_told(children)


def heads(streams):
    head = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", WATCH),
            ("content-type", "application/grpc"), ("te", "trailers")]
    block = f2.block(*head, *[("x-%03d" % i, "v" * 1150) for i in range(10)])
    return lambda: (f2.headers(2 * k + 1, block) for k in range(streams))


def bodies(streams):
    def make():
        for k in range(streams):
            sid = 2 * k + 1
            yield f2.request(sid, LIST, fields=[("content-type", "application/grpc"), ("te", "trailers")], end=False) + \
                f2.frame(f2.DATA, 0, sid, b"\0\0\x0f\xff\xff" + bytes(15000))
    return make


def piece(rng, sid):
    """Frames that begin a call, go on with one, or should not be there."""
    path = rng.choice([WATCH, LIST, START, WRITE, "/agentbox.v1.DaemonService/Status", "/nobody/Knows"])
    fields = [("content-type", "application/grpc"), ("te", "trailers")]
    message = rng.randbytes(rng.choice([0, 20, 3000, 60000]))
    what = rng.randrange(9)
    if what == 0:       # too much metadata
        fields += [("x-%03d" % i, "v" * rng.randrange(1500)) for i in range(rng.randrange(200))]
    elif what == 1:
        fields += [("grpc-encoding", "gzip")]
        message = rng.choice([gzip.compress(bytes(300000)), gzip.compress(b"")[:-4], message])
    flags = 1 if what == 1 else rng.choice([0, 0, 0, 1])
    head = f2.request(sid, path, fields=fields, end=what == 2)
    body = bytes([flags]) + len(message).to_bytes(4, "big") + message
    if what == 3:       # the message's end never comes
        body = bytes([flags]) + rng.randrange(2 << 20).to_bytes(4, "big") + message
    pieces = [body[i:i + 16384] for i in range(0, len(body), 16384)]
    data = b"".join(f2.frame(f2.DATA, f2.END_STREAM if i + 1 == len(pieces) and rng.randrange(3) else 0, sid, p)
                    for i, p in enumerate(pieces))
    if what == 4:
        data += f2.rst(sid, 8)
    elif what == 5:
        data = data[:rng.randrange(len(data))]  # and what follows is out of step
    elif what == 6:
        data += f2.frame(rng.randrange(12), rng.randrange(256), rng.randrange(2 * sid), rng.randbytes(rng.randrange(100)))
    return head if what == 2 else head + data


def one_of_many(rng, path):
    try:
        c = f2.Client(path, timeout=rng.choice([0.05, 0.2]), hello=rng.randrange(20))
        for k in range(rng.choice([1, 5, 50, 300])):
            if not c.send(piece(rng, 2 * k + 1)):
                break
            if not rng.randrange(10):
                c.until(lambda f: f[2])
        return c
    except OSError:     # a time limit, or not let in
        return None


def at_random(path, seed, conns):
    rng, held, n = random.Random(seed), [], 0
    for _ in range(conns):
        c = one_of_many(rng, path)
        held += [c] if c else []
        n += bool(c)
        while len(held) > rng.choice([0, 3, 12]):
            held.pop(rng.randrange(len(held))).close()
    for c in held:
        c.close()
    print(json.dumps({"connections": n}), flush=True)


def gateway(port, conns):
    held, head = [], b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"x-%d: %s\r\n" % (i, b"v" * 6000) for i in range(10))
    for _ in range(conns):
        try:
            s = socket.create_connection(("127.0.0.1", port))
            s.sendall(head)
            held.append(s)
        except OSError:     # not let in any more
            pass
    print(json.dumps({"connections": len(held)}), flush=True)
    sys.stdin.read()


def pairs(path, seconds):
    end, n = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        s = socket.socket(socket.AF_UNIX)
        s.setblocking(False)
        try:
            s.connect(path)
            n += 1
        except OSError:
            pass
        s.close()
    print(json.dumps({"connected": n}), flush=True)


def echo():
    ours, theirs = socket.socketpair()
    if not os.fork():
        ours.close()
        while theirs.recv(1):
            theirs.send(b"x")
        os._exit(0)
    theirs.close()
    return ours


def latency(path, seconds):
    from api import Api, ApiError
    control, calls, failed = echo(), [], []
    with Api(path) as api:
        api.call("SandboxService.List")
        print("ready", flush=True)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.monotonic()
            try:
                api.call("SandboxService.List")
            except ApiError as e:
                failed.append(str(e))
            middle = time.monotonic()
            control.send(b"x")
            control.recv(1)
            calls.append((begin, (middle - begin) * 1000, (time.monotonic() - middle) * 1000))
            time.sleep(0.002)   # the pace of this client
    print(json.dumps({"calls": calls, "failed": failed[:5]}), flush=True)


def main(what, path, uid, *numbers):
    numbers = [int(n) for n in numbers]
    if what == "latency":       # what is imported may be readable by root alone
        import api  # noqa: F401
    become(int(uid))
    if what == "heads":
        flood(path, numbers[0], heads(numbers[1]))
    elif what == "bodies":
        flood(path, numbers[0], bodies(numbers[1]))
    elif what == "random":
        at_random(path, *numbers)
    elif what == "gateway":
        gateway(int(path), *numbers)
    elif what == "pairs":
        pairs(path, *numbers)
    else:
        latency(path, *numbers)


if __name__ == "__main__":
    main(*sys.argv[1:])
