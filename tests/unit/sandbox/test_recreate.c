/* SPDX-License-Identifier: MIT */
/* on_gone=recreate: what is kept of a Create, when it is sent again, and that it is never sent twice. */
#include <errno.h>

#include "proto/cloud/model.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/creation.h"
#include "daemon/sandbox/recipe.h"
#include "daemon/sandbox/rules/tags.h"
#include "tests/unit/sandbox/world.h"

/* --- the recipe --- */

static void fill(struct cloud_create *c)
{
	struct cloud_rule *rule;

	CHECK(!text_set(&c->template_id, "base"));
	c->timeout_s = 77;
	c->secure = TRI_FALSE;
	c->allow_internet_access = TRI_TRUE;
	c->lifecycle = (struct cloud_lifecycle){ .pause = TRI_TRUE, .keep_memory = TRI_TRUE };
	CHECK(!cloud_kvs_add(&c->metadata, "m", "1") && !cloud_kvs_add(&c->metadata, "empty", ""));
	CHECK(!cloud_kvs_add(&c->envs, "SECRET", "hunter2 with spaces\nand lines"));
	c->network = calloc(1, sizeof(*c->network));
	CHECK(!cloud_strs_add(&c->network->allow_out, "10.0.0.0/8"));
	CHECK(!cloud_network_add_rule(c->network, "a.example", &rule));
	CHECK(!cloud_kvs_add(&rule->headers, "X-A", "b"));
	CHECK(!text_set(&c->network->egress_address, "proxy:1080") &&
	      !text_set(&c->network->egress_username, "u") && !text_set(&c->network->egress_password, "p"));
	c->iam_tokens = calloc(2, sizeof(*c->iam_tokens));
	c->n_iam_tokens = 2;
	CHECK(!text_set(&c->iam_tokens[0].name, "one") &&
	      !text_set(&c->iam_tokens[0].audience, "aud 1") &&
	      !text_set(&c->iam_tokens[0].token_type, "id"));
	CHECK(!text_set(&c->iam_tokens[1].name, "two") &&
	      !text_set(&c->iam_tokens[1].audience, "") &&
	      !text_set(&c->iam_tokens[1].token_type, "access"));
}

TEST(recipe_round_trip)
{
	struct cloud_create c = { 0 }, d = { 0 };
	struct recipe r = { 0 }, cut = { 0 };

	fill(&c);
	CHECK(!recipe_pack(&c, &r));
	CHECK(!recipe_unpack(&r, &d));
	CHECK_STR(d.template_id, "base");
	CHECK_INT(d.timeout_s, 77);
	CHECK_INT(d.secure, TRI_FALSE);
	CHECK_INT(d.allow_internet_access, TRI_TRUE);
	CHECK(d.lifecycle.pause == TRI_TRUE && d.lifecycle.keep_memory == TRI_TRUE &&
	      d.lifecycle.auto_resume == TRI_UNSET);
	CHECK_INT(d.metadata.n, 2);
	CHECK_STR(cloud_kvs_get(&d.metadata, "empty"), "");
	CHECK_STR(cloud_kvs_get(&d.envs, "SECRET"), "hunter2 with spaces\nand lines");
	CHECK(cloud_network_equal(c.network, d.network));
	CHECK_STR(d.network->egress_password, "p");
	CHECK_INT(d.n_iam_tokens, 2);
	CHECK_STR(d.iam_tokens[0].audience, "aud 1");
	CHECK_STR(d.iam_tokens[1].token_type, "access");
	cloud_create_fini(&d);
	/* Cut anywhere: refused or a whole one, never read beyond. */
	for (size_t n = 0; n < r.len; n++) {
		CHECK(!recipe_set(&cut, r.p, n));
		(void)!recipe_unpack(&cut, &d);
		cloud_create_fini(&d);
	}
	CHECK(!recipe_set(&cut, "numbers\0x\0", 10));
	CHECK_INT(recipe_unpack(&cut, &d), -EBADMSG);
	cloud_create_fini(&d);
	recipe_fini(&cut);
	recipe_fini(&r);
	cloud_create_fini(&c);
}

