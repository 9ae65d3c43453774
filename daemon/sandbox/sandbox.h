/* SPDX-License-Identifier: MIT */
/*
 * The calls on sandboxes: the only header of this module that others see. Loop thread only.
 *
 * A call takes a `struct sandbox_call` (who asks, about which sandbox, until when), what it alone needs, and a
 * `done`. It starts an operation, puts it into *ret and calls `done(call->user, status, result)` exactly once,
 * never from inside the call, unless sandbox_cancel() came first. On failure (-ENOMEM) nothing was started and no
 * `done` comes. What is wrong with the input, and every other failure, is in the status. Results are borrowed:
 * valid until `done` returns. Arguments are copied where their function does not say otherwise.
 * A caller that goes away changes nothing that was already sent: a creation is finished, kept and reaped or left
 * as its policy says.
 */
#ifndef AB_DAEMON_SANDBOX_SANDBOX_H
#define AB_DAEMON_SANDBOX_SANDBOX_H

#include <stdbool.h>

#include "daemon/auth/principal.h"
#include "daemon/cloud/address.h"
#include "daemon/sandbox/rules/types.h"
#include "daemon/sandbox/rules/warm.h"
#include "proto/base/cc.h"
#include "proto/base/list.h"
#include "proto/base/status.h"

struct cloud;	/* daemon/cloud/cloud.h: one per account */
struct sandbox_core;
struct sandbox_op;
struct trace;
struct loop;
struct store;

/* A sandbox for command and file services. `at` is borrowed: agent_address_set() keeps it. */
struct sandbox_target {
	struct agent_address at;
	const char *default_user;	/* "" = the image's */
	uid_t owner_uid;
	enum sandbox_state state;	/* RUNNING, or the last thing known while the cloud is away */
};

#define SANDBOX_ACCOUNTS_MAX 64u

struct sandbox_core_account {
	const char *name;
	struct cloud *cloud;
	bool plain_ports;		/* port URLs are http:// (--local) */
	bool is_own_cloud;		/* the daemon started this cloud: its key needs no proof (proof.h) */
	const char *default_user;
	uint32_t max_sandboxes;		/* 0 = no limit of ours */
};

struct sandbox_core_uid {			/* [uid U] */
	uid_t uid;
	const char *account;		/* NULL = the first one */
	uint32_t max_sandboxes, creates_per_minute; /* 0 = no limit of ours */
};

/* Policy defaults of a template (by the name or id that Create gives) or of a uid. A uid's override a
 * template's, and a request's own override both. */
struct sandbox_core_policy {
	const char *template_id;		/* NULL: these are the defaults of `uid` */
	uid_t uid;
	struct policy_change change;
	enum sandbox_warm_mode warm;		/* UNSET: this says nothing of warm ones */
};

/* [warm NAME]: sandboxes that are made before anybody asks. */
struct sandbox_warm_entry {
	const char *name;
	const char *account;		/* NULL = the first one */
	struct cloud_create what;	/* timeout_s: its timeout in the cloud until it is claimed; the daemon extends it */
	uint32_t size;			/* how many are kept ready; at most WARM_SIZE_MAX */
	struct warm_claimers claimers;
	const char *prepare;		/* shell command, run once as root before the sandbox counts as ready; NULL = none */
	const char *secret_envs;	/* "NAME=FILE, …": environment of prepare alone, its values read from the files; NULL = none */
	uint64_t ready_timeout_ms, max_age_ms;
	uint64_t active_ms;		/* kept full for so long after the last Create that this entry fitted; 0 = always */
	uint32_t burst;			/* creations at once; at least 1 */
	uint32_t per_hour;		/* creations; 0 = no bound */
};

/* Runs an entry's prepare in a sandbox (cloud/envd.h; wired by app). `done` comes exactly once, never from inside, and not after
 * cancel. `ok`: the command exited with 0; else st says how it ended. `output`: the last part of its output, as text. `start` returns
 * NULL where it was not started, and *st says why. */
#define SANDBOX_PREPARE_OUTPUT_MAX 8192u
typedef void sandbox_prepared_fn(void *done_user, bool ok, const struct status *st, const char *output);
struct sandbox_preparer {
	void *(*start)(const struct sandbox_target *t, const struct sandbox_warm_entry *e, uint64_t deadline_ms,
		       sandbox_prepared_fn *done, void *done_user, struct status *st);
	void (*cancel)(void *prepare);
};

