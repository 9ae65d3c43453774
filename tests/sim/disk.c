/* SPDX-License-Identifier: MIT */
/*
 * The store of a simulated host: tables of rows with the same promises as the real one. A commit is
 * under way for a moment (commits of the same moment share it), then in the file, then, if it was
 * durable, on the disk together with all before it. A crash keeps what its kind keeps.
 */
#include "daemon/store/store.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/must.h"
#include "proto/base/str.h"
#include "tests/sim/sim.h"

#define SEQ_BLOCK 1000u

enum table_id { T_SANDBOX, T_INTENT, T_REQUEST, T_NAME, T_LEASE, T_EVENT, T_COPY, T_SNAPSHOT, T_N };

union row {
	struct row_sandbox sandbox;
	struct row_intent intent;
	struct row_request request;
	struct row_name name;
	struct row_lease lease;
	struct row_event event;
	struct row_copy copy;
	struct row_snapshot snapshot;
};

#define S(type, field) offsetof(struct row_##type, field)
static const size_t texts[T_N][15] = {
	[T_SANDBOX] = { S(sandbox, account), S(sandbox, id), S(sandbox, name), S(sandbox, req_tag),
			S(sandbox, template_id), S(sandbox, alias), S(sandbox, envd_version),
			S(sandbox, domain), S(sandbox, access_token), S(sandbox, traffic_token),
			S(sandbox, policy), S(sandbox, warning), S(sandbox, gone_evidence),
			S(sandbox, network), S(sandbox, replaces) },
	[T_INTENT] = { S(intent, account), S(intent, request_id), S(intent, req_tag), S(intent, name),
		       S(intent, template_id), S(intent, policy), S(intent, replaces) },
	[T_REQUEST] = { S(request, method), S(request, request_id), S(request, account),
			S(request, object), S(request, req_tag) },
	[T_NAME] = { S(name, name), S(name, account), S(name, id) },
	[T_LEASE] = { S(lease, id), S(lease, account), S(lease, sandbox), S(lease, label),
		      S(lease, boot_id) },
	[T_EVENT] = { S(event, account), S(event, sandbox), S(event, name), S(event, evidence) },
	[T_COPY] = { S(copy, account), S(copy, request_id), S(copy, source), S(copy, name), S(copy, policy),
		     S(copy, known) },
	[T_SNAPSHOT] = { S(snapshot, account), S(snapshot, id), S(snapshot, names), S(snapshot, source) },
};
static const unsigned n_texts[T_N] = { 15, 7, 5, 3, 5, 4, 6, 4 };
static const size_t sizes[T_N] = { sizeof(struct row_sandbox), sizeof(struct row_intent),
				   sizeof(struct row_request), sizeof(struct row_name),
				   sizeof(struct row_lease), sizeof(struct row_event),
				   sizeof(struct row_copy), sizeof(struct row_snapshot) };

struct change {
	enum table_id table;
	bool del, del_events;
	union row row;
};

struct store_tx {
	struct list node;
	struct store *store;
	struct change *v;
	size_t n;
	bool durable, fails, sure;
	store_done_fn *done;
	void *user;
};

struct store {
	struct list queued;	/* handed over, not written */
	bool timer_on, muted;
	uint64_t next, reserved;
	struct status health;
	unsigned run;
	enum store_doubt doubt;		/* at its start */
};

struct table {
	union row **v;
	size_t n, max;
};

static struct table disk[T_N];
static struct list unsynced;	/* in the file, in order; not yet on the disk */
static uint64_t host_seq;
static enum store_doubt doubt;
static char host[24];

static const char **text_at(union row *r, size_t off)
{
	return (const char **)(void *)((char *)r + off);
}

static const char *block_copy(const char *p, size_t n)
{
	char *copy = NULL;

	if (n) {
		copy = malloc(n);
		must(copy);
		memcpy(copy, p, n);
	}
	return copy;
}

