/* SPDX-License-Identifier: MIT */
/*
 * Callers of Fork and of SnapshotService.Create: is the call a repeat, and which sandbox is meant? Then it waits for a
 * copy (copy.c), its own or that of its request id. A repeat is answered with what came of the first call, as it
 * is now.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sandbox/copy.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/rules.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

#define FORK_MAX 100u
#define NAME_MAX_BYTES 255u

struct args {
	const struct copy_kind *kind;
	char *request_id, *name;
	uint8_t params_hash[32];
	uint32_t count, timeout_s;
	struct policy_change policy;
	bool bad;
	struct status why;
};

static void op_copy_fini_args(void *args)
{
	struct args *a = args;

	free(a->request_id);
	free(a->name);
}

/* --- answers --- */

struct family {		/* the answer of a Fork */
	struct sandbox_child v[FORK_MAX];
	struct sandbox_view views[FORK_MAX];
	struct status sts[FORK_MAX];
	size_t n;
};

/* Adds the next child's part of the answer. `word`: what say_object() (fork.c) stored of it; made: NULL = in an earlier call. */
static void add_child(struct sandbox_op *op, struct account *account, const char *word,
		      const struct cloud_child *made, struct family *f)
{
	struct sandbox *b = *word == '!' ? NULL : core_find(op->core, account, word);
	struct status *st = &f->sts[f->n];
	struct sandbox_child *ret = &f->v[f->n];

	*ret = (struct sandbox_child){ .st = st };
	if (b) {
		sandbox_claim(op->core, b, op->who.uid);
		sandbox_view(b, made ? SANDBOX_FROM_CLOUD : SANDBOX_FROM_CACHE, &f->views[f->n]);
		ret->sandbox = &f->views[f->n];
	} else if (*word != '!') {
		status_set(st, R_SANDBOX_GONE, "sandbox %s of this request_id no longer exists", word);
		status_evidence(st, "sandbox_id", "%s", word);
	} else if (made) {
		*st = made->error;
	} else {
		enum ab_reason reason = status_reason_by_name(word + 1, strlen(word + 1));

		status_set(st, reason ? reason : R_BUG, "this child was not made when the request ran");
	}
	f->n++;
}

static void answer_fork(struct sandbox_op *op, struct account *account, const char *object,
			const struct cloud_children *made)
{
	char *words = str_dup(object), *save = NULL;
	struct family *f = calloc(1, sizeof(*f));
	struct status ok = STATUS_OK;

	if (!words || !f) {
		op_fail_errno(op, -ENOMEM);
	} else {
		for (char *w = strtok_r(words, " ", &save); w && f->n < FORK_MAX;
		     w = strtok_r(NULL, " ", &save))
			add_child(op, account, w, made && f->n < made->n ? &made->v[f->n] : NULL, f);
		op_end_fork(op, &ok, f->v, f->n);
	}
	free(words);
	free(f);
}

static void answer_snapshot(struct sandbox_op *op, struct account *account, const char *id, bool fresh)
{
	struct snap *s = snap_find(op->core, account, id);
	struct sandbox_snapshot view;
	struct status st = STATUS_OK;

	if (!s) {
		status_set(&st, R_SNAPSHOT_NOT_FOUND, "snapshot %s of this request_id no longer exists", id);
		status_evidence(&st, "snapshot", "%s", id);
		op_fail(op, &st);
		return;
	}
	snap_view(s, fresh ? SANDBOX_FROM_CLOUD : SANDBOX_FROM_CACHE, &view);
	op_end_snapshot(op, &st, &view);
}

static void answer_request(struct sandbox_op *op, struct request *q)
{
	struct args *a = op->args;

	if (a->kind == &copy_fork)
		answer_fork(op, q->account, q->object, NULL);
	else
		answer_snapshot(op, q->account, q->object, false);
}

static void on_told(struct sandbox_op *op, const struct status *st, bool yes)
{
	struct copy *c = copy_from(give(op->attempt));

	if (!yes)
		op_fail(op, st);
	else if (c->kind == &copy_fork)
		answer_fork(op, c->att.account, c->att.object, c->children);
	else
		answer_snapshot(op, c->att.account, c->att.object, true);
}

/* --- a new one --- */

static int op_copy_fill(struct sandbox_op *op, struct copy *c)
{
	struct args *a = op->args;
	struct sandbox *b = op_sandbox(op);
	int r = text_set(&c->name, a->name);

	copy_set_count(c, a->count);
	c->timeout_s = a->timeout_s;
	core_policy_default(op->core, op->who.uid, b ? b->template_id : "", &c->att.policy);
	policy_merge(&c->att.policy, &a->policy);
	c->att.policy.on_gone = POLICY_FAIL;
	/* Nothing in the cloud has a tag of this request id. */
	if (!r && a->request_id[0])
		r = attempt_take_request(&c->att, a->kind->method, a->request_id, "-", a->params_hash);
	return r;
}

