/* SPDX-License-Identifier: MIT */
/*
 * Keeps the store equal to the cloud: one complete list of an account at a time, shared by
 * reconcile and by callers of List, never more than one a second. Each complete list goes through
 * reconcile.c; an incomplete one proves nothing and changes nothing. Nothing is killed here.
 *
 * A sandbox that a list lacks may be snapshotting or about to end, so the cloud is asked about it by its id. Callers of
 * List are answered when that is known, too, or after VERIFY_PATIENCE_MS without it.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/lease.h"
#include "daemon/sandbox/reconcile.h"
#include "daemon/sandbox/rules/plan.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/runner.h"
#include "daemon/sandbox/warm.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define LIST_GAP_MS	   1000u
#define LIST_DEADLINE_MS   60000u
#define LIST_RETRY_MS	   1000u
#define VERIFY_AT_ONCE	   8u
#define VERIFY_PATIENCE_MS 2000u
#define FORGET_GAP_MS	   1000u	/* between two slices of what forget.c forgets */
#define FREE_SLICE	   32u		/* sandboxes of a list that are freed at a time */

struct listing {
	struct account *account;
	struct cloud_call *call;
	uint64_t began_at_ms;		/* BOOTTIME of the last one */
	struct cloud_list *list;	/* the last one that was taken over: it answers callers for LIST_GAP_MS */
	struct cloud_list *fresh;	/* a complete one that is being taken over */
	int64_t fresh_at_ms;		/* wall: when it came */
	struct reconcile reconcile;	/* of `fresh` */
	struct timer stale;		/* `list` answers nobody any more */
	struct cloud_list *old;		/* is being freed */
	struct defer freeing;
	struct list waiters;		/* listing_wait: for the list under way */
	struct list next;		/* listing_wait: for the list after it */
	struct list informed;		/* listing_wait: have `list`, and wait for the GETs of what it lacks */
	unsigned asking;		/* number of these GETs, queued ones included */
	struct timer patience;		/* ends the wait of `informed` */
	unsigned failures;		/* lists in a row */
	bool trusted;			/* the last complete list did not lack suspiciously many */
	struct timer timer;		/* the next list without a caller */
};

struct verify {			/* the GET of a sandbox that a list lacked */
	struct list node;
	struct sync *sync;
	struct account *account;
	char *id;
	struct fetch_wait wait;
	struct grave grave;
};

struct sync {
	struct sandbox_core *core;
	struct listing *listings;
	struct list queued, running;	/* struct verify */
	unsigned n_running, at_once;
	struct timer prune;
	uint64_t reconciled_at_ms, skipped;
	uint32_t anomalies;
};

static void list_start(struct listing *g);
static void verify_pump(struct sync *s);

static void tell(struct list *waiters, const struct status *st, const struct cloud_list *list,
		 int64_t as_of_ms)
{
	while (!list_is_empty(waiters)) {
		struct listing_wait *w = list_entry(waiters->next, struct listing_wait, node);

		list_del(&w->node);
		w->fn(w, st, list, as_of_ms);
	}
}

static void tell_informed(struct listing *g)
{
	struct status ok = STATUS_OK;
	struct list waiters;

	timer_clear(&g->patience);
	list_take(&waiters, &g->informed);
	tell(&waiters, &ok, g->list, g->account->listed_at_ms);
}

static void on_patience(struct timer *t, void *user)
{
	tell_informed(user);
}

/* --- asking about what is missing --- */

static void verify_free(void *p)
{
	struct verify *v = p;

	free(v->id);
	free(v);
}

/* The sandbox may be asked about again. */
static void verify_over(struct verify *v)
{
	struct sandbox *b = core_find(v->sync->core, v->account, v->id);

	if (b)
		b->asked = false;
	must(v->account->listing->asking > 0);
	v->account->listing->asking--;
}

static void on_verified(struct fetch_wait *w, const struct fetch_result *result)
{
	struct verify *v = container_of(w, struct verify, wait);
	struct sync *s = v->sync;

	/* The sandbox has taken the answer over. Without an answer the next list asks again. */
	verify_over(v);
	list_del(&v->node);
	s->n_running--;
	loop_bury(s->core->loop, &v->grave, verify_free, v);
	verify_pump(s);
	if (!v->account->listing->asking)
		tell_informed(v->account->listing);
}

static void verify_pump(struct sync *s)
{
	while (s->n_running < s->at_once && !list_is_empty(&s->queued)) {
		struct verify *v = list_entry(s->queued.next, struct verify, node);

		list_del(&v->node);
		if (fetch_join(s->core, v->account, v->id, true, &v->wait) < 0) {
			verify_over(v);
			verify_free(v);
			continue;
		}
		list_add_tail(&s->running, &v->node);
		s->n_running++;
	}
}

