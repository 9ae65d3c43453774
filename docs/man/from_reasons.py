# SPDX-License-Identifier: MIT
"""Writes agentboxd-errors(7) from the enum of reasons in the API, proto/agentbox/v1/sandbox.proto.

    /usr/bin/python3 docs/man/from_reasons.py           writes it
    /usr/bin/python3 docs/man/from_reasons.py --check   says whether it differs, for tests/lint
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLE = os.path.join(ROOT, "proto/agentbox/v1/sandbox.proto")
MAN = os.path.join(ROOT, "docs/man/agentboxd-errors.7")
ROW = re.compile(r"^\s+(\w+) = (\d+);\s+// ([^\n]+)$", re.M)


def rows():
    with open(TABLE, encoding="utf-8") as f:
        body = re.search(r"^enum Reason \{(.*?)^\}", f.read(), re.M | re.S).group(1)
    found = [(name, *said.partition("; ")[::2]) for name, number, said in ROW.findall(body)]
    if len(found) != len(re.findall(r"^\s+\w+ = [1-9]", body, re.M)):
        sys.exit("sandbox.proto: a reason has no comment with its status")
    return sorted(found)


def page():
    out = [
        '.\\" SPDX-License-Identifier: MIT',
        '.\\" Made by docs/man/from_reasons.py from proto/agentbox/v1/sandbox.proto: change that.',
        ".Dd November 30, 2026", ".Dt AGENTBOXD-ERRORS 7", ".Os", ".Sh NAME", ".Nm agentboxd-errors",
        ".Nd reasons of errors of the agentboxd daemon", ".Sh DESCRIPTION",
        "A call that fails has a gRPC status, a sentence for a person, and a reason from the closed list below, for programs.",
        "The reason is the field", ".Va reason", "of a", ".Vt google.rpc.ErrorInfo", "whose domain is", ".Ql agentbox ;",
        "its metadata are the evidence: the field, the cloud's status and request id, who said so and when.",
        ".Vt google.rpc.RetryInfo", "says when asking again may help.",
        ".Xr agentboxctl 1", "prints the reason in brackets, and with", ".Fl -json", "all of it;",
        ".Xr libagentbox 3", "has it in", ".Vt struct ab_error .", ".Sh REASONS", ".Bl -tag -width Ds",
    ]
    for name, status, text in rows():
        out += [".It Er " + name, ".Pq " + status if re.fullmatch(r"[A-Z_]+", status) else "(%s)" % status]
        if text:
            out.append(text[0].upper() + text[1:] + ("" if text.endswith(".") else "."))
    return "\n".join(out + [".El", ".Sh SEE ALSO", ".Xr agentboxctl 1 ,", ".Xr libagentbox 3 ,", ".Xr agentboxd 8"]) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        with open(MAN, encoding="utf-8") as now:
            if now.read() != page():
                print("docs/man/agentboxd-errors.7 differs: run docs/man/from_reasons.py")
                sys.exit(1)
    else:
        with open(MAN, "w", encoding="utf-8") as now:
            now.write(page())
