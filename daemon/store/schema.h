/* SPDX-License-Identifier: MIT */
/* The schema and its version, which the file has as `user_version`. */
#ifndef AB_DAEMON_STORE_SCHEMA_H
#define AB_DAEMON_STORE_SCHEMA_H

#include "proto/base/cc.h"

struct sqlite3;

extern const int schema_version;
extern const int schema_application;	/* PRAGMA application_id of our databases */

/* From an older version (0 = an empty file), in one transaction. An SQLite code. */
must_check int schema_migrate(struct sqlite3 *db, int from);

#endif
