# SPDX-License-Identifier: MIT
"""agentboxctl on agentboxd --local: the command lines of the documentation, exit codes, streams, files."""
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import threading

import pytest

import harness
from conftest import built
from harness import as_user, ctl, temp_dir, until


@pytest.fixture
def folder():
    f = temp_dir()
    yield f
    shutil.rmtree(f)


def test_create_prints_the_id_alone(d):
    r = d.ctl("create", "-t", "base", "--timeout", "90s", "-m", "a=b", "-e", "X=1", "--name", "ctl-box",
              "--request-id", "ctl-1")
    assert re.fullmatch(r"i[a-z0-9]{20}\n", r.stdout) and r.stderr == ""
    assert d.ctl("create", "-t", "base", "--timeout", "90s", "-m", "a=b", "-e", "X=1", "--name", "ctl-box",
                 "--request-id", "ctl-1").stdout == r.stdout
    assert d.ctl("exec", "ctl-box", "--", "sh", "-c", 'printf "$X"').stdout == "1"
    assert d.ctl("kill", "ctl-box").returncode == 0


def test_exec(d, box):
    r = d.ctl("exec", box, "--", "sh", "-c", "echo out; echo err >&2; exit 7", check=False)
    assert (r.stdout, r.stderr, r.returncode) == ("out\n", "err\n", 7)


def test_exec_options(d, box):
    r = d.ctl("exec", "-u", "root", "-w", "/tmp", "-e", "K=v w", box, "--", "sh", "-c", 'id -un; pwd; echo "$K"')
    assert r.stdout == "root\n/tmp\nv w\n"
    assert d.ctl("exec", box, "--", "printf", "%s|", "a b", "$HOME", "*").stdout == "a b|$HOME|*|"


@pytest.mark.parametrize("word,code,text", [
    ("missing-program", 127, "not found"), ("/no/such/program", 127, "not found"),
    ("/etc/passwd", 126, "Permission denied"), ("/tmp", 126, "Is a directory"), ("a b\\n%s", 127, "not found")])
def test_exec_of_what_is_no_program(d, box, word, code, text):
    """As a shell says it, in one line."""
    r = d.ctl("exec", box, "--", word, "argument", check=False)
    assert (r.returncode, r.stdout, r.stderr) == (code, "", "sh: %s: %s\n" % (word, text))


def test_exec_leaves_the_environment_alone(d, box):
    """The program has what it was given, in a session of its own, and nothing of what starts it."""
    names = "s=1 d=2 p=3 f=4 IFS=5".split()
    r = d.ctl("exec", *[w for n in names for w in ("-e", n)], box, "--", "env")
    seen = r.stdout.splitlines()
    assert set(names[:-1]) <= set(seen) and not [x for x in seen if x.startswith("__ab")]
    r = d.ctl("exec", box, "--", "sh", "-c", "set -- $(cat /proc/$$/stat); echo $(($1 - $6))")
    assert r.stdout == "0\n"
    d.ctl("exec", box, "--", "sh", "-c", "printf 'echo ran $1' >no-first-line; chmod +x no-first-line")
    assert d.ctl("exec", box, "--", "./no-first-line", "it").stdout == "ran it\n"


def test_exec_stdin(d, box):
    assert d.ctl("exec", "-i", box, "--", "cat", input="from stdin\n").stdout == "from stdin\n"
    data = os.urandom(3 << 20)
    assert d.ctl("exec", "-i", box, "--", "cat", input=data, text=False).stdout == data
    assert d.ctl("exec", box, "--", "cat", input="not passed").stdout == ""


@pytest.mark.parametrize("words", ["--help", "--version", "help", "ls --help", "ls --version", "status", "events --initial", "events -f --initial"])
def test_a_full_output_is_told_once(d, box, words):
    with open("/dev/full", "w", encoding="ascii") as full:
        r = subprocess.run([harness.AGENTBOXCTL, "-s", d.socket, *words.split()], stdout=full, stderr=subprocess.PIPE,
                           text=True, timeout=20, check=False)
    assert r.returncode == 1 and r.stderr.count("cannot write the output: No space left") == 1, r.stderr


def test_exec_signal_is_128_plus(d, box):
    assert d.ctl("exec", box, "--", "sh", "-c", "kill -9 $$", check=False).returncode == 137


def test_exec_1_mib_on_each_stream_right_before_the_exit(d, box):
    r = d.ctl("exec", box, "--", "sh", "-c",
              "head -c 1048576 /dev/zero | tr '\\0' o; head -c 1048576 /dev/zero | tr '\\0' e >&2; exit 7",
              check=False)
    assert r.returncode == 7 and r.stdout == "o" * 1048576 and r.stderr == "e" * 1048576