TEST(verdicts)
{
	static const struct recipe_facts good = {.on_gone = POLICY_RECREATE,
						 .ours = true,
						 .named = true,
						 .known = true,
						 .in_use = true,
						 .keep_alive = true,
						 .before = SANDBOX_RUNNING,
						 .reason = R_SANDBOX_GONE,
						 .generation = 1,
						 .age_ms = 5};
	struct recipe_facts f;

#define VERDICT(v, ...)                                                                                            \
	do {                                                                                                       \
		f = good;                                                                                          \
		__VA_ARGS__;                                                                                       \
		CHECK_INT(recipe_judge(&f), v);                                                                    \
	} while (0)
	VERDICT(RECIPE_GO, );
	VERDICT(RECIPE_GO, f.in_use = false);
	VERDICT(RECIPE_GO, f.reason = R_SANDBOX_EXPIRED);
	VERDICT(RECIPE_GO, f.before = SANDBOX_PAUSED);
	VERDICT(RECIPE_GO, (f.generation = 2, f.age_ms = RECIPE_TOO_SOON_MS));
	VERDICT(RECIPE_NOT_ASKED, f.on_gone = POLICY_FAIL);
	VERDICT(RECIPE_NOT_ASKED, f.ended = true);
	VERDICT(RECIPE_NOT_ASKED, f.named = false);
	VERDICT(RECIPE_NOT_ASKED, f.reason = R_SANDBOX_KILLED);
	VERDICT(RECIPE_IN_DOUBT, f.ours = false);
	VERDICT(RECIPE_IN_DOUBT, f.in_doubt = true);
	VERDICT(RECIPE_UNUSED, (f.in_use = false, f.reason = R_SANDBOX_EXPIRED));
	VERDICT(RECIPE_UNUSED, (f.in_use = false, f.before = SANDBOX_PAUSED));
	VERDICT(RECIPE_UNUSED, (f.keep_alive = false, f.reason = R_SANDBOX_EXPIRED));
	VERDICT(RECIPE_GO, f.keep_alive = false);
	VERDICT(RECIPE_MISSING, f.known = false);
	VERDICT(RECIPE_TOO_SOON, f.generation = 2);
	for (int v = RECIPE_NOT_ASKED; v <= RECIPE_TOO_SOON; v++)
		CHECK((v != RECIPE_NOT_ASKED) == (recipe_verdict_name((enum recipe_verdict)v)[0] != 0));
}

/* --- in the whole --- */

static struct create again_create(const char *request_id)
{
	struct create c = a_create(request_id);

	c.name = "sandbox";
	c.policy.set = BIT(POLICY_F_ON_GONE);
	c.policy.to.on_gone = POLICY_RECREATE;
	return c;
}

static struct sandbox *sandbox_of(struct world *w, unsigned i)
{
	return core_find(w->core, &w->core->accounts[0], w->fake->sandboxes[i].id);
}

static void set_on_gone(struct world *w, const char *sandbox, enum policy_on_gone to,
			struct answer *ret)
{
	struct policy_change c = { .set = BIT(POLICY_F_ON_GONE), .to = { .on_gone = to } };

	*ret = (struct answer){ .w = w };
	CHECK(!sandbox_set_policy(w->core, CALL(&alice, sandbox, clock_boot_ms() + 5000, ret), &c,
				  0, on_sandbox, &ret->op));
	wait_for(w, ret);
}

struct run {
	struct fake *fake;
	const char *point;	/* NULL: not the first run */
};

static void live(void *arg)
{
	const struct run *r = arg;
	struct fake *f = r->fake;
	struct create c = again_create("r1");
	struct world w = { .fake = f };

	world_start(&w);
	if (r->point) {
		(void)do_create(&w, &c);
		f->sandboxes[0].alive = false;
		die_at(r->point);
		(void)do_get(&w, &alice, f->sandboxes[0].id, 0);
	}
	do
		CHECK(loop_once(w.loop, 20) >= 0);
	while (counts(&w).intents || counts(&w).running != fake_alive(f));
	spin(&w, 50);
	world_stop(&w);
}

/* The first of the tests with a world: points are counted from the start of the program. Killed between any two
 * steps: at most one was made, and it is known. */
