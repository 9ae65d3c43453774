# SPDX-License-Identifier: MIT
"""What goes over the control plane, written down once more: every request that may be sent and every answer that may be
given, as the contract of the cloud's REST API has it. It shares no code with either side, so a slip of one is seen here.

    problems = check_request("POST", "/sandboxes", headers, body)      # [] if it is as it should be
    problems = check_answer("POST", "/sandboxes", 201, headers, body)
"""
import json
import re
import urllib.parse

ID = re.compile(r"[a-z0-9]+(-[^-/]*)?")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
INT32 = (-2 ** 31, 2 ** 31 - 1)


class Any:
    def check(self, v, at, out):
        pass


class Str(Any):
    def __init__(self, pattern=None, empty=True, one_of=None):
        self.pattern, self.empty, self.one_of = pattern and re.compile(pattern), empty, one_of

    def check(self, v, at, out):
        if not isinstance(v, str):
            out.append("%s: %r is no string" % (at, v))
        elif not v and not self.empty:
            out.append("%s: is empty" % at)
        elif self.pattern and not self.pattern.fullmatch(v):
            out.append("%s: %r" % (at, v))
        elif self.one_of and v not in self.one_of:
            out.append("%s: %r is none of %s" % (at, v, self.one_of))


class Bool(Any):
    def check(self, v, at, out):
        if not isinstance(v, bool):
            out.append("%s: %r is no bool" % (at, v))


class Int(Any):
    def __init__(self, low=INT32[0], high=INT32[1]):
        self.low, self.high = low, high

    def check(self, v, at, out):
        if not isinstance(v, int) or isinstance(v, bool) or not self.low <= v <= self.high:
            out.append("%s: %r is no integer of %d to %d" % (at, v, self.low, self.high))


class Real(Any):
    def check(self, v, at, out):
        if not isinstance(v, (int, float)) or isinstance(v, bool):
            out.append("%s: %r is no number" % (at, v))


class Null(Any):
    """Of a kind, or null."""

    def __init__(self, kind):
        self.kind = kind

    def check(self, v, at, out):
        if v is not None:
            self.kind.check(v, at, out)


class List(Any):
    def __init__(self, kind, high=None):
        self.kind, self.high = kind, high

    def check(self, v, at, out):
        if not isinstance(v, list):
            out.append("%s: %r is no array" % (at, v))
            return
        if self.high is not None and len(v) > self.high:
            out.append("%s: has %d elements" % (at, len(v)))
        for i, x in enumerate(v):
            self.kind.check(x, "%s[%d]" % (at, i), out)


class Map(Any):
    def __init__(self, kind, high=None, key=None):
        self.kind, self.high, self.key = kind, high, key

    def check(self, v, at, out):
        if not isinstance(v, dict):
            out.append("%s: %r is no object" % (at, v))
            return
        if self.high is not None and len(v) > self.high:
            out.append("%s: has %d members" % (at, len(v)))
        for k, x in v.items():
            if self.key:
                self.key.check(k, "%s key" % at, out)
            self.kind.check(x, "%s.%s" % (at, k), out)


class Obj(Any):
    """Named members; `strict`: no others (of requests: a misspelt field would be ignored in silence)."""

    def __init__(self, required=None, strict=False, **optional):
        self.required, self.optional, self.strict = required or {}, optional, strict

    def check(self, v, at, out):
        if not isinstance(v, dict):
            out.append("%s: %r is no object" % (at, v))
            return
        for k, kind in self.required.items():
            if k not in v:
                out.append("%s.%s: is missing" % (at, k))
            else:
                kind.check(v[k], "%s.%s" % (at, k), out)
        for k, x in v.items():
            if k in self.optional:
                self.optional[k].check(x, "%s.%s" % (at, k), out)
            elif self.strict and k not in self.required:
                out.append("%s.%s: is not known" % (at, k))


class OneOf(Any):
    """An object with exactly one of these members."""

    def __init__(self, **kinds):
        self.kinds = kinds

    def check(self, v, at, out):
        hit = [k for k in self.kinds if isinstance(v, dict) and k in v]
        if len(hit) != 1:
            out.append("%s: has %s of %s" % (at, hit, sorted(self.kinds)))
        else:
            self.kinds[hit[0]].check(v[hit[0]], "%s.%s" % (at, hit[0]), out)


