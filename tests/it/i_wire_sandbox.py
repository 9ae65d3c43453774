# SPDX-License-Identifier: MIT
"""Sandboxes over REST: credentials, create, get, kill, timeouts (cases 23 to 41, 49 to 57; pauses are in i_wire_pause)."""
import datetime
import json
import os
import re
import threading
import time
import uuid

import pytest

import harness
from conftest import built
from harness import until
from wire import CUT, Client, RpcFailed, error_of
from wire_common import fake, own, real, server  # noqa: F401

ABSENT = "/sandboxes/i00000000000000000000"


def moment(text):
    m = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", text)
    assert m, text
    t = datetime.datetime.fromisoformat(m.group(1) + "+00:00").timestamp()
    return t + float("0." + (m.group(2) or "0"))


def end_at(server, box):
    return moment(server.get(box).json()["endAt"])


def left(server, box):
    now = server.cloud.now() if server.fake else time.time()
    return end_at(server, box) - now


def refused(r, status):
    assert r.status == status, r
    assert r.header("content-type").startswith("application/json"), r
    body = r.json()
    assert body["code"] == status and isinstance(body["message"], str) and body["message"], r
    return body


def test_case_023_api_key(server):
    for key in (False, "abc", "e2b_xyz", "e2b_" + "0" * 40):
        refused(server.api("GET", "/v2/sandboxes", key=key), 401)
    # before the parameters and the body are looked at
    refused(server.api("GET", "/v2/sandboxes?limit=0", key=False), 401)
    refused(server.api("POST", "/sandboxes", b"{not json", key=False), 401)


def test_case_025_other_teams_sandbox(fake):
    box, other = fake.create(), fake.cloud.other_key
    path = "/sandboxes/" + box["sandboxID"]
    for method, tail, body in (("GET", "", None), ("DELETE", "", None), ("POST", "/pause", None),
                               ("POST", "/timeout", {"timeout": 5}), ("POST", "/connect", {"timeout": 5}),
                               ("POST", "/fork", {}), ("POST", "/snapshots", {}), ("PUT", "/network", {})):
        refused(fake.api(method, path + tail, body, key=other), 404)
    assert fake.get(box).status == 200


def test_case_026_secure_without_token(server):
    box = server.create()
    for rpc, content_type in (("filesystem.Filesystem/Stat", "application/json"),
                              ("process.Process/Start", "application/connect+json")):
        for headers in ([], [("X-Access-Token", "wrong")]):
            r = server.raw_unary(box, rpc, b"{}", content_type, headers, token=False)
            assert r.status == 401 and r.json()["code"] == 401, r


def test_case_027_not_secure(server):
    box = server.create(secure=False)
    assert "envdAccessToken" not in box
    assert server.stat(box, "/home/user")["type"] == "FILE_TYPE_DIRECTORY"


def test_case_028_health_needs_no_token(server):
    box = server.create()
    r = server.envd(box, "GET", "/health", token=False)
    assert r.status == 204 and r.body == b"" and r.header("cache-control") == "no-store", r


def test_case_029_unknown_user(server):
    box = server.create()
    with pytest.raises(RpcFailed) as e:
        server.stat(box, "/", user="nobody-here")
    assert e.value.code == "unauthenticated" and e.value.status == 401
    s = server.start(box, "echo no", user="nobody-here")
    assert s.status == 200 and error_of(s) == "unauthenticated"


def test_case_032_create(server):
    r = server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 300, "secure": True,
                                          "allow_internet_access": True, "metadata": {}, "envVars": {}})
    assert r.status == 201, r
    box = r.json()
    server.made.append(box["sandboxID"])
    assert re.fullmatch(r"i[a-z0-9]{20}", box["sandboxID"])
    assert box["clientID"] and re.fullmatch(r"v?\d+\.\d+\.\d+", box["envdVersion"]) and box["envdAccessToken"]
    assert box["templateID"] and box["templateID"] != ""
    assert r.header("content-type").startswith("application/json")


