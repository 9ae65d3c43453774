/* SPDX-License-Identifier: MIT */
#include "tests/unit/sandbox/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/cloud/cloud.h"
#include "daemon/common/ev/loop.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

enum what {
	W_CREATE, W_GET, W_LIST, W_KILL, W_CONNECT, W_TIMEOUT, W_REFRESH, W_PAUSE, W_NETWORK, W_FORK, W_METRICS,
	W_SNAPSHOT, W_SNAPSHOTS, W_SNAPSHOT_DELETE,
};

struct cloud {
	struct fake *f;
	struct loop *loop;
	struct list calls;
	bool release;
	uint64_t failed_at_ms;
};

struct cloud_call {
	struct cloud *c;
	struct list node;
	struct timer timer;
	struct grave grave;
	enum what what;
	char id[64];
	uint32_t timeout_s, count;
	char name[64];
	struct cloud_kvs metadata;	/* create: the tags; list: the filter */
	cloud_done_fn *done;
	void *user;
	uint64_t deadline_ms;
	bool acted, held, abandoned;
	unsigned sandbox;
};

struct fake *fake_new(void)
{
	struct fake *f = mmap(NULL, sizeof(*f), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	must(f != MAP_FAILED);
	return f;
}

void fake_free(struct fake *f)
{
	munmap(f, sizeof(*f));
}

struct cloud *fake_cloud(struct fake *f, struct loop *loop)
{
	struct cloud *c = calloc(1, sizeof(*c));

	must(c);
	c->f = f;
	c->loop = loop;
	list_init(&c->calls);
	return c;
}

void fake_cloud_free(struct cloud *c)
{
	must(list_is_empty(&c->calls));
	free(c);
}

struct fake_sandbox *fake_find(struct fake *f, const char *id)
{
	for (unsigned i = 0; i < f->n_sandboxes; i++)
		if (str_eq(f->sandboxes[i].id, id) && f->sandboxes[i].alive)
			return &f->sandboxes[i];
	return NULL;
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
	must(b->n_tags < FAKE_TAGS);
	(void)str_copy(b->keys[b->n_tags], sizeof(b->keys[0]), key);
	(void)str_copy(b->values[b->n_tags++], sizeof(b->values[0]), value);
}

struct fake_sandbox *fake_plant(struct fake *f, const char *id)
{
	struct fake_sandbox *b = &f->sandboxes[f->n_sandboxes++];

	must(f->n_sandboxes <= FAKE_BOXES);
	*b = (struct fake_sandbox){ .alive = true };
	(void)str_copy(b->id, sizeof(b->id), id);
	b->started_at_ms = clock_wall_ms() + f->n_sandboxes;
	b->end_at_ms = b->started_at_ms + 300000;
	return b;
}

unsigned fake_alive(const struct fake *f)
{
	unsigned n = 0;

	for (unsigned i = 0; i < f->n_sandboxes; i++)
		n += f->sandboxes[i].alive;
	return n;
}

/* --- answers --- */

static struct cloud_sandbox *model_of(const struct fake_sandbox *b, bool tokens, bool listed)
{
	struct cloud_sandbox *s = calloc(1, sizeof(*s));

	must(s);
	s->id = str_dup(b->id);
	s->template_id = str_dup("base");
	s->envd_version = str_dup("0.6.13");
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

static bool matches(const struct fake_sandbox *b, const struct cloud_kvs *want)
{
	for (size_t i = 0; i < want->n; i++) {
		const char *v = fake_tag(b, want->v[i].key);

		if (!v || !str_eq(v, want->v[i].value))
			return false;
	}
	return true;
}

static struct cloud_list *list_of(struct fake *f, const struct cloud_kvs *want)
{
	struct cloud_list *l = calloc(1, sizeof(*l));

