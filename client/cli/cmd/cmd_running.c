/* SPDX-License-Identifier: MIT */
/* agentboxctl running */
#include <stdio.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static int cmd_running_run(struct cli *cli)
{
	const char *id = cli->args.words[0];
	bool running = false;
	struct json j;

	if (ab_sandbox_is_running(cli->client, id, NULL, &running))
		return fail_client(cli);
	if (cli->args.json) {
		json_begin(&j, stdout);
		json_text(&j, "sandbox", id);
		json_bool(&j, "running", running);
		json_end(&j);
	} else {
		puts(running ? "yes" : "no");
	}
	return running ? EXIT_OK : EXIT_ERROR;
}

const struct command cmd_running = {
	.name = "running",
	.words = "ID",
	.help = "Asks the agent inside whether the sandbox runs.\n"
		"Prints yes or no, and ends with 0 or 1. A paused one does not run.",
	.min_words = 1,
	.max_words = 1,
	.run = cmd_running_run,
};
