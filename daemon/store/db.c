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

#include "daemon/common/obs/log.h"
#include "daemon/store/schema.h"
#include "daemon/store/sql.h"
#include "daemon/store/table.h"
#include "daemon/store/store.h"
#include "proto/base/fd.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

/* journal_size_limit cuts a WAL that grew; secure_delete overwrites tokens of deleted rows. Pages are cached by the kernel, too: cache_size
 * (KiB) is what a change of many rows may hold beside that, and a scan of all fills it for good. */
static const char pragmas[] = "PRAGMA locking_mode = EXCLUSIVE;"
			      "PRAGMA cell_size_check = ON;"
			      "PRAGMA trusted_schema = OFF;"
			      "PRAGMA mmap_size = 0;"
			      "PRAGMA cache_size = -1000;"
			      "PRAGMA temp_store = MEMORY;"
			      "PRAGMA secure_delete = FAST;"
			      "PRAGMA journal_size_limit = 16777216;"
			      "PRAGMA synchronous = FULL;";

int db_exec(struct db *db, const char *sql)
{
	return sqlite3_exec(db->sql, sql, NULL, NULL, NULL);
}

/* *ret: the first column of the first row; `def` without one. */
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

static int check_by(struct db *db, const char *sql)
{
	struct sqlite3_stmt *s;
	int rc = sqlite3_prepare_v2(db->sql, sql, -1, &s, NULL);
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

int db_check(struct db *db)
{
	return check_by(db, "PRAGMA quick_check(1)");
}

int db_check_all(struct db *db)
{
	return check_by(db, "PRAGMA integrity_check(1)");
}

int db_connect(struct db *db)
{
	const char *file = db->file ? db->file : DB_FILE;
	char *path = str_printf("%s/%s", db->dir->path, file);
	struct stat st;
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
	/* A copy is open for a moment at a time: what SQLite keeps of its pages is worth little, and is memory beside the database's own. */
	if (rc == SQLITE_OK)
		rc = db_exec(db, db->file ? "PRAGMA journal_mode = DELETE; PRAGMA cache_size = -512"
				 : db->dir->network_fs	? "PRAGMA journal_mode = TRUNCATE"
							: "PRAGMA journal_mode = WAL");
	db->sync_full = true;
	db->ino = fstatat(db->dir->fd, file, &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : st.st_ino;
	return rc;
}

int db_prepare(struct db *db)
{
	int rc = SQLITE_OK;

	for (unsigned i = 0; i < STMT_N && rc == SQLITE_OK; i++) {
		char *sql = change_sql(i);

		rc = sql ? sqlite3_prepare_v3(db->sql, sql, -1, SQLITE_PREPARE_PERSISTENT, &db->stmt[i], NULL) :
			   SQLITE_NOMEM;
		free(sql);
	}
	return rc;
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
	rc = db_connect(db);
	return rc == SQLITE_OK ? db_prepare(db) : rc;
}

/* SQLite gets an existing empty file, so that it never has another mode than 0600; its journals get the same. */
int db_make_file(struct state_dir *dir, struct store_report *report)
{
	int fd = openat(dir->fd, DB_FILE, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0) {
		snprintf(report->why, sizeof(report->why), "%s/" DB_FILE ": %m", dir->path);
		return STORE_BROKEN;
	}
	fd_close(fd);
	return 0;
}

int db_move_aside(struct state_dir *dir, const char *why, int64_t now_wall_ms, char *ret, size_t size)
{
	static const char *const suffix[] = { "-wal", "-journal", "-shm", "" };
	char from[64], to[128];

	for (size_t i = 0; i < ARRAY_SIZE(suffix); i++) {
		snprintf(from, sizeof(from), DB_FILE "%s", suffix[i]);
		snprintf(to, sizeof(to), DB_FILE ".%s-%lld%s", why, (long long)now_wall_ms, suffix[i]);
		if (renameat(dir->fd, from, dir->fd, to) < 0 && errno != ENOENT)
			return -errno;
	}
	snprintf(ret, size, "%s/" DB_FILE ".%s-%lld", dir->path, why, (long long)now_wall_ms);
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

int db_explain(struct db *db, int rc, struct store_report *report)
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

int db_version(struct db *db, int *ret)
{
	return query_int(db, "PRAGMA user_version", 0, ret);
}

int db_application(struct db *db, int *ret)
{
	return query_int(db, "PRAGMA application_id", 0, ret);
}

int db_open(struct db *db, struct store_report *report)
{
	int rc = db_connect(db);

	report->schema_known = schema_version;
	if (rc == SQLITE_OK)
		rc = db_check(db);
	if (rc == SQLITE_OK)
		rc = db_version(db, &report->schema_found);
	if (rc == SQLITE_OK && report->schema_found <= schema_version)
		rc = schema_migrate(db->sql, report->schema_found);
	if (rc == SQLITE_OK && report->schema_found <= schema_version)
		rc = db_prepare(db);
	return rc;
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

bool db_is_in_place(const struct db *db)
{
	struct stat st;

	return fstatat(db->dir->fd, DB_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == db->ino;
}

int db_step(struct db *db, unsigned stmt)
{
	int rc = sqlite3_step(db->stmt[stmt]);

	(void)sqlite3_reset(db->stmt[stmt]);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int db_apply(struct db *db, const struct changes *c)
{
	struct change_reader r = { buf_data(&c->buf), NULL };
	unsigned id;
	int rc;

	if (c->failed || c->refused[0])
		return c->failed ? SQLITE_NOMEM : SQLITE_CONSTRAINT;
	r.end = buf_len(&c->buf) ? r.p + buf_len(&c->buf) : r.p;
	while (change_next(&r, &id)) {
		change_bind(&r, db->stmt[id]);
		rc = db_step(db, id);
		(void)sqlite3_clear_bindings(db->stmt[id]);
		if (rc != SQLITE_OK)
			return rc;
	}
	return SQLITE_OK;
}

static int take_row(struct sqlite3_stmt *stmt, enum row_table table, union row *ret)
{
	struct row_check check;
	union row row;

	sql_read(stmt, &store_tables[table], &row, &check);
	if (check.refused)
		return SQLITE_CORRUPT;
	return row_dup(&store_tables[table], &row, ret) < 0 ? SQLITE_NOMEM : SQLITE_OK;
}

int db_get(struct db *db, const struct changes *c, enum row_table table, union row *ret, bool *ret_found)
{
	struct change_reader r = { buf_data(&c->buf), NULL };
	struct sqlite3_stmt *stmt;
	unsigned id;
	int rc;

	*ret_found = false;
	if (c->failed)
		return SQLITE_NOMEM;
	r.end = r.p + buf_len(&c->buf);
	must(change_next(&r, &id));
	stmt = db->stmt[id];
	change_bind(&r, stmt);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		rc = take_row(stmt, table, ret);
		*ret_found = rc == SQLITE_OK;
	} else if (rc == SQLITE_DONE) {
		rc = SQLITE_OK;
	}
	(void)sqlite3_reset(stmt);
	(void)sqlite3_clear_bindings(stmt);
	return rc;
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

uint64_t db_get_number(struct db *db, const char *key)
{
	char *text = db_get_meta(db, key);
	uint64_t n = 0;

	if (text && str_u64(text, strlen(text), INT64_MAX / 2, &n) < 0)
		n = 0;
	free(text);
	return n;
}

void db_get_host(struct db *db, char ret[HOSTID_LEN + 1])
{
	char *text = db_get_meta(db, "host_id");

	if (!text || !hostid_is_valid(text) || !str_copy(ret, HOSTID_LEN + 1, text))
		ret[0] = 0;
	free(text);
}

int db_put_meta(struct db *db, const char *key, const char *value)
{
	struct changes c = { 0 };
	int rc;

	change_begin(&c, STMT_PUT_META);
	change_text(&c, key);
	change_text(&c, value);
	rc = db_apply(db, &c);
	buf_fini(&c.buf);
	return rc;
}

int db_put_mark(struct db *db, uint64_t mark)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)mark);
	return db_put_meta(db, "mark", text);
}
