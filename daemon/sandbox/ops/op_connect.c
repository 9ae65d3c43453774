/* SPDX-License-Identifier: MIT */
/*
 * ConnectSandbox and SetTimeout. Both change the sandbox's end and read it back, never compute it.
 * ConnectSandbox never shortens and resumes a paused one; SetTimeout is the only call that may shorten.
 *
 *   find     the row, or the sandbox of that id in the caller's account
 *   ask      POST /connect or /timeout, after a change of ours that is under way (turn.h); a 409 is
 *            somebody else's change: asked again until the deadline
 *   read     GET: times and state as they are now
 *   write    the row (ConnectSandbox: a new one where it makes the caller the owner), synced
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/auth/grant.h"
#include "daemon/auth/owner.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/holder.h"
#include "daemon/sandbox/lease.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/rules/tags.h"
#include "daemon/sandbox/runner.h"
#include "daemon/sandbox/turn.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

struct args {
	uint64_t timeout_ms;
	uint32_t timeout_s;
	uint32_t life_s;		/* what the cloud is asked for: the timeout, or more where this call takes a lease */
	bool adopt, wait_ready;
	uint32_t resume_s;		/* how long the resume it waits for asks for */
	bool owner_by_this;		/* no row yet: this call makes the caller its owner */
	struct cloud_sandbox *answer;	/* ConnectSandbox's: the only one with a traffic token */
	struct sandbox *temp;		/* owned: a sandbox that has no row and gets none */
	struct holder *holder;		/* process_lease: the caller's process; else NULL */
	bool is_set;			/* SetTimeout, not ConnectSandbox */
	bool held;			/* runner_hold() is in force */
	bool leased;			/* this call's transaction has the process's lease */
	bool has_waited;		/* its turn has come */
};

static void op_connect_fini_args(void *args)
{
	struct args *a = args;

	cloud_sandbox_free(a->answer);
	sandbox_free(a->temp);
	holder_unref(a->holder);
}

static bool check_timeout(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct status st;

	if (a->is_set && a->timeout_ms == SANDBOX_TIMEOUT_NOW)
		return true;
	if (rules_timeout_s(a->timeout_ms, &a->timeout_s)) {
		a->life_s = a->timeout_s;
		return true;
	}
	status_field(&st, "sandbox_timeout", "must be at most 30 days");
	op_fail(op, &st);
	return false;
}

static void call(struct sandbox_op *op, const char *id,
		 struct cloud_call *(*fn)(struct cloud *c, const char *id, uint32_t s,
					  const struct cloud_ask *ask),
		 cloud_done_fn *done)
{
	struct cloud_ask ask = op_ask(op, done);
	struct args *a = op->args;

	if (text_set(&op->id, id) == 0)
		op->call = fn(op->account->cloud, op->id, a->life_s, &ask);
	if (!op->call)
		op_fail_errno(op, -ENOMEM);
}

static void read_back(struct sandbox_op *op, cloud_done_fn *done)
{
	struct cloud_ask ask = op_ask(op, done);

	/* Not by fetch_join(): a shared GET may have been sent before the change. */
	op->call = cloud_get(op->account->cloud, op->id, &ask);
	if (!op->call)
		op_fail_errno(op, -ENOMEM);
}

/* --- write --- */

/* The plan's cap is no failure: the view has the end that is in force, and a warning. */
static void warn_if_capped(struct sandbox *b, uint32_t timeout_s, int64_t date_ms)
{
	static const char capped[] = "the cloud capped the timeout";
	char at[40], *text;

	if (!date_ms || !b->end_at_ms || b->end_at_ms + 5000 >= date_ms + timeout_s * 1000ll) {
		if (str_starts(b->warning, capped))
			b->warning[0] = 0;
		return;
	}
	str_rfc3339(b->end_at_ms * 1000, 3, at);
	text = str_printf("%s: it ends at %s, earlier than asked for", capped, at);
	if (!text)
		return;
	text_give(&b->warning, text);
}

static void end_with(struct sandbox_op *op, struct sandbox *b)
{
	struct args *a = op->args;

	if (a->wait_ready && b->state == SANDBOX_RUNNING && b != a->temp)
		op_wait_ready(op, b);
	else
		op_end_sandbox_of(op, b, SANDBOX_FROM_CLOUD);
}

static void write_row(struct sandbox_op *op, struct sandbox *b);

