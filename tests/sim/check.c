/* SPDX-License-Identifier: MIT */
/* The invariants, against the ledger (what is true), the disk (what is kept) and what clients know. */
#include <stdio.h>
#include <stdlib.h>

#include "daemon/sandbox/rules/tags.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "tests/sim/sim.h"

#define GONE_SEEN_MS 95000u	/* a loss is noticed by the next list */
#define PAUSE_ASKED_MS 120000u	/* a user's pause is carried on for a while */
#define CAP_LEAD_MS  12000
#define CLOCK_SLACK_MS 2500	/* the cloud's Date has seconds */

/* --- POSTs --- */

static struct sim_post *post_of(const char *tag)
{
	for (unsigned i = 0; i < W->n_posts; i++)
		if (str_eq(W->posts[i].tag, tag))
			return &W->posts[i];
	must(W->n_posts < SIM_POSTS);
	(void)str_copy(W->posts[W->n_posts].tag, sizeof(W->posts[0].tag), tag);
	return &W->posts[W->n_posts++];
}

bool is_forgotten(const struct sim_sandbox *b)
{
	return b->orphan || (b->old && !disk_sandbox(b->real->id));
}

static bool is_remembered(const char *post_tag)
{
	for (unsigned i = 0; i < W->fake->n_sandboxes; i++) {
		const struct sim_sandbox *b = &W->sandboxes[i];
		const char *tag = fake_tag(b->real, TAG_REQ);

		if (tag && !b->of && str_eq(tag, post_tag) && !is_forgotten(b))
			return true;
	}
	return false;
}

static void check_create_sent(const char *tag)
{
	struct sim_post *p = post_of(tag);

	if (p->old && p->maybe)
		p->maybe = is_remembered(tag);
	p->old = false;
	if (p->open || p->maybe)
		sim_fail("I15", "a second POST of %s without a proof that the first was not processed", tag);
	p->open = true;
}

static void check_create_done(const char *tag, bool maybe)
{
	struct sim_post *p = post_of(tag);

	p->open = false;
	p->maybe |= maybe;
}

/* Leases of processes go over to the next one, and no answer tells of it. */
static void inherit(struct sim_sandbox *b, const struct sim_sandbox *old)
{
	for (unsigned i = 0; i < SIM_PROCS; i++)
		if (old->maybe_of[i])
			b->maybe_of[i] = old->maybe_of[i];
	for (unsigned i = 0; i < W->n_leases; i++) {
		const struct sim_lease *x = &W->leases[i];

		if (x->sandbox == old && x->kind == SANDBOX_LEASE_PROCESS && !x->over)
			b->maybe_of[x->proc] = x->proc_start;
	}
}

/* Is this the one that is made again when `old` has vanished? Only one that was lost is: not what we ended. */
static void check_replaces(struct sim_sandbox *b, const struct sim_sandbox *old, const char *tag)
{
	const char *name = fake_tag(b->real, TAG_NAME);
	const char *uid = ledger_uid(old), *old_name = ledger_name(old);
	char text[128], want[TAG_REQ_LEN + 1];
	uint8_t h[32];
	int n;

	if (!uid || !name || !old_name || !str_eq(name, old_name))
		return;
	n = snprintf(text, sizeof(text), "%s Recreate default %s", uid, old->real->id);
	fake_hash(text, (size_t)n, h);
	str_hex(h, TAG_REQ_LEN / 2, want);
	if (!str_eq(want, tag))
		return;
	W->recreated++;
	inherit(b, old);
	if (old->real->alive)
		sim_fail("I3", "%s lives and is made again", old->real->id);
	if (str_eq(old->real->how, "deleted") && !W->store_failed)
		sim_fail("I4", "%s was ended and is made again", old->real->id);
}

