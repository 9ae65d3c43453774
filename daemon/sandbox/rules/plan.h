/* SPDX-License-Identifier: MIT */
/*
 * Reconcile: compares our rows with a complete list of the cloud. [pure]
 * A list proves no end (sandboxes that are being snapshotted or killed are in none): the cloud is asked
 * by id about what it lacks. Only sandboxes with this host's tag are adopted.
 */
#ifndef AB_DAEMON_SANDBOX_RULES_PLAN_H
#define AB_DAEMON_SANDBOX_RULES_PLAN_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct cloud_list;

struct plan_row {
	const char *id;
	bool gone;		/* its state is GONE */
	bool killed;		/* its gone_reason is SANDBOX_KILLED */
	bool busy;		/* an operation on it is under way: the list says nothing about it */
	uint64_t fresh_at_ms;	/* BOOTTIME when the cloud last said something about it; 0 = not since the start */
};

enum plan_kind {
	PLAN_UPDATE,	/* row, item: take over what the list says */
	PLAN_ASK,	/* row: missing; GET by id decides */
	PLAN_ADOPT,	/* item: it has our tag and no row */
	PLAN_REVIVE,	/* row, item: the row says gone, and the list has it */
};

struct plan_action {
	enum plan_kind kind;
	size_t row, item;
};

struct plan {
	struct plan_action *v;	/* adopts come oldest first: the oldest gets the name */
	size_t n;
	bool suspicious;	/* so many are missing that the list may be wrong */
	uint64_t max_seq;	/* the highest TAG_SEQ on the list with our host's tag */
};

#define PLAN_SUSPICIOUS_MIN 3u	/* suspicious: so many are missing, … */
#define PLAN_SUSPICIOUS_PCT 30u /* … and this share of those that should be listed */

void plan_fini(struct plan *p);
/* began_at_ms: BOOTTIME when the list was asked for; it says nothing about rows that are fresher. */
must_check int plan_make(const struct plan_row *rows, size_t n_rows, const struct cloud_list *list,
			 const char *host, uint64_t began_at_ms, struct plan *ret);

#endif
