/* SPDX-License-Identifier: MIT */
/*
 * The engine of h2.h on nghttp2: session set-up, callbacks that only note facts, budgets, output.
 * What a stream's owner calls is in h2_stream.c.
 */
#include "proto/wire/h2_impl.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/must.h"
#include "proto/base/str.h"

#define FEED_SLICE_BYTES  16384u	/* input between two looks at the budgets */
#define OUTPUT_BYTES	  65536u	/* about what one h2_output() gathers */
#define OUTPUT_SHORT	  16384u	/* the same while memory is short */
#define FRAME_HEAD_BYTES  9u
#define FRAME_MAX_BYTES	  (16384u + FRAME_HEAD_BYTES)
#define STRAY_SLACK_BYTES 65536u	/* padding of a frame that has not ended is a stray too, for now */
#define PRE_SETTINGS_STREAMS 100u	/* a peer's limit until its SETTINGS say otherwise */

/* Costs in budget tokens; progress of REFUND_BYTES or a finished stream pays them back. */
#define COST_FRAME	  1
#define REFUND_DATA	  3	/* a frame of ours may be answered by two WINDOW_UPDATE and a PING: gRPC does */
#define COST_SETTINGS	  2
#define COST_RESET	  1
#define DEAR_RESETS	  200u		/* so many resets empty the budget, where we sent them for the peer's mistake or the
					 * peer reset a young request */
#define YOUNG_MS	  100u		/* a request is young so long; later it is a client whose deadline came that resets it */
#define REFUND_BYTES	  1024u
#define REFUND_STREAM	  4

static void abuse(struct h2 *h, const char *why)
{
	if (h->abused)
		return;
	h->abused = true;
	snprintf(h->why, sizeof(h->why), "%s", why);
}

/* Something that the peer sent does not fit any more. */
static void over_quota(struct h2 *h)
{
	h->over_quota = true;
	abuse(h, "the peer has us hold more memory for it than it may");
}

static void spend(struct h2 *h, int64_t cost)
{
	h->tokens -= cost;
	if (h->tokens < 0)
		abuse(h, "the peer sends too many frames that bring nothing");
}

static void refund(struct h2 *h, int64_t tokens)
{
	h->tokens = MIN(h->tokens + tokens, (int64_t)h->o.glitch_burst);
}

static void progress(struct h2 *h, size_t bytes)
{
	h->progress_bytes += bytes;
	if (h->progress_bytes < REFUND_BYTES)
		return;
	refund(h, (int64_t)(h->progress_bytes / REFUND_BYTES));
	h->progress_bytes %= REFUND_BYTES;
}

static void refill(struct h2 *h, uint64_t now_ms)
{
	uint64_t gained;

	if (now_ms <= h->refilled_ms)
		return;
	gained = (now_ms - h->refilled_ms) * h->o.glitch_per_s / 1000;
	if (!gained)
		return;
	refund(h, (int64_t)MIN(gained, (uint64_t)h->o.glitch_burst));
	h->refilled_ms = now_ms;
}

void h2_note(struct h2_stream *s, unsigned flags)
{
	s->ready_flags |= flags;
	if (!s->released && s->announced && list_is_empty(&s->ready))
		list_add_tail(&s->h->ready, &s->ready);
}

void h2_stream_close_as(struct h2_stream *s, enum h2_close how, uint32_t code)
{
	struct h2 *h = s->h;

	must(!s->closed);
	s->closed = how;
	s->code = code;
	h->n_open--;
	if (how == H2_CLOSE_CLEAN)
		refund(h, REFUND_STREAM);
	chain_fini(&s->out);
	if (s->released || !s->announced)
		h2_stream_destroy(s);
	else
		h2_note(s, H2_READY_CLOSED);
}

/* What nghttp2 calls back about is mostly the stream of the last time. */
static struct h2_stream *stream_of(struct h2 *h, int32_t id)
{
	struct h2_stream *s = h->last_of;

	if (!s || s->id != id)
		s = h->last_of = nghttp2_session_get_stream_user_data(h->ng, id);
	must(!s || s->magic == H2_STREAM_MAGIC);
	return s;
}

static void forget_last(struct h2_stream *s)
{
	if (s->h->last_of == s)
		s->h->last_of = NULL;
}