def test_case_033_timeouts_of_create(server):
    r = server.api("POST", "/sandboxes", {"templateID": "base", "secure": True})
    box = r.json()
    server.made.append(box["sandboxID"])
    assert 10 < left(server, box) <= 15.5
    for bad in (0, -1, 24 * 3600 + 1, "10", 1.5, 2 ** 40):
        refused(server.api("POST", "/sandboxes", {"templateID": "base", "timeout": bad}), 400)


def test_case_034_templates(server):
    refused(server.api("POST", "/sandboxes", {"templateID": "nosuch", "timeout": 30}), 404)
    refused(server.api("POST", "/sandboxes", {"templateID": "base:nosuchtag", "timeout": 30}), 404)
    refused(server.api("POST", "/sandboxes", {"templateID": "bad name!", "timeout": 30}), 400)
    refused(server.api("POST", "/sandboxes", {"timeout": 30}), 400)
    refused(server.api("POST", "/sandboxes", {"templateID": 7}), 400)
    one, two = server.create(templateID="BASE"), server.create(templateID="base")
    assert one["templateID"] == two["templateID"]


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"", b"\xff\xfe", b'{"templateID":"base","metadata":{"a":1}}',
                                  b'{"templateID":"base","metadata":[]}', b'{"templateID":"base","timeout":null,"envVars":7}'])
def test_create_with_a_bad_body(server, body):
    refused(server.api("POST", "/sandboxes", body), 400)


def test_case_035_auto_pause_combinations(server):
    refused(server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 30, "autoPauseMemory": False}), 400)
    refused(server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 30, "autoPauseMemory": False,
                                              "autoPause": True, "autoResume": {"enabled": True}}), 400)


def test_case_035_every_combination(server):
    """autoPause, autoPauseMemory and autoResume, each absent, false or true: what is refused, and what is read back."""
    for pause in (None, False, True):
        for memory in (None, False, True):
            for resume in (None, False, True):
                given = {"autoPause": pause, "autoPauseMemory": memory,
                         "autoResume": None if resume is None else {"enabled": resume}}
                body = {k: v for k, v in given.items() if v is not None}
                r = server.api("POST", "/sandboxes", dict(body, templateID="base", timeout=30, secure=True))
                if memory is False and (not pause or resume):
                    refused(r, 400)
                    continue
                assert r.status == 201, (given, r)
                box = r.json()
                assert server.get(box).json()["lifecycle"] == {"onTimeout": "pause" if pause else "kill",
                                                               "autoResume": bool(resume)}, given
                assert server.kill(box).status == 204


def test_case_036_private_traffic(server):
    body = {"templateID": "base", "timeout": 30, "network": {"allowPublicTraffic": False}}
    refused(server.api("POST", "/sandboxes", dict(body, secure=False)), 400)
    r = server.api("POST", "/sandboxes", dict(body, secure=True))
    assert r.status == 201, r
    server.made.append(r.json()["sandboxID"])
    assert r.json()["trafficAccessToken"]
    assert not server.create().get("trafficAccessToken")


def test_case_037_environment(server):
    box = server.create(envVars={"A": "1", "LONG": "x" * 5000, "U": "\u00fc\n'\""})
    assert server.run(box, 'printf %s "$A"')[1] == b"1"
    assert server.run(box, 'printf %s "$A"', envs={"A": "2"})[1] == b"2"
    assert server.run(box, 'printf %s "$U"')[1] == "\u00fc\n'\"".encode()
    assert server.run(box, 'printf %s "$LONG"')[1] == b"x" * 5000
    out = server.run(box, 'echo "$E2B_SANDBOX_ID $USER $LOGNAME $HOME"')[1].decode().split()
    assert out == [box["sandboxID"], "user", "user", "/home/user"]
    assert server.envd(box, "GET", "/envs").json()["A"] == "1"


