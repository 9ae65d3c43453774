# SPDX-License-Identifier: MIT
"""Calls of the control plane that the gateway does not answer itself: `[uid U] relay` (GATEWAY §2, last line of the table)."""
import http.client
import json
import os
import subprocess
import threading
import time

import pytest

import fakecloud.rest
import harness
from harness import until
from w_door import can_connect, new_token, port_of, root_only, runs, runtime      # noqa: F401 (fixtures)
from y_kept import free_port

UID = "uid %d" % os.getuid()
CALLER = """
import http.client, sys
port, token, method, path, body = sys.argv[1:]
c = http.client.HTTPConnection("localhost", int(port), timeout=30)
c.request(method, path, body or None, {"X-API-Key": token, "Content-Type": "application/json"})
r = c.getresponse()
print(r.status, r.read().decode())
"""


@pytest.fixture
def passing(cloud, runtime):
    """Starts a daemon whose own uid has this `relay`."""
    daemons = []

    def start(relay):
        d = harness.Daemon(cloud, {UID: {"relay": relay}}, env={"XDG_RUNTIME_DIR": runtime, "HOME": runtime})
        daemons.append(d)
        return d, port_of(d), new_token(d)
    yield start
    for d in daemons:
        d.close()


def came(cloud, path):
    return [s for s in cloud.ledger.requests if s.target == path]


def call(port, method, path, token, body=None, headers=()):
    c = http.client.HTTPConnection("localhost", port, timeout=20)
    try:
        c.request(method, path, body, dict({"X-API-Key": token}, **dict(headers)))
        r = c.getresponse()
        return r.status, dict(r.getheaders()), r.read()
    finally:
        c.close()


CALLS = (("GET", "/templates?teamID=t&x=%2Fa%20b", "read"), ("GET", "/v2/templates?limit=0", "read"), ("GET", "/later", "read"),
         ("POST", "/v3/templates", "templates"), ("PATCH", "/v2/templates/x", "templates"),
         ("POST", "/volumes", "all"), ("DELETE", "/volumes/v", "all"))
LEVELS = ("none", "read", "templates", "all")


@pytest.mark.parametrize("relay", LEVELS)
def test_what_passes_and_what_does_not(cloud, passing, relay):
    d, port, token = passing(relay)
    for method, path, needs in CALLS:
        status, _, body = call(port, method, path, token, b"{}" if method in ("POST", "PATCH") else None)
        passed = LEVELS.index(relay) >= LEVELS.index(needs)
        assert len(came(cloud, path)) == passed, (method, path, status, body)
        if passed:      # as the cloud says it
            assert status in (400, 404) and b"validation error" in body
        else:
            assert status == 403 and "relay = %s in [%s]" % (needs, UID) in json.loads(body)["message"]


def test_what_never_passes(cloud, passing):
    d, port, token = passing("all")
    before = len(cloud.ledger.requests)
    paths = ("/v3/sandboxes", "/sandboxes/x/y/z", "/v2/sandboxes/x/y/z", "/snapshots/x", "/api-keys", "/v2/api-keys", "/teams", "/teams/t/metrics",
             "/access-tokens", "/%61pi-keys", "//api-keys", "/templates/..%2fapi-keys", "/templates/%2e%2e/teams", "/API-KEYS")
    for path in paths:
        for method in ("GET", "POST", "DELETE", "PUT"):
            status, _, body = call(port, method, path, token, b"{}" if method != "GET" else None)
            assert status in (400, 403, 404) and b"relay =" not in body, (method, path, status, body)
    assert not [s for s in cloud.ledger.requests[before:] if "sandboxes?" not in s.target and "/v2/sandboxes" not in s.target], \
        [s.target for s in cloud.ledger.requests[before:]]


def test_the_accounts_key_goes_upstream_and_nowhere_else(cloud, passing):
    d, port, token = passing("read")
    status, headers, body = call(port, "GET", "/templates", token, headers={
        "Authorization": "Bearer secret-of-somebody", "Cookie": "a=b", "Agentboxd-Policy": "x", "X-Kept": "yes"}.items())
    up = came(cloud, "/templates")[-1]
    assert up.header("x-api-key") == cloud.key and up.header("agentboxd-hop") == "1" and up.header("x-kept") == "yes"
    sent = json.dumps(up.headers)
    assert token[3:] not in sent and "secret-of-somebody" not in sent and "agentboxd-policy" not in sent and up.header("cookie") is None
    told = json.dumps(headers) + body.decode() + d.log()
    assert cloud.key not in told and token[3:] not in told


