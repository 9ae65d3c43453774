/* SPDX-License-Identifier: MIT */
/*
 * Callers' lease operations. The steps of taking one:
 *
 *   find     the row, or for an id without one the sandbox in the caller's account, which becomes the
 *            caller's (adopted); one with another host's tag is refused
 *   take     in memory at once, then durably in the store, then the answer
 *
 * A paused sandbox can be leased: no policy ends it then, and it stays paused.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/grant.h"
#include "daemon/auth/owner.h"
#include "daemon/common/obs/failpoint.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/holder.h"
#include "daemon/sandbox/lease.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/page.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/rules/tags.h"
#include "daemon/sandbox/runner.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

struct args {
	enum sandbox_lease_kind kind;
	char *label, *lease_id;
	uint64_t ttl_ms;
	struct holder *holder;
	bool taken;		/* this call took lease_id and did not answer yet; without a ttl its end ends the lease */
};

static void op_lease_fini_args(void *args)
{
	struct args *a = args;

	free(a->label);
	free(a->lease_id);
	holder_unref(a->holder);
}

static void fail_lease(struct sandbox_op *op, const struct status *st)
{
	op_end_lease(op, st, NULL);
}

static void lease_not_found(const char *id, struct status *st)
{
	status_set(st, R_LEASE_NOT_FOUND, "there is no lease %s", id);
	status_evidence(st, "lease_id", "%s", id);
}

/* The lease, if the caller may use it; else NULL with the status. */
static struct lease *find_own(struct sandbox_op *op, const char *id, struct status *st)
{
	struct lease *x = lease_find(op->core, id);

	if (x && grant_row(&op->who, x->uid) == GRANT_OK)
		return x;
	lease_not_found(id, st);
	return NULL;
}

/* --- Acquire, Hold --- */

static void leave_acquire(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct lease *x =
		a->taken && a->kind != SANDBOX_LEASE_TTL ? lease_find(op->core, a->lease_id) : NULL;

	a->taken = false;
	/* The caller went away before the answer and would not release it. If it is written, another call of the
	 * process may have answered with it. */
	if (x && !x->held && !x->written)
		lease_end(x, "its caller went away");
}

static void on_taken(struct sandbox_op *op, const struct status *st)
{
	struct args *a = op->args;
	struct lease *x = lease_find(op->core, a->lease_id);
	struct sandbox_lease v;
	struct status lost;

	FAILPOINT("lease.committed");
	if (!status_ok(st) && x && a->taken) {
		a->taken = false;
		if (!x->written)
			lease_end(x, "it could not be written down");
	}
	if (!status_ok(st) || !x || x->state != LEASE_HELD) {
		lease_not_found(a->lease_id, &lost);
		op_fail(op, status_ok(st) ? &lost : st);
		return;
	}
	lease_view(x, &v);
	x->written = true;
	a->taken = false;
	op_end_lease(op, st, &v);
	if (x->kind == ROW_LEASE_STREAM && !x->held && x->state == LEASE_HELD)
		lease_end(x, "no stream took it");
}

static bool may_take(struct sandbox_op *op, struct sandbox *b, struct lease **ret_again,
		     struct status *st)
{
	struct args *a = op->args;

	*ret_again = NULL;
	if (!sandbox_is_live(b)) {
		sandbox_refusal(b, st);
		return false;
	}
	if (a->lease_id[0]) {
		*ret_again = find_own(op, a->lease_id, st);
		if (!*ret_again)
			return false;
		if (str_eq((*ret_again)->sandbox_id, b->id))
			return true;
		status_field(st, "lease_id", "is a lease on sandbox %s", (*ret_again)->sandbox_id);
		return false;
	}
	if (lease_count(op->core, op->who.uid) < LEASES_PER_UID)
		return extend_admits(b->account, b, st);
	status_set(st, R_QUOTA_UID, "uid %u holds %u leases already", owner_uid(op->who.uid), LEASES_PER_UID);
	return false;
}

