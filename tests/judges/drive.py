# SPDX-License-Identifier: MIT
"""Makes a Python SDK send every kind of request that it has, to tests/judges/recorder.py: drive.py e2b|agentbox async|sync"""
import asyncio
import datetime
import http.client
import importlib
import inspect
import io
import os
import sys
import time
import traceback
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
import fixed  # noqa: E402

URL = os.environ["RECORDER_URL"]
NAME, MODE = sys.argv[1:3]
PREFIX = {"e2b": "E2B", "agentbox": "AGENTBOX"}[NAME]
os.environ.update({PREFIX + "_API_KEY": fixed.E2B_KEY if NAME == "e2b" else fixed.AGENTBOX_KEY, PREFIX + "_API_URL": URL,
                   PREFIX + "_SANDBOX_URL": URL})
sdk = importlib.import_module(NAME)
WHEN = datetime.datetime(2026, 8, 21, 10, 0, 0, tzinfo=datetime.timezone.utc)
Sandbox = sdk.AsyncSandbox if MODE == "async" else sdk.Sandbox
QUERY = sdk.SandboxQuery(metadata={"user": "abc d", "k&=": "\u00e9+1"})


class Has:
    """An object of the SDK whose methods fail only when they are called, where the version lacks them."""

    def __init__(self, target):
        self.target = target

    def __getattr__(self, name):
        v = getattr(self.target, name, None)
        if name in ("files", "commands", "pty"):
            return Has(v)
        return lacking if v is None else v


def lacking(*_, **__):
    raise NotImplementedError("this version lacks it")


async def got(v):
    return await v if inspect.isawaitable(v) else v


def step(name):
    with urllib.request.urlopen(URL + "/_step/" + name) as r:
        r.read()


async def pages(paginator):
    p = await got(paginator)
    while p.has_next:
        await got(p.next_items())


async def read_stream(v):
    v = await got(v)
    if hasattr(v, "__aiter__"):
        async for _ in v:
            pass
    else:
        for _ in v:
            pass


async def quiet(call):
    """A handle's own end does not matter here."""
    try:
        return await got(call())
    except Exception:
        return None


FULL = dict(
    template="my-template", timeout=600, metadata={"job": "42", "k&=": "\u00e9+1"}, envs={"A": "1", "EMPTY": ""},
    allow_internet_access=False,
    network={"allow_public_traffic": False, "mask_request_host": "localhost:${PORT}",
             "allow_out": lambda ctx: ["10.0.0.0/8"] + list(ctx.rules), "deny_out": lambda ctx: [ctx.all_traffic],
             "rules": {"api.example.com": [{"transform": lambda ctx: {
                 "headers": {"Authorization": "Bearer " + ctx.iam.tokens["aws"]}}}]}},
    iam={"tokens": {"aws": {"audience": "sts", "token_type": "JWT-SVID"}}},
    lifecycle={"on_timeout": "pause", "auto_resume": True})
E2B_MORE = {"network": dict(FULL["network"], egress_proxy={"address": "proxy.example.com:1080", "username": "u", "password": "secret"}),
            "volume_mounts": {"/mnt/data": "data"}, "mcp": {"exa": {"apiKey": "k"}}}


def events(*_):
    pass


