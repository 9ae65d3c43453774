/* SPDX-License-Identifier: MIT */
/*
 * A Start or Connect that the gateway may take for the daemon's own: head lines up to an empty one, then the body. What is
 * taken names what it is about, and the rest of its head says nothing that the agent would refuse.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/gateway/durable.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/gen/envd_process.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* "name: value"; what is no field is left out. */
static void put_line(struct fields *f, char *line)
{
	char *colon = strchr(line + (*line == ':'), ':');

	if (!colon)
		return;
	*colon = 0;
	(void)!fields_put(f, line, colon + 1 + (colon[1] == ' '));
}

static void check(const struct durable_ask *a)
{
	const Process__StartRequest *s = (const void *)a->msg;
	const Process__ConnectRequest *c = (const void *)a->msg;

	must(a->timeout_ms <= UINT32_MAX && a->keepalive_ms && strlen(a->user) < DURABLE_USER_MAX);
	if (a->kind == DURABLE_START)
		must(s->process && !str_is_empty(s->process->cmd));
	else
		must(a->kind == DURABLE_CONNECT && c->process && c->process->selector_case);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct fields f = { .max_n = 32, .max_bytes = 8192 };
	struct durable_ask a = { 0 };

	while (n) {
		const uint8_t *end = memchr(p, '\n', n);
		size_t len = end ? (size_t)(end - p) : n;
		char line[256];

		if (len && len < sizeof(line)) {
			memcpy(line, p, len);
			line[len] = 0;
			put_line(&f, line);
		}
		p += len + (end != NULL);
		n -= len + (end != NULL);
		if (!len)
			break;
	}
	if (durable_ask_read(&f, p, n, &a) == 0)
		check(&a);
	durable_ask_fini(&a);
	fields_fini(&f);
	return 0;
}
