/* SPDX-License-Identifier: MIT */
/*
 * A connection on the HTTP/2 engine: moves bytes between it, the xport and the owners, and calls them. As
 * with HTTP/1.1, what an owner writes where there is no body (HEAD, 204, 304) goes nowhere.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/net/http_impl.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/wire/h2.h"

struct h2_x {
	struct http_stream x;
	struct h2_stream *s;
	bool bodyless;	/* server: the stream ended with the head; `finished` is the owner's view */
	bool finished;
	bool expect;	/* server: the client waits for 100 Continue */
	bool to_head;	/* server: the request is HEAD */
};

#define BODYLESS_ROOM 65536u

enum drain_step { DRAIN_NONE, DRAIN_TOLD, DRAIN_LAST };

static struct h2 *h2_of(const struct http_conn *c)
{
	return c->engine;
}

static struct h2_x *http_stream_of(const struct http_stream *x)
{
	return container_of(x, struct h2_x, x);
}

static struct h2_stream *stream_of(const struct http_stream *x)
{
	return http_stream_of(x)->s;
}

static struct h2_x *x_new(struct http_conn *c)
{
	struct h2_x *x = quota_take(c->quota, sizeof(*x)) < 0 ? NULL : calloc(1, sizeof(*x));

	if (x)
		http_stream_init(&x->x, c, &h2_ops);
	return x;
}

static void http_stream_free(void *p)
{
	struct h2_x *x = http_stream_of(p);

	quota_give(x->x.c->quota, sizeof(*x));
	free(x);
}

int h2conn_start(struct http_conn *c, uint64_t now_ms)
{
	struct h2_options o = { .stream_window = c->stream_window, .quota = c->quota, .send_max = c->send_max,
				.wipes = !c->server };
	struct h2 *h;
	int r;

	if (c->server) {
		const struct http_server_options *so = server_options(c->server);

		o.server = true;
		o.any_authority = so->any_authority;
		o.max_streams = so->max_streams;
		o.head_max_n = so->head_max_n;
		o.head_max_bytes = so->head_max_bytes;
	} else if (!c->handshake_by_ms) {
		c->handshake_by_ms = now_ms + HTTP_HANDSHAKE_MS; /* for the server's SETTINGS */
	}
	r = h2_new(&o, now_ms, &h);
	if (r < 0)
		return r;
	c->engine = h;
	c->ops = &h2_ops;
	return 0;
}

/* --- connection --- */

static int h2c_output(struct http_conn *c);

/* The peer's doing: our own ends go another way. One that has us hold too much does not get the time to read our last words. */
static void ended_by_rules(struct http_conn *c)
{
	struct h2 *h = h2_of(c);

	if (!h2_is_over_quota(h)) {
		c->broke_rules = true;
		conn_finish(c, h2_why(h));
		return;
	}
	if (!c->xp.blocked)
		(void)!h2c_output(c);
	conn_fail(c, h2_why(h));
}

static void h2c_feed(struct http_conn *c, const uint8_t *p, size_t n, uint64_t now_ms)
{
	struct h2 *h = h2_of(c);

	if (h2_feed(h, p, n, now_ms) < 0)
		ended_by_rules(c);
	if (c->handshake_by_ms && h2_settings_received(h))
		c->handshake_by_ms = 0;
}

static void h2c_eof(struct http_conn *c, bool orderly)
{
	conn_fail(c, orderly ? "the peer closed the connection" : "the connection was cut");
}

static int h2c_output(struct http_conn *c)
{
	struct h2 *h = h2_of(c);

	for (;;) {
		const uint8_t *p;
		size_t n;
		ssize_t w;
		int r = h2_output(h, &p, &n);

		if (r == 0 && h2_is_dead(h) && c->state == CONN_OPEN && !h2_is_over_quota(h))
			ended_by_rules(c);
		if (r < 0 && h2_is_over_quota(h))
			conn_fail(c, h2_why(h));
		if (r < 0 || !n)
			return r;
		w = xport_write(&c->xp, p, n);
		if (w < 0)
			return (int)w;
		h2_sent(h, (size_t)w);
		if (c->xp.blocked)
			return -EAGAIN;
	}
}

