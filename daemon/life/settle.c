/* SPDX-License-Identifier: MIT */
#include "daemon/life/settle.h"

#include <string.h>

#include "daemon/cloud/model.h"
#include "daemon/life/tags.h"
#include "proto/base/str.h"

uint64_t settle_wait_ms(unsigned tries)
{
	return tries < 5 ? 1000ull << tries : 30000;
}

static bool older(const struct cloud_sandbox *a, const struct cloud_sandbox *b)
{
	if (a->started_at_ms != b->started_at_ms)
		return a->started_at_ms < b->started_at_ms;
	return strcmp(a->id, b->id) < 0;
}

enum settle_next settle_plan(const struct cloud_list *list, const char *host, const char *req,
			     unsigned tries, uint64_t now_ms, uint64_t until_ms, size_t *ret_index,
			     uint64_t *ret_wait_ms)
{
	bool found = false;
	struct tags t;
	size_t best = 0;

	for (size_t i = 0; list && i < list->n; i++) {
		tags_read(&list->v[i]->metadata, &t);
		if (!tags_are_of(&t, host) || !str_eq(t.req, req))
			continue;
		if (!found || older(list->v[i], list->v[best]))
			best = i;
		found = true;
	}
	if (found) {
		*ret_index = best;
		return SETTLE_FOUND;
	}
	if (list && now_ms >= until_ms)
		return SETTLE_CLOSE;
	*ret_wait_ms = settle_wait_ms(tries);
	/* The list that may close it comes right after the horizon. */
	if (now_ms < until_ms && now_ms + *ret_wait_ms > until_ms)
		*ret_wait_ms = until_ms - now_ms;
	return SETTLE_WAIT;
}
