/* SPDX-License-Identifier: MIT */
/* One heap copy of the target, cut and decoded in place; every pointer of the result goes into it. */
#include "daemon/common/http/query.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/str.h"

static int parse_segments(struct query *q, char *path)
{
	char *s = path, *next;
	int r;

	for (; s; s = next) {
		next = strchr(s, '/');
		if (next)
			*next++ = 0;
		if (q->n_segments == QUERY_MAX_SEGMENTS)
			return -E2BIG;
		r = str_unescape(s, false);
		if (r < 0)
			return r;
		q->segments[q->n_segments++] = s;
	}
	return 0;
}

static int parse_pairs(struct query *q, char *s)
{
	char *next, *value;

	for (; s && *s; s = next) {
		next = strchr(s, '&');
		if (next)
			*next++ = 0;
		if (!*s)
			continue;
		if (q->n == QUERY_MAX_PAIRS)
			return -E2BIG;
		value = strchr(s, '=');
		if (value)
			*value++ = 0;
		else
			value = s + strlen(s);
		if (str_unescape(s, true) < 0 || (*value && str_unescape(value, true) < 0))
			return -EINVAL;
		q->v[q->n++] = (struct query_pair){ s, value };
	}
	return 0;
}

int query_parse(const char *target, struct query *ret)
{
	struct query q = QUERY_NULL;
	size_t n = strlen(target), n_path = strcspn(target, "?#");
	char *pairs = NULL;
	int r;

	if (target[0] != '/')
		return -EINVAL;
	q.mem = malloc(2 * n + 3);
	if (!q.mem)
		return -ENOMEM;

	/* path\0 segments…\0 */
	memcpy(q.mem, target, n_path);
	q.mem[n_path] = 0;
	q.path = q.mem;
	memcpy(q.mem + n_path + 1, target, n + 1);
	if (target[n_path] == '?') {
		pairs = q.mem + n_path + 1 + n_path + 1;
		pairs[strcspn(pairs, "#")] = 0;
	}
	q.mem[n_path + 1 + n_path] = 0;
	r = parse_segments(&q, q.mem + n_path + 2);
	if (!r)
		r = parse_pairs(&q, pairs);
	if (r < 0) {
		query_fini(&q);
		return r;
	}
	*ret = q;
	return 0;
}

void query_fini(struct query *q)
{
	free(q->mem);
	*q = (struct query)QUERY_NULL;
}

const char *query_get(const struct query *q, const char *key)
{
	for (size_t i = 0; i < q->n; i++)
		if (str_eq(q->v[i].key, key))
			return q->v[i].value;
	return NULL;
}

char *query_clean_path(const char *target)
{
	size_t n = strcspn(target, "?#");
	char *s = malloc(n + 2);

	if (!s)
		return NULL;
	s[0] = '/';
	memcpy(s + 1, target, n);
	s[n + 1] = 0;
	if (str_unescape(s + 1, false) < 0) {
		free(s);
		return NULL;
	}
	str_clean_path(s);
	return s;
}
