/* SPDX-License-Identifier: MIT */
/*
 * The file system of a sandbox for names that its agent cannot be told, or cannot tell: those that are not UTF-8, which protobuf's
 * strings do not carry. A script does the work, as root, as the agent does; it needs a POSIX shell and, to look, GNU find. What only
 * the agent can say is missing: metadata, and of a link the permission bits of what it leads to.
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
	RAWFS_LINK,		/* a link of half a minute to a directory: the entry's path, which is UTF-8; its name: the directory's
				 * absolute path */
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
/* As of an envd_list. Of LINK, STAT, MAKE_DIR and MOVE there is one entry. */
bool rawfs_next(struct rawfs *f, struct envd_entry *ret);
enum envd_xfer rawfs_state(const struct rawfs *f);
/* FAILED: as the agent's call fails; MAKE_DIR of what is there already as envd_make_dir(). */
const struct status *rawfs_failure(const struct rawfs *f, enum envd_class *ret_cls);
struct rawfs *rawfs_free(struct rawfs *f);	/* cancels; NULL is fine; returns NULL */

/* Does a failure of the agent say that it met such a name? */
bool rawfs_explains(const struct status *st);

#endif
