/* SPDX-License-Identifier: MIT */
/*
 * Every handler is the same three steps: read the request into arguments of daemon/sandbox (FIELD_INVALID
 * comes from here), start the operation, and reply in its done function. What ties them
 * is a `struct pending`: the call, and the operation to cancel when the call is over first.
 */
#include "daemon/rpc/svc_sandbox.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/auth/principal.h"
#include "daemon/rpc/call.h"
#include "daemon/rpc/check.h"
#include "daemon/rpc/msg.h"
#include "daemon/rpc/msg_network.h"
#include "daemon/rpc/pending.h"
#include "daemon/rpc/server.h"
#include "daemon/rpc/svc_watch.h"
#include "daemon/sandbox/rules/page.h"
#include "daemon/sandbox/sandbox.h"
#include "proto/base/str.h"

static void reply_message(struct rpc_call *c, const struct sandbox_view *sandbox)
{
	scratch_ struct msg_sandbox s;

	if (msg_sandbox_init(&s, sandbox) < 0)
		rpc_call_fail_errno(c, -ENOMEM, "answering");
	else
		rpc_call_reply(c, &s.m.base);
	msg_sandbox_fini(&s);
}

static void reply_sandbox(void *user, const struct status *st, const struct sandbox_view *sandbox)
{
	struct rpc_call *c = pending_take(user);
	const uint8_t *p;
	size_t n;

	if (!status_ok(st)) {
		rpc_call_fail(c, st);
		return;
	}
	p = rpc_call_is_audited(c) ? NULL : encoded_sandbox(rpc_call_encoded(c), sandbox, &n);
	if (p)
		rpc_call_reply_encoded(c, p, n);
	else
		reply_message(c, sandbox);
}

/* --- Create ------------------------------------------------------------------------------------- */

static int read_owned(const Agentbox__V1__CreateSandboxRequest *q, struct sandbox_create *ret)
{
	struct cloud_create *w = &ret->what;
	int r = msg_read_text(&ret->request_id, q->request_id);

	if (!r)
		r = msg_read_text(&ret->account, q->account);
	if (!r)
		r = msg_read_text(&ret->name, q->name);
	if (!r)
		r = msg_read_text(&w->template_id, q->template_);
	if (!r)
		r = msg_read_kvs(&w->metadata, (ProtobufCMessage **)q->metadata, q->n_metadata);
	if (!r)
		r = msg_read_kvs(&w->envs, (ProtobufCMessage **)q->envs, q->n_envs);
	return r ? r : msg_read_tokens(q->iam_tokens, q->n_iam_tokens, w);
}

_Static_assert((int)AGENTBOX__V1__WARM_MODE__REQUIRE == SANDBOX_WARM_REQUIRE, "the modes have the API's numbers");

static bool read_warm(Agentbox__V1__WarmMode mode, enum sandbox_warm_mode *ret, struct status *st)
{
	if ((unsigned)mode > AGENTBOX__V1__WARM_MODE__REQUIRE) {
		status_field(st, "warm", "%d is none of NEVER, PREFER and REQUIRE", (int)mode);
		return false;
	}
	*ret = (enum sandbox_warm_mode)mode;
	return true;
}

/* The message is hashed, which puts it back as it was. */
static bool read_create(Agentbox__V1__CreateSandboxRequest *q, struct sandbox_create *ret,
			struct status *st)
{
	int r;

	ret->must_create = q->must_create;
	ret->wait_ready = q->wait_ready;
	ret->process_lease = q->process_lease;
	if (!read_warm(q->warm, &ret->warm, st))
		return false;
	ret->what.secure = msg_read_tri(q->_secure_case, q->secure);
	ret->what.allow_internet_access =
		msg_read_tri(q->_allow_internet_access_case, q->allow_internet_access);
	msg_read_lifecycle(q->lifecycle, &ret->what.lifecycle);
	if (!msg_read_policy(q->policy, &ret->policy, st) ||
	    !msg_read_network(q->network, &ret->what.network, st) ||
	    !msg_read_duration(q->sandbox_timeout, "sandbox_timeout", false, &ret->timeout_ms, st))
		return false;
	r = read_owned(q, ret);
	if (!r)
		r = pending_hash(&q->base, &q->request_id, ret->params_hash);
	if (r < 0)
		status_errno(st, r, "reading the request");
	return r == 0;
}

