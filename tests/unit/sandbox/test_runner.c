/* SPDX-License-Identifier: MIT */
/* Leases, policies and events against the fake cloud: what is sent, and what never is. */
#include <errno.h>

#include "daemon/sandbox/event.h"
#include "proto/base/fd.h"
#include "tests/unit/sandbox/world.h"

/* --- helpers --- */

struct lease_answer {
	bool done;
	struct status st;
	char id[32];
};

static void on_lease(void *user, const struct status *st, const struct sandbox_lease *l)
{
	struct lease_answer *a = user;

	CHECK(!a->done);
	a->done = true;
	a->st = *st;
	if (l)
		(void)str_copy(a->id, sizeof(a->id), l->id);
}

static struct lease_answer acquire(struct world *w, const struct principal *who,
				   const char *sandbox, const struct sandbox_acquire *q)
{
	struct lease_answer a = { 0 };
	struct sandbox_op *op;

	CHECK(!sandbox_acquire(w->core, CALL(who, sandbox, clock_boot_ms() + 5000, &a), q, on_lease,
			       &op));
	UNTIL(w, a.done);
	return a;
}

static struct lease_answer acquire_ttl(struct world *w, const char *sandbox, uint64_t ttl_ms)
{
	struct sandbox_acquire q = { .kind = SANDBOX_LEASE_TTL, .ttl_ms = ttl_ms };

	return acquire(w, &alice, sandbox, &q);
}

static bool release(struct world *w, const char *lease)
{
	struct answer a = { .w = w };

	CHECK(!sandbox_release(w->core, CALL(&alice, NULL, clock_boot_ms() + 5000, &a), lease,
			       on_yes, &a.op));
	wait_for(w, &a);
	CHECK(status_ok(&a.st));
	return a.yes;
}

static struct create with_policy(const char *request_id, enum policy_action on_release,
				 uint64_t grace_ms)
{
	struct create c = a_create(request_id);

	c.policy.set = BIT(POLICY_F_ON_RELEASE) | BIT(POLICY_F_RELEASE_GRACE);
	c.policy.to.on_release = on_release;
	c.policy.to.release_grace_ms = grace_ms;
	return c;
}

static uint32_t leases_of(struct world *w)
{
	struct sandbox_core_counts c;

	sandbox_core_count(w->core, alice.uid, &c);
	return c.leases;
}

/* A process to hold leases, and us as the principal that it would be. */
static struct principal child_new(void)
{
	struct principal p = { .uid = alice.uid, .pid = idle_child(), .pidfd = -1, .conn = 1 };

	CHECK(!fd_pidfd(p.pid, &p.pidfd));
	return p;
}

static void child_kill(struct principal *p)
{
	CHECK(!kill(p->pid, SIGKILL));
	CHECK(waitpid(p->pid, NULL, 0) == p->pid);
}

/* --- release --- */

TEST(released_and_killed)
{
	struct world w;
	struct create c = with_policy("r", POLICY_KILL, 50);
	struct lease_answer l, again;
	struct answer a;

	world_new(&w);
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	spin(&w, 100);
	CHECK_INT(w.fake->seen[FAKE_KILL], 0);	/* never leased: it lives by its timeout */
	l = acquire_ttl(&w, a.id, 60000);
	again = acquire_ttl(&w, a.id, 60000);
	CHECK_INT(leases_of(&w), 2);
	CHECK(release(&w, l.id));
	CHECK(!release(&w, l.id));
	spin(&w, 100);
	CHECK_INT(w.fake->seen[FAKE_KILL], 0);
	CHECK(release(&w, again.id));
	UNTIL(&w, w.fake->seen[FAKE_KILL] >= 1);
	CHECK_INT(w.fake->seen[FAKE_PAUSE] + w.fake->seen[FAKE_TIMEOUT], 0);
	world_free(&w);
}

TEST(leased_again_in_the_grace)
{
	struct world w;
	struct create c = with_policy("r", POLICY_KILL, 150);
	struct lease_answer l;
	struct answer a;

	world_new(&w);
	a = do_create(&w, &c);
	l = acquire_ttl(&w, a.id, 60000);
	release(&w, l.id);
	spin(&w, 50);
	l = acquire_ttl(&w, a.id, 60000);
	spin(&w, 250);
	CHECK_INT(w.fake->seen[FAKE_KILL], 0);
	world_free(&w);
}

