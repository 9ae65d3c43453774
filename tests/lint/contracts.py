# SPDX-License-Identifier: MIT
"""Checks that two lists which must be equal are: reasons and proto, configuration keys and their pages."""
import re
import subprocess
import sys

from common import FILES, ROOT, Skip, exists, line_of, read, run


def strip_proto(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def reasons():
    protos = "\n".join(strip_proto(read(f)) for f in FILES if re.match(r"proto/agentbox/v1/.*\.proto$", f))
    if not protos:
        raise Skip("there is no .proto yet")
    body = re.search(r"\benum Reason\s*\{(.*?)\}", protos, re.S)
    if not body:
        return ["proto/agentbox/v1: no enum Reason"]
    in_proto = {(int(n), name) for name, n in re.findall(r"\b(\w+)\s*=\s*(\d+)\s*;", body.group(1)) if n != "0"}
    in_code = {(int(n), name) for n, name in
               re.findall(r"^REASON\((\d+),\s*(\w+),", read("proto/base/reasons.def"), re.M)}
    return ["%d %s is only in %s" % (n, name, "the .proto" if (n, name) in in_proto else "reasons.def")
            for n, name in sorted(in_proto ^ in_code)]


def proto_numbers():
    """No field number twice in a message; enum values start at 0."""
    found = []
    for f in FILES:
        if not re.match(r"proto/.*\.proto$", f):
            continue
        text = strip_proto(read(f))
        if 'syntax = "proto3"' not in text:
            found.append("%s: not proto3" % f)
        for m in re.finditer(r"\benum (\w+)\s*\{([^}]*)\}", text):
            values = re.findall(r"\b\w+\s*=\s*(\d+)", m.group(2))
            if values and values[0] != "0":
                found.append("%s: enum %s does not start at 0" % (f, m.group(1)))
    return found


def config_keys():
    """The manual page and the commented default are what the table of keys makes them."""
    if not exists("daemon/conf/conf.def"):
        raise Skip("there is no daemon/conf/conf.def yet")
    r = subprocess.run([sys.executable, "docs/man/from_conf.py", "--check"], capture_output=True, text=True, cwd=ROOT)
    return (r.stdout + r.stderr).splitlines() or ([] if r.returncode == 0 else ["from_conf.py failed"])


def errors_manual():
    """D-8: the manual page of the reasons is what the enum makes it."""
    r = subprocess.run([sys.executable, "docs/man/from_reasons.py", "--check"], capture_output=True, text=True, cwd=ROOT)
    return (r.stdout + r.stderr).splitlines() or ([] if r.returncode == 0 else ["from_reasons.py failed"])


def json_fields():
    """What agentboxctl prints with --json is described in its schema."""
    schema = read("client/cli/agentboxctl.schema.json")
    named = re.compile(r'\bjson_\w+\(&?\w+, "(\w+)"|\bFIELD(?:\(\w+, (\w+)\)|_(?:AS|BY)\(\w+, "(\w+)")')
    return ["%s:%d: the schema has no field %s" % (f, line_of(read(f), m.start()), m.group(m.lastindex))
            for f in FILES if re.match(r"client/cli/.*\.c$", f) for m in named.finditer(read(f))
            if m.group(m.lastindex) != "member" and '"%s"' % m.group(m.lastindex) not in schema]


def library_manual():
    """Every exported function of the library is in its manual page, and no other."""
    exported = set(re.findall(r"^\s*(ab_\w+);", read("client/libagentbox.map"), re.M))
    in_page = set(re.findall(r"^\.Fn (ab_[a-z]\w+) ", read("docs/man/libagentbox.3"), re.M))
    return ["%s is only in %s" % (n, "the export list" if n in exported else "libagentbox.3")
            for n in sorted(exported ^ in_page)]


def log_kinds():
    """Every line of the log is of a kind in kinds.def, whose names are sorted and whose ids are unlike; no kind is without a line."""
    rows = re.findall(r'^KIND\((\w+), "([0-9a-f]{32})", ', read("daemon/common/obs/kinds.def"), re.M)
    names, ids = [n for n, _ in rows], [i for _, i in rows]
    found = [] if names == sorted(set(names)) else ["kinds.def: the names are not sorted, or one is there twice"]
    found += [] if len(ids) == len(set(ids)) else ["kinds.def: an id is there twice"]
    text = "\n".join(read(f) for f in FILES if re.match(r"daemon/.*\.c$", f))
    used = set(re.findall(r'\blog_(?:error|warn|info|debug)\(\s*"(\w+)"', text))
    used |= set(re.findall(r'\blog_event\([^;"]*,\s*"(\w+)"', text)) | set(re.findall(r"\bLOG_KIND_(\w+)\b", text))
    return found + ["%s is only in %s" % (n, "kinds.def" if n in names else "the code: give it a row in kinds.def")
                    for n in sorted(set(names) ^ used)]


def package_symbols():
    """Every exported function of the library is in the package's list of symbols, with the version that it came with."""
    exported = set(re.findall(r"^\s*(ab_\w+);", read("client/libagentbox.map"), re.M))
    in_list = set(re.findall(r"^ (ab_\w+)@LIBAGENTBOX_0 ", read("packaging/debian/libagentbox0.symbols"), re.M))
    return ["%s is only in %s: run sh packaging/symbols.sh" % (n, "the export list" if n in exported else "libagentbox0.symbols")
            for n in sorted(exported ^ in_list)]


if __name__ == "__main__":
    run([("reasons", reasons), ("proto-form", proto_numbers), ("config-keys", config_keys), ("json-fields", json_fields), ("errors-manual", errors_manual),
         ("library-manual", library_manual), ("log-kinds", log_kinds), ("package-symbols", package_symbols)])
