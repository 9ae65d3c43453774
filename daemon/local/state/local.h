/* SPDX-License-Identifier: MIT */
/* What the front of agentbox-local passes around: everything a request may need. */
#ifndef AB_DAEMON_LOCAL_STATE_LOCAL_H
#define AB_DAEMON_LOCAL_STATE_LOCAL_H

#include <stdbool.h>

#include "proto/base/cc.h"
#include "proto/cloud/route.h"

struct teams;
struct http_stream;
struct journal;
struct loop;
struct state;

struct local {
	struct loop *loop;
	struct state *state;
	struct teams *teams;
	struct journal *journal;
	const char *domain;	/* "localhost:PORT"; of the answers */
};

/* A request's head came: finds out whose it is (route.h) and hands it on. */
void local_request(struct http_stream *x, void *local);

/* The control plane (rest.c) and a port of a sandbox (edge.c). Each sets the owner of x. */
struct route;
void rest_request(struct local *l, struct http_stream *x);
/* Others of the cloud's routes are refused with 501, by name. */
bool rest_is_built(enum cloud_route to);
void edge_request(struct local *l, struct http_stream *x, const struct route *to);

#endif
