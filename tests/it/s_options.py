# SPDX-License-Identifier: MIT
"""Options of the sandbox calls, one by one: how a template may be named, what lists page and filter, why a sandbox is not
there, what metrics and IsRunning say when the cloud does not, what the cloud does at the end of a sandbox's time, and the
way to its ports. Files, templates, ends and ports on agentbox-local, the rest on the scripted cloud."""
import io
import json
import os
import subprocess
import tarfile
import threading
import time

import pytest

from api import Api, ApiError
from harness import until
from s_surface import (CACHE_CLOUD_UNREACHABLE, FROM_CACHE, FROM_CLOUD, GONE, PAUSED, RUNNING, both,  # noqa: F401
                       connect, create, delete, error, fork, get, kill, metric, metrics, pause, snapshot, snapshots, start)
from wire import Client
from wire_common import own  # noqa: F401

LIST = "SandboxService.List"


# -- templates

def test_case_034_a_template_may_be_named_in_many_ways(both):
    b = create(both)
    both.write_file(b.id, "f", b"of the snapshot")
    named = snapshot(both, b.id, name="opt-snap:v1")
    plain_one = snapshot(both, b.id)
    for ref in (b.template_id, "base", "BASE", " base "):
        new = create(both, template=ref)
        assert new.template_id == b.template_id and new.alias == "base", ref
        assert kill(both, new.id)
    for ref in (named.id, "team-a/opt-snap:v1", "opt-snap:v1", "Opt-Snap:v1", plain_one.id, plain_one.id.split(":")[0]):
        new = create(both, template=ref)
        assert new.template_id != b.template_id and both.read_file(new.id, "f") == b"of the snapshot", ref
        assert kill(both, new.id)
    for ref in ("nosuch", "base:nosuchtag", "opt-snap:v9", "other/opt-snap:v1"):
        e = error(create, both, template=ref)
        assert (e.code, e.reason, e.metadata["upstream_status"]) == ("NOT_FOUND", "TEMPLATE_NOT_FOUND", "404"), (ref, e)
    for ref in ("bad name!", "a/b/c", "base:"):
        e = error(create, both, template=ref)
        assert (e.code, e.reason) == ("INVALID_ARGUMENT", "FIELD_INVALID") and e.text.startswith("template: must be"), (ref, e)
    kill(both, b.id)
    assert delete(both, named.id) and delete(both, plain_one.id)


def tree(tmp_path):
    folder = tmp_path / "tree"
    (folder / "app").mkdir(parents=True)
    (folder / "app" / "hello").write_text("from the folder\n")
    return folder


def archive(tmp_path):
    path = tmp_path / "packed.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, data in (("app/hello", b"from the archive\n"), ("home/user/mine", b"x")):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    return path


def test_local_templates_of_a_folder_and_an_archive(own, tmp_path):
    folder, packed = tree(tmp_path), archive(tmp_path)
    tmp_path.chmod(0o755)
    c, _ = own("--template", "dir=%s" % folder, "--template", "tgz=%s" % packed)
    one, two, base = (c.create(templateID=t) for t in ("dir", "TGZ", "base"))
    assert len({b["templateID"] for b in (one, two, base)}) == 3 and (one["alias"], two["alias"]) == ("dir", "tgz")
    assert c.run(one, "cat /app/hello; id -un; echo changed >/home/user/f; cat /home/user/f")[1] == \
        b"from the folder\nuser\nchanged\n"
    assert c.run(two, "cat /app/hello; id -un; cat ~/mine")[1] == b"from the archive\nuser\nx"
    assert c.run(base, "ls /app 2>&1 | wc -l; test -e /app || echo none")[1] == b"1\nnone\n"
    assert c.run(one, "rm -r /app; echo $?", user="root")[1] == b"0\n"     # its own copy
    assert (folder / "app" / "hello").read_text() == "from the folder\n"
    assert [r["sandboxID"] for r in c.api("GET", "/v2/sandboxes?template=dir").json()] == [one["sandboxID"]]
    assert [r["sandboxID"] for r in c.api("GET", "/v2/sandboxes?template=" + two["templateID"]).json()] == [two["sandboxID"]]
    c.write(two, "/home/user/more", b"more")
    s = c.api("POST", "/sandboxes/%s/snapshots" % two["sandboxID"], {"name": "of-tgz"}).json()["snapshotID"]
    assert c.kill(two).status == 204
    new = c.create(templateID=s)
    assert c.run(new, "cat /app/hello ~/more")[1] == b"from the archive\nmore"
    assert c.api("POST", "/sandboxes/%s/snapshots" % new["sandboxID"], {"name": "dir"}).status == 400   # is a template