def test_exec_200_times_under_load(d, box):
    bad = []

    def worker():
        for _ in range(25):
            r = d.ctl("exec", box, "--", "sh", "-c", "echo out; echo err >&2; exit 7", check=False)
            if (r.stdout, r.stderr, r.returncode) != ("out\n", "err\n", 7):
                bad.append(r)
    threads = [threading.Thread(target=worker) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad, bad[0]


def test_exec_streams_as_it_comes(d, box):
    p = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "exec", box, "--", "sh", "-c", "echo first; sleep 60"],
                         stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        assert p.stdout.readline() == b"first\n"
        p.terminate()
        p.wait(10)
    finally:
        p.kill()
        p.wait()
        p.stdout.close()
    until(lambda: "sleep 60" not in d.ctl("ps", box).stdout, 15, "the end of the command whose caller went")


def test_ls_get_ps_timeout_connect_status(d, box):
    rows = [json.loads(line) for line in d.ctl("ls", "--json").stdout.splitlines()]
    assert box in [r["id"] for r in rows]
    assert box in d.ctl("ls").stdout and box in d.ctl("get", box).stdout
    assert json.loads(d.ctl("get", "--json", box).stdout)["id"] == box
    assert d.ctl("timeout", box, "10m").returncode == 0
    assert d.ctl("connect", box).returncode == 0
    assert str(d.pid) in d.ctl("status").stdout
    json.loads(d.ctl("status", "--json").stdout)
    assert all(json.loads(line) for line in d.ctl("ps", "--json", box).stdout.splitlines())


def test_cp_and_cat(d, box, folder):
    name = os.path.join(folder, "ünï x.bin")
    data = os.urandom(700_001)
    with open(name, "wb") as f:
        f.write(data)
    d.ctl("cp", name, box + ":/home/user/ünï y.bin")
    assert d.ctl("cat", box + ":/home/user/ünï y.bin", text=False).stdout == data
    d.ctl("cp", box + ":/home/user/ünï y.bin", os.path.join(folder, "back"))
    with open(os.path.join(folder, "back"), "rb") as f:
        assert f.read() == data
    d.ctl("cp", "-", box + ":piped", input=b"\0\1\2", text=False)
    assert d.ctl("cp", box + ":piped", "-", text=False).stdout == b"\0\1\2"


@pytest.mark.plain
def test_cp_200_mb_in_little_memory(d, box, folder):
    """Up and down, compared; neither program keeps the file in memory."""
    if harness.ASAN:
        size = 40 << 20  # a sanitizer's own bookkeeping dwarfs the bound; the bytes are what is checked
    else:
        size = 200 << 20
    src, dst = os.path.join(folder, "src"), os.path.join(folder, "dst")
    with open(src, "wb") as f:
        for _ in range(size >> 20):
            f.write(os.urandom(1 << 20))
    before = d.hwm_kb()

    def copy(*args):
        p = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "cp"] + list(args), stdin=subprocess.DEVNULL)
        hwm = 0
        while p.poll() is None:
            try:
                with open("/proc/%d/status" % p.pid, encoding="ascii", errors="replace") as f:
                    m = re.search(r"^VmHWM:\s+(\d+)", f.read(), re.M)
                    hwm = max(hwm, int(m.group(1))) if m else hwm
            except OSError:
                pass
            try:
                p.wait(0.02)
            except subprocess.TimeoutExpired:
                pass
        assert p.returncode == 0
        return hwm
    up = copy(src, box + ":/home/user/big")
    down = copy(box + ":/home/user/big", dst)
    assert subprocess.run(["cmp", src, dst]).returncode == 0
    if not harness.ASAN:
        assert d.hwm_kb() - before < 32 << 10, "the daemon grew by %d KiB" % (d.hwm_kb() - before)
        assert max(up, down) < 40 << 10, (up, down)


@pytest.mark.plain
def test_slow_reader_holds_the_writer(d, box):
    """A reader that takes little: the daemon does not buffer what it does not take."""
    d.ctl("exec", box, "--", "sh", "-c", "head -c 60000000 /dev/zero > big")
    before = d.hwm_kb()
    p = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "cat", box + ":big"], stdout=subprocess.PIPE)
    try:
        assert len(p.stdout.read(1 << 20)) == 1 << 20
        threading.Event().wait(1.0)  # nothing is read in this second
        grown = d.hwm_kb() - before
        rest = len(p.stdout.read())
        assert rest == 60000000 - (1 << 20) and p.wait(10) == 0
    finally:
        p.kill()
        p.wait()
        p.stdout.close()
    if not harness.ASAN:
        assert grown < 32 << 10, "the daemon grew by %d KiB" % grown