async def main():
    s = None
    h = None

    async def do(_step, fn, *a, **kw):
        step(_step)
        try:
            return await got(fn(*a, **kw))
        except Exception:
            print("%s %s: %s" % (NAME, _step, traceback.format_exc(limit=-2)), file=sys.stderr)

    sandbox = Has(Sandbox)
    one_callback = {} if MODE == "sync" else {"on_data": events}
    s = Has(await do("create", sandbox.create))
    await do("create-named", sandbox.create, "my-template", timeout=60, metadata={"a": "b"}, envs={"A": "1"})
    await do("create-full", sandbox.create, **FULL)
    await do("create-insecure", sandbox.create, secure=False)
    await do("create-kill", sandbox.create, lifecycle={"on_timeout": "kill"})
    if NAME == "e2b":
        await do("create-full-e2b", sandbox.create, **dict(FULL, **E2B_MORE))
        await do("create-pause-files", sandbox.create, lifecycle={"on_timeout": {"action": "pause", "mode": "filesystem"}})
        await do("create-idempotent", sandbox.create, idempotency_key=fixed.UUID)
        await do("connect-reboot", s.connect, on_resume="reboot")
        await do("pause-files", s.pause, mode="filesystem")
        await do("list-all-filters", lambda: pages(sandbox.list(limit=2, order="asc", query=sdk.SandboxQuery(
            metadata={"a": "b"}, state=[sdk.SandboxState.RUNNING], template="base", started_after=WHEN))))
    else:
        await do("create-pause-files", sandbox.create, lifecycle={"on_timeout": {"action": "pause", "keep_memory": False}})
        await do("pause-files", s.pause, keep_memory=False)
    await do("connect", sandbox.connect, s.sandbox_id)
    await do("connect-timeout", s.connect, timeout=1000)
    await do("info", s.get_info)
    await do("list", lambda: pages(sandbox.list()))
    await do("list-metadata", lambda: pages(sandbox.list(query=QUERY, limit=2)))
    await do("list-state", lambda: pages(sandbox.list(query=sdk.SandboxQuery(
        state=[sdk.SandboxState.RUNNING, sdk.SandboxState.PAUSED]))))
    await do("timeout", s.set_timeout, 30)
    await do("metrics", s.get_metrics)
    await do("metrics-span", s.get_metrics, start=WHEN, end=WHEN + datetime.timedelta(hours=1))
    await do("network", s.update_network, {"deny_out": ["9.9.9.9"], "allow_out": ["1.1.1.1"], "rules": {
        "x.org": [{"transform": lambda ctx: {"headers": {"A": ctx.iam.tokens["any"]}}}]}})
    await do("network-clear", s.update_network, {})
    await do("network-internet", s.update_network, {"allow_internet_access": False})
    await do("fork", s.fork)
    await do("fork-two", s.fork, count=2, timeout=60)
    await do("snapshot", s.create_snapshot)
    await do("snapshot-named", s.create_snapshot, name="My-Snap:v1")
    await do("snapshots", lambda: pages(sandbox.list_snapshots()))
    await do("snapshots-own", lambda: pages(s.list_snapshots(limit=1, name="my-snap:v1")))
    await do("snapshot-delete", sandbox.delete_snapshot, "team-slug/my-snap:v1")
    await do("pause", s.pause)
    template = Has(getattr(sdk, "AsyncTemplate" if MODE == "async" else "Template", None))
    await do("template-exists", template.exists, "team-slug/my-template")
    await do("template-tags", template.get_tags, "my-template")
    await do("template-tag", template.assign_tags, "my-template:v1", tags=["v2", "stable"])
    await do("template-untag", template.remove_tags, "my-template", tags=["v2"])
    await do("health", s.is_running)

    await do("run", s.commands.run, "echo hi")
    await do("run-full", s.commands.run, "echo $A", envs={"A": "1"}, user="root", cwd="/tmp", timeout=5, stdin=True)
    await do("run-no-timeout", s.commands.run, "true", timeout=0)
    h = await do("run-background", s.commands.run, "sleep 100", background=True)
    await do("process-list", s.commands.list)
    await do("stdin", s.commands.send_stdin, fixed.PID, "w\u00f6rld\n")
    await do("stdin-close", s.commands.close_stdin, fixed.PID)
    await do("process-kill", s.commands.kill, fixed.PID)
    await do("process-connect", s.commands.connect, fixed.PID)
    await do("process-connect-timeout", s.commands.connect, fixed.PID, timeout=5)
    if hasattr(s.commands, "stream_input"):
        await do("stream-input", lambda: stream_input(s))
    await do("pty", s.pty.create, sdk.PtySize(cols=80, rows=24), **one_callback)
    await do("pty-full", s.pty.create, sdk.PtySize(cols=80, rows=24), user="root", cwd="/tmp", envs={"TERM": "vt100"}, timeout=0,
             **one_callback)
    await do("pty-stdin", s.pty.send_stdin, fixed.PID, b"ls\n")
    await do("pty-resize", s.pty.resize, fixed.PID, sdk.PtySize(cols=120, rows=40))
    await do("pty-connect", s.pty.connect, fixed.PID, **one_callback)
    await do("pty-kill", s.pty.kill, fixed.PID)

    f = s.files
    await do("exists", f.exists, "/home/user/g/a.txt")
    await do("stat", f.get_info, "a.txt")
    await do("stat-user", f.get_info, "a.txt", user="root")
    await do("ls", f.list, "/home/user/g")
    await do("ls-deep", f.list, "/home/user/g", depth=3, user="root")
    await do("mkdir", f.make_dir, "/home/user/g/\u00fc d")
    await do("rename", f.rename, "/home/user/g/a", "/home/user/g/b")
    await do("remove", f.remove, "/home/user/g/a")
    await do("read", f.read, "/home/user/g/a b+c%.txt")
    await do("read-user-gzip", f.read, "a.txt", format="bytes", user="root", gzip=True)
    await do("read-stream", lambda: read_stream(f.read("a.txt", format="stream")))
    await do("write", f.write, "/home/user/g/a.txt", "text \u00e9")
    await do("write-bytes-user", f.write, "a.bin", b"\0\1\2", user="root")
    await do("write-stream", f.write, "/home/user/g/s.bin", io.BytesIO(b"streamed"))
    await do("write-octets", f.write, "/home/user/g/o.bin", b"octets", use_octet_stream=True)
    await do("write-gzip", f.write, "/home/user/g/z.txt", "zipped", gzip=True)
    await do("write-metadata", f.write, "/home/user/g/m.txt", "x", metadata={"Owner": "bob", "k2": "v 2"})
    await do("write-two", f.write_files, [{"path": "/home/user/g/1", "data": "one"}, {"path": "/home/user/g/2", "data": b"two"}])
    if MODE == "async":
        w = Has(await do("watch", f.watch_dir, "/home/user/g", on_event=events))
        await quiet(w.stop)
        w = Has(await do("watch-full", f.watch_dir, "/home/user/g", on_event=events, user="root", recursive=True, include_entry=True,
                     allow_network_mounts=True, timeout=0))
        await quiet(w.stop)
    else:
        w = Has(await do("watcher", f.watch_dir, "/home/user/g", recursive=True, include_entry=True))
        await do("watcher-events", w.get_new_events)
        await do("watcher-stop", w.stop)
    time.time, real = lambda: fixed.UNIX, time.time
    links = {"link-read": s.download_url("/home/user/a b.txt"), "link-read-user": s.download_url("a.txt", user="root"),
             "link-read-expires": s.download_url("a.txt", use_signature_expiration=600),
             "link-write": s.upload_url("/home/user/w.txt")}
    time.time = real
    for name, link in links.items():
        step(name)
        fetch_link(link, b"x" if name == "link-write" else None)
    await do("kill", s.kill)
    if h is not None:
        await quiet(h.disconnect)


async def stream_input(s):
    pieces = ("one ", b"two\n")
    if MODE == "sync":
        return s.commands.stream_input(fixed.PID, iter(pieces))
    handle = await got(s.commands.stream_input(fixed.PID))
    for piece in pieces:
        await got(handle.send(piece))
    await got(handle.close())


def fetch_link(link, body):
    """As any HTTP client does it: the name in the link leads to the recorder."""
    parts = urllib.parse.urlsplit(link)
    recorder = urllib.parse.urlsplit(URL)
    c = http.client.HTTPConnection(recorder.hostname, recorder.port, timeout=10)
    head = {"Host": parts.netloc}
    if body is not None:
        head["Content-Type"] = "application/octet-stream"
    c.request("POST" if body is not None else "GET", parts.path + "?" + parts.query, body, head)
    c.getresponse().read()
    c.close()


asyncio.run(main())
os._exit(0)
