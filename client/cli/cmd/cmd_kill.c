/* SPDX-License-Identifier: MIT */
/* agentboxctl kill */
#include <stdio.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static void cmd_kill_print(const struct cli *cli, const char *id, bool found)
{
	struct json j;

	if (!cli->args.json)
		return;
	json_begin(&j, stdout);
	json_open(&j, NULL, '{');
	json_text(&j, "sandbox", id);
	json_bool(&j, "found", found);
	json_close(&j, '}');
	json_end(&j);
}

/* All are tried; the first failure gives the exit code. */
static int cmd_kill_run(struct cli *cli)
{
	int worst = EXIT_OK;

	for (size_t i = 0; i < cli->args.n_words; i++) {
		const char *id = cli->args.words[i];
		bool found = false;
		int r = EXIT_OK;

		if (ab_sandbox_kill(cli->client, id, NULL, &found)) {
			r = fail_client(cli);
		} else {
			cmd_kill_print(cli, id, found);
			if (!found) {
				r = fail_missing(cli, "SANDBOX_NOT_FOUND", "there is no sandbox %s", id);
			}
		}
		worst = worst ? worst : r;
	}
	return worst;
}

const struct command cmd_kill = {
	.name = "kill",
	.words = "ID…",
	.help = "Ends sandboxes.",
	.min_words = 1,
	.max_words = SIZE_MAX,
	.run = cmd_kill_run,
};
