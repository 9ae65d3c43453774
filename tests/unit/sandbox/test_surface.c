/* SPDX-License-Identifier: MIT */
/* Pause, resume, network, metrics, forks and snapshots, against the fake cloud. */
#include "proto/cloud/model.h"
#include "tests/unit/sandbox/world.h"

static struct answer make(struct world *w)
{
	struct create c = a_create("");
	struct answer a;

	c.timeout_ms = 600000;
	a = do_create(w, &c);
	CHECK(status_ok(&a.st));
	return a;
}

static void begin_pause(struct world *w, struct answer *a, const char *id)
{
	*a = (struct answer){ .w = w };
	CHECK(!sandbox_pause(w->core, CALL(&alice, id, clock_boot_ms() + 3000, a), true, on_yes,
			     &a->op));
}

static struct answer do_pause(struct world *w, const char *id)
{
	struct answer a;

	begin_pause(w, &a, id);
	wait_for(w, &a);
	return a;
}

static void begin_connect(struct world *w, struct answer *a, const char *id, uint64_t timeout_ms)
{
	struct sandbox_connect c = { .timeout_ms = timeout_ms };

	*a = (struct answer){ .w = w };
	CHECK(!sandbox_connect(w->core, CALL(&alice, id, clock_boot_ms() + 3000, a), &c, on_sandbox,
			       &a->op));
}

TEST(pause_and_resume)
{
	struct world w;
	struct answer b, a;

	world_new(&w);
	b = make(&w);
	a = do_pause(&w, b.id);
	CHECK(status_ok(&a.st) && a.yes);
	a = do_get(&w, &alice, b.id, SANDBOX_STALENESS_DEFAULT);
	CHECK_INT(a.state, SANDBOX_PAUSED);
	a = do_pause(&w, b.id);
	CHECK(status_ok(&a.st) && !a.yes);	/* paused already: an answer, not an error */
	begin_connect(&w, &a, b.id, 60000);
	wait_for(&w, &a);
	CHECK(status_ok(&a.st));
	CHECK_INT(a.state, SANDBOX_RUNNING);
	a = do_pause(&w, "nosuchbox");
	CHECK_INT(a.st.reason, R_SANDBOX_NOT_FOUND);
	do_kill(&w, &alice, b.id);
	a = do_pause(&w, b.id);
	CHECK_INT(a.st.reason, R_SANDBOX_KILLED);
	world_free(&w);
}

/* What a contract's answer needs beside the sandbox: 201 or 200, and whether all of it is known. */
TEST(a_connect_tells_whether_it_resumed)
{
	struct world w;
	struct answer b, a;

	world_new(&w);
	b = make(&w);
	begin_connect(&w, &a, b.id, 60000);
	wait_for(&w, &a);
	CHECK(status_ok(&a.st) && !a.resumed && a.is_detail);
	a = do_pause(&w, b.id);
	CHECK(a.yes);
	begin_connect(&w, &a, b.id, 60000);
	wait_for(&w, &a);
	CHECK(status_ok(&a.st) && a.resumed);
	world_free(&w);
}

TEST(a_get_tells_whether_all_is_known)
{
	struct world w;
	struct answer b, a;

	world_new(&w);
	b = make(&w);
	CHECK(b.is_detail);
	world_restart(&w);
	a = do_list(&w, &alice, (struct sandbox_list){ 0 });
	CHECK_INT(a.n, 1);
	a = do_get(&w, &alice, b.id, SANDBOX_STALENESS_DEFAULT);
	CHECK(status_ok(&a.st) && !a.is_detail);
	a = do_get(&w, &alice, b.id, 0);
	CHECK(a.is_detail);
	a = do_get(&w, &alice, b.id, SANDBOX_STALENESS_DEFAULT);
	CHECK(a.is_detail && a.source == SANDBOX_FROM_CACHE);
	world_free(&w);
}

static struct answer do_refresh(struct world *w, const char *id, uint64_t for_ms)
{
	struct answer a = { .w = w };

	CHECK(!sandbox_refresh(w->core, CALL(&alice, id, clock_boot_ms() + 3000, &a), for_ms, on_yes, &a.op));
	wait_for(w, &a);
	return a;
}

