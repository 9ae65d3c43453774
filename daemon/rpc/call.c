/* SPDX-License-Identifier: MIT */
/*
 * One RPC: from the request head to its one end. call_look() looks at the exchange and does what can
 * be done, in a fixed order: its end, the request, the handler's wish to send. It runs when the
 * exchange has news and when the handler asked for something; so handlers are only ever called
 * from the loop.
 */
#include "daemon/rpc/call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/net/gz.h"
#include "daemon/common/net/http.h"
#include "daemon/common/obs/log.h"
#include "daemon/rpc/canon.h"
#include "daemon/rpc/ended.h"
#include "daemon/rpc/error.h"
#include "daemon/rpc/internal.h"
#include "daemon/rpc/limits.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/base/str.h"
#include "proto/gen/scan.h"
#include "proto/wire/frame.h"
#include "proto/wire/grpc.h"
#include "proto/wire/h2.h"

#define CALL_MAGIC   0x43616c6cu
#define SEND_ON_STACK 4096u
#define ANSWER_MS     100u	/* what works for a call ends so long before its deadline */

enum call_state {
	CALL_READING,	/* unary, server stream: the request is not whole yet */
	CALL_OPEN,	/* the handler has it, or gets its messages */
	CALL_ENDED,	/* our side is finished; waits for the exchange to close */
	CALL_CLOSED,	/* to be buried */
};

static const struct {
	const char *name;
	unsigned next;
} call_states[] = {
	[CALL_READING] = { "reading", BIT(CALL_OPEN) | BIT(CALL_ENDED) | BIT(CALL_CLOSED) },
	[CALL_OPEN] = { "open", BIT(CALL_ENDED) | BIT(CALL_CLOSED) },
	[CALL_ENDED] = { "ended", BIT(CALL_CLOSED) },
	[CALL_CLOSED] = { "closed", 0 },
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
	bool gzip;			/* the client may compress its messages */
	bool whole;			/* a message is in the reader, and waits to be decoded */
	struct list node;		/* server->calls */
	struct list hungry;		/* server->hungry */
	struct grave grave;
};

static const struct scan_cap request_caps[] = {
	{ "metadata", RPC_METADATA_MAX },
	{ "envs", RPC_ENVS_MAX },
	{ "args", RPC_ARGS_MAX },
};
static const struct scan_limits request_limits = { .caps = request_caps,
						   .n_caps = ARRAY_SIZE(request_caps) };

static void call_look(struct rpc_call *c);
static void answer_failed(struct rpc_call *c, struct status *st);

static struct rpc_call *call_from(void *p)
{
	struct rpc_call *c = p;

	must(c && c->magic == CALL_MAGIC);
	return c;
}

static void call_set_state(struct rpc_call *c, enum call_state to)
{
	must(call_states[c->state].next & BIT(to));
	log_debug("call_state", "method=%s from=%s to=%s", c->method ? c->method->path : "?",
		  call_states[c->state].name, call_states[to].name);
	c->state = to;
}

static bool takes_one_request(const struct rpc_call *c)
{
	return c->method->kind == RPC_UNARY || c->method->kind == RPC_SERVER_STREAM;
}

static enum admit_what charge_of(const struct rpc_method *m)
{
	return m->kind == RPC_UNARY && !m->waits ? ADMIT_CALL : ADMIT_STREAM;
}

/* --- the end ------------------------------------------------------------------------------------ */

static void end_urgent(struct rpc_call *c)
{
	c->reader.urgent = false;
	if (c->conn->urgent == c)
		c->conn->urgent = NULL;
}

/* Nobody looks at it any more. */
static void forget_request(struct rpc_call *c)
{
	list_del(&c->hungry);
	end_urgent(c);
	if (c->request)
		protobuf_c_message_free_unpacked(c->request, NULL);
	c->request = NULL;
	c->whole = false;
	frame_reader_fini(&c->reader);
	if (c->held.n > sizeof(*c))
		(void)!charge_set(&c->held, sizeof(*c));	/* less is never refused */
}

