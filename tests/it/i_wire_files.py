# SPDX-License-Identifier: MIT
"""Files over HTTP and the Filesystem service (cases 115 to 128)."""
import gzip
import os
import time
import urllib.parse

import pytest

from wire import RpcFailed, multipart, signature
from wire_common import fake, real, server  # noqa: F401

FS = "filesystem.Filesystem/"
OCTETS = ("Content-Type", "application/octet-stream")


@pytest.fixture
def box(server):
    return server.create()


def code_of(call, *args, **kw):
    with pytest.raises(RpcFailed) as e:
        call(*args, **kw)
    return e.value.code


def fs(server, box, rpc, **request):
    return server.unary(box, FS + rpc, request)


def refused(r, status):
    assert r.status == status and r.json()["code"] == status and r.json()["message"], r


def post_files(server, box, files, query=""):
    content_type, body = multipart(files)
    return server.envd(box, "POST", "/files" + query, [("Content-Type", content_type)], body)


def test_case_115_multipart(server, box):
    r = post_files(server, box, [("/home/user/a/b.txt", b"hello\0\xff")])
    assert r.status == 200, r
    assert r.json()[0]["path"] == "/home/user/a/b.txt" and r.json()[0]["name"] == "b.txt"
    assert r.json()[0]["type"] == "file"
    assert server.read(box, "/home/user/a/b.txt").body == b"hello\0\xff"
    assert server.stat(box, "/home/user/a")["owner"] == "user"
    r = post_files(server, box, [("ignored", b"x")], "?path=" + urllib.parse.quote("/tmp/by query.txt"))
    assert r.json()[0]["path"] == "/tmp/by query.txt", r


def test_case_116_octet_stream(server, box):
    r = server.write(box, "x.bin", b"\0\1\2")
    assert r.status == 200 and r.json()[0]["path"] == "/home/user/x.bin", r
    assert server.read(box, "/home/user/x.bin").body == b"\0\1\2"
    refused(server.envd(box, "POST", "/files", [OCTETS], b"x"), 400)
    refused(server.envd(box, "POST", "/files?path=y", [("Content-Type", "text/plain")], b"x"), 400)
    refused(server.envd(box, "POST", "/files?path=y", [], b"x"), 400)


@pytest.mark.parametrize("name", ["/home/user/\u00fcml\u00e4ut \U0001f600.txt", "/home/user/a b+c%d&e=f?#.txt",
                                  "/home/user/'quote\".txt", "/home/user/" + "n" * 200])
def test_names(server, box, name):
    assert server.write(box, name, name.encode()).json()[0]["path"] == name
    assert server.read(box, name).body == name.encode()
    assert server.stat(box, name)["name"] == os.path.basename(name)
    names = [e["name"] for e in fs(server, box, "ListDir", path="/home/user", depth=1)["entries"]]
    assert os.path.basename(name) in names


def test_case_116_chunked_and_large(server, box):
    data = os.urandom(1 << 20) * 5
    head = server.identity(box) + [OCTETS]
    r = server.request("POST", "/files?path=big", head, iter([data[i:i + 77777] for i in range(0, len(data), 77777)]))
    assert r.status == 200, r
    r = server.read(box, "big")
    assert r.body == data and r.header("content-length") == str(len(data))


def test_case_117_gzip_upload(server, box):
    data = b"compress me " * 1000
    assert server.write(box, "z", gzip.compress(data), [("Content-Encoding", "gzip")]).status == 200
    assert server.read(box, "z").body == data
    refused(server.write(box, "z", b"x", [("Content-Encoding", "br")]), 400)


def test_case_118_two_files(server, box):
    r = post_files(server, box, [("/home/user/one", b"1"), ("/tmp/two", b"22")])
    assert [e["path"] for e in r.json()] == ["/home/user/one", "/tmp/two"], r
    assert server.read(box, "/tmp/two").body == b"22"
    refused(post_files(server, box, [("/tmp/same", b"1"), ("/tmp/same", b"2")]), 400)


