/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that the service manager passed at the start, as sd_listen_fds_with_names(3) documents it: they begin at 3, and
 * $LISTEN_FDNAMES names them. They are told apart by name, never by position, because a manager passes them in any order.
 */
#ifndef AB_DAEMON_COMMON_SD_LISTEN_FDS_H
#define AB_DAEMON_COMMON_SD_LISTEN_FDS_H

#include <stddef.h>
#include <sys/types.h>

#include "proto/base/cc.h"

#define LISTEN_FDS_FIRST 3
#define LISTEN_FDS_MAX	 16384u	/* more are refused: the file descriptor store's own maximum is below it */

struct listen_env {		/* $LISTEN_PID, $LISTEN_FDS, $LISTEN_FDNAMES; each may be NULL */
	const char *pid, *fds, *names;
};

struct listen_fd {
	int fd;			/* -1 = taken */
	const char *name;	/* "unknown" where the manager gives none */
};

struct listen_fds {
	struct listen_fd *v;
	size_t n;
	char *text;		/* the names' own */
};

/* No descriptors if the variables are not there or meant for another process. -EINVAL for values that do not fit together,
 * -ENOMEM. No descriptor is touched. */
must_check int listen_fds_parse(const struct listen_env *env, pid_t self, struct listen_fds *ret);
/* Sets CLOEXEC on all of them; -EBADF if one is not open. */
must_check int listen_fds_keep(const struct listen_fds *l);
/* The descriptor of this name, which is the caller's from now on. -ENOENT; -EEXIST if several have the name. */
must_check int listen_fds_take(struct listen_fds *l, const char *name);
/* The same where several may have it: any of them. */
must_check int listen_fds_take_one(struct listen_fds *l, const char *name);
/* Closes those that were not taken. */
void listen_fds_fini(struct listen_fds *l);

#endif
