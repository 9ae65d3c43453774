# SPDX-License-Identifier: MIT
"""The HTTP layer by itself (http_probe) against programs of others: our server before curl, nghttp, h2load and node;
our client before nghttpd, Python's http.server and node; in clear and over TLS."""
import http.server
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading

import pytest

import harness

PROBE = os.path.join(harness.BUILD, "tests", "it", "http_probe")
NODE = shutil.which("node")
PATTERN = bytes((k * 7 + 3) & 255 for k in range(65536))


def pattern_sum(n):
    return sum(PATTERN) * (n // 65536) + sum(PATTERN[:n % 65536])


def run(argv, timeout=60, **kw):
    return subprocess.run(argv, capture_output=True, timeout=timeout, **kw)


@pytest.fixture(scope="module")
def certs():
    """A CA and a certificate for localhost and 127.0.0.1."""
    d = harness.temp_dir("http-")
    run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=Probe CA", "-keyout", d + "/ca.key", "-out", d + "/ca.pem"], check=True)
    run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost",
         "-keyout", d + "/s.key", "-out", d + "/s.csr"], check=True)
    with open(d + "/ext", "w") as f:
        f.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    run(["openssl", "x509", "-req", "-days", "2", "-in", d + "/s.csr", "-CA", d + "/ca.pem", "-CAkey", d + "/ca.key",
         "-CAcreateserial", "-extfile", d + "/ext", "-out", d + "/s.pem"], check=True)
    yield d
    shutil.rmtree(d)


class Server(harness.Program):
    def __init__(self, *args):
        if not os.path.exists(PROBE):
            pytest.fail("http_probe is not built in %s" % harness.BUILD)
        super().__init__("http_probe", [PROBE, "serve"] + list(args))
        self.port = int(harness.until(lambda: re.search(r"port (\d+)", self.log()), 10, "http_probe", self).group(1))

    def end(self):
        self.stop()
        self.check_sanitizer()


@pytest.fixture
def plain():
    s = Server()
    yield s
    s.end()


@pytest.fixture
def tls(certs):
    s = Server("--cert", certs + "/s.pem", "--key", certs + "/s.key")
    yield s
    s.end()


def get(host, port, path, *args, ok=True):
    """Our client. Returns the fields of each answer, or the line of its failure."""
    if not os.path.exists(PROBE):
        pytest.fail("http_probe is not built in %s" % harness.BUILD)
    r = run([PROBE, "get", host, str(port), path] + list(args))
    lines = r.stdout.decode().splitlines()
    assert (r.returncode == 0) == ok, (lines, r.stderr)
    return [dict(f.split("=") for f in line.split()) for line in lines] if ok else lines[-1]


# -- our server

CURL = {"http1": ("plain", "--http1.1", "1.1"), "h2c": ("plain", "--http2-prior-knowledge", "2"),
        "tls1": ("tls", "--http1.1", "1.1"), "tls2": ("tls", "--http2", "2")}


@pytest.fixture(params=sorted(CURL))
def curl(request, plain, tls, certs):
    kind, flag, version = CURL[request.param]
    base = "http://127.0.0.1:%d" % plain.port if kind == "plain" else "https://127.0.0.1:%d" % tls.port

    def go(*args, data=None):
        argv = ["curl", "-sS", flag, "--max-time", "50", "--cacert", certs + "/ca.pem", "-w", "%{stderr}%{http_version} "
                "%{num_connects} %{http_code}\n"] + [a.replace("BASE", base) for a in args]
        r = run(argv, input=data)
        assert r.returncode == 0, r.stderr
        lines = r.stderr.decode().splitlines()
        assert all(line.split()[0] == version for line in lines), lines
        return r.stdout, [line.split()[1:] for line in lines]
    go.way = request.param
    return go


def test_curl_gets(curl):
    # curl 7.88 cannot use an HTTP/2 connection with prior knowledge twice in a row, with nghttpd neither
    urls = ["BASE/"] if curl.way == "h2c" else ["BASE/", "BASE/a", "BASE/b"]
    body, lines = curl(*urls)
    assert body == b"hello\n" * len(urls)
    assert [n for n, _ in lines] == ["1", "0", "0"][:len(urls)]  # one connection


def test_curl_down(curl):
    body, _ = curl("BASE/bytes/5000000")
    assert body == (PATTERN * 77)[:5000000]


def test_curl_up_and_back(curl):
    data = os.urandom(3000000)
    body, _ = curl("--data-binary", "@-", "BASE/echo", data=data)
    assert body == data


def test_curl_up_of_unknown_length(curl):
    data = os.urandom(300000)
    body, _ = curl("-T", "-", "BASE/echo", data=data)
    assert body == data


def test_curl_waits_for_100(curl):
    data = os.urandom(2000000)
    body, _ = curl("-H", "Expect: 100-continue", "--expect100-timeout", "40", "--data-binary", "@-", "BASE/echo",
                   data=data)
    assert body == data


