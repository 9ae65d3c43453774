/* SPDX-License-Identifier: MIT */
/* agentboxctl kill */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cmd/sandboxes.h"
#include "client/cli/term/cli.h"
#include "client/cli/term/clock.h"
#include "client/cli/term/out.h"

static const struct opt cmd_kill_opts[] = {
	OPT('a', "all", OPT_FLAG, all, NULL, "all that ls lists; asks first"),
	OPT(0, "older-than", OPT_SPAN, older_than_ms, "D", "with --all: only those that were started longer ago"),
	OPT('y', "yes", OPT_FLAG, yes, NULL, "with --all: does not ask"),
};

static void cmd_kill_print(const struct cli *cli, const char *id, bool found)
{
	struct json j;

	if (!cli->args.json)
		return;
	json_begin(&j, stdout);
	json_text(&j, "sandbox", id);
	json_bool(&j, "found", found);
	json_end(&j);
}

/* With `may_be_gone`, one that is not there any more is as wanted. */
static int kill_one(struct cli *cli, const char *id, bool may_be_gone)
{
	bool found = false;

	if (ab_sandbox_kill(cli->client, id, NULL, &found))
		return fail_client(cli);
	cmd_kill_print(cli, id, found);
	if (found || may_be_gone)
		return EXIT_OK;
	return fail_missing(cli, "SANDBOX_NOT_FOUND", "there is no sandbox %s", id);
}

/* One whose start is not known is not known to be old. */
static bool is_old(const struct ab_sandbox *sb, const void *user)
{
	const int64_t *before_ms = user;

	return sb->started_at_ms > 0 && sb->started_at_ms < *before_ms;
}

/* On a terminal: cmd_kill_check() saw to that. */
static bool is_wanted(size_t n)
{
	char answer[16];

	fprintf(stderr, "End %zu sandbox%s? [y/N] ", n, n == 1 ? "" : "es");
	if (!fgets(answer, sizeof(answer), stdin))
		return false;
	answer[strcspn(answer, "\n")] = '\0';
	return !strcasecmp(answer, "y") || !strcasecmp(answer, "yes");
}

static int kill_these(struct cli *cli, const struct sandboxes *s)
{
	int worst = EXIT_OK;

	if (s->n && !cli->args.yes && !is_wanted(s->n))
		return fail_here(cli, "nothing was ended");
	for (size_t i = 0; i < s->n; i++) {
		int r = kill_one(cli, s->v[i]->id, true);

		worst = worst ? worst : r;
	}
	return worst;
}

static int kill_all(struct cli *cli)
{
	const struct ab_sandbox_list_options o = { 0 };
	uint64_t age_ms = cli->args.older_than_ms;
	int64_t before_ms = cli_wall_ms() - (int64_t)(age_ms == AB_ZERO_MS ? 0 : age_ms);
	struct sandboxes s;
	int r = sandboxes_list(cli, &o, &s);

	if (r == 0) {
		if (age_ms)
			sandboxes_keep(&s, is_old, &before_ms);
		r = kill_these(cli, &s);
	}
	sandboxes_free(&s);
	return r;
}

static int cmd_kill_check(struct cli *cli)
{
	const struct args *a = &cli->args;

	if (!a->all && (a->older_than_ms || a->yes))
		return usage(cli->command, "--%s goes with --all only", a->yes ? "yes" : "older-than");
	if (!a->all)
		return a->n_words ? 0 : usage(cli->command, "needs %s", cli->command->words);
	if (a->n_words)
		return usage(cli->command, "'%s' and --all exclude each other", a->words[0]);
	if (!a->yes && !(isatty(STDIN_FILENO) && isatty(STDERR_FILENO)))
		return usage(cli->command, "--all needs --yes where there is no terminal to ask on");
	return 0;
}

/* All are tried; the first failure gives the exit code. */
static int cmd_kill_run(struct cli *cli)
{
	int worst = EXIT_OK;

	if (cli->args.all)
		return kill_all(cli);
	for (size_t i = 0; i < cli->args.n_words; i++) {
		int r = kill_one(cli, cli->args.words[i], false);

		worst = worst ? worst : r;
	}
	return worst;
}

const struct command cmd_kill = {
	.name = "kill",
	.words = "ID… | --all",
	.help = "Ends sandboxes.",
	.opts = cmd_kill_opts,
	.n_opts = ARRAY_SIZE(cmd_kill_opts),
	.max_words = SIZE_MAX,
	.check = cmd_kill_check,
	.run = cmd_kill_run,
};