enum sandbox_probe_result {
	SANDBOX_PROBE_HEALTHY,
	SANDBOX_PROBE_ABSENT,	/* the edge says there is no such sandbox: not a proof */
	SANDBOX_PROBE_NO_ANSWER,	/* unreachable, refused, deadline */
};
typedef void sandbox_probed_fn(void *done_user, enum sandbox_probe_result result,
			       const struct status *why);

/* Asks the agent inside for its health (cloud/envd.h; wired by app). `start` returns a handle for
 * `cancel`, or NULL without memory; `done` comes exactly once, never from inside. */
struct sandbox_prober {
	void *(*start)(const struct sandbox_target *t, uint64_t deadline_ms,
		       sandbox_probed_fn *done, void *done_user, void *user);
	void (*cancel)(void *probe, void *user);
	void *user;
};

/* What tells a client process from a later one with the same pid; numbers of StatusResponse.ProcessIdentity. */
enum sandbox_identity {
	SANDBOX_IDENTITY_INODE = 1,
	SANDBOX_IDENTITY_START_TIME = 2,
	SANDBOX_IDENTITY_CONNECTION = 3,
};

struct sandbox_core_rules {			/* all of it is copied */
	struct policy policy;			/* shipped or configured defaults */
	const struct sandbox_core_policy *policies;	/* defaults of templates and of uids */
	size_t n_policies;
	const struct sandbox_core_uid *uids;
	size_t n_uids;
	struct sandbox_core_uid any;	/* limits of every uid that `uids` does not name; its own uid is ignored */
	enum sandbox_warm_mode warm_mode;	/* UNSET = NEVER */
	const struct sandbox_warm_entry *warm;	/* no two of one name */
	size_t n_warm;
};

struct sandbox_core_options {
	struct loop *loop;
	struct store *store;			/* opened, not started: the core loads it, then starts it */
	const struct sandbox_core_account *accounts;	/* copied; the first one is the default */
	size_t n_accounts;
	struct sandbox_core_rules rules;
	struct sandbox_prober prober;
	struct sandbox_preparer preparer;	/* zeros: none, and an entry with prepare fails */
	/* For the tag of a request id. Wired by app, so that hashing stays where the layers allow it. */
	void (*sha256)(const void *p, size_t n, uint8_t ret[32]);
	enum sandbox_identity identity;		/* 0 = the best the kernel has; for tests */
	/* In all of these 0 = the default, which is set in sandbox_core_new(). */
	uint64_t history_ms, unclaimed_grace_ms, reconcile_period_ms, max_staleness_ms;
	uint64_t resolve_horizon_ms;		/* 180 s */
	uint64_t restart_grace_ms;		/* 30 s */
	uint64_t rng_seed;			/* jitter */
};

/* Loads the store, takes up open intents, starts to reconcile. Serving may begin at once. */
must_check int sandbox_core_new(const struct sandbox_core_options *o, struct sandbox_core **ret);
/* A stop is near, and what makes sandboxes or snapshots takes its time in the cloud: warm entries make no more. How many of those that were
 * under way then are not on record yet; a stop that waits for them saves the next start from looking for what they made. */
void sandbox_core_settle(struct sandbox_core *core);
uint32_t sandbox_core_unsettled(const struct sandbox_core *core);
/* From now on a creation is refused with DRAINING, and held leases and watches have ended: their clients come
 * back after the restart with the lease id or the cursor. Everything else goes on. */
void sandbox_core_drain(struct sandbox_core *core);
#define SANDBOX_QUIESCED_BYTES 320u	/* of `why`; more is cut */
/* Until it is called with NULL, new sandboxes are refused with QUIESCED and `why`, a text for callers, and no warm ones are made. What was
 * accepted before goes on, a recreation too, and so does everything else. */
void sandbox_core_quiesce(struct sandbox_core *core, const char *why);
/* Why they are; "" = they are not. */
const char *sandbox_core_quiesced(const struct sandbox_core *core);
/* Operations still open are cancelled without a done: answer their callers before. NULL is fine. */
struct sandbox_core *sandbox_core_free(struct sandbox_core *core);

