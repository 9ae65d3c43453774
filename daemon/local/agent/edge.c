/* SPDX-License-Identifier: MIT */
/*
 * Requests for a port of a sandbox: the cloud's refusals in the cloud's order, then the agent (its
 * port is 49983) or a port inside. Traffic may wake a paused sandbox whose creator said so.
 */

#include <jansson.h>
#include <stdlib.h>

#include "daemon/common/http/edge_reply.h"
#include "daemon/common/http/query.h"
#include "daemon/common/http/reply.h"
#include "daemon/common/http/route.h"
#include "daemon/local/agent/envd.h"
#include "daemon/local/agent/relay.h"
#include "daemon/local/state/journal.h"
#include "daemon/local/state/local.h"
#include "daemon/local/state/state.h"
#include "proto/base/str.h"

#define WAKE_WAIT_MS 60000u

/* --- a sandbox that runs --- */

void edge_to_envd(struct local *l, struct sandbox *s, struct http_stream *x)
{
	const char *path = reply_request(x, ":path");
	char *clean = query_clean_path(path ? path : "");

	if (!clean)
		reply_text(x, 400, "Bad Request");
	else if (route_is_internal(clean))
		edge_reply_internal(x, clean);
	else if (!reply_preflight(x))
		envd_request(l, s, x);
	free(clean);
}

static void to_port(struct local *l, struct sandbox *s, struct http_stream *x, uint64_t port)
{
	const char *token = reply_request_any(x, FLAVOUR_TRAFFIC_TOKEN);

	if (s->policy.is_private && !token)
		edge_reply_traffic_missing(x, s->id);
	else if (s->policy.is_private && !reply_is_secret(token, s->traffic_token))
		edge_reply_traffic_wrong(x, s->id);
	else
		relay_request(l, s, x, port);
}

/* --- one that traffic may wake --- */

struct waiting {
	struct local *l;
	struct http_stream *x;
	struct route to;
	bool woke;		/* its resumption is under way */
	struct sandbox_wait wait;
	struct timer limit;
	struct grave grave;
};

/* The exchange is the caller's again. */
static struct http_stream *waiting_end(struct waiting *w)
{
	list_del(&w->wait.node);
	timer_clear(&w->limit);
	loop_bury(w->l->loop, &w->grave, free, w);
	return w->x;
}

static void on_waiting_ready(struct http_stream *x, void *user)
{
	struct waiting *w = user;

	if (http_stream_closed(x, NULL) != HTTP_OPEN)
		http_stream_release(waiting_end(w));
}

static void on_limit(struct timer *t, void *user)
{
	struct waiting *w = user;
	struct route to = w->to;

	edge_reply_refused(waiting_end(w), to.id, 409, "The sandbox is changing its state");
}

static void on_settled(struct sandbox_wait *wait)
{
	struct waiting *w = container_of(wait, struct waiting, wait);
	struct route to = w->to;
	struct local *l = w->l;
	struct sandbox *s = state_find(l->state, to.id);

	if (w->woke && s && s->state == SANDBOX_PAUSED)	/* it could not be resumed */
		edge_reply_not_found(waiting_end(w), to.id);
	else
		edge_request(l, waiting_end(w), &to);
}

static void wait_for(struct local *l, struct sandbox *s, struct http_stream *x, const struct route *to)
{
	struct waiting *w = calloc(1, sizeof(*w));

	if (!w) {
		reply_abort(x);
		return;
	}
	*w = (struct waiting){ .l = l, .x = x, .to = *to, .woke = s->state == SANDBOX_RESUMING,
			       .wait = { .done = on_settled } };
	timer_init(&w->limit, l->loop, on_limit, w);
	http_stream_set_owner(x, on_waiting_ready, w);
	sandbox_wait(s, &w->wait);
	if (timer_set(&w->limit, loop_now_ms(l->loop) + WAKE_WAIT_MS) < 0)
		edge_reply_refused(waiting_end(w), to->id, 409, "The sandbox is changing its state");
}

static bool may_wake(const struct sandbox *s, const struct http_stream *x, uint64_t port)
{
	if (port == ENVD_PORT)
		return !s->policy.secure || reply_request_has(x, "x-access-token", s->token);
	return !s->policy.is_private || reply_is_secret(reply_request_any(x, FLAVOUR_TRAFFIC_TOKEN), s->traffic_token);
}

/* It is paused, or on its way there or back. */
static void wake(struct local *l, struct sandbox *s, struct http_stream *x, const struct route *to)
{
	uint32_t for_s = MIN(MAX(s->timeout_s, STATE_RESUME_MIN_S), state_opts(s->st)->max_length_s);
	int r = 0;

	if (!s->policy.auto_resume || (s->state == SANDBOX_PAUSED && sandbox_is_cold(s))) {
		edge_reply_not_found(x, to->id);
		return;
	}
	if (!may_wake(s, x, to->port)) {
		edge_reply_refused(x, to->id, 403, "The sandbox may not be resumed with these credentials");
		return;
	}
	if (s->state == SANDBOX_PAUSED) {
		r = sandbox_resume(s, for_s, true);
		journal_add(l->journal, "auto-resume",
			    json_pack("{s:s, s:s, s:i}", "sandbox", s->id, "team", s->team, "error", r));
	}
	if (r == STATE_FULL)
		edge_reply_refused(x, to->id, 429, "You have reached the maximum number of concurrent sandboxes");
	else if (r < 0)
		edge_reply_not_found(x, to->id);
	else
		wait_for(l, s, x, to);
}

void edge_request(struct local *l, struct http_stream *x, const struct route *to)
{
	struct sandbox *s = state_find(l->state, to->id);

	switch (s ? s->state : SANDBOX_KILLING) {
	case SANDBOX_RUNNING:
	case SANDBOX_SNAPSHOTTING:		/* stalls for a moment */
		if (to->port == ENVD_PORT)
			edge_to_envd(l, s, x);
		else
			to_port(l, s, x, to->port);
		break;
	case SANDBOX_PAUSING:
	case SANDBOX_PAUSED:
	case SANDBOX_RESUMING:
		wake(l, s, x, to);
		break;
	default:
		edge_reply_not_found(x, to->id);
		break;
	}
}
