/* SPDX-License-Identifier: MIT */
/* agentboxctl timeout */
#include <stdio.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static int cmd_timeout_run(struct cli *cli)
{
	const char *text = cli->args.words[1];
	struct ab_sandbox *sb;
	uint64_t ms;
	char buf[32];

	if (ab_parse_duration(text, &ms) < 0)
		return usage(cli->command,
			     "'%s' is not a duration with a unit, such as 90s or 1h30m", text);
	if (ab_sandbox_set_timeout(cli->client, cli->args.words[0], ms ? ms : AB_ZERO_MS, NULL, &sb))
		return fail_client(cli);
	if (cli->args.json)
		print_sandbox_json(sb);
	else
		printf("ends %s\n", time_text(sb->end_at_ms, buf));
	if (*sb->warning)
		say(cli, "warning: %s", sb->warning);
	ab_free(sb);
	return EXIT_OK;
}

const struct command cmd_timeout = {
	.name = "timeout",
	.words = "ID DURATION",
	.help = "Sets the end of a sandbox, counted from now. May shorten its life.",
	.min_words = 2,
	.max_words = 2,
	.run = cmd_timeout_run,
};
