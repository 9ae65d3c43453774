/* SPDX-License-Identifier: MIT */
/*
 * The stored rows as plain structs, one for each table: struct row_sandbox, row_intent, row_request, row_name,
 * row_lease, row_event, row_command, row_command_request, row_copy, row_snapshot, row_gateway_token,
 * row_warm, row_owner and row_template. rows/NAME.def is the one description of a row: it has the members and what they mean.
 *
 * Strings are borrowed: the store copies those that it is given, and those that it gives out are valid during the
 * visit only. NULL and "" are stored as "". Times are wall clock in ms since 1970, as they must be valid
 * after a reboot; 0 = unknown.
 */
#ifndef AB_DAEMON_STORE_ROW_H
#define AB_DAEMON_STORE_ROW_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"

/* Bounds that several columns share; a text's is without its NUL. */
#define ROW_HASH_BYTES	  32u
#define ROW_TEXT_MAX	  1024u
#define ROW_LONG_TEXT_MAX 4096u
#define ROW_SECRET_MAX	  4096u
#define ROW_OBJECTS_MAX	  (16 * 1024u)
#define ROW_BLOB_MAX	  (1024u * 1024)
#define ROW_RECIPE_MAX	  (2 * ROW_BLOB_MAX)
#define ROW_KNOWN_MAX	  (4 * ROW_BLOB_MAX)
#define ROW_UID_MAX	  0xfffffffell
#define ROW_MOMENT_MAX	  (INT64_MAX / 1000)

enum row_lease_kind {
	ROW_LEASE_STREAM = 1,	/* as long as a stream is open */
	ROW_LEASE_PROCESS = 2,	/* as long as a process lives */
	ROW_LEASE_TTL = 3,	/* until expires_at_ms */
};

enum row_intent_state {
	ROW_INTENT_OPEN = 1,		/* the POST may have been sent */
	ROW_INTENT_SETTLING = 2,	/* it is being resolved */
};

#define ROW_INTENT_CREATE 1

enum row_request_state {
	ROW_REQUEST_OPEN = 1,
	ROW_REQUEST_DONE = 2,		/* `object` names what was made */
	ROW_REQUEST_UNKNOWN = 3,	/* resolving it ended without an outcome */
};

enum row_command_state {
	ROW_COMMAND_INTENT = 1,		/* the start may have been sent */
	ROW_COMMAND_RUNNING = 2,	/* the pid is known */
	ROW_COMMAND_ENDED = 3,		/* the result is known */
};

enum row_command_flag {
	ROW_COMMAND_DETACH = 1,
	ROW_COMMAND_STDIN = 2,
	ROW_COMMAND_PTY = 4,
	ROW_COMMAND_GROUP = 8,
	ROW_COMMAND_SHELL = 16,		/* `shell` is what runs, not `args` */
	ROW_COMMAND_TIMED_OUT = 32,
	ROW_COMMAND_KILLED = 64,
	ROW_COMMAND_INPUT_ENDED = 128,
	ROW_COMMAND_TRUNCATED = 256,	/* output was lost */
	ROW_COMMAND_PIPES_HELD = 512,	/* other processes held its output when it ended */
	ROW_COMMAND_PLAIN = 1024,	/* nothing of ours is in it: found by its pid and `args` */
	ROW_COMMAND_FLAGS = 2047,
};

enum row_owner_state {
	ROW_OWNER_PRESENT = 1,		/* the last that connected with its uid */
	ROW_OWNER_FORMER = 2,		/* another name has its uid; what it held was released */
	ROW_OWNER_UNNAMED = 3,		/* of a version that knew no names: the first that connects */
};

enum row_copy_kind {
	ROW_COPY_FORK = 1,
	ROW_COPY_SNAPSHOT = 2,
};

#define TABLE_BEGIN(table)				     struct row_##table {
#define COLUMN_INT(name, type, least, most, need, otherwise) type name;
#define COLUMN_TEXT(name, least, most, need)		     const char *name;
#define COLUMN_BLOB(name, most, need)			     const char *name; size_t name##_len;
#define COLUMN_BYTES(name, bytes)			     uint8_t name[bytes];
#define TABLE_END(table, key, marks, n_key, rule)	     };
#include "daemon/store/rows/tables.def"

enum row_table {
#define TABLE_BEGIN(table)				     ROW_TABLE_##table,
#include "daemon/store/rows/tables.def"
	ROW_TABLES,
};

/* Is this text within the bounds of the column? For texts from outside, before they are kept in memory. */
#define ROW_KEEPS(table, column, text) row_keeps(ROW_TABLE_##table, offsetof(struct row_##table, column), text)
bool row_keeps(enum row_table table, size_t at, const char *text);

#endif
