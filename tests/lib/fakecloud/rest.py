# SPDX-License-Identifier: MIT
"""The control plane: sandboxes in memory, with the states and the answers of the cloud."""
import asyncio
import base64
import datetime
import hashlib
import hmac
import json
import random
import re
import time
import urllib.parse
import uuid

CLIENT_ID = "6532622b"
ENVD_VERSION = "0.6.13"
MAX_BODY = 16 << 20


class Refuse(Exception):
    """An error answer: status, message, and maybe the machine's tag for it."""

    def __init__(self, status, message, error_code=None, headers=()):
        Exception.__init__(self, message)
        self.status = status
        self.headers = list(headers)
        self.body = {"code": status, "message": message}
        if error_code:
            self.body["error_code"] = error_code


def rfc3339(t):
    d = datetime.datetime.fromtimestamp(int(t), datetime.timezone.utc)
    return d.strftime("%Y-%m-%dT%H:%M:%S") + ".%06dZ" % round((t - int(t)) * 1e6)


def parse_time(text):
    m = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", text)
    if not m:
        raise Refuse(400, "validation error: not a date-time")
    base = datetime.datetime.fromisoformat(m.group(1) + (m.group(3) if m.group(3) != "Z" else "+00:00"))
    return round(base.timestamp()) + int((m.group(2) or "0")[:6].ljust(6, "0")) / 1e6


def micros(t):
    return round(t * 1e6)


class Template:
    def __init__(self, template_id, alias, tags=("default",), envd_version=ENVD_VERSION, public=True, owner=None):
        self.id, self.alias, self.tags = template_id, alias, set(tags)
        self.envd_version, self.public, self.owner = envd_version, public, owner
        self.source = None          # of a snapshot: id of the sandbox
        self.files = None           # … a copy of its folder
        self.names = []             # "team/alias"
        self.builds = []            # of a snapshot: (time, tag), oldest first
        self.build_ids = []         # of one that was made by a POST, newest first
        self.build_id, self.status = str(uuid.uuid4()), "ready"
        self.made_at, self.spawned_at, self.spawn_count = time.time(), None, 0

    def snapshot_info(self, tag):
        names = list(self.names)
        return {"snapshotID": "%s:%s" % (names[0] if names else self.id, tag), "names": names}

    def listed_as(self):
        names = self.names or ([("%s/" % self.owner.slug if self.owner else "") + self.alias] if self.alias else [])
        return {"templateID": self.id, "buildID": self.build_id, "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 1024,
                "public": self.public, "aliases": [self.alias] if self.alias else [], "names": names,
                "createdAt": rfc3339(self.made_at), "updatedAt": rfc3339(self.made_at),
                "createdBy": {"id": str(uuid.uuid4()), "email": "somebody@example.com"},
                "lastSpawnedAt": rfc3339(self.spawned_at) if self.spawned_at else None, "spawnCount": self.spawn_count,
                "buildCount": 1, "envdVersion": self.envd_version, "buildStatus": self.status}


class Team:
    def __init__(self, slug, concurrency=1000, max_length_hours=24):
        self.slug, self.concurrency, self.max_length_hours = slug, concurrency, max_length_hours


