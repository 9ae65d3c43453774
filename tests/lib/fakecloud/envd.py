# SPDX-License-Identifier: MIT
"""The agent of one fake sandbox: Process and Filesystem over Connect, and /files, /health, /metrics, /envs.

Files live in a folder of the test's own; commands see the machine they run on, with that folder as HOME.
"""
import asyncio
import base64
import email.parser
import email.policy
import gzip
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import time
import urllib.parse

from .codec import HTTP_OF, RpcError, basic_user, end_envelope, envelope, envelopes
from .faults import Shape
from .process import RETAINED_S, Process

USERS = {"user": "/home/user", "root": "/root"}
HOMES = {"user": "/home/user"}      # as programs see it; root has a folder of the test's own, since the machine's /root is there
STREAMS = {"process.Process/Start": ("process.StartRequest", "start"),
           "process.Process/Connect": ("process.ConnectRequest", "attach"),
           "filesystem.Filesystem/WatchDir": ("filesystem.WatchDirRequest", "watch")}
CHANGES = {"create": 1, "write": 2, "remove": 3, "rename": 4, "chmod": 5}
UNARY = {
    "process.Process/List": "ListRequest", "process.Process/Update": "UpdateRequest",
    "process.Process/SendInput": "SendInputRequest", "process.Process/SendSignal": "SendSignalRequest",
    "process.Process/CloseStdin": "CloseStdinRequest", "filesystem.Filesystem/Stat": "StatRequest",
    "filesystem.Filesystem/MakeDir": "MakeDirRequest", "filesystem.Filesystem/Move": "MoveRequest",
    "filesystem.Filesystem/ListDir": "ListDirRequest", "filesystem.Filesystem/Remove": "RemoveRequest",
}
ACCEPTS = {"application/json", "application/proto", "application/connect+json", "application/connect+proto"}
NOT_UTF8 = "marshal message: string field contains invalid UTF-8"     # as in Go: its strings are bytes, those of a message are not


class HttpError(Exception):
    def __init__(self, status, message, headers=()):
        Exception.__init__(self, message)
        self.status, self.message, self.headers = status, message, list(headers)


class Watch:
    """A WatchDir stream: to the code of streams it looks like a process that never ends."""
    pid, end = 0, None

    def __init__(self, path, request):
        self.path, self.recursive, self.entries = path.rstrip("/"), request.recursive, request.include_entry
        self.subscribers = [asyncio.Queue()]

    def kill(self):
        pass


