/* SPDX-License-Identifier: MIT */
/*
 * The answer of the agent's ListDir, one entry after the other [pure]: `repeated EntryInfo entries = 1`, so that a directory of
 * any size costs the memory of one entry. How the input is cut into pieces never changes a result.
 */
#ifndef AB_DAEMON_CLOUD_ENTRIES_H
#define AB_DAEMON_CLOUD_ENTRIES_H

#include <stdbool.h>

#include "proto/base/buf.h"
#include "proto/base/cc.h"

#define ENTRY_MAX_BYTES (256u * 1024)	/* a path has 4 KiB at most, metadata the same */

enum entries_part {
	ENTRIES_TAG = 0,	/* between two fields, or in a tag */
	ENTRIES_LENGTH,
	ENTRIES_NUMBER,		/* of an unknown field: dropped */
	ENTRIES_DROP,		/* `left` bytes of one */
	ENTRIES_ENTRY,		/* `left` bytes of an entry */
};

struct entries {
	enum entries_part part;
	bool in_tag;
	bool is_entry;		/* the length is an entry's */
	uint64_t number;	/* so far, of a varint */
	unsigned shift;
	uint64_t left;
	struct buf entry;	/* what came in pieces */
	bool entry_out;
};

enum entries_result {
	ENTRIES_GOT = 0,	/* an entry: *ret, *ret_n, valid until the next call */
	ENTRIES_MORE,		/* all of the input was used */
	ENTRIES_BAD,
	ENTRIES_TOO_LARGE,
	ENTRIES_NO_MEMORY,	/* none, or its quota has no room */
};

void entries_init(struct entries *e);
void entries_fini(struct entries *e);
must_check enum entries_result entries_feed(struct entries *e, const uint8_t *p, size_t n, size_t *ret_used,
					    const uint8_t **ret, size_t *ret_n);
/* The answer may end here. */
bool entries_may_end(const struct entries *e);

#endif
