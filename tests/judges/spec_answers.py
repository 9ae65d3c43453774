# SPDX-License-Identifier: MIT
"""Writes tests/golden/spec: the answers of the control plane as its public specification describes them.

    python3 tests/judges/spec_answers.py PATH       PATH: a checkout of e2b-dev/E2B, outside of the project

Each answer comes in three forms, made from the schema alone: `min` has the required members only, `full` has every member, `null`
has every member and null where it is allowed. `agentbox-` is the same without the members for which AgentBox's SDK has no
field. statuses.tsv says which statuses the specification gives each route.
"""
import json
import os
import re
import sys

import yaml

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
import golden  # noqa: E402
from fixed import EXAMPLES, FORK  # noqa: E402

ROUTES = [
    ("create", "POST", "/sandboxes"), ("list_v1", "GET", "/sandboxes"), ("list", "GET", "/v2/sandboxes"),
    ("get", "GET", "/sandboxes/{sandboxID}"), ("delete", "DELETE", "/sandboxes/{sandboxID}"),
    ("pause", "POST", "/sandboxes/{sandboxID}/pause"), ("resume", "POST", "/sandboxes/{sandboxID}/resume"),
    ("connect", "POST", "/sandboxes/{sandboxID}/connect"), ("timeout", "POST", "/sandboxes/{sandboxID}/timeout"),
    ("refreshes", "POST", "/sandboxes/{sandboxID}/refreshes"), ("network", "PUT", "/sandboxes/{sandboxID}/network"),
    ("fork", "POST", "/sandboxes/{sandboxID}/fork"), ("snapshot", "POST", "/sandboxes/{sandboxID}/snapshots"),
    ("snapshots", "GET", "/snapshots"), ("template_delete", "DELETE", "/templates/{templateID}"),
    ("metrics", "GET", "/sandboxes/{sandboxID}/metrics"), ("metrics_all", "GET", "/sandboxes/metrics"),
    ("logs", "GET", "/v2/sandboxes/{sandboxID}/logs"), ("logs_v1", "GET", "/sandboxes/{sandboxID}/logs"),
    ("health", "GET", "/health"), ("template_alias", "GET", "/templates/aliases/{alias}"),
    ("templates", "GET", "/v2/templates"), ("template_tags", "GET", "/templates/{templateID}/tags"),
    ("tags_assign", "POST", "/templates/tags"), ("tags_delete", "DELETE", "/templates/tags"),
]
# What the generated models of abox-sdk have no field for.
AGENTBOX_LACKS = {"clientID", "volumeMounts", "timestamp", "error_code", "egressProxy"}
NEXT_TOKEN = "MjAyNi0wOC0yMVQxMDowMDowMC4xMjM0NTZaX19pMGExYjJjM2Q0ZTVmNmc3aDhpOWo="


