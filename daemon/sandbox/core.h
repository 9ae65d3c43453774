/* SPDX-License-Identifier: MIT */
/*
 * The inside of daemon/sandbox: its tables, and what its files offer each other. Other modules include sandbox.h alone.
 *
 * The tables: sandboxes by (account, id); names by (uid, name); requests by (uid, method, request id);
 * attempts, fetches and callers' operations under way. Invariant: what a table says is in the store or in a
 * transaction on its way there, and what an answer says was committed before the answer.
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
#include "proto/base/seen.h"
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
	bool retired;			/* it was taken out of the configuration: nothing new is made in it */
	uint32_t max_sandboxes;
	uint32_t n_alive;		/* sandboxes that are not gone: index.h */
	struct tree by_start;		/* index_node.of_account */
	uint32_t n_warm_ending;		/* of n_alive: warm ones without a claim that are being ended */
	uint64_t cap_ms;		/* the longest life that the cloud was seen to give; 0 = not known */
	struct listing *listing;	/* sync.c */
	int64_t listed_at_ms;		/* wall: when the last complete list came; 0 = never */
	int64_t cloud_minus_boot_ms;	/* the cloud's wall clock minus our BOOTTIME: runner.h */
	struct extensions extensions;
	struct proof proof;
};

/* A uid's name. It stays while no sandbox has it, so that its generation goes on. */
struct name_slot {
	struct list node;
	uid_t uid;
	char *name, *id;		/* id of the sandbox that has the name; "" = none */
	struct account *account;
	uint32_t generation;		/* of the last sandbox that had the name */
	struct creation *creation;	/* under way for this name; NULL = none */
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
	int64_t used_at_ms;		/* wall */
	uint64_t use_saved_boot_ms;	/* when a use was last written; 0 = not in this run */
	struct attempt *attempt;	/* under way; NULL = none */
	struct status *refusal;		/* owned: the cloud's refusal, which answers repeats until refused_until_ms; NULL = none */
	uint64_t refused_until_ms;	/* BOOTTIME */
	uint64_t known_since_ms;	/* BOOTTIME: since when it is in memory */
	bool unwritten;			/* it got a sandbox that was there already, and no write of that has succeeded yet */
	uint32_t writes;		/* such writes under way, and those whose callers have left */
};

#define CREATES_WINDOW_MS 60000u

struct uid_limit {
	uid_t uid;
	struct account *account;
	uint32_t max_sandboxes, creates_per_minute;
	bool is_any;			/* it has the limits of sandbox_core_rules.any */
	uint32_t n_alive;		/* sandboxes that are not gone: index.h */
	uint64_t window_at_ms;		/* BOOTTIME: when the CREATES_WINDOW_MS of window_creates began */
	uint32_t window_creates;
};

#define QUIESCED_RETRY_MS 30000u	/* hint for those who are refused */

#define CORE_MAGIC 0x4c696665u

struct sandbox_core {
	uint32_t magic;
	struct loop *loop;
	struct store *store;
	struct account *accounts;	/* with room for SANDBOX_ACCOUNTS_MAX */
	size_t n_accounts;
	struct map strangers;		/* names of other accounts that the store has rows of: name → the same, heap */
	struct map stranger_ids;	/* ids of the sandboxes of such rows, in the same way */
	struct uid_limit *uids;
	size_t n_uids;
	struct uid_limit any;		/* the limits of every other uid; its counters are not used */
	struct sandbox_prober prober;
	void (*sha256)(const void *p, size_t n, uint8_t ret[32]);
	struct policy policy;
	struct sandbox_core_policy *policies;
	size_t n_policies;
	uint64_t history_ms, reconcile_period_ms, max_staleness_ms, resolve_horizon_ms;
	uint64_t unclaimed_grace_ms, restart_grace_ms;
	int64_t quiet_until_ms;		/* BOOTTIME: evaluate.h */
	struct budget budget;

