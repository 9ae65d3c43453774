/* SPDX-License-Identifier: MIT */
/* agentboxctl template */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/field.h"
#include "client/cli/term/out.h"

static const struct opt cmd_template_opts[] = {
	OPT(0, "filter", OPT_PAIR, filters, "K=V", "only where name or status is this; may be repeated"),
	OPT(0, "sort", OPT_TEXT, sort, "FIELD", "by a field of --json; -FIELD: the last first"),
	OPT('q', "quiet", OPT_FLAG, quiet, NULL, "only the ids"),
	OPT(0, "format", OPT_TEXT, format, "TEXT", "a line for each, with fields of --json: '{id} {names}'"),
};

/* --- fields --- */

static void put_names(struct json *j, const char *key, const void *row)
{
	const struct ab_template *t = row;

	json_words(j, key, t->names, t->n_names);
}

#define ROW struct ab_template
static const struct field template_fields[] = {
	FIELD(ROW, TEXT, id),
	FIELD_BY(OBJECT, "names", .put = put_names),
	FIELD_AS(ROW, BOOL, "public", is_public),
	FIELD(ROW, TEXT, build_id),
	FIELD(ROW, TEXT, build_status),
	FIELD(ROW, UINT, cpu_count),
	FIELD(ROW, UINT, memory_mb),
	FIELD(ROW, UINT, disk_size_mb),
	FIELD(ROW, TEXT, envd_version),
	FIELD_AS(ROW, TIME, "created_at", created_at_ms),
	FIELD_AS(ROW, TIME, "updated_at", updated_at_ms),
	FIELD_AS(ROW, TIME, "last_spawned_at", last_spawned_at_ms),
	FIELD(ROW, COUNT, spawn_count),
};
#undef ROW

static const struct field_table fields_of_template = { template_fields, ARRAY_SIZE(template_fields), NULL };

/* --- all of them --- */

struct rows {
	const struct ab_template **v;	/* belong to the pages */
	size_t n;
	struct ab_template_list **pages;
	size_t n_pages;
};

static int rows_add(struct cli *cli, struct rows *s, struct ab_template_list *page)
{
	struct ab_template_list **pages = reallocarray(s->pages, s->n_pages + 1, sizeof(struct ab_template_list *));
	const struct ab_template **v;

	if (!pages) {
		ab_free(page);
		return fail_here(cli, "out of memory");
	}
	s->pages = pages;
	pages[s->n_pages++] = page;
	v = reallocarray(s->v, s->n + page->n + 1, sizeof(const struct ab_template *));
	if (!v)
		return fail_here(cli, "out of memory");
	s->v = v;
	for (size_t i = 0; i < page->n; i++)
		v[s->n++] = &page->items[i];
	return 0;
}

/* 0, or the exit code after saying what is wrong; *ret is to be freed in any case. */
static int rows_list(struct cli *cli, struct rows *ret)
{
	struct ab_template_list_options o = { .page_size = 1000 };
	struct ab_template_list *page;
	int r;

	*ret = (struct rows){ 0 };
	do {
		if (ab_template_list(cli->client, &o, NULL, &page))
			return fail_client(cli);
		r = rows_add(cli, ret, page);
		if (r)
			return r;
		o.page_token = page->next_page_token;
	} while (*o.page_token);
	return 0;
}

static void rows_free(struct rows *s)
{
	for (size_t i = 0; i < s->n_pages; i++)
		ab_free(s->pages[i]);
	free(s->pages);
	free(s->v);
}

/* --- choosing --- */

static bool is_called(const struct ab_template *t, const char *name)
{
	bool is = !strcmp(t->id, name);

	for (size_t i = 0; i < t->n_names && !is; i++) {
		const char *slash = strrchr(t->names[i], '/');

		is = !strcmp(t->names[i], name) || (slash && !strcmp(slash + 1, name));
	}
	return is;
}

static bool template_filter_holds(const struct ab_pair *f, const void *row)
{
	const struct ab_template *t = row;

	return !strcmp(f->key, "status") ? !strcmp(t->build_status, f->value) : is_called(t, f->value);
}

