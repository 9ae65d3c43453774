# SPDX-License-Identifier: MIT
"""grpcio drives agentboxd on agentbox-local: every built method, with nothing of ours but what reflection tells."""
import os
import re
import time

import grpc
import pytest

from api import Api, ApiError, plain

METHODS = {
    "SandboxService": {"Create", "ConnectSandbox", "Get", "List", "IsRunning", "Kill", "SetTimeout", "GetHost",
                       "SetPolicy", "Watch", "Pause", "Fork", "UpdateNetwork", "GetMetrics"},
    "CommandService": {"Start", "Run", "Attach", "Wait", "List", "SendInput", "CloseInput", "Signal", "Kill",
                       "Resize"},
    "FileService": {"Read", "Write", "Stat", "Exists", "List", "MakeDir", "Move", "Remove", "Watch", "SignUrl"},
    "SnapshotService": {"Create", "List", "Delete"},
    "TemplateService": {"List"},
    "LeaseService": {"Hold", "Acquire", "Renew", "Release", "List"},
    "DaemonService": {"Status", "Config", "Reload", "Quiesce", "Backup", "StopLocal"},
    "TokenService": {"Create", "List", "Revoke", "Gateway"},
    "WarmService": {"List", "Set", "Retry"},
}
RUNNING, GONE = 2, 8
EXITED, SIGNALED = 1, 2


@pytest.fixture
def api(local_api):
    return local_api


@pytest.fixture
def box(api):
    b = api.call("SandboxService.Create", template="base", sandbox_timeout=120)
    yield b.id
    api.call("SandboxService.Kill", sandbox=b.id)

# Names of methods that generated clients have already, in snake_case: tonic's, then those of the channel and stub classes of
# grpc-js, grpc-java, grpc-dotnet and grpc++.
TAKEN = {
    "new", "connect", "with_origin", "with_interceptor", "send_compressed", "accept_compressed", "max_decoding_message_size",
    "max_encoding_message_size",
    "close", "get_channel", "wait_for_ready", "make_unary_request", "make_client_stream_request", "make_server_stream_request",
    "make_bidi_stream_request", "constructor", "to_string", "value_of",
    "build", "get_call_options", "with_deadline", "with_executor", "with_interceptors", "with_option", "with_wait_for_ready", "get_class",
    "notify", "notify_all", "hash_code", "equals", "clone", "finalize",
    "with_host", "new_instance", "get_hash_code", "get_type",
    "stub", "new_stub", "async", "experimental_async",
}


def fails(code, reason, call, *args, **kw):
    with pytest.raises(ApiError) as e:
        out = call(*args, **kw)
        if hasattr(out, "__next__"):
            for _ in out:
                pass
    assert (e.value.code, e.value.reason) == (code, reason), e.value
    assert e.value.domain == "agentbox"
    return e.value


# -- reflection and health

def test_d_1_no_method_has_a_name_that_generated_clients_use(daemon_on_local):
    """D-1"""
    with Api(daemon_on_local.socket) as api:
        names = {s + "." + m.name: re.sub("(?<!^)(?=[A-Z])", "_", m.name).lower()
                 for s in api.services() if s.startswith("agentbox.") for m in api.service(s.split(".")[-1]).methods}
    assert len(names) > 30
    assert [n for n, snake in names.items() if snake in TAKEN] == []


@pytest.mark.parametrize("version", ["grpc.reflection.v1", "grpc.reflection.v1alpha"])
def test_reflection(daemon_on_local, version):
    with Api(daemon_on_local.socket, reflection=version) as api:
        services = api.services()
        assert {"agentbox.v1." + s for s in METHODS} <= set(services)
        assert {"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"} <= set(services)
        for service, methods in METHODS.items():
            assert methods <= {m.name for m in api.service(service).methods}
        secure = api.message("CreateSandboxRequest").DESCRIPTOR.fields_by_name["secure"]
        assert secure.has_presence, "the original descriptors say `optional`"


