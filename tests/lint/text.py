# SPDX-License-Identifier: MIT
"""Checks that read the text of the files alone: licence lines, forbidden words, banned functions, the one
writer of each state, tests' and scripts' syntax, planted bugs that cannot be planted any more."""
import ast
import os
import re
import shutil
import subprocess

from common import FILES, ROOT, Skip, bare_c, c_files, exists, line_of, matches, read, run

SPDX = "SPDX-License-Identifier: MIT"
SPDX_FILES = re.compile(r"\.(c|h|py|sh|mjs|proto|def|map|in)$|(^|/)meson\.build$|^\.ci/run$")


def spdx():
    return ["%s: no '%s' in its first three lines" % (f, SPDX) for f in FILES
            if SPDX_FILES.search(f) and SPDX not in "\n".join(read(f).splitlines()[:3])]


# Written so that this file does not match itself.
FORBIDDEN = (
    (r"/wo[r]k/", "a path of one machine"),
    (r"\bwork[p]lace\b|\bC[E]O\b", "how it was written"),
    (r"registry\.np[m]js|py[p]i\.org|files\.python[h]osted|deb\.deb[i]an\.org|cra[t]es\.io|proxy\.gol[a]ng",
     "the host of a registry"),
    (r"\bT[O]DO\b(?!\(#\d+\))|\bF[I]XME\b|\bX[X]X\b", "unfinished work without its issue, (#n)"),
)


def words():
    found = []
    for f in FILES:
        if re.search(r"\.(png|gz|bin)$|^tests/fuzz/corpus/|^tests/fuzz/.*corpus", f):
            continue
        text = read(f)
        for pattern, why in FORBIDDEN:
            for m in re.finditer(pattern, text):
                found.append("%s:%d: '%s': %s" % (f, line_of(text, m.start()), m.group(0), why))
    return found


def banned():
    rules = []
    for line in read("tests/lint/banned.tsv").splitlines():
        if line and not line.startswith("#"):
            name, where, instead = line.split("\t")
            rules.append((name, [] if where == "-" else where.split(","), instead))
    any_of = re.compile(r"(?<![\w.>])(%s)\s*\(" % "|".join(r[0] for r in rules))
    by_name = {r[0]: r for r in rules}
    found = []
    for f in c_files():
        text = bare_c(read(f))
        for m in any_of.finditer(text):
            name, where, instead = by_name[m.group(1)]
            if not matches(f, where):
                found.append("%s:%d: %s(): use %s" % (f, line_of(text, m.start()), name, instead))
    return found


FUNCTION = re.compile(r"^(?![\s#/{}*])[^;{}=]*?\b(\w+)\(([^;{}]*)\)\s*\n\{\n(.*?)^\}", re.S | re.M)


def states():
    """The state of a struct that has x_set_state() is written nowhere else but where it is allocated."""
    setters = {}
    for f in c_files(".c", ".h"):
        for m in re.finditer(r"\b(\w*set_state)\(\s*struct (\w+) \*", bare_c(read(f))):
            setters.setdefault(m.group(2), m.group(1))
    found = []
    for f in c_files(".c", ".h"):
        text = bare_c(read(f))
        if "state" not in text:
            continue
        for m in FUNCTION.finditer(text):
            body = m.group(2) + ";" + m.group(3)
            for w in re.finditer(r"\b(\w+)->state\s*=[^=]", m.group(3)):
                kinds = re.findall(r"struct (\w+) \*(?:const )?%s\b" % w.group(1), body)
                if re.search(r"\b%s = (?:[^;]*\? )?[cm]alloc\(" % w.group(1), m.group(3)):
                    continue
                for kind in kinds[:1]:
                    if kind in setters and m.group(1) != setters[kind]:
                        found.append("%s:%d: %s writes the state of a struct %s; %s() is its one writer" % (
                            f, line_of(text, m.start(3) + w.start()), m.group(1), kind, setters[kind]))
    return found


def scripts():
    found = []
    for f in FILES:
        path = os.path.join(ROOT, f)
        if f.endswith(".py"):
            try:
                ast.parse(read(f), f)
            except SyntaxError as e:
                found.append("%s:%s: %s" % (f, e.lineno, e.msg))
        elif f.endswith(".sh") or f == ".ci/run":
            shell = "bash" if read(f).startswith("#!/bin/bash") else "sh"
            r = subprocess.run([shell, "-n", path], capture_output=True, text=True)
            if r.returncode:
                found.append("%s: %s" % (f, r.stderr.strip()))
    return found


