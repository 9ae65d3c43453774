/* SPDX-License-Identifier: MIT */
/*
 * A database of any older version is migrated to the tables of rows/tables.def by one rule: each table is made anew and
 * filled with the columns of the old one; a column that is new gets its `otherwise`. A change that this rule does not
 * cover (a renamed column) needs a statement before it. tests/unit/store/test_schema.c has the earlier versions as
 * text.
 */
#include "daemon/store/schema.h"

#include <sqlite3.h>
#include <stdlib.h>

#include "daemon/store/sql.h"
#include "proto/base/buf.h"
#include "proto/base/str.h"

/* Raised with every change in rows/. */
const int schema_version = 14;

/* "Agbx" */
const int schema_application = 1097294456;

/* What the database has beside the tables of rows. */
static const char others[] =
	"CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;"
	"INSERT OR IGNORE INTO meta (key, value) VALUES ('incarnation', lower(hex(randomblob(6))));"
	"CREATE UNIQUE INDEX event_of_uid ON event (uid, seq);"
	"PRAGMA application_id = 1097294456";

/* From before 13, which knew owners by their uid alone: those whose uid is given to services in turn wait for a name (auth/owner.h). */
static const char unnamed_owners[] =
	"INSERT OR IGNORE INTO owner SELECT uid, uid, '', 3 FROM (SELECT uid FROM sandbox UNION SELECT uid FROM intent UNION SELECT uid FROM request"
	" UNION SELECT uid FROM name UNION SELECT uid FROM lease UNION SELECT uid FROM event UNION SELECT uid FROM command"
	" UNION SELECT uid FROM command_request UNION SELECT uid FROM copy UNION SELECT uid FROM snapshot WHERE ours"
	" UNION SELECT uid FROM gateway_token) WHERE uid BETWEEN 61184 AND 65519";

static int run(struct sqlite3 *db, const char *sql)
{
	return sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
}

/* Frees the text. */
static int run_heap(struct sqlite3 *db, char *sql)
{
	int rc = run(db, sql);

	free(sql);
	return rc;
}

static bool has_column(struct sqlite3 *db, const char *table, const char *column)
{
	return sqlite3_table_column_metadata(db, NULL, table, column, NULL, NULL, NULL, NULL, NULL) == SQLITE_OK;
}

static int put_source(struct buf *b, const struct column *c, bool is_there)
{
	if (is_there)
		return buf_put_str(b, c->name);
	if (c->kind == COLUMN_IS_INT)
		return buf_printf(b, "%lld", (long long)c->otherwise);
	return c->kind == COLUMN_IS_BYTES ? buf_printf(b, "zeroblob(%lld)", (long long)c->most) :
					    buf_put_str(b, c->kind == COLUMN_IS_TEXT ? "''" : "x''");
}

static char *sql_fill(struct sqlite3 *db, const struct table *t)
{
	scoped(buf_fini) struct buf b = BUF_NULL;
	int r = buf_printf(&b, "INSERT INTO %s SELECT ", t->name);

	for (size_t i = 0; i < t->n && !r; i++) {
		r = put_source(&b, &t->columns[i], has_column(db, "old", t->columns[i].name));
		if (!r && i + 1 < t->n)
			r = buf_put_str(&b, ", ");
	}
	return r || buf_put_str(&b, " FROM old ORDER BY rowid; DROP TABLE old") ? NULL : buf_take_str(&b);
}

static int make_table(struct sqlite3 *db, const struct table *t)
{
	bool is_there = has_column(db, t->name, NULL);
	int rc = is_there ? run_heap(db, str_printf("ALTER TABLE %s RENAME TO old", t->name)) : SQLITE_OK;

	if (rc == SQLITE_OK)
		rc = run_heap(db, sql_create(t));
	if (rc == SQLITE_OK && is_there)
		rc = run_heap(db, sql_fill(db, t));
	return rc;
}

static int make_tables(struct sqlite3 *db)
{
	int rc = SQLITE_OK;

	for (size_t i = 0; i < ROW_TABLES && rc == SQLITE_OK; i++)
		rc = make_table(db, &store_tables[i]);
	return rc == SQLITE_OK ? run(db, others) : rc;
}

int schema_migrate(struct sqlite3 *db, int from)
{
	int rc;

	if (from == schema_version)
		return SQLITE_OK;
	rc = run(db, "BEGIN IMMEDIATE");
	if (rc == SQLITE_OK)
		rc = make_tables(db);
	if (rc == SQLITE_OK && from < 13)
		rc = run(db, unnamed_owners);
	if (rc == SQLITE_OK)
		rc = run_heap(db, str_printf("PRAGMA user_version = %d; COMMIT", schema_version));
	if (rc != SQLITE_OK)
		(void)run(db, "ROLLBACK");
	return rc;
}
