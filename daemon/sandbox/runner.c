/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/runner.h"

#include <stdlib.h>

#include "daemon/auth/owner.h"
#include "daemon/common/obs/failpoint.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/core.h"
#include "daemon/sandbox/event.h"
#include "daemon/sandbox/lease.h"
#include "daemon/sandbox/rules/evaluate.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/turn.h"
#include "daemon/sandbox/warm.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define RUNNER_MAGIC	  0x4b656570u
#define CHECK_RETRY_MS	  500u	/* between two checks of the cloud, doubled … */
#define CHECK_RETRY_MAX	  30000u	/* … up to this */
#define READ_MS		  10000u
#define PAUSE_MS	  75000u
#define SHORT_MAX	  3u	/* so many extensions in a row that fell short mean that the cloud's cap is reached */
#define DATE_SLACK_MS	  1500	/* a smaller difference is ignored, since Date has whole seconds */
#define LINE_MS		  1000u	/* how often a sandbox in line for an extension is evaluated for other reasons */
#define CAPPED_TEXT	  "the cloud extends this sandbox no further"

enum step {
	RUNNER_IDLE,
	RUNNER_REFRESH,	/* POST /refreshes under way */
	RUNNER_END,	/* POST /timeout under way: the end that a claim asked for */
	RUNNER_READ,	/* GET under way: the end after either POST */
	RUNNER_CHECK,	/* the cloud is asked about it before it is paused or killed */
	RUNNER_PAUSE,
};

struct runner {
	uint32_t magic;
	struct sandbox *sandbox;
	struct timer timer;
	struct defer later;
	enum step step;
	struct cloud_call *call;
	struct fetch_wait check;
	enum evaluate_rule rule;	/* of the pause under way */
	unsigned holds;			/* runner_hold() without its release */
	int64_t learnt_at_ms;		/* BOOTTIME: when its end was learnt */
	int64_t asked_at_ms;		/* BOOTTIME of the last POST for an end, … */
	uint32_t asked_s;		/* … which asked for so much from then on */
	unsigned failures, shorts;	/* extensions in a row that failed, or fell short */
	unsigned checks;		/* in a row without an answer */
	int64_t retry_at_ms;		/* BOOTTIME: no POST for an end before it */
	bool is_limited;		/* the cloud's rate limit refused the extension: it keeps its turn */
	bool degraded, capped, cap_told, told_soon, told_very_soon;	/* as in struct evaluate_input */
	uint64_t rnd;
	struct extend_turn turn;
	struct grave grave;
};

/* --- clocks --- */

static void on_date(void *user, int64_t date_ms)
{
	struct account *a = user;
	const struct index_walk all = { .account = a };
	int64_t now = date_ms + 500 - (int64_t)clock_boot_ms(), off = now - a->cloud_minus_boot_ms;
	struct sandbox *b;

	if (off <= DATE_SLACK_MS && off >= -DATE_SLACK_MS)
		return;
	a->cloud_minus_boot_ms = now;
	/* Every end is at another BOOTTIME now: the book is made anew, and every sandbox is evaluated again. */
	for (b = index_behind(&all, NULL); b; b = index_next(&all, b))
		if (b->runner)
			extend_note(&b->runner->turn, false, 0);
	extend_clock_set(a);
	for (b = index_behind(&all, NULL); b; b = index_next(&all, b))
		if (b->runner)
			runner_poke(b);
}

void account_clock_start(struct account *a)
{
	a->cloud_minus_boot_ms = clock_wall_ms() - (int64_t)clock_boot_ms();
	extend_clock_set(a);
	cloud_on_date(a->cloud, on_date, a);
}

void account_clock_stop(struct account *a)
{
	cloud_on_date(a->cloud, NULL, NULL);
}

int64_t account_cloud_now(const struct account *a)
{
	return (int64_t)clock_boot_ms() + a->cloud_minus_boot_ms;
}

