/* SPDX-License-Identifier: MIT */
/*
 * What an account can do with the extensions that the cloud allows it: the span that each has to ask for, and whether
 * one more sandbox can be kept alive. [pure]
 * A sandbox is extended when at most 6/10 of its span are left, so that each needs an extension every 2/5 of
 * the span; half of the budget is left for repeats and because extensions are not evenly spread.
 */
#ifndef AB_DAEMON_SANDBOX_RULES_SPANS_H
#define AB_DAEMON_SANDBOX_RULES_SPANS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/tree.h"

#define SPANS_MAX_S		  3600u	/* the longest extension that the cloud takes */
#define SPANS_ASSUMED_PER_S_MILLI 1000u	/* used for spans where the cloud states no budget; refuses nothing */
#define SPANS_PARALLEL_MAX	  16u

struct spans_budget {
	bool is_told;		/* the cloud stated it, by headers or by refusals; else the rest is not used */
	uint32_t per_s_milli;	/* thousandths of extensions a second */
	uint32_t tokens;	/* extensions that may be sent at once now */
};

/* The ends of the sandboxes that are kept alive, by whole seconds from now. */
struct spans_ends {
	uint32_t kept;			/* sum of `at` */
	uint32_t at[SPANS_MAX_S + 1];	/* the last one also has all later ends */
};

/* The same ends by seconds of one clock, updated as each changes, so that spans_ends can be made without a walk over sandboxes. */
#define SPANS_RING 4096u	/* seconds that are counted one by one; more than SPANS_MAX_S */
struct spans_book {
	uint32_t kept;			/* number of ends */
	int64_t from_s;			/* the first second of the ring */
	uint32_t past;			/* ends before the ring */
	uint32_t ring[SPANS_RING];	/* ends in second s: at s % SPANS_RING */
	struct tree far;		/* ends behind the ring */
};
struct spans_end {
	bool is_in;
	int64_t at_s;
	struct tree_node far;
};
/* Adds or moves an end. A negative second counts as 0. */
void spans_book_put(struct spans_book *k, struct spans_end *e, int64_t at_s);
void spans_book_del(struct spans_book *k, struct spans_end *e);
/* The clock was set to now_s. The book must be empty. */
void spans_book_reset(struct spans_book *k, int64_t now_s);
/* *ret must be zeroed. now_s must not be below that of an earlier call. */
void spans_book_look(struct spans_book *k, int64_t now_s, struct spans_ends *ret);

/* The span, in s, at which the budget is enough for `kept` sandboxes; at most SPANS_MAX_S. */
uint32_t spans_wanted_s(uint32_t kept, const struct spans_budget *b);
/* How many sandboxes the budget can keep alive. */
uint32_t spans_most(const struct spans_budget *b);
/* How many extensions may be under way at once. */
uint32_t spans_parallel(const struct spans_budget *b);

void spans_add(struct spans_ends *e, int64_t left_ms);
/* Does the budget have an extension in time for one more sandbox, which ends in left_ms, and for all that end later? */
bool spans_fit(const struct spans_ends *e, int64_t left_ms, const struct spans_budget *b);
/* The shortest life, in s and not below left_ms, with which that sandbox fits; 0 = none. */
uint32_t spans_fitting_s(const struct spans_ends *e, int64_t left_ms, const struct spans_budget *b);

#endif
