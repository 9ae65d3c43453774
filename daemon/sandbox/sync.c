/* SPDX-License-Identifier: MIT */
/*
 * Keeps the store equal to the cloud: one complete list of an account at a time, shared by
 * reconcile and by callers of List, never more than one a second. Each complete list goes through
 * rules/plan.c; an incomplete one proves nothing and changes nothing. Nothing is killed here.
 *
 * A sandbox that a list lacks may be snapshotting or about to end, so the cloud is asked about it by its id. Callers of
 * List are answered when that is known, too, or after VERIFY_PATIENCE_MS without it.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/lease.h"
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

struct listing {
	struct account *account;
	struct cloud_call *call;
	uint64_t began_at_ms;		/* BOOTTIME of the last one */
	struct cloud_list *list;	/* the last complete list: it answers callers for LIST_GAP_MS */
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

/* --- reconcile --- */

static size_t rows_of(struct account *a, struct sandbox ***ret_sandboxes, struct plan_row **ret_rows)
{
	struct sandbox_core *core = a->core;
	size_t n = 0, max = map_size(&core->sandbox_map) + 1;

	*ret_sandboxes = calloc(max, sizeof(**ret_sandboxes));
	*ret_rows = calloc(max, sizeof(**ret_rows));
	if (!*ret_sandboxes || !*ret_rows)
		return SIZE_MAX;
	list_for_each(i, &core->sandboxes) {
		struct sandbox *b = list_entry(i, struct sandbox, node);

		if (b->account != a)
			continue;
		(*ret_sandboxes)[n] = b;
		(*ret_rows)[n++] = (struct plan_row){
			.id = b->id,
			.gone = b->state == SANDBOX_GONE,
			.killed = b->gone_reason == R_SANDBOX_KILLED,
			.busy = b->state == SANDBOX_KILLING || b->state == SANDBOX_CREATING ||
				b->changing,
			.fresh_at_ms = b->fresh_at_ms,
		};
	}
	return n;
}

static void act(struct account *a, const struct plan_action *x, struct sandbox **sandboxes,
		const struct cloud_list *list)
{
	struct sandbox_core *core = a->core;
	struct sandbox *b;

	switch (x->kind) {
	case PLAN_UPDATE:
	case PLAN_REVIVE:
		sandbox_seen(core, sandboxes[x->row], list->v[x->item]);
		break;
	case PLAN_ASK:
		verify_add(core->sync, sandboxes[x->row]);
		break;
	case PLAN_ADOPT:
		if (!sandbox_attempt_makes(core, a, list->v[x->item]) &&
		    core_adopt(core, a, list->v[x->item], &b) < 0)
			log_warn("sandbox_adopt", "sandbox=%s error=nomem at=next_list",
				 list->v[x->item]->id);
		break;
	}
}

static void reconcile(struct account *a, const struct cloud_list *list, uint64_t began_at_ms)
{
	struct sync *s = a->core->sync;
	struct plan_row *rows = NULL;
	struct sandbox **sandboxes = NULL;
	struct plan p = { 0 };
	size_t n = rows_of(a, &sandboxes, &rows);

	if (n == SIZE_MAX ||
	    plan_make(rows, n, list, store_host_id(a->core->store), began_at_ms, &p) < 0) {
		s->skipped++;
		log_warn("reconcile_skipped", "account=%s error=nomem", a->name);
	} else {
		for (size_t i = 0; i < p.n; i++)
			act(a, &p.v[i], sandboxes, list);
		s->at_once = p.suspicious ? 1 : VERIFY_AT_ONCE;
		if (p.suspicious) {
			s->anomalies++;
			log_warn("list_anomaly", "account=%s rows=%zu listed=%zu doing=ask_each",
				 a->name, n, list->n);
		}
		if (p.max_seq)
			store_seen_seq(a->core->store, p.max_seq);
		a->listing->trusted = !p.suspicious;
		s->reconciled_at_ms = clock_boot_ms();
		verify_pump(s);
	}
	plan_fini(&p);
	free(sandboxes);
	free(rows);
}

/* --- lists --- */

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

static void sync_on_list(struct cloud_result *r, void *user)
{
	struct listing *g = user;
	struct account *a = g->account;
	struct status st = r->status;
	struct list waiters;

	g->call = NULL;
	account_saw_date(a, r->date_ms);
	list_take(&waiters, &g->waiters);
	if (r->outcome == CLOUD_DONE && r->list) {
		if (g->failures)
			log_info("reconcile_again", "account=%s after_failures=%u", a->name, g->failures);
		g->failures = 0;
		cloud_list_free(g->list);
		g->list = give(r->list);
		a->listed_at_ms = clock_wall_ms();
		reconcile(a, g->list, g->began_at_ms);
		doubt_listed(a->core);
		warm_claims_listed(a);
	} else {
		g->failures++;
		a->core->sync->skipped++;
		log_event(g->failures == 1 ? LOG_LEVEL_WARN : LOG_LEVEL_DEBUG, "reconcile_skipped", "account=%s failures=%u text=%s",
			  a->name, g->failures, log_q(st.text));
	}
	plan_next(g);
	if (g->failures)
		tell(&waiters, &st, NULL, a->listed_at_ms);
	else
		inform(g, &waiters);
	if (!list_is_empty(&g->next) && !g->call)
		list_start(g);
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

	must(!g->call && list_is_empty(&g->waiters));
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

	if (list_is_empty(&g->informed))
		g->list = cloud_list_free(g->list);
	if (!g->call)
		list_start(g);
}

void sandbox_core_reconcile(struct sandbox_core *core, const char *account)
{
	struct account *a = core_account_by_name(core, account);
	struct listing *g = a ? a->listing : NULL;

	if (g && !g->call && timer_set(&g->timer, clock_boot_ms()) < 0)
		log_warn("reconcile_timer", "account=%s error=nomem", a->name);
}

void listing_join(struct account *a, struct listing_wait *w)
{
	struct listing *g = a->listing;
	bool young = g->began_at_ms && g->began_at_ms + LIST_GAP_MS > clock_boot_ms();
	struct list alone;

	must(list_is_empty(&w->node));
	if (g->call) {
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
	s->listings = calloc(core->n_accounts, sizeof(*s->listings));
	if (!s->listings)
		return -ENOMEM;
	for (size_t i = 0; i < core->n_accounts; i++) {
		struct listing *g = &s->listings[i];

		g->account = &core->accounts[i];
		g->account->listing = g;
		list_init(&g->waiters);
		list_init(&g->next);
		list_init(&g->informed);
		timer_init(&g->timer, core->loop, on_period, g);
		timer_init(&g->patience, core->loop, on_patience, g);
		r = timer_set(&g->timer, clock_boot_ms());
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
	for (size_t i = 0; s->listings && i < core->n_accounts; i++) {
		struct listing *g = &s->listings[i];

		if (!g->account)
			continue;
		timer_clear(&g->timer);
		timer_clear(&g->patience);
		cloud_call_cancel(g->call);
		cloud_list_free(g->list);
		must(list_is_empty(&g->waiters) && list_is_empty(&g->next) && list_is_empty(&g->informed));
		g->account->listing = NULL;
	}
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
