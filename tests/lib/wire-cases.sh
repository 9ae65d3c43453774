#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Lists the cases of the cloud contract's conformance list (136) against the tests that are named after them:
#
#   sh tests/lib/wire-cases.sh            those of the sandbox and snapshot calls
#   sh tests/lib/wire-cases.sh all        all of them
#
# A case is covered by a test or a table whose name holds `case_NNN`. One of these calls without such a test needs its
# reason below, or the script fails; of the cases of other parts it only says what has no test of that name.
cd "$(dirname "$0")/../.." || exit 2
exec python3 - "$@" <<'EOF'
import glob
import re
import sys

SURFACE = [1, 2, 3, 4, 5] + list(range(12, 20)) + list(range(23, 86)) + [131, 132, 136]
TITLES = [(1, "endpoints, hosts, proxy"), (23, "auth"), (31, "create, get, kill"),
          (45, "pause, resume, connect, timeouts"), (63, "listing"), (70, "forks, snapshots"), (79, "network"),
          (86, "connect framing and codes"), (97, "processes"), (115, "files"), (131, "misc")]
# A case of these calls that has no test of its name, and why.
REASONS = {5: "the daemon has no debug mode: whoever wants other addresses sets api_url and sandbox_url (case 4)"}
found = {}
for pattern in ("tests/it/*.py", "tests/it/npm/*.mjs", "tests/it/pypi/*.py", "tests/unit/**/*.c"):
    for path in sorted(glob.glob(pattern, recursive=True)):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for name in re.findall(r"case_\d{3}\w*", text):
            for n in re.findall(r"(?<=_)\d{3}(?=_|$)", name):
                found.setdefault(int(n), set()).add("%s:%s" % (path.split("/")[-1], name))
wanted = range(1, 137) if sys.argv[1:] == ["all"] else SURFACE
titles, bad, covered = dict(TITLES), 0, 0
for n in wanted:
    title = [t for first, t in TITLES if first <= n][-1]
    if found.get(n):
        covered += 1
        print("%3d  covered  %-34s %s" % (n, title, " ".join(sorted(found[n]))))
    elif n in REASONS:
        print("%3d  -        %-34s %s" % (n, title, REASONS[n]))
    elif n not in SURFACE:
        print("%3d  -        %-34s of another part, and no test has its number" % (n, title))
    else:
        bad += 1
        print("%3d  MISSING  %s" % (n, title))
print("%d cases: %d covered, %d without a test of their number, %d of them without a reason"
      % (len(wanted), covered, len(wanted) - covered, bad))
sys.exit(1 if bad else 0)
EOF
