/* SPDX-License-Identifier: MIT */
/* The inside of a call (call.h), for call*.c, right.c and drain.c: who may hold it, in which state, and what each file offers the others. */
#ifndef AB_DAEMON_RPC_CALL_IMPL_H
#define AB_DAEMON_RPC_CALL_IMPL_H

#include "daemon/common/ev/loop.h"
#include "daemon/common/net/http.h"
#include "daemon/rpc/call.h"
#include "daemon/rpc/internal.h"
#include "proto/wire/frame.h"
#include "proto/wire/trace.h"

#define CALL_MAGIC   0x43616c6cu

enum call_state {
	CALL_READING,	/* unary, server stream: the request is not whole yet */
	CALL_OPEN,	/* the handler has it, or gets its messages */
	CALL_ENDED,	/* our side is finished; waits for the exchange to close */
	CALL_CLOSED,	/* to be buried */
};

struct rpc_call {
	unsigned magic;
	enum call_state state;
	struct rpc_server *server;
	struct rpc_conn *conn;
	struct http_stream *x;
	const struct rpc_method *method;	/* NULL: refused before it was known */
	void *service;
	struct rpc_stats *stats;		/* the method's; NULL as `method` */
	void *user;
	struct admit_uid *charge;
	struct frame_reader reader;
	ProtobufCMessage *request;	/* unary, server stream: lives as long as the call is open */
	struct charge held;		/* what is held here for it */
	uint8_t flags;			/* of the message that is whole in the reader */
	uint64_t deadline_ms;		/* 0 = none */
	uint64_t timeout_ms;		/* as the client gave it */
	uint64_t sent_at_ms;		/* last message to the client */
	uint64_t began_us;
	size_t unsent;			/* ended: when the timer was set */
	struct timer timer;		/* the deadline, or the patience of the state it is in */
	struct timer silence;
	struct defer again;
	unsigned wanted;		/* messages the handler asked for */
	bool head_sent, touched, end_told, starved, broken;
	bool no_room;			/* broken, because its uid has no memory left */
	bool is_cleared;		/* its client may make it */
	struct rpc_about about;		/* for the audit */
	struct trace trace;		/* of the work that the call is a part of */
	bool gzip;			/* the client may compress its messages */
	bool whole;			/* a message is in the reader, and waits to be decoded */
	struct list node;		/* server->calls */
	struct list hungry;		/* server->hungry */
	struct grave grave;
};

/* call.c */
struct rpc_call *call_from(void *p);
void call_set_state(struct rpc_call *c, enum call_state to);
bool call_takes_one_request(const struct rpc_call *c);
/* A stop is near: if it is not begun yet, it is not begun any more. */
bool call_is_held(const struct rpc_call *c);
enum admit_what call_charged_as(const struct rpc_method *m);
void call_look(struct rpc_call *c);	/* does what can be done; never from inside of a handler */
void call_on_ready(struct http_stream *x, void *user);
void call_on_again(struct defer *d, void *user);
void call_on_time(struct timer *t, void *user);
void call_on_silence(struct timer *t, void *user);

/* call_end.c */
void call_end_urgent(struct rpc_call *c);
void call_forget_request(struct rpc_call *c);
void call_close(struct rpc_call *c);
void call_expect_flush(struct rpc_call *c);
/* Our side's one end. The handler is not told: either it asked for this, or the caller tells it. */
void call_end(struct rpc_call *c, const struct status *st);
void call_stop(struct rpc_call *c, const struct status *st, enum rpc_gone why);	/* and the handler is told */
void call_on_exchange_closed(struct rpc_call *c, enum http_close how);
void call_note_about(struct rpc_call *c, const ProtobufCMessage *m);
void call_note_about_all(struct rpc_call *c, const ProtobufCMessage *answer);

/* call_request.c */
/* Says in `st` whose memory is used up, if n bytes more were wanted. */
void call_no_memory(struct rpc_call *c, size_t n, struct status *st);
void call_open(struct rpc_call *c);
void call_read(struct rpc_call *c);
void call_discard_request(struct rpc_call *c);

/* call_send.c */
void call_answer_failed(struct rpc_call *c, struct status *st);

#endif
