/* SPDX-License-Identifier: MIT */
/*
 * kill -9 between any two steps of Create, and of Kill. A child runs the real lifecycle and store
 * with one failpoint armed; the cloud's ledger lies in shared memory and outlives it. A second child
 * recovers, then repeats the call. Afterwards: one sandbox, known; at most one accepted POST.
 */
#include "daemon/sandbox/rules/tags.h"
#include "tests/unit/sandbox/world.h"

static const char *const create_points[] = {
	"create.before_intent",	 "create.intent_committed", "create.before_send",
	"create.after_send",	 "create.answered",	    "create.before_active",
	"create.active_committed", "create.before_reply",
};

static const char *const resolve_points[] = {
	"resolve.list_sent",
	"resolve.found",
	"resolve.closed",
	"create.before_active",
	"create.active_committed",
};

/* One run of the daemon, in shared memory: what a child is to do, and what it saw. */
struct run {
	struct fake *fake;
	const char *point;
	bool ask;		/* with a call; otherwise recovery alone, until no intent is open any more */
	bool answered;
	struct status st;
	char id[64];
	unsigned running, intents;
	char named[64];
};

static void live(void *arg)
{
	struct run *r = arg;
	struct world w = { .fake = r->fake };
	struct create c = a_create("req");
	struct sandbox_core_counts n;
	struct answer a;

	die_at(r->point);
	world_start(&w);
	c.name = "box";
	if (r->ask) {
		a = do_create(&w, &c);
		r->answered = true;
		r->st = a.st;
		(void)str_copy(r->id, sizeof(r->id), a.id);
	} else {
		until_intents_end(&w);
	}
	n = counts(&w);
	r->running = n.running;
	r->intents = n.intents;
	a = do_get(&w, &alice, "box", 0);
	(void)str_copy(r->named, sizeof(r->named), a.id);
	world_stop(&w);
}

static int run(struct run *r, struct fake *f, const char *point, bool ask)
{
	*r = (struct run){ .fake = f, .point = point, .ask = ask };
	return in_child(live, r);
}

/* Its request's bytes had not left: the repeat need not ask what became of it. */
static bool is_unsent(const char *point)
{
	return str_eq(point, "create.intent_committed") || str_eq(point, "create.before_send");
}

struct scene {
	const char *point;
	enum fake_fate how;
	int way;
};

/* Runs until killed, recovers, repeats the call. */
static void play(const struct scene *s)
{
	struct run *r = shared_new(sizeof(*r));
	struct fake *f = fake_new();
	int wstatus;

	world_dir_new();
	crash_way(f, s->way);
	fake_next(f, FAKE_CREATE, s->how != FAKE_OK, s->how);
	wstatus = run(r, f, s->point, true);
	if (!was_killed(wstatus))
		fprintf(stderr, "%s how=%d: not killed (status %x)\n", s->point, s->how, wstatus);
	CHECK(was_killed(wstatus));
	CHECK(f->n_sandboxes <= 1);

	/* After recovery alone: known, or none. */
	CHECK_INT(run(r, f, NULL, false), 0);
	CHECK_INT(r->intents, 0);
	CHECK_INT(r->running, fake_alive(f));
	CHECK_INT(f->n_sandboxes, fake_alive(f)); /* nothing was killed */
	if (fake_alive(f))
		CHECK_STR(r->named, f->sandboxes[0].id);
	else
		CHECK_STR(r->named, "");

	/* The caller repeats: the same one, never a second. */
	CHECK_INT(run(r, f, NULL, true), 0);
	CHECK(r->answered);
	CHECK(f->n_sandboxes <= 1);
	if (is_unsent(s->point))
		CHECK_INT(f->n_sandboxes, 1);
	if (status_ok(&r->st))
		CHECK_STR(r->id, f->sandboxes[0].id);
	else
		CHECK_INT(r->st.reason, R_OUTCOME_UNKNOWN); /* a POST that may have been sent */
	if (f->n_sandboxes)
		CHECK(status_ok(&r->st));
	CHECK_INT(f->seen[FAKE_KILL], 0);
	world_dir_free();
	fake_free(f);
	shared_free(r, sizeof(*r));
}

