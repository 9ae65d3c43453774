/* SPDX-License-Identifier: MIT */
/* What a stream's owner calls: heads, bytes with credit both ways, and its end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/must.h"
#include "proto/wire/h2_impl.h"

#define NV_INLINE  24u
#define GROWTH_MAX (1024u * 1024)	/* of a window, at once */
#define CREDIT_MAX (256u * 1024)	/* taken, and not told to the peer yet */

/* nghttp2 copies names and values at submit, but of what lasts, so the array is only borrowed. */
static nghttp2_nv *make_nv(const struct fields *f, nghttp2_nv inline_nv[NV_INLINE])
{
	nghttp2_nv *nv = f->n <= NV_INLINE ? inline_nv : malloc(f->n * sizeof(*nv));
	uint8_t flags = f->lasting ? NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE : NGHTTP2_NV_FLAG_NONE;

	if (!nv)
		return NULL;
	for (uint32_t i = 0; i < f->n; i++)
		nv[i] = (nghttp2_nv){
			.name = (uint8_t *)f->text + f->v[i].name_at,
			.namelen = f->v[i].name_len,
			.value = (uint8_t *)f->text + f->v[i].value_at,
			.valuelen = f->v[i].value_len,
			.flags = (uint8_t)(f->v[i].secret ? flags | NGHTTP2_NV_FLAG_NO_INDEX : flags),
		};
	return nv;
}

static void free_nv(nghttp2_nv *nv, nghttp2_nv *inline_nv)
{
	if (nv != inline_nv)
		free(nv);
}

static int submit_trailers(struct h2_stream *s)
{
	scratch_ nghttp2_nv some[NV_INLINE];
	nghttp2_nv *nv = make_nv(s->last_words, some);
	int r;

	if (!nv)
		return -ENOMEM;
	r = nghttp2_submit_trailer(s->h->ng, s->id, nv, s->last_words->n);
	free_nv(nv, some);
	return r ? -ENOMEM : 0;
}

/* Tells nghttp2 how much may go; the bytes themselves are taken in h2.c's on_send_data. */
static ssize_t read_body(nghttp2_session *ng, int32_t id, uint8_t *unused, size_t max,
			 uint32_t *flags, nghttp2_data_source *src, void *user)
{
	struct h2_stream *s = src->ptr;
	size_t n = MIN(max, chain_len(&s->out));

	if (!n && !s->finished) {
		s->deferred = true;
		return NGHTTP2_ERR_DEFERRED;
	}
	*flags |= NGHTTP2_DATA_FLAG_NO_COPY;
	if (s->finished && n == chain_len(&s->out)) {
		*flags |= NGHTTP2_DATA_FLAG_EOF;
		if (s->last_words) {
			*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
			if (submit_trailers(s) < 0)
				return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
		}
	}
	return (ssize_t)n;
}

int h2_request(struct h2 *h, const struct fields *head, bool end, void *user, struct h2_stream **ret)
{
	scratch_ nghttp2_nv some[NV_INLINE];
	nghttp2_nv *nv;
	nghttp2_data_provider body = { .read_callback = read_body };
	struct h2_stream *s;

	if (!h2_free_streams(h))
		return -EAGAIN;
	s = h2_stream_make(h);
	if (!s)
		return -ENOMEM;
	nv = make_nv(head, some);
	if (nv) {
		body.source.ptr = s;
		s->id = nghttp2_submit_request(h->ng, NULL, nv, head->n, end ? NULL : &body, s);
		free_nv(nv, some);
	}
	if (!nv || s->id < 0) {
		h2_stream_destroy(s);
		return -ENOMEM;
	}
	s->user = user;
	s->announced = true;
	s->finished = end;
	*ret = s;
	return 0;
}