static void make(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct request *q = a->request_id[0] ? core_find_request(op->core, op->who.uid,
								 a->kind->method, a->request_id)
					     : NULL;
	struct copy *c;
	struct status st;

	/* Another call with this request id may have come first while the cloud was asked which sandbox this is. */
	if (q && attempt_repeat(op, q, a->params_hash, on_told, answer_request))
		return;
	if (op->core->draining) {
		status_set(&st, R_DRAINING, "the daemon is stopping and makes nothing any more");
		op_fail(op, &st);
		return;
	}
	if (core_is_retired(op->account, &st)) {
		op_fail(op, &st);
		return;
	}
	if (a->kind == &copy_fork &&
	    (core_is_quiesced(op->core, &st) || core_refused_by_limits(op->core, op->account, op->who.uid, a->count, &st))) {
		op_fail(op, &st);
		return;
	}
	if (a->kind == &copy_snapshot && a->name[0] &&
	    snap_name_is_taken(op->core, op->account, &op->who, a->name, &st)) {
		op_fail(op, &st);
		return;
	}
	if (copy_new(op->core, a->kind, op->account, op->who.uid, op->id, &c) < 0) {
		op_fail_errno(op, -ENOMEM);
		return;
	}
	if (op_copy_fill(op, c) < 0) {
		attempt_give_up(&c->att);
		op_fail_errno(op, -ENOMEM);
		return;
	}
	c->att.trace = op->trace;
	copy_start(c);
	attempt_join(&c->att, op, on_told);
}

/* --- which sandbox --- */

static void of_row(struct sandbox_op *op, struct sandbox *b)
{
	struct status st;

	if (!sandbox_is_live(b)) {
		sandbox_refusal(b, &st);
		op_fail(op, &st);
	} else {
		make(op);
	}
}

/* A sandbox of the account without a row: who knows its id may copy it. */
static void of_stranger(struct sandbox_op *op, const struct cloud_sandbox *s)
{
	make(op);
}

static void op_copy_start(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct request *q =
		a->request_id[0] && !a->bad
			? core_find_request(op->core, op->who.uid, a->kind->method, a->request_id)
			: NULL;

	if (a->bad) {
		op_fail(op, &a->why);
		return;
	}
	if (!q || !attempt_repeat(op, q, a->params_hash, on_told, answer_request))
		op_find(op, of_row, of_stranger);
}

static void op_copy_expire(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct status st;

	attempt_expired(op, a->request_id[0], &st);
	op_fail(op, &st);
}

static const char *op_copy_request(const struct sandbox_op *op, const char **ret_method)
{
	const struct args *a = op->args;

	*ret_method = a->kind->method;
	return a->bad ? NULL : a->request_id;
}

static void fork_fail(struct sandbox_op *op, const struct status *st)
{
	op_end_fork(op, st, NULL, 0);
}

static void snapshot_fail(struct sandbox_op *op, const struct status *st)
{
	op_end_snapshot(op, st, NULL);
}

static const struct op_kind fork_kind = {
	.name = "Fork",
	.start = op_copy_start,
	.expire = op_copy_expire,
	.fail = fork_fail,
	.leave = attempt_leave,
	.request = op_copy_request,
	.args_size = sizeof(struct args),
	.fini_args = op_copy_fini_args,
};

static const struct op_kind snapshot_kind = {
	.name = "CreateSnapshot",
	.start = op_copy_start,
	.expire = op_copy_expire,
	.fail = snapshot_fail,
	.leave = attempt_leave,
	.request = op_copy_request,
	.args_size = sizeof(struct args),
	.fini_args = op_copy_fini_args,
};

static int init_args(struct args *a, const char *request_id, const uint8_t hash[32], const char *name)
{
	memcpy(a->params_hash, hash, sizeof(a->params_hash));
	a->bad = !rules_check_request_id(request_id, &a->why);
	if (text_set(&a->request_id, request_id) == 0 && text_set(&a->name, name) == 0)
		return 0;
	op_copy_fini_args(a);
	return -ENOMEM;
}

static bool check_fork(const struct args *a, uint64_t timeout_ms, struct status *st)
{
	uint32_t s;

	if (!policy_check(&a->policy, st))
		return false;
	if ((a->policy.set & BIT(POLICY_F_ON_GONE)) && a->policy.to.on_gone == POLICY_RECREATE)
		status_set(st, R_UNSUPPORTED,
			   "policy.on_gone: a child of a fork has no parameters to make it again");
	else if (a->count > FORK_MAX)
		status_field(st, "count", "must be 1 to %u", FORK_MAX);
	else if (!rules_timeout_s(timeout_ms, &s))
		status_field(st, "sandbox_timeout", "must be at most 30 days");
	else
		return true;
	return false;
}

int sandbox_fork(struct sandbox_core *core, const struct sandbox_call *call,
		 struct sandbox_create *children, uint32_t count, sandbox_fork_fn *done,
		 struct sandbox_op **ret)
{
	struct args a = { .kind = &copy_fork, .count = count ? count : 1, .policy = children->policy };
	int r = init_args(&a, children->request_id, children->params_hash, NULL);

	a.bad = a.bad || !check_fork(&a, children->timeout_ms, &a.why);
	(void)rules_timeout_s(children->timeout_ms, &a.timeout_s);
	sandbox_create_fini(children);
	if (r < 0)
		return r;
	return op_new(core, &fork_kind, call, &a, (union op_done){ .fork = done }, ret);
}

int sandbox_snapshot_create(struct sandbox_core *core, const struct sandbox_call *call,
			    const struct sandbox_snapshot_create *c, sandbox_snapshot_fn *done,
			    struct sandbox_op **ret)
{
	struct args a = { .kind = &copy_snapshot, .count = 1 };
	int r = init_args(&a, c->request_id, c->params_hash, c->name);

	if (r < 0)
		return r;
	if (!a.bad && strlen(a.name) > NAME_MAX_BYTES) {
		status_field(&a.why, "name", "has at most %u bytes", NAME_MAX_BYTES);
		a.bad = true;
	} else if (!a.bad && a.name[0] && !rules_check_template("name", a.name, &a.why)) {
		a.bad = true;
	}
	return op_new(core, &snapshot_kind, call, &a, (union op_done){ .snapshot = done }, ret);
}