def test_case_038_concurrency(fake):
    fake.cloud.team.concurrency = 2
    one, _ = fake.create(), fake.create()
    r = fake.api("POST", "/sandboxes", {"templateID": "base", "timeout": 30})
    refused(r, 429)
    assert r.header("retry-after") is None
    fake.kill(one)
    fake.create()


def test_case_039_get(server):
    box = server.create(metadata={"job": "42", "ключ": "значение"})
    d = server.get(box).json()
    assert d["sandboxID"] == box["sandboxID"] and d["state"] == "running"
    assert d["metadata"] == {"job": "42", "ключ": "значение"} and d["volumeMounts"] == []
    assert d["lifecycle"] == {"autoResume": False, "onTimeout": "kill"}
    assert d["envdAccessToken"] == box["envdAccessToken"] and d["templateID"] == box["templateID"]
    assert d["cpuCount"] >= 1 and d["memoryMB"] >= 128 and d["diskSizeMB"] >= 0
    assert abs(moment(d["startedAt"]) - time.time()) < 30 and 50 < moment(d["endAt"]) - moment(d["startedAt"]) < 61
    assert server.api("GET", "/sandboxes/%s-6532622b" % box["sandboxID"]).json()["sandboxID"] == box["sandboxID"]
    refused(server.api("GET", "/sandboxes/a-b-c"), 400)
    refused(server.api("GET", "/sandboxes/ABC"), 400)
    refused(server.api("GET", ABSENT), 404)


def test_case_040_kill(server):
    box = server.create()
    r = server.kill(box)
    assert r.status == 204 and r.body == b"" and r.header("content-type") is None, r
    refused(server.get(box), 404)
    refused(server.kill(box), 404)
    assert server.envd(box, "GET", "/health").status == 502


def test_case_040_kill_ends_open_streams(server):
    box = server.create()
    with server.start(box, "sleep 100") as s:
        assert s.next()["event"]["start"]["pid"] > 0
        assert server.kill(box).status == 204
        try:
            events = [next(iter(m["event"])) for m in s]
        except CUT:             # the connection may as well break
            return
    assert "end" in events or s.end.get("error"), (events, s.end)


def test_case_049_connect_running(server):
    box = server.create(timeout=60)
    path = "/sandboxes/%s/connect" % box["sandboxID"]
    r = server.api("POST", path, {"timeout": 600})
    assert r.status == 200 and r.json()["envdAccessToken"] == box["envdAccessToken"], r
    assert 590 < left(server, box) <= 601
    before = end_at(server, box)
    assert server.api("POST", path, {"timeout": 10}).status == 200
    assert end_at(server, box) == before
    assert server.api("POST", path, {"timeout": 0}).status == 200
    assert end_at(server, box) == before


def test_case_051_connect_refused(server):
    box = server.create()
    path = "/sandboxes/%s/connect" % box["sandboxID"]
    refused(server.api("POST", path, {}), 400)
    refused(server.api("POST", path, {"timeout": -1}), 400)
    refused(server.api("POST", path, {"timeout": 24 * 3600 + 1}), 400)
    refused(server.api("POST", ABSENT + "/connect", {"timeout": 10}), 404)


def test_case_051_connect_while_killing(fake):
    box = fake.create()
    gate = fake.cloud.gates["kill"] = fake.cloud.gate()
    killer = threading.Thread(target=fake.kill, args=(box,))
    killer.start()
    gate.wait()
    refused(fake.api("POST", "/sandboxes/%s/connect" % box["sandboxID"], {"timeout": 10}), 409)
    refused(fake.get(box), 404)
    assert fake.envd(box, "GET", "/health").status == 502
    gate.release()
    killer.join()


def test_case_052_two_kills_at_once(fake):
    box = fake.create()
    gate = fake.cloud.gates["kill"] = fake.cloud.gate()
    got = []
    killers = [threading.Thread(target=lambda: got.append(fake.kill(box).status)) for _ in range(2)]
    for k in killers:
        k.start()
    gate.wait()
    fake.cloud.ledger.wait_requests("delete", 2)
    gate.release()
    for k in killers:
        k.join()
    assert got == [204, 204]


