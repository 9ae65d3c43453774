# SPDX-License-Identifier: MIT
"""The e2b npm SDK, unmodified, drives agentbox-local, and the scripted cloud too, so that the stand-in cannot drift.

It runs where node is new enough and the SDK could be installed; elsewhere every check is skipped, by name.
"""
import json
import os
import re
import shutil
import subprocess

import pytest

import schema
from fakecloud import FakeCloud

NPM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "npm")
with open(os.path.join(NPM, "sdk.mjs"), encoding="utf-8") as source:
    CHECKS = re.findall(r"^  async (\w+)\(\) \{$", source.read(), re.M)
# what the scripted cloud is no stand-in for: files and processes over a pause, forks, snapshots, ports, metrics
SHARED = [c for c in CHECKS if not c.startswith(("local_", "fake_"))]
# what a server may say that it lacks
NEEDS = {"metrics": "metrics"}
# over TLS the SDK speaks HTTP/2
TLS_TOO = ("create_and_kill", "run_streams", "run_much_output", "background", "parallel_commands", "files_streams",
           "killed_while_running")


def missing():
    """Why the SDK cannot run here, or None."""
    node = shutil.which("node")
    if not node:
        return "there is no node"
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout.strip()
    if tuple(int(n) for n in re.findall(r"\d+", version)[:3]) < (20, 18, 1):
        return "node %s is older than the SDK wants (20.18.1)" % version
    if not os.path.isdir(os.path.join(NPM, "node_modules", "e2b")):
        return "the npm package e2b is not installed (tests/it/npm/install.sh)"
    return None


MISSING = missing()


def judge(check, cloud, tls=False):
    if MISSING:
        pytest.skip(MISSING)
    url = cloud.url if tls else cloud.plain_url
    env = {k: v for k, v in os.environ.items() if not k.startswith("E2B_")}
    env.update({"E2B_API_KEY": cloud.key, "E2B_API_URL": url, "E2B_SANDBOX_URL": url,
                "NODE_EXTRA_CA_CERTS": cloud.ca or ""})
    r = subprocess.run(["node", "sdk.mjs", check], cwd=NPM, env=env, capture_output=True, text=True, timeout=90,
                       stdin=subprocess.DEVNULL)
    assert r.returncode == 0, "%s%s" % (r.stdout, r.stderr)


@pytest.mark.parametrize("check", [c for c in CHECKS if not c.startswith("fake_")])
def test_local(check, local):
    lacks = check in NEEDS and local.lacks(NEEDS[check])
    if lacks:
        pytest.skip(lacks)
    judge(check, local)


@pytest.mark.parametrize("check", TLS_TOO)
def test_local_tls(check, local):
    judge(check, local, tls=True)


@pytest.mark.parametrize("check", SHARED)
def test_fakecloud(check, cloud):
    judge(check, cloud)
    headers = [r for r in cloud.ledger.requests if r.header("x-api-key") and
               (r.route.startswith(("process.", "filesystem.", "envd.")))]
    assert not headers, "the key was sent to the agent: %s" % headers


@pytest.mark.parametrize("check", TLS_TOO)
def test_fakecloud_tls(check, cloud):
    judge(check, cloud, tls=True)
    assert any(r.proto == "h2" for r in cloud.ledger.requests)


def test_fakecloud_payloads(cloud):
    """What a user of the SDK asks for is what the contract has for it."""
    judge("fake_payloads", cloud)
    first, second = (json.loads(r.body) for r in cloud.ledger.of("create_v2")[:2])
    assert first["iam"] == {"tokens": {"aws": {"audience": "sts", "tokenType": "JWT-SVID"}}}
    assert first["network"] == {
        "allowOut": ["10.0.0.0/8", "example.com"], "denyOut": ["0.0.0.0/0"], "allowPublicTraffic": False,
        "maskRequestHost": "localhost:${PORT}",
        "egressProxy": {"address": "proxy.example.com:1080", "username": "u", "password": "secret"},
        "rules": {"example.com": [{"transform": {"headers": {"Authorization": "Bearer ${e2b.identity.tokens.aws}"}}}]}}
    assert (first["autoPause"], first["autoPauseMemory"]) == (True, False) and "autoResume" not in first
    assert first["allow_internet_access"] is False
    assert (second["autoPause"], second["autoResume"]) == (True, {"enabled": True}) and "autoPauseMemory" not in second
    assert json.loads(cloud.ledger.of("network")[0].body) == {
        "denyOut": ["9.9.9.9"], "rules": {"x.org": [{"transform": {"headers": {"A": "${e2b.identity.tokens.any}"}}}]}}
    assert cloud.ledger.count("create_v2") == 2                 # the one with an unknown token was never sent
    assert json.loads(cloud.ledger.of("pause")[0].body) == {"memory": False}
    assert json.loads(cloud.ledger.of("fork")[0].body)["count"] == 2
    problems = [(r, p) for r in cloud.ledger.requests if r.header("x-api-key")
                for p in schema.check_request(r.method, r.target, r.headers, r.body)]
    assert not problems, problems


def test_fakecloud_limits():
    with FakeCloud(concurrency=3) as cloud:
        judge("fake_limits", cloud)
