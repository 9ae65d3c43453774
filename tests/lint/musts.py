# SPDX-License-Identifier: MIT
"""No byte from outside reaches a must(): it aborts.

musts.tsv has a row for each file with must(), with the reason why nothing that a peer, a file or a user says makes one of them
fail, and with a sum of their expressions: whoever adds or changes one reads the file's again and renews the row. Not listed are those
that say that an object is alive (its magic), that a mutex works, or that nobody refers to what is freed.

  --sums    prints the file and the sum of each that needs a row
"""
import re
import sys
import zlib

from common import bare_c, c_files, read, run

TABLE = "tests/lint/musts.tsv"
CALL = re.compile(r"\bmust\(")
NOBODY = r"!?(list_is_empty\([^()]*\)|[\w>.-]*(->|\.)(refs|n_reqs|n_calls|n_open|n_flows|n_sockets|waiters)|!map_size\([^()]*\))"
GENERAL = re.compile(r"(\w+ && )?\w+(->\w+)*->magic == \w+|pthread_\w+\(.*\) == 0|%s( && %s)*" % (NOBODY, NOBODY))


def musts(text):
    """The expressions of a file that are of no general kind."""
    for m in CALL.finditer(text):
        depth, i = 1, m.end()
        while depth and i < len(text):
            depth += (text[i] == "(") - (text[i] == ")")
            i += 1
        expression = " ".join(text[m.end():i - 1].split())
        if not GENERAL.fullmatch(expression):
            yield expression


def found():
    """{file: sum} of those that need a row."""
    lists = {f: sorted(musts(bare_c(read(f)))) for f in c_files() if f != "proto/base/must.h"}
    return {f: "%08x" % zlib.crc32("\n".join(v).encode()) for f, v in lists.items() if v}


def rows():
    lines = (line.split("\t") for line in read(TABLE).splitlines() if line and not line.startswith("#"))
    return {f: (total, reason) for f, total, reason in lines}


def reviewed():
    have, want = found(), rows()
    out = ["%s: %s: no such file with must(): take its row out" % (TABLE, f) for f in want if f not in have]
    for f, total in have.items():
        if f not in want:
            out.append("%s: can a byte from outside make one of its must() fail? If not: a row in %s that says why, with %s" % (f, TABLE, total))
        elif want[f][0] != total:
            out.append("%s: its must() are others than those of its row in %s: read them, and renew the row with %s" % (f, TABLE, total))
        elif len(want[f][1].split()) < 5:
            out.append("%s: %s: a reason is a sentence" % (TABLE, f))
    return sorted(out)


if __name__ == "__main__":
    if "--sums" in sys.argv:
        for name, value in sorted(found().items()):
            print("%s\t%s" % (name, value))
    else:
        run([("musts", reviewed)])