TEST(a_refresh_extends_and_wakes_nothing)
{
	struct world w;
	struct answer b, a;
	int64_t end_ms;

	world_new(&w);
	b = make(&w);
	end_ms = fake_find(w.fake, b.id)->end_at_ms;
	a = do_refresh(&w, b.id, 15000);
	CHECK(status_ok(&a.st) && a.yes);
	CHECK_INT(fake_find(w.fake, b.id)->end_at_ms, end_ms);	/* never shortens */
	a = do_refresh(&w, b.id, 1200000);
	CHECK(status_ok(&a.st));
	CHECK(fake_find(w.fake, b.id)->end_at_ms > end_ms + 500000);
	a = do_get(&w, &alice, b.id, SANDBOX_STALENESS_DEFAULT);
	CHECK_INT(a.end_at_ms, fake_find(w.fake, b.id)->end_at_ms);
	fake_next(w.fake, FAKE_REFRESH, 2, FAKE_CONFLICT);
	a = do_refresh(&w, b.id, 15000);
	CHECK(status_ok(&a.st));
	CHECK(do_pause(&w, b.id).yes);
	CHECK_INT(do_refresh(&w, b.id, 15000).st.reason, R_SANDBOX_PAUSED);
	CHECK(fake_find(w.fake, b.id)->paused);
	CHECK_INT(do_refresh(&w, "inosuch", 15000).st.reason, R_SANDBOX_NOT_FOUND);
	do_kill(&w, &alice, b.id);
	CHECK_INT(do_refresh(&w, b.id, 15000).st.reason, R_SANDBOX_KILLED);
	CHECK_INT(do_refresh(&w, b.id, UINT64_MAX).st.reason, R_FIELD_INVALID);
	world_free(&w);
}

TEST(equal_changes_are_one)
{
	struct answer b, a[3], c[3];
	struct world w;

	world_new(&w);
	b = make(&w);
	for (size_t i = 0; i < 3; i++)
		begin_pause(&w, &a[i], b.id);
	/* Behind the pause, in order: resumed once. */
	for (size_t i = 0; i < 3; i++)
		begin_connect(&w, &c[i], b.id, 60000);
	for (size_t i = 0; i < 3; i++) {
		if (!a[i].done)
			wait_for(&w, &a[i]);
		CHECK(status_ok(&a[i].st) && a[i].yes);
	}
	for (size_t i = 0; i < 3; i++) {
		if (!c[i].done)
			wait_for(&w, &c[i]);
		CHECK(status_ok(&c[i].st));
		CHECK_INT(c[i].state, SANDBOX_RUNNING);
	}
	CHECK_INT(w.fake->seen[FAKE_PAUSE], 1);
	CHECK_INT(fake_find(w.fake, b.id)->paused, false);
	world_free(&w);
}

TEST(transitions_are_waited_for)
{
	struct answer b, a;
	struct world w;

	world_new(&w);
	b = make(&w);
	fake_next(w.fake, FAKE_CONNECT, 2, FAKE_CONFLICT);
	begin_connect(&w, &a, b.id, 60000);
	wait_for(&w, &a);
	CHECK(status_ok(&a.st));
	fake_next(w.fake, FAKE_PAUSE, 2, FAKE_CONFLICT);
	a = do_pause(&w, b.id);
	CHECK(status_ok(&a.st) && a.yes);
	fake_next(w.fake, FAKE_CONNECT, 1000, FAKE_CONFLICT);
	begin_connect(&w, &a, b.id, 60000);
	wait_for(&w, &a);
	CHECK_INT(a.st.code, CODE_ABORTED);
	CHECK_INT(a.st.reason, R_STATE_CHANGING);
	world_free(&w);
}

TEST(a_caller_that_leaves_pauses_all_the_same)
{
	struct answer b, a;
	struct world w;

	world_new(&w);
	b = make(&w);
	w.fake->down = true;
	begin_pause(&w, &a, b.id);
	spin(&w, 30);
	CHECK(!a.done);
	sandbox_cancel(a.op);
	w.fake->down = false;
	spin(&w, 50);
	a = do_get(&w, &alice, b.id, SANDBOX_STALENESS_DEFAULT);
	CHECK_INT(a.state, SANDBOX_PAUSED);
	world_free(&w);
}

/* --- network, metrics --- */

static struct answer do_network(struct world *w, const char *id, const struct cloud_network *n)
{
	struct answer a = { .w = w };