def test_health(api):
    service = api.service("grpc.health.v1.Health")
    request = api.factory.GetPrototype(service.methods_by_name["Check"].input_type)
    reply = api.factory.GetPrototype(service.methods_by_name["Check"].output_type)
    for name in ("", "agentbox.v1.SandboxService"):
        data = api.raw("/grpc.health.v1.Health/Check", request(service=name).SerializeToString())
        assert reply.FromString(data).status == 1, name
    with pytest.raises(ApiError) as e:
        api.raw("/grpc.health.v1.Health/Check", request(service="no.such").SerializeToString())
    assert e.value.code == "NOT_FOUND"


# Not among them: what changes the daemon itself, of which the .proto says more than is built.
@pytest.mark.parametrize("service", sorted(set(METHODS) - {"DaemonService"}))
def test_every_method_is_built(api, service):
    for m in api.service(service).methods:
        if m.name in ("Hold", "Watch"):
            continue    # they would wait
        try:
            api.raw("/agentbox.v1.%s/%s" % (service, m.name), b"")
        except ApiError as e:
            assert e.code != "UNIMPLEMENTED", m.name


def test_unknown_method(api):
    with pytest.raises(ApiError) as e:
        api.raw("/agentbox.v1.SandboxService/Nope", b"")
    assert e.value.code == "UNIMPLEMENTED"


# -- sandboxes

def test_create_get_list_kill(api):
    made = api.call("SandboxService.Create", template="base", metadata={"job": "42"}, sandbox_timeout=90,
                    envs={"A": "1"})
    assert made.id.startswith("i") and made.state == RUNNING and plain(made.metadata) == {"job": "42"}
    assert 80 < made.end_at.seconds - made.started_at.seconds <= 91
    assert made.owner_uid == os.getuid() and made.envd_version and made.cpu_count >= 1
    assert made.freshness.source and made.freshness.as_of.seconds
    got = api.call("SandboxService.Get", sandbox=made.id)
    assert got.id == made.id and got.template_id == made.template_id
    fresh = api.call("SandboxService.Get", sandbox=made.id, max_staleness=0)
    assert fresh.freshness.source == 1
    assert made.id in [s.id for s in api.call("SandboxService.List").sandboxes]
    assert [s.id for s in api.call("SandboxService.List", metadata={"job": "42"}, cached=True).sandboxes] == [made.id]
    assert api.call("SandboxService.IsRunning", sandbox=made.id).running
    assert api.call("SandboxService.Kill", sandbox=made.id).found
    assert not api.call("SandboxService.Kill", sandbox=made.id).found
    assert not api.call("SandboxService.IsRunning", sandbox=made.id).running
    assert made.id not in [s.id for s in api.call("SandboxService.List").sandboxes]


def test_set_timeout_and_connect(api, box):
    b = api.call("SandboxService.SetTimeout", sandbox=box, sandbox_timeout=1000)
    assert 990 < b.end_at.seconds - time.time() < 1010
    b = api.call("SandboxService.ConnectSandbox", sandbox=box, sandbox_timeout=10)
    assert 980 < b.end_at.seconds - time.time() < 1010, "connecting never shortens"
    b = api.call("SandboxService.SetTimeout", sandbox=box, sandbox_timeout=60)
    assert b.end_at.seconds - time.time() < 61


def test_get_host(api, box):
    h = api.call("SandboxService.GetHost", sandbox=box, port=3000)
    assert h.host.startswith("3000-%s." % box) and not h.traffic_access_token and h.url.endswith(h.host)


def test_names(api):
    one = api.call("SandboxService.Create", name="it-box")
    try:
        assert api.call("SandboxService.Create", name="it-box").id == one.id
        assert api.call("SandboxService.Get", sandbox="it-box").id == one.id
        fails("ALREADY_EXISTS", "NAME_EXISTS", api.call, "SandboxService.Create", name="it-box", must_create=True)
    finally:
        api.call("SandboxService.Kill", sandbox="it-box")


def test_request_ids(api):
    one = api.call("SandboxService.Create", request_id="r-1", metadata={"a": "b"})
    again = api.call("SandboxService.Create", request_id="r-1", metadata={"a": "b"})
    assert again.id == one.id
    fails("ALREADY_EXISTS", "REQUEST_ID_REUSED", api.call, "SandboxService.Create", request_id="r-1",
          metadata={"a": "c"})
    api.call("SandboxService.Kill", sandbox=one.id)
    gone = api.call("SandboxService.Create", request_id="r-1", metadata={"a": "b"})
    assert gone.id == one.id and gone.state == GONE, "a request id never makes a second one"


