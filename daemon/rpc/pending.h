/* SPDX-License-Identifier: MIT */
/* What ties a call to what daemon/sandbox does for it, an operation or a held lease: whichever ends first ends the
 * other. */
#ifndef AB_DAEMON_RPC_PENDING_H
#define AB_DAEMON_RPC_PENDING_H

#include "daemon/rpc/call.h"
#include "daemon/sandbox/sandbox.h"

struct pending {
	struct rpc_call *call;
	struct sandbox_core *core;
	struct sandbox_call head;	/* of the operation, while the handler starts it */
	struct sandbox_op *op;
	struct sandbox_held *held;		/* Hold, once it is taken */
};

/* For an operation about `sandbox`. NULL: the call has failed already. */
struct pending *pending_new(struct rpc_call *c, const char *sandbox);
/* The end of the operation: gives its call back. Takes the pending as done functions get it. */
struct rpc_call *pending_take(void *user);
void pending_fail(struct pending *p, const struct status *st);
/* After an operation of daemon/sandbox was asked to start. */
void pending_started(struct pending *p, int r);
/* For rpc_handler.on_gone. */
void pending_gone(struct rpc_call *c, enum rpc_gone why);

#define PENDING_METHOD(service, name, type, fn, does) RPC_UNARY_METHOD(service, name, type, fn, pending_gone, does)

/* The hash of a request without its id, which is part of it and put back; the message is in canonical
 * form. */
must_check int pending_hash(const ProtobufCMessage *m, char **request_id, uint8_t ret[32]);

#endif
