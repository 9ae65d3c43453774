/* SPDX-License-Identifier: MIT */
/* What the cloud's budget of extensions keeps alive, and what is refused at the lease instead of lost (C-3). */
#include "daemon/sandbox/rules/spans.h"
#include "proto/base/rng.h"
#include "tests/unit/sandbox/world.h"

#define MANY 60u

/* --- the rules --- */

TEST(spans)
{
	static const struct { bool is_told; uint32_t kept, per_s_milli, span_s, most, parallel; } t[] = {
		{ true, 0, 1000, 0, 720, 2 },
		{ true, 1, 1000, 5, 720, 2 },
		{ true, 60, 1000, 300, 720, 2 },
		{ true, 60, 10000, 30, 7200, 16 },
		{ true, 60, 100, 3000, 72, 2 },
		{ true, 60, 1, 3600, 1, 2 },
		{ true, 100000, 1000, 3600, 720, 2 },
		{ true, 5000000, 1, 3600, 1, 2 },
		{ true, 60, 4000, 75, 2880, 8 },
		{ false, 60, 0, 300, 720, 16 },	/* nothing is told: as if it were one a second */
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct spans_budget b = { .is_told = t[i].is_told, .per_s_milli = t[i].per_s_milli };

		CHECK_INT(spans_wanted_s(t[i].kept, &b), t[i].span_s);
		CHECK_INT(spans_most(&b), t[i].most);
		CHECK_INT(spans_parallel(&b), t[i].parallel);
	}
}

TEST(fitting)
{
	static struct spans_ends e;
	struct spans_budget b = { .is_told = true, .per_s_milli = 1000, .tokens = 2 };

	CHECK(spans_fit(&e, 0, &b));	/* a token is there */
	for (unsigned n = 0; n < 27; n++) {
		CHECK(spans_fit(&e, 30000, &b));
		spans_add(&e, 30000);
	}
	CHECK_INT(e.kept, 27);
	CHECK(!spans_fit(&e, 30000, &b));	/* 2 + 28 s × 0.9 are given to them already */
	CHECK(!spans_fit(&e, 10000, &b));	/* it goes first, but one of the others would be too late */
	CHECK_INT(spans_fitting_s(&e, 30000, &b), 31);
	CHECK(spans_fit(&e, 31000, &b));
	CHECK(spans_fit(&e, 3600000, &b));
	b.tokens = 3;
	CHECK(spans_fit(&e, 30000, &b));
	b.tokens = 0;
	b.per_s_milli = 1;
	CHECK_INT(spans_fitting_s(&e, 30000, &b), 0);	/* there is none */
	b.is_told = false;
	CHECK(spans_fit(&e, 0, &b));	/* what is not known refuses nothing */
	spans_add(&e, -5);
	spans_add(&e, INT64_MAX);
	CHECK_INT(e.at[0], 1);
	CHECK_INT(e.at[SPANS_MAX_S], 1);
}

/* The book against a sum over all ends, while ends change and the clock goes on and is set. */
static void check_book(struct spans_book *k, const struct spans_end *v, size_t n, int64_t now_s)
{
	static struct spans_ends want, have;

	want = have = (struct spans_ends){ 0 };
	for (size_t i = 0; i < n; i++)
		if (v[i].is_in)
			spans_add(&want, (v[i].at_s - now_s) * 1000);
	spans_book_look(k, now_s, &have);
	CHECK_INT(have.kept, want.kept);
	for (size_t s = 0; s <= SPANS_MAX_S; s++)
		CHECK_INT(have.at[s], want.at[s]);
}

TEST(book)
{
	static struct spans_end v[300];
	static struct spans_book k;
	int64_t now_s = 100000;
	struct rng rng;

	rng_seed(&rng, 11);
	spans_book_reset(&k, now_s);
	for (unsigned step = 0; step < 4000; step++) {
		struct spans_end *e = &v[rng_below(&rng, ARRAY_SIZE(v))];

		if (rng_below(&rng, 4))
			spans_book_put(&k, e, now_s - 100 + (int64_t)rng_below(&rng, 3 * SPANS_RING));
		else
			spans_book_del(&k, e);
		if (step % 10 == 0)
			now_s += (int64_t)rng_below(&rng, step % 1000 ? 200 : 3 * SPANS_RING);
		if (step % 10 == 0)
			check_book(&k, v, ARRAY_SIZE(v), now_s);
	}
	for (size_t i = 0; i < ARRAY_SIZE(v); i++)
		spans_book_del(&k, &v[i]);
	check_book(&k, v, ARRAY_SIZE(v), now_s);
	spans_book_reset(&k, 0);
	spans_book_put(&k, &v[0], -5);
	check_book(&k, v, ARRAY_SIZE(v), 0);
	spans_book_del(&k, &v[0]);
}

/* --- all of it --- */

struct taken {
	bool done;
	struct status st;
	char id[32];
};

static void on_lease(void *user, const struct status *st, const struct sandbox_lease *l)
{
	struct taken *a = user;

	CHECK(!a->done);
	a->done = true;
	a->st = *st;
	if (l)
		(void)str_copy(a->id, sizeof(a->id), l->id);
}

static struct taken take(struct world *w, const char *sandbox)
{
	struct sandbox_acquire q = { .kind = SANDBOX_LEASE_TTL, .ttl_ms = 3600000 };
	struct taken a = { 0 };
	struct sandbox_op *op;

	CHECK(!sandbox_acquire(w->core, CALL(&alice, sandbox, clock_boot_ms() + 5000, &a), &q,
			       on_lease, &op));
	UNTIL(w, a.done);
	return a;
}

