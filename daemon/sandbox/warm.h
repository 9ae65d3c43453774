/* SPDX-License-Identifier: MIT */
/*
 * Warm sandboxes: made before anybody asks. Three files:
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
	struct list node;		/* in core->warm, or in core->warm_past: then it has no boxes and no waiters */
	struct sandbox_core *core;
	struct account *account;
	struct sandbox_warm_entry conf;	/* owns its texts and arrays; its account is NULL */
	struct recipe recipe;		/* conf.what, packed for each creation */
	uint8_t print[ROW_HASH_BYTES];	/* hash of what a sandbox of this entry depends on */
	/* In its row. */
	uint32_t failures;		/* in a row */
	bool failed;			/* it makes nothing until a retry or a reload */
	int64_t failed_at_ms;		/* wall; not in the row: when `failed` was first seen in this run */
	char *why, *output;
	int64_t hour_at_ms;		/* wall: when the hour of `made` began */
	uint32_t made;
	int64_t wanted_at_ms, wanted_saved_ms;	/* wall: of the last Create that fitted; as the row has it */
	int size_set;			/* -1 = as configured */

	struct list boxes;		/* struct warm_box */
	struct list waiters;		/* sandbox_op.wait: they get the next ones, uids in turns */
	uid_t last_uid;			/* the last one that got one after waiting */
	uint64_t retry_at_ms;		/* BOOTTIME: no creation before it */
	struct timer timer;
	struct defer kick;
	uint64_t hits, misses, made_in_all, failures_in_all, prepare_ms;
	struct grave grave;
};

enum warm_step {
	WARM_STEP_ASKS,			/* waits until the agent answers */
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
	uint64_t began_ms, deadline_ms;	/* BOOTTIME: of the time to become ready */
	unsigned tries, misses;		/* questions in a row without an answer: before and after it was ready */
	struct grave grave;
};

/* A claim that is being written. Calls that would answer with the sandbox wait for it. */
struct warm_claim {
	struct list node;		/* in core->claims */
	struct sandbox_core *core;
	struct sandbox *sandbox;
	struct list waiters;		/* sandbox_op.wait */
	int64_t used_at_ms;		/* BOOTTIME: the sandbox's own at the claim */
};

/* A claim on record: of a sandbox that lives, or that may still show up. */
struct warm_record {
	struct list node;		/* in core->records */
	char *account, *sandbox, *name, *request_id, *policy;
	uid_t uid;
	int64_t at_ms;			/* wall */
	uint8_t params_hash[ROW_HASH_BYTES];
};

/* --- warm.c --- */

/* Before the store is loaded, and at a reload. *ret_waiters: those who wait for one, until warm_ask_again(). -ENOMEM: nothing was
 * changed. */
must_check int warm_set_entries(struct sandbox_core *core, const struct sandbox_core_rules *r, struct list *ret_waiters);
/* Each looks for its entry among those that there are now: as a rule the same, where it goes on waiting. */
void warm_ask_again(struct list *waiters);
must_check int warm_load(struct sandbox_core *core, const struct row_warm *r);	/* a row of an entry */
void warm_free_all(struct sandbox_core *core);
struct warm_entry *warm_find(const struct sandbox_core *core, const char *name);
/* Something changed: fills or empties the entry in the loop's next pass. */
void warm_poke(struct warm_entry *e);
void warm_poke_all(struct sandbox_core *core);
/* A sandbox of the entry was not made, did not become ready, or died soon after. b: NULL = none was made. */
void warm_failed(struct warm_entry *e, const struct sandbox *b, const struct status *st);
void warm_succeeded(struct warm_entry *e);
void warm_save(struct warm_entry *e);
/* A creation for an entry has ended: prepares the sandbox that it made. */
void warm_made(struct creation *c);
/* A Create needs room in a full account: ends a warm sandbox if none is ending. False: there is none to end. */
bool warm_gives_way(struct sandbox_core *core, const struct account *a);
/* So many of its end, or all that nobody has claimed. */
void warm_make_room(struct sandbox_core *core, const struct account *a, uint32_t n);
/* Sandboxes of this account that nobody has claimed, with those that are being made. */
uint32_t warm_count(const struct sandbox_core *core, const struct account *a);