void check_accepted(struct sim_sandbox *b)
{
	const char *tag = fake_tag(b->real, TAG_REQ), *policy = fake_tag(b->real, TAG_POLICY);

	for (unsigned i = 0; i < W->fake->n_sandboxes; i++) {
		const struct sim_sandbox *o = &W->sandboxes[i];
		const char *other = fake_tag(o->real, TAG_REQ);

		if (o != b && !o->of && !is_forgotten(o) && !b->orphan && other && str_eq(other, tag))
			sim_fail("I3", "two sandboxes of one request: %s and %s", o->real->id,
				 b->real->id);
		if (o != b)
			check_replaces(b, o, tag);
	}
	if (policy && policy_parse(policy, &b->may[0]) < 0)
		sim_fail("I7", "the policy tag cannot be read: %s", policy);
}

/* A fork or a snapshot is about to be made. */
static void check_copied(const struct fake_request *q)
{
	struct sim_copy *c =
		q->what == FAKE_FORK ? copy_by_timeout(q->timeout_s) : copy_by_name(q->name);

	if (q->run <= W->lost_run)
		return;
	if (c->accepted)
		sim_fail("I3", "%s was accepted twice", copy_key(c));
	c->accepted = true;
}

static void check_snapshot_deleted(const char *id)
{
	for (unsigned i = 0; i < W->fake->n_snapshots; i++)
		if (str_eq(W->snaps[i].real->id, id) && !W->snaps[i].delete_asked)
			sim_fail("I4", "DELETE of snapshot %s, which nobody asked for", id);
}

/* --- what ends a sandbox --- */

static enum policy_action age_action(const struct policy *p)
{
	return p->max_age_ms ? p->on_max_age : POLICY_ACTION_UNSET;
}

static bool allows(const struct sim_sandbox *b, enum policy_action what)
{
	for (unsigned i = 0; i < b->n_may; i++) {
		const struct policy *p = &b->may[i];

		if (p->on_release == what || (p->idle_timeout_ms && p->on_idle == what) ||
		    age_action(p) == what || p->on_cap == what)
			return true;
	}
	return !b->n_may;
}

/* Also while it is in use: its maximum age, and the cloud's cap. */
static bool allows_in_use(const struct sim_sandbox *b, enum policy_action what)
{
	int64_t age = fake_now(W->fake) - b->real->started_at_ms + CLOCK_SLACK_MS;

	for (unsigned i = 0; i < b->n_may; i++) {
		const struct policy *p = &b->may[i];

		if ((age_action(p) == what && age >= (int64_t)p->max_age_ms) ||
		    (p->on_cap == what && W->fake->cap_s &&
		     b->real->end_at_ms <= fake_now(W->fake) + CAP_LEAD_MS + CLOCK_SLACK_MS))
			return true;
	}
	return !b->n_may;
}

static const struct sim_lease *lease_on(const struct sim_sandbox *b)
{
	for (unsigned i = 0; i < W->n_leases; i++)
		if (W->leases[i].sandbox == b && lease_counts(&W->leases[i]))
			return &W->leases[i];
	return NULL;
}

/* A process that lives asked for a lease on it and was not told what became of that. */
static bool maybe_leased(const struct sim_sandbox *b)
{
	for (unsigned i = 0; i < SIM_PROCS; i++)
		if (W->procs[i].alive && W->procs[i].start_time == b->maybe_of[i])
			return true;
	return false;
}

/* A Create told of it, so it is claimed, and nobody ever asked for a lease on it: there is nothing to release. */
static bool is_claimed_for_good(const struct sim_sandbox *b, enum policy_action what)
{
	const char *uid = ledger_uid(b);

	if (!b->created || b->lease_asked || b->of || ledger_name(b) || !uid || !b->n_may)
		return false;
	if (b->request < SIM_REQUESTS && W->lease_asked[atoi(uid) - 1000][b->request])
		return false;
	for (unsigned i = 0; i < b->n_may; i++) {
		const struct policy *p = &b->may[i];

		if ((p->idle_timeout_ms && p->on_idle == what) || age_action(p) == what || p->on_cap == what)
			return false;
	}
	return true;
}

