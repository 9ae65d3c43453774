/* SPDX-License-Identifier: MIT */
/*
 * Reading heads. A head is taken line by line: a line is judged only once its end is there, and the
 * limits are checked in the same order for whole and for partial lines, so the cut of the input
 * cannot matter. Bodies are in http1_body.c, writers in http1_write.c.
 */
#include "proto/wire/http1.h"

#include <errno.h>
#include <string.h>

#include "proto/base/str.h"
#include "proto/wire/http1_chars.h"

#define METHOD_MAX   32u
#define LINE_EXTRA   (METHOD_MAX + 32u) /* of a request line, beside its target */
#define AUTHORITY_AT 2u			/* its place among the pseudo fields of a request */
#define FIELDS_SLACK 8192u		/* HPACK's 32 bytes a field, which the wire does not have */
#define LENGTH_MAX   (UINT64_MAX >> 1)

static const uint8_t char_class[256] = {
	/* clang-format off */
	['!'] = 3, ['#'] = 5, ['$'] = 3, ['%'] = 3, ['&'] = 3, ['\''] = 3, ['*'] = 3, ['+'] = 3,
	['-'] = 3, ['.'] = 3, ['^'] = 3, ['_'] = 3, ['`'] = 3, ['|'] = 3, ['~'] = 3,
	['0' ... '9'] = 3, ['A' ... 'Z'] = 3, ['a' ... 'z'] = 3,
	['"'] = 2, ['('] = 2, [')'] = 2, [','] = 2, ['/'] = 2, [':'] = 2, [';'] = 2, ['<'] = 2,
	['='] = 2, ['>'] = 2, ['?'] = 2, ['@'] = 2, ['['] = 2, ['\\'] = 2, [']'] = 2, ['{'] = 2,
	['}'] = 2,
	[' '] = 4, ['\t'] = 4, [0x80 ... 0xff] = 4,
	/* clang-format on */
};

#define CLASS_TOKEN  1u
#define CLASS_TARGET 2u
#define CLASS_VALUE  4u /* beyond token and target characters */

bool http1_is_token(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!(char_class[p[i]] & CLASS_TOKEN))
			return false;
	return n > 0;
}

bool http1_is_value(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!char_class[p[i]])
			return false;
	return true;
}

static bool is_target(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!(char_class[p[i]] & CLASS_TARGET))
			return false;
	return n > 0;
}

/* host[:port], where host is a name, an IPv4 address or [IPv6]. */
static bool is_authority(const uint8_t *p, size_t n)
{
	size_t i = 0;

	if (n && p[0] == '[') {
		const uint8_t *end = memchr(p, ']', n);

		if (!end)
			return false;
		for (i = 1; p + i < end; i++)
			if (!memchr("0123456789abcdefABCDEF:.", p[i], 24))
				return false;
		if (i < 3)
			return false;
		i++;
	} else {
		for (; i < n && p[i] != ':'; i++)
			if (!(char_class[p[i]] & CLASS_TOKEN ? !memchr("#^`|", p[i], 4)
							     : !!memchr("(),;=", p[i], 5)))
				return false;
		if (!i)
			return false;
	}
	if (i == n)
		return true;
	if (p[i] != ':' || n - i > 6)
		return false;
	for (i++; i < n; i++)
		if (p[i] < '0' || p[i] > '9')
			return false;
	return true;
}

unsigned http1_result_status(enum http1_result r)
{
	switch (r) {
	case HTTP1_DONE:
	case HTTP1_MORE:
		return 0;
	case HTTP1_BAD:
		return 400;
	case HTTP1_TARGET_TOO_LONG:
		return 414;
	case HTTP1_TOO_LARGE:
		return 431;
	case HTTP1_NOT_SUPPORTED:
		return 501;
	case HTTP1_VERSION:
		return 505;
	case HTTP1_NO_MEMORY:
		return 503;
	}
	return 500;
}

void http1_head_init_request(struct http1_head *h, bool tls, struct fields *out)
{
	*h = (struct http1_head){ .out = out, .tls = tls };
	fields_clear(out);
	/* The wire's own limits are the ones that bind. */
	out->max_n = HTTP1_FIELDS_MAX + 5;
	out->max_bytes = HTTP1_HEAD_MAX_BYTES + FIELDS_SLACK;
}

