/* SPDX-License-Identifier: MIT */
/* Lifecycle against a fake cloud: what callers are answered, and what the cloud was asked. */
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

#include "daemon/sandbox/core.h"
#include "daemon/sandbox/rules/tags.h"
#include "proto/cloud/model.h"
#include "tests/unit/sandbox/world.h"

TEST(create_is_answered_complete)
{
	struct sandbox_pair meta[] = { { "k", "v" } };
	struct create c;
	struct answer a;
	struct world w;

	world_new(&w);
	c = a_create("r1");
	c.metadata = meta;
	c.n_metadata = 1;
	c.timeout_ms = 61500;
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	CHECK_INT(a.state, SANDBOX_RUNNING);
	CHECK_INT(a.source, SANDBOX_FROM_CLOUD);
	CHECK_INT(a.cpu_count, 2);
	CHECK_INT(a.end_at_ms - a.started_at_ms, 62000); /* rounded up */
	CHECK_INT(a.n_metadata, 1);			  /* our tags are not shown */
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	CHECK_STR(fake_tag(&w.fake->sandboxes[0], TAG_HOST), store_host_id(w.store));
	CHECK_STR(fake_tag(&w.fake->sandboxes[0], TAG_UID), "1000");
	CHECK_INT(strlen(fake_tag(&w.fake->sandboxes[0], TAG_REQ)), TAG_REQ_LEN);
	CHECK(fake_tag(&w.fake->sandboxes[0], TAG_SEQ) && fake_tag(&w.fake->sandboxes[0], TAG_POLICY));
	CHECK(!fake_tag(&w.fake->sandboxes[0], TAG_NAME));
	/* Still there after a restart, without asking. */
	world_restart(&w);
	a = do_get(&w, &alice, w.fake->sandboxes[0].id, 0);
	CHECK(status_ok(&a.st) && a.state == SANDBOX_RUNNING);
	world_free(&w);
}

TEST(input_is_refused_by_name)
{
	static const struct sandbox_pair tag[] = {{"agentbox.host", "x"}}, empty[] = {{"", "x"}};
	struct {
		const char *field;
		struct create c;
	} t[] = {
		{ "request_id", { .request_id = "\x01" } },
		{ "name", { .name = "Upper" } },
		{ "name", { .name = "i0a1b2c3d4e5f6g7h8i9j" } },
		{ "must_create", { .must_create = true } },
		{ "sandbox_timeout", { .timeout_ms = 31ull * 24 * 3600 * 1000 } },
		{ "metadata", { .metadata = tag, .n_metadata = 1 } },
		{ "envs", { .envs = empty, .n_envs = 1 } },
	};
	struct answer a;
	struct world w;

	world_new(&w);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		t[i].c.who = &alice;
		a = do_create(&w, &t[i].c);
		CHECK_INT(a.st.reason, R_FIELD_INVALID);
		CHECK_STR(status_evidence_get(&a.st, "field"), t[i].field);
	}
	t[0].c = a_create("r");
	t[0].c.account = "second";
	a = do_create(&w, &t[0].c);
	CHECK_INT(a.st.reason, R_UID_DENIED);
	t[0].c.who = &root;
	t[0].c.account = "none";
	a = do_create(&w, &t[0].c);
	CHECK_INT(a.st.reason, R_ACCOUNT_NOT_FOUND);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 0);
	world_free(&w);
}

TEST(request_ids)
{
	struct create c;
	struct answer a, b;
	struct world w;

	world_new(&w);
	c = a_create("r1");
	c.params_hash[0] = 1;
	begin_create(&w, &a, &c);
	begin_create(&w, &b, &c); /* joins */
	wait_for(&w, &a);
	if (!b.done)
		wait_for(&w, &b);
	CHECK_STR(a.id, b.id);
	b = do_create(&w, &c); /* done: the same */
	CHECK_STR(a.id, b.id);
	c.params_hash[0] = 2;
	b = do_create(&w, &c);
	CHECK_INT(b.st.reason, R_REQUEST_ID_REUSED);
	c.params_hash[0] = 1;
	c.who = &bob; /* another scope */
	b = do_create(&w, &c);
	CHECK(status_ok(&b.st) && !str_eq(a.id, b.id));
	CHECK_INT(w.fake->seen[FAKE_CREATE], 2);
	/* After a restart, and after its end: its GONE record, never another one. */
	world_restart(&w);
	c.who = &alice;
	b = do_create(&w, &c);
	CHECK_STR(a.id, b.id);
	b = do_kill(&w, &alice, a.id);
	CHECK(b.yes);
	world_restart(&w);
	b = do_create(&w, &c);
	CHECK(status_ok(&b.st));
	CHECK_STR(a.id, b.id);
	CHECK_INT(b.state, SANDBOX_GONE);
	CHECK_INT(b.gone_reason, R_SANDBOX_KILLED);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 2);
	world_free(&w);
}

TEST(refused_is_remembered)
{
	struct create c;
	struct answer a;
	struct world w;

	world_new(&w);
	fake_next(w.fake, FAKE_CREATE, 1, FAKE_REFUSED);
	c = a_create("r1");
	a = do_create(&w, &c);
	CHECK_INT(a.st.reason, R_CLOUD_REFUSED);
	a = do_create(&w, &c);
	CHECK_INT(a.st.reason, R_CLOUD_REFUSED);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	world_restart(&w); /* nothing was made, so it may run again */
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	CHECK_INT(w.fake->seen[FAKE_CREATE], 2);
	world_free(&w);
}

TEST(unsent_is_sent_again)
{
	struct create c;
	struct answer a;
	struct world w;

	world_new(&w);
	fake_next(w.fake, FAKE_CREATE, 2, FAKE_UNSENT);
	c = a_create("r1");
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	CHECK_INT(w.fake->seen[FAKE_CREATE], 3);
	CHECK_INT(w.fake->n_sandboxes, 1);
	fake_next(w.fake, FAKE_CREATE, 3, FAKE_UNSENT);
	c = a_create("r2");
	a = do_create(&w, &c);
	CHECK_INT(a.st.reason, R_UNREACHABLE);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 6);
	a = do_create(&w, &c); /* failed before anything was sent: runs again */
	CHECK(status_ok(&a.st));
	world_free(&w);
}

TEST(lost_answer_is_settled)
{
	struct create c;
	struct answer a, b;
	struct world w;

	world_new(&w);
	fake_next(w.fake, FAKE_CREATE, 1, FAKE_LOST_AFTER);
	c = a_create("r1");
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	CHECK_INT(a.cpu_count, 2);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	b = (struct answer){ .w = &w };
	CHECK(!sandbox_resolve(w.core, CALL(&alice, a.id, clock_boot_ms() + 2000, &b), on_target,
			       &b.op));
	wait_for(&w, &b);
	CHECK(str_starts(b.token, "token-"));
	world_free(&w);
}

