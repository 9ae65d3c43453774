/* SPDX-License-Identifier: MIT */
/* The budget of what is received and not read, for those above who do not see the engine. */
#include "daemon/common/net/http.h"
#include "proto/wire/h2.h"

struct h2_budget *http_budget_new(uint64_t max)
{
	return h2_budget_new(max);
}

struct h2_budget *http_budget_unref(struct h2_budget *b)
{
	return h2_budget_unref(b);
}
