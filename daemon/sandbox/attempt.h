/* SPDX-License-Identifier: MIT */
/*
 * One request to the cloud that is made at most once although the cloud has no idempotency key: what a
 * creation (create.c), a fork and a snapshot (copy.c) have in common. The steps:
 *
 *   intent   a row that says what will be sent, synced to the disk
 *   post     one POST; again only if proven unprocessed
 *   record   rows of what was made instead of the intent, synced; then, and only then, the answer
 *   resolve  the POST's answer was lost: list until what was made shows up or no longer can
 *   close    it did not show up, or cannot be told: the request id stays unknown
 *
 * If the daemon is killed between two steps, the next start finds the intent and resolves it. Callers (op_create.c,
 * op_copy.c) only wait for an attempt; it goes on without them once its POST was sent.
 */
#ifndef AB_DAEMON_SANDBOX_ATTEMPT_H
#define AB_DAEMON_SANDBOX_ATTEMPT_H

#include "daemon/sandbox/core.h"
#include "daemon/sandbox/rules/resolve.h"
#include "proto/wire/trace.h"

struct sandbox_op;

#define ATTEMPT_MAGIC 0x41747470u

enum attempt_step {
	ATTEMPT_WAIT,	/* not begun, or waits for its turn at the source */
	ATTEMPT_KNOWN,	/* lists what exists before the POST */
	ATTEMPT_INTENT,
	ATTEMPT_POST,
	ATTEMPT_PAUSE,	/* between two posts, or before it is recorded again */
	ATTEMPT_RECORD,
	ATTEMPT_DETAIL,	/* recorded; asks for what the answer lacked */
	ATTEMPT_RESOLVE,
};

struct attempt {
	uint32_t magic;
	const struct attempt_kind *kind;
	const char *what;		/* "create", "fork", "snapshot": set before attempt_init() */
	struct list node;		/* in core->attempts */
	struct sandbox_core *core;
	struct account *account;
	uid_t uid;
	enum attempt_step step;
	uint64_t seq;			/* of the intent; 0 = no intent yet */
	struct request *request;	/* NULL = without a request id */
	char *source;			/* id of the sandbox that is copied; "" = none */
	char *req_tag;			/* the tag that what it makes carries beside our host's; "" = none of ours */
	uint32_t sandboxes;		/* how many it may make */
	struct policy policy;		/* of the sandboxes that it makes */
	struct trace trace;		/* of whoever wanted it first */
	int64_t made_at_ms;		/* wall: of the intent; a copy's is the cloud's Date, where it gave one */
	char *object;			/* the outcome, as in row_request; "" = none yet */

	struct list waiters;		/* sandbox_op.wait */
	struct cloud_call *call;
	struct timer timer;
	unsigned posts, lists;
	unsigned complete_lists;	/* how many of `lists` were complete, and late enough to prove something */
	uint64_t resolve_until_ms;	/* BOOTTIME: nothing can show up after it */
	struct status lost;		/* why the answer is not known */
	bool answered;			/* the answer that counts as lost is the cloud's own failure of the only POST */
	bool seen;			/* somebody else's list or look has shown what it makes */
	uint64_t lives_ms;		/* lists show what it makes for at least so long; 0 = not known */
	bool recorded;			/* what it made is in the store */
	bool closing;			/* close_unknown() is ending it */
	bool alone;			/* it goes on although nobody waits */
	bool is_awaited;		/* sandbox_core_settle() found it */
	struct grave grave;
};

struct attempt_kind {
	void (*del_intent)(struct store_tx *t, uint64_t seq);
	/* Sends the POST, whose end has to call attempt_posted(). NULL without memory. */
	struct cloud_call *(*post)(struct attempt *a);
	/* Does the answer name what was there before the POST, or is another request's? Then it tells nothing of what was made. */
	bool (*names_another)(struct attempt *a, const struct cloud_result *r);
	/* Takes what was made out of the answer. */
	void (*take)(struct attempt *a, struct cloud_result *r);
	void (*refused)(struct attempt *a, const struct cloud_result *r);
	/* Rows of what was made, and a->object. Doing it twice is harmless. */
	int (*record)(struct attempt *a, struct store_tx *t);
	store_done_fn *on_recorded;	/* a as user; calls attempt_recorded() */
	/* Resolving begins. False: lists cannot tell what it made, so it is closed. */
	bool (*resolve_begin)(struct attempt *a);
	/* Asks for the list in which it would show up; its end has to call attempt_listed(). NULL without memory. */
	struct cloud_call *(*list)(struct attempt *a);
	/* Looks for it in the list. FOUND: it was taken out of *r, as `take` does. */
	enum resolve_next (*resolve)(struct attempt *a, struct cloud_result *r, uint64_t *ret_wait_ms);
	/* May a listed sandbox with its tag be what it makes? */
	bool (*makes)(struct attempt *a, const char *id);
	/* Can lists not tell what `a` makes from what `b` makes? NULL = they always can. */
	bool (*is_relative)(struct attempt *a, struct attempt *b);
	/* Nothing, or nothing known, came of it: adds to the transaction that ends it. May be NULL. */
	void (*failed)(struct attempt *a, struct store_tx *t, const struct status *st);
	void (*unlink)(struct attempt *a);	/* cancels all that may still call it */
	void (*free)(struct attempt *a);
};

