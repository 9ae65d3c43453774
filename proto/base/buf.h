/* SPDX-License-Identifier: MIT */
/*
 * A byte queue with a maximum that is part of its construction; "full" is a normal result.
 * One contiguous block, so that a reader sees all of it at once. A block of more than 4 KiB is freed when it
 * runs empty, so that an idle connection holds little. With a quota the block is charged before it is allocated.
 */
#ifndef AB_PROTO_BASE_BUF_H
#define AB_PROTO_BASE_BUF_H

#include <stdbool.h>

#include "proto/base/quota.h"
#include "proto/base/cc.h"

struct buf {
	uint8_t *mem;
	size_t cap;
	size_t head;	/* first unread byte */
	size_t len;	/* unread bytes */
	size_t max;	/* 0 = no maximum */
	struct quota *quota;	/* borrowed; NULL = none */
};

#define BUF_NULL { 0 }

static inline void buf_init(struct buf *b, size_t max)
{
	*b = (struct buf){ .max = max };
}

/* Once, while it is empty. */
static inline void buf_set_quota(struct buf *b, struct quota *quota)
{
	b->quota = quota;
}

void buf_fini(struct buf *b);	/* frees the block; maximum and quota stay, and it can be used again */

static inline size_t buf_len(const struct buf *b)
{
	return b->len;
}

/* How many bytes still fit below the maximum. */
static inline size_t buf_room(const struct buf *b)
{
	return !b->max ? SIZE_MAX : b->len >= b->max ? 0 : b->max - b->len;
}

static inline const uint8_t *buf_data(const struct buf *b)
{
	return b->mem ? b->mem + b->head : NULL;
}

/* All or nothing. 0, -ENOBUFS above the maximum or the quota, -ENOMEM. */
must_check int buf_put(struct buf *b, const void *p, size_t n);
must_check int buf_put_str(struct buf *b, const char *s);
must_check int buf_printf(struct buf *b, const char *fmt, ...) printf_like(2, 3);

/* A string of JSON with its quotes; what is not UTF-8 is U+FFFD. A failure leaves what was put until then. */
must_check int buf_put_json(struct buf *b, const char *s);

/* Room for n more bytes and no more, charged as something new or (`begun`) not: 0, -ENOBUFS, -ENOMEM. */
must_check int buf_reserve(struct buf *b, size_t n, bool begun);

/* Makes room for n bytes and returns where to write them; buf_added() says how many came. The
 * maximum is not checked here. NULL without memory, or above the quota. */
uint8_t *buf_space(struct buf *b, size_t n);
void buf_added(struct buf *b, size_t n);

void buf_drop(struct buf *b, size_t n);
/* Takes the content as a NUL-terminated heap string (the NUL is not counted), which no quota counts any
 * more. NULL without memory. */
char *buf_take_str(struct buf *b);

#endif
