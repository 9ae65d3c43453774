/* SPDX-License-Identifier: MIT */
/*
 * The body of an answer, inflated if it is compressed. It is inflated only as fast as the reader takes it, one piece of at most
 * BODY_PIECE_BYTES at a time; only then are the exchange's bytes consumed and its credit returned.
 */
#ifndef AB_DAEMON_CLOUD_BODY_H
#define AB_DAEMON_CLOUD_BODY_H

#include "daemon/common/net/gz.h"
#include "daemon/common/net/http.h"
#include "proto/base/quota.h"

#define BODY_PIECE_BYTES 32768u

struct body {
	bool coded;
	bool broken;		/* it is not valid gzip */
	struct charge held;	/* coded: the memory of gz and piece */
	struct gz gz;
	uint8_t *piece;		/* coded: inflated bytes; [at, end) are not taken yet */
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
	BODY_CUT,	/* the exchange ended in the middle of the gzip data */
	BODY_BROKEN,	/* it cannot be inflated */
};
enum body_state body_state(const struct body *b, const struct http_stream *x);

#endif
