# SPDX-License-Identifier: MIT
"""agentboxd behind HTTP proxies (a scripted one, tinyproxy), and before the reverse proxies and servers of others
(nginx, nghttpx, node): create, exec, cp."""
import os
import shutil
import socket
import subprocess
import time

import pytest

import harness
from api import Api, ApiError
from fakecloud.certs import Authority
from fakeproxy import FakeProxy

NAMED = "https://api.fake.test:443"


def behind(cloud, proxy, url=NAMED, env=None, **account):
    conf = {"account default": dict({"api_url": url, "sandbox_url": url.replace("api.", "sandbox."), "proxy": proxy},
                                    **account)}
    return harness.Daemon(cloud, conf=conf, env=env)


def works(d, folder):
    """create, exec, cp there and back."""
    box = d.ctl("create").stdout.strip()
    assert d.ctl("exec", box, "--", "sh", "-c", "echo $((6*7))").stdout == "42\n"
    data = os.urandom(300000)
    (folder / "sent").write_bytes(data)
    d.ctl("cp", str(folder / "sent"), box + ":/tmp/a")
    d.ctl("cp", box + ":/tmp/a", str(folder / "got"))
    assert (folder / "got").read_bytes() == data
    d.ctl("kill", box)


def reason(d, timeout=6):
    with Api(d.socket) as api, pytest.raises(ApiError) as e:
        api.call("SandboxService.Create", timeout=timeout)
    return e.value


def test_connect(cloud, tmp_path):
    """S27: CONNECT with basic authentication; names are the proxy's to resolve."""
    with FakeProxy(cloud.port, user="us%20er:se%3Acret") as proxy:
        proxy.user, url = "us er:se:cret", proxy.url
        d = behind(cloud, url)
        works(d, tmp_path)
        assert {s for s, _ in proxy.seen} == {"api.fake.test:443", "sandbox.fake.test:443"} and all(good for _, good in proxy.seen)
        assert len(proxy.seen) <= 4
        config = d.ctl("config").stdout if d.ctl("config", check=False).returncode == 0 else ""
        for text in (d.log(), config):
            assert "se%3Acret" not in text and "se:cret" not in text
        d.close()


def test_407(cloud):
    """Refused credentials are told apart from a refused connection, at once, and are not in the text."""
    with FakeProxy(cloud.port, user="u:right") as proxy:
        d = behind(cloud, proxy.url.replace("right", "wrong"))
        began = time.monotonic()
        e = reason(d)
        assert (e.code, e.reason) == ("UNAVAILABLE", "PROXY_AUTH") and time.monotonic() - began < 3
        assert "wrong" not in e.text and "wrong" not in d.log()
        d.close()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 503 No\r\n\r\n", b"SSH-2.0-x\r\n", b"HTTP/1.1 302 x\r\nLocation: http://x\r\n\r\n",
                                    b"HTTP/1.1 200 OK\r\n\r\n\x16\x03\x03junk before TLS"])
def test_proxy_fails(cloud, answer):
    """N-23: a proxy that refuses, is none, or speaks before it may."""
    with FakeProxy(cloud.port) as proxy:
        proxy.answer = answer
        d = behind(cloud, proxy.url)
        assert reason(d).reason == "PROXY_FAILED"
        proxy.answer = None
        with Api(d.socket) as api:
            harness.until(lambda: api.call("SandboxService.Create", timeout=20).id, 20)
        d.close()


def test_proxy_is_silent(cloud):
    with FakeProxy(cloud.port) as proxy:
        proxy.answer = b""
        d = behind(cloud, proxy.url)
        e = reason(d, timeout=3)
        assert e.code in ("DEADLINE_EXCEEDED", "UNAVAILABLE"), e
        d.close()


def test_exceptions(cloud):
    """no_proxy: what it covers is reached directly, here in vain."""
    with FakeProxy(cloud.port) as proxy:
        for no_proxy in ("x, .fake.test", "*"):
            d = behind(cloud, proxy.url, no_proxy=no_proxy)
            assert reason(d).reason == "UNREACHABLE"
            d.close()
        assert not proxy.seen
        d = behind(cloud, proxy.url, no_proxy="ake.test, other.test")
        with Api(d.socket) as api:
            assert api.call("SandboxService.Create").id
        assert proxy.seen
        d.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_loopback_is_never_proxied(cloud, host):
    with FakeProxy(cloud.port) as proxy:
        d = behind(cloud, proxy.url, url="https://%s:%d" % (host, cloud.port))
        with Api(d.socket) as api:
            assert api.call("SandboxService.Create").id
        assert not proxy.seen
        d.close()


def test_environment(cloud):
    """N-26: `proxy = env` takes HTTPS_PROXY; `none` takes nothing; OpenSSL's variables are ignored."""
    with FakeProxy(cloud.port) as proxy:
        env = {"HTTPS_PROXY": proxy.url, "SSLKEYLOGFILE": "/tmp/ab-keylog-must-not-exist", "SSL_CERT_FILE": "/dev/null",
               "OPENSSL_CONF": "/nonexistent"}
        d = behind(cloud, "env", env=env)
        with Api(d.socket) as api:
            assert api.call("SandboxService.Create").id
        assert proxy.seen and not os.path.exists(env["SSLKEYLOGFILE"])
        d.close()
        n = len(proxy.seen)
        d = behind(cloud, "none", env=env)
        assert reason(d).reason == "UNREACHABLE"
        d.close()
        assert len(proxy.seen) == n


