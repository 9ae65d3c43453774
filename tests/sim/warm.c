/* SPDX-License-Identifier: MIT */
/*
 * Entries [warm]: a configuration that changes, prepare and agents that fail, and the invariants of what is made before anybody asks.
 * They are held against the rows as they are handed over, the disk, STATE/claims, and what clients were told.
 *
 *   W1  none is given twice
 *   W2  a claim is in its row and in STATE/claims before it is answered, and stays
 *   W3  what was claimed is never warm again
 *   W4  after the loss of the database one is given to whom STATE/claims names, and to nobody without it
 *   W5  one that is in doubt is neither extended nor ended, paused or copied
 *   W6  none is given, or kept, past its max_age, or for an entry that is another one now, or is gone
 *   W7  POSTs of an entry: not above burst at once, not above per_hour in an hour
 *   W8  at rest each entry has what it is to have, and nothing is left once nobody wants one
 *   W9  who asks for REQUIRE, NEVER or an environment gets that
 */
#include <stdio.h>
#include <stdlib.h>

#include "daemon/common/ev/loop.h"
#include "daemon/sandbox/rules/tags.h"
#include "daemon/store/store.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "tests/sim/sim.h"

#define CLOCK_SLACK_MS 2500u	/* how wrong the daemon's cloud clock may be: Date has seconds, and a difference of 1.5 s moves nothing */
#define AGE_SLACK_MS   (2 * CLOCK_SLACK_MS)	/* an age is the difference of two readings */
#define REPLACED_MS    45000u	/* the next look at it, its DELETE, and all their answers */
#define LEDGER_ROOM    200u	/* sandboxes of the ledger that are left to Creates */

static const uid_t everybody[] = { 1000, 1001 };

static uint64_t draw(uint64_t lo, uint64_t hi)
{
	return sim_between(&W->rng, lo, hi);
}

/* --- the configuration --- */

static void draw_env(struct rng *r, unsigned entry, char ret[32])
{
	snprintf(ret, 32, "e%uv%u", entry, (unsigned)rng_below(r, 2));
}

void warm_begin(void)
{
	for (unsigned i = 0; W->warm && i < SIM_ENTRIES; i++) {
		struct sim_entry *e = &W->entries[i];

		*e = (struct sim_entry){ .present = !i || sim_chance(&W->rng, 600) };
		snprintf(e->name, sizeof(e->name), "w%u", i);
		draw_env(&W->rng, i, e->env);
		e->size = (unsigned)draw(1, 3);
		e->burst = (unsigned)draw(1, 3);
		/* An hour is one of the wall clock, as `active` is; steps of it change what is done. */
		e->per_hour = W->no_crash || sim_chance(&W->rng, 200) ? 0 : (unsigned)draw(4, 60);
		e->active_ms = W->no_crash || sim_chance(&W->rng, 700) ? 0 : draw(60000, 600000);
		e->max_age_ms = draw(60000, 1800000);
		e->ready_timeout_ms = draw(1000, 20000);
		e->one_uid = i;
	}
	if (!W->warm)
		return;
	W->faults.claims_fail = sim_chance(&W->rng, 200) ? (unsigned)draw(10, 150) : 0;
	W->faults.prepare_fails = sim_chance(&W->rng, 500) ? (unsigned)draw(10, 300) : 0;
	W->faults.agents_away = sim_chance(&W->rng, 400) ? (unsigned)draw(10, 200) : 0;
	W->max_sandboxes = sim_chance(&W->rng, 200) ? (uint32_t)draw(10, 20) : 0;
}

/* What it runs with follows from its environment, so that the ledger has to know no more. */
static bool prepares(const struct sim_entry *e)
{
	return e->env[3] == '1';
}

