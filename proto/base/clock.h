/* SPDX-License-Identifier: MIT */
/*
 * The only place that asks for the time. Deadlines are CLOCK_BOOTTIME (they go on counting while
 * the machine sleeps); wall time is for display and for what the cloud tells us.
 */
#ifndef AB_PROTO_BASE_CLOCK_H
#define AB_PROTO_BASE_CLOCK_H

#include <time.h>

#include "proto/base/cc.h"

uint64_t clock_boot_ms(void);
uint64_t clock_boot_us(void);
int64_t clock_wall_ms(void);	/* since 1970-01-01T00:00Z */
/* So far from now on CLOCK_MONOTONIC: what pthreads can wait for. */
struct timespec clock_mono_in_us(uint64_t us);

#endif