/* Between the decision and the DELETE the cloud is asked; a lease taken meanwhile stops it. */
TEST(leased_again_while_it_is_checked)
{
	struct world w;
	struct create c = with_policy("r", POLICY_KILL, 0);
	struct sandbox_acquire q = { .kind = SANDBOX_LEASE_TTL, .ttl_ms = 60000 };
	struct lease_answer l, second = { 0 };
	struct answer a, r = { 0 };
	struct sandbox_op *op;

	world_new(&w);
	a = do_create(&w, &c);
	l = acquire_ttl(&w, a.id, 60000);
	w.fake->down = true;	/* the question is not answered yet */
	r.w = &w;
	CHECK(!sandbox_release(w.core, CALL(&alice, NULL, 0, &r), l.id, on_yes, &r.op));
	wait_for(&w, &r);
	spin(&w, 100);
	CHECK(!sandbox_acquire(w.core, CALL(&alice, a.id, 0, &second), &q, on_lease, &op));
	UNTIL(&w, second.done);
	w.fake->down = false;
	spin(&w, 200);
	CHECK_INT(w.fake->seen[FAKE_KILL], 0);
	CHECK(release(&w, second.id));
	UNTIL(&w, w.fake->seen[FAKE_KILL] >= 1);
	world_free(&w);
}

TEST(released_and_paused)
{
	struct world w;
	struct create c = with_policy("r", POLICY_PAUSE, 20);
	struct lease_answer l;
	struct answer a;

	world_new(&w);
	a = do_create(&w, &c);
	l = acquire_ttl(&w, a.id, 60000);
	release(&w, l.id);
	UNTIL(&w, do_get(&w, &alice, a.id, 0).state == SANDBOX_PAUSED);
	CHECK_INT(w.fake->seen[FAKE_PAUSE], 1);
	l = acquire_ttl(&w, a.id, 60000);	/* wakes nothing */
	CHECK(status_ok(&l.st));
	spin(&w, 100);
	CHECK_INT(w.fake->seen[FAKE_CONNECT] + w.fake->seen[FAKE_KILL] + w.fake->seen[FAKE_REFRESH], 0);
	CHECK_INT(w.fake->seen[FAKE_PAUSE], 1);
	world_free(&w);
}

TEST(somebody_elses_is_left_alone)
{
	struct world w;
	struct lease_answer l;

	world_new(&w);
	fake_plant(w.fake, "iaaa");
	fake_plant_tag(fake_plant(w.fake, "ibbb"), "agentbox.host", "another");
	l = acquire_ttl(&w, "iaaa", 60000);	/* untagged: the caller's from now on */
	CHECK(status_ok(&l.st));
	CHECK(do_get(&w, &alice, "iaaa", 0).adopted);
	CHECK_INT(do_get(&w, &bob, "iaaa", 0).st.reason, R_SANDBOX_NOT_FOUND);
	release(&w, l.id);
	l = acquire_ttl(&w, "ibbb", 60000);
	CHECK_INT(l.st.reason, R_UID_DENIED);
	spin(&w, 100);
	CHECK_INT(w.fake->seen[FAKE_KILL] + w.fake->seen[FAKE_PAUSE], 0);
	world_free(&w);
}

/* Two who ask at once share one question about it; its row is made once. */
TEST(adopted_once)
{
	struct world w;
	struct sandbox_acquire q = { .kind = SANDBOX_LEASE_TTL, .ttl_ms = 60000 };
	struct lease_answer a = { 0 }, b = { 0 };
	struct sandbox_op *op;

	world_new(&w);
	fake_plant(w.fake, "iaaa");
	CHECK(!sandbox_acquire(w.core, CALL(&alice, "iaaa", 0, &a), &q, on_lease, &op));
	CHECK(!sandbox_acquire(w.core, CALL(&alice, "iaaa", 0, &b), &q, on_lease, &op));
	UNTIL(&w, a.done);
	UNTIL(&w, b.done);
	CHECK(status_ok(&a.st) && status_ok(&b.st));
	CHECK_INT(leases_of(&w), 2);
	CHECK_INT(do_list(&w, &alice, (struct sandbox_list){ .cached = true }).n, 1);
	world_free(&w);
}

