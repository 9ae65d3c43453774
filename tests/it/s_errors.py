# SPDX-License-Identifier: MIT
"""What the cloud refuses or fails at, as callers of every call see it: the status, the reason, the evidence; what is sent
again, when, and what never is. `s_surface` has the refusals, this file the 5xx, 409 and 429 that pass, and forks."""
import json
import time

import pytest

from api import _known
from harness import until
from s_surface import (connect, create, delete, error, fork, get, kill, metrics, pause, snapshot, snapshots,  # noqa: F401
                       start)
from wire import Client

# calls that may be sent twice, each with a state in which it does something
AGAIN = {
    "connect": lambda api, b, **kw: connect(api, b, **kw),
    "timeout": lambda api, b, **kw: api.call("SandboxService.SetTimeout", sandbox=b, sandbox_timeout=60, **kw),
    "pause": lambda api, b, **kw: pause(api, b, **kw),
    "delete": lambda api, b, **kw: api.call("SandboxService.Kill", sandbox=b, **kw).found,
    "network": lambda api, b, **kw: api.call("SandboxService.UpdateNetwork", sandbox=b, network={"deny_out": ["9.9.9.9"]}, **kw),
    "metrics": lambda api, b, **kw: metrics(api, b, **kw),
    "snapshots": lambda api, b, **kw: snapshots(api, sandbox=b, **kw),
    "template_delete": lambda api, b, **kw: api.call("SnapshotService.Delete", snapshot="again", **kw).found,
}
BODY = b'{"code":%d,"message":"of the test"}'


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("route,status", [(r, 503) for r in sorted(AGAIN)] + [("connect", 502), ("pause", 504)])
def test_6_1_a_5xx_that_passes(cloud, api, route, status, moment):
    """What may be sent again is, and the caller sees the answer alone, whether the first one had acted or not."""
    b = create(api).id
    if route == "template_delete":
        snapshot(api, b, name="again")
    cloud.fault(route, status=status, when=moment, body=BODY % status)
    got = AGAIN[route](api, b)
    assert cloud.ledger.count(route) == 2
    if route in ("pause", "delete", "template_delete"):
        assert got is True
    if route == "network":
        assert list(get(api, b).network.deny_out) == ["9.9.9.9"]


STAY = [(r, 503, "UNREACHABLE") for r in ("connect", "timeout", "pause", "network", "metrics", "template_delete")] + \
       [(r, 500, "BAD_CLOUD_REPLY") for r in ("connect", "pause", "network", "template_delete")] + \
       [("connect", 502, "UNREACHABLE"), ("timeout", 504, "UNREACHABLE")]


@pytest.mark.parametrize("route,status,reason", STAY)
def test_6_1_a_5xx_that_stays(cloud, api, route, status, reason):
    b = create(api).id
    cloud.fault(route, status=status, times=None, body=BODY % status, headers=[("X-Request-Id", "the-fifth")])
    e = error(AGAIN[route], api, b, timeout=20)
    assert (e.code, e.reason) == ("UNAVAILABLE", reason), e
    assert e.metadata["upstream_status"] == str(status) and e.metadata["upstream_request_id"] == "the-fifth"
    assert "of the test" in e.text and e.metadata["route"]
    assert 1 <= cloud.ledger.count(route) <= 6
    cloud.clear_faults()
    assert get(api, b).state in (2, 4)          # and it is still there


@pytest.mark.parametrize("route", sorted(AGAIN) + ["fork", "snapshot"])
def test_case_131_a_rate_limit_is_waited_for(cloud, api, route):
    """429 with Retry-After: nothing was done, so even what makes something is sent again, no sooner than told."""
    b = create(api).id
    cloud.fault(route, status=429, body=BODY % 429, headers=[("Retry-After", "1")])
    begun = time.monotonic()
    {"fork": fork, "snapshot": snapshot}.get(route, AGAIN.get(route))(api, b)
    assert time.monotonic() - begun > 0.9 and cloud.ledger.count(route) == 2


def test_6_1_a_limit_of_sandboxes_is_not_waited_for(cloud, api):
    """429 without Retry-After is the plan's limit: told at once, by the call that met it."""
    b = create(api).id
    for route, call in (("create", lambda: create(api)), ("fork", lambda: fork(api, b)), ("connect", lambda: connect(api, b))):
        n = cloud.ledger.count(route)
        cloud.fault(route, status=429, body=b'{"code":429,"message":"you have 20 of 20"}')
        e = error(call)
        assert (e.code, e.reason, e.retry_s) == ("RESOURCE_EXHAUSTED", "CONCURRENCY_LIMIT", None), (route, e)
        assert "20 of 20" in e.text and cloud.ledger.count(route) == n + 1


