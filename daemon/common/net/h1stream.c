/* SPDX-License-Identifier: MIT */
/* One HTTP/1.1 exchange: heads, and bytes both ways. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/net/h1_impl.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/wire/h2.h"

static struct h1_stream *http_stream_of(const struct http_stream *x)
{
	return container_of(x, struct h1_stream, x);
}

struct h1_stream *h1_stream_new(struct http_conn *c)
{
	struct h1_stream *x;

	if (quota_take(c->quota, sizeof(*x)) < 0)
		return NULL;
	x = calloc(1, sizeof(*x));
	if (!x) {
		quota_give(c->quota, sizeof(*x));
		return NULL;
	}
	http_stream_init(&x->x, c, &h1_ops);
	list_init(&x->ready);
	x->head.quota = x->trailers.quota = c->quota;
	buf_set_quota(&x->body, c->quota);
	return x;
}

static void http_stream_free(void *p)
{
	struct h1_stream *x = http_stream_of(p);

	fields_fini(&x->head);
	fields_fini(&x->trailers);
	interims_fini(&x->interims);
	buf_fini(&x->body);
	quota_give(x->x.c->quota, sizeof(*x));
	free(x);
}

void h1_stream_destroy(struct h1_stream *x)
{
	list_del(&x->ready);
	http_stream_bury(&x->x, http_stream_free);
}

const struct fields *h1_stream_head(const struct http_stream *x)
{
	return http_stream_of(x)->head_done ? &http_stream_of(x)->head : NULL;
}

const struct fields *h1_stream_trailers(const struct http_stream *x)
{
	return http_stream_of(x)->trailers.n ? &http_stream_of(x)->trailers : NULL;
}

static struct h1 *engine(const struct h1_stream *x)
{
	must(!x->how);
	return h1_of(x->x.c);
}

bool h1_stream_next_interim(struct http_stream *x, struct fields *ret)
{
	return interims_next(&http_stream_of(x)->interims, ret);
}

bool h1_stream_awaits_continue(const struct http_stream *hx)
{
	const struct h1_stream *x = http_stream_of(hx);

	return x->expect && !x->how && !x->responded && !buf_len(&x->body) && !x->ended;
}

size_t h1_stream_peek(struct http_stream *hx, const uint8_t **ret)
{
	static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
	struct h1_stream *x = http_stream_of(hx);

	if (h1_stream_awaits_continue(hx) &&
	    buf_put(&engine(x)->out, text, sizeof(text) - 1) == 0) {
		x->expect = false;
		conn_touch(hx->c);
	}
	*ret = buf_data(&x->body);
	return buf_len(&x->body);
}

size_t h1_stream_buffered(const struct http_stream *x)
{
	return buf_len(&http_stream_of(x)->body);
}

void h1_stream_consume(struct http_stream *hx, size_t n)
{
	struct h1_stream *x = http_stream_of(hx);

	buf_drop(&x->body, n);
	if (!x->how)
		h1_pause(engine(x));
}

bool h1_stream_ended(const struct http_stream *x)
{
	return http_stream_of(x)->ended;
}

bool h1_stream_at_end(const struct http_stream *x)
{
	return http_stream_of(x)->ended && !buf_len(&http_stream_of(x)->body);
}

/* --- sending --- */

static int promised(struct h1_stream *x, const struct fields *head)
{
	const char *s = fields_get(head, "content-length");

	if (!s)
		return 0;
	if (fields_find(head, "content-length", (uint32_t)fields_find(head, "content-length", 0) + 1) >= 0)
		return -EINVAL;
	x->has_left = true;
	return str_u64(s, strlen(s), UINT64_MAX >> 1, &x->left) < 0 ? -EINVAL : 0;
}

int h1_stream_send_request(struct h1 *h, struct h1_stream *x, const struct fields *head, bool end)
{
	struct http1_write w = { .framing = HTTP1_BODY_NONE, .title_names = h->c->title_names };
	const char *method = fields_get(head, ":method");
	int r = promised(x, head);

	if (r < 0)
		return r;
	if (end && x->has_left && x->left)
		return -EINVAL;
	x->chunked = !end && !x->has_left;
	if (x->chunked)
		w.framing = HTTP1_BODY_CHUNKED;
	/* Servers expect a length where a body could have been. */
	else if (end && !x->has_left && method && (str_eq(method, "POST") || str_eq(method, "PUT") ||
						   str_eq(method, "PATCH")))
		w.add_length = true;
	x->to_head = method && str_eq(method, "HEAD");
	if (end)
		w.upgrade = fields_get(head, "upgrade");
	x->can_upgrade = w.upgrade;
	x->finished = end;
	return http1_write_request(&h->out, head, &w);
}

static int send_interim(struct h1 *h, struct h1_stream *x, const struct fields *head,
			const char *status)
{
	struct http1_write w = { .framing = HTTP1_BODY_NONE, .title_names = h->c->title_names };

	if (str_eq(status, "101"))
		return -EINVAL;		/* http_stream_can_upgrade() was false */
	if (str_eq(status, "100"))
		x->expect = false;
	return x->http10 ? 0 : http1_write_response(&h->out, head, &w);
}

static int agree_to_upgrade(struct h1 *h, struct h1_stream *x, const struct fields *head, bool end)
{
	struct http1_write w = { .framing = HTTP1_BODY_NONE, .title_names = h->c->title_names, .upgrade = fields_get(head, "upgrade") };
	int r = w.upgrade ? http1_write_response(&h->out, head, &w) : -EINVAL;

	if (r < 0)
		return r;
	x->responded = true;
	if (end)	/* to HTTP/1.1 itself: the next request follows */
		x->finished = true;
	else
		h1_tunnel(h, x);
	return 0;
}

