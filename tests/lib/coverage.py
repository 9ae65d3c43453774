# SPDX-License-Identifier: MIT
"""coverage.py BUILD PERCENT FILE…: branches that the tests took, by gcov's own count; exit 1 if a file has less.

Not counted: the branch that only a failed must() takes, and the way past a switch over all values of an enum, which
gcov has for a branch of its own.
"""
import glob
import json
import os
import re
import subprocess
import sys


def branches(build, source):
    """[(line, taken)] of a source file."""
    name = "_".join(source.split("/")[1:]) + ".gcda"
    found = glob.glob(os.path.join(build, "daemon", "libagentboxd-core.a.p", name))
    if not found:
        return []
    out = subprocess.run(["gcov", "--json-format", "--stdout", "-b", found[0]], capture_output=True, check=True).stdout
    rows = []
    for report in out.splitlines():
        for f in json.loads(report)["files"]:
            if f["file"].endswith(source):
                rows += [(line["line_number"], b["count"] > 0) for line in f["lines"] for b in line["branches"]]
    return rows


def main():
    build, percent, files = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    failed = False
    print("%-32s %8s %8s %7s" % ("file", "branches", "taken", ""))
    for source in files:
        with open(source, encoding="utf-8") as f:
            text = [""] + f.read().split("\n")
        rows = [r for r in branches(build, source) if not re.search(r"\bmust\(", text[r[0]])]
        for line in {r[0] for r in rows if not r[1] and "switch (" in text[r[0]]}:
            rows.remove((line, False))
        taken = sum(1 for r in rows if r[1])
        part = 100.0 * taken / len(rows) if rows else 0.0
        print("%-32s %8d %8d %6.1f%%" % (source, len(rows), taken, part))
        for line in sorted({r[0] for r in rows if not r[1]}):
            print("    %4d: %s" % (line, text[line].strip()))
        failed = failed or part < percent
    if failed:
        print("below %g %%" % percent)
    return 1 if failed else 0


sys.exit(main())
