# SPDX-License-Identifier: MIT
"""agentbox-local over TLS by its own CA (E-1): names that curl, Python, Node and Go accept as they are, and what a shell needs to
export."""
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess

import pytest

import harness
from conftest import built
from wire import Client

DOMAIN = "box.test"
GO = """package main

import ("crypto/tls"; "crypto/x509"; "fmt"; "os")

func main() {
	pem, _ := os.ReadFile(os.Args[1])
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	for _, name := range os.Args[3:] {
		c, err := tls.Dial("tcp", os.Args[2], &tls.Config{RootCAs: roots, ServerName: name})
		if err != nil { fmt.Println(name, err); continue }
		c.Close()
		fmt.Println(name, "ok")
	}
}
"""
NODE = """const tls = require("tls"), fs = require("fs"), [ca, at, ...names] = process.argv.slice(1);
const [host, port] = at.split(":");
(async () => { for (const servername of names) await new Promise((done) => {
  const s = tls.connect({host, port, servername, ca: fs.readFileSync(ca)}, () => { console.log(servername, "ok"); s.end(); done(); });
  s.on("error", (e) => { console.log(servername, e.message); done(); }); }); })();"""


class Tls:
    def __init__(self, folder, *args):
        built(harness.AGENTBOX_LOCAL)
        self.dir = str(folder)
        ready, w = os.pipe()
        self.proc = subprocess.Popen([harness.AGENTBOX_LOCAL, "--tls-listen", "127.0.0.1:0", "--auto-tls", "--state-dir", self.dir,
                                      "--ready-fd", str(w), *args], pass_fds=(w,), stdin=subprocess.DEVNULL)
        os.close(w)
        with os.fdopen(ready) as f:
            self.told = json.loads(f.readline())
        self.at, self.ca = self.told["tls_address"], self.told["ca_file"]
        self.port = int(self.at.rpartition(":")[2])

    def certificate(self, name, trusted=True):
        """Its names, as Python sees them."""
        context = ssl.create_default_context(cafile=self.ca)
        context.check_hostname = trusted
        with socket.create_connection(("127.0.0.1", self.port), 10) as raw, context.wrap_socket(raw, server_hostname=name) as s:
            return s.getpeercert(), s.getpeercert(True)

    def close(self):
        self.proc.terminate()
        assert self.proc.wait(20) == 0


@pytest.fixture
def start(tmp_path):
    made = []

    def begin(*args):
        made.append(Tls(tmp_path / "state", *args))
        return made[-1]
    yield begin
    for t in made:
        if t.proc.poll() is None:
            t.close()


@pytest.fixture
def tls(start):
    return start("--listen", "127.0.0.1:0", "--domain", DOMAIN)


NAMES = ("localhost", "49983-iabc.localhost", "api." + DOMAIN, "sandbox." + DOMAIN, "3000-iabc." + DOMAIN, DOMAIN)


def by_python(tls, tmp_path):
    return {n: "ok" if tls.certificate(n)[0] else "none" for n in NAMES}


def by_curl(tls, tmp_path):
    return {n: subprocess.run(["curl", "-sS", "--cacert", tls.ca, "--resolve", "%s:%d:127.0.0.1" % (n, tls.port), "-o", "/dev/null",
                               "https://%s:%d/health" % (n, tls.port)], capture_output=True, text=True, timeout=30).stderr or "ok"
            for n in NAMES}


def by_program(argv, tls, **kw):
    r = subprocess.run(argv + [tls.ca, tls.at, *NAMES], capture_output=True, text=True, timeout=110, **kw)
    assert r.returncode == 0, r
    return dict(line.split(" ", 1) for line in r.stdout.splitlines())


def by_node(tls, tmp_path):
    return by_program(["node", "-e", NODE], tls)


def by_go(tls, tmp_path):
    (tmp_path / "main.go").write_text(GO)
    return by_program(["go", "run", "main.go"], tls, cwd=tmp_path, env=dict(os.environ, GO111MODULE="off", GOFLAGS=""))


@pytest.mark.parametrize("client", [by_python, by_curl, by_node, by_go], ids=["python3", "curl", "node", "go"])
def test_names_that_clients_accept(client, tls, tmp_path, request):
    """E-1: of the control plane and of sandboxes, below localhost and below --domain."""
    program = request.node.callspec.id
    if not shutil.which(program):
        pytest.skip("there is no %s" % program)
    assert client(tls, tmp_path) == {n: "ok" for n in NAMES}


def test_no_certificate_for_others(tls):
    """E-1: the CA signs for what is below localhost and the domain, each name by itself, and for nothing else."""
    names = dict(tls.certificate("49983-iabc.localhost")[0]["subjectAltName"])
    assert names == {"DNS": "49983-iabc.localhost"}
    for name in ("example.com", "localhost.example.com", "xbox.test", "49983-iabc.box.test.example.com"):
        with pytest.raises(ssl.SSLCertVerificationError):
            tls.certificate(name)
    first = tls.certificate("1-a.localhost")[1]
    assert tls.certificate("1-A.LOCALHOST")[1] == first == tls.certificate("1-a.localhost")[1]
    for i in range(70):         # more than are kept
        tls.certificate("2-%d.localhost" % i)
    assert tls.certificate("1-a.localhost")[1] != first


