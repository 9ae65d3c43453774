# SPDX-License-Identifier: MIT
"""Sandboxes that are ready, for programs with an unmodified SDK: a plain Sandbox.create() through the gateway gets one of an entry that
says nothing but its template (GATEWAY §2, WARM 1). On the scripted cloud and on agentbox-local."""
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest

import harness
import i_abox_local
import i_npm_local
import i_pypi_local
from harness import until
from w_door import port_of

PYTHON = """
import json, sys
from %s import Sandbox
box = Sandbox.create(*sys.argv[1:2], timeout=200, metadata={"a": "b"})
print(json.dumps([box.sandbox_id, box.commands.run("echo $((6*7))").stdout.strip(), box.get_info().metadata.get("a")]))
"""
NODE = """
import { Sandbox } from 'e2b'
const box = await Sandbox.create(...process.argv.slice(1, 2), { timeoutMs: 200_000, metadata: { a: 'b' } })
const ran = await box.commands.run('echo $((6*7))')
console.log(JSON.stringify([box.sandboxId, ran.stdout.trim(), (await box.getInfo()).metadata.a]))
"""
# by name: the program, where it runs, what is missing for it
SDKS = {
    "e2b-python": (["/usr/bin/python3", "-c", PYTHON % "e2b"], i_pypi_local.PYPI, i_pypi_local.MISSING),
    "e2b-npm": (["node", "--input-type=module", "-e", NODE, "--"], i_npm_local.NPM, i_npm_local.MISSING),
    "agentbox-python": (["/usr/bin/python3", "-c", PYTHON % "agentbox"], i_abox_local.ABOX, i_abox_local.MISSING),
}


class Place:
    """A user's daemon with the entry `py`, which says its template and a size."""

    def __init__(self, cloud, conf):
        self.home = harness.temp_dir("abx-")
        sections = {"warm py": {"template": "base", "size": 2, "per_hour": 200}, **conf}
        self.d = harness.Daemon(cloud, conf=sections, env={"XDG_RUNTIME_DIR": self.home, "HOME": self.home})
        self.port = port_of(self.d)
        self.token = self.d.ctl("token", "create").stdout.strip()

    def entry(self):
        return json.loads(self.d.ctl("--json", "warm", "ls").stdout)

    def ready(self):
        until(lambda: self.entry()["ready"] == 2, 60, "two that are ready", self.d)

    def is_warm(self, box):
        return json.loads(self.d.ctl("--json", "get", box).stdout)["warm"]

    def hits(self):
        return self.entry()["hits"]

    def environment(self, folder, **more):
        url = "http://localhost:%d" % self.port
        env = {k: v for k, v in os.environ.items() if not k.startswith(("E2B_", "AGENTBOX"))}
        for name, prefix in (("AGENTBOX", "ab_"), ("E2B", "e2b_")):
            env.update({name + "_API_URL": url, name + "_SANDBOX_URL": url, name + "_API_KEY": prefix + self.token[3:]})
        return dict(env, PYTHONPATH=os.path.join(folder, "site"), PYTHONDONTWRITEBYTECODE="1", **more)

    def sdk(self, name, *args, wrap=()):
        """What the program told of its sandbox."""
        argv, folder, missing = SDKS[name]
        if missing:
            pytest.skip(missing)
        r = subprocess.run([*wrap, *argv, *args], cwd=folder, env=self.environment(folder), capture_output=True, text=True, timeout=100,
                           stdin=subprocess.DEVNULL)
        assert r.returncode == 0, r.stderr
        return json.loads(r.stdout)

    def post(self, body, **headers):
        """Status, headers and document of a create."""
        q = urllib.request.Request("http://localhost:%d/sandboxes" % self.port, data=json.dumps(body).encode(), method="POST",
                                   headers={"X-API-Key": self.token, "Content-Type": "application/json",
                                            **{k.replace("_", "-"): v for k, v in headers.items()}})
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(q, timeout=40) as r:
                return r.status, r.headers, json.load(r)
        except urllib.error.HTTPError as e:
            return e.code, e.headers, json.load(e)

    def close(self):
        """Nothing of it stays in a cloud that others use."""
        if self.d.running():
            self.d.ctl("warm", "set", "py", "0")
            self.d.ctl("kill", "--all", "--yes", check=False)
            until(lambda: self.entry()["ready"] + self.entry()["coming"] == 0, 60, "the end of those that are ready", self.d)
        self.d.close()
        shutil.rmtree(self.home, ignore_errors=True)


@pytest.fixture(params=["scripted", "local"])
def place(request):
    """Makes one with this configuration."""
    cloud, made = request.getfixturevalue("cloud" if request.param == "scripted" else "local"), []

    def make(conf=None):
        made.append(Place(cloud, conf or {}))
        return made[-1]
    yield make
    for p in made:
        p.close()


PREFERS = {"policy": {"warm": "prefer"}}


@pytest.mark.parametrize("sdk", SDKS)
def test_a_plain_create(place, sdk):
    """All that the SDKs send by themselves is what an entry has by itself."""
    p = place(PREFERS)
    p.ready()
    for args in ((), ("base",)):
        box, said, metadata = p.sdk(sdk, *args)
        assert (said, metadata) == ("42", "b") and p.is_warm(box)
        p.ready()
    assert (p.hits(), p.entry()["misses"]) == (2, 0)


def test_a_run_prefers_them(place):
    """agentboxctl run --warm: whatever SDK makes one with the run's token. Without it, it is as configured."""
    p = place({"policy": {"release_grace": "1s"}})
    p.ready()
    for option, hits in (((), 0), (("--warm",), 1)):
        box, said, _ = p.sdk("e2b-python", wrap=[harness.AGENTBOXCTL, "-s", p.d.socket, "run", *option, "--"])
        assert said == "42" and p.hits() == hits
        until(lambda: box not in p.d.ctl("ls").stdout, 20, "its end with the run", p.d)


def test_a_header(place):
    """It wins over what is configured; a word that is none is named."""
    p = place(PREFERS)
    p.ready()
    plain = {"templateID": "base", "secure": True}
    status, head, box = p.post(plain, Agentboxd_Warm="never")
    assert status == 201 and "Agentboxd-Warm" not in head and not p.is_warm(box["sandboxID"])
    status, head, box = p.post(plain)
    assert status == 201 and head["Agentboxd-Warm"] == "true" and p.is_warm(box["sandboxID"]) and box["envdAccessToken"]
    status, _, said = p.post(plain, Agentboxd_Warm="please")
    assert status == 400 and "Agentboxd-Warm" in said["message"] and "please" in said["message"]
    status, _, said = p.post(dict(plain, envVars={"A": "1"}), Agentboxd_Warm="require")
    assert status == 400 and "envs" in said["message"]
    status, head, _ = p.post(dict(plain, envVars={"A": "1"}), Agentboxd_Warm="prefer")
    assert status == 201 and "Agentboxd-Warm" not in head


def test_words_in_the_metadata(place):
    p = place({"gateway": {"metadata_words": "yes"}})
    p.ready()
    body = {"templateID": "base", "secure": True, "metadata": {"agentboxd.warm": "require", "a": "b"}}
    status, head, box = p.post(body)
    assert status == 201 and head["Agentboxd-Warm"] == "true"
    assert json.loads(p.d.ctl("--json", "get", box["sandboxID"]).stdout)["metadata"] == {"a": "b"}
    body["metadata"]["agentboxd.warm"] = "sometimes"
    status, _, said = p.post(body)
    assert status == 400 and "sometimes" in said["message"]
