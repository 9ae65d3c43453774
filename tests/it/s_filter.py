# SPDX-License-Identifier: MIT
"""The metadata filter of lists: more than a hundred sandboxes that differ in one character, each found alone by it, in a key and in
a value, when the cloud is asked directly and through agentboxd, fresh and cached."""
import urllib.parse

import pytest

import harness
from api import Api
from conftest import built
from fakecloud import FakeCloud
from i_wire_list import encoded, ids, rows
from wire import Client

# every one of ASCII but NUL, then of 2, 3 and 4 bytes, of two code points, some that look like others
CHARACTERS = [chr(c) for c in range(1, 0x80)] + ["".join(chr(c) for c in range(0x80, 0x100)),"é", "e\u0301", "ß", "к", "\u00a0", "€", "日", "\u202e", "🐎", "👩\u200d🚀"]


@pytest.fixture(params=["fakecloud", "agentbox-local"])
def one(request):
    """(the cloud, a daemon in front of it), with room for all."""
    built(harness.AGENTBOX_LOCAL)
    cloud = FakeCloud().start() if request.param == "fakecloud" else harness.LocalCloud(args=["--max-sandboxes", "200"])
    try:
        d = harness.Daemon(cloud)
        try:
            yield cloud, d
        finally:
            d.close()
    finally:
        cloud.stop() if request.param == "fakecloud" else cloud.close()


def test_case_066_every_character_finds_its_own(one):
    cloud, d = one
    direct = Client(cloud.plain_url, cloud.key)
    with Api(d.socket) as api:
        def found(want, cached):
            return [s.id for s in api.call("SandboxService.List", metadata=want, cached=cached).sandboxes]

        boxes = {c: api.call("SandboxService.Create", metadata={"k": "v" + c, "x" + c: "y"}, sandbox_timeout=600).id
                 for c in CHARACTERS}
        assert len(set(boxes.values())) == len(CHARACTERS)
        for c, box in boxes.items():
            for want in ({"k": "v" + c}, {"x" + c: "y"}, {"x" + c: "y", "k": "v" + c}):
                assert ids(rows(direct, "?metadata=" + encoded(want))) == [box], (c, want)
                assert found(want, False) == [box] and found(want, True) == [box], (c, want)
        for want in ({"k": "v"}, {"k": ""}, {"x": "y"}, {"k": "vé", "xe\u0301": "y"}):
            assert ids(rows(direct, "?metadata=" + encoded(want))) == []
            assert found(want, False) == found(want, True) == []
        # every level is a query's: a plus that is coded once too few is a space
        once = urllib.parse.quote("k=v" + "+", safe="=")
        assert ids(rows(direct, "?metadata=" + urllib.parse.quote(once, safe=""))) == [boxes[" "]]
