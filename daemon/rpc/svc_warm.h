/* SPDX-License-Identifier: MIT */
/* agentbox.v1.WarmService. */
#ifndef AB_DAEMON_RPC_SVC_WARM_H
#define AB_DAEMON_RPC_SVC_WARM_H

#include "proto/base/cc.h"

struct rpc_server;
struct sandbox_core;

must_check int svc_warm_add(struct rpc_server *s, struct sandbox_core *core);

#endif
