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
#ifndef AB_DAEMON_LOCAL_ENGINE_BOXWATCH_H
#define AB_DAEMON_LOCAL_ENGINE_BOXWATCH_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct box;
struct box_watch;
struct boxfs_entry;

#define BOX_WATCH_DIRS_MAX 32768u	/* below one watch; more is an overflow */

enum box_watch_kind {
	BOX_WATCH_READY,
	BOX_WATCH_CHANGE,
	BOX_WATCH_OVERFLOW,
	BOX_WATCH_FAILED,	/* -ENOENT, -ENOTDIR, -EREMOTE (a network mount), -EPIPE (the sandbox is gone), … */
};

enum box_watch_op {		/* the numbers of envd's EventType; a kernel event's are told in the
				 * order create, rename, chmod, write, remove */
	BOX_WATCH_CREATE = 1,
	BOX_WATCH_WRITE = 2,
	BOX_WATCH_REMOVE = 3,
	BOX_WATCH_RENAME = 4,
	BOX_WATCH_CHMOD = 5,
};

struct box_watch_event {
	enum box_watch_kind kind;
	int r;					/* FAILED */
	enum box_watch_op op;
	const char *name;			/* below the directory; "." is itself */
	const struct boxfs_entry *entry;	/* asked for, and still there; else NULL */
};

struct box_watch_options {
	const char *path;	/* absolute */
	bool recursive;
	bool entries;
	bool network;		/* also where changes of other machines are not seen */
};

/* From the loop, never before box_watch_new() has returned; may free the watch. */
typedef void box_watch_fn(void *user, const struct box_watch_event *e);

/* 0, -EPIPE, -ENAMETOOLONG, -errno. May outlive the box. */
must_check int box_watch_new(struct box *b, const struct box_watch_options *o, box_watch_fn *fn,
			     void *user, struct box_watch **ret);
void box_watch_hold(struct box_watch *w, bool hold);
struct box_watch *box_watch_free(struct box_watch *w);

#endif
