/* SPDX-License-Identifier: MIT */
/* agentboxctl token */
#include <stdio.h>
#include <string.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/clock.h"
#include "client/cli/term/out.h"

static const struct opt cmd_token_opts[] = {
	OPT(0, "label", OPT_TEXT, label, "TEXT", "of create: shown in lists"),
	OPT(0, "expires", OPT_SPAN, expires_ms, "D", "of create: how long it is good (until it is removed)"),
	OPT(0, "policy", OPT_TEXT, policy, "P", "of create: of creates with it that do not say it; see agentboxctl policy"),
	OPT(0, "sandbox", OPT_WORDS, scope, "ID", "of create: only for this sandbox; more of them for several"),
};

static void cmd_token_print_json(const struct ab_token *t)
{
	struct json j;

	json_begin(&j, stdout);
	json_text(&j, "id", t->id);
	json_text(&j, "label", t->label);
	json_time(&j, "created_at", t->created_at_ms);
	json_time(&j, "expires_at", t->expires_at_ms);
	json_words(&j, "sandboxes", t->sandboxes, t->n_sandboxes);
	json_int(&j, "run_pid", t->run_pid);
	json_text(&j, "policy", t->policy);
	if (t->secret)
		json_text(&j, "secret", t->secret);
	json_end(&j);
}

static void cmd_token_row(struct table *t, const struct ab_token *x)
{
	char buf[32];

	table_cell(t, x->id);
	table_cell(t, time_text(x->created_at_ms, buf));
	table_cell(t, time_text(x->expires_at_ms, buf));
	(void)snprintf(buf, sizeof(buf), "%lld", (long long)x->run_pid);
	table_cell(t, x->run_pid ? buf : "-");
	(void)snprintf(buf, sizeof(buf), "%zu", x->n_sandboxes);
	table_cell(t, x->n_sandboxes ? buf : "all");
	table_cell(t, x->label);
}

static int cmd_token_list(struct cli *cli)
{
	static const char *const heads[] = { "TOKEN", "CREATED", "EXPIRES", "PID", "SANDBOXES", "LABEL", NULL };
	static const char *const spare[] = { "PID", "CREATED", NULL };
	struct ab_token_list *l;
	struct table t;

	if (ab_token_list(cli->client, NULL, &l))
		return fail_client(cli);
	table_begin(&t, heads);
	t.spare = spare;
	t.cuts_last = true;
	for (size_t i = 0; i < l->n; i++) {
		if (cli->args.json)
			cmd_token_print_json(l->items[i]);
		else
			cmd_token_row(&t, l->items[i]);
	}
	ab_free(l);
	t.quiet = cli->args.json;
	return table_end(&t);
}

static int cmd_token_create(struct cli *cli)
{
	const struct args *a = &cli->args;
	struct ab_policy policy = { 0 };
	const struct ab_token_options o = {
		.label = a->label, .policy = &policy, .sandboxes = a->scope.v, .n_sandboxes = a->scope.n,
		.expires_at_ms = a->expires_ms ? cli_wall_ms() + (int64_t)a->expires_ms : 0,
	};
	struct ab_token *t;
	int r = a->policy ? policy_option(cli->command, a->policy, &policy) : 0;

	if (r)
		return r;
	if (ab_token_create(cli->client, &o, NULL, &t))
		return fail_client(cli);
	if (a->json)
		cmd_token_print_json(t);
	else
		puts(t->secret);
	ab_free(t);
	return EXIT_OK;
}

static int cmd_token_remove(struct cli *cli, const char *id)
{
	bool found;

	if (ab_token_revoke(cli->client, id, NULL, &found))
		return fail_client(cli);
	return found ? EXIT_OK : fail_missing(cli, "", "you have no token %s", id);
}

static int cmd_token_run(struct cli *cli)
{
	const struct args *a = &cli->args;
	const char *what = a->words[0];

	if (!strcmp(what, "ls") && a->n_words == 1)
		return cmd_token_list(cli);
	if (!strcmp(what, "create") && a->n_words == 1)
		return cmd_token_create(cli);
	if (!strcmp(what, "rm") && a->n_words == 2)
		return cmd_token_remove(cli, a->words[1]);
	return usage(cli->command, "it is create, ls or rm TOKEN");
}

const struct command cmd_token = {
	.name = "token",
	.words = "create | ls | rm TOKEN",
	.help = "Makes, lists and revokes tokens, which programs show the gateway instead of the account's key.",
	.opts = cmd_token_opts,
	.n_opts = ARRAY_SIZE(cmd_token_opts),
	.min_words = 1,
	.max_words = 2,
	.run = cmd_token_run,
};