static struct answer make(struct world *w, uint32_t timeout_s)
{
	struct create c = a_create(NULL);
	struct answer a;

	c.timeout_ms = timeout_s * 1000ull;
	a = do_create(w, &c);
	CHECK(status_ok(&a.st));
	return a;
}

static void give_refreshes(struct world *w, uint32_t burst, uint32_t per_s_milli)
{
	w->fake->refresh_burst = burst;
	w->fake->refresh_per_s_milli = per_s_milli;
}

static struct sandbox_extensions extensions(struct world *w)
{
	struct sandbox_extensions x;

	sandbox_extensions(w->core, 0, &x);
	return x;
}

/* Five minutes: ten times what they were made for. */
static void live_on(struct world *w, const char (*ids)[64], size_t n)
{
	for (unsigned s = 0; s < 300; s++) {
		spin(w, 1000);
		fake_expire(w->fake);
		for (size_t i = 0; i < n; i++)
			CHECK(fake_find(w->fake, ids[i]));
	}
}

/* C-3: sixty of 90 s, one refresh a second. None is refused, none is lost. */
TEST(what_is_leased_is_kept)
{
	static char ids[MANY][64];
	struct world w;

	world_new(&w);
	give_refreshes(&w, 1, 1000);
	for (size_t i = 0; i < MANY; i++) {
		struct answer a = make(&w, 90);
		struct taken l = take(&w, a.id);

		CHECK(status_ok(&l.st));
		(void)str_copy(ids[i], sizeof(ids[i]), a.id);
	}
	live_on(&w, (const char (*)[64])ids, MANY);
	CHECK_INT(extensions(&w).kept, MANY);
	CHECK_INT(extensions(&w).most, 720);
	CHECK_INT(extensions(&w).span_s, 300);
	CHECK_INT(extensions(&w).refused, 0);
	CHECK(!extensions(&w).is_short);
	world_free(&w);
}

/* C-3: sixty of 30 s at once are more than thirty extensions can keep: the rest is refused at the lease, with
 * what to do, and what was not refused lives. */
TEST(what_cannot_be_kept_is_refused)
{
	static char ids[MANY][64];
	struct answer all[MANY], yes, longer;
	struct taken l;
	struct world w;
	size_t n = 0;

	world_new(&w);
	longer = (struct answer){ .w = &w };
	give_refreshes(&w, 1, 1000);
	for (size_t i = 0; i < MANY; i++)
		all[i] = make(&w, 30);
	for (size_t i = 0; i < MANY; i++) {
		l = take(&w, all[i].id);
		if (status_ok(&l.st)) {
			(void)str_copy(ids[n++], sizeof(ids[0]), all[i].id);
			continue;
		}
		CHECK_INT(l.st.reason, R_RATE_LIMITED);
		CHECK(l.st.retry_after_ms);
		CHECK(strstr(l.st.text, "1.000 extensions a second") && strstr(l.st.text, "timeout of at least"));
		yes = all[i];
	}
	CHECK(n > 15 && n < 45);
	CHECK_INT(extensions(&w).refused, MANY - n);
	CHECK(extensions(&w).is_short);
	/* As it was told: a longer timeout, and it can be leased. */
	CHECK(!sandbox_set_timeout(w.core, CALL(&alice, yes.id, clock_boot_ms() + 5000, &longer),
				   90000, on_sandbox, &longer.op));
	spin(&w, 500);
	l = take(&w, yes.id);
	CHECK(status_ok(&l.st));
	(void)str_copy(ids[n++], sizeof(ids[0]), yes.id);
	live_on(&w, (const char (*)[64])ids, n);
	world_free(&w);
}

/* A lease on what is in use already needs no more extensions than before. */
TEST(the_second_lease_is_never_refused)
{
	struct world w;
	struct answer a;
	struct taken l;

	world_new(&w);
	give_refreshes(&w, 1, 1);	/* 3,600 s keep one alive */
	a = make(&w, 30);
	l = take(&w, a.id);
	CHECK(status_ok(&l.st));
	UNTIL(&w, w.fake->refresh_told);
	for (int i = 0; i < 3; i++) {
		l = take(&w, a.id);
		CHECK(status_ok(&l.st));
	}
	a = make(&w, 3600);
	l = take(&w, a.id);
	CHECK_INT(l.st.reason, R_RATE_LIMITED);
	CHECK(strstr(l.st.text, "at most 1 sandboxes"));
	world_free(&w);
}

/* When its last lease ended nothing extends it, and a released one makes room. */
TEST(after_the_lease_nothing_extends)
{
	struct answer a, y = { 0 };
	struct world w;
	struct taken l;
	unsigned seen;

	world_new(&w);
	give_refreshes(&w, 5, 1000);
	a = make(&w, 30);
	l = take(&w, a.id);
	UNTIL(&w, w.fake->seen[FAKE_REFRESH]);
	CHECK(!sandbox_release(w.core, CALL(&alice, NULL, clock_boot_ms() + 5000, &y), l.id, on_yes,
			       &y.op));
	UNTIL(&w, y.done);
	spin(&w, 1500);
	CHECK_INT(extensions(&w).kept, 0);
	seen = w.fake->seen[FAKE_REFRESH];
	spin(&w, 40000);
	CHECK_INT(w.fake->seen[FAKE_REFRESH], seen);
	fake_expire(w.fake);
	CHECK(!fake_find(w.fake, a.id));
	world_free(&w);
}

TEST_MAIN()
