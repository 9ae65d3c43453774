#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Lists what judges from outside found in 0.1.0, row by row, against the tests that name the row and the patches that take its mend back:
#
#   sh tests/lib/judged-rows.sh             every row: its tests and its patches, or MISSING
#   sh tests/lib/judged-rows.sh missing     only rows that lack a test, or that a test still marks as not mended
#
# A test names a row by its id (like C-12) in its docstring, in a comment right above it, or in a comment in it; a patch,
# tests/mutants/rows/ROW-….patch, names its test in its first line. A judge that has the row in its list of what fails today (KNOWN…) says
# that it is not mended. Ends with 1 if a row has no test, or is not mended.
cd "$(dirname "$0")/../.." || exit 2
exec /usr/bin/python3 - "$@" <<'END'
import ast
import glob
import os
import re
import sys

# Row, and what must be true, in a line.
ROWS = """
A-1 a key ab_… alone is enough: it just works, against AgentBox
A-2 a key goes to no other cloud than its own; a flavour sets domain, key form, headers and placeholder together
A-3 agentbox-local knows both spellings of every header; a request for a sandbox's agent is never taken for one of the API
A-4 every method of AgentBox's own SDK is a check of the suite
A-5 old SDKs' calls to the API are told by what they are, whatever routing headers they carry
B-1 a streaming request announces no length: through two reverse proxies no command is attached again
B-2 what ends repeating is time without progress, not a count; what may be repeated is repeated until its deadline
B-3 every file that a person can cat is read, packed or not, in bounded memory
B-4 421 goes to another connection, a limit of no streams queues, GOAWAY for ever is met three times, Retry-After has a ceiling of 300 s
B-5 the key goes over https only, but to loopback or where one loud key allows it
B-6 names that are not UTF-8 are listed and usable; listings stream, pages end by bytes
B-7 a stream is read to its end, not reset at its last event
B-8 the reason why a start failed reaches the caller whole
B-9 page tokens in a circle end the listing
B-10 set-up of each script installs what the script needs
C-1 whatever learns that a sandbox is gone ends all that waits on it within 10 s, with the sandbox's reason
C-1b an upload during a kill ends with the sandbox's reason
C-2 another account's key is quarantine: nothing is forgotten, made or ended
C-3 no lease is lost to the cloud's limit of refreshes; what cannot be kept alive is refused at the lease
C-4 the store reads every row that it writes: bounds are checked when it is written
C-5 snapshots are kept apart by uid (see G-1)
C-6 a policy lets go of a sandbox that was resumed elsewhere
C-7 signals that are no end do not end the daemon; SIGTERM ends it while the key command runs
C-8 agentbox-local that died, or whose port was taken, is started again, without blocking the loop
C-9 an owner that died before its create was answered, a create that made nothing, a disk that fills: settled at once, with true words
C-10 ended commands keep no descriptors
C-11 network rules exist once, as the cloud's validators have them
C-12 memory holds what lives: what ended is in rows, bounded by time and number
D-1 the service compiles under every generator of gRPC
D-2 gzip requests are taken, large metadata is RESOURCE_EXHAUSTED, a stream sends its head at once
D-3 a shared stderr keeps its flags
D-4 options of agentboxctl exec end at the sandbox
D-5 an explicit socket is that one, or an error
D-6 a daemon that does not answer is said so after 3 s
D-7 a stop is not held up by watches, and no client fails while it drains
D-8 refusals name who, whose and which setting; a degraded status, a restart and an outage are told well
E-1 an https name that curl, Python, Node and Go accept out of the box, for the API and for sandboxes
E-2 a signed link is found by what verifies it
E-3 templates can be looked up; what is not supported says so with a status that no SDK takes for an answer
E-4 inside a sandbox: localhost:49983, PAM, sudo, pip, python, own name, boot_id, oom_score_adj, cpu and memory of the sandbox
E-5 agentbox-local's agent answers as the real one does
E-6 header names pass ports as they were written; a template can serve
E-7 keys ab_… in the key file; --capabilities while the folder is in use
G-1 names and ids of another uid's snapshots, and of everything else, are not there for others
G-2 no byte from outside reaches a must()
G-3 what is held for a peer is charged before it is held, bounded, and given back
G-4 the base of a local sandbox has what everybody may read, nothing else
G-5 no secret reaches a caller or the log, from whatever text
G-6 no byte from outside moves a terminal
G-7 nobody deletes or kills what is not known as his
G-8 certificates by their DNS names, a configuration that others may write is refused, years are padded, limits do not break execs, accepting is fair
"""
ID = re.compile(r"\b([A-G]-\d{1,2}b?)\b(?![-\w])")
rows = dict(line.split(" ", 1) for line in ROWS.split("\n") if line)
tests = {r: [] for r in rows}
unmended = {r: set() for r in rows}