@pytest.mark.parametrize("words,why", [
    (["--template", "x=/no/such/folder"], "/no/such/folder"), (["--template", "x"], "NAME=PATH"),
    (["--template", "Bad Name=/tmp"], "NAME"), (["--template", "=/tmp"], "NAME"),
])
def test_local_templates_that_cannot_be(own, words, why):
    with pytest.raises(AssertionError) as e:
        own(*words)
    assert why in str(e.value)


# -- why it is not there

def make_away(cloud, api, how):
    b = create(api, sandbox_timeout=60).id
    if how == "killed":
        assert kill(api, b)
    elif how == "expired":
        cloud.advance(61)
    else:
        cloud.kill_sandbox(b)
    return b


@pytest.mark.parametrize("how,reason", [("killed", "SANDBOX_KILLED"), ("expired", "SANDBOX_EXPIRED"), ("lost", "SANDBOX_GONE")])
@pytest.mark.parametrize("first", ["connect", "timeout", "pause", "fork", "snapshot", "network", "run", "get"])
def test_case_051_the_ends_are_told_apart(cloud, api, how, reason, first):
    """Whichever call finds it out, and every other one after it; the row says it too."""
    calls = {
        "connect": lambda b: connect(api, b), "pause": lambda b: pause(api, b), "fork": lambda b: fork(api, b),
        "timeout": lambda b: api.call("SandboxService.SetTimeout", sandbox=b, sandbox_timeout=60),
        "snapshot": lambda b: snapshot(api, b), "run": lambda b: api.run(b, "true"),
        "network": lambda b: api.call("SandboxService.UpdateNetwork", sandbox=b, network={}),
    }
    b = make_away(cloud, api, how)
    for name in [first] + sorted(set(calls) - {first}):
        if name == "get":
            assert get(api, b).state == GONE
            continue
        e = error(calls[name], b)
        assert (e.code, e.reason) == ("NOT_FOUND", reason), (name, e)
    row = get(api, b)
    assert row.state == GONE
    reasons = type(row).DESCRIPTOR.fields_by_name["gone_reason"].enum_type.values_by_number
    assert reasons[row.gone_reason].name == reason
    assert kill(api, b) is False
    e = error(connect, api, "i" + "0" * 20)
    assert (e.code, e.reason) == ("NOT_FOUND", "SANDBOX_NOT_FOUND")


# -- calls that meet a transition

BEGIN = {       # how it begins, and the gate that it stands at
    "pausing": (lambda api, b: pause(api, b), "pause"),
    "resuming": (lambda api, b: connect(api, b), "resume"),
    "forking": (lambda api, b: fork(api, b), "snapshot"),
    "snapshotting": (lambda api, b: snapshot(api, b), "snapshot"),
}
PAUSED_SAYS = ("FAILED_PRECONDITION", "SANDBOX_PAUSED")
MEET = {        # what each call says then: after a pause, after the others
    "connect": (lambda api, b: connect(api, b).state, RUNNING, RUNNING),
    "timeout": (lambda api, b: api.call("SandboxService.SetTimeout", sandbox=b, sandbox_timeout=500).state, PAUSED_SAYS, RUNNING),
    "network": (lambda api, b: bool(api.call("SandboxService.UpdateNetwork", sandbox=b, network={}) is not None), PAUSED_SAYS,
                True),
    "pause": (lambda api, b: pause(api, b), True, True),
    "kill": (lambda api, b: kill(api, b), True, True),
    "fork": (lambda api, b: len(fork(api, b)), PAUSED_SAYS, 1),
    "snapshot": (lambda api, b: bool(snapshot(api, b).id), PAUSED_SAYS, True),
}


