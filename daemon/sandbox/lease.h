/* SPDX-License-Identifier: MIT */
/*
 * Leases: who uses a sandbox. A lease that has not ended is in its sandbox's list; when the last one leaves, the
 * sandbox is released, and its policy says what follows (runner.c). Ended leases are remembered for
 * restart_grace, so that their holders can take them again.
 */
#ifndef AB_DAEMON_SANDBOX_LEASE_H
#define AB_DAEMON_SANDBOX_LEASE_H

#include <stdbool.h>

#include "daemon/common/ev/loop.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/store/row.h"
#include "proto/base/list.h"
#include "proto/base/tree.h"

struct sandbox;
struct holder;
struct sandbox_held;
struct store_tx;

#define LEASE_MAGIC	0x4c656173u
#define LEASE_ID_LEN	21u
#define LEASE_LABEL_MAX 128u
#define LEASES_PER_UID	20000u	/* above it: QUOTA_UID */

enum lease_state {
	LEASE_HELD,
	LEASE_WAITING,	/* loaded, or kept over a stop: holds its sandbox until its holder is back or restart_grace is over */
	LEASE_ENDED,	/* holds nothing; remembered */
};

struct lease {
	uint32_t magic;
	enum lease_state state;
	struct list node;		/* in core->leases, by number */
	struct tree_node numbered;	/* in core->lease_tree */
	struct list sandbox_node;	/* in sandbox.leases, by number */
	struct list holder_node;	/* in holder.leases */
	struct sandbox_core *core;
	struct sandbox *sandbox;	/* NULL when it has ended */
	struct holder *holder;		/* a reference, of a process lease; else NULL */
	bool written;			/* it is in the store, so that a call may answer that it is held */
	char id[LEASE_ID_LEN + 1];
	char *sandbox_id, *label;
	uint64_t number;
	uid_t uid;
	pid_t pid;
	enum row_lease_kind kind;
	int64_t made_at_ms;		/* wall */
	int64_t expires_wall_ms;	/* with a ttl; for people and for the row; else 0 */
	struct timer timer;		/* by state: its ttl, restart_grace, or until it is forgotten */
	struct sandbox_held *held;	/* its stream; NULL = none */
	struct grave grave;
};

struct sandbox_held {
	struct lease *lease;		/* NULL: it is over */
	sandbox_held_fn *fn;
	void *user;
};

struct lease_make {
	uid_t uid;
	pid_t pid;
	const char *label;
	enum row_lease_kind kind;
	uint64_t ttl_ms;		/* with ROW_LEASE_TTL */
	struct holder *holder;		/* with ROW_LEASE_PROCESS: the lease takes a reference */
};

/* Makes a lease in memory; lease_put() writes it. `again`: the lease of this uid that is taken again, or NULL. */
must_check int lease_take(struct sandbox_core *core, struct sandbox *b, const struct lease_make *m,
			  struct lease *again, struct lease **ret);
void lease_put(struct store_tx *t, const struct lease *x);
/* Writes all rows again, and deletes those of leases that have ended. */
must_check int lease_resave(struct sandbox_core *core);
must_check int lease_renew(struct lease *x, uint64_t ttl_ms);
/* Ends it, and commits that without waiting; nothing if it has ended already. `why`: a constant text. */
void lease_end(struct lease *x, const char *why);
/* Nobody waits for the answer of its creation any more: it waits to be claimed, without the lease that the caller would have had
 * (NULL: there was none). One transaction, so that no process is left with a lease of which it does not know. */
void lease_unclaim(struct sandbox *b, struct lease *x);
/* The sandbox is gone: ends its leases, in `t` (NULL: in memory alone), and tells their streams. */
void lease_sandbox_gone(struct sandbox_core *core, struct sandbox *b, struct store_tx *t);
struct lease *lease_find(struct sandbox_core *core, const char *id);
/* The first lease whose number is above this; NULL = there is none. */
struct lease *lease_above(const struct sandbox_core *core, uint64_t number);
struct lease *lease_next(const struct lease *x);	/* by number; NULL = the end */
unsigned lease_count(const struct sandbox_core *core, uid_t uid);	/* remembered ones included */
struct lease *lease_of_process(struct sandbox *b, const struct holder *h);
void lease_view(const struct lease *x, struct sandbox_lease *ret);
/* The daemon stops: tells streams so; their leases wait for the next start. */
void lease_drain(struct sandbox_core *core);
/* Tells the streams of its leases that the sandbox's end has moved. */
void lease_changed(struct sandbox *b);

/* At the start: takes a row. */
must_check int lease_load(struct sandbox_core *core, const struct row_lease *r);
/* After all rows, when the store takes writes: ends the leases of processes that died meanwhile. */
void lease_loaded(struct sandbox_core *core);
void lease_free_all(struct sandbox_core *core);

#endif
