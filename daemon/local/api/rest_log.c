/* SPDX-License-Identifier: MIT */
/* Metrics and logs of sandboxes. */
#include <string.h>

#include "daemon/local/api/rest.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

#define METRICS_IDS_MAX 100u
#define LOGS_MAX	1000u
#define SEARCH_MAX	256u
#define WEEK_US		(7ll * 86400 * 1000000)

/* A whole number of the query; `max` at most. False after the call ended. */
static bool take_number(struct rest *r, const char *key, uint64_t max, int64_t *ret)
{
	const char *s = query_get(&r->query, key);
	uint64_t v;

	if (!s)
		return true;
	if (str_u64(s, strlen(s), max, &v) < 0) {
		rest_invalid(r, "%s must be a whole number from 0 to %llu", key, (unsigned long long)max);
		return false;
	}
	*ret = (int64_t)v;
	return true;
}

/* --- metrics --- */

struct metric_list {
	struct rest *r;
	struct doc_list rows;
};

static int add_metric(const struct cloud_metric *v, void *user)
{
	struct metric_list *l = user;

	doc_list_add(&l->rows, NULL, CLOUD_DOC_METRIC, v, 0);
	return l->rows.e;
}

void rest_metrics(struct rest *r)
{
	struct sandbox *s = rest_find(r);
	int64_t start_s = s ? s->started_us / 1000000 : 0, end_s = clock_wall_ms() / 1000;
	struct metric_list l = { .r = r };

	if (!take_number(r, "start", INT64_MAX, &start_s) || !take_number(r, "end", INT64_MAX, &end_s))
		return;
	if (start_s > end_s) {
		rest_fail(r, 400, "start must not be after end");
		return;
	}
	doc_list_begin(&l.rows, r->flavour, NULL);
	if (s && !l.rows.e)
		l.rows.e = meter_series(&s->meter, start_s, end_s, add_metric, &l);
	rest_list_reply(r, 200, &l.rows);
}

/* One id of the list; false after the call ended. */
static bool add_latest(struct rest *r, const char *text, size_t n, struct doc_list *to)
{
	char id[2 * CLOUD_SANDBOX_ID_MAX];
	struct cloud_metric v;
	struct sandbox *s;

	str_copy(id, MIN(sizeof(id), n + 1), text);
	if (n >= sizeof(id) || cloud_id_parse(id, r->id) < 0) {
		rest_fail(r, 400, "Invalid sandbox ID");
		return false;
	}
	s = rest_find(r);
	if (s && meter_last(&s->meter, &v))
		doc_list_add(to, s->id, CLOUD_DOC_METRIC, &v, 0);
	return true;
}

static bool add_all_latest(struct rest *r, const char *ids, struct doc_list *to)
{
	size_t count = 0, n;

	for (const char *s = ids; s; s = s[n] ? s + n + 1 : NULL) {
		n = strcspn(s, ",");
		if (++count > METRICS_IDS_MAX) {
			rest_fail(r, 400, "at most %u sandboxes", METRICS_IDS_MAX);
			return false;
		}
		if (!add_latest(r, s, n, to))
			return false;
	}
	return true;
}

void rest_metrics_of(struct rest *r)
{
	const char *ids = query_get(&r->query, "sandbox_ids");
	struct doc_list found;

	if (!ids || !*ids) {
		rest_invalid(r, "parameter \"sandbox_ids\" in query has an error: value is required");
		return;
	}
	doc_list_begin(&found, r->flavour, "sandboxes");
	if (!add_all_latest(r, ids, &found)) {
		doc_list_fini(&found);
		return;
	}
	r->id[0] = '\0';
	rest_list_reply(r, 200, &found);
}

/* --- logs --- */

static bool take_log_query(struct rest *r, struct event_log_query *q)
{
	const char *direction = query_get(&r->query, "direction");
	const char *level = query_get(&r->query, "level");
	int64_t limit = LOGS_MAX, cursor_ms = -1;

	q->search = query_get(&r->query, "search");
	q->backward = !direction || str_eq(direction, "backward");
	if (!take_number(r, "limit", LOGS_MAX, &limit) ||
	    !take_number(r, "cursor", INT64_MAX / 2000, &cursor_ms))
		return false;
	q->limit = (uint32_t)limit;
	if (direction && !q->backward && !str_eq(direction, "forward"))
		rest_invalid(r, "direction must be forward or backward");
	else if (level && event_log_level_parse(level, &q->level) < 0)
		rest_invalid(r, "level must be debug, info, warn or error");
	else if (q->search && strlen(q->search) > SEARCH_MAX)
		rest_invalid(r, "search must have at most %u characters", SEARCH_MAX);
	else {
		/* A week from the cursor, in the direction of reading. */
		int64_t now_us = clock_wall_ms() * 1000 + 1000;
		int64_t at_us = cursor_ms >= 0 ? cursor_ms * 1000
				: q->backward  ? now_us
					       : now_us - WEEK_US;

		q->from_us = q->backward ? at_us - WEEK_US : at_us;
		q->to_us = q->backward ? at_us : at_us + WEEK_US;
		return true;
	}
	return false;
}

void rest_logs_v2(struct rest *r)
{
	struct event_log_query q = { 0 };
	struct sandbox *s;

	if (!take_log_query(r, &q))
		return;
	s = rest_sandbox(r);
	if (s)
		rest_reply(r, 200,
			   json_pack("{s:o}", "logs", event_log_read(&s->event_log, &q, false)));
}

void rest_logs_v1(struct rest *r)
{
	struct event_log_query q = { .to_us = INT64_MAX };
	int64_t start_ms = 0, limit = LOGS_MAX;
	struct sandbox *s;

	if (!take_number(r, "start", INT64_MAX / 2000, &start_ms) ||
	    !take_number(r, "limit", LOGS_MAX, &limit))
		return;
	q.from_us = start_ms * 1000;
	q.limit = (uint32_t)limit;
	s = rest_sandbox(r);
	if (s)
		rest_reply(r, 200,
			   json_pack("{s:o, s:o}", "logs", event_log_read(&s->event_log, &q, true),
				     "logEntries", event_log_read(&s->event_log, &q, false)));
}