static void row_copy(enum table_id t, union row *to, const void *from)
{
	memset(to, 0, sizeof(*to));
	memcpy(to, from, sizes[t]);
	for (unsigned i = 0; i < n_texts[t]; i++) {
		const char **s = text_at(to, texts[t][i]);

		*s = str_dup(*s ? *s : "");
		must(*s);
	}
	if (t == T_SANDBOX) {
		to->sandbox.metadata = block_copy(to->sandbox.metadata, to->sandbox.metadata_len);
		to->sandbox.recipe = block_copy(to->sandbox.recipe, to->sandbox.recipe_len);
	} else if (t == T_INTENT) {
		to->intent.recipe = block_copy(to->intent.recipe, to->intent.recipe_len);
	}
}

static void row_fini(enum table_id t, union row *r)
{
	for (unsigned i = 0; i < n_texts[t]; i++)
		free((char *)*text_at(r, texts[t][i]));
	if (t == T_SANDBOX) {
		free((char *)r->sandbox.metadata);
		free((char *)r->sandbox.recipe);
	} else if (t == T_INTENT) {
		free((char *)r->intent.recipe);
	}
}

static bool same_key(enum table_id t, const union row *a, const union row *b)
{
	switch (t) {
	case T_SANDBOX:
		return str_eq(a->sandbox.id, b->sandbox.id) && str_eq(a->sandbox.account, b->sandbox.account);
	case T_INTENT:
		return a->intent.seq == b->intent.seq;
	case T_REQUEST:
		return a->request.uid == b->request.uid && str_eq(a->request.method, b->request.method) &&
		       str_eq(a->request.request_id, b->request.request_id);
	case T_NAME:
		return a->name.uid == b->name.uid && str_eq(a->name.name, b->name.name);
	case T_LEASE:
		return str_eq(a->lease.id, b->lease.id);
	case T_COPY:
		return a->copy.seq == b->copy.seq;
	case T_SNAPSHOT:
		return str_eq(a->snapshot.id, b->snapshot.id) &&
		       str_eq(a->snapshot.account, b->snapshot.account);
	default:
		return a->event.number == b->event.number;
	}
}

static void table_del(struct table *x, enum table_id t, size_t i)
{
	row_fini(t, x->v[i]);
	free(x->v[i]);
	memmove(x->v + i, x->v + i + 1, (--x->n - i) * sizeof(*x->v));
}

static void table_add(struct table *x, const union row *r)
{
	if (x->n == x->max) {
		x->max = x->max * 2 + 16;
		x->v = realloc(x->v, x->max * sizeof(*x->v));
		must(x->v);
	}
	x->v[x->n] = malloc(sizeof(**x->v));
	must(x->v[x->n]);
	*x->v[x->n++] = *r;
}

static size_t table_find(const struct table *x, enum table_id t, const union row *key)
{
	size_t i = 0;

	if (t == T_EVENT && x->n && key->event.number > x->v[x->n - 1]->event.number)
		return x->n;
	while (i < x->n && !same_key(t, x->v[i], key))
		i++;
	return i;
}

/* Takes the row over. */
static void apply(struct change *c)
{
	struct table *x = &disk[c->table];
	size_t i;

	if (c->del_events) {
		for (i = x->n; i--;)
			if (x->v[i]->event.uid == c->row.event.uid && x->v[i]->event.seq <= c->row.event.seq)
				table_del(x, c->table, i);
		row_fini(c->table, &c->row);
		return;
	}
	i = table_find(x, c->table, &c->row);
	if (c->del) {
		if (i < x->n)
			table_del(x, c->table, i);
		row_fini(c->table, &c->row);
	} else if (i < x->n) {
		row_fini(c->table, x->v[i]);
		*x->v[i] = c->row;
	} else {
		table_add(x, &c->row);
	}
}

