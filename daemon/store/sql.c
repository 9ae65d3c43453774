/* SPDX-License-Identifier: MIT */
#include "daemon/store/sql.h"

#include <sqlite3.h>
#include <string.h>

#include "proto/base/buf.h"
#include "proto/base/str.h"

enum list { NAMES, NAMES_WITH_TYPES, MARKS };

static const char *type_of(const struct column *c)
{
	return c->kind == COLUMN_IS_INT ? " INTEGER NOT NULL" : c->kind == COLUMN_IS_TEXT ? " TEXT NOT NULL" : " BLOB NOT NULL";
}

static int put_list(struct buf *b, const struct table *t, enum list what)
{
	int r = 0;

	for (size_t i = 0; i < t->n && !r; i++)
		r = buf_printf(b, "%s%s%s", i ? ", " : "", what == MARKS ? "?" : t->columns[i].name,
			       what == NAMES_WITH_TYPES ? type_of(&t->columns[i]) : "");
	return r;
}

/* STRICT: writing a value of a wrong type is an error. */
char *sql_create(const struct table *t)
{
	scoped(buf_fini) struct buf b = BUF_NULL;

	return buf_printf(&b, "CREATE TABLE %s (", t->name) || put_list(&b, t, NAMES_WITH_TYPES) ||
	       buf_printf(&b, ", PRIMARY KEY (%s)) STRICT", t->key) ? NULL : buf_take_str(&b);
}

/* Does a row that is put again go behind all others, so that rows are loaded in the order in which they were last put? */
static bool moves_to_the_end(const struct table *t)
{
	return t != &store_tables[ROW_TABLE_lease] && t != &store_tables[ROW_TABLE_sandbox];
}

/* Updates the existing row in place, which writes one page where a replacement writes two or three. */
static int put_over(struct buf *b, const struct table *t)
{
	int r = buf_printf(b, " ON CONFLICT (%s) DO UPDATE SET ", t->key);

	for (size_t i = t->n_key; i < t->n && !r; i++)
		r = buf_printf(b, "%s%s = excluded.%s", i > t->n_key ? ", " : "", t->columns[i].name, t->columns[i].name);
	return r;
}

char *sql_put(const struct table *t)
{
	scoped(buf_fini) struct buf b = BUF_NULL;
	bool moves = moves_to_the_end(t);

	return buf_printf(&b, "INSERT %sINTO %s (", moves ? "OR REPLACE " : "", t->name) || put_list(&b, t, NAMES) ||
	       buf_printf(&b, ") VALUES (") || put_list(&b, t, MARKS) || buf_printf(&b, ")") ||
	       (!moves && put_over(&b, t)) ? NULL : buf_take_str(&b);
}

char *sql_del(const struct table *t)
{
	return str_printf("DELETE FROM %s WHERE (%s) = (%s)", t->name, t->key, t->key_marks);
}

char *sql_select(const struct table *t)
{
	scoped(buf_fini) struct buf b = BUF_NULL;

	return buf_printf(&b, "SELECT ") || put_list(&b, t, NAMES) ||
	       buf_printf(&b, " FROM %s ORDER BY rowid", t->name) ? NULL : buf_take_str(&b);
}

char *sql_get(const struct table *t)
{
	scoped(buf_fini) struct buf b = BUF_NULL;

	return buf_printf(&b, "SELECT ") || put_list(&b, t, NAMES) ||
	       buf_printf(&b, " FROM %s WHERE (%s) = (%s)", t->name, t->key, t->key_marks) ? NULL : buf_take_str(&b);
}

static struct value value_at(struct sqlite3_stmt *s, int i, enum column_kind kind)
{
	switch (kind) {
	case COLUMN_IS_INT:
		return (struct value){ .i = sqlite3_column_int64(s, i) };
	case COLUMN_IS_TEXT:
		return (struct value){ .p = (const char *)sqlite3_column_text(s, i), .n = (size_t)sqlite3_column_bytes(s, i) };
	default:
		return (struct value){ .p = sqlite3_column_blob(s, i), .n = (size_t)sqlite3_column_bytes(s, i) };
	}
}

void sql_read(struct sqlite3_stmt *s, const struct table *t, union row *ret, struct row_check *ret_check)
{
	memset(ret, 0, sizeof(*ret));
	*ret_check = (struct row_check){ 0 };
	for (size_t i = 0; i < t->n; i++) {
		struct value v = value_at(s, (int)i, t->columns[i].kind);

		row_check_column(&t->columns[i], ret, &v, ret_check);
	}
	row_check_end(t, ret, ret_check);
}