def test_curl_head(curl):
    body, _ = curl("-I", "BASE/")
    assert b"content-length: 6" in body and b"hello" not in body


def test_curl_many_at_once(curl):
    if curl.way == "h2c":
        pytest.skip("curl 7.88 cannot share a connection with prior knowledge; h2load does")
    body, lines = curl("-Z", "--no-progress-meter", "--parallel-max", "30", "BASE/[1-60]")
    assert body == b"hello\n" * 60
    assert all(code == "200" for _, code in lines)


def test_nghttp(plain, tls):
    for url in "http://127.0.0.1:%d" % plain.port, "https://127.0.0.1:%d" % tls.port:
        r = run(["nghttp", "-nvs", url + "/bytes/100000", url + "/"])
        assert r.returncode == 0
        assert r.stdout.count(b":status: 200") == 2


def test_h2load(plain, tls):
    for url in "http://127.0.0.1:%d/" % plain.port, "https://127.0.0.1:%d/" % tls.port:
        for args in (["-c", "4", "-m", "25"], ["-c", "4", "--h1"]):
            r = run(["h2load", "-n", "2000"] + args + [url])
            assert b"2000 succeeded, 0 failed" in r.stdout, r.stdout
    r = run(["h2load", "-n", "300", "-c", "3", "-m", "10", "http://127.0.0.1:%d/bytes/300000" % plain.port])
    assert b"300 succeeded, 0 failed" in r.stdout, r.stdout


def test_unix_socket():
    d = harness.temp_dir("http-")
    p = harness.Program("http_probe", [PROBE, "serve", "--unix", d + "/s"])
    harness.until(lambda: "ready" in p.log(), 10, "http_probe", p)
    for flag in "--http1.1", "--http2-prior-knowledge":
        r = run(["curl", "-sS", flag, "--unix-socket", d + "/s", "http://x/"])
        assert r.stdout == b"hello\n", r.stderr
    p.stop()
    p.check_sanitizer()
    shutil.rmtree(d)


def test_drain_with_a_transfer_running(plain):
    with socket.create_connection(("127.0.0.1", plain.port)) as s:
        s.sendall(b"GET /bytes/30000000 HTTP/1.1\r\nHost: a\r\n\r\n")
        got = s.recv(1000)
        plain.proc.terminate()
        while True:
            more = s.recv(1 << 20)
            if not more:
                break
            got += more
        assert got.partition(b"\r\n\r\n")[2][-5:] == (PATTERN * 458)[29999995:30000000]
    assert plain.proc.wait(10) == 0


def test_old_tls_is_refused(tls):
    for flag in "-tls1", "-tls1_1":
        r = run(["openssl", "s_client", "-connect", "127.0.0.1:%d" % tls.port, flag, "-cipher", "ALL:@SECLEVEL=0"],
                stdin=subprocess.DEVNULL)
        assert b"Cipher is (NONE)" in r.stdout


@pytest.mark.skipif(not NODE, reason="node is not installed")
def test_node_calls_us(plain):
    script = """
const c = require('http2').connect('http://127.0.0.1:' + process.argv[1]);
let open = 50, sum = 0;
for (let i = 0; i < 50; i++) {
  const s = c.request({':path': '/echo', ':method': 'POST'});
  s.on('data', (d) => { sum += d.length; });
  s.on('end', () => { if (!--open) { console.log(sum); c.close(); } });
  s.end(Buffer.alloc(10000 + i));
}
"""
    r = run([NODE, "-e", script, str(plain.port)])
    assert r.stdout.strip() == str(50 * 10000 + sum(range(50))).encode(), r.stderr


# -- our client


@pytest.fixture(params=["plain", "tls"])
def nghttpd(request, certs):
    d = harness.temp_dir("http-")
    with open(d + "/big", "wb") as f:
        f.write((PATTERN * 160)[:10000000])
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    args = ["--no-tls", str(port)] if request.param == "plain" else [str(port), certs + "/s.key", certs + "/s.pem"]
    p = harness.Program("nghttpd", ["nghttpd", "-a", "127.0.0.1", "-d", d, "--echo-upload"] + args)

    def up():
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0
    harness.until(up, 10, "nghttpd", p)
    p.port = port
    p.ways = ["--h2"] if request.param == "plain" else ["--ca", certs + "/ca.pem"]
    yield p
    p.stop(code=None)
    shutil.rmtree(d)


