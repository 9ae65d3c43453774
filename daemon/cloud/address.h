/* SPDX-License-Identifier: MIT */
/*
 * The address and the credentials of a sandbox's agent. daemon/sandbox fills it, commands and file calls keep a copy,
 * requests to the agent use it. A text is never NULL in one that was set; "" = none.
 */
#ifndef AB_DAEMON_CLOUD_ADDRESS_H
#define AB_DAEMON_CLOUD_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/cc.h"

struct cloud;

struct agent_address {		/* zeroed: not known */
	struct cloud *cloud;
	char *account, *id;
	char *domain;			/* "" = the account's */
	char *token;			/* secret; "" = the sandbox is not secure */
	char *traffic_token;		/* secret; "" = its ports are public */
	char *version;			/* the agent's; "" = current */
	uint32_t generation;
	bool plain_ports;		/* its ports are http:// */
	bool wakes;			/* any request would resume the paused sandbox: ask daemon/sandbox before one in the background */
};

/* Replaces `a` by a copy; -ENOMEM leaves it as it was. */
must_check int agent_address_set(struct agent_address *a, const struct agent_address *from);
void agent_address_fini(struct agent_address *a);	/* wipes; zeroed is fine */

#endif
