/* SPDX-License-Identifier: MIT */
/* agentboxctl snapshot */
#include <stdio.h>
#include <string.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static const struct opt cmd_snapshot_opts[] = {
	OPT(0, "name", OPT_TEXT, name, "N", "of create: NAME or NAME:TAG; of ls: only of this name"),
	OPT(0, "request-id", OPT_TEXT, request_id, "R", "of create: the same id never makes two"),
	OPT(0, "cached", OPT_FLAG, cached, NULL, "of ls: what the daemon knows, without the cloud"),
};

static void cmd_snapshot_print_json(const struct ab_snapshot *s)
{
	struct json j;

	json_begin(&j, stdout);
	json_text(&j, "id", s->id);
	json_words(&j, "names", s->names, s->n_names);
	json_text(&j, "source_sandbox", s->source_sandbox);
	json_time(&j, "created_at", s->created_at_ms);
	json_time(&j, "as_of", s->as_of_ms);
	json_end(&j);
}

static int create(struct cli *cli)
{
	const struct args *a = &cli->args;
	struct ab_call *call;
	struct ab_snapshot *s;
	int r;

	if (a->n_words != 2)
		return usage(cli->command, "create takes one sandbox");
	r = ab_snapshot_create_start(cli->client, a->words[1], a->name, a->request_id, NULL, &call);
	if (r < 0)
		return fail_here(cli, "%s", strerror(-r));
	if (ab_call_wait(call)) {
		r = fail_create(cli, call);
	} else {
		s = ab_call_take(call);
		if (a->json)
			cmd_snapshot_print_json(s);
		else
			puts(s->id);
		ab_free(s);
	}
	ab_call_free(call);
	return r;
}

static void cmd_snapshot_row(struct table *t, const struct ab_snapshot *s)
{
	char buf[32], names[512] = "";
	size_t n = 0;

	for (size_t i = 0; i < s->n_names && n < sizeof(names); i++)
		n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", i ? " " : "", s->names[i]);
	table_cell(t, s->id);
	table_cell(t, names[0] ? names : "-");
	table_cell(t, *s->source_sandbox ? s->source_sandbox : "-");
	table_cell(t, time_text(s->created_at_ms, buf));
}

static int list(struct cli *cli)
{
	static const char *const heads[] = { "SNAPSHOT", "NAMES", "OF", "MADE", NULL };
	static const char *const spare[] = { "OF", NULL };
	const struct args *a = &cli->args;
	struct ab_snapshot_list_options o = { .sandbox = a->n_words > 1 ? a->words[1] : NULL, .name = a->name,
					      .page_size = 1000, .cached = a->cached };
	struct ab_snapshot_list *page = NULL, *next;
	struct table t;
	int r = EXIT_OK, r_table;

	table_begin(&t, heads);
	t.spare = spare;
	do {
		o.page_token = page ? page->next_page_token : NULL;
		if (ab_snapshot_list(cli->client, &o, NULL, &next)) {
			r = fail_client(cli);
			break;
		}
		ab_free(page);
		page = next;
		for (size_t i = 0; i < page->n; i++) {
			if (a->json)
				cmd_snapshot_print_json(&page->items[i]);
			else
				cmd_snapshot_row(&t, &page->items[i]);
		}
	} while (*page->next_page_token);
	ab_free(page);
	t.quiet = a->json || r;
	r_table = table_end(&t);
	return r ? r : r_table;
}

static void print_removed(const char *snapshot, bool found)
{
	struct json j;

	json_begin(&j, stdout);
	json_text(&j, "snapshot", snapshot);
	json_bool(&j, "found", found);
	json_end(&j);
}

/* All are tried; the first failure gives the exit code. */
static int rm(struct cli *cli)
{
	const struct args *a = &cli->args;
	int worst = EXIT_OK;

	if (a->n_words < 2)
		return usage(cli->command, "rm needs a snapshot");
	for (size_t i = 1; i < a->n_words; i++) {
		bool found = false;
		int r = EXIT_OK;

		if (ab_snapshot_delete(cli->client, a->words[i], NULL, &found)) {
			r = fail_client(cli);
		} else {
			if (a->json)
				print_removed(a->words[i], found);
			if (!found) {
				r = fail_missing(cli, "SNAPSHOT_NOT_FOUND", "there is no snapshot %s", a->words[i]);
			}
		}
		worst = worst ? worst : r;
	}
	return worst;
}

static int cmd_snapshot_run(struct cli *cli)
{
	const char *what = cli->args.words[0];

	if (!strcmp(what, "create"))
		return create(cli);
	if (!strcmp(what, "ls"))
		return list(cli);
	if (!strcmp(what, "rm"))
		return rm(cli);
	return usage(cli->command, "it is create, ls or rm, not '%s'", what);
}

const struct command cmd_snapshot = {
	.name = "snapshot",
	.words = "create ID | ls [ID] | rm SNAPSHOT…",
	.help = "Keeps the state of a running sandbox; create -t SNAPSHOT makes others from it.",
	.opts = cmd_snapshot_opts,
	.n_opts = ARRAY_SIZE(cmd_snapshot_opts),
	.min_words = 1,
	.max_words = SIZE_MAX,
	.run = cmd_snapshot_run,
};
