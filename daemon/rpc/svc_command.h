/* SPDX-License-Identifier: MIT */
/* agentbox.v1.CommandService over daemon/command. */
#ifndef AB_DAEMON_RPC_SVC_COMMAND_H
#define AB_DAEMON_RPC_SVC_COMMAND_H

#include "daemon/command/command.h"
#include "proto/base/cc.h"

struct rpc_server;
must_check int svc_command_add(struct rpc_server *s, struct commands *commands);

#endif