def test_the_ca_stays(start):
    """E-1: another domain gets another certificate by the same CA, which clients may hold on to."""
    one = start("--domain", "one.test:8443")
    with open(one.ca, "rb") as f:
        ca = f.read()
    assert one.certificate("one.test")[0] and one.certificate("api.one.test")[0]
    one.close()
    two = start("--domain", "two.test")
    with open(two.ca, "rb") as f:
        assert f.read() == ca
    assert two.certificate("two.test")[0] and two.certificate("api.two.test")[0]
    with pytest.raises(ssl.SSLCertVerificationError):
        two.certificate("one.test")


def test_the_domain_has_the_port_of_https(start, tmp_path):
    """E-1: clients put https:// before the domain, so of two listeners its port is that of TLS."""
    t = start("--listen", "127.0.0.1:0")
    assert t.told["domain"] == "localhost:%d" % t.port
    with open(t.told["api_key_file"], encoding="ascii") as f:
        c = Client("http://" + t.told["address"], f.read().split()[0])
    try:
        box = c.create()
        assert box["domain"] == t.told["domain"]
        host = "49983-%s.localhost" % box["sandboxID"]
        raw = socket.create_connection(("127.0.0.1", t.port), 10)
        conn = http.client.HTTPConnection(host, t.port)
        conn.sock = ssl.create_default_context(cafile=t.ca).wrap_socket(raw, server_hostname=host)
        conn.request("GET", "/health")
        assert conn.getresponse().status == 204
        conn.close()
    finally:
        c.close()


ASK = {"curl": "curl -sS -o /dev/null -w '%{http_code}' \"$AGENTBOX_API_URL/v2/sandboxes\" -H \"X-API-Key: $AGENTBOX_API_KEY\"",
       "python3": "/usr/bin/python3 -c 'import os, urllib.request as u; print(u.urlopen(u.Request(os.environ[\"E2B_API_URL\"] + "
                  "\"/v2/sandboxes\", headers={\"X-API-Key\": os.environ[\"E2B_API_KEY\"]})).status, end=\"\")'",
       "node": "node -e 'fetch(process.env.AGENTBOX_API_URL + \"/v2/sandboxes\", {headers: {\"X-API-Key\": "
               "process.env.AGENTBOX_API_KEY}}).then((r) => process.stdout.write(String(r.status)), (e) => console.log(e.cause))'"}


@pytest.mark.parametrize("listen", ["tls", "plain"])
@pytest.mark.parametrize("program", sorted(ASK))
def test_local_env(program, listen, tmp_path):
    """E-1: what `agentboxctl local env` prints is all that a shell needs."""
    if not shutil.which(program):
        pytest.skip("there is no %s" % program)
    built(harness.AGENTBOXCTL)
    folder = tmp_path / "it's a folder"
    cloud = Tls(folder) if listen == "tls" else harness.LocalCloud(tls=False)
    directory = str(folder) if listen == "tls" else cloud.state_dir
    env = {k: v for k, v in os.environ.items() if not k.startswith(("E2B_", "AGENTBOX", "SSL_", "REQUESTS_", "CURL_", "NODE_"))}
    try:
        r = subprocess.run(["sh", "-c", 'eval "$("$0" local env "$1")" && ' + ASK[program], harness.AGENTBOXCTL, directory], env=env,
                           capture_output=True, text=True, timeout=60)
        assert (r.stdout, r.returncode) == ("200", 0), r
        assert os.stat(os.path.join(directory, "env")).st_mode & 0o777 == 0o600
    finally:
        cloud.close()
    r = subprocess.run([harness.AGENTBOXCTL, "local", "env", directory], capture_output=True, text=True, timeout=30)
    assert r.returncode == 3 and "does not run" in r.stderr and not r.stdout, r


def test_local_env_of_the_daemon():
    """E-1: without a folder it is that of the daemon's own agentbox-local."""
    built(harness.AGENTBOXD)
    d = harness.Daemon()
    try:
        out = d.ctl("local", "env").stdout
        assert "export AGENTBOX_API_URL='https://localhost:" in out and "export NODE_EXTRA_CA_CERTS='" in out, out
        tls_port = re.search(r"https://localhost:(\d+)", out).group(1)
        box = d.ctl("create").stdout.strip()
        host, _, port = d.ctl("host", box, "3000").stdout.strip().partition(":")
        assert host == "3000-%s.localhost" % box and port != tls_port, "ports are plain, by the daemon's own word"
    finally:
        d.ctl("local", "stop", check=False)
        d.close()