static void call_free(void *p)
{
	struct rpc_call *c = call_from(p);

	timer_clear(&c->timer);
	timer_clear(&c->silence);
	defer_cancel(&c->again);
	list_del(&c->node);
	if (c->charge)
		admit_give_back(&c->server->admit, c->charge, charge_of(c->method));
	forget_request(c);
	charge_fini(&c->held);
	if (c->x)
		http_stream_release(c->x);
	rpc_conn_unref(c->conn);
	c->magic = 0;
	free(c);
}

static void call_close(struct rpc_call *c)
{
	call_set_state(c, CALL_CLOSED);
	timer_clear(&c->timer);
	timer_clear(&c->silence);
	defer_cancel(&c->again);
	list_del(&c->hungry);
	end_urgent(c);
	http_stream_release(c->x);
	c->x = NULL;
	loop_bury(c->server->loop, &c->grave, call_free, c);
}

void rpc_call_drop(struct rpc_call *c)
{
	must(c->state != CALL_CLOSED);	/* those went with the pass they closed in */
	call_free(c);
}

static int response_head(struct fields *f)
{
	int r = grpc_response_head(f);

	return r ? r : fields_put(f, "grpc-accept-encoding", "identity,gzip");
}

/* Trailers, in the head of the response if there was none yet. */
static int write_end(struct rpc_call *c, const struct status *st)
{
	scoped(fields_fini) struct fields f = FIELDS_NULL;
	uint8_t *details = NULL;
	size_t n_details = 0;
	int r = 0;

	if (!status_ok(st))
		r = rpc_error_pack(st, &details, &n_details);
	if (!r && !c->head_sent)
		r = response_head(&f);
	if (!r)
		r = grpc_trailers(&f, st->code, st->text, details, n_details);
	if (!r && st->reason == R_DRAINING)
		r = fields_printf(&f, "grpc-retry-pushback-ms", "%u", MAX(st->retry_after_ms, 1u));
	if (!r)
		r = c->head_sent ? http_stream_finish(c->x, &f) : http_stream_respond(c->x, &f, true);
	free(details);
	return r;
}

/* A text of the request, "" where it has none of this name, or is a stream's. */
static const char *request_text(const struct rpc_call *c, const char *name)
{
	const ProtobufCFieldDescriptor *f =
		c->request ? protobuf_c_message_descriptor_get_field_by_name(c->method->request, name) : NULL;

	if (!f || f->type != PROTOBUF_C_TYPE_STRING || f->label == PROTOBUF_C_LABEL_REPEATED)
		return "";
	return *(char *const *)((const char *)c->request + f->offset);
}

static void tell_ended(struct rpc_call *c, const struct status *st)
{
	const struct rpc_ended e = { .method = c->method, .who = &c->conn->who, .status = st,
				     .request_id = request_text(c, "request_id"), .sandbox = request_text(c, "sandbox"),
				     .duration_us = clock_boot_us() - c->began_us };

	if (c->stats)
		rpc_stats_add(c->stats, &e);
	if (status_ok(st))
		return;
	c->server->failed_total++;
	if (st->reason == R_BUG || rpc_may_log(c->server))
		rpc_ended_log(&e);
}

/* The rest has to be taken, not necessarily at once. */
static void expect_flush(struct rpc_call *c)
{
	c->unsent = http_stream_unsent(c->x);
	if (timer_set(&c->timer, loop_now_ms(c->server->loop) + RPC_FLUSH_MS) < 0)
		http_stream_reset(c->x, H2_INTERNAL_ERROR);
}

static bool is_audited(const struct rpc_call *c)
{
	return audit_is_on(c->method->effect == RPC_CHANGES);
}

static void note_about(struct rpc_call *c, const ProtobufCMessage *m)
{
	if (is_audited(c))
		rpc_audit_note(&c->about, m);
}

/* Of a call that its handler has had: what was refused before has changed nothing. */
static void audit_end(struct rpc_call *c, const char *result)
{
	if (!c->touched || !is_audited(c))
		return;
	if (c->request)
		rpc_audit_note(&c->about, c->request);
	rpc_audit(c->conn, c->method, &c->about, c->request, result);
}

