# SPDX-License-Identifier: MIT
"""JUDGED G-1, G-7: what one uid has does not exist for another.

Every method of the daemon is asked, as uid B, about every kind of object of uid A; the answer must be the one about an object
that nobody has, word for word. Run by hand it prints the matrix:  /usr/bin/python3 tests/it/v_two_uids.py
"""
import functools
import http.client
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys

import pytest

import harness
from api import Api, ApiError
from wire import Client, event_of

A, B = 61001, 61002
SERVICES = ("SandboxService", "SnapshotService", "LeaseService", "CommandService", "FileService")


# -- a caller of another uid: this file again, started by setpriv, which is told calls by lines of JSON

def jsonable(m):
    """A message as plain data, in the order of its fields. A moment is there or not: which, no two answers have in common."""
    out = {}
    for f, v in m.ListFields():
        if f.message_type and f.message_type.full_name == "google.protobuf.Timestamp":
            out[f.name] = "moment"
        elif f.message_type and f.message_type.GetOptions().map_entry:
            out[f.name] = {str(k): str(v[k]) for k in sorted(v)}
        elif f.label == f.LABEL_REPEATED:
            out[f.name] = [jsonable(x) if f.message_type else repr(x) for x in v]
        else:
            out[f.name] = jsonable(v) if f.message_type else repr(v)
    return out


def one(api, method, fields):
    """What a call says first: a message or an error."""
    service = api.service(method.split(".")[0])
    m = service.methods_by_name[method.split(".")[1]]
    proto = next(x for x in descriptor(service).method if x.name == m.name)
    try:
        if proto.client_streaming and proto.server_streaming:
            with api.both(method, iter([fields]), timeout=60) as s:
                r = next(s)
        elif proto.client_streaming:
            r = api.send(method, iter([fields]), timeout=60)
        elif proto.server_streaming:
            with api.stream(method, timeout=60, **fields) as s:
                r = next(s)
        else:
            r = api.call(method, timeout=60, **fields)
        return {"ok": jsonable(r)}
    except StopIteration:
        return {"ok": "nothing"}
    except ApiError as e:
        return {"error": [e.code, e.reason, e.text, e.metadata, e.fields]}


def through_gateway(port, method, target, headers, body):
    """What the gateway answers to one request, as `one` says what a call does."""
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        conn.request(method, target, body and json.dumps(body), headers)
        r = conn.getresponse()
        data = r.read().decode()
    finally:
        conn.close()
    told = {"status": r.status, "head": {k.lower(): v for k, v in r.getheaders()}, "body": json.loads(data) if data[:1] in ("{", "[") else data}
    return {"ok" if r.status < 400 else "error": told}


@functools.lru_cache(None)
def descriptor(service):
    from google.protobuf import descriptor_pb2
    d = descriptor_pb2.ServiceDescriptorProto()
    service.CopyToProto(d)
    return d


def serve(socket):
    with Api(socket) as api:
        for line in sys.stdin:
            method, fields = json.loads(line)
            answer = through_gateway(**fields) if method.startswith("Gateway") else one(api, method, decode(fields))
            print(json.dumps(answer), flush=True)


def decode(v):
    """JSON has no bytes: {"b": "text"} is one."""
    if isinstance(v, dict):
        return v["b"].encode() if set(v) == {"b"} else {k: decode(x) for k, x in v.items()}
    return [decode(x) for x in v] if isinstance(v, list) else v


class Caller:
    def __init__(self, socket, uid):
        argv = harness.as_user(uid, ["/usr/bin/python3", "-B", os.path.abspath(__file__), "--serve", socket])
        lib = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib")
        self.proc = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                     env=dict(os.environ, PYTHONPATH=lib))

    def __call__(self, method, **fields):
        self.ask(method, fields)
        return self.answer()

    def ask(self, method, fields):
        self.proc.stdin.write(json.dumps([method, fields]) + "\n")
        self.proc.stdin.flush()

    def answer(self):
        return json.loads(self.proc.stdout.readline())

    def get(self, method, **fields):
        r = self(method, **fields)
        assert "ok" in r, (method, fields, r)
        return r["ok"]

    def close(self):
        self.proc.stdin.close()
        self.proc.wait(60)
        self.proc.stdout.close()


