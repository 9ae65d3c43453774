# SPDX-License-Identifier: MIT
"""The connections: HTTP/1.1 by hand and HTTP/2 by python3-h2, one Exchange per request for both."""
import asyncio

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from .ledger import BODY_KEPT, Seen

REASONS = {100: "Continue", 200: "OK", 201: "Created", 204: "No Content", 206: "Partial Content", 302: "Found",
           304: "Not Modified", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
           405: "Method Not Allowed", 406: "Not Acceptable", 409: "Conflict", 413: "Content Too Large",
           415: "Unsupported Media Type", 416: "Range Not Satisfiable", 429: "Too Many Requests",
           500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
           507: "Insufficient Storage"}


STREAM_LIMIT = h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS


class Gone(Exception):
    """The client, or a fault, ended the exchange."""


class Exchange:
    """One request and its answer. `chunks` is the request's body; the answer is start, send…, finish."""

    def __init__(self, conn, stream, proto, method, target, headers, authority):
        ledger = conn.cloud.ledger
        self.conn = conn
        self.cloud = conn.cloud
        self.seen = Seen(len(ledger.requests) + 1, conn.number, stream, proto, method, target, headers)
        self.authority = authority
        self.stream = stream
        self.queue = asyncio.Queue()
        self.gone = asyncio.Event()
        self.extra = []           # fields of every answer to it
        self.started = False
        self.finished = False
        ledger.requests.append(self.seen)
        ledger.open_streams += 1
        ledger.peak_streams = max(ledger.peak_streams, ledger.open_streams)
        ledger.note()

    def fed(self, data):
        if len(self.seen.body) < BODY_KEPT:
            self.seen.body += data[:BODY_KEPT - len(self.seen.body)]
        self.seen.body_len += len(data)
        self.queue.put_nowait(data)

    def fed_end(self):
        self.queue.put_nowait(None)

    async def chunks(self):
        while True:
            data = await self.queue.get()
            if data is None:
                self.queue.put_nowait(None)
                if self.finished:
                    raise Gone()  # the body broke off
                return
            yield data

    async def body(self, limit=None):
        parts, n = [], 0
        async for c in self.chunks():
            n += len(c)
            if limit is None or n <= limit:
                parts.append(c)
        return b"".join(parts), n

    def end(self, how):
        if self.finished:
            return
        self.finished = True
        self.seen.end = how
        self.gone.set()
        self.queue.put_nowait(None)
        self.cloud.ledger.open_streams -= 1
        self.cloud.ledger.note()

    def check(self):
        if self.finished:
            raise Gone()

    async def start(self, status, headers):
        self.check()
        self.started = True
        self.seen.status = status
        await self.conn.engine.send_head(self, status, list(headers) + self.extra)

    async def send(self, data, split=0):
        step = split or len(data) or 1
        for i in range(0, len(data), step):
            self.check()
            await self.conn.engine.send_body(self, data[i:i + step])
            if split:
                await asyncio.sleep(0)

    async def finish(self):
        self.check()
        await self.conn.engine.send_end(self)
        self.end("complete")

    async def answer(self, status, body=b"", headers=(), content_type="application/json; charset=utf-8"):
        head = list(headers)
        if status != 204:
            head += [("content-length", str(len(body)))]
            if content_type:
                head += [("content-type", content_type)]
        await self.start(status, head)
        if body and self.seen.method != "HEAD":
            await self.send(body)
        await self.finish()

    def cut(self):
        self.end("cut")
        self.conn.cut()

    def reset(self, code):
        self.end("reset")
        self.conn.engine.reset(self, code)

    def goaway(self, code, last):
        if last == "before":
            last = max(self.stream - 2, 0)
        elif last == "this":
            last = self.stream
        self.conn.engine.goaway(code, last)

    def silent(self):
        """No answer, ever; the connection stays."""
        self.seen.end = "silent"
        self.cloud.ledger.note()


