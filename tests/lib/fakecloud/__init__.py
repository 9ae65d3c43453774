# SPDX-License-Identifier: MIT
"""A scripted cloud with a ground-truth ledger, for tests of everything that talks to one.

    with FakeCloud() as cloud:
        cloud.fault("create", when="after", cut=True)       # the next create happens, its answer is lost
        … point a client at cloud.url with cloud.ca and cloud.key …
        cloud.ledger.wait_requests("create")
        assert len(cloud.ledger.sandboxes) == 1

The control plane and the data plane are on one address, over TLS (HTTP/2 and HTTP/1.1 by ALPN) at `url` and in
clear at `plain_url`. It runs on a thread of its own; every method here may be called from any thread.
"""
import asyncio
import email.utils
import json
import os
import re
import shutil
import ssl
import tempfile
import threading
import time
import traceback
import urllib.parse

from .certs import Authority
from .codec import Messages
from .envd import Envd
from .faults import Budget, Fault, Gate, Shape
from .ledger import Ledger
from .net import STREAM_LIMIT, Conn, Gone
from .rest import Refuse, Rest, Team, Template

__all__ = ["FakeCloud", "Shape", "Team", "Template"]

KEY = "e2b_" + "0123456789abcdef" * 2 + "01234567"
OTHER_KEY = "e2b_" + "f" * 40
INTERNAL = ("/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade")
BROWSERS = ("mozilla", "chrome", "safari", "firefox", "edge", "opera", "msie")


def either(seen, name):
    """A header in the spelling of either flavour."""
    return seen.header("agentbox-" + name) or seen.header("e2b-" + name)