def test_case_053_connect_while_pausing(fake):
    box = fake.create()
    gate = fake.cloud.gates["pause"] = fake.cloud.gate()
    pauser = threading.Thread(target=fake.api, args=("POST", "/sandboxes/%s/pause" % box["sandboxID"]))
    pauser.start()
    gate.wait()
    got = []
    connector = threading.Thread(target=lambda: got.append(
        fake.api("POST", "/sandboxes/%s/connect" % box["sandboxID"], {"timeout": 10}).status))
    connector.start()
    fake.cloud.ledger.wait_requests("connect")
    refused(fake.api("POST", "/sandboxes/%s/timeout" % box["sandboxID"], {"timeout": 10}), 409)
    gate.release()
    pauser.join()
    connector.join()
    assert got == [201]


def test_case_054_timeout(server):
    box = server.create()
    path = "/sandboxes/%s/timeout" % box["sandboxID"]
    r = server.api("POST", path, {"timeout": 1000})
    assert r.status == 204 and r.body == b"", r
    assert 990 < left(server, box) <= 1001
    assert server.api("POST", path, {"timeout": 5}).status == 204
    assert left(server, box) <= 5.5
    for bad in ({"timeout": -1}, {}, {"timeout": "x"}, b"{"):
        refused(server.api("POST", path, bad), 400)
    assert server.api("POST", path, {"timeout": 0}).status == 204
    until(lambda: server.api("POST", path, {"timeout": 5}).status == 404, 5, "the end of the sandbox")
    refused(server.get(box), 404)
    refused(server.api("POST", ABSENT + "/timeout", {"timeout": 5}), 404)


def test_case_054_timeout_of_a_paused_one(server):
    box = server.create()
    server.api("POST", "/sandboxes/%s/pause" % box["sandboxID"])
    refused(server.api("POST", "/sandboxes/%s/timeout" % box["sandboxID"], {"timeout": 5}), 404)


def test_case_055_timeout_beyond_the_maximum(server):
    box = server.create()
    assert server.api("POST", "/sandboxes/%s/timeout" % box["sandboxID"], {"timeout": 30 * 3600}).status == 204
    d = server.get(box).json()
    assert abs(moment(d["endAt"]) - moment(d["startedAt"]) - 24 * 3600) < 1


def test_case_056_refreshes(server):
    box = server.create(timeout=20)
    path = "/sandboxes/%s/refreshes" % box["sandboxID"]
    before = end_at(server, box)
    assert server.api("POST", path, {}).status == 204
    assert end_at(server, box) >= before and left(server, box) >= 14
    assert server.api("POST", path, {"duration": 500}).status == 204
    assert 490 < left(server, box) <= 501
    before = end_at(server, box)
    assert server.api("POST", path, {"duration": 0}).status == 204
    assert end_at(server, box) == before
    refused(server.api("POST", path, {"duration": 3601}), 400)
    refused(server.api("POST", path, {"duration": -1}), 400)
    refused(server.api("POST", ABSENT + "/refreshes", {}), 404)


def test_case_057_expiry_kills(server):
    box = server.create(timeout=1)
    with server.start(box, "sleep 1000") as s:
        s.next()
        until(lambda: server.get(box).status == 404, 6, "the expiry")
    r = server.envd(box, "GET", "/health")
    assert r.status == 502 and "port" not in r.json()


def test_case_057_058_auto_pause(fake):
    box = fake.create(timeout=30, autoPause=True, autoResume={"enabled": True})
    other = fake.create(timeout=30, autoPause=True)
    fake.cloud.advance(31)
    d = fake.get(box).json()
    assert d["state"] == "paused" and d["lifecycle"] == {"autoResume": True, "onTimeout": "pause"}
    assert fake.envd(other, "GET", "/health").status == 502
    assert fake.envd(box, "GET", "/health", token=False).status == 403
    assert fake.envd(box, "GET", "/health").status == 204
    assert fake.get(box).json()["state"] == "running" and left(fake, box) > 290


