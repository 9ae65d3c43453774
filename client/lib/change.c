/* SPDX-License-Identifier: MIT */
/* Pause, network, fork and metrics of SandboxService. */
#include <errno.h>

#include "proto/gen/agentbox_sandbox.pb-c.h"

#include "client/lib/client.h"
#include "client/lib/msg.h"
#include "client/lib/msg_in.h"
#include "proto/base/str.h"

#define PATH(name) "/agentbox.v1.SandboxService/" name

/* --- pause --- */

static int on_paused(struct ab_call *call, ProtobufCMessage *m)
{
	return call_take_answer(call, m, ((Agentbox__V1__PauseSandboxResponse *)m)->paused);
}

int ab_sandbox_pause_start(struct ab_client *c, const char *sandbox, enum ab_choice keep_memory,
			   const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Pause"),
		.reply = &agentbox__v1__pause_sandbox_response__descriptor,
		.on_reply = on_paused,
	};
	Agentbox__V1__PauseSandboxRequest req = AGENTBOX__V1__PAUSE_SANDBOX_REQUEST__INIT;

	if (str_is_empty(sandbox))
		return -EINVAL;
	req.sandbox = (char *)sandbox;
	if (keep_memory) {
		req._keep_memory_case = AGENTBOX__V1__PAUSE_SANDBOX_REQUEST___KEEP_MEMORY_KEEP_MEMORY;
		req.keep_memory = keep_memory == AB_YES;
	}
	return call_start(c, &m, &req.base, how, ret);
}

int ab_sandbox_pause(struct ab_client *c, const char *sandbox, enum ab_choice keep_memory,
		     const struct ab_call_options *how, bool *ret_paused)
{
	struct ab_call *call = NULL;
	int r = ab_sandbox_pause_start(c, sandbox, keep_memory, how, &call);

	return wait_answer(c, r, call, ret_paused);
}

/* --- network --- */

static int on_updated(struct ab_call *call, ProtobufCMessage *m)
{
	return call_take_answer(call, m, true);
}

int ab_sandbox_update_network_start(struct ab_client *c, const char *sandbox,
				    const struct ab_network *network, enum ab_choice allow_internet_access,
				    const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("UpdateNetwork"),
		.reply = &agentbox__v1__update_network_response__descriptor,
		.on_reply = on_updated,
	};
	Agentbox__V1__UpdateNetworkRequest req = AGENTBOX__V1__UPDATE_NETWORK_REQUEST__INIT;
	struct msg_network *out;
	int r;

	if (str_is_empty(sandbox))
		return -EINVAL;
	r = msg_network_out(network, &out);
	if (r < 0)
		return r;
	req.sandbox = (char *)sandbox;
	req.network = msg_network_message(out);
	if (allow_internet_access) {
		req._allow_internet_access_case =
			AGENTBOX__V1__UPDATE_NETWORK_REQUEST___ALLOW_INTERNET_ACCESS_ALLOW_INTERNET_ACCESS;
		req.allow_internet_access = allow_internet_access == AB_YES;
	}
	r = call_start(c, &m, &req.base, how, ret);
	msg_network_free(out);
	return r;
}

int ab_sandbox_update_network(struct ab_client *c, const char *sandbox, const struct ab_network *network,
			      enum ab_choice allow_internet_access, const struct ab_call_options *how)
{
	struct ab_call *call = NULL;
	int r = ab_sandbox_update_network_start(c, sandbox, network, allow_internet_access, how, &call);

	return wait_answer(c, r, call, NULL);
}

/* --- fork --- */

int ab_sandbox_fork_start(struct ab_client *c, const char *sandbox, const struct ab_fork_options *o,
			  const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Fork"),
		.reply = &agentbox__v1__fork_sandbox_response__descriptor,
		.make = msg_forks,
		.repeatable = true,	/* the request id sees to it */
	};
	static const struct ab_fork_options none;
	Agentbox__V1__ForkSandboxRequest req = AGENTBOX__V1__FORK_SANDBOX_REQUEST__INIT;
	Google__Protobuf__Duration timeout;
	struct msg_policy policy;
	struct ab_call *call;
	const char *id;
	int r;

	if (str_is_empty(sandbox))
		return -EINVAL;
	o = o ? o : &none;
	r = call_new(c, &m, how, &call);
	if (r < 0)
		return r;
	r = call_request_id(call, o->request_id, &id);
	if (r < 0) {
		call_destroy(call);
		return r;
	}
	req.request_id = (char *)id;
	req.sandbox = (char *)sandbox;
	req.count = o->count;
	req.sandbox_timeout = msg_duration(&timeout, o->sandbox_timeout_ms);
	req.policy = msg_policy_out(&policy, o->policy);
	return call_submit(call, &req.base, ret);
}

int ab_sandbox_fork(struct ab_client *c, const char *sandbox, const struct ab_fork_options *o,
		    const struct ab_call_options *how, struct ab_fork_list **ret)
{
	struct ab_call *call = NULL;
	int r = ab_sandbox_fork_start(c, sandbox, o, how, &call);

	return wait_object(c, r, call, (void **)ret);
}

/* --- metrics --- */

int ab_sandbox_get_metrics_start(struct ab_client *c, const char *sandbox, int64_t start_at_ms,
				 int64_t end_at_ms, const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("GetMetrics"),
		.reply = &agentbox__v1__get_metrics_response__descriptor,
		.make = msg_metrics,
		.repeatable = true,
	};
	Agentbox__V1__GetMetricsRequest req = AGENTBOX__V1__GET_METRICS_REQUEST__INIT;
	Google__Protobuf__Timestamp start, end;

	if (str_is_empty(sandbox))
		return -EINVAL;
	req.sandbox = (char *)sandbox;
	req.start = msg_moment(&start, start_at_ms);
	req.end = msg_moment(&end, end_at_ms);
	return call_start(c, &m, &req.base, how, ret);
}

int ab_sandbox_get_metrics(struct ab_client *c, const char *sandbox, int64_t start_at_ms, int64_t end_at_ms,
			   const struct ab_call_options *how, struct ab_metric_list **ret)
{
	struct ab_call *call = NULL;
	int r = ab_sandbox_get_metrics_start(c, sandbox, start_at_ms, end_at_ms, how, &call);

	return wait_object(c, r, call, (void **)ret);
}
