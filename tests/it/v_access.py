# SPDX-License-Identifier: MIT
"""Who may use the daemon: the lists of [access], one table for all kinds of callers, over reloads.

The daemon has users and groups of its own: /etc/passwd and /etc/group are the test's in its mount namespace.
"""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess

import pytest

import harness
import v_two_uids as two

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root to become other users")

DAEMON = 61900
PASSWD = ("root:x:0:0::/:/bin/sh\nalice:x:61001:61001::/:/bin/sh\nbob:x:61002:61002::/:/bin/sh\ncarol:x:61003:61003::/:/bin/sh\n"
          "agentboxd:x:61900:61900::/:/bin/sh\nguest:x:61500:61500::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
GROUP = "root:x:0:\nagents:x:7100:\nstudents:x:7200:carol\nops:x:7300:\n"
OWN = """
mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/group" /etc/group && shift && exec "$@"
"""


class Caller(two.Caller):
    """A process of that uid and those groups, with one connection; `wrap` puts it somewhere else."""

    def __init__(self, socket, uid, groups=(), wrap=(), program=("/usr/bin/python3", "-B")):
        lib = os.path.join(harness.ROOT, "tests", "lib")
        rights = ["setpriv", "--reuid", str(uid), "--regid", str(uid)]
        rights += ["--groups", ",".join(map(str, groups))] if groups else ["--clear-groups"]
        argv = list(wrap) + (rights + ["--"] if uid else []) + \
            list(program) + [os.path.join(harness.ROOT, "tests/it/v_two_uids.py"), "--serve", socket]
        self.proc = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                     env=dict(os.environ, PYTHONPATH=lib))

    def may(self, method, **fields):
        r = self(method, **fields)
        if "ok" in r:
            return True
        assert r["error"][:2] == ["PERMISSION_DENIED", "UID_DENIED"], (method, r)
        return False

    def rights(self):
        """use: all that is its own; look: what is everybody's; admin: what only an administrator may."""
        use, look = self.may("SnapshotService.List"), self.may("SandboxService.List", all_owners=True)
        return "admin" if self._admin(use) else "use+look" if use and look else "use" if use else "look" if look else "-"

    def _admin(self, use):
        if not use:
            return False
        r = self("SandboxService.Create", account="no-such-account")
        return "error" in r and r["error"][1] == "ACCOUNT_NOT_FOUND"


class Host:
    """A daemon that serves several users, with lists that can be written anew."""

    def __init__(self, cloud, access=None, conf=None):
        self.etc = harness.temp_dir("abx-")
        self.write("passwd", PASSWD)
        self.write("group", GROUP)
        shutil.copy(cloud.ca, os.path.join(self.etc, "ca.pem"))     # the cloud's folder is root's alone
        os.chmod(os.path.join(self.etc, "ca.pem"), 0o644)
        self.conf = dict({"account default": {"ca_file": os.path.join(self.etc, "ca.pem")}}, **(conf or {}))
        self.cloud = cloud
        self.daemon = self.start(dict(self.conf, access=access or {}))
        self.socket = self.daemon.socket
        with open(self.daemon.conf_path, encoding="utf-8") as f:
            self.rest = f.read().split("[access]")[0]

    def start(self, conf, folder=None):
        d = harness.Daemon(self.cloud, conf=conf, uid=DAEMON, folder=folder, wrap=["unshare", "-m", "sh", "-c", OWN, "sh", self.etc])
        os.chmod(d.socket, 0o666)
        return d

    def restart(self):
        """Without lists of access."""
        self.daemon.stop()
        folder, self.daemon._own_home = self.daemon.home, False
        self.daemon.close()
        self.daemon = self.start(self.conf, folder)
        self.daemon._own_home = True

    def write(self, name, text):
        """In its place, since it is mounted."""
        with open(os.path.join(self.etc, name), "w", encoding="ascii") as f:
            f.write(text)

    def reload(self, access, says="reloaded"):
        lines = ["[access]"] + ["%s = %s" % (k, v) for k, v in access.items()]
        with open(self.daemon.conf_path, "w", encoding="utf-8") as f:
            f.write(self.rest + "\n".join(lines) + "\n")
        n = len(re.findall(r"\b%s " % says, self.daemon.log()))
        os.kill(self.daemon.pid, signal.SIGHUP)
        harness.until(lambda: len(re.findall(r"\b%s " % says, self.daemon.log())) > n, 10, says, self.daemon)

    def line(self, key):
        with open(self.daemon.conf_path, encoding="utf-8") as f:
            for n, line in enumerate(f, 1):
                if line.startswith(key + " "):
                    return "%s:%d: [access] %s" % (self.daemon.conf_path, n, key)

    def close(self):
        self.daemon.close()