def test_list_pages(api):
    made = [api.call("SandboxService.Create", metadata={"page": "x"}).id for _ in range(3)]
    try:
        got, token = [], ""
        while True:
            r = api.call("SandboxService.List", metadata={"page": "x"}, page_size=1, page_token=token, cached=True)
            got += [s.id for s in r.sandboxes]
            token = r.next_page_token
            if not token:
                break
        assert got == made[::-1]
    finally:
        for m in made:
            api.call("SandboxService.Kill", sandbox=m)


# -- commands

def test_run(api, box):
    result, out, err = api.run(box, "echo out; echo err >&2; exit 7")
    assert (out, err) == (b"out\n", b"err\n")
    assert result.outcome == EXITED and result.exit_code == 7 and result.output_complete
    assert result.stdout_bytes == 4 and result.stderr_bytes == 4
    result, out, err = api.run(box, argv=["/bin/echo", "-n", "a b", "$HOME"])
    assert out == b"a b $HOME" and result.HasField("exit_code") and result.exit_code == 0


def test_run_events(api, box):
    kinds = [e.WhichOneof("event") for e in api.stream("CommandService.Run", sandbox=box, shell="echo x")]
    assert kinds[0] == "started" and kinds[-1] == "exited" and kinds[1] == "output"


def test_run_environment(api, box):
    assert api.run(box, 'echo "$K"; pwd', envs={"K": "v"}, cwd="/tmp")[1] == b"v\n/tmp\n"
    assert api.run(box, "id -un", user="root")[1] == b"root\n"


def test_signal_death(api, box):
    result, _, _ = api.run(box, argv=["/bin/sh", "-c", "kill -9 $$"])
    assert result.outcome == SIGNALED and not result.HasField("exit_code") and "KILL" in result.signal.upper()


def test_command_timeout(api, box):
    begin = time.monotonic()
    result, _, _ = api.run(box, "sleep 60", command_timeout=1, kill_grace=0)
    assert result.timed_out and 0.8 < time.monotonic() - begin < 15


def test_binary_output(api, box):
    result, out, _ = api.run(box, "head -c 1000000 /dev/urandom | tee copy", timeout=60)
    assert len(out) == 1000000 == result.stdout_bytes
    assert api.read_file(box, "copy") == out


def test_start_attach_wait(api, box):
    c = api.call("CommandService.Start", sandbox=box, shell="echo early; sleep 0.5; echo late; exit 3")
    assert c.command_id and c.pid > 0 and c.running
    events = list(api.stream("CommandService.Attach", command={"command_id": c.command_id}))
    assert b"".join(e.output.data for e in events if e.WhichOneof("event") == "output") == b"early\nlate\n"
    assert events[-1].exited.exit_code == 3
    assert api.call("CommandService.Wait", command={"command_id": c.command_id}).exit_code == 3


def test_attach_from_offset(api, box):
    c = api.call("CommandService.Start", sandbox=box, shell="printf 0123456789")
    api.call("CommandService.Wait", command={"command_id": c.command_id})
    events = list(api.stream("CommandService.Attach", command={"command_id": c.command_id}, stdout_offset=4))
    out = [e.output for e in events if e.WhichOneof("event") == "output"]
    assert out[0].offset == 4 and b"".join(o.data for o in out) == b"456789"


def test_list_commands(api, box):
    c = api.call("CommandService.Start", sandbox=box, shell="sleep 60")
    mine = [x for x in api.call("CommandService.List", sandbox=box).commands if x.command_id == c.command_id]
    assert mine and mine[0].pid == c.pid and mine[0].running and mine[0].shell == "sleep 60"
    killed = api.call("CommandService.Kill", command={"command_id": c.command_id})
    assert killed.found and not killed.survivors
    result = api.call("CommandService.Wait", command={"command_id": c.command_id})
    assert result.killed
    assert not [x for x in api.call("CommandService.List", sandbox=box).commands
                if x.command_id == c.command_id and x.running]