static void on_create(struct rpc_call *c, const ProtobufCMessage *message)
{
	struct pending *p = pending_new(c, NULL);
	scoped(sandbox_create_fini) struct sandbox_create args = { 0 };
	struct status st;

	if (!p)
		return;
	/* The call owns the message. */
	if (read_create((Agentbox__V1__CreateSandboxRequest *)message, &args, &st))
		pending_started(p, sandbox_create(p->core, &p->head, &args, reply_sandbox, &p->op));
	else
		pending_fail(p, &st);
}

/* --- the others --------------------------------------------------------------------------------- */

static void on_connect(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__ConnectSandboxRequest *q = (const void *)message;
	struct pending *p = pending_new(c, q->sandbox);
	struct status st = STATUS_OK;
	struct sandbox_connect args = {
		.adopt = q->adopt,
		.wait_ready = q->wait_ready,
		.process_lease = q->process_lease,
	};

	if (!p)
		return;
	if (msg_read_duration(q->sandbox_timeout, "sandbox_timeout", false, &args.timeout_ms, &st)) {
		pending_started(p, sandbox_connect(p->core, &p->head, &args, reply_sandbox, &p->op));
		return;
	}
	pending_fail(p, &st);
}

static void on_get(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__GetSandboxRequest *q = (const void *)message;
	uint64_t staleness_ms = SANDBOX_STALENESS_DEFAULT;
	struct pending *p = pending_new(c, q->sandbox);
	scratch_ struct status st;

	if (!p)
		return;
	if (!msg_read_duration(q->max_staleness, "max_staleness", true, &staleness_ms, &st))
		pending_fail(p, &st);
	else
		pending_started(p,
				sandbox_get(p->core, &p->head, staleness_ms, reply_sandbox, &p->op));
}

static void on_set_timeout(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__SetTimeoutRequest *q = (const void *)message;
	struct pending *p = pending_new(c, q->sandbox);
	struct status st = STATUS_OK;
	uint64_t timeout_ms = 0;

	if (!p)
		return;
	if (msg_read_required(q->sandbox_timeout, "sandbox_timeout", &timeout_ms, &st)) {
		pending_started(p, sandbox_set_timeout(p->core, &p->head, timeout_ms,
						       reply_sandbox, &p->op));
		return;
	}
	pending_fail(p, &st);
}

static bool read_reset(const Agentbox__V1__SetPolicyRequest *q, uint32_t *ret, struct status *st)
{
	*ret = 0;
	for (size_t i = 0; i < q->n_reset; i++) {
		enum policy_field f = policy_field_find(q->reset[i]);

		if (f == POLICY_FIELDS) {
			status_field(st, "reset", "\"%s\" is no field of Policy", q->reset[i]);
			return false;
		}
		*ret |= BIT(f);
	}
	return true;
}

static void on_set_policy(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__SetPolicyRequest *q = (const void *)message;
	struct pending *p = pending_new(c, q->sandbox);
	struct status st = STATUS_OK;
	struct policy_change change;
	uint32_t reset;

	if (!p)
		return;
	if (msg_read_policy(q->policy, &change, &st) && read_reset(q, &reset, &st))
		pending_started(p, sandbox_set_policy(p->core, &p->head, &change, reset,
						      reply_sandbox, &p->op));
	else
		pending_fail(p, &st);
}

static void reply_running(void *user, const struct status *st, bool yes)
{
	Agentbox__V1__IsRunningResponse m = AGENTBOX__V1__IS_RUNNING_RESPONSE__INIT;

	m.running = yes;
	rpc_call_answer(pending_take(user), st, &m.base);
}

