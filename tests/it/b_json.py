# SPDX-License-Identifier: MIT
"""Whatever agentboxctl prints with --json is what the installed schema says: every command, and every field of it."""
import glob
import json
import os
import re
import subprocess

import pytest

import harness
from fakecloud import FakeCloud
from harness import until

try:
    import jsonschema
except ImportError:
    jsonschema = None
pytestmark = pytest.mark.skipif(jsonschema is None, reason="python3-jsonschema is not installed")

PATH = os.path.join(harness.ROOT, "client/cli/agentboxctl.schema.json")
with open(PATH, encoding="utf-8") as f:
    SCHEMA = json.load(f)


def strict(at):
    """As the schema, but a field that it does not know is an error: readers ignore one, a test does not."""
    if isinstance(at, list):
        return [strict(one) for one in at]
    if not isinstance(at, dict):
        return at
    return {**{k: strict(v) for k, v in at.items()}, **({"additionalProperties": False} if "properties" in at else {})}


def validator(name):
    return jsonschema.Draft202012Validator({**strict(SCHEMA), "$ref": "#/$defs/" + name}, format_checker=jsonschema.FormatChecker())


def check(name, text, at_least=1):
    """Each line is a document of this kind; their list."""
    docs = [json.loads(line) for line in text.splitlines()]
    assert len(docs) >= at_least, (name, text)
    for doc in docs:
        validator(name).validate(doc)
    return docs


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    bare = []

    def look(at, path):
        if not isinstance(at, dict):
            return
        for name, field in at.get("properties", {}).items():
            if "description" not in field and "$ref" not in field:
                bare.append(path + "." + name)
        for key, below in at.items():
            for one in below if isinstance(below, list) else [below]:
                look(one, path + "." + key)
    look(SCHEMA, "")
    assert not bare


def test_it_is_what_is_installed():
    """Byte by byte, where agentboxctl(1) says that it is."""
    root = harness.temp_dir("abj-")
    subprocess.run(["meson", "install", "-C", harness.BUILD, "--no-rebuild", "--quiet", "--destdir", root], check=True, stdout=subprocess.DEVNULL)
    found, = glob.glob(root + "/**/agentboxctl.schema.json", recursive=True)
    with open(os.path.join(harness.ROOT, "docs/man/agentboxctl.1"), encoding="utf-8") as f:
        said = re.search(r"\S*/agentboxctl\.schema\.json", f.read()).group(0)
    assert found.endswith(said.removeprefix("/usr"))
    with open(found, encoding="utf-8") as f, open(PATH, encoding="utf-8") as g:
        assert f.read() == g.read()


def test_every_command_has_one(d):
    """A command without --json says so; all others are in the schema."""
    words = {line.split()[0] for line in d.ctl("help").stdout.splitlines() if line.startswith("  ")}
    told = {name[len("command."):] for name in SCHEMA["$defs"] if name.startswith("command.")}
    without = set()
    for path in glob.glob(os.path.join(harness.ROOT, "client/cli/*/*.c")):
        with open(path, encoding="utf-8") as f:
            without |= {m.group(1) for m in re.finditer(r'\.name = "([\w-]+)"(?:(?!\n};).)*?\.no_json = true', f.read(), re.S)}
    assert "exec" in without and "ls" not in without
    assert words - without - {"help"} == told
    for name in told:
        assert "no --json" not in d.ctl("--json", name, "x", "y", "z", "w", check=False).stderr


def test_sandboxes(d, box):
    def ctl(name, *args, at_least=1):
        return check("command." + name, d.ctl("--json", name, *args).stdout, at_least)

    made = ctl("create", "--name", "schema", "--metadata", "a=b", "--no-internet", "--timeout", "5m", "--on-timeout", "kill",
               "--policy", "on_release=kill")[0]
    one = made["id"]
    try:
        assert len(ctl("ls")) >= 2
        ctl("get", one)
        check("command.inspect", d.ctl("inspect", one, box).stdout, 2)
        ctl("connect", one)
        ctl("timeout", one, "10m")
        ctl("policy", one)
        ctl("policy", one, "on_release=pause")
        ctl("running", one)
        ctl("host", one, "80")
        ctl("metrics", one, at_least=0)
        ctl("network", one)
        ctl("network", one, "--allow-out", "1.1.1.1", "--deny-out", "0.0.0.0/0")
        ctl("pause", one)
        ctl("resume", one)
    finally:
        assert ctl("kill", one) == [{"sandbox": one, "found": True}]


def test_copies(d, box):
    forks = check("command.fork", d.ctl("--json", "fork", box, "-n", "2").stdout, 2)
    d.ctl("kill", *[f["id"] for f in forks])
    snapshot = check("command.snapshot", d.ctl("--json", "snapshot", "create", box).stdout)[0]["id"]
    check("command.snapshot", d.ctl("--json", "snapshot", "ls").stdout)
    check("command.snapshot", d.ctl("--json", "snapshot", "rm", snapshot).stdout)


def test_templates(d):
    check("command.template", d.ctl("--json", "template", "ls").stdout)


