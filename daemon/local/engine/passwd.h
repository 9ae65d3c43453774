/* SPDX-License-Identifier: MIT */
/* Reads passwd(5) and group(5), which a sandbox may have written. Pure but for passwd_read(). */
#ifndef AB_DAEMON_LOCAL_ENGINE_PASSWD_H
#define AB_DAEMON_LOCAL_ENGINE_PASSWD_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct container_user;

#define PASSWD_FILE_MAX (256u * 1024)

/* A small regular file below the O_PATH handle root_fd, by openat2() inside that root: never blocks,
 * never leads out. Heap, NUL-terminated. -EMEDIUMTYPE, -EFBIG, -errno. */
must_check int passwd_read(int root_fd, const char *path, char **ret);

/* False if nobody has this name, or the line is broken. */
bool passwd_find(const char *passwd, const char *name, struct container_user *ret);
/* Of passwd or group alike: the name in front of this id. */
bool passwd_name_of(const char *text, uint32_t id, char *ret, size_t cap);
/* The groups that list `name` as a member, gid first. Returns how many, at most max (>= 1). */
uint32_t passwd_groups(const char *group, const char *name, uint32_t gid, uint32_t *ret, uint32_t max);

#endif
