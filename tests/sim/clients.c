/* SPDX-License-Identifier: MIT */
/*
 * The scripted clients: a few processes of two users that create (with and without request id and
 * name), connect, kill, lease, set timeouts and policies, die and are born again. What they were
 * told is remembered in the world: it is what the invariants are about.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/sandbox/rules/tags.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "tests/sim/sim.h"

static const char *const what_names[] = { "", "Create", "ConnectSandbox", "Kill", "SetTimeout", "SetPolicy",
					  "Acquire", "Renew", "Release", "Get", "List", "Pause", "Fork", "Snapshot",
					  "Snapshots", "DeleteSnapshot" };

static uint64_t draw(uint64_t lo, uint64_t hi)
{
	return sim_between(&W->rng, lo, hi);
}

static bool chance(unsigned of_1000)
{
	return sim_chance(&W->rng, of_1000);
}

static unsigned uid_index(const struct sim_want *c)
{
	return W->procs[c->proc].uid - 1000;
}

struct principal principal_of(unsigned proc)
{
	const struct sim_proc *p = &W->procs[proc];

	return (struct principal){ .uid = p->uid, .gid = p->uid, .pid = p->pid, .pidfd = p->fd, .conn = p->conn };
}

/* --- processes --- */

static void proc_born(unsigned i)
{
	struct sim_proc *p = &W->procs[i];
	bool reuse = p->pid && chance(600);
	pid_t before = p->pid;

	if (p->fd > 0)
		close(p->fd);
	*p = (struct sim_proc){ .uid = 1000 + i % SIM_UIDS, .alive = true };
	p->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	must(p->fd >= 0);
	/* Numbers of processes are used again. */
	p->pid = reuse ? before : W->next_pid++;
	p->start_time = ++W->next_start_time;
	p->conn = ++W->next_conn;
	sim_trace("process %d of %u is born", (int)p->pid, p->uid);
}

static void end_calls_of(unsigned proc)
{
	for (unsigned i = 0; i < SIM_WANTS; i++) {
		struct sim_want *c = &W->wants[i];

		if (c->what == SIM_ASKS_NOTHING || c->proc != proc)
			continue;
		if (c->op)
			sandbox_cancel(c->op);
		*c = (struct sim_want){ 0 };
	}
}

static void lease_over(struct sim_lease *x)
{
	if (lease_counts(x) && !x->sandbox->released_at_ms)
		x->sandbox->released_at_ms = sim->now_ms;
	x->over = true;
}

/* A process has one lease on a sandbox for all its Creates and Connects, and it may be one that it took
 * by Acquire before: then it is let go with it, and we cannot tell. */
static void release(struct sim_lease *x)
{
	lease_over(x);
	for (unsigned i = 0; i < W->n_leases && x->kind == SANDBOX_LEASE_PROCESS; i++) {
		struct sim_lease *y = &W->leases[i];

		if (!y->id[0] && y->sandbox == x->sandbox && y->proc == x->proc &&
		    y->proc_start == x->proc_start) {
			lease_over(y);
			y->sandbox->maybe_of[y->proc] = y->proc_start;
		}
	}
}

/* The connection ends with it: its calls are cancelled, its streams closed. */
void proc_die(unsigned i)
{
	struct sim_proc *p = &W->procs[i];
	struct principal who = principal_of(i);

	if (!p->alive)
		return;
	sim_trace("process %d of %u dies", (int)p->pid, p->uid);
	must(eventfd_write(p->fd, 1) == 0);
	for (unsigned k = 0; k < W->n_leases; k++) {
		struct sim_lease *x = &W->leases[k];

		if (x->proc != i || x->proc_start != p->start_time || x->kind == SANDBOX_LEASE_TTL)
			continue;
		lease_over(x);
		if (x->held) {
			sandbox_held_free(x->held, false);
			x->held = NULL;
		}
	}
	p->alive = false;
	end_calls_of(i);
	if (W->core)
		sandbox_connection_ended(W->core, &who);
}

void clients_start(void)
{
	W->next_pid = 5000;
	for (unsigned i = 0; i < SIM_PROCS; i++)
		proc_born(i);
}

