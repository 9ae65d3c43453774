/* SPDX-License-Identifier: MIT */
/* Heads at the gateway's door: lines of the input are the authority, the path, and then fields "name: value". What is decided
 * obeys plane.h, and does not depend on what a host label overrides. */
#include <stdlib.h>
#include <string.h>

#include "daemon/gateway/page_pass.h"
#include "daemon/gateway/plane.h"
#include "daemon/gateway/who.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check(const struct fields *head)
{
	struct plane plane;

	plane_find(head, &plane);
	(void)who_is_foreign_page(head, false);
	(void)who_is_local_host(fields_get(head, ":authority"));
	must((plane.kind == PLANE_BAD) == (plane.why != NULL));
	if (plane.kind != PLANE_PORT)
		return;
	must(cloud_is_sandbox_id(plane.port.sandbox) && plane.port.port);
	must(!plane.port.by_label || strchr(fields_get(head, ":authority"), '.'));
}

static bool put_line(struct fields *head, unsigned i, char *line)
{
	char *colon = strstr(line, ": ");

	if (i < 2)
		return fields_put(head, i ? ":path" : ":authority", line) == 0;
	if (!colon || colon == line || line[0] == ':')
		return true;
	*colon = 0;
	str_lower(line);
	return fields_put(head, line, colon + 2) == 0;
}

/* A cookie is no pass unless this daemon has made it. */
static void check_cookie(const char *header)
{
	static const uint8_t key[PAGE_PASS_KEY];
	char text[PAGE_PASS_TEXT], again[PAGE_PASS_TEXT];
	struct page_pass p;

	if (!header || !page_cookie_find(header, text))
		return;
	must(!strchr(text, ';') && strstr(header, text));
	for (int kind = PAGE_TICKET; kind <= PAGE_SESSION; kind++)
		if (page_pass_read(key, text, (enum page_pass_kind)kind, 0, &p)) {
			page_pass_write(key, &p, again);
			must(str_eq(again, text));
		}
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct fields head = FIELDS_NULL;
	char *text = malloc(n + 1), *rest = text, *line;
	unsigned i = 0;

	must(text);
	memcpy(text, p, n);
	text[n] = 0;
	must(fields_put(&head, ":method", "POST") == 0);
	while ((line = strsep(&rest, "\n")) && put_line(&head, i, line))
		i++;
	check(&head);
	check_cookie(fields_get(&head, "cookie"));
	fields_fini(&head);
	free(text);
	return 0;
}
