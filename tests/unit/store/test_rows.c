/* SPDX-License-Identifier: MIT */
/*
 * C-4: whatever a row holds, it is read as it was written, or was refused when it was to be written. Rows of
 * random values, at the bounds and beyond them, go through the check, SQLite and the check of the reader.
 */
#include <sqlite3.h>
#include <stdlib.h>

#include "daemon/common/obs/log.h"
#include "daemon/store/db.h"
#include "daemon/store/schema.h"
#include "daemon/store/sql.h"
#include "proto/base/rng.h"
#include "proto/base/str.h"
#include "tests/lib/test.h"

#define ROUNDS 1500u
#define LONG_BYTES (4u * 1024 * 1024 + 2)

static struct rng rng;
static char *pool[2];	/* of ASCII and of two-byte characters: texts are ends of them */

static int64_t random_int(const struct column *c)
{
	switch (rng_below(&rng, 12)) {
	case 0:
		return c->least;
	case 1:
		return c->most;
	case 2:
		return c->least - (c->least > INT64_MIN);
	case 3:
		return c->most + (c->most < INT64_MAX);
	case 4:
		return (int64_t)rng_u64(&rng);
	case 5:
		return 0;
	default:
		return c->least + (int64_t)rng_below(&rng, (uint64_t)MIN(c->most - c->least, 1000) + 1);
	}
}

static size_t random_length(const struct column *c)
{
	switch (rng_below(&rng, 40)) {
	case 0:
		return (size_t)c->most;
	case 1:
		return (size_t)c->most + 1;
	case 2:
		return 0;
	default:
		return (size_t)MAX((int64_t)rng_below(&rng, 40), c->least);
	}
}

static void set_int(const struct column *c, void *row, int64_t v)
{
	uint8_t small = (uint8_t)v;
	uint32_t mid = (uint32_t)v;

	memcpy((char *)row + c->at, c->size == 1 ? &small : c->size == 4 ? (void *)&mid : &v, c->size);
}

/* Half a character at the front, at times. */
static const char *random_text(size_t n)
{
	const char *end = pool[rng_below(&rng, 2)] + LONG_BYTES;

	return end - MIN(n, (size_t)LONG_BYTES);
}

static void set_random(const struct column *c, void *row)
{
	static const char last_nul[] = "a\0b";
	size_t n = random_length(c);
	const char *p = random_text(n);

	switch (c->kind) {
	case COLUMN_IS_INT:
		set_int(c, row, random_int(c));
		break;
	case COLUMN_IS_TEXT:
		p = n || rng_below(&rng, 2) ? p : NULL;
		memcpy((char *)row + c->at, &p, sizeof(p));
		break;
	case COLUMN_IS_BLOB:
		if (rng_below(&rng, 2)) {
			p = last_nul;
			n = sizeof(last_nul);
		}
		memcpy((char *)row + c->at, &p, sizeof(p));
		memcpy((char *)row + c->len_at, &n, sizeof(n));
		break;
	case COLUMN_IS_BYTES:
		for (int64_t i = 0; i < c->most; i++)
			((uint8_t *)row)[c->at + (size_t)i] = (uint8_t)rng_u64(&rng);
		break;
	}
}

static bool same(const struct column *c, const void *a, const void *b)
{
	struct value p = column_get(c, a), q = column_get(c, b);

	return p.i == q.i && p.n == q.n && (!p.n || !memcmp(p.p, q.p, p.n));
}

struct counts {
	unsigned written, refused, replaced;
};

/* A change buffer as a transaction has it, into the database. */
static bool write_row(struct db *db, enum row_table table, const union row *row)
{
	struct changes c = { 0 };
	int rc;

	change_put_row(&c, table, row);
	CHECK(!c.failed);
	rc = db_apply(db, &c);
	CHECK_INT(rc, c.refused[0] ? SQLITE_CONSTRAINT : SQLITE_OK);
	buf_fini(&c.buf);
	return rc == SQLITE_OK;
}

static void read_back(struct db *db, enum row_table table, const union row *want)
{
	const struct table *t = &store_tables[table];
	char *sql = sql_select(t);
	struct row_check check;
	struct sqlite3_stmt *s;
	union row got;

	CHECK_INT(sqlite3_prepare_v2(db->sql, sql, -1, &s, NULL), SQLITE_OK);
	CHECK_INT(sqlite3_step(s), SQLITE_ROW);
	sql_read(s, t, &got, &check);
	CHECK(!check.refused && !check.replaced);
	for (size_t i = 0; i < t->n; i++) {
		if (!same(&t->columns[i], &got, want))
			printf("%s.%s\n", t->name, t->columns[i].name);
		CHECK(same(&t->columns[i], &got, want));
	}
	CHECK_INT(sqlite3_step(s), SQLITE_DONE);
	sqlite3_finalize(s);
	free(sql);
}