/* While the daemon is not there: one dies, and its number is another's. */
void clients_exchange(void)
{
	unsigned i = (unsigned)rng_below(&W->rng, SIM_PROCS);

	proc_die(i);
	proc_born(i);
}

void clients_reboot(void)
{
	for (unsigned i = 0; i < SIM_PROCS; i++)
		proc_die(i);
	snprintf(W->boot_id, sizeof(W->boot_id), "boot-%llu", (unsigned long long)sim->now_ms);
}

/* --- leases as their holders see them --- */

bool lease_counts(const struct sim_lease *x)
{
	const struct sim_proc *p = &W->procs[x->proc];

	if (x->over || !x->sandbox->real->alive)
		return false;
	switch (x->kind) {
	case SANDBOX_LEASE_TTL:
		return sim->now_ms < x->ends_at_ms;
	case SANDBOX_LEASE_PROCESS:
		return p->alive && p->start_time == x->proc_start;
	case SANDBOX_LEASE_STREAM:
		if (x->run == W->run_no)
			return x->held;
		return x->run + 1 == W->run_no &&
		       sim->now_ms + 50 < W->run_began_ms + W->restart_grace_ms;
	}
	return false;
}

static struct sim_lease *lease_add(const struct sim_want *c, struct sim_sandbox *b, const char *id,
				   enum sandbox_lease_kind kind)
{
	struct sim_lease *x = &W->leases[W->n_leases++];

	must(W->n_leases < SIM_LEASES);
	*x = (struct sim_lease){ .sandbox = b, .kind = kind, .proc = c->proc, .run = W->run_no,
				 .proc_start = W->procs[c->proc].start_time,
				 .ends_at_ms = c->began_ms + c->ttl_ms };
	(void)str_copy(x->id, sizeof(x->id), id);
	b->was_leased = true;
	b->released_at_ms = 0;
	return x;
}

static void on_held(void *user, enum sandbox_held_change change, const struct status *st,
		    const struct sandbox_lease *lease)
{
	struct sim_lease *x = user;

	if (change != SANDBOX_HELD_LOST)
		return;
	lease_over(x);
	sandbox_held_free(x->held, false);
	x->held = NULL;
}

/* --- answers --- */

/* Was it made by the request id of this Create, or is it what that was answered with? */
static bool is_of_request(const struct sim_sandbox *b, const struct sim_want *c)
{
	const char *tag = fake_tag(b->real, TAG_REQ);
	char text[32], want[TAG_REQ_LEN + 1];
	uint8_t h[32];
	int n = snprintf(text, sizeof(text), "%u Create r%u", W->procs[c->proc].uid, c->request);

	fake_hash(text, (size_t)n, h);
	str_hex(h, TAG_REQ_LEN / 2, want);
	return c->request < SIM_REQUESTS &&
	       (b->warm.claimed || (tag && str_eq(tag, want)) || str_eq(W->shown[uid_index(c)][c->request], b->real->id));
}

/* A call for a process's lease ends with an error, or its caller leaves: a lease that was written before, while it
 * waited for the agent, say, counts until its process ends, as after a crash. */
static void fail_in_doubt(const struct sim_want *c)
{
	bool create = c->what == SIM_ASKS_CREATE;

	if (!c->process_lease && c->kind != SANDBOX_LEASE_PROCESS)
		return;
	for (unsigned i = 0; i < W->fake->n_sandboxes; i++) {
		struct sim_sandbox *b = &W->sandboxes[i];
		const char *name = ledger_name(b);

		if (b == c->sandbox || (create && (name || is_of_request(b, c))) ||
		    (!c->sandbox && name && str_eq(name, c->ref)))
			b->maybe_of[c->proc] = W->procs[c->proc].start_time;
	}
}

bool want_hears(struct sim_want *c, const struct status *st)
{
	if (sim->dead || sim_seam("reply"))
		return false;
	if (c->what == SIM_ASKS_NOTHING || !c->op)
		sim_fail("I10", "a second answer, or one after a cancel");
	if (sim->now_ms > c->deadline_ms + 100 && W->hung_at_ms <= c->began_ms)
		sim_fail("I10", "%s answered %llu ms after its deadline", what_names[c->what],
			 (unsigned long long)(sim->now_ms - c->deadline_ms));
	if (!status_ok(st))
		fail_in_doubt(c);
	W->answers++;
	sim_trace("%s #%u: %s %s", what_names[c->what], c->serial,
		  status_ok(st) ? "ok" : status_reason_name(st->reason), st->text);
	return true;
}

