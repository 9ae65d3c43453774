# SPDX-License-Identifier: MIT
"""The e2b Python SDK, unmodified, its asynchronous and its synchronous half, drives agentbox-local, and the scripted
cloud too, so that the stand-in cannot drift.

It runs where the SDK could be installed; elsewhere every check is skipped, by name.
"""
import functools
import json
import os
import re
import subprocess

import pytest

from fakecloud import FakeCloud

PYPI = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pypi")
with open(os.path.join(PYPI, "sdk.py"), encoding="utf-8") as source:
    CHECKS = re.findall(r"^    async def (\w+)\(self\):$", source.read(), re.M)
# what the scripted cloud is no stand-in for: files and processes over a pause, forks, snapshots
SHARED = [c for c in CHECKS if not c.startswith("local_")]
# what a server may say that it lacks
NEEDS = {"metrics": "metrics"}
# over TLS the SDK may speak HTTP/2
TLS_TOO = ("create_and_kill", "run", "background", "files")
MISSING = None if os.path.isdir(os.path.join(PYPI, "site", "e2b")) else \
    "the Python package e2b is not installed (tests/it/pypi/install.sh)"




@functools.lru_cache(maxsize=None)
def results(mode, url, key, ca, checks):
    """What each check said, from one run of all: most of a run's time is the SDK's start."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("E2B_")}
    env.update({"E2B_API_KEY": key, "E2B_API_URL": url, "E2B_SANDBOX_URL": url, "SSL_CERT_FILE": ca or "",
                "PYTHONPATH": os.path.join(PYPI, "site"), "PYTHONDONTWRITEBYTECODE": "1"})
    r = subprocess.run(["/usr/bin/python3", "sdk.py", mode, *checks], cwd=PYPI, env=env, capture_output=True, text=True,
                       timeout=110, stdin=subprocess.DEVNULL)
    said = dict(json.loads(line) for line in r.stdout.splitlines())
    return {c: said.get(c, "it did not come to it: %s" % r.stderr) for c in checks}


def judge(mode, check, cloud, checks, tls=False):
    if MISSING:
        pytest.skip(MISSING)
    wrong = results(mode, cloud.url if tls else cloud.plain_url, cloud.key, cloud.ca, tuple(checks))[check]
    assert not wrong, wrong


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_local(mode, check, local):
    lacks = check in NEEDS and local.lacks(NEEDS[check])
    if lacks:
        pytest.skip(lacks)
    judge(mode, check, local, CHECKS)


@pytest.mark.parametrize("check", TLS_TOO)
def test_local_tls(check, local):
    judge("async", check, local, TLS_TOO, tls=True)


@pytest.fixture(scope="module")
def one_cloud():
    with FakeCloud() as c:
        yield c
        assert not c.errors, c.errors[0]


@pytest.mark.parametrize("check", SHARED)
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_fakecloud(mode, check, one_cloud):
    judge(mode, check, one_cloud, SHARED)


def test_fakecloud_keys(one_cloud):
    """Where a key belongs: never in a request to the agent."""
    judge("async", "files", one_cloud, SHARED)
    to_agent = [r for r in one_cloud.ledger.requests if r.route.startswith(("process.", "filesystem.", "envd."))]
    assert to_agent and not [r for r in to_agent if r.header("x-api-key")]
