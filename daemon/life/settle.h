/* SPDX-License-Identifier: MIT */
/*
 * Settling a creation whose answer was lost: ask the cloud's list for its tag until it shows up or
 * can no longer show up. [pure]
 */
#ifndef AB_DAEMON_LIFE_SETTLE_H
#define AB_DAEMON_LIFE_SETTLE_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct cloud_list;

#define SETTLE_HORIZON_MS (180ull * 1000)	/* the cloud's own limits end long before */

enum settle_next {
	SETTLE_WAIT,	/* list again after *ret_wait_ms */
	SETTLE_FOUND,	/* *ret_index is it */
	SETTLE_CLOSE,	/* a complete list after the horizon did not have it */
};

/* After a list. list NULL = it was not complete, which proves nothing. `tries` counts lists. The
 * oldest sandbox that carries host and req is it; a fork's children carry the same tag later. */
enum settle_next settle_plan(const struct cloud_list *list, const char *host, const char *req,
			     unsigned tries, uint64_t now_ms, uint64_t until_ms, size_t *ret_index,
			     uint64_t *ret_wait_ms);
/* Before list number `tries`: 1, 2, 4, 8, 16, 30, 30 … s. */
uint64_t settle_wait_ms(unsigned tries);

#endif
