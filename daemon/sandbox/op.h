/* SPDX-License-Identifier: MIT */
/*
 * A caller's operation: from the call to its one answer. It may wait for shared work (a creation, a
 * fetch, a kill, a listing) or for a call of its own; when it ends, nothing that it waited for refers to it
 * any more. op_end_*() is the only way to answer.
 */
#ifndef AB_DAEMON_SANDBOX_OP_H
#define AB_DAEMON_SANDBOX_OP_H

#include <stddef.h>

#include "daemon/sandbox/core.h"
#include "daemon/sandbox/turn.h"
#include "proto/wire/trace.h"

#define OP_MAGIC 0x4c4f7021u

struct op_kind {
	const char *name;
	void (*start)(struct sandbox_op *op);	/* first step, after the call returned */
	/* The deadline: answers. NULL: answered with op_expired_status(). */
	void (*expire)(struct sandbox_op *op);
	void (*fail)(struct sandbox_op *op, const struct status *st); /* op_end_*() without a result */
	void (*leave)(struct sandbox_op *op);	/* the op ends: leaves what it waits for. May be NULL */
	/* The call's request id, NULL or "" = none; its row, if there is one, is in memory before `start`. NULL: a kind without. */
	const char *(*request)(const struct sandbox_op *op, const char **ret_method);
	size_t args_size;
	void (*fini_args)(void *args);		/* may be NULL */
};

/* What answers the caller: the member that the op's kind uses. */
union op_done {
	sandbox_view_fn *sandbox;
	sandbox_bool_fn *yes;
	sandbox_list_fn *list;
	sandbox_host_fn *host;
	sandbox_target_fn *target;
	sandbox_lease_fn *lease;
	sandbox_leases_fn *leases;
	sandbox_metrics_fn *metrics;
	sandbox_fork_fn *fork;
	sandbox_snapshot_fn *snapshot;
	sandbox_snapshots_fn *snapshots;
	sandbox_templates_fn *templates;
};

struct sandbox_op {
	uint32_t magic;
	const struct op_kind *kind;
	struct sandbox_core *core;
	struct list node;		/* in core->ops */
	struct list wait;		/* in the waiters of the shared work that it waits for */
	struct attempt *attempt;	/* that work, if it is an attempt */
	/* Gets the outcome of that work (kill.c, transition.c, attempt.c). */
	void (*on_waited)(struct sandbox_op *op, const struct status *st, bool yes);
	struct trace trace;		/* of its caller */
	struct turn turn;
	void (*on_turn)(struct sandbox_op *op);
	void (*again)(struct sandbox_op *op);
	/* op_find() */
	void (*known)(struct sandbox_op *op, struct sandbox *b);
	void (*stranger)(struct sandbox_op *op, const struct cloud_sandbox *s);
	struct op_commit *commit;	/* the commit, or the reading of its request id's row, that it waits for */
	bool request_read;		/* the row of its request id was looked for */
	struct fetch_wait fetch;
	struct listing_wait listing;
	struct cloud_call *call;
	void *probe;
	struct defer kick;
	struct timer timer;		/* fires when it has to answer */
	struct timer pause;		/* between two tries: op_again(), op_wait_ready() */
	struct grave grave;
	struct principal who;
	uint64_t deadline_ms, began_ms;
	bool resumed;			/* this op resumed the sandbox */
	uint64_t asked_at_ms;		/* when op_ask() was last used */
	union op_done done;
	void *user;
	/* What the calls have in common. */
	char *ref;			/* sandbox_call.sandbox */
	struct account *account;
	char *id;			/* of the sandbox it is about, once known */
	unsigned tries;
	enum sandbox_source claim_source;	/* op_end_claimed() */
	void *args;			/* kind->args_size bytes, in the same allocation */
	struct status pending_error;	/* the last failure that may still pass; the last member: op_alloc() does not fill it with zeros */
};

/* Takes over what `args` (of kind->args_size bytes; NULL = zeros) owns, also on failure. */
must_check int op_new(struct sandbox_core *core, const struct op_kind *kind,
		      const struct sandbox_call *call, const void *args, union op_done done,
		      struct sandbox_op **ret);
struct sandbox_op *op_from(void *p);
struct sandbox_op *op_from_wait(struct list *n);
struct sandbox_op *op_from_fetch(struct fetch_wait *w);

/* An on_waited that answers with the outcome. */
void op_end_waited(struct sandbox_op *op, const struct status *st, bool yes);
/* Empties the list and calls each op's on_waited. */
void op_end_waits(struct list *waiters, const struct status *st, bool yes);
/* Sets the error with which these ops answer if their time runs out before the outcome. */
void op_note_pending_error(struct list *waiters, const struct status *st);

