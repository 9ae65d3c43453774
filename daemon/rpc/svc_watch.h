/* SPDX-License-Identifier: MIT */
/* SandboxService.Watch. */
#ifndef AB_DAEMON_RPC_SVC_WATCH_H
#define AB_DAEMON_RPC_SVC_WATCH_H

#include "proto/base/cc.h"

struct sandbox_core;
struct rpc_server;

must_check int svc_watch_add(struct rpc_server *s, struct sandbox_core *core);

#endif