void want_done(struct sim_want *c)
{
	*c = (struct sim_want){ 0 };
}

static void created(struct sim_want *c, struct sim_sandbox *b, const struct sandbox_view *sandbox)
{
	char *shown = W->shown[uid_index(c)][c->request];

	b->acked = true;
	b->created |= sandbox->state != SANDBOX_GONE && sandbox->state != SANDBOX_KILLING;
	b->request = c->request;
	b->lease_asked |= c->process_lease;
	if (c->request < SIM_REQUESTS) {
		const struct sim_sandbox *before = shown[0] ? ledger_find(shown) : NULL;

		if (before && !is_forgotten(before) && !str_eq(shown, sandbox->id))
			sim_fail("I3", "request id %u showed %s, now %s", c->request, shown,
				 sandbox->id);
		(void)str_copy(shown, sizeof(W->shown[0][0]), sandbox->id);
	}
}

static void policy_answered(struct sim_want *c, const struct sandbox_view *sandbox)
{
	struct sim_sandbox *b = c->sandbox;

	if (b->policy_calls > 1)
		return;
	b->may[0] = sandbox->policy;
	b->n_may = 1;
	b->policy_since_ms = sim->now_ms;
}

static void on_sandbox(void *user, const struct status *st, const struct sandbox_view *sandbox)
{
	struct sim_want *c = user;
	struct sim_sandbox *b = sandbox ? ledger_find(sandbox->id) : NULL;

	if (!want_hears(c, st))
		return;
	if (sandbox && !b)
		sim_fail("I3", "%s of a sandbox that never was: %s", what_names[c->what], sandbox->id);
	if (b && sandbox->owner_uid != W->procs[c->proc].uid &&
	    (c->what != SIM_ASKS_GET || !b->foreign))
		sim_fail("I9", "%s shows uid %u the sandbox %s of %u", what_names[c->what],
			 W->procs[c->proc].uid, sandbox->id, sandbox->owner_uid);
	if (b && c->what == SIM_ASKS_CREATE)
		created(c, b, sandbox);
	if (b && c->what == SIM_ASKS_CREATE)
		warm_told(c, b, sandbox);
	if (b && c->process_lease && sandbox->state != SANDBOX_GONE &&
	    sandbox->state != SANDBOX_KILLING)
		lease_add(c, b, "", SANDBOX_LEASE_PROCESS);
	if (c->what == SIM_ASKS_POLICY) {
		if (b)
			policy_answered(c, sandbox);
		c->sandbox->policy_calls--;
	}
	want_done(c);
}

static void on_yes(void *user, const struct status *st, bool yes)
{
	struct sim_want *c = user;

	if (!want_hears(c, st))
		return;
	if (c->what == SIM_ASKS_KILL && status_ok(st) && c->sandbox) {
		if (yes && c->sandbox->real->alive)
			sim_fail("I7", "Kill of %s was answered, and it lives", c->sandbox->real->id);
		c->sandbox->kill_acked = yes && disk_sandbox(c->sandbox->real->id);	/* of a child, not before its fork is recorded */
	}
	want_done(c);
}

static void on_lease(void *user, const struct status *st, const struct sandbox_lease *lease)
{
	struct sim_want *c = user;
	struct sim_sandbox *b = lease ? ledger_find(lease->sandbox) : NULL;
	struct sim_lease *x;

	if (!want_hears(c, st))
		return;
	if (b && c->what == SIM_ASKS_RENEW) {
		for (unsigned i = 0; i < W->n_leases; i++)
			if (str_eq(W->leases[i].id, c->lease))
				W->leases[i].ends_at_ms = c->began_ms + c->ttl_ms;
	} else if (b) {
		x = lease_add(c, b, lease->id, c->kind);
		if (c->kind == SANDBOX_LEASE_STREAM)
			must(!sandbox_held_new(W->core, lease->id, on_held, x, &x->held));
	}
	want_done(c);
}

