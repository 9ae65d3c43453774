/* SPDX-License-Identifier: MIT */
/* agentboxctl quiesce */
#include <stdio.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static const struct opt cmd_quiesce_opts[] = {
	OPT(0, "off", OPT_FLAG, off, NULL, "make them again"),
	OPT(0, "reason", OPT_TEXT, reason, "TEXT", "for those who are refused"),
};

static void print_quiesced(const struct cli *cli, const struct ab_quiesced *q)
{
	char since[32];
	struct json j;

	if (cli->args.json) {
		json_begin(&j, stdout);
		json_bool(&j, "quiesced", q->quiesced);
		json_time(&j, "since", q->since_at_ms);
		json_uint(&j, "changing", q->changing);
		json_end(&j);
		return;
	}
	if (q->quiesced)
		printf("no new sandboxes are made since %s; %u are changing\n", time_text(q->since_at_ms, since), q->changing);
	else
		printf("sandboxes are made\n");
}

static int cmd_quiesce_check(struct cli *cli)
{
	if (cli->args.off && cli->args.reason)
		return usage(cli->command, "--reason is for those who are refused: it does not go with --off");
	return 0;
}

static int cmd_quiesce_run(struct cli *cli)
{
	const struct ab_quiesce_options o = { .off = cli->args.off, .reason = cli->args.reason };
	struct ab_quiesced *q;

	if (ab_daemon_quiesce(cli->client, &o, NULL, &q))
		return fail_client(cli);
	print_quiesced(cli, q);
	ab_free(q);
	return EXIT_OK;
}

const struct command cmd_quiesce = {
	.name = "quiesce",
	.words = "",
	.help = "The daemon makes no new sandboxes until --off or a restart; what runs goes on.\n"
		"Creates and forks are refused with QUIESCED, and warm sandboxes are not made. For admins, before a maintenance.",
	.opts = cmd_quiesce_opts,
	.n_opts = ARRAY_SIZE(cmd_quiesce_opts),
	.check = cmd_quiesce_check,
	.run = cmd_quiesce_run,
};
