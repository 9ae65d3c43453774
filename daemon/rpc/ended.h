/* SPDX-License-Identifier: MIT */
/* What is told of a call when it has ended: its line in the log, and what is counted of its method. */
#ifndef AB_DAEMON_RPC_ENDED_H
#define AB_DAEMON_RPC_ENDED_H

#include "daemon/common/obs/exemplar.h"
#include "daemon/common/obs/histogram.h"
#include "daemon/common/obs/tally.h"
#include "daemon/rpc/method.h"
#include "proto/base/status.h"

struct principal;
struct trace;

struct rpc_ended {
	const struct rpc_method *method;	/* NULL: refused before it was known */
	const struct principal *who;
	const struct status *status;
	const char *request_id, *sandbox;	/* as the request has them; "" = none, or a stream's */
	uint64_t duration_us;
	const struct trace *trace;
};

struct rpc_stats {
	struct histogram latency;		/* of unary calls that do not wait; empty of others */
	struct exemplars examples;		/* of its steps */
	struct tally ends;
};

void rpc_stats_add(struct rpc_stats *s, const struct rpc_ended *e);
/* One line about a call that failed. */
void rpc_ended_log(const struct rpc_ended *e);

#endif
