/* SPDX-License-Identifier: MIT */
/*
 * One call, from its first message to its outcome. Invariants: an outcome is set once; what the user
 * has to take himself stays in the stream's window until he does, so memory is bounded by it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/client.h"
#include "client/lib/error.h"
#include "client/lib/obj.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"
#include "proto/wire/grpc.h"

#define CALL_MAGIC 0x6162636fu

static void call_set_state(struct ab_call *call, enum call_state to)
{
	must(call->state != CALL_DONE);	/* an outcome is for good */
	call->state = to;
}

struct ab_client *call_enter(struct ab_call *call)
{
	must(call && call->magic == CALL_MAGIC);
	client_enter(call->client);
	return call->client;
}

int call_new(struct ab_client *c, const struct call_method *m, const struct ab_call_options *how,
	     struct ab_call **ret)
{
	struct ab_call *call;
	uint64_t for_ms;

	client_enter(c);
	call = calloc(1, sizeof(*call));
	if (!call)
		return -ENOMEM;
	call->magic = CALL_MAGIC;
	call->client = c;
	call->method = m;
	list_init(&call->queue_link);
	list_init(&call->noted_link);
	list_init(&call->link);
	list_add_tail(&c->calls, &call->link);
	frame_reader_init(&call->reader, REPLY_MAX_BYTES);
	for_ms = m->no_deadline ? AB_NEVER : c->deadline_ms;
	if (how) {
		call->ready = how->ready;
		call->user = how->user;
		if (how->deadline_ms)
			for_ms = how->deadline_ms;
	}
	call->deadline_at_ms = NO_TIME;
	if (for_ms != AB_NEVER)
		call->deadline_at_ms = clock_boot_ms() + MIN(for_ms, NO_TIME / 2);
	*ret = call;
	return 0;
}

int call_new_once(struct ab_client *c, const struct call_method *m, const struct ab_call_options *how,
		  const char *given, char **ret_id, struct ab_call **ret)
{
	struct ab_call *call;
	int r = call_new(c, m, how, &call);

	if (r < 0)
		return r;
	if (str_is_empty(given)) {
		rng_id(call->request_id, sizeof(call->request_id) - 1);
	} else {
		call->given_id = str_dup(given);
		if (!call->given_id) {
			call_destroy(call);
			return -ENOMEM;
		}
	}
	*ret_id = (char *)ab_call_request_id(call);
	*ret = call;
	return 0;
}

const char *ab_call_request_id(const struct ab_call *call)
{
	return call->given_id ? call->given_id : call->request_id;
}

int call_submit(struct ab_call *call, const ProtobufCMessage *first, struct ab_call **ret)
{
	size_t n = protobuf_c_message_get_packed_size(first);
	uint8_t *p = n <= UINT32_MAX - FRAME_PREFIX_BYTES
			     ? buf_space(&call->request, n + FRAME_PREFIX_BYTES)
			     : NULL;

	if (!p) {
		call_destroy(call);
		return -ENOMEM;
	}
	frame_prefix(p, 0, (uint32_t)n);
	(void)protobuf_c_message_pack(first, p + FRAME_PREFIX_BYTES);
	buf_added(&call->request, n + FRAME_PREFIX_BYTES);
	client_queue(call->client, call);
	*ret = call;
	return 0;
}

int call_start(struct ab_client *c, const struct call_method *m, const ProtobufCMessage *first,
	       const struct ab_call_options *how, struct ab_call **ret)
{
	struct ab_call *call;
	int r = call_new(c, m, how, &call);

	return r < 0 ? r : call_submit(call, first, ret);
}

/* --- sending --- */

static int call_send_first(struct ab_call *call)
{
	int r = h2_stream_write(call->stream, buf_data(&call->request), buf_len(&call->request));

	if (r == 0 && (!call->method->puts || call->finished))
		r = h2_stream_finish(call->stream, NULL);
	return r;
}

int call_open(struct ab_call *call, struct conn *conn, uint64_t now_ms)
{
	scoped(fields_fini) struct fields head = FIELDS_NULL;
	uint64_t left_ms = 0;
	int r;

	if (call->deadline_at_ms != NO_TIME)
		left_ms = call->deadline_at_ms > now_ms ? call->deadline_at_ms - now_ms : 1;
	r = grpc_request_head(&head, call->method->path, "localhost", left_ms,
			      call->client->user_agent);
	if (r == 0)
		r = h2_request(conn->h2, &head, false, call, &call->stream);
	if (r < 0)
		return r;
	call->conn = conn;
	conn->n_calls++;
	conn->heard_ms = now_ms;
	conn->ping_after_ms = PING_AFTER_MS;
	call->attempts++;
	list_del(&call->queue_link);
	call_set_state(call, CALL_OPEN);
	r = call_send_first(call);
	if (r < 0)
		return r;
	if (call->method->puts)
		client_note(call->client, call);
	return 0;
}

