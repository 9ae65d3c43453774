/* SPDX-License-Identifier: MIT */
/* FileService Watch, a stream of changes, and SignUrl. */
#include <errno.h>

#include "proto/gen/agentbox_file.pb-c.h"

#include "client/lib/client.h"
#include "client/lib/msg.h"
#include "client/lib/obj.h"
#include "proto/base/must.h"

#define PATH(name) "/agentbox.v1.FileService/" name

/* --- watching --- */

static int skip_change(struct ab_call *call)
{
	struct ab_file_event e;

	return ab_file_watch_next(call, &e);
}

int ab_file_watch_start(struct ab_client *c, const struct ab_path *path, const struct ab_watch_options *o,
			const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Watch"),
		.reply = &agentbox__v1__file_event__descriptor,
		.skip = skip_change,
		.no_deadline = true,
	};
	static const struct ab_watch_options none;
	Agentbox__V1__WatchDirRequest req = AGENTBOX__V1__WATCH_DIR_REQUEST__INIT;

	if (msg_path_out(path, &req.sandbox, &req.path, &req.user) < 0)
		return -EINVAL;
	o = o ? o : &none;
	req.recursive = o->recursive;
	req.include_entry = o->entries;
	req.allow_network_mounts = o->network_mounts;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_file_watch_next(struct ab_call *call, struct ab_file_event *ret)
{
	ProtobufCMessage *m;

	must(call->method->skip == skip_change);
	while (call_next_message(call, &m)) {
		obj_free(give(call->event));
		if (msg_file_event(m, &call->event, ret) < 0)
			return call_fail(call, -ENOMEM);
		if (ret->type)
			return 1;
	}
	return 0;
}

/* --- links --- */

int ab_file_sign_start(struct ab_client *c, const struct ab_path *path, bool write, uint64_t expires_in_ms,
		       const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("SignUrl"),
		.reply = &agentbox__v1__sign_url_response__descriptor,
		.make = msg_link,
		.repeatable = true,
	};
	Agentbox__V1__SignUrlRequest req = AGENTBOX__V1__SIGN_URL_REQUEST__INIT;
	Google__Protobuf__Duration expires;

	if (msg_path_out(path, &req.sandbox, &req.path, &req.user) < 0)
		return -EINVAL;
	req.operation = write ? AGENTBOX__V1__SIGN_URL_REQUEST__OPERATION__WRITE
			      : AGENTBOX__V1__SIGN_URL_REQUEST__OPERATION__READ;
	req.expires_in = msg_duration(&expires, expires_in_ms);
	return call_start(c, &m, &req.base, how, ret);
}

int ab_file_sign(struct ab_client *c, const struct ab_path *path, bool write, uint64_t expires_in_ms,
		 const struct ab_call_options *how, struct ab_link **ret)
{
	return wait_object(c, ab_file_sign_start(c, path, write, expires_in_ms, how, &c->started), (void **)ret);
}
