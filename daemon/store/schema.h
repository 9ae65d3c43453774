/* SPDX-License-Identifier: MIT */
/* The schema as ordered steps; `user_version` counts those that were done. */
#ifndef AB_DAEMON_STORE_SCHEMA_H
#define AB_DAEMON_STORE_SCHEMA_H

#include "proto/base/cc.h"

struct sqlite3;

extern const int schema_version;

/* One transaction a step, so a crash leaves a whole number of them. An SQLite code. */
must_check int schema_migrate(struct sqlite3 *db, int from);

#endif