static void tx_free(struct store_tx *t, bool rows)
{
	for (size_t i = 0; rows && i < t->n; i++)
		row_fini(t->v[i].table, &t->v[i].row);
	list_del(&t->node);
	free(t->v);
	free(t);
}

static void sync_one(struct store_tx *t)
{
	for (size_t i = 0; i < t->n; i++)
		apply(&t->v[i]);
	if (t->sure)
		doubt = STORE_SURE;
	tx_free(t, false);
}

static void sync_all(void)
{
	while (!list_is_empty(&unsynced))
		sync_one(list_entry(unsynced.next, struct store_tx, node));
}

/* --- writing --- */

static void write_batch(struct store *s)
{
	bool durable = false;
	struct list done;

	list_take(&done, &s->queued);
	list_for_each_safe(n, &done) {
		struct store_tx *t = list_entry(n, struct store_tx, node);
		struct store_tx *copy;

		if (t->fails)
			continue;
		copy = malloc(sizeof(*copy));
		must(copy);
		*copy = *t;
		t->v = NULL;
		t->n = 0;
		durable |= t->durable;
		list_add_tail(&unsynced, &copy->node);
	}
	if (durable)
		sync_all();
	while (!list_is_empty(&done)) {
		struct store_tx *t = list_entry(done.next, struct store_tx, node);
		struct status st = STATUS_OK;

		if (t->fails)
			status_set(&st, R_STORE_FULL, "no space left on the simulated disk");
		if (!sim_seam("store.done") && !s->muted) {
			s->health = st;
			if (t->done)
				t->done(t->user, &st);
		}
		tx_free(t, true);
	}
}

struct evaluation {
	unsigned run;
};

static void on_due(void *arg)
{
	struct evaluation *d = arg;
	struct store *s = W->store;

	if (s && s->run == d->run && s->timer_on) {
		s->timer_on = false;
		if (!sim_seam("store.write"))
			write_batch(s);
	}
	free(d);
}

void store_tx_commit(struct store_tx *t, bool durable, store_done_fn *done, void *user)
{
	struct store *s = t->store;
	struct evaluation *d;

	if (sim_seam("store.commit")) {
		tx_free(t, true);
		return;
	}
	t->durable = durable;
	t->done = done;
	t->user = user;
	t->fails = sim_chance(&W->fake->rng, W->faults.store_fails);
	W->store_failed |= t->fails;
	list_add_tail(&s->queued, &t->node);
	if (s->timer_on)
		return;
	s->timer_on = true;
	d = malloc(sizeof(*d));
	must(d);
	d->run = s->run;
	sim_at(sim->now_ms + sim_between(&W->fake->rng, 0, 4), on_due, d);
}

/* --- store.h --- */

int store_tx_new(struct store *s, struct store_tx **ret)
{
	struct store_tx *t = calloc(1, sizeof(*t));

	must(t);
	t->store = s;
	list_init(&t->node);
	*ret = t;
	return 0;
}

void store_tx_drop(struct store_tx *t)
{
	if (t)
		tx_free(t, true);
}

static struct change *add(struct store_tx *t, enum table_id table, const void *row)
{
	t->v = realloc(t->v, (t->n + 1) * sizeof(*t->v));
	must(t->v);
	t->v[t->n] = (struct change){ .table = table };
	row_copy(table, &t->v[t->n].row, row);
	return &t->v[t->n++];
}

void store_tx_put_sandbox(struct store_tx *t, const struct row_sandbox *r)
{
	add(t, T_SANDBOX, r);
}

void store_tx_del_sandbox(struct store_tx *t, const char *account, const char *id)
{
	add(t, T_SANDBOX, &(struct row_sandbox){ .account = account, .id = id })->del = true;
}

void store_tx_put_intent(struct store_tx *t, const struct row_intent *r)
{
	add(t, T_INTENT, r);
}

void store_tx_del_intent(struct store_tx *t, uint64_t seq)
{
	add(t, T_INTENT, &(struct row_intent){ .seq = seq })->del = true;
}

