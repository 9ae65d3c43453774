/* SPDX-License-Identifier: MIT */
/* agentboxctl warm */
#include <stdio.h>
#include <string.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

#define WARM_SIZE_MAX 64u

static void cmd_warm_print_json(const struct ab_warm *w)
{
	struct json j;

	json_begin(&j, stdout);
	json_text(&j, "name", w->name);
	json_text(&j, "account", w->account);
	json_text(&j, "template_id", w->template_id);
	json_uint(&j, "size", w->size);
	json_uint(&j, "configured_size", w->configured_size);
	json_uint(&j, "ready", w->ready);
	json_uint(&j, "coming", w->coming);
	json_uint(&j, "waiting", w->waiting);
	json_uint(&j, "failures", w->failures);
	json_bool(&j, "failed", w->failed);
	json_text(&j, "why", w->why);
	json_text(&j, "output", w->output);
	json_uint(&j, "made_in_hour", w->made_in_hour);
	json_uint(&j, "per_hour", w->per_hour);
	json_uint(&j, "hits", w->hits);
	json_uint(&j, "misses", w->misses);
	json_uint(&j, "made", w->made);
	json_uint(&j, "failures_in_all", w->failures_in_all);
	json_uint(&j, "prepare_ms", w->prepare_ms);
	json_uint(&j, "oldest_ready_ms", w->oldest_ready_ms);
	json_end(&j);
}

static void cmd_warm_row(struct table *t, const struct ab_warm *w)
{
	char buf[64];

	table_cell(t, w->name);
	table_cell(t, w->template_id);
	(void)snprintf(buf, sizeof(buf), "%u/%u", w->ready, w->size);
	table_cell(t, buf);
	table_number(t, w->coming);
	table_number(t, w->waiting);
	table_number(t, w->hits);
	table_number(t, w->misses);
	(void)snprintf(buf, sizeof(buf), w->per_hour ? "%u/%u" : "%u", w->made_in_hour, w->per_hour);
	table_cell(t, buf);
	table_cell(t, w->failed ? "failed" : w->failures ? "failing" : "ok");
}

static int cmd_warm_list(struct cli *cli)
{
	static const char *const heads[] = { "NAME", "TEMPLATE", "READY", "COMING", "WAITING", "HITS", "MISSES", "HOUR", "STATE", NULL };
	static const char *const spare[] = { "HOUR", "MISSES", "HITS", "TEMPLATE", NULL };
	struct ab_warm_list *l;
	struct table t;

	if (ab_warm_list(cli->client, NULL, &l))
		return fail_client(cli);
	table_begin(&t, heads);
	t.spare = spare;
	t.cuts_last = true;
	for (size_t i = 0; i < l->n; i++) {
		if (cli->args.json)
			cmd_warm_print_json(&l->items[i]);
		else
			cmd_warm_row(&t, &l->items[i]);
		if (l->items[i].failures && !cli->args.json)
			say(cli, "%s: %s", l->items[i].name, l->items[i].why);
	}
	if (l->quarantined)
		say(cli, "%u sandboxes are in quarantine: it was forgotten whose they are, and they end by their own timeout", l->quarantined);
	ab_free(l);
	t.quiet = cli->args.json;
	return table_end(&t);
}

/* What set and retry answer with. */
static int cmd_warm_show(struct cli *cli, int status, struct ab_warm *w)
{
	if (status)
		return fail_client(cli);
	if (cli->args.json)
		cmd_warm_print_json(w);
	ab_free(w);
	return EXIT_OK;
}

static int cmd_warm_set(struct cli *cli, const char *name, const char *text)
{
	struct ab_warm *w = NULL;
	uint32_t size = 0;
	bool configured = !strcmp(text, "default");
	int status;

	if (!configured && !opt_number(text, WARM_SIZE_MAX, &size))
		return usage(cli->command, "SIZE is 0 to %u, or default, not '%s'", WARM_SIZE_MAX, text);
	status = ab_warm_set(cli->client, name, configured ? -1 : (int)size, NULL, &w);
	return cmd_warm_show(cli, status, w);
}

static int cmd_warm_retry(struct cli *cli, const char *name)
{
	struct ab_warm *w = NULL;
	int status = ab_warm_retry(cli->client, name, NULL, &w);

	return cmd_warm_show(cli, status, w);
}

static int cmd_warm_run(struct cli *cli)
{
	const struct args *a = &cli->args;
	const char *what = a->words[0];

	if (!strcmp(what, "ls") && a->n_words == 1)
		return cmd_warm_list(cli);
	if (!strcmp(what, "set") && a->n_words == 3)
		return cmd_warm_set(cli, a->words[1], a->words[2]);
	if (!strcmp(what, "retry") && a->n_words == 2)
		return cmd_warm_retry(cli, a->words[1]);
	return usage(cli->command, "it is ls, set NAME SIZE or retry NAME");
}

const struct command cmd_warm = {
	.name = "warm",
	.words = "ls | set NAME SIZE | retry NAME",
	.help = "Shows and changes the entries [warm NAME]: sandboxes that are ready before they are asked for.\n"
		"set keeps SIZE of them ready from now on, or as many as configured (default);\n"
		"retry tries an entry again that has failed.",
	.min_words = 1,
	.max_words = 3,
	.run = cmd_warm_run,
};
