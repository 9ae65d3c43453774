/* SPDX-License-Identifier: MIT */
/*
 * The 5-byte message prefix that gRPC and Connect share: flags, length (big endian), payload.
 * An incremental reader over a byte stream that may be cut anywhere, with a cap that is checked
 * on the prefix before anything is kept; an oversize message can be skipped so that the stream
 * lives on. With a quota a message is charged whole before anything of it is kept, so that one that has begun can
 * always be finished; one that does not fit now can wait.
 */
#ifndef AB_PROTO_WIRE_FRAME_H
#define AB_PROTO_WIRE_FRAME_H

#include <stdbool.h>

#include "proto/base/buf.h"

#define FRAME_PREFIX_BYTES    5u
#define FRAME_FLAG_COMPRESSED 0x01u
#define FRAME_FLAG_END_STREAM 0x02u	/* Connect, server to client only */

struct frame_reader {
	uint8_t prefix[FRAME_PREFIX_BYTES];
	unsigned n_prefix;
	uint32_t left;		/* payload bytes still to come */
	uint32_t max;		/* payload cap */
	bool skipping;		/* the message in progress is oversize */
	bool charged;		/* there is room for all of it */
	bool urgent;		/* set by the owner: it may use what is kept for what has begun */
	struct buf body;
};

enum frame_result {
	FRAME_MORE = 0,		/* all input taken, no whole message yet */
	FRAME_MESSAGE,		/* *ret_flags, body in r->body; call frame_reader_next() when done */
	FRAME_TOO_LARGE,	/* announced above the cap; its payload is being skipped */
	FRAME_NO_ROOM,		/* the quota has no room for the message now; feeding again tries again */
};

void frame_reader_init(struct frame_reader *r, uint32_t max);
void frame_reader_fini(struct frame_reader *r);
void frame_reader_set_quota(struct frame_reader *r, struct quota *q);	/* borrowed; before it is fed */
/* Takes bytes from p, sets *ret_used. FRAME_*, or -ENOMEM. Stops after each message. */
must_check int frame_reader_feed(struct frame_reader *r, const uint8_t *p, size_t n, size_t *ret_used,
				 uint8_t *ret_flags);
/* Drops the message just delivered. */
void frame_reader_next(struct frame_reader *r);
/* At a message boundary: an end of stream here tears nothing. */
bool frame_reader_is_idle(const struct frame_reader *r);

void frame_prefix(uint8_t out[FRAME_PREFIX_BYTES], uint8_t flags, uint32_t len);

#endif