struct h2_stream *h2_stream_make(struct h2 *h)
{
	struct h2_stream *s;

	if (quota_take(h->o.quota, sizeof(*s)) < 0) {
		over_quota(h);
		return NULL;
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		quota_give(h->o.quota, sizeof(*s));
		return NULL;
	}
	s->magic = H2_STREAM_MAGIC;
	s->h = h;
	s->opened_ms = h->last_feed_ms;
	s->head.max_n = s->trailers.max_n = h->o.head_max_n;
	s->head.max_bytes = s->trailers.max_bytes = h->o.head_max_bytes;
	s->head.quota = s->trailers.quota = s->trailers_out.quota = h->o.quota;
	s->in.quota = s->out.quota = h->o.quota;
	list_init(&s->ready);
	list_add_tail(&h->streams, &s->node);
	h->n_open++;
	s->taken_since_ms = h->last_feed_ms;
	s->window = h2_first_window(h);
	return s;
}

void h2_stream_destroy(struct h2_stream *s)
{
	if (!s->closed)
		s->h->n_open--;
	forget_last(s);
	quota_unpromise(s->h->o.quota, s->window - h2_first_window(s->h));
	list_del(&s->node);
	list_del(&s->ready);
	fields_fini(&s->head);
	fields_fini(&s->trailers);
	fields_fini(&s->trailers_out);
	interims_fini(&s->interims);
	chain_fini(&s->in);
	chain_fini(&s->out);
	quota_give(s->h->o.quota, sizeof(*s));
	s->magic = 0;
	free(s);
}

/* --- callbacks --- */

static int on_begin_headers(nghttp2_session *ng, const nghttp2_frame *f, void *user)
{
	struct h2 *h = user;
	struct h2_stream *s;

	if (h->o.server && f->headers.cat == NGHTTP2_HCAT_REQUEST) {
		s = h2_stream_make(h);
		if (!s)
			return h->over_quota ? NGHTTP2_ERR_CALLBACK_FAILURE :
					       NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
		s->id = f->hd.stream_id;
		s->sent = true;
		nghttp2_session_set_stream_user_data(ng, f->hd.stream_id, s);
		return 0;
	}
	s = stream_of(h, f->hd.stream_id);
	if (s && !s->head_done)
		fields_clear(&s->head); /* of a block that was not complete */
	return 0;
}

struct known_name {
	size_t n;
	const char *text;
};
#define KNOWN(text) { sizeof(text) - 1, text }

static bool is_known(const struct known_name *k, const uint8_t *name, size_t n)
{
	return k->n == n && !memcmp(k->text, name, n);
}

/* RFC 9113 §8.2, §8.3 for servers that accept any :authority; else nghttp2 has checked it. */
static bool header_is_wrong(struct h2_stream *s, const uint8_t *name, size_t name_len,
			    const uint8_t *value, size_t value_len)
{
	static const struct known_name pseudo[] = { KNOWN(":method"), KNOWN(":scheme"), KNOWN(":path"), KNOWN(":authority") };
	static const struct known_name banned[] = { KNOWN("connection"), KNOWN("keep-alive"), KNOWN("proxy-connection"),
						    KNOWN("transfer-encoding"), KNOWN("upgrade") };

	for (size_t i = 0; i < value_len; i++)
		if (value[i] <= '\r' && (value[i] == 0 || value[i] == '\r' || value[i] == '\n'))
			return true;
	if (name_len && name[0] == ':') {
		for (unsigned i = 0; i < ARRAY_SIZE(pseudo); i++) {
			if (!is_known(&pseudo[i], name, name_len))
				continue;
			if (s->head_done || s->pseudo_over || (s->pseudo_seen & BIT(i)))
				return true;
			s->pseudo_seen |= BIT(i);
			return i != 3 && !value_len;
		}
		return true;
	}
	s->pseudo_over = true;
	if (!nghttp2_check_header_name(name, name_len))
		return true;
	for (unsigned i = 0; i < ARRAY_SIZE(banned); i++)
		if (is_known(&banned[i], name, name_len))
			return true;
	if (name_len == 2 && !memcmp(name, "te", 2))
		return value_len != 8 || memcmp(value, "trailers", 8) != 0;
	return false;
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *f, const uint8_t *name,
		     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags, void *user)
{
	struct h2 *h = user;
	struct h2_stream *s = stream_of(h, f->hd.stream_id);
	int r;

	if (!s || s->head_cut)	/* the decoder goes on, so that the HPACK table stays in step */
		return 0;
	if (h->o.server && h->o.any_authority &&
	    header_is_wrong(s, name, name_len, value, value_len)) {
		s->head_wrong = true;
		return 0;
	}
	r = fields_add(s->head_done ? &s->trailers : &s->head, (const char *)name, name_len,
		       (const char *)value, value_len, flags & NGHTTP2_NV_FLAG_NO_INDEX);
	if (r == -ENOBUFS) {
		over_quota(h);
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	}
	s->head_cut = r == -EMSGSIZE && h->o.server && !s->head_done;
	return r < 0 && !s->head_cut ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE : 0;
}

