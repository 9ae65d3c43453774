/* SPDX-License-Identifier: MIT */
/* TokenService. */
#include <errno.h>

#include "proto/gen/agentbox_token.pb-c.h"

#include "client/lib/client.h"
#include "client/lib/msg.h"
#include "client/lib/msg_in.h"
#include "proto/base/str.h"

#define PATH(name) "/agentbox.v1.TokenService/" name

int ab_token_create_start(struct ab_client *c, const struct ab_token_options *o, const struct ab_call_options *how,
			  struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Create"),
		.reply = &agentbox__v1__create_token_response__descriptor,
		.make = msg_new_token,
	};
	static const struct ab_token_options none;
	Agentbox__V1__CreateTokenRequest req = AGENTBOX__V1__CREATE_TOKEN_REQUEST__INIT;
	Google__Protobuf__Timestamp end;
	struct msg_policy policy;

	o = o ? o : &none;
	req.label = (char *)o->label;
	req.sandboxes = (char **)o->sandboxes;
	req.n_sandboxes = o->n_sandboxes;
	req.run = o->run;
	req.on_release = (Agentbox__V1__Policy__Action)o->on_release;
	req.warm = (Agentbox__V1__WarmMode)o->warm;
	req.policy = msg_policy_out(&policy, o->policy);
	req.expires_at = msg_moment(&end, o->expires_at_ms);
	return call_start(c, &m, &req.base, how, ret);
}

int ab_token_create(struct ab_client *c, const struct ab_token_options *o, const struct ab_call_options *how,
		    struct ab_token **ret)
{
	return wait_object(c, ab_token_create_start(c, o, how, &c->started), (void **)ret);
}

int ab_token_list_start(struct ab_client *c, const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("List"),
		.reply = &agentbox__v1__list_tokens_response__descriptor,
		.make = msg_token_list,
		.repeatable = true,
	};
	Agentbox__V1__ListTokensRequest req = AGENTBOX__V1__LIST_TOKENS_REQUEST__INIT;

	return call_start(c, &m, &req.base, how, ret);
}

int ab_token_list(struct ab_client *c, const struct ab_call_options *how, struct ab_token_list **ret)
{
	return wait_object(c, ab_token_list_start(c, how, &c->started), (void **)ret);
}

int ab_token_revoke_start(struct ab_client *c, const char *id, const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Revoke"),
		.reply = &agentbox__v1__revoke_token_response__descriptor,
		.answer_at = offsetof(Agentbox__V1__RevokeTokenResponse, found),
		.repeatable = true,
	};
	Agentbox__V1__RevokeTokenRequest req = AGENTBOX__V1__REVOKE_TOKEN_REQUEST__INIT;

	if (str_is_empty(id))
		return -EINVAL;
	req.id = (char *)id;
	return call_start(c, &m, &req.base, how, ret);
}

int ab_token_revoke(struct ab_client *c, const char *id, const struct ab_call_options *how, bool *ret_found)
{
	return wait_answer(c, ab_token_revoke_start(c, id, how, &c->started), ret_found);
}

int ab_gateway_find_start(struct ab_client *c, const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("Gateway"),
		.reply = &agentbox__v1__gateway_response__descriptor,
		.make = msg_gateway,
		.repeatable = true,
	};
	Agentbox__V1__GatewayRequest req = AGENTBOX__V1__GATEWAY_REQUEST__INIT;

	return call_start(c, &m, &req.base, how, ret);
}

int ab_page_open_start(struct ab_client *c, const struct ab_call_options *how, struct ab_call **ret)
{
	static const struct call_method m = {
		.path = PATH("OpenPage"),
		.reply = &agentbox__v1__open_page_response__descriptor,
		.make = msg_page,
		.repeatable = true,
	};
	Agentbox__V1__OpenPageRequest req = AGENTBOX__V1__OPEN_PAGE_REQUEST__INIT;

	return call_start(c, &m, &req.base, how, ret);
}

int ab_page_open(struct ab_client *c, const struct ab_call_options *how, struct ab_page **ret)
{
	return wait_object(c, ab_page_open_start(c, how, &c->started), (void **)ret);
}

int ab_gateway_find(struct ab_client *c, const struct ab_call_options *how, struct ab_gateway **ret)
{
	return wait_object(c, ab_gateway_find_start(c, how, &c->started), (void **)ret);
}
