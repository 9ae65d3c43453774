/* SPDX-License-Identifier: MIT */
/*
 * A byte queue of blocks: what lies in it is not moved when more comes, however much waits. A reader sees it piece by
 * piece. Freed when it runs empty. With a quota each block is charged before it is allocated.
 *
 * One piece. The first CHAIN_WHOLE_BYTES are in one piece as long as nothing was dropped since it was empty and no more than these
 * were put.
 */
#ifndef AB_PROTO_BASE_CHAIN_H
#define AB_PROTO_BASE_CHAIN_H

#include <stdint.h>

#include "proto/base/cc.h"
#include "proto/base/quota.h"

#define CHAIN_WHOLE_BYTES 65536u

struct chain_block;

struct chain {
	struct chain_block *first, *last;
	size_t len;
	struct quota *quota;	/* borrowed; NULL = none */
};

void chain_fini(struct chain *c);

static inline size_t chain_len(const struct chain *c)
{
	return c->len;
}

/* The bytes that are next, as many as lie together; 0 only when it is empty. */
size_t chain_peek(const struct chain *c, const uint8_t **ret);
void chain_drop(struct chain *c, size_t n);
/* The next n bytes, of which there are as many, become one piece: 0, -ENOBUFS, -ENOMEM. */
must_check int chain_pull(struct chain *c, size_t n);

/* All or nothing; `soon` bytes, these among them, are expected: room for them is made where the quota has much to spare.
 * 0, -ENOBUFS above the quota, -ENOMEM. */
must_check int chain_put(struct chain *c, const void *p, size_t n, size_t soon);
/* Room for n bytes in one piece, to be filled and then added before anything else is done. NULL without memory, or above the quota. */
uint8_t *chain_space(struct chain *c, size_t n);
void chain_added(struct chain *c, size_t n);

#endif
