/* SPDX-License-Identifier: MIT */
/* Inside of relay*.c: a request on its way to a port of a sandbox. */
#ifndef AB_DAEMON_GATEWAY_RELAY_IMPL_H
#define AB_DAEMON_GATEWAY_RELAY_IMPL_H

#include "daemon/common/http/join.h"
#include "daemon/gateway/impl.h"
#include "daemon/gateway/relay_right.h"
#include "daemon/sandbox/sandbox.h"

#define GATEWAY_RELAY_MAGIC 0x67772d64u
#define GATEWAY_TOKEN_FIELD "agentboxd-token"
#define GATEWAY_ASK_GAP_MS  1000u	/* between questions for tokens that did not fit */

struct pool_req;

struct gateway_relay {
	uint32_t magic;
	struct list node;		/* in gateway.relays */
	struct gateway *g;
	struct http_stream *x;		/* the client's */
	struct pool_req *up;		/* NULL: not opened yet */
	struct plane_port to;
	struct who_peer peer;		/* who is behind it … */
	struct token *token;		/* … and whose token was shown: a reference; NULL = none */
	char *account;			/* NULL: not known yet */
	enum relay_right right;
	bool over;
	bool is_health;			/* neither wakes nor counts as use */
	bool learnt;			/* the core was asked about it once already */
	bool in_use;
	bool looked;			/* what the answer says of the sandbox was told, if anything */
	struct http_join join;
	uint64_t counted_up, counted_down;
	struct sandbox_op *op;
	struct sandbox_tie tie;
	struct timer limit;		/* it waits for a change of the sandbox's state */
	struct timer unasked;		/* nobody has asked for the body that the client holds back */
	struct defer again;
	struct status failure;
	struct quota *quota;		/* of the connection, which may end before it */
	size_t charged;
	struct grave grave;
};

/* relay_open.c: opens it at that target and takes what is there of its body. 0; -EMSGSIZE: its head is too big; -ENOMEM. */
must_check int gateway_relay_open(struct gateway_relay *rl, const struct sandbox_target *t,
				  void (*on_ready)(struct pool_req *r, void *user));

#endif