void warm_rules(struct sandbox_core_rules *ret)
{
	static struct sandbox_warm_entry v[SIM_ENTRIES];

	for (unsigned i = 0; i < SIM_ENTRIES; i++) {
		struct sim_entry *e = &W->entries[i];
		struct sandbox_warm_entry *to = &v[ret->n_warm];

		if (!e->present)
			continue;
		cloud_create_fini(&to->what);
		*to = (struct sandbox_warm_entry){
			.name = e->name, .size = W->warm_full ? 0 : e->size,
			.claimers = { everybody, e->one_uid ? 1 : 2, NULL, 0 },
			.prepare = prepares(e) ? "make" : NULL,
			.ready_timeout_ms = e->ready_timeout_ms, .max_age_ms = e->max_age_ms, .active_ms = e->active_ms,
			.burst = e->burst, .per_hour = e->per_hour,
		};
		to->what.template_id = str_dup("base");
		to->what.timeout_s = prepares(e) ? 60 : 120;
		must(to->what.template_id && !cloud_kvs_add(&to->what.envs, FAKE_ENV, e->env));
		ret->n_warm++;
	}
	ret->warm = v;
}

void warm_change(void)
{
	unsigned i = (unsigned)rng_below(&W->rng, SIM_ENTRIES);
	struct sim_entry *e = &W->entries[i];

	switch (rng_below(&W->rng, 5)) {
	case 0:
		e->present = !e->present;
		break;
	case 1:
		draw_env(&W->rng, i, e->env);
		break;
	case 2:
		e->max_age_ms = draw(60000, 1800000);
		break;
	default:
		e->size = (unsigned)draw(0, 3);
	}
	sim_trace("configuration: %s %s env %s size %u max_age %llu", e->name, e->present ? "is" : "is not", e->env, e->size,
		  (unsigned long long)e->max_age_ms);
}

static void reload(void)
{
	struct sandbox_core_rules r = { 0 };

	policy_default(&r.policy);
	warm_rules(&r);
	must(!sandbox_core_set_rules(W->core, &r));
}

void warm_act(void)
{
	const struct sim_entry *e = &W->entries[rng_below(&W->rng, SIM_ENTRIES)];
	unsigned how = (unsigned)rng_below(&W->rng, 10);
	struct status st;

	if (how < 6) {
		warm_change();
		sim_trace("Reload");
		reload();
	} else if (how < 8) {
		int size = (int)draw(0, 4) - 1;

		sim_trace("Set %s %d", e->name, size);
		(void)!sandbox_warm_set(W->core, e->name, W->warm_full ? 0 : size, &st);
	} else {
		sim_trace("Retry %s", e->name);
		(void)!sandbox_warm_retry(W->core, e->name, &st);
	}
}

void warm_pause(void)
{
	if (!W->warm)
		return;
	W->fake->probe = sim_chance(&W->rng, W->faults.agents_away) ? SANDBOX_PROBE_NO_ANSWER : SANDBOX_PROBE_HEALTHY;
	if (!W->warm_full && (W->fake->n_sandboxes + LEDGER_ROOM > FAKE_SANDBOXES || W->n_posts + LEDGER_ROOM > SIM_POSTS)) {
		W->warm_full = true;
		if (W->core && !sim->dead)
			warm_release();
	}
}

/* --- prepare --- */

struct prepare {
	struct timer timer;
	struct grave grave;
	bool ok;
	sandbox_prepared_fn *done;
	void *user;
};

static void on_prepare_timer(struct timer *t, void *user)
{
	struct status st = STATUS_OK;
	struct prepare *p = user;

	if (!p->ok)
		status_set(&st, R_SANDBOX_NOT_READY, "it ended with exit status 3");
	loop_bury(W->loop, &p->grave, free, p);
	p->done(p->user, p->ok, &st, p->ok ? "made" : "cannot");
}

static void *prepare_start(const struct sandbox_target *t, const struct sandbox_warm_entry *e, uint64_t deadline_ms,
			   sandbox_prepared_fn *done, void *done_user, struct status *st)
{
	struct prepare *p = calloc(1, sizeof(*p));

	must(p);
	*p = (struct prepare){ .done = done, .user = done_user };
	p->ok = W->quiet || !sim_chance(&W->fake->rng, W->faults.prepare_fails);
	timer_init(&p->timer, W->loop, on_prepare_timer, p);
	must(!timer_set(&p->timer, clock_boot_ms() + sim_between(&W->fake->rng, 1, sim_chance(&W->fake->rng, 50) ? 40000 : 800)));
	return p;
}

