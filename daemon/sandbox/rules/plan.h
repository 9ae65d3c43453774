/* SPDX-License-Identifier: MIT */
/*
 * Reconcile: our rows against a complete list of the cloud. [pure]
 * Absence from a list is never proof of an end (sandboxes that are snapshotting or being killed are
 * in none): it only earns a question by id. Only what carries this host's tag is adopted.
 */
#ifndef AB_DAEMON_SANDBOX_RULES_PLAN_H
#define AB_DAEMON_SANDBOX_RULES_PLAN_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct cloud_list;

struct plan_row {
	const char *id;
	bool gone;		/* we hold it for gone */
	bool killed;		/* … because its owner killed it */
	bool busy;		/* an operation on it is under way: leave it alone */
	uint64_t fresh_at_ms;	/* BOOTTIME of the last word about it; 0 = none since the start */
};

enum plan_kind {
	PLAN_UPDATE,	/* row, item: take over what the list says */
	PLAN_ASK,	/* row: missing; GET by id decides */
	PLAN_ADOPT,	/* item: ours by tag and not known */
	PLAN_REVIVE,	/* row, item: held for gone, and there it is again */
};

struct plan_action {
	enum plan_kind kind;
	size_t row, item;
};

struct plan {
	struct plan_action *v;	/* adopts come oldest first: the oldest gets the name */
	size_t n;
	bool suspicious;	/* mass loss: ask one after the other, and say so */
	uint64_t max_seq;	/* highest agentbox.seq of ours */
};

#define PLAN_SUSPICIOUS_MIN 3u	/* so many missing at once … */
#define PLAN_SUSPICIOUS_PCT 30u /* … and this share of what should be there */

void plan_fini(struct plan *p);
/* began_at_ms: when the list was started; younger words are not contradicted by it. */
must_check int plan_make(const struct plan_row *rows, size_t n_rows, const struct cloud_list *list,
			 const char *host, uint64_t began_at_ms, struct plan *ret);

#endif
