/* SPDX-License-Identifier: MIT */
/*
 * A connection on the HTTP/1.1 coder. One exchange at a time in both roles; a server leaves
 * pipelined requests unread until the answer before them is out. An exchange is detached from the
 * connection when it ends and lives on by itself. Bodies are in h1stream.c.
 *
 * 100 Continue is sent when the owner first looks for the body (peek). An owner that answers without
 * looking never asked for it, so then the connection ends after the answer.
 *
 * An upgrade that both sides agreed on makes the exchange a tunnel, the last one of its connection.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/common/net/h1_impl.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/wire/h2.h"

#define INTERIM_MAX	 16u	/* 1xx heads before a final one */
#define PIPELINE_BYTES	 65536u /* read ahead of the answer; above, reading stops */
#define SEND_MAX_DEFAULT (256u * 1024)
#define WINDOW_MAX	 (256u * 1024)

int h1conn_start(struct http_conn *c)
{
	struct h1 *h;

	if (quota_take(c->quota, sizeof(*h)) < 0)
		return -ENOBUFS;
	h = calloc(1, sizeof(*h));
	if (!h) {
		quota_give(c->quota, sizeof(*h));
		return -ENOMEM;
	}
	h->c = c;
	buf_set_quota(&h->in, c->quota);
	buf_set_quota(&h->out, c->quota);
	h->phase = c->server_role ? H1_HEAD : H1_WAIT;
	h->keep_alive = true;
	/* The kernel's buffers come on top: more would hold memory and move nothing faster. */
	h->window = c->stream_window ? MIN(c->stream_window, WINDOW_MAX) : WINDOW_MAX;
	h->send_max = c->send_max ? c->send_max : SEND_MAX_DEFAULT;
	list_init(&h->ready);
	c->engine = h;
	c->ops = &h1_ops;
	return 0;
}

/* --- the end of an exchange --- */

void h1_close_x(struct h1 *h, struct h1_stream *x, enum http_close how, uint32_t code)
{
	must(!x->how && how);
	x->how = how;
	x->code = code;
	if (h->x == x)
		h->x = NULL;
	if (x->x.released)
		h1_stream_destroy(x);
	else
		h1_note(h, x);
}

void h1_note(struct h1 *h, struct h1_stream *x)
{
	if (!x->x.released && list_is_empty(&x->ready))
		list_add_tail(&h->ready, &x->ready);
}

/* What HTTP/2 would call the result of a connection that died. */
static void lose(struct h1 *h, struct h1_stream *x)
{
	h1_close_x(h, x, !h->c->server_role && !x->sent ? HTTP_CLOSE_REFUSED : HTTP_CLOSE_LOST,
		   H2_NO_ERROR);
}

static void h1c_lost(struct http_conn *c)
{
	struct h1 *h = h1_of(c);

	if (h->next)
		h1_stream_destroy(h->next);
	h->next = NULL;
	if (h->x)
		lose(h, h->x);
	if (!c->server_role)
		return;
	list_for_each_safe(n, &h->ready) {
		struct h1_stream *x = list_entry(n, struct h1_stream, ready);

		if (!x->announced) /* no owner will ever release it */
			h1_stream_destroy(x);
	}
}

/* --- reading --- */

void h1_pause(struct h1 *h)
{
	struct http_conn *c = h->c;
	size_t body = h->x ? buf_len(&h->x->body) : 0;

	if (c->state != CONN_OPEN)
		return;
	c->xp.read_paused = h->eof || (h->phase == H1_WAIT && buf_len(&h->in) >= PIPELINE_BYTES) ||
			    body >= h->window || (c->xp.read_paused && body > h->window / 2);
}

static void answer_error(struct h1 *h, enum http1_result r)
{
	unsigned status = http1_result_status(r);

	/* Without memory for it the connection just ends. */
	(void)!buf_printf(&h->out,
			  "HTTP/1.1 %u %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", status,
			  http1_reason(status));
}

