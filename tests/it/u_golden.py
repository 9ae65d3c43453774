# SPDX-License-Identifier: MIT
"""The daemon reads the recorded answers (tests/golden): of the specification for every call that it makes to the control plane, of the
real agent, binary, for every call that it makes to a sandbox. The scripted cloud plays them."""
import json
import re

import pytest

import agentcases
import fixed
import golden
from agentcases import Agent, split_envelopes
from api import Api, ApiError, plain
from conftest import built
from fakecloud import FakeCloud
from fakecloud.codec import Messages
from harness import AGENTBOXD, Daemon
from s_surface import connect, create, delete, fork, get, kill, metrics, pause, snapshot, snapshots  # noqa: F401

RUNNING = 2
SPEC = [r["file"] for r in golden.index() if r["file"].startswith("spec/")]


def answers(*names):
    """Files of these answers, both flavours, all forms."""
    found = [f for f in SPEC if re.fullmatch(r"spec/(agentbox-)?(%s)(\.(min|full|null))?\.res" % "|".join(map(re.escape, names)), f)]
    assert found, names
    return pytest.mark.parametrize("file", found, ids=lambda f: f[5:-4])


def play(cloud, route, file, **kw):
    """The next request of this route gets the recorded answer, and has its effect nevertheless where `when` says so."""
    m = golden.read(file)
    kind = m.header("content-type") or "application/json"
    head = [(k, v) for k, v in m.headers if k.lower() not in (
        "content-type", "content-length", "transfer-encoding", "connection", "date")]
    cloud.fault(route, status=m.status, body=m.body, headers=head, content_type=kind, **kw)
    return json.loads(m.body) if kind.startswith("application/json") and m.body else m


def check_sandbox(got, want):
    assert got.id == want["sandboxID"] and got.template_id == want["templateID"]
    assert got.envd_version == want["envdVersion"]
    for k in ("alias", "domain"):
        assert not want.get(k) or getattr(got, k) == want[k]


@pytest.fixture
def cloud(cloud):
    """Its clock is that of the recorded answers."""
    cloud.advance(fixed.UNIX + 60 - cloud.now())
    return cloud


def made(cloud, api, flavour=""):
    """A sandbox that the cloud goes on to describe by the recorded answers."""
    play(cloud, "create", "spec/%screate.201.full.res" % flavour)
    play(cloud, "get", "spec/%sget.200.full.res" % flavour, times=None)
    return create(api).id


def flavour_of(file):
    return "agentbox-" if "/agentbox-" in file else ""


# -- control plane

@answers("create.201")
def test_create(cloud, api, file):
    play(cloud, "get", "spec/%sget.200.full.res" % flavour_of(file), times=None)
    want = play(cloud, "create", file)
    got = create(api)
    check_sandbox(got, want)
    assert got.state == RUNNING


@answers("get.200")
def test_get(cloud, api, file):
    """Every member of a sandbox's description that the API has."""
    made(cloud, api, flavour_of(file))
    cloud.clear_faults()
    want = play(cloud, "get", file, times=None)
    got = get(api, fixed.SANDBOX)
    check_sandbox(got, want)
    assert got.state == RUNNING
    assert (got.cpu_count, got.memory_mb, got.disk_size_mb) == (want["cpuCount"], want["memoryMB"], want["diskSizeMB"])
    assert (got.started_at.seconds, got.started_at.nanos) == (fixed.UNIX, 123000000)
    assert got.end_at.seconds == fixed.UNIX + 300
    assert plain(got.metadata) == want.get("metadata", {})
    network = want.get("network") or {}
    assert list(got.network.allow_out) == network.get("allowOut", []) and list(got.network.deny_out) == network.get("denyOut", [])
    if "rules" in network:
        (host, rules), = network["rules"].items()
        assert plain(got.network.rules[host].rules[0].transform_headers) == rules[0]["transform"]["headers"]
    if want.get("lifecycle"):
        assert got.lifecycle.auto_resume == want["lifecycle"]["autoResume"]


@answers("list.200")
def test_list(cloud, api, file):
    """Of a page that says that there is another one, too."""
    want = play(cloud, "list", file)
    play(cloud, "list", "spec/list.200.min.res", times=None)
    row, = api.call("SandboxService.List", all_hosts=True).sandboxes
    check_sandbox(row, want[0])


