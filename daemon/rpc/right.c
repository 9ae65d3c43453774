/* SPDX-License-Identifier: MIT */
/*
 * What a connection's client may: judged when its name is known, again at each reload, and asked at each call. Whether it is of another
 * namespace is looked at only where it would be an admin otherwise.
 */
#include <errno.h>
#include <stdio.h>

#include "daemon/auth/grant.h"
#include "daemon/auth/owner.h"
#include "daemon/auth/owners.h"
#include "daemon/common/net/http.h"
#include "daemon/common/obs/log.h"
#include "daemon/rpc/call_impl.h"
#include "daemon/rpc/peer.h"
#include "daemon/rpc/server.h"
#include "proto/base/str.h"

static void right_judge(struct rpc_conn *conn)
{
	const struct access_rules *rules = conn->server->rules;
	struct principal *who = &conn->who;

	access_judge(rules, who, &conn->verdict);
	if (conn->verdict.is_admin && !conn->is_place_known) {
		conn->is_place_known = true;
		who->is_foreign = !conn->http || peer_is_foreign(http_conn_fd(conn->http), who);
		if (who->is_foreign)
			access_judge(rules, who, &conn->verdict);
	}
	who->admin = conn->verdict.is_admin;
	who->observer = conn->verdict.may_observe;
	who->looks_only = !conn->verdict.may_use;
}

static void take_name(struct rpc_conn *conn, const struct user *u)
{
	conn->is_asked = false;
	/* Without its name nobody can say whose the number is today. */
	conn->nameless = u->error && u->error != -ENOENT && access_is_dynamic(conn->who.uid);
	(void)str_copy(conn->who.user, sizeof(conn->who.user), u->name);
	if (!conn->nameless && conn->server->owners && owners_take(conn->server->owners, u->uid, u->name, &conn->who.uid) < 0)
		conn->nameless = true;
	right_judge(conn);
}

static void right_on_name(struct users_wait *w, const struct user *u)
{
	struct rpc_conn *conn = container_of(w, struct rpc_conn, name);

	take_name(conn, u);
	list_for_each(n, &conn->server->calls) {
		struct rpc_call *c = list_entry(n, struct rpc_call, node);

		if (c->conn == conn)
			defer_post(&c->again);
	}
}

int rpc_right_begin(struct rpc_conn *conn)
{
	const struct user *known;
	int r = 1;

	if (conn->unmapped)
		return 0;
	if (!conn->server->users) {
		right_judge(conn);
		return 0;
	}
	conn->name.fn = right_on_name;
	r = users_find(conn->server->users, conn->who.uid, &conn->name, &known);
	if (r > 0)
		take_name(conn, known);
	conn->is_asked = r == 0;
	return r < 0 ? r : 0;
}

void rpc_right_end(struct rpc_conn *conn)
{
	users_cancel(&conn->name);
}

/* --- refusals --- */

static void put_evidence(const struct rpc_conn *conn, const char *list, struct status *st)
{
	status_evidence(st, "uid", "%u", owner_uid(conn->who.uid));
	if (conn->who.user[0])
		status_evidence(st, "user", "%s", conn->who.user);
	status_evidence(st, "rule", "%s", list);
}

static void right_refuse(const struct rpc_conn *conn, struct status *st)
{
	const struct access_verdict *v = &conn->verdict;
	char me[PRINCIPAL_USER_BYTES + 32], rule[ACCESS_TEXT_BYTES];

	access_who_text(conn->who.uid, conn->who.user, me);
	access_rule_text(conn->server->rules, v, rule);
	if (v->by == ACCESS_OBSERVE)
		status_set(st, R_UID_DENIED, "%s may observe and no more, by %.160s: Status, List and Watch of sandboxes", me, rule);
	else if (v->by == ACCESS_DENY)
		status_set(st, R_UID_DENIED, "%s may not use this agentboxd, by %.160s", me, rule);
	else
		status_set(st, R_UID_DENIED, "%s may not use this agentboxd: it is not in %.160s%s", me, rule,
			   v->is_foreign_admin ? "; a process of another user or pid namespace is no admin" : "");
	put_evidence(conn, access_key_name(v->by), st);
	status_evidence(st, "where", "%s", rule);
}

