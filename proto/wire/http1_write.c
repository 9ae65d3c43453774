/* SPDX-License-Identifier: MIT */
/* Writing heads and chunk framing. Nothing that could break a line is ever written. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/str.h"
#include "proto/wire/http1.h"
#include "proto/wire/http1_chars.h"

const char *http1_reason(unsigned status)
{
	static const struct {
		unsigned status;
		const char *text;
	} t[] = {
		{ 100, "Continue" },
		{ 101, "Switching Protocols" },
		{ 102, "Processing" },
		{ 103, "Early Hints" },
		{ 200, "OK" },
		{ 201, "Created" },
		{ 202, "Accepted" },
		{ 204, "No Content" },
		{ 206, "Partial Content" },
		{ 301, "Moved Permanently" },
		{ 302, "Found" },
		{ 304, "Not Modified" },
		{ 307, "Temporary Redirect" },
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 408, "Request Timeout" },
		{ 409, "Conflict" },
		{ 411, "Length Required" },
		{ 413, "Content Too Large" },
		{ 414, "URI Too Long" },
		{ 415, "Unsupported Media Type" },
		{ 416, "Range Not Satisfiable" },
		{ 417, "Expectation Failed" },
		{ 421, "Misdirected Request" },
		{ 429, "Too Many Requests" },
		{ 431, "Request Header Fields Too Large" },
		{ 500, "Internal Server Error" },
		{ 501, "Not Implemented" },
		{ 502, "Bad Gateway" },
		{ 503, "Service Unavailable" },
		{ 504, "Gateway Timeout" },
		{ 505, "HTTP Version Not Supported" },
		{ 507, "Insufficient Storage" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		if (t[i].status == status)
			return t[i].text;
	return "";
}

static bool is_ours(const char *name)
{
	static const char *const names[] = { "connection",	 "keep-alive", "proxy-connection",
					     "transfer-encoding", "upgrade",	"te" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (str_eq(name, names[i]))
			return true;
	return false;
}

/* Everything is checked and measured first, so that a head is appended whole or not at all. */
static int check_fields(const struct fields *f, size_t *ret_bytes)
{
	size_t n = 0;

	for (uint32_t i = 0; i < f->n; i++) {
		const struct field *v = &f->v[i];
		const uint8_t *name = (const uint8_t *)fields_name(f, i);

		if (!http1_is_value((const uint8_t *)fields_value(f, i), v->value_len))
			return -EINVAL;
		if (name[0] == ':' ? v->name_len < 2 : !http1_is_token(name, v->name_len))
			return -EINVAL;
		n += v->name_len + v->value_len + 4;
	}
	*ret_bytes = n;
	return 0;
}

static char *copy(char *at, const void *p, size_t n)
{
	memcpy(at, p, n);
	return at + n;
}

static char *copy_str(char *at, const char *s)
{
	return copy(at, s, strlen(s));
}

static char *write_fields(char *at, const struct fields *f)
{
	for (uint32_t i = 0; i < f->n; i++) {
		const char *name = fields_name(f, i);

		if (name[0] == ':' || is_ours(name))
			continue;
		at = copy(at, name, f->v[i].name_len);
		at = copy(at, ": ", 2);
		at = copy(at, fields_value(f, i), f->v[i].value_len);
		at = copy(at, "\r\n", 2);
	}
	return at;
}

static char *write_framing(char *at, const struct http1_write *w)
{
	if (w->framing == HTTP1_BODY_CHUNKED)
		at = copy_str(at, "transfer-encoding: chunked\r\n");
	else if (w->add_length)
		at += snprintf(at, 48, "content-length: %llu\r\n", (unsigned long long)w->length);
	if (w->upgrade) {
		/* Its room is that of the field it comes from. */
		at = copy_str(at, "connection: Upgrade\r\nupgrade: ");
		at = copy_str(at, w->upgrade);
		at = copy_str(at, "\r\n");
	} else if (w->close) {
		at = copy_str(at, "connection: close\r\n");
	} else if (w->keep_alive) {
		at = copy_str(at, "connection: keep-alive\r\n");
	}
	return copy(at, "\r\n", 2);
}

