# SPDX-License-Identifier: MIT
"""What every version of the e2b Python SDK can do, as a judge of a server: common.py NAME… prints a line of JSON for each check,
[name, null], [name, what was wrong], or [name, "LACKS …"] where this version has no such call. Where the server is comes from
the SDK's own E2B_* variables."""
import io
import json
import os
import sys
import time
import traceback

import e2b

ABSENT = "i00000000000000000000"
made = []


class Lacks(Exception):
    pass


def create(*a, **kw):
    kw.setdefault("timeout", 120)
    if hasattr(e2b.Sandbox, "create"):
        s = e2b.Sandbox.create(*a, **kw)
    else:
        s = e2b.Sandbox(*a, **kw)
    made.append(s)
    return s


def need(target, *names):
    """The first of these methods that this version has."""
    for name in names:
        if hasattr(target, name):
            return getattr(target, name)
    raise Lacks(" or ".join(names))


def raises(call, *a, **kw):
    try:
        call(*a, **kw)
    except Exception as e:
        return e
    raise AssertionError("nothing was raised")


def rows(paginator):
    out = []
    while paginator.has_next:
        out += paginator.next_items()
    return out


def check_create_and_kill():
    s = create()
    assert s.is_running() and s.kill() is True and s.is_running() is False and s.kill() is False


def check_info():
    s = create(metadata={"job": "42"})
    info = s.get_info()
    assert info.sandbox_id == s.sandbox_id and info.metadata == {"job": "42"}


def check_timeout():
    s = create(timeout=30)
    s.set_timeout(600)
    assert abs(s.get_info().end_at.timestamp() - time.time() - 600) < 20


def check_list():
    mark = "c%d" % os.getpid()
    one, two = create(metadata={"mark": mark, "n": "1 &=+\u00e9"}), create(metadata={"mark": mark})
    got = e2b.Sandbox.list(query=e2b.SandboxQuery(metadata={"mark": mark})) if hasattr(e2b, "SandboxQuery") else None
    if got is None:
        raise Lacks("SandboxQuery")
    found = rows(got) if hasattr(got, "has_next") else got
    assert [r.sandbox_id for r in found] == [two.sandbox_id, one.sandbox_id]


def check_connect():
    s = create()
    s.files.write("/home/user/here", "x")
    again = e2b.Sandbox.connect(s.sandbox_id)
    assert again.files.read("here") == "x"
    raises(e2b.Sandbox.connect, ABSENT)


def check_run():
    s = create(envs={"A": "1"})
    r = s.commands.run('echo "$A $B $PWD"; echo err >&2', envs={"B": "2"}, cwd="/tmp")
    assert (r.exit_code, r.stdout, r.stderr) == (0, "1 2 /tmp\n", "err\n")
    e = raises(s.commands.run, "echo out; exit 7")
    assert (e.exit_code, e.stdout) == (7, "out\n")
    assert "imeout" in type(raises(s.commands.run, "sleep 30", timeout=1)).__name__
    assert s.commands.run("id -un", user="root").stdout == "root\n"
    assert len(s.commands.run("seq 50000").stdout) == 288894


def check_background():
    s = create()
    h = s.commands.run('read x; echo "got $x"; sleep 100', background=True, **stdin_option(s))
    assert any(p.pid == h.pid for p in s.commands.list())
    s.commands.send_stdin(h.pid, "it\n")
    again = s.commands.connect(h.pid)
    assert again.kill() is True and s.commands.kill(4190000) is False


def stdin_option(s):
    import inspect
    return {"stdin": True} if "stdin" in inspect.signature(s.commands.run).parameters else {}


def check_close_stdin():
    s = create()
    close = need(s.commands, "close_stdin")
    h = s.commands.run("cat; echo end", background=True, stdin=True)
    s.commands.send_stdin(h.pid, "x")
    close(h.pid)
    assert h.wait().stdout == "xend\n"