static void peer_finished(struct h2_stream *s)
{
	s->ended = true;
	h2_note(s, H2_READY_END);
}

/* RFC 9113 §8.3.1: what came from HTTP/1.1 may say its host there instead; two hosts that differ are an attempt to be read twice. */
static void take_host(struct h2_stream *s)
{
	const char *host = fields_get(&s->head, "host"), *authority = fields_get(&s->head, ":authority");

	if (host && !authority)
		s->head_wrong = fields_put(&s->head, ":authority", host) < 0;
	else if (host)
		s->head_wrong = fields_find(&s->head, "host", (uint32_t)fields_find(&s->head, "host", 0) + 1) >= 0 ||
				!mem_eq_ci(host, strlen(host), authority);
}

static void headers_done(struct h2 *h, struct h2_stream *s, bool end)
{
	if (s->head_done) {
		s->trailers_done = true;
	} else if (h->o.server) {
		if (h->o.any_authority && !s->head_cut && (s->pseudo_seen & 7u) != 7u)
			s->head_wrong = true;
		else if (!h->o.any_authority && !s->head_cut)
			take_host(s);
		if (s->head_wrong) {
			(void)nghttp2_submit_rst_stream(h->ng, NGHTTP2_FLAG_NONE, s->id,
							NGHTTP2_PROTOCOL_ERROR);
			return;
		}
		s->head_done = true;
		s->announced = true;
		h2_note(s, H2_READY_HEAD);
	} else {
		const char *status = fields_get(&s->head, ":status");

		if (status && status[0] == '1' && !end) {
			spend(h, COST_FRAME);
			interims_put(&s->interims, &s->head);
			h2_note(s, H2_READY_HEAD);
			return;
		}
		s->head_done = true;
		h2_note(s, H2_READY_HEAD);
	}
	if (end)
		peer_finished(s);
}

static int on_begin_frame(nghttp2_session *ng, const nghttp2_frame_hd *hd, void *user)
{
	struct h2 *h = user;

	switch (hd->type) {
	case NGHTTP2_HEADERS:
		break;
	case NGHTTP2_DATA:
		if (!hd->length && !(hd->flags & NGHTTP2_FLAG_END_STREAM))
			spend(h, COST_FRAME);
		break;
	case NGHTTP2_SETTINGS:
		if (!(hd->flags & NGHTTP2_FLAG_ACK))
			spend(h, COST_SETTINGS);
		break;
	case NGHTTP2_RST_STREAM:
		break;
	default: /* PING, PRIORITY, WINDOW_UPDATE, CONTINUATION, GOAWAY, unknown ones */
		spend(h, COST_FRAME);
	}
	return 0;
}

static int64_t dear(const struct h2 *h)
{
	return MAX(h->o.glitch_burst / DEAR_RESETS, 1u);
}

static bool is_young(const struct h2_stream *s)
{
	return s->h->o.server && !s->responded && s->h->last_feed_ms - s->opened_ms < YOUNG_MS;
}