static void broken(struct h1 *h, enum http1_result r, const char *why)
{
	struct http_conn *c = h->c;

	if (c->server_role && (!h->x || !h->x->responded))
		answer_error(h, r);
	if (h->next)
		h1_stream_destroy(h->next);
	h->next = NULL;
	if (h->x)
		h1_close_x(h, h->x, HTTP_CLOSE_RESET, H2_PROTOCOL_ERROR);
	if (c->server_role)
		conn_finish(c, why);
	else
		conn_fail(c, why);
}

static void begin_body(struct h1 *h, struct h1_stream *x)
{
	h->phase = h->head.framing == HTTP1_BODY_NONE ? H1_WAIT : H1_BODY;
	x->ended = h->phase == H1_WAIT;
	http1_body_fini(&h->body);
	http1_body_init(&h->body, h->head.framing, h->head.length);
	h->body.trailers.quota = h->c->quota;
	x->head_done = true;
	h1_note(h, x);
}

/* The word in a list of words, by commas. */
static bool names(const char *list, const char *word)
{
	size_t n = strlen(word);

	while (list && *list) {
		list += strspn(list, ", \t");
		if (!strncasecmp(list, word, n) && (!list[n] || strchr(", \t", list[n])))
			return true;
		list += strcspn(list, ",");
	}
	return false;
}

static bool asks_upgrade(const struct h1 *h, const struct fields *head)
{
	return !h->head.http10 && h->head.framing == HTTP1_BODY_NONE && fields_get(head, "upgrade") &&
	       names(fields_get(head, "connection"), "upgrade");
}

static void request_head_done(struct h1 *h)
{
	struct h1_stream *x = h->next;
	const char *method = fields_get(&x->head, ":method");

	h->next = NULL;
	h->x = x;
	x->http10 = h->head.http10;
	x->expect = h->head.expect_continue && h->head.framing != HTTP1_BODY_NONE;
	x->bodyless = str_eq(method, "HEAD");
	x->can_upgrade = !x->bodyless && asks_upgrade(h, &x->head);
	h->keep_alive = h->head.keep_alive && !h->c->draining;
	h->c->handshake_by_ms = 0;
	begin_body(h, x);
}

static void response_head_done(struct h1 *h)
{
	struct h1_stream *x = h->x;

	if (h->head.status == 101 && x->can_upgrade) {
		x->head_done = true;
		h1_tunnel(h, x);
		return;
	}
	if (h->head.status == 101 || (h->head.interim && ++h->interims > INTERIM_MAX)) {
		broken(h, HTTP1_BAD, "the server sent an interim answer nobody asked for");
		return;
	}
	if (h->head.interim) {
		interims_put(&x->interims, &x->head);
		h1_note(h, x);
		http1_head_init_response(&h->head, x->to_head, false, &x->head);
		return;
	}
	h->keep_alive = h->keep_alive && h->head.keep_alive;
	begin_body(h, x);
}

static bool parse_head(struct h1 *h, const uint8_t *p, size_t n, size_t *ret_used)
{
	struct http_conn *c = h->c;
	enum http1_result r;

	if (!n)
		return false;
	if (c->server_role && !h->next) {
		h->next = h1_stream_new(c);
		if (!h->next) {
			conn_fail(c, "out of memory");
			return false;
		}
		http1_head_init_request(&h->head, c->tls, &h->next->head);
	}
	r = http1_head_feed(&h->head, p, n, ret_used);
	if (r == HTTP1_DONE && c->server_role)
		request_head_done(h);
	else if (r == HTTP1_DONE)
		response_head_done(h);
	else if (r == HTTP1_MORE && c->server && !c->handshake_by_ms)
		/* A head that has begun must end; between requests there is time. */
		c->handshake_by_ms = c->last_read_ms + server_options(c->server)->handshake_ms;
	else if (r != HTTP1_MORE)
		broken(h, r, c->server_role ? "not HTTP/1.1" : "the server does not speak HTTP/1.1");
	return r == HTTP1_DONE;
}

