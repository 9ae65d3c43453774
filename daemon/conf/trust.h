/* SPDX-License-Identifier: MIT */
/* Whether a file may say what a daemon that serves many users does: nobody but root and the daemon's own user can change it. */
#ifndef AB_DAEMON_CONF_TRUST_H
#define AB_DAEMON_CONF_TRUST_H

#include <stddef.h>

#include "proto/base/cc.h"

#define TRUST_WHY_BYTES 512u

/* Looks at the file that `path` leads to and at every folder above it and above `path` itself, where a name could be exchanged.
 * 0; -EPERM with what others may change, and what to do, in `why`; -ENOENT and the like if it cannot be looked at. */
must_check int trust_check(const char *path, char why[TRUST_WHY_BYTES]);

#endif