@pytest.mark.parametrize("args,code", [
    (["get", "i" + "0" * 20], 3), (["get", "no-such-name"], 3), (["exec", "i" + "0" * 20, "--", "true"], 125),
    (["nonsense"], 2), (["create", "--timeout", "90"], 2), (["create", "--nonsense"], 2), ([], 2), (["exec"], 2),
], ids=lambda a: " ".join(a) if isinstance(a, list) else str(a))
def test_exit_codes(d, args, code):
    r = d.ctl(*args, check=False)
    assert r.returncode == code and r.stderr, r


WORDS = ["-i", "-d", "-t", "-e", "--help", "--json", "--timeout", "--", "-V", "-s", "", "-"]


def test_d_4_what_stands_behind_the_sandbox_is_the_programs(d, box):
    """D-4: also of hold; a word that looks like an option right behind the sandbox is refused, not run."""
    for words in (["exec", box], ["exec", box, "--"], ["exec", "-u", "root", "--", box], ["hold", box], ["hold", box, "--"]):
        r = d.ctl(*words, "printf", "<%s>", *WORDS)
        assert r.stdout == "".join("<%s>" % w for w in WORDS), (words, r)
    assert d.ctl("exec", box, "sh", "-c", "echo aXb | grep -i x").stdout == "aXb\n"
    r = d.ctl("exec", box, "-e", "A=1", "true", check=False)
    assert r.returncode == 2 and "options stand before " + box in r.stderr, r
    assert d.ctl("exec", box, "--", "-e", check=False).returncode not in (0, 2)


def test_missing_file(d, box):
    r = d.ctl("cat", box + ":/no/such", check=False)
    assert r.returncode == 3 and "/no/such" in r.stderr, r


def test_unreachable():
    built(harness.AGENTBOXCTL)
    r = ctl("/tmp/no/such/socket", "--wait", "0s", "ls", check=False)
    assert r.returncode == 4 and "/tmp/no/such/socket" in r.stderr, r


def test_d_5_a_named_socket_is_that_one_or_an_error(d, box):
    """D-5: the daemon in the usual place is never asked for what was meant for another one."""
    runtime = temp_dir("abr-")
    try:
        os.mkdir(os.path.join(runtime, "agentboxd"), 0o700)
        os.symlink(d.socket, os.path.join(runtime, "agentboxd", "agentboxd.sock"))
        env = dict(os.environ, XDG_RUNTIME_DIR=runtime, AGENTBOXD_SOCKET="/tmp/no/such/socket")

        def run(*args, **more):
            return subprocess.run([harness.AGENTBOXCTL, *args], env=dict(env, **more), capture_output=True, text=True, timeout=60)
        r = run("--wait", "0s", "kill", box)
        assert r.returncode == 4 and "/tmp/no/such/socket" in r.stderr and runtime not in r.stderr, r
        assert run("--wait", "0s", "-s", "/tmp/nor/this", "kill", box, AGENTBOXD_SOCKET=d.socket).returncode == 4
        assert run("running", box, AGENTBOXD_SOCKET="").returncode == 0, "still there, and found in the usual place"
    finally:
        shutil.rmtree(runtime)


def test_help(d):
    r = d.ctl("--help")
    for word in ("create", "ls", "get", "connect", "timeout", "kill", "exec", "ps", "cp", "cat", "status", "local"):
        assert re.search(r"\b%s\b" % word, r.stdout), word
    assert re.search(r"\d+\.\d+\.\d+", d.ctl("--version").stdout)


def test_help_of_every_command():
    """Each command of the overview has its own, by both ways to ask; `env` had none and died."""
    built(harness.AGENTBOXCTL)
    names = re.findall(r"^  ([a-z]+) ", ctl("/tmp/no/such/socket", "--help").stdout, re.M)
    assert len(names) > 30 and "env" in names
    for name in names:
        r = ctl("/tmp/no/such/socket", "help", name)
        assert r.stdout.startswith("usage: agentboxctl %s [options]" % name) and r.stderr == "", name
        assert ctl("/tmp/no/such/socket", name, "--help").stdout == r.stdout


