/* SPDX-License-Identifier: MIT */
/* The table of sandboxes; their beginning and their end. What is between is in lifecycle.c. */
#include "daemon/local/state/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/local/egress/egress.h"
#include "daemon/local/state/journal.h"
#include "daemon/local/state/saved_state.h"
#include "proto/base/clock.h"
#include "proto/base/map.h"
#include "proto/base/must.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"

#define SANDBOX_MAGIC 0x5b0c5b0cu

struct state {
	struct state_options o;
	struct map by_id;
	struct templates *templates;
	struct list held;		/* layers that sandboxes are being made from */
	json_t *strangers;
	int64_t last_started_us;
	bool stopping;
	void (*all_gone)(void *user);
	void *all_gone_user;
};

static struct sandbox *sandbox_from(void *p)
{
	struct sandbox *s = p;

	must(s && s->magic == SANDBOX_MAGIC);
	return s;
}

static const struct {
	const char *name;
	unsigned next;
} states[] = {
	[SANDBOX_CREATING] = {"creating",
			      BIT(SANDBOX_RUNNING) | BIT(SANDBOX_KILLING) | BIT(SANDBOX_PAUSED)},
	[SANDBOX_RUNNING] = {"running", BIT(SANDBOX_SNAPSHOTTING) | BIT(SANDBOX_PAUSING) |
						BIT(SANDBOX_KILLING)},
	[SANDBOX_SNAPSHOTTING] = {"snapshotting", BIT(SANDBOX_RUNNING) | BIT(SANDBOX_KILLING)},
	[SANDBOX_PAUSING] = {"pausing", BIT(SANDBOX_PAUSED) | BIT(SANDBOX_KILLING)},
	[SANDBOX_PAUSED] = {"paused", BIT(SANDBOX_RESUMING) | BIT(SANDBOX_KILLING)},
	[SANDBOX_RESUMING] = {"resuming",
			      BIT(SANDBOX_RUNNING) | BIT(SANDBOX_PAUSED) | BIT(SANDBOX_KILLING)},
	[SANDBOX_KILLING] = {"killing", 0},
};

void sandbox_set_state(struct sandbox *s, enum sandbox_state to)
{
	must(states[s->state].next & BIT(to));
	log_debug("sandbox_state", "id=%s from=%s to=%s", s->id, states[s->state].name,
		  states[to].name);
	s->state = to;
}

/* --- the table --- */

int state_new(const struct state_options *o, struct state **ret)
{
	struct state *st = calloc(1, sizeof(*st));
	int r;

	if (!st)
		return -ENOMEM;
	st->o = *o;
	list_init(&st->held);
	st->strangers = json_array();
	r = st->strangers ? templates_new(o->templates, o->n_templates, clock_wall_ms() * 1000, &st->templates) : -ENOMEM;
	if (r < 0) {
		json_decref(st->strangers);
		free(st);
		return r;
	}
	*ret = st;
	return 0;
}

struct state *state_free(struct state *st)
{
	if (!st)
		return NULL;
	must(!map_size(&st->by_id));
	map_fini(&st->by_id);
	templates_free(st->templates);
	json_decref(st->strangers);
	explicit_bzero(st->o.seed, sizeof(st->o.seed));
	free(st);
	return NULL;
}

const struct state_options *state_opts(const struct state *st)
{
	return &st->o;
}

struct templates *state_templates(const struct state *st)
{
	return st->templates;
}

json_t *state_strangers(const struct state *st)
{
	return st->strangers;
}

bool state_is_stopping(const struct state *st)
{
	return st->stopping;
}

size_t state_count(const struct state *st)
{
	return map_size(&st->by_id);
}

size_t state_count_bound(const struct state *st)
{
	size_t pos = 0, n = 0;
	struct sandbox *s;

	while ((s = state_next(st, &pos)))
		n += s->state != SANDBOX_PAUSED || s->container;
	return n;
}

uint32_t state_count_team(const struct state *st, const char *team)
{
	uint32_t n = 0;
	size_t pos = 0;
	struct sandbox *s;

	while ((s = state_next(st, &pos)))
		n += s->team == team && s->state != SANDBOX_KILLING && s->state != SANDBOX_PAUSED;
	return n;
}

