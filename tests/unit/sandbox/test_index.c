/* SPDX-License-Identifier: MIT */
/* The index against walks over all sandboxes, after random changes. */
#include "daemon/sandbox/index.h"

#include <stdio.h>
#include <stdlib.h>

#include "daemon/sandbox/core.h"
#include "daemon/sandbox/rules/page.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

#define LONG_TAG "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789" \
		 "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"

/* The last two differ beyond what is a key. */
static const char *const tag_texts[] = { "", "a", "b", "ab", LONG_TAG "1", LONG_TAG "2" };

#define N_LOADED 100u	/* steps of a load, in every other world */

struct world {
	struct sandbox_core core;
	struct account accounts[2];
	struct uid_limit uids[2];
	struct rng rng;
};

static void world_init(struct world *w, uint64_t seed)
{
	*w = (struct world){ .uids = { { .uid = 1 }, { .uid = 2 } } };
	w->core.accounts = w->accounts;
	w->core.n_accounts = ARRAY_SIZE(w->accounts);
	w->core.uids = w->uids;
	w->core.n_uids = ARRAY_SIZE(w->uids);
	list_init(&w->core.sandboxes);
	for (unsigned i = 0; i < ARRAY_SIZE(w->accounts); i++) {
		w->accounts[i].core = &w->core;
		w->accounts[i].index = i;
	}
	rng_seed(&w->rng, seed);
}

static struct sandbox *any(struct world *w, size_t n)
{
	size_t skip = rng_below(&w->rng, n);

	list_for_each(i, &w->core.sandboxes)
		if (!skip--)
			return list_entry(i, struct sandbox, node);
	return NULL;
}

static void add_one(struct world *w, unsigned number)
{
	struct sandbox *b;
	char id[24];

	/* Some differ only behind the eight bytes that a load compares first. */
	snprintf(id, sizeof(id), number % 3 ? "i%u" : "i1234567%u", number);
	CHECK(!sandbox_new(&w->accounts[rng_below(&w->rng, 2)], id, &b));
	CHECK(!text_set(&b->req_tag, tag_texts[rng_below(&w->rng, ARRAY_SIZE(tag_texts))]));
	CHECK(!text_set(&b->name, tag_texts[rng_below(&w->rng, ARRAY_SIZE(tag_texts))]));
	b->seq = rng_below(&w->rng, 4);
	b->uid = (uid_t)rng_below(&w->rng, 4);
	index_set_started(b, (int64_t)rng_below(&w->rng, 8));
	sandbox_set_state(b, SANDBOX_RUNNING);
	CHECK(!core_insert(&w->core, b));
	CHECK(core_insert(&w->core, b) < 0);
}

static void drop_one(struct world *w, struct sandbox *b)
{
	/* As core_forget() does, which would want a store. */
	index_del(&w->core, b);
	list_del(&b->node);
	sandbox_free(b);
}

static void check_tags(struct world *w)
{
	for (size_t t = 0; t < ARRAY_SIZE(tag_texts); t++) {
		for (size_t a = 0; a < 2; a++) {
			size_t want = 0, have = 0;
			struct sandbox *b = NULL;

			list_for_each(i, &w->core.sandboxes) {
				struct sandbox *x = list_entry(i, struct sandbox, node);

				want += t && x->account == &w->accounts[a] && str_eq(x->req_tag, tag_texts[t]);
			}
			while ((b = index_of_tag(&w->core, &w->accounts[a], tag_texts[t], b))) {
				CHECK(b->account == &w->accounts[a] && str_eq(b->req_tag, tag_texts[t]));
				CHECK(++have <= want);
			}
			CHECK_INT(have, want);
		}
	}
}

static void check_numbers(struct world *w)
{
	for (uint64_t seq = 0; seq < 5; seq++) {
		for (size_t t = 0; t < ARRAY_SIZE(tag_texts); t++) {
			bool want = false;

			list_for_each(i, &w->core.sandboxes) {
				struct sandbox *x = list_entry(i, struct sandbox, node);

				want |= seq && x->seq == seq && !str_eq(x->req_tag, tag_texts[t]);
			}
			CHECK(index_seq_has_other_tag(&w->core, seq, tag_texts[t]) == want);
		}
	}
}

