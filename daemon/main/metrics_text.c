/* SPDX-License-Identifier: MIT */
#include "daemon/main/metrics_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/str.h"

#define NAME_MAX_BYTES 96u

void metrics_head(struct metrics_text *t, const char *name, const char *type, const char *help)
{
	t->failed |= buf_printf(&t->b, "# TYPE agentbox_%s %s\n# HELP agentbox_%s %s\n", name, type, name, help) < 0;
}

static void put_value(struct metrics_text *t, const char *value)
{
	for (; *value; value++) {
		size_t len = str_utf8_len(value, strlen(value));

		if (*value == '\\' || *value == '"')
			t->failed |= buf_printf(&t->b, "\\%c", *value) < 0;
		else if (*value == '\n')
			t->failed |= buf_put(&t->b, "\\n", 2) < 0;
		else if (!len)
			t->failed |= buf_put(&t->b, "?", 1) < 0;
		else
			t->failed |= buf_put(&t->b, value, len) < 0;
		value += len > 1 ? len - 1 : 0;
	}
}

/* `le`: one more label, a bound in microseconds; UINT64_MAX is infinity, 0 none. */
static void put_labels(struct metrics_text *t, metrics_labels labels, uint64_t le)
{
	const char *between = "{";

	for (size_t i = 0; labels && labels[i]; i += 2) {
		t->failed |= buf_printf(&t->b, "%s%s=\"", between, labels[i]) < 0;
		put_value(t, labels[i + 1]);
		t->failed |= buf_put(&t->b, "\"", 1) < 0;
		between = ",";
	}
	if (le == UINT64_MAX)
		t->failed |= buf_printf(&t->b, "%sle=\"+Inf\"", between) < 0;
	else if (le)
		t->failed |= buf_printf(&t->b, "%sle=\"%g%s\"", between, (double)le / 1e6, le % 1000000 ? "" : ".0") < 0;
	if (le || *between == ',')
		t->failed |= buf_put(&t->b, "}", 1) < 0;
}

static void sample(struct metrics_text *t, const char *name, const char *suffix, metrics_labels labels, uint64_t le)
{
	t->failed |= buf_printf(&t->b, "agentbox_%s%s", name, suffix) < 0;
	put_labels(t, labels, le);
}

void metrics_line(struct metrics_text *t, const char *name, metrics_labels labels, uint64_t n)
{
	sample(t, name, "", labels, 0);
	t->failed |= buf_printf(&t->b, " %" PRIu64 "\n", n) < 0;
}

void metrics_gauge(struct metrics_text *t, const char *name, const char *help, uint64_t n)
{
	metrics_head(t, name, "gauge", help);
	metrics_line(t, name, NULL, n);
}

void metrics_counter(struct metrics_text *t, const char *name, const char *help, uint64_t n)
{
	char total[NAME_MAX_BYTES];

	metrics_head(t, name, "counter", help);
	snprintf(total, sizeof(total), "%s_total", name);
	metrics_line(t, total, NULL, n);
}

static void put_exemplar(struct metrics_text *t, const struct exemplar *x)
{
	if (!x->id[0] || !(x->is_trace || t->tells_requests))
		return;
	t->failed |= buf_printf(&t->b, " # {%s=\"", x->is_trace ? "trace_id" : "request_id") < 0;
	put_value(t, x->id);
	t->failed |= buf_printf(&t->b, "\"} %" PRIu64 ".%06" PRIu64 " %" PRId64 ".%03" PRId64, x->us / 1000000, x->us % 1000000,
				x->at_ms / 1000, x->at_ms % 1000) < 0;
}

void metrics_histogram(struct metrics_text *t, const char *name, metrics_labels labels, const struct histogram *h)
{
	metrics_histogram_with(t, name, labels, h, NULL);
}

void metrics_histogram_with(struct metrics_text *t, const char *name, metrics_labels labels, const struct histogram *h,
			    const struct exemplars *examples)
{
	uint64_t n = 0;

	for (unsigned i = 0; i <= HISTOGRAM_STEPS; i++) {
		n += h->n[i];
		sample(t, name, "_bucket", labels, i < HISTOGRAM_STEPS ? histogram_bounds_us[i] : UINT64_MAX);
		t->failed |= buf_printf(&t->b, " %" PRIu64, n) < 0;
		if (examples)
			put_exemplar(t, &examples->v[i]);
		t->failed |= buf_put(&t->b, "\n", 1) < 0;
	}
	sample(t, name, "_count", labels, 0);
	t->failed |= buf_printf(&t->b, " %" PRIu64 "\n", n) < 0;
	sample(t, name, "_sum", labels, 0);
	t->failed |= buf_printf(&t->b, " %" PRIu64 ".%06" PRIu64 "\n", h->sum_us / 1000000, h->sum_us % 1000000) < 0;
}