static void on_written(struct sandbox_op *op, const struct status *st)
{
	struct sandbox *b = core_find(op->core, op->account, op->id);
	struct args *a = op->args;
	struct lease *x = b && a->leased ? lease_of_process(b, a->holder) : NULL;
	struct status gone;

	if (!status_ok(st) && x && !x->written)
		lease_end(x, "it could not be written down");
	if (!status_ok(st)) {
		op_fail(op, st);
	} else if (b && a->leased && !x && !a->holder->dead && sandbox_is_live(b)) {
		write_row(op, b);	/* the call that took the lease could not write it and ended it: take another */
	} else if (b) {
		if (x)
			x->written = true;
		end_with(op, b);
	} else {
		ref_not_found(&gone, op->ref);
		op_fail(op, &gone);
	}
}

static struct sandbox *new_owned_sandbox(struct sandbox_op *op, const struct cloud_sandbox *s)
{
	scoped(sandbox_freep) struct sandbox *b = NULL;
	const struct args *a = op->args;
	bool changed;

	if (sandbox_new(op->account, s->id, &b) < 0)
		return NULL;
	if (a->answer && str_eq(a->answer->id, s->id) &&
	    sandbox_learn(b, a->answer, clock_boot_ms(), clock_wall_ms(), &changed) < 0)
		return NULL;
	if (sandbox_learn(b, s, clock_boot_ms(), clock_wall_ms(), &changed) < 0)
		return NULL;
	b->uid = op->who.uid;
	b->used_at_ms = (int64_t)clock_boot_ms();
	core_policy_default(op->core, b->uid, b->template_id, &b->policy);
	b->policy.on_gone = POLICY_FAIL;
	b->adopted = b->claimed = b->token_known = true;
	sandbox_set_state(b, s->state == CLOUD_STATE_PAUSED ? SANDBOX_PAUSED : SANDBOX_RUNNING);
	return give(b);
}

/* The sandbox, a new one if it has no row, after it took over what the cloud said; NULL without memory. */
static struct sandbox *take_over(struct sandbox_op *op, const struct cloud_sandbox *s)
{
	struct sandbox *b = core_find(op->core, op->account, s->id);
	struct args *a = op->args;

	if (b) {
		b->token_known = true;
		sandbox_seen_since(op->core, b, s, op->asked_at_ms);
		sandbox_claim(op->core, b, op->who.uid);
		return b;
	}
	b = new_owned_sandbox(op, s);
	if (!b)
		return NULL;
	if (!a->owner_by_this) {
		sandbox_free(a->temp);
		b->adopted = false;
		a->temp = b;
		return b;
	}
	if (core_insert(op->core, b) < 0)
		return sandbox_free(b);
	log_info("sandbox_owned", "sandbox=%s uid=%u by=connect", b->id, owner_uid(b->uid));
	return b;
}

/* ConnectSandbox with process_lease: the lease is in the transaction before the answer. One whose transaction by another call
 * of the process is under way is put into this one too, since that one may fail. */
static int take_lease(struct sandbox_op *op, struct sandbox *b, struct store_tx *t)
{
	struct args *a = op->args;
	struct lease_make m = { .uid = op->who.uid, .pid = op->who.pid, .label = "",
				.kind = ROW_LEASE_PROCESS, .holder = a->holder };
	struct lease *x;
	int r = 0;

	if (!a->holder || a->holder->dead || !sandbox_is_live(b))
		return 0;
	x = lease_of_process(b, a->holder);
	if (x && x->written)
		return 0;
	if (!x)
		r = lease_take(op->core, b, &m, NULL, &x);
	a->leased = !r;
	if (!r) {
		lease_put(t, x);
		event_put(op->core, t, b, EVENT_UPDATED, "lease=taken\nlease_id=%s\n", x->id);
	}
	return r;
}

static void write_row(struct sandbox_op *op, struct sandbox *b)
{
	const struct args *a = op->args;
	struct store_tx *t;

	if (store_tx_new(op->core->store, &t) < 0) {
		op_fail_errno(op, -ENOMEM);
		return;
	}
	if (take_lease(op, b, t) < 0) {
		store_tx_drop(t);
		op_fail_errno(op, -ENOMEM);
		return;
	}
	sandbox_put(t, b);
	if (a->owner_by_this)
		event_put(op->core, t, b, EVENT_ADOPTED, "by=connect\n");
	runner_poke(b);
	op_commit(op, t, on_written);
}

