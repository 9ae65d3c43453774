/* SPDX-License-Identifier: MIT */
/*
 * Whose a request is. Hosts and routing headers tell, by the rules of the cloud's edge (route.h); but here one address serves
 * both planes, and there the request itself tells better: old clients send routing headers on calls of the control plane,
 * too, and links that are signed, like the oldest clients' calls of the agent, name their sandbox only by what it verifies.
 */
#include <string.h>

#include "daemon/common/http/edge_reply.h"
#include "daemon/common/http/query.h"
#include "daemon/common/http/reply.h"
#include "daemon/common/http/route.h"
#include "daemon/local/agent/files.h"
#include "daemon/local/state/local.h"
#include "daemon/local/state/state.h"
#include "proto/base/str.h"

static bool is_api_call(const struct http_stream *x, const struct query *q)
{
	const char *method = reply_request(x, ":method");
	enum cloud_route to = cloud_route_find(method ? method : "", q->segments, q->n_segments);

	/* Only the agent's port is asked with the control plane's headers; /health is the agent's, too. */
	return reply_request(x, "x-api-key") && to != CLOUD_ROUTE_UNKNOWN && to != CLOUD_ROUTE_HEALTH;
}

static bool is_agent_path(const struct query *q)
{
	return str_eq(q->path, "/files") || str_eq(q->path, "/files/compose") || str_eq(q->path, "/envs") ||
	       str_starts(q->path, "/process.Process/") || str_starts(q->path, "/filesystem.Filesystem/");
}

static bool is_verified_by(const struct sandbox *s, const struct http_stream *x, const struct query *q)
{
	if (!s->token[0] || s->state == SANDBOX_CREATING || s->state == SANDBOX_KILLING)
		return false;
	if (reply_request(x, "x-access-token"))
		return reply_request_has(x, "x-access-token", s->token);
	return files_is_signed(s, q, str_eq(reply_request(x, ":method"), "POST"));
}

/* By its token, or by the signature of a link. */
static const struct sandbox *find_verifying(const struct local *l, const struct http_stream *x, const struct query *q)
{
	struct sandbox *s;
	size_t pos = 0;

	while ((s = state_next(l->state, &pos)))
		if (is_verified_by(s, x, q))
			break;
	return s;
}

/* Without routing headers: an agent's call, or the control plane's. */
static void unrouted(struct local *l, struct http_stream *x, const struct query *q)
{
	bool has_token = reply_request(x, "x-access-token") && !is_api_call(x, q);
	bool is_link = query_get(q, "signature") && str_eq(q->path, "/files");
	struct route to = { .kind = ROUTE_SANDBOX, .port = ENVD_PORT };
	const struct sandbox *s = has_token || is_link ? find_verifying(l, x, q) : NULL;

	if (reply_preflight(x))
		return;
	if (s) {
		str_copy(to.id, sizeof(to.id), s->id);
		edge_request(l, x, &to);
	} else if (has_token) {
		edge_reply_not_found(x, "");
	} else if (is_link) {
		reply_envd_error(x, 401, "invalid signature");
	} else if (is_agent_path(q)) {
		reply_envd_error(x, 400, "which sandbox is meant? Its routing headers are missing, and so are its token and a "
					 "signature");
	} else {
		rest_request(l, x);
	}
}

/* Of a host that serves both planes. */
static void by_request(struct local *l, struct http_stream *x, const struct route *to)
{
	struct query q = QUERY_NULL;
	const char *path = reply_request(x, ":path");

	if (query_parse(path ? path : "", &q) < 0)	/* either refuses it in its words */
		to->kind == ROUTE_CONTROL ? rest_request(l, x) : edge_request(l, x, to);
	else if (to->kind == ROUTE_CONTROL)
		unrouted(l, x, &q);
	else if (to->port == ENVD_PORT && is_api_call(x, &q))
		rest_request(l, x);
	else
		edge_request(l, x, to);
	query_fini(&q);
}

void local_request(struct http_stream *x, void *local)
{
	struct local *l = local;
	struct route to;

	route_parse(reply_request(x, ":authority"), reply_request_any(x, FLAVOUR_SANDBOX_ID),
		    reply_request_any(x, FLAVOUR_SANDBOX_PORT), &to);
	if (to.kind == ROUTE_BAD)
		reply_text(x, 400, to.why);
	else if (to.is_shared)
		by_request(l, x, &to);
	else if (to.kind == ROUTE_CONTROL)
		rest_request(l, x);
	else
		edge_request(l, x, &to);
}