	must(l);
	l->v = calloc(FAKE_BOXES, sizeof(struct cloud_sandbox *));
	must(l->v);
	for (unsigned i = 0; i < f->n_sandboxes && !f->list_empty; i++)
		if (f->sandboxes[i].alive && !f->sandboxes[i].hidden && matches(&f->sandboxes[i], want))
			l->v[l->n++] = model_of(&f->sandboxes[i], false, true);
	return l;
}

static void unreachable(struct cloud_result *r, enum cloud_outcome outcome)
{
	r->outcome = outcome;
	status_set(&r->status, R_UNREACHABLE, "the fake cloud does not answer");
}

static void missing(struct cloud_result *r)
{
	r->outcome = CLOUD_REFUSED;
	r->http_status = 404;
	r->not_found = true;
	status_set(&r->status, R_SANDBOX_NOT_FOUND, "404");
}

static void act_create(struct cloud_call *k, enum fake_create how)
{
	struct fake *f = k->c->f;
	struct fake_sandbox *b;
	char id[24];

	f->posts++;
	k->acted = true;
	if (how == FAKE_LOSE || how == FAKE_UNSENT || how == FAKE_REFUSE)
		return;
	snprintf(id, sizeof(id), "i%020u", f->n_sandboxes);
	k->sandbox = f->n_sandboxes;
	b = fake_plant(f, id);
	b->end_at_ms = b->started_at_ms + (f->cap_s ? MIN(k->timeout_s, f->cap_s) : k->timeout_s) * 1000ll;
	for (size_t i = 0; i < k->metadata.n; i++)
		fake_plant_tag(b, k->metadata.v[i].key, k->metadata.v[i].value);
}

static bool answer_create(struct cloud_call *k, struct cloud_result *r)
{
	struct fake *f = k->c->f;
	enum fake_create how = FAKE_ACCEPT;

	if (k->abandoned && !k->acted) {
		unreachable(r, CLOUD_UNSENT);
		return true;
	}
	if (!k->acted) {
		if (f->create_n) {
			f->create_n--;
			how = f->create;
		}
		act_create(k, how);
	}
	switch (how) {
	case FAKE_HOLD:
		k->held = true;
		return false;
	case FAKE_ACCEPT_LOSE:
	case FAKE_LOSE:
		unreachable(r, CLOUD_UNKNOWN);
		return true;
	case FAKE_UNSENT:
		unreachable(r, CLOUD_UNSENT);
		return true;
	case FAKE_REFUSE:
		r->outcome = CLOUD_REFUSED;
		r->http_status = 400;
		status_set(&r->status, R_CLOUD_REFUSED, "400: no");
		return true;
	case FAKE_ACCEPT:
		break;
	}
	r->outcome = CLOUD_DONE;
	r->sandbox = model_of(&f->sandboxes[k->sandbox], true, false);
	return true;
}

static void answer_kill(struct fake *f, const char *id, struct cloud_result *r)
{
	struct fake_sandbox *b = fake_find(f, id);

	f->kills++;
	r->outcome = CLOUD_DONE;
	r->not_found = !b;
	if (b) {
		b->alive = false;
		b->deletes++;
	}
	if (f->kill_fails) {
		f->kill_fails--;
		r->not_found = false;
		unreachable(r, CLOUD_UNKNOWN);
	}
}

static void answer_refresh(struct cloud_call *k, struct cloud_result *r)
{
	struct fake *f = k->c->f;
	struct fake_sandbox *b = fake_find(f, k->id);
	int64_t end = clock_wall_ms() + MAX(k->timeout_s, 15u) * 1000ll;

	f->refreshes++;
	r->date_ms = clock_wall_ms();
	if (f->refresh_fails) {
		f->refresh_fails--;
		unreachable(r, CLOUD_UNKNOWN);
		return;
	}
	if (!b || b->paused) {
		missing(r);
		return;
	}
	r->outcome = CLOUD_DONE;
	if (f->cap_s)
		end = MIN(end, b->started_at_ms + f->cap_s * 1000ll);
	b->end_at_ms = MAX(b->end_at_ms, end);
}

static bool conflicts(struct fake *f, struct cloud_result *r)
{
	if (!f->conflicts)
		return false;
	f->conflicts--;
	r->outcome = CLOUD_REFUSED;
	r->http_status = 409;
	r->conflict = true;
	status_set(&r->status, R_STATE_CHANGING, "409");
	return true;
}

static void answer_change(struct cloud_call *k, struct cloud_result *r)
{
	struct fake *f = k->c->f;
	struct fake_sandbox *b = fake_find(f, k->id);
	int64_t end = clock_wall_ms() + k->timeout_s * 1000ll;

	if (k->what == W_CONNECT)
		f->connects++;
	else
		f->timeouts++;
	if (!b || (k->what == W_TIMEOUT && b->paused)) {
		missing(r);
		return;
	}
	if (conflicts(f, r))
		return;
	r->outcome = CLOUD_DONE;
	r->date_ms = clock_wall_ms();
	if (f->cap_s)
		end = MIN(end, clock_wall_ms() + f->cap_s * 1000ll);
	b->end_at_ms = k->what == W_CONNECT ? MAX(b->end_at_ms, end) : end;
	b->paused = false;
	if (k->what == W_CONNECT)
		r->sandbox = model_of(b, true, false);
}

static void paused_already(struct cloud_result *r)
{
	r->outcome = CLOUD_REFUSED;
	r->http_status = 409;
	r->conflict = true;
	status_set(&r->status, R_STATE_CHANGING, "409: paused already");
}

static void answer_pause(struct fake *f, const char *id, struct cloud_result *r)
{
	struct fake_sandbox *b = fake_find(f, id);

	f->pauses++;
	if (!b) {
		missing(r);
	} else if (b->paused) {
		paused_already(r);
	} else if (!conflicts(f, r)) {
		b->paused = true;
		r->outcome = CLOUD_DONE;
	}
}

static struct fake_sandbox *fork_one(struct fake *f, const struct fake_sandbox *parent,
				     uint32_t timeout_s)
{
	struct fake_sandbox copy = *parent, *b;
	char id[24];

	snprintf(id, sizeof(id), "i%020u", f->n_sandboxes);
	b = fake_plant(f, id);
	memcpy(b->keys, copy.keys, sizeof(b->keys));
	memcpy(b->values, copy.values, sizeof(b->values));
	b->n_tags = copy.n_tags;
	b->end_at_ms = b->started_at_ms + timeout_s * 1000ll;
	return b;
}

static bool lost(enum fake_create how, struct cloud_result *r)
{
	switch (how) {
	case FAKE_ACCEPT_LOSE:
	case FAKE_LOSE:
		unreachable(r, CLOUD_UNKNOWN);
		return true;
	case FAKE_UNSENT:
		unreachable(r, CLOUD_UNSENT);
		return true;
	case FAKE_REFUSE:
		r->outcome = CLOUD_REFUSED;
		r->http_status = 400;
		status_set(&r->status, R_CLOUD_REFUSED, "400: no");
		return true;
	default:
		return false;
	}
}

static void answer_fork(struct cloud_call *k, struct cloud_result *r)
{
	struct fake *f = k->c->f;
	struct fake_sandbox *b = fake_find(f, k->id);
	enum fake_create how = FAKE_ACCEPT;
	struct cloud_children *c;

	f->forks++;
	if (!b) {
		missing(r);
		return;
	}
	if (b->paused || conflicts(f, r)) {
		if (b->paused)
			paused_already(r);
		return;
	}
	if (f->copy_n) {
		f->copy_n--;
		how = f->copy;
	}
	c = calloc(1, sizeof(*c));
	must(c);
	c->v = calloc(k->count, sizeof(*c->v));
	must(c->v);
	for (; c->n < k->count && (how == FAKE_ACCEPT || how == FAKE_ACCEPT_LOSE); c->n++) {
		if (f->children_fail) {
			f->children_fail--;
			status_set(&c->v[c->n].error, R_CONCURRENCY_LIMIT, "429: full");
			continue;
		}
		b = fork_one(f, fake_find(f, k->id), k->timeout_s);
		c->v[c->n].sandbox = model_of(b, true, false);
	}
	if (lost(how, r)) {
		cloud_children_free(c);
		return;
	}
	r->outcome = CLOUD_DONE;
	r->children = c;
}

static struct cloud_snapshot *snapshot_of(const struct fake_snapshot *s)
{
	struct cloud_snapshot *c = calloc(1, sizeof(*c));

