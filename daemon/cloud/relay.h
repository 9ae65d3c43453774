/* SPDX-License-Identifier: MIT */
/*
 * Passes requests of others on to a port of a sandbox: finds the address and puts in the fields that the cloud's proxy needs. The
 * caller moves the bodies on the exchange (daemon/common/net/http.h), and never releases or resets it.
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
	CLOUD_RELAY_WHOLE,	/* all of it is in `body`; kept, so that it can be sent again if nobody processed it */
	CLOUD_RELAY_STREAM,	/* the caller writes on the exchange */
};

/* Everything is copied. */
struct cloud_relay_ask {
	struct cloud *cloud;
	const char *sandbox_id, *domain;	/* domain NULL or "" = the account's */
	uint16_t port;
	/* ":method", ":path" and the fields to pass on: no hop-by-hop fields, and none of the cloud's routing fields, which are put in
	 * here as the account spells them. `upgrade`: it has an Upgrade field and goes over HTTP/1.1. */
	const struct fields *head;
	bool upgrade;
	/* The client's Host: it is passed on where the cloud's proxy is at an IP address. `is_named`: it names port and sandbox. */
	const char *authority;			/* NULL = none that may */
	bool is_named;
	const char *access_token, *traffic_token;	/* NULL or "" = none is put in */
	enum cloud_relay_body body_mode;
	const void *body;
	size_t n_body;
	bool idempotent;			/* may be sent again although it may have been processed */
	bool is_call;				/* short by all that is known: may take one of a connection's last streams */
	void (*on_ready)(struct pool_req *r, void *user);
	void *user;
};

/* NULL only without memory. */
struct pool_req *cloud_relay(const struct cloud_relay_ask *a);
/* The exchange: NULL while it is queued. Until the answer's head came it may be another one after each on_ready. */
struct http_stream *cloud_relay_stream(const struct pool_req *r);
/* Why there will be no complete answer; NULL = it has not failed. */
const struct status *cloud_relay_failure(const struct pool_req *r);
/* Resets what is open. NULL is fine; returns NULL. */
struct pool_req *cloud_relay_free(struct pool_req *r);

#endif