# -- the objects of A, and what nobody has in their place

def text(x):
    return x[1:-1]      # of a repr


def objects(cloud, a):
    cloud.script("quiet", [("stdout", b"x"), ("gate", cloud.gate())])
    box = text(a.get("SandboxService.Create", name="mine", request_id="req-a")["id"])
    gone = text(a.get("SandboxService.Create")["id"])
    a.get("SandboxService.Kill", sandbox=gone)
    snap = a.get("SnapshotService.Create", sandbox=box, name="snap-a")
    command = text(a.get("CommandService.Start", sandbox=box, shell="quiet")["command_id"])
    lease = text(a.get("LeaseService.Acquire", sandbox=box, ttl={"seconds": 600})["id"])
    name = text(snap["names"][0]) if snap.get("names") else "snap-a"
    return {
        "sandbox": (box, "i" + "z" * 20), "gone sandbox": (gone, "i" + "y" * 20), "sandbox name": ("mine", "nope"),
        "snapshot": (text(snap["id"]), "zzzzzzzzzzzzzzzzzzzz:default"),
        "snapshot name": ("snap-a", "snap-z"), "full snapshot name": (name, name.replace("snap-a", "snap-z")),
        "command": (command, "c" + "z" * 20), "lease": (lease, "l" + "z" * 20),
    }


FIELDS = {      # which objects go into which field
    "sandbox": ("sandbox", "gone sandbox", "sandbox name"), "template": ("snapshot", "snapshot name", "full snapshot name"),
    "snapshot": ("snapshot", "snapshot name", "full snapshot name"), "command_id": ("command",), "lease_id": ("lease",),
}
FILL = {"path": "/tmp/x", "source": "/tmp/x", "destination": "/tmp/y", "from": "/tmp/x", "to": "/tmp/y", "port": 8000,
        "signal": "TERM", "shell": "true", "ttl": {"seconds": 60}, "timeout": {"seconds": 60},
        "sandbox_timeout": {"seconds": 60}, "size": {"cols": 80, "rows": 24}, "policy": {}}


def requests(api, service):
    """(method, fields with a place for the reference, field): every method, every field that names an object."""
    for m in descriptor(api.service(service)).method:
        cls = api.message(m.input_type.rsplit(".", 1)[1])
        for path in places(cls.DESCRIPTOR):
            yield "%s.%s" % (service, m.name), cls.DESCRIPTOR, path


def places(d, above=()):
    for f in d.fields:
        if f.name in FIELDS and not f.message_type:
            yield above + (f.name,)
        elif f.message_type and f.message_type.name in ("CommandRef", "WriteHeader"):
            yield from places(f.message_type, above + (f.name,))


def fill(d, path, value):
    """Plausible values for the fields that a call needs, and the reference at its place."""
    fields = {}
    for f in d.fields:
        if f.name == path[0]:
            fields[f.name] = value if len(path) == 1 else fill(f.message_type, path[1:], value)
        elif f.name in FILL and (f.label != f.LABEL_REPEATED):
            if bool(f.message_type) == isinstance(FILL[f.name], dict):
                fields[f.name] = FILL[f.name]
    return fields


CHANGING = re.compile(r"'(\d{9,}|-?\d+\.\d+)'|\d{4}-\d\d-\d\dT[\d:.]+Z?|upstream_request_id")


def same(x, ref, nobody):
    s = json.dumps(x, sort_keys=True)
    for value in (ref, nobody):
        s = s.replace(value, "REF")
    return CHANGING.sub("#", s)


def rows_of(socket, b, things):
    """[(method, object, B's answer about A's, B's answer about nobody's)] of all that can be asked about A's things."""
    with Api(socket) as api:
        asked = [r for s in SERVICES for r in requests(api, s)]
    rows = []
    for method, d, path in asked:
        for kind in FIELDS[path[-1]]:
            of_a, of_nobody = things[kind]
            fields = [fill(d, path, v) for v in (of_a, of_nobody)]
            rows.append((method, ".".join(path), kind, same(b(method, **fields[0]), of_a, of_nobody),
                         same(b(method, **fields[1]), of_a, of_nobody)))
    return rows