	must(c);
	c->id = str_dup(s->id);
	return c;
}

static void answer_snapshot(struct cloud_call *k, struct cloud_result *r)
{
	struct fake *f = k->c->f;
	struct fake_sandbox *b = fake_find(f, k->id);
	enum fake_create how = FAKE_ACCEPT;
	struct fake_snapshot *s = &f->snapshots[f->n_snapshots];

	if (!b || b->paused) {
		missing(r);
		return;
	}
	if (conflicts(f, r))
		return;
	if (f->copy_n) {
		f->copy_n--;
		how = f->copy;
	}
	if (how == FAKE_ACCEPT || how == FAKE_ACCEPT_LOSE) {
		must(f->n_snapshots < FAKE_SNAPSHOTS);
		snprintf(s->id, sizeof(s->id), "snap%u:default", f->n_snapshots++);
		(void)str_copy(s->source, sizeof(s->source), k->id);
		s->there = true;
	}
	if (lost(how, r))
		return;
	r->outcome = CLOUD_DONE;
	r->snapshot = snapshot_of(s);
}

static void answer_snapshots(struct cloud_call *k, struct cloud_result *r)
{
	struct fake *f = k->c->f;

	r->outcome = CLOUD_DONE;
	r->date_ms = clock_wall_ms();
	r->snapshots = calloc(1, sizeof(*r->snapshots));
	must(r->snapshots);
	r->snapshots->v = calloc(FAKE_SNAPSHOTS, sizeof(struct cloud_snapshot *));
	must(r->snapshots->v);
	for (unsigned i = f->n_snapshots; i-- > 0;)
		if (f->snapshots[i].there && (!k->id[0] || str_eq(k->id, f->snapshots[i].source)))
			r->snapshots->v[r->snapshots->n++] = snapshot_of(&f->snapshots[i]);
}

static void answer_snapshot_delete(struct cloud_call *k, struct cloud_result *r)
{
	struct fake *f = k->c->f;

	r->outcome = CLOUD_DONE;
	r->not_found = true;
	for (unsigned i = 0; i < f->n_snapshots; i++)
		if (f->snapshots[i].there && str_eq(f->snapshots[i].id, k->name)) {
			f->snapshots[i].there = false;
			r->not_found = false;
		}
}

static void answer_network(struct fake *f, const char *id, struct cloud_result *r)
{
	struct fake_sandbox *b = fake_find(f, id);

	f->networks++;
	if (!b || b->paused)
		missing(r);
	else if (!conflicts(f, r))
		r->outcome = CLOUD_DONE;
}

static void answer_metrics(struct fake *f, struct cloud_result *r)
{
	f->metrics++;
	r->outcome = CLOUD_DONE;
	r->metrics = calloc(1, sizeof(*r->metrics));
	must(r->metrics);
	r->metrics->v = calloc(1, sizeof(*r->metrics->v));
	must(r->metrics->v);
	r->metrics->v[0] = (struct cloud_metric){ .at_ms = clock_wall_ms(), .cpu_count = 2 };
	r->metrics->n = 1;
}

/* False: no answer yet. */
static bool answer(struct cloud_call *k, struct cloud_result *r)
{
	struct fake *f = k->c->f;
	struct fake_sandbox *b;

	if (k->what == W_CREATE)
		return answer_create(k, r);
	switch (k->what) {
	case W_GET:
		r->date_ms = clock_wall_ms();
		f->gets++;
		b = fake_find(f, k->id);
		if (b) {
			r->outcome = CLOUD_DONE;
			r->sandbox = model_of(b, true, true);
		} else {
			missing(r);
		}
		break;
	case W_LIST:
		f->lists++;
		r->outcome = CLOUD_DONE;
		r->list = list_of(f, &k->metadata);
		break;
	case W_KILL:
		answer_kill(f, k->id, r);
		break;
	case W_REFRESH:
		answer_refresh(k, r);
		break;
	case W_PAUSE:
		answer_pause(f, k->id, r);
		break;
	case W_NETWORK:
		answer_network(f, k->id, r);
		break;
	case W_FORK:
		answer_fork(k, r);
		break;
	case W_METRICS:
		answer_metrics(f, r);
		break;
	case W_SNAPSHOT:
		answer_snapshot(k, r);
		break;
	case W_SNAPSHOTS:
		answer_snapshots(k, r);
		break;
	case W_SNAPSHOT_DELETE:
		answer_snapshot_delete(k, r);
		break;
	default:
		answer_change(k, r);
		break;
	}
	return true;
}

static void call_free(void *p)
{
	struct cloud_call *k = p;

	cloud_kvs_fini(&k->metadata);
	free(k);
}

static void drop(struct cloud_call *k)
{
	timer_clear(&k->timer);
	list_del(&k->node);
	loop_bury(k->c->loop, &k->grave, call_free, k);
}

static void on_timer(struct timer *t, void *user)
{
	struct cloud_call *k = user;
	struct cloud_result r = { 0 };

	if (k->c->f->down && !(k->abandoned && !k->acted)) {
		/* As the real one: it tries again until its deadline. */
		k->c->failed_at_ms = clock_boot_ms();
		if (!k->deadline_ms || clock_boot_ms() + 10 < k->deadline_ms) {
			must(!timer_set(&k->timer, clock_boot_ms() + 10));
			return;
		}
		unreachable(&r, k->what == W_CREATE ? CLOUD_UNSENT : CLOUD_UNKNOWN);
	} else if (k->held ? !k->c->release : !answer(k, &r)) {
		must(!timer_set(&k->timer, clock_boot_ms() + 10));
		return;
	} else if (k->held) {
		r.outcome = CLOUD_DONE;
		r.sandbox = model_of(&k->c->f->sandboxes[k->sandbox], true, false);
	}
	drop(k);
	k->done(&r, k->user);
	cloud_sandbox_free(r.sandbox);
	cloud_list_free(r.list);
	cloud_children_free(r.children);
	cloud_metrics_free(r.metrics);
	cloud_snapshot_free(r.snapshot);
	cloud_snapshots_free(r.snapshots);
}

void fake_release(struct cloud *c)
{
	c->release = true;
}

/* --- cloud.h --- */

static struct cloud_call *call_new(struct cloud *c, enum what what, const char *id,
				   const struct cloud_ask *ask)
{
	struct cloud_call *k = calloc(1, sizeof(*k));

	must(k);
	k->c = c;
	k->what = what;
	(void)str_copy(k->id, sizeof(k->id), id);
	k->done = ask->done;
	k->user = ask->user;
	k->deadline_ms = ask->deadline_ms;
	list_add_tail(&c->calls, &k->node);
	timer_init(&k->timer, c->loop, on_timer, k);
	must(!timer_set(&k->timer, clock_boot_ms()));
	return k;
}

void cloud_call_cancel(struct cloud_call *k)
{
	if (k)
		drop(k);
}

void cloud_call_abandon(struct cloud_call *k)
{
	k->abandoned = true;
}

bool cloud_call_was_sent(const struct cloud_call *k)
{
	return k->acted;
}

struct cloud_call *cloud_create(struct cloud *c, const struct cloud_create *what,
				const struct cloud_ask *ask)
{
	struct cloud_call *k = call_new(c, W_CREATE, "", ask);

	k->timeout_s = what->timeout_s;
	for (size_t i = 0; i < what->n_metadata; i++)
		must(!cloud_kvs_add(&k->metadata, what->metadata[i].key, what->metadata[i].value));
	return k;
}

struct cloud_call *cloud_get(struct cloud *c, const char *id, const struct cloud_ask *ask)
{
	return call_new(c, W_GET, id, ask);
}

struct cloud_call *cloud_kill(struct cloud *c, const char *id, const struct cloud_ask *ask)
{
	return call_new(c, W_KILL, id, ask);
}

struct cloud_call *cloud_connect(struct cloud *c, const char *id, uint32_t timeout_s,
				 const struct cloud_ask *ask)
{
	struct cloud_call *k = call_new(c, W_CONNECT, id, ask);

	k->timeout_s = timeout_s;
	return k;
}

struct cloud_call *cloud_set_timeout(struct cloud *c, const char *id, uint32_t timeout_s,
				     const struct cloud_ask *ask)
{
	struct cloud_call *k = call_new(c, W_TIMEOUT, id, ask);

	k->timeout_s = timeout_s;
	return k;
}

struct cloud_call *cloud_refresh(struct cloud *c, const char *id, uint32_t for_s, const struct cloud_ask *ask)
{
	struct cloud_call *k = call_new(c, W_REFRESH, id, ask);