static void op_lease_take(struct sandbox_op *op, struct sandbox *b, bool is_new)
{
	struct args *a = op->args;
	struct lease_make m = { .uid = op->who.uid, .pid = op->who.pid, .label = a->label,
				.kind = (enum row_lease_kind)a->kind, .ttl_ms = a->ttl_ms,
				.holder = a->holder };
	struct lease *x, *again;
	struct store_tx *t;
	struct status st;

	if (!may_take(op, b, &again, &st)) {
		op_fail(op, &st);
		return;
	}
	sandbox_claim(op->core, b, op->who.uid);
	if (store_tx_new(op->core->store, &t) < 0) {
		op_fail_errno(op, -ENOMEM);
		return;
	}
	if (lease_take(op->core, b, &m, again, &x) < 0) {
		store_tx_drop(t);
		op_fail_errno(op, -ENOMEM);
		return;
	}
	if (text_set(&a->lease_id, x->id) < 0) {
		store_tx_drop(t);
		lease_end(x, "out of memory");
		op_fail_errno(op, -ENOMEM);
		return;
	}
	a->taken = true;
	lease_put(t, x);
	sandbox_put(t, b);
	event_put(op->core, t, b, is_new ? EVENT_ADOPTED : EVENT_UPDATED,
		  "lease=taken\nlease_id=%s\n", x->id);
	runner_poke(b);
	op_commit(op, t, on_taken);
}

static struct sandbox *adopt(struct sandbox_op *op, const struct cloud_sandbox *s)
{
	scoped(sandbox_freep) struct sandbox *b = NULL;

	if (sandbox_from_cloud(op->account, s, &b) < 0)
		return NULL;
	b->uid = op->who.uid;
	b->adopted = b->claimed = b->token_known = true;
	b->used_at_ms = (int64_t)clock_boot_ms();
	core_policy_default(op->core, b->uid, b->template_id, &b->policy);
	b->policy.on_gone = POLICY_FAIL;	/* there are no parameters to make it again */
	if (core_insert(op->core, b) < 0)
		return NULL;
	log_info("sandbox_owned", "sandbox=%s uid=%u by=lease", b->id, owner_uid(b->uid));
	return give(b);
}

static void take_known(struct sandbox_op *op, struct sandbox *b)
{
	op_lease_take(op, b, false);
}

static void take_stranger(struct sandbox_op *op, const struct cloud_sandbox *s)
{
	struct status st;
	struct sandbox *b;
	struct tags t;

	tags_read(&s->metadata, &t);
	if (t.host) {
		status_set(&st, R_UID_DENIED, "sandbox %s belongs to another host; ConnectSandbox with adopt first", op->ref);
		op_fail(op, &st);
		return;
	}
	b = adopt(op, s);
	if (b)
		op_lease_take(op, b, true);
	else
		op_fail_errno(op, -ENOMEM);
}

static bool check_acquire(struct sandbox_op *op, struct status *st)
{
	const struct args *a = op->args;

	if (strlen(a->label) > LEASE_LABEL_MAX) {
		status_field(st, "label", "must be at most %u bytes", LEASE_LABEL_MAX);
		return false;
	}
	if (a->kind == SANDBOX_LEASE_TTL && (!a->ttl_ms || a->ttl_ms > RULES_SPAN_MAX_MS)) {
		status_field(st, "ttl", "must be above 0 and at most 30 days");
		return false;
	}
	if (a->holder && a->holder->dead) {
		status_set_code(st, CODE_CANCELLED, "the calling process has died");
		return false;
	}
	return true;
}

static void acquire_start(struct sandbox_op *op)
{
	struct status st;

	if (check_acquire(op, &st))
		op_find(op, take_known, take_stranger);
	else
		op_fail(op, &st);
}

