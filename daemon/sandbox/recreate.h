/* SPDX-License-Identifier: MIT */
/*
 * on_gone=recreate: the sandbox behind a name vanished, and the same is made again as the next generation.
 * The decision is in the transaction that says that it is gone, and goes the way of every creation
 * (create.c): at most one for each that vanished, also across crashes; when in doubt, none.
 */
#ifndef AB_DAEMON_SANDBOX_RECREATE_H
#define AB_DAEMON_SANDBOX_RECREATE_H

#include <stdbool.h>

#include "daemon/sandbox/sandbox.h"
#include "proto/base/cc.h"

struct sandbox;
struct creation;
struct store_tx;

struct recreation {
	const char *verdict;		/* for the event; "" = it was not asked for */
	struct creation *creation;	/* NULL = none */
};

/* `b` is GONE, and still has its name and its leases; `before`: what it was. */
void recreate_decide(struct sandbox_core *core, struct sandbox *b, enum sandbox_state before,
		     bool by_us, struct recreation *ret);
/* It has neither any more: the intent goes into `t`. */
void recreate_intend(struct recreation *r, struct store_tx *t);
/* Commits; the creation goes on from there. */
void recreate_commit(struct sandbox_core *core, struct recreation *r, struct store_tx *t);
/* What took its place, as far as it goes; NULL = nothing, or what did has gone as well. */
const struct sandbox *recreate_successor(const struct sandbox *b);

#endif
