/* SPDX-License-Identifier: MIT */
/*
 * The extensions of an account as a whole: how many sandboxes they keep alive, how long each extension has to be
 * for the cloud's budget to be enough, whose turn it is, and whether one more sandbox can be kept.
 * Few are under way at once; the next in line is the sandbox that ends first.
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
	struct list node;	/* in extensions.line while it waits */
	bool is_taken;
	int64_t end_at_ms;	/* BOOTTIME: the place in the line */
	struct spans_end kept;	/* in extensions.book while extensions keep the sandbox alive */
	struct list kept_node;	/* in extensions.kept as long */
	struct sandbox *sandbox;
};

struct extensions {		/* of an account */
	struct list line;	/* extend_turn.node, by end */
	uint32_t n_taken, n_waiting;
	struct spans_book book;	/* by seconds of the cloud's clock */
	struct list kept;	/* extend_turn.kept_node: as many as the book has */
	uint32_t told_span_s;	/* the span that all runners of kept sandboxes know of */
	uint64_t refused;	/* leases refused since the start */
	int64_t refused_at_ms;	/* wall: the last refusal; 0 = none */
};

void extend_init(struct extensions *x);
void extend_turn_init(struct extend_turn *t, struct sandbox *b);
/* True: the extension may be sent, and extend_turn_end() follows its answer. False: the sandbox is in line, and its runner
 * is poked when it is its turn. */
bool extend_turn_take(struct extend_turn *t, int64_t end_at_ms);
/* Gives the turn, or the place in the line, back; nothing without one. */
void extend_turn_end(struct extend_turn *t);

/* The length of the next extension, in s, for the sandboxes that are kept alive now. */
uint32_t extend_span_s(struct account *a);
/* The same with one more, and all that attempts may still make. */
uint32_t extend_span_with_new_s(struct account *a);
/* Extensions keep the sandbox alive from now on, until end_at_ms by the cloud's clock; or no longer do. */
void extend_note(struct extend_turn *t, bool is_kept, int64_t end_at_ms);
/* The cloud's clock was found to be another one. No sandbox may be noted as kept now. */
void extend_clock_set(struct account *a);
/* May this sandbox be leased? Else RATE_LIMITED, with what to do. One that extensions keep already may. */
must_check bool extend_admits(struct account *a, const struct sandbox *b, struct status *st);
/* May a sandbox with a life of life_s be made under a lease? */
must_check bool extend_admits_new(struct account *a, uint32_t life_s, struct status *st);

#endif