int h2_respond(struct h2_stream *s, const struct fields *head, bool end)
{
	scratch_ nghttp2_nv some[NV_INLINE];
	nghttp2_nv *nv;
	nghttp2_data_provider body = { .source.ptr = s, .read_callback = read_body };
	const char *status = fields_get(head, ":status");
	int r;

	must(status && !s->responded);
	if (s->closed)
		return -EPIPE;
	nv = make_nv(head, some);
	if (!nv)
		return -ENOMEM;
	if (status[0] == '1') {
		r = nghttp2_submit_headers(s->h->ng, NGHTTP2_FLAG_NONE, s->id, NULL, nv, head->n, NULL) < 0;
	} else {
		s->responded = true;
		s->finished = end;
		r = nghttp2_submit_response(s->h->ng, s->id, nv, head->n, end ? NULL : &body);
	}
	free_nv(nv, some);
	return r ? -ENOMEM : 0;
}

void *h2_stream_user(const struct h2_stream *s)
{
	return s->user;
}

void h2_stream_set_user(struct h2_stream *s, void *user)
{
	s->user = user;
}

uint32_t h2_stream_id(const struct h2_stream *s)
{
	return (uint32_t)s->id;
}

struct h2 *h2_stream_conn(const struct h2_stream *s)
{
	return s->h;
}

unsigned h2_stream_take_ready(struct h2_stream *s)
{
	unsigned flags = s->ready_flags;

	s->ready_flags = 0;
	return flags;
}

const struct fields *h2_stream_head(const struct h2_stream *s)
{
	return s->head_done && !s->head_dropped ? &s->head : NULL;
}

bool h2_stream_next_interim(struct h2_stream *s, struct fields *ret)
{
	return interims_next(&s->interims, ret);
}

bool h2_stream_head_is_cut(const struct h2_stream *s)
{
	return s->head_cut;
}

void h2_stream_drop_head(struct h2_stream *s)
{
	must(s->head_done);
	s->head_dropped = true;
	fields_fini(&s->head);
}

const struct fields *h2_stream_trailers(const struct h2_stream *s)
{
	return s->trailers_done ? &s->trailers : NULL;
}

size_t h2_stream_peek(const struct h2_stream *s, const uint8_t **ret)
{
	return chain_peek(&s->in, ret);
}

int h2_stream_pull(struct h2_stream *s, size_t n)
{
	return chain_pull(&s->in, n);
}

size_t h2_stream_buffered(const struct h2_stream *s)
{
	return chain_len(&s->in);
}

/* Four times what it is, by GROWTH_MAX at most: larger steps than that are more than a part of what is spare. */
static uint32_t larger_window(const struct h2_stream *s)
{
	uint64_t to = s->window + MIN(3ull * s->window, (uint64_t)GROWTH_MAX);

	return (uint32_t)MIN(to, (uint64_t)s->h->o.stream_window);
}

/*
 * The line is what its owner waits for: more in the window would only lie here. Until the peer knows our SETTINGS it and nghttp2
 * count from another window than ours.
 */
static bool may_grow(const struct h2_stream *s)
{
	return !s->h->settings_ack_by_ms && s->h->last_feed_ms - s->taken_since_ms < H2_GROWS_MS &&
	       chain_len(&s->in) <= s->window / 4;
}

/* The window of a stream whose owner reads fast, as far as the quota lets us promise it. */
static void h2_stream_grow(struct h2_stream *s, size_t n)
{
	struct quota *q = s->h->o.quota;
	uint32_t to = larger_window(s), more = to - s->window;

	s->taken += n;
	if (s->taken < s->window / 2)
		return;
	s->taken = 0;
	if (more && may_grow(s) && quota_promise(q, more)) {
		if (nghttp2_session_set_local_window_size(s->h->ng, NGHTTP2_FLAG_NONE, s->id, (int32_t)to))
			quota_unpromise(q, more);
		else
			s->window = to;
	}
	s->taken_since_ms = s->h->last_feed_ms;
}

