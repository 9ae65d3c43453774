/* SPDX-License-Identifier: MIT */
/* Databases that were lost, restored or put back, and a host id that somebody else uses: nothing is ended
 * or made twice because of what is not known. */
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/rules/tags.h"
#include "tests/unit/sandbox/world.h"

struct policy_answer {
	bool done;
	struct policy policy;
};

static void on_policy(void *user, const struct status *st, const struct sandbox_view *b)
{
	struct policy_answer *a = user;

	CHECK(status_ok(st));
	a->done = true;
	a->policy = b->policy;
}

static struct policy policy_of(struct world *w, const char *sandbox)
{
	struct policy_answer a = { 0 };
	struct sandbox_op *op;

	CHECK(!sandbox_get(w->core, CALL(&alice, sandbox, clock_boot_ms() + 1000, &a), 3600000,
			   on_policy, &op));
	UNTIL(w, a.done);
	return a.policy;
}

static void set_grace(struct world *w, const char *sandbox, uint64_t ms)
{
	struct policy_change c = { .set = BIT(POLICY_F_RELEASE_GRACE), .to = { .release_grace_ms = ms } };
	struct answer a = { .w = w };

	CHECK(!sandbox_set_policy(w->core, CALL(&alice, sandbox, clock_boot_ms() + 5000, &a), &c, 0,
				  on_sandbox, &a.op));
	wait_for(w, &a);
	CHECK(status_ok(&a.st));
}

static struct create named(const char *request_id, const char *name)
{
	struct create c = a_create(request_id);

	c.name = name;
	c.policy.set = BIT(POLICY_F_ON_RELEASE) | BIT(POLICY_F_RELEASE_GRACE);
	c.policy.to.on_release = POLICY_KILL;
	c.policy.to.release_grace_ms = 7000;
	return c;
}

static void until_listed(struct world *w)
{
	UNTIL(w, counts(w).reconciled_at_ms);
}

static const char *doubt_text(struct world *w)
{
	struct sandbox_core_counts n;

	sandbox_core_count(w->core, (uid_t)-1, &n);
	return n.doubt_text;
}

/* With the copy: what was set later is there. Without: what the tags say, and one report. */
TEST(lost)
{
	struct create c;
	struct answer a, b;
	struct world w;

	for (int both = 0; both < 2; both++) {
		world_new(&w);
		c = named("r1", "sandbox");
		a = do_create(&w, &c);
		set_grace(&w, "sandbox", 9000);
		world_stop(&w);
		run_sh("rm %s/agentboxd.db*; %s %s/backup.db", world_dir, both ? "rm" : "test -f", world_dir);
		world_start(&w);
		/* Not before the cloud was asked, and then the same one: by its tag, or its name. */
		b = do_create(&w, &c);
		CHECK(status_ok(&b.st));
		CHECK_STR(a.id, b.id);
		c = named("", "sandbox");
		b = do_create(&w, &c);
		CHECK_STR(a.id, b.id);
		CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
		CHECK_INT(policy_of(&w, "sandbox").release_grace_ms, both ? 7000 : 9000);
		CHECK_INT(policy_of(&w, "sandbox").on_release, POLICY_KILL);
		CHECK(doubt_text(&w) && strstr(doubt_text(&w), both ? "second copy were lost" : "came back"));
		world_restart(&w); /* and then it is as it should be */
		until_listed(&w);
		CHECK(!doubt_text(&w));
		CHECK_INT(policy_of(&w, "sandbox").release_grace_ms, both ? 7000 : 9000);
		CHECK_INT(w.fake->seen[FAKE_KILL], 0);
		world_free(&w);
	}
}

static void on_forked(void *user, const struct status *st, const struct sandbox_child *v, size_t n)
{
	CHECK(status_ok(st));
	*(bool *)user = true;
}

/* Children of a fork carry their parent's tag, and when they started is not known until a list says it: the request id is their parent's. */
TEST(lost_and_then_forked)
{
	struct sandbox_create children = { 0 };
	struct sandbox_op *op;
	struct create c;
	struct answer a, b;
	bool forked = false;
	struct world w;

	world_new(&w);
	c = named("r1", "sandbox");
	a = do_create(&w, &c);
	world_stop(&w);
	run_sh("rm %s/agentboxd.db* %s/backup.db", world_dir, world_dir);
	world_start(&w);
	until_listed(&w);
	fake_next(w.fake, FAKE_FORK, 1, FAKE_HOLD);
	CHECK(!sandbox_fork(w.core, CALL(&alice, a.id, clock_boot_ms() + 5000, &forked), &children, 2, on_forked, &op));
	UNTIL(&w, w.fake->seen[FAKE_FORK] == 1);
	fake_next(w.fake, FAKE_LIST, 1, FAKE_LOST_BEFORE);
	w.fake->released = true;
	UNTIL(&w, forked);
	b = do_create(&w, &c);
	CHECK_STR(a.id, b.id);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	world_free(&w);
}

