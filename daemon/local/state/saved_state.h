/* SPDX-License-Identifier: MIT */
/*
 * STATE/kept.json: what outlives this process. Sandboxes that were paused without their memory, and
 * snapshots; their files are layers. Written whole after every change. A layer that nobody here
 * knows is removed at the start.
 */
#ifndef AB_DAEMON_LOCAL_STATE_SAVED_STATE_H
#define AB_DAEMON_LOCAL_STATE_SAVED_STATE_H

#include "proto/base/cc.h"

struct teams;
struct state;

/* At the start. What belongs to teams that no key names now stays in the file. -EINVAL: the file is
 * damaged, and nothing is touched. */
must_check int saved_state_load(struct state *st, const struct teams *a);
/* Failure is logged: the change holds until this process ends. */
void saved_state_write(struct state *st);
/* Once the engine is ready: removes layers that nobody needs. */
void saved_state_sweep(struct state *st);

#endif