def test_commands(d, box):
    running = d.ctl("exec", "-d", "-e", "A=b", box, "--", "sleep", "60").stdout.strip()
    for how in ("exit 3", "kill -9 $$"):
        d.ctl("wait", d.ctl("exec", "-d", box, "--", "sh", "-c", how).stdout.strip(), check=False)
    found = check("command.ps", d.ctl("--json", "ps", "--ended", box).stdout, 3)
    assert {c.get("result", {}).get("outcome") for c in found} == {None, "exited", "signaled"}
    d.ctl("signal", running, "KILL")


def test_files(d, box, tmp_path):
    d.ctl("exec", box, "--", "sh", "-c", "mkdir d; echo x >d/f; ln -s f d/l; mkfifo d/p")
    assert {f["type"] for f in check("command.files", d.ctl("--json", "files", box + ":d").stdout, 3)} == {"file", "symlink", "other"}
    check("command.stat", d.ctl("--json", "stat", box + ":d").stdout)
    made = [check("command.mkdir", d.ctl("--json", "mkdir", box + ":n/m").stdout)[0]["created"] for _ in range(2)]
    assert made == [True, False]
    assert check("command.mv", d.ctl("--json", "mv", box + ":n/m", "n/k").stdout)[0]["name"] == "k"
    assert check("command.rm", d.ctl("--json", "rm", box + ":n/k", box + ":n/no").stdout, 2)[1]["path"] == "n/no"
    check("command.cp", d.ctl("--json", "cp", box + ":d/f", str(tmp_path / "f")).stdout)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "one").write_text("1")
    check("command.cp", d.ctl("--json", "cp", "-r", str(tmp_path / "tree"), box + ":t").stdout)
    check("command.sign", d.ctl("--json", "sign", box + ":d/f").stdout)
    with subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "--json", "watch", "--entries", box + ":d"], text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as w:
        try:
            assert check("command.watch", w.stdout.readline())[0] == {"event": "ready"}
            d.ctl("exec", box, "--", "touch", "d/new")
            assert check("command.watch", w.stdout.readline())[0]["name"] == "new"
        finally:
            w.kill()


def test_leases_tokens_events(d, box):
    lease = check("command.lease", d.ctl("--json", "lease", "acquire", box, "--ttl", "1m", "--label", "x").stdout)[0]
    check("command.lease", d.ctl("--json", "lease", "ls").stdout)
    check("command.lease", d.ctl("--json", "lease", "renew", lease["id"], "--ttl", "2m").stdout)
    d.ctl("lease", "release", lease["id"])
    token = check("command.token", d.ctl("--json", "token", "create", "--label", "x", "--expires", "1h").stdout)[0]
    check("command.token", d.ctl("--json", "token", "ls").stdout)
    d.ctl("token", "rm", token["id"])
    with subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "--json", "events", "--initial"], text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as w:
        try:
            kinds = {check("command.events", w.stdout.readline())[0]["type"]}
            d.ctl("kill", d.ctl("create").stdout.strip())
            until(lambda: kinds.add(check("command.events", w.stdout.readline())[0]["type"]) or len(kinds) >= 3, 20, "three kinds")
        finally:
            w.kill()


def test_the_daemon(d, box):
    check("command.status", d.ctl("--json", "status").stdout)
    check("command.pool", d.ctl("--json", "pool").stdout)
    check("command.reload", d.ctl("--json", "reload").stdout)
    check("command.config", d.ctl("--json", "config", "show").stdout)
    check("command.page", d.ctl("--json", "page").stdout)
    check("command.quiesce", d.ctl("--json", "quiesce").stdout)
    check("command.quiesce", d.ctl("--json", "quiesce", "--off").stdout)
    folder = harness.temp_dir("abj-")
    saved = os.path.join(folder, "saved")
    check("command.backup", d.ctl("--json", "backup", saved).stdout)
    check("command.restore", d.ctl("--json", "restore", "--state-dir", os.path.join(folder, "state"), saved).stdout)
    error = d.ctl("--json", "get", "no-such-sandbox", check=False)
    assert error.stdout == "" and check("error", error.stderr)[0]["error"]["status"] == "NOT_FOUND"


def test_what_does_not_work():
    """… has fields of its own."""
    with FakeCloud() as cloud:
        d = harness.Daemon(cloud)
        d.ctl("status")
    try:
        assert d.ctl("create", timeout=90, check=False).returncode
        said = check("command.status", d.ctl("--json", "status", check=False).stdout)[0]
        assert [what["what"] for what in said["degraded"]] == ["cloud"] and said["clouds"][0]["last_failure"]
    finally:
        d.close()


def test_warm(cloud):
    d = harness.Daemon(cloud, conf={"warm py": {"template": "base", "size": 1, "uids": "0"}})
    try:
        until(lambda: check("command.warm", d.ctl("--json", "warm", "ls").stdout)[0]["ready"] == 1, 20, "a ready one", d)
        check("command.warm", d.ctl("--json", "warm", "set", "py", "0").stdout)
        check("command.warm", d.ctl("--json", "warm", "retry", "py").stdout)
    finally:
        d.close()


def test_the_local_cloud():
    d = harness.Daemon()
    try:
        d.ctl("create")
        assert check("command.local", d.ctl("--json", "local", "stop").stdout) == [{"was_running": True, "killed": 1}]
    finally:
        d.close()