/* The answer names what was made. */
static void note_about_all(struct rpc_call *c, const ProtobufCMessage *answer)
{
	if (c->request)
		note_about(c, c->request);
	note_about(c, answer);
}

static const char *result_name(const struct status *st)
{
	return st->reason ? status_reason_name(st->reason) : status_code_name(st->code);
}

/* Our side's one end. The handler is not told: either it asked for this, or the caller tells it. */
static void call_end(struct rpc_call *c, const struct status *st)
{
	struct status explained;

	if (st->reason == R_UID_DENIED) {
		explained = *st;
		rpc_right_explain(c->conn, &explained);
		st = &explained;
	}
	call_set_state(c, CALL_ENDED);
	timer_clear(&c->silence);
	tell_ended(c, st);
	audit_end(c, result_name(st));
	if (write_end(c, st) < 0)
		http_stream_reset(c->x, H2_INTERNAL_ERROR);
	expect_flush(c);
	defer_post(&c->again);		/* drop what still comes in */
}

static void tell_gone(struct rpc_call *c, enum rpc_gone why)
{
	if (c->touched)
		c->method->handler->on_gone(c, why);
}

static void call_stop(struct rpc_call *c, const struct status *st, enum rpc_gone why)
{
	if (c->state != CALL_READING && c->state != CALL_OPEN)
		return;
	call_end(c, st);
	tell_gone(c, why);
}

void rpc_call_stop(struct rpc_call *c, const struct status *st)
{
	call_stop(c, st, RPC_GONE_SERVER);
}

void rpc_call_stop_right(struct rpc_call *c, const struct status *st)
{
	call_stop(c, st, RPC_GONE_RIGHT);
}

/* --- a stop of the daemon --- */

/* Only a request id lets a repeat find what was begun. */
static bool is_keyless(const struct rpc_call *c)
{
	const ProtobufCFieldDescriptor *f =
		protobuf_c_message_descriptor_get_field_by_name(c->method->request, "request_id");

	return f && c->request && str_is_empty(*(char *const *)((const char *)c->request + f->offset));
}

bool rpc_call_is_upload(const struct rpc_call *c)
{
	return c->method && c->method->kind == RPC_CLIENT_STREAM;
}

enum rpc_patience rpc_call_patience(const struct rpc_call *c)
{
	if (c->state != CALL_READING && c->state != CALL_OPEN)
		return RPC_PATIENCE_OVER;
	if (c->method->at_stop == RPC_STOP_WAIT || (!c->head_sent && is_keyless(c)))
		return RPC_PATIENCE_WHOLE;
	if (c->method->kind == RPC_SERVER_STREAM || c->method->waits)
		return RPC_PATIENCE_NONE;
	if (c->method->kind == RPC_BIDI && c->wanted)	/* all that came is answered */
		return RPC_PATIENCE_NONE;
	return RPC_PATIENCE_MOMENT;
}

void rpc_call_drain(struct rpc_call *c)
{
	struct status st = STATUS_OK;

	if (c->state == CALL_OPEN && c->method->at_stop == RPC_STOP_ONCE) {
		status_set(&st, R_OUTCOME_UNKNOWN, "agentboxd is stopping, and what became of this call is not known");
		st.code = CODE_UNKNOWN;
	} else if (c->state == CALL_OPEN && is_keyless(c) && !c->head_sent) {
		status_set(&st, R_OUTCOME_UNKNOWN, "agentboxd is stopping, and what became of this call is not known; with a "
			   "request_id a repeat would find out");
		st.code = CODE_UNKNOWN;
	} else {
		status_set(&st, R_DRAINING, "agentboxd is stopping; try again in a moment");
		st.retry_after_ms = RPC_PUSHBACK_MS;
	}
	rpc_call_stop(c, &st);
}

bool rpc_call_is_of(const struct rpc_call *c, const struct rpc_conn *conn)
{
	return c->conn == conn;
}