static void prepare_cancel(void *prepare)
{
	struct prepare *p = prepare;

	timer_clear(&p->timer);
	free(p);
}

struct sandbox_preparer warm_preparer(void)
{
	return (struct sandbox_preparer){ prepare_start, prepare_cancel };
}

/* --- crashes --- */

void warm_crash_point(void)
{
	static const char *const points[] = {
		"warm.making", "create.intent_committed", "create.before_send", "create.after_send", "create.answered",
		"create.before_active", "create.active_committed", "warm.preparing", "warm.prepared", "warm.ready", "warm.claim_before_commit",
		"store.claims", "warm.claim_committed", "warm.claim_before_reply", "warm.end_sent",
	};

	W->crash_at = NULL;
	if (!W->warm || W->no_crash || !sim_chance(&W->rng, 300))
		return;
	W->crash_at = points[rng_below(&W->rng, ARRAY_SIZE(points))];
	W->crash_in = (long)draw(1, 5);
}

/* --- whose it is --- */

const char *ledger_uid(const struct sim_sandbox *b)
{
	static char uid[16];

	if (b->of && fake_tag(b->real, TAG_WARM))
		snprintf(uid, sizeof(uid), "%u", b->of->uid);
	else if (b->warm.claimed)
		snprintf(uid, sizeof(uid), "%u", b->warm.uid);
	else
		return fake_tag(b->real, TAG_UID);
	return uid;
}

const char *ledger_name(const struct sim_sandbox *b)
{
	if (b->warm.claimed)
		return b->warm.name[0] ? b->warm.name : NULL;
	return fake_tag(b->real, TAG_NAME);
}

bool warm_is_unclaimed(const struct sim_sandbox *b)
{
	return b->warm.made && !b->warm.claimed;
}

bool warm_may_end(const struct sim_sandbox *b)
{
	/* A claim that cannot be written is nobody's, and its sandbox goes back to no entry. */
	return warm_is_unclaimed(b) || (b->warm.claimed && !b->warm.told && W->store_failed);
}

static struct sim_entry *entry_named(const char *name)
{
	for (unsigned i = 0; name && i < SIM_ENTRIES; i++)
		if (str_eq(W->entries[i].name, name))
			return &W->entries[i];
	return NULL;
}

void warm_made_one(const struct fake_request *q, struct sim_sandbox *b)
{
	struct sim_entry *e = entry_named(fake_tag(b->real, TAG_WARM));

	if (!e)
		return;
	b->warm = (struct sim_warm){ .made = true, .entry = (unsigned)(e - W->entries), .request = SIM_REQUESTS };
	b->old = q->run <= W->lost_run;
}

static void forget_claim(struct sim_sandbox *b)
{
	b->warm.claimed = b->warm.told = false;
	b->warm.name[0] = 0;
	policy_default(&b->may[0]);
	b->n_may = 1;
}

static void note_claim(struct sim_sandbox *b, uid_t uid, const char *name, const char *policy)
{
	b->warm.claimed = true;
	b->warm.uid = uid;
	(void)str_copy(b->warm.name, sizeof(b->warm.name), name);
	policy_default(&b->may[0]);
	must(!policy_parse(policy, &b->may[0]));
	b->n_may = 1;
	b->policy_since_ms = sim->now_ms;
}

/* --- rows as they are handed over --- */

static void row_unclaimed(struct sim_sandbox *b, const struct row_sandbox *r)
{
	if (r->state == SANDBOX_GONE || r->state == SANDBOX_KILLING)
		return;
	if (b->warm.claimed)
		sim_fail("W3", "%s was claimed by %u and is warm again", r->id, b->warm.uid);
	if (b->old)
		sim_fail("W4", "%s is kept for a claim, though the rows that knew of it were lost", r->id);
	if (r->warm_state == WARM_READY && !b->warm.ready_at_ms) {
		b->warm.ready_at_ms = sim->now_ms;
		b->warm.is_ready_told = W->clock_told;
	}
}

