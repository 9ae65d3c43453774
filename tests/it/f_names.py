# SPDX-License-Identifier: MIT
"""Names of files that are not UTF-8: shown escaped, usable by that form, wherever a name or a path is (proto/base/name.h)."""
import json
import os
import shutil

import pytest

from api import ApiError

HERE = "/home/user/"


def text_of(name):
    """The form, written once more."""
    out, i = "", 0
    while i < len(name):
        for n in (1, 2, 3, 4):
            try:
                c = name[i:i + n].decode()
            except UnicodeDecodeError:
                continue
            if c == "\\" and len(name) >= i + 4 and name[i + 1:i + 2] == b"x" and name[i + 2:i + 4] in ESCAPABLE:
                break
            out, i = out + c, i + n
            break
        else:
            out, i = out + "\\x%02x" % name[i], i + 1
            continue
        if c == "\\" and not out.endswith("\\"):
            out, i = out + "\\x5c", i + 1
    return out


ESCAPABLE = {b"5c"} | {b"%02x" % i for i in range(128, 256)}
NAMES = [b"plain", b"back\\slash", b"latin-\xe9", b"\xff\xfe", "ü\U0001f600".encode(), b"cut\xc3", b"\\xff", b"a\\x5cb", b"\\\xff",
         b"new\nline\xff", b"-rf\xff", b"~\xff", b"$(id)\xff", b"'\"\xff", b" \xff ", b"%ff\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"tab\t\xff\\"]
ODD = [n for n in NAMES if text_of(n) != n.decode("utf-8", "surrogateescape")]


@pytest.fixture
def box(local_api):
    b = local_api.call("SandboxService.Create").id
    yield b
    local_api.call("SandboxService.Kill", sandbox=b)


def octal(name):
    return "".join("\\%03o" % c for c in name)


def shell(api, box, script):
    last = [e for e in api.stream("CommandService.Run", sandbox=box, user="root", argv={"args": ["/bin/sh", "-c", script]})]
    assert last[-1].exited.exit_code == 0, last
    return b"".join(e.output.data for e in last if e.WhichOneof("event") == "output")


def touch(api, box, folder, names):
    shell(api, box, "mkdir -p %s && cd %s && " % (folder, folder) +
          " && ".join("n=$(printf '%s.') && n=${n%%.} && printf x >\"./$n\"" % octal(n) for n in names))


def there(api, box, folder):
    """The names that are there, as bytes."""
    out = shell(api, box, "cd %s && for n in * .[!.]*; do [ -e \"$n\" ] && printf '%%s\\0' \"$n\"; done; exit 0" % folder)
    return sorted(out.split(b"\0")[:-1])


def names(api, box, path, **kw):
    return [f.name for f in api.stream("FileService.List", sandbox=box, path=path, **kw)]


def read(api, box, path, **kw):
    return b"".join(p.data for p in api.stream("FileService.Read", sandbox=box, path=path, **kw))


def test_the_form():
    assert [text_of(n) for n in (b"\xff", b"\\xff", b"a\\x5cb", b"\\\xff", b"back\\slash", "ü".encode())] == [
        "\\xff", "\\x5cxff", "a\\x5cx5cb", "\\\\xff", "back\\slash", "ü"]
    assert len(ODD) == len(NAMES) - 3


def test_every_call(local_api, box):
    """B-6: List, Stat, Exists, Read, Write, Move, Remove, MakeDir, Watch, SignUrl: by the text that List shows."""
    api = local_api
    touch(api, box, HERE + "d", NAMES)
    assert sorted(names(api, box, HERE + "d")) == sorted(text_of(n) for n in NAMES)
    for n in NAMES:
        path = HERE + "d/" + text_of(n)
        f = api.call("FileService.Stat", sandbox=box, path=path)
        assert (f.name, f.path, f.type, f.size, f.permissions) == (text_of(n), path, 1, 1, "-rw-r--r--"), (n, f)
        assert f.owner == "root" and f.modified_at.seconds > 1600000000
        assert api.call("FileService.Exists", sandbox=box, path=path).exists
        assert not api.call("FileService.Exists", sandbox=box, path=path + "\\xf0").exists
        assert read(api, box, path) == b"x"
        written = api.send("FileService.Write", [{"header": {"sandbox": box, "path": path}}, {"data": b"new"}]).results[0]
        assert (written.path, written.file.path, written.file.size) == (path, path, 3), written
        moved = api.call("FileService.Move", sandbox=box, source=path, destination=path + "\\xfe")
        assert moved.path == path + "\\xfe"
        assert read(api, box, path + "\\xfe") == b"new"
        assert "%FE" in api.call("FileService.SignUrl", sandbox=box, path=path + "\\xfe", operation="READ").url
    assert there(api, box, HERE + "d") == sorted(n + b"\xfe" for n in NAMES)
    for n in NAMES:
        api.call("FileService.Remove", sandbox=box, path=HERE + "d/" + text_of(n) + "\\xfe")
    assert there(api, box, HERE + "d") == []


def test_directories(local_api, box):
    """B-6: directories have such names too: made with their parents, listed, moved into, watched, removed with all in them."""
    api = local_api
    for n in NAMES:
        top = HERE + "in/" + text_of(n)
        made = api.call("FileService.MakeDir", sandbox=box, path=top + "/a\\xff/b")
        assert made.created and made.entry.path == top + "/a\\xff/b" and made.entry.owner == "user", made
        assert not api.call("FileService.MakeDir", sandbox=box, path=top + "/a\\xff").created
        api.send("FileService.Write", [{"header": {"sandbox": box, "path": top + "/a\\xff/f\\xe9"}}, {"data": b"1"}])
        assert sorted(names(api, box, top, depth=3)) == ["a\\xff", "b", "f\\xe9"]
        assert sorted(names(api, box, top + "/a\\xff/")) == ["b", "f\\xe9"]
        with pytest.raises(ApiError) as e:
            names(api, box, top + "/a\\xff/f\\xe9")
        assert e.value.reason == "NOT_A_DIRECTORY"
        with api.stream("FileService.Watch", sandbox=box, path=top + "/a\\xff", include_entry=True) as changes:
            assert next(changes).WhichOneof("event") == "ready"
            shell(api, box, "cd %sin && n=$(printf '%s.') && n=${n%%.} && : >\"./$n/$(printf 'a\\377/w\\351')\"" % (HERE, octal(n)))
            change = next(c for c in changes if c.WhichOneof("event") == "change").change
            assert (change.name, change.type, change.entry.path) == ("w\\xe9", 1, top + "/a\\xff/w\\xe9"), change
        api.call("FileService.Remove", sandbox=box, path=top)
    assert there(api, box, HERE + "in") == []
    for path in ("/nowhere\\xff/x", "relative\\xff", "~/x\\xff"):
        with pytest.raises(ApiError) as e:
            api.call("FileService.Stat", sandbox=box, path=path)
        assert e.value.reason == "FILE_NOT_FOUND" and path.rpartition("/")[2] in e.value.text, e.value
    with pytest.raises(ApiError) as e:
        next(api.stream("FileService.Watch", sandbox=box, path="/nowhere\\xff"))
    assert e.value.reason == "FILE_NOT_FOUND"
    api.call("FileService.MakeDir", sandbox=box, path="mine\\xff")
    assert api.call("FileService.Stat", sandbox=box, path="~/mine\\xff").path == HERE + "mine\\xff"


def test_links_and_kinds(local_api, box):
    """B-6: what a script sees is what the agent sees: kinds, modes, links."""
    api = local_api
    shell(api, box, "mkdir -p /tmp/k && cd /tmp/k && d=$(printf '\\377') && mkdir \"$d\" && cd \"$d\" && echo hello >file && chmod 4751 file "
          "&& mkdir dir && chmod 1777 dir && ln -s file link && ln -s /etc to-dir && ln -s nowhere broken && mkfifo pipe "
          "&& ln -s \"$(printf 'file\\351')\" odd && touch -d '1969-12-31 23:59:58.5 UTC' file && mkdir ../plain && cp -a . ../plain/")
    odd = {f.name: f for f in api.stream("FileService.List", sandbox=box, path="/tmp/k/\\xff")}
    plain = {f.name: f for f in api.stream("FileService.List", sandbox=box, path="/tmp/k/plain")}
    assert odd.keys() == plain.keys() and len(odd) == 7
    for name, f in odd.items():
        p = plain[name]
        assert (f.type, f.size, f.permissions, f.owner, f.group) == (p.type, p.size, p.permissions, p.owner, p.group), (f, p)
        assert f.modified_at == p.modified_at or name in ("dir",), (f, p)
        if not f.symlink_target:
            assert f.mode == p.mode, (f, p)
        assert f.symlink_target.replace("/\\xff/", "/plain/") == p.symlink_target, (f, p)


def test_command(daemon_on_local, local_api, box, tmp_path):
    """B-6: agentboxctl shows the form, takes it, and takes the bytes themselves."""
    d, api = daemon_on_local, local_api
    touch(api, box, HERE + "c", [b"one\xff", b"two"])
    assert "one\\xff" in d.ctl("files", box + ":c").stdout
    assert json.loads(d.ctl("stat", box + ":c/one\\xff", "--json").stdout)["name"] == "one\\xff"
    assert d.ctl("cat", box + ":c/one\\xff").stdout == "x"
    assert d.ctl("cat", (box + ":c/one").encode() + b"\xff").stdout == "x"
    d.ctl("mv", box + ":c/one\\xff", box.encode() + b":c/two\xe9")
    assert there(api, box, HERE + "c") == [b"two", b"two\xe9"]
    local = os.fsencode(tmp_path) + b"/up\xff"
    with open(local, "wb") as f:
        f.write(b"up")
    d.ctl("cp", local, box + ":c/")
    assert there(api, box, HERE + "c") == [b"two", b"two\xe9", b"up\xff"]
    os.remove(local)
    d.ctl("cp", box + ":c/up\\xff", os.fsencode(tmp_path) + b"/")
    with open(local, "rb") as f:
        assert f.read() == b"up"
    d.ctl("rm", box + ":c/up\\xff", box + ":c/two\\xe9")
    assert there(api, box, HERE + "c") == [b"two"]


def test_trees(daemon_on_local, local_api, box, tmp_path):
    """B-6: trees keep their names, both ways, whole or in parts."""
    d, api, here = daemon_on_local, local_api, os.fsencode(tmp_path)
    os.makedirs(here + b"/t\xff/d\xe9")
    for name in NAMES:
        with open(here + b"/t\xff/d\xe9/" + name, "wb") as f:
            f.write(name)
    d.ctl("cp", "-r", here + b"/t\xff", box + ":")
    assert there(api, box, HERE + "$(printf 't\\377/d\\351')") == sorted(NAMES)
    d.ctl("cp", "-r", box + ":t\\xff/d\\xe9", here + b"/back\xfe")
    assert sorted(os.listdir(here + b"/back\xfe")) == sorted(NAMES)
    for name in NAMES:
        with open(here + b"/back\xfe/" + name, "rb") as f:
            assert f.read() == name
    d.ctl("cp", "-r", box.encode() + b":t\xff", here + b"/all")
    assert sorted(os.listdir(here + b"/all/d\xe9")) == sorted(NAMES)


@pytest.fixture
def agent(cloud, api, tmp_path):
    """A sandbox whose agent refuses such names, as the cloud's own does; the script that helps finds the same files."""
    def create(**kw):
        b = api.call("SandboxService.Create", **kw).id
        inside = cloud.files(b) + str(tmp_path)
        os.makedirs(os.path.dirname(inside), exist_ok=True)
        os.symlink(tmp_path, inside)
        return b
    for name in (b"plain", b"odd\xff"):
        with open(os.fsencode(tmp_path) + b"/" + name, "wb") as f:
            f.write(b"x")
    return create


def test_an_agent_that_cannot(cloud, api, agent, tmp_path):
    """B-6: the agent's call fails as soon as one name of its answer is not UTF-8."""
    box, here = agent(), str(tmp_path)
    assert sorted(names(api, box, here)) == ["odd\\xff", "plain"]
    assert len(cloud.ledger.of("filesystem.ListDir")) == 1
    os.symlink(b"odd\xff", os.path.join(here, "link"))
    assert api.call("FileService.Stat", sandbox=box, path=here + "/link").symlink_target == here + "/odd\\xff"
    moved = api.call("FileService.Move", sandbox=box, source=here + "/link", destination=here + "/moved")
    assert (moved.path, moved.symlink_target) == (here + "/moved", here + "/odd\\xff")
    assert os.path.islink(here + "/moved") and not os.path.islink(here + "/link")
    assert len(cloud.ledger.of("filesystem.Move")) == 1
    with api.stream("FileService.Watch", sandbox=box, path=here) as changes:
        assert next(changes).WhichOneof("event") == "ready"
        for name in ("new\\xff", "then"):
            written = api.send("FileService.Write", [{"header": {"sandbox": box, "path": here + "/" + name}}, {"data": b"1"}])
            assert written.results[0].file.path == here + "/" + name
            event = next(c for c in changes if c.WhichOneof("event") != "heartbeat")
            if name == "then":
                assert event.change.name == "then"
            else:
                assert event.WhichOneof("event") == "overflowed"
    assert sorted(os.listdir(os.fsencode(here))) == [b"moved", b"new\xff", b"odd\xff", b"plain", b"then"]


def test_an_image_without_find(api, agent, tmp_path):
    """B-6: without the tool that can tell, what is missing is said; what needs no look goes on."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "rm"):
        os.symlink(shutil.which(name), tools / name)
    (tools / "find").write_text("#!/bin/sh\necho 'find: unrecognized: -printf' >&2\nexit 1\n")
    (tools / "find").chmod(0o755)
    box, here = agent(envs={"PATH": str(tools)}), str(tmp_path)
    for call in (lambda: names(api, box, here), lambda: api.call("FileService.Stat", sandbox=box, path=here + "/odd\\xff")):
        with pytest.raises(ApiError) as e:
            call()
        assert e.value.reason == "UNSUPPORTED" and "GNU findutils" in e.value.text, e.value
    api.call("FileService.Remove", sandbox=box, path=here + "/odd\\xff")
    assert sorted(names(api, box, here)) == ["plain", "tools"]