TIMESTAMP = Str(TIME.pattern)
STRINGS = Map(Str())
HEADERS = Map(Str(r"[^\x00-\x08\x0a-\x1f\x7f]{0,2048}"), 20, Str(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}"))
RULES = Map(List(Obj(strict=True, transform=Obj(strict=True, headers=HEADERS)), 1), 10, Str(r".{1,128}"))
PROXY = Obj({"address": Str(r".+:\d{1,5}")}, strict=True, username=Str(r".{0,255}"), password=Str(r".{0,255}"))
EGRESS = {"allowOut": List(Str(empty=False)), "denyOut": List(Str(empty=False)), "egressProxy": Null(PROXY),
          "rules": RULES}
NETWORK_IN = Obj(strict=True, allowPublicTraffic=Bool(), maskRequestHost=Str(), **EGRESS)
NETWORK_OUT = Obj(allowPublicTraffic=Bool(), maskRequestHost=Str(), allowOut=List(Str()), denyOut=List(Str()), rules=RULES,
                  egressProxy=Null(Obj({"address": Str()}, strict=True, username=Str())))
TOKEN = Obj({"audience": Str(empty=False), "tokenType": Str(one_of=("JWT-SVID",))}, strict=True)

SANDBOX = Obj({"templateID": Str(empty=False), "sandboxID": Str(r"i[a-z0-9]{20}"), "clientID": Str(empty=False),
               "envdVersion": Str(empty=False)},
              alias=Str(), envdAccessToken=Str(empty=False), trafficAccessToken=Null(Str()), domain=Null(Str()))
LISTED = {"templateID": Str(empty=False), "sandboxID": Str(r"i[a-z0-9]{20}"), "clientID": Str(empty=False),
          "envdVersion": Str(empty=False), "startedAt": TIMESTAMP, "endAt": TIMESTAMP, "cpuCount": Int(1),
          "memoryMB": Int(128), "diskSizeMB": Int(0), "state": Str(one_of=("running", "paused"))}
LISTED_MORE = {"alias": Str(), "metadata": STRINGS,
               "volumeMounts": List(Obj({"name": Str(), "path": Str()}))}
DETAIL_MORE = {"envdAccessToken": Str(), "allowInternetAccess": Null(Bool()), "domain": Null(Str()),
               "network": NETWORK_OUT,
               "lifecycle": Obj({"autoResume": Bool(), "onTimeout": Str(one_of=("kill", "pause"))})}
ERROR = Obj({"code": Int(400, 599), "message": Str()}, error_code=Str(empty=False))
METRIC = Obj({"timestamp": TIMESTAMP, "timestampUnix": Int(0, 2 ** 63), "cpuCount": Int(0), "cpuUsedPct": Real(),
              "memUsed": Int(0, 2 ** 63), "memTotal": Int(0, 2 ** 63), "memCache": Int(0, 2 ** 63),
              "diskUsed": Int(0, 2 ** 63), "diskTotal": Int(0, 2 ** 63)})
LOG = Obj({"timestamp": TIMESTAMP, "message": Str(), "level": Str(one_of=("debug", "info", "warn", "error")),
           "fields": STRINGS})
UUID = Str(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NAMES = List(Str(empty=False))
TEMPLATE_MORE = {"templateID": Str(empty=False), "public": Bool(), "aliases": NAMES, "names": NAMES, "createdAt": TIMESTAMP,
                 "updatedAt": TIMESTAMP, "lastSpawnedAt": Null(TIMESTAMP), "spawnCount": Int(0, 2 ** 63)}
BUILD = {"buildID": UUID, "cpuCount": Int(1), "memoryMB": Int(128), "diskSizeMB": Int(0), "envdVersion": Str(empty=False)}
STATES = Str(one_of=("building", "waiting", "ready", "error"))
TEMPLATE = Obj(dict(BUILD, **TEMPLATE_MORE, createdBy=Null(Obj({"id": Str(), "email": Str()})), buildCount=Int(0), buildStatus=STATES),
               strict=True)
TEMPLATE_DETAIL = Obj(dict(TEMPLATE_MORE, builds=List(Obj(dict(BUILD, status=STATES, createdAt=TIMESTAMP, updatedAt=TIMESTAMP),
                                                          strict=True, finishedAt=TIMESTAMP), 100)), strict=True)
TAGS = List(Str(empty=False))
SNAPSHOT = Obj({"snapshotID": Str(empty=False), "names": List(Str(empty=False))})

CREATE = Obj({"templateID": Str(empty=False)}, strict=True, timeout=Int(1), autoPause=Bool(), autoPauseMemory=Bool(),
             autoResume=Obj({"enabled": Bool()}, strict=True), secure=Bool(), allow_internet_access=Bool(),
             network=NETWORK_IN, metadata=STRINGS, envVars=STRINGS, mcp=Null(Any()),
             iam=Obj(strict=True, tokens=Map(TOKEN, 5, Str(r"[^{}\x00-\x1f\x7f]+"))),
             volumeMounts=List(Obj({"name": Str(), "path": Str()})))


def digits(low, high=2 ** 63):
    def check(v):
        return bool(re.fullmatch(r"\d+", v)) and low <= int(v) <= high
    return check


def metadata_filter(v):
    return all(p.count("=") == 1 for p in urllib.parse.unquote_plus(v).split("&"))


class Route:
    def __init__(self, method, pattern, ok, answer=None, body=None, required=False, query=None, errors=(), headers=()):
        self.method, self.pattern = method, re.compile(pattern)
        self.ok, self.answer = ok, answer             # statuses of success, what they carry (None = nothing)
        self.body, self.required = body, required     # of the request
        self.query = query or {}
        self.errors = set(errors) | {400, 401, 403, 404, 405, 408, 409, 413, 429, 500, 502, 503, 504}
        self.headers = headers


SBX = r"/sandboxes/([^/]+)"
ROUTES = [
    Route("POST", r"/sandboxes", (201,), SANDBOX, CREATE, True),
    Route("GET", r"/v2/sandboxes", (200,), List(Obj(LISTED, **LISTED_MORE), 100),
          query={"metadata": metadata_filter, "state": lambda v: set(v.split(",")) <= {"running", "paused"},
                 "order": lambda v: v in ("asc", "desc"), "startedAfter": lambda v: TIME.fullmatch(v),
                 "template": lambda v: ":" not in v, "nextToken": bool, "limit": digits(1, 100)}),
    Route("GET", r"/sandboxes", (200,), List(Obj(LISTED, **LISTED_MORE)), query={"metadata": metadata_filter}),
    Route("GET", SBX, (200,), Obj(LISTED, **LISTED_MORE, **DETAIL_MORE)),
    Route("DELETE", SBX, (204,)),
    Route("POST", SBX + "/pause", (204,), body=Obj(strict=True, memory=Bool())),
    Route("POST", SBX + "/resume", (201,), SANDBOX,
          Obj(strict=True, timeout=Int(), autoPause=Bool(), memory=Bool())),
    Route("POST", SBX + "/connect", (200, 201), SANDBOX, Obj({"timeout": Int(0)}, strict=True, memory=Bool()), True),
    Route("POST", SBX + "/timeout", (204,), body=Obj({"timeout": Int(0)}, strict=True), required=True),
    Route("POST", SBX + "/refreshes", (204,), body=Obj(strict=True, duration=Int(0, 3600))),
    Route("PUT", SBX + "/network", (204,), body=Obj(strict=True, allow_internet_access=Bool(), **EGRESS),
          required=True),
    Route("POST", SBX + "/fork", (201,),
          List(OneOf(sandbox=SANDBOX, error=ERROR), 100), Obj(strict=True, timeout=Int(1), count=Int(1, 100))),
    Route("POST", SBX + "/snapshots", (201,), SNAPSHOT, Obj(strict=True, name=Str(empty=False)), True),
    Route("GET", r"/snapshots", (200,), List(SNAPSHOT, 100),
          query={"sandboxID": lambda v: ID.fullmatch(v), "name": bool, "limit": digits(1, 100), "nextToken": bool}),
    Route("DELETE", r"/templates/(.+)", (204,)),
    Route("POST", r"/templates/tags", (201,), Obj({"tags": TAGS, "buildID": UUID}, strict=True),
          Obj({"target": Str(empty=False), "tags": TAGS}, strict=True), True),
    Route("DELETE", r"/templates/tags", (204,), body=Obj({"name": Str(empty=False), "tags": TAGS}, strict=True), required=True),
    Route("GET", r"/templates/aliases/(.+)", (200,), Obj({"templateID": Str(empty=False), "public": Bool()}, strict=True)),
    Route("GET", r"/templates/(.+)/tags", (200,),
          List(Obj({"tag": Str(empty=False), "buildID": UUID, "createdAt": TIMESTAMP}, strict=True))),
    Route("GET", r"/templates", (200,), List(TEMPLATE)),
    Route("GET", r"/v2/templates", (200,), List(TEMPLATE, 100), query={"limit": digits(1, 100), "nextToken": bool}),
    Route("GET", r"/templates/([^/]+)", (200,), TEMPLATE_DETAIL, query={"limit": digits(1, 100), "nextToken": bool}),
    Route("GET", r"/health", (200, 204)),
    Route("GET", SBX + "/metrics", (200,), List(METRIC), query={"start": digits(0), "end": digits(0)}),
    # a newer generation of the same
    Route("POST", r"/v2/sandboxes", (201,), SANDBOX, CREATE, True),
    Route("POST", r"/v2/sandboxes/([^/]+)/connect", (200, 201), SANDBOX, Obj(timeout=Int(0), memory=Bool())),
    Route("GET", r"/v2/sandboxes/([^/]+)/logs", (200,), Obj({"logs": List(LOG)}),
          query={"cursor": digits(0), "limit": digits(0, 1000), "direction": lambda v: v in ("forward", "backward"),
                 "level": lambda v: v in ("debug", "info", "warn", "error"), "search": lambda v: len(v) <= 256}),
    Route("GET", SBX + "/logs", (200,), Obj({"logs": List(Obj({"timestamp": TIMESTAMP, "line": Str()}))}),
          query={"start": digits(0), "limit": digits(0)}),
    Route("GET", r"/sandboxes/metrics", (200,), Obj({"sandboxes": Map(METRIC)}),
          query={"sandbox_ids": lambda v: 0 < len(v.split(",")) <= 100}),
]


def route_of(method, path):
    hits = [r for r in ROUTES if r.method == method and r.pattern.fullmatch(path)]
    # "/sandboxes/metrics" is no sandbox
    return next((r for r in hits if not r.pattern.groups), hits[0] if hits else None)


def header(headers, name):
    return next((v for k, v in headers if k.lower() == name), None)


def check_query(route, query, out):
    seen = set()
    for k, v in urllib.parse.parse_qsl(query, keep_blank_values=True):
        if k in seen:
            out.append("query %s: twice" % k)
        seen.add(k)
        rule = route.query.get(k)
        if rule is None:
            out.append("query %s: is not known" % k)
        elif not rule(v):
            out.append("query %s: %r" % (k, v))


def check_request(method, target, headers, body):
    """What a careful client sends: everything that a server must accept, and nothing that it would ignore."""
    path, _, query = target.partition("?")
    out = []
    route = route_of(method, path)
    if route is None:
        return ["%s %s: no such route" % (method, path)]
    if path.startswith("/sandboxes/") and not ID.fullmatch(path.split("/")[2]):
        out.append("path: %r is no sandbox" % path.split("/")[2])
    check_query(route, query, out)
    if not header(headers, "x-api-key"):
        out.append("X-API-Key: is missing")
    for name in ("x-access-token", "authorization", "e2b-sandbox-id", "e2b-sandbox-port"):
        if header(headers, name):
            out.append("%s: belongs to the data plane" % name)
    if body and not (header(headers, "content-type") or "").startswith("application/json"):
        out.append("Content-Type: %r of a body" % header(headers, "content-type"))
    if not body:
        if route.required:
            out.append("body: is missing")
        return out
    if route.body is None:
        return out + ["body: there must be none"]
    try:
        value = json.loads(body)
    except ValueError as e:
        return out + ["body: %s" % e]
    route.body.check(value, "body", out)
    return out


def check_answer(method, target, status, headers, body):
    path = target.partition("?")[0]
    route = route_of(method, path)
    out = []
    if route is None or status not in route.ok:
        if route is not None and status not in route.errors:
            out.append("status: %d" % status)
        check_error(status, headers, body, out)
        return out
    if status == 204 or route.answer is None:
        return ["body: %r of a 204" % body[:80]] if body and status == 204 else out
    if header(headers, "content-type") != "application/json; charset=utf-8":
        out.append("Content-Type: %r" % header(headers, "content-type"))
    try:
        value = json.loads(body)
    except ValueError as e:
        return out + ["body: %s" % e]
    route.answer.check(value, "body", out)
    return out


def check_error(status, headers, body, out):
    """Every refusal of the API: JSON whose code is the status, so that each SDK finds the right class."""
    if header(headers, "content-type") != "application/json; charset=utf-8":
        out.append("Content-Type: %r" % header(headers, "content-type"))
    try:
        value = json.loads(body)
    except ValueError as e:
        out.append("body: %s" % e)
        return
    ERROR.check(value, "body", out)
    if isinstance(value, dict) and value.get("code") != status:
        out.append("body.code: %r of a %d" % (value.get("code"), status))
    if status == 429 and header(headers, "retry-after") is not None and \
            not re.fullmatch(r"[1-9]\d*", header(headers, "retry-after")):
        out.append("Retry-After: %r" % header(headers, "retry-after"))
