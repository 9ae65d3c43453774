/* SPDX-License-Identifier: MIT */
/*
 * Watchers of events. A watcher is a position in the event log and reads at its own pace; nothing is queued
 * for it. Where the log does not have its position any more (unknown cursor, or too slow) it gets a resync: RESYNC, one
 * UPDATED for each sandbox that it may see, RESYNC_DONE, whose cursor is the head of the log at RESYNC.
 * Events inside a resync have no cursor: a watcher that stops in the middle begins again.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/grant.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/event.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/quota.h"
#include "proto/base/str.h"

#define WATCH_MAGIC 0x57617463u

struct place {		/* a sandbox that the resync has still to send */
	char *account, *id;
};

#define PLACE_BYTES (sizeof(struct place) + 2 * 48u)	/* with its strings */

struct sandbox_watch {
	uint32_t magic;
	struct list node;
	struct sandbox_core *core;
	struct principal who;
	bool all;			/* every uid's */
	char *only;			/* id; NULL = all */
	uint32_t types;
	uint64_t at;			/* the last event read: its seq, or with `all` its number */
	sandbox_watch_fn *on_ready;
	void *user;
	struct defer kick;
	enum { WATCH_LOG, WATCH_RESYNC, WATCH_BOXES, WATCH_DONE } step;
	uint64_t resync_at;		/* head of the log at RESYNC */
	struct place *places;		/* owned */
	size_t n_places, next_place;
	struct charge held;		/* for `places` */
	bool full;			/* the quota has no room for `places`: the watch is over */
	/* What the last event points to. */
	char cursor[80], text[EVENT_TEXT_MAX];
	struct sandbox_view view;
	struct grave grave;
};

static struct event_log *log_of(const struct sandbox_watch *w)
{
	return w->all ? &w->core->events.all : events_of(w->core, w->who.uid);
}

static uint64_t key_of(const struct sandbox_watch *w, const struct event *e)
{
	return w->all ? e->number : e->seq;
}

/* The key of the last event that watchers may have; 0 = none yet. */
static uint64_t head_of(const struct sandbox_watch *w)
{
	const struct event_log *g = log_of(w);

	for (size_t n = g ? g->n : 0; n; n--)
		if (event_at(g, n - 1)->number <= w->core->events.told)
			return key_of(w, event_at(g, n - 1));
	return 0;
}

/* Behind all that may be told now. Numbers of all uids go on where the events before are gone; each uid's begin with 1. */
static uint64_t now_of(const struct sandbox_watch *w)
{
	uint64_t head = head_of(w);

	return head || !w->all ? head : w->core->events.told;
}

/* Before the last `back` of those that may be told. */
static uint64_t before_last(const struct sandbox_watch *w, uint32_t back)
{
	const struct event_log *g = log_of(w);
	size_t n = g ? g->n : 0;

	while (n && event_at(g, n - 1)->number > w->core->events.told)
		n--;
	n -= MIN(n, (size_t)back);
	return g && n < g->n ? key_of(w, event_at(g, n)) - 1 : now_of(w);
}

static void set_cursor(struct sandbox_watch *w, uint64_t key)
{
	snprintf(w->cursor, sizeof(w->cursor), "%s.%s%llu", store_incarnation(w->core->store),
		 w->all ? "g" : "", (unsigned long long)key);
}

/* False: the cursor is not of this store, or the log does not have its position any more. */
static bool read_cursor(const struct sandbox_watch *w, const char *cursor, uint64_t *ret)
{
	const struct event_log *g = log_of(w);
	const char *dot = strrchr(cursor, '.');
	size_t n = strlen(store_incarnation(w->core->store));
	uint64_t head = head_of(w);

	if (!dot || (size_t)(dot - cursor) != n || memcmp(cursor, store_incarnation(w->core->store), n))
		return false;
	dot++;
	if ((*dot == 'g') != w->all)
		return false;
	dot += w->all;
	if (str_u64(dot, strlen(dot), INT64_MAX, ret) < 0 || *ret > head)
		return false;
	return *ret == head || (g && g->n && *ret + 1 >= key_of(w, event_at(g, 0)));
}

static void drop_places(struct sandbox_watch *w)
{
	for (size_t i = 0; i < w->n_places; i++) {
		free(w->places[i].account);
		free(w->places[i].id);
	}
	free(w->places);
	charge_fini(&w->held);
	w->places = NULL;
	w->n_places = w->next_place = 0;
}

static bool sees(const struct sandbox_watch *w, const struct sandbox *b)
{
	return (w->all || b->uid == w->who.uid || (w->only && grant_row(&w->who, b->uid) == GRANT_OK)) &&
	       (!w->only || str_eq(b->id, w->only));
}

