/* SPDX-License-Identifier: MIT */
/* For each step of a histogram the last case that can be looked up elsewhere: what OpenMetrics calls an exemplar. */
#ifndef AB_DAEMON_COMMON_OBS_EXEMPLAR_H
#define AB_DAEMON_COMMON_OBS_EXEMPLAR_H

#include <stdbool.h>

#include "daemon/common/obs/histogram.h"
#include "proto/base/cc.h"

#define EXEMPLAR_ID_MAX 64u	/* a longer one is none: an exemplar's label has at most 128 characters */

struct exemplar {
	char id[EXEMPLAR_ID_MAX + 1];	/* "" = there is none */
	bool is_trace;			/* the id of a trace, else of a request */
	uint64_t us;
	int64_t at_ms;			/* wall */
};

struct exemplars {
	struct exemplar v[HISTOGRAM_STEPS + 1];	/* as histogram.n */
};

/* `trace` goes before `request_id`; "" = none. What is not printable ASCII, or too long, is none. */
void exemplars_note(struct exemplars *e, uint64_t us, const char *trace, const char *request_id);

#endif
