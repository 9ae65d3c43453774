# SPDX-License-Identifier: MIT
"""agentboxctl cp -r, watch, sign and the small file commands, on agentboxd --local."""
import json
import os
import pty
import resource
import select
import shutil
import signal
import subprocess

import pytest

import harness
import oddtree
from harness import temp_dir


@pytest.fixture
def folder():
    f = temp_dir()
    yield f
    oddtree.remove(f)


def sh(d, box, script, user=None, check=True):
    return d.ctl("exec", *(["-u", user] if user else []), box, "--", "bash", "-c", script, check=check)


def same(a, b):
    a, b = oddtree.manifest(a), oddtree.manifest(b)
    assert a == b, oddtree.differences(a, b)
    return a


def report(d, *args, code=0):
    r = d.ctl("--json", "cp", "-r", *args, check=False)
    assert r.returncode == code, r.stderr
    return json.loads(r.stdout)


def test_2000_odd_files_up_and_down(d, box, folder):
    src, back = folder + "/src", folder + "/back"
    oddtree.make(src, 2000)
    up = report(d, src, box + ":tree")
    assert up["warnings"] == 0 and up["path"] == "/home/user/tree" and up["files"] > 1500
    assert sh(d, box, "find tree ! -user user | wc -l").stdout.strip() == "0"
    down = report(d, box + ":tree", back)
    assert down["files"] == up["files"] and down["bytes"] == up["bytes"]
    assert len(same(src, back)) > 1900
    assert oct(os.stat(src).st_mode) == oct(os.stat(back).st_mode) and os.stat(src).st_mtime_ns == os.stat(back).st_mtime_ns


def test_update_sends_what_changed(d, box, folder):
    src, back = folder + "/src", folder + "/back"
    oddtree.make(src, 400, seed=2)
    report(d, src, box + ":tree")
    n = report(d, "--update", src + "/.", box + ":tree")
    assert n["files"] == 0 and n["bytes"] == 0 and n["unchanged"] == len(oddtree.manifest(src))
    report(d, box + ":tree", back)
    assert report(d, "--update", box + ":tree/.", back)["files"] == 0
    with open(src + "/new file", "w") as f:
        f.write("12345")
    os.symlink("new file", src + "/new link")
    os.mkdir(src + "/new dir")
    n = report(d, "--update", src + "/.", box + ":tree")
    assert (n["files"], n["bytes"]) == (2, 5)
    n = report(d, "--update", box + ":tree/.", back)
    assert (n["files"], n["bytes"]) == (2, 5)
    os.utime(back, ns=(0, os.stat(src).st_mtime_ns))
    same(src, back)


def test_where_it_goes(d, box, folder):
    os.makedirs(folder + "/a/sub")
    with open(folder + "/a/sub/f", "w") as f:
        f.write("x")
    find = lambda where: sorted(sh(d, box, "cd %s && find . -type f" % where).stdout.split())
    d.ctl("cp", "-r", folder + "/a", box + ":new")
    assert find("~/new") == ["./sub/f"]
    d.ctl("cp", "-r", folder + "/a", box + ":new")
    assert find("~/new") == ["./a/sub/f", "./sub/f"]
    d.ctl("cp", "-r", folder + "/a/.", box + ":new/a/sub")
    assert find("~/new") == ["./a/sub/f", "./a/sub/sub/f", "./sub/f"]
    d.ctl("cp", "-r", "-u", "root", folder + "/a", box + ":/opt/x/y")
    assert find("/opt/x/y") == ["./sub/f"] and sh(d, box, "stat -c %U /opt/x/y/sub/f").stdout == "root\n"
    d.ctl("cp", "-r", box + ":new/sub", folder + "/out")
    assert os.path.exists(folder + "/out/f")
    d.ctl("cp", "-r", box + ":new/sub", folder + "/out")
    assert os.path.exists(folder + "/out/sub/f")
    d.ctl("cp", "-r", box + ":new/sub/f", folder + "/file")
    assert open(folder + "/file").read() == "x"
    d.ctl("cp", "-r", folder + "/file", box + ":one")
    assert d.ctl("cat", box + ":one").stdout == "x"