void store_tx_put_request(struct store_tx *t, const struct row_request *r)
{
	add(t, T_REQUEST, r);
}

void store_tx_del_request(struct store_tx *t, uid_t uid, const char *method, const char *request_id)
{
	struct row_request r = { .uid = uid, .method = method, .request_id = request_id };

	add(t, T_REQUEST, &r)->del = true;
}

void store_tx_put_name(struct store_tx *t, const struct row_name *r)
{
	add(t, T_NAME, r);
}

void store_tx_del_name(struct store_tx *t, uid_t uid, const char *name)
{
	add(t, T_NAME, &(struct row_name){ .uid = uid, .name = name })->del = true;
}

void store_tx_put_lease(struct store_tx *t, const struct row_lease *r)
{
	add(t, T_LEASE, r);
}

void store_tx_del_lease(struct store_tx *t, const char *id)
{
	add(t, T_LEASE, &(struct row_lease){ .id = id })->del = true;
}

void store_tx_put_event(struct store_tx *t, const struct row_event *r)
{
	add(t, T_EVENT, r);
}

void store_tx_del_events(struct store_tx *t, uid_t uid, uint64_t seq)
{
	add(t, T_EVENT, &(struct row_event){ .uid = uid, .seq = seq })->del_events = true;
}

void store_tx_put_copy(struct store_tx *t, const struct row_copy *r)
{
	add(t, T_COPY, r);
}

void store_tx_del_copy(struct store_tx *t, uint64_t seq)
{
	add(t, T_COPY, &(struct row_copy){ .seq = seq })->del = true;
}

void store_tx_put_snapshot(struct store_tx *t, const struct row_snapshot *r)
{
	add(t, T_SNAPSHOT, r);
}

void store_tx_del_snapshot(struct store_tx *t, const char *account, const char *id)
{
	add(t, T_SNAPSHOT, &(struct row_snapshot){ .account = account, .id = id })->del = true;
}

void store_tx_hurry(struct store_tx *t)
{
}

int store_load(struct store *s, const struct store_visitor *v, struct store_report *report)
{
	for (unsigned t = 0; t < T_N; t++)
		for (size_t i = 0; i < disk[t].n; i++) {
			const union row *r = disk[t].v[i];

			if (t == T_SANDBOX)
				v->sandbox(&r->sandbox, v->user);
			else if (t == T_INTENT)
				v->intent(&r->intent, v->user);
			else if (t == T_REQUEST)
				v->request(&r->request, v->user);
			else if (t == T_NAME)
				v->name(&r->name, v->user);
			else if (t == T_LEASE)
				v->lease(&r->lease, v->user);
			else if (t == T_EVENT)
				v->event(&r->event, v->user);
			else if (t == T_COPY)
				v->copy(&r->copy, v->user);
			else
				v->snapshot(&r->snapshot, v->user);
		}
	return 0;
}

int store_start(struct store *s)
{
	return 0;
}

void store_mute(struct store *s)
{
	s->muted = true;
}

const char *store_host_id(const struct store *s)
{
	return host;
}

const char *store_incarnation(const struct store *s)
{
	return "simulated";
}

const struct status *store_health(const struct store *s)
{
	return &s->health;
}

enum store_doubt store_doubt(const struct store *s)
{
	return s->doubt;
}

void store_new_incarnation(struct store *s)
{
}

void store_tx_sure(struct store_tx *t)
{
	t->sure = true;
}

bool store_gave_seq(const struct store *s, uint64_t seq)
{
	return seq < s->next;
}

bool store_knows_seq(const struct store *s, uint64_t seq)
{
	return seq < s->next;
}

int store_next_seq(struct store *s, uint64_t *ret)
{
	if (s->next > s->reserved)
		return -EAGAIN;
	*ret = s->next++;
	return 0;
}

