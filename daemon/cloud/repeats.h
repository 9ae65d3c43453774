/* SPDX-License-Identifier: MIT */
/*
 * Which ids of a list came before: a set of texts in few blocks of memory, which are freed at once however many ids there are. The ids
 * are shared out among parts, each of which grows by itself, so that no single addition pays for more than one part's growth.
 */
#ifndef AB_DAEMON_CLOUD_REPEATS_H
#define AB_DAEMON_CLOUD_REPEATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/cc.h"

#define REPEATS_PARTS 64u

struct repeats_slot {
	uint64_t hash;
	const char *id;			/* NULL = free */
};

struct repeats_part {
	struct repeats_slot *slots;
	size_t n_slots;			/* a power of two, or 0 */
	size_t n;
};

struct repeats {
	struct repeats_part *parts;	/* REPEATS_PARTS of them; NULL until the first id */
};

void repeats_fini(struct repeats *r);
/* Notes an id, which must stay as long as the set. *ret_before: it is there already, and this one is not noted. -ENOMEM. */
must_check int repeats_note(struct repeats *r, const char *id, bool *ret_before);

#endif
