/* SPDX-License-Identifier: MIT */
/* An exchange joined with a port inside a sandbox's network. */
#ifndef AB_DAEMON_LOCAL_AGENT_RELAY_H
#define AB_DAEMON_LOCAL_AGENT_RELAY_H

#include "proto/base/cc.h"

struct http_stream;
struct local;
struct sandbox;

/* Takes the exchange over. The sandbox runs; the relay is part of its traffic and is cut with it. */
void relay_request(struct local *l, struct sandbox *s, struct http_stream *x, uint64_t port);

#endif
