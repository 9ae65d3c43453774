/* SPDX-License-Identifier: MIT */
/* The pass order of loop.h, on libevent for descriptors and a BOOTTIME heap for time. */
#include "daemon/common/ev/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"

#define DEFER_BUDGET	   10000u	/* deferred calls in one pass; the rest waits for the next */
#define LATER_US	   500u		/* of a pass for what nobody waits for; one call has as long as it takes */
#define SIGNAL_HANDLERS_MAX 8u
#define HEAP_KEEP_BYTES	    (4 * 1024 * 1024)
#define HEAP_ARENAS	    2	/* the loop's, and one for all the other threads, which allocate little */

struct loop {
	struct event_base *base;
	struct timer **heap;		/* 1-based binary heap by at_ms */
	size_t n_timers, heap_cap;
	int timer_fd;
	struct event *timer_ev;
	uint64_t timer_fd_at_ms;	/* what the timerfd is set to; 0 = off */
	uint64_t wanted_ms;		/* the same, not before it was set */
	struct list deferred, pumps, later, graves;
	sigset_t signals;
	int signal_fd;
	struct event *signal_ev;
	struct {
		sigset_t set;
		signal_fn *fn;
		void *user;
	} handlers[SIGNAL_HANDLERS_MAX];
	unsigned n_handlers;
	uint64_t now_ms, pass;
	uint64_t began_us;		/* now_ms, in microseconds */
	struct loop_totals totals;
	bool awake;			/* now_ms is of this pass */
	bool stopped;
	int code;
};

/* The wait is over: by the first callback of libevent, or after it. */
static void begin_pass(struct loop *l)
{
	if (l->awake)
		return;
	l->awake = true;
	l->pass++;
	l->began_us = clock_boot_us();
	l->now_ms = l->began_us / 1000;
}

static void on_timer_fd(evutil_socket_t fd, short what, void *user)
{
	struct loop *l = user;
	uint64_t n;

	begin_pass(l);
	/* Only wakes the pass; stage 3 looks at the heap. */
	if (read(fd, &n, sizeof(n)) < 0)
		return;
	histogram_add(&l->totals.late, (l->now_ms - MIN(l->wanted_ms, l->now_ms)) * 1000);
	l->timer_fd_at_ms = 0;
}

/*
 * Buffers come and go with every pass. By default the heap's end is given back to the kernel each
 * time and faulted in again page by page: three quarters of the cost of a bulk transfer. Without fast bins small blocks are merged
 * when they are freed, and not all that are free at once when a large one is next asked for or freed, which took 60 ms.
 */
static void tune_heap(void)
{
	(void)mallopt(M_ARENA_MAX, HEAP_ARENAS);
	(void)mallopt(M_MXFAST, 0);
	(void)mallopt(M_TRIM_THRESHOLD, HEAP_KEEP_BYTES);
	(void)mallopt(M_MMAP_THRESHOLD, HEAP_KEEP_BYTES);
}

int loop_new(struct loop **ret)
{
	struct event_config *cfg = event_config_new();
	struct loop *l = calloc(1, sizeof(*l));
	int r = -ENOMEM;

	tune_heap();
	if (!cfg || !l)
		goto out;
	list_init(&l->deferred);
	list_init(&l->pumps);
	list_init(&l->later);
	list_init(&l->graves);
	sigemptyset(&l->signals);
	l->signal_fd = -1;
	l->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (l->timer_fd < 0) {
		r = -errno;
		goto out;
	}
	event_config_set_flag(cfg, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV);
	l->base = event_base_new_with_config(cfg);
	if (!l->base)
		goto out;
	l->timer_ev = event_new(l->base, l->timer_fd, EV_READ | EV_PERSIST, on_timer_fd, l);
	if (!l->timer_ev || event_add(l->timer_ev, NULL) < 0)
		goto out;
	l->now_ms = clock_boot_ms();
	*ret = l;
	l = NULL;
	r = 0;
out:
	if (cfg)
		event_config_free(cfg);
	if (l) {
		fd_close(l->timer_fd);
		l->timer_fd = -1;
		loop_free(l);
	}
	return r;
}

static void run_graves(struct loop *l)
{
	while (!list_is_empty(&l->graves)) {
		struct grave *g = list_entry(l->graves.next, struct grave, node);

		list_del(&g->node);
		g->free_fn(g->p);
	}
}

struct loop *loop_free(struct loop *l)
{
	if (!l)
		return NULL;
	run_graves(l);
	if (l->timer_ev)
		event_free(l->timer_ev);
	if (l->signal_ev)
		event_free(l->signal_ev);
	if (l->base)
		event_base_free(l->base);
	fd_close(l->timer_fd);
	fd_close(l->signal_fd);
	free(l->heap);
	free(l);
	return NULL;
}

uint64_t loop_now_ms(const struct loop *l)
{
	return l->now_ms;
}

uint64_t loop_pass(const struct loop *l)
{
	return l->pass;
}