/* The cloud is away after the loss: a creation that may be a repeat waits for it. */
TEST(lost_and_the_cloud_is_away)
{
	struct create c;
	struct answer a, b;
	struct world w;

	world_new(&w);
	c = named("r1", "sandbox");
	a = do_create(&w, &c);
	world_stop(&w);
	run_sh("rm %s/agentboxd.db* %s/backup.db", world_dir, world_dir);
	w.fake->down = true;
	world_start(&w);
	begin_create(&w, &b, &c);
	spin(&w, 200);
	CHECK(!b.done);
	w.fake->down = false;
	wait_for(&w, &b);
	CHECK(status_ok(&b.st));
	CHECK_STR(a.id, b.id);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	world_free(&w);
}

/* An earlier database: what it holds for released is used by somebody it knows nothing of. */
TEST(rolled_back)
{
	struct create c;
	struct answer a, b, again;
	struct world w = { .unclaimed_grace_ms = 100, .restart_grace_ms = 100 };

	world_new_with(&w);
	c = named("r1", "sandbox");
	c.policy.to.release_grace_ms = 300;
	a = do_create(&w, &c);
	world_stop(&w);
	run_sh("cp %s/agentboxd.db %s/old", world_dir, world_dir);
	world_start(&w);
	c = named("r2", "box2");
	c.policy.to.release_grace_ms = 300;
	b = do_create(&w, &c);
	world_stop(&w);
	run_sh("cd %s; rm backup.db; cp old agentboxd.db", world_dir);
	world_start(&w);
	again = do_create(&w, &c);
	CHECK_STR(again.id, b.id);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 2);
	spin(&w, 1500);
	CHECK_INT(w.fake->seen[FAKE_KILL], 0);
	CHECK(do_get(&w, &alice, "sandbox", 0).adopted);
	CHECK(do_get(&w, &alice, "box2", 0).adopted);
	CHECK(strstr(doubt_text(&w), "older"));
	world_restart(&w); /* it stays so */
	spin(&w, 1000);
	CHECK_INT(w.fake->seen[FAKE_KILL], 0);
	CHECK(do_get(&w, &alice, a.id, 0).adopted);
	b = do_kill(&w, &alice, "sandbox"); /* its owner may, of course */
	CHECK(b.yes);
	world_free(&w);
}

/* The whole directory was put back, host-id too: only the cloud's numbers tell. The same is seen when
 * somebody else uses our identity. */
TEST(a_number_that_nobody_here_gave)
{
	struct fake_sandbox *x;
	struct create c;
	struct answer a;
	struct world w = { .unclaimed_grace_ms = 100, .restart_grace_ms = 100, .reconcile_period_ms = 200 };
	char seq[24];

	for (int alive = 0; alive < 2; alive++) {
		world_new_with(&w);
		c = named("r1", "sandbox");
		a = do_create(&w, &c);
		world_restart(&w);
		until_listed(&w);
		CHECK(!doubt_text(&w));
		if (alive) {	/* … a number of this run, too */
			c = named("r2", "young");
			a = do_create(&w, &c);
			snprintf(seq, sizeof(seq), "%llu",
				 (unsigned long long)core_find(w.core, &w.core->accounts[0], a.id)
					 ->seq);
		} else {
			snprintf(seq, sizeof(seq), "4000");
		}
		x = fake_plant(w.fake, "istranger");
		fake_plant_tag(x, TAG_HOST, store_host_id(w.store));
		fake_plant_tag(x, TAG_UID, "1000");
		fake_plant_tag(x, TAG_REQ, "0123456789abcdef0123456789abcdef");
		fake_plant_tag(x, TAG_SEQ, seq);
		fake_plant_tag(x, TAG_POLICY, "or=kill;rg=0");
		UNTIL(&w, doubt_text(&w));
		spin(&w, 800);
		CHECK_INT(w.fake->seen[FAKE_KILL], 0);
		CHECK(do_get(&w, &alice, "istranger", 0).adopted);
		CHECK(do_get(&w, &alice, "sandbox", 0).adopted);
		if (alive)
			CHECK(!do_get(&w, &alice, "young", 0).adopted);
		world_free(&w);
	}
}

/* What was released before the copy was made waits for a claim, as what is adopted does. */
TEST(released_in_the_copy)
{
	struct world w = { .unclaimed_grace_ms = 4000, .restart_grace_ms = 100 };
	struct create c;
	struct sandbox *b;

	world_new_with(&w);
	c = named("r1", "sandbox");
	c.policy.to.release_grace_ms = 200;
	(void)do_create(&w, &c);
	c = named("r2", "used");
	(void)do_create(&w, &c);
	world_stop(&w);
	run_sh("cd %s; sqlite3 backup.db 'UPDATE sandbox SET released_at_ms = 1' 2>/dev/null || python3 -c \""
	       "import sqlite3; d = sqlite3.connect('backup.db'); d.execute('UPDATE sandbox SET released_at_ms = 1');"
	       " d.commit()\"; rm agentboxd.db", world_dir);
	world_start(&w);
	b = core_find(w.core, &w.core->accounts[0], w.fake->sandboxes[0].id);
	CHECK(b->ours && !b->claimed && !b->released_at_ms);
	(void)do_get(&w, &alice, "used", 0); /* claimed */
	UNTIL(&w, b->state == SANDBOX_GONE);
	CHECK_INT(w.fake->seen[FAKE_KILL], 1);
	CHECK_INT(do_get(&w, &alice, "used", 0).state, SANDBOX_RUNNING);
	world_free(&w);
}

TEST_MAIN()
