/* SPDX-License-Identifier: MIT */
/*
 * The façade of lifecycle: the only header of this module that others see. Loop thread only.
 *
 * Every call starts an operation and calls its `done` exactly once, never from inside the call,
 * unless life_cancel() came first. What a failure means is in the status (DESIGN §5); input errors
 * come the same way. Results are borrowed: valid until `done` returns. Arguments are copied.
 * Deadlines are absolute BOOTTIME ms; 0 = none. A caller that goes away changes nothing that was
 * already sent: a creation is finished, kept and reaped or left as its policy says.
 */
#ifndef AB_DAEMON_SANDBOX_LIFE_H
#define AB_DAEMON_SANDBOX_LIFE_H

#include <stdbool.h>

#include "daemon/auth/principal.h"
#include "daemon/sandbox/rules/types.h"
#include "proto/base/cc.h"
#include "proto/base/status.h"

struct cloud;	/* daemon/cloud/cloud.h: one per account */
struct cloud_iam_token;	/* daemon/cloud/model.h, and so on */
struct cloud_metrics;
struct cloud_network;
struct life;
struct life_op;
struct loop;
struct store;

/* Where the agent of a sandbox is reached, for command and file services. Copy what is kept. */
struct life_target {
	const char *account, *id;
	struct cloud *cloud;
	const char *domain;		/* "" = the account's */
	const char *access_token;	/* secret; "" = not secure */
	const char *traffic_token;	/* secret; "" = public */
	const char *envd_version;
	const char *default_user;	/* "" = the image's */
	uint32_t generation;
	uid_t owner_uid;
	bool plain_ports;		/* its ports are http:// */
	bool wakes;			/* paused at its end, any traffic would resume it */
	enum life_state state;		/* RUNNING, or the last thing known while the cloud is away */
};

struct life_account {
	const char *name;
	struct cloud *cloud;
	bool plain_ports;		/* port URLs are http:// (--local) */
	const char *default_user;
	uint32_t max_sandboxes;		/* 0 = no limit of ours */
};

struct life_uid {			/* [uid U]; a uid without one uses the first account */
	uid_t uid;
	const char *account;		/* NULL = the first one */
	uint32_t max_sandboxes, creates_per_minute; /* 0 = no limit of ours */
};

/* Defaults that differ for a template (by the name or id that Create names) or for a uid; a uid's go
 * above a template's, and a request's own above both. */
struct life_policy {
	const char *template_id;		/* NULL: of the uid */
	uid_t uid;
	struct policy_change change;
};

/* Asks the agent inside for its health (cloud/envd.h; wired by app). `start` returns a handle for
 * `cancel`, or NULL without memory; `done` comes exactly once, never from inside. */
enum life_probe_result {
	LIFE_PROBE_HEALTHY,
	LIFE_PROBE_ABSENT,	/* the edge says there is no such sandbox: not a proof */
	LIFE_PROBE_NO_ANSWER,	/* unreachable, refused, deadline */
};
typedef void life_probed_fn(void *done_user, enum life_probe_result result, const struct status *why);
enum life_identity {	/* how a process is known again; numbers of StatusResponse.ProcessIdentity */
	LIFE_IDENTITY_INODE = 1,
	LIFE_IDENTITY_START_TIME = 2,
	LIFE_IDENTITY_CONNECTION = 3,
};

struct life_prober {
	void *(*start)(const struct life_target *t, uint64_t deadline_ms, life_probed_fn *done,
		       void *done_user, void *user);
	void (*cancel)(void *probe, void *user);
	void *user;
};

struct life_options {
	struct loop *loop;
	struct store *store;			/* opened, not started: life loads it, then starts it */
	const struct life_account *accounts;	/* copied; the first one is the default */
	size_t n_accounts;
	const struct life_uid *uids;
	size_t n_uids;
	struct life_prober prober;
	/* For the tag of a request id. Wired by app, so that hashing stays where the layers allow it. */
	void (*sha256)(const void *p, size_t n, uint8_t ret[32]);
	struct policy policy;			/* shipped or configured defaults */
	const struct life_policy *policies;	/* … of templates and uids; copied */
	size_t n_policies;
	enum life_identity identity;		/* 0 = the best the kernel has; for tests */
	/* ms; 0 = DESIGN's default */
	uint64_t history_ms, unclaimed_grace_ms, reconcile_period_ms, max_staleness_ms;
	uint64_t settle_horizon_ms;		/* 180 s */
	uint64_t restart_grace_ms;		/* 30 s */
	uint64_t rng_seed;			/* jitter */
};

