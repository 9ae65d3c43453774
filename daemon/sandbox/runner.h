/* SPDX-License-Identifier: MIT */
/*
 * What the daemon does with a sandbox by itself: extends it while it is used, warns before its end,
 * and does what its policy says when it is released, idle, too old, capped or unclaimed. rules/evaluate.c
 * decides; this file carries out one decision at a time for each sandbox. Before it pauses or kills one, it
 * asks the cloud about it and decides once more, so that neither a stalled daemon nor an old row
 * ends a sandbox that is in use. Nothing here resumes a paused sandbox.
 */
#ifndef AB_DAEMON_SANDBOX_RUNNER_H
#define AB_DAEMON_SANDBOX_RUNNER_H

#include <stdbool.h>

#include "proto/base/cc.h"

struct account;
struct sandbox;
struct runner;

/* Something about the sandbox changed: evaluates it in the loop's next pass, and does runner_note(). */
void runner_poke(struct sandbox *b);
/* The same, but behind the answers of this pass, and in turns with what else comes. */
void runner_poke_later(struct sandbox *b);
/* Something changed that decides whether extensions keep it alive: brings the account's book up to date. */
void runner_note(struct sandbox *b);
/* Its end has changed. */
void runner_end_learnt(struct sandbox *b);
/* Its user sets its end: no extension until the release. Every hold needs its release. */
void runner_hold(struct sandbox *b);
void runner_release(struct sandbox *b);
/* Do extensions keep it alive now? *ret_left_ms: until its end. */
bool runner_keeps(const struct sandbox *b, int64_t *ret_left_ms);
/* Would one more lease make extensions keep it alive, which they do not yet? */
bool runner_would_keep(const struct sandbox *b, int64_t *ret_left_ms);
/* NULL is fine; stops what is under way. Returns NULL. */
struct runner *runner_free(struct sandbox *b);

/* The cloud's clock is ours until an answer to any call of the account says what time it is there (Date). Steps of the local wall clock do
 * not change it. */
void account_clock_start(struct account *a);
void account_clock_stop(struct account *a);
/* The cloud's wall clock now. Ends are compared with it, never with the local one. */
int64_t account_cloud_now(const struct account *a);

#endif