def test_local_outlives_the_daemon_and_stops_at_once():
    """`kill -9` of the daemon leaves agentbox-local with its sandboxes; the next daemon finds both."""
    built(harness.AGENTBOXD)
    home = temp_dir("abd-")
    traces = harness.Traces(home)
    try:
        one = harness.Daemon(folder=home)
        b = one.ctl("create").stdout.strip()
        one.ctl("exec", b, "--", "sh", "-c", "echo kept > file")
        one.kill9()
        two = harness.Daemon(folder=home)
        assert two.ctl("exec", b, "--", "cat", "file").stdout == "kept\n"
        traces.look(two.pid).look_at_local(two.state_dir)
        two.ctl("local", "stop")
        traces.gone(timeout=0, words="agentbox-local")
        two.stop()
        traces.gone()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def test_mv_to_a_name_with_the_sandbox(d, box):
    d.ctl("exec", box, "--", "sh", "-c", "echo kept > /tmp/d9")
    d.ctl("mv", box + ":/tmp/d9", box + ":/tmp/d8")
    assert d.ctl("exec", box, "--", "sh", "-c", "cat /tmp/d8; ls").stdout == "kept\n"
    r = d.ctl("mv", box + ":/tmp/d8", "other:/tmp/d7", check=False)
    assert r.returncode == 2 and "cannot move to another sandbox" in r.stderr
    assert d.ctl("mv", box + ":/tmp/d8", box + ":", check=False).returncode == 2
    d.ctl("mv", box + ":/tmp/d8", "./a:b")
    assert d.ctl("cat", box + ":a:b").stdout == "kept\n"


def test_cp_of_a_device(d, box):
    """Some have no end; as the standard input it is the caller's to know."""
    for source in ("/dev/full", "/dev/null"):
        r = d.ctl("cp", source, box + ":x", check=False)
        assert r.returncode == 1 and "it is a device" in r.stderr
    assert d.ctl("stat", box + ":x", check=False).returncode == 3
    d.ctl("cp", "-", box + ":x")                    # the standard input of the tests is /dev/null
    assert d.ctl("cat", box + ":x").stdout == ""


def test_cp_over_a_program_that_runs_as_its_owner(d, box, folder):
    """What comes from a sandbox has no set-user-id bit, though the file that it replaces had; all else of the mode stays."""
    d.ctl("cp", "-", box + ":new", input="new\n")
    target = os.path.join(folder, "target")
    for mode, expected in ((0o4755, 0o755), (0o6711, 0o711), (0o1640, 0o640), (0o4000, 0)):
        with open(target, "w", encoding="ascii") as f:
            f.write("old")
        os.chmod(target, mode)
        d.ctl("cp", box + ":new", target)
        assert stat.S_IMODE(os.stat(target).st_mode) == expected, oct(mode)
        os.chmod(target, 0o600)
        assert open(target, encoding="ascii").read() == "new\n"
        os.unlink(target)


def sleeps_in_open(pid):
    with open("/proc/%d/syscall" % pid, encoding="ascii") as f:
        return f.read().split()[0] == {"x86_64": "257", "aarch64": "56"}[os.uname().machine]


@pytest.mark.parametrize("up", [True, False])
def test_cp_of_a_pipe_ends_by_a_signal(d, box, folder, up):
    """A FIFO whose other end nobody opens."""
    d.ctl("cp", "-", box + ":new", input="new\n")
    pipe = os.path.join(folder, "pipe-%d" % up)
    os.mkfifo(pipe)
    p = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "cp"] + ([pipe, box + ":x"] if up else [box + ":new", pipe]),
                         stdin=subprocess.DEVNULL)
    until(lambda: sleeps_in_open(p.pid), 10)
    p.terminate()
    assert p.wait(10) == -signal.SIGTERM


def test_values_that_cannot_be(d, box):
    for words, code, text in (
            (["timeout", box, "0s"], 1, "must not be zero"), (["lease", "acquire", box, "--ttl", "0s"], 1, "must not be zero"),
            (["timeout", box, "-5s"], 2, "nothing negative is allowed"), (["timeout", box, "--", "-5s"], 2, "not a duration"),
            (["get", ""], 2, "an argument is empty"), (["snapshot", "rm", ""], 2, "an argument is empty")):
        r = d.ctl(*words, check=False)
        assert r.returncode == code and text in r.stderr and "unset" not in r.stderr, (words, r)
    assert d.ctl("exec", box, "printf", "%s.", "").stdout == "."


