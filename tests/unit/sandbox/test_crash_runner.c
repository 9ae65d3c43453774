/* SPDX-License-Identifier: MIT */
/*
 * kill -9 of the daemon between any two steps of what it does by itself. An owner with a process lease dies, or lives;
 * the daemon dies at a failpoint; the next one finishes what was begun, and only that: the sandbox of a dead
 * owner is ended as its policy says, the one of a living owner is never touched.
 */
#include <sys/prctl.h>

#include "proto/base/fd.h"
#include "tests/unit/sandbox/world.h"

struct scene {
	const char *point;
	enum policy_action on_release;
	bool owner_dies;
};

static pid_t owner_new(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

/* In a child, until it is killed. */
static void live(struct fake *f, const struct scene *s, pid_t owner)
{
	struct world w = { .fake = f, .restart_grace_ms = 200 };
	struct sandbox_create c = a_create("req");
	struct principal p = { .uid = alice.uid, .pid = owner, .pidfd = -1 };
	uint64_t until = clock_boot_ms() + 5000;
	char point[64];

	snprintf(point, sizeof(point), "%s=kill", s->point);
	setenv("AGENTBOXD_FAILPOINT", point, 1);
	log_setup(LOG_LEVEL_ERROR);
	CHECK(!fd_pidfd(owner, &p.pidfd));
	world_start(&w);
	c.who = &p;
	c.process_lease = true;
	c.timeout_ms = 15000;
	c.policy.set = BIT(POLICY_F_ON_RELEASE) | BIT(POLICY_F_RELEASE_GRACE);
	c.policy.to.on_release = s->on_release;
	CHECK_INT(do_create(&w, &c).st.reason, REASON_NONE);
	f->sandboxes[0].end_at_ms = clock_wall_ms() + 1000;	/* to be extended soon, if leased */
	(void)do_get(&w, &p, f->sandboxes[0].id, 0);
	if (s->owner_dies)
		CHECK(!kill(owner, SIGKILL));
	while (clock_boot_ms() < until)
		CHECK(loop_once(w.loop, 20) >= 0);
	exit(9);	/* the point was not passed */
}

static bool is_over(const struct fake *f, const struct scene *s)
{
	const struct fake_sandbox *b = &f->sandboxes[0];

	if (!s->owner_dies)
		return f->refreshes > 0 && b->end_at_ms > clock_wall_ms() + 14000;
	return s->on_release == POLICY_KILL ? !b->alive : b->paused;
}

static void recover(struct fake *f, const struct scene *s)
{
	struct world w = { .fake = f, .restart_grace_ms = 200 };
	uint64_t until = clock_boot_ms() + 10000;
	struct sandbox_core_counts n;
	unsigned deletes;

	unsetenv("AGENTBOXD_FAILPOINT");
	log_setup(LOG_LEVEL_ERROR);
	world_start(&w);
	while (!is_over(f, s)) {
		CHECK(loop_once(w.loop, 20) >= 0);
		CHECK(clock_boot_ms() < until);
	}
	spin(&w, 300);
	sandbox_core_count(w.core, alice.uid, &n);
	CHECK_INT(n.leases, !s->owner_dies);
	CHECK_INT(n.gone, s->owner_dies && s->on_release == POLICY_KILL);
	deletes = f->sandboxes[0].deletes;
	CHECK_INT(deletes, s->owner_dies && s->on_release == POLICY_KILL);
	CHECK_INT(f->posts, 1);
	CHECK_INT(f->timeouts + f->connects, 0);
	world_stop(&w);
	exit(0);
}

static void play(const struct scene *s)
{
	struct fake *f = fake_new();
	pid_t owner = owner_new(), pid;
	int wstatus;

	snprintf(world_dir, sizeof(world_dir), "/tmp/ab-crash-XXXXXX");
	CHECK(mkdtemp(world_dir));
	fflush(stdout);
	pid = fork();
	if (!pid)
		live(f, s, owner);
	CHECK(waitpid(pid, &wstatus, 0) == pid);
	if (!was_killed(wstatus)) {
		fprintf(stderr, "%s: not killed (status %x)\n", s->point, wstatus);
		exit(1);
	}
	pid = fork();
	if (!pid)
		recover(f, s);
	CHECK(waitpid(pid, &wstatus, 0) == pid);
	if (wstatus) {
		fprintf(stderr, "%s: recovery failed (status %x)\n", s->point, wstatus);
		exit(1);
	}
	(void)kill(owner, SIGKILL);
	CHECK(waitpid(owner, NULL, 0) == owner);
	run_sh("rm -rf %s", world_dir);
	fake_free(f);
}

TEST(every_point)
{
	static const struct scene t[] = {
		{ "lease.before_end", POLICY_KILL, true },
		{ "policy.check", POLICY_KILL, true },
		{ "kill.intent_committed", POLICY_KILL, true },
		{ "kill.sent", POLICY_KILL, true },
		{ "kill.answered", POLICY_KILL, true },
		{ "kill.done", POLICY_KILL, true },
		{ "lease.before_end", POLICY_PAUSE, true },
		{ "policy.check", POLICY_PAUSE, true },
		{ "pause.sent", POLICY_PAUSE, true },
		{ "extend.sent", POLICY_KILL, false },
		{ "create.active_committed", POLICY_KILL, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		play(&t[i]);
}

TEST_MAIN()
