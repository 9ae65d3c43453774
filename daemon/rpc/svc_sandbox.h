/* SPDX-License-Identifier: MIT */
/* agentbox.v1.SandboxService and SnapshotService: decode, ask life, reply. */
#ifndef AB_DAEMON_RPC_SVC_SANDBOX_H
#define AB_DAEMON_RPC_SVC_SANDBOX_H

#include "proto/base/cc.h"

struct life;
struct rpc_server;

struct svc_sandbox_options {	/* must live as long as the server */
	struct life *life;
	/* For the parameters behind a request id. Wired by app, as hashing is not of this layer. */
	void (*sha256)(const void *p, size_t n, uint8_t ret[32]);
};

/* All of both. */
must_check int svc_sandbox_add(struct rpc_server *s, struct svc_sandbox_options *o);
/* Its parts: svc_change.c, svc_snapshot.c. */
must_check int svc_change_add(struct rpc_server *s, struct svc_sandbox_options *o);
must_check int svc_snapshot_add(struct rpc_server *s, struct svc_sandbox_options *o);

#endif
