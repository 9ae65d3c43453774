/* SPDX-License-Identifier: MIT */
/* agentboxctl reload */
#include <stdio.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static void json_keys(struct json *j, const char *name, const struct ab_changed_key *keys, size_t n)
{
	json_open(j, name, '[');
	for (size_t i = 0; i < n; i++) {
		json_open(j, NULL, '{');
		json_text(j, "section", keys[i].section);
		json_text(j, "key", keys[i].key);
		json_text(j, "file", keys[i].file);
		json_uint(j, "line", keys[i].line);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void cmd_reload_print_json(const struct ab_reloaded *s)
{
	struct json j;

	json_begin(&j, stdout);
	json_open(&j, NULL, '{');
	json_text(&j, "file", s->file);
	json_words(&j, "problems", s->problems, s->n_problems);
	json_keys(&j, "taken", s->taken, s->n_taken);
	json_keys(&j, "need_restart", s->need_restart, s->n_need_restart);
	json_close(&j, '}');
	json_end(&j);
}

static void print_keys(const char *said, const struct ab_reloaded *s, const struct ab_changed_key *keys, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		printf("%s: [%s] %s", said, keys[i].section, keys[i].key);
		if (keys[i].line)
			printf(" (%s:%u)\n", keys[i].file, keys[i].line);
		else
			printf(" (no longer in %s)\n", s->file);
	}
}

static void cmd_reload_print(struct cli *cli, const struct ab_reloaded *s)
{
	for (size_t i = 0; i < s->n_problems; i++)
		say(cli, "%s", s->problems[i]);
	if (s->n_problems) {
		say(cli, "%s has problems; nothing was changed", s->file);
		return;
	}
	print_keys("taken up", s, s->taken, s->n_taken);
	print_keys("needs a restart", s, s->need_restart, s->n_need_restart);
	if (!s->n_taken && !s->n_need_restart)
		printf("nothing is different in %s\n", s->file);
}

static int cmd_reload_run(struct cli *cli)
{
	struct ab_reloaded *s;
	int r;

	if (ab_daemon_reload(cli->client, NULL, &s))
		return fail_client(cli);
	if (cli->args.json)
		cmd_reload_print_json(s);
	else
		cmd_reload_print(cli, s);
	r = s->n_problems ? EXIT_ERROR : EXIT_OK;
	ab_free(s);
	return r;
}

const struct command cmd_reload = {
	.name = "reload",
	.words = "",
	.help = "The daemon reads its configuration again: prints what it took up, and what needs a restart.\n"
		"Exit code 1 if something in the file is wrong: every problem is printed, and nothing was changed.",
	.run = cmd_reload_run,
};