void store_seen_seq(struct store *s, uint64_t seq)
{
	s->next = MAX(s->next, seq + 1);
}

/* --- for the simulation --- */

/* The database and its second copy: host-id is not in them. */
void disk_lose(void)
{
	if (unsynced.next)
		sync_all();
	list_init(&unsynced);
	for (unsigned t = 0; t < T_N; t++) {
		while (disk[t].n)
			table_del(&disk[t], (enum table_id)t, disk[t].n - 1);
		free(disk[t].v);
		disk[t] = (struct table){ 0 };
	}
	doubt = STORE_LOST;
}

void disk_reset(uint64_t seed)
{
	disk_lose();
	doubt = STORE_SURE;
	host_seq = 0;
	snprintf(host, sizeof(host), "h%015llu", (unsigned long long)(seed % 1000000000000000ull));
}

/* Opening syncs: what survived the last crash survives the next. */
struct store *disk_open(void)
{
	struct store *s = calloc(1, sizeof(*s));

	must(s);
	sync_all();
	list_init(&s->queued);
	s->next = host_seq + 1;
	host_seq += SEQ_BLOCK;
	s->reserved = host_seq;
	s->run = W->run_no;
	s->doubt = doubt;
	return s;
}

struct store *disk_close(struct store *s, enum disk_loss loss)
{
	uint64_t keep = 0;

	/* The writer may have been through with some of it, without our having heard. */
	list_for_each(n, &s->queued)
		keep++;
	if (loss != DISK_STOP && keep)
		keep = rng_below(&W->fake->rng, keep + 1);
	s->muted = true;
	while (!list_is_empty(&s->queued)) {
		struct store_tx *t = list_entry(s->queued.next, struct store_tx, node);

		if (keep && !t->fails) {
			keep--;
			list_del(&t->node);
			list_add_tail(&unsynced, &t->node);
		} else {
			tx_free(t, true);
		}
	}
	if (loss == DISK_POWER) {
		keep = 0;
		list_for_each(n, &unsynced)
			keep++;
		keep = keep ? rng_below(&W->fake->rng, keep + 1) : 0;
		for (; keep; keep--)
			sync_one(list_entry(unsynced.next, struct store_tx, node));
		while (!list_is_empty(&unsynced))
			tx_free(list_entry(unsynced.next, struct store_tx, node), true);
	} else {
		sync_all();
	}
	free(s);
	return NULL;
}

const char *disk_host(void)
{
	return host;
}

const struct row_sandbox *disk_sandbox(const char *id)
{
	for (size_t i = 0; i < disk[T_SANDBOX].n; i++)
		if (str_eq(disk[T_SANDBOX].v[i]->sandbox.id, id))
			return &disk[T_SANDBOX].v[i]->sandbox;
	return NULL;
}

const struct row_lease *disk_lease(const char *id)
{
	for (size_t i = 0; i < disk[T_LEASE].n; i++)
		if (str_eq(disk[T_LEASE].v[i]->lease.id, id))
			return &disk[T_LEASE].v[i]->lease;
	return NULL;
}

const struct row_snapshot *disk_snapshot(const char *id)
{
	for (size_t i = 0; i < disk[T_SNAPSHOT].n; i++)
		if (str_eq(disk[T_SNAPSHOT].v[i]->snapshot.id, id))
			return &disk[T_SNAPSHOT].v[i]->snapshot;
	return NULL;
}

void disk_count(struct disk_counts *ret)
{
	*ret = (struct disk_counts){ .intents = (unsigned)(disk[T_INTENT].n + disk[T_COPY].n),
				     .sandboxes = (unsigned)disk[T_SANDBOX].n };
}

void disk_each_sandbox(void (*fn)(const struct row_sandbox *r))
{
	for (size_t i = 0; i < disk[T_SANDBOX].n; i++)
		fn(&disk[T_SANDBOX].v[i]->sandbox);
}