/* A week counts from the last use, and a restart does not forget when that was. */
TEST(use_of_a_request_id_is_stored)
{
	struct create c;
	struct request *q;
	struct answer a, b;
	struct world w;
	int64_t began = clock_wall_ms();

	world_new(&w);
	c = a_create("r1");
	a = do_create(&w, &c);
	q = core_find_request(w.core, alice.uid, REQUEST_CREATE, "r1");
	CHECK(q && q->used_at_ms >= began);
	q->used_at_ms = 1;
	c.deadline_ms = clock_boot_ms() + 10000;
	b = do_create(&w, &c);
	CHECK_STR(a.id, b.id);
	CHECK(q->used_at_ms >= began);
	world_restart(&w);
	/* What only memory knew is lost here: the row would still say what it said at first. */
	q = core_find_request(w.core, alice.uid, REQUEST_CREATE, "r1");
	CHECK(q && q->used_at_ms > began + 30000);
	world_free(&w);
}

/* After a commit that failed all rows are written again, those of request ids too. */
TEST(request_ids_are_saved_again)
{
	struct world w = { .reconcile_period_ms = 100 };
	struct create c;
	struct request *q;

	world_new_with(&w);
	c = a_create("r1");
	(void)do_create(&w, &c);
	q = core_find_request(w.core, alice.uid, REQUEST_CREATE, "r1");
	CHECK(q);
	q->used_at_ms = 7;	/* stands for the change that was not written */
	w.core->resave = true;
	UNTIL(&w, !w.core->resave);
	world_restart(&w);
	q = core_find_request(w.core, alice.uid, REQUEST_CREATE, "r1");
	CHECK(q);
	CHECK_INT(q->used_at_ms, 7);
	world_free(&w);
}

TEST(lost_request_stays_unknown)
{
	struct create c;
	struct fake_sandbox *late;
	struct answer a;
	struct world w;

	world_new(&w);
	fake_next(w.fake, FAKE_CREATE, 1, FAKE_LOST_AFTER);
	c = a_create("r1");
	begin_create(&w, &a, &c);
	UNTIL(&w, w.fake->n_sandboxes);
	late = &w.fake->sandboxes[0];
	late->hidden = true; /* it boots for longer than the horizon */
	wait_for(&w, &a);
	CHECK_INT(a.st.reason, R_OUTCOME_UNKNOWN);
	CHECK_INT(a.st.code, CODE_UNAVAILABLE);
	a = do_create(&w, &c);
	CHECK_INT(a.st.reason, R_OUTCOME_UNKNOWN);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	/* Reconcile finds it by its tag; the request id has its object then. */
	late->hidden = false;
	world_restart(&w);
	UNTIL(&w, core_find_request(w.core, alice.uid, REQUEST_CREATE, "r1")->step == ROW_REQUEST_DONE);
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	CHECK_STR(a.id, late->id);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	/* Without a request id repeating is not safe, and the code says so. */
	fake_next(w.fake, FAKE_CREATE, 1, FAKE_LOST_BEFORE);
	c = a_create(NULL);
	a = do_create(&w, &c);
	CHECK_INT(a.st.reason, R_OUTCOME_UNKNOWN);
	CHECK_INT(a.st.code, CODE_UNKNOWN);
	world_free(&w);
}

static bool intent_written;

static void on_intent_written(void *user, const struct status *st)
{
	CHECK(status_ok(st));
	intent_written = true;
}

/* As a disk leaves it that did not take the commit that ended this attempt. */
static void put_intent_again(struct world *w, uint64_t seq, const char *request_id, const char *tag)
{
	struct row_intent r = { .seq = seq, .kind = ROW_INTENT_CREATE, .state = ROW_INTENT_OPEN, .account = "default",
				.uid = alice.uid, .request_id = request_id, .req_tag = tag, .template_id = "base", .generation = 1, .policy = "" };
	struct store_tx *t;

	CHECK(!store_tx_new(w->store, &t));
	store_tx_put_intent(t, &r);
	intent_written = false;
	store_tx_commit(t, true, on_intent_written, NULL);
	UNTIL(w, intent_written);
}

/* A request id whose outcome is unknown stays so, though a row is left of an earlier attempt for it that was never sent. */
TEST(an_old_intent_does_not_free_a_request)
{
	struct create c;
	struct answer a;
	struct world w;
	unsigned seen;
	uint64_t old;

	world_new(&w);
	CHECK(!store_next_seq(w.store, &old));
	fake_next(w.fake, FAKE_CREATE, 1, FAKE_LOST_BEFORE);
	c = a_create("r1");
	a = do_create(&w, &c);
	CHECK_INT(a.st.reason, R_OUTCOME_UNKNOWN);
	put_intent_again(&w, old, "r1", "t");
	seen = w.fake->seen[FAKE_CREATE];
	world_restart(&w);
	c = a_create("r1");
	a = do_create(&w, &c);
	CHECK_INT(a.st.reason, R_OUTCOME_UNKNOWN);
	CHECK_INT(w.fake->seen[FAKE_CREATE], seen);
	world_free(&w);
}

/* Two intents have one request id: the older one, which was never sent, does not end the doubt about the newer one. */
TEST(the_newest_intent_owns_its_request)
{
	struct create c = a_create("r1");
	struct answer a;
	struct world w;
	uint64_t old;

	world_new(&w);
	CHECK(!store_next_seq(w.store, &old));
	fake_next(w.fake, FAKE_CREATE, 1, FAKE_LOST_BEFORE);
	begin_create(&w, &a, &c);
	UNTIL(&w, w.fake->seen[FAKE_CREATE]);
	put_intent_again(&w, old, "r1", "t");
	world_restart(&w);
	until_intents_end(&w);
	a = do_create(&w, &c);
	CHECK_INT(a.st.reason, R_OUTCOME_UNKNOWN);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	world_free(&w);
}

/* The old intent and a later attempt have one tag: the sandbox that both find stays with whom it was answered to. */
TEST(an_old_intent_takes_no_sandbox)
{
	struct create c = a_create("r1");
	struct answer a;
	struct world w;
	uint64_t old;

	world_new(&w);
	CHECK(!store_next_seq(w.store, &old) && !store_put_sent(w.store, old));
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	put_intent_again(&w, old, "r1", fake_tag(&w.fake->sandboxes[0], TAG_REQ));
	world_restart(&w);
	CHECK_INT(counts(&w).intents, 1);
	until_intents_end(&w);
	CHECK(core_find(w.core, core_account_of(w.core, alice.uid), a.id)->claimed);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	world_free(&w);
}

