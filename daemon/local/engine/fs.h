/* SPDX-License-Identifier: MIT */
/*
 * Files of a sandbox. Every call is carried out by a file worker: a process of ours that lives
 * inside the sandbox's namespaces and works through a handle on its root with
 * openat2(RESOLVE_IN_ROOT|RESOLVE_NO_MAGICLINKS). So no path, link or race can lead out of the
 * sandbox, ids are the sandbox's own, and a huge tree blocks a worker, never the loop. A container has at
 * most FS_WORKERS_MAX of them; calls beyond that wait in order.
 *
 * Paths are absolute paths inside the sandbox, used as given. `done` is called exactly once, from
 * the loop, never before the call has returned; what it gets lives during the call only.
 * Errors are -errno of the operation: -ENOENT, -ENOTDIR, -EISDIR, -EEXIST, -ELOOP, -EXDEV, -ENOSPC,
 * -EDQUOT, -ENAMETOOLONG, -EMEDIUMTYPE (no regular file: device, socket, fifo), -EPIPE (the sandbox
 * is gone), -EIO (the worker was killed inside).
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_FS_H
#define AB_DAEMON_LOCAL_ENGINE_FS_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct container;
struct container_user;
struct fs_op;

#define FS_WORKERS_MAX      4u
#define FS_PATH_MAX	       4095u	/* -ENAMETOOLONG above it */
#define FS_LIST_MAX	       100000u	/* entries; -E2BIG above it */
#define FS_META_MAX_BYTES   4096u	/* sum over entries of 9 + key + value; -E2BIG above it */

enum fs_type {		/* the numbers of envd's FileType */
	FS_UNSPECIFIED = 0,
	FS_FILE = 1,
	FS_DIRECTORY = 2,
	FS_SYMLINK = 3,
};

struct fs_meta {
	const char *key;	/* lower case, without "user.e2b." */
	const char *value;
};

/* One entry as the cloud's agent tells it: of a symlink, `type` and `mode` are the target's. */
struct fs_entry {
	const char *path;	/* absolute, under the requested name */
	const char *name;	/* the end of path */
	enum fs_type type;
	uint32_t mode;		/* permission bits */
	char permissions[16];	/* "-rw-r--r--", of the entry itself */
	int64_t size;
	int64_t mtime_s;
	int32_t mtime_ns;
	const char *owner, *group;	/* names of the sandbox, or numbers */
	uint32_t uid, gid;
	const char *symlink_target;	/* NULL unless a symlink */
	const struct fs_meta *meta;
	size_t n_meta;
};

typedef void fs_entry_fn(void *user, int r, const struct fs_entry *e);
typedef void fs_list_fn(void *user, int r, const struct fs_entry *e, size_t n);
typedef void fs_done_fn(void *user, int r);
/* fd: a regular file, blocking in name only; the callee's to close. e: what it is (mtime, size). */
typedef void fs_open_fn(void *user, int r, int fd, const struct fs_entry *e);

/*
 * Each returns 0 or -errno (-EPIPE, -ENAMETOOLONG, -ENOMEM; then `done` is never called). *ret_op
 * (may be NULL) is valid until `done`.
 */
must_check int fs_stat(struct container *b, const char *path, fs_entry_fn *done, void *user,
		       struct fs_op **ret_op);
/* Depth-first, lexical in each folder, without the start itself; depth 0 counts as 1. */
must_check int fs_list(struct container *b, const char *path, uint32_t depth, fs_list_fn *done,
		       void *user, struct fs_op **ret_op);
/* -EEXIST: is a directory already; -ENOTDIR: is something else; -ENOTSUP: something else in the
 * middle. What is created is 0755 and the user's. */
must_check int fs_mkdir(struct container *b, const char *path, const struct container_user *owner,
			fs_entry_fn *done, void *user, struct fs_op **ret_op);
/* rename(2) after creating the destination's parents; the entry is the destination. */
must_check int fs_move(struct container *b, const char *from, const char *to,
		       const struct container_user *owner, fs_entry_fn *done, void *user,
		       struct fs_op **ret_op);
/* With everything below; a missing path is success. */
must_check int fs_remove(struct container *b, const char *path, fs_done_fn *done, void *user,
			 struct fs_op **ret_op);
/* Follows symlinks. -EISDIR, -EMEDIUMTYPE. */
must_check int fs_open_read(struct container *b, const char *path, fs_open_fn *done, void *user,
			    struct fs_op **ret_op);
/* Creates parents (0755) and the file (0666 & ~022) or truncates it; the file becomes the user's,
 * its metadata becomes exactly meta[0..n). Follows symlinks. -EISDIR, -EMEDIUMTYPE. */
must_check int fs_open_write(struct container *b, const char *path,
			     const struct container_user *owner, const struct fs_meta *meta,
			     size_t n_meta, fs_open_fn *done, void *user, struct fs_op **ret_op);
/* The sources, in order, become one file, which then replaces the destination; they are removed.
 * -EMEDIUMTYPE, -EISDIR: a source is no regular file; -E2BIG: too many or too long paths. */
must_check int fs_compose(struct container *b, const char *const *sources, size_t n_sources,
			  const char *destination, const struct container_user *owner,
			  fs_entry_fn *done, void *user, struct fs_op **ret_op);
/* `done` will not be called; what the worker does is not undone. */
void fs_cancel(struct fs_op *op);

#endif
