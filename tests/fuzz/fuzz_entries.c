/* SPDX-License-Identifier: MIT */
/*
 * The agent's answer to ListDir, entry by entry. The same bytes whole and cut into pieces must give the same entries and the same
 * end. The first byte says how long the pieces are.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/cloud/entries.h"
#include "daemon/cloud/message.h"
#include "proto/base/must.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

struct seen {
	uint64_t hash;
	size_t n;
	enum entries_result end;
	bool may_end;
};

static void mix(struct seen *s, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		s->hash = (s->hash ^ p[i]) * 1099511628211u;
	s->hash = (s->hash ^ n) * 1099511628211u;
}

static struct seen parse(const uint8_t *p, size_t n, size_t piece)
{
	struct seen s = { .end = ENTRIES_MORE };
	struct entries e;
	size_t at = 0;

	entries_init(&e);
	while (s.end == ENTRIES_MORE && at < n) {
		/* A copy of its own, so that what lies behind it shows. */
		size_t k = MIN(piece, n - at), from = 0;
		uint8_t *copy = malloc(k);

		must(copy);
		memcpy(copy, p + at, k);
		for (;;) {
			const uint8_t *entry;
			size_t n_entry, used;
			struct envd_entry one;

			s.end = entries_feed(&e, copy + from, k - from, &used, &entry, &n_entry);
			from += used;
			if (s.end != ENTRIES_GOT)
				break;
			s.n++;
			mix(&s, entry, n_entry);
			if (message_entry(entry, n_entry, s.n % 2, &one) == 0)
				envd_entry_fini(&one);
		}
		must(s.end != ENTRIES_MORE || from == k);
		at += k;
		free(copy);
	}
	s.may_end = entries_may_end(&e);
	entries_fini(&e);
	return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct seen whole, pieces;

	if (!n)
		return 0;
	whole = parse(p + 1, n - 1, n);
	pieces = parse(p + 1, n - 1, (size_t)p[0] + 1);
	must(whole.n == pieces.n && whole.hash == pieces.hash && whole.end == pieces.end);
	must(whole.end != ENTRIES_MORE || whole.may_end == pieces.may_end);
	return 0;
}
