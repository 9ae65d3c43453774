/* SPDX-License-Identifier: MIT */
/* C-12: what has ended is bounded by number for each uid, in memory and in the store. */
#include "daemon/sandbox/core.h"
#include "tests/unit/sandbox/world.h"

#define MORE 1200u	/* than is kept: more than is forgotten at once */

static bool written;

static void on_written(void *user, const struct status *st)
{
	CHECK(status_ok(st));
	written = true;
}

/* Ended sandboxes of a uid: id and name PREFIXn, the later the higher n. */
static void put_ended(struct world *w, uid_t uid, const char *prefix, unsigned n)
{
	int64_t now = clock_wall_ms();
	struct store_tx *t;
	char id[32];

	CHECK(!store_tx_new(w->store, &t));
	for (unsigned i = 0; i < n; i++) {
		struct row_sandbox r = { .account = "default", .id = id, .name = id, .uid = uid, .generation = 7,
					 .state = SANDBOX_GONE, .ours = true, .claimed = true, .gone_reason = R_SANDBOX_KILLED,
					 .gone_at_ms = now - n + i, .allow_internet_access = -1, .keep_memory = -1,
					 .auto_resume = -1 };
		struct row_name m = { .uid = uid, .name = id, .account = "default", .generation = 7 };

		snprintf(id, sizeof(id), "%s%u", prefix, i);
		store_tx_put_sandbox(t, &r);
		store_tx_put_name(t, &m);
	}
	written = false;
	store_tx_commit(t, true, on_written, NULL);
	UNTIL(w, written);
}

static uint32_t generation_of(struct world *w, const char *name)
{
	struct create c = a_create("");
	struct answer a;

	c.name = name;
	a = do_create(w, &c);
	CHECK(status_ok(&a.st));
	return a.generation;
}

static enum { READING, THERE, NOT_THERE } row;

static void on_row(void *user, const struct status *st, const struct row_request *r)
{
	CHECK(status_ok(st));
	CHECK(!r || (r->uid == alice.uid && r->state == ROW_REQUEST_DONE));
	row = r ? THERE : NOT_THERE;
}

static bool has_row(struct world *w, unsigned request)
{
	char id[32];

	snprintf(id, sizeof(id), "r%u", request);
	row = READING;
	CHECK(!store_get_request(w->store, alice.uid, REQUEST_CREATE, id, on_row, NULL));
	UNTIL(w, row != READING);
	return row == THERE;
}

TEST(ended_sandboxes_are_bounded)
{
	struct world w = { .reconcile_period_ms = 50 };
	char id[32];

	world_new_with(&w);
	put_ended(&w, alice.uid, "a", FORGET_SANDBOXES_PER_UID + MORE);
	put_ended(&w, bob.uid, "b", 10);
	world_restart(&w);
	CHECK_INT(counts(&w).gone, FORGET_SANDBOXES_PER_UID + MORE + 10);
	UNTIL(&w, counts(&w).gone == FORGET_SANDBOXES_PER_UID + 10);
	for (int start = 0; start < 2; start++) {
		spin(&w, 200);
		CHECK_INT(counts(&w).gone, FORGET_SANDBOXES_PER_UID + 10);
		snprintf(id, sizeof(id), "a%u", MORE - 1);
		CHECK_INT(do_get(&w, &alice, id, 3600000).st.reason, R_SANDBOX_NOT_FOUND);
		snprintf(id, sizeof(id), "a%u", MORE);
		CHECK_INT(do_get(&w, &alice, id, 3600000).gone_reason, R_SANDBOX_KILLED);
		CHECK_INT(do_get(&w, &bob, "b0", 3600000).gone_reason, R_SANDBOX_KILLED);
		world_restart(&w);
	}
	/* With the last sandbox that had it, a name is forgotten. */
	CHECK_INT(generation_of(&w, "a0"), 1);
	CHECK_INT(generation_of(&w, id), 8);
	world_free(&w);
}

/* Where many end the bound is not one of the time between two looks. */
TEST(too_many_ended_are_forgotten_soon)
{
	struct world w = { .reconcile_period_ms = 3600000 };
	struct create c = a_create("");
	struct answer a;

	world_new_with(&w);
	put_ended(&w, alice.uid, "a", FORGET_SANDBOXES_PER_UID + FORGET_SLACK);
	world_restart(&w);
	a = do_create(&w, &c);
	a = do_kill(&w, &alice, a.id);
	CHECK(status_ok(&a.st));
	UNTIL(&w, counts(&w).gone == FORGET_SANDBOXES_PER_UID);
	world_free(&w);
}

/* Request ids are what keeps a repeat from making another one: many more of them, the latest used ones. */
TEST(request_ids_are_bounded)
{
	struct world w = { .reconcile_period_ms = 50 };
	int64_t now = clock_wall_ms();
	struct create c;
	struct answer a, b;
	struct store_tx *t;
	char id[32];

	world_new_with(&w);
	c = a_create("mine");
	a = do_create(&w, &c);
	CHECK(!store_tx_new(w.store, &t));
	for (unsigned i = 0; i < FORGET_REQUESTS_PER_UID + MORE; i++) {
		struct row_request q = { .uid = alice.uid, .method = "Create", .request_id = id, .object = "gone",
					 .state = ROW_REQUEST_DONE, .account = "default", .req_tag = "t", .used_at_ms = now + i };

		snprintf(id, sizeof(id), "r%u", i);
		store_tx_put_request(t, &q);
	}
	written = false;
	store_tx_commit(t, true, on_written, NULL);
	UNTIL(&w, written);
	for (int start = 0; start < 2; start++) {
		world_restart(&w);
		CHECK_INT(counts(&w).requests, 1);	/* what is over is in no memory */
		spin(&w, 200);
		CHECK(has_row(&w, MORE) && !has_row(&w, MORE - 1));
	}
	c = a_create("mine"); /* its sandbox lives: never forgotten by number */
	b = do_create(&w, &c);
	CHECK_STR(b.id, a.id);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	world_free(&w);
}

/* A repeat after all memory of it is gone makes nothing, and one that is made anew under way is not missed. */
TEST(a_request_id_outlives_memory)
{
	struct world w = { .reconcile_period_ms = 50 };
	struct create c;
	struct answer a, b;

	world_new_with(&w);
	c = a_create("once");
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	b = do_kill(&w, &alice, a.id);
	CHECK(status_ok(&b.st));
	for (int start = 0; start < 2; start++) {
		UNTIL(&w, counts(&w).requests == 0);
		CHECK(core_may_have_stored(w.core, alice.uid, REQUEST_CREATE, "once"));
		CHECK(!core_may_have_stored(w.core, alice.uid, REQUEST_CREATE, "never"));	/* its row is not asked for */
		c = a_create("once");
		c.params_hash[0] = 1;
		CHECK_INT(do_create(&w, &c).st.reason, R_REQUEST_ID_REUSED);
		c = a_create("once");
		b = do_create(&w, &c);
		CHECK_INT(b.gone_reason, R_SANDBOX_KILLED);
		CHECK_STR(b.id, a.id);
		world_restart(&w);
	}
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	world_free(&w);
}

TEST_MAIN()
