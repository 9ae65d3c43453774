/* SPDX-License-Identifier: MIT */
/* What a sandbox used, over time: one point each METER_EVERY_MS, the last METER_POINTS_MAX kept. Pure. */
#ifndef AB_DAEMON_LOCAL_STATE_METER_H
#define AB_DAEMON_LOCAL_STATE_METER_H

#include <stdbool.h>

#include "daemon/local/engine/container.h"
#include "proto/cloud/model.h"

#define METER_EVERY_MS	 5000u
#define METER_POINTS_MAX 17280u	/* a day; then the oldest go */

struct meter_point {
	int64_t at_s;		/* wall clock */
	float cpu_pct;		/* of all its processors, since the point before */
	uint64_t mem, cache, mem_total, disk, disk_total;
	uint32_t n_cpus;
};

struct meter {
	struct meter_point *v;	/* a ring once it is full */
	uint32_t n, cap, first;
	uint64_t cpu_us, at_us;	/* of the last reading */
};

void meter_fini(struct meter *m);
/* Time is counted from here: what stood still did not use its processors. */
void meter_restart(struct meter *m, uint64_t cpu_us, uint64_t now_us);
/* now_us: of a clock that only grows. Without memory a point is lost. */
void meter_add(struct meter *m, const struct container_usage *u, int64_t wall_s, uint64_t now_us);

/* Share of all its processors in per cent since a reading of cpu_us at at_us. */
double meter_cpu_pct(const struct container_usage *u, uint64_t cpu_us, uint64_t at_us, uint64_t now_us);

/* The last point. False if there is none. */
bool meter_last(const struct meter *m, struct cloud_metric *ret);
/* Points from start_s to end_s, the oldest first, one for each step that fits the length, each given to `add`, whose
 * failure ends it. */
must_check int meter_series(const struct meter *m, int64_t start_s, int64_t end_s,
			    int (*add)(const struct cloud_metric *v, void *user), void *user);
int64_t meter_step_s(int64_t length_s);

#endif