@pytest.mark.parametrize("args, code, text", [
    (("-r", "/etc/hostname/x", "BOX:x"), 1, ""), (("-r", "BOX:missing", "FOLDER/x"), 3, "FILE_NOT_FOUND"),
    (("-r", "FOLDER", "BOX:/etc/passwd"), 1, "NOT_A_DIRECTORY"), (("-r", "-", "BOX:x"), 2, ""),
    (("--update", "FOLDER", "BOX:x"), 2, ""), (("-r", "BOX:/home/user", "/etc/hostname"), 1, ""),
    (("-r", "FOLDER", "BOX:/proc/x"), 1, "/proc/x: ")])
def test_refusals(d, box, folder, args, code, text):
    args = [a.replace("BOX", box).replace("FOLDER", folder) for a in args]
    r = d.ctl("cp", *args, check=False)
    assert r.returncode == code and text in r.stderr and r.stderr.startswith("agentboxctl: cp: "), r


def bad_archive(kind):
    """A tar that answers with an archive of python's own making, in place of the sandbox's."""
    return """
import io, tarfile, sys
t = tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT)
def add(name, type=tarfile.REGTYPE, link="", data=b""):
    i = tarfile.TarInfo(name); i.type = type; i.linkname = link; i.size = len(data); i.mode = 0o644
    t.addfile(i, io.BytesIO(data))
add("./good", data=b"good")
""" + {
        "dots": 'add("../x", data=b"evil")',
        "inner dots": 'add("./a/../../x", data=b"evil")',
        "absolute": 'add("/tmp/x-from-sandbox", data=b"evil")',
        "through a link": 'add("l", tarfile.SYMTYPE, "sub"); add("sub", tarfile.DIRTYPE); add("l/x", data=b"evil")',
        "hard link out": 'add("h", tarfile.LNKTYPE, "../../etc/passwd")',
        "absolute hard link": 'add("h", tarfile.LNKTYPE, "/etc/passwd")',
        "hard link through a link": 'add("l", tarfile.SYMTYPE, "sub"); add("h", tarfile.LNKTYPE, "l/../../x")',
        "cut": "sys.stdout.buffer.flush(); sys.exit(0)",
        "noise": 'sys.stdout.buffer.write(b"no tar at all" * 100)',
    }[kind] + "\nt.close()\n"


@pytest.mark.parametrize("kind", ["dots", "inner dots", "absolute", "through a link", "hard link out",
                                  "absolute hard link", "hard link through a link", "cut", "noise"])
def test_an_archive_of_an_enemy(d, box, folder, kind):
    script = "/home/user/archive.py"
    subprocess.run([harness.AGENTBOXCTL, "-s", d.socket, "cp", "-", box + ":" + script], input=bad_archive(kind).encode(),
                   check=True)
    if sh(d, box, "command -v python3", check=False).returncode:
        pytest.skip("the sandbox has no python3")
    sh(d, box, "printf '#!/bin/sh\\ncase \"$1\" in --version) echo GNU;; *) exec python3 %s;; esac\\n' "
               "> /usr/local/bin/tar && chmod 755 /usr/local/bin/tar && mkdir -p /home/user/src" % script, user="root")
    os.mkdir(folder + "/in")
    r = d.ctl("cp", "-r", box + ":src", folder + "/in/out", check=False)
    assert r.returncode == 1, r
    if kind not in ("cut", "noise"):
        assert "refused" in r.stderr, r
    assert sorted(os.listdir(folder)) == ["in"] and os.listdir(folder + "/in") == ["out"]
    assert not os.path.exists("/tmp/x-from-sandbox")
    left = set(os.listdir(folder + "/in/out"))
    assert left <= {"good", "l", "sub"} and "x" not in os.listdir(folder + "/in/out/sub" if "sub" in left else folder), left


def test_links_that_leave_are_named(d, box, folder):
    sh(d, box, "mkdir t; ln -s /etc/passwd t/abs; ln -s ../../x t/up; ln -s f t/ok; echo 1 > t/f")
    r = d.ctl("cp", "-r", box + ":t", folder + "/t", check=False)
    assert r.returncode == 1 and "abs" in r.stderr and "up" in r.stderr, r
    assert sorted(os.listdir(folder + "/t")) == ["f", "ok"]
    d.ctl("cp", "-r", "--all-links", box + ":t", folder + "/t2")
    assert os.readlink(folder + "/t2/abs") == "/etc/passwd" and os.readlink(folder + "/t2/up") == "../../x"


