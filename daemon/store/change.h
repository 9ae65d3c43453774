/* SPDX-License-Identifier: MIT */
/*
 * A change on its way to the writer: the number of a statement and its values, packed one after the
 * other in one buffer. Only this module writes and reads it, within one process.
 */
#ifndef AB_DAEMON_STORE_CHANGE_H
#define AB_DAEMON_STORE_CHANGE_H

#include <stdbool.h>

#include "proto/base/buf.h"

struct sqlite3_stmt;

enum stmt_id {
	STMT_PUT_SANDBOX,
	STMT_DEL_SANDBOX,
	STMT_PUT_INTENT,
	STMT_DEL_INTENT,
	STMT_PUT_REQUEST,
	STMT_DEL_REQUEST,
	STMT_PUT_NAME,
	STMT_DEL_NAME,
	STMT_PUT_META,
	STMT_RAISE_META,
	STMT_PUT_LEASE,
	STMT_DEL_LEASE,
	STMT_PUT_EVENT,
	STMT_DEL_EVENTS,
	STMT_PUT_COMMAND,
	STMT_DEL_COMMAND,
	STMT_PUT_COMMAND_REQUEST,
	STMT_DEL_COMMAND_REQUEST,
	STMT_PUT_COPY,
	STMT_DEL_COPY,
	STMT_PUT_SNAPSHOT,
	STMT_DEL_SNAPSHOT,
	STMT_N,
};

extern const char *const stmt_sql[STMT_N];

struct changes {
	struct buf buf;
	bool failed;		/* no memory: must not be committed */
};

void change_begin(struct changes *c, enum stmt_id id);
void change_int(struct changes *c, int64_t v);
void change_text(struct changes *c, const char *s);	/* NULL = "" */
void change_blob(struct changes *c, const void *p, size_t n);

struct change_reader {
	const uint8_t *p, *end;
};
/* Next change: its statement, bound. False at the end. */
bool change_next(struct change_reader *r, enum stmt_id *ret_id);
void change_bind(struct change_reader *r, struct sqlite3_stmt *s);

#endif
