/* SPDX-License-Identifier: MIT */
/*
 * The body of an answer as it is meant: the bytes of its exchange, or what they inflate to. What comes compressed is inflated only
 * as fast as it is taken: the bytes of the exchange are consumed, and with them its credit goes back, one piece of at most
 * BODY_PIECE_BYTES at a time, whatever they would inflate to.
 */
#ifndef AB_DAEMON_CLOUD_BODY_H
#define AB_DAEMON_CLOUD_BODY_H

#include "daemon/common/net/gz.h"
#include "daemon/common/net/http.h"
#include "proto/base/quota.h"

#define BODY_PIECE_BYTES 32768u

struct body {
	bool coded;
	bool broken;		/* what came is not what it says it is */
	struct charge held;	/* coded: for the two that follow */
	struct gz gz;
	uint8_t *piece;		/* coded: inflated, and not taken: [at, end) */
	size_t at, end;
};

/* By the answer's Content-Encoding: NULL, identity or gzip. 0, -ENOTSUP for any other, -ENOBUFS above the quota, -ENOMEM. */
must_check int body_init(struct body *b, const char *coding, struct quota *q);
void body_fini(struct body *b);		/* also of a zeroed one */

/* What can be taken now, valid until the next call; x NULL = there is nothing. */
size_t body_peek(struct body *b, struct http_stream *x, const uint8_t **ret);
void body_consume(struct body *b, struct http_stream *x, size_t n);

enum body_state {
	BODY_OPEN,	/* more may come, or can be taken */
	BODY_WHOLE,	/* all of it was taken */
	BODY_CUT,	/* the exchange ended, but not what was compressed */
	BODY_BROKEN,	/* it cannot be inflated */
};
enum body_state body_state(const struct body *b, const struct http_stream *x);

#endif
