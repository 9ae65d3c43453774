# SPDX-License-Identifier: MIT
"""Runs a program against an agentbox-local of its own. $BUILD_DIR names the build (default: build/). The exit status is the program's.

    with_local.py PROGRAM ARGUMENT…             finds it in E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL
    with_local.py --domain PROGRAM ARGUMENT…    by the names that the SDK has by itself, over TLS, in a network of its own where they lead
                                                to this machine; as root
    with_local.py --gateway PROGRAM ARGUMENT…   as the first, but through the gateway of an agentboxd of its own
"""
import os
import socket
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
from harness import Daemon, LocalCloud, temp_dir  # noqa: E402

DOMAIN = "e2b.app"
LIMIT = ["--max-sandboxes", "400"]


class Everywhere(dict):
    """Every name of the domain is here."""

    def get(self, name, default=None):
        return ["127.0.0.1"] if name.endswith("." + DOMAIN) else default


def run(argv, cloud, **names):
    try:
        return subprocess.run(argv, env=dict(os.environ, E2B_API_KEY=cloud.key, **names), check=False).returncode
    finally:
        cloud.close()


def by_domain(argv):
    from dnsstub import DnsStub
    from fakecloud.certs import Authority
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with DnsStub() as dns, tempfile.TemporaryDirectory() as folder:
        dns.names = Everywhere()
        authority = Authority(folder, "agentbox-local test CA")
        cert, key = authority.issue(san="DNS:*.%s" % DOMAIN)
        cloud = LocalCloud(tls=False, args=LIMIT + ["--domain", DOMAIN, "--tls-listen", "127.0.0.1:443", "--cert", cert, "--key", key])
        return run(argv, cloud, SSL_CERT_FILE=authority.cert, NODE_EXTRA_CA_CERTS=authority.cert)


def by_gateway(argv):
    """An ordinary daemon of this user's own, whose gateway passes on what it does not answer."""
    cloud, home = LocalCloud(args=LIMIT), temp_dir("abx-")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    daemon = Daemon(cloud, {"gateway": {"listen": "127.0.0.1:%d" % port}, "uid %d" % os.getuid(): {"relay": "all"}},
                    env={"XDG_RUNTIME_DIR": home, "HOME": home})
    url = "http://127.0.0.1:%d" % port
    names = {"E2B_API_KEY": "e2b_" + daemon.ctl("token", "create").stdout.strip()[3:], "E2B_API_URL": url, "E2B_SANDBOX_URL": url}
    try:
        return subprocess.run(argv, env=dict(os.environ, **names), check=False).returncode
    finally:
        daemon.close()
        cloud.close()


def main(first, *argv):
    if first == "--in-network":
        return by_domain(argv)
    if first == "--domain":
        return subprocess.run(["unshare", "-n", "-m", sys.executable, os.path.abspath(__file__), "--in-network", *argv],
                              check=False).returncode
    if first == "--gateway":
        return by_gateway(argv)
    cloud = LocalCloud(args=LIMIT)
    return run([first, *argv], cloud, E2B_API_URL=cloud.plain_url, E2B_SANDBOX_URL=cloud.plain_url)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
