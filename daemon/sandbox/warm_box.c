/* SPDX-License-Identifier: MIT */
/*
 * A warm sandbox from its creation until it is claimed: when its agent answers prepare is run, then the agent is asked for its health
 * every few seconds. A sandbox that does not answer, is too old, or no longer fits its entry is ended, and another is made.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/common/obs/failpoint.h"
#include "daemon/common/obs/log.h"
#include "daemon/sandbox/event.h"
#include "daemon/sandbox/rules/rules.h"
#include "daemon/sandbox/runner.h"
#include "daemon/sandbox/warm.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define ASK_AGAIN_MS  50u
#define ASK_AGAIN_MAX 1000u
#define PREPARE_SLACK_MS 5000u

static void box_step(struct warm_box *x);

static void on_box_timer(struct timer *t, void *user)
{
	box_step(user);
}

static void again_after(struct warm_box *x, uint64_t ms)
{
	if (timer_set(&x->timer, clock_boot_ms() + ms) < 0)
		warm_box_end(x, "warm_no_memory");
}

/* --- its place in the entry --- */

int warm_box_new(struct warm_entry *e, struct sandbox *b, struct warm_box **ret)
{
	struct warm_box *x = calloc(1, sizeof(*x));

	if (!x)
		return -ENOMEM;
	x->entry = e;
	x->sandbox = b;
	x->began_ms = clock_boot_ms();
	x->deadline_ms = x->began_ms + e->conf.ready_timeout_ms;
	timer_init(&x->timer, e->core->loop, on_box_timer, x);
	list_add_tail(&e->boxes, &x->node);
	b->box = x;
	runner_poke(b);		/* extensions keep it alive from now on */
	*ret = x;
	return 0;
}

void warm_box_leave(struct sandbox *b)
{
	struct warm_box *x = give(b->box);
	struct sandbox_core *core = b->account->core;

	if (!x)
		return;
	list_del(&x->node);
	timer_clear(&x->timer);
	if (x->probe)
		core->prober.cancel(x->probe, core->prober.user);
	if (x->prepare)
		core->preparer.cancel(x->prepare);
	runner_note(b);
	warm_poke(x->entry);
	loop_bury(core->loop, &x->grave, free, x);
}

void warm_box_end(struct warm_box *x, const char *why)
{
	struct sandbox *b = x->sandbox;

	warm_box_leave(b);
	if (!sandbox_is_live(b) || b->killing)
		return;
	if (kill_by_policy(b->account->core, b, why) < 0) {
		log_warn("warm_end", "sandbox=%s error=nomem at=its_end", b->id);
		warm_quarantine(b);
		return;
	}
	b->warm_ends = true;
	b->account->n_warm_ending++;
}

int64_t warm_age_ms(const struct sandbox *b)
{
	int64_t now = account_cloud_now(b->account), since = b->warm_at_ms;

	/* The moment was written before the cloud's clock was known. */
	if (b->started_at_ms && (since > now || since < b->started_at_ms))
		since = b->started_at_ms;
	return MAX(now - since, (int64_t)0);
}

static bool is_too_old(const struct warm_box *x)
{
	return x->step == WARM_STEP_READY && warm_age_ms(x->sandbox) >= (int64_t)x->entry->conf.max_age_ms;
}

/* A reload, or a loop that stood still, may have made it too old since it was last looked at. */
bool warm_box_is_ready(const struct warm_box *x)
{
	return x->step == WARM_STEP_READY && !x->misses && !is_too_old(x) && x->sandbox->ours && x->sandbox->state == SANDBOX_RUNNING;
}

bool warm_is_kept(const struct sandbox *b)
{
	return b->box != NULL;
}

void warm_gone(struct sandbox *b)
{
	struct warm_box *x = b->box;
	struct warm_entry *e = x ? x->entry : NULL;
	bool is_young = e && warm_age_ms(b) < WARM_YOUNG_MS;
	bool was_ready = x && x->step == WARM_STEP_READY;
	struct status st;

	if (b->warm_ends)
		b->account->n_warm_ending--;
	b->warm_ends = false;
	warm_claims_gone(b);
	if (!x)
		return;
	warm_box_leave(b);
	status_set(&st, R_SANDBOX_GONE, "sandbox %s ended %s", b->id, was_ready ? "soon after it was ready" : "before it was ready");
	if (!was_ready || is_young)
		warm_failed(e, b, &st);
}

/* --- until it is ready --- */

static void not_ready(struct warm_box *x, const struct status *st)
{
	struct warm_entry *e = x->entry;
	struct sandbox *b = x->sandbox;

	warm_box_end(x, "warm_not_ready");
	warm_failed(e, b, st);
}

static void ready(struct warm_box *x)
{
	struct sandbox *b = x->sandbox;
	struct warm_entry *e = x->entry;
	uint64_t took = clock_boot_ms() - x->began_ms;
	struct store_tx *t;

	if (store_tx_new(e->core->store, &t) < 0) {
		warm_box_end(x, "warm_no_memory");
		return;
	}
	x->step = WARM_STEP_READY;
	x->tries = 0;
	b->warm_state = WARM_READY;
	b->warm_at_ms = account_cloud_now(b->account);
	e->prepare_ms = MAX(took, (uint64_t)1);
	sandbox_put(t, b);
	event_put(e->core, t, b, EVENT_WARM_READY, "warm=%s\ntook_ms=%llu\n", e->conf.name, (unsigned long long)took);
	core_commit(e->core, t, true);
	log_info("warm_ready", "entry=%s sandbox=%s took_ms=%llu", e->conf.name, b->id, (unsigned long long)took);
	warm_succeeded(e);
	again_after(x, WARM_HEALTH_MS);
	FAILPOINT("warm.ready");
	warm_serve(e);
	warm_poke(e);
}

