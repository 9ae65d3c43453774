/* SPDX-License-Identifier: MIT */
/* agentbox.v1.SnapshotService: decodes, asks daemon/sandbox, replies. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/rpc/check.h"
#include "daemon/rpc/msg.h"
#include "daemon/rpc/pending.h"
#include "daemon/rpc/server.h"
#include "daemon/rpc/svc_sandbox.h"
#include "proto/gen/agentbox_snapshot.pb-c.h"

struct msg_snapshot {
	Agentbox__V1__Snapshot m;
	Agentbox__V1__Freshness freshness;
	msg_timestamp as_of, created_at;
};

static void svc_snapshot_fill(struct msg_snapshot *s, const struct sandbox_snapshot *from)
{
	agentbox__v1__snapshot__init(&s->m);
	s->m.id = (char *)from->id;
	s->m.names = (char **)from->names;
	s->m.n_names = from->n_names;
	s->m.source_sandbox = (char *)from->source_sandbox;
	s->m.created_at = msg_time(&s->created_at, from->created_at_ms);
	s->m.freshness = msg_freshness(&s->freshness, &s->as_of, from->source, from->as_of_ms);
}

/* --- Create --- */

static void reply_created(void *user, const struct status *st, const struct sandbox_snapshot *snapshot)
{
	struct msg_snapshot m;

	if (snapshot)
		svc_snapshot_fill(&m, snapshot);
	rpc_call_answer(pending_take(user), st, &m.m.base);
}

static void on_create(struct rpc_call *c, const ProtobufCMessage *message)
{
	/* The call owns the message; hashing puts it back as it was. */
	Agentbox__V1__CreateSnapshotRequest *q = (Agentbox__V1__CreateSnapshotRequest *)message;
	struct pending *p = pending_new(c, q->sandbox);
	struct sandbox_snapshot_create args = {
		.request_id = q->request_id,
		.name = q->name,
	};
	struct status st;

	if (!p)
		return;
	if (pending_hash(message, &q->request_id, args.params_hash) < 0) {
		status_errno(&st, -ENOMEM, "reading the request");
		pending_fail(p, &st);
	} else {
		pending_started(
			p, sandbox_snapshot_create(p->core, &p->head, &args, reply_created, &p->op));
	}
}

/* --- List --- */

static void reply_listed(void *user, const struct status *st, const struct sandbox_snapshot_page *page)
{
	Agentbox__V1__ListSnapshotsResponse m = AGENTBOX__V1__LIST_SNAPSHOTS_RESPONSE__INIT;
	size_t n = page ? page->n : 0;
	struct msg_snapshot *v = calloc(n + 1, sizeof(*v));
	Agentbox__V1__Snapshot **list = calloc(n + 1, sizeof(*list));
	struct status out = *st;
	char *token = NULL;
	size_t k = 0, bytes = 0;

	if (status_ok(&out) && (!v || !list))
		status_errno(&out, -ENOMEM, "answering");
	for (; k < n && status_ok(&out); k++) {
		svc_snapshot_fill(&v[k], &page->snapshots[k]);
		list[k] = &v[k].m;
		if (!check_page_room(&bytes, &list[k]->base))
			break;
	}
	if (status_ok(&out) && k < n &&
	    !(token = sandbox_index_token(page->from + k, page->snapshots[k - 1].id, page->question)))
		status_errno(&out, -ENOMEM, "answering");
	if (status_ok(&out)) {
		m.snapshots = list;
		m.n_snapshots = k;
		m.next_page_token = token ? token : (char *)page->next_page_token;
	}
	rpc_call_answer(pending_take(user), &out, &m.base);
	free(token);
	free(v);
	free(list);
}

static void svc_snapshot_on_list(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__ListSnapshotsRequest *q = (const void *)message;
	struct pending *p = pending_new(c, q->sandbox);
	const struct sandbox_snapshot_list args = {
		.name = q->name,
		.page_size = q->page_size,
		.page_token = q->page_token,
		.cached = q->cached,
	};

	if (p)
		pending_started(p, sandbox_list_snapshots(p->core, &p->head, &args, reply_listed,
							  &p->op));
}

/* --- Delete --- */

static void reply_deleted(void *user, const struct status *st, bool found)
{
	Agentbox__V1__DeleteSnapshotResponse m = AGENTBOX__V1__DELETE_SNAPSHOT_RESPONSE__INIT;

	m.found = found;
	rpc_call_answer(pending_take(user), st, &m.base);
}

static void on_delete(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__DeleteSnapshotRequest *q = (const void *)message;
	struct pending *p = pending_new(c, NULL);

	if (p)
		pending_started(p, sandbox_delete_snapshot(p->core, &p->head, q->snapshot,
							   reply_deleted, &p->op));
}

/* ------------------------------------------------------------------------------------------------ */

static const struct rpc_method svc_snapshot_methods[] = {
	PENDING_METHOD("SnapshotService", "Create", create_snapshot, on_create, RPC_BEGINS),
	PENDING_METHOD("SnapshotService", "List", list_snapshots, svc_snapshot_on_list, RPC_READS),
	PENDING_METHOD("SnapshotService", "Delete", delete_snapshot, on_delete, RPC_CHANGES),
};

int svc_snapshot_add(struct rpc_server *s, struct sandbox_core *core)
{
	return rpc_server_add(s, svc_snapshot_methods, ARRAY_SIZE(svc_snapshot_methods), core);
}
