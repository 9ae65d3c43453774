/* SPDX-License-Identifier: MIT */
/* The messages of a call's client: received, inflated, decoded within what may be held for it, and given to the handler. */
#include "daemon/rpc/call_impl.h"

#include <errno.h>

#include "daemon/auth/owner.h"
#include "daemon/common/net/gz.h"
#include "daemon/rpc/canon.h"
#include "daemon/rpc/limits.h"
#include "proto/gen/scan.h"

static const struct scan_cap request_caps[] = {
	{ "metadata", RPC_METADATA_MAX },
	{ "envs", RPC_ENVS_MAX },
	{ "args", RPC_ARGS_MAX },
};
static const struct scan_limits request_limits = { .caps = request_caps,
						   .n_caps = ARRAY_SIZE(request_caps) };

static void scan_failed(enum scan_result r, const struct scan_error *err, struct status *st)
{
	const char *field = err->path[0] ? err->path : "(message)";

	if (r == SCAN_COUNT || r == SCAN_MEMORY) {
		status_set(st, R_TOO_LARGE, "%s: %s", field, scan_result_text(r));
		status_evidence(st, "field", "%s", field);
		if (r == SCAN_COUNT)
			status_evidence(st, "max", "%u", err->max);
	} else {
		status_field(st, field, "%s", scan_result_text(r));
	}
}

/* Says in `st` whose memory is used up, if n bytes more were wanted. */
void call_no_memory(struct rpc_call *c, size_t n, struct status *st)
{
	const struct quota *q = quota_tight(c->conn->quota, n);

	rpc_server_expect_relief(c->server);
	if (!q) {		/* there was none before somebody gave some back */
		status_set(st, R_QUOTA_UID, "what is held for uid %u leaves no room for this call", owner_uid(c->conn->who.uid));
		return;
	}
	status_set(st, q == c->conn->quota || q == uid_quotas_all(c->server->quotas) ? R_TOO_MANY_STREAMS : R_QUOTA_UID,
		   "%llu of %llu bytes are held for %s, which leaves no room for this call; take the answers that wait, or "
		   "end calls", (unsigned long long)quota_used(q), (unsigned long long)quota_max(q), quota_name(q));
	status_evidence(st, "max", "%llu", (unsigned long long)quota_max(q));
}

static ProtobufCMessage *decode(struct rpc_call *c, const struct buf *b, struct status *st)
{
	scratch_ struct scan_error err;	/* written on failure */
	ProtobufCMessage *m;
	enum scan_result r;
	size_t memory;

	r = scan_measure(c->method->request, buf_data(b), buf_len(b), &request_limits, &err, &memory);
	if (r != SCAN_OK) {
		scan_failed(r, &err, st);
		return NULL;
	}
	/* A stream's message lives as long as its handler looks at it: what its unpacking takes is the loop's own. */
	memory = call_takes_one_request(c) ? c->held.n + RPC_REQUEST_COPIES * memory : c->held.n;
	if (charge_set(&c->held, memory) < 0) {
		call_no_memory(c, memory - c->held.n, st);
		return NULL;
	}
	m = protobuf_c_message_unpack(c->method->request, NULL, buf_len(b), buf_data(b));
	if (m && canon_message(m) < 0) {
		protobuf_c_message_free_unpacked(m, NULL);
		m = NULL;
	}
	if (!m)
		status_errno(st, -ENOMEM, "decoding the request");
	return m;
}

/* --- waiting for memory, or for a turn --- */

static void wait_hungry(struct rpc_call *c)
{
	struct rpc_server *s = c->server;

	if (list_is_empty(&c->hungry))
		list_add_tail(&s->hungry, &c->hungry);
	if (!timer_is_set(&s->feed) && timer_set(&s->feed, loop_now_ms(s->loop) + RPC_FEED_MS) < 0)
		c->broken = true;
}

/* One call of each connection may use what is kept for what has begun, so that somebody always gets on. */
static void feed(struct rpc_call *c)
{
	if (!c->conn->urgent) {
		c->conn->urgent = c;
		c->reader.urgent = true;
	}
	call_look(c);
	if (c->state != CALL_CLOSED && !list_is_empty(&c->hungry))
		call_end_urgent(c);
}

