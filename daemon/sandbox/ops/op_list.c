/* SPDX-License-Identifier: MIT */
/*
 * List: pages over our rows, after a fresh list of the cloud (sync.c) unless `cached`. If the cloud does not
 * answer, the rows are listed as they were last seen, with CACHE_CLOUD_UNREACHABLE.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/auth/grant.h"
#include "daemon/sandbox/op.h"
#include "daemon/sandbox/rules/page.h"
#include "daemon/sandbox/rules/tags.h"
#include "proto/base/str.h"

struct args {
	struct sandbox_list q;		/* its pointers point to the members below */
	char *template_id, *page_token, *account_name;
	char *place_id;
	struct pairs metadata;
	struct cloud_strs only;
	uint32_t page_size;
	struct page_place after;	/* the page begins behind it, unless from_start */
	bool from_start;
	uint64_t question;		/* page_question() */
};

static void op_list_fini_args(void *args)
{
	struct args *a = args;

	free(a->template_id);
	free(a->page_token);
	free(a->account_name);
	free(a->place_id);
	pairs_fini(&a->metadata);
	cloud_strs_fini(&a->only);
}

/* --- the rows of a page --- */

/* The sandboxes of the page, and one more if there are more. */
struct picked {
	struct sandbox **v;
	size_t n;
	struct sandbox **strangers;	/* owned: sandboxes of the cloud's list without a row */
	size_t n_strangers;
	size_t n_running;
};

static void picked_fini(struct picked *p)
{
	for (size_t i = 0; i < p->n_strangers; i++)
		sandbox_free(p->strangers[i]);
	free(p->strangers);
	free(p->v);
}

static bool is_asked_for(const struct args *a, const struct sandbox *b)
{
	for (size_t i = 0; a->q.only && i < a->only.n; i++)
		if (str_eq(a->only.v[i], b->id))
			return true;
	return !a->q.only;
}

static bool matches(const struct args *a, const struct sandbox *b)
{
	struct sandbox_view view;

	sandbox_view(b, SANDBOX_FROM_CACHE, &view);
	return page_matches(&a->q, &view);
}

/* Is it behind the place at which the page begins? */
static bool is_behind(const struct args *a, const struct sandbox *b)
{
	int order = page_cmp(b->started_at_ms, b->id, a->after.started_at_ms, a->after.id);

	return a->from_start || (a->q.ascending ? order < 0 : order > 0);
}

/* Adds a sandbox that does not come in the order of the page; all are sorted at the end. */
static void pick(const struct args *a, struct picked *p, struct sandbox *b)
{
	if (!matches(a, b))
		return;
	p->n_running += b->state == SANDBOX_RUNNING;
	if (is_behind(a, b))
		p->v[p->n++] = b;
}

/* Who knows an id may use the sandbox, so the list must not show ids of what other users made through a daemon. */
static bool may_see(const struct sandbox_op *op, const struct cloud_sandbox *s)
{
	struct tags tags;

	tags_read(&s->metadata, &tags);
	return op->who.admin || !tags.host || (tags.has_uid && tags.uid == op->who.uid);
}

static int pick_stranger(struct sandbox_op *op, struct picked *p, const struct cloud_sandbox *s)
{
	struct sandbox *b;

	if (core_find(op->core, op->account, s->id) || ref_hides(op->core, &op->who, s->id) || !may_see(op, s))
		return 0;
	if (sandbox_from_cloud(op->account, s, &b) < 0)
		return -ENOMEM;
	p->strangers[p->n_strangers++] = b;
	b->uid = op->who.uid;
	core_policy_default(op->core, op->who.uid, s->template_id, &b->policy);
	if (is_asked_for(op->args, b))
		pick(op->args, p, b);
	return 0;
}

static bool is_named_before(const struct args *a, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (str_eq(a->only.v[k], a->only.v[i]))
			return true;
	return false;
}

static void pick_named(struct sandbox_op *op, struct picked *p)
{
	const struct args *a = op->args;

	for (size_t i = 0; i < a->only.n; i++) {
		struct sandbox *b = core_find(op->core, op->account, a->only.v[i]);

		if (b && (a->q.all_owners || b->uid == op->who.uid) && !is_named_before(a, i))
			pick(a, p, b);
	}
}

