/* SPDX-License-Identifier: MIT */
#include "proto/base/map.h"

#include "tests/lib/test.h"

TEST(put_get_del_and_walk)
{
	struct map m = MAP_NULL;
	static int v[5000];
	size_t pos = 0, seen = 0;

	for (uint64_t i = 0; i < ARRAY_SIZE(v); i++)
		CHECK_INT(map_put_u64(&m, i, &v[i]), 0);
	CHECK_INT(map_size(&m), ARRAY_SIZE(v));
	for (uint64_t i = 0; i < ARRAY_SIZE(v); i++)
		CHECK(map_get_u64(&m, i) == &v[i]);
	while (map_next(&m, &pos))
		seen++;
	CHECK_INT(seen, ARRAY_SIZE(v));
	for (uint64_t i = 0; i < ARRAY_SIZE(v); i += 2)
		CHECK(map_del_u64(&m, i) == &v[i]);
	CHECK(!map_get_u64(&m, 4));
	CHECK(map_get_u64(&m, 5) == &v[5]);
	CHECK_INT(map_size(&m), ARRAY_SIZE(v) / 2);
	map_fini(&m);
}

TEST(reserved_room_changes_nothing_else)
{
	struct map m = MAP_NULL;
	static int v[100];
	size_t n_slots;

	CHECK_INT(map_put_u64(&m, 0, &v[0]), 0);
	map_reserve(&m, ARRAY_SIZE(v));
	n_slots = m.n_slots;
	CHECK(map_get_u64(&m, 0) == &v[0]);
	for (uint64_t i = 1; i < ARRAY_SIZE(v); i++)
		CHECK_INT(map_put_u64(&m, i, &v[i]), 0);
	CHECK_INT(m.n_slots, n_slots);
	map_reserve(&m, 3);
	CHECK_INT(m.n_slots, n_slots);
	for (uint64_t i = 0; i < ARRAY_SIZE(v); i++)
		CHECK(map_get_u64(&m, i) == &v[i]);
	map_fini(&m);
}

TEST(same_key_replaces_and_a_prefix_is_another_key)
{
	struct map m = MAP_NULL;
	int a, b;

	CHECK_INT(map_put_str(&m, "key", &a), 0);
	CHECK_INT(map_put_str(&m, "key", &b), 0);
	CHECK_INT(map_size(&m), 1);
	CHECK(map_get_str(&m, "key") == &b);
	CHECK(!map_get_str(&m, "ke"));
	CHECK(!map_del_str(&m, "keys"));
	map_fini(&m);
}

TEST_MAIN()
