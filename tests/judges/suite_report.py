# SPDX-License-Identifier: MIT
"""Counts the results of a suite, of vitest in JSON or of pytest in JUnit's XML, and names each failure with its cause."""
import json
import os
import re
import sys
import xml.etree.ElementTree as ET


def of_vitest(path):
    with open(path, encoding="utf-8") as f:
        doc = json.load(f)
    for file in doc["testResults"]:
        name = re.sub(r".*/tests/", "", file["name"])
        if not file["assertionResults"] and file["status"] == "failed":
            yield "failed", name, file.get("message", "")
        for t in file["assertionResults"]:
            state = {"passed": "passed", "failed": "failed"}.get(t["status"], "skipped")
            yield state, "%s > %s" % (name, t["fullName"]), " ".join(t.get("failureMessages", []))


def of_pytest(path):
    for case in ET.parse(path).getroot().iter("testcase"):
        name = "%s::%s" % (case.get("classname"), case.get("name"))
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        if bad is not None:
            yield "failed", name, "%s\n%s" % (bad.get("message", ""), bad.text or "")
        else:
            yield "skipped" if case.find("skipped") is not None else "passed", name, ""


def cause(text):
    """The line that says why: the error, not the way to it."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("E ").strip() for line in lines if re.match(r"(E +)?[\w.]*(Error|Exception)\b", line)]
    return (errors[-1] if errors else lines[0] if lines else "?")[:260]


def main(path):
    if not os.path.exists(path):
        print("the suite left no results; see %s.log" % path)
        return 1
    rows = list(of_vitest(path) if path.endswith(".json") else of_pytest(path))
    for state, name, text in rows:
        if state == "failed":
            print("FAILED %s\n       %s" % (name, cause(text)))
    print("%d passed, %d failed, %d skipped" % tuple(sum(r[0] == s for r in rows) for s in ("passed", "failed", "skipped")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
