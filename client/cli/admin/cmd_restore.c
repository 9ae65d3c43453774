/* SPDX-License-Identifier: MIT */
/* agentboxctl restore: agentboxd --restore, which knows the state, and what came of it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

#define ARGS_MAX 8

extern char **environ;

static const struct opt cmd_restore_opts[] = {
	OPT(0, "state-dir", OPT_TEXT, state_dir, "DIR", "of the daemon; default: what its configuration says"),
	OPT(0, "other-host", OPT_FLAG, other_host, NULL, "also where the directory is that of another host, whose state is kept aside"),
};

struct restored {
	char state_dir[PATH_MAX], host_id[64], moved_to[PATH_MAX];
	uint32_t schema;
};

/* agentboxd lies beside agentboxctl, in the build tree in a folder of its own; else it is looked for as the shell does. */
static const char *find_daemon(char ret[PATH_MAX])
{
	static const char *const places[] = { "agentboxd", "../sbin/agentboxd", "../daemon/agentboxd" };
	ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - 32);
	char *slash;

	ret[n > 0 ? n : 0] = '\0';
	slash = strrchr(ret, '/');
	for (size_t i = 0; slash && i < ARRAY_SIZE(places); i++) {
		snprintf(slash + 1, 32, "%s", places[i]);
		if (!access(ret, X_OK))
			return ret;
	}
	return "agentboxd";
}

static void take_line(struct restored *r, char *line)
{
	char *value = strstr(line, ": ");

	line[strcspn(line, "\n")] = '\0';
	if (!value)
		return;
	*value = '\0';
	value += 2;
	if (!strcmp(line, "state_dir"))
		snprintf(r->state_dir, sizeof(r->state_dir), "%s", value);
	else if (!strcmp(line, "host_id"))
		snprintf(r->host_id, sizeof(r->host_id), "%s", value);
	else if (!strcmp(line, "moved_to"))
		snprintf(r->moved_to, sizeof(r->moved_to), "%s", value);
	else if (!strcmp(line, "schema"))
		(void)opt_number(value, UINT32_MAX, &r->schema);
}

static int read_output(int fd, struct restored *ret)
{
	FILE *f = fdopen(fd, "r");
	char line[PATH_MAX + 64];

	if (!f) {
		close(fd);
		return -ENOMEM;
	}
	while (fgets(line, sizeof(line), f))
		take_line(ret, line);
	fclose(f);
	return 0;
}

static int start_daemon(char **argv, int out, pid_t *ret)
{
	posix_spawn_file_actions_t actions;
	char path[PATH_MAX];
	int r = posix_spawn_file_actions_init(&actions);

	if (r)
		return r;
	r = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	if (!r)
		r = posix_spawnp(ret, find_daemon(path), &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

/* 0, or an exit code after it was said what is wrong: by agentboxd itself, on the stderr that it has from us. */
static int run_daemon(const struct cli *cli, char **argv, struct restored *ret)
{
	int fds[2], status = 0, r;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return fail_here(cli, "%s", strerror(errno));
	r = start_daemon(argv, fds[1], &pid);
	close(fds[1]);
	if (r) {
		close(fds[0]);
		return fail_here(cli, "agentboxd cannot be started: %s", strerror(r));
	}
	r = read_output(fds[0], ret);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (r < 0)
		say(cli, "%s", strerror(-r));
	return r < 0 || !WIFEXITED(status) || WEXITSTATUS(status) ? EXIT_ERROR : EXIT_OK;
}

static void print_restored(const struct cli *cli, const struct restored *r)
{
	char dir[PATH_MAX], moved[PATH_MAX], host[64];
	struct json j;

	if (cli->args.json) {
		json_begin(&j, stdout);
		json_text(&j, "state_dir", r->state_dir);
		json_text(&j, "host_id", r->host_id);
		json_uint(&j, "schema", r->schema);
		json_text(&j, "moved_to", r->moved_to);
		json_end(&j);
		return;
	}
	printf("restored to %s, schema %u, host %s\n", safe(r->state_dir, dir, sizeof(dir)), r->schema,
	       safe(r->host_id, host, sizeof(host)));
	if (r->moved_to[0])
		printf("the state that was there: %s\n", safe(r->moved_to, moved, sizeof(moved)));
	printf("Start the daemon: it compares with the cloud. What was made since the backup is found there and kept, what has ended is "
	       "forgotten, and no policy ends a sandbox that the backup knows.\n");
}

static int cmd_restore_run(struct cli *cli)
{
	const struct args *a = &cli->args;
	struct restored done = { .schema = 0 };
	char *argv[ARGS_MAX] = { (char *)"agentboxd", (char *)"--restore", a->words[0] };
	size_t n = 3;
	int r;

	if (a->state_dir) {
		argv[n++] = (char *)"--state-dir";
		argv[n++] = (char *)a->state_dir;
	}
	if (a->other_host)
		argv[n++] = (char *)"--other-host";
	r = run_daemon(cli, argv, &done);
	if (!r)
		print_restored(cli, &done);
	return r;
}

static bool cmd_restore_is_offline(const struct args *a)
{
	return true;
}

const struct command cmd_restore = {
	.name = "restore",
	.words = "FILE",
	.help = "Puts a backup into the state folder of a daemon that does not run; what was there is kept aside.\n"
		"Refuses while a daemon runs, and what is damaged, of a newer version, of another host or another program. - is the "
		"standard input.",
	.opts = cmd_restore_opts,
	.n_opts = ARRAY_SIZE(cmd_restore_opts),
	.min_words = 1,
	.max_words = 1,
	.is_offline = cmd_restore_is_offline,
	.run = cmd_restore_run,
};
