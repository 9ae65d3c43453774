/* SPDX-License-Identifier: MIT */
/*
 * STATE/journal.ndjson: one JSON object a line for every change that was accepted or refused, in the
 * order they happened. Only ever appended to; moved to journal.ndjson.1 at a start that finds it
 * large. For tests and for people, never read by us. No secrets go in.
 */
#ifndef AB_DAEMON_LOCAL_STATE_JOURNAL_H
#define AB_DAEMON_LOCAL_STATE_JOURNAL_H

#include <jansson.h>

#include "proto/base/cc.h"

struct journal;

must_check int journal_open(const char *state_dir, struct journal **ret);
struct journal *journal_close(struct journal *j);

/* Steals `fields` (NULL is an object lost to lack of memory) and adds seq, time and op. A line that
 * cannot be written is counted and logged once. */
void journal_add(struct journal *j, const char *op, json_t *fields);

#endif