	struct map lease_map, holder_map;
	struct list leases;		/* by number */
	struct tree lease_tree;		/* the same leases by number */
	struct map lease_counts;	/* uid → number of its leases */
	uint64_t lease_number;
	enum sandbox_identity identity;
	char boot_id[PROCESS_BOOT_MAX];
	struct events events;
	struct fence *fence;		/* event.c */

	struct map tag_map, seq_map, named_map, owner_map, request_tag_map;	/* index.h */
	bool index_loads;		/* between index_begin_load() and index_end_load() */
	struct map sandbox_map, name_map, request_map, fetch_map;
	struct list sandboxes, names, requests, attempts, fetches, killings, ops, commits;
	struct list transitions, snapshots;
	struct seen stored_requests;	/* may have a row although they are not in request_map */
	uint32_t requests_let_go;	/* forget.c: number since rows were last pruned */
	uint64_t requests_pruned_ms;	/* BOOTTIME; 0 = not in this run */
	struct list untold;		/* sandboxes whose ties are still to be told of their end: tie.h */
	struct list refused;		/* refused.c */
	struct list warm, claims, records;	/* warm.h: entries, claims under way, claims on record */
	struct list warm_past;		/* entries of rows and of earlier configurations: one may come back */
	struct map record_map;
	size_t n_record_lines;		/* lines of the file STATE/claims, at most */
	bool has_lost_records;		/* a claim is in that file and not in `records` */
	uint64_t records_since_ms;	/* BOOTTIME: when the file was read */
	bool warm_stopped;
	enum sandbox_warm_mode warm_mode;
	struct sandbox_preparer preparer;
	bool hold_all;			/* refused.c: a refused row may be about any sandbox */
	struct rng rng;
	struct sync *sync;
	struct sandbox_totals totals;
	bool settling, draining;	/* a stop is near; it has begun */
	char quiesced[SANDBOX_QUIESCED_BYTES];	/* why new sandboxes are refused; "" = they are not */
	bool resave;			/* a commit failed: the rows are put again */
	enum store_doubt doubt;		/* doubt.c */
	bool doubt_told;
	int64_t doubt_at_ms;
	const char *doubt_text;		/* static; NULL = rows never were in doubt in this run */
	struct grave grave;
};

/* --- account.c --- */

const char *account_name(const struct account *a);
struct account *core_account_by_name(struct sandbox_core *core, const char *name);
struct account *core_account_of(struct sandbox_core *core, uid_t uid);
struct uid_limit *core_uid_limit(struct sandbox_core *core, uid_t uid);	/* NULL = none */
/* The same; where only the limits of any uid apply, makes an entry that counts for this one. -ENOMEM. */
must_check int core_uid_limit_of(struct sandbox_core *core, uid_t uid, struct uid_limit **ret);
/* The policy defaults for what this uid makes from this template. */
void core_policy_default(const struct sandbox_core *core, uid_t uid, const char *template_id,
			 struct policy *ret);
/* At the start, with room for all that there may ever be: rows point to theirs. */
must_check int core_make_accounts(struct sandbox_core *core, const struct sandbox_core_options *o);
void core_free_accounts(struct sandbox_core *core);	/* with the rules */

/* --- core.c --- */

struct sandbox *core_find(struct sandbox_core *core, const struct account *a, const char *id);
/* Whether it has a row, in whichever account or in one that is not configured, or is being made: it is not adopted then. */
bool core_is_known(struct sandbox_core *core, const struct account *a, const struct cloud_sandbox *s);
/* In whichever account it is; in `first` if there are several. */
struct sandbox *core_find_any(struct sandbox_core *core, const struct account *first, const char *id);
void core_reserve(struct sandbox_core *core, size_t n);	/* room for so many sandboxes, most of them made by us */
/* Takes `b` over; not on failure: -EEXIST, -ENOMEM. */
must_check int core_insert(struct sandbox_core *core, struct sandbox *b);
void core_forget(struct sandbox_core *core, struct sandbox *b);	/* from memory and the store */
struct name_slot *core_find_name(struct sandbox_core *core, uid_t uid, const char *name);
must_check int core_need_name(struct sandbox_core *core, uid_t uid, const char *name,
			      struct name_slot **ret);
