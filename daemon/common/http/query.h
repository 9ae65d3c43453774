/* SPDX-License-Identifier: MIT */
/* The target of a request: its path, raw and decoded, and its query, decoded once. Pure. */
#ifndef AB_DAEMON_COMMON_HTTP_QUERY_H
#define AB_DAEMON_COMMON_HTTP_QUERY_H

#include <stdbool.h>

#include "proto/base/cc.h"

#define QUERY_MAX_PAIRS	   64u	/* -E2BIG above it */
#define QUERY_MAX_SEGMENTS 16u	/* -E2BIG above it */

struct query_pair {
	const char *key, *value;	/* no NUL inside */
};

struct query {
	char *mem;
	const char *path;		/* as sent, without the query */
	size_t n_segments;
	const char *segments[QUERY_MAX_SEGMENTS];	/* between slashes, each decoded by itself */
	size_t n;
	struct query_pair v[QUERY_MAX_PAIRS];
};

#define QUERY_NULL { 0 }

/* `target` is a :path ("/a/b?c=d"). 0; -EINVAL: malformed escape, a NUL, or no leading slash;
 * -E2BIG; -ENOMEM. */
must_check int query_parse(const char *target, struct query *ret);
void query_fini(struct query *q);
/* First value of that key, NULL if absent. */
const char *query_get(const struct query *q, const char *key);


/* The decoded path without empty, "." and ".." segments ("/a/b"); heap, NULL without memory or for a
 * malformed one. */
char *query_clean_path(const char *target);

#endif
