/* SPDX-License-Identifier: MIT */
/* Reading bodies: by length, in chunks, until the end of the connection. */
#include "proto/wire/http1.h"

#include <string.h>

#include "proto/base/str.h"
#include "proto/wire/http1_chars.h"

#define CHUNK_DIGITS_MAX 16u

enum chunk_state {
	CHUNK_SIZE = 0,		/* digits */
	CHUNK_SPACE,		/* after them, before ";" */
	CHUNK_EXT,
	CHUNK_SIZE_LF,
	CHUNK_DATA,
	CHUNK_DATA_CR,
	CHUNK_DATA_LF,
	CHUNK_TRAILERS,
};

void http1_body_init(struct http1_body *b, enum http1_framing framing, uint64_t length)
{
	*b = (struct http1_body){ .framing = framing, .left = length };
	b->trailers.max_n = HTTP1_TRAILERS_MAX;
	b->trailers.max_bytes = HTTP1_TRAILER_MAX_BYTES + 32 * HTTP1_TRAILERS_MAX;
	if (framing == HTTP1_BODY_CHUNKED)
		b->left = 0;
}

void http1_body_fini(struct http1_body *b)
{
	fields_fini(&b->trailers);
}

/* One byte of "1a2b ; name=value\r\n". MORE = taken. */
static enum http1_result size_byte(struct http1_body *b, uint8_t c)
{
	int v = b->state == CHUNK_SIZE ? str_hex_value((char)c) : -1;

	if (b->state == CHUNK_SIZE_LF) {
		b->state = b->left ? CHUNK_DATA : CHUNK_TRAILERS;
		return c == '\n' ? HTTP1_MORE : HTTP1_BAD;
	}
	if (v >= 0) {
		if (++b->digits > CHUNK_DIGITS_MAX || b->left >> 59)
			return HTTP1_BAD;
		b->left = b->left << 4 | (unsigned)v;
		return HTTP1_MORE;
	}
	if (!b->digits)
		return HTTP1_BAD;
	if (c == '\r' && b->state != CHUNK_SPACE) {
		b->state = CHUNK_SIZE_LF;
		return HTTP1_MORE;
	}
	if (++b->ext_bytes > HTTP1_CHUNK_EXT_MAX || !http1_is_value(&c, 1))
		return HTTP1_BAD;
	if (b->state != CHUNK_EXT) {
		if (c == ';')
			b->state = CHUNK_EXT;
		else if (c == ' ' || c == '\t')
			b->state = CHUNK_SPACE;
		else
			return HTTP1_BAD;
	}
	return HTTP1_MORE;
}

/* A trailer must not change what the head said about the message (RFC 9110 §6.5.1). */
static bool is_forbidden_trailer(const char *name)
{
	static const char *const names[] = { "content-length", "transfer-encoding", "host",
					     "connection",     "trailer",	    "te",
					     "upgrade",	       "expect",	    "authorization",
					     "content-encoding", "content-type",    "content-range" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (str_eq(name, names[i]))
			return true;
	return false;
}

static enum http1_result trailer_line(struct http1_body *b, const uint8_t *p, size_t n)
{
	enum http1_result r;

	if (!n)
		return HTTP1_DONE;
	if (++b->n_trailers > HTTP1_TRAILERS_MAX)
		return HTTP1_TOO_LARGE;
	r = http1_field_line(&b->trailers, p, n);
	if (r == HTTP1_MORE && is_forbidden_trailer(fields_name(&b->trailers, b->trailers.n - 1)))
		r = HTTP1_BAD;
	return r;
}

static enum http1_result trailers(struct http1_body *b, const uint8_t *p, size_t n, size_t *ret_used)
{
	size_t at = 0;

	while (at < n) {
		size_t seen = MIN(b->scanned, n - at);
		const uint8_t *lf = memchr(p + at + seen, '\n', n - at - seen);
		size_t len = lf ? (size_t)(lf - p) + 1 - at : n - at;
		enum http1_result r;

		if (b->trailer_bytes + len > HTTP1_TRAILER_MAX_BYTES)
			return HTTP1_TOO_LARGE;
		b->scanned = lf ? 0 : (uint32_t)len;
		if (!lf)
			break;
		b->trailer_bytes += (uint32_t)len;
		r = len < 2 || p[at + len - 2] != '\r' ? HTTP1_BAD
						       : trailer_line(b, p + at, len - 2);
		at += len;
		*ret_used = at;
		if (r != HTTP1_MORE)
			return r;
	}
	return HTTP1_MORE;
}

static enum http1_result chunked(struct http1_body *b, const uint8_t *p, size_t n, size_t *ret_used,
				 const uint8_t **ret_data, size_t *ret_n)
{
	enum http1_result r = HTTP1_MORE;
	size_t at = 0;

	while (at < n && r == HTTP1_MORE && b->state != CHUNK_TRAILERS) {
		if (b->state == CHUNK_DATA) {
			size_t take = MIN(n - at, b->left);

			*ret_data = p + at;
			*ret_n = take;
			b->left -= take;
			at += take;
			if (!b->left)
				b->state = CHUNK_DATA_CR;
			break;
		}
		if (b->state == CHUNK_DATA_CR) {
			r = p[at] == '\r' ? HTTP1_MORE : HTTP1_BAD;
			b->state = CHUNK_DATA_LF;
		} else if (b->state == CHUNK_DATA_LF) {
			r = p[at] == '\n' ? HTTP1_MORE : HTTP1_BAD;
			b->state = CHUNK_SIZE;
			b->digits = 0;
		} else {
			r = size_byte(b, p[at]);
		}
		at++;
	}
	*ret_used = at;
	if (r == HTTP1_MORE && b->state == CHUNK_TRAILERS) {
		size_t used = 0;

		r = trailers(b, p + at, n - at, &used);
		*ret_used = at + used;
	}
	return r;
}

enum http1_result http1_body_feed(struct http1_body *b, const uint8_t *p, size_t n,
				  size_t *ret_used, const uint8_t **ret_data, size_t *ret_n)
{
	size_t take = n;

	*ret_used = 0;
	*ret_data = p;
	*ret_n = 0;
	switch (b->framing) {
	case HTTP1_BODY_NONE:
		return HTTP1_DONE;
	case HTTP1_BODY_CHUNKED:
		return chunked(b, p, n, ret_used, ret_data, ret_n);
	case HTTP1_BODY_LENGTH:
		take = MIN(n, b->left);
		b->left -= take;
		break;
	case HTTP1_BODY_UNTIL_CLOSE:
		b->left = 1;
		break;
	}
	*ret_used = *ret_n = take;
	return b->left ? HTTP1_MORE : HTTP1_DONE;
}