struct sandbox_core_counts {
	uint32_t running, paused, other, gone, intents, requests;
	uint64_t reconciled_at_ms;	/* BOOTTIME of the last complete one; 0 = never */
	uint64_t reconcile_skipped;	/* lists that failed, or could not be compared for want of memory */
	uint32_t leases;
	enum sandbox_identity identity;
	uint32_t list_anomalies;	/* lists that lacked so many sandboxes that each one was asked about instead */
	struct status store;		/* store_health() */
	const char *doubt_text;		/* static: why rows are, or were, in doubt in this run; NULL = they never were */
	int64_t doubt_at_ms;		/* wall: when doubt_text was found */
};
/* Changes sandbox_core_account.plain_ports; an unknown account is ignored. */
void sandbox_core_set_plain_ports(struct sandbox_core *core, const char *account, bool plain_ports);
/*
 * Accounts that come and go while the daemon runs. One more, as in the options and of a new name, after which the rules may name it:
 * -ENOMEM. The one that was added last, of which no rule knows, goes again. `retired`: it is in the configuration no more; it extends
 * and ends what it has, and makes nothing (ACCOUNT_NOT_FOUND).
 */
must_check int sandbox_core_add_account(struct sandbox_core *core, const struct sandbox_core_account *o);
void sandbox_core_drop_account(struct sandbox_core *core);
void sandbox_core_set_account(struct sandbox_core *core, const char *name, uint32_t max_sandboxes, bool retired);
/* The store has rows of this account, which the start left alone since it was not configured: only another start takes them up. */
bool sandbox_core_left_rows(const struct sandbox_core *core, const char *account);
/* The account's cloud was away and is back: its list is asked for at once, not when its time comes. An unknown account is ignored. */
void sandbox_core_reconcile(struct sandbox_core *core, const char *account);
/* Replaces the rules. Policy defaults apply to sandboxes made from now on; a uid's new limits count the sandboxes that it has.
 * -ENOMEM, or -EINVAL for an unknown account: nothing was changed. */
must_check int sandbox_core_set_rules(struct sandbox_core *core, const struct sandbox_core_rules *r);
/* Replaces both graces. A lease that waits for its holder keeps the old one; sandboxes that wait to be claimed get the new one. */
void sandbox_core_set_graces(struct sandbox_core *core, uint64_t unclaimed_ms, uint64_t restart_ms);
/* Nobody is this owner any more (auth/owners.h): its leases end, and its sandboxes are released, as if the last lease on each had ended;
 * what follows is their policy's matter. */
void sandbox_core_release_owner(struct sandbox_core *core, uid_t owner);

/* Sandboxes and leases are those of one uid ((uid_t)-1: of all); the other members are of the whole daemon. */
void sandbox_core_count(const struct sandbox_core *core, uid_t uid, struct sandbox_core_counts *ret);

struct sandbox_uid_use {
	const char *account;		/* the one that its creates go to */
	uint32_t alive;
	uint32_t max_sandboxes, creates_per_minute;	/* 0 = no limit of ours */
	uint32_t creates_left;		/* in the current minute; means nothing without creates_per_minute */
};
/* The limits of a uid, and how much of them it uses. */
void sandbox_uid_use(const struct sandbox_core *core, uid_t uid, struct sandbox_uid_use *ret);

/* True: the account's key is not, or is not known to be, the one that its rows were made with (proof.h). `account`: index in the
 * options. *ret_since_ms: wall, 0 = it is trusted. */
bool sandbox_key_strange(const struct sandbox_core *core, size_t account, struct status *ret_why, int64_t *ret_since_ms);

struct sandbox_extensions {
	uint32_t kept;			/* sandboxes that extensions keep alive */
	uint32_t most;			/* how many extensions can keep alive; 0 = the cloud states no budget */
	uint32_t per_s_milli;		/* thousandths of extensions a second that the cloud allows; 0 = not stated */
	uint32_t span_s;		/* every extension asks for at least so much */
	uint32_t waiting;		/* sandboxes that wait for their turn to be extended */
	uint64_t refused;		/* leases refused since the start for want of extensions */
	int64_t refused_at_ms;		/* wall: the last refusal; 0 = none */
	bool is_short;			/* nearly all of the budget is used, or a lease was refused lately */
};
/* `account`: index in the options. */
void sandbox_extensions(struct sandbox_core *core, size_t account, struct sandbox_extensions *ret);