static int on_frame_recv(nghttp2_session *ng, const nghttp2_frame *f, void *user)
{
	struct h2 *h = user;
	struct h2_stream *s = f->hd.stream_id ? stream_of(h, f->hd.stream_id) : NULL;
	bool end = f->hd.flags & NGHTTP2_FLAG_END_STREAM;

	switch (f->hd.type) {
	case NGHTTP2_HEADERS:
		if (s && !s->closed)
			headers_done(h, s, end);
		break;
	case NGHTTP2_DATA:
		h->data_taken += f->data.padlen;
		if (s && !s->closed && end)
			peer_finished(s);
		break;
	case NGHTTP2_SETTINGS:
		if (f->hd.flags & NGHTTP2_FLAG_ACK)
			h->settings_ack_by_ms = 0;
		else
			h->settings_received = true;
		break;
	case NGHTTP2_PING:
		if (f->hd.flags & NGHTTP2_FLAG_ACK)
			h->pings_acked++;
		break;
	case NGHTTP2_GOAWAY:
		h->goaway_seen = true;
		h->goaway_code = f->goaway.error_code;
		h->goaway_last = (uint32_t)f->goaway.last_stream_id;
		break;
	case NGHTTP2_RST_STREAM:
		spend(h, s && is_young(s) ? dear(h) : COST_RESET);
		break;
	default:
		break;
	}
	return 0;
}

static int on_data_chunk(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
			 void *user)
{
	struct h2 *h = user;
	struct h2_stream *s = stream_of(h, id);
	int r;

	(void)nghttp2_session_consume_connection(ng, n);
	h->data_taken += n;
	progress(h, n);
	if (!s || s->released || s->closed) {
		(void)nghttp2_session_consume_stream(ng, id, n);
		return 0;
	}
	r = chain_put(&s->in, p, n, MIN(h->feed_left, (size_t)s->window));
	if (r == -ENOBUFS)
		over_quota(h);
	if (r < 0) {
		h2_stream_reset(s, H2_INTERNAL_ERROR);
		return h->over_quota ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
	}
	h2_note(s, H2_READY_DATA);
	return 0;
}

static int on_stream_close(nghttp2_session *ng, int32_t id, uint32_t code, void *user)
{
	struct h2 *h = user;
	struct h2_stream *s = stream_of(h, id);
	enum h2_close how = H2_CLOSE_RESET;

	if (!s || s->closed)
		return 0;
	if (s->reset_by_us)
		how = H2_CLOSE_LOCAL;
	else if (code == NGHTTP2_NO_ERROR && s->ended)
		how = H2_CLOSE_CLEAN;
	else if (!s->sent || (code == NGHTTP2_REFUSED_STREAM && !s->head_done))
		how = H2_CLOSE_REFUSED;
	nghttp2_session_set_stream_user_data(ng, id, NULL);
	forget_last(s);
	h2_stream_close_as(s, how, code);
	return 0;
}

static int before_frame_send(nghttp2_session *ng, const nghttp2_frame *f, void *user)
{
	struct h2_stream *s;

	if (f->hd.type == NGHTTP2_HEADERS) {
		s = stream_of(user, f->hd.stream_id);
		if (s)
			s->sent = true;
	} else if (f->hd.type == NGHTTP2_RST_STREAM) {
		s = stream_of(user, f->hd.stream_id);
		if (s && !s->reset_by_us) {
			spend(user, dear(user));
			h2_expect_stray(user);
		}
	}
	return 0;
}

static size_t output_bytes(const struct h2 *h)
{
	return quota_spare(h->o.quota) / QUOTA_PARTS < OUTPUT_BYTES ? OUTPUT_SHORT : OUTPUT_BYTES;
}

static bool output_is_full(const struct h2 *h)
{
	size_t n = buf_len(&h->out);

	return n >= OUTPUT_SHORT && n >= output_bytes(h);
}

/* One block for all that a call of h2_output() gathers, when it is much. */
static void make_output_room(struct h2 *h, const struct h2_stream *s)
{
	if (!h->out.cap && chain_len(&s->out) >= OUTPUT_BYTES / 2 && output_bytes(h) == OUTPUT_BYTES)
		(void)!buf_reserve(&h->out, OUTPUT_BYTES + FRAME_MAX_BYTES, true);	/* else it grows */
}

static int put_frame(struct h2 *h, struct h2_stream *s, const uint8_t *head, size_t n)
{
	const uint8_t *p;
	int r;

	make_output_room(h, s);
	r = buf_put(&h->out, head, FRAME_HEAD_BYTES);
	while (n && r == 0) {
		size_t k = MIN(chain_peek(&s->out, &p), n);

		r = buf_put(&h->out, p, k);
		chain_drop(&s->out, k);
		n -= k;
	}
	return r;
}

