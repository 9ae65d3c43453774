/* SPDX-License-Identifier: MIT */
/*
 * Listing and deleting snapshots. A list asks the cloud for all pages, with the cloud's own filters, takes
 * the answer over and returns a page in the cloud's order; if the cloud does not answer, or with `cached`, it returns
 * what was last known, and its source says so. A snapshot that another user of this host made is shown to
 * that user and to admins only. Another user's sandbox has none, as an id that nobody has: the cloud is asked all the same.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sandbox/copy.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/page.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

#define REF_MAX 255u

struct args {
	char *name, *token;
	bool cached;
	uint32_t asked_size, page_size;
	struct page_place after;
	uint64_t question;
	uint64_t asked_boot_ms;
};

static void op_snapshots_fini_args(void *args)
{
	struct args *a = args;

	free(a->name);
	free(a->token);
}

/* --- List --- */

/* Does `want` ("alias", "team/alias", with or without ":tag", or the id) mean this snapshot? */
static bool has_name(const struct snap *s, const char *want)
{
	size_t n = strcspn(want, ":");

	if (str_eq(s->id, want))
		return true;
	for (size_t i = 0; i < s->names.n; i++) {
		const char *name = s->names.v[i], *base = strrchr(name, '/');

		base = base ? base + 1 : name;
		if ((strcspn(name, ":") == n && !strncmp(name, want, n)) ||
		    (strcspn(base, ":") == n && !strncmp(base, want, n)))
			return want[n] == 0 || str_eq(s->id + strcspn(s->id, ":"), want + n);
	}
	return false;
}

char *sandbox_index_token(size_t at, const char *id, uint64_t question)
{
	struct page_place last = { .started_at_ms = (int64_t)at };

	if (!str_copy(last.id, sizeof(last.id), id))
		(void)str_copy(last.id, sizeof(last.id), "-");
	return page_token(&last, question);
}

/* Answers with the page of v behind a->after: behind the snapshot of its id, or if that is gone, at its index (in started_at_ms). */
static void op_snapshots_answer(struct sandbox_op *op, struct snap **v, size_t n,
				enum sandbox_source source)
{
	struct args *a = op->args;
	struct sandbox_snapshot *views = calloc(a->page_size, sizeof(*views));
	struct sandbox_snapshot_page page = { .snapshots = views, .next_page_token = "", .question = a->question };
	struct status ok = STATUS_OK;
	char *token = NULL;
	size_t at = 0;

	if (a->token[0]) {
		while (at < n && !str_eq(v[at]->id, a->after.id))
			at++;
		at = at < n ? at + 1 : MIN((size_t)a->after.started_at_ms, n);
	}
	page.from = at;
	for (; views && at < n && page.n < a->page_size; at++) {
		snap_view(v[at], source, &views[page.n]);
		/* Whoever made it elsewhere may have made it of a sandbox that has another owner here. */
		if (ref_hides(op->core, &op->who, v[at]->source))
			views[page.n].source_sandbox = "";
		page.n++;
	}
	if (views && at < n)
		token = sandbox_index_token(at, v[at - 1]->id, a->question);
	if (!views || (at < n && !token)) {
		op_fail_errno(op, -ENOMEM);
	} else {
		page.next_page_token = token ? token : "";
		op_end_snapshots(op, &ok, &page);
	}
	free(views);
	free(token);
}

/* Is the list that of another uid's sandbox? */
static bool is_of_hidden(const struct sandbox_op *op)
{
	return !str_is_empty(op->id) && ref_hides(op->core, &op->who, op->id);
}

static void answer_known(struct sandbox_op *op, enum sandbox_source source)
{
	struct args *a = op->args;
	struct snap **v = NULL;
	size_t n = 0, max = 1;

	list_for_each(i, &op->core->snapshots)
		max++;
	v = calloc(max, sizeof(*v));
	if (!v) {
		op_fail_errno(op, -ENOMEM);
		return;
	}
	list_for_each(i, &op->core->snapshots) {
		struct snap *s = list_entry(i, struct snap, node);

		if (s->account == op->account && !s->gone_boot_ms && snap_may_see(&op->who, s) &&
		    (str_is_empty(op->id) || str_eq(op->id, s->source)) &&
		    (!a->name[0] || has_name(s, a->name)))
			v[n++] = s;
	}
	op_snapshots_answer(op, v, is_of_hidden(op) ? 0 : n, source);
	free(v);
}

