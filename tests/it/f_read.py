# SPDX-License-Identifier: MIT
"""Read of what has no size: files that the kernel makes up, answers that come compressed. What is compressed is inflated as it is
read, whatever it inflates to. (What the real agent does with such files is in the contract's corrections.)"""
import gzip
import os
import threading
import time
import zlib

import pytest

import harness
from api import ApiError

MB = 1 << 20
HERE = "/home/user/"


@pytest.fixture
def box(cloud, api):
    return api.call("SandboxService.Create").id


def link(cloud, box, name, target):
    """The fake's sandbox has a file that is one of this machine's."""
    os.symlink(target, cloud.files(box) + HERE + name)


def read(api, box, path, **kw):
    parts = list(api.stream("FileService.Read", sandbox=box, path=path, **kw))
    assert parts[0].WhichOneof("part") == "file" and parts[-1].WhichOneof("part") == "end"
    data = b"".join(p.data for p in parts)
    assert parts[-1].end.bytes == len(data)
    return data


def of(path):
    with open(path, "rb") as f:
        return f.read()


def test_files_that_the_kernel_makes_up(cloud, daemon, api, box, tmp_path):
    """B-3: the agent answers 500 to `Accept-Encoding: identity` for what it cannot seek in, and announces 4 KiB for a file of
    /sys that has six bytes; each is asked for once, compressed. Read, cat and cp give what cat gives."""
    mtu = "/sys/class/net/lo/mtu"
    link(cloud, box, "version", "/proc/version")
    link(cloud, box, "mtu", mtu)
    link(cloud, box, "null", "/dev/null")
    version = of("/proc/version")
    assert len(version) > 20 and os.stat(mtu).st_size > len(of(mtu)) > 0
    assert read(api, box, HERE + "version") == version
    assert read(api, box, HERE + "mtu") == of(mtu)
    assert read(api, box, HERE + "null") == b""
    assert read(api, box, HERE + "version", offset=6) == version[6:]
    assert read(api, box, HERE + "version", offset=6, length=7) == version[6:13]
    assert read(api, box, HERE + "version", offset=len(version)) == b""
    assert read(api, box, HERE + "version", offset=100000) == b""
    assert daemon.ctl("cat", box + ":version").stdout == version.decode()
    daemon.ctl("cp", box + ":mtu", str(tmp_path / "mtu"))
    assert of(tmp_path / "mtu") == of(mtu)
    seen = cloud.ledger.of("envd.files")
    assert len(seen) == 9 and {(r.status, r.header("accept-encoding"), r.header("range")) for r in seen} == {(200, "gzip", None)}, seen


def test_ordinary_files_are_not_compressed(cloud, api, box):
    """B-3: what has a size is sent as it is, and from where it is wanted; an empty file is an empty file."""
    with open(cloud.files(box) + HERE + "f", "wb") as f:
        f.write(b"x" * 100000)
    with open(cloud.files(box) + HERE + "empty", "wb") as f:
        f.write(b"")
    assert read(api, box, HERE + "f") == b"x" * 100000
    assert read(api, box, HERE + "f", offset=99990, length=5) == b"x" * 5
    assert [(r.status, r.header("accept-encoding"), r.header("range")) for r in cloud.ledger.of("envd.files")] == [
        (200, "identity", None), (206, "identity", "bytes=99990-99994")]
    assert read(api, box, HERE + "empty") == b""


def test_asked_for_again_as_a_stream(cloud, api, box):
    """B-3: an agent that answers 500 for a file that looked like any other is asked once more, for a stream; its 500 to that
    is the answer."""
    with open(cloud.files(box) + HERE + "f", "wb") as f:
        f.write(b"odd file")
    cloud.fault("envd.files", status=500, body=b"seeker can't seek\n", content_type="text/plain")
    assert read(api, box, HERE + "f", offset=4) == b"file"
    assert [(r.status, r.header("accept-encoding"), r.header("range")) for r in cloud.ledger.of("envd.files")] == [
        (500, "identity", "bytes=4-"), (200, "gzip", None)]
    cloud.fault("envd.files", times=None, status=500, body=b"input/output error\n", content_type="text/plain")
    with pytest.raises(ApiError) as e:
        read(api, box, HERE + "f")
    assert e.value.reason == "CLOUD_REFUSED" and len(cloud.ledger.of("envd.files")) == 4, e.value


