/* SPDX-License-Identifier: MIT */
#include "daemon/common/http/listing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/str.h"

#define INVALID "validation error: "

static int listing_refuse(const char **ret_why, const char *why)
{
	*ret_why = why;
	return -EINVAL;
}

static int listing_states(const struct query *q, struct listing *l, const char **ret_why)
{
	const char *s = query_get(q, "state");
	size_t n;

	l->running = l->paused = !s;
	for (; s; s = s[n] ? s + n + 1 : NULL) {
		n = strcspn(s, ",");
		if (n == 7 && !memcmp(s, "running", 7))
			l->running = true;
		else if (n == 6 && !memcmp(s, "paused", 6))
			l->paused = true;
		else
			return listing_refuse(ret_why, INVALID "state must be a comma list of running and paused");
	}
	return 0;
}

static int listing_order(const struct query *q, struct listing *l, const char **ret_why)
{
	const char *s = query_get(q, "order");

	l->ascending = s && str_eq(s, "asc");
	if (!s || l->ascending || str_eq(s, "desc"))
		return 0;
	return listing_refuse(ret_why, INVALID "order must be asc or desc");
}

static int listing_limit(const struct query *q, struct listing *l, const char **ret_why)
{
	const char *limit = query_get(q, "limit");

	l->limit = LISTING_PAGE_MAX;
	if (!limit || (str_u64(limit, strlen(limit), LISTING_PAGE_MAX, &l->limit) == 0 && l->limit))
		return 0;
	return listing_refuse(ret_why, INVALID "limit must be from 1 to 100");
}

static int listing_cursor(const struct query *q, struct listing *l, const char **ret_why)
{
	const char *token = query_get(q, "nextToken");

	if (str_is_empty(token))
		return 0;
	l->has_cursor = true;
	if (cursor_decode(token, &l->cursor) == 0 && l->cursor.ascending == l->ascending)
		return 0;
	return listing_refuse(ret_why, "Invalid next token");
}

static int listing_start(const struct query *q, struct listing *l, const char **ret_why)
{
	const char *after = query_get(q, "startedAfter");

	if (!after || list_time_us(after, &l->after_us) == 0)
		return 0;
	return listing_refuse(ret_why, INVALID "startedAfter must be a date-time");
}

static int listing_metadata(const struct query *q, struct listing *l, const char **ret_why)
{
	const char *s = query_get(q, "metadata");
	int r = s ? meta_filter_parse(s, &l->metadata) : 0;

	return r == -EINVAL ? listing_refuse(ret_why, "Error parsing metadata filter") : r;
}

static int listing_template(const struct query *q, struct listing *l, const char **ret_why)
{
	const char *s = query_get(q, "template");

	l->has_template = s != NULL;
	if (!s || (template_ref_parse(s, &l->template) == 0 && !l->template.tag[0]))
		return 0;
	return listing_refuse(ret_why, "template must be an id, an alias or namespace/alias");
}

static int finish(struct listing *l, int r)
{
	if (r < 0)
		listing_fini(l);
	return r;
}

int listing_parse(const struct query *q, struct listing *ret, const char **ret_why)
{
	int (*const steps[])(const struct query *, struct listing *, const char **) = {
		listing_states, listing_order, listing_limit, listing_start, listing_cursor, listing_metadata, listing_template,
	};
	int r = 0;

	*ret = (struct listing){ .after_us = INT64_MIN };
	for (size_t i = 0; i < ARRAY_SIZE(steps) && !r; i++)
		r = steps[i](q, ret, ret_why);
	return finish(ret, r);
}

int listing_parse_v1(const struct query *q, struct listing *ret, const char **ret_why)
{
	*ret = (struct listing){ .running = true, .limit = SIZE_MAX / 2, .after_us = INT64_MIN };
	return finish(ret, listing_metadata(q, ret, ret_why));
}

int listing_parse_page(const struct query *q, struct listing *ret, const char **ret_why)
{
	int r;

	*ret = (struct listing){ .after_us = INT64_MIN };
	r = listing_limit(q, ret, ret_why);
	return r < 0 ? r : listing_cursor(q, ret, ret_why);
}

void listing_fini(struct listing *l)
{
	cloud_kvs_fini(&l->metadata);
}

int listing_put_next(struct fields *head, int64_t at_us, const char *id, bool ascending)
{
	struct cursor c = { .at_us = at_us, .ascending = ascending };
	char *text;
	int r;

	if (!str_copy(c.id, sizeof(c.id), id))
		return -EINVAL;
	text = cursor_encode(&c);
	r = text ? fields_put(head, "x-next-token", text) : -ENOMEM;
	free(text);
	return r;
}
