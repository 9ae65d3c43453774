/* SPDX-License-Identifier: MIT */
#include "daemon/common/ev/loop.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "daemon/common/ev/worker.h"
#include "proto/base/clock.h"
#include "proto/base/rng.h"
#include "tests/lib/test.h"

static int order[256], n_order;

static void note_timer(struct timer *t, void *user)
{
	order[n_order++] = *(int *)user;
}

TEST(timers_fire_in_order_once)
{
	struct loop *l;
	struct timer t[100];
	int id[100];
	struct rng rng;

	CHECK_INT(loop_new(&l), 0);
	rng_seed(&rng, 1);
	n_order = 0;
	for (int i = 0; i < 100; i++) {
		id[i] = (int)rng_below(&rng, 30);
		timer_init(&t[i], l, note_timer, &id[i]);
		CHECK_INT(timer_set(&t[i], loop_now_ms(l) + 500), 0);
		CHECK_INT(timer_set(&t[i], loop_now_ms(l) + (uint64_t)id[i]), 0);
	}
	for (int i = 0; i < 100; i += 3)
		timer_clear(&t[i]);
	while (n_order < 66)
		CHECK_INT(loop_once(l, -1), 0);
	for (int i = 1; i < n_order; i++)
		CHECK(order[i - 1] <= order[i]);
	loop_free(l);
}

static void on_byte(struct watch *w, unsigned ready, void *user)
{
	char c;

	CHECK_INT(read(w->fd, &c, 1), 1);
	++*(int *)user;
}

static void defer_again(struct defer *d, void *user)
{
	if (++*(int *)user < 5)
		defer_post(d);
}

TEST(watches_and_deferred_work)
{
	struct loop *l;
	struct watch w;
	struct defer d;
	int fds[2], bytes = 0, runs = 0;

	CHECK_INT(loop_new(&l), 0);
	CHECK_INT(pipe(fds), 0);
	CHECK_INT(watch_init(&w, l, fds[0], on_byte, &bytes), 0);
	CHECK_INT(watch_set(&w, WATCH_READ), 0);
	defer_init(&d, l, defer_again, &runs);
	defer_post(&d);
	defer_post(&d);
	CHECK_INT(write(fds[1], "ab", 2), 2);
	CHECK_INT(loop_once(l, 100), 0);
	CHECK_INT(runs, 5);
	CHECK_INT(loop_once(l, 100), 0);
	CHECK_INT(bytes, 2);
	CHECK_INT(watch_set(&w, 0), 0);
	CHECK_INT(write(fds[1], "c", 1), 1);
	CHECK_INT(loop_once(l, 5), 0);
	CHECK_INT(bytes, 2);
	watch_fini(&w);
	watch_fini(&w);
	close(fds[0]);
	close(fds[1]);
	loop_free(l);
}

static void note_defer(struct defer *d, void *user)
{
	order[n_order++] = *(int *)user;
}

TEST(what_nobody_waits_for_comes_behind_what_is_written)
{
	int ids[] = { 0, 1, 2 };
	struct defer later, pump, now;
	struct loop *l;

	CHECK_INT(loop_new(&l), 0);
	n_order = 0;
	defer_init_later(&later, l, note_defer, &ids[2]);
	defer_init_pump(&pump, l, note_defer, &ids[1]);
	defer_init(&now, l, note_defer, &ids[0]);
	defer_post(&later);
	defer_post(&pump);
	defer_post(&now);
	CHECK_INT(loop_once(l, -1), 0);
	CHECK_INT(n_order, 3);
	for (int i = 0; i < 3; i++)
		CHECK_INT(order[i], i);
	loop_free(l);
}

static void note_slow(struct defer *d, void *user)
{
	uint64_t until = clock_boot_us() + 2000;

	while (clock_boot_us() < until)
		;
	note_defer(d, user);
}

