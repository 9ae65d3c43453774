# SPDX-License-Identifier: MIT
"""Templates: looked up, listed, tagged (E-3); and what is not built here, which no client may take for an answer."""
import json
import re
import subprocess
import urllib.parse
import uuid

import harness
from i_wire_snap import delete, snapshot
from wire_common import own, real  # noqa: F401

BASE = "rki5dems9wqfm4r03t7g"


def quoted(s):
    return urllib.parse.quote(s, safe="")


def alias(c, name):
    return c.api("GET", "/templates/aliases/" + quoted(name))


def tags(c, name):
    r = c.api("GET", "/templates/%s/tags" % quoted(name))
    assert r.status == 200, r
    return {t["tag"]: t for t in r.json()}


def assign(c, target, *v):
    return c.api("POST", "/templates/tags", {"target": target, "tags": list(v)})


def remove(c, name, *v):
    return c.api("DELETE", "/templates/tags", {"name": name, "tags": list(v)})


def test_found_by_name_and_id(real):
    """E-3: a template is found by its name and its id, by nobody else's namespace."""
    for name in ("base", " BASE ", BASE, "base:default"):
        r = alias(real, name)
        assert (r.status, r.json()) == (200, {"templateID": BASE, "public": True}), (name, r)
    for name in ("no-such-template", "base:v9"):
        r = alias(real, name)
        assert r.status == 404 and r.json()["code"] == 404, (name, r)
    for name in ("other-team/base", "a b", "x:y:z"):
        assert alias(real, name).status == 400, name
    s = snapshot(real, real.create(), name="looked-up:v1").json()
    team = s["snapshotID"].split("/")[0]
    r = alias(real, "looked-up")
    assert r.status == 200 and r.json()["public"] is False, r
    assert alias(real, "%s/looked-up:v1" % team).json() == r.json()
    assert real.api("GET", "/templates/aliases/%s/looked-up" % team).json() == r.json()      # an old SDK's two segments
    assert alias(real, "looked-up:v2").status == 404
    assert delete(real, s["snapshotID"]).status == 204
    assert alias(real, "looked-up").status == 404


def test_tags(real):
    """E-3: removing a tag never removes a snapshot, and a build is there as long as a tag names it."""
    box = real.create()
    real.write(box, "/home/user/f", b"one")
    one = snapshot(real, box, name="tagged:v1").json()["snapshotID"]
    name = one.rpartition(":")[0]
    r = assign(real, one, "stable", " Stable", "prod.1")
    assert r.status == 201 and sorted(r.json()["tags"]) == ["prod.1", "stable"], r
    build = r.json()["buildID"]
    assert str(uuid.UUID(build)) == build
    assert {t: v["buildID"] for t, v in tags(real, "tagged").items()} == {t: build for t in ("v1", "stable", "prod.1")}
    assert real.api("GET", "/templates/%s/tags" % name).status == 200           # raw, in two segments
    real.write(box, "/home/user/f", b"two")
    assert snapshot(real, box, name="tagged:v1").status == 201                  # another build takes the tag over
    assert tags(real, "tagged")["v1"]["buildID"] != build
    for tag, want in (("v1", b"two"), ("stable", b"one"), ("prod.1", b"one")):
        assert real.read(real.create(templateID="%s:%s" % (name, tag)), "/home/user/f").body == want, tag
    assert remove(real, "tagged", "stable", "nosuch").status == 204
    assert set(tags(real, "tagged")) == {"v1", "prod.1"}
    assert real.api("POST", "/sandboxes", {"templateID": name + ":stable"}).status == 404
    assert remove(real, "tagged", "v1", "prod.1").status == 204                 # the last ones: the snapshot stays
    assert tags(real, "tagged") == {}
    assert real.read(real.create(templateID=name), "/home/user/f").body == b"two"
    assert [s["snapshotID"] for s in real.api("GET", "/snapshots?name=tagged").json()] == [name]
    detail = real.api("GET", "/templates/" + quoted(name)).json()
    assert len(detail["builds"]) == 2 and build in [b["buildID"] for b in detail["builds"]]


