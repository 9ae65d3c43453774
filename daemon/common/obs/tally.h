/* SPDX-License-Identifier: MIT */
/* How things ended, counted by reason, or by code where there is none. */
#ifndef AB_DAEMON_COMMON_OBS_TALLY_H
#define AB_DAEMON_COMMON_OBS_TALLY_H

#include "proto/base/status.h"

#define TALLY_ENDS 96u

struct tally {
	uint64_t n[TALLY_ENDS];		/* by tally_number() */
};

unsigned tally_number(const struct status *st);
/* "OK", "SANDBOX_GONE", "CANCELLED"; NULL: there is no such number. */
const char *tally_name(unsigned number);
bool tally_is_ok(unsigned number);

static inline void tally_add(struct tally *t, const struct status *st)
{
	t->n[tally_number(st)]++;
}

#endif
