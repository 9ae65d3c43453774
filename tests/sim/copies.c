/* SPDX-License-Identifier: MIT */
/*
 * Forks and snapshots: as the cloud makes them, and as clients ask for them. Neither can be tagged, so
 * each is given a timeout of its children, or a name, that no other has: by it the ledger knows whose it
 * is, which the daemon cannot.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sandbox/rules/tags.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "tests/sim/sim.h"

#define FORK_BASE_S   20u
#define SURE_HORIZON_MS 180000u	/* longer than any POST is under way: what is found is what was asked for */

/* --- the ledger --- */

struct sim_copy *copy_by_timeout(uint32_t timeout_s)
{
	must(timeout_s >= FORK_BASE_S && timeout_s < FORK_BASE_S + W->n_copies);
	return &W->copies[timeout_s - FORK_BASE_S];
}

struct sim_copy *copy_by_name(const char *name)
{
	for (unsigned i = 0; i < W->n_copies; i++)
		if (str_eq(W->copies[i].name, name))
			return &W->copies[i];
	sim_fail("I15", "a snapshot is to be called %s, which nobody asked for", name);
}

const char *copy_key(const struct sim_copy *c)
{
	static char key[32];

	if (c->fork)
		snprintf(key, sizeof(key), "fork %u", c->timeout_s);
	else
		snprintf(key, sizeof(key), "snapshot %s", c->name);
	return key;
}

static void made_child(const struct sim_copy *of, struct sim_sandbox *b,
		       const struct sim_sandbox *parent)
{
	const char *policy = fake_tag(b->real, TAG_POLICY);

	b->of = of;
	b->foreign = parent->foreign;
	/* Its own policy, or, where it could not be told whose it is, the tag's. */
	if (policy)
		must(!policy_parse(policy, &b->may[0]));
	b->may[1] = of->policy;
	b->n_may = W->horizon_ms < SURE_HORIZON_MS || W->lost_run ? 0 : 2;
}

void ledger_made(const struct fake_request *q, struct fake_sandbox *real,
		 const struct fake_sandbox *parent)
{
	struct sim_sandbox *b = ledger_sandbox(real);

	if (parent) {
		made_child(copy_by_timeout(q->timeout_s), b, ledger_sandbox(parent));
	} else {
		b->orphan = q->run <= W->lost_run;
		warm_made_one(q, b);
		check_accepted(b);
	}
}

struct sim_sandbox *ledger_sandbox(const struct fake_sandbox *real)
{
	return &W->sandboxes[real - W->fake->sandboxes];
}

struct sim_sandbox *ledger_find(const char *id)
{
	struct fake_sandbox *b = fake_find_any(W->fake, id);

	return b ? ledger_sandbox(b) : NULL;
}

static struct sim_snap *find_snap(const char *id)
{
	for (unsigned i = 0; i < W->fake->n_snapshots; i++)
		if (str_eq(W->snaps[i].real->id, id))
			return &W->snaps[i];
	return NULL;
}

/* That it was made for. */
struct sim_copy *snap_copy(const struct sim_snap *s)
{
	return copy_by_name(s->real->name);
}

/* --- what clients are told --- */

/* One request id, one object: what was shown once is shown again. */
static void show(const struct sim_want *c, unsigned n, const char *id, const struct sim_copy *made_for)
{
	struct sim_copy *k = c->copy;

	must(n < SIM_CHILDREN);
	if (k->shown[n][0] && !str_eq(k->shown[n], id))
		sim_fail("I3", "%s showed %s, now %s", copy_key(k), k->shown[n], id);
	(void)str_copy(k->shown[n], sizeof(k->shown[n]), id);
	if (made_for != k && W->horizon_ms >= SURE_HORIZON_MS && !W->lost_run)
		sim_fail("I3", "%s is answered with %s, which was made for another", copy_key(k), id);
}

