/* SPDX-License-Identifier: MIT */
/*
 * Watching a directory of a sandbox. Every watch is a process inside the sandbox with an inotify
 * instance of its own; like a file worker it cannot see further than the sandbox's root. What it
 * says is checked as if the sandbox had said it.
 *
 * First event: READY or FAILED; every change after READY is reported, in order, until FAILED or
 * OVERFLOW, which are the last. While a watch is held nothing is read from it: the kernel's queue
 * fills, and then OVERFLOW comes.
 */
#ifndef AB_DAEMON_LOCAL_ENGINE_WATCH_H
#define AB_DAEMON_LOCAL_ENGINE_WATCH_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct container;
struct container_watch;
struct fs_entry;

#define CONTAINER_WATCH_DIRS_MAX 32768u	/* below one watch; more is an overflow */

enum container_watch_kind {
	CONTAINER_WATCH_READY,
	CONTAINER_WATCH_CHANGE,
	CONTAINER_WATCH_MARK,	/* of container_watch_mark(): all that was before it has been told */
	CONTAINER_WATCH_OVERFLOW,
	CONTAINER_WATCH_FAILED,	/* -ENOENT, -ENOTDIR, -EREMOTE (a network mount), -EPIPE (the sandbox is gone), … */
};

enum container_watch_op {		/* the numbers of envd's EventType; a kernel event's are told in the
				 * order create, rename, chmod, write, remove */
	CONTAINER_WATCH_CREATE = 1,
	CONTAINER_WATCH_WRITE = 2,
	CONTAINER_WATCH_REMOVE = 3,
	CONTAINER_WATCH_RENAME = 4,
	CONTAINER_WATCH_CHMOD = 5,
};

struct container_watch_event {
	enum container_watch_kind kind;
	int r;					/* FAILED */
	enum container_watch_op op;
	const char *name;			/* below the directory; "." is itself */
	const struct fs_entry *entry;	/* asked for, and still there; else NULL */
};

struct container_watch_options {
	const char *path;	/* absolute */
	bool recursive;
	bool entries;
	bool network;		/* also where changes of other machines are not seen */
};

/* From the loop, never before container_watch_new() has returned; may free the watch. */
typedef void container_watch_fn(void *user, const struct container_watch_event *e);

/* 0, -EPIPE, -ENAMETOOLONG, -errno. May outlive the container. */
must_check int container_watch_new(struct container *b, const struct container_watch_options *o,
				   container_watch_fn *fn, void *user,
				   struct container_watch **ret);
/* Asks for one CONTAINER_WATCH_MARK, behind every change that there was before this call. 0; -EAGAIN: too many are asked for; -EPIPE. */
must_check int container_watch_mark(struct container_watch *w);
void container_watch_hold(struct container_watch *w, bool hold);
struct container_watch *container_watch_free(struct container_watch *w);

#endif