static void on_page(void *user, const struct status *st, const struct sandbox_page *page)
{
	struct sim_want *c = user;

	if (!want_hears(c, st))
		return;
	for (size_t i = 0; page && i < page->n; i++)
		if (page->sandboxes[i].owner_uid != W->procs[c->proc].uid)
			sim_fail("I9", "List shows %s of another user", page->sandboxes[i].id);
	want_done(c);
}

/* --- calls --- */

struct sim_want *want_begin(enum sim_ask what, unsigned proc)
{
	for (unsigned i = 0; i < SIM_WANTS; i++) {
		struct sim_want *c = &W->wants[i];

		if (c->what != SIM_ASKS_NOTHING)
			continue;
		*c = (struct sim_want){ .what = what, .proc = proc, .serial = ++W->serial,
					.request = SIM_REQUESTS, .began_ms = sim->now_ms };
		c->deadline_ms = sim->now_ms + (chance(300) ? draw(50, 2000) : draw(2000, 40000));
		return c;
	}
	return NULL;
}

struct policy_change some_policy(struct rng *r)
{
	struct policy_change p = { 0 };

	if (sim_chance(r, 700)) {
		p.set |= BIT(POLICY_F_ON_RELEASE);
		p.to.on_release = (enum policy_action)sim_between(r, POLICY_LEAVE, POLICY_KILL);
	}
	if (sim_chance(r, 700)) {
		p.set |= BIT(POLICY_F_RELEASE_GRACE);
		p.to.release_grace_ms = sim_between(r, 0, 8000);
	}
	if (sim_chance(r, 200)) {
		p.set |= BIT(POLICY_F_IDLE_TIMEOUT) | BIT(POLICY_F_ON_IDLE);
		p.to.idle_timeout_ms = sim_between(r, 5000, 60000);
		p.to.on_idle = sim_chance(r, 500) ? POLICY_PAUSE : POLICY_KILL;
	}
	if (sim_chance(r, 100)) {
		p.set |= BIT(POLICY_F_MAX_AGE) | BIT(POLICY_F_ON_MAX_AGE);
		p.to.max_age_ms = sim_between(r, 20000, 200000);
		p.to.on_max_age = sim_chance(r, 500) ? POLICY_PAUSE : POLICY_KILL;
	}
	if (sim_chance(r, 100)) {
		p.set |= BIT(POLICY_F_ON_CAP);
		p.to.on_cap = (enum policy_action)sim_between(r, POLICY_PAUSE, POLICY_WARN);
	}
	if (sim_chance(r, 50)) {
		p.set |= BIT(POLICY_F_KEEP_ALIVE);
		p.to.keep_alive = false;
	}
	return p;
}

/* A request id always means the same parameters, but for the rare one that is used wrongly. */
static void act_create(unsigned proc)
{
	struct sim_want *c = want_begin(SIM_ASKS_CREATE, proc);
	struct principal who = principal_of(proc);
	struct rng same;
	char rid[16] = "", name[16] = "";
	struct sandbox_create q = { 0 };

	if (!c || W->fake->n_sandboxes + 60 > FAKE_SANDBOXES || W->n_posts + 60 > SIM_POSTS)
		return;
	if (chance(700))
		c->request = (unsigned)rng_below(&W->rng, SIM_REQUESTS);
	rng_seed(&same, c->request < SIM_REQUESTS ? W->seed * 1000 + c->request * 10 + who.uid
						  : rng_u64(&W->rng));
	if (c->request < SIM_REQUESTS)
		snprintf(rid, sizeof(rid), "r%u", c->request);
	if (sim_chance(&same, 300))
		snprintf(name, sizeof(name), "n%u", (unsigned)rng_below(&same, SIM_NAMES));
	q.must_create = name[0] && sim_chance(&same, 200);
	q.timeout_ms = sim_between(&same, 15000, 120000);
	q.policy = some_policy(&same);
	if (W->losses && name[0] && sim_chance(&same, 400)) {
		q.policy.set |= BIT(POLICY_F_ON_GONE);
		q.policy.to.on_gone = POLICY_RECREATE;
	}
	q.process_lease = c->process_lease = chance(400);
	if (c->request < SIM_REQUESTS)
		W->lease_asked[uid_index(c)][c->request] |= c->process_lease;
	q.wait_ready = chance(100);
	q.params_hash[0] = (uint8_t)(c->request + (chance(20) ? 100 : 0));
	q.request_id = rid[0] ? str_dup(rid) : NULL;
	q.name = name[0] ? str_dup(name) : NULL;
	(void)str_copy(c->name, sizeof(c->name), name);
	warm_ask(c, &same, &q);
	sim_trace("Create #%u uid %u rid %s name %s lease %d warm %d %s", c->serial, who.uid, rid, name, c->process_lease, c->warm,
		  c->env);
	if (sandbox_create(W->core, CALL(&who, NULL, c->deadline_ms - sim->booted_at_ms, c), &q,
			   on_sandbox, &c->op) < 0)
		want_done(c);
}

