/* SPDX-License-Identifier: MIT */
/* SandboxService: requests out of parameters, and which method answers with what. */
#include <errno.h>
#include <stdlib.h>

#include "proto/gen/agentbox_sandbox.pb-c.h"

#include "client/lib/client.h"
#include "client/lib/msg.h"
#include "proto/base/str.h"

#define PATH(name) "/agentbox.v1.SandboxService/" name

static int create_pairs(const struct ab_sandbox_create_options *o,
			Agentbox__V1__CreateSandboxRequest *req)
{
	int r = msg_pairs(o->metadata, o->n_metadata,
			  &agentbox__v1__create_sandbox_request__metadata_entry__descriptor,
			  &req->metadata, &req->n_metadata);

	return r < 0 ? r
		     : msg_pairs(o->envs, o->n_envs,
				 &agentbox__v1__create_sandbox_request__envs_entry__descriptor,
				 &req->envs, &req->n_envs);
}

struct create_token {
	Agentbox__V1__CreateSandboxRequest__IamTokensEntry entry;
	Agentbox__V1__IamToken token;
};

struct create_tokens {
	struct create_token *v;
	Agentbox__V1__CreateSandboxRequest__IamTokensEntry **list;
};

static int create_tokens(const struct ab_sandbox_create_options *o, struct create_tokens *t,
			 Agentbox__V1__CreateSandboxRequest *req)
{
	if (!o->n_iam_tokens)
		return 0;
	if (!o->iam_tokens)
		return -EINVAL;
	t->v = calloc(o->n_iam_tokens, sizeof(*t->v));
	t->list = calloc(o->n_iam_tokens, sizeof(*t->list));
	if (!t->v || !t->list)
		return -ENOMEM;
	for (size_t i = 0; i < o->n_iam_tokens; i++) {
		agentbox__v1__create_sandbox_request__iam_tokens_entry__init(&t->v[i].entry);
		agentbox__v1__iam_token__init(&t->v[i].token);
		if (o->iam_tokens[i].name)
			t->v[i].entry.key = (char *)o->iam_tokens[i].name;
		if (o->iam_tokens[i].audience)
			t->v[i].token.audience = (char *)o->iam_tokens[i].audience;
		t->v[i].entry.value = &t->v[i].token;
		t->list[i] = &t->v[i].entry;
	}
	req->iam_tokens = t->list;
	req->n_iam_tokens = o->n_iam_tokens;
	return 0;
}

int ab_sandbox_create_start(struct ab_client *c, const struct ab_sandbox_create_options *o,
			    const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Create"),
		.reply = &agentbox__v1__sandbox__descriptor,
		.make = msg_sandbox,
		.repeatable = true,	/* the request id sees to it */
	};
	static const struct ab_sandbox_create_options none;
	Agentbox__V1__CreateSandboxRequest req = AGENTBOX__V1__CREATE_SANDBOX_REQUEST__INIT;
	Google__Protobuf__Duration timeout;
	struct msg_policy policy;
	struct msg_network *network = NULL;
	struct create_tokens tokens = { 0 };
	Agentbox__V1__Lifecycle lifecycle;
	struct ab_call *call;
	int r;

	o = o ? o : &none;
	r = call_new_once(c, &m, how, o->request_id, &req.request_id, &call);
	if (r < 0)
		return r;
	r = create_pairs(o, &req);
	if (r == 0)
		r = msg_network_out(o->network, &network);
	if (r == 0)
		r = create_tokens(o, &tokens, &req);
	if (r == 0) {
		req.network = msg_network_message(network);
		req.lifecycle = msg_lifecycle_out(&lifecycle, o);
		req.template_ = (char *)o->template_name;
		req.sandbox_timeout = msg_duration(&timeout, o->sandbox_timeout_ms);
		req.name = (char *)o->name;
		req.must_create = o->must_create;
		req.warm = (Agentbox__V1__WarmMode)o->warm;
		req.wait_ready = o->wait_ready;
		req.account = (char *)o->account;
		req.policy = msg_policy_out(&policy, o->policy);
		req.process_lease = o->process_lease;
		MSG_SET_CHOICE(&req, secure, AGENTBOX__V1__CREATE_SANDBOX_REQUEST___SECURE_SECURE, o->secure);
		MSG_SET_CHOICE(&req, allow_internet_access,
			       AGENTBOX__V1__CREATE_SANDBOX_REQUEST___ALLOW_INTERNET_ACCESS_ALLOW_INTERNET_ACCESS, o->allow_internet_access);
		r = call_submit(call, &req.base, ret);
	} else {
		call_destroy(call);
	}
	free(req.metadata);
	free(req.envs);
	free(tokens.list);
	free(tokens.v);
	msg_network_free(network);
	return r;
}

