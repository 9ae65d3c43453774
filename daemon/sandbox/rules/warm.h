/* SPDX-License-Identifier: MIT */
/*
 * Decisions about warm sandboxes: which entry fits a Create, how many are made, when an entry stops, whose turn it is. [pure]
 * Times are BOOTTIME ms unless a comment says wall.
 */
#ifndef AB_DAEMON_SANDBOX_RULES_WARM_H
#define AB_DAEMON_SANDBOX_RULES_WARM_H

#include <stdbool.h>

#include "daemon/auth/principal.h"
#include "daemon/sandbox/rules/types.h"
#include "proto/base/cc.h"
#include "proto/cloud/model.h"

#define WARM_SIZE_MAX	   64u
#define WARM_UID	   ((uid_t)0xfffffffeu)	/* owns unclaimed ones: no user has it, so that admins alone see them */
#define WARM_FAILURES_MAX  3u		/* after so many in a row the entry makes nothing any more */
#define WARM_HOUR_MS	   3600000
#define WARM_HEALTH_MS	   5000u	/* between two questions for its health */
#define WARM_HEALTH_MISSES 2u		/* it is replaced after so many in a row without an answer; after the first nobody gets it */
#define WARM_LIFE_MIN_MS   10000	/* one with less time left is not claimed: setting the new end takes a while */
#define WARM_YOUNG_MS	   60000	/* one that dies so soon after it was ready counts as a failure of its entry */

enum warm_state {		/* stored: never renumber */
	WARM_NONE = 0,		/* a Create made it */
	WARM_PREPARING = 1,
	WARM_READY = 2,
	WARM_CLAIMED = 3,	/* its user's, as any other; the tags in the cloud do not name that uid */
	WARM_QUARANTINED = 4,	/* somebody may have claimed it: nobody gets it, and it is neither kept alive nor ended */
};

/* The first parameter of a creation in which the two differ, by its name in the API; NULL: in none. An unset one counts as the cloud's
 * default. */
const char *warm_differs(const struct cloud_create *entry, const struct cloud_create *asked);

/* "never", "prefer" or "require". False: it is none of them, and *ret is as it was. */
must_check bool warm_mode_parse(const char *text, enum sandbox_warm_mode *ret);

struct warm_claimers {
	const uid_t *uids;
	size_t n_uids;
	const gid_t *gids;
	size_t n_gids;
};
bool warm_may_claim(const struct warm_claimers *c, const struct principal *who);
/* May this uid, and nobody else, claim? */
bool warm_is_for(const struct warm_claimers *c, uid_t uid);

/* Can a sandbox of that age live for timeout_ms more? cap_ms: the longest life that the cloud gives; 0 = not known. left_ms: until
 * its end. */
bool warm_has_life(uint64_t timeout_ms, uint64_t cap_ms, int64_t age_ms, int64_t left_ms);

/* --- the pool of an entry --- */

struct warm_pool {
	uint32_t size;			/* wanted */
	uint32_t ready, coming;		/* coming: being made, or prepared */
	uint32_t making;		/* of `coming`: whose creation is under way */
	uint32_t burst;			/* the most that `making` may be; at least 1 */
	uint32_t per_hour;		/* creations; 0 = no bound */
	int64_t hour_at_ms, now_wall_ms;	/* wall; hour_at_ms: when the hour of `made` began */
	uint32_t made;			/* in that hour */
	bool failed;
	uint64_t retry_at_ms;		/* no creation before it; 0 = at once */
	uint64_t active_ms;		/* 0 = always kept full */
	int64_t wanted_at_ms;		/* wall: of the last Create that fitted; 0 = never */
	uint32_t waiting;		/* calls that wait for one */
	uint64_t now_ms;
};

struct warm_refill {
	uint32_t make;			/* how many to make now */
	uint32_t end;			/* how many ready ones to end */
	uint64_t again_in_ms;		/* when to ask again; 0 = when something changes */
};

void warm_refill(const struct warm_pool *p, struct warm_refill *ret);
/* Is the entry to be kept full now: always, because of a recent Create, or because calls wait? */
bool warm_is_active(const struct warm_pool *p);
/* How long to wait after `failures` (from 1) in a row. */
uint64_t warm_retry_ms(uint32_t failures, uint64_t rnd);
/* Does a creation that failed for this reason count as the entry's fault? Others, such as limits and an unreachable cloud, pass. */
bool warm_is_its_fault(enum ab_reason r);
bool warm_is_failed(uint32_t failures);

/* Index of the waiter that gets the next one: the first of the lowest uid above `last`, or of the lowest of all. n > 0. */
size_t warm_next_waiter(const uid_t *waiters, size_t n, uid_t last);

#endif
