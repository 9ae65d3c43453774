/* SPDX-License-Identifier: MIT */
/* agentboxd --restore. */
#include "daemon/store/restore.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/main/app.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/str.h"

/* Root works as the owner of the directory, to whom all files in it belong. */
static int become_owner(const char *dir)
{
	struct stat st;

	if (geteuid() != 0 || stat(dir, &st) < 0 || !st.st_uid)
		return 0;
	if (setgroups(0, NULL) == 0 && setgid(st.st_gid) == 0 && setuid(st.st_uid) == 0)
		return 0;
	fprintf(stderr, "agentboxd: cannot become uid %u, who owns %s: %m\n", st.st_uid, dir);
	return -errno;
}

static int open_backup(const char *file)
{
	int fd = str_eq(file, "-") ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : open(file, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
		errno = EISDIR;
		fd = fd_close(fd);
	}
	if (fd < 0)
		fprintf(stderr, "agentboxd: %s: %m\n", file);
	return fd;
}

static int print_restored(const struct store_restored *r)
{
	printf("state_dir: %s\nhost_id: %s\nschema: %d\n", r->dir, r->host, r->report.schema_found);
	if (r->report.moved_aside[0])
		printf("moved_to: %s\n", r->report.moved_aside);
	return fflush(stdout) ? 1 : 0;
}

static int restore_to(const char *dir, const char *file, bool other_host)
{
	scoped(fd_closep) int fd = open_backup(file);
	struct store_restore_options o = { .state_dir = dir, .from_fd = fd, .from = str_eq(file, "-") ? "standard input" : file,
					   .now_wall_ms = clock_wall_ms(), .other_host = other_host };
	struct store_restored done;
	int r;

	if (fd < 0)
		return APP_EXIT_NO_INPUT;
	if (become_owner(dir) < 0)
		return APP_EXIT_UNAVAILABLE;
	r = store_restore(&o, &done);
	if (!r)
		return print_restored(&done);
	fprintf(stderr, "agentboxd: %s\n", done.report.why);
	return r;
}

int app_restore(const struct conf *c, bool user_mode, const char *file, bool other_host)
{
	char *dir = app_state_dir(c, user_mode);
	int r = APP_EXIT_CONFIG;

	if (dir)
		r = restore_to(dir, file, other_host);
	else
		fprintf(stderr, "agentboxd: no place for the state: $HOME is not set; give --state-dir\n");
	free(dir);
	return r;
}
