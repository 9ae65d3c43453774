/* SPDX-License-Identifier: MIT */
/*
 * Refresh: extends a sandbox and does nothing else. It waits for a change of ours that is under way; a 409 is somebody else's
 * change, and it asks again until the deadline. The row learns the new end from the cloud.
 */
#include <errno.h>

#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/rules.h"

struct args {
	uint64_t for_ms;
	uint32_t for_s;
	bool has_waited;	/* its turn has come */
};

static void on_end_read(struct cloud_result *r, void *user)
{
	struct sandbox_op *op = op_from(user);
	struct sandbox *b = op_sandbox(op);
	struct status ok = STATUS_OK;

	op->call = NULL;
	/* The extension was done, also where the end cannot be read back. */
	if (b && r->outcome == CLOUD_DONE && r->sandbox) {
		b->token_known = true;
		sandbox_seen_since(op->core, b, r->sandbox, op->asked_at_ms);
	} else if (b) {
		b->fresh_at_ms = 0;
	}
	op_end_yes(op, &ok, true);
}

static void refresh_step(struct sandbox_op *op);

static void on_refreshed(struct cloud_result *r, void *user)
{
	struct sandbox_op *op = op_from(user);
	struct cloud_ask ask;

	op->call = NULL;
	if (r->outcome != CLOUD_DONE && r->not_found) {
		op_explain_missing(op);
	} else if (r->outcome != CLOUD_DONE && r->conflict) {
		op_again(op, &r->status, refresh_step);
	} else if (r->outcome != CLOUD_DONE) {
		op_fail(op, &r->status);
	} else {
		ask = op_ask(op, on_end_read);
		op->call = cloud_get(op->account->cloud, op->id, &ask);
		if (!op->call)
			op_fail_errno(op, -ENOMEM);
	}
}

static void on_refresh_turn(struct sandbox_op *op)
{
	struct args *a = op->args;

	turn_end(&op->turn);
	a->has_waited = true;
	refresh_step(op);
}

static void refresh_step(struct sandbox_op *op)
{
	struct cloud_ask ask = op_ask(op, on_refreshed);
	struct args *a = op->args;
	struct sandbox *b = op_sandbox(op);
	struct status st;

	if (b && (!sandbox_is_live(b) || b->state == SANDBOX_PAUSED)) {
		sandbox_refusal(b, &st);
		op_fail(op, &st);
	} else if (b && !turn_is_free(b) && !a->has_waited) {
		op_take_turn(op, b, on_refresh_turn);
	} else {
		a->has_waited = false;
		if (b)
			sandbox_used(op->core, b);
		op->call = cloud_refresh(op->account->cloud, op->id, a->for_s, &ask);
		if (!op->call)
			op_fail_errno(op, -ENOMEM);
	}
}

static void refresh_known(struct sandbox_op *op, struct sandbox *b)
{
	refresh_step(op);
}

static void refresh_stranger(struct sandbox_op *op, const struct cloud_sandbox *s)
{
	refresh_step(op);
}

static void refresh_start(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct status st;

	if (rules_timeout_s(a->for_ms, &a->for_s)) {
		op_find(op, refresh_known, refresh_stranger);
		return;
	}
	status_field(&st, "duration", "must be at most 30 days");
	op_fail(op, &st);
}

static const struct op_kind refresh_kind = {
	.name = "Refresh",
	.start = refresh_start,
	.fail = op_fail_yes,
	.args_size = sizeof(struct args),
};

int sandbox_refresh(struct sandbox_core *core, const struct sandbox_call *call, uint64_t for_ms,
		    sandbox_bool_fn *done, struct sandbox_op **ret)
{
	const struct args a = { .for_ms = for_ms };

	return op_new(core, &refresh_kind, call, &a, (union op_done){ .yes = done }, ret);
}
