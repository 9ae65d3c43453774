/* SPDX-License-Identifier: MIT */
/* The inside of ties (sandbox.h): who is told what becomes of a sandbox, and when. */
#ifndef AB_DAEMON_SANDBOX_TIE_H
#define AB_DAEMON_SANDBOX_TIE_H

#include "daemon/sandbox/record.h"

/* An edge of its state that its ties hear of at once. */
void tie_edge(struct sandbox *b, enum sandbox_state to);
/* It is gone; the ties hear of it when all that was put so far is committed. */
void tie_gone(struct sandbox_core *core, struct sandbox *b);
/* Commits are through up to core->events.told. */
void tie_committed(struct sandbox_core *core);
/* Its row goes: nothing is told any more. */
void tie_forget(struct sandbox *b);

#endif
