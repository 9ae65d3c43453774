/* SPDX-License-Identifier: MIT */
/* JUDGED G-3: what is held for somebody is charged before it is held, at every level, and given back. */
#include "proto/base/quota.h"

#include <errno.h>

#include "proto/base/buf.h"
#include "proto/base/rng.h"
#include "tests/lib/test.h"

static struct quota *node(struct quota *parent, uint64_t max, uint64_t kept)
{
	struct quota *q = quota_new(&(struct quota_options){ .parent = parent, .name = "x", .max = max, .kept = kept });

	CHECK(q);
	return q;
}

TEST(a_charge_counts_at_every_level_or_at_none)
{
	struct quota *all = node(NULL, 1000, 0), *uid = node(all, 600, 0), *conn = node(uid, 500, 0);

	CHECK_INT(quota_take(conn, 500), 0);
	CHECK_INT(quota_used(all), 500);
	CHECK_INT(quota_take(conn, 1), -ENOBUFS);	/* by the connection */
	CHECK_INT(quota_take(uid, 101), -ENOBUFS);	/* by the uid */
	CHECK_INT(quota_take(all, 501), -ENOBUFS);
	CHECK_INT(quota_used(all), 500);
	CHECK_INT(quota_take(uid, 100), 0);
	quota_add(conn, 1000);				/* what cannot be refused is counted all the same */
	CHECK_INT(quota_used(all), 1600);
	CHECK_INT(quota_take(conn, 0), -ENOBUFS);
	quota_give(conn, 1500);
	quota_give(uid, 100);
	CHECK_INT(quota_used(all), 0);
	CHECK_INT(quota_take_peak(all), 1600);
	CHECK_INT(quota_take_peak(all), 0);
	quota_unref(conn);
	quota_unref(uid);
	quota_unref(all);
}

TEST(the_last_eighth_is_for_what_has_begun)
{
	struct quota *q = node(NULL, 800, 0), *child = node(q, 0, 0);

	CHECK_INT(quota_spare(child), 600);
	CHECK_INT(quota_reserve(child, 400), 0);
	CHECK_INT(quota_spare(child), 200);
	CHECK_INT(quota_reserve(child, 299), 0);
	CHECK_INT(quota_spare(child), 0);
	CHECK(!quota_tight(child, 0) && quota_tight(child, 1) == q);
	CHECK_INT(quota_reserve(child, 1), -ENOBUFS);
	CHECK_INT(quota_take(child, 1), 0);
	CHECK(quota_tight(child, 0) == q);
	CHECK_INT(quota_take(child, 100), 0);
	CHECK_INT(quota_take(child, 1), -ENOBUFS);
	quota_give(child, 800);
	quota_unref(child);
	quota_unref(q);
}

TEST(who_holds_little_is_not_locked_out_by_who_holds_much)
{
	struct quota *all = node(NULL, 1000, 0), *much = node(all, 0, 100), *little = node(all, 0, 100);

	CHECK_INT(quota_take(much, 1000), 0);
	CHECK_INT(quota_take(much, 1), -ENOBUFS);
	CHECK(quota_tight(much, 0) == all && quota_spare(much) == 0);
	CHECK(!quota_tight(little, 0) && quota_spare(little) == 100);
	CHECK_INT(quota_reserve(little, 100), 0);
	CHECK(!quota_tight(little, 0));
	CHECK_INT(quota_take(little, 1), -ENOBUFS);
	quota_give(little, 100);
	quota_give(much, 1000);
	quota_unref(little);
	quota_unref(much);
	quota_unref(all);
}

TEST(a_soft_one_counts_and_never_refuses)
{
	struct quota *all = node(NULL, 100, 0);
	struct quota *q = quota_new(&(struct quota_options){ .parent = all, .name = "soft", .soft = true });

	CHECK_INT(quota_take(q, 1000), 0);
	CHECK_INT(quota_reserve(q, 1000), 0);
	CHECK_INT(quota_used(all), 2000);
	CHECK_INT(quota_take(all, 1), -ENOBUFS);
	quota_give(q, 2000);
	quota_unref(q);
	quota_unref(all);
}

TEST(promises_hold_nothing_and_stop_promises)
{
	struct quota *q = node(NULL, 3200, 0);

	CHECK(!quota_promise(q, 76));		/* three quarters are spare, and a 32nd of that is for one */
	CHECK(quota_promise(q, 75));
	CHECK(!quota_promise(q, 73));		/* 2325 are left of them */
	CHECK(quota_promise(q, 72));
	CHECK_INT(quota_used(q), 0);
	CHECK_INT(quota_spare(q), 2400);
	CHECK_INT(quota_promised(q), 147);
	CHECK_INT(quota_take(q, 3200), 0);	/* what comes counts, not what was promised */
	CHECK(!quota_promise(q, 1));
	quota_unpromise(q, 147);
	quota_give(q, 3200);
	quota_unref(q);
}

