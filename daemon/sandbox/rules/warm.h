/* SPDX-License-Identifier: MIT */
/*
 * Sandboxes that are ready before anybody asks: which entry fits a Create, how many are made, when an entry stops, whose turn it is.
 * [pure] Moments are BOOTTIME ms, but for those that say wall.
 */
#ifndef AB_DAEMON_SANDBOX_RULES_WARM_H
#define AB_DAEMON_SANDBOX_RULES_WARM_H

#include <stdbool.h>

#include "daemon/auth/principal.h"
#include "daemon/sandbox/rules/types.h"
#include "proto/base/cc.h"
#include "proto/cloud/model.h"

#define WARM_SIZE_MAX	   64u
#define WARM_UID	   ((uid_t)0xfffffffeu)	/* owns what nobody has claimed: no user's, so that admins alone see it */
#define WARM_FAILURES_MAX  3u		/* in a row; then nothing is tried any more */
#define WARM_HOUR_MS	   3600000
#define WARM_HEALTH_MS	   5000u	/* between two questions for its health */
#define WARM_HEALTH_MISSES 2u		/* not answered in a row: it is replaced; after the first one nobody gets it */
#define WARM_LIFE_MIN_MS   10000	/* a claim needs so much time to have its own end set */
#define WARM_YOUNG_MS	   60000	/* one that dies so soon after it was ready is a failure of its entry */

enum warm_state {		/* stored: never renumber */
	WARM_NONE = 0,		/* a Create made it */
	WARM_PREPARING = 1,
	WARM_READY = 2,
	WARM_CLAIMED = 3,	/* as any other, but that the cloud does not know whose it is */
	WARM_QUARANTINED = 4,	/* whose it is was forgotten: nobody gets it, and it is neither kept alive nor ended */
};

/* The first thing fixed at creation in which they differ, by its name in the API; NULL: they are the same. What is not said is what
 * the cloud makes of it. */
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
/* Is this uid the only one that may? */
bool warm_is_for(const struct warm_claimers *c, uid_t uid);

/* Has a sandbox of that age room for the asked timeout? cap_ms: the longest life the cloud gives; 0 = not known. left_ms: until its
 * end. */
bool warm_has_life(uint64_t timeout_ms, uint64_t cap_ms, int64_t age_ms, int64_t left_ms);

/* --- the pool of an entry --- */

struct warm_pool {
	uint32_t size;			/* wanted */
	uint32_t ready, coming;		/* coming: being made, or prepared */
	uint32_t making;		/* of these, those that the cloud was not done with */
	uint32_t burst, per_hour;	/* 0 = no bound */
	int64_t hour_at_ms, now_wall_ms;
	uint32_t made;			/* in that hour */
	bool failed;
	uint64_t retry_at_ms;		/* not before; 0 = at once */
	uint64_t active_ms;		/* 0 = always kept full */
	int64_t wanted_at_ms;		/* wall: of the last Create that fitted; 0 = never */
	uint32_t waiting;		/* calls that wait for one */
	uint64_t now_ms;
};

struct warm_refill {
	uint32_t make;			/* so many, now */
	uint32_t end;			/* so many that are ready are too many */
	uint64_t again_in_ms;		/* 0 = when something changes */
};

void warm_refill(const struct warm_pool *p, struct warm_refill *ret);
/* Is it asked for, or always kept full? */
bool warm_is_active(const struct warm_pool *p);
/* After failure number `failures` in a row (from 1): how long to wait. */
uint64_t warm_retry_ms(uint32_t failures, uint64_t rnd);
/* Does a creation that failed so count against its entry? What nobody could have had now is waited for instead. */
bool warm_is_its_fault(enum ab_reason r);
bool warm_is_failed(uint32_t failures);

/* The next to get one: the first waiter of the uid that comes after `last`, in turns. n > 0. */
size_t warm_next_waiter(const uid_t *waiters, size_t n, uid_t last);

#endif
