/* SPDX-License-Identifier: MIT */
/* When to try again [pure]: exponential with equal jitter, so that no two waits are in step and none
 * is shorter than half of what was meant. */
#ifndef AB_DAEMON_UPSTREAM_BACKOFF_H
#define AB_DAEMON_UPSTREAM_BACKOFF_H

#include "proto/base/cc.h"

/* Wait before attempt number `failures` + 1 (failures >= 1): base, 2·base, … up to max; the result
 * is in [half of it, all of it]. No overflow for any count. */
uint32_t backoff_ms(unsigned failures, uint32_t base_ms, uint32_t max_ms, uint64_t rnd);

#endif
