/* SPDX-License-Identifier: MIT */
/*
 * Loop, clock and the kernel's answers about processes, over simulated time. What happens outside
 * (messages, people, the disk) is one queue in order of time; a due timer comes after what arrived
 * before it, as in the real loop's pass.
 */
#include "daemon/common/ev/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "tests/sim/sim.h"

#define SPINS_MAX 20000u

struct loop {
	struct timer **timers;
	size_t n_timers, max_timers;
	struct watch *watches[64];
	size_t n_watches;
	struct list defers, pumps, graves;
};

/* --- time --- */

uint64_t sim_boot_now(void)
{
	return W->now_ms - W->boot_base_ms;
}

uint64_t clock_boot_ms(void)
{
	return sim_boot_now();
}

uint64_t clock_boot_us(void)
{
	return sim_boot_now() * 1000;
}

int64_t clock_wall_ms(void)
{
	return (int64_t)W->now_ms + W->wall_offset_ms;
}

/* --- chance and processes: --wrap of the few calls that ask the kernel --- */

void __wrap_rng_system(void *p, size_t n);
void __wrap_rng_id(char *ret, size_t n);
int __wrap_fd_pidfd(pid_t pid, int *ret);
int __wrap_fd_read_file(int dir_fd, const char *path, size_t max, char **ret, size_t *ret_len);

void __wrap_rng_system(void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((uint8_t *)p)[i] = (uint8_t)(W ? rng_u64(&W->sys_rng) : i);
}

void __wrap_rng_id(char *ret, size_t n)
{
	static const char set[] = "abcdefghijklmnopqrstuvwxyz0123456789";

	for (size_t i = 0; i < n; i++)
		ret[i] = set[rng_below(&W->sys_rng, 36)];
	ret[n] = 0;
}

static struct sim_proc *proc_of(pid_t pid)
{
	for (unsigned i = 0; i < SIM_PROCS; i++)
		if (W->procs[i].pid == pid && W->procs[i].alive)
			return &W->procs[i];
	return NULL;
}

int __wrap_fd_pidfd(pid_t pid, int *ret)
{
	struct sim_proc *p = proc_of(pid);

	if (pid == getpid())
		*ret = eventfd(0, EFD_CLOEXEC);
	else if (p)
		*ret = fcntl(p->fd, F_DUPFD_CLOEXEC, 3);
	else
		return -ESRCH;
	return *ret < 0 ? -errno : 0;
}

int __wrap_fd_read_file(int dir_fd, const char *path, size_t max, char **ret, size_t *ret_len)
{
	struct sim_proc *p;
	int pid = 0;

	if (str_eq(path, "/proc/sys/kernel/random/boot_id")) {
		*ret = str_printf("%s\n", W->boot_id);
		return *ret ? 0 : -ENOMEM;
	}
	if (sscanf(path, "/proc/%d/stat", &pid) != 1)
		return -ENOENT;
	p = proc_of(pid);
	if (!p && pid != getpid())
		return -ENOENT;
	*ret = str_printf("%d (agent) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %llu 0 0", pid,
			  p ? (unsigned long long)p->start_time : 1ull);
	return *ret ? 0 : -ENOMEM;
}

/* --- loop.h --- */

int loop_new(struct loop **ret)
{
	struct loop *l = calloc(1, sizeof(*l));

	must(l);
	list_init(&l->defers);
	list_init(&l->pumps);
	list_init(&l->graves);
	*ret = l;
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
	must(!l->n_timers && !l->n_watches && list_is_empty(&l->defers) && list_is_empty(&l->pumps));
	free(l->timers);
	free(l);
	return NULL;
}

uint64_t loop_now_ms(const struct loop *l)
{
	return sim_boot_now();
}

int watch_init(struct watch *w, struct loop *l, int fd, watch_fn *fn, void *user)
{
	*w = (struct watch){ .loop = l, .fd = fd, .fn = fn, .user = user };
	must(l->n_watches < ARRAY_SIZE(l->watches));
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
	struct event e = { MAX(at_ms, W->now_ms), order++, fn, arg };
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
void sim_events_drop(void)
{
	while (n_queue) {
		struct event e = pop();

		e.fn(e.arg);
	}
	free(queue);
	queue = NULL;
	max_queue = 0;
	order = 0;
	watches_due = false;
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

	while (!W->dead && run_one(&l->defers))
		if (++n > SPINS_MAX)
			sim_fail("I23", "deferred work goes round without an end");
	while (!W->dead && run_one(&l->pumps))
		;
	bury_all(l);
}

static struct timer *first_timer(struct loop *l)
{
	struct timer *best = NULL;

	for (size_t i = 0; i < l->n_timers; i++)
		if (!best || l->timers[i]->at_ms < best->at_ms)
			best = l->timers[i];
	return best;
}

static bool run_watch(struct loop *l)
{
	for (size_t i = 0; i < l->n_watches; i++) {
		struct watch *w = l->watches[i];
		struct pollfd p = { .fd = w->fd, .events = POLLIN };

		if (w->want && poll(&p, 1, 0) == 1) {
			w->fn(w, WATCH_READ, w->user);
			return true;
		}
	}
	return false;
}

bool sim_step(uint64_t until_ms)
{
	struct loop *l = W->loop;
	uint64_t at = until_ms;
	struct timer *t = l && !W->dead ? first_timer(l) : NULL;
	uint64_t timer_at = t ? t->at_ms + W->boot_base_ms : UINT64_MAX;

	W->steps++;
	W->idle_steps = W->now_ms == W->stepped_ms ? W->idle_steps + 1 : 0;
	W->stepped_ms = W->now_ms;
	if (W->idle_steps > SPINS_MAX)
		sim_fail("I23", "it goes round without any time passing");
	if (l && !list_is_empty(&l->defers)) {
		settle_pass(l);
		return true;
	}
	if (n_queue && queue[0].at_ms <= at && queue[0].at_ms <= MAX(timer_at, W->now_ms)) {
		struct event e = pop();

		W->now_ms = MAX(W->now_ms, e.at_ms);
		e.fn(e.arg);
		watches_due = true;
	} else if (l && !W->dead && watches_due) {
		watches_due = run_watch(l);
	} else if (t && timer_at <= at) {
		W->now_ms = MAX(W->now_ms, timer_at);
		timer_clear(t);
		t->fn(t, t->user);
	} else {
		W->now_ms = MAX(W->now_ms, until_ms);
		return false;
	}
	if (W->loop)
		settle_pass(W->loop);
	return true;
}