static size_t count_seen(const struct sandbox_watch *w)
{
	size_t n = 0;

	list_for_each(i, &w->core->sandboxes) {
		const struct sandbox *b = list_entry(i, struct sandbox, node);

		n += b->state != SANDBOX_GONE && sees(w, b);
	}
	return n;
}

/* If memory runs out, sandboxes are missing from the resync; then its cursor (0) makes a reconnect resync again. */
static void resync(struct sandbox_watch *w)
{
	size_t n = 0;

	drop_places(w);
	w->step = WATCH_RESYNC;
	w->resync_at = now_of(w);
	n = count_seen(w);
	w->full = charge_reserve(&w->held, n * PLACE_BYTES) < 0;
	if (w->full)
		return;
	w->places = calloc(n + 1, sizeof(*w->places));
	n = 0;
	if (!w->places)
		w->resync_at = 0;
	list_for_each(i, &w->core->sandboxes) {
		struct sandbox *b = list_entry(i, struct sandbox, node);

		if (!w->places || b->state == SANDBOX_GONE || !sees(w, b))
			continue;
		w->places[n].account = str_dup(b->account->name);
		w->places[n].id = str_dup(b->id);
		if (!w->places[n].account || !w->places[n].id)
			w->resync_at = 0;
		n++;
	}
	w->n_places = n;
}

/* --- reading --- */

static void read_evidence(char *text, struct sandbox_event *ret)
{
	char *line;

	while ((line = strsep(&text, "\n")) && ret->n_evidence < SANDBOX_EVIDENCE_MAX) {
		char *eq = strchr(line, '=');

		if (!eq || !eq[1])
			continue;
		*eq = 0;
		ret->evidence[ret->n_evidence++] = (struct sandbox_pair){ line, eq + 1 };
	}
}

/* The sandbox as it was at the event, as far as the event has it; everything else as it is now. */
static void view_of(struct sandbox_watch *w, const struct event *e)
{
	struct account *a = &w->core->accounts[e->account];
	struct sandbox *b = core_find(w->core, a, e->id);

	if (b)
		sandbox_view(b, SANDBOX_FROM_CACHE, &w->view);
	else
		w->view = (struct sandbox_view){
			.template_id = "", .alias = "", .envd_version = "", .domain = "", .warning = "",
			.policy = w->core->policy, .source = SANDBOX_FROM_CACHE, .owner_uid = e->uid,
		};
	w->view.id = e->id;
	w->view.name = e->name;
	w->view.account = a->name;
	w->view.state = e->state;
	w->view.started_at_ms = e->started_at_ms;
	w->view.end_at_ms = e->end_at_ms;
	w->view.leases = e->leases;
	w->view.generation = e->generation;
	w->view.gone_reason = e->reason;
	w->view.as_of_ms = e->at_ms;
}

static void watch_fill(struct sandbox_watch *w, const struct event *e, struct sandbox_event *ret)
{
	set_cursor(w, key_of(w, e));
	view_of(w, e);
	*ret = (struct sandbox_event){ .cursor = w->cursor, .at_ms = e->at_ms, .type = (int)e->type, .sandbox = &w->view,
				    .reason = e->reason };
	(void)str_copy(w->text, sizeof(w->text), e->evidence);
	read_evidence(w->text, ret);
}

static void bare(struct sandbox_watch *w, enum event_type type, struct sandbox_event *ret)
{
	*ret = (struct sandbox_event){ .cursor = w->cursor, .at_ms = clock_wall_ms(), .type = (int)type };
}

static bool is_wanted(const struct sandbox_watch *w, const struct event *e)
{
	if (w->types && !(w->types & BIT(e->type)))
		return false;
	return !w->only || str_eq(w->only, e->id);
}

static bool next_of_log(struct sandbox_watch *w, struct sandbox_event *ret)
{
	struct event_log *g = log_of(w);
	size_t i;

	if (!g || !g->n)
		return false;
	/* It was too slow: events that it did not read have been dropped. */
	if (w->at + 1 < key_of(w, event_at(g, 0)) && w->at < head_of(w)) {
		resync(w);
		return true;
	}
	for (i = event_above(g, w->all, w->at); i < g->n; i++) {
		const struct event *e = event_at(g, i);

		if (e->number > w->core->events.told)
			return false;
		w->at = key_of(w, e);
		if (!is_wanted(w, e))
			continue;
		watch_fill(w, e, ret);
		return true;
	}
	return false;
}

static bool next_sandbox(struct sandbox_watch *w, struct sandbox_event *ret)
{
	while (w->next_place < w->n_places) {
		const struct place *p = &w->places[w->next_place++];
		struct account *a = p->account ? core_account_by_name(w->core, p->account) : NULL;
		struct sandbox *b = a && p->id ? core_find(w->core, a, p->id) : NULL;

		if (!b || b->state == SANDBOX_GONE)
			continue;
		sandbox_view(b, SANDBOX_FROM_CACHE, &w->view);
		w->cursor[0] = 0;
		bare(w, EVENT_UPDATED, ret);
		ret->sandbox = &w->view;
		return true;
	}
	return false;
}

