/* SPDX-License-Identifier: MIT */
/*
 * The event loop. One pass: (1) libevent once, (2) deferred work until none is left or the budget
 * is used up, (3) due timers, (4) the pump hooks (writes of the whole pass leave together), (5) for half a
 * millisecond, but at least one, of what nobody waits for, (6) the graveyard. A callback may free its own object only by
 * loop_bury(); memory goes in (6), so nothing is freed while its callback may still be on the stack.
 * Timers are CLOCK_BOOTTIME deadlines in one heap on one timerfd: they go on in suspend.
 * Everything here is for the loop's own thread, except a worker's run functions.
 */
#ifndef AB_DAEMON_COMMON_EV_LOOP_H
#define AB_DAEMON_COMMON_EV_LOOP_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/common/obs/histogram.h"
#include "proto/base/cc.h"
#include "proto/base/list.h"

struct loop;
struct event;

must_check int loop_new(struct loop **ret);
/* Everything registered must be gone. NULL is fine; returns NULL. */
struct loop *loop_free(struct loop *l);
/* Runs until loop_stop(); returns its code, or -errno when the loop itself failed. A stop that came before it counts. */
int loop_run(struct loop *l);
void loop_stop(struct loop *l, int code);
/* One pass, waiting at most wait_ms (-1 = until something happens): for tests and foreign loops. */
must_check int loop_once(struct loop *l, int wait_ms);
/* CLOCK_BOOTTIME at the start of this pass. */
uint64_t loop_now_ms(const struct loop *l);
uint64_t loop_pass(const struct loop *l);	/* number of this pass */

struct loop_totals {
	struct histogram busy;		/* passes, by their length: whoever comes meanwhile waits so long */
	struct histogram late;		/* wake-ups by a timer, by how much later than wanted they came */
};
const struct loop_totals *loop_totals(const struct loop *l);

/* --- descriptors: level-triggered, embedded in their owner --- */

#define WATCH_READ  1u
#define WATCH_WRITE 2u

struct watch;
typedef void watch_fn(struct watch *w, unsigned ready, void *user);

struct watch {
	struct loop *loop;
	struct event *ev;
	watch_fn *fn;
	void *user;
	int fd;
	unsigned want;
};

/* The fd stays the caller's. Starts without interest. */
must_check int watch_init(struct watch *w, struct loop *l, int fd, watch_fn *fn, void *user);
must_check int watch_set(struct watch *w, unsigned want);
/* Idempotent, also on a zeroed one; after it fn is never called again. Before closing the fd. */
void watch_fini(struct watch *w);

/* --- timers --- */

struct timer;
typedef void timer_fn(struct timer *t, void *user);

struct timer {
	struct loop *loop;
	timer_fn *fn;
	void *user;
	uint64_t at_ms;
	size_t heap_pos;	/* 0 = not armed */
};

void timer_init(struct timer *t, struct loop *l, timer_fn *fn, void *user);
/* Arms or moves it to an absolute BOOTTIME moment; fires once. -ENOMEM leaves it as it was. */
must_check int timer_set(struct timer *t, uint64_t at_ms);
void timer_clear(struct timer *t);	/* also on a zeroed one */

static inline bool timer_is_set(const struct timer *t)
{
	return t->heap_pos != 0;
}

/* --- deferred work: runs after the callback that posted it, in the same pass --- */

struct defer;
typedef void defer_fn(struct defer *d, void *user);

struct defer {
	struct loop *loop;
	struct list *queue;
	defer_fn *fn;
	void *user;
	struct list node;
};

void defer_init(struct defer *d, struct loop *l, defer_fn *fn, void *user);
/* The same, but run in stage 4 of the pass it was posted in: connections flush there. */
void defer_init_pump(struct defer *d, struct loop *l, defer_fn *fn, void *user);
/* The same, but run in stage 5 of this pass or a later one: what follows an answer and need not be done before it, or before
 * whatever else comes meanwhile. */
void defer_init_later(struct defer *d, struct loop *l, defer_fn *fn, void *user);
void defer_post(struct defer *d);	/* posting twice runs it once */
void defer_cancel(struct defer *d);	/* also on a zeroed one */

/* Calls free_fn(p) at the end of the pass. Never fails: the node is the caller's, inside p. */
struct grave {
	struct list node;
	void (*free_fn)(void *p);
	void *p;
};
void loop_bury(struct loop *l, struct grave *g, void (*free_fn)(void *), void *p);

/* --- signals, by signalfd; blocked in this thread and in those made later --- */

typedef void signal_fn(int signo, void *user);
must_check int loop_signal(struct loop *l, int signo, signal_fn *fn, void *user);
/* One handler for n of them. */
must_check int loop_signals(struct loop *l, const int *signos, size_t n, signal_fn *fn, void *user);

#endif
