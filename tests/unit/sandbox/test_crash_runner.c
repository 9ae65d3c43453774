/* SPDX-License-Identifier: MIT */
/*
 * kill -9 of the daemon between any two steps of what it does by itself. An owner with a process lease dies, or lives;
 * the daemon dies at a failpoint; the next one finishes what was begun, and only that: the sandbox of a dead
 * owner is ended as its policy says, the one of a living owner is never touched.
 */
#include <poll.h>

#include "proto/base/fd.h"
#include "tests/unit/sandbox/world.h"

struct scene {
	const char *point;
	enum policy_action on_release;
	bool owner_dies;
	/* Of the playing. */
	struct fake *fake;
	pid_t owner;
};

/* In a child, until it is killed. */
static void live(void *arg)
{
	const struct scene *s = arg;
	struct fake *f = s->fake;
	struct world w = { .fake = f, .restart_grace_ms = 200 };
	struct create c = a_create("req");
	struct principal p = { .uid = alice.uid, .pid = s->owner, .pidfd = -1 };

	die_at(s->point);
	CHECK(!fd_pidfd(s->owner, &p.pidfd));
	world_start(&w);
	c.who = &p;
	c.process_lease = true;
	c.timeout_ms = 15000;
	c.policy.set = BIT(POLICY_F_ON_RELEASE) | BIT(POLICY_F_RELEASE_GRACE);
	c.policy.to.on_release = s->on_release;
	CHECK_INT(do_create(&w, &c).st.reason, REASON_NONE);
	f->sandboxes[0].end_at_ms = clock_wall_ms() + 1000;	/* to be extended soon, if leased */
	(void)do_get(&w, &p, f->sandboxes[0].id, 0);
	if (s->owner_dies) {
		CHECK(!kill(s->owner, SIGKILL));
		CHECK(poll(&(struct pollfd){ .fd = p.pidfd, .events = POLLIN }, 1, -1) == 1);
	}
	spin(&w, 5000);
	exit(9);	/* the point was not passed */
}

static bool is_over(const struct fake *f, const struct scene *s)
{
	const struct fake_sandbox *b = &f->sandboxes[0];

	if (!s->owner_dies)
		return f->seen[FAKE_REFRESH] > 0 && b->end_at_ms > clock_wall_ms() + 14000;
	return s->on_release == POLICY_KILL ? !b->alive : b->paused;
}

static void recover(void *arg)
{
	const struct scene *s = arg;
	struct fake *f = s->fake;
	struct world w = { .fake = f, .restart_grace_ms = 200 };
	struct sandbox_core_counts n;
	unsigned deletes;

	world_start(&w);
	UNTIL(&w, is_over(f, s));
	spin(&w, 300);
	sandbox_core_count(w.core, alice.uid, &n);
	CHECK_INT(n.leases, !s->owner_dies);
	CHECK_INT(n.gone, s->owner_dies && s->on_release == POLICY_KILL);
	deletes = f->sandboxes[0].deletes;
	CHECK_INT(deletes, s->owner_dies && s->on_release == POLICY_KILL);
	CHECK_INT(f->seen[FAKE_CREATE], 1);
	CHECK_INT(f->seen[FAKE_TIMEOUT] + f->seen[FAKE_CONNECT], 0);
	world_stop(&w);
}

static void play(struct scene *s, int way)
{
	int wstatus;

	s->fake = fake_new();
	s->owner = idle_child();
	world_dir_new();
	crash_way(s->fake, way);
	wstatus = in_child(live, s);
	if (!was_killed(wstatus)) {
		fprintf(stderr, "%s: not killed (status %x)\n", s->point, wstatus);
		exit(1);
	}
	wstatus = in_child(recover, s);
	if (wstatus) {
		fprintf(stderr, "%s: recovery failed (status %x)\n", s->point, wstatus);
		exit(1);
	}
	(void)kill(s->owner, SIGKILL);
	CHECK(waitpid(s->owner, NULL, 0) == s->owner);
	world_dir_free();
	fake_free(s->fake);
}

TEST(every_point)
{
	struct scene t[] = {
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

	for (size_t i = 0; i < 2 * ARRAY_SIZE(t); i++)
		play(&t[i / 2], i % 2);
}

TEST_MAIN()
