# SPDX-License-Identifier: MIT
"""State that 0.1.0 left (tests/golden/state-0.1.0): a daemon of today goes on with it."""
import contextlib
import json
import os
import re
import shutil
import sqlite3
import time

import pytest

import harness
from api import Api, ApiError

LEFT = os.path.join(harness.ROOT, "tests/golden/state-0.1.0")
RECORDED_MS = 1796023542000     # about when it was


def restore(folder):
    """Its files, as if 0.1.0 had ended a moment ago."""
    state = os.path.join(folder, "state")
    shutil.copytree(LEFT, state, ignore=shutil.ignore_patterns("*.sql", "*.json"))
    os.chmod(state, 0o700)
    with open(os.path.join(LEFT, "agentboxd.sql"), encoding="utf-8") as f:
        now = int(time.time() * 1000) - RECORDED_MS
        text = re.sub(r"\b1796\d{9}\b", lambda m: str(int(m.group()) + now), f.read())
    with contextlib.closing(sqlite3.connect(os.path.join(state, "agentboxd.db"))) as db:
        db.executescript(text)
        tokens = dict(db.execute("SELECT id, access_token FROM sandbox"))
    for d, _, files in os.walk(state):
        for f in files:
            os.chmod(os.path.join(d, f), 0o600)
    return tokens


def recorded():
    with open(os.path.join(LEFT, "cloud.json"), encoding="utf-8") as f:
        return json.load(f)


def fill(cloud, tokens):
    """The cloud has what it had."""
    for box in recorded():
        made = cloud.make_sandbox(metadata=box["metadata"], timeout=3600)
        del cloud.by_id[made.id]
        made.id, made.state, made.fate, made.token = box["id"], box["state"], box["fate"], tokens[box["id"]]
        if not box["fate"]:
            cloud.by_id[made.id] = made


@pytest.fixture
def migrated(cloud):
    folder = harness.temp_dir("abold-")
    fill(cloud, restore(folder))
    d = harness.Daemon(cloud, folder=folder, conf={"daemon": {"clone_check": "no"}})
    try:
        yield d
        d.stop()
        with contextlib.closing(sqlite3.connect(os.path.join(d.state_dir, "agentboxd.db"))) as db:
            assert db.execute("PRAGMA user_version").fetchone()[0] > 5
    finally:
        d.close()
        shutil.rmtree(folder)


def test_state_of_0_1_0(migrated, cloud):
    """Sandboxes by name and state, a lease, a request id, what became of an ended sandbox, and the output of a command."""
    n = len(cloud.ledger.sandboxes)
    with Api(migrated.socket) as api:
        boxes = {s.name: s for s in api.call("SandboxService.List").sandboxes}
        assert boxes.keys() >= {"kept", "asleep"}, boxes
        kept = api.call("SandboxService.Get", sandbox="kept", max_staleness=0)
        assert (kept.leases, dict(kept.metadata)) == (1, {"for": "story"})
        assert [(x.label, x.sandbox) for x in api.call("LeaseService.List", sandbox="kept").leases] == [("night", kept.id)]
        again = api.call("SandboxService.Create", name="kept", request_id="r1", sandbox_timeout=3600, metadata={"for": "story"},
                         policy={"on_release": "PAUSE", "release_grace": 600})
        assert again.id == kept.id and len(cloud.ledger.sandboxes) == n
        over, = [x["id"] for x in recorded() if x["fate"]]
        gone = api.call("SandboxService.Get", sandbox=over)
        assert type(gone).DESCRIPTOR.fields_by_name["gone_reason"].enum_type.values_by_number[gone.gone_reason].name == "SANDBOX_KILLED"
        command, = api.call("CommandService.List", sandbox="kept", ended=True).commands
        assert command.shell == "echo hello; exit 7" and command.result.exit_code == 7
    assert harness.ctl(migrated.socket, "logs", command.command_id, check=False).stdout == "hello\n"
    assert harness.ctl(migrated.socket, "exec", "kept", "--", "echo", "again").stdout == "again\n"
    assert harness.ctl(migrated.socket, "resume", "asleep").returncode == 0
    assert harness.ctl(migrated.socket, "exec", "asleep", "--", "echo", "awake").stdout == "awake\n"
