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

static void print_span(const char *name, uint64_t ms, const char *action)
{
	char buf[32];

	printf("%-14s %s%s%s\n", name, ms ? span_text((int64_t)ms, buf) : "never", ms && action ? ", then " : "",
	       ms && action ? action : "");
}

/* In words, by the names of the fields that change them. */
static void print_policy(const struct ab_policy *p)
{
	char buf[200];

	printf("%s\n\n", policy_text(p, buf, sizeof(buf)));
	printf("%-14s %s\n", "keep_alive", p->keep_alive == AB_NO ? "no" : "yes");
	printf("%-14s %s\n", "on_release", action_name(p->on_release));
	printf("%-14s %s\n", "release_grace", p->release_grace_ms ? span_text((int64_t)p->release_grace_ms, buf) : "at once");
	print_span("idle_timeout", p->idle_timeout_ms, action_name(p->on_idle));
	print_span("max_age", p->max_age_ms, action_name(p->on_max_age));
	printf("%-14s %s\n", "on_cap", action_name(p->on_cap));
	printf("%-14s %s\n", "on_gone", p->recreate == AB_YES ? "recreate" : "fail");
	printf("%-14s %s\n", "resume_on_use", p->resume_on_use == AB_YES ? "yes" : "no");
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
