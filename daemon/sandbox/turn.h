/* SPDX-License-Identifier: MIT */
/*
 * One change of a sandbox's state at a time: a pause, a resume, a fork, a snapshot and a change of the network
 * wait for their turns, in order of arrival. A kill does not wait, so the holder of the turn has to check for it.
 * Only the holder of the turn may set b->changing, and while that is set nobody else changes the state.
 */
#ifndef AB_DAEMON_SANDBOX_TURN_H
#define AB_DAEMON_SANDBOX_TURN_H

#include <stdbool.h>

#include "proto/base/list.h"

struct sandbox;

struct turn {
	struct list node;	/* in sandbox->turns; the first one has the turn */
	struct sandbox *sandbox;	/* NULL: on no list */
	bool told;		/* fn was called */
	void (*fn)(struct turn *t);
};

void turn_init(struct turn *t, void (*fn)(struct turn *t));
/* Waits for the turn: fn comes once, when it has it, never from inside. */
void turn_take(struct turn *t, struct sandbox *b);
/* Gives back the turn, or the place in the queue; nothing without one. */
void turn_end(struct turn *t);
bool turn_is_free(const struct sandbox *b);	/* nobody has it or waits for it */

#endif