def answered(cloud, body, coding="gzip"):
    """The next file is answered with this."""
    cloud.clear_faults()
    cloud.fault("envd.files", times=None, status=200, body=body, headers=[("Content-Encoding", coding)],
                content_type="application/octet-stream")


def test_what_inflates_and_what_does_not(cloud, api, box):
    """B-3: compressed unasked or in several pieces, it is the file all the same; cut off, garbled or coded otherwise, it is a
    failure with its reason, behind the bytes that came."""
    with open(cloud.files(box) + HERE + "f", "wb") as f:
        f.write(b"?")
    text = b"".join(b"%d\n" % i for i in range(50000))
    whole = gzip.compress(text)
    answered(cloud, whole)
    assert read(api, box, HERE + "f") == text
    assert read(api, box, HERE + "f", offset=1000, length=70000) == text[1000:71000]
    answered(cloud, gzip.compress(text[:100]) + gzip.compress(b"") + gzip.compress(text[100:]))
    assert read(api, box, HERE + "f") == text
    for body, coding, reason in ((whole[:-1], "gzip", "TRUNCATED"), (whole[:20000], "gzip", "TRUNCATED"), (b"", "gzip", "TRUNCATED"),
                                 (whole + b"garbage", "gzip", "BAD_CLOUD_REPLY"), (b"x" * 3000, "gzip", "BAD_CLOUD_REPLY"),
                                 (whole[:20000] + b"x" * 3000 + whole[23000:], "gzip", "BAD_CLOUD_REPLY"),
                                 (whole[:-8] + bytes(8), "gzip", "BAD_CLOUD_REPLY"), (text, "br", "BAD_CLOUD_REPLY"),
                                 (text, "gzip, gzip", "BAD_CLOUD_REPLY")):
        answered(cloud, body, coding)
        got = b""
        with pytest.raises(ApiError) as e:
            for p in api.stream("FileService.Read", sandbox=box, path=HERE + "f"):
                got += p.data
        assert e.value.reason == reason, (len(body), coding, e.value)
        assert reason != "TRUNCATED" or text.startswith(got) and len(got) >= min(len(body), 1) * 1000


def bomb(n_mb):
    z = zlib.compressobj(9, wbits=31)
    return b"".join([z.compress(bytes(MB)) for _ in range(n_mb)] + [z.flush()])


@pytest.mark.plain
def test_a_bomb_costs_no_memory(cloud, daemon, api, box):
    """B-3: 400 MiB in 400 KiB: unread, read and skipped over it costs no memory, and while it is skipped over the others are served."""
    with open(cloud.files(box) + HERE + "f", "wb") as f:
        f.write(b"?")
    answered(cloud, bomb(400))
    read_one = api.stream("FileService.Read", sandbox=box, path=HERE + "f", length=MB)
    assert sum(len(p.data) for p in read_one) == MB
    before = daemon.rss_kb()
    unread = [api.stream("FileService.Read", sandbox=box, path=HERE + "f") for _ in range(8)]
    for u in unread:
        assert next(u).WhichOneof("part") == "file" and next(u).WhichOneof("part") == "data"
    slowest, stop = [0.0], threading.Event()

    def ask():
        while not stop.is_set():
            began = time.monotonic()
            api.call("DaemonService.Config")
            slowest[0] = max(slowest[0], time.monotonic() - began)
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        got = b"".join(p.data for p in api.stream("FileService.Read", sandbox=box, path=HERE + "f", offset=380 * MB, length=100))
    finally:
        stop.set()
        asking.join()
    assert got == bytes(100)
    n = sum(len(p.data) for p in api.stream("FileService.Read", sandbox=box, path=HERE + "f", length=64 * MB))
    assert n == 64 * MB
    for u in unread:
        u.call.cancel()
    assert harness.ASAN or daemon.rss_kb() - before < 12 << 10, daemon.rss_kb() - before
    assert harness.ASAN or slowest[0] < 1.5, slowest
