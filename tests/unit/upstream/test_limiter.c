/* SPDX-License-Identifier: MIT */
#include "daemon/upstream/limiter.h"
#include "tests/lib/test.h"

static enum limiter_result enter(struct limiter *l, struct limiter_ticket *t, uid_t uid,
				 unsigned route, uint64_t deadline, uint64_t now)
{
	uint32_t wait;

	t->uid = uid;
	t->route = route;
	return limiter_enter(l, t, deadline, now, &wait);
}

/* Uid 1 has 100 waiting; uid 2 comes later and is still served every second time. */
TEST(fair)
{
	struct limiter_ticket t[100] = { 0 }, late[3] = { 0 };
	struct limiter l;
	unsigned seen = 0;

	limiter_init(&l, 1);
	for (int i = 0; i < 100; i++)
		CHECK_INT(enter(&l, &t[i], 1, 0, 0, 0), LIMITER_OK);
	for (int i = 0; i < 10; i++) {
		struct limiter_ticket *n = limiter_next(&l, 0);

		CHECK(n == &t[i]);
		CHECK(!limiter_next(&l, 0));		/* one at a time */
		limiter_leave(&l, n, true);
	}
	for (int i = 0; i < 3; i++)
		CHECK_INT(enter(&l, &late[i], 2, 0, 0, 0), LIMITER_OK);
	for (int i = 0; i < 8; i++) {
		struct limiter_ticket *n = limiter_next(&l, 0);

		seen += n->uid == 2;
		limiter_leave(&l, n, true);
	}
	CHECK_INT(seen, 3);
	for (int i = 0; i < 100; i++)
		limiter_leave(&l, &t[i], true);
	CHECK_INT(l.n_queued, 0);
	CHECK_INT(l.in_flight, 0);
}

/* A route is blocked, and who waits for it in numbers uses another: who comes late to the first still has its turn. */
TEST(fair_over_routes)
{
	struct limiter_ticket t[20] = { 0 }, other = { 0 }, late = { 0 };
	struct limiter l;

	limiter_init(&l, 4);
	limiter_block(&l, 1, 1000, 0);
	for (int i = 0; i < 20; i++)
		CHECK_INT(enter(&l, &t[i], 1, 1, 60000, 0), LIMITER_OK);
	CHECK_INT(enter(&l, &other, 1, 2, 60000, 0), LIMITER_OK);
	CHECK(limiter_next(&l, 0) == &other);
	limiter_leave(&l, &other, true);
	CHECK_INT(enter(&l, &late, 2, 1, 60000, 0), LIMITER_OK);
	CHECK(limiter_next(&l, 1000) == &t[0]);
	limiter_leave(&l, &t[0], false);
	CHECK(limiter_next(&l, 1000) == &late);
	limiter_leave(&l, &late, false);
	for (int i = 0; i < 20; i++)
		limiter_leave(&l, &t[i], false);
}

TEST(background_last)
{
	struct limiter_ticket bg = { .background = true }, user = { 0 };
	struct limiter l;

	limiter_init(&l, 4);
	CHECK_INT(enter(&l, &bg, 0, 0, 0, 0), LIMITER_OK);
	CHECK_INT(enter(&l, &user, 5, 0, 0, 0), LIMITER_OK);
	CHECK(limiter_next(&l, 0) == &user);
	CHECK(limiter_next(&l, 0) == &bg);
	limiter_leave(&l, &user, true);
	limiter_leave(&l, &bg, true);
}

/* 429 with Retry-After 10 s: nothing of that route goes, other routes do; then one, then two … */
TEST(blocked_then_slow_start)
{
	struct limiter_ticket t[8] = { 0 }, other = { 0 };
	struct limiter l;
	uint64_t now = 1000;

	limiter_init(&l, 16);
	limiter_block(&l, 2, 10000, now);
	for (int i = 0; i < 8; i++)
		CHECK_INT(enter(&l, &t[i], 1, 2, 60000, now), LIMITER_OK);
	CHECK_INT(enter(&l, &other, 1, 3, 60000, now), LIMITER_OK);
	CHECK(limiter_next(&l, now) == &other);
	CHECK(!limiter_next(&l, now));
	CHECK_INT(limiter_wake_ms(&l, now), 11000);
	CHECK_INT(limiter_blocked_until_ms(&l, now), 11000);
	now = 11000;
	CHECK_INT(limiter_blocked_until_ms(&l, now), 0);
	CHECK(limiter_next(&l, now) == &t[0]);
	CHECK(!limiter_next(&l, now));
	CHECK_INT(limiter_wake_ms(&l, now), UINT64_MAX);
	limiter_leave(&l, &t[0], true);
	CHECK(limiter_next(&l, now) == &t[1]);
	CHECK(limiter_next(&l, now) == &t[2]);
	CHECK(!limiter_next(&l, now));
	for (int i = 0; i < 8; i++)
		limiter_leave(&l, &t[i], false);
	limiter_leave(&l, &other, true);
}