/* BOOTTIME by which a request to the cloud has to end, so that its failure can still be answered; 0 = no deadline. */
uint64_t op_ask_until(const struct sandbox_op *op);
/* Of the first that waits for shared work (sandbox_op.wait); none if nobody does. */
struct trace op_trace_of(const struct list *waiters);
struct cloud_ask op_ask(struct sandbox_op *op, cloud_done_fn *done);

void op_end_sandbox(struct sandbox_op *op, const struct status *st, const struct sandbox_view *sandbox);
void op_end_sandbox_of(struct sandbox_op *op, const struct sandbox *b, enum sandbox_source source);
/* The same, but only when the store has it as claimed: after a crash a policy would end it as unclaimed. */
void op_end_claimed(struct sandbox_op *op, struct sandbox *b, enum sandbox_source source);
void op_end_yes(struct sandbox_op *op, const struct status *st, bool yes);
void op_end_list(struct sandbox_op *op, const struct status *st, const struct sandbox_page *page);
void op_end_host(struct sandbox_op *op, const struct status *st, const struct sandbox_host *host);
void op_end_target(struct sandbox_op *op, const struct status *st, const struct sandbox_target *t);
void op_end_lease(struct sandbox_op *op, const struct status *st, const struct sandbox_lease *lease);
void op_end_leases(struct sandbox_op *op, const struct status *st,
		   const struct sandbox_lease_page *page);
void op_end_metrics(struct sandbox_op *op, const struct status *st, const struct sandbox_metrics *m);
void op_end_fork(struct sandbox_op *op, const struct status *st, const struct sandbox_child *v,
		 size_t n);
void op_end_snapshot(struct sandbox_op *op, const struct status *st, const struct sandbox_snapshot *s);
void op_end_snapshots(struct sandbox_op *op, const struct status *st,
		      const struct sandbox_snapshot_page *p);
void op_end_templates(struct sandbox_op *op, const struct status *st, const struct sandbox_template_page *p);
/* Each one is an op_kind.fail. */
void op_fail_sandbox(struct sandbox_op *op, const struct status *st);
void op_fail_yes(struct sandbox_op *op, const struct status *st);
void op_fail_target(struct sandbox_op *op, const struct status *st);
void op_fail_templates(struct sandbox_op *op, const struct status *st);
/* Answers with the failure, by op_kind.fail. */
void op_fail(struct sandbox_op *op, const struct status *st);
void op_fail_errno(struct sandbox_op *op, int err);
void op_cancel_all(struct sandbox_core *core);

/* Commits and goes on with fn; if the op ends before, the commit happens all the same. */
void op_commit(struct sandbox_op *op, struct store_tx *t,
	       void (*fn)(struct sandbox_op *op, const struct status *st));
/* The answer when the deadline came first: the pending error, else the cloud's last failure since the call
 * began, else its rate limit, else DEADLINE_REQUEST. */
void op_expired_status(struct sandbox_op *op, struct status *ret);

/* What a fetch of op->id has brought, for the caller. */
enum op_found {
	OP_FOUND_ROW,		/* result->sandbox, in any state */
	OP_FOUND_STRANGER,	/* one of the caller's account without a row: result->s */
	OP_FOUND_NOTHING,	/* there is none, or it is another uid's */
	OP_FOUND_NO_ANSWER,	/* result->st says why; the row, if the caller has one, is as it was */
};
enum op_found op_found(const struct sandbox_op *op, const struct fetch_result *result);

/* Finds the sandbox that op->ref means and sets op->account and op->id. Calls `known` for one with a row that the caller
 * may see, in any state, and `stranger` for one of the caller's account without a row; else the op fails. */
void op_find(struct sandbox_op *op, void (*known)(struct sandbox_op *op, struct sandbox *b),
	     void (*stranger)(struct sandbox_op *op, const struct cloud_sandbox *s));

/* Calls fn when it is the op's turn at the sandbox (op->id is set). Until then its pending error names the change that it waits for. */
void op_take_turn(struct sandbox_op *op, struct sandbox *b, void (*fn)(struct sandbox_op *op));
/* The sandbox that op->id names, if it is still there. */
struct sandbox *op_sandbox(struct sandbox_op *op);
/* `why` may pass (409): calls fn after a while, and answers with `why` if time runs out. */
void op_again(struct sandbox_op *op, const struct status *why, void (*fn)(struct sandbox_op *op));
/* The cloud answered 404 to a change: asks what the sandbox is now, and fails with that. */
void op_explain_missing(struct sandbox_op *op);

/* Waits until the agent inside answers, then ends with the sandbox. */
void op_wait_ready(struct sandbox_op *op, struct sandbox *b);

#endif
