/* SPDX-License-Identifier: MIT */
#include "daemon/common/http/answer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "proto/base/str.h"
#include "proto/cloud/error.h"

/* --- requests --- */

static bool takes_no_body(enum cloud_route to)
{
	const struct cloud_route_info *i = cloud_route_info(to);

	return !(i->flags & ROUTE_BODY) && (str_eq(i->method, "GET") || str_eq(i->method, "DELETE"));
}

int answer_read_body(enum cloud_route to, const char *content_type, const void *p, size_t n, json_t **ret,
		     char ret_why[ANSWER_WHY_MAX])
{
	const char *why = NULL;
	json_error_t e;

	*ret = NULL;
	if (!n && cloud_route_info(to)->flags & ROUTE_BODY) {
		why = "request body has an error: value is required but missing";
	} else if (!n || takes_no_body(to)) {
		return 0;	/* what no call reads is no error in it */
	} else if (!content_type || strncasecmp(content_type, "application/json", 16) != 0) {
		why = "header Content-Type must be application/json";
	} else {
		*ret = json_loadb(p, n, 0, &e);
		if (json_is_object(*ret))
			return 0;
	}
	if (why)
		snprintf(ret_why, ANSWER_WHY_MAX, "validation error: %s", why);
	else
		snprintf(ret_why, ANSWER_WHY_MAX, "validation error: request body has an error: %s",
			 *ret ? "it must be an object" : e.text);
	json_decref(*ret);
	*ret = NULL;
	return -EINVAL;
}

/* --- errors --- */

char *answer_error(unsigned status, const char *error_code, const struct flavour *f, const char *prefix, const char *fmt,
		   va_list ap)
{
	scoped(buf_fini) struct buf out = BUF_NULL;
	char text[400];
	size_t n = (size_t)snprintf(text, sizeof(text), "%s", prefix);

	vsnprintf(text + n, sizeof(text) - n, fmt, ap);
	/* A cut may have gone through a character. */
	for (n = strlen(text); n && !str_is_utf8(text, n); n--)
		text[n - 1] = 0;
	return cloud_error_write(status, error_code, text, f, &out) == 0 ? buf_take_str(&out) : NULL;
}

/* --- lists --- */

void doc_list_begin(struct doc_list *l, const struct flavour *f, const char *key)
{
	*l = (struct doc_list){ .flavour = f, .key = key };
	buf_init(&l->out, 0);
	l->e = key ? buf_printf(&l->out, "{\"%s\":{", key) : buf_put_str(&l->out, "[");
}

void doc_list_add(struct doc_list *l, const char *name, enum cloud_doc_id doc, const void *v, unsigned part)
{
	if (!l->e && l->has_some)
		l->e = buf_put_str(&l->out, ",");
	l->has_some = true;
	if (!l->e && l->key)
		l->e = buf_put_json(&l->out, name);
	if (!l->e && l->key)
		l->e = buf_put_str(&l->out, ":");
	if (!l->e)
		l->e = cloud_json_write(doc, v, l->flavour, part, &l->out);
}

char *doc_list_take(struct doc_list *l)
{
	char *text = NULL;

	if (!l->e)
		l->e = buf_put_str(&l->out, l->key ? "}}" : "]");
	if (!l->e)
		text = buf_take_str(&l->out);
	doc_list_fini(l);
	return text;
}

void doc_list_fini(struct doc_list *l)
{
	buf_fini(&l->out);
}