ptrdiff_t call_room(const struct ab_call *call)
{
	if (call->state == CALL_DONE || call->finished)
		return -EPIPE;
	if (call->state == CALL_QUEUED)
		return 0;
	if (h2_stream_ended(call->stream) || h2_stream_closed(call->stream, &(uint32_t){ 0 }))
		return -EPIPE;
	return (ptrdiff_t)MIN(h2_stream_room(call->stream), (size_t)PTRDIFF_MAX);
}

/* Tag and length of a field that holds bytes. Returns how many it wrote, at most 6. */
static size_t bytes_head(uint8_t *to, unsigned field, size_t n)
{
	size_t at = 0;

	to[at++] = (uint8_t)(field << 3 | 2);
	for (; n > 0x7f; n >>= 7)
		to[at++] = (uint8_t)((n & 0x7f) | 0x80);
	to[at++] = (uint8_t)n;
	return at;
}

int call_put(struct ab_call *call, const void *head, size_t n_head, unsigned field, const void *data,
	     size_t n_data)
{
	uint8_t front[FRAME_PREFIX_BYTES + PUT_HEAD_BYTES + 6];
	size_t n = FRAME_PREFIX_BYTES + n_head;
	int r;

	must(n_head <= PUT_HEAD_BYTES && n_data <= PUT_BYTES);
	if (n_head)
		memcpy(front + FRAME_PREFIX_BYTES, head, n_head);
	if (n_data)
		n += bytes_head(front + n, field, n_data);
	frame_prefix(front, 0, (uint32_t)(n - FRAME_PREFIX_BYTES + n_data));
	if (call->state == CALL_QUEUED) {
		r = buf_put(&call->request, front, n);
		return r < 0 ? r : buf_put(&call->request, data, n_data);
	}
	call->has_put = true;
	r = h2_stream_write(call->stream, front, n);
	return r < 0 || !n_data ? r : h2_stream_write(call->stream, data, n_data);
}

ptrdiff_t call_put_pieces(struct ab_call *call, const void *data, size_t n, call_put_fn *put)
{
	size_t taken = 0;

	while (taken < n) {
		ptrdiff_t room = call_room(call);
		size_t piece = MIN(MIN(n - taken, (size_t)MAX(room, 0)), PUT_BYTES);
		int r;

		if (room <= 0)
			return taken ? (ptrdiff_t)taken : room;
		r = put(call, (const uint8_t *)data + taken, piece);
		if (r < 0)
			return r;
		taken += piece;
	}
	return (ptrdiff_t)taken;
}

int call_put_end(struct ab_call *call)
{
	if (call->state == CALL_DONE || call->finished)
		return -EPIPE;
	call->finished = true;
	return call->state == CALL_OPEN ? h2_stream_finish(call->stream, NULL) : 0;
}

/* --- the outcome --- */

void call_drop_stream(struct ab_call *call)
{
	if (!call->stream)
		return;
	h2_stream_release(call->stream);
	call->stream = NULL;
	call->conn->n_calls--;
	call->conn = NULL;
}

void call_finish(struct ab_call *call, const struct ab_error *e)
{
	list_del(&call->queue_link);
	call_drop_stream(call);
	buf_fini(&call->request);
	if (!e && call_takes_replies(call) && !call->got_reply && !call->method->replies_optional)
		e = error_local(AB_INTERNAL, REASON_NONE, "the daemon answered without a message");
	if (!e && call->method->on_end)
		e = call->method->on_end(call);
	if (e) {
		obj_free(call->object);
		call->object = NULL;
	}
	call->error = e;
	call_set_state(call, CALL_DONE);
	client_note(call->client, call);
}

