/* SPDX-License-Identifier: MIT */
#include "daemon/rpc/pending.h"

#include <errno.h>
#include <stdlib.h>

#include "proto/cloud/link.h"

struct pending *pending_new(struct rpc_call *c, const char *sandbox)
{
	struct pending *p = rpc_call_new_user(c, sizeof(*p));

	if (!p)
		return NULL;
	p->call = c;
	p->core = rpc_call_service(c);
	p->head = (struct sandbox_call){ .who = rpc_call_who(c), .sandbox = sandbox, .trace = rpc_call_trace(c),
					 .deadline_ms = rpc_call_deadline_ms(c), .user = p };
	return p;
}

struct rpc_call *pending_take(void *user)
{
	struct pending *p = user;
	struct rpc_call *c = p->call;

	free(p);
	return c;
}

void pending_fail(struct pending *p, const struct status *st)
{
	rpc_call_fail(pending_take(p), st);
}

void pending_started(struct pending *p, int r)
{
	scratch_ struct status st;

	if (r == 0)
		return;
	if (r == -ESRCH)	/* of a lease that would live as long as it */
		status_set_code(&st, CODE_CANCELLED, "the calling process has died");
	else
		status_errno(&st, r, "starting the operation");
	pending_fail(p, &st);
}

void pending_gone(struct rpc_call *c, enum rpc_gone why)
{
	struct pending *p = rpc_call_user(c);

	if (!p)
		return;
	sandbox_cancel(p->op);
	sandbox_held_free(p->held, why == RPC_GONE_SERVER);
	free(p);
}

int pending_hash(const ProtobufCMessage *m, char **request_id, uint8_t ret[32])
{
	char *id = *request_id;
	uint8_t *bytes;
	size_t n;

	*request_id = (char *)protobuf_c_empty_string;
	n = protobuf_c_message_get_packed_size(m);
	bytes = malloc(n + 1);
	if (bytes) {
		protobuf_c_message_pack(m, bytes);
		cloud_sha256(bytes, n, ret);
		free(bytes);
	}
	*request_id = id;
	return bytes ? 0 : -ENOMEM;
}
