# SPDX-License-Identifier: MIT
"""agentbox-local against the recorded answers of the real agent (tests/golden/agent): the same requests, in the same order,
must be answered with the same status, header lines and body."""
import base64
import gzip
import json

import pytest

import agentcases
import golden
from agentcases import CASES, Agent, split_envelopes
from wire import Client

# Where ours is better, and how: the agent sends nothing, or an error, of a file that cannot be sought in or that tells no length.
BETTER = {"get-unseekable-identity": "get-unseekable-gzip", "get-zero-length-identity": "get-zero-length-gzip"}
# Header lines that are compared if the agent sends them. That which Connect types one may post is left out: ours speaks no gRPC.
COMPARED = ("content-type", "content-encoding", "connect-content-encoding", "content-disposition", "content-range", "accept-ranges",
            "allow", "x-content-type-options", "vary", "content-length", "cache-control")
# What is the machine's own, and is not compared.
OWN_BODY = {"metrics", "envs"}
OWN_STDERR = {"run-no-such-cmd", "run-no-process"}     # the words of a shell, or of a tool before the command
OWN_NAME = {"get-unseekable-gzip", "get-unseekable-identity"}   # the text is the agent's own name


@pytest.fixture(scope="module")
def agent(local_session):
    """A sandbox's agent that the cases talk to, one after the other."""
    client = Client(local_session.plain_url, local_session.key)
    box = client.create(timeout=3600, envVars={"FROM_CREATE": "1"})
    host = "%s:%d" % (client.address, client.port)
    yield Agent((client.address, client.port), box["envdAccessToken"],
                [("Host", host), ("E2b-Sandbox-Id", box["sandboxID"]), ("E2b-Sandbox-Port", "49983")])
    client.close()


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_agent(case, agent):
    """E-5: every difference of our agent to the real one is found here."""
    want = golden.read("agent/%s.res" % case.name)
    sent, got = case.run(agent)
    differs = differences(case.name, sent, got, want)
    assert not differs, differs


def differences(name, sent, got, want):
    if name in BETTER:
        return differs_from_better(got, golden.read("agent/%s.res" % BETTER[name]), name in OWN_NAME)
    if got.status != want.status:
        return ["status %s, the agent's is %s: %r" % (got.status, want.status, got.body[:200])]
    out = []
    for h in COMPARED:
        a, b = essence(h, got), essence(h, want)
        if h == "content-length" and is_of_any_length(want) or h == "content-type" and sent.target.startswith("/files") and \
                sent.method == "POST":      # the agent leaves that one to chance, and the contract asks for JSON
            continue
        if a != b and b is not None:
            out.append("%s: %r, the agent's is %r" % (h, a, b))
    if name.split(".")[0] not in OWN_BODY | OWN_NAME:
        a, b = (unpacked(m, sent.target, name.split(".")[0] in OWN_STDERR) for m in (got, want))
        if a != b:
            out.append("body %r, the agent's is %r" % (a, b))
    return out


def differs_from_better(got, want, is_own):
    """200 with the whole text, packed or not."""
    if got.status != 200:
        return ["status %d: %r" % (got.status, got.body[:200])]
    text, wanted = (gzip.decompress(m.body) if m.header("content-encoding") == "gzip" else m.body for m in (got, want))
    return [] if text == wanted or is_own and text else ["body %r, not %r" % (text, wanted)]


def essence(name, m):
    """What matters of a header line: no parameters of a type, no word about origins; several lines are one list."""
    values = sorted(v for k, v in m.headers if k.lower() == name)
    if name == "content-type":
        values = [v.split(";")[0] for v in values]
    if name == "vary":
        values = [v for v in values if v != "Origin"]
    return ", ".join(filter(None, values)) or None


def is_of_any_length(m):
    """A body whose length depends on the words of an error, on spaces or on the packer."""
    kind = m.header("content-type") or ""
    return m.status >= 400 or "json" in kind or "connect" in kind or m.body[:1] in (b"[", b"{") or \
        m.header("content-encoding") == "gzip" or m.status == 200 and kind == "application/proto"


# -- bodies so that equal things are equal: the words of errors are anybody's own, data comes in any number of pieces

def unpacked(m, target, own_stderr=False):
    kind = m.header("content-type") or ""
    body = gzip.decompress(m.body) if m.header("content-encoding") == "gzip" else m.body
    if kind.startswith("application/connect+"):
        events = events_of(body, agentcases.message_class(target, True), kind.endswith("json"))
        return [e for e in events if not own_stderr or "stderr" not in e]
    if kind == "application/proto" and m.status == 200:
        return json.loads(Agent.messages.encode(Agent.messages[agentcases.message_class(target, True)].FromString(body), True))
    if kind.startswith("application/json") or body[:1] in (b"{", b"["):
        return without_texts(json.loads(body))
    return body


def events_of(body, message, is_json):
    """The events of a stream, up to the last that a case waits for."""
    out = []
    for flags, payload in split_envelopes(body):
        if flags & 1:
            payload = gzip.decompress(payload)
        if flags & 2:
            out.append({"last": without_texts(json.loads(payload))})
            break
        event = json.loads(payload if is_json else Agent.messages.encode(Agent.messages[message].FromString(payload), True))
        if agentcases.LAST in json.dumps(event):
            break
        if event != (out[-1] if out else None) or "keepalive" not in json.dumps(event):
            out.append(event)
    return merged(out)


def merged(events):
    """Neighbouring pieces of one stream become one."""
    out = []
    for e in events:
        data = e.get("event", {}).get("data")
        if not data:
            out.append(e)
            continue
        (which, text), = data.items()
        if out and list(out[-1]) == [which]:
            out[-1][which] += base64.b64decode(text)
        else:
            out.append({which: base64.b64decode(text)})
    return out


def without_texts(v):
    if isinstance(v, dict):
        return {k: "(text)" if k == "message" else without_texts(x) for k, x in v.items()}
    return [without_texts(x) for x in v] if isinstance(v, list) else v
