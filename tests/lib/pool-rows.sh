#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Lists the faults and field rules that concern the connections to the cloud against the tests that name them:
#
#   sh tests/lib/pool-rows.sh           what is covered by which test
#
# N: network, names, TLS, proxies; H: the other side's HTTP/2; A: the cloud's answers; others: what users met. A row is
# covered by a test whose docstring (Python) or comment right above it (C) begins with it, or has it among the rows it
# begins with: `"""N-05, H-10: …"""`. A row without a test needs its reason below, or the script fails.
cd "$(dirname "$0")/../.." || exit 2
exec python3 - <<'END'
import ast
import glob
import re
import sys

ROWS = """
N-01 no network at start
N-02 an established connection is dropped silently
N-03 a connection breaks at each byte of a request
N-05 latency, stalls, a narrow line
N-06 IPv6 leads nowhere
N-07 IPv4 leads nowhere; hosts with IPv6 only
N-09 names: NXDOMAIN, SERVFAIL, silence, hundreds of addresses, circles
N-10 a name moves while its connections are pooled
N-11 a name leads to an address nobody should be sent to
N-13 tricks with the names in certificates
N-14 certificate and CA are replaced
N-15 a certificate out of its time
N-17 long chains, huge certificates
N-18 old TLS, weak ciphers
N-19 no ALPN, HTTP/1.1 only
N-21 early data is offered; 425
N-22 the end is cut off without close_notify
N-23 bytes from the proxy before TLS
N-25 the proxy's credentials change
N-26 proxies and OpenSSL in the environment
N-27 no ports left
N-29 large packets vanish
N-30 redirects
H-01 GOAWAY with creates in flight
H-02 GOAWAY in two steps
H-03 a request crosses GOAWAY
H-05 ENHANCE_YOUR_CALM
H-06 REFUSED_STREAM on a create
H-07 RST_STREAM after the head of a POST
H-09 an answer before the upload is complete
H-10 a connection dies under a hundred streams
H-11 RST_STREAM and GOAWAY again and again
H-13 windows go negative
H-14 the header table's size flips
H-15 bombs of fields, interim answers, trailers
H-17 PUSH_PROMISE, ALTSVC, ORIGIN, unknown frames
H-18 PING on an idle connection
H-19 idle timeouts of others are shorter than ours
H-21 two keys, one origin
H-22 lengths that disagree
H-23 an endless answer and a slow reader
A-01 a create is done, its answer is lost
A-05 503: no capacity
A-06 504: placement timed out
A-07 5xx of a load balancer, HTML
A-09 429 without Retry-After: the ceiling
A-11 401 after a key was changed
A-13 403 on one route
A-17 404 to a kill
A-18 409 to a pause
A-27 a sandbox ends early in the cloud
A-30 a create's answer comes after the caller's deadline
A-31 the cloud is away for long
A-33 502 of the edge for a sandbox that lives
A-34 a stream ends without its end record
A-35 input is never sent twice
A-37 the agent's token is missing or wrong
A-39 503 with Retry-After
A1 GOAWAY asks for calm in the middle of work
A2 an edge recycles its connections
A3 many sandboxes, few idle connections
A5 handshakes fail now and then
A6 a connection that the peer closed while it was idle
A7 a middle box forgets a connection
A9 PINGs that are taken for an attack
A10 a timeout of a proxy for single streams
A11 long answers are cut
A13 streams that nobody reads
A14 the budget of retries is for one interruption
A15 a cancelled command ends
A17 fork() with an open client
A18 a client for each loop or thread
A19 a private CA
A21 a fresh process's first call
A22 back after a long time away
B5 no timeout of the transport ends a command
B6 an upload that stalls, and one that is only slow
E7 the account's limits, shared
S27 proxies by configuration
"""
# A row without a test of its name, and why.
REASONS = {
    "N-25": "the proxy is read at the start; the pool's key has it, so a change could not meet an old connection",
}
found = {}
ROW = re.compile(r"(?:[NHA]-\d\d|[A-Z]\d{1,2})(?![\w-])")


def note(text, where):
    """The rows that a docstring begins with."""
    text = " ".join(text.split())
    while m := ROW.match(text):
        found.setdefault(m.group(0), []).append(where)
        text = re.sub(r"^(, and |, | and )", "", text[m.end():])


for path in sorted(glob.glob("tests/it/*.py")):
    with open(path, encoding="utf-8") as f:
        tree = ast.parse(f.read())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            note(ast.get_docstring(node) or "", "%s:%s" % (path.split("/")[-1], node.name))
for path in sorted(glob.glob("tests/unit/**/*.c", recursive=True)):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    for m in re.finditer(r"/\*\s*((?:(?!\*/).)*?)\s*\*/\nTEST\((\w+)\)", text, re.S):
        note(re.sub(r"\n \*", "\n", m.group(1)), "%s:%s" % (path.split("/")[-1], m.group(2)))
bad = 0
rows = [line.split(" ", 1) for line in ROWS.split("\n") if line]
for row, title in rows:
    if row in found:
        print("%-5s covered  %-55s %s" % (row, title, " ".join(found[row])))
    elif row in REASONS:
        print("%-5s -        %-55s %s" % (row, title, REASONS[row]))
    else:
        bad += 1
        print("%-5s MISSING  %s" % (row, title))
for row in REASONS:
    if row in found or row not in dict(rows):
        bad += 1
        print("%-5s its reason is out of date" % row)
print("%d rows: %d covered, %d without a test, %d of them without a reason" % (
    len(rows), sum(r in found for r, _ in rows), sum(r not in found for r, _ in rows), bad))
sys.exit(1 if bad else 0)
END