@answers("connect.200", "connect.201")
def test_connect(cloud, api, file):
    made(cloud, api, flavour_of(file))
    want = play(cloud, "connect", file)
    check_sandbox(connect(api, fixed.SANDBOX), want)
    assert cloud.ledger.count("connect") == 1


@answers("fork.201")
def test_fork(cloud, api, file):
    """One that was made, and one that was not."""
    b = create(api).id
    play(cloud, "get", "spec/%sget.200.full.res" % flavour_of(file), times=None)
    want = play(cloud, "fork", file)
    first, second = fork(api, b, count=2)
    check_sandbox(first.sandbox, want[0]["sandbox"])
    assert second.WhichOneof("result") == "error" and second.error.code == 8       # RESOURCE_EXHAUSTED


@answers("snapshot.201")
def test_snapshot(cloud, api, file):
    b = create(api).id
    want = play(cloud, "snapshot", file)
    got = snapshot(api, b)
    assert got.id == want["snapshotID"] and list(got.names) == want["names"]


@answers("snapshots.200")
def test_snapshots(cloud, api, file):
    b = create(api).id
    want = play(cloud, "snapshots", file)
    got = snapshots(api, sandbox=b).snapshots
    assert [s.id for s in got] == [w["snapshotID"] for w in want]


@answers("metrics.200")
def test_metrics(cloud, api, file):
    """AgentBox's rows have no `timestamp`, only the seconds."""
    b = create(api).id
    want, = play(cloud, "metrics", file)
    row, = metrics(api, b).metrics
    assert (row.mem_used, row.mem_total, row.mem_cache, row.disk_used, row.disk_total) == tuple(
        want[k] for k in ("memUsed", "memTotal", "memCache", "diskUsed", "diskTotal"))
    assert row.at.seconds == fixed.UNIX and (row.cpu_count, row.cpu_used_pct) == (want["cpuCount"], want["cpuUsedPct"])


@pytest.mark.parametrize("route,file,call", [
    ("pause", "spec/pause.204.res", lambda api, b: pause(api, b)),
    ("delete", "spec/delete.204.res", lambda api, b: kill(api, b)),
    ("timeout", "spec/timeout.204.res", lambda api, b: api.call("SandboxService.SetTimeout", sandbox=b, sandbox_timeout=600)),
    ("network", "spec/network.204.res", lambda api, b: api.call("SandboxService.UpdateNetwork", sandbox=b, network={"deny_out": ["9.9.9.9"]})),
])
def test_empty_answer(cloud, api, route, file, call):
    b = create(api).id
    play(cloud, route, file, when="after")
    assert call(api, b) is not False


# What a caller hears of each refusal, on a route that may be repeated, and on one that may not.
REFUSALS = {400: "CLOUD_REFUSED", 401: "KEY_REJECTED", 403: "CLOUD_FORBIDDEN", 404: "SANDBOX_", 409: "STATE_CHANGING",
            410: "CLOUD_REFUSED", 429: "CONCURRENCY_LIMIT", 500: "BAD_CLOUD_REPLY", 502: "UNREACHABLE", 503: "UNREACHABLE",
            504: "UNREACHABLE"}


@answers(*["error.%d" % s for s in sorted(REFUSALS)])
@pytest.mark.parametrize("route", ["connect", "timeout"])
def test_refusal(cloud, api, file, route):
    """The reason that the status has, and the cloud's own text."""
    b = create(api).id
    want = play(cloud, route, file, times=None)
    if want["code"] == 404:
        play(cloud, "get", file, times=None)        # one word of it is not enough
    with pytest.raises(ApiError) as e:
        api.call("SandboxService.ConnectSandbox", sandbox=b, timeout=4) if route == "connect" else \
            api.call("SandboxService.SetTimeout", sandbox=b, sandbox_timeout=600, timeout=4)
    assert e.value.reason.startswith(REFUSALS[want["code"]]), e.value
    assert e.value.metadata.get("upstream_status") == str(want["code"]) or want["code"] in (401, 404), e.value


# -- the agent

@pytest.fixture(scope="module", autouse=True)
def messages():
    Agent.messages = Agent.messages or Messages()
    return Agent.messages


@pytest.fixture(scope="module")
def shared():
    """One cloud and one daemon for all answers of agents: (cloud, api)."""
    built(AGENTBOXD)
    with FakeCloud() as one_cloud:
        one_daemon = Daemon(one_cloud)
        with Api(one_daemon.socket) as one_api:
            yield one_cloud, one_api
        one_daemon.close()
        assert not one_cloud.errors, one_cloud.errors[0]


