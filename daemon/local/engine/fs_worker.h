/* SPDX-License-Identifier: MIT */
/* The file worker: a process inside the sandbox that carries out one request after the other. */
#ifndef AB_DAEMON_LOCAL_ENGINE_FS_WORKER_H
#define AB_DAEMON_LOCAL_ENGINE_FS_WORKER_H

#include <stdbool.h>

#include "daemon/local/engine/fs.h"
#include "proto/base/buf.h"
#include "proto/base/cc.h"

/* as_user: owners are kept in an attribute. Ends with its socket. */
noreturn_ void fs_worker_run(int sock, bool as_user);

/* --- shared by the worker's files --- */

#define FSW_META_PREFIX "user.e2b."	/* of the attributes that hold metadata */

struct fsw {
	int root;		/* O_PATH on / */
	bool as_user;
	struct buf out;		/* entries of the reply */
	uint32_t n_out;
	char *passwd, *group;	/* texts, of this request */
};

/* Always O_CLOEXEC, never out of the root, never through a magic link. fd or -errno. */
must_check int fsw_open(const struct fsw *w, const char *path, uint64_t flags, uint32_t mode);
/* Opens the parent folder of `path`; *ret_name is the last component (in `buf`, which holds
 * FS_PATH_MAX + 1 bytes). -EINVAL for a path that ends in "/", "." or "..". */
must_check int fsw_open_parent(const struct fsw *w, const char *path, char *buf, const char **ret_name,
			       int *ret_fd);
/* mkdir -p; what is created belongs to uid:gid. Returns an O_PATH handle. */
must_check int fsw_make_dirs(const struct fsw *w, const char *path, uint32_t uid, uint32_t gid);
must_check int fsw_set_owner(const struct fsw *w, int fd, uint32_t uid, uint32_t gid);
/* "/proc/self/fd/N", for calls that want a path. */
const char *fsw_fd_path(int fd, char buf[32]);

/* fs_entry.c: appends an entry to w->out. `report` is the path it goes by. */
must_check int fsw_add_entry(struct fsw *w, int parent_fd, const char *name, const char *report);

#endif
