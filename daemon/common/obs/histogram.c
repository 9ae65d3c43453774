/* SPDX-License-Identifier: MIT */
#include "daemon/common/obs/histogram.h"

const uint64_t histogram_bounds_us[HISTOGRAM_STEPS] = {
	500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000, 30000000, 60000000,
};

void histogram_add(struct histogram *h, uint64_t us)
{
	unsigned i = 0;

	while (i < HISTOGRAM_STEPS && us > histogram_bounds_us[i])
		i++;
	h->n[i]++;
	h->sum_us += us;
}

uint64_t histogram_count(const struct histogram *h)
{
	uint64_t n = 0;

	for (unsigned i = 0; i <= HISTOGRAM_STEPS; i++)
		n += h->n[i];
	return n;
}