@pytest.fixture
def host(cloud):
    h = Host(cloud)
    yield h
    h.close()


def callers(socket):
    return {
        "alice": Caller(socket, 61001, groups=[7100]),
        "bob": Caller(socket, 61002, groups=[7200]),
        "carol": Caller(socket, 61003, groups=[7300]),
        "nameless": Caller(socket, 61499),
        "service": Caller(socket, 61500),
        "root": Caller(socket, 0),
        "root of a user namespace": Caller(socket, 0, wrap=["unshare", "-U", "-r"]),
        "root of a pid namespace": Caller(socket, 0, wrap=["unshare", "-p", "-f", "--mount-proc"]),
    }


# Rows of lists, and what each caller then is.
NOBODY = dict.fromkeys(["alice", "bob", "carol", "nameless", "service", "next of its uid", "root of a user namespace",
                        "root of a pid namespace"], "-")
ALL = dict.fromkeys(NOBODY, "use")
MATRIX = [
    ({}, dict(ALL, root="admin")),
    ({"allow": "alice"}, dict(NOBODY, alice="use", root="admin")),
    ({"allow": "61001, 61499-61500"}, dict(NOBODY, alice="use", nameless="use", service="use", root="admin",
                                               **{"next of its uid": "use"})),
    ({"allow": "@agents, @7200"}, dict(NOBODY, alice="use", bob="use", root="admin")),
    ({"allow": "*", "deny": "bob, @ops"}, dict(ALL, bob="-", carol="-", root="admin")),
    ({"deny": "61002-61499"}, dict(ALL, bob="-", carol="-", nameless="-", root="admin")),
    ({"allow": "*", "deny": "alice", "admins": "root, alice"}, dict(ALL, alice="-", root="admin")),
    ({"allow": "bob", "admins": "root, @agents"}, dict(NOBODY, alice="admin", bob="use", root="admin")),
    ({"allow": "alice", "observe": "@ops"}, dict(NOBODY, alice="use", carol="look", root="admin")),
    ({"allow": "@agents", "observe": "alice"}, dict(NOBODY, alice="use+look", root="admin")),
    ({"allow": "guest", "observe": "@ops, nameless"}, dict(NOBODY, service="use", carol="look", root="admin")),
    ({"allow": "other, alice", "admins": "root, guest"}, dict(NOBODY, alice="use", service="admin", root="admin",
                                                              **{"next of its uid": "use"})),
    ({"deny": "other", "observe": "guest"}, dict(ALL, service="use+look", root="admin", **{"next of its uid": "-"})),
    ({"allow": "none", "admins": "root, carol"}, dict(NOBODY, carol="admin", root="admin")),
    ({"allow": "root"}, dict(NOBODY, root="admin", **{"root of a user namespace": "use", "root of a pid namespace": "use"})),
]


def next_of_its_uid(host, lists):
    """What another user is that gets the uid of the service, as systemd gives them in turn."""
    host.write("passwd", PASSWD.replace("guest:", "other:"))
    with contextlib.closing(warm(host, 61500)) as c:
        host.reload(lists)
        rights = c.rights()
    host.write("passwd", PASSWD)
    return rights


def test_the_access_matrix(host):
    """The access matrix: allow, deny, groups, names, ranges, observers, admins, root of another namespace, a uid that was another's; each
    row over a reload, on connections that stay."""
    with contextlib.ExitStack() as stack:
        who = callers(host.socket)
        for c in who.values():
            stack.callback(c.close)
        told = []
        for lists, want in MATRIX:
            host.reload(lists)
            got = {name: c.rights() for name, c in who.items()}
            got["next of its uid"] = next_of_its_uid(host, lists)
            told += ["%s: %s is %s, not %s" % (lists, n, got[n], want[n]) for n in got if got[n] != want[n]]
        assert not told, "\n".join(told)


def warm(host, uid, groups=()):
    """A caller that has read the API already: one that is refused is not told it."""
    host.reload({})
    c = Caller(host.socket, uid, groups)
    for service in ("SandboxService", "SnapshotService", "TokenService"):
        c.get(service + ".List")
    return c


