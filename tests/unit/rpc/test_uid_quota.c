/* SPDX-License-Identifier: MIT */
/* JUDGED G-3: a quota for each uid, found again as long as it is of use. */
#include "daemon/auth/uid_quota.h"

#include "tests/lib/test.h"

#define MIB (1u << 20)

static struct uid_quotas *quotas(void)
{
	struct uid_quotas *u = uid_quotas_new(&(struct uid_quotas_options){ .max = 64 * MIB, .max_per_uid = 20 * MIB });

	CHECK(u);
	return u;
}

static void check_read(const struct uid_quotas *u, uid_t uid, uint64_t used, uint64_t max)
{
	uint64_t got_used, got_max;

	uid_quota_read(u, uid, &got_used, &got_max);
	CHECK_INT(got_used, used);
	CHECK_INT(got_max, max);
}

TEST(a_uid_has_one_quota)
{
	struct uid_quotas *u = quotas();
	struct quota *a = uid_quota(u, 1000), *b = uid_quota(u, 1001);

	CHECK(a && b && a != b);
	CHECK(uid_quota(u, 1000) == a);
	quota_unref(a);
	CHECK_STR(quota_name(a), "uid 1000");
	CHECK_INT(quota_take(a, 3 * MIB), 0);
	check_read(u, 1000, 3 * MIB, 20 * MIB);
	check_read(u, 1001, 0, 20 * MIB);
	check_read(u, 1002, 0, 20 * MIB);
	CHECK_INT(quota_used(uid_quotas_all(u)), 3 * MIB);
	quota_give(a, 3 * MIB);
	quota_unref(a);
	quota_unref(b);
	uid_quotas_free(u);
}

static void set_own(struct uid_quotas *u, uid_t uid, uint64_t max)
{
	const struct uid_quotas_options o = { .max = 64 * MIB, .max_per_uid = 20 * MIB };

	CHECK_INT(uid_quotas_reserve(u, uid), 0);
	uid_quotas_set(u, &o, &(struct uid_quota_limit){ .uid = uid, .max = max }, 1);
}

TEST(one_uid_may_have_a_maximum_of_its_own)
{
	struct uid_quotas *u = quotas();
	struct quota *q;

	set_own(u, 7, 5 * MIB);
	check_read(u, 7, 0, 5 * MIB);
	q = uid_quota(u, 7);
	CHECK(quota_take(q, 5 * MIB + 1) < 0);
	CHECK_INT(quota_take(q, 5 * MIB), 0);
	quota_give(q, 5 * MIB);
	quota_unref(q);
	uid_quotas_free(u);
}

/* Another configuration: what is held stays, and what comes is measured by the new maxima. */
TEST(other_maxima_count_at_once)
{
	struct uid_quotas *u = quotas();
	struct quota *a = uid_quota(u, 1), *b = uid_quota(u, 7);

	set_own(u, 7, 5 * MIB);
	CHECK_INT(quota_take(a, 20 * MIB), 0);
	CHECK_INT(quota_take(b, 5 * MIB), 0);
	uid_quotas_set(u, &(struct uid_quotas_options){ .max = 32 * MIB, .max_per_uid = 10 * MIB }, NULL, 0);
	check_read(u, 1, 20 * MIB, 10 * MIB);
	check_read(u, 7, 5 * MIB, 10 * MIB);
	CHECK_INT(quota_max(uid_quotas_all(u)), 32 * MIB);
	CHECK(quota_take(a, 1) < 0);
	CHECK_INT(quota_take(b, 5 * MIB), 0);
	CHECK(quota_take(b, 1) < 0);
	quota_give(b, 10 * MIB);
	quota_give(a, 20 * MIB);
	CHECK_INT(quota_take(a, 10 * MIB), 0);
	quota_give(a, 10 * MIB);
	quota_unref(a);
	quota_unref(b);
	uid_quotas_free(u);
}

/* Four uids take everything; a fifth still has its part. */
TEST(a_part_is_kept_for_each)
{
	struct uid_quotas *u = quotas();
	struct quota *q[5];

	for (uid_t i = 0; i < 5; i++)
		q[i] = uid_quota(u, i);
	for (int i = 0; i < 4; i++)
		CHECK_INT(quota_take(q[i], 16 * MIB), 0);
	CHECK_INT(quota_reserve(q[4], 64 * MIB / UID_QUOTA_KEPT), 0);
	CHECK(quota_reserve(q[4], 1) < 0);
	quota_give(q[4], 64 * MIB / UID_QUOTA_KEPT);
	for (int i = 0; i < 5; i++) {
		quota_give(q[i], i < 4 ? 16 * MIB : 0);
		quota_unref(q[i]);
	}
	uid_quotas_free(u);
}

/* Uids come and go without end; those that hold something, or have a maximum of their own, stay. */
TEST(those_of_no_use_are_forgotten)
{
	struct uid_quotas *u = quotas();
	struct quota *holds = uid_quota(u, 5), *known = uid_quota(u, 6);

	CHECK_INT(quota_take(holds, MIB), 0);
	quota_unref(holds);
	set_own(u, 7, 5 * MIB);
	for (uid_t uid = 1000; uid < 20000; uid++)
		quota_unref(uid_quota(u, uid));
	CHECK(uid_quota(u, 5) == holds);
	CHECK(uid_quota(u, 6) == known);
	check_read(u, 5, MIB, 20 * MIB);
	check_read(u, 7, 0, 5 * MIB);
	quota_give(holds, MIB);
	quota_unref(holds);
	quota_unref(known);
	quota_unref(known);
	uid_quotas_free(u);
}

TEST(a_quota_outlives_the_set)
{
	struct uid_quotas *u = quotas();
	struct quota *q = uid_quota(u, 1);

	CHECK_INT(quota_take(q, 10), 0);
	uid_quotas_free(u);
	quota_give(q, 10);
	quota_unref(q);
}

TEST_MAIN()
