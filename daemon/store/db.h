/* SPDX-License-Identifier: MIT */
/*
 * The one SQLite connection. There is never a second one to the file, in this process or another:
 * Debian's 3.40 can corrupt a WAL that two connections reset (fixed in 3.51.3).
 */
#ifndef AB_DAEMON_STORE_DB_H
#define AB_DAEMON_STORE_DB_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/store/change.h"
#include "daemon/store/dir.h"
#include "daemon/store/hostid.h"

struct store_report;
union row;

#define DB_FILE	    "agentboxd.db"
#define BACKUP_FILE "backup.db"

struct db {
	struct state_dir *dir;
	struct sqlite3 *sql;
	struct sqlite3_stmt *stmt[STMT_N];
	bool sync_full;		/* what PRAGMA synchronous says now */
	ino_t ino;		/* of the file that is open */
	bool is_backup;		/* BACKUP_FILE, which never has a WAL beside it */
};

/* Opens the file that is there, checks it, migrates. An SQLite code; OK with report->schema_found above
 * schema_known: nothing was touched. */
must_check int db_open(struct db *db, struct store_report *report);
/* Empty, 0600. 0 or an enum store_open_result with report->why. */
must_check int db_make_file(struct state_dir *dir, struct store_report *report);
/* What there is of it, journals included, to agentboxd.db.WHY-TIME; that goes to `ret`. 0 or -errno. */
must_check int db_move_aside(struct state_dir *dir, const char *why, int64_t now_wall_ms, char *ret, size_t size);
must_check int db_prepare(struct db *db);	/* every statement; a part of opening */
/* Closes; the enum store_open_result of an SQLite code, with report->why. */
must_check int db_explain(struct db *db, int rc, struct store_report *report);
/* Is the file that is open the one that has the name DB_FILE? */
bool db_is_in_place(const struct db *db);
/* After an I/O error nothing in memory can be trusted: close and open again. SQLite code. */
must_check int db_reopen(struct db *db);
void db_close(struct db *db);

must_check int db_exec(struct db *db, const char *sql);
must_check int db_step(struct db *db, unsigned stmt);	/* with the values that are bound. An SQLite code */
must_check int db_set_durable(struct db *db, bool durable);
/* All changes of one transaction object. An SQLite code. */
must_check int db_apply(struct db *db, const struct changes *c);
/* The one row that `c` asks for, as a copy (row_fini()); *ret_found false: there is none. An SQLite code; CORRUPT
 * for a row that is refused. */
must_check int db_get(struct db *db, const struct changes *c, enum row_table table, union row *ret, bool *ret_found);
/* meta value as a heap string, NULL if there is none. */
char *db_get_meta(struct db *db, const char *key);
uint64_t db_get_number(struct db *db, const char *key);	/* 0 = none */
void db_get_host(struct db *db, char ret[HOSTID_LEN + 1]);	/* "" = none */
must_check int db_put_meta(struct db *db, const char *key, const char *value);
must_check int db_put_mark(struct db *db, uint64_t mark);
must_check int db_check(struct db *db);
must_check int db_version(struct db *db, int *ret);

#endif
