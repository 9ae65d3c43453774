/* SPDX-License-Identifier: MIT */
/* agentboxctl local */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

static int stop(struct cli *cli)
{
	struct ab_local_stopped *s;
	struct json j;

	if (ab_daemon_stop_local(cli->client, NULL, &s))
		return fail_client(cli);
	if (cli->args.json) {
		json_begin(&j, stdout);
		json_bool(&j, "was_running", s->was_running);
		json_uint(&j, "killed", s->killed);
		json_end(&j);
	} else if (s->was_running) {
		printf("stopped; %u sandbox%s ended\n", s->killed, s->killed == 1 ? "" : "es");
	} else {
		puts("was not running");
	}
	ab_free(s);
	return EXIT_OK;
}

/* --- env --- */

/* As agentbox-local wrote it: lines for a shell. */
static int print_file(const struct cli *cli, const char *dir)
{
	char path[4096], buf[4096];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/env", dir);
	f = fopen(path, "re");
	if (!f)
		return fail_missing(cli, "LOCAL_NOT_RUNNING", "cannot read %s: %s%s", path, strerror(errno),
				    errno == ENOENT ? " (agentbox-local does not run with this state directory)" : "");
	while ((n = fread(buf, 1, sizeof(buf), f)) > 0)
		fwrite(buf, 1, n, stdout);
	fclose(f);
	return EXIT_OK;
}

/* The state directory of the daemon's own agentbox-local is where its CA is. */
static int env_of_daemon(struct cli *cli)
{
	struct ab_daemon_status *s;
	char *slash, dir[4096];
	int r;

	if (ab_daemon_status(cli->client, NULL, &s))
		return fail_client(cli);
	snprintf(dir, sizeof(dir), "%s", s->local_ca_file ? s->local_ca_file : "");
	slash = strrchr(dir, '/');
	if (!s->local_address) {
		r = fail_missing(cli, "UNSUPPORTED", "this agentboxd does not run with --local: name the state directory "
						     "of an agentbox-local");
	} else if (!s->local_pid || !slash) {
		r = fail_missing(cli, "LOCAL_NOT_RUNNING", "agentbox-local does not run: it starts with the first sandbox");
	} else {
		*slash = '\0';
		r = print_file(cli, dir);
	}
	ab_free(s);
	return r;
}

static bool is_offline(const struct args *a)
{
	return a->n_words == 2 && !strcmp(a->words[0], "env");
}

static int cmd_local_run(struct cli *cli)
{
	char *const *words = cli->args.words;

	if (!strcmp(words[0], "stop") && cli->args.n_words == 1)
		return stop(cli);
	if (strcmp(words[0], "env") != 0)
		return usage(cli->command, "'%s' is not 'stop' or 'env [DIRECTORY]'", words[cli->args.n_words - 1]);
	return cli->args.n_words > 1 ? print_file(cli, words[1]) : env_of_daemon(cli);
}

const struct command cmd_local = {
	.name = "local",
	.words = "stop | env [DIRECTORY]",
	.help = "Ends agentbox-local and its sandboxes, and returns when they are gone; or prints, for a shell, what SDKs need "
		"to use it: eval \"$(agentboxctl local env)\".",
	.min_words = 1,
	.max_words = 2,
	.is_offline = is_offline,
	.run = cmd_local_run,
};
