/* SPDX-License-Identifier: MIT */
/* agentbox.v1.SandboxService, SnapshotService and TemplateService: decode, ask daemon/sandbox, reply. */
#ifndef AB_DAEMON_RPC_SVC_SANDBOX_H
#define AB_DAEMON_RPC_SVC_SANDBOX_H

#include "proto/base/cc.h"

struct sandbox_core;
struct rpc_server;

/* All of both. */
must_check int svc_sandbox_add(struct rpc_server *s, struct sandbox_core *core);
/* Its parts: svc_change.c, svc_snapshot.c. */
must_check int svc_change_add(struct rpc_server *s, struct sandbox_core *core);
must_check int svc_snapshot_add(struct rpc_server *s, struct sandbox_core *core);
must_check int svc_template_add(struct rpc_server *s, struct sandbox_core *core);

#endif
