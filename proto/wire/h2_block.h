/* SPDX-License-Identifier: MIT */
/*
 * Follows the frames of one direction of an HTTP/2 connection just far enough to say what nghttp2 does
 * not tell: whether a header block has begun that is not finished, which holds the whole connection;
 * and how much DATA came, also where it is ignored, since its stream is gone. [pure]
 */
#ifndef AB_PROTO_WIRE_H2_BLOCK_H
#define AB_PROTO_WIRE_H2_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct h2_block {
	uint32_t skip;		/* bytes until the next frame: preface, payload */
	uint8_t head[9], n_head;
	bool open;		/* HEADERS, PUSH_PROMISE or CONTINUATION without its END_HEADERS yet */
	bool last;		/* the frame under way ends the block */
	bool in_data;		/* the frame under way is DATA */
	uint64_t data_bytes;	/* payloads of DATA, padding included */
};

#define H2_PREFACE_BYTES 24u	/* of a client, before its first frame */

/* `preface`: bytes to pass over first. */
void h2_block_init(struct h2_block *b, uint32_t preface);
/* Returns whether one was finished in these bytes: then an open one is a new one. */
bool h2_block_feed(struct h2_block *b, const uint8_t *p, size_t n);

#endif
