/* SPDX-License-Identifier: MIT */
#include "client/cli/term/clock.h"

#include <time.h>

#include "client/include/agentbox.h"

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

bool cli_since_ms(const char *text, int64_t *ret_ms)
{
	struct tm tm = { 0 };
	const char *end;
	uint64_t ago;
	long east_s;	/* of UTC; timegm() takes it away */

	if (ab_parse_duration(text, &ago) == 0) {
		*ret_ms = cli_wall_ms() - (int64_t)ago;
	} else {
		end = strptime(text, "%Y-%m-%dT%H:%M:%S%z", &tm);
		if (!end || *end)
			return false;
		east_s = tm.tm_gmtoff;
		*ret_ms = ((int64_t)timegm(&tm) - east_s) * 1000;
	}
	*ret_ms = *ret_ms > 0 ? *ret_ms : 1;
	return true;
}