const struct loop_totals *loop_totals(const struct loop *l)
{
	return &l->totals;
}

void loop_stop(struct loop *l, int code)
{
	if (!l->stopped)
		l->code = code;
	l->stopped = true;
}

/* --- timers --- */

static void heap_place(struct loop *l, size_t pos, struct timer *t)
{
	l->heap[pos] = t;
	t->heap_pos = pos;
}

static void heap_up(struct loop *l, size_t pos, struct timer *t)
{
	while (pos > 1 && l->heap[pos / 2]->at_ms > t->at_ms) {
		heap_place(l, pos, l->heap[pos / 2]);
		pos /= 2;
	}
	heap_place(l, pos, t);
}

static void heap_down(struct loop *l, size_t pos, struct timer *t)
{
	for (;;) {
		size_t child = pos * 2;

		if (child > l->n_timers)
			break;
		if (child < l->n_timers && l->heap[child + 1]->at_ms < l->heap[child]->at_ms)
			child++;
		if (l->heap[child]->at_ms >= t->at_ms)
			break;
		heap_place(l, pos, l->heap[child]);
		pos = child;
	}
	heap_place(l, pos, t);
}

void timer_init(struct timer *t, struct loop *l, timer_fn *fn, void *user)
{
	*t = (struct timer){ .loop = l, .fn = fn, .user = user };
}

void timer_clear(struct timer *t)
{
	struct loop *l = t->loop;
	size_t pos = t->heap_pos;
	struct timer *last;

	if (!pos)
		return;
	last = l->heap[l->n_timers--];
	t->heap_pos = 0;
	if (last == t)
		return;
	if (pos > 1 && l->heap[pos / 2]->at_ms > last->at_ms)
		heap_up(l, pos, last);
	else
		heap_down(l, pos, last);
}

int timer_set(struct timer *t, uint64_t at_ms)
{
	struct loop *l = t->loop;

	if (t->heap_pos) {
		uint64_t old = t->at_ms;

		t->at_ms = at_ms;
		if (at_ms < old)
			heap_up(l, t->heap_pos, t);
		else
			heap_down(l, t->heap_pos, t);
		return 0;
	}
	if (l->n_timers + 1 >= l->heap_cap) {
		size_t cap = l->heap_cap ? l->heap_cap * 2 : 64;
		struct timer **heap = realloc(l->heap, cap * sizeof(struct timer *));

		if (!heap)
			return -ENOMEM;
		l->heap = heap;
		l->heap_cap = cap;
	}
	t->at_ms = at_ms;
	l->n_timers++;
	heap_up(l, l->n_timers, t);
	return 0;
}

static void run_timers(struct loop *l)
{
	size_t budget = l->n_timers;

	while (budget-- && l->n_timers && l->heap[1]->at_ms <= l->now_ms) {
		struct timer *t = l->heap[1];

		timer_clear(t);
		t->fn(t, t->user);
	}
}

/* The timerfd follows the heap's top; set only when the top moved. */
static int arm_timer_fd(struct loop *l)
{
	uint64_t at = l->n_timers ? l->heap[1]->at_ms : 0;
	struct itimerspec its = { 0 };

	if (l->n_timers && !at)
		at = 1;
	if (at == l->timer_fd_at_ms)
		return 0;
	its.it_value.tv_sec = (time_t)(at / 1000);
	its.it_value.tv_nsec = (long)(at % 1000) * 1000000;
	if (timerfd_settime(l->timer_fd, TFD_TIMER_ABSTIME, &its, NULL) < 0)
		return -errno;
	l->timer_fd_at_ms = at;
	l->wanted_ms = MAX(at, l->now_ms);
	return 0;
}

/* --- descriptors --- */

static void on_watch(evutil_socket_t fd, short what, void *user)
{
	struct watch *w = user;
	unsigned ready = (what & EV_READ ? WATCH_READ : 0) | (what & EV_WRITE ? WATCH_WRITE : 0);

	begin_pass(w->loop);
	/* Interest may have changed earlier in this pass. */
	ready &= w->want;
	if (ready)
		w->fn(w, ready, w->user);
}

int watch_init(struct watch *w, struct loop *l, int fd, watch_fn *fn, void *user)
{
	*w = (struct watch){ .loop = l, .fn = fn, .user = user, .fd = fd };
	w->ev = event_new(l->base, fd, 0, on_watch, w);
	return w->ev ? 0 : -ENOMEM;
}

int watch_set(struct watch *w, unsigned want)
{
	short what = EV_PERSIST;

	if (want == w->want)
		return 0;
	if (w->want)
		event_del(w->ev);
	w->want = 0;
	if (!want)
		return 0;
	if (want & WATCH_READ)
		what |= EV_READ;
	if (want & WATCH_WRITE)
		what |= EV_WRITE;
	if (event_assign(w->ev, w->loop->base, w->fd, what, on_watch, w) < 0 ||
	    event_add(w->ev, NULL) < 0)
		return -ENOMEM;
	w->want = want;
	return 0;
}