void core_forget_name(struct sandbox_core *core, struct name_slot *n);

#define REQUEST_CREATE	 "Create"
#define REQUEST_FORK	 "Fork"
#define REQUEST_SNAPSHOT "Snapshot"
/* method: one of these three pointers, since it is kept. */
struct request *core_find_request(struct sandbox_core *core, uid_t uid, const char *method,
				  const char *id);
must_check int core_need_request(struct sandbox_core *core, uid_t uid, const char *method,
				 const char *id, struct request **ret);
void core_forget_request(struct sandbox_core *core, struct request *r);
void core_let_go_request(struct sandbox_core *core, struct request *r);	/* from memory alone: its row stays */
/* The store has, or may have, a row of a request id that is not in memory. */
void core_note_stored_request(struct sandbox_core *core, uid_t uid, const char *method, const char *id);
/* False: it is certain that the store has no row of a request id that is not in memory. */
bool core_may_have_stored(const struct sandbox_core *core, uid_t uid, const char *method, const char *id);
/* A call repeated it: the time for which it is remembered begins again, also after a restart. */
void sandbox_request_used(struct sandbox_core *core, struct request *r);

void sandbox_put(struct store_tx *t, const struct sandbox *b);
void core_put_name(struct store_tx *t, const struct name_slot *n);
void core_put_request(struct store_tx *t, const struct request *r);
/* Commits the sandbox as it is now; after a failure sync.c writes all rows again (core->resave). */
void sandbox_save(struct sandbox_core *core, struct sandbox *b, bool durable);
/* Why nothing may be sent to the cloud now: the store takes no intent. */
void core_store_refusal(const struct sandbox_core *core, struct status *ret);
/* A commit without a waiter. */
void core_commit(struct sandbox_core *core, struct store_tx *t, bool durable);

/* Takes over what the cloud said about a sandbox: learns it, follows its state, stores it. */
void sandbox_seen(struct sandbox_core *core, struct sandbox *b, const struct cloud_sandbox *s);
/* The same for an answer to a question of asked_at_ms (BOOTTIME): a state from before our last change is not taken over. */
void sandbox_seen_since(struct sandbox_core *core, struct sandbox *b, const struct cloud_sandbox *s,
			uint64_t asked_at_ms);
/* We change its state: sets and stores it, with an event. `by`: the rule, or "" for its user. */
void sandbox_changed(struct sandbox_core *core, struct sandbox *b, enum sandbox_state to,
		     const char *by);
/* A call uses it: it is not idle. */
void sandbox_used(struct sandbox_core *core, struct sandbox *b);
/* The cloud no longer has it. by_us: a kill of ours ended it. `evidence`: the answer that says so, for people. */
void sandbox_gone(struct sandbox_core *core, struct sandbox *b, bool by_us, const char *evidence);
/* A GET says so. While it is being killed the DELETE's answer ends it, which alone says by whom. */
void sandbox_absent(struct sandbox_core *core, struct sandbox *b);
/* A call of `uid` uses it: if `uid` is its owner, it waits no longer to be claimed. */
void sandbox_claim(struct sandbox_core *core, struct sandbox *b, uid_t uid);
void sandbox_free_name(struct sandbox_core *core, struct sandbox *b, struct store_tx *t);
void sandbox_give_name(struct sandbox_core *core, struct sandbox *b, struct name_slot *n);
/* Did a start before b? One whose start is not known did not. */
bool core_is_older(const struct sandbox *a, const struct sandbox *b);
/* Makes the row of a sandbox with our tag that has none. */
must_check int core_adopt(struct sandbox_core *core, struct account *a,
			  const struct cloud_sandbox *s, struct sandbox **ret);

