/* SPDX-License-Identifier: MIT */
/* What happened in a sandbox, for the log routes: the last EVENT_LOG_MAX lines. Pure. */
#ifndef AB_DAEMON_LOCAL_STATE_EVENT_LOG_H
#define AB_DAEMON_LOCAL_STATE_EVENT_LOG_H

#include <jansson.h>
#include <stdbool.h>

#include "proto/base/cc.h"

#define EVENT_LOG_MAX 2000u	/* then the oldest go */

enum event_log_level {
	EVENT_LOG_DEBUG,
	EVENT_LOG_INFO,
	EVENT_LOG_WARN,
	EVENT_LOG_ERROR,
	EVENT_LOG_LEVELS,
};

struct event_log_line {
	int64_t at_us;		/* wall clock, growing */
	enum event_log_level level;
	const char *message;	/* static */
	json_t *fields;		/* an object of strings */
};

struct event_log {
	struct event_log_line *v;
	uint32_t n, cap, first;
};

void event_log_fini(struct event_log *d);
/* Steals fields (may be NULL). Without memory a line is lost. */
void event_log_add(struct event_log *d, int64_t at_us, enum event_log_level level,
		   const char *message, json_t *fields);
/* -EINVAL for a name that is none. */
must_check int event_log_level_parse(const char *s, enum event_log_level *ret);

struct event_log_query {
	int64_t from_us, to_us;		/* both included */
	uint32_t limit;
	bool backward;			/* newest first */
	enum event_log_level level;		/* and above */
	const char *search;		/* in the message, or NULL */
};

/* An array of {timestamp, message, level, fields}, or with `old` of {timestamp, line}; new reference. */
json_t *event_log_read(const struct event_log *d, const struct event_log_query *q, bool old);

#endif
