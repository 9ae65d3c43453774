/* SPDX-License-Identifier: MIT */
/* agentboxctl connect */
#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static const struct opt cmd_connect_opts[] = {
	OPT(0, "timeout", OPT_SPAN, timeout_ms, "D", "let it live at least so long from now"),
	OPT(0, "wait-ready", OPT_FLAG, wait_ready, NULL, "return when the agent inside answers"),
	OPT(0, "adopt", OPT_FLAG, adopt, NULL, "take it over from another host"),
};

static int cmd_connect_run(struct cli *cli)
{
	const struct ab_sandbox_connect_options o = {
		.sandbox_timeout_ms = cli->args.timeout_ms,
		.adopt = cli->args.adopt,
		.wait_ready = cli->args.wait_ready,
	};
	struct ab_sandbox *sb;

	if (ab_sandbox_connect(cli->client, cli->args.words[0], &o, NULL, &sb))
		return fail_client(cli);
	print_sandbox(cli, sb);
	ab_free(sb);
	return EXIT_OK;
}

const struct command cmd_connect = {
	.name = "connect",
	.words = "ID",
	.help = "Makes a sandbox usable: resumes it, adopts it. Never shortens its life.",
	.opts = cmd_connect_opts,
	.n_opts = ARRAY_SIZE(cmd_connect_opts),
	.min_words = 1,
	.max_words = 1,
	.run = cmd_connect_run,
};
