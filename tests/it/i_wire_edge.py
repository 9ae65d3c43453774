# SPDX-License-Identifier: MIT
"""Routing at the edge: hosts, headers and the refusals (cases 6 to 16), and HTTP versions (20)."""
import json
import subprocess
import time

import pytest

from wire import event_of
from wire_common import fake, real, server  # noqa: F401

UNKNOWN = {"sandboxID": "i00000000000000000000"}


def health(server, box, host=None, headers=None):
    head = server.identity(box) if headers is None else headers
    return server.request("GET", "/health", head, host=host)


def test_case_006_routing_headers_on_an_address(server):
    box = server.create()
    assert health(server, box).status == 204
    assert health(server, box, host="localhost:7000").status == 204
    assert health(server, box, host="[::1]:7000").status == 204


def test_case_006_reaches_the_port_given(real):
    box = real.create()
    with real.start(box, argv=["/usr/bin/python3", "-u", "-c",
                               "import http.server as h\n"
                               "class A(h.BaseHTTPRequestHandler):\n"
                               "  def do_GET(self):\n"
                               "    self.send_response(200); self.end_headers()\n"
                               "    self.wfile.write(('app ' + self.path + ' ' + self.headers['Host']).encode())\n"
                               "s = h.HTTPServer(('127.0.0.1', 8000), A); print('up'); s.serve_forever()"]) as s:
        events = (event_of(m) for m in s)
        assert next(e for e in events if e[0] == "stdout")[1].startswith(b"up")
        r = real.request("GET", "/a/b?c=d", real.identity(box, port=8000))
        assert r.status == 200 and r.body.startswith(b"app /a/b?c=d "), r
        r = real.request("GET", "/x", host="8000-%s.example.org" % box["sandboxID"])
        assert r.status == 200 and r.body == b"app /x 8000-%s.example.org" % box["sandboxID"].encode(), r


def test_a_3_both_spellings(server):
    """A-3: routing headers of either flavour, also mixed; one that has them never reaches the control plane."""
    box = server.create()
    names = {"E2b-Sandbox-Id": "Agentbox-Sandbox-Id", "E2b-Sandbox-Port": "Agentbox-Sandbox-Port"}
    for renamed in (names, {"E2b-Sandbox-Id": "agentbox-sandbox-id"}):
        head = [(renamed.get(n, n), v) for n, v in server.identity(box)]
        assert health(server, box, headers=head).status == 204
    gone = [(names.get(n, n), UNKNOWN["sandboxID"] if n == "E2b-Sandbox-Id" else v) for n, v in server.identity(box)]
    assert health(server, box, headers=gone).status == 502


@pytest.mark.parametrize("missing", ["E2b-Sandbox-Id", "E2b-Sandbox-Port"])
def test_case_007_one_routing_header_alone(server, missing):
    box = server.create()
    head = [h for h in server.identity(box) if h[0] != missing]
    r = health(server, box, host="localhost", headers=head)
    assert r.status == 400 and b"missing header" in r.body, r
    assert r.header("content-type").startswith("text/plain")


def test_case_008_host_wins_over_headers(server):
    one, other = server.create(), server.create(secure=False)
    head = server.identity(one)
    r = server.request("GET", "/envs", head, host="49983-%s.example.org" % other["sandboxID"])
    assert r.status == 200, r  # `other` needs no token, and `one` would have accepted its own
    server.kill(other)
    r = server.request("GET", "/health", head, host="49983-%s.example.org" % other["sandboxID"])
    assert r.status == 502 and r.json()["sandboxId"] == other["sandboxID"], r


def test_case_009_legacy_three_part_label(server):
    box = server.create()
    assert health(server, box, host="49983-%s-6532622b.example.org" % box["sandboxID"], headers=[]).status == 204


@pytest.mark.parametrize("host", ["sandbox.example.org", "nodash.example.org", "49983-.example.org"])
def test_case_010_no_routing(server, host):
    r = server.request("GET", "/health", host=host)
    assert r.status == 400, r


@pytest.mark.parametrize("bad", ["../x", "UPPERCASE", "a b", "x/y", "i\u00e9"])
def test_case_011_malformed_id(server, bad):
    head = [("E2b-Sandbox-Id", bad.encode("utf-8").decode("latin-1")), ("E2b-Sandbox-Port", "49983")]
    r = server.request("GET", "/health", head)
    assert r.status == 400, r