def matrix(cloud, daemon):
    a, b = Caller(daemon.socket, A), Caller(daemon.socket, B)
    try:
        things = objects(cloud, a)
        rows = rows_of(daemon.socket, b, things)
        return rows, a.get("SandboxService.Get", sandbox=things["sandbox"][0]), things
    finally:
        a.close()
        b.close()


@pytest.fixture
def asked(cloud, daemon):
    os.chmod(daemon.socket, 0o666)
    return matrix(cloud, daemon)


def test_no_method_tells_of_anothers_object(cloud, asked):
    rows, mine, things = asked
    assert len(rows) > 60
    told = [r for r in rows if r[3] != r[4]]
    assert not told, "\n".join("%s %s (%s):\n   %s\n   %s" % r for r in told)
    # and none of it was touched
    assert mine["state"] == "2" and cloud.sandbox(things["sandbox"][0]).fate is None
    assert cloud.ledger.count("delete") == 1, "A's own kill"


def test_a_name_of_a_snapshot_is_its_makers(cloud, daemon):
    """G-1, C-5: the name is neither made from, nor taken over, nor deleted; its maker is told of nobody."""
    os.chmod(daemon.socket, 0o666)
    a, b = Caller(daemon.socket, A), Caller(daemon.socket, B)
    try:
        of_a, of_b = (text(c.get("SandboxService.Create")["id"]) for c in (a, b))
        snap = a.get("SnapshotService.Create", sandbox=of_a, name="shared")
        made = cloud.ledger.count("create")
        for template in ("shared", "SHARED", "shared:default", text(snap["id"])):
            r = b("SandboxService.Create", template=template)
            assert r["error"][:2] == ["NOT_FOUND", "TEMPLATE_NOT_FOUND"], (template, r)
        assert cloud.ledger.count("create") == made, "nothing was asked of the cloud"
        for request_id, template in (("of-a", "shared"), ("of-nobody", "nobodys")):
            r = b("SandboxService.Create", template=template, request_id=request_id)
            assert r["error"][1] == "TEMPLATE_NOT_FOUND"
            r = b("SandboxService.Create", request_id=request_id)
            assert r["error"][1] == "REQUEST_ID_REUSED", (template, r)
        for name in ("shared", "Shared"):
            r = b("SnapshotService.Create", sandbox=of_b, name=name)
            assert r["error"][:2] == ["ALREADY_EXISTS", "NAME_EXISTS"] and str(A) not in json.dumps(r)
        assert b.get("SnapshotService.List").get("snapshots", []) == []
        assert b.get("SnapshotService.Delete", snapshot="shared") == {}
        assert a.get("SandboxService.Create", template="shared")["id"]
        assert a.get("SnapshotService.Create", sandbox=of_a, name="shared"), "its maker makes it anew"
    finally:
        a.close()
        b.close()


