/* SPDX-License-Identifier: MIT */
#include "daemon/upstream/backoff.h"

uint32_t backoff_ms(unsigned failures, uint32_t base_ms, uint32_t max_ms, uint64_t rnd)
{
	uint64_t full = base_ms;
	uint64_t half;

	for (unsigned i = 1; i < failures && full < max_ms; i++)
		full *= 2;
	full = MIN(full, max_ms);
	half = full / 2;
	return (uint32_t)(half + (full - half ? rnd % (full - half + 1) : 0));
}
