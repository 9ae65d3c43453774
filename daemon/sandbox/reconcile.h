/* SPDX-License-Identifier: MIT */
/*
 * A complete list of an account is taken over, in slices of the loop's last stage, so that one with many sandboxes does not hold
 * the loop: what is listed first, then what the list lacks, then what has our tag and no row. Rows that come, change or go
 * between two slices are looked at as they are then.
 */
#ifndef AB_DAEMON_SANDBOX_RECONCILE_H
#define AB_DAEMON_SANDBOX_RECONCILE_H

#include "daemon/common/ev/loop.h"
#include "daemon/sandbox/rules/page.h"
#include "proto/base/tree.h"

struct account;
struct cloud_list;
struct sandbox;

enum reconcile_step {
	RECONCILE_OVER = 0,
	RECONCILE_LISTED,
	RECONCILE_MISSING,
	RECONCILE_UNKNOWN,
};

struct reconcile {
	struct account *account;
	struct defer later;
	enum reconcile_step step;
	const struct cloud_list *list;
	uint64_t began_at_ms;		/* BOOTTIME when the list was asked for */
	uint32_t number;		/* of this list: sandbox.listed_in of what it has */
	size_t item;			/* the next one of the list */
	struct page_place place;	/* of the row that was looked at last for what is missing, if has_place */
	bool has_place;
	struct tree unknown;		/* struct unknown: what is to be adopted, oldest first */
	size_t n_expected, n_missing;
	uint64_t max_seq;		/* the highest TAG_SEQ on the list with our host's tag */
	/* The list lacks a sandbox that it should have. */
	void (*lacks)(struct sandbox *b);
	/* All was taken over; may begin the next one. */
	void (*done)(struct reconcile *x);
};

void reconcile_init(struct reconcile *x, struct account *a, void (*lacks)(struct sandbox *b), void (*done)(struct reconcile *x));
/* The list must stay until `done`, or reconcile_end(). */
void reconcile_begin(struct reconcile *x, const struct cloud_list *list, uint64_t began_at_ms);
void reconcile_end(struct reconcile *x);	/* `done` does not come */

static inline bool reconcile_is_on(const struct reconcile *x)
{
	return x->step != RECONCILE_OVER;
}

#endif
