/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/index.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sandbox/core.h"
#include "daemon/sandbox/rules/page.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define RING_KEY_MAX 192u	/* longer texts are cut, so that a ring may hold several: who walks it compares */

void index_node_init(struct index_node *n)
{
	list_init(&n->same_tag);
	list_init(&n->same_seq);
	list_init(&n->same_name);
	n->of_account = n->of_owner = (struct tree_node){ 0 };
	n->owner = NULL;
	n->counted = false;
}

/* --- rings: circular lists of the nodes with one key; the map has one node of each --- */

struct ring_key {
	size_t n;
	char bytes[RING_KEY_MAX];
};

static void ring_key(struct ring_key *k, uint32_t scope, const char *text)
{
	size_t n = strnlen(text, RING_KEY_MAX - sizeof(scope));

	memcpy(k->bytes, &scope, sizeof(scope));
	memcpy(k->bytes + sizeof(scope), text, n);
	k->n = sizeof(scope) + n;
}

static int ring_enter(struct map *rings, const struct ring_key *k, struct list *node)
{
	struct list *first = map_get(rings, k->bytes, k->n);

	if (!first)
		return map_put(rings, k->bytes, k->n, node);
	list_add_tail(first, node);
	return 0;
}

/* Where the map has this node it gets the next one. That slot exists already, so map_put() cannot fail. */
static void ring_leave(struct map *rings, const struct ring_key *k, struct list *node)
{
	if (map_get(rings, k->bytes, k->n) != node)
		;
	else if (list_is_empty(node))
		(void)map_del(rings, k->bytes, k->n);
	else
		(void)!map_put(rings, k->bytes, k->n, node->next);
	list_del(node);
}

/* The node behind `after`; NULL begins. NULL at the end. */
static struct list *ring_next(const struct map *rings, const struct ring_key *k, const struct list *after)
{
	struct list *first = map_get(rings, k->bytes, k->n);

	if (!after)
		return first;
	return after->next == first ? NULL : after->next;
}

/* --- counts --- */

static void change(uint32_t *count, int by)
{
	must(by >= 0 || *count >= (uint32_t)-by);
	*count += (uint32_t)by;
}

/* Adds this sandbox to the counts of its owner, account and uid (by 1), or takes it out (by -1). */
static void tally(struct sandbox *b, int by)
{
	struct owner *o = b->index.owner;
	struct uid_limit *u = core_uid_limit(b->account->core, b->uid);

	change(&o->by_state[b->state], by);
	change(&o->leases, by * (int)b->n_leases);
	if (b->state == SANDBOX_GONE)
		return;
	change(&b->account->n_alive, by);
	if (u)
		change(&u->n_alive, by);
}

void index_lease(struct sandbox *b, int by)
{
	change(&b->n_leases, by);
	if (b->index.counted)
		change(&b->index.owner->leases, by);
}

void index_uncount(struct sandbox *b)
{
	if (!b->index.counted)
		return;
	b->index.counted = false;
	tally(b, -1);
}

void index_count(struct sandbox *b)
{
	if (list_is_empty(&b->node))
		return;
	b->index.counted = true;
	tally(b, 1);
}

/* --- owners, and the order of their pages --- */

static struct sandbox *of_account_node(const struct tree_node *n)
{
	return n ? container_of(n, struct sandbox, index.of_account) : NULL;
}

static struct sandbox *of_owner_node(const struct tree_node *n)
{
	return n ? container_of(n, struct sandbox, index.of_owner) : NULL;
}

static int cmp(const struct sandbox *a, const struct sandbox *b)
{
	return page_cmp(a->started_at_ms, a->id, b->started_at_ms, b->id);
}

static int cmp_of_account(const struct tree_node *a, const struct tree_node *b)
{
	return cmp(of_account_node(a), of_account_node(b));
}

static int cmp_of_owner(const struct tree_node *a, const struct tree_node *b)
{
	return cmp(of_owner_node(a), of_owner_node(b));
}

