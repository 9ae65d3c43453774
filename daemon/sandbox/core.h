/* SPDX-License-Identifier: MIT */
/*
 * The inside of daemon/sandbox: its tables, and what its files offer each other. Nobody outside includes this.
 *
 * Tables. sandboxes by (account, id); names by (uid, name); requests by (uid, method, request id);
 * attempts, fetches and callers' operations under way. Everything in them is what the store has,
 * or is on its way there; what an answer says was committed before it.
 */
#ifndef AB_DAEMON_SANDBOX_CORE_H
#define AB_DAEMON_SANDBOX_CORE_H

#include <stdbool.h>

#include "daemon/auth/process.h"
#include "daemon/cloud/cloud.h"
#include "proto/cloud/model.h"
#include "daemon/common/ev/loop.h"
#include "daemon/sandbox/event.h"
#include "daemon/sandbox/extend.h"
#include "daemon/sandbox/proof.h"
#include "daemon/sandbox/record.h"
#include "daemon/sandbox/rules/evaluate.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/sandbox/totals.h"
#include "daemon/store/store.h"
#include "proto/base/list.h"
#include "proto/base/map.h"
#include "proto/base/rng.h"
#include "proto/base/status.h"

struct attempt;
struct creation;
struct listing;
struct sync;

struct account {
	struct sandbox_core *core;
	unsigned index;
	char *name, *default_user;
	struct cloud *cloud;
	bool plain_ports;
	uint32_t max_sandboxes;
	uint32_t n_alive;		/* sandboxes that are not gone: index.h */
	struct tree by_start;		/* index_node.of_account */
	uint32_t n_warm_ending;		/* of these: nobody had claimed them, and they are being ended */
	uint64_t cap_ms;		/* the longest life that the cloud was seen to give; 0 = not known */
	struct listing *listing;	/* sync.c */
	int64_t listed_at_ms;		/* wall: when the last complete list came; 0 = never */
	int64_t cloud_minus_boot_ms;	/* the cloud's clock, see runner.h */
	struct extensions extensions;
	struct proof proof;
};

/* Who holds a name, or held it last (id ""): its generation goes on. */
struct name_slot {
	struct list node;
	uid_t uid;
	char *name, *id;
	struct account *account;
	uint32_t generation;
	struct creation *creation;	/* one at a time */
};

struct request {
	struct list node;
	uid_t uid;
	const char *method;		/* static: REQUEST_… */
	char *id, *object;
	char *req_tag;			/* index_request_set_tag() changes it */
	struct list same_tag;		/* index.c */
	uint8_t params_hash[ROW_HASH_BYTES];
	struct account *account;
	enum row_request_state step;
	int64_t used_at_ms;
	uint64_t use_saved_boot_ms;	/* when a use was last written; 0 = not by this daemon */
	struct attempt *attempt;	/* under way */
	struct status *refusal;		/* the cloud's, answered until … */
	uint64_t refused_until_ms;
	uint64_t known_since_ms;	/* BOOTTIME: in memory */
};

#define CREATES_WINDOW_MS 60000u

struct uid_limit {
	uid_t uid;
	struct account *account;
	uint32_t max_sandboxes, creates_per_minute;
	bool is_any;			/* no section names it */
	uint32_t n_alive;		/* as of an account */
	uint64_t window_at_ms;		/* of the count below */
	uint32_t window_creates;
};

#define CORE_MAGIC 0x4c696665u

struct sandbox_core {
	uint32_t magic;
	struct loop *loop;
	struct store *store;
	struct account *accounts;
	size_t n_accounts;
	struct uid_limit *uids;
	size_t n_uids;
	struct uid_limit any;		/* of a uid that is not among them; counts nothing */
	struct sandbox_prober prober;
	void (*sha256)(const void *p, size_t n, uint8_t ret[32]);
	struct policy policy;
	struct sandbox_core_policy *policies;
	size_t n_policies;
	uint64_t history_ms, reconcile_period_ms, max_staleness_ms, resolve_horizon_ms;
	uint64_t unclaimed_grace_ms, restart_grace_ms;
	int64_t quiet_until_ms;		/* after the start: see evaluate.h */
	struct budget budget;