bool h1_stream_can_upgrade(const struct http_stream *hx)
{
	const struct h1_stream *x = http_stream_of(hx);

	return !x->how && !x->responded && x->can_upgrade && hx->c->server_role;
}

int h1_stream_respond(struct http_stream *hx, const struct fields *head, bool end)
{
	struct h1_stream *x = http_stream_of(hx);
	const char *status = fields_get(head, ":status");
	struct http1_write w = { .framing = HTTP1_BODY_NONE, .title_names = hx->c->title_names };
	struct h1 *h;
	int r;

	if (x->how)
		return -EPIPE;
	h = engine(x);
	must(status && !x->responded);
	if (str_eq(status, "101") && h1_stream_can_upgrade(hx))
		return agree_to_upgrade(h, x, head, end);
	if (status[0] == '1')
		return send_interim(h, x, head, status);
	x->bodyless = x->bodyless || str_eq(status, "204") || str_eq(status, "304");
	r = promised(x, head);
	if (r < 0 || (end && !x->bodyless && x->left))
		return -EINVAL;
	if (!x->bodyless && !x->has_left) {
		w.add_length = end;
		x->chunked = !end && !x->http10;
		w.framing = x->chunked ? HTTP1_BODY_CHUNKED : HTTP1_BODY_NONE;
		if (!end && x->http10)
			h->keep_alive = false;
	}
	if (x->expect || h->c->draining)
		h->keep_alive = false;
	w.close = !h->keep_alive;
	w.keep_alive = x->http10;
	r = http1_write_response(&h->out, head, &w);
	if (r < 0)
		return r;
	x->responded = true;
	x->finished = end;
	return 0;
}

size_t h1_stream_unsent(const struct http_stream *hx)
{
	const struct h1_stream *x = http_stream_of(hx);

	return x->how ? 0 : buf_len(&engine(x)->out) + xport_unsent(&hx->c->xp);
}

size_t h1_stream_room(const struct http_stream *hx)
{
	struct h1_stream *x = http_stream_of(hx);
	size_t unsent = h1_stream_unsent(hx);

	if (x->how || x->finished)
		return 0;
	if (unsent < engine(x)->send_max)
		return engine(x)->send_max - unsent;
	/* What TLS holds back counts too, so no write may ever have come to the limit by itself. */
	x->room_wanted = true;
	return 0;
}

static int put_chunk(struct buf *out, const void *p, size_t n)
{
	char head[HTTP1_CHUNK_HEAD_MAX];
	size_t k = http1_chunk_head(head, n);
	uint8_t *at = buf_space(out, k + n + 2);

	if (!at)
		return -ENOMEM;
	memcpy(at, head, k);
	memcpy(at + k, p, n);
	memcpy(at + k + n, "\r\n", 2);
	buf_added(out, k + n + 2);
	return 0;
}

int h1_stream_write(struct http_stream *hx, const void *p, size_t n)
{
	struct h1_stream *x = http_stream_of(hx);
	struct h1 *h;
	int r;

	if (x->how || x->finished || (hx->c->server_role && !x->responded))
		return -EPIPE;
	if (!n || x->bodyless)
		return 0;
	h = engine(x);
	if (x->has_left && n > x->left) {
		/* More than its content-length: the peer would take it for the next message. */
		h1_stream_reset(hx, H2_INTERNAL_ERROR);
		return -EPIPE;
	}
	r = x->chunked ? put_chunk(&h->out, p, n) : buf_put(&h->out, p, n);
	if (r < 0)
		return r;
	if (x->has_left)
		x->left -= n;
	if (buf_len(&h->out) >= h->send_max)
		x->room_wanted = true;
	return 0;
}

int h1_stream_finish(struct http_stream *hx, const struct fields *trailers)
{
	struct h1_stream *x = http_stream_of(hx);
	int r = 0;

	if (x->how || x->finished || (hx->c->server_role && !x->responded))
		return -EPIPE;
	if (x->has_left && x->left && !x->bodyless) {
		h1_stream_reset(hx, H2_INTERNAL_ERROR); /* less than was promised: cut, so that it shows */
		return -EPIPE;
	}
	if (x->chunked && !x->bodyless)
		r = http1_write_last_chunk(&engine(x)->out, trailers, hx->c->title_names);
	if (r < 0)
		return r;
	x->finished = true;
	return 0;
}

/* --- ends --- */

void h1_stream_reset(struct http_stream *hx, uint32_t code)
{
	struct h1_stream *x = http_stream_of(hx);

	if (x->how)
		return;
	h1_close_x(engine(x), x, HTTP_CLOSE_LOCAL, code);
	conn_fail(hx->c, "an exchange on it was reset");
}

void h1_stream_release(struct http_stream *hx)
{
	struct h1_stream *x = http_stream_of(hx);

	list_del(&x->ready);
	if (x->how) {
		h1_stream_destroy(x);
		return;
	}
	/* An answer that is complete goes out all the same. */
	if ((hx->c->server_role || x->tunnel) && x->finished) {
		buf_fini(&x->body);
		h1_pause(engine(x));
		return;
	}
	if (!h1_end_released(engine(x), x))
		h1_stream_reset(hx, H2_CANCEL);
}

enum http_close h1_stream_closed(const struct http_stream *x, uint32_t *ret_code)
{
	if (ret_code)
		*ret_code = http_stream_of(x)->code;
	return http_stream_of(x)->how;
}

bool h1_stream_was_sent(const struct http_stream *x)
{
	return http_stream_of(x)->sent;
}
