/* SPDX-License-Identifier: MIT */
/* Warm sandboxes where something comes in between: reloads, limits, repeats, lost lines, doubt; and the rules of an entry. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "daemon/sandbox/rules/tags.h"
#include "proto/base/fd.h"
#include "tests/unit/sandbox/warm_world.h"

static struct sandbox_warm_entry sized(uint32_t size)
{
	struct sandbox_warm_entry e = an_entry();

	e.size = size;
	return e;
}

static void reload(struct world *w, const struct sandbox_warm_entry *e)
{
	struct sandbox_core_rules r = { .warm = e, .n_warm = e != NULL };

	policy_default(&r.policy);
	CHECK(!sandbox_core_set_rules(w->core, &r));
}

static void set_size(struct world *w, int size)
{
	struct status st;

	CHECK(sandbox_warm_set(w->core, "py", size, &st));
}

static struct answer make_one(struct world *w, const char *request_id)
{
	struct create c = warm_create(request_id, SANDBOX_WARM_NEVER);
	struct answer a = do_create(w, &c);

	CHECK(status_ok(&a.st) && !a.warm);
	return a;
}

static void begin_require(struct world *w, struct answer *a, const struct principal *who, const char *request_id)
{
	struct create c = warm_create(request_id, SANDBOX_WARM_REQUIRE);

	c.who = who;
	begin_create(w, a, &c);
}

static char *claims_path(void)
{
	static char path[96];

	snprintf(path, sizeof(path), "%s/claims", world_dir);
	return path;
}

/* Lines of STATE/claims with that text. */
static unsigned lines(const char *with)
{
	char line[512];
	FILE *f = fopen(claims_path(), "re");
	unsigned n = 0;

	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, with) != NULL;
	if (f)
		fclose(f);
	return n;
}

/* --- what bounds the cost --- */

/* An entry that a reload takes out and another puts back has made what it has made. */
TEST(a_reload_forgets_no_cost)
{
	struct sandbox_warm_entry e = sized(2);
	struct world w;

	e.per_hour = 2;
	warm_world(&w, &e);
	UNTIL_READY(&w, 2);
	reload(&w, NULL);
	UNTIL(&w, fake_alive(w.fake) == 0);
	reload(&w, &e);
	spin(&w, 3000);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 2);
	CHECK_INT(info(&w).made_in_hour, 2);
	reload(&w, NULL);
	w.n_warm = 0;
	world_restart(&w);	/* its row is remembered, too */
	reload(&w, &e);
	spin(&w, 3000);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 2);
	world_free(&w);
}

/* … and what is under way for it counts when it comes back. */
TEST(burst_over_reloads)
{
	struct sandbox_warm_entry e = sized(4);
	struct world w = { .warm = &e, .n_warm = 1 };

	world_new_with(&w);
	fake_next(w.fake, FAKE_CREATE, 100, FAKE_HOLD);
	UNTIL(&w, w.fake->seen[FAKE_CREATE] == 2);
	spin(&w, 2000);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 2);
	reload(&w, NULL);
	spin(&w, 100);
	reload(&w, &e);
	spin(&w, 2000);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 2);
	w.fake->released = true;
	fake_next(w.fake, FAKE_CREATE, 0, FAKE_OK);
	UNTIL_READY(&w, 4);
	spin(&w, 5000);
	CHECK_INT(fake_alive(w.fake), 4);
	world_free(&w);
}

/* One that is made for an entry that is another one by then ends, and the entry has the next one in its place. */
TEST(one_for_an_entry_of_before)
{
	struct sandbox_warm_entry e = sized(1);
	struct world w = { .warm = &e, .n_warm = 1 };

	world_new_with(&w);
	fake_next(w.fake, FAKE_CREATE, 1, FAKE_HOLD);
	UNTIL(&w, w.fake->seen[FAKE_CREATE] == 1);
	e.what.timeout_s = 240;
	reload(&w, &e);
	spin(&w, 2000);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	w.fake->released = true;
	UNTIL_READY(&w, 1);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 2);
	CHECK_INT(w.fake->seen[FAKE_KILL], 1);
	world_free(&w);
}

TEST(per_hour_begins_anew_with_the_hour)
{
	struct sandbox_warm_entry e = sized(1);
	struct world w;

	e.per_hour = 1;
	e.max_age_ms = 2000;
	warm_world(&w, &e);
	UNTIL_READY(&w, 1);
	UNTIL(&w, fake_alive(w.fake) == 0);	/* too old, and no room in this hour */
	spin(&w, 60000);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	w.fake->time.wall_offset_ms += WARM_HOUR_MS;
	set_size(&w, 1);
	UNTIL_READY(&w, 1);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 2);
	world_free(&w);
}

