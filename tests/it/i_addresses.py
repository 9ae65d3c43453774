# SPDX-License-Identifier: MIT
"""Where the daemon's requests go: by default, by the account's domain, by what the cloud says of a sandbox, by addresses
of one's own (cases 1 to 4); and keys that do not look like one (24). A proxy that leads every name to the scripted cloud
stands in for the network."""
import os
import re
import subprocess

import pytest

import harness
from api import Api
from fakeproxy import FakeProxy
from s_surface import create, error

NAMES = "DNS:api.e2b.app,DNS:api.agentbox-runtime.ru,DNS:sandbox.agentbox-runtime.ru,DNS:sandbox.e2b.app,DNS:api.example.org,DNS:*.example.org,DNS:*.x.test,DNS:one.fake.test"
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


def new_key(cloud, key):
    """The key in force, which the cloud takes."""
    cloud.key = key
    cloud.keys[key] = cloud.team


FLAVOURS = [("ab_Key-of-some-form", "agentbox-runtime.ru", "agentbox", "e2b-"), (harness.KEY, "e2b.app", "e2b", "agentbox-")]


@pytest.mark.parametrize("key, domain, ours, theirs", FLAVOURS, ids=["agentbox", "e2b"])
def test_case_001_by_default(cloud, somewhere, key, domain, ours, theirs):
    """A-2: nothing but a key: its flavour sets domain, headers and the default for hosts; no name of the other is on the
    wire. A token for the ports goes with every call of AgentBox's agent, and with none of E2B's."""
    new_key(cloud, key)
    api, names = somewhere()
    b = use(api)
    assert names() == {"api.%s:443" % domain, "sandbox.%s:443" % domain}
    private = create(api, network={"allow_public_traffic": False}).id
    assert api.run(private, "echo hi")[1] == b"hi\n"
    for r in to_agent(cloud, b) + to_agent(cloud, private):
        assert r.header(ours + "-sandbox-port") == "49983"
        assert r.header(ours + "-sandbox-id") in (b, private)
        token = r.header(ours + "-traffic-access-token")
        assert bool(token) == (ours == "agentbox" and r.header(ours + "-sandbox-id") == private), r.headers
    assert not [name for r in cloud.ledger.requests for name, _ in r.headers if name.lower().startswith(theirs)]
    host = api.call("SandboxService.GetHost", sandbox=private, port=3000)
    assert host.host == "3000-%s.%s" % (private, domain) and host.token_header == ours + "-traffic-access-token"


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


def test_a_sandbox_url_with_hosts(cloud, somewhere):
    """A-2: AgentBox's hosts and links are below a sandbox URL of one's own; its shared host stands for the domain."""
    new_key(cloud, "ab_1")
    api, names = somewhere(sandbox_url="https://one.fake.test:8443")
    cloud.edge_hosts.add("one.fake.test")
    b = use(api)
    assert "one.fake.test:8443" in names()
    assert api.call("SandboxService.GetHost", sandbox=b, port=80).host == "80-%s.one.fake.test:8443" % b
    url = api.call("FileService.SignUrl", sandbox=b, path="/x", operation="READ").url
    assert url.startswith("https://49983-%s.one.fake.test:8443/files?" % b), url
    api, names = somewhere(domain="x.test", sandbox_url="https://sandbox.x.test", api_url="https://api.example.org")
    assert api.call("SandboxService.GetHost", sandbox=create(api).id, port=80).host.endswith(".x.test")


@pytest.mark.parametrize("key", ["abc", "e2b_", "e2b_XYZ", "E2B_00"])
def test_case_024_a_key_that_looks_like_none(cloud, key):
    """E2B's keys have a form; AgentBox's may have any (A-1)."""
    real, cloud.key = cloud.key, key
    d = harness.Daemon(cloud, conf={"account default": {"cloud": "e2b"}})
    with Api(d.socket) as api:
        e = error(create, api, timeout=10)
        assert (e.code, e.reason) == ("FAILED_PRECONDITION", "KEY_REJECTED") and "check_key_format" in e.text, e
        assert not cloud.ledger.requests
    d.close()
    d = harness.Daemon(cloud, conf={"account default": {"cloud": "e2b", "check_key_format": "no"}})
    with Api(d.socket) as api:
        e = error(create, api, timeout=10)
        assert (e.code, e.reason) == ("FAILED_PRECONDITION", "KEY_REJECTED") and e.metadata["upstream_status"] == "401", e
        assert cloud.ledger.of("create")[0].header("x-api-key") == key
    d.close()
    cloud.key = real


# --- whose key goes where ---