/* BOOTTIME of a moment that the cloud said; 0 stays 0. */
static int64_t account_boot_of(const struct account *a, int64_t cloud_wall_ms)
{
	return cloud_wall_ms ? cloud_wall_ms - a->cloud_minus_boot_ms : 0;
}

/* --- the sandbox as evaluate.c sees it --- */

/* From when its age counts: a warm one's from its claim. */
static int64_t begin_of(const struct sandbox *b)
{
	bool is_claimed = b->warm_state == WARM_CLAIMED && b->started_at_ms;

	return is_claimed ? account_cloud_now(b->account) - warm_age_ms(b) : b->started_at_ms;
}

static void look_alone(const struct runner *k, struct evaluate_input *ret)
{
	const struct sandbox *b = k->sandbox;
	const struct sandbox_core *core = b->account->core;

	*ret = (struct evaluate_input){
		.state = b->state,
		.ours = b->ours && !b->held,
		.policy = &b->policy,
		.leases = b->n_leases + b->held + warm_is_kept(b),
		.commands = b->n_commands,
		.timeout_s = b->timeout_s,
		.started_at_ms = account_boot_of(b->account, begin_of(b)),
		.end_at_ms = account_boot_of(b->account, b->end_at_ms),
		.learnt_at_ms = k->learnt_at_ms,
		.released_at_ms = b->released_at_ms,
		.used_at_ms = b->used_at_ms,
		.command_ended_at_ms = b->command_ended_at_ms,
		.unclaimed_at_ms = b->unclaimed_boot_ms,
		.unclaimed_grace_ms = core->unclaimed_grace_ms,
		.quiet_until_ms = core->quiet_until_ms,
		.retry_at_ms = k->retry_at_ms,
		.degraded = k->degraded,
		.capped = k->capped,
		.cap_told = k->cap_told,
		.told_soon = k->told_soon,
		.told_very_soon = k->told_very_soon,
		.rnd = k->rnd,
	};
}

/* The same with the span that the account's extensions need. */
static void look_at(const struct runner *k, struct evaluate_input *ret)
{
	look_alone(k, ret);
	ret->span_s = extend_span_s(k->sandbox->account);
}

bool runner_keeps(const struct sandbox *b, int64_t *ret_left_ms)
{
	struct evaluate_input d;

	if (!b->runner)
		return false;
	look_alone(b->runner, &d);
	*ret_left_ms = d.end_at_ms - (int64_t)clock_boot_ms();
	return evaluate_is_kept(&d);
}

bool runner_would_keep(const struct sandbox *b, int64_t *ret_left_ms)
{
	struct evaluate_input d;

	if (!b->runner || runner_keeps(b, ret_left_ms))
		return false;
	look_alone(b->runner, &d);
	d.leases++;
	*ret_left_ms = d.end_at_ms - (int64_t)clock_boot_ms();
	return evaluate_is_kept(&d);
}

static struct runner *runner_from(void *p)
{
	struct runner *k = p;

	must(k && k->magic == RUNNER_MAGIC);
	return k;
}

static struct sandbox_core *runner_core(const struct runner *k)
{
	return k->sandbox->account->core;
}

static void runner_look(struct runner *k);

static void runner_on_timer(struct timer *t, void *user)
{
	runner_look(runner_from(user));
}

static void runner_on_later(struct defer *d, void *user)
{
	runner_look(runner_from(user));
}

static void look_again_at(struct runner *k, uint64_t at_ms)
{
	if (timer_set(&k->timer, at_ms) < 0)
		log_warn("runner_timer", "sandbox=%s error=nomem at=next_change", k->sandbox->id);
}

/* The cloud did not say whether the sandbox exists, or in which state it is. */
static void check_later(struct runner *k)
{
	look_again_at(k, clock_boot_ms() + rules_backoff_ms(k->checks++, CHECK_RETRY_MS, CHECK_RETRY_MAX,
							    rng_u64(&runner_core(k)->rng)));
}

static struct runner *runner_of(struct sandbox *b)
{
	struct runner *k = b->runner;