def test_case_119_errors(server, box):
    refused(server.write(box, "/home/user", b"x"), 400)
    refused(server.read(box, "/home/user"), 400)
    refused(server.envd(box, "GET", "/files"), 400)
    refused(server.read(box, "/home/user/missing"), 404)
    refused(server.envd(box, "GET", "/files?path=x&username=nobody-here"), 401)
    assert server.envd(box, "DELETE", "/files?path=x").status == 405


def test_case_120_metadata(server, box):
    path = "/home/user/m"
    r = server.write(box, path, b"x", [("X-Metadata-Owner", "bob"), ("X-Metadata-Two", "a b")])
    assert r.status == 200, r
    got = server.stat(box, path).get("metadata", {})
    if not server.fake and r.json()[0].get("metadata") is None:
        pytest.skip("the file system of the sandbox has no user xattrs")
    assert got == {"owner": "bob", "two": "a b"}
    assert server.write(box, path, b"y").status == 200
    assert not server.stat(box, path).get("metadata")
    refused(server.write(box, path, b"z", [("X-Metadata-Long", "v" * 5000)]), 400)
    refused(server.write(box, path, b"z", [("X-Metadata-Bad", "\u00e9".encode().decode("latin-1"))]), 400)


def test_case_121_range_and_encodings(server, box):
    server.write(box, "r", b"0123456789")
    r = server.read(box, "r", [("Range", "bytes=0-3")])
    assert r.status == 206 and r.body == b"0123" and r.header("content-range") == "bytes 0-3/10", r
    assert server.read(box, "r", [("Range", "bytes=-2")]).body == b"89"
    assert server.read(box, "r", [("Range", "bytes=7-")]).body == b"789"
    assert server.read(box, "r", [("Range", "bytes=20-")]).status == 416
    r = server.read(box, "r", [("Accept-Encoding", "gzip")])
    assert r.header("content-encoding") == "gzip" and gzip.decompress(r.body) == b"0123456789", r
    r = server.read(box, "r", [("Accept-Encoding", "identity")])
    assert r.header("content-encoding") is None and r.body == b"0123456789"
    assert server.read(box, "r", [("Accept-Encoding", "identity;q=0, br")]).status == 406
    r = server.read(box, "r", [("Accept-Encoding", "gzip"), ("Range", "bytes=1-1")])
    assert r.status == 206 and r.body == b"1"
    r = server.read(box, "r")
    assert r.header("accept-ranges") == "bytes" and "r" in r.header("content-disposition")


def test_empty_file(server, box):
    assert server.write(box, "empty", b"").status == 200
    r = server.read(box, "empty")
    assert r.status == 200 and r.body == b"" and server.stat(box, "empty").get("size", "0") == "0"


def signed(server, box, path, op="read", user="", exp=None, sig=None, **other):
    token = box["envdAccessToken"]
    q = {"path": path, "signature": sig or signature(path, op, user, token, exp)}
    if user:
        q["username"] = user
    if exp is not None:
        q["signature_expiration"] = str(exp)
    q.update(other)
    host = "49983-%s.localhost" % box["sandboxID"]
    target = "/files?" + urllib.parse.urlencode(q, quote_via=urllib.parse.quote)
    if op == "read":
        return server.request("GET", target, host=host)
    return server.request("POST", target, [OCTETS], b"signed", host=host)