class FakeCloud:
    def __init__(self, concurrency=1000, max_length_hours=24, h2_settings=None, authority=None, folder=None,
                 alpn=("h2", "http/1.1"), port=0, quick=False):
        self.folder = folder or tempfile.mkdtemp(prefix="fakecloud-")
        self._own_folder = folder is None
        self.ledger = Ledger()
        self.seed = os.urandom(32)
        self.key, self.other_key = KEY, OTHER_KEY
        self.team = Team("team-a", concurrency, max_length_hours)
        self.other_team = Team("team-b", concurrency, max_length_hours)
        self.keys = {KEY: self.team, OTHER_KEY: self.other_team}
        self.templates = [Template("rki5dems9wqfm4r03t7g", "base"),
                          Template("old0templateold0temp", "old", envd_version="0.0.9"),
                          Template("old1templateold1temp", "old-watch", envd_version="0.1.2")]
        self.lists_templates = "pages"    # or "whole": by the older route alone
        self.domain = None            # what create's answer says
        self.edge_hosts = set()       # names that route by headers, as sandbox.DOMAIN does
        self.by_id = {}               # sandboxes that exist
        self.starts = []              # every process ever started
        self.metrics = {}             # by sandbox: rows that its metrics answer with
        self.faults = []
        self.scripts = []
        self.budgets = {}             # Budget by route
        self.gates = {}               # "pause", "kill", "resume": Gate that the transition waits at
        self.conns = set()
        self.h2_settings = dict(h2_settings or {})
        self.withhold_credit = False  # never give HTTP/2 credit back for uploads
        self.is_silent = False
        self.ends_mute = False        # a sandbox that ends leaves its streams open, as a lost machine does
        self.mute = []                # the agents of such ones
        self.date_offset = 0.0        # of the Date header alone
        self.errors = []              # of the fake itself: a test's teardown looks at it
        self._clock_offset = 0.0
        self._last_now = 0.0
        self._authority = authority
        self._alpn = list(alpn)
        self._wanted_port = port
        self._servers = []
        self._tasks = set()
        self.messages = Messages()
        self.rest = Rest(self)

    # -- start and stop

    def start(self):
        self.authority = self._authority or Authority(os.path.join(self.folder, "ca"))
        self.ca = self.authority.cert
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fakecloud", daemon=True)
        ready = threading.Event()
        self.loop.call_soon(ready.set)
        self._thread.start()
        ready.wait(10)
        self._call(self._listen())
        return self

    def _run(self):
        asyncio.set_event_loop(self.loop)
        # children are reaped by the loop's own watcher, whichever thread it runs on
        asyncio.get_event_loop_policy().set_child_watcher(asyncio.ThreadedChildWatcher())
        self.loop.run_forever()

    async def _listen(self):
        cert, key = self.authority.issue()
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(cert, key)
        if self._alpn:
            self.tls.set_alpn_protocols(self._alpn)
        await self._open(self._wanted_port, 0)
        self._expiry = asyncio.ensure_future(self._expire_forever())

    async def _open(self, port, plain_port):
        secure = await self.loop.create_server(lambda: Conn(self, True), "127.0.0.1", port, ssl=self.tls,
                                               ssl_handshake_timeout=10)
        plain = await self.loop.create_server(lambda: Conn(self, False), "127.0.0.1", plain_port)
        self._servers = [secure, plain]
        self.port, self.plain_port = (s.sockets[0].getsockname()[1] for s in self._servers)
        self.url = "https://127.0.0.1:%d" % self.port
        self.plain_url = "http://127.0.0.1:%d" % self.plain_port

    def stop(self):
        async def finish():
            self._expiry.cancel()
            for s in self._servers:
                s.close()
            for c in list(self.conns):
                c.cut()
            for envd in [sbx.envd for sbx in self.by_id.values() if sbx.envd] + self.mute:
                envd.stop()
            for t in list(self._tasks):
                t.cancel()
            await asyncio.sleep(0)
            others = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
            await asyncio.wait(others, timeout=1) if others else None
        self._call(finish())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc):
        self.stop()

    def _call(self, coro):
        return asyncio.run_coroutine_threadsafe(coro, self.loop).result(30)

    def _soon(self, fn):
        done = threading.Event()
        out = []

        def call():
            try:
                out.append(fn())
            finally:
                done.set()
        self.loop.call_soon_threadsafe(call)
        done.wait(10)
        return out[0] if out else None

    # -- time

    def now(self):
        return time.time() + self._clock_offset

    def unique_now(self):
        self._last_now = max(round(self.now(), 6), round(self._last_now + 1e-6, 6))
        return self._last_now

    def http_date(self):
        return email.utils.formatdate(self.now() + self.date_offset, usegmt=True)

    def advance(self, seconds):
        """The cloud's clock jumps; what is due then has happened when this returns."""
        async def jump():
            self._clock_offset += seconds
            await self.expire()
        self._call(jump())

    async def expire(self):
        now = self.now()
        for sbx in list(self.by_id.values()):
            if sbx.state == "running" and sbx.end_at <= now:
                if sbx.auto_pause:
                    await self.pause_sandbox(sbx, sbx.auto_pause_memory)
                else:
                    await self.end_sandbox(sbx, "expired")

    async def _expire_forever(self):
        while True:
            await asyncio.sleep(0.05)
            await self.expire()

    # -- what happens to sandboxes

    async def _transit(self, sbx, state, gate):
        sbx.state = state
        sbx.transition = asyncio.Event()
        self.ledger.note()
        if gate in self.gates:
            await self.gates[gate].pass_through()

    def _settle(self, sbx):
        t, sbx.transition = sbx.transition, None
        t.set()
        self.ledger.note()

    async def end_sandbox(self, sbx, fate):
        await self._transit(sbx, "killing", "kill")
        if sbx.envd and self.ends_mute:
            sbx.envd.freeze(True)
            self.mute.append(sbx.envd)
        elif sbx.envd:
            sbx.envd.stop()
        self.by_id.pop(sbx.id, None)
        sbx.fate, sbx.fate_at = fate, self.now()
        self._settle(sbx)

    async def pause_sandbox(self, sbx, memory):
        await self._transit(sbx, "pausing", "pause")
        if sbx.envd:
            if memory:
                sbx.envd.freeze(True)
            else:
                sbx.envd.end_processes()
                sbx.envd.processes.clear()   # nor is their end remembered
                sbx.envs = {}
        sbx.state, sbx.end_at = "paused", self.now()
        self._settle(sbx)

    async def checkpoint(self, sbx):
        """The moment of a fork or a snapshot: it is listed nowhere, and goes on as it was."""
        await self._transit(sbx, "snapshotting", "snapshot")
        sbx.state = "running"
        self._settle(sbx)

    def keep_files(self, sbx):
        """A copy of its folder, if it has one yet."""
        if not sbx.envd:
            return None
        kept = tempfile.mkdtemp(prefix="snapshot-", dir=self.folder)
        shutil.copytree(sbx.envd.root, kept, symlinks=True, dirs_exist_ok=True)
        return kept

    def give_files(self, kept, sbx):
        if kept:
            shutil.copytree(kept, self._envd(sbx).root, symlinks=True, dirs_exist_ok=True)

    def copy_files(self, source, child):
        if source.envd:
            shutil.copytree(source.envd.root, self._envd(child).root, symlinks=True, dirs_exist_ok=True)

    async def resume_sandbox(self, sbx, seconds):
        await self._transit(sbx, "pausing", "resume")
        sbx.started_at = self.unique_now()
        sbx.set_end(sbx.started_at + seconds, "resume")
        if sbx.envd:
            sbx.envd.freeze(False)
        sbx.state = "running"
        self._settle(sbx)

    def make_sandbox(self, metadata=None, timeout=300, team=None, secure=True, **body):
        """One that somebody else made, without a request."""
        async def make():
            from .rest import Sandbox
            sbx = Sandbox(self, team or self.team, self.templates[0],
                          dict(body, metadata=metadata or {}, secure=secure), 0)
            sbx.timeout = timeout
            sbx.set_end(sbx.started_at + timeout, "made")
            self.by_id[sbx.id] = sbx
            self.ledger.sandboxes.append(sbx)
            return sbx
        return self._call(make())

    def kill_sandbox(self, sandbox_id, fate="killed by the test"):
        self._call(self.end_sandbox(self.by_id[sandbox_id], fate))

    def sandbox(self, sandbox_id):
        return next(s for s in list(self.ledger.sandboxes) if s.id == sandbox_id)

    def files(self, sandbox_id):
        """The folder that holds this sandbox's files."""
        return self._soon(lambda: self._envd(self.by_id[sandbox_id])).root

    def _envd(self, sbx):
        if sbx.envd is None:
            sbx.envd = Envd(self, sbx)
        return sbx.envd

    # -- scripting

    def gate(self):
        return Gate(self.loop, self.ledger.note)

    def fault(self, route, name=None, **kw):
        """Plays a fault on the n-th request of a route: see faults.py for what there is. Returns it."""
        for k in ("hold", "hold_answer"):
            if kw.get(k) is True:
                kw[k] = self.gate()
        if isinstance(kw.get("shape"), dict):
            kw["shape"] = Shape(**kw["shape"])
        f = Fault(name or "%s fault" % route, route, **kw)
        self._soon(lambda: self.faults.append(f))
        return f

    def clear_faults(self):
        self._soon(self.faults.clear)

    def limit(self, route, burst, per_second):
        """A token bucket for a route, told in RateLimit-* of its answers; 429 with Retry-After when it is empty."""
        b = self.budgets[route] = Budget(burst, per_second)
        return b

    def set_stream_limit(self, n):
        """From now on, on the connections that are there too."""
        def go():
            self.h2_settings[STREAM_LIMIT] = n
            for c in self.conns:
                if hasattr(c.engine, "set_stream_limit"):
                    c.engine.set_stream_limit(n)
        self._soon(go)

    def script(self, match, steps):
        """Commands with `match` in their words are not run: they produce these events (process.py)."""
        self._soon(lambda: self.scripts.insert(0, (match, list(steps))))

    def script_for(self, words):
        return next((steps for match, steps in self.scripts if match in words), None)

    def forget(self):
        """What is over is in the ledger no more: for a run so long that it would only grow."""
        def go():
            self.ledger.requests[:] = [r for r in self.ledger.requests if r.end is None]
            self.ledger.sandboxes[:] = [s for s in self.ledger.sandboxes if s.fate is None]
            self.starts.clear()
        self._soon(go)

    # -- the connections

    def goaway(self, code=0, last="max"):
        def go():
            for c in self.conns:
                if c.engine:
                    n = last
                    if last == "seen":
                        n = max(getattr(c.engine, "streams", {}) or {0: 0})
                    c.engine.goaway(code, n)
        self._soon(go)

    def close_idle(self):
        """Closes the connections that carry nothing, as a server does to idle ones."""
        self._soon(lambda: [c.transport.close() for c in list(self.conns)
                            if not getattr(c.engine, "streams", None)])

    def cut_all(self):
        self._soon(lambda: [c.cut() for c in list(self.conns)])

    def silence(self, on=True):
        """A black hole for the connections there are and those to come; off: only new ones work."""
        def go():
            self.is_silent = on
            for c in self.conns:
                if on:
                    c.mute()
        self._soon(go)

    def refuse(self, on=True):
        """Stops listening (connection refused), or listens again on the same ports."""
        async def go():
            if on:
                for s in self._servers:
                    s.close()
                    await s.wait_closed()
                for c in list(self.conns):
                    c.cut()
            else:
                await self._open(self.port, self.plain_port)
        self._call(go())

    def use_certificate(self, cert, key):
        """From the next connection on."""
        self._soon(lambda: self.tls.load_cert_chain(cert, key))

    # -- serving

    def spawn(self, ex):
        task = asyncio.ensure_future(self._serve(ex))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, ex):
        try:
            await self._serve_one(ex)
        except (Gone, asyncio.CancelledError, ConnectionError):
            if ex.seen.end is None:
                ex.end("client gone")
        except Exception:
            self.errors.append(traceback.format_exc())
            ex.cut()

    def _pick(self, seen):
        for f in self.faults:
            if f.takes(seen):
                seen.fault = f.name
                return f
        return None

    async def _serve_one(self, ex):
        seen = ex.seen
        where = self._place(ex)
        if where[0] == "refused":
            await ex.body()
            return await ex.answer(*where[1:])
        if where[0] == "api":
            try:
                name, values = self.rest.route(seen.method, seen.path)
            except Refuse as e:
                seen.route = "unknown"
                await ex.body()
                return await ex.answer(e.status, json.dumps(e.body).encode())
            seen.route = name
        else:
            _, sandbox_id, port = where
            seen.sandbox = sandbox_id
            parts = seen.path.strip("/").split("/")
            if len(parts) == 2 and "." in parts[0]:
                seen.route = parts[0].split(".")[0] + "." + parts[1]
            else:
                seen.route = "envd." + seen.path.strip("/")
        self.ledger.note()
        budget = self.budgets.get(seen.route)
        if budget and not budget.take(ex):
            await ex.body()
            return await ex.answer(429, b'{"code":429,"message":"rate limit exceeded"}')
        fault = self._pick(seen)
        ex.shape = fault.shape if fault else None
        if fault and fault.delay:
            await asyncio.sleep(fault.delay)
        if fault and fault.hold:
            await fault.hold.pass_through()
        if fault and fault.when == "before" and fault.strikes():
            return await self._strike(ex, fault)

        async def act(do):
            result = await do()
            seen.acted = True
            self.ledger.note()
            if fault and fault.hold_answer:
                await fault.hold_answer.pass_through()
            if fault and fault.when in ("after", "mid") and fault.strikes():
                await self._strike(ex, fault)
                raise Gone()
            return result

        if where[0] == "api":
            await self.rest.serve(ex, name, values, act)
        else:
            await self._edge(ex, sandbox_id, port, act)

    async def _strike(self, ex, fault):
        if fault.when == "mid" and not ex.started:
            await ex.start(200, [("content-type", "application/json"), ("content-length", "1000")])
            await ex.send(b'{"half":')
        elif ex.seen.method in ("POST", "PUT") and fault.when == "before":
            await ex.body()
        if fault.goaway is not None:
            ex.goaway(fault.goaway, fault.last)
        if fault.status is not None:
            body = fault.body if fault.body is not None else json.dumps(
                {"code": fault.status, "message": "by %s" % fault.name})
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            data = body.encode() if isinstance(body, str) else body
            return await ex.answer(fault.status, data, fault.headers, fault.content_type)
        if fault.cut:
            return ex.cut()
        if fault.reset is not None:
            return ex.reset(fault.reset)
        ex.silent()
        await ex.gone.wait()

    def _place(self, ex):
        """Control plane, or which port of which sandbox; the edge's own refusals are plain text."""
        seen = ex.seen
        host = ex.authority
        host = host[1:host.index("]")] if host.startswith("[") else host.partition(":")[0]
        sid, port = either(seen, "sandbox-id"), either(seen, "sandbox-port")
        literal = re.fullmatch(r"[\d.]+|[0-9a-fA-F:]*:[0-9a-fA-F:.]*", host)
        local = host == "localhost" or literal is not None
        shared = (host.startswith("sandbox.") and len(host) > 8) or host in self.edge_hosts

        def text(message):
            return ("refused", 400, message.encode() + b"\n", [("X-Content-Type-Options", "nosniff")],
                    "text/plain; charset=utf-8")
        if (shared or local) and (sid is not None or port is not None):
            if not sid or not port:
                return text("missing header")
            if not re.fullmatch(r"[a-z0-9]+", sid):
                return text("Invalid sandbox ID")
            if not re.fullmatch(r"\d+", port):
                return text("Invalid sandbox port")
            return "edge", sid, int(port)
        if local or host.startswith("api.") or host == "api":
            return ("api",)
        label, dot, _ = host.partition(".")
        parts = label.split("-")
        if not dot or len(parts) < 2:
            return text("Invalid host")
        if not re.fullmatch(r"\d+", parts[0]):
            return text("Invalid sandbox port")
        if not re.fullmatch(r"[a-z0-9]+", parts[1]):
            return text("Invalid sandbox ID")
        return "edge", parts[1], int(parts[0])

    async def _edge(self, ex, sandbox_id, port, act):
        seen = ex.seen
        sbx = self.by_id.get(sandbox_id)
        if sbx is not None and sbx.state in ("pausing", "snapshotting"):
            await sbx.transition.wait()
        if sbx is not None and sbx.state == "paused" and sbx.auto_resume:
            token = seen.header("x-access-token") if port == 49983 else either(seen, "traffic-access-token")
            want = sbx.token if port == 49983 else sbx.traffic_token
            if want and token != want:
                return await self._edge_error(ex, 403, {"sandboxId": sandbox_id, "message": "resume not permitted"})
            await self.resume_sandbox(sbx, max(sbx.timeout, 300))
        path = os.path.normpath("/" + urllib.parse.unquote(seen.path)).replace("//", "/")
        if sbx is None or sbx.state != "running":
            return await self._edge_error(ex, 502, {"sandboxId": sandbox_id, "message": "The sandbox was not found"})
        if port == 49983 and path in INTERNAL:
            return await self._edge_error(ex, 404, {"message": "no such route", "path": path})
        if port != 49983:
            if sbx.traffic_token and either(seen, "traffic-access-token") != sbx.traffic_token:
                return await self._edge_error(ex, 403, {"sandboxId": sandbox_id,
                                                        "message": "the traffic access token is missing or wrong"})
            return await self._edge_error(ex, 502, {"sandboxId": sandbox_id, "port": port,
                                                    "message": "The sandbox is running but port is not open"})
        await self._envd(sbx).serve(ex, seen.path, act)

    async def _edge_error(self, ex, status, body):
        await ex.body()
        body["code"] = status
        agent, accept = (ex.seen.header("user-agent") or "").lower(), ex.seen.header("accept") or ""
        mode = ex.seen.header("sec-fetch-mode")
        script = mode in ("cors", "no-cors", "same-origin", "websocket") or (
            mode != "navigate" and ex.seen.header("x-requested-with") is not None)
        html = any(b in agent for b in BROWSERS) and not script and not (
            "application/json" in accept and "text/html" not in accept)
        if html:
            return await ex.answer(status, b"<html><body>%d</body></html>" % status, content_type="text/html; charset=utf-8")
        await ex.answer(status, json.dumps(body).encode())
