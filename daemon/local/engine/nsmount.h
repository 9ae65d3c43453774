/* SPDX-License-Identifier: MIT */
/*
 * The mounts of a sandbox, in the order ns_setup() makes them, in its own mount namespace. All are
 * made below a scratch tmpfs by relative paths, so that no character of a path can matter in mount
 * options. Each returns 0 or -errno.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_NSMOUNT_H
#define AB_DAEMON_LOCAL_ENGINE_NSMOUNT_H

#include "proto/base/cc.h"

struct ns_plan;

must_check int nsmount_private(void);
/* A detached proc of the caller's pid namespace. */
must_check int nsmount_new_proc(int *ret_fd);
must_check int nsmount_scratch(const struct ns_plan *p);
/* userns_fd >= 0: the layers' ids are mapped by it. */
must_check int nsmount_layers(const struct ns_plan *p, int userns_fd);
must_check int nsmount_root(const struct ns_plan *p);
must_check int nsmount_usr(const struct ns_plan *p);
must_check int nsmount_proc(int proc_fd);
must_check int nsmount_dev(const struct ns_plan *p);
must_check int nsmount_masks(void);
/* A boot id of its own: this start is the sandbox's boot. */
must_check int nsmount_boot_id(void);
/* What /proc says of memory and processors. *ret_dir: the folder with these files (NSMOUNT_MEMINFO). */
#define NSMOUNT_MEMINFO "meminfo"
must_check int nsmount_shown(const struct ns_plan *p, int *ret_dir);
must_check int nsmount_pivot(void);

#endif