def test_a_relayed_request_tells_nothing_of_others(cloud):
    """G-1: at the gateway another uid's sandbox is the edge's 502 of an id that nobody has, with whatever is no secret of it."""
    port = free_port()
    d = harness.Daemon(cloud, conf={"gateway": {"listen": "127.0.0.1:%d" % port}})
    os.chmod(d.socket, 0o666)
    a, b = Caller(d.socket, A), Caller(d.socket, B)
    try:
        private = text(a.get("SandboxService.Create", network={"allow_public_traffic": False})["id"])
        boxes = text(a.get("SandboxService.Create")["id"]), private
        tokens = {c: text(c.get("TokenService.Create")["secret"]) for c in (a, b)}

        def ask(caller, box, to, target, **head):
            head = {k.replace("_", "-"): v for k, v in head.items()}
            head.update({"AgentBox-Sandbox-Id": box, "AgentBox-Sandbox-Port": to})
            caller.ask("Gateway", {"port": port, "method": "GET", "target": target, "headers": head, "body": None})
            return caller.answer()

        shown = ({}, {"Agentboxd_Token": tokens[b]}, {"X_Access_Token": "wrong"}, {"AgentBox_Traffic_Access_Token": "wrong"},
                 {"Agentboxd_Token": tokens[b], "X_Access_Token": "wrong"})
        targets = (("49983", "/health"), ("49983", "/files?path=/x"), ("49983", "/files?path=/x&signature=v1_x"), ("49983", "/init"),
                   ("49983", "//x/../init"), ("8000", "/"))
        nobody = "i" + "z" * 20
        for box in boxes:
            for head in shown:
                for to, target in targets:
                    answers = [same(ask(b, x, to, target, **head), x, x) for x in (box, nobody)]
                    assert answers[0] == answers[1] and '"status": 502' in answers[1], (head, to, target, answers)
        assert ask(a, boxes[0], "49983", "/health", X_Access_Token="wrong")["error"]["status"] == 401, "its owner is told why"
        secret = {"Agentboxd_Token": tokens[a]}
        assert ask(a, boxes[0], "49983", "/init", **secret)["error"]["status"] == 404
        a.ask("Gateway", {"port": port, "method": "GET", "target": "/sandboxes/" + boxes[0], "headers": {"X-API-Key": tokens[a]}, "body": None})
        secret = {"X_Access_Token": a.answer()["ok"]["body"]["envdAccessToken"]}
        assert ask(b, boxes[0], "49983", "/health", **secret)["ok"]["status"] == 204, "whoever has its secret"
    finally:
        a.close()
        b.close()
        d.close()


def test_a_command_of_an_sdk_is_its_sandboxes_owners(cloud):
    """With durable_commands another uid's token neither starts a command nor connects to one, by whatever names it, and no list of that
    uid has it."""
    port, gate = free_port(), cloud.gate()
    d = harness.Daemon(cloud, conf={"gateway": {"listen": "127.0.0.1:%d" % port, "durable_commands": "yes"}})
    os.chmod(d.socket, 0o666)
    a, b = Caller(d.socket, A), Caller(d.socket, B)
    cloud.script("ticker", [("stdout", b"one\n"), ("gate", gate)])
    client = Client("http://127.0.0.1:%d" % port, cloud.key)
    try:
        box = {"sandboxID": text(a.get("SandboxService.Create")["id"])}
        of_a, of_b = ([("Agentboxd-Token", text(c.get("TokenService.Create")["secret"]))] for c in (a, b))
        with client.start(box, "ticker", tag="mine", headers=of_a) as s:
            pid = event_of(s.next())[1]
            asked = [("Start", {"process": {"cmd": "/bin/true"}})] + [("Connect", {"process": p}) for p in ({"pid": pid}, {"tag": "mine"})]
            for method, request in asked:
                with client.stream(box, "process.Process/" + method, request, of_b) as refused:
                    assert refused.status == 502 and json.loads(refused.response.read())["code"] == 502
            for method, request in asked[1:]:
                with client.stream(box, "process.Process/" + method, request, of_a) as attached:
                    assert event_of(attached.next()) == ("start", pid)
            listed = a.get("CommandService.List", sandbox=box["sandboxID"])
            assert len(listed["commands"]) == 1 and "error" in b("CommandService.List", sandbox=box["sandboxID"])
        assert len(cloud.starts) == 1
        gate.release()
    finally:
        a.close()
        b.close()
        d.close()


def test_a_page_token_counts_nothing_of_others(cloud, daemon):
    """G-1: where a page of leases begins says when, and not how many leases others have taken meanwhile."""
    os.chmod(daemon.socket, 0o666)
    a, b = Caller(daemon.socket, A), Caller(daemon.socket, B)
    try:
        of_a, of_b = (text(c.get("SandboxService.Create")["id"]) for c in (a, b))
        for c, box in ((b, of_b), (a, of_a), (a, of_a), (b, of_b), (b, of_b)):
            c.get("LeaseService.Acquire", sandbox=box, ttl={"seconds": 600})
        first, second = (int(text(b.get("LeaseService.List", page_size=n)["next_page_token"])) for n in (1, 2))
        assert second - first > 1000, (first, second)
        rest = b.get("LeaseService.List", page_size=2, page_token=str(first))
        assert len(rest["leases"]) == 2 and "next_page_token" not in rest
    finally:
        a.close()
        b.close()