/* Until the cloud has said what time it is, moments are as good as our own clock, and so are ages that count from them. */
static bool is_above_age(const struct sim_sandbox *b, uint64_t slack_ms)
{
	return W->clock_told && b->warm.is_ready_told &&
	       sim->now_ms > b->warm.ready_at_ms + W->entries[b->warm.entry].max_age_ms + slack_ms;
}

static void check_given(const struct sim_sandbox *b, const struct row_sandbox *r)
{
	const struct sim_entry *e = &W->entries[b->warm.entry];

	if (!b->warm.ready_at_ms)
		sim_fail("W6", "%s is given to %u before it was ready", r->id, r->uid);
	if (!e->present || !str_eq(e->env, b->real->env))
		sim_fail("W6", "%s is given, and its entry is %s", r->id, e->present ? "another one now" : "gone");
	if (e->one_uid && r->uid != everybody[0])
		sim_fail("W6", "%s is given to %u, who may not claim it", r->id, r->uid);
	if (is_above_age(b, AGE_SLACK_MS))
		sim_fail("W6", "%s is given %llu ms after it was ready, max_age is %llu", r->id,
			 (unsigned long long)(sim->now_ms - b->warm.ready_at_ms), (unsigned long long)e->max_age_ms);
}

static void row_claimed(struct sim_sandbox *b, const struct row_sandbox *r)
{
	const struct store_claim *c = disk_claim(r->id);

	if (b->warm.claimed && r->uid != b->warm.uid)
		sim_fail("W1", "%s was claimed by %u and is %u's now", r->id, b->warm.uid, r->uid);
	if (b->warm.quarantined)
		sim_fail("W4", "%s was in quarantine and is given to %u", r->id, r->uid);
	if (b->old && (!c || c->uid != r->uid))
		sim_fail("W4", "%s is given to %u after the loss of its row, on record is %d", r->id, r->uid, c ? (int)c->uid : -1);
	if (b->old && !disk_sandbox(r->id))
		W->given_back++;
	if (b->warm.claimed)
		return;
	if (!b->old)
		check_given(b, r);
	W->claims += !b->old;
	note_claim(b, r->uid, r->name, r->policy);
	sim_trace("  %s is %u's, name %s", r->id, r->uid, r->name);
}

void warm_row(const struct row_sandbox *r)
{
	struct sim_sandbox *b = sim->dead ? NULL : ledger_find(r->id);

	if (!b || !b->warm.made)
		return;
	if (r->warm_state == WARM_NONE)
		sim_fail("W4", "%s is %u's, and that an entry made it is forgotten", r->id, r->uid);
	else if (r->warm_state == WARM_CLAIMED)
		row_claimed(b, r);
	else if (r->warm_state != WARM_QUARANTINED)
		row_unclaimed(b, r);
	else if (disk_claim(r->id))
		sim_fail("W4", "%s is %u's by the record, and in quarantine", r->id, disk_claim(r->id)->uid);
	else if (!b->warm.quarantined) {
		b->warm.quarantined = true;
		W->quarantined++;
	}
}

/* --- what clients ask for, and are told --- */

void warm_ask(struct sim_want *c, struct rng *same, struct sandbox_create *q)
{
	static const enum sandbox_warm_mode modes[] = {
		SANDBOX_WARM_UNSET, SANDBOX_WARM_NEVER, SANDBOX_WARM_PREFER, SANDBOX_WARM_PREFER, SANDBOX_WARM_PREFER, SANDBOX_WARM_REQUIRE,
	};

	if (!W->warm)
		return;
	c->warm = q->warm = modes[rng_below(same, ARRAY_SIZE(modes))];
	if (sim_chance(same, 900))
		draw_env(same, sim_chance(same, 700) ? 0 : 1, c->env);
	if (c->env[0])
		must(!cloud_kvs_add(&q->what.envs, FAKE_ENV, c->env));
}

