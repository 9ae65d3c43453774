/* SPDX-License-Identifier: MIT */
/* DaemonService.Backup: bytes of a copy that another module makes. */
#ifndef AB_DAEMON_RPC_SVC_BACKUP_H
#define AB_DAEMON_RPC_SVC_BACKUP_H

#include <stdint.h>

#include "proto/base/cc.h"
#include "proto/base/status.h"

struct rpc_server;

struct svc_backup_source {
	int fd;			/* a file that is read from its beginning */
	uint64_t bytes;
	uint32_t schema;
	const char *host_id;
};

typedef void svc_backup_done_fn(void *user, const struct status *st, const struct svc_backup_source *source);

struct svc_backup_options {	/* must live as long as the server */
	/* Makes the copy. `done` comes once, never from inside, and not after `end`; the source lives until that. NULL: *ret says why. */
	void *(*begin)(void *user, svc_backup_done_fn *done, void *done_user, struct status *ret);
	void (*end)(void *user, void *op);
	void *user;
};

must_check int svc_backup_add(struct rpc_server *s, struct svc_backup_options *o);

#endif
