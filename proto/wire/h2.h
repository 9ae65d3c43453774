/* SPDX-License-Identifier: MIT */
/*
 * One HTTP/2 connection without I/O, either role: bytes in by h2_feed(), bytes out by h2_output(),
 * what happened by polling. Used by the daemon, the library and agentbox-local.
 *
 * Readiness. h2_feed() only notes facts; then the owner takes streams from h2_next_ready() until NULL and
 * looks at what they hold. Nothing is ever called back.
 *
 * Credit. A stream's receive buffer is bounded by its window, because the window is given back only
 * by h2_stream_consume(). The connection's window is given back on arrival, so one reader that
 * stalls never starves the others. The send side is bounded by h2_stream_room(). With a quota, windows begin
 * small and grow while their owners read fast and the quota has room, so that any number of streams that
 * nobody reads takes a bounded amount of memory.
 *
 * Memory. With a quota all that a connection holds is charged before it is held: heads, bytes of both
 * directions, streams, and what nghttp2 allocates. A charge that is refused while the peer's frames are taken ends
 * the connection (ENHANCE_YOUR_CALM, h2_is_over_quota()); one for bytes of the owner's fails that write.
 *
 * Life of a stream. It exists until it is closed *and* released. Closing (by both ends finishing, a
 * reset, GOAWAY, or the death of the connection) is reported exactly once, also for every stream
 * that is open when the connection dies; what was received before stays readable.
 *
 * Abuse. Resets and frames without progress cost tokens (nghttp2 1.52 has no glitch limit); without
 * tokens the connection ends with ENHANCE_YOUR_CALM. A header block that is not finished in 5 s and SETTINGS
 * that are not acknowledged in 10 s end it too: see h2_due_ms(). Of a head with too many fields or bytes a server
 * gets what fits: h2_stream_head_is_cut(); a client's stream fails by it.
 */
#ifndef AB_PROTO_WIRE_H2_H
#define AB_PROTO_WIRE_H2_H

#include <stdbool.h>

#include "proto/base/cc.h"
#include "proto/wire/fields.h"

struct h2;
struct h2_stream;
struct quota;	/* proto/base/quota.h */

enum h2_error {		/* RFC 9113 §7 */
	H2_NO_ERROR = 0,
	H2_PROTOCOL_ERROR = 1,
	H2_INTERNAL_ERROR = 2,
	H2_FLOW_CONTROL_ERROR = 3,
	H2_SETTINGS_TIMEOUT = 4,
	H2_STREAM_CLOSED = 5,
	H2_FRAME_SIZE_ERROR = 6,
	H2_REFUSED_STREAM = 7,
	H2_CANCEL = 8,
	H2_COMPRESSION_ERROR = 9,
	H2_CONNECT_ERROR = 10,
	H2_ENHANCE_YOUR_CALM = 11,
	H2_INADEQUATE_SECURITY = 12,
	H2_HTTP_1_1_REQUIRED = 13,
};

struct h2_options {
	bool server;
	bool any_authority;		/* server: accept a missing, empty or odd :authority (gRPC on
					 * Unix sockets); everything else is checked all the same */
	bool wipes;			/* heads hold secrets: nghttp2's copies are wiped when freed */
	uint32_t max_streams;		/* server: what a peer may have open; 0 = 100 */
	uint32_t stream_window;		/* receive credit per stream; 0 = 256 KiB */
	struct quota *quota;		/* borrowed, outlives the connection; stream_window is what a window may grow
					 * to; NULL = it has it at once */
	uint32_t conn_window;		/* 0 = 16 × stream_window, at least 1 MiB */
	uint32_t send_max;		/* unsent bytes per stream before room is 0; 0 = 256 KiB */
	uint32_t head_max_n;		/* header fields per message; 0 = 64 */
	uint32_t head_max_bytes;	/* 0 = 16 KiB */
	uint32_t glitch_burst;		/* frames without progress; 0 = 1000, at least 2 × max_streams */
	uint32_t glitch_per_s;		/* 0 = 50 */
};

