# SPDX-License-Identifier: MIT
"""Sums up a run: lines.tsv (pass|fail|skip, name, reason), meson's logs (.json: its JUnit files have a test that ran
into its time limit as passed) and the JUnit file of pytest.

Names every test that was skipped or failed, with its reason, and ends with the line that is counted.
"""
import json
import os
import re
import sys
import xml.etree.ElementTree as ET


def from_lines(path):
    with open(path, encoding="utf-8") as f:
        for line in f:
            kind, name, reason = (line.rstrip("\n").split("\t") + ["", ""])[:3]
            yield kind, name, reason


def from_meson(path):
    """One JSON object a line and test; a unit test may also say of one of its parts `skip NAME: REASON`."""
    where = os.path.splitext(os.path.basename(path))[0]
    with open(path, encoding="utf-8") as f:
        tests = [json.loads(line) for line in f if line.strip()]
    for t in tests:
        name = "%s:%s" % (where, t["name"])
        said = (t.get("stdout") or "") + "\n" + (t.get("stderr") or "")
        skips = re.findall(r"^skip (\w+): (.*)$", said, re.M)
        last = " ".join(([l for l in said.splitlines() if l.strip()] or ["no output"])[-1].split())[:300]
        if t["result"] == "OK":
            yield "pass", name, ""
            for part, reason in skips:
                yield "skip", "%s.%s" % (name, part), reason
        elif t["result"] == "SKIP":
            yield "skip", name, skips[-1][1] if skips else last
        else:
            yield "fail", name, "%s: %s" % (t["result"], last)


def from_junit(path):
    where = os.path.splitext(os.path.basename(path))[0]
    for case in ET.parse(path).getroot().iter("testcase"):
        name = "%s:%s.%s" % (where, case.get("classname", ""), case.get("name", ""))
        kind, reason = "pass", ""
        for child in case:
            if child.tag in ("failure", "error"):
                kind, reason = "fail", child.get("message") or (child.text or "").strip()[:200]
            elif child.tag == "skipped" and kind == "pass":
                kind, reason = "skip", child.get("message") or "no reason given"
        yield kind, name, " ".join(reason.split())[:300]


def main(folder):
    seen = []
    for entry in sorted(os.listdir(folder)):
        path = os.path.join(folder, entry)
        if entry == "lines.tsv":
            seen += from_lines(path)
        elif entry.endswith(".xml"):
            try:
                seen += from_junit(path)
            except ET.ParseError as e:
                seen.append(("fail", entry, "unreadable results: %s" % e))
        elif entry.endswith(".json"):
            try:
                seen += from_meson(path)
            except (ValueError, KeyError) as e:
                seen.append(("fail", entry, "unreadable results: %r" % e))

    for word, title in (("skip", "skipped"), ("fail", "failed")):
        for kind, name, reason in seen:
            if kind == word:
                print("%s %s%s" % (title, name, ": " + reason if reason else ""))
    count = {k: sum(1 for s in seen if s[0] == k) for k in ("pass", "fail", "skip")}
    print("%(pass)d passed, %(fail)d failed, %(skip)d skipped" % count)
    return 0 if count["fail"] == 0 and count["pass"] > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