static void check_told(const struct sim_want *c, const struct sim_sandbox *b)
{
	const struct store_claim *line = disk_claim(b->real->id);
	const struct row_sandbox *row = disk_sandbox(b->real->id);
	uid_t uid = W->procs[c->proc].uid;
	bool repeats = c->request < SIM_REQUESTS && c->request == b->warm.request;
	bool by_name = c->name[0] && str_eq(c->name, b->warm.name);

	if (!row || row->warm_state != WARM_CLAIMED || row->uid != uid)
		sim_fail("W2", "%s is answered to %u, and its row %s", b->real->id, uid, row ? "says something else" : "is not there");
	if (row->state != SANDBOX_GONE && (!line || line->uid != uid))
		sim_fail("W2", "%s is answered to %u, and STATE/claims has %d", b->real->id, uid, line ? (int)line->uid : -1);
	if (b->warm.told && (uid != b->warm.uid || (!repeats && !by_name)))
		sim_fail("W1", "%s is given twice: to %u, now to %u by request %u", b->real->id, b->warm.uid, uid, c->request);
}

void warm_told(const struct sim_want *c, struct sim_sandbox *b, const struct sandbox_view *v)
{
	if (!W->warm || b->of)
		return;
	if (!c->name[0] && !str_eq(c->env, b->real->env))
		sim_fail("W9", "%s has environment %s, asked for was %s", v->id, b->real->env, c->env);
	if (!c->name[0] && c->warm == (b->warm.made ? SANDBOX_WARM_NEVER : SANDBOX_WARM_REQUIRE))
		sim_fail("W9", "%s is %s, asked for was mode %d", v->id, b->warm.made ? "warm" : "not warm", (int)c->warm);
	if (v->warm != b->warm.made)
		sim_fail("W2", "%s is answered as %s", v->id, v->warm ? "warm" : "not warm");
	if (!b->warm.made)
		return;
	check_told(c, b);
	/* Of one that is gone there is nothing to keep. */
	if (v->state == SANDBOX_GONE)
		return;
	if (!b->warm.told)
		b->warm.request = c->request;
	b->warm.told = true;
}

/* --- what is sent to the cloud --- */

static bool is_known_tag(const char *tag)
{
	for (unsigned i = 0; i < W->n_posts; i++)
		if (str_eq(W->posts[i].tag, tag))
			return true;
	return false;
}

/* The hour is the row's, which says when it began; a new one may not begin before the last is over. */
static void count_in_hour(struct sim_entry *e)
{
	const struct row_warm *row = disk_warm(e->name);

	if (!row)
		sim_fail("W7", "a POST of %s, and no row counts it", e->name);
	if ((uint64_t)row->hour_at_ms != e->hour_at_ms) {
		if (e->hour_at_ms && (uint64_t)row->hour_at_ms < e->hour_at_ms + WARM_HOUR_MS)
			sim_fail("W7", "an hour of %s began before the last was over", e->name);
		e->hour_at_ms = (uint64_t)row->hour_at_ms;
		e->made = 0;
	}
	if (++e->made > e->per_hour)
		sim_fail("W7", "creation %u of %s in an hour, per_hour is %u", e->made, e->name, e->per_hour);
}

static void post_begins(const struct fake_request *q, struct sim_entry *e)
{
	if (++e->in_flight > e->burst)
		sim_fail("W7", "%u POSTs of %s at once, burst is %u", e->in_flight, e->name, e->burst);
	if (e->per_hour && !is_known_tag(q->label))
		count_in_hour(e);
}

