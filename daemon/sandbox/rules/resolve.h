/* SPDX-License-Identifier: MIT */
/*
 * Resolving a creation whose answer was lost: ask the cloud's list for its tag until it shows up or
 * can no longer show up. [pure]
 */
#ifndef AB_DAEMON_SANDBOX_RULES_RESOLVE_H
#define AB_DAEMON_SANDBOX_RULES_RESOLVE_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct cloud_list;
struct cloud_snapshots;
struct cloud_strs;

#ifdef AB_FAILPOINTS
#define RESOLVE_HORIZON_MS 300ull	/* of agentboxd-fp: a scripted cloud lists at once what it made */
#else
#define RESOLVE_HORIZON_MS (180ull * 1000)	/* the cloud's own limits end long before */
#endif

enum resolve_next {
	RESOLVE_WAIT,	/* list again after *ret_wait_ms */
	RESOLVE_FOUND,	/* *ret_index is it */
	RESOLVE_CLOSE,	/* a complete list after the horizon did not have it */
	RESOLVE_AMBIGUOUS,	/* more than it can have made: nobody knows which are its own */
};

struct resolve_when {
	unsigned tries;			/* lists so far */
	uint64_t now_ms, until_ms;	/* until_ms: the horizon */
};

/* After a list. list NULL = it was not complete, which proves nothing. The oldest sandbox
 * that carries host and req is it; a fork's children carry the same tag later. */
enum resolve_next resolve_plan(const struct cloud_list *list, const char *host, const char *req,
			       const struct resolve_when *w, size_t *ret_index, uint64_t *ret_wait_ms);
/*
 * A fork whose answer was lost. Its children carry their parent's tag, so they are those that carry it,
 * were not there before (`known`), and started not before made_at_ms (both by the cloud's clock).
 * FOUND: *ret_n indexes in ret_index, which has room for `count`; fewer than count only after the
 * horizon. is_tracked: has somebody else's row already; such a one is nobody's child.
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
/* Before list number `tries`: 1, 2, 4, 8, 16, 30, 30 … s. */
uint64_t resolve_wait_ms(unsigned tries);
/* So many complete lists without it prove, within a horizon, that what the cloud said it failed at was not made: one may be wrong. */
unsigned resolve_lists_needed(uint64_t horizon_ms);

#endif