	struct map lease_map, holder_map;
	struct list leases;		/* by number */
	struct tree lease_tree;		/* the same */
	struct map lease_counts;	/* uid -> how many of them */
	uint64_t lease_number;
	enum sandbox_identity identity;
	char boot_id[PROCESS_BOOT_MAX];
	struct events events;
	struct fence *fence;		/* event.c */

	struct map tag_map, seq_map, named_map, owner_map, request_tag_map;	/* index.h */
	struct map sandbox_map, name_map, request_map, fetch_map;
	struct list sandboxes, names, requests, attempts, fetches, killings, ops, commits;
	struct list transitions, snapshots;
	uint32_t requests_let_go;	/* forget.c: since rows were last pruned */
	uint64_t requests_pruned_ms;	/* BOOTTIME; 0 = not by this daemon */
	struct list untold;		/* sandboxes whose end waits to be told: tie.h */
	struct list refused;		/* refused.c */
	struct list warm, claims, records;	/* warm.h: entries, claims under way, claims on record */
	struct map record_map;
	size_t n_record_lines;		/* that the file has at most */
	bool has_lost_records;		/* one is in the file and not here */
	bool warm_stopped;
	enum sandbox_warm_mode warm_mode;
	struct sandbox_preparer preparer;
	bool hold_all;			/* … of one it is not known which sandbox it is about */
	struct rng rng;
	struct sync *sync;
	struct sandbox_totals totals;
	bool draining;
	bool resave;			/* a commit failed: the rows are put again */
	enum store_doubt doubt;		/* doubt.c */
	bool doubt_told;
	int64_t doubt_at_ms;
	const char *doubt_text;		/* static; NULL = all is well */
	struct grave grave;
};

/* --- core.c --- */

const char *account_name(const struct account *a);
struct account *core_account_by_name(struct sandbox_core *core, const char *name);
struct account *core_account_of(struct sandbox_core *core, uid_t uid);
struct uid_limit *core_uid_limit(struct sandbox_core *core, uid_t uid);	/* NULL = none */
/* The same; one that has the limits of any uid is made for it. -ENOMEM. */
must_check int core_uid_limit_of(struct sandbox_core *core, uid_t uid, struct uid_limit **ret);

struct sandbox *core_find(struct sandbox_core *core, const struct account *a, const char *id);
/* Takes it over. */
must_check int core_insert(struct sandbox_core *core, struct sandbox *b);
void core_forget(struct sandbox_core *core, struct sandbox *b);	/* from memory and the store */
struct name_slot *core_find_name(struct sandbox_core *core, uid_t uid, const char *name);
must_check int core_need_name(struct sandbox_core *core, uid_t uid, const char *name,
			      struct name_slot **ret);
void core_forget_name(struct sandbox_core *core, struct name_slot *n);
#define REQUEST_CREATE	 "Create"
#define REQUEST_FORK	 "Fork"
#define REQUEST_SNAPSHOT "Snapshot"
/* method: one of these very strings. */
struct request *core_find_request(struct sandbox_core *core, uid_t uid, const char *method,
				  const char *id);
must_check int core_need_request(struct sandbox_core *core, uid_t uid, const char *method,
				 const char *id, struct request **ret);
void core_forget_request(struct sandbox_core *core, struct request *r);
void core_let_go_request(struct sandbox_core *core, struct request *r);	/* from memory alone: its row stays */
/* A repeat: the time for which it is remembered begins again, also after a restart. */
void sandbox_request_used(struct sandbox_core *core, struct request *r);

void sandbox_put(struct store_tx *t, const struct sandbox *b);
void core_put_name(struct store_tx *t, const struct name_slot *n);
void core_put_request(struct store_tx *t, const struct request *r);
/* Commits the sandbox as it is now; a failure is repaired later (resave). */
void sandbox_save(struct sandbox_core *core, struct sandbox *b, bool durable);
/* Why nothing may be sent now: the store takes no number or no intent. */
void core_store_refusal(const struct sandbox_core *core, struct status *ret);
/* A commit without a waiter. */
void core_commit(struct sandbox_core *core, struct store_tx *t, bool durable);

