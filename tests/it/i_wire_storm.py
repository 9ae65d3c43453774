# SPDX-License-Identifier: MIT
"""Many clients change the same few sandboxes at once: every answer is one of the contract's, none of them a failure of
the server, and nothing is left at the end."""
import os
import random
import threading
import time
import urllib.parse

from harness import until
from wire import CUT, Client
from wire_common import own  # noqa: F401

SECONDS, CLIENTS = 5, 6


def step(c, rnd):
    """One random call: its name and its reply."""
    ids = [s["sandboxID"] for s in c.api("GET", "/v2/sandboxes").json()]
    path = "/sandboxes/%s" % rnd.choice(ids) if ids else None
    name = rnd.choice(("create", "restore", "pause", "files", "connect", "fork", "snap", "forget", "kill", "run", "end"))
    if not path or name == "create":
        body = {"templateID": "base", "timeout": rnd.choice((1, 60)), "autoPause": rnd.random() < 0.5}
        return "create", c.api("POST", "/sandboxes", body)
    if name == "restore":
        return name, c.api("POST", "/sandboxes", {"templateID": rnd.choice("ab"), "timeout": 2})
    if name == "pause":
        return name, c.api("POST", path + "/pause")
    if name == "files":
        return name, c.api("POST", path + "/pause", {"memory": False})
    if name == "connect":
        return name, c.api("POST", path + "/connect", {"timeout": 5})
    if name == "fork":
        return name, c.api("POST", path + "/fork", {"count": 2, "timeout": 3})
    if name == "snap":
        return name, c.api("POST", path + "/snapshots", {"name": rnd.choice("ab")})
    if name == "forget":
        return name, c.api("DELETE", "/templates/" + rnd.choice("ab"))
    if name == "kill":
        return name, c.api("DELETE", path)
    if name == "end":
        return name, c.api("POST", path + "/timeout", {"timeout": rnd.choice((0, 1))})
    with c.stream({"sandboxID": path[11:]}, "process.Process/Start",
                  {"process": {"cmd": "/bin/sh", "args": ["-c", "echo hi; sleep 0.1"]}}) as s:
        if s.status == 200:
            for _ in s:
                pass
        return name, s


def test_storm(own, tmp_path):
    c, cloud = own("--max-sandboxes", "10", folder=str(tmp_path))
    end, seen, wrong = time.monotonic() + SECONDS, set(), []

    def client(n):
        rnd, mine = random.Random(n), Client(cloud.plain_url, cloud.key)
        while time.monotonic() < end:
            try:
                name, r = step(mine, rnd)
            except CUT:
                continue
            seen.add(name)
            allowed = (200, 201, 204, 400, 404, 409, 429) + ((502,) if name == "run" else ())
            if r.status not in allowed:
                wrong.append((name, r))
    clients = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
    for t in clients:
        t.start()
    for t in clients:
        t.join(60)
    assert not wrong, wrong[:5]
    assert len(seen) > 8, seen
    for s in c.api("GET", "/v2/sandboxes").json():
        assert c.api("DELETE", "/sandboxes/" + s["sandboxID"]).status in (204, 404)
    for s in c.api("GET", "/snapshots").json():
        assert c.api("DELETE", "/templates/" + urllib.parse.quote(s["snapshotID"], safe="")).status == 204
    layers = os.path.join(cloud.state_dir, "layers")
    until(lambda: not os.listdir(layers), 10, "the last layer to go")
    boxes = os.path.join(cloud.state_dir, "engine", "containers")
    until(lambda: not os.listdir(boxes), 10, "the last sandbox's files to go")
