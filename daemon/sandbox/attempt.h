/* SPDX-License-Identifier: MIT */
/*
 * One request to the cloud that is made at most once although the cloud has no idempotency key (FAULTS
 * §2.0): what a creation (create.c), a fork and a snapshot (copy.c) have in common. In order:
 *
 *   intent   a row that says what will be sent, synced to the disk
 *   post     one POST; again only if proven unprocessed
 *   record   rows of what was made instead of the intent, synced; then, and only then, the answer
 *   resolve   the POST's answer was lost: list until what was made shows up or no longer can
 *   close    it did not show up, or cannot be told: the request id stays unknown
 *
 * Killed between any two of them, the next start finds the intent and resolves it. Callers (op_create.c,
 * op_copy.c) only wait for an attempt; it goes on without them once its POST was sent.
 */
#ifndef AB_DAEMON_SANDBOX_ATTEMPT_H
#define AB_DAEMON_SANDBOX_ATTEMPT_H

#include "daemon/sandbox/core.h"
#include "daemon/sandbox/rules/resolve.h"

struct sandbox_op;

#define ATTEMPT_MAGIC 0x41747470u

enum attempt_step {
	ATTEMPT_WAIT,	/* not begun, or for its turn */
	ATTEMPT_KNOWN,	/* asks what is there */
	ATTEMPT_INTENT,
	ATTEMPT_POST,
	ATTEMPT_PAUSE,	/* between two posts, or two attempts to record */
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
	char *req_tag;			/* that what it makes carries with our host's; "" = none of ours */
	uint32_t sandboxes;		/* that it may make */
	struct policy policy;		/* for them */
	int64_t made_at_ms;
	char *object;			/* what came of it, as in row_request */

	struct list waiters;		/* sandbox_op.wait */
	struct cloud_call *call;
	struct timer timer;
	unsigned posts, lists;
	unsigned complete_lists;	/* of the lists, those that say of everything whether it is there */
	uint64_t resolve_until_ms;
	struct status lost;		/* why the answer is not known */
	bool answered;			/* lost: the cloud itself said that it failed, to the only POST */
	uint64_t lives_ms;		/* what it makes is in lists for so long at least; 0 = not known */
	bool recorded;			/* what it made is in the store */
	bool closing;			/* as unknown, with others */
	bool alone;			/* it goes on although nobody waits */
	struct grave grave;
};

struct attempt_kind {
	void (*del_intent)(struct store_tx *t, uint64_t seq);
	/* The request; NULL without memory. Its end is attempt_posted()'s. */
	struct cloud_call *(*post)(struct attempt *a);
	/* Takes what was made out of the answer. */
	void (*take)(struct attempt *a, struct cloud_result *r);
	void (*refused)(struct attempt *a, const struct cloud_result *r);
	/* Rows of what was made, and a->object. Doing it twice is harmless. */
	int (*record)(struct attempt *a, struct store_tx *t);
	store_done_fn *on_recorded;	/* a as user; calls attempt_recorded() */
	/* Resolving begins. False: nothing can be told, it is closed. */
	bool (*resolve_begin)(struct attempt *a);
	/* The list in which it would show up; NULL without memory. Its end is attempt_listed()'s. */
	struct cloud_call *(*list)(struct attempt *a);
	/* Is it in there? FOUND: it was taken out as if it had been answered. */
	enum resolve_next (*resolve)(struct attempt *a, struct cloud_result *r, uint64_t *ret_wait_ms);
	/* Is this listed sandbox with its tag the one that it makes, or may it be? */
	bool (*makes)(struct attempt *a, const char *id);
	/* What the one makes cannot be told from what the other makes; NULL = it always can. */
	bool (*is_relative)(struct attempt *a, struct attempt *b);
	/* Nothing, or nothing known, came of it: said in the transaction that ends it. May be NULL. */
	void (*failed)(struct attempt *a, struct store_tx *t, const struct status *st);
	void (*unlink)(struct attempt *a);	/* lets go of all that may call it */
	void (*free)(struct attempt *a);
};

struct attempt *attempt_from(void *p);	/* checked */

/* In the core's list from here on. Calls attempt_drop() itself when it fails. */
must_check int attempt_init(struct attempt *a, const struct attempt_kind *kind,
			    struct account *account, uid_t uid, const char *source,
			    const char *req_tag);
/* For the rules that resolve it, after a list. */
struct resolve_when attempt_when(const struct attempt *a);
/* After a restart: whose intent it is. NULL: that account is configured no more, which is logged. */
struct account *attempt_account(struct sandbox_core *core, const char *name, uint64_t seq);
/* It answers for this request id from now on. Its tag: what the cloud's things carry. */
must_check int attempt_take_request(struct attempt *a, const char *method, const char *id, const char *tag,
				    const uint8_t params_hash[ROW_HASH_BYTES]);
/* After a restart: the same for the row of the id, if there is one. */
void attempt_find_request(struct attempt *a, const char *method, const char *id);
void attempt_drop(struct attempt *a);
/* … and its request id with it: nothing was sent. */
void attempt_give_up(struct attempt *a);

/* --- steps --- */

void attempt_wait(struct attempt *a, uint64_t wait_ms, timer_fn *fn);	/* a as user */
bool attempt_nobody_waits(struct attempt *a);	/* then it has ended */
void attempt_post(struct attempt *a);
int attempt_sending(void *attempt);	/* cloud_ask.sending of its post */
void attempt_post_after(struct attempt *a, uint64_t wait_ms, const struct status *why);
void attempt_posted(struct attempt *a, struct cloud_result *r);
/* False: it could not be written and will be tried again. */
bool attempt_recorded(struct attempt *a, const struct status *st);
/* After a restart: it is resolved, or ends at once where nothing of it can have been sent. */
void attempt_take_up(struct attempt *a);
void attempt_resolve(struct attempt *a);
void attempt_resolve_timer(struct timer *t, void *user);	/* attempt_resolve() for attempt_wait() */
void attempt_listed(struct attempt *a, struct cloud_result *r);
/* Tells those who wait, and is gone at the end of the turn. */
void attempt_finish(struct attempt *a, const struct status *st);
/* Nothing exists in the cloud because of it. `refused`: the request id answers so for a while. */
void attempt_end_without(struct attempt *a, const struct status *st, bool refused);

/* --- its callers --- */

/* The op waits for its end: `on_waited` is called, never from inside; op->attempt is still readable in there,
 * and for `on_waited` to clear. */
void attempt_join(struct attempt *a, struct sandbox_op *op,
		  void (*on_waited)(struct sandbox_op *op, const struct status *st, bool yes));
void attempt_leave(struct sandbox_op *op);		/* if it waits for one */
/* The cloud may have been asked by what it waits for. */
bool attempt_was_sent(const struct sandbox_op *op);
/* What an op that cannot wait longer is told. */
void attempt_expired(struct sandbox_op *op, bool has_request_id, struct status *ret);
/*
 * A call whose request id was used. True: it has been answered, by `answer` when what came of the
 * first is known, or it waits for it.
 */
bool attempt_repeat(struct sandbox_op *op, struct request *q,
		    const uint8_t params_hash[ROW_HASH_BYTES],
		    void (*on_waited)(struct sandbox_op *op, const struct status *st, bool yes),
		    void (*answer)(struct sandbox_op *op, struct request *q));

#endif
