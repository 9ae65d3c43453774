# SPDX-License-Identifier: MIT
"""What operators see: the lines of the log."""
import contextlib
import os
import re

import pytest

from api import Api, ApiError
from harness import until

def fields(line):
    """The keys and values of a line of the log."""
    return {k: q if q is not None and v.startswith('"') else v
            for k, v, q in ((m[1], m[2], m[3]) for m in re.finditer(r'(\w+)=("((?:[^"\\]|\\.)*)"|\S*)', line))}


# -- the log

def logged(d, kind):
    return [fields(x) for x in d.log().splitlines() if re.match(r"\S+ +\w+ +%s " % kind, x)]


def test_a_failed_call_is_one_line(cloud, daemon, api):
    """Who, which request, why and how long."""
    with pytest.raises(ApiError):
        api.call("SandboxService.Create", request_id="job 17", template="base", sandbox_timeout=10 ** 9)
    with pytest.raises(ApiError):
        api.call("SandboxService.Get", sandbox="nosuch")
    a, b = until(lambda: len(found := logged(daemon, "call_failed")) == 2 and found, 10, "two lines", daemon)
    assert a["req"] == "job 17" and a["method"] == "/agentbox.v1.SandboxService/Create" and a["reason"] == "FIELD_INVALID"
    assert b["sandbox"] == "nosuch" and b["reason"] == "SANDBOX_NOT_FOUND" and b["code"] == "NOT_FOUND"
    for x in (a, b):
        assert x["uid"] == str(os.getuid()) and x["pid"] == str(os.getpid()) and 0 <= int(x["duration_us"]) < 60e6 and x["error"]


def test_an_outage_is_two_lines(cloud, daemon, api):
    """Its third failure in a row, and its end with the count; in between nothing."""
    api.call("SandboxService.Create")
    cloud.refuse()
    for _ in range(6):
        with pytest.raises(ApiError):
            api.call("SandboxService.Create", timeout=3)
    cloud.refuse(False)
    until(lambda: created(api), 30, "the cloud", daemon)
    daemon.wait_log("cloud_over ")
    begun, over = logged(daemon, "cloud_outage"), logged(daemon, "cloud_over")
    assert len(begun) == 1 and begun[0]["reason"] in ("UNREACHABLE", "DEADLINE_REQUEST") and begun[0]["error"]
    assert len(over) == 1 and int(over[0]["failed"]) >= 3


def created(api):
    with contextlib.suppress(ApiError):
        return api.call("SandboxService.Create", timeout=5).id