/* Whatever comes meanwhile is served between two of them, and the loop does not sleep before the last. */
TEST(what_nobody_waits_for_is_done_in_turns)
{
	struct defer later[3];
	int ids[] = { 0, 1, 2 }, fds[2], bytes = 0;
	struct loop *l;
	struct watch w;

	CHECK_INT(loop_new(&l), 0);
	CHECK_INT(pipe(fds), 0);
	CHECK_INT(watch_init(&w, l, fds[0], on_byte, &bytes), 0);
	CHECK_INT(watch_set(&w, WATCH_READ), 0);
	n_order = 0;
	for (int i = 0; i < 3; i++) {
		defer_init_later(&later[i], l, note_slow, &ids[i]);
		defer_post(&later[i]);
	}
	CHECK_INT(loop_once(l, -1), 0);
	CHECK_INT(n_order, 1);
	CHECK_INT(write(fds[1], "a", 1), 1);
	CHECK_INT(loop_once(l, -1), 0);
	CHECK_INT(bytes, 1);
	CHECK_INT(n_order, 2);
	defer_cancel(&later[2]);
	CHECK_INT(loop_once(l, 0), 0);
	CHECK_INT(n_order, 2);
	watch_fini(&w);
	close(fds[0]);
	close(fds[1]);
	loop_free(l);
}

static int signals;

static void on_signal(int signo, void *user)
{
	signals += signo == SIGUSR1;
	loop_stop(user, 7);
}

static void on_time_of_day(struct watch *w, unsigned ready, void *user)
{
	*(uint64_t *)user = loop_now_ms(w->loop);
	watch_fini(w);
}

/* What happens after a long wait happens now, not when the wait began. */
TEST(a_callback_sees_the_time_after_the_wait)
{
	uint64_t before, seen = 0;
	struct loop *l;
	struct watch w;
	int p[2];

	CHECK_INT(loop_new(&l), 0);
	CHECK_INT(pipe(p), 0);
	CHECK_INT(watch_init(&w, l, p[0], on_time_of_day, &seen), 0);
	CHECK_INT(watch_set(&w, WATCH_READ), 0);
	CHECK_INT(write(p[1], "x", 1), 1);
	do
		before = clock_boot_ms();
	while (before < loop_now_ms(l) + 5);
	CHECK_INT(loop_once(l, -1), 0);
	CHECK(seen >= before);
	close(p[0]);
	close(p[1]);
	loop_free(l);
}

TEST(signals_arrive_on_the_loop)
{
	struct loop *l;

	CHECK_INT(loop_new(&l), 0);
	CHECK_INT(loop_signal(l, SIGUSR1, on_signal, l), 0);
	raise(SIGUSR1);
	CHECK_INT(loop_run(l), 7);
	CHECK_INT(signals, 1);
	loop_free(l);
}

static unsigned seen_of_set;

static void on_signal_of_set(int signo, void *user)
{
	seen_of_set |= signo == SIGUSR1 ? 1 : signo == SIGRTMIN + 3 ? 2 : 4;
	if (seen_of_set == 3)
		loop_stop(user, 0);
}

TEST(one_handler_takes_a_set_of_signals)
{
	const int set[] = { SIGUSR1, SIGRTMIN + 3 };
	struct loop *l;

	CHECK_INT(loop_new(&l), 0);
	CHECK_INT(loop_signal(l, SIGUSR2, on_signal, l), 0);
	CHECK_INT(loop_signals(l, set, ARRAY_SIZE(set), on_signal_of_set, l), 0);
	raise(SIGUSR1);
	raise(SIGRTMIN + 3);
	CHECK_INT(loop_run(l), 0);
	CHECK_INT(seen_of_set, 3);
	loop_free(l);
}

/* C-7: what is asked before the loop runs is not forgotten. */
TEST(a_stop_before_the_run_counts)
{
	struct loop *l;

	CHECK_INT(loop_new(&l), 0);
	loop_stop(l, 5);
	CHECK_INT(loop_run(l), 5);
	loop_free(l);
}

struct sum_job {
	struct job j;
	int in, out;
	int *done;
};

static void sum_run(struct job *j)
{
	struct sum_job *s = container_of(j, struct sum_job, j);

	s->out = s->in + 1;
}

static void sum_done(struct job *j)
{
	struct sum_job *s = container_of(j, struct sum_job, j);

	CHECK_INT(s->out, s->in + 1);
	CHECK_INT(s->in, *s->done);
	++*s->done;
}