def test_a_refusal_says_who_which_rule_and_where(host):
    lists = {"allow": "alice", "deny": "@students", "observe": "carol"}
    for uid, groups, name, rule, item in ((61002, [7200], "bob", "deny", "@students of "), (61499, [], None, "allow", "")):
        with contextlib.closing(warm(host, uid, groups)) as c:
            host.reload(lists)
            code, reason, text, metadata, _ = c("SandboxService.List")["error"]
            assert (code, reason) == ("PERMISSION_DENIED", "UID_DENIED")
            assert "uid %d%s may not use" % (uid, " (%s)" % name if name else "") in text
            assert item + host.line(rule) in text, text
            assert metadata["uid"] == str(uid) and metadata.get("user") == name and metadata["rule"] == rule
            assert metadata["where"] == item + host.line(rule)
    with contextlib.closing(Caller(host.socket, 61003)) as c:
        host.reload(lists)
        text = c("SandboxService.Create")["error"][2]
        assert "uid 61003 (carol) may observe and no more, by carol of " + host.line("observe") in text
    with contextlib.closing(Caller(host.socket, 61001)) as c:
        _, _, text, metadata, _ = c("DaemonService.Reload")["error"]
        assert text == ("only an administrator may reload the configuration; you are uid 61001 (alice), and [access] admins (the default) "
                        "says who is one")
        assert metadata["rule"] == "admins"


def test_a_stream_of_who_lost_access_ends(host):
    """One that keeps its right goes on; what is held by a stream is released with it."""
    from api import Api, ApiError
    with contextlib.closing(Caller(host.socket, 61001)) as a, contextlib.closing(Caller(host.socket, 61002)) as b:
        for c in (a, b):
            c.get("SandboxService.Create", name="mine")
        held = {}
        for uid in (61001, 61002):
            code = ("import sys; sys.path.insert(0, %r); from api import Api, ApiError\n"
                    "with Api(sys.argv[1]) as api, api.stream('LeaseService.Hold', sandbox='mine') as s:\n"
                    "    next(s); print('held', flush=True)\n"
                    "    try:\n"
                    "        for _ in s: pass\n"
                    "    except ApiError as e: print(e.reason, e.text, flush=True)\n" % os.path.join(harness.ROOT, "tests", "lib"))
            held[uid] = subprocess.Popen(harness.as_user(uid, ["/usr/bin/python3", "-B", "-c", code, host.socket]),
                                         stdout=subprocess.PIPE, text=True)
            assert held[uid].stdout.readline() == "held\n"
        host.reload({"deny": "bob"})
        assert held[61002].communicate(timeout=10)[0].startswith("UID_DENIED uid 61002 (bob) may not use")
        assert held[61001].poll() is None
        assert a.get("SandboxService.Get", sandbox="mine")["leases"] == "1"
        held[61001].kill()
        held[61001].communicate()
    with Api(host.socket) as api:
        harness.until(lambda: not [s for s in api.call("SandboxService.List", all_owners=True).sandboxes if s.leases], 10, "no leases")
        with pytest.raises(ApiError):
            api.call("SandboxService.Create", account="x")


def test_an_observer_sees_no_secrets(cloud, host):
    """Neither ids that open a sandbox, nor what its owner wrote into it; pages lead on without them."""
    host.reload({"observe": "carol", "allow": "alice"})
    with contextlib.closing(Caller(host.socket, 61001)) as a, contextlib.closing(Caller(host.socket, 61003)) as o:
        ids = [a.get("SandboxService.Create", metadata={"k": "hidden-%d" % i})["id"][1:-1] for i in range(3)]
        stranger = cloud.make_sandbox()
        # A list of the cloud's is one for all who ask within a second.
        harness.until(lambda: len(o.get("SandboxService.List", all_owners=True, all_hosts=True)["sandboxes"]) == 4, 10, "the stranger")
        seen, token = [], ""
        for _ in range(5):
            page = o.get("SandboxService.List", all_owners=True, all_hosts=True, page_size=1, page_token=token)
            seen += page["sandboxes"]
            token = page.get("next_page_token", "''")[1:-1]
            said = json.dumps(page)
            assert "hidden" not in said and not [i for i in ids + [stranger.id] if i in said]
            if not token:
                break
            import base64
            assert not [i for i in ids if i in base64.b64decode(token + "==").decode()]
        assert sorted(s["id"][1:7] for s in seen) == sorted(i[:6] for i in ids + [stranger.id])
        assert all(s["id"].endswith("...'") for s in seen)
        event = o.get("SandboxService.Watch", all_owners=True, initial=True)
        assert not [i for i in ids if i in json.dumps(event)] and "hidden" not in json.dumps(event)
        status = o.get("DaemonService.Status")
        assert status["counts"]["sandboxes_running"] == "3"
        assert not [i for i in ids if i in json.dumps(status)]