static const struct ab_error *error_from_close(enum h2_close closed, uint32_t code)
{
	switch (closed) {
	case H2_CLOSE_LOST:
		return error_local(AB_UNAVAILABLE, R_OUTCOME_UNKNOWN,
				   "the connection to the daemon broke; what became of the call is not known");
	case H2_CLOSE_REFUSED:
		return error_local(AB_UNAVAILABLE, R_DRAINING,
				   "the daemon takes no calls on this connection");
	case H2_CLOSE_LOCAL:
		return error_local(AB_CANCELLED, REASON_NONE, "cancelled");
	case H2_CLOSE_RESET:
		if (code == H2_CANCEL)
			return error_local(AB_CANCELLED, REASON_NONE, "cancelled by the daemon");
		if (code == H2_ENHANCE_YOUR_CALM)
			return error_local(AB_RESOURCE_EXHAUSTED, REASON_NONE,
					   "the daemon asks for fewer calls");
		fallthrough_;
	default:
		return error_local(AB_INTERNAL, REASON_NONE,
				   "the daemon ended the call without a status (HTTP/2 error %u)", code);
	}
}

static const struct ab_error *call_outcome(struct ab_call *call)
{
	const struct fields *trailers = h2_stream_trailers(call->stream);
	const struct fields *head = h2_stream_head(call->stream);
	uint32_t code = 0;
	enum h2_close closed = h2_stream_closed(call->stream, &code);
	const struct ab_error *e;

	if (!trailers && !(head && h2_stream_ended(call->stream)))
		return error_from_close(closed, code);
	e = error_from_fields(trailers ? trailers : head);
	if (!e && !frame_reader_is_idle(&call->reader) && !call->have_body)
		e = error_local(AB_DATA_LOSS, R_TRUNCATED, "the daemon's answer was cut");
	return e;
}

static bool may_try_again(const struct ab_call *call)
{
	return !call->got_reply && !call->has_put && call->attempts < ATTEMPTS_MAX;
}

static void try_again(struct ab_call *call)
{
	call_drop_stream(call);
	frame_reader_fini(&call->reader);
	frame_reader_init(&call->reader, REPLY_MAX_BYTES);
	call_set_state(call, CALL_QUEUED);
	client_queue(call->client, call);
}

/* Proven not to have been seen, or harmless to do twice: once more, on another connection. */
static bool call_retry(struct ab_call *call)
{
	enum h2_close closed = h2_stream_closed(call->stream, &(uint32_t){ 0 });
	bool unseen = closed == H2_CLOSE_REFUSED ||
		      (closed == H2_CLOSE_LOST && !h2_stream_was_sent(call->stream));

	if (h2_stream_trailers(call->stream) || !may_try_again(call))
		return false;
	if (!unseen && !(closed == H2_CLOSE_LOST && call->method->repeatable))
		return false;
	try_again(call);
	return true;
}

/* The daemon says DRAINING only where a repeat does no harm, or joins what was begun by its request id. Its successor is asked, for
 * as long as a connection is waited for. */
static bool call_was_drained(const struct ab_call *call, const struct ab_error *e)
{
	return e && !e->local && e->status == AB_UNAVAILABLE && str_eq(e->reason, status_reason_name(R_DRAINING)) &&
	       may_try_again(call);
}

static void call_settle(struct ab_call *call)
{
	const struct ab_error *e;
	const uint8_t *p;

	if (call->state != CALL_OPEN)
		return;
	if (!h2_stream_ended(call->stream) && !h2_stream_closed(call->stream, &(uint32_t){ 0 }))
		return;
	if (h2_stream_peek(call->stream, &p))
		return;		/* what came before the end is the user's to take first */
	if (call_retry(call))
		return;
	e = call_outcome(call);
	if (!call_was_drained(call, e)) {
		call_finish(call, e);
		return;
	}
	error_free(e);
	try_again(call);
}

/* --- receiving --- */

/* 1: a message in reader.body; 0: none; -errno. */
static int call_feed(struct ab_call *call)
{
	if (call->have_body)
		frame_reader_next(&call->reader);
	call->have_body = false;
	while (call->stream) {
		const uint8_t *p;
		size_t n = h2_stream_peek(call->stream, &p), used;
		uint8_t flags;
		int r;

		if (!n)
			return 0;
		r = frame_reader_feed(&call->reader, p, n, &used, &flags);
		h2_stream_consume(call->stream, used);
		if (r == FRAME_TOO_LARGE)
			return -EMSGSIZE;
		if (r == FRAME_MESSAGE && (flags & FRAME_FLAG_COMPRESSED))
			return -EPROTO;
		if (r == FRAME_MESSAGE) {
			call->have_body = true;
			return 1;
		}
		if (r < 0)
			return r;
	}
	return 0;
}

