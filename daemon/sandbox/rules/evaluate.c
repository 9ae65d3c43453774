/* SPDX-License-Identifier: MIT */
#include "daemon/sandbox/rules/evaluate.h"

#include "daemon/sandbox/rules/rules.h"

#define RETRY_BASE_MS 500u
#define RETRY_MAX_MS  5000u
#define PATIENCE_MIN  2000
#define PATIENCE_MAX  15000

static const char *const rule_names[] = {
	[EVALUATE_BY_NONE] = "",
	[EVALUATE_BY_RELEASE] = "on_release",
	[EVALUATE_BY_IDLE] = "idle_timeout",
	[EVALUATE_BY_MAX_AGE] = "max_age",
	[EVALUATE_BY_CAP] = "on_cap",
	[EVALUATE_BY_UNCLAIMED] = "unclaimed_grace",
};

const char *evaluate_rule_name(enum evaluate_rule r)
{
	return rule_names[r];
}

static bool is_in_use(const struct evaluate_input *b)
{
	return b->leases || b->commands;
}

/* It was released, and is to be paused after release_grace: it must live that long. */
static bool waits_for_pause(const struct evaluate_input *b)
{
	return b->ours && b->released_at_ms && b->policy->on_release == POLICY_PAUSE;
}

bool evaluate_is_kept(const struct evaluate_input *b)
{
	return b->state == SANDBOX_RUNNING && b->policy->keep_alive && b->end_at_ms && !b->capped &&
	       (is_in_use(b) || waits_for_pause(b));
}

uint32_t evaluate_extend_s(const struct evaluate_input *b)
{
	uint32_t s = b->timeout_s;

	if (!s)
		s = RULES_TIMEOUT_DEFAULT_MS / 1000;
	return MIN(MAX(MAX(s, b->span_s), EVALUATE_REFRESH_MIN_S), EVALUATE_REFRESH_MAX_S);
}

/* Its life is so short that the extensions of many would be due together: the first one goes at once. */
static bool is_too_short(const struct evaluate_input *b)
{
	return MAX(b->end_at_ms - b->learnt_at_ms, (int64_t)0) < (int64_t)b->span_s * 1000 / 2;
}

/* When half of the life that remained when the end was learnt, or of one extension's length if that is less, is left
 * (a refresh before would bring nothing); up to a fifth of that half earlier, so that many are not due together. */
int64_t evaluate_extend_at_ms(const struct evaluate_input *b)
{
	int64_t whole, half;

	if (!evaluate_is_kept(b))
		return EVALUATE_NEVER;
	whole = MIN(b->end_at_ms - b->learnt_at_ms, (int64_t)evaluate_extend_s(b) * 1000);
	half = MAX(whole, 0) / 2;
	half += half / 5 ? (int64_t)(b->rnd % (uint64_t)(half / 5)) : 0;
	if (is_too_short(b))
		return MAX(MIN(b->learnt_at_ms, b->end_at_ms - half), b->retry_at_ms);
	return MAX(b->end_at_ms - half, b->retry_at_ms);
}

bool evaluate_extended_fully(int64_t asked_at_ms, uint32_t asked_s, int64_t end_at_ms)
{
	return end_at_ms + EVALUATE_CAP_SLACK_MS >= asked_at_ms + (int64_t)asked_s * 1000;
}

int64_t evaluate_retry_at_ms(unsigned failures, int64_t end_at_ms, int64_t now_ms, uint64_t rnd)
{
	int64_t wait = (int64_t)rules_backoff_ms(failures ? failures - 1 : 0, RETRY_BASE_MS, RETRY_MAX_MS, rnd);
	int64_t left = end_at_ms - now_ms;

	/* More often near the end, but not in a tight loop. */
	if (left > 0)
		wait = MIN(wait, MAX(left / 4, (int64_t)RETRY_BASE_MS / 2));
	return now_ms + wait;
}

uint64_t evaluate_extend_patience_ms(int64_t end_at_ms, int64_t now_ms)
{
	int64_t third = (end_at_ms - now_ms) / 3;

	return (uint64_t)MIN(MAX(third, (int64_t)PATIENCE_MIN), (int64_t)PATIENCE_MAX);
}

/* --- the decision --- */

/* The time for which the rules are asked, and the decision. The first rule that is due decides, so their order matters. */
struct clock {
	int64_t now_ms;
	struct evaluation *d;
};

static enum evaluate_action act_of(enum policy_action a)
{
	switch (a) {
	case POLICY_PAUSE:
		return EVALUATE_PAUSE;
	case POLICY_KILL:
		return EVALUATE_KILL;
	case POLICY_WARN:
		return EVALUATE_WARN;
	default:
		return EVALUATE_LEAVE;
	}
}

/* Is the rule due at at_ms? True: *d is the decision. False: d->again_at_ms is at_ms at the latest. */
static bool at(struct clock *c, int64_t at_ms, enum evaluate_action act, enum evaluate_rule rule)
{
	if (c->now_ms < at_ms) {
		c->d->again_at_ms = MIN(c->d->again_at_ms, at_ms);
		return false;
	}
	c->d->act = act;
	c->d->rule = rule;
	return true;
}

static bool by_age(const struct evaluate_input *b, struct clock *c)
{
	enum evaluate_action act = act_of(b->policy->on_max_age);

	if (!b->ours || !b->policy->max_age_ms || !b->started_at_ms ||
	    (act == EVALUATE_PAUSE && b->state != SANDBOX_RUNNING))
		return false;
	return at(c, b->started_at_ms + (int64_t)b->policy->max_age_ms, act, EVALUATE_BY_MAX_AGE);
}

