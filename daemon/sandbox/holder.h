/* SPDX-License-Identifier: MIT */
/*
 * A process that holds leases. Its death is seen by its pidfd: a forked child that keeps the socket
 * open does not hide it, and a stopped process is alive. After a restart it is known again by its
 * identity (daemon/auth/process.h). Where there is none, only its connection tells, and nothing can be proved
 * after a restart.
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
	bool listed;		/* in core->holder_map, while it lives */
	struct sandbox_core *core;
	uid_t uid;
	pid_t pid;
	int pidfd;
	uint64_t conn;		/* identity by connection: which */
	struct watch death;
	enum sandbox_identity identity;
	uint64_t value;		/* inode or start time */
	bool dead;
	struct list leases;	/* lease.holder_node */
	struct grave grave;
};

/* The caller's process; one holder for each. A reference for the caller. -ESRCH: it died. */
must_check int holder_of(struct sandbox_core *core, const struct principal *who, struct holder **ret);

enum holder_proof {
	HOLDER_PROVED,	/* *ret is it, a reference for the caller */
	HOLDER_DEAD,	/* that process is no more */
	HOLDER_UNKNOWN,	/* nothing can be said */
};
enum holder_proof holder_of_row(struct sandbox_core *core, const struct row_lease *r,
				struct holder **ret);
void holder_unref(struct holder *h);
/* The connection ended: those known by it alone are dead. */
void holder_connection_ended(struct sandbox_core *core, uid_t uid, uint64_t conn);
/* The machine's current boot, "" if unknown. */
const char *holder_boot_id(struct sandbox_core *core);

/* What the kernel offers here. */
enum sandbox_identity holder_best_identity(void);

#endif