static void count_sweep(const struct sim_sandbox *b, const struct row_sandbox *row)
{
	uint64_t minutes = (sim->now_ms - W->run_began_ms) / 60000 + 2;
	struct disk_counts n;

	if (!row || row->claimed)
		return;
	disk_count(&n);
	if (++W->sweeps > minutes * MAX(5u, n.sandboxes / 10 + 1))
		sim_fail("I17", "%u unclaimed sandboxes ended in %llu minutes", W->sweeps,
			 (unsigned long long)minutes);
}

static void check_end_sent(struct sim_sandbox *b, bool pause)
{
	const struct row_sandbox *row = b ? disk_sandbox(b->real->id) : NULL;
	enum policy_action what = pause ? POLICY_PAUSE : POLICY_KILL;
	const char *verb = pause ? "pause" : "DELETE";
	const struct sim_lease *x;

	if (!b || (pause ? b->pause_asked_ms && sim->now_ms < b->pause_asked_ms + PAUSE_ASKED_MS
			 : b->kill_asked))
		return;
	if (b->foreign)
		sim_fail("I4", "%s of %s, which is not ours", verb, b->real->id);
	if (!pause && warm_may_end(b))
		return;
	if (!allows(b, what))
		sim_fail("I4", "%s of %s, which no policy asks for", verb, b->real->id);
	x = lease_on(b);
	if ((x || b->commands) && !allows_in_use(b, what))
		sim_fail("I4",
			 "%s of %s, which is in use (lease %s kind %d, %u commands; %lld ms old, "
			 "%lld ms left)",
			 verb, b->real->id, x ? x->id : "", x ? (int)x->kind : 0, b->commands,
			 (long long)(fake_now(W->fake) - b->real->started_at_ms),
			 (long long)(b->real->end_at_ms - fake_now(W->fake)));
	if (is_claimed_for_good(b, what))
		sim_fail("I7",
			 "%s of %s, which a Create was answered with and which was never leased",
			 verb, b->real->id);
	/* A kill that was decided is carried on: by this run, also where the store took no row, and by the next. */
	if (!pause && ((row && row->state == SANDBOX_KILLING) || b->end_sent_run == W->run_no))
		return;
	if (b->seen_alive_ms < W->hung_at_ms || !b->seen_alive_ms)
		sim_fail("I25", "%s of %s without having looked at it since the %s", verb,
			 b->real->id, b->seen_alive_ms ? "stall" : "start");
	count_sweep(b, row);
	if (!pause)
		b->end_sent_run = W->run_no;
}

static bool is_meant(const struct sim_want *c, const struct sim_sandbox *b)
{
	const char *name = ledger_name(b);

	return c->op && (c->sandbox == b || (name && str_eq(name, c->ref)));
}

static bool asked_for(const struct sim_sandbox *b, unsigned what)
{
	for (unsigned i = 0; i < SIM_WANTS; i++)
		if (W->wants[i].what == what && is_meant(&W->wants[i], b))
			return true;
	return false;
}

static void check_timeout_sent(const struct sim_sandbox *b)
{
	/* The end that a claim asked for is set behind it. */
	if (b && !b->warm.claimed && !asked_for(b, SIM_ASKS_TIMEOUT))
		sim_fail("I5", "/timeout of %s, which nobody asked for", b->real->id);
}

static void check_connect_sent(const struct sim_sandbox *b)
{
	if (b && !asked_for(b, SIM_ASKS_CONNECT))
		sim_fail("I4", "/connect of %s, which nobody asked for", b->real->id);
}

/* --- what the fake cloud tells --- */

static bool is_made_once(enum fake_call what)
{
	return what == FAKE_CREATE || what == FAKE_FORK || what == FAKE_SNAPSHOT;
}

static void on_begins(const struct fake_request *q)
{
	sim_action(q);
	warm_request(q);
	if (is_made_once(q->what))
		check_create_sent(q->label);
	else if (q->what == FAKE_KILL || q->what == FAKE_PAUSE)
		check_end_sent(ledger_find(q->id), q->what == FAKE_PAUSE);
	else if (q->what == FAKE_TIMEOUT)
		check_timeout_sent(ledger_find(q->id));
	else if (q->what == FAKE_CONNECT)
		check_connect_sent(ledger_find(q->id));
	else if (q->what == FAKE_SNAPSHOT_DELETE)
		check_snapshot_deleted(q->id);
}

