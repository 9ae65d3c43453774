/* SPDX-License-Identifier: MIT */
/* OpenMetrics text: names begin with agentbox_, values of labels are escaped, and the whole is bounded. */
#ifndef AB_DAEMON_MAIN_METRICS_TEXT_H
#define AB_DAEMON_MAIN_METRICS_TEXT_H

#include "daemon/common/obs/exemplar.h"
#include "daemon/common/obs/histogram.h"
#include "proto/base/buf.h"
#include "proto/base/cc.h"

/* Memory that runs out, or the bound, shows at the end, once: then nothing is sent. */
struct metrics_text {
	struct buf b;
	bool failed;
	bool tells_requests;	/* exemplars may be ids of requests, which users chose, beside those of traces */
};

/* One sample's labels: name, value, name, value, NULL. NULL: none. */
typedef const char *const metrics_labels[];

void metrics_head(struct metrics_text *t, const char *name, const char *type, const char *help);
void metrics_line(struct metrics_text *t, const char *name, metrics_labels labels, uint64_t n);
/* Whole families of one sample. */
void metrics_gauge(struct metrics_text *t, const char *name, const char *help, uint64_t n);
void metrics_counter(struct metrics_text *t, const char *name, const char *help, uint64_t n);
/* The samples of one histogram, below a head of that type; the name without a suffix. */
void metrics_histogram(struct metrics_text *t, const char *name, metrics_labels labels, const struct histogram *h);
/* The same with exemplars of its steps. */
void metrics_histogram_with(struct metrics_text *t, const char *name, metrics_labels labels, const struct histogram *h,
			    const struct exemplars *examples);

#define METRICS_LABELS(...) ((const char *const[]){ __VA_ARGS__, NULL })

#endif
