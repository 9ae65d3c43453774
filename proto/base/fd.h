/* SPDX-License-Identifier: MIT */
/* Descriptors: always CLOEXEC, non-blocking where said; failures are -errno. */
#ifndef AB_PROTO_BASE_FD_H
#define AB_PROTO_BASE_FD_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"

/* Closes if >= 0; keeps errno. Returns -1. */
int fd_close(int fd);
void fd_closep(int *fd);	/* for scoped() */
must_check int fd_set_nonblock(int fd, bool on);

/* Opens /dev/null as each of 0, 1 and 2 that is closed; else a file of ours could become 2 and the log be written into it. */
must_check int fd_fill_standard(void);

/* Non-blocking CLOEXEC connection. */
must_check int fd_accept(int listen_fd, int *ret);
must_check int fd_pidfd(pid_t pid, int *ret);

/* Whole content of a small file as a NUL-terminated heap string. -EFBIG above max bytes. */
must_check int fd_read_file(int dir_fd, const char *path, size_t max, char **ret, size_t *ret_len);
/* Writes PATH.new with `mode`, syncs it, renames it to `path`. The folder is not synced: after a crash of the machine the old content
 * may be there. 0, -errno with the old content in place. */
must_check int fd_write_file(int dir_fd, const char *path, const void *p, size_t n, mode_t mode);
/* All of it, blocking. */
must_check int fd_write_all(int fd, const void *p, size_t n);
/* The same to standard output, for what a program was started to print. What fails is told on standard error. 0 or -errno. */
must_check int fd_print(const char *program, const char *text);
/* mkdir -p with this mode for what is created. */
must_check int fd_mkdirs(const char *path, mode_t mode);

#endif
