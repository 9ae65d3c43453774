/* SPDX-License-Identifier: MIT */
/*
 * A fork or a snapshot, made at most once (attempt.c is the protocol, copy.c what both have in common, fork.c and
 * snapshot.c what differs, op_copy.c their callers). The cloud gives neither a tag of its own, so the intent has the
 * ids that existed before, and a lost answer is resolved by what exists afterwards and did not before.
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
	char *name;			/* of the snapshot; "" = none */
	uint32_t count, timeout_s;	/* of a fork's children */
	struct cloud_strs known;	/* ids that existed before the intent */

	struct turn turn;
	bool changing;			/* it has set sandbox.changing of the source */
	bool looked;			/* the cloud was asked about a source that did not seem to run */
	struct fetch_wait look;
	unsigned conflicts;

	/* What was made; one of the two. */
	struct cloud_children *children;
	struct cloud_snapshot *snapshot;
};

struct copy_kind {
	enum row_copy_kind row;
	const char *method;		/* REQUEST_… */
	const char *what;		/* "fork" */
	/* Lists what exists; NULL without memory. */
	struct cloud_call *(*ask_known)(struct copy *c, const struct cloud_ask *ask);
	/* Adds the ids of an answer to c->known. */
	int (*take_known)(struct copy *c, const struct cloud_result *r);
	struct cloud_call *(*post)(struct copy *c, const struct cloud_ask *ask);
	/* Takes what was made out of the answer. */
	void (*take)(struct copy *c, struct cloud_result *r);
	/* As in attempt_kind. */
	bool (*names_another)(const struct copy *c, const struct cloud_result *r);
	int (*record)(struct copy *c, struct store_tx *t);
	enum resolve_next (*resolve)(struct copy *c, struct cloud_result *r, uint64_t *ret_wait_ms);
};

extern const struct copy_kind copy_fork, copy_snapshot;

struct copy *copy_from(struct attempt *a);
bool attempt_is_copy(const struct attempt *a);

/* The core owns it from here on; fill it, then start it or call attempt_give_up(). */
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
	uint64_t made_boot_ms;	/* BOOTTIME: when it was made here; 0 = not in this run */
	uint64_t gone_boot_ms;	/* BOOTTIME of its end, remembered for lists that were asked for before; 0 = it exists */
	bool seen;		/* the listing that is being taken over has it */
	bool told_unkept;	/* it was logged that the row cannot hold one of its names */
};

/*
 * Whose a snapshot is. A name belongs to the uid whose snapshot had it first: other uids can neither list that
 * snapshot nor make sandboxes from it, and cannot take its name. A snapshot of the account that was not made here
 * (ours == false) belongs to whoever has the account's key: everybody may make sandboxes from it, and only
 * admins may delete it or give its name to another.
 */
bool snap_may_see(const struct principal *who, const struct snap *s);
bool snap_may_change(const struct principal *who, const struct snap *s);
/* Do both references ("alias", "team/alias", with or without ":tag", as the cloud reads them) name one template? */
bool snap_same_template(const char *a, const char *b);
/* The snapshot whose template `ref` names; NULL = none that is known. */
struct snap *snap_named(struct sandbox_core *core, const struct account *a, const char *ref);
/* True: this caller may not make a snapshot of this name. *st: NAME_EXISTS, which does not say whose it is. */
bool snap_name_is_taken(struct sandbox_core *core, const struct account *a, const struct principal *who,
			const char *name, struct status *st);
struct snap *snap_find(struct sandbox_core *core, const struct account *a, const char *id);
/* Does `ref` name its template, by its id or one of its names? */
bool snap_is_named(const struct snap *s, const char *ref);
/* Was it deleted after asked_boot_ms, so that a list asked for then may still have it? */
bool snap_is_gone_since(struct sandbox_core *core, const struct account *a, const char *id,
			uint64_t asked_boot_ms);
/* Takes over what the cloud said of a snapshot; a changed row goes into `t`. source, uid: of one that was made here, else NULL. */
must_check int snap_put(struct account *a, const struct cloud_snapshot *s, const char *source,
			const uid_t *uid, struct store_tx *t, struct snap **ret);
void snap_forget(struct snap *s, struct store_tx *t);
/* Frees those that were deleted long ago, or are too many. Not from inside a walk over core->snapshots. */
void snap_forget_old(struct sandbox_core *core);
void snap_view(const struct snap *s, enum sandbox_source source, struct sandbox_snapshot *ret);

#endif