@pytest.mark.parametrize("lists,said", [
    ({"allow": "@no-such-group"}, r"\[access\] allow: there is no group \"no-such-group\" on this machine"),
    ({"deny": "5-2"}, r"\[access\] deny: \"5-2\" is no range of uids"), ({"admins": ""}, r"\[access\] admins: names nobody"),
])
def test_a_list_that_is_wrong_changes_nothing(host, lists, said):
    b = warm(host, 61002)
    host.reload({"allow": "alice"})
    host.reload(dict({"observe": "bob"}, **lists), says="reload_failed")
    assert re.search(r":\d+: " + said, host.daemon.log().replace('\\"', '"')), host.daemon.tail()
    with contextlib.closing(b):
        assert b.rights() == "-"


def test_a_name_that_comes_later_counts(host):
    """A user that there is not at the reload, as a service's, counts when one of this name connects."""
    host.reload({"allow": "later"})
    assert 'access_unknown user="later"' in host.daemon.log()
    host.write("passwd", PASSWD + "later:x:61600:61600::/:/bin/sh\n")
    with contextlib.closing(Caller(host.socket, 61600)) as c:
        assert c.rights() == "use"


def gateway(host, uid, token, path="/v2/sandboxes", method="GET", headers=()):
    """Status and text of a call of the control plane by that user."""
    url = re.search(r'gateway listen="(http://localhost:\d+)"', host.daemon.log()).group(1)
    argv = ["curl", "-s", "-X", method, "--noproxy", "*", "-w", "\n%{http_code}", "-H", "X-API-Key: " + token, url + path]
    for line in headers:
        argv += ["-H", line]
    said = subprocess.run(harness.as_user(uid, argv), capture_output=True, text=True, timeout=30, check=True).stdout
    return int(said.rpartition("\n")[2]), said.rpartition("\n")[0]


def test_a_token_is_worth_what_its_user_may(cloud):
    """The gateway goes by the same lists, at once after a reload. Groups are those of the system's tables; a token of a run has those of
    its process."""
    with contextlib.closing(Host(cloud)) as host, \
            contextlib.closing(warm(host, 0)) as root, contextlib.closing(warm(host, 61003, [7100])) as carol:
        tokens = {n: c.get("TokenService.Create", **kw)["secret"][1:-1] for n, c, kw in
                  (("root", root, {}), ("carol", carol, {}), ("run", carol, {"run": True}))}
        uids = {"root": 0, "carol": 61003, "run": 61003}
        assert all(gateway(host, uids[n], t)[0] == 200 for n, t in tokens.items())
        for lists, want in (({"allow": "root"}, {"root": 200, "run": 403, "carol": 403}),
                            ({"deny": "@students", "allow": "*"}, {"root": 200, "run": 403, "carol": 403}),
                            ({"allow": "@agents"}, {"root": 200, "run": 200, "carol": 403}), ({"deny": "root"}, {"root": 403})):
            host.reload(lists)
            for name, code in want.items():
                got = gateway(host, uids[name], tokens[name])
                assert got[0] == code, (lists, name, got)
                if code == 403:
                    assert "may not use this agentboxd" in got[1] and "[access]" in got[1]


def test_a_long_refusal_at_a_port_is_said_whole(cloud):
    """Of a request that would be relayed: it is text, not JSON."""
    name = "students-" + "x" * 50
    with contextlib.closing(Host(cloud)) as host:
        host.write("group", GROUP.replace("students", name))
        with contextlib.closing(warm(host, 61003)) as carol:
            token, box = carol.get("TokenService.Create")["secret"][1:-1], carol.get("SandboxService.Create")["id"][1:-1]
            host.reload({"deny": "@" + name})
            status, text = gateway(host, 61003, token, "/", headers=["AgentBox-Sandbox-Id: " + box, "AgentBox-Sandbox-Port: 80",
                                                                     "Agentboxd-Token: " + token])
            assert status == 403 and text.endswith(host.line("deny") + "\n") and len(text) > 160, (status, text)