	if (k)
		return k;
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	k->magic = RUNNER_MAGIC;
	k->sandbox = b;
	k->learnt_at_ms = (int64_t)clock_boot_ms();
	k->rnd = rng_u64(&b->account->core->rng);
	list_init(&k->check.node);
	extend_turn_init(&k->turn, b);
	timer_init(&k->timer, b->account->core->loop, runner_on_timer, k);
	defer_init_later(&k->later, b->account->core->loop, runner_on_later, k);
	b->runner = k;
	return k;
}

void runner_note(struct sandbox *b)
{
	int64_t left;

	if (b->runner)
		extend_note(&b->runner->turn, runner_keeps(b, &left), b->end_at_ms);
}

void runner_poke(struct sandbox *b)
{
	struct runner *k = runner_of(b);

	runner_note(b);
	if (k && k->step == RUNNER_IDLE)
		look_again_at(k, clock_boot_ms());
}

void runner_poke_later(struct sandbox *b)
{
	struct runner *k = runner_of(b);

	runner_note(b);
	if (k && k->step == RUNNER_IDLE)
		defer_post(&k->later);
}

void runner_end_learnt(struct sandbox *b)
{
	struct runner *k = runner_of(b);

	if (!k)
		return;
	k->learnt_at_ms = (int64_t)clock_boot_ms();
	k->rnd = rng_u64(&runner_core(k)->rng);
	k->told_soon = k->told_very_soon = false;
	k->is_limited = false;
	if (k->step == RUNNER_IDLE) {
		k->capped = false;
		k->shorts = 0;
	}
	runner_poke(b);
}

static void set_idle(struct runner *k)
{
	k->step = RUNNER_IDLE;
	runner_poke(k->sandbox);
}

static void stop_extending(struct runner *k)
{
	extend_turn_end(&k->turn);
	if (k->step != RUNNER_REFRESH && k->step != RUNNER_READ && k->step != RUNNER_END)
		return;
	cloud_call_cancel(k->call);
	k->call = NULL;
	set_idle(k);
}

void runner_hold(struct sandbox *b)
{
	struct runner *k = runner_of(b);

	if (!k)
		return;
	stop_extending(k);
	k->holds++;
}

void runner_release(struct sandbox *b)
{
	struct runner *k = b->runner;

	if (!k || !k->holds)
		return;
	k->holds--;
	k->retry_at_ms = 0;
	runner_poke(b);
}

static void runner_bury(void *p)
{
	struct runner *k = runner_from(p);

	k->magic = 0;
	free(k);
}

struct runner *runner_free(struct sandbox *b)
{
	struct runner *k = b->runner;

	if (!k)
		return NULL;
	cloud_call_cancel(k->call);
	extend_turn_end(&k->turn);
	extend_note(&k->turn, false, 0);
	fetch_leave(&k->check);
	timer_clear(&k->timer);
	defer_cancel(&k->later);
	loop_bury(b->account->core->loop, &k->grave, runner_bury, k);
	return NULL;
}

/* --- extending --- */

static void renewed(struct runner *k)
{
	k->failures = 0;
	k->retry_at_ms = 0;
	if (!k->degraded)
		return;
	k->degraded = false;
	log_info("renewal_ok", "sandbox=%s", k->sandbox->id);
	event_say(runner_core(k), k->sandbox, EVENT_RENEWAL_OK, "by=extension\n");
}

/* The first failure in a row is reported, long before the end; extensions are tried until the end. */
static void renewal_failed(struct runner *k, const struct status *st)
{
	const char *http = status_evidence_get(st, "upstream_status");
	int64_t now = (int64_t)clock_boot_ms();

	k->failures++;
	/* A rate limit does not lengthen the wait: the cloud says when it ends. */
	k->retry_at_ms = evaluate_retry_at_ms(
		k->is_limited ? 1 : k->failures, account_boot_of(k->sandbox->account, k->sandbox->end_at_ms), now,
		rng_u64(&runner_core(k)->rng));
	k->retry_at_ms = MAX(k->retry_at_ms, now + (int64_t)st->retry_after_ms);
	if (!k->degraded) {
		k->degraded = true;
		log_warn("renewal_degraded", "sandbox=%s reason=%s text=%s", k->sandbox->id,
			 status_reason_name(st->reason), log_q(st->text));
		event_say(runner_core(k), k->sandbox, EVENT_RENEWAL_DEGRADED,
			  "reason=%s\nupstream_status=%s\nmessage=%s\n",
			  status_reason_name(st->reason), http ? http : "", st->text);
	}
	set_idle(k);
}

