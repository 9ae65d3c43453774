/* SPDX-License-Identifier: MIT */
/*
 * Reads all rows at the start. Each row is checked as it was when it was written, since the file may
 * have been changed by others, by an older version or by a fault that left it a valid database.
 */
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/store/impl.h"
#include "daemon/store/sql.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

static struct value value_named(const struct table *t, const union row *row, const char *name)
{
	for (size_t i = 0; i < t->n; i++)
		if (str_eq(t->columns[i].name, name))
			return column_get(&t->columns[i], row);
	return (struct value){ .p = "" };
}

static void note_refused(struct store *s, const char *table, const char *key, const char *column)
{
	size_t n = strlen(s->refused_text);

	if (!s->n_refused++)
		snprintf(s->refused_text, sizeof(s->refused_text), "%s %s (%s)", table, key, column);
	else if (n + strlen(key) + 64 < sizeof(s->refused_text))
		snprintf(s->refused_text + n, sizeof(s->refused_text) - n, ", %s %s (%s)", table, key, column);
}

static void refuse(struct store *s, const struct store_visitor *v, enum row_table table, const union row *row,
		   const struct row_check *check)
{
	const struct table *t = &store_tables[table];
	char key[160];
	struct store_refused r = {
		.table = table,
		.column = check->refused,
		.key = key,
		.account = value_named(t, row, "account").p,
		.sandbox = value_named(t, row, table == ROW_TABLE_sandbox ? "id" : "sandbox").p,
		.seq = (uint64_t)value_named(t, row, "seq").i,
	};

	row_key_text(t, row, key, sizeof(key));
	log_error("store_row_refused", "table=%s key=%s column=%s kept=yes", t->name, log_q(key), check->refused);
	note_refused(s, t->name, key, check->refused);
	if (v->refused)
		v->refused(&r, v->user);
}

static void take(struct store *s, const struct store_visitor *v, enum row_table table, struct sqlite3_stmt *stmt)
{
	const struct table *t = &store_tables[table];
	struct row_check check;
	union row row;
	char key[160];

	sql_read(stmt, t, &row, &check);
	if (check.refused) {
		refuse(s, v, table, &row, &check);
		return;
	}
	if (check.replaced) {
		row_key_text(t, &row, key, sizeof(key));
		log_warn("store_row_cut", "table=%s key=%s column=%s reading=without_it", t->name, log_q(key), check.replaced);
	}
	store_visit(v, table, &row);
}

static int load_table(struct store *s, const struct store_visitor *v, enum row_table table)
{
	char *sql = sql_select(&store_tables[table]);
	struct sqlite3_stmt *stmt = NULL;
	int rc = sql ? sqlite3_prepare_v2(s->db.sql, sql, -1, &stmt, NULL) : SQLITE_NOMEM;

	free(sql);
	while (rc == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW)
		take(s, v, table, stmt);
	rc = rc == SQLITE_OK ? sqlite3_finalize(stmt) : rc;
	if (rc == SQLITE_OK)
		return 0;
	log_error("store_load", "table=%s error=%s", store_tables[table].name,
		  log_q(sqlite3_errmsg(s->db.sql)));
	return -EIO;
}

static size_t count_rows(struct store *s, enum row_table table)
{
	char *sql = str_printf("SELECT count(*) FROM %s", store_tables[table].name);
	struct sqlite3_stmt *stmt = NULL;
	size_t n = 0;

	if (sql && sqlite3_prepare_v2(s->db.sql, sql, -1, &stmt, NULL) == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW)
		n = (size_t)sqlite3_column_int64(stmt, 0);
	(void)sqlite3_finalize(stmt);
	free(sql);
	return n;
}

int store_load(struct store *s, const struct store_visitor *v)
{
	int r = 0;

	must(!s->worker);
	for (enum row_table i = 0; i < ROW_TABLES && !r; i++)
		if (store_wants(v, i)) {
			if (v->begins)
				v->begins(i, count_rows(s, i), v->user);
			r = load_table(s, v, i);
		}
	return r;
}

const char *store_refused_text(const struct store *s)
{
	return s->refused_text;
}