static void verify_add(struct sync *s, struct sandbox *b)
{
	struct verify *v;

	if (b->asked)
		return;
	v = calloc(1, sizeof(*v));
	if (!v)
		return;
	v->sync = s;
	v->account = b->account;
	v->wait.fn = on_verified;
	list_init(&v->wait.node);
	if (text_set(&v->id, b->id) < 0) {
		verify_free(v);
		return;
	}
	b->asked = true;
	b->account->listing->asking++;
	list_add_tail(&s->queued, &v->node);
}

/* --- lists --- */

static bool is_under_way(const struct listing *g)
{
	return g->call || reconcile_is_on(&g->reconcile);
}

static void on_freeing(struct defer *d, void *user)
{
	struct listing *g = user;

	cloud_list_shorten(g->old, g->old->n - MIN(g->old->n, (size_t)FREE_SLICE));
	if (g->old->n)
		defer_post(d);
	else
		g->old = cloud_list_free(g->old);
}

/* Frees the list of `list` in slices, since it may have many sandboxes. The one before is gone by then, but for a rest. */
static void drop_list(struct listing *g)
{
	if (!g->list)
		return;
	cloud_list_free(g->old);
	g->old = give(g->list);
	defer_post(&g->freeing);
}

/* Answers the waiters, or lets them wait for the GETs of what the list lacks. Where it lacks suspiciously many, they are
 * asked about one at a time, and nobody waits for that. */
static void inform(struct listing *g, struct list *waiters)
{
	struct status ok = STATUS_OK;

	if (!g->asking || !g->trusted ||
	    (!timer_is_set(&g->patience) && timer_set(&g->patience, clock_boot_ms() + VERIFY_PATIENCE_MS) < 0)) {
		tell(waiters, &ok, g->list, g->account->listed_at_ms);
		return;
	}
	while (!list_is_empty(waiters)) {
		struct list *n = waiters->next;

		list_del(n);
		list_add_tail(&g->informed, n);
	}
}

/* Plans the next list without a caller: soon after a failure, so that a cloud that comes back is noticed. */
static void plan_next(struct listing *g)
{
	struct sandbox_core *core = g->account->core;
	uint64_t wait = core->reconcile_period_ms;

	if (g->failures)
		wait = MIN(wait,
			   rules_backoff_ms(g->failures, LIST_RETRY_MS, wait, rng_u64(&core->rng)));
	if (timer_set(&g->timer, clock_boot_ms() + wait) < 0)
		log_warn("reconcile_timer", "account=%s error=nomem", g->account->name);
}

/* A list may take many times the memory of its rows. */
static void free_soon(struct listing *g)
{
	if (timer_set(&g->stale, clock_boot_ms() + LIST_GAP_MS) < 0)
		log_warn("reconcile_timer", "account=%s error=nomem at=next_list", g->account->name);
}

static void on_stale(struct timer *t, void *user)
{
	struct listing *g = user;

	if (list_is_empty(&g->informed))
		drop_list(g);
	else
		free_soon(g);
}

static void next_list(struct listing *g)
{
	if (!list_is_empty(&g->next) && !is_under_way(g))
		list_start(g);
}

static void sync_lacks(struct sandbox *b)
{
	verify_add(b->account->core->sync, b);
}

/* At most VERIFY_AT_ONCE sandboxes are asked about at a time; where suspiciously many are missing, one. */
static void judge_missing(struct listing *g)
{
	const struct reconcile *x = &g->reconcile;
	struct sync *s = g->account->core->sync;

	g->trusted = !plan_is_suspicious(x->n_expected, x->n_missing);
	s->at_once = g->trusted ? VERIFY_AT_ONCE : 1;
	if (g->trusted)
		return;
	s->anomalies++;
	log_warn("list_anomaly", "account=%s expected=%zu missing=%zu listed=%zu doing=ask_each", g->account->name, x->n_expected,
		 x->n_missing, g->list->n);
}

static void sync_on_reconciled(struct reconcile *x)
{
	struct account *a = x->account;
	struct listing *g = a->listing;
	struct sync *s = a->core->sync;
	struct list waiters;

	drop_list(g);
	g->list = give(g->fresh);
	free_soon(g);
	a->listed_at_ms = g->fresh_at_ms;
	judge_missing(g);
	if (x->max_seq)
		store_seen_seq(a->core->store, x->max_seq);
	s->reconciled_at_ms = clock_boot_ms();
	verify_pump(s);
	doubt_listed(a->core);
	warm_claims_listed(a);
	plan_next(g);
	list_take(&waiters, &g->waiters);
	inform(g, &waiters);
	next_list(g);
}