static void on_over(const struct fake_request *q, enum cloud_outcome outcome)
{
	warm_request_over(q);
	if (is_made_once(q->what))
		/* a 500 that did nothing, and no list that shows anything: the request may be made again */
		check_create_done(q->label, outcome == CLOUD_DONE ||
						    (outcome == CLOUD_UNKNOWN && (q->acted || q->result.http_status != 500)));
	if (q->what == FAKE_GET && q->result.sandbox)
		ledger_find(q->id)->seen_alive_ms = sim->now_ms;
}

const struct fake_observer check_observer = { on_begins, check_copied, ledger_made, on_over };

/* --- after a crash --- */

static void check_policy(struct sim_sandbox *b, const struct row_sandbox *row)
{
	struct policy p;

	policy_default(&p);
	if (policy_parse(row->policy, &p) < 0)
		sim_fail("I7", "the policy of %s cannot be read: %s", b->real->id, row->policy);
	for (unsigned i = 0; i < b->n_may; i++) {
		/* Who is adopted by its tag cannot be made again: what it was made of is not known. */
		if (p.on_gone == POLICY_FAIL)
			b->may[i].on_gone = POLICY_FAIL;
		if (policy_equal(&b->may[i], &p)) {
			b->may[0] = p;
			b->n_may = 1;
			return;
		}
	}
	if (b->n_may)
		sim_fail("I7", "the policy of %s is %s after the crash, which it cannot be",
			 b->real->id, row->policy);
}

void check_disk(void)
{
	for (unsigned i = 0; i < W->fake->n_sandboxes; i++) {
		struct sim_sandbox *b = &W->sandboxes[i];
		const struct row_sandbox *row = disk_sandbox(b->real->id);

		if (b->acked && !b->foreign && !row)
			sim_fail("I7", "sandbox %s was answered and is lost", b->real->id);
		/* KILLING is as good: the next run repeats the DELETE. */
		if (b->kill_acked && row && row->state != SANDBOX_GONE &&
		    row->state != SANDBOX_KILLING && !W->store_failed)
			sim_fail("I7", "the kill of %s was answered and is lost", b->real->id);
		if (row && !b->foreign)
			check_policy(b, row);
	}
	for (unsigned i = 0; i < W->n_leases; i++) {
		const struct sim_lease *x = &W->leases[i];

		if (x->id[0] && lease_counts(x) && !disk_lease(x->id))
			sim_fail("I7", "lease %s on %s was answered and is lost", x->id,
				 x->sandbox->real->id);
	}
	for (unsigned i = 0; i < W->fake->n_snapshots; i++) {
		const struct sim_snap *s = &W->snaps[i];
		const struct row_snapshot *row = disk_snapshot(s->real->id);

		if (s->acked && !s->delete_asked &&
		    (!row || !row->ours || row->uid != snap_copy(s)->uid))
			sim_fail("I7", "snapshot %s was answered and %s", s->real->id,
				 row ? "is nobody's" : "is lost");
	}
	for (unsigned i = 0; i < W->n_posts; i++)
		if (W->posts[i].open) {
			W->posts[i].open = false;
			W->posts[i].maybe = true;
		}
}

/* --- at rest --- */

static bool is_certain(const struct sim_sandbox *b, enum policy_action on_release)
{
	return b->n_may == 1 && b->may[0].on_release == on_release;
}