/* --- entries [warm NAME] --- */

struct sandbox_warm_info {
	const char *name, *account, *template_id;
	uint32_t size, configured_size;
	uint32_t ready, coming;		/* coming: being made, or prepared */
	uint32_t waiting;		/* calls with REQUIRE */
	uint32_t failures;		/* in a row */
	bool failed;			/* nothing is tried until sandbox_warm_retry(), or a reload */
	int64_t failed_at_ms;		/* wall: when `failed` was first seen in this run */
	const char *why, *output;	/* why the last one failed; the output of the last prepare; "" = none */
	uint32_t made_in_hour, per_hour;	/* per_hour 0 = no bound */
	uint64_t hits, misses, made, failures_in_all;	/* since the start */
	uint64_t prepare_ms;		/* how long the last one took from its creation until it was ready; 0 = none in this run */
	int64_t oldest_ready_ms;	/* age of the oldest ready one; 0 = none */
};
/* Number i of the entries, by name; false: there are no more. Strings are valid until the loop goes on. */
bool sandbox_warm_info(const struct sandbox_core *core, size_t i, struct sandbox_warm_info *ret);
/* So many are kept ready, also after a restart; -1 = as configured. False: *st says why not. */
must_check bool sandbox_warm_set(struct sandbox_core *core, const char *name, int size, struct status *st);
/* An entry that failed is tried again. */
must_check bool sandbox_warm_retry(struct sandbox_core *core, const char *name, struct status *st);
/* Warm sandboxes that somebody may have claimed: nobody gets them. */
uint32_t sandbox_warm_quarantined(const struct sandbox_core *core);

/* The head of every call; copied. A call uses all of it, where its comment does not say otherwise. */
struct sandbox_call {
	const struct principal *who;
	const char *sandbox;		/* id or name of the one it is about; NULL = "" */
	uint64_t deadline_ms;		/* absolute BOOTTIME; 0 = none */
	void *user;			/* handed to done */
	const struct trace *trace;	/* goes on to the cloud; copied; NULL = none */
};

/* Only before `done`, which then will not come. What was sent to the cloud is not undone. NULL is fine. */
void sandbox_cancel(struct sandbox_op *op);

typedef void sandbox_view_fn(void *user, const struct status *st, const struct sandbox_view *sandbox);
typedef void sandbox_bool_fn(void *user, const struct status *st, bool yes);

void sandbox_create_fini(struct sandbox_create *c);	/* zeroes are fine */
/* Takes over what *c owns, also on failure: it is zero then. call->sandbox is not used. */
must_check int sandbox_create(struct sandbox_core *core, const struct sandbox_call *call,
			      struct sandbox_create *c, sandbox_view_fn *done, struct sandbox_op **ret);

struct sandbox_connect {
	uint64_t timeout_ms;		/* 0 = 300 s; never shortens */
	bool adopt;			/* also one that carries another host's tag */
	bool wait_ready;
	bool process_lease;
};
must_check int sandbox_connect(struct sandbox_core *core, const struct sandbox_call *call,
			       const struct sandbox_connect *c, sandbox_view_fn *done,
			       struct sandbox_op **ret);

#define SANDBOX_STALENESS_DEFAULT UINT64_MAX
must_check int sandbox_get(struct sandbox_core *core, const struct sandbox_call *call,
			   uint64_t max_staleness_ms, sandbox_view_fn *done,
			   struct sandbox_op **ret);

#define SANDBOX_TIMEOUT_NOW UINT64_MAX	/* its end has come, whatever the cloud does then */
must_check int sandbox_set_timeout(struct sandbox_core *core, const struct sandbox_call *call,
				   uint64_t timeout_ms, sandbox_view_fn *done,
				   struct sandbox_op **ret);

/* Changes the fields of `change`; those of the mask `reset` (BIT(enum policy_field)) go back to the
 * configured defaults. */
must_check int sandbox_set_policy(struct sandbox_core *core, const struct sandbox_call *call,
				  const struct policy_change *change, uint32_t reset,
				  sandbox_view_fn *done, struct sandbox_op **ret);
