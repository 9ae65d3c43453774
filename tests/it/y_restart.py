# SPDX-License-Identifier: MIT
"""Restarts under load on a passed socket: clients of the library, the command and gRPC with the installed service configuration see none.

With SHOWS_FULL=1 more clients and 20 restarts (tests/shows.sh); what was measured is printed.
"""
import hashlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

import harness
from api import Api, ApiError
from harness import until
from i_npm_local import MISSING as SDK_MISSING, NPM
from y_manager import Manager

FULL = os.environ.get("SHOWS_FULL") == "1"
CLIENTS = 500 if FULL else 16       # of the library; beside them OTHERS of its command, and of gRPC
OTHERS = 16
RESTARTS = 20 if FULL else 6
CONNECTS = 2000
SDK_CLIENTS = 100 if FULL else 4
PROBE = os.path.join(harness.BUILD, "tests", "it", "load_probe")
KINDS_PROBE = os.path.join(harness.BUILD, "tests", "it", "kinds_probe")
KINDS = ["Run", "Run with input", "Wait", "Signal", "SendInput", "Resize", "Renew", "Pause", "Fork", "Write", "Move", "Remove"]
# What was already sent, of what is not done twice; of a Run the input that was on its way to its program.
MAY_BE_UNKNOWN = ("Signal", "Write", "Move", "Remove", "Run with input")
OF_EACH_KIND = 3 if FULL else 1
AT_ONCE = 2000 if FULL else 200
ROOM = {"daemon": {"max_memory": "512M"}, "uid 0": {"max_memory": "256M"}}      # for so many connections of one user
SERVICE_CONFIG = os.path.join(harness.ROOT, "proto/agentbox/v1/service_config.json")


def listening(path, backlog=4096):
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    os.chmod(path, 0o666)
    os.chmod(os.path.dirname(path), 0o711)      # for other users
    s.listen(backlog)
    return s


class Load(threading.Thread):
    """One client that calls again and again; `gap` between two calls."""

    def __init__(self, name, call, tally, stop, gap):
        super().__init__(daemon=True)
        self.name, self.call, self.tally, self.halt, self.gap = name, call, tally, stop, gap
        self.start()

    def run(self):
        n = 0
        while not self.halt.is_set():
            n += 1
            begin = time.monotonic()
            try:
                self.call(n)
                self.tally["ok " + self.name] += 1
            except (ApiError, AssertionError, StopIteration) as e:
                self.tally["FAILED %s: %s" % (self.name, str(e)[:300])] += 1
                self.tally["failed " + self.name] += 1
            self.tally["slowest ms"] = max(self.tally["slowest ms"], int((time.monotonic() - begin) * 1000))
            self.halt.wait(self.gap)


def with_config(path, like):
    with open(SERVICE_CONFIG, encoding="utf-8") as f:
        config = json.dumps(json.load(f))
    return Api(path, like=like, options=[("grpc.service_config", config), ("grpc.enable_retries", 1)])


def grpc_client(path, like, box, i):
    api = with_config(path, like)

    def call(n):
        kind = (n + i) % 4
        if kind == 0:
            api.call("SandboxService.Get", sandbox=box, timeout=60)
        elif kind == 1:
            made = api.call("SandboxService.Create", request_id="g%d-%d" % (i, n), timeout=60).id
            api.call("SandboxService.Kill", sandbox=made, timeout=60)
        elif kind == 2:
            api.call("SandboxService.SetTimeout", sandbox=box, sandbox_timeout={"seconds": 600}, timeout=60)
        else:
            api.call("CommandService.Start", sandbox=box, shell="true", request_id="s%d-%d" % (i, n), timeout=60)
    return call


def command_client(path, box, i):
    def call(n):
        words = (["get", box], ["exec", box, "--", "true"], ["timeout", box, "10m"], ["create", "--timeout", "10m"])[(n + i) % 4]
        r = harness.ctl(path, *words, check=False)
        assert r.returncode == 0, (words, r.returncode, r.stderr)
    return call


