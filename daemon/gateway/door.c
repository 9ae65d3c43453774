/* SPDX-License-Identifier: MIT */
/* A request at the door: what is refused before anybody looks at it, whose it is, and who asks. */
#include <stdarg.h>
#include <stdio.h>

#include "daemon/auth/owner.h"
#include "daemon/cloud/cloud.h"
#include "daemon/common/http/reply.h"
#include "daemon/common/obs/log.h"
#include "daemon/gateway/access.h"
#include "daemon/gateway/impl.h"
#include "proto/base/buf.h"
#include "proto/base/str.h"
#include "proto/cloud/error.h"

#define BEARER	"Bearer "

void gateway_refuse(struct gateway *g, struct http_stream *x, const struct flavour *f, unsigned status, const char *fmt, ...)
{
	scoped(buf_fini) struct buf body = BUF_NULL;
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	g->counts.refused++;
	if (cloud_error_write(status, NULL, text, f ? f : flavour_get(FLAVOUR_AGENTBOX), &body) < 0)
		reply_abort(x);
	else
		reply_send(x, status, REPLY_JSON, NULL, buf_data(&body), buf_len(&body));
}

/* What no program that speaks to us on purpose sends. True: it was answered. */
static bool refuse_odd(struct gateway *g, struct http_stream *x, const struct gateway_door *door, bool forwarded)
{
	const struct fields *head = http_stream_head(x);

	if (fields_get(head, CLOUD_HOP))
		gateway_refuse(g, x, NULL, 508, "this request went through a gateway of agentboxd already: the cloud of an account "
						"leads back to one");
	else if ((!door->is_unix || forwarded) && !door->is_tls && !who_is_local_host(fields_get(head, ":authority")))
		gateway_refuse(g, x, NULL, 421, "the host of this request is none of this machine's: write localhost");
	else
		return false;
	return true;
}

/* The secret that a program shows for the control plane; NULL = none. */
static const char *shown_token(const struct fields *head)
{
	const char *key = fields_get(head, "x-api-key"), *bearer = fields_get(head, "authorization");

	if (key)
		return key;
	return bearer && mem_eq_ci(bearer, MIN(strlen(bearer), strlen(BEARER)), BEARER) ? bearer + strlen(BEARER) : NULL;
}

static void fill_caller(const struct gateway *g, struct token *t, const struct gateway_conn *conn, const char *shown,
			struct gateway_caller *ret)
{
	*ret = (struct gateway_caller){
		.who = { .uid = t->uid, .gid = (gid_t)-1, .pid = t->run.pid, .pidfd = t->run_pidfd, .conn = conn->number,
			 .admin = g->o.whole_account && owner_uid(t->uid) == g->o.own_uid },
		.token = t,
		.flavour = flavour_of_key(shown),
	};
}

static void control(struct gateway *g, struct http_stream *x, const struct gateway_conn *conn)
{
	const struct fields *head = http_stream_head(x);
	const char *shown = shown_token(head);
	const struct flavour *f = shown ? flavour_of_key(shown) : NULL;
	char why[GATEWAY_WHY_BYTES];
	struct gateway_caller by;
	enum gateway_may may;
	struct token *t;

	if (who_is_foreign_page(head, conn->door->is_tls)) {
		gateway_refuse(g, x, f, 403, "pages of other origins may not use this address");
		return;
	}
	t = shown ? tokens_find(g->o.tokens, shown) : NULL;
	if (!t) {
		gateway_refuse(g, x, f, 401, shown ? "the API key is not valid: it is no token of this agentboxd, or one that is over "
						     "(agentboxctl env)"
						   : "no API key was given (X-API-Key)");
		return;
	}
	if (conn->peer.is_known && conn->peer.uid != owner_uid(t->uid)) {
		log_warn("gateway_refused", "why=uid token=%s uid=%u peer=%u", t->id, owner_uid(t->uid), conn->peer.uid);
		gateway_refuse(g, x, f, 401, "the API key is not valid: it is another user's");
		return;
	}
	may = gateway_may(g, &conn->peer, t, why);
	if (may != GATEWAY_MAY) {
		gateway_refuse(g, x, f, may == GATEWAY_MAY_LATER ? 503 : 403, "%s", why);
		return;
	}
	fill_caller(g, t, conn, shown, &by);
	gateway_control_request(g, x, &by);
}

void gateway_door_on_request(struct http_stream *x, void *user)
{
	struct gateway_door *door = user;
	struct gateway *g = door->g;
	const struct gateway_conn *conn = http_conn_user(http_stream_conn(x));
	struct plane plane;

	g->counts.requests++;
	if (refuse_odd(g, x, door, conn->token))
		return;
	if (conn->token) {
		gateway_relay_request(g, x, &conn->to);
		return;
	}
	if (gateway_forward_is_asked(x)) {
		gateway_forward_request(g, x);
		return;
	}
	plane_find(http_stream_head(x), &plane);
	switch (plane.kind) {
	case PLANE_BAD:
		g->counts.refused++;
		reply_text(x, 400, plane.why);
		break;
	case PLANE_CONTROL:
		if (g->o.view && gateway_page_is(fields_get(http_stream_head(x), ":path")))
			gateway_page_request(g, x, conn);
		else
			control(g, x, conn);
		break;
	case PLANE_PORT:
	case PLANE_LINK:
		gateway_relay_request(g, x, plane.kind == PLANE_PORT ? &plane.port : NULL);
		break;
	}
}
