/* SPDX-License-Identifier: MIT */
/*
 * Secrets that this process holds or sent, so that no text from outside shows them: a cloud may write the key into the error
 * that refuses it. Of a secret its words of at least REDACT_BYTES bytes are known, by their first REDACT_BYTES; wherever those
 * stand in a text, they and what follows of the same word become '*', so that a secret that was cut is hidden too. One that has
 * no such word is known by its own beginning, and one that is shorter is hidden where it stands by itself. Any thread.
 */
#ifndef AB_DAEMON_COMMON_OBS_REDACT_H
#define AB_DAEMON_COMMON_OBS_REDACT_H

#include "proto/base/status.h"

#define REDACT_BYTES	 8u
#define REDACT_MIN_BYTES 4u	/* what is shorter is guessed anyway, and would hide words */

/* `text` is a secret from now on. NULL and "" are fine. The last 8192 are known, of short ones 64; those of redact_keep(),
 * which are for as long as the process lives, at most 256, of short ones 64, always. */
void redact_keep(const char *text);
void redact_note(const char *text);

void redact_text(char *text);
/* The sentence and the evidence. */
void redact_status(struct status *s);
/* The same for secrets of one call, which hide nothing in what others are told. */
void redact_status_of(struct status *s, const char *const *secrets, size_t n);

#endif