@pytest.fixture
def on(shared):
    """The same, with a sandbox of the test's own: (cloud, api, its id)."""
    one_cloud, one_api = shared
    b = create(one_api).id
    yield one_cloud, one_api, b
    one_cloud.clear_faults()
    kill(one_api, b)


def of_agent(*prefixes):
    names = [r["file"] for r in golden.index(source="agent") if r["file"].startswith(tuple("agent/" + p for p in prefixes))]
    return pytest.mark.parametrize("file", [n for n in names if ".json." not in n], ids=lambda f: f[6:-4])


def decoded(file):
    """(messages of a stream or the one message, error or None) of a binary answer."""
    m, request = golden.read(file), golden.read(file.replace(".res", ".req"))
    cls = Agent.messages[agentcases.message_class(request.target, True)]
    if (m.header("content-type") or "").startswith("application/connect+"):
        parts = split_envelopes(m.body)
        last = json.loads(parts[-1][1]) if parts and parts[-1][0] & 2 else {}
        return [cls.FromString(p) for flags, p in parts if not flags], last.get("error")
    if m.status != 200:
        return [], json.loads(m.body)
    return [cls.FromString(m.body)], None


# What a caller hears, by the agent's code.
CODES = {"not_found": "FILE_NOT_FOUND PROCESS_NOT_FOUND", "already_exists": "", "invalid_argument": "NOT_A_DIRECTORY FIELD_INVALID CLOUD_REFUSED",
         "internal": "BAD_CLOUD_REPLY CLOUD_REFUSED IS_A_DIRECTORY NOT_A_DIRECTORY UNSUPPORTED FIELD_INVALID",
         "failed_precondition": "CLOUD_REFUSED FIELD_INVALID"}


def heard(e, error):
    assert e.reason in CODES[error["code"]].split(), (e, error)


def check_entry(got, want):
    assert (got.name, got.path, got.type, got.size, got.mode, got.permissions, got.owner, got.group) == (
        want.name, want.path, want.type, want.size, want.mode, want.permissions, want.owner, want.group)
    assert (got.modified_at.seconds, got.modified_at.nanos) == (want.modified_time.seconds, want.modified_time.nanos)
    assert got.symlink_target == want.symlink_target and plain(got.metadata) == dict(want.metadata)


CALLS = {"Stat": ("Stat", {"path": "x"}), "MakeDir": ("MakeDir", {"path": "x"}), "Remove": ("Remove", {"path": "x"}),
         "Move": ("Move", {"source": "x", "destination": "y"})}


@of_agent("stat-", "mkdir", "move", "remove")
def test_file_call(on, file):
    """Stat, MakeDir, Move and Remove: every entry and every refusal of the real agent."""
    rpc = golden.read(file.replace(".res", ".req")).target.split("/")[-1]
    method, fields = CALLS[rpc]
    cloud, api, b = on
    play(cloud, "filesystem." + rpc, file, times=None)
    (answer,), error = decoded(file) if not decoded(file)[1] else ((None,), decoded(file)[1])
    if error and error["code"] == "already_exists":
        assert api.call("FileService." + method, sandbox=b, **fields).created is False
    elif error:
        with pytest.raises(ApiError) as e:
            api.call("FileService." + method, sandbox=b, timeout=8, **fields)
        heard(e.value, error)
    else:
        got = api.call("FileService." + method, sandbox=b, **fields)
        if rpc in ("Stat", "Move"):
            check_entry(got, answer.entry)
        elif rpc == "MakeDir":
            check_entry(got.entry, answer.entry)


@of_agent("list")
def test_list_dir(on, file):
    cloud, api, b = on
    play(cloud, "filesystem.ListDir", file, times=None)
    got, error = decoded(file)
    stream = api.stream("FileService.List", sandbox=b, path="x", timeout=8)
    if error:
        with pytest.raises(ApiError) as e:
            list(stream)
        heard(e.value, error)
        return
    rows = list(stream)
    assert len(rows) == len(got[0].entries)
    for row, want in zip(rows, got[0].entries):
        check_entry(row, want)


