/* SPDX-License-Identifier: MIT */
/*
 * A process that holds leases. Its pidfd says when it dies: a forked child that keeps the socket
 * open does not hide that, and a stopped process is alive. After a restart it is recognised by its
 * identity (daemon/auth/process.h). Without a pidfd or an identity the end of its connection counts as its death,
 * and after a restart nothing can be proved.
 */
#ifndef AB_DAEMON_SANDBOX_HOLDER_H
#define AB_DAEMON_SANDBOX_HOLDER_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/common/ev/loop.h"
#include "daemon/sandbox/sandbox.h"
#include "proto/base/list.h"

struct sandbox_core;
struct principal;
struct row_lease;

#define HOLDER_MAGIC 0x486f6c64u

struct holder {
	uint32_t magic;
	unsigned refs;		/* leases, and calls under way */
	bool listed;		/* it is in core->holder_map */
	struct sandbox_core *core;
	uid_t uid;
	pid_t pid;
	int pidfd;		/* owned; -1 = none */
	uint64_t conn;		/* number of its connection, for SANDBOX_IDENTITY_CONNECTION */
	struct watch death;
	enum sandbox_identity identity;
	uint64_t value;		/* inode or start time */
	bool dead;
	struct list leases;	/* lease.holder_node */
	struct grave grave;
};

/* The holder of the caller's process, made if there is none; a reference for the caller. -ESRCH: the process died. */
must_check int holder_of(struct sandbox_core *core, const struct principal *who, struct holder **ret);

enum holder_proof {
	HOLDER_PROVED,	/* it lives: *ret, a reference for the caller */
	HOLDER_DEAD,
	HOLDER_UNKNOWN,	/* nothing proves either */
};
/* Does the process of a row from before the start still live? */
enum holder_proof holder_of_row(struct sandbox_core *core, const struct row_lease *r,
				struct holder **ret);
void holder_unref(struct holder *h);
/* The connection ended: a holder with SANDBOX_IDENTITY_CONNECTION is dead. */
void holder_connection_ended(struct sandbox_core *core, uid_t uid, uint64_t conn);
/* The id of the machine's current boot; "" = unknown. */
const char *holder_boot_id(struct sandbox_core *core);

/* The best identity that this kernel has. */
enum sandbox_identity holder_best_identity(void);

#endif