static void keep_output(struct warm_entry *e, const char *output)
{
	if (str_eq(e->output, output))
		return;
	if (text_set(&e->output, output) < 0)
		e->output[0] = 0;
	warm_save(e);
}

static void on_prepared(void *user, bool ok, const struct status *st, const char *output)
{
	struct warm_box *x = user;
	struct status failed;

	x->prepare = NULL;
	keep_output(x->entry, output);
	FAILPOINT("warm.prepared");
	if (ok) {
		ready(x);
		return;
	}
	status_set(&failed, R_SANDBOX_NOT_READY, "prepare: %s", st->text);
	not_ready(x, &failed);
}

static void prepare(struct warm_box *x)
{
	struct sandbox_core *core = x->entry->core;
	struct sandbox_target target;
	struct status st, why;

	if (!x->entry->conf.prepare) {
		ready(x);
		return;
	}
	x->step = WARM_STEP_PREPARES;
	sandbox_target_of(x->sandbox, &target);
	status_set(&why, R_SANDBOX_NOT_READY, "there is nothing to run it with");
	if (core->preparer.start)
		x->prepare = core->preparer.start(&target, &x->entry->conf, x->deadline_ms, on_prepared, x, &why);
	FAILPOINT("warm.preparing");
	if (x->prepare) {
		again_after(x, PREPARE_SLACK_MS + (x->deadline_ms > clock_boot_ms() ? x->deadline_ms - clock_boot_ms() : 0));
		return;
	}
	status_set(&st, R_SANDBOX_NOT_READY, "prepare was not started: %s", why.text);
	not_ready(x, &st);
}

static void agent_is_silent(struct warm_box *x, const struct status *why)
{
	uint64_t now = clock_boot_ms();
	struct status st;

	if (now < x->deadline_ms) {
		again_after(x, MIN(rules_backoff_ms(x->tries++, ASK_AGAIN_MS, ASK_AGAIN_MAX, rng_u64(&x->entry->core->rng)),
				   x->deadline_ms - now));
		return;
	}
	status_set(&st, R_SANDBOX_NOT_READY, "the agent of sandbox %s did not answer within ready_timeout%s%s", x->sandbox->id,
		   why && why->text[0] ? ": " : "", why ? why->text : "");
	not_ready(x, &st);
}

/* --- as long as it waits --- */

static void on_missed(struct warm_box *x)
{
	x->misses++;
	log_info("warm_silent", "entry=%s sandbox=%s misses=%u", x->entry->conf.name, x->sandbox->id, x->misses);
	if (x->misses >= WARM_HEALTH_MISSES)
		warm_box_end(x, "warm_silent");
	else
		again_after(x, WARM_HEALTH_MS);
}

static void on_health(void *user, enum sandbox_probe_result result, const struct status *why)
{
	struct warm_box *x = user;
	bool was_silent = x->misses > 0;

	x->probe = NULL;
	if (x->step == WARM_STEP_ASKS && result == SANDBOX_PROBE_HEALTHY) {
		prepare(x);
	} else if (x->step == WARM_STEP_ASKS) {
		agent_is_silent(x, why);
	} else if (result != SANDBOX_PROBE_HEALTHY) {
		on_missed(x);
	} else {
		x->misses = 0;
		again_after(x, WARM_HEALTH_MS);
		if (was_silent)
			warm_serve(x->entry);
	}
}

/* The agent did not end the command at its deadline. */
static void prepare_is_late(struct warm_box *x)
{
	struct status st;

	x->entry->core->preparer.cancel(give(x->prepare));
	status_set(&st, R_SANDBOX_NOT_READY, "prepare did not end within ready_timeout");
	not_ready(x, &st);
}

static void box_step(struct warm_box *x)
{
	struct sandbox_core *core = x->entry->core;
	uint64_t now = clock_boot_ms(), until = now + WARM_HEALTH_MS;
	struct sandbox_target target;

	if (x->step == WARM_STEP_PREPARES) {
		prepare_is_late(x);
		return;
	}
	if (x->probe)
		return;
	if (is_too_old(x)) {
		warm_box_end(x, "warm_max_age");
		return;
	}
	if (x->step == WARM_STEP_ASKS)
		until = MIN(until, MAX(x->deadline_ms, now + 1));
	sandbox_target_of(x->sandbox, &target);
	x->probe = core->prober.start(&target, until, on_health, x, core->prober.user);
	if (!x->probe)
		again_after(x, ASK_AGAIN_MAX);
}

void warm_box_begin(struct warm_box *x)
{
	again_after(x, 0);
}

/* It counts as having missed one question, so that nobody gets it before its agent has answered. */
void warm_box_adopt(struct warm_box *x)
{
	x->step = WARM_STEP_READY;
	x->misses = 1;
	again_after(x, 0);
}