static void on_children(void *user, const struct status *st, const struct sandbox_child *v, size_t n)
{
	struct sim_want *c = user;

	if (!want_hears(c, st))
		return;
	if (status_ok(st) && n != c->copy->count)
		sim_fail("I3", "%s has %zu children instead of %u", copy_key(c->copy), n, c->copy->count);
	for (unsigned i = 0; status_ok(st) && i < n; i++) {
		const struct sandbox_view *sandbox = v[i].sandbox;
		struct sim_sandbox *b = sandbox ? ledger_find(sandbox->id) : NULL;

		if (!sandbox)
			continue;
		if (!b || !b->of)
			sim_fail("I3", "%s is answered with %s, which is no child",
				 copy_key(c->copy), sandbox->id);
		if (sandbox->owner_uid != W->procs[c->proc].uid)
			sim_fail("I9", "Fork shows uid %u the sandbox %s of %u",
				 W->procs[c->proc].uid, sandbox->id, sandbox->owner_uid);
		show(c, i, b->real->id, b->of);
		b->acked = true;
		/* What the store refused is in memory, and written later. */
		if (b->policy_calls || W->store_failed)
			continue;
		b->may[0] = sandbox->policy;
		b->n_may = 1;
		b->policy_since_ms = sim->now_ms;
	}
	want_done(c);
}

static void on_snapshot(void *user, const struct status *st, const struct sandbox_snapshot *s)
{
	struct sim_want *c = user;
	struct sim_snap *of;

	if (!want_hears(c, st))
		return;
	if (s) {
		of = find_snap(s->id);
		if (!of)
			sim_fail("I3", "%s is answered with %s, which never was", copy_key(c->copy), s->id);
		show(c, 0, s->id, snap_copy(of));
		of->acked = true;
	}
	want_done(c);
}

static void on_snapshots(void *user, const struct status *st, const struct sandbox_snapshot_page *p)
{
	struct sim_want *c = user;

	if (!want_hears(c, st))
		return;
	for (size_t i = 0; p && i < p->n; i++) {
		const struct sim_snap *s = find_snap(p->snapshots[i].id);

		if (!s)
			sim_fail("I8", "the list has snapshot %s, which never was", p->snapshots[i].id);
		/* One whose maker could not be told is nobody's, and seen by all of the account. */
		if (s->acked && snap_copy(s)->uid != W->procs[c->proc].uid)
			sim_fail("I9", "uid %u is shown snapshot %s of %u", W->procs[c->proc].uid,
				 s->real->id, snap_copy(s)->uid);
	}
	want_done(c);
}

static void on_deleted(void *user, const struct status *st, bool yes)
{
	struct sim_want *c = user;

	if (want_hears(c, st))
		want_done(c);
}

/* --- what they ask for --- */

/* A request id always means the same. */
static struct sim_copy *copy_of(unsigned proc, bool fork)
{
	uid_t uid = W->procs[proc].uid;
	unsigned request = sim_chance(&W->rng, 600) ? (unsigned)rng_below(&W->rng, SIM_REQUESTS) : SIM_REQUESTS;
	struct sim_copy *c;
	struct policy_change p;

	for (unsigned i = 0; i < W->n_copies && request < SIM_REQUESTS; i++)
		if (W->copies[i].fork == fork && W->copies[i].uid == uid && W->copies[i].request == request)
			return &W->copies[i];
	if (W->n_copies == SIM_COPIES)
		return NULL;
	c = &W->copies[W->n_copies];
	*c = (struct sim_copy){ .fork = fork, .uid = uid, .request = request,
				.timeout_s = FORK_BASE_S + W->n_copies };
	if (!fork)
		snprintf(c->name, sizeof(c->name), "c%u", W->n_copies);
	c->count = fork ? (unsigned)sim_between(&W->rng, 1, SIM_CHILDREN) : 1;
	policy_default(&c->policy);
	p = some_policy(&W->rng);
	policy_merge(&c->policy, &p);
	W->n_copies++;
	return c;
}

static struct sim_want *begin_copy(enum sim_ask what, unsigned proc, char rid[16])
{
	struct sim_want *c = want_begin(what, proc);

	if (!c)
		return NULL;
	if (W->fake->n_sandboxes + 60 > FAKE_SANDBOXES || W->n_posts + 60 > SIM_POSTS ||
	    !want_aim(c, sim_chance(&W->rng, 200)))
		goto none;
	c->copy = copy_of(proc, what == SIM_ASKS_FORK);
	if (!c->copy)
		goto none;
	snprintf(rid, 16, "%s", "");
	if (c->copy->request < SIM_REQUESTS)
		snprintf(rid, 16, "r%u", c->copy->request);
	sim_trace("%s #%u uid %u %s of %s rid %s", what == SIM_ASKS_FORK ? "Fork" : "Snapshot", c->serial,
		  c->copy->uid, copy_key(c->copy), c->ref, rid);
	return c;
none:
	want_done(c);
	return NULL;
}