static void list_failed(struct listing *g, const struct status *st)
{
	struct account *a = g->account;
	struct list waiters;

	g->failures++;
	a->core->sync->skipped++;
	log_event(g->failures == 1 ? LOG_LEVEL_WARN : LOG_LEVEL_DEBUG, "reconcile_skipped", "account=%s failures=%u text=%s",
		  a->name, g->failures, log_q(st->text));
	plan_next(g);
	list_take(&waiters, &g->waiters);
	tell(&waiters, st, NULL, a->listed_at_ms);
	next_list(g);
}

static void sync_on_list(struct cloud_result *r, void *user)
{
	struct listing *g = user;
	struct status st = r->status;

	g->call = NULL;
	if (r->outcome != CLOUD_DONE || !r->list) {
		list_failed(g, &st);
		return;
	}
	if (g->failures)
		log_info("reconcile_again", "account=%s after_failures=%u", g->account->name, g->failures);
	g->failures = 0;
	g->fresh = give(r->list);
	g->fresh_at_ms = clock_wall_ms();
	reconcile_begin(&g->reconcile, g->fresh, g->began_at_ms);
}

static void list_start(struct listing *g)
{
	static const struct cloud_filter all = { 0 };
	struct cloud_ask ask = {
		.deadline_ms = clock_boot_ms() + LIST_DEADLINE_MS,
		.background = list_is_empty(&g->next),
		.done = sync_on_list,
		.user = g,
	};
	struct status st;

	must(!is_under_way(g) && list_is_empty(&g->waiters));
	g->began_at_ms = clock_boot_ms();
	g->call = cloud_list_all(g->account->cloud, &all, &ask);
	list_take(&g->waiters, &g->next);
	if (g->call)
		return;
	status_errno(&st, -ENOMEM, "list");
	plan_next(g);
	tell(&g->waiters, &st, NULL, 0);
}

static void on_period(struct timer *t, void *user)
{
	struct listing *g = user;

	if (!is_under_way(g))
		list_start(g);
}

void sandbox_core_reconcile(struct sandbox_core *core, const char *account)
{
	struct account *a = core_account_by_name(core, account);
	struct listing *g = a ? a->listing : NULL;

	if (g && !is_under_way(g) && timer_set(&g->timer, clock_boot_ms()) < 0)
		log_warn("reconcile_timer", "account=%s error=nomem", a->name);
}

void listing_join(struct account *a, struct listing_wait *w)
{
	struct listing *g = a->listing;
	bool young = g->began_at_ms && g->began_at_ms + LIST_GAP_MS > clock_boot_ms();
	struct list alone;

	must(list_is_empty(&w->node));
	if (is_under_way(g)) {
		list_add_tail(young ? &g->waiters : &g->next, &w->node);
	} else if (young && g->list && !g->failures) {
		list_init(&alone);
		list_add_tail(&alone, &w->node);
		inform(g, &alone);
	} else {
		list_add_tail(&g->next, &w->node);
		list_start(g);
	}
}

bool sync_is_trusted(const struct sandbox_core *core, const struct account *a)
{
	return a->listing && a->listing->trusted && !a->listing->failures;
}

void listing_leave(struct listing_wait *w)
{
	list_del(&w->node);
}

/* --- once a period --- */

/* Some commit has failed: writes all rows again. */
static void resave(struct sandbox_core *core)
{
	struct store_tx *t;

	core->resave = false;
	list_for_each(i, &core->sandboxes)
		sandbox_save(core, list_entry(i, struct sandbox, node), true);
	list_for_each(i, &core->names) {
		if (store_tx_new(core->store, &t) < 0) {
			core->resave = true;
			return;
		}
		core_put_name(t, list_entry(i, struct name_slot, node));
		core_commit(core, t, true);
	}
	list_for_each(i, &core->requests) {
		struct request *q = list_entry(i, struct request, node);

		/* An open one is written with its intent; a refused one has no row. */
		if (q->step == ROW_REQUEST_OPEN)
			continue;
		if (store_tx_new(core->store, &t) < 0) {
			core->resave = true;
			return;
		}
		core_put_request(t, q);
		core_commit(core, t, true);
	}
	if (lease_resave(core) < 0)
		core->resave = true;
}

static void on_prune(struct timer *t, void *user)
{
	struct sync *s = user;
	uint64_t wait = forget_ended(s->core, clock_wall_ms()) ? FORGET_GAP_MS : s->core->reconcile_period_ms;

	events_prune(s->core, clock_wall_ms());
	if (s->core->resave)
		resave(s->core);
	if (timer_set(t, clock_boot_ms() + wait) < 0)
		log_warn("prune_timer", "error=nomem");
}

void sync_note_ended(const struct sandbox *b)
{
	struct sync *s = b->account->core->sync;
	uint64_t at = clock_boot_ms() + FORGET_GAP_MS;

	if (!s || b->index.owner->by_state[SANDBOX_GONE] < FORGET_SANDBOXES_PER_UID + FORGET_SLACK)
		return;
	if (timer_is_set(&s->prune) && s->prune.at_ms > at && timer_set(&s->prune, at) < 0)
		log_warn("prune_timer", "error=nomem");
}