int ab_sandbox_create(struct ab_client *c, const struct ab_sandbox_create_options *o,
		      const struct ab_call_options *how, struct ab_sandbox **ret)
{
	return wait_object(c, ab_sandbox_create_start(c, o, how, &c->started), (void **)ret);
}

int ab_sandbox_connect_start(struct ab_client *c, const char *sandbox,
			     const struct ab_sandbox_connect_options *o,
			     const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("ConnectSandbox"),
		.reply = &agentbox__v1__sandbox__descriptor,
		.make = msg_sandbox,
		.repeatable = true,	/* it never shortens */
	};
	static const struct ab_sandbox_connect_options none;
	Agentbox__V1__ConnectSandboxRequest req = AGENTBOX__V1__CONNECT_SANDBOX_REQUEST__INIT;
	Google__Protobuf__Duration timeout;

	if (str_is_empty(sandbox))
		return -EINVAL;
	o = o ? o : &none;
	req.sandbox = (char *)sandbox;
	req.sandbox_timeout = msg_duration(&timeout, o->sandbox_timeout_ms);
	req.adopt = o->adopt;
	req.wait_ready = o->wait_ready;
	req.process_lease = o->process_lease;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_sandbox_connect(struct ab_client *c, const char *sandbox,
		       const struct ab_sandbox_connect_options *o, const struct ab_call_options *how,
		       struct ab_sandbox **ret)
{
	return wait_object(c, ab_sandbox_connect_start(c, sandbox, o, how, &c->started), (void **)ret);
}

int ab_sandbox_get_start(struct ab_client *c, const char *sandbox, uint64_t max_staleness_ms,
			 const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Get"),
		.reply = &agentbox__v1__sandbox__descriptor,
		.make = msg_sandbox,
		.repeatable = true,
	};
	Agentbox__V1__GetSandboxRequest req = AGENTBOX__V1__GET_SANDBOX_REQUEST__INIT;
	Google__Protobuf__Duration staleness;

	if (str_is_empty(sandbox))
		return -EINVAL;
	req.sandbox = (char *)sandbox;
	req.max_staleness = msg_duration(&staleness, max_staleness_ms);
	return call_start(c, &m, &req.base, how, ret);
}

int ab_sandbox_get(struct ab_client *c, const char *sandbox, uint64_t max_staleness_ms,
		   const struct ab_call_options *how, struct ab_sandbox **ret)
{
	return wait_object(c, ab_sandbox_get_start(c, sandbox, max_staleness_ms, how, &c->started), (void **)ret);
}

int ab_sandbox_list_start(struct ab_client *c, const struct ab_sandbox_list_options *o,
			  const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("List"),
		.reply = &agentbox__v1__list_sandboxes_response__descriptor,
		.make = msg_sandbox_list,
		.repeatable = true,
	};
	static const struct ab_sandbox_list_options none;
	Agentbox__V1__ListSandboxesRequest req = AGENTBOX__V1__LIST_SANDBOXES_REQUEST__INIT;
	Agentbox__V1__SandboxState states[AB_SANDBOX_GONE + 1];
	int r;

	o = o ? o : &none;
	r = msg_pairs(o->metadata, o->n_metadata,
		      &agentbox__v1__list_sandboxes_request__metadata_entry__descriptor, &req.metadata,
		      &req.n_metadata);
	if (r < 0)
		return r;
	req.states = states;
	for (unsigned i = AB_SANDBOX_CREATING; i <= AB_SANDBOX_GONE; i++)
		if (o->states & BIT(i))
			states[req.n_states++] = (Agentbox__V1__SandboxState)i;
	req.page_size = o->page_size;
	req.page_token = (char *)o->page_token;
	req.cached = o->cached;
	req.all_owners = o->all_owners;
	req.all_hosts = o->all_hosts;
	req.account = (char *)o->account;
	req.template_ = (char *)o->template_name;
	r = call_start(c, &m, &req.base, how, ret);
	free(req.metadata);
	return r;
}

