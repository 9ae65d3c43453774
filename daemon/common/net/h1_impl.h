/* SPDX-License-Identifier: MIT */
/* Inside of HTTP/1.1 connections, shared by h1conn.c and h1x.c only. */
#ifndef AB_DAEMON_COMMON_NET_H1_IMPL_H
#define AB_DAEMON_COMMON_NET_H1_IMPL_H

#include "daemon/common/net/http_impl.h"
#include "proto/base/buf.h"
#include "proto/wire/http1.h"

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
	struct h1_x *x;		/* the current exchange */
	struct h1_x *next;	/* server: its head is being read */
	struct list ready;	/* exchanges with news */
	uint32_t window, send_max;
	unsigned interims;
	bool keep_alive;
	bool eof;		/* the peer said its last byte, and that was in order */
};

struct h1_x {
	struct http_x x;
	struct list ready;
	struct fields head, trailers;	/* received */
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
void h1_close_x(struct h1 *h, struct h1_x *x, enum http_close how, uint32_t code);
void h1_note(struct h1 *h, struct h1_x *x);
bool h1_end_released(struct h1 *h, struct h1_x *x);
void h1_pause(struct h1 *h);
/* The upgrade was agreed on. */
void h1_tunnel(struct h1 *h, struct h1_x *x);

/* h1x.c */
struct h1_x *h1x_new(struct http_conn *c);
void h1x_destroy(struct h1_x *x);
must_check int h1x_send_request(struct h1 *h, struct h1_x *x, const struct fields *head, bool end);
const struct fields *h1x_head(const struct http_x *x);
const struct fields *h1x_trailers(const struct http_x *x);
size_t h1x_peek(struct http_x *x, const uint8_t **ret);
void h1x_consume(struct http_x *x, size_t n);
bool h1x_ended(const struct http_x *x);
bool h1x_at_end(const struct http_x *x);
int h1x_respond(struct http_x *x, const struct fields *head, bool end);
bool h1x_can_upgrade(const struct http_x *x);
size_t h1x_room(const struct http_x *x);
size_t h1x_unsent(const struct http_x *x);
int h1x_write(struct http_x *x, const void *p, size_t n);
int h1x_finish(struct http_x *x, const struct fields *trailers);
void h1x_reset(struct http_x *x, uint32_t code);
void h1x_release(struct http_x *x);
enum http_close h1x_closed(const struct http_x *x, uint32_t *ret_code);
bool h1x_was_sent(const struct http_x *x);

#endif