static bool h2c_has_output(const struct http_conn *c)
{
	return h2_wants_output(h2_of(c));
}

static bool wants_continue(const struct fields *head)
{
	const char *s = fields_get(head, "expect");

	return s && mem_eq_ci(s, strlen(s), "100-continue");
}

static bool is_head(const struct fields *head)
{
	const char *method = fields_get(head, ":method");

	return method && str_eq(method, "HEAD");
}

static void accept_request(struct http_conn *c, struct h2_stream *s)
{
	const struct http_server_options *o = c->server ? server_options(c->server) : NULL;
	bool cut = h2_stream_head_is_cut(s);
	struct h2_x *x = o && c->state < CONN_CLOSED && (!cut || o->takes_cut_heads) ? x_new(c) : NULL;

	if (!x) {
		h2_stream_reset(s, cut ? H2_ENHANCE_YOUR_CALM : H2_REFUSED_STREAM);
		h2_stream_release(s);
		return;
	}
	x->s = s;
	x->expect = !h2_stream_ended(s) && wants_continue(h2_stream_head(s));
	x->to_head = is_head(h2_stream_head(s));
	h2_stream_set_user(s, x);
	o->on_request(&x->x, o->user);
	/* What came with the head was noted before there was an owner. */
	http_stream_ready(&x->x);
}

/* Of a server: so many in each pass. A client's own requests are as many as it wants. */
static void begin_calls(struct http_conn *c)
{
	uint64_t pass = loop_pass(c->loop);

	if (c->calls_left && c->calls_pass == pass)
		return;
	if (!c->guest)
		c->calls_left = UINT_MAX;
	else if (c->calls_pass != pass)
		c->calls_left = guest_calls(c->guest, pass);
	c->calls_pass = pass;
}

static bool h2c_deliver(struct http_conn *c)
{
	struct h2_stream *s;

	begin_calls(c);
	while (c->calls_left && c->state != CONN_GONE && (s = h2_next_ready(h2_of(c)))) {
		struct h2_x *x = h2_stream_user(s);

		(void)h2_stream_take_ready(s);
		if (x)
			http_stream_ready(&x->x);
		else
			accept_request(c, s);
		c->calls_left -= c->guest ? 1 : 0;
	}
	return c->state == CONN_GONE || !h2_has_ready(h2_of(c));
}

static void h2c_lost(struct http_conn *c)
{
	h2_lost(h2_of(c));
}

static void h2c_drain(struct http_conn *c)
{
	struct h2 *h = h2_of(c);

	h2_goaway(h, H2_NO_ERROR);
	c->drain_step = DRAIN_LAST;
	if (!c->server_role)
		return;
	/* A request may cross the notice; the answer to a PING proves that no more will. */
	c->drain_step = DRAIN_TOLD;
	c->drain_acks = h2_pings_acked(h);
	c->drain_by_ms = loop_now_ms(c->loop) + HTTP_DRAIN_ACK_MS;
	if (h2_ping(h) < 0)
		c->drain_by_ms = loop_now_ms(c->loop);
}

static void h2c_after(struct http_conn *c)
{
	struct h2 *h = h2_of(c);

	if (c->drain_step == DRAIN_TOLD && (h2_pings_acked(h) != c->drain_acks ||
					    loop_now_ms(c->loop) >= c->drain_by_ms)) {
		c->drain_step = DRAIN_LAST;
		c->drain_by_ms = 0;
		h2_goaway(h, H2_NO_ERROR);
	}
	if (h2_open_streams(h))
		return;
	if (c->drain_step == DRAIN_LAST)
		conn_finish(c, "drained");
	else if (!c->server_role && h2_goaway_seen(h, NULL))
		conn_finish(c, "the server went away");
}

static uint64_t h2c_due(const struct http_conn *c)
{
	return h2_due_ms(h2_of(c));
}

static void h2c_expire(struct http_conn *c, uint64_t now_ms)
{
	if (h2_expire(h2_of(c), now_ms) < 0)
		ended_by_rules(c);
}

