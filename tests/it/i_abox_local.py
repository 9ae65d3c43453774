# SPDX-License-Identifier: MIT
"""AgentBox's own SDK, unmodified, drives agentbox-local: every method of its reference, its asynchronous and its synchronous half,
with nothing but AGENTBOX_API_KEY, AGENTBOX_API_URL and AGENTBOX_SANDBOX_URL set; and over TLS with a domain, in a network of its own
where the domain's names resolve.

It runs where the SDK could be installed; elsewhere every check is skipped, by name.
"""
import functools
import json
import os
import re
import subprocess
import sys

import pytest

ABOX = os.path.join(os.path.dirname(os.path.abspath(__file__)), "abox")
with open(os.path.join(ABOX, "sdk.py"), encoding="utf-8") as source:
    CHECKS = re.findall(r"^    async def ((?:sandbox|files|commands|handle|pty|template|client)\w*)\(self\):$", source.read(), re.M)
MISSING = None if os.path.isdir(os.path.join(ABOX, "site", "agentbox")) else \
    "the Python package abox-sdk is not installed (tests/it/abox/install.sh)"
DOMAIN = "fake.test"


def environment(**names):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("E2B_", "AGENTBOX"))}
    return dict(env, PYTHONPATH=os.path.join(ABOX, "site"), PYTHONDONTWRITEBYTECODE="1", **names)


def run(mode, checks, **names):
    """What each check said, from one run of all: most of a run's time is the SDK's start."""
    r = subprocess.run(["/usr/bin/python3", "sdk.py", mode, *checks], cwd=ABOX, env=environment(**names), capture_output=True,
                       text=True, timeout=115, stdin=subprocess.DEVNULL)
    said = dict(json.loads(line) for line in r.stdout.splitlines())
    return {c: said.get(c, "it did not come to it: %s" % r.stderr) for c in checks}


@functools.lru_cache(maxsize=None)
def by_url(mode, url, key):
    return run(mode, CHECKS, AGENTBOX_API_KEY=key, AGENTBOX_API_URL=url, AGENTBOX_SANDBOX_URL=url)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_by_url(mode, check, local):
    """A-3, A-4: both spellings of every header; nothing of the agent's falls through to the control plane."""
    if MISSING:
        pytest.skip(MISSING)
    wrong = by_url(mode, local.plain_url, local.key)[check]
    assert not wrong, wrong


def with_domain(mode):
    """In a network of its own: prints what each check said."""
    import harness
    from dnsstub import DnsStub

    class Everywhere(dict):
        def get(self, name, default=None):
            return ["127.0.0.1"] if name.endswith("." + DOMAIN) else default

    with DnsStub() as dns:
        dns.names = Everywhere()
        cloud = harness.LocalCloud(tls_port=443, args=["--domain", DOMAIN])
        try:
            print(json.dumps(run(mode, CHECKS, AGENTBOX_API_KEY=cloud.key, AGENTBOX_DOMAIN=DOMAIN, SSL_CERT_FILE=cloud.ca)))
        finally:
            cloud.close()


@functools.lru_cache(maxsize=None)
def by_domain(mode):
    import netns
    return netns.run(__file__, "with_domain", timeout=119, args=[mode])


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_by_domain(mode, check):
    """A-4: the names of a domain, over TLS."""
    if MISSING:
        pytest.skip(MISSING)
    wrong = by_domain(mode)[check]
    assert not wrong, wrong


def test_key_of_agentbox():
    """E-7: a key as AgentBox has them in agentbox-local's own file."""
    if MISSING:
        pytest.skip(MISSING)
    from harness import LocalCloud
    cloud = LocalCloud(tls=False, key="ab_00112233445566778899aabbccddeeff")
    try:
        said = run("sync", ["sandbox_create"], AGENTBOX_API_KEY=cloud.key, AGENTBOX_API_URL=cloud.plain_url,
                   AGENTBOX_SANDBOX_URL=cloud.plain_url)
    finally:
        cloud.close()
    assert not said["sandbox_create"], said["sandbox_create"]


if __name__ == "__main__":
    import netns
    sys.exit(netns.main(globals()))
