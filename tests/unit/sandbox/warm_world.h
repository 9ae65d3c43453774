/* SPDX-License-Identifier: MIT */
/* A world with one entry [warm py], and Creates that take from it. */
#ifndef AB_TESTS_UNIT_SANDBOX_WARM_WORLD_H
#define AB_TESTS_UNIT_SANDBOX_WARM_WORLD_H

#include "daemon/sandbox/core.h"
#include "daemon/sandbox/warm.h"
#include "tests/unit/sandbox/world.h"

static const uid_t claimers[] = { 1000, 1001 };

static inline struct sandbox_warm_entry an_entry(void)
{
	return (struct sandbox_warm_entry){
		.name = "py",
		.what = { .template_id = (char *)"base", .timeout_s = 120 },
		.size = 2, .claimers = { claimers, 2, NULL, 0 },
		.ready_timeout_ms = 5000, .max_age_ms = 1800000, .burst = 2, .per_hour = 60,
	};
}

static inline void warm_world(struct world *w, const struct sandbox_warm_entry *e)
{
	*w = (struct world){ .warm = e, .n_warm = 1 };
	world_new_with(w);
}

static inline struct sandbox_warm_info info(struct world *w)
{
	struct sandbox_warm_info i;

	CHECK(sandbox_warm_info(w->core, 0, &i));
	return i;
}

#define UNTIL_READY(w, n) UNTIL(w, info(w).ready == (n))

static inline struct create warm_create(const char *request_id, enum sandbox_warm_mode mode)
{
	struct create c = a_create(request_id);

	c.warm = mode;
	return c;
}

static inline struct answer claim(struct world *w, const char *request_id)
{
	struct create c = warm_create(request_id, SANDBOX_WARM_PREFER);

	return do_create(w, &c);
}

#endif