/* In pieces: the peer of a long line stands still until half of a large window, for which nghttp2 waits, was read. */
static void give_credit(struct h2_stream *s, size_t n)
{
	s->owed += (uint32_t)n;
	if (s->owed < MIN(s->window / 2, CREDIT_MAX))
		return;
	if (!nghttp2_submit_window_update(s->h->ng, NGHTTP2_FLAG_NONE, s->id, (int32_t)s->owed))
		s->owed = 0;
}

void h2_stream_consume(struct h2_stream *s, size_t n)
{
	chain_drop(&s->in, n);
	if (!n || s->closed || s->ended)
		return;
	give_credit(s, n);
	if (s->h->o.quota)
		h2_stream_grow(s, n);
}

bool h2_stream_ended(const struct h2_stream *s)
{
	return s->ended;
}

bool h2_stream_at_end(const struct h2_stream *s)
{
	return s->ended && !chain_len(&s->in);
}

size_t h2_stream_unsent(const struct h2_stream *s)
{
	return chain_len(&s->out);
}

size_t h2_stream_room(struct h2_stream *s)
{
	size_t n = chain_len(&s->out), max = h2_send_max(s->h);

	if (s->closed || s->finished)
		return 0;
	s->room_wanted |= n >= max;	/* it may be more now than when it was written */
	return n >= max ? 0 : max - n;
}

static int resume(struct h2_stream *s)
{
	if (!s->deferred)
		return 0;
	s->deferred = false;
	return nghttp2_session_resume_data(s->h->ng, s->id) == NGHTTP2_ERR_NOMEM ? -ENOMEM : 0;
}

uint8_t *h2_stream_space(struct h2_stream *s, size_t n)
{
	return s->closed || s->finished ? NULL : chain_space(&s->out, n);
}

static int stream_grew(struct h2_stream *s)
{
	size_t n = chain_len(&s->out);

	if (n >= MIN(H2_LEAST_ROOM, s->h->o.send_max) && n >= h2_send_max(s->h))
		s->room_wanted = true;
	return resume(s);
}

int h2_stream_added(struct h2_stream *s, size_t n)
{
	chain_added(&s->out, n);
	return stream_grew(s);
}

int h2_stream_write(struct h2_stream *s, const void *p, size_t n)
{
	int r;

	if (s->closed || s->finished)
		return -EPIPE;
	r = chain_put(&s->out, p, n, n);
	return r < 0 ? r : stream_grew(s);
}

static int keep_trailers(struct h2_stream *s, const struct fields *trailers)
{
	int r = trailers->lasting ? 0 : fields_append(&s->trailers_out, trailers, 0);

	if (!r)
		s->last_words = trailers->lasting ? trailers : &s->trailers_out;
	return r;
}

int h2_stream_finish(struct h2_stream *s, const struct fields *trailers)
{
	int r;

	if (s->closed || s->finished)
		return -EPIPE;
	r = trailers && trailers->n ? keep_trailers(s, trailers) : 0;
	if (r < 0)
		return r;
	s->finished = true;
	return resume(s);
}

void h2_stream_reset(struct h2_stream *s, uint32_t code)
{
	if (s->closed || s->reset_by_us)
		return;
	s->reset_by_us = true;
	if (!s->ended)
		h2_expect_stray(s->h);
	s->finished = true;
	/* Without memory the stream stays until the connection ends; the owner is done with it. */
	(void)nghttp2_submit_rst_stream(s->h->ng, NGHTTP2_FLAG_NONE, s->id, code);
}

enum h2_close h2_stream_closed(const struct h2_stream *s, uint32_t *ret_code)
{
	if (ret_code)
		*ret_code = s->code;
	return s->closed;
}

bool h2_stream_was_sent(const struct h2_stream *s)
{
	return s->sent;
}

void h2_stream_release(struct h2_stream *s)
{
	must(!s->released);
	if (s->closed) {
		h2_stream_destroy(s);
		return;
	}
	s->released = true;
	list_del(&s->ready);
	chain_fini(&s->in);
	if (!s->ended || !s->finished)
		h2_stream_reset(s, H2_CANCEL);
}
