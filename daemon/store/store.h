/* SPDX-License-Identifier: MIT */
/*
 * Durable state: one SQLite file, one connection, used by one thread (the loop's until
 * store_start(), the worker's after it). Changes are handed over as a transaction object that commits as a
 * whole; transactions that arrive during a commit share the next one. `done` comes on the loop, in the order
 * of store_tx_commit(); after an OK the change survives kill -9 and, if durable, power loss.
 *
 * Files in STATE/: lock (flock of the running daemon, its pid inside), agentboxd.db (0600), backup.db (the
 * second copy, at most a minute behind), host-id (host id and highest sequence) and claims (to whom a claimed
 * sandbox belongs), which are outside the database so that they survive its loss, and sent (intents that may have been
 * sent: sent.h).
 */
#ifndef AB_DAEMON_STORE_STORE_H
#define AB_DAEMON_STORE_STORE_H

#include <stdbool.h>

#include "daemon/common/obs/histogram.h"
#include "daemon/common/obs/tally.h"
#include "daemon/store/row.h"
#include "daemon/store/sent.h"
#include "proto/base/cc.h"
#include "proto/base/status.h"

struct loop;
struct store;
struct store_tx;

enum store_open_result {
	STORE_OPENED = 0,
	STORE_NOT_OURS = 65,	/* store_restore(): no sound backup of this daemon: EX_DATAERR */
	STORE_BUSY = 75,	/* another daemon holds the state directory: EX_TEMPFAIL */
	STORE_UNSAFE = 77,	/* a symlink, another owner, too open modes: EX_NOPERM */
	STORE_TOO_NEW = 78,	/* written by a newer version: EX_CONFIG */
	STORE_BROKEN = 74,	/* cannot be made usable: EX_IOERR */
};

struct store_options {
	struct loop *loop;
	const char *state_dir;	/* made 0700 if missing */
	int64_t now_wall_ms;	/* for the names of files that are moved aside */
	bool no_clone_check;	/* a directory that was made on another machine or copied is used as our own */
	const char *boot;	/* boot id of the machine (process_boot()); NULL or "": store_sent() knows nothing */
};

/* How far the rows can be relied on; in the database as a number: never renumber. */
enum store_doubt {
	STORE_SURE = 0,		/* they have all that was ever answered */
	STORE_FROM_BACKUP = 1,	/* the changes of the last minute may be missing */
	STORE_OLD = 2,		/* an earlier state was put back: what they say may be long over */
	STORE_LOST = 3,		/* all rows of earlier runs were lost */
};

/* What was found at the start. Also logged. */
struct store_report {
	char why[256];			/* of a failure; one sentence that names path and cause */
	int schema_found, schema_known;
	pid_t holder;			/* with STORE_BUSY; 0 = unknown */
	bool created;			/* there was no database */
	enum store_doubt doubt;
	char was_host[32];		/* host id of the original if the directory is a copy of another's; "" = it is not */
	char moved_aside[256];		/* path of a database that was not used; "" = none */
	bool network_fs;		/* the directory is on one: no WAL */
};

/* A failure's value is the exit code of the daemon. */
must_check enum store_open_result store_open(const struct store_options *o, struct store_report *ret_report,
					     struct store **ret);

/* A refused row: one in the database with a required value out of its bounds. It stays there, and is found at each start,
 * until a row with its key is put or it is deleted. Members that cannot be read are "" or 0. */
struct store_refused {
	enum row_table table;
	const char *column;		/* the one that is out of bounds */
	const char *key;		/* for people */
	const char *account, *sandbox;	/* the sandbox that it is about; "" = none, or not known */
	uint64_t seq;			/* of an intent or a copy */
};

/* A function for each table: called for every row, in the order in which rows were last put (sandboxes and leases: first put). */
struct store_visitor {
	void *user;
	/* May be NULL. Before the rows of a table: there are so many. */
	void (*begins)(enum row_table table, size_t n_rows, void *user);
	void (*refused)(const struct store_refused *r, void *user);
#define TABLE_BEGIN(table) void (*table)(const struct row_##table *r, void *user);
#include "daemon/store/rows/tables.def"
};

/* Visits every row of the tables that have a function. Before store_start(). A refused row is no failure,
 * and nothing is deleted for it. */
