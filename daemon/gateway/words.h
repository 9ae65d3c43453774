/* SPDX-License-Identifier: MIT */
/* What a create says beside the contract: Agentboxd-Policy, -Lease and -Warm, or the same words of its metadata. [pure] */
#ifndef AB_DAEMON_GATEWAY_WORDS_H
#define AB_DAEMON_GATEWAY_WORDS_H

#include <stdbool.h>

#include "daemon/sandbox/rules/types.h"

#define WORDS_LEASE_MAX_MS (30ull * 24 * 3600 * 1000)
#define WORDS_WHY_MAX	   240u

struct words {
	struct policy_change policy;
	uint64_t lease_ms;	/* 0 = none asked for */
	bool no_lease;		/* of no kind: not of a run either */
	enum sandbox_warm_mode warm;
};

struct words_text {		/* NULL = not said */
	const char *policy;	/* "on_release=kill, idle_timeout=10m" */
	const char *lease;	/* "none" or "10m" */
	const char *warm;	/* "prefer", "require" or "never" */
};

/* What a token has for creates that say nothing of it. False: that cannot be read. */
must_check bool words_read_token(const char *policy, struct policy_change *ret);
/* False with the message of a 400. */
must_check bool words_read(const struct words_text *said, struct words *ret, char ret_why[WORDS_WHY_MAX]);

#endif
