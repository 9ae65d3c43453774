# SPDX-License-Identifier: MIT
"""The gateway's door: who is let in, by which token, and what is refused before anybody looks at it (GATEWAY §1)."""
import http.client
import json
import os
import re
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import time

import pytest

import harness
from harness import until

REFUSED = (401, 403, 421, 508)
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs other users: run as root")


@pytest.fixture
def runtime(runs):
    d = harness.temp_dir("abx-")
    yield d
    shutil.rmtree(d, ignore_errors=True)


@pytest.fixture
def user_daemon(cloud, runtime):
    """One of a user, whose gateway is on by itself."""
    d = harness.Daemon(cloud, env={"XDG_RUNTIME_DIR": runtime, "HOME": runtime})
    yield d
    d.close()


def port_of(d):
    """It listens there now."""
    path = os.path.join(d.state_dir, "gateway-port")
    until(lambda: os.path.exists(path), 20, "the port", d)
    with open(path, encoding="ascii") as f:
        port = int(f.read())
    until(lambda: can_connect(port), 20, "the gateway", d)
    return port


def can_connect(port):
    try:
        socket.create_connection(("localhost", port)).close()
        return True
    except OSError:
        return False


def ask(port, path="/sandboxes", method="GET", host="localhost", **headers):
    """Status and body of one request."""
    c = http.client.HTTPConnection("localhost", port, timeout=20)
    try:
        c.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        c.putheader("Host", "%s:%d" % (host, port))
        for k, v in headers.items():
            c.putheader(k.replace("_", "-"), v)
        c.endheaders()
        r = c.getresponse()
        return r.status, r.read().decode()
    finally:
        c.close()


def new_token(d, *args):
    return d.ctl("token", "create", *args).stdout.strip()


def is_401(answer):
    status, body = answer
    return status == 401 and json.loads(body)["code"] == 401 and json.loads(body)["message"]


def is_in(answer):
    return answer[0] not in REFUSED


# -- tokens

def test_tokens_of_both_spellings(user_daemon):
    port, token = port_of(user_daemon), new_token(user_daemon)
    assert re.fullmatch(r"ab_a9e2[0-9a-f]{60}", token)
    e2b = "e2b_" + token[3:]
    for headers in ({"X_API_KEY": token}, {"x_api_key": e2b}, {"Authorization": "Bearer " + token},
                    {"Authorization": "bearer " + e2b}):
        assert is_in(ask(port, **headers)), headers
    assert token[3:] not in user_daemon.log()


def test_no_wrong_and_foreign_tokens(user_daemon, cloud, runtime):
    port, token = port_of(user_daemon), new_token(user_daemon)
    other = harness.Daemon(cloud, env={"XDG_RUNTIME_DIR": runtime, "HOME": runtime})
    try:
        foreign = new_token(other)
    finally:
        other.close()
    last = token[:-1] + ("0" if token[-1] != "0" else "1")
    wrong = [None, "", "x", cloud.key, last, foreign, token.upper(), token + "0", " " * 200, "e2b_" + secrets.token_hex(20)]
    for w in wrong:
        assert is_401(ask(port, **({} if w is None else {"X_API_KEY": w}))), w
    assert is_401(ask(port, Authorization="Basic " + token))
    # A wrong one is not made good by a right one in the other place.
    assert is_401(ask(port, X_API_KEY="x", Authorization="Bearer " + token))
    assert not [s for s in cloud.ledger.requests if "a9e2" in (s.header("x-api-key") or "")]


def test_expired_and_revoked(user_daemon):
    port = port_of(user_daemon)
    short = new_token(user_daemon, "--expires", "1s")
    assert is_in(ask(port, X_API_KEY=short))
    until(lambda: is_401(ask(port, X_API_KEY=short)), 5, "the end of the token")
    t = json.loads(user_daemon.ctl("--json", "token", "create", "--label", "mine").stdout)
    assert is_in(ask(port, X_API_KEY=t["secret"]))
    assert [json.loads(x)["label"] for x in user_daemon.ctl("--json", "token", "ls").stdout.splitlines()] == ["mine"]
    user_daemon.ctl("token", "rm", t["id"])
    assert is_401(ask(port, X_API_KEY=t["secret"]))
    assert user_daemon.ctl("token", "rm", t["id"], check=False).returncode == 3


