/* SPDX-License-Identifier: MIT */
/* agentboxctl watch */
#include <stdio.h>
#include <string.h>

#include "client/cli/term/again.h"
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

struct watch {
	struct cli *cli;
	struct ab_path path;
	struct ab_call *call;
	int sig_fd;
	bool was_ready;
	struct again again;
};

static int ask(struct watch *x)
{
	const struct ab_watch_options o = { .recursive = x->cli->args.recursive, .entries = x->cli->args.entries };

	ab_call_free(x->call);
	x->call = NULL;
	return ab_file_watch_start(x->cli->client, &x->path, &o, NULL, &x->call);
}

static void take_events(struct watch *x)
{
	struct ab_file_event e;

	while (ab_file_watch_next(x->call, &e)) {
		again_heard(&x->again);
		/* what changed while there was no daemon is not known */
		if (e.type == AB_FILE_EVENT_READY && x->was_ready)
			e.type = AB_FILE_EVENT_OVERFLOWED;
		x->was_ready = true;
		print_event(x->cli, &e);
	}
}

/* -1: it goes on; else the exit code. *signo: a signal that came meanwhile. */
static int on_end(struct watch *x, int *signo)
{
	const struct ab_error *e = ab_call_error(x->call);
	int r = again_wait(&x->again, x->cli, e, x->sig_fd);

	if (r < 0)
		return e ? fail(x->cli, e) : EXIT_OK;
	*signo = r;
	return r || ask(x) == 0 ? -1 : EXIT_ERROR;
}

static int follow(struct watch *x)
{
	int signo = 0, r;

	while (!signo) {
		take_events(x);
		if (fflush(stdout) != 0)
			return EXIT_ERROR;	/* main() says it */
		if (!ab_call_is_done(x->call)) {
			signo = sig_wait(x->cli->client, x->sig_fd);
			continue;
		}
		r = on_end(x, &signo);
		if (r >= 0)
			return r;
	}
	ab_call_free(x->call);
	sig_die(signo);
}

static int cmd_watch_run(struct cli *cli)
{
	struct watch x = { .cli = cli };
	int r;

	if (!xfer_split(cli, cli->args.words[0], &x.path))
		return usage(cli->command, "needs ID:PATH");
	if (!*x.path.path)
		x.path.path = ".";
	x.path.user = cli->args.user;
	x.sig_fd = sig_open();
	r = x.sig_fd < 0 ? x.sig_fd : ask(&x);
	if (r < 0) {
		say(cli, "%s", strerror(-r));
		return EXIT_ERROR;
	}
	r = follow(&x);
	ab_call_free(x.call);
	return r;
}

const struct command cmd_watch = {
	.name = "watch",
	.words = "ID:[PATH]",
	.help = "Follows what changes in a directory of a sandbox, a line for each change.\n"
		"It goes on over a restart of the daemon, and says then that changes were missed.",
	.opts = cmd_watch_opts,
	.n_opts = ARRAY_SIZE(cmd_watch_opts),
	.min_words = 1,
	.max_words = 1,
	.run = cmd_watch_run,
};
