/* SPDX-License-Identifier: MIT */
/* TokenService. A call that waits for the store may be over before it is told: then nobody is answered. */
#include "daemon/rpc/svc_token.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/auth/token.h"
#include "daemon/rpc/call.h"
#include "daemon/rpc/msg.h"
#include "daemon/rpc/server.h"
#include "daemon/sandbox/rules/policy.h"
#include "proto/cloud/model.h"
#include "proto/gen/agentbox_token.pb-c.h"

struct asked {
	struct rpc_call *call;		/* NULL: it is over */
};

struct token_message {
	Agentbox__V1__Token m;
	msg_timestamp created_at, expires_at;
};

static Agentbox__V1__Token *svc_token_fill(struct token_message *x, const struct token *t)
{
	agentbox__v1__token__init(&x->m);
	x->m.id = (char *)t->id;
	x->m.label = t->label;
	x->m.created_at = msg_time(&x->created_at, t->created_at_ms);
	x->m.expires_at = msg_time(&x->expires_at, t->expires_at_ms);
	x->m.sandboxes = t->sandboxes;
	x->m.n_sandboxes = t->n_sandboxes;
	x->m.run_pid = t->run.pid;
	x->m.on_release = (Agentbox__V1__Policy__Action)t->on_release;
	x->m.warm = (Agentbox__V1__WarmMode)t->warm;
	x->m.policy = t->policy;
	return &x->m;
}

static struct asked *asked_new(struct rpc_call *c)
{
	struct asked *a = rpc_call_new_user(c, sizeof(*a));

	if (a)
		a->call = c;
	return a;
}

static struct rpc_call *asked_take(void *user)
{
	struct asked *a = user;
	struct rpc_call *c = a->call;

	free(a);
	return c;
}

static void asked_gone(struct rpc_call *c, enum rpc_gone why)
{
	struct asked *a = rpc_call_user(c);

	if (a)
		a->call = NULL;
}

static void asked_fail(struct asked *a, int r, struct status *why)
{
	if (r != -EINVAL)
		status_errno(why, r, "keeping the token");
	rpc_call_fail(asked_take(a), why);
}

/* --- Create --- */

static void svc_token_on_made(void *user, const struct status *st, const struct token *t, const char *text)
{
	Agentbox__V1__CreateTokenResponse m = AGENTBOX__V1__CREATE_TOKEN_RESPONSE__INIT;
	struct rpc_call *c = asked_take(user);
	struct token_message x;

	if (!c)
		return;
	if (!status_ok(st)) {
		rpc_call_fail(c, st);
		return;
	}
	m.token = svc_token_fill(&x, t);
	m.secret = (char *)text;
	rpc_call_reply(c, &m.base);
}

static bool check_create(const Agentbox__V1__CreateTokenRequest *q, struct status *st)
{
	if (q->on_release == AGENTBOX__V1__POLICY__ACTION__WARN || (unsigned)q->on_release > AGENTBOX__V1__POLICY__ACTION__WARN)
		status_field(st, "on_release", "one of LEAVE, PAUSE and KILL");
	else if (q->on_release && !q->run)
		status_field(st, "on_release", "is for a token of a run");
	else if ((unsigned)q->warm > AGENTBOX__V1__WARM_MODE__REQUIRE)
		status_field(st, "warm", "%d is none of NEVER, PREFER and REQUIRE", (int)q->warm);
	for (size_t i = 0; status_ok(st) && i < q->n_sandboxes; i++)
		if (!cloud_is_sandbox_id(q->sandboxes[i]))
			status_field(st, "sandboxes", "\"%.100s\" is no sandbox's id; a name may be another's tomorrow", q->sandboxes[i]);
	return status_ok(st);
}

/* As words, but for on_release of a run, which is the run's own. */
static bool read_policy(const Agentbox__V1__CreateTokenRequest *q, struct token_make *m, char words[POLICY_WORDS_MAX], struct status *st)
{
	struct policy_change p;

	if (!msg_read_policy(q->policy, &p, st) || !policy_check(&p, st))
		return false;
	if (p.set & BIT(POLICY_F_ON_GONE)) {
		status_field(st, "policy.on_gone", "is for a Create with a name");
		return false;
	}
	if (q->run && (p.set & BIT(POLICY_F_ON_RELEASE))) {
		if (q->on_release && (uint32_t)q->on_release != (uint32_t)p.to.on_release) {
			status_field(st, "policy.on_release", "is another one than on_release");
			return false;
		}
		m->on_release = (uint32_t)p.to.on_release;
		p.set &= ~BIT(POLICY_F_ON_RELEASE);
	}
	policy_change_words(&p, words);
	m->policy = words;
	return true;
}

/* A moment that is over is refused by whoever takes it, and 0 would be none. */
static bool read_end(const msg_timestamp *t, int64_t *ret_ms, struct status *st)
{
	if (!msg_read_time(t, "expires_at", ret_ms, st))
		return false;
	if (t && !*ret_ms) {
		status_field(st, "expires_at", "is no moment from now on; leave it unset for never");
		return false;
	}
	return true;
}

