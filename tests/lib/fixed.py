# SPDX-License-Identifier: MIT
"""The values that stand for ids, tokens, names and times in everything that is recorded."""

SANDBOX = "i0a1b2c3d4e5f6g7h8i9j"
FORK = "i1b2c3d4e5f6g7h8i9j0k"
TEMPLATE = "rki5dems9wqfm4r03t7g"
TOKEN = "0123456789abcdef" * 4
TRAFFIC_TOKEN = "fedcba9876543210" * 4
E2B_KEY = "e2b_" + "00112233445566778899aabbccddeeff00112233"
AGENTBOX_KEY = "ab_" + "00112233445566778899aabbccddeeff"
HOST = "127.0.0.1:3000"
STARTED = "2026-08-21T10:00:00.123456789Z"
ENDS = "2026-08-21T10:05:00.123456Z"
UNIX = 1787306400                       # 2026-08-21T10:00:00Z
HTTP_DATE = "Fri, 21 Aug 2026 10:00:00 GMT"
PID = 1234
UUID = "11111111-2222-4333-8444-555555555555"
WATCHER = "w0a1b2c3d4e5f6g7h8i9j"

# By the name of a JSON member.
EXAMPLES = {
    "sandboxID": SANDBOX, "templateID": TEMPLATE, "clientID": "6532622b", "alias": "base", "envdVersion": "0.6.13",
    "envdAccessToken": TOKEN, "trafficAccessToken": TRAFFIC_TOKEN, "domain": "e2b.app", "startedAt": STARTED, "endAt": ENDS,
    "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 1024, "metadata": {"job": "42", "k&=": "\u00e9+1"},
    "timestamp": "2026-08-21T10:00:00Z", "timestampUnix": UNIX, "cpuUsedPct": 12.5, "memUsed": 104857600,
    "memTotal": 536870912, "memCache": 52428800, "diskUsed": 1073741824, "diskTotal": 10737418240,
    "snapshotID": "team-slug/my-snapshot:default", "names": ["team-slug/my-snapshot:default"],
    "allowOut": ["8.8.8.8/32", "*.example.com"], "denyOut": ["0.0.0.0/0"], "maskRequestHost": "localhost:${PORT}",
    "address": "proxy.example.com:1080", "username": "u", "password": "secret",
    "rules": {"api.example.com": [{"transform": {"headers": {"Authorization": "Bearer ${e2b.identity.tokens.aws}"}}}]},
    "volumeMounts": [{"name": "data", "path": "/mnt/data"}], "message": "text of the refusal", "code": 429,
    "error_code": "sandbox_capacity_unavailable", "sandboxes": {SANDBOX: {
        "timestamp": "2026-08-21T10:00:00Z", "timestampUnix": UNIX, "cpuCount": 2, "cpuUsedPct": 12.5, "memUsed": 104857600,
        "memTotal": 536870912, "memCache": 52428800, "diskUsed": 1073741824, "diskTotal": 10737418240}},
    "fields": {"logger": "process"}, "line": "a line", "level": "info",
    "createdAt": "2026-08-21T10:00:00Z", "updatedAt": "2026-08-21T10:00:00Z", "lastSpawnedAt": "2026-08-21T10:00:00Z",
    "buildID": "11111111-2222-3333-4444-555555555555", "tag": "default", "tags": ["default"],
}
