/* SPDX-License-Identifier: MIT */
/* A stop of the daemon, call by call. */
#include "daemon/common/net/http.h"
#include "daemon/rpc/internal.h"
#include "daemon/rpc/server.h"

bool rpc_server_drain_calls(struct rpc_server *s, bool moment_over, struct rpc_waited *ret)
{
	*ret = (struct rpc_waited){ 0 };
	list_for_each_safe(n, &s->calls) {
		struct rpc_call *c = rpc_call_from_node(n);
		enum rpc_patience patience = rpc_call_patience(c);

		if (patience == RPC_PATIENCE_OVER)
			continue;
		if (patience == RPC_PATIENCE_NONE || (patience == RPC_PATIENCE_MOMENT && moment_over))
			rpc_call_drain(c);
		else if (patience == RPC_PATIENCE_MOMENT)
			ret->ending++;
		else if (rpc_call_is_upload(c))
			ret->uploads++;
		else
			ret->others++;
	}
	return ret->ending || ret->uploads || ret->others;
}

void rpc_server_drain_end(struct rpc_server *s)
{
	list_for_each_safe(n, &s->calls) {
		struct rpc_call *c = rpc_call_from_node(n);

		if (rpc_call_patience(c) != RPC_PATIENCE_OVER)
			rpc_call_drain(c);
	}
	for (unsigned i = 0; i < s->n_http; i++)
		http_server_drain_end(s->http[i]);
}
