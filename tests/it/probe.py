# SPDX-License-Identifier: MIT
"""Drives build/tests/it/cloud_probe: the daemon's cloud and upstream modules without the rest of it."""
import json
import os
import queue
import subprocess
import threading

import pytest

import harness

PROBE = os.path.join(harness.BUILD, "tests", "it", "cloud_probe")


class Probe:
    def __init__(self, cloud, url=None, **options):
        if not os.path.exists(PROBE):
            pytest.fail("cloud_probe is not built in %s" % harness.BUILD)
        url = url or cloud.url
        argv = [PROBE, "--api", url, "--ca", cloud.ca]
        if "domain" not in options:
            argv += ["--sandbox", url]
        for k, v in dict({"key": cloud.key}, **options).items():
            if v is not None:
                argv += ["--" + k.replace("_", "-"), str(v)]
        self.folder = harness.temp_dir()
        self.log_path = os.path.join(self.folder, "probe.log")
        with open(self.log_path, "wb") as log:
            self.proc = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                                         env=dict(os.environ, ASAN_OPTIONS="exitcode=99:detect_leaks=1",
                                                  UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:exitcode=99"))
        self.results = {}
        self.news = queue.Queue()
        self.n = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.proc.stdout:
            self.news.put(json.loads(line))
        self.news.put(None)

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def say(self, verb, *args, tag=None):
        """Sends a command; its tag is returned for wait()."""
        if tag is None:
            self.n += 1
            tag = "t%d" % self.n
        self.proc.stdin.write(" ".join([verb, tag] + [str(a) for a in args]) + "\n")
        self.proc.stdin.flush()
        return tag

    def set(self, *words):
        self.proc.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.proc.stdin.flush()

    def wait(self, tag, what=("done", "closed"), timeout=20):
        what = (what,) if isinstance(what, str) else what
        while True:
            mine = self.results.setdefault(tag, [])
            for i, r in enumerate(mine):
                if r["what"] in what:
                    return mine.pop(i)
            try:
                r = self.news.get(timeout=timeout)
            except queue.Empty:
                raise AssertionError("no %s for %s in %d s:\n%s" % (what, tag, timeout, self.log()[-3000:])) from None
            assert r is not None, "the probe ended:\n" + self.log()[-3000:]
            self.results.setdefault(r["tag"], []).append(r)

    def ask(self, verb, *args, timeout=20):
        return self.wait(self.say(verb, *args), timeout=timeout)

    def all(self, tags, timeout=30):
        return [self.wait(t, timeout=timeout) for t in tags]

    def sync(self):
        """Everything said before has been taken."""
        return self.wait(self.say("sync"), "synced")

    def stats(self):
        tag = self.say("stats")
        self.wait(tag, "synced")
        return [r for r in self.results.pop(tag, []) if r["what"] == "stats"]

    def create(self, timeout=300, **metadata):
        r = self.ask("create", timeout, *("%s=%s" % kv for kv in metadata.items()))
        assert r["outcome"] == "DONE", r
        return r["id"], r["token"] or "-"

    def close(self):
        self.proc.stdin.close()
        try:
            code = self.proc.wait(20)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
            raise AssertionError("the probe did not end:\n" + self.log()[-3000:]) from None
        assert code == 0, "the probe ended with %d:\n%s" % (code, self.log()[-6000:])
