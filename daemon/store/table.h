/* SPDX-License-Identifier: MIT */
/*
 * The tables as data, made from rows/tables.def: the place of each column in its row struct, and the check of
 * rows that are to be written and of rows that were read. [pure]
 */
#ifndef AB_DAEMON_STORE_TABLE_H
#define AB_DAEMON_STORE_TABLE_H

#include <stdbool.h>

#include "daemon/store/row.h"

enum column_kind {
	COLUMN_IS_INT,
	COLUMN_IS_TEXT,
	COLUMN_IS_BLOB,
	COLUMN_IS_BYTES,
};

struct column {
	const char *name;
	enum column_kind kind;
	bool required;		/* a row with this value out of bounds is refused */
	bool is_signed;
	size_t size;		/* of an INT's member */
	size_t at, len_at;	/* offsets in the row struct: of the value, and of a BLOB's length */
	int64_t least, most;	/* bounds of an INT's value, or of the number of bytes */
	int64_t otherwise;	/* replaces an INT out of bounds that is not required */
};

struct table {
	const char *name;
	const char *key, *key_marks;	/* "a, b": the columns of the key, which come first; "?, ?" */
	const struct column *columns;
	size_t n, n_key, row_size;
	const char *(*contradicts)(const void *row);	/* returns a column that contradicts the others; NULL = none. May be NULL */
};

extern const struct table store_tables[ROW_TABLES];

union row {
#define TABLE_BEGIN(table) struct row_##table table;
#include "daemon/store/rows/tables.def"
};

struct value {
	int64_t i;	/* INT */
	const char *p;	/* the others; a TEXT ends with a NUL behind its n bytes */
	size_t n;
};

struct value column_get(const struct column *c, const void *row);

struct row_check {
	const char *refused;	/* the first required column out of its bounds: the row is refused; NULL = none */
	const char *replaced;	/* the first other column out of its bounds, which got its `otherwise`; NULL = none */
};

/* Puts a value into its row, or its `otherwise`, and notes that in *check. */
void row_check_column(const struct column *c, void *row, const struct value *v, struct row_check *check);
/* After all columns: checks table.contradicts. */
void row_check_end(const struct table *t, const void *row, struct row_check *check);
/* The whole check, in place, of a row that is to be written. */
void row_check(const struct table *t, void *row, struct row_check *ret);
/* A copy that owns its texts and blobs. -ENOMEM leaves *ret without any. */
must_check int row_dup(const struct table *t, const void *row, union row *ret);
void row_fini(const struct table *t, union row *row);
/* The values of the key as a text for people; cut to `size`. */
void row_key_text(const struct table *t, const void *row, char *ret, size_t size);

struct store_visitor;
bool store_wants(const struct store_visitor *v, enum row_table table);
void store_visit(const struct store_visitor *v, enum row_table table, const union row *row);

#endif
