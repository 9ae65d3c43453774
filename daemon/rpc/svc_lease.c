/* SPDX-License-Identifier: MIT */
/*
 * LeaseService. A unary call is an operation of daemon/sandbox and its answer; Hold is one whose lease then
 * lives as long as the call. When the daemon itself ends the stream, the lease stays for its holder
 * to come back.
 */
#include "daemon/rpc/svc_lease.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/auth/owner.h"
#include "daemon/rpc/msg.h"
#include "daemon/rpc/pending.h"
#include "daemon/rpc/server.h"
#include "proto/gen/agentbox_lease.pb-c.h"

struct lease_message {
	Agentbox__V1__Lease m;
	msg_timestamp expires_at, end_at;
};

static Agentbox__V1__Lease *svc_lease_fill(struct lease_message *x, const struct sandbox_lease *lease)
{
	agentbox__v1__lease__init(&x->m);
	x->m.id = (char *)lease->id;
	x->m.sandbox = (char *)lease->sandbox;
	x->m.uid = owner_uid(lease->uid);
	x->m.pid = lease->pid;
	x->m.label = (char *)lease->label;
	x->m.expires_at = msg_time(&x->expires_at, lease->expires_at_ms);
	x->m.sandbox_end_at = msg_time(&x->end_at, lease->sandbox_end_at_ms);
	return &x->m;
}

static void reply_lease(void *user, const struct status *st, const struct sandbox_lease *lease)
{
	struct rpc_call *c = pending_take(user);
	struct lease_message x;

	if (status_ok(st))
		rpc_call_reply(c, &svc_lease_fill(&x, lease)->base);
	else
		rpc_call_fail(c, st);
}

/* --- Hold --- */

static void on_held(void *user, enum sandbox_held_change change, const struct status *st,
		    const struct sandbox_lease *lease)
{
	struct pending *p = user;
	struct lease_message x;

	switch (change) {
	case SANDBOX_HELD_CHANGED:
		/* Only the newest counts: one who does not read is told with the next. */
		if (rpc_call_room(p->call))
			rpc_call_send(p->call, &svc_lease_fill(&x, lease)->base);
		return;
	case SANDBOX_HELD_LOST:
		sandbox_held_free(p->held, false);
		pending_fail(p, st);
		return;
	}
}

static void on_taken(void *user, const struct status *st, const struct sandbox_lease *lease)
{
	struct pending *p = user;
	struct lease_message x;
	struct status failure;
	int r;

	p->op = NULL;
	if (!status_ok(st)) {
		pending_fail(p, st);
		return;
	}
	r = sandbox_held_new(p->core, lease->id, on_held, p, &p->held);
	if (r < 0) {
		status_errno(&failure, r, "holding the lease");
		pending_fail(p, &failure);
		return;
	}
	rpc_call_send(p->call, &svc_lease_fill(&x, lease)->base);
}

static void on_hold(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__HoldLeaseRequest *q = (const void *)message;
	struct pending *p = pending_new(c, q->sandbox);
	struct sandbox_acquire a = {
		.label = q->label,
		.lease_id = q->lease_id,
		.kind = SANDBOX_LEASE_STREAM,
	};

	if (p)
		pending_started(
			p, sandbox_acquire(p->core, &p->head, &a, on_taken, &p->op));
}

static void svc_lease_on_silence(struct rpc_call *c)
{
	struct pending *p = rpc_call_user(c);
	struct sandbox_lease lease;
	struct lease_message x;

	if (!p || !p->held || !sandbox_held_view(p->held, &lease))
		return;
	svc_lease_fill(&x, &lease)->heartbeat = true;
	rpc_call_send(c, &x.m.base);
}

/* --- the others --- */

