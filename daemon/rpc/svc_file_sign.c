/* SPDX-License-Identifier: MIT */
/* FileService SignUrl: nothing is asked of the agent, the link is computed. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/rpc/check.h"
#include "daemon/rpc/file_call.h"
#include "daemon/rpc/msg.h"
#include "proto/base/clock.h"
#include "proto/base/str.h"

static void reply(struct file_call *x, char *url, int64_t expires_s)
{
	Agentbox__V1__SignUrlResponse m = AGENTBOX__V1__SIGN_URL_RESPONSE__INIT;
	struct rpc_call *call = x->call;
	msg_timestamp at;

	m.url = url;
	m.expires_at = expires_s ? msg_time(&at, expires_s * 1000) : NULL;
	rpc_call_reply(call, &m.base);
	file_call_free(x);
}

static void go_sign(struct file_call *x)
{
	struct envd_target t = file_call_target(x);
	struct envd_link l = { .path = x->path, .user = t.user, .write = x->for_write,
			       .plain = x->at.plain_ports };
	struct status st;
	char *url;

	if (x->expires_for_ms && str_is_empty(t.at.token)) {
		status_set(&st, R_UNSUPPORTED, "the sandbox is not secure: its links carry no signature "
					       "and do not expire");
		file_call_fail(x, &st);
		return;
	}
	if (x->expires_for_ms)
		l.expires_s = (clock_wall_ms() + (int64_t)x->expires_for_ms + 999) / 1000;
	url = envd_sign_link(&t, &l);
	if (!url) {
		file_call_fail_errno(x, ENOMEM);
		return;
	}
	reply(x, url, l.expires_s);
	str_free_secret(url);
}

static bool svc_file_sign_check(const Agentbox__V1__SignUrlRequest *q, struct file_call *x,
				struct status *st)
{
	if (!msg_read_duration(q->expires_in, "expires_in", false, &x->expires_for_ms, st))
		return false;
	if (q->operation != AGENTBOX__V1__SIGN_URL_REQUEST__OPERATION__READ &&
	    q->operation != AGENTBOX__V1__SIGN_URL_REQUEST__OPERATION__WRITE) {
		status_field(st, "operation", "must be READ or WRITE");
		return false;
	}
	x->for_write = q->operation == AGENTBOX__V1__SIGN_URL_REQUEST__OPERATION__WRITE;
	return true;
}

static void svc_file_sign_on_request(struct rpc_call *call, const ProtobufCMessage *message)
{
	const Agentbox__V1__SignUrlRequest *q = (const void *)message;
	struct file_call *x = file_call_new(call);
	struct status st = STATUS_OK;

	if (!x || !file_call_take(x, q->sandbox, q->path, "path", q->user))
		return;
	x->go = go_sign;
	if (svc_file_sign_check(q, x, &st))
		file_call_resolve(x);
	else
		file_call_fail(x, &st);
}

const struct rpc_handler file_sign_handler = {.on_message = svc_file_sign_on_request,
					      .on_gone = file_call_on_gone};
