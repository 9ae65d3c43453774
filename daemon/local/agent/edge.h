/* SPDX-License-Identifier: MIT */
/* The edge's own answers. Both take the exchange over. */
#ifndef AB_DAEMON_LOCAL_AGENT_EDGE_H
#define AB_DAEMON_LOCAL_AGENT_EDGE_H

#include "proto/base/cc.h"

struct http_stream;

/* 502 without a port: there is no such sandbox (any more). */
void edge_not_found(struct http_stream *x, const char *id);
/* 502 with one: it is there, and nothing listens. */
void edge_port_closed(struct http_stream *x, const char *id, uint64_t port);

#endif
