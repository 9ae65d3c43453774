/* SPDX-License-Identifier: MIT */
/* agentboxctl ls */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cmd/sandboxes.h"
#include "client/cli/term/cli.h"
#include "client/cli/term/clock.h"
#include "client/cli/term/field.h"
#include "client/cli/term/out.h"

static const struct opt cmd_ls_opts[] = {
	OPT('m', "metadata", OPT_PAIR, metadata, "K=V", "only those with this mark; may be repeated"),
	OPT(0, "state", OPT_TEXT, states, "S,...", "only in these states: running, paused, gone, ... (all but gone)"),
	OPT('t', "template", OPT_TEXT, template_name, "T", "only of this template"),
	OPT(0, "filter", OPT_PAIR, filters, "K=V", "only where state, name, template or metadata.KEY is this; may be repeated"),
	OPT(0, "sort", OPT_TEXT, sort, "FIELD", "by a field of --json; -FIELD: the last first"),
	OPT('q', "quiet", OPT_FLAG, quiet, NULL, "only the ids"),
	OPT(0, "format", OPT_TEXT, format, "TEXT", "a line for each, with fields of --json: '{id} {name}'"),
	OPT(0, "cached", OPT_FLAG, cached, NULL, "what the daemon knows, without asking the cloud"),
	OPT(0, "all-hosts", OPT_FLAG, all_hosts, NULL, "also what this daemon did not make"),
	OPT(0, "all-owners", OPT_FLAG, all_owners, NULL, "of all users (administrators)"),
};

/* "a=1 b=2", cut where it gets long. */
static void metadata_text(const struct ab_sandbox *sb, char *buf, size_t n)
{
	size_t at = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < sb->n_metadata && at + 1 < n; i++) {
		int k = snprintf(buf + at, n - at, "%s%s=%s", i ? " " : "", sb->metadata[i].key,
				 sb->metadata[i].value);

		at += k > 0 ? (size_t)k : 0;
	}
}

static void cmd_ls_row(struct table *t, const struct ab_sandbox *sb, int64_t now_ms)
{
	char buf[32], metadata[200], policy[160];

	metadata_text(sb, metadata, sizeof(metadata));
	table_cell(t, sb->id);
	table_cell(t, *sb->name ? sb->name : "-");
	table_cell(t, state_name(sb->state));
	table_cell(t, *sb->alias ? sb->alias : sb->template_id);
	table_cell(t, time_text(sb->started_at_ms, buf));
	table_cell(t, time_text(sb->end_at_ms, buf));
	table_cell(t, sb->state == AB_SANDBOX_RUNNING ? span_text((sb->end_at_ms - now_ms) / 1000 * 1000, buf) : "-");
	table_number(t, sb->owner_uid);
	table_number(t, sb->leases);
	table_cell(t, policy_text(&sb->policy, policy, sizeof(policy)));
	table_cell(t, metadata);
}

/* The bit of a state, 0 if it is none. */
static uint32_t state_bit(const char *name, size_t n)
{
	for (enum ab_sandbox_state s = AB_SANDBOX_CREATING; s <= AB_SANDBOX_GONE; s++)
		if (strlen(state_name(s)) == n && !strncmp(state_name(s), name, n))
			return 1u << s;
	return 0;
}

/* 0, or EXIT_USAGE after saying what is wrong. */
static int read_states(const struct cli *cli, uint32_t *ret)
{
	for (const char *p = cli->args.states; p && *p; p += strcspn(p, ",") + (p[strcspn(p, ",")] == ',')) {
		size_t n = strcspn(p, ",");
		uint32_t bit = state_bit(p, n);

		if (!bit)
			return usage(cli->command, "'%.*s' is no state", (int)n, p);
		*ret |= bit;
	}
	if (cli->args.states && !*ret)
		return usage(cli->command, "--state needs one");
	return 0;
}

/* --- filters --- */

static bool is_metadata(const char *key)
{
	return !strncmp(key, "metadata.", 9) && key[9];
}

static bool filter_holds(const struct ab_pair *f, const void *row)
{
	const struct ab_sandbox *sb = row;
	const char *mark;

	if (!strcmp(f->key, "state"))
		return !strcmp(state_name(sb->state), f->value);
	if (!strcmp(f->key, "name"))
		return !strcmp(sb->name, f->value);
	if (!strcmp(f->key, "template"))
		return !strcmp(sb->template_id, f->value) || !strcmp(sb->alias, f->value);
	mark = metadata_value(sb, f->key + 9, strlen(f->key + 9));
	return mark && !strcmp(mark, f->value);
}