/* C-9: the cloud itself said that it failed, and no list has it: the request id is free again, and in doubt no longer. */
TEST(answered_500_with_nothing_made)
{
	struct create c = a_create("r1");
	struct answer a;
	struct world w;

	world_new(&w);
	fake_next(w.fake, FAKE_CREATE, 1, FAKE_ERR_BEFORE);
	a = do_create(&w, &c);
	CHECK(!status_ok(&a.st));
	UNTIL(&w, !counts(&w).intents);
	c.deadline_ms = clock_boot_ms() + 10000;
	a = do_create(&w, &c);
	CHECK(!status_ok(&a.st) && a.st.reason != R_OUTCOME_UNKNOWN);	/* of the cloud's error, for a minute */
	spin(&w, 61000);
	c.deadline_ms = clock_boot_ms() + 10000;
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	CHECK_INT(w.fake->seen[FAKE_CREATE], 2);
	CHECK_INT(w.fake->n_sandboxes, 1);
	/* one that failed after it acted is found, as ever */
	fake_next(w.fake, FAKE_CREATE, 1, FAKE_ERR_AFTER);
	c = a_create("r2");
	a = do_create(&w, &c);
	UNTIL(&w, !counts(&w).intents);
	c.deadline_ms = clock_boot_ms() + 10000;
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	CHECK_INT(w.fake->seen[FAKE_CREATE], 3);
	world_free(&w);
}

/* … but for what was seen by other lists: that its own do not have it proves nothing then. */
TEST(answered_500_and_seen_elsewhere)
{
	struct create c = a_create("r1");
	struct answer a;
	struct world w;

	world_new(&w);
	fake_next(w.fake, FAKE_CREATE, 1, FAKE_ERR_AFTER);
	c.timeout_ms = 600000;
	begin_create(&w, &a, &c);
	UNTIL(&w, w.fake->n_sandboxes);
	w.fake->sandboxes[0].hidden = true;
	(void)do_get(&w, &alice, w.fake->sandboxes[0].id, 0);
	wait_for(&w, &a);
	CHECK_INT(a.st.reason, R_OUTCOME_UNKNOWN);
	UNTIL(&w, !counts(&w).intents);
	c.deadline_ms = clock_boot_ms() + 10000;
	a = do_create(&w, &c);
	CHECK_INT(a.st.reason, R_OUTCOME_UNKNOWN);
	w.fake->sandboxes[0].hidden = false;
	spin(&w, 61000);
	(void)do_list(&w, &alice, (struct sandbox_list){ 0 });
	UNTIL(&w, core_find(w.core, &w.core->accounts[0], w.fake->sandboxes[0].id));
	c.deadline_ms = clock_boot_ms() + 10000;
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	CHECK_STR(a.id, w.fake->sandboxes[0].id);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	world_free(&w);
}

TEST(caller_leaves)
{
	struct create c;
	struct sandbox_core_counts n;
	struct answer a;
	struct world w;

	world_new(&w);
	/* Before anything is sent: no POST at all. */
	c = a_create("r1");
	begin_create(&w, &a, &c);
	sandbox_cancel(a.op);
	spin(&w, 30);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 0);
	begin_create(&w, &a, &c);
	CHECK(loop_once(w.loop, 0) >= 0);
	sandbox_cancel(a.op); /* while the intent is being written */
	spin(&w, 50);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 0);
	sandbox_core_count(w.core, (uid_t)-1, &n);
	CHECK_INT(n.intents, 0);
	/* After: the answer is read and kept, for a repeat to claim. */
	fake_next(w.fake, FAKE_CREATE, 1, FAKE_HOLD);
	begin_create(&w, &a, &c);
	UNTIL(&w, w.fake->n_sandboxes);
	sandbox_cancel(a.op);
	spin(&w, 30);
	w.fake->released = true;
	UNTIL(&w, !counts(&w).intents);
	CHECK_INT(counts(&w).running, 1);
	a = do_create(&w, &c);
	CHECK_STR(a.id, w.fake->sandboxes[0].id);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	CHECK_INT(w.fake->seen[FAKE_KILL], 0);
	world_free(&w);
}

/* the answer that comes after the caller's deadline is still read: the same request id finds the sandbox. */
TEST(deadline_of_a_sent_one)
{
	struct create c;
	struct answer a;
	struct world w;

	world_new(&w);
	fake_next(w.fake, FAKE_CREATE, 1, FAKE_HOLD);
	c = a_create("r1");
	c.deadline_ms = clock_boot_ms() + 1500;
	a = do_create(&w, &c);
	CHECK(clock_boot_ms() <= c.deadline_ms);
	CHECK_INT(a.st.reason, R_OUTCOME_UNKNOWN);
	c.deadline_ms = clock_boot_ms() + 5000;
	w.fake->released = true;
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	world_free(&w);
}

/* What is made and recorded waits for its details for its caller alone: without one no lease is left of which nobody knows. */
TEST(deadline_before_the_details)
{
	struct create c = a_create(NULL);
	struct sandbox *b;
	struct answer a;
	struct world w;
	uint64_t began;

	world_new(&w);
	fake_next(w.fake, FAKE_GET, 1, FAKE_HOLD);
	c.process_lease = true;
	c.deadline_ms = clock_boot_ms() + 400;
	a = do_create(&w, &c);
	began = clock_boot_ms();
	CHECK_INT(a.st.reason, R_DEADLINE_REQUEST);
	b = core_find(w.core, &w.core->accounts[0], w.fake->sandboxes[0].id);
	UNTIL(&w, !b->claimed);
	CHECK(clock_boot_ms() < began + 1000);
	CHECK_INT(b->n_leases, 0);
	w.fake->released = true;
	world_free(&w);
}

TEST(cloud_away)
{
	struct create c;
	struct answer a;
	struct world w;

	world_new(&w);
	c = a_create("r0");
	a = do_create(&w, &c);
	w.fake->down = true;
	a = do_get(&w, &alice, a.id, 0); /* what is known is said, and that it is old */
	CHECK(status_ok(&a.st));
	CHECK_INT(a.source, SANDBOX_FROM_CACHE_CLOUD_UNREACHABLE);
	c = a_create("r1");
	c.deadline_ms = clock_boot_ms() + 1000;
	a = do_create(&w, &c);
	CHECK(clock_boot_ms() <= c.deadline_ms);
	CHECK_INT(a.st.reason, R_UNREACHABLE);
	spin(&w, 50);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1); /* withdrawn, not sent when it comes back */
	a = do_list(&w, &alice, (struct sandbox_list){ 0 });
	CHECK_INT(a.source, SANDBOX_FROM_CACHE_CLOUD_UNREACHABLE);
	CHECK_INT(a.n, 1);
	w.fake->down = false;
	spin(&w, 50);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	c.deadline_ms = clock_boot_ms() + 3000;
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	world_free(&w);
}

