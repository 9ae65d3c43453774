/* SPDX-License-Identifier: MIT */
/*
 * Loop and clock over simulated time. What happens outside is one queue in order of time; a due timer
 * comes after what arrived before it, as in the real loop's pass.
 */
#include "daemon/common/ev/loop.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "tests/lib/sim/host.h"

#define SPINS_MAX 20000u	/* steps without any time passing */

struct loop {
	struct timer **timers;
	struct watch **watches;
	struct pollfd *polled;
	size_t n_timers, max_timers, n_watches, max_watches, turn;
	struct list defers, pumps, later, graves;
	uint64_t pass;
};

#define BEGINS { .now_ms = 1000000, .wall_offset_ms = 1700000000000 }

static struct sim none = BEGINS;
struct sim *sim = &none;
static struct loop *loop;	/* of the run under way */
static uint64_t stepped_ms;
static unsigned idle_steps;

/* --- what a program may have of its own --- */

__attribute__((weak)) void sim_trace(const char *fmt, ...)
{
	va_list ap;

	if (!getenv("SIM_TRACE"))
		return;
	fprintf(stderr, "%9.3f ", (double)sim->now_ms / 1000);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

__attribute__((weak)) void sim_fail(const char *invariant, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "VIOLATION of %s: ", invariant);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

__attribute__((weak)) bool sim_seam(const char *name)
{
	return false;
}

/* --- time --- */

void sim_begin(struct sim *s)
{
	*s = (struct sim)BEGINS;
	sim = s;
	stepped_ms = idle_steps = 0;
}

uint64_t clock_boot_ms(void)
{
	return sim->now_ms - sim->booted_at_ms;
}

uint64_t clock_boot_us(void)
{
	return clock_boot_ms() * 1000;
}

int64_t clock_wall_ms(void)
{
	return (int64_t)sim->now_ms + sim->wall_offset_ms;
}

/* --- loop.h --- */

int loop_new(struct loop **ret)
{
	struct loop *l = calloc(1, sizeof(*l));

	must(l);
	list_init(&l->defers);
	list_init(&l->pumps);
	list_init(&l->later);
	list_init(&l->graves);
	must(!loop);
	*ret = loop = l;
	return 0;
}

static void bury_all(struct loop *l)
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
	bury_all(l);
	/* What is left would be called with its memory gone. */
	must(!l->n_timers && !l->n_watches && list_is_empty(&l->defers) && list_is_empty(&l->pumps) && list_is_empty(&l->later));
	free(l->timers);
	free(l->watches);
	free(l->polled);
	free(l);
	loop = NULL;
	return NULL;
}

uint64_t loop_now_ms(const struct loop *l)
{
	return clock_boot_ms();
}

uint64_t loop_pass(const struct loop *l)
{
	return l->pass;
}

int watch_init(struct watch *w, struct loop *l, int fd, watch_fn *fn, void *user)
{
	*w = (struct watch){ .loop = l, .fd = fd, .fn = fn, .user = user };
	if (l->n_watches == l->max_watches) {
		l->max_watches = l->max_watches * 2 + 64;
		l->watches = realloc(l->watches, l->max_watches * sizeof(struct watch *));
		l->polled = realloc(l->polled, l->max_watches * sizeof(struct pollfd));
		must(l->watches && l->polled);
	}
	l->watches[l->n_watches++] = w;
	return 0;
}

int watch_set(struct watch *w, unsigned want)
{
	w->want = want;
	return 0;
}

void watch_fini(struct watch *w)
{
	struct loop *l = w->loop;

	if (!l)
		return;
	w->loop = NULL;
	for (size_t i = 0; i < l->n_watches; i++)
		if (l->watches[i] == w)
			l->watches[i--] = l->watches[--l->n_watches];
}

void timer_init(struct timer *t, struct loop *l, timer_fn *fn, void *user)
{
	*t = (struct timer){ .loop = l, .fn = fn, .user = user };
}

