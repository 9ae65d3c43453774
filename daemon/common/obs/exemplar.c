/* SPDX-License-Identifier: MIT */
#include "daemon/common/obs/exemplar.h"

#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/str.h"

static bool is_id(const char *id)
{
	size_t n = strlen(id);

	return n && n <= EXEMPLAR_ID_MAX && str_is_printable(id, n);
}

void exemplars_note(struct exemplars *e, uint64_t us, const char *trace, const char *request_id)
{
	const char *id = trace[0] ? trace : request_id;
	unsigned i = 0;

	if (!is_id(id))
		return;
	while (i < HISTOGRAM_STEPS && us > histogram_bounds_us[i])
		i++;
	e->v[i] = (struct exemplar){ .is_trace = trace[0], .us = us, .at_ms = clock_wall_ms() };
	(void)str_copy(e->v[i].id, sizeof(e->v[i].id), id);
}
