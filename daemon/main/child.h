/* SPDX-License-Identifier: MIT */
/*
 * A program that the daemon started, from its start to its end, on the loop. No call in here waits for the program.
 *
 * A child has a session of its own, /dev/null as its input, our standard error, one pipe that we read, and no other
 * descriptor of ours. All its signals have their default action. Its environment is ours without the variables that a
 * service manager sets for one process only (NOTIFY_*, LISTEN_*, WATCHDOG_*, FDSTORE). Its output is bounded, is kept
 * until `done`, and is wiped.
 *
 * A child is stopped by SIGTERM, and by SIGKILL if it is still there after kill_after_ms. A pidfd tells of its end, or
 * SIGCHLD where the kernel has no pidfds. `done` is called exactly once, on the loop, never from inside a call into here,
 * and not after child_cancel() or child_release(). The child is freed when `done` returns.
 */
#ifndef AB_DAEMON_MAIN_CHILD_H
#define AB_DAEMON_MAIN_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"

struct child;
struct children;	/* all of one loop */
struct loop;

/* One for a loop. SIGCHLD gets its default action: a process that ignores it never learns how its children ended. */
must_check int children_new(struct loop *l, struct children **ret);
/* After the last pass of the loop, because the handler of SIGCHLD uses it. Cancelled children that are not gone yet are
 * left to init. NULL is fine; returns NULL. */
struct children *children_free(struct children *s);

enum child_state {
	CHILD_RUNNING,
	CHILD_STOPPING,		/* SIGTERM was sent, SIGKILL follows */
	CHILD_KILLED,		/* SIGKILL was sent */
	CHILD_ENDED,		/* `done` is being called */
};

enum child_end {
	CHILD_EXITED,		/* number = exit status */
	CHILD_SIGNALLED,	/* number = signal */
	CHILD_TIMED_OUT,	/* it was stopped at its time limit */
	CHILD_SAID_TOO_MUCH,	/* it was stopped when it wrote more than output_max */
	CHILD_GONE,		/* nobody knows how: it was adopted */
};

struct child_result {
	enum child_end end;
	int number;
	const char *output;	/* NUL-terminated; valid until `done` returns */
	size_t n_output;
};

typedef void child_output_fn(struct child *c, void *user);
typedef void child_done_fn(const struct child_result *r, void *user);

struct child_options {
	const char *name;		/* for the log; static */
	const char *program;		/* is looked for in $PATH if it has no slash */
	char *const *argv;
	int output_fd;			/* the child's end of the pipe: 1, or 3 (then its 1 is /dev/null) */
	size_t output_max;		/* bytes */
	uint32_t time_limit_ms;		/* from the start; 0 = none */
	uint32_t kill_after_ms;		/* between SIGTERM and SIGKILL */
	bool whole_group;		/* signals go to its process group; the group is killed when the child ends */
	child_output_fn *on_output;	/* child_output() has grown; it may stop, settle or cancel the child; NULL = none */
	child_done_fn *done;
	void *user;
};

/* -errno: nothing was started, and `done` will not be called. -ENOENT: there is no such program. */
must_check int child_start(struct children *s, const struct child_options *o, struct child **ret);
/* Watches a process that somebody else started; of the options only name, kill_after_ms, done and user are used. The
 * caller then checks that the number still belongs to the process it means. -ESRCH; -ENOSYS without pidfds. */
must_check int child_adopt(struct children *s, pid_t pid, const struct child_options *o, struct child **ret);

/* Its output so far, NUL-terminated. */
const char *child_output(const struct child *c, size_t *ret_n);
/* The owner needs no more output: the pipe is closed, and the time limit no longer holds. */
void child_settle(struct child *c);
/* Begins to end it; `done` is called when it is gone. */
void child_stop(struct child *c);
/* Kills it; `done` is not called. NULL is fine. */
void child_cancel(struct child *c);
/* Forgets it and lets it run. A child that we started stays a zombie after its end, so this is for the daemon's own end
 * and for adopted processes. NULL is fine. */
void child_release(struct child *c);

pid_t child_pid(const struct child *c);
/* "it ended with 3", "it was ended by signal 9", … */
const char *child_end_text(const struct child_result *r, char ret[64]);

struct child_info {
	const char *name, *state;
	pid_t pid;
	uint64_t started_at_ms;		/* BOOTTIME */
};
/* Number i of those that are there, or false. */
bool child_info(const struct children *s, size_t i, struct child_info *ret);

#endif