def test_case_011_malformed_port(server):
    box = server.create()
    for bad in ("x", "-1", "1.5", "99999999999999999999999"):
        r = server.request("GET", "/health", [("E2b-Sandbox-Id", box["sandboxID"]), ("E2b-Sandbox-Port", bad)])
        assert r.status in (400, 502), (bad, r)


def test_case_012_unknown_sandbox(server):
    r = health(server, UNKNOWN)
    assert r.status == 502, r
    assert r.header("content-type").startswith("application/json")
    body = r.json()
    assert body["sandboxId"] == UNKNOWN["sandboxID"] and body["code"] == 502 and body["message"]
    assert "port" not in body


def test_case_013_killed_sandbox(server):
    box = server.create()
    assert server.kill(box).status == 204
    r = health(server, box)
    assert r.status == 502 and "port" not in r.json() and r.json()["sandboxId"] == box["sandboxID"], r


def test_case_013_paused_sandbox(server):
    box = server.create()
    assert server.api("POST", "/sandboxes/%s/pause" % box["sandboxID"]).status == 204
    r = health(server, box)
    assert r.status == 502 and "port" not in r.json(), r


def test_case_014_closed_port(server):
    box = server.create()
    begin = time.monotonic()
    r = server.request("GET", "/", server.identity(box, port=1))
    assert r.status == 502, r
    assert r.json()["port"] == 1 and r.json()["code"] == 502 and r.json()["sandboxId"] == box["sandboxID"]
    assert time.monotonic() - begin < 3


def test_case_015_browsers_get_html(server):
    head = server.identity(UNKNOWN) + [("User-Agent", "Mozilla/5.0 (X11) Firefox/120.0")]
    r = server.request("GET", "/health", head)
    assert r.status == 502 and r.header("content-type").startswith("text/html"), r
    r = server.request("GET", "/health", head + [("Accept", "application/json")])
    assert r.status == 502 and r.json()["code"] == 502
    r = server.request("GET", "/health", head + [("Sec-Fetch-Mode", "cors")])
    assert r.json()["code"] == 502
    r = server.request("GET", "/health", head + [("X-Requested-With", "XMLHttpRequest")])
    assert r.json()["code"] == 502
    r = server.request("GET", "/health", head + [("X-Requested-With", "x"), ("Sec-Fetch-Mode", "navigate")])
    assert r.header("content-type").startswith("text/html")


@pytest.mark.parametrize("path", ["/init", "//init", "/%69nit", "/files/../init", "/freeze", "/fsthaw"])
def test_case_016_internal_routes(server, path):
    box = server.create()
    r = server.envd(box, "POST", path, body=b"{}")
    assert r.status == 404, r
    body = r.json()
    assert body["code"] == 404 and "path" in body and "sandboxId" not in body


@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
def test_case_020_tls_offers_both_versions(server, version):
    out = subprocess.run(["curl", "-sS", version, "--cacert", server.cloud.ca, "-w", "%{http_version} %{http_code}",
                          "-o", "/dev/null", "-H", "X-API-Key: " + server.key, server.cloud.url + "/v2/sandboxes"],
                         capture_output=True, text=True, timeout=30)
    assert out.stdout == ("1.1 200" if version == "--http1.1" else "2 200"), out


def test_case_020_prefers_http2(server):
    out = subprocess.run(["curl", "-sS", "--cacert", server.cloud.ca, "-w", "%{http_version}", "-o", "/dev/null",
                          server.cloud.url + "/health"], capture_output=True, text=True, timeout=30)
    assert out.stdout == "2", out


def test_case_020_plain_streams_are_chunked(server):
    box = server.create()
    with server.start(box, "echo hi") as s:
        assert s.response.getheader("transfer-encoding") == "chunked"
        assert s.response.getheader("content-type") == "application/connect+json"
        assert [event_of(m)[0] for m in s][0] == "start"
    assert s.end == {}


def test_h2c_with_prior_knowledge(server):
    out = subprocess.run(["curl", "-sS", "--http2-prior-knowledge", "-w", "\n%{http_version}",
                          "-H", "X-API-Key: " + server.key, server.cloud.plain_url + "/v2/sandboxes"],
                         capture_output=True, text=True, timeout=30)
    body, version = out.stdout.rsplit("\n", 1)
    assert version == "2" and isinstance(json.loads(body), list), out
