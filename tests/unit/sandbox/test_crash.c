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

struct report {			/* what a child saw, in shared memory */
	bool answered;
	struct status st;
	char id[64];
	unsigned running, intents;
	char named[64];
	bool listed;
};

/* In a child: one life, one call; ends by the failpoint or by itself. */
static void live(struct fake *f, const char *point, bool ask, struct report *r)
{
	struct world w = { .fake = f };
	struct sandbox_create c = a_create("req");
	struct sandbox_core_counts n;
	struct answer a;

	log_setup(LOG_LEVEL_ERROR);
	if (point)
		setenv("AGENTBOXD_FAILPOINT", point, 1);
	else
		unsetenv("AGENTBOXD_FAILPOINT");
	world_start(&w);
	c.name = "sandbox";
	if (ask) {
		a = do_create(&w, &c);
		r->answered = true;
		r->st = a.st;
		(void)str_copy(r->id, sizeof(r->id), a.id);
	} else {
		/* Recovery alone, until no intent is open any more. */
		do {
			CHECK(loop_once(w.loop, 20) >= 0);
			sandbox_core_count(w.core, (uid_t)-1, &n);
		} while (n.intents);
	}
	sandbox_core_count(w.core, (uid_t)-1, &n);
	r->running = n.running;
	r->intents = n.intents;
	a = do_get(&w, &alice, "sandbox", 0);
	(void)str_copy(r->named, sizeof(r->named), a.id);
	world_stop(&w);
	exit(0);
}

static int in_child(struct fake *f, const char *point, bool ask, struct report *r)
{
	int wstatus;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid)
		live(f, point, ask, r);
	CHECK(waitpid(pid, &wstatus, 0) == pid);
	return wstatus;
}

static struct report *report_new(void)
{
	return (struct report *)(void *)fake_new(); /* any shared memory will do; it is larger */
}

struct scene {
	const char *point;
	enum fake_create how;
	bool ask_again;
};

/* Runs until killed, recovers, repeats the call. */
static void play(const struct scene *s)
{
	struct fake *f = fake_new();
	struct report *r = report_new();
	char point[64];
	int wstatus;

	_Static_assert(sizeof(struct report) <= sizeof(struct fake), "report fits");
	snprintf(world_dir, sizeof(world_dir), "/tmp/ab-crash-XXXXXX");
	CHECK(mkdtemp(world_dir));
	f->create = s->how;
	f->create_n = s->how == FAKE_ACCEPT ? 0 : 1;
	snprintf(point, sizeof(point), "%s=kill", s->point);
	wstatus = in_child(f, point, true, r);
	if (!was_killed(wstatus))
		fprintf(stderr, "%s how=%d: not killed (status %x)\n", s->point, s->how, wstatus);
	CHECK(was_killed(wstatus));
	CHECK(f->n_sandboxes <= 1);

	/* After recovery alone: known, or none. */
	memset(r, 0, sizeof(*r));
	wstatus = in_child(f, NULL, false, r);
	CHECK_INT(wstatus, 0);
	CHECK_INT(r->intents, 0);
	CHECK_INT(r->running, fake_alive(f));
	CHECK_INT(f->n_sandboxes, fake_alive(f)); /* nothing was killed */
	if (fake_alive(f))
		CHECK_STR(r->named, f->sandboxes[0].id);
	else
		CHECK_STR(r->named, "");

	/* The caller repeats: the same one, never a second. */
	memset(r, 0, sizeof(*r));
	wstatus = in_child(f, NULL, true, r);
	CHECK_INT(wstatus, 0);
	CHECK(r->answered);
	CHECK(f->n_sandboxes <= 1);
	if (status_ok(&r->st))
		CHECK_STR(r->id, f->sandboxes[0].id);
	else
		CHECK_INT(r->st.reason, R_OUTCOME_UNKNOWN); /* a POST that may have been sent */
	if (f->n_sandboxes)
		CHECK(status_ok(&r->st));
	CHECK_INT(f->kills, 0);
	run_sh("rm -rf %s", world_dir);
	fake_free(f);
	fake_free((struct fake *)(void *)r);
}

TEST(every_point_of_create)
{
	for (size_t i = 0; i < ARRAY_SIZE(create_points); i++)
		play(&(struct scene){ .point = create_points[i] });
}