static void check_counts(struct world *w)
{
	uint32_t accounts[2] = { 0 }, uids[4] = { 0 };

	list_for_each(i, &w->core.sandboxes) {
		struct sandbox *x = list_entry(i, struct sandbox, node);

		if (x->state == SANDBOX_GONE)
			continue;
		accounts[x->account->index]++;
		uids[x->uid]++;
	}
	for (size_t i = 0; i < 2; i++) {
		CHECK_INT(w->accounts[i].n_alive, accounts[i]);
		CHECK_INT(w->uids[i].n_alive, uids[1 + i]);
	}
	for (uid_t uid = 0; uid < ARRAY_SIZE(uids); uid++)
		CHECK_INT(index_alive(&w->core, uid), uids[uid]);
}

static void check_owner(struct world *w, const struct account *a, uid_t uid)
{
	const struct owner *o = index_owner(&w->core, a, uid);
	uint32_t running = 0, gone = 0, leases = 0;

	list_for_each(i, &w->core.sandboxes) {
		struct sandbox *x = list_entry(i, struct sandbox, node);
		bool is_its = x->account == a && x->uid == uid;

		running += is_its && x->state == SANDBOX_RUNNING;
		gone += is_its && x->state == SANDBOX_GONE;
		leases += is_its ? x->n_leases : 0;
	}
	CHECK((o != NULL) == (running + gone > 0));
	CHECK_INT(o ? o->by_state[SANDBOX_RUNNING] : 0, running);
	CHECK_INT(o ? o->by_state[SANDBOX_GONE] : 0, gone);
	CHECK_INT(o ? o->leases : 0, leases);
}

static void check_names(struct world *w)
{
	list_for_each(i, &w->core.sandboxes) {
		struct sandbox *b = list_entry(i, struct sandbox, node);
		bool want = false;

		list_for_each(k, &w->core.sandboxes) {
			struct sandbox *x = list_entry(k, struct sandbox, node);

			want |= x != b && b->name[0] && x->uid == b->uid && str_eq(x->name, b->name);
		}
		CHECK(index_name_has_other(b) == want);
	}
}

/* From every place, in either direction: those behind it, in the order of pages. */
static void check_walk(struct world *w, const struct index_walk *walk)
{
	const char *const ids[] = { "", "i15", "i3", "z" };

	for (int64_t at = -1; at < 9; at++) {
		struct page_place place = { .started_at_ms = at };
		struct sandbox *b, *before = NULL;
		size_t want = 0, have = 0;

		(void)str_copy(place.id, sizeof(place.id), ids[rng_below(&w->rng, ARRAY_SIZE(ids))]);
		list_for_each(i, &w->core.sandboxes) {
			struct sandbox *x = list_entry(i, struct sandbox, node);
			int order = page_cmp(x->started_at_ms, x->id, at, place.id);

			want += x->account == walk->account && (!walk->owner || x->uid == walk->owner->uid) &&
				(at < 0 || (walk->is_reverse ? order < 0 : order > 0));
		}
		for (b = index_behind(walk, at < 0 ? NULL : &place); b; b = index_next(walk, b)) {
			int order = before ? page_cmp(before->started_at_ms, before->id, b->started_at_ms, b->id) : 0;

			CHECK(!before || (walk->is_reverse ? order > 0 : order < 0));
			CHECK(b->account == walk->account && (!walk->owner || b->uid == walk->owner->uid));
			before = b;
			have++;
		}
		CHECK_INT(have, want);
	}
}

static void check_owners(struct world *w)
{
	for (unsigned i = 0; i < 2; i++) {
		struct index_walk walk = { .account = &w->accounts[i], .is_reverse = rng_below(&w->rng, 2) };

		check_walk(w, &walk);
		for (uid_t uid = 0; uid < 4; uid++) {
			check_owner(w, &w->accounts[i], uid);
			walk.owner = index_owner(&w->core, &w->accounts[i], uid);
			if (walk.owner)
				check_walk(w, &walk);
		}
	}
}

