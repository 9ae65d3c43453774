/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/reconcile.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/rules/plan.h"
#include "daemon/sandbox/rules/tags.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define SLICE 16u	/* listed sandboxes or rows at a time: some 30 us, or 400 where all of them change */

struct unknown {
	struct tree_node node;
	const struct cloud_sandbox *s;	/* of the list */
};

static struct unknown *unknown_of(const struct tree_node *n)
{
	return container_of((struct tree_node *)n, struct unknown, node);
}

static int by_start(const struct tree_node *a, const struct tree_node *b)
{
	const struct cloud_sandbox *s = unknown_of(a)->s, *t = unknown_of(b)->s;

	if (s->started_at_ms != t->started_at_ms)
		return s->started_at_ms < t->started_at_ms ? -1 : 1;
	return strcmp(s->id, t->id);
}

static struct plan_row row_of(const struct sandbox *b)
{
	return (struct plan_row){
		.gone = b->state == SANDBOX_GONE,
		.killed = b->gone_reason == R_SANDBOX_KILLED,
		.busy = b->state == SANDBOX_KILLING || b->state == SANDBOX_CREATING || b->changing,
		.fresh_at_ms = b->fresh_at_ms,
	};
}

/* --- what is listed --- */

static void not_adopted(const struct cloud_sandbox *s)
{
	log_warn("sandbox_adopt", "sandbox=%s error=nomem at=next_list", s->id);
}

static void note_unknown(struct reconcile *x, const struct cloud_sandbox *s)
{
	struct unknown *u = calloc(1, sizeof(*u));

	if (!u) {
		not_adopted(s);
		return;
	}
	u->s = s;
	tree_insert(&x->unknown, &u->node, by_start);
}

static bool is_tagged(struct reconcile *x, const struct cloud_sandbox *s)
{
	struct tags t;

	tags_read(&s->metadata, &t);
	if (!tags_are_of(&t, store_host_id(x->account->core->store)))
		return false;
	x->max_seq = MAX(x->max_seq, t.seq);
	return true;
}

static void take_listed(struct reconcile *x, const struct cloud_sandbox *s)
{
	struct sandbox_core *core = x->account->core;
	struct sandbox *b = core_find(core, x->account, s->id);
	bool tagged = is_tagged(x, s);
	struct plan_row row;

	if (b) {
		b->listed_in = x->number;
		row = row_of(b);
		x->n_expected += plan_expects(&row, x->began_at_ms);
	}
	switch (plan_listed(b ? &row : NULL, tagged, x->began_at_ms)) {
	case PLAN_UPDATE:
	case PLAN_REVIVE:
		sandbox_seen(core, b, s);
		break;
	case PLAN_ADOPT:
		note_unknown(x, s);
		break;
	case PLAN_NOTHING:
		break;
	}
}

static void listed(struct reconcile *x)
{
	for (size_t i = 0; i < SLICE && x->item < x->list->n; i++)
		take_listed(x, x->list->v[x->item++]);
	if (x->item == x->list->n)
		x->step = RECONCILE_MISSING;
}

/* --- what the list lacks --- */

static void look_for(struct reconcile *x, struct sandbox *b)
{
	struct plan_row row = row_of(b);

	if (b->listed_in == x->number || !plan_expects(&row, x->began_at_ms))
		return;
	x->n_expected++;
	x->n_missing++;
	x->lacks(b);
}

/* A slice ends at a row that the next one can begin behind. */
static void missing(struct reconcile *x)
{
	const struct index_walk all = { .account = x->account };
	struct sandbox *b = index_behind(&all, x->has_place ? &x->place : NULL);

	for (size_t i = 0; b && (i < SLICE || !x->has_place); i++) {
		look_for(x, b);
		x->place.started_at_ms = b->started_at_ms;
		x->has_place = str_copy(x->place.id, sizeof(x->place.id), b->id);
		b = index_next(&all, b);
	}
	if (b)
		return;
	core_reserve(x->account->core, map_size(&x->account->core->sandbox_map) + x->unknown.n);
	x->step = RECONCILE_UNKNOWN;
}

/* --- what has no row --- */

/* Meanwhile a caller may have named it, or it is listed twice; two accounts may be of one team, and list each other's. */
static void adopt(struct reconcile *x, const struct cloud_sandbox *s)
{
	struct account *a = x->account;
	struct sandbox *b;

	if (!core_is_known(a->core, a, s) && core_adopt(a->core, a, s, &b) < 0)
		not_adopted(s);
}

static void unknown(struct reconcile *x)
{
	struct tree_node *n = tree_first(&x->unknown);

	if (!n) {
		x->step = RECONCILE_OVER;
		return;
	}
	tree_del(&x->unknown, n);
	adopt(x, unknown_of(n)->s);
	free(unknown_of(n));
}

/* --- slices --- */

static void on_slice(struct defer *d, void *user)
{
	struct reconcile *x = user;

	switch (x->step) {
	case RECONCILE_LISTED:
		listed(x);
		break;
	case RECONCILE_MISSING:
		missing(x);
		break;
	case RECONCILE_UNKNOWN:
		unknown(x);
		break;
	case RECONCILE_OVER:
		break;
	}
	if (reconcile_is_on(x))
		defer_post(&x->later);
	else
		x->done(x);
}

void reconcile_init(struct reconcile *x, struct account *a, void (*lacks)(struct sandbox *b), void (*done)(struct reconcile *x))
{
	*x = (struct reconcile){ .account = a, .lacks = lacks, .done = done };
	defer_init_later(&x->later, a->core->loop, on_slice, x);
}

void reconcile_begin(struct reconcile *x, const struct cloud_list *list, uint64_t began_at_ms)
{
	must(!reconcile_is_on(x) && !tree_first(&x->unknown));
	x->list = list;
	x->began_at_ms = began_at_ms;
	x->number++;
	x->step = RECONCILE_LISTED;
	x->item = x->n_expected = x->n_missing = 0;
	x->max_seq = 0;
	x->has_place = false;
	defer_post(&x->later);
}

void reconcile_end(struct reconcile *x)
{
	struct tree_node *n;

	defer_cancel(&x->later);
	x->step = RECONCILE_OVER;
	while ((n = tree_first(&x->unknown))) {
		tree_del(&x->unknown, n);
		free(unknown_of(n));
	}
}
