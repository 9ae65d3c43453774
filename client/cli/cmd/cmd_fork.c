/* SPDX-License-Identifier: MIT */
/* agentboxctl fork */
#include <stdio.h>
#include <string.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static const struct opt cmd_fork_opts[] = {
	OPT('n', "count", OPT_TEXT, count, "N", "how many (1)"),
	OPT(0, "timeout", OPT_SPAN, timeout_ms, "D", "their life from now (5m)"),
	OPT(0, "policy", OPT_TEXT, policy, "P", "such as on_release=kill; see agentboxctl policy"),
	OPT(0, "request-id", OPT_TEXT, request_id, "R", "the same id never forks twice"),
};

static int read_count(struct cli *cli, uint32_t *ret)
{
	const char *text = cli->args.count;

	if (text && (!opt_number(text, 100, ret) || !*ret))
		return usage(cli->command, "--count is 1 to 100, not '%s'", text);
	return 0;
}

static void print_failure_json(const struct ab_fork_result *k)
{
	struct json j;

	json_begin(&j, stdout);
	json_open(&j, "error", '{');
	json_text(&j, "reason", k->reason);
	json_text(&j, "message", k->message);
	json_close(&j, '}');
	json_end(&j);
}

/* The ids, one a line; those that are missing are told apart from them. */
static int cmd_fork_print(struct cli *cli, const struct ab_fork_list *l)
{
	char clean[512];
	int r = EXIT_OK;

	for (size_t i = 0; i < l->n; i++) {
		const struct ab_fork_result *k = &l->items[i];

		if (k->sandbox && cli->args.json) {
			print_sandbox_json(k->sandbox);
		} else if (k->sandbox) {
			puts(k->sandbox->id);
		} else {
			if (cli->args.json)
				print_failure_json(k);
			say(cli, "a child failed: %s%s%s", safe(k->message, clean, sizeof(clean)),
			    *k->reason ? ", " : "", k->reason);
			r = EXIT_ERROR;
		}
	}
	return r;
}

static int cmd_fork_run(struct cli *cli)
{
	const struct args *a = &cli->args;
	struct ab_policy policy = { 0 };
	struct ab_fork_options o = { .request_id = a->request_id, .sandbox_timeout_ms = a->timeout_ms,
				     .policy = a->policy ? &policy : NULL };
	struct ab_call *call;
	struct ab_fork_list *l;
	int r = read_count(cli, &o.count);

	if (!r && a->policy)
		r = policy_option(cli->command, a->policy, &policy);
	if (r)
		return r;
	r = ab_sandbox_fork_start(cli->client, a->words[0], &o, NULL, &call);
	if (r < 0)
		return fail_here(cli, "%s", strerror(-r));
	if (ab_call_wait(call)) {
		r = fail_create(cli, call);
	} else {
		l = ab_call_take(call);
		r = cmd_fork_print(cli, l);
		ab_free(l);
	}
	ab_call_free(call);
	return r;
}

const struct command cmd_fork = {
	.name = "fork",
	.words = "ID",
	.help = "Copies a running sandbox with all in it and prints the ids, one a line.",
	.opts = cmd_fork_opts,
	.n_opts = ARRAY_SIZE(cmd_fork_opts),
	.min_words = 1,
	.max_words = 1,
	.run = cmd_fork_run,
};
