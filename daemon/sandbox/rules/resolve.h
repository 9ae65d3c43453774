/* SPDX-License-Identifier: MIT */
/*
 * Resolving a creation, a fork or a snapshot whose answer was lost: what a list of the cloud says of it, and when to list
 * again, until what was made shows up or can no longer show up. [pure]
 */
#ifndef AB_DAEMON_SANDBOX_RULES_RESOLVE_H
#define AB_DAEMON_SANDBOX_RULES_RESOLVE_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct cloud_list;
struct cloud_snapshots;
struct cloud_strs;

#ifdef AB_FAILPOINTS
#define RESOLVE_HORIZON_MS 300ull	/* for agentboxd-fp: a scripted cloud lists at once what it made */
#else
#define RESOLVE_HORIZON_MS (180ull * 1000)	/* longer than the cloud's own limits for one request */
#endif

enum resolve_next {
	RESOLVE_WAIT,	/* list again after *ret_wait_ms */
	RESOLVE_FOUND,	/* *ret_index is it */
	RESOLVE_CLOSE,	/* a complete list after the horizon did not have it */
	RESOLVE_AMBIGUOUS,	/* the list has more than it can have made: nobody can tell which are its own */
};

struct resolve_when {
	unsigned tries;			/* lists so far */
	uint64_t now_ms, until_ms;	/* BOOTTIME; until_ms: the horizon */
};

/* After a list; NULL = it was not complete, which proves nothing. Of the sandboxes with the tags host and req the oldest is the
 * created one; the others are children of forks. */
enum resolve_next resolve_plan(const struct cloud_list *list, const char *host, const char *req,
			       const struct resolve_when *w, size_t *ret_index, uint64_t *ret_wait_ms);
/*
 * A fork whose answer was lost. Its children are the sandboxes with their parent's tags that did not exist before
 * (`known`), have no row (is_tracked) and did not start before made_at_ms (both by the cloud's clock).
 * FOUND: *ret_n indexes in ret_index, which has room for `count`; fewer than count only after the
 * horizon.
 */
struct resolve_fork {
	const char *host, *req;
	const struct cloud_strs *known;
	int64_t made_at_ms;
	uint32_t count;
	bool (*is_tracked)(const char *id, void *user);
	void *user;
};
enum resolve_next resolve_fork(const struct cloud_list *list, const struct resolve_fork *f,
			       const struct resolve_when *w, size_t *ret_index, size_t *ret_n,
			       uint64_t *ret_wait_ms);
/* A snapshot whose answer was lost: the one of its source that was not there before. */
enum resolve_next resolve_snapshot(const struct cloud_snapshots *list,
				   const struct cloud_strs *known, const struct resolve_when *w,
				   size_t *ret_index, uint64_t *ret_wait_ms);
/* The wait before list number `tries`: 1, 2, 4, 8, 16, 30, 30 … s. */
uint64_t resolve_wait_ms(unsigned tries);
/* So long after the POST what it made is in every list, but for one that leaves it out: younger lists prove nothing. */
uint64_t resolve_settled_ms(uint64_t horizon_ms);
/* How many complete lists from then until the horizon must lack what the cloud said it failed to make, to prove that it was not made. */
unsigned resolve_lists_needed(uint64_t horizon_ms);

#endif
