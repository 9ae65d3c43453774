/* SPDX-License-Identifier: MIT */
#include "daemon/store/db.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/obs/log.h"
#include "daemon/store/schema.h"
#include "daemon/store/store.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

/* journal_size_limit cuts a WAL that grew; secure_delete overwrites tokens of deleted rows. */
static const char pragmas[] = "PRAGMA locking_mode = EXCLUSIVE;"
			      "PRAGMA cell_size_check = ON;"
			      "PRAGMA trusted_schema = OFF;"
			      "PRAGMA mmap_size = 0;"
			      "PRAGMA temp_store = MEMORY;"
			      "PRAGMA secure_delete = FAST;"
			      "PRAGMA journal_size_limit = 16777216;"
			      "PRAGMA synchronous = FULL;";

int db_exec(struct db *db, const char *sql)
{
	return sqlite3_exec(db->sql, sql, NULL, NULL, NULL);
}

/* First column of the first row; def where there is none. */
static int query_int(struct db *db, const char *sql, int def, int *ret)
{
	struct sqlite3_stmt *s;
	int rc = sqlite3_prepare_v2(db->sql, sql, -1, &s, NULL);

	if (rc != SQLITE_OK)
		return rc;
	*ret = def;
	rc = sqlite3_step(s);
	if (rc == SQLITE_ROW)
		*ret = sqlite3_column_int(s, 0);
	rc = sqlite3_finalize(s);
	return rc;
}

static int quick_check(struct db *db)
{
	struct sqlite3_stmt *s;
	int rc = sqlite3_prepare_v2(db->sql, "PRAGMA quick_check(1)", -1, &s, NULL);
	const char *text;

	if (rc != SQLITE_OK)
		return rc;
	rc = sqlite3_step(s);
	text = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
	if (rc == SQLITE_ROW)
		rc = text && str_eq(text, "ok") ? SQLITE_OK : SQLITE_CORRUPT;
	(void)sqlite3_finalize(s);
	return rc;
}