def test_tags_refused(real):
    box = real.create()
    assert snapshot(real, box, name="guarded").status == 201
    for r, want in ((assign(real, "guarded"), 400), (assign(real, "guarded", "a b"), 400), (assign(real, "guarded", ""), 400),
                    (assign(real, "guarded:v9", "x"), 404), (assign(real, "nosuch", "x"), 404), (assign(real, "base", "x"), 403),
                    (assign(real, "other/guarded", "x"), 400), (remove(real, "guarded"), 400), (remove(real, "nosuch", "x"), 404),
                    (remove(real, "guarded", "default"), 400), (remove(real, "guarded:v1", "x"), 404),
                    (remove(real, "guarded:default", "x"), 400), (remove(real, "base", "x"), 403),
                    (real.api("DELETE", "/templates/tags"), 400), (real.api("POST", "/templates/tags"), 400),
                    (real.api("POST", "/templates/tags", {"target": "guarded", "tags": "x"}), 400),
                    (real.api("POST", "/templates/tags", {"target": "guarded", "tags": ["t%d" % i for i in range(65)]}), 400),
                    (real.api("GET", "/templates/nosuch/tags"), 404), (real.api("GET", "/templates/nosuch"), 404)):
        assert r.status == want and r.json()["code"] == want, (want, r)
    assert set(tags(real, "guarded")) == {"default"} and set(tags(real, "base")) == {"default"}


def test_tags_over_a_restart(own, tmp_path):
    """Tags, and builds that two of them share, are there after a restart, and so are their files."""
    c, server = own(folder=str(tmp_path))
    box = c.create()
    c.write(box, "/home/user/f", b"kept")
    snapshot(c, box, name="kept:v1")
    assign(c, "kept:v1", "stable")
    before = tags(c, "kept")
    remove(c, "kept", "v1")
    server.close()
    c, _ = own(folder=str(tmp_path))
    assert tags(c, "kept") == {"stable": before["stable"]}
    assert c.read(c.create(templateID="kept:stable"), "/home/user/f").body == b"kept"


def test_lists(own):
    """E-3: both listings, and pages."""
    c, _ = own("--template", "node=/usr", "--template", "py=/usr")
    rows = c.api("GET", "/templates").json()
    assert [r["names"] for r in rows] == [["base"], ["node"], ["py"]] and rows[0]["templateID"] == BASE
    assert rows[0]["lastSpawnedAt"] is None and rows[0]["spawnCount"] == 0
    assert c.api("GET", "/v2/templates").json() == rows
    seen, token = [], ""
    for _ in rows:
        r = c.api("GET", "/v2/templates?limit=1&nextToken=" + token)
        seen += r.json()
        token = quoted(r.header("x-next-token") or "")
    assert seen == rows and not token
    for bad in ("limit=0", "limit=101", "nextToken=x", "teamID=another"):
        assert c.api("GET", "/v2/templates?" + bad).status == 400, bad
    c.create()
    row = c.api("GET", "/templates").json()[0]
    assert row["spawnCount"] == 1 and row["lastSpawnedAt"], row
    detail = c.api("GET", "/templates/base").json()
    assert detail["builds"][0]["buildID"] == row["buildID"] and detail["builds"][0]["status"] == "ready", detail


REFUSED = ("POST /v3/templates", "POST /v2/templates", "POST /templates", "POST /templates/x", "PATCH /templates/x", "PATCH /v2/templates/x",
           "GET /templates/x/files/h", "POST /v2/templates/x/builds/b", "GET /templates/x/builds/b/status",
           "GET /templates/x/builds/b/logs", "GET /teams", "GET /nodes", "GET /nodes/x", "GET /api-keys", "POST /api-keys",
           "DELETE /api-keys/x", "POST /access-tokens", "GET /volumes", "POST /volumes", "GET /volumes/x", "DELETE /volumes/x",
           "GET /volumecontent/x/path", "DELETE /volumecontent/x/path", "GET /volumecontent/x/dir", "PUT /volumecontent/x/file",
           "GET /secrets", "POST /secrets", "GET /secrets/x", "PATCH /secrets/x", "DELETE /secrets/x", "GET /events/sandboxes",
           "POST /events/webhooks", "DELETE /events/webhooks/x")


def test_what_is_not_built(real):
    """E-3: what exists in the cloud and not here is refused by its name, with a status that no SDK takes for an answer; and
    --capabilities names each."""
    out = subprocess.run([harness.AGENTBOX_LOCAL, "--capabilities"], capture_output=True, text=True, timeout=60, check=True)
    caps = {c["name"]: c for c in json.loads(out.stdout)["capabilities"]}
    listed = caps["routes"]["text"]
    assert not any(caps[n]["available"] for n in ("routes", "template-builds", "volumes", "secrets", "teams"))
    for row in REFUSED:
        method, path = row.split(" ")
        r = real.api(method, path, {} if method in ("POST", "PUT", "PATCH") else None)
        assert r.status == 501 and r.json()["code"] == 501, (row, r)
        named = re.search(r"does not support (\S+ \S+)$", r.json()["message"]).group(1)
        assert named in listed and re.fullmatch(re.sub(r"{\w+}", "[^/]+", named), row), (row, named)
    for row in listed.partition(": ")[2].split(", "):
        method, path = row.split(" ")
        assert real.api(method, re.sub(r"{\w+}", "x", path)).status == 501, row
