/* SPDX-License-Identifier: MIT */
#include "daemon/common/obs/histogram.h"
#include "tests/lib/test.h"

TEST(each_value_is_in_one_step)
{
	static const struct {
		uint64_t us;
		unsigned step;
	} t[] = { { 0, 0 }, { 500, 0 }, { 501, 1 }, { 60000000, HISTOGRAM_STEPS - 1 }, { 60000001, HISTOGRAM_STEPS },
		  { UINT32_MAX, HISTOGRAM_STEPS } };
	struct histogram h = { .sum_us = 0 };
	uint64_t sum = 0;

	for (unsigned i = 1; i < HISTOGRAM_STEPS; i++)
		CHECK(histogram_bounds_us[i - 1] < histogram_bounds_us[i]);
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		uint64_t before = h.n[t[i].step];

		histogram_add(&h, t[i].us);
		sum += t[i].us;
		CHECK_INT(h.n[t[i].step], before + 1);
	}
	CHECK_INT(histogram_count(&h), ARRAY_SIZE(t));
	CHECK_INT(h.sum_us, sum);
}

TEST_MAIN()
