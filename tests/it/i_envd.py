# SPDX-License-Identifier: MIT
"""The agent of the cloud's own sandboxes, built from its public source, as the judge of what agentboxd asks it and makes of its
answers. `ENVD=PATH` names the program; it is started as root, and its files are this machine's. Skipped without it: no registry
offers it."""
import os
import socket
import subprocess
import urllib.request

import pytest

import harness
from api import Api
from f_names import NAMES, names, read, text_of
from harness import temp_dir, until

ENVD = os.environ.get("ENVD", "")
pytestmark = pytest.mark.skipif(not ENVD or os.geteuid() != 0, reason="needs ENVD, the path of the cloud's own agent, and root")
FULL = bool(os.environ.get("SHOWS_FULL"))


def answers(url):
    try:
        urllib.request.urlopen(url + "/health", timeout=1).close()
        return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def agent():
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    # Its /run is its own.
    proc = subprocess.Popen(["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh", ENVD, "-isnotfc",
                             "-no-cgroups", "-port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = "http://127.0.0.1:%d" % port
    until(lambda: answers(url), what="the agent")
    yield url
    proc.terminate()
    proc.wait(10)


@pytest.fixture
def api(cloud, agent):
    d = harness.Daemon(cloud, conf={"account default": {"sandbox_url": agent}})
    with Api(d.socket) as a:
        yield a
    d.close()


@pytest.fixture
def box(api):
    return api.call("SandboxService.Create").id


@pytest.fixture
def folder():
    path = temp_dir()
    os.chmod(path, 0o755)
    return path


def make(folder, *parts, data=b"x"):
    path = os.path.join(os.fsencode(folder), *parts)
    with open(path, "wb") as f:
        f.write(data)
    return path


def test_names(api, box, folder):
    """B-6: what is not UTF-8, in every call; the agent refuses it all."""
    for n in NAMES:
        make(folder, n)
    assert sorted(names(api, box, folder, user="root")) == sorted(text_of(n) for n in NAMES)
    for n in NAMES:
        path = folder + "/" + text_of(n)
        f = api.call("FileService.Stat", sandbox=box, path=path, user="root")
        assert (f.name, f.path, f.size, f.type) == (text_of(n), path, 1, 1), (n, f)
        assert read(api, box, path, user="root") == b"x"
        w = api.send("FileService.Write", [{"header": {"sandbox": box, "path": path, "user": "root"}}, {"data": b"new"}]).results[0]
        assert (w.path, w.file.path, w.file.size) == (path, path, 3), w
        assert api.call("FileService.Move", sandbox=box, source=path, destination=path + "\\xfe", user="root").name == text_of(n) + "\\xfe"
        assert api.call("FileService.Exists", sandbox=box, path=path + "\\xfe", user="root").exists
        api.call("FileService.Remove", sandbox=box, path=path + "\\xfe", user="root")
    assert os.listdir(folder) == []


def test_names_among_others(api, box, folder):
    """B-6: paths that are UTF-8, whose answers hold names that are not."""
    os.symlink(b"to\xff", os.path.join(os.fsencode(folder), b"link"))
    make(folder, b"to\xff")
    link = api.call("FileService.Stat", sandbox=box, path=folder + "/link", user="root")
    assert (link.name, link.symlink_target, link.size, link.type) == ("link", folder + "/to\\xff", 3, 1), link
    assert read(api, box, folder + "/link", user="root") == b"x"
    moved = api.call("FileService.Move", sandbox=box, source=folder + "/link", destination=folder + "/moved", user="root")
    assert moved.symlink_target == folder + "/to\\xff"
    assert sorted(names(api, box, folder, user="root")) == ["moved", "to\\xff"]


def test_watch(api, box, folder):
    """B-6: a change whose name cannot be told is a change that was missed; directories with such names are watched."""
    with api.stream("FileService.Watch", sandbox=box, path=folder, user="root") as changes:
        assert next(changes).WhichOneof("event") == "ready"
        make(folder, b"\xff")
        assert next(c for c in changes if c.WhichOneof("event") != "heartbeat").WhichOneof("event") == "overflowed"
        make(folder, b"then")
        assert next(c for c in changes if c.WhichOneof("event") == "change").change.name == "then"
    os.mkdir(os.path.join(os.fsencode(folder), b"d\xff"))
    with api.stream("FileService.Watch", sandbox=box, path=folder + "/d\\xff", user="root", include_entry=True) as changes:
        assert next(changes).WhichOneof("event") == "ready"
        make(folder, b"d\xff", b"new")
        change = next(c for c in changes if c.WhichOneof("event") == "change").change
        assert (change.name, change.entry.path) == ("new", folder + "/d\\xff/new"), change


def test_files_that_cannot_be_sought(api, box):
    """B-3: the agent refuses to send them as they are."""
    for path in ("/proc/version", "/proc/filesystems", "/sys/class/net/lo/mtu", "/dev/null"):
        with open(path, "rb") as f:
            assert read(api, box, path, user="root") == f.read()


def test_large_directory(api, box, folder):
    """B-6"""
    n = 60000 if FULL else 12000
    for i in range(n):
        make(folder, b"%05d" % i + b"x" * 90)
    assert len(names(api, box, folder, user="root", timeout=100)) == n


def test_streams(api, box):
    """B-1, B-7: every stream is whole."""
    for i in range(20):
        events = list(api.stream("CommandService.Run", sandbox=box, user="root", argv={"args": ["sh", "-c", "seq 1 1000; exit 3"]}))
        assert events[-1].exited.exit_code == 3
        assert b"".join(e.output.data for e in events if e.WhichOneof("event") == "output").endswith(b"\n1000\n")