/* Are all running sandboxes asked for? Then their number is in the index. */
static bool is_every_running(const struct args *a)
{
	return !a->q.n_metadata && str_is_empty(a->q.template_id) && !a->q.started_after_ms;
}

static size_t count_running(const struct sandbox_op *op, const struct index_walk *w)
{
	const struct args *a = op->args;
	size_t n = 0;

	if (w->owner && is_every_running(a))
		return !a->q.states || a->q.states & BIT(SANDBOX_RUNNING) ? w->owner->by_state[SANDBOX_RUNNING] : 0;
	for (struct sandbox *b = index_behind(w, NULL); b; b = index_next(w, b))
		n += b->state == SANDBOX_RUNNING && matches(a, b);
	return n;
}

static void pick_in_order(struct sandbox_op *op, struct picked *p)
{
	const struct args *a = op->args;
	struct index_walk w = { .account = op->account, .is_reverse = a->q.ascending };

	if (!a->q.all_owners) {
		w.owner = index_owner(op->core, op->account, op->who.uid);
		if (!w.owner)
			return;
	}
	if (a->q.count_running)
		p->n_running += count_running(op, &w);
	for (struct sandbox *b = index_behind(&w, a->from_start ? NULL : &a->after);
	     b && p->n <= a->page_size; b = index_next(&w, b))
		if (matches(a, b))
			p->v[p->n++] = b;
}

static int pick_all(struct sandbox_op *op, const struct cloud_list *list, struct picked *p)
{
	struct args *a = op->args;
	size_t n_list = a->q.all_hosts && list ? list->n : 0;
	size_t n_ours = a->q.only ? a->only.n : (size_t)a->page_size + 1;
	int r = 0;

	p->v = calloc(n_ours + n_list, sizeof(struct sandbox *));
	p->strangers = calloc(n_list + 1, sizeof(struct sandbox *));
	if (!p->v || !p->strangers)
		return -ENOMEM;
	if (a->q.only)
		pick_named(op, p);
	else
		pick_in_order(op, p);
	for (size_t i = 0; i < n_list && !r; i++)
		r = pick_stranger(op, p, list->v[i]);
	return r;
}

static int in_order(const void *x, const void *y)
{
	const struct sandbox *a = *(struct sandbox *const *)x, *b = *(struct sandbox *const *)y;

	return page_cmp(a->started_at_ms, a->id, b->started_at_ms, b->id);
}

static int in_reverse(const void *x, const void *y)
{
	return in_order(y, x);
}

static void op_list_answer(struct sandbox_op *op, const struct cloud_list *list,
			   enum sandbox_source source, int64_t as_of_ms)
{
	scoped(picked_fini) struct picked p = { 0 };
	struct args *a = op->args;
	struct sandbox_page page = { .next_page_token = "", .question = a->question, .source = source, .as_of_ms = as_of_ms };
	struct sandbox_view *views;
	struct status ok = STATUS_OK;
	struct page_place last;
	char *token = NULL;

	if (pick_all(op, list, &p) < 0) {
		op_fail_errno(op, -ENOMEM);
		return;
	}
	if (a->q.only || p.n_strangers)
		qsort(p.v, p.n, sizeof(struct sandbox *), a->q.ascending ? in_reverse : in_order);
	page.n_running = p.n_running;
	page.n = MIN(p.n, (size_t)a->page_size);
	views = calloc(page.n + 1, sizeof(*views));
	if (views && p.n > page.n) {
		last.started_at_ms = p.v[page.n - 1]->started_at_ms;
		(void)str_copy(last.id, sizeof(last.id), p.v[page.n - 1]->id);
		token = page_token(&last, a->question);
	}
	if (!views || (p.n > page.n && !token)) {
		free(views);
		op_fail_errno(op, -ENOMEM);
		return;
	}
	for (size_t i = 0; i < page.n; i++)
		sandbox_view(p.v[i], source, &views[i]);
	page.sandboxes = views;
	if (token)
		page.next_page_token = token;
	op_end_list(op, &ok, &page);
	free(views);
	free(token);
}

