# SPDX-License-Identifier: MIT
"""What the checks share: the list of files, C without comments and strings, and the way to report."""
import fnmatch
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
C_DIRS = ("proto/", "daemon/", "client/")


def tracked():
    """Every file of the repository, committed or about to be; without git, every file that no build made."""
    try:
        out = subprocess.run(["git", "-C", ROOT, "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard"],
                             capture_output=True, text=True)
        names = out.stdout.splitlines() if out.returncode == 0 else []
    except FileNotFoundError:
        names = []
    if not names:
        made = re.compile(r"(^|/)(build[^/]*|\.git|node_modules|__pycache__|\.pytest_cache)(/|$)")
        names = [os.path.relpath(os.path.join(d, f), ROOT) for d, _, files in os.walk(ROOT) for f in files]
        names = [n for n in names if not made.search(n)]
    return sorted(n for n in set(names) if os.path.isfile(os.path.join(ROOT, n)))


FILES = tracked()


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8", errors="replace") as f:
        return f.read()


def exists(name):
    return os.path.exists(os.path.join(ROOT, name))


def c_files(*suffixes):
    return [f for f in FILES if f.startswith(C_DIRS) and f.endswith(suffixes or (".c", ".h"))]


_TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)


def bare_c(text):
    """C with comments, strings and characters blanked out, line numbers kept."""
    def blank(m):
        t = m.group(0)
        return "\n" * t.count("\n") if t[0] == "/" else t[0] + " " * (len(t) - 2) + t[-1]
    return _TOKEN.sub(blank, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def matches(name, globs):
    base = os.path.basename(name)
    return any(fnmatch.fnmatch(name, g) or fnmatch.fnmatch(base, g) for g in globs)


def note(kind, name, reason=""):
    path = os.environ.get("LINT_RESULTS")
    if path:
        with open(path, "a", encoding="utf-8") as f:
            f.write("%s\tlint:%s\t%s\n" % (kind, name, reason))


class Skip(Exception):
    """Raised by a check that cannot run here; says why."""


def run(checks):
    """Runs the named checks (name, function -> list of complaints); the exit status is the answer."""
    failed = 0
    for name, check in checks:
        try:
            complaints = check()
        except Skip as e:
            print("skip %s: %s" % (name, e))
            note("skip", name, str(e))
            continue
        if complaints:
            failed += 1
            for c in complaints[:50]:
                print("%s: %s" % (name, c))
            if len(complaints) > 50:
                print("%s: and %d more" % (name, len(complaints) - 50))
            note("fail", name, "%d complaints, first: %s" % (len(complaints), complaints[0]))
        else:
            print("ok   %s" % name)
            note("pass", name)
    sys.exit(3 if failed else 0)