static void op_connect_finish(struct sandbox_op *op, const struct cloud_result *r)
{
	struct args *a = op->args;
	struct sandbox *b = core_find(op->core, op->account, r->sandbox->id);
	struct status st;

	/* It may have become another uid's since this call found it without a row. */
	if (b && grant_row(&op->who, b->uid) != GRANT_OK) {
		ref_not_found(&st, op->ref);
		op_fail(op, &st);
		return;
	}
	b = take_over(op, r->sandbox);
	if (!b) {
		op_fail_errno(op, -ENOMEM);
		return;
	}
	warn_if_capped(b, a->timeout_s, r->date_ms);
	if (b == a->temp) {
		end_with(op, b);
		return;
	}
	/* The end that its claim asked for must not replace the caller's. */
	if (a->is_set || b->asked_end_at_ms < b->end_at_ms)
		b->asked_end_at_ms = 0;
	if (a->timeout_ms)
		b->timeout_s = a->is_set ? a->timeout_s : MAX(b->timeout_s, a->timeout_s);
	write_row(op, b);
}

static void on_read(struct cloud_result *r, void *user)
{
	struct sandbox_op *op = op_from(user);

	op->call = NULL;
	if (r->outcome == CLOUD_DONE && r->sandbox)
		op_connect_finish(op, r);
	else if (r->not_found)
		op_explain_missing(op);
	else
		op_fail(op, &r->status);
}

/* --- ConnectSandbox --- */

static void connect_step(struct sandbox_op *op);

static void on_connected(struct cloud_result *r, void *user)
{
	struct sandbox_op *op = op_from(user);
	struct args *a = op->args;
	struct sandbox *b;

	op->call = NULL;
	if (r->outcome != CLOUD_DONE) {
		if (r->not_found)
			op_explain_missing(op);
		else if (r->conflict)
			op_again(op, &r->status, connect_step);
		else
			op_fail(op, &r->status);
		return;
	}
	/* This answer alone has the tokens; the GET after it has times and state. */
	b = core_find(op->core, op->account, op->id);
	if (b && r->sandbox) {
		b->token_known = true;
		sandbox_used(op->core, b);	/* before the new state is evaluated: it may have been idle for long */
		sandbox_seen(op->core, b, r->sandbox);
	}
	op->resumed = op->resumed || (r->sandbox && r->sandbox->resumed);
	a->answer = give(r->sandbox);
	read_back(op, on_read);
}

/* Somebody's resume has ended, maybe with less time than this call wants. */
static void on_resumed(struct sandbox_op *op, const struct status *st, bool yes)
{
	struct args *a = op->args;

	op->resumed = op->resumed || (status_ok(st) && yes);
	if (!status_ok(st))
		op_fail(op, st);
	else if (yes && a->resume_s >= a->life_s)
		read_back(op, on_read);
	else
		connect_step(op);
}

static void op_connect_on_turn(struct sandbox_op *op)
{
	struct args *a = op->args;

	/* The change that it waited for has ended. has_waited: it does not queue again behind others, since two calls could
	 * let each other pass for ever. */
	turn_end(&op->turn);
	a->has_waited = true;
	connect_step(op);
}

/* Extends a running sandbox at once, side by side with other calls; resumes a paused one, once for all calls that
 * want it; waits for any other change. */
static void connect_step(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct sandbox *b = op_sandbox(op);
	struct status st;

	if (!b) {
		call(op, op->id, cloud_connect, on_connected);	/* no row yet */
	} else if (!sandbox_is_live(b)) {
		sandbox_refusal(b, &st);
		op_fail(op, &st);
	} else if (b->state == SANDBOX_PAUSED || b->state == SANDBOX_RESUMING) {
		op->on_waited = on_resumed;
		if (transition_join_resume(op->core, b, a->life_s, op, &a->resume_s) < 0)
			op_fail_errno(op, -ENOMEM);
	} else if (turn_is_free(b) || a->has_waited) {
		a->has_waited = false;
		call(op, op->id, cloud_connect, on_connected);
	} else {
		op_take_turn(op, b, op_connect_on_turn);
	}
}

/* If this call takes a lease, can extensions keep the sandbox alive from then on? False: the op has failed. */
static bool can_be_kept(struct sandbox_op *op, const struct sandbox *b)
{
	struct args *a = op->args;
	int64_t left;
	struct status st;

	if (!a->holder || (b && (!b->policy.keep_alive || runner_keeps(b, &left))))
		return true;
	a->life_s = MAX(a->timeout_s, extend_span_with_new_s(op->account));
	if (extend_admits_new(op->account, a->life_s, &st))
		return true;
	op_fail(op, &st);
	return false;
}

static void connect_known(struct sandbox_op *op, struct sandbox *b)
{
	if (!can_be_kept(op, b))
		return;
	sandbox_claim(op->core, b, op->who.uid);
	connect_step(op);
}

