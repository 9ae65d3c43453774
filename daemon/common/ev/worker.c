/* SPDX-License-Identifier: MIT */
#include "daemon/common/ev/worker.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"

struct worker {
	struct worker_options o;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct list queued, finished;	/* under the lock, as … */
	bool stop;
	unsigned last_n;		/* the thread's: jobs of the last batch, and how long it took */
	uint64_t last_us;
	int event_fd;
	struct watch watch;
};

static void tell_loop(struct worker *w)
{
	uint64_t one = 1;

	/* The counter cannot overflow; EAGAIN would mean the loop was told already. */
	(void)!write(w->event_fd, &one, sizeof(one));
}

static void run_batch(struct worker *w, struct list *jobs)
{
	uint64_t began = clock_boot_us();

	w->last_n = 0;
	list_for_each(n, jobs)
		w->last_n++;
	w->o.batch(jobs, w->o.user);
	w->last_us = clock_boot_us() - began;
}

static void run_jobs(struct worker *w, struct list *jobs)
{
	if (w->o.batch) {
		run_batch(w, jobs);
		return;
	}
	list_for_each(n, jobs) {
		struct job *j = list_entry(n, struct job, node);

		j->run(j);
	}
}

/* Under the lock. */
static void gather(struct worker *w)
{
	struct timespec until;

	if (!w->o.gather_from || w->last_n < w->o.gather_from)
		return;
	until = clock_mono_in_us(MIN(w->last_us, (uint64_t)w->o.gather_max_us));
	while (!w->stop && !pthread_cond_clockwait(&w->more, &w->lock, CLOCK_MONOTONIC, &until))
		;
}

static void *thread_main(void *user)
{
	struct worker *w = user;

	pthread_setname_np(pthread_self(), w->o.name);
	pthread_mutex_lock(&w->lock);
	for (;;) {
		struct list jobs;

		while (list_is_empty(&w->queued) && !w->stop)
			pthread_cond_wait(&w->more, &w->lock);
		if (list_is_empty(&w->queued))
			break;
		gather(w);
		list_take(&jobs, &w->queued);
		pthread_mutex_unlock(&w->lock);
		run_jobs(w, &jobs);
		pthread_mutex_lock(&w->lock);
		while (!list_is_empty(&jobs)) {
			struct list *n = jobs.next;

			list_del(n);
			list_add_tail(&w->finished, n);
		}
		tell_loop(w);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static void deliver(struct worker *w)
{
	struct list jobs;

	pthread_mutex_lock(&w->lock);
	list_take(&jobs, &w->finished);
	pthread_mutex_unlock(&w->lock);
	while (!list_is_empty(&jobs)) {
		struct job *j = list_entry(jobs.next, struct job, node);

		list_del(&j->node);
		j->done(j);
	}
}

static void on_event_fd(struct watch *watch, unsigned ready, void *user)
{
	struct worker *w = user;
	uint64_t n;

	if (read(w->event_fd, &n, sizeof(n)) == (ssize_t)sizeof(n))
		deliver(w);
}

int worker_new(const struct worker_options *o, struct worker **ret)
{
	struct worker *w = calloc(1, sizeof(*w));
	sigset_t all, before;
	int r;

	if (!w)
		return -ENOMEM;
	w->o = *o;
	list_init(&w->queued);
	list_init(&w->finished);
	w->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->event_fd < 0) {
		r = -errno;
		free(w);
		return r;
	}
	r = watch_init(&w->watch, o->loop, w->event_fd, on_event_fd, w);
	if (!r)
		r = watch_set(&w->watch, WATCH_READ);
	if (!r) {
		pthread_mutex_init(&w->lock, NULL);
		pthread_cond_init(&w->more, NULL);
		/* Signals are the loop thread's. */
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		r = -pthread_create(&w->thread, NULL, thread_main, w);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	if (r) {
		watch_fini(&w->watch);
		fd_close(w->event_fd);
		free(w);
		return r;
	}
	*ret = w;
	return 0;
}

void worker_submit(struct worker *w, struct job *j)
{
	bool first;

	list_init(&j->node);
	pthread_mutex_lock(&w->lock);
	must(!w->stop);
	first = list_is_empty(&w->queued);
	list_add_tail(&w->queued, &j->node);
	pthread_mutex_unlock(&w->lock);
	/* After the unlock, or the thread would wake only to wait for it. A thread that gathers has seen the first one. */
	if (first)
		pthread_cond_signal(&w->more);
}

struct worker *worker_free(struct worker *w)
{
	if (!w)
		return NULL;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_signal(&w->more);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	deliver(w);
	watch_fini(&w->watch);
	fd_close(w->event_fd);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->more);
	free(w);
	return NULL;
}
