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

struct report {			/* what a child saw, in shared memory */
	bool answered;
	struct status st;
	unsigned n;
	char ids[COUNT][64];
};

struct ask {
	struct report *r;
	bool done;
};

static void on_forked(void *user, const struct status *st, const struct sandbox_child *v, size_t n)
{
	struct ask *a = user;

	a->done = a->r->answered = true;
	a->r->st = *st;
	for (size_t i = 0; i < n && i < COUNT; i++)
		if (v[i].sandbox)
			(void)str_copy(a->r->ids[a->r->n++], sizeof(a->r->ids[0]), v[i].sandbox->id);
}

static void on_snapshot(void *user, const struct status *st, const struct sandbox_snapshot *s)
{
	struct ask *a = user;

	a->done = a->r->answered = true;
	a->r->st = *st;
	if (s)
		(void)str_copy(a->r->ids[a->r->n++], sizeof(a->r->ids[0]), s->id);
}

static void call(struct world *w, bool snapshot, const char *sandbox, struct report *r)
{
	struct sandbox_fork f = {.who = &alice,
				 .deadline_ms = clock_boot_ms() + 5000,
				 .sandbox = sandbox,
				 .count = COUNT,
				 .request_id = "req"};
	struct sandbox_snapshot_create s = {.who = &alice,
					    .deadline_ms = clock_boot_ms() + 5000,
					    .sandbox = sandbox,
					    .request_id = "req"};
	struct ask a = { .r = r };
	struct sandbox_op *op;

	if (snapshot)
		CHECK(!sandbox_snapshot_create(w->core, &s, on_snapshot, &a, &op));
	else
		CHECK(!sandbox_fork(w->core, &f, on_forked, &a, &op));
	while (!a.done)
		CHECK(loop_once(w->loop, 1000) >= 0);
}

/* In a child: the sandbox (made, or found by its name), the call; ends by the failpoint or by itself. */
static void live(struct fake *f, const char *point, bool snapshot, struct report *r)
{
	struct world w = { .fake = f };
	struct sandbox_create c = a_create("sandbox");
	struct answer a;

	log_setup(LOG_LEVEL_ERROR);
	if (point)
		setenv("AGENTBOXD_FAILPOINT", point, 1);
	else
		unsetenv("AGENTBOXD_FAILPOINT");
	world_start(&w);
	c.name = "sandbox";
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	call(&w, snapshot, a.id, r);
	world_stop(&w);
	exit(0);
}

static int in_child(struct fake *f, const char *point, bool snapshot, struct report *r)
{
	int wstatus;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid)
		live(f, point, snapshot, r);
	CHECK(waitpid(pid, &wstatus, 0) == pid);
	return wstatus;
}

static unsigned made(const struct fake *f, bool snapshot)
{
	return snapshot ? f->n_snapshots : f->n_sandboxes - 1;
}

static void play(const char *at, enum fake_create how, bool snapshot)
{
	struct fake *f = fake_new();
	struct report *r = (struct report *)(void *)fake_new();
	unsigned all = snapshot ? 1 : COUNT;
	char point[64];
	int wstatus;

	_Static_assert(sizeof(struct report) <= sizeof(struct fake), "report fits");
	snprintf(world_dir, sizeof(world_dir), "/tmp/ab-crash-XXXXXX");
	CHECK(mkdtemp(world_dir));
	f->copy = how;
	f->copy_n = how == FAKE_ACCEPT ? 0 : 1;
	snprintf(point, sizeof(point), "%s=kill", at);
	wstatus = in_child(f, point, snapshot, r);
	if (!was_killed(wstatus))
		fprintf(stderr, "%s how=%d: not killed (status %x)\n", at, how, wstatus);
	CHECK(was_killed(wstatus));
	CHECK(made(f, snapshot) == 0 || made(f, snapshot) == all);
	memset(r, 0, sizeof(*r));
	CHECK_INT(in_child(f, NULL, snapshot, r), 0);
	CHECK(r->answered);
	CHECK(made(f, snapshot) == 0 || made(f, snapshot) == all);
	if (made(f, snapshot)) {
		CHECK(status_ok(&r->st));
		CHECK_INT(r->n, all);
	} else {
		CHECK_INT(r->st.reason, R_OUTCOME_UNKNOWN);	/* a POST that may have been sent */
	}
	for (unsigned i = 0; i < r->n && !snapshot; i++)
		CHECK(fake_find(f, r->ids[i]));
	for (unsigned i = 0; i < r->n && snapshot; i++)
		CHECK_STR(r->ids[i], f->snapshots[0].id);
	CHECK_INT(f->kills, 0);
	run_sh("rm -rf %s", world_dir);
	fake_free(f);
	fake_free((struct fake *)(void *)r);
}

TEST(fork_killed_anywhere)
{
	for (size_t i = 0; i < ARRAY_SIZE(points); i++)
		play(points[i], FAKE_ACCEPT, false);
}

TEST(fork_killed_while_settling)
{
	for (size_t i = 0; i < ARRAY_SIZE(resolve_points); i++)
		play(resolve_points[i], FAKE_ACCEPT_LOSE, false);
	play("copy.resolve_listed", FAKE_LOSE, false);
}

TEST(snapshot_killed_anywhere)
{
	for (size_t i = 0; i < ARRAY_SIZE(points); i++)
		play(points[i], FAKE_ACCEPT, true);
}

TEST(snapshot_killed_while_settling)
{
	for (size_t i = 0; i < ARRAY_SIZE(resolve_points); i++)
		play(resolve_points[i], FAKE_ACCEPT_LOSE, true);
	play("copy.resolve_listed", FAKE_LOSE, true);
}

TEST_MAIN()