must_check int store_load(struct store *s, const struct store_visitor *v);

/* To whom a claimed warm sandbox belongs. */
struct store_claim {
	const char *account, *sandbox;
	uid_t uid;
	int64_t at_ms;			/* wall */
	const char *name, *request_id;	/* "" = none */
	uint8_t params_hash[ROW_HASH_BYTES];	/* of the request */
	const char *policy;		/* text form */
};
typedef void store_claim_fn(const struct store_claim *c, void *user);
/* Visits every claim on record, the oldest first. Before store_start(). */
must_check int store_load_claims(struct store *s, store_claim_fn *fn, void *user);
/* Starts the worker: transactions may be committed from now on, and nothing is read but by store_get_…(). */
must_check int store_start(struct store *s);
/* From now on no done is called, as their users are being freed. What is queued is committed. */
void store_mute(struct store *s);
/* After store_start(), once, for a stop that still serves: on the thread the second copy gets what it lacks, and the database file what only the log of SQLite has. So
 * that nobody waits for the disk, store_close() leaves to the next start what is committed after it and the copy lacks. */
void store_settle(struct store *s);
bool store_is_settled(const struct store *s);	/* that is over; false before store_settle() */
/* Commits what is queued, calls every done, closes. NULL is fine; returns NULL. */
struct store *store_close(struct store *s);

const char *store_host_id(const struct store *s);
/* What store_tx_put_key_print() has stored for this account, heap; NULL = nothing. Before store_start(). */
char *store_key_print(struct store *s, const char *account);
/* Id of the database, new for each new one: numbers of events mean something only within it. */
const char *store_incarnation(const struct store *s);
enum store_doubt store_doubt(const struct store *s);
/* The rows turned out to be old: makes a new id, so that watchers of events begin anew. */
void store_new_incarnation(struct store *s);
/* Wall clock of the second copy; 0 = there is none yet. */
int64_t store_backup_at_ms(const struct store *s);
/* Wall clock when the open database file was found removed or replaced; 0 = never. The rows were written to a new file. */
int64_t store_unlinked_at_ms(const struct store *s);
/* The next number of an intent. They only rise, and none is given twice, not even after a loss of the database. -EAGAIN
 * while the next block of numbers is not durable (disk full): nothing may be sent without one. */
must_check int store_next_seq(struct store *s, uint64_t *ret);
/* May this number have been given by the runs that the rows know of, or by this one? */
bool store_knows_seq(const struct store *s, uint64_t seq);
bool store_gave_seq(const struct store *s, uint64_t seq);	/* in this run */
/* Call it before the first byte of an intent's request: without a record it counts as never sent. -errno: it must not be sent. */
must_check int store_put_sent(struct store *s, uint64_t seq);
/* Was the intent of an earlier run sent? *ret_at_ms with SENT_MAYBE: when, BOOTTIME. */
enum sent_known store_sent(const struct store *s, uint64_t seq, uint64_t *ret_at_ms);
void store_forget_sent(struct store *s);	/* store_sent() is called no more: frees its records */
/* A sandbox of ours carries this number: ours go on above it, as they may have gone back with a restored directory. */
void store_seen_seq(struct store *s, uint64_t seq);

/* OK, or STORE_FULL / STORE_READONLY / BUG while the last commit failed with it. */
const struct status *store_health(const struct store *s);

struct store_totals {			/* of commits, since the start */
	struct histogram durable, others;	/* us from store_tx_commit() until done, of synced ones and of others */
	struct tally ends;
};
const struct store_totals *store_totals(const struct store *s);

typedef void store_done_fn(void *user, const struct status *st);

/* Reads a row by its key, as it is after all transactions that were committed before. r NULL: there is none, or st says why that is
 * not known; *r is valid until `done` returns, which comes exactly once and never from inside. -ENOMEM: `done` does not come. */
typedef void store_request_fn(void *user, const struct status *st, const struct row_request *r);
must_check int store_get_request(struct store *s, uid_t uid, const char *method, const char *request_id, store_request_fn *done,
				 void *user);
typedef void store_command_request_fn(void *user, const struct status *st, const struct row_command_request *r);
must_check int store_get_command_request(struct store *s, uid_t uid, const char *method, const char *request_id,
					 store_command_request_fn *done, void *user);