class Conn(asyncio.Protocol):
    """A TCP or TLS connection; which engine speaks on it is known by ALPN or by the first bytes."""

    def __init__(self, cloud, tls):
        self.cloud = cloud
        self.tls = tls
        self.engine = None
        self.muted = False
        self.head = b""
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport):
        self.transport = transport
        ledger = self.cloud.ledger
        ledger.connections += 1
        ledger.open_connections += 1
        self.number = ledger.connections
        self.cloud.conns.add(self)
        if self.cloud.is_silent:
            self.mute()
        if self.tls:
            ssl_object = transport.get_extra_info("ssl_object")
            if ssl_object.session_reused:
                ledger.resumed_tls += 1
            self.engine = H2(self) if ssl_object.selected_alpn_protocol() == "h2" else H1(self)
        ledger.note()

    def data_received(self, data):
        if self.engine is None:
            self.head += data
            preface = b"PRI * HTTP/2.0"
            if len(self.head) < len(preface) and preface.startswith(self.head):
                return
            self.engine = H2(self) if self.head.startswith(preface) else H1(self)
            data = self.head
        self.engine.feed(data)

    def eof_received(self):
        return False

    def connection_lost(self, exc):
        self.cloud.conns.discard(self)
        self.cloud.ledger.open_connections -= 1
        self.writable.set()
        if self.engine:
            self.engine.lost()
        self.cloud.ledger.note()

    def pause_writing(self):
        self.writable.clear()

    def resume_writing(self):
        self.writable.set()

    async def write(self, data):
        if not self.muted and not self.transport.is_closing():
            self.transport.write(data)
            await self.writable.wait()

    def write_now(self, data):
        if data and not self.muted and not self.transport.is_closing():
            self.transport.write(data)

    def cut(self):
        self.transport.abort()

    def mute(self):
        """A black hole: nothing is read, nothing is written, the connection stays."""
        self.muted = True
        self.transport.pause_reading()