@pytest.mark.parametrize("call", sorted(MEET))
@pytest.mark.parametrize("transition", sorted(BEGIN))
def test_case_053_a_call_that_meets_a_transition_waits(cloud, api, transition, call):
    b = create(api, sandbox_timeout=600).id
    begin, at = BEGIN[transition]
    if transition == "resuming":
        pause(api, b)
    gate = cloud.gates[at] = cloud.gate()
    t, first = start(begin, api, b)
    gate.wait()
    act, after_pause, after_others = MEET[call]
    t2, second = start(act, api, b)
    # both are there with the Status itself, the second is answered by nothing yet, and the row says what is going on
    until(lambda: api.call("DaemonService.Status").counts.calls == 3, 20, "the second call to arrive")
    state = api.call("SandboxService.Get", sandbox=b, max_staleness=3600).state
    assert state == {"pausing": 3, "resuming": 5}.get(transition, 6) or (call == "kill" and state == 7), state
    assert not second
    gate.release()
    del cloud.gates[at]
    t.join()
    t2.join()
    want = after_pause if transition == "pausing" else after_others
    got = (second[0].code, second[0].reason) if isinstance(second[0], ApiError) else second[0]
    assert got == want, second
    if call == "kill":      # it waits for nobody, and the other one is told
        assert cloud.sandbox(b).fate == "killed"
    else:
        assert not isinstance(first[0], ApiError), first
    assert len([r for r in cloud.ledger.of({"timeout": "timeout", "kill": "delete"}.get(call, call)) if r.status == 409]) == 0


def test_kill_of_one_that_somebody_else_killed(cloud, api):
    """There is nothing to kill, as the SDK says it; a lost answer of our own DELETE is no such thing."""
    b = create(api).id
    cloud.kill_sandbox(b)
    assert kill(api, b) is False and error(connect, api, b).reason == "SANDBOX_GONE"
    for strike in ({"cut": True}, {"reset": 8}, {"status": 503}):
        b = create(api).id
        cloud.fault("delete", when="after", **strike)
        assert kill(api, b) is True and error(connect, api, b).reason == "SANDBOX_KILLED", strike
    stranger = cloud.make_sandbox().id
    cloud.fault("delete", when="after", cut=True)
    assert kill(api, stranger) is True
    b = create(api).id
    s = snapshot(api, b).id
    cloud.fault("template_delete", when="after", cut=True)
    assert delete(api, s) is True and delete(api, s) is False


def test_pause_whose_answer_was_lost_is_ours(cloud, api):
    """The repeat finds it paused: by us, so it is not "paused already"."""
    for b in (create(api).id, cloud.make_sandbox().id):
        for strike in ({"cut": True}, {"reset": 8}, {"status": 503}):
            cloud.fault("pause", when="after", **strike)
            assert pause(api, b) is True, strike
            assert pause(api, b) is False
            connect(api, b)


# -- lists

def a_second_later():
    """A fresh list may be a second old, shared with whoever asked then."""
    begun = time.monotonic()
    until(lambda: time.monotonic() - begun > 1.1, 3, "a second to pass")


def page_ids(api, **kw):
    out, token, pages = [], "", 0
    while True:
        r = api.call(LIST, page_token=token, **kw)
        out += [s.id for s in r.sandboxes]
        token, pages = r.next_page_token, pages + 1
        if not token:
            return out, pages


@pytest.mark.parametrize("cached", [False, True])
def test_case_063_pages_are_the_whole_in_the_cloud_s_order(cloud, api, cached):
    made = [create(api, metadata={"n": str(i % 3)}).id for i in range(11)]
    assert page_ids(api, page_size=4, cached=cached) == (made[::-1], 3)
    assert page_ids(api, page_size=11, cached=cached) == (made[::-1], 1)
    assert page_ids(api, page_size=1, metadata={"n": "1"}, cached=cached) == (made[1::3][::-1], 4)
    direct = [s["sandboxID"] for s in Client(cloud.plain_url, cloud.key).api("GET", "/v2/sandboxes").json()]
    assert page_ids(api, cached=cached)[0] == direct


def test_a_page_goes_on_where_it_was(cloud, api):
    """What is made or killed between two pages moves no other one in or out."""
    made = [create(api).id for _ in range(6)]
    first = api.call(LIST, page_size=2)
    create(api)
    kill(api, made[4])              # the last one of the first page
    kill(api, made[3])
    second = api.call(LIST, page_size=10, page_token=first.next_page_token)
    assert [s.id for s in first.sandboxes] == made[:3:-1]
    assert [s.id for s in second.sandboxes] == made[2::-1]


