/* SPDX-License-Identifier: MIT */
#include "proto/base/chain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/must.h"

#define BLOCK_LEAST 256u
#define BLOCK_MAX   (256u * 1024)	/* of one that is made for what is expected */
#define MOVE_PART   3u			/* as much as this part of the content was read: it may be moved */
#define KEEP_BYTES  4096u		/* a few bytes hold no block that is four times as large */

struct chain_block {
	struct chain_block *next;
	size_t cap;		/* of mem */
	size_t head, len;	/* the first unread byte; unread bytes */
	uint8_t mem[];
};

static size_t charge_of(const struct chain_block *b)
{
	return sizeof(*b) + b->cap;
}

static void block_free(struct chain *c, struct chain_block *b)
{
	quota_give(c->quota, charge_of(b));
	free(b);
}

/* A block for `cap` bytes that are charged already. */
static int block_new(struct chain *c, size_t cap, struct chain_block **ret)
{
	struct chain_block *b = malloc(sizeof(*b) + cap);

	if (!b) {
		quota_give(c->quota, sizeof(*b) + cap);
		return -ENOMEM;
	}
	b->next = NULL;
	b->cap = cap;
	b->head = b->len = 0;
	*ret = b;
	return 0;
}

static int charge(struct chain *c, size_t cap)
{
	return quota_take(c->quota, sizeof(struct chain_block) + cap) < 0 ? -ENOBUFS : 0;
}

static void link_block(struct chain *c, struct chain_block *b)
{
	if (c->last)
		c->last->next = b;
	else
		c->first = b;
	c->last = b;
}

/* The only block becomes one of `cap` bytes, which are charged, or the first one; both are, while the content moves. */
static int replace(struct chain *c, size_t cap)
{
	struct chain_block *old = c->first, *b;
	int r = block_new(c, cap, &b);

	if (r < 0)
		return r;
	c->first = c->last = b;
	if (!old)
		return 0;
	memcpy(b->mem, old->mem + old->head, old->len);
	b->len = old->len;
	block_free(c, old);
	return 0;
}

static int append(struct chain *c, size_t cap)
{
	struct chain_block *b;
	int r = block_new(c, cap, &b);

	if (!r)
		link_block(c, b);
	return r;
}

/* Of what is expected, as much as one stream may have. */
static size_t expected(const struct chain *c, size_t n, size_t soon)
{
	uint64_t part = quota_spare(c->quota) / QUOTA_PARTS;

	return soon <= n || part < soon ? n : MIN(soon, (size_t)BLOCK_MAX);
}

/* Small content grows in one piece, by doubling. */
static size_t grown(const struct chain *c, size_t need)
{
	size_t cap = c->first ? 2 * c->first->cap : BLOCK_LEAST - sizeof(*c->first);

	return MAX(need, MIN(cap, (size_t)CHAIN_WHOLE_BYTES));
}

static size_t room_behind(const struct chain_block *b)
{
	return b->cap - b->head - b->len;
}

/* Small content of the only block goes to its begin, where there is room in front of it and little to move. */
static bool moved_to_begin(struct chain_block *b, size_t n)
{
	if (b->cap - b->len < n || b->head <= b->len / MOVE_PART)
		return false;
	memmove(b->mem, b->mem + b->head, b->len);
	b->head = 0;
	return true;
}

/* Makes n bytes behind the content ours. */
static int chain_room(struct chain *c, size_t n, size_t soon)
{
	bool whole = c->first == c->last && n <= CHAIN_WHOLE_BYTES && c->len <= CHAIN_WHOLE_BYTES - n;
	size_t cap;
	int r;

	if (c->last && (room_behind(c->last) >= n || (whole && moved_to_begin(c->last, n))))
		return 0;
	if (n > SIZE_MAX / 4)
		return -ENOMEM;
	soon = expected(c, n, soon);
	cap = whole ? grown(c, c->len + soon) : MAX(soon, MIN(c->len, (size_t)CHAIN_WHOLE_BYTES));
	r = charge(c, cap);
	if (r < 0)
		return r;
	return whole ? replace(c, cap) : append(c, cap);
}

void chain_fini(struct chain *c)
{
	while (c->first) {
		struct chain_block *b = c->first;

		c->first = b->next;
		block_free(c, b);
	}
	c->last = NULL;
	c->len = 0;
}

size_t chain_peek(const struct chain *c, const uint8_t **ret)
{
	*ret = c->first ? c->first->mem + c->first->head : NULL;
	return c->first ? c->first->len : 0;
}

int chain_put(struct chain *c, const void *p, size_t n, size_t soon)
{
	int r = n ? chain_room(c, n, soon) : 0;

	if (r < 0 || !n)
		return r;
	memcpy(c->last->mem + c->last->head + c->last->len, p, n);
	chain_added(c, n);
	return 0;
}

uint8_t *chain_space(struct chain *c, size_t n)
{
	return chain_room(c, n, n) < 0 ? NULL : c->last->mem + c->last->head + c->last->len;
}

void chain_added(struct chain *c, size_t n)
{
	must(c->last && c->last->head + c->last->len + n <= c->last->cap);
	c->last->len += n;
	c->len += n;
}

/* A few bytes do not hold a large block: whoever takes the rest may take its time. */
static void shrink(struct chain *c)
{
	if (c->len > KEEP_BYTES || c->first != c->last || c->first->cap < 4 * KEEP_BYTES)
		return;
	quota_add(c->quota, sizeof(struct chain_block) + KEEP_BYTES);
	(void)!replace(c, KEEP_BYTES);	/* without memory it stays as it is */
}

static void drop(struct chain *c, size_t n)
{
	c->len -= n;
	while (n) {
		struct chain_block *b = c->first;
		size_t k = MIN(n, b->len);

		b->head += k;
		b->len -= k;
		n -= k;
		if (b->len)
			break;
		c->first = b->next;
		c->last = c->first ? c->last : NULL;
		block_free(c, b);
	}
}

void chain_drop(struct chain *c, size_t n)
{
	must(n <= c->len);
	drop(c, n);
	if (c->len)
		shrink(c);
}

int chain_pull(struct chain *c, size_t n)
{
	struct chain_block *b;
	const uint8_t *p;
	int r;

	must(n <= c->len);
	if (!n || c->first->len >= n)
		return 0;
	r = charge(c, n);
	if (!r)
		r = block_new(c, n, &b);
	if (r < 0)
		return r;
	while (b->len < n) {
		size_t k = MIN(chain_peek(c, &p), n - b->len);

		memcpy(b->mem + b->len, p, k);
		b->len += k;
		drop(c, k);
	}
	b->next = c->first;
	c->first = b;
	c->last = c->last ? c->last : b;
	c->len += n;
	return 0;
}