/* Kept full only so long after a Create that fitted. */
TEST(active)
{
	struct sandbox_warm_entry e = sized(2);
	struct answer a;
	struct world w;

	e.active_ms = 5000;
	e.max_age_ms = 8000;
	warm_world(&w, &e);
	spin(&w, 3000);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 0);
	a = claim(&w, "r1");
	CHECK(status_ok(&a.st) && !a.warm);
	UNTIL_READY(&w, 2);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 3);
	UNTIL(&w, fake_alive(w.fake) == 1);	/* nobody asked any more: those that were too old were not replaced */
	spin(&w, 10000);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 3);
	a = claim(&w, "r2");
	CHECK(!a.warm);
	UNTIL_READY(&w, 2);
	CHECK(claim(&w, "r3").warm);
	world_free(&w);
}

/* Before a stop nothing is made anew for one that was claimed, and what is waited for is what was under way then. */
TEST(none_are_made_before_a_stop)
{
	struct sandbox_warm_entry e = sized(2);
	struct answer first, second, claimed;
	struct create q;
	struct world w;

	warm_world(&w, &e);
	UNTIL_READY(&w, 2);
	q = warm_create("r1", SANDBOX_WARM_NEVER);
	begin_create(&w, &first, &q);
	UNTIL(&w, counts(&w).intents == 1);
	sandbox_core_settle(w.core);
	CHECK_INT(sandbox_core_unsettled(w.core), 1);
	q = warm_create("r2", SANDBOX_WARM_NEVER);
	begin_create(&w, &second, &q);
	CHECK_INT(sandbox_core_unsettled(w.core), 1);
	UNTIL(&w, first.done && second.done);
	CHECK(status_ok(&first.st) && status_ok(&second.st));
	CHECK_INT(sandbox_core_unsettled(w.core), 0);
	claimed = claim(&w, "r3");
	CHECK(status_ok(&claimed.st) && claimed.warm);
	spin(&w, 500);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 4);
	world_free(&w);
}

/* --- who needs room --- */

/* Two places are wanted while one that waited ends already: another one ends, and nothing turns in circles. */
TEST(one_that_ends_is_room_for_one)
{
	struct sandbox_warm_entry e = sized(3);
	struct answer a, b, c;
	struct create q;
	struct world w = { .warm = &e, .n_warm = 1, .max_sandboxes = 4 };

	world_new_with(&w);
	(void)make_one(&w, "r1");
	UNTIL_READY(&w, 3);
	q = warm_create("r2", SANDBOX_WARM_NEVER);
	begin_create(&w, &a, &q);
	q = warm_create("r3", SANDBOX_WARM_NEVER);
	begin_create(&w, &b, &q);
	q = warm_create("r4", SANDBOX_WARM_NEVER);
	begin_create(&w, &c, &q);
	UNTIL(&w, a.done && b.done && c.done);
	CHECK(status_ok(&a.st) && status_ok(&b.st) && status_ok(&c.st));
	UNTIL(&w, fake_alive(w.fake) == 4);
	CHECK_INT(info(&w).ready + info(&w).coming, 0);
	a = do_create(&w, &(struct create){ .who = &alice, .request_id = "r5", .deadline_ms = clock_boot_ms() + 5000 });
	CHECK_INT(a.st.reason, R_QUOTA_UID);
	world_free(&w);
}

struct forked {
	bool done;
	struct status st;
	size_t n;
};

static void on_forked(void *user, const struct status *st, const struct sandbox_child *v, size_t n)
{
	struct forked *f = user;

	*f = (struct forked){ .done = true, .st = *st, .n = n };
}

/* More live than may, since one was found late or the limit is a lower one: those that nobody has claimed end for them. */
TEST(more_than_there_may_be)
{
	struct sandbox_warm_entry e = sized(3);
	struct world w = { .warm = &e, .n_warm = 1, .max_sandboxes = 5 };
	struct answer a;

	world_new_with(&w);
	a = make_one(&w, "r1");
	UNTIL_READY(&w, 3);
	w.core->accounts[0].max_sandboxes = 2;
	warm_poke_all(w.core);
	UNTIL(&w, fake_alive(w.fake) == 2);
	spin(&w, 20000);
	CHECK_INT(fake_alive(w.fake), 2);
	CHECK(fake_find(w.fake, a.id));
	world_free(&w);
}