	CHECK(!sandbox_update_network(w->core, CALL(&alice, id, clock_boot_ms() + 3000, &a),
				      n ? cloud_network_dup(n) : NULL, TRI_UNSET, on_yes, &a.op));
	wait_for(w, &a);
	return a;
}

TEST(network)
{
	struct cloud_network n = { 0 };
	struct answer b, a;
	struct world w;

	world_new(&w);
	b = make(&w);
	a = do_network(&w, b.id, NULL);
	CHECK(status_ok(&a.st));
	fake_next(w.fake, FAKE_NETWORK, 1, FAKE_CONFLICT);
	a = do_network(&w, b.id, NULL);
	CHECK(status_ok(&a.st));
	CHECK_INT(w.fake->seen[FAKE_NETWORK], 3);
	n.allow_public_traffic = TRI_FALSE;
	a = do_network(&w, b.id, &n);
	CHECK_INT(a.st.reason, R_FIELD_INVALID);
	CHECK_INT(w.fake->seen[FAKE_NETWORK], 3);
	do_pause(&w, b.id);
	a = do_network(&w, b.id, NULL);
	CHECK_INT(a.st.reason, R_SANDBOX_PAUSED);
	world_free(&w);
}

static void on_metrics(void *user, const struct status *st, const struct sandbox_metrics *m)
{
	struct answer *a = user;

	a->done = true;
	a->st = *st;
	if (m) {
		a->n = m->metrics->n;
		a->source = m->source;
	}
}

static struct answer do_metrics(struct world *w, const char *id, int64_t start, int64_t end)
{
	struct answer a = { .w = w };

	CHECK(!sandbox_get_metrics(w->core, CALL(&alice, id, clock_boot_ms() + 300, &a), start, end,
				   on_metrics, &a.op));
	wait_for(w, &a);
	return a;
}

TEST(metrics)
{
	struct answer b, a;
	struct world w;

	world_new(&w);
	b = make(&w);
	a = do_metrics(&w, b.id, 0, 0);
	CHECK(status_ok(&a.st) && a.n == 1);
	CHECK_INT(a.source, SANDBOX_FROM_CLOUD);
	a = do_metrics(&w, b.id, 0, 0);
	CHECK_INT(a.source, SANDBOX_FROM_CACHE);
	CHECK_INT(w.fake->seen[FAKE_METRICS], 1);
	a = do_metrics(&w, b.id, 10, 20);
	CHECK_INT(a.source, SANDBOX_FROM_CLOUD);
	a = do_metrics(&w, b.id, 20, 10);
	CHECK_INT(a.st.reason, R_FIELD_INVALID);
	world_free(&w);
}

/* --- forks --- */

struct forked {
	struct answer a;
	struct status child[100];
};

static void on_forked(void *user, const struct status *st, const struct sandbox_child *v, size_t n)
{
	struct forked *f = user;

	CHECK(!f->a.done);
	f->a.done = true;
	f->a.st = *st;
	f->a.n = n;
	for (size_t i = 0; i < n; i++) {
		f->child[i] = *v[i].st;
		if (!v[i].sandbox)
			continue;
		(void)str_copy(f->a.ids[i], sizeof(f->a.ids[i]), v[i].sandbox->id);
		f->a.end_at_ms = v[i].sandbox->end_at_ms;
		CHECK(!v[i].sandbox->name[0]);
	}
}

static void begin_fork(struct world *w, struct forked *f, const char *id, uint32_t count,
		       const char *request_id)
{
	struct sandbox_create q = {.request_id = request_id ? str_dup(request_id) : NULL,
				   .timeout_ms = 60000};

	q.params_hash[0] = (uint8_t)count;
	*f = (struct forked){ .a.w = w };
	CHECK(!sandbox_fork(w->core, CALL(&alice, id, clock_boot_ms() + 3000, f), &q, count,
			    on_forked, &f->a.op));
}

static void do_fork(struct world *w, struct forked *f, const char *id, uint32_t count, const char *request_id)
{
	begin_fork(w, f, id, count, request_id);
	wait_for(w, &f->a);
}

