# SPDX-License-Identifier: MIT
"""Writes the message catalog (journalctl -x) from the table of the log's kinds: catalog.py KINDS.DEF OUTPUT."""
import json
import re
import sys
import textwrap

ROW = re.compile(r'^KIND\((\w+), "([0-9a-f]{32})", ("(?:[^"\\]|\\.)*"),\s+("(?:[^"\\]|\\.)*")\)$', re.M)


def rows(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    found = ROW.findall(text)
    if len(found) != len(re.findall(r"^KIND\(", text, re.M)):
        sys.exit("%s: a row that is none" % path)
    return found


def main(table, output):
    with open(output, "w", encoding="utf-8") as f:
        f.write("# SPDX-License-Identifier: MIT\n# Made from daemon/common/obs/kinds.def.\n")
        for name, number, subject, text in rows(table):
            f.write("\n-- %s\nSubject: %s\nDefined-By: agentboxd\nSupport: man:agentboxd(8)\nDocumentation: man:agentboxd(8)\n\n%s\n" % (
                number, json.loads(subject), textwrap.fill(json.loads(text), 78) + "\n\nIt is logged as %s." % name))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
