/* SPDX-License-Identifier: MIT */
#include "proto/base/clock.h"

#include "proto/base/must.h"

static struct timespec read_clock(clockid_t id)
{
	struct timespec ts = { 0 };

	must(clock_gettime(id, &ts) == 0);
	return ts;
}

uint64_t clock_boot_ms(void)
{
	return clock_boot_us() / 1000;
}

uint64_t clock_boot_us(void)
{
	struct timespec ts = read_clock(CLOCK_BOOTTIME);

	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

int64_t clock_wall_ms(void)
{
	struct timespec ts = read_clock(CLOCK_REALTIME);

	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

struct timespec clock_mono_in_us(uint64_t us)
{
	struct timespec ts = read_clock(CLOCK_MONOTONIC);
	uint64_t ns = (uint64_t)ts.tv_nsec + us % 1000000 * 1000;

	ts.tv_sec += (time_t)(us / 1000000 + ns / 1000000000);
	ts.tv_nsec = (long)(ns % 1000000000);
	return ts;
}