/* Nobody here knows what it was made with: it is not made again, whatever the configuration says of others. */
TEST(adopted_without_parameters)
{
	struct world w = { .recreates = true };
	struct sandbox_acquire q = { .kind = SANDBOX_LEASE_TTL, .ttl_ms = 60000 };
	struct lease_answer a = { 0 };
	struct sandbox_op *op;

	world_new_with(&w);
	fake_plant(w.fake, "iaaa");
	CHECK(!sandbox_acquire(w.core, CALL(&alice, "iaaa", 0, &a), &q, on_lease, &op));
	UNTIL(&w, a.done);
	CHECK_INT(do_get(&w, &alice, "iaaa", 0).policy.on_gone, POLICY_FAIL);
	world_free(&w);
}

/* --- processes --- */

static void process_lease(enum sandbox_identity identity)
{
	struct world w = { .restart_grace_ms = 400, .identity = identity };
	struct create c = with_policy("r", POLICY_KILL, 0);
	struct principal p = child_new();
	struct sandbox_core_counts n;
	struct answer a;

	world_new_with(&w);
	sandbox_core_count(w.core, alice.uid, &n);
	if (identity < n.identity)
		goto out;	/* this kernel cannot */
	CHECK_INT(n.identity, identity);
	c.who = &p;
	c.process_lease = true;
	a = do_create(&w, &c);
	CHECK(status_ok(&a.st));
	CHECK_INT(leases_of(&w), 1);
	CHECK(!kill(p.pid, SIGSTOP));
	spin(&w, 50);
	CHECK_INT(leases_of(&w), 1);

	world_restart(&w);
	CHECK_INT(leases_of(&w), 1);
	if (identity == SANDBOX_IDENTITY_CONNECTION) {
		/* Not proved: it waits for its grace. */
		UNTIL(&w, w.fake->seen[FAKE_KILL] >= 1);
		goto out;
	}
	spin(&w, 500);
	CHECK_INT(leases_of(&w), 1);
	child_kill(&p);
	UNTIL(&w, w.fake->seen[FAKE_KILL] >= 1);
	p.pid = 0;
out:
	if (p.pid)
		child_kill(&p);
	fd_close(p.pidfd);
	world_free(&w);
}

TEST(process_by_inode)
{
	process_lease(SANDBOX_IDENTITY_INODE);
}

TEST(process_by_start_time)
{
	process_lease(SANDBOX_IDENTITY_START_TIME);
}

TEST(process_by_connection)
{
	process_lease(SANDBOX_IDENTITY_CONNECTION);
}

TEST(process_died_while_the_daemon_was_away)
{
	struct world w = { 0 };
	struct create c = with_policy("r", POLICY_KILL, 0);
	struct principal p = child_new();

	world_new_with(&w);
	c.who = &p;
	c.process_lease = true;
	CHECK_INT(do_create(&w, &c).st.reason, REASON_NONE);
	CHECK_INT(do_create(&w, &c).st.reason, REASON_NONE);	/* a repeat: the same, and no second lease */
	CHECK_INT(leases_of(&w), 1);
	world_stop(&w);
	child_kill(&p);
	world_start(&w);
	UNTIL(&w, w.fake->seen[FAKE_KILL] >= 1);
	fd_close(p.pidfd);
	world_free(&w);
}

TEST(connection_alone)
{
	struct world w = { .identity = SANDBOX_IDENTITY_CONNECTION };
	struct create c = with_policy("r", POLICY_KILL, 0);
	struct principal p = { .uid = alice.uid, .pidfd = -1, .conn = 7 }, other = p;

	other.conn = 8;
	world_new_with(&w);
	c.who = &p;
	c.process_lease = true;
	CHECK_INT(do_create(&w, &c).st.reason, REASON_NONE);
	sandbox_connection_ended(w.core, &other);
	CHECK_INT(leases_of(&w), 1);
	sandbox_connection_ended(w.core, &p);
	CHECK_INT(leases_of(&w), 0);
	UNTIL(&w, w.fake->seen[FAKE_KILL] >= 1);
	world_free(&w);
}

/* --- streams --- */

static void on_held(void *user, enum sandbox_held_change on_ready, const struct status *st,
		    const struct sandbox_lease *l)
{
	if (on_ready == SANDBOX_HELD_LOST)
		*(enum ab_reason *)user = st->reason;
}

struct stream {
	struct world *w;
	struct lease_answer a;
	struct sandbox_held *held;
	enum ab_reason lost;
};

static void on_stream(void *user, const struct status *st, const struct sandbox_lease *l)
{
	struct stream *s = user;

	on_lease(&s->a, st, l);
	if (l)
		CHECK(!sandbox_held_new(s->w->core, l->id, on_held, &s->lost, &s->held));
}

