/* SPDX-License-Identifier: MIT */
/*
 * What a service gives to the server: a table of its methods and, per method, what to do with a call.
 * The table is static; the server keeps pointers into it. A method of the .proto files that is in no
 * table answers UNIMPLEMENTED.
 */
#ifndef AB_DAEMON_RPC_METHOD_H
#define AB_DAEMON_RPC_METHOD_H

#include <stdbool.h>

#include <protobuf-c/protobuf-c.h>

struct rpc_call;

enum rpc_kind {
	RPC_UNARY,		/* one request, one response */
	RPC_SERVER_STREAM,	/* one request, any number of responses */
	RPC_CLIENT_STREAM,	/* any number of requests, one response */
	RPC_BIDI,
};

/* Why a call is over before its handler ended it. */
enum rpc_gone {
	RPC_GONE_CANCELLED,	/* the client cancelled it */
	RPC_GONE_DEADLINE,	/* its deadline passed (also when the client noticed first) */
	RPC_GONE_LOST,		/* the connection ended: the process closed it or died */
	RPC_GONE_SERVER,	/* the server ended it: drain, shutdown, a broken or stalled client */
	RPC_GONE_RIGHT,		/* its client lost the right to it */
};

/* Called on the loop, never from inside a call into rpc/call.h. A handler may end the call in any of
 * these but on_gone. */
struct rpc_handler {
	/* A request message. Unary, server stream: called exactly once; the message stays valid until
	 * the call is over for the handler. Client stream, bidi: once for each message asked for with
	 * rpc_call_next() (the first needs no asking); valid until the return. */
	void (*on_message)(struct rpc_call *c, const ProtobufCMessage *message);
	/* Client stream, bidi; may be NULL. The same for a message as it came, before it is decoded, but for the first one. False: it
	 * is for on_message. */
	bool (*on_encoded)(struct rpc_call *c, const uint8_t *p, size_t n);
	/* The client sent its last message. Client stream, bidi only. */
	void (*on_end)(struct rpc_call *c);
	/* There is room to send again (rpc_call_room() was 0 before). May be NULL. */
	void (*on_room)(struct rpc_call *c);
	/* Nothing was sent for 30 s: send a heartbeat. NULL = none wanted. */
	void (*on_silence)(struct rpc_call *c);
	/* The call is over and nobody listens any more: cancel what works for it, free rpc_call_user().
	 * Not called after the handler ended the call itself. The call must not be touched after it. NULL: nothing works for it. */
	void (*on_gone)(struct rpc_call *c, enum rpc_gone why);
};

/* What a stop of the daemon does with an open call. A repeat with a request id joins what was begun, so such calls need not be
 * waited for; those whose request has an empty one are. */
enum rpc_at_stop {
	RPC_STOP_REPEAT = 0,	/* a stream ends at once, a unary call after a moment: DRAINING, and a repeat does no harm */
	RPC_STOP_ONCE,		/* the same, but it may have been done already: OUTCOME_UNKNOWN */
	RPC_STOP_WAIT,		/* it is waited for: what was transferred would be lost */
};

/* What a call does beyond its answer. */
enum rpc_effect {
	RPC_CHANGES = 0,
	RPC_BEGINS,		/* changes, by a request that has to be looked for where a stop cuts it off from its answer */
	RPC_KEEPS,		/* goes on with what it has, again and again: Renew, Resize */
	RPC_READS,
	RPC_OBSERVES,		/* reads, and may be called by who may only observe */
};

struct rpc_method {
	const char *path;	/* "/agentbox.v1.SandboxService/Create" */
	enum rpc_kind kind;
	bool waits;		/* a unary one that may stay open for long: counts as a long stream */
	const ProtobufCMessageDescriptor *request;
	const struct rpc_handler *handler;
	enum rpc_at_stop at_stop;
	enum rpc_effect effect;
};

static inline bool rpc_method_is_change(const struct rpc_method *m)
{
	return m->effect == RPC_CHANGES || m->effect == RPC_BEGINS;
}

/* A row of a service's table: a unary method whose request is the message `type`. */
#define RPC_UNARY_METHOD(service, name, type, fn, gone, does)                                      \
	{ .path = "/agentbox.v1." service "/" name, .kind = RPC_UNARY,                             \
	  .request = &agentbox__v1__##type##_request__descriptor,                                  \
	  .handler = &(const struct rpc_handler){ .on_message = (fn), .on_gone = (gone) },         \
	  .effect = (does) }

#endif
