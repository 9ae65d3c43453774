/* SPDX-License-Identifier: MIT */
/*
 * One thread with a job queue; results come back to the loop by eventfd, in the order the jobs
 * were taken. The queues are all that a job's two threads share besides the job, and they have the
 * lock. A job belongs to the worker from submit until its done() is called on the loop thread.
 */
#ifndef AB_DAEMON_COMMON_EV_WORKER_H
#define AB_DAEMON_COMMON_EV_WORKER_H

#include <stdbool.h>

#include "daemon/common/ev/loop.h"

struct worker;

struct job {
	void (*run)(struct job *j);	/* on the thread; unused when the worker has a batch function */
	void (*done)(struct job *j);	/* on the loop; may free the job */
	struct list node;
};

struct worker_options {
	struct loop *loop;
	const char *name;	/* thread name, static */
	/* Takes many jobs at once (group commit): called on the thread with all that are queued. NULL: run() one
	 * by one. */
	void (*batch)(struct list *jobs, void *user);
	void *user;
	/* Company is waited for under load alone: after a batch of at least gather_from jobs (0 = never) the next one
	 * waits, as long as that batch took and at most gather_max_us. */
	unsigned gather_from;
	uint32_t gather_max_us;
};

must_check int worker_new(const struct worker_options *o, struct worker **ret);
/* The thread gets it behind the deferred work that is there already, with all others that are submitted until then: one batch. */
void worker_submit(struct worker *w, struct job *j);
/* Runs what is queued, joins the thread, calls the done() of all. NULL is fine; returns NULL. */
struct worker *worker_free(struct worker *w);

#endif
