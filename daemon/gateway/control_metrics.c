/* SPDX-License-Identifier: MIT */
/* Metrics: the series of one sandbox, and the last point of several, which the core is asked for one after the other. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gateway/control.h"
#include "proto/base/str.h"

#define METRICS_IDS_MAX 100u

/* A moment of the query in s since 1970; false after the call ended. */
static bool take_moment(struct gateway_control *c, const char *key, int64_t *ret)
{
	const char *s = query_get(&c->query, key);
	uint64_t v = 0;

	if (s && str_u64(s, strlen(s), INT64_MAX / 1000, &v) < 0) {
		control_invalid(c, "%s must be a whole number of seconds since 1970", key);
		return false;
	}
	*ret = (int64_t)v;
	return true;
}

static void control_on_metrics(void *user, const struct status *st, const struct sandbox_metrics *m)
{
	struct gateway_control *c = control_done(user);
	struct doc_list l;

	/* The cloud has no metrics of what it does not know, and no error either. */
	if (!status_ok(st) && st->code != CODE_NOT_FOUND) {
		control_fail(c, st);
		return;
	}
	doc_list_begin(&l, c->flavour, NULL);
	for (size_t i = 0; m && i < m->metrics->n; i++)
		doc_list_add(&l, NULL, CLOUD_DOC_METRIC, &m->metrics->v[i], 0);
	if (m && !l.e)
		l.e = control_put_age(c, m->source, m->as_of_ms);
	control_reply_list(c, 200, &l);
}

void control_metrics(struct gateway_control *c)
{
	struct sandbox_call call = control_call(c, c->id);
	int64_t start_s, end_s;

	if (!take_moment(c, "start", &start_s) || !take_moment(c, "end", &end_s))
		return;
	if (end_s && start_s > end_s)
		control_refuse(c, 400, "start must not be after end");
	else
		control_started(c, sandbox_get_metrics(c->g->o.core, &call, start_s, end_s, control_on_metrics, &c->op));
}

/* --- the last points of several --- */

struct last_points {
	struct doc_list found;
	struct cloud_strs ids;
	size_t at;
};

static void last_points_free(void *p)
{
	struct last_points *s = p;

	doc_list_fini(&s->found);
	cloud_strs_fini(&s->ids);
	free(s);
}

static void next_point(struct gateway_control *c);

static void on_points(void *user, const struct status *st, const struct sandbox_metrics *m)
{
	struct gateway_control *c = control_done(user);
	struct last_points *s = c->state;

	if (!status_ok(st) && st->code != CODE_NOT_FOUND) {
		control_fail(c, st);
		return;
	}
	if (m && m->metrics->n)
		doc_list_add(&s->found, s->ids.v[s->at], CLOUD_DOC_METRIC, &m->metrics->v[m->metrics->n - 1], 0);
	s->at++;
	next_point(c);
}

static void next_point(struct gateway_control *c)
{
	struct last_points *s = c->state;
	struct sandbox_call call;

	while (s->at < s->ids.n && !token_covers(c->token, s->ids.v[s->at]))
		s->at++;
	if (s->at == s->ids.n) {
		control_reply_list(c, 200, &s->found);
		return;
	}
	call = control_call(c, s->ids.v[s->at]);
	control_started(c, sandbox_get_metrics(c->g->o.core, &call, 0, 0, on_points, &c->op));
}

/* 0, -EINVAL, -E2BIG, -ENOMEM. */
static int read_ids(const char *text, struct cloud_strs *ret)
{
	char id[CLOUD_SANDBOX_ID_MAX + 1], word[2 * CLOUD_SANDBOX_ID_MAX];
	int r = 0;
	size_t n;

	for (const char *s = text; s && !r; s = s[n] ? s + n + 1 : NULL) {
		n = strcspn(s, ",");
		if (ret->n == METRICS_IDS_MAX)
			return -E2BIG;
		str_copy(word, MIN(sizeof(word), n + 1), s);
		r = n >= sizeof(word) ? -EINVAL : cloud_id_parse(word, id);
		if (!r)
			r = cloud_strs_add(ret, id);
	}
	return r;
}

void control_metrics_of(struct gateway_control *c)
{
	const char *ids = query_get(&c->query, "sandbox_ids");
	struct last_points *s = calloc(1, sizeof(*s));
	int e;

	if (!s) {
		control_no_memory(c);
		return;
	}
	c->state = s;
	c->free_state = last_points_free;
	doc_list_begin(&s->found, c->flavour, "sandboxes");
	if (str_is_empty(ids)) {
		control_invalid(c, "parameter \"sandbox_ids\" in query has an error: value is required");
		return;
	}
	e = read_ids(ids, &s->ids);
	if (e == -E2BIG)
		control_refuse(c, 400, "at most %u sandboxes", METRICS_IDS_MAX);
	else if (e == -EINVAL)
		control_refuse(c, 400, "Invalid sandbox ID");
	else if (e < 0)
		control_no_memory(c);
	else
		next_point(c);
}