/* --- load.c --- */

must_check int core_load(struct sandbox_core *core);	/* starts the store, too */
/* Takes the row of a request id into memory, but for one that is left of a warm claim that failed. */
must_check int core_load_request(struct sandbox_core *core, const struct row_request *r);

/* --- forget.c --- */

/* How many sandboxes that have ended are remembered of a uid at most. */
#define FORGET_SANDBOXES_PER_UID 1000u
/* So many more may be in memory until the next look at all; above it the look comes at once. */
#define FORGET_SLACK		 250u
#define FORGET_PRUNE_EVERY_MS	 3600000u	/* rows of request ids are pruned so long after the last time at the latest */
/* How many rows of request ids whose sandboxes have ended are kept of a uid at most. */
#define FORGET_REQUESTS_PER_UID	 50000u
/* Forgets some of what has ended. True: there is more to forget. */
bool forget_ended(struct sandbox_core *core, int64_t now_wall_ms);

/* --- refused.c --- */

must_check int refused_load(struct sandbox_core *core, const struct store_refused *row);
/* After every row was loaded: marks the sandboxes that are held. */
void refused_loaded(struct sandbox_core *core);
/* Before an adopted sandbox gets a row: it is held if a refused row may be its own. */
void refused_adopted(struct sandbox_core *core, struct sandbox *b);
/* The sandbox is gone: refused rows about it are deleted in `t`. */
void refused_gone(struct sandbox_core *core, struct sandbox *b, struct store_tx *t);
void refused_forget_all(struct sandbox_core *core);	/* from memory */

/* --- doubt.c --- */

struct tags;
/* After all rows were loaded: takes the right to end sandboxes from what the rows may be wrong about. */
void doubt_load(struct sandbox_core *core);
/* May policies end this sandbox with our tag and no row? If not, that is logged, and no sandbox of an earlier run is ours any more. */
bool doubt_adopts_as_ours(struct sandbox_core *core, const char *id, const struct tags *t);
/* Has the account to be listed before something is made, since the rows may have forgotten a name or a request id? */
bool doubt_waits(const struct sandbox_core *core, const struct account *a);
/* A complete list was taken over. */
void doubt_listed(struct sandbox_core *core);
/* The oldest sandbox of a uid with this tag, also one that is gone: a Create with the tag must not make a second. NULL = none. */
struct sandbox *doubt_sandbox_of_tag(struct sandbox_core *core, const struct account *a, uid_t uid,
				     const char *req_tag);

/* --- ref.c --- */

enum ref_kind {
	REF_SANDBOX,	/* a row the caller may see */
	REF_ID,		/* no row, or another uid's: an id that the cloud is to be asked about, in *ret_account */
	REF_NONE,	/* *ret_st says why */
};
enum ref_kind ref_find(struct sandbox_core *core, const struct principal *who, const char *ref,
		       struct sandbox **ret_sandbox, struct account **ret_account,
		       struct status *ret_st);
void ref_not_found(struct status *st, const char *ref);
/* Is it another uid's? By a row of any account: two of them may be one team's. */
bool ref_hides(struct sandbox_core *core, const struct principal *who, const char *id);

/* --- fetch.c: one GET by id at a time for each sandbox, shared --- */

enum fetch_end {
	FETCH_ALIVE,	/* `s` is what the cloud said; `sandbox` has taken it over */
	FETCH_ABSENT,	/* the cloud has no such sandbox; `sandbox` is GONE, or is being killed */
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
	uid_t uid;		/* the caller: the request is of its share of the rate limit; 0 = of the owner's */
	bool apart;		/* ref_hides() it: the row is not to learn what is answered */
	void (*fn)(struct fetch_wait *w, const struct fetch_result *result);
};
/* fn comes exactly once, never from inside, unless fetch_leave(). */
must_check int fetch_join(struct sandbox_core *core, struct account *a, const char *id,
			  bool background, struct fetch_wait *w);