/* One of this user's, known to it; rarely another's. */
static struct sim_sandbox *some_sandbox(unsigned proc)
{
	char uid[16];

	snprintf(uid, sizeof(uid), "%u", W->procs[proc].uid);
	/* What somebody has just asked something of: calls meet. */
	if (W->hot && W->hot->real->alive && !W->hot->foreign && chance(300) &&
	    str_eq(ledger_uid(W->hot), uid))
		return W->hot;
	for (unsigned tries = 0; tries < 20 && W->fake->n_sandboxes; tries++) {
		struct sim_sandbox *b =
			&W->sandboxes[W->fake->n_sandboxes - 1 -
				      rng_below(&W->rng, MIN(W->fake->n_sandboxes, 24u))];
		const char *of = ledger_uid(b);

		if (b->foreign ? chance(100) : b->acked && (str_eq(of, uid) || chance(30)))
			return b;
	}
	return NULL;
}

bool want_aim(struct sim_want *c, bool by_name)
{
	if (by_name) {
		snprintf(c->ref, sizeof(c->ref), "n%u", (unsigned)rng_below(&W->rng, SIM_NAMES));
		return true;
	}
	c->sandbox = W->hot = some_sandbox(c->proc);
	if (c->sandbox)
		(void)str_copy(c->ref, sizeof(c->ref), c->sandbox->real->id);
	return c->sandbox;
}

static int call_connect(struct sim_want *c, const struct principal *who, uint64_t until)
{
	struct sandbox_connect q = { .timeout_ms = draw(15000, 120000), .adopt = chance(200) };

	q.process_lease = c->process_lease = chance(400);
	if (c->sandbox)
		c->sandbox->lease_asked |= c->process_lease;
	return sandbox_connect(W->core, CALL(who, c->ref, until, c), &q, on_sandbox, &c->op);
}

static int call_acquire(struct sim_want *c, const struct principal *who, uint64_t until)
{
	struct sandbox_acquire q = { .lease_id = c->lease };

	if (!c->kind)
		c->kind = (enum sandbox_lease_kind)draw(SANDBOX_LEASE_STREAM, SANDBOX_LEASE_TTL);
	c->ttl_ms = draw(1000, 60000);
	q.kind = c->kind;
	q.ttl_ms = c->ttl_ms;
	if (c->sandbox)
		c->sandbox->lease_asked = true;
	return sandbox_acquire(W->core, CALL(who, c->ref, until, c), &q, on_lease, &c->op);
}

static int call_policy(struct sim_want *c, const struct principal *who, uint64_t until)
{
	struct sim_sandbox *b = c->sandbox;
	unsigned n = b->n_may;

	c->policy = some_policy(&W->rng);
	b->policy_calls++;
	b->policy_since_ms = sim->now_ms;
	for (unsigned i = 0; i < n && b->n_may; i++) {
		if (b->n_may == SIM_POLICIES) {
			b->n_may = 0;	/* anything is possible */
			break;
		}
		b->may[b->n_may] = b->may[i];
		policy_merge(&b->may[b->n_may++], &c->policy);
	}
	return sandbox_set_policy(W->core, CALL(who, c->ref, until, c), &c->policy, 0, on_sandbox,
				  &c->op);
}