/* A complete list without a filter: snapshots that it lacks were deleted, unless they were made after it was asked for. */
static void forget_missing(struct sandbox_op *op, struct store_tx *t)
{
	const struct args *a = op->args;

	list_for_each_safe(i, &op->core->snapshots) {
		struct snap *s = list_entry(i, struct snap, node);

		if (s->account == op->account && !s->gone_boot_ms && !s->seen &&
		    s->made_boot_ms < a->asked_boot_ms)
			snap_forget(s, t);
	}
	snap_forget_old(op->core);
}

static int take_over(struct sandbox_op *op, const struct cloud_snapshots *list, struct snap **v,
		     size_t *ret_n)
{
	struct args *a = op->args;
	bool all = str_is_empty(op->id) && !a->name[0];
	struct store_tx *t;
	struct snap *s;
	int r = store_tx_new(op->core->store, &t);

	if (r < 0)
		return r;
	list_for_each(i, &op->core->snapshots)
		list_entry(i, struct snap, node)->seen = false;
	for (size_t i = 0; i < list->n && !r; i++) {
		if (snap_is_gone_since(op->core, op->account, list->v[i]->id, a->asked_boot_ms))
			continue;
		r = snap_put(op->account, list->v[i], str_is_empty(op->id) ? NULL : op->id, NULL, t,
			     &s);
		if (r < 0)
			break;
		/* core->snapshots gets the order of the list. */
		list_del(&s->node);
		list_add_tail(&op->core->snapshots, &s->node);
		if (snap_may_see(&op->who, s))
			v[(*ret_n)++] = s;
	}
	if (!r && all)
		forget_missing(op, t);
	core_commit(op->core, t, false);
	return r;
}

static void op_snapshots_on_listed(struct cloud_result *r, void *user)
{
	struct sandbox_op *op = op_from(user);
	struct snap **v;
	size_t n = 0;

	op->call = NULL;
	if (r->outcome != CLOUD_DONE || !r->snapshots) {
		/* A refusal is passed on; after any other failure the known ones are listed. */
		if (r->outcome == CLOUD_REFUSED)
			op_fail(op, &r->status);
		else
			answer_known(op, SANDBOX_FROM_CACHE_CLOUD_UNREACHABLE);
		return;
	}
	v = calloc(r->snapshots->n + 1, sizeof(*v));
	if (v && take_over(op, r->snapshots, v, &n) == 0)
		op_snapshots_answer(op, v, is_of_hidden(op) ? 0 : n, SANDBOX_FROM_CLOUD);
	else
		op_fail_errno(op, -ENOMEM);
	free(v);
}

static void list_now(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct cloud_ask ask = op_ask(op, op_snapshots_on_listed);

	if (a->cached) {
		answer_known(op, SANDBOX_FROM_CACHE);
		return;
	}
	a->asked_boot_ms = clock_boot_ms();
	op->call = cloud_snapshots(op->account->cloud, op->id, a->name, &ask);
	if (!op->call)
		op_fail_errno(op, -ENOMEM);
}

static bool op_snapshots_check(struct sandbox_op *op, struct status *st)
{
	struct args *a = op->args;

	if (!page_size(a->asked_size, &a->page_size)) {
		status_field(st, "page_size", "must be at most %u", PAGE_MAX);
		return false;
	}
	if (strlen(a->name) > REF_MAX) {
		status_field(st, "name", "has at most %u bytes", REF_MAX);
		return false;
	}
	a->question = page_hash(page_hash(page_hash(PAGE_HASH, op->account->name), op->ref), a->name);
	a->question += op->who.uid;
	if (a->token[0] && page_token_parse(a->token, a->question, &a->after) < 0) {
		status_field(st, "page_token", "is not one that this list gave out");
		return false;
	}
	return true;
}

