/* SPDX-License-Identifier: MIT */
/*
 * The policy of a sandbox: what the daemon does when it is released, idle, too old, capped or gone. [pure]
 * The text form is compact (< 200 bytes): it is stored, and is in the tag agentbox.policy.
 */
#ifndef AB_DAEMON_SANDBOX_RULES_POLICY_H
#define AB_DAEMON_SANDBOX_RULES_POLICY_H

#include <stdbool.h>

#include "proto/base/cc.h"
#include "proto/base/status.h"

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

struct policy {		/* the effective one: no member is unset, only two spans may be 0 = none */
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

enum policy_field {	/* in the order of agentbox.v1.Policy */
	POLICY_F_KEEP_ALIVE,
	POLICY_F_ON_RELEASE,
	POLICY_F_RELEASE_GRACE,
	POLICY_F_IDLE_TIMEOUT,
	POLICY_F_ON_IDLE,
	POLICY_F_MAX_AGE,
	POLICY_F_ON_MAX_AGE,
	POLICY_F_ON_CAP,
	POLICY_F_ON_GONE,
	POLICY_F_RESUME_ON_USE,
	POLICY_FIELDS,
};

struct policy_change {		/* some fields of a policy */
	uint32_t set;		/* BIT(enum policy_field) */
	struct policy to;	/* only the members of `set` count */
};

#define POLICY_TEXT_MAX 200u

/* The name in the API and in the configuration. */
const char *policy_field_name(enum policy_field f);
/* By its name; POLICY_FIELDS = none. */
enum policy_field policy_field_find(const char *name);
/* A value as the configuration writes it: "yes", "kill", "30s". -EINVAL. */
must_check int policy_change_text(struct policy_change *c, enum policy_field f, const char *value);
/* The fields that are set, with a comma between them, as a user writes them: "on_idle=kill,idle_timeout=600s". */
#define POLICY_WORDS_MAX 320u
void policy_change_words(const struct policy_change *c, char ret[POLICY_WORDS_MAX]);
/* Are the new values allowed? Else FIELD_INVALID. */
must_check bool policy_check(const struct policy_change *c, struct status *st);
void policy_merge(struct policy *p, const struct policy_change *c);
/* The fields of the mask go back to `base`. */
void policy_reset(struct policy *p, const struct policy *base, uint32_t mask);
bool policy_equal(const struct policy *a, const struct policy *b);

void policy_default(struct policy *ret);
/* Is every value allowed for its field? */
bool policy_is_valid(const struct policy *p);
void policy_format(const struct policy *p, char ret[POLICY_TEXT_MAX]);
/* The text of policy_format(). Unknown keys are ignored, missing ones get their default; -EINVAL for a bad value. */
must_check int policy_parse(const char *s, struct policy *ret);
/* The same for many texts in a row, of which most are like the one before. Begin with zeros. */
struct policy_memo {
	char text[POLICY_TEXT_MAX];	/* the last one that was taken; "" = none was */
	struct policy policy;
};
must_check int policy_parse_next(struct policy_memo *m, const char *s, struct policy *ret);

#endif
