# SPDX-License-Identifier: MIT
"""durable_commands=yes: Start and Connect of the agent's processes go through the daemon's command room, and no client sees a difference
(GATEWAY §3). The agent's own tests are judged again with it."""
import functools
import json
import os
import subprocess

import pytest

import golden
import harness
import i_abox_local
import i_golden_agent
import i_npm_local
import i_pypi_local
import i_wire_rpc
from agentcases import CASES, Agent
from c_durable import Daemons, lines, tagged
from conftest import built
from g_relay import Through, free_port, judged_again
from harness import until
from i_wire_ports import make_box  # noqa: F401
from i_wire_rpc import messages, started  # noqa: F401
from wire import CUT, Client, RpcFailed, error_of, event_of


@pytest.fixture(scope="module", name="place")
def make_place(local_session):
    built(harness.AGENTBOXD)
    port = free_port()
    d = harness.Daemon(local_session, {"gateway": {"listen": "127.0.0.1:%d" % port, "durable_commands": "yes"},
                                       "daemon": {"restart_grace": "1s"}})
    d.wait_log(r"\bgateway listen=")
    yield d, port
    d.close()


@pytest.fixture(name="real")
def make_real(local, place):
    c = Through(local, *place)
    yield c
    c.close()


@pytest.fixture(name="server")
def make_server(real):
    return real


globals().update(judged_again(i_wire_rpc))


@pytest.fixture(scope="module")
def agent(local_session, place):
    client = Through(local_session, *place)
    box = client.create(timeout=3600, envVars={"FROM_CREATE": "1"})
    host = "%s:%d" % (client.address, client.port)
    yield Agent((client.address, client.port), box["envdAccessToken"],
                [("Host", host), ("E2b-Sandbox-Id", box["sandboxID"]), ("E2b-Sandbox-Port", "49983")])
    client.close()


def is_about_processes(case):
    with open(os.path.join(golden.ROOT, "agent", case.name + ".req"), "rb") as f:
        return f.readline().startswith(b"POST /process.")


@pytest.mark.parametrize("case", filter(is_about_processes, CASES), ids=lambda c: c.name)
def test_golden(case, agent):
    i_golden_agent.test_agent(case, agent)


# --- what is the daemon's own about it

def commands_of(d, box):
    return [json.loads(line) for line in d.ctl("--json", "ps", box["sandboxID"]).stdout.splitlines()]


