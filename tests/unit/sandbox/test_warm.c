/* SPDX-License-Identifier: MIT */
/* Warm sandboxes in the whole: the core and the store over the fake cloud. */
#include "daemon/sandbox/rules/tags.h"
#include "tests/unit/sandbox/warm_world.h"

/* It is given at once, is the caller's, has the end that was asked for, and another takes its place. */
TEST(a_claim)
{
	static const struct sandbox_pair m[] = { { "who", "me" } };
	struct sandbox_warm_entry e = an_entry();
	struct create c;
	struct answer a, b;
	unsigned posts;
	struct world w;

	warm_world(&w, &e);
	UNTIL_READY(&w, 2);
	posts = w.fake->seen[FAKE_CREATE];
	CHECK_INT(posts, 2);
	CHECK_STR(fake_tag(&w.fake->sandboxes[0], TAG_WARM), "py");
	c = warm_create("r1", SANDBOX_WARM_PREFER);
	c.name = "box";
	c.metadata = m;
	c.n_metadata = 1;
	c.timeout_ms = 700000;
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st) && a.warm && a.end_pending);
	CHECK_INT(a.owner, 1000);
	CHECK_INT(a.n_metadata, 1);
	CHECK_INT(w.fake->seen[FAKE_CREATE], posts);	/* nothing was made for it */
	CHECK(a.end_at_ms > fake_now(w.fake) + 690000);
	b = do_create(&w, &c);				/* the same request id */
	CHECK_STR(b.id, a.id);
	UNTIL(&w, fake_find(w.fake, a.id)->end_at_ms > fake_now(w.fake) + 690000);
	UNTIL(&w, !do_get(&w, &alice, "box", SANDBOX_STALENESS_DEFAULT).end_pending);
	a = do_get(&w, &alice, "box", 0);		/* the cloud's metadata are not its */
	CHECK_INT(a.n_metadata, 1);
	UNTIL_READY(&w, 2);
	b = claim(&w, "r2");
	CHECK(b.warm && strcmp(b.id, a.id) != 0);
	CHECK_INT(info(&w).hits, 2);
	world_free(&w);
}

/* An end before the one that it has is set only where nothing keeps it alive. A request to that end might act late, as a crash of the
 * daemon leaves it, and take from a leased one what its extensions gave. */
TEST(a_claim_with_a_lease_shortens_nothing)
{
	for (unsigned leased = 0; leased < 2; leased++) {
		struct sandbox_warm_entry e = an_entry();
		struct create c = warm_create("r1", SANDBOX_WARM_PREFER);
		const struct fake_sandbox *s;
		struct answer a;
		struct world w;

		warm_world(&w, &e);
		UNTIL_READY(&w, 2);
		c.timeout_ms = 30000;
		c.process_lease = leased;
		a = do_create(&w, &c);
		CHECK(status_ok(&a.st) && a.warm);
		s = fake_find(w.fake, a.id);
		UNTIL(&w, !do_get(&w, &alice, a.id, SANDBOX_STALENESS_DEFAULT).end_pending);
		CHECK_INT(w.fake->seen[FAKE_TIMEOUT], !leased);
		CHECK_INT(s->end_at_ms > fake_now(w.fake) + 60000, leased);
		world_free(&w);
	}
}

/* What is claimed together is written first; what takes its place is made behind it. */
TEST(a_refill_comes_after_claims)
{
	struct sandbox_warm_entry e = an_entry();
	struct create c = warm_create("r1", SANDBOX_WARM_PREFER), k = warm_create("r2", SANDBOX_WARM_PREFER);
	struct answer a, b;
	unsigned looked = 0;
	struct world w;

	warm_world(&w, &e);
	UNTIL_READY(&w, 2);
	begin_create(&w, &a, &c);
	begin_create(&w, &b, &k);
	while (!a.done || !b.done) {
		CHECK(loop_once(w.loop, 100) >= 0);
		if (list_is_empty(&w.core->claims))
			continue;
		looked++;
		CHECK_INT(info(&w).made, 2);
	}
	CHECK(looked && a.warm && b.warm);
	UNTIL_READY(&w, 2);
	CHECK_INT(info(&w).made, 4);
	world_free(&w);
}

struct when_written {
	struct answer a;
	struct defer pump;
	bool written;
	uint32_t calls, made;	/* under way at the cloud, and made by the entry, when the answer was written */
};

static void on_written(struct defer *d, void *user)
{
	struct when_written *x = user;
	struct cloud_health h;

	cloud_health(x->a.w->core->accounts[0].cloud, &h);
	x->calls = h.in_flight + h.queued;
	x->made = (uint32_t)info(x->a.w).made;
	x->written = true;
}

static void on_answer(void *user, const struct status *st, const struct sandbox_view *b)
{
	struct when_written *x = user;

	on_sandbox(&x->a, st, b);
	defer_post(&x->pump);
}