/* The cloud said this about a sandbox: learn, follow its state, store. */
void sandbox_seen(struct sandbox_core *core, struct sandbox *b, const struct cloud_sandbox *s);
/* … when it was asked at that moment: a state from before a change of ours is not believed. */
void sandbox_seen_since(struct sandbox_core *core, struct sandbox *b, const struct cloud_sandbox *s,
			uint64_t asked_at_ms);
/* It changes by us: state, store, event. `by`: the rule, or "" for its user. */
void sandbox_changed(struct sandbox_core *core, struct sandbox *b, enum sandbox_state to,
		     const char *by);
/* Somebody's call needs it: it is not idle. */
void sandbox_used(struct sandbox_core *core, struct sandbox *b);
/* The defaults for what this uid makes from this template. */
void core_policy_default(const struct sandbox_core *core, uid_t uid, const char *template_id,
			 struct policy *ret);
/* The cloud no longer has it. */
void sandbox_gone(struct sandbox_core *core, struct sandbox *b, bool by_us, const char *evidence);
void sandbox_claim(struct sandbox_core *core, struct sandbox *b, uid_t uid);
void sandbox_free_name(struct sandbox_core *core, struct sandbox *b, struct store_tx *t);
void sandbox_give_name(struct sandbox_core *core, struct sandbox *b, struct name_slot *n);
/* A sandbox with our tag and no row. */
must_check int core_adopt(struct sandbox_core *core, struct account *a,
			  const struct cloud_sandbox *s, struct sandbox **ret);

/* --- load.c --- */

must_check int core_load(struct sandbox_core *core);	/* starts the store, too */
/* The row of a request id that is not in memory, into memory. */
must_check int core_load_request(struct sandbox_core *core, const struct row_request *r);

/* --- forget.c --- */

/* Of a uid so much of what has ended is remembered, however young it is. */
#define FORGET_SANDBOXES_PER_UID 1000u
/* Request ids of sandboxes that are no more. They are rows, and read when a call has such an id. */
#define FORGET_REQUESTS_PER_UID	 50000u
/* True: there is more to forget than is forgotten at once. */
bool forget_ended(struct sandbox_core *core, int64_t now_wall_ms);

/* --- refused.c --- */

must_check int refused_load(struct sandbox_core *core, const struct store_refused *row);
/* When every row is there. */
void refused_loaded(struct sandbox_core *core);
/* A sandbox without a row, before it gets one: its row may be one that was refused. */
void refused_adopted(struct sandbox_core *core, struct sandbox *b);
/* It is no more, and so are such rows about it. */
void refused_gone(struct sandbox_core *core, struct sandbox *b, struct store_tx *t);
void refused_forget_all(struct sandbox_core *core);	/* from memory */

/* --- doubt.c --- */

struct tags;
/* After the rows and their leases: what may not be acted upon. */
void doubt_load(struct sandbox_core *core);
/* Is this stranger with our tag ours to end? If not, that is said, and nothing from before is. */
bool doubt_adopts_as_ours(struct sandbox_core *core, const char *id, const struct tags *t);
/* The cloud has to be asked first: the rows may have forgotten a name or a request id. */
bool doubt_waits(const struct sandbox_core *core, const struct account *a);
/* A complete list was taken over. */
void doubt_listed(struct sandbox_core *core);
/* The oldest one that carries this tag, also one that is gone since: no second is made. NULL = none. */
struct sandbox *doubt_sandbox_of_tag(struct sandbox_core *core, const struct account *a, uid_t uid,
				     const char *req_tag);

/* --- ref.c --- */

enum ref_kind {
	REF_SANDBOX,	/* a row the caller may see */
	REF_ID,		/* no row: an id to be looked up in *ret_account */
	REF_NONE,	/* *ret_st says why */
};
enum ref_kind ref_find(struct sandbox_core *core, const struct principal *who, const char *ref,
		       struct sandbox **ret_sandbox, struct account **ret_account,
		       struct status *ret_st);
void ref_not_found(struct status *st, const char *ref);

/* --- fetch.c: one GET by id at a time for each sandbox, shared --- */

