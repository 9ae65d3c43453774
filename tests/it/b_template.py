# SPDX-License-Identifier: MIT
"""agentboxctl template ls: the account's templates as agentbox-local and the scripted cloud list them."""
import json
import re

import pytest

import harness
from api import Api, ApiError
from conftest import built
from fakecloud.rest import Template

COLUMNS = ["TEMPLATE", "NAMES", "STATUS", "CPUS", "MEMORY", "PUBLIC", "UPDATED", "LAST USED", "USES"]


@pytest.fixture
def far(cloud, daemon):
    """A daemon in front of the scripted cloud, whose team has templates of its own beside those of everybody."""
    built(harness.AGENTBOXCTL)
    for alias, status in (("mine", "ready"), ("half", "building")):
        t = Template(alias + "0template0template0"[:20 - len(alias)], alias, public=False, owner=cloud.team)
        t.status = status
        cloud.templates.append(t)
    cloud.templates.append(Template("theirs0template0temp", "theirs", public=False, owner=cloud.other_team))
    return daemon


def ls(d, *words):
    return d.ctl("template", "ls", *words).stdout


def rows(d, *words):
    return [json.loads(line) for line in ls(d, "--json", *words).splitlines()]


def test_of_agentbox_local(d):
    """What is listed can be created from, by its id and by each of its names."""
    listed = rows(d)
    base = next(t for t in listed if "base" in t["names"])
    assert base["public"] and base["build_status"] == "ready" and base["build_id"] and base["created_at"]
    assert ls(d, "-q").split() == [t["id"] for t in listed]
    for name in [base["id"]] + base["names"]:
        box = d.ctl("create", "-t", name).stdout.strip()
        assert json.loads(d.ctl("--json", "get", box).stdout)["template_id"] == base["id"]
        d.ctl("kill", box)
    assert rows(d, "--filter", "name=base")[0]["spawn_count"] >= base["spawn_count"] + 2


def test_of_the_cloud(far, cloud):
    """SERVERS 5: as the cloud has them, its own and everybody's, in its order; of another team none."""
    shown = [t for t in cloud.templates if t.owner is not cloud.other_team]
    far.ctl("create", "-t", "mine")
    got = rows(far)
    assert [t["id"] for t in got] == [t.id for t in shown] and len(got) == 5
    mine = next(t for t in got if t["id"] == shown[3].id)
    updated = mine.pop("updated_at")
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", updated) and mine.pop("created_at") == updated
    assert mine.pop("last_spawned_at") >= updated
    assert mine == {"id": shown[3].id, "names": ["team-a/mine"], "public": False, "build_id": shown[3].build_id, "build_status": "ready",
                    "cpu_count": 2, "memory_mb": 512, "disk_size_mb": 1024, "envd_version": "0.6.13", "spawn_count": 1}
    assert got[0]["last_spawned_at"] is None and got[0]["spawn_count"] == 0


def test_table(far):
    head, *lines = ls(far).splitlines()
    assert re.split(r"  +", head) == COLUMNS and len(lines) == 5
    half = re.split(r"  +", lines[4])
    assert half[1:6] == ["team-a/half", "building", "2", "512.0 MiB", "no"] and half[7:] == ["-", "0"]


def test_choosing(far):
    """Filters of one key are alternatives, of two keys both have to hold; the order is that of a field."""
    assert ls(far, "--format", "{names}", "--filter", "status=building") == '["team-a/half"]\n'
    for name in ("mine", "team-a/mine", ls(far, "-q", "--filter", "name=mine").strip()):
        assert [t["names"] for t in rows(far, "--filter", "name=" + name)] == [["team-a/mine"]]
    assert len(rows(far, "--filter", "name=mine", "--filter", "name=half")) == 2
    assert rows(far, "--filter", "name=mine", "--filter", "status=building") == []
    assert rows(far, "--filter", "name=min") == []
    ids = ls(far, "-q").split()
    assert ls(far, "-q", "--sort", "id").split() == sorted(ids) and ls(far, "-q", "--sort", "-id").split() == sorted(ids)[::-1]
    far.ctl("create", "-t", "mine")
    assert ls(far, "-q", "--sort", "-spawn_count").split()[0] == ls(far, "-q", "--filter", "name=mine").strip()
    assert ls(far, "--filter", "name=mine", "--format", r"{build_status}\t{spawn_count}") == "ready\t1\n"


@pytest.mark.parametrize("words,text", [
    (["--format", "{name}"], "'name' is no field; there are id, names, public, "),
    (["--format", "{metadata.x}"], "'metadata.x' is no field"),
    (["--sort", "names"], "'names' has several values"),
    (["--filter", "template=x"], "--filter has no 'template'; there are name and status"),
    (["-q", "--json"], "exclude each other"),
    (["more"], "")])
def test_bad_options(d, words, text):
    r = d.ctl("template", "ls", *words, check=False)
    assert r.returncode == 2 and text in r.stderr and r.stdout == ""


def test_other_words(d):
    r = d.ctl("template", "rm", check=False)
    assert r.returncode == 2 and "it is ls, not 'rm'" in r.stderr


def test_all_pages(far, cloud):
    """The cloud's pages are all read; the daemon's own are of the size that is asked for."""
    for i in range(200):
        cloud.templates.append(Template("many%03dtemplatemany0" % i, "many-%d" % i, public=False, owner=cloud.team))
    want = [t.id for t in cloud.templates if t.owner is not cloud.other_team]
    assert ls(far, "-q").split() == want
    assert [r.target.count("nextToken") for r in cloud.ledger.of("templates")] == [0, 1, 1]
    with Api(far.socket) as api:
        got, token = [], ""
        while not got or token:
            page = api.call("TemplateService.List", page_size=90, page_token=token)
            assert len(page.templates) <= 90
            got += [t.id for t in page.templates]
            token = page.next_page_token
        assert got == want


def test_an_older_cloud(far, cloud):
    """One that knows the list without pages alone is asked for that."""
    cloud.lists_templates = "whole"
    assert len(rows(far)) == 5
    assert len(cloud.ledger.of("templates_whole")) == 1


@pytest.mark.parametrize("fault,code,reason", [
    (dict(status=403), "PERMISSION_DENIED", "CLOUD_FORBIDDEN"),
    (dict(status=200, body=b'[{"names":[]}]'), "UNAVAILABLE", "BAD_CLOUD_REPLY"),
    (dict(status=500), "UNAVAILABLE", "BAD_CLOUD_REPLY")])
def test_failures(far, cloud, fault, code, reason):
    """Nothing is kept here that could stand for the cloud's answer."""
    cloud.fault("templates", **fault)
    with Api(far.socket) as api, pytest.raises(ApiError) as e:
        api.call("TemplateService.List")
    assert (e.value.code, e.value.reason) == (code, reason)
