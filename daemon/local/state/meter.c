/* SPDX-License-Identifier: MIT */
#include "daemon/local/state/meter.h"

#include <stdlib.h>

#include "proto/base/str.h"

void meter_fini(struct meter *m)
{
	free(m->v);
	*m = (struct meter){ 0 };
}

void meter_restart(struct meter *m, uint64_t cpu_us, uint64_t now_us)
{
	m->cpu_us = cpu_us;
	m->at_us = now_us;
}

static struct meter_point *next_point(struct meter *m)
{
	if (m->n == METER_POINTS_MAX) {
		m->first = (m->first + 1) % METER_POINTS_MAX;
		return &m->v[(m->first + m->n - 1) % METER_POINTS_MAX];
	}
	if (m->n == m->cap) {
		uint32_t cap = MIN(MAX(m->cap * 2, 64u), METER_POINTS_MAX);
		struct meter_point *v = reallocarray(m->v, cap, sizeof(*v));

		if (!v)
			return NULL;
		m->v = v;
		m->cap = cap;
	}
	return &m->v[m->n++];
}

double meter_cpu_pct(const struct container_usage *u, uint64_t cpu_us, uint64_t at_us, uint64_t now_us)
{
	double spent = u->cpu_us > cpu_us ? (double)(u->cpu_us - cpu_us) : 0;
	double passed = now_us > at_us ? (double)(now_us - at_us) : 1;

	return 100.0 * spent / passed / MAX(u->n_cpus, 1u);
}

void meter_add(struct meter *m, const struct container_usage *u, int64_t wall_s, uint64_t now_us)
{
	double pct = meter_cpu_pct(u, m->cpu_us, m->at_us, now_us);
	struct meter_point *p = next_point(m);

	m->cpu_us = u->cpu_us;
	m->at_us = now_us;
	if (!p)
		return;
	*p = (struct meter_point){
		.at_s = wall_s,
		.cpu_pct = (float)pct,
		.mem = u->mem_bytes,
		.cache = u->mem_cache_bytes,
		.mem_total = u->mem_limit_bytes,
		.disk = u->disk_used_bytes,
		.disk_total = u->disk_total_bytes,
		.n_cpus = u->n_cpus,
	};
}

/* --- shown --- */

static const struct meter_point *point(const struct meter *m, uint32_t i)
{
	return &m->v[m->n == METER_POINTS_MAX ? (m->first + i) % METER_POINTS_MAX : i];
}

static struct cloud_metric metric_of(const struct meter_point *p)
{
	return (struct cloud_metric){
		.at_ms = p->at_s * 1000,
		.cpu_count = p->n_cpus,
		.cpu_used_pct = (double)(int64_t)(p->cpu_pct * 100 + 0.5f) / 100,
		.mem_used = (int64_t)p->mem,
		.mem_total = (int64_t)p->mem_total,
		.mem_cache = (int64_t)p->cache,
		.disk_used = (int64_t)p->disk,
		.disk_total = (int64_t)p->disk_total,
	};
}

bool meter_last(const struct meter *m, struct cloud_metric *ret)
{
	if (m->n)
		*ret = metric_of(point(m, m->n - 1));
	return m->n > 0;
}

int64_t meter_step_s(int64_t length_s)
{
	static const struct {
		int64_t below_s, step_s;
	} steps[] = {
		{ 3600, 5 },	    { 6 * 3600, 30 },	{ 12 * 3600, 60 },
		{ 24 * 3600, 120 }, { 7 * 86400, 300 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		if (length_s < steps[i].below_s)
			return steps[i].step_s;
	return 900;
}

/* The last point of each step, with the means of processor and memory over it. */
static struct meter_point step_point(const struct meter *m, uint32_t from, uint32_t to)
{
	struct meter_point p = *point(m, to - 1);
	double cpu = 0, mem = 0, cache = 0, n = to - from;

	for (uint32_t i = from; i < to; i++) {
		cpu += point(m, i)->cpu_pct;
		mem += (double)point(m, i)->mem;
		cache += (double)point(m, i)->cache;
	}
	p.cpu_pct = (float)(cpu / n);
	p.mem = (uint64_t)(mem / n);
	p.cache = (uint64_t)(cache / n);
	return p;
}

int meter_series(const struct meter *m, int64_t start_s, int64_t end_s,
		 int (*add)(const struct cloud_metric *v, void *user), void *user)
{
	int64_t step = meter_step_s(end_s - start_s);
	uint32_t i = 0, from;
	int r = 0;

	while (i < m->n && point(m, i)->at_s < start_s)
		i++;
	while (r == 0 && i < m->n && point(m, i)->at_s <= end_s) {
		int64_t until = start_s + ((point(m, i)->at_s - start_s) / step + 1) * step;
		struct meter_point p;
		struct cloud_metric v;

		from = i++;
		while (i < m->n && point(m, i)->at_s < until && point(m, i)->at_s <= end_s)
			i++;
		p = step_point(m, from, i);
		v = metric_of(&p);
		r = add(&v, user);
	}
	return r;
}
