/* SPDX-License-Identifier: MIT */
#include "proto/cloud/model.h"
#include "tests/lib/test.h"

TEST(versions)
{
	static const struct {
		const char *a, *b;
		int want;
	} t[] = {
		{ "0.5.7", "0.5.7", 0 },    { "0.5.10", "0.5.7", 1 }, { "v0.6.13", "0.6.2", 1 },
		{ "0.3", "0.3.0", 0 },	    { "0.4.0", "v1.0.0", -1 }, { "", "0.0.1", -1 },
		{ "0.6.7-rc1", "0.6.7", 0 }, { "garbage", "0.0.0", 0 },
		{ "99999999999999.1", "1000000.1", 0 },		/* no overflow */
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		CHECK_INT(cloud_version_cmp(t[i].a, t[i].b), t[i].want);
}

TEST(ids)
{
	CHECK(cloud_is_sandbox_id("i0a1b2c3d4e5f6g7h8i9j"));
	CHECK(!cloud_is_sandbox_id(""));
	CHECK(!cloud_is_sandbox_id("a-b"));
	CHECK(!cloud_is_sandbox_id("A"));
	CHECK(!cloud_is_sandbox_id("../x"));
}

TEST(lists_grow)
{
	struct cloud_kvs l = { 0 };
	struct cloud_strs s = { 0 };
	char key[16];

	for (int i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		CHECK_INT(cloud_kvs_add(&l, key, "v"), 0);
		CHECK_INT(cloud_strs_add(&s, key), 0);
	}
	CHECK_STR(cloud_kvs_get(&l, "k999"), "v");
	CHECK(!cloud_kvs_get(&l, "k1000"));
	CHECK_STR(s.v[999], "k999");
	cloud_kvs_fini(&l);
	cloud_strs_fini(&s);
}

TEST_MAIN()