/* Loads the store, takes up open intents, starts to reconcile. Serving may begin at once. */
must_check int life_new(const struct life_options *o, struct life **ret);
/* No new creation: DRAINING. Held leases and watches are over (their holders come back after the restart,
 * by lease id and cursor); the rest goes on. */
void life_drain(struct life *l);
/* Operations still open are cancelled without a done: answer their callers before. NULL is fine. */
struct life *life_free(struct life *l);

struct life_counts {
	uint32_t running, paused, other, gone, intents, requests;
	uint64_t reconciled_at_ms;	/* BOOTTIME of the last complete one; 0 = never */
	uint64_t reconcile_skipped;	/* lists that proved nothing */
	uint32_t leases;
	enum life_identity identity;
	uint32_t list_anomalies;	/* mass losses that were not believed */
	struct status store;		/* store_health() */
	const char *doubt_text;		/* static: what became of the rows before; NULL = nothing */
	int64_t doubt_at_ms;
};
/* Sandboxes of one uid, or of all with (uid_t)-1; the rest is the daemon's. */
void life_count(const struct life *l, uid_t uid, struct life_counts *ret);

/* Before done: done will not come. What was sent is not undone. NULL is fine. */
void life_cancel(struct life_op *op);

typedef void life_box_fn(void *user, const struct status *st, const struct life_sandbox *box);
typedef void life_bool_fn(void *user, const struct status *st, bool yes);

must_check int life_create(struct life *l, const struct life_create *c, life_box_fn *done, void *user,
			   struct life_op **ret);

struct life_connect {
	const struct principal *who;
	uint64_t deadline_ms;
	const char *sandbox;		/* id or name */
	uint64_t timeout_ms;		/* 0 = 300 s; never shortens */
	bool adopt;			/* also one that carries another host's tag */
	bool wait_ready;
	bool process_lease;
};
must_check int life_connect(struct life *l, const struct life_connect *c, life_box_fn *done, void *user,
			    struct life_op **ret);

#define LIFE_STALENESS_DEFAULT UINT64_MAX
must_check int life_get(struct life *l, const struct principal *who, const char *sandbox,
			uint64_t max_staleness_ms, uint64_t deadline_ms, life_box_fn *done, void *user,
			struct life_op **ret);

must_check int life_set_timeout(struct life *l, const struct principal *who, const char *sandbox,
				uint64_t timeout_ms, uint64_t deadline_ms, life_box_fn *done, void *user,
				struct life_op **ret);

/* Changes the fields of `change`; those of the mask `reset` (BIT(enum policy_field)) go back to the
 * configured defaults. */
must_check int life_set_policy(struct life *l, const struct principal *who, const char *sandbox,
			       const struct policy_change *change, uint32_t reset, uint64_t deadline_ms,
			       life_box_fn *done, void *user, struct life_op **ret);
/* yes = it runs no longer because of this; false: it was paused already. */
must_check int life_pause(struct life *l, const struct principal *who, const char *sandbox,
			  bool keep_memory, uint64_t deadline_ms, life_bool_fn *done, void *user,
			  struct life_op **ret);

/* Replaces the egress settings as a whole; network NULL = none of them. allow_internet_access -1 =
 * as it is. */
must_check int life_update_network(struct life *l, const struct principal *who, const char *sandbox,
				   const struct cloud_network *network, int allow_internet_access,
				   uint64_t deadline_ms, life_bool_fn *done, void *user,
				   struct life_op **ret);

struct life_metrics {
	const struct cloud_metrics *metrics;
	enum life_source source;
	int64_t as_of_ms;
};
typedef void life_metrics_fn(void *user, const struct status *st, const struct life_metrics *m);
/* Moments in s since 1970; 0 = the sandbox's start, now. */
must_check int life_get_metrics(struct life *l, const struct principal *who, const char *sandbox,
				int64_t start_s, int64_t end_s, uint64_t deadline_ms,
				life_metrics_fn *done, void *user, struct life_op **ret);

struct life_fork {
	const struct principal *who;
	uint64_t deadline_ms;
	const char *request_id;		/* as in life_create */
	uint8_t params_hash[32];
	const char *sandbox;
	uint32_t count;			/* 0 = 1; at most 100 */
	uint64_t timeout_ms;		/* of the children; 0 = 300 s */
	struct policy_change policy;	/* of the children: what differs from the configured one */
};
struct life_child {
	const struct life_sandbox *box;	/* NULL: st says why there is none */
	const struct status *st;
};
typedef void life_fork_fn(void *user, const struct status *st, const struct life_child *children, size_t n);
must_check int life_fork(struct life *l, const struct life_fork *f, life_fork_fn *done, void *user,
			 struct life_op **ret);

