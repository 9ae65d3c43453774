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

int ab_sandbox_pause_start(struct ab_client *c, const char *sandbox, enum ab_choice keep_memory,
			   const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Pause"),
		.reply = &agentbox__v1__pause_sandbox_response__descriptor,
		.answer_at = offsetof(Agentbox__V1__PauseSandboxResponse, paused),
	};
	Agentbox__V1__PauseSandboxRequest req = AGENTBOX__V1__PAUSE_SANDBOX_REQUEST__INIT;

	if (str_is_empty(sandbox))
		return -EINVAL;
	req.sandbox = (char *)sandbox;
	MSG_SET_CHOICE(&req, keep_memory,
		       AGENTBOX__V1__PAUSE_SANDBOX_REQUEST___KEEP_MEMORY_KEEP_MEMORY, keep_memory);
	return call_start(c, &m, &req.base, how, ret);
}

int ab_sandbox_pause(struct ab_client *c, const char *sandbox, enum ab_choice keep_memory,
		     const struct ab_call_options *how, bool *ret_paused)
{
	return wait_answer(c, ab_sandbox_pause_start(c, sandbox, keep_memory, how, &c->started), ret_paused);
}

/* --- network --- */

int ab_sandbox_update_network_start(struct ab_client *c, const char *sandbox,
				    const struct ab_network *network, enum ab_choice allow_internet_access,
				    const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("UpdateNetwork"),
		.reply = &agentbox__v1__update_network_response__descriptor,
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
	MSG_SET_CHOICE(&req, allow_internet_access,
		       AGENTBOX__V1__UPDATE_NETWORK_REQUEST___ALLOW_INTERNET_ACCESS_ALLOW_INTERNET_ACCESS, allow_internet_access);
	r = call_start(c, &m, &req.base, how, ret);
	msg_network_free(out);
	return r;
}

int ab_sandbox_update_network(struct ab_client *c, const char *sandbox, const struct ab_network *network,
			      enum ab_choice allow_internet_access, const struct ab_call_options *how)
{
	return wait_object(c, ab_sandbox_update_network_start(c, sandbox, network, allow_internet_access, how, &c->started),
			   NULL);
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
	int r;

	if (str_is_empty(sandbox))
		return -EINVAL;
	o = o ? o : &none;
	r = call_new_once(c, &m, how, o->request_id, &req.request_id, &call);
	if (r < 0)
		return r;
	req.sandbox = (char *)sandbox;
	req.count = o->count;
	req.sandbox_timeout = msg_duration(&timeout, o->sandbox_timeout_ms);
	req.policy = msg_policy_out(&policy, o->policy);
	return call_submit(call, &req.base, ret);
}

int ab_sandbox_fork(struct ab_client *c, const char *sandbox, const struct ab_fork_options *o,
		    const struct ab_call_options *how, struct ab_fork_list **ret)
{
	return wait_object(c, ab_sandbox_fork_start(c, sandbox, o, how, &c->started), (void **)ret);
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
	return wait_object(c, ab_sandbox_get_metrics_start(c, sandbox, start_at_ms, end_at_ms, how, &c->started),
			   (void **)ret);
}