def port_of():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def up(program, port):
    def answers():
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0
    harness.until(answers, 10, program.name, program)
    return program


def test_tinyproxy(cloud, tmp_path):
    """Through tinyproxy with basic authentication, which hands on to the scripted one: two proxies in a row."""
    if not shutil.which("tinyproxy"):
        pytest.skip("needs tinyproxy")
    with FakeProxy(cloud.port) as proxy:
        port = port_of()
        (tmp_path / "conf").write_text("Port %d\nListen 127.0.0.1\nTimeout 60\nBasicAuth me secret\nConnectPort 443\n"
                                       "Upstream http 127.0.0.1:%d\nLogLevel Info\n" % (port, proxy.port))
        t = up(harness.Program("tinyproxy", ["tinyproxy", "-d", "-c", str(tmp_path / "conf")]), port)
        d = behind(cloud, "http://me:secret@127.0.0.1:%d" % port)
        works(d, tmp_path)
        assert {s for s, _ in proxy.seen} == {"api.fake.test:443", "sandbox.fake.test:443"}
        d.close()
        d = behind(cloud, "http://me:wrong@127.0.0.1:%d" % port)
        assert reason(d).reason in ("PROXY_AUTH", "PROXY_FAILED")       # tinyproxy says 401 or 407 by version
        d.close()
        t.stop(code=None)


# -- servers of others in front of agentbox-local

NGINX = """
daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/err; events {{ worker_connections 256; }}
http {{
  access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;
  uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  server {{
    listen 127.0.0.1:{port} ssl http2; ssl_certificate {cert}; ssl_certificate_key {key};
    keepalive_requests 25; client_max_body_size 0; proxy_buffering off; proxy_request_buffering off;
    location / {{ proxy_pass http://127.0.0.1:{back}; proxy_http_version 1.1; proxy_set_header Host $http_host;
                  proxy_set_header Connection ""; proxy_read_timeout 600; }}
  }}
}}
"""
NODE = """
const http = require('http'), http2 = require('http2'), fs = require('fs');
const [port, back, cert, key] = process.argv.slice(1);
const agent = new http.Agent({keepAlive: false});
const server = http2.createSecureServer({cert: fs.readFileSync(cert), key: fs.readFileSync(key)});
server.on('stream', (s, h) => {
  const fields = {};
  for (const k in h) if (k[0] != ':') fields[k] = h[k];
  fields.host = h[':authority'];
  const q = http.request({host: '127.0.0.1', port: back, method: h[':method'], path: h[':path'], headers: fields, agent},
    (a) => {
      const out = {':status': a.statusCode};
      for (const k in a.headers) if (!['connection', 'transfer-encoding', 'keep-alive'].includes(k)) out[k] = a.headers[k];
      if (s.destroyed) { a.destroy(); return; }
      s.respond(out);
      a.pipe(s);
    });
  q.on('error', () => s.destroyed || s.close(2));
  s.on('close', () => q.destroy());
  s.on('error', () => q.destroy());
  s.pipe(q);
});
server.listen(port, '127.0.0.1');
"""


class Front:
    """What a harness.Daemon needs to know of a cloud."""

    def __init__(self, port, authority, key):
        self.url, self.ca, self.key = "https://127.0.0.1:%d" % port, authority.cert, key


def whole_before_its_end(api, box):
    """The agent has all the bytes that were announced and answers, though the client has not said yet that they are all."""
    def file():
        yield {"header": {"sandbox": box, "path": "/tmp/whole", "size": 5}}
        yield {"data": b"12345"}
        harness.until(lambda: api.run(box, "cat /tmp/whole")[1] == b"12345", what="the file")
    api.send("FileService.Write", file())


@pytest.mark.parametrize("kind", ["nginx", "nghttpx", "node"])
def test_reverse_proxies(local, tmp_path, kind):
    """A2 with nginx, which recycles a connection after 25 requests: routine, no call fails."""
    if not shutil.which(kind):
        pytest.skip("needs " + kind)
    authority, port = Authority(str(tmp_path / "ca")), port_of()
    cert, key = authority.issue()
    if kind == "nginx":
        (tmp_path / "conf").write_text(NGINX.format(dir=tmp_path, port=port, cert=cert, key=key, back=local.port))
        argv = ["nginx", "-p", str(tmp_path), "-c", str(tmp_path / "conf"), "-e", str(tmp_path / "err")]
    elif kind == "nghttpx":
        argv = ["nghttpx", "--conf=/dev/null", "--frontend=127.0.0.1,%d" % port, "--backend=127.0.0.1,%d;;proto=h2" % local.port,
                "--no-ocsp", "--workers=1", key, cert]
    else:
        argv = ["node", "-e", NODE, str(port), str(local.port), cert, key]
    front = up(harness.Program(kind, argv), port)
    d = harness.Daemon(Front(port, authority, local.key))
    for _ in range(2):
        works(d, tmp_path)
    with Api(d.socket) as api:
        box = api.call("SandboxService.Create").id
        calls = [api.future("FileService.Stat", sandbox=box, path="/tmp") for _ in range(150)]
        assert all(c.result(30) for c in calls)
        assert api.run(box, "seq 2000")[1].split() == [str(i).encode() for i in range(1, 2001)]
        if kind == "node":      # speaks HTTP/1.1, where a body ends with its last byte
            whole_before_its_end(api, box)
        api.call("SandboxService.Kill", sandbox=box)
    d.close()
    front.stop(code=None)
