/* SPDX-License-Identifier: MIT */
/* SetPolicy: changes the policy of a sandbox. The answer comes when the change is durable. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/sandbox/op.h"
#include "daemon/sandbox/runner.h"

struct args {
	struct policy_change change;
	uint32_t reset;
};

static void on_written(struct sandbox_op *op, const struct status *st)
{
	struct sandbox *b = core_find(op->core, op->account, op->id);
	struct status gone;

	if (!status_ok(st)) {
		op_fail(op, st);
	} else if (b) {
		op_end_sandbox_of(op, b, SANDBOX_FROM_CACHE);
	} else {
		ref_not_found(&gone, op->ref);
		op_fail(op, &gone);
	}
}

/* The policy after the change. on_gone=recreate needs the recipe, which only a Create with recreate has stored. */
static bool new_policy(struct sandbox_op *op, const struct sandbox *b, struct policy *ret,
		       struct status *st)
{
	struct args *a = op->args;
	struct policy base;

	core_policy_default(op->core, b->uid, b->template_id, &base);
	if (!b->recipe.len)
		base.on_gone = POLICY_FAIL;
	*ret = b->policy;
	policy_reset(ret, &base, a->reset);
	policy_merge(ret, &a->change);
	if (ret->on_gone != POLICY_RECREATE || b->recipe.len)
		return true;
	status_set(st, R_UNSUPPORTED, "policy.on_gone: recreate has to be set at the creation: the parameters of "
				      "sandbox %s were not kept", b->id);
	return false;
}

static void change(struct sandbox_op *op, struct sandbox *b)
{
	struct store_tx *t;
	struct status st;
	struct policy p;

	if (!sandbox_is_live(b)) {
		sandbox_refusal(b, &st);
		op_fail(op, &st);
		return;
	}
	if (!new_policy(op, b, &p, &st)) {
		op_fail(op, &st);
		return;
	}
	op->account = b->account;
	if (text_set(&op->id, b->id) < 0 || store_tx_new(op->core->store, &t) < 0) {
		op_fail_errno(op, -ENOMEM);
		return;
	}
	b->policy = p;
	if (p.on_gone != POLICY_RECREATE)
		recipe_fini(&b->recipe);
	sandbox_put(t, b);
	event_put(op->core, t, b, EVENT_UPDATED, "policy=changed\n");
	runner_poke(b);
	op_commit(op, t, on_written);
}

static bool op_policy_check(const struct args *a, struct status *st)
{
	if (!policy_check(&a->change, st))
		return false;
	for (unsigned f = 0; f < POLICY_FIELDS; f++)
		if (a->reset & a->change.set & BIT(f)) {
			status_field(st, "reset", "%s is in policy too", policy_field_name((enum policy_field)f));
			return false;
		}
	return true;
}

static void op_policy_start(struct sandbox_op *op)
{
	struct status st;
	struct sandbox *b;

	if (!op_policy_check(op->args, &st)) {
		op_fail(op, &st);
		return;
	}
	switch (ref_find(op->core, &op->who, op->ref, &b, &op->account, &st)) {
	case REF_SANDBOX:
		change(op, b);
		return;
	case REF_ID:	/* without a row there is no policy to change */
		ref_not_found(&st, op->ref);
		break;
	case REF_NONE:
		break;
	}
	op_fail(op, &st);
}

static const struct op_kind op_policy_kind = {
	.name = "SetPolicy",
	.start = op_policy_start,
	.fail = op_fail_sandbox,
	.args_size = sizeof(struct args),
};

int sandbox_set_policy(struct sandbox_core *core, const struct sandbox_call *call,
		       const struct policy_change *change, uint32_t reset, sandbox_view_fn *done,
		       struct sandbox_op **ret)
{
	const struct args a = { .change = *change, .reset = reset };

	return op_new(core, &op_policy_kind, call, &a, (union op_done){ .sandbox = done }, ret);
}