void warm_request(const struct fake_request *q)
{
	struct sim_entry *e = q->what == FAKE_CREATE ? entry_named(cloud_kvs_get(&q->kvs, TAG_WARM)) : NULL;
	const struct sim_sandbox *b = q->id[0] ? ledger_find(q->id) : NULL;

	if (e)
		post_begins(q, e);
	if (!b || !b->warm.made || q->what == FAKE_GET || q->what == FAKE_LIST || q->what == FAKE_METRICS)
		return;
	if (b->warm.quarantined || (b->old && !b->warm.claimed))
		sim_fail("W5", "request %d for %s, which nobody has and whose claim is in doubt", (int)q->what, q->id);
}

void warm_request_over(const struct fake_request *q)
{
	struct sim_entry *e = q->what == FAKE_CREATE ? entry_named(cloud_kvs_get(&q->kvs, TAG_WARM)) : NULL;

	W->clock_told |= q->result.date_ms != 0;
	if (e && q->run == W->fake->runs && e->in_flight)
		e->in_flight--;
}

/* --- after a crash, and after a loss --- */

static void check_kept(struct sim_sandbox *b)
{
	const struct row_sandbox *row = disk_sandbox(b->real->id);
	const struct store_claim *c = disk_claim(b->real->id);

	if (!b->warm.told)
		return;
	if (row && (row->warm_state != WARM_CLAIMED || row->uid != b->warm.uid))
		sim_fail("W2", "%s was answered to %u; its row says state %d of %u", b->real->id, b->warm.uid, row->warm_state, row->uid);
	if (!c || c->uid != b->warm.uid)
		sim_fail("W2", "%s was answered to %u, and STATE/claims does not say so", b->real->id, b->warm.uid);
}

void warm_after_crash(void)
{
	for (unsigned i = 0; i < SIM_ENTRIES; i++)
		W->entries[i].in_flight = 0;
	for (unsigned i = 0; i < W->fake->n_sandboxes; i++) {
		struct sim_sandbox *b = &W->sandboxes[i];
		const struct row_sandbox *row = disk_sandbox(b->real->id);

		if (!b->warm.made)
			continue;
		check_kept(b);
		if (!row && b->old)
			continue;
		/* What was not written was not claimed. */
		if (b->warm.claimed && (!row || row->warm_state != WARM_CLAIMED))
			forget_claim(b);
		else if (!b->warm.claimed && row && row->warm_state == WARM_CLAIMED)
			note_claim(b, row->uid, row->name, row->policy);
		b->warm.claim_kept |= b->warm.claimed;
	}
}

static void forget_shown(const char *id)
{
	for (unsigned i = 0; i < SIM_UIDS * SIM_REQUESTS; i++)
		if (str_eq(W->shown[i / SIM_REQUESTS][i % SIM_REQUESTS], id))
			W->shown[i / SIM_REQUESTS][i % SIM_REQUESTS][0] = 0;
}

void warm_lose_store(bool claims_too)
{
	for (unsigned i = 0; i < SIM_ENTRIES; i++)
		W->entries[i].hour_at_ms = 0;
	for (unsigned i = 0; i < W->fake->n_sandboxes; i++) {
		struct sim_sandbox *b = &W->sandboxes[i];
		const struct store_claim *c = b->warm.made ? disk_claim(b->real->id) : NULL;

		if (!b->warm.made)
			continue;
		if (c) {
			note_claim(b, c->uid, c->name, c->policy);
			b->may[0].on_gone = POLICY_FAIL;
			continue;
		}
		b->warm.unrecorded |= b->warm.told;
		forget_claim(b);
		forget_shown(b->real->id);
	}
}

/* --- at rest --- */

static bool is_waiting(const struct sim_sandbox *b, const struct row_sandbox *row)
{
	return b->real->alive && warm_is_unclaimed(b) && row && row->state == SANDBOX_RUNNING &&
	       (row->warm_state == WARM_READY || row->warm_state == WARM_PREPARING);
}

