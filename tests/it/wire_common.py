# SPDX-License-Identifier: MIT
"""The servers that the wire cases judge: the scripted cloud (so that the tests' own stand-in is held to the same
contract) and agentbox-local. `case_NNN` in a name is the number of a case of the contract's list."""
import pytest

import harness
from conftest import built
from wire import Client

BOTH = ("fakecloud", "agentbox-local")


class Server(Client):
    """A client with what a case may have to know about the server."""

    def __init__(self, name, cloud):
        Client.__init__(self, cloud.plain_url, cloud.key)
        self.name, self.cloud = name, cloud
        self.fake = name == "fakecloud"

    def needs(self, capability):
        """Skips the test, by name and with the reason, where agentbox-local says that it lacks this."""
        reason = None if self.fake else self.cloud.lacks(capability)
        if reason:
            pytest.skip(reason)


def make(request):
    name = request.param
    cloud = request.getfixturevalue("cloud" if name == "fakecloud" else "local")
    server = Server(name, cloud)
    yield server
    server.close()


server = pytest.fixture(params=BOTH, name="server")(make)
fake = pytest.fixture(params=("fakecloud",), name="fake")(make)
real = pytest.fixture(params=("agentbox-local",), name="real")(make)


@pytest.fixture
def own():
    """Call it with arguments for an agentbox-local of one's own: (a client of it, itself)."""
    built(harness.AGENTBOX_LOCAL)
    clouds = []

    def start(*args, **kw):
        clouds.append(harness.LocalCloud(tls=False, args=list(args), **kw))
        return Client(clouds[-1].plain_url, clouds[-1].key), clouds[-1]
    yield start
    for cloud in clouds:
        cloud.close()