TEST(fork_children)
{
	struct world w;
	struct answer b, a;
	struct forked f;

	world_new(&w);
	b = make(&w);
	do_fork(&w, &f, b.id, 3, "");
	CHECK(status_ok(&f.a.st));
	CHECK_INT(f.a.n, 3);
	CHECK_INT(w.fake->seen[FAKE_FORK], 1);
	CHECK(f.a.end_at_ms);			/* what the answer lacks was asked for */
	a = do_get(&w, &alice, b.id, 0);
	CHECK_INT(a.state, SANDBOX_RUNNING);
	CHECK_INT(a.end_at_ms, b.end_at_ms);
	for (size_t i = 0; i < 3; i++) {
		a = do_get(&w, &alice, f.a.ids[i], 0);
		CHECK(status_ok(&a.st));
		CHECK_INT(a.adopted, false);
	}
	w.fake->children_fail = 1;
	do_fork(&w, &f, b.id, 2, "some");
	CHECK(status_ok(&f.a.st));
	CHECK_INT(f.child[0].reason, R_CONCURRENCY_LIMIT);
	CHECK(status_ok(&f.child[1]));
	do_fork(&w, &f, b.id, 2, "some");	/* the same two, as they are now */
	CHECK_INT(w.fake->seen[FAKE_FORK], 2);
	CHECK_INT(f.child[0].reason, R_CONCURRENCY_LIMIT);
	CHECK(f.a.ids[1][0]);
	do_fork(&w, &f, b.id, 3, "some");
	CHECK_INT(f.a.st.reason, R_REQUEST_ID_REUSED);
	do_fork(&w, &f, b.id, 101, "");
	CHECK_INT(f.a.st.reason, R_FIELD_INVALID);
	do_pause(&w, b.id);
	do_fork(&w, &f, b.id, 1, "");
	CHECK_INT(f.a.st.reason, R_SANDBOX_PAUSED);
	world_free(&w);
}

TEST(forks_of_one_parent_follow_each_other)
{
	struct forked f[3];
	struct answer b;
	struct world w;

	world_new(&w);
	b = make(&w);
	for (size_t i = 0; i < 3; i++)
		begin_fork(&w, &f[i], b.id, 1, i < 2 ? "same" : "other");
	for (size_t i = 0; i < 3; i++) {
		if (!f[i].a.done)
			wait_for(&w, &f[i].a);
		CHECK(status_ok(&f[i].a.st));
	}
	CHECK_INT(w.fake->seen[FAKE_FORK], 2);
	CHECK_STR(f[0].a.ids[0], f[1].a.ids[0]);
	CHECK(strcmp(f[0].a.ids[0], f[2].a.ids[0]) != 0);
	world_free(&w);
}

/* While the cloud is asked about a sandbox that has no row, another call with the same request id may come. */
TEST(forks_of_a_stranger_with_one_request_id)
{
	struct forked f[2];
	struct world w;

	world_new(&w);
	(void)fake_plant(w.fake, "stranger");
	for (size_t i = 0; i < 2; i++)
		begin_fork(&w, &f[i], "stranger", 1, "same");
	for (size_t i = 0; i < 2; i++) {
		if (!f[i].a.done)
			wait_for(&w, &f[i].a);
		CHECK(status_ok(&f[i].a.st));
	}
	CHECK_INT(w.fake->seen[FAKE_FORK], 1);
	CHECK_STR(f[0].a.ids[0], f[1].a.ids[0]);
	world_free(&w);
}

TEST(fork_whose_answer_is_lost)
{
	struct forked f, again;
	struct answer b;
	struct world w;

	world_new(&w);
	b = make(&w);
	do_fork(&w, &f, b.id, 1, "");		/* a sibling that was there before */
	fake_next(w.fake, FAKE_FORK, 1, FAKE_LOST_AFTER);
	do_fork(&w, &f, b.id, 2, "lost");
	CHECK(status_ok(&f.a.st));
	CHECK_INT(f.a.n, 2);
	CHECK_INT(w.fake->seen[FAKE_FORK], 2);
	CHECK_INT(fake_alive(w.fake), 4);
	world_restart(&w);
	do_fork(&w, &again, b.id, 2, "lost");
	CHECK_STR(again.a.ids[0], f.a.ids[0]);
	CHECK_STR(again.a.ids[1], f.a.ids[1]);
	CHECK_INT(w.fake->seen[FAKE_FORK], 2);
	world_free(&w);
}