TEST(names)
{
	struct create c;
	struct answer a, b[8];
	struct world w;
	char first[64];

	world_new(&w);
	/* Many at once: one sandbox. */
	for (size_t i = 0; i < ARRAY_SIZE(b); i++) {
		c = a_create(NULL);
		c.name = "sandbox";
		c.params_hash[0] = (uint8_t)i;
		begin_create(&w, &b[i], &c);
	}
	for (size_t i = 0; i < ARRAY_SIZE(b); i++) {
		if (!b[i].done)
			wait_for(&w, &b[i]);
		CHECK(status_ok(&b[i].st));
		CHECK_STR(b[i].id, b[0].id);
	}
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	(void)str_copy(first, sizeof(first), b[0].id);
	a = do_get(&w, &alice, "sandbox", SANDBOX_STALENESS_DEFAULT);
	CHECK_STR(a.id, first);
	CHECK_INT(a.generation, 1);
	a = do_get(&w, &bob, "sandbox", SANDBOX_STALENESS_DEFAULT);
	CHECK_INT(a.st.reason, R_SANDBOX_NOT_FOUND);
	c.must_create = true;
	a = do_create(&w, &c);
	CHECK_INT(a.st.reason, R_NAME_EXISTS);
	/* With a request id it is the same sandbox for that id, for good. */
	c = a_create("r1");
	c.name = "sandbox";
	a = do_create(&w, &c);
	CHECK_STR(a.id, first);
	a = do_kill(&w, &alice, "sandbox");
	CHECK(a.yes);
	a = do_get(&w, &alice, "sandbox", SANDBOX_STALENESS_DEFAULT);
	CHECK_INT(a.st.reason, R_SANDBOX_NOT_FOUND);
	a = do_get(&w, &alice, first, SANDBOX_STALENESS_DEFAULT);
	CHECK_INT(a.state, SANDBOX_GONE);
	a = do_create(&w, &c);
	CHECK_STR(a.id, first);
	CHECK_INT(a.state, SANDBOX_GONE);
	world_restart(&w);
	c = a_create("r2");
	c.name = "sandbox";
	a = do_create(&w, &c);
	CHECK(!str_eq(a.id, first));
	CHECK_INT(a.generation, 2);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 2);
	/* The holder died unseen: the name is not answered with a dead one. */
	w.fake->sandboxes[1].alive = false;
	world_restart(&w);
	c = a_create(NULL);
	c.name = "sandbox";
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	CHECK_STR(a.id, w.fake->sandboxes[2].id);
	CHECK_INT(a.generation, 3);
	world_free(&w);
}

TEST(must_create_of_two)
{
	struct create c;
	struct answer a, b;
	struct world w;

	world_new(&w);
	c = a_create(NULL);
	c.name = "sandbox";
	c.must_create = true;
	begin_create(&w, &a, &c);
	begin_create(&w, &b, &c);
	wait_for(&w, &a);
	if (!b.done)
		wait_for(&w, &b);
	CHECK(status_ok(&a.st));
	CHECK_INT(b.st.reason, R_NAME_EXISTS);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 1);
	world_free(&w);
}

TEST(kill_until_the_cloud_agrees)
{
	struct create c;
	struct answer a;
	struct world w;

	world_new(&w);
	c = a_create("r1");
	a = do_create(&w, &c);
	fake_next(w.fake, FAKE_KILL, 2, FAKE_LOST_AFTER);
	a = do_kill(&w, &alice, a.id);
	CHECK(status_ok(&a.st) && a.yes);
	CHECK_INT(w.fake->seen[FAKE_KILL], 3);
	a = do_kill(&w, &alice, w.fake->sandboxes[0].id);
	CHECK(status_ok(&a.st) && !a.yes);
	a = do_kill(&w, &alice, "inotthere");
	CHECK(status_ok(&a.st) && !a.yes);
	a = do_kill(&w, &alice, "no-such-name");
	CHECK(status_ok(&a.st) && !a.yes);
	/* A kill that outlives its caller and the daemon. */
	c = a_create("r2");
	a = do_create(&w, &c);
	w.fake->down = true;
	{
		struct answer k = { .w = &w };

		CHECK(!sandbox_kill(w.core, CALL(&alice, a.id, clock_boot_ms() + 200, &k), on_yes,
				    &k.op));
		wait_for(&w, &k);
		CHECK_INT(k.st.reason, R_UNREACHABLE);
	}
	CHECK(fake_find(w.fake, a.id));
	world_stop(&w);
	w.fake->down = false;
	world_start(&w);
	UNTIL(&w, !fake_find(w.fake, a.id));
	UNTIL(&w, counts(&w).gone == 2);
	a = do_get(&w, &alice, a.id, SANDBOX_STALENESS_DEFAULT);
	CHECK_INT(a.state, SANDBOX_GONE);
	CHECK_INT(a.gone_reason, R_SANDBOX_KILLED);
	world_free(&w);
}

TEST(others_rows_do_not_exist)
{
	struct create c;
	struct answer a, x, y;
	struct world w;
	unsigned kills;

	world_new(&w);
	c = a_create("r1");
	a = do_create(&w, &c);
	x = do_get(&w, &bob, a.id, 0);
	y = do_get(&w, &bob, "inever", 0);
	CHECK_INT(x.st.reason, R_SANDBOX_NOT_FOUND);
	CHECK_INT(y.st.reason, R_SANDBOX_NOT_FOUND);
	CHECK(!strncmp(x.st.text, y.st.text, 20));
	kills = w.fake->seen[FAKE_KILL];
	x = do_kill(&w, &bob, a.id);
	CHECK(status_ok(&x.st) && !x.yes);
	CHECK_INT(w.fake->seen[FAKE_KILL], kills);
	CHECK(fake_find(w.fake, a.id));
	x = do_get(&w, &root, a.id, 0);
	CHECK_STR(x.id, a.id);
	x = do_list(&w, &bob, (struct sandbox_list){ 0 });
	CHECK_INT(x.n, 0);
	x = do_list(&w, &bob, (struct sandbox_list){ .all_owners = true });
	CHECK_INT(x.st.reason, R_UID_DENIED);
	x = do_list(&w, &root, (struct sandbox_list){ .all_owners = true });
	CHECK_INT(x.n, 1);
	/* Not even after the store was lost. */
	world_stop(&w);
	run_sh("rm %s/agentboxd.db*", world_dir);
	world_start(&w);
	x = do_kill(&w, &bob, a.id);
	CHECK(status_ok(&x.st) && !x.yes && fake_find(w.fake, a.id));
	x = do_get(&w, &bob, a.id, 0);
	CHECK_INT(x.st.reason, R_SANDBOX_NOT_FOUND);
	/* A stranger's of the account: its key's owner alone ends it. */
	fake_plant(w.fake, "iforeign");
	x = do_kill(&w, &bob, "iforeign");
	CHECK(status_ok(&x.st) && !x.yes && fake_find(w.fake, "iforeign"));
	x = do_kill(&w, &root, "iforeign");
	CHECK(x.yes && !fake_find(w.fake, "iforeign"));
	world_free(&w);
}