TEST(jobs_finish_in_order_and_before_free_returns)
{
	struct loop *l;
	struct worker *w;
	struct sum_job jobs[50];
	int done = 0;

	CHECK_INT(loop_new(&l), 0);
	CHECK_INT(worker_new(&(struct worker_options){ .loop = l, .name = "t" }, &w), 0);
	for (int i = 0; i < 50; i++) {
		jobs[i] = (struct sum_job){ .in = i, .done = &done };
		jobs[i].j.run = sum_run;
		jobs[i].j.done = sum_done;
		worker_submit(w, &jobs[i].j);
	}
	while (done < 10)
		CHECK_INT(loop_once(l, -1), 0);
	worker_free(w);
	CHECK_INT(done, 50);
	loop_free(l);
}

static void count_batch(struct list *jobs, void *user)
{
	unsigned *sizes = user, n = 0;

	list_for_each(i, jobs)
		n++;
	while (*sizes)
		sizes++;
	*sizes = n;
}

static void one_more(struct job *j)
{
	struct sum_job *s = container_of(j, struct sum_job, j);

	++*s->done;
}

/* What finishes together is not heard of in one pass. */
TEST(many_jobs_are_done_over_some_passes)
{
	enum { JOBS = 1200 };
	struct sum_job *jobs = calloc(JOBS, sizeof(*jobs));
	unsigned sizes[8] = { 0 };
	struct loop *l;
	struct worker *w;
	int done = 0, most = 0, before;

	CHECK_INT(loop_new(&l), 0);
	CHECK_INT(worker_new(&(struct worker_options){ .loop = l, .name = "t", .batch = count_batch, .user = sizes }, &w), 0);
	for (int i = 0; i < JOBS; i++) {
		jobs[i] = (struct sum_job){ .in = i, .out = i + 1, .done = &done };
		jobs[i].j.done = sum_done;
		worker_submit(w, &jobs[i].j);
	}
	while (done < JOBS) {
		before = done;
		CHECK_INT(loop_once(l, -1), 0);
		most = MAX(most, done - before);
	}
	CHECK_INT(sizes[0], JOBS);
	CHECK_INT(most, 500);
	worker_free(w);
	free(jobs);
	loop_free(l);
}

/* The thread's batches, of which the test holds up the first. */
struct batches {
	unsigned sizes[8];
	unsigned slow_ms;		/* of a batch of several */
	_Atomic bool held;
};

static void slow_batch(struct list *jobs, void *user)
{
	struct batches *b = user;

	count_batch(jobs, b->sizes);
	while (b->held)
		sched_yield();
	if (jobs->next != jobs->prev)
		usleep(b->slow_ms * 1000);
}

static void submit_some(struct worker *w, struct sum_job *jobs, int n, int *done)
{
	for (int i = 0; i < n; i++) {
		jobs[i] = (struct sum_job){ .done = done };
		jobs[i].j.done = one_more;
		worker_submit(w, &jobs[i].j);
	}
}

static void until_done(struct loop *l, const int *done, int n)
{
	while (*done < n)
		CHECK_INT(loop_once(l, -1), 0);
}

/* Hands over what was submitted, and waits for the thread to be at work. */
static void until_begun(struct loop *l, struct batches *b)
{
	CHECK_INT(loop_once(l, 0), 0);
	while (!__atomic_load_n(&b->sizes[0], __ATOMIC_ACQUIRE))
		sched_yield();
}

TEST(what_a_pass_submits_is_one_batch)
{
	struct batches b = { .slow_ms = 0 };
	struct loop *l;
	struct worker *w;
	struct sum_job jobs[3];
	int done = 0;

	CHECK_INT(loop_new(&l), 0);
	CHECK_INT(worker_new(&(struct worker_options){ .loop = l, .name = "t", .batch = slow_batch, .user = &b }, &w), 0);
	submit_some(w, jobs, 1, &done);
	usleep(30000);
	submit_some(w, jobs + 1, 2, &done);
	until_done(l, &done, 3);
	CHECK_INT(b.sizes[0], 3);
	worker_free(w);
	loop_free(l);
}

