# SPDX-License-Identifier: MIT
"""A TCP relay that misbehaves on demand: latency, jitter, a rate, a cut after so many bytes, a stall, a half close, a
direction or a connection that goes silent, large pieces that vanish, a flipped bit.

    with ChaosProxy("127.0.0.1", cloud.port) as proxy:
        proxy.cut_after(down=10_000)          # the answer breaks off there, once
        … point the client at proxy.port …

`up` is from the client to the server, `down` the other way. Counts are bytes of one direction of one connection.
Changes hold for what is relayed from then on, on connections that are there too.
"""
import asyncio
import random
import threading
import time


class Way:
    """One direction of one connection."""

    def __init__(self, proxy, name, reader, writer):
        self.proxy, self.name, self.reader, self.writer = proxy, name, reader, writer
        self.bytes = 0
        self.dead = False

    async def relay(self):
        """Pieces are under way in a queue, each for the latency, as on a long line."""
        line = asyncio.Queue(256)
        carry = asyncio.ensure_future(self.carry(line))
        try:
            while True:
                data = await self.reader.read(self.proxy.chunk)
                await line.put((time.monotonic() + self.proxy.latency, data))
                if not data:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            carry.cancel()
        await asyncio.wait({carry})

    async def carry(self, line):
        p = self.proxy
        try:
            while True:
                due, data = await line.get()
                wait = due - time.monotonic()
                if wait > 0:
                    await asyncio.sleep(wait)
                if not data:
                    if self.writer.can_write_eof():
                        self.writer.write_eof()
                    return
                if p.rate:
                    await asyncio.sleep(len(data) / p.rate)
                await p.flowing.wait()
                if p.jitter:
                    await asyncio.sleep(random.random() * p.jitter)
                if p.mtu and len(data) > p.mtu and self.name in p.mtu_ways:
                    self.dead = True
                if self.dead:           # as a middle box that forgot the flow: taken, and never seen again
                    p.swallowed += len(data)
                    continue
                if p.flip and self.bytes + len(data) > p.flip > self.bytes:
                    at = p.flip - self.bytes
                    data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]
                limit = p.cuts.get(self.name)
                if limit is not None and self.bytes + len(data) >= limit:
                    self.writer.write(data[:limit - self.bytes])
                    self.bytes = limit
                    await self.writer.drain()
                    p.struck(self.name)
                    return
                self.bytes += len(data)
                p.total[self.name] += len(data)
                self.writer.write(data)
                await self.writer.drain()
        except ConnectionError:
            return


class ChaosProxy:
    def __init__(self, host, port, chunk=16384):
        self.target = (host, port)
        self.chunk = chunk
        self.latency = 0.0          # seconds, each way
        self.rate = 0               # bytes a second, each direction; 0: as fast as it goes
        self.cuts = {}              # direction: bytes
        self.jitter = 0.0           # seconds at most, per piece read
        self.mtu = 0                # pieces larger than this vanish, and all that follows on their connection
        self.mtu_ways = {"up", "down"}
        self.flip = 0               # number of a byte whose lowest bit is changed
        self.swallowed = 0
        self.how = "reset"
        self.connections = 0
        self.refused = False
        self.total = {"up": 0, "down": 0}
        self._pairs = []
        self._ways = []
        self.cut_happened = threading.Event()

    def start(self):
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="chaosproxy", daemon=True)
        self._thread.start()
        self._call(self._listen())
        return self

    async def _listen(self):
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader, writer):
        self.connections += 1
        if self.refused:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, up_writer)
        self._pairs.append(pair)
        ways = [Way(self, "up", reader, up_writer), Way(self, "down", up_reader, writer)]
        self._ways += ways
        await asyncio.gather(*(w.relay() for w in ways))
        self._ways = [w for w in self._ways if w not in ways]
        for w in pair:
            if not w.transport.is_closing():
                w.close()
        if pair in self._pairs:
            self._pairs.remove(pair)

    def struck(self, name):
        """A cut came: ends every connection in the way that was asked for, and is used up."""
        self.cuts.pop(name, None)
        for writer, up_writer in list(self._pairs):
            if self.how == "half":
                (writer if name == "down" else up_writer).write_eof()
            else:
                writer.transport.abort()
                up_writer.transport.abort()
        self.cut_happened.set()

    def _call(self, coro):
        return asyncio.run_coroutine_threadsafe(coro, self.loop).result(10)

    def cut_after(self, up=None, down=None, how="reset"):
        """`how`: "reset" ends the connection, "half" closes only the direction that was cut."""
        self.cut_happened.clear()
        self.how = how
        self.cuts = {k: v for k, v in (("up", up), ("down", down)) if v is not None}

    def stall(self, on=True):
        self.loop.call_soon_threadsafe(self.flowing.clear if on else self.flowing.set)

    def forget_all(self, way=None):
        """The connections that are there go silent, in one direction or both; new ones are as usual."""
        async def forget():
            for w in self._ways:
                w.dead |= way in (None, w.name)
        self._call(forget())

    def cut_all(self):
        async def cut():
            for pair in list(self._pairs):
                for w in pair:
                    w.transport.abort()
        self._call(cut())

    def stop(self):
        async def finish():
            self._server.close()
            for t in asyncio.all_tasks():
                if t is not asyncio.current_task():
                    t.cancel()
            for pair in self._pairs:
                for w in pair:
                    w.transport.abort()
            await asyncio.sleep(0)
        self._call(finish())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc):
        self.stop()
