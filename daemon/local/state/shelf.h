/* SPDX-License-Identifier: MIT */
/*
 * STATE/kept.json: what outlives this process. Sandboxes that were paused without their memory, and
 * snapshots; their files are layers. Written whole after every change. A layer that nobody here
 * knows is removed at the start.
 */
#ifndef AB_DAEMON_LOCAL_STATE_SHELF_H
#define AB_DAEMON_LOCAL_STATE_SHELF_H

#include "proto/base/cc.h"

struct accounts;
struct state;

/* At the start. What belongs to teams that no key names now stays in the file. -EINVAL: the file is
 * damaged, and nothing is touched. */
must_check int shelf_load(struct state *st, const struct accounts *a);
/* Failure is logged: the change holds until this process ends. */
void shelf_write(struct state *st);
/* Once the engine is ready: removes layers that nobody needs. */
void shelf_sweep(struct state *st);

#endif
