/* SPDX-License-Identifier: MIT */
/*
 * Puts what archives hold below a folder, which it never leaves: every path is resolved by the kernel with that folder as its root,
 * links of the archive included, and ".." is refused. Devices, extended attributes and what is above the limits are not made. An archive may be a
 * layer of an image: then `.wh.` names take away what lower layers made (OCI image specification, "Whiteouts").
 * Blocks: for the supervisor. Nobody else may change the folder meanwhile.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_UNPACK_H
#define AB_DAEMON_LOCAL_ENGINE_UNPACK_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/local/engine/tarball.h"

#define UNPACK_WHY_MAX 200u

struct unpack_limits {
	uint64_t bytes;		/* of all files together */
	uint64_t entries;
};

extern const struct unpack_limits unpack_usual_limits;	/* 64 GiB, 4 million */

struct unpack;

/* dir_fd: the folder, which is empty; the caller's. as_user: owners are noted (CONTAINER_OWNER_XATTR), else they are set. */
must_check int unpack_new(int dir_fd, bool as_user, const struct unpack_limits *limits, struct unpack **ret);
struct unpack *unpack_free(struct unpack *u);	/* NULL is fine; returns NULL */

/* Both read the archive to its end. 0, or -errno with unpack_why(). A layer goes through the first, which touches only what is there
 * already, and then through the second. */
must_check int unpack_whiteouts(struct unpack *u, struct tarball_source *s);
must_check int unpack_files(struct unpack *u, struct tarball_source *s, bool is_layer);
const char *unpack_why(const struct unpack *u);

/* "/a//./b/" becomes "a/b", "/" becomes "". False: it has "..". `ret` holds TAR_NAME_MAX + 1. */
bool unpack_clean_name(const char *name, char *ret);

#endif