/* --- warm_box.c --- */

must_check int warm_box_new(struct warm_entry *e, struct sandbox *b, struct warm_box **ret);
void warm_box_begin(struct warm_box *x);	/* for one that was made just now */
void warm_box_adopt(struct warm_box *x);	/* for one that was ready before the start */
/* Takes its box out of the entry and frees it; the sandbox stays. */
void warm_box_leave(struct sandbox *b);
/* The same, and ends the sandbox. `why`: a constant, the rule that ends it. */
void warm_box_end(struct warm_box *x, const char *why);
/* May it be claimed? */
bool warm_box_is_ready(const struct warm_box *x);
/* Since it was ready, or claimed; never negative, and at most its age. */
int64_t warm_age_ms(const struct sandbox *b);
bool warm_is_kept(const struct sandbox *b);	/* it waits for a claim, and is extended meanwhile */
/* The sandbox is gone. */
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

/* The entry that fits. NULL: *ret_differs is the field in which the nearest entry differs that the caller may claim from; NULL = it
 * may claim from none. */
struct warm_entry *warm_match(const struct warm_want *w, const char **ret_differs);
/* A ready one of the entry that can live as long as asked for; NULL: none now. */
struct sandbox *warm_pick(const struct warm_want *w, struct warm_entry *e);
/* Claims the sandbox for the caller. The op waits: on_waited comes with yes = it has it. -ENOMEM: it was not claimed. */
must_check int warm_take(const struct warm_want *w, struct sandbox *b,
			 void (*on_waited)(struct sandbox_op *op, const struct status *st, bool yes));
/* The op waits until the claim of this sandbox that is under way is written. */
void warm_join(struct sandbox *b, struct sandbox_op *op,
	       void (*on_waited)(struct sandbox_op *op, const struct status *st, bool yes));
/* True: the claim of this sandbox is not on record yet, and the op waits until it is. */
bool warm_joins(struct sandbox *b, struct sandbox_op *op,
		void (*on_waited)(struct sandbox_op *op, const struct status *st, bool yes));
/* The op waits until the entry has one for it. on_waited comes with yes = one is ready, look again now. */
void warm_wait(struct warm_entry *e, struct sandbox_op *op,
	       void (*on_waited)(struct sandbox_op *op, const struct status *st, bool yes));
/* One is ready: gives it to those who wait. */
void warm_serve(struct warm_entry *e);
/* At the start: reads the claims on record. */
must_check int warm_claims_load(struct sandbox_core *core);
/* After all rows: what becomes of warm sandboxes from before the start. */
must_check int warm_loaded(struct sandbox_core *core);
/* Before a sandbox with the tag of an entry gets the row that it lacks, in the same transaction: it belongs to whom the claim
 * on record names, else it is quarantined. */
must_check int warm_adopted(struct sandbox *b, const struct tags *t, struct store_tx *tx);
void warm_quarantine(struct sandbox *b);
/* Was the sandbox ended because its claim could not be written? Nobody was told of that claim: rows that name it are what a full disk kept. */
bool warm_claim_has_failed(const struct sandbox *b);
void warm_claims_gone(struct sandbox *b);	/* the sandbox is gone: drops its claim on record */
void warm_claims_listed(struct account *a);	/* the cloud has listed all sandboxes of the account */
/* Its row says that nobody has it, and may be old: it belongs to whom the claim on record names, else it is quarantined. */
void warm_doubted(struct sandbox *b);
void warm_claims_free(struct sandbox_core *core);
enum sandbox_warm_mode warm_mode(const struct sandbox_core *core, uid_t uid, const char *template_id,
				 enum sandbox_warm_mode asked);

#endif