static void list_start(struct sandbox_op *op)
{
	struct status st;
	struct sandbox *b;

	op->account = core_account_of(op->core, op->who.uid);
	/* A sandbox's snapshots outlive it: any row, or an id without one, is accepted. */
	if (!str_is_empty(op->ref)) {
		switch (ref_find(op->core, &op->who, op->ref, &b, &op->account, &st)) {
		case REF_NONE:
			op_fail(op, &st);
			return;
		case REF_SANDBOX:
			op->account = b->account;
			break;
		case REF_ID:
			b = NULL;
			break;
		}
		if (text_set(&op->id, b ? b->id : op->ref) < 0) {
			op_fail_errno(op, -ENOMEM);
			return;
		}
	}
	if (!op_snapshots_check(op, &st))
		op_fail(op, &st);
	else
		list_now(op);
}

static void list_expire(struct sandbox_op *op)
{
	struct status st;

	if (op->account && op->call) {
		answer_known(op, SANDBOX_FROM_CACHE_CLOUD_UNREACHABLE);
		return;
	}
	op_expired_status(op, &st);
	op_fail(op, &st);
}

static void list_fail(struct sandbox_op *op, const struct status *st)
{
	op_end_snapshots(op, st, NULL);
}

static const struct op_kind list_kind = {
	.name = "ListSnapshots",
	.start = list_start,
	.expire = list_expire,
	.fail = list_fail,
	.args_size = sizeof(struct args),
	.fini_args = op_snapshots_fini_args,
};

int sandbox_list_snapshots(struct sandbox_core *core, const struct sandbox_call *call,
			   const struct sandbox_snapshot_list *q, sandbox_snapshots_fn *done,
			   struct sandbox_op **ret)
{
	struct args a = { .cached = q->cached, .asked_size = q->page_size };

	if (text_set(&a.name, q->name) < 0 || text_set(&a.token, q->page_token) < 0) {
		op_snapshots_fini_args(&a);
		return -ENOMEM;
	}
	return op_new(core, &list_kind, call, &a, (union op_done){ .snapshots = done }, ret);
}

/* --- Delete --- */

static void on_deleted(struct cloud_result *r, void *user)
{
	struct sandbox_op *op = op_from(user);
	struct status ok = STATUS_OK;
	struct store_tx *t;
	struct snap *s;

	op->call = NULL;
	if (r->outcome != CLOUD_DONE) {
		op_fail(op, &r->status);
		return;
	}
	if (!store_tx_new(op->core->store, &t)) {
		s = snap_named(op->core, op->account, op->ref);
		if (s)
			snap_forget(s, t);
		core_commit(op->core, t, false);
		snap_forget_old(op->core);
	}
	op_end_yes(op, &ok, !r->not_found || r->repeated);
}

static void delete_start(struct sandbox_op *op)
{
	struct cloud_ask ask = op_ask(op, on_deleted);
	struct status st = STATUS_OK;
	size_t n = strlen(op->ref);
	struct snap *s;

	op->account = core_account_of(op->core, op->who.uid);
	if (!n || n > REF_MAX || !str_is_printable(op->ref, n) || strchr(op->ref, ' ')) {
		status_field(&st, "snapshot", "must be the id or the name of a snapshot");
		op_fail(op, &st);
		return;
	}
	s = snap_named(op->core, op->account, op->ref);
	/* Only admins may delete what is not their own. */
	if (s ? !snap_may_change(&op->who, s) : !op->who.admin) {
		op_end_yes(op, &st, false);	/* not found */
		return;
	}
	op->call = cloud_snapshot_delete(op->account->cloud, op->ref, &ask);
	if (!op->call)
		op_fail_errno(op, -ENOMEM);
}

static const struct op_kind delete_kind = {
	.name = "DeleteSnapshot",
	.start = delete_start,
	.fail = op_fail_yes,
};

int sandbox_delete_snapshot(struct sandbox_core *core, const struct sandbox_call *call,
			    const char *snapshot, sandbox_bool_fn *done, struct sandbox_op **ret)
{
	struct sandbox_call of = *call;

	of.sandbox = snapshot;
	return op_new(core, &delete_kind, &of, NULL, (union op_done){ .yes = done }, ret);
}