#define H2_LEAST_ROOM	 2048u		/* of send_max, when the quota has nothing to spare */
#define H2_FIRST_WINDOW	 (16u * 1024)	/* with a quota */
#define H2_GROWS_MS	 1000u		/* half a window in less than this is fast */
#define H2_BLOCK_MS	 5000u
#define H2_SETTINGS_ACK_MS	 10000u

/* `now_ms` here and below is of one clock that never goes back. 0, -ENOMEM also where the quota has no room. */
must_check int h2_new(const struct h2_options *o, uint64_t now_ms, struct h2 **ret);
/* Frees the streams too, released or not: their owners must not use them after it. NULL is fine; returns NULL. */
struct h2 *h2_free(struct h2 *h);

/* Takes all n bytes. 0, or -EPROTO / -ENOMEM: the connection is dead, all streams are closed, as H2_CLOSE_REFUSED where nothing of
 * them was sent, else as H2_CLOSE_LOST; h2_output() may still hold a GOAWAY worth sending. After that input is ignored. */
must_check int h2_feed(struct h2 *h, const void *p, size_t n, uint64_t now_ms);
/* The peer closed or the transport failed: closes all streams as a failed h2_feed() does. */
void h2_lost(struct h2 *h);

/* Bytes to send now (at most about 64 KiB, more after h2_sent()); *ret_n = 0 if none. The connection may
 * be dead after it: its last GOAWAY is in these bytes. */
must_check int h2_output(struct h2 *h, const uint8_t **ret, size_t *ret_n);
void h2_sent(struct h2 *h, size_t n);
bool h2_wants_output(const struct h2 *h);
/* The moment until which the peer has to finish something that it began or owes; 0 = none. It changes
 * with every h2_feed(). */
uint64_t h2_due_ms(const struct h2 *h);
/* That moment has passed: 0 if not, or -EPROTO as from h2_feed(). */
must_check int h2_expire(struct h2 *h, uint64_t now_ms);

/* --- the connection --- */

bool h2_is_dead(const struct h2 *h);
const char *h2_why(const struct h2 *h);		/* of a dead one: a sentence; "" else */
bool h2_settings_received(const struct h2 *h);		/* the peer's first SETTINGS arrived */
uint32_t h2_open_streams(const struct h2 *h);
/* Client: how many more streams may be opened now by the peer's limit; 0 after GOAWAY. */
uint32_t h2_free_streams(const struct h2 *h);
uint32_t h2_peer_max_streams(const struct h2 *h);
bool h2_is_over_quota(const struct h2 *h);	/* of a dead one: it ended by a charge that was refused */
/* GOAWAY of the peer: false if none came. Streams above the last id were closed as H2_CLOSE_REFUSED. */
bool h2_goaway_seen(const struct h2 *h, uint32_t *ret_code);
/* It came without an error and after requests were taken: some peers end a connection after so many. */
bool h2_recycled(const struct h2 *h);
/* Ours. Graceful: 2^31-1 first (no new streams are accepted once the peer knows), open ones go on;
 * the second call, or a code other than NO_ERROR, names the last id for good. */
void h2_goaway(struct h2 *h, uint32_t code);
/* One PING; h2_pings_acked() counts the answers. */
must_check int h2_ping(struct h2 *h);
uint32_t h2_pings_acked(const struct h2 *h);

/* --- streams --- */

/* Client. 0; -EAGAIN when h2_free_streams() is 0; -ENOMEM. `end`: no body follows. The head holds
 * :method, :scheme, :authority, :path first. */
must_check int h2_request(struct h2 *h, const struct fields *head, bool end, void *user,
			  struct h2_stream **ret);
/* Server: the final response head (":status" first) or, with status 1xx, an interim one. 0, -EPIPE of a closed stream, -ENOMEM. */
must_check int h2_respond(struct h2_stream *s, const struct fields *head, bool end);

void *h2_stream_user(const struct h2_stream *s);	/* NULL for a new one of a server */
void h2_stream_set_user(struct h2_stream *s, void *user);
uint32_t h2_stream_id(const struct h2_stream *s);
struct h2 *h2_stream_conn(const struct h2_stream *s);

