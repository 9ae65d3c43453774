# SPDX-License-Identifier: MIT
"""Forks and snapshots (cases 70 to 78)."""
import threading
import urllib.parse

import harness
from i_wire_sandbox import moment
from wire_common import own, real  # noqa: F401

ABSENT = "/sandboxes/i00000000000000000000"
LIMITS = "x-agentbox-local-limits"


def path(box, tail=""):
    return "/sandboxes/%s%s" % (box["sandboxID"], tail)


def fork(c, box, body=None):
    r = c.api("POST", path(box, "/fork"), body)
    if r.status == 201:
        c.made += [k["sandbox"]["sandboxID"] for k in r.json() if "sandbox" in k]
    return r


def snapshot(c, box, **body):
    return c.api("POST", path(box, "/snapshots"), body)


def delete(c, snapshot_id, raw=False):
    return c.api("DELETE", "/templates/" + (snapshot_id if raw else urllib.parse.quote(snapshot_id, safe="")))


def test_case_070_fork(real):
    box = real.create(metadata={"a": "é"}, envVars={"E": "1"}, autoPause=True,
                      network={"allowPublicTraffic": False, "denyOut": ["10.0.0.0/8"]})
    real.write(box, "/home/user/f", b"data")
    before = real.get(box).json()
    r = fork(real, box, {"count": 2, "timeout": 300})
    assert r.status == 201 and len(r.json()) == 2 and "no-memory" in r.header(LIMITS), r
    kids = [k["sandbox"] for k in r.json()]
    ids = {box["sandboxID"]} | {k["sandboxID"] for k in kids}
    tokens = {box["envdAccessToken"]} | {k["envdAccessToken"] for k in kids}
    assert len(ids) == 3 and len(tokens) == 3 and len({k["trafficAccessToken"] for k in kids}) == 2
    assert real.get(box).json() == before
    for k in kids:
        d = real.get(k).json()
        assert d["metadata"] == {"a": "é"} and d["lifecycle"]["onTimeout"] == "pause"
        assert d["network"] == before["network"] and d["templateID"] == before["templateID"]
        assert real.read(k, "/home/user/f").body == b"data"
        assert real.run(k, "echo $E")[1] == b"1\n"
        real.write(k, "/home/user/f", b"own")
    assert real.read(box, "/home/user/f").body == b"data"


def test_case_070_what_is_on_the_way_is_in_it_or_not(real):
    """A fork while a program writes: each child has a whole state, and the source goes on."""
    box = real.create()
    with real.start(box, "i=0; while :; do i=$((i+1)); echo $i >a.new; mv a.new a; echo $i >b.new; mv b.new b; done") as s:
        s.next()
        harness.until(lambda: real.read(box, "/home/user/b").status == 200, 5, "the writer")
        kids = [k["sandbox"] for k in fork(real, box, {"count": 3, "timeout": 60}).json()]
        for k in kids:
            a, b = (int(real.read(k, "/home/user/" + n).body) for n in "ab")
            assert a - b in (0, 1), (a, b)
        at = int(real.read(box, "/home/user/b").body)
        harness.until(lambda: int(real.read(box, "/home/user/b").body) > at, 5, "the writer to go on")


def test_case_071_fork_refused(real):
    box = real.create()
    for bad in ({"count": 0}, {"count": 101}, {"count": "2"}, {"timeout": 0}, {"timeout": 24 * 3600 + 1}):
        assert fork(real, box, bad).status == 400, bad
    assert real.api("POST", ABSENT + "/fork", {}).status == 404
    r = fork(real, box)     # no body at all
    assert r.status == 201 and len(r.json()) == 1, r
    d = real.get(r.json()[0]["sandbox"]).json()
    assert 14 <= moment(d["endAt"]) - moment(d["startedAt"]) <= 15.5
    real.api("POST", path(box, "/pause"))
    assert fork(real, box, {}).status == 409


def test_case_071_072_limits(own):
    c, _ = own("--max-sandboxes", "3")
    box = c.create()
    assert fork(c, box, {"count": 3}).status == 400
    other = c.create()
    r = fork(c, box, {"count": 2, "timeout": 60})
    assert r.status == 201, r
    kinds = sorted(next(iter(k)) for k in r.json())
    assert kinds == ["error", "sandbox"]
    error = next(k["error"] for k in r.json() if "error" in k)
    assert error["code"] == 429 and error["message"], error
    assert c.kill(other).status == 204


def test_case_073_fork_keeps_memory(real):
    real.needs("fork-memory")
    box = real.create()
    with real.start(box, "sleep 1000") as s:
        pid = s.next()["event"]["start"]["pid"]
        kid = fork(real, box, {"timeout": 60}).json()[0]["sandbox"]
        assert pid in [p["pid"] for p in real.processes(kid)]


