/* SPDX-License-Identifier: MIT */
/*
 * A fork or a snapshot, at most once (attempt.c is the protocol, copy.c what is special about a
 * copy, fork.c and snapshot.c what differs between the two, op_copy.c their callers). The cloud can tag neither, so what was there before is written down with
 * the intent, and a lost answer is resolved by what is there after it and was not before.
 */
#ifndef AB_DAEMON_SANDBOX_COPY_H
#define AB_DAEMON_SANDBOX_COPY_H

#include "daemon/sandbox/attempt.h"
#include "daemon/sandbox/turn.h"

#define COPY_MAGIC 0x436f7079u

struct copy {
	uint32_t magic;
	struct attempt att;
	const struct copy_kind *kind;
	char *name;			/* of the snapshot */
	uint32_t count, timeout_s;
	struct cloud_strs known;

	struct turn turn;
	bool changing;			/* the row's state is ours to set */
	bool looked;			/* the source was asked about */
	struct fetch_wait look;
	unsigned conflicts;

	/* what came of it */
	struct cloud_children *children;	/* fork; also after resolving */
	struct cloud_snapshot *snapshot;
};

struct copy_kind {
	enum row_copy_kind row;
	const char *method;		/* REQUEST_… */
	const char *what;		/* "fork" */
	/* NULL without memory. */
	struct cloud_call *(*ask_known)(struct copy *c, const struct cloud_ask *ask);
	/* Adds the ids of an answer to c->known. */
	int (*take_known)(struct copy *c, const struct cloud_result *r);
	struct cloud_call *(*post)(struct copy *c, const struct cloud_ask *ask);
	/* Takes what was made out of the answer. */
	void (*take)(struct copy *c, struct cloud_result *r);
	/* As in attempt_kind. */
	int (*record)(struct copy *c, struct store_tx *t);
	enum resolve_next (*resolve)(struct copy *c, struct cloud_result *r, uint64_t *ret_wait_ms);
};

extern const struct copy_kind copy_fork, copy_snapshot;

struct copy *copy_from(struct attempt *a);
bool attempt_is_copy(const struct attempt *a);

/* In the core's list from here on; fill it, then start it or give it up. */
must_check int copy_new(struct sandbox_core *core, const struct copy_kind *kind, struct account *a,
			uid_t uid, const char *source, struct copy **ret);
void copy_set_count(struct copy *c, uint32_t count);	/* of children */
void copy_start(struct copy *c);
/* --- snapshots.c: what is known of snapshots --- */

struct snap {
	struct list node;	/* in core->snapshots; newest first as far as that is known */
	struct account *account;
	char *id, *source;
	struct cloud_strs names;
	uid_t uid;
	bool ours;
	int64_t created_at_ms, as_of_ms;
	uint64_t made_boot_ms;	/* when its row was made here; 0 = not by this daemon */
	uint64_t gone_boot_ms;	/* != 0: it is no more; remembered for lists that were asked for before */
	bool seen;		/* by the listing that is being taken over */
	bool told_unkept;		/* that a name of it is not kept */
};

/*
 * Whose a snapshot is. A name belongs to the uid whose snapshot had it first: to the others it does not
 * exist, neither to be listed nor to be made from, and it cannot be taken over. What the account has and
 * no row of ours explains (ours == false) belongs to whoever has the account's key: everybody may make
 * sandboxes from it, admins alone may delete it or give its name to something else.
 */
bool snap_may_see(const struct principal *who, const struct snap *s);
bool snap_may_change(const struct principal *who, const struct snap *s);
/* Do both references ("alias", "team/alias", with or without ":tag", in any case) name one template? */
bool snap_same_template(const char *a, const char *b);
/* The known one whose template this names; NULL. */
struct snap *snap_named(struct sandbox_core *core, const struct account *a, const char *ref);
/* A snapshot of this name may not be made by this caller: NAME_EXISTS, without whose it is. */
bool snap_name_is_taken(struct sandbox_core *core, const struct account *a, const struct principal *who,
			const char *name, struct status *st);
struct snap *snap_find(struct sandbox_core *core, const struct account *a, const char *id);
/* A list that was asked for then may still name it: it was deleted meanwhile. */
bool snap_is_gone_since(struct sandbox_core *core, const struct account *a, const char *id,
			uint64_t asked_boot_ms);
/* From the cloud's words; a row is written with `t`. source, uid: of one that was made here, else NULL. */
must_check int snap_put(struct account *a, const struct cloud_snapshot *s, const char *source,
			const uid_t *uid, struct store_tx *t, struct snap **ret);
void snap_forget(struct snap *s, struct store_tx *t);
/* Those that have been gone for long, or are too many. Not from inside a walk over all. */
void snap_forget_old(struct sandbox_core *core);
void snap_view(const struct snap *s, enum sandbox_source source, struct sandbox_snapshot *ret);

#endif
