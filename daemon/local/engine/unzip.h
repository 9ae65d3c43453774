/* SPDX-License-Identifier: MIT */
/*
 * The bytes of an archive, decompressed by the machine's own program where it is compressed (gzip, zstd, xz, bzip2: told by how it begins).
 * Blocks: for the supervisor.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_UNZIP_H
#define AB_DAEMON_LOCAL_ENGINE_UNZIP_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"

struct unzip {
	int fd;			/* what is read from */
	pid_t pid;		/* of the program; 0: none is needed */
	const char *program;
	bool ended;
};

/* fd: a regular file, read from its beginning; stays the caller's, and open until unzip_close(). */
must_check int unzip_open(int fd, struct unzip *ret);
must_check ssize_t unzip_read(struct unzip *z, void *p, size_t n);
/* -EBADMSG: the program failed; -ENOEXEC: it is not installed (z->program names it). Early, it ends the program and is 0. */
must_check int unzip_close(struct unzip *z, bool early);

#endif