TEST(every_point_of_create)
{
	for (size_t i = 0; i < 2 * ARRAY_SIZE(create_points); i++)
		play(&(struct scene){ .point = create_points[i / 2], .way = i % 2 });
}

TEST(every_point_of_settlement)
{
	for (size_t i = 0; i < 2 * ARRAY_SIZE(resolve_points); i++) {
		bool closes = str_eq(resolve_points[i / 2], "resolve.closed");

		play(&(struct scene){ .point = resolve_points[i / 2],
				      .how = closes ? FAKE_LOST_BEFORE : FAKE_LOST_AFTER,
				      .way = i % 2 });
	}
}

static void play_twice(const char *first, const char *second, int way)
{
	struct run *r = shared_new(sizeof(*r));
	struct fake *f = fake_new();
	int wstatus;

	world_dir_new();
	crash_way(f, way);
	CHECK(was_killed(run(r, f, first, true)));
	wstatus = run(r, f, second, false);
	CHECK(!wstatus || was_killed(wstatus));	/* it may have nothing to resolve */
	CHECK_INT(run(r, f, NULL, true), 0);
	CHECK(f->n_sandboxes <= 1);
	if (f->n_sandboxes) {
		CHECK(status_ok(&r->st));
		CHECK_STR(r->id, f->sandboxes[0].id);
	}
	CHECK_INT(f->seen[FAKE_KILL], 0);
	world_dir_free();
	fake_free(f);
	shared_free(r, sizeof(*r));
}

/* A crash during the recovery from a crash. */
TEST(twice)
{
	for (size_t i = 0; i < 4; i++)
		for (size_t k = 0; k < ARRAY_SIZE(resolve_points); k++)
			for (int way = 0; way < 2; way++)
				play_twice(create_points[2 + i], resolve_points[k], way);
}

static void kill_it(void *arg)
{
	struct run *r = arg;
	struct world w = { .fake = r->fake };
	struct create c = a_create("req");
	struct answer a;

	world_start(&w);
	c.name = "box";
	a = do_create(&w, &c);
	(void)str_copy(r->id, sizeof(r->id), a.id);
	die_at(r->point);
	(void)do_kill(&w, &alice, "box");
	exit(1); /* it should have been killed */
}

/* The kill that was decided is carried out by the next start. */
static void recover_kill(void *arg)
{
	struct run *r = arg;
	struct world w = { .fake = r->fake };
	struct answer a;

	world_start(&w);
	UNTIL(&w, !fake_alive(r->fake));
	UNTIL(&w, counts(&w).gone == 1);
	a = do_get(&w, &alice, r->id, SANDBOX_STALENESS_DEFAULT);
	CHECK_INT(a.state, SANDBOX_GONE);
	CHECK_INT(a.gone_reason, R_SANDBOX_KILLED);
	a = do_get(&w, &alice, "box", SANDBOX_STALENESS_DEFAULT);
	CHECK_INT(a.st.reason, R_SANDBOX_NOT_FOUND);
	world_stop(&w);
}

TEST(every_point_of_kill)
{
	static const char *const points[] = { "kill.intent_committed", "kill.sent", "kill.answered",
					      "kill.done" };

	for (size_t i = 0; i < 2 * ARRAY_SIZE(points); i++) {
		struct run *r = shared_new(sizeof(*r));

		*r = (struct run){ .fake = fake_new(), .point = points[i / 2] };
		crash_way(r->fake, i % 2);
		world_dir_new();
		CHECK(was_killed(in_child(kill_it, r)));
		CHECK_INT(in_child(recover_kill, r), 0);
		world_dir_free();
		fake_free(r->fake);
		shared_free(r, sizeof(*r));
	}
}

TEST_MAIN()
