# SPDX-License-Identifier: MIT
"""A client of the e2b Python SDK with one command, as npm/durable.mjs is of the other one."""
import asyncio
import json
import os
import sys

from e2b import AsyncSandbox, CommandExitException


def say(**what):
    print(json.dumps(what), flush=True)


async def pass_on(box, pid):
    while line := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
        await box.commands.send_stdin(pid, line)


async def main(what, box_id, arg):
    box = await AsyncSandbox.connect(box_id)
    said = {"timeout": 0, "on_stdout": lambda out: say(out=out)}
    if what == "start":
        handle = await box.commands.run(arg, background=True, stdin=True, **said)
    else:
        handle = await box.commands.connect(int(arg), **said)
    say(pid=handle.pid)
    lines = asyncio.create_task(pass_on(box, handle.pid))
    try:
        say(end=(await handle.wait()).exit_code)
    except CommandExitException as e:
        say(end=e.exit_code)
    except Exception as e:
        say(error="%s: %s" % (type(e).__name__, e))
    lines.cancel()
    os._exit(0)

asyncio.run(main(*sys.argv[1:]))
