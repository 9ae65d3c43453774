/* SPDX-License-Identifier: MIT */
/*
 * Durable state: one SQLite file, one connection, used by one thread (the loop's until
 * store_start(), the worker's after it). Changes travel as a transaction object that commits as a
 * whole; those that arrive while one is written share the next commit. `done` comes on the loop, in the order
 * of store_tx_commit(); after an OK the change survives kill -9 and, if durable, power loss.
 *
 * STATE/ holds: lock (flock of the running daemon, its pid inside), agentboxd.db (0600), backup.db (its
 * second copy, at most a minute behind), host-id (host id and highest sequence) and claims (whose a claimed
 * sandbox is): both are outside the database on purpose, they survive the loss of it; sent (whose requests may have
 * left: sent.h).
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
	STORE_BUSY = 75,	/* another daemon holds the state directory: EX_TEMPFAIL */
	STORE_UNSAFE = 77,	/* a symlink, another owner, too open modes: EX_NOPERM */
	STORE_TOO_NEW = 78,	/* written by a newer version: EX_CONFIG */
	STORE_BROKEN = 74,	/* cannot be made usable: EX_IOERR */
};

struct store_options {
	struct loop *loop;
	const char *state_dir;	/* made 0700 if missing */
	int64_t now_wall_ms;	/* names of files that are moved aside */
	bool no_clone_check;	/* the directory may come from elsewhere and is ours all the same */
	const char *boot;	/* the machine's (process_boot()); NULL or "": of what was not sent nothing is proven */
};

/* What the rows are worth; in the database as a number: never renumber. */
enum store_doubt {
	STORE_SURE = 0,		/* all that was ever answered is in them */
	STORE_FROM_BACKUP = 1,	/* the last minute may be missing */
	STORE_OLD = 2,		/* an earlier state was put back: what they say may be long over */
	STORE_LOST = 3,		/* there were some, and there are none */
};

/* What there was to say at start. Also logged. */
struct store_report {
	char why[256];			/* of a failure; one sentence that names path and cause */
	int schema_found, schema_known;
	pid_t holder;			/* with STORE_BUSY; 0 = unknown */
	bool created;			/* there was no database */
	enum store_doubt doubt;
	char was_host[32];		/* the directory is a copy: the host id of its original; "" = it is not */
	char moved_aside[256];		/* a database that is not used went here; "" = none */
	bool network_fs;		/* no WAL there */
};

/* The value of a failure is the exit code that belongs to it. */
must_check enum store_open_result store_open(const struct store_options *o, struct store_report *ret_report,
					     struct store **ret);

/* A row that was found and is not believed. It stays where it is, and comes again with each start, until
 * another with its key takes its place or it is deleted. Members that cannot be read are "" or 0. */
struct store_refused {
	enum row_table table;
	const char *column;		/* what is wrong with it */
	const char *key;		/* for people */
	const char *account, *sandbox;	/* what it is about; "" = no sandbox, or not known which */
	uint64_t seq;			/* of an intent or a copy */
};

/* A function for each table: called for every row, in the order they were written. */
struct store_visitor {
	void *user;
	void (*refused)(const struct store_refused *r, void *user);
#define TABLE_BEGIN(table) void (*table)(const struct row_##table *r, void *user);
#include "daemon/store/rows/tables.def"
};

/* Every row of the tables that have a function, before store_start(). A row that is refused is never fatal,
 * and nothing is deleted for it. */
must_check int store_load(struct store *s, const struct store_visitor *v);

/* Whose a sandbox is that was ready before it was asked for. */
struct store_claim {
	const char *account, *sandbox;
	uid_t uid;
	int64_t at_ms;			/* wall */
	const char *name, *request_id;	/* "" = none */
	uint8_t params_hash[ROW_HASH_BYTES];	/* of the request */
	const char *policy;		/* text form */
};
typedef void store_claim_fn(const struct store_claim *c, void *user);
/* Every claim that is on record, the oldest first. Before store_start(). */
must_check int store_load_claims(struct store *s, store_claim_fn *fn, void *user);
must_check int store_start(struct store *s);
/* From now on no done is called: whoever they belonged to is going. What is queued is committed. */
void store_mute(struct store *s);
/* Commits what is queued, calls every done, closes. NULL is fine; returns NULL. */
struct store *store_close(struct store *s);

const char *store_host_id(const struct store *s);
/* What was last put beside this account's rows, heap; NULL = nothing. Before store_start(). */
char *store_key_print(struct store *s, const char *account);
/* Another one for each new database: numbers of events mean something only within it. */
const char *store_incarnation(const struct store *s);
enum store_doubt store_doubt(const struct store *s);
/* Rows that went back: whoever reads events begins anew. Durable with the next commit. */
void store_new_incarnation(struct store *s);
/* Wall clock of the second copy; 0 = there is none yet. */
int64_t store_backup_at_ms(const struct store *s);
/* The database file lost its name while it was open, at this moment (wall); 0 = never. The rows went on. */
int64_t store_unlinked_at_ms(const struct store *s);
/* Raised for ever, never given twice, also across loss of the database. -EAGAIN while the next
 * block of numbers could not be made durable (disk full): nothing may be sent without one. */