class Sandbox:
    """What the cloud knows of one; `fate` is None while it exists, then why it went."""

    def __init__(self, cloud, team, template, body, request_number):
        self.cloud, self.team, self.template = cloud, team, template
        template.spawn_count, template.spawned_at = template.spawn_count + 1, time.time()
        self.id = "i" + "".join(random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=20))
        self.request = request_number     # of the ledger: who made it
        self.state = "running"            # running, pausing, paused, snapshotting, killing
        self.transition = None            # asyncio.Event, set when the current one is over
        self.fate = None
        self.fate_at = None
        self.started_at = cloud.unique_now()
        self.end_at = self.started_at
        self.timeout = 15
        self.metadata = {k: v for k, v in (body.get("metadata") or {}).items()}
        self.envs = dict(body.get("envVars") or {})
        self.secure = bool(body.get("secure"))
        self.network = body.get("network")
        self.allow_internet_access = body.get("allow_internet_access")
        self.auto_pause = bool(body.get("autoPause"))
        self.auto_pause_memory = body.get("autoPauseMemory", True)
        self.auto_resume = bool((body.get("autoResume") or {}).get("enabled"))
        self.token = self._hmac("") if self.secure else None
        private = (self.network or {}).get("allowPublicTraffic") is False
        self.traffic_token = self._hmac("sandbox-traffic-") if private else None
        self.ends = []                    # every end_at it ever had: (time, end_at, route)
        self.envd = None                  # made at its first use
        self.listed = True                # a test may hide it from the list
        self.forked_from = None

    def _hmac(self, prefix):
        return hmac.new(self.cloud.seed, (prefix + self.id).encode(), hashlib.sha256).hexdigest()

    def set_end(self, t, why):
        self.end_at = min(t, self.started_at + self.team.max_length_hours * 3600)
        self.ends.append((self.cloud.now(), self.end_at, why))

    def created(self):
        d = {"templateID": self.template.id, "alias": self.template.alias, "sandboxID": self.id,
             "clientID": CLIENT_ID, "envdVersion": self.template.envd_version, "domain": self.cloud.domain}
        if self.token:
            d["envdAccessToken"] = self.token
        if self.traffic_token:
            d["trafficAccessToken"] = self.traffic_token
        return d

    def shown_state(self):
        return "paused" if self.state in ("pausing", "paused") else "running"

    def listed_as(self):
        d = {"templateID": self.template.id, "alias": self.template.alias, "sandboxID": self.id,
             "clientID": CLIENT_ID, "envdVersion": self.template.envd_version,
             "startedAt": rfc3339(self.started_at), "endAt": rfc3339(self.end_at), "cpuCount": 2, "memoryMB": 512,
             "diskSizeMB": 1024, "state": self.shown_state(), "metadata": self.metadata}
        if self.state != "paused":
            d["volumeMounts"] = []
        return d

    def detail(self):
        d = self.listed_as()
        d["allowInternetAccess"] = self.allow_internet_access
        d["domain"] = self.cloud.domain
        d["lifecycle"] = {"autoResume": self.auto_resume, "onTimeout": "pause" if self.auto_pause else "kill"}
        if self.network:
            n = dict(self.network)
            if isinstance(n.get("egressProxy"), dict):
                n["egressProxy"] = {k: v for k, v in n["egressProxy"].items() if k != "password"}
            d["network"] = n
        if self.token:
            d["envdAccessToken"] = self.token
        return d