static void h2c_free(struct http_conn *c)
{
	h2_free(h2_of(c));
}

static uint32_t h2c_open_count(const struct http_conn *c)
{
	return h2_open_streams(h2_of(c));
}

static uint32_t h2c_free_streams(const struct http_conn *c)
{
	return h2_free_streams(h2_of(c));
}

static int64_t h2c_peer_streams(const struct http_conn *c)
{
	return h2_settings_received(h2_of(c)) ? (int64_t)h2_peer_max_streams(h2_of(c)) : -1;
}

static int h2c_request(struct http_conn *c, const struct fields *head, bool end,
		       struct http_stream **ret)
{
	struct h2_x *x = x_new(c);
	int r;

	if (!x)
		return -ENOMEM;
	r = h2_request(h2_of(c), head, end, x, &x->s);
	if (r < 0) {
		c->n_x--;
		http_stream_free(&x->x);
		return r;
	}
	*ret = &x->x;
	return 0;
}

bool http_conn_goaway(const struct http_conn *c, uint32_t *ret_code)
{
	return c->ops == &h2_ops && h2_goaway_seen(h2_of(c), ret_code);
}

bool http_conn_recycled(const struct http_conn *c)
{
	return c->ops == &h2_ops && h2_recycled(h2_of(c));
}

int http_conn_ping(struct http_conn *c)
{
	if (c->ops != &h2_ops)
		return -EOPNOTSUPP;
	conn_touch(c);
	return h2_ping(h2_of(c));
}

uint32_t http_conn_pings_acked(const struct http_conn *c)
{
	return c->ops == &h2_ops ? h2_pings_acked(h2_of(c)) : 0;
}

/* --- exchange --- */

static const struct fields *h2x_head(const struct http_stream *x)
{
	return h2_stream_head(stream_of(x));
}

static bool h2x_head_is_cut(const struct http_stream *x)
{
	return h2_stream_head_is_cut(stream_of(x));
}

static void h2x_drop_head(struct http_stream *x)
{
	h2_stream_drop_head(stream_of(x));
}

static const struct fields *h2x_trailers(const struct http_stream *x)
{
	return h2_stream_trailers(stream_of(x));
}

static void send_continue(struct h2_x *x)
{
	struct fields f = FIELDS_NULL;

	x->expect = false;
	/* Without memory for it the client sends its body by itself, a little later. */
	if (fields_put(&f, ":status", "100") == 0 && h2_respond(x->s, &f, false) == 0)
		conn_touch(x->x.c);
	fields_fini(&f);
}

static bool h2x_next_interim(struct http_stream *x, struct fields *ret)
{
	return h2_stream_next_interim(stream_of(x), ret);
}

static bool h2x_awaits_continue(const struct http_stream *hx)
{
	const struct h2_x *x = http_stream_of(hx);
	const uint8_t *p;

	return x->expect && !h2_stream_closed(x->s, NULL) && !h2_stream_ended(x->s) && !h2_stream_peek(x->s, &p);
}

static size_t h2x_peek(struct http_stream *hx, const uint8_t **ret)
{
	struct h2_x *x = http_stream_of(hx);
	size_t n = h2_stream_peek(x->s, ret);

	if (!n && x->expect && !h2_stream_ended(x->s)) {
		send_continue(x);
		n = h2_stream_peek(x->s, ret);
	}
	return n;
}

static size_t h2x_buffered(const struct http_stream *x)
{
	return h2_stream_buffered(stream_of(x));
}

static int h2x_pull(struct http_stream *x, size_t n)
{
	return h2_stream_pull(stream_of(x), n);
}

static void h2x_consume(struct http_stream *x, size_t n)
{
	h2_stream_consume(stream_of(x), n);
}

static bool h2x_ended(const struct http_stream *x)
{
	return h2_stream_ended(stream_of(x));
}

static bool h2x_at_end(const struct http_stream *x)
{
	return h2_stream_at_end(stream_of(x));
}

static bool has_no_body(const struct h2_x *x, const char *status)
{
	return x->to_head || str_eq(status, "204") || str_eq(status, "304");
}

