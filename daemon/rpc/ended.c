/* SPDX-License-Identifier: MIT */
#include "daemon/rpc/ended.h"

#include "daemon/auth/owner.h"
#include "daemon/auth/principal.h"
#include "daemon/common/obs/log.h"
#include "proto/wire/trace.h"

void rpc_stats_add(struct rpc_stats *s, const struct rpc_ended *e)
{
	char trace[TRACE_ID_BYTES];

	tally_add(&s->ends, e->status);
	if (e->method->kind != RPC_UNARY || e->method->waits)
		return;
	histogram_add(&s->latency, e->duration_us);
	exemplars_note(&s->examples, e->duration_us, trace_id(e->trace, trace), e->request_id);
}

void rpc_ended_log(const struct rpc_ended *e)
{
	const struct status *st = e->status;
	char trace[TRACE_ID_BYTES];

	/* What a client does wrong is news for the client; ours is for the log's reader. */
	log_event(st->reason == R_BUG ? LOG_LEVEL_ERROR : LOG_LEVEL_INFO, "call_failed",
		  "method=%s uid=%u pid=%d req=%s sandbox=%s code=%s reason=%s duration_us=%llu trace=%s error=%s",
		  e->method ? e->method->path : "?", owner_uid(e->who->uid), (int)e->who->pid, log_q(e->request_id), log_q(e->sandbox),
		  status_code_name(st->code), status_reason_name(st->reason), (unsigned long long)e->duration_us, log_q(trace_id(e->trace, trace)), log_q(st->text));
}
