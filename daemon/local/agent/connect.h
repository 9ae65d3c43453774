/* SPDX-License-Identifier: MIT */
/*
 * The Connect protocol, server side: one call of an RPC of the agent. Both codecs, unary and
 * streamed shapes, gzip where the client offers it, deadlines, errors in the shape that the kind of
 * call asks for. A handler sees messages only.
 *
 * call_reply(), call_end(), call_fail() end the call: the handler must not touch it afterwards. When
 * the call ends by itself (client gone, deadline, sandbox killed) `gone` is called first, once, and
 * the same holds.
 */
#ifndef AB_DAEMON_LOCAL_AGENT_CONNECT_H
#define AB_DAEMON_LOCAL_AGENT_CONNECT_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "daemon/common/ev/loop.h"
#include "daemon/local/engine/container.h"
#include "daemon/local/state/state.h"
#include "proto/base/buf.h"
#include "proto/base/status.h"
#include "proto/wire/frame.h"

#define CALL_MESSAGE_MAX_BYTES (16u * 1024 * 1024)	/* RESOURCE_EXHAUSTED above it */
#define CALL_DEFAULT_USER      "user"

struct call;
struct http_stream;
struct local;

typedef void call_fn(struct call *c);

struct rpc_method {
	const char *path;
	const ProtobufCMessageDescriptor *in;
	bool stream_in, stream_out;
	bool own_deadline;	/* the handler uses c->timeout_ms itself */
	call_fn *start;		/* c->req is there; with stream_in once for each message */
	call_fn *input_ended;	/* stream_in: the client has sent all */
};

struct call {
	uint32_t magic;
	struct local *l;
	struct sandbox *s;
	struct http_stream *x;
	const struct rpc_method *method;
	ProtobufCMessage *req;		/* a handler may take it and leave NULL */

	/* the handler's */
	void *priv;
	uint32_t selected_pid;		/* stream_in: of an earlier message */
	call_fn *gone;			/* NULL = nothing to forget */
	call_fn *room;			/* call_has_room() may be true again; may be NULL */

	/* what the headers said */
	bool has_timeout;
	uint64_t timeout_ms;		/* from the request's arrival */
	uint64_t arrived_ms;
	uint64_t keepalive_ms;

	/* private */
	bool json, gzip_in, gzip_out, streaming;
	bool head_sent, running, over, has_message, input_over, holding;
	struct frame_reader reader;
	struct buf body, out;
	struct container_user user;		/* who was named; no name = nobody was */
	struct traffic traffic;
	struct timer deadline;
	struct grave grave;
};

/* Takes the exchange over. */
void call_request(struct local *l, struct sandbox *s, struct http_stream *x,
		  const struct rpc_method *method);

void call_fail(struct call *c, enum ab_code code, const char *fmt, ...) printf_like(3, 4);
/* The one answer of a call that has one. */
void call_reply(struct call *c, const ProtobufCMessage *m);
/* One message of a streamed answer; there is always room for it, but see call_has_room(). */
void call_send(struct call *c, const ProtobufCMessage *m);
void call_end(struct call *c);
bool call_has_room(const struct call *c);
/* stream_in: start() returned without being through with the message; call_next() when it is. */
void call_hold(struct call *c);
void call_next(struct call *c);

/* The user the call is for; NULL after the call failed. */
const struct container_user *call_user(struct call *c);

#endif