enum fetch_end {
	FETCH_ALIVE,	/* s is what the cloud said; sandbox is up to date */
	FETCH_ABSENT,	/* the cloud has no such sandbox; a sandbox is GONE now */
	FETCH_FAILED,	/* st says why nothing is known */
};
struct fetch_result {
	enum fetch_end end;
	const struct status *st;
	struct sandbox *sandbox;			/* NULL: there is no row */
	const struct cloud_sandbox *s;
};
struct fetch_wait {
	struct list node;	/* initialised and on no list: not waiting */
	void (*fn)(struct fetch_wait *w, const struct fetch_result *result);
};
/* fn comes exactly once, never from inside, unless fetch_leave(). */
must_check int fetch_join(struct sandbox_core *core, struct account *a, const char *id,
			  bool background, struct fetch_wait *w);
void fetch_leave(struct fetch_wait *w);
void fetch_cancel_all(struct sandbox_core *core);

/* --- kill.c --- */

void kill_take_up(struct sandbox_core *core, struct sandbox *b);	/* after a restart */
/* By a rule of its policy; nobody waits. */
must_check int kill_by_policy(struct sandbox_core *core, struct sandbox *b, const char *rule);
/* A rule's kill of what somebody has resumed elsewhere is given up; a user's goes on. */
void kill_let_go(struct sandbox_core *core, struct sandbox *b);
void kill_cancel_all(struct sandbox_core *core);

/* --- transition.c --- */

/* The op waits, with others that want the same, until it has happened: op->on_waited comes, with yes = it
 * happened because of this. It goes on without the op. */
must_check int transition_join_pause(struct sandbox_core *core, struct sandbox *b, bool keep_memory,
				     struct sandbox_op *op);
/* *ret_s: the life it asks for, which is less than timeout_s if it is on its way already. */
must_check int transition_join_resume(struct sandbox_core *core, struct sandbox *b,
				      uint32_t timeout_s, struct sandbox_op *op, uint32_t *ret_s);
void transition_cancel_all(struct sandbox_core *core);

/* --- copy.c, snapshots.c --- */

must_check int copy_take_up(struct sandbox_core *core, const struct row_copy *r);
must_check int snapshot_load(struct sandbox_core *core, const struct row_snapshot *r);
void snapshot_forget_all(struct sandbox_core *core);	/* from memory */

/* --- op_create.c --- */

/* May this caller have n more sandboxes now? */
bool core_refused_by_limits(struct sandbox_core *core, struct account *a, uid_t uid, uint32_t n,
			    struct status *st);
/* … of those that are there already: by the limits of its uid alone. */
bool core_refused_by_uid(struct sandbox_core *core, uid_t uid, uint32_t n, struct status *st);

/* --- create.c --- */

/* After a restart: resolve an intent that was open. */
must_check int creation_take_up(struct sandbox_core *core, const struct row_intent *r);

/* --- attempt.c --- */

/* Does an attempt under way make this listed sandbox, or may it? Then nobody else adopts it; who looks
 * for it by its tag looks now. */
bool sandbox_attempt_makes(struct sandbox_core *core, const struct account *a,
			   const struct cloud_sandbox *s);
/* Sandboxes that attempts may still make: of an account, or with a NULL of a uid. */
uint32_t core_attempts_count(const struct sandbox_core *core, const struct account *a,
			     const uid_t *uid);
void core_attempts_cancel(struct sandbox_core *core);

/* --- sync.c --- */

must_check int sync_start(struct sandbox_core *core);
void sync_stop(struct sandbox_core *core);
/* The last list of this account was complete and nothing in it was odd. */
bool sync_is_trusted(const struct sandbox_core *core, const struct account *a);
struct listing_wait {
	struct list node;
	/* list NULL: st says why it is not known. */
	void (*fn)(struct listing_wait *w, const struct status *st, const struct cloud_list *list,
		   int64_t as_of_ms);
};
/* A complete listing of the account not older than a second; shared. fn may come from inside. */
void listing_join(struct account *a, struct listing_wait *w);
void listing_leave(struct listing_wait *w);

#endif