/* --- steps --- */

static void op_list_on_listed(struct listing_wait *w, const struct status *st,
			      const struct cloud_list *list, int64_t as_of_ms)
{
	struct sandbox_op *op = op_from(container_of(w, struct sandbox_op, listing));

	op_list_answer(op, list, list ? SANDBOX_FROM_CLOUD : SANDBOX_FROM_CACHE_CLOUD_UNREACHABLE,
		       as_of_ms);
}

static bool op_list_check(struct sandbox_op *op, struct status *st)
{
	struct account *own = core_account_of(op->core, op->who.uid);
	struct args *a = op->args;

	if (!page_size(a->q.page_size, &a->page_size)) {
		status_field(st, "page_size", "must be at most %u", PAGE_MAX);
		return false;
	}
	if (a->q.all_owners && grant_all_owners(&op->who) != GRANT_OK) {
		grant_refuse(st, "list other owners' sandboxes");
		return false;
	}
	if (grant_look_account(&op->who, own->name, a->account_name) != GRANT_OK) {
		grant_refuse(st, "name another account");
		return false;
	}
	op->account = a->account_name[0] ? core_account_by_name(op->core, a->account_name) : own;
	if (!op->account) {
		status_set(st, R_ACCOUNT_NOT_FOUND, "there is no account %s", a->account_name);
		return false;
	}
	a->question = page_question(&a->q, op->who.uid, op->account->name);
	a->after.started_at_ms = a->q.place_started_at_ms;
	a->from_start = !a->page_token[0] && !a->place_id[0];
	if (!str_copy(a->after.id, sizeof(a->after.id), a->place_id)) {
		status_field(st, "page_token", "names no sandbox");
		return false;
	}
	if (a->page_token[0] && page_token_parse(a->page_token, a->question, &a->after) < 0) {
		status_field(st, "page_token", "is not one that this list gave out");
		return false;
	}
	return true;
}

static void op_list_start(struct sandbox_op *op)
{
	struct args *a = op->args;
	struct status st;

	if (!op_list_check(op, &st)) {
		op_fail(op, &st);
	} else if (a->q.cached) {
		op_list_answer(op, NULL, SANDBOX_FROM_CACHE, op->account->listed_at_ms);
	} else {
		op->listing.fn = op_list_on_listed;
		listing_join(op->account, &op->listing);
	}
}

static void op_list_expire(struct sandbox_op *op)
{
	struct status st;

	if (!op->account) {
		op_expired_status(op, &st);
		op_fail(op, &st);
		return;
	}
	op_list_answer(op, NULL, SANDBOX_FROM_CACHE_CLOUD_UNREACHABLE, op->account->listed_at_ms);
}

static void op_list_fail(struct sandbox_op *op, const struct status *st)
{
	op_end_list(op, st, NULL);
}

static const struct op_kind op_list_kind = {
	.name = "List",
	.start = op_list_start,
	.expire = op_list_expire,
	.fail = op_list_fail,
	.args_size = sizeof(struct args),
	.fini_args = op_list_fini_args,
};

static int copy_ids(struct cloud_strs *to, const struct cloud_strs *from)
{
	int r = 0;

	for (size_t i = 0; from && i < from->n && !r; i++)
		r = cloud_strs_add(to, from->v[i]);
	return r;
}

int sandbox_list(struct sandbox_core *core, const struct sandbox_call *call,
		 const struct sandbox_list *q, sandbox_list_fn *done, struct sandbox_op **ret)
{
	struct args a = { .q = *q };

	if (text_set(&a.template_id, q->template_id) < 0 ||
	    text_set(&a.page_token, q->page_token) < 0 ||
	    text_set(&a.account_name, q->account) < 0 || text_set(&a.place_id, q->place_id) < 0 ||
	    copy_ids(&a.only, q->only) < 0 ||
	    pairs_from(&a.metadata, q->metadata, q->n_metadata) < 0) {
		op_list_fini_args(&a);
		return -ENOMEM;
	}
	a.q.template_id = a.template_id;
	a.q.metadata = a.metadata.v;
	return op_new(core, &op_list_kind, call, &a, (union op_done){ .list = done }, ret);
}
