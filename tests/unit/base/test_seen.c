/* SPDX-License-Identifier: MIT */
/* A filter that forgets, and never says no to what it has. */
#include <stdio.h>

#include "proto/base/seen.h"
#include "tests/lib/test.h"

#define KEEP_MS 1000u

static size_t key(char ret[32], unsigned i)
{
	return (size_t)snprintf(ret, 32, "1000 Create/%u", i);
}

static void add(struct seen *s, unsigned from, unsigned n, uint64_t now_ms)
{
	char k[32];

	for (unsigned i = from; i < from + n; i++)
		seen_add(s, k, key(k, i), now_ms, KEEP_MS);
}

static unsigned found(const struct seen *s, unsigned from, unsigned n, uint64_t now_ms)
{
	unsigned yes = 0;
	char k[32];

	for (unsigned i = from; i < from + n; i++)
		yes += seen_may_have(s, k, key(k, i), now_ms);
	return yes;
}

TEST(empty_has_nothing)
{
	struct seen s = { 0 };

	CHECK_INT(found(&s, 0, 1000, 0), 0);
	CHECK_INT(found(&s, 0, 1000, 1u << 31), 0);
	seen_fini(&s);
}

TEST(all_that_were_added_and_hardly_any_other)
{
	struct seen s = { 0 };

	add(&s, 0, 3 * SEEN_PER_FILTER / 2, 5);
	CHECK_INT(s.n, 2);
	CHECK_INT(found(&s, 0, 3 * SEEN_PER_FILTER / 2, 6), 3 * SEEN_PER_FILTER / 2);
	CHECK(found(&s, 10000000, 100000, 6) < 4000);
	seen_fini(&s);
}

/* A filter leaves when its youngest key has been kept long enough, not before. */
TEST(old_ones_leave)
{
	struct seen s = { 0 };

	add(&s, 0, SEEN_PER_FILTER - 1, 10);
	add(&s, SEEN_PER_FILTER - 1, 1, 500);
	add(&s, SEEN_PER_FILTER, 10, 600);
	add(&s, 1, 1, 500 + KEEP_MS);
	CHECK_INT(s.n, 2);
	CHECK_INT(found(&s, 0, SEEN_PER_FILTER, 500 + KEEP_MS), SEEN_PER_FILTER);
	add(&s, 2, 1, 501 + KEEP_MS);
	CHECK_INT(s.n, 1);
	CHECK_INT(found(&s, SEEN_PER_FILTER, 10, 501 + KEEP_MS), 10);
	CHECK(found(&s, 3, 1000, 501 + KEEP_MS) < 10);
	seen_fini(&s);
}

/* One more than all filters have room for: until it would have left nobody is told no. */
TEST(no_place_is_yes_to_all)
{
	struct seen s = { 0 };

	add(&s, 0, SEEN_FILTERS * SEEN_PER_FILTER, 10);
	CHECK(found(&s, 1u << 30, 1000, 11) < 500);
	add(&s, 1, 1, 20);
	CHECK_INT(found(&s, 1u << 30, 1000, 19 + KEEP_MS), 1000);
	CHECK(found(&s, 1u << 30, 1000, 20 + KEEP_MS) < 500);
	seen_add_unknown(&s);
	add(&s, 1, 1, 2000000);
	CHECK_INT(found(&s, 1u << 30, 1000, UINT64_MAX - 1), 1000);
	seen_fini(&s);
}

TEST_MAIN()