TEST(every_point_of_settlement)
{
	for (size_t i = 0; i < ARRAY_SIZE(resolve_points); i++) {
		bool closes = str_eq(resolve_points[i], "resolve.closed");

		play(&(struct scene){.point = resolve_points[i],
				     .how = closes ? FAKE_LOSE : FAKE_ACCEPT_LOSE});
	}
}

/* A crash during the recovery from a crash. */
TEST(twice)
{
	for (size_t i = 0; i < 4; i++)
		for (size_t k = 0; k < ARRAY_SIZE(resolve_points); k++) {
			struct fake *f = fake_new();
			struct report *r = report_new();
			char point[64];
			int wstatus;

			snprintf(world_dir, sizeof(world_dir), "/tmp/ab-crash-XXXXXX");
			CHECK(mkdtemp(world_dir));
			snprintf(point, sizeof(point), "%s=kill", create_points[2 + i]);
			CHECK(was_killed(in_child(f, point, true, r)));
			snprintf(point, sizeof(point), "%s=kill", resolve_points[k]);
			wstatus = in_child(f, point, false, r);
			CHECK(!wstatus || was_killed(wstatus));	/* it may have nothing to resolve */
			memset(r, 0, sizeof(*r));
			CHECK_INT(in_child(f, NULL, true, r), 0);
			CHECK(f->n_sandboxes <= 1);
			if (f->n_sandboxes) {
				CHECK(status_ok(&r->st));
				CHECK_STR(r->id, f->sandboxes[0].id);
			}
			CHECK_INT(f->kills, 0);
			run_sh("rm -rf %s", world_dir);
			fake_free(f);
			fake_free((struct fake *)(void *)r);
		}
}

static void kill_in_child(struct fake *f, const char *point, char id[64])
{
	struct world w = { .fake = f };
	struct sandbox_create c = a_create("req");
	struct answer a;

	log_setup(LOG_LEVEL_ERROR);
	world_start(&w);
	c.name = "sandbox";
	a = do_create(&w, &c);
	(void)str_copy(id, 64, a.id);
	setenv("AGENTBOXD_FAILPOINT", point, 1);
	(void)do_kill(&w, &alice, "sandbox");
	exit(1); /* it should have been killed */
}

/* The kill that was decided is carried out by the next start. */
static void recover_kill(struct fake *f, const char *id)
{
	struct world w = { .fake = f };
	struct answer a;

	unsetenv("AGENTBOXD_FAILPOINT");
	log_setup(LOG_LEVEL_ERROR);
	world_start(&w);
	for (int k = 0; k < 100 && fake_alive(f); k++)
		CHECK(loop_once(w.loop, 50) >= 0);
	CHECK_INT(fake_alive(f), 0);
	UNTIL(&w, counts(&w).gone == 1);
	a = do_get(&w, &alice, id, SANDBOX_STALENESS_DEFAULT);
	CHECK_INT(a.state, SANDBOX_GONE);
	CHECK_INT(a.gone_reason, R_SANDBOX_KILLED);
	a = do_get(&w, &alice, "sandbox", SANDBOX_STALENESS_DEFAULT);
	CHECK_INT(a.st.reason, R_SANDBOX_NOT_FOUND);
	world_stop(&w);
	exit(0);
}

TEST(every_point_of_kill)
{
	static const char *const points[] = { "kill.intent_committed=kill", "kill.sent=kill",
					      "kill.answered=kill", "kill.done=kill" };

	for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
		struct fake *f = fake_new();
		char *id = (char *)fake_new();
		int wstatus;
		pid_t pid;

		snprintf(world_dir, sizeof(world_dir), "/tmp/ab-crash-XXXXXX");
		CHECK(mkdtemp(world_dir));
		fflush(stdout);
		pid = fork();
		if (!pid)
			kill_in_child(f, points[i], id);
		CHECK(waitpid(pid, &wstatus, 0) == pid && was_killed(wstatus));
		pid = fork();
		if (!pid)
			recover_kill(f, id);
		CHECK(waitpid(pid, &wstatus, 0) == pid);
		CHECK_INT(wstatus, 0);
		run_sh("rm -rf %s", world_dir);
		fake_free(f);
		fake_free((struct fake *)(void *)id);
	}
}

TEST_MAIN()
