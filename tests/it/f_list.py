# SPDX-License-Identifier: MIT
"""Listings: large directories, answers of the agent that are none, pages of our own lists that fit into what every client takes."""
import contextlib
import os
import time

import pytest

import harness
from api import ApiError
from wire import Client

HERE = "/home/user/"


@pytest.fixture
def box(cloud, api):
    return api.call("SandboxService.Create").id


def names(api, box, path, **kw):
    return [f.name for f in api.stream("FileService.List", sandbox=box, path=path, **kw)]


@pytest.mark.plain
def test_large_directory(cloud, daemon, api, box):
    """B-6: the answer for a large directory is taken entry by entry, at the client's pace: it lists, and costs no memory."""
    n = 60000 if os.environ.get("SHOWS_FULL") else 6000 if harness.ASAN else 25000
    folder = cloud.files(box) + HERE + "many"
    os.mkdir(folder)
    made = {"%05d-%s" % (i, "x" * 90) for i in range(n)}
    for name in made:
        with open(os.path.join(folder, name), "wb"):
            pass
    names(api, box, HERE)
    before = daemon.rss_kb()
    got = names(api, box, HERE + "many", timeout=100)
    assert len(got) == n and set(got) == made
    listing = api.stream("FileService.List", sandbox=box, path=HERE + "many", timeout=100)
    next(listing)
    time.sleep(0.5)             # a client that does not read on
    assert harness.ASAN or daemon.rss_kb() - before < 6 << 10, daemon.rss_kb() - before
    assert sum(1 for _ in listing) == n - 1
    assert daemon.ctl("files", box + ":many", "--json").stdout.count("\n") == n


def answered(cloud, body, status=200, content_type="application/proto"):
    cloud.clear_faults()
    cloud.fault("filesystem.ListDir", times=None, status=status, body=body, content_type=content_type)


def test_listings_that_are_none(cloud, api, box):
    """B-6: what is no listing, or ends early, is a failure with its reason, behind the entries that were right."""
    entry = b"\x0a\x0b" b"\x0a\x01a" b"\x1a\x04/d/a" b"\x20\x00"
    entry = b"\x0a" + bytes([len(entry) - 2]) + entry[2:]
    answered(cloud, entry * 3)
    assert names(api, box, "/d") == ["a"] * 3
    answered(cloud, b"")
    assert names(api, box, "/d") == []
    for body, content_type in ((entry[:-1], "application/proto"), (entry + b"\x0b", "application/proto"), (entry, "text/html"),
                               (entry + b"\x0a\x81\x80\x10" + b"x" * 262145, "application/proto"),
                               (b"\x0a\x03\x0a\x01\xff", "application/proto")):
        answered(cloud, body, content_type=content_type)
        with pytest.raises(ApiError) as e:
            names(api, box, "/d")
        assert e.value.reason == "BAD_CLOUD_REPLY", (body[:30], e.value)
    cloud.clear_faults()
    cloud.fault("filesystem.ListDir", when="mid", cut=True)
    with pytest.raises(ApiError) as e:
        names(api, box, HERE)
    assert e.value.reason in ("UNREACHABLE", "BAD_CLOUD_REPLY")
    with pytest.raises(ApiError) as e:
        names(api, box, "/nowhere")
    assert e.value.reason == "FILE_NOT_FOUND"
    assert names(api, box, HERE) == []


def pages(api, method, field, **kw):
    """All elements of a list, page by page, by a client with gRPC's own limit of a message."""
    out, token, n = [], "", 0
    while True:
        r = api.call(method, page_size=1000, page_token=token, timeout=60, **kw)
        assert r.ByteSize() < 3200000, r.ByteSize()
        out += list(getattr(r, field))
        n, token = n + 1, r.next_page_token
        if not token:
            return out, n


@pytest.mark.plain
def test_pages_fit_into_a_message(cloud, daemon, api, box):
    """B-6: every gRPC client refuses more than 4 MiB unless it is told otherwise: a page ends before that, and none is lost or comes
    twice."""
    made = {box} | {cloud.make_sandbox(metadata={"k%d" % i: "v" * 900 for i in range(9)}).id for _ in range(700)}
    listed, n = harness.until(lambda: next((p for p in [pages(api, "SandboxService.List", "sandboxes", all_hosts=True)]
                                            if len(p[0]) > 1), None), 30, "a listing that has them")
    assert n >= 2 and sorted(s.id for s in listed) == sorted(made), (n, len(listed), len(made))

    started = set()
    cloud.script("big", [("exit", 0)])
    for i in range(9):
        args = ["big", "%d" % i] + ["a" * 100000] * 9
        started.add(api.call("CommandService.Start", sandbox=box, argv={"args": args}).command_id)
    listed, n = pages(api, "CommandService.List", "commands", sandbox=box, ended=True)
    assert n >= 3 and sorted(c.command_id for c in listed) == sorted(started), (n, len(listed))


def test_pages_while_commands_end(api, box):
    """A page begins behind the place of the last command of the one before, whether or not that still is in the list."""
    started = [api.call("CommandService.Start", sandbox=box, shell="sleep 1000").command_id for _ in range(5)]
    ask = {"sandbox": box, "page_size": 2}
    first = api.call("CommandService.List", **ask)
    assert len(first.commands) == 2 and first.next_page_token
    last = first.commands[-1].command_id
    api.call("CommandService.Kill", command={"command_id": last})
    api.call("CommandService.Wait", command={"command_id": last})
    assert last not in [c.command_id for c in api.call("CommandService.List", sandbox=box).commands]
    seen = [c.command_id for c in first.commands]
    token = first.next_page_token
    while token:
        page = api.call("CommandService.List", page_token=token, **ask)
        seen += [c.command_id for c in page.commands]
        token = page.next_page_token
    assert sorted(seen) == sorted(started), "none is left out, none comes twice"
    for other in ({"ended": True}, {"page_token": last}, {"page_token": "x"}):
        with pytest.raises(ApiError) as e:
            api.call("CommandService.List", **{"page_token": first.next_page_token, **ask, **other})
        assert e.value.reason == "FIELD_INVALID" and "page_token" in e.value.text


def test_pages_of_what_others_started(local, local_api):
    """Processes that have no start and no id of ours have their order by pid, and so their place."""
    other = Client(local.plain_url, local.key)
    made = other.create()
    box, identity = made["sandboxID"], other.get(made).json()
    mine = local_api.call("CommandService.Start", sandbox=box, shell="sleep 1000")
    with contextlib.ExitStack() as running:
        for _ in range(4):
            assert running.enter_context(other.start(identity, argv=["/bin/sleep", "1000"])).next()
        whole = local_api.call("CommandService.List", sandbox=box).commands
        assert [c.command_id for c in whole] == [mine.command_id] + [""] * 4
        seen, token = [], ""
        while not seen or token:
            page = local_api.call("CommandService.List", sandbox=box, page_size=1, page_token=token)
            seen += [c.pid for c in page.commands]
            token = page.next_page_token
        assert seen == [c.pid for c in whole]
    other.close()


def test_write_says_what_fits(cloud, api, box):
    """B-6: the answer to many files of long names would not fit into a message: said before they are written."""
    def files():
        for i in range(900):
            yield {"header": {"sandbox": box, "path": "/home/user/" + "/".join(["d" * 200] * 18) + "/%d" % i}}
    with pytest.raises(ApiError) as e:
        api.send("FileService.Write", files())
    assert e.value.reason == "TOO_LARGE" and "bytes" in e.value.text, e.value