/* The POST was answered with 204, and the end is earlier than asked for: a plan's cap, or a fault of the cloud. */
static void fell_short(struct runner *k)
{
	struct status st;

	if (++k->shorts >= SHORT_MAX) {
		k->capped = true;
		if (k->sandbox->started_at_ms)
			k->sandbox->account->cap_ms = (uint64_t)MAX(k->sandbox->end_at_ms - k->sandbox->started_at_ms, (int64_t)0);
		log_info("cap_reached", "sandbox=%s", k->sandbox->id);
		renewed(k);
		set_idle(k);
		return;
	}
	status_set(&st, R_BAD_CLOUD_REPLY, "the extension was accepted but the end is not later");
	renewal_failed(k, &st);
}

/* The end that the claim asked for was read back, or the cloud does not give it. */
static void end_is_known(struct runner *k)
{
	struct sandbox *b = k->sandbox;

	if (!b->asked_end_at_ms)
		return;
	b->asked_end_at_ms = 0;
	sandbox_save(runner_core(k), b, false);
	lease_changed(b);
}

static void on_read(struct cloud_result *r, void *user)
{
	struct runner *k = runner_from(user);
	struct sandbox *b = k->sandbox;
	struct account *a = b->account;

	k->call = NULL;
	if (r->outcome == CLOUD_DONE && r->sandbox) {
		sandbox_seen_since(a->core, b, r->sandbox, (uint64_t)k->asked_at_ms);
		if (b->state == SANDBOX_RUNNING &&
		    !evaluate_extended_fully(k->asked_at_ms, k->asked_s,
					     account_boot_of(a, b->end_at_ms))) {
			fell_short(k);
			return;
		}
		k->shorts = 0;
		end_is_known(k);
		renewed(k);
		set_idle(k);
	} else if (r->not_found) {
		k->step = RUNNER_IDLE;
		sandbox_absent(a->core, b);
	} else {
		renewal_failed(k, &r->status);
	}
}

static void read_back(struct runner *k)
{
	struct cloud_ask ask = {
		.deadline_ms = clock_boot_ms() + READ_MS,
		.uid = k->sandbox->uid,
		.done = on_read,
		.user = k,
	};

	k->step = RUNNER_READ;
	k->call = cloud_get(k->sandbox->account->cloud, k->sandbox->id, &ask);
	if (!k->call)
		set_idle(k);
}

static void on_refreshed(struct cloud_result *r, void *user)
{
	struct runner *k = runner_from(user);

	k->call = NULL;
	k->is_limited = r->outcome != CLOUD_DONE && r->status.reason == R_RATE_LIMITED;
	if (!k->is_limited)
		extend_turn_end(&k->turn);
	tally_add(&runner_core(k)->totals.renewals, &r->status);
	if (r->outcome == CLOUD_DONE || r->not_found ||
	    (r->outcome == CLOUD_REFUSED && r->http_status == 400)) {
		/* 404: it is gone or paused; 400: it has its longest life. A GET says what it is now. */
		read_back(k);
		return;
	}
	renewal_failed(k, &r->status);
}

/* Counts how late the extension is: after failures, from when the first try was due. */
static void count_delay(struct runner *k, const struct evaluate_input *d, int64_t now)
{
	struct evaluate_input first = *d;
	int64_t due;

	first.retry_at_ms = 0;
	due = evaluate_extend_at_ms(&first);
	histogram_add(&runner_core(k)->totals.renewal_delay, due < now ? (uint64_t)(now - due) * 1000 : 0);
}