static void on_is_running(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__IsRunningRequest *q = (const void *)message;
	struct pending *p = pending_new(c, q->sandbox);

	if (p)
		pending_started(p, sandbox_is_running(p->core, &p->head, reply_running, &p->op));
}

static void reply_killed(void *user, const struct status *st, bool found)
{
	Agentbox__V1__KillSandboxResponse m = AGENTBOX__V1__KILL_SANDBOX_RESPONSE__INIT;

	m.found = found;
	rpc_call_answer(pending_take(user), st, &m.base);
}

static void on_kill(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__KillSandboxRequest *q = (const void *)message;
	struct pending *p = pending_new(c, q->sandbox);

	if (p)
		pending_started(p, sandbox_kill(p->core, &p->head, reply_killed, &p->op));
}

static void reply_host(void *user, const struct status *st, const struct sandbox_host *host)
{
	Agentbox__V1__GetHostResponse m = AGENTBOX__V1__GET_HOST_RESPONSE__INIT;

	if (status_ok(st)) {
		m.host = (char *)host->host;
		m.url = (char *)host->url;
		m.traffic_access_token = (char *)host->traffic_token;
		m.token_header = (char *)host->token_header;
	}
	rpc_call_answer(pending_take(user), st, &m.base);
}

static void on_get_host(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__GetHostRequest *q = (const void *)message;
	struct pending *p = pending_new(c, q->sandbox);
	struct status st;

	if (!p)
		return;
	if (!q->port || q->port > UINT16_MAX) {
		status_field(&st, "port", "must be 1 to 65535");
		pending_fail(p, &st);
		return;
	}
	pending_started(p, sandbox_get_host(p->core, &p->head, q->port, reply_host, &p->op));
}

/* --- List --------------------------------------------------------------------------------------- */

/* Of a page that ends after its first n, for lack of room in a message. */
static char *token_behind(const struct sandbox_page *page, size_t n, const struct principal *who)
{
	const struct sandbox_view *last = &page->sandboxes[n - 1];
	struct page_place place = { .started_at_ms = last->started_at_ms };

	/* An observer's has as much of the id as its rows have: "~" goes behind all that may follow. */
	if (who->observer && !who->admin)
		snprintf(place.id, sizeof(place.id), "%.6s~", last->id);
	else
		(void)str_copy(place.id, sizeof(place.id), last->id);
	return page_token(&place, page->question);
}

static void reply_page(struct rpc_call *c, const struct sandbox_page *page,
		       struct msg_sandbox *sandboxes, Agentbox__V1__Sandbox **list)
{
	Agentbox__V1__ListSandboxesResponse m = AGENTBOX__V1__LIST_SANDBOXES_RESPONSE__INIT;
	Agentbox__V1__Freshness freshness;
	struct status st = STATUS_OK;
	msg_timestamp as_of;
	size_t made = 0, bytes = 0, n = 0;
	char *token = NULL;

	for (; made < page->n && n == made && status_ok(&st); made++) {
		list[made] = &sandboxes[made].m;
		if (msg_sandbox_init(&sandboxes[made], &page->sandboxes[made]) < 0)
			status_errno(&st, -ENOMEM, "answering");
		else
			(void)msg_sandbox_mask(&sandboxes[made], rpc_call_who(c));
		n += status_ok(&st) && check_page_room(&bytes, &list[made]->base);
	}
	if (status_ok(&st) && n && (n < page->n || page->next_page_token[0]) && !(token = token_behind(page, n, rpc_call_who(c))))
		status_errno(&st, -ENOMEM, "answering");
	m.sandboxes = list;
	m.n_sandboxes = n;
	m.next_page_token = token ? token : (char *)"";
	m.freshness = msg_freshness(&freshness, &as_of, page->source, page->as_of_ms);
	rpc_call_answer(c, &st, &m.base);
	while (made > 0)
		msg_sandbox_fini(&sandboxes[--made]);
	free(token);
}