def test_case_074_snapshot(real):
    box = real.create()
    r = snapshot(real, box)
    assert r.status == 201 and "no-memory" in r.header(LIMITS), r
    s = r.json()
    assert s["snapshotID"].endswith(":default") and s["names"] == []
    assert real.run(box, "echo on")[1] == b"on\n"
    assert delete(real, s["snapshotID"]).status == 204
    assert real.api("POST", path(box, "/snapshots")).status == 400      # the body is required
    assert real.api("POST", ABSENT + "/snapshots", {}).status == 404


def test_case_075_names(real):
    box = real.create()
    one = snapshot(real, box, name=" My-Snap:v1 ").json()
    team = one["snapshotID"].split("/")[0]
    assert one["snapshotID"] == team + "/my-snap:v1" and one["names"] == [team + "/my-snap"]
    two = snapshot(real, box, name=team + "/my-snap:v1").json()
    assert two == one
    plain = snapshot(real, box, name="my-snap").json()
    assert plain["snapshotID"] == team + "/my-snap:default"
    ids = {real.create(templateID=t)["templateID"] for t in (one["snapshotID"], "MY-SNAP:v1", "my-snap", team + "/my-snap")}
    assert len(ids) == 1
    for bad in ("other/my-snap", "a b", "", ":v1", "a/b/c", "x:", "base", 7):
        r = snapshot(real, box, name=bad)
        assert r.status == 400 and r.json()["code"] == 400, (bad, r)
    assert real.api("POST", "/sandboxes", {"templateID": "my-snap:v9", "timeout": 30}).status == 404
    real.close()
    assert delete(real, "my-snap").status == 204


def test_case_076_from_a_snapshot(real):
    box = real.create()
    real.run(box, "mkdir -p d && echo one >d/f && ln -s f d/l && chmod 640 d/f && echo x >/tmp/t && rm /etc/hostname",
             user="root")
    s = snapshot(real, box, name="files:v1").json()
    real.run(box, "echo two >/root/d/f", user="root")
    assert real.kill(box).status == 204
    rows = real.api("GET", "/snapshots?sandboxID=" + box["sandboxID"]).json()
    assert [r["snapshotID"] for r in rows] == [s["snapshotID"]]
    new = real.create(templateID=s["snapshotID"])
    assert new["sandboxID"] != box["sandboxID"] and new["alias"] == "files"
    out = real.run(new, "cat /root/d/l; stat -c %a /root/d/f; cat /tmp/t; ls /etc/hostname 2>&1 | wc -l", user="root")[1]
    assert out == b"one\n640\nx\n1\n", out
    assert real.api("GET", "/v2/sandboxes?template=files").json()[0]["sandboxID"] == new["sandboxID"]
    assert real.api("GET", "/snapshots?name=files:v9").json() == []
    assert real.api("GET", "/snapshots?name=nosuch").json() == []
    assert real.api("GET", "/snapshots?name=other/files").status == 400
    assert real.api("GET", "/snapshots?sandboxID=A-b-c").status == 400
    real.close()
    assert delete(real, "files:v1").status == 204


def test_case_077_delete(real):
    box = real.create()
    s = snapshot(real, box, name="gone:v1").json()
    snapshot(real, box, name="gone:v2")
    new = real.create(templateID="gone:v2")
    r = delete(real, s["snapshotID"])
    assert r.status == 400 and r.json()["code"] == 400, r
    real.api("POST", path(new, "/pause"))
    assert delete(real, s["snapshotID"]).status == 400
    assert real.kill(new).status == 204
    assert delete(real, s["snapshotID"]).status == 204      # with all its tags
    r = delete(real, s["snapshotID"])
    assert r.status == 404 and r.json()["code"] == 404, r
    assert real.api("GET", "/snapshots?name=gone:v2").json() == []
    assert delete(real, "nosuch").status == 404
    assert delete(real, "bad name!").status == 400
    assert delete(real, "base").status == 403
    s = snapshot(real, box, name="raw").json()
    assert delete(real, s["snapshotID"], raw=True).status == 204
    assert real.get(box).status == 200                      # the source is its own


def test_case_078_paging(real):
    box = real.create()
    names = ["p%d" % i for i in range(5)]
    made = [snapshot(real, box, name=n).json()["snapshotID"] for n in names]
    got, token = [], ""
    for _ in range(10):
        r = real.api("GET", "/snapshots?sandboxID=%s&limit=2%s" % (box["sandboxID"], token))
        got += [s["snapshotID"] for s in r.json()]
        if not r.header("x-next-token"):
            break
        token = "&nextToken=" + urllib.parse.quote(r.header("x-next-token"), safe="")
    assert got == made[::-1]
    for bad in ("limit=0", "limit=101", "nextToken=x"):
        assert real.api("GET", "/snapshots?" + bad).status == 400, bad
    for s in made:
        assert delete(real, s).status == 204


