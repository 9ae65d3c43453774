/* SPDX-License-Identifier: MIT */
/* agentboxctl local */
#include <stdio.h>
#include <string.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static int cmd_local_run(struct cli *cli)
{
	struct ab_local_stopped *s;
	struct json j;

	if (strcmp(cli->args.words[0], "stop") != 0)
		return usage(cli->command, "'%s' is not 'stop'", cli->args.words[0]);
	if (ab_daemon_stop_local(cli->client, NULL, &s))
		return fail_client(cli);
	if (cli->args.json) {
		json_begin(&j, stdout);
		json_open(&j, NULL, '{');
		json_bool(&j, "was_running", s->was_running);
		json_uint(&j, "killed", s->killed);
		json_close(&j, '}');
		json_end(&j);
	} else if (s->was_running) {
		printf("stopped; %u sandbox%s ended\n", s->killed, s->killed == 1 ? "" : "es");
	} else {
		puts("was not running");
	}
	ab_free(s);
	return EXIT_OK;
}

const struct command cmd_local = {
	.name = "local",
	.words = "stop",
	.help = "Ends agentbox-local and its sandboxes, and returns when they are gone.",
	.min_words = 1,
	.max_words = 1,
	.run = cmd_local_run,
};
