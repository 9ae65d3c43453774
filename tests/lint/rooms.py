# SPDX-License-Identifier: MIT
"""The rooms of the code: their size, circles of calls, names that stand in too many places, and long lists of parameters.

A room is a folder with C files. Calls are read from the text: a call of a function by its name, and a call through a member
(`x->done(…)`) as a call of every function that is assigned to a member of that name in the same program. A static function is
found in its own file only.

  --list    prints every room with its number of files, and the largest circle of each room
"""
import collections
import os
import re
import sys

from common import c_files, read, run

FILES_MAX = 40   # .c files of a room
CYCLE_MAX = 8    # files of a room in one circle of calls
STATIC_MAX = 3   # files of a program that have a static of one name
PARAMS_MAX = 6   # parameters of a function in PARAMS_IN
PARAMS_IN = ("daemon/sandbox/",)

PROGRAMS = {
    "agentboxd": lambda f: f.startswith("daemon/") and not f.startswith("daemon/local/") or f.startswith("proto/"),
    "agentbox-local": lambda f: f.startswith(("daemon/local/", "daemon/common/", "proto/")),
    "agentboxctl": lambda f: f.startswith("client/cli/"),
    "libagentbox": lambda f: f.startswith(("client/lib/", "proto/")),
}
NOISE = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*', re.S)
FUNCTION = re.compile(r"^(?!\s|#|typedef\b|else\b)([^\n;={}()]*?\b(\w+)\([^;{}]*\)[^;{}()]*)\n\{\n(.*?)^\}", re.M | re.S)
STATIC = re.compile(r"^static\s+[^\n;={}()]*?\b(\w+)\s*(?=[(\[=;])", re.M)
ASSIGNED = re.compile(r"(?:\.|->)(\w+)\s*=\s*&?(\w+)\s*[,;}\n]")
CALLED = re.compile(r"(?:(\.|->)\s*)?\b(\w+)\)?\s*\(")
WORDS = {"if", "while", "for", "switch", "return", "sizeof", "offsetof", "list_for_each", "list_for_each_safe"}


def room_of(path):
    return os.path.dirname(path)


class Program:
    """Functions, calls and circles of one program."""

    def __init__(self, files):
        self.files = files
        self.texts = {f: NOISE.sub('""', read(f)) for f in files}
        self.bodies = {}                                # (file, function): body
        self.public = {}                                # function: file
        self.statics = collections.defaultdict(set)     # name: files
        for f, text in self.texts.items():
            for head, name, body in FUNCTION.findall(text):
                self.bodies[(f, name)] = body
                if not head.lstrip().startswith("static"):
                    self.public[name] = f
            for name in STATIC.findall(text):
                self.statics[name].add(f)
        self.members = collections.defaultdict(set)     # member: functions
        for f, text in self.texts.items():
            for member, name in ASSIGNED.findall(text):
                target = self.find(f, name)
                if target:
                    self.members[member].add(target)

    def find(self, f, name):
        if (f, name) in self.bodies:
            return (f, name)
        return (self.public[name], name) if name in self.public else None

    def calls(self):
        graph = {}
        for (f, name), body in self.bodies.items():
            out = set()
            for member, callee in CALLED.findall(body):
                if member:
                    out |= self.members.get(callee, set())
                elif callee not in WORDS:
                    target = self.find(f, callee)
                    if target:
                        out.add(target)
            graph[(f, name)] = out
        return graph

    def circles(self):
        """Strongly connected sets of functions (Tarjan, without recursion)."""
        graph, index, low, on, stack, found = self.calls(), {}, {}, set(), [], []
        for root in graph:
            if root in index:
                continue
            work = [(root, iter(graph[root]))]
            index[root] = low[root] = len(index)
            stack.append(root)
            on.add(root)
            while work:
                node, it = work[-1]
                for nxt in it:
                    if nxt not in index:
                        index[nxt] = low[nxt] = len(index)
                        stack.append(nxt)
                        on.add(nxt)
                        work.append((nxt, iter(graph[nxt])))
                        break
                    if nxt in on:
                        low[node] = min(low[node], index[nxt])
                else:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[node])
                    if low[node] == index[node]:
                        one = set()
                        while True:
                            top = stack.pop()
                            on.discard(top)
                            one.add(top)
                            if top == node:
                                break
                        if len(one) > 1:
                            found.append(one)
        return found

    def widest(self):
        """room: the files of it that its widest circle joins."""
        rooms = {}
        for circle in self.circles():
            by_room = collections.defaultdict(set)
            for f, _ in circle:
                by_room[room_of(f)].add(f)
            for room, files in by_room.items():
                if len(files) > len(rooms.get(room, ())):
                    rooms[room] = files
        return rooms


def programs():
    files = [f for f in c_files(".c") if not f.startswith("tests/")]
    return {name: Program([f for f in files if wants(f)]) for name, wants in PROGRAMS.items()}


def sizes():
    n = collections.Counter(room_of(f) for f in c_files(".c") if not f.startswith("tests/"))
    return ["%s: %d .c files, at most %d make a room" % (room, k, FILES_MAX) for room, k in n.items() if k > FILES_MAX]


def circles():
    found = set()
    for program in programs().values():
        for room, files in program.widest().items():
            if len(files) > CYCLE_MAX:
                found.add("%s: a circle of calls joins %d of its files (at most %d): %s" % (
                    room, len(files), CYCLE_MAX, " ".join(sorted(os.path.basename(f) for f in files))))
    return sorted(found)


def statics():
    return ["%s: static %s stands in %d files (at most %d): %s" % (
        name, static, len(files), STATIC_MAX, " ".join(sorted(os.path.basename(f) for f in files)))
        for name, program in programs().items() for static, files in sorted(program.statics.items())
        if len(files) > STATIC_MAX]


def parameters(text):
    """(name, number of parameters) of every function and function pointer that is declared or defined in it."""
    text = re.sub(r"^\{\n.*?^\}", "", NOISE.sub('""', text), flags=re.M | re.S)
    text = re.sub(r"^#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)
    for m in re.finditer(r"(?:\b(\w+)|\(\*(\w+)\))\(", text):
        depth, n, i = 1, 1, m.end()
        while depth and i < len(text):
            depth += (text[i] == "(") - (text[i] == ")")
            n += text[i] == "," and depth == 1
            i += 1
        yield m.group(1) or m.group(2), n


def many_parameters():
    return sorted({"%s: %s has %d parameters, at most %d (a struct for what belongs together)" % (f, name, n, PARAMS_MAX)
                   for f in c_files() if f.startswith(PARAMS_IN) for name, n in parameters(read(f)) if n > PARAMS_MAX})


def print_list():
    n = collections.Counter(room_of(f) for f in c_files(".c") if not f.startswith("tests/"))
    widest = {}
    for program in programs().values():
        for room, files in program.widest().items():
            if len(files) > len(widest.get(room, ())):
                widest[room] = files
    for room, k in sorted(n.items()):
        print("%-24s %3d files, widest circle of calls %d" % (room, k, len(widest.get(room, ()))))


if __name__ == "__main__":
    if "--list" in sys.argv:
        print_list()
    else:
        run([("rooms", sizes), ("circles", circles), ("statics", statics), ("parameters", many_parameters)])
