/* SPDX-License-Identifier: MIT */
/* agentbox.v1.FileService over the agents of the sandboxes (cloud/envd.h). */
#ifndef AB_DAEMON_RPC_SVC_FILE_H
#define AB_DAEMON_RPC_SVC_FILE_H

#include "daemon/sandbox/sandbox.h"
#include "proto/base/cc.h"

struct rpc_server;
must_check int svc_file_add(struct rpc_server *s, struct sandbox_core *core);

#endif
