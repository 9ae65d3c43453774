# SPDX-License-Identifier: MIT
"""agentbox-local against the recorded requests of the SDKs (tests/golden/sdk): each is sent again, byte by byte but for ids,
tokens and addresses, and must be answered as the cloud answers it: the status of its route, a body of the specification's shape or
of the real agent's kind."""
import json
import re
import time
import urllib.parse

import pytest

import fixed
import golden
from agentcases import Agent, envelope, split_envelopes
from rawhttp import Open
from wire import Client, signature

ROWS = golden.index(direction="request")
# The success of each route; what an answer to it looks like is in tests/golden.
STATUS = {"POST /sandboxes": 201, "POST /v2/sandboxes": 201, "POST /sandboxes/{sandboxID}/resume": 201,
          "POST /sandboxes/{sandboxID}/fork": 201, "POST /sandboxes/{sandboxID}/snapshots": 201, "POST /templates/tags": 201,
          "DELETE /sandboxes/{sandboxID}": 204, "POST /sandboxes/{sandboxID}/pause": 204,
          "POST /sandboxes/{sandboxID}/timeout": 204, "POST /sandboxes/{sandboxID}/refreshes": 204,
          "PUT /sandboxes/{sandboxID}/network": 204, "DELETE /templates/{templateID}": 204, "DELETE /templates/tags": 204,
          "GET /health": 204}
# Requests that are refused, by the cloud too: a page's token of the other order; what a team has not been given.
REFUSED = {r"sdk/(npm|pypi)/list-all-filters-2.req": 400,
           r"sdk/(npm|npm-2.39.0|pypi|pypi-2.38.0|pypi-2.45.1|abox)/create-full(-e2b)?.req": 400,
           r"sdk/[^/]*/create-volume.req": 400, r"sdk/(npm|pypi|abox)/network.req": 400}
SPEC = {"POST /sandboxes": "create.201", "POST /v2/sandboxes": "create.201", "GET /v2/sandboxes": "list.200", "GET /sandboxes": "list_v1.200",
        "GET /sandboxes/{sandboxID}": "get.200", "POST /sandboxes/{sandboxID}/connect": "connect.200",
        "POST /v2/sandboxes/{sandboxID}/connect": "connect.200", "POST /sandboxes/{sandboxID}/resume": "resume.201",
        "POST /sandboxes/{sandboxID}/fork": "fork.201", "POST /sandboxes/{sandboxID}/snapshots": "snapshot.201",
        "GET /snapshots": "snapshots.200", "GET /sandboxes/{sandboxID}/metrics": "metrics.200",
        "GET /sandboxes/metrics": "metrics_all.200", "GET /sandboxes/{sandboxID}/logs": "logs_v1.200",
        "GET /v2/sandboxes/{sandboxID}/logs": "logs.200", "GET /templates/aliases/{alias}": "template_alias.200",
        "GET /templates/{templateID}/tags": "template_tags.200", "POST /templates/tags": "tags_assign.201",
        "GET /v2/templates": "templates.200", "GET /templates": "templates.200"}
ENDLESS = ("run-background", "pty", "pty-full", "watch", "watch-full", "pty-connect")    # of such a stream the first message is enough


def makes_own(row):
    """What changes more of a sandbox than its files and processes gets one of its own."""
    return row["route"].startswith(("POST /sandboxes/", "PUT ", "DELETE ", "POST /v2/sandboxes/"))


def make(client):
    return client.create(network={"allowPublicTraffic": False}, timeout=3600,
                         metadata={"a": "b", "user": "abc d", "k&=": "\u00e9+1"})


