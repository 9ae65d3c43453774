/* SPDX-License-Identifier: MIT */
/*
 * What is to be done with one sandbox now, by its policy, and when it is to be evaluated again. [pure]
 * Times are BOOTTIME ms as int64 (a sandbox may be older than the boot); 0 = unknown or never.
 * A sandbox in use (leased, or with a running command of ours) is never paused or killed but by its
 * maximum age and the cloud's cap.
 */
#ifndef AB_DAEMON_SANDBOX_RULES_EVALUATE_H
#define AB_DAEMON_SANDBOX_RULES_EVALUATE_H

#include <stdbool.h>

#include "daemon/sandbox/rules/types.h"
#include "daemon/sandbox/rules/policy.h"
#include "daemon/sandbox/rules/spans.h"
#include "proto/base/cc.h"

#define EVALUATE_REFRESH_MAX_S  SPANS_MAX_S
#define EVALUATE_REFRESH_MIN_S  15u		/* the cloud raises a shorter extension to this */
#define EVALUATE_CAP_LEAD_MS	   10000	/* how long before a capped end on_cap is done, at most */
#define EVALUATE_CAP_SLACK_MS   5000		/* an end so much short of what was asked for is capped */
#define EVALUATE_SOON_MS	   60000	/* the two warnings before an end */
#define EVALUATE_VERY_SOON_MS   10000
#define EVALUATE_NEVER	   INT64_MAX

enum evaluate_action {
	EVALUATE_NOTHING,
	EVALUATE_EXTEND,
	EVALUATE_TELL_SOON,		/* event EXPIRING, 60 s before the end */
	EVALUATE_TELL_VERY_SOON,	/* event EXPIRING, 10 s before the end */
	EVALUATE_LEAVE,		/* a rule is due whose action is to do nothing: the moment that it counts from is to be forgotten */
	EVALUATE_WARN,		/* on_cap */
	EVALUATE_PAUSE,
	EVALUATE_KILL,
};

enum evaluate_rule {
	EVALUATE_BY_NONE,
	EVALUATE_BY_RELEASE,
	EVALUATE_BY_IDLE,
	EVALUATE_BY_MAX_AGE,
	EVALUATE_BY_CAP,
	EVALUATE_BY_UNCLAIMED,
};

struct evaluate_input {
	enum sandbox_state state;
	bool ours;		/* policies may end it */
	const struct policy *policy;
	uint32_t leases, commands;
	uint32_t timeout_s;	/* what its user asked for; 0 = unknown */
	uint32_t span_s;	/* what the account's extensions have to bring, see spans.h */
	int64_t started_at_ms, end_at_ms;
	int64_t learnt_at_ms;	/* when this end was learnt */
	int64_t released_at_ms;	/* last lease ended */
	int64_t used_at_ms;	/* last use */
	int64_t command_ended_at_ms;	/* end of the last command of ours */
	int64_t unclaimed_at_ms;	/* since when it waits to be claimed */
	uint64_t unclaimed_grace_ms;
	int64_t quiet_until_ms;	/* no end by idle_timeout or unclaimed_grace before it: clients come back after a start */
	int64_t retry_at_ms;	/* no extension before it: the last one failed */
	bool degraded;		/* extensions fail, so that its end may come */
	bool capped, cap_told;	/* the cloud extends it no further; the user was warned of that */
	bool told_soon, told_very_soon;	/* warnings of this end that were given */
	uint64_t rnd;		/* jitter, drawn for this end */
};

struct evaluation {
	enum evaluate_action act;
	enum evaluate_rule rule;
	int64_t again_at_ms;	/* EVALUATE_NEVER = only when something changes */
};

void evaluate(const struct evaluate_input *b, int64_t now_ms, struct evaluation *ret);
/* Do extensions keep it alive? */
bool evaluate_is_kept(const struct evaluate_input *b);
/* When this end is to be extended; EVALUATE_NEVER: not at all. */
int64_t evaluate_extend_at_ms(const struct evaluate_input *b);
uint32_t evaluate_extend_s(const struct evaluate_input *b);
/* Is the end where an extension of asked_s, sent at asked_at_ms, should have put it? False: the cloud gave less. */
bool evaluate_extended_fully(int64_t asked_at_ms, uint32_t asked_s, int64_t end_at_ms);
/* When to try again after `failures` (from 1) failures in a row. */
int64_t evaluate_retry_at_ms(unsigned failures, int64_t end_at_ms, int64_t now_ms, uint64_t rnd);
/* How long one request of an extension may take. */
uint64_t evaluate_extend_patience_ms(int64_t end_at_ms, int64_t now_ms);
const char *evaluate_rule_name(enum evaluate_rule r);

/* --- how many may be ended in the background --- */

#define BUDGET_BURST	  20u
#define BUDGET_PER_SECOND 20u
#define BUDGET_SWEEP_MIN  5u	/* of unclaimed sandboxes: so many a minute, … */
#define BUDGET_SWEEP_PCT  10u	/* … or this share of all sandboxes, if that is more */

struct budget {
	bool begun;
	uint64_t filled_at_ms, tokens;	/* thousandths */
	uint64_t window_at_ms;
	uint32_t window_used;
};

/* 0 = go, counted; else ms to wait. `sweep`: the sandbox was never claimed. */
uint64_t budget_take(struct budget *b, bool sweep, uint32_t known, uint64_t now_ms);

#endif