/* yes = this call paused it; false: it was paused already. */
must_check int sandbox_pause(struct sandbox_core *core, const struct sandbox_call *call,
			     bool keep_memory, sandbox_bool_fn *done, struct sandbox_op **ret);

/* Moves its end to at least for_ms from now; never shortens its life and resumes nothing. SANDBOX_PAUSED where it is paused. */
must_check int sandbox_refresh(struct sandbox_core *core, const struct sandbox_call *call,
			       uint64_t for_ms, sandbox_bool_fn *done, struct sandbox_op **ret);

/* Replaces the egress settings as a whole; network NULL = none of them. Takes `network` over, also on failure.
 * allow_internet_access unset = unchanged. */
must_check int sandbox_update_network(struct sandbox_core *core, const struct sandbox_call *call,
				      struct cloud_network *network, enum tri allow_internet_access,
				      sandbox_bool_fn *done, struct sandbox_op **ret);

struct sandbox_metrics {
	const struct cloud_metrics *metrics;
	enum sandbox_source source;
	int64_t as_of_ms;
};
typedef void sandbox_metrics_fn(void *user, const struct status *st, const struct sandbox_metrics *m);
/* Moments in s since 1970; 0 = the sandbox's start, now. */
must_check int sandbox_get_metrics(struct sandbox_core *core, const struct sandbox_call *call,
				   int64_t start_s, int64_t end_s, sandbox_metrics_fn *done,
				   struct sandbox_op **ret);

struct sandbox_child {
	const struct sandbox_view *sandbox;	/* NULL: st says why there is none */
	const struct status *st;
};
typedef void sandbox_fork_fn(void *user, const struct status *st,
			     const struct sandbox_child *children, size_t n);
/* Takes over what *children owns, as sandbox_create() does. count: 0 = 1; at most 100. */
must_check int sandbox_fork(struct sandbox_core *core, const struct sandbox_call *call,
			    struct sandbox_create *children, uint32_t count, sandbox_fork_fn *done,
			    struct sandbox_op **ret);

/* yes = found: it existed and is gone now. */
must_check int sandbox_kill(struct sandbox_core *core, const struct sandbox_call *call,
			    sandbox_bool_fn *done, struct sandbox_op **ret);

/* Asks the agent inside, not the record. */
must_check int sandbox_is_running(struct sandbox_core *core, const struct sandbox_call *call,
				  sandbox_bool_fn *done, struct sandbox_op **ret);

struct sandbox_page {
	const struct sandbox_view *sandboxes;
	size_t n;
	const char *next_page_token;	/* "" = the end */
	size_t n_running;		/* with count_running: of all that match, on whatever page */
	uint64_t question;		/* hash of the query that its page tokens belong to: rules/page.h */
	enum sandbox_source source;
	int64_t as_of_ms;
};
typedef void sandbox_list_fn(void *user, const struct status *st, const struct sandbox_page *page);
/* call->sandbox is not used. */
must_check int sandbox_list(struct sandbox_core *core, const struct sandbox_call *call,
			    const struct sandbox_list *q, sandbox_list_fn *done,
			    struct sandbox_op **ret);

struct sandbox_host {
	const char *host;		/* "3000-ID.DOMAIN" */
	const char *url;		/* with scheme */
	const char *traffic_token;	/* "" = public */
	const char *token_header;
};
typedef void sandbox_host_fn(void *user, const struct status *st, const struct sandbox_host *host);
must_check int sandbox_get_host(struct sandbox_core *core, const struct sandbox_call *call,
				uint32_t port, sandbox_host_fn *done, struct sandbox_op **ret);

/* --- leases --- */

struct sandbox_lease {
	const char *id, *sandbox, *label;
	uid_t uid;
	pid_t pid;			/* 0 = unknown */
	int64_t expires_at_ms;		/* wall, of a lease with a ttl; else 0 */
	int64_t sandbox_end_at_ms;	/* by the cloud's clock; 0 = not known */
};
typedef void sandbox_lease_fn(void *user, const struct status *st, const struct sandbox_lease *lease);

