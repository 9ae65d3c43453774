/* SPDX-License-Identifier: MIT */
/*
 * Removes a tree by descriptors: never follows a link, never leaves the tree, any depth with a
 * constant number of descriptors. Blocks for as long as it takes: for helper processes.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_RMTREE_H
#define AB_DAEMON_LOCAL_ENGINE_RMTREE_H

#include "proto/base/cc.h"

/* `name` in the folder dir_fd, or a whole path; its last component is not followed. A missing one is
 * success. Folders without permissions are opened up first. -errno of the first thing that could not
 * be removed, -ESTALE when somebody moved folders about meanwhile. */
must_check int rmtree(int dir_fd, const char *name);

#endif