def test_case_065_tokens_that_are_not_this_list_s(cloud, api):
    for _ in range(3):
        create(api, metadata={"a": "b"})
    token = api.call(LIST, page_size=1, cached=True).next_page_token
    for kw in ({"page_token": "nonsense"}, {"page_token": token[1:]}, {"page_token": token, "metadata": {"a": "b"}},
               {"page_token": token, "states": ["SANDBOX_STATE_RUNNING"]}, {"page_token": token, "template": "base"},
               {"page_token": token, "all_hosts": True}):
        e = error(api.call, LIST, page_size=1, **kw)
        assert (e.code, e.metadata["field"]) == ("INVALID_ARGUMENT", "page_token"), (kw, e)
    assert error(api.call, LIST, page_size=1001).metadata["field"] == "page_size"
    # the same token twice is the same page twice
    assert api.call(LIST, page_size=1, page_token=token, cached=True).sandboxes == \
        api.call(LIST, page_size=1, page_token=token, cached=True).sandboxes
    b = create(api).id
    for _ in range(2):
        snapshot(api, b)
    token = snapshots(api, page_size=1).next_page_token
    for kw in ({"sandbox": b, "page_token": token}, {"name": "x", "page_token": token}, {"page_token": "%%%"}):
        assert error(snapshots, api, page_size=1, **kw).metadata["field"] == "page_token", kw
    assert error(snapshots, api, page_size=1001).metadata["field"] == "page_size"


def rows_of(cloud):
    return Client(cloud.plain_url, cloud.key).api("GET", "/v2/sandboxes").json()


def test_case_069_the_header_of_the_next_page_in_any_case(cloud, api):
    """Two pages of the cloud, with the header's name as no server writes it, and the second without it."""
    made = [create(api).id for _ in range(3)]
    rows = rows_of(cloud)
    n = cloud.ledger.count("list")
    a_second_later()
    cloud.fault("list", status=200, body=json.dumps(rows[:1]).encode(), headers=[("x-NEXT-token", "p2")])
    cloud.fault("list", status=200, body=json.dumps(rows[1:]).encode())
    got = api.call(LIST, timeout=20)
    assert [s.id for s in got.sandboxes] == made[::-1] and got.freshness.source == FROM_CLOUD
    asked = [r.target for r in cloud.ledger.of("list")[n:]]
    assert len(asked) == 2 and "nextToken" not in asked[0] and "nextToken=p2" in asked[1], asked


def test_a_cloud_whose_pages_go_round_is_not_followed(cloud, api):
    """A token that comes twice: the listing is no listing, so nothing is forgotten, and it ends."""
    made = [create(api).id for _ in range(3)]
    rows = json.dumps(rows_of(cloud)[:1]).encode()
    n = cloud.ledger.count("list")
    a_second_later()
    cloud.fault("list", status=200, body=rows, headers=[("X-Next-Token", "again")], times=None)
    got = api.call(LIST, timeout=20)
    assert [s.id for s in got.sandboxes] == made[::-1] and got.freshness.source == CACHE_CLOUD_UNREACHABLE
    assert cloud.ledger.count("list") - n <= 4
    cloud.clear_faults()
    b = made[0]
    s = snapshot(api, b).id
    n = cloud.ledger.count("snapshots")
    cloud.fault("snapshots", status=200, body=b"[]", headers=[("X-Next-Token", "again")], times=None)
    got = snapshots(api, timeout=20).snapshots
    assert [x.id for x in got] == [s] and got[0].freshness.source == CACHE_CLOUD_UNREACHABLE
    assert cloud.ledger.count("snapshots") - n <= 4


def test_case_064_states_and_templates(both):
    mark = {"mark": "states%d" % time.monotonic_ns()}
    ids = [create(both, metadata=mark).id for _ in range(3)]
    pause(both, ids[1])
    kill(both, ids[2])

    def found(**kw):
        return [s.id for s in both.call(LIST, metadata=mark, **kw).sandboxes]
    for cached in (True, False):
        assert found(cached=cached) == ids[1::-1]
        assert found(states=["SANDBOX_STATE_RUNNING"], cached=cached) == ids[:1]
        assert found(states=["SANDBOX_STATE_PAUSED"], cached=cached) == ids[1:2]
        assert found(states=["SANDBOX_STATE_GONE"], cached=cached) == ids[2:]
        assert found(states=["SANDBOX_STATE_PAUSED", "SANDBOX_STATE_RUNNING"], cached=cached) == ids[1::-1]
        assert found(template="base", cached=cached) == ids[1::-1]
        assert found(template="nosuch", cached=cached) == []
    for b in ids[:2]:
        kill(both, b)


