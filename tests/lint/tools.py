# SPDX-License-Identifier: MIT
"""Every script of tests/ installs what it calls: the commands of its shell, the programs and modules of its Python and the libraries
of its builds, against the list of packages that it asks setup.sh for. A script's own scripts and modules count as it."""
import ast
import fnmatch
import os
import re
import shutil
import subprocess
import sys

from common import FILES, ROOT, Skip, read, run

# What is on every Debian.
ESSENTIAL = set("""
    awk basename bash cat chmod cksum cmp cp cut date dirname dpkg-deb dpkg-query env find flock grep head id ln mkdir mktemp mount mv nproc
    nsenter readlink rm sed seq setpriv sh sha256sum sleep sort tail tar timeout tr umount unshare
""".split())
# Package: its programs.
PROGRAMS = {
    "binutils": "nm readelf size", "busybox-static": "busybox", "bzip2": "bzip2", "clang": "clang", "curl": "curl", "file": "file", "fish": "fish", "g++": "g++", "gcc": "cc gcc gcov", "gdb": "gcore",
    "debhelper": "dh", "dpkg-dev": "dpkg-buildpackage dpkg-parsechangelog", "lintian": "lintian",
    "iproute2": "ip ss", "mandoc": "mandoc", "meson": "meson", "nftables": "nft", "nghttp2-client": "h2load nghttp",
    "nghttp2-proxy": "nghttpx", "nghttp2-server": "nghttpd", "nginx-light": "nginx", "ninja-build": "ninja", "nodejs": "node",
    "openssl": "openssl", "patch": "patch", "pkg-config": "pkg-config", "procps": "ps", "protobuf-c-compiler": "protoc-c",
    "protobuf-compiler": "protoc", "protobuf-compiler-grpc": "grpc_cpp_plugin grpc_python_plugin", "python3": "python3", "spin": "spin",
    "prometheus": "prometheus promtool",
    "skopeo": "skopeo", "strace": "strace", "tinyproxy-bin": "tinyproxy", "tmux": "tmux", "umoci": "umoci",
    "valgrind": "callgrind_control valgrind", "xz-utils": "xz", "zsh": "zsh", "zstd": "zstd",
}
MODULES = {"google": "python3-protobuf", "grpc": "python3-grpcio", "h2": "python3-h2", "hpack": "python3-h2",
           "hyperframe": "python3-h2", "jsonschema": "python3-jsonschema",
           "prometheus_client": "python3-prometheus-client", "pytest": "python3-pytest",
           "pytest_timeout": "python3-pytest-timeout", "venv": "python3-venv"}
LIBRARIES = {
    "grpc++": "libgrpc++-dev", "http_parser": "libhttp-parser-dev", "inih": "libinih-dev", "jansson": "libjansson-dev",
    "libevent_core": "libevent-dev", "libnghttp2": "libnghttp2-dev", "libprotobuf-c": "libprotobuf-c-dev", "openssl": "libssl-dev",
    "protobuf": "libprotobuf-dev", "sqlite3": "libsqlite3-dev", "threads": "libc6-dev", "zlib": "zlib1g-dev",
}
# Looked for before it is used: where it is not, something is slower or skipped by name.
OPTIONAL = {"apt-get", "ccache", "chromium", "git", "go", "node", "npm", "sudo"}
# Run by other scripts, behind their set-up.
PARTS = {"tests/lib/judged-rows.sh", "tests/lib/pool-rows.sh", "tests/lib/wire-cases.sh", "tests/lint/run.sh", "tests/setup.sh",
         "tests/it/abox/install.sh", "tests/it/npm/install.sh", "tests/it/pypi/install.sh",
         "tests/judges/cli.sh", "tests/judges/drive-cli.sh", "tests/judges/install.sh"}
PACKAGE_OF = {name: package for package, names in PROGRAMS.items() for name in names.split()}


# --- shell ---

OPENS = {"if", "then", "elif", "else", "while", "until", "do", "!", "{", "exec"}    # a command stands behind them
TAKES_COMMAND = {"timeout", "env"}
BUILTINS = set("""
    } fi done esac . : [ alias break cd command continue echo eval exit export kill local printf pwd read return set shift test trap
    umask unset wait
""".split())
TOKEN = re.compile(r"""
    (?P<skip>\\\n|[ \t]+|(?<![^\s;|&()])\#[^\n]*)
  | <<-?\s*'?(?P<end>\w+)'?
  | (?P<turn>[<>]&?)
  | (?P<op>;;|&&|\|\||[;&|()\n])
  | (?P<word>(?: '[^']*' | "(?:\\.|[^"\\])*" | \$\(\((?:[^()]|\([^()]*\))*\)\) | \$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)
               | \$\{[^}]*\} | \\. | [^\s;&|()<>'"\\] )+)
""", re.X | re.S)


