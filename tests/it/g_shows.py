# SPDX-License-Identifier: MIT
"""What GATEWAY §4 asks for in figures, each with its limit and the verdict (tests/shows.sh prints them)."""
import asyncio
import html
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import threading

import pytest

import harness
from g_made_token import UnixHttp
from wire import Client
from w_door import new_token, port_of, root_only, runs, runtime, user_daemon       # noqa: F401 (fixtures)

CREATES = 100           # of each of two uids
IN_FLIGHT = 20
FULL = os.environ.get("SHOWS_FULL") == "1"


def row(what, value, limit, unit):
    holds = value <= limit
    print("%s: %.1f %s, limit %.1f %s: %s" % (what, value, unit, limit, unit, "holds" if holds else "DOES NOT HOLD"))
    return holds


# --- 200 creates at once

class Narrow:
    """A cloud that works on so many creates at once, for a while each, and answers 429 to more."""

    def __init__(self, cloud, seconds):
        self.now = self.most = self.refused = 0
        self.done = []              # uids, in the order of their creates' ends
        rest, act = cloud.rest, cloud.rest.do_create

        async def create(seen, team, values, query, body):
            if self.now >= IN_FLIGHT:
                self.refused += 1
                return 429, {"code": 429, "message": "too many requests in flight"}, [("retry-after", "1")]
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                await asyncio.sleep(seconds)
                return await act(seen, team, values, query, body)
            finally:
                self.now -= 1
                self.done.append(body["metadata"]["agentbox.uid"])
        rest.do_create = create


@root_only
def test_two_hundred_creates_of_two_uids(cloud):
    """GATEWAY §4.2: a cloud with 20 places, 200 creates at once by two uids: no error, and neither waits for the other's."""
    narrow = Narrow(cloud, 0.1)
    folder = harness.temp_dir("abx-")
    os.chmod(folder, 0o755)
    path = os.path.join(folder, "gw")
    d = harness.Daemon(cloud, {"gateway": {"listen": "none", "socket": path}}, args=("--system",))
    os.chmod(d.home, 0o755)
    answers = []

    def create(token):
        c = UnixHttp(path)
        c.timeout = 120
        c.request("POST", "/sandboxes", json.dumps({"templateID": "base", "timeout": 300}),
                  {"X-API-Key": token, "Content-Type": "application/json"})
        r = c.getresponse()
        answers.append((r.status, r.read()))
        c.close()

    try:
        tokens = [subprocess.run(harness.as_user(uid, [harness.AGENTBOXCTL, "--socket", d.socket, "token", "create"]), check=True,
                                 capture_output=True, text=True, timeout=30).stdout.strip() for uid in (61001, 61002)]
        threads = [threading.Thread(target=create, args=(t,)) for t in tokens for _ in range(CREATES)]     # one uid's first, then the other's
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        errors = [a for a in answers if a[0] != 201]
        half = narrow.done[:CREATES]
        share = 100 * max(half.count(u) for u in set(half)) / len(half)
        ok = [row("creates that failed, of 200", len(errors), 0, ""),
              row("creates at once at the cloud", narrow.most, IN_FLIGHT, ""),
              row("share of one uid in the first half", share, 75, "%")]
        print("the cloud said 429 %d times" % narrow.refused)
        assert all(ok), errors[:3]
        assert len({json.loads(a[1])["sandboxID"] for a in answers}) == 2 * CREATES
    finally:
        d.close()
        shutil.rmtree(folder, ignore_errors=True)


# --- a line of 20 ms

class Line:
    """A relay on a thread of its own: each byte is 10 ms on its way, in either direction, and as many as may come are."""

    def __init__(self, port, one_way=0.010):
        self.to, self.one_way = port, one_way
        self.loop = asyncio.new_event_loop()
        self.server = self.loop.run_until_complete(asyncio.start_server(self.serve, "127.0.0.1", 0, limit=1 << 22))
        self.port = self.server.sockets[0].getsockname()[1]
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    async def serve(self, reader, writer):
        try:
            there = await asyncio.open_connection("127.0.0.1", self.to, limit=1 << 22)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self.pipe(reader, there[1]), self.pipe(there[0], writer), return_exceptions=True)

    async def pipe(self, reader, writer):
        writer.transport.set_write_buffer_limits(high=1 << 24)
        while True:
            data = await reader.read(1 << 20)
            self.loop.call_later(self.one_way, writer.write if data else lambda _: writer.close(), data)
            if not data:
                return

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)


def rate(url, head, size, *words):
    """MB/s of one answer, by curl."""
    argv = ["curl", "-sS", *words, "-o", "/dev/null", "-w", "%{speed_download} %{size_download} %{http_code}", "--noproxy", "*", url]
    for k, v in head:
        argv += ["-H", "%s: %s" % (k, v)]
    out = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=True).stdout.split()
    assert out[2] == "200" and int(out[1]) == size, out
    return float(out[0]) / 1e6