int call_fail(struct ab_call *call, int r)
{
	const struct ab_error *e;

	if (call->state == CALL_DONE)
		return 0;
	if (r == -EPROTO)
		e = error_local(AB_INTERNAL, REASON_NONE, "the daemon's answer cannot be read");
	else if (r == -EMSGSIZE)
		e = error_local(AB_RESOURCE_EXHAUSTED, R_TOO_LARGE, "the daemon's answer is larger than %u bytes",
				REPLY_MAX_BYTES);
	else
		e = error_errno(r);
	call_finish(call, e);
	return 0;
}

static ProtobufCMessage *call_unpack(struct ab_call *call)
{
	const struct buf *body = &call->reader.body;

	return protobuf_c_message_unpack(call->method->reply, NULL, buf_len(body), buf_data(body));
}

/* A message that says yes or no, or nothing. */
static int call_take_answer(struct ab_call *call, ProtobufCMessage *m)
{
	if (call->method->answer_at)
		call->answer = *(const protobuf_c_boolean *)(const void *)((const char *)m + call->method->answer_at);
	protobuf_c_message_free_unpacked(m, NULL);
	return 0;
}

static void call_take_replies(struct ab_call *call)
{
	int r;

	while ((r = call_feed(call)) == 1) {
		ProtobufCMessage *m;

		if (call->got_reply && !call->method->replies_optional) {
			r = -EPROTO;
			break;
		}
		m = call_unpack(call);
		if (!m)
			r = -EPROTO;
		else if (call->method->make)
			r = call->method->make(m, &call->object);
		else if (call->method->on_reply)
			r = call->method->on_reply(call, m);
		else
			r = call_take_answer(call, m);
		if (r < 0)
			break;
		call->got_reply = true;
	}
	if (r < 0)
		(void)call_fail(call, r);
}

void call_on_ready(struct ab_call *call, unsigned flags)
{
	if (call_takes_replies(call) && (flags & (H2_READY_DATA | H2_READY_END | H2_READY_CLOSED)))
		call_take_replies(call);
	else if (flags & H2_READY_DATA)
		client_note(call->client, call);
	if (call->state == CALL_OPEN && (flags & H2_READY_ROOM))
		client_note(call->client, call);
	if (call->state == CALL_OPEN && (flags & (H2_READY_END | H2_READY_CLOSED)))
		call_settle(call);
}

int call_next_body(struct ab_call *call, const uint8_t **ret, size_t *ret_n)
{
	int r;

	(void)call_enter(call);
	must(!call_takes_replies(call));
	r = call_feed(call);
	if (r == 1) {
		call->got_reply = true;
		*ret = buf_data(&call->reader.body);
		*ret_n = buf_len(&call->reader.body);
		return 1;
	}
	if (r < 0)
		return call_fail(call, r);
	call_settle(call);
	return 0;
}

int call_next_message(struct ab_call *call, ProtobufCMessage **ret)
{
	const uint8_t *p;
	size_t n;

	if (!call_next_body(call, &p, &n))
		return 0;
	*ret = call_unpack(call);
	return *ret ? 1 : call_fail(call, -EPROTO);
}

/* --- the public face --- */

void call_destroy(struct ab_call *call)
{
	call_drop_stream(call);
	list_del(&call->link);
	list_del(&call->queue_link);
	list_del(&call->noted_link);
	buf_fini(&call->request);
	frame_reader_fini(&call->reader);
	error_free(call->error);
	error_free(call->refusal);
	obj_free(call->object);
	obj_free(call->event);
	obj_free(call->info);
	free(call->given_id);
	call->magic = 0;
	free(call);
}

void ab_call_free(struct ab_call *call)
{
	struct conn *conn;

	if (!call)
		return;
	(void)call_enter(call);
	conn = call->conn;
	call_destroy(call);
	/* the process may end right after this, and a cancellation should still arrive */
	if (conn)
		conn_flush(conn);
}

void ab_call_cancel(struct ab_call *call)
{
	struct conn *conn;

	(void)call_enter(call);
	if (call->state == CALL_DONE)
		return;
	conn = call->conn;
	call_finish(call, error_local(AB_CANCELLED, REASON_NONE, "cancelled"));
	if (conn)
		conn_flush(conn);
}

bool ab_call_is_done(const struct ab_call *call)
{
	return call->state == CALL_DONE;
}

enum ab_status ab_call_status(const struct ab_call *call)
{
	return call->error ? call->error->status : AB_OK;
}

const struct ab_error *ab_call_error(const struct ab_call *call)
{
	return call->error;
}

void *ab_call_take(struct ab_call *call)
{
	return call->state == CALL_DONE ? give(call->object) : NULL;
}

bool ab_call_answer(const struct ab_call *call)
{
	return call->answer;
}