static int h2x_respond(struct http_stream *hx, const struct fields *head, bool end)
{
	struct h2_x *x = http_stream_of(hx);
	const char *status = fields_get(head, ":status");

	must(status);
	if (status[0] != '1' || str_eq(status, "100"))
		x->expect = false;
	if (!end && status[0] != '1' && has_no_body(x, status))
		end = x->bodyless = true;
	return h2_respond(x->s, head, end);
}

static bool may_discard(const struct h2_x *x)
{
	return x->bodyless && !x->finished && !h2_stream_closed(x->s, NULL);
}

static size_t h2x_room(const struct http_stream *x)
{
	return may_discard(http_stream_of(x)) ? BODYLESS_ROOM : h2_stream_room(stream_of(x));
}

static size_t h2x_unsent(const struct http_stream *x)
{
	return h2_stream_unsent(stream_of(x));
}

static int h2x_write(struct http_stream *x, const void *p, size_t n)
{
	return may_discard(http_stream_of(x)) ? 0 : h2_stream_write(stream_of(x), p, n);
}

static uint8_t *h2x_space(struct http_stream *x, size_t n)
{
	return may_discard(http_stream_of(x)) ? NULL : h2_stream_space(stream_of(x), n);
}

static int h2x_added(struct http_stream *x, size_t n)
{
	return h2_stream_added(stream_of(x), n);
}

static int h2x_finish(struct http_stream *x, const struct fields *trailers)
{
	if (!may_discard(http_stream_of(x)))
		return h2_stream_finish(stream_of(x), trailers);
	http_stream_of(x)->finished = true;
	return 0;
}

static void h2x_reset(struct http_stream *x, uint32_t code)
{
	h2_stream_reset(stream_of(x), code);
}

static void h2x_release(struct http_stream *x)
{
	h2_stream_release(stream_of(x));
	http_stream_of(x)->s = NULL;
	http_stream_bury(x, http_stream_free);
}

static enum http_close h2x_closed(const struct http_stream *x, uint32_t *ret_code)
{
	static const enum http_close of[] = {
		[H2_OPEN] = HTTP_OPEN,
		[H2_CLOSE_CLEAN] = HTTP_CLOSE_CLEAN,
		[H2_CLOSE_LOCAL] = HTTP_CLOSE_LOCAL,
		[H2_CLOSE_RESET] = HTTP_CLOSE_RESET,
		[H2_CLOSE_REFUSED] = HTTP_CLOSE_REFUSED,
		[H2_CLOSE_LOST] = HTTP_CLOSE_LOST,
	};

	return of[h2_stream_closed(stream_of(x), ret_code)];
}

static bool h2x_was_sent(const struct http_stream *x)
{
	return h2_stream_was_sent(stream_of(x));
}

const struct http_ops h2_ops = {
	.version = HTTP_VERSION_2,
	.feed = h2c_feed,
	.eof = h2c_eof,
	.output = h2c_output,
	.has_output = h2c_has_output,
	.deliver = h2c_deliver,
	.lost = h2c_lost,
	.after = h2c_after,
	.due = h2c_due,
	.expire = h2c_expire,
	.drain = h2c_drain,
	.free = h2c_free,
	.open_count = h2c_open_count,
	.free_streams = h2c_free_streams,
	.peer_streams = h2c_peer_streams,
	.request = h2c_request,
	.head = h2x_head,
	.head_is_cut = h2x_head_is_cut,
	.drop_head = h2x_drop_head,
	.trailers = h2x_trailers,
	.peek = h2x_peek,
	.buffered = h2x_buffered,
	.pull = h2x_pull,
	.consume = h2x_consume,
	.ended = h2x_ended,
	.at_end = h2x_at_end,
	.respond = h2x_respond,
	.next_interim = h2x_next_interim,
	.awaits_continue = h2x_awaits_continue,
	.room = h2x_room,
	.unsent = h2x_unsent,
	.write = h2x_write,
	.space = h2x_space,
	.added = h2x_added,
	.finish = h2x_finish,
	.reset = h2x_reset,
	.release = h2x_release,
	.closed = h2x_closed,
	.was_sent = h2x_was_sent,
};