def test_logs_of_ones_own_sandboxes(cloud, passing):
    """The cloud's logs need no `relay`; those of a sandbox that the core does not show to its caller are not asked for."""
    d, port, token = passing("none")
    box, other = (d.ctl("create", "-t", "base").stdout.strip() for _ in range(2))
    scoped = new_token(d, "--sandbox", other)
    for path in ("/v2/sandboxes/%s/logs?limit=5" % box, "/sandboxes/%s/logs" % box):
        call(port, "GET", path, token)
        up = came(cloud, path)[-1]
        assert up.header("x-api-key") == cloud.key and token[3:] not in json.dumps(up.headers)
        asked = len(came(cloud, path))
        assert call(port, "GET", path, scoped)[0] == 403 and len(came(cloud, path)) == asked
    for path in ("/v2/sandboxes/%s/logs" % ("i" + 20 * "0"), "/v2/sandboxes/..%2f" + box + "/logs", "/v2/sandboxes/" + box + "%252e/logs"):
        assert call(port, "GET", path, token)[0] in (400, 404) and not came(cloud, path)


def limits(d):
    return json.loads(d.ctl("--json", "pool").stdout)["limits"][0]


def with_logs(cloud):
    """The scripted cloud has no logs by itself."""
    route = cloud.rest.route

    async def logs(seen, team, values, query, body):
        return 200, {"logs": []}, []
    cloud.rest.do_logs = logs
    cloud.rest.route = lambda method, path: ("logs", {}) if path.endswith("/logs") else route(method, path)


def test_passed_calls_count_at_the_accounts_limiter(cloud, passing):
    """As our own do: under way until the cloud begins to answer, and held back by what it says of its limits."""
    with_logs(cloud)
    d, port, token = passing("all")
    box = d.ctl("create").stdout.strip()
    path, answers = "/sandboxes/%s/logs" % box, []

    def get():
        answers.append(call(port, "GET", path, token))
    held = [cloud.fault("logs", hold=True) for _ in range(2)]
    threads = [threading.Thread(target=get) for _ in held]
    for t in threads:
        t.start()
    for f in held:
        f.hold.wait()
    assert limits(d)["in_flight"] == 2
    for f in held:
        f.hold.release()
    for t in threads:
        t.join(20)
    assert [a[0] for a in answers] == [200, 200]
    until(lambda: limits(d)["in_flight"] == 0, 5, "the end of the calls", d)

    limited = dict(status=429, body=b'{"code":429,"message":"slow down"}')
    cloud.fault("logs", headers=[("retry-after", "2")], **limited)
    status, head, body = call(port, "GET", path, token)         # the cloud's own word
    assert status == 429 and json.loads(body)["message"] == "slow down"
    since = time.monotonic()
    assert call(port, "GET", path, token)[0] == 200 and 1.5 <= time.monotonic() - since < 20
    cloud.fault("logs", headers=[("retry-after", "120")], **limited)
    assert call(port, "GET", path, token)[0] == 429
    n, since = len(came(cloud, path)), time.monotonic()
    status, head, body = call(port, "GET", path, token)         # longer than it would wait: at once, and from here
    assert status == 429 and 100 <= int(head["Retry-After"]) <= 120 and "rate limit" in json.loads(body)["message"]
    assert time.monotonic() - since < 5 and len(came(cloud, path)) == n
    assert d.ctl("create").returncode == 0                      # other routes are not held back


@pytest.mark.parametrize("size", [2, 20000, 3 << 20])
def test_bodies_pass_whole(cloud, passing, size):
    d, port, token = passing("all")
    body = os.urandom(size)
    call(port, "PUT", "/volumecontent/v/file?path=/a", token, body, {"Content-Type": "application/octet-stream"}.items())
    up = came(cloud, "/volumecontent/v/file?path=/a")[-1]
    assert up.body_len == len(body) and up.header("content-length") == str(len(body))


def test_a_cloud_that_is_away(cloud, passing):
    d, port, token = passing("all")
    cloud.refuse()
    cloud.cut_all()
    status, _, body = call(port, "POST", "/templates", token, b"{}")
    assert status == 503 and json.loads(body)["message"]


def test_a_reload_counts_at_once(cloud, passing):
    d, port, token = passing("none")
    assert call(port, "GET", "/templates", token)[0] == 403
    with open(d.conf_path, encoding="utf-8") as f:
        text = f.read()
    with open(d.conf_path, "w", encoding="utf-8") as f:
        f.write(text.replace("relay = none", "relay = read"))
    d.ctl("reload")
    assert call(port, "GET", "/templates", token)[0] == 404 and came(cloud, "/templates")


def test_a_wrong_word_is_named(cloud, runtime):
    d = harness.Daemon(cloud, {UID: {"relay": "some"}}, env={"XDG_RUNTIME_DIR": runtime, "HOME": runtime}, wait=False)
    try:
        assert d.proc.wait(20) == 78 and 'relay: "some" is not none, read, templates or all' in d.log()
    finally:
        d.close()


# -- whose templates are (relay = templates deletes the caller's own)

def make(port, token, name):
    status, _, body = call(port, "POST", "/v3/templates", token, json.dumps({"name": name}).encode(), {"Content-Type": "application/json"})
    assert status == 202, body
    return json.loads(body)["templateID"]


def delete(port, token, template):
    return call(port, "DELETE", "/templates/" + template, token)[0]


def deletes(cloud):
    return [s.target for s in cloud.ledger.requests if s.method == "DELETE"]