def connect_all(path, stop, tally):
    """Connections during the restarts: none is refused, each is answered."""
    while not stop.is_set() and tally["connects"] < CONNECTS:
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(30)
        try:
            s.connect(path)
            s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            tally["connects answered" if s.recv(9) else "connects closed"] += 1
        except OSError as e:
            tally["connects refused: %s" % e] += 1
        finally:
            s.close()
        tally["connects"] += 1


BURST_USERS = 4     # a uid may have 1,024 connections at once, and all of these are open before the first answer is read

BURST = """
import os, resource, selectors, socket, sys, time
path, n, users = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
wait, refused, closed, answered = selectors.DefaultSelector(), 0, 0, 0
print("begun", flush=True)
sys.stdin.read()
os.chdir(os.path.dirname(path))     # also where no other user may go
path = os.path.basename(path)
os.setegid(os.stat(path).st_gid)
for i in range(n):
    if users and i % (n // users) == 0:
        os.seteuid(0)
        os.seteuid(30001 + i * users // n)
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(path)
        s.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n\\0\\0\\0\\4\\0\\0\\0\\0\\0")
        wait.register(s, selectors.EVENT_READ)
    except OSError:
        refused += 1
    if i % (n // 100) == 0:     # a hundred handfuls, over the time of the restart
        time.sleep(0.002)
end = time.monotonic() + 60
while wait.get_map() and time.monotonic() < end:
    for key, _ in wait.select(1):
        try:
            got = len(key.fileobj.recv(9))
        except OSError:
            got = 0
        answered, closed = answered + (got > 0), closed + (not got)
        wait.unregister(key.fileobj)
        key.fileobj.close()
print(refused, closed, answered)
"""


