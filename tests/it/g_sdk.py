# SPDX-License-Identifier: MIT
"""The E2B SDKs, unmodified, through gateway → agentboxd → agentbox-local: what i_npm_local.py and i_pypi_local.py judge directly, with
nothing but the environment changed to what agentboxctl env prints. AgentBox's own SDK: g_control.py."""
import os
import subprocess

import pytest

import i_npm_local
import i_pypi_local
from g_control import gateway_daemon  # noqa: F401

JS = [c for c in i_npm_local.CHECKS if not c.startswith("fake_")]


def lacks(check, needs, local):
    reason = check in needs and local.lacks(needs[check])
    if reason:
        pytest.skip(reason)


@pytest.mark.parametrize("check", JS)
def test_js(check, local, gateway_daemon):  # noqa: F811
    if i_npm_local.MISSING:
        pytest.skip(i_npm_local.MISSING)
    lacks(check, i_npm_local.NEEDS, local)
    _, port, token = gateway_daemon
    url = "http://localhost:%d" % port
    env = {k: v for k, v in os.environ.items() if not k.startswith("E2B_")}
    env.update({"E2B_API_KEY": token, "E2B_API_URL": url, "E2B_SANDBOX_URL": url})
    r = subprocess.run(["node", "sdk.mjs", check], cwd=i_npm_local.NPM, env=env, capture_output=True, text=True, timeout=90,
                       stdin=subprocess.DEVNULL)
    assert r.returncode == 0, "%s%s" % (r.stdout, r.stderr)


@pytest.mark.parametrize("check", i_pypi_local.CHECKS)
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_python(mode, check, local, gateway_daemon):  # noqa: F811
    if i_pypi_local.MISSING:
        pytest.skip(i_pypi_local.MISSING)
    lacks(check, i_pypi_local.NEEDS, local)
    _, port, token = gateway_daemon
    wrong = i_pypi_local.results(mode, "http://localhost:%d" % port, token, None, tuple(i_pypi_local.CHECKS))[check]
    assert not wrong, wrong