def note(text, where):
    for r in ID.findall(text):
        if r in tests and where not in tests[r]:
            tests[r].append(where)


def functions(path, text):
    """Each test of a Python file: its name, and its text with the comment above it."""
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
            first = min([node.lineno] + [d.lineno for d in node.decorator_list]) - 1
            while first and lines[first - 1].lstrip().startswith("#"):
                first -= 1
            yield node.name, "\n".join(lines[first:node.end_lineno])


for path in sorted(glob.glob("tests/it/*.py")):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    base = os.path.basename(path)
    for name, body in functions(path, text):
        said = re.findall(r'"""(.*?)"""', body, re.S) + re.findall(r"#.*", body)
        note(" ".join(said), "%s::%s" % (base, name))
    for m in re.finditer(r"^KNOWN\w*( = |\.update).*?(?=^\S)", text + "\nx", re.S | re.M):
        for r in ID.findall(m.group(0)):
            unmended.get(r, set()).add(base)
for path in sorted(glob.glob("tests/unit/**/*.c", recursive=True) + glob.glob("tests/sim/*.c")):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    base = re.sub(r"^tests/", "", path)
    for m in re.finditer(r"((?:/\*(?:(?!\*/).)*\*/\s*)?)^TEST\((\w+)\)\s*\{(.*?)^\}", text, re.S | re.M):
        said = m.group(1) + " ".join(re.findall(r"/\*.*?\*/|//.*", m.group(3), re.S))
        note(said, "%s::%s" % (base, m.group(2)))
for path in sorted(glob.glob("tests/judges/*.sh") + glob.glob("tests/*.sh") + glob.glob("tests/fuzz/*.c") + glob.glob("tests/lint/*.py")):
    with open(path, encoding="utf-8") as f:
        head = f.read()
    note(" ".join(re.findall(r"(?:#|//|/\*|\*).*", head)), re.sub(r"^tests/", "", path))
patches = {r: [] for r in rows}
for path in sorted(glob.glob("tests/mutants/rows/*.patch")):
    m = re.match(r"([A-G]-\d{1,2}b?)-", os.path.basename(path))
    if m and m.group(1) in patches:
        patches[m.group(1)].append(os.path.basename(path))
        with open(path, encoding="utf-8") as f:
            first = re.fullmatch(r"# test: (?:it (\S+::\w+).*|(unit \w+|lint \w+|fuzz (?:agent_)?sequences))\n", f.readline())
        named = first and re.sub(r"^lint (\w+)$", r"lint/\1.py", first.group(1) or first.group(2))
        if named and named not in tests[m.group(1)]:
            tests[m.group(1)].append(named)
bad = 0
for r, right in rows.items():
    is_bad = not tests[r] or unmended[r]
    bad += bool(is_bad)
    if sys.argv[1:] == ["missing"] and not is_bad:
        continue
    print("%-5s %s" % (r, right))
    print("      tests:   %s" % (" ".join(tests[r]) or "MISSING"))
    if unmended[r]:
        print("      not mended, say %s" % " ".join(sorted(unmended[r])))
    print("      patches: %s" % (" ".join(patches[r]) or "none"))
print("%d rows: %d with a test, %d without, %d not mended; %d with a patch" % (
    len(rows), sum(bool(t) for t in tests.values()), sum(not t for t in tests.values()), sum(bool(u) for u in unmended.values()),
    sum(bool(p) for p in patches.values())))
sys.exit(1 if bad else 0)
END