static uint64_t owner_key(const struct account *a, uid_t uid)
{
	return (uint64_t)a->index << 32 | uid;
}

struct owner *index_owner(const struct sandbox_core *core, const struct account *a, uid_t uid)
{
	return map_get_u64(&core->owner_map, owner_key(a, uid));
}

uint32_t index_alive(const struct sandbox_core *core, uid_t uid)
{
	uint32_t n = 0;

	for (size_t i = 0; i < core->n_accounts; i++) {
		const struct owner *o = index_owner(core, &core->accounts[i], uid);

		for (int state = 0; o && state < SANDBOX_GONE; state++)
			n += o->by_state[state];
	}
	return n;
}

static int need_owner(struct sandbox_core *core, struct account *a, uid_t uid, struct owner **ret)
{
	struct owner *o = index_owner(core, a, uid);

	*ret = o;
	if (o)
		return 0;
	o = calloc(1, sizeof(*o));
	if (!o || map_put_u64(&core->owner_map, owner_key(a, uid), o) < 0) {
		free(o);
		return -ENOMEM;
	}
	o->account = a;
	o->uid = uid;
	*ret = o;
	return 0;
}

/* Until index_end_load() nothing has a place in an order. */
static void enter_order_of_owner(struct sandbox *b)
{
	if (!b->account->core->index_loads)
		tree_insert(&b->index.owner->by_start, &b->index.of_owner, cmp_of_owner);
}

static void enter_order_of_account(struct sandbox *b)
{
	if (!b->account->core->index_loads)
		tree_insert(&b->account->by_start, &b->index.of_account, cmp_of_account);
}

static void enter_owner(struct sandbox *b, struct owner *o)
{
	b->index.owner = o;
	o->n++;
	enter_order_of_owner(b);
}

/* The sandbox must not be counted now. */
static void leave_owner(struct sandbox_core *core, struct sandbox *b)
{
	struct owner *o = b->index.owner;

	if (!o)
		return;
	b->index.owner = NULL;
	tree_del(&o->by_start, &b->index.of_owner);
	if (--o->n)
		return;
	(void)map_del_u64(&core->owner_map, owner_key(o->account, o->uid));
	free(o);
}

int index_set_owner(struct sandbox *b, uid_t uid)
{
	struct sandbox_core *core = b->account->core;
	struct ring_key k;
	struct owner *o;

	if (b->uid == uid)
		return 0;
	if (!b->index.owner) {
		b->uid = uid;
		return 0;
	}
	if (need_owner(core, b->account, uid, &o) < 0)
		return -ENOMEM;
	index_uncount(b);
	ring_key(&k, b->uid, b->name);
	ring_leave(&core->named_map, &k, &b->index.same_name);
	b->uid = uid;
	leave_owner(core, b);
	enter_owner(b, o);
	index_count(b);
	ring_key(&k, uid, b->name);
	return b->name[0] ? ring_enter(&core->named_map, &k, &b->index.same_name) : 0;
}

void index_set_started(struct sandbox *b, int64_t started_at_ms)
{
	struct owner *o = b->index.owner;

	if (o) {
		tree_del(&b->account->by_start, &b->index.of_account);
		tree_del(&o->by_start, &b->index.of_owner);
	}
	b->started_at_ms = started_at_ms;
	if (o) {
		enter_order_of_account(b);
		enter_order_of_owner(b);
	}
}

static int place_cmp(const struct sandbox *b, const void *place)
{
	const struct page_place *p = place;

	return page_cmp(b->started_at_ms, b->id, p->started_at_ms, p->id);
}

static int place_of_account(const struct tree_node *n, const void *place)
{
	return place_cmp(of_account_node(n), place);
}

static int place_of_owner(const struct tree_node *n, const void *place)
{
	return place_cmp(of_owner_node(n), place);
}

static struct sandbox *of_node(const struct index_walk *w, const struct tree_node *n)
{
	return w->owner ? of_owner_node(n) : of_account_node(n);
}

