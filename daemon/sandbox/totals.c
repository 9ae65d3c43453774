/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/totals.h"

#include "daemon/sandbox/core.h"
#include "proto/base/str.h"

void totals_count(struct totals_by_name *t, const char *name)
{
	unsigned i = 0;

	while (i < TOTALS_NAMES - 1 && t->v[i].name && !str_eq(t->v[i].name, name))
		i++;
	if (!t->v[i].name)
		t->v[i].name = i < TOTALS_NAMES - 1 ? name : "other";
	t->v[i].n++;
}

const struct sandbox_totals *sandbox_core_totals(const struct sandbox_core *core)
{
	return &core->totals;
}

size_t sandbox_core_uids(const struct sandbox_core *core, uid_t *ret, size_t max)
{
	const struct event_log *log;
	size_t pos = 0, n = 0;

	while ((log = map_next(&core->events.by_uid, &pos))) {
		if (n < max)
			ret[n] = log->uid;
		n++;
	}
	return n;
}
