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

#define DELIVER_MOST 500u	/* jobs in a pass: about a millisecond, where all of them are transactions without a waiter */

struct worker {
	struct worker_options o;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct list submitted;		/* the loop's, in this pass */
	struct defer hand_over;
	struct list arrived;		/* the loop's: finished, done() is still to be called */
	struct list queued, finished;	/* under the lock, as … */
	unsigned n_queued;
	bool stop, gathers;
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

/* Under the lock. Nobody is waited for when as many are there as last time. */
static void gather(struct worker *w)
{
	struct timespec until;

	if (!w->o.gather_from || w->last_n < w->o.gather_from)
		return;
	until = clock_mono_in_us(MIN(w->last_us, (uint64_t)w->o.gather_max_us));
	w->gathers = true;
	while (!w->stop && w->n_queued < w->last_n && !pthread_cond_clockwait(&w->more, &w->lock, CLOCK_MONOTONIC, &until))
		;
	w->gathers = false;
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
		w->n_queued = 0;
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

/* Calls done() of at most so many; what is left is told of again, for the next pass. */
static void deliver(struct worker *w, size_t most)
{
	pthread_mutex_lock(&w->lock);
	while (!list_is_empty(&w->finished)) {
		struct list *n = w->finished.next;

		list_del(n);
		list_add_tail(&w->arrived, n);
	}
	pthread_mutex_unlock(&w->lock);
	for (; most && !list_is_empty(&w->arrived); most--) {
		struct job *j = list_entry(w->arrived.next, struct job, node);

		list_del(&j->node);
		j->done(j);
	}
	if (!list_is_empty(&w->arrived))
		tell_loop(w);
}

static void on_event_fd(struct watch *watch, unsigned ready, void *user)
{
	struct worker *w = user;
	uint64_t n;

	if (read(w->event_fd, &n, sizeof(n)) == (ssize_t)sizeof(n))
		deliver(w, DELIVER_MOST);
}

static void hand_over(struct worker *w)
{
	bool waits;

	if (list_is_empty(&w->submitted))
		return;
	pthread_mutex_lock(&w->lock);
	waits = !w->n_queued;
	while (!list_is_empty(&w->submitted)) {
		struct list *n = w->submitted.next;

		list_del(n);
		list_add_tail(&w->queued, n);
		w->n_queued++;
	}
	waits |= w->gathers && w->n_queued >= w->last_n;
	pthread_mutex_unlock(&w->lock);
	/* After the unlock, or the thread would wake only to wait for it. */
	if (waits)
		pthread_cond_signal(&w->more);
}

static void on_hand_over(struct defer *d, void *user)
{
	hand_over(user);
}

int worker_new(const struct worker_options *o, struct worker **ret)
{
	struct worker *w = calloc(1, sizeof(*w));
	sigset_t all, before;
	int r;

	if (!w)
		return -ENOMEM;
	w->o = *o;
	list_init(&w->submitted);
	list_init(&w->queued);
	list_init(&w->finished);
	list_init(&w->arrived);
	defer_init(&w->hand_over, o->loop, on_hand_over, w);
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
	must(!w->stop);
	list_init(&j->node);
	list_add_tail(&w->submitted, &j->node);
	defer_post(&w->hand_over);
}

struct worker *worker_free(struct worker *w)
{
	if (!w)
		return NULL;
	defer_cancel(&w->hand_over);
	hand_over(w);
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_signal(&w->more);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	deliver(w, SIZE_MAX);
	watch_fini(&w->watch);
	fd_close(w->event_fd);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->more);
	free(w);
	return NULL;
}