def test_kill_reaches_the_whole_group(api, box):
    c = api.call("CommandService.Start", sandbox=box, shell="sleep 7777 & (trap '' TERM; sleep 7778) & wait",
                 kill_grace=0.5)
    api.run(box, "until pgrep -f 'sleep 7778' >/dev/null 2>&1 || grep -qs 7778 /proc/[0-9]*/cmdline; do :; done")
    assert not api.call("CommandService.Kill", command={"command_id": c.command_id}).survivors
    out = api.run(box, "grep -ls 'sleep.777[78]' /proc/[0-9]*/cmdline | grep -v self | wc -l", user="root")[1]
    assert int(out) <= 1, out  # the searching shell itself may be one


def test_input(api, box):
    c = api.call("CommandService.Start", sandbox=box, argv={"args": ["/bin/cat"]}, stdin=True)
    ref = {"command_id": c.command_id}
    acks = list(api.both("CommandService.SendInput", iter([
        {"command": ref, "offset": 0, "data": b"hello "}, {"offset": 6, "data": b"world"},
        {"offset": 6, "data": b"world"}])))
    assert acks[-1].accepted == 11, "an overlap is dropped"
    fails("FAILED_PRECONDITION", "INPUT_OFFSET", lambda: list(api.both("CommandService.SendInput", iter([
        {"command": ref, "offset": 99, "data": b"x"}]))))
    api.call("CommandService.CloseInput", command=ref)
    api.call("CommandService.CloseInput", command=ref)
    result = api.call("CommandService.Wait", command=ref)
    assert result.exit_code == 0
    events = api.stream("CommandService.Attach", command=ref)
    assert b"".join(e.output.data for e in events if e.WhichOneof("event") == "output") == b"hello world"


def test_signal(api, box):
    c = api.call("CommandService.Start", sandbox=box, shell="trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done")
    with api.stream("CommandService.Attach", command={"command_id": c.command_id}) as s:
        while next(s).WhichOneof("event") != "output":
            pass
        assert api.call("CommandService.Signal", command={"command_id": c.command_id}, signal="TERM").found
        *_, last = s
    assert last.exited.exit_code == 9
    assert not api.call("CommandService.Signal", command={"command_id": c.command_id}, signal="TERM").found


def test_cancelled_run_is_killed(api, box):
    """A15: the program ends, not only the stream."""
    s = api.stream("CommandService.Run", sandbox=box, shell="echo up; sleep 6543")
    first = next(s)
    assert first.WhichOneof("event") == "started"
    s.cancel()
    result = api.call("CommandService.Wait", command={"command_id": first.started.command_id})
    assert result.killed


def test_detached_run_is_not(api, box):
    s = api.stream("CommandService.Run", sandbox=box, shell="sleep 1; echo still here", detach=True)
    first = next(s)
    s.cancel()
    events = list(api.stream("CommandService.Attach", command={"command_id": first.started.command_id}))
    assert events[-1].exited.exit_code == 0
    assert b"still here\n" in b"".join(e.output.data for e in events if e.WhichOneof("event") == "output")


def test_deadline_ends_the_stream_only(api, box):
    begin = time.monotonic()
    with pytest.raises(ApiError) as e:
        for event in api.stream("CommandService.Run", sandbox=box, shell="sleep 5; echo done", detach=False,
                                timeout=1):
            started = event.started if event.WhichOneof("event") == "started" else started
    assert e.value.code == "DEADLINE_EXCEEDED" and time.monotonic() - begin < 4
    ref = {"command_id": started.command_id}
    assert [c for c in api.call("CommandService.List", sandbox=box).commands
            if c.command_id == started.command_id and c.running]
    api.call("CommandService.Kill", command=ref)


def test_two_readers(api, box):
    c = api.call("CommandService.Start", sandbox=box, shell="seq 20000")
    ref = {"command_id": c.command_id}
    want = b"".join(b"%d\n" % i for i in range(1, 20001))
    for _ in range(2):
        events = api.stream("CommandService.Attach", command=ref)
        assert b"".join(e.output.data for e in events if e.WhichOneof("event") == "output") == want


