# SPDX-License-Identifier: MIT
"""Templates that serve (E-6): start and ready commands, the default user and working directory."""
import json
import os
import signal
import threading
import time

import pytest

import harness
from harness import until
from wire import RpcFailed
from wire_common import own  # noqa: F401

SERVE = "python3 -m http.server 8000"
READY = "curl -sf http://localhost:8000/index.html"


@pytest.fixture(params=["root", "user"])
def uid(request):
    """Who runs agentbox-local."""
    if os.getuid() != 0 and request.param == "root":
        pytest.skip("only root can run it as root")
    return None if request.param == "root" or os.getuid() != 0 else 61234


@pytest.fixture
def files(request):
    """Files over the base, as a template is given them; of the test's uid, if it has one."""
    folder = harness.temp_dir("abt-")
    site = os.path.join(folder, "srv", "site")
    os.makedirs(site)
    with open(os.path.join(site, "index.html"), "w", encoding="ascii") as f:
        f.write("served\n")
    owner = request.getfixturevalue("uid") if "uid" in request.fixturenames else None
    for d, _, names in os.walk(folder) if owner else ():
        for path in [d] + [os.path.join(d, n) for n in names]:
            os.chown(path, owner, owner)
    return folder


def template(folder, **options):
    return "web=" + folder + "".join(",%s=%s" % (k, v) for k, v in options.items())


def create(c, **body):
    return c.api("POST", "/sandboxes", dict({"templateID": "web", "timeout": 60, "secure": True}, **body))


def get_port(c, box, path, port=8000):
    return c.request("GET", path, c.identity(box, port=port, token=False))


def test_serves_once_created(own, files, uid):
    """E-6: the start command runs, a creation is answered when the ready command ended with 0, and each sandbox of any origin has one
    of its own: of the template, of its snapshots, its forks."""
    start = "echo a, b; exec %s" % SERVE                    # a comma belongs to the command
    c, _ = own("--template", template(files, start=start, ready=READY, user="root", workdir="/srv/site"), uid=uid)
    box = create(c, envVars={"ASKED": "1"}).json()
    assert get_port(c, box, "/index.html").body == b"served\n"
    (service,) = c.processes(box)
    assert service["config"]["cmd"] == "/bin/bash" and service["config"]["args"] == ["-l", "-c", start], service
    with c.stream(box, "process.Process/Connect", {"process": {"pid": service["pid"]}}) as s:
        assert s.next()["event"]["start"]["pid"] == service["pid"]
    c.write(box, "/srv/site/more", b"more\n")
    name = c.api("POST", "/sandboxes/%s/snapshots" % box["sandboxID"], {"name": "kept"}).json()["snapshotID"]
    of_snapshot = create(c, templateID=name).json()
    (fork,) = c.api("POST", "/sandboxes/%s/fork" % box["sandboxID"], {"count": 1, "timeout": 60}).json()
    for one in (of_snapshot, fork["sandbox"]):
        assert get_port(c, one, "/more").body == b"more\n", one
        assert len(c.processes(one)) == 1


def test_defaults_of_commands_and_paths(own, files, uid):
    """E-6: user and workdir are those of commands and paths that name none; HOME stays where relative paths begin."""
    c, _ = own("--template", template(files, user="root", workdir="/srv/site"), uid=uid)
    box = create(c).json()
    assert c.run(box, "id -un; pwd")[1] == b"root\n/srv/site\n"
    assert c.run(box, "id -un; pwd", user="user")[1] == b"user\n/srv/site\n"
    assert c.run(box, "pwd", cwd="~")[1] == b"/root\n"
    assert c.run(box, "pwd", cwd="/tmp")[1] == b"/tmp\n"
    assert c.stat(box, "")["path"] == "/srv/site"
    assert [e["name"] for e in c.unary(box, "filesystem.Filesystem/ListDir", {"path": ""})["entries"]] == ["index.html"]
    assert c.write(box, "made", b"x").status == 200
    made = c.stat(box, "/root/made")
    assert made["owner"] == "root", made
    box = c.create()        # another template has none of it
    assert c.run(box, "id -un; pwd")[1] == b"user\n/home/user\n"


