/* SPDX-License-Identifier: MIT */
/*
 * What the daemon does with a sandbox by itself: extends it while it is used, warns before its end,
 * and does what its policy says when it is released, idle, too old, capped or unclaimed. Decisions
 * are evaluate.c's; this file carries one out at a time for each sandbox. Before it pauses or kills one, it
 * asks the cloud about it and decides once more, so that neither a stalled daemon nor an old belief
 * ends what is in use. Nothing here wakes a paused sandbox.
 */
#ifndef AB_DAEMON_SANDBOX_RUNNER_H
#define AB_DAEMON_SANDBOX_RUNNER_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct account;
struct sandbox;
struct runner;

/* Something changed: look at it soon (never from inside). */
void runner_poke(struct sandbox *b);
/* Something changed that says whether extensions keep it alive; runner_poke() does it, too. */
void runner_note(struct sandbox *b);
/* Its end is another one than before. */
void runner_end_learnt(struct sandbox *b);
/* Its user sets its end: no extension meanwhile. Pairs. */
void runner_hold(struct sandbox *b);
void runner_release(struct sandbox *b);
/* Do extensions keep it alive now? *ret_left_ms: until its end. */
bool runner_keeps(const struct sandbox *b, int64_t *ret_left_ms);
/* Would they, with a lease, and do not yet? */
bool runner_would_keep(const struct sandbox *b, int64_t *ret_left_ms);
/* NULL is fine; stops what is under way. Returns NULL. */
struct runner *runner_free(struct sandbox *b);

/* The cloud's wall clock and our BOOTTIME, by its Date headers: local clock steps move nothing. */
void account_saw_date(struct account *a, int64_t date_ms);
/* What the cloud's clock shows: ends are compared with it, never with ours. */
int64_t account_cloud_now(const struct account *a);

#endif
