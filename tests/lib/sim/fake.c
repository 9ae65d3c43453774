/* SPDX-License-Identifier: MIT */
/* The ledger, and what requests do to it. */
#include "tests/lib/sim/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/sandbox/rules/tags.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define HIDDEN_MAX_MS	    8000u	/* made, and in no list yet */
#define HIDDEN_CHILD_MAX_MS 4000u
#define LEFT_OUT_MAX	    2u		/* lists that are read, one after the other, and lack one which they should have */
#define BUSY_MAX_MS	    2000u	/* a sandbox that is being copied is in no list */
#define PLANTED_S	    300u

void *shared_new(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	must(p != MAP_FAILED);
	return p;
}

void shared_free(void *p, size_t n)
{
	munmap(p, n);
}

struct fake *fake_new(void)
{
	struct fake *f = shared_new(sizeof(*f));

	sim_begin(&f->time);
	rng_seed(&f->rng, 1);
	f->latency_ms = 1;
	f->clock_offset_ms = f->time.wall_offset_ms;
	return f;
}

void fake_free(struct fake *f)
{
	sim_end();
	shared_free(f, sizeof(*f));
}

/* Not cryptography. */
void fake_hash(const void *p, size_t n, uint8_t ret[32])
{
	uint64_t h = 1469598103934665603ull;

	for (size_t i = 0; i < n; i++)
		h = (h ^ ((const uint8_t *)p)[i]) * 1099511628211ull;
	for (size_t i = 0; i < 4; i++, h = h * 6364136223846793005ull + 1)
		memcpy(ret + 8 * i, &h, 8);
}

void fake_next(struct fake *f, enum fake_call what, unsigned n, enum fake_fate fate)
{
	f->next[what].n = n;
	f->next[what].fate = fate;
}

static bool happens(struct fake *f, unsigned of_1000)
{
	return rng_below(&f->rng, 1000) < of_1000;
}

/* --- sandboxes --- */

int64_t fake_now(const struct fake *f)
{
	return (int64_t)sim->now_ms + f->clock_offset_ms;
}

struct fake_sandbox *fake_find_any(struct fake *f, const char *id)
{
	for (unsigned i = 0; i < f->n_sandboxes; i++)
		if (str_eq(f->sandboxes[i].id, id))
			return &f->sandboxes[i];
	return NULL;
}

struct fake_sandbox *fake_find(struct fake *f, const char *id)
{
	struct fake_sandbox *b = fake_find_any(f, id);

	return b && b->alive ? b : NULL;
}

const char *fake_tag(const struct fake_sandbox *b, const char *key)
{
	for (unsigned i = 0; i < b->n_tags; i++)
		if (str_eq(b->keys[i], key))
			return b->values[i];
	return NULL;
}

void fake_plant_tag(struct fake_sandbox *b, const char *key, const char *value)
{
	must(b->n_tags < FAKE_TAGS && str_copy(b->keys[b->n_tags], sizeof(b->keys[0]), key) &&
	     str_copy(b->values[b->n_tags], sizeof(b->values[0]), value));
	b->n_tags++;
}

struct fake_sandbox *fake_add(struct fake *f, uint32_t timeout_s)
{
	struct fake_sandbox *b = &f->sandboxes[f->n_sandboxes++];

	must(f->n_sandboxes < FAKE_SANDBOXES);
	*b = (struct fake_sandbox){ .alive = true };
	snprintf(b->id, sizeof(b->id), "i%020u", f->n_sandboxes);
	b->started_at_ms = fake_now(f);
	b->end_at_ms = b->started_at_ms + (f->cap_s ? MIN(timeout_s, f->cap_s) : timeout_s) * 1000ll;
	b->listed_at_ms = b->touched_at_ms = sim->now_ms;
	return b;
}

struct fake_sandbox *fake_plant(struct fake *f, const char *id)
{
	struct fake_sandbox *b = fake_add(f, PLANTED_S);

	(void)str_copy(b->id, sizeof(b->id), id);
	b->started_at_ms += f->n_sandboxes;
	return b;
}

void fake_end(struct fake_sandbox *b, const char *how)
{
	b->alive = false;
	b->how = how;
	b->died_at_ms = sim->now_ms;
	sim_trace("cloud: %s is no more: %s", b->id, how);
}

void fake_expire(struct fake *f)
{
	for (unsigned i = 0; i < f->n_sandboxes; i++) {
		struct fake_sandbox *b = &f->sandboxes[i];

		if (b->alive && !b->paused && b->end_at_ms <= fake_now(f))
			fake_end(b, "its end came");
	}
}

unsigned fake_alive(const struct fake *f)
{
	unsigned n = 0;

	for (unsigned i = 0; i < f->n_sandboxes; i++)
		n += f->sandboxes[i].alive;
	return n;
}