def tokens(text):
    """(is it an operator, what it says); files that are read and written are left out."""
    at, end, turned = 0, None, False
    while at < len(text):
        m = TOKEN.match(text, at)
        if not m:
            raise ValueError("cannot be read at: %r" % text[at:at + 40])
        at = m.end()
        end = m.group("end") or end
        if m.group("op"):
            if end and m.group("op") == "\n":
                at = re.compile(r"^\t*%s$" % end, re.M).search(text, at).end()
                end = None
            yield True, m.group("op")
        elif m.group("word"):
            if not turned:
                yield False, m.group("word")
        turned = bool(m.group("turn")) or turned and bool(m.group("skip"))


def commands(text):
    """The words of a script that stand where a command does, its own functions left out."""
    found, own, inner = set(), set(), []
    first, pattern, query, last = True, False, False, ""
    for is_op, t in tokens(text):
        if is_op:
            if t == ")" and last == "(":
                own.add(word)
            pattern = pattern and t != ")" or t == ";;"
            first, query = True, False
        else:
            inner += re.findall(r"(?<!\\)\$\(((?!\()(?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)", re.sub(r"'[^']*'", "", t))
            if t == "esac":
                pattern = first = False
            elif pattern and not (t == "in"):
                pass
            elif first and t in ("for", "case"):
                first, pattern = False, t == "case"
            elif first and not (t in OPENS or re.match(r"\w+=", t) or query and re.match(r"-|\d", t)):
                found |= {t} - BUILTINS
                first = query = t in TAKES_COMMAND
            word = t
        last = t
    for t in inner:
        found |= commands(t)
    return {t for t in found - own if not re.search(r"[$\"']", t)}


# --- what a script uses ---

MESON = [f for f in FILES if os.path.basename(f) == "meson.build"]
RUNS = {"run", "Popen", "call", "check_call", "check_output"}


def libraries(optional):
    """Of the builds."""
    for f in MESON:
        text = re.sub(r"#[^\n]*", "", read(f))
        for kind, name, rest in re.findall(r"\b(dependency|find_library|find_program)\('([^']+)'([^)]*)\)", text):
            if optional or "required: false" not in rest:
                yield ("program" if kind == "find_program" else "library"), name, f


def module_files(name, folder):
    """Those of a module of ours; none if it is somebody else's."""
    for d in (folder, "tests/lib", "tests/it", "tests/bench"):
        own = [f for f in FILES if f == "%s/%s.py" % (d, name) or f.startswith("%s/%s/" % (d, name)) and f.endswith(".py")]
        if own:
            return own
    return []


def first_word(node):
    """Of the words of a command, where it is written out."""
    while isinstance(node, ast.BinOp):
        node = node.left
    first = node.elts[0] if isinstance(node, (ast.List, ast.Tuple)) and node.elts else None
    word = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
    return os.path.basename(word) if word and word.startswith("/usr/bin/") else word


def python_uses(f):
    """(kind, name) of what a file calls and imports; a kind of "file" is one of ours."""
    for node in ast.walk(ast.parse(read(f), f)):
        names = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module]
        elif isinstance(node, (ast.List, ast.Tuple)) and first_word(node) in PACKAGE_OF:
            yield "program", first_word(node)
        elif isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            word = node.args[0].value if called == "which" and isinstance(node.args[0], ast.Constant) else (
                first_word(node.args[0]) if called in RUNS else None)
            if word:
                yield "program", word
        for name in {n.partition(".")[0] for n in names} - sys.stdlib_module_names:
            own = module_files(name, os.path.dirname(f))
            yield from [("file", o) for o in own] or [("module", name)]


def shell_uses(f):
    text = read(f)
    for name in commands(text):
        if not re.match(r"\d", name) and ("/" not in name or name.startswith("/usr/bin/")):
            yield "program", os.path.basename(name)
    # The compiler of a build, say, stands as a word among others.
    for name in {t for is_op, t in tokens(text) if t in PACKAGE_OF} | set(re.findall(r"command -v ([\w+.-]+)", text)):
        yield "program", name
    for words in re.findall(r"pkg-config ([^)\n]*)", text):
        yield from [("library", w) for w in words.split() if not w.startswith("-")]
    yield from [("module", m) for m in re.findall(r" -m (pytest|venv)\b", text)]
    for word in re.findall(r"[\w./$-]+\.(?:sh|py)\b", text):
        word = re.sub(r"\$\w+", "*", word)
        for path in (word, os.path.normpath(os.path.join(os.path.dirname(f), word))):
            yield from [("file", p) for p in fnmatch.filter(FILES, path) if p != "tests/setup.sh"]
    if re.search(r"pytest tests/it\b", text):
        yield "module", "pytest_timeout"        # tests/it/pytest.ini sets one
        yield "file", "tests/it/conftest.py"
    if re.search(r"pytest tests/it (?!/)", text):
        yield from [("file", p) for p in FILES if re.match(r"tests/it/\w+\.py$", p)]