static bool parse_body(struct h1 *h, const uint8_t *p, size_t n, size_t *ret_used)
{
	struct h1_stream *x = h->x;
	const uint8_t *data;
	size_t n_data;
	enum http1_result r = http1_body_feed(&h->body, p, n, ret_used, &data, &n_data);

	if (n_data && !x->x.released && buf_put(&x->body, data, n_data) < 0)
		r = HTTP1_NO_MEMORY;
	if (r != HTTP1_MORE && r != HTTP1_DONE) {
		broken(h, r, "the body is not as HTTP/1.1 has it");
		return false;
	}
	if (r == HTTP1_DONE) {
		x->ended = true;
		h->phase = H1_WAIT;
		if (h->body.trailers.n) {
			x->trailers = h->body.trailers;
			h->body.trailers = (struct fields)FIELDS_NULL;
		}
	}
	if (n_data || x->ended)
		h1_note(h, x);
	return r == HTTP1_DONE || *ret_used;
}

static void take_tunnel(struct h1 *h, const uint8_t *p, size_t n)
{
	struct h1_stream *x = h->x;

	if (!n || x->x.released)
		return;
	if (buf_put(&x->body, p, n) < 0)
		conn_fail(h->c, "out of memory");
	else
		h1_note(h, x);
}

static size_t h1conn_parse(struct h1 *h, const uint8_t *p, size_t n)
{
	size_t at = 0;
	bool go = true;

	while (go && h->c->state == CONN_OPEN) {
		size_t used = 0;

		switch (h->phase) {
		case H1_HEAD:
			go = parse_head(h, p + at, n - at, &used);
			break;
		case H1_BODY:
			go = n > at && parse_body(h, p + at, n - at, &used);
			break;
		case H1_WAIT:
			go = false;
			break;
		case H1_TUNNEL:
			take_tunnel(h, p + at, n - at);
			used = n - at;
			go = false;
			break;
		}
		at += used;
	}
	return at;
}

static void parse_kept(struct h1 *h)
{
	size_t used = h1conn_parse(h, buf_data(&h->in), buf_len(&h->in));

	buf_drop(&h->in, used);
}

void h1_tunnel(struct h1 *h, struct h1_stream *x)
{
	h->phase = H1_TUNNEL;
	h->keep_alive = false;
	x->tunnel = true;
	x->ended = x->finished = false;
	h1_note(h, x);
	if (h->c->server_role)	/* what came behind the request; a client's feed goes on by itself */
		parse_kept(h);
}

static void h1c_feed(struct http_conn *c, const uint8_t *p, size_t n, uint64_t now_ms)
{
	struct h1 *h = h1_of(c);
	bool kept = buf_len(&h->in);
	size_t used = 0;

	if (!c->server_role && !h->x) {
		conn_fail(c, "the server sent what nobody asked for");
		return;
	}
	if (!kept)
		used = h1conn_parse(h, p, n);
	if (c->state != CONN_OPEN)
		return;
	if (used < n && buf_put(&h->in, p + used, n - used) < 0) {
		conn_fail(c, "out of memory");
		return;
	}
	if (kept)
		parse_kept(h);
	h1_pause(h);
}

static void h1c_eof(struct http_conn *c, bool orderly)
{
	struct h1 *h = h1_of(c);
	struct h1_stream *x = h->x;

	if (orderly && x && x->tunnel) {
		h->eof = true;
		x->ended = true;
		h1_note(h, x);
		h1_pause(h);
	} else if (c->server_role && orderly && x && x->ended && x->finished) {
		/* Said all it wanted; the answer may still be read. */
		h->eof = true;
		h->keep_alive = false;
		h1_pause(h);
	} else if (!c->server_role && orderly && h->phase == H1_BODY &&
		   h->body.framing == HTTP1_BODY_UNTIL_CLOSE) {
		h->eof = true;
		h->phase = H1_WAIT;
		h->keep_alive = false;
		x->ended = true;
		h1_note(h, x);
		h1_pause(h);
	} else {
		conn_fail(c, orderly ? "the peer closed the connection" : "the connection was cut");
	}
}