struct sandbox *state_find(const struct state *st, const char *id)
{
	return map_get_str(&st->by_id, id);
}

struct sandbox *state_next(const struct state *st, size_t *pos)
{
	return map_next(&st->by_id, pos);
}

/* The first that the end of this process is still to be told to. */
static struct sandbox *next_to_end(const struct state *st)
{
	size_t pos = 0;
	struct sandbox *s;

	while ((s = state_next(st, &pos))) {
		/* One whose files are being put away is forgotten when they are. */
		bool on_its_way = !s->container &&
				  (s->state == SANDBOX_PAUSING || s->state == SANDBOX_RESUMING);

		if (s->state != SANDBOX_KILLING && !on_its_way)
			return s;
	}
	return NULL;
}

void state_kill_all(struct state *st, const char *why, void (*done)(void *user), void *user)
{
	struct sandbox *s;

	st->stopping = true;
	if (!state_count(st)) {
		done(user);
		return;
	}
	st->all_gone = done;
	st->all_gone_user = user;
	while ((s = next_to_end(st)))
		if (s->state == SANDBOX_PAUSED && !s->container)
			sandbox_forget(s);
		else
			sandbox_kill(s, why, NULL);
}

/* --- layers --- */

struct held_layer {
	struct list node;
	char layer[CONTAINER_ID_MAX + 1];
	uint32_t n;
	bool doomed;		/* to be dropped when nobody copies it any more */
};

static struct held_layer *held(const struct state *st, const char *layer)
{
	list_for_each(n, &st->held) {
		struct held_layer *h = list_entry(n, struct held_layer, node);

		if (str_eq(h->layer, layer))
			return h;
	}
	return NULL;
}

static int hold(struct state *st, const char *layer)
{
	struct held_layer *h = held(st, layer);

	if (!h) {
		h = calloc(1, sizeof(*h));
		if (!h)
			return -ENOMEM;
		str_copy(h->layer, sizeof(h->layer), layer);
		list_add_tail(&st->held, &h->node);
	}
	h->n++;
	return 0;
}

static void let_go(struct state *st, const char *layer)
{
	struct held_layer *h = held(st, layer);

	must(h && h->n);
	if (--h->n)
		return;
	list_del(&h->node);
	if (h->doomed)
		state_drop_layer(st, layer);
	free(h);
}

void state_drop_layer(struct state *st, const char *layer)
{
	struct held_layer *h = held(st, layer);
	int r;

	if (h) {
		h->doomed = true;
		return;
	}
	r = engine_drop_layer(st->o.engine, layer, NULL, NULL);
	if (r < 0)	/* the next start finds that nobody needs it */
		log_warn("layer_remains", "layer=%s error=%d", layer, -r);
}

static void counted(struct state *st)
{
	st->o.on_count(st->o.user);
}

/* --- waiting --- */

static void wake(struct list *waits)
{
	struct list all;

	list_take(&all, waits);
	while (!list_is_empty(&all)) {
		struct sandbox_wait *w = list_first(&all, struct sandbox_wait, node);

		list_del(&w->node);
		w->done(w);
	}
}

void sandbox_wait(struct sandbox *s, struct sandbox_wait *w)
{
	list_add_tail(&s->waits, &w->node);
}

void sandbox_transition_done(struct sandbox *s)
{
	counted(s->st);
	wake(&s->waits);
}

/* --- the end --- */

void sandbox_forget(struct sandbox *s)
{
	struct state *st = s->st;
	struct list waits, kill_waits;

	must(!s->container);
	if (s->snap)
		sandbox_save_orphan(give(s->snap));
	list_take(&waits, &s->waits);
	list_take(&kill_waits, &s->kill_waits);
	(void)map_del_str(&st->by_id, s->id);
	timer_clear(&s->expiry);
	timer_clear(&s->sample);
	defer_cancel(&s->gone);
	template_unuse(st->templates, s->template);
	cloud_kvs_fini(&s->metadata);
	cloud_kvs_fini(&s->env_vars);
	cloud_network_free(s->network);
	meter_fini(&s->meter);
	event_log_fini(&s->event_log);
	explicit_bzero(s->token, sizeof(s->token));
	explicit_bzero(s->traffic_token, sizeof(s->traffic_token));
	s->magic = 0;
	free(s);
	counted(st);
	wake(&waits);
	wake(&kill_waits);
	if (!state_count(st) && st->all_gone)
		st->all_gone(st->all_gone_user);
}