void http1_head_init_response(struct http1_head *h, bool to_head, bool to_connect,
			      struct fields *out)
{
	http1_head_init_request(h, false, out);
	h->response = true;
	h->no_body = to_head;
	h->tunnel = to_connect;
}

static enum http1_result http1_put(struct fields *f, const char *name, const void *value, size_t n)
{
	switch (fields_add(f, name, strlen(name), value, n, false)) {
	case 0:
		return HTTP1_MORE;
	case -EMSGSIZE:
		return HTTP1_TOO_LARGE;
	default:
		return HTTP1_NO_MEMORY;
	}
}

/* --- start lines --- */

static enum http1_result version(struct http1_head *h, const uint8_t *p, size_t n)
{
	if (n != 8 || memcmp(p, "HTTP/", 5) || p[5] < '0' || p[5] > '9' || p[6] != '.' ||
	    p[7] < '0' || p[7] > '9')
		return HTTP1_BAD;
	if (p[5] != '1' || p[7] > '1')
		return HTTP1_VERSION;
	h->http10 = p[7] == '0';
	return HTTP1_MORE;
}

/* Splits an absolute target into scheme, authority and path. */
static bool split_absolute(const uint8_t *p, size_t n, size_t *ret_authority, size_t *ret_path)
{
	size_t at, end;

	if (n > 7 && mem_eq_ci(p, 7, "http://"))
		at = 7;
	else if (n > 8 && mem_eq_ci(p, 8, "https://"))
		at = 8;
	else
		return false;
	for (end = at; end < n && p[end] != '/' && p[end] != '?'; end++)
		;
	if (!is_authority(p + at, end - at))
		return false;
	*ret_authority = at;
	*ret_path = end;
	return true;
}

static enum http1_result target(struct http1_head *h, bool options, const uint8_t *p, size_t n)
{
	const char *scheme = h->tls ? "https" : "http";
	size_t authority = 0, path = 0;
	enum http1_result r;

	if (n > HTTP1_TARGET_MAX_BYTES)
		return HTTP1_TARGET_TOO_LONG;
	if (!is_target(p, n))
		return HTTP1_BAD;
	if (p[0] != '/' && !(options && n == 1 && p[0] == '*')) {
		if (!split_absolute(p, n, &authority, &path))
			return HTTP1_BAD;
		h->absolute = true;
		scheme = authority == 8 ? "https" : "http";
	}
	r = http1_put(h->out, ":scheme", scheme, strlen(scheme));
	if (r == HTTP1_MORE)	/* Host fills it in when the target does not */
		r = http1_put(h->out, ":authority", p + authority, path - authority);
	if (r != HTTP1_MORE)
		return r;
	if (path == n)
		return options ? http1_put(h->out, ":path", "*", 1)
			       : http1_put(h->out, ":path", "/", 1);
	if (p[path] == '?') {	/* http://host?query: the path is "/" */
		char whole[HTTP1_TARGET_MAX_BYTES + 1];

		whole[0] = '/';
		memcpy(whole + 1, p + path, n - path);
		return http1_put(h->out, ":path", whole, n - path + 1);
	}
	return http1_put(h->out, ":path", p + path, n - path);
}

static enum http1_result request_line(struct http1_head *h, const uint8_t *p, size_t n)
{
	const uint8_t *sp = memchr(p, ' ', n), *sp2;
	enum http1_result r;
	size_t n_method;

	if (!sp)
		return HTTP1_BAD;
	n_method = (size_t)(sp - p);
	if (n_method > METHOD_MAX || !http1_is_token(p, n_method))
		return HTTP1_BAD;
	sp++;
	sp2 = memchr(sp, ' ', (size_t)(p + n - sp));
	if (!sp2)
		return HTTP1_BAD;
	r = version(h, sp2 + 1, (size_t)(p + n - sp2 - 1));
	if (r != HTTP1_MORE)
		return r;
	if (n_method == 7 && !memcmp(p, "CONNECT", 7))
		return HTTP1_NOT_SUPPORTED;
	r = http1_put(h->out, ":method", p, n_method);
	if (r != HTTP1_MORE)
		return r;
	return target(h, n_method == 7 && !memcmp(p, "OPTIONS", 7), sp, (size_t)(sp2 - sp));
}