static unsigned check_waiting(unsigned entry)
{
	const struct sim_entry *e = &W->entries[entry];
	unsigned n = 0;

	for (unsigned i = 0; i < W->fake->n_sandboxes; i++) {
		const struct sim_sandbox *b = &W->sandboxes[i];
		const struct row_sandbox *row = disk_sandbox(b->real->id);

		if (!b->warm.made || b->warm.entry != entry || !is_waiting(b, row))
			continue;
		n++;
		if (!e->present || !str_eq(e->env, b->real->env))
			sim_fail("W6", "%s waits for a claim, and its entry is %s", b->real->id, e->present ? "another one now" : "gone");
		if (row->warm_state != WARM_READY)
			continue;
		if (is_above_age(b, REPLACED_MS))
			sim_fail("W6", "%s waits for %llu ms, max_age is %llu", b->real->id,
				 (unsigned long long)(sim->now_ms - b->warm.ready_at_ms), (unsigned long long)e->max_age_ms);
		if (b->real->end_at_ms - fake_now(W->fake) < 15000 / 6 && !W->fake->cap_s)
			sim_fail("W8", "%s waits for a claim and has %lld ms left", b->real->id,
				 (long long)(b->real->end_at_ms - fake_now(W->fake)));
	}
	return n;
}

static bool find_info(const char *name, struct sandbox_warm_info *ret)
{
	for (size_t i = 0; sandbox_warm_info(W->core, i, ret); i++)
		if (str_eq(ret->name, name))
			return true;
	return false;
}

static unsigned n_rows;

static void count_row(const struct row_sandbox *r)
{
	n_rows += r->state != SANDBOX_GONE && r->state != SANDBOX_KILLING;
}

/* Who made one while others waited for a claim has it in their place. */
static void check_bound(void)
{
	n_rows = 0;
	disk_each_sandbox(count_row);
	for (unsigned i = 0; i < SIM_ENTRIES && W->max_sandboxes && n_rows > W->max_sandboxes; i++)
		if (check_waiting(i))
			sim_fail("W8", "%u sandboxes, %u are allowed, and some of %s wait for a claim", n_rows, W->max_sandboxes,
				 W->entries[i].name);
}

void warm_check_rest(void)
{
	fake_expire(W->fake);
	check_bound();
	for (unsigned i = 0; W->warm && i < SIM_ENTRIES; i++) {
		unsigned n = check_waiting(i);
		struct sandbox_warm_info info;

		if (find_info(W->entries[i].name, &info) && n > info.size)
			sim_fail("W8", "%u of %s wait for a claim, its size is %u", n, info.name, info.size);
	}
}

/* Who was never full although nothing was in its way? */
static void check_full(void)
{
	for (unsigned i = 0; i < SIM_ENTRIES; i++) {
		const struct sim_entry *e = &W->entries[i];
		struct sandbox_warm_info info;

		if (!find_info(e->name, &info) || info.failed || e->active_ms || W->max_sandboxes || W->fake->cap_s ||
		    (e->per_hour && info.made_in_hour >= e->per_hour))
			continue;
		if (info.ready + info.coming != info.size)
			sim_fail("W8", "%s has %u ready and %u coming at rest, its size is %u", e->name, info.ready, info.coming, info.size);
	}
}

void warm_release(void)
{
	struct status st;

	if (!W->warm)
		return;
	if (W->quiet)
		check_full();
	if (W->quiet && W->seed % 2)
		for (unsigned i = 0; i < SIM_ENTRIES; i++)
			W->entries[i].present = false;
	for (unsigned i = 0; i < SIM_ENTRIES; i++)
		(void)!sandbox_warm_set(W->core, W->entries[i].name, 0, &st);
	reload();
}

void warm_check_released(void)
{
	fake_expire(W->fake);
	for (unsigned i = 0; i < W->fake->n_sandboxes; i++) {
		const struct sim_sandbox *b = &W->sandboxes[i];

		/* One that its owner had paused has no end of its own. */
		if (b->real->alive && warm_is_unclaimed(b) && !(b->warm.quarantined && b->real->paused))
			sim_fail("W8", "%s lives, and nobody has it%s", b->real->id, b->warm.quarantined ? " (quarantine)" : "");
	}
}
