/* SPDX-License-Identifier: MIT */
/*
 * The start: takes the rows of the store into the tables, then goes on with open kills, creations and copies. Rows of
 * intents and copies are set aside until every other row is there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/lease.h"
#include "daemon/sandbox/recipe.h"
#include "daemon/sandbox/runner.h"
#include "daemon/sandbox/warm.h"
#include "daemon/store/table.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

struct loader {
	struct sandbox_core *core;
	struct list intents, copies;	/* struct saved_row, newest first: worked on when every row is there */
	struct policy_memo memo;
	int err;
	unsigned strangers;	/* rows of accounts that are not configured */
};

/* A row that outlives its visit. */
struct saved_row {
	struct list node;
	union row row;
};

static void note_text(struct loader *ld, struct map *m, const char *text)
{
	char *copy = map_get_str(m, text) ? NULL : strdup(text);

	if (map_get_str(m, text) || (copy && map_put_str(m, copy, copy) == 0))
		return;
	free(copy);
	ld->err = -ENOMEM;
}

/* NULL: it is not configured, which is noted. */
static struct account *row_account(struct loader *ld, const char *name)
{
	struct account *a = core_account_by_name(ld->core, name);

	if (!a)
		note_text(ld, &ld->core->strangers, name);
	return a;
}

static void on_table(enum row_table table, size_t n_rows, void *user)
{
	struct loader *ld = user;

	if (table == ROW_TABLE_sandbox)
		core_reserve(ld->core, n_rows);
}

static void load_sandbox(const struct row_sandbox *r, void *user)
{
	struct loader *ld = user;
	struct account *a = row_account(ld, r->account);
	struct sandbox *b;
	int e;

	if (!a) {
		ld->strangers++;
		note_text(ld, &ld->core->stranger_ids, r->id);
		return;
	}
	e = sandbox_from_row(a, r, &ld->memo, &b);
	if (!e) {
		b->loaded = true;
		e = core_insert(ld->core, b);
		if (e < 0)
			sandbox_free(b);
	}
	if (e < 0)
		ld->err = e;
}

static void load_name(const struct row_name *r, void *user)
{
	struct loader *ld = user;
	struct account *a = row_account(ld, r->account);
	struct name_slot *n;
	struct sandbox *b;

	if (core_need_name(ld->core, r->uid, r->name, &n) < 0) {
		ld->err = -ENOMEM;
		return;
	}
	n->generation = r->generation;
	if (!a)
		return;
	n->account = a;
	b = core_find(ld->core, a, r->id);
	/* The name stays free if its sandbox is gone or is being killed, or if that one's row was refused. */
	if (b && sandbox_is_live(b) && b->uid == r->uid)
		sandbox_give_name(ld->core, b, n);
}

/* The constant for a method that is in a row; NULL: not one of those with request ids. */
static const char *method_of(const char *name)
{
	static const char *const methods[] = { REQUEST_CREATE, REQUEST_FORK, REQUEST_SNAPSHOT };

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (str_eq(methods[i], name))
			return methods[i];
	return NULL;
}

int core_load_request(struct sandbox_core *core, const struct row_request *r)
{
	struct account *a = core_account_by_name(core, r->account);
	struct request *q;
	const char *method = method_of(r->method);
	const struct sandbox *b = a ? core_find(core, a, r->object) : NULL;

	if (!method || (b && warm_claim_has_failed(b)))
		return 0;
	if (core_need_request(core, r->uid, method, r->request_id, &q) < 0 ||
	    text_set(&q->object, r->object) < 0 || index_request_set_tag(core, q, r->req_tag) < 0)
		return -ENOMEM;
	if (a)
		q->account = a;
	q->step = r->state == ROW_REQUEST_DONE && !r->object[0] ? ROW_REQUEST_UNKNOWN : r->state;
	q->used_at_ms = MIN(r->used_at_ms, clock_wall_ms() + USED_SAVE_MS);
	memcpy(q->params_hash, r->params_hash, sizeof(q->params_hash));
	return 0;
}

/* Sandboxes are loaded before: request ids whose sandbox has ended stay in the store alone. */
static void load_request(const struct row_request *r, void *user)
{
	struct loader *ld = user;
	const struct account *a = row_account(ld, r->account);
	const struct sandbox *b = a ? core_find(ld->core, a, r->object) : NULL;
	int e = 0;

	if (r->state != ROW_REQUEST_DONE || !r->object[0] || (b && b->state != SANDBOX_GONE))
		e = core_load_request(ld->core, r);
	else
		core_note_stored_request(ld->core, r->uid, r->method, r->request_id);
	if (e < 0)
		ld->err = e;
}

static void load_lease(const struct row_lease *r, void *user)
{
	struct loader *ld = user;
	int e = lease_load(ld->core, r);

	if (e < 0)
		ld->err = e;
}

static void load_event(const struct row_event *r, void *user)
{
	struct loader *ld = user;

	event_load(ld->core, r);
}

