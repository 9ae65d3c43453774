# SPDX-License-Identifier: MIT
"""The examples of docs/examples do what they show."""
import os
import subprocess

import pytest

import harness


def run(daemon, name, *args):
    program = os.path.join(harness.BUILD, "tests", "it", "example_" + name)
    r = subprocess.run([program, *args], env=dict(os.environ, AGENTBOXD_SOCKET=daemon.socket), capture_output=True,
                       text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert r.stderr == "", r.stderr
    return r.returncode, r.stdout


def test_waiting(daemon_on_local):
    assert run(daemon_on_local, "waiting") == (
        0, "line 1\nline 2\nline 3\nexit code 0\ncreated note.txt\na file\n")


def test_event_loop(daemon_on_local, local_api):
    code, out = run(daemon_on_local, "event_loop")
    assert code == 0 and out.split("\n") == ["created note.txt", "written in pieces", "18", "exit code 0", ""], out
    assert [b for b in local_api.call("SandboxService.List").sandboxes if b.state == 2] == [], "it kills its sandbox"


def test_terminal(daemon_on_local, local_api):
    box = local_api.call("SandboxService.Create", template="base", sandbox_timeout=60).id
    code, out = run(daemon_on_local, "terminal", box)
    assert code == 7 and "40 120" in out, out
    local_api.call("SandboxService.Kill", sandbox=box)