/* Both ids lead to equal answers, after as many requests to the cloud. */
static enum ab_reason alike(struct world *w, struct answer (*ask)(struct world *w, const struct principal *who, const char *ref),
			    const struct principal *who, const char *others, const char *nobodys)
{
	const char *refs[] = { others, nobodys };
	unsigned gets[2], kills = w->fake->seen[FAKE_KILL];
	struct answer v[2];

	for (int i = 0; i < 2; i++) {
		gets[i] = w->fake->seen[FAKE_GET];
		v[i] = ask(w, who, refs[i]);
		gets[i] = w->fake->seen[FAKE_GET] - gets[i];
	}
	CHECK_INT(v[0].st.code, v[1].st.code);
	CHECK_INT(v[0].st.reason, v[1].st.reason);
	CHECK_INT(v[0].yes, v[1].yes);
	CHECK_INT(gets[0], gets[1]);
	CHECK(gets[0] || w->fake->down);
	CHECK_INT(w->fake->seen[FAKE_KILL], kills);
	return v[0].st.reason;
}

static struct answer get_now(struct world *w, const struct principal *who, const char *ref)
{
	return do_get(w, who, ref, 0);
}

static struct answer do_resolve(struct world *w, const struct principal *who, const char *ref)
{
	struct answer a = { .w = w };

	CHECK(!sandbox_resolve(w->core, CALL(who, ref, clock_boot_ms() + 1000, &a), on_target, &a.op));
	wait_for(w, &a);
	return a;
}

static struct answer do_pause(struct world *w, const struct principal *who, const char *ref)
{
	struct answer a = { .w = w };

	CHECK(!sandbox_pause(w->core, CALL(who, ref, clock_boot_ms() + 1000, &a), true, on_yes, &a.op));
	wait_for(w, &a);
	return a;
}

/* Of another uid's sandbox the cloud is asked as of nobody's: while it is away, neither is said not to be there. */
TEST(others_ids_are_asked_about)
{
	struct answer (*const asks[])(struct world *w, const struct principal *who, const char *ref) = { get_now, do_resolve, do_pause };
	struct create c;
	struct answer a;
	struct world w;

	world_new(&w);
	c = a_create("r1");
	a = do_create(&w, &c);
	CHECK(do_kill(&w, &alice, a.id).yes);
	CHECK_INT(alike(&w, get_now, &bob, a.id, "inever"), R_SANDBOX_NOT_FOUND);
	c = a_create("r2");
	a = do_create(&w, &c);
	for (int down = 0; down < 2; down++) {
		w.fake->down = down;
		for (size_t i = 0; i < ARRAY_SIZE(asks); i++)
			CHECK_INT(alike(&w, asks[i], &bob, a.id, "inever"), down ? R_UNREACHABLE : R_SANDBOX_NOT_FOUND);
		CHECK_INT(alike(&w, do_kill, &bob, a.id, "inever"), down ? R_UNREACHABLE : REASON_NONE);
	}
	world_free(&w);
}

/* Its answer is lost: the cloud has it, and no row says yet whose it is. */
TEST(others_ids_before_there_is_a_row)
{
	struct create c;
	struct answer a, x;
	struct world w;

	world_new(&w);
	fake_next(w.fake, FAKE_CREATE, 1, FAKE_LOST_AFTER);
	c = a_create("r1");
	begin_create(&w, &a, &c);
	UNTIL(&w, w.fake->n_sandboxes);
	CHECK(!core_find_any(w.core, &w.core->accounts[0], w.fake->sandboxes[0].id));
	x = do_get(&w, &bob, w.fake->sandboxes[0].id, 0);
	CHECK(!core_find_any(w.core, &w.core->accounts[0], w.fake->sandboxes[0].id));
	CHECK_INT(x.st.reason, R_SANDBOX_NOT_FOUND);
	wait_for(&w, &a);
	CHECK_STR(a.id, w.fake->sandboxes[0].id);
	world_free(&w);
}

/* Two accounts of one team: what the cloud says to the other account does not make it the caller's. One that was made elsewhere has no
 * tag that says whose it is. */
TEST(others_rows_of_another_account)
{
	struct sandbox_core_account third = { .name = "third", .default_user = "user" };
	struct sandbox_core_uid of_bob = { .uid = bob.uid, .account = "third" };
	struct sandbox_core_rules rules = { .uids = &of_bob, .n_uids = 1 };
	struct sandbox_connect c = { 0 };
	struct answer a;
	struct world w;

	world_new(&w);
	policy_default(&rules.policy);
	third.cloud = fake_cloud(w.fake, w.loop);
	CHECK(!sandbox_core_add_account(w.core, &third));
	CHECK(!sandbox_core_set_rules(w.core, &rules));
	fake_plant(w.fake, "iother");
	a = (struct answer){ .w = &w };
	CHECK(!sandbox_connect(w.core, CALL(&alice, "iother", clock_boot_ms() + 5000, &a), &c, on_sandbox, &a.op));
	wait_for(&w, &a);
	CHECK(a.adopted);
	CHECK_INT(alike(&w, get_now, &bob, a.id, "inever"), R_SANDBOX_NOT_FOUND);
	CHECK_INT(alike(&w, do_resolve, &bob, a.id, "inever"), R_SANDBOX_NOT_FOUND);
	CHECK_INT(alike(&w, do_pause, &bob, a.id, "inever"), R_SANDBOX_NOT_FOUND);
	CHECK_INT(alike(&w, do_kill, &bob, a.id, "inever"), REASON_NONE);
	CHECK(fake_find(w.fake, a.id));
	w.core = sandbox_core_free(w.core);
	fake_cloud_free(third.cloud);
	world_restart(&w);
	world_free(&w);
}