static void del_row(struct db *db, enum row_table table, const union row *row)
{
	char *sql = str_printf("SELECT count(*) FROM %s", store_tables[table].name);
	struct changes c = { 0 };
	struct sqlite3_stmt *s;

	change_del_row(&c, table, row);
	CHECK_INT(db_apply(db, &c), SQLITE_OK);
	buf_fini(&c.buf);
	CHECK_INT(sqlite3_prepare_v2(db->sql, sql, -1, &s, NULL), SQLITE_OK);
	CHECK(sqlite3_step(s) == SQLITE_ROW && !sqlite3_column_int(s, 0));
	sqlite3_finalize(s);
	free(sql);
}

/* Few columns at a time are odd, or none would ever be written. */
static void one_round(struct db *db, enum row_table table, struct counts *n)
{
	const struct table *t = &store_tables[table];
	unsigned calm = (unsigned)rng_below(&rng, 4);
	union row row = { 0 }, want;
	struct row_check check;

	for (size_t i = 0; i < t->n; i++) {
		do {
			set_random(&t->columns[i], &row);
			check = (struct row_check){ 0 };
			want = row;
			struct value v = column_get(&t->columns[i], &row);
			row_check_column(&t->columns[i], &want, &v, &check);
		} while (calm && (check.refused || check.replaced) && rng_below(&rng, 40));
	}
	want = row;
	row_check(t, &want, &check);
	n->refused += check.refused != NULL;
	n->replaced += check.replaced != NULL;
	if (write_row(db, table, &row)) {
		CHECK(!check.refused);
		n->written++;
		read_back(db, table, &want);
		for (size_t i = 0; i < t->n && !check.replaced; i++)
			CHECK(same(&t->columns[i], &want, &row));
		del_row(db, table, &want);
	} else {
		CHECK(check.refused);
	}
}

static void open_db(struct db *db)
{
	*db = (struct db){ 0 };
	CHECK_INT(sqlite3_open(":memory:", &db->sql), SQLITE_OK);
	CHECK_INT(schema_migrate(db->sql, 0), SQLITE_OK);
	CHECK_INT(db_prepare(db), SQLITE_OK);
}

TEST(rows_are_read_as_written_or_not_written)
{
	struct db db;

	log_setup(LOG_LEVEL_ERROR);
	rng_seed(&rng, 4);
	for (size_t i = 0; i < 2; i++) {
		pool[i] = malloc(LONG_BYTES + 1);
		CHECK(pool[i]);
		for (size_t at = 0; at < LONG_BYTES; at++)
			pool[i][at] = i ? "\xc3\xa9"[at % 2] : 'a';
		pool[i][LONG_BYTES] = 0;
	}
	open_db(&db);
	for (enum row_table t = 0; t < ROW_TABLES; t++) {
		struct counts n = { 0 };

		for (unsigned i = 0; i < ROUNDS; i++)
			one_round(&db, t, &n);
		printf("%s: written %u, refused %u, with replaced values %u\n", store_tables[t].name, n.written, n.refused,
		       n.replaced);
		CHECK(n.written > ROUNDS / 10 && n.refused > ROUNDS / 100 && n.replaced > ROUNDS / 100);
	}
	db_close(&db);
	free(pool[0]);
	free(pool[1]);
}

/* What a column is otherwise lies within its own bounds, and a key is whole. */
TEST(descriptions_are_sound)
{
	for (enum row_table t = 0; t < ROW_TABLES; t++) {
		const struct table *x = &store_tables[t];

		CHECK(x->n_key && x->n_key < x->n);
		for (size_t i = 0; i < x->n; i++) {
			const struct column *c = &x->columns[i];

			CHECK(c->least <= c->most);
			CHECK(i >= x->n_key || c->required);
			if (c->required)
				continue;
			CHECK(c->kind != COLUMN_IS_INT || (c->otherwise >= c->least && c->otherwise <= c->most));
			CHECK(c->kind != COLUMN_IS_TEXT || !c->least);
			CHECK(c->kind != COLUMN_IS_BLOB || !c->least);
		}
	}
}

TEST_MAIN()
