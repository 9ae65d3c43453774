/* SPDX-License-Identifier: MIT */
/* agentboxctl watch */
#include <stdio.h>

#include "client/cli/term/again.h"
#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"
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
	json_text(&j, "event", event_name(e));
	if (e->type == AB_FILE_EVENT_CHANGE)
		json_text(&j, "name", e->name);
	if (e->entry)
		print_file_json(&j, "entry", e->entry);
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
	struct again_stream stream;
	struct ab_path path;
	bool was_ready;
};

static struct watch *watch_of(struct again_stream *s)
{
	return (struct watch *)s;
}

static int ask(struct again_stream *s, struct ab_call **ret)
{
	const struct ab_watch_options o = { .recursive = s->cli->args.recursive, .entries = s->cli->args.entries };

	return ab_file_watch_start(s->cli->client, &watch_of(s)->path, &o, NULL, ret);
}

static void take_events(struct again_stream *s)
{
	struct watch *x = watch_of(s);
	struct ab_file_event e;

	while (ab_file_watch_next(s->call, &e)) {
		again_heard(&s->again);
		/* what changed while there was no daemon is not known */
		if (e.type == AB_FILE_EVENT_READY && x->was_ready)
			e.type = AB_FILE_EVENT_OVERFLOWED;
		x->was_ready = true;
		print_event(s->cli, &e);
	}
}

static int cmd_watch_run(struct cli *cli)
{
	struct watch x = { .stream = { .cli = cli, .ask = ask, .take = take_events } };

	if (!xfer_split(cli, cli->args.words[0], &x.path))
		return usage(cli->command, "needs ID:PATH");
	if (!*x.path.path)
		x.path.path = ".";
	x.path.user = cli->args.user;
	return again_follow(&x.stream);
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
