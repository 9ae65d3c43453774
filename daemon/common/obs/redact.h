/* SPDX-License-Identifier: MIT */
/*
 * Secrets that this process holds or sent, so that no text from outside shows them: a cloud may write the key into the error
 * that refuses it. A secret is known by its first REDACT_BYTES bytes; wherever they stand in a text, they and what follows of
 * the same word become '*', so that a secret that was cut is hidden too. Any thread.
 */
#ifndef AB_DAEMON_COMMON_OBS_REDACT_H
#define AB_DAEMON_COMMON_OBS_REDACT_H

#include "proto/base/status.h"

#define REDACT_BYTES 8u		/* a shorter secret is none: it would hide words */

/* Each word of `text` that is long enough is a secret from now on. NULL and "" are fine. The last 8192 are known; those of
 * redact_keep(), which are for as long as the process lives, at most 256, always. */
void redact_keep(const char *text);
void redact_note(const char *text);

void redact_text(char *text);
/* The sentence and the evidence. */
void redact_status(struct status *s);

#endif