def test_what_is_there_is_replaced_not_followed(d, box, folder):
    sh(d, box, "mkdir -p t/dir; echo new > t/f; echo new > t/dir/g")
    os.makedirs(folder + "/t")
    with open(folder + "/precious", "w") as f:
        f.write("old")
    os.symlink("../precious", folder + "/t/f")
    os.symlink("..", folder + "/t/dir")
    d.ctl("cp", "-r", box + ":t/.", folder + "/t")
    assert open(folder + "/precious").read() == "old"
    assert open(folder + "/t/f").read() == "new\n" and not os.path.islink(folder + "/t/dir")
    assert open(folder + "/t/dir/g").read() == "new\n"


def test_set_user_id_stays_behind(d, box, folder):
    sh(d, box, "mkdir t; echo x > t/f; chmod 6755 t/f; chmod 2775 t")
    d.ctl("cp", "-r", box + ":t", folder + "/t")
    assert os.stat(folder + "/t/f").st_mode & 0o7777 == 0o755 and os.stat(folder + "/t").st_mode & 0o7000 == 0


def test_no_tar(d, box, folder):
    sh(d, box, "for p in /usr/bin/tar /bin/tar; do mv $p $p.not 2>/dev/null; done; true", user="root")
    if sh(d, box, "command -v tar", check=False).returncode == 0:
        pytest.skip("tar cannot be taken away here")
    for args in ((folder, box + ":x"), (box + ":/etc", folder + "/x")):
        r = d.ctl("cp", "-r", *args, check=False)
        assert r.returncode == 1 and "UNSUPPORTED" in r.stderr, r


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount a small disk")
def test_a_disk_that_is_full(folder):
    with open(folder + "/big", "wb") as f:
        for _ in range(64):
            f.write(os.urandom(1 << 20))
    home = temp_dir("abd-")
    os.mkdir(home + "/state", 0o700)
    with harness.small_disk(home + "/state/local"):
        d = harness.Daemon(folder=home)
        r = d.ctl("cp", "-r", folder, d.ctl("create").stdout.strip() + ":x", check=False)
        d.ctl("local", "stop")
        d.close()
    shutil.rmtree(home)
    # "No space left on device" or "Wrote only 9216 of 10240 bytes", as tar met it
    assert r.returncode == 1 and "in the sandbox: tar: big: " in r.stderr, r


@pytest.mark.plain
def test_large_files_in_little_memory(d, box, folder):
    os.mkdir(folder + "/big")
    with open(folder + "/big/f", "wb") as f:
        for _ in range(100):
            f.write(os.urandom(1 << 20))
    for args in ((folder + "/big", box + ":/tmp/big"), (box + ":/tmp/big", folder + "/back")):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        r = subprocess.run(["/usr/bin/python3", "-c", "import resource, subprocess, sys\n"
                            "r = subprocess.run(sys.argv[1:])\n"
                            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\nsys.exit(r.returncode)",
                            harness.AGENTBOXCTL, "-s", d.socket, "cp", "-r", *args], capture_output=True, text=True)
        # ASan keeps what is freed for a while
        assert r.returncode == 0 and (int(r.stdout) < 32 << 10 or harness.ASAN), (r, before)
    assert subprocess.run(["cmp", folder + "/big/f", folder + "/back/f"]).returncode == 0


def test_interrupted(d, box, folder):
    os.mkdir(folder + "/big")
    with open(folder + "/big/f", "wb") as f:
        f.truncate(4 << 30)
    sh(d, box, "printf '#!/bin/sh\\ncase \"$1\" in --version) echo GNU;; *) touch /tmp/begun; exec sleep 100;; esac\\n' "
               "> /usr/local/bin/tar && chmod 755 /usr/local/bin/tar", user="root")
    p = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "cp", "-r", folder + "/big", box + ":x"],
                         stderr=subprocess.PIPE)
    harness.until(lambda: sh(d, box, "test -e /tmp/begun", check=False).returncode == 0)
    p.send_signal(signal.SIGINT)
    assert p.wait(20) == -signal.SIGINT
    harness.until(lambda: sh(d, box, "pgrep -x sleep", check=False).returncode == 1)
    p.stderr.close()