def dying(path, n, until_ends=None):
    """A daemon in its last moments: takes connections, and drops them before it read anything."""
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path + ".dying")
        s.listen(8)
        os.symlink(path + ".dying", path + ".new")
        os.rename(path + ".new", path)
        yield
        s.settimeout(0.1 if until_ends else 60)
        while until_ends.poll() is None if until_ends else n:
            try:
                s.accept()[0].close()
                n -= 1
            except TimeoutError:
                if not until_ends:
                    raise
    yield               # the listener is closed, with what waits there


@pytest.fixture
def exec_by_link(folder):
    """exec of a shell by a link to the daemon's socket, which may be turned; ends with 7 when there is a file `go`."""
    home, started, running = temp_dir("abd-"), [], []

    def daemon():
        started.append(harness.Daemon(folder=home))
        return started[-1]

    def start(wait):
        link = os.path.join(folder, "link")
        b = daemon().ctl("create").stdout.strip()
        os.symlink(started[0].socket, link)
        script = "echo one; until [ -e go ]; do sleep 0.1; done; echo two; exit 7"
        p = subprocess.Popen([harness.AGENTBOXCTL, "-s", link, "--wait", wait, "exec", b, "--", "sh", "-c", script], text=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        running.append(p)
        assert p.stdout.readline() == "one\n"
        return p, b, link
    start.daemon, start.started = daemon, started
    yield start
    for p in running:
        p.kill()
        p.communicate()
    if not started[-1].running():
        daemon()
    started[-1].ctl("local", "stop", check=False)
    for d in started:
        d.close()
    shutil.rmtree(home, ignore_errors=True)


def test_exec_goes_on_after_it_reached_a_dying_daemon(exec_by_link):
    """A connection that a dying daemon's listener still took, and dropped, is no reason to give up."""
    p, b, link = exec_by_link("60s")
    last = dying(link, 5)
    next(last)
    exec_by_link.started[0].kill9()
    next(last)
    d = exec_by_link.daemon()
    os.symlink(d.socket, link + ".new")
    os.rename(link + ".new", link)
    d.ctl("exec", b, "--", "touch", "go")
    out, err = p.communicate(timeout=60)
    assert (out, p.returncode) == ("two\n", 7) and "not known" not in err, err


def test_exec_that_gives_up_names_the_command(exec_by_link):
    p, _, link = exec_by_link("300ms")
    last = dying(link, 0, until_ends=p)
    next(last)
    exec_by_link.started[0].kill9()
    next(last)
    out, err = p.communicate(timeout=60)
    assert (out, p.returncode) == ("", 126)
    assert re.search(r"what became of command (\S+) is not known; agentboxctl attach \1 goes on", err), err


@pytest.mark.parametrize("words", ["logs nope", "attach nope", "wait nope", "signal nope TERM"])
def test_no_such_command(d, words):
    r = d.ctl(*words.split(), check=False)
    assert r.returncode == 3 and "NOT_FOUND" in r.stderr, r


def test_what_is_not_there_as_json(d):
    for words, reason in (("kill nope", "SANDBOX_NOT_FOUND"), ("snapshot rm nope", "SNAPSHOT_NOT_FOUND")):
        r = d.ctl("--json", *words.split(), check=False)
        e = json.loads(r.stderr)["error"]
        assert (r.returncode, e["status"], e["reason"]) == (3, "NOT_FOUND", reason) and "nope" in e["message"]
        assert json.loads(r.stdout)["found"] is False
        assert reason in d.ctl(*words.split(), check=False).stderr


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_other_users_see_nothing(d, box):
    """The socket of a user's daemon is that user's; another uid is refused or sees nothing."""
    r = subprocess.run(as_user(12345, [harness.AGENTBOXCTL, "-s", d.socket, "--wait", "0s", "get", box]),
                       capture_output=True, text=True, timeout=30)
    assert r.returncode in (1, 3, 4) and box not in r.stdout, r


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_as_an_ordinary_user():
    """The whole line as a user without any privilege."""
    built(harness.AGENTBOXD)
    home = temp_dir("abu-")
    try:
        d = harness.Daemon(folder=home, uid=12345)
        run = lambda *a: subprocess.run(as_user(12345, [harness.AGENTBOXCTL, "-s", d.socket] + list(a)),
                                        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        b = run("create").stdout.strip()
        assert b, run("create")
        r = run("exec", b, "--", "sh", "-c", "id -un; echo e >&2; exit 7")
        assert (r.stdout, r.stderr, r.returncode) == ("user\n", "e\n", 7)
        traces = harness.Traces(home).look(d.pid).look_at_local(d.state_dir)
        assert run("local", "stop").returncode == 0
        d.stop()
        traces.gone()
    finally:
        shutil.rmtree(home, ignore_errors=True)
