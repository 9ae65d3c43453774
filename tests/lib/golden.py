# SPDX-License-Identifier: MIT
"""Reads and writes the recorded bytes of tests/golden; its README says what a file looks like.

    req = golden.request("sdk/npm/create.req")      # method, target, headers [(name, value)], body
    res = golden.answer("agent/stat-file.res")      # status, headers, body
    for row in golden.index(): …                    # file, source, version, direction, route
"""
import os

ROOT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden")
COLUMNS = ("file", "source", "version", "direction", "route")


class Message:
    """A request (method, target) or an answer (status), its header lines as they were sent, its body without the framing
    of HTTP/1.1 (chunks)."""

    def __init__(self, headers, body, method=None, target=None, status=None):
        self.method, self.target, self.status = method, target, status
        self.headers, self.body = headers, body

    def header(self, name, default=None):
        return next((v for k, v in self.headers if k.lower() == name.lower()), default)

    def first_line(self):
        return "%d" % self.status if self.method is None else "%s %s" % (self.method, self.target)

    def encode(self):
        head = [self.first_line()] + ["%s: %s" % h for h in self.headers]
        return "".join(line + "\n" for line in head).encode("latin-1") + b"\n" + self.body


def decode(data):
    head, _, body = data.partition(b"\n\n")
    first, *lines = head.decode("latin-1").split("\n")
    headers = [tuple(line.split(": ", 1)) if ": " in line else (line.rstrip(":"), "") for line in lines]
    if first.isdigit():
        return Message(headers, body, status=int(first))
    method, target = first.split(" ", 1)
    return Message(headers, body, method=method, target=target)


def read(name):
    with open(os.path.join(ROOT, name), "rb") as f:
        return decode(f.read())


def write(name, message):
    path = os.path.join(ROOT, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(message.encode())


def index(**match):
    """The rows of index.tsv as dictionaries, narrowed by columns."""
    with open(os.path.join(ROOT, "index.tsv"), encoding="ascii") as f:
        rows = [dict(zip(COLUMNS, line.rstrip("\n").split("\t"))) for line in f if not line.startswith("#")]
    return [r for r in rows if all(r[k] == v for k, v in match.items())]


def write_index(directory, rows):
    """Replaces the rows of one folder; the others stay."""
    path = os.path.join(ROOT, "index.tsv")
    kept = [r for r in (index() if os.path.exists(path) else []) if not r["file"].startswith(directory + "/")]
    rows = sorted(kept + rows, key=lambda r: r["file"])
    with open(path, "w", encoding="ascii") as f:
        f.write("# %s\n" % "\t".join(COLUMNS))
        f.writelines("\t".join(r[c] for c in COLUMNS) + "\n" for r in rows)