static int call_kill(struct sim_want *c, const struct principal *who, uint64_t until)
{
	for (unsigned i = 0; i < W->fake->n_sandboxes; i++) {
		struct sim_sandbox *b = &W->sandboxes[i];
		const char *name = ledger_name(b);

		if (b == c->sandbox || (name && str_eq(name, c->ref)))
			b->kill_asked = true;
	}
	return sandbox_kill(W->core, CALL(who, c->ref, until, c), on_yes, &c->op);
}

static int call_pause(struct sim_want *c, const struct principal *who, uint64_t until)
{
	for (unsigned i = 0; i < W->fake->n_sandboxes; i++) {
		struct sim_sandbox *b = &W->sandboxes[i];
		const char *name = ledger_name(b);

		if (b == c->sandbox || (name && str_eq(name, c->ref)))
			b->pause_asked_ms = sim->now_ms;
	}
	return sandbox_pause(W->core, CALL(who, c->ref, until, c), chance(800), on_yes, &c->op);
}

static void act_on_sandbox(unsigned proc, enum sim_ask what)
{
	struct sim_want *c = want_begin(what, proc);
	struct principal who = principal_of(proc);
	uint64_t until;
	int r = 0;

	if (!c)
		return;
	if (!want_aim(c, what != SIM_ASKS_POLICY && chance(200))) {
		want_done(c);
		return;
	}
	until = c->deadline_ms - sim->booted_at_ms;
	sim_trace("%s #%u uid %u %s", what_names[what], c->serial, who.uid, c->ref);
	if (what == SIM_ASKS_CONNECT)
		r = call_connect(c, &who, until);
	else if (what == SIM_ASKS_ACQUIRE)
		r = call_acquire(c, &who, until);
	else if (what == SIM_ASKS_POLICY)
		r = call_policy(c, &who, until);
	else if (what == SIM_ASKS_KILL)
		r = call_kill(c, &who, until);
	else if (what == SIM_ASKS_TIMEOUT)
		r = sandbox_set_timeout(W->core, CALL(&who, c->ref, until, c), draw(15000, 120000),
					on_sandbox, &c->op);
	else if (what == SIM_ASKS_PAUSE)
		r = call_pause(c, &who, until);
	else if (what == SIM_ASKS_GET)
		r = sandbox_get(W->core, CALL(&who, c->ref, until, c),
				chance(500) ? 0 : SANDBOX_STALENESS_DEFAULT, on_sandbox, &c->op);
	if (r < 0)
		want_done(c);
}

static void act_list(unsigned proc)
{
	struct sim_want *c = want_begin(SIM_ASKS_LIST, proc);
	struct principal who = principal_of(proc);
	struct sandbox_list q = { .cached = chance(500) };

	if (!c)
		return;
	if (sandbox_list(W->core, CALL(&who, NULL, c->deadline_ms - sim->booted_at_ms, c), &q,
			 on_page, &c->op) < 0)
		want_done(c);
}

/* Renews, releases, or holds again after a restart. */
static void act_on_lease(unsigned proc)
{
	struct sim_lease *x = W->n_leases ? &W->leases[rng_below(&W->rng, W->n_leases)] : NULL;
	struct principal who = principal_of(proc);
	struct sim_want *c;
	enum sim_ask what;
	int r;

	if (!x || x->over || !x->id[0] || W->procs[x->proc].uid != who.uid || W->n_leases + 20 > SIM_LEASES)
		return;
	what = x->kind == SANDBOX_LEASE_TTL && chance(600) ? SIM_ASKS_RENEW : SIM_ASKS_RELEASE;
	if (x->kind == SANDBOX_LEASE_STREAM && x->run != W->run_no)
		what = SIM_ASKS_ACQUIRE;
	c = want_begin(what, proc);
	if (!c)
		return;
	(void)str_copy(c->lease, sizeof(c->lease), x->id);
	sim_trace("%s #%u lease %s", what_names[what], c->serial, x->id);
	if (what == SIM_ASKS_RENEW) {
		c->ttl_ms = draw(1000, 60000);
		x->ends_at_ms = MIN(x->ends_at_ms, sim->now_ms + c->ttl_ms);
		r = sandbox_renew(W->core, CALL(&who, NULL, c->deadline_ms - sim->booted_at_ms, c),
				  x->id, c->ttl_ms, on_lease, &c->op);
	} else if (what == SIM_ASKS_RELEASE) {
		release(x);
		r = sandbox_release(W->core,
				    CALL(&who, NULL, c->deadline_ms - sim->booted_at_ms, c), x->id,
				    on_yes, &c->op);
	} else {
		c->kind = SANDBOX_LEASE_STREAM;
		(void)str_copy(c->ref, sizeof(c->ref), x->sandbox->real->id);
		x->over = true;
		r = call_acquire(c, &who, c->deadline_ms - sim->booted_at_ms);
	}
	if (r < 0)
		want_done(c);
}