/* In the cloud's own ways: by place, in either order, from a moment on, and some of them only. */
TEST(list_in_the_clouds_ways)
{
	struct sandbox_list q = { .page_size = 2, .ascending = true, .count_running = true };
	struct cloud_strs only = { 0 };
	struct fake_sandbox *v;
	struct create c;
	struct answer a;
	struct world w;

	world_new(&w);
	v = w.fake->sandboxes;
	for (int i = 0; i < 5; i++) {
		c = a_create(NULL);
		a = do_create(&w, &c);
		CHECK(status_ok(&a.st));
		spin(&w, 3);	/* no two start at once */
	}
	a = do_list(&w, &alice, q);
	CHECK_INT(a.n, 2);
	CHECK_INT(a.n_running, 5);
	CHECK_STR(a.ids[0], v[0].id);
	CHECK_STR(a.ids[1], v[1].id);
	CHECK(a.next[0]);
	q.place_id = v[1].id;
	q.place_started_at_ms = v[1].started_at_ms;
	a = do_list(&w, &alice, q);
	CHECK_STR(a.ids[0], v[2].id);
	q.ascending = false;
	a = do_list(&w, &alice, q);
	CHECK_INT(a.n, 1);
	CHECK_STR(a.ids[0], v[0].id);
	q = (struct sandbox_list){ .started_after_ms = v[3].started_at_ms, .count_running = true };
	a = do_list(&w, &alice, q);
	CHECK_INT(a.n, 2);
	CHECK_INT(a.n_running, 2);
	CHECK(!cloud_strs_add(&only, v[2].id) && !cloud_strs_add(&only, "inosuch"));
	CHECK(!cloud_strs_add(&only, v[3].id) && !cloud_strs_add(&only, v[2].id));
	q = (struct sandbox_list){ .only = &only, .count_running = true };
	a = do_list(&w, &alice, q);
	CHECK_INT(a.n, 2);
	CHECK_INT(a.n_running, 2);
	CHECK_STR(a.ids[0], v[3].id);
	CHECK_STR(a.ids[1], v[2].id);
	cloud_strs_fini(&only);
	world_free(&w);
}

TEST(list_pages)
{
	struct create c;
	struct answer a;
	struct world w;
	unsigned seen = 0;
	char token[512] = "";

	world_new(&w);
	for (int i = 0; i < 7; i++) {
		c = a_create(NULL);
		a = do_create(&w, &c);
		CHECK(status_ok(&a.st));
	}
	do {
		a = do_list(&w, &alice, (struct sandbox_list){ .page_size = 3, .page_token = token });
		CHECK(status_ok(&a.st));
		CHECK_INT(a.source, SANDBOX_FROM_CLOUD);
		for (size_t i = 0; i < a.n; i++) /* newest first */
			CHECK_STR(a.ids[i], w.fake->sandboxes[6 - seen - i].id);
		seen += (unsigned)a.n;
		(void)str_copy(token, sizeof(token), a.next);
	} while (token[0]);
	CHECK_INT(seen, 7);
	a = do_list(&w, &alice, (struct sandbox_list){ .page_size = 3 });
	(void)str_copy(token, sizeof(token), a.next);
	a = do_list(&w, &alice,
		    (struct sandbox_list){.page_size = 3, .page_token = token, .template_id = "x"});
	CHECK_INT(a.st.reason, R_FIELD_INVALID);
	a = do_list(&w, &alice, (struct sandbox_list){ .page_token = "rubbish" });
	CHECK_INT(a.st.reason, R_FIELD_INVALID);
	a = do_list(&w, &alice, (struct sandbox_list){ .page_size = 1001 });
	CHECK_INT(a.st.reason, R_FIELD_INVALID);
	/* Others' sandboxes of the account: only when asked for. */
	fake_plant(w.fake, "iforeign");
	world_restart(&w);
	a = do_list(&w, &alice, (struct sandbox_list){ .cached = true });
	CHECK_INT(a.n, 7);
	CHECK_INT(a.source, SANDBOX_FROM_CACHE);
	a = do_list(&w, &alice, (struct sandbox_list){ .all_hosts = true });
	CHECK_INT(a.n, 8);
	CHECK_STR(a.ids[0], "iforeign");
	a = do_list(&w, &alice, (struct sandbox_list){ 0 });
	CHECK_INT(a.n, 7);
	a = do_list(&w, &alice, (struct sandbox_list){ .states = BIT(SANDBOX_PAUSED) });
	CHECK_INT(a.n, 0);
	world_free(&w);
}

TEST(an_empty_list_forgets_nothing)
{
	struct create c;
	struct answer a;
	struct world w;

	world_new(&w);
	for (int i = 0; i < 10; i++) {
		c = a_create(NULL);
		a = do_create(&w, &c);
	}
	w.fake->list_empty = true;
	for (int i = 0; i < 3; i++)
		w.fake->sandboxes[i].alive = false; /* these are gone in truth */
	world_restart(&w);
	UNTIL(&w, counts(&w).gone == 3);
	CHECK_INT(counts(&w).running, 7);
	CHECK_INT(counts(&w).list_anomalies, 1);
	CHECK_INT(w.fake->seen[FAKE_KILL], 0);
	a = do_get(&w, &alice, w.fake->sandboxes[0].id, SANDBOX_STALENESS_DEFAULT);
	CHECK_INT(a.gone_reason, R_SANDBOX_GONE);
	world_free(&w);
}

TEST(store_lost_and_rebuilt)
{
	struct create c;
	struct answer a, b;
	struct world w;
	char host[32];

	world_new(&w);
	c = a_create("r1");
	c.name = "sandbox";
	a = do_create(&w, &c);
	fake_plant(w.fake, "iforeign");
	fake_plant_tag(&w.fake->sandboxes[1], TAG_HOST, "another");
	(void)str_copy(host, sizeof(host), store_host_id(w.store));
	world_stop(&w);
	run_sh("rm %s/agentboxd.db*", world_dir);
	world_start(&w);
	CHECK_STR(store_host_id(w.store), host);
	UNTIL(&w, counts(&w).reconciled_at_ms);
	b = do_get(&w, &alice, "sandbox", SANDBOX_STALENESS_DEFAULT);
	CHECK(status_ok(&b.st));
	CHECK_STR(a.id, b.id);
	b = do_list(&w, &alice, (struct sandbox_list){ .cached = true });
	CHECK_INT(b.n, 1);
	CHECK_INT(w.fake->seen[FAKE_KILL], 0);
	world_free(&w);
}

/* The oldest of a name keeps it; the younger one is told so. */
TEST(duplicates_of_a_name)
{
	struct fake_sandbox *x;
	struct answer a;
	struct world w;
	char host[32];

	world_new(&w);
	(void)str_copy(host, sizeof(host), store_host_id(w.store));
	for (int i = 0; i < 3; i++) {
		char id[16], seq[16];

		snprintf(id, sizeof(id), "idup%d", 2 - i);
		snprintf(seq, sizeof(seq), "%d", 9000 + i);
		x = fake_plant(w.fake, id);
		x->alive = i > 0; /* the oldest is dead */
		fake_plant_tag(x, TAG_HOST, host);
		fake_plant_tag(x, TAG_UID, "1000");
		fake_plant_tag(x, TAG_NAME, "sandbox");
		fake_plant_tag(x, TAG_SEQ, seq);
	}
	world_restart(&w);
	UNTIL(&w, counts(&w).reconciled_at_ms);
	a = do_get(&w, &alice, "sandbox", SANDBOX_STALENESS_DEFAULT);
	CHECK_STR(a.id, "idup1");
	a = do_get(&w, &alice, "idup0", SANDBOX_STALENESS_DEFAULT);
	CHECK(strstr(a.warning, "duplicate"));
	CHECK_INT(w.fake->seen[FAKE_CREATE] + w.fake->seen[FAKE_KILL], 0);
	{
		uint64_t n;

		UNTIL(&w, store_next_seq(w.store, &n) == 0); /* a number of ours from the future is skipped */
		CHECK(n > 9002);
	}
	world_free(&w);
}

