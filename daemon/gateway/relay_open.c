/* SPDX-License-Identifier: MIT */
/*
 * The request as it goes on. Hop-by-hop fields, what other hops said about the client, our own Agentboxd-* and the edge's own (which the
 * account's spelling of replaces) stay behind; Authorization, X-API-Key and cookies are the program's inside.
 */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "daemon/cloud/relay.h"
#include "daemon/common/http/relay_head.h"
#include "daemon/common/http/reply.h"
#include "daemon/common/http/route.h"
#include "daemon/gateway/relay_impl.h"
#include "proto/base/host.h"
#include "proto/base/quota.h"
#include "proto/base/str.h"
#include "proto/cloud/flavour.h"

#define WHOLE_MAX     65536u	/* a body that is kept, so that it can be sent again */
#define OWN_FIELDS    8u	/* that are put in further up */
#define OWN_BYTES     2048u

struct passing {
	bool takes_token;		/* the access token is for us alone, or not the agent's */
	bool is_stream;			/* of Connect or gRPC: it announces no length */
};

static bool is_of_edge(const char *name)
{
	for (unsigned i = 0; i < FLAVOURS; i++) {
		const struct flavour *f = flavour_get((enum flavour_id)i);

		for (unsigned k = 0; *name == *f->headers[0] && k < FLAVOUR_HEADERS; k++)
			if (str_eq(name, f->headers[k]))
				return true;
	}
	return false;
}

static bool passes(const void *user, const char *name)
{
	const struct passing *p = user;

	if (str_starts(name, "agentboxd-") || is_of_edge(name))
		return false;
	return !(p->takes_token && str_eq(name, "x-access-token")) && !(p->is_stream && str_eq(name, "content-length"));
}

/* Proxies of the edge's kind cut streams that announce a length (docs/internals/pool.md). */
static bool is_stream(const struct fields *head)
{
	const char *type = fields_get(head, "content-type");

	return type && (!strncasecmp(type, "application/connect+", 20) || !strncasecmp(type, "application/grpc", 16));
}

/* A call of the agent that has one answer. */
static bool is_call(const struct gateway_relay *rl, const struct fields *head)
{
	const char *type = fields_get(head, "content-type");

	return rl->to.port == ENVD_PORT &&
	       (rl->is_health || (type && (str_starts(type, "application/proto") || str_starts(type, "application/json"))));
}

/* The caller's own, else the sandbox's where something else let it pass. */
static const char *traffic_token(const struct gateway_relay *rl, const struct sandbox_target *t)
{
	const char *own = reply_request_any(rl->x, FLAVOUR_TRAFFIC_TOKEN);

	return own || rl->to.port == ENVD_PORT ? own : t->at.traffic_token;
}

/* One that the edge understands as we did. */
static const char *own_host(const struct gateway_relay *rl, const char *authority)
{
	struct host_port hp;

	if (rl->to.by_label)
		return authority;
	if (host_port_parse(authority, strlen(authority), &hp) < 0)
		return NULL;
	return host_is_address(hp.host) || str_eq(hp.host, "localhost") ? authority : NULL;
}

static void take_body(struct gateway_relay *rl, struct cloud_relay_ask *a)
{
	const uint8_t *p = NULL;
	bool ended = http_stream_ended(rl->x) && !http_stream_trailers(rl->x);
	size_t n = ended ? http_stream_buffered(rl->x) : 0;

	if (rl->gathered) {
		a->body_mode = buf_len(&rl->body) ? CLOUD_RELAY_WHOLE : CLOUD_RELAY_NONE;
		a->body = buf_data(&rl->body);
		a->n_body = buf_len(&rl->body);
		rl->join.up_done = true;
		return;
	}
	a->body_mode = CLOUD_RELAY_STREAM;
	if (a->upgrade || (ended && !n)) {
		a->body_mode = CLOUD_RELAY_NONE;
	} else if (ended && n <= WHOLE_MAX && http_stream_peek(rl->x, &p) == n && quota_take(rl->quota, n) == 0) {
		rl->charged += n;
		a->body_mode = CLOUD_RELAY_WHOLE;
		a->body = p;
		a->n_body = n;
	}
	rl->join.up_done = a->body_mode != CLOUD_RELAY_STREAM;
}

int gateway_relay_open(struct gateway_relay *rl, const struct sandbox_target *t, void (*on_ready)(struct pool_req *r, void *user))
{
	scoped(fields_fini) struct fields head = { .max_n = FIELDS_MAX_N - OWN_FIELDS, .max_bytes = FIELDS_MAX_BYTES - OWN_BYTES };
	const struct fields *in = http_stream_head(rl->x);
	bool is_agent = rl->to.port == ENVD_PORT, by_token = is_agent && rl->right == RELAY_BY_TOKEN;
	const struct passing p = {
		.takes_token = by_token || (is_agent ? str_is_empty(t->at.token) : rl->right == RELAY_BY_ACCESS),
		.is_stream = is_stream(in),
	};
	struct cloud_relay_ask a = {
		.cloud = t->at.cloud,
		.sandbox_id = t->at.id,
		.domain = t->at.domain,
		.port = rl->to.port,
		.head = &head,
		.upgrade = http_stream_can_upgrade(rl->x),
		.authority = is_agent ? NULL : own_host(rl, fields_get(in, ":authority")),
		.is_named = rl->to.by_label,
		.access_token = by_token ? t->at.token : NULL,
		.traffic_token = traffic_token(rl, t),
		.is_call = is_call(rl, in),
		.idempotent = rl->is_health,
		.on_ready = on_ready,
		.user = rl,
	};
	int r = relay_request_head(in, NULL, a.upgrade, passes, &p, &head);

	if (r < 0)
		return r;
	take_body(rl, &a);
	if (a.body_mode == CLOUD_RELAY_STREAM && http_stream_awaits_continue(rl->x)) {
		r = fields_put(&head, "expect", "100-continue");
		if (r < 0)
			return r;
		rl->join.expects = true;
	}
	rl->up = cloud_relay(&a);
	if (!rl->up)
		return -ENOMEM;
	if (a.body_mode == CLOUD_RELAY_WHOLE) {
		rl->join.up += a.n_body;
		if (!rl->gathered)
			http_stream_consume(rl->x, a.n_body);
	}
	return 0;
}
