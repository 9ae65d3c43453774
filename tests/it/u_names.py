# SPDX-License-Identifier: MIT
"""Names of the cloud that do not resolve, resolve slowly, to too much, to something new, or to what nobody should be sent to
(FAULTS N-07, N-09 to N-11): a name server of the test's own in a network namespace of the test's own."""
import json
import socket
import threading
import time

import harness
import netns
from api import Api, ApiError
from dnsstub import DnsStub
from fakecloud import FakeCloud

HOST = "api.fake.test"


def daemon_on(cloud):
    url = "https://%s:%d" % (HOST, cloud.port)
    return harness.Daemon(cloud, conf={"account default": {"api_url": url, "sandbox_url": url}})


def create(api, timeout=10):
    """What came of it, and how long it took."""
    began = time.monotonic()
    try:
        said = "OK" if api.call("SandboxService.Create", timeout=timeout).id else "?"
    except ApiError as e:
        said = e.reason + ": " + e.text
    return [said, time.monotonic() - began]


class Relay:
    """Hands connections to an address on to a port of 127.0.0.1."""

    def __init__(self, address, port):
        self.n = 0
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.sock = socket.create_server((address, port), family=family)
        threading.Thread(target=self._accept, args=(port,), daemon=True).start()

    def _accept(self, port):
        while True:
            a, _ = self.sock.accept()
            self.n += 1
            b = socket.create_connection(("127.0.0.1", port))
            for x, y in ((a, b), (b, a)):
                threading.Thread(target=self._copy, args=(x, y), daemon=True).start()

    @staticmethod
    def _copy(x, y):
        try:
            while data := x.recv(65536):
                y.sendall(data)
            y.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def failures():
    out = {}
    with FakeCloud() as cloud, DnsStub() as dns:
        d = daemon_on(cloud)
        with Api(d.socket) as api:
            for says in ("NXDOMAIN", "SERVFAIL", ["-> loop.fake.test"], ["-> " + HOST]):
                dns.names[HOST] = dns.names["loop.fake.test"] = says
                if says == ["-> " + HOST]:
                    dns.names["loop.fake.test"] = says
                    dns.names[HOST] = ["-> loop.fake.test"]
                out[str(says)] = create(api)
            dns.names[HOST] = "SILENT"
            slow = api.future("SandboxService.Create", timeout=8)
            harness.until(lambda: dns.asked[-1][0] == HOST, 20, "the question")
            began, n = time.monotonic(), 0
            while not slow.done() and n < 50:
                api.call("DaemonService.Status", timeout=5)
                n += 1
            out["status meanwhile"] = [n, time.monotonic() - began]
            slow.cancel()
            dns.names[HOST] = ["127.0.0.1"]
            out["then"] = create(api, 30)
            # the last good answer serves while the name server does not
            dns.names[HOST] = "SERVFAIL"
            cloud.close_idle()
            cloud.ledger.wait(lambda: cloud.ledger.open_connections == 0)
            asked = len(dns.asked)
            out["from memory"] = create(api)
            out["asked again"] = len(dns.asked) > asked
        d.stop()
    print(json.dumps(out))


def test_names_that_do_not_resolve():
    """N-09: NXDOMAIN, SERVFAIL, circles and silence are UNREACHABLE and say so; others are served meanwhile; it recovers, and
    an answer that was good serves while there is none."""
    r = netns.run(__file__, "failures")
    for says in ("NXDOMAIN", "SERVFAIL", "['-> loop.fake.test']", "['-> api.fake.test']"):
        said, took = r[says]
        assert said.startswith("UNREACHABLE: ") and HOST in said and took < 10, (says, r)
    assert r["status meanwhile"][0] == 50 or r["status meanwhile"][1] < 10, r
    assert r["then"][0] == "OK" and r["from memory"][0] == "OK" and r["asked again"], r


def addresses():
    out = {}
    with FakeCloud() as cloud, DnsStub() as dns:
        # 512 answers, all but one lead nowhere; no TTL
        dns.names[HOST] = ["127.0.0.1"] + ["127.1.%d.%d" % (i // 250, i % 250 + 1) for i in range(511)]
        d = daemon_on(cloud)
        with Api(d.socket) as api:
            out["many"] = create(api, 20)
        d.stop()
        # it moves while it is in use
        dns.names[HOST] = ["127.0.0.1"]
        d = daemon_on(cloud)
        with Api(d.socket) as api:
            create(api)
            moved = Relay("127.0.0.2", cloud.port)
            dns.names[HOST] = ["127.0.0.2"]
            out["before"] = [create(api)[0], moved.n]
            cloud.goaway(0, last="max")
            cloud.ledger.wait(lambda: cloud.ledger.open_connections == 0)
            out["after"] = [create(api)[0], moved.n]
        d.stop()
        # IPv4 leads nowhere; and none at all
        six = Relay("::1", cloud.port)
        netns.nft("table ip t { chain o { type filter hook output priority 0; ip daddr 127.0.0.9 drop; } ; }")
        for name, says in (("broken4", ["127.0.0.9", "::1"]), ("only6", ["::1"])):
            dns.names[HOST] = says
            before = six.n      # it may connect for a list of its own, before anybody asks
            d = daemon_on(cloud)
            with Api(d.socket) as api:
                out[name] = create(api) + [six.n - before]
            d.stop()
    print(json.dumps(out))


def test_addresses():
    """N-07, N-09, N-10: too many addresses, a name that moves while its connections are pooled, hosts without a working IPv4."""
    r = netns.run(__file__, "addresses")
    assert r["many"][0] == "OK", r
    assert r["before"] == ["OK", 0] and r["after"][0] == "OK" and r["after"][1] >= 1, r
    assert r["broken4"][0] == "OK" and r["broken4"][1] < 3 and r["broken4"][2] >= 1, r
    assert r["only6"][0] == "OK" and r["only6"][2] >= 1, r


def rebinding():
    import subprocess
    out = {}
    with FakeCloud() as cloud, DnsStub() as dns:
        netns.nft("table ip t { chain o { type filter hook output priority 0; ip daddr 169.254.0.0/16 counter; "
                  "ip daddr 0.0.0.0/8 counter; } ; }")
        subprocess.run(["ip", "route", "add", "default", "dev", "lo"], check=True)
        for says in (["169.254.169.254"], ["0.0.0.0"], ["fe80::1"], ["::"], ["169.254.169.254", "127.0.0.1"]):
            dns.names[HOST] = says
            d = daemon_on(cloud)
            with Api(d.socket) as api:
                out[",".join(says)] = create(api)[0]
            d.stop()
        out["rules"] = subprocess.run(["nft", "list", "table", "ip", "t"], capture_output=True, text=True, check=True).stdout
    print(json.dumps(out))


def test_rebinding():
    """N-11: a name that leads to the metadata service of a cloud, or to no address at all, is not followed there."""
    r = netns.run(__file__, "rebinding")
    for says in ("169.254.169.254", "0.0.0.0", "fe80::1", "::"):
        assert r[says].startswith("UNREACHABLE: "), r
    assert r["169.254.169.254,127.0.0.1"] == "OK", r
    assert r["rules"].count("packets 0 ") == 2, r["rules"]


if __name__ == "__main__":
    netns.main(globals())