bool rpc_call_ends_with_right(const struct rpc_call *c)
{
	return c->state == CALL_READING || (c->state == CALL_OPEN && charge_of(c->method) == ADMIT_STREAM);
}

const struct rpc_method *rpc_call_method(const struct rpc_call *c)
{
	return c->method;
}

void rpc_call_ask_again(struct rpc_call *c)
{
	defer_post(&c->again);
}

struct rpc_call *rpc_call_from_node(struct list *node)
{
	return call_from(list_entry(node, struct rpc_call, node));
}

/* A client that gives up at its deadline sends a cancel shortly before ours fires. Its clock started
 * earlier, and clients round the timeout they send up by one part in fifty or less. */
static bool is_about_due(const struct rpc_call *c)
{
	uint64_t slack = MAX(c->timeout_ms / 50, 100u);

	return c->deadline_ms && loop_now_ms(c->server->loop) + slack >= c->deadline_ms;
}

/* Its client left. That is how most streams end, and what a unary call fails with. */
static void tell_left(struct rpc_call *c, enum rpc_gone why)
{
	struct status st = STATUS_OK;

	if (why == RPC_GONE_DEADLINE)
		status_set(&st, R_DEADLINE_REQUEST, "the client gave up at its deadline of %llu ms", (unsigned long long)c->timeout_ms);
	else if (c->method->kind == RPC_UNARY || c->method->kind == RPC_CLIENT_STREAM)
		status_set_code(&st, CODE_CANCELLED, why == RPC_GONE_LOST ? "the client's connection ended" :
				"the client cancelled the call");
	tell_ended(c, &st);
}

static void on_exchange_closed(struct rpc_call *c, enum http_close how)
{
	enum rpc_gone why = how == HTTP_CLOSE_LOST ? RPC_GONE_LOST : RPC_GONE_CANCELLED;
	bool open = c->state == CALL_READING || c->state == CALL_OPEN;

	if (how == HTTP_CLOSE_RESET && is_about_due(c))
		why = RPC_GONE_DEADLINE;
	else if (how == HTTP_CLOSE_LOCAL)
		why = RPC_GONE_SERVER;
	if (open) {
		tell_left(c, why);
		audit_end(c, why == RPC_GONE_DEADLINE ? status_reason_name(R_DEADLINE_REQUEST) : status_code_name(CODE_CANCELLED));
	}
	call_close(c);
	if (open)
		tell_gone(c, why);
}

/* --- the request -------------------------------------------------------------------------------- */

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
static void no_memory(struct rpc_call *c, size_t n, struct status *st)
{
	const struct quota *q = quota_tight(c->conn->quota, n);

	rpc_server_expect_relief(c->server);
	if (!q) {		/* there was none before somebody gave some back */
		status_set(st, R_QUOTA_UID, "what is held for uid %u leaves no room for this call", c->conn->who.uid);
		return;
	}
	status_set(st, q == c->conn->quota || q == uid_quotas_all(c->server->quotas) ? R_TOO_MANY_STREAMS : R_QUOTA_UID,
		   "%llu of %llu bytes are held for %s, which leaves no room for this call; take the answers that wait, or "
		   "end calls", (unsigned long long)quota_used(q), (unsigned long long)quota_max(q), quota_name(q));
	status_evidence(st, "max", "%llu", (unsigned long long)quota_max(q));
}

