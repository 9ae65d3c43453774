# SPDX-License-Identifier: MIT
"""agentboxctl's fork, pause, resume, snapshot, network, host and metrics on agentboxd --local."""
import json
import re

from harness import until

ID = r"i[a-z0-9]{20}"


def sh(d, box, text):
    return d.ctl("exec", box, "--", "sh", "-c", text).stdout


def doc(d, *args):
    return json.loads(d.ctl("--json", *args).stdout)


def test_counter_stands_still_while_paused(d, box):
    """The whole line of the feature: pause freezes, resume continues, forks and snapshots have the files."""
    sh(d, box, "echo 0 >n; setsid sh -c 'i=0; while :; do i=$((i+1)); echo $i >m; mv m n; sleep 0.05; done' >/dev/null 2>&1 &")
    until(lambda: int(sh(d, box, "cat n") or 0) > 3, 10, "the counter")
    assert d.ctl("pause", box).stdout == ""
    assert doc(d, "get", box)["state"] == "paused"
    r = d.ctl("pause", box)
    assert r.returncode == 0 and "already" in r.stderr
    assert doc(d, "pause", box) == {"sandbox": box, "paused": False}
    assert d.ctl("exec", box, "--", "true", check=False).returncode == 125
    d.ctl("resume", box)
    before = int(sh(d, box, "cat n"))      # it is renamed into place: never half written
    until(lambda: int(sh(d, box, "cat n") or 0) > before, 10, "the counter to go on")


def test_fork(d, box):
    sh(d, box, "echo of the parent >f")
    ids = d.ctl("fork", box, "--count", "3", "--timeout", "2m").stdout.split()
    assert len(set(ids)) == 3 and all(re.fullmatch(ID, i) for i in ids) and box not in ids
    for i in ids:
        assert sh(d, i, "cat f") == "of the parent\n"
        assert d.ctl("kill", i).returncode == 0
    assert d.ctl("fork", box, "-n", "0", check=False).returncode == 2
    assert d.ctl("fork", "nosuchbox", check=False).returncode == 3
    one = d.ctl("fork", box, "--request-id", "ctl-fork").stdout
    assert d.ctl("fork", box, "--request-id", "ctl-fork").stdout == one
    d.ctl("kill", one.strip())


def test_snapshot(d, box):
    sh(d, box, "echo before >f")
    s = d.ctl("snapshot", "create", box, "--name", "ctl-snap").stdout.strip()
    assert s.endswith("ctl-snap:default")
    sh(d, box, "echo after >f")
    row = doc(d, "snapshot", "ls", box)
    assert row["id"] == s and row["source_sandbox"] == box and row["created_at"]
    assert s in d.ctl("snapshot", "ls").stdout
    assert d.ctl("kill", box).returncode == 0
    new = d.ctl("create", "-t", s).stdout.strip()
    assert sh(d, new, "cat f") == "before\n"
    assert d.ctl("snapshot", "rm", s, check=False).returncode == 1      # in use
    d.ctl("kill", new)
    assert doc(d, "snapshot", "rm", s) == {"snapshot": s, "found": True}
    r = d.ctl("--json", "snapshot", "rm", s, check=False)
    assert r.returncode == 3 and json.loads(r.stdout) == {"snapshot": s, "found": False}
    assert d.ctl("snapshot", "what", check=False).returncode == 2


def test_host(d, box):
    host = d.ctl("host", box, "8000").stdout.strip()
    assert host.startswith("8000-%s." % box)
    assert doc(d, "host", box, "8000")["host"] == host
    assert d.ctl("host", box, "70000", check=False).returncode == 2


def test_metrics(d, box):
    until(lambda: d.ctl("--json", "metrics", box).stdout, 20, "a point")
    m = json.loads(d.ctl("--json", "metrics", box).stdout.splitlines()[-1])
    assert m["cpu_count"] >= 1 and m["mem_total"] > 0 and m["disk_total"] > 0
    lines = d.ctl("metrics", box).stdout.splitlines()
    assert [x.split()[0] for x in lines[:3]] == ["cpu", "mem", "disk"] and re.search("[▁-█]", lines[0])
    assert d.ctl("metrics", "-a", box).stdout.startswith("AT ")


def test_running(d, box):
    assert d.ctl("running", box).stdout == "yes\n" and doc(d, "running", box) == {"sandbox": box, "running": True}
    d.ctl("pause", box)
    r = d.ctl("--json", "running", box, check=False)
    assert r.returncode == 1 and json.loads(r.stdout) == {"sandbox": box, "running": False}
    d.ctl("resume", "--wait-ready", box)
    assert d.ctl("running", box).returncode == 0
    assert d.ctl("running", "nosuchbox", check=False).returncode == 3