static void extend(struct runner *k, const struct evaluate_input *d)
{
	uint64_t now = clock_boot_ms();
	struct cloud_ask ask = {
		.deadline_ms = now + evaluate_extend_patience_ms(d->end_at_ms, (int64_t)now),
		.uid = k->sandbox->uid,
		.done = on_refreshed,
		.user = k,
	};

	if (!extend_turn_take(&k->turn, d->end_at_ms)) {
		look_again_at(k, now + LINE_MS);
		return;
	}
	k->step = RUNNER_REFRESH;
	k->is_limited = false;
	count_delay(k, d, (int64_t)now);
	k->asked_at_ms = (int64_t)now;
	k->asked_s = evaluate_extend_s(d);
	k->call = cloud_refresh(k->sandbox->account->cloud, k->sandbox->id, k->asked_s, &ask);
	FAILPOINT("extend.sent");
	if (!k->call) {
		extend_turn_end(&k->turn);
		k->retry_at_ms = (int64_t)now + CHECK_RETRY_MS;
		set_idle(k);
	}
}

/* --- the end that a claim asked for --- */

static void on_end_set(struct cloud_result *r, void *user)
{
	struct runner *k = runner_from(user);
	bool is_too_much = r->outcome == CLOUD_REFUSED && r->http_status == 400;
	int64_t left_ms;

	k->call = NULL;
	if (is_too_much) {
		/* The cloud does not give so much: its own end is shown from now on. */
		if (text_set(&k->sandbox->warning, r->status.text) < 0)
			log_debug("sandbox_warning", "sandbox=%s error=nomem", k->sandbox->id);
		end_is_known(k);
	}
	if (r->outcome == CLOUD_DONE || r->not_found || is_too_much) {
		read_back(k);
		return;
	}
	/* Where extensions keep it alive, they give it its time. */
	if (runner_keeps(k->sandbox, &left_ms))
		end_is_known(k);
	renewal_failed(k, &r->status);
}

/* While extensions keep it alive an end is not moved nearer: a request for that may act long after it was sent, and after them. */
static bool is_end_left(const struct sandbox *b)
{
	int64_t left_ms;

	return b->asked_end_at_ms <= b->end_at_ms && runner_keeps(b, &left_ms);
}

/* Sets the end that the claim asked for. True: that is under way, or waits for its next try. */
static bool sets_end(struct runner *k)
{
	struct sandbox *b = k->sandbox;
	uint64_t now = clock_boot_ms();
	int64_t left_ms = b->asked_end_at_ms - account_cloud_now(b->account);
	struct cloud_ask ask = { .deadline_ms = now + READ_MS, .uid = b->uid, .done = on_end_set, .user = k };

	if (!b->asked_end_at_ms || b->claim || b->state != SANDBOX_RUNNING)
		return false;
	if (left_ms < 1000 || is_end_left(b)) {
		end_is_known(k);
		return false;
	}
	if (k->retry_at_ms > (int64_t)now) {
		look_again_at(k, (uint64_t)k->retry_at_ms);
		return true;
	}
	k->step = RUNNER_END;
	k->asked_at_ms = (int64_t)now;
	k->asked_s = (uint32_t)(left_ms / 1000);
	k->call = cloud_set_timeout(b->account->cloud, b->id, k->asked_s, &ask);
	FAILPOINT("warm.end_sent");
	if (k->call)
		return true;
	k->retry_at_ms = (int64_t)now + CHECK_RETRY_MS;
	set_idle(k);
	return true;
}

/* --- pausing --- */

static void on_pause_checked(struct fetch_wait *w, const struct fetch_result *result)
{
	struct runner *k = runner_from(container_of(w, struct runner, check));

	set_idle(k);
	if (result->end == FETCH_ALIVE && k->sandbox->state == SANDBOX_PAUSING)
		sandbox_set_state(k->sandbox, SANDBOX_RUNNING);
	if (k->sandbox->state != SANDBOX_PAUSED)
		check_later(k);
}