static void state_finish(struct sandbox *s)
{
	journal_add(s->st->o.journal, "gone",
		    json_pack("{s:s, s:s, s:s}", "sandbox", s->id, "team", s->team, "why", s->why));
	sandbox_forget(s);
}

static void on_gone(void *user, int r, const char *why)
{
	struct sandbox *s = sandbox_from(user);

	if (r < 0)
		log_warn("sandbox_leftovers", "id=%s error=%d why=%s", s->id, -r,
			 log_q(why ? why : ""));
	state_finish(s);
}

static void on_gone_later(struct defer *d, void *user)
{
	state_finish(sandbox_from(user));
}

void sandbox_cut_traffic(struct sandbox *s)
{
	while (!list_is_empty(&s->traffic)) {
		struct list *n = s->traffic.next;
		struct traffic *t = list_entry(n, struct traffic, node);

		t->cut(t);
		must(s->traffic.next != n);
	}
}

void sandbox_close_egress(struct sandbox *s)
{
	s->egress = egress_free(s->egress);
}

/* Without descriptors or memory for it the sandbox has none, and its connections are refused. */
static void open_egress(struct sandbox *s)
{
	const struct state_options *o = &s->st->o;
	struct egress_options eo = { .loop = o->loop, .host = o->egress, .id = s->id };
	int r = 0;

	if (!engine_have_egress(o->engine))
		return;
	if (!s->egress) {
		container_take_egress(s->container, &eo.tcp, &eo.udp);
		r = egress_new(&eo, &s->egress);
	}
	if (r == 0)
		r = egress_set(s->egress, s->network, s->policy.is_blocked);
	if (r < 0) {
		log_warn("sandbox_no_egress", "id=%s error=%d", s->id, -r);
		sandbox_close_egress(s);
	}
}

/* NULL for settings that say nothing. */
static int keep_network(const struct cloud_network *network, struct cloud_network **ret)
{
	static const struct cloud_network none;

	*ret = NULL;
	if (!network || cloud_network_equal(network, &none))
		return 0;
	*ret = cloud_network_dup(network);
	return *ret ? 0 : -ENOMEM;
}

int sandbox_set_network(struct sandbox *s, const struct cloud_network *network, bool is_blocked)
{
	scoped(cloud_network_freep) struct cloud_network *kept = NULL;
	int r = keep_network(network, &kept);

	if (r == 0 && s->egress)
		r = egress_set(s->egress, kept, is_blocked);
	if (r < 0)
		return r;
	cloud_network_free(s->network);
	s->network = give(kept);
	s->policy.is_blocked = is_blocked;
	return 0;
}

static void answer_creation(struct sandbox *s, int r, const char *why)
{
	sandbox_created_fn *created = give(s->created);

	s->is_served = false;
	created(s->created_user, r < 0 ? NULL : s, r, why);
}

void sandbox_kill(struct sandbox *s, const char *why, struct sandbox_wait *w)
{
	bool was_shelved = s->state == SANDBOX_PAUSED && !s->container;

	if (w)
		list_add_tail(&s->kill_waits, &w->node);
	if (s->state == SANDBOX_KILLING)
		return;
	s->why = why;
	sandbox_set_state(s, SANDBOX_KILLING);
	timer_clear(&s->expiry);
	timer_clear(&s->sample);
	sandbox_cut_traffic(s);
	sandbox_close_egress(s);
	s->st->o.on_stop(s);
	if (s->is_served)
		answer_creation(s, -ECANCELED, "it was killed meanwhile");
	if (s->container) {
		container_destroy(give(s->container), on_gone, s);
	} else {
		if (s->layer[0])
			state_drop_layer(s->st, s->layer);
		if (was_shelved)
			saved_state_write(s->st);
		defer_post(&s->gone);
	}
	wake(&s->waits);
}

/* --- the clock --- */

