/* SPDX-License-Identifier: MIT */
/*
 * on_gone=recreate: the sandbox behind a name vanished, and an equal one is made as the next generation.
 * The decision is in the transaction with the end of the old one, and then goes the way of every creation
 * (create.c): at most one successor for each sandbox, also across crashes; when in doubt, none.
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
	const char *verdict;		/* static: for the event; "" = it was not asked for */
	struct creation *creation;	/* the successor's; NULL = none */
};

/* `b` is GONE, and still has its name and its leases. `before`: its state until then. */
void recreate_decide(struct sandbox_core *core, struct sandbox *b, enum sandbox_state before,
		     bool by_us, struct recreation *ret);
/* When name and leases were taken from `b`: puts the intent into `t`. */
void recreate_intend(struct recreation *r, struct store_tx *t);
/* Commits `t`, after which the creation is sent. */
void recreate_commit(struct sandbox_core *core, struct recreation *r, struct store_tx *t);
/* The living sandbox at the end of the chain of successors; NULL = there is none. */
const struct sandbox *recreate_successor(const struct sandbox *b);

#endif