static void hold(struct stream *s, const char *sandbox, const char *lease_id)
{
	struct sandbox_acquire q = { .lease_id = lease_id, .kind = SANDBOX_LEASE_STREAM };
	struct sandbox_op *op;

	s->a.done = false;
	CHECK(!sandbox_acquire(s->w->core, CALL(&alice, sandbox, 0, s), &q, on_stream, &op));
	UNTIL(s->w, s->a.done);
}

TEST(streams)
{
	struct world w = { .restart_grace_ms = 300 };
	struct create c = with_policy("r", POLICY_KILL, 0);
	struct stream s = { .w = &w }, thief = { .w = &w };
	struct answer a;

	world_new_with(&w);
	a = do_create(&w, &c);
	hold(&s, a.id, NULL);
	CHECK(status_ok(&s.a.st) && s.held);
	hold(&thief, a.id, s.a.id);		/* the same lease, by a newer stream */
	CHECK_STR(thief.a.id, s.a.id);
	CHECK_INT(s.lost, R_STATE_CHANGING);
	sandbox_held_free(s.held, false);
	CHECK_INT(leases_of(&w), 1);
	sandbox_held_free(thief.held, true);	/* we stop: it waits for its holder */
	CHECK_INT(leases_of(&w), 1);
	s = (struct stream){ .w = &w };
	hold(&s, a.id, thief.a.id);
	CHECK(status_ok(&s.a.st));
	do_kill(&w, &alice, a.id);		/* its owner may */
	CHECK_INT(s.lost, R_SANDBOX_KILLED);
	sandbox_held_free(s.held, false);
	hold(&thief, a.id, NULL);
	CHECK_INT(thief.a.st.reason, R_SANDBOX_KILLED);
	world_free(&w);
}

TEST(a_lease_of_another_uid_does_not_exist)
{
	struct world w;
	struct create c = a_create("r");
	struct sandbox_acquire q = { .kind = SANDBOX_LEASE_TTL, .ttl_ms = 1000 };
	struct lease_answer l;
	struct answer a, r = { 0 };

	world_new(&w);
	a = do_create(&w, &c);
	l = acquire_ttl(&w, a.id, 60000);
	CHECK_INT(acquire(&w, &bob, a.id, &q).st.reason, R_SANDBOX_NOT_FOUND);
	r.w = &w;
	CHECK(!sandbox_release(w.core, CALL(&bob, NULL, 0, &r), l.id, on_yes, &r.op));
	wait_for(&w, &r);
	CHECK(!r.yes);
	CHECK_INT(leases_of(&w), 1);
	q.lease_id = "nosuch";
	CHECK_INT(acquire(&w, &alice, a.id, &q).st.reason, R_LEASE_NOT_FOUND);
	world_free(&w);
}

/* --- extension --- */

TEST(extended_until_released)
{
	struct world w;
	struct create c = a_create("r");
	struct lease_answer l;
	struct answer a;
	int64_t end;
	unsigned n;

	world_new(&w);
	c.timeout_ms = 15000;
	a = do_create(&w, &c);
	end = w.fake->sandboxes[0].end_at_ms = clock_wall_ms() + 1500;	/* soon */
	(void)do_get(&w, &alice, a.id, 0);
	fake_next(w.fake, FAKE_REFRESH, 2, FAKE_LOST_BEFORE);
	l = acquire_ttl(&w, a.id, 60000);
	UNTIL(&w, w.fake->seen[FAKE_REFRESH] >= 3);
	UNTIL(&w, fake_find(w.fake, a.id)->end_at_ms > end + 10000);
	/* read back, not computed */
	UNTIL(&w, do_get(&w, &alice, a.id, 60000).end_at_ms == fake_find(w.fake, a.id)->end_at_ms);
	release(&w, l.id);
	n = w.fake->seen[FAKE_REFRESH];
	end = w.fake->sandboxes[0].end_at_ms;
	spin(&w, 200);
	CHECK_INT(w.fake->seen[FAKE_REFRESH], n);
	CHECK_INT(w.fake->sandboxes[0].end_at_ms, end);	/* never shortened */
	CHECK_INT(w.fake->seen[FAKE_TIMEOUT], 0);
	world_free(&w);
}

