# SPDX-License-Identifier: MIT
"""Processes of a fake sandbox: real ones, or scripted ones with every event said beforehand.

As in the real agent, plain commands are no leaders of a process group: they join one that a holder of the sandbox leads,
so that `kill 0` in a command never reaches the test. Terminals get a session.
"""
import asyncio
import fcntl
import os
import pty
import signal
import struct
import termios

from .codec import RpcError

GO_SIGNALS = {1: "hangup", 2: "interrupt", 3: "quit", 4: "illegal instruction", 6: "aborted", 8: "floating point exception",
              9: "killed", 10: "user defined signal 1", 11: "segmentation fault", 12: "user defined signal 2",
              13: "broken pipe", 14: "alarm clock", 15: "terminated"}
RETAINED_S = 30


class Process:
    """Events go to every subscriber's queue of 64; without one, output is thrown away."""

    scripted_pids = 200000

    def __init__(self, config, tag, envd):
        self.config, self.tag, self.envd = config, tag, envd
        self.pid = None
        self.subscribers = []
        self.end = None           # ("end", code, exited, status, error), once over
        self.ended_at = None
        self.stdin = None
        self.pty_fd = None
        self.proc = None
        self.stop_output = asyncio.Event()
        self.script_gate = None

    def subscribe(self):
        q = asyncio.Queue(64)
        self.subscribers.append(q)
        return q

    async def emit(self, event):
        for q in list(self.subscribers):
            put = asyncio.ensure_future(q.put(event))
            while q in self.subscribers and not put.done():
                await asyncio.wait({put}, timeout=0.2)
            if not put.done():
                put.cancel()

    # -- real

    async def start(self, argv, env, cwd, stdin, size):
        pipe = asyncio.subprocess.PIPE
        kw = {"env": env, "cwd": cwd, "limit": 1 << 16}
        try:
            if size is not None:
                master, slave = pty.openpty()
                self.pty_fd = master
                self.resize(size)
                self.proc = await asyncio.create_subprocess_exec(
                    *argv, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                    preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0), **kw)
                os.close(slave)
            else:
                self.proc = await asyncio.create_subprocess_exec(
                    *argv, stdin=pipe if stdin else asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe,
                    process_group=self.envd.group(), **kw)
                self.stdin = self.proc.stdin
        except OSError as e:
            raise RpcError("invalid_argument", "cannot start %s: %s" % (argv[0], e))
        self.pid = self.proc.pid
        self.task = asyncio.ensure_future(self.run_real())

    async def run_real(self):
        if self.pty_fd is not None:
            readers = [self.read_pty()]
        else:
            readers = [self.read_pipe("stdout", self.proc.stdout), self.read_pipe("stderr", self.proc.stderr)]
        reading = asyncio.gather(*readers)
        stop = asyncio.ensure_future(self.stop_output.wait())
        await asyncio.wait({reading, stop}, return_when=asyncio.FIRST_COMPLETED)
        code = await self.proc.wait()
        stop.cancel()
        reading.cancel()
        if self.pty_fd is not None:
            os.close(self.pty_fd)
            self.pty_fd = None
        if code < 0:
            await self.over(-1, False, "signal: " + GO_SIGNALS.get(-code, "signal %d" % -code))
        else:
            await self.over(code, True, "exit status %d" % code)

    async def read_pipe(self, name, reader):
        while True:
            data = await reader.read(32768)
            if not data:
                return
            await self.emit((name, data))

    async def read_pty(self):
        loop = asyncio.get_running_loop()
        while True:
            ready = asyncio.Event()
            loop.add_reader(self.pty_fd, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(self.pty_fd)
            try:
                data = os.read(self.pty_fd, 16384)
            except OSError:
                return
            if not data:
                return
            await self.emit(("pty", data))

    # -- scripted: [("stdout", b"…"), ("stderr", b"…"), ("gate", Gate), ("sleep", s), ("keepalive",), ("exit", n),
    #               ("signal", n), ("raw", bytes), ("break",)]; without an exit it ends with 0

    async def start_script(self, steps, stdin):
        Process.scripted_pids += 1
        self.pid = Process.scripted_pids
        self.script_input = b"" if stdin else None
        self.task = asyncio.ensure_future(self.run_script(steps))

    async def run_script(self, steps):
        await asyncio.sleep(0)
        for step in steps:
            kind = step[0]
            if kind == "gate":
                await step[1].pass_through()
            elif kind == "sleep":
                await asyncio.sleep(step[1])
            elif kind == "exit":
                return await self.over(step[1], True, "exit status %d" % step[1])
            elif kind == "signal":
                return await self.over(-1, False, "signal: " + GO_SIGNALS.get(step[1], str(step[1])))
            else:
                await self.emit(step)
        await self.over(0, True, "exit status 0")

    # -- both

    async def over(self, code, exited, status):
        self.ended_at = self.envd.cloud.now()
        self.end = ("end", code, exited, status, None if exited and code == 0 else status)
        self.envd.ended(self)
        await self.emit(self.end)

    def resize(self, size):
        if self.pty_fd is None:
            raise RpcError("internal", "the process has no terminal")
        fcntl.ioctl(self.pty_fd, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.cols, 0, 0))

    async def input(self, kind, data):
        if kind == "pty":
            if self.pty_fd is None:
                raise RpcError("internal", "the process has no terminal")
            os.write(self.pty_fd, data)
            return
        if self.proc is None and self.script_input is not None:
            self.script_input += data
            return
        if self.stdin is None or self.stdin.is_closing():
            raise RpcError("internal", "the process has no open stdin")
        try:
            self.stdin.write(data)
            await self.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as e:
            raise RpcError("internal", str(e))

    def close_stdin(self):
        if self.pty_fd is not None:
            raise RpcError("unknown", "stdin of a terminal cannot be closed")
        if self.stdin is not None:
            self.stdin.close()

    def send_signal(self, number):
        self.stop_output.set()
        if self.proc is None:
            self.task.cancel()
            asyncio.ensure_future(self.over(-1, False, "signal: " + GO_SIGNALS[number]))
            return
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            raise RpcError("not_found", "no process %d" % self.pid)

    def kill(self):
        if self.proc is None:
            self.task.cancel()
        elif self.proc.returncode is None:
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