/* The newest one that has a request id is the one that owns it: an older one was over, and a full disk kept its row. */
static void save(struct loader *ld, enum row_table table, const void *row, struct list *to)
{
	struct saved_row *s = calloc(1, sizeof(*s));

	if (!s || row_dup(&store_tables[table], row, &s->row) < 0) {
		free(s);
		ld->err = -ENOMEM;
		return;
	}
	list_add_head(to, &s->node);
}

static void load_intent(const struct row_intent *r, void *user)
{
	struct loader *ld = user;

	(void)row_account(ld, r->account);
	save(ld, ROW_TABLE_intent, r, &ld->intents);
}

static void load_copy(const struct row_copy *r, void *user)
{
	struct loader *ld = user;

	(void)row_account(ld, r->account);
	save(ld, ROW_TABLE_copy, r, &ld->copies);
}

static void load_refused(const struct store_refused *r, void *user)
{
	struct loader *ld = user;
	int e = refused_load(ld->core, r);

	if (e < 0)
		ld->err = e;
}

static void load_warm(const struct row_warm *r, void *user)
{
	struct loader *ld = user;
	int e = warm_load(ld->core, r);

	if (e < 0)
		ld->err = e;
}

static void load_snapshot(const struct row_snapshot *r, void *user)
{
	struct loader *ld = user;
	int e = row_account(ld, r->account) ? snapshot_load(ld->core, r) : 0;

	if (e < 0)
		ld->err = e;
}

static struct saved_row *next_saved(struct list *saved)
{
	struct saved_row *s = list_is_empty(saved) ? NULL : list_entry(saved->next, struct saved_row, node);

	if (s)
		list_del(&s->node);
	return s;
}

static void saved_free(struct saved_row *s, enum row_table table)
{
	row_fini(&store_tables[table], &s->row);
	free(s);
}

static void take_up_copies(struct loader *ld)
{
	struct saved_row *s;

	while ((s = next_saved(&ld->copies))) {
		if (!ld->err)
			ld->err = copy_take_up(ld->core, &s->row.copy);
		saved_free(s, ROW_TABLE_copy);
	}
}

static void take_up_intents(struct loader *ld)
{
	struct saved_row *s;

	while ((s = next_saved(&ld->intents))) {
		if (!ld->err)
			ld->err = creation_take_up(ld->core, &s->row.intent);
		saved_free(s, ROW_TABLE_intent);
	}
}

/* A sandbox keeps its name where the row of the name is lost or refused: else another sandbox could take it. A kill has freed it. */
static void restore_names(struct sandbox_core *core)
{
	list_for_each(i, &core->sandboxes) {
		struct sandbox *b = list_entry(i, struct sandbox, node);
		struct name_slot *n;

		if (!sandbox_is_live(b) || b->named || !b->name[0] || core_need_name(core, b->uid, b->name, &n) < 0 ||
		    n->id[0] || n->creation)
			continue;
		n->generation = MAX(n->generation, b->generation);
		sandbox_give_name(core, b, n);
	}
}

/* An open request id whose intent has no row, or a refused one: nothing proves that it was not sent, so its outcome
 * is unknown until its tag shows up. */
static void close_orphaned_requests(struct sandbox_core *core)
{
	list_for_each(i, &core->requests) {
		struct request *q = list_entry(i, struct request, node);

		if (q->step == ROW_REQUEST_OPEN && !q->attempt)
			q->step = ROW_REQUEST_UNKNOWN;
	}
}

int core_load(struct sandbox_core *core)
{
	struct loader ld = { .core = core };
	struct store_visitor v = {
		.begins = on_table,
		.sandbox = load_sandbox,
		.intent = load_intent,
		.request = load_request,
		.name = load_name,
		.lease = load_lease,
		.event = load_event,
		.copy = load_copy,
		.snapshot = load_snapshot,
		.warm = load_warm,
		.refused = load_refused,
		.user = &ld,
	};
	int r;

	list_init(&ld.intents);
	list_init(&ld.copies);
	index_begin_load(core);
	r = store_load(core->store, &v);
	if (!r)
		r = ld.err;
	if (!r)
		r = index_end_load(core);
	if (!r)
		r = warm_claims_load(core);
	if (!r)
		r = store_start(core->store);
	if (r < 0)
		ld.err = r;
	restore_names(core);
	take_up_intents(&ld);
	take_up_copies(&ld);
	store_forget_sent(core->store);
	if (ld.err)
		return ld.err;
	close_orphaned_requests(core);
	refused_loaded(core);
	list_for_each(i, &core->sandboxes) {
		struct sandbox *b = list_entry(i, struct sandbox, node);

		if (b->state == SANDBOX_KILLING)
			kill_take_up(core, b);
		else if (b->state == SANDBOX_PAUSING)
			sandbox_set_state(b, SANDBOX_RUNNING);	/* or PAUSED: the first list says */
		if (b->state != SANDBOX_GONE)
			runner_poke_later(b);
	}
	lease_loaded(core);
	doubt_load(core);
	if (ld.strangers)
		log_warn("rows_of_other_accounts", "n=%u ignoring=1", ld.strangers);
	return warm_loaded(core);
}
