/* SPDX-License-Identifier: MIT */
/*
 * The one SQLite connection. There is never a second one to the file, in this process or another:
 * Debian's 3.40 can corrupt a WAL that two connections reset (fixed in 3.51.3).
 */
#ifndef AB_DAEMON_STORE_DB_H
#define AB_DAEMON_STORE_DB_H

#include <stdbool.h>

#include "daemon/store/change.h"
#include "daemon/store/dir.h"

struct list;
struct store_report;
struct store_visitor;

#define DB_FILE "agentboxd.db"

struct db {
	struct state_dir *dir;
	struct sqlite3 *sql;
	struct sqlite3_stmt *stmt[STMT_N];
	bool sync_full;		/* what PRAGMA synchronous says now */
};

/* Opens, checks, migrates; a corrupt file is moved aside and a new one made. 0 or an enum
 * store_open_result with report->why. */
must_check int db_open(struct db *db, struct state_dir *dir, int64_t now_wall_ms,
		       struct store_report *report);
/* After an I/O error nothing in memory can be trusted: close and open again. SQLite code. */
must_check int db_reopen(struct db *db);
void db_close(struct db *db);

must_check int db_exec(struct db *db, const char *sql);
must_check int db_set_durable(struct db *db, bool durable);
/* All changes of one transaction object. An SQLite code. */
must_check int db_apply(struct db *db, const struct changes *c);
/* meta value as a heap string, NULL if there is none. */
char *db_get_meta(struct db *db, const char *key);

/* load.c: every row to the visitor; bad ones go to table `aside`. 0 or -EIO. */
must_check int db_load(struct db *db, const struct store_visitor *v, unsigned *ret_aside);

#endif
