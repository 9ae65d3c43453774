/* SPDX-License-Identifier: MIT */
/* Signals that end a program by default and have no meaning for ours. */
#ifndef AB_DAEMON_COMMON_EV_SIGNALS_H
#define AB_DAEMON_COMMON_EV_SIGNALS_H

#include <stddef.h>

#include "proto/base/cc.h"

struct loop;

/* From now on each of them, and of the n signals in `more`, only adds a line to the log. SIGPIPE and SIGXFSZ are ignored
 * without a line, because the failed write that causes them is handled anyway. -errno. */
must_check int signals_ignore(struct loop *l, const int *more, size_t n);

#endif