static ProtobufCMessage *decode(struct rpc_call *c, const struct buf *b, struct status *st)
{
	struct scan_error err = { .path = "" };
	ProtobufCMessage *m;
	enum scan_result r;
	size_t memory;

	r = scan_measure(c->method->request, buf_data(b), buf_len(b), &request_limits, &err, &memory);
	if (r != SCAN_OK) {
		scan_failed(r, &err, st);
		return NULL;
	}
	/* A stream's message lives as long as its handler looks at it: what its unpacking takes is the loop's own. */
	memory = takes_one_request(c) ? c->held.n + RPC_REQUEST_COPIES * memory : c->held.n;
	if (charge_set(&c->held, memory) < 0) {
		no_memory(c, memory - c->held.n, st);
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
		end_urgent(c);
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
		no_memory(c, c->reader.max, st);
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
	end_urgent(c);
	return *ret ? FRAME_MESSAGE : -EINVAL;
}

/* One message, if all of it is there. Returns FRAME_MESSAGE with *ret, or FRAME_MORE; negative with
 * `st` when the call cannot go on. */
static int read_message(struct rpc_call *c, ProtobufCMessage **ret, struct status *st)
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
	return take_message(c, ret, st);
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
	else if (takes_one_request(c) && !c->request)
		status_set_code(st, CODE_UNIMPLEMENTED, "the request has no message, it needs one");
	return status_ok(st);
}

static void call_open(struct rpc_call *c)
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
	struct status st = STATUS_OK;
	ProtobufCMessage *m;
	int r;

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
	if (!is_at_end(c))
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