static int on_send_data(nghttp2_session *ng, nghttp2_frame *f, const uint8_t *head, size_t n,
			nghttp2_data_source *src, void *user)
{
	struct h2 *h = user;
	struct h2_stream *s = src->ptr;

	if (output_is_full(h))
		return NGHTTP2_ERR_WOULDBLOCK;
	must(chain_len(&s->out) >= n);
	if (put_frame(h, s, head, n) < 0)
		return NGHTTP2_ERR_CALLBACK_FAILURE; /* out of memory: the connection cannot go on */
	progress(h, n);
	refund(h, REFUND_DATA);
	if (s->room_wanted && h2_stream_room(s) >= h2_send_max(h) / 2) {
		s->room_wanted = false;
		h2_note(s, H2_READY_ROOM);
	}
	return 0;
}

/* Unknown frames are ignored, but through here, so that they are counted. */
static int on_unknown_chunk(nghttp2_session *ng, const nghttp2_frame_hd *hd, const uint8_t *p,
			    size_t n, void *user)
{
	return 0;
}

static int on_unknown_frame(nghttp2_session *ng, void **ret, const nghttp2_frame_hd *hd, void *user)
{
	return NGHTTP2_ERR_CANCEL;
}

/* --- nghttp2's memory: charged before it is held, wiped where heads hold secrets --- */

static size_t block_bytes(void *p)
{
	return malloc_usable_size(p) + sizeof(size_t);
}

static void *ng_malloc(size_t n, void *user)
{
	struct h2 *h = user;
	void *p;

	if (!h->ending && !quota_fits(h->o.quota, n)) {
		over_quota(h);
		return NULL;
	}
	p = malloc(n);
	if (p)		/* exactly: the heap rounds up */
		quota_add(h->o.quota, block_bytes(p));
	return p;
}

static void *ng_calloc(size_t n, size_t size, void *user)
{
	size_t all;
	void *p = __builtin_mul_overflow(n, size, &all) ? NULL : ng_malloc(all, user);

	return p ? memset(p, 0, all) : NULL;
}

static void ng_free(void *p, void *user)
{
	struct h2 *h = user;

	if (!p)
		return;
	quota_give(h->o.quota, block_bytes(p));
	if (h->o.wipes)
		explicit_bzero(p, malloc_usable_size(p));
	free(p);
}

static void *ng_realloc(void *p, size_t n, void *user)
{
	size_t have = p ? malloc_usable_size(p) : 0;
	void *q;

	if (p && n <= have)
		return p;
	q = ng_malloc(n, user);
	if (q && p) {
		memcpy(q, p, have);
		ng_free(p, user);
	}
	return q;
}

/* --- the connection --- */

static int make_session(struct h2 *h)
{
	nghttp2_session_callbacks *cb = NULL;
	nghttp2_option *opt = NULL;
	nghttp2_mem ours = { .mem_user_data = h, .malloc = ng_malloc, .calloc = ng_calloc,
			     .realloc = ng_realloc, .free = ng_free };
	nghttp2_mem *mem = h->o.wipes || h->o.quota ? &ours : NULL;
	int r = -ENOMEM;

	if (nghttp2_session_callbacks_new(&cb) || nghttp2_option_new(&opt))
		goto out;
	nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
	nghttp2_session_callbacks_set_on_begin_frame_callback(cb, on_begin_frame);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data_chunk);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
	nghttp2_session_callbacks_set_before_frame_send_callback(cb, before_frame_send);
	nghttp2_session_callbacks_set_send_data_callback(cb, on_send_data);
	nghttp2_session_callbacks_set_on_extension_chunk_recv_callback(cb, on_unknown_chunk);
	nghttp2_session_callbacks_set_unpack_extension_callback(cb, on_unknown_frame);
	for (unsigned type = NGHTTP2_CONTINUATION + 1; type <= UINT8_MAX; type++)
		nghttp2_option_set_user_recv_extension_type(opt, (uint8_t)type);
	nghttp2_option_set_no_auto_window_update(opt, 1);
	nghttp2_option_set_no_closed_streams(opt, 1);
	nghttp2_option_set_max_settings(opt, 32);
	nghttp2_option_set_peer_max_concurrent_streams(opt, PRE_SETTINGS_STREAMS);
	nghttp2_option_set_max_continuations(opt, 8);
	/* Ours counts resets by what they cost; the library's is the backstop. */
	nghttp2_option_set_stream_reset_rate_limit(opt, 4000, 400);
	if (h->o.server && h->o.any_authority)
		nghttp2_option_set_no_http_messaging(opt, 1);
	if (h->o.server)
		r = nghttp2_session_server_new3(&h->ng, cb, h, opt, mem);
	else
		r = nghttp2_session_client_new3(&h->ng, cb, h, opt, mem);
	r = r ? -ENOMEM : 0;
