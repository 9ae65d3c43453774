/* SPDX-License-Identifier: MIT */
/*
 * kill -9 between any two steps of a fork and of a snapshot. A child runs the real lifecycle and store
 * with one failpoint armed; a second one repeats the call with its request id. Afterwards the cloud has
 * made them once or not at all, the answer names exactly what it made, and nothing was killed.
 */
#include "tests/unit/sandbox/world.h"

#define COUNT 2u

static const char *const points[] = {
	"copy.before_intent", "copy.intent_committed", "copy.before_send", "copy.after_send",
	"copy.answered",      "copy.before_record",    "copy.recorded",
};

static const char *const resolve_points[] = {"copy.resolve_listed", "copy.before_record",
					     "copy.recorded"};

/* One run of the daemon, in shared memory: what a child is to do, and what it saw. */
struct run {
	struct fake *fake;
	const char *point;
	bool snapshot;
	bool answered;
	struct status st;
	unsigned n;
	char ids[COUNT][64];
};

static void on_forked(void *user, const struct status *st, const struct sandbox_child *v, size_t n)
{
	struct run *r = user;

	r->answered = true;
	r->st = *st;
	for (size_t i = 0; i < n && i < COUNT; i++)
		if (v[i].sandbox)
			(void)str_copy(r->ids[r->n++], sizeof(r->ids[0]), v[i].sandbox->id);
}

static void on_snapshot(void *user, const struct status *st, const struct sandbox_snapshot *s)
{
	struct run *r = user;

	r->answered = true;
	r->st = *st;
	if (s)
		(void)str_copy(r->ids[r->n++], sizeof(r->ids[0]), s->id);
}

static void call(struct world *w, const char *sandbox, struct run *r)
{
	struct sandbox_create f = { .request_id = r->snapshot ? NULL : str_dup("req") };	/* taken over */
	struct sandbox_snapshot_create s = { .request_id = "req" };
	struct sandbox_call head = { &alice, sandbox, clock_boot_ms() + 5000, r };
	struct sandbox_op *op;

	if (r->snapshot)
		CHECK(!sandbox_snapshot_create(w->core, &head, &s, on_snapshot, &op));
	else
		CHECK(!sandbox_fork(w->core, &head, &f, COUNT, on_forked, &op));
	UNTIL(w, r->answered);
}

/* In a child: the sandbox (made, or found by its name), the call; ends by the failpoint or by itself. */
static void live(void *arg)
{
	struct run *r = arg;
	struct world w = { .fake = r->fake };
	struct create c = a_create("box");
	struct answer a;

	die_at(r->point);
	world_start(&w);
	c.name = "box";
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	call(&w, a.id, r);
	world_stop(&w);
}

static int run(struct run *r, struct fake *f, const char *point, bool snapshot)
{
	*r = (struct run){ .fake = f, .point = point, .snapshot = snapshot };
	return in_child(live, r);
}

static unsigned made(const struct fake *f, bool snapshot)
{
	return snapshot ? f->n_snapshots : f->n_sandboxes - 1;
}

static void check_repeat(const struct run *r, struct fake *f)
{
	unsigned all = r->snapshot ? 1 : COUNT;

	CHECK(r->answered);
	CHECK(made(f, r->snapshot) == 0 || made(f, r->snapshot) == all);
	if (made(f, r->snapshot)) {
		CHECK(status_ok(&r->st));
		CHECK_INT(r->n, all);
	} else {
		CHECK_INT(r->st.reason, R_OUTCOME_UNKNOWN);	/* a POST that may have been sent */
	}
	for (unsigned i = 0; i < r->n && !r->snapshot; i++)
		CHECK(fake_find(f, r->ids[i]));
	for (unsigned i = 0; i < r->n && r->snapshot; i++)
		CHECK_STR(r->ids[i], f->snapshots[0].id);
	CHECK_INT(f->seen[FAKE_KILL], 0);
}

/* Its request's bytes had not left: the repeat makes it. */
static bool is_unsent(const char *point)
{
	return str_eq(point, "copy.intent_committed") || str_eq(point, "copy.before_send");
}

static void play_once(const char *at, enum fake_fate how, bool snapshot, int way)
{
	struct run *r = shared_new(sizeof(*r));
	struct fake *f = fake_new();
	int wstatus;

	world_dir_new();
	crash_way(f, way);
	fake_next(f, snapshot ? FAKE_SNAPSHOT : FAKE_FORK, how != FAKE_OK, how);
	wstatus = run(r, f, at, snapshot);
	if (!was_killed(wstatus))
		fprintf(stderr, "%s how=%d: not killed (status %x)\n", at, how, wstatus);
	CHECK(was_killed(wstatus));
	CHECK(made(f, snapshot) == 0 || made(f, snapshot) == (snapshot ? 1 : COUNT));
	CHECK_INT(run(r, f, NULL, snapshot), 0);
	check_repeat(r, f);
	if (is_unsent(at))
		CHECK_INT(made(f, snapshot), snapshot ? 1 : COUNT);
	world_dir_free();
	fake_free(f);
	shared_free(r, sizeof(*r));
}

static void play(const char *at, enum fake_fate how, bool snapshot)
{
	for (int way = 0; way < 2; way++)
		play_once(at, how, snapshot, way);
}

TEST(fork_killed_anywhere)
{
	for (size_t i = 0; i < ARRAY_SIZE(points); i++)
		play(points[i], FAKE_OK, false);
}

TEST(fork_killed_while_settling)
{
	for (size_t i = 0; i < ARRAY_SIZE(resolve_points); i++)
		play(resolve_points[i], FAKE_LOST_AFTER, false);
	play("copy.resolve_listed", FAKE_LOST_BEFORE, false);
}

TEST(snapshot_killed_anywhere)
{
	for (size_t i = 0; i < ARRAY_SIZE(points); i++)
		play(points[i], FAKE_OK, true);
}

TEST(snapshot_killed_while_settling)
{
	for (size_t i = 0; i < ARRAY_SIZE(resolve_points); i++)
		play(resolve_points[i], FAKE_LOST_AFTER, true);
	play("copy.resolve_listed", FAKE_LOST_BEFORE, true);
}

TEST_MAIN()