/* --- answers --- */

const char *fake_agent = "0.6.13";

static struct cloud_sandbox *view(const struct fake_sandbox *b, bool tokens, bool listed)
{
	struct cloud_sandbox *s = calloc(1, sizeof(*s));

	must(s);
	s->id = str_dup(b->id);
	s->template_id = str_dup("base");
	s->envd_version = str_dup(fake_agent);
	if (tokens)
		s->envd_access_token = str_printf("token-%s", b->id);
	s->state = b->paused ? CLOUD_STATE_PAUSED : CLOUD_STATE_RUNNING;
	if (!listed)
		return s;
	s->started_at_ms = b->started_at_ms;
	s->end_at_ms = b->end_at_ms;
	s->cpu_count = 2;
	s->memory_mb = 512;
	for (unsigned i = 0; i < b->n_tags; i++)
		must(!cloud_kvs_add(&s->metadata, b->keys[i], b->values[i]));
	return s;
}

void fake_refuse(struct cloud_result *r, unsigned http, enum ab_reason reason)
{
	r->outcome = CLOUD_REFUSED;
	r->http_status = http;
	status_set(&r->status, reason, "the fake cloud says %u", http);
}

void fake_conflict(struct cloud_result *r)
{
	fake_refuse(r, 409, R_STATE_CHANGING);
	r->conflict = true;
}

static void missing(struct cloud_result *r)
{
	fake_refuse(r, 404, R_SANDBOX_NOT_FOUND);
	r->not_found = true;
}

/* --- what makes --- */

static void tell_made(const struct fake_request *q, struct fake_sandbox *b,
		      const struct fake_sandbox *parent)
{
	if (q->fake->observer)
		q->fake->observer->made(q, b, parent);
}

static void list_later(struct fake *f, struct fake_sandbox *b, uint64_t max_ms)
{
	if (f->faults.slow)
		b->listed_at_ms = sim->now_ms + rng_below(&f->rng, max_ms + 1);
}

static void act_create(struct fake_request *q)
{
	struct fake_sandbox *b = fake_add(q->fake, q->timeout_s);

	for (size_t i = 0; i < q->kvs.n; i++)
		fake_plant_tag(b, q->kvs.v[i].key, q->kvs.v[i].value);
	(void)str_copy(b->env, sizeof(b->env), q->env);
	list_later(q->fake, b, HIDDEN_MAX_MS);
	sim_trace("cloud: %s made for %s", b->id, q->label);
	tell_made(q, b, NULL);
	q->result.sandbox = view(b, true, false);
}

static struct cloud_sandbox *make_child(const struct fake_request *q, const struct fake_sandbox *parent)
{
	struct fake_sandbox *b = fake_add(q->fake, q->timeout_s);

	for (unsigned i = 0; i < parent->n_tags; i++)
		fake_plant_tag(b, parent->keys[i], parent->values[i]);
	(void)str_copy(b->env, sizeof(b->env), parent->env);
	list_later(q->fake, b, HIDDEN_CHILD_MAX_MS);
	sim_trace("cloud: %s forked from %s for %s", b->id, parent->id, q->label);
	tell_made(q, b, parent);
	return view(b, true, false);
}

static bool child_fails(struct fake *f)
{
	bool scripted = f->children_fail > 0;

	f->children_fail -= scripted;
	return happens(f, f->faults.child_fails) || scripted;
}

static void act_fork(struct fake_request *q, const struct fake_sandbox *parent)
{
	struct cloud_children *k = calloc(1, sizeof(*k));

	must(k);
	k->v = calloc(q->count, sizeof(*k->v));
	must(k->v);
	for (; k->n < q->count; k->n++) {
		if (child_fails(q->fake))
			status_set(&k->v[k->n].error, R_CONCURRENCY_LIMIT, "no slot in the fake cloud");
		else
			k->v[k->n].sandbox = make_child(q, parent);
	}
	q->result.children = k;
}

static struct cloud_snapshot *view_snapshot(const struct fake_snapshot *s)
{
	struct cloud_snapshot *v = calloc(1, sizeof(*v));

	must(v);
	v->id = str_dup(s->id);
	must(v->id && (!s->name[0] || !cloud_strs_add(&v->names, s->name)));
	return v;
}

static struct fake_snapshot *find_snapshot(struct fake *f, const char *id)
{
	for (unsigned i = 0; i < f->n_snapshots; i++)
		if (str_eq(f->snapshots[i].id, id))
			return &f->snapshots[i];
	return NULL;
}