TEST(too_late)
{
	struct limiter_ticket t = { .route = 1 };
	struct limiter l;
	uint32_t wait = 0;

	limiter_init(&l, 1);
	limiter_block(&l, 1, 5000, 100);
	CHECK_INT(limiter_enter(&l, &t, 3000, 100, &wait), LIMITER_LATE);
	CHECK_INT(wait, 5000);
	CHECK_INT(limiter_enter(&l, &t, 6000, 100, &wait), LIMITER_OK);
	limiter_leave(&l, &t, false);
	CHECK_INT(limiter_enter(&l, &t, 0, 100, &wait), LIMITER_OK);	/* no deadline: waits */
	limiter_leave(&l, &t, false);
}

TEST(full)
{
	static struct limiter_ticket t[LIMITER_QUEUE_MAX + 1];
	struct limiter l;

	limiter_init(&l, 1);
	for (size_t i = 0; i < LIMITER_QUEUE_MAX; i++)
		CHECK_INT(enter(&l, &t[i], (uid_t)i, 0, 0, 0), LIMITER_OK);
	CHECK_INT(enter(&l, &t[LIMITER_QUEUE_MAX], 1, 0, 0, 0), LIMITER_FULL);
	limiter_leave(&l, &t[7], false);
	CHECK_INT(enter(&l, &t[LIMITER_QUEUE_MAX], 1, 0, 0, 0), LIMITER_OK);
}

/* 3 of 5 left, full in 1 s: two more than what is under way, then one each half second. */
TEST(budget)
{
	struct limiter_ticket t[8] = { 0 }, other = { 0 };
	struct limiter l;
	uint64_t now = 1000;

	limiter_init(&l, 16);
	for (int i = 0; i < 8; i++)
		CHECK_INT(enter(&l, &t[i], 1, 2, 60000, now), LIMITER_OK);
	CHECK(limiter_next(&l, now) == &t[0]);
	CHECK(limiter_next(&l, now) == &t[1]);
	limiter_budget(&l, 2, 5, 3, 1, now);	/* in the answer to one of the two */
	limiter_leave(&l, &t[0], true);
	CHECK(limiter_next(&l, now) == &t[2]);
	CHECK(limiter_next(&l, now) == &t[3]);
	CHECK(!limiter_next(&l, now));
	CHECK_INT(limiter_wake_ms(&l, now), 1500);
	CHECK_INT(limiter_route_at_ms(&l, 2, now), 1500);
	CHECK_INT(limiter_route_at_ms(&l, 3, now), 1000);
	CHECK_INT(enter(&l, &other, 1, 3, 60000, now), LIMITER_OK);
	CHECK(limiter_next(&l, now) == &other);
	CHECK(!limiter_next(&l, 1499));
	CHECK(limiter_next(&l, 1500) == &t[4]);
	CHECK(!limiter_next(&l, 1500));

	/* Rates are lower bounds: the best one counts. What is left is what the cloud said last. */
	limiter_budget(&l, 2, 5, 4, 1, 1500);
	CHECK_INT(limiter_route_at_ms(&l, 2, 1500), 1500);
	CHECK(limiter_next(&l, 1500) == &t[5]);
	CHECK(!limiter_next(&l, 1500));
	CHECK_INT(limiter_wake_ms(&l, 1500), 2000);
	/* Never more than the bucket holds, however long nobody asked. */
	for (int i = 1; i < 8; i++)
		limiter_leave(&l, &t[i], true);
	limiter_leave(&l, &other, true);
	for (int i = 0; i < 8; i++)
		CHECK_INT(enter(&l, &t[i], 1, 2, 0, 900000000), LIMITER_OK);
	for (int i = 0; i < 5; i++)
		CHECK(limiter_next(&l, 900000000));
	CHECK(!limiter_next(&l, 900000000));
	/* Nonsense, and a cloud that stops telling: no budget. */
	limiter_budget(&l, 2, 5, 6, 1, 900000000);
	CHECK(limiter_next(&l, 900000000));
	for (int i = 0; i < 8; i++)
		limiter_leave(&l, &t[i], true);
}

