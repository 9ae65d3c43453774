/* SPDX-License-Identifier: MIT */
/* agentboxctl: finds the command, reads its options, connects, runs it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/main/commands.h"
#include "client/cli/term/cli.h"
#include "client/cli/term/context.h"
#include "client/cli/term/out.h"

static const struct command *find(const char *name)
{
	for (size_t i = 0; i < n_commands; i++)
		if (!strcmp(commands[i]->name, name))
			return commands[i];
	return NULL;
}

static int print_overview(FILE *f)
{
	fputs("usage: agentboxctl [-s SOCKET | --context NAME] [--json] [--wait D] COMMAND …\n"
	      "Sandboxes, through the local agentboxd.\n\n", f);
	for (size_t i = 0; i < n_commands; i++) {
		char line[256];

		(void)snprintf(line, sizeof(line), "%.*s", (int)strcspn(commands[i]->help, "\n"), commands[i]->help);
		fprintf(f, "  %-12s ", commands[i]->name);
		print_wrapped(f, 15, line);
	}
	fputs("\nagentboxctl help COMMAND says more.\n", f);
	return f == stdout ? EXIT_OK : EXIT_USAGE;
}

/* "help", "help COMMAND" */
static int print_help(const char *name)
{
	const struct command *c = name ? find(name) : NULL;

	if (!name)
		return print_overview(stdout);
	if (!c)
		return usage(NULL, "unknown command '%s'", name);
	opt_print_help(c);
	return EXIT_OK;
}

static int print_version(void)
{
	printf("agentboxctl %s\n", ab_version());
	return EXIT_OK;
}

static void on_notice(const char *text, void *user)
{
	say(user, "%s", text);
}

static int connect_to(struct cli *cli)
{
	const struct ab_client_options o = {
		.socket = cli->args.socket,
		.wait_ms = cli->args.wait_ms,
		.user_agent = "agentboxctl",
		.notice = on_notice,
		.notice_user = cli,
	};
	int r = ab_client_new(&o, &cli->client);

	if (r < 0)
		return fail_here(cli, "%s", cli->args.socket && strlen(cli->args.socket) > 107
						    ? "the path of the socket is longer than the 107 bytes it may have"
						    : strerror(-r));
	r = ab_connect(cli->client) ? fail_client(cli) : cli->command->run(cli);
	ab_client_free(cli->client);
	return r;
}

static int connect_and_run(struct cli *cli)
{
	struct contexts contexts;
	int r;

	if (cli->command->is_offline && cli->command->is_offline(&cli->args))
		return cli->command->run(cli);
	r = context_choose(cli, &contexts);
	if (!r)
		r = connect_to(cli);
	contexts_free(&contexts);
	return r;
}

/* A closed descriptor would be taken by the first thing that is opened, and output would go into the
 * daemon's socket. What stands in for an output cannot be written to, so that it is not lost unseen. */
static void fill_std_fds(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			(void)open("/dev/null", O_RDONLY);
}

static int serve(struct cli *cli, int argc, char **argv)
{
	int at = 1, r = opt_parse(NULL, argc, argv, &at, &cli->args);

	if (r)
		return r;
	if (cli->args.help)
		return print_overview(stdout);
	if (cli->args.version)
		return print_version();
	if (at == argc)
		return print_overview(stderr);
	if (!strcmp(argv[at], "help"))
		return print_help(at + 1 < argc ? argv[at + 1] : NULL);
	cli->command = find(argv[at]);
	if (!cli->command)
		return usage(NULL, "unknown command '%s'", argv[at]);
	at++;
	r = opt_parse(cli->command, argc, argv, &at, &cli->args);
	if (r)
		return r;
	if (cli->args.help) {
		opt_print_help(cli->command);
		return EXIT_OK;
	}
	if (cli->args.version)
		return print_version();
	r = cli->command->check ? cli->command->check(cli) : 0;
	return r ? r : connect_and_run(cli);
}

int main(int argc, char **argv)
{
	struct cli cli = { 0 };
	int r, r_out;

	fill_std_fds();
	r = serve(&cli, argc, argv);
	r_out = out_flush(&cli);
	opt_free(&cli.args);
	return r ? r : r_out;
}