def test_progress_on_a_terminal(d, box, folder):
    os.mkdir(folder + "/t")
    with open(folder + "/t/f", "wb") as f:
        f.truncate(300 << 20)
    master, slave = pty.openpty()
    p = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "cp", "-r", folder + "/t", box + ":/tmp/t"], stderr=slave)
    os.close(slave)
    seen = b""
    while select.select([master], [], [], 60)[0]:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
    os.close(master)
    assert p.wait(60) == 0
    assert b"%" in seen and seen.endswith(b"\r\x1b[K"), seen[-100:]


# -- the small commands

def test_files_stat_mkdir_mv_rm(d, box):
    d.ctl("mkdir", box + ":a/b")
    sh(d, box, "echo 123 > a/f; ln -s f a/l")
    out = d.ctl("files", box + ":a").stdout.splitlines()
    assert [line.split()[4] for line in out] == ["NAME", "b", "f", "l"] and out[3].endswith("l -> /home/user/a/f"), out
    rows = [json.loads(line) for line in d.ctl("--json", "files", "-r", box + ":").stdout.splitlines()]
    assert "/home/user/a/f" in [r["path"] for r in rows]
    st = json.loads(d.ctl("--json", "stat", box + ":a/f").stdout)
    assert (st["type"], st["size"], st["owner"]) == ("file", 4, "user")
    assert "type: symlink" in d.ctl("stat", box + ":a/l").stdout
    d.ctl("mv", box + ":a/f", "c/g")
    assert d.ctl("cat", box + ":c/g").stdout == "123\n"
    d.ctl("rm", box + ":c", box + ":a", box + ":none")
    r = d.ctl("stat", box + ":a", check=False)
    assert r.returncode == 3 and "FILE_NOT_FOUND" in r.stderr
    assert d.ctl("files", box + ":missing", check=False).returncode == 3
    assert d.ctl("rm", box, check=False).returncode == 2


def test_sign(d, box):
    sh(d, box, "echo signed > s.txt")
    url = d.ctl("sign", box + ":s.txt").stdout.strip()
    assert subprocess.run(["curl", "-sS", url], capture_output=True).stdout == b"signed\n"
    up = json.loads(d.ctl("--json", "sign", "--write", "--expires", "1m", box + ":up.txt").stdout)
    assert up["expires_at"]
    subprocess.run(["curl", "-sS", "-F", "file=@-", up["url"]], input=b"sent", capture_output=True, check=True)
    assert d.ctl("cat", box + ":up.txt").stdout == "sent"


def test_watch(d, box):
    p = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "--json", "watch", "-r", "--entries", box + ":"],
                         stdout=subprocess.PIPE, text=True)
    assert json.loads(p.stdout.readline()) == {"event": "ready"}
    sh(d, box, "mkdir w; echo 1 > w/is-watched")
    seen = []
    while ("create", "w/is-watched") not in [(e["event"], e.get("name")) for e in seen]:
        seen.append(json.loads(p.stdout.readline()))
    sh(d, box, "echo 1 > w/f; rm w/f")
    while not seen or (seen[-1]["event"], seen[-1].get("name")) != ("remove", "w/f"):
        seen.append(json.loads(p.stdout.readline()))
    made = next(e for e in seen if e["event"] == "create" and e["name"] == "w")
    assert made["entry"]["type"] == "directory"
    p.send_signal(signal.SIGTERM)
    assert p.wait(20) == -signal.SIGTERM
    p.stdout.close()
    q = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "watch", box + ":/tmp"], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    harness.until(lambda: "agentbox-watch" in sh(d, box, "ps -eo comm", user="root").stdout)
    d.ctl("kill", box)
    out, err = q.communicate(timeout=30)
    assert q.returncode == 3 and "SANDBOX" in err, (out, err)