/* B-4: a cloud that says absurd things stops nobody for longer than 300 s. */
TEST(patience_ends)
{
	struct limiter_ticket t[3] = { 0 };
	struct limiter l;

	limiter_init(&l, 8);
	limiter_block(&l, 1, UINT32_MAX, 1000);
	CHECK_INT(limiter_route_at_ms(&l, 1, 1000), 301000);
	limiter_budget(&l, 2, 1, 0, 86400, 1000);
	CHECK_INT(limiter_route_at_ms(&l, 2, 1000), 301000);
	for (int i = 0; i < 3; i++)
		CHECK_INT(enter(&l, &t[i], 1, 2, 0, 1000), LIMITER_OK);
	CHECK(!limiter_next(&l, 300999));
	CHECK(limiter_next(&l, 301000) == &t[0]);
	CHECK(!limiter_next(&l, 301000));
	CHECK_INT(limiter_wake_ms(&l, 301000), 601000);
	for (int i = 0; i < 3; i++)
		limiter_leave(&l, &t[i], false);
}

/* What a route is given: by the cloud's word, else by what passed between two of its refusals. */
TEST(rates)
{
	struct limiter_ticket t[4] = { 0 };
	uint32_t rate, tokens;
	struct limiter l;

	limiter_init(&l, 8);
	CHECK(!limiter_rate(&l, 1, 1000, &rate, &tokens));
	limiter_block(&l, 1, 1000, 1000);
	CHECK(!limiter_rate(&l, 1, 1000, &rate, &tokens));	/* one refusal says nothing of the pace */
	for (int i = 0; i < 4; i++) {
		CHECK_INT(enter(&l, &t[i], 1, 1, 0, 2000), LIMITER_OK);
		CHECK(limiter_next(&l, 2000) == &t[i]);
		limiter_leave(&l, &t[i], true);
	}
	limiter_block(&l, 1, 1000, 3000);
	limiter_block(&l, 1, 1000, 3001);	/* of the same moment: not another measure */
	CHECK(limiter_rate(&l, 1, 3001, &rate, &tokens));
	CHECK_INT(rate, 2000);	/* four from 2000 to 4000 */
	CHECK_INT(tokens, 0);
	CHECK(!limiter_rate(&l, 2, 3001, &rate, &tokens));
	/* The cloud's word goes before it. */
	limiter_budget(&l, 1, 10, 5, 5, 5000);
	CHECK(limiter_rate(&l, 1, 5000, &rate, &tokens));
	CHECK_INT(rate, 1000);
	CHECK_INT(tokens, 5);
}

/* What waits in the background makes nobody's turn later; with all in flight nothing wakes it. */
TEST(rounds)
{
	struct limiter_ticket stuck = { .background = true }, a = { 0 }, b = { 0 }, again = { 0 };
	struct limiter l;

	limiter_init(&l, 2);
	limiter_block(&l, 1, 1000, 0);
	CHECK_INT(enter(&l, &stuck, 1, 1, 0, 0), LIMITER_OK);
	CHECK_INT(enter(&l, &a, 2, 0, 0, 0), LIMITER_OK);
	CHECK_INT(enter(&l, &b, 2, 0, 0, 0), LIMITER_OK);
	CHECK(limiter_next(&l, 0) == &a && limiter_next(&l, 0) == &b);
	CHECK(limiter_wake_ms(&l, 0) == UINT64_MAX);
	CHECK_INT(enter(&l, &again, 1, 0, 0, 0), LIMITER_OK);
	CHECK_INT(again.round, l.round);
	limiter_leave(&l, &a, true);
	CHECK(limiter_next(&l, 0) == &again);
	limiter_leave(&l, &b, true);
	CHECK_INT(limiter_wake_ms(&l, 0), 1000);
	limiter_leave(&l, &again, true);
	limiter_leave(&l, &stuck, false);
}

TEST_MAIN()