static enum http1_result status_line(struct http1_head *h, const uint8_t *p, size_t n)
{
	enum http1_result r;

	if (n < 12 || p[8] != ' ' || (n > 12 && p[12] != ' ') || !http1_is_value(p, n))
		return HTTP1_BAD;
	r = version(h, p, 8);
	if (r != HTTP1_MORE)
		return r;
	for (size_t i = 9; i < 12; i++) {
		if (p[i] < '0' || p[i] > '9')
			return HTTP1_BAD;
		h->status = h->status * 10 + (p[i] - '0');
	}
	if (h->status < 100)
		return HTTP1_BAD;
	return http1_put(h->out, ":status", p + 9, 3);
}

/* --- fields --- */

/* Host fills the place kept for ":authority"; with an absolute target it only has to be there. */
static enum http1_result host_field(struct http1_head *h)
{
	struct fields *f = h->out;
	const struct field *v = &f->v[f->n - 1];

	if (h->has_host || !is_authority((const uint8_t *)f->text + v->value_at, v->value_len))
		return HTTP1_BAD;
	h->has_host = true;
	if (!h->absolute) {
		f->v[AUTHORITY_AT].value_at = v->value_at;
		f->v[AUTHORITY_AT].value_len = v->value_len;
		f->bytes += v->value_len;
	}
	f->bytes -= v->name_len + v->value_len + 32;
	f->n--;
	return HTTP1_MORE;
}

static void connection_field(struct http1_head *h, const char *s, size_t n)
{
	size_t at = 0;

	while (at < n) {
		size_t end = at, stop;

		while (end < n && s[end] != ',')
			end++;
		stop = end;
		while (at < stop && (s[at] == ' ' || s[at] == '\t'))
			at++;
		while (stop > at && (s[stop - 1] == ' ' || s[stop - 1] == '\t'))
			stop--;
		if (mem_eq_ci(s + at, stop - at, "close"))
			h->conn_close = true;
		else if (mem_eq_ci(s + at, stop - at, "keep-alive"))
			h->conn_keep_alive = true;
		at = end + 1;
	}
}

static enum http1_result known_field(struct http1_head *h, const char *name, const char *s, size_t n)
{
	if (str_eq(name, "content-length")) {
		if (h->has_length || str_u64(s, n, LENGTH_MAX, &h->length) < 0)
			return HTTP1_BAD;
		h->has_length = true;
	} else if (str_eq(name, "transfer-encoding")) {
		if (h->has_te)
			return HTTP1_BAD;
		h->has_te = true;
		if (!mem_eq_ci(s, n, "chunked"))
			return HTTP1_NOT_SUPPORTED;
	} else if (str_eq(name, "connection")) {
		connection_field(h, s, n);
	} else if (str_eq(name, "expect")) {
		h->expect_continue = mem_eq_ci(s, n, "100-continue");
	} else if (str_eq(name, "host") && !h->response) {
		return host_field(h);
	}
	return HTTP1_MORE;
}

enum http1_result http1_field_line(struct fields *out, const uint8_t *p, size_t n)
{
	const uint8_t *colon = memchr(p, ':', n), *end = p + n, *value;
	int r;

	if (!colon || !http1_is_token(p, (size_t)(colon - p)))
		return HTTP1_BAD;
	for (value = colon + 1; value < end && (*value == ' ' || *value == '\t'); value++)
		;
	while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	if (!http1_is_value(value, (size_t)(end - value)))
		return HTTP1_BAD;
	r = fields_add(out, (const char *)p, (size_t)(colon - p), (const char *)value,
		       (size_t)(end - value), false);
	if (r < 0)
		return r == -EMSGSIZE ? HTTP1_TOO_LARGE : HTTP1_NO_MEMORY;
	str_lower(out->text + out->v[out->n - 1].name_at);
	return HTTP1_MORE;
}