/* Refused rows as one sentence that names them; "" = there are none. */
const char *store_refused_text(const struct store *s);

/* A transaction; what is put into it is copied. If one change is not possible (no memory, a row that would be refused
 * when it is read), the commit fails and none is made. */
must_check int store_tx_new(struct store *s, struct store_tx **ret);
void store_tx_put_sandbox(struct store_tx *t, const struct row_sandbox *r);
void store_tx_del_sandbox(struct store_tx *t, const char *account, const char *id);
/* The doubt was dealt with: store_doubt() is SURE at the next start. */
void store_tx_sure(struct store_tx *t);
void store_tx_put_intent(struct store_tx *t, const struct row_intent *r);
void store_tx_del_intent(struct store_tx *t, uint64_t seq);
void store_tx_put_request(struct store_tx *t, const struct row_request *r);
void store_tx_del_request(struct store_tx *t, uid_t uid, const char *method, const char *request_id);
/* Deletes request ids with a known outcome whose sandbox has no row, or is in state `gone`: those that were not used after
 * used_before_ms and whose sandbox ended by gone_before_ms, and of one uid, which has most of them above `keep`, the oldest above it. */
struct store_prune {
	int gone;		/* enum sandbox_state */
	uint32_t keep;
	int64_t used_before_ms, gone_before_ms;	/* wall */
};
void store_tx_prune_requests(struct store_tx *t, const struct store_prune *p);
/* The same for request ids of commands without a row, by `keep` and used_before_ms alone. */
void store_tx_prune_command_requests(struct store_tx *t, const struct store_prune *p);
void store_tx_put_name(struct store_tx *t, const struct row_name *r);
void store_tx_del_name(struct store_tx *t, uid_t uid, const char *name);
void store_tx_put_lease(struct store_tx *t, const struct row_lease *r);
void store_tx_del_lease(struct store_tx *t, const char *id);
void store_tx_del_leases(struct store_tx *t, const char *account, const char *sandbox);	/* all of a sandbox */
void store_tx_put_event(struct store_tx *t, const struct row_event *r);
/* All of the uid's up to this seq. */
void store_tx_del_events(struct store_tx *t, uid_t uid, uint64_t seq);
void store_tx_put_command(struct store_tx *t, const struct row_command *r);
void store_tx_del_command(struct store_tx *t, const char *id);
void store_tx_put_command_request(struct store_tx *t, const struct row_command_request *r);
void store_tx_del_command_request(struct store_tx *t, uid_t uid, const char *method,
				  const char *request_id);
void store_tx_put_copy(struct store_tx *t, const struct row_copy *r);
void store_tx_del_copy(struct store_tx *t, uint64_t seq);
void store_tx_put_snapshot(struct store_tx *t, const struct row_snapshot *r);
void store_tx_del_snapshot(struct store_tx *t, const char *account, const char *id);
void store_tx_put_warm(struct store_tx *t, const struct row_warm *r);
void store_tx_del_warm(struct store_tx *t, const char *name);
void store_tx_put_owner(struct store_tx *t, const struct row_owner *r);
void store_tx_del_owner(struct store_tx *t, uid_t number);
void store_tx_put_template(struct store_tx *t, const struct row_template *r);
void store_tx_del_template(struct store_tx *t, const char *account, const char *id);
/* Puts the claim on record in STATE/claims, synced, after the commit and before `done`. If that fails, `done` gets the failure although
 * the rows are committed: then the sandbox must be given to nobody. */
void store_tx_claim(struct store_tx *t, const struct store_claim *c);
/* The claims of this transaction replace all that are on record. */
void store_tx_claims_anew(struct store_tx *t);
void store_tx_put_gateway_token(struct store_tx *t, const struct row_gateway_token *r);
void store_tx_del_gateway_token(struct store_tx *t, const char *id);
/* A hash of the key that the account's rows were made with. */
void store_tx_put_key_print(struct store_tx *t, const char *account, const char *print);
/* Hands `t` over to the worker. `durable`: synced to the disk before `done`, which may be NULL; else it comes
 * exactly once, never from inside. */
void store_tx_commit(struct store_tx *t, bool durable, store_done_fn *done, void *user);
void store_tx_drop(struct store_tx *t);

#endif
