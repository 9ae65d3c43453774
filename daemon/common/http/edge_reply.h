/* SPDX-License-Identifier: MIT */
/*
 * Answers in the words of the cloud's edge, as it was seen to give them: JSON, or a page for a browser. Each takes the exchange
 * over, as those of reply.h do.
 */
#ifndef AB_DAEMON_COMMON_HTTP_EDGE_REPLY_H
#define AB_DAEMON_COMMON_HTTP_EDGE_REPLY_H

#include "daemon/common/net/http.h"

void edge_reply_not_found(struct http_stream *x, const char *id);	/* 502 without a port: no such sandbox runs */
void edge_reply_port_closed(struct http_stream *x, const char *id, uint64_t port);
void edge_reply_internal(struct http_stream *x, const char *path);	/* a control route inside the agent */
/* 403 and the like. Nothing of the request may be in `message`. */
void edge_reply_refused(struct http_stream *x, const char *id, unsigned status, const char *message);
void edge_reply_traffic_missing(struct http_stream *x, const char *id);
void edge_reply_traffic_wrong(struct http_stream *x, const char *id);

#endif