/* yes = found: it existed and is gone now. */
must_check int life_kill(struct life *l, const struct principal *who, const char *sandbox,
			 uint64_t deadline_ms, life_bool_fn *done, void *user, struct life_op **ret);

/* Asks the agent inside, not the record. */
must_check int life_is_running(struct life *l, const struct principal *who, const char *sandbox,
			       uint64_t deadline_ms, life_bool_fn *done, void *user,
			       struct life_op **ret);

struct life_page {
	const struct life_sandbox *boxes;
	size_t n;
	const char *next_page_token;	/* "" = the end */
	enum life_source source;
	int64_t as_of_ms;
};
typedef void life_list_fn(void *user, const struct status *st, const struct life_page *page);
must_check int life_list(struct life *l, const struct life_list *q, life_list_fn *done, void *user,
			 struct life_op **ret);

struct life_host {
	const char *host;		/* "3000-ID.DOMAIN" */
	const char *url;		/* with scheme */
	const char *traffic_token;	/* "" = public */
	const char *token_header;
};
typedef void life_host_fn(void *user, const struct status *st, const struct life_host *host);
must_check int life_get_host(struct life *l, const struct principal *who, const char *sandbox,
			     uint32_t port, uint64_t deadline_ms, life_host_fn *done, void *user,
			     struct life_op **ret);

/* --- leases --- */

struct life_lease {
	const char *id, *sandbox, *label;
	uid_t uid;
	pid_t pid;			/* 0 = unknown */
	int64_t expires_at_ms;		/* wall; 0 = held */
	int64_t sandbox_end_at_ms;
};
typedef void life_lease_fn(void *user, const struct status *st, const struct life_lease *lease);

enum life_lease_kind {
	LIFE_LEASE_STREAM = 1,	/* until life_held_free() */
	LIFE_LEASE_PROCESS = 2,	/* until the caller's process dies */
	LIFE_LEASE_TTL = 3,
};

struct life_acquire {
	const struct principal *who;
	uint64_t deadline_ms;
	const char *sandbox;
	const char *label;		/* NULL or "" = none; at most 128 bytes */
	const char *lease_id;		/* NULL or "" = a new one; else that one again */
	enum life_lease_kind kind;
	uint64_t ttl_ms;
};
/* A lease of a stream ends unless life_held_new() is called from inside `done`. */
must_check int life_acquire(struct life *l, const struct life_acquire *a, life_lease_fn *done, void *user,
			    struct life_op **ret);
must_check int life_renew(struct life *l, const struct principal *who, const char *lease_id, uint64_t ttl_ms,
			  uint64_t deadline_ms, life_lease_fn *done, void *user, struct life_op **ret);
/* yes = it was held until now. */
must_check int life_release(struct life *l, const struct principal *who, const char *lease_id,
			    uint64_t deadline_ms, life_bool_fn *done, void *user, struct life_op **ret);

struct life_lease_page {
	const struct life_lease *leases;
	size_t n;
	const char *next_page_token;
};
typedef void life_leases_fn(void *user, const struct status *st, const struct life_lease_page *page);
/* Of the caller; with `sandbox`: all of that one. */
must_check int life_list_leases(struct life *l, const struct principal *who, const char *sandbox,
				uint32_t page_size, const char *page_token, uint64_t deadline_ms,
				life_leases_fn *done, void *user, struct life_op **ret);

struct life_held;		/* a lease in the hands of a stream */
enum life_held_news {
	LIFE_HELD_CHANGED,	/* the sandbox has another end */
	LIFE_HELD_LOST,		/* it is over, for the reason in st; only life_held_free() may follow */
};
typedef void life_held_fn(void *user, enum life_held_news news, const struct status *st,
			  const struct life_lease *lease);
/* From inside the done of life_acquire(). */
must_check int life_held_new(struct life *l, const char *lease_id, life_held_fn *fn, void *user,
			     struct life_held **ret);
bool life_held_view(const struct life_held *h, struct life_lease *ret);	/* false: it is lost */
/* The stream ended. `keep`: because of us (we are stopping); its holder has restart_grace. */
void life_held_free(struct life_held *h, bool keep);
/* For processes that are known by their connection alone. */
void life_connection_ended(struct life *l, const struct principal *who);

/* --- events --- */

#define LIFE_EVIDENCE_MAX 12u

struct life_event {
	const char *cursor;		/* "" where no watcher may go on from (inside a resync) */
	int64_t at_ms;			/* wall */
	int type;			/* agentbox.v1.SandboxEvent.Type */
	const struct life_sandbox *box;	/* NULL: of no sandbox */
	enum ab_reason reason;
	struct life_pair evidence[LIFE_EVIDENCE_MAX];
	size_t n_evidence;
};
struct life_watch;
typedef void life_watch_fn(void *user);

