/* SPDX-License-Identifier: MIT */
/*
 * Reconcile: what a complete list of the cloud means for our rows. [pure]
 * A list proves no end (sandboxes that are being snapshotted or killed are in none): the cloud is asked
 * by id about what it lacks. Only sandboxes with this host's tag are adopted.
 */
#ifndef AB_DAEMON_SANDBOX_RULES_PLAN_H
#define AB_DAEMON_SANDBOX_RULES_PLAN_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct plan_row {
	bool gone;		/* its state is GONE */
	bool killed;		/* its gone_reason is SANDBOX_KILLED */
	bool busy;		/* an operation on it is under way: the list says nothing about it */
	uint64_t fresh_at_ms;	/* BOOTTIME when the cloud last said something about it; 0 = not since the start */
};

enum plan_kind {
	PLAN_NOTHING,	/* the list says nothing about it, or it is not ours */
	PLAN_UPDATE,	/* the row takes over what the list says */
	PLAN_REVIVE,	/* the same, where the row says gone */
	PLAN_ADOPT,	/* it has our tag and no row */
};

#define PLAN_SUSPICIOUS_MIN 3u	/* suspicious: so many are missing, … */
#define PLAN_SUSPICIOUS_PCT 30u /* … and this share of those that should be listed */

/* Of a sandbox that is listed; row NULL = it has none. began_at_ms, here and below: BOOTTIME when the list was asked for, which
 * says nothing about rows that are fresher. */
enum plan_kind plan_listed(const struct plan_row *row, bool is_tagged, uint64_t began_at_ms);
/* Should a list have the sandbox of this row? If it does not, a GET by id decides. */
bool plan_expects(const struct plan_row *row, uint64_t began_at_ms);
/* Are so many missing that the list may be wrong? */
bool plan_is_suspicious(size_t expected, size_t missing);

#endif
