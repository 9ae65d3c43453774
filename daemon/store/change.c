/* SPDX-License-Identifier: MIT */
#include "daemon/store/change.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/obs/log.h"
#include "daemon/store/sql.h"
#include "proto/base/must.h"
#include "proto/base/str.h"

enum tag { TAG_END, TAG_BEGIN, TAG_INT, TAG_TEXT, TAG_BLOB };

/*
 * Request ids above their limit. A rank for each row would take memory for all of a uid; the oldest with their number as the limit
 * take memory for that number. So one uid at a time: the one that has most above the limit, counting only what may go.
 */
#define MOST(table, is_over, keep)                                                                                           \
	"WITH most(uid, n) AS (SELECT uid, COUNT(*) - " keep " AS n FROM " table " r WHERE uid IN"                          \
	" (SELECT uid FROM " table " GROUP BY uid HAVING COUNT(*) > " keep ") AND " is_over                                 \
	" GROUP BY uid HAVING n > 0 ORDER BY n DESC LIMIT 1) "
#define OLDEST_OF_MOST(table, is_over)                                                                                       \
	"SELECT id FROM (SELECT r.rowid AS id FROM " table " r WHERE r.uid = (SELECT uid FROM most) AND " is_over           \
	" ORDER BY r.used_at_ms, r.rowid LIMIT IFNULL((SELECT n FROM most), 0))"
#define REQUEST_IS_OVER                                                                                                      \
	"r.state = ?1 AND NOT EXISTS (SELECT 1 FROM sandbox s WHERE s.account = r.account AND s.id = r.object AND s.state <> ?2)"
#define COMMAND_IS_OVER "NOT EXISTS (SELECT 1 FROM command c WHERE c.id = r.command)"

char *change_sql(unsigned stmt)
{
	static const char *const others[] = {
		[STMT_PUT_META - STMT_OTHERS] = "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)",
		[STMT_RAISE_META - STMT_OTHERS] =
			("INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
			 " WHERE CAST(excluded.value AS INTEGER) > CAST(value AS INTEGER)"),
		[STMT_DEL_EVENTS - STMT_OTHERS] = "DELETE FROM event WHERE uid = ? AND seq <= ?",
		[STMT_DEL_LEASES - STMT_OTHERS] = "DELETE FROM lease WHERE account = ? AND sandbox = ?",
		[STMT_PRUNE_REQUESTS - STMT_OTHERS] =
			(MOST("request", REQUEST_IS_OVER, "?3") "DELETE FROM request WHERE rowid IN (SELECT r.rowid FROM request r"
			 " WHERE r.state = ?1 AND r.used_at_ms <= ?4"
			 " AND NOT EXISTS (SELECT 1 FROM sandbox s WHERE s.account = r.account AND s.id = r.object"
			 " AND (s.state <> ?2 OR s.gone_at_ms > ?5)) UNION ALL " OLDEST_OF_MOST("request", REQUEST_IS_OVER) ")"),
		[STMT_PRUNE_COMMAND_REQUESTS - STMT_OTHERS] =
			(MOST("command_request", COMMAND_IS_OVER, "?1") "DELETE FROM command_request WHERE rowid IN"
			 " (SELECT r.rowid FROM command_request r WHERE r.used_at_ms <= ?2 AND " COMMAND_IS_OVER
			 " UNION ALL " OLDEST_OF_MOST("command_request", COMMAND_IS_OVER) ")"),
		[STMT_BEGIN - STMT_OTHERS] = "BEGIN IMMEDIATE",
		[STMT_COMMIT - STMT_OTHERS] = "COMMIT",
		[STMT_SAVEPOINT - STMT_OTHERS] = "SAVEPOINT t",
		[STMT_RELEASE - STMT_OTHERS] = "RELEASE t",
	};

	if (stmt >= STMT_OTHERS)
		return str_dup(others[stmt - STMT_OTHERS]);
	if (stmt >= STMT_GETS)
		return sql_get(&store_tables[stmt - STMT_GETS]);
	return stmt % 2 ? sql_del(&store_tables[stmt / 2]) : sql_put(&store_tables[stmt / 2]);
}

#define HEAD_MAX (1 + sizeof(int64_t))	/* a tag, and a number or a length */

/* Tag and number, or length, are one write: a row has some fifty of them. */
static void change_put(struct changes *c, enum tag tag, const void *p, size_t n)
{
	uint8_t head[HEAD_MAX] = { (uint8_t)tag };

	must(n < HEAD_MAX);
	memcpy(head + 1, p, n);
	if (!c->failed && buf_put(&c->buf, head, 1 + n) < 0)
		c->failed = true;
}

