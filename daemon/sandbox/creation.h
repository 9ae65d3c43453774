/* SPDX-License-Identifier: MIT */
/* The protocol of Create (create.c) as its callers (op_create.c) see it. */
#ifndef AB_DAEMON_SANDBOX_CREATION_H
#define AB_DAEMON_SANDBOX_CREATION_H

#include "daemon/sandbox/attempt.h"
#include "daemon/sandbox/recipe.h"

#define CREATION_MAGIC 0x43726561u

/* A process that held a lease on the sandbox that this one replaces. */
struct creation_heir {
	struct holder *holder;
	char *label;
};

struct creation {
	uint32_t magic;
	struct attempt att;
	struct name_slot *name;		/* NULL = without a name */
	uint32_t generation;
	char policy_text[POLICY_TEXT_MAX];
	uint8_t params_hash[ROW_HASH_BYTES];
	struct cloud_create what;	/* what is sent; after a restart only its template_id is set */

	struct holder *holder;		/* the process that is to hold a lease; NULL = none */
	char *replaces;			/* recreate.c: id of the one that vanished; "" = none */
	struct creation_heir *heirs;
	size_t n_heirs;
	struct recipe recipe;

	char *warm;			/* the entry [warm NAME] that it is for; "" = somebody's Create */
	uint8_t warm_print[ROW_HASH_BYTES];	/* warm_entry.print of that entry */
	unsigned room_tries;		/* how often a warm sandbox gave way to it */
	struct status failure;		/* why nothing was made; read by warm.c */

	struct cloud_sandbox *found;	/* what was made */
	bool resolved, recorded, detailed;
	bool lease_put;			/* the creator's lease is in the transaction of the row */
	bool loaded;			/* its intent is from before the start */
	int64_t used_at_ms;		/* sandbox.used_at_ms when its row was made: differs after another call's use */
	struct fetch_wait detail;
};

struct creation *creation_from(struct attempt *a);
/* The core owns it from here on; fill it, then start it or call attempt_give_up(). */
must_check int creation_new(struct sandbox_core *core, struct account *a, uid_t uid,
			    const char *req_tag, struct creation **ret);
/* Takes a number, adds the tags, writes the intent, sends. -EAGAIN: the store has no durable number now. */
must_check int creation_start(struct creation *c);
/* The same up to the intent, which goes into `t`: its durable commit has to call creation_on_intent() with &c->att. */
must_check int creation_intend(struct creation *c, struct store_tx *t);
void creation_on_intent(void *user, const struct status *st);
/* What it made; NULL: its row was forgotten meanwhile. Only when `found` is set. */
struct sandbox *creation_sandbox(const struct creation *c);

#endif
