/* SPDX-License-Identifier: MIT */
/*
 * GetMetrics. The cloud measures every few seconds, so an answer is kept for max_staleness and given to equal
 * questions; if the cloud does not answer, the last answer is given with its age.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/sandbox/op.h"
#include "proto/base/clock.h"

struct args {
	int64_t start_s, end_s;
};

static void end_with(struct sandbox_op *op, const struct cloud_metrics *m,
		     enum sandbox_source source, int64_t as_of_ms)
{
	struct sandbox_metrics out = { .metrics = m, .source = source, .as_of_ms = as_of_ms };
	struct status ok = STATUS_OK;

	op_end_metrics(op, &ok, &out);
}

static bool is_kept(const struct sandbox_op *op, const struct sandbox *b)
{
	const struct args *a = op->args;

	return b->metrics.m && b->metrics.start_s == a->start_s && b->metrics.end_s == a->end_s;
}

static void op_metrics_keep(struct sandbox_op *op, struct sandbox *b, struct cloud_metrics *m)
{
	const struct args *a = op->args;

	cloud_metrics_free(b->metrics.m);
	b->metrics = (struct sandbox_series){ .m = m, .start_s = a->start_s, .end_s = a->end_s,
					   .fresh_at_ms = clock_boot_ms(), .as_of_ms = clock_wall_ms() };
}

static void on_metrics(struct cloud_result *r, void *user)
{
	struct sandbox_op *op = op_from(user);
	struct sandbox *b = op_sandbox(op);

	op->call = NULL;
	if (r->outcome == CLOUD_DONE && r->metrics && b) {
		op_metrics_keep(op, b, give(r->metrics));
		end_with(op, b->metrics.m, SANDBOX_FROM_CLOUD, b->metrics.as_of_ms);
	} else if (r->outcome == CLOUD_DONE && r->metrics) {
		end_with(op, r->metrics, SANDBOX_FROM_CLOUD, clock_wall_ms());
	} else if (r->not_found) {
		op_explain_missing(op);
	} else if (b && is_kept(op, b)) {
		end_with(op, b->metrics.m, SANDBOX_FROM_CACHE_CLOUD_UNREACHABLE, b->metrics.as_of_ms);
	} else {
		op_fail(op, &r->status);
	}
}

static void ask(struct sandbox_op *op)
{
	const struct args *a = op->args;
	struct cloud_ask ask = op_ask(op, on_metrics);

	op->call = cloud_metrics(op->account->cloud, op->id, a->start_s, a->end_s, &ask);
	if (!op->call)
		op_fail_errno(op, -ENOMEM);
}

static void with_row(struct sandbox_op *op, struct sandbox *b)
{
	struct status st;

	if (!sandbox_is_live(b)) {
		sandbox_refusal(b, &st);
		op_fail(op, &st);
	} else if (is_kept(op, b) &&
		   b->metrics.fresh_at_ms + op->core->max_staleness_ms > clock_boot_ms()) {
		end_with(op, b->metrics.m, SANDBOX_FROM_CACHE, b->metrics.as_of_ms);
	} else {
		ask(op);
	}
}

static void without_row(struct sandbox_op *op, const struct cloud_sandbox *s)
{
	ask(op);
}

static void op_metrics_start(struct sandbox_op *op)
{
	const struct args *a = op->args;
	struct status st;

	if (a->start_s && a->end_s && a->start_s > a->end_s) {
		status_field(&st, "start", "is after end");
		op_fail(op, &st);
		return;
	}
	op_find(op, with_row, without_row);
}

static void op_metrics_expire(struct sandbox_op *op)
{
	struct sandbox *b = op->account ? op_sandbox(op) : NULL;
	struct status st;

	if (b && is_kept(op, b)) {
		end_with(op, b->metrics.m, SANDBOX_FROM_CACHE_CLOUD_UNREACHABLE, b->metrics.as_of_ms);
		return;
	}
	op_expired_status(op, &st);
	op_fail(op, &st);
}

static void op_metrics_fail(struct sandbox_op *op, const struct status *st)
{
	op_end_metrics(op, st, NULL);
}

static const struct op_kind op_metrics_kind = {
	.name = "GetMetrics",
	.start = op_metrics_start,
	.expire = op_metrics_expire,
	.fail = op_metrics_fail,
	.args_size = sizeof(struct args),
};

int sandbox_get_metrics(struct sandbox_core *core, const struct sandbox_call *call, int64_t start_s,
			int64_t end_s, sandbox_metrics_fn *done, struct sandbox_op **ret)
{
	const struct args a = { .start_s = start_s, .end_s = end_s };

	return op_new(core, &op_metrics_kind, call, &a, (union op_done){ .metrics = done }, ret);
}
