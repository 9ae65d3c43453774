/* SPDX-License-Identifier: MIT */
/* A copy of the whole database, as it is at one moment, for who makes a backup of it. On the loop. */
#ifndef AB_DAEMON_STORE_EXPORT_H
#define AB_DAEMON_STORE_EXPORT_H

#include <stdint.h>

#include "proto/base/cc.h"

struct status;
struct store;
struct store_export;

/* `fd` reads the copy from its beginning, `bytes` long, and lives until store_export_free(). It is an SQLite database without a
 * journal, which nobody writes. -1: st says why there is none. */
typedef void store_export_fn(void *user, const struct status *st, int fd, uint64_t bytes);

/* Makes one after all that was committed before. `done` comes once, never from inside, and not after store_export_free(). There is
 * one at a time, as each takes the disk's room until it is freed: else -EBUSY. -ENOMEM. */
must_check int store_export(struct store *s, store_export_fn *done, void *user, struct store_export **ret);
/* At any time. NULL is fine; returns NULL. */
struct store_export *store_export_free(struct store_export *x);

#endif
