/* SPDX-License-Identifier: MIT */
/*
 * JSON of the cloud: what is accepted has what callers rely on (an id, a template, a version, texts
 * without NUL), and nothing leaks. The first byte chooses the parser.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/cloud/error.h"
#include "proto/cloud/json.h"
#include "proto/cloud/model.h"

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

static int add(void *element, void *user)
{
	struct cloud_list *l = user;

	must(cloud_list_add(l, element) == 0);
	return 0;
}

static void try_list(const uint8_t *p, size_t n)
{
	scoped(cloud_list_freep) struct cloud_list *l = calloc(1, sizeof(*l));
	struct cloud_json_error why = { "" };

	must(l);
	if (cloud_json_read_list(CLOUD_DOC_SANDBOX, p, n, 1000, add, l, &why) < 0)
		must(why.text[0] && str_is_utf8(why.text, strlen(why.text)));
	for (size_t i = 0; i < l->n; i++)
		check_sandbox(l->v[i]);
}

/* What can be read can be written, and reading that gives the same document again. */
static void try_doc(enum cloud_doc_id doc, const uint8_t *p, size_t n)
{
	static const unsigned all = CLOUD_CREATED | CLOUD_LISTED | CLOUD_DETAIL | CLOUD_EGRESS | CLOUD_INGRESS | CLOUD_PASSWORD;
	union {
		struct cloud_sandbox sandbox;
		struct cloud_create create;
		struct cloud_egress egress;
		struct cloud_metric metric;
		struct cloud_error error;
		char any[1024];
	} a, b;
	struct cloud_json_error why = { "" };
	char *first, *second;
	int r;

	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	if (cloud_json_read(doc, p, n, n % 2 ? CLOUD_JSON_REQUEST : 0, &a, &why) < 0) {
		must(why.text[0] && str_is_utf8(why.text, strlen(why.text)));
		return;
	}
	if (doc == CLOUD_DOC_SANDBOX)
		check_sandbox(&a.sandbox);
	first = cloud_json_text(doc, &a, flavour_get(FLAVOUR_E2B), all, &r);
	if (first && cloud_json_read(doc, first, strlen(first), CLOUD_JSON_REQUEST, &b, &why) == 0) {
		second = cloud_json_text(doc, &b, flavour_get(FLAVOUR_E2B), all, &r);
		must(second && str_eq(first, second));
		free(second);
	}
	free(first);
	cloud_doc_fini(doc, &a);
	cloud_doc_fini(doc, &b);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct cloud_error_body b;
	bool is_error;

	if (!n)
		return 0;
	switch (*p % 5) {
	case 0:
		try_doc(CLOUD_DOC_SANDBOX, p + 1, n - 1);
		break;
	case 1:
		try_list(p + 1, n - 1);
		break;
	case 2:
		cloud_error_read(p + 1, n - 1, &b);
		must(memchr(b.message, 0, sizeof(b.message)) && memchr(b.code_name, 0, sizeof(b.code_name)));
		break;
	case 3:
		(void)!cloud_error_read_end(p + 1, n - 1, &is_error, &b);
		break;
	default:
		try_doc((enum cloud_doc_id)(*p / 5 % CLOUD_DOCS), p + 1, n - 1);
	}
	return 0;
}