def check_pty():
    s = create()
    h = s.pty.create(e2b.sandbox.commands.command_handle.PtySize(cols=80, rows=24))
    s.pty.resize(h.pid, e2b.sandbox.commands.command_handle.PtySize(cols=120, rows=40))
    s.pty.send_stdin(h.pid, b"echo $(stty size | tr ' ' x); exit\n")
    assert b"40x120" in b"".join(d or b"" for _, _, d in h)


def check_files():
    s = create()
    f = s.files
    assert f.write("/home/user/a/b.txt", "text \u00e9").path == "/home/user/a/b.txt"
    assert f.read("a/b.txt") == "text \u00e9"
    data = bytes(i * 31 & 255 for i in range(300000))
    f.write("bin", data)
    assert bytes(f.read("bin", format="bytes")) == data
    f.write("stream", io.BytesIO(b"x" * 100000))
    assert sum(len(c) for c in f.read("stream", format="stream")) == 100000
    assert f.make_dir("/home/user/d") is True and f.make_dir("/home/user/d") is False
    assert f.rename("/home/user/bin", "/home/user/d/g").name == "g"
    assert f.exists("d/g") and not f.exists("bin")
    assert [e.name for e in f.list("/home/user/d")] == ["g"]
    f.remove("/home/user/d")
    for call in (f.read, f.list):
        assert "NotFound" in type(raises(call, "/no/such")).__name__
    assert "InvalidArgument" in type(raises(f.read, "/home/user")).__name__


def check_write_files():
    s = create()
    write = getattr(s.files, "write_files", s.files.write)
    assert len(write([{"path": "/tmp/many/%d" % i, "data": "n%d" % i} for i in range(5)])) == 5
    assert s.files.read("/tmp/many/3") == "n3"


def check_file_info():
    s = create()
    info = need(s.files, "get_info")("/etc/passwd")
    assert info.name == "passwd" and info.owner == "root" and info.size > 0


def check_watch():
    s = create()
    s.files.make_dir("/tmp/w")
    w = s.files.watch_dir("/tmp/w")
    s.files.write("/tmp/w/a.txt", "a")
    seen, end = [], time.monotonic() + 15
    while not any(e.name == "a.txt" and e.type.value == "write" for e in seen):
        assert time.monotonic() < end, seen
        seen += w.get_new_events()
        time.sleep(0.02)
    w.stop()


def check_links():
    s = create()
    s.files.write("/home/user/l", "by link")
    link = s.download_url("/home/user/l")
    assert "/files?" in link and "signature" in link


def check_pause():
    s = create()
    s.files.write("kept", "data")
    need(s, "pause", "beta_pause")()
    again = e2b.Sandbox.connect(s.sandbox_id) if not hasattr(s, "resume") else e2b.Sandbox.resume(s.sandbox_id)
    assert again.files.read("kept") == "data"


def check_metrics():
    assert isinstance(need(create(), "get_metrics")(), list)


def check_snapshots():
    s = create()
    one = need(s, "create_snapshot")()
    assert one.snapshot_id in [r.snapshot_id for r in rows(s.list_snapshots())]
    assert e2b.Sandbox.delete_snapshot(one.snapshot_id) is True


def check_fork():
    one, = need(create(), "fork")()
    made.append(one)
    assert one.is_running()


def check_network():
    s = create()
    need(s, "update_network")({"deny_out": ["9.9.9.9"]})
    assert s.get_info().network["deny_out"] == ["9.9.9.9"]


def main(*names):
    for name in names:
        try:
            globals()["check_" + name]()
            wrong = None
        except Lacks as e:
            wrong = "LACKS %s" % e
        except BaseException:
            wrong = traceback.format_exc()
        print(json.dumps([name, wrong]), flush=True)
        while made:
            try:
                made.pop().kill()
            except Exception:
                pass


main(*sys.argv[1:])
os._exit(0)     # the SDK's transport has threads of its own, and aborts now and then when the interpreter is taken down
