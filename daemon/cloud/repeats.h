/* SPDX-License-Identifier: MIT */
/* Which ids of a list came before: a set of texts in one block of memory, which is freed at once however many there are. */
#ifndef AB_DAEMON_CLOUD_REPEATS_H
#define AB_DAEMON_CLOUD_REPEATS_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct repeats_slot {
	uint64_t hash;
	const char *id;			/* NULL = free */
};

struct repeats {
	struct repeats_slot *slots;
	size_t n_slots;			/* a power of two, or 0 */
	size_t n;
};

void repeats_fini(struct repeats *r);
/* Notes an id, which must stay as long as the set. *ret_before: it is there already, and this one is not noted. -ENOMEM. */
must_check int repeats_note(struct repeats *r, const char *id, bool *ret_before);

#endif