def test_nobodys_template_is_not_deleted(cloud, daemon):
    """JUDGED G-7: a DELETE leaves only for what is known as the caller's own."""
    os.chmod(daemon.socket, 0o666)
    b = Caller(daemon.socket, B)
    try:
        assert b.get("SnapshotService.Delete", snapshot="my-prod-template") == {}
        assert cloud.ledger.count("snapshot_delete") == cloud.ledger.count("template.delete") == 0
        assert not [r for r in cloud.ledger.requests if r.method == "DELETE"]
        other = cloud.make_sandbox()        # made by another program with the same key
        assert b.get("SandboxService.Kill", sandbox=other.id) == {}
        assert other.fate is None and not [r for r in cloud.ledger.requests if r.method == "DELETE"]
    finally:
        b.close()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def degraded(caller, what):
    return [x["message"] for x in caller.get("DaemonService.Status").get("degraded", []) if x["what"] == repr(what)]


def test_status_names_nothing_of_others(cloud):
    """G-1: rows that cannot be read are named to admins alone, and so is why a warm sandbox was not made."""
    folder = harness.temp_dir("abd-")
    d = harness.Daemon(cloud, folder=folder)
    with Api(d.socket) as api:
        box = api.call("SandboxService.Create", name="box").id
    d.stop()
    db = sqlite3.connect(os.path.join(folder, "state", "agentboxd.db"))
    with db:
        db.execute("UPDATE sandbox SET uid = -5")
    db.close()
    d = harness.Daemon(cloud, folder=folder, conf={"warm py": {"template": "base", "size": "1", "uids": "0", "prepare": "exit 73"}})
    os.chmod(d.socket, 0o666)
    b, root = Caller(d.socket, B), Caller(d.socket, 0)
    try:
        harness.until(lambda: degraded(root, "warm"), 60, "the entry to fail", d)
        for what, named in (("store", box), ("warm", "exit status 73")):
            assert any(named in x for x in degraded(root, what)), degraded(root, what)
            assert degraded(b, what) and not any(named in x for x in degraded(b, what)), degraded(b, what)
    finally:
        b.close()
        root.close()
        d.close()


def test_g_5_what_may_hold_a_secret_is_for_admins(cloud):
    """G-5: a command that prints the key may have it in its words; so may what an entry of warm ones runs and sends."""
    command = "echo " + cloud.key
    entry = {"template": "base", "size": "0", "uids": "0", "prepare": "true hunter1", "envs": "A=hunter2", "headers": "a.example:X=hunter3"}
    d = harness.Daemon(cloud, conf={"account default": {"api_key_file": None, "api_key_command": command}, "warm py": entry})
    os.chmod(d.socket, 0o666)
    b, root = Caller(d.socket, B), Caller(d.socket, 0)
    try:
        told = b.get("DaemonService.Config")
        assert cloud.key not in json.dumps(told) and "hunter" not in json.dumps(told)
        row, = [v for v in told["values"] if "api_key_command" in v["key"]]
        assert row["secret"] and not row.get("value"), row
        all_of_it = json.dumps(root.get("DaemonService.Config"))
        assert command in all_of_it and all("hunter%d" % i in all_of_it for i in (1, 2, 3))
    finally:
        b.close()
        root.close()
        d.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    else:
        from fakecloud import FakeCloud
        with FakeCloud() as fake:
            d = harness.Daemon(fake)
            os.chmod(d.socket, 0o666)
            for row in matrix(fake, d)[0]:
                print("%-4s %-34s %-18s %-20s %s" % ("ok" if row[3] == row[4] else "TOLD", row[0], row[1], row[2], row[3][:60]))
            d.close()
