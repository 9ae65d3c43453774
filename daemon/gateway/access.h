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

#endif
