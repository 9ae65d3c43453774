/* SPDX-License-Identifier: MIT */
/* agentboxctl policy */
#include <stdio.h>
#include <string.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

#define FIELDS_MAX 16u

static const struct opt cmd_policy_opts[] = {
	OPT(0, "reset", OPT_TEXT, reset, "F,…", "fields that go back to the configured default"),
};

static void print_policy(const struct ab_policy *p)
{
	struct json j;
	char buf[200];

	printf("%s\n", policy_text(p, buf, sizeof(buf)));
	json_begin(&j, stdout);
	json_policy(&j, NULL, p);
	json_end(&j);
}

/* "a,b" → words, in place. */
static int split(struct cli *cli, char *text, const char *words[FIELDS_MAX + 1])
{
	size_t n = 0;

	for (char *word; (word = strsep(&text, ","));) {
		if (n == FIELDS_MAX)
			return usage(cli->command, "--reset: too many fields");
		words[n++] = word;
	}
	words[n] = NULL;
	return 0;
}

static int cmd_policy_run(struct cli *cli)
{
	const struct args *a = &cli->args;
	const char *reset[FIELDS_MAX + 1] = { NULL };
	struct ab_policy policy = { 0 };
	struct ab_sandbox *sb;
	int r = 0;

	for (size_t i = 1; i < a->n_words && !r; i++)
		r = policy_option(cli->command, a->words[i], &policy);
	if (!r && a->reset)
		r = split(cli, (char *)a->reset, reset);
	if (r)
		return r;
	if (a->n_words == 1 && !a->reset)
		r = ab_sandbox_get(cli->client, a->words[0], 0, NULL, &sb);
	else
		r = ab_sandbox_set_policy(cli->client, a->words[0], &policy, reset, NULL, &sb);
	if (r)
		return fail_client(cli);
	if (a->json)
		print_sandbox_json(sb);
	else
		print_policy(&sb->policy);
	ab_free(sb);
	return EXIT_OK;
}

const struct command cmd_policy = {
	.name = "policy",
	.words = "ID [FIELD=VALUE,…]…",
	.help = "Shows or changes what the daemon does to a sandbox by itself.\n"
		"Fields: keep_alive=yes|no on_release=leave|pause|kill release_grace=D idle_timeout=D on_idle=pause|kill "
		"max_age=D on_max_age=pause|kill on_cap=warn|pause|kill resume_on_use=yes|no.",
	.opts = cmd_policy_opts,
	.n_opts = ARRAY_SIZE(cmd_policy_opts),
	.min_words = 1,
	.max_words = 16,
	.run = cmd_policy_run,
};
