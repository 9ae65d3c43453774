/* SPDX-License-Identifier: MIT */
/*
 * Sandboxes that are ready before anybody asks. Three files:
 *
 *   warm.c         entries, and how many sandboxes each has: refill, cost, failures, reload
 *   warm_box.c     one sandbox from its creation until it is claimed: prepared, asked for its health, replaced
 *   warm_claim.c   the claim: one transaction and a line on record, then the answer; and what a lost database leaves
 *
 * Invariant: a sandbox is given to nobody whose claim is not on record, and to nobody after somebody else's claim began. What is not
 * known to be unclaimed is quarantined. An entry owns its boxes; a box is on its entry's list from its creation until it is claimed,
 * ended or quarantined.
 */
#ifndef AB_DAEMON_SANDBOX_WARM_H
#define AB_DAEMON_SANDBOX_WARM_H

#include "daemon/sandbox/core.h"
#include "daemon/sandbox/recipe.h"

struct creation;
struct lease;
struct sandbox_op;
struct tags;

struct warm_entry {
	struct list node;		/* in core->warm */
	struct sandbox_core *core;
	struct account *account;
	struct sandbox_warm_entry conf;	/* its texts are owned; of `what` only what a Create is compared with */
	struct recipe recipe;		/* … and all of it */
	uint8_t print[ROW_HASH_BYTES];
	/* its row */
	uint32_t failures;
	bool failed;
	int64_t failed_at_ms;		/* not in it: wall, of this run */
	char *why, *output;
	int64_t hour_at_ms;
	uint32_t made;
	int64_t wanted_at_ms, wanted_saved_ms;
	int size_set;			/* -1 = as configured */

	struct list boxes;		/* struct warm_box */
	struct list waiters;		/* sandbox_op.wait: they get the next ones, in turns of uids */
	uid_t last_uid;			/* that got one after waiting */
	unsigned making;		/* creations under way */
	uint64_t retry_at_ms;
	struct timer timer;
	struct defer kick;
	uint64_t hits, misses, made_in_all, failures_in_all, prepare_ms;
	struct grave grave;
};

enum warm_step {
	WARM_STEP_ASKS,			/* does the agent answer? */
	WARM_STEP_PREPARES,
	WARM_STEP_READY,
};

struct warm_box {
	struct list node;		/* in its entry's boxes */
	struct warm_entry *entry;
	struct sandbox *sandbox;
	enum warm_step step;
	void *probe, *prepare;
	struct timer timer;
	uint64_t began_ms, deadline_ms;	/* of what makes it ready */
	unsigned tries, misses;		/* not answered in a row */
	struct grave grave;
};

/* A claim that is being written. Whoever is told of the sandbox waits for it. */
struct warm_claim {
	struct list node;		/* in core->claims */
	struct sandbox_core *core;
	struct sandbox *sandbox;
	struct list waiters;		/* sandbox_op.wait */
};

/* A claim on record: of a sandbox that lives, or that may still show up. */
struct warm_record {
	struct list node;		/* in core->records */
	char *account, *sandbox, *name, *request_id, *policy;
	uid_t uid;
	int64_t at_ms;
	uint8_t params_hash[ROW_HASH_BYTES];
};

/* --- warm.c --- */

/* Before the store is loaded, and at a reload. -ENOMEM: nothing was changed. */
must_check int warm_set_entries(struct sandbox_core *core, const struct sandbox_core_rules *r);
must_check int warm_load(struct sandbox_core *core, const struct row_warm *r);	/* a row of an entry */
void warm_free_all(struct sandbox_core *core);
struct warm_entry *warm_find(const struct sandbox_core *core, const char *name);
/* Something changed: look at it soon, never from inside. */
void warm_poke(struct warm_entry *e);
/* One more that did not become ready, or died soon after. */
void warm_failed(struct warm_entry *e, const struct sandbox *b, const struct status *st);
void warm_succeeded(struct warm_entry *e);
void warm_save(struct warm_entry *e);
/* A creation of ours is over: what it made is prepared. */
void warm_made(struct creation *c);
/* Somebody's Create needs room at the cloud: is there one to end, or does one end already? */
bool warm_gives_way(struct sandbox_core *core, const struct account *a);
/* Sandboxes of this account that nobody has claimed, with those that are being made. */
uint32_t warm_count(const struct sandbox_core *core, const struct account *a);

/* --- warm_box.c --- */

must_check int warm_box_new(struct warm_entry *e, struct sandbox *b, struct warm_box **ret);
void warm_box_begin(struct warm_box *x);	/* it was made just now */
void warm_box_adopt(struct warm_box *x);	/* it was ready before the start */
/* Out of its entry; its sandbox stays. */
void warm_box_leave(struct sandbox *b);
/* … and is ended. */
void warm_box_end(struct warm_box *x, const char *why);
/* May it be given away? */
bool warm_box_is_ready(const struct warm_box *x);
bool warm_is_kept(const struct sandbox *b);	/* it waits for a claim: extended meanwhile */
/* It is gone, or its row is in doubt. */
void warm_gone(struct sandbox *b);

/* --- warm_claim.c --- */

/* What a caller of Create asks for. */
struct warm_want {
	struct sandbox_op *op;
	struct account *account;
	const struct sandbox_create *c;
	struct policy policy;
	struct holder *holder;		/* NULL = without a lease */
};

/* Its entry, or NULL: *ret_differs says in what the nearest entry that its uid may claim differs; NULL = there is none. */
struct warm_entry *warm_match(const struct warm_want *w, const char **ret_differs);
/* One of it that the caller may have, by its end; NULL: none now. */
struct sandbox *warm_pick(const struct warm_want *w, struct warm_entry *e);
/* It is the caller's. The op waits: on_waited comes with yes = it has it. -ENOMEM: nothing was changed. */
must_check int warm_take(const struct warm_want *w, struct sandbox *b,
			 void (*on_waited)(struct sandbox_op *op, const struct status *st, bool yes));
/* The op waits until the claim of this sandbox is written. */
void warm_join(struct sandbox *b, struct sandbox_op *op,
	       void (*on_waited)(struct sandbox_op *op, const struct status *st, bool yes));
/* Until there is one for it, in turns. on_waited comes with yes = look again now. */
void warm_wait(struct warm_entry *e, struct sandbox_op *op,
	       void (*on_waited)(struct sandbox_op *op, const struct status *st, bool yes));
/* One is ready: those who wait get it. */
void warm_serve(struct warm_entry *e);
/* What the rows say of warm ones, after all of them; what claims are on record. */
must_check int warm_claims_load(struct sandbox_core *core);
must_check int warm_loaded(struct sandbox_core *core);
/* One that has our tag of an entry and no row: it is whose the record says, or nobody's. In the transaction of its row. */
must_check int warm_adopted(struct sandbox *b, const struct tags *t, struct store_tx *tx);
void warm_quarantine(struct sandbox *b);
void warm_claims_gone(struct sandbox *b);	/* its record with it */
void warm_claims_free(struct sandbox_core *core);
enum sandbox_warm_mode warm_mode(const struct sandbox_core *core, uid_t uid, const char *template_id,
				 enum sandbox_warm_mode asked);

#endif
