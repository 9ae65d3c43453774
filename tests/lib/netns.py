# SPDX-License-Identifier: MIT
"""Parts of tests that run in a network namespace of their own, where nft, routes and names are theirs to break; as root.

    def silent_drop(): …; print(json.dumps(…))          # a function of the test's file

    def test_silent_drop():
        r = netns.run(__file__, "silent_drop")          # skips where it cannot

    if __name__ == "__main__":
        netns.main(globals())
"""
import json
import os
import shutil
import subprocess
import sys

import pytest

LACKS = "needs root" if os.geteuid() else "" if shutil.which("nft") and shutil.which("ip") else "needs nft and ip"


def run(path, name, timeout=100, args=()):
    """Runs that function of the file with network and mounts of its own; it prints JSON last."""
    if LACKS:
        pytest.skip(LACKS)
    r = subprocess.run(["unshare", "-n", "-m", sys.executable, os.path.abspath(path), name] + [str(a) for a in args],
                       capture_output=True, text=True, timeout=timeout, env=dict(os.environ, PYTHONPATH=":".join(sys.path)))
    assert r.returncode == 0, r.stdout[-3000:] + r.stderr[-3000:]
    return json.loads(r.stdout.splitlines()[-1])


def nft(text):
    subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)


def main(functions):
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    functions[sys.argv[1]](*sys.argv[2:])