/* --- writing --- */

/* A server's exchange is over and its answer is out: on with the next one. */
static void next_request(struct h1 *h)
{
	if (!h->keep_alive || h->c->draining) {
		conn_finish(h->c, h->c->draining ? "drained" : "done, and not kept alive");
		return;
	}
	h->phase = H1_HEAD;
	parse_kept(h);
	h1_pause(h);
}

static void end_server_exchange(struct h1 *h, struct h1_stream *x)
{
	if (x->ended) {
		h1_close_x(h, x, HTTP_CLOSE_CLEAN, H2_NO_ERROR);
		next_request(h);
	} else if (x->expect || x->x.released) {
		h1_close_x(h, x, HTTP_CLOSE_RESET, H2_NO_ERROR);
		conn_finish(h->c, "answered before the request was complete");
	}
}

static void end_client_exchange(struct h1 *h, struct h1_stream *x, bool flushed)
{
	if (!x->ended)
		return;
	if (!x->finished || !flushed) {
		/* Answered early: what is left of our request is not wanted. */
		h1_close_x(h, x, HTTP_CLOSE_RESET, H2_NO_ERROR);
		conn_fail(h->c, "the server answered before the request was complete");
		return;
	}
	h1_close_x(h, x, HTTP_CLOSE_CLEAN, H2_NO_ERROR);
	if (buf_len(&h->in))
		conn_fail(h->c, "the server sent more than its answer");
	else if (!h->keep_alive || h->c->draining)
		conn_finish(h->c, h->c->draining ? "drained" : "the server does not keep it alive");
}

/* Each direction ends by itself. */
static void end_tunnel_exchange(struct h1 *h, struct h1_stream *x, bool flushed)
{
	if (x->finished && flushed && !x->shut) {
		x->shut = true;
		xport_shutdown(&h->c->xp);
	}
	if (!x->shut || !(x->ended || x->x.released))
		return;
	h1_close_x(h, x, HTTP_CLOSE_CLEAN, H2_NO_ERROR);
	conn_finish(h->c, "the tunnel ended");
}

/* Both messages are complete, and the owner of ours lets go before the pump looked: the connection lives on. */
bool h1_end_released(struct h1 *h, struct h1_stream *x)
{
	bool flushed = !buf_len(&h->out) && !xport_unsent(&h->c->xp);

	if (h->x != x || h->c->server_role || h->c->state != CONN_OPEN || x->tunnel || !x->ended || !x->finished ||
	    !flushed)
		return false;
	end_client_exchange(h, x, true);
	return true;
}

static void end_exchange(struct h1 *h)
{
	struct h1_stream *x = h->x;
	bool flushed = !buf_len(&h->out) && !xport_unsent(&h->c->xp);

	if (!x || h->c->state != CONN_OPEN)
		return;
	if (x->tunnel)
		end_tunnel_exchange(h, x, flushed);
	else if (!h->c->server_role)
		end_client_exchange(h, x, flushed);
	else if (x->finished && flushed)
		end_server_exchange(h, x);
}

static int h1c_output(struct http_conn *c)
{
	struct h1 *h = h1_of(c);
	struct h1_stream *x = h->x;
	ssize_t n = 0;

	while (buf_len(&h->out) && !c->xp.blocked) {
		n = xport_write(&c->xp, buf_data(&h->out), buf_len(&h->out));
		if (n < 0)
			break;
		if (x)
			x->sent = true;
		buf_drop(&h->out, (size_t)n);
	}
	if (x && x->room_wanted && h1_stream_unsent(&x->x) <= h->send_max / 2) {
		x->room_wanted = false;
		h1_note(h, x);
	}
	if (n < 0)
		return (int)n;
	end_exchange(h);
	return 0;
}

