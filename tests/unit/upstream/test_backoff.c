/* SPDX-License-Identifier: MIT */
#include "daemon/upstream/backoff.h"
#include "tests/lib/test.h"

TEST(range)
{
	static const struct {
		unsigned failures;
		uint32_t base, max, lo, hi;
	} t[] = {
		{ 1, 200, 10000, 100, 200 },
		{ 2, 200, 10000, 200, 400 },
		{ 4, 200, 10000, 800, 1600 },
		{ 9, 200, 10000, 5000, 10000 },
		{ 4000000000u, 200, 10000, 5000, 10000 },	/* no overflow, still capped */
		{ 1, 1, 1, 0, 1 },
		{ 3, 0, 100, 0, 0 },				/* no wait at all */
		{ 1, 500, 100, 50, 100 },			/* base above the cap */
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		for (uint64_t rnd = 0; rnd < 5000; rnd += 7) {
			uint32_t d = backoff_ms(t[i].failures, t[i].base, t[i].max, rnd);

			CHECK(d >= t[i].lo && d <= t[i].hi);
		}
	CHECK_INT(backoff_ms(1, 200, 10000, UINT64_MAX) >= 100, 1);
}

TEST_MAIN()