@pytest.mark.parametrize("code,want", [
    ("sandbox_capacity_unavailable", ("UNAVAILABLE", "UNREACHABLE")),
    ("sandbox_no_compatible_node", ("FAILED_PRECONDITION", "CLOUD_REFUSED")),
])
def test_6_1_placement(cloud, api, code, want):
    """Nothing was placed: told with the cloud's own tag, and none is looked for."""
    body = json.dumps({"code": 503, "message": "Failed to place sandbox", "error_code": code}).encode()
    cloud.fault("create", status=503, body=body, times=None)
    e = error(create, api, timeout=10)      # the repeats take up to 3 s
    assert (e.code, e.reason) == want and e.metadata["error_code"] == code, e
    assert not cloud.ledger.sandboxes


# -- forks: each child has a result of its own

def reason_of(status):
    for d in status.details:
        if d.type_url.endswith("ErrorInfo"):
            info = _known("status.ErrorInfo").FromString(d.value)
            return info.reason, {p.key: p.value for p in info.metadata}
    return None, {}


def test_case_072_every_child_s_own_error(cloud, api):
    b = create(api).id
    kid = cloud.make_sandbox()      # without tags: a list from before the fork does not have it
    errors = [(429, 8, "CONCURRENCY_LIMIT"), (401, 9, "KEY_REJECTED"), (404, 5, "SNAPSHOT_NOT_FOUND"),
              (400, 9, "CLOUD_REFUSED"), (500, 14, "BAD_CLOUD_REPLY"), (503, 14, "UNREACHABLE"), (504, 14, "UNREACHABLE")]
    rows = [{"error": {"code": c, "message": "of %d" % c}} for c, _, _ in errors]
    rows.insert(3, {"sandbox": {"templateID": "t", "sandboxID": kid.id, "clientID": "c", "envdVersion": "0.6.13",
                                "envdAccessToken": kid.token}})
    cloud.fault("fork", status=201, body=json.dumps(rows).encode())
    results = fork(api, b, count=len(rows), request_id="children")
    assert [r.WhichOneof("result") for r in results] == ["error"] * 3 + ["sandbox"] + ["error"] * 4
    assert results[3].sandbox.id == kid.id
    for r, (status, code, reason) in zip([r for r in results if r.WhichOneof("result") == "error"], errors):
        got, evidence = reason_of(r.error)
        assert (r.error.code, got) == (code, reason), (status, r)
        assert evidence["upstream_status"] == str(status) and "of %d" % status in r.error.message
    again = fork(api, b, count=len(rows), request_id="children")
    assert [r.WhichOneof("result") for r in again] == [r.WhichOneof("result") for r in results]
    assert [reason_of(r.error)[0] for r in again if r.WhichOneof("result") == "error"] == [r for _, _, r in errors]
    assert cloud.ledger.count("fork") == 1


@pytest.mark.parametrize("rows", [b"[]", b'[{"sandbox":{}},{"sandbox":{}}]', b"null"])
def test_a_fork_s_answer_that_is_none(cloud, api, rows):
    """Unreadable, it is as if it was lost: what the cloud lists is what was made, here nothing."""
    b = create(api).id
    cloud.fault("fork", status=201, body=rows)
    try:
        results = fork(api, b, count=2, timeout=3)
    except Exception as e:
        assert e.reason in ("OUTCOME_UNKNOWN", "BAD_CLOUD_REPLY", "DEADLINE_REQUEST"), e
    else:
        assert not [r for r in results if r.WhichOneof("result") == "sandbox"], results
    assert cloud.ledger.count("fork") == 1 and not [s for s in cloud.ledger.sandboxes if s.forked_from]


def test_more_children_than_asked_for_are_nobody_s(cloud, api):
    """Somebody else forks the same sandbox while an answer is lost: no child is claimed, and none is killed."""
    b = create(api).id
    f = cloud.fault("fork", when="after", cut=True, hold_answer=True)
    t, got = start(fork, api, b, count=2, request_id="too many", timeout=60)
    f.hold_answer.wait()
    assert Client(cloud.plain_url, cloud.key).api("POST", "/sandboxes/%s/fork" % b, {"count": 1, "timeout": 300}).status == 201
    f.hold_answer.release()
    t.join()
    assert (got[0].code, got[0].reason) == ("UNAVAILABLE", "OUTCOME_UNKNOWN"), got
    assert error(fork, api, b, count=2, request_id="too many").reason == "OUTCOME_UNKNOWN"
    assert len([s for s in cloud.ledger.alive() if s.forked_from == b]) == 3
    assert not cloud.ledger.of("delete")


def test_a_fork_leaves_the_cloud_as_it_was(cloud, api):
    """No snapshot, no template, no change of its parent."""
    b = create(api, sandbox_timeout=600).id
    before, templates = cloud.sandbox(b).ends[:], len(cloud.templates)
    assert len(fork(api, b, count=3, sandbox_timeout=60)) == 3
    assert cloud.sandbox(b).ends == before and len(cloud.templates) == templates
    assert not cloud.ledger.count("snapshot") and not snapshots(api).snapshots
    assert [r.target for r in cloud.ledger.of("timeout") + cloud.ledger.of("refreshes") if b in r.target] == []
