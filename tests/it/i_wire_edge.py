# SPDX-License-Identifier: MIT
"""Routing at the edge: hosts, headers and the refusals (cases 6 to 16), and HTTP versions (20)."""
import json
import subprocess
import time
import urllib.parse

import pytest

from wire import event_of, signature
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


# -- one address for both planes: what the request is tells them apart

def test_a_5_routing_headers_on_the_control_plane(real):
    """A-5: old SDKs send them on every call, and the key with it; the agent never gets a key."""
    box = real.create()
    for name in ("E2b-Sandbox-Id", "Agentbox-Sandbox-Id"):
        head = [(name, box["sandboxID"])] + [(name.replace("Id", "Port"), "49983")]
        for method, path, body, want in (("POST", "/sandboxes/%s/connect" % box["sandboxID"], {"timeout": 60}, 200),
                                         ("GET", "/sandboxes/" + box["sandboxID"], None, 200),
                                         ("POST", "/sandboxes/%s/timeout" % box["sandboxID"], {"timeout": 60}, 204),
                                         ("POST", "/sandboxes/%s/pause" % box["sandboxID"], {}, 204),
                                         ("POST", "/sandboxes/%s/resume" % box["sandboxID"], {"timeout": 60}, 201),
                                         ("GET", "/v2/sandboxes", None, 200), ("GET", "/secrets", None, 501),
                                         ("PATCH", "/sandboxes", None, 400)):
            assert real.api(method, path, body, headers=head).status == want, (method, path)
    # without a key it is nobody's call of the control plane, and other ports are programs that may have any path
    assert real.request("GET", "/v2/sandboxes", real.identity(box)).status == 404
    r = real.request("GET", "/v2/sandboxes", real.identity(box, port=8000) + [("X-API-Key", real.key)])
    assert r.status == 502 and r.json()["port"] == 8000, r
    r = real.request("GET", "/health", real.identity(box) + [("X-API-Key", real.key)])
    assert r.status == 204, r
    real.kill(box)
    assert real.request("GET", "/health", real.identity(box) + [("X-API-Key", real.key)]).status == 502


def link(box, path, method="GET", user="", exp=None, token=None):
    q = {"path": path, "signature": signature(path, "write" if method == "POST" else "read", user, token or box["envdAccessToken"], exp)}
    if user:
        q["username"] = user
    if exp is not None:
        q["signature_expiration"] = exp
    return "/files?" + urllib.parse.urlencode(q)


def test_e_2_links_without_routing_headers(real):
    """E-2: of two sandboxes a link reaches the one whose token signed it."""
    one, other = real.create(), real.create()
    for box, text in ((one, b"one"), (other, b"other")):
        real.write(box, "/home/user/f", text)
    for box, text in ((one, b"one"), (other, b"other")):
        r = real.request("GET", link(box, "/home/user/f"))
        assert (r.status, r.body) == (200, text), r
        assert real.request("GET", link(box, "/home/user/f", user="root", exp=int(time.time()) + 60)).body == text
        r = real.request("POST", link(box, "/home/user/w", "POST"), [("Content-Type", "application/octet-stream")], text)
        assert r.status == 200 and real.read(box, "/home/user/w").body == text, r
    for bad in (link(one, "/home/user/f", token="0" * 64), link(one, "/home/user/f", exp=1),
                link(one, "/home/user/f").replace("%2Ff", "%2Fg"), link(one, "/home/user/f", "POST")):
        r = real.request("GET", bad)
        assert r.status == 401 and r.json()["code"] == 401, (bad, r)
    r = real.request("OPTIONS", link(one, "/home/user/w", "POST"), [("Origin", "http://x"), ("Access-Control-Request-Method", "POST")])
    assert r.status < 300, r
    assert real.api("POST", "/sandboxes/%s/pause" % one["sandboxID"], {}).status == 204
    assert real.request("GET", link(one, "/home/user/f")).status == 502
    real.kill(one)
    assert real.request("GET", link(one, "/home/user/f")).status == 401


def test_e_2_a_token_names_its_sandbox(real):
    """E-2: the oldest SDKs call the agent with its token and no routing headers."""
    one, other = real.create(), real.create()
    real.write(one, "/home/user/f", b"one")
    head = [("X-Access-Token", one["envdAccessToken"])]
    assert real.request("GET", "/health", head).status == 204
    assert real.request("GET", "/files?path=f", head).body == b"one"
    r = real.request("POST", "/filesystem.Filesystem/Stat", head + [("Content-Type", "application/json")], b'{"path":"/home/user/f"}')
    assert r.status == 200 and r.json()["entry"]["size"] == "3", r
    assert real.request("GET", "/files?path=f", [("X-Access-Token", other["envdAccessToken"])]).status == 404
    real.kill(one)
    for path in ("/health", "/files?path=f"):       # never the control plane's answer: is_running() would be true
        assert real.request("GET", path, head).status == 502, path
    for path in ("/files?path=f", "/envs", "/process.Process/List"):
        r = real.request("GET", path)
        assert r.status == 400 and b"routing headers" in r.body, (path, r)
    assert real.request("GET", "/health").status == 200
    # a key with a route of the control plane is a call of the control plane, whatever else is there
    assert real.api("GET", "/v2/sandboxes", headers=head).status == 200
