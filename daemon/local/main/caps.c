/* SPDX-License-Identifier: MIT */
#include "daemon/local/main/caps.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/local/engine/container.h"
#include "daemon/local/state/local.h"
#include "proto/base/buf.h"

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
	{ "templates", true, "looked up by name and id, listed; tags of snapshots are given and taken away; those of the "
			     "command line belong to everybody and are changed by nobody" },
	{ "template-start", true, "--template NAME=PATH,start=CMD,ready=CMD: both run when a sandbox is made, not when a template is built" },
	{ "template-images", true, "--template NAME=DIR of an OCI image layout folder, or of an archive; unpacked once" },
	{ "template-builds", false, "refused with 501; --template NAME=PATH makes one of files, a snapshot of a sandbox" },
	{ "volumes", false, "refused with 501; volumeMounts with 400" },
	{ "secrets", false, "refused with 501" },
	{ "teams", false, "refused with 501, as API keys, access tokens, nodes, events and webhooks" },
	{ "iam", false, "refused with 400" },
	{ "mcp", true, "taken as a note, as in the cloud; the program mcp-gateway is a template's, and the base has none" },
	{ "compose", true, "POST /files/compose" },
};

static int add(json_t *list, const char *name, bool available, const char *text)
{
	return json_array_append_new(list, json_pack("{s:s, s:b, s:s}", "name", name, "available",
						     available, "text", text));
}

/* Every route that is refused, by method and path. */
static int add_refused(json_t *list)
{
	scoped(buf_fini) struct buf out = BUF_NULL;
	const char *between = ": ";
	char *text;
	int r = buf_put_str(&out, "refused with 501");

	for (enum cloud_route to = 0; to < CLOUD_ROUTES && !r; to++) {
		if (rest_is_built(to))
			continue;
		r = buf_printf(&out, "%s%s %s", between, cloud_route_info(to)->method, cloud_route_info(to)->path);
		between = ", ";
	}
	text = r ? NULL : buf_take_str(&out);
	r = text ? add(list, "routes", false, text) : -1;
	free(text);
	return r;
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
	if (!r)
		r = add_refused(list);
	text = r ? NULL : json_dumps(o, JSON_INDENT(2));
	if (!text)
		return -ENOMEM;
	r = puts(text) < 0 || fflush(stdout) ? -EIO : 0;
	free(text);
	return r;
}
