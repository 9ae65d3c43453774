/* SPDX-License-Identifier: MIT */
/*
 * Changes on their way to the writer: each is the number of a statement and its values, packed behind the one before
 * it in one buffer. This module alone writes and reads the format, within one process.
 */
#ifndef AB_DAEMON_STORE_CHANGE_H
#define AB_DAEMON_STORE_CHANGE_H

#include <stdbool.h>

#include "daemon/store/row.h"
#include "proto/base/buf.h"

struct sqlite3_stmt;

/* Statements of a table: put a row, delete or read the row of a key. Behind them those for one purpose. */
#define STMT_PUT(table) ((table) * 2u)
#define STMT_DEL(table) ((table) * 2u + 1)
#define STMT_GET(table) (STMT_GETS + (table))

enum {
	STMT_GETS = ROW_TABLES * 2,
	STMT_OTHERS = ROW_TABLES * 3,
	STMT_PUT_META = STMT_OTHERS,
	STMT_RAISE_META,
	STMT_DEL_EVENTS,	/* of a uid, up to a seq */
	STMT_DEL_LEASES,	/* of a sandbox */
	STMT_PRUNE_REQUESTS,	/* struct store_prune */
	STMT_PRUNE_COMMAND_REQUESTS,
	STMT_BEGIN,		/* these have no values */
	STMT_COMMIT,
	STMT_SAVEPOINT,
	STMT_RELEASE,
	STMT_N,
};

/* The statement's SQL on the heap; NULL without memory. */
char *change_sql(unsigned stmt);

struct changes {
	struct buf buf;
	bool failed;		/* memory ran out: must not be committed */
	char refused[64];	/* "table.column" of a row that would be refused: must not be committed; "" = none */
};

/* Puts the row as row_check() leaves it. */
void change_put_row(struct changes *c, enum row_table table, const void *row);
/* Deletes the row with the key of *row, whose other members are not read. */
void change_del_row(struct changes *c, enum row_table table, const void *row);
/* For db_get(): asks for the row with this key. */
void change_get_row(struct changes *c, enum row_table table, const void *row);
void change_begin(struct changes *c, unsigned stmt);
void change_int(struct changes *c, int64_t v);
void change_text(struct changes *c, const char *s);	/* NULL = "" */

struct change_reader {
	const uint8_t *p, *end;
};
/* The statement of the next change, whose values change_bind() has to take. False at the end. */
bool change_next(struct change_reader *r, unsigned *ret_stmt);
void change_bind(struct change_reader *r, struct sqlite3_stmt *s);

#endif
