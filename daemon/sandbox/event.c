/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/event.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/tie.h"
#include "daemon/sandbox/totals.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

/* --- the ring of an event log --- */

struct event *event_at(const struct event_log *g, size_t i)
{
	must(i < g->n);
	return g->v[(g->head + i) % g->cap];
}

static int ring_grow(struct event_log *g)
{
	size_t cap = g->cap ? g->cap * 2 : 16;
	struct event **v = calloc(cap, sizeof(struct event *));

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < g->n; i++)
		v[i] = event_at(g, i);
	free(g->v);
	g->v = v;
	g->cap = cap;
	g->head = 0;
	return 0;
}

static void ring_push(struct event_log *g, struct event *e)
{
	must(g->n < g->cap);
	g->v[(g->head + g->n++) % g->cap] = e;
	e->refs++;
}

static void event_free(struct event *e)
{
	free(e->id);
	free(e->name);
	free(e->evidence);
	free(e);
}

static void ring_pop(struct event_log *g)
{
	struct event *e = event_at(g, 0);

	g->head = (g->head + 1) % g->cap;
	g->n--;
	if (!--e->refs)
		event_free(e);
}

size_t event_above(const struct event_log *g, bool by_number, uint64_t key)
{
	size_t lo = 0, hi = g->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct event *e = event_at(g, mid);

		if ((by_number ? e->number : e->seq) > key)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/* --- logs --- */

struct event_log *events_of(struct sandbox_core *core, uid_t uid)
{
	return map_get_u64(&core->events.by_uid, uid);
}

static struct event_log *need_log(struct sandbox_core *core, uid_t uid)
{
	struct event_log *g = events_of(core, uid);

	if (g)
		return g;
	g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	g->uid = uid;
	if (map_put_u64(&core->events.by_uid, uid, g) < 0) {
		free(g);
		return NULL;
	}
	return g;
}

static bool has_room(struct event_log *g)
{
	return g->n < g->cap || ring_grow(g) == 0;
}

/* Takes e; false without memory. */
static bool event_keep(struct sandbox_core *core, struct event *e)
{
	struct event_log *g = need_log(core, e->uid);

	if (!g || !has_room(g) || !has_room(&core->events.all)) {
		event_free(e);
		return false;
	}
	ring_push(g, e);
	ring_push(&core->events.all, e);
	core->events.number = MAX(core->events.number, e->number);
	return true;
}

static void drop_oldest(struct sandbox_core *core, struct event_log *g, size_t n)
{
	struct store_tx *t;
	uint64_t up_to = 0;

	for (; n && g->n > 1; n--) {
		up_to = event_at(g, 0)->seq;
		ring_pop(g);
	}
	if (!up_to || store_tx_new(core->store, &t) < 0)
		return;
	store_tx_del_events(t, g->uid, up_to);
	core_commit(core, t, false);
}

static size_t too_old(const struct event_log *g, int64_t now_ms)
{
	size_t n = 0;

	while (n + 1 < g->n && event_at(g, n)->at_ms + EVENTS_FOR_MS < now_ms)
		n++;
	return n;
}

void events_prune(struct sandbox_core *core, int64_t now_wall_ms)
{
	struct event_log *g, *all = &core->events.all;
	size_t pos = 0;

	while ((g = map_next(&core->events.by_uid, &pos)))
		drop_oldest(core, g, too_old(g, now_wall_ms));
	/* What only the log of all still holds is in no uid's log any more. */
	while (all->n && event_at(all, 0)->refs == 1)
		ring_pop(all);
}

static void bound(struct sandbox_core *core, struct event_log *g)
{
	struct event_log *all = &core->events.all;

	/* A tenth at once: one statement for many. */
	if (g->n > EVENTS_PER_UID)
		drop_oldest(core, g, EVENTS_PER_UID / 10);
	if (all->n > EVENTS_IN_ALL) {
		g = events_of(core, event_at(all, 0)->uid);
		if (g)
			drop_oldest(core, g, event_above(g, true, event_at(all, all->n / 10)->number));
		ring_pop(all);
	}
	while (all->n && event_at(all, 0)->refs == 1)
		ring_pop(all);
}

const char *sandbox_event_name(int type)
{
	static const char *const names[] = {
		[EVENT_CREATED] = "created", [EVENT_UPDATED] = "updated", [EVENT_EXTENDED] = "extended", [EVENT_PAUSED] = "paused",
		[EVENT_RESUMED] = "resumed", [EVENT_EXPIRING] = "expiring", [EVENT_GONE] = "gone", [EVENT_ADOPTED] = "adopted",
		[EVENT_RENEWAL_DEGRADED] = "renewal_degraded", [EVENT_RENEWAL_OK] = "renewal_ok", [EVENT_WARM_READY] = "warm_ready",
		[EVENT_WARM_CLAIMED] = "warm_claimed", [EVENT_WARM_FAILED] = "warm_failed",
	};

	_Static_assert(ARRAY_SIZE(names) <= TOTALS_EVENTS, "an event type without a counter");
	return type > 0 && (size_t)type < ARRAY_SIZE(names) ? names[type] : NULL;
}

/* --- telling --- */

struct fence {
	struct sandbox_core *core;
	uint64_t number;
};

static void on_fence(void *user, const struct status *st)
{
	struct fence *f = user;
	struct sandbox_core *core = f->core;

	/* Also after a failed commit, since what the event says has happened. */
	core->events.told = MAX(core->events.told, f->number);
	core->fence = NULL;
	free(f);
	event_watches_wake(core);
	tie_committed(core);
	if (core->events.told < core->events.number)
		defer_post(&core->events.fence);
}

/* Commits keep their order: when this empty one is done, those of this pass are too. */
static void on_pass_end(struct defer *d, void *user)
{
	struct sandbox_core *core = user;
	struct store_tx *t;
	struct fence *f;

	if (core->fence)
		return;
	f = calloc(1, sizeof(*f));
	if (!f || store_tx_new(core->store, &t) < 0) {
		free(f);
		core->events.told = core->events.number;
		event_watches_wake(core);
		tie_committed(core);
		return;
	}
	*f = (struct fence){ core, core->events.number };
	core->fence = f;
	store_tx_commit(t, false, on_fence, f);
}

static struct event *event_new(const struct sandbox_core *core, const struct sandbox *b,
			       enum event_type type, const char *evidence)
{
	struct event *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->uid = b->uid;
	e->at_ms = clock_wall_ms();
	e->type = type;
	e->account = b->account->index;
	e->reason = b->gone_reason;
	e->state = b->state;
	e->started_at_ms = b->started_at_ms;
	e->end_at_ms = b->end_at_ms;
	e->leases = b->n_leases;
	e->generation = b->generation;
	if (text_set(&e->id, b->id) == 0 && text_set(&e->name, b->name) == 0 &&
	    text_set(&e->evidence, evidence) == 0)
		return e;
	event_free(e);
	return NULL;
}

static void put_row(const struct sandbox_core *core, struct store_tx *t, const struct event *e)
{
	struct row_event row = {
		.number = e->number,
		.seq = e->seq,
		.uid = e->uid,
		.at_ms = e->at_ms,
		.type = (int)e->type,
		.account = core->accounts[e->account].name,
		.sandbox = e->id,
		.name = e->name,
		.reason = (int)e->reason,
		.state = (int)e->state,
		.started_at_ms = e->started_at_ms,
		.end_at_ms = e->end_at_ms,
		.leases = e->leases,
		.generation = e->generation,
		.evidence = e->evidence,
	};

	store_tx_put_event(t, &row);
}

/* Cuts off the incomplete UTF-8 character that vsnprintf()'s limit may have left. */
static void end_whole(char *text)
{
	size_t n = strlen(text);

	while (n && !str_is_utf8(text, n))
		text[--n] = 0;
}

static void event_put_row(struct sandbox_core *core, struct store_tx *t, const struct sandbox *b,
			  enum event_type type, char *evidence)
{
	struct event_log *g = events_of(core, b->uid);
	struct event *e;

	core->totals.events[type]++;
	end_whole(evidence);
	e = event_new(core, b, type, evidence);

	if (e) {
		e->number = core->events.number + 1;
		e->seq = g && g->n ? event_at(g, g->n - 1)->seq + 1 : 1;
	}
	if (!e || !event_keep(core, e)) {
		log_warn("event_lost", "sandbox=%s error=nomem", b->id);
		return;
	}
	put_row(core, t, e);
	bound(core, events_of(core, b->uid));
	defer_post(&core->events.fence);
}

void event_put(struct sandbox_core *core, struct store_tx *t, const struct sandbox *b,
	       enum event_type type, const char *evidence_fmt, ...)
{
	char text[EVENT_TEXT_MAX];
	va_list ap;

	va_start(ap, evidence_fmt);
	vsnprintf(text, sizeof(text), evidence_fmt, ap);
	va_end(ap);
	event_put_row(core, t, b, type, text);
}

void event_say(struct sandbox_core *core, const struct sandbox *b, enum event_type type,
	       const char *evidence_fmt, ...)
{
	char text[EVENT_TEXT_MAX];
	struct store_tx *t;
	va_list ap;

	if (store_tx_new(core->store, &t) < 0) {
		log_warn("event_lost", "sandbox=%s error=nomem", b->id);
		return;
	}
	va_start(ap, evidence_fmt);
	vsnprintf(text, sizeof(text), evidence_fmt, ap);
	va_end(ap);
	event_put_row(core, t, b, type, text);
	core_commit(core, t, false);
}

/* --- start and end --- */

void event_load(struct sandbox_core *core, const struct row_event *r)
{
	struct account *a = core_account_by_name(core, r->account);
	struct event *e = calloc(1, sizeof(*e));

	if (!e)
		return;
	*e = (struct event){
		.number = r->number,
		.seq = r->seq,
		.uid = r->uid,
		.at_ms = r->at_ms,
		.type = (enum event_type)r->type,
		.account = a ? a->index : 0,
		.reason = (enum ab_reason)r->reason,
		.state = (enum sandbox_state)r->state,
		.started_at_ms = r->started_at_ms,
		.end_at_ms = r->end_at_ms,
		.leases = r->leases,
		.generation = r->generation,
	};
	if (text_set(&e->id, r->sandbox) < 0 || text_set(&e->name, r->name) < 0 ||
	    text_set(&e->evidence, r->evidence) < 0) {
		event_free(e);
		return;
	}
	(void)event_keep(core, e);
	core->events.told = core->events.number;
}

void events_init(struct sandbox_core *core)
{
	list_init(&core->events.watches);
	defer_init(&core->events.fence, core->loop, on_pass_end, core);
}

static void log_fini(struct event_log *g)
{
	while (g->n)
		ring_pop(g);
	free(g->v);
}

void events_fini(struct sandbox_core *core)
{
	struct event_log *g;
	size_t pos = 0;

	defer_cancel(&core->events.fence);
	free(core->fence);
	while ((g = map_next(&core->events.by_uid, &pos))) {
		log_fini(g);
		free(g);
	}
	log_fini(&core->events.all);
	map_fini(&core->events.by_uid);
}