class Envd:
    def __init__(self, cloud, sbx):
        self.cloud, self.sbx = cloud, sbx
        self.root = os.path.join(cloud.folder, sbx.id)
        for home in USERS.values():
            os.makedirs(self.root + home)
        os.makedirs(self.root + "/tmp")
        self.processes = {}
        self.retained = {}
        self.metadata = {}        # host path -> {key: value}
        self.holder = None
        self.has_begun = False    # a command, ever
        self.streams = set()      # exchanges of open streams
        self.watches = []

    # -- paths

    def resolve(self, path, user):
        home = USERS[user]
        if path in ("", "~"):
            return home
        if path.startswith("~/"):
            path = home + "/" + path[2:]
        elif path.startswith("~"):
            raise RpcError("invalid_argument", "the home of another user")
        elif not path.startswith("/"):
            path = os.path.normpath(home + "/" + path)
        return path

    def host(self, path):
        return self.root + os.path.normpath("/" + path)

    def user_of(self, seen):
        name = basic_user(seen.header("authorization"))
        if name is None:
            return "user"
        if name not in USERS:
            raise RpcError("unauthenticated", "no user %s" % name)
        return name

    # -- HTTP

    async def serve(self, ex, path, act):
        seen = ex.seen
        method_path = (seen.method, path)
        if self.sbx.token and method_path not in (("GET", "/health"), ("GET", "/files"), ("POST", "/files")):
            if seen.header("x-access-token") != self.sbx.token:
                await ex.body()
                return await self.error(ex, 401, "invalid access token")
        name = path[1:]
        if name in STREAMS or name in UNARY:
            return await self.rpc(ex, name, act)
        if path == "/files" and seen.method in ("GET", "POST"):
            return await self.files(ex, act)
        await ex.body()
        if method_path == ("GET", "/health"):
            await act(self.nothing)
            return await ex.answer(204, headers=[("Cache-Control", "no-store")])
        if method_path == ("GET", "/metrics"):
            return await ex.answer(200, json.dumps({
                "ts": int(self.cloud.now()), "cpu_count": 2, "cpu_used_pct": 0.0, "mem_total": 536870912,
                "mem_used": 1048576, "mem_cache": 0, "disk_used": 0, "disk_total": 1073741824,
                "mem_total_mib": 512, "mem_used_mib": 1}).encode())
        if method_path == ("GET", "/envs"):
            return await ex.answer(200, json.dumps(self.sbx.envs).encode(), headers=[("Cache-Control", "no-store")])
        if path in ("/health", "/metrics", "/envs", "/files"):
            return await ex.answer(405, b"", content_type="")
        await ex.answer(404, b"404 page not found\n", content_type="text/plain; charset=utf-8")

    async def nothing(self):
        return None

    async def error(self, ex, status, message, headers=()):
        body = json.dumps({"code": status, "message": message}).encode() + b"\n"
        await ex.answer(status, body, headers=[("X-Content-Type-Options", "nosniff"), *headers])

    # -- Connect

    async def rpc(self, ex, name, act):
        seen = ex.seen
        kind = (seen.header("content-type") or "").split(";")[0].strip().lower()
        streaming = name in STREAMS
        if seen.method != "POST":
            await ex.body()
            return await ex.answer(405, b"", headers=[("Allow", "POST")], content_type="")
        good = {t for t in ACCEPTS if ("connect+" in t) == streaming}
        if kind not in good:
            await ex.body()
            return await ex.answer(415, b"", headers=[("Accept-Post", ", ".join(sorted(good)))], content_type="")
        is_json = kind.endswith("json")
        shape = ex.shape or Shape()
        if shape.content_type:
            kind = shape.content_type
        try:
            body, _ = await ex.body()
            deadline = self.protocol_headers(seen)
            user = self.user_of(seen)
            if streaming:
                messages = envelopes(body)
                if len(messages) != 1:
                    raise RpcError("unimplemented", "exactly one message, not %d" % len(messages))
                flags, body = messages[0]
                if flags & 1:
                    body = gzip.decompress(body)
            elif seen.header("content-encoding") == "gzip":
                body = gzip.decompress(body)
            request_type = STREAMS[name][0] if streaming else name.split(".")[0] + "." + UNARY[name]
            request = self.cloud.messages.decode(request_type, body, is_json)
            if streaming:
                handler = getattr(self, STREAMS[name][1])
                proc, queue = await act(lambda: handler(request, user, seen))
            else:
                handler = getattr(self, "do_" + name.rpartition("/")[2].lower())
                try:
                    reply = await act(lambda: handler(request, user, seen))
                except UnicodeEncodeError:
                    raise RpcError("internal", NOT_UTF8)
        except RpcError as e:
            if streaming:
                await ex.start(200, [("content-type", kind), ("connect-accept-encoding", "gzip")])
                await ex.send(end_envelope(e), shape.split)
                return await ex.finish()
            return await ex.answer(HTTP_OF[e.code], json.dumps(e.as_dict()).encode(), content_type="application/json")
        if not streaming:
            return await ex.answer(200, self.cloud.messages.encode(reply, is_json),
                                   headers=[("accept-encoding", "gzip")], content_type=kind)
        await ex.start(200, [("content-type", kind), ("connect-accept-encoding", "gzip")])
        response = name.partition(".")[0] + ".%sResponse" % name.rpartition("/")[2]
        await self.stream(ex, proc, queue, response, is_json, shape, deadline, name.endswith("Start"))

    @staticmethod
    def protocol_headers(seen):
        if seen.header("connect-protocol-version", "1") != "1":
            raise RpcError("invalid_argument", "unsupported connect-protocol-version")
        ms = seen.header("connect-timeout-ms")
        if ms is None:
            return None
        if not ms.isascii() or not ms.isdigit() or len(ms) > 10:
            raise RpcError("invalid_argument", "malformed connect-timeout-ms")
        return time.monotonic() + int(ms) / 1000.0

    async def stream(self, ex, proc, queue, response, is_json, shape, deadline, kills):
        try:
            interval = int(ex.seen.header("keepalive-ping-interval", "90"))
        except ValueError:
            interval = 90
        cls = self.cloud.messages[response]
        sent, packed = 0, b""

        async def put(data):
            nonlocal sent, packed
            if shape.raw is not None and sent == 0:
                data = shape.raw
            if shape.pack:
                packed += data
            else:
                await ex.send(data, shape.split)
            sent += 1
            if shape.cut_after is not None and sent >= shape.cut_after:
                await ex.send(packed)
                if shape.how == "cut":
                    ex.cut()
                elif shape.how == "reset":
                    ex.reset(shape.code)
                elif shape.how == "end":
                    await ex.finish()
                else:
                    ex.silent()
                    await ex.gone.wait()
                raise asyncio.CancelledError

        def message(event):
            m = cls()
            if isinstance(proc, Watch):
                self.watch_message(m, event, proc)
                return envelope(self.cloud.messages.encode(m, is_json))
            e = m.event
            if event[0] == "start":
                e.start.pid = event[1]
            elif event[0] in ("stdout", "stderr", "pty"):
                setattr(e.data, event[0], event[1])
            elif event[0] == "keepalive":
                e.keepalive.SetInParent()
            elif event[0] == "end":
                e.end.exit_code, e.end.exited, e.end.status = event[1], event[2], event[3]
                if event[4]:
                    e.end.error = event[4]
                e.end.SetInParent()
            return envelope(self.cloud.messages.encode(m, is_json))

        error = None
        self.streams.add(ex)
        try:
            await put(message(("start", proc.pid)))
            event = None
            if queue is None:
                event = proc.end
                await put(message(event))
            while event is None or event[0] != "end":
                wait = interval
                if deadline is not None:
                    wait = min(wait, max(deadline - time.monotonic(), 0))
                get = asyncio.ensure_future(queue.get())
                gone = asyncio.ensure_future(ex.gone.wait())
                try:
                    await asyncio.wait({get, gone}, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                    if gone.done():
                        return
                    event = get.result() if get.done() else None
                finally:
                    gone.cancel()
                    get.cancel()
                if event is None:
                    if deadline is not None and time.monotonic() >= deadline:
                        if kills:
                            proc.kill()
                        error = RpcError("deadline_exceeded", "the deadline has passed")
                        break
                    event = ("keepalive",)
                if event[0] == "raw":
                    await put(event[1])
                elif event[0] == "break":
                    ex.cut()
                    return
                else:
                    try:
                        data = message(event)
                    except UnicodeEncodeError:
                        error = RpcError("unknown", "error sending filesystem event: " + NOT_UTF8)
                        break
                    await put(data)
            if not shape.no_end:
                packed += end_envelope(error, shape.gzip_end)
            packed += shape.extra_end or b""
            await ex.send(packed, shape.split)
            await asyncio.sleep(shape.late_end)
            await ex.finish()
        except asyncio.CancelledError:
            return
        finally:
            self.streams.discard(ex)
            if queue is not None and queue in proc.subscribers:
                proc.subscribers.remove(queue)
            if proc in self.watches:
                self.watches.remove(proc)

    # -- Process

    async def start(self, request, user, seen):
        config = request.process
        cwd = self.resolve(config.cwd, user) if config.HasField("cwd") else USERS[user]
        proc = Process(config, request.tag if request.HasField("tag") else None, self)
        stdin = request.stdin if request.HasField("stdin") else True
        argv = [config.cmd] + list(config.args)
        steps = self.cloud.script_for(" ".join(argv))
        queue = proc.subscribe()
        if steps is not None:
            await proc.start_script(steps, stdin)
        else:
            if not os.path.isdir(self.host(cwd)) and not os.path.isdir(cwd):
                raise RpcError("invalid_argument", "no folder %s" % cwd)
            env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": HOMES.get(user) or self.host(USERS[user]), "USER": user, "LOGNAME": user}
            env.update(self.sbx.envs)
            env.update({"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": self.sbx.id, "E2B_TEMPLATE_ID": self.sbx.template.id})
            env.update(config.envs)
            where = self.host(cwd) if os.path.isdir(self.host(cwd)) else cwd
            size = request.pty.size if request.HasField("pty") else None
            self.has_begun = True
            await proc.start(["/bin/sh", "-c", 'exec "$@"', "sh"] + argv, env, where, stdin, size)
        self.processes[proc.pid] = proc
        self.cloud.starts.append(proc)
        return proc, queue

    def ended(self, proc):
        if self.processes.pop(proc.pid, None):
            self.retained[proc.pid] = proc

    def select(self, selector, ended=False):
        which = selector.WhichOneof("selector")
        if which is None:
            raise RpcError("unimplemented", "no selector")
        for p in self.processes.values():
            if (p.pid == selector.pid) if which == "pid" else (p.tag == selector.tag):
                return p
        if ended and which == "pid" and selector.pid in self.retained:
            p = self.retained[selector.pid]
            if self.cloud.now() - p.ended_at <= RETAINED_S:
                return p
        raise RpcError("not_found", "no such process")

    async def attach(self, request, user, seen):
        proc = self.select(request.process, ended=True)
        return proc, (proc.subscribe() if proc.end is None else None)

    async def do_list(self, request, user, seen):
        reply = self.cloud.messages["process.ListResponse"]()
        for p in self.processes.values():
            info = reply.processes.add()
            info.config.CopyFrom(p.config)
            info.pid = p.pid
            if p.tag is not None:
                info.tag = p.tag
        return reply

    async def do_update(self, request, user, seen):
        p = self.select(request.process)
        if request.HasField("pty"):
            p.resize(request.pty.size)
        return self.cloud.messages["process.UpdateResponse"]()

    async def do_sendinput(self, request, user, seen):
        p = self.select(request.process)
        kind = request.input.WhichOneof("input")
        if kind is None:
            raise RpcError("unimplemented", "no input")
        await p.input(kind, getattr(request.input, kind))
        return self.cloud.messages["process.SendInputResponse"]()

    async def do_sendsignal(self, request, user, seen):
        if request.signal not in (9, 15):
            raise RpcError("unimplemented", "unsupported signal")
        self.select(request.process).send_signal(request.signal)
        return self.cloud.messages["process.SendSignalResponse"]()

    async def do_closestdin(self, request, user, seen):
        self.select(request.process).close_stdin()
        return self.cloud.messages["process.CloseStdinResponse"]()

    # -- Filesystem

    def entry(self, e, path):
        host = self.host(path)
        try:
            st = os.lstat(host)
        except OSError:
            raise RpcError("not_found", "no such file: %s" % path)
        e.name, e.path, e.size = os.path.basename(path.rstrip("/")) or "/", path, st.st_size
        e.permissions = stat.filemode(st.st_mode)
        e.mode, target = stat.S_IMODE(st.st_mode), st
        if stat.S_ISLNK(st.st_mode):
            e.permissions = "L" + e.permissions[1:]
            text = os.readlink(host)
            inside = text if text.startswith("/") else os.path.normpath(os.path.join(os.path.dirname(path), text))
            try:
                target = os.stat(self.host(inside))
                e.mode = stat.S_IMODE(target.st_mode)
                e.symlink_target = inside
            except OSError:
                e.mode, target = 0, None
                e.symlink_target = path
        if target is not None:
            e.type = 2 if stat.S_ISDIR(target.st_mode) else 1 if stat.S_ISREG(target.st_mode) else 0
        e.owner = e.group = "user"
        e.modified_time.FromNanoseconds(st.st_mtime_ns)
        for k, v in self.metadata.get(host, {}).items():
            e.metadata[k] = v
        return e

    async def do_stat(self, request, user, seen):
        reply = self.cloud.messages["filesystem.StatResponse"]()
        self.entry(reply.entry, self.resolve(request.path, user))
        return reply

    async def do_makedir(self, request, user, seen):
        path = self.resolve(request.path, user)
        host = self.host(path)
        if os.path.isdir(host):
            raise RpcError("already_exists", "folder exists: %s" % path)
        if os.path.lexists(host):
            raise RpcError("invalid_argument", "not a folder: %s" % path)
        try:
            os.makedirs(host)
        except OSError as e:
            raise RpcError("internal", str(e))
        self.changed(path, "create")
        reply = self.cloud.messages["filesystem.MakeDirResponse"]()
        self.entry(reply.entry, path)
        return reply

    async def do_move(self, request, user, seen):
        source, target = self.resolve(request.source, user), self.resolve(request.destination, user)
        if not os.path.lexists(self.host(source)):
            raise RpcError("not_found", "no such file: %s" % source)
        os.makedirs(os.path.dirname(self.host(target)), exist_ok=True)
        try:
            os.rename(self.host(source), self.host(target))
        except OSError as e:
            raise RpcError("internal", str(e))
        self.changed(source, "rename")
        self.changed(target, "create")
        reply = self.cloud.messages["filesystem.MoveResponse"]()
        self.entry(reply.entry, target)
        return reply

    async def do_remove(self, request, user, seen):
        path = self.resolve(request.path, user)
        host = self.host(path)
        if os.path.lexists(host):
            self.changed(path, "remove")
        if os.path.isdir(host) and not os.path.islink(host):
            shutil.rmtree(host)
        elif os.path.lexists(host):
            os.unlink(host)
        return self.cloud.messages["filesystem.RemoveResponse"]()

    async def do_listdir(self, request, user, seen):
        path = self.resolve(request.path, user)
        host = self.host(path)
        if not os.path.exists(host):
            raise RpcError("not_found", "no such folder: %s" % path)
        if not os.path.isdir(host):
            raise RpcError("invalid_argument", "not a folder: %s" % path)
        reply = self.cloud.messages["filesystem.ListDirResponse"]()

        def walk(folder, depth):
            for name in sorted(os.listdir(self.host(folder))):
                p = folder.rstrip("/") + "/" + name
                self.entry(reply.entries.add(), p)
                if depth > 1 and os.path.isdir(self.host(p)) and not os.path.islink(self.host(p)):
                    walk(p, depth - 1)
        walk(path, max(request.depth, 1))
        return reply

    # -- watching: what is changed through the agent, and what a test says has changed

    async def watch(self, request, user, seen):
        path = self.resolve(request.path, user)
        if not os.path.exists(self.host(path)):
            raise RpcError("not_found", "no such folder: %s" % path)
        if not os.path.isdir(self.host(path)):
            raise RpcError("invalid_argument", "not a folder: %s" % path)
        w = Watch(path, request)
        self.watches.append(w)
        return w, w.subscribers[0]

    def watch_message(self, m, event, w):
        if event[0] == "start":
            m.start.SetInParent()
        elif event[0] == "keepalive":
            m.keepalive.SetInParent()
        else:
            path, kind = event
            m.filesystem.name, m.filesystem.type = os.path.relpath(path, w.path), CHANGES[kind]
            if w.entries and kind in ("create", "write", "chmod") and os.path.lexists(self.host(path)):
                self.entry(m.filesystem.entry, path)

    def changed(self, path, *kinds):
        for w in self.watches:
            if path.startswith(w.path + "/") and (w.recursive or "/" not in path[len(w.path) + 1:]):
                for kind in kinds:
                    w.subscribers[0].put_nowait((path, kind))

    # -- /files

    async def files(self, ex, act):
        seen = ex.seen
        query = dict(urllib.parse.parse_qsl(seen.target.partition("?")[2], keep_blank_values=True,
                                            errors="surrogateescape"))
        try:
            self.check_files_token(seen, query)
            user = query.get("username", "user")
            if user not in USERS:
                raise HttpError(401, "no user %s" % user)
            if seen.method == "GET":
                await ex.body()
                return await self.download(ex, query, user, act)
            return await self.upload(ex, query, user, act)
        except HttpError as e:
            await ex.body()
            await self.error(ex, e.status, e.message, e.headers)

    def check_files_token(self, seen, query):
        if not self.sbx.token:
            return
        header = seen.header("x-access-token")
        if header is not None:
            if header != self.sbx.token:
                raise HttpError(401, "invalid access token")
            return
        if "signature" not in query:
            raise HttpError(401, "missing signature")
        raw = "%s:%s:%s:%s" % (query.get("path", ""), "read" if seen.method == "GET" else "write",
                               query.get("username", ""), self.sbx.token)
        if "signature_expiration" in query:
            raw += ":" + query["signature_expiration"]
        want = "v1_" + base64.b64encode(hashlib.sha256(raw.encode(errors="surrogateescape")).digest()).decode().rstrip("=")
        if query["signature"] != want:
            raise HttpError(401, "invalid signature")
        if int(query.get("signature_expiration", "9999999999")) < self.cloud.now():
            raise HttpError(401, "signature expired")

    def expand(self, path, user):
        try:
            return self.resolve(path, user)
        except RpcError as e:
            raise HttpError(400, e.message)

    @staticmethod
    def coding(header):
        """Which of identity and gzip an Accept-Encoding prefers; None if neither is acceptable."""
        q = {}
        for part in (header or "identity").split(","):
            name, _, weight = part.strip().partition(";q=")
            q[name.lower()] = float(weight or 1)
        if q.get("gzip", 0) > 0 and q["gzip"] >= q.get("identity", 0):
            return "gzip"
        return "identity" if q.get("identity", q.get("*", 1)) > 0 else None

    @staticmethod
    def can_seek(host):
        """Files of /proc do not, and the agent learns sizes by seeking to the end."""
        with open(host, "rb") as f:
            try:
                f.seek(0, os.SEEK_END)
                return True
            except OSError:
                return False

    async def download(self, ex, query, user, act):
        path = self.expand(query.get("path", ""), user)
        host = self.host(path)
        if not os.path.exists(host):
            raise HttpError(404, "path '%s' does not exist" % path)
        if os.path.isdir(host):
            raise HttpError(400, "path '%s' is a directory" % path)
        coding = self.coding(ex.seen.header("accept-encoding"))
        part = ex.seen.header("range")
        if part and coding == "gzip":
            coding = "identity"
        if coding is None:
            raise HttpError(406, "no acceptable encoding")
        await act(self.nothing)
        size = os.path.getsize(host)
        if coding == "identity" and not self.can_seek(host):
            return await ex.answer(500, b"seeker can't seek\n", content_type="text/plain; charset=utf-8")
        head = [("Vary", "Accept-Encoding"), ("content-type", "application/octet-stream"),
                ("Content-Disposition", "inline; filename=%s" % urllib.parse.quote(os.fsencode(os.path.basename(path))))]
        begin, end, status = 0, size, 200
        if part and part.startswith("bytes="):
            a, _, b = part[6:].partition("-")
            begin = int(a) if a else max(size - int(b), 0)
            end = min(int(b) + 1, size) if a and b else size
            if begin >= size:
                raise HttpError(416, "range not satisfiable", [("Content-Range", "bytes */%d" % size)])
            status = 206
            head.append(("Content-Range", "bytes %d-%d/%d" % (begin, end - 1, size)))
        if coding == "gzip":
            head.append(("Content-Encoding", "gzip"))
            with open(host, "rb") as f:
                await ex.start(200, head)
                await ex.send(gzip.compress(f.read()))
            return await ex.finish()
        head += [("Accept-Ranges", "bytes"), ("content-length", str(end - begin))]
        await ex.start(status, head)
        sent = 0
        with open(host, "rb") as f:
            f.seek(begin)
            left = end - begin
            while left:
                data = f.read(min(left, 65536))
                if not data:            # shorter than it said, as the files of /sys
                    return ex.cut()
                left -= len(data)
                await ex.send(data)
                sent += 1
                if ex.shape and ex.shape.cut_after is not None and sent >= ex.shape.cut_after:
                    return ex.cut() if ex.shape.how == "cut" else ex.reset(ex.shape.code)
        await ex.finish()

    async def upload(self, ex, query, user, act):
        seen = ex.seen
        metadata, total = {}, 0
        for k, v in seen.headers:
            if k.startswith("x-metadata-"):
                metadata.setdefault(k[len("x-metadata-"):], v)
        for k, v in metadata.items():
            total += 9 + len(k) + len(v)
            if len(k) > 246 or not all(0x20 <= ord(c) <= 0x7e for c in k + v):
                raise HttpError(400, "invalid metadata")
        if total > 4096:
            raise HttpError(400, "metadata too long")
        coding = seen.header("content-encoding", "identity")
        if coding not in ("identity", "gzip"):
            raise HttpError(400, "unsupported content encoding")
        kind = seen.header("content-type", "")
        if kind.startswith("application/octet-stream"):
            if "path" not in query:
                raise HttpError(400, "path is required")
            path = self.expand(query["path"], user)
            if os.path.isdir(self.host(path)):
                raise HttpError(400, "path '%s' is a directory" % path)
            targets = [path]
            await self.store(ex, path, coding, metadata)
        elif kind.startswith("multipart/"):
            body, _ = await ex.body()
            if coding == "gzip":
                body = gzip.decompress(body)
            head = ("content-type: %s\r\n\r\n" % kind).encode()
            message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
            targets = []
            for part in message.iter_parts():
                params = part.get("content-disposition").params if part.get("content-disposition") else {}
                if params.get("name") != "file":
                    continue
                path = self.expand(query.get("path") or params.get("filename", ""), user)
                if path in targets:
                    raise HttpError(400, "two files for %s" % path)
                if os.path.isdir(self.host(path)):
                    raise HttpError(400, "path '%s' is a directory" % path)
                self.write(path, [part.get_payload(decode=True)], metadata)
                targets.append(path)
        else:
            raise HttpError(400, "unsupported content type")
        await act(self.nothing)
        said = [os.fsencode(t).decode(errors="replace") for t in targets]
        reply = [{"path": t, "name": os.path.basename(t), "type": "file"} for t in said]
        if metadata:
            for r in reply:
                r["metadata"] = metadata
        await ex.answer(200, json.dumps(reply).encode())

    async def store(self, ex, path, coding, metadata):
        host = self.host(path)
        os.makedirs(os.path.dirname(host), exist_ok=True)
        self.changed(path, *(["write"] if os.path.lexists(host) else ["create", "write"]))
        with open(host, "wb") as f:
            if coding == "gzip":
                body, _ = await ex.body()
                f.write(gzip.decompress(body))
            else:
                async for chunk in ex.chunks():
                    f.write(chunk)
        self.metadata[host] = metadata

    def write(self, path, parts, metadata):
        host = self.host(path)
        os.makedirs(os.path.dirname(host), exist_ok=True)
        self.changed(path, *(["write"] if os.path.lexists(host) else ["create", "write"]))
        with open(host, "wb") as f:
            for p in parts:
                f.write(p)
        self.metadata[host] = metadata

    # -- the sandbox as a whole

    def group(self):
        """The process group that its commands join."""
        if self.holder is None or self.holder.poll() is not None:
            self.holder = subprocess.Popen(["sleep", "infinity"], process_group=0, stdin=subprocess.DEVNULL,
                                           stdout=subprocess.DEVNULL)
        return self.holder.pid

    def signal_all(self, number):
        """To every process that descends from a command: they carry the sandbox's id in their environment."""
        if not self.has_begun:
            return
        mark = b"E2B_SANDBOX_ID=" + self.sbx.id.encode() + b"\0"
        for pid in os.listdir("/proc"):
            try:
                with open("/proc/%s/environ" % pid, "rb") as f:
                    if pid.isdigit() and mark in f.read():
                        os.kill(int(pid), number)
            except OSError:
                pass

    def end_processes(self):
        self.signal_all(signal.SIGKILL)
        for p in list(self.processes.values()):
            p.kill()

    def stop(self):
        """The machine is gone: its streams break, nothing in it gets to say goodbye."""
        for ex in list(self.streams):
            if not ex.finished:
                ex.reset(2)
        self.end_processes()
        self.processes.clear()
        if self.holder is not None:
            self.holder.kill()
            self.holder.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def freeze(self, on):
        self.signal_all(signal.SIGSTOP if on else signal.SIGCONT)
