/* SPDX-License-Identifier: MIT */
/*
 * The extensions of an account as a whole: how many sandboxes they keep alive, how long each has to last
 * for the cloud's budget to be enough, whose turn it is, and whether one more can be kept.
 * Few are asked for at once; the next in line is the sandbox that ends first.
 */
#ifndef AB_DAEMON_SANDBOX_EXTEND_H
#define AB_DAEMON_SANDBOX_EXTEND_H

#include <stdbool.h>

#include "daemon/sandbox/rules/spans.h"
#include "proto/base/cc.h"
#include "proto/base/list.h"
#include "proto/base/status.h"

struct account;
struct sandbox;
struct sandbox_extensions;

struct extend_turn {
	struct list node;	/* in the account's line, by end; on no list: it does not wait */
	bool is_taken;
	int64_t end_at_ms;
	struct spans_end kept;	/* in the account's book while extensions keep it alive … */
	struct list kept_node;	/* … and in its list */
	struct sandbox *sandbox;
};

struct extensions {		/* of an account */
	struct list line;
	uint32_t n_taken, n_waiting;
	struct spans_book book;	/* by seconds of the cloud's clock */
	struct list kept;	/* extend_turn.kept_node: as many as the book has */
	uint32_t told_span_s;	/* the span for which the runners of all that is kept have looked */
	uint64_t refused;	/* leases, since the start */
	int64_t refused_at_ms;	/* wall: the last one; 0 = none */
};

void extend_init(struct extensions *x);
void extend_turn_init(struct extend_turn *t, struct sandbox *b);
/* True: go, and end the turn after it. False: the sandbox is in line by its end, and looked at again when it
 * is its turn. */
bool extend_turn_take(struct extend_turn *t, int64_t end_at_ms);
/* Had, in line, or neither: on to the next. */
void extend_turn_end(struct extend_turn *t);

/* What the next extension has to bring, for what is kept alive now. */
uint32_t extend_span_s(struct account *a);
/* What a sandbox that is made now under a lease has to live for. */
uint32_t extend_span_with_new_s(struct account *a);
/* Do extensions keep it alive from now on, and until which end on the cloud's clock? */
void extend_note(struct extend_turn *t, bool is_kept, int64_t end_at_ms);
/* The cloud's clock is another one than it was thought to be. */
void extend_clock_set(struct account *a);
/* May this sandbox be leased? Else RATE_LIMITED, with what to do. One that is in use already may. */
must_check bool extend_admits(struct account *a, const struct sandbox *b, struct status *st);
/* May one be made under a lease, to live for life_s? */
must_check bool extend_admits_new(struct account *a, uint32_t life_s, struct status *st);

#endif
