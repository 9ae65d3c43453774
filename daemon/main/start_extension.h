/* SPDX-License-Identifier: MIT */
/*
 * Asks the service manager for more time while the start does something long that the loop cannot interrupt, as a migration
 * of the database. A thread of its own sends the requests.
 */
#ifndef AB_DAEMON_MAIN_START_EXTENSION_H
#define AB_DAEMON_MAIN_START_EXTENSION_H

#include "proto/base/cc.h"

#define START_EXTENSION_EVERY_MS 10000u
#define START_EXTENSION_MAX	 180u	/* requests; then the manager's own time limit decides */

struct notify;
struct start_extension;

/* From now on, every_ms after another, the manager is asked for three times as long. With no manager there is no thread, and
 * *ret is NULL. -errno. `n` outlives it. */
must_check int start_extension_begin(const struct notify *n, uint64_t every_ms, struct start_extension **ret);
/* Waits for the thread, which ends at once. NULL is fine; returns NULL. */
struct start_extension *start_extension_end(struct start_extension *x);

#endif
