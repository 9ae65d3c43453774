/* SPDX-License-Identifier: MIT */
/* A stop of the daemon, call by call. */
#include "daemon/rpc/call_impl.h"

#include "daemon/rpc/limits.h"
#include "daemon/rpc/server.h"
#include "proto/base/str.h"

/* How long a stop of the daemon lets a call go on. */
enum patience {
	PATIENCE_OVER,	/* it has its end */
	PATIENCE_NONE,
	PATIENCE_MOMENT,
	PATIENCE_WHOLE,
};

/* Only a request id lets a repeat find what was begun. */
static bool is_keyless(const struct rpc_call *c)
{
	const char *id = c->request ? rpc_text_field(c->request, "request_id") : NULL;

	return id && !*id;
}

static enum patience patience_of(const struct rpc_call *c)
{
	if (c->state != CALL_READING && c->state != CALL_OPEN)
		return PATIENCE_OVER;
	if (call_is_held(c))
		return PATIENCE_NONE;
	if (c->method->at_stop == RPC_STOP_WAIT || (!c->head_sent && is_keyless(c)))
		return PATIENCE_WHOLE;
	if (c->method->kind == RPC_SERVER_STREAM || c->method->waits)
		return PATIENCE_NONE;
	if (c->method->kind == RPC_BIDI && c->wanted)	/* all that came is answered */
		return PATIENCE_NONE;
	return PATIENCE_MOMENT;
}

/* Ends it for the stop: DRAINING, or OUTCOME_UNKNOWN. */
static void drain_call(struct rpc_call *c)
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
	call_stop(c, &st, RPC_GONE_SERVER);
}

bool rpc_server_drain_calls(struct rpc_server *s, bool moment_over, struct rpc_waited *ret)
{
	*ret = (struct rpc_waited){ 0 };
	list_for_each_safe(n, &s->calls) {
		struct rpc_call *c = list_entry(n, struct rpc_call, node);
		enum patience patience = patience_of(c);

		if (patience == PATIENCE_OVER)
			continue;
		if (patience == PATIENCE_NONE || (patience == PATIENCE_MOMENT && moment_over))
			drain_call(c);
		else if (patience == PATIENCE_MOMENT)
			ret->ending++;
		else if (c->method->kind == RPC_CLIENT_STREAM)
			ret->uploads++;
		else
			ret->others++;
	}
	return ret->ending || ret->uploads || ret->others;
}

void rpc_server_drain_end(struct rpc_server *s)
{
	list_for_each_safe(n, &s->calls) {
		struct rpc_call *c = list_entry(n, struct rpc_call, node);

		if (patience_of(c) != PATIENCE_OVER)
			drain_call(c);
	}
	for (unsigned i = 0; i < s->n_http; i++)
		http_server_drain_end(s->http[i]);
}
