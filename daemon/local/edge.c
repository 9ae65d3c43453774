/* SPDX-License-Identifier: MIT */
/*
 * Requests for a port of a sandbox: the cloud's refusals in the cloud's order, then the agent (its
 * port is 49983). Other ports are not reachable yet, which looks like a port nobody listens on.
 */
#include "daemon/local/edge.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/local/envd.h"
#include "daemon/local/local.h"
#include "daemon/local/query.h"
#include "daemon/local/reply.h"
#include "daemon/local/route.h"
#include "daemon/local/state.h"
#include "proto/base/str.h"

/* Steals `body`. */
static void refuse(struct http_x *x, unsigned status, json_t *body, const char *message)
{
	char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	char html[512];

	json_decref(body);
	if (!text) {
		reply_abort(x);
	} else if (route_wants_html(reply_request(x, "user-agent"), reply_request(x, "accept"),
				    reply_request(x, "sec-fetch-mode"),
				    reply_request(x, "x-requested-with"))) {
		/* `message` is ours: nothing of the request is in it. */
		snprintf(html, sizeof(html),
			 "<!DOCTYPE html>\n<html><head><title>%u</title></head>"
			 "<body><h1>%u</h1><p>%s</p></body></html>\n",
			 status, status, message);
		reply_send(x, status, "text/html; charset=utf-8", NULL, html, strlen(html));
	} else {
		reply_send(x, status, REPLY_JSON, NULL, text, strlen(text));
	}
	free(text);
}

void edge_not_found(struct http_x *x, const char *id)
{
	static const char message[] = "The sandbox was not found";

	refuse(x, 502,
	       json_pack("{s:s, s:s, s:i}", "sandboxId", id, "message", message, "code", 502),
	       message);
}

void edge_port_closed(struct http_x *x, const char *id, uint64_t port)
{
	static const char message[] = "The sandbox is running but port is not open";

	refuse(x, 502,
	       json_pack("{s:s, s:s, s:I, s:i}", "sandboxId", id, "message", message, "port",
			 (json_int_t)MIN(port, (uint64_t)INT64_MAX), "code", 502),
	       message);
}

static void internal_route(struct http_x *x, const char *path)
{
	static const char message[] = "Not found";

	refuse(x, 404,
	       json_pack("{s:s, s:s, s:i}", "message", message, "path", path, "code", 404), message);
}

void edge_request(struct local *l, struct http_x *x, const struct route *to)
{
	const char *path = reply_request(x, ":path");
	struct sbox *s = state_find(l->state, to->id);
	char *clean;

	if (!s || s->state != SBOX_RUNNING) {
		edge_not_found(x, to->id);
		return;
	}
	if (to->port != ENVD_PORT) {
		edge_port_closed(x, to->id, to->port);
		return;
	}
	clean = query_clean_path(path ? path : "");
	if (!clean)
		reply_text(x, 400, "Bad Request");
	else if (route_is_internal(clean))
		internal_route(x, clean);
	else if (!reply_preflight(x))
		envd_request(l, s, x);
	free(clean);
}

void local_request(struct http_x *x, void *local)
{
	struct local *l = local;
	struct route to;

	route_parse(reply_request(x, ":authority"), reply_request(x, "e2b-sandbox-id"),
		    reply_request(x, "e2b-sandbox-port"), &to);
	switch (to.kind) {
	case ROUTE_CONTROL:
		rest_request(l, x);
		break;
	case ROUTE_SANDBOX:
		edge_request(l, x, &to);
		break;
	case ROUTE_BAD:
		reply_text(x, 400, to.why);
		break;
	}
}
