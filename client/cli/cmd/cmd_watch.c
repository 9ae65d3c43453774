/* SPDX-License-Identifier: MIT */
/* agentboxctl watch */
#include <stdio.h>
#include <string.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"
#include "client/cli/term/sig.h"
#include "client/cli/tree/xfer.h"

static const struct opt cmd_watch_opts[] = {
	OPT('u', "user", OPT_TEXT, user, "USER", "user inside the sandbox"),
	OPT('r', "recursive", OPT_FLAG, recursive, NULL, "also what is below"),
	OPT(0, "entries", OPT_FLAG, entries, NULL, "with --json: what has changed, in full"),
};

static const char *event_name(const struct ab_file_event *e)
{
	static const char *const changes[] = { "change", "create", "write", "remove", "rename", "chmod" };

	if (e->type == AB_FILE_EVENT_READY)
		return "ready";
	if (e->type == AB_FILE_EVENT_OVERFLOWED)
		return "overflowed";
	return changes[(unsigned)e->change < ARRAY_SIZE(changes) ? e->change : 0];
}

static void cmd_watch_print_json(const struct ab_file_event *e)
{
	struct json j;

	json_begin(&j, stdout);
	json_open(&j, NULL, '{');
	json_text(&j, "event", event_name(e));
	if (e->type == AB_FILE_EVENT_CHANGE)
		json_text(&j, "name", e->name);
	if (e->entry)
		print_file_json(&j, "entry", e->entry);
	json_close(&j, '}');
	json_end(&j);
}

static void print_event(struct cli *cli, const struct ab_file_event *e)
{
	char name[4200];

	if (cli->args.json)
		cmd_watch_print_json(e);
	else if (e->type == AB_FILE_EVENT_CHANGE)
		printf("%-6s %s\n", event_name(e), safe(e->name, name, sizeof(name)));
	else if (e->type == AB_FILE_EVENT_OVERFLOWED)
		say(cli, "warning: some changes were missed");
}

static int follow(struct cli *cli, struct ab_call *call, int sig_fd)
{
	struct ab_file_event e;
	int signo = 0;

	while (!signo) {
		while (ab_file_watch_next(call, &e))
			print_event(cli, &e);
		if (fflush(stdout) != 0)
			return EXIT_ERROR;	/* main() says it */
		if (ab_call_is_done(call))
			return ab_call_error(call) ? fail(cli, ab_call_error(call)) : EXIT_OK;
		signo = sig_wait(cli->client, sig_fd);
	}
	ab_call_free(call);
	sig_die(signo);
}

static int cmd_watch_run(struct cli *cli)
{
	const struct ab_watch_options o = { .recursive = cli->args.recursive, .entries = cli->args.entries };
	struct ab_path path;
	struct ab_call *call;
	int sig_fd, r;

	if (!xfer_split(cli, cli->args.words[0], &path))
		return usage(cli->command, "needs ID:PATH");
	if (!*path.path)
		path.path = ".";
	path.user = cli->args.user;
	sig_fd = sig_open();
	r = sig_fd < 0 ? sig_fd : ab_file_watch_start(cli->client, &path, &o, NULL, &call);
	if (r < 0) {
		say(cli, "%s", strerror(-r));
		return EXIT_ERROR;
	}
	r = follow(cli, call, sig_fd);
	ab_call_free(call);
	return r;
}

const struct command cmd_watch = {
	.name = "watch",
	.words = "ID:[PATH]",
	.help = "Follows what changes in a directory of a sandbox, a line for each change.",
	.opts = cmd_watch_opts,
	.n_opts = ARRAY_SIZE(cmd_watch_opts),
	.min_words = 1,
	.max_words = 1,
	.run = cmd_watch_run,
};
