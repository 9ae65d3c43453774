#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Turns the .proto files into C.

  gen.py messages --protoc-c P --root D [--root D] --out D NAME=FILE…
        NAME.pb-c.c and NAME.pb-c.h of each FILE (relative to a root). Files are handed to protoc-c
        under the flat NAME, because a custom target has no output folders.
  gen.py descriptors --set FILE --reasons FILE --out FILE.c
        The descriptors of the unchanged files as a C table, after checking the rules they keep.

protoc-c 1.4.1 refuses proto3 `optional`. Such a field is rewritten to a oneof with one member, which
is the same on the wire; C sees `_NAME_case` (0 = unset). It works on tokens: comments and strings
may say "optional" and a declaration may span lines.

protoc-c leaves out the names of fields under `optimize_for = CODE_SIZE`; the daemon needs them to
tell which field was wrong, so that option is dropped for C as well.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

TOKEN = re.compile(r"""
      (?P<space>\s+|//[^\n]*|/\*.*?\*/)
    | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    | (?P<word>[A-Za-z_][\w.]*)
    | (?P<number>[\d.+-][\w.+-]*)
    | (?P<mark>[{}()\[\]<>;=,:/.])
""", re.X | re.S)


def fail(text):
    sys.exit(f"gen.py: {text}")


def tokens(text, name):
    """(kind, text) of everything, so that joining the texts gives the file again."""
    out, at = [], 0
    while at < len(text):
        m = TOKEN.match(text, at)
        if not m:
            fail(f"{name}: cannot read {text[at:at + 20]!r}")
        out.append((m.lastgroup, m.group()))
        at = m.end()
    return out


def statements(toks):
    """Indices of the first token of each statement."""
    begins = True
    for i, (kind, text) in enumerate(toks):
        if kind == "space":
            continue
        if begins:
            yield i
        begins = text in ("{", "}", ";")


def until_semicolon(toks, i, name):
    while i < len(toks):
        if toks[i][1] == ";":
            return i
        if toks[i][1] in ("{", "}"):
            break
        i += 1
    fail(f"{name}: a declaration does not end")


def rewrite(text, name, flat):
    """The file as protoc-c can take it; `flat` gives the new name of an imported file."""
    toks = tokens(text, name)
    out = list(toks)
    for i in statements(toks):
        word = toks[i][1]
        if word not in ("optional", "import", "option"):
            continue
        end = until_semicolon(toks, i, name)
        real = [j for j in range(i, end) if toks[j][0] != "space"]
        if word == "import":
            target = toks[real[-1]][1][1:-1]
            if target not in flat:
                fail(f"{name}: imports {target}, which is not in the list")
            out[real[-1]] = ("string", f'"{flat[target]}.proto"')
        elif word == "optional":
            equal = next(k for k, j in enumerate(real) if toks[j][1] == "=")
            field = toks[real[equal - 1]][1]
            out[i] = ("word", f"oneof _{field} {{")
            out[end] = ("mark", "; }")
        elif toks[real[1]][1] == "optimize_for":
            for j in range(i, end + 1):
                out[j] = ("space", "")
    text = "".join(t for _, t in out)
    again = tokens(text, name)
    if any(again[i][1] == "optional" for i in statements(again)):
        fail(f"{name}: an `optional` is left")
    return text


def messages(args):
    flat = {}
    for pair in args.files:
        name, _, path = pair.partition("=")
        flat[path] = name
    with tempfile.TemporaryDirectory() as tmp:
        for path, name in flat.items():
            full = next((f for f in (os.path.join(r, path) for r in args.root)
                         if os.path.exists(f)), None)
            if not full:
                fail(f"{path}: in none of {' '.join(args.root)}")
            with open(full, encoding="utf-8") as f:
                text = rewrite(f.read(), path, flat)
            with open(os.path.join(tmp, name + ".proto"), "w", encoding="utf-8") as f:
                f.write(text)
        subprocess.run([args.protoc_c, "-I" + tmp, "--c_out=" + args.out]
                       + [os.path.join(tmp, n + ".proto") for n in flat.values()], check=True)


# --- descriptors: just enough protobuf to read a FileDescriptorSet -------------------------------

def varint(b, at):
    n = shift = 0
    while True:
        n |= (b[at] & 0x7f) << shift
        at += 1
        if b[at - 1] < 0x80:
            return n, at
        shift += 7


def fields(b):
    """{number: [value…]}; of the wire types a descriptor uses."""
    out, at = {}, 0
    while at < len(b):
        tag, at = varint(b, at)
        if tag & 7 == 0:
            v, at = varint(b, at)
        elif tag & 7 == 2:
            n, at = varint(b, at)
            v, at = b[at:at + n], at + n
        else:
            fail(f"descriptor set: wire type {tag & 7}")
        out.setdefault(tag >> 3, []).append(v)
    return out


def text(f, number):
    return f.get(number, [b""])[-1].decode()