static void rows_keep(struct rows *s, const struct pairs *filters)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		if (filters_hold(filters, template_filter_holds, s->v[i]))
			s->v[n++] = s->v[i];
	s->n = n;
}

/* Equals stand as their ids do. */
static int compare_rows(const void *a, const void *b, void *user)
{
	const struct ab_template *one = *(const struct ab_template *const *)a, *other = *(const struct ab_template *const *)b;
	int r = order_compare(user, one, other);

	return r ? r : strcmp(one->id, other->id);
}

/* --- output --- */

static void cmd_template_row(struct table *t, const struct ab_template *m)
{
	char buf[32], names[512] = "";
	size_t n = 0;

	for (size_t i = 0; i < m->n_names && n < sizeof(names); i++)
		n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", i ? " " : "", m->names[i]);
	table_cell(t, m->id);
	table_cell(t, names[0] ? names : "-");
	table_cell(t, *m->build_status ? m->build_status : "-");
	table_number(t, m->cpu_count);
	table_cell(t, size_text((uint64_t)m->memory_mb << 20, buf));
	table_cell(t, m->is_public ? "yes" : "no");
	table_cell(t, time_text(m->updated_at_ms, buf));
	table_cell(t, time_text(m->last_spawned_at_ms, buf));
	table_number(t, m->spawn_count);
}

static int print_templates(const struct rows *s)
{
	static const char *const heads[] = { "TEMPLATE", "NAMES",  "STATUS", "CPUS", "MEMORY",
					     "PUBLIC",	 "UPDATED", "LAST USED", "USES", NULL };
	static const char *const spare[] = { "LAST USED", "PUBLIC", "USES", "UPDATED", "CPUS", NULL };
	struct table t;

	table_begin(&t, heads);
	t.spare = spare;
	for (size_t i = 0; i < s->n; i++)
		cmd_template_row(&t, s->v[i]);
	return table_end(&t);
}

static int print_rows(const struct args *a, const struct rows *s)
{
	if (!a->json && !a->format && !a->quiet)
		return print_templates(s);
	for (size_t i = 0; i < s->n; i++) {
		if (a->json)
			fields_print_json(&fields_of_template, s->v[i]);
		else
			format_print(stdout, &fields_of_template, a->quiet ? "{id}" : a->format, s->v[i]);
	}
	return EXIT_OK;
}

/* --- the command --- */

static int cmd_template_check(struct cli *cli)
{
	const struct args *a = &cli->args;
	struct order order = { 0 };

	if (strcmp(a->words[0], "ls") != 0)
		return usage(cli->command, "it is ls, not '%s'", a->words[0]);
	if (a->json + a->quiet + (a->format != NULL) > 1)
		return usage(cli->command, "--json, --quiet and --format exclude each other");
	if (a->format && format_check(cli->command, &fields_of_template, a->format))
		return EXIT_USAGE;
	for (size_t i = 0; i < a->filters.n; i++)
		if (strcmp(a->filters.v[i].key, "name") != 0 && strcmp(a->filters.v[i].key, "status") != 0)
			return usage(cli->command, "--filter has no '%s'; there are name and status", a->filters.v[i].key);
	return order_parse(cli->command, &fields_of_template, a->sort, &order);
}

/* cmd_template_check() was content with the options. */
static int cmd_template_run(struct cli *cli)
{
	const struct args *a = &cli->args;
	struct order order = { 0 };
	struct rows s;
	int r;

	(void)order_parse(cli->command, &fields_of_template, a->sort, &order);
	r = rows_list(cli, &s);
	if (r == 0) {
		rows_keep(&s, &a->filters);
		if (a->sort && s.n)
			qsort_r(s.v, s.n, sizeof(const struct ab_template *), compare_rows, &order);
		r = print_rows(a, &s);
	}
	rows_free(&s);
	return r;
}

const struct command cmd_template = {
	.name = "template",
	.words = "ls",
	.help = "Lists the templates of the account: what create -t takes.",
	.opts = cmd_template_opts,
	.n_opts = ARRAY_SIZE(cmd_template_opts),
	.min_words = 1,
	.max_words = 1,
	.check = cmd_template_check,
	.run = cmd_template_run,
};
