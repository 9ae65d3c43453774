/* SPDX-License-Identifier: MIT */
/*
 * Leases: who uses a sandbox. A lease that counts is in its sandbox's list; when the last one leaves, the
 * sandbox is released, and what follows is its policy's matter (runner.c). Ended ones are remembered for
 * restart_grace, so that whoever held them can take them again.
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
#define LEASES_PER_UID	20000u	/* one more: QUOTA_UID */

enum lease_state {
	LEASE_HELD,
	LEASE_WAITING,	/* from before the restart; counts, until its holder is back or restart_grace */
	LEASE_ENDED,	/* does not count; remembered */
};

struct lease {
	uint32_t magic;
	enum lease_state state;
	struct list node;		/* in core->leases, by number */
	struct tree_node numbered;	/* in core->lease_tree */
	struct list sandbox_node, holder_node;
	struct sandbox_core *core;
	struct sandbox *sandbox;		/* NULL when it has ended */
	struct holder *holder;		/* of a process */
	bool written;			/* in the store; before that nobody is told that it is held */
	char id[LEASE_ID_LEN + 1];
	char *sandbox_id, *label;
	uint64_t number;
	uid_t uid;
	pid_t pid;
	enum row_lease_kind kind;
	int64_t made_at_ms;		/* wall */
	int64_t expires_wall_ms;	/* with a ttl; for people */
	struct timer timer;		/* its end: ttl, restart_grace, or of the memory of it */
	struct sandbox_held *held;		/* the stream */
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
	uint64_t ttl_ms;		/* TTL */
	struct holder *holder;		/* PROCESS: a reference is taken */
};

/* In all tables, counted, not yet stored. `again`: an earlier one of this uid taken again, or NULL. */
must_check int lease_take(struct sandbox_core *core, struct sandbox *b, const struct lease_make *m,
			  struct lease *again, struct lease **ret);
void lease_put(struct store_tx *t, const struct lease *x);
/* All rows again, and the ends of those that are remembered. */
must_check int lease_resave(struct sandbox_core *core);
must_check int lease_renew(struct lease *x, uint64_t ttl_ms);
/* It counts no more; written without waiting. Nothing if it has ended already. */
void lease_end(struct lease *x, const char *why);
/* The sandbox is gone: so are its leases; streams are told. */
void lease_sandbox_gone(struct sandbox_core *core, struct sandbox *b, struct store_tx *t);
struct lease *lease_find(struct sandbox_core *core, const char *id);
/* The first one of a number above this; NULL = there is none. */
struct lease *lease_above(const struct sandbox_core *core, uint64_t number);
struct lease *lease_next(const struct lease *x);	/* by number; NULL = the end */
unsigned lease_count(const struct sandbox_core *core, uid_t uid);	/* those that are remembered, too */
struct lease *lease_of_process(struct sandbox *b, const struct holder *h);
void lease_view(const struct lease *x, struct sandbox_lease *ret);
/* We stop: streams are told so, and their leases wait for them. */
void lease_drain(struct sandbox_core *core);
/* Its sandbox changed: the stream is told. */
void lease_changed(struct sandbox *b);

/* Start: a row; after all rows, when the store takes changes. */
must_check int lease_load(struct sandbox_core *core, const struct row_lease *r);
void lease_loaded(struct sandbox_core *core);
void lease_free_all(struct sandbox_core *core);

#endif
