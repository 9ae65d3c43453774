/* SPDX-License-Identifier: MIT */
/* agentboxctl lease */
#include <stdio.h>
#include <string.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static const struct opt cmd_lease_opts[] = {
	OPT(0, "ttl", OPT_SPAN, ttl_ms, "D", "of acquire and renew: how long it is held"),
	OPT(0, "label", OPT_TEXT, label, "TEXT", "of acquire: shown in lists"),
};

static void cmd_lease_print_json(const struct ab_lease *l)
{
	struct json j;

	json_begin(&j, stdout);
	json_text(&j, "id", l->id);
	json_text(&j, "sandbox", l->sandbox);
	json_uint(&j, "uid", l->uid);
	json_int(&j, "pid", l->pid);
	json_text(&j, "label", l->label);
	json_time(&j, "expires_at", l->expires_at_ms);
	json_time(&j, "sandbox_end_at", l->sandbox_end_at_ms);
	json_end(&j);
}

static void cmd_lease_row(struct table *t, const struct ab_lease *l)
{
	char buf[32];

	table_cell(t, l->id);
	table_cell(t, l->sandbox);
	table_number(t, l->uid);
	(void)snprintf(buf, sizeof(buf), "%lld", (long long)l->pid);
	table_cell(t, l->pid ? buf : "-");
	table_cell(t, time_text(l->expires_at_ms, buf));
	table_cell(t, l->label);
}

static int list(struct cli *cli)
{
	static const char *const heads[] = { "LEASE", "SANDBOX", "UID", "PID", "EXPIRES", "LABEL", NULL };
	static const char *const spare[] = { "PID", "UID", NULL };
	const char *sandbox = cli->args.n_words > 1 ? cli->args.words[1] : NULL;
	struct ab_lease_list *page = NULL, *next;
	struct table t;
	int r = EXIT_OK, r_table;

	table_begin(&t, heads);
	t.spare = spare;
	t.cuts_last = true;
	do {
		if (ab_lease_list(cli->client, sandbox, 1000, page ? page->next_page_token : NULL, NULL, &next)) {
			r = fail_client(cli);
			break;
		}
		ab_free(page);
		page = next;
		for (size_t i = 0; i < page->n; i++) {
			if (cli->args.json)
				cmd_lease_print_json(page->items[i]);
			else
				cmd_lease_row(&t, page->items[i]);
		}
	} while (*page->next_page_token);
	ab_free(page);
	t.quiet = cli->args.json || r;
	r_table = table_end(&t);
	return r ? r : r_table;
}

static int show(struct cli *cli, int r, struct ab_lease *l)
{
	if (r)
		return fail_client(cli);
	if (cli->args.json)
		cmd_lease_print_json(l);
	else
		puts(l->id);
	ab_free(l);
	return EXIT_OK;
}

static int cmd_lease_run(struct cli *cli)
{
	const struct args *a = &cli->args;
	const struct ab_lease_options o = { .label = a->label, .ttl_ms = a->ttl_ms };
	const char *what = a->words[0];
	struct ab_lease *l = NULL;
	int r;

	if (!strcmp(what, "ls"))
		return list(cli);
	if (a->n_words < 2)
		return usage(cli->command, "%s needs one more word", what);
	if (!strcmp(what, "release"))
		return ab_lease_release(cli->client, a->words[1], NULL) ? fail_client(cli) : EXIT_OK;
	if (strcmp(what, "acquire") && strcmp(what, "renew"))
		return usage(cli->command, "it is ls, acquire, renew or release, not '%s'", what);
	if (!a->ttl_ms)
		return usage(cli->command, "%s needs --ttl; agentboxctl hold keeps one as long as a command runs", what);
	if (!strcmp(what, "acquire"))
		r = ab_lease_acquire(cli->client, a->words[1], &o, NULL, &l);
	else
		r = ab_lease_renew(cli->client, a->words[1], a->ttl_ms, NULL, &l);
	return show(cli, r, l);
}

const struct command cmd_lease = {
	.name = "lease",
	.words = "ls [ID] | acquire ID | renew LEASE | release LEASE",
	.help = "Lists and changes leases: while one is held, its sandbox is kept alive.",
	.opts = cmd_lease_opts,
	.n_opts = ARRAY_SIZE(cmd_lease_opts),
	.min_words = 1,
	.max_words = 2,
	.run = cmd_lease_run,
};