static void svc_token_on_create(struct rpc_call *c, const ProtobufCMessage *message)
{
	const Agentbox__V1__CreateTokenRequest *q = (const void *)message;
	const struct svc_token_options *o = rpc_call_service(c);
	struct asked *a = asked_new(c);
	struct status why = STATUS_OK;
	char words[POLICY_WORDS_MAX];
	struct token_make m = {
		.who = rpc_call_who(c), .label = q->label, .sandboxes = q->sandboxes, .n_sandboxes = q->n_sandboxes,
		.is_run = q->run, .warm = (uint32_t)q->warm,
		.on_release = q->run && !q->on_release ? AGENTBOX__V1__POLICY__ACTION__KILL : (uint32_t)q->on_release,
	};
	int r;

	if (!a)
		return;
	if (!check_create(q, &why) || !read_end(q->expires_at, &m.expires_at_ms, &why) || !read_policy(q, &m, words, &why)) {
		asked_fail(a, -EINVAL, &why);
		return;
	}
	r = tokens_make(o->tokens, &m, svc_token_on_made, a, &why);
	if (r < 0)
		asked_fail(a, r, &why);
}

/* --- List --- */

static size_t count_own(const struct tokens *all, uid_t uid)
{
	size_t n = 0;

	for (const struct token *t = NULL; (t = tokens_next(all, t));)
		n += t->uid == uid;
	return n;
}

static void svc_token_on_list(struct rpc_call *c, const ProtobufCMessage *message)
{
	Agentbox__V1__ListTokensResponse m = AGENTBOX__V1__LIST_TOKENS_RESPONSE__INIT;
	const struct svc_token_options *o = rpc_call_service(c);
	uid_t uid = rpc_call_who(c)->uid;
	size_t n = count_own(o->tokens, uid);
	struct token_message *v = calloc(n + 1, sizeof(*v));
	Agentbox__V1__Token **list = calloc(n + 1, sizeof(*list));
	struct status failure;

	if (v && list) {
		for (const struct token *t = NULL; m.n_tokens < n && (t = tokens_next(o->tokens, t));)
			if (t->uid == uid) {
				list[m.n_tokens] = svc_token_fill(&v[m.n_tokens], t);
				m.n_tokens++;
			}
		m.tokens = list;
		rpc_call_reply(c, &m.base);
	} else {
		status_errno(&failure, -ENOMEM, "answering");
		rpc_call_fail(c, &failure);
	}
	free(v);
	free(list);
}

/* --- Revoke, Gateway --- */

static void svc_token_on_revoked(void *user, const struct status *st)
{
	Agentbox__V1__RevokeTokenResponse m = AGENTBOX__V1__REVOKE_TOKEN_RESPONSE__INIT;
	struct rpc_call *c = asked_take(user);

	m.found = true;
	if (c)
		rpc_call_answer(c, st, &m.base);
}

static void svc_token_on_revoke(struct rpc_call *c, const ProtobufCMessage *message)
{
	Agentbox__V1__RevokeTokenResponse none = AGENTBOX__V1__REVOKE_TOKEN_RESPONSE__INIT;
	const Agentbox__V1__RevokeTokenRequest *q = (const void *)message;
	const struct svc_token_options *o = rpc_call_service(c);
	struct asked *a = asked_new(c);
	struct status why = STATUS_OK;
	int r;

	if (!a)
		return;
	r = tokens_revoke(o->tokens, rpc_call_who(c)->uid, q->id, svc_token_on_revoked, a);
	if (r == -ENOENT)
		rpc_call_reply(asked_take(a), &none.base);
	else if (r < 0)
		asked_fail(a, r, &why);
}

static void svc_token_on_gateway(struct rpc_call *c, const ProtobufCMessage *message)
{
	Agentbox__V1__GatewayResponse m = AGENTBOX__V1__GATEWAY_RESPONSE__INIT;
	const struct svc_token_options *o = rpc_call_service(c);

	if (o->url)
		m.url = (char *)o->url;
	if (o->socket)
		m.socket = (char *)o->socket;
	rpc_call_reply(c, &m.base);
}

static void svc_token_on_open_page(struct rpc_call *c, const ProtobufCMessage *message)
{
	Agentbox__V1__OpenPageResponse m = AGENTBOX__V1__OPEN_PAGE_RESPONSE__INIT;
	const struct svc_token_options *o = rpc_call_service(c);
	msg_timestamp expires_at;
	int64_t expires_at_ms;
	struct status st;

	if (!o->url) {
		status_set(&st, R_UNSUPPORTED, "the gateway listens at no address ([gateway] listen), so there is no page");
		rpc_call_fail(c, &st);
		return;
	}
	m.url = o->page_link(o->user, rpc_call_who(c), &expires_at_ms);
	if (m.url) {
		m.expires_at = msg_time(&expires_at, expires_at_ms);
		rpc_call_reply(c, &m.base);
	} else {
		rpc_call_fail_errno(c, -ENOMEM, "making the link");
	}
	free(m.url);
}

static const struct rpc_method svc_token_methods[] = {
	{ .path = "/agentbox.v1.TokenService/Create", .kind = RPC_UNARY,
	  .request = &agentbox__v1__create_token_request__descriptor,
	  .handler = &(const struct rpc_handler){ .on_message = svc_token_on_create, .on_gone = asked_gone },
	  .at_stop = RPC_STOP_ONCE },	/* a repeat makes another one */
	RPC_UNARY_METHOD("TokenService", "List", list_tokens, svc_token_on_list, asked_gone, RPC_READS),
	RPC_UNARY_METHOD("TokenService", "Revoke", revoke_token, svc_token_on_revoke, asked_gone, RPC_CHANGES),
	RPC_UNARY_METHOD("TokenService", "Gateway", gateway, svc_token_on_gateway, asked_gone, RPC_READS),
	RPC_UNARY_METHOD("TokenService", "OpenPage", open_page, svc_token_on_open_page, asked_gone, RPC_READS),
};

int svc_token_add(struct rpc_server *s, const struct svc_token_options *o)
{
	return rpc_server_add(s, svc_token_methods, ARRAY_SIZE(svc_token_methods), (void *)o);
}