out:
	nghttp2_session_callbacks_del(cb);
	nghttp2_option_del(opt);
	return r;
}

uint32_t h2_first_window(const struct h2 *h)
{
	return h->o.quota ? MIN(h->o.stream_window, H2_FIRST_WINDOW) : h->o.stream_window;
}

static int send_settings(struct h2 *h)
{
	nghttp2_settings_entry e[4];
	size_t n = 0;

	e[n++] = (nghttp2_settings_entry){ NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, h2_first_window(h) };
	e[n++] = (nghttp2_settings_entry){ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, h->o.head_max_bytes };
	if (h->o.server)
		e[n++] = (nghttp2_settings_entry){ NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
						   h->o.max_streams };
	else
		e[n++] = (nghttp2_settings_entry){ NGHTTP2_SETTINGS_ENABLE_PUSH, 0 };
	if (nghttp2_submit_settings(h->ng, NGHTTP2_FLAG_NONE, e, n) ||
	    nghttp2_session_set_local_window_size(h->ng, NGHTTP2_FLAG_NONE, 0,
						  (int32_t)h->o.conn_window))
		return -ENOMEM;
	return 0;
}

static struct h2 *h2_make(struct quota *q)
{
	struct h2 *h;

	if (quota_take(q, sizeof(*h)) < 0)
		return NULL;
	h = calloc(1, sizeof(*h));
	if (!h)
		quota_give(q, sizeof(*h));
	return h;
}

int h2_new(const struct h2_options *o, uint64_t now_ms, struct h2 **ret)
{
	struct h2 *h = h2_make(o->quota);
	int r;

	if (!h)
		return -ENOMEM;
	h->o = *o;
	if (!h->o.max_streams)
		h->o.max_streams = 100;
	if (!h->o.stream_window)
		h->o.stream_window = 256 * 1024;
	if (!h->o.conn_window)
		h->o.conn_window = MAX(16 * h->o.stream_window, 1024u * 1024);
	if (!h->o.send_max)
		h->o.send_max = 256 * 1024;
	if (!h->o.head_max_n)
		h->o.head_max_n = 64;
	if (!h->o.head_max_bytes)
		h->o.head_max_bytes = 16 * 1024;
	if (!h->o.glitch_burst)	/* a client may give up all it has open at once, and again soon */
		h->o.glitch_burst = MAX(1000u, 2 * h->o.max_streams);
	if (!h->o.glitch_per_s)
		h->o.glitch_per_s = 50;
	h->tokens = h->o.glitch_burst;
	h->refilled_ms = h->last_feed_ms = now_ms;
	h->settings_ack_by_ms = now_ms + H2_SETTINGS_ACK_MS;
	h->stray_max = STRAY_SLACK_BYTES;
	h2_block_init(&h->block, h->o.server ? H2_PREFACE_BYTES : 0);
	list_init(&h->streams);
	list_init(&h->ready);
	buf_init(&h->out, 0);
	buf_set_quota(&h->out, o->quota);
	r = make_session(h);
	if (!r)
		r = send_settings(h);
	if (r < 0) {
		h2_free(h);
		return r;
	}
	*ret = h;
	return 0;
}

struct h2 *h2_free(struct h2 *h)
{
	if (!h)
		return NULL;
	while (!list_is_empty(&h->streams))
		h2_stream_destroy(list_entry(h->streams.next, struct h2_stream, node));
	nghttp2_session_del(h->ng);
	buf_fini(&h->out);
	quota_give(h->o.quota, sizeof(*h));
	free(h);
	return NULL;
}

/* nghttp2 calls nobody back when a session ends: our own table finishes every stream. Never from inside one
 * of nghttp2's calls. */