#define H2_READY_HEAD	 1u	/* request head (server: a new stream), an interim response head or the final one */
#define H2_READY_DATA	 2u	/* more to peek */
#define H2_READY_END	 4u	/* the peer finished; trailers, if any, are there */
#define H2_READY_ROOM	 8u	/* room was 0 and is at least half of send_max now */
#define H2_READY_CLOSED	 16u	/* see h2_stream_closed(); comes once, last */

/* Next stream that is ready, each once until something new happens to it. NULL: none. */
struct h2_stream *h2_next_ready(struct h2 *h);
bool h2_has_ready(const struct h2 *h);
/* What is new since the last call on this stream. */
unsigned h2_stream_take_ready(struct h2_stream *s);

/* NULL until it came, and after it was dropped. */
const struct fields *h2_stream_head(const struct h2_stream *s);
/* Client: see wire/interims.h. */
bool h2_stream_next_interim(struct h2_stream *s, struct fields *ret);
/* Server: the head had more fields or bytes than it may; what fits is there. */
bool h2_stream_head_is_cut(const struct h2_stream *s);
/* Server: nobody looks at the head any more; a stream may be open for days. */
void h2_stream_drop_head(struct h2_stream *s);
const struct fields *h2_stream_trailers(const struct h2_stream *s);

/* What is buffered, piece by piece: the next one, valid until the next call on this connection; 0 = nothing. What came
 * until something is consumed is one piece, if it is no more than 64 KiB. */
size_t h2_stream_peek(const struct h2_stream *s, const uint8_t **ret);
size_t h2_stream_buffered(const struct h2_stream *s);	/* of all pieces */
/* The next n bytes, of which there are as many, become one piece: 0, -ENOBUFS, -ENOMEM. */
must_check int h2_stream_pull(struct h2_stream *s, size_t n);
void h2_stream_consume(struct h2_stream *s, size_t n);
/* The peer finished and all was consumed. */
bool h2_stream_at_end(const struct h2_stream *s);
/* The peer finished its side (maybe bytes are still buffered). */
bool h2_stream_ended(const struct h2_stream *s);

/* Bytes that may be written now; writing more is allowed (a message is never torn) but is a bug if
 * it happens without bound. */
size_t h2_stream_room(struct h2_stream *s);
size_t h2_stream_unsent(const struct h2_stream *s);
/* Queues a copy. 0, -EPIPE once the stream is closed or finished, -ENOBUFS above the quota, -ENOMEM. */
must_check int h2_stream_write(struct h2_stream *s, const void *p, size_t n);
/* The same without the copy: room for n bytes of the queue's own, to be filled and then added before anything else is called.
 * NULL: h2_stream_write() would fail, and says why. */
uint8_t *h2_stream_space(struct h2_stream *s, size_t n);
must_check int h2_stream_added(struct h2_stream *s, size_t n);
/* Ends our side, after what is queued; trailers may be NULL. */
must_check int h2_stream_finish(struct h2_stream *s, const struct fields *trailers);
/* Sends RST_STREAM; the stream closes as H2_CLOSE_LOCAL. */
void h2_stream_reset(struct h2_stream *s, uint32_t code);

enum h2_close {
	H2_OPEN = 0,
	H2_CLOSE_CLEAN,		/* both ends finished */
	H2_CLOSE_LOCAL,		/* h2_stream_reset() */
	H2_CLOSE_RESET,		/* the peer's RST_STREAM, or an error of the peer on this stream */
	H2_CLOSE_REFUSED,	/* proven unprocessed: REFUSED_STREAM, or above GOAWAY's last id, or
				 * never sent: safe to send again elsewhere */
	H2_CLOSE_LOST,		/* the connection died: nobody knows */
};

enum h2_close h2_stream_closed(const struct h2_stream *s, uint32_t *ret_code);
/* Client: some byte of the request was handed to h2_output(). */
bool h2_stream_was_sent(const struct h2_stream *s);
/* The owner's end of the object. An open stream is reset with CANCEL first. */
void h2_stream_release(struct h2_stream *s);

#endif
