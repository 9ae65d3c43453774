/* SPDX-License-Identifier: MIT */
/*
 * SandboxService.Watch: pulls events from daemon/sandbox as fast as the client reads. A client that does not
 * read costs one place in the log and, later, a resync.
 */
#include "daemon/rpc/svc_watch.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/rpc/call.h"
#include "daemon/rpc/msg.h"
#include "daemon/rpc/server.h"
#include "daemon/sandbox/sandbox.h"

static void send_event(struct rpc_call *c, struct sandbox_event *e)
{
	Agentbox__V1__SandboxEvent__EvidenceEntry entries[SANDBOX_EVIDENCE_MAX],
		*list[SANDBOX_EVIDENCE_MAX];
	Agentbox__V1__SandboxEvent m = AGENTBOX__V1__SANDBOX_EVENT__INIT;
	struct msg_sandbox sandbox = { .entries = NULL };
	msg_timestamp at;

	m.cursor = (char *)e->cursor;
	m.at = msg_time(&at, e->at_ms);
	m.type = (Agentbox__V1__SandboxEvent__Type)e->type;
	m.reason = (Agentbox__V1__Reason)e->reason;
	for (size_t i = 0; i < e->n_evidence; i++) {
		agentbox__v1__sandbox_event__evidence_entry__init(&entries[i]);
		entries[i].key = (char *)e->evidence[i].key;
		entries[i].value = (char *)e->evidence[i].value;
		list[i] = &entries[i];
	}
	m.evidence = list;
	m.n_evidence = e->n_evidence;
	if (e->sandbox && msg_sandbox_init(&sandbox, e->sandbox) == 0)
		m.sandbox = &sandbox.m;
	if (m.sandbox && msg_sandbox_mask(&sandbox, rpc_call_who(c)))
		m.n_evidence = 0;
	rpc_call_send(c, &m.base);
	msg_sandbox_fini(&sandbox);
}

static void pump(struct rpc_call *c)
{
	struct sandbox_event e;
	struct status over;

	/* Sending may end the call: then nothing is left to read from. */
	while (rpc_call_user(c) && rpc_call_room(c) && sandbox_watch_next(rpc_call_user(c), &e))
		send_event(c, &e);
	if (!rpc_call_user(c) || !sandbox_watch_is_over(rpc_call_user(c), &over))
		return;
	sandbox_watch_free(rpc_call_user(c));
	rpc_call_set_user(c, NULL);
	rpc_call_fail(c, &over);
}

static void svc_watch_on_ready(void *user)
{
	pump(user);
}

static bool read_types(const Agentbox__V1__WatchSandboxesRequest *q, uint32_t *ret, struct status *st)
{
	*ret = 0;
	for (size_t i = 0; i < q->n_types; i++) {
		if ((int)q->types[i] <= 0 || (int)q->types[i] > AGENTBOX__V1__SANDBOX_EVENT__TYPE__WARM_FAILED) {
			status_field(st, "types", "%d is no type of event", (int)q->types[i]);
			return false;
		}
		*ret |= BIT(q->types[i]);
	}
	return true;
}

static void on_message(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__WatchSandboxesRequest *q = (const void *)message;
	struct sandbox_watch_options o = {
		.who = rpc_call_who(c),
		.cursor = q->cursor,
		.sandbox = q->sandbox,
		.initial = q->initial,
		.all_owners = q->all_owners,
		.quota = rpc_call_quota(c),
	};
	struct status st = STATUS_OK;
	struct sandbox_watch *w;
	int r;

	if (!read_types(q, &o.types, &st)) {
		rpc_call_fail(c, &st);
		return;
	}
	r = sandbox_watch_new(rpc_call_service(c), &o, svc_watch_on_ready, c, &w, &st);
	if (r < 0) {
		if (status_ok(&st))
			status_errno(&st, r, "Watch");
		rpc_call_fail(c, &st);
		return;
	}
	rpc_call_set_user(c, w);
	rpc_call_accept(c);	/* nothing that happens from now on is missed */
}

static void svc_watch_on_silence(struct rpc_call *c)
{
	struct sandbox_event e;

	if (!rpc_call_user(c))
		return;
	sandbox_watch_heartbeat(rpc_call_user(c), &e);
	send_event(c, &e);
}

static void on_gone(struct rpc_call *c, enum rpc_gone why)
{
	sandbox_watch_free(rpc_call_user(c));
	rpc_call_set_user(c, NULL);
}

static const struct rpc_handler handler = {
	.on_message = on_message,
	.on_room = pump,
	.on_silence = svc_watch_on_silence,
	.on_gone = on_gone,
};

static const struct rpc_method svc_watch_methods[] = {
	{ .path = "/agentbox.v1.SandboxService/Watch", .kind = RPC_SERVER_STREAM,
	  .request = &agentbox__v1__watch_sandboxes_request__descriptor, .handler = &handler,
	  .effect = RPC_OBSERVES },
};

int svc_watch_add(struct rpc_server *s, struct sandbox_core *core)
{
	return rpc_server_add(s, svc_watch_methods, ARRAY_SIZE(svc_watch_methods), core);
}