class Play:
    """One recorded request against a sandbox."""

    def __init__(self, client, row, box):
        self.client, self.row, self.m = client, row, golden.read(row["file"])
        self.name = re.sub(r"-\d+$", "", row["file"].split("/")[-1].removesuffix(".req"))
        self.method, self.path = row["route"].split(" ")
        self.address = (client.address, client.port)
        self.host = "%s:%d" % self.address
        self.box = box
        self.template = "my-snap" if self.path in ("/templates/{templateID}", "/templates/tags", "/templates/{templateID}/tags") else "base"
        self.id, self.token = self.box["sandboxID"], self.box["envdAccessToken"]
        self.agent = Agent(self.address, self.token, [
            ("Host", self.host), ("E2b-Sandbox-Id", self.id), ("E2b-Sandbox-Port", "49983")])
        self.pid, self.watcher = None, None

    def prepare(self):
        if self.path.startswith(("/process.", "/filesystem.", "/files")):
            self.agent.reset()
            self.agent.shell("cd ~/g; touch a; for f in a.txt 'a b+c%.txt' ../a.txt '../a b.txt'; do echo hello >\"$f\"; done")
            self.agent.put("/root/a.txt")
        if self.path.endswith(("/Connect", "/SendInput", "/CloseStdin", "/SendSignal", "/Update", "/StreamInput")):
            is_pty = self.name.startswith("pty-") and self.name not in ("pty-kill",)
            self.pid = self.agent.background("sleep 0.3" if self.path.endswith("/Connect") else "cat >/dev/null",
                                             **({"pty": {"size": {"cols": 80, "rows": 24}}} if is_pty else {}))
        if self.path.endswith(("/GetWatcherEvents", "/RemoveWatcher")):
            self.watcher = self.agent.call("filesystem.Filesystem/CreateWatcher", {"path": "/home/user/g"})["watcherId"]
        if self.path.endswith("/resume"):
            assert self.client.api("POST", "/sandboxes/%s/pause" % self.id, {}).status == 204
        if self.template == "my-snap":
            assert self.client.api("POST", "/sandboxes/%s/snapshots" % self.id, {"name": "my-snap:v1"}).status == 201

    def text(self, v):
        """Live values in place of the fixed ones."""
        for old, new in ((fixed.SANDBOX, self.id), (fixed.TOKEN, self.token), (fixed.TRAFFIC_TOKEN, self.box["trafficAccessToken"]),
                         (fixed.E2B_KEY, self.client.key), (fixed.AGENTBOX_KEY, self.client.key), ("team-slug", "team-a"),
                         ("my-template", self.template), ("mcp-gateway\"", "base\""), (fixed.WATCHER, self.watcher or fixed.WATCHER)):
            v = v.replace(old, new)
        return re.sub(r'("pid"\s*:\s*)%d' % fixed.PID, r"\g<1>%d" % (self.pid or 0), v)

    def target(self):
        target = self.text(self.m.target)
        path, _, query = target.partition("?")
        q = dict(urllib.parse.parse_qsl(query))
        if "signature" not in q:
            return target
        exp = str(int(time.time()) + 600) if "signature_expiration" in q else None
        q["signature"] = signature(q["path"], "write" if self.m.method == "POST" else "read", q.get("username", ""), self.token, exp)
        if exp:
            q["signature_expiration"] = exp
        return path + "?" + urllib.parse.urlencode(q, quote_via=urllib.parse.quote, safe="")

    def body(self):
        kind = self.m.header("content-type") or ""
        if kind.startswith("application/connect+"):
            return b"".join(envelope(self.text(p.decode()).encode()) for _, p in split_envelopes(self.m.body))
        return self.text(self.m.body.decode()).encode() if kind.startswith("application/json") else self.m.body

    def send(self):
        body = self.body()
        head = []
        for k, v in self.m.headers:
            if k.lower() == "host":
                v = v.replace("127.0.0.1:3000", self.host)
            elif k.lower() == "content-length":
                v = str(len(body))
            elif k.lower() == "accept-encoding" and not self.path.startswith("/files"):
                v = "identity"
            head.append((k, self.text(v)))
        if (self.m.header("transfer-encoding") or "").lower() == "chunked":
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        with Open(self.address, self.m.method, self.target(), head, body) as o:
            o.head()
            if self.name in ENDLESS and o.status == 200:
                while not split_envelopes(o.body):
                    assert o.more(), o.body
                return golden.Message(o.headers, o.body, status=o.status)
            return o.message()

    def close(self):
        """What it made: processes, and sandboxes that its answer names."""
        if self.path.startswith(("/process.", "/filesystem.")):
            self.agent.call("filesystem.Filesystem/Remove", {"path": "/home/user/g"})
            for p in self.agent.call("process.Process/List", {}).get("processes", []):
                self.agent.call("process.Process/SendSignal", {"process": {"pid": p["pid"]}, "signal": "SIGNAL_SIGKILL"})
        self.agent.pids = []
        self.agent.end()

    def note_made(self, got):
        if self.m.method == "POST" and got.status == 201:
            self.client.made += [i for i in re.findall(r'"sandboxID":"(\w+)"', got.body.decode()) if i != self.id]