enum sandbox_lease_kind {
	SANDBOX_LEASE_STREAM = 1,	/* until sandbox_held_free() */
	SANDBOX_LEASE_PROCESS = 2,	/* until the caller's process dies */
	SANDBOX_LEASE_TTL = 3,
};

struct sandbox_acquire {
	const char *label;		/* NULL or "" = none; at most 128 bytes */
	const char *lease_id;		/* NULL or "" = a new one; else that one again */
	enum sandbox_lease_kind kind;
	uint64_t ttl_ms;
};
/* A lease of a stream ends unless sandbox_held_new() is called from inside `done`. */
must_check int sandbox_acquire(struct sandbox_core *core, const struct sandbox_call *call,
			       const struct sandbox_acquire *a, sandbox_lease_fn *done,
			       struct sandbox_op **ret);
/* Here and in Release, call->sandbox is not used. */
must_check int sandbox_renew(struct sandbox_core *core, const struct sandbox_call *call,
			     const char *lease_id, uint64_t ttl_ms, sandbox_lease_fn *done,
			     struct sandbox_op **ret);
/* yes = it was held until now. */
must_check int sandbox_release(struct sandbox_core *core, const struct sandbox_call *call,
			       const char *lease_id, sandbox_bool_fn *done,
			       struct sandbox_op **ret);

struct sandbox_lease_page {
	const struct sandbox_lease *leases;
	size_t n;
	const char *next_page_token;
};
typedef void sandbox_leases_fn(void *user, const struct status *st,
			       const struct sandbox_lease_page *page);
/* The caller's leases; with call->sandbox: all leases of that sandbox. */
must_check int sandbox_list_leases(struct sandbox_core *core, const struct sandbox_call *call,
				   uint32_t page_size, const char *page_token,
				   sandbox_leases_fn *done, struct sandbox_op **ret);

struct sandbox_held;		/* a lease in the hands of a stream */
enum sandbox_held_change {
	SANDBOX_HELD_CHANGED,	/* the sandbox's end has moved */
	SANDBOX_HELD_LOST,		/* the lease has ended, for the reason in st; only sandbox_held_free() may follow */
};
typedef void sandbox_held_fn(void *user, enum sandbox_held_change change, const struct status *st,
			     const struct sandbox_lease *lease);
/* From inside the done of sandbox_acquire(). */
must_check int sandbox_held_new(struct sandbox_core *core, const char *lease_id,
				sandbox_held_fn *fn, void *user, struct sandbox_held **ret);
bool sandbox_held_view(const struct sandbox_held *h, struct sandbox_lease *ret);	/* false: it is lost */
/* The stream ended. `keep`: because the daemon stops, so that its holder has restart_grace to take the lease again. */
void sandbox_held_free(struct sandbox_held *h, bool keep);
/* Ends the process leases of a client that is known by its connection alone (SANDBOX_IDENTITY_CONNECTION). */
void sandbox_connection_ended(struct sandbox_core *core, const struct principal *who);

const char *sandbox_state_name(enum sandbox_state s);	/* "running" */

/* --- events --- */

#define SANDBOX_EVIDENCE_MAX 12u

const char *sandbox_event_name(int type);	/* of agentbox.v1.SandboxEvent.Type: "created"; NULL: of none that a sandbox has */

struct sandbox_event {
	const char *cursor;		/* "" where no watcher may go on from (inside a resync) */
	int64_t at_ms;			/* wall */
	int type;			/* agentbox.v1.SandboxEvent.Type */
	const struct sandbox_view *sandbox;	/* NULL: of no sandbox */
	enum ab_reason reason;
	struct sandbox_pair evidence[SANDBOX_EVIDENCE_MAX];
	size_t n_evidence;
};
struct sandbox_watch;
typedef void sandbox_watch_fn(void *user);

struct quota;
struct sandbox_watch_options {
	const struct principal *who;
	const char *cursor;		/* NULL or "" = from now */
	const char *sandbox;		/* NULL or "" = all */
	uint32_t back;			/* without a cursor: begins with the last so many */
	bool initial, all_owners;
	uint32_t types;			/* BIT(type); 0 = all. A resync always comes as a whole */
	struct quota *quota;		/* pays for what a resync holds; outlives the watch; NULL = not charged */
};
/* 0; -EINVAL with *ret_st; -ENOMEM. `on_ready` says that there is something to read, never from inside. */
must_check int sandbox_watch_new(struct sandbox_core *core, const struct sandbox_watch_options *o,
				 sandbox_watch_fn *on_ready, void *user, struct sandbox_watch **ret,
				 struct status *ret_st);
