/* SPDX-License-Identifier: MIT */
/*
 * One RPC, as its handler sees it. Loop thread only.
 *
 * A call has exactly one end: the handler ends it with one of reply, finish and fail, or on_gone
 * tells the handler that it is over. After either, the handler must not touch the call.
 * Request messages have passed the scan (depth, counts, UTF-8 without NUL) and the size limit, and
 * are in canonical form (canon.h): maps sorted by key, each key once, no unknown fields.
 */
#ifndef AB_DAEMON_RPC_CALL_H
#define AB_DAEMON_RPC_CALL_H

#include <stdbool.h>

#include <protobuf-c/protobuf-c.h>

#include "daemon/auth/access.h"
#include "daemon/rpc/method.h"
#include "proto/base/cc.h"
#include "proto/base/status.h"

struct loop;
struct principal;
struct trace;
struct quota;
struct encoded;

const struct principal *rpc_call_who(const struct rpc_call *c);	/* lives as long as the connection */
const struct trace *rpc_call_trace(const struct rpc_call *c);	/* lives as long as the call */
/* Which rule of [access] says what its client may, and where it stands. */
void rpc_call_rule(const struct rpc_call *c, char ret[ACCESS_TEXT_BYTES]);
void *rpc_call_service(const struct rpc_call *c);		/* as given to rpc_server_add() */
struct loop *rpc_call_loop(const struct rpc_call *c);
/* Its line of the audit is made of its answer too. */
bool rpc_call_is_audited(const struct rpc_call *c);
struct encoded *rpc_call_encoded(const struct rpc_call *c);	/* the server's: msg.h */
/* Absolute BOOTTIME ms; 0 = none. For what works for the call: slightly before the deadline that the
 * server enforces, so that the true reason still reaches the client. */
uint64_t rpc_call_deadline_ms(const struct rpc_call *c);
/* The handler's own; NULL at first. */
void *rpc_call_user(const struct rpc_call *c);
void rpc_call_set_user(struct rpc_call *c, void *user);
/* n zeroed bytes for it, from calloc(). NULL: there is no memory, and the call has failed. */
void *rpc_call_new_user(struct rpc_call *c, size_t n);

/* Client stream, bidi: deliver one more message when it comes. Until asked, no more is read from the
 * client, which is the backpressure. May be called from inside on_message. */
void rpc_call_next(struct rpc_call *c);

/* Queues one message; for streams. Never refused for lack of room, but look at rpc_call_room() first
 * and wait for on_room when it is 0. Without memory the call fails: on_gone comes. */
void rpc_call_send(struct rpc_call *c, const ProtobufCMessage *message);
/* The same for a message that is encoded already: its beginning, at most RPC_SEND_HEAD_MAX bytes, and the
 * bytes of its last field, which are copied once, to where they are sent from. */
#define RPC_SEND_HEAD_MAX 64u
void rpc_call_send_encoded(struct rpc_call *c, const void *head, size_t n_head, const void *p, size_t n);
size_t rpc_call_room(struct rpc_call *c);	/* bytes */
/* For streams: what was asked for is under way. The client gets the response's head, if it has it not yet, and so knows
 * that it is served although nothing is to be sent. */
void rpc_call_accept(struct rpc_call *c);
/* Charges n bytes that the handler is about to hold for the call, until the call's end. False: its client's uid has no
 * room for them, and *st says so. */
bool rpc_call_hold(struct rpc_call *c, size_t n, struct status *st);
/* What the handler's own containers are charged to; lives as long as the connection. */
struct quota *rpc_call_quota(const struct rpc_call *c);

/* The ends. reply = send + OK. finish: OK, for streams. */
void rpc_call_reply(struct rpc_call *c, const ProtobufCMessage *message);
/* The same for a message that is encoded already, of a call that is not audited. */
void rpc_call_reply_encoded(struct rpc_call *c, const void *p, size_t n);
void rpc_call_finish(struct rpc_call *c);
void rpc_call_fail(struct rpc_call *c, const struct status *st);
/* The same for an errno of this process; `what` it was doing. */
void rpc_call_fail_errno(struct rpc_call *c, int err, const char *what);
/* reply if st is OK, else fail. */
void rpc_call_answer(struct rpc_call *c, const struct status *st, const ProtobufCMessage *message);

#endif
