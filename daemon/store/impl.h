/* SPDX-License-Identifier: MIT */
/* The inside of the store, for store.c, load.c, writer.c, tx.c, export.c and claims.c only. */
#ifndef AB_DAEMON_STORE_IMPL_H
#define AB_DAEMON_STORE_IMPL_H

#include <stdbool.h>

#include "daemon/common/ev/loop.h"
#include "daemon/common/ev/worker.h"
#include "daemon/store/backup.h"
#include "daemon/store/change.h"
#include "daemon/store/claims.h"
#include "daemon/store/db.h"
#include "daemon/store/dir.h"
#include "daemon/store/hostid.h"
#include "daemon/store/sent.h"
#include "daemon/store/store.h"
#include "daemon/store/table.h"

#define STORE_MAGIC	0x53746f72u

/* Where store_settle() is. */
enum store_settle {
	SETTLE_NONE,
	SETTLE_COPY,	/* the second copy is brought up to date */
	SETTLE_LOG,	/* the log's pages go into the database file */
	SETTLE_OVER,
};

struct store {
	uint32_t magic;
	struct loop *loop;
	struct state_dir dir;
	struct db db;
	struct worker *worker;
	struct hostid file;	/* content of host-id; the worker's while it runs */
	char host[HOSTID_LEN + 1];
	uint64_t next;		/* store_next_seq() gives it next */
	uint64_t reserved;	/* durable: every number given is <= this */
	uint64_t first;		/* the first number of this run */
	uint64_t recorded;	/* the highest number that the rows knew at the start */
	struct sent sent;
	bool reserving, muted, closing;
	enum store_doubt doubt;
	struct status health;
	struct store_totals totals;
	char incarnation[33];
	unsigned n_refused;	/* rows that store_load() refused */
	char refused_text[240];

	/* The second copy. `backup` is the worker's, the other members are the loop's. */
	struct timer backup_timer;
	struct store_tx *backup_job;	/* under way; NULL = none */
	struct backup backup;
	uint64_t backup_over_ms;	/* BOOTTIME of the end of the last one; 0 = none in this run */
	int64_t backup_at_ms;		/* wall: age of the copy; 0 = none */
	bool changed;			/* since the copy was begun */
	uint64_t backup_lacks;		/* bytes of changes that were committed since then */
	bool backup_failed;		/* the last one failed, which was logged */
	bool backup_follows;		/* the next one applies changes, as far as the loop knows */
	enum store_settle settle;
	bool settled_copy;		/* store_settle() has brought it up to date */
	struct backup export;		/* the worker's: a copy for a caller that is being made */
	struct store_export *exporting;	/* there is one; NULL = none */
	int claims_fd;			/* the worker's; -1 = not open */
	uint64_t rescue_at_ms;		/* the worker's, BOOTTIME: rescue() does nothing before it */
	_Atomic int64_t unlinked_at_ms;	/* store_unlinked_at_ms() */
};

enum tx_kind {
	TX_CHANGES,
	TX_RESERVE,	/* write `reserve` into host-id */
	TX_BACKUP,	/* a step of the second copy */
	TX_CHECKPOINT,	/* pages of the log into the database file */
	TX_GET,		/* read a row */
	TX_EXPORT,	/* a step of a copy for a caller; in a struct store_export */
};

struct store_tx {
	struct job job;
	struct store *store;
	enum tx_kind kind;
	struct changes changes;
	struct buf claims;	/* lines of claims.h, to be written after the commit */
	bool claims_anew;	/* these lines replace the file */
	int claims_error;	/* -errno of writing them; 0 = none */
	bool durable;
	uint64_t committed_us;	/* BOOTTIME of store_tx_commit() */
	uint64_t reserve;	/* RESERVE: hostid.reserved to be */
	int rc, sys_errno;	/* outcome, set by the writer: an SQLite code; of RESERVE, BACKUP and EXPORT 0, 1 or -errno */
	store_done_fn *done;
	void *user;
	struct read *read;	/* GET; owned */
};

/* A row that is to be read by its key, which is in store_tx.changes. */
struct read {
	enum row_table table;
	bool found;
	union row row;		/* owned, if found */
	store_request_fn *on_request;
	store_command_request_fn *on_command_request;
};

/* tx.c */
void tx_free(struct store_tx *t);
void tx_put_meta(struct store_tx *t, const char *key, const char *value);

/* export.c, on the worker's thread: a part of the copy. 0 = more to do, 1 = done, -errno. */
#define EXPORT_FILE "export.db"	/* until it is whole */
must_check int export_some(struct store *s, struct store_tx *t);

/* writer.c */
void writer_on_reserved(struct job *j);	/* job.done of RESERVE, CHANGES and GET */
void writer_on_written(struct job *j);
void writer_on_read(struct job *j);
void writer_on_backup_timer(struct timer *t, void *user);
void writer_settle(struct store *s);
/* When the worker has ended: brings the second copy up to date. */
void writer_finish(struct store *s);

#endif
