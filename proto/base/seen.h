/* SPDX-License-Identifier: MIT */
/*
 * Has a key been added in the last while? A "no" is certain, a "yes" is wrong for about one of a hundred: a chain of Bloom filters of
 * 128 KiB each, the next one begun when one has SEEN_PER_FILTER keys. What was added long enough ago leaves with its filter. Without memory,
 * and with SEEN_FILTERS filters that are full, the answer is yes to all.
 */
#ifndef AB_PROTO_BASE_SEEN_H
#define AB_PROTO_BASE_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEEN_PER_FILTER 100000u
#define SEEN_FILTERS	16u

struct seen_filter {
	uint64_t *bits;
	uint32_t n;		/* keys, those twice that were added twice */
	uint64_t last_ms;	/* when the last one was added */
};

struct seen {
	struct seen_filter filters[SEEN_FILTERS];	/* the oldest first; keys are added to the last one */
	size_t n;
	uint64_t blind_until_ms;	/* yes to all before it: a key had no place; UINT64_MAX = always */
};

void seen_fini(struct seen *s);
/* now_ms never goes back; the key is kept for keep_ms at least. */
void seen_add(struct seen *s, const void *key, size_t key_len, uint64_t now_ms, uint64_t keep_ms);
/* A key that cannot be told was added: yes to all from now on. */
void seen_add_unknown(struct seen *s);
bool seen_may_have(const struct seen *s, const void *key, size_t key_len, uint64_t now_ms);

#endif
