/* SPDX-License-Identifier: MIT */
/* WarmService: every call is answered from memory, at once. */
#include "daemon/rpc/svc_warm.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/auth/grant.h"
#include "daemon/rpc/call.h"
#include "daemon/rpc/msg.h"
#include "daemon/rpc/server.h"
#include "daemon/sandbox/sandbox.h"
#include "proto/base/str.h"
#include "proto/gen/agentbox_warm.pb-c.h"

struct entry_message {
	Agentbox__V1__WarmEntry m;
	msg_duration prepare, oldest;
};

static void fill_entry(struct entry_message *x, const struct sandbox_warm_info *i)
{
	Agentbox__V1__WarmEntry *m = &x->m;

	agentbox__v1__warm_entry__init(m);
	m->name = (char *)i->name;
	m->account = (char *)i->account;
	m->template_id = (char *)i->template_id;
	m->size = i->size;
	m->configured_size = i->configured_size;
	m->ready = i->ready;
	m->coming = i->coming;
	m->waiting = i->waiting;
	m->failures = i->failures;
	m->failed = i->failed;
	m->why = (char *)i->why;
	m->output = (char *)i->output;
	m->made_in_hour = i->made_in_hour;
	m->per_hour = i->per_hour;
	m->hits = i->hits;
	m->misses = i->misses;
	m->made = i->made;
	m->failures_in_all = i->failures_in_all;
	if (i->prepare_ms)
		m->prepare_time = msg_span(&x->prepare, i->prepare_ms);
	if (i->oldest_ready_ms > 0)
		m->oldest_ready = msg_span(&x->oldest, (uint64_t)i->oldest_ready_ms);
}

static bool is_admin(struct rpc_call *c)
{
	struct status st;

	if (grant_daemon(rpc_call_who(c)) == GRANT_OK)
		return true;
	status_set(&st, R_UID_DENIED, "entries [warm NAME] are for admins");
	rpc_call_fail(c, &st);
	return false;
}

static void svc_warm_on_list(struct rpc_call *c, const ProtobufCMessage *message)
{
	const struct sandbox_core *core = rpc_call_service(c);
	Agentbox__V1__ListWarmResponse m = AGENTBOX__V1__LIST_WARM_RESPONSE__INIT;
	Agentbox__V1__WarmEntry **list;
	struct sandbox_warm_info info;
	struct entry_message *v;
	size_t n = 0;

	if (!is_admin(c))
		return;
	while (sandbox_warm_info(core, n, &info))
		n++;
	v = calloc(n + 1, sizeof(*v));
	list = calloc(n + 1, sizeof(*list));
	for (size_t i = 0; v && list && i < n && sandbox_warm_info(core, i, &info); i++) {
		fill_entry(&v[i], &info);
		list[m.n_entries++] = &v[i].m;
	}
	m.entries = list;
	m.quarantined = sandbox_warm_quarantined(core);
	if (v && list)
		rpc_call_reply(c, &m.base);
	else
		rpc_call_fail_errno(c, -ENOMEM, "answering");
	free(v);
	free(list);
}

static void reply_entry(struct rpc_call *c, const char *name)
{
	const struct sandbox_core *core = rpc_call_service(c);
	struct sandbox_warm_info info;
	struct entry_message x;

	for (size_t i = 0; sandbox_warm_info(core, i, &info); i++) {
		if (!str_eq(info.name, name))
			continue;
		fill_entry(&x, &info);
		rpc_call_reply(c, &x.m.base);
		return;
	}
}

static void on_set(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__SetWarmRequest *q = (const void *)message;
	int size = q->_size_case == AGENTBOX__V1__SET_WARM_REQUEST___SIZE_SIZE ? (int)MIN(q->size, WARM_SIZE_MAX + 1) : -1;
	struct status st;

	if (!is_admin(c))
		return;
	if (sandbox_warm_set(rpc_call_service(c), q->name, size, &st))
		reply_entry(c, q->name);
	else
		rpc_call_fail(c, &st);
}

static void on_retry(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__RetryWarmRequest *q = (const void *)message;
	struct status st;

	if (!is_admin(c))
		return;
	if (sandbox_warm_retry(rpc_call_service(c), q->name, &st))
		reply_entry(c, q->name);
	else
		rpc_call_fail(c, &st);
}

/* No call waits for anything. */
static const struct rpc_method svc_warm_methods[] = {
	RPC_UNARY_METHOD("WarmService", "List", list_warm, svc_warm_on_list, NULL, RPC_READS),
	RPC_UNARY_METHOD("WarmService", "Set", set_warm, on_set, NULL, RPC_CHANGES),
	RPC_UNARY_METHOD("WarmService", "Retry", retry_warm, on_retry, NULL, RPC_CHANGES),
};

int svc_warm_add(struct rpc_server *s, struct sandbox_core *core)
{
	return rpc_server_add(s, svc_warm_methods, ARRAY_SIZE(svc_warm_methods), core);
}