struct sandbox *index_next(const struct index_walk *w, const struct sandbox *b)
{
	const struct tree_node *n = w->owner ? &b->index.of_owner : &b->index.of_account;

	return of_node(w, w->is_reverse ? tree_prev(n) : tree_next(n));
}

struct sandbox *index_behind(const struct index_walk *w, const struct page_place *place)
{
	const struct tree *t = w->owner ? &w->owner->by_start : &w->account->by_start;
	struct sandbox *b;

	if (!place)
		return of_node(w, w->is_reverse ? tree_last(t) : tree_first(t));
	b = of_node(w, tree_at(t, w->owner ? place_of_owner : place_of_account, place));
	if (w->is_reverse)
		return b ? index_next(w, b) : of_node(w, tree_last(t));
	return b && place_cmp(b, place) == 0 ? index_next(w, b) : b;
}

/* --- all of it --- */

static void tag_key(struct ring_key *k, const struct account *a, const char *req_tag)
{
	ring_key(k, a->index, req_tag);
}

static void seq_key(struct ring_key *k, uint64_t seq)
{
	memcpy(k->bytes, &seq, sizeof(seq));
	k->n = sizeof(seq);
}

static int enter_rings(struct sandbox_core *core, struct sandbox *b)
{
	struct ring_key k;
	int r = 0;

	if (b->req_tag[0]) {
		tag_key(&k, b->account, b->req_tag);
		r = ring_enter(&core->tag_map, &k, &b->index.same_tag);
	}
	if (!r && b->seq) {
		seq_key(&k, b->seq);
		r = ring_enter(&core->seq_map, &k, &b->index.same_seq);
	}
	if (!r && b->name[0]) {
		ring_key(&k, b->uid, b->name);
		r = ring_enter(&core->named_map, &k, &b->index.same_name);
	}
	return r;
}

static void leave_rings(struct sandbox_core *core, struct sandbox *b)
{
	struct ring_key k;

	tag_key(&k, b->account, b->req_tag);
	ring_leave(&core->tag_map, &k, &b->index.same_tag);
	seq_key(&k, b->seq);
	ring_leave(&core->seq_map, &k, &b->index.same_seq);
	ring_key(&k, b->uid, b->name);
	ring_leave(&core->named_map, &k, &b->index.same_name);
}

int index_add(struct sandbox_core *core, struct sandbox *b)
{
	struct owner *o;
	int r = need_owner(core, b->account, b->uid, &o);

	if (r < 0)
		return r;
	enter_owner(b, o);
	enter_order_of_account(b);
	r = enter_rings(core, b);
	if (r < 0)
		index_del(core, b);
	return r;
}

void index_del(struct sandbox_core *core, struct sandbox *b)
{
	index_uncount(b);
	tree_del(&b->account->by_start, &b->index.of_account);
	leave_owner(core, b);
	leave_rings(core, b);
}

/* --- all at once --- */

/* A sandbox with what decides about its place beside it, since a sort that looks at each sandbox waits for memory. */
struct place {
	int64_t started_at_ms;
	uint64_t id_begin;		/* big endian */
	struct sandbox *sandbox;
};

static int place_order(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->started_at_ms == y->started_at_ms && x->id_begin != y->id_begin)
		return x->id_begin < y->id_begin ? -1 : 1;
	return page_cmp(x->started_at_ms, x->sandbox->id, y->started_at_ms, y->sandbox->id);
}

static struct place place_of(struct sandbox *b)
{
	struct place p = { .started_at_ms = b->started_at_ms, .sandbox = b };
	size_t n = strnlen(b->id, sizeof(p.id_begin));

	memcpy(&p.id_begin, b->id, n);
	p.id_begin = be64toh(p.id_begin);
	return p;
}

void index_begin_load(struct sandbox_core *core)
{
	core->index_loads = true;
}

