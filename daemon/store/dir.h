/* SPDX-License-Identifier: MIT */
/* The state directory: its owner and mode, its file system, and the lock that one daemon holds on it. */
#ifndef AB_DAEMON_STORE_DIR_H
#define AB_DAEMON_STORE_DIR_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"

struct store_report;

struct state_dir {
	char *path;		/* resolved, as SQLite follows no symlinks */
	int fd, lock_fd;
	bool network_fs;
};

/* Makes, checks, locks. 0 or an enum store_open_result with report->why filled. */
must_check int state_dir_open(struct state_dir *d, const char *path, struct store_report *report);
/* 0 if the file `name` may be used: it is a regular file of ours, whose mode becomes 0600, or there is none (*ret_exists). */
must_check int state_dir_check_file(struct state_dir *d, const char *name, bool *ret_exists,
				    struct store_report *report);
void state_dir_close(struct state_dir *d);

#endif
