# SPDX-License-Identifier: MIT
"""Where the daemon's requests go: by default, by the account's domain, by what the cloud says of a sandbox, by addresses
of one's own (cases 1 to 4); and keys that do not look like one (24). A proxy that leads every name to the scripted cloud
stands in for the network."""
import re

import pytest

import harness
from api import Api
from fakeproxy import FakeProxy
from s_surface import create, error

NAMES = "DNS:api.e2b.app,DNS:sandbox.e2b.app,DNS:api.example.org,DNS:*.example.org,DNS:*.x.test,DNS:one.fake.test"
CALLS = ("process.", "filesystem.", "envd.")


@pytest.fixture
def somewhere(cloud):
    """Call it with what the account has: (api of a daemon that has only that and a key, the names it dialled)."""
    cloud.use_certificate(*cloud.authority.issue("named", NAMES))
    opened = []

    def start(**account):
        proxy = FakeProxy(cloud.port).start()
        conf = {"account default": dict({"api_url": None, "sandbox_url": None, "proxy": proxy.url}, **account)}
        d = harness.Daemon(cloud, conf=conf)
        opened.append((Api(d.socket), d, proxy))
        return opened[-1][0], lambda: {name for name, _ in proxy.seen}
    yield start
    for api, d, proxy in opened:
        api.close()
        d.close()
        proxy.stop()


def use(api):
    """A command and a file: what goes to the agent."""
    b = create(api).id
    assert api.run(b, "echo hi")[1] == b"hi\n"
    api.write_file(b, "f", b"data")
    assert api.read_file(b, "f") == b"data"
    return b


def to_agent(cloud, b):
    return [r for r in cloud.ledger.requests if r.route.startswith(CALLS) and r.sandbox == b]


def test_case_001_by_default(cloud, somewhere):
    api, names = somewhere()
    b = use(api)
    assert names() == {"api.e2b.app:443", "sandbox.e2b.app:443"}
    for r in to_agent(cloud, b):
        assert r.header("e2b-sandbox-id") == b and r.header("e2b-sandbox-port") == "49983"
    assert api.call("SandboxService.GetHost", sandbox=b, port=3000).host == "3000-%s.e2b.app" % b


def test_case_002_003_by_domain(cloud, somewhere):
    api, names = somewhere(domain="example.org")
    b = use(api)
    assert names() == {"api.example.org:443", "49983-%s.example.org:443" % b}
    cloud.domain = "x.test"
    other = use(api)
    assert names() == {"api.example.org:443", "49983-%s.example.org:443" % b, "49983-%s.x.test:443" % other}
    assert api.call("SandboxService.GetHost", sandbox=other, port=80).host == "80-%s.x.test" % other
    for box in (b, other):
        assert all(r.header("e2b-sandbox-id") == box for r in to_agent(cloud, box))


def test_case_004_by_addresses_of_one_s_own(cloud, somewhere):
    api, names = somewhere(domain="example.org", sandbox_url="https://one.fake.test:8443", api_url="https://api.e2b.app:444")
    cloud.domain = "x.test"         # this, too, is not what is asked
    cloud.edge_hosts.add("one.fake.test")
    b = use(api)
    assert names() == {"api.e2b.app:444", "one.fake.test:8443"}
    sent = to_agent(cloud, b)
    assert sent and all(r.header("e2b-sandbox-id") == b and r.header("e2b-sandbox-port") == "49983" for r in sent)
    for operation in ("READ", "WRITE"):
        url = api.call("FileService.SignUrl", sandbox=b, path="/home/user/f", operation=operation).url
        assert re.match(r"https://one\.fake\.test:8443/files\?", url), url


@pytest.mark.parametrize("key", ["abc", "e2b_", "e2b_XYZ", "E2B_00"])
def test_case_024_a_key_that_looks_like_none(cloud, key):
    real, cloud.key = cloud.key, key
    d = harness.Daemon(cloud)
    with Api(d.socket) as api:
        e = error(create, api, timeout=10)
        assert (e.code, e.reason) == ("FAILED_PRECONDITION", "KEY_REJECTED") and "check_key_format" in e.text, e
        assert not cloud.ledger.requests
    d.close()
    d = harness.Daemon(cloud, conf={"account default": {"check_key_format": "no"}})
    with Api(d.socket) as api:
        e = error(create, api, timeout=10)
        assert (e.code, e.reason) == ("FAILED_PRECONDITION", "KEY_REJECTED") and e.metadata["upstream_status"] == "401", e
        assert cloud.ledger.of("create")[0].header("x-api-key") == key
    d.close()
    cloud.key = real