class Spec:
    def __init__(self, path):
        with open(os.path.join(path, "spec", "openapi.yml"), encoding="utf-8") as f:
            self.doc = yaml.safe_load(f)

    def at(self, node):
        while "$ref" in node:
            target = self.doc
            for part in node["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            node = target
        return node

    def value(self, schema, form, name=""):
        """A value of this schema; `name` is the member that has it."""
        schema = self.at(schema)
        if form == "null" and schema.get("nullable"):
            return None
        if "allOf" in schema:
            out = {}
            for part in schema["allOf"]:
                out.update(self.value(part, form, name))
            return out
        if name in EXAMPLES:
            return EXAMPLES[name]
        if "enum" in schema:
            return schema["enum"][0]
        kind = schema.get("type") or ("object" if "properties" in schema or "additionalProperties" in schema else "string")
        if kind == "array":
            return [self.value(schema["items"], form, name.removesuffix("s"))]
        if kind == "object":
            return self.members(schema, form)
        return {"boolean": True, "integer": 1, "number": 1.5}.get(kind) if kind != "string" else "text of %s" % (name or "it")

    def members(self, schema, form):
        required = schema.get("required", ())
        out = {k: self.value(v, form, k) for k, v in schema.get("properties", {}).items() if form != "min" or k in required}
        if isinstance(schema.get("additionalProperties"), dict) and form != "min":
            out["key"] = self.value(schema["additionalProperties"], form, "")
        return out

    def version(self, path):
        with open(os.path.join(path, "packages", "js-sdk", "package.json"), encoding="utf-8") as f:
            return json.load(f)["version"]


def one_of(value):
    """A fork's result has either member, never both, which the schema says in words only."""
    return [{"sandbox": v["sandbox"]} if i == 0 else {"error": v["error"]} for v in value for i in (0, 1)]


def of_agentbox(value):
    """The same as AgentBox's SDK reads it: without the members that it lacks, with AgentBox's own names."""
    if isinstance(value, dict):
        return {k: of_agentbox(v) for k, v in value.items() if k not in AGENTBOX_LACKS}
    if isinstance(value, str):
        return value.replace("${e2b.", "${agentbox.").replace("e2b.app", "agentbox-runtime.ru")
    return [of_agentbox(v) for v in value] if isinstance(value, list) else value


def write(rows, version, name, status, route, value=None, headers=()):
    head = list(headers)
    body = b""
    if value is not None:
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        head = [("Content-Type", "application/json; charset=utf-8")] + head
    file = "spec/%s.res" % name
    golden.write(file, golden.Message(head, body, status=status))
    source = "specification, less what abox-sdk 0.2.1 lacks" if name.startswith("agentbox-") else "specification"
    rows.append({"file": file, "source": source, "version": version, "direction": "answer", "route": route})


def forms(spec, schema, name):
    out = {}
    for form in ("min", "full", "null"):
        v = spec.value(schema, form)
        if name == "fork":      # the sandboxes are new ones
            v = one_of([spec.value(schema["items"], "full" if form == "min" else form)])
            if form == "min":
                v = [{k: spec.value(spec.doc["components"]["schemas"]["Sandbox" if k == "sandbox" else "Error"], "min")
                      for k in r} for r in v]
            v[0]["sandbox"]["sandboxID"] = FORK
        if v not in out.values():
            out[form] = v
    return out


def main(path):
    spec, rows, statuses = Spec(path), [], []
    version = "openapi.yml of e2b %s" % spec.version(path)
    for old in os.listdir(os.path.join(golden.ROOT, "spec")) if os.path.isdir(os.path.join(golden.ROOT, "spec")) else []:
        os.remove(os.path.join(golden.ROOT, "spec", old))
    for name, method, target in ROUTES:
        route = "%s %s" % (method, target)
        responses = spec.doc["paths"][target][method.lower()]["responses"]
        statuses.append((method, target, " ".join(sorted(responses))))
        for status, response in responses.items():
            if int(status) >= 300:
                continue
            response = spec.at(response)
            media = response.get("content", {}).get("application/json")
            if media is None:
                write(rows, version, "%s.%s" % (name, status), int(status), route)
                continue
            headers = [("X-Next-Token", NEXT_TOKEN)] if "X-Next-Token" in response.get("headers", {}) else []
            headers += [("X-Total-Running", "7")] if "X-Total-Running" in response.get("headers", {}) else []
            for form, value in forms(spec, spec.at(media["schema"]), name).items():
                write(rows, version, "%s.%s.%s" % (name, status, form), int(status), route, value, headers if form == "full" else ())
                lean = of_agentbox(value)
                if lean != value and form != "null":
                    write(rows, version, "agentbox-%s.%s.%s" % (name, status, form), int(status), route, lean)
    error = spec.doc["components"]["schemas"]["Error"]
    tags = re.findall(r"[a-z]+(?:_[a-z]+){2,}", error["properties"]["error_code"]["description"])
    for status in spec.doc["components"]["responses"]:
        for form in ("min", "full"):
            value = spec.value(error, form)
            value["code"] = int(status)
            if form == "full":
                value["error_code"] = tags[0] if status == "503" else tags[1] if status == "504" else "internal_server_error"
            if form == "min" or status in ("500", "503", "504"):
                write(rows, version, "error.%s.%s" % (status, form), int(status), "*", value)
    golden.write_index("spec", rows)
    with open(os.path.join(golden.ROOT, "spec", "statuses.tsv"), "w", encoding="ascii") as f:
        f.write("# method\tpath\tstatuses of the specification\n")
        f.writelines("\t".join(s) + "\n" for s in statuses)


if __name__ == "__main__":
    main(sys.argv[1])
