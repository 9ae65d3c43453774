# SPDX-License-Identifier: MIT
"""curl, over HTTP/1.1 and HTTP/2, in clear and over TLS: a sandbox, a command, files up and down, many on one
connection."""
import json
import os
import struct
import subprocess

import pytest

from harness import temp_dir
from wire import multipart
from wire_common import fake, real, server  # noqa: F401

WAYS = {"http1": ("plain", "--http1.1"), "h2c": ("plain", "--http2-prior-knowledge"), "tls1": ("tls", "--http1.1"),
        "tls2": ("tls", "--http2")}


@pytest.fixture(params=sorted(WAYS))
def curl(request, server):
    """Runs curl on this server in one of the ways: curl(path, *args) -> (status, body)."""
    kind, flag = WAYS[request.param]
    base = server.cloud.plain_url if kind == "plain" else server.cloud.url

    def run(path, *args, data=None):
        argv = ["curl", "-sS", flag, "--max-time", "60", "-w", "\n%{http_code}", base + path] + list(args)
        if kind == "tls":
            argv += ["--cacert", server.cloud.ca]
        r = subprocess.run(argv, capture_output=True, input=data, timeout=90)
        assert r.returncode == 0, r.stderr
        body, _, status = r.stdout.rpartition(b"\n")
        return int(status), body
    run.base = base
    run.argv = [flag] + (["--cacert", server.cloud.ca] if kind == "tls" else [])
    return run


@pytest.fixture
def folder():
    import shutil
    d = temp_dir()
    yield d
    shutil.rmtree(d)


def heads(pairs):
    out = []
    for k, v in pairs:
        out += ["-H", "%s: %s" % (k, v)]
    return out


def test_a_sandbox_and_a_command(server, curl):
    key = ["-H", "X-API-Key: " + server.key, "-H", "Content-Type: application/json"]
    status, body = curl("/sandboxes", *key, "-d", '{"templateID":"base","timeout":60,"secure":true}')
    assert status == 201, body
    box = json.loads(body)
    server.made.append(box["sandboxID"])
    request = json.dumps({"process": {"cmd": "/bin/sh", "args": ["-c", "echo out; echo err >&2; exit 5"]}}).encode()
    status, body = curl("/process.Process/Start", *heads(server.identity(box)), "-H",
                        "Content-Type: application/connect+json", "--data-binary", "@-",
                        data=struct.pack(">BI", 0, len(request)) + request)
    assert status == 200 and b'"stdout"' in body and b'"stderr"' in body, body
    assert b'"exitCode":5' in body.replace(b" ", b"") and body.endswith(b"{}"), body
    status, body = curl("/sandboxes/" + box["sandboxID"], *key, "-X", "DELETE")
    assert status == 204 and body == b""
    assert curl("/sandboxes/" + box["sandboxID"], *key)[0] == 404


def test_many_small_parts_in_one_body(server, curl, folder):
    """Heads and boundaries lie across the pieces in which a body is received: the large part, which is written as it comes, makes the
    window grow, and while the small ones are opened one by one more comes."""
    box = server.create()
    files = [("/home/user/p/large", b"x" * (6 << 20))]
    files += [("/home/user/p/%d" % i, b"%d\n" % i * (i % 250)) for i in range(900)]
    content_type, body = multipart(files)
    with open(folder + "/body", "wb") as f:
        f.write(body)
    status, got = curl("/files", *heads(server.identity(box)), "-H", "Content-Type: " + content_type, "--data-binary",
                       "@" + folder + "/body")
    assert status == 200, got
    assert [e["path"] for e in json.loads(got)] == [name for name, _ in files]
    for name, data in files[-20:]:
        assert server.read(box, name).body == data


def test_files_up_and_down(server, curl, folder):
    box = server.create()
    identity = heads(server.identity(box))
    up, down = os.path.join(folder, "up"), os.path.join(folder, "down")
    data = os.urandom(1 << 20) * 20
    with open(up, "wb") as f:
        f.write(data)
    status, body = curl("/files?path=/home/user/big", *identity, "-H", "Content-Type: application/octet-stream",
                        "--data-binary", "@" + up)
    assert status == 200, body
    status, _ = curl("/files?path=/home/user/big", *identity, "-o", down)
    with open(down, "rb") as f:
        assert status == 200 and f.read() == data
    status, body = curl("/files?path=/home/user/form", *identity, "-F", "file=@%s;filename=x" % up)
    assert status == 200, body
    assert server.stat(box, "/home/user/form")["size"] == str(len(data))
    status, body = curl("/files?path=/home/user/big", *identity, "-r", "5-14")
    assert status == 206 and body == data[5:15]


def test_upload_of_unknown_length(server, curl):
    box = server.create()
    data = os.urandom(3 << 20)
    status, body = curl("/files?path=piped", *heads(server.identity(box)), "-H",
                        "Content-Type: application/octet-stream", "-X", "POST", "-T", "-", data=data)
    assert status == 200, body
    assert server.read(box, "piped").body == data


def test_many_on_one_connection(server, curl):
    if "--http2-prior-knowledge" in curl.argv:
        pytest.skip("curl 7.88 cannot use a connection with prior knowledge twice, with any server")
    box = server.create()
    argv = ["curl", "-sS"] + curl.argv + ["-w", "%{http_code} %{num_connects}\n", "-o", "/dev/null"]
    argv += heads(server.identity(box)) + [curl.base + "/health"]
    for _ in range(30):
        argv += ["--next", "-sS"] + curl.argv + ["-w", "%{http_code} %{num_connects}\n", "-o", "/dev/null"]
        argv += heads(server.identity(box)) + [curl.base + "/health"]
    r = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    lines = r.stdout.split("\n")[:-1]
    assert [x.split()[0] for x in lines] == ["204"] * 31, r
    assert sum(int(x.split()[1]) for x in lines) == 1, lines


def test_parallel_on_http2(server):
    """Sixty requests at once over one connection."""
    box = server.create()
    server.write(box, "f", b"x" * 100_000)
    argv = ["curl", "-sS", "--http2", "--parallel", "--parallel-max", "60", "--cacert", server.cloud.ca,
            "-w", "%{http_code} %{size_download}\n"]
    argv += heads(server.identity(box))
    for _ in range(60):
        argv += ["-o", "/dev/null", server.cloud.url + "/files?path=f"]
    r = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert r.stdout.split("\n")[:-1] == ["200 100000"] * 60, r


def test_stream_comes_as_it_is_made(server, curl):
    """curl -N shows the first output long before the command ends."""
    box = server.create()
    request = json.dumps({"process": {"cmd": "/bin/sh", "args": ["-c", "echo first; sleep 30"]}}).encode()
    argv = ["curl", "-sSN"] + curl.argv + heads(server.identity(box)) + [
        "-H", "Content-Type: application/connect+json", "--data-binary", "@-", curl.base + "/process.Process/Start"]
    p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        p.stdin.write(struct.pack(">BI", 0, len(request)) + request)
        p.stdin.close()
        seen = b""
        while b"Zmlyc3QK" not in seen:  # base64 of "first\n"
            more = os.read(p.stdout.fileno(), 4096)
            assert more, seen
            seen += more
    finally:
        p.kill()
        p.wait()
        p.stdout.close()