def test_one_stream_over_a_line_of_20_ms(local):
    """GATEWAY §4.5: 50 MB/s of one stream, where each byte is 20 ms there and back."""
    size = (256 if FULL else 32) << 20
    line = Line(int(local.url.rpartition(":")[2]))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    far = "https://localhost:%d" % line.port
    d = harness.Daemon(local, {"gateway": {"listen": "127.0.0.1:%d" % port}, "account default": {"sandbox_url": far}})
    try:
        harness.until(lambda: "gateway listen=" in d.log(), 20, "the gateway", d)
        box = d.ctl("create").stdout.strip()
        token = d.ctl("token", "create").stdout.strip()
        d.ctl("exec", box, "--", "sh", "-c", "head -c %d /dev/zero > /tmp/big" % size, timeout=120)
        head = [("agentbox-sandbox-id", box), ("agentbox-sandbox-port", "49983"), ("agentboxd-token", token)]
        path = "/files?path=/tmp/big&username=user"
        best = max(rate("http://127.0.0.1:%d%s" % (port, path), head, size) for _ in range(3))
        secret = [("x-access-token", Client(local.plain_url, local.key).get({"sandboxID": box}).json()["envdAccessToken"])]
        direct = rate(far + path, head[:2] + secret, size, "--cacert", local.ca)
        print("curl itself over that line: %.1f MB/s" % direct)
        print("one stream over a line of 20 ms: %.1f MB/s, limit at least 50.0 MB/s: %s" % (best, "holds" if best >= 50 else "DOES NOT HOLD"))
        assert best >= 50 or not FULL
    finally:
        d.close()
        line.close()


# --- a web page, in a real browser

BROWSER = shutil.which("chromium")

PAGE = """<!doctype html><title>t</title><body><iframe name=f></iframe><form id=form method=post target=f action="%(gate)s/sandboxes"
enctype="text/plain"><input name='{"templateID":"base","a":"' value='"}'></form><pre id=out></pre><script>
const out = {}, gate = "%(gate)s", token = "%(token)s";
const tried = (name, p) => p.then(v => out[name] = String(v), e => out[name] = "refused");
document.getElementById("form").submit();
Promise.all([
  tried("fetch", fetch(gate + "/sandboxes", {headers: {"X-API-Key": token}}).then(r => r.text())),
  tried("simple", fetch(gate + "/sandboxes", {headers: {"Authorization": "Bearer " + token}}).then(r => r.text())),
  tried("blind", fetch(gate + "/sandboxes", {method: "POST", mode: "no-cors", body: '{"templateID":"base"}'}).then(r => r.type)),
  tried("port", fetch("http://%(label)s/", {}).then(r => r.text())),
  tried("rebound", fetch("http://%(rebound)s/sandboxes", {headers: {"X-API-Key": token}}).then(r => r.text())),
  tried("socket", new Promise((yes, no) => { const w = new WebSocket("ws://%(label)s/"); w.onopen = () => yes("open"); w.onerror = no; })),
  new Promise(r => setTimeout(r, 1500)),
]).then(() => { document.getElementById("out").textContent = JSON.stringify(out); document.title = "done"; });
</script>"""


class Site(http.server.BaseHTTPRequestHandler):
    text = ""

    def do_GET(self):
        data = self.text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.mark.skipif(not BROWSER, reason="no Chromium here (the package chromium)")
def test_a_page_in_a_browser(user_daemon, cloud):
    """GATEWAY §4.4: a page of another origin that even knows a token, by fetch, form, WebSocket and a rebound name."""
    port, token = port_of(user_daemon), new_token(user_daemon)
    box = user_daemon.ctl("create").stdout.strip()
    home = harness.temp_dir("abb-")
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    names = {"gate": "http://localhost:%d" % port, "token": token, "label": "3000-%s.localhost:%d" % (box, port),
             "rebound": "rebound.example:%d" % port}
    Site.text = PAGE % names
    threading.Thread(target=site.serve_forever, daemon=True).start()
    before = len(cloud.ledger.requests)
    try:
        argv = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server",
                "--user-data-dir=" + home, "--host-resolver-rules=MAP *.example 127.0.0.1, MAP *.localhost 127.0.0.1",
                "--virtual-time-budget=8000", "--dump-dom", "http://page.example:%d/" % site.server_port]
        dom = subprocess.run(argv, capture_output=True, text=True, timeout=120, env=dict(os.environ, HOME=home)).stdout
        said = re.search(r"<pre id=\"?out\"?>(.*?)</pre>", dom, re.S)
        assert said, dom[-2000:]
        out = json.loads(html.unescape(said.group(1)))
        print("a page in %s: %s" % (os.path.basename(BROWSER), out))
        made = [s for s in cloud.ledger.requests[before:] if s.route == "create" or s.target == "/"]
        assert set(out) == {"fetch", "simple", "blind", "port", "rebound", "socket"}
        assert out["blind"] in ("refused", "opaque")        # it is sent, and the page may not read the 403
        port_said = out.pop("port")                         # as the edge does, it lets pages read its errors
        assert port_said == "refused" or '"code":403' in port_said
        out.pop("blind")
        assert set(out.values()) == {"refused"} and not made
    finally:
        site.shutdown()
        shutil.rmtree(home, ignore_errors=True)
