/* SPDX-License-Identifier: MIT */
#include "daemon/local/egress/header_rewrite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/local/egress/egrule.h"
#include "daemon/local/egress/sniff.h"
#include "proto/base/str.h"
#include "proto/wire/http1.h"

enum state { IN_HEAD, IN_BODY, IN_TUNNEL };

struct header_rewrite {
	enum state state;
	char host[SNIFF_NAME_MAX + 1];
	struct buf raw;
	struct http1_head head;
	struct fields fields;
	struct http1_body body;
};

int header_rewrite_new(const char *host, size_t max_raw, struct header_rewrite **ret)
{
	struct header_rewrite *h = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	str_copy(h->host, sizeof(h->host), host);
	buf_init(&h->raw, max_raw);
	http1_head_init_request(&h->head, false, &h->fields);
	*ret = h;
	return 0;
}

struct header_rewrite *header_rewrite_free(struct header_rewrite *h)
{
	if (!h)
		return NULL;
	buf_fini(&h->raw);
	fields_fini(&h->fields);
	http1_body_fini(&h->body);
	free(h);
	return NULL;
}

struct buf *header_rewrite_raw(struct header_rewrite *h)
{
	return &h->raw;
}

static bool is_set(const struct egrule_header *v, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (str_eq(v[i].name, name) || (str_eq(v[i].name, "host") && str_eq(name, ":authority")))
			return true;
	return false;
}

/* The head as it goes out. */
static int set_headers(const struct fields *in, const struct egrule_header *v, size_t n, struct fields *out)
{
	int r = 0;

	/* Pseudo fields come first. */
	for (size_t i = 0; i < n && r == 0; i++)
		if (str_eq(v[i].name, "host"))
			r = fields_put(out, ":authority", v[i].value);
	for (uint32_t i = 0; i < in->n && r == 0; i++)
		if (!is_set(v, n, fields_name(in, i)))
			r = fields_put(out, fields_name(in, i), fields_value(in, i));
	for (size_t i = 0; i < n && r == 0; i++)
		if (!str_eq(v[i].name, "host"))
			r = fields_put_secret(out, v[i].name, v[i].value);
	return r;
}

static int header_rewrite_refuse(const char **ret_why, const char *why)
{
	*ret_why = why;
	return -EPROTO;
}

/* Which rules hold for this request. */
static int find_rules(const struct header_rewrite *h, const struct egrule *rules,
		      const struct egrule_header **ret, size_t *ret_n, const char **ret_why)
{
	const char *authority = fields_get(&h->fields, ":authority");
	char host[SNIFF_NAME_MAX + 1];

	*ret_n = 0;
	if (!authority || !sniff_host(authority, host))
		return 0;
	if (!str_eq(host, h->host))
		return egrule_headers(rules, host, ret)
			       ? header_rewrite_refuse(
					 ret_why,
					 "a request for another host on the same connection")
			       : 0;
	*ret_n = egrule_headers(rules, host, ret);
	return 0;
}

static int on_head(struct header_rewrite *h, const struct egrule *rules, struct buf *out,
		   const char **ret_why)
{
	scoped(fields_fini) struct fields fields = FIELDS_NULL;
	struct http1_write w = { .title_names = true, .framing = h->head.framing, .length = h->head.length,
				 .close = !h->head.keep_alive, .upgrade = fields_get(&h->fields, "upgrade") };
	const struct egrule_header *v = NULL;
	size_t n;
	int r;

	if (h->head.http10)
		return header_rewrite_refuse(ret_why, "HTTP/1.0");
	r = find_rules(h, rules, &v, &n, ret_why);
	if (r == 0)
		r = set_headers(&h->fields, v, n, &fields);
	if (r == 0)
		r = http1_write_request(out, &fields, &w);
	if (r < 0)
		return r == -ENOMEM || r == -EPROTO
			       ? r
			       : header_rewrite_refuse(ret_why, "a request that cannot be written");
	/* From an upgrade on it may be anything. */
	h->state = w.upgrade ? IN_TUNNEL : IN_BODY;
	http1_body_init(&h->body, h->head.framing, h->head.length);
	return 0;
}

static void next_request(struct header_rewrite *h)
{
	http1_body_fini(&h->body);
	h->body = (struct http1_body){ 0 };
	fields_clear(&h->fields);
	http1_head_init_request(&h->head, false, &h->fields);
	h->state = IN_HEAD;
}

static int write_run(const struct header_rewrite *h, const uint8_t *p, size_t n, struct buf *out)
{
	char head[HTTP1_CHUNK_HEAD_MAX];
	bool chunked = h->head.framing == HTTP1_BODY_CHUNKED;
	int r = n && chunked ? buf_put(out, head, http1_chunk_head(head, n)) : 0;

	if (r == 0)
		r = buf_put(out, p, n);
	return r == 0 && n && chunked ? buf_put(out, "\r\n", 2) : r;
}

/* 1: something was done; 0: it wants more. */
static int step(struct header_rewrite *h, const struct egrule *rules, struct buf *out,
		const char **ret_why)
{
	const uint8_t *data = NULL;
	size_t used = 0, n = 0;
	enum http1_result s;
	int r;

	if (h->state == IN_TUNNEL) {
		n = buf_len(&h->raw);
		r = buf_put(out, buf_data(&h->raw), n);
		buf_drop(&h->raw, n);
		return r < 0 ? r : n > 0;
	}
	if (h->state == IN_HEAD)
		s = http1_head_feed(&h->head, buf_data(&h->raw), buf_len(&h->raw), &used);
	else
		s = http1_body_feed(&h->body, buf_data(&h->raw), buf_len(&h->raw), &used, &data, &n);
	if (s != HTTP1_DONE && s != HTTP1_MORE)
		return s == HTTP1_NO_MEMORY ? -ENOMEM
					    : header_rewrite_refuse(ret_why, "no HTTP/1.1 request");
	r = h->state == IN_BODY && n ? write_run(h, data, n, out) : 0;
	buf_drop(&h->raw, used);
	if (r < 0 || s == HTTP1_MORE)
		return r < 0 ? r : used > 0;
	if (h->state == IN_HEAD) {
		r = on_head(h, rules, out, ret_why);
		return r < 0 ? r : 1;
	}
	if (h->head.framing == HTTP1_BODY_CHUNKED)
		r = http1_write_last_chunk(out, &h->body.trailers, true);
	next_request(h);
	return r < 0 ? r : 1;
}

int header_rewrite_run(struct header_rewrite *h, const struct egrule *rules, struct buf *out,
		       const char **ret_why)
{
	int r = 1;

	while (r > 0 && buf_len(out) < HEADER_REWRITE_AHEAD)
		r = step(h, rules, out, ret_why);
	return MIN(r, 0);
}
