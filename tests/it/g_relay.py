# SPDX-License-Identifier: MIT
"""The gateway's data plane (GATEWAY §3): what agentbox-local's edge, ports and agent are judged by, judged again through
gateway → agentboxd → agentbox-local, and what is the gateway's own."""
import socket

import pytest

import harness
import i_wire_files
import i_wire_ports
import i_wire_rpc
import i_wire_watch
from conftest import built
from wire import Client
from i_wire_ports import make_box  # noqa: F401
from i_wire_rpc import messages  # noqa: F401


class Through(Client):
    """Sandboxes are made in the cloud and known to the daemon; every other request goes through its gateway."""

    def __init__(self, local, daemon, port):
        Client.__init__(self, "http://127.0.0.1:%d" % port, local.key)
        self.name, self.cloud, self.daemon, self.fake = "gateway", local, daemon, False
        self.direct = Client(local.plain_url, local.key)

    def needs(self, capability):
        reason = self.cloud.lacks(capability)
        if reason:
            pytest.skip(reason)

    def api(self, method, path, body=None, key=None, headers=()):
        return self.direct.api(method, path, body, key, headers)

    def create(self, **body):
        box = Client.create(self, **body)
        self.daemon.ctl("resume", box["sandboxID"])
        return box

    def create_ours(self):
        """One that the daemon made itself, and whose policy it therefore carries out."""
        self.made.append(self.daemon.ctl("create").stdout.strip())
        return self.direct.get({"sandboxID": self.made[-1]}).json()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def gateway_daemon(local_session):
    built(harness.AGENTBOXD)
    port = free_port()
    d = harness.Daemon(local_session, {"gateway": {"listen": "127.0.0.1:%d" % port}, "daemon": {"restart_grace": "1s"}})
    d.wait_log(r"\bgateway listen=")
    yield d, port
    d.close()


@pytest.fixture(name="real")
def make_real(local, gateway_daemon):
    c = Through(local, *gateway_daemon)
    yield c
    c.close()


@pytest.fixture(name="server")
def make_server(real):
    return real


# What the gateway answers otherwise, and says so in docs/internals/gateway.md: no HTTP/2 in clear, ports that are none are refused by
# name, and who has the access token needs no traffic token.
OTHERWISE = {"test_http2_to_a_port", "test_case_014_a_port_that_opens_late", "test_case_017_traffic_token"}


def judged_again(*modules):
    """The tests of these modules that speak to a running sandbox."""
    for m in modules:
        for name, test in vars(m).items():
            if name.startswith("test_") and name not in OTHERWISE:
                names = test.__code__.co_varnames[:test.__code__.co_argcount]
                if ("real" in names or "server" in names) and not {"own", "fake"} & set(names):
                    yield "%s_%s" % (name, m.__name__[7:]), test


globals().update(judged_again(i_wire_ports, i_wire_rpc, i_wire_files, i_wire_watch))