def test_case_122_signed_urls(server, box):
    server.write(box, "/home/user/a b.txt", b"secret")
    now = int(time.time())
    assert signed(server, box, "/home/user/a b.txt").body == b"secret"
    assert signed(server, box, "/home/user/a b.txt", exp=now + 60).status == 200
    assert signed(server, box, "a b.txt", user="user").status == 200
    good = signature("/home/user/a b.txt", "read", "", box["envdAccessToken"])
    refused(signed(server, box, "/home/user/other", sig=good), 401)
    refused(signed(server, box, "/home/user/a b.txt", sig=good[:-1] + ("A" if good[-1] != "A" else "B")), 401)
    refused(signed(server, box, "/home/user/a b.txt", exp=now - 5), 401)
    refused(server.request("GET", "/files?path=x", host="49983-%s.localhost" % box["sandboxID"]), 401)
    assert signed(server, box, "/home/user/up", op="write").status == 200
    refused(signed(server, box, "/home/user/up", op="write", sig=good), 401)
    assert server.read(box, "/home/user/up").body == b"signed"


def test_case_122_vectors():
    token = "0123456789abcdef" * 4
    assert signature("/home/user/a b.txt", "read", "", token) == "v1_DRqJ3yYc6dTc06Bsf7gqbK1IADObRix9Ioug/oxIy3k"
    assert signature("notes.txt", "write", "root", token) == "v1_KyoiNgXebEC9uSRvuiZJJVJvZkoolr+9XTm0TCCPXJE"
    assert signature("/tmp/x", "read", "user", token, 1893456000) == "v1_/LCNhK0M0M2PGvFmt4RPajG5sLPNPTdR7uw3RG3Dhws"


def test_case_124_header_has_precedence(server, box):
    server.write(box, "p", b"x")
    sig = urllib.parse.quote(signature("p", "read", "", box["envdAccessToken"]))
    head = [("X-Access-Token", "wrong")] + server.identity(box, token=False)
    refused(server.request("GET", "/files?path=p&signature=" + sig, head), 401)


def test_case_125_make_dir(server, box):
    e = fs(server, box, "MakeDir", path="/home/user/d/e/f")["entry"]
    assert e["name"] == "f" and e["path"] == "/home/user/d/e/f" and e["type"] == "FILE_TYPE_DIRECTORY"
    assert e["mode"] == 0o755 and e["permissions"] == "drwxr-xr-x" and e["owner"] == "user"
    assert code_of(fs, server, box, "MakeDir", path="/home/user/d/e/f") == "already_exists"
    server.write(box, "file", b"")
    assert code_of(fs, server, box, "MakeDir", path="/home/user/file") == "invalid_argument"
    assert code_of(fs, server, box, "MakeDir", path="/home/user/file/sub") == "internal"


def test_case_126_list_dir(server, box):
    for p in ("l/b", "l/a", "l/d/x", "l/d/e/y"):
        server.write(box, p, b"1")
    paths = [e["path"] for e in fs(server, box, "ListDir", path="/home/user/l", depth=2)["entries"]]
    root = "/home/user/l/"
    assert paths == [root + p for p in ("a", "b", "d", "d/e", "d/x")]
    one = [e["name"] for e in fs(server, box, "ListDir", path="l")["entries"]]
    assert one == ["a", "b", "d"]
    assert code_of(fs, server, box, "ListDir", path="l/a") == "invalid_argument"
    assert code_of(fs, server, box, "ListDir", path="l/none") == "not_found"
    fs(server, box, "MakeDir", path="l/empty")
    assert fs(server, box, "ListDir", path="l/empty").get("entries", []) == []


def test_case_127_symlinks(server, box):
    server.write(box, "target", b"12345")
    if server.fake:
        folder = server.cloud.files(box["sandboxID"]) + "/home/user/"
        os.symlink("target", folder + "link")
        os.symlink("nowhere", folder + "dangling")
    else:
        assert server.run(box, "ln -s target link; ln -s nowhere dangling")[3]["status"] == "exit status 0"
    e = server.stat(box, "/home/user/link")
    assert e["symlinkTarget"] == "/home/user/target" and e["type"] == "FILE_TYPE_FILE"
    assert e["permissions"].startswith("L") and e["path"] == "/home/user/link"
    e = server.stat(box, "/home/user/dangling")
    assert e.get("type", "FILE_TYPE_UNSPECIFIED") == "FILE_TYPE_UNSPECIFIED" and e.get("mode", 0) == 0
    assert e["symlinkTarget"] == "/home/user/dangling"


