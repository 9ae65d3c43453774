/* SPDX-License-Identifier: MIT */
/*
 * Requests of others to a port of a sandbox, passed on through the pool: where they go and what the edge has to find in them. Their
 * bodies and answers are the caller's to move, on the exchange (daemon/common/net/http.h), which is never released or reset by it.
 */
#ifndef AB_DAEMON_CLOUD_RELAY_H
#define AB_DAEMON_CLOUD_RELAY_H

#include <stdbool.h>

#include "proto/base/cc.h"
#include "proto/base/status.h"
#include "proto/wire/fields.h"

#define CLOUD_AGENT_PORT 49983u

struct cloud;
struct http_stream;
struct pool_req;	/* daemon/upstream/pool.h */

enum cloud_relay_body {
	CLOUD_RELAY_NONE,
	CLOUD_RELAY_WHOLE,	/* all of it is here; kept, so that what nobody has processed is sent again */
	CLOUD_RELAY_STREAM,	/* the caller writes on the exchange */
};

/* Everything is copied. */
struct cloud_relay_ask {
	struct cloud *cloud;
	const char *sandbox_id, *domain;	/* domain NULL or "" = the account's */
	uint16_t port;
	/* ":method", ":path", and of the rest what is to pass: no hop-by-hop fields and none of the edge's own, which are put in here
	 * as the account spells them. With `upgrade` it has that field, and goes on HTTP/1.1. */
	const struct fields *head;
	bool upgrade;
	/* The client's Host: it goes on where the edge is at an address, not a name of its own. `is_named`: it names port and sandbox. */
	const char *authority;			/* NULL = none that may */
	bool is_named;
	const char *access_token, *traffic_token;	/* NULL or "" = none is put in */
	enum cloud_relay_body body_mode;
	const void *body;
	size_t n_body;
	bool idempotent;			/* may be sent again although it may have been processed */
	bool is_call;				/* answered at once, by whatever is known of it: may use a connection's last room */
	void (*on_ready)(struct pool_req *r, void *user);
	void *user;
};

/* NULL only without memory. */
struct pool_req *cloud_relay(const struct cloud_relay_ask *a);
/* The exchange: NULL while it is queued. It can change between two news until its head was seen. */
struct http_stream *cloud_relay_stream(const struct pool_req *r);
/* Why there is, or will be, no complete answer; NULL: none of that. */
const struct status *cloud_relay_failure(const struct pool_req *r);
/* Resets what is open. NULL is fine; returns NULL. */
struct pool_req *cloud_relay_free(struct pool_req *r);

#endif