static void act_snapshot(struct fake_request *q, const struct fake_sandbox *source)
{
	struct fake *f = q->fake;
	struct fake_snapshot *s;
	char id[sizeof(s->id)];

	/* The same name again is the same snapshot. */
	if (q->name[0])
		snprintf(id, sizeof(id), "team/%.40s:default", q->name);
	else
		snprintf(id, sizeof(id), "snap%u:default", f->n_snapshots);
	s = find_snapshot(f, id);
	if (!s)
		s = &f->snapshots[f->n_snapshots++];
	must(f->n_snapshots < FAKE_SNAPSHOTS);
	*s = (struct fake_snapshot){ .alive = true };
	(void)str_copy(s->id, sizeof(s->id), id);
	(void)str_copy(s->source, sizeof(s->source), source->id);
	(void)str_copy(s->name, sizeof(s->name), q->name);
	sim_trace("cloud: %s of %s", q->label, source->id);
	q->result.snapshot = view_snapshot(s);
}

/* Its copy, or what a checkpoint that fails does. */
static void act_copy(struct fake_request *q, struct fake_sandbox *b)
{
	if (q->what == FAKE_SNAPSHOT && b->paused) {
		missing(&q->result);
	} else if (b->paused || b->busy_until_ms > sim->now_ms) {
		fake_conflict(&q->result);
	} else if (q->fate == FAKE_ERR_AFTER && happens(q->fake, 200)) {
		fake_end(b, "its checkpoint failed");
	} else {
		b->busy_until_ms = MIN(MAX(q->reply_at_ms, sim->now_ms), sim->now_ms + BUSY_MAX_MS);
		if (q->fake->observer)
			q->fake->observer->copies(q);
		if (q->what == FAKE_FORK)
			act_fork(q, b);
		else
			act_snapshot(q, b);
	}
}

/* --- what asks --- */

static bool shown(const struct fake_sandbox *b, uint64_t lag_ms)
{
	uint64_t then = sim->now_ms - MIN(lag_ms, sim->now_ms);

	return !b->hidden && b->listed_at_ms <= then && b->busy_until_ms <= sim->now_ms &&
	       (b->alive || b->died_at_ms > then);
}

static bool matches(const struct fake_sandbox *b, const struct cloud_kvs *want)
{
	for (size_t i = 0; i < want->n; i++) {
		const char *v = fake_tag(b, want->v[i].key);

		if (!v || !str_eq(v, want->v[i].value))
			return false;
	}
	return true;
}

/* Does whoever asked for it read the list that is made now? */
static bool is_read(const struct fake_request *q)
{
	return q->call && (q->fate == FAKE_OK || q->fate == FAKE_TWICE || q->fate == FAKE_HOLD);
}

/*
 * No cloud leaves the same one out again and again: that it is in no list for a minute proves that it is not. Lists that
 * nobody reads do not count, or one of them could show it between three that lack it.
 */
static bool left_out(struct fake_sandbox *b, bool omits, bool read)
{
	bool yes = omits && b->left_out < LEFT_OUT_MAX;

	if (read)
		b->left_out = yes ? b->left_out + 1 : 0;
	return yes;
}

static void act_list(struct fake_request *q)
{
	struct cloud_list *l = calloc(1, sizeof(*l));
	struct fake *f = q->fake;
	uint64_t lag = happens(f, f->faults.list_lag) ? 1 + rng_below(&f->rng, 5000) : 0;
	bool empty = happens(f, f->faults.list_empty), omits = happens(f, f->faults.list_omit);

	must(l);
	l->total_running = -1;
	for (unsigned i = 0; i < f->n_sandboxes && !f->list_empty; i++) {
		struct fake_sandbox *b = &f->sandboxes[i];

		if (shown(b, lag) && matches(b, &q->kvs) &&
		    !left_out(b, empty || (omits && happens(f, 400)), is_read(q)))
			must(!cloud_list_add(l, view(b, false, true)));
	}
	q->result.list = l;
	sim_trace("cloud: a list of %zu%s%s%s", l->n, lag ? ", stale" : "", empty ? ", empty" : "",
		  omits ? ", not complete" : "");
}

/* Newest first. */
static void act_snapshots(struct fake_request *q)
{
	struct cloud_snapshots *l = calloc(1, sizeof(*l));

	must(l);
	for (unsigned i = q->fake->n_snapshots; i--;) {
		const struct fake_snapshot *s = &q->fake->snapshots[i];

		if (s->alive && (!q->id[0] || str_eq(q->id, s->source)) &&
		    (!q->name[0] || str_eq(q->name, s->name)))
			must(!cloud_snapshots_add(l, view_snapshot(s)));
	}
	q->result.snapshots = l;
}

static void add_template(struct cloud_templates *l, const char *id, const char *name)
{
	struct cloud_template *t = calloc(1, sizeof(*t));

	must(t && (t->id = str_dup(id)));
	must(!*name || !cloud_strs_add(&t->names, name));
	must(!cloud_templates_add(l, t));
}