TEST(a_fork_needs_room_for_each_child)
{
	struct sandbox_warm_entry e = sized(3);
	struct sandbox_create children = { 0 };
	struct forked f = { 0 };
	struct sandbox_op *op;
	struct create q;
	struct answer a, b;
	struct world w = { .warm = &e, .n_warm = 1, .max_sandboxes = 5 };

	world_new_with(&w);
	a = make_one(&w, "r1");
	(void)make_one(&w, "r2");
	UNTIL_READY(&w, 3);
	q = warm_create("r3", SANDBOX_WARM_NEVER);
	begin_create(&w, &b, &q);
	CHECK(!sandbox_fork(w.core, CALL(&alice, a.id, clock_boot_ms() + 20000, &f), &children, 2, on_forked, &op));
	UNTIL(&w, f.done && b.done);
	CHECK(status_ok(&b.st) && status_ok(&f.st));
	UNTIL(&w, fake_alive(w.fake) == 5);
	CHECK_INT(info(&w).ready + info(&w).coming, 0);
	world_free(&w);
}

/* What was not ready yet cannot end for it: it ends as soon as it is there. */
TEST(one_that_is_being_made_gives_way)
{
	struct sandbox_warm_entry e = sized(2);
	struct world w = { .warm = &e, .n_warm = 1, .max_sandboxes = 2 };
	struct answer a;

	world_new_with(&w);
	fake_next(w.fake, FAKE_CREATE, 2, FAKE_HOLD);
	UNTIL(&w, w.fake->seen[FAKE_CREATE] == 2);
	a = make_one(&w, "r1");
	w.fake->released = true;
	UNTIL(&w, info(&w).ready == 1 && fake_alive(w.fake) == 2);
	spin(&w, 5000);
	CHECK_INT(fake_alive(w.fake), 2);
	CHECK(fake_find(w.fake, a.id) != NULL);
	world_free(&w);
}

/* --- whose turn it is --- */

/* Somebody who asks for many does not go before somebody who asks for one. */
TEST(turns_of_uids)
{
	struct sandbox_warm_entry e = sized(0);
	struct answer a[3], b;
	struct world w;

	e.per_hour = 2;
	e.burst = 1;
	warm_world(&w, &e);
	begin_require(&w, &a[0], &alice, "r1");
	begin_require(&w, &a[1], &alice, "r2");
	begin_require(&w, &a[2], &alice, "r3");
	begin_require(&w, &b, &bob, "r1");
	UNTIL(&w, info(&w).waiting == 4);
	set_size(&w, 1);
	UNTIL(&w, info(&w).hits == 2);
	UNTIL(&w, b.done);
	CHECK(status_ok(&b.st) && b.warm && b.owner == 1001);
	UNTIL(&w, a[0].done);
	CHECK(status_ok(&a[0].st) && a[0].warm);
	CHECK(!a[1].done && !a[2].done);
	UNTIL(&w, a[1].done && a[2].done);	/* their deadline */
	CHECK_INT(a[1].st.reason, R_SANDBOX_NOT_READY);
	world_free(&w);
}

/* A repeat that waits, too, gets what the first one got, and not a second one. */
TEST(one_request_gets_one)
{
	struct sandbox_warm_entry e = sized(0);
	struct create c = { .who = &alice, .name = "box", .warm = SANDBOX_WARM_REQUIRE };
	struct answer a[4];
	struct world w;

	warm_world(&w, &e);
	c.deadline_ms = clock_boot_ms() + 20000;
	begin_require(&w, &a[0], &alice, "r1");
	begin_require(&w, &a[1], &alice, "r1");
	begin_create(&w, &a[2], &c);
	begin_create(&w, &a[3], &c);
	UNTIL(&w, info(&w).waiting == 4);
	set_size(&w, 4);
	UNTIL(&w, a[0].done && a[1].done && a[2].done && a[3].done);
	CHECK(status_ok(&a[0].st) && status_ok(&a[2].st));
	CHECK_STR(a[0].id, a[1].id);
	CHECK_STR(a[2].id, a[3].id);
	CHECK(strcmp(a[0].id, a[2].id) != 0);
	CHECK_INT(info(&w).hits, 2);
	world_free(&w);
}