static void change_one(struct world *w, struct sandbox *b)
{
	switch (rng_below(&w->rng, 5)) {
	case 4:
		CHECK(!index_set_name(b, tag_texts[rng_below(&w->rng, ARRAY_SIZE(tag_texts))]));
		break;
	case 0:
		CHECK(!index_set_owner(b, (uid_t)rng_below(&w->rng, 4)));
		break;
	case 1:
		index_set_started(b, (int64_t)rng_below(&w->rng, 8));
		break;
	case 2:
		index_lease(b, 1);
		break;
	default:
		if (b->n_leases)
			index_lease(b, -1);
		break;
	}
}

TEST(finds_what_a_walk_finds)
{
	struct world w;
	size_t n = 0;

	for (uint64_t seed = 1; seed <= 20; seed++) {
		world_init(&w, seed);
		n = 0;
		if (seed % 2)
			index_begin_load(&w.core);
		for (unsigned step = 0; step < 300; step++) {
			if (step == N_LOADED && w.core.index_loads)
				CHECK(!index_end_load(&w.core));
			switch (n ? rng_below(&w.rng, 8) : 0) {
			case 0:
			case 1:
			case 2:
				add_one(&w, step);
				n++;
				break;
			case 3:
				drop_one(&w, any(&w, n));
				n--;
				break;
			case 4:
				sandbox_set_state(any(&w, n), SANDBOX_GONE);
				break;
			default:
				change_one(&w, any(&w, n));
				break;
			}
			check_tags(&w);
			check_numbers(&w);
			check_counts(&w);
			if (!w.core.index_loads)
				check_owners(&w);
			check_names(&w);
		}
		while (n--)
			drop_one(&w, any(&w, n + 1));
		check_counts(&w);
		CHECK_INT(map_size(&w.core.tag_map), 0);
		CHECK_INT(map_size(&w.core.seq_map), 0);
		CHECK_INT(map_size(&w.core.owner_map), 0);
		CHECK_INT(map_size(&w.core.named_map), 0);
		map_fini(&w.core.named_map);
		map_fini(&w.core.owner_map);
		map_fini(&w.core.tag_map);
		map_fini(&w.core.seq_map);
		map_fini(&w.core.sandbox_map);
	}
}

TEST(request_ids_by_tag)
{
	struct request v[40], *q = NULL;
	struct sandbox_core core = { 0 };
	struct rng rng;

	rng_seed(&rng, 3);
	for (size_t i = 0; i < ARRAY_SIZE(v); i++) {
		v[i] = (struct request){ .uid = (uid_t)(i % 3) };
		list_init(&v[i].same_tag);
	}
	for (unsigned step = 0; step < 1000; step++) {
		const char *tag = tag_texts[rng_below(&rng, ARRAY_SIZE(tag_texts))];
		uid_t uid = (uid_t)rng_below(&rng, 4);
		size_t want = 0, have = 0;

		CHECK(!index_request_set_tag(&core, &v[rng_below(&rng, ARRAY_SIZE(v))], tag));
		for (size_t i = 0; i < ARRAY_SIZE(v); i++)
			want += tag[0] && v[i].uid == uid && v[i].req_tag && str_eq(v[i].req_tag, tag);
		while ((q = index_request_of_tag(&core, uid, tag, q))) {
			CHECK(q->uid == uid && str_eq(q->req_tag, tag));
			CHECK(++have <= want);
		}
		CHECK_INT(have, want);
	}
	for (size_t i = 0; i < ARRAY_SIZE(v); i++) {
		index_request_del(&core, &v[i]);
		free(v[i].req_tag);
	}
	CHECK_INT(map_size(&core.request_tag_map), 0);
	map_fini(&core.request_tag_map);
}

TEST_MAIN()