# -- files

def test_write_and_read(api, box):
    data = os.urandom(300_000)
    r = api.write_file(box, "/home/user/d/f.bin", data)
    assert r.results[0].file.path == "/home/user/d/f.bin" and r.results[0].file.size == len(data)
    assert api.read_file(box, "/home/user/d/f.bin") == data
    assert api.read_file(box, "/home/user/d/f.bin", offset=1000, length=5) == data[1000:1005]
    parts = list(api.stream("FileService.Read", sandbox=box, path="d/f.bin"))
    assert parts[0].file.size == len(data) and parts[-1].end.bytes == len(data)


def test_write_empty_files(api, box):
    """The end of the stream may come before the agent is asked."""
    for i in range(20):
        api.write_file(box, "/home/user/empty%d" % i, b"")
        assert api.read_file(box, "/home/user/empty%d" % i) == b""


def test_write_several(api, box):
    r = api.send("FileService.Write", iter([
        {"header": {"sandbox": box, "path": "a"}}, {"data": b"1"}, {"data": b"2"},
        {"header": {"sandbox": box, "path": "empty"}},
        {"header": {"sandbox": box, "path": "/home/user"}}, {"data": b"x"},
        {"header": {"sandbox": box, "path": "ünï"}}, {"data": b"3"}]))
    assert [x.WhichOneof("result") for x in r.results] == ["file", "file", "error", "file"]
    assert api.read_file(box, "a") == b"12" and api.read_file(box, "ünï") == b"3" and api.read_file(box, "empty") == b""


def test_file_calls(api, box):
    assert api.call("FileService.MakeDir", sandbox=box, path="t/u").created
    assert not api.call("FileService.MakeDir", sandbox=box, path="t/u").created
    api.write_file(box, "t/f", b"12345")
    s = api.call("FileService.Stat", sandbox=box, path="t/f")
    assert s.size == 5 and s.type == 1 and s.owner == "user" and s.modified_at.seconds > 0
    assert [e.name for e in api.stream("FileService.List", sandbox=box, path="t")] == ["f", "u"]
    assert api.call("FileService.Move", sandbox=box, source="t/f", destination="t/g").path == "/home/user/t/g"
    assert api.call("FileService.Exists", sandbox=box, path="t/g").exists
    api.call("FileService.Remove", sandbox=box, path="t")
    assert not api.call("FileService.Exists", sandbox=box, path="t").exists


# -- what is refused, and how it is said

def test_errors(api, box):
    gone = "i" + "0" * 20
    for method in ("Get", "ConnectSandbox", "SetTimeout"):
        extra = {"sandbox_timeout": 10} if method != "Get" else {}
        fails("NOT_FOUND", "SANDBOX_NOT_FOUND", api.call, "SandboxService." + method, sandbox=gone, **extra)
    fails("NOT_FOUND", "TEMPLATE_NOT_FOUND", api.call, "SandboxService.Create", template="no-such")
    fails("NOT_FOUND", "FILE_NOT_FOUND", api.stream, "FileService.Read", sandbox=box, path="/no/such")
    fails("NOT_FOUND", "FILE_NOT_FOUND", api.call, "FileService.Stat", sandbox=box, path="/no/such")
    fails("FAILED_PRECONDITION", "NOT_A_DIRECTORY", api.stream, "FileService.List", sandbox=box, path="/etc/passwd")
    fails("FAILED_PRECONDITION", "IS_A_DIRECTORY", api.stream, "FileService.Read", sandbox=box, path="/home/user")
    fails("NOT_FOUND", "PROCESS_NOT_FOUND", api.call, "CommandService.Wait",
          command={"sandbox": box, "pid": 4190000})


def test_killed_is_said(api):
    b = api.call("SandboxService.Create").id
    api.call("SandboxService.Kill", sandbox=b)
    fails("NOT_FOUND", "SANDBOX_KILLED", api.run, b, "true")


