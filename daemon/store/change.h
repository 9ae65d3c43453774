/* SPDX-License-Identifier: MIT */
/*
 * A change on its way to the writer: the number of a statement and its values, packed one after the
 * other in one buffer. Only this module writes and reads it, within one process.
 */
#ifndef AB_DAEMON_STORE_CHANGE_H
#define AB_DAEMON_STORE_CHANGE_H

#include <stdbool.h>

#include "daemon/store/row.h"
#include "proto/base/buf.h"

struct sqlite3_stmt;

/* Of a table: its row is put, the row of a key is deleted. Then what is made for one purpose. */
#define STMT_PUT(table) ((table) * 2u)
#define STMT_DEL(table) ((table) * 2u + 1)
#define STMT_GET(table) (STMT_GETS + (table))

enum {
	STMT_GETS = ROW_TABLES * 2,
	STMT_OTHERS = ROW_TABLES * 3,
	STMT_PUT_META = STMT_OTHERS,
	STMT_RAISE_META,
	STMT_DEL_EVENTS,	/* of a uid, up to a number of its own */
	STMT_DEL_LEASES,	/* of a sandbox */
	STMT_PRUNE_REQUESTS,	/* of sandboxes that are no more */
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
	bool failed;		/* no memory: must not be committed */
	char refused[64];	/* "table.column" that cannot be stored: neither; "" = all can */
};

/* The row as it will be read again: see row_check(). */
void change_put_row(struct changes *c, enum row_table table, const void *row);
/* The row with this key; its other members are not looked at. */
void change_del_row(struct changes *c, enum row_table table, const void *row);
/* A question for it, which is no change. */
void change_get_row(struct changes *c, enum row_table table, const void *row);
void change_begin(struct changes *c, unsigned stmt);
void change_int(struct changes *c, int64_t v);
void change_text(struct changes *c, const char *s);	/* NULL = "" */

struct change_reader {
	const uint8_t *p, *end;
};
/* Next change: its statement, bound. False at the end. */
bool change_next(struct change_reader *r, unsigned *ret_stmt);
void change_bind(struct change_reader *r, struct sqlite3_stmt *s);

#endif
