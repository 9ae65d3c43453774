/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/extend.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/runner.h"
#include "proto/base/clock.h"

#define LATER_MS    5000u	/* retry_after of a refused lease */
#define SHORT_PCT   90u		/* is_short: so much of what can be kept alive is in use, … */
#define REFUSED_MS  600000	/* … or a lease was refused within this time */

void extend_init(struct extensions *x)
{
	list_init(&x->line);
	list_init(&x->kept);
}

void extend_turn_init(struct extend_turn *t, struct sandbox *b)
{
	list_init(&t->node);
	list_init(&t->kept_node);
	t->sandbox = b;
}

static struct spans_budget budget_of(const struct account *a)
{
	struct cloud_rate rate;

	if (!cloud_extend_rate(a->cloud, &rate))
		return (struct spans_budget){ .is_told = false };
	return (struct spans_budget){ .is_told = true, .per_s_milli = rate.per_s_milli, .tokens = rate.tokens };
}

/* --- turns --- */

static bool is_in_line(const struct extend_turn *t)
{
	return !list_is_empty(&t->node);
}

static void enter_line(struct extensions *x, struct extend_turn *t)
{
	struct list *at = &x->line;

	list_for_each(n, &x->line) {
		if (list_entry(n, struct extend_turn, node)->end_at_ms > t->end_at_ms) {
			at = n;
			break;
		}
	}
	list_add_tail(at, &t->node);	/* before `at` */
	x->n_waiting++;
}

static void leave_line(struct extensions *x, struct extend_turn *t)
{
	list_del(&t->node);
	x->n_waiting--;
}

bool extend_turn_take(struct extend_turn *t, int64_t end_at_ms)
{
	struct account *a = t->sandbox->account;
	struct spans_budget b = budget_of(a);

	if (t->is_taken)
		return true;
	if (is_in_line(t))
		return false;
	t->end_at_ms = end_at_ms;
	if (a->extensions.n_taken >= spans_parallel(&b)) {
		enter_line(&a->extensions, t);
		return false;
	}
	t->is_taken = true;
	a->extensions.n_taken++;
	return true;
}

/* Gives turns to those in line, as many as the budget, which may have changed, allows now. */
static void on_to_the_next(struct account *a)
{
	struct extensions *x = &a->extensions;
	struct spans_budget b = budget_of(a);
	struct extend_turn *t;

	while (!list_is_empty(&x->line) && x->n_taken < spans_parallel(&b)) {
		t = list_entry(x->line.next, struct extend_turn, node);
		leave_line(x, t);
		t->is_taken = true;
		x->n_taken++;
		runner_poke(t->sandbox);
	}
}

void extend_turn_end(struct extend_turn *t)
{
	struct account *a = t->sandbox->account;

	if (is_in_line(t))
		leave_line(&a->extensions, t);
	if (!t->is_taken)
		return;
	t->is_taken = false;
	a->extensions.n_taken--;
	on_to_the_next(a);
}

/* --- spans --- */

void extend_note(struct extend_turn *t, bool is_kept, int64_t end_at_ms)
{
	struct extensions *x = &t->sandbox->account->extensions;

	if (!is_kept) {
		list_del(&t->kept_node);
		spans_book_del(&x->book, &t->kept);
		return;
	}
	spans_book_put(&x->book, &t->kept, end_at_ms / 1000);
	if (list_is_empty(&t->kept_node))
		list_add_tail(&x->kept, &t->kept_node);
}

static int64_t now_s(const struct account *a)
{
	return MAX(account_cloud_now(a), (int64_t)0) / 1000;
}

void extend_clock_set(struct account *a)
{
	spans_book_reset(&a->extensions.book, now_s(a));
}

/* Where the span grew by more than a quarter, every kept sandbox is looked at again: its life may be too short now. */
static void tell_runners(struct account *a, uint32_t span_s)
{
	struct extensions *x = &a->extensions;
	bool has_grown = span_s > x->told_span_s + x->told_span_s / 4;

	if (span_s < x->told_span_s || has_grown)
		x->told_span_s = span_s;
	if (!has_grown)
		return;
	list_for_each_safe(n, &x->kept)
		runner_poke(list_entry(n, struct extend_turn, kept_node)->sandbox);
}

