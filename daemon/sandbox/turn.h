/* SPDX-License-Identifier: MIT */
/*
 * One change of a sandbox's state at a time: whoever pauses, resumes, forks, snapshots it or replaces
 * its network waits for its turn, in order of arrival. Kill does not wait: whoever has a turn finds
 * out. Only who has the turn may set b->changing, and while it is set nobody else moves the state.
 */
#ifndef AB_DAEMON_SANDBOX_TURN_H
#define AB_DAEMON_SANDBOX_TURN_H

#include <stdbool.h>

#include "proto/base/list.h"

struct sandbox;

struct turn {
	struct list node;	/* in sandbox->turns; the first one has the turn */
	struct sandbox *sandbox;	/* NULL: on no list */
	bool told;
	void (*fn)(struct turn *t);
};

void turn_init(struct turn *t, void (*fn)(struct turn *t));
/* fn comes once, when it is its turn, never from inside. */
void turn_take(struct turn *t, struct sandbox *b);
/* Had or not: on to the next. Does nothing to one that waits for none. */
void turn_end(struct turn *t);
bool turn_is_free(const struct sandbox *b);	/* nobody has it or waits for it */

#endif