class AtOnce:
    """So many connections that are begun in the fifth of a second that a restart takes, of several users, by a process of their own."""

    def __init__(self, path):
        users = BURST_USERS if os.geteuid() == 0 else 0
        self.proc = subprocess.Popen([sys.executable, "-c", BURST, path, str(AT_ONCE), str(users)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.proc.stdout.readline() == "begun\n"

    def begin(self):
        self.proc.stdin.close()

    def end(self):
        """How many were refused, closed without an answer, and answered."""
        said = self.proc.stdout.read()
        assert self.proc.wait() == 0
        return [int(n) for n in said.split()]


class Kind:
    """A client of the library that makes calls of one kind."""

    def __init__(self, path, name):
        self.name, self.said = name, Counter()
        self.proc = subprocess.Popen([KINDS_PROBE, path, name, "1000" if FULL else "200"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     text=True)
        self.reader = threading.Thread(target=lambda: self.said.update(line.rstrip() for line in self.proc.stdout))
        self.reader.start()

    def end(self):
        self.proc.stdin.close()
        assert self.proc.wait(120) == 0, self.name
        self.reader.join()
        return self.said


class Streams:
    """What agentboxctl goes on with: a command's output, and a lease that is held."""

    def __init__(self, path):
        self.path = path
        self.box, self.held = (harness.ctl(path, "create", "--timeout", "10m", "--policy", "on_release=kill,release_grace=1s").stdout.strip()
                               for _ in range(2))
        self.command = harness.ctl(path, "exec", "-d", self.box, "--", "sh", "-c",
                                   "i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done").stdout.strip()
        self.attach = self.begin("attach", self.command)
        self.hold = self.begin("hold", self.held, "--", "sleep", "1000")
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.attach.stdout))
        self.reader.start()

    def begin(self, *words):
        return subprocess.Popen([harness.AGENTBOXCTL, "-s", self.path, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def end(self):
        """Lines that came, those that are missing in between, and what is wrong."""
        wrong = []
        if self.hold.poll() is not None or self.held not in harness.ctl(self.path, "lease", "ls").stdout:
            wrong.append("the lease is not held: %s" % self.hold.stderr.read())
        self.hold.terminate()
        self.hold.communicate()
        harness.ctl(self.path, "signal", self.command, "KILL")
        self.reader.join(60)
        said = self.attach.stderr.read()
        self.attach.wait(60)
        numbers = [int(line) for line in self.lines]
        missing = numbers[-1] - len(numbers)
        if numbers != sorted(set(numbers)) or (missing and "warning: some output is lost" not in said) or len(numbers) < 10:
            wrong.append("the output: %s ... %s" % (numbers[:50], said))
        return len(numbers), missing, wrong


class Sdk:
    """Clients of the e2b SDK through the gateway, in one process of Node."""

    def __init__(self, port, token, box):
        url = "http://localhost:%d" % port
        env = {k: v for k, v in os.environ.items() if not k.startswith("E2B_") and not k.lower().endswith("_proxy")}
        env.update({"E2B_API_KEY": token, "E2B_API_URL": url, "E2B_SANDBOX_URL": url})
        self.proc = subprocess.Popen(["node", "restart.mjs", box, str(SDK_CLIENTS), "1000" if FULL else "200"], cwd=NPM, env=env,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.proc.stdout.readline() == "begun\n"

    def end(self):
        out, err = self.proc.communicate(timeout=120)
        assert self.proc.returncode == 0, err
        return json.loads(out)


def sdk_token(said):
    """Of `agentboxctl token create`, as the SDK wants it."""
    return "e2b_" + said.strip()[3:]


class Library:
    """Clients of the library, in one process."""

    def __init__(self, path, box):
        self.proc = subprocess.Popen([PROBE, path, box, str(CLIENTS), "1000" if FULL else "200"], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, text=True)
        self.said, self.gaps = Counter(), []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.proc.stdout:
            if line.startswith("gap "):
                self.gaps.append(int(line.split()[1]))
            else:
                self.said[line.rstrip()] += 1

    def end(self):
        """Calls that went well, those that failed, and what it counted."""
        self.proc.stdin.close()
        assert self.proc.wait(120) == 0
        self.reader.join()
        counted = dict(line.split() for line in list(self.said) if re.fullmatch("(slowest|streams) [0-9]+", line))
        failed = {line: n for line, n in self.said.items() if line not in ("ok", "resync") and line.split()[0] not in counted}
        return self.said["ok"], failed, self.said["resync"], {k: int(v) for k, v in counted.items()}


def shows(rows):
    """The load, then each figure with its limit and the verdict."""
    print("\n%d clients of the library, %d of its command, %d of gRPC, %d of the SDK, %d restarts, load %.1f of %d processors" % (
        CLIENTS, OTHERS, OTHERS, SDK_CLIENTS, RESTARTS, os.getloadavg()[0], os.cpu_count()))
    for what, value, limit in rows:
        verdict = "measured" if limit is None else "holds" if value <= limit else "FAILS"
        print("  %-60s %8s  limit %6s  %s" % (what, value, "-" if limit is None else limit, verdict))


def good_calls(tally):
    return sum(v for k, v in tally.items() if k.startswith("ok "))


def median(values):
    return sorted(values)[len(values) // 2]


def restart(m, d, conf=None):
    """How long it took, in ms, and the successor, which has that configuration."""
    d.proc.terminate()
    m.wait("STOPPING=1")
    begin = time.monotonic()
    ended = os.pidfd_open(d.pid)        # wait() with a limit looks now and then only
    assert select.select([ended], [], [], 30)[0], d.tail()
    os.close(ended)
    d.proc.wait()
    assert d.proc.returncode == 0, d.tail()
    after = m.start(d.cloud, conf=conf, folder=d.home)
    after.cloud = d.cloud
    m.wait("READY=1")
    return int((time.monotonic() - begin) * 1000), after


def test_levels_and_service_config_say_the_same(daemon):
    """What the .proto files call repeatable is what gRPC clients repeat."""
    from google.protobuf import descriptor_pb2
    found = set()
    with Api(daemon.socket) as api:
        for name in ("Sandbox", "Snapshot", "Lease", "Command", "File", "Daemon", "Template", "Token", "Warm"):
            d = descriptor_pb2.ServiceDescriptorProto()
            api.service(name + "Service").CopyToProto(d)
            found |= {(name + "Service", m.name) for m in d.method if m.options.idempotency_level}
    with open(SERVICE_CONFIG, encoding="utf-8") as f:
        config = json.load(f)["methodConfig"]
    assert found == {(n["service"].rpartition(".")[2], n["method"]) for c in config for n in c["name"]}
    assert not {m for _, m in found} & {"Write", "SendInput", "Move", "Remove", "Signal", "Acquire", "StopLocal"}


def under_load(path, make_sdk, restart_once):
    """RESTARTS of them in the middle of everybody's calls, each by restart_once(), which says how many ms it took by its own account: none
    of the calls fails, and what was counted is printed."""
    tally, stop, took, without = Counter(), threading.Event(), [], []
    with Api(path) as api:
        box = api.call("SandboxService.Create", request_id="shared", sandbox_timeout={"seconds": 3600}).id
        clients = [Load("grpc", grpc_client(path, api, box, i), tally, stop, 1.0 if FULL else 0.2) for i in range(OTHERS)]
        clients += [Load("agentboxctl", command_client(path, box, i), tally, stop, 1.0 if FULL else 0.2) for i in range(OTHERS)]
        library = Library(path, box)
        sdk = None if SDK_MISSING else make_sdk(box)
        connects = threading.Thread(target=connect_all, args=(path, stop, tally))
        connects.start()
        kinds = [Kind(path, name) for name in KINDS for _ in range(OF_EACH_KIND)]
        streams = Streams(path)
        until(lambda: all(k.said for k in kinds), 60, "a call of each kind")
        for i in range(RESTARTS):
            n, others = library.said["ok"], good_calls(tally)
            until(lambda n=n, o=others: library.said["ok"] >= n + CLIENTS and good_calls(tally) >= o + 2 * OTHERS, 120, "calls of everybody")
            seen = len(library.gaps)
            burst = AtOnce(path) if i == RESTARTS // 2 else None
            if burst:
                burst.begin()
            took.append(restart_once())
            until(lambda n=library.said["ok"]: library.said["ok"] > n, 60, "a call after the restart")
            without.append(max(library.gaps[seen:], default=0))
            if burst:
                refused, closed, answered = burst.end()
        until(lambda: tally["connects"] >= CONNECTS, 60, "the connects")
        stop.set()
        for c in clients + [connects]:
            c.join(60)
        lines, missing, wrong = streams.end()
        of_kinds = {name: sum((k.end() for k in kinds if k.name == name), Counter()) for name in KINDS}
    good, bad, resyncs, counted = library.end()
    lost = sdk.end() if sdk else {"ok": 0, "failed": {}, "streams": 0, "streams_ended": {}}
    failed = sum(v for k, v in tally.items() if k.startswith("FAILED"))
    shows([("calls of the library that failed, of %d" % (good + sum(bad.values())), sum(bad.values()), 0),
           ("its %d streams that lost their place, of %d begun" % (CLIENTS, counted["streams"]), resyncs, 0),
           ("its slowest call, ms", counted["slowest"], None),
           ("calls of agentboxctl that failed, of %d" % tally["ok agentboxctl"], tally["failed agentboxctl"], 0),
           ("calls of gRPC that failed, of %d" % tally["ok grpc"], tally["failed grpc"], 0),
           ("connects that were not answered, of %d" % tally["connects"], tally["connects"] - tally["connects answered"], 0),
           ("connects in one restart that were refused, of %d" % AT_ONCE, refused, 0),
           ("connects in one restart that were not answered, of %d" % AT_ONCE, AT_ONCE - answered, 0),
           ("streams of agentboxctl (attach, hold) that ended or said a line twice", len(wrong), 0),
           ("lines lost and told, of %d that agentboxctl attach wrote" % lines, missing, None),
           ("ms without service, the median", median(without), 300),
           ("ms without service, the longest", max(without), 300),
           ("ms from the word to stop until the next one is ready, median", median(took), None),
           ("the same, the longest", max(took), None),
           ("slowest call, ms", tally["slowest ms"], None),
           ("SDK calls through the gateway lost, of %d" % (lost["ok"] + sum(lost["failed"].values())), sum(lost["failed"].values()), None),
           ("SDK streams lost, of %d" % lost["streams"], sum(lost["streams_ended"].values()), None)])
    for name, said in of_kinds.items():
        print("  %-15s %4d calls: %s" % (name, sum(said.values()), ", ".join("%s %d" % x for x in sorted(said.items()))))
    bad_kinds = {name: said for name, said in of_kinds.items()
                 if not said["ok"] + said["gap"] or set(said) - {"ok", "gap"} - ({"unknown"} if name in MAY_BE_UNKNOWN else set())}
    print("  without service, each:", without)
    print("  lost through the gateway:", lost["failed"], lost["streams_ended"], "without the SDK: %s" % SDK_MISSING if SDK_MISSING else "")
    assert not failed and not bad and not resyncs and not bad_kinds and not wrong, (tally, bad, resyncs, bad_kinds, wrong)
    assert answered == AT_ONCE, (refused, closed, answered)
    assert counted["streams"] >= CLIENTS * 2
    assert SDK_MISSING or lost["ok"] > RESTARTS, lost
    assert tally["connects answered"] == tally["connects"], tally


def none_twice(cloud):
    created = [s.id for s in cloud.ledger.sandboxes]
    assert len(set(created)) == len(created)


@pytest.mark.timeout(600)
def test_restarts_under_load(cloud):
    """0 failed calls, 0 refused connects."""
    folder = harness.temp_dir("abm-")
    path = os.path.join(folder, "api")
    gateway = socket.create_server(("127.0.0.1", 0), backlog=4096)
    m = Manager(folder, api=listening(path), gateway=gateway)
    d = m.start(cloud, conf=ROOM)
    d.cloud = cloud
    m.wait("READY=1")
    token = sdk_token(harness.ctl(path, "token", "create").stdout)

    def again():
        nonlocal d
        ms, d = restart(m, d, ROOM)
        return ms

    under_load(path, lambda box: Sdk(gateway.getsockname()[1], token, box), again)
    d.stop()
    d.close()
    m.close()
    none_twice(cloud)


def managed(cloud):
    """A manager, the socket that it passes, and the first daemon."""
    m = Manager(harness.temp_dir("abm-"))
    path = os.path.join(m.folder, "api")
    m.passed["api"] = listening(path)
    d = m.start(cloud)
    d.cloud = cloud
    m.wait("READY=1")
    return m, path, d


BEGINS = {"create": ("SandboxService.Create", lambda box, key: {"request_id": key}),
          "process.Start": ("CommandService.Start", lambda box, key: {"sandbox": box, "shell": "exit 3", "request_id": key})}


@pytest.mark.parametrize("route", BEGINS)
def test_a_stop_settles_while_it_serves(cloud, route):
    """As long as the answer to a start or a creation is waited for, reads are answered, and what would begin another one waits unseen for the
    next daemon: the first caller is answered by the first daemon, and neither of them is left to be looked for."""
    m, path, d = managed(cloud)
    name, asks = BEGINS[route]
    box = harness.ctl(path, "create").stdout.strip()
    seen = len(cloud.ledger.of(route))
    fault = cloud.fault(route, hold=True)
    answers = {}
    with Api(path) as first, Api(path, like=first) as reader, with_config(path, first) as later:
        callers = [threading.Thread(target=lambda key=key, api=api: answers.update({key: api.call(name, timeout=60, **asks(box, key))}))
                   for key, api in (("one", first), ("two", later))]
        callers[0].start()
        fault.hold.wait()
        d.proc.terminate()
        m.wait("STOPPING=1")
        assert reader.call("SandboxService.Get", sandbox=box, timeout=2).id == box
        callers[1].start()
        assert reader.call("SandboxService.Get", sandbox=box, timeout=2).id == box
        fault.hold.release()
        callers[0].join(60)
        assert d.proc.wait(30) == 0 and "one" in answers
        assert len(cloud.ledger.of(route)) == seen + 1
        assert re.search(r"settled after_ms=\d+ starts=0 creates=0", d.log()), d.tail()
        after = m.start(cloud, folder=d.home)
        m.wait("READY=1")
        callers[1].join(60)
    assert len(cloud.ledger.of(route)) == seen + 2 and set(answers) == {"one", "two"}
    assert "taken_up" not in after.log() and "OUTCOME_UNKNOWN" not in after.log()
    after.stop()
    after.close()
    m.close()


def test_a_start_in_flight(cloud):
    """An agent that takes its time: the stop waits for its answer, so that the next daemon knows that the program ran."""
    m, path, d = managed(cloud)
    box = harness.ctl(path, "create").stdout.strip()
    cloud.fault("process.Start", delay=0.7)
    started = []
    with Api(path) as first, with_config(path, first) as api:
        caller = threading.Thread(target=lambda: started.append(api.call(
            "CommandService.Start", sandbox=box, shell="exit 3", request_id="one", timeout=60)))
        caller.start()
        until(lambda: cloud.ledger.of("process.Start"), 10, "the start at the agent", d)
        _, d = restart(m, d)
        caller.join(60)
        ended = api.call("CommandService.Wait", command={"command_id": started[0].command_id}, timeout=60)
    assert ended.exit_code == 3 and len([r for r in cloud.ledger.of("process.Start") if b"exit 3" in r.body]) == 1
    harness.ctl(path, "kill", box)
    d.stop()
    d.close()
    m.close()


def test_input_over_restarts(local):
    """`exec -i` of a file: every byte reaches the command once, in order, also while the daemon is restarted."""
    m, path, d = managed(local)
    box = harness.ctl(path, "create").stdout.strip()
    piece = os.urandom(1 << 16)
    p = subprocess.Popen([harness.AGENTBOXCTL, "-s", path, "exec", "-i", box, "--", "sha256sum"], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    digest = hashlib.sha256()
    for i in range(120):
        p.stdin.write(piece)
        digest.update(piece)
        if i % 40 == 20:
            _, d = restart(m, d)
    out, err = p.communicate(timeout=60)
    harness.ctl(path, "kill", box)
    d.stop()
    d.close()
    m.close()
    assert (p.returncode, out.split()[:1]) == (0, [digest.hexdigest().encode()]), err
    assert b"input is cut" not in err


def pieces(stream):
    """The numbers of the lines, between the gaps; offsets follow on each other also over a gap, whose size nobody knows."""
    found, at = [b""], 0
    for e in stream:
        what = e.WhichOneof("event")
        if what == "output" and e.output.stream == 1:
            assert e.output.offset == at, e
            at += len(e.output.data)
            found[-1] += e.output.data
        elif what == "gap" and e.gap.stream == 1:
            assert (e.gap.offset, e.gap.size_known, e.gap.reason) == (at, False, "reattached"), e
            found.append(b"")
    return [[int(x) for x in re.findall(rb"line-(\d{6})\n", piece)] for piece in found]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSTOP])
def test_deaths_under_load(local, sig):
    """kill -9, and a daemon that hangs until its watchdog kills it: a stream goes on to its end, with no line twice, and none
    is missing but where every reader is told a gap (the cloud keeps none for one that is away); a create that is sent again makes one sandbox."""
    folder = harness.temp_dir("abm-")
    path = os.path.join(folder, "api")
    m = Manager(folder, api=listening(path))
    watchdog = {"WATCHDOG_USEC": "1000000"} if sig == signal.SIGSTOP else {}
    d = m.start(local, env=watchdog)
    m.wait("READY=1")
    box = harness.ctl(path, "create").stdout.strip()
    lines, deaths = 200, 3
    p = subprocess.Popen([harness.AGENTBOXCTL, "-s", path, "exec", box, "--", "sh", "-c",
                          "for i in $(seq %d); do printf 'line-%%06d\\n' $i; sleep 0.05; done" % lines], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    got = [p.stdout.readline()]
    begin, made = threading.Barrier(2), []

    with Api(path) as first:
        first.service("SandboxService")

    def create(k):
        with with_config(path, first) as api:
            begin.wait()
            made.append(api.call("SandboxService.Create", request_id="once-%d" % k, name="once-%d" % k, timeout=60).id)

    for k in range(deaths):
        t = threading.Thread(target=create, args=(k,))
        t.start()
        begin.wait()
        os.kill(d.pid, sig)
        if sig == signal.SIGSTOP:       # as a manager does
            with pytest.raises(socket.timeout):
                while True:
                    m.next(2)
            os.kill(d.pid, signal.SIGKILL)
        d.proc.wait(20)
        d = m.start(local, folder=d.home, env=watchdog)
        m.wait("READY=1")
        t.join(90)
        got.append(p.stdout.readline())
    out, err = p.stdout.read(), p.stderr.read()     # communicate() passes over what readline() has read ahead
    p.wait(60)
    got = [int(x) for x in re.findall(r"line-(\d{6})\n", "".join(got + [out]))]
    assert p.returncode == 0 and got == sorted(set(got)) and got[-1] == lines, (got, err)
    with Api(path, like=first) as api:
        command, = [c for c in api.call("CommandService.List", sandbox=box, ended=True).commands if not c.foreign]
        kept = pieces(api.stream("CommandService.Attach", command={"command_id": command.command_id}))
    assert [n for piece in kept for n in piece] == got, (kept, got)
    assert all(piece == list(range(piece[0], piece[-1] + 1)) for piece in kept if piece), kept
    assert kept[0][0] == 1
    assert (len(kept) == 1) == command.result.output_complete, (kept, command.result)
    assert err.count("warning: some output is lost") == len(kept) - 1, (kept, err)
    names = [line.split()[1] for line in harness.ctl(path, "ls").stdout.splitlines() if "once-" in line]
    assert len(made) == len(set(made)) == deaths, (made, names)
    print("\n%d x %s: %d lines of %d, none twice; %d creates, none twice" % (deaths, sig.name, len(got), lines, len(made)))
    for b in [box] + made:
        harness.ctl(path, "kill", b)
    d.stop()
    d.close()
    m.close()


def test_deaths_under_a_silent_stream(local):
    """What is lost at one place is told once, however often the daemon dies there."""
    folder = harness.temp_dir("abm-")
    path = os.path.join(folder, "api")
    debug = {"daemon": {"log_level": "debug"}}
    m = Manager(folder, api=listening(path))
    d = m.start(local, conf=debug)
    m.wait("READY=1")
    box = harness.ctl(path, "create").stdout.strip()
    p = subprocess.Popen([harness.AGENTBOXCTL, "-s", path, "exec", box, "--", "sh", "-c", "echo begun; until [ -e /tmp/go ]; do sleep 0.1; done; echo over"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "begun\n"
    said = ""
    for k in range(1, 4):
        d.kill9()
        d = m.start(local, folder=d.home, conf=debug)
        m.wait("READY=1")
        for line in ("CommandService/Attach from=reading to=open", "from=attaching to=running"):
            harness.until(lambda line=line, k=k: d.log().count(line) == k, 20, line, d)
        said = said or p.stderr.readline()
    harness.ctl(path, "exec", box, "--", "touch", "/tmp/go")
    out, err = p.stdout.read(), said + p.stderr.read()
    assert (p.wait(60), out) == (0, "over\n")
    assert err.count("warning: some output is lost") == 1, err
    harness.ctl(path, "kill", box)
    d.stop()
    d.close()
    m.close()