/* The policy as it would have to be asked for. */
static struct policy_change change_of(const struct policy *p)
{
	struct policy_change c = { .to = *p };

	c.set = BIT(POLICY_F_ON_RELEASE) | BIT(POLICY_F_RELEASE_GRACE) | BIT(POLICY_F_KEEP_ALIVE) | BIT(POLICY_F_ON_CAP);
	if (p->idle_timeout_ms)
		c.set |= BIT(POLICY_F_IDLE_TIMEOUT) | BIT(POLICY_F_ON_IDLE);
	if (p->max_age_ms)
		c.set |= BIT(POLICY_F_MAX_AGE) | BIT(POLICY_F_ON_MAX_AGE);
	return c;
}

void act_fork(unsigned proc)
{
	char rid[16];
	struct sim_want *c = begin_copy(SIM_ASKS_FORK, proc, rid);
	struct principal who = principal_of(proc);
	struct sandbox_create f = { 0 };

	if (!c)
		return;
	f.request_id = rid[0] ? str_dup(rid) : NULL;
	f.timeout_ms = c->copy->timeout_s * 1000ull;
	f.policy = change_of(&c->copy->policy);
	f.params_hash[0] = (uint8_t)c->copy->timeout_s;
	if (sandbox_fork(W->core, CALL(&who, c->ref, c->deadline_ms - sim->booted_at_ms, c), &f,
			 c->copy->count, on_children, &c->op) < 0)
		want_done(c);
}

void act_snapshot(unsigned proc)
{
	char rid[16];
	struct sim_want *c = W->fake->n_snapshots + 60 < FAKE_SNAPSHOTS
				     ? begin_copy(SIM_ASKS_SNAPSHOT, proc, rid)
				     : NULL;
	struct principal who = principal_of(proc);
	struct sandbox_snapshot_create q = { .request_id = rid };

	if (!c)
		return;
	q.name = c->copy->name;
	q.params_hash[0] = (uint8_t)c->copy->timeout_s;
	if (sandbox_snapshot_create(W->core,
				    CALL(&who, c->ref, c->deadline_ms - sim->booted_at_ms, c), &q,
				    on_snapshot, &c->op) < 0)
		want_done(c);
}

static void act_delete(struct sim_want *c, const struct principal *who, uint64_t until)
{
	struct sim_snap *s = &W->snaps[rng_below(&W->rng, W->fake->n_snapshots)];

	c->what = SIM_ASKS_SNAPSHOT_DELETE;
	/* One whose maker could not be told is nobody's. */
	if (snap_copy(s)->uid == who->uid || !s->acked)
		s->delete_asked = true;
	sim_trace("DeleteSnapshot #%u uid %u %s", c->serial, who->uid, s->real->id);
	if (sandbox_delete_snapshot(W->core, CALL(who, NULL, until, c), s->real->id, on_deleted,
				    &c->op) < 0)
		want_done(c);
}

/* Lists them, or deletes one. */
void act_snapshots(unsigned proc)
{
	struct sim_want *c = want_begin(SIM_ASKS_SNAPSHOTS, proc);
	struct principal who = principal_of(proc);
	struct sandbox_snapshot_list q = { 0 };
	struct sandbox_call head = { .who = &who, .user = c };

	if (!c)
		return;
	head.deadline_ms = c->deadline_ms - sim->booted_at_ms;
	if (W->fake->n_snapshots && sim_chance(&W->rng, 300)) {
		act_delete(c, &who, head.deadline_ms);
		return;
	}
	if (sim_chance(&W->rng, 500) && want_aim(c, false))
		head.sandbox = c->ref;
	q.cached = sim_chance(&W->rng, 200);
	sim_trace("Snapshots #%u uid %u %s%s", c->serial, who.uid, c->ref, q.cached ? " cached" : "");
	if (sandbox_list_snapshots(W->core, &head, &q, on_snapshots, &c->op) < 0)
		want_done(c);
}
