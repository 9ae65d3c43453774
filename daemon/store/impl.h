/* SPDX-License-Identifier: MIT */
/* Inside of the store, for store.c, load.c, writer.c and tx.c only. */
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

struct store {
	uint32_t magic;
	struct loop *loop;
	struct state_dir dir;
	struct db db;
	struct worker *worker;
	struct hostid file;	/* what host-id says; the worker's while it runs */
	char host[HOSTID_LEN + 1];
	uint64_t next;		/* the number given next */
	uint64_t reserved;	/* durable: every number given is <= this */
	uint64_t first, recorded;	/* of this run; the highest that the rows knew at its start */
	struct sent sent;
	bool reserving, muted, closing;
	enum store_doubt doubt;
	struct status health;
	struct store_totals totals;
	char incarnation[33];
	unsigned n_refused;	/* rows, when they were read */
	char refused_text[240];

	/* The second copy. On the loop: when; on the worker: `backup`. */
	struct timer backup_timer;
	struct store_tx *backup_job;	/* under way */
	struct backup backup;
	uint64_t backup_over_ms;	/* BOOTTIME; 0 = none in this run */
	int64_t backup_at_ms;
	bool changed;			/* since the copy was begun */
	bool backup_failed;		/* said so */
	bool backup_follows;		/* the next one is by change, as far as is known */
	int claims_fd;			/* the worker's; -1 = not open */
	uint64_t rescue_at_ms;		/* the worker's: not tried again before */
	_Atomic int64_t unlinked_at_ms;
};

enum tx_kind {
	TX_CHANGES,
	TX_RESERVE,	/* write `reserve` into host-id */
	TX_BACKUP,	/* a step of the second copy */
	TX_GET,		/* read a row */
};

struct store_tx {
	struct job job;
	struct store *store;
	enum tx_kind kind;
	struct changes changes;
	struct buf claims;	/* lines of claims.h, which go behind the commit */
	bool claims_anew;	/* … and are all there are */
	int claims_error;	/* -errno of it */
	bool durable;
	uint64_t committed_us;	/* when it was given to the writer */
	uint64_t reserve;
	int rc, sys_errno;	/* outcome, set by the writer */
	store_done_fn *done;
	void *user;
	struct read *read;	/* GET */
};

/* What is asked for by a key, and what it is. */
struct read {
	enum row_table table;
	bool found;
	union row row;		/* ours, if it was found */
	store_request_fn *on_request;
	store_command_request_fn *on_command_request;
};

/* tx.c */
void tx_free(struct store_tx *t);
void tx_put_meta(struct store_tx *t, const char *key, const char *value);

/* writer.c */
/* `done` of a reservation and of changes. */
void writer_on_reserved(struct job *j);
void writer_on_written(struct job *j);
void writer_on_read(struct job *j);
void writer_on_backup_timer(struct timer *t, void *user);
/* After the worker: what the second copy lacks. */
void writer_finish(struct store *s);

#endif
