/* SPDX-License-Identifier: MIT */
/* What the module itself does with ties (sandbox.h): it tells them what becomes of their sandbox. */
#ifndef AB_DAEMON_SANDBOX_TIE_H
#define AB_DAEMON_SANDBOX_TIE_H

#include "daemon/sandbox/record.h"

/* The state is `to` now: tells ties at once of PAUSING and RUNNING. */
void tie_edge(struct sandbox *b, enum sandbox_state to);
/* The sandbox is gone: its ties hear of it when the transactions of this pass are committed. */
void tie_gone(struct sandbox_core *core, struct sandbox *b);
/* Events up to core->events.told are committed: tells the ties that wait for them. */
void tie_committed(struct sandbox_core *core);
/* The sandbox is being freed: unties all, and tells nothing. */
void tie_forget(struct sandbox *b);

#endif
