# SPDX-License-Identifier: MIT
"""What can go wrong, on demand: a Fault is played on the n-th request of a route from now on, `times` times.

Where in the life of the request it strikes is `when`:
  before   the request was read, nothing was done                (the default)
  after    it took effect, its answer was not sent
  mid      it took effect and part of the answer was sent
What strikes: `delay`, `hold`, then one of `status`, `cut`, `reset`, `goaway`, `silent`; `shape` changes how an answer is
written. Without one of those the request then goes on as usual.
"""
import math
import threading
import time


class Gate:
    """Something waits here until the test lets it go on; the test can wait until somebody arrived."""

    def __init__(self, loop, note):
        import asyncio
        self._loop = loop
        self._note = note
        self._open = asyncio.Event()
        self.arrived = threading.Event()

    async def pass_through(self):
        self.arrived.set()
        self._note()
        await self._open.wait()

    def wait(self, timeout=10.0):
        if not self.arrived.wait(timeout):
            raise TimeoutError("nobody came to the gate in %.1f s" % timeout)

    def release(self):
        self._loop.call_soon_threadsafe(self._open.set)


class Shape:
    """How a streamed answer is written."""

    def __init__(self, split=0, pack=False, cut_after=None, how="cut", code=8, no_end=False, extra_end=None,
                 content_type=None, raw=None, gzip_end=False, late_end=0.0):
        self.split = split              # bytes of each frame or chunk; 0: an envelope at a time
        self.pack = pack                # all envelopes of the stream in one piece at its end
        self.cut_after = cut_after      # envelopes, then `how`
        self.how = how                  # "cut" the connection, "reset" the stream with `code`, "end" it cleanly, "silent"
        self.code = code
        self.no_end = no_end            # leave the end-of-stream envelope out
        self.extra_end = extra_end      # bytes after it
        self.content_type = content_type
        self.raw = raw                  # bytes sent instead of the first envelope
        self.late_end = late_end        # seconds between the last envelope and the end of the stream
        self.gzip_end = gzip_end        # the end-of-stream envelope compressed (flags 0x03)


class Fault:
    def __init__(self, name, route, nth=1, times=1, when="before", delay=0.0, hold=None, hold_answer=None,
                 status=None, body=None, headers=(), content_type="application/json; charset=utf-8", cut=False, reset=None,
                 goaway=None, last="before", silent=False, shape=None):
        assert when in ("before", "after", "mid"), when
        self.name = name
        self.route = route
        self.skip = nth - 1
        self.times = times        # None: for ever
        self.when = when
        self.delay = delay
        self.hold = hold          # Gate before it takes effect
        self.hold_answer = hold_answer
        self.status = status
        self.body = body
        self.headers = list(headers)
        self.content_type = content_type
        self.cut = cut
        self.reset = reset
        self.goaway = goaway
        self.last = last          # of GOAWAY: "before" this stream, "this" stream, "max", or a number
        self.silent = silent
        self.shape = shape
        self.played = 0

    def takes(self, seen):
        """Counts the request; true if it is one to be played on."""
        if callable(self.route):
            if not self.route(seen):
                return False
        elif self.route not in ("*", seen.route) and not (
                self.route.endswith(".") and seen.route.startswith(self.route)):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None:
            if self.played >= self.times:
                return False
        self.played += 1
        return True

    def strikes(self):
        return (self.status is not None or self.cut or self.reset is not None or self.goaway is not None or
                self.silent)


class Budget:
    """A token bucket of a route."""

    def __init__(self, burst, per_second):
        self.burst, self.per_second = burst, per_second
        self.tokens, self.at = float(burst), time.monotonic()
        self.refused = 0

    def take(self, ex):
        """Takes one and says in the answer's head what is left; false if there was none."""
        now = time.monotonic()
        self.tokens, self.at = min(self.tokens + (now - self.at) * self.per_second, self.burst), now
        enough = self.tokens >= 1
        if enough:
            self.tokens -= 1
        ex.extra = [("ratelimit-limit", str(self.burst)), ("ratelimit-remaining", str(int(self.tokens))),
                    ("ratelimit-reset", str(math.ceil((self.burst - self.tokens) / self.per_second)))]
        if not enough:
            self.refused += 1
            ex.extra.append(("retry-after", str(max(math.ceil((1 - self.tokens) / self.per_second), 1))))
        return enough