def test_newer_generation_of_the_api(server):
    """POST /v2/sandboxes is always secure and lives 300 s; /v2/…/connect needs no body."""
    r = server.request("POST", "/v2/sandboxes", [("X-API-Key", server.key), ("Content-Type", "application/json")],
                       iter([b'{"templateID"', b':"base"}']))
    assert r.status == 201, r
    box = r.json()
    server.made.append(box["sandboxID"])
    assert box["envdAccessToken"] and 290 < left(server, box) <= 301
    r = server.api("POST", "/v2/sandboxes/%s/connect" % box["sandboxID"])
    assert r.status == 200 and r.json()["sandboxID"] == box["sandboxID"], r


def test_local_has_teams_and_limits():
    """Cases 25 and 38 against an agentbox-local of their own, with two keys and room for two sandboxes."""
    built(harness.AGENTBOX_LOCAL)
    cloud = harness.LocalCloud(tls=False, args=["--max-sandboxes", "2"])
    try:
        c = Client(cloud.plain_url, cloud.key)
        one, two = c.create(), c.create()
        r = c.api("POST", "/sandboxes", {"templateID": "base", "timeout": 30})
        refused(r, 429)
        assert r.header("retry-after") is None
        other = cloud.other_key
        for method, tail, body in (("GET", "", None), ("DELETE", "", None), ("POST", "/timeout", {"timeout": 5}),
                                   ("POST", "/connect", {"timeout": 5}), ("POST", "/refreshes", {}), ("POST", "/pause", {}),
                                   ("POST", "/fork", {}), ("POST", "/snapshots", {}), ("PUT", "/network", {})):
            refused(c.api(method, "/sandboxes/" + one["sandboxID"] + tail, body, key=other), 404)
        assert c.api("GET", "/v2/sandboxes", key=other).json() == []
        assert c.kill(one).status == 204
        c.create()
    finally:
        cloud.close()


def test_the_journal_has_no_secrets(own):
    """What was asked for is noted, accepted or refused, but not the texts of fields that may hold secrets."""
    c, cloud = own()
    rules = {"example.com": [{"transform": {"headers": {"Authorization": "hush-rule"}}}]}
    proxy = {"address": "proxy.example.com:80", "username": "u", "password": "hush-proxy"}
    c.create(envVars={"NAME": "hush-env"}, metadata={"key": "told"})
    box = c.create()
    for method, path, body in (("POST", "/sandboxes", {"templateID": "base", "network": {"egressProxy": proxy}}),
                               ("PUT", "/sandboxes/%s/network" % box["sandboxID"], {"egressProxy": proxy}),
                               ("POST", "/sandboxes", {"templateID": "base", "network": {"rules": rules}}),
                               ("PUT", "/sandboxes/%s/network" % box["sandboxID"], {"rules": rules})):
        assert c.api(method, path, body).status in (201, 204, 400, 403)
    for extra, status in (({"mcp": {"x": {"key": "hush-mcp"}}}, 201), ({"iam": {"tokens": {"a": "hush-iam"}}}, 400)):
        assert c.api("POST", "/sandboxes", dict(extra, templateID="base")).status == status, extra
    with open(os.path.join(cloud.state_dir, "journal.ndjson")) as f:
        journal = f.read()
    assert "hush" not in journal, journal
    for told in ("told", "NAME", "egressProxy", "Authorization"):
        assert told in journal, told


def inside(client, box, script, user="root"):
    _, out, err, end, _ = client.run(box, argv=["/bin/sh", "-c", script], user=user)
    return (out + err).decode("utf-8", "replace"), end.get("exitCode", 0)