/* A name that a kill has freed is free behind a restart, too, while the DELETE is repeated. */
TEST(the_name_of_one_that_is_being_killed)
{
	struct sandbox_warm_entry e = sized(1);
	struct create c = { .who = &alice, .name = "box", .warm = SANDBOX_WARM_NEVER };
	struct sandbox_op *op;
	struct answer a, k = { 0 };
	struct world w;

	warm_world(&w, &e);
	for (int i = 0; i < 2; i++) {
		UNTIL_READY(&w, 1);
		c.deadline_ms = clock_boot_ms() + 10000;
		a = do_create(&w, &c);
		CHECK(status_ok(&a.st));
		fake_next(w.fake, FAKE_KILL, 1000, FAKE_UNSENT);
		CHECK(!sandbox_kill(w.core, CALL(&alice, "box", clock_boot_ms() + 5000, &k), on_yes, &op));
		spin(&w, 100);
		world_restart(&w);
		UNTIL_READY(&w, 1);
		k = (struct answer){ 0 };
		c.warm = i ? SANDBOX_WARM_REQUIRE : SANDBOX_WARM_NEVER;
		c.deadline_ms = clock_boot_ms() + 10000;
		a = do_create(&w, &c);
		CHECK(status_ok(&a.st));
		CHECK_STR(a.name, "box");
		CHECK_STR(do_get(&w, &alice, "box", 0).id, a.id);
		fake_next(w.fake, FAKE_KILL, 0, FAKE_OK);
		CHECK(do_kill(&w, &alice, "box").yes);
	}
	world_free(&w);
}

/* --- what is given --- */

/* What is called ready can be had: after a start not before its agent has answered. */
TEST(ready_after_a_start)
{
	struct sandbox_warm_entry e = an_entry();
	struct world w;

	warm_world(&w, &e);
	UNTIL_READY(&w, 2);
	world_restart(&w);
	CHECK_INT(info(&w).ready, 0);
	CHECK_INT(info(&w).coming, 2);
	UNTIL_READY(&w, 2);
	CHECK(claim(&w, "r1").warm);
	world_free(&w);
}

/* Neither before it is looked at again, nor where a reload has made it too old. */
TEST(one_that_is_too_old_is_not_given)
{
	struct sandbox_warm_entry e = sized(1);
	struct answer a;
	struct world w;

	warm_world(&w, &e);
	UNTIL_READY(&w, 1);
	spin(&w, 3000);
	e.max_age_ms = 2000;
	reload(&w, &e);
	a = claim(&w, "r1");
	CHECK(status_ok(&a.st) && !a.warm);
	UNTIL(&w, !w.fake->sandboxes[0].alive);
	UNTIL_READY(&w, 1);
	CHECK(claim(&w, "r2").warm);
	world_free(&w);
}

/* The age that its policy ends it by is the caller's time, not that of waiting. */
/* When it became ready was written by a clock that turned out to be another one than the cloud's. */
TEST(ready_in_the_future)
{
	struct sandbox_warm_entry e = sized(1);
	struct world w = { .warm = &e, .n_warm = 1 };
	struct sandbox *b;

	e.max_age_ms = 20000;
	world_new_with(&w);
	UNTIL_READY(&w, 1);
	b = core_find(w.core, &w.core->accounts[0], w.fake->sandboxes[0].id);
	b->warm_at_ms += 300000;
	spin(&w, 5000);
	CHECK_INT(w.fake->seen[FAKE_KILL], 0);
	spin(&w, 30000);
	CHECK_INT(w.fake->seen[FAKE_KILL], 1);
	world_free(&w);
}

TEST(claimed_in_the_future)
{
	struct sandbox_warm_entry e = sized(1);
	struct answer a;
	struct create c;
	struct world w;

	warm_world(&w, &e);
	UNTIL_READY(&w, 1);
	c = warm_create("r1", SANDBOX_WARM_REQUIRE);
	c.policy.set = BIT(POLICY_F_MAX_AGE) | BIT(POLICY_F_ON_MAX_AGE);
	c.policy.to.max_age_ms = 20000;
	c.policy.to.on_max_age = POLICY_KILL;
	a = do_create(&w, &c);
	CHECK(a.warm);
	core_find(w.core, &w.core->accounts[0], a.id)->warm_at_ms += 300000;
	spin(&w, 30000);
	CHECK(!fake_find(w.fake, a.id));
	world_free(&w);
}

