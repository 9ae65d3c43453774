/* SPDX-License-Identifier: MIT */
/* Inside of the HTTP/2 engine, shared by h2.c and h2_stream.c only. */
#ifndef AB_PROTO_WIRE_H2_IMPL_H
#define AB_PROTO_WIRE_H2_IMPL_H

#include <nghttp2/nghttp2.h>

#include "proto/base/buf.h"
#include "proto/base/chain.h"
#include "proto/base/list.h"
#include "proto/base/quota.h"
#include "proto/wire/h2.h"
#include "proto/wire/h2_block.h"
#include "proto/wire/interims.h"

#define H2_STREAM_MAGIC 0x68327374u

struct h2 {
	struct h2_options o;		/* defaults filled in */
	nghttp2_session *ng;
	struct list streams;		/* all that exist */
	struct list ready;		/* those that are ready */
	struct h2_stream *last_of;	/* stream_of() found it last; NULL = nothing to remember */
	uint32_t n_open;
	struct buf out;			/* gathered, not yet sent */
	struct h2_block block;		/* of what comes in */
	uint64_t block_by_ms, settings_ack_by_ms;	/* 0 = nothing is owed */
	uint64_t data_taken;		/* of block.data_bytes: those for streams that are there */
	uint64_t stray_max;		/* of the others; they were under way when we reset their streams */
	size_t feed_left;		/* of h2_feed()'s bytes: what the parser has not finished */
	int64_t tokens;			/* what the peer may still waste */
	size_t progress_bytes;
	uint64_t refilled_ms, last_feed_ms;
	uint32_t pings_acked, goaway_code, goaway_last;
	bool settings_received, goaway_seen, goaway_sent, abused, dead;
	bool over_quota;		/* a charge for what the peer sent was refused */
	bool ending;			/* the last words: nothing is refused any more */
	char why[96];
};

struct h2_stream {
	uint32_t magic;
	int32_t id;
	struct h2 *h;
	void *user;
	uint64_t opened_ms;
	struct list node, ready;
	struct fields head, trailers, trailers_out;
	const struct fields *last_words;	/* the trailers to send: trailers_out, or what lasts; NULL = none */
	struct interims interims;	/* client: not taken yet */
	struct chain in, out;
	unsigned ready_flags;
	uint32_t code;
	enum h2_close closed;
	unsigned pseudo_seen;
	bool pseudo_over, head_wrong;	/* request head checks of any_authority */
	bool head_cut, head_dropped;
	bool head_done, trailers_done;
	bool ended;			/* the peer finished */
	bool announced;			/* the owner knows it */
	bool released;
	bool sent;			/* client: left, or is leaving, our queue */
	bool responded;			/* server: a final head was queued */
	bool finished;			/* no more writes */
	bool deferred;			/* nghttp2 waits for h2_stream_write() */
	bool reset_by_us;
	bool room_wanted;
	uint32_t window;		/* with a quota: beyond the first one it is promised */
	uint32_t owed;			/* of it: taken by the owner, the peer has not heard of it */
	uint64_t taken, taken_since_ms;	/* by its owner, to see how fast */
};

void h2_note(struct h2_stream *s, unsigned flags);
void h2_stream_close_as(struct h2_stream *s, enum h2_close how, uint32_t code);
uint32_t h2_send_max(const struct h2 *h);	/* per stream, as of now */
uint32_t h2_first_window(const struct h2 *h);
void h2_expect_stray(struct h2 *h);	/* a stream was reset by us */
struct h2_stream *h2_stream_make(struct h2 *h);
void h2_stream_destroy(struct h2_stream *s);

#endif