@pytest.mark.parametrize("user", ["root", "user"])
def test_what_programs_find_inside(real, user):
    """E-4: what may be killed first, the own name, where it is told what it is, and python by its short name."""
    box = real.create()
    assert inside(real, box, "cat /proc/self/oom_score_adj", user) == ("100\n", 0)
    out, code = inside(real, box, "getent hosts $(hostname) && [ $(hostname) = $(cat /etc/hostname) ]", user)
    assert code == 0 and out.startswith("127.0.1.1"), out
    assert inside(real, box, "cat /run/e2b/.E2B_SANDBOX", user) == ("true\n", 0)
    if not real.cloud.lacks("usr-writable"):
        assert inside(real, box, "PATH=/usr/local/bin:/usr/bin; python -c 'print(6 * 7)'", user) == ("42\n", 0)


def test_users_are_changed(real):
    """E-4: su and adduser find what they ask PAM."""
    reason = real.cloud.lacks("change-user")
    if reason:
        pytest.skip(reason)
    box = real.create()
    assert inside(real, box, "su user -c 'id -un; echo $HOME'") == ("user\n/home/user\n", 0)
    assert inside(real, box, "su - user -c pwd") == ("/home/user\n", 0)
    out, code = inside(real, box, "adduser --disabled-password --gecos '' bob && su - bob -c 'id -un; pwd'")
    assert code == 0 and "\nbob\n/home/bob\n" in out, out
    out, code = inside(real, box, "useradd -m eve && su eve -c 'id -un' && userdel eve")
    assert code == 0 and "eve" in out, out


def test_pip_may_install(real):
    """E-4: pip does not say that somebody else manages this machine."""
    box = real.create()
    if inside(real, box, "/usr/bin/python3 -m pip --version")[1] != 0:
        pytest.skip("the machine's python3 has no pip")
    script = """mkdir -p /tmp/p && cd /tmp/p && printf 'from setuptools import setup\\nsetup(name="thing", version="1")\\n' >setup.py
        /usr/bin/python3 -m pip install --no-index --dry-run . 2>&1"""
    out, _ = inside(real, box, script)
    assert "externally-managed" not in out and "externally managed" not in out, out


