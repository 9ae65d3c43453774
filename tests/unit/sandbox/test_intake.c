/* SPDX-License-Identifier: MIT */
/* C-4: what comes from outside is taken in as its row can hold it, so a restart changes nothing. */
#include "daemon/sandbox/copy.h"
#include "daemon/sandbox/core.h"
#include "tests/unit/sandbox/world.h"

static void commit(struct world *w, struct store_tx *t)
{
	core_commit(w->core, t, true);
	spin(w, 50);
	CHECK(status_ok(store_health(w->store)) && !w->core->resave);
}

/* A text is cut to its bound, but never in the middle of a character. */
TEST(half_a_character)
{
	char text[EVENT_TEXT_MAX + 1] = "", want[EVENT_TEXT_MAX];
	const struct event_log *g;
	struct sandbox *b;
	struct store_tx *t;
	struct world w;
	struct answer a;
	struct create c;

	world_new(&w);
	c = a_create("");
	a = do_create(&w, &c);
	b = core_find(w.core, &w.core->accounts[0], a.id);
	CHECK(b);
	memset(text, 'a', EVENT_TEXT_MAX - 2);
	memcpy(text + EVENT_TEXT_MAX - 2, "\xc3\xa9", 2);
	(void)str_copy(want, EVENT_TEXT_MAX, text);
	want[EVENT_TEXT_MAX - 2] = 0;
	CHECK(!store_tx_new(w.store, &t));
	event_put(w.core, t, b, EVENT_UPDATED, "%s", text);
	commit(&w, t);
	for (int start = 0; start < 2; start++) {
		g = events_of(w.core, alice.uid);
		CHECK_STR(event_at(g, g->n - 1)->evidence, want);
		world_restart(&w);
	}
	world_free(&w);
}

/* Names are one a line in a row. */
TEST(names_of_a_snapshot)
{
	char *names[] = { "team/one", "two\nlines", "", "team/three" };
	struct cloud_snapshot s = { .id = "snap1", .names = { names, ARRAY_SIZE(names) } };
	struct store_tx *t;
	struct snap *snap;
	struct world w;

	world_new(&w);
	CHECK(!store_tx_new(w.store, &t));
	CHECK(!snap_put(&w.core->accounts[0], &s, "i1", &alice.uid, t, &snap));
	commit(&w, t);
	for (int start = 0; start < 2; start++) {
		snap = snap_find(w.core, &w.core->accounts[0], "snap1");
		CHECK(snap && snap->ours);
		CHECK_INT(snap->names.n, 2);
		CHECK_STR(snap->names.v[0], "team/one");
		CHECK_STR(snap->names.v[1], "team/three");
		world_restart(&w);
	}
	world_free(&w);
}

/* A value that no row of ours may have fails its transaction, once, and the store goes on. */
TEST(a_refused_row_is_not_tried_again)
{
	struct store_tx *t;
	struct world w;
	struct row_name m = { .uid = alice.uid, .name = "" };

	world_new(&w);
	CHECK(!store_tx_new(w.store, &t));
	store_tx_put_name(t, &m);
	commit(&w, t);
	world_free(&w);
}

TEST_MAIN()