/* The rule has applied: it does not count from the same moment again. */
static void forget_moment(struct sandbox *b, enum evaluate_rule rule)
{
	if (rule == EVALUATE_BY_RELEASE)
		b->released_at_ms = 0;
	else if (rule == EVALUATE_BY_UNCLAIMED)
		b->unclaimed_at_ms = b->unclaimed_boot_ms = 0;
}

static void paused(struct runner *k)
{
	struct sandbox *b = k->sandbox;

	/* Another rule may still apply. */
	forget_moment(b, k->rule);
	k->checks = 0;
	log_info("sandbox_paused", "sandbox=%s uid=%u rule=%s", b->id, owner_uid(b->uid),
		 evaluate_rule_name(k->rule));
	sandbox_changed(runner_core(k), b, SANDBOX_PAUSED, evaluate_rule_name(k->rule));
	set_idle(k);
}

static void on_paused(struct cloud_result *r, void *user)
{
	struct runner *k = runner_from(user);

	k->call = NULL;
	if (r->outcome == CLOUD_DONE && k->sandbox->state == SANDBOX_PAUSING) {
		paused(k);
		return;
	}
	/* 409: it is paused already, or changes; 404, 500: it may be gone. A GET says. */
	log_warn("pause_failed", "sandbox=%s text=%s", k->sandbox->id, log_q(r->status.text));
	k->check.fn = on_pause_checked;
	if (fetch_join(runner_core(k), k->sandbox->account, k->sandbox->id, true, &k->check) < 0)
		set_idle(k);
}

static void pause(struct runner *k)
{
	struct sandbox *b = k->sandbox;
	struct cloud_ask ask = {
		.deadline_ms = clock_boot_ms() + PAUSE_MS,
		.uid = b->uid,
		.done = on_paused,
		.user = k,
	};

	k->step = RUNNER_PAUSE;
	sandbox_changed(runner_core(k), b, SANDBOX_PAUSING, evaluate_rule_name(k->rule));
	k->call = cloud_pause(b->account->cloud, b->id, b->lifecycle.keep_memory != TRI_FALSE, &ask);
	FAILPOINT("pause.sent");
	if (!k->call) {
		sandbox_set_state(b, SANDBOX_RUNNING);
		set_idle(k);
	}
}

/* --- before something is ended --- */

static void decide_again(struct runner *k)
{
	struct evaluate_input d;
	struct evaluation due;

	look_at(k, &d);
	evaluate(&d, (int64_t)clock_boot_ms(), &due);
	if (!turn_is_free(k->sandbox)) {
		look_again_at(k, clock_boot_ms() + CHECK_RETRY_MS);	/* a user's change goes first */
		return;
	}
	if (k->holds || (due.act != EVALUATE_PAUSE && due.act != EVALUATE_KILL)) {
		set_idle(k);
		return;
	}
	k->rule = due.rule;
	totals_count(due.act == EVALUATE_PAUSE ? &runner_core(k)->totals.pauses : &runner_core(k)->totals.kills,
		     evaluate_rule_name(due.rule));
	log_info("policy", "sandbox=%s uid=%u rule=%s doing=%s", k->sandbox->id, owner_uid(k->sandbox->uid),
		 evaluate_rule_name(due.rule), due.act == EVALUATE_PAUSE ? "pause" : "kill");
	if (due.act == EVALUATE_PAUSE) {
		pause(k);
		return;
	}
	k->step = RUNNER_IDLE;
	if (kill_by_policy(runner_core(k), k->sandbox, evaluate_rule_name(due.rule)) < 0)
		look_again_at(k, clock_boot_ms() + CHECK_RETRY_MAX);
}

static void on_checked(struct fetch_wait *w, const struct fetch_result *result)
{
	struct runner *k = runner_from(container_of(w, struct runner, check));

	k->step = RUNNER_IDLE;
	switch (result->end) {
	case FETCH_ALIVE:
		k->checks = 0;
		decide_again(k);
		return;
	case FETCH_ABSENT:
		return;
	case FETCH_FAILED:
		check_later(k);
		return;
	}
}

