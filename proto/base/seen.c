/* SPDX-License-Identifier: MIT */
#include "proto/base/seen.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/cc.h"
#include "proto/base/map.h"

#define BITS   (1u << 20)
#define PROBES 4u	/* bits of a key */

void seen_fini(struct seen *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->filters[i].bits);
	*s = (struct seen){ 0 };
}

/* The i-th bit of a key: two halves of its hash make as many as are wanted. */
static uint32_t bit_of(uint64_t hash, unsigned i)
{
	return ((uint32_t)hash + i * ((uint32_t)(hash >> 32) | 1)) % BITS;
}

static void drop_first(struct seen *s)
{
	free(s->filters[0].bits);
	s->n--;
	memmove(s->filters, s->filters + 1, s->n * sizeof(*s->filters));
}

/* The filter to which a key is added. NULL: there is none. */
static struct seen_filter *open_filter(struct seen *s)
{
	struct seen_filter *f = s->n ? &s->filters[s->n - 1] : NULL;

	if (f && f->n < SEEN_PER_FILTER)
		return f;
	if (s->n == SEEN_FILTERS)
		return NULL;
	f = &s->filters[s->n];
	*f = (struct seen_filter){ .bits = calloc(BITS / 64, sizeof(uint64_t)) };
	if (!f->bits)
		return NULL;
	s->n++;
	return f;
}

void seen_add(struct seen *s, const void *key, size_t key_len, uint64_t now_ms, uint64_t keep_ms)
{
	uint64_t hash = map_hash(key, key_len);
	struct seen_filter *f;

	while (s->n && s->filters[0].last_ms + keep_ms < now_ms)
		drop_first(s);
	f = open_filter(s);
	if (!f) {
		s->blind_until_ms = MAX(s->blind_until_ms, now_ms + keep_ms);
		return;
	}
	f->n++;
	f->last_ms = now_ms;
	for (unsigned i = 0; i < PROBES; i++)
		f->bits[bit_of(hash, i) / 64] |= 1ull << bit_of(hash, i) % 64;
}

void seen_add_unknown(struct seen *s)
{
	s->blind_until_ms = UINT64_MAX;
}

static bool has(const struct seen_filter *f, uint64_t hash)
{
	for (unsigned i = 0; i < PROBES; i++)
		if (!(f->bits[bit_of(hash, i) / 64] >> bit_of(hash, i) % 64 & 1))
			return false;
	return true;
}

bool seen_may_have(const struct seen *s, const void *key, size_t key_len, uint64_t now_ms)
{
	uint64_t hash = map_hash(key, key_len);

	if (now_ms < s->blind_until_ms)
		return true;
	for (size_t i = 0; i < s->n; i++)
		if (has(&s->filters[i], hash))
			return true;
	return false;
}
