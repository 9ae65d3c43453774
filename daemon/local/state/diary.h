/* SPDX-License-Identifier: MIT */
/* What happened in a sandbox, for the log routes: the last DIARY_MAX lines. Pure. */
#ifndef AB_DAEMON_LOCAL_STATE_DIARY_H
#define AB_DAEMON_LOCAL_STATE_DIARY_H

#include <jansson.h>
#include <stdbool.h>

#include "proto/base/cc.h"

#define DIARY_MAX 2000u	/* then the oldest go */

enum diary_level {
	DIARY_DEBUG,
	DIARY_INFO,
	DIARY_WARN,
	DIARY_ERROR,
	DIARY_LEVELS,
};

struct diary_line {
	int64_t at_us;		/* wall clock, growing */
	enum diary_level level;
	const char *message;	/* static */
	json_t *fields;		/* an object of strings */
};

struct diary {
	struct diary_line *v;
	uint32_t n, cap, first;
};

void diary_fini(struct diary *d);
/* Steals fields (may be NULL). Without memory a line is lost. */
void diary_add(struct diary *d, int64_t at_us, enum diary_level level, const char *message, json_t *fields);
/* -EINVAL for a name that is none. */
must_check int diary_level_parse(const char *s, enum diary_level *ret);

struct diary_query {
	int64_t from_us, to_us;		/* both included */
	uint32_t limit;
	bool backward;			/* newest first */
	enum diary_level level;		/* and above */
	const char *search;		/* in the message, or NULL */
};

/* An array of {timestamp, message, level, fields}, or with `old` of {timestamp, line}; new reference. */
json_t *diary_read(const struct diary *d, const struct diary_query *q, bool old);

#endif