static bool by_cap(const struct evaluate_input *b, struct clock *c)
{
	enum evaluate_action act = act_of(b->policy->on_cap);
	int64_t lead = MIN((int64_t)EVALUATE_CAP_LEAD_MS, (int64_t)evaluate_extend_s(b) * 1000 / 4);

	if (b->state != SANDBOX_RUNNING || !b->capped || !b->end_at_ms || !is_in_use(b))
		return false;
	if (act == EVALUATE_WARN || !b->ours)
		return !b->cap_told && at(c, 0, EVALUATE_WARN, EVALUATE_BY_CAP);
	return at(c, b->end_at_ms - lead, act, EVALUATE_BY_CAP);
}

/* The action, except that a pause of a sandbox that is paused already is LEAVE. */
static enum evaluate_action end_act(const struct evaluate_input *b, enum policy_action a)
{
	enum evaluate_action act = act_of(a);

	return act == EVALUATE_PAUSE && b->state != SANDBOX_RUNNING ? EVALUATE_LEAVE : act;
}

static bool by_claim(const struct evaluate_input *b, struct clock *c)
{
	if (!b->unclaimed_at_ms)
		return false;
	return at(c, MAX(b->unclaimed_at_ms + (int64_t)b->unclaimed_grace_ms, b->quiet_until_ms),
		  end_act(b, b->policy->on_release), EVALUATE_BY_UNCLAIMED);
}

static bool by_release(const struct evaluate_input *b, struct clock *c)
{
	int64_t since = b->released_at_ms;

	if (!since)
		return false;
	/* A command of ours that ran on after the last lease counts as use. */
	if (b->command_ended_at_ms)
		since = MAX(since, b->command_ended_at_ms);
	return at(c, since + (int64_t)b->policy->release_grace_ms, end_act(b, b->policy->on_release),
		  EVALUATE_BY_RELEASE);
}

static bool by_idle(const struct evaluate_input *b, struct clock *c)
{
	enum evaluate_action act = act_of(b->policy->on_idle);

	if (!b->policy->idle_timeout_ms || !b->used_at_ms ||
	    (act == EVALUATE_PAUSE && b->state != SANDBOX_RUNNING))
		return false;
	return at(c, MAX(b->used_at_ms + (int64_t)b->policy->idle_timeout_ms, b->quiet_until_ms), act,
		  EVALUATE_BY_IDLE);
}

static bool is_unused(const struct evaluate_input *b)
{
	return b->ours && !is_in_use(b);
}

/* Warns of an end that will come: not while extensions work. A warning that was due before the end was learnt is left out. */
static bool by_expiry(const struct evaluate_input *b, struct clock *c)
{
	int64_t soon = b->end_at_ms - EVALUATE_SOON_MS, very = b->end_at_ms - EVALUATE_VERY_SOON_MS;

	if (b->state != SANDBOX_RUNNING || !b->end_at_ms || (evaluate_is_kept(b) && !b->degraded))
		return false;
	if (!b->told_very_soon && b->learnt_at_ms <= very &&
	    at(c, very, EVALUATE_TELL_VERY_SOON, EVALUATE_BY_NONE))
		return true;
	return !b->told_soon && b->learnt_at_ms <= soon && c->now_ms < very &&
	       at(c, soon, EVALUATE_TELL_SOON, EVALUATE_BY_NONE);
}

void evaluate(const struct evaluate_input *b, int64_t now_ms, struct evaluation *ret)
{
	struct clock c = { now_ms, ret };
	int64_t extend;

	*ret = (struct evaluation){ .act = EVALUATE_NOTHING, .again_at_ms = EVALUATE_NEVER };
	if (b->state != SANDBOX_RUNNING && b->state != SANDBOX_PAUSED)
		return;
	if (by_age(b, &c) || by_cap(b, &c))
		return;
	if (is_unused(b) && (by_claim(b, &c) || by_release(b, &c) || by_idle(b, &c)))
		return;
	extend = evaluate_extend_at_ms(b);
	if (extend != EVALUATE_NEVER && at(&c, extend, EVALUATE_EXTEND, EVALUATE_BY_NONE))
		return;
	(void)by_expiry(b, &c);
}

/* --- budget --- */

uint64_t budget_take(struct budget *b, bool sweep, uint32_t known, uint64_t now_ms)
{
	uint32_t cap = MAX(BUDGET_SWEEP_MIN, known / (100 / BUDGET_SWEEP_PCT));
	uint64_t full = BUDGET_BURST * 1000u;

	if (!b->begun) {
		*b = (struct budget){ .begun = true, .filled_at_ms = now_ms, .tokens = full,
				      .window_at_ms = now_ms };
	}
	b->tokens = MIN(full, b->tokens + MIN(now_ms - b->filled_at_ms, (uint64_t)60000) * BUDGET_PER_SECOND);
	b->filled_at_ms = now_ms;
	if (now_ms >= b->window_at_ms + 60000) {
		b->window_at_ms = now_ms;
		b->window_used = 0;
	}
	if (sweep && b->window_used >= cap)
		return b->window_at_ms + 60000 - now_ms;
	if (b->tokens < 1000)
		return (1000 - b->tokens + BUDGET_PER_SECOND - 1) / BUDGET_PER_SECOND;
	b->tokens -= 1000;
	b->window_used += sweep;
	return 0;
}