static void act_cancel(void)
{
	struct sim_want *c = &W->wants[rng_below(&W->rng, SIM_WANTS)];

	if (!c->op)
		return;
	sim_trace("cancel of #%u", c->serial);
	sandbox_cancel(c->op);
	fail_in_doubt(c);
	if (c->what == SIM_ASKS_POLICY)
		c->sandbox->policy_calls--;
	want_done(c);
}

static void act_command(void)
{
	struct sim_sandbox *b = W->fake->n_sandboxes
					? &W->sandboxes[rng_below(&W->rng, W->fake->n_sandboxes)]
					: NULL;
	const struct row_sandbox *row = b ? disk_sandbox(b->real->id) : NULL;

	if (!b || b->foreign || !b->acked || !b->real->alive)
		return;
	/* None begins in one that is being ended. */
	if (!b->commands &&
	    (!row || row->state == SANDBOX_KILLING || b->end_sent_run == W->run_no))
		return;
	if (b->commands) {
		b->commands--;
		sandbox_use_end(W->core, "default", b->real->id);
	} else {
		b->commands++;
		sandbox_use_begin(W->core, "default", b->real->id);
	}
	sim_trace("commands in %s: %u", b->real->id, b->commands);
}

void clients_end_commands(void)
{
	for (unsigned i = 0; i < W->fake->n_sandboxes; i++)
		for (struct sim_sandbox *b = &W->sandboxes[i]; b->commands; b->commands--)
			sandbox_use_end(W->core, "default", b->real->id);
}

/* The cloud loses one that had a name. */
static void act_vanish(void)
{
	struct sim_sandbox *b = W->fake->n_sandboxes
					? &W->sandboxes[rng_below(&W->rng, W->fake->n_sandboxes)]
					: NULL;

	if (!b || !b->real->alive || b->foreign || !ledger_name(b) ||
	    W->fake->n_sandboxes + 60 > FAKE_SANDBOXES || W->n_posts + 60 > SIM_POSTS)
		return;
	sim_trace("%s vanishes", b->real->id);
	fake_end(b->real, "it vanished");
}

void clients_act(void)
{
	static const struct { unsigned weight; enum sim_ask what; } table[] = {
		{ 120, SIM_ASKS_CONNECT }, { 30, SIM_ASKS_PAUSE }, { 50, SIM_ASKS_KILL },
		{ 50, SIM_ASKS_TIMEOUT }, { 80, SIM_ASKS_POLICY }, { 180, SIM_ASKS_ACQUIRE },
		{ 60, SIM_ASKS_GET },
	};
	unsigned proc = (unsigned)rng_below(&W->rng, SIM_PROCS), n;

	if (!W->procs[proc].alive) {
		proc_born(proc);
		return;
	}
	if (chance(25)) {
		proc_die(proc);
		return;
	}
	if (!W->core)
		return;
	if (W->warm && chance(15))
		warm_act();
	if (W->losses && chance(10))
		act_vanish();
	if (W->n_leases + 20 > SIM_LEASES)
		return;
	n = (unsigned)rng_below(&W->rng, 1000);
	for (size_t i = 0; i < ARRAY_SIZE(table); n -= table[i++].weight)
		if (n < table[i].weight) {
			act_on_sandbox(proc, table[i].what);
			return;
		}
	if (n < 200)
		act_create(proc);
	else if (n < 300)
		act_on_lease(proc);
	else if (n < 330)
		act_list(proc);
	else if (n < 350)
		act_cancel();
	else if (n < 390)
		act_fork(proc);
	else if (n < 410)
		act_snapshot(proc);
	else if (n < 418)
		act_snapshots(proc);
	else
		act_command();
}

