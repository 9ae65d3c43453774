/* SPDX-License-Identifier: MIT */
/*
 * The store of a simulated host: tables of rows with the same promises as the real one. A commit is
 * under way for a moment (commits of the same moment share it), then in the file, then, if it was
 * durable, on the disk together with all before it. A crash keeps what its kind keeps.
 */
#include "daemon/store/store.h"
#include "daemon/store/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "tests/sim/sim.h"

#define SEQ_BLOCK 1000u
#define READ_MS	  1u	/* not drawn: what is read is no reason for another world */

struct change {
	enum row_table table;
	bool del, del_events, del_leases, prune;
	union row row;
};

struct store_tx {
	struct list node;
	struct store *store;
	struct change *v;
	size_t n;
	bool durable, fails, sure;
	struct claim_line *claims;
	bool claims_anew;
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

struct rows {
	union row **v;
	size_t n, max;
};

/* A line of the file beside the database, which is synced with each. */
struct claim_line {
	struct claim_line *next;
	struct store_claim c;
};

static struct rows disk[ROW_TABLES];
static struct claim_line *claims;
static struct list unsynced;	/* in the file, in order; not yet on the disk */
static uint64_t host_seq;
static enum store_doubt doubt;
static char host[24];
/* STATE/sent. Nothing of it is synced. */
static struct sent_record *sent;
static size_t n_sent;
static uint64_t sent_base;
static char sent_boot[SENT_BOOT_MAX];

static bool same_key(enum row_table t, const union row *a, const union row *b)
{
	const struct table *x = &store_tables[t];

	for (size_t i = 0; i < x->n_key; i++) {
		struct value p = column_get(&x->columns[i], a), q = column_get(&x->columns[i], b);

		if (p.i != q.i || p.n != q.n || (p.n && memcmp(p.p, q.p, p.n)))
			return false;
	}
	return true;
}

static void table_del(struct rows *x, enum row_table t, size_t i)
{
	row_fini(&store_tables[t], x->v[i]);
	free(x->v[i]);
	memmove(x->v + i, x->v + i + 1, (--x->n - i) * sizeof(*x->v));
}

static void table_add(struct rows *x, const union row *r)
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

static size_t table_find(const struct rows *x, enum row_table t, const union row *key)
{
	size_t i = 0;

	if (t == ROW_TABLE_event && x->n && key->event.number > x->v[x->n - 1]->event.number)
		return x->n;
	while (i < x->n && !same_key(t, x->v[i], key))
		i++;
	return i;
}

static bool is_swept(const struct change *c, const union row *r)
{
	return c->del_events ? r->event.uid == c->row.event.uid && r->event.seq <= c->row.event.seq :
			       str_eq(r->lease.account, c->row.lease.account) &&
				       str_eq(r->lease.sandbox, c->row.lease.sandbox);
}

/* Takes the row over. */
static void apply(struct change *c)
{
	struct rows *x = &disk[c->table];
	size_t i;

	if (c->prune) {	/* no world is so old, or has so many */
		row_fini(&store_tables[c->table], &c->row);
		return;
	}
	if (c->del_events || c->del_leases) {
		for (i = x->n; i--;)
			if (is_swept(c, x->v[i]))
				table_del(x, c->table, i);
		row_fini(&store_tables[c->table], &c->row);
		return;
	}
	i = table_find(x, c->table, &c->row);
	if (c->del) {
		if (i < x->n)
			table_del(x, c->table, i);
		row_fini(&store_tables[c->table], &c->row);
	} else if (i < x->n) {
		row_fini(&store_tables[c->table], x->v[i]);
		*x->v[i] = c->row;
	} else {
		table_add(x, &c->row);
	}
}

static void claim_line_free(struct claim_line *l)
{
	free((char *)l->c.account);
	free((char *)l->c.sandbox);
	free((char *)l->c.name);
	free((char *)l->c.request_id);
	free((char *)l->c.policy);
	free(l);
}

static void claim_lines_free(struct claim_line **l)
{
	while (*l) {
		struct claim_line *next = (*l)->next;

		claim_line_free(*l);
		*l = next;
	}
}

static void add_claims(struct store_tx *t)
{
	struct claim_line **end = &claims;

	if (t->claims_anew)
		claim_lines_free(&claims);
	while (*end)
		end = &(*end)->next;
	*end = t->claims;
	t->claims = NULL;
}

/* Behind the commit, synced: unless the crash comes in between. False: there is no room. */
static bool write_claims(struct store_tx *t)
{
	if (!t->claims || sim_seam("store.claims"))
		return true;
	if (!t->claims_anew && W->faults.claims_fail && sim_chance(&W->fake->rng, W->faults.claims_fail)) {
		W->store_failed = true;
		return false;
	}
	add_claims(t);
	return true;
}

static void tx_free(struct store_tx *t, bool rows)
{
	claim_lines_free(&t->claims);
	for (size_t i = 0; rows && i < t->n; i++)
		row_fini(&store_tables[t->v[i].table], &t->v[i].row);
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
		copy->claims = NULL;
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

		if (t->fails || !write_claims(t))
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

/* A program may look at rows as they are handed over. */
__attribute__((weak)) void warm_row(const struct row_sandbox *r)
{
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

static struct change *add(struct store_tx *t, enum row_table table, const void *row)
{
	t->v = realloc(t->v, (t->n + 1) * sizeof(*t->v));
	must(t->v);
	t->v[t->n] = (struct change){ .table = table };
	must(!row_dup(&store_tables[table], row, &t->v[t->n].row));
	return &t->v[t->n++];
}

/* What the real store would refuse, or would not keep as it is, is a fault of who writes it. */
static void put(struct store_tx *t, enum row_table table, const void *row)
{
	struct row_check check;
	union row copy;

	memcpy(&copy, row, store_tables[table].row_size);
	row_check(&store_tables[table], &copy, &check);
	must(!check.refused && !check.replaced);
	if (table == ROW_TABLE_sandbox)
		warm_row(row);
	(void)add(t, table, row);
}

#define PUT(table) \
	void store_tx_put_##table(struct store_tx *t, const struct row_##table *r) \
	{ \
		put(t, ROW_TABLE_##table, r); \
	}
PUT(sandbox)
PUT(intent)
PUT(request)
PUT(name)
PUT(lease)
PUT(event)
PUT(copy)
PUT(snapshot)
PUT(warm)
PUT(owner)
PUT(command)
PUT(command_request)

#define DEL(table, t, ...) add(t, ROW_TABLE_##table, &(struct row_##table){ __VA_ARGS__ })->del = true

void store_tx_del_sandbox(struct store_tx *t, const char *account, const char *id)
{
	DEL(sandbox, t, .account = account, .id = id);
}

void store_tx_del_intent(struct store_tx *t, uint64_t seq)
{
	DEL(intent, t, .seq = seq);
}

void store_tx_del_request(struct store_tx *t, uid_t uid, const char *method, const char *request_id)
{
	DEL(request, t, .uid = uid, .method = method, .request_id = request_id);
}

void store_tx_del_name(struct store_tx *t, uid_t uid, const char *name)
{
	DEL(name, t, .uid = uid, .name = name);
}

void store_tx_del_lease(struct store_tx *t, const char *id)
{
	DEL(lease, t, .id = id);
}

void store_tx_del_leases(struct store_tx *t, const char *account, const char *sandbox)
{
	add(t, ROW_TABLE_lease, &(struct row_lease){ .account = account, .sandbox = sandbox })->del_leases = true;
}

void store_tx_del_events(struct store_tx *t, uid_t uid, uint64_t seq)
{
	add(t, ROW_TABLE_event, &(struct row_event){ .uid = uid, .seq = seq })->del_events = true;
}

void store_tx_del_command(struct store_tx *t, const char *id)
{
	DEL(command, t, .id = id);
}

void store_tx_del_command_request(struct store_tx *t, uid_t uid, const char *method, const char *request_id)
{
	DEL(command_request, t, .uid = uid, .method = method, .request_id = request_id);
}

void store_tx_prune_command_requests(struct store_tx *t, const struct store_prune *p)
{
	add(t, ROW_TABLE_command_request, &(struct row_command_request){ 0 })->prune = true;
}

void store_tx_prune_requests(struct store_tx *t, const struct store_prune *p)
{
	add(t, ROW_TABLE_request, &(struct row_request){ 0 })->prune = true;
}

struct read {
	struct store *store;
	unsigned run;
	enum row_table table;		/* of requests, or of those of commands */
	union row key;			/* its strings are ours */
	store_request_fn *done;		/* one of the two */
	store_command_request_fn *command_done;
	void *user;
};

/* What is on the disk, what is not synced, what is handed over: the last word counts. */
static const union row *newest(const struct store *s, enum row_table table, const union row *key)
{
	const struct list *const later[] = { &unsynced, &s->queued };
	const struct rows *x = &disk[table];
	size_t at = table_find(x, table, key);
	const union row *r = at < x->n ? x->v[at] : NULL;

	for (size_t k = 0; k < ARRAY_SIZE(later); k++)
		list_for_each(n, later[k]) {
			const struct store_tx *t = list_entry(n, struct store_tx, node);

			for (size_t i = 0; i < t->n && !t->fails; i++)
				if (t->v[i].table == table && !t->v[i].prune && same_key(table, &t->v[i].row, key))
					r = t->v[i].del ? NULL : &t->v[i].row;
		}
	return r;
}

static void on_read(void *arg)
{
	struct read *d = arg;
	struct store *s = W->store;
	struct status ok = STATUS_OK;
	const union row *r;

	if (s && s->run == d->run && !s->muted && !sim_seam("store.read")) {
		r = newest(s, d->table, &d->key);
		if (d->done)
			d->done(d->user, &ok, r ? &r->request : NULL);
		else
			d->command_done(d->user, &ok, r ? &r->command_request : NULL);
	}
	row_fini(&store_tables[d->table], &d->key);
	free(d);
}

static struct read *read_new(struct store *s, enum row_table table, const void *key, void *user)
{
	struct read *d = calloc(1, sizeof(*d));

	must(d && !row_dup(&store_tables[table], key, &d->key));
	d->store = s;
	d->run = s->run;
	d->table = table;
	d->user = user;
	sim_at(sim->now_ms + READ_MS, on_read, d);
	return d;
}

int store_get_request(struct store *s, uid_t uid, const char *method, const char *request_id, store_request_fn *done,
		      void *user)
{
	const struct row_request key = { .uid = uid, .method = method, .request_id = request_id };

	read_new(s, ROW_TABLE_request, &key, user)->done = done;
	return 0;
}

int store_get_command_request(struct store *s, uid_t uid, const char *method, const char *request_id,
			      store_command_request_fn *done, void *user)
{
	const struct row_command_request key = { .uid = uid, .method = method, .request_id = request_id };

	read_new(s, ROW_TABLE_command_request, &key, user)->command_done = done;
	return 0;
}

void store_tx_del_copy(struct store_tx *t, uint64_t seq)
{
	DEL(copy, t, .seq = seq);
}

void store_tx_del_snapshot(struct store_tx *t, const char *account, const char *id)
{
	DEL(snapshot, t, .account = account, .id = id);
}

void store_tx_claim(struct store_tx *t, const struct store_claim *c)
{
	struct claim_line **end = &t->claims, *l = calloc(1, sizeof(*l));

	must(l);
	l->c = *c;
	l->c.account = strdup(c->account);
	l->c.sandbox = strdup(c->sandbox);
	l->c.name = strdup(c->name);
	l->c.request_id = strdup(c->request_id);
	l->c.policy = strdup(c->policy);
	while (*end)
		end = &(*end)->next;
	*end = l;
}

void store_tx_claims_anew(struct store_tx *t)
{
	t->claims_anew = true;
}

int store_load_claims(struct store *s, store_claim_fn *fn, void *user)
{
	for (const struct claim_line *l = claims; l; l = l->next)
		fn(&l->c, user);
	return 0;
}

int store_load(struct store *s, const struct store_visitor *v)
{
	for (enum row_table t = 0; t < ROW_TABLES; t++)
		for (size_t i = 0; i < disk[t].n; i++)
			store_visit(v, t, disk[t].v[i]);
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

/* Its cloud has no keys. */
char *store_key_print(struct store *s, const char *account)
{
	return NULL;
}

void store_tx_put_key_print(struct store_tx *t, const char *account, const char *print)
{
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

/* --- what was sent --- */

static void sent_void(uint64_t base)
{
	free(sent);
	sent = NULL;
	n_sent = 0;
	sent_base = base;
	(void)str_copy(sent_boot, sizeof(sent_boot), W->boot_id);
}

int store_put_sent(struct store *s, uint64_t seq)
{
	sent = realloc(sent, (n_sent + 1) * sizeof(*sent));
	must(sent);
	sent[n_sent++] = (struct sent_record){ .seq = seq, .at_ms = clock_boot_ms() };
	return 0;
}

enum sent_known store_sent(const struct store *s, uint64_t seq, uint64_t *ret_at_ms)
{
	for (size_t i = 0; i < n_sent; i++) {
		*ret_at_ms = sent[i].at_ms;
		if (sent[i].seq == seq)
			return SENT_MAYBE;
	}
	return seq < sent_base ? SENT_UNKNOWN : SENT_NEVER;
}

void store_forget_sent(struct store *s)
{
}

/* --- for the simulation --- */

/* The database and its second copy: host-id is not in them. */
void disk_lose(void)
{
	if (unsynced.next)
		sync_all();
	list_init(&unsynced);
	for (unsigned t = 0; t < ROW_TABLES; t++) {
		while (disk[t].n)
			table_del(&disk[t], (enum row_table)t, disk[t].n - 1);
		free(disk[t].v);
		disk[t] = (struct rows){ 0 };
	}
	doubt = STORE_LOST;
}

void disk_reset(uint64_t seed)
{
	disk_lose();
	claim_lines_free(&claims);
	doubt = STORE_SURE;
	host_seq = 0;
	sent_void(0);
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
	if (doubt != STORE_SURE || !str_eq(sent_boot, W->boot_id))
		sent_void(s->next);
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
			if (loss == DISK_KILL && t->claims && sim_chance(&W->fake->rng, 500))
				add_claims(t);
			list_del(&t->node);
			list_add_tail(&unsynced, &t->node);
		} else {
			tx_free(t, true);
		}
	}
	if (loss == DISK_POWER) {
		sent_boot[0] = '\0';
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
	for (size_t i = 0; i < disk[ROW_TABLE_sandbox].n; i++)
		if (str_eq(disk[ROW_TABLE_sandbox].v[i]->sandbox.id, id))
			return &disk[ROW_TABLE_sandbox].v[i]->sandbox;
	return NULL;
}

const struct row_lease *disk_lease(const char *id)
{
	for (size_t i = 0; i < disk[ROW_TABLE_lease].n; i++)
		if (str_eq(disk[ROW_TABLE_lease].v[i]->lease.id, id))
			return &disk[ROW_TABLE_lease].v[i]->lease;
	return NULL;
}

const struct row_snapshot *disk_snapshot(const char *id)
{
	for (size_t i = 0; i < disk[ROW_TABLE_snapshot].n; i++)
		if (str_eq(disk[ROW_TABLE_snapshot].v[i]->snapshot.id, id))
			return &disk[ROW_TABLE_snapshot].v[i]->snapshot;
	return NULL;
}

const struct store_claim *disk_claim(const char *id)
{
	const struct store_claim *last = NULL;

	for (const struct claim_line *l = claims; l; l = l->next)
		if (str_eq(l->c.sandbox, id))
			last = &l->c;
	return last;
}

const struct row_warm *disk_warm(const char *name)
{
	for (size_t i = 0; i < disk[ROW_TABLE_warm].n; i++)
		if (str_eq(disk[ROW_TABLE_warm].v[i]->warm.name, name))
			return &disk[ROW_TABLE_warm].v[i]->warm;
	return NULL;
}

void disk_lose_claims(void)
{
	claim_lines_free(&claims);
}

void disk_count(struct disk_counts *ret)
{
	*ret = (struct disk_counts){ .intents = (unsigned)(disk[ROW_TABLE_intent].n + disk[ROW_TABLE_copy].n),
				     .sandboxes = (unsigned)disk[ROW_TABLE_sandbox].n };
}

void disk_each_sandbox(void (*fn)(const struct row_sandbox *r))
{
	for (size_t i = 0; i < disk[ROW_TABLE_sandbox].n; i++)
		fn(&disk[ROW_TABLE_sandbox].v[i]->sandbox);
}