must_check int store_next_seq(struct store *s, uint64_t *ret);
/* Was this number, on a sandbox without a row, given by what the rows remember or by this run? */
bool store_knows_seq(const struct store *s, uint64_t seq);
bool store_gave_seq(const struct store *s, uint64_t seq);	/* in this run */
/* Before the first byte of an intent's request: what has no record was never sent. -errno: it must not be sent. */
must_check int store_put_sent(struct store *s, uint64_t seq);
/* Of an intent of an earlier run. *ret_at_ms with SENT_MAYBE: since when, BOOTTIME. */
enum sent_known store_sent(const struct store *s, uint64_t seq, uint64_t *ret_at_ms);
void store_forget_sent(struct store *s);	/* that is asked no more */
/* Highest number that an adopted sandbox carries: ours go on above it (a restored backup). */
void store_seen_seq(struct store *s, uint64_t seq);

/* OK, or STORE_FULL / STORE_READONLY / BUG while the last commit failed with it. */
const struct status *store_health(const struct store *s);

struct store_totals {			/* of commits, since the start */
	struct histogram durable, others;	/* from the call to the word that it is done, by whether it was synced */
	struct tally ends;
};
const struct store_totals *store_totals(const struct store *s);

typedef void store_done_fn(void *user, const struct status *st);

/* A row by its key, as all that was handed over before leaves it. r NULL: there is none, or st says why that is not known; it is valid
 * until `done` returns, which comes exactly once and never from inside. -ENOMEM: it does not come. */
typedef void store_request_fn(void *user, const struct status *st, const struct row_request *r);
must_check int store_get_request(struct store *s, uid_t uid, const char *method, const char *request_id, store_request_fn *done,
				 void *user);
typedef void store_command_request_fn(void *user, const struct status *st, const struct row_command_request *r);
must_check int store_get_command_request(struct store *s, uid_t uid, const char *method, const char *request_id,
					 store_command_request_fn *done, void *user);

/* Refused rows as one sentence that names them; "" = there are none. */
const char *store_refused_text(const struct store *s);

/* Changes of one transaction; all are copied. Where one cannot be made (no memory, a row that would be refused
 * when it is read), the commit fails and none is. */
must_check int store_tx_new(struct store *s, struct store_tx **ret);
void store_tx_put_sandbox(struct store_tx *t, const struct row_sandbox *r);
void store_tx_del_sandbox(struct store_tx *t, const char *account, const char *id);
/* The rows are as they should be: store_doubt() is SURE at the next start. */
void store_tx_sure(struct store_tx *t);
void store_tx_put_intent(struct store_tx *t, const struct row_intent *r);
void store_tx_del_intent(struct store_tx *t, uint64_t seq);
void store_tx_put_request(struct store_tx *t, const struct row_request *r);
void store_tx_del_request(struct store_tx *t, uid_t uid, const char *method, const char *request_id);
/* Of each uid those beyond the `keep` that were used last, and those last used before a moment; never those of a sandbox that is not in
 * the state `gone`, or went after gone_before_ms. */
struct store_prune {
	int gone;
	uint32_t keep;
	int64_t used_before_ms, gone_before_ms;
};
void store_tx_prune_requests(struct store_tx *t, const struct store_prune *p);
/* The same, never those of a command that has a row; the members about sandboxes are not looked at. */
void store_tx_prune_command_requests(struct store_tx *t, const struct store_prune *p);
void store_tx_put_name(struct store_tx *t, const struct row_name *r);
void store_tx_del_name(struct store_tx *t, uid_t uid, const char *name);
void store_tx_put_lease(struct store_tx *t, const struct row_lease *r);
void store_tx_del_lease(struct store_tx *t, const char *id);
void store_tx_del_leases(struct store_tx *t, const char *account, const char *sandbox);	/* all of a sandbox */
void store_tx_put_event(struct store_tx *t, const struct row_event *r);
/* All of the uid's up to this one. */
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
/* Goes on record, synced, when the transaction is committed and before its done. Where it does not, done has the failure, and the
 * transaction is committed all the same: whoever gets that gives nothing away. */
void store_tx_claim(struct store_tx *t, const struct store_claim *c);
/* The claims of this transaction take the place of all that are on record. */
void store_tx_claims_anew(struct store_tx *t);
void store_tx_put_gateway_token(struct store_tx *t, const struct row_gateway_token *r);
void store_tx_del_gateway_token(struct store_tx *t, const char *id);
/* Which key the account's rows belong to: a print, from which the key cannot be had. */
void store_tx_put_key_print(struct store_tx *t, const char *account, const char *print);
/* Hands it over. `durable`: synced to the disk before done. done may be NULL; else it comes
 * exactly once, never from inside. */
void store_tx_commit(struct store_tx *t, bool durable, store_done_fn *done, void *user);
void store_tx_drop(struct store_tx *t);

#endif