TEST(fork_that_never_happened)
{
	struct forked f;
	struct answer b;
	struct world w;

	world_new(&w);
	b = make(&w);
	fake_next(w.fake, FAKE_FORK, 1, FAKE_LOST_BEFORE);
	do_fork(&w, &f, b.id, 2, "lost");
	CHECK_INT(f.a.st.code, CODE_UNAVAILABLE);
	CHECK_INT(f.a.st.reason, R_OUTCOME_UNKNOWN);
	do_fork(&w, &f, b.id, 2, "lost");	/* it stays unknown and never runs again */
	CHECK_INT(f.a.st.reason, R_OUTCOME_UNKNOWN);
	CHECK_INT(w.fake->seen[FAKE_FORK], 1);
	fake_next(w.fake, FAKE_FORK, 1, FAKE_LOST_BEFORE);
	do_fork(&w, &f, b.id, 2, "");
	CHECK_INT(f.a.st.code, CODE_UNKNOWN);	/* without an id nobody should repeat it */
	fake_next(w.fake, FAKE_FORK, 1, FAKE_UNSENT);
	do_fork(&w, &f, b.id, 1, "unsent");
	CHECK(status_ok(&f.a.st));
	fake_next(w.fake, FAKE_FORK, 1, FAKE_REFUSED);
	do_fork(&w, &f, b.id, 1, "refused");
	CHECK_INT(f.a.st.reason, R_CLOUD_REFUSED);
	world_free(&w);
}

/* The daemon dies with a fork in flight: its children are found after the start, and only these. */
TEST(fork_over_a_restart)
{
	struct forked f;
	struct answer b, a;
	struct world w;

	world_new(&w);
	b = make(&w);
	fake_next(w.fake, FAKE_FORK, 1, FAKE_LOST_AFTER);
	begin_fork(&w, &f, b.id, 2, "crash");
	UNTIL(&w, w.fake->seen[FAKE_FORK]);
	CHECK(!f.a.done);
	world_restart(&w);
	do_fork(&w, &f, b.id, 2, "crash");
	CHECK(status_ok(&f.a.st));
	CHECK_INT(f.a.n, 2);
	CHECK_INT(w.fake->seen[FAKE_FORK], 1);
	a = do_get(&w, &alice, f.a.ids[0], 0);
	CHECK(status_ok(&a.st));
	world_free(&w);
}

/* A sandbox and its child are forked at once and both answers are lost: the one that shows up first may be either's. */
TEST(forks_of_relatives_in_doubt)
{
	struct forked child, f[2];
	struct answer b;
	struct world w;

	world_new(&w);
	b = make(&w);
	do_fork(&w, &child, b.id, 1, "");
	fake_next(w.fake, FAKE_FORK, 2, FAKE_LOST_AFTER);
	begin_fork(&w, &f[0], b.id, 1, "a");
	begin_fork(&w, &f[1], child.a.ids[0], 1, "b");
	UNTIL(&w, w.fake->seen[FAKE_FORK] >= 3);
	w.fake->sandboxes[w.fake->n_sandboxes - 2].hidden = true;
	for (size_t i = 0; i < 2; i++) {
		if (!f[i].a.done)
			wait_for(&w, &f[i].a);
		CHECK_INT(f[i].a.st.reason, R_OUTCOME_UNKNOWN);
	}
	CHECK_INT(w.fake->seen[FAKE_KILL], 0);
	world_free(&w);
}

/* More new ones than were asked for: nobody knows whose they are, and nothing is killed. */
TEST(fork_in_doubt)
{
	struct forked f;
	struct fake_sandbox *p;
	struct answer b;
	struct world w;

	world_new(&w);
	b = make(&w);
	fake_next(w.fake, FAKE_FORK, 1, FAKE_LOST_BEFORE);
	begin_fork(&w, &f, b.id, 1, "doubt");
	UNTIL(&w, w.fake->seen[FAKE_FORK]);
	for (unsigned i = 0; i < 2; i++) {
		struct fake_sandbox *parent = fake_find(w.fake, b.id);

		p = fake_plant(w.fake, i ? "ifoundb" : "ifounda");
		for (unsigned k = 0; k < parent->n_tags; k++)
			fake_plant_tag(p, parent->keys[k], parent->values[k]);
	}
	wait_for(&w, &f.a);
	CHECK_INT(f.a.st.reason, R_OUTCOME_UNKNOWN);
	CHECK_INT(w.fake->seen[FAKE_KILL], 0);
	world_free(&w);
}