def man():
    pages = [f for f in FILES if f.startswith("docs/man/") and re.search(r"\.[1-8]$", f)]
    if not pages:
        raise Skip("there is no manual page yet")
    if not shutil.which("mandoc"):
        raise Skip("mandoc is not installed")
    r = subprocess.run(["mandoc", "-T", "lint", "-W", "warning"] + pages, capture_output=True, text=True, cwd=ROOT)
    # references to pages of the other sections are only known where they are installed
    return [line for line in r.stdout.splitlines() if "referenced manual not found" not in line]


def links():
    """Files that a page names in the form [text](path) exist."""
    found = []
    for f in FILES:
        if not f.endswith(".md"):
            continue
        text = read(f)
        for m in re.finditer(r"\]\((?!https?:|#)([^)#\s]+)", text):
            if not exists(os.path.normpath(os.path.join(os.path.dirname(f), m.group(1)))):
                found.append("%s:%d: %s does not exist" % (f, line_of(text, m.start()), m.group(1)))
    return found


# What a text names without being a name of ours: headers of the system, examples.
OUTSIDE = {"sysexits.h", "agent.py", "x_options"}
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def gone():
    """Files, functions and structs that a page or a comment names are still there."""
    code, texts = [], []
    for f in FILES:
        if f.endswith((".c", ".h", ".def", ".proto")):
            text = read(f)
            code.append(COMMENT.sub(" ", text))
            texts += [(f, line_of(text, m.start()), m.group(0)) for m in COMMENT.finditer(text)]
        elif f.endswith(".md"):
            texts.append((f, 1, read(f)))
        elif re.search(r"\.(py|sh|pml|mjs|js|in|tsv)$|meson\.build$", f):
            code.append(read(f))
    there = set(re.findall(r"\w+", "\n".join(code))) | OUTSIDE
    there |= {os.path.basename(f) for f in FILES}
    named = re.compile(r"(?<![\w.\-/<])([a-z][\w-]*\.(?:c|h|def|py|sh|pml))\b(?!\()|(?<![\w.>-])([a-z_][a-z0-9_]{2,})\(\)"
                       r"|\b(?:struct|enum) ([a-z]+_\w+)\b")
    return sorted({"%s:%d: there is no %s" % (f, first + text.count("\n", 0, m.start()), m.group(m.lastindex))
                   for f, first, text in texts for m in named.finditer(text) if m.group(m.lastindex) not in there})


def mutants():
    if not shutil.which("patch"):
        raise Skip("patch is not installed")
    patches = [f for f in FILES if re.match(r"tests/mutants/.*\.patch$", f)]
    bad = ["%s does not apply" % f for f in patches
           if subprocess.run(["patch", "-s", "-p1", "-F0", "--dry-run", "-i", f], capture_output=True, cwd=ROOT).returncode]
    return bad + ["%s: its first line names no test that there is" % f for f in patches
                  if f.startswith("tests/mutants/rows/") and not names_a_test(read(f).split("\n")[0])]


def names_a_test(line):
    """`# test: unit NAME`, `it FILE.py::TEST`, `lint FILE` or `fuzz sequences` (or agent_sequences), of tests that there are."""
    if line in ("# test: fuzz sequences", "# test: fuzz agent_sequences"):
        return exists("tests/fuzz/sequences_main.c")
    if m := re.fullmatch(r"# test: unit (\w+)", line):
        folder, _, name = m.group(1).partition("_")
        return exists("tests/unit/%s/test_%s.c" % (folder, name or folder))
    if m := re.fullmatch(r"# test: lint (\w+)", line):
        return exists("tests/lint/%s.py" % m.group(1))
    m = re.fullmatch(r"# test: it (\w+\.py)::(\w+)(\[.*\])?", line)
    return bool(m and exists("tests/it/" + m.group(1)) and re.search(r"^def %s\(" % m.group(2), read("tests/it/" + m.group(1)), re.M))


def golden():
    """The index of the recorded bytes names what there is, and all of it is small."""
    rows = [line.split("\t") for line in read("tests/golden/index.tsv").splitlines() if line and not line.startswith("#")]
    named = {"tests/golden/" + r[0] for r in rows}
    files = {f for f in FILES if re.match(r"tests/golden/.*\.re[qs]$", f)}
    size = sum(os.path.getsize(os.path.join(ROOT, f)) for f in files)
    return ["%s: is not in index.tsv" % f for f in sorted(files - named)] + \
        ["tests/golden/index.tsv: there is no %s" % f for f in sorted(named - files)] + \
        ["tests/golden/index.tsv: %r has not five columns" % r for r in rows if len(r) != 5] + \
        (["tests/golden: %d bytes are more than 1,000,000" % size] if size > 1000000 else [])


if __name__ == "__main__":
    run([("spdx", spdx), ("words", words), ("banned", banned), ("states", states), ("scripts", scripts),
         ("man", man), ("links", links), ("gone", gone), ("mutants", mutants),
         ("golden", golden)])