def test_snapshots_belong_to_a_team(own):
    c, cloud = own()
    box = c.create()
    s = snapshot(c, box, name="mine").json()["snapshotID"]
    other = cloud.other_key
    assert c.api("GET", "/snapshots", key=other).json() == []
    assert c.api("DELETE", "/templates/" + urllib.parse.quote(s, safe=""), key=other).status == 404
    assert c.api("POST", "/sandboxes", {"templateID": s, "timeout": 30}, key=other).status == 404


def test_one_at_a_time(real):
    """Two snapshots of one sandbox at once: one waits for nobody, the other may be told to come back."""
    box = real.create()
    real.run(box, "head -c 30000000 /dev/urandom >big")
    got = []
    threads = [threading.Thread(target=lambda: got.append(snapshot(real, box))) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert sorted(r.status for r in got)[0] == 201 and {r.status for r in got} <= {201, 409}, got
    for r in got:
        if r.status == 201:
            assert delete(real, r.json()["snapshotID"]).status == 204


def test_snapshots_survive_a_restart(own, tmp_path):
    c, cloud = own(folder=str(tmp_path))
    box = c.create()
    c.write(box, "/home/user/f", b"data")
    s = snapshot(c, box, name="kept:v1").json()
    cloud.close()
    c, cloud = own(folder=str(tmp_path))
    assert c.api("GET", "/snapshots").json() == [s]
    new = c.create(templateID="kept:v1")
    assert c.read(new, "/home/user/f").body == b"data"
    c.kill(new)
    assert delete(c, s["snapshotID"]).status == 204
    cloud.close()
    assert not list((tmp_path / "local" / "layers").iterdir())


def test_what_has_no_place_now_comes_back(own, tmp_path):
    """Snapshots and paused sandboxes of a team without a key wait for it."""
    c, cloud = own(folder=str(tmp_path))
    keys = (tmp_path / "key").read_text()
    box, paused = c.create(), c.create()
    c.write(paused, "/home/user/f", b"data")
    s = snapshot(c, box, name="kept").json()
    assert c.api("POST", path(paused, "/pause"), {"memory": False}).status == 204
    cloud.close()
    (tmp_path / "key").write_text("".join(line + "\n" for line in keys.splitlines() if "team-b" in line))
    c, cloud = own(folder=str(tmp_path))
    assert c.api("GET", "/snapshots").status == 401
    c.key = cloud.other_key
    assert snapshot(c, c.create(), name="theirs").status == 201
    assert c.get(paused).status == 404
    cloud.close()
    (tmp_path / "key").write_text(keys)
    c, cloud = own(folder=str(tmp_path))
    assert c.api("GET", "/snapshots").json() == [s]
    assert c.api("POST", path(paused, "/connect"), {"timeout": 60}).status == 201
    assert c.read(paused, "/home/user/f").body == b"data"


def test_a_damaged_note_is_not_overwritten(own, tmp_path):
    (tmp_path / "local").mkdir(mode=0o700)
    (tmp_path / "local" / "kept.json").write_text("{")
    try:
        own(folder=str(tmp_path))
    except AssertionError as e:
        assert "kept.json" in str(e)
    else:
        raise AssertionError("it started")
    assert (tmp_path / "local" / "kept.json").read_text() == "{"


def test_a_fork_leaves_no_layer(own, tmp_path):
    c, cloud = own(folder=str(tmp_path))
    box = c.create()
    assert fork(c, box, {"count": 2}).status == 201
    harness.until(lambda: not list((tmp_path / "local" / "layers").iterdir()), 5, "the fork's layer to go")


def test_as_an_ordinary_user(own):
    """One id, no control groups: the same answers."""
    c, _ = own(uid=61234)
    box = c.create()
    c.run(box, "mkdir -p d && echo one >d/f && chmod 0 d/f; sleep 1000 >/dev/null 2>&1 &")
    assert c.run(box, "echo r >/root/r", user="root")[3].get("exitCode", 0) == 0
    s = snapshot(c, box, name="u:v1").json()["snapshotID"]
    kid = fork(c, box, {"timeout": 60}).json()[0]["sandbox"]
    new = c.create(templateID=s)
    for b in (kid, new):
        assert c.run(b, "stat -c '%a %U' d/f; chmod 600 d/f; cat d/f")[1] == b"0 user\none\n"
        assert c.run(b, "cat /root/r", user="root")[1] == b"r\n"
    for memory in (True, False):
        assert c.api("POST", path(box, "/pause"), {"memory": memory}).status == 204
        assert c.api("POST", path(box, "/connect"), {"timeout": 60}).status == 201
        assert (b"sleep" in c.run(box, "pgrep -l sleep; true")[1]) == memory