/* --- snapshots --- */

static void on_snapshot(void *user, const struct status *st, const struct sandbox_snapshot *s)
{
	struct answer *a = user;

	a->done = true;
	a->st = *st;
	if (s) {
		(void)str_copy(a->id, sizeof(a->id), s->id);
		(void)str_copy(a->name, sizeof(a->name), s->source_sandbox);
		a->started_at_ms = s->created_at_ms;
	}
}

static struct answer do_snapshot(struct world *w, const char *id, const char *request_id)
{
	struct sandbox_snapshot_create c = { .request_id = request_id };
	struct answer a = { .w = w };

	CHECK(!sandbox_snapshot_create(w->core, CALL(&alice, id, clock_boot_ms() + 3000, &a), &c,
				       on_snapshot, &a.op));
	wait_for(w, &a);
	return a;
}

static void on_snapshots(void *user, const struct status *st, const struct sandbox_snapshot_page *p)
{
	struct answer *a = user;

	a->done = true;
	a->st = *st;
	if (!p)
		return;
	a->n = p->n;
	for (size_t i = 0; i < p->n; i++) {
		(void)str_copy(a->ids[i], sizeof(a->ids[i]), p->snapshots[i].id);
		a->source = p->snapshots[i].source;
		(void)str_copy(a->name, sizeof(a->name), p->snapshots[i].source_sandbox);
	}
	(void)str_copy(a->next, sizeof(a->next), p->next_page_token);
}

static struct answer do_snapshots(struct world *w, const struct principal *who, const char *sandbox,
				  const char *token, uint32_t size, bool cached)
{
	struct sandbox_snapshot_list q = { .page_token = token, .page_size = size, .cached = cached };
	struct answer a = { .w = w };

	CHECK(!sandbox_list_snapshots(w->core, CALL(who, sandbox, clock_boot_ms() + 300, &a), &q,
				      on_snapshots, &a.op));
	wait_for(w, &a);
	return a;
}

static struct answer do_delete(struct world *w, const struct principal *who, const char *id)
{
	struct answer a = { .w = w };

	CHECK(!sandbox_delete_snapshot(w->core, CALL(who, NULL, clock_boot_ms() + 1000, &a), id,
				       on_yes, &a.op));
	wait_for(w, &a);
	return a;
}

/* A walk over all that finds one missing leaves the others where they are, though they have been gone for long. */
TEST(a_list_after_an_old_end)
{
	struct answer b, old, a;
	struct world w;

	world_new(&w);
	b = make(&w);
	old = do_snapshot(&w, b.id, "old");
	a = do_snapshot(&w, b.id, "new");	/* right before the other */
	a = do_delete(&w, &alice, old.id);
	CHECK(a.yes);
	spin(&w, 601000);
	w.fake->snapshots[1].alive = false;
	a = do_snapshots(&w, &alice, "", "", 0, false);
	CHECK(status_ok(&a.st));
	CHECK_INT(a.n, 0);
	world_free(&w);
}

/* A list that was asked for before a snapshot was deleted, and comes after, brings it back to nobody. */
TEST(a_list_from_before_a_delete)
{
	struct sandbox_snapshot_list q = { .page_token = "" };
	struct answer b, old, a, list;
	struct world w;

	world_new(&w);
	b = make(&w);
	old = do_snapshot(&w, b.id, "old");
	fake_next(w.fake, FAKE_SNAPSHOTS_LIST, 1, FAKE_HOLD);
	list = (struct answer){ .w = &w };
	CHECK(!sandbox_list_snapshots(w.core, CALL(&bob, "", clock_boot_ms() + 3000, &list), &q, on_snapshots, &list.op));
	spin(&w, 300);
	a = do_delete(&w, &alice, old.id);
	CHECK(a.yes && !list.done);
	w.fake->released = true;
	wait_for(&w, &list);
	CHECK(status_ok(&list.st));
	CHECK_INT(list.n, 0);
	CHECK_INT(do_snapshots(&w, &bob, "", "", 0, true).n, 0);
	world_free(&w);
}