static void check_row(const struct row_sandbox *row)
{
	struct sim_sandbox *b = ledger_find(row->id);

	if (!b)
		sim_fail("I8", "the store has %s, which never was", row->id);
	switch (row->state) {
	case SANDBOX_GONE:
		if (b->real->alive)
			sim_fail("I8", "the store says that %s is gone, and it lives", row->id);
		return;
	case SANDBOX_RUNNING:
	case SANDBOX_PAUSED:
		if (!b->real->alive && b->real->died_at_ms + GONE_SEEN_MS < sim->now_ms)
			sim_fail("I8", "the store says that %s lives; it ended %llu ms ago (%s)", row->id,
				 (unsigned long long)(sim->now_ms - b->real->died_at_ms), b->real->how);
		if (b->real->alive && b->real->paused != (row->state == SANDBOX_PAUSED) &&
		    b->real->touched_at_ms + GONE_SEEN_MS < sim->now_ms)
			sim_fail("I8", "the store says that %s is in state %d, the cloud: paused %d", row->id,
				 row->state, b->real->paused);
		break;
	default:
		sim_fail("I23", "%s is still in state %d", row->id, row->state);
	}
	/* The end of a lease that the store refused is written with the next period; a crash may come first. */
	if (b->real->alive && row->ours && !row->claimed && !warm_is_unclaimed(b) && is_certain(b, POLICY_KILL) &&
	    !lease_on(b) && !W->store_failed)
		sim_fail("I1", "%s was claimed by nobody and lives", row->id);
}

void check_quiet(void)
{
	struct disk_counts n;

	fake_expire(W->fake);
	disk_count(&n);
	/* One whose deletion was refused stays until the next start settles it. */
	if (n.intents && !W->store_failed)
		sim_fail("I23", "%u intents are open", n.intents);
	disk_each_sandbox(check_row);
	for (unsigned i = 0; i < W->fake->n_sandboxes; i++) {
		const struct sim_sandbox *b = &W->sandboxes[i];

		if (!b->real->alive || b->foreign)
			continue;
		if (!disk_sandbox(b->real->id))
			sim_fail("I1", "%s lives in the cloud and is unknown", b->real->id);
	}
}

void check_released(void)
{
	fake_expire(W->fake);
	for (unsigned i = 0; i < W->fake->n_sandboxes; i++) {
		const struct sim_sandbox *b = &W->sandboxes[i];

		if (!b->real->alive || b->foreign)
			continue;
		/* A command that ran on only puts it off; it ended before the rest. */
		if (b->was_leased && b->released_at_ms && b->policy_since_ms < b->released_at_ms &&
		    is_certain(b, POLICY_KILL) && !lease_on(b) && !maybe_leased(b) && !W->store_failed)
			sim_fail("I2", "%s was released %llu ms ago and lives", b->real->id,
				 (unsigned long long)(sim->now_ms - b->released_at_ms));
	}
}

/* What carries our tag is in the store one period after it can be seen, whatever became of its intent: also one
 * that was made after its intent was closed. */
void check_known(uint64_t quiet_since_ms)
{
	fake_expire(W->fake);
	for (unsigned i = 0; i < W->fake->n_sandboxes; i++) {
		const struct sim_sandbox *b = &W->sandboxes[i];

		/* A fork of which a child failed waits for it until the horizon. */
		if (b->real->alive && !b->foreign &&
		    MAX(b->real->listed_at_ms, quiet_since_ms) + GONE_SEEN_MS + (b->of ? W->horizon_ms : 0) < sim->now_ms &&
		    !disk_sandbox(b->real->id))
			sim_fail("I1", "%s can be seen for %llu ms and is unknown", b->real->id,
				 (unsigned long long)(sim->now_ms - b->real->listed_at_ms));
	}
}

void check_kept_alive(void)
{
	fake_expire(W->fake);
	for (unsigned i = 0; i < W->n_leases; i++) {
		const struct sim_lease *x = &W->leases[i];
		const struct sim_sandbox *b = x->sandbox;
		int64_t left = b->real->end_at_ms - fake_now(W->fake);
		bool capped =
			W->fake->cap_s &&
			b->real->end_at_ms >= b->real->started_at_ms + W->fake->cap_s * 1000ll;

		if (!lease_counts(x) || b->real->paused || capped || b->n_may != 1 ||
		    !b->may[0].keep_alive || b->kill_asked)
			continue;
		if (left < 15000 / 6)
			sim_fail("I6", "%s is leased and has %lld ms left", b->real->id,
				 (long long)left);
	}
}