def audited(host, call, **kw):
    """The lines of the audit about that call, as fields."""
    lines = [dict(re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)', x)) for x in host.daemon.log().splitlines() if " audit " in x]
    return [x for x in lines if x["call"] == '"%s"' % call and all(x[k] == v for k, v in kw.items())]


HOSTILE = ["/usr/bin/python3", "-c", "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'x\\n\"uid=0', 0, 0, 0); "
           "exec(open(sys.argv[1]).read(), {'__name__': '__main__', '__file__': sys.argv.pop(0)})"]


def test_every_change_is_one_line_of_the_audit(host):
    """Who, by which process and unit, what, about what, with which result; each of many; nothing of what is secret; reads at debug."""
    with open("/proc/self/cgroup", encoding="ascii") as f:
        units = [x for x in re.split(r"[/\n]", f.read()) if x.endswith((".service", ".scope"))]
    with contextlib.closing(Caller(host.socket, 61001, [7100])) as a, contextlib.closing(warm(host, 61003)) as c, \
            contextlib.closing(Caller(host.socket, 61002, program=HOSTILE)) as b:
        box = a.get("SandboxService.Create", request_id="req-1", metadata={"k": "hidden"}, envs={"S": "hidden"})["id"][1:-1]
        line, = audited(host, "/agentbox.v1.SandboxService/Create")
        assert (line["uid"], line["user"], line["pid"]) == ("61001", '"alice"', str(a.proc.pid))
        assert (line["result"], line["sandbox"], line["request_id"]) == ("OK", '"%s"' % box, '"req-1"')
        assert line["comm"] == '"python3"' and (not units or line["unit"] == '"%s"' % units[-1])
        for i in range(60):
            a.get("SandboxService.SetPolicy", sandbox=box, policy={"resume_on_use": bool(i % 2)})
        assert len(audited(host, "/agentbox.v1.SandboxService/SetPolicy", sandbox='"%s"' % box, result="OK")) == 60
        assert "error" in c("SandboxService.Pause", sandbox="nope")
        assert audited(host, "/agentbox.v1.SandboxService/Pause", user='"carol"')[0]["result"] == "SANDBOX_NOT_FOUND"
        b.get("SandboxService.Create")
        line, = audited(host, "/agentbox.v1.SandboxService/Create", user='"bob"')
        assert line["uid"] == "61002" and line["comm"] == '"x \\"uid=0"'
        a.get("SandboxService.Get", sandbox=box)
        assert not audited(host, "/agentbox.v1.SandboxService/Get")
        token = a.get("TokenService.Create")["secret"][1:-1]
        host.rest += "[daemon]\nlog_level = debug\n"
        host.reload({})
        a.get("SandboxService.Get", sandbox=box)
        assert len(audited(host, "/agentbox.v1.SandboxService/Get", sandbox='"%s"' % box)) == 1
        assert gateway(host, 61001, token, "/sandboxes/" + box, "DELETE")[0] == 204
        line, = audited(host, "DELETE /sandboxes/{id}", sandbox='"%s"' % box)
        assert (line["uid"], line["user"], line["result"], line["comm"]) == ("61001", '"alice"', "204", "-")
        assert gateway(host, 61001, token)[0] == 200 and audited(host, "GET /v2/sandboxes", user='"alice"')
        assert not [x for x in ("hidden", token, token[3:]) if x in host.daemon.log()]


@pytest.mark.parametrize("key,value,said", [
    ("uid nobody-here", {"max_streams": "10"}, r"\[uid nobody-here\]: there is no user \"nobody-here\" on this machine"),
    ("policy uid:nobody-here", {"on_release": "kill"}, r"there is no user \"nobody-here\""),
    ("daemon", {"socket_group": "nobodys"}, r"\[daemon\] socket_group: there is no group \"nobodys\""),
])
def test_a_name_that_nobody_has_is_an_error(cloud, key, value, said):
    d = harness.Daemon(cloud, conf={key: value}, wait=False)
    d.stop(code=78, sig=0)
    assert re.search(said, d.log())
    d.close()


def test_sections_by_name_and_for_every_user(cloud):
    """[uid NAME] and [uid *]: one's own value goes before that of all."""
    h = Host(cloud, conf={"uid *": {"max_sandboxes": "1"}, "uid alice": {"max_sandboxes": "2"}, "uid 61003": {"max_streams": "7"}})
    try:
        for uid, most in ((61001, 2), (61002, 1), (61003, 1)):
            with contextlib.closing(Caller(h.socket, uid)) as c:
                told = c.get("DaemonService.Status")["access"]
                assert told["max_sandboxes"] == str(most) and "sandboxes" not in told and told["right"] == "'user'"
                for _ in range(most):
                    c.get("SandboxService.Create")
                r = c("SandboxService.Create")
                assert r["error"][:2] == ["RESOURCE_EXHAUSTED", "QUOTA_UID"] and "limited to %d" % most in r["error"][2], r
    finally:
        h.close()


def test_who_has_ended_is_not_counted(cloud):
    """[uid *]: sandboxes that ended in an earlier run take nobody's place in this one, nor do they at a reload."""
    h = Host(cloud, conf={"uid *": {"max_sandboxes": "2"}})
    try:
        for again in (lambda: None, lambda: h.daemon.ctl("reload")):
            with contextlib.closing(Caller(h.socket, 61001)) as c:
                for _ in range(2):
                    c.get("SandboxService.Kill", sandbox=c.get("SandboxService.Create")["id"].strip("'"))
            h.restart()
            again()
            with contextlib.closing(Caller(h.socket, 61001)) as c:
                boxes = [c.get("SandboxService.Create")["id"].strip("'") for _ in range(2)]
                assert c("SandboxService.Create")["error"][:2] == ["RESOURCE_EXHAUSTED", "QUOTA_UID"]
                assert c.get("DaemonService.Status")["access"]["sandboxes"] == "2"
                for box in boxes:
                    c.get("SandboxService.Kill", sandbox=box)
                assert "sandboxes" not in c.get("DaemonService.Status")["access"]
    finally:
        h.close()


def test_status_tells_rights_and_quotas(cloud):
    """Who one is, by which rule, and how much of what one may have is used."""
    h = Host(cloud, access={"allow": "*", "admins": "root"}, conf={"uid root": {"max_sandboxes": "5", "creates_per_minute": "7"}})
    try:
        h.daemon.ctl("create")
        told = json.loads(h.daemon.ctl("status", "--json").stdout)["access"]
        assert told == {"uid": 0, "user": "root", "right": "admin", "rule": "root of " + h.line("admins"), "account": "default",
                        "sandboxes": 1, "max_sandboxes": 5, "creates_per_minute": 7, "creates_left": 6}
        text = h.daemon.ctl("status").stdout
        assert re.search(r"you +uid 0 \(root\): admin, by root of /", text) and re.search(r"yours +1 of 5 sandboxes, account default", text)
        assert "6 of 7 creates left in this minute" in text
    finally:
        h.close()


def test_one_user_has_one_section(cloud):
    d = harness.Daemon(cloud, conf={"uid root": {"max_streams": "7"}, "uid 0": {"max_streams": "8"}}, wait=False)
    d.stop(code=78, sig=0)
    assert "[uid root] and [uid 0] are the same user" in d.log()
    d.close()


def test_the_socket_is_its_groups(cloud):
    """[daemon] socket_group: mode 0660, and nobody else connects."""
    d = harness.Daemon(cloud, conf={"daemon": {"socket_group": "daemon"}}, args=["--system"])
    try:
        import grp
        st = os.stat(d.socket)
        assert st.st_mode & 0o777 == 0o660 and st.st_gid == grp.getgrnam("daemon").gr_gid
        code = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])"
        argv = ["/usr/bin/python3", "-c", code, d.socket]
        rights = ["setpriv", "--reuid", "61001", "--regid", "61001"]
        assert subprocess.run(rights + ["--groups", str(st.st_gid), "--"] + argv, stderr=subprocess.DEVNULL).returncode == 0
        assert subprocess.run(rights + ["--clear-groups", "--"] + argv, stderr=subprocess.DEVNULL).returncode != 0
        assert "access_open" not in d.log()
    finally:
        d.close()


def test_a_socket_for_everybody_is_said(cloud):
    d = harness.Daemon(cloud, args=["--system"])
    try:
        assert "access_open socket=" in d.log() and os.stat(d.socket).st_mode & 0o777 == 0o666
    finally:
        d.close()