def test_nghttpd(nghttpd):
    for a in get("localhost", nghttpd.port, "/big", *nghttpd.ways, "--times", "3"):
        assert a == {"version": "20", "status": "200", "bytes": "10000000", "sum": str(pattern_sum(10000000)),
                     "end": "clean"}
    a, = get("127.0.0.1", nghttpd.port, "/nothing", *nghttpd.ways)
    assert a["status"] == "404"
    a, = get("127.0.0.1", nghttpd.port, "/echo", *nghttpd.ways, "--post", "3000000")
    assert (a["status"], a["bytes"], a["sum"]) == ("200", "3000000", str(pattern_sum(3000000)))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.send_response(200)
        if self.path == "/close":
            self.send_header("Connection", "close")
            self.end_headers()
        else:
            self.send_header("Content-Length", "1000000")
            self.end_headers()
        self.wfile.write((PATTERN * 16)[:1000000])
        self.close_connection = self.path == "/close"

    def do_POST(self):
        body = b""
        while self.headers["Transfer-Encoding"] == "chunked":
            n = int(self.rfile.readline(), 16)
            body += self.rfile.read(n)
            self.rfile.readline()
            if not n:
                break
        self.send_response(201)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(body), 50000):
            piece = body[at:at + 50000]
            self.wfile.write(b"%x;ext=1\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\nx-trailer: 1\r\n\r\n")


@pytest.fixture(params=["plain", "tls"])
def python_http(request, certs):
    s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    s.daemon_threads = True
    if request.param == "tls":
        ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ctx.load_cert_chain(certs + "/s.pem", certs + "/s.key")
        s.socket = ctx.wrap_socket(s.socket, server_side=True)
    threading.Thread(target=s.serve_forever, args=(0.05,), daemon=True).start()
    s.ways = [] if request.param == "plain" else ["--ca", certs + "/ca.pem"]
    yield s
    s.shutdown()
    s.server_close()


def test_http1_server(python_http):
    port, ways = python_http.server_address[1], python_http.ways
    want = {"version": "11", "status": "200", "bytes": "1000000", "sum": str(pattern_sum(1000000)), "end": "clean"}
    assert get("localhost", port, "/", *ways, "--times", "5") == [want] * 5
    a, = get("localhost", port, "/p", *ways, "--post", "700000")
    assert (a["status"], a["bytes"], a["sum"]) == ("201", "700000", str(pattern_sum(700000)))


def test_http1_until_close(python_http):
    """In clear the end of the stream is the end of the body; over TLS only close_notify is, and Python sends none."""
    port, ways = python_http.server_address[1], python_http.ways
    if ways:
        assert "end=lost" in get("localhost", port, "/close", *ways, ok=False)
    else:
        a, = get("localhost", port, "/close")
        assert a["bytes"] == "1000000" and a["end"] == "clean"


@pytest.mark.skipif(not NODE, reason="node is not installed")
def test_node_answers_us(certs):
    script = """
const fs = require('fs'), d = process.argv[1];
const s = require('http2').createSecureServer({key: fs.readFileSync(d + '/s.key'), cert: fs.readFileSync(d + '/s.pem')});
s.on('stream', (st, h) => { st.respond({':status': 200}); st.pipe(st); });
s.listen(0, '127.0.0.1', () => console.log('port ' + s.address().port));
"""
    p = harness.Program("node", [NODE, "-e", script, certs])
    port = int(harness.until(lambda: re.search(r"port (\d+)", p.log()), 20, "node", p).group(1))
    for a in get("localhost", port, "/", "--ca", certs + "/ca.pem", "--post", "2000000", "--times", "3"):
        assert (a["version"], a["bytes"], a["sum"], a["end"]) == ("20", "2000000", str(pattern_sum(2000000)), "clean")
    p.stop(code=None)


def test_wrong_ca(tls, certs):
    line = get("localhost", tls.port, "/", "--ca", certs + "/s.pem", ok=False)
    assert line.startswith("failed TLS_UNTRUSTED") and "issuer CN=Probe CA" in line and certs + "/s.pem" in line


def test_environment_has_no_say(tls, certs):
    """SSL_CERT_FILE and OPENSSL_CONF would make an untrusted server trusted."""
    env = dict(os.environ, SSL_CERT_FILE=certs + "/ca.pem", SSL_CERT_DIR=certs, OPENSSL_CONF="/nonexistent/openssl.cnf")
    other = harness.temp_dir("http-")
    run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=Other", "-keyout", other + "/k", "-out", other + "/c"], check=True)
    r = run([PROBE, "get", "localhost", str(tls.port), "/", "--ca", other + "/c"], env=env)
    assert b"failed TLS_UNTRUSTED" in r.stdout, (r.stdout, r.stderr)
    shutil.rmtree(other)


def test_name_of_the_hosts_file(plain):
    """Through the resolver's thread."""
    name = socket.gethostname()
    try:
        addresses = {a[4][0] for a in socket.getaddrinfo(name, 80, proto=socket.IPPROTO_TCP)}
    except OSError:
        addresses = set()
    if not addresses & {"127.0.0.1", "127.0.1.1"}:
        pytest.skip("this machine's own name is not on loopback")
    if "127.0.0.1" not in addresses:
        assert "refused" in get(name, plain.port, "/", ok=False)
    else:
        a, = get(name, plain.port, "/")
        assert a["bytes"] == "6"
