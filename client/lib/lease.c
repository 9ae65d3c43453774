/* SPDX-License-Identifier: MIT */
/* LeaseService, SetPolicy and Watch. */
#include <errno.h>
#include <string.h>

#include "proto/gen/agentbox_lease.pb-c.h"
#include "proto/gen/agentbox_sandbox.pb-c.h"

#include "client/lib/client.h"
#include "client/lib/msg.h"
#include "client/lib/obj.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

#define PATH(name) "/agentbox.v1.LeaseService/" name

/* --- leases --- */

int ab_lease_acquire_start(struct ab_client *c, const char *sandbox, const struct ab_lease_options *o,
			   const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Acquire"),
		.reply = &agentbox__v1__lease__descriptor,
		.make = msg_lease,
	};
	static const struct ab_lease_options none;
	Agentbox__V1__AcquireLeaseRequest req = AGENTBOX__V1__ACQUIRE_LEASE_REQUEST__INIT;
	Google__Protobuf__Duration ttl;

	if (str_is_empty(sandbox))
		return -EINVAL;
	o = o ? o : &none;
	req.sandbox = (char *)sandbox;
	req.label = (char *)o->label;
	req.lease_id = (char *)o->lease_id;
	req.ttl = msg_duration(&ttl, o->ttl_ms);
	req.process = !req.ttl;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_lease_acquire(struct ab_client *c, const char *sandbox, const struct ab_lease_options *o,
		     const struct ab_call_options *how, struct ab_lease **ret)
{
	return wait_object(c, ab_lease_acquire_start(c, sandbox, o, how, &c->started), (void **)ret);
}

int ab_lease_renew_start(struct ab_client *c, const char *lease_id, uint64_t ttl_ms,
			 const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Renew"),
		.reply = &agentbox__v1__lease__descriptor,
		.make = msg_lease,
		.repeatable = true,
	};
	Agentbox__V1__RenewLeaseRequest req = AGENTBOX__V1__RENEW_LEASE_REQUEST__INIT;
	Google__Protobuf__Duration ttl;

	if (str_is_empty(lease_id))
		return -EINVAL;
	req.lease_id = (char *)lease_id;
	req.ttl = msg_duration(&ttl, ttl_ms);
	return call_start(c, &m, &req.base, how, ret);
}

int ab_lease_renew(struct ab_client *c, const char *lease_id, uint64_t ttl_ms, const struct ab_call_options *how,
		   struct ab_lease **ret)
{
	return wait_object(c, ab_lease_renew_start(c, lease_id, ttl_ms, how, &c->started), (void **)ret);
}

int ab_lease_release_start(struct ab_client *c, const char *lease_id, const struct ab_call_options *how,
			   struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Release"),
		.reply = &agentbox__v1__release_lease_response__descriptor,
		.repeatable = true,
	};
	Agentbox__V1__ReleaseLeaseRequest req = AGENTBOX__V1__RELEASE_LEASE_REQUEST__INIT;

	if (str_is_empty(lease_id))
		return -EINVAL;
	req.lease_id = (char *)lease_id;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_lease_release(struct ab_client *c, const char *lease_id, const struct ab_call_options *how)
{
	return wait_object(c, ab_lease_release_start(c, lease_id, how, &c->started), NULL);
}

int ab_lease_list_start(struct ab_client *c, const char *sandbox, uint32_t page_size, const char *page_token,
			const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("List"),
		.reply = &agentbox__v1__list_leases_response__descriptor,
		.make = msg_lease_list,
		.repeatable = true,
	};
	Agentbox__V1__ListLeasesRequest req = AGENTBOX__V1__LIST_LEASES_REQUEST__INIT;

	req.sandbox = (char *)sandbox;
	req.page_size = page_size;
	req.page_token = (char *)page_token;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_lease_list(struct ab_client *c, const char *sandbox, uint32_t page_size, const char *page_token,
		  const struct ab_call_options *how, struct ab_lease_list **ret)
{
	return wait_object(c, ab_lease_list_start(c, sandbox, page_size, page_token, how, &c->started),
			   (void **)ret);
}