int timer_set(struct timer *t, uint64_t at_ms)
{
	struct loop *l = t->loop;

	(void)sim_seam("timer");
	t->at_ms = at_ms;
	if (t->heap_pos)
		return 0;
	if (l->n_timers == l->max_timers) {
		l->max_timers = l->max_timers * 2 + 64;
		l->timers = realloc(l->timers, l->max_timers * sizeof(struct timer *));
		must(l->timers);
	}
	l->timers[l->n_timers++] = t;
	t->heap_pos = l->n_timers;
	return 0;
}

void timer_clear(struct timer *t)
{
	struct loop *l = t->loop;

	if (!t->heap_pos)
		return;
	l->timers[t->heap_pos - 1] = l->timers[--l->n_timers];
	l->timers[t->heap_pos - 1]->heap_pos = t->heap_pos;
	t->heap_pos = 0;
}

static void post_to(struct defer *d, struct loop *l, struct list *queue, defer_fn *fn, void *user)
{
	*d = (struct defer){ .loop = l, .queue = queue, .fn = fn, .user = user };
	list_init(&d->node);
}

void defer_init(struct defer *d, struct loop *l, defer_fn *fn, void *user)
{
	post_to(d, l, &l->defers, fn, user);
}

void defer_init_pump(struct defer *d, struct loop *l, defer_fn *fn, void *user)
{
	post_to(d, l, &l->pumps, fn, user);
}

