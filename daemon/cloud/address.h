/* SPDX-License-Identifier: MIT */
/*
 * Where the agent of a sandbox is reached, and with what: said by daemon/sandbox, kept by commands and file calls, used
 * by what is asked of the agent. A text is never NULL in one that was set; "" = none.
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
	bool wakes;			/* any traffic would resume it: daemon/sandbox is asked before something is sent in the
					 * background */
};

/* A copy in place of what was there; -ENOMEM leaves that. */
must_check int agent_address_set(struct agent_address *a, const struct agent_address *from);
void agent_address_fini(struct agent_address *a);	/* wipes; zeroed is fine */

#endif