def test_tokens_outlive_a_restart_and_a_crash(cloud, runtime):
    env = {"XDG_RUNTIME_DIR": runtime, "HOME": runtime}
    folder = harness.temp_dir()
    d = harness.Daemon(cloud, folder=folder, env=env)
    port, token, gone = port_of(d), new_token(d), new_token(d)
    d.ctl("token", "rm", next(x.split()[0] for x in reversed(d.ctl("token", "ls").stdout.splitlines())))
    d.kill9()
    d = harness.Daemon(cloud, folder=folder, env=env)
    try:
        assert port_of(d) == port, "the port is chosen once"
        assert is_in(ask(port, X_API_KEY=token)) and is_401(ask(port, X_API_KEY=gone))
    finally:
        d.close()


def test_bad_wishes_name_the_field(user_daemon):
    for args, what in ((("--label", "x" * 129), "label"), (("--sandbox", "a/b"), "sandboxes")):
        r = user_daemon.ctl("token", "create", *args, check=False)
        assert r.returncode == 1 and what in r.stderr, r


@root_only
def test_another_uid(user_daemon):
    """A token that another user has got hold of: the kernel says who connects."""
    port, token = port_of(user_daemon), new_token(user_daemon)
    argv = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--noproxy", "*", "-H", "X-API-Key: " + token,
            "http://localhost:%d/sandboxes" % port]
    assert int(subprocess.run(argv, capture_output=True, text=True, timeout=20).stdout) not in REFUSED
    other = subprocess.run(harness.as_user(61002, argv), capture_output=True, text=True, timeout=20)
    assert other.stdout == "401", other


# -- pages, hosts, loops

