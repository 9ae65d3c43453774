/* SPDX-License-Identifier: MIT */
/* See the header. */
#include "daemon/local/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/local/journal.h"
#include "daemon/obs/log.h"
#include "proto/base/clock.h"
#include "proto/base/map.h"
#include "proto/base/must.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"

#define SBOX_MAGIC	 0x5b0c5b0cu
#define BASE_TEMPLATE_ID "rki5dems9wqfm4r03t7g"

struct state {
	struct state_options o;
	struct map by_id;
	struct state_template templates[STATE_TEMPLATES_MAX];
	size_t n_templates;
	int64_t last_started_us;
	void (*all_gone)(void *user);
	void *all_gone_user;
};

static struct sbox *sbox_from(void *p)
{
	struct sbox *s = p;

	must(s && s->magic == SBOX_MAGIC);
	return s;
}

static void sbox_set_state(struct sbox *s, enum sbox_state to)
{
	static const char *const names[] = { "creating", "running", "killing" };

	must(to > s->state);
	log_debug("sandbox_state", "id=%s from=%s to=%s", s->id, names[s->state], names[to]);
	s->state = to;
}

/* --- the table --- */

static void template_add(struct state *st, const char *name)
{
	static const char digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	struct state_template *t = &st->templates[st->n_templates++];
	char hex[65];

	str_copy(t->name, sizeof(t->name), name);
	if (str_eq(name, "base")) {
		str_copy(t->id, sizeof(t->id), BASE_TEMPLATE_ID);
		return;
	}
	sign_sha256_hex(name, strlen(name), hex);
	for (size_t i = 0; i < 20; i++)
		t->id[i] = digits[((unsigned char)hex[3 * i] * 7u + (unsigned char)hex[3 * i + 1] * 3u +
				   (unsigned char)hex[3 * i + 2]) % 36];
}

int state_new(const struct state_options *o, struct state **ret)
{
	struct state *st;

	if (o->n_templates >= STATE_TEMPLATES_MAX)
		return -E2BIG;
	st = calloc(1, sizeof(*st));
	if (!st)
		return -ENOMEM;
	st->o = *o;
	template_add(st, "base");
	for (size_t i = 0; i < o->n_templates; i++)
		if (!state_template(st, o->templates[i]))
			template_add(st, o->templates[i]);
	*ret = st;
	return 0;
}

struct state *state_free(struct state *st)
{
	if (!st)
		return NULL;
	must(!map_size(&st->by_id));
	map_fini(&st->by_id);
	explicit_bzero(st->o.seed, sizeof(st->o.seed));
	free(st);
	return NULL;
}

const struct state_options *state_opts(const struct state *st)
{
	return &st->o;
}

const struct state_template *state_template(const struct state *st, const char *name_or_id)
{
	for (size_t i = 0; i < st->n_templates; i++)
		if (str_eq(st->templates[i].name, name_or_id) ||
		    str_eq(st->templates[i].id, name_or_id))
			return &st->templates[i];
	return NULL;
}

size_t state_count(const struct state *st)
{
	return map_size(&st->by_id);
}

struct sbox *state_find(const struct state *st, const char *id)
{
	return map_get_str(&st->by_id, id);
}

struct sbox *state_next(const struct state *st, size_t *pos)
{
	return map_next(&st->by_id, pos);
}

void state_kill_all(struct state *st, const char *why, void (*done)(void *user), void *user)
{
	size_t pos = 0;
	struct sbox *s;

	if (!state_count(st)) {
		done(user);
		return;
	}
	st->all_gone = done;
	st->all_gone_user = user;
	/* Nothing leaves the table before the callbacks of the engine come. */
	while ((s = state_next(st, &pos)))
		sbox_kill(s, why, NULL);
}

/* --- a sandbox --- */

static void sbox_free(struct sbox *s)
{
	struct state *st = s->st;

	(void)map_del_str(&st->by_id, s->id);
	timer_clear(&s->expiry);
	json_decref(s->metadata);
	json_decref(s->env_vars);
	explicit_bzero(s->token, sizeof(s->token));
	s->magic = 0;
	free(s);
	if (st->o.on_count)
		st->o.on_count(st->o.user);
	if (!state_count(st) && st->all_gone)
		st->all_gone(st->all_gone_user);
}

static void on_gone(void *user, int r, const char *why)
{
	struct sbox *s = sbox_from(user);
	struct list waits;

	if (r < 0)
		log_warn("sandbox_leftovers", "id=%s error=%d why=%s", s->id, -r,
			 log_q(why ? why : ""));
	journal_add(s->st->o.journal, "gone",
		    json_pack("{s:s, s:s, s:s}", "sandbox", s->id, "team", s->team, "why", s->why));
	list_take(&waits, &s->kill_waits);
	sbox_free(s);
	list_for_each_safe(n, &waits) {
		struct kill_wait *w = list_entry(n, struct kill_wait, node);

		list_del(n);
		w->done(w);
	}
}