void rpc_calls_feed(struct rpc_server *s)
{
	struct list now;

	list_init(&now);
	list_take(&now, &s->hungry);
	while (!list_is_empty(&now)) {
		struct rpc_call *c = list_entry(now.next, struct rpc_call, hungry);

		list_del(&c->hungry);
		feed(c);
	}
}

/* --- one message --- */

/* Into `plain`. False with `st`. */
static bool inflate_message(struct rpc_call *c, struct buf *plain, struct status *st)
{
	const struct buf *b = &c->reader.body;
	int r = -ENOBUFS;

	buf_set_quota(plain, c->conn->quota);
	if (quota_take(c->conn->quota, GZ_STATE_BYTES) == 0) {
		r = gz_unpack(buf_data(b), buf_len(b), c->reader.max, plain);
		quota_give(c->conn->quota, GZ_STATE_BYTES);
	}
	c->server->inflated += buf_len(plain);
	if (r == -EBADMSG)
		status_set_code(st, CODE_INTERNAL, "a message says that it is compressed by gzip, and is not");
	else if (r == -EFBIG)
		status_set(st, R_TOO_LARGE, "a request message has at most %u bytes", c->reader.max);
	else if (r < 0)
		call_no_memory(c, c->reader.max, st);
	return r == 0;
}

/* What little bytes inflate to is work: in one pass there is so much of it, and no more. */
static bool may_inflate(struct rpc_server *s)
{
	if (s->inflated_pass != loop_pass(s->loop)) {
		s->inflated_pass = loop_pass(s->loop);
		s->inflated = 0;
	}
	return s->inflated < RPC_INFLATE_BYTES;
}

/* The message in the reader: FRAME_MESSAGE and *ret, FRAME_MORE for later, negative with `st`. */
static int take_message(struct rpc_call *c, ProtobufCMessage **ret, struct status *st)
{
	scoped(buf_fini) struct buf plain = BUF_NULL;
	bool compressed = c->flags == FRAME_FLAG_COMPRESSED && c->gzip;

	if (c->flags && !compressed) {
		status_set_code(st, CODE_INTERNAL, c->flags == FRAME_FLAG_COMPRESSED ?
				"a compressed message without an encoding" :
				"bad flags before a message");
		return -EPROTO;
	}
	if (compressed && !may_inflate(c->server)) {
		wait_hungry(c);
		return FRAME_MORE;
	}
	*ret = NULL;
	if (!compressed || inflate_message(c, &plain, st))
		*ret = decode(c, compressed ? &plain : &c->reader.body, st);
	c->whole = false;
	frame_reader_next(&c->reader);
	call_end_urgent(c);
	return *ret ? FRAME_MESSAGE : -EINVAL;
}

/* FRAME_MESSAGE once all of one is in the reader, or FRAME_MORE; negative with `st` when the call cannot go on. */
static int read_whole(struct rpc_call *c, struct status *st)
{
	const uint8_t *p;
	size_t n, used;
	int r = c->whole ? FRAME_MESSAGE : FRAME_MORE;

	while (r == FRAME_MORE && (n = http_stream_peek(c->x, &p)) > 0) {
		r = frame_reader_feed(&c->reader, p, n, &used, &c->flags);
		http_stream_consume(c->x, used);
	}
	if (r == FRAME_NO_ROOM) {
		wait_hungry(c);
		return FRAME_MORE;
	}
	if (r < 0)
		status_errno(st, r, "receiving the request");
	if (r == FRAME_MORE || r < 0)
		return r;
	if (r == FRAME_TOO_LARGE) {
		status_set(st, R_TOO_LARGE, "a request message has at most %u bytes", c->reader.max);
		return -EMSGSIZE;
	}
	c->whole = true;
	return r;
}

/* One message, if all of it is there: as read_whole(), with *ret. */
static int read_message(struct rpc_call *c, ProtobufCMessage **ret, struct status *st)
{
	int r = read_whole(c, st);

	return r == FRAME_MESSAGE ? take_message(c, ret, st) : r;
}