def test_case_128_move_and_remove(server, box):
    server.write(box, "from", b"move me")
    e = fs(server, box, "Move", source="/home/user/from", destination="/home/user/new/sub/to")["entry"]
    assert e["path"] == "/home/user/new/sub/to" and e["size"] == "7"
    assert server.read(box, "new/sub/to").body == b"move me"
    assert code_of(server.stat, box, "from") == "not_found"
    assert code_of(fs, server, box, "Move", source="missing", destination="x") == "not_found"
    fs(server, box, "Remove", path="/home/user/new")
    assert code_of(server.stat, box, "/home/user/new") == "not_found"
    assert fs(server, box, "Remove", path="/home/user/new") == {}


def test_stat(server, box):
    server.write(box, "s", b"12345")
    e = server.stat(box, "s")
    assert e["name"] == "s" and e["path"] == "/home/user/s" and e["type"] == "FILE_TYPE_FILE" and e["size"] == "5"
    assert e["permissions"].startswith("-rw") and e["owner"] == "user" and e["group"] == "user"
    assert e["modifiedTime"].endswith("Z")
    assert server.stat(box, "~/s")["path"] == "/home/user/s"
    assert code_of(server.stat, box, "~other/s") == "invalid_argument"


def test_root_writes_as_root(real):
    box = real.create()
    r = real.envd(box, "POST", "/files?path=owned&username=root", [OCTETS], b"x")
    assert r.json()[0]["path"] == "/root/owned", r
    assert real.stat(box, "/root/owned")["owner"] == "root"