static int skip_lease(struct ab_call *call)
{
	const struct ab_lease *l;

	return ab_lease_hold_next(call, &l);
}

int ab_lease_hold_start(struct ab_client *c, const char *sandbox, const struct ab_lease_options *o,
			const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Hold"),
		.reply = &agentbox__v1__lease__descriptor,
		.skip = skip_lease,
		.no_deadline = true,
	};
	static const struct ab_lease_options none;
	Agentbox__V1__HoldLeaseRequest req = AGENTBOX__V1__HOLD_LEASE_REQUEST__INIT;

	if (str_is_empty(sandbox))
		return -EINVAL;
	o = o ? o : &none;
	req.sandbox = (char *)sandbox;
	req.label = (char *)o->label;
	req.lease_id = (char *)o->lease_id;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_lease_hold_next(struct ab_call *call, const struct ab_lease **ret)
{
	ProtobufCMessage *m;

	must(call->method->skip == skip_lease);
	if (!call_next_message(call, &m))
		return 0;
	obj_free(give(call->event));
	if (msg_lease(m, &call->event) < 0)
		return call_fail(call, -ENOMEM);
	*ret = call->event;
	return 1;
}

/* --- policies --- */

int ab_sandbox_set_policy_start(struct ab_client *c, const char *sandbox, const struct ab_policy *policy,
				const char *const *reset, const struct ab_call_options *how,
				struct ab_call **ret)
{
	static const struct call_method m = {
		.path = "/agentbox.v1.SandboxService/SetPolicy",
		.reply = &agentbox__v1__sandbox__descriptor,
		.make = msg_sandbox,
		.repeatable = true,
	};
	Agentbox__V1__SetPolicyRequest req = AGENTBOX__V1__SET_POLICY_REQUEST__INIT;
	struct msg_policy out;