TEST(connect_makes_an_owner)
{
	struct sandbox_connect c = { 0 };
	struct answer a = { 0 };
	struct world w;

	world_new(&w);
	fake_plant(w.fake, "iother")->paused = true;
	a = do_get(&w, &alice, "iother", 0);
	CHECK_INT(a.state, SANDBOX_PAUSED);
	a = (struct answer){ .w = &w };
	CHECK(!sandbox_resolve(w.core, CALL(&alice, "iother", clock_boot_ms() + 2000, &a),
			       on_target, &a.op));
	wait_for(&w, &a);
	CHECK_INT(a.st.reason, R_SANDBOX_PAUSED);
	a = (struct answer){ .w = &w };
	CHECK(!sandbox_connect(w.core, CALL(&alice, "iother", clock_boot_ms() + 5000, &a), &c,
			       on_sandbox, &a.op));
	wait_for(&w, &a);
	CHECK(status_ok(&a.st) && a.adopted);
	CHECK_INT(a.state, SANDBOX_RUNNING);
	a = do_get(&w, &bob, "iother", 0); /* it has an owner now */
	CHECK_INT(a.st.reason, R_SANDBOX_NOT_FOUND);
	world_restart(&w);
	a = do_list(&w, &alice, (struct sandbox_list){ .cached = true });
	CHECK_INT(a.n, 1);
	/* Another host's: used, not taken; with adopt: taken. */
	fake_plant_tag(fake_plant(w.fake, "ihost2"), TAG_HOST, "another");
	for (int adopt = 0; adopt < 2; adopt++) {
		c.adopt = adopt;
		a = (struct answer){ .w = &w };
		CHECK(!sandbox_connect(w.core, CALL(&alice, "ihost2", clock_boot_ms() + 5000, &a),
				       &c, on_sandbox, &a.op));
		wait_for(&w, &a);
		CHECK(status_ok(&a.st));
		CHECK_INT(a.adopted, adopt);
	}
	a = (struct answer){ .w = &w };
	CHECK(!sandbox_connect(w.core, CALL(&alice, "igone", clock_boot_ms() + 5000, &a), &c,
			       on_sandbox, &a.op));
	wait_for(&w, &a);
	CHECK_INT(a.st.reason, R_SANDBOX_NOT_FOUND);
	world_free(&w);
}

TEST(timeouts)
{
	struct create c;
	struct answer a, b;
	struct world w;
	char id[64];

	world_new(&w);
	c = a_create("r1");
	a = do_create(&w, &c);
	(void)str_copy(id, sizeof(id), a.id);
	b = (struct answer){ .w = &w };
	CHECK(!sandbox_set_timeout(w.core, CALL(&alice, id, clock_boot_ms() + 2000, &b), 60000,
				   on_sandbox, &b.op));
	wait_for(&w, &b);
	CHECK(status_ok(&b.st) && b.end_at_ms < a.end_at_ms && !b.warning[0]);
	w.fake->cap_s = 30;
	b = (struct answer){ .w = &w };
	CHECK(!sandbox_set_timeout(w.core, CALL(&alice, id, clock_boot_ms() + 2000, &b), 600000,
				   on_sandbox, &b.op));
	wait_for(&w, &b);
	CHECK(status_ok(&b.st) && b.warning[0]);
	w.fake->sandboxes[0].paused = true;
	b = (struct answer){ .w = &w };
	CHECK(!sandbox_set_timeout(w.core, CALL(&alice, id, clock_boot_ms() + 2000, &b), 600000,
				   on_sandbox, &b.op));
	wait_for(&w, &b);
	CHECK_INT(b.st.reason, R_SANDBOX_PAUSED);
	w.fake->sandboxes[0].alive = false;
	b = (struct answer){ .w = &w };
	CHECK(!sandbox_set_timeout(w.core, CALL(&alice, id, clock_boot_ms() + 2000, &b), 600000,
				   on_sandbox, &b.op));
	wait_for(&w, &b);
	CHECK_INT(b.st.reason, R_SANDBOX_GONE);
	CHECK(status_evidence_get(&b.st, "said_by"));
	c = a_create("r2");
	c.timeout_ms = 600000;
	a = do_create(&w, &c);
	CHECK(strstr(a.warning, "capped"));
	world_free(&w);
}

/* One of ours whose row was lost gets it from its tag; from there on it is resumed like any other: once. */
TEST(connects_to_an_adopted_one_share_its_resume)
{
	struct sandbox_connect c = { 0 };
	struct answer a, b;
	struct fake_sandbox *x;
	struct world w;

	world_new(&w);
	UNTIL(&w, counts(&w).reconciled_at_ms);
	x = fake_plant(w.fake, "ilost");
	x->paused = true;
	fake_plant_tag(x, TAG_HOST, store_host_id(w.store));
	fake_plant_tag(x, TAG_UID, "1000");
	a = (struct answer){ .w = &w };
	b = (struct answer){ .w = &w };
	CHECK(!sandbox_connect(w.core, CALL(&alice, "ilost", clock_boot_ms() + 10000, &a), &c,
			       on_sandbox, &a.op));
	CHECK(!sandbox_connect(w.core, CALL(&alice, "ilost", clock_boot_ms() + 10000, &b), &c,
			       on_sandbox, &b.op));
	wait_for(&w, &a);
	if (!b.done)
		wait_for(&w, &b);
	CHECK(status_ok(&a.st) && status_ok(&b.st));
	CHECK(!x->paused);
	CHECK_INT(w.fake->seen[FAKE_CONNECT], 1);
	world_free(&w);
}