static bool all_filters_hold(const struct ab_sandbox *sb, const void *user)
{
	return filters_hold(user, filter_holds, sb);
}

/* Of the filters: what the daemon has to be asked for, since it leaves out what is gone unless it is named. */
static int read_filters(const struct cli *cli, uint32_t *ret_states)
{
	const struct pairs *p = &cli->args.filters;

	for (size_t i = 0; i < p->n; i++) {
		const char *key = p->v[i].key, *value = p->v[i].value;

		if (!strcmp(key, "state")) {
			uint32_t bit = state_bit(value, strlen(value));

			if (!bit)
				return usage(cli->command, "'%s' is no state", value);
			*ret_states |= bit;
		} else if (strcmp(key, "name") != 0 && strcmp(key, "template") != 0 && !is_metadata(key)) {
			return usage(cli->command, "--filter has no '%s'; there are state, name, template and metadata.KEY", key);
		}
	}
	return 0;
}

/* --- order --- */

/* Equals stand as a list without an order has them: newest first. */
static int compare(const void *a, const void *b, void *user)
{
	const struct ab_sandbox *one = *(const struct ab_sandbox *const *)a, *other = *(const struct ab_sandbox *const *)b;
	int r = order_compare(user, one, other);

	if (r)
		return r;
	if (one->started_at_ms != other->started_at_ms)
		return one->started_at_ms > other->started_at_ms ? -1 : 1;
	return strcmp(one->id, other->id);
}

/* --- output --- */

static int print_table(const struct sandboxes *s)
{
	static const char *const heads[] = { "ID", "NAME", "STATE", "TEMPLATE", "STARTED", "ENDS", "LEFT",
					     "OWNER", "LEASES", "POLICY", "METADATA", NULL };
	static const char *const spare[] = { "STARTED", "METADATA", "POLICY", "ENDS", "OWNER", "LEASES", NULL };
	struct table t;

	table_begin(&t, heads);
	t.spare = spare;
	t.cuts_last = true;
	for (size_t i = 0; i < s->n; i++)
		cmd_ls_row(&t, s->v[i], cli_wall_ms());
	return table_end(&t);
}

static int print_list(const struct args *a, const struct sandboxes *s)
{
	if (!a->json && !a->format && !a->quiet)
		return print_table(s);
	for (size_t i = 0; i < s->n; i++) {
		if (a->json)
			print_sandbox_json(s->v[i]);
		else
			format_print(stdout, &fields_of_sandbox, a->quiet ? "{id}" : a->format, s->v[i]);
	}
	return EXIT_OK;
}

static int cmd_ls_check(struct cli *cli)
{
	const struct args *a = &cli->args;
	struct order order = { 0 };
	uint32_t states = 0;

	if (a->json + a->quiet + (a->format != NULL) > 1)
		return usage(cli->command, "--json, --quiet and --format exclude each other");
	if (a->format && format_check(cli->command, &fields_of_sandbox, a->format))
		return EXIT_USAGE;
	if (read_states(cli, &states) || read_filters(cli, &states))
		return EXIT_USAGE;
	return order_parse(cli->command, &fields_of_sandbox, a->sort, &order);
}

/* cmd_ls_check() was content with the options. */
static int cmd_ls_run(struct cli *cli)
{
	const struct args *a = &cli->args;
	struct ab_sandbox_list_options o = {
		.metadata = a->metadata.v,
		.n_metadata = a->metadata.n,
		.cached = a->cached,
		.all_hosts = a->all_hosts,
		.all_owners = a->all_owners,
		.template_name = a->template_name,
	};
	struct order order = { 0 };
	struct sandboxes s;
	int r;

	(void)order_parse(cli->command, &fields_of_sandbox, a->sort, &order);
	if (a->states)
		(void)read_states(cli, &o.states);
	else
		(void)read_filters(cli, &o.states);
	r = sandboxes_list(cli, &o, &s);
	if (r == 0) {
		sandboxes_keep(&s, all_filters_hold, &a->filters);
		if (a->sort && s.n)
			qsort_r(s.v, s.n, sizeof(const struct ab_sandbox *), compare, &order);
		r = print_list(a, &s);
	}
	sandboxes_free(&s);
	return r;
}

const struct command cmd_ls = {
	.name = "ls",
	.words = "",
	.help = "Lists sandboxes, newest first.",
	.opts = cmd_ls_opts,
	.n_opts = ARRAY_SIZE(cmd_ls_opts),
	.check = cmd_ls_check,
	.run = cmd_ls_run,
};