/* A renewal looks for what it asked for while the kill's DELETE, which worked, has no answer yet: that answer says who ended it. */
TEST(a_look_does_not_end_a_kill)
{
	struct create c = a_create("r");
	struct answer a, killed;
	struct world w;
	unsigned n;

	world_new(&w);
	killed = (struct answer){ .w = &w };
	c.timeout_ms = 15000;
	a = do_create(&w, &c);
	w.fake->sandboxes[0].end_at_ms = clock_wall_ms() + 1500;
	(void)do_get(&w, &alice, a.id, 0);
	fake_next(w.fake, FAKE_REFRESH, 1, FAKE_HOLD);
	(void)acquire_ttl(&w, a.id, 60000);
	UNTIL(&w, w.fake->seen[FAKE_REFRESH]);
	fake_next(w.fake, FAKE_KILL, 1, FAKE_STALL);
	CHECK(!sandbox_kill(w.core, CALL(&alice, a.id, clock_boot_ms() + 60000, &killed), on_yes, &killed.op));
	UNTIL(&w, !w.fake->sandboxes[0].alive);
	n = w.fake->seen[FAKE_GET];
	w.fake->released = true;
	UNTIL(&w, w.fake->seen[FAKE_GET] > n);
	wait_for(&w, &killed);
	CHECK(status_ok(&killed.st));
	CHECK_INT(core_find(w.core, core_account_of(w.core, alice.uid), a.id)->gone_reason, R_SANDBOX_KILLED);
	world_free(&w);
}

TEST(the_cap_is_warned_of)
{
	struct world w;
	struct create c = a_create("r");
	struct answer a;

	world_new(&w);
	c.timeout_ms = 60000;
	a = do_create(&w, &c);
	w.fake->cap_s = 5;
	w.fake->sandboxes[0].end_at_ms = clock_wall_ms() + 3000;
	(void)do_get(&w, &alice, a.id, 0);
	(void)acquire_ttl(&w, a.id, 60000);
	UNTIL(&w, w.fake->seen[FAKE_REFRESH] >= 3);
	UNTIL(&w, strstr(do_get(&w, &alice, a.id, 60000).warning, "no further"));
	CHECK_INT(w.fake->seen[FAKE_KILL] + w.fake->seen[FAKE_PAUSE], 0);
	world_free(&w);
}

/* --- unclaimed --- */

TEST(unclaimed_by_its_policy)
{
	struct world w = { .unclaimed_grace_ms = 100, .restart_grace_ms = 50 };
	struct create c = with_policy("r", POLICY_KILL, 60000), d = a_create("s");
	struct answer a;

	world_new_with(&w);
	spin(&w, 80);		/* the first list is through, and so is the quiet of the start */
	fake_next(w.fake, FAKE_CREATE, 1, FAKE_HOLD);
	begin_create(&w, &a, &c);
	UNTIL(&w, w.fake->seen[FAKE_CREATE] >= 1);
	sandbox_cancel(a.op);	/* its caller dies; what was sent is kept, for a while */
	w.fake->released = true;
	UNTIL(&w, w.fake->seen[FAKE_KILL] >= 1);
	a = do_create(&w, &d);	/* claimed: left alone */
	spin(&w, 200);
	CHECK_INT(w.fake->seen[FAKE_KILL], 1);
	a = do_create(&w, &c);	/* the reaped one's request id says so, and makes none */
	CHECK(status_ok(&a.st) && a.state == SANDBOX_GONE);
	CHECK_INT(w.fake->seen[FAKE_CREATE], 2);
	world_free(&w);
}

/* A sandbox that waits to be claimed is judged by the grace that holds now. */
TEST(another_grace_while_it_waits)
{
	struct world w = { .unclaimed_grace_ms = 3600000, .restart_grace_ms = 50 };
	struct create c = with_policy("r", POLICY_KILL, 60000);
	struct answer a;

	world_new_with(&w);
	spin(&w, 80);
	fake_next(w.fake, FAKE_CREATE, 1, FAKE_HOLD);
	begin_create(&w, &a, &c);
	UNTIL(&w, w.fake->seen[FAKE_CREATE] >= 1);
	sandbox_cancel(a.op);
	w.fake->released = true;
	spin(&w, 300);
	CHECK_INT(w.fake->seen[FAKE_KILL], 0);
	sandbox_core_set_graces(w.core, 100, 50);
	UNTIL(&w, w.fake->seen[FAKE_KILL] >= 1);
	world_free(&w);
}

/* --- events --- */

