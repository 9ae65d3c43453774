/* SPDX-License-Identifier: MIT */
/*
 * One message through the HTTP/1.1 coder: whole and in pieces give the same, and what it accepts
 * Debian's http-parser accepts with the same meaning: method, target, status, body, end. Left out:
 * methods http-parser does not know, fields whose names only begin with "transfer-encoding", which
 * it takes for that field, and tabs around a length, which it refuses. The first byte is the role (1), "to HEAD" (2) and the step.
 */
#include <ctype.h>
#include <http_parser.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/wire/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

struct ours {
	struct fields f;
	struct http1_head h;
	struct http1_body b;
	struct buf body;
	enum http1_result head, end;
	size_t used;
};

static void parse(struct ours *o, bool response, bool to_head, const uint8_t *p, size_t n, size_t step)
{
	size_t have = 0;

	*o = (struct ours){ .head = HTTP1_MORE, .end = HTTP1_MORE };
	if (response)
		http1_head_init_response(&o->h, to_head, false, &o->f);
	else
		http1_head_init_request(&o->h, false, &o->f);
	do {
		size_t used = 1;

		have = MIN(n, have + step);
		if (o->head == HTTP1_MORE) {
			o->head = http1_head_feed(&o->h, p + o->used, have - o->used, &used);
			o->used += used;
			if (o->head == HTTP1_DONE)
				http1_body_init(&o->b, o->h.framing, o->h.length);
			used = 1;
		}
		while (o->head == HTTP1_DONE && o->end == HTTP1_MORE && used) {
			const uint8_t *data;
			size_t n_data;

			o->end = http1_body_feed(&o->b, p + o->used, have - o->used, &used, &data,
						 &n_data);
			must(used <= have - o->used && n_data <= used);
			must(!n_data || (data >= p + o->used && data + n_data <= p + o->used + used));
			o->used += used;
			must(!buf_put(&o->body, data, n_data));
		}
	} while (have < n && (o->head == HTTP1_MORE || (o->head == HTTP1_DONE && o->end == HTTP1_MORE)));
}

static void drop(struct ours *o)
{
	fields_fini(&o->f);
	http1_body_fini(&o->b);
	buf_fini(&o->body);
}

static void same_fields(const struct fields *a, const struct fields *b)
{
	must(a->n == b->n && a->bytes == b->bytes);
	for (uint32_t i = 0; i < a->n; i++) {
		must(str_eq(fields_name(a, i), fields_name(b, i)));
		must(str_eq(fields_value(a, i), fields_value(b, i)));
		must(strlen(fields_value(a, i)) == a->v[i].value_len);
		for (const char *c = fields_name(a, i); *c; c++)
			must(!isupper((unsigned char)*c));
	}
}

struct theirs {
	struct buf url, body;
	bool head, done, to_head;
};

static int on_url(http_parser *hp, const char *at, size_t n)
{
	struct theirs *t = hp->data;

	must(!buf_put(&t->url, at, n));
	return 0;
}

static int on_body(http_parser *hp, const char *at, size_t n)
{
	struct theirs *t = hp->data;

	must(!buf_put(&t->body, at, n));
	return 0;
}

static int on_head(http_parser *hp)
{
	struct theirs *t = hp->data;

	t->head = true;
	return t->to_head || hp->status_code == 304;	/* it leaves 304 to its caller */
}

static int on_done(http_parser *hp)
{
	struct theirs *t = hp->data;

	t->done = true;
	return 0;
}

static void same_target(const struct ours *o, struct buf *url)
{
	const char *path = fields_get(&o->f, ":path"), *at;
	scoped(buf_fini) struct buf copy = *url;
	char *s;

	*url = (struct buf)BUF_NULL;
	s = buf_take_str(&copy);
	must(s);
	at = s;
	if (s[0] != '/' && !str_eq(s, "*")) {
		at = strstr(s, "://") + 3;
		must(!strncmp(at, fields_get(&o->f, ":authority"), strcspn(at, "/?")));
		at += strcspn(at, "/?");
		if (*at == '?')
			must(*path++ == '/');
		if (!*at)
			at = str_eq(fields_get(&o->f, ":method"), "OPTIONS") ? "*" : "/";
	}
	must(str_eq(path, at));
	free(s);
}

static bool is_beyond_oracle(const struct ours *o)
{
	static const char te[] = "transfer-encoding";

	for (uint32_t i = 0; i < o->f.n; i++)
		if (str_starts(fields_name(&o->f, i), te) && o->f.v[i].name_len > sizeof(te) - 1)
			return true;
	return false;
}

static void compare(const struct ours *o, bool response, bool to_head, const uint8_t *p)
{
	static const http_parser_settings settings = { .on_url = on_url,
						       .on_body = on_body,
						       .on_headers_complete = on_head,
						       .on_message_complete = on_done };
	struct theirs t = { .to_head = to_head };
	http_parser hp;

	if (is_beyond_oracle(o))
		return;
	http_parser_init(&hp, response ? HTTP_RESPONSE : HTTP_REQUEST);
	hp.data = &t;
	http_parser_execute(&hp, &settings, (const char *)p, o->used);
	if (HTTP_PARSER_ERRNO(&hp) == HPE_INVALID_METHOD)
		goto out;
	/* A tab is white space around a length (RFC 9110, 5.5), and behind a chunk's size (RFC 9112, 7.1.1). */
	if ((HTTP_PARSER_ERRNO(&hp) == HPE_INVALID_CONTENT_LENGTH || HTTP_PARSER_ERRNO(&hp) == HPE_INVALID_CHUNK_SIZE) &&
	    memchr(p, '\t', o->used))
		goto out;
	must(HTTP_PARSER_ERRNO(&hp) == HPE_OK);
	must(t.head && t.done == (o->end == HTTP1_DONE));
	if (o->h.framing == HTTP1_BODY_UNTIL_CLOSE) {
		http_parser_execute(&hp, &settings, NULL, 0);
		must(t.done);
	}
	must(buf_len(&t.body) == buf_len(&o->body));
	must(!buf_len(&t.body) || !memcmp(buf_data(&t.body), buf_data(&o->body), buf_len(&t.body)));
	if (response) {
		must(hp.status_code == o->h.status);
	} else {
		must(str_eq(http_method_str((enum http_method)hp.method),
			    fields_get(&o->f, ":method")));
		same_target(o, &t.url);
	}
out:
	buf_fini(&t.url);
	buf_fini(&t.body);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct ours whole, cut;
	bool response, to_head;
	size_t step;

	if (!n)
		return 0;
	response = *p & 1;
	to_head = response && *p & 2;
	step = (*p++ >> 2) + 1u;
	n--;
	parse(&whole, response, to_head, p, n, n ? n : 1);
	parse(&cut, response, to_head, p, n, step);
	must(whole.head == cut.head && whole.end == cut.end);
	if (whole.head == HTTP1_DONE) {
		same_fields(&whole.f, &cut.f);
		must(whole.h.framing == cut.h.framing && whole.h.keep_alive == cut.h.keep_alive);
		must(buf_len(&whole.body) == buf_len(&cut.body));
		if (whole.end == HTTP1_DONE || whole.end == HTTP1_MORE) {
			must(whole.used == cut.used);
			same_fields(&whole.b.trailers, &cut.b.trailers);
			compare(&whole, response, to_head, p);
		}
	}
	drop(&whole);
	drop(&cut);
	return 0;
}
