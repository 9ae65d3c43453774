# SPDX-License-Identifier: MIT
"""A fake cloud as a process: `python3 -m fakecloud [--port N] [--plain-url-file F]`.

Prints one line of JSON {"url", "plain_url", "ca", "key", "control"}. On the control port it takes lines of JSON,
{"do": "fault", "args": ["create"], "kw": {"when": "after", "cut": true}}, and answers each with a line {"ok": …}
or {"error": "…"}: do is fault, clear_faults, goaway, cut_all, silence, refuse, advance, kill_sandbox, close_idle,
script, forget, requests, sandboxes, counters, stop. It ends at "stop" and when its standard input ends.
"""
import argparse
import json
import socket
import sys
import threading

from . import FakeCloud

SIMPLE = ("fault", "clear_faults", "goaway", "cut_all", "silence", "refuse", "advance", "kill_sandbox", "close_idle",
          "script", "forget")


def ask(cloud, order):
    do, args, kw = order["do"], order.get("args", []), order.get("kw", {})
    if do == "requests":
        return [r.as_dict() for r in cloud.ledger.of(*args, **kw)]
    if do == "sandboxes":
        return [{"id": s.id, "state": s.state, "fate": s.fate, "metadata": s.metadata, "request": s.request,
                 "started_at": s.started_at, "end_at": s.end_at} for s in list(cloud.ledger.sandboxes)]
    if do == "counters":
        keep = ("connections", "open_connections", "open_streams", "peak_streams", "peak_streams_one_conn",
                "pings_received", "resumed_tls")
        return {k: getattr(cloud.ledger, k) for k in keep}
    if do == "script":     # its output is bytes, and JSON has none
        args = [args[0], [[x.encode() if i and isinstance(x, str) else x for i, x in enumerate(step)] for step in args[1]]]
    if do not in SIMPLE:
        raise ValueError("unknown order: %s" % do)
    getattr(cloud, do)(*args, **kw)
    return True


def serve(cloud, sock, stop):
    lines = sock.makefile("rw", encoding="utf-8")
    for line in lines:
        try:
            order = json.loads(line)
            if order.get("do") == "stop":
                stop.set()
                reply = {"ok": True}
            else:
                reply = {"ok": ask(cloud, order)}
        except Exception as e:  # said to the asker, who is a test
            reply = {"error": "%s: %s" % (type(e).__name__, e)}
        lines.write(json.dumps(reply) + "\n")
        lines.flush()


def main():
    p = argparse.ArgumentParser(prog="fakecloud")
    p.add_argument("--port", type=int, default=0)
    a = p.parse_args()
    stop = threading.Event()
    with FakeCloud(port=a.port) as cloud, socket.create_server(("127.0.0.1", 0)) as listener:
        def accept():
            while True:
                sock, _ = listener.accept()
                threading.Thread(target=serve, args=(cloud, sock, stop), daemon=True).start()

        def until_stdin_ends():
            sys.stdin.read()
            stop.set()
        for fn in (accept, until_stdin_ends):
            threading.Thread(target=fn, daemon=True).start()
        print(json.dumps({"url": cloud.url, "plain_url": cloud.plain_url, "ca": cloud.ca, "key": cloud.key,
                          "control": listener.getsockname()[1]}), flush=True)
        stop.wait()


if __name__ == "__main__":
    main()
