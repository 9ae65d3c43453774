/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/rules/spans.h"

#include "proto/base/cc.h"

#define SPANS_RESERVE 5u	/* spans for one extension: 2/5 of a span, at half of the budget */
#define SPANS_LEAD_S  2u	/* an extension that is answered so late before an end is too late */

static uint32_t rate_of(const struct spans_budget *b)
{
	return MAX(b->is_told ? b->per_s_milli : SPANS_ASSUMED_PER_S_MILLI, 1u);
}

uint32_t spans_wanted_s(uint32_t kept, const struct spans_budget *b)
{
	uint64_t s = (uint64_t)kept * SPANS_RESERVE * 1000 / rate_of(b);

	return (uint32_t)MIN(s, (uint64_t)SPANS_MAX_S);
}

uint32_t spans_most(const struct spans_budget *b)
{
	uint64_t n = (uint64_t)SPANS_MAX_S * rate_of(b) / (SPANS_RESERVE * 1000);

	return (uint32_t)MIN(MAX(n, 1u), (uint64_t)UINT32_MAX);
}

uint32_t spans_parallel(const struct spans_budget *b)
{
	if (!b->is_told)
		return SPANS_PARALLEL_MAX;
	return MIN(MAX(rate_of(b) / 500, 2u), SPANS_PARALLEL_MAX);
}

static uint32_t second_of(int64_t left_ms)
{
	return (uint32_t)MIN(MAX(left_ms, (int64_t)0) / 1000, (int64_t)SPANS_MAX_S);
}

void spans_add(struct spans_ends *e, int64_t left_ms)
{
	e->kept++;
	e->at[second_of(left_ms)]++;
}

/* Extensions that there are before the end of this second; a tenth is for those that fail. */
static uint64_t given_by(uint32_t second, const struct spans_budget *b)
{
	uint64_t s = second - MIN(second, SPANS_LEAD_S);

	return b->tokens + s * rate_of(b) * 9 / 10000;
}

/* The last second at which it does not fit; -1 = none. What ends earlier goes first in any case. */
static int64_t last_misfit(const struct spans_ends *e, uint32_t from, const struct spans_budget *b)
{
	uint64_t need = 0;
	int64_t last = -1;

	for (uint32_t s = 0; s < SPANS_MAX_S; s++) {
		need += e->at[s];
		if (s >= from && need + 1 > given_by(s, b))
			last = s;
	}
	return last;
}

bool spans_fit(const struct spans_ends *e, int64_t left_ms, const struct spans_budget *b)
{
	return !b->is_told || last_misfit(e, second_of(left_ms), b) < 0;
}

uint32_t spans_fitting_s(const struct spans_ends *e, int64_t left_ms, const struct spans_budget *b)
{
	int64_t last = b->is_told ? last_misfit(e, second_of(left_ms), b) : -1;

	return last + 1 < (int64_t)SPANS_MAX_S ? (uint32_t)MAX(last + 1, (int64_t)second_of(left_ms)) : 0;
}