/* What follows a claim is begun behind the write of its answer. */
TEST(the_answer_goes_before_what_follows)
{
	struct sandbox_warm_entry e = an_entry();
	struct create c = warm_create("r1", SANDBOX_WARM_PREFER);
	struct sandbox_create q;
	struct when_written x = { .calls = 1 };
	struct cloud_health h;
	struct world w;

	warm_world(&w, &e);
	UNTIL_READY(&w, 2);
	UNTIL(&w, (cloud_health(w.core->accounts[0].cloud, &h), !h.in_flight && !h.queued));
	c.timeout_ms = 700000;
	q = create_of(&c);
	x.a.w = &w;
	defer_init_pump(&x.pump, w.loop, on_written, &x);
	CHECK(!sandbox_create(w.core, CALL(c.who, NULL, c.deadline_ms, &x), &q, on_answer, &x.a.op));
	UNTIL(&w, x.written);
	CHECK(x.a.warm);
	CHECK_INT(x.calls, 0);
	CHECK_INT(x.made, 2);
	UNTIL(&w, fake_find(w.fake, x.a.id)->end_at_ms > fake_now(w.fake) + 690000);
	UNTIL_READY(&w, 2);
	world_free(&w);
}

static void reload(struct world *w, const struct sandbox_warm_entry *e)
{
	struct sandbox_core_rules r = { .warm = e, .n_warm = e ? 1 : 0 };

	policy_default(&r.policy);
	CHECK(!sandbox_core_set_rules(w->core, &r));
}

/* Over a reload that changes nothing for it, and then one that does, a call that waits is not ended without need. */
TEST(a_reload_ends_nobody_who_waits)
{
	struct sandbox_warm_entry e = an_entry();
	struct create c = warm_create("r1", SANDBOX_WARM_REQUIRE), k = warm_create("r2", SANDBOX_WARM_REQUIRE);
	struct cloud_kv pair = { (char *)"A", (char *)"1" };
	struct answer a, b;
	struct world w;

	e.size = 0;
	e.per_hour = 1;
	warm_world(&w, &e);
	begin_create(&w, &a, &c);
	UNTIL(&w, info(&w).waiting == 1);
	e.max_age_ms = 60000;
	reload(&w, &e);
	UNTIL(&w, info(&w).waiting == 1);
	CHECK(!a.done);
	begin_create(&w, &b, &k);
	UNTIL(&w, info(&w).waiting == 2);
	CHECK_INT(info(&w).misses, 2);
	e.size = 1;
	reload(&w, &e);
	UNTIL(&w, a.done);			/* who came first */
	CHECK(status_ok(&a.st) && a.warm && !b.done);
	CHECK_INT(info(&w).waiting, 1);
	e.what.envs.v = &pair;
	e.what.envs.n = 1;
	reload(&w, &e);				/* none is for it any more */
	UNTIL(&w, b.done);
	CHECK_INT(b.st.reason, R_FIELD_INVALID);
	CHECK(strstr(b.st.text, "envs"));
	world_free(&w);
}

/* What nobody has claimed is seen by admins alone, and a restart keeps it. */
TEST(a_restart_keeps_them)
{
	struct sandbox_warm_entry e = an_entry();
	char first[64], second[64];
	struct answer a;
	struct world w;

	warm_world(&w, &e);
	UNTIL_READY(&w, 2);
	(void)str_copy(first, sizeof(first), w.fake->sandboxes[0].id);
	(void)str_copy(second, sizeof(second), w.fake->sandboxes[1].id);
	a = do_get(&w, &alice, first, 0);
	CHECK_INT(a.st.reason, R_SANDBOX_NOT_FOUND);
	CHECK_INT(do_list(&w, &alice, (struct sandbox_list){ 0 }).n, 0);
	CHECK_INT(do_list(&w, &root, (struct sandbox_list){ .all_owners = true }).n, 2);
	world_restart(&w);
	a = claim(&w, "r1");
	CHECK(status_ok(&a.st));
	UNTIL_READY(&w, 2);
	CHECK(a.warm ? !strcmp(a.id, first) || !strcmp(a.id, second) : true);
	CHECK_INT(fake_alive(w.fake), a.warm ? 3 : 3);
	CHECK_INT(w.fake->seen[FAKE_KILL], 0);
	world_free(&w);
}

/* A full disk kept the request id of a claim that was refused, whose sandbox is being ended: a repeat gets another one, also after a restart. */
TEST(a_refused_claim_is_not_repeated_from_its_row)
{
	struct sandbox_warm_entry e = an_entry();
	struct answer a, b;
	struct world w;

	warm_world(&w, &e);
	UNTIL_READY(&w, 2);
	a = claim(&w, "r1");
	CHECK(status_ok(&a.st) && a.warm);
	fake_next(w.fake, FAKE_KILL, 100, FAKE_LOST_BEFORE);
	CHECK_INT(kill_by_policy(w.core, core_find(w.core, &w.core->accounts[0], a.id), "warm_claim_unwritten"), 0);
	spin(&w, 100);
	world_restart(&w);
	b = claim(&w, "r1");
	CHECK(status_ok(&b.st));
	CHECK(!str_eq(a.id, b.id));
	world_free(&w);
}

TEST_MAIN()
