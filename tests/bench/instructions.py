# SPDX-License-Identifier: MIT
"""Instructions of agentboxd per call, counted by callgrind: they do not depend on what else the machine does.

$BUILD_DIR names the build, so that two of them can be compared by the same script.

    /usr/bin/python3 tests/bench/instructions.py
"""
import glob
import os
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))

import harness  # noqa: E402
from api import Api  # noqa: E402

CALLS = 200
ENDED = 700             # commands in the history, below the number at which the oldest are forgotten
MIB = 16                # of output at a time


class Counted:
    """The daemon under callgrind, counting only while it is told to."""

    def __init__(self, cloud, **daemon):
        self.folder = harness.temp_dir("abc-")
        self.d = harness.Daemon(cloud, wrap=["valgrind", "--tool=callgrind", "--instr-atstart=no", "-q",
                                             "--callgrind-out-file=%s/out" % self.folder], **daemon)

    def control(self, *args):
        subprocess.run(["callgrind_control", *args, str(self.d.pid)], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def close(self):
        self.d.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def per_call(self, call, calls=CALLS, warm=None):
        for _ in range(calls // 10 if warm is None else warm):
            call()
        self.control("-z")
        self.control("-i", "on")
        for _ in range(calls):
            call()
        self.control("-i", "off")
        self.control("-d")
        total = 0
        for name in glob.glob(self.folder + "/out.*"):
            with open(name, encoding="utf-8", errors="replace") as f:
                total += int(re.search(r"^totals: (\d+)", f.read(), re.M).group(1))
            os.unlink(name)
        return total // calls


def run_true(api, box):
    return lambda: list(api.stream("CommandService.Run", sandbox=box, argv={"args": ["true"]}))


def run_output(api, box):
    """Its bytes are read as they come."""
    def call():
        n = sum(len(e.output.data) for e in api.stream("CommandService.Run", sandbox=box, argv={
            "args": ["head", "-c", str(MIB << 20), "/dev/zero"]}))
        assert n == MIB << 20
    return call


def history(api, box, n):
    """So many commands that have ended."""
    calls = []
    for _ in range(n):
        calls.append(api.future("CommandService.Start", timeout=120, sandbox=box, argv={"args": ["true"]}))
        if len(calls) == 8:
            ids = [c.result().command_id for c in calls]
            for i in ids:
                api.call("CommandService.Wait", timeout=120, command={"command_id": i})
            calls = []


def main():
    cloud = harness.LocalCloud()
    counted = Counted(cloud)
    try:
        with Api(counted.d.socket) as api:
            box = api.call("SandboxService.Create").id
            rows = [("Get, cached", counted.per_call(lambda: api.call("SandboxService.Get", sandbox=box))),
                    ("Stat", counted.per_call(lambda: api.call("FileService.Stat", sandbox=box, path="/tmp"))),
                    ("Run true", counted.per_call(run_true(api, box)))]
            rows.append(("a MiB of output", counted.per_call(run_output(api, box), 10) // MIB))
            history(api, box, ENDED)
            rows.append(("Run true, %d ended" % ENDED, counted.per_call(run_true(api, box))))
            api.call("SandboxService.Kill", sandbox=box)
        for name, n in rows:
            print("%-24s %10d instructions" % (name, n))
    finally:
        counted.close()
        cloud.close()


if __name__ == "__main__":
    main()
