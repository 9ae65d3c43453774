/* SPDX-License-Identifier: MIT */
/*
 * Do the rules of [access] let the users behind a request use the daemon: the peer, where the kernel tells whose it is, and the user of
 * a token? Their groups are those of the system's tables; a token of a run has those of its process too, as it has at the socket, but for what they
 * deny.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/auth/access.h"
#include "daemon/auth/owner.h"
#include "daemon/auth/owners.h"
#include "daemon/auth/users.h"
#include "daemon/gateway/access.h"
#include "proto/base/str.h"

static bool are_open(const struct access_rules *r)
{
	return !r || (!r->is_set[ACCESS_ALLOW] && !r->lists[ACCESS_DENY].n);
}

static void fill_who(const struct user *u, struct principal *ret)
{
	*ret = (struct principal){ .uid = u->uid, .gid = u->gid, .pidfd = -1, .n_groups = u->n_groups };
	memcpy(ret->groups, u->groups, sizeof(*u->groups) * u->n_groups);
	(void)str_copy(ret->user, sizeof(ret->user), u->name);
}

static bool may_by_process(const struct access_rules *r, const struct token *t, struct principal *who, struct access_verdict *v)
{
	if (!t || !t->run.pid || !process_groups(t->run.pid, t->run_pidfd, who))
		return false;
	access_judge(r, who, v);
	return v->may_use;
}

static void put_refusal(const struct access_rules *r, const struct access_verdict *v, const struct principal *who,
			char ret[GATEWAY_WHY_BYTES])
{
	char me[PRINCIPAL_USER_BYTES + 32], rule[ACCESS_TEXT_BYTES];

	access_rule_text(r, v, rule);
	snprintf(ret, GATEWAY_WHY_BYTES, "%s may not use this agentboxd: %s%.160s", access_who_text(who->uid, who->user, me),
		 v->item ? "by " : "it is not in ", rule);
}

/* What the system's tables say of an owner's user. Where its `what` (a token, a session) speaks for it, its uid may be another's by now: that
 * one has neither the former's things nor the name that the rules mean. NULL: the uid itself speaks. */
static enum gateway_may find_user(struct gateway *g, uid_t owner, const char *what, const struct user **ret, char why[GATEWAY_WHY_BYTES])
{
	const char *name = what && g->o.owners ? owners_name(g->o.owners, owner) : NULL;
	uid_t uid = owner_uid(owner);
	const struct user *u = g->o.users ? users_get(g->o.users, uid) : NULL;

	*ret = u;
	if (!u) {
		snprintf(why, GATEWAY_WHY_BYTES, "the name of uid %u is being looked up: try again", uid);
		return GATEWAY_MAY_LATER;
	}
	if (name && u->error && u->error != -ENOENT) {
		snprintf(why, GATEWAY_WHY_BYTES, "the system did not say whose uid %u is now: try again", uid);
		return GATEWAY_MAY_LATER;
	}
	if (name && !str_eq(name, u->name)) {
		snprintf(why, GATEWAY_WHY_BYTES, "the %s is of a user who had uid %u before", what, uid);
		return GATEWAY_MAY_NOT;
	}
	return GATEWAY_MAY;
}

static enum gateway_may may_uid(struct gateway *g, uid_t owner, const struct token *t, char why[GATEWAY_WHY_BYTES])
{
	const struct access_rules *r = g->o.rules;
	struct access_verdict v;
	struct principal who;
	const struct user *u;
	enum gateway_may may;

	if (are_open(r) && !(t && access_is_dynamic(owner_uid(owner))))
		return GATEWAY_MAY;
	may = find_user(g, owner, t ? "token" : NULL, &u, why);
	if (may != GATEWAY_MAY)
		return may;
	if (are_open(r))
		return GATEWAY_MAY;
	fill_who(u, &who);
	access_judge(r, &who, &v);
	if (v.may_use || (v.by != ACCESS_DENY && may_by_process(r, t, &who, &v)))
		return GATEWAY_MAY;
	put_refusal(r, &v, &who, why);
	return GATEWAY_MAY_NOT;
}

enum gateway_may gateway_may(struct gateway *g, const struct who_peer *peer, const struct token *t, char why[GATEWAY_WHY_BYTES])
{
	enum gateway_may r = GATEWAY_MAY;

	if (peer->is_known && !(t && owner_uid(t->uid) == peer->uid))
		r = may_uid(g, peer->uid, NULL, why);
	return r == GATEWAY_MAY && t ? may_uid(g, t->uid, t, why) : r;
}

static void set_sight(struct principal *who, enum page_sight most, const struct access_verdict *v)
{
	who->admin = v->is_admin && most == PAGE_ALL;
	who->observer = (v->is_admin || v->may_observe) && most != PAGE_OWN;
	who->looks_only = !v->may_use;
}

enum gateway_may gateway_viewer(struct gateway *g, uid_t owner, enum page_sight sight, struct principal *ret, char why[GATEWAY_WHY_BYTES])
{
	const struct access_rules *r = g->o.rules;
	struct access_verdict v;
	const struct user *u;
	enum gateway_may may = find_user(g, owner, "session", &u, why);

	if (may != GATEWAY_MAY)
		return may;
	fill_who(u, ret);
	access_judge(r, ret, &v);
	if (!v.may_use && !v.may_observe) {
		put_refusal(r, &v, ret, why);
		return GATEWAY_MAY_NOT;
	}
	ret->uid = owner;
	set_sight(ret, sight, &v);
	return GATEWAY_MAY;
}
