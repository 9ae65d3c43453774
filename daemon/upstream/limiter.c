/* SPDX-License-Identifier: MIT */
#include "daemon/upstream/limiter.h"

#include "proto/base/must.h"

void limiter_init(struct limiter *l, uint32_t max_in_flight)
{
	must(max_in_flight > 0);
	*l = (struct limiter){ .max_in_flight = max_in_flight };
	list_init(&l->queue);
	for (unsigned i = 0; i < LIMITER_ROUTES; i++)
		l->route[i].window = max_in_flight;
}

enum limiter_result limiter_enter(struct limiter *l, struct limiter_ticket *t, uint64_t deadline_ms,
				  uint64_t now_ms, uint32_t *ret_wait_ms)
{
	uint64_t until;

	must(t->route < LIMITER_ROUTES && t->state == LIMITER_IDLE);
	until = l->route[t->route].blocked_until_ms;
	if (deadline_ms && until > now_ms && until >= deadline_ms) {
		*ret_wait_ms = (uint32_t)MIN(until - now_ms, UINT32_MAX);
		return LIMITER_LATE;
	}
	if (l->n_queued >= LIMITER_QUEUE_MAX)
		return LIMITER_FULL;

	/* Each uid's tickets get ascending rounds from the current one on: whoever has few waiting is
	 * served as often as whoever has many. */
	t->round = l->round;
	list_for_each(n, &l->queue) {
		const struct limiter_ticket *q = list_entry(n, struct limiter_ticket, node);

		if (q->uid == t->uid && q->round >= t->round)
			t->round = q->round + 1;
	}
	list_add_tail(&l->queue, &t->node);
	l->n_queued++;
	t->state = LIMITER_QUEUED;
	return LIMITER_OK;
}

static bool may_go(const struct limiter *l, const struct limiter_ticket *t, uint64_t now_ms)
{
	return l->route[t->route].blocked_until_ms <= now_ms &&
	       l->route[t->route].in_flight < l->route[t->route].window;
}

static bool before(const struct limiter_ticket *a, const struct limiter_ticket *b)
{
	if (a->background != b->background)
		return b->background;
	return a->round < b->round;	/* equal: the one that came first */
}

struct limiter_ticket *limiter_next(struct limiter *l, uint64_t now_ms)
{
	struct limiter_ticket *best = NULL;

	if (l->in_flight >= l->max_in_flight)
		return NULL;
	list_for_each(n, &l->queue) {
		struct limiter_ticket *t = list_entry(n, struct limiter_ticket, node);

		if (may_go(l, t, now_ms) && (!best || before(t, best)))
			best = t;
	}
	if (!best)
		return NULL;
	list_del(&best->node);
	l->n_queued--;
	l->in_flight++;
	l->route[best->route].in_flight++;
	if (!best->background)
		l->round = MAX(l->round, best->round);
	best->state = LIMITER_RUNNING;
	return best;
}

uint64_t limiter_wake_ms(const struct limiter *l, uint64_t now_ms)
{
	uint64_t at = UINT64_MAX;

	if (l->in_flight >= l->max_in_flight)
		return at;
	list_for_each(n, &l->queue) {
		const struct limiter_ticket *t = list_entry(n, struct limiter_ticket, node);

		if (l->route[t->route].in_flight < l->route[t->route].window)
			at = MIN(at, MAX(l->route[t->route].blocked_until_ms, now_ms));
	}
	return at;
}

void limiter_leave(struct limiter *l, struct limiter_ticket *t, bool ok)
{
	if (t->state == LIMITER_QUEUED) {
		list_del(&t->node);
		l->n_queued--;
	} else if (t->state == LIMITER_RUNNING) {
		l->in_flight--;
		l->route[t->route].in_flight--;
		if (ok)
			l->route[t->route].window =
				MIN(l->route[t->route].window * 2, l->max_in_flight);
	}
	t->state = LIMITER_IDLE;
}

void limiter_block(struct limiter *l, unsigned route, uint32_t for_ms, uint64_t now_ms)
{
	must(route < LIMITER_ROUTES);
	l->route[route].blocked_until_ms = MAX(l->route[route].blocked_until_ms, now_ms + for_ms);
	l->route[route].window = 1;
}

uint64_t limiter_blocked_until_ms(const struct limiter *l, uint64_t now_ms)
{
	uint64_t at = 0;

	for (unsigned i = 0; i < LIMITER_ROUTES; i++)
		if (l->route[i].blocked_until_ms > now_ms)
			at = MAX(at, l->route[i].blocked_until_ms);
	return at;
}
