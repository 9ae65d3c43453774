# SPDX-License-Identifier: MIT
"""Writes agentboxd.conf(5) and the commented default file from the table of keys, daemon/conf/conf.def.

    /usr/bin/python3 docs/man/from_conf.py           writes both
    /usr/bin/python3 docs/man/from_conf.py --check   says which one differs, for tests/lint
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLE = os.path.join(ROOT, "daemon/conf/conf.def")
MAN = os.path.join(ROOT, "docs/man/agentboxd.conf.5")
FILE = os.path.join(ROOT, "systemd/agentboxd.conf")

SECTIONS = {  # heading and what it is about
    "daemon": ("[daemon]", "The daemon itself."),
    "access": ("[access]", "Who may use the daemon. A list is items by commas: a user, by name or uid; a range of uids, as in 1000-1999; "
                         "a group, as in @agents or @27; * for everybody; none alone for nobody. "
                         "Lists are asked in the order deny, admins, allow, observe; the first that names a caller decides. "
                         "A caller's groups are those of its process; of a token of the gateway, those of its user in the system's tables. "
                         "The daemon's own user is never denied. "
                         "A process of another user or pid namespace than the daemon's, as in a container, is no admin, whatever its uid. "
                         "Without lists everybody may who can connect: with the installed units those are root and the group agentbox, "
                         "by the mode of the socket; a system's daemon that binds its socket itself without socket_group lets in everybody, "
                         "and says so in its log. "
                         "Names are looked up at the start and by a reload. A user that there is not, as one of DynamicUser=, counts when "
                         "it connects; a group that there is not is an error."),
    "account": ("[account NAME]", "A cloud to use: its addresses, its key, how it is reached. The first one is the "
                                  "account of every uid that names no other. Without any, one named default is made from "
                                  "the environment. A reload takes up a new section behind the first one, unless the state folder "
                                  "has something of such an account, which only a start reads. An account whose section is gone is kept "
                                  "until a restart: it extends and ends the sandboxes that it has, and makes none. A section of which an address changes waits as a "
                                  "whole, but for max_sandboxes."),
    "uid": ("[uid USER]", "Limits of one local user, by name or number; [uid *] has those of every user without a value of its own."),
    "warm": ("[warm NAME]", "Sandboxes that are made, and prepared, before anybody asks for one. A create that says so, or whose "
             "user's default does, gets one at once if all that is fixed at its creation is the same: template, account, secure, "
             "internet access, network, lifecycle, tokens and environment."),
    "policy": ("[policy]", "What happens to sandboxes that are not in use."),
    "pool": ("[pool]", "Connections to the clouds."),
    "spool": ("[spool]", "The output of commands that is kept on disk."),
    "gateway": ("[gateway]", "The HTTP door for programs that use an unmodified SDK. Every call of the control plane needs a token "
                             "of this daemon; agentboxctl run and agentboxctl env give programs one."),
}
TYPES = {
    "STRING": "text", "PATH": "absolute path", "URL": "http:// or https:// URL", "HEADER": "name of a header",
    "DURATION": "duration", "BYTES": "bytes", "U32": "number", "BOOL": "yes or no", "LEVEL": "level",
}
ROW = re.compile(r"^KEY\((\w+), (\w+), (\w+), \"([^\"]*)\", (\w+), (\w+), (true|false),\s*((?:\"(?:[^\"\\]|\\.)*\"\s*)+)\)", re.M)


def rows():
    with open(TABLE, encoding="utf-8") as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    found = [m.groups() for m in ROW.finditer(text)]
    if len(found) != len(re.findall(r"^KEY\(", text, re.M)):
        sys.exit("conf.def: a row is not in the form KEY(section, key, type, default, min, max, reloadable, help)")
    for section, key, kind, default, low, high, reloadable, text in found:
        help_text = "".join(re.findall(r"\"((?:[^\"\\]|\\.)*)\"", text)).replace('\\"', '"')
        yield section, key, kind, default, low, high, reloadable == "true", help_text


def bounds(kind, low, high):
    low, high = (int(re.sub(r"[uUlL]+$", "", x), 0) for x in (low, high))
    if kind == "DURATION" and high:
        return "%s to %s" % (span(low), span(high))
    if kind in ("BYTES", "U32") and high:
        return "%s to %s" % (amount(kind, low), amount(kind, high))
    return ""


def span(ms):
    for unit, size in (("h", 3600000), ("m", 60000), ("s", 1000)):
        if ms and ms % size == 0:
            return "%d%s" % (ms // size, unit)
    return "%dms" % ms if ms else "0s"


def amount(kind, n):
    for unit, size in (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if kind == "BYTES" and n and n % size == 0:
            return "%d%s" % (n // size, unit)
    return str(n)


def escape(text):
    """For mdoc: no line starts with a dot or a quote, no backslash escapes by accident."""
    text = text.replace("\\", "\\e")
    return re.sub(r"^(?=[.'])", r"\\&", text, flags=re.M)


def sentence(text):
    text = text[0].upper() + text[1:]
    return text if text.endswith(".") else text + "."


def man():
    out = [
        '.\\" SPDX-License-Identifier: MIT',
        '.\\" Made by docs/man/from_conf.py from daemon/conf/conf.def: change that.',
        ".Dd $Mdocdate$", ".Dt AGENTBOXD.CONF 5", ".Os", ".Sh NAME", ".Nm agentboxd.conf",
        ".Nd configuration of the agentboxd daemon", ".Sh SYNOPSIS",
        ".Bl -item -compact", ".It", ".Pa /etc/agentboxd/agentboxd.conf", ".It",
        ".Pa $XDG_CONFIG_HOME/agentboxd/agentboxd.conf", ".El", ".Sh DESCRIPTION",
        "The file is read at the start of", ".Xr agentboxd 8 ;",
        "the first path is that of the system's daemon, the second that of a user's.",
        "It has sections of lines", ".Dq key = value ;",
        "empty lines and lines that begin with", ".Ql #", "or", ".Ql \\&;", "are comments.",
        "A line has at most 189 bytes; a value goes on in the next line after a", ".Ql \\e", "at the end of one, joined by a blank.",
        "A value given on the command line wins over the files, these over the environment, and that over the default.",
        "Every error is reported, with its file and line, before anything is used; an unknown key is an error.",
        ".Pp", "After it the files of the folder", ".Pa conf.d", "beside it are read whose names end with", ".Ql .conf",
        "and do not begin with a dot, in the order of the bytes of their names.",
        "A value in a later file stands for the one before; twice in one file is an error.",
        "Such a file, and every folder above it, must be writable by nobody but root and the daemon's user.",
        ".Pp", "A duration is written as in", ".Ql 90s ,", ".Ql 5m", "or", ".Ql 1h30m ;",
        "a number of bytes may end in", ".Ql K ,", ".Ql M", "or", ".Ql G .",
    ]
    last = None
    for section, key, kind, default, low, high, reloadable, help_text in rows():
        if section != last:
            if last:
                out.append(".El")
            heading, intro = SECTIONS[section]
            out += [".Ss " + heading, escape(intro).replace(". ", ".\n"), ".Bl -tag -width Ds"]
            last = section
        out.append(".It Ic " + key)
        facts = [TYPES[kind], bounds(kind, low, high)]
        out.append("(%s" % ", ".join(f for f in facts if f) + (", default %s)" % escape(default) if default else ")"))
        out.append(escape(sentence(help_text)))
        if reloadable:
            out.append("A reload takes a change up.")
    out += [".El", ".Sh ENVIRONMENT",
            "For a user's daemon, where the file does not say it; for a system daemon, where there is no file:",
            ".Bl -tag -width AGENTBOX_SANDBOX_URL",
            ".It Ev AGENTBOX_API_KEY", "The key of the first account.",
            ".It Ev AGENTBOX_API_URL", "Its control plane.",
            ".It Ev AGENTBOX_DOMAIN", "Its domain.",
            ".It Ev AGENTBOX_SANDBOX_URL", "The one address of the agents of all sandboxes.",
            ".El", ".Pp", "If none of them is set, the same names with", ".Ev E2B_", "are taken, and mean", ".Ql cloud = e2b .",
            "Names of both are never mixed.", "A key of one cloud is never sent to the other's hosts:",
            "where the configuration would have it so, the daemon does not start.",
            ".Sh SEE ALSO", ".Xr agentboxctl 1 ,", ".Xr agentboxd 8"]
    return "\n".join(out).replace("$Mdocdate$", "November 29, 2026") + "\n"


def wrapped(text, width=96):
    line = "#"
    for word in text.split():
        if len(line) + 1 + len(word) > width:
            yield line
            line = "#"
        line += " " + word
    yield line


def default_file():
    out = ["# SPDX-License-Identifier: MIT",
           "# Configuration of agentboxd; see agentboxd.conf(5). Every key is here with its default.",
           "# Values may also stand in conf.d/*.conf beside it, which win over those in here.",
           "# Made by docs/man/from_conf.py from daemon/conf/conf.def."]
    last = None
    for section, key, kind, default, low, high, reloadable, help_text in rows():
        if section != last:
            heading, intro = SECTIONS[section]
            out += [""] + list(wrapped(intro))
            out.append(heading if "NAME" not in heading and "USER" not in heading else
                       "#" + heading.replace("NAME", "main").replace("USER", "alice"))
            last = section
        out += [""] + list(wrapped(sentence(help_text))) + [("#%s = %s" % (key, default)).rstrip()]
    return "\n".join(out) + "\n"


def main():
    differing = []
    for path, text in ((MAN, man()), (FILE, default_file())):
        try:
            with open(path, encoding="utf-8") as f:
                same = f.read() == text
        except FileNotFoundError:
            same = False
        if same:
            continue
        if "--check" in sys.argv:
            differing.append(os.path.relpath(path, ROOT))
        else:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
    for path in differing:
        print("%s is not what docs/man/from_conf.py makes of daemon/conf/conf.def" % path)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