/* The next event; valid until the next call. False: none for now, on_ready will be called. Events that the watcher does not read in
 * time are replaced by a resync, for which only the ids of the sandboxes still to be sent are kept. */
bool sandbox_watch_next(struct sandbox_watch *w, struct sandbox_event *ret);
/* True: the watch has ended, for the reason in *ret_st; free it. */
bool sandbox_watch_is_over(const struct sandbox_watch *w, struct status *ret_st);
void sandbox_watch_heartbeat(struct sandbox_watch *w, struct sandbox_event *ret);
struct sandbox_watch *sandbox_watch_free(struct sandbox_watch *w);	/* NULL is fine; returns NULL */

/* --- snapshots --- */

struct sandbox_snapshot {
	const char *id;
	const char *const *names;
	size_t n_names;
	const char *source_sandbox;	/* "" = not known */
	int64_t created_at_ms;		/* 0 = not known */
	enum sandbox_source source;
	int64_t as_of_ms;
};

struct sandbox_snapshot_create {
	const char *request_id;
	uint8_t params_hash[32];
	const char *name;		/* NULL or "" = none */
};
typedef void sandbox_snapshot_fn(void *user, const struct status *st, const struct sandbox_snapshot *s);
must_check int sandbox_snapshot_create(struct sandbox_core *core, const struct sandbox_call *call,
				       const struct sandbox_snapshot_create *c,
				       sandbox_snapshot_fn *done, struct sandbox_op **ret);

struct sandbox_snapshot_list {
	const char *name;		/* NULL or "" = any */
	uint32_t page_size;
	const char *page_token;
	bool cached;
};
struct sandbox_snapshot_page {
	const struct sandbox_snapshot *snapshots;
	size_t n;
	size_t from;			/* index of the page's first one in the whole list */
	const char *next_page_token;
	uint64_t question;		/* as in struct sandbox_page */
};
/* The token of a page that ends before index `at` of the whole list and whose last row is `id`. Heap; NULL without memory. */
char *sandbox_index_token(size_t at, const char *id, uint64_t question);
typedef void sandbox_snapshots_fn(void *user, const struct status *st,
				  const struct sandbox_snapshot_page *p);
/* With call->sandbox: only snapshots of that sandbox. */
must_check int sandbox_list_snapshots(struct sandbox_core *core, const struct sandbox_call *call,
				      const struct sandbox_snapshot_list *q,
				      sandbox_snapshots_fn *done, struct sandbox_op **ret);

/* yes = found. All builds of the snapshot's template go with it. call->sandbox is not used. */
must_check int sandbox_delete_snapshot(struct sandbox_core *core, const struct sandbox_call *call,
				       const char *snapshot, sandbox_bool_fn *done,
				       struct sandbox_op **ret);

/* --- templates --- */

struct sandbox_template {
	const char *id;
	const char *const *names;	/* what Create takes in place of the id */
	size_t n_names;
	bool is_public;
	const char *build_id, *build_status, *envd_version;	/* "" = not known */
	uint32_t cpu_count, memory_mb, disk_size_mb;
	int64_t created_at_ms, updated_at_ms, spawned_at_ms;	/* 0 = not known, or never */
	uint64_t spawn_count;
};

struct sandbox_template_list {
	uint32_t page_size;
	const char *page_token;
};
struct sandbox_template_page {
	const struct sandbox_template *templates;
	size_t n;
	size_t from;			/* index of the page's first one in the whole list */
	const char *next_page_token;
	uint64_t question;		/* as in struct sandbox_page */
};
typedef void sandbox_templates_fn(void *user, const struct status *st, const struct sandbox_template_page *p);
/* Those of the caller's account, from the cloud. call->sandbox is not used. */
must_check int sandbox_list_templates(struct sandbox_core *core, const struct sandbox_call *call,
				      const struct sandbox_template_list *q, sandbox_templates_fn *done,
				      struct sandbox_op **ret);

/* --- for command and file services --- */