static bool is_secret(const char *name)
{
	static const char *const names[] = { "authorization", "cookie",	  "proxy-authorization",
					     "set-cookie",    "x-api-key" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (str_eq(name, names[i]))
			return true;
	return str_starts(name, "x-") && strstr(name, "token");
}

static enum http1_result field(struct http1_head *h, const uint8_t *p, size_t n)
{
	struct fields *f = h->out;
	enum http1_result r;
	uint32_t i = f->n;

	if (++h->n_fields > HTTP1_FIELDS_MAX)
		return HTTP1_TOO_LARGE;
	r = http1_field_line(f, p, n);
	if (r != HTTP1_MORE)
		return r;
	f->v[i].secret = is_secret(fields_name(f, i));
	f->has_secret |= f->v[i].secret;
	return known_field(h, fields_name(f, i), fields_value(f, i), f->v[i].value_len);
}

/* --- the end of a head --- */

static enum http1_result http1_finish(struct http1_head *h)
{
	struct fields *f = h->out;

	if (h->has_te && (h->has_length || h->http10))
		return HTTP1_BAD;
	if (!h->response && !h->has_host && !h->http10)
		return HTTP1_BAD;
	if (!h->response && !h->has_host && !h->absolute) {
		memmove(f->v + AUTHORITY_AT, f->v + AUTHORITY_AT + 1,
			(f->n - AUTHORITY_AT - 1) * sizeof(*f->v));
		f->n--;
		f->bytes -= (uint32_t)strlen(":authority") + 32;
	}
	h->interim = h->response && h->status < 200;
	/* These never have a body (RFC 9110 §8.6); one that is promised would be read by somebody. */
	if ((h->interim || (h->response && h->status == 204)) && (h->has_te || h->length))
		return HTTP1_BAD;
	h->keep_alive = !h->conn_close && (!h->http10 || h->conn_keep_alive);
	h->expect_continue = h->expect_continue && !h->http10;
	if (h->response && (h->no_body || h->interim || h->status == 204 || h->status == 304 ||
			    (h->tunnel && h->status < 300)))
		h->framing = HTTP1_BODY_NONE;
	else if (h->has_te)
		h->framing = HTTP1_BODY_CHUNKED;
	else if (h->has_length)
		h->framing = h->length ? HTTP1_BODY_LENGTH : HTTP1_BODY_NONE;
	else
		h->framing = h->response ? HTTP1_BODY_UNTIL_CLOSE : HTTP1_BODY_NONE;
	if (h->framing == HTTP1_BODY_UNTIL_CLOSE)
		h->keep_alive = false;
	return HTTP1_DONE;
}

static enum http1_result line(struct http1_head *h, const uint8_t *p, size_t n)
{
	if (h->begun)
		return n ? field(h, p, n) : http1_finish(h);
	if (!n) {
		if (h->response || h->blank_skipped)
			return HTTP1_BAD;
		h->blank_skipped = true;
		return HTTP1_MORE;
	}
	h->begun = true;
	return h->response ? status_line(h, p, n) : request_line(h, p, n);
}

/* What can be said of a line that may not be whole yet. */
static enum http1_result line_limits(const struct http1_head *h, const uint8_t *p, size_t n)
{
	/* A client that speaks something else (TLS, say) is told so at its first byte. */
	if (!h->begun && n && p[0] != '\r' && !(char_class[p[0]] & CLASS_TOKEN))
		return HTTP1_BAD;
	if (!h->begun && !h->response && n > HTTP1_TARGET_MAX_BYTES + LINE_EXTRA)
		return HTTP1_TARGET_TOO_LONG;
	return h->bytes + n > HTTP1_HEAD_MAX_BYTES ? HTTP1_TOO_LARGE : HTTP1_MORE;
}

enum http1_result http1_head_feed(struct http1_head *h, const uint8_t *p, size_t n, size_t *ret_used)
{
	enum http1_result r = HTTP1_MORE;
	size_t at = 0;

	while (r == HTTP1_MORE && at < n) {
		const uint8_t *start = p + at;
		size_t seen = MIN(h->scanned, n - at);
		const uint8_t *lf = memchr(start + seen, '\n', n - at - seen);
		size_t len = lf ? (size_t)(lf - start) + 1 : n - at;

		r = line_limits(h, start, len);
		if (r != HTTP1_MORE)
			break;
		h->scanned = lf ? 0 : (uint32_t)len;
		if (!lf)
			break;
		at += len;
		h->bytes += (uint32_t)len;
		r = len < 2 || start[len - 2] != '\r' ? HTTP1_BAD : line(h, start, len - 2);
	}
	*ret_used = at;
	return r;
}
