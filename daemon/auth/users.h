/* SPDX-License-Identifier: MIT */
/*
 * The names of uids, and the groups that the system's tables put them into. Tables may be far away (LDAP), so a thread looks, and the
 * loop never waits: whoever asks is called back, after USERS_WAIT_MS at the latest. What was found is kept for a while. Loop thread only.
 */
#ifndef AB_DAEMON_AUTH_USERS_H
#define AB_DAEMON_AUTH_USERS_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/auth/principal.h"
#include "daemon/common/ev/loop.h"
#include "proto/base/cc.h"
#include "proto/base/list.h"

#define USERS_WAIT_MS  5000u
#define USERS_FRESH_MS 600000u	/* older: used once more, and looked up again meanwhile */
#define USERS_MAX      1024u	/* kept */

struct users;

struct user {
	uid_t uid;
	gid_t gid;
	int error;		/* 0; -ENOENT: it has no name; -errno: nobody could say */
	char name[PRINCIPAL_USER_BYTES];	/* "" with an error */
	uint32_t n_groups;
	gid_t groups[PRINCIPAL_GROUPS_MAX];
};

struct users_options {
	struct loop *loop;
	/* On the thread; NULL = the system's tables. */
	void (*look)(uid_t uid, struct user *ret);
};

must_check int users_new(const struct users_options *o, struct users **ret);
/* Nobody may wait any more. NULL is fine; returns NULL. */
struct users *users_free(struct users *u);

struct users_wait;
typedef void users_fn(struct users_wait *w, const struct user *u);

struct users_wait {	/* embedded in who waits */
	struct list node;
	struct timer timer;
	struct users *all;
	users_fn *fn;	/* once, never from inside; u.error is -ETIMEDOUT if it took too long */
	uid_t uid;
};

/* 1 and *ret, which is valid until the next call: it is known. 0: w->fn will be called. -ENOMEM. The uid of a service with DynamicUser= is
 * never known before: it may be another's by now. */
must_check int users_find(struct users *all, uid_t uid, struct users_wait *w, const struct user **ret);
void users_cancel(struct users_wait *w);	/* also on a zeroed one */
/* What was found last, valid until the loop's next pass; NULL = nothing was yet. Where that is old or nothing, it is looked up meanwhile. */
const struct user *users_get(struct users *all, uid_t uid);
/* Looks it up now, waiting for the tables: before the loop runs. -ENOMEM. */
must_check int users_prime(struct users *all, uid_t uid);
/* All that is kept is looked up again. */
void users_refresh(struct users *all);

/* By the system's tables, waiting for them: for threads, and before the loop runs. */
void users_look(uid_t uid, struct user *ret);
/* 0; -ENOENT: there is none of this name; -errno: nobody could say. */
must_check int users_look_name(const char *name, uint32_t *ret_uid);
must_check int users_look_group(const char *name, uint32_t *ret_gid);

#endif
