/* SPDX-License-Identifier: MIT */
/*
 * agentboxd --local: starts agentbox-local, or attaches to the one of the state directory. It is a
 * process of its own session that outlives this daemon, as a cloud would; its folder STATE/local has
 * its lock, its endpoint, its CA and its key. STATE/local/users is locked shared while a daemon runs,
 * so that agentbox-local knows whether anybody still needs it.
 */
#ifndef AB_DAEMON_MAIN_LOCAL_PROCESS_H
#define AB_DAEMON_MAIN_LOCAL_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"
#include "proto/base/status.h"

struct loop;
struct local_process;

struct local_process_info {
	const char *url;	/* "https://localhost:PORT"; stays the same over restarts */
	const char *address;	/* "127.0.0.1:PORT" */
	const char *domain;	/* "localhost:PORT" */
	bool plain_ports;	/* … which is http:// */
	const char *ca_file, *key_file;
	pid_t pid;		/* 0 while it does not run */
};

/* Blocks until it is ready, at most 10 s. A failure is a sentence in `why`. */
must_check int local_process_start(struct loop *loop, const char *state_dir, struct local_process **ret,
			      struct status *why);
void local_process_look(const struct local_process *l, struct local_process_info *ret);

/* Ends it with its sandboxes. `done` comes once, never from inside, when the process is gone. */
typedef void local_process_stopped_fn(void *user, const struct status *st, bool was_running);
struct local_process_stop;
must_check int local_process_stop(struct local_process *l, uint64_t deadline_ms, local_process_stopped_fn *done,
			     void *user, struct local_process_stop **ret);
void local_process_stop_cancel(struct local_process_stop *s);

/* Leaves agentbox-local alone. NULL is fine; returns NULL. */
struct local_process *local_process_free(struct local_process *l);

#endif
