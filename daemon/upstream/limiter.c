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

/* --- a route's bucket --- */

static int64_t tokens_now(const struct limiter_route *r, uint64_t now_ms)
{
	uint64_t span = MIN(now_ms - MIN(r->filled_ms, now_ms), 1000u * 1000 * 1000);
	int64_t more = (int64_t)(span * r->per_s_milli / 1000);

	return MIN(r->tokens_milli + more, (int64_t)r->burst * 1000);
}

/* When there is a token; <= now_ms: now. */
static uint64_t token_at_ms(const struct limiter_route *r, uint64_t now_ms)
{
	int64_t lack;

	if (!r->burst)
		return now_ms;
	lack = 1000 - tokens_now(r, now_ms);
	if (lack <= 0)
		return now_ms;
	return MIN(now_ms + ((uint64_t)lack * 1000 + r->per_s_milli - 1) / r->per_s_milli,
		   MAX(now_ms, r->filled_ms + LIMITER_WAIT_MAX_MS));
}

static void take_token(struct limiter_route *r, uint64_t now_ms)
{
	if (!r->burst)
		return;
	r->tokens_milli = tokens_now(r, now_ms) - 1000;
	r->filled_ms = now_ms;
}

void limiter_budget(struct limiter *l, unsigned route, uint32_t burst, uint32_t remaining, uint32_t reset_s,
		    uint64_t now_ms)
{
	struct limiter_route *r = &l->route[route];
	uint32_t others = r->in_flight ? r->in_flight - 1 : 0;
	uint32_t rate;

	must(route < LIMITER_ROUTES);
	if (!burst || burst > 1000000 || remaining > burst || reset_s > 86400) {
		r->burst = 0;	/* nothing to go by */
		return;
	}
	/* The reset is rounded up, so this is never more than the cloud gives; the best of all is kept. */
	rate = MAX((burst - remaining) * 1000 / MAX(reset_s, 1u), 1u);
	r->per_s_milli = r->burst == burst ? MAX(rate, r->per_s_milli) : rate;
	r->burst = burst;
	r->tokens_milli = ((int64_t)remaining - others) * 1000;	/* those may not have been counted yet */
	r->filled_ms = now_ms;
}

uint64_t limiter_route_at_ms(const struct limiter *l, unsigned route, uint64_t now_ms)
{
	const struct limiter_route *r = &l->route[route];

	must(route < LIMITER_ROUTES);
	return MAX(r->blocked_until_ms, token_at_ms(r, now_ms));
}

bool limiter_rate(const struct limiter *l, unsigned route, uint64_t now_ms, uint32_t *ret_per_s_milli,
		  uint32_t *ret_tokens)
{
	const struct limiter_route *r = &l->route[route];

	must(route < LIMITER_ROUTES);
	*ret_tokens = r->burst ? (uint32_t)(MAX(tokens_now(r, now_ms), (int64_t)0) / 1000) : 0;
	*ret_per_s_milli = r->burst ? r->per_s_milli : r->passed_per_s_milli;
	return *ret_per_s_milli != 0;
}

/* Between the ends of two refusals so many passed; the best of all is kept. */
static void measure(struct limiter_route *r, uint64_t until_ms)
{
	uint64_t span = MAX(until_ms - MIN(r->passed_since_ms, until_ms), (uint64_t)1000);

	if (r->passed_since_ms && r->passed)
		r->passed_per_s_milli = MAX(r->passed_per_s_milli,
					    (uint32_t)MIN((uint64_t)r->passed * 1000000 / span, (uint64_t)1000000));
	r->passed = 0;
	r->passed_since_ms = until_ms;
}

/* --- tickets --- */

enum limiter_result limiter_enter(struct limiter *l, struct limiter_ticket *t, uint64_t deadline_ms,
				  uint64_t now_ms, uint32_t *ret_wait_ms)
{
	uint64_t until;

	must(t->route < LIMITER_ROUTES && t->state == LIMITER_IDLE);
	until = limiter_route_at_ms(l, t->route, now_ms);
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
	return limiter_route_at_ms(l, t->route, now_ms) <= now_ms &&
	       l->route[t->route].in_flight < l->route[t->route].window;
}

static bool before(const struct limiter_ticket *a, const struct limiter_ticket *b)
{
	if (a->background != b->background)
		return b->background;
	return a->round < b->round;	/* equal: the one that came first */
}

/* The round is that of whoever waits longest: one that went because its route is free does not end the
 * round of those whose route is not. */
static uint64_t lowest_round(const struct limiter *l, uint64_t round)
{
	list_for_each(n, &l->queue) {
		const struct limiter_ticket *t = list_entry(n, struct limiter_ticket, node);

		if (!t->background)
			round = MIN(round, t->round);
	}
	return round;
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
	take_token(&l->route[best->route], now_ms);
	if (!best->background)
		l->round = MAX(l->round, lowest_round(l, best->round));
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
			at = MIN(at, MAX(limiter_route_at_ms(l, t->route, now_ms), now_ms));
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
		l->route[t->route].passed += ok;
		if (ok)
			l->route[t->route].window =
				MIN(l->route[t->route].window * 2, l->max_in_flight);
	}
	t->state = LIMITER_IDLE;
}

void limiter_block(struct limiter *l, unsigned route, uint32_t for_ms, uint64_t now_ms)
{
	must(route < LIMITER_ROUTES);
	for_ms = MIN(for_ms, LIMITER_WAIT_MAX_MS);
	if (l->route[route].blocked_until_ms <= now_ms)
		measure(&l->route[route], now_ms + for_ms);
	l->route[route].blocked_until_ms = MAX(l->route[route].blocked_until_ms, now_ms + for_ms);
	l->route[route].window = 1;
}

uint64_t limiter_blocked_until_ms(const struct limiter *l, uint64_t now_ms)
{
	uint64_t at = 0;

	for (unsigned i = 0; i < LIMITER_ROUTES; i++)
		at = MAX(at, limiter_route_at_ms(l, i, now_ms));
	return at > now_ms ? at : 0;
}