int ab_sandbox_list(struct ab_client *c, const struct ab_sandbox_list_options *o,
		    const struct ab_call_options *how, struct ab_sandbox_list **ret)
{
	return wait_object(c, ab_sandbox_list_start(c, o, how, &c->started), (void **)ret);
}

int ab_sandbox_is_running_start(struct ab_client *c, const char *sandbox,
				const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("IsRunning"),
		.reply = &agentbox__v1__is_running_response__descriptor,
		.answer_at = offsetof(Agentbox__V1__IsRunningResponse, running),
		.repeatable = true,
	};
	Agentbox__V1__IsRunningRequest req = AGENTBOX__V1__IS_RUNNING_REQUEST__INIT;

	if (str_is_empty(sandbox))
		return -EINVAL;
	req.sandbox = (char *)sandbox;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_sandbox_is_running(struct ab_client *c, const char *sandbox,
			  const struct ab_call_options *how, bool *ret_running)
{
	return wait_answer(c, ab_sandbox_is_running_start(c, sandbox, how, &c->started), ret_running);
}

int ab_sandbox_kill_start(struct ab_client *c, const char *sandbox,
			  const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Kill"),
		.reply = &agentbox__v1__kill_sandbox_response__descriptor,
		.answer_at = offsetof(Agentbox__V1__KillSandboxResponse, found),
	};
	Agentbox__V1__KillSandboxRequest req = AGENTBOX__V1__KILL_SANDBOX_REQUEST__INIT;

	if (str_is_empty(sandbox))
		return -EINVAL;
	req.sandbox = (char *)sandbox;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_sandbox_kill(struct ab_client *c, const char *sandbox, const struct ab_call_options *how,
		    bool *ret_found)
{
	return wait_answer(c, ab_sandbox_kill_start(c, sandbox, how, &c->started), ret_found);
}

int ab_sandbox_set_timeout_start(struct ab_client *c, const char *sandbox, uint64_t sandbox_timeout_ms,
				 const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("SetTimeout"),
		.reply = &agentbox__v1__sandbox__descriptor,
		.make = msg_sandbox,
	};
	Agentbox__V1__SetTimeoutRequest req = AGENTBOX__V1__SET_TIMEOUT_REQUEST__INIT;
	Google__Protobuf__Duration timeout;

	if (str_is_empty(sandbox))
		return -EINVAL;
	req.sandbox = (char *)sandbox;
	req.sandbox_timeout = msg_duration(&timeout, sandbox_timeout_ms);
	return call_start(c, &m, &req.base, how, ret);
}

int ab_sandbox_set_timeout(struct ab_client *c, const char *sandbox, uint64_t sandbox_timeout_ms,
			   const struct ab_call_options *how, struct ab_sandbox **ret)
{
	return wait_object(c, ab_sandbox_set_timeout_start(c, sandbox, sandbox_timeout_ms, how, &c->started),
			   (void **)ret);
}

int ab_sandbox_get_host_start(struct ab_client *c, const char *sandbox, uint32_t port,
			      const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("GetHost"),
		.reply = &agentbox__v1__get_host_response__descriptor,
		.make = msg_host,
		.repeatable = true,
	};
	Agentbox__V1__GetHostRequest req = AGENTBOX__V1__GET_HOST_REQUEST__INIT;

	if (str_is_empty(sandbox))
		return -EINVAL;
	req.sandbox = (char *)sandbox;
	req.port = port;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_sandbox_get_host(struct ab_client *c, const char *sandbox, uint32_t port,
			const struct ab_call_options *how, struct ab_host **ret)
{
	return wait_object(c, ab_sandbox_get_host_start(c, sandbox, port, how, &c->started), (void **)ret);
}
