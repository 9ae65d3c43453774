/* SPDX-License-Identifier: MIT */
#include "client/cli/term/clock.h"

#include <time.h>

static int64_t read_ms(clockid_t id)
{
	struct timespec t;

	(void)clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t cli_wall_ms(void)
{
	return read_ms(CLOCK_REALTIME);
}

int64_t cli_boot_ms(void)
{
	return read_ms(CLOCK_BOOTTIME);
}