/* As many as the last time have come. */
TEST(company_that_is_there_is_not_waited_for)
{
	struct batches b = { .slow_ms = 3000 };
	struct loop *l;
	struct worker *w;
	struct sum_job jobs[4];
	uint64_t began;
	int done = 0;

	CHECK_INT(loop_new(&l), 0);
	CHECK_INT(worker_new(&(struct worker_options){ .loop = l, .name = "t", .batch = slow_batch, .user = &b,
						       .gather_from = 3, .gather_max_us = 60000000 }, &w), 0);
	submit_some(w, jobs, 3, &done);
	until_done(l, &done, 3);
	b.slow_ms = 0;
	began = clock_boot_ms();
	submit_some(w, jobs, 2, &done);
	CHECK_INT(loop_once(l, 0), 0);
	submit_some(w, jobs + 2, 1, &done);
	until_done(l, &done, 6);
	CHECK(clock_boot_ms() - began < 2500);
	CHECK_INT(b.sizes[1], 3);
	worker_free(w);
	loop_free(l);
}

/* Not for one that is alone, nor after few; after many as long as these took; and never for the end. */
TEST(company_is_waited_for_after_a_big_batch_alone)
{
	struct batches b = { .slow_ms = 1000, .held = true };
	struct loop *l;
	struct worker *w;
	struct sum_job jobs[8];
	int done = 0;

	CHECK_INT(loop_new(&l), 0);
	CHECK_INT(worker_new(&(struct worker_options){ .loop = l, .name = "t", .batch = slow_batch, .user = &b,
						       .gather_from = 3, .gather_max_us = 60000000 }, &w), 0);
	submit_some(w, jobs, 1, &done);
	until_begun(l, &b);
	submit_some(w, jobs + 1, 3, &done);	/* while the first is at work */
	b.held = false;
	until_done(l, &done, 4);
	CHECK_INT(b.sizes[0], 1);
	CHECK_INT(b.sizes[1], 3);
	submit_some(w, jobs, 1, &done);
	CHECK_INT(loop_once(l, 0), 0);
	usleep(30000);
	submit_some(w, jobs + 1, 1, &done);	/* within the second */
	until_done(l, &done, 6);
	CHECK_INT(b.sizes[2], 2);
	submit_some(w, jobs, 1, &done);		/* after two nobody waits */
	until_done(l, &done, 7);
	CHECK_INT(b.sizes[3], 1);
	worker_free(w);
	loop_free(l);
}

/* A batch that took a minute makes nobody wait for one. */
TEST(company_is_waited_for_no_longer_than_that)
{
	struct batches b = { .slow_ms = 200, .held = true };
	uint64_t began;
	struct loop *l;
	struct worker *w;
	struct sum_job jobs[4];
	int done = 0;

	CHECK_INT(loop_new(&l), 0);
	CHECK_INT(worker_new(&(struct worker_options){ .loop = l, .name = "t", .batch = slow_batch, .user = &b,
						       .gather_from = 3, .gather_max_us = 1000 }, &w), 0);
	submit_some(w, jobs, 1, &done);
	until_begun(l, &b);
	submit_some(w, jobs + 1, 3, &done);
	b.held = false;
	until_done(l, &done, 4);
	began = clock_boot_ms();
	submit_some(w, jobs, 1, &done);
	until_done(l, &done, 5);
	CHECK(clock_boot_ms() - began < 150);
	worker_free(w);
	loop_free(l);
}

struct thing {
	struct grave g;
	int *freed;
};

static void thing_free(void *p)
{
	struct thing *t = p;

	++*t->freed;
	free(t);
}

TEST(the_graveyard_is_swept_at_the_end_of_the_pass)
{
	struct loop *l;
	int freed = 0;
	struct thing *t = calloc(1, sizeof(*t));

	CHECK_INT(loop_new(&l), 0);
	t->freed = &freed;
	loop_bury(l, &t->g, thing_free, t);
	CHECK_INT(freed, 0);
	CHECK_INT(loop_once(l, -1), 0);
	CHECK_INT(freed, 1);
	loop_free(l);
}

TEST_MAIN()
