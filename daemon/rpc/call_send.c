/* SPDX-License-Identifier: MIT */
/* What handlers ask and do with their call. */
#include "daemon/rpc/call_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/auth/owner.h"
#include "daemon/rpc/limits.h"
#include "proto/base/must.h"
#include "proto/wire/grpc.h"

#define ANSWER_MS 100u	/* what works for a call ends so long before its deadline */

const struct trace *rpc_call_trace(const struct rpc_call *c)
{
	return &c->trace;
}

const struct principal *rpc_call_who(const struct rpc_call *c)
{
	return &c->conn->who;
}

void rpc_call_rule(const struct rpc_call *c, char ret[ACCESS_TEXT_BYTES])
{
	access_rule_text(c->server->rules, &c->conn->verdict, ret);
}

void *rpc_call_service(const struct rpc_call *c)
{
	return c->service;
}

struct encoded *rpc_call_encoded(const struct rpc_call *c)
{
	return c->server->encoded;
}

struct loop *rpc_call_loop(const struct rpc_call *c)
{
	return c->server->loop;
}

uint64_t rpc_call_deadline_ms(const struct rpc_call *c)
{
	return c->deadline_ms ? c->deadline_ms - MIN(c->timeout_ms / 10, ANSWER_MS) : 0;
}

void *rpc_call_user(const struct rpc_call *c)
{
	return c->user;
}

void rpc_call_set_user(struct rpc_call *c, void *user)
{
	c->user = user;
}

void *rpc_call_new_user(struct rpc_call *c, size_t n)
{
	c->user = calloc(1, n);
	if (!c->user)
		rpc_call_fail_errno(c, -ENOMEM, "starting the call");
	return c->user;
}

void rpc_call_next(struct rpc_call *c)
{
	must(c->state == CALL_OPEN && !call_takes_one_request(c));
	c->wanted++;
	defer_post(&c->again);
}

int rpc_response_head(struct fields *f)
{
	int r = grpc_response_head(f);

	return r ? r : fields_put(f, "grpc-accept-encoding", "identity,gzip");
}

static int write_head(struct rpc_call *c)
{
	int r;

	if (c->head_sent)
		return 0;
	r = http_stream_respond(c->x, &c->server->head, false);
	c->head_sent = !r;
	return r;
}

/* -EPIPE: it is closed, and on_ready will tell. */
static void note_failure(struct rpc_call *c, int r)
{
	if (!r || r == -EPIPE)
		return;
	c->no_room |= r == -ENOBUFS;
	c->broken = true;
	defer_post(&c->again);
}

void rpc_call_accept(struct rpc_call *c)
{
	must(c->state == CALL_OPEN);
	note_failure(c, write_head(c));
}

bool rpc_call_hold(struct rpc_call *c, size_t n, struct status *st)
{
	if (charge_reserve(&c->held, n) == 0)
		return true;
	call_no_memory(c, n, st);
	return false;
}

struct quota *rpc_call_quota(const struct rpc_call *c)
{
	return c->conn->quota;
}

static void pack(const ProtobufCMessage *m, size_t n, uint8_t *p)
{
	frame_prefix(p, 0, (uint32_t)n);
	protobuf_c_message_pack(m, p + FRAME_PREFIX_BYTES);
}

/* Packed, to n bytes, where it is sent from. */
static int write_message(struct rpc_call *c, const ProtobufCMessage *m, size_t n)
{
	size_t all = n + FRAME_PREFIX_BYTES;
	uint8_t *p;
	int r;

	if (n > UINT32_MAX - FRAME_PREFIX_BYTES)
		return -EMSGSIZE;
	p = http_stream_space(c->x, all);
	if (p) {
		pack(m, n, p);
		return http_stream_added(c->x, all);
	}
	p = malloc(all);
	if (!p)
		return -ENOMEM;
	pack(m, n, p);
	r = http_stream_write(c->x, p, all);
	free(p);
	return r;
}