TEST(killed_on_the_way)
{
	static const struct { const char *point; unsigned posts; } t[] = {
		{ "create.before_intent@2", 1 },    { "create.intent_committed@2", 1 },
		{ "create.before_send@2", 1 },	    { "create.after_send@2", 2 },
		{ "create.answered@2", 2 },	    { "create.before_active@2", 2 },
		{ "create.active_committed@2", 2 }, { "create.before_reply@2", 2 },
	};

	for (size_t i = 0; i < 2 * ARRAY_SIZE(t); i++) {
		struct fake *f = fake_new();

		world_dir_new();
		crash_way(f, i % 2);
		CHECK(was_killed(in_child(live, &(struct run){ f, t[i / 2].point })));
		for (int again = 0; again < 2; again++)
			CHECK_INT(in_child(live, &(struct run){ f, NULL }), 0);
		/* Killed before that was written, it is not known to be gone, and is made again after the start. */
		if (i / 2)
			CHECK(f->seen[FAKE_CREATE] <= t[i / 2].posts);
		CHECK(f->seen[FAKE_CREATE] <= 2 && fake_alive(f) <= 1);
		CHECK_INT(f->seen[FAKE_KILL], 0);
		world_dir_free();
		fake_free(f);
	}
	sim_worker_eager = false;
}

TEST(vanished_and_made_again)
{
	struct sandbox_pair envs[] = { { "SECRET", "hunter2" } }, metadata[] = { { "k", "v" } };
	struct create c = again_create("r1");
	struct answer a, b;
	struct world w;

	world_new(&w);
	c.envs = envs;
	c.n_envs = 1;
	c.metadata = metadata;
	c.n_metadata = 1;
	a = do_create(&w, &c);
	w.fake->sandboxes[0].alive = false;
	b = do_get(&w, &alice, a.id, 0);
	CHECK_INT(b.state, SANDBOX_GONE);
	CHECK_INT(b.gone_reason, R_SANDBOX_GONE);
	until_intents_end(&w);
	b = do_get(&w, &alice, "sandbox", 0);
	CHECK_STR(b.id, w.fake->sandboxes[1].id);
	CHECK_INT(b.generation, 2);
	CHECK_INT(b.n_metadata, 1);
	CHECK_STR(fake_tag(&w.fake->sandboxes[1], "k"), "v");
	CHECK_STR(fake_tag(&w.fake->sandboxes[1], TAG_NAME), "sandbox");
	/* Whoever does not follow learns where it went; so does one that repeats. */
	a = (struct answer){ .w = &w };
	CHECK(!sandbox_resolve(w.core,
			       CALL(&alice, w.fake->sandboxes[0].id, clock_boot_ms() + 2000, &a),
			       on_target, &a.op));
	wait_for(&w, &a);
	CHECK_INT(a.st.reason, R_SANDBOX_REPLACED);
	CHECK_STR(status_evidence_get(&a.st, "replaced_by"), w.fake->sandboxes[1].id);
	/* The next one lived less than a minute: that would go on for ever. */
	world_restart(&w);
	CHECK_INT(sandbox_of(&w, 1)->policy.on_gone, POLICY_RECREATE);
	CHECK(sandbox_of(&w, 1)->recipe.len);
	w.fake->sandboxes[1].alive = false;
	(void)do_get(&w, &alice, "sandbox", 0);
	spin(&w, 50);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 2);
	w.fake->sandboxes[1].alive = false;
	world_free(&w);
}

TEST(old_enough_it_goes_on)
{
	struct create c = again_create("r1");
	struct answer a;
	struct world w;

	world_new(&w);
	(void)do_create(&w, &c);
	for (unsigned i = 0; i < 3; i++) {
		spin(&w, RECIPE_TOO_SOON_MS + 1000);
		w.fake->sandboxes[i].alive = false;
		(void)do_get(&w, &alice, "sandbox", 0);
		until_intents_end(&w);
	}
	a = do_get(&w, &alice, "sandbox", 0);
	CHECK_INT(a.generation, 4);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 4);
	/* An id from long ago leads to what is there now. */
	a = (struct answer){ .w = &w };
	CHECK(!sandbox_resolve(w.core,
			       CALL(&alice, w.fake->sandboxes[0].id, clock_boot_ms() + 2000, &a),
			       on_target, &a.op));
	wait_for(&w, &a);
	CHECK_STR(status_evidence_get(&a.st, "replaced_by"), w.fake->sandboxes[3].id);
	world_free(&w);
}

