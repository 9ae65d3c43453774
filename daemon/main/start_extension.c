/* SPDX-License-Identifier: MIT */
#include "daemon/main/start_extension.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

#include "daemon/common/sd/notify.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"

struct start_extension {
	const struct notify *notify;
	uint64_t every_ms;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t over_changed;
	bool over;
};

static void *ask_again_and_again(void *p)
{
	struct start_extension *x = p;

	must(pthread_mutex_lock(&x->lock) == 0);
	for (unsigned i = 0; !x->over && i < START_EXTENSION_MAX; i++) {
		struct timespec until = clock_mono_in_us(x->every_ms * 1000);
		int r = 0;

		while (!x->over && r != ETIMEDOUT)
			r = pthread_cond_timedwait(&x->over_changed, &x->lock, &until);
		if (!x->over) {
			(void)notify_status(x->notify, "starting: the database is being opened");
			(void)notify_extend(x->notify, 3 * x->every_ms * 1000);
		}
	}
	must(pthread_mutex_unlock(&x->lock) == 0);
	return NULL;
}

static int begin(struct start_extension *x)
{
	pthread_condattr_t monotonic;
	sigset_t all, before;
	int r;

	must(pthread_mutex_init(&x->lock, NULL) == 0);
	must(pthread_condattr_init(&monotonic) == 0);
	must(pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0);
	must(pthread_cond_init(&x->over_changed, &monotonic) == 0);
	must(pthread_condattr_destroy(&monotonic) == 0);
	/* Signals are the loop's. */
	sigfillset(&all);
	must(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
	r = pthread_create(&x->thread, NULL, ask_again_and_again, x);
	must(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
	return -r;
}

static struct start_extension *start_extension_free(struct start_extension *x)
{
	must(pthread_cond_destroy(&x->over_changed) == 0);
	must(pthread_mutex_destroy(&x->lock) == 0);
	free(x);
	return NULL;
}

int start_extension_begin(const struct notify *n, uint64_t every_ms, struct start_extension **ret)
{
	struct start_extension *x;
	int r;

	*ret = NULL;
	if (!notify_is_open(n))
		return 0;
	x = calloc(1, sizeof(*x));
	if (!x)
		return -ENOMEM;
	x->notify = n;
	x->every_ms = every_ms;
	r = begin(x);
	if (r < 0)
		start_extension_free(x);
	else
		*ret = x;
	return r;
}

struct start_extension *start_extension_end(struct start_extension *x)
{
	if (!x)
		return NULL;
	must(pthread_mutex_lock(&x->lock) == 0);
	x->over = true;
	must(pthread_cond_signal(&x->over_changed) == 0);
	must(pthread_mutex_unlock(&x->lock) == 0);
	must(pthread_join(x->thread, NULL) == 0);
	return start_extension_free(x);
}
