/* SPDX-License-Identifier: MIT */
/*
 * The start: rows of the store into the tables, then what was open is taken up. Intents and copies wait
 * until every row is there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/lease.h"
#include "daemon/sandbox/recipe.h"
#include "daemon/sandbox/runner.h"
#include "proto/base/str.h"

struct loader {
	struct sandbox_core *core;
	struct list intents, copies;	/* taken up when every row is there */
	int err;
	unsigned strangers;	/* rows of accounts that are not configured */
};

/* A row outlives its visit: its texts, copied. */
#define SAVED_TEXTS 7u

struct saved_intent {
	struct list node;
	struct row_intent row;
	char *texts[SAVED_TEXTS];
	struct recipe recipe;
};

struct saved_copy {
	struct list node;
	struct row_copy row;
	char *texts[SAVED_TEXTS];
};

static void load_sandbox(const struct row_sandbox *r, void *user)
{
	struct loader *ld = user;
	struct account *a = core_account_by_name(ld->core, r->account);
	struct sandbox *b;
	int e;

	if (!a) {
		ld->strangers++;
		return;
	}
	e = sandbox_from_row(a, r, &b);
	if (e == -EBADMSG) {
		log_warn("sandbox_row", "sandbox=%s metadata=unreadable ignoring=1", r->id);
		return;
	}
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
	struct account *a = core_account_by_name(ld->core, r->account);
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
	/* A holder that is gone, or whose row was set aside, holds nothing. */
	if (b && b->state != SANDBOX_GONE && b->uid == r->uid)
		sandbox_give_name(ld->core, b, n);
}

/* The methods whose request ids are ours. */
static const char *method_of(const char *name)
{
	static const char *const methods[] = { REQUEST_CREATE, REQUEST_FORK, REQUEST_SNAPSHOT };

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (str_eq(methods[i], name))
			return methods[i];
	return NULL;
}

static void load_request(const struct row_request *r, void *user)
{
	struct loader *ld = user;
	struct account *a = core_account_by_name(ld->core, r->account);
	struct request *q;
	const char *method = method_of(r->method);

	if (!method)
		return;
	if (core_need_request(ld->core, r->uid, method, r->request_id, &q) < 0 ||
	    text_set(&q->object, r->object) < 0 || text_set(&q->req_tag, r->req_tag) < 0) {
		ld->err = -ENOMEM;
		return;
	}
	if (a)
		q->account = a;
	q->step = r->state;
	q->used_at_ms = r->used_at_ms;
	memcpy(q->params_hash, r->params_hash, sizeof(q->params_hash));
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

static void free_texts(char *texts[SAVED_TEXTS])
{
	for (size_t i = 0; i < SAVED_TEXTS; i++)
		free(texts[i]);
}

/* The row's fields point to the copies from here on. */
static void save_texts(struct loader *ld, char *texts[SAVED_TEXTS], const char **fields[SAVED_TEXTS])
{
	for (size_t i = 0; i < SAVED_TEXTS && fields[i]; i++) {
		texts[i] = str_dup(*fields[i]);
		if (!texts[i])
			ld->err = -ENOMEM;
		*fields[i] = texts[i];
	}
}

static void load_intent(const struct row_intent *r, void *user)
{
	struct loader *ld = user;
	struct saved_intent *s = calloc(1, sizeof(*s));
	const char **fields[SAVED_TEXTS] = { &s->row.account, &s->row.request_id,  &s->row.req_tag,
					     &s->row.name,    &s->row.template_id, &s->row.policy,
					     &s->row.replaces };

	if (!s) {
		ld->err = -ENOMEM;
		return;
	}
	s->row = *r;
	save_texts(ld, s->texts, fields);
	if (recipe_set(&s->recipe, r->recipe, r->recipe_len) < 0)
		ld->err = -ENOMEM;
	s->row.recipe = s->recipe.p;
	list_add_tail(&ld->intents, &s->node);
}

static void load_copy(const struct row_copy *r, void *user)
{
	struct loader *ld = user;
	struct saved_copy *s = calloc(1, sizeof(*s));
	const char **fields[SAVED_TEXTS] = { &s->row.account, &s->row.request_id, &s->row.source,
					     &s->row.name,    &s->row.policy,	  &s->row.known };

	if (!s) {
		ld->err = -ENOMEM;
		return;
	}
	s->row = *r;
	save_texts(ld, s->texts, fields);
	list_add_tail(&ld->copies, &s->node);
}

static void load_snapshot(const struct row_snapshot *r, void *user)
{
	struct loader *ld = user;
	int e = snapshot_load(ld->core, r);

	if (e < 0)
		ld->err = e;
}

static void take_up_copies(struct loader *ld)
{
	while (!list_is_empty(&ld->copies)) {
		struct saved_copy *s = list_entry(ld->copies.next, struct saved_copy, node);

		list_del(&s->node);
		if (!ld->err)
			ld->err = copy_take_up(ld->core, &s->row);
		free_texts(s->texts);
		free(s);
	}
}

static void take_up_intents(struct loader *ld)
{
	while (!list_is_empty(&ld->intents)) {
		struct saved_intent *s = list_entry(ld->intents.next, struct saved_intent, node);

		list_del(&s->node);
		if (!ld->err)
			ld->err = creation_take_up(ld->core, &s->row);
		recipe_fini(&s->recipe);
		free_texts(s->texts);
		free(s);
	}
}

/* An open request id without its intent (its row was set aside): nothing proves that it was not
 * sent, so it stays unknown until its tag shows up. */
static void orphaned_requests(struct sandbox_core *core)
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
		.sandbox = load_sandbox,
		.intent = load_intent,
		.request = load_request,
		.name = load_name,
		.lease = load_lease,
		.event = load_event,
		.copy = load_copy,
		.snapshot = load_snapshot,
		.user = &ld,
	};
	struct store_report report = { 0 };
	int r;

	list_init(&ld.intents);
	list_init(&ld.copies);
	r = store_load(core->store, &v, &report);
	if (!r)
		r = ld.err;
	if (!r)
		r = store_start(core->store);
	if (r < 0)
		ld.err = r;
	take_up_intents(&ld);
	take_up_copies(&ld);
	if (ld.err)
		return ld.err;
	orphaned_requests(core);
	list_for_each(i, &core->sandboxes) {
		struct sandbox *b = list_entry(i, struct sandbox, node);

		if (b->state == SANDBOX_KILLING)
			kill_take_up(core, b);
		else if (b->state == SANDBOX_PAUSING)
			sandbox_set_state(b, SANDBOX_RUNNING);	/* or PAUSED: the first list says */
		if (b->state != SANDBOX_GONE)
			runner_poke(b);
	}
	lease_loaded(core);
	doubt_load(core);
	if (ld.strangers)
		log_warn("rows_of_other_accounts", "n=%u ignoring=1", ld.strangers);
	if (report.rows_aside)
		log_warn("rows_aside", "n=%u see=aside", report.rows_aside);
	return 0;
}