BAD = [
    ("SandboxService.Create", {"sandbox_timeout": -1}, "sandbox_timeout"),
    ("SandboxService.Create", {"sandbox_timeout": 0}, "sandbox_timeout"),
    ("SandboxService.Create", {"sandbox_timeout": 31 * 86400}, "sandbox_timeout"),
    ("SandboxService.Create", {"name": "Bad Name"}, "name"),
    ("SandboxService.Create", {"name": "x" * 64}, "name"),
    ("SandboxService.Create", {"name": "i" + "0" * 20}, "name"),
    ("SandboxService.Create", {"request_id": "x" * 129}, "request_id"),
    ("SandboxService.Create", {"request_id": "a\nb"}, "request_id"),
    ("SandboxService.Create", {"metadata": {"agentbox.host": "x"}}, "metadata"),
    ("SandboxService.Get", {}, "sandbox"),
    ("SandboxService.Get", {"sandbox": "x" * 5000}, "sandbox"),
    ("SandboxService.Get", {"sandbox": "../etc"}, "sandbox"),
    ("SandboxService.GetHost", {"sandbox": None, "port": 70000}, "port"),
    ("CommandService.Start", {"sandbox": None}, "shell"),
    ("CommandService.Start", {"sandbox": None, "argv": {"args": []}}, "argv"),
    ("FileService.Stat", {"sandbox": None, "path": ""}, "path"),
    ("FileService.Stat", {"sandbox": None, "path": "a\0b"}, "path"),
]


@pytest.mark.parametrize("method,fields,named", BAD, ids=["%s-%s-%d" % (m, n, i) for i, (m, _, n) in enumerate(BAD)])
def test_bad_fields_are_named(api, box, method, fields, named):
    fields = dict(fields)
    if "sandbox" in fields and fields["sandbox"] is None:
        fields["sandbox"] = box
    with pytest.raises(ApiError) as e:
        api.call(method, **fields)
    assert e.value.code == "INVALID_ARGUMENT", e.value
    said = str(e.value.metadata) + str(e.value.fields) + e.value.text
    assert named in said, said


def test_bad_bytes(api):
    with pytest.raises(ApiError) as e:
        api.raw("/agentbox.v1.SandboxService/Get", b"\x0a\x03\xff\xfe\xfd")
    assert e.value.code == "INVALID_ARGUMENT", e.value
    with pytest.raises(ApiError) as e:
        api.raw("/agentbox.v1.SandboxService/Get", b"\x0a\xff\xff\xff\xff\x0f")
    assert e.value.code in ("INVALID_ARGUMENT", "INTERNAL"), e.value
    with pytest.raises(ApiError) as e:
        api.raw("/agentbox.v1.SandboxService/Get", b"\x0a" + b"\x80\x80\x80\x01" + b"x" * (1 << 21))
    assert e.value.code in ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT"), e.value
    assert api.call("DaemonService.Status").pid


# -- the daemon

def test_status_and_config(api, daemon_on_local):
    s = api.call("DaemonService.Status")
    assert s.pid == daemon_on_local.pid and s.version and s.host_id and not s.draining
    assert s.store.writable and s.socket == daemon_on_local.socket
    values = api.call("DaemonService.Config").values
    keys = {(v.section, v.key): v for v in values}
    assert len(keys) == len(values) and len(keys) > 20
    text = str(api.call("DaemonService.Config"))
    with open(os.path.join(daemon_on_local.home, "key"), encoding="ascii") as f:
        assert f.read().strip() not in text
    fails("FAILED_PRECONDITION", "UNSUPPORTED", api.call, "DaemonService.StopLocal")


def test_metadata_and_user_agents(daemon_on_local):
    with Api(daemon_on_local.socket, options=[("grpc.primary_user_agent", "x" * 200)]) as a:
        assert a.call("DaemonService.Status", header=[("x-trace", "1"), ("b-bin", b"\0\xff")]).pid


def test_compressed_requests(daemon_on_local):
    """gzip is not offered: the call is refused cleanly, or the client does without."""
    with Api(daemon_on_local.socket, options=[("grpc.default_compression_algorithm", int(grpc.Compression.Gzip))]) as a:
        try:
            assert a.call("DaemonService.Status").pid
        except (ApiError, grpc.RpcError) as e:
            assert "UNIMPLEMENTED" in str(e)
