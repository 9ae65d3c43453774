/* SPDX-License-Identifier: MIT */
/*
 * The worker without a thread: what was handed over within one span of gathering is done together, and
 * heard of some simulated time later.
 */
#include "daemon/common/ev/worker.h"

#include <stdlib.h>

#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "tests/lib/sim/host.h"

#define WORK_MS 5u	/* as a disk takes */

struct worker {
	struct worker_options o;
	struct list queued, finished;
	struct timer timer;
};

bool sim_worker_eager;

static void run_queued(struct worker *w)
{
	struct list jobs;

	list_take(&jobs, &w->queued);
	if (w->o.batch && !list_is_empty(&jobs))
		w->o.batch(&jobs, w->o.user);
	while (!list_is_empty(&jobs)) {
		struct job *j = list_entry(jobs.next, struct job, node);

		if (!w->o.batch)
			j->run(j);
		list_del(&j->node);
		list_add_tail(&w->finished, &j->node);
	}
}

static void deliver(struct worker *w)
{
	struct list jobs;

	list_take(&jobs, &w->finished);
	while (!list_is_empty(&jobs)) {
		struct job *j = list_entry(jobs.next, struct job, node);

		list_del(&j->node);
		j->done(j);
	}
}

static void on_gathered(struct timer *t, void *user)
{
	run_queued(user);
	deliver(user);
}

int worker_new(const struct worker_options *o, struct worker **ret)
{
	struct worker *w = calloc(1, sizeof(*w));

	must(w);
	w->o = *o;
	list_init(&w->queued);
	list_init(&w->finished);
	timer_init(&w->timer, o->loop, on_gathered, w);
	*ret = w;
	return 0;
}

void worker_submit(struct worker *w, struct job *j)
{
	uint64_t at = clock_boot_ms() + WORK_MS;

	list_init(&j->node);
	list_add_tail(&w->queued, &j->node);
	if (sim_worker_eager)
		run_queued(w);
	if (!timer_is_set(&w->timer) || at < w->timer.at_ms)
		must(!timer_set(&w->timer, at));
}

struct worker *worker_free(struct worker *w)
{
	if (!w)
		return NULL;
	run_queued(w);
	deliver(w);
	timer_clear(&w->timer);
	free(w);
	return NULL;
}