static const struct op_kind acquire_kind = {
	.name = "Acquire",
	.start = acquire_start,
	.fail = fail_lease,
	.leave = leave_acquire,
	.args_size = sizeof(struct args),
	.fini_args = op_lease_fini_args,
};

int sandbox_acquire(struct sandbox_core *core, const struct sandbox_call *call,
		    const struct sandbox_acquire *q, sandbox_lease_fn *done,
		    struct sandbox_op **ret)
{
	struct args a = { .kind = q->kind, .ttl_ms = q->ttl_ms };
	int r = text_set(&a.label, q->label);

	if (!r)
		r = text_set(&a.lease_id, q->lease_id);
	if (!r && q->kind == SANDBOX_LEASE_PROCESS)
		r = holder_of(core, call->who, &a.holder);
	if (r < 0) {
		op_lease_fini_args(&a);
		return r;
	}
	return op_new(core, &acquire_kind, call, &a, (union op_done){ .lease = done }, ret);
}

/* --- Renew --- */

static void renew_start(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct store_tx *t;
	struct status st;
	struct lease *x = find_own(op, a->lease_id, &st);

	if (x && x->state == LEASE_ENDED) {
		lease_not_found(a->lease_id, &st);
		x = NULL;
	}
	if (x && x->kind != ROW_LEASE_TTL) {
		status_field(&st, "lease_id", "is held by a %s: it does not expire",
			     x->kind == ROW_LEASE_STREAM ? "stream" : "process");
		x = NULL;
	}
	if (x && (!a->ttl_ms || a->ttl_ms > RULES_SPAN_MAX_MS)) {
		status_field(&st, "ttl", "must be above 0 and at most 30 days");
		x = NULL;
	}
	if (!x) {
		op_fail(op, &st);
		return;
	}
	if (lease_renew(x, a->ttl_ms) < 0 || store_tx_new(op->core->store, &t) < 0) {
		op_fail_errno(op, -ENOMEM);
		return;
	}
	lease_put(t, x);
	op_commit(op, t, on_taken);
}

static const struct op_kind renew_kind = {
	.name = "Renew",
	.start = renew_start,
	.fail = fail_lease,
	.args_size = sizeof(struct args),
	.fini_args = op_lease_fini_args,
};

int sandbox_renew(struct sandbox_core *core, const struct sandbox_call *call, const char *lease_id,
		  uint64_t ttl_ms, sandbox_lease_fn *done, struct sandbox_op **ret)
{
	struct args a = { .kind = SANDBOX_LEASE_TTL, .ttl_ms = ttl_ms };

	if (text_set(&a.lease_id, lease_id) < 0)
		return -ENOMEM;
	return op_new(core, &renew_kind, call, &a, (union op_done){ .lease = done }, ret);
}

/* --- Release --- */

static void on_released(struct sandbox_op *op, const struct status *st)
{
	if (status_ok(st))
		op_end_yes(op, st, true);
	else
		op_fail(op, st);
}

static void release_start(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct status st, ok = STATUS_OK;
	struct lease *x = find_own(op, a->lease_id, &st);
	struct store_tx *t;

	if (!x || x->state == LEASE_ENDED) {
		op_end_yes(op, &ok, false);
		return;
	}
	lease_end(x, "it was released");
	/* Commits keep their order: this empty one is durable after the end of the lease. */
	if (store_tx_new(op->core->store, &t) < 0)
		op_fail_errno(op, -ENOMEM);
	else
		op_commit(op, t, on_released);
}

static const struct op_kind release_kind = {
	.name = "Release",
	.start = release_start,
	.fail = op_fail_yes,
	.args_size = sizeof(struct args),
	.fini_args = op_lease_fini_args,
};

int sandbox_release(struct sandbox_core *core, const struct sandbox_call *call,
		    const char *lease_id, sandbox_bool_fn *done, struct sandbox_op **ret)
{
	struct args a = { .kind = SANDBOX_LEASE_TTL };

	if (text_set(&a.lease_id, lease_id) < 0)
		return -ENOMEM;
	return op_new(core, &release_kind, call, &a, (union op_done){ .yes = done }, ret);
}