def test_fresh_lists_are_shared_and_cached_ones_ask_nobody(cloud, api):
    a, b = create(api).id, create(api).id
    n = cloud.ledger.count("list")
    assert api.call(LIST, cached=True).freshness.source == FROM_CACHE and cloud.ledger.count("list") == n
    cloud.kill_sandbox(a)
    assert [s.id for s in api.call(LIST, cached=True).sandboxes] == [b, a]
    a_second_later()
    n = cloud.ledger.count("list")
    gate = cloud.fault("list", hold=True).hold
    calls = [start(api.call, LIST) for _ in range(8)]
    gate.wait()
    gate.release()
    for t, got in calls:
        t.join()
        assert [s.id for s in got[0].sandboxes] == [b] and got[0].freshness.source == FROM_CLOUD
    assert cloud.ledger.count("list") - n <= 3


# -- metrics, and whether it runs

def test_case_132_metrics_without_the_cloud(cloud, api):
    """The last series of the same question, with its age; of another question there is none."""
    b = create(api).id
    cloud.metrics[b] = [metric(100)]
    got = metrics(api, b, start={"seconds": 50})
    assert got.freshness.source == FROM_CLOUD and len(got.metrics) == 1
    cloud.fault("metrics", status=503, times=None)
    again = metrics(api, b, start={"seconds": 50}, timeout=3)
    assert again.metrics == got.metrics and again.freshness.as_of == got.freshness.as_of
    e = error(metrics, api, b, start={"seconds": 51}, timeout=2)
    assert e.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"), e


def test_metrics_that_are_old_say_so(cloud, api):
    b = create(api).id
    cloud.metrics[b] = []
    got = metrics(api, b)
    assert not got.metrics and got.freshness.source == FROM_CLOUD       # an empty series is an answer
    cloud.fault("metrics", status=503, times=None)
    until(lambda: metrics(api, b, timeout=2).freshness.source == CACHE_CLOUD_UNREACHABLE, 20, "the answer to be too old")
    late = metrics(api, b, timeout=2)
    assert not late.metrics and late.freshness.as_of == got.freshness.as_of
    cloud.clear_faults()
    cloud.metrics[b] = [metric(1)]
    until(lambda: metrics(api, b).freshness.source == FROM_CLOUD, 20, "the cloud again")
    assert [m.at.seconds for m in metrics(api, b).metrics] == [1]


def running(api, b, **kw):
    return api.call("SandboxService.IsRunning", sandbox=b, **kw).running


@pytest.mark.parametrize("strike,code,reason", [
    ({"status": 500}, "FAILED_PRECONDITION", "CLOUD_REFUSED"), ({"status": 503}, "UNAVAILABLE", "UNREACHABLE"),
    ({"status": 403}, "PERMISSION_DENIED", "CLOUD_FORBIDDEN"), ({"status": 429}, "RESOURCE_EXHAUSTED", "RATE_LIMITED"),
    ({"cut": True}, "UNAVAILABLE", "UNREACHABLE"), ({"silent": True}, "DEADLINE_EXCEEDED", "DEADLINE_REQUEST"),
], ids=str)
def test_case_019_when_nobody_can_know_it_is_an_error(cloud, api, strike, code, reason):
    b = create(api).id
    assert running(api, b) is True
    cloud.fault("envd.health", times=None, **strike)
    e = error(running, api, b, timeout=3)
    assert (e.code, e.reason) in ((code, reason), ("DEADLINE_EXCEEDED", "DEADLINE_REQUEST")), e
    cloud.clear_faults()
    until(lambda: is_true(running, api, b), 20, "the agent's word")


def is_true(call, *args):
    try:
        return call(*args)
    except ApiError:
        return False


def test_case_019_the_edge_is_believed(cloud, api):
    """502 without a port: it does not run. What the record says is not asked; a sandbox that never was is an error."""
    b = create(api).id
    cloud.fault("envd.health", status=502, body=json.dumps({"sandboxId": b, "message": "x", "code": 502}).encode(), times=None)
    assert running(api, b) is False
    cloud.clear_faults()
    assert running(api, b) is True
    assert error(running, api, "i" + "0" * 20).reason == "SANDBOX_NOT_FOUND"
    kill(api, b)
    assert running(api, b) is False


# -- the network is replaced as a whole