static bool h1c_has_output(const struct http_conn *c)
{
	return buf_len(&h1_of(c)->out);
}

static bool h1c_is_bare(const struct http_conn *c)
{
	const struct h1 *h = h1_of(c);

	return h->phase == H1_HEAD && h->keep_alive && !h->eof && !h->next && !buf_len(&h->in) && !buf_len(&h->out);
}

/* --- telling --- */

static void announce(struct http_conn *c, struct h1_stream *x)
{
	const struct http_server_options *o = server_options(c->server);

	x->announced = true;
	o->on_request(&x->x, o->user);
}

static bool h1c_deliver(struct http_conn *c)
{
	struct h1 *h = h1_of(c);

	while (c->state != CONN_GONE && !list_is_empty(&h->ready)) {
		struct h1_stream *x = list_entry(h->ready.next, struct h1_stream, ready);

		list_del(&x->ready);
		if (c->server_role && !x->announced) {
			if (x->how) {	/* nobody ever saw it */
				h1_stream_destroy(x);
				continue;
			}
			announce(c, x);
		}
		http_stream_ready(&x->x);
	}
	return true;
}

static void h1c_after(struct http_conn *c)
{
	h1_pause(h1_of(c));
}

static void h1c_drain(struct http_conn *c)
{
	struct h1 *h = h1_of(c);

	h->keep_alive = false;
	if (!h->x)
		conn_finish(c, "drained");
}

static void h1c_free(struct http_conn *c)
{
	struct h1 *h = h1_of(c);

	buf_fini(&h->in);
	buf_fini(&h->out);
	http1_body_fini(&h->body);
	quota_give(c->quota, sizeof(*h));
	free(h);
}

static uint32_t h1c_open_count(const struct http_conn *c)
{
	return h1_of(c)->x ? 1 : 0;
}

static uint32_t h1c_free_streams(const struct http_conn *c)
{
	const struct h1 *h = h1_of(c);

	return !h->x && h->keep_alive ? 1 : 0;
}

static int h1c_request(struct http_conn *c, const struct fields *head, bool end,
		       struct http_stream **ret)
{
	struct h1 *h = h1_of(c);
	struct h1_stream *x = h1_stream_new(c);
	int r;

	if (!x)
		return -ENOMEM;
	r = h1_stream_send_request(h, x, head, end);
	if (r < 0) {
		h1_stream_destroy(x);
		return r;
	}
	http1_head_init_response(&h->head, x->to_head, false, &x->head);
	h->x = x;
	h->phase = H1_HEAD;
	h->interims = 0;
	*ret = &x->x;
	return 0;
}

const struct http_ops h1_ops = {
	.version = HTTP_VERSION_1_1,
	.feed = h1c_feed,
	.eof = h1c_eof,
	.output = h1c_output,
	.has_output = h1c_has_output,
	.is_bare = h1c_is_bare,
	.deliver = h1c_deliver,
	.lost = h1c_lost,
	.after = h1c_after,
	.drain = h1c_drain,
	.free = h1c_free,
	.open_count = h1c_open_count,
	.free_streams = h1c_free_streams,
	.request = h1c_request,
	.head = h1_stream_head,
	.trailers = h1_stream_trailers,
	.peek = h1_stream_peek,
	.buffered = h1_stream_buffered,
	.consume = h1_stream_consume,
	.ended = h1_stream_ended,
	.at_end = h1_stream_at_end,
	.respond = h1_stream_respond,
	.next_interim = h1_stream_next_interim,
	.awaits_continue = h1_stream_awaits_continue,
	.can_upgrade = h1_stream_can_upgrade,
	.room = h1_stream_room,
	.unsent = h1_stream_unsent,
	.write = h1_stream_write,
	.finish = h1_stream_finish,
	.reset = h1_stream_reset,
	.release = h1_stream_release,
	.closed = h1_stream_closed,
	.was_sent = h1_stream_was_sent,
};
