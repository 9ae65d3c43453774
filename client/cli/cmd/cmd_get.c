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

/* All are tried; the first failure gives the exit code. */
static int run_inspect(struct cli *cli)
{
	int worst = EXIT_OK;

	for (size_t i = 0; i < cli->args.n_words; i++) {
		struct ab_sandbox *sb;

		if (ab_sandbox_get(cli->client, cli->args.words[i], 0, NULL, &sb)) {
			int r = fail_client(cli);

			worst = worst ? worst : r;
			continue;
		}
		print_sandbox_json(sb);
		ab_free(sb);
	}
	return worst;
}

const struct command cmd_inspect = {
	.name = "inspect",
	.words = "ID…",
	.help = "Prints all that is known of sandboxes as JSON, one a line.",
	.min_words = 1,
	.max_words = SIZE_MAX,
	.run = run_inspect,
};
