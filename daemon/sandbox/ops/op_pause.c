/* SPDX-License-Identifier: MIT */
/*
 * Pause and UpdateNetwork: changes of a running sandbox. The pause is a transition (transition.c). UpdateNetwork has the
 * sandbox's turn while it replaces the network and reads it back, so that two callers' settings never mix.
 * A sandbox without a row is changed in the caller's account, as the SDK does.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/rules.h"
#include "proto/cloud/netrules.h"

struct args {
	bool keep_memory;
	struct cloud_network *network;
	enum tri allow_internet_access;
	bool sent;		/* UpdateNetwork: the request */
	bool maybe_done;	/* Pause: an earlier request whose answer was lost may have done it */
};

static void op_pause_fini_args(void *args)
{
	struct args *a = args;

	cloud_network_free(a->network);
}

static void yes_if(struct sandbox_op *op, bool yes)
{
	struct status ok = STATUS_OK;

	op_end_yes(op, &ok, yes);
}

/* --- Pause --- */

static void pause_known(struct sandbox_op *op, struct sandbox *b)
{
	struct args *a = op->args;
	struct status st;

	if (!sandbox_is_live(b)) {
		sandbox_refusal(b, &st);
		op_fail(op, &st);
		return;
	}
	op->on_waited = op_end_waited;
	if (transition_join_pause(op->core, b, a->keep_memory, op) < 0)
		op_fail_errno(op, -ENOMEM);
}

static void pause_again(struct sandbox_op *op);

static void on_conflict_looked_at(struct cloud_result *r, void *user)
{
	struct sandbox_op *op = op_from(user);
	const struct args *a = op->args;
	struct status st;

	op->call = NULL;
	if (r->outcome == CLOUD_DONE && r->sandbox && r->sandbox->state == CLOUD_STATE_PAUSED) {
		yes_if(op, a->maybe_done);
	} else if (r->outcome == CLOUD_DONE) {
		st = op->pending_error;
		op_again(op, &st, pause_again);
	} else if (r->not_found) {
		ref_not_found(&st, op->ref);
		op_fail(op, &st);
	} else {
		op_fail(op, &r->status);
	}
}

static void on_stranger_paused(struct cloud_result *r, void *user)
{
	struct sandbox_op *op = op_from(user);
	struct cloud_ask ask = op_ask(op, on_conflict_looked_at);
	struct args *a = op->args;
	struct status st;

	op->call = NULL;
	a->maybe_done |= r->repeated;
	if (r->outcome == CLOUD_DONE) {
		yes_if(op, true);
	} else if (r->conflict) {
		op->pending_error = r->status;
		op->call = cloud_get(op->account->cloud, op->id, &ask);
		if (!op->call)
			op_fail_errno(op, -ENOMEM);
	} else if (r->not_found) {
		ref_not_found(&st, op->ref);
		op_fail(op, &st);
	} else {
		op_fail(op, &r->status);
	}
}

static void pause_again(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct cloud_ask ask = op_ask(op, on_stranger_paused);

	op->call = cloud_pause(op->account->cloud, op->id, a->keep_memory, &ask);
	if (!op->call)
		op_fail_errno(op, -ENOMEM);
}

static void pause_stranger(struct sandbox_op *op, const struct cloud_sandbox *s)
{
	pause_again(op);
}

static void pause_start(struct sandbox_op *op)
{
	op_find(op, pause_known, pause_stranger);
}

static const struct op_kind pause_kind = {
	.name = "Pause",
	.start = pause_start,
	.fail = op_fail_yes,
	.args_size = sizeof(struct args),
	.fini_args = op_pause_fini_args,
};

int sandbox_pause(struct sandbox_core *core, const struct sandbox_call *call, bool keep_memory,
		  sandbox_bool_fn *done, struct sandbox_op **ret)
{
	const struct args a = { .keep_memory = keep_memory };

	return op_new(core, &pause_kind, call, &a, (union op_done){ .yes = done }, ret);
}

/* --- UpdateNetwork --- */

static void on_network_read(struct cloud_result *r, void *user)
{
	struct sandbox_op *op = op_from(user);
	struct sandbox *b = op_sandbox(op);

	op->call = NULL;
	/* The change was done, also where it cannot be read back. */
	if (b && r->outcome == CLOUD_DONE && r->sandbox) {
		b->token_known = true;
		sandbox_seen_since(op->core, b, r->sandbox, op->asked_at_ms);
	} else if (b) {
		b->fresh_at_ms = 0;
	}
	yes_if(op, true);
}

static void put_network(struct sandbox_op *op);

static void on_network_put(struct cloud_result *r, void *user)
{
	struct sandbox_op *op = op_from(user);
	struct cloud_ask ask = op_ask(op, on_network_read);

	op->call = NULL;
	if (r->outcome == CLOUD_DONE) {
		op->call = cloud_get(op->account->cloud, op->id, &ask);
		if (!op->call)
			op_fail_errno(op, -ENOMEM);
	} else if (r->not_found) {
		op_explain_missing(op);
	} else if (r->conflict) {
		op_again(op, &r->status, put_network);
	} else {
		op_fail(op, &r->status);
	}
}

static void put_network(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct cloud_ask ask = op_ask(op, on_network_put);
	struct sandbox *b = op_sandbox(op);
	struct status st;

	if (b && !sandbox_is_live(b)) {
		sandbox_refusal(b, &st);
		op_fail(op, &st);
		return;
	}
	op->call = cloud_put_network(op->account->cloud, op->id, a->network, a->allow_internet_access,
				     &ask);
	a->sent = true;
	if (!op->call)
		op_fail_errno(op, -ENOMEM);
}

static void network_known(struct sandbox_op *op, struct sandbox *b)
{
	op_take_turn(op, b, put_network);
}

static void network_stranger(struct sandbox_op *op, const struct cloud_sandbox *s)
{
	put_network(op);
}

static void network_start(struct sandbox_op *op)
{
	struct args *a = op->args;
	static const struct netrules_with with = { .replaces_egress = true };
	struct netrules_fault f;
	struct status st;

	if (netrules_network_ok(a->network, &with, &f)) {
		op_find(op, network_known, network_stranger);
		return;
	}
	rules_network_fault(&f, &st);
	op_fail(op, &st);
}

/* The caller left before the answer: fresh_at_ms 0 makes the next call ask what is in force. */
static void network_leave(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct sandbox *b = op->account ? op_sandbox(op) : NULL;

	if (a->sent && op->call && b)
		b->fresh_at_ms = 0;
}

static const struct op_kind network_kind = {
	.name = "UpdateNetwork",
	.start = network_start,
	.fail = op_fail_yes,
	.leave = network_leave,
	.args_size = sizeof(struct args),
	.fini_args = op_pause_fini_args,
};

int sandbox_update_network(struct sandbox_core *core, const struct sandbox_call *call,
			   struct cloud_network *network, enum tri allow_internet_access,
			   sandbox_bool_fn *done, struct sandbox_op **ret)
{
	struct args a = { .network = network ? network : calloc(1, sizeof(*network)),
			  .allow_internet_access = allow_internet_access };

	if (!a.network || netrules_complete(a.network, a.allow_internet_access) < 0) {
		op_pause_fini_args(&a);
		return -ENOMEM;
	}
	return op_new(core, &network_kind, call, &a, (union op_done){ .yes = done }, ret);
}