def test_variables(own, files):
    """E-6: as in the cloud, where both commands ran before anybody made a sandbox, they do not have the variables of the creation."""
    tell = "env | grep -E ^ASKED=\\|^E2B_SANDBOX= >/tmp/%s; true"
    c, _ = own("--template", template(files, start=tell % "start", ready="[ -s /tmp/start ] || exit 1; " + tell % "ready"))
    box = create(c, envVars={"ASKED": "1"}).json()
    for name in ("start", "ready"):
        assert c.read(box, "/tmp/" + name).body == b"E2B_SANDBOX=true\n", name
    assert c.run(box, "echo $ASKED")[1] == b"1\n"


@pytest.mark.parametrize("options, words", [
    ({"start": "echo sorry >&2; exit 3", "ready": "false"},
     'the start command of template "web" ended before the template was ready: exit status 3: sorry '),
    ({"start": "kill -9 $$", "ready": "false"}, "ended before the template was ready: signal: killed"),
    ({"start": "true", "workdir": "/no/such"}, "the start command of template \"web\" could not be started: the working directory"),
    ({"ready": "true", "workdir": "~other"}, "the ready command of template \"web\""),
    ({"user": "nobody-here"}, 'its user "nobody-here" cannot be looked up: No such file or directory'),
])
def test_not_made(own, files, options, words):
    """E-6: a template that does not start makes no sandbox, and the answer says why."""
    c, cloud = own("--template", template(files, **options))
    r = create(c)
    assert r.status == 500 and words in r.json()["message"], r
    assert c.api("GET", "/v2/sandboxes").json() == []
    until(lambda: not os.listdir(os.path.join(cloud.state_dir, "engine", "containers")), what="its files to go")


def test_unseen_until_ready(own, files):
    """E-6: until it is ready a sandbox is in no list and answers no call of the control plane, while its own programs are served; when
    agentbox-local ends meanwhile, so does the creation."""
    start = "curl -sf http://localhost:49983/health && touch /srv/asked"
    c, cloud = own("--template", template(files, start=start, ready="test -e /srv/asked && test -e /srv/go", user="root"))
    got = []
    t = threading.Thread(target=lambda: got.append(create(c)))
    t.start()
    journal = os.path.join(cloud.state_dir, "journal.ndjson")

    def made():
        with open(journal, encoding="utf-8") as f:
            return next((line for line in f if '"Start"' in line), None)
    sandbox = json.loads(until(made, what="the start command"))["sandbox"]
    assert c.api("GET", "/v2/sandboxes").json() == []
    for method, path in (("GET", "/sandboxes/" + sandbox), ("DELETE", "/sandboxes/" + sandbox)):
        assert c.api(method, path).status == 404, method
    assert not got
    os.kill(cloud.pid, signal.SIGTERM)
    t.join(20)
    assert not t.is_alive()


def test_limit_of_the_command_line(own, files):
    """E-6: what is said of a template twice, or says nothing, is refused at the start, by name."""
    for options, words in ((",start=a,start=b", "start=b: an option is given twice"), (",ready=", "ready=: an option of it says nothing"),
                           (",strat=a", ",strat=a: No such file or directory")):
        with pytest.raises(AssertionError) as e:
            own("--template", "web=" + files + options)
        assert words in str(e.value), e.value


def test_time_begins_when_it_is_told(own, files):
    """E-6: what a sandbox needed to get ready is not taken from the time that was asked for."""
    c, _ = own("--template", template(files, ready="sleep 1.2"))
    r = create(c, timeout=2)
    begin = time.monotonic()
    assert r.status == 201, r
    until(lambda: c.get(r.json()).status == 404, what="its end")
    assert time.monotonic() - begin > 1.7