def test_ls_by_state_and_template(d, box):
    def found(*words):
        return [json.loads(line)["id"] for line in d.ctl("--json", "ls", "-m", "mark=" + box, *words).stdout.splitlines()]
    one, two, three = (d.ctl("create", "-m", "mark=" + box, "--wait-ready").stdout.strip() for _ in range(3))
    d.ctl("pause", two)
    d.ctl("kill", three)
    assert found() == [two, one] and found("--state", "running") == [one] and found("--state", "paused") == [two]
    assert found("--state", "gone") == [three] and found("--state", "running,paused,gone") == [three, two, one]
    assert found("-t", "base") == [two, one] and found("-t", "nosuch") == []
    for bad in ("asleep", "", "running,"):
        assert (d.ctl("ls", "--state", bad, check=False).returncode == 2) == (bad != "running,")
    d.ctl("kill", one, two)


def test_create_options(d):
    b = doc(d, "create", "--not-secure", "--name", "only-one", "--wait-ready")["id"]
    assert d.ctl("create", "--name", "only-one").stdout.strip() == b
    r = d.ctl("create", "--name", "only-one", "--must-create", check=False)
    assert r.returncode == 1 and "NAME_EXISTS" in r.stderr
    assert d.ctl("connect", "--wait-ready", "only-one").returncode == 0
    d.ctl("kill", b)


def test_lifecycle(d):
    b = doc(d, "create", "--on-timeout", "pause", "--auto-resume", "--timeout", "1m")
    got = doc(d, "get", b["id"])
    assert got["lifecycle"]["on_timeout"] == "pause" and got["lifecycle"]["auto_resume"] is True
    d.ctl("kill", b["id"])
    r = d.ctl("create", "--auto-resume", check=False)
    assert r.returncode == 1 and "lifecycle.auto_resume" in r.stderr
    assert d.ctl("create", "--on-timeout", "explode", check=False).returncode == 2


def test_c_11_no_internet_and_a_name(cloud, daemon):
    """C-11: what every cloud takes: names are exceptions from what is denied, and that says so; also for one that runs."""
    b = daemon.ctl("create", "--no-internet", "--allow-out", "example.com").stdout.strip()
    sent = json.loads(cloud.ledger.of("create")[0].body)
    assert sent["allow_internet_access"] is False
    assert sent["network"] == {"allowOut": ["example.com"], "denyOut": ["0.0.0.0/0"]}
    daemon.ctl("network", b, "--no-internet", "--allow-out", "example.com.")
    sent = json.loads(cloud.ledger.of("network")[0].body)
    assert sent == {"allowOut": ["example.com."], "denyOut": ["0.0.0.0/0"], "allow_internet_access": False}
    for host in ("*.example.com", "1.2.3.4"):
        r = daemon.ctl("create", "--header", host + ":A=b", check=False)
        assert r.returncode == 1 and "network.rules" in r.stderr, r.stderr


def test_network_on_the_scripted_cloud(cloud, daemon):
    d = daemon
    env = {"EGRESS_PROXY_PASSWORD": "secret"}
    b = d.ctl("create", "--deny-out", "0.0.0.0/0", "--allow-out", "example.com", "--allow-out", "1.1.1.1", "--private",
              "--iam", "aws=sts", "--header", "example.com:Authorization=Bearer ${e2b.identity.tokens.aws}",
              "--header", "example.com:X-More=a=b", "--proxy", "me@proxy.example.com:1080", env=env).stdout.strip()
    sent = json.loads(cloud.ledger.of("create")[0].body)
    assert sent["network"]["egressProxy"] == {"address": "proxy.example.com:1080", "username": "me",
                                              "password": "secret"}
    assert sent["network"]["rules"]["example.com"][0]["transform"]["headers"] == {
        "Authorization": "Bearer ${e2b.identity.tokens.aws}", "X-More": "a=b"}
    assert sent["iam"]["tokens"]["aws"] == {"audience": "sts", "tokenType": "JWT-SVID"}
    text = d.ctl("network", b).stdout
    assert "1.1.1.1" in text and "private" in text and "secret" not in text
    assert doc(d, "network", b)["network"]["deny_out"] == ["0.0.0.0/0"]
    d.ctl("network", b, "--deny-out", "9.9.9.9", "--no-internet")
    got = doc(d, "network", b)
    assert got["network"]["deny_out"] == ["9.9.9.9"] and got["network"]["allow_out"] == []
    assert got["allow_internet_access"] is False
    d.ctl("network", b, "--deny-out", "9.9.9.9")        # the cloud keeps what is not said of this
    assert doc(d, "network", b)["allow_internet_access"] is False
    d.ctl("network", b, "--clear")
    assert doc(d, "network", b)["allow_internet_access"] is True
    assert "deny_out" not in doc(d, "network", b).get("network", {}) or \
        doc(d, "network", b)["network"]["deny_out"] == []
    assert d.ctl("network", b, "--allow-out", "x.org", check=False).returncode == 1
    assert d.ctl("network", b, "--header", "nocolon=1", check=False).returncode == 2