void fetch_leave(struct fetch_wait *w);
void fetch_cancel_all(struct sandbox_core *core);

/* --- kill.c --- */

void kill_take_up(struct sandbox_core *core, struct sandbox *b);	/* after a restart */
/* Kills it for a rule of its policy; nobody waits for the end. */
must_check int kill_by_policy(struct sandbox_core *core, struct sandbox *b, const char *rule);
/* Somebody resumed it elsewhere: gives up a rule's kill of it, not a user's. */
void kill_let_go(struct sandbox_core *core, struct sandbox *b);
void kill_cancel_all(struct sandbox_core *core);

/* --- transition.c --- */

/* The op waits until the sandbox is paused, together with others that want the same; op->on_waited comes, with yes = this
 * pause did it. What was sent goes on without the op. */
must_check int transition_join_pause(struct sandbox_core *core, struct sandbox *b, bool keep_memory,
				     struct sandbox_op *op);
/* The same for a resume. *ret_s: the timeout it asks the cloud for, which may be less than timeout_s if it was sent already. */
must_check int transition_join_resume(struct sandbox_core *core, struct sandbox *b,
				      uint32_t timeout_s, struct sandbox_op *op, uint32_t *ret_s);
void transition_cancel_all(struct sandbox_core *core);

/* --- copy.c, snapshots.c --- */

must_check int copy_take_up(struct sandbox_core *core, const struct row_copy *r);
must_check int snapshot_load(struct sandbox_core *core, const struct row_snapshot *r);
void snapshot_forget_all(struct sandbox_core *core);	/* from memory */

/* --- op_create.c --- */

/* True: new sandboxes are refused, and *st says so. */
bool core_is_quiesced(const struct sandbox_core *core, struct status *st);
/* True: limits of the account or of the uid do not allow n more sandboxes now; *st says which. */
bool core_is_retired(const struct account *a, struct status *st);
bool core_refused_by_limits(struct sandbox_core *core, struct account *a, uid_t uid, uint32_t n,
			    struct status *st);
/* The same by the limits of the uid alone, for sandboxes that the account has already. */
bool core_refused_by_uid(struct sandbox_core *core, uid_t uid, uint32_t n, struct status *st);

/* --- create.c --- */

/* After a restart: resolve an intent that was open. */
must_check int creation_take_up(struct sandbox_core *core, const struct row_intent *r);

/* --- attempt.c --- */

/* Does an attempt under way make this listed sandbox, or may it? Then nobody else may adopt it, and an attempt that is
 * being resolved lists again at once. */
bool sandbox_attempt_makes(struct sandbox_core *core, const struct cloud_sandbox *s);
/* How many sandboxes attempts may still make: in account `a`, or where that is NULL for *uid. */
uint32_t core_attempts_count(const struct sandbox_core *core, const struct account *a,
			     const uid_t *uid);
void core_attempts_cancel(struct sandbox_core *core);

/* --- sync.c --- */

must_check int sync_start(struct sandbox_core *core);
void sync_stop(struct sandbox_core *core);
/* The same for one account that comes later, or goes. -ENOMEM: it is as if it had not come. */
must_check int sync_add(struct sandbox_core *core, struct account *a);
void sync_drop(struct account *a);
/* This sandbox has ended: one of too many of its uid? Then some are forgotten soon. */
void sync_note_ended(const struct sandbox *b);
/* The last list of this account was complete and nothing in it was odd. */
bool sync_is_trusted(const struct sandbox_core *core, const struct account *a);
struct listing_wait {
	struct list node;
	/* list NULL: st says why it is not known. */
	void (*fn)(struct listing_wait *w, const struct status *st, const struct cloud_list *list,
		   int64_t as_of_ms);
};
/* A complete list of the account, at most a second old and shared with other callers. fn may come from inside. */
void listing_join(struct account *a, struct listing_wait *w);
void listing_leave(struct listing_wait *w);

#endif
