/* SPDX-License-Identifier: MIT */
#include "tests/lib/test.h"

#include "daemon/rpc/admit.h"

static const struct admit_limits limits = {
	.conns_per_uid = 2, .conns = 3, .streams_per_uid = 2, .streams = 5,
	.calls_per_uid = 4, .calls = 5, .calls_kept = 2,
};

TEST(a_uid_is_bounded_and_others_are_not)
{
	struct admit_uid *a[4], *b;
	struct admit adm;

	admit_init(&adm, &limits);
	CHECK_INT(admit_take(&adm, 1, ADMIT_STREAM, &a[0]), ADMIT_OK);
	CHECK_INT(admit_take(&adm, 1, ADMIT_STREAM, &a[1]), ADMIT_OK);
	CHECK_INT(admit_take(&adm, 1, ADMIT_STREAM, &a[2]), ADMIT_UID_FULL);
	CHECK_INT(admit_take(&adm, 2, ADMIT_STREAM, &b), ADMIT_OK);
	CHECK_INT(admit_held(&adm, 1, ADMIT_STREAM), 2);
	admit_give_back(&adm, a[0], ADMIT_STREAM);
	CHECK_INT(admit_take(&adm, 1, ADMIT_STREAM, &a[0]), ADMIT_OK);
	admit_give_back(&adm, a[0], ADMIT_STREAM);
	admit_give_back(&adm, a[1], ADMIT_STREAM);
	admit_give_back(&adm, b, ADMIT_STREAM);
	CHECK_INT(map_size(&adm.uids), 0);
	admit_fini(&adm);
}

TEST(kinds_do_not_eat_each_other)
{
	struct admit_uid *u[3];
	struct admit adm;

	admit_init(&adm, &limits);
	CHECK_INT(admit_take(&adm, 1, ADMIT_STREAM, &u[0]), ADMIT_OK);
	CHECK_INT(admit_take(&adm, 1, ADMIT_STREAM, &u[1]), ADMIT_OK);
	CHECK_INT(admit_take(&adm, 1, ADMIT_CALL, &u[2]), ADMIT_OK);
	admit_give_back(&adm, u[0], ADMIT_STREAM);
	admit_give_back(&adm, u[1], ADMIT_STREAM);
	admit_give_back(&adm, u[2], ADMIT_CALL);
	admit_fini(&adm);
}

TEST(kept_slots_are_there_when_all_are_taken)
{
	struct admit_uid *u[7], *more;
	struct admit adm;

	admit_init(&adm, &limits);
	for (int i = 0; i < 4; i++)
		CHECK_INT(admit_take(&adm, 1, ADMIT_CALL, &u[i]), ADMIT_OK);
	CHECK_INT(admit_take(&adm, 1, ADMIT_CALL, &more), ADMIT_UID_FULL);
	for (int i = 4; i < 6; i++)	/* the sixth is above all, but one of those kept */
		CHECK_INT(admit_take(&adm, 2, ADMIT_CALL, &u[i]), ADMIT_OK);
	CHECK_INT(admit_take(&adm, 2, ADMIT_CALL, &more), ADMIT_ALL_FULL);
	CHECK_INT(admit_take(&adm, 3, ADMIT_CALL, &u[6]), ADMIT_OK);
	for (int i = 0; i < 7; i++)
		admit_give_back(&adm, u[i], ADMIT_CALL);
	admit_fini(&adm);
}

TEST(a_limit_of_its_own_stays)
{
	struct admit_uid *u[3], *more;
	struct admit adm;

	admit_init(&adm, &limits);
	CHECK_INT(admit_reserve(&adm, 1), 0);
	admit_set_streams(&adm, 2, &(struct admit_uid_limit){ .uid = 1, .streams = 3 }, 1);
	CHECK_INT(admit_max_streams(&adm, 1), 3);
	CHECK_INT(admit_max_streams(&adm, 2), 2);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 3; i++)
			CHECK_INT(admit_take(&adm, 1, ADMIT_STREAM, &u[i]), ADMIT_OK);
		CHECK_INT(admit_take(&adm, 1, ADMIT_STREAM, &more), ADMIT_UID_FULL);
		for (int i = 0; i < 3; i++)
			admit_give_back(&adm, u[i], ADMIT_STREAM);
	}
	admit_fini(&adm);
}

/* Another configuration: who holds more keeps it and gets nothing new, and who lost its own number is like all. */
TEST(other_numbers_count_at_once)
{
	struct admit_uid *u[3], *more;
	struct admit adm;

	admit_init(&adm, &limits);
	CHECK_INT(admit_reserve(&adm, 1), 0);
	admit_set_streams(&adm, 2, &(struct admit_uid_limit){ .uid = 1, .streams = 3 }, 1);
	for (int i = 0; i < 3; i++)
		CHECK_INT(admit_take(&adm, 1, ADMIT_STREAM, &u[i]), ADMIT_OK);
	CHECK_INT(admit_reserve(&adm, 2), 0);
	admit_set_streams(&adm, 1, &(struct admit_uid_limit){ .uid = 2, .streams = 2 }, 1);
	CHECK_INT(admit_max_streams(&adm, 1), 1);
	CHECK_INT(admit_max_streams(&adm, 2), 2);
	CHECK_INT(admit_max_streams(&adm, 3), 1);
	CHECK_INT(admit_held(&adm, 1, ADMIT_STREAM), 3);
	admit_give_back(&adm, u[2], ADMIT_STREAM);
	CHECK_INT(admit_take(&adm, 1, ADMIT_STREAM, &more), ADMIT_UID_FULL);
	admit_give_back(&adm, u[1], ADMIT_STREAM);
	admit_give_back(&adm, u[0], ADMIT_STREAM);
	CHECK_INT(map_size(&adm.uids), 1);	/* uid 2's, which has a limit */
	admit_set_streams(&adm, 1, NULL, 0);
	CHECK_INT(map_size(&adm.uids), 0);
	admit_fini(&adm);
}

TEST_MAIN()