def test_it_is_recorded_and_nothing_is_added(real):
    """The program, its environment and its tag are as the agent would have them; the daemon has the command in its record."""
    box = real.create(envVars={"FROM_CREATE": "1"})
    look = "env | sort; tr '\\0' ' ' </proc/$$/cmdline; echo $PPID >&2"
    ours, theirs = (c.run(box, look, envs={"A": "b c"})[1:] for c in (real, real.direct))
    assert ours == theirs and "A=b c" in str(ours) and "AGENTBOX_COMMAND" not in str(ours)
    with real.start(box, "echo kept; sleep 1000", tag="mine") as s:
        pid = started(s)
        assert event_of(s.next()) == ("stdout", b"kept\n")
        listed = [p for p in real.direct.processes(box) if p["pid"] == pid]
        assert listed[0]["tag"] == "mine" and listed[0]["config"]["args"] == ["-l", "-c", "echo kept; sleep 1000"]
        row = [c for c in commands_of(real.daemon, box) if c["pid"] == pid]
        assert len(row) == 1 and row[0].get("command_id"), row
        assert real.daemon.ctl("logs", row[0]["command_id"]).stdout == "kept\n"
    real.unary(box, "process.Process/SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})


def test_a_refusal_is_the_agents_and_without_secrets(real):
    box = real.create()
    token = box["envdAccessToken"]

    def refused(client, user):
        with client.start(box, "true", user=user) as s:
            assert s.next() is None
            return s.end["error"]
    assert refused(real, "nobody-here") == refused(real.direct, "nobody-here")
    ours, theirs = refused(real, token), refused(real.direct, token)
    assert token in theirs["message"] and token not in ours["message"] and ours["code"] == theirs["code"]


def test_connect_by_tag(real):
    box = real.create()
    with real.start(box, "read x; echo $x; exit 3", stdin=True, tag="by-tag") as s:
        pid = started(s)
        with real.stream(box, "process.Process/Connect", {"process": {"tag": "by-tag"}}) as c:
            assert started(c) == pid
            real.unary(box, "process.Process/SendInput", {"process": {"pid": pid}, "input": {"stdin": "aGkK"}})
            for one in (s, c):
                assert event_of(one.next()) == ("stdout", b"hi\n")
                kind, end = event_of(one.next())
                assert kind == "end" and end["exitCode"] == 3 and end["status"] == "exit status 3" == end["error"]


def test_nobody_is_waited_for(real):
    """Output that nobody reads does not block the program, and who comes later gets what comes from then on."""
    box = real.create()
    with real.start(box, "head -c 5000000 /dev/zero | tr '\\0' x; touch done; read line; echo $line", stdin=True) as s:
        pid = started(s)
    until(lambda: real.read(box, "/home/user/done").status == 200, 30, "its end", real.daemon)
    with real.stream(box, "process.Process/Connect", {"process": {"pid": pid}}) as s:
        assert started(s) == pid
        real.unary(box, "process.Process/SendInput", {"process": {"pid": pid}, "input": {"stdin": "aGkK"}})
        assert event_of(s.next()) == ("stdout", b"hi\n") and event_of(s.next())[0] == "end"


def test_a_pause_ends_the_stream_and_not_the_command(real):
    box = real.create()
    with real.start(box, "echo one; read line; echo $line", stdin=True) as s:
        pid = started(s)
        assert event_of(s.next()) == ("stdout", b"one\n")
        real.daemon.ctl("pause", box["sandboxID"])
        assert error_of(s) == "unavailable"
    real.daemon.ctl("resume", box["sandboxID"])
    with real.stream(box, "process.Process/Connect", {"process": {"pid": pid}}) as s:
        assert started(s) == pid
        real.unary(box, "process.Process/SendInput", {"process": {"pid": pid}, "input": {"stdin": "aGkK"}})
        assert event_of(s.next()) == ("stdout", b"hi\n") and event_of(s.next())[0] == "end"


class Cloudy:
    """A scripted cloud, and one daemon after the other on it."""

    def __init__(self, cloud):
        self.port = free_port()
        self.daemons = Daemons(cloud, {"gateway": {"listen": "127.0.0.1:%d" % self.port, "durable_commands": "yes"},
                                       "spool": {"per_command": "128K"}})
        self.cloud = cloud
        self.start()

    def start(self):
        d = self.daemons.start()
        d.wait_log(r"\bgateway listen=")
        self.gate = Through(self.cloud, d, self.port)
        self.gate.needs = lambda capability: None
        return d


@pytest.fixture
def cloudy(cloud):
    c = Cloudy(cloud)
    yield c
    c.daemons.close()


def test_a_cut_that_nobody_saw(cloudy, cloud):
    """While no client is attached the daemon attaches again; a client that comes later sees nothing of it."""
    first, second = cloud.gate(), cloud.gate()
    cloud.script("ticker", [("stdout", b"one\n"), ("gate", first), ("stdout", b"two\n"), ("gate", second), ("stdout", b"three\n")])
    box = cloudy.gate.create()
    with cloudy.gate.start(box, "ticker") as s:
        pid = started(s)
        assert event_of(s.next()) == ("stdout", b"one\n")
    cloud.cut_all()
    cloud.ledger.wait_requests("process.Connect")
    first.release()
    row = until(lambda: commands_of(cloudy.daemons.d, box), 20, "the command", cloudy.daemons.d)[0]
    until(lambda: "two" in cloudy.daemons.d.ctl("logs", row["command_id"]).stdout, 20, "its output", cloudy.daemons.d)
    with cloudy.gate.stream(box, "process.Process/Connect", {"process": {"pid": pid}}) as s:
        assert started(s) == pid
        second.release()
        assert event_of(s.next()) == ("stdout", b"three\n")
        assert event_of(s.next())[0] == "end"
    assert len([r for r in cloud.ledger.requests if r.route == "process.Connect"]) == 1


def test_a_cut_that_may_have_lost_output(cloudy, cloud):
    """What the program said in between is not known: the stream ends, as one that the connection was lost of."""
    gate = cloud.gate()
    cloud.script("ticker", [("stdout", b"one\n"), ("gate", gate), ("stdout", b"two\n")])
    box = cloudy.gate.create()
    with cloudy.gate.start(box, "ticker") as s:
        started(s)
        assert event_of(s.next()) == ("stdout", b"one\n")
        cloud.cut_all()
        assert error_of(s) == "unavailable"
    gate.release()


def test_a_goaway_is_not_seen(cloudy, cloud):
    gate = cloud.gate()
    cloud.script("ticker", [("stdout", b"one\n"), ("gate", gate), ("stdout", b"two\n")])
    box = cloudy.gate.create()
    with cloudy.gate.start(box, "ticker") as s:
        started(s)
        assert event_of(s.next()) == ("stdout", b"one\n")
        cloud.goaway()
        gate.release()
        assert event_of(s.next()) == ("stdout", b"two\n")
        assert event_of(s.next())[0] == "end"


def test_a_start_that_was_not_processed_is_sent_again(cloudy, cloud):
    box = cloudy.gate.create()
    cloud.script("ticker", [("stdout", b"one\n")])
    cloud.fault("process.Start", reset=7)        # REFUSED_STREAM
    with cloudy.gate.start(box, "ticker") as s:
        started(s)
        assert event_of(s.next()) == ("stdout", b"one\n")
        assert event_of(s.next())[0] == "end"
    assert len([p for p in cloud.starts if "ticker" in str(vars(p))]) == 1


def test_over_a_restart(cloudy, cloud):
    """The daemon is killed: nothing is killed in the sandbox, and the next daemon finds the process by its pid."""
    gate = cloud.gate()
    cloud.script("ticker", [("stdout", b"one\n"), ("gate", gate), ("stdout", b"two\n")])
    box = cloudy.gate.create()
    with cloudy.gate.start(box, "ticker", tag="mine") as s:
        pid = started(s)
        assert event_of(s.next()) == ("stdout", b"one\n")
        cloudy.daemons.kill()
        with pytest.raises(CUT):
            while s.next() is not None:
                pass
    cloudy.start()
    cloud.ledger.wait_requests("process.Connect")
    with cloudy.gate.stream(box, "process.Process/Connect", {"process": {"pid": pid}}) as s:
        assert started(s) == pid
        gate.release()
        assert event_of(s.next()) == ("stdout", b"two\n")
        assert event_of(s.next())[0] == "end"
    assert len(cloud.starts) == 1 and not [r for r in cloud.ledger.requests if r.route == "process.SendSignal"]


# --- the SDKs

PYTHON = ("run", "background", "connect", "pause_and_resume", "local_pause_keeps_processes")
NODE = ("run", "run_fails", "run_streams", "run_unicode", "run_much_output", "run_timeout", "background", "background_wait", "stdin",
        "attach", "parallel_commands", "killed_while_running", "local_pause_keeps_processes")
ABOX = [c for c in i_abox_local.CHECKS if c.startswith(("commands_", "handle_", "pty_"))]


class Gate:
    """The gateway as the SDKs' modules take a cloud."""
    ca = None

    def __init__(self, d, port):
        self.plain_url = "http://127.0.0.1:%d" % port
        self.key = "e2b_" + d.ctl("token", "create").stdout.strip().split("_", 1)[1]


@pytest.fixture(scope="module")
def gate(place):
    return Gate(*place)


@pytest.mark.parametrize("check", NODE)
def test_npm(check, gate):
    i_npm_local.judge(check, gate)


@pytest.mark.parametrize("check", PYTHON)
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_pypi(mode, check, gate):
    i_pypi_local.judge(mode, check, gate, PYTHON)


class SdkClient:
    """A process with the SDK and one command in it (npm/durable.mjs, pypi/durable.py)."""

    def __init__(self, sdk, gate, *words):
        env = {k: v for k, v in os.environ.items() if not k.startswith("E2B_") and not k.lower().endswith("_proxy")}
        env.update({"E2B_API_KEY": gate.key, "E2B_API_URL": gate.plain_url, "E2B_SANDBOX_URL": gate.plain_url})
        folder, argv = i_npm_local.NPM, ["node", "durable.mjs"]
        if sdk == "pypi":
            folder, argv = i_pypi_local.PYPI, ["/usr/bin/python3", "durable.py"]
            env.update({"PYTHONPATH": os.path.join(folder, "site"), "PYTHONDONTWRITEBYTECODE": "1"})
        self.proc = subprocess.Popen(argv + list(words), cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True)

    def hears(self):
        line = self.proc.stdout.readline()
        try:
            return json.loads(line)
        except ValueError:
            self.close()
            pytest.fail(line + self.proc.stdout.read())

    def sends(self, line):
        self.proc.stdin.write(line + "\n")
        self.proc.stdin.flush()

    def close(self):
        self.proc.kill()
        self.proc.wait()


@pytest.mark.parametrize("sdk", ["npm", "pypi"])
def test_an_sdks_command_outlives_its_client_and_the_daemon(sdk, local):
    """A client starts a command in the background and is killed; another one connects to its pid, and gets its output; the daemon is
    killed and started again, and a third one gets the rest, and the exit code."""
    missing = {"npm": i_npm_local.MISSING, "pypi": i_pypi_local.MISSING}[sdk]
    if missing:
        pytest.skip(missing)
    c, clients = Cloudy(local), []

    def client(*words):
        clients.append(SdkClient(sdk, gate, *words))
        return clients[-1]
    try:
        gate, box = Gate(c.daemons.d, c.port), c.gate.create()
        first = client("start", box["sandboxID"], "while read line; do echo got $line; [ $line != end ] || exit 7; done")
        pid = first.hears()["pid"]
        first.sends("one")
        assert first.hears() == {"out": "got one\n"}
        first.close()

        second = client("connect", box["sandboxID"], str(pid))
        assert second.hears() == {"pid": pid}
        second.sends("two")
        assert second.hears() == {"out": "got two\n"}
        c.daemons.kill()
        assert "error" in second.hears()

        c.start()
        third = client("connect", box["sandboxID"], str(pid))
        assert third.hears() == {"pid": pid}
        third.sends("three")
        assert third.hears() == {"out": "got three\n"}
        third.sends("end")
        assert third.hears() == {"out": "got end\n"}
        assert third.hears() == {"end": 7}
        row, = [json.loads(line) for line in c.daemons.d.ctl("--json", "ps", "--all", box["sandboxID"]).stdout.splitlines()]
        assert row["pid"] == pid and row["result"]["exit_code"] == 7, row
        assert c.daemons.d.ctl("logs", row["command_id"]).stdout == "got one\ngot two\ngot three\ngot end\n"
    finally:
        for one in clients:
            one.close()
        c.gate.close()
        c.daemons.close()


@functools.lru_cache(maxsize=None)
def abox(mode, url, key):
    return i_abox_local.run(mode, ABOX, AGENTBOX_API_KEY=key, AGENTBOX_API_URL=url, AGENTBOX_SANDBOX_URL=url)


@pytest.mark.parametrize("check", ABOX)
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_abox(mode, check, gate):
    if i_abox_local.MISSING:
        pytest.skip(i_abox_local.MISSING)
    wrong = abox(mode, gate.plain_url, "ab_" + gate.key[4:])[check]
    assert not wrong, wrong
