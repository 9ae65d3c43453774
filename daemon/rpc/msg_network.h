/* SPDX-License-Identifier: MIT */
/* Between the API's NetworkConfig and IamToken and what daemon/sandbox takes. */
#ifndef AB_DAEMON_RPC_MSG_NETWORK_H
#define AB_DAEMON_RPC_MSG_NETWORK_H

#include <stdbool.h>

#include "proto/cloud/model.h"
#include "daemon/sandbox/sandbox.h"
#include "proto/gen/agentbox_sandbox.pb-c.h"

/* NULL gives NULL. False: *st says why (without memory, or FIELD_INVALID). */
must_check bool msg_read_network(const Agentbox__V1__NetworkConfig *m, struct cloud_network **ret,
				 struct status *st);
/* Copies. -ENOMEM. */
must_check int msg_read_tokens(Agentbox__V1__CreateSandboxRequest__IamTokensEntry *const *entries,
			       size_t n, struct cloud_create *ret);

/* A message that points into what it was made from. NULL without memory. */
struct msg_network;
struct msg_network *msg_network_new(const struct cloud_network *n);
Agentbox__V1__NetworkConfig *msg_network_message(struct msg_network *m);
struct msg_network *msg_network_free(struct msg_network *m);	/* NULL is fine; returns NULL */

#endif
