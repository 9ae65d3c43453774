# SPDX-License-Identifier: MIT
"""A certificate authority of the test's own, made with the openssl command."""
import os
import subprocess

NAMES = "DNS:localhost,DNS:*.localhost,DNS:api.fake.test,DNS:sandbox.fake.test,DNS:*.fake.test,IP:127.0.0.1,IP:0:0:0:0:0:0:0:1"


def _openssl(*args):
    r = subprocess.run(("openssl",) + args, capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError("openssl %s: %s" % (args[0], r.stderr))


class Authority:
    """CA in a folder; `issue` makes server certificates."""

    def __init__(self, folder, name="fakecloud test CA"):
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self.key = os.path.join(folder, "ca.key")
        self.cert = os.path.join(folder, "ca.pem")
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
                 "-subj", "/CN=" + name, "-keyout", self.key, "-out", self.cert,
                 "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def issue(self, name="server", san=NAMES, days="30", common_name="localhost"):
        key, csr, cert = (os.path.join(self.folder, name + s) for s in (".key", ".csr", ".pem"))
        ext = os.path.join(self.folder, name + ".ext")
        with open(ext, "w", encoding="ascii") as f:
            f.write(("subjectAltName=%s\n" % san if san else "") + "extendedKeyUsage=serverAuth\n")
        _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                 "-subj", "/CN=" + common_name, "-keyout", key, "-out", csr)
        _openssl("x509", "-req", "-in", csr, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial",
                 "-days", days, "-extfile", ext, "-out", cert)
        return cert, key