void defer_init_later(struct defer *d, struct loop *l, defer_fn *fn, void *user)
{
	post_to(d, l, &l->later, fn, user);
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

void loop_bury(struct loop *l, struct grave *g, void (*free_fn)(void *), void *p)
{
	g->free_fn = free_fn;
	g->p = p;
	list_add_tail(&l->graves, &g->node);
}

/* --- what happens outside --- */

struct event {
	uint64_t at_ms, order;
	sim_event_fn *fn;
	void *arg;
};

static struct event *queue;
static size_t n_queue, max_queue;
static uint64_t order;
static bool watches_due;	/* somebody may have died */

static bool before(const struct event *a, const struct event *b)
{
	return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->order < b->order;
}

void sim_at(uint64_t at_ms, sim_event_fn *fn, void *arg)
{
	struct event e = { MAX(at_ms, sim->now_ms), order++, fn, arg };
	size_t i = n_queue++;

	if (n_queue > max_queue) {
		max_queue = max_queue * 2 + 256;
		queue = realloc(queue, max_queue * sizeof(*queue));
		must(queue);
	}
	for (; i && before(&e, &queue[(i - 1) / 2]); i = (i - 1) / 2)
		queue[i] = queue[(i - 1) / 2];
	queue[i] = e;
}

static struct event pop(void)
{
	struct event first = queue[0], last = queue[--n_queue];
	size_t i = 0, c;

	while ((c = 2 * i + 1) < n_queue) {
		if (c + 1 < n_queue && before(&queue[c + 1], &queue[c]))
			c++;
		if (before(&last, &queue[c]))
			break;
		queue[i] = queue[c];
		i = c;
	}
	if (n_queue)
		queue[i] = last;
	return first;
}

/* Their objects are freed by the functions themselves: they are told that the world ends. */
void sim_end(void)
{
	sim->ending = true;
	while (n_queue) {
		struct event e = pop();

		e.fn(e.arg);
	}
	free(queue);
	queue = NULL;
	max_queue = 0;
	order = 0;
	watches_due = false;
	sim = &none;
}

/* --- one step --- */

static bool run_one(struct list *q)
{
	struct defer *d;

	if (list_is_empty(q))
		return false;
	d = list_entry(q->next, struct defer, node);
	list_del(&d->node);
	d->fn(d, d->user);
	return true;
}

/* The rest of a pass, after its first callback. */
static void settle_pass(struct loop *l)
{
	unsigned n = 0;

	while (!sim->dead && run_one(&l->defers))
		if (++n > SPINS_MAX)
			sim_fail("I23", "deferred work goes round without an end");
	while (!sim->dead && run_one(&l->pumps))
		;
	/* One in a pass: whatever comes now goes before the next. */
	if (!sim->dead)
		(void)run_one(&l->later);
	bury_all(l);
	l->pass++;
}

static struct timer *first_timer(struct loop *l)
{
	struct timer *best = NULL;

	for (size_t i = 0; i < l->n_timers; i++)
		if (!best || l->timers[i]->at_ms < best->at_ms)
			best = l->timers[i];
	return best;
}

/* What of it is wanted and there; an end or an error is both. */
static unsigned ready(const struct watch *w, int got)
{
	bool over = got & (POLLHUP | POLLERR);

	return w->want & ((over || got & POLLIN ? WATCH_READ : 0) |
			  (over || got & POLLOUT ? WATCH_WRITE : 0));
}

/* Serves one that is ready, the first of them from a place on. */
static bool run_watch(struct loop *l, size_t from)
{
	for (size_t i = 0; i < l->n_watches; i++) {
		unsigned want = l->watches[i]->want;

		l->polled[i].fd = want ? l->watches[i]->fd : -1;
		l->polled[i].events =
			(short)((want & WATCH_READ ? POLLIN : 0) | (want & WATCH_WRITE ? POLLOUT : 0));
	}
	if (poll(l->polled, l->n_watches, 0) <= 0)
		return false;
	for (size_t k = 0; k < l->n_watches; k++) {
		size_t i = (from + k) % l->n_watches;
		struct watch *w = l->watches[i];
		unsigned what = ready(w, l->polled[i].revents);

		if (!what)
			continue;
		l->turn = i + 1;
		w->fn(w, what, w->user);
		return true;
	}
	return false;
}

bool sim_step(uint64_t until_ms)
{
	struct loop *l = loop;
	uint64_t at = until_ms;
	struct timer *t = l && !sim->dead ? first_timer(l) : NULL;
	uint64_t timer_at = t ? t->at_ms + sim->booted_at_ms : UINT64_MAX;
	bool later = l && !sim->dead && !list_is_empty(&l->later);

	sim->steps++;
	idle_steps = sim->now_ms == stepped_ms ? idle_steps + 1 : 0;
	stepped_ms = sim->now_ms;
	if (idle_steps > SPINS_MAX)
		sim_fail("I23", "it goes round without any time passing");
	if (l && (!list_is_empty(&l->defers) || !list_is_empty(&l->pumps))) {
		settle_pass(l);
		return true;
	}
	if (later)
		at = MIN(at, sim->now_ms);
	if (n_queue && queue[0].at_ms <= at && queue[0].at_ms <= MAX(timer_at, sim->now_ms)) {
		struct event e = pop();

		sim->now_ms = MAX(sim->now_ms, e.at_ms);
		e.fn(e.arg);
		watches_due = true;
	} else if (l && !sim->dead && watches_due) {
		watches_due = run_watch(l, 0);
	} else if (t && timer_at <= at) {
		sim->now_ms = MAX(sim->now_ms, timer_at);
		timer_clear(t);
		t->fn(t, t->user);
	} else if (!later) {
		sim->now_ms = MAX(sim->now_ms, until_ms);
		return false;
	}
	if (loop)
		settle_pass(loop);
	return true;
}

/* One pass, and a wait that ends with the first thing that happens. */
int loop_once(struct loop *l, int wait_ms)
{
	uint64_t wait = wait_ms < 0 ? UINT32_MAX : (uint64_t)wait_ms;

	must(l == loop);
	if (!list_is_empty(&l->defers) || !list_is_empty(&l->pumps) || run_watch(l, l->turn) || !list_is_empty(&l->later))
		settle_pass(l);
	else
		(void)sim_step(sim->now_ms + wait);
	return 0;
}
