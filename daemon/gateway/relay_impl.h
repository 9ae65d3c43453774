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

struct gateway_durable;
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
	bool was_hidden;		/* … for a secret that does not fit, of one that is not to be told of */
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
	bool gathers, gathered;		/* its body is being read, or is, in `body`: relay_durable.c */
	bool is_asleep;			/* the edge may resume the sandbox for it */
	struct buf body;
	struct quota *quota;		/* of the connection, which may end before it */
	size_t charged;
	struct grave grave;
};

/* relay_open.c: opens it at that target and takes what is there of its body. 0; -EMSGSIZE: its head is too big; -ENOMEM. */
must_check int gateway_relay_open(struct gateway_relay *rl, const struct sandbox_target *t,
				  void (*on_ready)(struct pool_req *r, void *user));

/* A Start or Connect that may be the daemon's own (durable.h), at a sandbox that is awake. */
bool gateway_relay_is_durable(const struct gateway_relay *rl);
/* Takes what has come of its body. 1: all of it is there; 0: not yet; -EMSGSIZE, -ENOBUFS, -ENOMEM. */
must_check int gateway_relay_gather(struct gateway_relay *rl);
/* The gathered request at this target: 0: *ret is its stream, to be begun with the client's exchange; -EINVAL, -ENOENT: it goes on as it
 * is; -ENOMEM. */
must_check int gateway_relay_make_durable(struct gateway_relay *rl, const struct sandbox_target *t, struct gateway_durable **ret);

#endif