/* Its owner's kill, a policy's, and an end that nobody minded, are no loss. */
TEST(not_made_again)
{
	struct create c = again_create("r1");
	struct answer a;
	struct world w;

	world_new(&w);
	(void)do_create(&w, &c);
	CHECK(do_kill(&w, &alice, "sandbox").yes);
	c = again_create("r2");
	(void)do_create(&w, &c);
	w.fake->sandboxes[1].alive = false; /* the DELETE meets nothing: it was asked for all the same */
	(void)do_kill(&w, &alice, "sandbox");
	c = again_create("r3");
	(void)do_create(&w, &c);
	w.fake->sandboxes[2].alive = false;
	w.fake->sandboxes[2].end_at_ms = sandbox_of(&w, 2)->end_at_ms = clock_wall_ms() - 5000; /* nobody held it */
	(void)do_get(&w, &alice, "sandbox", 0);
	c = again_create("r4");
	(void)do_create(&w, &c);
	set_on_gone(&w, "sandbox", POLICY_FAIL, &a);
	CHECK(status_ok(&a.st));
	CHECK(!sandbox_of(&w, 3)->recipe.len);
	set_on_gone(&w, "sandbox", POLICY_RECREATE, &a);
	CHECK_INT(a.st.reason, R_UNSUPPORTED);
	w.fake->sandboxes[3].alive = false;
	(void)do_get(&w, &alice, "sandbox", 0);
	spin(&w, 100);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 4);
	c = again_create("r5");
	c.name = "";
	a = do_create(&w, &c);
	CHECK_INT(a.st.reason, R_FIELD_INVALID);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 4);
	world_free(&w);
}

/* It was leased to the end: then it is made again. A process's lease goes on with the next one. */
TEST(expired_while_leased)
{
	struct principal us = { .uid = 1000, .gid = 1000, .pid = getpid(), .pidfd = -1, .conn = 1 };
	struct create c = again_create("r1");
	struct world w;

	world_new(&w);
	c.who = &us;
	c.process_lease = true;
	(void)do_create(&w, &c);
	CHECK_INT(sandbox_of(&w, 0)->n_leases, 1);
	w.fake->sandboxes[0].alive = false;
	sandbox_of(&w, 0)->end_at_ms = clock_wall_ms() - 5000;
	(void)do_get(&w, &alice, "sandbox", 0);
	until_intents_end(&w);
	CHECK_INT(sandbox_of(&w, 0)->gone_reason, R_SANDBOX_EXPIRED);
	CHECK_INT(sandbox_of(&w, 0)->n_leases, 0);
	CHECK_INT(sandbox_of(&w, 1)->n_leases, 1);
	CHECK(sandbox_of(&w, 1)->claimed);
	world_free(&w);
}

/* Answers of its POST are lost, refused, not sent: one, or none, and it is said. */
TEST(bad_answers)
{
	static const struct { enum fake_fate how; unsigned alive; } t[] = {
		{ FAKE_LOST_AFTER, 1 }, { FAKE_LOST_BEFORE, 0 }, { FAKE_REFUSED, 0 }, { FAKE_UNSENT, 1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct create c = again_create("r1");
		struct answer a;
		struct world w;

		world_new(&w);
		(void)do_create(&w, &c);
		fake_next(w.fake, FAKE_CREATE, 1, t[i].how);
		w.fake->sandboxes[0].alive = false;
		(void)do_get(&w, &alice, w.fake->sandboxes[0].id, 0);
		until_intents_end(&w);
		CHECK_INT(fake_alive(w.fake), t[i].alive);
		a = do_get(&w, &alice, "sandbox", 0);
		CHECK_INT(status_ok(&a.st), t[i].alive);
		if (t[i].alive)
			CHECK_INT(a.generation, 2);
		world_free(&w);
	}
}

/* Whoever creates the name meanwhile gets the one that is being made. */
TEST(a_create_joins_it)
{
	struct create c = again_create("r1");
	struct answer a, b;
	struct world w;

	world_new(&w);
	(void)do_create(&w, &c);
	w.fake->sandboxes[0].alive = false;
	(void)do_get(&w, &alice, w.fake->sandboxes[0].id, 0);
	c = a_create("r2");
	c.name = "sandbox";
	a = do_create(&w, &c);
	CHECK_STR(a.id, w.fake->sandboxes[1].id);
	c = again_create("r1");
	b = do_create(&w, &c); /* the old request id: what it made, as it is now */
	CHECK_INT(b.state, SANDBOX_GONE);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 2);
	world_free(&w);
}

TEST_MAIN()
