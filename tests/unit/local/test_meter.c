/* SPDX-License-Identifier: MIT */
/* The series of metrics and the event_log of a sandbox. */
#include "daemon/local/state/meter.h"

#include <errno.h>

#include "daemon/local/state/event_log.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

/* What meter_series() gave. */
struct given {
	struct cloud_metric v[300];
	size_t n;
};

static int keep(const struct cloud_metric *v, void *user)
{
	struct given *g = user;

	CHECK(g->n < ARRAY_SIZE(g->v));
	g->v[g->n++] = *v;
	return 0;
}

static size_t series(const struct meter *m, int64_t start_s, int64_t end_s, struct given *g)
{
	g->n = 0;
	CHECK_INT(meter_series(m, start_s, end_s, keep, g), 0);
	return g->n;
}

TEST(points)
{
	static struct given g;
	struct meter m = { 0 };
	struct container_usage u = {.n_cpus = 2,
				    .mem_bytes = 10,
				    .mem_limit_bytes = 100,
				    .disk_used_bytes = 5,
				    .disk_total_bytes = 50,
				    .mem_cache_bytes = 3};
	struct cloud_metric v;

	CHECK(!meter_last(&m, &v));
	CHECK_INT(series(&m, 0, 100, &g), 0);
	meter_restart(&m, 1000000, 0);
	u.cpu_us = 2000000;	/* one second of two processors' five each */
	meter_add(&m, &u, 1000, 5000000);
	CHECK(meter_last(&m, &v));
	CHECK_INT(v.at_ms, 1000000);
	CHECK(v.cpu_used_pct == 10.0);
	CHECK_INT(v.cpu_count, 2);
	CHECK_INT(v.mem_used, 10);
	CHECK_INT(v.mem_total, 100);
	CHECK_INT(v.mem_cache, 3);
	CHECK_INT(v.disk_used, 5);
	CHECK_INT(v.disk_total, 50);
	/* A new group counts from zero. */
	u.cpu_us = 0;
	meter_add(&m, &u, 1005, 10000000);
	CHECK(meter_last(&m, &v) && v.cpu_used_pct == 0.0);
	meter_fini(&m);
}

TEST(series)
{
	static struct given g;
	struct meter m = { 0 };
	struct container_usage u = { .n_cpus = 1 };

	for (int i = 0; i < 2000; i++) {
		u.mem_bytes = (uint64_t)i;
		meter_add(&m, &u, 1000 + i * 5, (uint64_t)i * 5000000);
	}
	CHECK_INT(series(&m, 1000, 1000 + 99 * 5, &g), 100);
	CHECK_INT(series(&m, 1001, 1004, &g), 0);
	/* Two hours: one point each 30 s, with the mean of six. */
	CHECK_INT(series(&m, 1000, 1000 + 7199, &g), 240);
	CHECK_INT(g.v[0].mem_used, 2);
	CHECK_INT(g.v[0].at_ms, 1025000);
	CHECK_INT(g.v[1].mem_used, 8);
	meter_fini(&m);
}

TEST(the_oldest_go)
{
	static struct given g;
	struct meter m = { 0 };
	struct container_usage u = { .n_cpus = 1 };
	struct cloud_metric v;

	for (uint32_t i = 0; i < METER_POINTS_MAX + 10; i++)
		meter_add(&m, &u, i, i);
	CHECK_INT(m.n, METER_POINTS_MAX);
	CHECK(series(&m, 0, 20, &g) > 0);
	CHECK_INT(g.v[0].at_ms, 14000);
	CHECK(meter_last(&m, &v));
	CHECK_INT(v.at_ms, (METER_POINTS_MAX + 9) * 1000ll);
	meter_fini(&m);
}

TEST(steps)
{
	static const int64_t t[][2] = { { 0, 5 }, { 3599, 5 }, { 3600, 30 }, { 6 * 3600, 60 },
					{ 12 * 3600, 120 }, { 24 * 3600, 300 }, { 7 * 86400, 900 } };

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		CHECK_INT(meter_step_s(t[i][0]), t[i][1]);
}

static size_t lines(const struct event_log *d, struct event_log_query q, const char *first)
{
	json_t *o = event_log_read(d, &q, false);
	size_t n = json_array_size(o);

	if (first)
		CHECK_STR(json_string_value(json_object_get(json_array_get(o, 0), "message")), first);
	json_decref(o);
	return n;
}

TEST(event_log)
{
	static const char *const names[] = { "one", "two", "three", "four" };
	struct event_log_query all = { .to_us = 100, .limit = 10 }, q;
	enum event_log_level level;
	struct event_log d = { 0 };
	json_t *o;

	CHECK_INT(lines(&d, all, NULL), 0);
	for (int i = 0; i < 4; i++)
		event_log_add(&d, i * 10, (enum event_log_level)i, names[i],
			      i == 2 ? json_pack("{s:s}", "k", "v") : NULL);
	CHECK_INT(lines(&d, all, "one"), 4);
	q = all;
	q.backward = true;
	CHECK_INT(lines(&d, q, "four"), 4);
	q.limit = 2;
	CHECK_INT(lines(&d, q, "four"), 2);
	q.limit = 0;
	CHECK_INT(lines(&d, q, NULL), 0);
	q = all;
	q.level = EVENT_LOG_WARN;
	CHECK_INT(lines(&d, q, "three"), 2);
	q = all;
	q.search = "o";
	CHECK_INT(lines(&d, q, "one"), 3);
	q = all;
	q.from_us = 10;
	q.to_us = 20;
	CHECK_INT(lines(&d, q, "two"), 2);
	o = event_log_read(&d, &q, true);
	CHECK(strstr(json_string_value(json_object_get(json_array_get(o, 1), "line")), "{\"k\":\"v\"}"));
	json_decref(o);
	for (uint32_t i = 0; i < EVENT_LOG_MAX; i++)
		event_log_add(&d, 50, EVENT_LOG_INFO, "many", NULL);
	CHECK_INT(lines(&d, all, "many"), 10);
	event_log_fini(&d);
	CHECK_INT(event_log_level_parse("warn", &level), 0);
	CHECK_INT(level, EVENT_LOG_WARN);
	CHECK_INT(event_log_level_parse("WARN", &level), -EINVAL);
}

TEST_MAIN()
