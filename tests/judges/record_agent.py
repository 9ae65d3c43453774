# SPDX-License-Identifier: MIT
"""Writes tests/golden/agent: every case of tests/lib/agentcases.py against the agent that listens on localhost:49983, in the
namespaces that record.sh made.

    record_agent.py ENVD        its program, which is started and ended here
"""
import http.client
import json
import os
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
import fixed  # noqa: E402
import golden  # noqa: E402
from agentcases import CASES, Agent  # noqa: E402
from rawhttp import exchange  # noqa: E402

ADDRESS = ("127.0.0.1", 49983)
INIT = {"accessToken": fixed.TOKEN, "defaultUser": "user", "envVars": {"FROM_CREATE": "1"}}


def wait_for_health():
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            c = http.client.HTTPConnection(*ADDRESS, timeout=5)
            c.request("GET", "/health")
            return c.getresponse().read()
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the agent does not listen")


def init(body, **headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [("Host", fixed.HOST), ("Content-Type", "application/json"), ("Content-Length", str(len(data)))]
    request = golden.Message(head, data, method="POST", target="/init")
    answer = exchange(ADDRESS, "POST", "/init", head, data)
    answer.headers = [(k, fixed.HTTP_DATE if k == "Date" else v) for k, v in answer.headers]
    return request, answer


def main(envd):
    version = subprocess.run([envd, "-version"], capture_output=True, text=True, check=True).stdout.strip()
    with open(os.path.join(os.environ["RECORD_TMP"], "envd.log"), "wb") as log:
        proc = subprocess.Popen([envd, "-isnotfc", "-no-cgroups"], stdout=log, stderr=log)
    rows = []

    def keep(name, request, answer):
        path = request.target.split("?")[0]
        for suffix, m, direction in (("req", request, "request, ours"), ("res", answer, "answer")):
            file = "agent/%s.%s" % (name, suffix)
            golden.write(file, m)
            rows.append({"file": file, "source": "agent" if suffix == "res" else "tests/lib/agentcases.py",
                         "version": "envd " + version if suffix == "res" else "-", "direction": direction,
                         "route": "%s %s" % (request.method, path)})
    try:
        wait_for_health()
        shutil.rmtree(os.path.join(golden.ROOT, "agent"), ignore_errors=True)
        keep("init", *init(INIT))
        keep("init-bad-json", *init(b"{"))
        keep("init-other-token", *init({"accessToken": "f" * 64}))
        agent = Agent(ADDRESS, fixed.TOKEN)
        agent.is_patient = True
        for c in CASES:
            try:
                keep(c.name, *c.run(agent))
            except Exception as e:
                print("%s: %r" % (c.name, e), file=sys.stderr)
                raise
        golden.write_index("agent", rows)
    finally:
        proc.kill()
        proc.wait()
    print("%d exchanges" % (len(rows) // 2))


if __name__ == "__main__":
    main(sys.argv[1])