/* The crash came between the commit of its lease and the answer, or before it: its process asked, lives, and may
 * ask again, so a lease that was written counts until the process ends. Nobody outside can tell. */
static void leave_in_doubt(const struct sim_want *c)
{
	for (unsigned i = 0; i < W->fake->n_sandboxes; i++) {
		struct sim_sandbox *b = &W->sandboxes[i];
		const char *name = ledger_name(b);
		bool made = c->what == SIM_ASKS_CREATE && (!b->acked || name || b->warm.made || c->request < SIM_REQUESTS);

		if (b == c->sandbox || made || (!c->sandbox && name && str_eq(name, c->ref)))
			b->maybe_of[c->proc] = W->procs[c->proc].start_time;
	}
}

void clients_forget_calls(void)
{
	for (unsigned i = 0; i < SIM_WANTS; i++) {
		struct sim_want *c = &W->wants[i];

		if (c->op && (c->process_lease || c->kind == SANDBOX_LEASE_PROCESS))
			leave_in_doubt(c);
		*c = (struct sim_want){ 0 };
	}
	for (unsigned i = 0; i < W->fake->n_sandboxes; i++) {
		W->sandboxes[i].policy_calls = W->sandboxes[i].commands = 0;
		W->sandboxes[i].seen_alive_ms = 0;
	}
}

/* Lists that lie may hide it from the first list, after which a repeat makes another. */
static bool is_hidden(const struct sim_sandbox *b)
{
	return !b->real->alive || b->real->listed_at_ms > sim->now_ms || W->fake->faults.list_omit ||
	       W->fake->faults.list_empty || W->fake->faults.list_lag;
}

static void forget_posts(void)
{
	for (unsigned i = 0; i < W->n_posts; i++) {
		bool copy = strchr(W->posts[i].tag, ' ');

		W->posts[i].maybe = !copy && (W->posts[i].maybe || W->posts[i].open);
		W->posts[i].open = false;
		W->posts[i].old = true;
	}
	for (unsigned i = 0; i < W->n_copies; i++) {
		W->copies[i].accepted = false;
		memset(W->copies[i].shown, 0, sizeof(W->copies[i].shown));
	}
	for (unsigned i = 0; i < W->fake->n_snapshots; i++)
		W->snaps[i].acked = false;
}

void clients_lose_store(void)
{
	W->lost_run = W->run_no;
	for (unsigned i = 0; i < W->n_leases; i++)
		W->leases[i].over = true;
	for (unsigned i = 0; i < W->fake->n_sandboxes; i++) {
		struct sim_sandbox *b = &W->sandboxes[i];
		const char *policy = fake_tag(b->real, TAG_POLICY);

		b->old = true;
		b->orphan = is_hidden(b);
		b->acked = b->kill_acked = b->created = b->was_leased = false;
		b->released_at_ms = 0;
		memset(b->maybe_of, 0, sizeof(b->maybe_of));
		policy_default(&b->may[0]);
		if (policy)
			must(!policy_parse(policy, &b->may[0]));
		b->n_may = 1;
	}
	/* A request that found a sandbox by its name is in no tag. */
	for (unsigned i = 0; i < SIM_UIDS * SIM_REQUESTS; i++) {
		char *shown = W->shown[i / SIM_REQUESTS][i % SIM_REQUESTS];
		struct sim_sandbox *b = shown[0] ? ledger_find(shown) : NULL;

		if (b && ledger_name(b))
			shown[0] = 0;
	}
	forget_posts();
}

void clients_close_streams(bool keep)
{
	for (unsigned i = 0; i < W->n_leases; i++) {
		struct sim_lease *x = &W->leases[i];

		if (x->held)
			sandbox_held_free(x->held, keep);
		x->held = NULL;
	}
}