TEST(agent_and_host)
{
	struct create c;
	struct answer a, b;
	struct world w;
	char id[64];
	unsigned gets;

	world_new(&w);
	c = a_create("r1");
	c.wait_ready = true;
	w.fake->probe = SANDBOX_PROBE_NO_ANSWER;
	c.deadline_ms = clock_boot_ms() + 1000;
	a = do_create(&w, &c);
	CHECK_INT(a.st.reason, R_SANDBOX_NOT_READY);
	w.fake->probe = SANDBOX_PROBE_HEALTHY;
	c.deadline_ms = clock_boot_ms() + 3000;
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	(void)str_copy(id, sizeof(id), a.id);
	b = (struct answer){ .w = &w };
	CHECK(!sandbox_is_running(w.core, CALL(&alice, id, clock_boot_ms() + 2000, &b), on_yes, &b.op));
	wait_for(&w, &b);
	CHECK(b.yes);
	b = (struct answer){ .w = &w };
	CHECK(!sandbox_get_host(w.core, CALL(&alice, id, clock_boot_ms() + 2000, &b), 3000, on_host,
				&b.op));
	wait_for(&w, &b);
	CHECK(str_starts(b.host, "https://3000-i"));
	b = (struct answer){ .w = &w };
	CHECK(!sandbox_get_host(w.core, CALL(&alice, id, clock_boot_ms() + 2000, &b), 0, on_host,
				&b.op));
	wait_for(&w, &b);
	CHECK_INT(b.st.reason, R_FIELD_INVALID);
	/* Evidence that it is gone: one question, however many saw it. */
	w.fake->sandboxes[0].alive = false;
	gets = w.fake->seen[FAKE_GET];
	b = (struct answer){ .w = &w };
	a = (struct answer){ .w = &w };
	CHECK(!sandbox_note_evidence(w.core, CALL(NULL, id, clock_boot_ms() + 2000, &a), "default",
				     SANDBOX_SAW_ABSENT, on_target, &a.op));
	CHECK(!sandbox_note_evidence(w.core, CALL(NULL, id, clock_boot_ms() + 2000, &b), "default",
				     SANDBOX_SAW_LOST, on_target, &b.op));
	wait_for(&w, &a);
	if (!b.done)
		wait_for(&w, &b);
	CHECK_INT(a.st.reason, R_SANDBOX_GONE);
	CHECK_INT(b.st.reason, R_SANDBOX_GONE);
	CHECK_INT(w.fake->seen[FAKE_GET], gets + 1);
	b = (struct answer){ .w = &w };
	CHECK(!sandbox_is_running(w.core, CALL(&alice, id, clock_boot_ms() + 2000, &b), on_yes, &b.op));
	wait_for(&w, &b);
	CHECK(status_ok(&b.st) && !b.yes);
	b = do_list(&w, &alice, (struct sandbox_list){ .cached = true });
	CHECK_INT(b.n, 0);
	world_free(&w);
}

/* G-2: what is no version is not known to be old; a sandbox whose agent is old is not left behind. */
TEST(versions_of_agents)
{
	static const char *const fine[] = { "killing", "", "v0.2.0", "1" };
	struct world w;
	struct create c;
	struct answer a;

	world_new(&w);
	for (size_t i = 0; i < ARRAY_SIZE(fine); i++) {
		fake_agent = fine[i];
		c = a_create("");
		a = do_create(&w, &c);
		CHECK(status_ok(&a.st));
	}
	fake_agent = "v0.0.9";
	c = a_create("");
	a = do_create(&w, &c);
	CHECK_INT(a.st.reason, R_TEMPLATE_TOO_OLD);
	UNTIL(&w, fake_alive(w.fake) == ARRAY_SIZE(fine));
	fake_agent = "0.6.13";
	world_free(&w);
}

/* One that comes while the daemon runs: its uid makes there. Retired, it keeps and ends what it has, and makes nothing; a start without it
 * leaves its rows alone, and says so. */
TEST(accounts_come_and_go)
{
	struct sandbox_core_account third = { .name = "third", .default_user = "user" };
	struct sandbox_core_uid of_bob = { .uid = bob.uid, .account = "third" };
	struct sandbox_core_rules rules = { .uids = &of_bob, .n_uids = 1 };
	struct create c = a_create("r1");
	struct cloud *cloud;
	struct answer a, b;
	struct world w;

	world_new(&w);
	policy_default(&rules.policy);
	CHECK_INT(sandbox_core_set_rules(w.core, &rules), -EINVAL);
	cloud = third.cloud = fake_cloud(w.fake, w.loop);
	CHECK(!sandbox_core_add_account(w.core, &third));
	sandbox_core_drop_account(w.core);	/* what came with it failed */
	CHECK_INT(sandbox_core_set_rules(w.core, &rules), -EINVAL);
	CHECK(!sandbox_core_add_account(w.core, &third));
	CHECK(!sandbox_core_set_rules(w.core, &rules));
	c.who = &bob;
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	CHECK_STR(core_find(w.core, &w.core->accounts[1], a.id)->account->name, "third");

	sandbox_core_set_account(w.core, "third", 0, true);
	b = do_create(&w, &c);		/* a repeat makes nothing */
	CHECK_STR(b.id, a.id);
	c.request_id = "r2";
	b = do_create(&w, &c);
	CHECK_INT(b.st.reason, R_ACCOUNT_NOT_FOUND);
	sandbox_core_set_account(w.core, "third", 2, false);
	b = do_create(&w, &c);
	CHECK(status_ok(&b.st));
	c.request_id = "r3";
	CHECK_INT(do_create(&w, &c).st.reason, R_QUOTA_UID);
	sandbox_core_set_account(w.core, "third", 2, true);
	CHECK(do_kill(&w, &bob, b.id).yes);

	CHECK(!sandbox_core_left_rows(w.core, "third"));
	w.core = sandbox_core_free(w.core);
	fake_cloud_free(cloud);
	world_restart(&w);
	CHECK(sandbox_core_left_rows(w.core, "third") && !sandbox_core_left_rows(w.core, "default"));
	world_free(&w);
}

/* Two calls with one request id get the sandbox that has their name: each answer is on disk, or it is none. The second was answered from
 * memory while the first one's row was being written, which a full disk refused. */
TEST(a_request_id_that_another_call_writes)
{
	struct rlimit old, full;
	struct answer a, b;
	struct create c;
	struct world w;

	world_new(&w);
	c = a_create("r1");
	c.name = "n";
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	c.request_id = "r2";
	CHECK_INT(getrlimit(RLIMIT_FSIZE, &old), 0);
	full = (struct rlimit){ .rlim_cur = 1, .rlim_max = old.rlim_max };
	signal(SIGXFSZ, SIG_IGN);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &full), 0);
	begin_create(&w, &a, &c);
	begin_create(&w, &b, &c);
	UNTIL(&w, a.done && b.done);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &old), 0);
	CHECK(!status_ok(&a.st) && !status_ok(&b.st));

	begin_create(&w, &a, &c);
	begin_create(&w, &b, &c);
	sandbox_cancel(a.op);		/* whoever waits for the same does not need it */
	wait_for(&w, &b);
	CHECK(status_ok(&b.st));
	world_restart(&w);
	CHECK(do_kill(&w, &alice, "n").yes);
	CHECK_STR(do_create(&w, &c).id, b.id);	/* its record, and no other sandbox */
	CHECK_INT(fake_alive(w.fake), 0);
	world_free(&w);
}

TEST_MAIN()