/* Everything that will come was taken, also out of the reader. */
static bool is_at_end(const struct rpc_call *c)
{
	return http_stream_at_end(c->x) && !c->whole;
}

/* The client is done; false if that is an error of its own. */
static bool check_request_end(const struct rpc_call *c, struct status *st)
{
	if (!frame_reader_is_idle(&c->reader))
		status_set_code(st, CODE_INTERNAL, "the request ends within a message");
	else if (call_takes_one_request(c) && !c->request)
		status_set_code(st, CODE_UNIMPLEMENTED, "the request has no message, it needs one");
	return status_ok(st);
}

void call_open(struct rpc_call *c)
{
	uint64_t now = loop_now_ms(c->server->loop);

	call_set_state(c, CALL_OPEN);
	timer_clear(&c->timer);
	if ((c->deadline_ms && timer_set(&c->timer, c->deadline_ms) < 0) ||
	    (c->method->handler->on_silence && timer_set(&c->silence, now + RPC_SILENCE_MS) < 0))
		c->broken = true;
	c->sent_at_ms = now;
}

static void read_one_request(struct rpc_call *c)
{
	scratch_ struct status st;
	ProtobufCMessage *m;
	int r;

	status_clear(&st);
	while ((r = read_message(c, &m, &st)) == FRAME_MESSAGE) {
		if (c->request) {
			protobuf_c_message_free_unpacked(m, NULL);
			status_set_code(&st, CODE_UNIMPLEMENTED, "the request has two messages, it needs one");
			r = -EPROTO;
			break;
		}
		c->request = m;
	}
	if (r < 0 || (is_at_end(c) && !check_request_end(c, &st))) {
		call_stop(c, &st, RPC_GONE_SERVER);
		return;
	}
	if (!is_at_end(c) || call_is_held(c))
		return;
	call_open(c);
	c->touched = true;
	c->method->handler->on_message(c, c->request);
}

/* What a stop of the daemon has not looked at is sent again, to the next one. */
static bool is_held_back(const struct rpc_call *c)
{
	return c->server->draining && c->method->kind == RPC_BIDI;
}

/* The message in the reader, to a handler that takes it as it is. */
static bool hand_encoded(struct rpc_call *c)
{
	const struct rpc_handler *h = c->method->handler;

	if (!h->on_encoded || c->flags || !c->touched)
		return false;
	c->wanted--;
	if (!h->on_encoded(c, buf_data(&c->reader.body), buf_len(&c->reader.body))) {
		c->wanted++;
		return false;
	}
	c->whole = false;
	frame_reader_next(&c->reader);
	call_end_urgent(c);
	return true;
}

static void read_stream(struct rpc_call *c)
{
	struct status st = STATUS_OK;
	ProtobufCMessage *m;
	int r = FRAME_MORE;

	while (c->state == CALL_OPEN && c->wanted && !is_held_back(c) &&
	       (r = read_whole(c, &st)) == FRAME_MESSAGE) {
		if (hand_encoded(c))
			continue;
		r = take_message(c, &m, &st);
		if (r != FRAME_MESSAGE)
			break;
		c->wanted--;
		if (!c->touched)
			call_note_about(c, m);
		c->touched = true;
		c->method->handler->on_message(c, m);
		protobuf_c_message_free_unpacked(m, NULL);
	}
	if (c->state != CALL_OPEN || c->end_told)
		return;
	if (r < 0 || (is_at_end(c) && !check_request_end(c, &st))) {
		call_stop(c, &st, RPC_GONE_SERVER);
	} else if (is_at_end(c)) {
		c->end_told = c->touched = true;
		c->method->handler->on_end(c);
	}
}

void call_read(struct rpc_call *c)
{
	if (c->state == CALL_READING)
		read_one_request(c);
	else if (c->state == CALL_OPEN && !call_takes_one_request(c))
		read_stream(c);
}

/* Nobody wants it any more; but what is not consumed would keep the exchange open. */
void call_discard_request(struct rpc_call *c)
{
	const uint8_t *p;
	size_t n;

	call_forget_request(c);
	while ((n = http_stream_peek(c->x, &p)) > 0)
		http_stream_consume(c->x, n);
}