static void runner_check(struct runner *k, const struct evaluation *due)
{
	struct sandbox_core *core = runner_core(k);
	bool sweep = due->rule == EVALUATE_BY_UNCLAIMED;
	uint64_t now = clock_boot_ms(), wait;

	/* An unclaimed sandbox is ended only after a complete list that was not odd. */
	if (sweep && !sync_is_trusted(core, k->sandbox->account)) {
		look_again_at(k, now + core->reconcile_period_ms / 4 + 100);
		return;
	}
	wait = budget_take(&core->budget, sweep, (uint32_t)map_size(&core->sandbox_map), now);
	if (wait) {
		look_again_at(k, now + wait + rng_below(&core->rng, wait + 1));
		return;
	}
	k->step = RUNNER_CHECK;
	k->check.fn = on_checked;
	FAILPOINT("policy.check");
	if (fetch_join(core, k->sandbox->account, k->sandbox->id, true, &k->check) < 0) {
		k->step = RUNNER_IDLE;
		look_again_at(k, now + CHECK_RETRY_MAX);
	}
}

/* --- all of it --- */

static void warn_of_cap(struct runner *k)
{
	struct sandbox *b = k->sandbox;

	k->cap_told = true;
	if (text_set(&b->warning, CAPPED_TEXT) < 0)
		log_debug("sandbox_warning", "sandbox=%s error=nomem", b->id);
	sandbox_save(runner_core(k), b, false);
	event_say(runner_core(k), b, EVENT_UPDATED, "cap=reached\nrule=on_cap\n");
}

static void tell_expiring(struct runner *k, unsigned left_ms)
{
	char at[40];

	str_rfc3339(k->sandbox->end_at_ms * 1000, 3, at);
	k->told_soon = true;
	k->told_very_soon = left_ms == EVALUATE_VERY_SOON_MS;
	event_say(runner_core(k), k->sandbox, EVENT_EXPIRING, "seconds_left=%u\nend_at=%s\n",
		  left_ms / 1000, at);
}

/* True: done at once, in a way that changes the input, so that the sandbox is evaluated again. */
static bool act(struct runner *k, const struct evaluate_input *d, const struct evaluation *due)
{
	switch (due->act) {
	case EVALUATE_TELL_SOON:
		tell_expiring(k, EVALUATE_SOON_MS);
		return true;
	case EVALUATE_TELL_VERY_SOON:
		tell_expiring(k, EVALUATE_VERY_SOON_MS);
		return true;
	case EVALUATE_LEAVE:
		forget_moment(k->sandbox, due->rule);
		sandbox_save(runner_core(k), k->sandbox, false);
		return true;
	case EVALUATE_WARN:
		warn_of_cap(k);
		return true;
	case EVALUATE_EXTEND:
		extend(k, d);
		return false;
	case EVALUATE_PAUSE:
	case EVALUATE_KILL:
		runner_check(k, due);
		return false;
	case EVALUATE_NOTHING:
		break;
	}
	if (due->again_at_ms != EVALUATE_NEVER)
		look_again_at(k, (uint64_t)MAX(due->again_at_ms, (int64_t)clock_boot_ms() + 1));
	return false;
}

/* Does it keep its turn for an extension, or its place in the line? */
static bool needs_turn(const struct runner *k, const struct evaluate_input *d, const struct evaluation *due)
{
	return due->act == EVALUATE_EXTEND ||
	       (due->act == EVALUATE_NOTHING && k->is_limited && evaluate_is_kept(d));
}

static void runner_look(struct runner *k)
{
	struct evaluate_input d;
	struct evaluation due;

	if (k->step != RUNNER_IDLE || k->holds || k->sandbox->killing) {
		if (k->step != RUNNER_REFRESH)
			extend_turn_end(&k->turn);
		return;
	}
	if (sets_end(k))
		return;
	do {
		look_at(k, &d);
		evaluate(&d, (int64_t)clock_boot_ms(), &due);
	} while (act(k, &d, &due));
	if (!needs_turn(k, &d, &due))
		extend_turn_end(&k->turn);
}