/* --- start and end --- */

static int listing_start(struct listing *g, struct account *a)
{
	struct loop *loop = a->core->loop;

	g->account = a;
	a->listing = g;
	list_init(&g->waiters);
	list_init(&g->next);
	list_init(&g->informed);
	timer_init(&g->timer, loop, on_period, g);
	timer_init(&g->patience, loop, on_patience, g);
	timer_init(&g->stale, loop, on_stale, g);
	reconcile_init(&g->reconcile, a, sync_lacks, sync_on_reconciled);
	defer_init_later(&g->freeing, loop, on_freeing, g);
	return timer_set(&g->timer, clock_boot_ms());
}

static void listing_stop(struct listing *g)
{
	timer_clear(&g->timer);
	timer_clear(&g->patience);
	timer_clear(&g->stale);
	cloud_call_cancel(g->call);
	reconcile_end(&g->reconcile);
	defer_cancel(&g->freeing);
	cloud_list_free(g->list);
	cloud_list_free(g->fresh);
	cloud_list_free(g->old);
	must(list_is_empty(&g->waiters) && list_is_empty(&g->next) && list_is_empty(&g->informed));
	g->account->listing = NULL;
	*g = (struct listing){ 0 };
}

int sync_add(struct sandbox_core *core, struct account *a)
{
	struct listing *g = &core->sync->listings[a->index];
	int r = listing_start(g, a);

	if (r < 0)
		listing_stop(g);
	return r;
}

void sync_drop(struct account *a)
{
	listing_stop(a->listing);
}

int sync_start(struct sandbox_core *core)
{
	struct sync *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->core = core;
	s->at_once = VERIFY_AT_ONCE;
	list_init(&s->queued);
	list_init(&s->running);
	core->sync = s;
	s->listings = calloc(SANDBOX_ACCOUNTS_MAX, sizeof(*s->listings));
	if (!s->listings)
		return -ENOMEM;
	for (size_t i = 0; i < core->n_accounts; i++) {
		r = listing_start(&s->listings[i], &core->accounts[i]);
		if (r < 0)
			return r;
	}
	timer_init(&s->prune, core->loop, on_prune, s);
	return timer_set(&s->prune, clock_boot_ms() + core->reconcile_period_ms);
}

static void drop_verifies(struct list *all)
{
	while (!list_is_empty(all)) {
		struct verify *v = list_entry(all->next, struct verify, node);

		list_del(&v->node);
		fetch_leave(&v->wait);
		verify_free(v);
	}
}

void sync_stop(struct sandbox_core *core)
{
	struct sync *s = core->sync;

	if (!s)
		return;
	timer_clear(&s->prune);
	for (size_t i = 0; s->listings && i < core->n_accounts; i++)
		if (s->listings[i].account)
			listing_stop(&s->listings[i]);
	drop_verifies(&s->queued);
	drop_verifies(&s->running);
	free(s->listings);
	free(s);
	core->sync = NULL;
}

static void count_owner(const struct owner *o, struct sandbox_core_counts *ret)
{
	ret->leases += o->leases;
	for (unsigned i = 0; i < ARRAY_SIZE(o->by_state); i++) {
		switch ((enum sandbox_state)i) {
		case SANDBOX_RUNNING:
			ret->running += o->by_state[i];
			break;
		case SANDBOX_PAUSED:
			ret->paused += o->by_state[i];
			break;
		case SANDBOX_GONE:
			ret->gone += o->by_state[i];
			break;
		default:
			ret->other += o->by_state[i];
			break;
		}
	}
}

void sandbox_core_count(const struct sandbox_core *core, uid_t uid, struct sandbox_core_counts *ret)
{
	const struct owner *o;
	size_t pos = 0;

	*ret = (struct sandbox_core_counts){
		.reconciled_at_ms = core->sync->reconciled_at_ms,
		.reconcile_skipped = core->sync->skipped,
		.list_anomalies = core->sync->anomalies,
		.requests = (uint32_t)map_size(&core->request_map),
		.identity = core->identity,
		.store = *store_health(core->store),
		.doubt_text = core->doubt_text,
		.doubt_at_ms = core->doubt_at_ms,
	};
	list_for_each(i, &core->attempts)
		ret->intents++;
	if (uid == (uid_t)-1) {
		while ((o = map_next(&core->owner_map, &pos)))
			count_owner(o, ret);
		return;
	}
	for (size_t i = 0; i < core->n_accounts; i++) {
		o = index_owner(core, &core->accounts[i], uid);
		if (o)
			count_owner(o, ret);
	}
}
