/* SPDX-License-Identifier: MIT */
/* agentboxctl wait, signal */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "client/cli/term/cli.h"

static int run_wait(struct cli *cli)
{
	const struct ab_command_ref ref = { .command_id = cli->args.words[0] };
	struct ab_command_result *r;
	int code;

	if (ab_command_wait(cli->client, &ref, NULL, &r))
		return fail_client(cli);
	code = command_exit_code(r);
	if (r->outcome != AB_EXITED && r->outcome != AB_SIGNALED)
		say(cli, "%s", *r->message ? r->message : "how it ended is not known");
	ab_free(r);
	return code;
}

static int run_signal(struct cli *cli)
{
	const struct ab_command_ref ref = { .command_id = cli->args.words[0] };
	const char *name = cli->args.words[1];
	bool found;
	int signo;

	if (!strncasecmp(name, "SIG", 3))
		name += 3;
	signo = !strcasecmp(name, "TERM") ? SIGTERM : !strcasecmp(name, "KILL") ? SIGKILL : 0;
	if (!signo)
		return usage(cli->command, "knows TERM and KILL, not '%s'", cli->args.words[1]);
	if (ab_command_signal(cli->client, &ref, signo, NULL, &found))
		return fail_client(cli);
	if (found)
		return EXIT_OK;
	say(cli, "it has ended already (PROCESS_NOT_FOUND)");
	return EXIT_NOT_FOUND;
}

const struct command cmd_wait = {
	.name = "wait",
	.words = "COMMAND_ID",
	.help = "Waits for a command and ends as it ended.",
	.min_words = 1,
	.max_words = 1,
	.no_json = true,
	.run = run_wait,
};

const struct command cmd_signal = {
	.name = "signal",
	.words = "COMMAND_ID TERM|KILL",
	.help = "Sends a signal to a command.",
	.min_words = 2,
	.max_words = 2,
	.no_json = true,
	.run = run_signal,
};