/* As a cloud that takes snapshots for templates too; one is there twice. */
static void act_templates(struct fake_request *q)
{
	struct cloud_templates *l;

	if (q->fake->old_templates && !q->id[0]) {
		missing(&q->result);
		return;
	}
	l = calloc(1, sizeof(*l));
	must(l);
	add_template(l, "rki5dems9wqfm4r03t7g", "base");
	for (unsigned i = 0; i < q->fake->n_snapshots; i++)
		add_template(l, q->fake->snapshots[i].id, q->fake->snapshots[i].name);
	add_template(l, "rki5dems9wqfm4r03t7g", "base");
	add_template(l, "plain", "");
	q->result.templates = l;
}

static void act_metrics(struct fake_request *q)
{
	struct cloud_metrics *m = calloc(1, sizeof(*m));

	must(m);
	m->v = calloc(1, sizeof(*m->v));
	must(m->v);
	m->v[0] = (struct cloud_metric){ .at_ms = fake_now(q->fake), .cpu_count = 2 };
	m->n = 1;
	q->result.metrics = m;
}

/* --- what changes --- */

static void extend_to(const struct fake *f, struct fake_sandbox *b, int64_t end)
{
	b->end_at_ms = f->cap_s ? MIN(end, b->started_at_ms + f->cap_s * 1000ll) : end;
	b->touched_at_ms = sim->now_ms;
}

static void act_pause(struct fake_request *q, struct fake_sandbox *b)
{
	if (b->paused)
		fake_conflict(&q->result);
	else
		extend_to(q->fake, b, fake_now(q->fake));
	b->paused = true;
}

static void act_connect(struct fake_request *q, struct fake_sandbox *b)
{
	int64_t end = fake_now(q->fake) + q->timeout_s * 1000ll;
	bool resumed = b->paused;

	extend_to(q->fake, b, b->paused ? end : MAX(b->end_at_ms, end));
	b->paused = false;
	q->result.sandbox = view(b, true, false);
	q->result.sandbox->resumed = resumed;
}

/* Only a running one has an end that can be moved. */
static void act_time(struct fake_request *q, struct fake_sandbox *b)
{
	int64_t now = fake_now(q->fake);

	if (b->paused)
		missing(&q->result);
	else if (q->what == FAKE_REFRESH)
		extend_to(q->fake, b, MAX(b->end_at_ms, now + MAX(q->timeout_s, 15u) * 1000ll));
	else
		extend_to(q->fake, b, now + q->timeout_s * 1000ll);
}

/* What is to be deleted is not there: as good as done. */
static void gone_already(struct cloud_result *r)
{
	r->http_status = 404;
	r->not_found = true;
}

static void act_snapshot_delete(struct fake_request *q)
{
	struct fake_snapshot *s = find_snapshot(q->fake, q->id);

	if (s && s->alive)
		s->alive = false;
	else
		gone_already(&q->result);
}

static void act_kill(struct fake_request *q, struct fake_sandbox *b)
{
	if (b) {
		fake_end(b, "deleted");
		b->deletes++;
	} else {
		gone_already(&q->result);
	}
}

static void act_on(struct fake_request *q, struct fake_sandbox *b)
{
	switch (q->what) {
	case FAKE_GET:
		q->result.sandbox = view(b, true, true);
		q->result.sandbox->is_detail = true;
		break;
	case FAKE_PAUSE:
		act_pause(q, b);
		break;
	case FAKE_REFRESH:
	case FAKE_TIMEOUT:
		act_time(q, b);
		break;
	case FAKE_CONNECT:
		act_connect(q, b);
		break;
	case FAKE_FORK:
	case FAKE_SNAPSHOT:
		act_copy(q, b);
		break;
	case FAKE_NETWORK:
		if (b->paused)
			missing(&q->result);
		break;
	default:
		act_metrics(q);
		break;
	}
}

void fake_act(struct fake_request *q)
{
	struct fake_sandbox *b;

	fake_expire(q->fake);
	b = fake_find(q->fake, q->id);
	q->acted = true;
	q->result.outcome = CLOUD_DONE;
	q->result.http_status = 200;
	q->result.date_ms = fake_now(q->fake) / 1000 * 1000;
	if (q->what == FAKE_CREATE)
		act_create(q);
	else if (q->what == FAKE_LIST)
		act_list(q);
	else if (q->what == FAKE_SNAPSHOTS_LIST)
		act_snapshots(q);
	else if (q->what == FAKE_TEMPLATES)
		act_templates(q);
	else if (q->what == FAKE_SNAPSHOT_DELETE)
		act_snapshot_delete(q);
	else if (q->what == FAKE_KILL)
		act_kill(q, b);
	else if (b)
		act_on(q, b);
	else
		missing(&q->result);
}
