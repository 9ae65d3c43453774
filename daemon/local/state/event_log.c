/* SPDX-License-Identifier: MIT */
#include "daemon/local/state/event_log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/str.h"

static const char *const level_names[EVENT_LOG_LEVELS] = { "debug", "info", "warn", "error" };

void event_log_fini(struct event_log *d)
{
	for (uint32_t i = 0; i < d->n; i++)
		json_decref(d->v[i].fields);
	free(d->v);
	*d = (struct event_log){ 0 };
}

static struct event_log_line *next_line(struct event_log *d)
{
	struct event_log_line *l;

	if (d->n == EVENT_LOG_MAX) {
		l = &d->v[d->first];
		d->first = (d->first + 1) % EVENT_LOG_MAX;
		json_decref(l->fields);
		return l;
	}
	if (d->n == d->cap) {
		uint32_t cap = MIN(MAX(d->cap * 2, 32u), EVENT_LOG_MAX);
		struct event_log_line *v = reallocarray(d->v, cap, sizeof(*v));

		if (!v)
			return NULL;
		d->v = v;
		d->cap = cap;
	}
	return &d->v[d->n++];
}

void event_log_add(struct event_log *d, int64_t at_us, enum event_log_level level,
		   const char *message, json_t *fields)
{
	struct event_log_line *l;

	if (!fields)
		fields = json_object();
	l = fields ? next_line(d) : NULL;
	if (!l) {
		json_decref(fields);
		return;
	}
	*l = (struct event_log_line){ at_us, level, message, fields };
}

int event_log_level_parse(const char *s, enum event_log_level *ret)
{
	for (int i = 0; i < EVENT_LOG_LEVELS; i++)
		if (str_eq(s, level_names[i])) {
			*ret = (enum event_log_level)i;
			return 0;
		}
	return -EINVAL;
}

static json_t *line_json(const struct event_log_line *l, bool old)
{
	char at[40], *text;
	json_t *o;

	str_rfc3339(l->at_us, 6, at);
	if (!old)
		return json_pack("{s:s, s:s, s:s, s:O}", "timestamp", at, "message", l->message, "level",
				 level_names[l->level], "fields", l->fields);
	o = json_pack("{s:s, s:s, s:s, s:O}", "timestamp", at, "message", l->message, "level",
		      level_names[l->level], "fields", l->fields);
	text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	o = text ? json_pack("{s:s, s:s}", "timestamp", at, "line", text) : NULL;
	free(text);
	return o;
}

static bool matches(const struct event_log_line *l, const struct event_log_query *q)
{
	return l->at_us >= q->from_us && l->at_us <= q->to_us && l->level >= q->level &&
	       (!q->search || strstr(l->message, q->search));
}

json_t *event_log_read(const struct event_log *d, const struct event_log_query *q, bool old)
{
	json_t *out = json_array();

	for (uint32_t i = 0; out && i < d->n && json_array_size(out) < q->limit; i++) {
		uint32_t at = q->backward ? d->n - 1 - i : i;
		const struct event_log_line *l = &d->v[(d->first + at) % EVENT_LOG_MAX];

		if (matches(l, q) && json_array_append_new(out, line_json(l, old)) < 0) {
			json_decref(out);
			return NULL;
		}
	}
	return out;
}