int index_end_load(struct sandbox_core *core)
{
	size_t n = 0, all = map_size(&core->sandbox_map);
	struct place *v = calloc(all + 1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	list_for_each(i, &core->sandboxes) {
		must(n < all);
		v[n++] = place_of(list_entry(i, struct sandbox, node));
	}
	qsort(v, n, sizeof(*v), place_order);
	for (size_t i = 0; i < n; i++) {
		struct sandbox *b = v[i].sandbox;

		tree_append(&b->account->by_start, &b->index.of_account);
		tree_append(&b->index.owner->by_start, &b->index.of_owner);
	}
	free(v);
	core->index_loads = false;
	return 0;
}

struct sandbox *index_of_tag(const struct sandbox_core *core, const struct account *a, const char *req_tag,
			     const struct sandbox *after)
{
	const struct list *n = after ? &after->index.same_tag : NULL;
	struct ring_key k;

	if (!req_tag[0])
		return NULL;
	tag_key(&k, a, req_tag);
	while ((n = ring_next(&core->tag_map, &k, n))) {
		struct sandbox *b = container_of((struct list *)n, struct sandbox, index.same_tag);

		if (str_eq(b->req_tag, req_tag))
			return b;
	}
	return NULL;
}

bool index_seq_has_other_tag(const struct sandbox_core *core, uint64_t seq, const char *req_tag)
{
	const struct list *n = NULL;
	struct ring_key k;

	seq_key(&k, seq);
	while ((n = ring_next(&core->seq_map, &k, n)))
		if (!str_eq(container_of((struct list *)n, struct sandbox, index.same_seq)->req_tag, req_tag))
			return true;
	return false;
}

/* --- names --- */

int index_set_name(struct sandbox *b, const char *name)
{
	struct sandbox_core *core = b->account->core;
	char *copy = str_dup(name);
	struct ring_key k;

	if (!copy)
		return -ENOMEM;
	ring_key(&k, b->uid, b->name);
	ring_leave(&core->named_map, &k, &b->index.same_name);
	text_give(&b->name, copy);
	if (!b->index.owner || !name[0])
		return 0;
	ring_key(&k, b->uid, name);
	return ring_enter(&core->named_map, &k, &b->index.same_name);
}

bool index_name_has_other(const struct sandbox *b)
{
	const struct list *n = NULL;
	struct ring_key k;

	if (!b->name[0])
		return false;
	ring_key(&k, b->uid, b->name);
	while ((n = ring_next(&b->account->core->named_map, &k, n))) {
		const struct sandbox *x = container_of((struct list *)n, struct sandbox, index.same_name);

		if (x != b && str_eq(x->name, b->name))
			return true;
	}
	return false;
}

/* --- requests --- */

int index_request_set_tag(struct sandbox_core *core, struct request *q, const char *req_tag)
{
	char *copy = str_dup(req_tag);
	struct ring_key k;

	if (!copy)
		return -ENOMEM;
	index_request_del(core, q);
	free(q->req_tag);
	q->req_tag = copy;
	if (!req_tag[0])
		return 0;
	ring_key(&k, q->uid, req_tag);
	return ring_enter(&core->request_tag_map, &k, &q->same_tag);
}

void index_request_del(struct sandbox_core *core, struct request *q)
{
	struct ring_key k;

	ring_key(&k, q->uid, q->req_tag ? q->req_tag : "");
	ring_leave(&core->request_tag_map, &k, &q->same_tag);
}

struct request *index_request_of_tag(const struct sandbox_core *core, uid_t uid, const char *req_tag,
				     const struct request *after)
{
	const struct list *n = after ? &after->same_tag : NULL;
	struct ring_key k;

	if (!req_tag[0])
		return NULL;
	ring_key(&k, uid, req_tag);
	while ((n = ring_next(&core->request_tag_map, &k, n))) {
		struct request *q = container_of((struct list *)n, struct request, same_tag);

		if (str_eq(q->req_tag, req_tag))
			return q;
	}
	return NULL;
}
