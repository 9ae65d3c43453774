/* SPDX-License-Identifier: MIT */
/* agentboxctl metrics */
#include <stdio.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/clock.h"
#include "client/cli/term/out.h"

#define SPARKS 60u

static const struct opt cmd_metrics_opts[] = {
	OPT(0, "since", OPT_SPAN, ttl_ms, "D", "the last D only (its whole life)"),
	OPT('a', "all", OPT_FLAG, all, NULL, "every point, in a table"),
};

static void cmd_metrics_print_json(const struct ab_metric_list *l)
{
	struct json j;
	char number[40];

	for (size_t i = 0; i < l->n; i++) {
		const struct ab_metric *m = &l->items[i];

		json_begin(&j, stdout);
		json_time(&j, "at", m->at_ms);
		json_uint(&j, "cpu_count", m->cpu_count);
		(void)snprintf(number, sizeof(number), "%.2f", m->cpu_used_pct);
		json_number(&j, "cpu_used_pct", number);
		json_int(&j, "mem_used", m->mem_used);
		json_int(&j, "mem_total", m->mem_total);
		json_int(&j, "mem_cache", m->mem_cache);
		json_int(&j, "disk_used", m->disk_used);
		json_int(&j, "disk_total", m->disk_total);
		json_end(&j);
	}
}

static double cpu_of(const struct ab_metric *m)
{
	return m->cpu_count ? m->cpu_used_pct / m->cpu_count : m->cpu_used_pct;
}

static double part(int64_t used, int64_t total)
{
	return total > 0 ? 100.0 * (double)used / (double)total : 0;
}

static double mem_of(const struct ab_metric *m)
{
	return part(m->mem_used, m->mem_total);
}

static double disk_of(const struct ab_metric *m)
{
	return part(m->disk_used, m->disk_total);
}

/* The series in at most SPARKS columns, each the highest of its points; the scale ends at 100 %. */
static void spark(const char *name, const struct ab_metric_list *l, double (*of)(const struct ab_metric *m),
		  const char *now)
{
	static const char *const bars[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	size_t columns = l->n < SPARKS ? l->n : SPARKS;

	printf("%-5s ", name);
	for (size_t c = 0; c < columns; c++) {
		double top = 0;
		size_t level;

		for (size_t i = c * l->n / columns; i < (c + 1) * l->n / columns; i++)
			if (of(&l->items[i]) > top)
				top = of(&l->items[i]);
		level = top <= 0 ? 0 : (size_t)(top / 100 * 7 + 0.5);
		fputs(bars[level > 7 ? 7 : level], stdout);
	}
	printf("  %s\n", now);
}

static void print_sparks(const struct ab_metric_list *l)
{
	const struct ab_metric *m = &l->items[l->n - 1];
	char text[96], a[32], b[32];

	(void)snprintf(text, sizeof(text), "%.1f %% of %u CPU", cpu_of(m), m->cpu_count);
	spark("cpu", l, cpu_of, text);
	(void)snprintf(text, sizeof(text), "%s of %s", size_text((uint64_t)m->mem_used, a),
		       size_text((uint64_t)m->mem_total, b));
	spark("mem", l, mem_of, text);
	(void)snprintf(text, sizeof(text), "%s of %s", size_text((uint64_t)m->disk_used, a),
		       size_text((uint64_t)m->disk_total, b));
	spark("disk", l, disk_of, text);
	printf("%zu points, %s to ", l->n, time_text(l->items[0].at_ms, a));
	puts(time_text(m->at_ms, a));
}

static int print_table(const struct ab_metric_list *l)
{
	static const char *const heads[] = { "AT", "CPU", "CPU %", "MEM", "MEM TOTAL", "CACHE", "DISK",
					     "DISK TOTAL", NULL };
	static const char *const spare[] = { "DISK TOTAL", "MEM TOTAL", "CACHE", NULL };
	struct table t;
	char buf[32];

	table_begin(&t, heads);
	t.spare = spare;
	for (size_t i = 0; i < l->n; i++) {
		const struct ab_metric *m = &l->items[i];
		const int64_t sizes[] = { m->mem_used, m->mem_total, m->mem_cache, m->disk_used, m->disk_total };

		table_cell(&t, time_text(m->at_ms, buf));
		table_number(&t, m->cpu_count);
		(void)snprintf(buf, sizeof(buf), "%.1f", m->cpu_used_pct);
		table_cell(&t, buf);
		for (size_t k = 0; k < ARRAY_SIZE(sizes); k++)
			table_cell(&t, size_text((uint64_t)sizes[k], buf));
	}
	return table_end(&t);
}

static int cmd_metrics_run(struct cli *cli)
{
	const struct args *a = &cli->args;
	int64_t start = 0, now_ms = cli_wall_ms();
	struct ab_metric_list *l;
	int r = EXIT_OK;

	if (a->ttl_ms && a->ttl_ms != AB_ZERO_MS && a->ttl_ms < (uint64_t)now_ms)
		start = now_ms - (int64_t)a->ttl_ms;
	if (ab_sandbox_get_metrics(cli->client, a->words[0], start, 0, NULL, &l))
		return fail_client(cli);
	if (a->json)
		cmd_metrics_print_json(l);
	else if (!l->n)
		say(cli, "the cloud has no points of that time");
	else if (a->all)
		r = print_table(l);
	else
		print_sparks(l);
	if (l->source == AB_SOURCE_CACHE_UNREACHABLE && !a->json)
		say(cli, "the cloud does not answer: this is what it last said");
	ab_free(l);
	return r;
}

const struct command cmd_metrics = {
	.name = "metrics",
	.words = "ID",
	.help = "Shows how much of its CPU, memory and disk a sandbox uses.",
	.opts = cmd_metrics_opts,
	.n_opts = ARRAY_SIZE(cmd_metrics_opts),
	.min_words = 1,
	.max_words = 1,
	.run = cmd_metrics_run,
};
