/* SPDX-License-Identifier: MIT */
/* See the header. */
#include "daemon/local/main/caps.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/local/engine/container.h"

static const struct {
	const char *name;
	bool available;
	const char *text;
} fixed[] = {
	{ "http2", true, "HTTP/2 and HTTP/1.1 on every listener" },
	{ "terminals", true, "Process.Start with pty, Update" },
	{ "pause", true,
	  "with memory: processes are stopped in place (see freeze) and lost when agentbox-local ends; "
	  "memory=false, autoPauseMemory=false: processes end, files stay, over a restart too; autoPause "
	  "and autoResume as in the cloud" },
	{ "fork", true, "the children have the files of the source, not its memory: they start anew" },
	{ "fork-memory", false, "memory is never copied; x-agentbox-local-limits says no-memory" },
	{ "snapshots", true,
	  "files only (reflinks where the file system has them), kept over restarts; a sandbox made from one "
	  "starts anew, x-agentbox-local-limits says no-memory" },
	{ "ports", true, "by host label or headers, WebSocket upgrades over HTTP/1.1 too; maskRequestHost, "
			 "allowPublicTraffic" },
	{ "metrics", true, "every 5 s, where control groups can be read (see usage); disk is the whole disk's" },
	{ "logs", true, "starts and ends of the agent and of processes, while the sandbox exists" },
	{ "watch", true, "WatchDir and the three watcher calls, recursive" },
	{ "volumes", false, "volumeMounts is refused with 400" },
	{ "iam", false, "refused with 400" },
	{ "mcp", false, "refused with 400" },
	{ "compose", true, "POST /files/compose" },
};

static int add(json_t *list, const char *name, bool available, const char *text)
{
	return json_array_append_new(list, json_pack("{s:s, s:b, s:s}", "name", name, "available",
						     available, "text", text));
}

int caps_print(const struct engine *bs)
{
	struct container_capability v[CONTAINER_CAPABILITIES_MAX];
	size_t n = engine_capabilities(bs, v);
	json_t *list = json_array();
	json_auto_t *o = json_pack("{s:s, s:o}", "version", AB_VERSION, "capabilities", list);
	int r = o ? 0 : -1;
	char *text;

	for (size_t i = 0; i < n && !r; i++)
		r = add(list, v[i].name, v[i].available, v[i].text);
	for (size_t i = 0; i < ARRAY_SIZE(fixed) && !r; i++)
		r = add(list, fixed[i].name, fixed[i].available, fixed[i].text);
	text = r ? NULL : json_dumps(o, JSON_INDENT(2));
	if (!text)
		return -ENOMEM;
	r = puts(text) < 0 || fflush(stdout) ? -EIO : 0;
	free(text);
	return r;
}