/* A sandbox without a host's tag becomes the caller's; one of another host does with `adopt` alone. */
static void connect_stranger(struct sandbox_op *op, const struct cloud_sandbox *s)
{
	struct args *a = op->args;
	struct status st;
	struct tags t;

	tags_read(&s->metadata, &t);
	a->owner_by_this = !t.host || a->adopt;
	if (a->holder && !a->owner_by_this) {
		status_set(&st, R_UID_DENIED, "sandbox %s belongs to another host; set adopt to take a "
					      "lease on it", op->ref);
		op_fail(op, &st);
		return;
	}
	if (can_be_kept(op, NULL))
		call(op, s->id, cloud_connect, on_connected);
}

static void connect_start(struct sandbox_op *op)
{
	if (check_timeout(op))
		op_find(op, connect_known, connect_stranger);
}

static const struct op_kind connect_kind = {
	.name = "ConnectSandbox",
	.start = connect_start,
	.fail = op_fail_sandbox,
	.args_size = sizeof(struct args),
	.fini_args = op_connect_fini_args,
};

int sandbox_connect(struct sandbox_core *core, const struct sandbox_call *call,
		    const struct sandbox_connect *c, sandbox_view_fn *done, struct sandbox_op **ret)
{
	struct args a = { .timeout_ms = c->timeout_ms, .adopt = c->adopt, .wait_ready = c->wait_ready };
	int r = c->process_lease ? holder_of(core, call->who, &a.holder) : 0;

	if (r < 0)
		return r;
	return op_new(core, &connect_kind, call, &a, (union op_done){ .sandbox = done }, ret);
}

/* --- SetTimeout --- */

static void timeout_step(struct sandbox_op *op);

/* The end is now, and the cloud may have ended the sandbox already: nothing is read back. */
static void end_has_come(struct sandbox_op *op, struct sandbox *b)
{
	b->fresh_at_ms = 0;
	op_end_sandbox_of(op, b, SANDBOX_FROM_CACHE);
}

static void on_timeout_set(struct cloud_result *r, void *user)
{
	struct sandbox_op *op = op_from(user);
	struct args *a = op->args;
	struct sandbox *b = op_sandbox(op);

	op->call = NULL;
	if (r->outcome == CLOUD_DONE && !a->timeout_s && b)
		end_has_come(op, b);
	else if (r->outcome == CLOUD_DONE)
		read_back(op, on_read);
	else if (r->not_found)
		op_explain_missing(op);
	else if (r->conflict)
		op_again(op, &r->status, timeout_step);
	else
		op_fail(op, &r->status);
}

static void timeout_leave(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct sandbox *b = a->held ? op_sandbox(op) : NULL;

	a->held = false;
	if (b)
		runner_release(b);
}

static void on_timeout_turn(struct sandbox_op *op)
{
	struct args *a = op->args;

	turn_end(&op->turn);
	a->has_waited = true;
	timeout_step(op);
}

static void timeout_step(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct sandbox *b = op_sandbox(op);
	struct status st;

	if (b && !sandbox_is_live(b)) {
		sandbox_refusal(b, &st);
		op_fail(op, &st);
	} else if (!b || turn_is_free(b) || a->has_waited) {
		a->has_waited = false;
		/* An extension under way must not undo the new end. */
		if (b && !a->held)
			runner_hold(b);
		a->held = b != NULL;
		call(op, op->id, cloud_set_timeout, on_timeout_set);
	} else {
		op_take_turn(op, b, on_timeout_turn);
	}
}

static void timeout_known(struct sandbox_op *op, struct sandbox *b)
{
	timeout_step(op);
}

static void timeout_stranger(struct sandbox_op *op, const struct cloud_sandbox *s)
{
	call(op, s->id, cloud_set_timeout, on_timeout_set);
}

static void timeout_start(struct sandbox_op *op)
{
	if (check_timeout(op))
		op_find(op, timeout_known, timeout_stranger);
}

static const struct op_kind timeout_kind = {
	.name = "SetTimeout",
	.start = timeout_start,
	.fail = op_fail_sandbox,
	.leave = timeout_leave,
	.args_size = sizeof(struct args),
	.fini_args = op_connect_fini_args,
};

int sandbox_set_timeout(struct sandbox_core *core, const struct sandbox_call *call,
			uint64_t timeout_ms, sandbox_view_fn *done, struct sandbox_op **ret)
{
	const struct args a = { .timeout_ms = timeout_ms, .is_set = true };

	return op_new(core, &timeout_kind, call, &a, (union op_done){ .sandbox = done }, ret);
}