/* A command of ours begins and ends in a sandbox, which is in use meanwhile. Every begin needs its end. */
void sandbox_use_begin(struct sandbox_core *core, const char *account, const char *id);
void sandbox_use_end(struct sandbox_core *core, const char *account, const char *id);

/*
 * What another module does with a sandbox and cannot go on with when the sandbox is gone: a command, a transfer,
 * a watch of files. A tie is a member of its owner, which unties it before it is freed; it does not keep the
 * sandbox in use.
 *
 * PAUSING and RUNNING come from inside the call that changed the state: on_event must not call back into this module,
 * and must not untie other ties. GONE comes once, from the loop, after its commit; the tie is untied
 * before, and on_event may free its owner, and owners of other ties too.
 */
enum sandbox_tie_event {
	SANDBOX_TIE_PAUSING,	/* its streams will stand still */
	SANDBOX_TIE_RUNNING,	/* it runs again */
	SANDBOX_TIE_GONE,	/* st says why: SANDBOX_KILLED, SANDBOX_EXPIRED, SANDBOX_GONE */
};
typedef void sandbox_tie_fn(void *user, enum sandbox_tie_event event, const struct status *st);

struct sandbox_tie {
	struct list node;
	sandbox_tie_fn *on_event;
	void *user;
};
void sandbox_tie_init(struct sandbox_tie *t, sandbox_tie_fn *on_event, void *user);
/* Ties to this sandbox instead of the one before. Does nothing for a sandbox without a row, as nobody would
 * learn of its end. For one that is gone already GONE comes from the loop. */
void sandbox_tie(struct sandbox_core *core, const char *account, const char *id, struct sandbox_tie *t);
void sandbox_untie(struct sandbox_tie *t);

typedef void sandbox_target_fn(void *user, const struct status *st, const struct sandbox_target *t);
/* Id or name → where its agent is. Asks the cloud when the token is not known. A paused sandbox is resumed if its policy
 * has resume_on_use, else answered with SANDBOX_PAUSED; one that has ended is answered with the reason of its end. */
must_check int sandbox_resolve(struct sandbox_core *core, const struct sandbox_call *call,
			       sandbox_target_fn *done, struct sandbox_op **ret);

/* What memory says of a sandbox, without asking the cloud, resuming, claiming or counting as use. Strings are valid until the next pass. */
struct sandbox_glance {
	struct sandbox_target target;
	bool token_known;	/* the tokens in target are the sandbox's; else the cloud was not asked for them yet */
	bool is_sure;		/* token_known, and it is claimed and runs as far as is known: sandbox_resolve() would say the
				 * same at once */
};
/* By id, of any uid and account. False: no such sandbox lives. */
bool sandbox_glance(struct sandbox_core *core, const char *id, struct sandbox_glance *ret);
/* The first living sandbox with known tokens that `fits` accepts. False: it accepts none of the first `most`. */
typedef bool sandbox_glance_fn(void *user, const struct sandbox_glance *g);
bool sandbox_glance_search(struct sandbox_core *core, unsigned most, sandbox_glance_fn *fits, void *user,
			   struct sandbox_glance *ret);

enum sandbox_evidence {
	SANDBOX_SAW_ABSENT,	/* 502 "sandbox not found" of the edge */
	SANDBOX_SAW_REFUSED,	/* 401/403 of the agent: token wrong or rotated */
	SANDBOX_SAW_LOST,	/* no connection, or a stream that ended without its end marker */
	SANDBOX_SAW_AWAKE,	/* it answers, and its row says that it is paused */
};
/* Something about a sandbox does not fit "running": asks the control plane and says what is true.
 * OK = it says running (target with a fresh token: try again, or report your own failure as a
 * transport failure); else SANDBOX_EXPIRED, _KILLED, _GONE, _PAUSED, _NOT_FOUND or UNREACHABLE.
 * Equal questions share one request to the cloud. call->sandbox is an id of `account`; call->who is not
 * used: the daemon asks for itself, about a sandbox that its caller was allowed to use before. */
must_check int sandbox_note_evidence(struct sandbox_core *core, const struct sandbox_call *call,
				     const char *account, enum sandbox_evidence what,
				     sandbox_target_fn *done, struct sandbox_op **ret);

#endif