static int write_encoded(struct rpc_call *c, const void *head, size_t n_head, const void *p, size_t n)
{
	uint8_t start[FRAME_PREFIX_BYTES + RPC_SEND_HEAD_MAX];
	int r;

	must(n_head <= RPC_SEND_HEAD_MAX && n <= UINT32_MAX - n_head);
	frame_prefix(start, 0, (uint32_t)(n_head + n));
	memcpy(start + FRAME_PREFIX_BYTES, head, n_head);
	r = http_stream_write(c->x, start, FRAME_PREFIX_BYTES + n_head);
	if (!r)
		r = http_stream_write(c->x, p, n);
	return r;
}

static void note_sent(struct rpc_call *c, int r)
{
	c->sent_at_ms = loop_now_ms(c->server->loop);
	note_failure(c, r);
}

static void send_packed(struct rpc_call *c, const ProtobufCMessage *message, size_t n)
{
	int r;

	must(c->state == CALL_OPEN);
	r = write_head(c);
	if (!r)
		r = write_message(c, message, n);
	note_sent(c, r);
}

void rpc_call_send(struct rpc_call *c, const ProtobufCMessage *message)
{
	send_packed(c, message, protobuf_c_message_get_packed_size(message));
}

void rpc_call_send_encoded(struct rpc_call *c, const void *head, size_t n_head, const void *p, size_t n)
{
	int r;

	must(c->state == CALL_OPEN);
	r = write_head(c);
	if (!r)
		r = write_encoded(c, head, n_head, p, n);
	note_sent(c, r);
}

size_t rpc_call_room(struct rpc_call *c)
{
	size_t room = http_stream_room(c->x);

	c->starved = !room;
	return room;
}

void call_answer_failed(struct rpc_call *c, struct status *st)
{
	if (c->no_room)
		call_no_memory(c, 0, st);
	else
		status_errno(st, -ENOMEM, "answering");
}

/* All of its answer was given to the exchange, or that failed. */
static void end_answered(struct rpc_call *c)
{
	static const struct status ok = STATUS_OK;
	scratch_ struct status st;

	if (c->broken)
		call_answer_failed(c, &st);
	call_end(c, c->broken ? &st : &ok);
}

/* False: an answer of n bytes had no room, and the call has ended with that. */
static bool answer_fits(struct rpc_call *c, size_t n)
{
	scratch_ struct status st;

	if (n <= http_stream_room(c->x) || n <= quota_spare(c->conn->quota))
		return true;
	status_set(&st, R_TOO_MANY_STREAMS, "so much is held for uid %u, or on this connection, that an answer of "
		   "%zu bytes has to wait until others are read", owner_uid(c->conn->who.uid), n);
	call_end(c, &st);
	return false;
}

void rpc_call_reply(struct rpc_call *c, const ProtobufCMessage *message)
{
	size_t n = protobuf_c_message_get_packed_size(message);

	if (!answer_fits(c, n + FRAME_PREFIX_BYTES))
		return;
	send_packed(c, message, n);
	call_note_about_all(c, message);
	end_answered(c);
}

void rpc_call_reply_encoded(struct rpc_call *c, const void *p, size_t n)
{
	must(!rpc_call_is_audited(c));
	if (!answer_fits(c, n + FRAME_PREFIX_BYTES))
		return;
	rpc_call_send_encoded(c, "", 0, p, n);
	end_answered(c);
}

void rpc_call_finish(struct rpc_call *c)
{
	must(c->state == CALL_OPEN);
	note_failure(c, write_head(c));
	end_answered(c);
}

void rpc_call_fail(struct rpc_call *c, const struct status *st)
{
	must(c->state == CALL_OPEN && !status_ok(st));
	call_end(c, st);
}

void rpc_call_fail_errno(struct rpc_call *c, int err, const char *what)
{
	struct status st;

	status_errno(&st, err, what);
	rpc_call_fail(c, &st);
}

void rpc_call_answer(struct rpc_call *c, const struct status *st, const ProtobufCMessage *message)
{
	if (status_ok(st))
		rpc_call_reply(c, message);
	else
		rpc_call_fail(c, st);
}
