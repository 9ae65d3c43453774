/* SPDX-License-Identifier: MIT */
/*
 * agentboxctl backup: the daemon's database as a file. It has no name until it is whole and on the disk; then it takes the place of a file
 * of its name at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/term/cli.h"
#include "client/cli/term/out.h"

struct target {
	const char *file;
	int dir_fd, fd;
	char base[NAME_MAX + 1];
	char temp[NAME_MAX + 1];	/* its name until it is whole; "" = it has none */
};

static int target_fail(const struct cli *cli, const char *file, int error)
{
	return fail_here(cli, "%s: %s", file, strerror(error));
}

/* Where a file system has no files without a name, it has a temporary one. */
static int open_temp(struct target *t)
{
	t->fd = openat(t->dir_fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (t->fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
		return t->fd < 0 ? errno : 0;
	if (snprintf(t->temp, sizeof(t->temp), ".%.200s.%d", t->base, (int)getpid()) < 0)
		return EINVAL;
	t->fd = openat(t->dir_fd, t->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (t->fd < 0)
		t->temp[0] = '\0';
	return t->fd < 0 ? errno : 0;
}

static int target_open(struct target *t)
{
	char dir[PATH_MAX], base[PATH_MAX];
	struct stat st;

	if (snprintf(dir, sizeof(dir), "%s", t->file) >= PATH_MAX || snprintf(base, sizeof(base), "%s", t->file) >= PATH_MAX ||
	    snprintf(t->base, sizeof(t->base), "%s", basename(base)) >= (int)sizeof(t->base))
		return ENAMETOOLONG;
	t->dir_fd = open(dirname(dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t->dir_fd < 0)
		return errno;
	if (fstatat(t->dir_fd, t->base, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? EISDIR : EEXIST;
	return open_temp(t);
}

static int name_it(struct target *t)
{
	char self[32];

	if (t->temp[0])
		return 0;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", t->fd);
	if (snprintf(t->temp, sizeof(t->temp), ".%.200s.%d", t->base, (int)getpid()) < 0)
		return EINVAL;
	if (linkat(AT_FDCWD, self, t->dir_fd, t->temp, AT_SYMLINK_FOLLOW) == 0)
		return 0;
	t->temp[0] = '\0';
	return errno;
}

/* 0, or an errno: then the file that was there still is. */
static int target_put(struct target *t)
{
	int r = fsync(t->fd) < 0 ? errno : name_it(t);

	if (!r && renameat(t->dir_fd, t->temp, t->dir_fd, t->base) < 0)
		r = errno;
	if (!r)
		t->temp[0] = '\0';
	return !r && fsync(t->dir_fd) < 0 ? errno : r;
}

static void target_close(struct target *t)
{
	if (t->temp[0])
		(void)unlinkat(t->dir_fd, t->temp, 0);
	if (t->fd >= 0)
		close(t->fd);
	if (t->dir_fd >= 0)
		close(t->dir_fd);
}

static void print_backup(const struct cli *cli, const struct ab_backup *b)
{
	char size[32], host[64], file[PATH_MAX];
	struct json j;

	if (!cli->args.json) {
		printf("%s: %s, schema %u, of host %s. It holds secrets: keep it as such.\n", safe(cli->args.words[0], file, sizeof(file)),
		       size_text(b->bytes, size), b->schema, safe(b->host_id, host, sizeof(host)));
		return;
	}
	json_begin(&j, stdout);
	json_text(&j, "file", cli->args.words[0]);
	json_uint(&j, "bytes", b->bytes);
	json_uint(&j, "schema", b->schema);
	json_text(&j, "host_id", b->host_id);
	json_text(&j, "version", b->version);
	json_time(&j, "at", b->at_ms);
	json_end(&j);
}

static int to_file(struct cli *cli)
{
	struct target t = { .file = cli->args.words[0], .dir_fd = -1, .fd = -1 };
	struct ab_backup *b = NULL;
	int r = target_open(&t);

	if (r) {
		r = target_fail(cli, t.file, r);
	} else if (ab_daemon_backup_to_fd(cli->client, NULL, t.fd, &b)) {
		r = fail_client(cli);
	} else {
		r = target_put(&t);
		r = r ? target_fail(cli, t.file, r) : EXIT_OK;
	}
	target_close(&t);
	if (!r)
		print_backup(cli, b);
	ab_free(b);
	return r;
}

static bool is_pipe_out(const struct args *a)
{
	return !strcmp(a->words[0], "-");
}

static int cmd_backup_check(struct cli *cli)
{
	if (is_pipe_out(&cli->args) && isatty(STDOUT_FILENO))
		return usage(cli->command, "the backup does not go to a terminal: name a file, or pipe it");
	if (is_pipe_out(&cli->args) && cli->args.json)
		return usage(cli->command, "with - the output is the backup: --json goes with a file");
	return 0;
}

static int cmd_backup_run(struct cli *cli)
{
	struct ab_backup *b = NULL;

	if (!is_pipe_out(&cli->args))
		return to_file(cli);
	if (ab_daemon_backup_to_fd(cli->client, NULL, STDOUT_FILENO, &b))
		return fail_client(cli);
	ab_free(b);
	return EXIT_OK;
}

const struct command cmd_backup = {
	.name = "backup",
	.words = "FILE",
	.help = "Writes a copy of the daemon's state, as it is at one moment, while it serves.\n"
		"FILE is made with mode 0600, and replaced as a whole; - is the standard output. It is for agentboxctl restore. For "
		"admins.",
	.min_words = 1,
	.max_words = 1,
	.check = cmd_backup_check,
	.run = cmd_backup_run,
};
