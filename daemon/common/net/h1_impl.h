/* SPDX-License-Identifier: MIT */
/* Inside of HTTP/1.1 connections, shared by h1conn.c and h1stream.c only. */
#ifndef AB_DAEMON_COMMON_NET_H1_IMPL_H
#define AB_DAEMON_COMMON_NET_H1_IMPL_H

#include "daemon/common/net/http_impl.h"
#include "proto/base/buf.h"
#include "proto/wire/http1.h"
#include "proto/wire/interims.h"

enum h1_phase {
	H1_HEAD,	/* of the next message */
	H1_BODY,
	H1_WAIT,	/* the peer's message is complete (or, client: none is expected) */
	H1_TUNNEL,	/* after an upgrade: bytes, to the end of the connection */
};

struct h1 {
	struct http_conn *c;
	struct buf in;		/* read and not yet understood */
	struct buf out;
	struct http1_head head;
	struct http1_body body;
	enum h1_phase phase;
	struct h1_stream *x;		/* the current exchange */
	struct h1_stream *next;	/* server: its head is being read */
	struct list ready;	/* exchanges that are ready */
	uint32_t window, send_max;
	unsigned interims;
	bool keep_alive;
	bool eof;		/* the peer said its last byte, and that was in order */
};

struct h1_stream {
	struct http_stream x;
	struct list ready;
	struct fields head, trailers;	/* received */
	struct interims interims;	/* client: not taken yet */
	struct buf body;		/* received, not consumed */
	bool head_done, ended, announced;
	/* sending */
	bool responded, finished;
	bool chunked;
	bool has_left;			/* a content-length was promised: `left` of it */
	bool bodyless;			/* HEAD, 204, 304: what is written goes nowhere */
	bool to_head;			/* client: the request was HEAD */
	bool http10, expect, room_wanted, sent;
	bool can_upgrade;		/* server: the client asks; client: we did */
	bool tunnel, shut;		/* shut: the end of our direction is out */
	uint64_t left;
	enum http_close how;
	uint32_t code;
};

static inline struct h1 *h1_of(const struct http_conn *c)
{
	return c->engine;
}

/* h1conn.c */
void h1_close_x(struct h1 *h, struct h1_stream *x, enum http_close how, uint32_t code);
void h1_note(struct h1 *h, struct h1_stream *x);
bool h1_end_released(struct h1 *h, struct h1_stream *x);
void h1_pause(struct h1 *h);
/* The upgrade was agreed on. */
void h1_tunnel(struct h1 *h, struct h1_stream *x);

/* h1stream.c */
struct h1_stream *h1_stream_new(struct http_conn *c);
void h1_stream_destroy(struct h1_stream *x);
must_check int h1_stream_send_request(struct h1 *h, struct h1_stream *x, const struct fields *head,
				      bool end);
const struct fields *h1_stream_head(const struct http_stream *x);
const struct fields *h1_stream_trailers(const struct http_stream *x);
size_t h1_stream_peek(struct http_stream *x, const uint8_t **ret);
size_t h1_stream_buffered(const struct http_stream *x);
void h1_stream_consume(struct http_stream *x, size_t n);
bool h1_stream_ended(const struct http_stream *x);
bool h1_stream_at_end(const struct http_stream *x);
int h1_stream_respond(struct http_stream *x, const struct fields *head, bool end);
bool h1_stream_next_interim(struct http_stream *x, struct fields *ret);
bool h1_stream_awaits_continue(const struct http_stream *x);
bool h1_stream_can_upgrade(const struct http_stream *x);
size_t h1_stream_room(const struct http_stream *x);
size_t h1_stream_unsent(const struct http_stream *x);
int h1_stream_write(struct http_stream *x, const void *p, size_t n);
int h1_stream_finish(struct http_stream *x, const struct fields *trailers);
void h1_stream_reset(struct http_stream *x, uint32_t code);
void h1_stream_release(struct http_stream *x);
enum http_close h1_stream_closed(const struct http_stream *x, uint32_t *ret_code);
bool h1_stream_was_sent(const struct http_stream *x);

#endif