struct attempt *attempt_from(void *p);	/* must() be an attempt */

/* In the core's list from here on. Calls attempt_drop() itself when it fails. */
must_check int attempt_init(struct attempt *a, const struct attempt_kind *kind,
			    struct account *account, uid_t uid, const char *source,
			    const char *req_tag);
/* What rules/resolve.h has to know of it after a list. */
struct resolve_when attempt_when(const struct attempt *a);
/* After a restart: the account of an intent. NULL: it is not configured any more, which is logged. */
struct account *attempt_account(struct sandbox_core *core, const char *name, uint64_t seq);
/* From now on it is the attempt of this request id. `tag`: the tag that belongs to the id. */
must_check int attempt_take_request(struct attempt *a, const char *method, const char *id, const char *tag,
				    const uint8_t params_hash[ROW_HASH_BYTES]);
/* For a request id without an attempt: `st` is repeated for it as a refusal of the cloud is. */
must_check int attempt_refuse_request(struct account *account, uid_t uid, const char *method, const char *id,
				      const uint8_t params_hash[ROW_HASH_BYTES], const struct status *st);
/* After a restart: the same, if the id has a row. */
void attempt_find_request(struct attempt *a, const char *method, const char *id);
/* Frees it at once; its intent and its request id stay. */
void attempt_drop(struct attempt *a);
/* The same for one of which nothing was sent: its request id is forgotten. */
void attempt_give_up(struct attempt *a);

/* --- steps --- */

void attempt_wait(struct attempt *a, uint64_t wait_ms, timer_fn *fn);	/* a as user */
bool attempt_nobody_waits(struct attempt *a);	/* true: nobody did, and it has ended */
void attempt_post(struct attempt *a);
int attempt_sending(void *attempt);	/* cloud_ask.sending of its POST: puts on record that it may be sent */
void attempt_post_after(struct attempt *a, uint64_t wait_ms, const struct status *why);
void attempt_posted(struct attempt *a, struct cloud_result *r);
/* For on_recorded. False: the commit failed and will be repeated. */
bool attempt_recorded(struct attempt *a, const struct status *st);
/* After a restart: resolves it, or ends it at once where it was never sent. */
void attempt_take_up(struct attempt *a);
void attempt_resolve(struct attempt *a);
void attempt_resolve_timer(struct timer *t, void *user);	/* attempt_resolve() for attempt_wait() */
void attempt_listed(struct attempt *a, struct cloud_result *r);
/* Ends it: waiters get *st, and it is freed after the loop's pass. */
void attempt_finish(struct attempt *a, const struct status *st);
/* Ends it where it made nothing in the cloud. `refused`: repeats of the request id get *st for a while. */
void attempt_end_without(struct attempt *a, const struct status *st, bool refused);

/* --- its callers --- */

/* The op waits for the attempt's end: `on_waited` is called, never from inside. It can still read op->attempt, and
 * has to clear it. */
void attempt_join(struct attempt *a, struct sandbox_op *op,
		  void (*on_waited)(struct sandbox_op *op, const struct status *st, bool yes));
void attempt_leave(struct sandbox_op *op);		/* nothing for an op that waits for none */
/* Does the op wait for an attempt whose POST may have been sent? */
bool attempt_was_sent(const struct sandbox_op *op);
/* The answer to an op whose deadline has come. */
void attempt_expired(struct sandbox_op *op, bool has_request_id, struct status *ret);
/*
 * A call with a request id that was used before. True: the op was answered (by `answer` if the outcome of the
 * first call is known), or waits for that outcome. False: the call may begin.
 */
bool attempt_repeat(struct sandbox_op *op, struct request *q,
		    const uint8_t params_hash[ROW_HASH_BYTES],
		    void (*on_waited)(struct sandbox_op *op, const struct status *st, bool yes),
		    void (*answer)(struct sandbox_op *op, struct request *q));

#endif