static void on_acquire(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__AcquireLeaseRequest *q = (const void *)message;
	struct pending *p = pending_new(c, q->sandbox);
	struct status st = STATUS_OK;
	struct sandbox_acquire a = {
		.label = q->label,
		.lease_id = q->lease_id,
		.kind = q->process ? SANDBOX_LEASE_PROCESS : SANDBOX_LEASE_TTL,
	};

	if (!p)
		return;
	if (q->process == (q->ttl != NULL))
		status_field(&st, "ttl", "give exactly one of ttl and process");
	else if (!q->ttl || msg_read_required(q->ttl, "ttl", &a.ttl_ms, &st)) {
		pending_started(
			p, sandbox_acquire(p->core, &p->head, &a, reply_lease, &p->op));
		return;
	}
	pending_fail(p, &st);
}

static void on_renew(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__RenewLeaseRequest *q = (const void *)message;
	struct pending *p = pending_new(c, NULL);
	struct status st = STATUS_OK;
	uint64_t ttl_ms = 0;

	if (!p)
		return;
	if (msg_read_required(q->ttl, "ttl", &ttl_ms, &st)) {
		pending_started(p, sandbox_renew(p->core, &p->head, q->lease_id, ttl_ms,
						 reply_lease, &p->op));
		return;
	}
	pending_fail(p, &st);
}

static void reply_released(void *user, const struct status *st, bool yes)
{
	Agentbox__V1__ReleaseLeaseResponse m = AGENTBOX__V1__RELEASE_LEASE_RESPONSE__INIT;

	rpc_call_answer(pending_take(user), st, &m.base);
}

static void on_release(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__ReleaseLeaseRequest *q = (const void *)message;
	struct pending *p = pending_new(c, NULL);

	if (p)
		pending_started(p, sandbox_release(p->core, &p->head, q->lease_id,
						   reply_released, &p->op));
}

static void reply_page(void *user, const struct status *st, const struct sandbox_lease_page *page)
{
	Agentbox__V1__ListLeasesResponse m = AGENTBOX__V1__LIST_LEASES_RESPONSE__INIT;
	struct rpc_call *c = pending_take(user);
	struct lease_message *v;
	Agentbox__V1__Lease **list;
	struct status failure;

	if (!status_ok(st)) {
		rpc_call_fail(c, st);
		return;
	}
	v = calloc(page->n + 1, sizeof(*v));
	list = calloc(page->n + 1, sizeof(*list));
	if (v && list) {
		for (size_t i = 0; i < page->n; i++)
			list[i] = svc_lease_fill(&v[i], &page->leases[i]);
		m.leases = list;
		m.n_leases = page->n;
		m.next_page_token = (char *)page->next_page_token;
		rpc_call_reply(c, &m.base);
	} else {
		status_errno(&failure, -ENOMEM, "answering");
		rpc_call_fail(c, &failure);
	}
	free(v);
	free(list);
}

static void svc_lease_on_list(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__ListLeasesRequest *q = (const void *)message;
	struct pending *p = pending_new(c, q->sandbox);

	if (p)
		pending_started(p, sandbox_list_leases(p->core, &p->head, q->page_size,
						       q->page_token, reply_page, &p->op));
}

static const struct rpc_handler hold = {
	.on_message = on_hold, .on_silence = svc_lease_on_silence, .on_gone = pending_gone};

static const struct rpc_method svc_lease_methods[] = {
	{ .path = "/agentbox.v1.LeaseService/Hold", .kind = RPC_SERVER_STREAM,
	  .request = &agentbox__v1__hold_lease_request__descriptor, .handler = &hold },
	PENDING_METHOD("LeaseService", "Acquire", acquire_lease, on_acquire, RPC_CHANGES),
	PENDING_METHOD("LeaseService", "Renew", renew_lease, on_renew, RPC_KEEPS),
	PENDING_METHOD("LeaseService", "Release", release_lease, on_release, RPC_CHANGES),
	PENDING_METHOD("LeaseService", "List", list_leases, svc_lease_on_list, RPC_READS),
};

int svc_lease_add(struct rpc_server *s, struct sandbox_core *core)
{
	return rpc_server_add(s, svc_lease_methods, ARRAY_SIZE(svc_lease_methods), core);
}