static void on_expiry(struct timer *t, void *user)
{
	struct sandbox *s = sandbox_from(user);

	/* In a transition it is looked at again when that is over. */
	if (s->state != SANDBOX_RUNNING)
		return;
	if (!s->policy.auto_pause || s->is_served) {
		sandbox_kill(s, "expired", NULL);
		return;
	}
	journal_add(s->st->o.journal, "auto-pause",
		    json_pack("{s:s, s:s, s:b}", "sandbox", s->id, "team", s->team, "memory",
			      s->policy.auto_pause_memory));
	sandbox_pause(s, s->policy.auto_pause_memory);
}

static void take_sample(struct sandbox *s)
{
	struct container_usage u;

	container_usage(s->container, &u);
	container_show_usage(s->container, &u);
	meter_add(&s->meter, &u, clock_wall_ms() / 1000, clock_boot_us());
}

static void on_sample(struct timer *t, void *user)
{
	struct sandbox *s = sandbox_from(user);

	if (s->state == SANDBOX_RUNNING)
		take_sample(s);
	if (timer_set(&s->sample, loop_now_ms(s->st->o.loop) + METER_EVERY_MS) < 0)
		log_warn("metrics_end", "id=%s", s->id);
}

void sandbox_set_timeout(struct sandbox *s, uint64_t for_ms)
{
	uint64_t now = loop_now_ms(s->st->o.loop);
	uint64_t last = s->started_ms + (uint64_t)s->st->o.max_length_s * 1000;

	s->end_ms = MIN(now + for_ms, last);
	s->end_us = clock_wall_ms() * 1000 + ((int64_t)s->end_ms - (int64_t)now) * 1000;
	/* A clock that cannot be set must not make it live for ever. */
	if (timer_set(&s->expiry, s->end_ms) < 0)
		sandbox_kill(s, "no memory", NULL);
}

void sandbox_extend(struct sandbox *s, uint64_t for_ms)
{
	if (loop_now_ms(s->st->o.loop) + for_ms > s->end_ms)
		sandbox_set_timeout(s, for_ms);
}

void sandbox_traffic_add(struct sandbox *s, struct traffic *t, void (*cut)(struct traffic *t))
{
	t->cut = cut;
	list_add_tail(&s->traffic, &t->node);
}

/* --- the beginning --- */

static void on_death(void *user)
{
	struct sandbox *s = sandbox_from(user);

	log_warn("sandbox_died", "id=%s", s->id);
	sandbox_kill(s, "died", NULL);
}

void sandbox_begin(struct sandbox *s, uint32_t for_s)
{
	struct state *st = s->st;
	int64_t now_us = clock_wall_ms() * 1000;
	struct container_usage u;

	container_on_death(s->container, on_death, s);
	sandbox_set_state(s, SANDBOX_RUNNING);
	open_egress(s);
	/* Strictly growing, so that a listing has one order. */
	s->started_us = MAX(now_us, st->last_started_us + 1);
	st->last_started_us = s->started_us;
	s->started_ms = loop_now_ms(st->o.loop);
	container_usage(s->container, &u);
	meter_restart(&s->meter, u.cpu_us, clock_boot_us());
	on_sample(&s->sample, s);
	sandbox_set_timeout(s, (uint64_t)for_s * 1000);
	st->o.on_start(s, st->o.user);
}

static bool is_run(const struct template_run *run)
{
	return run->start || run->ready || run->user;
}

static void fail_creation(struct sandbox *s, int r, const char *why)
{
	sandbox_created_fn *created = give(s->created);
	void *created_user = s->created_user;

	s->is_served = false;
	log_warn("sandbox_not_made", "id=%s error=%d why=%s", s->id, -r, log_q(why ? why : ""));
	sandbox_kill(s, "not made", NULL);
	created(created_user, NULL, r, why);
}

/* The time that it was asked for begins when its maker hears of it. */
void sandbox_served(struct sandbox *s, int r, const char *why)
{
	must(s->is_served);
	if (r < 0) {
		fail_creation(s, r, why);
		return;
	}
	sandbox_set_timeout(s, (uint64_t)s->timeout_s * 1000);
	answer_creation(s, 0, NULL);
	sandbox_transition_done(s);
}