class H1:
    """HTTP/1.1, one request at a time."""

    def __init__(self, conn):
        self.conn = conn
        self.buf = b""
        self.current = None       # exchange whose answer is not finished
        self.reading = None       # exchange whose body is being read
        self.left = 0             # bytes of it; -1: chunked
        self.chunked_answer = False
        self.keep = True

    def feed(self, data):
        self.buf += data
        try:
            self.pump()
        except ValueError:
            self.conn.write_now(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.conn.transport.close()

    def pump(self):
        while True:
            if self.reading:
                if not self.pump_body():
                    return
            elif self.current or not self.pump_head():
                return

    def pump_head(self):
        end = self.buf.find(b"\r\n\r\n")
        if end < 0:
            if len(self.buf) > 65536:
                raise ValueError("head too long")
            return False
        lines = self.buf[:end].decode("latin-1").split("\r\n")
        self.buf = self.buf[end + 4:]
        method, target, version = lines[0].split(" ")
        headers = []
        for line in lines[1:]:
            name, value = line.split(":", 1)
            headers.append((name.strip().lower(), value.strip()))
        h = dict(headers)
        self.keep = version == "HTTP/1.1" and h.get("connection", "").lower() != "close"
        ex = Exchange(self.conn, 0, "http/1.1", method, target, headers, h.get("host", ""))
        self.current = ex
        chunked = "chunked" in h.get("transfer-encoding", "")
        self.left = -1 if chunked else int(h.get("content-length", "0"))
        if h.get("expect", "").lower() == "100-continue":
            self.conn.write_now(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.reading = ex
        self.conn.cloud.spawn(ex)
        return True

    def pump_body(self):
        ex = self.reading
        if self.left >= 0:
            take = self.buf[:self.left]
            self.buf = self.buf[len(take):]
            self.left -= len(take)
            if take:
                ex.fed(take)
            if self.left:
                return False
        else:
            end = self.buf.find(b"\r\n")
            if end < 0:
                return False
            size = int(self.buf[:end].split(b";")[0], 16)
            if len(self.buf) < end + 2 + size + 2:
                return False
            data = self.buf[end + 2:end + 2 + size]
            self.buf = self.buf[end + 2 + size + 2:]
            if size:
                ex.fed(data)
                return True
        self.reading = None
        ex.fed_end()
        return True

    async def send_head(self, ex, status, headers):
        names = [k.lower() for k, _ in headers]
        self.chunked_answer = "content-length" not in names and status not in (204, 304)
        lines = ["HTTP/1.1 %d %s" % (status, REASONS.get(status, "Status"))]
        lines += ["%s: %s" % kv for kv in headers]
        lines.append("date: " + self.conn.cloud.http_date())
        if self.chunked_answer:
            lines.append("transfer-encoding: chunked")
        await self.conn.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    async def send_body(self, ex, data):
        if data:
            await self.conn.write(b"%x\r\n%s\r\n" % (len(data), data) if self.chunked_answer else data)

    async def send_end(self, ex):
        if self.chunked_answer:
            await self.conn.write(b"0\r\n\r\n")
        self.current = None
        if not self.keep or self.reading:
            self.conn.transport.close()
        else:
            asyncio.get_running_loop().call_soon(self.feed, b"")

    def reset(self, ex, code):
        self.conn.cut()

    def goaway(self, code, last):
        self.conn.transport.close()

    def lost(self):
        for ex in (self.current, self.reading):
            if ex:
                ex.end("client gone")


class H2:
    """HTTP/2 as a server."""

    def __init__(self, conn):
        self.conn = conn
        self.streams = {}
        self.window = asyncio.Event()
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        self.h2 = h2.connection.H2Connection(config)
        settings = {STREAM_LIMIT: 100,
                    h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20}
        settings.update(conn.cloud.h2_settings)
        self.h2.local_settings = h2.settings.Settings(client=False, initial_values=settings)
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window((1 << 20) - 65535)
        self.flush()

    def set_stream_limit(self, n):
        self.h2.update_settings({STREAM_LIMIT: n})
        self.flush()

    def flush(self):
        self.conn.write_now(self.h2.data_to_send())

    def feed(self, data):
        try:
            events = self.h2.receive_data(data)
        except h2.exceptions.ProtocolError:
            self.flush()
            self.conn.transport.close()
            return
        ledger = self.conn.cloud.ledger
        for e in events:
            if isinstance(e, h2.events.RequestReceived):
                self.on_request(e)
            elif isinstance(e, h2.events.DataReceived):
                ex = self.streams.get(e.stream_id)
                if not self.conn.cloud.withhold_credit:
                    self.h2.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
                if ex:
                    ex.fed(e.data)
            elif isinstance(e, h2.events.StreamEnded):
                ex = self.streams.get(e.stream_id)
                if ex:
                    ex.fed_end()
            elif isinstance(e, h2.events.StreamReset):
                ledger.resets_received.append((self.conn.number, e.stream_id, int(e.error_code)))
                ex = self.streams.pop(e.stream_id, None)
                if ex:
                    ex.end("client reset")
            elif isinstance(e, (h2.events.WindowUpdated, h2.events.RemoteSettingsChanged)):
                self.window.set()
            elif isinstance(e, h2.events.PingReceived):
                ledger.pings_received += 1
        self.flush()
        ledger.note()

    def on_request(self, e):
        pseudo = {k: v for k, v in e.headers if k.startswith(":")}
        headers = [(k, v) for k, v in e.headers if not k.startswith(":")]
        ex = Exchange(self.conn, e.stream_id, "h2", pseudo[":method"], pseudo[":path"], headers,
                      pseudo.get(":authority") or dict(headers).get("host", ""))
        self.streams[e.stream_id] = ex
        ledger = self.conn.cloud.ledger
        ledger.peak_streams_one_conn = max(ledger.peak_streams_one_conn, len(self.streams))
        self.conn.cloud.spawn(ex)

    async def send_head(self, ex, status, headers):
        self.h2.send_headers(ex.stream, [(":status", str(status))] + [(k.lower(), v) for k, v in headers] +
                             [("date", self.conn.cloud.http_date())])
        self.flush()

    async def send_body(self, ex, data):
        while data:
            ex.check()
            room = min(self.h2.local_flow_control_window(ex.stream), self.h2.max_outbound_frame_size)
            if room <= 0:
                self.window.clear()
                waiter = asyncio.ensure_future(self.window.wait())
                gone = asyncio.ensure_future(ex.gone.wait())
                await asyncio.wait({waiter, gone}, return_when=asyncio.FIRST_COMPLETED)
                waiter.cancel()
                gone.cancel()
                continue
            self.h2.send_data(ex.stream, data[:room])
            data = data[room:]
            await self.conn.write(self.h2.data_to_send())

    async def send_end(self, ex):
        self.h2.end_stream(ex.stream)
        self.streams.pop(ex.stream, None)
        self.flush()

    def reset(self, ex, code):
        self.streams.pop(ex.stream, None)
        try:
            self.h2.reset_stream(ex.stream, code)
        except h2.exceptions.ProtocolError:
            return
        self.flush()

    def goaway(self, code, last):
        # By hand: h2's close_connection() would refuse every later frame, and a GOAWAY must not.
        from hyperframe.frame import GoAwayFrame
        f = GoAwayFrame(0)
        f.error_code = int(code)
        f.last_stream_id = 0x7fffffff if last == "max" else int(last)
        self.conn.write_now(f.serialize())

    def lost(self):
        self.window.set()
        for ex in list(self.streams.values()):
            ex.end("client gone")
        self.streams.clear()