static int connect_db(struct db *db)
{
	char *path = str_printf("%s/" DB_FILE, db->dir->path);
	int rc;

	if (!path)
		return SQLITE_NOMEM;
	rc = sqlite3_open_v2(path, &db->sql,
			     SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW |
				     SQLITE_OPEN_PRIVATECACHE,
			     NULL);
	free(path);
	if (rc != SQLITE_OK)
		return rc;
	(void)sqlite3_extended_result_codes(db->sql, 0);
	(void)sqlite3_db_config(db->sql, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	(void)sqlite3_db_config(db->sql, SQLITE_DBCONFIG_DQS_DDL, 0, NULL);
	(void)sqlite3_db_config(db->sql, SQLITE_DBCONFIG_DQS_DML, 0, NULL);
	rc = db_exec(db, pragmas);
	if (rc == SQLITE_OK)
		rc = db_exec(db, db->dir->network_fs ? "PRAGMA journal_mode = TRUNCATE"
						     : "PRAGMA journal_mode = WAL");
	db->sync_full = true;
	return rc;
}

static int prepare_all(struct db *db)
{
	for (int i = 0; i < STMT_N; i++) {
		int rc = sqlite3_prepare_v3(db->sql, stmt_sql[i], -1, SQLITE_PREPARE_PERSISTENT,
					    &db->stmt[i], NULL);
		if (rc != SQLITE_OK)
			return rc;
	}
	return SQLITE_OK;
}

void db_close(struct db *db)
{
	for (int i = 0; i < STMT_N; i++) {
		(void)sqlite3_finalize(db->stmt[i]);
		db->stmt[i] = NULL;
	}
	(void)sqlite3_close(db->sql);
	db->sql = NULL;
}

int db_reopen(struct db *db)
{
	int rc;

	db_close(db);
	rc = connect_db(db);
	return rc == SQLITE_OK ? prepare_all(db) : rc;
}

/* Made by us and empty, so that it never has another mode; SQLite gives its journals the same. */
static int make_file(struct state_dir *dir, struct store_report *report)
{
	int fd = openat(dir->fd, DB_FILE, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0) {
		snprintf(report->why, sizeof(report->why), "%s/" DB_FILE ": %m", dir->path);
		return STORE_BROKEN;
	}
	fd_close(fd);
	return 0;
}

static int move_aside(struct db *db, int64_t now_wall_ms, struct store_report *report)
{
	static const char *const suffix[] = { "", "-wal", "-journal", "-shm" };
	char from[64], to[128];

	for (size_t i = 0; i < ARRAY_SIZE(suffix); i++) {
		snprintf(from, sizeof(from), DB_FILE "%s", suffix[i]);
		snprintf(to, sizeof(to), DB_FILE ".corrupt-%lld%s", (long long)now_wall_ms, suffix[i]);
		if (renameat(db->dir->fd, from, db->dir->fd, to) < 0 && errno != ENOENT) {
			snprintf(report->why, sizeof(report->why), "%s/%s: cannot move it aside: %m",
				 db->dir->path, from);
			return STORE_BROKEN;
		}
	}
	snprintf(report->moved_aside, sizeof(report->moved_aside), "%s/" DB_FILE ".corrupt-%lld",
		 db->dir->path, (long long)now_wall_ms);
	log_error("store_corrupt", "moved_to=%s rebuild=from_cloud_tags", log_q(report->moved_aside));
	return 0;
}

/* Only while our own connection is closed: closing any descriptor of the file drops its locks. */
static pid_t who_locks(struct state_dir *dir)
{
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = openat(dir->fd, DB_FILE, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	pid_t pid = 0;

	if (fd >= 0 && !fcntl(fd, F_GETLK, &fl) && fl.l_type != F_UNLCK)
		pid = fl.l_pid;
	fd_close(fd);
	return pid;
}

static int explain(struct db *db, int rc, struct store_report *report)
{
	int err = db->sql ? sqlite3_system_errno(db->sql) : 0;

	db_close(db);
	if (rc == SQLITE_BUSY || rc == SQLITE_LOCKED) {
		report->holder = who_locks(db->dir);
		snprintf(report->why, sizeof(report->why),
			 "%s/" DB_FILE " is open in process %d; only this daemon may open it",
			 db->dir->path, (int)report->holder);
		return STORE_BUSY;
	}
	snprintf(report->why, sizeof(report->why), "%s/" DB_FILE ": %s%s%s", db->dir->path,
		 sqlite3_errstr(rc), err ? ": " : "", err ? strerrordesc_np(err) : "");
	return STORE_BROKEN;
}

static int open_once(struct db *db, struct store_report *report)
{
	int rc = connect_db(db);

	if (rc == SQLITE_OK)
		rc = quick_check(db);
	if (rc == SQLITE_OK)
		rc = query_int(db, "PRAGMA user_version", 0, &report->schema_found);
	if (rc == SQLITE_OK && report->schema_found <= schema_version)
		rc = schema_migrate(db->sql, report->schema_found);
	if (rc == SQLITE_OK && report->schema_found <= schema_version)
		rc = prepare_all(db);
	return rc;
}

int db_open(struct db *db, struct state_dir *dir, int64_t now_wall_ms, struct store_report *report)
{
	bool exists;
	int r, rc;

	*db = (struct db){ .dir = dir };
	report->schema_known = schema_version;
	r = state_dir_check_file(dir, DB_FILE, &exists, report);
	if (!r && !exists) {
		report->created = true;
		r = make_file(dir, report);
	}
	if (r)
		return r;
	rc = open_once(db, report);
	if (rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB || (rc == SQLITE_ERROR && !exists)) {
		db_close(db);
		r = move_aside(db, now_wall_ms, report);
		if (!r)
			r = make_file(dir, report);
		if (r)
			return r;
		report->created = true;
		rc = open_once(db, report);
	}
	if (rc != SQLITE_OK)
		return explain(db, rc, report);
	if (report->schema_found > schema_version) {
		snprintf(report->why, sizeof(report->why),
			 "%s/" DB_FILE " has schema %d, this version knows %d; use the newer agentboxd",
			 dir->path, report->schema_found, schema_version);
		db_close(db);
		return STORE_TOO_NEW;
	}
	return 0;
}

int db_set_durable(struct db *db, bool durable)
{
	int rc;

	if (db->sync_full == durable)
		return SQLITE_OK;
	rc = db_exec(db, durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
	if (rc == SQLITE_OK)
		db->sync_full = durable;
	return rc;
}

int db_apply(struct db *db, const struct changes *c)
{
	struct change_reader r = { buf_data(&c->buf), NULL };
	enum stmt_id id;
	int rc;

	if (c->failed)
		return SQLITE_NOMEM;
	r.end = buf_len(&c->buf) ? r.p + buf_len(&c->buf) : r.p;
	while (change_next(&r, &id)) {
		change_bind(&r, db->stmt[id]);
		rc = sqlite3_step(db->stmt[id]);
		(void)sqlite3_reset(db->stmt[id]);
		(void)sqlite3_clear_bindings(db->stmt[id]);
		if (rc != SQLITE_DONE)
			return rc;
	}
	return SQLITE_OK;
}

char *db_get_meta(struct db *db, const char *key)
{
	struct sqlite3_stmt *s;
	char *ret = NULL;

	if (sqlite3_prepare_v2(db->sql, "SELECT value FROM meta WHERE key = ?", -1, &s, NULL) !=
	    SQLITE_OK)
		return NULL;
	(void)sqlite3_bind_text(s, 1, key, -1, SQLITE_STATIC);
	if (sqlite3_step(s) == SQLITE_ROW)
		ret = str_dup((const char *)sqlite3_column_text(s, 0));
	(void)sqlite3_finalize(s);
	return ret;
}
