# SPDX-License-Identifier: MIT
"""What a person at the command line is told on bad days, and streams that go on over a restart of the daemon."""
import grp
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import threading

import pytest

import harness
from api import Api, ApiError
from conftest import built
from harness import AGENTBOXCTL, as_user, temp_dir, until


@pytest.fixture
def folder():
    f = temp_dir()
    yield f
    shutil.rmtree(f)


@pytest.fixture
def follower():
    """Starts commands that follow something; each is ended."""
    made = []

    def start(*argv):
        p = subprocess.Popen([AGENTBOXCTL, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        timer = threading.Timer(60, p.kill)
        timer.start()
        made.append((p, timer))
        return p
    yield start
    for p, timer in made:
        timer.cancel()
        p.kill()
        p.wait()
        p.stdout.close()
        p.stderr.close()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be refused as another user")
@pytest.mark.parametrize("what", ["socket", "folder"])
def test_d_8_a_refusal_says_who_and_whose_and_what_to_do(cloud, what):
    """D-8"""
    built(harness.AGENTBOXD)
    d = harness.Daemon(cloud)
    try:
        group = grp.getgrnam("daemon")
        os.chmod(d.home, 0o755)
        os.chown(d.socket, 0, group.gr_gid)
        os.chmod(d.socket, 0o660)
        if what == "folder":
            os.chown(d.home, 0, group.gr_gid)
            os.chmod(d.home, 0o750)
        nobody = pwd.getpwnam("nobody")
        r = subprocess.run(as_user(nobody.pw_uid, [AGENTBOXCTL, "-s", d.socket, "ls"]), capture_output=True, text=True, timeout=60)
        assert r.returncode == 4, r
        for word in ("nobody", "uid %d" % nobody.pw_uid, "root (uid 0)", "group daemon", "usermod -aG daemon",
                     "mode 0660" if what == "socket" else "mode 0750", d.socket if what == "socket" else d.home + " has"):
            assert word in r.stderr, (word, r.stderr)
        assert "is agentboxd running" not in r.stderr
    finally:
        d.close()


def test_d_8_status_ends_with_1_where_something_does_not_work(cloud, daemon):
    """D-8: with why, and what to do."""
    assert daemon.ctl("status").returncode == 0
    d = harness.Daemon(cloud, conf={"account default": {"api_url": "https://127.0.0.1:1"}})
    try:
        d.ctl("--wait", "0s", "ls", check=False)
        until(lambda: d.ctl("status", check=False).returncode == 1, 20, "the cloud to be missed")
        r = d.ctl("status", check=False)
        assert re.search(r"^degraded +cloud of account default: .+\(UNREACHABLE\) since ", r.stdout, re.M), r.stdout
        assert re.search(r"^ +to do: see that this machine reaches api_url", r.stdout, re.M), r.stdout
        got = json.loads(d.ctl("--json", "status", check=False).stdout)["degraded"]
        assert got and got[0]["what"] == "cloud" and "api_url" in got[0]["advice"], got
    finally:
        d.close()


def test_d_8_status_without_a_key(cloud):
    """D-8: a daemon that can do nothing is not healthy."""
    built(harness.AGENTBOXD)
    d = harness.Daemon(cloud, conf={"account default": {"api_key_file": None}})
    try:
        r = d.ctl("status", check=False)
        assert r.returncode == 1 and "(KEY_MISSING)" in r.stdout and "to do: set api_key_file" in r.stdout, r
    finally:
        d.close()


@pytest.mark.parametrize("end", ["stop", "kill9"])
def test_d_8_events_and_watch_go_on_over_a_restart(cloud, folder, follower, end):
    """D-8: events from the cursor on, none lost and none twice; a watch says that it missed something."""
    built(harness.AGENTBOXD)
    d = harness.Daemon(cloud, folder=folder, conf={"daemon": {"drain_timeout": "2s"}})
    try:
        box = d.ctl("create").stdout.strip()
        events = follower("-s", d.socket, "--json", "events", "--initial")
        watch = follower("-s", d.socket, "--json", "watch", box + ":/tmp")
        lines = [json.loads(events.stdout.readline()) for _ in range(3)]
        assert [e["type"] for e in lines] == ["RESYNC", "UPDATED", "RESYNC_DONE"]
        assert json.loads(watch.stdout.readline()) == {"event": "ready"}
        one = d.ctl("create").stdout.strip()
        assert json.loads(events.stdout.readline())["sandbox"] == one
        os.kill(events.pid, signal.SIGSTOP)     # so that something happens while it is away
        getattr(d, end)()
        d = harness.Daemon(cloud, folder=folder)
        meanwhile = d.ctl("create").stdout.strip()
        os.kill(events.pid, signal.SIGCONT)
        two = d.ctl("create").stdout.strip()
        seen = []
        while (seen[-1:] or [{}])[-1].get("sandbox") != two:
            seen.append(json.loads(events.stdout.readline()))
        assert json.loads(watch.stdout.readline()) == {"event": "overflowed"}
        assert meanwhile in [e.get("sandbox") for e in seen], "from the cursor on, or all that there is"
        assert one not in [e.get("sandbox") for e in seen if e["type"] == "CREATED"], "not twice"
        for p in (events, watch):
            assert p.poll() is None
            p.send_signal(signal.SIGINT)
            assert p.wait(20) == -signal.SIGINT
    finally:
        d.close()


@pytest.mark.parametrize("end", ["stop", "kill9"])
def test_d_8_attach_and_exec_go_on_over_a_restart(cloud, folder, follower, end):
    """D-8: what reads a command's output goes on reading, nothing twice, and says what is missing."""
    built(harness.AGENTBOXD)
    d = harness.Daemon(cloud, folder=folder)
    try:
        box = d.ctl("create").stdout.strip()
        command = d.ctl("exec", "-d", box, "sh", "-c", "i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.1; done; exit 6").stdout.strip()
        p = follower("-s", d.socket, "attach", command)
        assert p.stdout.readline() == "0\n"
        getattr(d, end)()
        d = harness.Daemon(cloud, folder=folder)
        got, err = p.communicate(timeout=60)
        assert p.returncode == 6, err
        lines = [int(x) for x in got.split()]
        assert lines == sorted(set(lines)) and lines[-1] == 39 and len(lines) > 20, got
        # what it printed while there was no daemon is nobody's, and that is said
        assert lines == list(range(1, 40)) or re.search(r"warning: .* lost", err), (got, err)
    finally:
        d.close()


def test_d_8_a_stream_gives_up_when_no_daemon_comes(cloud, follower):
    """D-8: after --wait, with the exit code of a daemon that is not there."""
    built(harness.AGENTBOXD)
    d = harness.Daemon(cloud)
    try:
        p = follower("-s", d.socket, "--wait", "1s", "events", "--initial")
        assert "RESYNC" in p.stdout.readline()
        d.stop()
        assert p.wait(20) == 4 and d.socket in p.stderr.read()
    finally:
        d.close()


# -- G-5: what a cloud, an agent or a proxy writes shows no secret of ours

def echo(secret):
    return ('{"code":400,"message":"bad header X-Key: %s"}' % secret).encode()


def test_g_5_a_key_in_a_clouds_words_reaches_nobody(cloud, daemon, api):
    """G-5: caller, log, Status and metadata of the error."""
    for status in (400, 403, 409, 429, 503):
        cloud.fault("create", status=status, body=echo(cloud.key), headers=[("x-request-id", cloud.key)], times=1)
        with pytest.raises(ApiError) as e:
            api.call("SandboxService.Create", timeout=3)
        assert cloud.key not in str(e.value) + str(e.value.trailers), status
        assert "bad header" in e.value.text or status == 503, e.value
        cloud.clear_faults()
    cloud.fault("list", status=503, body=echo(cloud.key), times=None)
    api.call("SandboxService.List")
    said = str(api.call("DaemonService.Status")) + daemon.log() + daemon.ctl("--json", "status", check=False).stdout
    assert cloud.key not in said and "bad header" in daemon.log()


def test_g_5_a_token_in_an_agents_words_reaches_nobody(cloud, daemon, api):
    """G-5: the tokens of a sandbox are secrets too."""
    box = api.call("SandboxService.Create").id
    token = cloud.sandbox(box).token
    assert len(token) >= 8
    for route in ("filesystem.Stat", "process.Start"):
        cloud.fault(route, status=500, body=('{"code":"internal","message":"token %s is odd"}' % token).encode(), times=None)
    with pytest.raises(ApiError) as e:
        api.call("FileService.Stat", sandbox=box, path="/x")
    assert "is odd" in e.value.text and token not in str(e.value), e.value
    r = daemon.ctl("exec", box, "true", check=False)
    assert token not in r.stderr + daemon.log(), r


def test_g_5_secrets_of_a_request_reach_nobody(cloud, daemon, api):
    """G-5: what a caller has put into headers, the proxy's password and variables comes back in the cloud's words to nobody, cut
    or whole; the same words of another caller's error stay."""
    header, password, env, short = "Bearer sk-net-0123456789", "pr0xy!p4ss!w", "env-0123456789-abcdef", "k3y"
    network = {"allow_out": ["example.com"], "deny_out": ["0.0.0.0/0"], "egress_proxy": {"address": "p.example:1080", "username": "u", "password": password},
               "rules": {"example.com": {"rules": [{"transform_headers": {"Authorization": header, "X-Key": short + "9"}}]}}}
    said = "%s, %s, %s, %s9, sk-net-0123" % (header, password, env, short)
    box = api.call("SandboxService.Create").id
    cloud.fault("create", status=400, body=echo(said), times=None)
    cloud.fault("network", status=400, body=echo(said), times=None)
    for method, fields in (("SandboxService.Create", {"network": network, "envs": {"A": env}}),
                           ("SandboxService.UpdateNetwork", {"sandbox": box, "network": network})):
        with pytest.raises(ApiError) as e:
            api.call(method, **fields)
        assert "bad header" in e.value.text, e.value
        told = str(e.value) + str(e.value.trailers) + daemon.log() + str(api.call("DaemonService.Status"))
        secrets = [header, "sk-net-0123", password, short + "9"] + [env] * ("envs" in fields)
        assert not [x for x in secrets if x in told], (method, e.value)
        cloud.clear_faults()
        cloud.fault("network", status=400, body=echo(said), times=None)
    cloud.fault("create", status=400, body=echo(said), times=1)
    with pytest.raises(ApiError) as e:
        api.call("SandboxService.Create")
    assert said in e.value.text, "what others have not sent is no secret of theirs"


def test_g_5_short_secrets_reach_nobody(cloud):
    """G-5: a key of seven bytes is one."""
    cloud.keys["ab_k3y7"] = cloud.team
    cloud.key = "ab_k3y7"
    d = harness.Daemon(cloud, conf={"account default": {"cloud": "agentbox"}})
    try:
        with Api(d.socket) as api:
            cloud.fault("create", status=400, body=echo(cloud.key), times=None)
            with pytest.raises(ApiError) as e:
                api.call("SandboxService.Create")
            assert "bad header" in e.value.text and cloud.key not in str(e.value) + d.log()
    finally:
        d.close()


# -- G-8: whose word a daemon of many users takes

@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to serve many users")
@pytest.mark.parametrize("what", ["file by all", "file by its group", "folder", "folder above", "owner", "link", "ca_file"])
def test_g_8_a_configuration_that_others_may_write_is_refused(cloud, folder, what):
    """G-8: the file, the folders on the way to it, and the certificates that it names."""
    built(harness.AGENTBOXD)
    inner = os.path.join(folder, "above", "conf")
    os.makedirs(inner)
    conf, ca = os.path.join(inner, "agentboxd.conf"), os.path.join(inner, "ca.pem")
    shutil.copy(cloud.ca, ca)
    with open(conf, "w", encoding="utf-8") as f:
        f.write("[account default]\nca_file = %s\n" % ca)
    os.chmod(conf, 0o644)

    def check(path=conf):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("E2B_", "AGENTBOX"))}
        return subprocess.run([harness.AGENTBOXD, "--system", "--config", path, "--check-config"], env=env, capture_output=True,
                              text=True, timeout=60)
    assert check().returncode == 0, check()
    path, bad = conf, conf
    if what == "file by all":
        os.chmod(conf, 0o666)
    elif what == "file by its group":
        os.chmod(conf, 0o664)
    elif what == "folder":
        bad = inner
        os.chmod(inner, 0o777)
    elif what == "folder above":
        bad = os.path.dirname(inner)
        os.chmod(bad, 0o775)
    elif what == "owner":
        os.chown(conf, 65534, 0)
    elif what == "link":
        bad = os.path.join(folder, "open")
        os.mkdir(bad)
        os.chmod(bad, 0o777)
        path = os.path.join(bad, "c")
        os.symlink(conf, path)
    else:
        bad = ca
        os.chmod(ca, 0o666)
    r = check(path)
    assert r.returncode == 78 and bad in r.stderr and ("chmod go-w" in r.stderr or "chown root" in r.stderr), r
    if what != "owner":
        os.chmod(bad, 0o755 if os.path.isdir(bad) else 0o644)
        assert check(path).returncode == 0


def test_d_8_an_outage_is_two_lines_and_a_count(cloud, folder):
    """D-8: however often the daemon tries meanwhile."""
    built(harness.AGENTBOXD)
    d = harness.Daemon(cloud, folder=folder, conf={"daemon": {"reconcile_period": "1s"}})
    try:
        d.wait_log("upstream_connected")
        cloud.refuse()
        with Api(d.socket) as api:
            until(lambda: sum(o.failures for o in api.call("DaemonService.Status").pool) >= 4, 60, "four attempts", d)
        cloud.refuse(False)
        d.wait_log("upstream_reached .*after_failures=", 60)
        d.wait_log("reconcile_again .*after_failures=", 60)
        log = d.log()
        assert log.count(" upstream_dial_failed ") == log.count(" upstream_reached ") == 1, log
        assert log.count(" reconcile_skipped ") == log.count(" reconcile_again ") == 1, log
    finally:
        d.close()