void watch_fini(struct watch *w)
{
	if (!w->ev)
		return;
	event_free(w->ev);
	w->ev = NULL;
	w->want = 0;
}

/* --- deferred work --- */

void defer_init(struct defer *d, struct loop *l, defer_fn *fn, void *user)
{
	*d = (struct defer){ .loop = l, .queue = &l->deferred, .fn = fn, .user = user };
	list_init(&d->node);
}

void defer_init_pump(struct defer *d, struct loop *l, defer_fn *fn, void *user)
{
	defer_init(d, l, fn, user);
	d->queue = &l->pumps;
}

void defer_init_later(struct defer *d, struct loop *l, defer_fn *fn, void *user)
{
	defer_init(d, l, fn, user);
	d->queue = &l->later;
}

void defer_post(struct defer *d)
{
	if (list_is_empty(&d->node))
		list_add_tail(d->queue, &d->node);
}

void defer_cancel(struct defer *d)
{
	if (d->loop)
		list_del(&d->node);
}

static void run_queue(struct list *queue, unsigned budget)
{
	while (budget-- && !list_is_empty(queue)) {
		struct defer *d = list_entry(queue->next, struct defer, node);

		list_del(&d->node);
		d->fn(d, d->user);
	}
}

static void run_later(struct loop *l)
{
	uint64_t until;

	if (list_is_empty(&l->later))
		return;
	until = clock_boot_us() + LATER_US;
	do
		run_queue(&l->later, 1);
	while (!list_is_empty(&l->later) && clock_boot_us() < until);
}

void loop_bury(struct loop *l, struct grave *g, void (*free_fn)(void *), void *p)
{
	g->free_fn = free_fn;
	g->p = p;
	list_init(&g->node);
	list_add_tail(&l->graves, &g->node);
}

/* --- the pass --- */

int loop_once(struct loop *l, int wait_ms)
{
	bool busy = !list_is_empty(&l->deferred) || !list_is_empty(&l->pumps) ||
		    !list_is_empty(&l->later) || !list_is_empty(&l->graves);
	struct timeval tv = { 0 };
	int r = arm_timer_fd(l), flags = EVLOOP_ONCE;

	if (r < 0)
		return r;
	l->awake = false;
	if (busy || wait_ms == 0) {
		flags |= EVLOOP_NONBLOCK; /* alone it would go on while anything is ready */
	} else if (wait_ms > 0) {
		tv.tv_sec = wait_ms / 1000;
		tv.tv_usec = wait_ms % 1000 * 1000;
		if (event_base_loopexit(l->base, &tv) < 0)
			return -ENOMEM;
	}
	if (event_base_loop(l->base, flags) < 0)
		return -EIO;
	begin_pass(l);
	run_queue(&l->deferred, DEFER_BUDGET);
	run_timers(l);
	run_queue(&l->deferred, DEFER_BUDGET); /* what the timers posted */
	run_queue(&l->pumps, DEFER_BUDGET);
	run_later(l);
	run_graves(l);
	histogram_add(&l->totals.busy, clock_boot_us() - l->began_us);
	return 0;
}

int loop_run(struct loop *l)
{
	while (!l->stopped) {
		int r = loop_once(l, -1);

		if (r < 0)
			return r;
	}
	l->stopped = false;
	return l->code;
}

/* --- signals --- */

static void on_signal_fd(evutil_socket_t fd, short what, void *user)
{
	struct loop *l = user;
	struct signalfd_siginfo si;

	begin_pass(l);
	while (read(fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
		for (unsigned i = 0; i < l->n_handlers; i++)
			if (sigismember(&l->handlers[i].set, (int)si.ssi_signo) == 1)
				l->handlers[i].fn((int)si.ssi_signo, l->handlers[i].user);
}

int loop_signal(struct loop *l, int signo, signal_fn *fn, void *user)
{
	return loop_signals(l, &signo, 1, fn, user);
}

int loop_signals(struct loop *l, const int *signos, size_t n, signal_fn *fn, void *user)
{
	sigset_t set;
	int fd;

	must(l->n_handlers < SIGNAL_HANDLERS_MAX);
	sigemptyset(&set);
	for (size_t i = 0; i < n; i++)
		sigaddset(&set, signos[i]);
	sigorset(&l->signals, &l->signals, &set);
	if (sigprocmask(SIG_BLOCK, &l->signals, NULL) < 0)
		return -errno;
	fd = signalfd(l->signal_fd, &l->signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	if (l->signal_fd < 0) {
		l->signal_fd = fd;
		l->signal_ev = event_new(l->base, fd, EV_READ | EV_PERSIST, on_signal_fd, l);
		if (!l->signal_ev || event_add(l->signal_ev, NULL) < 0)
			return -ENOMEM;
	}
	l->handlers[l->n_handlers].set = set;
	l->handlers[l->n_handlers].fn = fn;
	l->handlers[l->n_handlers].user = user;
	l->n_handlers++;
	return 0;
}