static void svc_sandbox_on_listed(void *user, const struct status *st, const struct sandbox_page *page)
{
	struct rpc_call *c = pending_take(user);
	Agentbox__V1__Sandbox **list;
	struct msg_sandbox *sandboxes;
	struct status failure;

	if (!status_ok(st)) {
		rpc_call_fail(c, st);
		return;
	}
	sandboxes = calloc(page->n + 1, sizeof(*sandboxes));
	list = calloc(page->n + 1, sizeof(*list));
	if (sandboxes && list) {
		reply_page(c, page, sandboxes, list);
	} else {
		status_errno(&failure, -ENOMEM, "answering");
		rpc_call_fail(c, &failure);
	}
	free(sandboxes);
	free(list);
}

static bool read_states(const Agentbox__V1__ListSandboxesRequest *q, uint32_t *ret, struct status *st)
{
	*ret = 0;
	for (size_t i = 0; i < q->n_states; i++) {
		if ((int)q->states[i] <= SANDBOX_STATE_NONE || (int)q->states[i] > SANDBOX_GONE) {
			status_field(st, "states", "%d is no state", (int)q->states[i]);
			return false;
		}
		*ret |= BIT(q->states[i]);
	}
	return true;
}

static void svc_sandbox_on_list(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__ListSandboxesRequest *q = (const void *)message;
	struct pending *p = pending_new(c, NULL);
	struct status st = STATUS_OK;
	struct sandbox_pair *metadata;
	struct sandbox_list args = {
		.template_id = q->template_,
		.page_size = q->page_size,
		.page_token = q->page_token,
		.cached = q->cached,
		.all_owners = q->all_owners,
		.all_hosts = q->all_hosts,
		.account = q->account,
	};

	if (!p)
		return;
	metadata = msg_read_pairs((ProtobufCMessage **)q->metadata, q->n_metadata);
	args.metadata = metadata;
	args.n_metadata = q->n_metadata;
	if (q->n_metadata && !metadata)
		status_errno(&st, -ENOMEM, "reading the request");
	if (status_ok(&st) && read_states(q, &args.states, &st))
		pending_started(p, sandbox_list(p->core, &p->head, &args, svc_sandbox_on_listed,
						&p->op));
	else
		pending_fail(p, &st);
	free(metadata);
}

/* ------------------------------------------------------------------------------------------------ */

static const struct rpc_method svc_sandbox_methods[] = {
	PENDING_METHOD("SandboxService", "Create", create_sandbox, on_create, RPC_BEGINS),
	PENDING_METHOD("SandboxService", "ConnectSandbox", connect_sandbox, on_connect, RPC_CHANGES),
	PENDING_METHOD("SandboxService", "Get", get_sandbox, on_get, RPC_READS),
	PENDING_METHOD("SandboxService", "List", list_sandboxes, svc_sandbox_on_list, RPC_OBSERVES),
	PENDING_METHOD("SandboxService", "IsRunning", is_running, on_is_running, RPC_READS),
	PENDING_METHOD("SandboxService", "Kill", kill_sandbox, on_kill, RPC_CHANGES),
	PENDING_METHOD("SandboxService", "SetTimeout", set_timeout, on_set_timeout, RPC_CHANGES),
	PENDING_METHOD("SandboxService", "GetHost", get_host, on_get_host, RPC_READS),
	PENDING_METHOD("SandboxService", "SetPolicy", set_policy, on_set_policy, RPC_CHANGES),
};

int svc_sandbox_add(struct rpc_server *s, struct sandbox_core *core)
{
	int r = rpc_server_add(s, svc_sandbox_methods, ARRAY_SIZE(svc_sandbox_methods), core);

	if (!r)
		r = svc_change_add(s, core);
	if (!r)
		r = svc_snapshot_add(s, core);
	if (!r)
		r = svc_template_add(s, core);
	return r < 0 ? r : svc_watch_add(s, core);
}
