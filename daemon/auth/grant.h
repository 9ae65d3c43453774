/* SPDX-License-Identifier: MIT */
/*
 * May this principal do this to that row? [pure]
 * A row of another uid does not exist for its callers: GRANT_HIDDEN is answered exactly like an
 * unknown id, also for calls that would be denied anyway.
 */
#ifndef AB_DAEMON_AUTH_GRANT_H
#define AB_DAEMON_AUTH_GRANT_H

#include "daemon/auth/principal.h"
#include "proto/base/status.h"

enum grant {
	GRANT_OK = 0,
	GRANT_HIDDEN,	/* answer NOT_FOUND */
	GRANT_DENIED,	/* answer PERMISSION_DENIED UID_DENIED */
};

/* See, use, change, kill a row owned by `owner`: its owner and admins. */
must_check enum grant grant_row(const struct principal *who, uid_t owner);
/* List rows of every owner: admins and observers. */
must_check enum grant grant_all_owners(const struct principal *who);
/* Look at rows of an account other than the one configured for the caller's uid: the same. */
must_check enum grant grant_look_account(const struct principal *who, const char *own, const char *asked);
/* Does `who` see this row without what is a secret: the row's id, which opens a sandbox, and what its owner wrote into it? */
bool grant_is_masked(const struct principal *who, uid_t owner);
/* Name an account other than the one configured for the caller's uid: admins; others only their own. */
must_check enum grant grant_account(const struct principal *who, const char *own, const char *asked);
/* Calls that change the daemon itself (stop, reload, drain): admins. */
must_check enum grant grant_daemon(const struct principal *who);

/* UID_DENIED "only an administrator may …". The front door adds who asked, and which rule says who is an administrator. */
#define GRANT_NEEDS "needs"	/* evidence */
void grant_refuse(struct status *st, const char *what);

#endif
