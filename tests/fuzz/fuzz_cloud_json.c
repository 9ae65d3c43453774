/* SPDX-License-Identifier: MIT */
/*
 * JSON of the cloud: what is accepted has what callers rely on (an id, a template, a version, texts
 * without NUL), and nothing leaks. The first byte chooses the parser.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/cloud/json.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check_sandbox(const struct cloud_sandbox *s)
{
	must(s->id && cloud_is_sandbox_id(s->id));
	must(s->template_id && *s->template_id && s->envd_version && *s->envd_version);
	for (size_t i = 0; i < s->metadata.n; i++)
		must(str_is_utf8(s->metadata.v[i].value, strlen(s->metadata.v[i].value)));
	if (s->network)
		for (size_t i = 0; i < s->network->n_rules; i++)
			must(s->network->rules[i].domain);
}

static void try_list(const uint8_t *p, size_t n)
{
	scoped(cloud_list_freep) struct cloud_list *l = calloc(1, sizeof(*l));
	const char *why = NULL;
	int r;

	must(l);
	r = json_list(p, n, l, &why);
	if (r < 0)
		must(why);
	for (size_t i = 0; i < l->n; i++)
		check_sandbox(l->v[i]);
}

static void try_sandbox(const uint8_t *p, size_t n)
{
	scoped(cloud_sandbox_freep) struct cloud_sandbox *s = NULL;
	const char *why = NULL;

	if (json_sandbox(p, n, &s, &why) == 0)
		check_sandbox(s);
	else
		must(why && !s);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct fault_body b;
	bool is_error;
	char *path = NULL;

	if (!n)
		return 0;
	switch (*p % 5) {
	case 0:
		try_sandbox(p + 1, n - 1);
		break;
	case 1:
		try_list(p + 1, n - 1);
		break;
	case 2:
		json_error(p + 1, n - 1, &b);
		must(memchr(b.message, 0, sizeof(b.message)) && memchr(b.code_name, 0, sizeof(b.code_name)));
		break;
	case 3:
		(void)!json_end_of_stream(p + 1, n - 1, &is_error, &b);
		break;
	default:
		if (json_upload(p + 1, n - 1, &path) == 0)
			must(path && *path);
		free(path);
	}
	return 0;
}