bool sandbox_watch_next(struct sandbox_watch *w, struct sandbox_event *ret)
{
	must(w->magic == WATCH_MAGIC);
	if (w->step == WATCH_LOG) {
		if (!next_of_log(w, ret))
			return false;
		if (w->step == WATCH_LOG)
			return true;
	}
	if (w->full)
		return false;
	if (w->step == WATCH_RESYNC) {
		w->step = WATCH_BOXES;
		w->cursor[0] = 0;
		bare(w, EVENT_RESYNC, ret);
		return true;
	}
	if (w->step == WATCH_BOXES && next_sandbox(w, ret))
		return true;
	drop_places(w);
	w->step = WATCH_LOG;
	w->at = w->resync_at;
	set_cursor(w, w->at);
	bare(w, EVENT_RESYNC_DONE, ret);
	return true;
}

bool sandbox_watch_is_over(const struct sandbox_watch *w, struct status *ret_st)
{
	if (w->full)
		status_errno(ret_st, -EDQUOT, "Watch");
	if (w->full || !w->core->draining)
		return w->full;
	status_set(ret_st, R_DRAINING, "agentboxd is stopping; go on from the last cursor in a moment");
	ret_st->retry_after_ms = 1000;
	return true;
}

void sandbox_watch_heartbeat(struct sandbox_watch *w, struct sandbox_event *ret)
{
	if (w->step == WATCH_LOG)
		set_cursor(w, w->at);
	else
		w->cursor[0] = 0;
	bare(w, EVENT_HEARTBEAT, ret);
}

/* --- its life --- */

static void on_kick(struct defer *d, void *user)
{
	struct sandbox_watch *w = user;

	must(w->magic == WATCH_MAGIC);
	w->on_ready(w->user);
}

void event_watches_wake(struct sandbox_core *core)
{
	list_for_each(n, &core->events.watches)
		defer_post(&list_entry(n, struct sandbox_watch, node)->kick);
}

static bool watch_check(struct sandbox_watch *w, const struct sandbox_watch_options *o,
			struct status *st)
{
	struct account *a;
	struct sandbox *b;

	if (o->all_owners && grant_all_owners(o->who) != GRANT_OK) {
		grant_refuse(st, "watch other owners' sandboxes");
		return false;
	}
	if (str_is_empty(o->sandbox))
		return true;
	switch (ref_find(w->core, o->who, o->sandbox, &b, &a, st)) {
	case REF_NONE:
		return false;
	case REF_ID:
		ref_not_found(st, o->sandbox);
		return false;
	case REF_SANDBOX:
		break;
	}
	w->only = str_dup(b->id);
	/* An administrator watches another uid's sandbox, whose events are not in the administrator's own log. */
	w->all = w->all || b->uid != o->who->uid;
	if (!w->only)
		status_errno(st, -ENOMEM, "Watch");
	return w->only != NULL;
}

static void watch_freep(struct sandbox_watch **w)
{
	*w = sandbox_watch_free(*w);
}

int sandbox_watch_new(struct sandbox_core *core, const struct sandbox_watch_options *o,
		      sandbox_watch_fn *on_ready, void *user, struct sandbox_watch **ret,
		      struct status *ret_st)
{
	scoped(watch_freep) struct sandbox_watch *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->magic = WATCH_MAGIC;
	w->core = core;
	w->who = *o->who;
	w->who.pidfd = -1;
	w->all = o->all_owners;
	w->types = o->types;
	w->on_ready = on_ready;
	w->user = user;
	w->held.quota = o->quota;
	list_add_tail(&core->events.watches, &w->node);
	defer_init(&w->kick, core->loop, on_kick, w);
	if (!watch_check(w, o, ret_st))
		return -EINVAL;
	w->at = o->back ? before_last(w, o->back) : now_of(w);
	if (o->initial || (!str_is_empty(o->cursor) && !read_cursor(w, o->cursor, &w->at)))
		resync(w);
	defer_post(&w->kick);
	*ret = give(w);
	return 0;
}

static void watch_bury(void *p)
{
	free(p);
}

struct sandbox_watch *sandbox_watch_free(struct sandbox_watch *w)
{
	if (!w)
		return NULL;
	must(w->magic == WATCH_MAGIC);
	defer_cancel(&w->kick);
	list_del(&w->node);
	drop_places(w);
	free(w->only);
	w->magic = 0;
	loop_bury(w->core->loop, &w->grave, watch_bury, w);
	return NULL;
}
