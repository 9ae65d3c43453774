/* SPDX-License-Identifier: MIT */
/* SnapshotService. */
#include <errno.h>

#include "proto/gen/agentbox_snapshot.pb-c.h"

#include "client/lib/client.h"
#include "client/lib/msg.h"
#include "proto/base/str.h"

#define PATH(name) "/agentbox.v1.SnapshotService/" name

int ab_snapshot_create_start(struct ab_client *c, const char *sandbox, const char *name,
			     const char *request_id, const struct ab_call_options *how,
			     struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Create"),
		.reply = &agentbox__v1__snapshot__descriptor,
		.make = msg_snapshot,
		.repeatable = true,	/* the request id sees to it */
	};
	Agentbox__V1__CreateSnapshotRequest req = AGENTBOX__V1__CREATE_SNAPSHOT_REQUEST__INIT;
	struct ab_call *call;
	int r;

	if (str_is_empty(sandbox))
		return -EINVAL;
	r = call_new_once(c, &m, how, request_id, &req.request_id, &call);
	if (r < 0)
		return r;
	req.sandbox = (char *)sandbox;
	req.name = (char *)name;
	return call_submit(call, &req.base, ret);
}

int ab_snapshot_create(struct ab_client *c, const char *sandbox, const char *name, const char *request_id,
		       const struct ab_call_options *how, struct ab_snapshot **ret)
{
	return wait_object(c, ab_snapshot_create_start(c, sandbox, name, request_id, how, &c->started),
			   (void **)ret);
}

int ab_snapshot_list_start(struct ab_client *c, const struct ab_snapshot_list_options *o,
			   const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("List"),
		.reply = &agentbox__v1__list_snapshots_response__descriptor,
		.make = msg_snapshot_list,
		.repeatable = true,
	};
	static const struct ab_snapshot_list_options none;
	Agentbox__V1__ListSnapshotsRequest req = AGENTBOX__V1__LIST_SNAPSHOTS_REQUEST__INIT;

	o = o ? o : &none;
	req.sandbox = (char *)o->sandbox;
	req.name = (char *)o->name;
	req.page_size = o->page_size;
	req.page_token = (char *)o->page_token;
	req.cached = o->cached;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_snapshot_list(struct ab_client *c, const struct ab_snapshot_list_options *o,
		     const struct ab_call_options *how, struct ab_snapshot_list **ret)
{
	return wait_object(c, ab_snapshot_list_start(c, o, how, &c->started), (void **)ret);
}

int ab_snapshot_delete_start(struct ab_client *c, const char *snapshot, const struct ab_call_options *how,
			     struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Delete"),
		.reply = &agentbox__v1__delete_snapshot_response__descriptor,
		.answer_at = offsetof(Agentbox__V1__DeleteSnapshotResponse, found),
	};
	Agentbox__V1__DeleteSnapshotRequest req = AGENTBOX__V1__DELETE_SNAPSHOT_REQUEST__INIT;

	if (str_is_empty(snapshot))
		return -EINVAL;
	req.snapshot = (char *)snapshot;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_snapshot_delete(struct ab_client *c, const char *snapshot, const struct ab_call_options *how,
		       bool *ret_found)
{
	return wait_answer(c, ab_snapshot_delete_start(c, snapshot, how, &c->started), ret_found);
}
