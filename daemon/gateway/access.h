/* SPDX-License-Identifier: MIT */
/* The rules of [access] at the gateway's door. */
#ifndef AB_DAEMON_GATEWAY_ACCESS_H
#define AB_DAEMON_GATEWAY_ACCESS_H

#include "daemon/gateway/impl.h"

#define GATEWAY_WHY_BYTES 400u

enum gateway_may {
	GATEWAY_MAY,
	GATEWAY_MAY_LATER,	/* the name and groups of a user are not known yet; `why` says so */
	GATEWAY_MAY_NOT,	/* `why` says who, which rule, and where it stands */
};

/* `t` NULL = no token was shown. */
enum gateway_may gateway_may(struct gateway *g, const struct who_peer *peer, const struct token *t, char why[GATEWAY_WHY_BYTES]);

/* What this owner's browser may see on the status page, at most `sight`. With GATEWAY_MAY `ret` is who looks. */
enum gateway_may gateway_viewer(struct gateway *g, uid_t owner, enum page_sight sight, struct principal *ret, char why[GATEWAY_WHY_BYTES]);

#endif