@pytest.fixture
def client(local):
    c = Client(local.plain_url, local.key)
    yield c
    c.close()


@pytest.fixture(scope="module")
def shared(local_session):
    """One sandbox for all requests that leave it as it is."""
    c = Client(local_session.plain_url, local_session.key)
    yield make(c)
    c.close()


@pytest.mark.parametrize("row", [r for r in ROWS if r["file"].startswith("sdk/")], ids=lambda r: r["file"][4:-4])
def test_request(row, client, shared):
    """A-3, A-5, E-2, E-3: what each SDK sends is answered as the cloud does it."""
    play = Play(client, row, make(client) if makes_own(row) else shared)
    try:
        play.prepare()
        got = play.send()
        play.note_made(got)
    finally:
        play.close()
    wrong = problems(play, got)
    assert not wrong, wrong


def problems(play, got):
    want = next((s for pattern, s in REFUSED.items() if re.fullmatch(pattern, play.row["file"])), STATUS.get(play.row["route"], 200))
    if got.status != want:
        return ["status %d, not %d: %r" % (got.status, want, got.body[:300])]
    if want >= 400:
        return [] if json.loads(got.body)["code"] == want else ["code: %r" % got.body]
    if play.row["route"] in SPEC:
        return shape_problems(json.loads(got.body), SPEC[play.row["route"]])
    return stream_problems(play, got)


def shape_problems(value, spec):
    """Every member that the specification requires, of its type, and none that it does not have."""
    lean, full, nulls = (json.loads(golden.read(f).body) if (f := form(spec, x)) else None for x in ("min", "full", "null"))
    wrong = shape(value, lean if lean is not None else full, full if full is not None else lean, "body")
    if wrong and isinstance(nulls, list):       # null in a row's members where the specification allows it
        may = {k for k, v in nulls[0].items() if v is None}
        return shape([{k: v for k, v in row.items() if v is not None or k not in may} for row in value],
                     [{k: v for k, v in lean[0].items() if k not in may}], full or lean, "body")
    return wrong


def form(spec, which):
    names = [r["file"] for r in golden.index() if re.fullmatch(r"spec/%s\.(%s)\.res" % (re.escape(spec), which), r["file"])]
    return names[0] if names else None


def shape(value, lean, full, at):
    if isinstance(lean, list):
        if not isinstance(value, list):
            return ["%s: %r is no array" % (at, value)]
        if not lean:
            return []
        fit = [(lean[0], full[0])] if len(lean) == 1 or not isinstance(lean[0], dict) else list(zip(lean, full))
        out = []
        for i, v in enumerate(value):
            tries = [shape(v, a, b, "%s[%d]" % (at, i)) for a, b in fit]
            out += min(tries, key=len)
        return out
    if isinstance(lean, dict):
        if not isinstance(value, dict):
            return ["%s: %r is no object" % (at, value)]
        is_free = at.split(".")[-1] in FREE
        out = ["%s.%s is missing" % (at, k) for k in lean if k not in value and not is_free]
        for k, v in value.items():
            if k in full and k in lean:
                out += shape(v, lean[k], full[k], "%s.%s" % (at, k))
            elif k not in full and not is_free:
                out.append("%s.%s: the specification has none" % (at, k))
            elif k in full and v is not None and not alike(v, full[k]):
                out.append("%s.%s: %r" % (at, k, v))
        return out
    return [] if alike(value, lean) else ["%s: %r is not like %r" % (at, value, lean)]


FREE = ("metadata", "rules", "headers", "sandboxes", "fields")      # objects whose names are anybody's


def alike(a, b):
    if isinstance(b, bool) or isinstance(a, bool):
        return isinstance(a, bool) and isinstance(b, bool)
    if isinstance(b, (int, float)):
        return isinstance(a, (int, float))
    return isinstance(a, type(b))


def stream_problems(play, got):
    """Of an agent's answer: the kind of the real one's, and no error at its end."""
    kind, sent = got.header("content-type") or "", play.m.header("content-type") or ""
    if play.path.startswith(("/process.", "/filesystem.")) and kind.split(";")[0] != sent.split(";")[0]:
        return ["content-type: %r" % kind]
    if kind.startswith("application/connect+") and play.name not in ENDLESS:
        flags, last = split_envelopes(got.body)[-1]
        if flags != 2 or json.loads(last) != {}:
            return ["the stream ends with %r" % last]
    return []
