# SPDX-License-Identifier: MIT
"""Holds every #include of proto/, daemon/ and client/ against the table in docs/internals/layers.md."""
import re

from common import C_DIRS, c_files, matches, read, run

PAGE = "docs/internals/layers.md"

OUTSIDE = (  # first match says which library a header belongs to
    (r"nghttp2/", "nghttp2"),
    (r"protobuf-c/|google/protobuf-c/", "protobuf-c"),
    (r"event2/|event\.h$|evutil\.h$", "event2"),
    (r"openssl/", "openssl"),
    (r"jansson\.h$", "jansson"),
    (r"sqlite3\.h$", "sqlite3"),
    (r"ini\.h$", "inih"),
    (r"zlib\.h$", "zlib"),
    (r"pthread\.h$|threads\.h$", "pthread"),
    (r"systemd/", "systemd"),
)
LIBC = re.compile(
    r"(?:sys|linux|asm|netinet|arpa|net)/[\w/-]+\.h$|"
    r"(?:assert|ctype|dirent|endian|err|errno|fcntl|float|ftw|glob|fnmatch|getopt|grp|inttypes|langinfo|libgen|limits|"
    r"locale|malloc|math|mntent|netdb|poll|pty|pwd|sched|search|semaphore|setjmp|signal|spawn|stdalign|stdarg|"
    r"stdatomic|stdbool|stddef|stdint|stdio|stdlib|stdnoreturn|string|strings|syscall|syslog|termios|time|"
    r"ucontext|unistd|utime|utmp|wchar|wctype|resolv|ifaddrs|link|dlfcn|elf|byteswap|execinfo|cpuid|"
    r"x86intrin|immintrin)\.h$")


class Entry:
    """One entry of a cell: a module or library, maybe only some of its headers, maybe only in some files."""

    def __init__(self, text):
        m = re.fullmatch(r"([\w/*+-]+)(?:\s+\((only|in)\s+([^)]+)\))?", text)
        if not m:
            raise ValueError("cannot read the entry %r" % text)
        self.name = m.group(1)
        globs = (m.group(3) or "*").split()
        self.headers = globs if m.group(2) == "only" else ["*"]
        self.files = globs if m.group(2) == "in" else ["*"]


def table():
    modules = {}
    for line in read(PAGE).splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 4 or not cells[1].isdigit():
            continue
        lists = [[Entry(e.strip()) for e in c.split(";") if e.strip() not in ("", "–")] for c in cells[2:]]
        modules[cells[0]] = (int(cells[1]), lists[0], lists[1])
    return modules


def check_table(modules):
    for name, (level, inside, _) in modules.items():
        for e in inside:
            if e.name == "*":
                continue
            if e.name not in modules:
                yield "%s: %s may include %s, which is not in the table" % (PAGE, name, e.name)
            elif modules[e.name][0] >= level:
                yield "%s: %s (level %d) may include %s (level %d)" % (
                    PAGE, name, level, e.name, modules[e.name][0])
    if len(modules) < 10:
        yield "%s: the table was not found" % PAGE


def module_of(path, modules):
    """The longest row that is a folder above this file."""
    if path.endswith(".pb-c.h"):
        return "proto/gen"
    parts = path.split("/")[:-1]
    while parts:
        if "/".join(parts) in modules:
            return "/".join(parts)
        parts.pop()
    return None


def complain(path, modules):
    here = module_of(path, modules)
    if here is None:
        yield "%s: no row of %s covers this folder" % (path, PAGE)
        return
    _, inside, outside = modules[here]
    for n, line in enumerate(read(path).splitlines(), 1):
        m = re.match(r"\s*#\s*include\s+([<\"])([^>\"]+)[>\"]", line)
        if not m:
            continue
        what = m.group(2)
        if m.group(1) == '"' or what.endswith(".pb-c.h"):
            if not what.startswith(C_DIRS) and not what.endswith(".pb-c.h"):
                yield '%s:%d: "%s" is not written from the root' % (path, n, what)
                continue
            there = module_of(what, modules)
            if there == here:
                continue
            if not any(e.name in ("*", there) and matches(what, e.headers) and matches(path, e.files)
                       for e in inside):
                yield "%s:%d: %s may not include %s" % (path, n, here, what)
            continue
        if what == "agentbox.h":
            if here != "client/include" and not any(e.name == "client/include" for e in inside):
                yield "%s:%d: %s may not include <agentbox.h>" % (path, n, here)
            continue
        library = next((lib for pattern, lib in OUTSIDE if re.match(pattern, what)), None)
        if library is None:
            if not LIBC.match(what):
                yield "%s:%d: <%s> is neither of the C library nor in the table's libraries" % (path, n, what)
        elif not any(e.name == library and matches(path, e.files) for e in outside):
            yield "%s:%d: %s may not include <%s> (%s)" % (path, n, here, what, library)


def check():
    modules = table()
    found = list(check_table(modules))
    for path in c_files(".c", ".h"):
        found += complain(path, modules)
    return found


if __name__ == "__main__":
    run([("layers", check)])
