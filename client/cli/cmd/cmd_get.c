/* SPDX-License-Identifier: MIT */
/* agentboxctl get */
#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static int cmd_get_run(struct cli *cli)
{
	struct ab_sandbox *sb;

	if (ab_sandbox_get(cli->client, cli->args.words[0], 0, NULL, &sb))
		return fail_client(cli);
	print_sandbox(cli, sb);
	ab_free(sb);
	return EXIT_OK;
}

const struct command cmd_get = {
	.name = "get",
	.words = "ID",
	.help = "Shows a sandbox.",
	.min_words = 1,
	.max_words = 1,
	.run = cmd_get_run,
};