TEST(snapshots)
{
	struct answer b, s, a;
	struct world w;

	world_new(&w);
	b = make(&w);
	s = do_snapshot(&w, b.id, "one");
	CHECK(status_ok(&s.st));
	CHECK_STR(s.id, "snap0:default");
	CHECK_STR(s.name, b.id);
	CHECK(s.started_at_ms);
	a = do_snapshot(&w, b.id, "one");
	CHECK_STR(a.id, s.id);
	CHECK_INT(w.fake->n_snapshots, 1);
	fake_next(w.fake, FAKE_SNAPSHOT, 1, FAKE_LOST_AFTER);
	a = do_snapshot(&w, b.id, "lost");	/* the only new one is it */
	CHECK_STR(a.id, "snap1:default");
	fake_next(w.fake, FAKE_SNAPSHOT, 1, FAKE_LOST_BEFORE);
	a = do_snapshot(&w, b.id, "never");
	CHECK_INT(a.st.reason, R_OUTCOME_UNKNOWN);
	do_snapshot(&w, b.id, "");
	a = do_snapshots(&w, &alice, b.id, "", 2, false);
	CHECK_INT(a.n, 2);
	CHECK_STR(a.ids[0], "snap2:default");	/* newest first */
	CHECK(a.next[0]);
	a = do_snapshots(&w, &alice, b.id, a.next, 2, false);
	CHECK_INT(a.n, 1);
	CHECK_STR(a.ids[0], "snap0:default");
	CHECK(!a.next[0]);
	a = do_snapshots(&w, &alice, "", "bogus", 0, false);
	CHECK_INT(a.st.reason, R_FIELD_INVALID);
	/* They outlive the sandbox and the daemon's memory. */
	do_kill(&w, &alice, b.id);
	world_restart(&w);
	a = do_snapshots(&w, &alice, b.id, "", 0, true);
	CHECK_INT(a.n, 3);
	CHECK_INT(a.source, SANDBOX_FROM_CACHE);
	w.fake->down = true;
	a = do_snapshots(&w, &alice, "", "", 0, false);
	CHECK_INT(a.n, 3);
	CHECK_INT(a.source, SANDBOX_FROM_CACHE_CLOUD_UNREACHABLE);
	w.fake->down = false;
	/* Another user's do not exist. */
	a = do_snapshots(&w, &bob, "", "", 0, false);
	CHECK_INT(a.n, 0);
	a = do_delete(&w, &bob, "snap0:default");
	CHECK(status_ok(&a.st) && !a.yes && w.fake->snapshots[0].alive);
	a = do_delete(&w, &alice, "snap0:default");
	CHECK(status_ok(&a.st) && a.yes);
	a = do_delete(&w, &alice, "snap0:default");
	CHECK(status_ok(&a.st) && !a.yes);
	a = do_delete(&w, &alice, "");
	CHECK_INT(a.st.reason, R_FIELD_INVALID);
	a = do_snapshots(&w, &alice, "", "", 0, false);
	CHECK_INT(a.n, 2);
	world_free(&w);
}

/* Another program makes one of a sandbox that has an owner here: it is the account's, and of what sandbox it is told to the owner. */
TEST(snapshots_of_anothers_sandbox)
{
	struct answer b, a;
	struct world w;

	world_new(&w);
	b = make(&w);
	w.fake->snapshots[0] = (struct fake_snapshot){ .id = "strange:default", .name = "strange", .alive = true };
	CHECK(str_copy(w.fake->snapshots[0].source, sizeof(w.fake->snapshots[0].source), b.id));
	w.fake->n_snapshots = 1;
	a = do_snapshots(&w, &bob, b.id, "", 0, false);	/* as one that nobody has */
	CHECK(status_ok(&a.st));
	CHECK_INT(a.n, 0);
	CHECK_INT(w.fake->seen[FAKE_SNAPSHOTS_LIST], 1);
	a = do_snapshots(&w, &alice, b.id, "", 0, false);
	CHECK_INT(a.n, 1);
	CHECK_STR(a.name, b.id);
	for (int cached = 0; cached < 2; cached++) {
		a = do_snapshots(&w, &bob, "", "", 0, cached);
		CHECK_INT(a.n, 1);
		CHECK_STR(a.name, "");
		a = do_snapshots(&w, &bob, b.id, "", 0, cached);
		CHECK_INT(a.n, 0);
	}
	w.fake->down = true;
	a = do_snapshots(&w, &bob, b.id, "", 0, false);
	CHECK_INT(a.n, 0);
	world_free(&w);
}