	if (str_is_empty(sandbox))
		return -EINVAL;
	req.sandbox = (char *)sandbox;
	req.policy = msg_policy_out(&out, policy);
	req.reset = (char **)reset;
	while (reset && reset[req.n_reset])
		req.n_reset++;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_sandbox_set_policy(struct ab_client *c, const char *sandbox, const struct ab_policy *policy,
			  const char *const *reset, const struct ab_call_options *how, struct ab_sandbox **ret)
{
	return wait_object(c, ab_sandbox_set_policy_start(c, sandbox, policy, reset, how, &c->started),
			   (void **)ret);
}

enum kind { CHOICE, ACTION, SPAN, ON_GONE };

static const struct {
	const char *name;
	enum kind kind;
	size_t at;
} fields[] = {
	{ "keep_alive", CHOICE, offsetof(struct ab_policy, keep_alive) },
	{ "on_release", ACTION, offsetof(struct ab_policy, on_release) },
	{ "release_grace", SPAN, offsetof(struct ab_policy, release_grace_ms) },
	{ "idle_timeout", SPAN, offsetof(struct ab_policy, idle_timeout_ms) },
	{ "on_idle", ACTION, offsetof(struct ab_policy, on_idle) },
	{ "max_age", SPAN, offsetof(struct ab_policy, max_age_ms) },
	{ "on_max_age", ACTION, offsetof(struct ab_policy, on_max_age) },
	{ "on_cap", ACTION, offsetof(struct ab_policy, on_cap) },
	{ "on_gone", ON_GONE, offsetof(struct ab_policy, recreate) },
	{ "resume_on_use", CHOICE, offsetof(struct ab_policy, resume_on_use) },
};

static int index_of(const char *const *words, int n, const char *value)
{
	for (int i = 0; i < n; i++)
		if (str_eq(words[i], value))
			return i;
	return -EINVAL;
}

static int set_field(struct ab_policy *p, size_t f, const char *value)
{
	static const char *const choices[] = { "", "yes", "no", "true", "false", "on", "off" };
	static const char *const actions[] = { "", "leave", "pause", "kill", "warn" };
	static const char *const on_gone[] = { "fail", "recreate" };
	void *to = (char *)p + fields[f].at;
	uint64_t ms;
	int i;

	switch (fields[f].kind) {
	case CHOICE:
		i = index_of(choices, ARRAY_SIZE(choices), value);
		if (i > 0)
			*(enum ab_choice *)to = i % 2 ? AB_YES : AB_NO;
		return i > 0 ? 0 : -EINVAL;
	case ACTION:
		i = index_of(actions, ARRAY_SIZE(actions), value);
		if (i > 0)
			*(enum ab_action *)to = (enum ab_action)i;
		return i > 0 ? 0 : -EINVAL;
	case ON_GONE:
		i = index_of(on_gone, ARRAY_SIZE(on_gone), value);
		if (i >= 0)
			*(enum ab_choice *)to = i ? AB_YES : AB_NO;
		return i >= 0 ? 0 : -EINVAL;
	case SPAN:
		if (ab_parse_duration(value, &ms) < 0)
			return -EINVAL;
		*(uint64_t *)to = ms ? ms : AB_ZERO_MS;
		return 0;
	}
	return -EINVAL;
}

static int set_pair(struct ab_policy *p, const char *text, size_t n)
{
	const char *eq = memchr(text, '=', n);
	size_t name = eq ? (size_t)(eq - text) : 0;
	char value[32];

	if (!eq || n - name - 1 >= sizeof(value))
		return -EINVAL;
	memcpy(value, eq + 1, n - name - 1);
	value[n - name - 1] = '\0';
	for (size_t f = 0; f < ARRAY_SIZE(fields); f++)
		if (strlen(fields[f].name) == name && !memcmp(fields[f].name, text, name))
			return set_field(p, f, value);
	return -EINVAL;
}

int ab_parse_policy(const char *text, struct ab_policy *policy, const char **ret_bad)
{
	struct ab_policy p = *policy;

	for (;;) {
		size_t n = strcspn(text, ",");

		if (set_pair(&p, text, n) < 0) {
			if (ret_bad)
				*ret_bad = text;
			return -EINVAL;
		}
		if (!text[n])
			break;
		text += n + 1;
	}
	*policy = p;
	return 0;
}

/* --- events --- */

static int skip_event(struct ab_call *call)
{
	struct ab_sandbox_event e;

	return ab_sandbox_watch_next(call, &e);
}

int ab_sandbox_watch_start(struct ab_client *c, const struct ab_sandbox_watch_options *o,
			   const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = "/agentbox.v1.SandboxService/Watch",
		.reply = &agentbox__v1__sandbox_event__descriptor,
		.skip = skip_event,
		.no_deadline = true,
	};
	static const struct ab_sandbox_watch_options none;
	Agentbox__V1__WatchSandboxesRequest req = AGENTBOX__V1__WATCH_SANDBOXES_REQUEST__INIT;
	Agentbox__V1__SandboxEvent__Type types[32];

	o = o ? o : &none;
	req.cursor = (char *)o->cursor;
	req.sandbox = (char *)o->sandbox;
	req.initial = o->initial;
	req.all_owners = o->all_owners;
	for (unsigned i = 1; i < 32; i++)
		if (o->types & (1u << i))
			types[req.n_types++] = (Agentbox__V1__SandboxEvent__Type)i;
	req.types = types;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_sandbox_watch_next(struct ab_call *call, struct ab_sandbox_event *ret)
{
	ProtobufCMessage *m;

	must(call->method->skip == skip_event);
	if (!call_next_message(call, &m))
		return 0;
	obj_free(give(call->event));
	return msg_sandbox_event(m, &call->event, ret) < 0 ? call_fail(call, -ENOMEM) : 1;
}
