/* SPDX-License-Identifier: MIT */
/* How long something took, counted in fixed steps: what OpenMetrics calls a histogram. */
#ifndef AB_DAEMON_COMMON_OBS_HISTOGRAM_H
#define AB_DAEMON_COMMON_OBS_HISTOGRAM_H

#include "proto/base/cc.h"

#define HISTOGRAM_STEPS 16u

/* The upper bounds, in microseconds, rising. */
extern const uint64_t histogram_bounds_us[HISTOGRAM_STEPS];

struct histogram {
	uint64_t n[HISTOGRAM_STEPS + 1];	/* of each step alone; the last one is above every bound */
	uint64_t sum_us;
};

void histogram_add(struct histogram *h, uint64_t us);
uint64_t histogram_count(const struct histogram *h);

#endif