def check(tmp_path, conf, env=None):
    """(exit status, text) of --check-config."""
    path = tmp_path / "agentboxd.conf"
    path.write_text("".join("[%s]\n%s" % (name, "".join("%s = %s\n" % kv for kv in keys.items()))
                            for name, keys in conf.items()), encoding="ascii")
    r = subprocess.run([harness.AGENTBOXD, "--config", str(path), "--check-config"], capture_output=True, text=True,
                       timeout=20, env=dict({"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}, **(env or {})))
    return r.returncode, r.stderr


def key_file(tmp_path, key):
    path = tmp_path / "key"
    path.write_text(key + "\n", encoding="ascii")
    path.chmod(0o600)
    return str(path)


@pytest.mark.parametrize("key, account, said", [
    ("ab_1", {}, None),
    ("e2b_00", {}, None),
    ("abc", {}, None),
    ("ab_1", {"cloud": "e2b"}, ("ab_", "AgentBox", "E2B", "e2b.app")),
    ("e2b_00", {"cloud": "agentbox"}, ("e2b_", "E2B", "AgentBox", "agentbox-runtime.ru")),
    ("ab_1", {"domain": "e2b.app"}, ("ab_", "domain")),
    ("ab_1", {"domain": "e2b.dev"}, ("ab_", "domain")),
    ("e2b_00", {"domain": "agentbox-runtime.ru"}, ("e2b_", "domain")),
    ("ab_1", {"api_url": "https://api.e2b.app"}, ("ab_", "api_url")),
    ("ab_1", {"cloud": "e2b", "domain": "example.org"}, None),
    ("e2b_00", {"cloud": "agentbox", "api_url": "https://x.test", "sandbox_url": "https://y.test"}, None),
    ("ab_1", {"cloud": "E2B"}, ("neither agentbox nor e2b",)),
    ("ab_1", {"domain": "a b"}, ("no host name",)),
])
def test_a_2_a_key_of_one_flavour_is_not_sent_to_the_other(tmp_path, key, account, said):
    status, text = check(tmp_path, {"account default": dict(account, api_key_file=key_file(tmp_path, key))})
    assert (status == 0) == (said is None), text
    assert all(word in text for word in said or ()), text


@pytest.mark.parametrize("account, said", [
    ({"api_url": "http://example.org"}, "api_url"),
    ({"sandbox_url": "http://example.org:3000"}, "sandbox_url"),
    ({"api_url": "http://10.0.0.1"}, "api_url"),
    ({"api_url": "http://localhost:3000"}, None),
    ({"api_url": "http://127.0.0.1:3000", "sandbox_url": "http://[::1]:3000"}, None),
    ({"api_url": "http://example.org", "allow_plain_http": "yes"}, None),
])
def test_b_5_keys_do_not_go_in_clear(tmp_path, account, said):
    status, text = check(tmp_path, {"account default": account})
    assert (status == 0) == (said is None), text
    assert said is None or (said in text and "allow_plain_http" in text), text


@pytest.mark.parametrize("env, seen", [
    ({"AGENTBOX_API_KEY": "ab_1"}, ("api.agentbox-runtime.ru", "sandbox.agentbox-runtime.ru")),
    ({"E2B_API_KEY": "e2b_00"}, ("api.e2b.app", "sandbox.e2b.app")),
    ({"AGENTBOX_API_KEY": "ab_1", "E2B_API_KEY": "e2b_00", "E2B_DOMAIN": "example.org"},
     ("api.agentbox-runtime.ru", "sandbox.agentbox-runtime.ru")),
    ({"AGENTBOX_DOMAIN": "example.org", "E2B_API_KEY": "e2b_00"}, None),
])
def test_a_1_only_the_environment(cloud, tmp_path, env, seen):
    """A-1: a key in the environment is enough; names of two flavours are never mixed."""
    cloud.use_certificate(*cloud.authority.issue("named", NAMES))
    for key in ("ab_1", "e2b_00"):
        cloud.keys[key] = cloud.team
    proxy = FakeProxy(cloud.port).start()
    d = harness.Daemon(cloud, conf={"account default": {"api_url": None, "sandbox_url": None, "api_key_file": None,
                                                        "proxy": proxy.url}}, env=dict(env, XDG_RUNTIME_DIR=str(tmp_path)))
    try:
        with Api(d.socket) as api:
            if seen is None:
                assert error(create, api, timeout=10).reason == "KEY_MISSING"
            else:
                use(api)
        assert {name for name, _ in proxy.seen} == {name + ":443" for name in seen or ()}
    finally:
        d.close()
        proxy.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a daemon of many users")
def test_a_1_a_system_daemon_with_a_file_leaves_the_environment_alone(cloud):
    """A-1: what sets such a daemon up is its files; a key that does not count is said to, and nobody finds it in /proc."""
    d = harness.Daemon(cloud, conf={"account default": {"api_key_file": None}}, env={"AGENTBOX_API_KEY": "ab_1"})
    try:
        with Api(d.socket) as api:
            assert error(create, api, timeout=10).reason == "KEY_MISSING"
        with open("/proc/%d/environ" % d.pid, "rb") as f:
            assert b"ab_1" not in f.read()
        assert "environment_ignored name=AGENTBOX_API_KEY" in d.log()
    finally:
        d.close()


@pytest.mark.parametrize("route", ["get", "connect"])
def test_g_2_an_answer_about_another_sandbox(cloud, daemon, api, route):
    """G-2: what the cloud says of another id is no answer, and ends nothing here."""
    a, b = create(api).id, create(api).id
    body = '{"sandboxID": "%s", "templateID": "base", "envdVersion": "0.6.13", "state": "running"}' % b
    cloud.fault(route, status=200, body=body.encode(), times=1)
    if route == "get":          # what was known before is told
        assert api.call("SandboxService.Get", sandbox=a, max_staleness=0).id == a
    else:
        e = error(api.call, "SandboxService.ConnectSandbox", sandbox=a, sandbox_timeout=600)
        assert e.reason == "BAD_CLOUD_REPLY", e
    assert cloud.ledger.of(route)
    assert api.run(a, "echo hi")[1] == b"hi\n" and api.run(b, "echo hi")[1] == b"hi\n"


def test_g_6_a_domain_that_is_no_host_name(cloud, daemon, api):
    """G-6: it goes into no address and is told to nobody; that it was said is logged once."""
    cloud.domain = "x\r\nX-Evil: 1\x1b[31m"
    b = create(api).id
    assert api.call("SandboxService.Get", sandbox=b, max_staleness=0).domain == ""
    host = api.call("SandboxService.GetHost", sandbox=b, port=80)
    assert host.host == "80-%s.e2b.app" % b, host
    assert api.run(b, "echo hi")[1] == b"hi\n"
    assert daemon.log().count("sandbox_unkept") == 1
