/* SPDX-License-Identifier: MIT */
/* agentbox.v1.LeaseService. */
#ifndef AB_DAEMON_RPC_SVC_LEASE_H
#define AB_DAEMON_RPC_SVC_LEASE_H

#include "proto/base/cc.h"

struct sandbox_core;
struct rpc_server;

must_check int svc_lease_add(struct rpc_server *s, struct sandbox_core *core);

#endif