class Rest:
    """The routes. Each handler gets (exchange's Seen, team, path values, query, body) and returns (status, object, headers)."""

    ROUTES = (
        ("create", "POST", r"/sandboxes"), ("create_v2", "POST", r"/v2/sandboxes"),
        ("list", "GET", r"/v2/sandboxes"), ("list_v1", "GET", r"/sandboxes"),
        ("get", "GET", r"/sandboxes/([^/]+)"), ("delete", "DELETE", r"/sandboxes/([^/]+)"),
        ("timeout", "POST", r"/sandboxes/([^/]+)/timeout"),
        ("refreshes", "POST", r"/sandboxes/([^/]+)/refreshes"),
        ("connect", "POST", r"/sandboxes/([^/]+)/connect"),
        ("connect_v2", "POST", r"/v2/sandboxes/([^/]+)/connect"),
        ("resume", "POST", r"/sandboxes/([^/]+)/resume"),
        ("pause", "POST", r"/sandboxes/([^/]+)/pause"),
        ("network", "PUT", r"/sandboxes/([^/]+)/network"),
        ("metrics", "GET", r"/sandboxes/([^/]+)/metrics"),
        ("fork", "POST", r"/sandboxes/([^/]+)/fork"),
        ("snapshot", "POST", r"/sandboxes/([^/]+)/snapshots"),
        ("snapshots", "GET", r"/snapshots"),
        ("templates", "GET", r"/v2/templates"), ("templates_whole", "GET", r"/templates"),
        ("template_make", "POST", r"/v3/templates"), ("template_get", "GET", r"/templates/([^/]+)"),
        ("template_delete", "DELETE", r"/templates/([^/]+)"),
        ("api_health", "GET", r"/health"),
    )

    def __init__(self, cloud):
        self.cloud = cloud

    def route(self, method, path):
        """(name, path values) or the error that the cloud's validation gives."""
        known = False
        for name, m, pattern in self.ROUTES:
            hit = re.fullmatch(pattern, path)
            if hit and name not in self.absent():
                known = True
                if m == method:
                    return name, [urllib.parse.unquote(v) for v in hit.groups()]
        if known:
            raise Refuse(400, "validation error: method not allowed")
        raise Refuse(404, "validation error: no matching operation was found")

    def absent(self):
        """The routes of the other generation."""
        return ("templates",) if self.cloud.lists_templates == "whole" else ("templates_whole",)

    def team(self, seen):
        key = seen.header("x-api-key")
        if not key:
            raise Refuse(401, "no API key")
        team = self.cloud.keys.get(key) if re.fullmatch(r"e2b_[0-9a-f]+|ab_[A-Za-z0-9_-]+", key) else None
        if not team:
            raise Refuse(401, "invalid API key")
        return team

    async def serve(self, ex, name, values, act):
        """Answers one control call. `act` runs the handler with the faults around it."""
        seen = ex.seen
        if name == "api_health":
            await ex.body()
            await ex.answer(200, b"ok", content_type="text/plain")
            return
        try:
            raw, size = await ex.body(MAX_BODY)
            team = self.team(seen)
            if size > MAX_BODY:
                raise Refuse(413, "validation error: request body too large")
            body = self.parse(seen, raw)
            query = dict(urllib.parse.parse_qsl(seen.target.partition("?")[2], keep_blank_values=True))
            if values and not name.startswith("template_"):
                seen.sandbox = values[0].partition("-")[0]
            status, obj, headers = await act(lambda: getattr(self, "do_" + name)(seen, team, values, query, body))
        except Refuse as e:
            status, obj, headers = e.status, e.body, e.headers
        await ex.answer(status, b"" if obj is None else json.dumps(obj).encode(), headers)

    @staticmethod
    def parse(seen, raw):
        if not raw:
            return None
        try:
            body = json.loads(raw)
        except ValueError:
            raise Refuse(400, "validation error: the body is not JSON")
        if not isinstance(body, dict):
            raise Refuse(400, "validation error: the body is not an object")
        return body

    # -- helpers

    def find(self, team, text):
        parts = text.split("-")
        if len(parts) > 2 or not re.fullmatch(r"[a-z0-9]+", parts[0]):
            raise Refuse(400, "invalid sandbox ID")
        sbx = self.cloud.by_id.get(parts[0])
        if sbx is None or sbx.team is not team:
            raise Refuse(404, "sandbox %s not found" % parts[0])
        return sbx

    async def settled(self, sbx):
        while sbx.transition is not None:
            await sbx.transition.wait()

    @staticmethod
    def integer(body, name, default, low, high=2147483647, required=False):
        v = (body or {}).get(name)
        if v is None:
            if required:
                raise Refuse(400, "validation error: %s is required" % name)
            return default
        if not isinstance(v, int) or isinstance(v, bool) or v < low or v > high:
            raise Refuse(400, "validation error: %s is out of range" % name)
        return v

    def template(self, team, text):
        if not isinstance(text, str):
            raise Refuse(400, "validation error: templateID is required")
        name, colon, tag = text.strip().lower().partition(":")
        if not re.fullmatch(r"([a-z0-9_-]+/)?[a-z0-9_-]+", name) or (colon and not re.fullmatch(r"[a-z0-9_.-]+", tag)):
            raise Refuse(400, "invalid template reference")
        space, slash, name = name.rpartition("/")
        for t in self.cloud.templates:
            if slash and space != team.slug:
                break
            if name in (t.id, t.alias) and (t.public or t.owner is team) and (tag or "default") in t.tags:
                return t
        raise Refuse(404, "template '%s' not found" % text)

    def check_timeout(self, team, seconds):
        if seconds <= 0:
            raise Refuse(400, "timeout must be greater than 0")
        if seconds > team.max_length_hours * 3600:
            raise Refuse(400, "timeout cannot be greater than %d hours" % team.max_length_hours)

    def check_network(self, net, secure):
        if net is None:
            return
        if net.get("allowPublicTraffic") is False and not secure:
            raise Refuse(400, "allowPublicTraffic: false needs a secure sandbox")
        address = re.compile(r"\d{1,3}(\.\d{1,3}){3}(/\d{1,2})?|[0-9a-fA-F:]+:[0-9a-fA-F:]*(/\d+)?")
        deny, allow = net.get("denyOut") or [], net.get("allowOut") or []
        for d in deny:
            if not address.fullmatch(d) or (d.startswith("0.0.0.0") and d != "0.0.0.0/0"):
                raise Refuse(400, "denyOut: %s is not an address" % d)
        if any(not address.fullmatch(a) for a in allow) and "0.0.0.0/0" not in deny:
            raise Refuse(400, "allowOut: domains need denyOut 0.0.0.0/0")

    def live_count(self, team):
        return sum(1 for s in self.cloud.by_id.values() if s.team is team and s.state != "paused")

    # -- the calls

    async def do_create(self, seen, team, values, query, body, default_timeout=15):
        if body is None:
            raise Refuse(400, "validation error: a body is required")
        template = self.template(team, body.get("templateID"))
        timeout = self.integer(body, "timeout", default_timeout, -2147483648)
        self.check_timeout(team, timeout)
        auto_resume = (body.get("autoResume") or {}).get("enabled", False)
        if body.get("autoPauseMemory", True) is False and (not body.get("autoPause") or auto_resume):
            raise Refuse(400, "autoPauseMemory: false needs autoPause and no autoResume")
        self.check_network(body.get("network"), body.get("secure"))
        for field in ("metadata", "envVars"):
            given = body.get(field)
            if given is not None and not (isinstance(given, dict) and all(isinstance(v, str) for v in given.values())):
                raise Refuse(400, "validation error: %s" % field)
        if self.live_count(team) >= team.concurrency:
            raise Refuse(429, "you have reached the maximum of %d concurrent sandboxes" % team.concurrency)
        sbx = Sandbox(self.cloud, team, template, body, seen.n)
        sbx.timeout = timeout
        sbx.set_end(sbx.started_at + timeout, "create")
        self.cloud.give_files(template.files, sbx)
        self.cloud.by_id[sbx.id] = sbx
        self.cloud.ledger.sandboxes.append(sbx)
        seen.sandbox = sbx.id
        return 201, sbx.created(), []

    async def do_create_v2(self, seen, team, values, query, body):
        body = dict(body or {})
        body["secure"] = True
        return await self.do_create(seen, team, values, query, body, default_timeout=300)

    @staticmethod
    def metadata_filter(text):
        pairs = {}
        for piece in urllib.parse.unquote_plus(text).split("&"):
            if piece.count("=") != 1:
                raise Refuse(400, "invalid metadata filter")
            k, v = piece.split("=")
            pairs[urllib.parse.unquote_plus(k)] = urllib.parse.unquote_plus(v)
        return pairs

    async def do_list_v1(self, seen, team, values, query, body):
        want = self.metadata_filter(query["metadata"]) if "metadata" in query else {}
        rows = [s for s in self.cloud.by_id.values() if s.team is team and s.state == "running" and s.listed
                and all(s.metadata.get(k) == v for k, v in want.items())]
        rows.sort(key=lambda s: (-micros(s.started_at), s.id))
        return 200, [s.listed_as() for s in rows], []

    async def do_list(self, seen, team, values, query, body):
        states = query.get("state", "running,paused").split(",")
        order = query.get("order", "desc")
        limit = query.get("limit", "100")
        if not set(states) <= {"running", "paused"}:
            raise Refuse(400, "validation error: state")
        if order not in ("asc", "desc"):
            raise Refuse(400, "validation error: order")
        if not re.fullmatch(r"\d+", limit) or not 1 <= int(limit) <= 100:
            raise Refuse(400, "validation error: limit")
        want = self.metadata_filter(query["metadata"]) if "metadata" in query else {}
        after = micros(parse_time(query["startedAfter"].replace(" ", "+"))) if "startedAfter" in query else None
        rows = [s for s in self.cloud.by_id.values()
                if s.team is team and s.listed and s.state in ("running", "pausing", "paused")
                and s.shown_state() in states and all(s.metadata.get(k) == v for k, v in want.items())
                and (after is None or micros(s.started_at) >= after)]
        if "template" in query:
            name = query["template"].strip().lower()
            if ":" in name:
                raise Refuse(400, "template: no tag here")
            name = name.rpartition("/")[2]
            rows = [s for s in rows if name in (s.template.id, s.template.alias)]
        rows.sort(key=lambda s: (-micros(s.started_at), s.id))
        if order == "asc":
            rows.reverse()
        headers = []
        if "running" in states:
            headers.append(("X-Total-Running", str(sum(s.shown_state() == "running" for s in rows))))
        if "nextToken" in query:
            t, sid = self.cursor(query["nextToken"], order)
            key = (-t, sid)
            later = (lambda s: (-micros(s.started_at), s.id) > key) if order == "desc" else \
                    (lambda s: (-micros(s.started_at), s.id) < key)
            rows = [s for s in rows if later(s)]
        page = rows[:int(limit)]
        if len(rows) > len(page):
            headers.append(("X-Next-Token", self.mint(page[-1], order)))
        return 200, [s.listed_as() for s in page], headers

    @staticmethod
    def mint(sbx, order):
        text = "%s__%s%s" % (rfc3339(sbx.started_at), sbx.id, "__asc" if order == "asc" else "")
        return base64.urlsafe_b64encode(text.encode()).decode()

    @staticmethod
    def cursor(token, order):
        try:
            parts = base64.b64decode(token, altchars=b"-_", validate=True).decode().split("__")
            if len(parts) != (3 if order == "asc" else 2) or (order == "asc" and parts[2] != "asc"):
                raise ValueError
            return micros(parse_time(parts[0])), parts[1]
        except (ValueError, Refuse):
            raise Refuse(400, "invalid next token")

    async def do_get(self, seen, team, values, query, body):
        sbx = self.find(team, values[0])
        if sbx.state == "killing":
            raise Refuse(404, "sandbox %s not found" % sbx.id)
        return 200, sbx.detail(), []

    async def do_delete(self, seen, team, values, query, body):
        sbx = self.find(team, values[0])
        while sbx.transition is not None and sbx.state != "killing":
            await sbx.transition.wait()
        if sbx.state == "killing":
            await self.settled(sbx)
            return 204, None, []
        if sbx.fate is not None:
            raise Refuse(404, "sandbox %s not found" % sbx.id)
        await self.cloud.end_sandbox(sbx, "killed")
        return 204, None, []

    async def running(self, sbx):
        """For calls that need it to run: 404 when stored, 409 while it changes."""
        if sbx.state == "paused":
            raise Refuse(404, "sandbox %s is not running" % sbx.id)
        if sbx.state != "running":
            raise Refuse(409, "sandbox %s is changing its state" % sbx.id)

    async def do_timeout(self, seen, team, values, query, body):
        seconds = self.integer(body, "timeout", None, 0, required=True)
        sbx = self.find(team, values[0])
        await self.running(sbx)
        now = self.cloud.now()
        if now >= sbx.started_at + team.max_length_hours * 3600:
            raise Refuse(400, "the sandbox has reached its maximum length")
        sbx.set_end(now + seconds, "timeout")
        if seconds == 0:
            await self.cloud.expire()
        return 204, None, []

    async def do_refreshes(self, seen, team, values, query, body):
        seconds = self.integer(body, "duration", 15, 0, 3600)
        sbx = self.find(team, values[0])
        await self.running(sbx)
        end = self.cloud.now() + max(seconds, 15)
        if end > sbx.end_at:
            sbx.set_end(end, "refreshes")
        return 204, None, []

    async def do_connect(self, seen, team, values, query, body, default=None):
        seconds = self.integer(body, "timeout", default, 0, required=default is None)
        sbx = self.find(team, values[0])
        if sbx.state == "killing":
            raise Refuse(409, "sandbox %s is being killed" % sbx.id)
        await self.settled(sbx)
        if sbx.fate is not None:
            raise Refuse(404, "sandbox %s not found" % sbx.id)
        if seconds > team.max_length_hours * 3600:
            raise Refuse(400, "timeout cannot be greater than %d hours" % team.max_length_hours)
        if sbx.state == "paused":
            if self.live_count(team) >= team.concurrency:
                raise Refuse(429, "you have reached the maximum of %d concurrent sandboxes" % team.concurrency)
            await self.cloud.resume_sandbox(sbx, seconds)
            return 201, sbx.created(), []
        if self.cloud.now() + seconds > sbx.end_at:
            sbx.set_end(self.cloud.now() + seconds, "connect")
        return 200, sbx.created(), []

    async def do_connect_v2(self, seen, team, values, query, body):
        return await self.do_connect(seen, team, values, query, body, default=300)

    async def do_resume(self, seen, team, values, query, body):
        seconds = self.integer(body, "timeout", 15, -2147483648)
        sbx = self.find(team, values[0])
        if sbx.state in ("running", "snapshotting"):
            raise Refuse(409, "sandbox %s is running" % sbx.id)
        if sbx.state == "killing":
            raise Refuse(404, "sandbox %s not found" % sbx.id)
        await self.settled(sbx)
        self.check_timeout(team, seconds)
        await self.cloud.resume_sandbox(sbx, seconds)
        return 201, sbx.created(), []

    async def do_pause(self, seen, team, values, query, body):
        memory = (body or {}).get("memory", True)
        sbx = self.find(team, values[0])
        if sbx.state == "killing":
            raise Refuse(404, "sandbox %s not found" % sbx.id)
        if sbx.state == "pausing":
            await self.settled(sbx)
            return 204, None, []
        await self.settled(sbx)
        if sbx.fate is not None:
            raise Refuse(404, "sandbox %s not found" % sbx.id)
        if sbx.state == "paused":
            raise Refuse(409, "sandbox %s is already paused" % sbx.id)
        await self.cloud.pause_sandbox(sbx, memory)
        return 204, None, []

    async def do_network(self, seen, team, values, query, body):
        sbx = self.find(team, values[0])
        await self.running(sbx)
        body = body or {}
        self.check_network(body, sbx.secure)
        kept = {k: v for k, v in (sbx.network or {}).items() if k in ("allowPublicTraffic", "maskRequestHost")}
        kept.update({k: body[k] for k in ("allowOut", "denyOut", "egressProxy", "rules") if body.get(k)})
        sbx.network = kept or None
        if "allow_internet_access" in body:
            sbx.allow_internet_access = body["allow_internet_access"]
        return 204, None, []

    async def do_metrics(self, seen, team, values, query, body):
        for k in ("start", "end"):
            if k in query and not re.fullmatch(r"\d+", query[k]):
                raise Refuse(400, "validation error: %s" % k)
        if "start" in query and "end" in query and int(query["start"]) > int(query["end"]):
            raise Refuse(400, "start is after end")
        low, high = int(query.get("start", 0)), int(query.get("end", 1 << 40))
        rows = self.cloud.metrics.get(values[0], [])
        return 200, [m for m in rows if low <= m["timestampUnix"] <= high], []

    # -- copies

    async def do_fork(self, seen, team, values, query, body):
        seconds = self.integer(body, "timeout", 15, -2147483648)
        count = self.integer(body, "count", 1, 1, 100)
        sbx = self.find(team, values[0])
        self.check_timeout(team, seconds)
        if count >= team.concurrency:
            raise Refuse(400, "count must be below the limit of %d sandboxes" % team.concurrency)
        if sbx.state != "running":
            raise Refuse(409, "sandbox %s is %s" % (sbx.id, sbx.state))
        await self.cloud.checkpoint(sbx)
        results = []
        for _ in range(count):
            if self.live_count(team) >= team.concurrency:
                results.append({"error": {"code": 429, "message": "you have reached the maximum of %d concurrent "
                                          "sandboxes" % team.concurrency}})
                continue
            child = Sandbox(self.cloud, team, sbx.template, self.body_of(sbx), seen.n)
            child.timeout = seconds
            child.forked_from = sbx.id
            child.set_end(child.started_at + seconds, "fork")
            self.cloud.by_id[child.id] = child
            self.cloud.ledger.sandboxes.append(child)
            self.cloud.copy_files(sbx, child)
            results.append({"sandbox": child.created()})
        return 201, results, []

    @staticmethod
    def body_of(sbx):
        return {"metadata": sbx.metadata, "envVars": sbx.envs, "secure": sbx.secure, "network": sbx.network,
                "allow_internet_access": sbx.allow_internet_access, "autoPause": sbx.auto_pause,
                "autoPauseMemory": sbx.auto_pause_memory, "autoResume": {"enabled": sbx.auto_resume}}

    def snapshot_name(self, team, text):
        name, _, tag = text.strip().lower().partition(":")
        space, slash, alias = name.rpartition("/")
        if not re.fullmatch(r"[a-z0-9_-]+", alias) or (tag and not re.fullmatch(r"[a-z0-9_.-]+", tag)) or \
                (slash and space != team.slug):
            raise Refuse(400, "invalid snapshot name")
        return alias, tag

    async def do_snapshot(self, seen, team, values, query, body):
        if body is None:
            raise Refuse(400, "validation error: a body is required")
        name = body.get("name")
        alias, tag = self.snapshot_name(team, name) if name else (None, "")
        sbx = self.find(team, values[0])
        if sbx.state == "paused":
            raise Refuse(404, "sandbox %s is not running" % sbx.id)
        if sbx.state != "running":
            raise Refuse(409, "sandbox %s is %s" % (sbx.id, sbx.state))
        await self.cloud.checkpoint(sbx)
        template = next((t for t in self.cloud.templates if alias and t.alias == alias and t.owner is team), None)
        if template is None:
            letters = "abcdefghijklmnopqrstuvwxyz0123456789"
            template = Template("".join(random.choices(letters, k=20)), alias, (), public=False, owner=team)
            template.names = ["%s/%s" % (team.slug, alias)] if alias else []
            self.cloud.templates.append(template)
        template.source = sbx.id
        template.files = self.cloud.keep_files(sbx)
        template.tags.add(tag or "default")
        template.builds.append((self.cloud.unique_now(), tag or "default"))
        return 201, template.snapshot_info(tag or "default"), []

    async def do_snapshots(self, seen, team, values, query, body):
        limit = query.get("limit", "100")
        if not re.fullmatch(r"\d+", limit) or not 1 <= int(limit) <= 100:
            raise Refuse(400, "validation error: limit")
        if "sandboxID" in query and not re.fullmatch(r"[a-z0-9]+(-[^-]*)?", query["sandboxID"]):
            raise Refuse(400, "invalid sandbox ID")
        want, tag = query.get("name"), ""
        if want is not None:
            want, tag = self.snapshot_name(team, want)
        rows = []
        for t in self.cloud.templates:
            builds = [b for b in t.builds if not tag or b[1] == tag]
            if t.owner is team and builds and (want is None or want in (t.id, t.alias)) and \
                    query.get("sandboxID", t.source).partition("-")[0] == t.source:
                rows.append((builds[-1], t))
        rows.sort(key=lambda r: (-micros(r[0][0]), r[1].id))
        start = 0
        if "nextToken" in query:
            start = next((i + 1 for i, r in enumerate(rows) if r[1].id == query["nextToken"]), None)
            if start is None:
                raise Refuse(400, "invalid next token")
        page = rows[start:start + int(limit)]
        headers = [("X-Next-Token", page[-1][1].id)] if len(rows) > start + len(page) else []
        return 200, [t.snapshot_info(b[1]) for b, t in page], headers

    def shown_templates(self, team):
        """Snapshots are in a list of their own."""
        return [t for t in self.cloud.templates if (t.public or t.owner is team) and not t.builds]

    async def do_templates(self, seen, team, values, query, body):
        limit = query.get("limit", "100")
        if not re.fullmatch(r"\d+", limit) or not 1 <= int(limit) <= 100:
            raise Refuse(400, "validation error: limit")
        rows = self.shown_templates(team)
        start = 0
        if "nextToken" in query:
            start = next((i + 1 for i, t in enumerate(rows) if t.id == query["nextToken"]), None)
            if start is None:
                raise Refuse(400, "invalid next token")
        page = rows[start:start + int(limit)]
        headers = [("X-Next-Token", page[-1].id)] if len(rows) > start + len(page) else []
        return 200, [t.listed_as() for t in page], headers

    async def do_templates_whole(self, seen, team, values, query, body):
        return 200, [t.listed_as() for t in self.shown_templates(team)], []

    async def do_template_make(self, seen, team, values, query, body):
        """A name that is there already: a new build of that template."""
        name = (body or {}).get("name")
        if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9_-]+", name):
            raise Refuse(400, "validation error: name")
        template = next((t for t in self.cloud.templates if t.alias == name and t.owner is team), None)
        if template is None:
            letters = "abcdefghijklmnopqrstuvwxyz0123456789"
            template = Template("".join(random.choices(letters, k=20)), name, public=False, owner=team)
            self.cloud.templates.append(template)
        template.build_ids.insert(0, str(uuid.uuid4()))
        return 202, {"templateID": template.id, "buildID": template.build_ids[0], "public": False, "names": [name], "tags": ["default"],
                     "aliases": [name]}, []

    async def do_template_get(self, seen, team, values, query, body):
        t = next((t for t in self.cloud.templates if t.id == values[0] and t.owner is team), None)
        if t is None:
            raise Refuse(404, "template %s not found" % values[0])
        now = rfc3339(time.time())
        builds = [{"buildID": b, "status": "waiting", "createdAt": now, "updatedAt": now, "cpuCount": 2, "memoryMB": 512} for b in t.build_ids]
        return 200, {"templateID": t.id, "public": False, "aliases": [t.alias], "names": [t.alias], "createdAt": now, "updatedAt": now,
                     "lastSpawnedAt": None, "spawnCount": 0, "builds": builds}, []

    async def do_template_delete(self, seen, team, values, query, body):
        name = values[0].strip().lower().partition(":")[0]
        if not re.fullmatch(r"([a-z0-9_-]+/)?[a-z0-9_-]+", name):
            raise Refuse(400, "invalid template reference")
        name = name.rpartition("/")[2]
        for t in self.cloud.templates:
            if name not in (t.id, t.alias) or (not t.public and t.owner is not team):
                continue
            if t.owner is not team:
                raise Refuse(403, "template %s is not yours" % name)
            if any(s.template is t for s in self.cloud.by_id.values()):
                raise Refuse(400, "template %s is used by sandboxes" % name)
            self.cloud.templates.remove(t)
            return 204, None, []
        raise Refuse(404, "template %s not found" % name)
