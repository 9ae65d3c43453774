# SPDX-License-Identifier: MIT
"""Checks that need a finished build ($BUILD_DIR): each header compiles alone, the library exports its header and nothing
else, and links nothing else."""
import json
import os
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor

from common import ROOT, Skip, c_files, exists, read, run

BUILD = os.path.join(ROOT, os.environ.get("BUILD_DIR", "build"))


def compile_flags():
    try:
        with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as f:
            commands = json.load(f)
    except OSError:
        raise Skip("no build in %s" % os.path.relpath(BUILD, ROOT))
    includes = []
    for c in commands:
        for w in shlex.split(c["command"]):
            if w.startswith("-I"):
                flag = "-I" + os.path.normpath(os.path.join(c["directory"], w[2:]))
                if flag not in includes:
                    includes.append(flag)
    return ["-std=gnu17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter",
            "-Wno-missing-field-initializers", "-Wno-unused-function", "-Wno-unused-const-variable"] + includes


def headers():
    flags = compile_flags()

    def one(header):
        # as an includer sees it: twice, and with something after it
        source = '#include "%s"\n#include "%s"\nextern int after_it;\n' % (header, header)
        r = subprocess.run(["gcc", "-fsyntax-only", "-x", "c", "-"] + flags, input=source, capture_output=True,
                           text=True, cwd=ROOT)
        return None if r.returncode == 0 else "%s does not compile alone: %s" % (
            header, next((l for l in r.stderr.splitlines() if "error" in l), r.stderr[:200]))

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return [c for c in pool.map(one, c_files(".h")) if c]


def library():
    for d, _, files in os.walk(os.path.join(BUILD, "client")):
        for f in files:
            if re.fullmatch(r"libagentbox\.so(\.\d+)*", f) and not os.path.islink(os.path.join(d, f)):
                return os.path.join(d, f)
    raise Skip("libagentbox.so is not built")


def symbols():
    lib = library()
    out = subprocess.run(["nm", "-D", "--defined-only", lib], capture_output=True, text=True, check=True).stdout
    exported = {w[2].split("@")[0] for w in (l.split() for l in out.splitlines()) if len(w) == 3 and w[1] != "A"}
    header = re.sub(r"/\*.*?\*/|//[^\n]*", "", read("client/include/agentbox.h"), flags=re.S)
    header = re.sub(r"^\s*#.*?(?<!\\)$", "", header, flags=re.S | re.M)
    header = re.sub(r"\(\*\s*\w+\)", "", header)  # members that point to functions
    declared = set(re.findall(r"\b(ab_\w+)\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*(?:__attribute__\s*\(\(.*?\)\)\s*)*;", header))
    found = []
    maps = [m for m in ("client/libagentbox.map", "client/lib/libagentbox.map") if exists(m)]
    if not maps:
        found.append("client/libagentbox.map does not exist")
    else:
        body = re.sub(r"/\*.*?\*/|#[^\n]*", "", read(maps[0]), flags=re.S)
        listed = set(re.findall(r"\b(ab_\w+)\s*;", body))
        if listed != declared:
            found += ["%s and agentbox.h differ: %s" % (maps[0], n) for n in sorted(listed ^ declared)]
    found += ["%s is exported but not in agentbox.h" % n for n in sorted(exported - declared)]
    found += ["%s is in agentbox.h but not exported" % n for n in sorted(declared - exported)]
    return found


def needed():
    lib = library()
    out = subprocess.run(["readelf", "-d", lib], capture_output=True, text=True, check=True).stdout
    libs = re.findall(r"\(NEEDED\).*\[(.*)\]", out)
    allowed = r"libprotobuf-c\.so\.\d+|libnghttp2\.so\.\d+|libc\.so\.\d+|lib(asan|ubsan)\.so\.\d+"
    return ["libagentbox.so needs %s" % n for n in libs if not re.fullmatch(allowed, n)]


def text_size():
    """Code and constants of the library, as it is stripped, fit in 200 KB."""
    lib = library()
    if subprocess.run(["readelf", "-d", lib], capture_output=True, text=True, check=True).stdout.count("san.so"):
        raise Skip("built with a sanitizer")
    out = subprocess.run(["size", lib], capture_output=True, text=True, check=True).stdout
    text = int(out.splitlines()[1].split()[0])
    return ["libagentbox.so has %d bytes of text" % text] if text > 200_000 else []


if __name__ == "__main__":
    run([("headers", headers), ("symbols", symbols), ("needed", needed), ("text-size", text_size)])