static void die(struct h2 *h, const char *why)
{
	if (h->dead)
		return;
	h->dead = true;
	if (!h->why[0])
		snprintf(h->why, sizeof(h->why), "%s", why);
	list_for_each_safe(n, &h->streams) {
		struct h2_stream *s = list_entry(n, struct h2_stream, node);

		if (s->closed)
			continue;
		h2_stream_close_as(s, s->sent ? H2_CLOSE_LOST : H2_CLOSE_REFUSED, H2_NO_ERROR);
	}
	/* What it holds goes now, not only when the last words are out. */
	nghttp2_session_del(h->ng);
	h->ng = NULL;
}

/* Everything nghttp2 wants to say, into our buffer. */
static int gather(struct h2 *h)
{
	while (!output_is_full(h)) {
		const uint8_t *p;
		size_t before = buf_len(&h->out);
		ssize_t n = nghttp2_session_mem_send(h->ng, &p);

		if (n < 0)
			return n == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPROTO;
		if (n == 0 && buf_len(&h->out) == before)
			break;
		if (buf_put(&h->out, p, (size_t)n) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* The last words are not charged: there are about OUTPUT_BYTES of them, and they must be said. */
static void begin_end(struct h2 *h)
{
	if (h->ending)
		return;
	h->ending = true;
	quota_give(h->o.quota, h->out.cap);
	buf_set_quota(&h->out, NULL);
}

/* GOAWAY, and the end. The last output is gathered while the streams it may touch still exist. */
static int h2_fail(struct h2 *h, uint32_t code, const char *why)
{
	begin_end(h);
	if (code != H2_NO_ERROR)
		(void)nghttp2_session_terminate_session(h->ng, code);
	(void)gather(h);
	die(h, why);
	return -EPROTO;
}

/* What was on its way when we reset a stream is at most its window; a peer that goes on sends for ever. */
static void look_for_strays(struct h2 *h)
{
	if (h->block.data_bytes - h->data_taken > h->stray_max)
		abuse(h, "the peer goes on sending on streams that were reset");
}

void h2_expect_stray(struct h2 *h)
{
	h->stray_max += h->o.stream_window;
}

static const char *why_over(const struct h2 *h)
{
	return h->goaway_seen ? "the peer went away and nothing is left to do" :
	       h->goaway_sent ? "drained" :
				"the peer broke the protocol";
}

/* The block that is open now: since when? */
static void follow(struct h2 *h, const uint8_t *p, size_t n, uint64_t now_ms)
{
	if (h2_block_feed(&h->block, p, n))
		h->block_by_ms = 0;
	if (!h->block.open)
		h->block_by_ms = 0;
	else if (!h->block_by_ms)
		h->block_by_ms = now_ms + H2_BLOCK_MS;
}

uint64_t h2_due_ms(const struct h2 *h)
{
	if (h->dead)
		return 0;
	if (!h->block_by_ms || !h->settings_ack_by_ms)
		return MAX(h->block_by_ms, h->settings_ack_by_ms);
	return MIN(h->block_by_ms, h->settings_ack_by_ms);
}

int h2_expire(struct h2 *h, uint64_t now_ms)
{
	if (h->dead)
		return -EPROTO;
	if (h->block_by_ms && now_ms >= h->block_by_ms)
		return h2_fail(h, H2_PROTOCOL_ERROR,
			       "the peer began a header block and did not finish it");
	if (h->settings_ack_by_ms && now_ms >= h->settings_ack_by_ms)
		return h2_fail(h, H2_SETTINGS_TIMEOUT, "the peer does not acknowledge our SETTINGS");
	return 0;
}

void h2_lost(struct h2 *h)
{
	die(h, "the peer closed the connection");
}

int h2_feed(struct h2 *h, const void *data, size_t n, uint64_t now_ms)
{
	const uint8_t *p = data;

	if (h->dead)
		return -EPROTO;
	h->last_feed_ms = now_ms;
	refill(h, now_ms);
	follow(h, p, n, now_ms);
	while (n) {
		size_t k = MIN(n, (size_t)FEED_SLICE_BYTES);
		ssize_t r;

		h->feed_left = n;
		r = nghttp2_session_mem_recv(h->ng, p, k);
		if (h->abused)
			return h2_fail(h, H2_ENHANCE_YOUR_CALM, "");
		if (r < 0) {
			(void)h2_fail(h, H2_PROTOCOL_ERROR, nghttp2_strerror((int)r));
			return r == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPROTO;
		}
		p += r;
		n -= (size_t)r;
	}
	look_for_strays(h);
	if (h->abused)
		return h2_fail(h, H2_ENHANCE_YOUR_CALM, "");
	if (!nghttp2_session_want_read(h->ng))
		return h2_fail(h, H2_NO_ERROR, why_over(h));
	return 0;
}

int h2_output(struct h2 *h, const uint8_t **ret, size_t *ret_n)
{
	int r = h->dead ? 0 : gather(h);

	if (r < 0) {
		begin_end(h);
		die(h, "the outgoing side failed");
		return r;
	}
	/* For most breaches of the protocol nghttp2 only queues a GOAWAY, and is done when that is out. */
	if (!h->dead && !nghttp2_session_want_read(h->ng))
		die(h, why_over(h));
	*ret = buf_data(&h->out);
	*ret_n = buf_len(&h->out);
	return 0;
}

void h2_sent(struct h2 *h, size_t n)
{
	buf_drop(&h->out, n);
}

bool h2_wants_output(const struct h2 *h)
{
	return buf_len(&h->out) || (!h->dead && nghttp2_session_want_write(h->ng));
}

bool h2_is_dead(const struct h2 *h)
{
	return h->dead;
}

const char *h2_why(const struct h2 *h)
{
	return h->why;
}

bool h2_settings_received(const struct h2 *h)
{
	return h->settings_received;
}

uint32_t h2_open_streams(const struct h2 *h)
{
	return h->n_open;
}

uint32_t h2_send_max(const struct h2 *h)
{
	uint64_t part = MAX(quota_spare(h->o.quota) / QUOTA_PARTS, (uint64_t)H2_LEAST_ROOM);

	return (uint32_t)MIN(part, (uint64_t)h->o.send_max);
}

bool h2_is_over_quota(const struct h2 *h)
{
	return h->over_quota;
}

uint32_t h2_peer_max_streams(const struct h2 *h)
{
	if (!h->settings_received || h->dead)
		return PRE_SETTINGS_STREAMS;
	return nghttp2_session_get_remote_settings(h->ng, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
}

uint32_t h2_free_streams(const struct h2 *h)
{
	uint32_t max = h2_peer_max_streams(h);

	if (h->dead || h->goaway_seen || h->goaway_sent || h->o.server ||
	    !nghttp2_session_check_request_allowed(h->ng))
		return 0;
	return h->n_open >= max ? 0 : max - h->n_open;
}

bool h2_goaway_seen(const struct h2 *h, uint32_t *ret_code)
{
	if (h->goaway_seen && ret_code)
		*ret_code = h->goaway_code;
	return h->goaway_seen;
}

bool h2_recycled(const struct h2 *h)
{
	return h->goaway_seen && h->goaway_code == H2_NO_ERROR && h->goaway_last;
}

void h2_goaway(struct h2 *h, uint32_t code)
{
	int32_t last;

	if (h->dead)
		return;
	last = nghttp2_session_get_last_proc_stream_id(h->ng);
	/* Failing to queue it means no memory; the owner closes the connection all the same. */
	if (code != H2_NO_ERROR)
		(void)nghttp2_session_terminate_session(h->ng, code);
	else if (h->o.server && !h->goaway_sent)
		(void)nghttp2_submit_shutdown_notice(h->ng);
	else
		(void)nghttp2_submit_goaway(h->ng, NGHTTP2_FLAG_NONE, last, code, NULL, 0);
	h->goaway_sent = true;
}

int h2_ping(struct h2 *h)
{
	return h->dead || nghttp2_submit_ping(h->ng, NGHTTP2_FLAG_NONE, NULL) ? -EPIPE : 0;
}

uint32_t h2_pings_acked(const struct h2 *h)
{
	return h->pings_acked;
}

struct h2_stream *h2_next_ready(struct h2 *h)
{
	struct h2_stream *s = list_first(&h->ready, struct h2_stream, ready);

	if (s)
		list_del(&s->ready);
	return s;
}

bool h2_has_ready(const struct h2 *h)
{
	return !list_is_empty(&h->ready);
}
