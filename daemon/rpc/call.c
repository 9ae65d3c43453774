/* SPDX-License-Identifier: MIT */
/*
 * One RPC: from the request head to its one end. call_look() looks at the exchange and does what can
 * be done, in a fixed order: its end, the request, the handler's wish to send. It runs when the
 * exchange is ready and when the handler asked for something; so handlers are only ever called
 * from the loop.
 */
#include "daemon/rpc/call_impl.h"

#include "daemon/auth/owner.h"
#include "daemon/common/obs/log.h"
#include "daemon/rpc/limits.h"
#include "proto/base/must.h"
#include "proto/wire/h2.h"

static const struct {
	const char *name;
	unsigned next;
} call_states[] = {
	[CALL_READING] = { "reading", BIT(CALL_OPEN) | BIT(CALL_ENDED) | BIT(CALL_CLOSED) },
	[CALL_OPEN] = { "open", BIT(CALL_ENDED) | BIT(CALL_CLOSED) },
	[CALL_ENDED] = { "ended", BIT(CALL_CLOSED) },
	[CALL_CLOSED] = { "closed", 0 },
};

struct rpc_call *call_from(void *p)
{
	struct rpc_call *c = p;

	must(c && c->magic == CALL_MAGIC);
	return c;
}

void call_set_state(struct rpc_call *c, enum call_state to)
{
	must(call_states[c->state].next & BIT(to));
	log_debug("call_state", "method=%s from=%s to=%s", c->method ? c->method->path : "?",
		  call_states[c->state].name, call_states[to].name);
	c->state = to;
}

bool call_takes_one_request(const struct rpc_call *c)
{
	return c->method->kind == RPC_UNARY || c->method->kind == RPC_SERVER_STREAM;
}

enum admit_what call_charged_as(const struct rpc_method *m)
{
	return m->kind == RPC_UNARY && !m->waits ? ADMIT_CALL : ADMIT_STREAM;
}

/* Nothing of a call is looked at before it is known that its client may make it. */
static bool is_cleared(struct rpc_call *c)
{
	scratch_ struct status st;

	if (c->is_cleared || c->state == CALL_ENDED)
		return true;
	if (c->conn->is_asked)
		return false;
	status_clear(&st);
	c->is_cleared = rpc_right_check(c->conn, c->method, &st);
	if (!c->is_cleared)
		call_stop(c, &st, RPC_GONE_SERVER);
	return true;
}

bool call_is_held(const struct rpc_call *c)
{
	return c->server->holding && c->state == CALL_READING && c->method->effect == RPC_BEGINS;
}

void call_look(struct rpc_call *c)
{
	enum http_close how;

	if (c->state == CALL_CLOSED)
		return;			/* waits for the end of the pass */
	how = http_stream_closed(c->x, NULL);
	if (how != HTTP_OPEN) {
		call_on_exchange_closed(c, how);
		return;
	}
	if (c->broken && c->state != CALL_ENDED) {
		scratch_ struct status st;

		call_answer_failed(c, &st);
		call_stop(c, &st, RPC_GONE_SERVER);
	}
	if (!is_cleared(c))
		return;
	call_read(c);
	if (c->state == CALL_OPEN && c->starved && http_stream_room(c->x) > 0) {
		c->starved = false;
		if (c->method->handler->on_room)
			c->method->handler->on_room(c);
	}
	if (c->state == CALL_ENDED)
		call_discard_request(c);
}

void call_on_ready(struct http_stream *x, void *user)
{
	call_look(call_from(user));
}

void call_on_again(struct defer *d, void *user)
{
	call_look(call_from(user));
}

void call_on_time(struct timer *t, void *user)
{
	struct rpc_call *c = call_from(user);
	scratch_ struct status st;

	if (c->state == CALL_ENDED) {
		if (http_stream_unsent(c->x) + RPC_FLUSH_BYTES <= c->unsent) {
			call_expect_flush(c);
			return;
		}
		log_info("call_unread", "method=%s uid=%u pid=%d unsent=%zu",
			 c->method ? c->method->path : "?", owner_uid(c->conn->who.uid), (int)c->conn->who.pid,
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

void call_on_silence(struct timer *t, void *user)
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
