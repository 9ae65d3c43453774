/* SPDX-License-Identifier: MIT */
/*
 * The owners whose uid is given to services in turn: which name has which number (owner.h), in the store. When another name connects with
 * a uid, what its former one held is released, once. Loop thread only.
 *
 * A row of a version that knew no names has the uid as its number: it becomes that of the first name that connects.
 */
#ifndef AB_DAEMON_AUTH_OWNERS_H
#define AB_DAEMON_AUTH_OWNERS_H

#include <sys/types.h>

#include "proto/base/cc.h"

struct owners;
struct store;

#define OWNERS_MAX 8192u	/* above it the oldest former one is forgotten: its number is made of its name again */

/* This owner has no uid any more: its user's went to another. */
typedef void owner_over_fn(void *user, uid_t owner);

struct owners_options {
	struct store *store;	/* opened, not started: its rows are read */
	owner_over_fn *over;
	void *user;
};

must_check int owners_new(const struct owners_options *o, struct owners **ret);
struct owners *owners_free(struct owners *all);	/* NULL is fine; returns NULL */

/* Who connects now with this uid, by its name; "" = it has none. A uid that is not given in turn is its own owner. May call over(). After
 * the store was started. -ENOMEM. */
must_check int owners_take(struct owners *all, uid_t uid, const char *name, uid_t *ret);
/* The name that this owner connected with; "" = none, or it is not known; NULL = its uid is not given in turn. */
const char *owners_name(const struct owners *all, uid_t owner);

#endif
