/* SPDX-License-Identifier: MIT */
/* A complete list is taken over in slices: no pass of the loop has more than one of them, whatever happens between two. */
#include "daemon/sandbox/rules/tags.h"
#include "tests/unit/sandbox/world.h"

#define MANY	100u
#define SLICE	16u	/* daemon/sandbox/reconcile.c */

static unsigned most_in_a_pass;

/* Sandboxes of this host without a row. */
static void plant_many(struct world *w, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		char id[16];
		struct fake_sandbox *x;

		snprintf(id, sizeof(id), "i%04u", i);
		x = fake_plant(w->fake, id);
		fake_plant_tag(x, TAG_HOST, store_host_id(w->store));
		fake_plant_tag(x, TAG_UID, "1000");
	}
}

static unsigned count_listed(const struct world *w, uint32_t number)
{
	unsigned n = 0;

	list_for_each(i, &w->core->sandboxes)
		n += list_entry(i, struct sandbox, node)->listed_in == number;
	return n;
}

static unsigned count_end(const struct world *w, int64_t end_at_ms)
{
	unsigned n = 0;

	list_for_each(i, &w->core->sandboxes)
		n += list_entry(i, struct sandbox, node)->end_at_ms == end_at_ms;
	return n;
}

/* One turn of the loop, which has at most one slice; what it changed is taken note of. */
static void turn(struct world *w, unsigned (*count)(const struct world *w))
{
	unsigned before = count(w);

	CHECK(loop_once(w->loop, 20) >= 0);
	most_in_a_pass = MAX(most_in_a_pass, count(w) - before);
}

static unsigned count_rows(const struct world *w)
{
	return (unsigned)map_size(&w->core->sandbox_map);
}

static void adopt_many(struct world *w, unsigned n)
{
	plant_many(w, n);
	UNTIL(w, counts(w).running == n && counts(w).reconciled_at_ms);
}

static uint32_t last_number(const struct world *w)
{
	uint32_t last = 0;

	list_for_each(i, &w->core->sandboxes)
		last = MAX(last, list_entry(i, struct sandbox, node)->listed_in);
	return last;
}

/* Turns the loop until a list is taken over in part: some rows have its number, and some do not. */
static uint32_t until_the_middle(struct world *w)
{
	uint32_t before = last_number(w);

	UNTIL(w, last_number(w) > before);
	CHECK_INT(count_listed(w, last_number(w)), SLICE);
	return last_number(w);
}

TEST(adoption_goes_one_by_one)
{
	struct world w;

	world_new(&w);
	plant_many(&w, MANY);
	most_in_a_pass = 0;
	while (counts(&w).running < MANY)
		turn(&w, count_rows);
	CHECK_INT(most_in_a_pass, 1);
	UNTIL(&w, counts(&w).reconciled_at_ms);
	world_free(&w);
}

static int64_t new_end;

static unsigned count_new_ends(const struct world *w)
{
	return count_end(w, new_end);
}

TEST(updates_go_in_slices)
{
	struct world w = { .reconcile_period_ms = 2000 };

	world_new_with(&w);
	adopt_many(&w, MANY);
	new_end = fake_now(w.fake) + 7200000;
	for (unsigned i = 0; i < MANY; i++)
		w.fake->sandboxes[i].end_at_ms = new_end;
	most_in_a_pass = 0;
	while (count_new_ends(&w) < MANY)
		turn(&w, count_new_ends);
	CHECK_INT(most_in_a_pass, SLICE);
	world_free(&w);
}

/* A caller of List that comes in between waits for the end of it, and brings no second list. */
TEST(callers_wait_for_all_slices)
{
	struct world w = { .reconcile_period_ms = 2000 };
	struct answer a = { .w = &w };
	uint32_t number;
	unsigned lists;

	world_new_with(&w);
	adopt_many(&w, MANY);
	number = until_the_middle(&w);
	lists = w.fake->seen[FAKE_LIST];
	CHECK(!sandbox_list(w.core, CALL(&alice, NULL, clock_boot_ms() + 1000, &a), &(struct sandbox_list){ 0 }, on_page, &a.op));
	wait_for(&w, &a);
	CHECK(status_ok(&a.st));
	CHECK_INT(a.source, SANDBOX_FROM_CLOUD);
	CHECK_INT(count_listed(&w, number), MANY);
	CHECK_INT(w.fake->seen[FAKE_LIST], lists);
	world_free(&w);
}

/* Between two slices rows go, come and are killed: the list is not taken for what they were. */
TEST(rows_change_between_slices)
{
	struct world w = { .reconcile_period_ms = 2000 };
	struct answer a;
	unsigned gets;

	world_new_with(&w);
	adopt_many(&w, MANY);
	for (unsigned i = 90; i < MANY; i++)
		w.fake->sandboxes[i].hidden = true;
	(void)until_the_middle(&w);
	gets = w.fake->seen[FAKE_GET];
	/* One that was listed and one that will be are forgotten; one that is missing is learnt of meanwhile. */
	core_forget(w.core, core_find(w.core, &w.core->accounts[0], "i0000"));
	core_forget(w.core, core_find(w.core, &w.core->accounts[0], "i0080"));
	core_find(w.core, &w.core->accounts[0], "i0090")->fresh_at_ms = clock_boot_ms() + 1;
	a = do_kill(&w, &alice, "i0091");
	CHECK(status_ok(&a.st));
	spin(&w, 1000);
	CHECK_INT(w.fake->seen[FAKE_GET] - gets, 8);
	CHECK(!core_find(w.core, &w.core->accounts[0], "i0000") || !core_find(w.core, &w.core->accounts[0], "i0080"));
	CHECK_INT(counts(&w).gone, 1);
	CHECK_INT(counts(&w).list_anomalies, 0);
	/* The next list brings back what was forgotten though it lives. */
	UNTIL(&w, counts(&w).running == MANY - 1);
	world_free(&w);
}

TEST(the_end_comes_between_two_slices)
{
	struct world w = { .reconcile_period_ms = 2000 };

	world_new_with(&w);
	plant_many(&w, MANY);
	UNTIL(&w, counts(&w).running == MANY / 2);
	world_restart(&w);
	UNTIL(&w, counts(&w).running == MANY && counts(&w).reconciled_at_ms);
	(void)until_the_middle(&w);
	world_restart(&w);
	UNTIL(&w, counts(&w).reconciled_at_ms);
	CHECK_INT(counts(&w).running, MANY);
	world_free(&w);
}

TEST_MAIN()
