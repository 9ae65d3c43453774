# SPDX-License-Identifier: MIT
"""agentbox-local before all the judges of tests/judges: the newest and four older versions of npm's and PyPI's e2b, the E2B command
line, and programs that are built on these SDKs. `sh tests/shows.sh` installs and runs them; the suite has the newest versions in
i_npm_local.py, i_pypi_local.py and i_abox_local.py. What could not be installed is skipped by name.

Each SDK comes twice: by a URL for everything, as a local server has it, and by the names of a domain over TLS, in a network of its own.
"""
import functools
import json
import os
import re
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
JUDGES = os.path.join(os.path.dirname(HERE), "judges")
INSTALLED = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "judges")
DOMAIN = "fake.test"
IS_SHOW = bool(os.environ.get("SHOWS_FULL"))
with open(os.path.join(JUDGES, "versions.txt"), encoding="ascii") as f:
    NAMES = [n for n in f.read().split("\n") if n and not n.startswith("#")]
SDKS = [n for n in NAMES if n.startswith(("pypi-", "npm-"))]
with open(os.path.join(JUDGES, "common.py"), encoding="utf-8") as f:
    CHECKS = re.findall(r"^def check_(\w+)\(\):$", f.read(), re.M)

def missing(name):
    if not IS_SHOW:
        return "sh tests/shows.sh runs it"
    if not os.path.exists(os.path.join(INSTALLED, name, ".installed")):
        return "it is not installed (sh tests/judges/install.sh %s)" % name
    return None


def command(name):
    folder = os.path.join(INSTALLED, name)
    if name.startswith("npm-"):
        return ["node", os.path.join(JUDGES, "common.mjs"), folder] + CHECKS
    return [os.path.join(folder, "bin", "python"), os.path.join(JUDGES, "common.py")] + CHECKS


def environment(ca=None, **names):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("E2B_", "AGENTBOX"))}
    env.update(names, PYTHONDONTWRITEBYTECODE="1", OPENAI_API_KEY="unused", LANGSMITH_TRACING="false")
    if ca:
        env.update(SSL_CERT_FILE=ca, NODE_EXTRA_CA_CERTS=ca, REQUESTS_CA_BUNDLE=ca)
    return env


def said_by(name, env):
    r = subprocess.run(command(name), env=env, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
    said = dict(json.loads(line) for line in r.stdout.splitlines() if line.startswith("["))
    return {c: said.get(c, "it did not come to it: %s" % r.stderr[-2000:]) for c in CHECKS}


@functools.lru_cache(maxsize=None)
def by_url(name, url, key):
    return said_by(name, environment(E2B_API_KEY=key, E2B_API_URL=url, E2B_SANDBOX_URL=url))


def with_domain(name):
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
            print(json.dumps(said_by(name, environment(cloud.ca, E2B_API_KEY=cloud.key, E2B_DOMAIN=DOMAIN))))
        finally:
            cloud.close()


@functools.lru_cache(maxsize=None)
def by_domain(name):
    import netns
    return netns.run(__file__, "with_domain", timeout=600, args=[name])


def judge(what, wrong):
    if wrong and wrong.startswith("LACKS "):
        pytest.skip("this version has no %s" % wrong[6:])
    assert not wrong, wrong


@pytest.mark.timeout(700)
@pytest.mark.parametrize("check", CHECKS if IS_SHOW else ["all"])
@pytest.mark.parametrize("name", SDKS)
def test_by_url(name, check, local):
    """A-5: old SDKs, too."""
    if missing(name):
        pytest.skip(missing(name))
    judge("%s/url/%s" % (name, check), by_url(name, local.plain_url, local.key)[check])


@pytest.mark.timeout(700)
@pytest.mark.parametrize("check", CHECKS if IS_SHOW else ["all"])
@pytest.mark.parametrize("name", SDKS)
def test_by_domain(name, check):
    if missing(name):
        pytest.skip(missing(name))
    judge("%s/domain/%s" % (name, check), by_domain(name)[check])


@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", ["openai-agents", "langchain-e2b", "harbor"])
def test_framework(name, local):
    """E-3: what is built on the SDKs."""
    if missing(name):
        pytest.skip(missing(name))
    env = environment(E2B_API_KEY=local.key, E2B_API_URL=local.plain_url, E2B_SANDBOX_URL=local.plain_url)
    r = subprocess.run([os.path.join(INSTALLED, name, "bin", "python"), os.path.join(JUDGES, "frameworks.py"), name], env=env,
                       capture_output=True, text=True, timeout=150, stdin=subprocess.DEVNULL)
    lines = [line for line in r.stdout.splitlines() if line.startswith("[")]
    judge(name, json.loads(lines[-1])[1] if lines else "it said nothing: %s" % r.stderr[-2000:])


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("cli-")])
def test_cli(name, local):
    if missing(name):
        pytest.skip(missing(name))
    env = environment(E2B_API_KEY=local.key, E2B_API_URL=local.plain_url, E2B_SANDBOX_URL=local.plain_url)
    r = subprocess.run(["sh", os.path.join(JUDGES, "cli.sh"), os.path.join(INSTALLED, name)], env=env, capture_output=True, text=True,
                       timeout=350, stdin=subprocess.DEVNULL)
    judge(name, None if r.returncode == 0 else r.stdout + r.stderr)


if __name__ == "__main__":
    import netns
    sys.exit(netns.main(globals()))
