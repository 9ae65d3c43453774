/* SPDX-License-Identifier: MIT */
/*
 * Copies the tree of a sandbox's writable layer: data by reflink where the file system can, holes
 * kept, owners, modes, times, links among its files, extended attributes and the overlay's whiteouts.
 * Never follows a link out of the tree. Blocks for as long as it takes: for helper processes.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_COPYTREE_H
#define AB_DAEMON_LOCAL_ENGINE_COPYTREE_H

#include <stdbool.h>

#include "proto/base/cc.h"

#define CONTAINER_COPY_DEPTH_MAX 1500u	/* folders within folders; -ENAMETOOLONG below it */

struct container_copy {
	bool supervisor_owners;	/* chown, which an ordinary user cannot */
	int64_t shift;		/* added to every owner */
};

/* The folder `from` in from_fd to the new folder `to` in to_fd. On failure what was copied stays. */
must_check int copytree(int from_fd, const char *from, int to_fd, const char *to,
			const struct container_copy *how);

#endif
