/* SPDX-License-Identifier: MIT */
/* agentboxctl host */
#include <stdio.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static void cmd_host_print_json(const struct ab_host *h)
{
	struct json j;

	json_begin(&j, stdout);
	json_text(&j, "host", h->host);
	json_text(&j, "url", h->url);
	json_text(&j, "token_header", h->token_header);
	json_text(&j, "traffic_access_token", h->traffic_access_token);
	json_end(&j);
}

static int cmd_host_run(struct cli *cli)
{
	const char *text = cli->args.words[1];
	struct ab_host *h;
	uint32_t port;

	if (!opt_number(text, 65535, &port) || !port)
		return usage(cli->command, "a port is 1 to 65535, not '%s'", text);
	if (ab_sandbox_get_host(cli->client, cli->args.words[0], port, NULL, &h))
		return fail_client(cli);
	if (cli->args.json)
		cmd_host_print_json(h);
	else
		puts(h->host);
	if (!cli->args.json && *h->traffic_access_token)
		say(cli, "it is private: --json shows the token for the header %s", h->token_header);
	ab_free(h);
	return EXIT_OK;
}

const struct command cmd_host = {
	.name = "host",
	.words = "ID PORT",
	.help = "Prints the public host name of a port inside a sandbox.",
	.min_words = 2,
	.max_words = 2,
	.run = cmd_host_run,
};