	k->timeout_s = for_s;
	return k;
}

struct cloud_call *cloud_pause(struct cloud *c, const char *id, bool keep_memory, const struct cloud_ask *ask)
{
	return call_new(c, W_PAUSE, id, ask);
}

struct cloud_call *cloud_list_all(struct cloud *c, const struct cloud_filter *f,
				  const struct cloud_ask *ask)
{
	struct cloud_call *k = call_new(c, W_LIST, "", ask);

	for (size_t i = 0; i < f->n_metadata; i++)
		must(!cloud_kvs_add(&k->metadata, f->metadata[i].key, f->metadata[i].value));
	return k;
}

struct cloud_call *cloud_put_network(struct cloud *c, const char *id, const struct cloud_network *network,
				     enum tri allow_internet_access, const struct cloud_ask *ask)
{
	return call_new(c, W_NETWORK, id, ask);
}

struct cloud_call *cloud_fork(struct cloud *c, const char *id, uint32_t count, uint32_t timeout_s,
			      const struct cloud_ask *ask)
{
	struct cloud_call *k = call_new(c, W_FORK, id, ask);

	k->count = count;
	k->timeout_s = timeout_s;
	return k;
}

struct cloud_call *cloud_metrics(struct cloud *c, const char *id, int64_t start_s, int64_t end_s,
				 const struct cloud_ask *ask)
{
	return call_new(c, W_METRICS, id, ask);
}

struct cloud_call *cloud_snapshot(struct cloud *c, const char *id, const char *name,
				  const struct cloud_ask *ask)
{
	return call_new(c, W_SNAPSHOT, id, ask);
}

struct cloud_call *cloud_snapshots(struct cloud *c, const char *sandbox, const char *name,
				   const struct cloud_ask *ask)
{
	return call_new(c, W_SNAPSHOTS, sandbox ? sandbox : "", ask);
}

struct cloud_call *cloud_snapshot_delete(struct cloud *c, const char *snapshot, const struct cloud_ask *ask)
{
	struct cloud_call *k = call_new(c, W_SNAPSHOT_DELETE, "", ask);

	(void)str_copy(k->name, sizeof(k->name), snapshot);
	return k;
}

char *cloud_port_host(const struct cloud *c, const char *sandbox_id, uint16_t port, const char *domain)
{
	return str_printf("%u-%s.%s", port, sandbox_id, domain ? domain : "fake.test");
}

const char *cloud_traffic_header(const struct cloud *c)
{
	return "e2b-traffic-access-token";
}

void cloud_health(const struct cloud *c, struct cloud_health *ret)
{
	*ret = (struct cloud_health){ .last_failure_at_ms = c->failed_at_ms };
	if (c->failed_at_ms)
		status_set(&ret->last_failure, R_UNREACHABLE, "the fake cloud does not answer");
}
