/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/rules/spans.h"

#include "proto/base/cc.h"
#include "proto/base/must.h"

#define SPANS_RESERVE 5u	/* extensions that the budget gives in a span for each sandbox: 5/2 that are due, and as many spare */
#define SPANS_LEAD_S  2u	/* an extension has to be sent so long before the end */

static uint32_t rate_of(const struct spans_budget *b)
{
	return MAX(b->is_told ? b->per_s_milli : SPANS_ASSUMED_PER_S_MILLI, 1u);
}

uint32_t spans_wanted_s(uint32_t kept, const struct spans_budget *b)
{
	uint64_t s = (uint64_t)kept * SPANS_RESERVE * 1000 / rate_of(b);

	return (uint32_t)MIN(s, (uint64_t)SPANS_MAX_S);
}

uint32_t spans_most(const struct spans_budget *b)
{
	uint64_t n = (uint64_t)SPANS_MAX_S * rate_of(b) / (SPANS_RESERVE * 1000);

	return (uint32_t)MIN(MAX(n, 1u), (uint64_t)UINT32_MAX);
}

uint32_t spans_parallel(const struct spans_budget *b)
{
	if (!b->is_told)
		return SPANS_PARALLEL_MAX;
	return MIN(MAX(rate_of(b) / 500, 2u), SPANS_PARALLEL_MAX);
}

static uint32_t second_of(int64_t left_ms)
{
	return (uint32_t)MIN(MAX(left_ms, (int64_t)0) / 1000, (int64_t)SPANS_MAX_S);
}

void spans_add(struct spans_ends *e, int64_t left_ms)
{
	e->kept++;
	e->at[second_of(left_ms)]++;
}

/* How many extensions the budget gives until this second; a tenth is left for repeats of failed ones. */
static uint64_t given_by(uint32_t second, const struct spans_budget *b)
{
	uint64_t s = second - MIN(second, SPANS_LEAD_S);

	return b->tokens + s * rate_of(b) * 9 / 10000;
}

/* The last second, from `from` on, by which one more extension is too many; -1 = none. Earlier ends are extended first anyway. */
static int64_t last_misfit(const struct spans_ends *e, uint32_t from, const struct spans_budget *b)
{
	uint64_t need = 0;
	int64_t last = -1;

	for (uint32_t s = 0; s < SPANS_MAX_S; s++) {
		need += e->at[s];
		if (s >= from && need + 1 > given_by(s, b))
			last = s;
	}
	return last;
}

bool spans_fit(const struct spans_ends *e, int64_t left_ms, const struct spans_budget *b)
{
	return !b->is_told || last_misfit(e, second_of(left_ms), b) < 0;
}

uint32_t spans_fitting_s(const struct spans_ends *e, int64_t left_ms, const struct spans_budget *b)
{
	int64_t last = b->is_told ? last_misfit(e, second_of(left_ms), b) : -1;

	return last + 1 < (int64_t)SPANS_MAX_S ? (uint32_t)MAX(last + 1, (int64_t)second_of(left_ms)) : 0;
}

/* --- the book --- */

static struct spans_end *end_of(const struct tree_node *n)
{
	return container_of((struct tree_node *)n, struct spans_end, far);
}

/* Ends in the same second have any order. */
static int by_end(const struct tree_node *a, const struct tree_node *b)
{
	return end_of(a)->at_s < end_of(b)->at_s ? -1 : 1;
}

static uint32_t *ring_at(struct spans_book *k, int64_t at_s)
{
	return &k->ring[(uint64_t)at_s % SPANS_RING];
}

static void enter(struct spans_book *k, struct spans_end *e)
{
	if (e->at_s < k->from_s)
		k->past++;
	else if (e->at_s < k->from_s + SPANS_RING)
		++*ring_at(k, e->at_s);
	else
		tree_insert(&k->far, &e->far, by_end);
}

static void leave(struct spans_book *k, struct spans_end *e)
{
	if (tree_has(&e->far))
		tree_del(&k->far, &e->far);
	else if (e->at_s < k->from_s)
		k->past--;
	else
		--*ring_at(k, e->at_s);
}

void spans_book_put(struct spans_book *k, struct spans_end *e, int64_t at_s)
{
	at_s = MAX(at_s, (int64_t)0);
	if (e->is_in && e->at_s == at_s)
		return;
	spans_book_del(k, e);
	*e = (struct spans_end){ .is_in = true, .at_s = at_s };
	enter(k, e);
	k->kept++;
}

void spans_book_del(struct spans_book *k, struct spans_end *e)
{
	if (!e->is_in)
		return;
	leave(k, e);
	e->is_in = false;
	k->kept--;
}

void spans_book_reset(struct spans_book *k, int64_t now_s)
{
	must(!k->kept);
	*k = (struct spans_book){ .from_s = now_s };
}

/* Moves the ring to now_s: ends before it are counted in `past`, and ends of `far` come into the ring. */
static void move_to(struct spans_book *k, int64_t now_s)
{
	int64_t until = MIN(now_s, k->from_s + (int64_t)SPANS_RING);
	struct tree_node *n;

	for (int64_t s = k->from_s; s < until; s++) {
		k->past += *ring_at(k, s);
		*ring_at(k, s) = 0;
	}
	k->from_s = MAX(now_s, k->from_s);
	while ((n = tree_first(&k->far)) && end_of(n)->at_s < k->from_s + SPANS_RING) {
		tree_del(&k->far, n);
		enter(k, end_of(n));
	}
}

void spans_book_look(struct spans_book *k, int64_t now_s, struct spans_ends *ret)
{
	uint32_t sum;

	move_to(k, now_s);
	ret->kept = k->kept;
	ret->at[0] = sum = k->past;
	for (uint32_t s = 0; s < SPANS_MAX_S; s++) {
		ret->at[s] += *ring_at(k, k->from_s + s);
		sum += *ring_at(k, k->from_s + s);
	}
	ret->at[SPANS_MAX_S] = k->kept - sum;
}