def test_interrupted_upload(server, box):
    """A body that breaks off: no answer is owed, the server lives, the file is not taken for whole by its size."""
    import socket
    head = "".join("%s: %s\r\n" % kv for kv in server.identity(box) + [OCTETS, ("Content-Length", "1000000")])
    s = socket.create_connection((server.address, server.port), 20)
    s.sendall(("POST /files?path=partial HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % head).encode() + b"x" * 1000)
    s.close()
    assert server.envd(box, "GET", "/health").status == 204


def test_files_of_proc(real):
    """E-5: what /proc makes up is read, whatever coding is asked for; not what speaks of the reader's memory."""
    box = real.create()
    for path in ("/proc/cpuinfo", "/proc/version", "/proc/meminfo", "/proc/1/status", "/proc/self/mounts"):
        for coding in ("identity", "gzip"):
            r = real.read(box, path, [("Accept-Encoding", coding)])
            body = gzip.decompress(r.body) if r.header("content-encoding") == "gzip" else r.body
            assert r.status == 200 and len(body) > 20, (path, coding, r)
    assert real.read(box, "/proc/version").body == open("/proc/version", "rb").read()
    r = real.read(box, "/proc/version", [("Range", "bytes=0-4")])
    assert r.status == 206 and r.body == b"Linux", r
    for name in ("maps", "smaps", "stat", "auxv", "environ", "mem", "syscall", "task/1/maps"):
        for link in ("/proc/self/", "/proc/thread-self/"):
            assert real.read(box, link + name).status in (404, 500), name
    real.run(box, "ln -s /proc/self/maps /home/user/maps")
    refused(real.read(box, "/home/user/maps"), 500)


@pytest.mark.parametrize("body", [b"no gzip at all", b"\x1f\x8b", b"\x1f\x8b\x08\x00garbage", b""])
def test_not_gzip_leaves_the_file(real, body):
    """E-5: a body that is not what it says does not touch the file that is there, and makes none."""
    box = real.create()
    real.write(box, "old", b"precious")
    for name in ("old", "new"):
        refused(real.write(box, name, body, [("Content-Encoding", "gzip")]), 400)
    assert real.read(box, "old").body == b"precious"
    assert real.read(box, "new").status == 404
    assert real.write(box, "old", gzip.compress(b""), [("Content-Encoding", "gzip")]).status == 200
    assert real.read(box, "old").body == b""


def test_statuses_of_the_agent(real):
    """E-5: what is no missing file and no folder is 500, and `internal` of the RPCs."""
    box = real.create()
    real.write(box, "file", b"x")
    for r in (real.read(box, "file/below"), real.write(box, "file/below", b"x"), real.read(box, "n" * 300),
              real.write(box, "n" * 300, b"x"), real.write(box, "/proc/nope", b"x"), real.write(box, "/proc/a/b", b"x"),
              real.envd(box, "POST", "/files?path=x", [("Content-Type", "multipart/form-data")], b"x"),
              real.envd(box, "POST", "/files?path=x", [("Content-Type", "multipart/form-data; boundary=b")], b"x"),
              real.write(box, "cut", gzip.compress(os.urandom(5000))[:4000], [("Content-Encoding", "gzip")])):
        refused(r, 500)
    refused(real.read(box, "/proc/nope"), 404)
    for rpc, path in (("MakeDir", "/proc/x"), ("MakeDir", "file/x"), ("Stat", "n" * 300), ("MakeDir", "n" * 300),
                      ("Stat", "file/below"), ("ListDir", "n" * 300)):
        assert code_of(fs, real, box, rpc, path=path) == "internal", (rpc, path)


def test_slashes_at_the_end(real):
    """E-5: a path that ends in a slash is a folder, or leads to one; its name is what is before the slash."""
    box = real.create()
    real.run(box, "mkdir d; echo x > f; ln -s d link; ln -s f lf")
    e = fs(real, box, "Stat", path="/home/user/d/")["entry"]
    assert (e["name"], e["path"], e["type"]) == ("d", "/home/user/d/", "FILE_TYPE_DIRECTORY"), e
    e = fs(real, box, "Stat", path="/home/user/link//")["entry"]
    assert e["name"] == "link" and "symlinkTarget" not in e and e["permissions"].startswith("d"), e
    e = fs(real, box, "Stat", path="/")["entry"]
    assert (e["name"], e["path"]) == ("/", "/")
    for path in ("/home/user/f/", "/home/user/lf/"):
        assert code_of(fs, real, box, "Stat", path=path) == "internal"
    e = fs(real, box, "MakeDir", path="/home/user/new/deep/")["entry"]
    assert (e["name"], e["type"]) == ("deep", "FILE_TYPE_DIRECTORY"), e
    assert code_of(fs, real, box, "MakeDir", path="/home/user/new/deep/") == "already_exists"
    for source, destination in (("/home/user/f", "/home/user/to/"), ("/home/user/f/", "/home/user/other"),
                                ("/home/user/link/", "/home/user/other")):
        assert code_of(fs, real, box, "Move", source=source, destination=destination) == "internal", source
    real.run(box, "mkdir empty")
    for destination in ("/home/user/made/", "/home/user/empty", "/home/user/d"):
        assert code_of(fs, real, box, "Move", source="/home/user/d", destination=destination) == "internal", destination
    assert fs(real, box, "Move", source="/home/user/d/", destination="/home/user/moved")["entry"]["name"] == "moved"
    assert real.stat(box, "/home/user/f")["size"] == "2" and code_of(fs, real, box, "Stat", path="/home/user/d") == "not_found"


def test_listings_have_clean_paths(real):
    """E-5: no empty, "." and ".." parts in what is listed."""
    box = real.create()
    real.run(box, "mkdir -p a/b; touch a/b/c")
    for path in ("/home//user/a", "/home/user/a//", "//home/./user/a/", "/home/user/a/b/.."):
        entries = fs(real, box, "ListDir", path=path, depth=2)["entries"]
        assert [e["path"] for e in entries] == ["/home/user/a/b", "/home/user/a/b/c"], path