static void on_created(void *user, int r, const char *why)
{
	struct sandbox *s = sandbox_from(user);

	if (s->layer[0]) {
		let_go(s->st, s->layer);
		s->layer[0] = '\0';
	}
	if (s->state == SANDBOX_KILLING) {
		answer_creation(s, -ECANCELED, "it was killed meanwhile");
		return;
	}
	if (r < 0) {
		fail_creation(s, r, why);
		return;
	}
	event_log_add(&s->event_log, clock_wall_ms() * 1000, EVENT_LOG_INFO, "envd started", NULL);
	sandbox_begin(s, s->timeout_s);
	if (is_run(s->run)) {
		s->is_served = true;
		r = s->st->o.serve(s, s->st->o.user);
		if (r < 0)
			fail_creation(s, r, strerror(-r));
		return;
	}
	answer_creation(s, 0, NULL);
	sandbox_transition_done(s);
}

static void make_tokens(struct sandbox *s)
{
	char text[ROUTE_ID_MAX + 24];

	if (s->policy.secure)
		sign_token(s->st->o.seed, s->id, s->token);
	snprintf(text, sizeof(text), "sandbox-traffic-%s", s->id);
	if (s->policy.is_private)
		sign_token(s->st->o.seed, text, s->traffic_token);
}

static const struct template_run *run_of(const struct state *st, const char *root)
{
	static const struct template_run none;

	for (size_t i = 0; st->o.runs && i < st->o.n_templates; i++)
		if (str_eq(st->o.templates[i].name, root))
			return &st->o.runs[i];
	return &none;
}

static int copy_params(struct sandbox *s, const struct sandbox_params *p)
{
	int r = cloud_kvs_add_all(&s->metadata, &p->metadata);

	if (r == 0)
		r = cloud_kvs_add_all(&s->env_vars, &p->env_vars);
	return r < 0 ? r : keep_network(p->network, &s->network);
}

static int sandbox_new(struct state *st, const char *id, const struct sandbox_params *p,
		       struct sandbox **ret)
{
	struct sandbox *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->magic = SANDBOX_MAGIC;
	s->st = st;
	str_copy(s->id, sizeof(s->id), id);
	s->team = p->team;
	s->template = p->template;
	str_copy(s->root, sizeof(s->root), p->root);
	s->run = run_of(st, p->root);
	s->timeout_s = p->timeout_s;
	s->policy = p->policy;
	list_init(&s->traffic);
	list_init(&s->procs);
	list_init(&s->watchers);
	list_init(&s->waits);
	list_init(&s->kill_waits);
	timer_init(&s->expiry, st->o.loop, on_expiry, s);
	timer_init(&s->sample, st->o.loop, on_sample, s);
	defer_init(&s->gone, st->o.loop, on_gone_later, s);
	make_tokens(s);
	template_use(s->template);
	r = copy_params(s, p);
	if (r == 0)
		r = map_put_str(&st->by_id, s->id, s);
	if (r < 0) {
		sandbox_forget(s);
		return r;
	}
	*ret = s;
	return 0;
}

int sandbox_create(struct state *st, const struct sandbox_params *p, sandbox_created_fn *created,
		   void *user)
{
	struct container_options bo = {
		.template = p->root,
		.layer = p->layer,
		.memory_bytes = st->o.memory_bytes,
		.cpus = st->o.cpus,
	};
	char id[22] = "i";
	struct sandbox *s = NULL;
	int r;

	if (state_count_team(st, p->team) >= st->o.max_sandboxes)
		return STATE_FULL;
	rng_id(id + 1, 20);
	r = sandbox_new(st, id, p, &s);
	if (r < 0)
		return r;
	bo.id = s->id;
	r = p->layer ? hold(st, p->layer) : 0;
	if (r == 0) {
		r = container_new(st->o.engine, &bo, on_created, s, &s->container);
		if (r < 0 && p->layer)
			let_go(st, p->layer);
	}
	if (r < 0) {
		sandbox_forget(s);
		return r;
	}
	if (p->layer)
		str_copy(s->layer, sizeof(s->layer), p->layer);
	s->created = created;
	s->created_user = user;
	template_spawned(s->template, clock_wall_ms() * 1000);
	counted(st);
	return 0;
}

int sandbox_restore(struct state *st, const char *id, const struct sandbox_params *p,
		    struct sandbox **ret)
{
	int r = sandbox_new(st, id, p, ret);

	if (r < 0)
		return r;
	sandbox_set_state(*ret, SANDBOX_PAUSED);
	str_copy((*ret)->layer, sizeof((*ret)->layer), p->layer);
	return 0;
}
