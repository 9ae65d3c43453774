# SPDX-License-Identifier: MIT
"""The e2b Python SDK behind pipes, as npm/story.mjs is for the other one."""
import json
import os
import sys
import traceback

from e2b import Sandbox

boxes = {}


def keep(s):
    boxes[s.sandbox_id] = s
    return s.sandbox_id


calls = {
    "create": lambda template=None: keep(Sandbox.create(template, timeout=300)),
    "write": lambda i, path, text: boxes[i].files.write(path, text) and None,
    "read": lambda i, path: boxes[i].files.read(path),
    "start": lambda i, shell: boxes[i].commands.run(shell, background=True, timeout=0).disconnect(),
    "pause": lambda i: boxes[i].pause(),
    "resume": lambda i: boxes[i].connect() and None,
    "state": lambda i: boxes[i].get_info().state.value,
    "fork": lambda i, count: [keep(s) for s in boxes[i].fork(count=count)],
    "snapshot": lambda i: boxes[i].create_snapshot().snapshot_id,
    "kill": lambda i: boxes[i].kill(),
    "forget": Sandbox.delete_snapshot,
}

for line in sys.stdin:
    name, *args = json.loads(line)
    try:
        answer = {"ok": calls[name](*args)}
    except Exception:
        answer = {"error": traceback.format_exc()}
    print(json.dumps(answer), flush=True)
os._exit(0)
