/* SPDX-License-Identifier: MIT */
/*
 * Policy of a sandbox: what the daemon does before the cloud does it. [pure]
 * The text form is compact (< 200 bytes): it is stored, and travels in the tag agentbox.policy.
 */
#ifndef AB_DAEMON_LIFE_POLICY_H
#define AB_DAEMON_LIFE_POLICY_H

#include <stdbool.h>

#include "proto/base/cc.h"

enum policy_action {	/* numbers of agentbox.v1.Policy.Action */
	POLICY_ACTION_UNSET = 0,
	POLICY_LEAVE = 1,
	POLICY_PAUSE = 2,
	POLICY_KILL = 3,
	POLICY_WARN = 4,
};

enum policy_on_gone {	/* numbers of agentbox.v1.Policy.OnGone */
	POLICY_ON_GONE_UNSET = 0,
	POLICY_FAIL = 1,
	POLICY_RECREATE = 2,
};

struct policy {		/* always the effective one: nothing is unset but the two spans */
	bool keep_alive;
	enum policy_action on_release;
	uint64_t release_grace_ms;
	uint64_t idle_timeout_ms;	/* 0 = none */
	enum policy_action on_idle;
	uint64_t max_age_ms;		/* 0 = none */
	enum policy_action on_max_age;
	enum policy_action on_cap;
	enum policy_on_gone on_gone;
	bool resume_on_use;
};

#define POLICY_TEXT_MAX 200u

void policy_default(struct policy *ret);
/* An action where it is not allowed is a bad one. */
bool policy_is_valid(const struct policy *p);
void policy_format(const struct policy *p, char ret[POLICY_TEXT_MAX]);
/* Unknown keys are ignored, missing ones keep their default; -EINVAL on a value that cannot be. */
must_check int policy_parse(const char *s, struct policy *ret);

#endif
