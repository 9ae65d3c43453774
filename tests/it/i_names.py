# SPDX-License-Identifier: MIT
"""A-1, A-2: a daemon that is given nothing but AGENTBOX_API_KEY goes to AgentBox's names and says no word of E2B's, seen by a resolver
that leads every name to one cloud, and with a CA that the system trusts; in a network and mounts of its own, as root."""
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

import harness
import netns
from api import Api
from dnsstub import DnsStub
from fakecloud import FakeCloud

KEY = "ab_Key-of-some-form"
CERTS = "/etc/ssl/certs"
BUNDLE = CERTS + "/ca-certificates.crt"
NAMES = "DNS:agentbox-runtime.ru,DNS:*.agentbox-runtime.ru,DNS:e2b.app,DNS:*.e2b.app"


class Everywhere(dict):
    """Every name leads here: whoever is asked for is seen."""

    def get(self, name, default=None):
        return dict.get(self, name, ["127.0.0.1"])


def trust_alone(ca):
    """The system's folder of CAs has this one alone, in the bundle and by its hash."""
    folder = harness.temp_dir("certs-")
    os.chmod(folder, 0o755)
    name = subprocess.run(["openssl", "x509", "-hash", "-noout", "-in", ca], capture_output=True, text=True, check=True).stdout.strip()
    for to in ("ca-certificates.crt", name + ".0"):
        shutil.copy(ca, os.path.join(folder, to))
        os.chmod(os.path.join(folder, to), 0o644)
    subprocess.run(["mount", "--bind", folder, CERTS], check=True)


def trust_by_bundle(ca):
    """A container's way: a bundle that has this one too is mounted over the system's; the links by hash know nothing of it."""
    file = os.path.join(harness.temp_dir("certs-"), "bundle.crt")
    with open(file, "wb") as to:
        for part in (BUNDLE, ca):
            with open(part, "rb") as f:
                to.write(f.read())
    subprocess.run(["mount", "--bind", file, BUNDLE], check=True)


def play(api):
    box = api.call("SandboxService.Create", sandbox_timeout=300).id
    private = api.call("SandboxService.Create", network={"allow_public_traffic": False}).id
    for b in (box, private):
        assert api.run(b, "echo hi")[1] == b"hi\n"
    api.write_file(box, "f", b"data")
    assert api.read_file(box, "f") == b"data"
    made = api.call("SnapshotService.Create", sandbox=box, name="snap").id
    api.call("SnapshotService.Delete", snapshot=made)
    api.call("SandboxService.Pause", sandbox=box)
    api.call("SandboxService.ConnectSandbox", sandbox=box)
    api.call("SandboxService.List")
    api.call("TemplateService.List")
    api.call("SandboxService.SetTimeout", sandbox=box, sandbox_timeout=900)
    said = [api.call("SandboxService.GetHost", sandbox=private, port=3000).host,
            api.call("FileService.SignUrl", sandbox=box, path="/x", operation="READ").url]
    for b in (box, private):
        api.call("SandboxService.Kill", sandbox=b)
    return said


def words(text):
    """Without ids and tokens, in which chance may write anything."""
    return re.sub(r"[0-9a-z]{16,}", "", text.lower())


def only_the_key(who):
    home = harness.temp_dir("names-")
    env = {"PATH": os.environ["PATH"], "HOME": home, "AGENTBOX_API_KEY": KEY}
    argv = [harness.AGENTBOXD, "--state-dir", home + "/state", "--socket", home + "/s"]
    if who == "user":
        os.chown(home, 4242, 4242)
        argv = harness.as_user(4242, argv)
    with FakeCloud(port=443) as cloud, DnsStub() as dns, open(home + "/log", "wb") as log:
        dns.names = Everywhere()
        cloud.use_certificate(*cloud.authority.issue("named", NAMES))
        cloud.keys, cloud.key = {KEY: cloud.team}, KEY
        (trust_alone if who == "user" else trust_by_bundle)(cloud.ca)
        with subprocess.Popen(argv, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL) as p:
            try:
                harness.until(lambda: os.path.exists(home + "/s"), 20, "the socket")
                with Api(home + "/s") as api:
                    said = play(api)
            finally:
                p.terminate()
        requests = cloud.ledger.requests
        sent = [part for r in requests for part in [r.target, r.body.decode("latin1")] + ["%s: %s" % h for h in r.headers]]
        print(json.dumps({"asked": sorted({n[0] for n in dns.asked}), "said": said, "requests": len(requests), "code": p.returncode,
                          "keys": sorted({str(r.header("x-api-key")) for r in requests if r.header("x-api-key")}),
                          "e2b": [part[:200] for part in sent + said if "e2b" in words(part)], "errors": len(cloud.errors)}))


@pytest.mark.parametrize("who", ["user", "root"])
def test_only_the_key(who):
    r = netns.run(__file__, "only_the_key", args=[who])
    print("as %s: %d requests; names asked for: %s" % (who, r["requests"], ", ".join(r["asked"])))
    print("words of E2B in what was sent or said: %d, limit 0: %s" % (len(r["e2b"]), "DOES NOT HOLD" if r["e2b"] else "holds"))
    assert r["code"] == 0 and not r["errors"] and r["requests"] >= 15 and r["e2b"] == []
    assert {n.rstrip(".") for n in r["asked"]} == {"api.agentbox-runtime.ru", "sandbox.agentbox-runtime.ru"}
    assert r["keys"] == [KEY] and r["said"][0].endswith(".agentbox-runtime.ru")


if __name__ == "__main__":
    sys.exit(netns.main(globals()))