static void read_stream(struct rpc_call *c)
{
	struct status st = STATUS_OK;
	ProtobufCMessage *m;
	int r = FRAME_MORE;

	while (c->state == CALL_OPEN && c->wanted && !is_held_back(c) &&
	       (r = read_message(c, &m, &st)) == FRAME_MESSAGE) {
		c->wanted--;
		if (!c->touched)
			note_about(c, m);
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

/* Nobody wants it any more; but what is not consumed would keep the exchange open. */
static void discard_request(struct rpc_call *c)
{
	const uint8_t *p;
	size_t n;

	forget_request(c);
	while ((n = http_stream_peek(c->x, &p)) > 0)
		http_stream_consume(c->x, n);
}

/* Nothing of a call is looked at before it is known that its client may make it. */
static bool is_cleared(struct rpc_call *c)
{
	struct status st = STATUS_OK;

	if (c->is_cleared || c->state == CALL_ENDED)
		return true;
	if (c->conn->is_asked)
		return false;
	c->is_cleared = rpc_right_check(c->conn, c->method, &st);
	if (!c->is_cleared)
		call_stop(c, &st, RPC_GONE_SERVER);
	return true;
}

static void call_look(struct rpc_call *c)
{
	enum http_close how;

	if (c->state == CALL_CLOSED)
		return;			/* waits for the end of the pass */
	how = http_stream_closed(c->x, NULL);
	if (how != HTTP_OPEN) {
		on_exchange_closed(c, how);
		return;
	}
	if (c->broken && c->state != CALL_ENDED) {
		struct status st = STATUS_OK;

		answer_failed(c, &st);
		call_stop(c, &st, RPC_GONE_SERVER);
	}
	if (!is_cleared(c))
		return;
	if (c->state == CALL_READING)
		read_one_request(c);
	else if (c->state == CALL_OPEN && !takes_one_request(c))
		read_stream(c);
	if (c->state == CALL_OPEN && c->starved && http_stream_room(c->x) > 0) {
		c->starved = false;
		if (c->method->handler->on_room)
			c->method->handler->on_room(c);
	}
	if (c->state == CALL_ENDED)
		discard_request(c);
}

static void call_on_ready(struct http_stream *x, void *user)
{
	call_look(call_from(user));
}

static void call_on_again(struct defer *d, void *user)
{
	call_look(call_from(user));
}

static void on_time(struct timer *t, void *user)
{
	struct rpc_call *c = call_from(user);
	struct status st = STATUS_OK;

	if (c->state == CALL_ENDED) {
		if (http_stream_unsent(c->x) + RPC_FLUSH_BYTES <= c->unsent) {
			expect_flush(c);
			return;
		}
		log_info("call_unread", "method=%s uid=%u pid=%d unsent=%zu",
			 c->method ? c->method->path : "?", c->conn->who.uid, (int)c->conn->who.pid,
			 http_stream_unsent(c->x));
		http_stream_reset(c->x, H2_NO_ERROR);
		return;
	}
	if (c->deadline_ms && loop_now_ms(c->server->loop) >= c->deadline_ms)
		status_set(&st, R_DEADLINE_REQUEST, "the call's deadline of %llu ms has passed",
			   (unsigned long long)c->timeout_ms);
	else
		status_set(&st, R_DEADLINE_REQUEST, "the request was not whole after %u s",
			   RPC_REQUEST_MS / 1000);
	call_stop(c, &st, RPC_GONE_DEADLINE);
}

static void call_on_silence(struct timer *t, void *user)
{
	struct rpc_call *c = call_from(user);
	uint64_t now = loop_now_ms(c->server->loop), due = c->sent_at_ms + RPC_SILENCE_MS;

	if (now >= due) {
		due = now + RPC_SILENCE_MS;
		/* With bytes unsent there is no silence to break, only a client that does not read. */
		if (!http_stream_unsent(c->x))
			c->method->handler->on_silence(c);
	}
	if (c->state == CALL_OPEN && timer_set(&c->silence, due) < 0) {
		c->broken = true;
		defer_post(&c->again);
	}
}

/* --- the beginning ------------------------------------------------------------------------------ */

static bool is_repeated(const struct fields *head, const char *name)
{
	int first = fields_find(head, name, 0);

	return first >= 0 && fields_find(head, name, (uint32_t)first + 1) >= 0;
}

static bool check_binary_metadata(const struct fields *head, struct status *st)
{
	scratch_ uint8_t bytes[RPC_HEAD_MAX_BYTES];

	for (uint32_t i = 0; i < head->n; i++) {
		size_t n = head->v[i].name_len;

		if (n < 4 || strcmp(fields_name(head, i) + n - 4, "-bin"))
			continue;
		/* Several values may be joined by commas. */
		for (const char *at = fields_value(head, i); *at;) {
			size_t len = strcspn(at, ",");

			if (len > RPC_HEAD_MAX_BYTES || str_base64_decode(at, len, bytes) < 0) {
				status_field(st, "metadata", "%.64s is not base64",
					     fields_name(head, i));
				return false;
			}
			at += len + (at[len] == ',');
		}
	}
	return true;
}

static bool check_head(struct rpc_call *c, const struct fields *head, struct status *st)
{
	static const char *const single[] = { "content-type", "grpc-timeout", "grpc-encoding", "te" };
	const char *timeout = fields_get(head, "grpc-timeout");
	const char *encoding = fields_get(head, "grpc-encoding");

	for (size_t i = 0; i < ARRAY_SIZE(single); i++)
		if (is_repeated(head, single[i])) {
			status_field(st, "metadata", "%s is there twice", single[i]);
			return false;
		}
	c->gzip = encoding && str_eq(encoding, "gzip");
	if (encoding && !c->gzip && !str_eq(encoding, "identity")) {
		status_set_code(st, CODE_UNIMPLEMENTED, "messages may be compressed by gzip or not at all");
		return false;
	}
	if (timeout) {
		if (grpc_timeout_parse(timeout, &c->timeout_ms) < 0) {
			status_field(st, "grpc-timeout", "not 1 to 8 digits and one of H M S m u n");
			return false;
		}
		c->deadline_ms = loop_now_ms(c->server->loop) + c->timeout_ms;
	}
	return check_binary_metadata(head, st);
}

static bool find_method(struct rpc_call *c, const char *path, struct status *st)
{
	struct rpc_entry *e = map_get_str(&c->server->methods, path);

	if (!e) {
		status_set_code(st, CODE_UNIMPLEMENTED, "no method %.128s here", path);
		return false;
	}
	c->method = e->method;
	c->service = e->service;
	c->stats = &e->stats;
	return true;
}

static bool admit(struct rpc_call *c, struct status *st)
{
	struct rpc_server *s = c->server;
	enum admit_what what = charge_of(c->method);
	uid_t uid = c->conn->who.uid;
	int r = admit_take(&s->admit, uid, what, &c->charge);

	if (r == ADMIT_OK)
		return true;
	if (r < 0) {
		status_errno(st, r, "admitting the call");
		return false;
	}
	status_set(st, R_TOO_MANY_STREAMS, r == ADMIT_UID_FULL ?
		   "uid %u has %u open %s, which is all it may have" :
		   "uid %u has %u open %s, and all users together have all there are",
		   uid, admit_held(&s->admit, uid, what), what == ADMIT_CALL ? "calls" : "streams");
	if (what == ADMIT_STREAM)
		status_evidence(st, "max", "%u", admit_max_streams(&s->admit, uid));
	return false;
}

static bool head_fits(const struct rpc_call *c, struct status *st)
{
	if (!http_stream_head_is_cut(c->x))
		return true;
	status_set(st, R_TOO_LARGE, "the metadata of a call has at most %u fields and %u bytes, 32 for each field included",
		   RPC_HEAD_MAX_N, RPC_HEAD_MAX_BYTES);
	st->code = CODE_RESOURCE_EXHAUSTED;
	return false;
}

static bool has_memory(struct rpc_call *c, struct status *st)
{
	if (charge_reserve(&c->held, RPC_CALL_BYTES) == 0)
		return true;
	c->server->refused_total++;
	no_memory(c, RPC_CALL_BYTES, st);
	return false;
}

/* Where it is not known yet who asks, the call waits (is_cleared()). */
static bool may_call(struct rpc_call *c, struct status *st)
{
	if (c->conn->is_asked)
		return true;
	c->is_cleared = rpc_right_check(c->conn, c->method, st);
	return c->is_cleared;
}

static bool call_first_step(struct rpc_call *c, struct status *st)
{
	const struct fields *head = http_stream_head(c->x);
	uint64_t due = loop_now_ms(c->server->loop) + RPC_REQUEST_MS;

	if (!head_fits(c, st) || !find_method(c, fields_get(head, ":path"), st) || !check_head(c, head, st) ||
	    !may_call(c, st) || !has_memory(c, st) || !admit(c, st))
		return false;
	if (takes_one_request(c)) {
		frame_reader_init(&c->reader, RPC_UNARY_MAX_BYTES);
		frame_reader_set_quota(&c->reader, c->conn->quota);
		if (c->deadline_ms)
			due = MIN(due, c->deadline_ms);
		if (timer_set(&c->timer, due) < 0) {
			status_errno(st, -ENOMEM, "waiting for the request");
			return false;
		}
	} else {
		frame_reader_init(&c->reader, RPC_STREAM_MAX_BYTES);
		frame_reader_set_quota(&c->reader, c->conn->quota);
		c->wanted = 1;
		call_open(c);
	}
	return true;
}

/* Not gRPC at all: an HTTP answer. */
static void refuse_http(struct rpc_call *c, int http_status)
{
	scoped(fields_fini) struct fields f = FIELDS_NULL;

	call_set_state(c, CALL_ENDED);
	if (fields_printf(&f, ":status", "%d", http_status) < 0 ||
	    http_stream_respond(c->x, &f, true) < 0)
		http_stream_reset(c->x, H2_INTERNAL_ERROR);
	expect_flush(c);
}

static struct rpc_call *call_make(struct quota *q)
{
	struct charge held = { .quota = q };
	struct rpc_call *c;

	if (charge_set(&held, sizeof(*c)) < 0)
		return NULL;
	c = calloc(1, sizeof(*c));
	if (!c) {
		charge_fini(&held);
		return NULL;
	}
	c->held = held;
	c->state = CALL_READING;
	return c;
}

void rpc_call_begin(struct rpc_server *s, struct rpc_conn *conn, struct http_stream *x)
{
	struct rpc_call *c = call_make(conn->quota);
	struct status st = STATUS_OK;
	int http_status;

	if (!c) {
		http_stream_reset(x, H2_REFUSED_STREAM);
		http_stream_release(x);
		return;
	}
	c->magic = CALL_MAGIC;
	c->began_us = clock_boot_us();
	c->server = s;
	c->conn = conn;
	conn->n_calls++;
	c->x = x;
	timer_init(&c->timer, s->loop, on_time, c);
	timer_init(&c->silence, s->loop, call_on_silence, c);
	defer_init(&c->again, s->loop, call_on_again, c);
	list_init(&c->hungry);
	list_add_tail(&s->calls, &c->node);
	http_stream_set_owner(x, call_on_ready, c);
	s->calls_total++;

	http_status = http_stream_head_is_cut(x) ? 0 : grpc_check_request(http_stream_head(x));
	if (http_status)
		refuse_http(c, http_status);
	else if (!call_first_step(c, &st))
		call_end(c, &st);
	http_stream_drop_head(x);	/* nobody looks at it any more */
	defer_post(&c->again);	/* what came with the head */
}

/* --- what handlers call ------------------------------------------------------------------------- */

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

void rpc_call_next(struct rpc_call *c)
{
	must(c->state == CALL_OPEN && !takes_one_request(c));
	c->wanted++;
	defer_post(&c->again);
}

static int write_head(struct rpc_call *c)
{
	scoped(fields_fini) struct fields f = FIELDS_NULL;
	int r;

	if (c->head_sent)
		return 0;
	r = response_head(&f);
	if (!r)
		r = http_stream_respond(c->x, &f, false);
	c->head_sent = !r;
	return r;
}

/* -EPIPE: it is closed and the news of that is on its way. */
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
	no_memory(c, n, st);
	return false;
}

struct quota *rpc_call_quota(const struct rpc_call *c)
{
	return c->conn->quota;
}

static int write_message(struct rpc_call *c, const ProtobufCMessage *m)
{
	uint8_t small[SEND_ON_STACK], *p = small;
	size_t n = protobuf_c_message_get_packed_size(m);
	int r;

	if (n > UINT32_MAX - FRAME_PREFIX_BYTES)
		return -EMSGSIZE;
	if (n + FRAME_PREFIX_BYTES > sizeof(small)) {
		p = malloc(n + FRAME_PREFIX_BYTES);
		if (!p)
			return -ENOMEM;
	}
	frame_prefix(p, 0, (uint32_t)n);
	protobuf_c_message_pack(m, p + FRAME_PREFIX_BYTES);
	r = http_stream_write(c->x, p, n + FRAME_PREFIX_BYTES);
	if (p != small)
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

void rpc_call_send(struct rpc_call *c, const ProtobufCMessage *message)
{
	int r;

	must(c->state == CALL_OPEN);
	r = write_head(c);
	if (!r)
		r = write_message(c, message);
	note_sent(c, r);
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

static void answer_failed(struct rpc_call *c, struct status *st)
{
	if (c->no_room)
		no_memory(c, 0, st);
	else
		status_errno(st, -ENOMEM, "answering");
}

void rpc_call_reply(struct rpc_call *c, const ProtobufCMessage *message)
{
	size_t n = protobuf_c_message_get_packed_size(message) + FRAME_PREFIX_BYTES;
	struct status st = STATUS_OK;

	if (n > http_stream_room(c->x) && n > quota_spare(c->conn->quota)) {
		status_set(&st, R_TOO_MANY_STREAMS, "so much is held for uid %u, or on this connection, that an answer of "
			   "%zu bytes has to wait until others are read", c->conn->who.uid, n);
		call_end(c, &st);
		return;
	}
	rpc_call_send(c, message);
	if (c->broken)
		answer_failed(c, &st);
	note_about_all(c, message);
	call_end(c, &st);
}

void rpc_call_finish(struct rpc_call *c)
{
	struct status st = STATUS_OK;

	must(c->state == CALL_OPEN);
	note_failure(c, write_head(c));
	if (c->broken)
		answer_failed(c, &st);
	call_end(c, &st);
}

void rpc_call_fail(struct rpc_call *c, const struct status *st)
{
	must(c->state == CALL_OPEN && !status_ok(st));
	call_end(c, st);
}

void rpc_call_answer(struct rpc_call *c, const struct status *st, const ProtobufCMessage *message)
{
	if (status_ok(st))
		rpc_call_reply(c, message);
	else
		rpc_call_fail(c, st);
}
