/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/rules/plan.h"

static bool is_told_of(const struct plan_row *row, uint64_t began_at_ms)
{
	return !row->busy && row->fresh_at_ms < began_at_ms;
}

enum plan_kind plan_listed(const struct plan_row *row, bool is_tagged, uint64_t began_at_ms)
{
	if (!row)
		return is_tagged ? PLAN_ADOPT : PLAN_NOTHING;
	if (!is_told_of(row, began_at_ms))
		return PLAN_NOTHING;
	if (!row->gone)
		return PLAN_UPDATE;
	return row->killed ? PLAN_NOTHING : PLAN_REVIVE;
}

bool plan_expects(const struct plan_row *row, uint64_t began_at_ms)
{
	return !row->gone && is_told_of(row, began_at_ms);
}

bool plan_is_suspicious(size_t expected, size_t missing)
{
	return missing >= PLAN_SUSPICIOUS_MIN && missing * 100 >= expected * PLAN_SUSPICIOUS_PCT;
}