/* The names of the lines from `s` on, as Go's and most other programs write them. */
static void title_names(char *s, const char *end)
{
	bool in_name = true, first = true;

	for (; s < end; s++) {
		if (*s == '\n') {
			in_name = first = true;
			continue;
		}
		if (*s == ':')
			in_name = false;
		if (in_name && first && *s >= 'a' && *s <= 'z')
			*s = (char)(*s - 'a' + 'A');
		first = *s == '-';
	}
}

#define FRAMING_MAX_BYTES 192u

/* Where these fields, which may be NULL, and `more` bytes are written. */
static int reserve_head(struct buf *out, const struct fields *f, size_t more, char **ret)
{
	size_t n = 0;
	int r = f ? check_fields(f, &n) : 0;

	if (r < 0)
		return r;
	if (n + more > buf_room(out))
		return -ENOBUFS;
	*ret = (char *)buf_space(out, n + more);
	return *ret ? 0 : -ENOMEM;
}

/* What was written from `start` to `end` is the head; its names begin at `names`. */
static void written(struct buf *out, const char *start, char *names, char *end, bool title)
{
	if (title)
		title_names(names, end);
	buf_added(out, (size_t)(end - start));
}

int http1_write_request(struct buf *out, const struct fields *head, const struct http1_write *w)
{
	const char *method = fields_get(head, ":method"), *path = fields_get(head, ":path");
	const char *authority = fields_get(head, ":authority");
	char *at, *start, *names;
	int r;

	if (!method || !path || !authority || !http1_is_token((const uint8_t *)method, strlen(method)) ||
	    !*path || strchr(path, ' ') || strchr(path, '\t') || strchr(authority, ' '))
		return -EINVAL;
	r = reserve_head(out, head, FRAMING_MAX_BYTES, &start);
	if (r < 0)
		return r;
	at = copy_str(start, method);
	at = copy(at, " ", 1);
	at = copy_str(at, path);
	at = names = copy_str(at, " HTTP/1.1\r\n");
	at = copy_str(at, "host: ");
	at = copy_str(at, authority);
	at = copy(at, "\r\n", 2);
	at = write_fields(at, head);
	written(out, start, names, write_framing(at, w), w->title_names);
	return 0;
}

int http1_write_response(struct buf *out, const struct fields *head, const struct http1_write *w)
{
	const char *status = fields_get(head, ":status");
	uint64_t code;
	char *at, *start, *names;
	int r;

	if (!status || strlen(status) != 3 || str_u64(status, 3, 999, &code) < 0 || code < 100)
		return -EINVAL;
	r = reserve_head(out, head, FRAMING_MAX_BYTES, &start);
	if (r < 0)
		return r;
	at = copy_str(start, "HTTP/1.1 ");
	at = copy_str(at, status);
	at = copy(at, " ", 1);
	at = copy_str(at, http1_reason((unsigned)code));
	at = names = copy(at, "\r\n", 2);
	at = write_fields(at, head);
	if (code < 200 && !w->upgrade)
		at = copy(at, "\r\n", 2);
	else
		at = write_framing(at, w);
	written(out, start, names, at, w->title_names);
	return 0;
}

size_t http1_chunk_head(char ret[HTTP1_CHUNK_HEAD_MAX], size_t n)
{
	return (size_t)snprintf(ret, HTTP1_CHUNK_HEAD_MAX, "%zx\r\n", n);
}

int http1_write_last_chunk(struct buf *out, const struct fields *trailers, bool title)
{
	char *at, *start, *names;
	int r = reserve_head(out, trailers, 8, &start);

	if (r < 0)
		return r;
	at = names = copy(start, "0\r\n", 3);
	if (trailers)
		at = write_fields(at, trailers);
	written(out, start, names, copy(at, "\r\n", 2), title);
	return 0;
}
