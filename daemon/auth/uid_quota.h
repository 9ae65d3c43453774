/* SPDX-License-Identifier: MIT */
/*
 * The memory that may be held for local users: one quota for all of them together, below it one for each
 * uid. Connections, calls and commands charge the one of their uid.
 */
#ifndef AB_DAEMON_AUTH_UID_QUOTA_H
#define AB_DAEMON_AUTH_UID_QUOTA_H

#include <sys/types.h>

#include "proto/base/cc.h"
#include "proto/base/quota.h"

struct uid_quotas;

struct uid_quotas_options {
	uint64_t max;		/* of all uids together; 0 = no limit */
	uint64_t max_per_uid;	/* of those that have no limit of their own; 0 = none but that of all */
};

/* A uid may have this part of `max` however much the others have. */
#define UID_QUOTA_KEPT 32u

/* NULL without memory. */
struct uid_quotas *uid_quotas_new(const struct uid_quotas_options *o);
/* Quotas that somebody has a reference to go on. NULL is fine; returns NULL. */
struct uid_quotas *uid_quotas_free(struct uid_quotas *u);
/* A maximum of its own for a uid. */
struct uid_quota_limit {
	uid_t uid;
	uint64_t max;
};
/* Room for a limit of this uid in uid_quotas_set(), which cannot fail then. -ENOMEM. */
must_check int uid_quotas_reserve(struct uid_quotas *u, uid_t uid);
/* Other maxima from now on, of those who hold something too; what is held stays. Every uid of `limits` was reserved since the last call. */
void uid_quotas_set(struct uid_quotas *u, const struct uid_quotas_options *o, const struct uid_quota_limit *limits, size_t n);
/* A new reference to the quota of a uid; NULL without memory. */
struct quota *uid_quota(struct uid_quotas *u, uid_t uid);
/* What it holds and may hold now; 0 and the general maximum for one that holds nothing. */
void uid_quota_read(const struct uid_quotas *u, uid_t uid, uint64_t *ret_used, uint64_t *ret_max);
/* Of all together; borrowed. */
struct quota *uid_quotas_all(const struct uid_quotas *u);

#endif
