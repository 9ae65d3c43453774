/* SPDX-License-Identifier: MIT */
#include "daemon/common/http/reply.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/str.h"
#include "proto/wire/h2.h"

void reply_abort(struct http_stream *x)
{
	http_stream_reset(x, H2_INTERNAL_ERROR);
	http_stream_detach(x);
}

const char *reply_request(const struct http_stream *x, const char *name)
{
	const struct fields *head = http_stream_head(x);

	return head ? fields_get(head, name) : NULL;
}

const char *reply_request_any(const struct http_stream *x, enum flavour_header which)
{
	const char *value = NULL;

	for (unsigned i = 0; i < FLAVOURS && !value; i++)
		value = reply_request(x, flavour_get((enum flavour_id)i)->headers[which]);
	return value;
}

bool reply_is_secret(const char *value, const char *secret)
{
	return value && str_eq_secret(value, strlen(value), secret, strlen(secret));
}

bool reply_request_has(const struct http_stream *x, const char *name, const char *secret)
{
	return reply_is_secret(reply_request(x, name), secret);
}

int reply_add_cors(const struct http_stream *x, struct fields *head)
{
	int r;

	if (!reply_request(x, "origin"))
		return 0;
	r = fields_put(head, "access-control-allow-origin", "*");
	if (!r)
		r = fields_put(head, "access-control-expose-headers",
			       "X-Next-Token, X-Total-Running, RateLimit-Limit, RateLimit-Remaining, "
			       "RateLimit-Reset, Retry-After");
	return r;
}

static int head_fill(const struct http_stream *x, struct fields *head, unsigned status,
		     const char *type, const struct fields *extra, size_t n, bool has_body)
{
	int r = fields_printf(head, ":status", "%u", status);

	if (!r && has_body && type)
		r = fields_put(head, "content-type", type);
	if (!r && has_body)
		r = fields_printf(head, "content-length", "%zu", n);
	if (!r)
		r = reply_add_cors(x, head);
	for (uint32_t i = 0; extra && i < extra->n && !r; i++)
		r = fields_put(head, fields_name(extra, i), fields_value(extra, i));
	return r;
}

void reply_send(struct http_stream *x, unsigned status, const char *type,
		const struct fields *extra, const void *body, size_t n)
{
	scoped(fields_fini) struct fields head = FIELDS_NULL;
	const char *method = reply_request(x, ":method");
	bool has_body = status != 204 && status != 304;
	bool end = !has_body || !n || (method && str_eq(method, "HEAD"));
	int r = head_fill(x, &head, status, type, extra, n, has_body);

	if (!r)
		r = http_stream_respond(x, &head, end);
	if (!r && !end)
		r = http_stream_write(x, body, n);
	if (!r && !end)
		r = http_stream_finish(x, NULL);
	if (r < 0)
		reply_abort(x);
	else
		http_stream_detach(x);
}

void reply_text(struct http_stream *x, unsigned status, const char *text)
{
	scoped(fields_fini) struct fields extra = FIELDS_NULL;
	char body[512];		/* the longest says which rule of [access] refuses somebody */
	int n = snprintf(body, sizeof(body), "%s\n", text);

	if (fields_put(&extra, "x-content-type-options", "nosniff") < 0 || n < 0 ||
	    (size_t)n >= sizeof(body))
		reply_abort(x);
	else
		reply_send(x, status, REPLY_TEXT, &extra, body, (size_t)n);
}

void reply_envd_error(struct http_stream *x, unsigned status, const char *fmt, ...)
{
	scoped(fields_fini) struct fields extra = FIELDS_NULL;
	json_auto_t *o = NULL;
	char text[512], *body = NULL, *line = NULL;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!str_is_utf8(text, strlen(text)))
		str_copy(text, sizeof(text), "the path is not UTF-8");
	o = json_pack("{s:i, s:s}", "code", (int)status, "message", text);
	body = o ? json_dumps(o, JSON_COMPACT) : NULL;
	line = body ? str_printf("%s\n", body) : NULL;
	if (!line || fields_put(&extra, "x-content-type-options", "nosniff") < 0)
		reply_abort(x);
	else
		reply_send(x, status, REPLY_JSON, &extra, line, strlen(line));
	free(body);
	free(line);
}

bool reply_preflight(struct http_stream *x)
{
	scoped(fields_fini) struct fields extra = FIELDS_NULL;
	const char *method = reply_request(x, ":method");
	const char *headers = reply_request(x, "access-control-request-headers");
	int r;

	if (!method || !str_eq(method, "OPTIONS") || !reply_request(x, "origin") ||
	    !reply_request(x, "access-control-request-method"))
		return false;
	r = fields_put(&extra, "access-control-allow-methods",
		       "GET, HEAD, POST, PUT, PATCH, DELETE");
	if (!r && headers)
		r = fields_put(&extra, "access-control-allow-headers", headers);
	if (!r)
		r = fields_put(&extra, "access-control-max-age", "7200");
	if (r < 0)
		reply_abort(x);
	else
		reply_send(x, 204, NULL, &extra, NULL, 0);
	return true;
}
