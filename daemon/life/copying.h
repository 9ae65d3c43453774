/* SPDX-License-Identifier: MIT */
/*
 * A fork or a snapshot, at most once (copying.c is the protocol, fork.c and snapshot.c are what
 * differs, op_copy.c its callers). The cloud can tag neither, so what was there before is written down with
 * the intent, and a lost answer is settled by what is there after it and was not before.
 */
#ifndef AB_DAEMON_LIFE_COPYING_H
#define AB_DAEMON_LIFE_COPYING_H

#include "daemon/life/core.h"
#include "daemon/life/settle.h"
#include "daemon/life/turn.h"

struct life_op;

#define COPYING_MAGIC 0x436f7079u

enum copying_step {
	COPYING_WAIT,	/* for its turn */
	COPYING_KNOWN,	/* asks what is there */
	COPYING_INTENT,
	COPYING_POST,
	COPYING_PAUSE,	/* between two posts, or two attempts to record */
	COPYING_RECORD,
	COPYING_DETAIL,
	COPYING_SETTLE,
};

struct copying {
	uint32_t magic;
	struct list node;	/* in life->copyings */
	struct life *life;
	struct account *account;
	const struct copying_kind *kind;
	enum copying_step step;
	uint64_t seq;		/* 0 = no intent yet */
	uid_t uid;
	struct request *request;	/* NULL = without a request id */
	char *source;			/* id of the sandbox */
	char *req_tag;			/* that it and its children carry with our host's; "" = none of ours */
	char *name;			/* of the snapshot */
	uint32_t count, timeout_s;
	struct policy policy;
	struct cloud_strs known;
	int64_t made_at_ms;		/* by the cloud's clock */

	struct turn turn;
	bool changing;			/* the row's state is ours to set */
	bool looked;			/* the source was asked about */
	struct list waiters;		/* life_op.wait */
	struct cloud_call *call;
	struct timer timer;
	struct fetch_wait look;
	unsigned posts, conflicts, lists;
	uint64_t settle_until_ms;
	struct status lost;		/* why the answer is not known */

	/* what came of it */
	struct cloud_children *children;	/* fork; also after settling */
	struct cloud_snapshot *snapshot;
	char *object;			/* as in row_request */
	struct grave grave;
};

struct copying_kind {
	enum row_copy_kind row;
	const char *method;		/* REQUEST_… */
	const char *what;		/* "fork" */
	/* NULL without memory. `known` may be NULL: nothing can be known, so nothing will be settled. */
	struct cloud_call *(*ask_known)(struct copying *c, const struct cloud_ask *ask);
	/* Adds the ids of an answer to c->known. */
	int (*take_known)(struct copying *c, const struct cloud_result *r);
	struct cloud_call *(*post)(struct copying *c, const struct cloud_ask *ask);
	/* Takes what was made out of the answer. */
	void (*take)(struct copying *c, struct cloud_result *r);
	/* Rows of what was made, and c->object. Doing it twice is harmless. */
	int (*record)(struct copying *c, struct store_tx *t);
	enum settle_next (*settle)(struct copying *c, struct cloud_result *r, uint64_t *ret_wait_ms);
};

extern const struct copying_kind copying_fork, copying_snapshot;

/* In the life's list from here on; fill it, then start it. */
must_check int copying_new(struct life *l, const struct copying_kind *kind, struct account *a, uid_t uid,
			   const char *source, struct copying **ret);
void copying_start(struct copying *c);
void copying_drop(struct copying *c);
/* The op waits for its end: op->told comes, and op->copying is readable inside of it. */
void copying_join(struct copying *c, struct life_op *op);
void copying_leave(struct copying *c, struct life_op *op);
bool copying_maybe_sent(const struct copying *c);
/* Children that forks under way may still make: of an account, or with a NULL of a uid. */
uint32_t copying_count(const struct life *l, const struct account *a, const uid_t *uid);
void copying_unknown(const struct copying *c, bool has_request_id, struct status *ret);

/* --- snapshots.c: what is known of snapshots --- */

struct snap {
	struct list node;	/* in life->snapshots; newest first as far as that is known */
	struct account *account;
	char *id, *source;
	struct cloud_strs names;
	uid_t uid;
	bool ours;
	int64_t created_at_ms, as_of_ms;
	uint64_t made_boot_ms;	/* when its row was made here; 0 = not by this daemon */
	uint64_t gone_boot_ms;	/* != 0: it is no more; remembered for lists that were asked for before */
	bool seen;		/* by the listing that is being taken over */
};

struct snap *snap_find(struct life *l, const struct account *a, const char *id);
/* A list that was asked for then may still name it: it was deleted meanwhile. */
bool snap_is_gone_since(struct life *l, const struct account *a, const char *id, uint64_t asked_boot_ms);
/* From the cloud's words; a row is written with `t`. source, uid: of one that was made here, else NULL. */
must_check int snap_put(struct life *l, struct account *a, const struct cloud_snapshot *s,
			const char *source, const uid_t *uid, struct store_tx *t, struct snap **ret);
void snap_forget(struct life *l, struct snap *s, struct store_tx *t);
void snap_view(const struct snap *s, enum life_source source, struct life_snapshot *ret);

#endif