def uses(script, optional):
    """{(kind, name): where} of a script and all that it runs."""
    found, todo, seen = {}, [script], set()
    while todo:
        f = todo.pop()
        if f in seen:
            continue
        seen.add(f)
        for kind, name in shell_uses(f) if f.endswith(".sh") else python_uses(f):
            if kind == "file":
                todo.append(name)
            else:
                found.setdefault((kind, name), f)
    if ("program", "meson") in found:
        for kind, name, f in libraries(optional):
            found.setdefault((kind, name), f)
    return found


def lists():
    """{"bench": its packages, …} as setup.sh has them."""
    text = read("tests/setup.sh")
    words = {name: set(p.split()) for name, p in re.findall(r'^(\w+)_packages="([^"]*)"', text, re.M)}
    return {name: set().union(*(words[w] for w in re.findall(r"\$(\w+)_packages", value)))
            for name, value in re.findall(r"^(\w+)\) packages=(.*) ;;$", text, re.M)}


# B-10: the benchmarks asked for no nghttpx and ended in the middle.
def setups():
    found, known = [], lists()
    tables = {"program": PACKAGE_OF, "module": MODULES, "library": LIBRARIES}
    for script in [f for f in FILES if re.match(r"tests/.*\.sh$", f) and f not in PARTS]:
        m = re.search(r"setup\.sh\"? (\w+)", read(script))
        if not m or m.group(1) not in known:
            found.append("%s: installs nothing: it is to call tests/setup.sh with one of %s" % (script, ", ".join(sorted(known))))
            continue
        for (kind, name), where in sorted(uses(script, m.group(1) == "test").items()):
            package = tables[kind].get(name)
            if name in OPTIONAL or kind == "program" and name in ESSENTIAL:
                continue
            if not package:
                found.append("%s: the %s %s (%s): its package is not in the tables of tests/lint/tools.py" % (script, kind, name, where))
            elif package not in known[m.group(1)]:
                found.append("%s: the %s %s (%s) is of %s, which is not in the list %s of tests/setup.sh" % (
                    script, kind, name, where, package, m.group(1)))
    return found


# --- are the tables right ---

def dpkg(*args):
    return subprocess.run(["dpkg-query"] + list(args), capture_output=True, text=True).stdout.splitlines()


def owners(patterns):
    """{path: packages} as this machine's dpkg knows them."""
    found = {}
    for line in dpkg("-S", *patterns):
        who, _, path = line.partition(": ")
        found.setdefault(path, set()).update(w.partition(":")[0] for w in who.split(", "))
    return found


def with_depends(packages):
    """{package: it and what it depends on}, of those that are installed: some are only names for the one of today."""
    found = {}
    for line in dpkg("-W", "-f", "${Package}|${Depends}\n", *packages):
        name, _, depends = line.partition("|")
        found[name] = {name} | set(re.findall(r"(?:^|, )([\w.+-]+)", depends))
    return found


def program_paths(name):
    """Where a program is, by all the names that it has there."""
    path = shutil.which(name)
    real = os.path.realpath(path) if path else ""
    return {p for q in (path, real) if q for p in (q, re.sub(r"^/usr(/s?bin/)", r"\1", q))}


def tables():
    """What is installed here is of the packages that the tables say."""
    if not shutil.which("dpkg-query"):
        raise Skip("there is no dpkg here")
    base = {line.split()[0] for line in dpkg("-W", "-f", "${Package} ${Priority} ${Essential}\n")
            if " required " in line or line.endswith(" yes")}
    rows = [(name, PACKAGE_OF.get(name), program_paths(name)) for name in ESSENTIAL | set(PACKAGE_OF)]
    pcs = owners(["*/pkgconfig/*.pc"])
    rows += [(name, package, {p for p in pcs if p.endswith("/%s.pc" % name)}) for name, package in LIBRARIES.items()]
    known, depends = dict(owners(set().union(*(r[2] for r in rows))), **pcs), with_depends(r[1] for r in rows if r[1])
    found = []
    for name, package, paths in sorted(rows, key=lambda r: r[0]):
        have = set().union(*(known.get(p, set()) for p in paths)) if paths else set()
        if have and not have & (depends.get(package, set()) if package else base):
            found.append("%s is of %s, not of %s" % (name, ", ".join(sorted(have)), package or "what every Debian has"))
    return found


if __name__ == "__main__":
    run([("setups", setups), ("setup-tables", tables)])
