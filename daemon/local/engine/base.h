/* SPDX-License-Identifier: MIT */
/*
 * What a sandbox's root is made of: an allow-list, never the machine's root. The base is a skeleton
 * we build (links into /usr, a filtered /etc with our own passwd and group, fresh folders) over
 * which /usr is mounted. A registered template is either a whole root of its own, with a small patch
 * above it that makes sure of the folders and users every sandbox has, or, without /usr/bin and
 * /bin, some files that lie over the base. Blocks: for the supervisor.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_BASE_H
#define AB_DAEMON_LOCAL_ENGINE_BASE_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"

#define BASE_HOSTNAME "sandbox"
#define CONTAINER_USER_ID 1000u
#define CONTAINER_TTY_GID 5u

/* As an ordinary user ownership cannot be changed: it is kept in this attribute ("uid:gid"). */
#define CONTAINER_OWNER_XATTR "user.agentbox.owner"

#define BASE_SUDO_DIR "opt/agentbox/bin"	/* of the base; has sudo, where there is one */

/* Builds the skeleton in the empty folder `dir`. `sudo`: the program (sudo_client.c), or NULL. */
must_check int base_build(const char *dir, bool as_user, const char *sudo);
/* Builds the patch for the template root `root` in the empty folder `dir`. */
must_check int base_build_patch(const char *dir, const char *root, bool as_user, const char *sudo);
/* Pure: is `path` the folder `dir` or below it? Both absolute, without "." and "..". */
bool base_contains(const char *dir, const char *path);

#endif