@of_agent("watch-")
def test_watch(on, file):
    """What happened in the folder, in the agent's order."""
    cloud, api, b = on
    play(cloud, "filesystem.WatchDir", file)
    got, error = decoded(file)
    want = [(m.filesystem.name, m.filesystem.type) for m in got if m.WhichOneof("event") == "filesystem"]
    with api.stream("FileService.Watch", sandbox=b, path="x", recursive=True, timeout=8) as s:
        if not got:
            with pytest.raises(ApiError) as e:
                next(s)
            heard(e.value, error)
            return
        assert next(s).WhichOneof("event") == "ready"
        seen = []
        while len(seen) < len(want):
            event = next(s)
            if event.WhichOneof("event") == "change":
                seen.append((event.change.name, event.change.type))
    assert seen == want


EXITED, SIGNALED = 1, 2


@of_agent("run", "stream-unknown-user")
def test_run(on, file):
    """A command's whole stream: output byte by byte, and how it ended."""
    cloud, api, b = on
    play(cloud, "process.Start", file)
    got, error = decoded(file)
    out = {1: b"", 2: b"", 3: b""}
    result = None
    try:
        for e in api.stream("CommandService.Run", sandbox=b, shell="x", timeout=12):
            kind = e.WhichOneof("event")
            if kind == "output":
                out[e.output.stream] += e.output.data
            elif kind == "exited":
                result = e.exited
    except ApiError as e:
        assert error, e
        return
    want = {1: b"", 2: b"", 3: b""}
    end = None
    for m in got:
        which = m.event.WhichOneof("event")
        if which == "data":
            kind = m.event.data.WhichOneof("output")
            want[{"stdout": 1, "stderr": 2, "pty": 3}[kind]] += getattr(m.event.data, kind)
        elif which == "end":
            end = m.event.end
    assert out == want
    if end is not None and end.exited:
        assert (result.outcome, result.exit_code) == (EXITED, end.exit_code)
    elif end is not None:
        assert result.outcome == SIGNALED and result.signal in ("KILL", "TERM")
    else:
        assert result.outcome not in (EXITED, SIGNALED), result


READS = {"get-text": b"hello world\n", "get-no-encoding": b"hello world\n", "get-star": b"hello world\n", "get-empty": b"",
         "get-binary": bytes(range(256)), "get-html": b"<p>x</p>", "get-gzip": b"hello world\n", "get-unseekable-gzip": b"envd\n",
         "get-zero-length-gzip": b"Linux\n", "get-unseekable": b"envd\n", "get-zero-length": b"Linux\n"}
# What is not read well yet, by its row; who mends it takes it out.
def put(cloud, b, data):
    """The scripted cloud's own file, so that it has the length that Stat tells."""
    with open(cloud.files(b) + "/home/user/x", "wb") as f:
        f.write(data)


def wants_plain(seen):
    return seen.route == "envd.files" and "gzip" not in (seen.header("accept-encoding") or "")


@pytest.mark.parametrize("name", sorted(READS))
def test_read(on, name):
    """B-3: what a file holds, however the agent sends it."""
    cloud, api, b = on
    put(cloud, b, b"" if "length" in name or "unseekable" in name else READS[name])
    if name in ("get-unseekable", "get-zero-length"):       # the real agent: an error, or nothing, to who takes it plain only
        play(cloud, wants_plain, "agent/%s-identity.res" % name, times=None)
        name_played = name + "-gzip"
    else:
        name_played = name
    play(cloud, "envd.files", "agent/%s.res" % name_played, times=None)
    try:
        parts = list(api.stream("FileService.Read", sandbox=b, path="x", timeout=8))
        got = b"".join(p.data for p in parts if p.WhichOneof("part") == "data")
    except ApiError as e:
        got = e
    assert got == READS[name]


@pytest.mark.parametrize("name,reason", [("get-missing", "FILE_NOT_FOUND"), ("get-directory", "IS_A_DIRECTORY"),
                                         ("get-below-file", "NOT_A_DIRECTORY"), ("get-long-name", "CLOUD_REFUSED")])
def test_read_refused(on, name, reason):
    cloud, api, b = on
    put(cloud, b, b"hello world\n")
    play(cloud, "envd.files", "agent/%s.res" % name, times=None)
    with pytest.raises(ApiError) as e:
        list(api.stream("FileService.Read", sandbox=b, path="x", timeout=8))
    assert e.value.reason == reason, e.value
