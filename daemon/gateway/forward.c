/* SPDX-License-Identifier: MIT */
/*
 * A connection of which every request is for one port of a sandbox, whatever its own head says: agentboxctl port-forward makes one for
 * each that comes to its port, so that a browser need not know of tokens and routing headers.
 *
 * It is an upgrade (RFC 9110 §7.8), so that proxies on the way keep the connection to themselves: routing headers, Agentboxd-Token and
 * `Upgrade: agentboxd-forward`. What follows the 101 is HTTP/1.1, relayed as any request with that token.
 */
#include <strings.h>

#include "daemon/auth/owner.h"
#include "daemon/common/http/reply.h"
#include "daemon/common/http/route.h"
#include "daemon/gateway/access.h"
#include "daemon/gateway/relay_impl.h"
#include "proto/base/str.h"

#define FORWARD_PROTOCOL "agentboxd-forward"

bool gateway_forward_is_asked(const struct http_stream *x)
{
	const char *to = reply_request(x, "upgrade");

	return to && !strcasecmp(to, FORWARD_PROTOCOL);
}

struct refusal {
	unsigned status;	/* 0 = none */
	const char *why;
};

static struct refusal judge_token(const struct gateway_conn *conn, const struct token *t, const struct plane_port *to)
{
	if (!t)
		return (struct refusal){ 401, "Agentboxd-Token: it is no token of this agentboxd, or one that is over" };
	if (conn->peer.is_known && conn->peer.uid != owner_uid(t->uid))
		return (struct refusal){ 401, "Agentboxd-Token: it is another user's" };
	if (!token_covers(t, to->sandbox))
		return (struct refusal){ 403, "Agentboxd-Token: it is good for other sandboxes only" };
	return (struct refusal){ 0 };
}

/* What is asked for, before anybody is asked who it is. */
static struct refusal judge_head(const struct gateway_conn *conn, const struct http_stream *x, struct plane_port *ret)
{
	struct plane plane;

	if (who_is_foreign_page(http_stream_head(x), conn->door->is_tls))
		return (struct refusal){ 403, "Pages of other origins may not use this address" };
	if (!http_stream_can_upgrade(x))
		return (struct refusal){ 400, "Upgrade: it needs HTTP/1.1, Connection: Upgrade, and no body" };
	plane_find(http_stream_head(x), &plane);
	if (plane.kind != PLANE_PORT || plane.port.by_label)
		return (struct refusal){ 400, plane.kind == PLANE_BAD ? plane.why : "The routing headers name no port of a sandbox" };
	/* Whoever reaches the forwarded port would have all that the agent can do. */
	if (plane.port.port == ENVD_PORT)
		return (struct refusal){ 403, "The agent's port is not forwarded" };
	*ret = plane.port;
	return (struct refusal){ 0 };
}

static void refuse_forward(struct gateway *g, struct http_stream *x, const struct refusal *why)
{
	g->counts.refused++;
	reply_text(x, why->status, why->why);
}

static void agree(struct http_stream *x)
{
	scoped(fields_fini) struct fields head = FIELDS_NULL;
	int r = fields_put(&head, ":status", "101");

	if (r == 0)
		r = fields_put(&head, "upgrade", FORWARD_PROTOCOL);
	if (r == 0)
		r = http_stream_respond(x, &head, true);
	if (r < 0)
		reply_abort(x);
	else
		http_stream_detach(x);
}

void gateway_forward_request(struct gateway *g, struct http_stream *x)
{
	struct gateway_conn *conn = http_conn_user(http_stream_conn(x));
	const char *shown = reply_request(x, GATEWAY_TOKEN_FIELD);
	struct plane_port to;
	struct refusal why = judge_head(conn, x, &to);
	char text[GATEWAY_WHY_BYTES];
	struct token *t;

	if (why.status) {
		refuse_forward(g, x, &why);
		return;
	}
	t = shown ? tokens_find(g->o.tokens, shown) : NULL;
	why = judge_token(conn, t, &to);
	if (!why.status) {
		enum gateway_may may = gateway_may(g, &conn->peer, t, text);

		if (may != GATEWAY_MAY)
			why = (struct refusal){ may == GATEWAY_MAY_LATER ? 503 : 403, text };
	}
	if (why.status) {
		refuse_forward(g, x, &why);
		return;
	}
	conn->to = to;
	conn->token = token_ref(t);
	agree(x);
}