TEST(buffers_charge_their_block_before_they_have_it)
{
	struct quota *q = node(NULL, 1000, 0);
	struct buf b;
	char *s;

	buf_init(&b, 0);
	buf_set_quota(&b, q);
	CHECK_INT(buf_put(&b, "a", 1), 0);
	CHECK_INT(quota_used(q), 256);
	CHECK(buf_space(&b, 600) == NULL);	/* 1024 */
	CHECK_INT(buf_reserve(&b, 499, false), 0);	/* exactly */
	CHECK_INT(quota_used(q), 500);
	CHECK_INT(buf_put(&b, "0123456789", 10), 0);
	CHECK_INT(quota_used(q), 500);
	CHECK_INT(buf_reserve(&b, 600, true), -ENOBUFS);
	CHECK_INT(buf_printf(&b, "%01000d", 1), -ENOBUFS);
	s = buf_take_str(&b);
	CHECK_STR(s, "a0123456789");
	CHECK_INT(quota_used(q), 0);
	free(s);
	CHECK_INT(buf_put(&b, "x", 1), 0);
	buf_drop(&b, 1);
	buf_fini(&b);
	CHECK_INT(quota_used(q), 0);
	quota_unref(q);
}

TEST(a_charge_may_outlive_whoever_made_the_quota)
{
	struct quota *all = node(NULL, 1000, 0), *uid = node(all, 500, 0);
	struct charge c = { .quota = uid };

	CHECK_INT(charge_set(&c, 400), 0);
	quota_unref(uid);
	CHECK_INT(quota_used(all), 400);
	CHECK_INT(charge_set(&c, 450), 0);
	CHECK(!quota_is_idle(all));	/* of its child */
	charge_fini(&c);
	charge_fini(&c);		/* an empty one asks nobody */
	CHECK(quota_is_idle(all));
	quota_unref(all);
}

TEST(a_large_buffer_has_little_room_to_spare)
{
	struct buf b;

	buf_init(&b, 0);
	CHECK(buf_space(&b, (4u << 20) + 100));
	CHECK(b.cap >= (4u << 20) + 100 && b.cap < (6u << 20));
	buf_fini(&b);
}

/* --- any sequence: the tree agrees with a sum of its own, and at the end nothing is left --- */

#define LEAVES 6u

struct model {
	struct quota *root, *mid[2], *leaf[LEAVES];
	struct charge held[LEAVES][8];
	uint64_t sum[LEAVES], promised[LEAVES];
};

static uint64_t sum_below(const struct model *m, unsigned mid)
{
	uint64_t sum = 0;

	for (unsigned i = mid; i < LEAVES; i += 2)
		sum += m->sum[i];
	return sum;
}

static void check_sums(const struct model *m)
{
	for (unsigned i = 0; i < LEAVES; i++) {
		CHECK_INT(quota_used(m->leaf[i]), m->sum[i]);
		CHECK_INT(quota_promised(m->leaf[i]), m->promised[i]);
	}
	for (unsigned i = 0; i < 2; i++)
		CHECK_INT(quota_used(m->mid[i]), sum_below(m, i));
	CHECK_INT(quota_used(m->root), sum_below(m, 0) + sum_below(m, 1));
}

static void change(struct model *m, struct rng *rng)
{
	unsigned i = (unsigned)rng_below(rng, LEAVES);
	struct charge *c = &m->held[i][rng_below(rng, 8)];
	size_t n = (size_t)rng_below(rng, 4000), before = c->n;
	int r;

	c->quota = m->leaf[i];
	switch (rng_below(rng, 5)) {
	case 0:
		r = charge_set(c, n);
		CHECK(r == 0 ? c->n == n : r == -ENOBUFS && n > before && c->n == before);
		break;
	case 1:
		r = charge_reserve(c, n);
		CHECK(r == 0 ? c->n == before + n : r == -ENOBUFS && c->n == before);
		break;
	case 2:
		charge_fini(c);
		break;
	case 3:
		if (quota_promise(m->leaf[i], n))
			m->promised[i] += n;
		break;
	default:
		quota_unpromise(m->leaf[i], m->promised[i]);
		m->promised[i] = 0;
	}
	m->sum[i] += c->n - before;
	CHECK(quota_used(m->mid[i % 2]) <= 20000);
	CHECK(quota_used(m->root) <= 30000 + 2 * 1000);	/* what is kept goes on top */
}

TEST(any_sequence_ends_with_nothing)
{
	for (uint64_t seed = 1; seed <= 50; seed++) {
		struct model m = { .root = node(NULL, 30000, 0) };
		struct rng rng;

		rng_seed(&rng, seed);
		for (unsigned i = 0; i < 2; i++)
			m.mid[i] = node(m.root, 20000, 1000);
		for (unsigned i = 0; i < LEAVES; i++)
			m.leaf[i] = node(m.mid[i % 2], i ? 9000 : 0, 0);
		for (unsigned k = 0; k < 2000; k++) {
			change(&m, &rng);
			check_sums(&m);
		}
		for (unsigned i = 0; i < LEAVES; i++) {
			for (unsigned k = 0; k < 8; k++)
				charge_fini(&m.held[i][k]);
			quota_unpromise(m.leaf[i], m.promised[i]);
		}
		CHECK_INT(quota_used(m.root), 0);
		for (unsigned i = 0; i < LEAVES; i++)
			quota_unref(m.leaf[i]);
		quota_unref(m.mid[0]);
		quota_unref(m.mid[1]);
		CHECK(quota_is_idle(m.root));
		quota_unref(m.root);
	}
}

TEST_MAIN()
