# SPDX-License-Identifier: MIT
"""The programs of docs/clients.md, word for word: what is generated and what runs is read from that page."""
import os
import re
import shutil
import subprocess

import pytest

import harness
from i_npm_local import MISSING, NPM

PAGE = os.path.join(harness.ROOT, "docs/clients.md")
LINES = 20


def here(text, d):
    """With this clone's files and this test's socket."""
    return text.replace("/usr/share/agentboxd/proto", os.path.join(harness.ROOT, "proto")).replace(
        "/run/agentboxd/agentboxd.sock", d.socket)


def program(language, d):
    with open(PAGE, encoding="utf-8") as f:
        code = re.search(r"^```%s\n(.*?)^```$" % language, f.read(), re.M | re.S).group(1)
    lines = [x for x in code.splitlines() if x and not x.startswith(("import ", "from "))]
    assert len(lines) <= LINES, "%s: %d lines" % (language, len(lines))
    return here(code, d)


def run(folder, d, *argv):
    env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    r = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (r.returncode, r.stdout) == (0, "hello from Linux\n"), r.stdout + r.stderr
    # Its sandbox is gone with it.
    assert harness.ctl(d.socket, "ls", "-q").stdout == ""


@pytest.fixture
def folder():
    f = harness.temp_dir("abcl-")
    yield f
    shutil.rmtree(f)


def test_python(daemon_on_local, folder):
    """With what the page's protoc generates."""
    with open(PAGE, encoding="utf-8") as f:
        command = re.search(r"^    (protoc .*grpc_python_plugin \\\n.*)$", f.read(), re.M).group(1)
    subprocess.run(["sh", "-c", here(command, daemon_on_local)], cwd=folder, check=True, timeout=60)
    with open(os.path.join(folder, "client.py"), "w", encoding="utf-8") as f:
        f.write(program("python", daemon_on_local))
    run(folder, daemon_on_local, "/usr/bin/python3", "client.py")


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_node(daemon_on_local, folder):
    """By proto-loader, which generates nothing."""
    os.symlink(os.path.join(NPM, "node_modules"), os.path.join(folder, "node_modules"))
    with open(os.path.join(folder, "client.mjs"), "w", encoding="utf-8") as f:
        f.write(program("js", daemon_on_local))
    run(folder, daemon_on_local, "node", "client.mjs")


@pytest.mark.parametrize("language", ["go", "rust"])
def test_length(language, daemon_on_local):
    """The others are as short."""
    assert "agentboxd.sock" not in program(language, daemon_on_local)