TEST(max_age_of_the_policy_counts_from_the_claim)
{
	struct sandbox_warm_entry e = sized(1);
	struct create c;
	struct answer a;
	struct world w;

	warm_world(&w, &e);
	UNTIL_READY(&w, 1);
	spin(&w, 30000);
	c = warm_create("r1", SANDBOX_WARM_REQUIRE);
	c.policy.set = BIT(POLICY_F_MAX_AGE) | BIT(POLICY_F_ON_MAX_AGE);
	c.policy.to.max_age_ms = 20000;
	c.policy.to.on_max_age = POLICY_KILL;
	a = do_create(&w, &c);
	CHECK(a.warm);
	spin(&w, 15000);
	CHECK(fake_find(w.fake, a.id) != NULL);
	UNTIL(&w, !fake_find(w.fake, a.id));
	CHECK_STR(fake_find_any(w.fake, a.id)->how, "deleted");
	world_free(&w);
}

static void on_snapshot(void *user, const struct status *st, const struct sandbox_snapshot *s)
{
	CHECK(status_ok(st) && str_copy(user, 64, s->id));
}

/* What somebody has saved is for nobody else. */
TEST(a_snapshot_is_its_owners)
{
	static const uid_t owner[] = { 1000 }, other[] = { 1001 };
	struct sandbox_snapshot_create q = { .request_id = "s1" };
	struct sandbox_warm_entry e = an_entry();
	char id[64] = "";
	struct sandbox_op *op;
	struct answer a;
	struct world w = { 0 };

	world_new(&w);
	a = make_one(&w, "r1");
	CHECK(!sandbox_snapshot_create(w.core, CALL(&alice, a.id, clock_boot_ms() + 5000, id), &q, on_snapshot, &op));
	UNTIL(&w, id[0]);
	e.what.template_id = id;
	for (int i = 0; i < 2; i++) {
		e.claimers = i ? (struct warm_claimers){ other, 1, NULL, 0 } : an_entry().claimers;
		reload(&w, &e);
		UNTIL(&w, info(&w).failed);
		CHECK(strstr(info(&w).why, "snapshot of uid 1000"));
		CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	}
	e.claimers = (struct warm_claimers){ owner, 1, NULL, 0 };
	reload(&w, &e);
	UNTIL_READY(&w, 2);
	world_free(&w);
}

/* --- what fails --- */

static void *prepare_fails(const struct sandbox_target *t, const struct sandbox_warm_entry *e, uint64_t deadline_ms,
			   sandbox_prepared_fn *done, void *user, struct status *st)
{
	status_set(st, R_SANDBOX_NOT_READY, "cannot");
	return NULL;
}

/* Three in a row, then nothing, and whoever waits hears it. */
TEST(three_failures)
{
	struct sandbox_warm_entry e = sized(1);
	struct status st;
	struct answer a;
	struct world w = { .warm = &e, .n_warm = 1, .preparer = { .start = prepare_fails } };

	e.prepare = "make";
	world_new_with(&w);
	begin_require(&w, &a, &alice, "r1");
	wait_for(&w, &a);
	CHECK_INT(a.st.reason, R_SANDBOX_NOT_READY);
	CHECK(strstr(a.st.text, "has failed"));
	CHECK(info(&w).failed && info(&w).failures == 3);
	spin(&w, 60000);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 3);
	world_restart(&w);
	spin(&w, 5000);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 3);
	CHECK(info(&w).failed);
	CHECK(sandbox_warm_retry(w.core, "py", &st));
	UNTIL(&w, info(&w).failed);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 6);
	e.prepare = NULL;	/* another entry, which has not failed */
	reload(&w, &e);
	UNTIL_READY(&w, 1);
	world_free(&w);
}

/* --- STATE/claims --- */

/* A crash between the commit and the line: nobody is told before there is one. */
TEST(a_missing_line_is_written_again)
{
	struct sandbox_warm_entry e = sized(1);
	struct answer a, b;
	struct world w;

	warm_world(&w, &e);
	UNTIL_READY(&w, 1);
	a = claim(&w, "r1");
	CHECK(a.warm);
	CHECK_INT(lines(a.id), 1);
	world_stop(&w);
	CHECK(!unlink(claims_path()));
	world_start(&w);
	b = claim(&w, "r1");
	CHECK_STR(a.id, b.id);
	CHECK_INT(lines(a.id), 1);
	CHECK_INT(lines("r1"), 1);
	world_stop(&w);
	run_sh("rm %s/agentboxd.db* %s/backup.db", world_dir, world_dir);
	w.n_warm = 0;	/* what it makes would have the numbers of the first start */
	world_start(&w);
	b = claim(&w, "r1");	/* with all that a repeat needs */
	CHECK_STR(a.id, b.id);
	world_free(&w);
}

