/* SPDX-License-Identifier: MIT */
/*
 * How far the extensions that the cloud gives to an account reach: the span to ask for, and whether one
 * more sandbox can be kept alive. [pure]
 * A sandbox is extended when at most 6/10 of its span are left, so that each takes an extension in 2/5 of
 * the span; half of the budget is left to repeats, to failures and to the spread of the moments.
 */
#ifndef AB_DAEMON_SANDBOX_RULES_SPANS_H
#define AB_DAEMON_SANDBOX_RULES_SPANS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/tree.h"

#define SPANS_MAX_S		  3600u	/* the cloud takes no more at once */
#define SPANS_ASSUMED_PER_S_MILLI 1000u	/* where the cloud told nothing: spans follow it, nothing is refused by it */
#define SPANS_PARALLEL_MAX	  16u

struct spans_budget {
	bool is_told;		/* by the cloud: its headers, or its refusals */
	uint32_t per_s_milli;	/* extensions a second, in thousandths */
	uint32_t tokens;	/* that may be asked for at once */
};

/* The ends of the sandboxes that are kept alive, by whole seconds from now. */
struct spans_ends {
	uint32_t kept;
	uint32_t at[SPANS_MAX_S + 1];	/* the last one: that far away, and farther */
};

/* The ends of the sandboxes that are kept alive, by seconds of one clock, kept as they change: nobody walks over them. */
#define SPANS_RING 4096u	/* seconds that are counted one by one; more than SPANS_MAX_S */
struct spans_book {
	uint32_t kept;
	int64_t from_s;			/* the first second of the ring */
	uint32_t past;			/* ends before that */
	uint32_t ring[SPANS_RING];	/* a second is at its remainder */
	struct tree far;		/* ends behind the ring */
};
struct spans_end {
	bool is_in;
	int64_t at_s;
	struct tree_node far;
};
/* A second of -1 or less counts as 0. It may be in already, with another end. */
void spans_book_put(struct spans_book *k, struct spans_end *e, int64_t at_s);
void spans_book_del(struct spans_book *k, struct spans_end *e);
/* The clock was set: it is empty, and goes on from there. What is in was deleted before. */
void spans_book_reset(struct spans_book *k, int64_t now_s);
/* Into an empty one. now_s is not below that of the call before. */
void spans_book_look(struct spans_book *k, int64_t now_s, struct spans_ends *ret);

/* The span at which the budget is enough for so many; at most SPANS_MAX_S. */
uint32_t spans_wanted_s(uint32_t kept, const struct spans_budget *b);
/* So many can be kept alive at all. */
uint32_t spans_most(const struct spans_budget *b);
/* So many extensions are asked for at once; the next in line is the one that ends first. */
uint32_t spans_parallel(const struct spans_budget *b);

void spans_add(struct spans_ends *e, int64_t left_ms);
/* Is there an extension in time for one more, that ends in left_ms, and for all that end later? */
bool spans_fit(const struct spans_ends *e, int64_t left_ms, const struct spans_budget *b);
/* The shortest life above left_ms, in s, with which it fits; 0 = none. */
uint32_t spans_fitting_s(const struct spans_ends *e, int64_t left_ms, const struct spans_budget *b);

#endif