def theirs(cloud, name):
    """Made past the gateway."""
    t = fakecloud.rest.Template("t" * 16 + name, name, public=False, owner=cloud.team)
    t.build_ids = ["0b6e4c52-0000-4000-8000-000000000000"]
    cloud.templates.append(t)
    return t


@pytest.fixture
def shared(cloud, runs):
    """A daemon of many users, which shows a caller its own; in that of one user the whole account is its caller's."""
    port, home, daemons = free_port(), harness.temp_dir("abt-"), []

    def start(relay="templates"):
        d = harness.Daemon(cloud, {UID: {"relay": relay}, "gateway": {"listen": "localhost:%d" % port}}, folder=home, args=["--system"])
        daemons.append(d)
        until(lambda: can_connect(port), 20, "the gateway", d)
        return d, port, new_token(d)
    yield start
    for d in daemons:
        d.close()


@pytest.mark.parametrize("relay", ["templates", "all"])
def test_own_templates_are_deleted(cloud, shared, relay):
    """What a caller made through the gateway it deletes, by its id, once; of others only where all may be deleted."""
    d, port, token = shared(relay)
    other = theirs(cloud, "other")
    own = make(port, token, "own")
    assert delete(port, token, "own") == (404 if relay == "templates" else 204)     # a name may be another's by now
    again = own if relay == "templates" else make(port, token, "own")
    assert delete(port, token, again) == 204 and delete(port, token, again) == 404
    assert delete(port, token, other.id) == (404 if relay == "templates" else 204)
    if relay == "templates":
        assert deletes(cloud) == ["/templates/" + own]


def test_a_build_of_a_template_that_is_there_makes_nobody_its_maker(cloud, shared):
    """The cloud answers with the id of a template of that name: it is not the caller's."""
    d, port, token = shared()
    other = theirs(cloud, "other")
    assert make(port, token, "other") == other.id
    assert delete(port, token, other.id) == 404 and not deletes(cloud)
    own = make(port, token, "own")
    assert make(port, token, "own") == own      # one more build of one's own
    assert delete(port, token, own) == 204


def test_whose_template_it_is_outlives_a_crash(cloud, shared):
    """The answer comes when it is on the disk: kill -9 right behind it, and the next daemon knows."""
    d, port, token = shared()
    own = make(port, token, "own")
    d.kill9()
    d, port, _ = shared()
    assert delete(port, token, own) == 204
    d.stop()
    d, port, _ = shared()
    assert delete(port, token, own) == 404 and len(deletes(cloud)) == 1


def test_a_template_that_cannot_be_looked_at_is_nobodys(cloud, shared):
    """The answer passes all the same; a line says it."""
    d, port, token = shared()
    cloud.fault("template_get", status=500)
    own = make(port, token, "own")
    assert "gateway_template account=default template=\"%s\"" % own in d.log()
    assert delete(port, token, own) == 404 and not deletes(cloud)


def test_the_answer_waits_for_the_check(cloud, shared):
    """While it is held back the client may go, and a stop ends it."""
    d, port, token = shared()
    gate = cloud.fault("template_get", hold=True, times=2).hold
    clients = [http.client.HTTPConnection("localhost", port, timeout=20) for _ in range(2)]
    for i, c in enumerate(clients):
        c.request("POST", "/v3/templates", json.dumps({"name": "own%d" % i}), {"X-API-Key": token, "Content-Type": "application/json"})
    gate.wait()
    clients[0].close()
    gate.release()
    r = clients[1].getresponse()
    own = json.loads(r.read())["templateID"]
    assert r.status == 202 and delete(port, token, own) == 204
    clients[1].close()


@root_only
def test_templates_of_another_uid(cloud, runtime):
    """Who made it deletes it, and no other user."""
    conf = {"gateway": {"listen": "localhost:%d" % free_port()}, "uid 12345": {"relay": "templates"}, "uid 12346": {"relay": "templates"}}
    d = harness.Daemon(cloud, conf, args=["--system"])
    port = int(conf["gateway"]["listen"].rpartition(":")[2])
    try:
        until(lambda: can_connect(port), 20, "the gateway", d)

        def as_user(uid, *args):
            argv = harness.as_user(uid, ["/usr/bin/python3", "-c", CALLER, str(port), *args])
            return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout

        tokens = [subprocess.run(harness.as_user(u, [harness.AGENTBOXCTL, "-s", d.socket, "token", "create"]), capture_output=True, text=True,
                                 timeout=60, check=True).stdout.strip() for u in (12345, 12346)]
        made = as_user(12345, tokens[0], "POST", "/v3/templates", '{"name": "own"}')
        own = json.loads(made.partition(" ")[2])["templateID"]
        assert as_user(12346, tokens[1], "DELETE", "/templates/" + own, "").startswith("404 ") and not deletes(cloud)
        assert as_user(12345, tokens[0], "DELETE", "/templates/" + own, "").startswith("204 ")
    finally:
        d.close()