def test_web_pages(user_daemon):
    port, token = port_of(user_daemon), new_token(user_daemon)
    foreign = [{"Origin": "https://evil.example"}, {"Origin": "http://localhost:3000"}, {"Origin": "null"},
               {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"}]
    for headers in foreign:
        status, body = ask(port, X_API_KEY=token, **headers)
        assert status == 403 and "origin" in body, (headers, status)
        assert ask(port, method="OPTIONS", Access_Control_Request_Method="POST", **headers)[0] == 403
    assert is_in(ask(port, X_API_KEY=token, Origin="http://localhost:%d" % port, Sec_Fetch_Site="same-origin"))
    for host in ("evil.example", "3000-iabc.evil.example", "localhost.evil.example"):
        assert ask(port, host=host, X_API_KEY=token)[0] == 421, host
    assert is_in(ask(port, host="127.0.0.1", X_API_KEY=token))


def test_loops(user_daemon, cloud, runtime):
    port, token = port_of(user_daemon), new_token(user_daemon)
    assert ask(port, X_API_KEY=token, Agentboxd_Hop="1")[0] == 508
    assert ask(port, "/x", host="3000-iabc.localhost", Agentboxd_Hop="1")[0] == 508
    user_daemon.ctl("ls")
    assert {s.header("agentboxd-hop") for s in cloud.ledger.requests} == {"1"}, "a gateway further on can tell"


def refused_at_start(cloud, runtime, conf=None, env=None, code=78, folder=None):
    d = harness.Daemon(cloud, conf=conf, env=dict({"XDG_RUNTIME_DIR": runtime, "HOME": runtime}, **(env or {})), wait=False,
                       folder=folder)
    try:
        assert d.proc.wait(20) == code, d.tail()
        return d.log()
    finally:
        d.close()


def test_a_token_as_the_clouds_key(user_daemon, cloud, runtime):
    """After eval "$(agentboxctl env)" the daemon's own environment points at itself."""
    token, port = new_token(user_daemon), port_of(user_daemon)
    key = os.path.join(runtime, "k")
    with open(key, "w", encoding="ascii") as f:
        f.write(token + "\n")
    os.chmod(key, 0o600)
    said = refused_at_start(cloud, runtime, conf={"account default": {"api_key_file": key}})
    assert "token of agentboxd's gateway" in said and token not in said
    for var in ("AGENTBOX_API_KEY", "E2B_API_KEY"):
        spelled = token if var.startswith("A") else "e2b_" + token[3:]
        said = refused_at_start(cloud, runtime, conf={"account default": {"api_key_file": None}}, env={var: spelled})
        assert "token of agentboxd's gateway" in said and spelled not in said
    # … and later, when the file changes.
    with open(os.path.join(user_daemon.home, "key"), "w", encoding="ascii") as f:
        f.write(token + "\n")
    user_daemon.ctl("create")
    user_daemon.wait_log("key_refused")
    assert {s.header("x-api-key") for s in cloud.ledger.requests} == {cloud.key}


def test_its_own_address_as_the_cloud(cloud, runtime):
    folder = harness.temp_dir()
    env = {"XDG_RUNTIME_DIR": runtime, "HOME": runtime}
    d = harness.Daemon(cloud, folder=folder, env=env)
    port = port_of(d)
    d.stop()
    for key in ("api_url", "sandbox_url"):
        for host in ("localhost", "127.0.0.1", "[::1]"):
            said = refused_at_start(cloud, runtime, conf={"account default": {key: "http://%s:%d" % (host, port)}}, folder=folder)
            assert "own gateway" in said and key in said, said
    shutil.rmtree(folder)


# -- where it listens

def test_a_taken_port_is_named(cloud, runtime):
    folder = harness.temp_dir()
    env = {"XDG_RUNTIME_DIR": runtime, "HOME": runtime}
    d = harness.Daemon(cloud, folder=folder, env=env)
    port = port_of(d)
    d.stop()
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        s = socket.socket(family)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((address, port))
        s.listen()
        said = refused_at_start(cloud, runtime, folder=folder, code=75)
        assert str(port) in said and "gateway-port" in said and address in said
        s.close()
    with open(os.path.join(folder, "state", "gateway-port"), "w", encoding="ascii") as f:
        f.write("no port\n")
    assert "gateway-port" in refused_at_start(cloud, runtime, folder=folder)
    shutil.rmtree(folder)


def test_off(cloud, runtime):
    for conf, args in (({"gateway": {"listen": "none"}}, ()), ({}, ("--system",))):
        d = harness.Daemon(cloud, conf=conf, args=args, env={"XDG_RUNTIME_DIR": runtime, "HOME": runtime}, wait=False)
        try:
            if args and os.geteuid() != 0:
                continue
            d.wait_ready()
            assert not os.path.exists(os.path.join(d.state_dir, "gateway-port"))
            r = d.ctl("env", check=False, env={"HOME": runtime})
            assert r.returncode == 1 and "[gateway] listen" in r.stderr
            assert d.ctl("run", "true", check=False).returncode == 125
        finally:
            d.close()


def test_other_machines_only_by_tls_and_on_purpose(cloud, runtime):
    from fakecloud.certs import Authority
    cert, key = Authority(os.path.join(runtime, "ca"), "test CA").issue()
    said = refused_at_start(cloud, runtime, conf={"gateway": {"listen": "0.0.0.0:24711"}})
    assert "allow_remote" in said
    said = refused_at_start(cloud, runtime, conf={"gateway": {"listen": "0.0.0.0:24711", "allow_remote": "yes"}})
    assert "tls_cert" in said
    said = refused_at_start(cloud, runtime, conf={"gateway": {"listen": "somewhere.example:1, localhost"}})
    assert "somewhere.example" in said
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    d = harness.Daemon(cloud, conf={"gateway": {"listen": "localhost:%d" % port, "tls_cert": cert, "tls_key": key}},
                       env={"XDG_RUNTIME_DIR": runtime, "HOME": runtime})
    try:
        token = new_token(d)
        context = ssl.create_default_context(cafile=os.path.join(runtime, "ca", "ca.pem")) \
            if os.path.exists(os.path.join(runtime, "ca", "ca.pem")) else ssl._create_unverified_context()
        context.set_alpn_protocols(["h2", "http/1.1"])
        with socket.create_connection(("127.0.0.1", port)) as s, context.wrap_socket(s, server_hostname="localhost") as t:
            assert t.selected_alpn_protocol() == "h2"
        for version in ("--http1.1", "--http2"):
            r = subprocess.run(["curl", "-sk", version, "-w", "%{http_code} %{http_version}", "-o", "/dev/null", "-H",
                                "X-API-Key: " + token, "https://localhost:%d/sandboxes" % port], capture_output=True, text=True)
            status, got = r.stdout.split()
            assert int(status) not in REFUSED and got == {"--http1.1": "1.1", "--http2": "2"}[version]
        assert "https://localhost:%d" % port in d.ctl("env", env={"HOME": runtime}).stdout
    finally:
        d.close()


def test_status_and_metrics(cloud, runtime):
    path = os.path.join(runtime, "m")
    d = harness.Daemon(cloud, conf={"daemon": {"metrics_socket": path}}, env={"XDG_RUNTIME_DIR": runtime, "HOME": runtime})
    try:
        port = port_of(d)
        assert is_401(ask(port)) and is_in(ask(port, X_API_KEY=new_token(d)))
        with socket.create_connection(("localhost", port)):
            until(lambda: json.loads(d.ctl("--json", "status").stdout)["gateway"]["connections"] == 1, 10, "the connection", d)
            g = json.loads(d.ctl("--json", "status").stdout)["gateway"]
            assert (g["url"], g["requests"], g["refused"], g["calls"]) == ("http://localhost:%d" % port, 2, 1, 0)
            assert "http://localhost:%d: 1 connections" % port in d.ctl("status").stdout
            text = subprocess.run(["curl", "-s", "--unix-socket", path, "http://x/metrics"], capture_output=True, text=True).stdout
        assert "agentbox_gateway_connections 1\n" in text and "agentbox_gateway_refused_total 1\n" in text
    finally:
        d.close()


def test_unix_socket(cloud, runtime):
    path = os.path.join(runtime, "gw")
    d = harness.Daemon(cloud, conf={"gateway": {"socket": path}}, env={"XDG_RUNTIME_DIR": runtime, "HOME": runtime})
    try:
        token = new_token(d)
        argv = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--unix-socket", path, "http://anything.example/sandboxes"]
        assert subprocess.run(argv, capture_output=True, text=True).stdout == "401"
        got = subprocess.run(argv + ["-H", "X-API-Key: " + token], capture_output=True, text=True).stdout
        assert int(got) not in REFUSED
    finally:
        d.close()
    assert not os.path.exists(path)


# -- hostile clients

def raw(port, data, timeout=20):
    """Everything that is answered until the end."""
    with socket.create_connection(("localhost", port), timeout=timeout) as s:
        s.sendall(data)
        got = b""
        while True:
            try:
                more = s.recv(65536)
            except ConnectionResetError:
                break
            if not more:
                break
            got += more
        return got


H = b"POST /sandboxes HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %s\r\n"
SMUGGLED = {
    "length and chunks": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two lengths": b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n{}{}{",
    "signed length": b"Content-Length: +4\r\n\r\n{}{}",
    "hex length": b"Content-Length: 0x4\r\n\r\n{}{}",
    "unknown coding": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "blank before the colon": b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "folded line": b"X-A: b\r\n c\r\n\r\n",
    "bare line feed in a value": b"X-A: b\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "NUL in a value": b"X-A: a\0b\r\n\r\n",
    "two hosts": b"Host: evil.example\r\n\r\n",
    "bad size of a chunk": b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    "size of a chunk that wraps": b"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\nx\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("what", sorted(SMUGGLED))
def test_smuggling(user_daemon, what):
    """One answer at most, and nothing of the rest is taken for a second request."""
    port, token = port_of(user_daemon), new_token(user_daemon)
    got = raw(port, H % token.encode() + SMUGGLED[what])
    answers = re.findall(rb"^HTTP/1\.1 (\d+)", got, re.M)
    assert len(answers) <= 1 and all(a in (b"400", b"501") for a in answers), got
    assert is_in(ask(port, X_API_KEY=token)), "the door is open for others"


def test_heads_that_are_too_much(user_daemon):
    port = port_of(user_daemon)
    for lines in (b"".join(b"x-%d: y\r\n" % i for i in range(4000)), b"x-a: " + b"y" * 200000 + b"\r\n"):
        got = raw(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n")
        assert got == b"" or re.match(rb"HTTP/1\.1 4\d\d", got), got[:200]
    assert is_401(ask(port))


def test_slow_heads(user_daemon):
    """A byte now and then holds a connection for ten seconds, whatever it sends."""
    port = port_of(user_daemon)
    start = time.monotonic()
    with socket.create_connection(("localhost", port)) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        s.settimeout(0.5)
        while True:
            assert time.monotonic() - start < 20, "still open"
            try:
                s.sendall(b"x: y\r\n")
                if s.recv(4096) == b"":
                    break
            except socket.timeout:
                continue
            except OSError:
                break
    assert time.monotonic() - start > 5
    assert is_401(ask(port))


def test_a_flood_of_connections(cloud, runtime):
    d = harness.Daemon(cloud, conf={"gateway": {"max_connections": 16}}, env={"XDG_RUNTIME_DIR": runtime, "HOME": runtime})
    try:
        port, fds = port_of(d), d.fds()
        held = [socket.create_connection(("localhost", port)) for _ in range(200)]
        until(lambda: d.fds() <= fds + 20, 10, "connections above the limit to be closed", d)
        for s in held:
            s.close()
        until(lambda: is_401_or_none(port), 10, "room again", d)
    finally:
        d.close()


def is_401_or_none(port):
    try:
        return is_401(ask(port))
    except OSError:
        return False


# -- agentboxctl env, run

def exports(out):
    found = dict(re.findall(r"^export (\w+)='(.*)'$", out, re.M))
    assert len(found) == len(out.splitlines())
    return found


def test_env(user_daemon, runtime):
    env = {"HOME": runtime, "NO_PROXY": "corp.example"}
    port = port_of(user_daemon)
    v = exports(user_daemon.ctl("env", env=env).stdout)
    url = "http://localhost:%d" % port
    assert v["AGENTBOX_API_URL"] == v["AGENTBOX_SANDBOX_URL"] == v["E2B_API_URL"] == v["E2B_SANDBOX_URL"] == url
    assert v["E2B_API_KEY"][4:] == v["AGENTBOX_API_KEY"][3:]
    assert v["NO_PROXY"] == v["no_proxy"] == "corp.example,localhost,127.0.0.1,::1"
    assert int(v["E2B_ENVD_RPC_CONNECTIONS"]) >= 200
    for key in (v["E2B_API_KEY"], v["AGENTBOX_API_KEY"]):
        assert is_in(ask(port, X_API_KEY=key))
    kept = os.path.join(runtime, ".local/state/agentboxctl", "token-%d" % port)
    assert os.stat(kept).st_mode & 0o777 == 0o600
    again = exports(user_daemon.ctl("env", env=dict(env, NO_PROXY="a,localhost", no_proxy="b")).stdout)
    assert again["AGENTBOX_API_KEY"] == v["AGENTBOX_API_KEY"], "made once"
    assert (again["NO_PROXY"], again["no_proxy"]) == ("a,localhost,127.0.0.1,::1", "b,localhost,127.0.0.1,::1")
    control = exports(user_daemon.ctl("env", "--control", env=env).stdout)
    assert "E2B_SANDBOX_URL" not in control and control["E2B_API_URL"] == url
    user_daemon.ctl("token", "rm", open(kept, encoding="ascii").read().split()[0])
    fresh = exports(user_daemon.ctl("env", env=env).stdout)
    assert fresh["AGENTBOX_API_KEY"] != v["AGENTBOX_API_KEY"]
    os.chmod(kept, 0o644)
    other = exports(user_daemon.ctl("env", env=env).stdout)
    assert other["AGENTBOX_API_KEY"] != fresh["AGENTBOX_API_KEY"], "others may have read it"
    assert os.stat(kept).st_mode & 0o777 == 0o600


RUNNING = []


@pytest.fixture
def runs():
    """After a test that failed half-way: its runs end, and their programs with them."""
    yield
    for p in RUNNING:
        if p.poll() is None:
            p.kill()
            p.wait()
    RUNNING.clear()


class Run:
    """agentboxctl run with a shell that tells its token and then does what it is asked to."""

    def __init__(self, d, script="while :; do sleep 0.05; done", args=()):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("E2B_", "AGENTBOX"))}
        self.proc = subprocess.Popen([harness.AGENTBOXCTL, "-s", d.socket, "run"] + list(args) +
                                     ["--", "sh", "-c", "trap 'echo term; exit 0' TERM; echo $$ $E2B_API_KEY $E2B_API_URL; " + script],
                                     stdout=subprocess.PIPE, text=True, env=env)
        RUNNING.append(self.proc)
        pid, self.token, self.url = self.proc.stdout.readline().split()
        self.child = int(pid)

    def end(self, timeout=20):
        out = self.proc.stdout.read()
        self.proc.stdout.close()
        return self.proc.wait(timeout), out


def is_gone(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_run_ends_as_its_program(user_daemon):
    for script, code in (("exit 7", 7), ("kill -9 $$", 137), ("true", 0)):
        r = Run(user_daemon, script)
        assert r.end()[0] == code
        until(lambda: is_401(ask(port_of(user_daemon), X_API_KEY=r.token)), 5, "the token's end")
    assert user_daemon.ctl("run", "/no/such/program", check=False).returncode == 127
    assert user_daemon.ctl("run", "--on-release", "burn", "true", check=False).returncode == 2
    assert user_daemon.ctl("run", check=False).returncode == 2
    assert len(user_daemon.ctl("token", "ls").stdout.splitlines()) == 1


def test_run_passes_signals_on(user_daemon):
    for signo, word in ((signal.SIGTERM, "TERM"), (signal.SIGINT, "INT"), (signal.SIGUSR1, "USR1")):
        r = Run(user_daemon, "trap 'echo got; exit 3' %s; echo up; while :; do sleep 0.05; done" % word)
        assert r.proc.stdout.readline() == "up\n"
        r.proc.send_signal(signo)
        assert r.end() == (3, "got\n"), word


def test_run_killed(user_daemon):
    """agentboxctl by SIGKILL: its program is told, and the token is void at once, though the program may still live."""
    port = port_of(user_daemon)
    r = Run(user_daemon)
    assert is_in(ask(port, X_API_KEY=r.token))
    r.proc.kill()
    until(lambda: is_gone(r.child), 5, "the program's end")
    assert "term" in r.end()[1]
    until(lambda: is_401(ask(port, X_API_KEY=r.token)), 5, "the token's end")


def test_run_children_do_not_prolong_it(user_daemon):
    r = Run(user_daemon, "sleep 30 >/dev/null 2>&1 & echo $!; exit 4")
    assert r.proc.wait(10) == 4
    sleeper = int(r.proc.stdout.read())
    try:
        until(lambda: is_401(ask(port_of(user_daemon), X_API_KEY=r.token)), 5, "the token's end")
    finally:
        os.kill(sleeper, signal.SIGKILL)


def test_run_over_a_crash_of_the_daemon(cloud, runtime):
    """The token is good after it, and void after it if the run ended meanwhile."""
    env = {"XDG_RUNTIME_DIR": runtime, "HOME": runtime}
    folder = harness.temp_dir()
    d = harness.Daemon(cloud, folder=folder, env=env)
    lives, dies = Run(d), Run(d)
    port = port_of(d)
    d.kill9()
    dies.proc.kill()
    dies.end()
    d = harness.Daemon(cloud, folder=folder, env=env)
    try:
        assert port_of(d) == port
        assert is_in(ask(port, X_API_KEY=lives.token)) and is_401(ask(port, X_API_KEY=dies.token))
        lives.proc.terminate()
        assert lives.end() == (0, "term\n")
        until(lambda: is_401(ask(port, X_API_KEY=lives.token)), 5, "the token's end")
    finally:
        d.close()
