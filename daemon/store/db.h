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
	bool sync_full;		/* PRAGMA synchronous is FULL, not NORMAL */
	ino_t ino;		/* of the open file */
	const char *file;	/* its name, of one without a WAL; NULL: DB_FILE */
};

/* The first part of db_open(): opens the existing file, and looks at nothing in it. An SQLite code. */
must_check int db_connect(struct db *db);
/* Opens the existing file, checks it, migrates it. An SQLite code; OK with report->schema_found above
 * schema_known: it is of a newer version, and was not changed. */
must_check int db_open(struct db *db, struct store_report *report);
/* Makes an empty file, 0600. 0 or an enum store_open_result with report->why. */
must_check int db_make_file(struct state_dir *dir, struct store_report *report);
/* Renames the database and its journals to agentboxd.db.WHY-TIME, which goes to `ret`. 0 or -errno. */
must_check int db_move_aside(struct state_dir *dir, const char *why, int64_t now_wall_ms, char *ret, size_t size);
must_check int db_prepare(struct db *db);	/* prepares every statement; part of opening */
/* Closes. Returns the enum store_open_result of an SQLite code, with report->why. */
must_check int db_explain(struct db *db, int rc, struct store_report *report);
/* Is the open file the one with the name DB_FILE? */
bool db_is_in_place(const struct db *db);
/* Closes and opens again, as SQLite's cache cannot be trusted after an I/O error. An SQLite code. */
must_check int db_reopen(struct db *db);
void db_close(struct db *db);

must_check int db_exec(struct db *db, const char *sql);
must_check int db_step(struct db *db, unsigned stmt);	/* runs a statement with its bound values. An SQLite code */
must_check int db_set_durable(struct db *db, bool durable);
/* Makes all changes. An SQLite code. */
must_check int db_apply(struct db *db, const struct changes *c);
/* Reads the row that `c` asks for into a copy (row_fini()); *ret_found false: there is none. An SQLite code; CORRUPT
 * for a refused row. */
must_check int db_get(struct db *db, const struct changes *c, enum row_table table, union row *ret, bool *ret_found);
/* A value of table meta, heap; NULL = there is none. */
char *db_get_meta(struct db *db, const char *key);
uint64_t db_get_number(struct db *db, const char *key);	/* 0 = none */
void db_get_host(struct db *db, char ret[HOSTID_LEN + 1]);	/* "" = none */
must_check int db_put_meta(struct db *db, const char *key, const char *value);
must_check int db_put_mark(struct db *db, uint64_t mark);
must_check int db_check(struct db *db);
must_check int db_check_all(struct db *db);	/* its indexes, too, which takes longer */
must_check int db_version(struct db *db, int *ret);
must_check int db_application(struct db *db, int *ret);	/* schema_application in a database of ours */

#endif
