/* SPDX-License-Identifier: MIT */
#include "daemon/gateway/audit.h"

#include <stdio.h>
#include <string.h>

#include "daemon/auth/audit.h"
#include "daemon/auth/owner.h"
#include "daemon/auth/owners.h"
#include "daemon/auth/token.h"
#include "daemon/auth/users.h"
#include "daemon/common/http/reply.h"
#include "daemon/common/http/route.h"
#include "proto/base/str.h"
#include "proto/wire/trace.h"

#define CALL_BYTES 160u

static const char *user_name(const struct gateway *g, uid_t uid)
{
	const struct user *u = g->o.users && uid != (uid_t)-1 ? users_get(g->o.users, owner_uid(uid)) : NULL;

	if (g->o.owners && owner_is_made(uid))
		return owners_name(g->o.owners, uid);
	return u ? u->name : "";
}

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

static bool only_reads(const char *method)
{
	return str_eq(method, "GET") || str_eq(method, "HEAD") || str_eq(method, "OPTIONS");
}

/* A program that a token is bound to is known; any other one is not. */
static void put_line(const struct gateway *g, uid_t uid, struct token *t, struct audit_line *l)
{
	const struct principal who = { .uid = uid, .pid = t ? t->run.pid : 0, .pidfd = t ? t->run_pidfd : -1 };

	l->uid = uid == (uid_t)-1 ? uid : owner_uid(uid);
	l->user = user_name(g, uid);
	l->pid = who.pid;
	l->process = t ? &t->process : NULL;
	if (t)
		audit_process_read(&t->process, &who);
	audit_log(l);
}

void gateway_audit_control(const struct gateway_control *c, const char *result)
{
	const char *method = or_empty(reply_request(c->x, ":method"));
	char call[CALL_BYTES], trace[TRACE_ID_BYTES];
	struct audit_line l = { .call = call, .trace = trace_id(&c->trace, trace), .result = result, .sandbox = c->id, .object = c->token->id,
				.request_id = or_empty(reply_request(c->x, "idempotency-key")), .is_change = !only_reads(method) };

	if (!audit_is_on(l.is_change))
		return;
	snprintf(call, sizeof(call), "%s %s", method, c->to < CLOUD_ROUTES ? cloud_route_info(c->to)->path : or_empty(c->query.path));
	put_line(c->g, c->who.uid, c->token, &l);
}

bool gateway_audit_reads(const char *method, const char *path)
{
	static const char *const reads[] = {
		"/process.Process/List", "/process.Process/Connect", "/filesystem.Filesystem/Stat", "/filesystem.Filesystem/ListDir",
		"/filesystem.Filesystem/WatchDir", "/filesystem.Filesystem/CreateWatcher", "/filesystem.Filesystem/GetWatcherEvents",
		"/filesystem.Filesystem/RemoveWatcher", "/process.Process/SendInput", "/process.Process/Update",
	};

	for (size_t i = 0; i < ARRAY_SIZE(reads); i++)
		if (str_eq(path, reads[i]))
			return true;
	return only_reads(method);
}

void gateway_audit_relay(const struct gateway_relay *rl)
{
	const struct fields *head = http_stream_head(rl->x);
	const char *method = or_empty(fields_get(head, ":method")), *path = or_empty(fields_get(head, ":path"));
	uid_t uid = rl->token ? rl->token->uid : rl->peer.is_known ? rl->peer.uid : (uid_t)-1;
	char call[CALL_BYTES], bare[CALL_BYTES - 24];
	struct audit_line l = { .call = call, .result = rl->join.answered ? "OK" : "FAILED", .sandbox = rl->to.sandbox,
				.object = rl->token ? rl->token->id : "" };

	snprintf(bare, sizeof(bare), "%.*s", (int)strcspn(path, "?"), path);
	/* What a program in the sandbox is told is between it and its caller. */
	l.is_change = rl->to.port == ENVD_PORT && !gateway_audit_reads(method, bare);
	if (!audit_is_on(l.is_change))
		return;
	snprintf(call, sizeof(call), "%.16s :%u%s", method, rl->to.port, bare);
	put_line(rl->g, uid, rl->token, &l);
}
