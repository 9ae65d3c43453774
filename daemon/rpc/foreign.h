/* SPDX-License-Identifier: MIT */
/* Is a process in the same user and pid namespaces as the daemon? By what everybody may read below /proc. */
#ifndef AB_DAEMON_RPC_FOREIGN_H
#define AB_DAEMON_RPC_FOREIGN_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/base/cc.h"

/* True also where it cannot be told: no number here, no /proc, a /proc that hides it. The caller makes sure afterwards that the process
 * was still alive. */
bool foreign_is(pid_t pid);

/* How many numbers /proc/PID/status has for it, of its own namespace and those above it up to the one of this /proc; 0 = it does not
 * say. [pure] */
unsigned foreign_depth(const char *status);

#endif