bool rpc_right_check(const struct rpc_conn *conn, const struct rpc_method *m, struct status *st)
{
	if (conn->unmapped && owner_is_made(conn->who.uid))
		status_set(st, R_UID_DENIED, "uid %u is one that no user may have: it stands for a service that had another", conn->who.uid);
	else if (conn->unmapped)
		status_set(st, R_UID_DENIED, "uid %u stands for every user of other namespaces: it is not served",
			   conn->who.uid);
	else if (conn->nameless)
		status_set(st, R_UID_DENIED, "uid %u is given to services in turn, and the system did not say whose it is now; "
			   "try again", conn->who.uid);
	else if (!conn->verdict.may_use && !(conn->verdict.may_observe && m->effect == RPC_OBSERVES))
		right_refuse(conn, st);
	return status_ok(st);
}

void rpc_right_explain(const struct rpc_conn *conn, struct status *st)
{
	const struct access_rules *rules = conn->server->rules;
	char me[PRINCIPAL_USER_BYTES + 32], said[STATUS_TEXT_MAX];
	const char *place = rules->places[ACCESS_ADMINS];

	if (st->reason != R_UID_DENIED || !status_evidence_get(st, GRANT_NEEDS))
		return;
	(void)str_copy(said, sizeof(said), st->text);
	snprintf(st->text, sizeof(st->text), "%.120s; you are %s, and %.120s says who is one%s", said,
		 access_who_text(conn->who.uid, conn->who.user, me), place ? place : "[access] admins",
		 conn->verdict.is_foreign_admin ? ": none of another user or pid namespace" : "");
	put_evidence(conn, access_key_name(ACCESS_ADMINS), st);
	if (place)
		status_evidence(st, "where", "%s", place);
}

/* --- a reload --- */

static bool has_lost(const struct principal *before, bool might_use, const struct rpc_conn *conn)
{
	return (might_use && !conn->verdict.may_use) || (before->admin && !conn->who.admin) ||
	       (before->observer && !conn->who.observer);
}

/* A stream, a unary call that waits, or one that has not begun. */
static bool ends_with_right(const struct rpc_call *c)
{
	return c->state == CALL_READING || (c->state == CALL_OPEN && call_charged_as(c->method) == ADMIT_STREAM);
}

static void end_calls(struct rpc_conn *conn)
{
	struct status st = STATUS_OK;

	list_for_each_safe(n, &conn->server->calls) {
		struct rpc_call *c = list_entry(n, struct rpc_call, node);

		if (c->conn != conn || !ends_with_right(c))
			continue;
		st = (struct status)STATUS_OK;
		if (rpc_right_check(conn, c->method, &st)) {
			status_set(&st, R_UID_DENIED, "an administrator's or observer's right was taken away by a reload; call again");
			status_evidence(&st, GRANT_NEEDS, "admin");
		}
		call_stop(c, &st, RPC_GONE_RIGHT);
	}
}

void rpc_server_set_rules(struct rpc_server *s, const struct access_rules *rules)
{
	s->rules = rules;
	list_for_each(n, &s->conns) {
		struct rpc_conn *conn = list_entry(n, struct rpc_conn, node);
		struct principal before = conn->who;
		bool might_use = conn->verdict.may_use;

		if (conn->unmapped || conn->is_asked)
			continue;
		right_judge(conn);
		if (!has_lost(&before, might_use, conn))
			continue;
		log_info("client_right_lost", "uid=%u user=%s pid=%d", owner_uid(conn->who.uid), log_q(conn->who.user), (int)conn->who.pid);
		end_calls(conn);
	}
}
