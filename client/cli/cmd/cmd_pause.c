/* SPDX-License-Identifier: MIT */
/* agentboxctl pause, agentboxctl resume */
#include <stdio.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static const struct opt pause_opts[] = {
	OPT(0, "no-memory", OPT_FLAG, no_memory, NULL, "keep the files only: what runs in it is lost"),
};

static const struct opt resume_opts[] = {
	OPT(0, "timeout", OPT_SPAN, timeout_ms, "D", "let it live at least so long from now (5m)"),
	OPT(0, "wait-ready", OPT_FLAG, wait_ready, NULL, "return when the agent inside answers"),
};

static void cmd_pause_print(const char *id, bool paused)
{
	struct json j;

	json_begin(&j, stdout);
	json_text(&j, "sandbox", id);
	json_bool(&j, "paused", paused);
	json_end(&j);
}

/* All are tried; the first failure gives the exit code. One that is paused already is as wanted. */
static int run_pause(struct cli *cli)
{
	const struct args *a = &cli->args;
	int worst = EXIT_OK;

	for (size_t i = 0; i < a->n_words; i++) {
		bool paused = false;
		int r = EXIT_OK;

		if (ab_sandbox_pause(cli->client, a->words[i], a->no_memory ? AB_NO : AB_DEFAULT, NULL, &paused))
			r = fail_client(cli);
		else if (a->json)
			cmd_pause_print(a->words[i], paused);
		else if (!paused)
			say(cli, "%s was paused already", a->words[i]);
		worst = worst ? worst : r;
	}
	return worst;
}

static int run_resume(struct cli *cli)
{
	const struct args *a = &cli->args;
	const struct ab_sandbox_connect_options o = { .sandbox_timeout_ms = a->timeout_ms,
						      .wait_ready = a->wait_ready };
	int worst = EXIT_OK;

	for (size_t i = 0; i < a->n_words; i++) {
		struct ab_sandbox *sb;
		int r = EXIT_OK;

		if (ab_sandbox_connect(cli->client, a->words[i], &o, NULL, &sb)) {
			r = fail_client(cli);
		} else {
			if (a->json)
				print_sandbox_json(sb);
			ab_free(sb);
		}
		worst = worst ? worst : r;
	}
	return worst;
}

const struct command cmd_pause = {
	.name = "pause",
	.words = "ID…",
	.help = "Pauses sandboxes: nothing in them runs until they are resumed.",
	.opts = pause_opts,
	.n_opts = ARRAY_SIZE(pause_opts),
	.min_words = 1,
	.max_words = SIZE_MAX,
	.run = run_pause,
};

const struct command cmd_resume = {
	.name = "resume",
	.words = "ID…",
	.help = "Resumes paused sandboxes; one that runs is extended.",
	.opts = resume_opts,
	.n_opts = ARRAY_SIZE(resume_opts),
	.min_words = 1,
	.max_words = SIZE_MAX,
	.run = run_resume,
};