/* Where it cannot be written, the repeat fails, and the next one tries again. */
TEST(no_line_no_answer)
{
	struct sandbox_warm_entry e = sized(1);
	struct answer a, b;
	struct world w;

	warm_world(&w, &e);
	UNTIL_READY(&w, 1);
	a = claim(&w, "r1");
	CHECK(a.warm);
	world_stop(&w);
	CHECK(!unlink(claims_path()) && !mkdir(claims_path(), 0700));
	world_start(&w);
	b = claim(&w, "r1");
	CHECK_INT(b.st.reason, R_STORE_READONLY);
	CHECK(!rmdir(claims_path()));
	b = claim(&w, "r1");
	CHECK_STR(a.id, b.id);
	CHECK_INT(lines(a.id), 1);
	CHECK(fake_find(w.fake, a.id) != NULL);
	world_free(&w);
}

static void write_lines(unsigned n)
{
	FILE *f = fopen(claims_path(), "we");

	CHECK(f);
	for (unsigned i = 0; i < n; i++)
		fprintf(f, "claim1\tdefault\tiold%u\t1000\t77\t\told%u\t%064d\tka=1\n", i, i, 0);
	CHECK(!fclose(f));
}

/* Lines of what is no more do not come along from start to start. */
TEST(the_file_is_shortened)
{
	struct sandbox_warm_entry e = sized(1);
	struct answer a, b;
	struct world w = { .warm = &e, .n_warm = 1, .reconcile_period_ms = 30000 };

	world_new_with(&w);
	UNTIL_READY(&w, 1);
	a = claim(&w, "r1");
	CHECK(do_kill(&w, &alice, a.id).yes);
	world_stop(&w);
	write_lines(3000);
	world_start(&w);
	UNTIL_READY(&w, 1);
	a = claim(&w, "r2");
	CHECK(a.warm);
	CHECK_INT(lines("claim1"), 3001);	/* they may show up yet */
	for (int i = 0; i < 13; i++)
		spin(&w, 50000);
	UNTIL_READY(&w, 1);
	b = claim(&w, "r3");
	CHECK(b.warm);
	UNTIL(&w, lines("claim1") == 2);
	CHECK_INT(lines(a.id) + lines(b.id), 2);
	world_stop(&w);
	run_sh("rm %s/agentboxd.db* %s/backup.db", world_dir, world_dir);
	w.n_warm = 0;	/* what it makes would have the numbers of the first start */
	world_start(&w);
	a = claim(&w, "r3");
	CHECK_STR(a.id, b.id);
	world_free(&w);
}

/* --- rows that may be old --- */

/* The cloud shows that somebody else goes on with our number: what the rows say of a claim is worth nothing then. */
TEST(doubt_while_they_wait)
{
	struct sandbox_warm_entry e = an_entry();
	struct fake_sandbox *x;
	char ids[2][64];
	struct answer a;
	struct world w = { .warm = &e, .n_warm = 1, .reconcile_period_ms = 200 };
	int64_t ends[2];

	world_new_with(&w);
	UNTIL_READY(&w, 2);
	world_restart(&w);
	UNTIL(&w, counts(&w).reconciled_at_ms);
	for (int i = 0; i < 2; i++)
		CHECK(str_copy(ids[i], sizeof(ids[i]), w.fake->sandboxes[i].id));
	x = fake_plant(w.fake, "istranger");
	fake_plant_tag(x, TAG_HOST, store_host_id(w.store));
	fake_plant_tag(x, TAG_UID, "1000");
	fake_plant_tag(x, TAG_REQ, "0123456789abcdef0123456789abcdef");
	fake_plant_tag(x, TAG_SEQ, "4000");
	UNTIL(&w, sandbox_warm_quarantined(w.core) == 2);
	for (int i = 0; i < 2; i++)
		ends[i] = fake_find(w.fake, ids[i])->end_at_ms;
	UNTIL_READY(&w, 2);
	a = claim(&w, "r1");
	CHECK(a.warm && strcmp(a.id, ids[0]) != 0 && strcmp(a.id, ids[1]) != 0);
	spin(&w, 50000);
	spin(&w, 50000);
	for (int i = 0; i < 2; i++) {
		x = fake_find_any(w.fake, ids[i]);
		CHECK(x->end_at_ms == ends[i] && (x->alive || strcmp(x->how, "deleted") != 0));
	}
	world_free(&w);
}

TEST_MAIN()
