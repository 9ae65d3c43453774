# SPDX-License-Identifier: MIT
"""agentboxctl diag: a report for a bug, without secrets."""
import io
import json
import os
import re
import subprocess
import tarfile

import harness
from harness import KEY

with open(os.path.join(harness.ROOT, "meson.build"), encoding="utf-8") as meson:
    VERSION = re.search(r"version: '([^']+)'", meson.read()).group(1)

JOURNAL = """#!/bin/sh
[ "$1" = --system ] || exit 0
cat <<'END'
2026-11-30T00:00:00 h agentboxd[1]: create_done seq=1 sandbox={box} uid=0
2026-11-30T00:00:01 h agentboxd[1]: upstream_connected origin=49983-{box}.example.com peer=192.0.2.1:443
2026-11-30T00:00:02 h agentboxd[1]: call_failed sandbox="{box}" error="the key {key} and a token ab_a9e2{hexes} are bad"
2026-11-30T00:00:03 h agentboxd[1]: copy_done sandbox=other1 made={box} policy=sandbox
END
"""


def report(d, folder, *args, box="sbx0123456789"):
    """{name: text} of the report's parts, and the process."""
    os.makedirs(folder + "/bin", exist_ok=True)
    with open(folder + "/bin/journalctl", "w", encoding="utf-8") as f:
        f.write(JOURNAL.format(box=box, key=KEY, hexes="0123456789" * 6))
    os.chmod(folder + "/bin/journalctl", 0o755)
    r = subprocess.run([harness.AGENTBOXCTL, "-s", d.socket, "--wait", "1s", "diag", *args], capture_output=True, cwd=folder, timeout=60,
                       env=dict(os.environ, PATH=folder + "/bin:" + os.environ["PATH"]), check=False)
    path = os.path.join(folder, "agentboxd-diag.tar")
    data = r.stdout if r.stdout else open(path, "rb").read() if os.path.exists(path) else b""
    parts = {}
    if data:
        with tarfile.open(fileobj=io.BytesIO(data)) as t:
            for m in t.getmembers():
                assert m.isfile() and m.mode == 0o600 and m.name.startswith("agentboxd-diag/")
                parts[m.name.split("/", 1)[1]] = t.extractfile(m).read().decode()
    return parts, r


def test_what_is_in_it(cloud):
    """Everything that the manual says, and neither key, token nor the id of a sandbox."""
    secret = "hunter2secret"
    folder = harness.temp_dir()
    d = harness.Daemon(cloud, conf={"account other": {"api_key_command": "echo " + secret, "api_url": cloud.url, "ca_file": cloud.ca}})
    try:
        box = d.ctl("create").stdout.strip()
        d.ctl("stat", box + ":/tmp")
        parts, r = report(d, folder, box=box)
        assert r.returncode == 0 and b"look through it" in r.stderr
        assert set(parts) == {"README.txt", "versions.txt", "status.json", "pool.json", "config.txt", "journal.txt"}
        whole = "\n".join(parts.values())
        for hidden in (box, KEY, secret, "ab_a9e2", KEY[4:20]):
            assert hidden not in whole, hidden
        assert json.loads(parts["status.json"])["sandboxes_running"] == 1
        assert "[account default] api_url = %s (file)\n" % cloud.url in parts["config.txt"]
        assert "[account other] api_key_command = not shown (file)\n" in parts["config.txt"]
        assert "agentboxctl %s" % VERSION in parts["versions.txt"] and "Linux" in parts["versions.txt"]
        lines = parts["journal.txt"].splitlines()
        number = lines[0].split("sandbox=")[1].split()[0]
        assert number.startswith("#") and "origin=49983-%s.example.com" % number in lines[1]
        assert 'sandbox="%s"' % number in lines[2] and "the key *** and a token *** are bad" in lines[2]
        assert lines[3].endswith("made=%s policy=sandbox" % number) and "other1" not in lines[3]
        assert os.stat(folder + "/agentboxd-diag.tar").st_mode & 0o777 == 0o600
    finally:
        d.close()


def test_nothing_is_replaced(daemon):
    folder = harness.temp_dir()
    assert report(daemon, folder)[1].returncode == 0
    _, r = report(daemon, folder)
    assert r.returncode == 1 and b"File exists" in r.stderr
    parts, r = report(daemon, folder, "-")
    assert r.returncode == 0 and "status.json" in parts


def test_a_daemon_that_is_not_there(cloud):
    """The report is made, and says so."""
    d = harness.Daemon(cloud)
    d.kill9()
    try:
        parts, r = report(d, harness.temp_dir())
        assert r.returncode == 0 and b"could not be asked" in r.stderr
        assert set(parts) == {"README.txt", "versions.txt", "journal.txt", "error.txt"} and parts["error.txt"].startswith("connecting: ")
    finally:
        d.close()