struct life_watch_options {
	const struct principal *who;
	const char *cursor;		/* NULL or "" = from now */
	const char *sandbox;		/* NULL or "" = all */
	bool initial, all_owners;
	uint32_t types;			/* BIT(type); 0 = all. Resync is always told */
};
/* 0; -EINVAL with *ret_st; -ENOMEM. `news` says that there is something to read, never from inside. */
must_check int life_watch_new(struct life *l, const struct life_watch_options *o, life_watch_fn *news,
			      void *user, struct life_watch **ret, struct status *ret_st);
/* The next one; valid until the next call. False: none for now, news will come. What the watcher does
 * not read in time is replaced by a resync: nothing is kept for it. */
bool life_watch_next(struct life_watch *w, struct life_event *ret);
/* It tells no more, for the reason in *ret_st: free it. */
bool life_watch_is_over(const struct life_watch *w, struct status *ret_st);
void life_watch_heartbeat(struct life_watch *w, struct life_event *ret);
struct life_watch *life_watch_free(struct life_watch *w);	/* NULL is fine; returns NULL */
/* --- snapshots --- */

struct life_snapshot {
	const char *id;
	const char *const *names;
	size_t n_names;
	const char *source_sandbox;	/* "" = not known */
	int64_t created_at_ms;		/* 0 = not known */
	enum life_source source;
	int64_t as_of_ms;
};

struct life_snapshot_create {
	const struct principal *who;
	uint64_t deadline_ms;
	const char *request_id;
	uint8_t params_hash[32];
	const char *sandbox;
	const char *name;		/* NULL or "" = none */
};
typedef void life_snapshot_fn(void *user, const struct status *st, const struct life_snapshot *s);
must_check int life_snapshot_create(struct life *l, const struct life_snapshot_create *c,
				    life_snapshot_fn *done, void *user, struct life_op **ret);

struct life_snapshot_list {
	const struct principal *who;
	uint64_t deadline_ms;
	const char *sandbox, *name;	/* NULL or "" = any */
	uint32_t page_size;
	const char *page_token;
	bool cached;
};
struct life_snapshot_page {
	const struct life_snapshot *snapshots;
	size_t n;
	const char *next_page_token;
};
typedef void life_snapshots_fn(void *user, const struct status *st, const struct life_snapshot_page *p);
must_check int life_list_snapshots(struct life *l, const struct life_snapshot_list *q,
				   life_snapshots_fn *done, void *user, struct life_op **ret);

/* yes = found. All builds of the snapshot's template go with it. */
must_check int life_delete_snapshot(struct life *l, const struct principal *who, const char *snapshot,
				    uint64_t deadline_ms, life_bool_fn *done, void *user,
				    struct life_op **ret);

/* --- for command and file services --- */

/* A command of ours runs in it, or no longer does: that is use. Pairs. */
void life_use_begin(struct life *l, const char *account, const char *id);
void life_use_end(struct life *l, const char *account, const char *id);

/* Told on each edge of a sandbox's state, from inside whatever made it: the listener must not call back
 * into this module before the next pass. One listener. */
typedef void life_state_fn(void *user, const char *account, const char *id, enum life_state to);
void life_listen(struct life *l, life_state_fn *fn, void *user);

typedef void life_target_fn(void *user, const struct status *st, const struct life_target *t);
/* Id or name → where its agent is. Asks the cloud when the token is not known. A paused one is
 * SANDBOX_PAUSED, one that ended its own reason; nothing is woken. */
must_check int life_resolve(struct life *l, const struct principal *who, const char *sandbox,
			    uint64_t deadline_ms, life_target_fn *done, void *user,
			    struct life_op **ret);

enum life_evidence {
	LIFE_SAW_ABSENT,	/* 502 "sandbox not found" of the edge */
	LIFE_SAW_REFUSED,	/* 401/403 of the agent: token wrong or rotated */
	LIFE_SAW_LOST,		/* no connection, or a stream that ended without its end marker */
};
/* Something about a sandbox does not fit "running": asks the control plane and says what is true.
 * OK = it says running (target with a fresh token: try again, or report your own failure as a
 * transport failure); else SANDBOX_EXPIRED, _KILLED, _GONE, _PAUSED, _NOT_FOUND or UNREACHABLE.
 * Equal questions share one request to the cloud. */
must_check int life_note_evidence(struct life *l, const char *account, const char *id,
				  enum life_evidence what, uint64_t deadline_ms, life_target_fn *done,
				  void *user, struct life_op **ret);

#endif