static void put_bytes(struct changes *c, enum tag tag, const void *p, size_t n)
{
	uint32_t len = (uint32_t)n;

	must(n < UINT32_MAX);
	change_put(c, tag, &len, sizeof(len));
	if (!c->failed && n && buf_put(&c->buf, p, n) < 0)
		c->failed = true;
}

void change_begin(struct changes *c, unsigned stmt)
{
	uint8_t b = (uint8_t)stmt;

	change_put(c, TAG_BEGIN, &b, 1);
}

void change_int(struct changes *c, int64_t v)
{
	change_put(c, TAG_INT, &v, sizeof(v));
}

void change_text(struct changes *c, const char *s)
{
	put_bytes(c, TAG_TEXT, s, s ? strlen(s) : 0);
}

static void put_value(struct changes *c, const struct column *column, const void *row)
{
	struct value v = column_get(column, row);

	if (column->kind == COLUMN_IS_INT)
		change_int(c, v.i);
	else
		put_bytes(c, column->kind == COLUMN_IS_TEXT ? TAG_TEXT : TAG_BLOB, v.p, v.n);
}

static void log_check(const struct table *t, const union row *row, const struct row_check *check)
{
	char key[200];

	row_key_text(t, row, key, sizeof(key));
	if (check->refused)
		log_error("store_row_refused", "table=%s key=%s column=%s writing=no", t->name, log_q(key), check->refused);
	else
		log_warn("store_row_cut", "table=%s key=%s column=%s writing=without_it", t->name, log_q(key),
			 check->replaced);
}

void change_put_row(struct changes *c, enum row_table table, const void *row)
{
	const struct table *t = &store_tables[table];
	struct row_check check;
	union row copy;

	memcpy(&copy, row, t->row_size);
	row_check(t, &copy, &check);
	if (check.refused || check.replaced)
		log_check(t, &copy, &check);
	if (check.refused && !c->refused[0])
		snprintf(c->refused, sizeof(c->refused), "%s.%s", t->name, check.refused);
	if (check.refused)
		return;
	change_begin(c, STMT_PUT(table));
	for (size_t i = 0; i < t->n; i++)
		put_value(c, &t->columns[i], &copy);
}

static void put_key(struct changes *c, enum row_table table, const void *row)
{
	const struct table *t = &store_tables[table];

	for (size_t i = 0; i < t->n_key; i++)
		put_value(c, &t->columns[i], row);
}

void change_del_row(struct changes *c, enum row_table table, const void *row)
{
	change_begin(c, STMT_DEL(table));
	put_key(c, table, row);
}

void change_get_row(struct changes *c, enum row_table table, const void *row)
{
	change_begin(c, STMT_GET(table));
	put_key(c, table, row);
}

bool change_next(struct change_reader *r, unsigned *ret_stmt)
{
	if (r->p == r->end)
		return false;
	must(r->end - r->p >= 2 && r->p[0] == TAG_BEGIN && r->p[1] < STMT_N);
	*ret_stmt = r->p[1];
	r->p += 2;
	return true;
}

static const char *take_bytes(struct change_reader *r, uint32_t *ret_n)
{
	const char *p;

	memcpy(ret_n, r->p + 1, sizeof(*ret_n));
	p = (const char *)r->p + 1 + sizeof(*ret_n);
	r->p += 1 + sizeof(*ret_n) + *ret_n;
	return p;
}

/* The buffer outlives the step, so SQLite may look at the bytes where they are. */
void change_bind(struct change_reader *r, struct sqlite3_stmt *s)
{
	const char *p;
	int64_t v;
	uint32_t n;
	int rc;

	for (int i = 1; r->p < r->end && r->p[0] != TAG_BEGIN; i++) {
		switch ((enum tag)r->p[0]) {
		case TAG_INT:
			memcpy(&v, r->p + 1, sizeof(v));
			r->p += 1 + sizeof(v);
			rc = sqlite3_bind_int64(s, i, v);
			break;
		case TAG_TEXT:
			p = take_bytes(r, &n);
			rc = sqlite3_bind_text(s, i, p, (int)n, SQLITE_STATIC);
			break;
		default:
			must(r->p[0] == TAG_BLOB);
			p = take_bytes(r, &n);
			rc = n ? sqlite3_bind_blob(s, i, p, (int)n, SQLITE_STATIC)
			       : sqlite3_bind_zeroblob(s, i, 0);
			break;
		}
		must(rc == SQLITE_OK || rc == SQLITE_NOMEM);
	}
}
