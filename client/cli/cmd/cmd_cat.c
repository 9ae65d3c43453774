/* SPDX-License-Identifier: MIT */
/* agentboxctl cat */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/sig.h"
#include "client/cli/tree/xfer.h"

static const struct opt cmd_cat_opts[] = {
	OPT('u', "user", OPT_TEXT, user, "USER", "user inside the sandbox"),
};

static int cmd_cat_run(struct cli *cli)
{
	struct xfer x = { .cli = cli };
	struct ab_path path;
	struct ab_call *call;
	int r, sig_fd;

	if (!xfer_split(cli, cli->args.words[0], &path) || !*path.path)
		return usage(cli->command, "needs ID:PATH");
	path.user = cli->args.user;
	r = ab_file_read_start(cli->client, &path, NULL, NULL, &call);
	if (r < 0)
		return fail_here(cli, "%s", strerror(-r));
	sig_fd = sig_open();
	r = xfer_down(&x, call, STDOUT_FILENO, sig_fd) ? EXIT_ERROR : EXIT_OK;
	if (r && !x.error && !x.signo)
		r = fail(cli, ab_call_error(call));
	ab_call_free(call);
	(void)close(sig_fd);
	if (x.signo || x.error == EPIPE)
		sig_die(x.signo ? x.signo : SIGPIPE);
	if (x.error)
		say(cli, "cannot write the output: %s", strerror(x.error));
	return r;
}

const struct command cmd_cat = {
	.name = "cat",
	.words = "ID:PATH",
	.help = "Prints a file of a sandbox.",
	.opts = cmd_cat_opts,
	.n_opts = ARRAY_SIZE(cmd_cat_opts),
	.min_words = 1,
	.max_words = 1,
	.no_json = true,
	.run = cmd_cat_run,
};