/* --- templates --- */

static void on_templates(void *user, const struct status *st, const struct sandbox_template_page *p)
{
	struct answer *a = user;

	a->done = true;
	a->st = *st;
	if (!p)
		return;
	a->n = p->n;
	for (size_t i = 0; i < p->n; i++)
		(void)str_copy(a->ids[i], sizeof(a->ids[i]), p->templates[i].id);
	(void)str_copy(a->next, sizeof(a->next), p->next_page_token);
}

static struct answer do_templates(struct world *w, const struct principal *who, const char *token, uint32_t size)
{
	struct sandbox_template_list q = { .page_token = token, .page_size = size };
	struct answer a = { .w = w };

	CHECK(!sandbox_list_templates(w->core, CALL(who, NULL, clock_boot_ms() + 300, &a), &q, on_templates, &a.op));
	wait_for(w, &a);
	return a;
}

/* Each once, in the cloud's order; a snapshot that the cloud lists with them is its owner's alone, also after a restart. */
TEST(templates)
{
	struct answer b, a;
	struct world w;

	world_new(&w);
	b = make(&w);
	do_snapshot(&w, b.id, "one");
	for (unsigned i = 0; i < 2; i++) {
		a = do_templates(&w, &alice, "", 2);
		CHECK(status_ok(&a.st));
		CHECK_INT(a.n, 2);
		CHECK_STR(a.ids[0], "rki5dems9wqfm4r03t7g");
		CHECK_STR(a.ids[1], "snap0:default");
		a = do_templates(&w, &alice, a.next, 2);
		CHECK_INT(a.n, 1);
		CHECK_STR(a.ids[0], "plain");
		CHECK(!a.next[0]);
		a = do_templates(&w, &bob, "", 0);
		CHECK_INT(a.n, 2);
		CHECK_STR(a.ids[1], "plain");
		world_restart(&w);
	}
	world_free(&w);
}

TEST(templates_of_an_older_cloud)
{
	struct answer a;
	struct world w;

	world_new(&w);
	w.fake->old_templates = true;
	a = do_templates(&w, &alice, "", 0);
	CHECK(status_ok(&a.st));
	CHECK_INT(a.n, 2);
	CHECK_INT(w.fake->seen[FAKE_TEMPLATES], 2);
	world_free(&w);
}

TEST(templates_that_are_not_listed)
{
	struct answer a, b;
	struct world w;

	world_new(&w);
	a = do_templates(&w, &alice, "", 1001);
	CHECK_INT(a.st.reason, R_FIELD_INVALID);
	a = do_templates(&w, &alice, "bogus", 0);
	CHECK_INT(a.st.reason, R_FIELD_INVALID);
	CHECK_INT(w.fake->seen[FAKE_TEMPLATES], 0);
	a = do_templates(&w, &alice, "", 1);
	b = do_templates(&w, &bob, a.next, 1);	/* a token is for its caller alone */
	CHECK_INT(b.st.reason, R_FIELD_INVALID);
	w.fake->down = true;
	a = do_templates(&w, &alice, "", 0);
	CHECK(!status_ok(&a.st));
	world_free(&w);
}

/* The cloud's clock steps back, and the next answer says so. */
static void step(struct world *w)
{
	w->fake->clock_offset_ms -= 60000;
}

static void check_clock(struct world *w)
{
	int64_t off = account_cloud_now(&w->core->accounts[0]) - fake_now(w->fake);

	CHECK(off > -2500 && off < 2500);
}

/* Whatever was asked, the answer's Date counts: an age or an end by a wrong clock is wrong by as much. */
TEST(any_answer_tells_what_time_it_is)
{
	struct answer a, b;
	struct world w;

	world_new(&w);
	step(&w);
	b = make(&w);
	check_clock(&w);
	step(&w);
	begin_connect(&w, &a, b.id, 60000);
	wait_for(&w, &a);
	check_clock(&w);
	step(&w);
	a = do_refresh(&w, b.id, 15000);
	CHECK(status_ok(&a.st));
	check_clock(&w);
	step(&w);
	CHECK(do_pause(&w, b.id).yes);
	check_clock(&w);
	step(&w);
	CHECK(do_kill(&w, &alice, b.id).yes);
	check_clock(&w);
	world_free(&w);
}

TEST_MAIN()
