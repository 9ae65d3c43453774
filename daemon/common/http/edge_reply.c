/* SPDX-License-Identifier: MIT */
#include "daemon/common/http/edge_reply.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/http/reply.h"
#include "daemon/common/http/route.h"

/* Steals `body`. */
static void edge_refuse(struct http_stream *x, unsigned status, json_t *body, const char *message)
{
	char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	char html[512];

	json_decref(body);
	if (!text) {
		reply_abort(x);
	} else if (route_wants_html(reply_request(x, "user-agent"), reply_request(x, "accept"),
				    reply_request(x, "sec-fetch-mode"), reply_request(x, "x-requested-with"))) {
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

void edge_reply_not_found(struct http_stream *x, const char *id)
{
	edge_reply_refused(x, id, 502, "The sandbox was not found");
}

void edge_reply_port_closed(struct http_stream *x, const char *id, uint64_t port)
{
	static const char message[] = "The sandbox is running but port is not open";

	edge_refuse(x, 502,
	       json_pack("{s:s, s:s, s:I, s:i}", "sandboxId", id, "message", message, "port",
			 (json_int_t)MIN(port, (uint64_t)INT64_MAX), "code", 502),
	       message);
}

void edge_reply_internal(struct http_stream *x, const char *path)
{
	static const char message[] = "Not found";

	edge_refuse(x, 404, json_pack("{s:s, s:s, s:i}", "message", message, "path", path, "code", 404), message);
}

void edge_reply_refused(struct http_stream *x, const char *id, unsigned status, const char *message)
{
	edge_refuse(x, status,
	       json_pack("{s:s, s:s, s:i}", "sandboxId", id, "message", message, "code", (int)status), message);
}

void edge_reply_traffic_missing(struct http_stream *x, const char *id)
{
	char missing[128];

	snprintf(missing, sizeof(missing), "The header %s (or %s) is missing",
		 flavour_get(FLAVOUR_AGENTBOX)->headers[FLAVOUR_TRAFFIC_TOKEN],
		 flavour_get(FLAVOUR_E2B)->headers[FLAVOUR_TRAFFIC_TOKEN]);
	edge_reply_refused(x, id, 403, missing);
}

void edge_reply_traffic_wrong(struct http_stream *x, const char *id)
{
	edge_reply_refused(x, id, 403, "The traffic access token is wrong");
}