class File:
    """One FileDescriptorProto: what it defines, with fully qualified names."""

    def __init__(self, raw):
        self.raw = raw
        f = fields(raw)
        self.name, self.package = text(f, 1), text(f, 2)
        self.deps = [d.decode() for d in f.get(3, [])]
        self.symbols, self.services, self.uses, self.enums = [], [], {}, {}
        prefix = self.package + "." if self.package else ""
        for m in f.get(4, []):
            self.message(prefix, fields(m))
        for e in f.get(5, []):
            self.enum(prefix, fields(e))
        for s in f.get(6, []):
            s = fields(s)
            full = prefix + text(s, 1)
            self.services.append(full)
            self.symbols.append(full)
            for m in s.get(2, []):
                self.symbols.append(full + "." + text(fields(m), 1))

    def message(self, prefix, m):
        full = prefix + text(m, 1)
        self.symbols.append(full)
        self.uses[full] = [(text(f, 1), text(f, 6).lstrip("."))
                           for f in map(fields, m.get(2, [])) if text(f, 6)]
        for n in m.get(3, []):
            self.message(full + ".", fields(n))
        for e in m.get(4, []):
            self.enum(full + ".", fields(e))

    def enum(self, prefix, e):
        full = prefix + text(e, 1)
        self.symbols.append(full)
        self.enums[full] = {text(v, 1): v.get(2, [0])[-1] for v in map(fields, e.get(2, []))}


def check(files, reasons):
    """No message contains itself, Any and Struct stay out, Reason is proto/base/reasons.def."""
    uses = {m: u for f in files for m, u in f.uses.items()}
    for m, fs in uses.items():
        for field, kind in fs:
            if kind == "google.protobuf.Any" and (m, field) != ("google.rpc.Status", "details"):
                fail(f"{m}.{field}: Any belongs in google.rpc.Status.details only")
            if kind in ("google.protobuf.Struct", "google.protobuf.Value"):
                fail(f"{m}.{field}: {kind} is recursive")
    done = set()

    def walk(m, path):
        if m in path:
            fail("recursive: " + " → ".join(path[path.index(m):] + [m]))
        if m in done or m not in uses:
            return
        for _, kind in uses[m]:
            walk(kind, path + [m])
        done.add(m)

    for m in uses:
        walk(m, [])

    with open(reasons, encoding="utf-8") as f:
        want = {n: int(v) for v, n in re.findall(r"^REASON\((\d+), (\w+),", f.read(), re.M)}
    have = next(f.enums["agentbox.v1.Reason"] for f in files if "agentbox.v1.Reason" in f.enums)
    have = {n: v for n, v in have.items() if v}
    if want != have:
        fail(f"{reasons} and agentbox.v1.Reason differ in "
             f"{sorted(set(want.items()) ^ set(have.items()))}")


def c_bytes(raw):
    rows = [raw[i:i + 16] for i in range(0, len(raw), 16)]
    return "\n".join("\t" + " ".join(f"{b}," for b in r) for r in rows)


def descriptors(args):
    with open(args.set, "rb") as f:
        files = [File(raw) for raw in fields(f.read()).get(1, [])]
    check(files, args.reasons)
    number = {f.name: i for i, f in enumerate(files)}
    symbols = sorted((s, i) for i, f in enumerate(files) for s in f.symbols)
    services = sorted(s for f in files for s in f.services)
    out = ['/* Made by gen.py. */\n#include "proto/gen/descriptors.h"\n']
    for i, f in enumerate(files):
        out.append(f"static const uint8_t bytes_{i}[] = {{\n{c_bytes(f.raw)}\n}};")
        deps = "".join(f"{number[d]}, " for d in f.deps)
        out.append(f"static const uint16_t deps_{i}[] = {{ {deps}0 }};\n")
    out.append("const struct descriptor_file descriptor_files[] = {")
    for i, f in enumerate(files):
        out.append(f'\t{{ "{f.name}", bytes_{i}, sizeof(bytes_{i}), deps_{i}, {len(f.deps)} }},')
    out.append(f"}};\nconst size_t n_descriptor_files = {len(files)};\n")
    out.append("const struct descriptor_symbol descriptor_symbols[] = {")
    out += [f'\t{{ "{s}", {i} }},' for s, i in symbols]
    out.append(f"}};\nconst size_t n_descriptor_symbols = {len(symbols)};\n")
    out.append("const char *const descriptor_services[] = {")
    out += [f'\t"{s}",' for s in services]
    out.append(f"}};\nconst size_t n_descriptor_services = {len(services)};")
    with open(args.out, "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")


def main():
    p = argparse.ArgumentParser()
    sub = p.add_subparsers(required=True)
    m = sub.add_parser("messages")
    m.add_argument("--protoc-c", required=True)
    m.add_argument("--root", action="append", required=True)
    m.add_argument("--out", required=True)
    m.add_argument("files", nargs="+")
    m.set_defaults(run=messages)
    d = sub.add_parser("descriptors")
    d.add_argument("--set", required=True)
    d.add_argument("--reasons", required=True)
    d.add_argument("--out", required=True)
    d.set_defaults(run=descriptors)
    args = p.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