static void test_runner_on_ready(void *user)
{
	++*(unsigned *)user;
}

/* The types that are there now, as text; the last cursor. */
/* Adds the types of what is there to text. */
static void drain(struct sandbox_watch *w, char text[256], char cursor[80])
{
	struct sandbox_event e;
	size_t n = strlen(text);

	while (sandbox_watch_next(w, &e)) {
		n += (size_t)snprintf(text + n, 256 - n, "%d ", e.type);
		if (cursor && e.cursor[0])
			(void)str_copy(cursor, 80, e.cursor);
	}
}

static struct sandbox_watch *watch(struct world *w, const char *cursor, bool initial,
				   unsigned *on_ready)
{
	struct sandbox_watch_options o = { .who = &alice, .cursor = cursor, .initial = initial };
	struct sandbox_watch *ret;
	struct status st = STATUS_OK;

	CHECK(!sandbox_watch_new(w->core, &o, test_runner_on_ready, on_ready, &ret, &st));
	return ret;
}

TEST(events)
{
	struct world w;
	struct create c = a_create("r");
	char text[256], live[256], cursor[80] = "", mid[80];
	unsigned on_ready = 0;
	struct sandbox_watch *v;
	struct answer a;

	world_new(&w);
	v = watch(&w, NULL, false, &on_ready);
	a = do_create(&w, &c);
	UNTIL(&w, on_ready > 0);
	text[0] = 0;
	drain(v, text, cursor);
	CHECK(str_starts(text, "1 "));
	(void)str_copy(mid, sizeof(mid), cursor);
	do_kill(&w, &alice, a.id);
	text[0] = 0;
	UNTIL(&w, (drain(v, text, cursor), strstr(text, "7 ")));
	CHECK(str_eq(text + strlen(text) - 4, "2 7 "));	/* being killed, gone; before it, maybe, what was learned of it */
	(void)str_copy(live, sizeof(live), text);
	sandbox_watch_free(v);

	world_restart(&w);
	v = watch(&w, mid, false, &on_ready);
	text[0] = 0;
	drain(v, text, cursor);
	CHECK_STR(text, live);
	text[0] = 0;
	drain(v, text, NULL);
	CHECK_STR(text, "");
	sandbox_watch_free(v);
	v = watch(&w, "elsewhere.3", false, &on_ready);
	text[0] = 0;
	drain(v, text, NULL);
	CHECK_STR(text, "11 12 ");
	sandbox_watch_free(v);

	a = do_create(&w, &(struct create){
				  .who = &bob});
	c.request_id = "r2";
	a = do_create(&w, &c);
	spin(&w, 30);
	v = watch(&w, NULL, true, &on_ready);
	text[0] = 0;
	drain(v, text, NULL);
	CHECK_STR(text, "11 2 12 ");	/* not bob's */
	sandbox_watch_free(v);
	world_free(&w);
}

/* One who does not read is overtaken, and told so. */
TEST(slow_watcher)
{
	static struct answer answers[EVENTS_PER_UID + 100];
	struct world w;
	struct create c = a_create("r");
	struct policy_change p = { .set = BIT(POLICY_F_KEEP_ALIVE) };
	struct sandbox_watch *v, *early;
	struct sandbox_event e;
	unsigned on_ready = 0, on_early = 0;
	struct answer a;
	char text[256];

	world_new(&w);
	early = watch(&w, NULL, false, &on_early);	/* there is nothing yet */
	a = do_create(&w, &c);
	spin(&w, 30);
	v = watch(&w, NULL, true, &on_ready);
	text[0] = 0;
	drain(v, text, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		answers[i] = (struct answer){ .w = &w };
		CHECK(!sandbox_set_policy(w.core, CALL(&alice, a.id, 0, &answers[i]), &p, 0,
					  on_sandbox, &answers[i].op));
	}
	wait_for(&w, &answers[ARRAY_SIZE(answers) - 1]);
	spin(&w, 30);
	text[0] = 0;
	drain(v, text, NULL);
	CHECK(str_starts(text, "11 2 12 "));
	CHECK(sandbox_watch_next(early, &e));
	CHECK_INT(e.type, EVENT_RESYNC);
	sandbox_watch_free(early);
	sandbox_watch_free(v);
	v = watch(&w, NULL, false, &on_ready);	/* from now: nothing */
	CHECK(!sandbox_watch_next(v, &e));
	sandbox_watch_free(v);
	world_free(&w);
}

TEST_MAIN()
