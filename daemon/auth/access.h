/* SPDX-License-Identifier: MIT */
/*
 * Who may use the daemon: the lists of [access]. [pure]
 *
 * A list is items by commas: a user's name or uid, a range of uids (1000-1999), a group (@NAME or @GID), * for everybody. `none` alone is
 * the empty list. The lists are asked in the order of enum access_key; the first one that names somebody decides.
 */
#ifndef AB_DAEMON_AUTH_ACCESS_H
#define AB_DAEMON_AUTH_ACCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/auth/principal.h"
#include "proto/base/cc.h"

#define ACCESS_ITEMS_MAX 256u	/* of one list */
#define ACCESS_WHY_BYTES 192u
#define ACCESS_TEXT_BYTES 320u

/* systemd gives these to services with DynamicUser=, each to one after the other. */
#define ACCESS_DYNAMIC_FIRST 61184u
#define ACCESS_DYNAMIC_LAST  65519u

static inline bool access_is_dynamic(uid_t uid)
{
	return uid >= ACCESS_DYNAMIC_FIRST && uid <= ACCESS_DYNAMIC_LAST;
}

enum access_key {
	ACCESS_DENY,
	ACCESS_ADMINS,
	ACCESS_ALLOW,
	ACCESS_OBSERVE,
	ACCESS_KEYS,
};
const char *access_key_name(enum access_key k);

enum access_kind {
	ACCESS_EVERYBODY,
	ACCESS_UIDS,		/* first … last */
	ACCESS_USER,		/* name; first is its uid */
	ACCESS_GROUP,		/* name, "" if it was given by number; first is its gid */
};

struct access_item {
	enum access_kind kind;
	bool is_known;		/* the numbers are: a name is looked up by whoever parsed the list */
	uint32_t first, last;
	char name[PRINCIPAL_USER_BYTES];
};

struct access_list {
	struct access_item *v;
	size_t n;
};

/* 0; -EINVAL and what is wrong with it in `why`; -ENOMEM. Nothing is to be freed after a failure. */
must_check int access_parse(const char *text, struct access_list *ret, char why[ACCESS_WHY_BYTES]);
void access_list_fini(struct access_list *l);
/* The item as it is written in a list. */
const char *access_item_text(const struct access_item *i, char ret[PRINCIPAL_USER_BYTES + 1]);

struct access_rules {
	struct access_list lists[ACCESS_KEYS];
	bool is_set[ACCESS_KEYS];	/* without an allow list everybody is allowed, without an admins list root is one */
	char *places[ACCESS_KEYS];	/* heap: "FILE:LINE: [access] KEY", or without the file what stands for the default */
	uid_t own_uid;			/* the daemon's own user is an admin, and never denied */
	gid_t admin_gid;		/* [daemon] admin_group; (gid_t)-1 = none */
};
#define ACCESS_RULES_NULL { .admin_gid = (gid_t)-1 }

void access_rules_fini(struct access_rules *r);

struct access_verdict {
	bool may_use;
	bool is_admin;
	bool may_observe;		/* sees what is everybody's, without secrets */
	bool is_foreign_admin;		/* would be an admin, if it were in the daemon's own namespaces */
	enum access_key by;		/* the list that decided … */
	const struct access_item *item;	/* … and its item; NULL: none names it, or there is no such list */
};

/* `who` without its verdict: uid, gid, groups, user, is_foreign. */
void access_judge(const struct access_rules *r, const struct principal *who, struct access_verdict *ret);
/* "uid 1001 (bob)" */
const char *access_who_text(uid_t uid, const char *user, char ret[PRINCIPAL_USER_BYTES + 32]);
/* Which rule that was and where it stands: "@students of /etc/agentboxd/agentboxd.conf:12: [access] deny". */
void access_rule_text(const struct access_rules *r, const struct access_verdict *v, char ret[ACCESS_TEXT_BYTES]);

#endif