def test_case_082_two_who_set_it_do_not_mix(cloud, api):
    b = create(api, network={"allow_public_traffic": False, "mask_request_host": "x.test"}).id
    settings = [{"deny_out": ["9.9.9.%d" % i], "rules": {"h%d.test" % i: {"rules": [{"transform_headers": {"A": str(i)}}]}}}
                for i in range(6)]
    calls = [start(api.call, "SandboxService.UpdateNetwork", sandbox=b, network=n) for n in settings]
    for t, got in calls:
        t.join()
        assert len(got) == 1 and not isinstance(got[0], ApiError), got
    real = cloud.sandbox(b).network
    i = int(real["denyOut"][0].rpartition(".")[2])
    assert real == {"allowPublicTraffic": False, "maskRequestHost": "x.test", "denyOut": ["9.9.9.%d" % i],
                    "rules": {"h%d.test" % i: [{"transform": {"headers": {"A": str(i)}}}]}}
    row = api.call("SandboxService.Get", sandbox=b).network         # what is known without asking is what is in force
    assert list(row.deny_out) == real["denyOut"] and list(row.rules) == list(real["rules"])
    assert row.allow_public_traffic is False and row.mask_request_host == "x.test"
    api.call("SandboxService.UpdateNetwork", sandbox=b)             # nothing said: all that goes out is cleared
    assert cloud.sandbox(b).network == {"allowPublicTraffic": False, "maskRequestHost": "x.test"}


# -- what happens at the end of its time

@pytest.fixture
def ports(d):
    """An Api on agentboxd --local, whose sandboxes' ports are reached in clear."""
    with Api(d.socket) as a:
        yield a


def test_case_057_058_paused_at_its_end_and_woken_by_traffic(ports):
    lives = {"on_timeout": "PAUSE", "auto_resume": True}
    b = create(ports, sandbox_timeout=2, lifecycle=lives).id
    ports.write_file(b, "app.py", PORT_APP.encode())
    ports.call("CommandService.Start", sandbox=b, shell="exec /usr/bin/python3 app.py", detach=True)
    until(lambda: curl(ports, b)[0] == 200, 20, "the program's port")
    ports.call("SandboxService.SetPolicy", sandbox=b, policy={"keep_alive": False})
    until(lambda: get(ports, b).state == PAUSED, 20, "the pause at its end")
    e = error(ports.run, b, "true")
    assert (e.code, e.reason) == ("FAILED_PRECONDITION", "SANDBOX_PAUSED")
    assert curl(ports, b)[0] == 200             # traffic, not a call of ours
    got = get(ports, b)
    assert got.state == RUNNING and got.end_at.seconds - got.started_at.seconds >= 299
    kill(ports, b)


# -- its ports

PORT_APP = r"""
import http.server
class App(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ("".join("%s: %s\n" % (k.lower(), v) for k, v in self.headers.items())).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *a):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), App).serve_forever()
"""


def curl(api, b, *words):
    """(status, body) of the address that GetHost says, with the header that it says."""
    h = api.call("SandboxService.GetHost", sandbox=b, port=8000)
    head = ["-H", "%s: %s" % (h.token_header, h.traffic_access_token)] if h.traffic_access_token else []
    r = subprocess.run(["curl", "-sS", "-w", "\n%{http_code}", *head, *words, h.url], capture_output=True, text=True, timeout=30)
    assert r.returncode == 0, r.stderr
    body, _, status = r.stdout.rpartition("\n")
    return int(status), body


def test_case_017_018_the_way_to_a_port(ports):
    b = create(ports, network={"allow_public_traffic": False, "mask_request_host": "app.test:${PORT}"}).id
    h = ports.call("SandboxService.GetHost", sandbox=b, port=8000)
    assert h.host.startswith("8000-%s." % b) and h.url.endswith("//" + h.host) and h.traffic_access_token and h.token_header
    ports.write_file(b, "app.py", PORT_APP.encode())
    ports.call("CommandService.Start", sandbox=b, shell="exec /usr/bin/python3 app.py", detach=True)
    until(lambda: curl(ports, b)[0] == 200, 20, "the program's port")
    status, seen = curl(ports, b)
    assert status == 200 and "host: app.test:8000\n" in seen and "x-forwarded-host: %s\n" % h.host in seen
    r = subprocess.run(["curl", "-sS", "-o", os.devnull, "-w", "%{http_code}", h.url], capture_output=True, text=True, timeout=30)
    assert r.stdout == "403", r
    kill(ports, b)
