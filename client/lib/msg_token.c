/* SPDX-License-Identifier: MIT */
/* Tokens, and where the gateway and its page are, as objects. */
#include <errno.h>

#include "proto/gen/agentbox_token.pb-c.h"

#include "client/lib/msg.h"
#include "client/lib/msg_in.h"
#include "client/lib/obj.h"

static struct ab_token token_in(const Agentbox__V1__Token *m)
{
	return (struct ab_token){
		.id = m->id,
		.label = m->label,
		.created_at_ms = msg_at_ms(m->created_at),
		.expires_at_ms = msg_at_ms(m->expires_at),
		.sandboxes = (const char *const *)m->sandboxes,
		.n_sandboxes = m->n_sandboxes,
		.run_pid = m->run_pid,
		.on_release = (enum ab_action)m->on_release,
		.warm = (enum ab_warm_mode)m->warm,
		.policy = m->policy,
	};
}

int msg_new_token(ProtobufCMessage *message, void **ret)
{
	static const Agentbox__V1__Token none = AGENTBOX__V1__TOKEN__INIT;
	const Agentbox__V1__CreateTokenResponse *m = (Agentbox__V1__CreateTokenResponse *)message;
	struct ab_token t = token_in(m->token ? m->token : &none);

	t.secret = m->secret;
	return obj_take(message, &t, sizeof(t), ret);
}

int msg_token_list(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__ListTokensResponse *m = (Agentbox__V1__ListTokensResponse *)message;
	scoped(obj_freep) struct ab_token_list *l = obj_new(sizeof(*l), message);
	struct ab_token *v = l ? obj_alloc(l, m->n_tokens + 1, sizeof(*v)) : NULL;
	const struct ab_token **items = v ? obj_alloc(l, m->n_tokens + 1, sizeof(*items)) : NULL;

	if (!items)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_tokens; i++) {
		v[i] = token_in(m->tokens[i]);
		items[i] = &v[i];
	}
	l->items = items;
	l->n = m->n_tokens;
	*ret = give(l);
	return 0;
}

int msg_gateway(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__GatewayResponse *m = (Agentbox__V1__GatewayResponse *)message;
	struct ab_gateway g = { .url = m->url, .socket = m->socket };

	return obj_take(message, &g, sizeof(g), ret);
}

int msg_page(ProtobufCMessage *message, void **ret)
{
	const Agentbox__V1__OpenPageResponse *m = (Agentbox__V1__OpenPageResponse *)message;
	struct ab_page p = { .url = m->url, .expires_at_ms = msg_at_ms(m->expires_at) };

	return obj_take(message, &p, sizeof(p), ret);
}
