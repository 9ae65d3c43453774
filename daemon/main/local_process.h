/* SPDX-License-Identifier: MIT */
/*
 * agentboxd --local: the agentbox-local of the state directory, attached to or started, and started again when it ends.
 *
 * It has a session of its own and outlives this daemon, as a cloud would. Its folder STATE/local holds its lock, endpoint,
 * CA and key. The lock proves that it lives; a process number in a file does not. A daemon holds a shared lock on
 * STATE/local/users, from which agentbox-local sees whether it is still needed.
 *
 * It is started at the ports it had before, and at free ports if it exits there. Its owner reads the address again after
 * each on_change. The pause before the next start doubles as long as it does not stay up.
 */
#ifndef AB_DAEMON_MAIN_LOCAL_PROCESS_H
#define AB_DAEMON_MAIN_LOCAL_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/main/child.h"
#include "proto/base/cc.h"
#include "proto/base/status.h"

struct local_process;
struct loop;

enum local_state {
	LOCAL_STARTING,		/* its address is not known yet */
	LOCAL_RUNNING,
	LOCAL_WAITING,		/* it is down; a timer starts it again */
	LOCAL_STOPPING,		/* local_process_stop() was called */
	LOCAL_STOPPED,		/* the stop is complete; it is not started again */
};

struct local_process_options {
	struct loop *loop;
	struct children *children;
	const char *state_dir;
	const char *program;		/* NULL = agentbox-local beside this program, or in $PATH */
	uint32_t ready_ms;		/* for its start; 0 = 30 s */
	uint32_t pause_first_ms, pause_max_ms;	/* before the next start; 0 = 200 ms, 30 s */
	uint32_t stable_ms;		/* a run of this length resets the pause; 0 = 60 s */
	void (*on_change)(void *user);	/* the state changed; never called from inside a call into here */
	void *user;
};

struct local_info {
	enum local_state state;
	bool soon;		/* STARTING, or WAITING for a short pause: calls should wait */
	uint32_t pause_ms;	/* WAITING: the pause before the next start */
	bool was_up;		/* at least once since local_process_new() */
	bool start_failed;	/* at least once since it was up last */
	int64_t since_ms;	/* wall clock: when it ended, first failed or was stopped; 0 = it is up, or starts normally */
	struct status why;	/* not RUNNING: the reason, for a person */

	/* The address now, or the last one; "" and NULL before it is known. */
	const char *url;	/* "https://localhost:PORT" */
	const char *address;	/* "127.0.0.1:PORT" */
	const char *domain;	/* "localhost:PORT" */
	bool plain_ports;	/* … which is http:// */
	const char *ca_file, *key_file;
	pid_t pid;		/* 0 while it does not run */
};

/* Attaches to it or starts it, without waiting. -errno and a sentence in `why` if it cannot be started at all. */
must_check int local_process_new(const struct local_process_options *o, struct local_process **ret, struct status *why);
/* Lets it run, or kills it if it is still starting. NULL is fine; returns NULL. */
struct local_process *local_process_free(struct local_process *l);

void local_process_info(const struct local_process *l, struct local_info *ret);

/* Ends it with its sandboxes for good. `done` is called once, never from inside, when the process is gone or the deadline
 * has passed. */
typedef void local_process_stopped_fn(void *user, const struct status *st, bool was_running);
struct local_process_stop;
must_check int local_process_stop(struct local_process *l, uint64_t deadline_ms, local_process_stopped_fn *done,
				  void *user, struct local_process_stop **ret);
void local_process_stop_cancel(struct local_process_stop *s);

#endif