void sbox_kill(struct sbox *s, const char *why, struct kill_wait *w)
{
	if (w)
		list_add_tail(&s->kill_waits, &w->node);
	if (s->state == SBOX_KILLING)
		return;
	s->why = why;
	sbox_set_state(s, SBOX_KILLING);
	timer_clear(&s->expiry);
	while (!list_is_empty(&s->traffic)) {
		struct list *n = s->traffic.next;
		struct traffic *t = list_entry(n, struct traffic, node);

		t->cut(t);
		must(s->traffic.next != n);
	}
	if (s->st->o.on_stop)
		s->st->o.on_stop(s);
	box_destroy(give(s->box), on_gone, s);
}

static void on_death(void *user)
{
	struct sbox *s = sbox_from(user);

	log_warn("sandbox_died", "id=%s", s->id);
	sbox_kill(s, "died", NULL);
}

static void on_expiry(struct timer *t, void *user)
{
	struct sbox *s = sbox_from(user);

	sbox_kill(s, "expired", NULL);
}

static void on_created(void *user, int r, const char *why)
{
	struct sbox *s = sbox_from(user);
	sbox_created_fn *created = give(s->created);
	void *created_user = s->created_user;
	struct state *st = s->st;
	int64_t now_us = clock_wall_ms() * 1000;

	if (s->state == SBOX_KILLING) {
		if (created)
			created(created_user, NULL, -ECANCELED, "it was killed meanwhile");
		return;
	}
	if (r < 0) {
		log_warn("sandbox_not_made", "id=%s error=%d why=%s", s->id, -r,
			 log_q(why ? why : ""));
		sbox_kill(s, "not made", NULL);
		if (created)
			created(created_user, NULL, r, why);
		return;
	}
	box_on_death(s->box, on_death, s);
	sbox_set_state(s, SBOX_RUNNING);
	/* Strictly growing, so that a listing has one order. */
	s->started_us = MAX(now_us, st->last_started_us + 1);
	st->last_started_us = s->started_us;
	s->started_ms = loop_now_ms(st->o.loop);
	sbox_set_timeout(s, (uint64_t)s->timeout_s * 1000);
	if (created)
		created(created_user, s, 0, NULL);
}

static uint32_t count_team(const struct state *st, const char *team)
{
	uint32_t n = 0;
	size_t pos = 0;
	struct sbox *s;

	while ((s = state_next(st, &pos)))
		n += s->team == team && s->state != SBOX_KILLING;
	return n;
}

static int sbox_new(struct state *st, const struct sbox_params *p, struct sbox **ret)
{
	struct sbox *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->magic = SBOX_MAGIC;
	s->st = st;
	s->id[0] = 'i';
	rng_id(s->id + 1, 20);
	s->team = p->team;
	s->template = p->template;
	s->timeout_s = p->timeout_s;
	s->secure = p->secure;
	s->has_internet = p->has_internet;
	s->internet = p->internet;
	s->metadata = p->metadata ? json_incref(p->metadata) : json_object();
	s->env_vars = p->env_vars ? json_incref(p->env_vars) : json_object();
	list_init(&s->traffic);
	list_init(&s->procs);
	list_init(&s->kill_waits);
	timer_init(&s->expiry, st->o.loop, on_expiry, s);
	if (s->secure)
		sign_token(st->o.seed, s->id, s->token);
	r = s->metadata && s->env_vars ? map_put_str(&st->by_id, s->id, s) : -ENOMEM;
	if (r < 0) {
		json_decref(s->metadata);
		json_decref(s->env_vars);
		free(s);
		return r;
	}
	*ret = s;
	return 0;
}

int sbox_create(struct state *st, const struct sbox_params *p, sbox_created_fn *created, void *user,
		struct sbox **ret)
{
	struct box_options bo = {
		.template = p->template->name,
		.memory_bytes = st->o.memory_bytes,
		.cpus = st->o.cpus,
	};
	struct sbox *s = NULL;
	int r;

	if (count_team(st, p->team) >= st->o.max_sandboxes)
		return STATE_FULL;
	r = sbox_new(st, p, &s);
	if (r < 0)
		return r;
	bo.id = s->id;
	r = box_new(st->o.boxes, &bo, on_created, s, &s->box);
	if (r < 0) {
		sbox_free(s);
		return r;
	}
	s->created = created;
	s->created_user = user;
	if (st->o.on_count)
		st->o.on_count(st->o.user);
	*ret = s;
	return 0;
}

void sbox_uncreated(struct sbox *s)
{
	s->created = NULL;
}

void sbox_set_timeout(struct sbox *s, uint64_t for_ms)
{
	uint64_t now = loop_now_ms(s->st->o.loop);
	uint64_t last = s->started_ms + (uint64_t)s->st->o.max_length_s * 1000;

	s->end_ms = MIN(now + for_ms, last);
	s->end_us = clock_wall_ms() * 1000 + ((int64_t)s->end_ms - (int64_t)now) * 1000;
	/* A clock that cannot be set must not make it live for ever. */
	if (timer_set(&s->expiry, s->end_ms) < 0)
		sbox_kill(s, "no memory", NULL);
}

void sbox_extend(struct sbox *s, uint64_t for_ms)
{
	if (loop_now_ms(s->st->o.loop) + for_ms > s->end_ms)
		sbox_set_timeout(s, for_ms);
}

void sbox_traffic_add(struct sbox *s, struct traffic *t, void (*cut)(struct traffic *t))
{
	t->cut = cut;
	list_add_tail(&s->traffic, &t->node);
}