/* --- List --- */

struct list_args {
	uint32_t page_size;
	char *page_token;
};

static void fini_list_args(void *args)
{
	struct list_args *a = args;

	free(a->page_token);
}

static void fail_leases(struct sandbox_op *op, const struct status *st)
{
	op_end_leases(op, st, NULL);
}

static bool is_listed(const struct sandbox_op *op, const struct lease *x)
{
	return x->state != LEASE_ENDED && (grant_row(&op->who, x->uid) == GRANT_OK || x->sandbox->uid == op->who.uid);
}

/* The next lease of a sandbox above a number. */
static struct lease *next_on(const struct sandbox *only, uint64_t after)
{
	list_for_each(n, &only->leases) {
		struct lease *x = list_entry(n, struct lease, sandbox_node);

		if (x->number > after)
			return x;
	}
	return NULL;
}

static struct lease *behind(const struct lease *x, const struct sandbox *only)
{
	if (!only)
		return lease_next(x);
	return x->sandbox_node.next == &only->leases ? NULL : list_entry(x->sandbox_node.next, struct lease, sandbox_node);
}

static void answer_list(struct sandbox_op *op, const struct sandbox *only, uint32_t size,
			uint64_t after)
{
	struct sandbox_lease *v = calloc(size, sizeof(*v));
	struct sandbox_lease_page page = { .leases = v, .next_page_token = "" };
	struct status ok = STATUS_OK;
	char token[24];
	uint64_t last = 0;

	if (!v) {
		op_fail_errno(op, -ENOMEM);
		return;
	}
	for (struct lease *x = only ? next_on(only, after) : lease_above(op->core, after); x; x = behind(x, only)) {
		if (!only && !is_listed(op, x))
			continue;
		if (page.n == size) {
			snprintf(token, sizeof(token), "%llu", (unsigned long long)last);
			page.next_page_token = token;
			break;
		}
		lease_view(x, &v[page.n++]);
		last = x->number;
	}
	op_end_leases(op, &ok, &page);
	free(v);
}

static void list_start(struct sandbox_op *op)
{
	struct list_args *a = op->args;
	struct sandbox *only = NULL;
	struct status st;
	uint32_t size;
	uint64_t after = 0;

	if (!page_size(a->page_size, &size)) {
		status_field(&st, "page_size", "must be at most %u", PAGE_MAX);
		op_fail(op, &st);
		return;
	}
	if (a->page_token[0] && str_u64(a->page_token, strlen(a->page_token), UINT64_MAX, &after) < 0) {
		status_field(&st, "page_token", "is not one that this list gave out");
		op_fail(op, &st);
		return;
	}
	if (op->ref[0]) {
		switch (ref_find(op->core, &op->who, op->ref, &only, &op->account, &st)) {
		case REF_NONE:
			op_fail(op, &st);
			return;
		case REF_ID:
			ref_not_found(&st, op->ref);
			op_fail(op, &st);
			return;
		case REF_SANDBOX:
			break;
		}
	}
	answer_list(op, only, size, after);
}

static const struct op_kind list_kind = {
	.name = "List",
	.start = list_start,
	.fail = fail_leases,
	.args_size = sizeof(struct list_args),
	.fini_args = fini_list_args,
};

int sandbox_list_leases(struct sandbox_core *core, const struct sandbox_call *call,
			uint32_t page_size, const char *page_token, sandbox_leases_fn *done,
			struct sandbox_op **ret)
{
	struct list_args a = { .page_size = page_size };

	if (text_set(&a.page_token, page_token) < 0)
		return -ENOMEM;
	return op_new(core, &list_kind, call, &a, (union op_done){ .leases = done }, ret);
}