uint32_t extend_span_s(struct account *a)
{
	struct spans_budget b = budget_of(a);
	uint32_t s;

	s = spans_wanted_s(a->extensions.book.kept, &b);
	tell_runners(a, s);
	return s;
}

static uint32_t with_new(const struct account *a)
{
	return a->extensions.book.kept + core_attempts_count(a->core, a, NULL) + 1;
}

uint32_t extend_span_with_new_s(struct account *a)
{
	struct spans_budget b = budget_of(a);

	return spans_wanted_s(with_new(a), &b);
}

/* --- admission --- */

static void refuse(struct account *a, struct status *st)
{
	a->extensions.refused++;
	a->extensions.refused_at_ms = clock_wall_ms();
	st->retry_after_ms = LATER_MS;
	log_warn("lease_refused", "account=%s text=%s", a->name, log_q(st->text));
}

static bool is_too_many(struct account *a, uint32_t kept, const struct spans_budget *b, struct status *st)
{
	if (!b->is_told || kept <= spans_most(b))
		return false;
	status_set(st, R_RATE_LIMITED,
		   "the cloud gives account %s %u.%03u extensions a second, which keep at most %u sandboxes alive: %u "
		   "are in use already. Release some first", a->name, b->per_s_milli / 1000, b->per_s_milli % 1000,
		   spans_most(b), kept - 1);
	refuse(a, st);
	return true;
}

static bool fits(struct account *a, int64_t left_ms, const struct spans_budget *b, struct status *st)
{
	struct spans_ends *e = calloc(1, sizeof(*e));
	uint32_t need;
	bool ok;

	if (!e) {
		status_errno(st, -ENOMEM, "looking at the ends of sandboxes");
		return false;
	}
	spans_book_look(&a->extensions.book, now_s(a), e);
	ok = spans_fit(e, left_ms, b);
	if (!ok) {
		need = spans_fitting_s(e, left_ms, b);
		status_set(st, R_RATE_LIMITED,
			   "the cloud gives account %s %u.%03u extensions a second, and %u sandboxes in use need them: one "
			   "that ends in %lld s could not be extended in time. Give it a timeout of at least %u s first, "
			   "or ask later", a->name, b->per_s_milli / 1000, b->per_s_milli % 1000, e->kept,
			   (long long)left_ms / 1000, need ? need : SPANS_MAX_S);
		refuse(a, st);
	}
	free(e);
	return ok;
}

bool extend_admits(struct account *a, const struct sandbox *b, struct status *st)
{
	struct spans_budget budget = budget_of(a);
	int64_t left;

	if (!budget.is_told || !runner_would_keep(b, &left))
		return true;
	return !is_too_many(a, a->extensions.book.kept + 1, &budget, st) && fits(a, left, &budget, st);
}

bool extend_admits_new(struct account *a, uint32_t life_s, struct status *st)
{
	struct spans_budget budget = budget_of(a);

	return !budget.is_told || (!is_too_many(a, with_new(a), &budget, st) &&
				   fits(a, (int64_t)life_s * 1000, &budget, st));
}

/* --- Status --- */

void sandbox_extensions(struct sandbox_core *core, size_t account, struct sandbox_extensions *ret)
{
	struct account *a = &core->accounts[account];
	const struct extensions *x = &a->extensions;
	struct spans_budget b = budget_of(a);

	*ret = (struct sandbox_extensions){
		.kept = x->book.kept, .most = b.is_told ? spans_most(&b) : 0,
		.per_s_milli = b.is_told ? b.per_s_milli : 0,
		.span_s = spans_wanted_s(x->book.kept, &b),
		.waiting = x->n_waiting, .refused = x->refused, .refused_at_ms = x->refused_at_ms,
	};
	ret->is_short = ret->most && ((uint64_t)x->book.kept * 100 >= (uint64_t)ret->most * SHORT_PCT ||
				      (x->refused_at_ms && clock_wall_ms() - x->refused_at_ms < REFUSED_MS));
}