def test_a_boot_id_of_its_own(real):
    """E-4: the boot id is the sandbox's, and another one after its memory was lost."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
        host = f.read()
    box, other = real.create(), real.create()
    script = "cat /proc/sys/kernel/random/boot_id"
    ids = [inside(real, b, script) for b in (box, other)]
    assert [code for _, code in ids] == [0, 0] and len({host, ids[0][0], ids[1][0]}) == 3, ids
    assert ids[0][0].strip() == str(uuid.UUID(ids[0][0].strip())) and inside(real, box, script) == ids[0]
    assert inside(real, box, "echo x > /proc/sys/kernel/random/boot_id")[1] != 0
    assert real.api("POST", "/sandboxes/%s/pause" % box["sandboxID"], {"memory": False}).status == 204
    assert real.api("POST", "/sandboxes/%s/connect" % box["sandboxID"], {"timeout": 60}).status in (200, 201)
    assert inside(real, box, script)[0] not in (host, ids[0][0])


def test_e_4_the_agent_at_localhost(real):
    """E-4: what runs inside reaches the agent at localhost:49983, as code interpreters do; also after a pause, with memory or not."""
    box = real.create(envVars={"A": "1"})
    ask = "curl -s -o /dev/null -w '%{http_code} ' "
    inside = "%shttp://localhost:49983/health; %s127.0.0.1:49983/health; %s-g 'http://[::1]:49983/health'" % (ask, ask, ask)
    envs = "curl -s http://localhost:49983/envs -H 'X-Access-Token: %s'" % box["envdAccessToken"]
    for body in (None, {"memory": True}, {"memory": False}):
        if body is not None:
            assert real.api("POST", "/sandboxes/%s/pause" % box["sandboxID"], body).status == 204
            assert real.api("POST", "/sandboxes/%s/connect" % box["sandboxID"], {"timeout": 60}).status == 201
        assert real.run(box, inside)[1] == b"204 204 204 ", body
        has = json.loads(real.run(box, envs)[1])
        assert has["E2B_SANDBOX_ID"] == box["sandboxID"] and (body == {"memory": False} or has["A"] == "1"), (body, has)
    assert real.run(box, ask + "http://localhost:49983/envs; " + ask + "-X POST http://localhost:49983/init")[1] == b"401 404 "
    other = real.create(envVars={"A": "2"})
    assert real.run(other, envs)[1].startswith(b'{"code":401'), "the port is each sandbox's own"


def test_e_4_a_program_inside_uses_its_own_agent(real):
    """E-4: a command is started, and a file written, by a program that knows localhost only."""
    box = real.create()
    script = ("curl -s --data-binary hello -H 'Content-Type: application/octet-stream' -H 'X-Access-Token: {t}' "
              "'http://localhost:49983/files?path=/home/user/f' >/dev/null && cat f && curl -s -H 'Content-Type: application/json' "
              "-H 'X-Access-Token: {t}' -d '{{}}' http://localhost:49983/process.Process/List").format(t=box["envdAccessToken"])
    out = real.run(box, script)[1]
    assert out.startswith(b"hello{") and b'"/bin/bash"' in out, out


def test_e_4_mcp_is_a_note(real):
    """E-4: as in the cloud, it is taken and nothing is done about it."""
    for mcp in ({"exa": {"apiKey": "k"}}, {}, None):
        real.create(mcp=mcp)


def told(c, box):
    """What a sandbox is said to have: by the control plane, and by what programs inside ask."""
    d = c.get(box).json()
    m = c.api("GET", "/sandboxes/%s/metrics" % box["sandboxID"]).json()[-1]
    out = c.run(box, "nproc; grep -c ^processor /proc/cpuinfo; awk '/^MemTotal/ {print $2}' /proc/meminfo; cat /proc/uptime; "
                     "awk '/^btime/ {print $2}' /proc/stat; awk '/^MemFree/ {print $2}' /proc/meminfo")[1].split()
    return d, m, int(out[0]), int(out[1]), int(out[2]), float(out[3]), int(out[5]), int(out[6])


@pytest.mark.parametrize("args", [(), ("--cpus", "1", "--memory", "256"), ("--cpus", "1000", "--memory", "0")], ids=lambda v: " ".join(v))
@pytest.mark.parametrize("uid", [None, 61235], ids=["root", "user"])
def test_e_4_its_own_machine(own, args, uid):
    """E-4: processors and memory are the same in info, metrics and /proc, and the uptime is the sandbox's."""
    c, _ = own(*args, uid=uid)
    box = c.create()
    d, m, nproc, cpuinfo, total_kb, uptime, btime, free_kb = told(c, box)
    assert d["cpuCount"] == m["cpuCount"] == nproc == cpuinfo, (d, m, nproc, cpuinfo)
    assert abs(m["memTotal"] - total_kb * 1024) < 4096 and abs(d["memoryMB"] - total_kb / 1024) < 1, (d, m, total_kb)
    assert 0 <= uptime < 30 and abs(btime - moment(d["startedAt"])) < 5, (uptime, btime, d)
    assert 0 < free_kb <= total_kb


def test_e_4_free_memory(real):
    """E-4: what is used is not free, as far as it can be known here, within the seconds of a measurement."""
    real.needs("usage")
    box = real.create()
    free = lambda: int(real.run(box, "awk '/^MemFree/ {print $2}' /proc/meminfo")[1])     # noqa: E731
    before = free()
    with real.start(box, argv=["/usr/bin/python3", "-u", "-c", "x = b'x' * (200 << 20); print('up'); import time; time.sleep(60)"]) as s:
        s.next()
        harness.until(lambda: before - free() > 150 << 10, 15, "the memory to be seen as used")
