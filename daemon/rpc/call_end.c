/* SPDX-License-Identifier: MIT */
/* The one end of a call: its trailers, who is told, what is logged and audited. */
#include "daemon/rpc/call_impl.h"

#include <stdlib.h>

#include "daemon/rpc/ended.h"
#include "daemon/rpc/error.h"
#include "daemon/rpc/limits.h"
#include "proto/base/clock.h"
#include "proto/base/must.h"
#include "proto/wire/grpc.h"
#include "proto/wire/h2.h"

void call_end_urgent(struct rpc_call *c)
{
	c->reader.urgent = false;
	if (c->conn->urgent == c)
		c->conn->urgent = NULL;
}

/* Nobody looks at it any more. */
void call_forget_request(struct rpc_call *c)
{
	list_del(&c->hungry);
	call_end_urgent(c);
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
		admit_give_back(&c->server->admit, c->charge, call_charged_as(c->method));
	call_forget_request(c);
	charge_fini(&c->held);
	if (c->x)
		http_stream_release(c->x);
	rpc_conn_unref(c->conn);
	c->magic = 0;
	free(c);
}

void call_close(struct rpc_call *c)
{
	call_set_state(c, CALL_CLOSED);
	timer_clear(&c->timer);
	timer_clear(&c->silence);
	defer_cancel(&c->again);
	list_del(&c->hungry);
	call_end_urgent(c);
	http_stream_release(c->x);
	c->x = NULL;
	loop_bury(c->server->loop, &c->grave, call_free, c);
}

void rpc_calls_drop(struct rpc_server *s)
{
	list_for_each_safe(n, &s->calls) {
		struct rpc_call *c = list_entry(n, struct rpc_call, node);

		must(c->state != CALL_CLOSED);	/* those went with the pass they closed in */
		call_free(c);
	}
}

/* Trailers, in the head of the response if there was none yet. */
static int write_status(struct rpc_call *c, const struct status *st)
{
	scoped(fields_fini) struct fields f = FIELDS_NULL;
	uint8_t *details = NULL;
	size_t n_details = 0;
	int r = 0;

	if (!status_ok(st))
		r = rpc_error_pack(st, &details, &n_details);
	if (!r && !c->head_sent)
		r = rpc_response_head(&f);
	if (!r)
		r = grpc_trailers(&f, st->code, st->text, details, n_details);
	if (!r && st->reason == R_DRAINING)
		r = fields_printf(&f, "grpc-retry-pushback-ms", "%u", MAX(st->retry_after_ms, 1u));
	if (!r)
		r = c->head_sent ? http_stream_finish(c->x, &f) : http_stream_respond(c->x, &f, true);
	free(details);
	return r;
}

static int write_end(struct rpc_call *c, const struct status *st)
{
	return c->head_sent && status_ok(st) ? http_stream_finish(c->x, &c->server->end_ok) : write_status(c, st);
}

/* A text of the request, "" where it has none of this name, or is a stream's. */
static const char *request_text(const struct rpc_call *c, const char *name)
{
	const char *text = c->request ? rpc_text_field(c->request, name) : NULL;

	return text ? text : "";
}

static void tell_ended(struct rpc_call *c, const struct status *st)
{
	const struct rpc_ended e = { .method = c->method, .who = &c->conn->who, .status = st, .trace = &c->trace,
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
void call_expect_flush(struct rpc_call *c)
{
	c->unsent = http_stream_unsent(c->x);
	if (timer_set(&c->timer, loop_now_ms(c->server->loop) + RPC_FLUSH_MS) < 0)
		http_stream_reset(c->x, H2_INTERNAL_ERROR);
}

bool rpc_call_is_audited(const struct rpc_call *c)
{
	return audit_is_on(rpc_method_is_change(c->method));
}

void call_note_about(struct rpc_call *c, const ProtobufCMessage *m)
{
	if (rpc_call_is_audited(c))
		rpc_audit_note(&c->about, m);
}

/* Of a call that its handler has had: what was refused before has changed nothing. */
static void audit_end(struct rpc_call *c, const char *result)
{
	if (!c->touched || !rpc_call_is_audited(c))
		return;
	if (c->request)
		rpc_audit_note(&c->about, c->request);
	rpc_audit(c->conn, c->method, &c->about, c->request, &c->trace, result);
}

/* The answer names what was made. */
void call_note_about_all(struct rpc_call *c, const ProtobufCMessage *answer)
{
	if (c->request)
		call_note_about(c, c->request);
	call_note_about(c, answer);
}

static const char *result_name(const struct status *st)
{
	return st->reason ? status_reason_name(st->reason) : status_code_name(st->code);
}

/* Our side's one end. The handler is not told: either it asked for this, or the caller tells it. */
void call_end(struct rpc_call *c, const struct status *st)
{
	scratch_ struct status explained;

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
	call_expect_flush(c);
	defer_post(&c->again);		/* drop what still comes in */
}

static void tell_gone(struct rpc_call *c, enum rpc_gone why)
{
	if (c->touched && c->method->handler->on_gone)
		c->method->handler->on_gone(c, why);
}

void call_stop(struct rpc_call *c, const struct status *st, enum rpc_gone why)
{
	if (c->state != CALL_READING && c->state != CALL_OPEN)
		return;
	call_end(c, st);
	tell_gone(c, why);
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

void call_on_exchange_closed(struct rpc_call *c, enum http_close how)
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
