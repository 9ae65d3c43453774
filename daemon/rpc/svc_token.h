/* SPDX-License-Identifier: MIT */
/* agentbox.v1.TokenService. */
#ifndef AB_DAEMON_RPC_SVC_TOKEN_H
#define AB_DAEMON_RPC_SVC_TOKEN_H

#include <stdint.h>

#include "proto/base/cc.h"

struct principal;
struct tokens;
struct rpc_server;

struct svc_token_options {		/* the caller's, as long as the server lives */
	struct tokens *tokens;
	const char *url, *socket;	/* where the gateway is; NULL = nowhere */
	/* A link to the status page, heap, and when it is over; NULL: no memory. Asked only with a url. */
	char *(*page_link)(void *user, const struct principal *who, int64_t *ret_expires_at_ms);
	void *user;
};

must_check int svc_token_add(struct rpc_server *s, const struct svc_token_options *o);

#endif
