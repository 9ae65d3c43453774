# SPDX-License-Identifier: MIT
"""An HTTP proxy that only knows CONNECT, and leads every name to one place: what is behind it needs no name service.

    with FakeProxy(cloud.port, user="u:p") as proxy:
        … proxy.url; proxy.seen is [(host:port, whether the credentials were right)] …
"""
import base64
import socket
import threading


class FakeProxy:
    def __init__(self, target_port, user=None):
        self.target = target_port
        self.user = user
        self.answer = None       # bytes sent instead of leading anywhere; b"": silence
        self.after = b""         # bytes behind a good answer, as if the far side had spoken already
        self.seen = []
        self.authorized = []

    def start(self):
        self.sock = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.sock.getsockname()[1]
        self.url = "http://%s127.0.0.1:%d" % (self.user + "@" if self.user else "", self.port)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def _accept(self):
        while True:
            try:
                s, _ = self.sock.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(s,), daemon=True).start()

    def _serve(self, s):
        head = b""
        while b"\r\n\r\n" not in head:
            more = s.recv(4096)
            if not more:
                return s.close()
            head += more
        lines = head.decode("latin-1").split("\r\n")
        fields = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        want = "Basic " + base64.b64encode(self.user.encode()).decode() if self.user else None
        good = want is None or fields.get("proxy-authorization") == want
        self.seen.append((lines[0].split(" ")[1], good))
        if self.answer is not None:
            s.sendall(self.answer)
            if self.answer:
                s.close()
            return None
        if not good:
            s.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n")
            return s.close()
        far = socket.create_connection(("127.0.0.1", self.target))
        s.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n" + self.after)
        back = threading.Thread(target=self._pipe, args=(far, s), daemon=True)
        back.start()
        self._pipe(s, far)
        return None

    @staticmethod
    def _pipe(a, b):
        try:
            while True:
                data = a.recv(65536)
                if not data:
                    break
                b.sendall(data)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def stop(self):
        self.sock.close()

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc):
        self.stop()
