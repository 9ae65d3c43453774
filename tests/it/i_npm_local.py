# SPDX-License-Identifier: MIT
"""The e2b npm SDK, unmodified, drives agentbox-local, and the scripted cloud too, so that the stand-in cannot drift.

It runs where node is new enough and the SDK could be installed; elsewhere every check is skipped, by name.
"""
import os
import re
import shutil
import subprocess

import pytest

NPM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "npm")
with open(os.path.join(NPM, "sdk.mjs"), encoding="utf-8") as source:
    CHECKS = re.findall(r"^  async (\w+)\(\) \{$", source.read(), re.M)
# what the scripted cloud is no stand-in for: files and processes over a pause, forks, snapshots, ports, metrics
SHARED = [c for c in CHECKS if not c.startswith("local_")]
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


@pytest.mark.parametrize("check", CHECKS)
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
