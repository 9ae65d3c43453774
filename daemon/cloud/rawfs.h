/* SPDX-License-Identifier: MIT */
/*
 * File system calls for names that are not UTF-8, which the agent's protobuf strings cannot carry. A script does the work, as root
 * like the agent; it needs a POSIX shell and, for STAT and LIST, GNU find. Its entries lack what only the agent knows: metadata, and
 * for a link the permission bits of its target.
 */
#ifndef AB_DAEMON_CLOUD_RAWFS_H
#define AB_DAEMON_CLOUD_RAWFS_H

#include "daemon/cloud/envd.h"

enum rawfs_op {
	RAWFS_STAT,
	RAWFS_LIST,		/* the entries below a directory */
	RAWFS_MAKE_DIR,
	RAWFS_MOVE,		/* to `other` */
	RAWFS_REMOVE,
	RAWFS_LINK,		/* make a link to a directory, for half a minute. The entry's path is the link, which is UTF-8, its name
				 * the directory's absolute path */
};

struct rawfs_ask {
	enum rawfs_op op;
	const char *path, *other;	/* bytes; other NULL = none */
	uint32_t depth;			/* LIST */
};

struct rawfs;
typedef void rawfs_ready_fn(struct rawfs *f, void *user);

/* NULL only without memory. */
struct rawfs *rawfs_new(const struct envd_target *t, const struct rawfs_ask *a, rawfs_ready_fn *on_ready, void *user);
/* Like envd_list_next(). LINK, STAT, MAKE_DIR and MOVE give one entry. */
bool rawfs_next(struct rawfs *f, struct envd_entry *ret);
enum envd_xfer rawfs_state(const struct rawfs *f);
/* FAILED: the same statuses as the agent's calls; MAKE_DIR of an existing directory as envd_make_dir(). */
const struct status *rawfs_failure(const struct rawfs *f, enum envd_class *ret_cls);
struct rawfs *rawfs_free(struct rawfs *f);	/* cancels; NULL is fine; returns NULL */

/* Does a failure of the agent say that it met a name that is not UTF-8? */
bool rawfs_explains(const struct status *st);

#endif
